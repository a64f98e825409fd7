//! What the hook is told of a transaction, and when.
//!
//! Git keeps packed-refs by transactions of its own, which are announced like all others: a
//! deletion in the `files` format calls the hook for packed-refs as well, within the calls for the
//! transaction itself. Scripts see that, so it is told here in the same way and order.

use refdb_names::RefName;
use refdb_names::name::is_root_ref;

use crate::backend::Session;
use crate::error::{Error, Result};
use crate::hook::{self, Hook, Step};

use super::edit::{ChangeOf, ExpectedOf};
use super::expand::Expansion;
use super::ids::{Id, Ids};
use super::queue::Queue;

/// The hook of one transaction, with what it is told.
pub(super) struct Announcer<'s> {
    hook: &'s dyn Hook,
    /// What the transaction itself is about.
    lines: Vec<u8>,
    /// What its transaction of packed-refs is about, once that is prepared.
    packed: Option<Vec<u8>>,
    /// What the loose part of an initial transaction is about.
    loose: Option<Vec<u8>>,
}

impl<'s> Announcer<'s> {
    /// Looks whether there is a hook.
    ///
    /// # Errors
    /// `Hook` when that cannot be found out.
    pub(super) fn new(hook: Option<&'s dyn Hook>, queue: &Queue) -> Result<Option<Self>> {
        Ok(hook::present(hook)?.map(|hook| {
            let mut lines = Vec::new();
            for edit in (0..queue.len()).filter(|&edit| !queue.is_log_only(edit)) {
                push_line(&mut lines, queue, queue.ids(), edit, queue.name(edit));
            }
            Announcer {
                hook,
                lines,
                packed: None,
                loose: None,
            }
        }))
    }

    /// Announces that locks will be taken.
    ///
    /// # Errors
    /// `Hook` when the hook refuses.
    pub(super) fn preparing(&self) -> Result<()> {
        let answer = hook::ask(self.hook, Step::Preparing, &self.lines);
        if answer.is_err() {
            self.aborted()?;
        }
        answer
    }

    /// Announces that only publishing is left.
    ///
    /// # Errors
    /// `Hook` when the hook refuses. The locks are to be given up before it is told so, by
    /// [`Announcer::aborted`].
    pub(super) fn prepared(&self) -> Result<()> {
        hook::ask(self.hook, Step::Prepared, &self.lines)
    }

    /// Takes down what the transaction has become now that `session` holds all locks, and announces
    /// the transaction of packed-refs that it brings.
    ///
    /// # Errors
    /// `Hook` when the hook refuses that.
    pub(super) fn expanded(
        &mut self,
        expansion: &Expansion<'_>,
        session: &mut dyn Session,
        initial: bool,
    ) -> Result<()> {
        self.lines.clear();
        for update in (0..expansion.updates.len()).filter(|&at| !expansion.updates[at].log_only) {
            push_update(&mut self.lines, expansion, update);
        }
        if initial {
            self.split_initial(expansion, session)
        } else {
            self.packed_prepared(expansion, session)
        }
    }

    /// Announces the transaction of packed-refs that the deletions come to.
    fn packed_prepared(
        &mut self,
        expansion: &Expansion<'_>,
        session: &mut dyn Session,
    ) -> Result<()> {
        let lines = packed_lines(expansion, usize::MAX);
        // Of a renaming nothing is told but what it comes to.
        if lines.is_empty() || expansion.queue.log_move.is_some() {
            return Ok(());
        }
        let names: Vec<RefName<'_>> = packed_deletions(expansion, usize::MAX).collect();
        match session.any_packed(&names)? {
            None => {}
            Some(false) => hook::tell(self.hook, Step::Aborted, &lines)?,
            Some(true) => {
                hook::ask_or_abort(self.hook, Step::Preparing, &lines)?;
                hook::ask_or_abort(self.hook, Step::Prepared, &lines)?;
                self.packed = Some(lines);
            }
        }
        Ok(())
    }

    /// Sorts out which lines of an initial transaction are about packed-refs and which about the
    /// loose refs beside it, in the format that has both.
    fn split_initial(
        &mut self,
        expansion: &Expansion<'_>,
        session: &mut dyn Session,
    ) -> Result<()> {
        if session.any_packed(&[])?.is_none() {
            return Ok(());
        }
        let (mut packed, mut loose) = (Vec::new(), Vec::new());
        for update in (0..expansion.updates.len()).filter(|&at| !expansion.updates[at].log_only) {
            let change = expansion.queue.change(expansion.edit(update));
            let is_symref = matches!(change, ChangeOf::Symbolic(_));
            let lines = if is_symref || is_root_ref(expansion.name(update).as_bytes()) {
                &mut loose
            } else {
                &mut packed
            };
            push_update(lines, expansion, update);
        }
        (self.packed, self.loose) = (Some(packed), Some(loose));
        Ok(())
    }

    /// Announces the steps of an initial transaction that come with publishing it.
    ///
    /// # Errors
    /// `Hook` when the hook refuses one.
    pub(super) fn publishing_initial(&self) -> Result<()> {
        for lines in [&self.packed, &self.loose].into_iter().flatten() {
            if !lines.is_empty() {
                hook::ask_or_abort(self.hook, Step::Preparing, lines)?;
                hook::ask_or_abort(self.hook, Step::Prepared, lines)?;
            }
        }
        Ok(())
    }

    /// Announces that the new values can be seen.
    ///
    /// # Errors
    /// `Hook` when the hook cannot be called.
    pub(super) fn committed(&self, initial: bool) -> Result<()> {
        if initial {
            // Nobody is told that a store was filled for the first time, except of what is loose.
            return match &self.loose {
                Some(lines) if !lines.is_empty() => hook::tell(self.hook, Step::Committed, lines),
                _ => Ok(()),
            };
        }
        if let Some(lines) = &self.packed {
            hook::tell(self.hook, Step::Committed, lines)?;
        }
        hook::tell(self.hook, Step::Committed, &self.lines)
    }

    /// Announces that nothing will change.
    ///
    /// # Errors
    /// `Hook` when the hook cannot be called.
    pub(super) fn aborted(&self) -> Result<()> {
        if let (Some(lines), None) = (&self.packed, &self.loose) {
            hook::tell(self.hook, Step::Aborted, lines)?;
        }
        hook::tell(self.hook, Step::Aborted, &self.lines)
    }

    /// Announces what an edit that was refused leaves of the transaction of packed-refs; of the
    /// transaction itself nothing is told.
    ///
    /// # Errors
    /// `Hook` when the hook cannot be called.
    pub(super) fn refused(
        &self,
        error: &Error,
        expansion: &Expansion<'_>,
        session: &mut dyn Session,
        all: bool,
    ) -> Result<()> {
        if session.any_packed(&[])?.is_none() || expansion.queue.log_move.is_some() {
            return Ok(());
        }
        // The edits before the refused one had been seen to.
        let before = match error.rejection() {
            Some(rejection) if !all => rejection.index,
            _ => usize::MAX,
        };
        let lines = packed_lines(expansion, before);
        if lines.is_empty() {
            return Ok(());
        }
        hook::tell(self.hook, Step::Aborted, &lines)
    }
}

/// Returns the names that are deleted from packed-refs too, of edits before `before`.
fn packed_deletions<'e>(
    expansion: &'e Expansion<'_>,
    before: usize,
) -> impl Iterator<Item = RefName<'e>> {
    let updates = 0..expansion.updates.len();
    let deleted = updates.filter(move |&at| {
        let update = &expansion.updates[at];
        !update.log_only
            && !update.rejected
            && at < before
            && expansion.queue.deletes(expansion.edit(at))
    });
    deleted.map(|at| expansion.name(at))
}

fn packed_lines(expansion: &Expansion<'_>, before: usize) -> Vec<u8> {
    let null = *expansion.ids.get(Id::NULL);
    let mut lines = Vec::new();
    for name in packed_deletions(expansion, before) {
        hook::push_line(&mut lines, null, null, name);
    }
    lines
}

/// Appends what the hook is told of one update.
fn push_update(lines: &mut Vec<u8>, expansion: &Expansion<'_>, update: usize) {
    let (edit, name) = (expansion.edit(update), expansion.name(update));
    push_line(lines, expansion.queue, &expansion.ids, edit, name);
}

/// Appends what the hook is told of one edit.
fn push_line(lines: &mut Vec<u8>, queue: &Queue, ids: &Ids, edit: usize, name: RefName<'_>) {
    match queue.expected(edit) {
        ExpectedOf::Any | ExpectedOf::Missing | ExpectedOf::Exists => {
            ids.get(Id::NULL).push_hex(lines)
        }
        ExpectedOf::Oid(id) => ids.get(id).push_hex(lines),
        ExpectedOf::Symbolic(target) => push_target(lines, target),
    }
    lines.push(b' ');
    match queue.change(edit) {
        ChangeOf::Update(id) => ids.get(id).push_hex(lines),
        ChangeOf::Symbolic(target) => push_target(lines, target),
        ChangeOf::Delete | ChangeOf::Verify | ChangeOf::Log(_) => ids.get(Id::NULL).push_hex(lines),
    }
    lines.push(b' ');
    lines.extend_from_slice(name.as_bytes());
    lines.push(b'\n');
}

fn push_target(lines: &mut Vec<u8>, target: RefName<'_>) {
    lines.extend_from_slice(b"ref:");
    lines.extend_from_slice(target.as_bytes());
}
