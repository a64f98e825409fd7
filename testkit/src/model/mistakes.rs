//! What Git is known to do wrong, or in an order of its own, foretold for a transaction.

use std::collections::BTreeSet;

use bstr::{BString, ByteSlice};

use super::edit::Transaction;
use super::names::conflict;
use super::prepare::{New, Old, Step};
use super::{Model, Reason};
use crate::format::RefFormat;
use crate::state::Target;

/// A mistake of Git that the model does not make.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mistake {
    /// A batch rejects an edit, and yet this reflog, of HEAD or of a symref on the way, may get an
    /// entry for it.
    LogOfRejected(BString),
    /// In the `files` format an edit that only verifies a symref, or the branch that HEAD names,
    /// may add an entry to this reflog, of the symref or of HEAD, as if it had been deleted.
    LogOfVerified(BString),
    /// In the `reftable` format a symref is deleted, and this reflog, its own, is left with an entry
    /// for it.
    LogOfDeletedSymref(BString),
    /// In the `reftable` format the way from this ref, HEAD or a symref, is too long for Git, which then
    /// takes its old value for nothing: its reflog may have a wrong one, or no entry.
    LogOfLongWay(BString),
    /// A value is expected of a symref from which the way is too long, or one step shorter: Git and refdb
    /// begin to count at the symref or behind it.
    LongWay,
    /// In the `files` format HEAD names a symref, that symref itself is changed, and the entry in
    /// the reflog of HEAD may have a wrong old value.
    OldValueInLogOfHead,
    /// Two edits reach the same ref, through symrefs or because HEAD names it. Git refuses one of
    /// them for one of several reasons, and in the `files` format may end a whole batch.
    ReachedTwice,
    /// In the `reftable` format a batch rejects a symref for its target and yet goes on to the ref
    /// it leads to, which may be rejected as well.
    FollowedThoughRejected,
    /// Two names of a batch conflict. After other rejections Git may refuse another one than it
    /// would else, or none; in the `files` format it may stop with a part of the batch done.
    ConflictInBatch,
    /// In the `reftable` format two names of a transaction conflict, and one of its edits leads to a
    /// further name. Git looks for names in a list that is no longer sorted then, and may make both.
    ConflictUnseen,
}

impl Mistake {
    /// Tells whether Git may even come to another verdict than the model.
    pub fn is_about_verdict(&self) -> bool {
        matches!(
            self,
            Mistake::ReachedTwice
                | Mistake::LongWay
                | Mistake::FollowedThoughRejected
                | Mistake::ConflictInBatch
                | Mistake::ConflictUnseen
        )
    }
}

impl Model {
    /// Tells what Git may do wrong with a transaction.
    pub fn mistakes(&self, transaction: &Transaction) -> Vec<Mistake> {
        let plan = self.prepare(transaction);
        let files = self.rules.format.refs == RefFormat::Files;
        let mut mistakes = Vec::new();
        for step in &plan.steps {
            let name = step.name.clone();
            let current = self.state.refs.get(name.as_bstr());
            let deletes = !step.log_only && step.new == Some(New::Nothing);
            let is_long = self.follow(name.as_bstr()).is_err();
            if is_long && step.old.is_some() {
                mistakes.push(Mistake::LongWay);
            }
            if is_long && !files && step.log_only {
                mistakes.push(Mistake::LogOfLongWay(name.clone()));
            }
            if step.log_only && plan.rejects(step.edit) {
                mistakes.push(Mistake::LogOfRejected(name));
            } else if files && step.log_only && step.new.is_none() {
                mistakes.push(Mistake::LogOfVerified(name));
            } else if !files && deletes && matches!(current, Some(Target::Symbolic(_))) {
                mistakes.push(Mistake::LogOfDeletedSymref(name));
            }
        }
        let head = self.head_target();
        let branch = head.and_then(|name| self.state.refs.get(name));
        let mirrored = plan.steps.iter().any(|step| step.mirrors);
        if files && mirrored && matches!(branch, Some(Target::Symbolic(_))) {
            mistakes.push(Mistake::OldValueInLogOfHead);
        }
        let at_head = |s: &&Step| s.name == "HEAD" || Some(s.name.as_bstr()) == head;
        let at_head: BTreeSet<usize> = plan.steps.iter().filter(at_head).map(|s| s.edit).collect();
        if plan.reached_twice || at_head.len() > 1 {
            mistakes.push(Mistake::ReachedTwice);
        }
        let followed = plan.refused.iter().any(|(at, reason)| {
            let step = &plan.steps[*at];
            *reason == Reason::IncorrectOldValue
                && !step.no_deref
                && matches!(step.old, Some(Old::Target(_)))
        });
        if !files && transaction.batch && followed {
            mistakes.push(Mistake::FollowedThoughRejected);
        }
        let names: Vec<_> = plan.steps.iter().map(|step| step.name.as_bstr()).collect();
        let conflicts = |one| names.iter().any(|other| conflict(one, other));
        if names.iter().any(|one| conflicts(one)) {
            let leads_further = plan.steps.len() > transaction.edits.len();
            if transaction.batch {
                mistakes.push(Mistake::ConflictInBatch);
            } else if !files && leads_further {
                mistakes.push(Mistake::ConflictUnseen);
            }
        }
        mistakes
    }
}
