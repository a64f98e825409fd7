//! What whoever handles paths needs beside a system.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{FileKind, System};

/// Turns the bytes of a name into a path; on Unix they are the same.
pub fn bytes_to_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// Returns the path of what has that name in a directory, which takes one allocation where joining takes two.
pub fn joined(dir: &Path, name: &[u8]) -> PathBuf {
    let mut path = PathBuf::with_capacity(dir.as_os_str().len() + "/".len() + name.len());
    path.push(dir);
    path.push(bytes_to_path(name));
    path
}

/// Returns whether an error says that a path leads to nothing.
pub fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// Removes the directory `path` if there is nothing but directories in it; returns whether it is
/// gone.
pub fn remove_empty_tree(system: &dyn System, path: &Path) -> bool {
    match system.remove_dir(path) {
        Ok(()) => return true,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return true,
        Err(_) => {}
    }
    let Ok(entries) = system.read_dir(path) else {
        return false;
    };
    if entries
        .iter()
        .any(|entry| entry.kind != FileKind::Directory)
    {
        return false;
    }
    entries
        .iter()
        .all(|entry| remove_empty_tree(system, &path.join(bytes_to_path(&entry.name))))
        && system.remove_dir(path).is_ok()
}

/// Removes a file, or finds that it is gone.
///
/// # Errors
/// Those of the system.
pub fn remove_if_there(system: &dyn System, path: &Path) -> io::Result<()> {
    match system.remove_file(path) {
        // What is too long for a name is that of no file.
        Err(error) if error.kind() == io::ErrorKind::InvalidFilename => Ok(()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Returns `path` with `suffix` behind its last component.
pub fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let path = path.as_os_str();
    let mut name = OsString::with_capacity(path.len() + suffix.len());
    name.push(path);
    name.push(suffix);
    PathBuf::from(name)
}
