//! What is found of a ref beside what its edit expects.

use refdb_names::name::{FormatOptions, is_well_formed};
use refdb_names::{ObjectId, RefName, RefNameBuf};

use crate::backend::Session;
use crate::error::{ErrorKind, Reason, Result};
use crate::resolve::{End, follow};

use super::edit::{ChangeOf, ExpectedOf};
use super::expand::Expansion;
use super::ids::Id;

impl Expansion<'_> {
    /// Checks a symref that is not followed against what its edit expects.
    pub(super) fn check_symref(
        &mut self,
        session: &mut dyn Session,
        update: usize,
        target: &RefNameBuf,
    ) -> Result<()> {
        if self.updates[update].mirrors {
            // An entry for HEAD's reflog. HEAD was read before it was locked: if it no longer points
            // to the branch, the entry is not its own.
            if let Some(branch) = self.parent(update) {
                self.updates[update].rejected = self.name(branch) != target.as_name();
            }
            return Ok(());
        }
        let is_log_only = self.queue.is_log_only(self.edit(update));
        let is_name = is_well_formed(target.as_bytes(), FormatOptions::ONE_LEVEL);
        let end = match is_name.then(|| follow(target.as_name(), |name| session.read(name))) {
            None => End::Nowhere,
            // What lies behind it is not touched.
            Some(Err(error)) if error.kind() == ErrorKind::BrokenRef => End::Nowhere,
            Some(end) => end?,
        };
        let resolved = end.oid().map(|oid| self.ids.number(oid));
        let resolved = resolved.filter(|&id| id != Id::NULL);
        if let Some(id) = resolved {
            self.updates[update].old = id;
        }
        let expected = self.expected(update);
        // A reflog entry expects nothing of the ref; Git reads the ref all the same in `files`.
        let follows = !matches!(expected, ExpectedOf::Any | ExpectedOf::Exists);
        let reads = follows || self.quirks.log_edits_read && is_log_only;
        // A symref that leads nowhere may be renamed, or be replaced by what is.
        let reads = reads && self.queue.log_move.is_none();
        if end == End::Nowhere && reads {
            return self.refuse_lock(update, Reason::Generic, "error reading reference");
        }
        match expected {
            ExpectedOf::Any | ExpectedOf::Exists => Ok(()),
            ExpectedOf::Symbolic(expected) if target.as_name() == expected => Ok(()),
            ExpectedOf::Symbolic(expected) => self.refuse_target(update, target, expected),
            ExpectedOf::Missing if resolved.is_none() => self.refuse_lock(
                update,
                Reason::CreateExists,
                "dangling symref already exists",
            ),
            ExpectedOf::Missing => {
                self.refuse_lock(update, Reason::CreateExists, "reference already exists")
            }
            ExpectedOf::Oid(expected) if resolved == Some(expected) => Ok(()),
            ExpectedOf::Oid(expected) => {
                self.refuse_value(update, resolved.unwrap_or(Id::NULL), expected)
            }
        }
    }

    /// Checks a ref that is no symref, or missing, against what its edit expects, and tells the
    /// symrefs that led here its value.
    pub(super) fn check_value(&mut self, update: usize, value: Option<Id>) -> Result<()> {
        if self.updates[update].mirrors {
            // An entry for HEAD's reflog, but HEAD is no symref any more.
            self.updates[update].rejected = true;
            return Ok(());
        }
        if let Some(id) = value {
            self.updates[update].old = id;
            let mut ancestor = self.parent(update);
            while let Some(parent) = ancestor {
                self.updates[parent].old = id;
                ancestor = self.parent(parent);
            }
        }
        match (self.expected(update), value) {
            (ExpectedOf::Any, _) | (ExpectedOf::Missing, None) => Ok(()),
            // A file with a zero id is no ref yet.
            (ExpectedOf::Missing, Some(Id::NULL)) if self.quirks.null_is_none => Ok(()),
            (ExpectedOf::Exists, Some(Id::NULL)) if self.quirks.null_is_none => {
                self.refuse_missing(update)
            }
            (ExpectedOf::Exists, Some(_)) => Ok(()),
            (ExpectedOf::Missing, Some(_)) => {
                self.refuse_lock(update, Reason::CreateExists, "reference already exists")
            }
            (ExpectedOf::Oid(expected), Some(id)) if expected == id => Ok(()),
            (ExpectedOf::Oid(expected), Some(id)) => self.refuse_value(update, id, expected),
            (ExpectedOf::Symbolic(expected), Some(_)) => self.refuse_lock(
                update,
                Reason::ExpectedSymref,
                format!("expected symref with target '{expected}': but is a regular ref"),
            ),
            (ExpectedOf::Exists | ExpectedOf::Oid(_) | ExpectedOf::Symbolic(_), None) => {
                self.refuse_missing(update)
            }
        }
    }

    /// Refuses an update because there is no such ref.
    pub(super) fn refuse_missing(&mut self, update: usize) -> Result<()> {
        let message = format!("unable to resolve reference '{}'", self.name(update));
        self.refuse_lock(update, Reason::NonexistentRef, message)
    }

    /// Refuses an update because the ref has another value than the expected one, or none.
    pub(super) fn refuse_value(&mut self, update: usize, is: Id, expected: Id) -> Result<()> {
        let (value, expected): (&ObjectId, &ObjectId) = (self.ids.get(is), self.ids.get(expected));
        if is == Id::NULL {
            let message = format!("reference is missing but expected {expected}");
            return self.refuse_lock(update, Reason::NonexistentRef, message);
        }
        let message = format!("is at {value} but expected {expected}");
        self.refuse_lock(update, Reason::IncorrectOldValue, message)
    }

    /// Refuses an update because the symref has another target than the expected one.
    pub(super) fn refuse_target(
        &mut self,
        update: usize,
        is: &RefNameBuf,
        expected: RefName<'_>,
    ) -> Result<()> {
        let given = self.queue.name(self.edit(update));
        let message =
            format!("verifying symref target: '{given}': is at {is} but expected {expected}");
        self.reject(update, Reason::IncorrectOldValue, message)
    }

    /// Refuses an update through a symref to what is no name of a ref, for Git's reason where nothing is there. An
    /// edit that writes nothing finds no ref.
    pub(super) fn refuse_leading_nowhere(
        &mut self,
        update: usize,
        target: RefNameBuf,
    ) -> Result<()> {
        let may_be_missing = matches!(self.expected(update), ExpectedOf::Any | ExpectedOf::Missing);
        if may_be_missing && matches!(self.queue.change(self.edit(update)), ChangeOf::Verify) {
            self.updates[update].log_only = true;
            self.updates[update].no_deref = true;
            return Ok(());
        }
        let name = self.name(update);
        let message = format!("the symref '{name}' points to '{target}', no name of a ref");
        let derived = self.derive(update, target, false);
        match may_be_missing {
            true => self.refuse_lock(derived, Reason::NameConflict, message),
            false => self.refuse_missing(derived),
        }
    }
}
