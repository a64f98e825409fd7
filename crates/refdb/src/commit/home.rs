//! The repository, as far as locks and journals need to know of it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use super::place::{Maker, Roots, Seat};
use crate::error::{Error, OrIo, Result};
use crate::options::{Interrupt, Options, SharedRepository, Warn};
use crate::system::{Stat, System};

/// One repository, whose refs are changed.
#[derive(Debug)]
pub struct Home {
    pub(crate) system: Arc<dyn System>,
    common_dir: PathBuf,
    pub(super) shared: SharedRepository,
    /// Whether what others left unfinished may be finished.
    recovers: bool,
    pub(super) interrupt: Interrupt,
    warn: Option<Warn>,
    warned: AtomicBool,
    seat: OnceLock<Seat>,
}

impl Home {
    /// The repository whose refs are in `common_dir`.
    pub fn new(system: &Arc<dyn System>, common_dir: &Path, options: &Options) -> Arc<Home> {
        Arc::new(Home {
            system: Arc::clone(system),
            common_dir: common_dir.to_owned(),
            shared: options.shared_repository,
            recovers: options.recovers,
            interrupt: options.interrupt.clone(),
            warn: options.warn.clone(),
            warned: AtomicBool::new(false),
            seat: OnceLock::new(),
        })
    }

    /// The same repository, reached in another way.
    pub(super) fn on(&self, system: &Arc<dyn System>) -> Arc<Home> {
        Arc::new(Home {
            system: Arc::clone(system),
            common_dir: self.common_dir.clone(),
            shared: self.shared,
            recovers: self.recovers,
            interrupt: self.interrupt.clone(),
            warn: self.warn.clone(),
            warned: AtomicBool::new(false),
            seat: self.seat.clone(),
        })
    }

    /// Returns the directory of the refs that everybody sees.
    pub(super) fn common_dir(&self) -> &Path {
        &self.common_dir
    }

    /// Returns the directory that the journal is in.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn journal_dir(&self) -> Result<&Path> {
        self.seat().map(|seat| &*seat.dir)
    }

    /// Returns where the journal is, and what of this repository it can name.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn seat(&self) -> Result<&Seat> {
        if let Some(seat) = self.seat.get() {
            return Ok(seat);
        }
        let found = Seat::find(self.system.as_ref(), &self.common_dir)
            .or_io("unable to read", &self.common_dir)?;
        Ok(self.seat.get_or_init(|| found))
    }

    /// Returns where the places are that a journal names, which is this file.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn roots(&self, journal: &Stat) -> Result<Roots> {
        let dir = self.journal_dir()?;
        let find = || {
            let shared = self.shared != SharedRepository::Umask;
            let group = shared.then(|| self.system.stat(dir)).transpose()?;
            let maker = Maker {
                uid: journal.uid,
                group: group.map(|dir| dir.gid),
            };
            Roots::find(&self.system, dir, Some(maker))
        };
        find().or_io("unable to read", dir)
    }

    /// Tells, once, what keeps nobody from reading.
    pub(super) fn warn(&self, error: &Error) {
        if self.warn.is_some() && !self.warned.swap(true, Ordering::Relaxed) {
            self.tell(error);
        }
    }

    /// Tells what is lost.
    pub(super) fn tell(&self, error: &Error) {
        if let Some(Warn(warn)) = &self.warn {
            warn(error);
        }
    }

    /// Returns whether what a file says may be done by whoever only reads: only if its owner may write
    /// in the repository anyway.
    pub fn trusts(&self, file: &Stat) -> bool {
        self.recovers && self.is_of_writer(file)
    }

    /// Returns whether the owner of a file may write in the repository.
    pub fn is_of_writer(&self, file: &Stat) -> bool {
        let user = self.system.user_id();
        let is_owners = || {
            let dir = self.journal_dir().ok();
            let dir = dir.and_then(|dir| self.system.stat(dir).ok());
            user == 0 && dir.is_some_and(|dir| dir.uid == file.uid)
        };
        let shares = self.shared != SharedRepository::Umask;
        shares || file.uid == user || is_owners()
    }
}
