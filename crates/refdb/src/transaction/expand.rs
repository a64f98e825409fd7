//! Expansion: from edits to updates, each with its lock and the value found under it.
//!
//! An edit of a symref becomes an update of the ref that it points to, and an entry for the
//! symref's own reflog; an update of the branch that `HEAD` points to brings an entry for `HEAD`'s
//! reflog. What is found here is also checked here against what the edit expects.

use std::borrow::Cow;
use std::collections::HashMap;

use refdb_names::name::{FormatOptions, is_well_formed};
use refdb_names::{RefName, RefNameBuf, Target, internals::owned_from_disk};

use crate::backend::{Quirks, Refusal, Session};
use crate::error::{Error, ErrorKind, Message, Reason, Rejection, Result};
use crate::layout::TARGET_OF_TABLES;
use crate::options::LogRefs;

use super::aliases;
use super::edit::ExpectedOf;
use super::ids::{Id, Ids};
use super::locks::Ahead;
use super::queue::{Order, Queue};

/// All updates that the edits come to. The first ones are the edits themselves.
pub(super) struct Expansion<'q> {
    pub(super) queue: &'q Queue,
    pub(super) ids: Ids,
    /// The positions of the edits in the order of their names.
    pub(super) order: &'q [usize],
    /// Whether no two edits are of one name.
    pub(super) distinct: bool,
    pub(super) batch: bool,
    pub(super) quirks: Quirks,
    /// Whether a reflog may be made, by default or because an edit asks for it.
    pub(super) creates_logs: bool,
    pub(super) updates: Vec<Update>,
    /// Where the updates behind the edits come from.
    pub(super) derived: Vec<Derived>,
    /// The first derived update of each name.
    pub(super) derived_first: HashMap<RefNameBuf, usize>,
    /// Targets of symrefs that were found.
    pub(super) targets: Vec<RefNameBuf>,
    /// Names that edits led to before all locks were given back, sorted; none is that of an edit. They
    /// are locked with the edits.
    pub(super) ahead: Vec<Ahead>,
    /// Names that could not be locked.
    pub(super) refused: HashMap<usize, Refusal>,
    /// Positions of derived updates that change values, by name.
    derived_values: HashMap<RefNameBuf, usize>,
    pub(super) rejections: Vec<Rejection>,
}

/// One update.
#[derive(Clone, Copy, Debug)]
pub(super) struct Update {
    /// Whether only an entry is added to the reflog.
    pub(super) log_only: bool,
    /// Whether this is an entry for the reflog of `HEAD`, which points to the ref of the parent.
    pub(super) mirrors: bool,
    /// Whether `HEAD` was the symref that led here.
    via_head: bool,
    /// Whether the ref itself is changed even if it is a symref.
    pub(super) no_deref: bool,
    pub(super) rejected: bool,
    pub(super) current: Current,
    /// Whether no name of an existing ref begins with this one.
    pub(super) alone: bool,
    /// The value before, as the reflog records it: of the ref at the end of all symrefs.
    pub(super) old: Id,
}

/// Where an update comes from that is not an edit itself.
pub(super) struct Derived {
    edit: usize,
    /// The update whose symref led here.
    parent: usize,
    name: RefNameBuf,
}

/// What was found under the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Current {
    Missing,
    Direct(Id),
    /// A symref to the target of that position.
    Symbolic(u32),
}

impl Update {
    /// Returns the update that an edit is to begin with.
    fn of(queue: &Queue, edit: usize) -> Update {
        let log_only = queue.is_log_only(edit);
        Update {
            log_only,
            mirrors: false,
            via_head: false,
            no_deref: log_only || !queue.flags(edit).deref(),
            rejected: false,
            current: Current::Missing,
            alone: false,
            old: Id::NULL,
        }
    }
}

impl<'q> Expansion<'q> {
    pub(super) fn new(
        queue: &'q Queue,
        ids: Ids,
        order: &'q Order,
        batch: bool,
        quirks: Quirks,
        log_refs: LogRefs,
    ) -> Self {
        let updates = (0..queue.len()).map(|edit| Update::of(queue, edit));
        Expansion {
            queue,
            ids,
            order: &order.edits,
            distinct: order.distinct,
            batch,
            quirks,
            creates_logs: log_refs != LogRefs::None || queue.creates_logs(),
            updates: updates.collect(),
            derived: Vec::new(),
            derived_first: HashMap::new(),
            targets: Vec::new(),
            ahead: Vec::new(),
            refused: HashMap::new(),
            derived_values: HashMap::new(),
            rejections: Vec::new(),
        }
    }

    /// Returns the name of an update.
    pub(super) fn name(&self, update: usize) -> RefName<'_> {
        name_of(self.queue, &self.derived, update)
    }

    /// Returns what is known of an update that is not an edit itself.
    fn derived(&self, update: usize) -> Option<&Derived> {
        self.derived.get(update.checked_sub(self.queue.len())?)
    }

    /// Returns the edit that an update comes from.
    pub(super) fn edit(&self, update: usize) -> usize {
        self.derived(update).map_or(update, |derived| derived.edit)
    }

    /// Returns the update whose symref led to an update, if there is one.
    pub(super) fn parent(&self, update: usize) -> Option<usize> {
        self.derived(update).map(|derived| derived.parent)
    }

    /// Returns what the edit behind an update expects.
    pub(super) fn expected(&self, update: usize) -> ExpectedOf<Id, RefName<'q>> {
        self.queue.expected(self.edit(update))
    }

    /// Returns whether there is no ref of the name of one of the updates.
    pub(super) fn misses_any(&self) -> bool {
        let mut currents = self.updates.iter().map(|update| update.current);
        currents.any(|current| current == Current::Missing)
    }

    /// Returns whether the ref `name` is given a value, or verified, by an update that stands.
    pub(super) fn has_value_for(&self, name: &[u8]) -> bool {
        self.value_update(name)
            .is_some_and(|update| !self.updates[update].rejected)
    }

    /// Returns whether the ref `name` goes because it is renamed: the new one may have a name above or
    /// below it.
    pub(super) fn gives_way(&self, name: &[u8]) -> bool {
        let log_move = self.queue.log_move.as_deref();
        log_move.is_some_and(|it| !it.copies && it.from.as_bytes() == name)
    }

    /// Returns the update that gives `name` a value, or verifies it.
    pub(super) fn value_update(&self, name: &[u8]) -> Option<usize> {
        if let Some(&update) = self.derived_values.get(name) {
            return Some(update);
        }
        let mut same = self
            .edits_from(name)
            .take_while(|&edit| self.name(edit).as_bytes() == name);
        same.find(|&edit| !self.queue.is_log_only(edit))
    }

    /// Returns the edits from the first one on whose name is not less than `name`, by name.
    pub(super) fn edits_from(&self, name: &[u8]) -> impl Iterator<Item = usize> {
        let start = self
            .order
            .partition_point(|&edit| self.name(edit).as_bytes() < name);
        self.order[start..].iter().copied()
    }

    /// Returns the updates in the order of their names.
    pub(super) fn by_name(&self) -> impl Iterator<Item = usize> {
        let mut derived: Vec<usize> = (self.queue.len()..self.updates.len()).collect();
        super::sort::sort_few(&mut derived, &|update| self.name(update));
        let mut derived = derived.into_iter().peekable();
        let mut edits = self.order.iter().copied().peekable();
        std::iter::from_fn(move || {
            // Most transactions bring nothing but edits.
            let Some(&next) = derived.peek() else {
                return edits.next();
            };
            let is_next = |&edit: &usize| self.name(edit) <= self.name(next);
            edits.next_if(is_next).or_else(|| derived.next())
        })
    }

    /// Refuses an update and with it the whole edit that it comes from.
    ///
    /// # Errors
    /// The rejection itself, unless this is a batch and the reason a particular one.
    pub(super) fn reject(
        &mut self,
        update: usize,
        reason: Reason,
        message: impl Into<Message>,
    ) -> Result<()> {
        let edit = self.edit(update);
        let rejection = Rejection {
            index: edit,
            name: self.name(update).to_owned(),
            reason,
            message: message.into(),
        };
        if !self.batch || reason == Reason::Generic {
            return Err(Error::rejected(rejection));
        }
        self.rejections.push(rejection);
        self.updates[edit].rejected = true;
        for derived in self.queue.len()..self.updates.len() {
            if self.edit(derived) == edit {
                self.updates[derived].rejected = true;
            }
        }
        Ok(())
    }

    /// Refuses with Git's usual beginning, which names the ref as the caller gave it.
    pub(super) fn refuse_lock(
        &mut self,
        update: usize,
        reason: Reason,
        message: impl Into<Message>,
    ) -> Result<()> {
        let given = self.queue.name(self.edit(update));
        let message = message.into();
        let message = message.after(format_args!("cannot lock ref '{given}': "));
        self.reject(update, reason, message)
    }

    /// Locks, expands and checks.
    ///
    /// New names come up round by round, and locks have one order: where one of a later round would
    /// have to be waited for that comes before one that is held, all are given back, and all names that
    /// are known by then are locked at once. So nobody waits for a lock that another process can only
    /// give back when it gets one that is held here.
    pub(super) fn run(&mut self, session: &mut dyn Session) -> Result<()> {
        while !self.lock_and_check(session)? {
            session.begin_again();
            self.begin_again();
        }
        self.release_unused(session);
        aliases::check(self, session)?;
        // What HEAD points to may be a symref, whose value is known only now.
        for update in self.queue.len()..self.updates.len() {
            if self.updates[update].mirrors
                && let Some(branch) = self.parent(update)
            {
                self.updates[update].old = self.updates[branch].old;
            }
        }
        Ok(())
    }

    /// Forgets what was found under locks that were given back, except for the names.
    fn begin_again(&mut self) {
        let mut names: Vec<RefNameBuf> = Vec::new();
        names.extend(self.ahead.drain(..).map(|ahead| ahead.name));
        names.extend(self.derived.drain(..).map(|derived| derived.name));
        names.sort();
        names.dedup();
        names.retain(|name| !self.is_edited(name.as_bytes()));
        let ahead = names.into_iter().map(|name| Ahead { name, found: None });
        self.ahead = ahead.collect();
        let edits = 0..self.queue.len();
        self.updates.clear();
        self.updates
            .extend(edits.map(|edit| Update::of(self.queue, edit)));
        self.derived_first.clear();
        self.derived_values.clear();
        self.targets.clear();
        self.refused.clear();
        self.rejections.clear();
    }

    /// Returns whether there is an edit of that name.
    fn is_edited(&self, name: &[u8]) -> bool {
        let first = self.edits_from(name).next();
        first.is_some_and(|edit| self.name(edit).as_bytes() == name)
    }

    /// Locks, expands and checks, round by round, until no new name comes up; returns whether it came
    /// to an end, and not to a lock that has to be taken before those that are held.
    fn lock_and_check(&mut self, session: &mut dyn Session) -> Result<bool> {
        let mut head_target = None;
        let mut done = 0;
        let mut by_name = Cow::Borrowed(self.order);
        while done < self.updates.len() {
            let round_end = self.updates.len();
            if !self.lock_round(session, by_name, done)? {
                return Ok(false);
            }
            if done == 0 {
                // Read only now: where one lock covers the whole store, it covers HEAD as well.
                head_target = self.head_target(session)?;
            }
            for update in done..round_end {
                if !self.updates[update].rejected {
                    self.process(session, update, head_target.as_ref())?;
                }
            }
            done = round_end;
            let mut next: Vec<usize> = (done..self.updates.len()).collect();
            super::sort::sort_few(&mut next, &|update| self.name(update));
            by_name = Cow::Owned(next);
        }
        Ok(true)
    }

    /// Returns the ref that `HEAD` points to, if that makes a difference: where it is updated itself,
    /// or has a reflog or may get one.
    fn head_target(&self, session: &mut dyn Session) -> Result<Option<RefNameBuf>> {
        let name = RefName::HEAD;
        if !self.creates_logs && !self.has_value_for(b"HEAD") && !session.may_have_log(name)? {
            return Ok(None);
        }
        let head = match session.read(name) {
            // A broken HEAD points nowhere, and must not be in the way of its own repair.
            Err(error) if error.kind() == ErrorKind::BrokenRef => None,
            head => head?,
        };
        Ok(head.and_then(|head| match head.target {
            Target::Symbolic(target) => Some(target),
            Target::Direct(_) => None,
        }))
    }

    /// Expands and checks one update.
    fn process(
        &mut self,
        session: &mut dyn Session,
        update: usize,
        head_target: Option<&RefNameBuf>,
    ) -> Result<()> {
        if head_target.is_some_and(|target| target.as_name() == self.name(update))
            && !self.mirror_in_head(update)?
        {
            return Ok(());
        }
        if let Some(refusal) = self.refused.get(&update).cloned() {
            return self.refuse_for_lock(update, &refusal);
        }
        let Update {
            current, no_deref, ..
        } = self.updates[update];
        match current {
            Current::Symbolic(at) => {
                let target = self.targets[at as usize].clone();
                if no_deref {
                    self.check_symref(session, update, &target)
                } else {
                    self.split(update, target)
                }
            }
            Current::Direct(id) => self.check_value(update, Some(id)),
            Current::Missing => self.check_value(update, None),
        }
    }

    /// Adds an update for the reflog of `HEAD`, which points to the ref of `update`. Returns
    /// whether the update still stands.
    fn mirror_in_head(&mut self, update: usize) -> Result<bool> {
        let Update {
            log_only, via_head, ..
        } = self.updates[update];
        if log_only || via_head || self.queue.flags(self.edit(update)).skip_log() {
            return Ok(true);
        }
        if self.has_value_for(b"HEAD") {
            let name = self.name(update);
            let message = format!(
                "multiple updates for 'HEAD' (including one via its referent '{name}') are not \
                 allowed"
            );
            self.reject(update, Reason::NameConflict, message)?;
            return Ok(false);
        }
        self.derive(update, owned_from_disk(b"HEAD"), true);
        Ok(true)
    }

    /// Moves an update of a symref to the ref that it points to; the symref's reflog gets an entry.
    fn split(&mut self, update: usize, target: RefNameBuf) -> Result<()> {
        // Git writes what such a name leads to as a path, be it out of the repository.
        if !is_well_formed(target.as_bytes(), FormatOptions::ONE_LEVEL) {
            let name = self.name(update);
            if self.quirks.names_are_paths && target.as_bytes() == TARGET_OF_TABLES {
                return Err(Error::moved(name));
            }
            return self.refuse_leading_nowhere(update, target);
        }
        // An expected target cannot be met behind a symref: what is compared in the end is no
        // symref. In `reftable` Git notices already on the way, which gives another reason.
        if self.quirks.compares_on_the_way
            && let ExpectedOf::Symbolic(expected) = self.expected(update)
            && expected != target.as_name()
        {
            return self.refuse_target(update, &target, expected);
        }
        if self.has_value_for(target.as_bytes()) {
            let name = self.name(update);
            let message = format!(
                "multiple updates for '{target}' (including one via symref '{name}') are not \
                 allowed"
            );
            return self.reject(update, Reason::NameConflict, message);
        }
        let via_head = self.updates[update].via_head || self.name(update).is_head();
        let derived = self.derive(update, target, false);
        self.updates[derived].via_head = via_head;
        self.updates[update].log_only = true;
        self.updates[update].no_deref = true;
        Ok(())
    }

    /// Adds an update that follows from `origin`.
    pub(super) fn derive(&mut self, origin: usize, name: RefNameBuf, log_only: bool) -> usize {
        let index = self.updates.len();
        if !log_only {
            self.derived_values.insert(name.clone(), index);
        }
        self.derived_first.entry(name.clone()).or_insert(index);
        self.derived.push(Derived {
            edit: self.edit(origin),
            parent: origin,
            name,
        });
        self.updates.push(Update {
            log_only,
            mirrors: log_only,
            via_head: false,
            no_deref: log_only,
            rejected: false,
            current: Current::Missing,
            alone: false,
            old: Id::NULL,
        });
        index
    }
}

/// Returns the name of an update, where the rest of the expansion is borrowed otherwise.
pub(super) fn name_of<'n>(queue: &'n Queue, derived: &'n [Derived], update: usize) -> RefName<'n> {
    match update.checked_sub(queue.len()) {
        None => queue.name(update),
        Some(at) => derived[at].name.as_name(),
    }
}
