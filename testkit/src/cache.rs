//! Folders that are made once and copied often.
//!
//! 1. An entry appears whole, by one rename: processes that make the same one at the same time
//!    do not disturb each other, and an interrupted one leaves nothing behind that is used.
//! 2. The key names everything that the content depends on, the version of Git included.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::oracle;

/// Changed whenever what is made changes, so that old entries are no longer found.
const VERSION: u32 = 1;

/// Returns the folder for `key`, which `make` fills if it is not there yet.
pub(crate) fn folder(key: &str, make: impl FnOnce(&Path)) -> PathBuf {
    let root = root();
    let done = root.join(format!("{key}-git{}-{VERSION}", oracle::version()));
    if done.is_dir() {
        return done;
    }
    fs::create_dir_all(&root).expect("the cache folder can be made");
    let fresh = tempfile::Builder::new()
        .prefix("making-")
        .tempdir_in(&root)
        .expect("the cache folder can be written");
    make(fresh.path());
    let fresh = fresh.keep();
    if let Err(error) = fs::rename(&fresh, &done) {
        fs::remove_dir_all(&fresh).expect("what was made can be removed");
        // Another process was faster, and its folder has the same content.
        assert!(done.is_dir(), "cannot keep {}: {error}", done.display());
    }
    done
}

/// Copies a folder. Object files are linked, since nobody writes to them.
///
/// # Errors
///
/// Those of the file system.
pub(crate) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type()?;
        // Git makes nothing else read-only.
        let is_object = entry.metadata()?.permissions().readonly();
        if kind.is_dir() {
            copy(&source, &target)?;
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&source)?, &target)?;
        } else if is_object && target.exists() {
            // Objects of one name have one content; and copying over a link would empty both.
        } else if !(is_object && fs::hard_link(&source, &target).is_ok()) {
            fs::copy(&source, &target)?;
        }
    }
    Ok(())
}

/// The cache lies beside the compiled tests, so that `cargo clean` removes it.
fn root() -> PathBuf {
    let program = std::env::current_exe().expect("a test knows its own path");
    let target = program
        .ancestors()
        .find(|dir| dir.join("CACHEDIR.TAG").is_file());
    match target {
        Some(target) => target.join("testkit-cache"),
        None => oracle::workspace_root().join("target/testkit-cache"),
    }
}
