//! What a migration, which freezes the store, has to do with new names.
//!
//! A name that exists is kept from being written by its lock, which the migration takes. A new one has
//! nothing to be locked. So whoever has the lock of a new name looks for a migration: either that is
//! seen, and the lock is given back until it has ended, or it comes later, finds the lock, and waits.

use std::mem;

use super::Files;
use super::session::FilesSession;
use crate::backend::migration::{MIGRATION, is_migrating};
use crate::backend::{Locked, RefFormat, Refusal};
use crate::error::{Reason, Result};

/// What a session knows of a migration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Frost {
    /// None was seen.
    #[default]
    Unseen,
    /// There is one, which is waited for when nothing is held any more.
    Seen,
    /// It did not end in time.
    Lasts,
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
        self.assert_not_migrated().map(|()| true)
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
        Ok(match mem::replace(&mut self.migration, Frost::Seen) {
            Frost::Lasts => Locked::Refused(being_migrated()),
            Frost::Unseen | Frost::Seen => Locked::Behind,
        })
    }

    /// Waits for a migration that was seen, if there is one: until it was given up, or the refs are in the
    /// other format, which is told when the next lock is taken.
    pub(super) fn wait_for_migration(&mut self) {
        if self.migration == Frost::Unseen {
            return;
        }
        let files = &self.files;
        let folder = files.layout.common_dir().join(MIGRATION);
        let is_so = || matches!(files.is_migrating(), Ok(true));
        let waited = self.holder.wait_while(&folder, self.timeout, is_so);
        self.migration = match waited {
            Ok(()) => Frost::Unseen,
            Err(_) => Frost::Lasts,
        };
    }
}

/// Says that a new name cannot be had as yet.
pub(super) fn being_migrated() -> Refusal {
    Refusal {
        reason: Reason::CreateExists,
        message: "the refs are being migrated to another format; try again".into(),
    }
}
