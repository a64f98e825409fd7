//! Reads what Git left on disk in the `files` format: the plainest reader that can be written,
//! so that it shares no mistake with the one under test.

use std::fs;
use std::path::Path;

use bstr::{BString, ByteSlice};

use crate::state::{LogEntry, State, Target};

/// Reads the refs and reflogs that lie in one folder: root refs, loose refs, `packed-refs`, logs.
pub(crate) fn read(dir: &Path) -> State {
    let mut state = State::default();
    if let Ok(packed) = fs::read(dir.join("packed-refs")) {
        for line in packed
            .lines()
            .filter(|line| !line.starts_with(b"#") && !line.starts_with(b"^"))
        {
            // A line of another shape is kept as it is.
            let (id, name) = match line.iter().position(u8::is_ascii_whitespace) {
                Some(at) => (&line[..at], &line[at + 1..]),
                None => (&b""[..], line),
            };
            state.refs.insert(name.into(), Target::Direct(hex(id)));
        }
    }
    for (name, content) in files_below(dir, Path::new("refs")) {
        state.refs.insert(name, loose(&content));
    }
    for entry in fs::read_dir(dir).expect("the folder is there") {
        let name = entry
            .expect("the folder can be read")
            .file_name()
            .into_encoded_bytes();
        let is_root = name
            .iter()
            .all(|b| b.is_ascii_uppercase() || matches!(b, b'_' | b'-'));
        if is_root && !matches!(&name[..], b"FETCH_HEAD" | b"MERGE_HEAD") {
            let path = dir.join(name.to_path().expect("it came from a path"));
            if path.is_file() || path.is_symlink() {
                let content = content(&path);
                state.refs.insert(name.into(), loose(&content));
            }
        }
    }
    for (name, content) in files_below(&dir.join("logs"), Path::new("")) {
        let entries = content
            .lines()
            .map(|line| LogEntry::parse(line.into()).unwrap_or_else(|| LogEntry::raw(line.into())))
            .collect();
        state.logs.insert(name, entries);
    }
    state
}

fn loose(content: &[u8]) -> Target {
    let content = content.trim_ascii_end();
    match content.strip_prefix(b"ref:") {
        Some(target) => Target::Symbolic(target.trim_ascii_start().into()),
        None => Target::Direct(hex(content)),
    }
}

/// Reads a file; a symbolic link is a symref in another form.
fn content(path: &Path) -> Vec<u8> {
    match fs::read_link(path) {
        Ok(target) => [b"ref: ", target.as_os_str().as_encoded_bytes()].concat(),
        Err(_) => fs::read(path).expect("the file can be read"),
    }
}

fn hex(id: &[u8]) -> String {
    id.to_str_lossy().into_owned()
}

/// Returns all files below `dir`/`below` with their paths from `dir`, except lock files.
fn files_below(dir: &Path, below: &Path) -> Vec<(BString, Vec<u8>)> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(dir.join(below)) else {
        return found;
    };
    for entry in entries {
        let entry = entry.expect("the folder can be read");
        let name = entry.file_name();
        let path = below.join(name);
        if entry.file_type().expect("the entry is there").is_dir() {
            found.extend(files_below(dir, &path));
        } else if path.extension().is_none_or(|it| it != "lock") {
            let content = content(&entry.path());
            found.push((path.into_os_string().into_encoded_bytes().into(), content));
        }
    }
    found
}
