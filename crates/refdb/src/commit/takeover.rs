//! Taking over what processes left that have ended: their locks, and what stands beside those.
//!
//! Invariant: what is removed is removed by somebody who has its file, or its lock.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::encoding::dir_of_journal;
use super::entries::{Entry, is_barrier, is_exchanged, is_lock};
use super::home::Home;
use super::journal::journal_path;
use super::owner::{self, Owner, Purpose};
use super::{
    Holder, LockFile, LockOptions, journal, lock_path, pid_path, remove_if_there, target_beside,
    target_of_value, value_path,
};
use crate::system::{FileKind, Guard, System, Tree, bytes_to_path, is_absent};

/// Removes the lock at `path` if it is one of refdb whose process has ended, with all that the
/// process left for it; returns whether there is any chance now of acquiring the lock. Those of a
/// migration are left alone. `path` can be that of a barrier too.
///
/// # Errors
/// Those of the system; the lock is as it was then.
pub fn take_over(home: &Arc<Home>, path: &Path) -> io::Result<bool> {
    take_over_of(Purpose::Transaction, home, path)
}

/// As [`take_over`], of a migration as well: for whoever clears up after one.
///
/// # Errors
/// As for [`take_over`].
pub fn take_over_any(home: &Arc<Home>, path: &Path) -> io::Result<bool> {
    take_over_of(Purpose::Migration, home, path)
}

fn take_over_of(most: Purpose, home: &Arc<Home>, path: &Path) -> io::Result<bool> {
    let system = home.system.as_ref();
    if *path == journal_path(home.journal_dir().map_err(io::Error::other)?) {
        // Many wait for that of a process which runs: it is not read.
        if system.guard_file(path)?.is_none() {
            return Ok(false);
        }
        journal::recover(home).map_err(io::Error::other)?;
        // One that is not whole may stay, of somebody who is not trusted.
        return Ok(system.find(path)?.is_none());
    }
    if !is_lock(path) {
        return match target_beside(path) {
            Some(target) => remove_orphan(home, path, &target),
            None if is_barrier(system, path) => take_barrier_over(most, home, path),
            None => Ok(false),
        };
    }
    if !owner::is_ours(system, path) || system.is_taken(&owner::proof(system, path)) {
        return Ok(false);
    }
    if is_of_elsewhere(home, path)? {
        return Ok(false);
    }
    // It is taken over with the journal of its transaction, or not at all.
    let found = journal::recover(home).map_err(io::Error::other)?;
    let owner = owner::of_lock(system, path)?;
    if found
        .view
        .is_some_and(|view| owner.as_ref().is_some_and(|owner| view.is_of(owner)))
    {
        return Ok(false);
    }
    let is_migration = |owner: &Owner| owner.purpose == Purpose::Migration;
    if most != Purpose::Migration && owner.as_ref().is_some_and(is_migration) {
        return Ok(false);
    }
    let Some(_guard) = guard_of(system, path, owner.as_ref())? else {
        // Somebody else is at it, or it is gone.
        return Ok(system.find(path)?.is_none());
    };
    if path.ends_with("tables.list.lock") {
        remove_claims(system, path.parent().unwrap_or(path))?;
    }
    remove_log_lock(home, path)?;
    remove_with_barrier(system, path, owner.map(|owner| owner.id))?;
    Ok(true)
}

/// Takes the file of a lock that was found to be one of refdb, by this owner. It may have become somebody else's since,
/// and one of Git is nobody's, as far as the system knows: such a file is not taken.
pub(super) fn guard_of(
    system: &dyn System,
    path: &Path,
    owner: Option<&Owner>,
) -> io::Result<Option<Guard>> {
    let proof = owner::proof(system, path);
    let guard = system.guard_file(&proof)?;
    let is_same = guard.is_some()
        && owner::is_ours(system, path)
        && owner::proof(system, path) == proof
        && owner::of_lock(system, path)?.as_ref() == owner;
    Ok(guard.filter(|_| is_same))
}

/// Removes the lock of a reflog that the same transaction took as that of its ref, at `path`, which the
/// caller has: only whoever writes that reflog anew would come by it, and nobody may.
fn remove_log_lock(home: &Home, path: &Path) -> io::Result<()> {
    let system = home.system.as_ref();
    let Some(log_lock) = log_lock_path(home.common_dir(), path) else {
        return Ok(());
    };
    let (Some(owner), Some(of_log)) = (
        owner::of_lock(system, path)?,
        owner::of_lock(system, &log_lock)?,
    ) else {
        return Ok(());
    };
    if owner.id != of_log.id {
        return Ok(());
    }
    let is_same = || -> io::Result<bool> {
        let (one, other) = (system.lstat(path)?, system.lstat(&log_lock)?);
        Ok((one.dev, one.ino) == (other.dev, other.ino))
    };
    let guard = guard_of(system, &log_lock, Some(&of_log))?;
    if guard.is_some() || is_same()? {
        remove_with_barrier(system, &log_lock, Some(of_log.id))?;
    }
    Ok(())
}

/// Returns the path of the lock of a ref's reflog.
fn log_lock_path(common: &Path, path: &Path) -> Option<PathBuf> {
    let is_worktree = |dir: &&Path| {
        let parent = dir.parent().and_then(Path::file_name);
        parent.is_some_and(|name| name == "worktrees")
    };
    let base = match path.strip_prefix(common) {
        Ok(inner) if !inner.starts_with("worktrees") => common,
        // A linked worktree, which may be known by another path.
        _ => path.ancestors().find(is_worktree)?,
    };
    Some(base.join("logs").join(path.strip_prefix(base).ok()?))
}

/// Returns whether a lock has a journal in another directory: a link leads to the refs of another repository,
/// where its transaction is to be finished first.
fn is_of_elsewhere(home: &Home, path: &Path) -> io::Result<bool> {
    let dir = home.journal_dir().map_err(io::Error::other)?;
    let dir = home.system.stat(dir)?;
    let head = owner::head(home.system.as_ref(), path)?;
    let made_for = head.and_then(|head| dir_of_journal(&head));
    Ok(made_for.is_some_and(|made_for| made_for != dir.ino))
}

/// Removes a barrier whose lock is free, or that of a process that has ended.
fn take_barrier_over(most: Purpose, home: &Arc<Home>, path: &Path) -> io::Result<bool> {
    let system = home.system.as_ref();
    let lock = lock_path(path);
    if system.find(&lock)?.is_some() {
        return take_over_of(most, home, &lock);
    }
    // A power failure took the lock alone, which may be somebody else's by now.
    let remove = || match is_barrier(system, path) {
        true => remove_if_there(system, path),
        false => Ok(()),
    };
    under_lock(home, path, remove)
}

/// Removes a lock that the caller has, with what its process left for it in that transaction. What it bars goes
/// first: once the lock is gone, others may put their file there.
pub(super) fn remove_with_barrier(
    system: &dyn System,
    lock: &Path,
    transaction: Option<u64>,
) -> io::Result<()> {
    let barred = lock.with_extension("");
    if is_barrier(system, &barred) {
        remove_if_there(system, &barred)?;
    }
    // A lock that does not say whose it is has taken the new content itself, or a power failure took what it
    // said: then the content goes by itself.
    if let Some(transaction) = transaction {
        remove_if_there(system, &value_path(&barred, transaction))?;
    }
    remove_if_there(system, &pid_path(&barred))?;
    remove_if_there(system, lock)
}

/// Does `work` under the lock of `target`, if that is free; returns whether it was. Where its directory
/// went there is nothing left to work on.
fn under_lock(
    home: &Arc<Home>,
    target: &Path,
    work: impl FnOnce() -> io::Result<()>,
) -> io::Result<bool> {
    let holder = Holder::new(home);
    match LockFile::acquire(&holder, target, LockOptions::AT_ONCE) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) if is_absent(&error) => Ok(true),
        Err(error) => Err(error),
        Ok(lock) => {
            work()?;
            lock.release().map(|()| true)
        }
    }
}

/// Removes the claims to tables of processes that have ended: whoever died with the lock of the list
/// may have had some.
fn remove_claims(system: &dyn System, dir: &Path) -> io::Result<()> {
    for entry in system.read_dir(dir)? {
        let path = dir.join(bytes_to_path(&entry.name));
        if entry.name.ends_with(b".ref.lock")
            && owner::is_ours(system, &path)
            && let Some(_guard) = guard_of(system, &path, owner::of_lock(system, &path)?.as_ref())?
        {
            remove_with_barrier(system, &path, None)?;
        }
    }
    Ok(())
}

/// Takes over every lock in the directory `dir` whose process has ended; those of migrations are left
/// alone, and all new content without a lock. With `deep` also those in the directories below it, and barriers: all
/// in them is refs.
///
/// # Errors
/// Those of the system; a directory that is gone has no locks.
pub(crate) fn sweep(home: &Arc<Home>, dir: &Path, deep: bool) -> io::Result<()> {
    sweep_of(Purpose::Transaction, home, dir, deep)
}

/// As `sweep`, with the locks of migrations: for whoever clears up after one.
///
/// # Errors
/// As for `sweep`.
pub fn sweep_all(home: &Arc<Home>, dir: &Path, deep: bool) -> io::Result<()> {
    sweep_of(Purpose::Migration, home, dir, deep)
}

fn sweep_of(most: Purpose, home: &Arc<Home>, dir: &Path, deep: bool) -> io::Result<()> {
    let system = home.system.as_ref();
    let tree = match deep {
        true => Tree::new(system, dir, b""),
        false => Tree::flat(system, dir),
    };
    for leaf in tree {
        let leaf = leaf.map_err(|(_, error)| error)?;
        let is_meant = match Entry::of_leaf(system, &leaf) {
            Entry::Lock => leaf.kind == FileKind::File || is_exchanged(system, &leaf.path),
            // Beside refs there are files whose locks are no business of refdb's, such as the index.
            Entry::NewValue => {
                matches!(leaf.kind, FileKind::File | FileKind::Symlink)
                    && (deep || target_of_value(&leaf.path).is_some())
            }
            Entry::Barrier => deep,
            Entry::Ref | Entry::Dir => false,
        };
        if is_meant {
            take_over_of(most, home, &leaf.path)?;
        }
    }
    Ok(())
}

/// Removes new content of a file of which a power failure took the lock away; returns whether that could be done.
/// The lock is taken for that: whoever has it, and the content, is not disturbed.
fn remove_orphan(home: &Arc<Home>, path: &Path, target: &Path) -> io::Result<bool> {
    let remove = || remove_if_there(home.system.as_ref(), path);
    under_lock(home, target, remove)
}
