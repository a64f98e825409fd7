//! What a plan does, as the steps of a change, and carrying it out.
//!
//! Invariants:
//! 1. packed-refs is renamed before a loose file that shadows it is removed, and after new loose files are
//!    there: a reader sees an old value or the new one, and once it has seen the new one never an old one.
//! 2. With fsync, the absence of a loose file is durable before packed-refs says what it would shadow.
//! 3. The lengths of reflogs are looked at under the locks, and what is in the way of new ones is cleared
//!    before a journal commits the transaction.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use refdb_names::internals::name_from_disk;
use refdb_names::{RefName, RefNameBuf};

use super::Files;
use super::rewrite::PackedLock;
use super::session::{ByName, FilesSession, Held, LOOKED_AT_MAX};
use crate::backend::{Published, committed_in_part};
use crate::commit::{
    Carried, Change, LockFile, Means, Place, Roots, Step, add_parent, unable_to_append,
};
use crate::error::{Error, ErrorKind, OrIo, Result, Role};
use crate::system::dirs::KnownDirs;
use crate::system::{FileKind, MayWrite, Stat, System};

/// The locks that guard the steps of a change, for each name that is held.
enum Guards {
    /// There is one step, which no journal names.
    None,
    /// The positions of the locks in the journal, for each name that is still held.
    Of(Vec<Option<usize>>, ByName),
}

/// The reflogs that get another name, by that: which lock guards them, and how long they are.
type Moved = HashMap<RefNameBuf, (usize, u64)>;

impl Guards {
    fn of(&self, index: usize) -> Option<usize> {
        match self {
            Guards::None => Some(0),
            Guards::Of(guards, _) => guards.get(index).copied().flatten(),
        }
    }

    /// Returns the lock of a reflog, which is that of its ref.
    fn of_log(&mut self, held: &[Held], name: RefName<'_>) -> Result<usize> {
        let guard = match self {
            Guards::None => Some(0),
            Guards::Of(guards, by_name) => {
                let index = by_name.find(held, name);
                index.and_then(|index| *guards.get(index)?)
            }
        };
        guard.ok_or_else(|| {
            let message = format!("the reflog of '{name}' is changed without a lock");
            Error::new(ErrorKind::Misuse, message)
        })
    }
}

impl FilesSession {
    pub(super) fn publish_plan(&mut self) -> Result<Published> {
        if !self.bars.are_held() {
            let message = "a directory that this transaction has locked was taken from it by \
                           somebody else: nothing was changed";
            return Err(Error::new(ErrorKind::Locked, message));
        }
        let change = self.describe()?;
        self.check_locks()?;
        let mut afterwards = self.carry_out(change)?;
        self.note_taken();
        self.remove_log_dirs(&mut afterwards);
        self.tidy();
        if let Some(packed) = self.planned.packed.take() {
            afterwards.extend(packed.release().err());
        }
        Ok(Published::Done { afterwards })
    }

    /// Makes sure that nobody took away what this transaction holds: its locks, and new values beside
    /// them. Many are looked at only if somebody was at the file whose names they are; a new value that is
    /// gone then is noticed when it is to be put in place.
    ///
    /// # Errors
    /// `Locked` if somebody did; `Interrupted`; `Io`. Nothing is visible then.
    fn check_locks(&self) -> Result<()> {
        let step = match self.is_each_looked_at() {
            true => {
                self.holder.may_go_on()?;
                1
            }
            false => {
                self.holder.may_publish()?;
                // Whoever moves a directory neither dates the file of the locks in it nor takes a name
                // from it, so that of many locks some are looked at as well.
                match self.holder.is_torn() {
                    true => 1,
                    false => self.held.len().div_ceil(LOOKED_AT_MAX).max(1),
                }
            }
        };
        let locks = self.held.iter().filter_map(|held| held.lock.as_deref());
        let mut looked_at = locks.chain(self.bars.locks()).step_by(step);
        looked_at.try_for_each(LockFile::check)?;
        // Whoever came below a name that is to come, while a hook ran, would not find it in his way.
        let mut nested = self.held.iter().filter(|held| held.is_nested);
        nested.try_for_each(|held| self.check_below(held))?;
        let logs = self.planned.whole_logs.written.iter();
        logs.map(|(_, lock)| lock).try_for_each(LockFile::check)?;
        let packed = self.planned.packed.as_ref();
        packed.map_or(Ok(()), |packed| packed.lock().check())?;
        self.holder.note_seen();
        Ok(())
    }

    /// Returns whether there are so few locks that each is looked at before something is published: the file
    /// whose names they are tells nothing then that its names do not.
    pub(super) fn is_each_looked_at(&self) -> bool {
        self.held.len() + self.planned.whole_logs.written.len() <= LOOKED_AT_MAX
    }

    /// Makes the change visible; returns what went wrong afterwards.
    fn carry_out(&mut self, change: Change) -> Result<Vec<Error>> {
        let files = Arc::clone(&self.files);
        let mut dirs = BTreeSet::new();
        let created = self.created_dirs.iter();
        created.for_each(|dir| add_parent(&mut dirs, dir));
        for &index in &self.planned.renames {
            if let Some(lock) = self.held.get_mut(index).and_then(|held| held.lock.as_mut()) {
                lock.make_ready().or_io("unable to write", lock.path())?;
            }
        }
        let clear = |place: &Place| match place {
            Place::Log(name) => files.clear_log_way(name.as_name()),
            _ => Ok(()),
        };
        let means = Means {
            holder: &self.holder,
            lock: self.locks().next(),
            packed: self
                .planned
                .packed
                .as_ref()
                .and_then(PackedLock::with_content),
            options: files.lock_options(),
            fsync: files.options.fsync,
            roots: self.roots(),
            dirs,
            clear: &clear,
        };
        match change.carry_out(means)? {
            Carried::Whole { afterwards } => Ok(afterwards),
            Carried::InPart(error) => {
                self.leave();
                Err(committed_in_part(error))
            }
        }
    }

    /// Returns where the places are that the steps concern.
    fn roots(&self) -> Roots {
        let common = self.files.layout.common_dir();
        let packed = match &self.planned.packed {
            Some(packed) => packed.lock().target(),
            None => common.join("packed-refs"),
        };
        Roots::new(&self.files.system, common, &packed)
    }

    /// Returns the locks that are held.
    fn locks(&self) -> impl Iterator<Item = &LockFile> {
        let packed = self.planned.packed.as_ref();
        self.held
            .iter()
            .filter_map(|held| held.lock.as_deref())
            .chain(self.bars.locks())
            .chain(packed.map(PackedLock::lock))
            .chain(self.planned.whole_logs.written.iter().map(|(_, lock)| lock))
    }

    /// Leaves everything as it is, for whoever comes after this process.
    fn leave(&mut self) {
        self.files.packed.forget();
        for held in self.held.drain(..) {
            if let Some(lock) = held.lock {
                lock.leave();
            }
        }
        self.bars.leave();
        self.planned.whole_logs.leave();
        if let Some(packed) = self.planned.packed.take() {
            packed.leave();
        }
    }

    /// Removes what has the place of reflogs and is none.
    fn remove_log_dirs(&mut self, afterwards: &mut Vec<Error>) {
        for path in std::mem::take(&mut self.planned.log_dirs) {
            // It stays, and stands for no reflog.
            let removed = self.files.system.remove_file(&path).err();
            afterwards.extend(
                removed.map(|it| Error::io("unable to unlink", &path, it).with_role(Role::Place)),
            );
        }
    }

    /// Notes what the steps have done.
    fn note_taken(&mut self) {
        let barred: Vec<usize> = match &self.planned.packed {
            Some(packed) if packed.with_content().is_some() => self.barred().collect(),
            _ => Vec::new(),
        };
        for index in barred {
            if let Some(lock) = self.held.get_mut(index).and_then(|held| held.lock.as_mut()) {
                lock.was_unbarred();
            }
        }
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
        let unlinked = self.planned.log_unlinks.iter();
        let unlinked = unlinked.filter_map(|&index| Some(self.held.get(index)?.name.clone()));
        let gone: Vec<RefNameBuf> = unlinked
            .chain(self.planned.whole_logs.was_placed())
            .collect();
        for name in gone {
            let (place, bare) = self.files.layout.locate(name.as_name());
            let base = self.files.layout.dir(&place).join("logs");
            self.empty_dirs.add_parent(&base, bare.as_bytes());
        }
        if let Some(packed) = &mut self.planned.packed {
            packed.was_placed(&self.files.packed);
        }
    }

    /// Returns whether the plan takes more than one step, entries of the reflogs of one ref aside.
    fn takes_several(&self) -> bool {
        let planned = &self.planned;
        let packed = planned.packed.as_ref();
        let refs = planned.renames.len()
            + planned.unlinks.len()
            + usize::from(packed.is_some_and(|packed| packed.with_content().is_some()));
        let logs = planned.log_unlinks.len() + planned.whole_logs.len();
        // Barriers, those of directories too, go after packed-refs is in place: who is killed in between leaves a
        // journal of them.
        let has_barriers = || self.barred().next().is_some() || !self.bars.is_empty();
        let several = refs + logs > 1
            || planned.several && !planned.logs.is_empty()
            || packed.is_some() && has_barriers();
        // Without a lock reflogs are made and removed, each for itself, as by Git.
        several && self.locks().next().is_some()
    }

    /// Returns the names whose places are barred and get no file.
    fn barred(&self) -> impl Iterator<Item = usize> {
        let mut gets_file = vec![false; self.held.len()];
        for &index in &self.planned.renames {
            if let Some(gets_file) = gets_file.get_mut(index) {
                *gets_file = true;
            }
        }
        let held = self.held.iter().zip(gets_file).enumerate();
        let barred = held.filter(|(_, (held, gets_file))| {
            held.lock.as_deref().is_some_and(LockFile::bars) && !gets_file
        });
        barred.map(|(index, _)| index)
    }

    /// Returns what the plan does, step by step. What its steps need is durable then.
    ///
    /// # Errors
    /// `Io` or `Locked`; nothing is visible then.
    fn describe(&mut self) -> Result<Change> {
        self.find_old_logs()?;
        let several = self.takes_several();
        if several {
            self.sign_locks()?;
        }
        self.bar_new_files(several)?;
        let mut change = Change::default();
        let mut guards = match several {
            true => Guards::Of(self.guards(&mut change)?, ByName::of(&self.held)),
            false => Guards::None,
        };
        let moved = self.whole_log_steps(&mut guards, &mut change)?;
        self.log_steps(&mut guards, &moved, &mut change)?;
        self.ref_steps(&guards, &mut change)?;
        if several && self.files.options.fsync {
            self.sync_locks()?;
        } else {
            self.sync_absence()?;
        }
        Ok(change)
    }

    /// Looks which of the reflogs of deleted refs are there.
    fn find_old_logs(&mut self) -> Result<()> {
        let system = Arc::clone(&self.files.system);
        let mut log_unlinks = Vec::new();
        for index in std::mem::take(&mut self.planned.log_unlinks) {
            let Some(held) = self.held.get(index) else {
                continue;
            };
            let mut moved = self.planned.whole_logs.moved.iter();
            if moved.any(|(from, _)| *from == held.name) {
                continue;
            }
            let path = self.files.log_path(held.name.as_name())?;
            match log_stat(system.as_ref(), &mut self.log_dirs, &path)?.map(|stat| stat.kind) {
                Some(FileKind::File) => log_unlinks.push(index),
                Some(FileKind::Directory) => self.planned.log_dirs.push(path),
                _ => {}
            }
        }
        self.planned.log_unlinks = log_unlinks;
        Ok(())
    }

    /// Tells the change of the locks; returns their positions there.
    fn guards(&self, change: &mut Change) -> Result<Vec<Option<usize>>> {
        let files = &self.files;
        let mut bars = Vec::new();
        for dir in self.bars.names() {
            let name = name_from_disk(dir);
            let (_, path) = files.path(name)?;
            bars.push(change.lock(files.spot(name, &path)));
        }
        let mut guards = Vec::with_capacity(self.held.len());
        for held in &self.held {
            let bar = held.bar.and_then(|bar| bars.get(bar as usize).copied());
            guards.push(match bar {
                Some(bar) => Some(bar),
                None if held.lock.is_some() => Some(change.lock(self.spot_of(held))),
                None => None,
            });
        }
        Ok(guards)
    }

    fn spot_of(&self, held: &Held) -> Place {
        self.files.spot(held.name.as_name(), &held.path)
    }

    /// Adds the steps of reflogs as a whole; returns how long those are that get another name, and which
    /// locks guard them.
    fn whole_log_steps(&self, guards: &mut Guards, change: &mut Change) -> Result<Moved> {
        let (files, logs) = (&self.files, &self.planned.whole_logs);
        let mut moved = Moved::new();
        for (from, to) in &logs.moved {
            let Some(len) = files.len_to_move(from.as_name(), to.as_name())? else {
                continue;
            };
            let guard = guards.of_log(&self.held, from.as_name())?;
            moved.insert(to.clone(), (guard, len));
            let [from, place] = [from, to].map(|name| files.log_place(name.as_name()));
            let (from, place) = (from?, place?);
            change.add(guard, Step::Move { place, from });
        }
        for name in &logs.removed {
            let guard = guards.of_log(&self.held, name.as_name())?;
            let place = files.log_place(name.as_name())?;
            change.add(guard, Step::Remove { place });
        }
        for (name, lock) in &logs.written {
            let place = files.log_place(name.as_name())?;
            let guard = match guards {
                Guards::None => 0,
                Guards::Of(..) => change.lock(place.clone()),
            };
            change.put(guard, place, lock);
        }
        Ok(moved)
    }

    /// Adds the entries of reflogs.
    fn log_steps(&mut self, guards: &mut Guards, moved: &Moved, change: &mut Change) -> Result<()> {
        let mut dirs = std::mem::take(&mut self.log_dirs);
        let mut may = MayWrite::default();
        let is_one = matches!(guards, Guards::None);
        for (at, append) in std::mem::take(&mut self.planned.logs)
            .into_iter()
            .enumerate()
        {
            let name = append.name.as_name();
            let path = self.files.log_path(name)?;
            let mut create = append.create;
            let place = self.files.log_spot(name, &path);
            let (guard, len) = match moved.get(&append.name) {
                Some(&moved) => {
                    create = true;
                    moved
                }
                // How long it is only a journal has to know. Without one, entries are written in turn: none is if a
                // later one cannot be.
                None if is_one => {
                    if at > 0 {
                        self.check_later_log(&path, &place)?;
                    }
                    (0, 0)
                }
                None => {
                    let len = self.log_len(name, &path, create, &mut dirs, &mut may)?;
                    let Some(len) = len else { continue };
                    (guards.of_log(&self.held, name)?, len)
                }
            };
            let step = Step::Append {
                place,
                len,
                lines: append.lines.into(),
                create,
            };
            change.add(guard, step);
        }
        Ok(())
    }

    /// Makes sure that entries can be written, if there is such a reflog; empty folders in its place go.
    fn check_later_log(&self, path: &Path, place: &Place) -> Result<()> {
        let is_free = |error: &io::Error| {
            super::log::is_absent(error) || error.kind() == io::ErrorKind::IsADirectory
        };
        match self.files.system.append(path) {
            Err(error) if !is_free(&error) => Err(unable_to_append(place, path, error)),
            _ => Ok(()),
        }
    }

    /// Returns how long the reflog is that entries go to; `None` if there is none and none is to be made.
    ///
    /// # Errors
    /// `Io` if they could not be written, as where it is a link: that leads to where anything may be.
    fn log_len(
        &self,
        name: RefName<'_>,
        path: &Path,
        create: bool,
        dirs: &mut KnownDirs,
        may: &mut MayWrite,
    ) -> Result<Option<u64>> {
        let system = self.files.system.as_ref();
        let (len, checked) = match find_log(system, dirs, path) {
            Ok(stat) if stat.kind == FileKind::File => (stat.len, may.append(system, path, &stat)),
            Ok(stat) if stat.kind != FileKind::Directory => (0, system.append(path).map(drop)),
            Err(error) if !super::log::is_absent(&error) => {
                return Err(Error::io("unable to read", path, error));
            }
            _ if !create => return Ok(None),
            found => {
                let is_free = found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
                if !is_free {
                    self.files.clear_log_way(name)?;
                }
                (0, may.make(system, path))
            }
        };
        let failed = |error| unable_to_append(&self.files.log_spot(name, path), path, error);
        checked.map(|()| Some(len)).map_err(failed)
    }

    /// Adds the steps of refs, and those of the reflogs that go with them.
    fn ref_steps(&self, guards: &Guards, change: &mut Change) -> Result<()> {
        let planned = &self.planned;
        for &index in &planned.log_unlinks {
            if let (Some(held), Some(guard)) = (self.held.get(index), guards.of(index)) {
                let place = self.files.log_place(held.name.as_name())?;
                change.add(guard, Step::Remove { place });
            }
        }
        let early = planned.renames.len().saturating_sub(planned.late);
        let (early, late) = planned.renames.split_at(early);
        let put = |renames: &[usize], change: &mut Change| -> Result<()> {
            for &index in renames {
                let held = self.held.get(index);
                let lock = held.and_then(|held| held.lock.as_deref());
                if let (Some(held), Some(lock), Some(guard)) = (held, lock, guards.of(index)) {
                    change.put(guard, self.spot_of(held), lock);
                }
            }
            Ok(())
        };
        put(early, change)?;
        // The lock goes with the journal, whether something was written under it or not.
        let guard = match (guards, &planned.packed) {
            (Guards::Of(..), Some(_)) => change.lock(Place::Packed),
            _ => 0,
        };
        if let Some(lock) = planned.packed.as_ref().and_then(PackedLock::with_content) {
            let barred = self.barred().filter_map(|index| guards.of(index));
            barred.for_each(|guard| change.note_barred(guard));
            change.put(guard, Place::Packed, lock);
        }
        put(late, change)?;
        for &index in &planned.unlinks {
            if let (Some(held), Some(guard)) = (self.held.get(index), guards.of(index)) {
                let place = self.spot_of(held);
                change.add(guard, Step::Remove { place });
            }
        }
        Ok(())
    }

    /// Makes the names of the locks, and of the new content beside them, durable: what a journal
    /// needs must be there as long as the journal is.
    fn sync_locks(&self) -> Result<()> {
        let mut dirs = self.dirs_of(|held| held.lock.is_some());
        let packed = self.planned.packed.as_ref().map(PackedLock::lock);
        let logs = self.planned.whole_logs.written.iter().map(|(_, lock)| lock);
        for lock in packed.into_iter().chain(logs) {
            add_parent(&mut dirs, lock.path());
        }
        self.sync_dirs(dirs, self.planned.many_values)
    }

    /// Makes durable that there is no loose file over what packed-refs is about to say. Such a file
    /// may have been packed and removed by a process that did not make that durable: after a loss of
    /// power it would come back, with an older value than the one written here.
    fn sync_absence(&self) -> Result<()> {
        let packed = self.planned.packed.as_ref();
        if !self.files.options.fsync || packed.is_none_or(|packed| packed.with_content().is_none())
        {
            return Ok(());
        }
        self.sync_dirs(self.dirs_of(|held| !held.loose), false)
    }

    /// Makes the names in `dirs` durable, and those of the directories that were created; `all` of
    /// their file systems if that is asked for, or less work.
    fn sync_dirs(&self, mut dirs: BTreeSet<PathBuf>, all: bool) -> Result<()> {
        self.created_dirs
            .iter()
            .for_each(|dir| add_parent(&mut dirs, dir));
        crate::commit::sync(self.files.system.as_ref(), &dirs, all)
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

impl Files {
    fn log_place(&self, name: RefName<'_>) -> Result<Place> {
        let path = self.log_path(name)?;
        Ok(self.log_spot(name, &path))
    }
}

/// Returns what lies where a reflog would.
fn log_stat(system: &dyn System, dirs: &mut KnownDirs, path: &Path) -> Result<Option<Stat>> {
    super::log::if_there(find_log(system, dirs, path)).or_io("unable to read", path)
}

/// As [`log_stat`]; tells what is not there from what has a file above it.
fn find_log(system: &dyn System, dirs: &mut KnownDirs, path: &Path) -> io::Result<Stat> {
    match dirs.have_parent(system, path) {
        true => system.lstat(path),
        false => Err(io::ErrorKind::NotFound.into()),
    }
}
