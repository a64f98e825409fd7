//! Acquiring the locks of refs, one by one or each half of many in a thread of its own.
//!
//! Invariants:
//! 1. Directories are not looked at before a lock fails for want of one; so each is created once.
//! 2. No lock is waited for while one is held that comes after it in the order of locks, or while any is held
//!    and a migration is at work.

use std::cmp::Ordering;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use refdb_names::RefName;

use super::Files;
use super::bars::fits;
use super::new_names::being_migrated;
use super::session::{FilesSession, Held};
use crate::backend::Refusal;
use crate::commit::{LockFile, LockOptions};
use crate::error::{Error, ErrorKind, OrIo, Reason, Result};
use crate::layout::Place;
use crate::options::LockTimeout;
use crate::system::beside::both;
use crate::system::dirs::{self, is_in, middle, parent};

/// How often directories that vanish are created again.
const ATTEMPTS: usize = 3;

/// So many times a directory may be locked by others while one ref in it is to be locked.
const BARRIERS_MAX: usize = 100;

/// Why a name is not locked.
pub(super) enum NotTaken {
    Refused(Box<Refusal>),
    /// Another process has the lock, and a later one is held here, or a migration waits for what is held.
    Behind,
}

impl NotTaken {
    /// Says so of a lock for which no others are given back.
    pub(super) fn into_error(self, name: RefName<'_>) -> Error {
        match self {
            NotTaken::Refused(refusal) => refusal.into_error(name),
            NotTaken::Behind => Error::new(ErrorKind::Locked, format!("cannot lock ref '{name}'")),
        }
    }
}

/// How far a session has come in the order of locks.
#[derive(Default)]
pub(super) struct Order {
    /// Which of the locks comes last.
    last: Option<usize>,
    /// Among how many of the locks it was looked for.
    looked_at: usize,
    /// When all locks were to be given back for the first time.
    turned_back: Option<Duration>,
}

impl Order {
    pub(super) fn nothing_is_held(&mut self) {
        (self.last, self.looked_at) = (None, 0);
    }
}

impl Files {
    /// Returns which of two names is to be locked first.
    fn compare_locks(&self, low: RefName<'_>, high: RefName<'_>) -> Ordering {
        match self.options.ignore_case {
            false => self.layout.lock_order(low, high),
            true => self.layout.lock_order_ignoring_case(low, high),
        }
    }

    /// Returns in which order names that are sorted are to be locked, where that is another one.
    pub(super) fn other_order(&self, names: &[RefName<'_>]) -> Option<Vec<usize>> {
        let compare = |low, high| self.compare_locks(low, high);
        let is_same = names.len() < 2
            || !self.options.ignore_case && self.layout.keeps_together(names)
            || names.is_sorted_by(|&low, &high| compare(low, high).is_le());
        (!is_same).then(|| {
            let mut order: Vec<usize> = (0..names.len()).collect();
            order.sort_by(|&low, &high| compare(names[low], names[high]));
            order
        })
    }
}

impl FilesSession {
    /// Returns where the lock of `name` is in the order of locks, seen from the last one that is held.
    fn against_last(&mut self, name: RefName<'_>) -> Ordering {
        let FilesSession {
            files, held, order, ..
        } = self;
        while let Some(next) = held.get(order.looked_at) {
            let is_last = order.last.is_none_or(|last| {
                let (last, next) = (held[last].name.as_name(), next.name.as_name());
                files.compare_locks(last, next).is_lt()
            });
            if is_last {
                order.last = Some(order.looked_at);
            }
            order.looked_at += 1;
        }
        order.last.map_or(Ordering::Greater, |last| {
            files.compare_locks(name, held[last].name.as_name())
        })
    }

    /// Returns whether there is time left to give all locks back and to take them anew.
    pub(super) fn may_turn_back(&mut self) -> bool {
        let now = self.files.system.elapsed();
        let since = *self.order.turned_back.get_or_insert(now);
        self.timeout.allows(now.saturating_sub(since))
    }

    /// Locks one name; its lock is then the last in `held`.
    pub(super) fn take(&mut self, name: RefName<'_>) -> std::result::Result<(), NotTaken> {
        let against_last = self.against_last(name);
        let timeout = match against_last {
            // Whoever has it may be waiting for what is held here, and may be this session: some refs
            // have two names.
            Ordering::Less | Ordering::Equal => LockTimeout::from_millis(0),
            Ordering::Greater => self.timeout,
        };
        let Err(refusal) = self.take_within(name, timeout) else {
            return Ok(());
        };
        if refusal.reason != Reason::CreateExists {
            return Err(NotTaken::Refused(refusal));
        }
        let makes_way = against_last.is_lt() || self.sees_migration();
        if makes_way && self.may_turn_back() {
            return Err(NotTaken::Behind);
        }
        if against_last.is_gt() {
            // A batch goes on without the ref. It must not take as many waits as there are locks.
            self.timeout = LockTimeout::from_millis(0);
        }
        Err(NotTaken::Refused(refusal))
    }

    fn take_within(
        &mut self,
        name: RefName<'_>,
        timeout: LockTimeout,
    ) -> std::result::Result<(), Box<Refusal>> {
        if let Some(bar) = self.bars.find(name.as_bytes()) {
            if !fits(name) {
                let error = rustix::io::Errno::NAMETOOLONG.into();
                return Err(Box::new(self.refuse(name, &error)));
            }
            self.held.push(Held::barred(name, bar));
            return Ok(());
        }
        let mut looked_again = false;
        for _ in 0..BARRIERS_MAX {
            let error = match self.try_to_take(name, timeout) {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            let is_missing = error.kind() == io::ErrorKind::NotFound;
            let barrier = is_missing.then(|| self.files.barrier_above(name));
            let Some(barrier) = barrier.flatten() else {
                // It may have gone between the two looks.
                if is_missing && !std::mem::replace(&mut looked_again, true) {
                    continue;
                }
                if is_missing && self.is_frozen_above(name) {
                    return Err(Box::new(being_migrated()));
                }
                return Err(Box::new(self.refuse(name, &error)));
            };
            looked_again = false;
            // Whoever locked the directory is waited for.
            if let Err(error) = self.waiter.pass(&barrier, timeout) {
                return Err(Box::new(self.refuse_barred(name, &barrier, &error)));
            }
        }
        let error = io::ErrorKind::NotFound.into();
        Err(Box::new(self.refuse(name, &error)))
    }

    fn try_to_take(&mut self, name: RefName<'_>, timeout: LockTimeout) -> io::Result<()> {
        let files = Arc::clone(&self.files);
        let lock_options = files.lock_options().within(timeout);
        let (place, bare) = files.layout.locate(name);
        let base = files.layout.dir(&place);
        let path = super::join(base, "", bare).map_err(io::Error::other)?;
        if bare.as_bytes().is_empty() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let lock = self.acquire(base, &path, lock_options)?;
        self.held.push(Held {
            name: name.to_owned(),
            place,
            path,
            lock: Some(Box::new(lock)),
            bar: None,
            is_nested: false,
            exists: false,
            loose: false,
            blocked: false,
        });
        Ok(())
    }

    /// Locks many names, in two threads where they have directories of their own, as far as nobody is in the way; returns
    /// how many of the first ones are locked then. Who waits holds no later name, as always: what is
    /// locked of the second half is given back if a name of the first one is to be waited for.
    pub(super) fn take_by_halves(&mut self, names: &[RefName<'_>]) -> usize {
        if self.files.options.ignore_case {
            return 0;
        }
        let Some(middle) = middle(names.iter().map(|name| name.as_bytes())) else {
            return self.take_unopposed(names);
        };
        let (first, second) = names.split_at(middle);
        let mut other = FilesSession::new(Arc::clone(&self.files));
        (other.holder, other.waiter) = (self.holder.clone(), self.waiter.clone());
        let (taken, taken_of_second) = both(
            || self.take_unopposed(first),
            || other.take_unopposed(second),
        );
        if taken < first.len() {
            return taken;
        }
        self.held.append(&mut other.held);
        self.created_dirs.append(&mut other.created_dirs);
        taken + taken_of_second
    }

    /// Locks names until one would have to be waited for, or cannot be locked; returns how many are.
    pub(super) fn take_unopposed(&mut self, names: &[RefName<'_>]) -> usize {
        let at_once = LockTimeout::from_millis(0);
        let is_refused = |name: &RefName<'_>| self.try_to_take(*name, at_once).is_err();
        names.iter().position(is_refused).unwrap_or(names.len())
    }

    /// Creates the lock of the loose ref at `path`, and the directories that it needs.
    fn acquire(
        &mut self,
        base: &Path,
        path: &Path,
        lock_options: LockOptions,
    ) -> io::Result<LockFile> {
        if !self.can_link {
            return self.acquire_own(base, path, lock_options);
        }
        if let Some(linked) = self.acquire_linked(base, path, lock_options) {
            return linked;
        }
        let lock = self.acquire_own(base, path, lock_options)?;
        self.pattern = Some(self.held.len());
        Ok(lock)
    }

    /// Links to a lock that is held, in a directory that is created if it is missing; `None` where
    /// the lock has to be one of its own.
    fn acquire_linked(
        &mut self,
        base: &Path,
        path: &Path,
        lock_options: LockOptions,
    ) -> Option<io::Result<LockFile>> {
        let mut attempts = 0;
        // Where one ref lay in a directory that is gone, the next often does.
        let (dir, before) = (path.parent()?, self.held.last()?);
        let is_known = || {
            let known = parent(&before.path).zip(parent(path));
            known.is_some_and(|(known, dir)| is_in(known, dir))
        };
        if self.created_last && !is_known() {
            let system = self.files.system.as_ref();
            let shared = self.files.options.shared_repository;
            match dirs::create_one(system, shared, dir, &mut self.created_dirs) {
                Ok(created) => self.created_last = created,
                Err(error) => return Some(Err(error)),
            }
        }
        loop {
            let other = self.held.get(self.pattern?)?.lock.as_deref()?;
            match LockFile::acquire_linked(&self.waiter, path, lock_options, other) {
                Err(error) => match error.kind() {
                    io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
                        return Some(Err(error));
                    }
                    // A second time it may be the other lock that is gone.
                    io::ErrorKind::NotFound if attempts == 0 => {
                        attempts += 1;
                        if let Err(error) = self.create_dir_of(base, path)? {
                            return Some(Err(error));
                        }
                        self.created_last = true;
                    }
                    io::ErrorKind::NotFound | io::ErrorKind::TooManyLinks => return None,
                    _ => {
                        self.can_link = false;
                        return None;
                    }
                },
                lock => return Some(lock),
            }
        }
    }

    fn acquire_own(
        &mut self,
        base: &Path,
        path: &Path,
        lock_options: LockOptions,
    ) -> io::Result<LockFile> {
        let is_alone = self.is_alone && self.held.is_empty();
        let acquire = match is_alone {
            true => LockFile::acquire_alone,
            false => LockFile::acquire,
        };
        let mut attempts = 0;
        loop {
            match acquire(&self.waiter, path, lock_options) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && attempts < ATTEMPTS => {
                    attempts += 1;
                    self.create_dir_of(base, path).ok_or(error)??;
                }
                lock => return lock,
            }
        }
    }

    /// Lets the locks say who holds them, so that a journal can name them: the first may be one that
    /// takes the new value itself.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn sign_locks(&mut self) -> Result<()> {
        if let Some(packed) = &self.planned.packed {
            packed.sign()?;
        }
        let mut locks = self.held.iter().filter_map(|held| held.lock.as_deref());
        locks.next().map_or(Ok(()), |lock| {
            lock.sign().or_io("unable to lock", &lock.target())
        })
    }

    /// Fails if the refs were migrated after this process had looked which format they have: what it
    /// writes would be read by nobody. Whoever has a lock of a branch, and waited for no other one, has
    /// found its directory, which is none any more after a migration in the repository.
    pub(super) fn assert_not_migrated(&self) -> Result<()> {
        match self.held.as_slice() {
            [held]
                if held.name.as_bytes().starts_with(b"refs/heads/")
                    && held.lock.is_some()
                    && held.place == Place::Common
                    && !self.files.layout.is_apart() =>
            {
                Ok(())
            }
            _ => self.files.assert_not_migrated(),
        }
    }

    /// Creates the directory of `path`, unless it vanishes meanwhile; `None` if there is none.
    fn create_dir_of(&mut self, base: &Path, path: &Path) -> Option<io::Result<()>> {
        let dir = path.parent()?;
        let shared = self.files.options.shared_repository;
        let system = self.files.system.as_ref();
        // Refs that are kept elsewhere may have no folder for this worktree yet.
        let layout = &self.files.layout;
        let is_own = layout.is_linked() && base == layout.worktree_dir();
        let from = if is_own { layout.common_dir() } else { base };
        match dirs::create(system, shared, from, dir, &mut self.created_dirs) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(Ok(())),
            created => Some(created),
        }
    }
}
