//! The worktrees of a repository: the main one and those that are linked to it.

use std::io;
use std::path::{Path, PathBuf};

use bstr::BString;
use refdb::internals::{bytes_to_path, is_absent};
use refdb::system::{FileKind, System};
use refdb::{Error, Result};

use super::discover::PATH_FILE_LEN_MAX;
use super::paths;

/// One worktree of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worktree {
    /// The name of its directory in `worktrees/`; `None` for the main worktree.
    pub id: Option<BString>,
    /// The directory of its own state.
    pub git_dir: PathBuf,
    /// The directory that holds its files; that of the repository when it is bare.
    pub path: PathBuf,
}

/// Returns the main worktree, then the linked ones in the order of their ids.
pub(super) fn list(system: &dyn System, common_dir: &Path) -> Result<Vec<Worktree>> {
    let real_common = paths::real(system, common_dir).unwrap_or_else(|_| common_dir.to_owned());
    let is_dot_git = real_common.file_name().is_some_and(|name| name == ".git");
    let main_path = match real_common.parent() {
        Some(parent) if is_dot_git => parent.to_owned(),
        _ => real_common,
    };
    let mut worktrees = vec![Worktree {
        id: None,
        git_dir: common_dir.to_owned(),
        path: main_path,
    }];
    let dir = common_dir.join("worktrees");
    let mut entries = match system.read_dir(&dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(worktrees),
        Err(error) => return Err(Error::io("unable to read directory", &dir, error)),
    };
    entries.retain(|entry| entry.kind == FileKind::Directory);
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    for entry in entries {
        let git_dir = dir.join(bytes_to_path(&entry.name));
        let path = match system.read_at_most(&git_dir.join("gitdir"), PATH_FILE_LEN_MAX) {
            // A directory without this file is one that is being made or removed.
            Err(error) if is_absent(&error) => continue,
            Ok(content) if content.len() < PATH_FILE_LEN_MAX => {
                let path = content.trim_ascii_end();
                let path = bytes_to_path(path.strip_suffix(b"/.git").unwrap_or(path));
                match path.is_absolute() {
                    true => path.to_owned(),
                    // One that leads nowhere, as by links in a circle, Git shows as nothing.
                    false => {
                        paths::real_or_missing(system, &git_dir.join(path)).unwrap_or_default()
                    }
                }
            }
            // It has refs, wherever its work tree is.
            Ok(_) => git_dir.clone(),
            Err(error) => return Err(Error::io("unable to read", &git_dir.join("gitdir"), error)),
        };
        worktrees.push(Worktree {
            id: Some(entry.name.into()),
            path,
            git_dir,
        });
    }
    Ok(worktrees)
}
