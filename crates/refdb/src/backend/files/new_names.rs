//! New names, beside a migration that freezes the store.
//!
//! A migration takes the lock of every name that exists. It cannot know which new names will come. So
//! whoever locks a new name then looks for a migration. If there is one, he gives the lock back and waits
//! for its end. If there is none, a migration that comes later finds his lock, and waits for him. Whoever has
//! to wait for a lock of any name while he holds others gives them back as well: the migration may wait for
//! these.

use std::sync::Arc;

use refdb_names::RefName;

use super::Files;
use super::session::FilesSession;
use crate::backend::migration::{MIGRATION, is_migrating};
use crate::backend::{Locked, RefFormat, Refusal};
use crate::commit::Look;
use crate::commit::entries::is_frozen;
use crate::error::{ErrorKind, Reason, Result};
use crate::options::LockTimeout;

/// What a session knows of a migration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Migration {
    /// None was seen.
    #[default]
    Unseen,
    /// There is one, which is waited for when nothing is held any more.
    Seen,
    /// It did not end in time.
    Lasts,
}

/// What whoever waits for a lock is beside: a migration. It locks what it finds in whatever order, so that it may
/// have this lock and wait for one that is held here, which is to be given back then. After its switch it waits for
/// whoever waits for one of its locks.
pub(super) struct Beside {
    files: Arc<Files>,
    /// Whether it is the lock of packed-refs, after which it waits for no lock of a ref that exists.
    is_last: bool,
}

impl Beside {
    /// For the locks of refs.
    pub(super) fn refs(files: &Arc<Files>) -> Arc<dyn Look> {
        let files = Arc::clone(files);
        Arc::new(Beside {
            files,
            is_last: false,
        })
    }

    /// For that of packed-refs.
    pub(super) fn packed(files: &Arc<Files>) -> Arc<dyn Look> {
        let files = Arc::clone(files);
        Arc::new(Beside {
            files,
            is_last: true,
        })
    }
}

impl Look for Beside {
    fn is_in_vain(&self, holds_locks: bool) -> bool {
        let found = match self.is_last {
            true => self.files.still_there().map(|()| false),
            false => self.files.is_migrating(),
        };
        match found {
            Ok(lives) => lives && holds_locks,
            // What keeps a migration from being looked for is told to whoever makes a new name.
            Err(error) => error.kind() == ErrorKind::Moved,
        }
    }
}

impl Files {
    /// Returns whether the store is being frozen, or is.
    ///
    /// # Errors
    /// `Moved` when it is not the store of the repository any more; `Io`.
    pub(super) fn is_migrating(&self) -> Result<bool> {
        let common_dir = self.layout.common_dir();
        if !is_migrating(self.system.as_ref(), common_dir, RefFormat::Files)? {
            return Ok(false);
        }
        self.still_there().map(|()| true)
    }
}

impl FilesSession {
    /// Looks for a migration, under the locks of new names; returns what is to be answered for them.
    ///
    /// # Errors
    /// As for [`Files::is_migrating`].
    pub(super) fn look_for_migration(&mut self) -> Result<Locked> {
        if !self.files.is_migrating()? {
            return Ok(Locked::Missing);
        }
        if self.migration == Migration::Lasts {
            return Ok(Locked::Refused(being_migrated()));
        }
        self.migration = Migration::Seen;
        Ok(Locked::Behind)
    }

    /// Returns whether there is a migration that may wait for a lock which is held here.
    pub(super) fn sees_migration(&mut self) -> bool {
        let holds_some = !self.held.is_empty() || !self.bars.is_empty();
        if holds_some && matches!(self.files.is_migrating(), Ok(true)) {
            self.migration = Migration::Seen;
        }
        self.migration == Migration::Seen
    }

    /// Returns whether a migration that lives keeps everybody out of a directory in which the name is.
    pub(super) fn is_frozen_above(&mut self, name: RefName<'_>) -> bool {
        let files = &self.files;
        let above = files.find_above(name, |path| is_frozen(files.system.as_ref(), path));
        let is_so = above.is_some() && matches!(files.is_migrating(), Ok(true));
        if is_so && self.migration == Migration::Unseen {
            self.migration = Migration::Seen;
        }
        is_so
    }

    /// Waits for the end of a migration, if one was seen. Whether the refs are in the other format then is
    /// told when the next lock is taken.
    pub(super) fn wait_for_migration(&mut self) {
        if self.migration != Migration::Seen {
            return;
        }
        let files = &self.files;
        let folder = files.layout.common_dir().join(MIGRATION);
        let is_so = || matches!(files.is_migrating(), Ok(true));
        let waited = self.holder.wait_while(&folder, self.timeout, is_so);
        self.migration = match waited {
            Ok(()) => Migration::Unseen,
            Err(_) => {
                // What it keeps is not waited for once more.
                self.timeout = LockTimeout::from_millis(0);
                Migration::Lasts
            }
        };
    }
}

/// Says why a new name cannot be had.
pub(super) fn being_migrated() -> Refusal {
    Refusal::new(
        Reason::CreateExists,
        "the refs are being migrated to another format; try again",
    )
}
