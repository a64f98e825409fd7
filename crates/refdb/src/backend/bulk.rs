//! What a whole store needs to be copied: writing one from nothing, telling what changed in one, and
//! keeping every other writer out of one.
//!
//! 1. A bulk write goes where no reader looks yet: it takes no locks, and what it leaves when it fails
//!    is for the caller to remove.
//! 2. A frozen store is read by everybody and written by nobody. What keeps writers out can be told
//!    from other processes' locks, so that it can be taken away when its owner died.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use refdb_names::{RefName, RefNameBuf};

use crate::backend::{LogOrder, NewValue};
use crate::commit::{Holder, Home, LockFile, LockOptions, describe_barred, refused};
use crate::error::{Error, ErrorKind, Result};
use crate::options::{LockTimeout, SharedRepository};
use crate::reflog::LogEntry;
use crate::system::System;

/// How long a lock that another process holds is waited for: writers that go on hold theirs for a
/// moment only.
const FREEZE_TIMEOUT: LockTimeout = LockTimeout::from_millis(5_000);

/// How to write a whole store.
#[derive(Clone, Copy, Debug)]
pub struct BulkOptions {
    /// No less than the number of entries of the longest reflog to come.
    pub entries_max: u64,
    /// Whether every value comes with what it peels to, unless it is no tag. Otherwise this is so
    /// below `refs/tags/`.
    pub fully_peeled: bool,
    /// Whether the store has refs that worktrees share.
    pub packed: bool,
}

/// A whole store that is being written: refs in the order of their names, then reflogs in theirs.
pub trait Bulk {
    /// Adds a ref.
    ///
    /// # Errors
    /// `Misuse` for what the format cannot hold; `Io`.
    fn add_ref(&mut self, name: RefName<'_>, value: NewValue<'_>) -> Result<()>;

    /// In which order the entries of a reflog are wanted.
    fn log_order(&self) -> LogOrder;

    /// Begins a reflog, which is empty if no entry follows.
    fn begin_log(&mut self, name: RefName<'_>) -> Result<()>;

    /// Adds an entry to the reflog that was begun last.
    fn add_entry(&mut self, entry: &LogEntry) -> Result<()>;

    /// Writes what is left. With fsync everything is durable afterwards, but for the name of the
    /// directory that it is in.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// A whole reflog.
#[derive(Debug)]
pub struct NewLog {
    /// The ref.
    pub name: RefNameBuf,
    /// The entries, oldest first; `None` if there is to be no reflog.
    pub entries: Option<Vec<LogEntry>>,
    /// Whether a reflog that is there stays as it is.
    pub only_new: bool,
}

/// What tells one state of a reflog from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogMark {
    /// The ref.
    pub name: RefNameBuf,
    /// Its state.
    pub state: u64,
    /// No less than the number of entries.
    pub entries_max: u64,
}

/// One moment of a store, as far as it tells cheaply what may have changed since.
#[derive(Clone, Debug)]
pub struct Mark {
    /// What tells this state of the many refs that are kept together from others; `None` if that
    /// cannot be told.
    pub together: Option<Vec<u8>>,
    /// The refs that are kept one by one beside those.
    pub single: BTreeSet<RefNameBuf>,
    /// Whether the reflogs are kept together with the refs.
    pub has_logs: bool,
}

impl Mark {
    /// Returns the names of the refs that may have changed between two marks of a store; `None` if
    /// that may be any.
    pub fn changed_until(&self, later: &Mark) -> Option<BTreeSet<RefNameBuf>> {
        let known = self.together.is_some() && self.together == later.together;
        known.then(|| self.single.union(&later.single).cloned().collect())
    }
}

/// A store that nobody else writes to. Dropping it gives everything back as it was.
pub trait Frozen {
    /// Returns the names of which none can have been written since; of a store that is held as a whole, none.
    fn names(&self) -> Vec<&[u8]>;

    /// Makes sure that everybody is still kept out.
    ///
    /// # Errors
    /// `Locked` if somebody took a lock away: others may have written since. `Io`.
    fn check(&self) -> Result<()>;

    /// Keeps the locks, but leaves alone what else is in the place: it belongs to another store now.
    fn leave(&mut self);

    /// Lets go of locks, as a process does that ends: they stay, and nobody has them.
    fn abandon(&mut self) {}
}

/// Takes the locks of a freeze: many names of few locks, since that is cheaper.
pub(crate) struct Locks {
    holder: Holder,
    options: LockOptions,
    /// Which of the locks further ones are names of; `None` while there is none that can be.
    pub(crate) taken: Vec<LockFile>,
}

impl Locks {
    /// Begins to take locks in a repository.
    pub(crate) fn new(home: &Arc<Home>, shared: SharedRepository) -> Locks {
        Locks {
            holder: Holder::migrating(home),
            options: LockOptions {
                timeout: FREEZE_TIMEOUT,
                shared,
                pid_file: false,
            },
            taken: Vec::new(),
        }
    }

    /// Makes sure that every lock still has its name.
    ///
    /// # Errors
    /// As for [`Frozen::check`].
    pub(crate) fn check(&self) -> Result<()> {
        self.taken.iter().try_for_each(LockFile::check)
    }

    /// Waits until the barrier of a transaction at `path` is gone.
    ///
    /// # Errors
    /// `Locked` when another process keeps it.
    pub(crate) fn pass(&self, system: &dyn System, path: &Path) -> Result<()> {
        let passed = self.holder.pass(path, self.options.timeout);
        passed.map_err(|error| {
            let message = describe_barred(system, path, path, &error);
            Error::new(ErrorKind::Locked, message).with_source(error)
        })
    }

    /// Takes the lock of `target`.
    ///
    /// # Errors
    /// `NotFound` with the system's error when there is no directory for it; `Locked` when another
    /// process keeps the lock; `Io`.
    pub(crate) fn take(&mut self, system: &dyn System, target: &Path) -> Result<()> {
        // The last one can have more names, if any can.
        let other = self.taken.last();
        let taken = LockFile::acquire_beside(&self.holder, target, self.options, other);
        let lock = taken.map_err(|error| refused(system, target, error))?;
        self.taken.push(lock);
        Ok(())
    }
}
