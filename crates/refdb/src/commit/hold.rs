//! What proves that a holder of locks lives: a file that its process has for itself.
//!
//! Every lock of a transaction is a name of this file. As long as the process runs, the kernel keeps
//! others from taking the file (`flock`), whatever namespace, container or chroot they look from; when
//! the process ends, however it ends, the file is free. That the file still has as many names as the
//! transaction has locks, and the date of the last of them, says that nobody took one of them away.
//!
//! Invariants:
//! 1. Whoever has the file knows that it still had a name after he took it; nobody removes a name of
//!    it before having it.
//! 2. The file is marked (a permission bit) from its creation, and says who made it before it has a
//!    second name under which something is written, or is in a journal. Without both it is the lock of another
//!    program, whatever is in it.

use std::collections::HashSet;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Duration;

use super::entries::is_barrier;
use super::home::Home;
use super::owner::{Owner, Purpose};
use super::takeover::take_over;
use crate::error::{Error, ErrorKind, Result};
use crate::options::{LockTimeout, SharedRepository};
use crate::system::{GUARDED_MODE, GuardedFile, Stat, System, unpoisoned};

/// Who takes locks: one transaction in one repository.
#[derive(Clone)]
pub struct Holder {
    pub(super) who: Arc<Who>,
    look: Option<Arc<dyn Look>>,
}

impl std::fmt::Debug for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.who.fmt(f)
    }
}

/// What whoever waits for a lock looks for meanwhile.
pub(crate) trait Look: Send + Sync {
    /// Returns whether he is to wait no more; `holds_locks` says that he has others.
    fn is_in_vain(&self, holds_locks: bool) -> bool;
}

/// What is the same for all locks of a holder.
#[derive(Debug)]
pub(super) struct Who {
    pub(super) home: Arc<Home>,
    pub(super) purpose: Purpose,
    owner: OnceLock<Owner>,
    /// The files whose names are the locks that are held.
    holds: Mutex<Vec<Weak<Hold>>>,
}

/// A file that this process has, and whose names are locks.
pub(super) struct Hold {
    file: Mutex<Box<dyn GuardedFile>>,
    /// Whether the file says who made it; it may have several names then.
    is_signed: AtomicBool,
    /// How many names it should have.
    names: AtomicU64,
    /// Whether somebody else was at its names: each is looked at from then on.
    is_torn: AtomicBool,
    /// The date of the file when all locks had been taken. Whoever gives a name to a file, or moves one,
    /// dates it.
    sealed_ns: Mutex<Option<i128>>,
    /// Whether all of its names were found to be there a moment ago.
    is_seen: AtomicBool,
}

impl std::fmt::Debug for Hold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.names.load(Ordering::Relaxed);
        f.debug_struct("Hold").field("names", &names).finish()
    }
}

/// When a lock says who made it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Signs {
    AtOnce,
    /// At once, or later where the disk is full: a name is often still to be had then, and what is to make room needs
    /// no more.
    IfThereIsRoom,
    Later,
}

/// The shortest and the longest pause between two attempts.
const PAUSE_MIN: Duration = Duration::from_micros(500);
const PAUSE_MAX: Duration = Duration::from_millis(8);

/// How long a lock is waited for before it is looked at again who holds it.
const LOOK_EVERY: Duration = Duration::from_millis(100);

impl Holder {
    /// Begins a transaction of this process.
    pub fn new(home: &Arc<Home>) -> Holder {
        Holder::with(home, Purpose::Transaction)
    }

    /// Begins to keep writers out for a migration. Its locks are not taken over one by one but by
    /// whoever clears up after the whole migration ([`sweep_all`](super::sweep_all)).
    pub fn migrating(home: &Arc<Home>) -> Holder {
        Holder::with(home, Purpose::Migration)
    }

    fn with(home: &Arc<Home>, purpose: Purpose) -> Holder {
        let who = Arc::new(Who {
            home: Arc::clone(home),
            purpose,
            owner: OnceLock::new(),
            holds: Mutex::default(),
        });
        Holder { who, look: None }
    }

    /// Returns the same holder, who looks for something ten times a second while he waits. He is refused the lock
    /// then as after the timeout.
    pub(crate) fn looking(&self, look: Arc<dyn Look>) -> Holder {
        Holder {
            who: Arc::clone(&self.who),
            look: Some(look),
        }
    }

    /// Returns the same holder, who looks for nothing.
    pub(super) fn plain(&self) -> Holder {
        Holder {
            who: Arc::clone(&self.who),
            look: None,
        }
    }

    pub(super) fn system(&self) -> &dyn System {
        self.who.home.system.as_ref()
    }

    /// Returns what the files say of who made them.
    pub(super) fn owner(&self) -> &Owner {
        let who = &self.who;
        who.owner
            .get_or_init(|| Owner::new(who.home.system.as_ref(), who.purpose))
    }

    /// Creates a file of one name, the lock at `path`.
    pub(super) fn create(&self, path: &Path, signs: Signs) -> io::Result<Arc<Hold>> {
        let home = &self.who.home;
        let system = home.system.as_ref();
        let mut file = system.create_guarded(path, home.shared.mode_of_new_file())?;
        if let Err(error) = share(system, home.shared, path, file.as_mut()) {
            system.remove_file(path)?;
            return Err(error);
        }
        let hold = Arc::new(Hold {
            file: Mutex::new(file),
            is_signed: AtomicBool::new(false),
            names: AtomicU64::new(1),
            is_torn: AtomicBool::new(false),
            sealed_ns: Mutex::new(None),
            is_seen: AtomicBool::new(false),
        });
        // A file that loses its mark has no other sign whose it is.
        let has_mark = hold.file().has_mark();
        if (signs != Signs::Later || !has_mark)
            && let Err(error) = hold.sign(self.owner())
        {
            let is_full = matches!(
                error.kind(),
                io::ErrorKind::StorageFull
                    | io::ErrorKind::QuotaExceeded
                    | io::ErrorKind::FileTooLarge
            );
            let is_empty = || hold.stat().is_ok_and(|stat| stat.len == 0);
            if !(signs == Signs::IfThereIsRoom && has_mark && is_full && is_empty()) {
                system.remove_file(path)?;
                return Err(error);
            }
        }
        let mut holds = unpoisoned(&self.who.holds);
        holds.retain(|hold| hold.strong_count() > 0);
        holds.push(Arc::downgrade(&hold));
        Ok(hold)
    }

    /// Makes sure that what is prepared may be published: nobody asked to stop, and every lock is held.
    ///
    /// # Errors
    /// `Interrupted`, and as for [`Holder::check_held`].
    pub(crate) fn may_publish(&self) -> Result<()> {
        self.may_go_on()?;
        self.check_held()
    }

    /// Makes sure that nobody asked to stop.
    ///
    /// # Errors
    /// `Interrupted`.
    pub(crate) fn may_go_on(&self) -> Result<()> {
        self.who.home.interrupt.check()
    }

    /// Makes sure that nobody took a lock of this transaction away: somebody else may have it by
    /// now, and may have changed what it guards.
    ///
    /// # Errors
    /// `Locked` if somebody did; nothing may be published then. `Io`.
    pub(crate) fn check_held(&self) -> Result<()> {
        let mut holds = self.holds().into_iter();
        holds.try_for_each(|hold| hold.check()).map_err(lost)
    }

    /// Notes that all locks of this transaction are taken: from now on it is noticed if somebody moves one.
    pub(crate) fn seal(&self) {
        for hold in self.holds() {
            hold.seal(hold.stat().ok().map(|stat| stat.ctime_ns));
        }
    }

    /// Notes that all locks were found to be held: from now on this transaction itself gives names, and
    /// takes them away, and none is looked at before it is removed.
    pub(crate) fn note_seen(&self) {
        for hold in self.holds() {
            hold.seal(None);
            hold.is_seen.store(true, Ordering::Release);
        }
    }

    /// Returns whether each lock has to be looked at, as somebody else was at the names of one.
    pub(crate) fn is_torn(&self) -> bool {
        self.holds().iter().any(|hold| hold.is_torn())
    }

    pub(super) fn holds(&self) -> Vec<Arc<Hold>> {
        let holds = unpoisoned(&self.who.holds);
        holds.iter().filter_map(Weak::upgrade).collect()
    }

    /// Lets everybody read the files that a journal refers to, who may read refs, and makes durable what
    /// they say, but for the one that it is in.
    pub(super) fn reveal(&self, journal: &Arc<Hold>, fsync: bool) -> io::Result<()> {
        self.holds().into_iter().try_for_each(|hold| {
            hold.file().reveal()?;
            match fsync && !Arc::ptr_eq(&hold, journal) {
                true => hold.file().sync(),
                false => Ok(()),
            }
        })
    }

    /// Calls `attempt` until it gives something else than `AlreadyExists`, and takes the lock at
    /// `path` over if its owner has ended. The pauses grow by a half each and have a random length,
    /// between a half and one and a half of that; they stay short, so that whoever came late does
    /// not get ahead of whoever has waited for long.
    pub(super) fn retry<T>(
        &self,
        path: &Path,
        timeout: LockTimeout,
        mut attempt: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        let (mut waited, mut pause) = (Duration::ZERO, PAUSE_MIN);
        let mut look_at = Duration::ZERO;
        let mut began = None;
        loop {
            if self.who.home.interrupt.is_to_stop() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let refused = match attempt() {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => error,
                done => return done,
            };
            // What keeps a lock from being taken over does not keep it from being waited for.
            if waited >= look_at && take_over(&self.who.home, path).unwrap_or(false) {
                continue;
            }
            let is_in_vain = |look: &Arc<dyn Look>| look.is_in_vain(!self.holds().is_empty());
            if waited >= look_at {
                look_at = waited + LOOK_EVERY;
                if !waited.is_zero() && self.look.as_ref().is_some_and(is_in_vain) {
                    return Err(refused);
                }
            }
            if !timeout.allows(waited) {
                return Err(refused);
            }
            let percent = 50 + u32::try_from(self.who.home.system.random() % 101).unwrap_or(0);
            let sleep = pause * percent / 100;
            let began = *began.get_or_insert_with(|| self.system().elapsed());
            self.system().sleep(sleep);
            // A pause can last longer than it should.
            waited = self.system().elapsed().saturating_sub(began);
            pause = (pause * 3 / 2).min(PAUSE_MAX);
        }
    }

    /// Waits until the barrier at `path` is gone.
    ///
    /// # Errors
    /// `AlreadyExists` when it is still there after the timeout.
    pub(crate) fn pass(&self, path: &Path, timeout: LockTimeout) -> io::Result<()> {
        self.wait_while(path, timeout, || is_barrier(self.system(), path))
    }

    /// Waits as long as `is_so`, in the way a lock is waited for. What a process that has ended left at
    /// `path`, if that is a lock or a barrier, is taken over meanwhile.
    ///
    /// # Errors
    /// `AlreadyExists` when it still is after the timeout.
    pub(crate) fn wait_while(
        &self,
        path: &Path,
        timeout: LockTimeout,
        mut is_so: impl FnMut() -> bool,
    ) -> io::Result<()> {
        self.retry(path, timeout, || match is_so() {
            true => Err(rustix::io::Errno::EXIST.into()),
            false => Ok(()),
        })
    }
}

/// Gives a lock the permissions of a shared repository, but lets nobody read it yet who may not write it.
fn share(
    system: &dyn System,
    shared: SharedRepository,
    path: &Path,
    file: &mut dyn GuardedFile,
) -> io::Result<()> {
    if shared == SharedRepository::Umask {
        return Ok(());
    }
    shared.adjust(system, path)?;
    // Whoever could read it without that setting can read it with it, if permissions are added.
    let own = match shared {
        SharedRepository::Added(_) => file.kept_mode(),
        _ => 0,
    };
    let mode = file.stat()?.mode | own;
    file.keep_mode(mode & !GUARDED_MODE);
    let hidden = mode & !((!mode & 0o222) << 1) | GUARDED_MODE;
    match hidden == mode {
        true => Ok(()),
        false => system.set_mode(path, hidden),
    }
}

/// Tells what became of a lock that does not have its name any more.
pub(super) fn lost(error: io::Error) -> Error {
    let message = match error.kind() {
        io::ErrorKind::StaleNetworkFileHandle => {
            "a lock of this transaction was removed by somebody else while it was held: nothing was \
             changed"
        }
        _ => "unable to see whether the locks of this transaction are still held",
    };
    Error::new(ErrorKind::Locked, message).with_source(error)
}

/// As [`lost`], of a transaction that is committed.
pub(super) fn lost_in_part(error: io::Error) -> Error {
    let message = "a lock of this transaction was removed by somebody else";
    Error::new(ErrorKind::Locked, message).with_source(error)
}

/// The files whose names are the locks of a transaction.
#[derive(Default)]
pub(crate) struct Holds {
    all: Vec<Arc<Hold>>,
    /// What they are.
    ids: OnceLock<HashSet<(u64, u64)>>,
}

/// With more files than this, the lock itself is looked at, not each file: where a file can have one name only, each
/// lock is a file.
const HOLDS_MAX: usize = 4;

impl Holds {
    pub(super) fn of(holder: &Holder) -> Holds {
        Holds {
            all: holder.holds(),
            ids: OnceLock::new(),
        }
    }

    /// Makes sure that the lock at `path` is one of theirs. It is looked at only if one of them lost a name: that
    /// takes one call, whatever the path.
    ///
    /// # Errors
    /// `ESTALE` if it is not: nobody waits for this process then. Those of the system.
    pub(super) fn check(&self, system: &dyn System, path: &Path) -> io::Result<()> {
        let is_whole = |hold: &Arc<Hold>| hold.check().is_ok() && !hold.is_torn();
        if self.all.len() <= HOLDS_MAX && self.all.iter().all(is_whole) {
            return Ok(());
        }
        let id = |hold: &Arc<Hold>| hold.file().identity().ok();
        let ids = self
            .ids
            .get_or_init(|| self.all.iter().filter_map(id).collect());
        let found = system.find(path)?;
        if found.is_some_and(|found| ids.contains(&(found.dev, found.ino))) {
            return Ok(());
        }
        self.all.iter().for_each(|hold| hold.tear());
        Err(rustix::io::Errno::STALE.into())
    }
}

impl Hold {
    pub(super) fn file(&self) -> MutexGuard<'_, Box<dyn GuardedFile>> {
        unpoisoned(&self.file)
    }

    pub(super) fn stat(&self) -> io::Result<Stat> {
        self.file().stat()
    }

    /// Writes into the file who made it, unless it says so: then it may have further names.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn sign(&self, owner: &Owner) -> io::Result<()> {
        if self.is_signed.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut file = self.file();
        if !self.is_signed.load(Ordering::Acquire) {
            file.write_all(&owner.text())?;
            self.is_signed.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Returns whether the file says who made it.
    pub(super) fn is_signed(&self) -> bool {
        self.is_signed.load(Ordering::Acquire)
    }

    pub(super) fn add_name(&self) {
        self.names.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn lose_name(&self) {
        self.names.fetch_sub(1, Ordering::AcqRel);
    }

    /// Returns whether somebody else was at the names of the file, as far as it was looked at.
    pub(super) fn is_torn(&self) -> bool {
        self.is_torn.load(Ordering::Acquire)
    }

    /// Keeps the file open until this process ends, so that nobody takes what it is the lock of. But where somebody
    /// removed a lock nothing will change any more: the next process may finish the rest.
    pub(super) fn keep(self: Arc<Self>) {
        if !self.is_torn() {
            std::mem::forget(self);
        }
    }

    /// Returns whether each name of the file is one of this transaction for certain.
    pub(super) fn is_whole(&self) -> bool {
        self.is_seen.load(Ordering::Acquire) && !self.is_torn()
    }

    /// Notes that somebody else was at the names of the file.
    pub(super) fn tear(&self) {
        self.is_torn.store(true, Ordering::Release);
    }

    fn seal(&self, date_ns: Option<i128>) {
        *unpoisoned(&self.sealed_ns) = date_ns;
    }

    /// Looks whether the file has all its names. If it has more, or one was moved, that is noted.
    pub(super) fn check(&self) -> io::Result<()> {
        let stat = self.stat()?;
        let names = self.names.load(Ordering::Acquire);
        let sealed = *unpoisoned(&self.sealed_ns);
        if stat.nlink != names || sealed.is_some_and(|date| date != stat.ctime_ns) {
            self.tear();
        }
        match stat.nlink < names {
            true => Err(rustix::io::Errno::STALE.into()),
            false => Ok(()),
        }
    }
}
