//! The sources of the workspace, for those who check them.

use std::fs;
use std::path::{Path, PathBuf};

use refdb_testkit::oracle::workspace_root;

/// A source file of the workspace.
pub(crate) struct Source {
    /// From the root of the workspace, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Returns all Rust files of the workspace.
pub(crate) fn all() -> Vec<Source> {
    ["crates", "testkit", "bench", "fuzz"]
        .into_iter()
        .flat_map(below)
        .collect()
}

/// Returns the Rust files below a folder of the workspace.
pub(crate) fn below(folder: &str) -> Vec<Source> {
    let mut sources = Vec::new();
    let mut folders = vec![PathBuf::from(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(workspace_root().join(&folder)) else {
            continue;
        };
        for entry in entries {
            let entry = entry.expect("the sources can be listed");
            let path = folder.join(entry.file_name());
            if entry.file_type().expect("the entry is there").is_dir() {
                if entry.file_name() != "target" {
                    folders.push(path);
                }
            } else if path.extension() == Some("rs".as_ref()) {
                sources.push(read(path.to_str().expect("sources have ASCII names")));
            }
        }
    }
    sources
}

pub(crate) fn read(path: &str) -> Source {
    let text = fs::read_to_string(Path::new(workspace_root()).join(path));
    Source {
        path: path.to_owned(),
        text: text.expect("the source can be read"),
    }
}
