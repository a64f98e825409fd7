//! What a whole store needs to be copied: writing one from nothing, telling what changed in one, and
//! keeping every other writer out of one.
//!
//! 1. A bulk write goes where no reader looks yet: it takes no locks, and what it leaves when it fails
//!    is for the caller to remove.
//! 2. A frozen store is read by everybody and written by nobody. What keeps writers out can be told
//!    from other processes' locks, so that it can be taken away when its owner died.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::backend::{LogOrder, NewValue};
use crate::error::{Error, ErrorKind, Result};
use crate::lockfile::{LockFile, LockOptions, describe_refusal};
use crate::name::{RefName, RefNameBuf};
use crate::options::{LockTimeout, SharedRepository};
use crate::reflog::LogEntry;
use crate::system::System;

/// What is written into lock files that freeze a store.
pub(crate) const FREEZE_MARK: &[u8] = b"refdb: the refs are being migrated\n";

/// What a link that keeps writers out of a directory leads to: nothing has that name.
pub(crate) const BARRIER: &str = "refdb: the refs are being migrated";

/// How long a lock that another process holds is waited for: writers that go on hold theirs for a
/// moment only.
const FREEZE_TIMEOUT: LockTimeout = LockTimeout::from_millis(5_000);

/// How to write a whole store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BulkOptions {
    /// No less than the number of entries of the longest reflog to come.
    pub(crate) entries_max: u64,
    /// Whether every value comes with what it peels to, unless it is no tag. Otherwise this is so
    /// below `refs/tags/`.
    pub(crate) fully_peeled: bool,
    /// Whether the store has refs that worktrees share.
    pub(crate) packed: bool,
}

/// A whole store that is being written: refs in the order of their names, then reflogs in theirs.
pub(crate) trait Bulk {
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
pub(crate) struct NewLog {
    pub(crate) name: RefNameBuf,
    /// The entries, oldest first; `None` if there is to be no reflog.
    pub(crate) entries: Option<Vec<LogEntry>>,
}

/// What tells one state of a reflog from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogMark {
    pub(crate) name: RefNameBuf,
    pub(crate) state: u64,
    /// No less than the number of entries.
    pub(crate) entries_max: u64,
}

/// A store that nobody else writes to. Dropping it gives everything back as it was.
pub(crate) trait Frozen {
    /// Returns whether a ref of that name cannot have been written since.
    fn holds(&self, name: &[u8]) -> bool;

    /// Keeps the locks, but leaves alone what else is in the place: it belongs to another store now.
    fn leave(&mut self);
}

/// Takes locks that say what they are for from the moment they exist: each is another name of a file
/// that has been written before.
pub(crate) struct Marker {
    system: Arc<dyn System>,
    path: PathBuf,
    shared: SharedRepository,
    /// How many files there are; a file can have a limited number of names.
    count: u32,
}

impl Marker {
    /// Writes the file, which has to be new.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn new(
        system: Arc<dyn System>,
        path: PathBuf,
        shared: SharedRepository,
    ) -> Result<Marker> {
        let mut marker = Marker {
            system,
            path,
            shared,
            count: 0,
        };
        marker.write_next()?;
        Ok(marker)
    }

    fn file(&self) -> PathBuf {
        self.path.with_extension(self.count.to_string())
    }

    fn write_next(&mut self) -> Result<()> {
        self.count += 1;
        let path = self.file();
        let mut written = self.system.create_new(&path, 0o666);
        if let Ok(file) = &mut written {
            file.write_all(FREEZE_MARK)
                .map_err(|error| Error::io("unable to write", &path, error))?;
        }
        written
            .map(drop)
            .map_err(|error| Error::io("unable to create", &path, error))
    }

    /// Takes the lock of `target`.
    ///
    /// # Errors
    /// `NotFound` with the system's error when there is no directory for it; `Locked` when another
    /// process keeps the lock; `Io`.
    pub(crate) fn lock(&mut self, target: &Path) -> Result<LockFile> {
        let options = LockOptions {
            timeout: FREEZE_TIMEOUT,
            shared: self.shared,
            pid_file: false,
        };
        let mut taken = LockFile::acquire_by_name(&self.system, target, options, &self.file());
        if matches!(&taken, Err(error) if error.kind() == io::ErrorKind::TooManyLinks) {
            self.write_next()?;
            taken = LockFile::acquire_by_name(&self.system, target, options, &self.file());
        }
        taken.map_err(|error| {
            let kind = match error.kind() {
                io::ErrorKind::AlreadyExists => ErrorKind::Locked,
                _ => ErrorKind::Io,
            };
            let message = describe_refusal(self.system.as_ref(), target, &error);
            Error::new(kind, message).with_source(error)
        })
    }
}
