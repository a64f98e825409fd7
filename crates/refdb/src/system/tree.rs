//! Trees of directories without a file in them.

use std::io;
use std::path::Path;

use super::{FileKind, System, bytes_to_path};

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
