//! Taking over what processes left that have ended: their locks, and what stands beside those.
//!
//! Invariant: what is removed was looked at under the guard of the repository's directory, under
//! that of the lock, or under its lock.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use super::owner::{self, Purpose};
use super::{Holder, LockFile, LockOptions, alone, journal, remove_if_there, suffixed, value_path};
use crate::system::{FileKind, System, bytes_to_path};

/// Removes the lock at `path` if it is one of refdb whose process has ended, with all that the
/// process left for it; returns whether there is any chance now of acquiring the lock. Those of a
/// migration are left alone.
///
/// # Errors
/// Those of the system; the lock is as it was then.
pub(crate) fn take_over(system: &Arc<dyn System>, git_dir: &Path, path: &Path) -> io::Result<bool> {
    take_over_of(Purpose::Transaction, system, git_dir, path)
}

fn take_over_of(
    most: Purpose,
    system: &Arc<dyn System>,
    git_dir: &Path,
    path: &Path,
) -> io::Result<bool> {
    let text = match owner::dead(system.as_ref(), path) {
        Some((text, purpose)) if purpose == Purpose::Transaction || most == purpose => text,
        None if is_lock(path) => return alone::remove_dead(system.as_ref(), path),
        _ => return Ok(false),
    };
    let Some(guard) = system.guard_dir(git_dir)? else {
        // Somebody else is at it.
        return Ok(false);
    };
    journal::recover_guarded(system, git_dir).map_err(io::Error::other)?;
    // Nobody takes a lock over without this guard, and nobody has this text but the dead process:
    // a lock that still has it is still that lock.
    match system.read_link(path) {
        Ok(found) if found == text => {}
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => return Ok(true),
    }
    if path.ends_with("tables.list.lock") {
        remove_claims(system.as_ref(), path.parent().unwrap_or(path))?;
    }
    if is_lock(path) {
        remove_with_barrier(system.as_ref(), path, &text)?;
        return Ok(true);
    }
    let lock = suffixed(path, ".lock");
    if has_text(system.as_ref(), &lock, &text) {
        remove_with_barrier(system.as_ref(), &lock, &text)?;
        return Ok(true);
    }
    // A power failure took the lock alone, which may be somebody else's by now.
    let remove = || match has_text(system.as_ref(), path, &text) {
        true => remove_if_there(system.as_ref(), path),
        false => Ok(()),
    };
    if under_lock(system, git_dir, path, remove)? {
        return Ok(true);
    }
    drop(guard);
    take_over_of(most, system, git_dir, &lock)
}

fn is_lock(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(b".lock")
}

fn has_text(system: &dyn System, link: &Path, text: &Path) -> bool {
    system.read_link(link).is_ok_and(|found| found == text)
}

/// Returns whether the link at `path` is the barrier of a lock ([`LockFile::bar`]).
pub(crate) fn is_barrier(system: &dyn System, path: &Path) -> bool {
    !is_lock(path) && owner::of_lock(system, path).is_some()
}

/// Removes a lock of that text of a process that has ended, with what it left for it. What it bars
/// goes first: once the lock is gone, others may put their file there.
pub(super) fn remove_with_barrier(system: &dyn System, lock: &Path, text: &Path) -> io::Result<()> {
    let barred = lock.with_extension("");
    if has_text(system, &barred, text) {
        remove_if_there(system, &barred)?;
    }
    remove_with_value(system, lock)
}

/// Does `work` under the lock of `target`, if that is free; returns whether it was.
fn under_lock(
    system: &Arc<dyn System>,
    git_dir: &Path,
    target: &Path,
    work: impl FnOnce() -> io::Result<()>,
) -> io::Result<bool> {
    let holder = Holder::new(system, git_dir);
    match LockFile::acquire(&holder, target, LockOptions::AT_ONCE) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
        Ok(lock) => {
            work()?;
            lock.release().map(|()| true)
        }
    }
}

/// Removes the claims to tables of processes that have ended: whoever died with the lock of the list
/// may have had some. The caller has the repository's directory for itself.
fn remove_claims(system: &dyn System, dir: &Path) -> io::Result<()> {
    for entry in system.read_dir(dir)? {
        let path = dir.join(bytes_to_path(&entry.name));
        let is_dead = || matches!(owner::dead(system, &path), Some((_, Purpose::Transaction)));
        if entry.name.ends_with(b".ref.lock") && is_dead() {
            remove_with_value(system, &path)?;
        }
    }
    Ok(())
}

/// Takes over every lock in the directory `dir` whose process has ended; those of migrations are left
/// alone. With `deep` also those in the directories below it, barriers, and new content without a
/// lock: all in them is refs.
///
/// # Errors
/// Those of the system; a directory that is gone has no locks.
pub(crate) fn sweep(
    system: &Arc<dyn System>,
    git_dir: &Path,
    dir: &Path,
    deep: bool,
) -> io::Result<()> {
    sweep_of(Purpose::Transaction, system, git_dir, dir, deep)
}

/// As [`sweep`], with the locks of migrations: for whoever clears up after one.
///
/// # Errors
/// As for [`sweep`].
pub(crate) fn sweep_all(
    system: &Arc<dyn System>,
    git_dir: &Path,
    dir: &Path,
    deep: bool,
) -> io::Result<()> {
    sweep_of(Purpose::Migration, system, git_dir, dir, deep)
}

fn sweep_of(
    most: Purpose,
    system: &Arc<dyn System>,
    git_dir: &Path,
    dir: &Path,
    deep: bool,
) -> io::Result<()> {
    let entries = match system.read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let path = dir.join(bytes_to_path(&entry.name));
        match entry.kind {
            FileKind::Directory if deep => sweep_of(most, system, git_dir, &path, deep)?,
            FileKind::File | FileKind::Symlink if deep && entry.name.starts_with(b".") => {
                remove_orphan(system, git_dir, &path)?;
            }
            kind @ (FileKind::File | FileKind::Symlink)
                if entry.name.ends_with(b".lock") || deep && kind == FileKind::Symlink =>
            {
                take_over_of(most, system, git_dir, &path)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Removes new content of which a power failure took the lock away, and nothing if `path` is no name
/// of such content. Its lock is taken for that: whoever has it, and the content, is not disturbed.
fn remove_orphan(system: &Arc<dyn System>, git_dir: &Path, path: &Path) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().as_bytes();
    let of = |suffix: &[u8]| name.strip_prefix(b".")?.strip_suffix(suffix);
    let Some(stem) = of(b".lock").or_else(|| of(b".new")) else {
        return Ok(());
    };
    let target = path.with_file_name(bytes_to_path(stem));
    let remove = || remove_if_there(system.as_ref(), path);
    under_lock(system, git_dir, &target, remove).map(drop)
}

/// Removes the lock at `path` of a process that has ended, and what the process left for it.
pub(super) fn remove_with_value(system: &dyn System, path: &Path) -> io::Result<()> {
    remove_if_there(system, &value_path(path))?;
    remove_if_there(system, &suffixed(&path.with_extension(""), "~pid.lock"))?;
    remove_if_there(system, path)
}
