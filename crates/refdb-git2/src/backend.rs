//! A backend: what libgit2 calls, in front of a store.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, c_int};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{SystemTime, UNIX_EPOCH};

use refdb::reflog::Signature;
use refdb::{Error, ErrorKind, Result, Store};
use refdb_git::Repository;
use refdb_git::repository::{Environment, OpenOptions};

use crate::abi::{Libgit2, Member, WORDS_MAX};
use crate::border::{Failure, text};
use crate::ffi::{git_refdb_backend, git_repository, git_signature};
use crate::locks::Group;
use crate::objects::OdbOf;
use crate::scratch::Scratch;
use crate::{init, iterate, locks, logs, refs};

/// What libgit2 holds as a `git_refdb_backend`: its members, and behind them ours.
#[repr(C)]
pub(crate) struct Backend {
    words: [*const (); WORDS_MAX],
    pub(crate) lib: &'static Libgit2,
    repository: *mut git_repository,
    opened: Mutex<Arc<Opened>>,
    /// The locks of each thread.
    pub(crate) groups: Mutex<HashMap<ThreadId, Arc<Mutex<Group>>>>,
    pub(crate) scratch: Mutex<Option<Scratch>>,
    /// Refs whose reflogs were read, and were none: they may be written.
    pub(crate) unlogged: Mutex<HashSet<Vec<u8>>>,
}

/// A repository, and its refs beside the objects of libgit2.
pub(crate) struct Opened {
    pub(crate) repository: Repository,
    pub(crate) store: Arc<Store>,
    /// What the file with the configuration was like before it was read.
    config: Option<Stamp>,
}

/// What tells a file from what it was.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    len: u64,
    changed: (i64, i64),
}

impl Stamp {
    /// Returns whether the file has not changed since a moment, as far as a clock can tell.
    fn is_before(&self, moment: SystemTime) -> bool {
        let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
        // Clocks of file systems are a little behind.
        let changed = self.changed.0.saturating_add(1);
        u64::try_from(changed).is_ok_and(|changed| changed < since.as_secs())
    }

    fn of(common_dir: &Path) -> Option<Stamp> {
        let stat = std::fs::metadata(common_dir.join("config")).ok()?;
        Some(Stamp {
            inode: stat.ino(),
            len: stat.len(),
            changed: (stat.ctime(), stat.ctime_nsec()),
        })
    }
}

/// What of the environment is about a user, and not about the repository that a program works in.
const VARIABLES: [&str; 20] = [
    "EMAIL",
    "GIT_COMMITTER_DATE",
    "GIT_COMMITTER_EMAIL",
    "GIT_COMMITTER_NAME",
    "GIT_CONFIG_COUNT",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_NOSYSTEM",
    "GIT_CONFIG_PARAMETERS",
    "GIT_CONFIG_SYSTEM",
    "GIT_QUARANTINE_PATH",
    "HOME",
    "HOSTNAME",
    "LANG",
    "LC_ALL",
    "LOGNAME",
    "PATH",
    "TMPDIR",
    "TZ",
    "USER",
    "XDG_CONFIG_HOME",
];

impl Opened {
    fn of(lib: &'static Libgit2, repository: *mut git_repository, at: &Path) -> Result<Opened> {
        let begun = SystemTime::now();
        let given = VARIABLES
            .iter()
            .filter_map(|name| std::env::var_os(name).map(|value| ((*name).to_owned(), value)));
        let mut pairs: Vec<_> = given.collect();
        let count = std::env::var("GIT_CONFIG_COUNT").ok();
        for at in 0..count.and_then(|count| count.parse().ok()).unwrap_or(0_u32) {
            for name in [
                format!("GIT_CONFIG_KEY_{at}"),
                format!("GIT_CONFIG_VALUE_{at}"),
            ] {
                pairs.extend(std::env::var_os(&name).map(|value| (name, value)));
            }
        }
        let opened = OpenOptions::new()
            .environment(Environment::from_pairs(pairs))
            .damaged(true)
            .open(at)?;
        // What may have changed since it was read is read again before anything is written.
        let config = Stamp::of(opened.common_dir()).filter(|stamp| stamp.is_before(begun));
        let opened = Opened::beside(opened, config, lib, repository);
        init::complete_worktree(&opened.repository, &opened.store)?;
        Ok(opened)
    }

    fn beside(
        opened: Repository,
        config: Option<Stamp>,
        lib: &'static Libgit2,
        repository: *mut git_repository,
    ) -> Opened {
        let objects = Arc::new(OdbOf { lib, repository });
        let store = Arc::new(opened.store().with_objects(objects));
        Opened {
            config,
            repository: opened,
            store,
        }
    }
}

impl Backend {
    /// Makes a backend for a repository.
    ///
    /// # Safety
    /// The repository is one of this libgit2, and outlives the backend.
    pub(crate) unsafe fn make(
        lib: &'static Libgit2,
        repository: *mut git_repository,
    ) -> std::result::Result<*mut git_refdb_backend, Failure> {
        // SAFETY: as this function's.
        let path = unsafe { text((lib.functions.git_repository_path)(repository)) };
        let Some(path) = path else {
            let text = "a repository that is only in memory has no refs";
            return Err(Error::new(ErrorKind::Unsupported, text).into());
        };
        let opened = Opened::of(lib, repository, Path::new(OsStr::from_bytes(path)))?;
        let mut backend = Box::new(Backend {
            words: [ptr::null(); WORDS_MAX],
            lib,
            repository,
            opened: Mutex::new(Arc::new(opened)),
            groups: Mutex::default(),
            scratch: Mutex::default(),
            unlogged: Mutex::default(),
        });
        backend.fill();
        Ok(Box::into_raw(backend).cast())
    }

    /// Sets the members that libgit2 sees.
    fn fill(&mut self) {
        let callbacks = [
            (Member::Exists, refs::exists as *const ()),
            (Member::Lookup, refs::lookup as *const ()),
            (Member::Iterator, iterate::iterator as *const ()),
            (Member::Write, refs::write as *const ()),
            (Member::Rename, refs::rename as *const ()),
            (Member::Del, refs::del as *const ()),
            (Member::Compress, refs::compress as *const ()),
            (Member::HasLog, logs::has_log as *const ()),
            (Member::EnsureLog, logs::ensure_log as *const ()),
            (Member::Free, free as *const ()),
            (Member::ReflogRead, logs::reflog_read as *const ()),
            (Member::ReflogWrite, logs::reflog_write as *const ()),
            (Member::ReflogRename, logs::reflog_rename as *const ()),
            (Member::ReflogDelete, logs::reflog_delete as *const ()),
            (Member::Lock, locks::lock as *const ()),
            (Member::Unlock, locks::unlock as *const ()),
        ];
        // The version is the first half of the first word; the machines that this runs on begin with it.
        self.words[0] = ptr::without_provenance(1);
        if self.lib.has_init {
            self.words[1] = init::init as *const ();
        }
        for (member, callback) in callbacks {
            self.words[self.lib.word(member)] = callback;
        }
    }

    /// Returns the backend that libgit2 gives back to a callback.
    ///
    /// # Safety
    /// It is from [`Backend::make`], and not freed.
    pub(crate) unsafe fn of<'a>(backend: *mut git_refdb_backend) -> &'a Backend {
        // SAFETY: the caller says so.
        unsafe { &*backend.cast::<Backend>() }
    }

    fn opened(&self) -> MutexGuard<'_, Arc<Opened>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the refs.
    pub(crate) fn store(&self) -> Arc<Store> {
        Arc::clone(&self.opened().store)
    }

    /// Does something with the refs; once more if they were moved into the other format meanwhile.
    pub(crate) fn with<T>(&self, mut act: impl FnMut(&Store) -> Result<T>) -> Result<T> {
        match act(&self.store()) {
            Err(error) if error.kind() == ErrorKind::Moved => {
                self.reload()?;
                act(&self.store())
            }
            done => done,
        }
    }

    /// As [`Backend::with`], for what is written: by the settings that the repository has now.
    pub(crate) fn with_settings<T>(&self, act: impl FnMut(&Store) -> Result<T>) -> Result<T> {
        let opened = Arc::clone(&self.opened());
        if opened.config != Stamp::of(opened.repository.common_dir()) {
            self.reload()?;
        }
        self.with(act)
    }

    fn reload(&self) -> Result<()> {
        let mut opened = self.opened();
        let config = Stamp::of(opened.repository.common_dir());
        let again = opened.repository.reload()?;
        *opened = Arc::new(Opened::beside(again, config, self.lib, self.repository));
        Ok(())
    }

    /// Returns the directory of the reflogs that all worktrees share.
    pub(crate) fn logs_dir(&self) -> PathBuf {
        self.opened().repository.common_dir().join("logs")
    }

    /// Returns the repository, as refdb has it open.
    pub(crate) fn repository(&self) -> Repository {
        self.opened().repository.clone()
    }
}

impl Backend {
    /// Frees a backend that libgit2 did not take.
    ///
    /// # Safety
    /// As for [`free`].
    pub(crate) unsafe fn free(backend: *mut git_refdb_backend) {
        // SAFETY: as this function's.
        unsafe { free(backend) }
    }
}

/// Frees a backend.
///
/// # Safety
/// It is from [`Backend::make`], and freed once.
unsafe extern "C" fn free(backend: *mut git_refdb_backend) {
    if backend.is_null() {
        return;
    }
    // SAFETY: as this function's.
    let backend = unsafe { Box::from_raw(backend.cast::<Backend>()) };
    let lib = backend.lib;
    crate::border::run(lib, move || {
        drop(backend);
        Ok(0 as c_int)
    });
}

/// Reads a signature of libgit2's; `None` for null.
///
/// # Safety
/// It is null, or one of libgit2's.
pub(crate) unsafe fn signature(who: *const git_signature) -> Option<Signature> {
    if who.is_null() {
        return None;
    }
    // SAFETY: the caller says so.
    let (who, name, email) = unsafe { (&*who, text((*who).name), text((*who).email)) };
    let minutes = who.offset.unsigned_abs();
    let zone = i16::try_from(minutes / 60 * 100 + minutes % 60).unwrap_or(0);
    Some(Signature {
        name: name.unwrap_or_default().into(),
        email: email.unwrap_or_default().into(),
        time: u64::try_from(who.time).unwrap_or(0),
        zone: if who.offset < 0 { -zone } else { zone },
    })
}
