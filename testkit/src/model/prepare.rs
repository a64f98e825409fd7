//! The first half of a transaction: edits become steps, and the steps are checked.
//!
//! Git's order is kept, because it decides which of two conflicting edits is refused: what is
//! wrong with an edit alone, equal names, then step by step the expected values and the steps that
//! an edit brings with it, and last the names against the store and against each other.

use std::collections::{BTreeMap, BTreeSet};

use bstr::{BString, ByteSlice};

use super::edit::{Edit, OldSymref, Transaction, Verb};
use super::names::{conflict, is_pseudoref, is_safe, is_valid};
use super::{Model, Reason};
use crate::format::RefFormat;
use crate::objects::Objects;
use crate::state::Target;

/// The value a step gives its ref.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum New {
    Id(String),
    Target(BString),
    Nothing,
}

/// The value a step expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Old {
    Absent,
    Id(String),
    Target(BString),
}

/// What is done to one ref or one reflog.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// The edit it comes from.
    pub(super) edit: usize,
    pub(super) name: BString,
    /// Nothing for a step that only verifies.
    pub(super) new: Option<New>,
    pub(super) old: Option<Old>,
    pub(super) no_deref: bool,
    /// Only the reflog of this name is written.
    pub(super) log_only: bool,
    /// It is the entry in HEAD's reflog for an edit of HEAD's branch.
    pub(super) mirrors: bool,
    /// It comes from an edit of HEAD, which has its entry in HEAD's reflog already.
    pub(super) via_head: bool,
    /// The object that the name led to before.
    pub(super) found: Option<String>,
}

/// A transaction that has been checked.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    /// The steps that are wrong, with the reason; the first reason counts.
    pub(super) refused: BTreeMap<usize, Reason>,
    /// The edits that did not even become steps.
    pub(super) refused_edits: BTreeMap<usize, Reason>,
    /// The names of the edits that are still in, and what symrefs among them led to. (Git does not
    /// look at the latter when it looks for conflicts: [`Mistake::ConflictInBatch`].)
    ///
    /// [`Mistake::ConflictInBatch`]: super::Mistake::ConflictInBatch
    names: BTreeSet<BString>,
    /// These and what symrefs among them led to.
    reached: BTreeSet<BString>,
    /// Two edits lead to the same ref or to the reflog of HEAD.
    pub(super) reached_twice: bool,
    /// What ends a batch too.
    pub(super) fatal: Vec<Reason>,
}

impl Model {
    /// Checks a transaction against the store without changing anything.
    pub(super) fn prepare(&self, transaction: &Transaction) -> Plan {
        let mut plan = Plan::default();
        for (index, edit) in transaction.edits.iter().enumerate() {
            match self.check_alone(edit) {
                None => plan.steps.push(step(index, edit, &self.zero())),
                Some(Reason::BadName) => plan.fatal.push(Reason::BadName),
                Some(reason) => {
                    plan.refused_edits.insert(index, reason);
                }
            }
        }
        plan.names = plan.steps.iter().map(|step| step.name.clone()).collect();
        if plan.names.len() < plan.steps.len() {
            plan.fatal.push(Reason::Duplicate);
            return plan;
        }
        plan.reached = plan.names.clone();
        let mut next = 0;
        while next < plan.steps.len() {
            match self.expand_and_check(&mut plan, next) {
                Ok(()) => (),
                Err(Reason::Unresolvable) => plan.fatal.push(Reason::Unresolvable),
                Err(reason) => plan.refuse(next, reason),
            }
            next += 1;
        }
        self.check_names(&mut plan);
        plan
    }

    pub(super) fn zero(&self) -> String {
        self.rules.format.zero()
    }

    /// Finds what is wrong with an edit whatever the store holds.
    fn check_alone(&self, edit: &Edit) -> Option<Reason> {
        let zero = self.zero();
        let new = match &edit.verb {
            Verb::Update { new, .. } | Verb::Create { new } if *new != zero => Some(new),
            _ => None,
        };
        let good = if new.is_some() {
            is_valid(&edit.name)
        } else {
            is_safe(&edit.name)
        };
        if is_pseudoref(&edit.name) || !good {
            return Some(Reason::BadName);
        }
        let objects = Objects::standard(self.rules.format.objects);
        let needs_commit = edit.name == "HEAD" || edit.name.starts_with(b"refs/heads/");
        let wrong = new.is_some_and(|id| {
            *id == objects.missing || (needs_commit && !objects.commits.contains(id))
        });
        wrong.then_some(Reason::InvalidNewValue)
    }

    /// Adds the steps that step `at` brings with it, and checks what it expects.
    fn expand_and_check(&self, plan: &mut Plan, at: usize) -> Result<(), Reason> {
        let step = plan.steps[at].clone();
        if !step.log_only && !step.via_head && self.head_target() == Some(step.name.as_bstr()) {
            if plan.reached.contains("HEAD".as_bytes()) {
                plan.reached_twice = true;
                return Err(Reason::NameConflict);
            }
            let head = Step {
                name: "HEAD".into(),
                old: None,
                ..step.clone()
            };
            let head = Step {
                log_only: true,
                no_deref: true,
                mirrors: true,
                ..head
            };
            plan.steps.push(head);
        }
        let found = self.resolve(step.name.as_bstr()).map(str::to_owned);
        // Reflogs have the right old value, however long the way there.
        plan.steps[at].found = self.follow_all(step.name.as_bstr()).map(str::to_owned);
        if step.log_only {
            return Ok(());
        }
        let current = self.state.refs.get(step.name.as_bstr());
        if let (Some(Target::Symbolic(target)), false) = (current, step.no_deref) {
            // A stack compares each symref on the way, files only the ref at its end. Either way
            // the expectation fails, since at the end there is no symref.
            let stack = self.rules.format.refs == RefFormat::Reftable;
            if stack && matches!(&step.old, Some(Old::Target(old)) if old != target) {
                return Err(Reason::IncorrectOldValue);
            }
            plan.steps[at].log_only = true;
            if !plan.reached.insert(target.clone()) {
                plan.reached_twice = true;
                return Err(Reason::NameConflict);
            }
            plan.names.insert(target.clone());
            let via_head = step.via_head || step.name == "HEAD";
            plan.steps.push(Step {
                name: target.clone(),
                via_head,
                ..step
            });
            return Ok(());
        }
        if step.old.is_some() {
            self.follow(step.name.as_bstr())?;
        }
        check_old(step.old.as_ref(), current, found.as_deref())
    }

    /// Checks the names that are new to the store against it and against each other.
    fn check_names(&self, plan: &mut Plan) {
        let is_new =
            |step: &Step| !step.log_only && !self.state.refs.contains_key(step.name.as_bstr());
        for at in 0..plan.steps.len() {
            let step = &plan.steps[at];
            if plan.refused.contains_key(&at) || !is_new(step) {
                continue;
            }
            let exists = self
                .state
                .refs
                .keys()
                .any(|name| conflict(name, &step.name));
            // The other one is refused only if it sees this one among the names.
            let seen = plan.names.contains(step.name.as_bstr());
            let together = plan
                .names
                .iter()
                .any(|name| conflict(name, &step.name) && !(seen && self.yields(name, &step.name)));
            if exists || together {
                plan.refuse(at, Reason::NameConflict);
            }
        }
    }

    /// Tells whether of two new names that conflict it is not this one that is refused.
    ///
    /// In a stack the first to be checked is. Files cannot lock a name while its folder holds
    /// the lock of another, so there it is always the shorter name.
    fn yields(&self, other: &BString, this: &BString) -> bool {
        let stored = self.state.refs.contains_key(other.as_bstr());
        let files = self.rules.format.refs == RefFormat::Files;
        files && !stored && other.len() < this.len()
    }
}

impl Plan {
    /// Tells whether any step of an edit is wrong.
    pub(super) fn rejects(&self, edit: usize) -> bool {
        self.refused.keys().any(|at| self.steps[*at].edit == edit)
    }

    fn refuse(&mut self, at: usize, reason: Reason) {
        let name = self.steps[at].name.as_bstr();
        self.names.remove(name);
        self.reached.remove(name);
        self.refused.insert(at, reason);
    }
}

fn check_old(
    expected: Option<&Old>,
    current: Option<&Target>,
    found: Option<&str>,
) -> Result<(), Reason> {
    match (expected, current) {
        (None, _) | (Some(Old::Absent), None) => Ok(()),
        (Some(Old::Absent), Some(_)) => Err(Reason::CreateExists),
        (Some(_), None) => Err(Reason::NonexistentRef),
        (Some(Old::Target(_)), Some(Target::Direct(_))) => Err(Reason::ExpectedSymref),
        (Some(Old::Target(old)), Some(Target::Symbolic(target))) if old == target => Ok(()),
        (Some(Old::Id(_)), Some(_)) if found.is_none() => Err(Reason::NonexistentRef),
        (Some(Old::Id(old)), Some(_)) if Some(old.as_str()) == found => Ok(()),
        (Some(_), Some(_)) => Err(Reason::IncorrectOldValue),
    }
}

/// Makes the step that an edit names itself.
fn step(edit_index: usize, edit: &Edit, zero: &str) -> Step {
    let id = |old: &String| {
        if old == zero {
            Old::Absent
        } else {
            Old::Id(old.clone())
        }
    };
    let new_id = |new: &String| {
        if new == zero {
            New::Nothing
        } else {
            New::Id(new.clone())
        }
    };
    let target = |old: &Option<BString>| old.clone().map(Old::Target);
    let (new, old) = match &edit.verb {
        Verb::Update { new, old } => (Some(new_id(new)), old.as_ref().map(id)),
        Verb::Create { new } => (Some(new_id(new)), Some(Old::Absent)),
        Verb::Delete { old } => (Some(New::Nothing), old.as_ref().map(id)),
        Verb::Verify { old } => (None, Some(old.as_ref().map_or(Old::Absent, id))),
        Verb::SymrefUpdate { target, old } => {
            let old = old.as_ref().map(|old| match old {
                OldSymref::Target(target) => Old::Target(target.clone()),
                OldSymref::Id(old) => id(old),
            });
            (Some(New::Target(target.clone())), old)
        }
        Verb::SymrefCreate { target } => (Some(New::Target(target.clone())), Some(Old::Absent)),
        Verb::SymrefDelete { old } => (Some(New::Nothing), target(old)),
        Verb::SymrefVerify { old } => (None, Some(target(old).unwrap_or(Old::Absent))),
    };
    Step {
        edit: edit_index,
        name: edit.name.clone(),
        new,
        old,
        no_deref: edit.no_deref,
        log_only: false,
        mirrors: false,
        via_head: false,
        found: None,
    }
}
