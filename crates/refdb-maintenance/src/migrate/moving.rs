//! Moving a directory where it cannot be renamed.
//!
//! In an overlay, a directory of a lower layer is neither renamed nor exchanged (`EXDEV`); files are,
//! and directories can be made anew. So the files of such a directory are moved one by one.
//!
//! Invariants:
//! 1. Files are renamed, never copied: whatever others write to a file goes with it.
//! 2. Locks are moved after all that they keep others from.
//! 3. After a crash the same call goes on, to the same place. A file that others made under the name
//!    of one that was moved before is never put over that one.

use std::io;
use std::path::{Path, PathBuf};

use refdb::internals::{bytes_to_path, is_absent};
use refdb::system::{DirEntry, FileKind};
use refdb::{Error, ErrorKind, Result};

use super::Context;
use super::folder::{self, exists};

/// How often a directory is emptied into which others write.
const ATTEMPTS: usize = 100;

/// The stack of tables, and its lock.
pub(super) const STACK: &str = "reftable";
pub(super) const LIST: &str = "tables.list";
const LOCK: &str = "tables.list.lock";

/// Returns whether an error says that something has to be moved file by file.
pub(super) fn is_needed(error: &Error) -> bool {
    error.io_kind() == Some(io::ErrorKind::CrossesDevices)
}

/// Returns where the `number`th thing of one name is put in `old`.
pub(super) fn again(old: &Path, number: usize) -> PathBuf {
    match number {
        0 => old.to_owned(),
        _ => old.join(format!("again-{number}")),
    }
}

/// Returns a path for `item` in `old` that is free, and makes the directories for it.
pub(super) fn free(context: &Context, old: &Path, item: &Path) -> Result<PathBuf> {
    let mut number = 0;
    let mut path = old.join(item);
    while exists(context.system.as_ref(), &path)? {
        number += 1;
        path = again(old, number).join(item);
    }
    if let Some(dir) = path.parent().filter(|dir| dir.starts_with(old)) {
        create_all(context, dir)?;
    }
    Ok(path)
}

/// Makes a directory, and those above it that are missing.
fn create_all(context: &Context, dir: &Path) -> Result<()> {
    if exists(context.system.as_ref(), dir)? {
        return Ok(());
    }
    if let Some(above) = dir.parent() {
        create_all(context, above)?;
    }
    context.create_dir(dir)
}

/// Moves the files below `dir` to the same names below `to`, and removes the directory.
pub(super) fn move_all(context: &Context, dir: &Path, to: &Path) -> Result<()> {
    each(context, dir, &|below| {
        let to = to.join(below);
        if let Some(dir) = to.parent() {
            create_all(context, dir)?;
        }
        Ok(to)
    })
}

/// Moves the files below `dir` to `item` in `old`, and those whose names are taken there to where
/// they are free; removes the directory.
pub(super) fn put_away(context: &Context, dir: &Path, old: &Path, item: &Path) -> Result<()> {
    each(context, dir, &|below| free(context, old, &item.join(below)))
}

/// Moves a stack and its lock into `old`. What others make in its place between the lock's end and
/// the directory's is moved to `again-1` there, and so on; who is not done then fails.
pub(super) fn put_stack_away(context: &Context, dir: &Path, old: &Path) -> Result<()> {
    let system = context.system.as_ref();
    for number in 0..ATTEMPTS {
        let to = again(old, number).join(STACK);
        // The lock is the last that comes.
        if exists(system, &to.join(LOCK))? {
            continue;
        }
        match system.remove_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            Err(error) if !is_absent(&error) => {
                return Err(Error::io("unable to remove", dir, error));
            }
            _ => return Ok(()),
        }
        create_all(context, &to)?;
        match context.write(&dir.join(LOCK), b"") {
            Err(error) if error.io_kind() == Some(io::ErrorKind::AlreadyExists) => {}
            locked => locked?,
        }
        for entry in sorted(context, dir)? {
            let name = bytes_to_path(&entry.name);
            move_file(context, &dir.join(name), &to.join(name))?;
        }
    }
    match system.remove_dir(dir) {
        Err(error) if !is_absent(&error) => Err(busy(dir)),
        _ => Ok(()),
    }
}

/// Returns where stacks are that others made in the place of one that was put away.
pub(super) fn late_stacks(context: &Context, old: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for number in 1..ATTEMPTS {
        let old = again(old, number);
        if !exists(context.system.as_ref(), &old)? {
            break;
        }
        if exists(context.system.as_ref(), &old.join(STACK).join(LIST))? {
            found.push(old);
        }
    }
    Ok(found)
}

/// Moves every file below `dir` to where `target` says for its path below, and removes `dir`.
fn each(context: &Context, dir: &Path, target: &dyn Fn(&Path) -> Result<PathBuf>) -> Result<()> {
    each_below(context, dir, Path::new(""), target)
}

fn each_below(
    context: &Context,
    dir: &Path,
    below: &Path,
    target: &dyn Fn(&Path) -> Result<PathBuf>,
) -> Result<()> {
    let system = context.system.as_ref();
    for _ in 0..ATTEMPTS {
        for entry in sorted(context, dir)? {
            let name = bytes_to_path(&entry.name);
            let (path, below) = (dir.join(name), below.join(name));
            match entry.kind {
                FileKind::Directory => each_below(context, &path, &below, target)?,
                _ => move_file(context, &path, &target(&below)?)?,
            }
        }
        match system.remove_dir(dir) {
            // Others have made something there meanwhile.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            Err(error) if !is_absent(&error) => {
                return Err(Error::io("unable to remove", dir, error));
            }
            _ => return Ok(()),
        }
    }
    Err(busy(dir))
}

/// Moves a file, which others may have removed.
fn move_file(context: &Context, from: &Path, to: &Path) -> Result<()> {
    match context.system.rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        renamed => renamed.map_err(|error| {
            let what = format!("unable to move '{}' to", from.display());
            Error::io(&what, to, error)
        })?,
    }
    Ok(())
}

/// Lists a directory: locks, and links that stand in the place of directories, come last.
fn sorted(context: &Context, dir: &Path) -> Result<Vec<DirEntry>> {
    let mut entries = folder::list(context.system.as_ref(), dir)?;
    entries.sort_by_key(|entry| {
        let is_lock = entry.name.ends_with(b".lock") || entry.kind == FileKind::Symlink;
        // Whoever reads the list then finds no table that is gone.
        (is_lock, entry.name != LIST.as_bytes())
    });
    Ok(entries)
}

pub(super) fn busy(path: &Path) -> Error {
    let message = format!("'{}' is made anew all the time", path.display());
    Error::new(ErrorKind::Locked, message)
}
