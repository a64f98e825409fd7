//! How a store behaves: the settings that Git's configuration gives, as plain values.
//!
//! The defaults are those of a non-bare repository without any configuration, except that writes
//! are durable when they are acknowledged.
//!
//! ```
//! let options = refdb::Options::new(refdb::ObjectFormat::Sha1);
//! assert!(options.fsync);
//! ```

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bstr::BString;
use refdb_names::ObjectFormat;
pub use refdb_system::SharedRepository;

use crate::error::{Error, ErrorKind, Result};
use crate::hook::Hook;

/// Takes errors that keep nobody from going on.
#[derive(Clone)]
pub struct Warn(pub Arc<dyn Fn(&Error) + Send + Sync>);

impl std::fmt::Debug for Warn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Warn")
    }
}

/// Says whether refs are still kept where they are read; asked with whether none was found.
#[derive(Clone)]
pub(crate) struct StillThere(pub(crate) Arc<dyn Fn(bool) -> Result<()> + Send + Sync>);

impl std::fmt::Debug for StillThere {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StillThere")
    }
}

/// The settings of a store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The object format of the repository (`extensions.objectFormat`).
    pub object_format: ObjectFormat,
    /// Which refs get a reflog (`core.logAllRefUpdates`).
    pub log_refs: LogRefs,
    /// Whether writes are made durable before they are acknowledged: file and directory
    /// (`core.fsync`, component `reference`; unlike Git, on unless configured).
    pub fsync: bool,
    /// Permissions of new files (`core.sharedRepository`).
    pub shared_repository: SharedRepository,
    /// How long to wait for `<ref>.lock` (`core.filesRefLockTimeout`).
    pub files_ref_lock_timeout: LockTimeout,
    /// From so many refs on, a transaction locks directories that are not there, each with all refs
    /// that could be in it, in place of the refs (`refdb.directoryLockMin`; 0 stands for never).
    pub directory_lock_min: usize,
    /// How long to wait for `packed-refs.lock` (`core.packedRefsTimeout`).
    pub packed_refs_timeout: LockTimeout,
    /// Whether locks say who holds them (`core.lockfilePid`).
    pub lockfile_pid: bool,
    /// Whether symrefs are written as symbolic links (`core.preferSymlinkRefs`).
    pub prefer_symlink_refs: bool,
    /// Whether the file system takes names that differ only in case for one (`core.ignoreCase`).
    pub ignore_case: bool,
    /// The settings of the reftable format.
    pub reftable: ReftableOptions,
    /// Who is named in reflog entries.
    pub committer: Committer,
    /// Whether ref updates are forbidden, because objects are in quarantine
    /// (`GIT_QUARANTINE_PATH`).
    pub quarantined: bool,
    /// Who is told what a reader should know and what keeps nobody from reading, if anybody is.
    pub warn: Option<Warn>,
    /// Whether what processes left unfinished that have ended may be finished here. In a repository
    /// that somebody else may have made, reading refs must change nothing.
    pub recovers: bool,
    /// Who is asked whether a write is to stop, for a signal perhaps: it gives its locks back then, and
    /// fails with [`ErrorKind::Interrupted`], unless it is being published already.
    pub interrupt: Interrupt,
    /// What a reader asks who missed something, or came to its end.
    pub(crate) still_there: Option<StillThere>,
    /// What is wrong with settings that only writing asks for, told by the first write.
    pub(crate) invalid: InvalidSettings,
    /// What is called at each step of a transaction; nothing unless a caller gives it.
    pub hook: Option<Arc<dyn Hook>>,
}

impl Options {
    /// The locks of so many refs would be held for longer than the tenth of a second that Git waits
    /// for one: whoever wants one of them has to come again in either case.
    const DIRECTORY_LOCK_MIN: usize = 8 << 10;

    /// Returns the defaults for a repository of that object format.
    pub fn new(object_format: ObjectFormat) -> Self {
        Options {
            object_format,
            log_refs: LogRefs::Normal,
            fsync: true,
            shared_repository: SharedRepository::Umask,
            files_ref_lock_timeout: LockTimeout::DEFAULT,
            directory_lock_min: Options::DIRECTORY_LOCK_MIN,
            packed_refs_timeout: LockTimeout::DEFAULT,
            lockfile_pid: false,
            prefer_symlink_refs: false,
            ignore_case: false,
            reftable: ReftableOptions::default(),
            committer: Committer::default(),
            quarantined: false,
            recovers: true,
            interrupt: Interrupt::default(),
            warn: None,
            still_there: None,
            invalid: InvalidSettings::default(),
            hook: None,
        }
    }

    /// Looks whether the refs are still kept in the format in which they are read.
    ///
    /// # Errors
    /// `Moved` if they are not: then nothing that was missed is known to be missing.
    pub(crate) fn still_there(&self) -> Result<()> {
        self.still_there.as_ref().map_or(Ok(()), |it| (it.0)(false))
    }

    /// Returns options for a store on a simulated disk: the committer and the moment are always the same, and
    /// locks are not waited for.
    #[cfg(test)]
    pub(crate) fn simulated(object_format: ObjectFormat) -> Self {
        let mut options = Options::new(object_format);
        options.committer = Committer::from(Identity {
            name: "A".into(),
            email: "a@b".into(),
            date: Some((1_700_000_000, 0)),
            ..Identity::default()
        });
        options.files_ref_lock_timeout = LockTimeout::from_millis(0);
        options.packed_refs_timeout = LockTimeout::from_millis(0);
        options.reftable.lock_timeout = LockTimeout::from_millis(0);
        options
    }
}

/// Who is asked whether a write is to stop; nobody unless a caller gives somebody.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicBool, Ordering};
///
/// // A handler of signals sets it.
/// let flag = Arc::new(AtomicBool::new(false));
/// let mut options = refdb::Options::new(refdb::ObjectFormat::Sha1);
/// options.interrupt = refdb::options::Interrupt::new(move || flag.load(Ordering::Relaxed));
/// ```
#[derive(Clone, Default)]
pub struct Interrupt(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Interrupt")
    }
}

impl Interrupt {
    /// Asks `is_to_stop` before each lock is taken, the first one too, while one is waited for, and
    /// before anything is published.
    pub fn new(is_to_stop: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Interrupt(Some(Arc::new(is_to_stop)))
    }

    /// Returns whether a write is to stop.
    pub(crate) fn is_to_stop(&self) -> bool {
        self.0.as_ref().is_some_and(|is_to_stop| is_to_stop())
    }

    /// Fails if a write is to stop.
    ///
    /// # Errors
    /// `Interrupted`.
    pub fn check(&self) -> Result<()> {
        match self.is_to_stop() {
            true => Err(Error::new(
                ErrorKind::Interrupted,
                "stopped, as was asked for: nothing was changed",
            )),
            false => Ok(()),
        }
    }
}

/// Settings that make no sense, and are in nobody's way before they are asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct InvalidSettings {
    /// For whoever takes a lock.
    pub(crate) locking: Option<Error>,
    /// For whoever locks packed-refs.
    pub(crate) packing: Option<Error>,
    /// For whoever writes tables.
    pub(crate) tables: Option<Error>,
}

impl InvalidSettings {
    /// Fails if `setting` was found to make no sense.
    ///
    /// # Errors
    /// `Config`, with the words that say which setting it is.
    pub(crate) fn check(setting: Option<&Error>) -> Result<()> {
        match setting {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }
}

/// The settings of the reftable format.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ReftableOptions {
    /// Bytes of a block (`reftable.blockSize`), at most 16777215.
    pub block_size: u32,
    /// Records between restart points (`reftable.restartInterval`).
    pub restart_interval: u16,
    /// Whether tables get an index from object ids to refs (`reftable.indexObjects`).
    pub index_objects: bool,
    /// How many times as large as all newer ones a table should be (`reftable.geometricFactor`).
    pub geometric_factor: u8,
    /// How long to wait for `tables.list.lock` (`reftable.lockTimeout`).
    pub lock_timeout: LockTimeout,
    /// Whether a commit may compact tables (`GIT_TEST_REFTABLE_AUTOCOMPACTION`).
    pub auto_compaction: bool,
}

impl Default for ReftableOptions {
    fn default() -> Self {
        ReftableOptions {
            block_size: 4096,
            restart_interval: 16,
            index_objects: true,
            geometric_factor: 2,
            lock_timeout: LockTimeout::DEFAULT,
            auto_compaction: true,
        }
    }
}

/// Which refs get a reflog when they have none yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogRefs {
    /// None; existing reflogs are still continued.
    None,
    /// `HEAD`, branches, remote-tracking branches and notes.
    Normal,
    /// Every ref.
    Always,
}

/// How long to wait for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockTimeout(Option<Duration>);

impl LockTimeout {
    /// Waits without end.
    pub const FOREVER: Self = LockTimeout(None);

    /// Long enough for dozens of writers to take turns, even on a slow disk; Git waits a tenth of a
    /// second for a ref, and a second for packed-refs.
    pub(crate) const DEFAULT: Self = LockTimeout::from_millis(5000);

    /// Waits so many milliseconds; 0 means one attempt.
    pub const fn from_millis(milliseconds: u64) -> Self {
        LockTimeout(Some(Duration::from_millis(milliseconds)))
    }

    /// Returns whether one may go on waiting after having waited so long.
    pub fn allows(self, waited: Duration) -> bool {
        self.0.is_none_or(|limit| waited < limit)
    }
}

/// Who commits: known, or found out when the first reflog entry is written.
///
/// ```
/// use refdb::options::{Committer, Identity};
/// let ann = Identity {
///     name: "Ann".into(),
///     ..Identity::default()
/// };
/// let committer = Committer::lazy(move || Ok(ann.clone()));
/// assert_eq!(committer.get()?.name, "Ann");
/// # Ok::<(), refdb::Error>(())
/// ```
#[derive(Clone)]
pub struct Committer {
    known: Arc<OnceLock<Identity>>,
    find: Arc<dyn Fn() -> Result<Identity> + Send + Sync>,
}

impl Committer {
    /// Leaves it to `find` to say who commits, when that is asked for the first time.
    pub fn lazy(find: impl Fn() -> Result<Identity> + Send + Sync + 'static) -> Self {
        Committer {
            known: Arc::new(OnceLock::new()),
            find: Arc::new(find),
        }
    }

    /// Returns who commits.
    ///
    /// # Errors
    /// Whatever finding it out fails with.
    pub fn get(&self) -> Result<&Identity> {
        if let Some(identity) = self.known.get() {
            return Ok(identity);
        }
        let identity = (self.find)()?;
        Ok(self.known.get_or_init(|| identity))
    }
}

impl From<Identity> for Committer {
    fn from(identity: Identity) -> Self {
        Committer::lazy(move || Ok(identity.clone()))
    }
}

impl Default for Committer {
    fn default() -> Self {
        Identity::default().into()
    }
}

impl fmt::Debug for Committer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Committer").field(&self.known.get()).finish()
    }
}

/// Who is named in reflog entries, and when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The name.
    pub name: BString,
    /// The email address.
    pub email: BString,
    /// The moment, in seconds since 1970 and with its zone as decimal `HHMM`; the present time in
    /// [`Identity::zone`] if there is none.
    pub date: Option<(u64, i16)>,
    /// The local time zone as decimal `HHMM`, for entries that get the present time.
    pub zone: i16,
}
