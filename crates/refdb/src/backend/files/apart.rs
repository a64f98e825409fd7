//! Keeping names that go into packed-refs apart from names above and below them.
//!
//! A loose ref keeps others from names below it, as there can be no directory, and from those above
//! it, as its directory is not empty. What is packed keeps nobody from anything: somebody who looked
//! into packed-refs before it was replaced can go on after that. So a large write, of which new refs
//! go into packed-refs, bars the place of each, from before it looks for conflicts until packed-refs is
//! in place. Names above need no lock: that of the new ref keeps its directory, so that no file gets
//! into the place of that. But somebody may have locked a name above before, and have found nothing in
//! his way: he is looked for when the new ref is locked.
//!
//! Invariants:
//! 1. A new ref goes into packed-refs only with its place barred, or in a directory that is.
//! 2. Nobody had the lock of a name above it at a moment when it was locked, before conflicts were
//!    looked for.

use std::collections::HashSet;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use refdb_names::RefName;
use refdb_names::internals::name_from_disk;
use refdb_names::name::is_per_worktree;

use super::Files;
use super::packed::Snapshot;
use super::publish::{Assigned, BATCH_MIN};
use super::session::{FilesSession, Held, blocked_by, name_conflict};
use crate::backend::Locked;
use crate::commit::{LockFile, lock_path};
use crate::error::{Error, OrIo, Result};
use crate::system::beside::both;
use crate::system::dirs::{is_in, middle};
use crate::system::find::last_byte;
use crate::system::{FileKind, Tree};

/// How often the place of a file is barred where somebody makes directories.
const BAR_ATTEMPTS: usize = 3;

impl FilesSession {
    /// Returns whether nothing is below a directory but what this session has locked.
    pub(super) fn only_own_locks(&self, dir: &Path) -> bool {
        let dir_bytes = dir.as_os_str().as_bytes();
        let is_below = |path: &Path| is_in(path.as_os_str().as_bytes(), dir_bytes);
        let mut own = HashSet::new();
        for held in self.held.iter().filter(|held| is_below(&held.path)) {
            let Some(lock) = held.lock.as_deref() else {
                continue;
            };
            own.insert(lock.path().to_owned());
            if lock.bars() || held.loose {
                own.insert(held.path.clone());
            }
        }
        for lock in self.bars.locks().filter(|lock| is_below(lock.path())) {
            own.extend([lock.path().to_owned(), lock.target()]);
        }
        self.files.has_only(dir, &own)
    }

    /// Makes sure that nobody else has anything below the name of a ref to come, which is locked.
    ///
    /// # Errors
    /// `Locked` if somebody has; those of the system.
    pub(super) fn check_below(&self, held: &Held) -> Result<()> {
        let found = self.files.system.find(&held.path);
        let is_there = found.or_io("unable to look at", &held.path)?.is_some();
        if !is_there || self.only_own_locks(&held.path) {
            return Ok(());
        }
        Err(blocked(held))
    }

    /// Keeps new names apart that were locked one by one, as those of transactions that are published
    /// together are. Nothing is waited for, and where somebody is in the way the ref stays a file.
    pub(super) fn keep_apart(&mut self, writes: &mut [Assigned<'_>]) -> Result<()> {
        let packable = writes.iter().filter(|write| write.is_packable);
        let is_needed = packable.clone().any(|write| !write.is_apart);
        let count = packable.clone().count();
        let is_plain = !self.files.options.ignore_case && !self.files.layout.is_linked();
        if !is_needed || !is_plain || count < BATCH_MIN || !self.is_worth_packing(count)? {
            return Ok(());
        }
        let mut names: Vec<RefName<'_>> = packable
            .filter(|write| !write.is_apart)
            .map(|write| write.name)
            .collect();
        names.sort();
        let mut above = names_above(&names);
        above.retain(|name| self.files.may_be_locked(*name));
        let is_free = |name: RefName<'_>| !above.iter().any(|above| name.is_below(*above));
        // Each is a name of the first one, if it can have several.
        let mut pattern: Option<PathBuf> = None;
        for write in writes.iter_mut().filter(|write| !write.is_apart) {
            if let Some(held) = write.held.and_then(|at| self.held.get_mut(at))
                && write.is_packable
                && is_free(write.name)
            {
                write.is_apart = bar_one(held, pattern.as_deref()).is_ok();
                if write.is_apart && pattern.is_none() {
                    pattern = held.lock.as_deref().map(LockFile::target);
                }
            }
        }
        // Conflicts were looked for before that.
        let packed = self.files.packed.snapshot()?;
        for write in writes.iter_mut().filter(|write| write.is_packable) {
            let is_new = write.held.is_some_and(|at| !self.held[at].exists);
            if write.is_apart && is_new {
                write.is_apart = conflict(&packed, write.name)?.is_none();
            }
        }
        Ok(())
    }

    /// Bars the places of new refs that become files, and looks into packed-refs once more: somebody
    /// may have made a ref below one of them since that was read, and another one may have packed it
    /// and removed its directory, which was all that was in the way. The place of a packed ref stays free, as Git
    /// finds none behind a link: with a journal (`with_packed`) it is only looked whether a lock below it is in
    /// the way, since what is committed must be finished. One that comes later gives way (`commit::step`).
    ///
    /// # Errors
    /// `Locked` when another ref has come to be above or below one of them since the locks were taken;
    /// nothing is visible then.
    pub(super) fn bar_new_files(&mut self, with_packed: bool) -> Result<()> {
        let files = Arc::clone(&self.files);
        let mut barred = Vec::new();
        for &index in &self.planned.renames {
            let Some(held) = self.held.get_mut(index) else {
                continue;
            };
            let is_there_already = held.loose || held.exists && !with_packed;
            if is_there_already || held.is_barred() || !is_shared(held.name.as_name()) {
                continue;
            }
            if held.exists {
                if !is_clear(&files, held) {
                    return Err(blocked(held));
                }
                continue;
            }
            if !bar_file(&files, held) {
                return Err(blocked(held));
            }
            barred.push(index);
        }
        if barred.is_empty() {
            return Ok(());
        }
        let packed = files.packed.snapshot()?;
        if (self.packed.as_ref()).is_some_and(|seen| Arc::ptr_eq(seen, &packed)) {
            // Conflicts were looked for in this one.
            return Ok(());
        }
        for held in barred.iter().filter_map(|&index| self.held.get(index)) {
            let name = held.name.as_name();
            if let Some(existing) = conflict(&packed, name)? {
                return Err(name_conflict(name, &existing).into_error(name));
            }
        }
        Ok(())
    }

    /// Bars the places of the names at `missing` among those that are held, of which there is no ref;
    /// tells `refuse` what is in the way of one. What cannot be barred is not packed.
    pub(super) fn bar_new(
        &mut self,
        missing: &[usize],
        refuse: &mut dyn FnMut(usize, Locked),
    ) -> Result<()> {
        let mut places: Vec<(usize, &mut Held)> = Vec::new();
        let mut wanted = missing.iter().copied().peekable();
        for (index, held) in self.held.iter_mut().enumerate() {
            if wanted.next_if_eq(&index).is_some() && !held.is_barred() {
                places.push((index, held));
            }
        }
        let mut failed = Vec::new();
        if let Some((first, rest)) = places.split_first_mut() {
            failed.extend(bar_all(std::slice::from_mut(first), None));
            let pattern = first.1.is_barred().then_some(first.1.path.as_path());
            match middle(rest.iter().map(|(_, held)| held.name.as_bytes())) {
                None => failed.extend(bar_all(rest, pattern)),
                Some(middle) => {
                    let (low, high) = rest.split_at_mut(middle);
                    let (low, high) = both(|| bar_all(low, pattern), || bar_all(high, pattern));
                    failed.extend(low.into_iter().chain(high));
                }
            }
        }
        for index in failed {
            self.bar_again(index, refuse)?;
        }
        // Who looked before could have packed something meanwhile.
        self.packed = Some(self.files.packed.snapshot()?);
        Ok(())
    }

    /// Bars the place of one name, in which there was something.
    fn bar_again(&mut self, index: usize, refuse: &mut dyn FnMut(usize, Locked)) -> Result<()> {
        let Some(held) = self.held.get_mut(index) else {
            return Ok(());
        };
        held.blocked = true;
        let Some(held) = self.held.get(index) else {
            return Ok(());
        };
        if let Some(refusal) = self.below(held)? {
            refuse(index, Locked::Refused(refusal));
            return Ok(());
        }
        if let Some(held) = self.held.get_mut(index) {
            held.blocked = bar_one(held, None).is_err();
        }
        Ok(())
    }
}

impl Files {
    /// Returns whether somebody has the lock of a name.
    pub(super) fn is_locked(&self, name: RefName<'_>) -> Result<bool> {
        let lock = lock_path(&self.path(name)?.1);
        let found = super::log::if_there(self.system.lstat(&lock));
        // Where a ref is above the name, nobody can have it either.
        Ok(found.or_io("unable to look at", &lock)?.is_some())
    }

    /// Returns whether somebody may have the lock of a name: what cannot be looked at counts as held.
    pub(super) fn may_be_locked(&self, name: RefName<'_>) -> bool {
        self.is_locked(name).unwrap_or(true)
    }

    /// Returns whether there is nothing below a directory but these files.
    fn has_only(&self, dir: &Path, files: &HashSet<PathBuf>) -> bool {
        let mut below = Tree::new(self.system.as_ref(), dir, b"");
        below.all(|leaf| leaf.is_ok_and(|leaf| files.contains(&leaf.path)))
    }
}

/// Bars the place of a ref that becomes a file, as far as there can be barriers here; returns whether
/// no directory is in the way. Anything else that is there, such as a link that leads nowhere, keeps
/// directories away as a barrier does.
fn bar_file(files: &Files, held: &mut Held) -> bool {
    // Directories may come and go meanwhile.
    for _ in 0..BAR_ATTEMPTS {
        match bar_one(held, None) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            _ => return true,
        }
        match files.system.lstat(&held.path).map(|stat| stat.kind) {
            Ok(FileKind::Directory) if !files.clear_way(&held.path) => return false,
            Ok(FileKind::Directory) | Err(_) => {}
            Ok(_) => return true,
        }
    }
    false
}

/// Returns whether no directory is in the place of a ref.
fn is_clear(files: &Files, held: &Held) -> bool {
    match files.system.find(&held.path) {
        Ok(Some(stat)) if stat.kind == FileKind::Directory => files.clear_way(&held.path),
        found => found.is_ok(),
    }
}

/// Says that something is in the place of a name that is locked.
fn blocked(held: &Held) -> Error {
    let name = held.name.as_name();
    blocked_by(name, &held.path).into_error(name)
}

/// Returns whether a ref may be packed, by its name.
pub(super) fn is_shared(name: RefName<'_>) -> bool {
    name.as_bytes().starts_with(b"refs/") && !is_per_worktree(name.as_bytes())
}

/// Returns the packed ref above or below a name, if there is one.
fn conflict(packed: &Snapshot, name: RefName<'_>) -> Result<Option<Vec<u8>>> {
    let below = packed.first_in(&[name.as_bytes(), b"/"].concat())?;
    if below.is_some() {
        return Ok(below);
    }
    for above in names_above(&[name]) {
        if packed.find_ref(above.as_bytes())?.is_some() {
            return Ok(Some(above.as_bytes().to_vec()));
        }
    }
    Ok(None)
}

/// Returns the names above others that are sorted, each once, in no order.
pub(super) fn names_above<'n>(names: &[RefName<'n>]) -> Vec<RefName<'n>> {
    let mut parents = Vec::new();
    let mut before: &[u8] = b"";
    for name in names.iter().filter(|name| is_shared(**name)) {
        let name = name.as_bytes();
        // Most are in one directory with the name before.
        let dir = last_byte(b'/', name).and_then(|slash| name.get(..=slash));
        if dir.is_none_or(|dir| before.starts_with(dir)) {
            before = name;
            continue;
        }
        let common = before.iter().zip(name).take_while(|(a, b)| a == b).count();
        // Those below one name follow each other.
        let new = name.get(common..).unwrap_or_default().iter().enumerate();
        let slashes = new.filter(|(_, byte)| **byte == b'/');
        for slash in slashes.map(|(at, _)| common + at) {
            // There is no ref of the first part alone.
            if slash > b"refs".len() {
                parents.push(name_from_disk(name.get(..slash).unwrap_or_default()));
            }
        }
        before = name;
    }
    parents
}

/// Bars the places of refs; returns the numbers of those where that fails.
fn bar_all(places: &mut [(usize, &mut Held)], pattern: Option<&Path>) -> Vec<usize> {
    let failed = |(index, held): &mut (usize, &mut Held)| {
        let barred = bar_one(held, pattern);
        barred.is_err().then_some(*index)
    };
    places.iter_mut().filter_map(failed).collect()
}

/// Bars the place of a ref, with another name of the barrier at `pattern`.
pub(super) fn bar_one(held: &mut Held, pattern: Option<&Path>) -> io::Result<()> {
    match &mut held.lock {
        Some(lock) if is_shared(held.name.as_name()) => lock.bar(pattern),
        Some(_) => Ok(()),
        // The lock of its directory keeps everybody from it.
        None if held.bar.is_some() => Ok(()),
        None => Err(io::ErrorKind::NotFound.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_above_is_told_once() {
        let names = [
            "refs/a",
            "refs/b/c",
            "refs/b/c-d/e",
            "refs/b/c/f",
            "refs/b/c/g/h",
        ];
        let names = names.map(|name| name_from_disk(name.as_bytes()));
        let mut found = names_above(&names);
        found.sort();
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, ["refs/b", "refs/b/c", "refs/b/c-d", "refs/b/c/g"]);
    }
}
