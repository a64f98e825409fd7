//! What a plan does that takes more than one step, as the journal is told of it.
//!
//! One step needs no journal: a loose ref that is renamed into place, or a packed-refs. Its reflog
//! entries, which come first, may then be ahead of the ref after a crash.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::known_dirs::KnownDirs;
use super::publish::add_parent;
use super::session::{ByName, FilesSession, Held};
use crate::backend::committed_in_part;
use crate::commit::{Change, Journal, Place, Roots, Step};
use crate::error::{Error, ErrorKind, Result};
use crate::name::RefName;
use crate::system::{FileKind, Stat, System};

impl FilesSession {
    /// Writes the journal if the plan takes several steps.
    ///
    /// # Errors
    /// `Io` or `Locked`; nothing is visible then.
    pub(super) fn begin_journal(&mut self) -> Result<Option<Journal>> {
        if !self.planned.whole_logs.is_empty() {
            // These have an order of their own, in which nothing gets lost.
            return Ok(None);
        }
        let system = std::sync::Arc::clone(&self.files.system);
        let mut log_unlinks = Vec::new();
        for index in std::mem::take(&mut self.planned.log_unlinks) {
            let Some(held) = self.held.get(index) else {
                continue;
            };
            let (_, path) = self.files.log_path(held.name.as_name())?;
            match log_stat(system.as_ref(), &mut self.log_dirs, &path)?.map(|stat| stat.kind) {
                Some(FileKind::File) => log_unlinks.push(index),
                Some(FileKind::Directory) => self.planned.log_dirs.push(path),
                _ => {}
            }
        }
        self.planned.log_unlinks = log_unlinks;
        let planned = &self.planned;
        let packed = planned
            .packed
            .as_ref()
            .is_some_and(|packed| packed.pending().1);
        let refs = planned.renames.len() + planned.unlinks.len() + usize::from(packed);
        let several = planned.several && (refs > 1 || !planned.logs.is_empty());
        if !several && planned.log_unlinks.is_empty() {
            return Ok(None);
        }
        self.sign_locks()?;
        self.bar_new_files(true)?;
        let mut dirs = std::mem::take(&mut self.log_dirs);
        let change = self.change(&mut dirs)?;
        if self.files.options.fsync {
            self.sync_locks()?;
        }
        let files = &self.files;
        let roots = Roots::new(
            &files.system,
            files.layout.common_dir(),
            &files.packed.resolved_path()?,
        );
        let locks = self.held.iter().filter_map(|held| held.lock.as_ref());
        let packed = self
            .planned
            .packed
            .as_ref()
            .map(|packed| packed.pending().0);
        let Some(other) = locks.chain(self.bars.locks()).chain(packed).next() else {
            let message = "a transaction of several steps holds no lock";
            return Err(Error::new(ErrorKind::Misuse, message));
        };
        self.check_locks()?;
        let (options, fsync) = (files.lock_options(), files.options.fsync);
        Journal::commit(&self.holder, options, fsync, change, roots, other).map(Some)
    }

    /// Makes a plan visible that the journal has committed.
    pub(super) fn carry_out_journal(
        &mut self,
        journal: Journal,
        afterwards: &mut Vec<Error>,
    ) -> Result<()> {
        let dirs = match journal.take() {
            Ok(dirs) => dirs,
            Err(error) => {
                self.leave(journal);
                return Err(committed_in_part(error));
            }
        };
        if self.files.options.fsync {
            afterwards.extend(journal.sync(&dirs).err());
        }
        self.note_taken();
        self.remove_log_dirs(afterwards);
        afterwards.extend(journal.end().err());
        Ok(())
    }

    /// Notes what the steps of the journal have done.
    fn note_taken(&mut self) {
        for &index in &self.planned.renames {
            if let Some(held) = self.held.get_mut(index) {
                held.loose = true;
                if let Some(lock) = &mut held.lock {
                    lock.was_placed();
                }
            }
        }
        for &index in &self.planned.unlinks {
            if let Some(held) = self.held.get_mut(index) {
                held.loose = false;
            }
        }
        for &index in &self.planned.log_unlinks {
            if let Some(held) = self.held.get(index)
                && let Ok((base, _)) = self.files.log_path(held.name.as_name())
            {
                let (_, bare) = self.files.layout.locate(held.name.as_name());
                self.empty_dirs.add_parent(&base, bare.as_bytes());
            }
        }
        if let Some(packed) = &mut self.planned.packed {
            packed.was_placed(&self.files.packed);
        }
    }

    /// Returns the steps in the order in which they are taken.
    fn change(&self, dirs: &mut KnownDirs) -> Result<Change> {
        let mut change = Change::default();
        let files = &self.files;
        // The positions of the locks in the journal, for each of `held` that is still held.
        let mut guards = Vec::with_capacity(self.held.len());
        let mut bars = Vec::new();
        for dir in self.bars.names() {
            let name = RefName::from_disk(dir);
            let (_, path) = files.path(name)?;
            bars.push(change.lock(files.spot(name, &path)?));
        }
        for held in &self.held {
            let bar = held.bar.and_then(|bar| bars.get(bar as usize).copied());
            guards.push(match bar {
                Some(bar) => Some(bar),
                None if held.lock.is_some() => Some(change.lock(self.spot_of(held)?)),
                None => None,
            });
        }
        let guard = |index: usize| guards.get(index).copied().flatten();
        self.log_steps(&guards, dirs, &mut change)?;
        for &index in &self.planned.log_unlinks {
            if let (Some(held), Some(guard)) = (self.held.get(index), guard(index)) {
                let (_, path) = files.log_path(held.name.as_name())?;
                let place = files.log_spot(held.name.as_name(), &path)?;
                change.add(guard, Step::Remove { place });
            }
        }
        if let Some((lock, true)) = self.planned.packed.as_ref().map(|packed| packed.pending()) {
            let guard = change.lock(Place::Packed);
            change.put(guard, Place::Packed, lock);
        }
        for &index in &self.planned.renames {
            let held = self.held.get(index);
            let lock = held.and_then(|held| held.lock.as_ref());
            if let (Some(held), Some(lock), Some(guard)) = (held, lock, guard(index)) {
                change.put(guard, self.spot_of(held)?, lock);
            }
        }
        for &index in &self.planned.unlinks {
            if let (Some(held), Some(guard)) = (self.held.get(index), guard(index)) {
                let place = self.spot_of(held)?;
                change.add(guard, Step::Remove { place });
            }
        }
        Ok(change)
    }

    fn spot_of(&self, held: &Held) -> Result<Place> {
        self.files.spot(held.name.as_name(), &held.path)
    }

    fn log_steps(
        &self,
        guards: &[Option<usize>],
        dirs: &mut KnownDirs,
        change: &mut Change,
    ) -> Result<()> {
        let mut by_name = ByName::of(&self.held);
        for append in &self.planned.logs {
            let name = append.name.as_name();
            let (_, path) = self.files.log_path(name)?;
            let len = match log_len(self.files.system.as_ref(), dirs, &path)? {
                None if !append.create => continue,
                None => {
                    self.files.clear_log_way(name)?;
                    0
                }
                Some(len) => len,
            };
            let guard = by_name.find(&self.held, name);
            if let Some(guard) = guard.and_then(|index| *guards.get(index)?) {
                let (place, lines) = (self.files.log_spot(name, &path)?, append.lines.clone());
                change.add(guard, Step::Append { place, len, lines });
            }
        }
        Ok(())
    }

    /// Makes the names of the locks, and of the new content beside them, durable: what a journal
    /// needs must be there as long as the journal is.
    fn sync_locks(&self) -> Result<()> {
        let mut dirs = self.dirs_of(|held| held.lock.is_some());
        if let Some(packed) = &self.planned.packed {
            add_parent(&mut dirs, packed.pending().0.path());
        }
        self.sync_dirs(dirs, self.planned.many_values)
    }

    /// Makes durable that there is no loose file over what packed-refs is about to say. Such a file
    /// may have been packed and removed by a process that did not make that durable: after a loss of
    /// power it would come back, with an older value than the one written here.
    pub(super) fn sync_absence(&self) -> Result<()> {
        let packed = self.planned.packed.as_ref();
        if !self.files.options.fsync || !packed.is_some_and(|packed| packed.pending().1) {
            return Ok(());
        }
        self.sync_dirs(self.dirs_of(|held| !held.loose), false)
    }

    /// Returns the directories of those names for which `is_meant` says so, and of the locked
    /// directories that hold others.
    fn dirs_of(&self, is_meant: impl Fn(&Held) -> bool) -> BTreeSet<PathBuf> {
        let mut dirs = BTreeSet::new();
        for lock in self.bars.locks() {
            add_parent(&mut dirs, lock.path());
        }
        let meant = self.held.iter().filter(|&held| is_meant(held));
        meant.for_each(|held| add_parent(&mut dirs, &held.path));
        dirs
    }
}

/// Returns how long a reflog is; `None` if there is none.
fn log_len(system: &dyn System, dirs: &mut KnownDirs, path: &Path) -> Result<Option<u64>> {
    let stat = log_stat(system, dirs, path)?;
    Ok(stat
        .filter(|stat| stat.kind == FileKind::File)
        .map(|stat| stat.len))
}

/// Returns what lies where a reflog would.
fn log_stat(system: &dyn System, dirs: &mut KnownDirs, path: &Path) -> Result<Option<Stat>> {
    if !dirs.have_parent(system, path) {
        return Ok(None);
    }
    match system.lstat(path) {
        Ok(stat) => Ok(Some(stat)),
        Err(error) if super::log::is_absent(&error) => Ok(None),
        Err(error) => Err(Error::io("unable to read", path, error)),
    }
}
