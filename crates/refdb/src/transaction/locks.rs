//! Taking the locks of an expansion, and what to say where one is refused.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use refdb_names::{RefName, RefNameBuf, Target};

use crate::backend::{Locked, Refusal, Session};
use crate::error::{Message, Reason, Result};

use super::edit::ExpectedOf;
use super::expand::{Current, Expansion, Update, name_of};
use super::ids::Ids;
use super::names;
use super::sort::sort_few;

/// A name that is locked before it is known whether an edit leads to it.
pub(super) struct Ahead {
    pub(super) name: RefNameBuf,
    /// What was found, unless locking did not come to it.
    pub(super) found: Option<Locked>,
}

impl Expansion<'_> {
    /// Locks the names of the updates in `by_name`, each name once, and records what was found. Returns
    /// `false` where all locks are to be given back first.
    pub(super) fn lock_round(
        &mut self,
        session: &mut dyn Session,
        mut by_name: Cow<'_, [usize]>,
        start: usize,
    ) -> Result<bool> {
        if start == 0 && !self.ahead.is_empty() {
            let updates = self.updates.len();
            let by_name = by_name.to_mut();
            by_name.extend(updates..updates + self.ahead.len());
            sort_few(by_name, &|wish| self.wish(wish));
        }
        if start == 0 && self.distinct {
            return self.lock_fresh(session, by_name);
        }
        let mut fresh: Vec<usize> = Vec::with_capacity(by_name.len());
        let mut twins: Vec<(usize, usize)> = Vec::new();
        for &wish in by_name.iter() {
            let name = self.wish(wish);
            let neighbour = fresh
                .last()
                .copied()
                .filter(|&last| self.wish(last) == name);
            match neighbour.or_else(|| self.locked_as(name.as_bytes(), start)) {
                Some(twin) => twins.push((wish, twin)),
                None if start > 0 && self.is_locked_ahead(wish) => {}
                None => fresh.push(wish),
            }
        }
        let is_locked = self.lock_fresh(session, Cow::Owned(fresh))?;
        for (update, twin) in twins {
            self.updates[update].current = self.updates[twin].current;
            if let Some(refusal) = self.refused.get(&twin).cloned() {
                self.refused.insert(update, refusal);
            }
        }
        Ok(is_locked)
    }

    /// Returns the name of an update, or of what is locked ahead: that has the numbers behind the
    /// updates of the first round.
    fn wish(&self, wish: usize) -> RefName<'_> {
        match wish.checked_sub(self.updates.len()) {
            None => self.name(wish),
            Some(at) => self.ahead[at].name.as_name(),
        }
    }

    /// Records what was found if the name of an update was locked ahead; returns whether it was.
    fn is_locked_ahead(&mut self, update: usize) -> bool {
        let name = name_of(self.queue, &self.derived, update);
        let at = self
            .ahead
            .binary_search_by(|it| it.name.as_name().cmp(&name));
        let Some(found) = at.ok().and_then(|at| self.ahead[at].found.clone()) else {
            return false;
        };
        let Expansion {
            ids,
            updates,
            targets,
            refused,
            ..
        } = self;
        record(updates, ids, targets, refused, update, found);
        true
    }

    /// Locks the names of updates that have no lock yet, and what is locked ahead. After a refusal only
    /// what is checked before the refused one is of interest, unless this is a batch: the first update
    /// that is wrong is the one that is told. Returns `false` where all locks are to be given back first.
    fn lock_fresh(
        &mut self,
        session: &mut dyn Session,
        mut fresh: Cow<'_, [usize]>,
    ) -> Result<bool> {
        while !fresh.is_empty() {
            let Expansion {
                queue,
                derived,
                ids,
                updates,
                ahead,
                targets,
                refused,
                ..
            } = self;
            let count = updates.len();
            let name = |&wish: &usize| match wish.checked_sub(count) {
                None => name_of(queue, derived, wish),
                Some(at) => ahead[at].name.as_name(),
            };
            let names: Vec<RefName<'_>> = fresh.iter().map(name).collect();
            let mut answered = vec![false; names.len()];
            let mut left = names.len();
            let mut is_behind = false;
            let mut found_ahead = Vec::new();
            session.lock(&names, !self.batch, &mut |at, answer| {
                let wish = fresh[at];
                answered[at] = true;
                left = left.saturating_sub(1);
                match answer {
                    Locked::Behind => is_behind = true,
                    found if wish < count => record(updates, ids, targets, refused, wish, found),
                    found => found_ahead.push((wish - count, found)),
                }
            })?;
            if is_behind {
                return Ok(false);
            }
            for (at, found) in found_ahead {
                self.ahead[at].found = Some(found);
            }
            if left == 0 {
                break;
            }
            let first = self.refused.keys().min().copied();
            let is_of_interest = |wish| first.is_none_or(|first| wish < first);
            let mut answered = answered.into_iter();
            let is_left = |wish: &usize| !answered.next().unwrap_or(true) && is_of_interest(*wish);
            fresh.to_mut().retain(is_left);
        }
        Ok(true)
    }

    /// Releases the locks of names that no edit leads to any more.
    pub(super) fn release_unused(&self, session: &mut dyn Session) {
        if self.ahead.is_empty() {
            return;
        }
        let names = self.ahead.iter().map(|ahead| ahead.name.as_bytes());
        let unused: HashSet<&[u8]> = names
            .filter(|name| !self.derived_first.contains_key(*name))
            .collect();
        session.release(&unused);
    }

    /// Returns the update of an earlier round that locked `name`.
    fn locked_as(&self, name: &[u8], start: usize) -> Option<usize> {
        if start == 0 {
            return None;
        }
        let first = self.edits_from(name).next();
        let edit = first.filter(|&edit| self.name(edit).as_bytes() == name);
        edit.or_else(|| {
            self.derived_first
                .get(name)
                .copied()
                .filter(|&first| first < start)
        })
    }

    /// Releases the locks of names that only refused edits asked for.
    pub(super) fn release_refused(&self, session: &mut dyn Session) {
        if self.rejections.is_empty() {
            return;
        }
        let names = |rejected: bool| {
            let updates = self.updates.iter().enumerate();
            let chosen = updates.filter(move |(_, update)| update.rejected == rejected);
            chosen.map(|(at, _)| self.name(at).as_bytes())
        };
        let standing: HashSet<&[u8]> = names(false).collect();
        session.release(
            &names(true)
                .filter(|name| !standing.contains(name))
                .collect(),
        );
    }

    /// Refuses an update whose ref could not be locked.
    pub(super) fn refuse_for_lock(&mut self, update: usize, refusal: &Refusal) -> Result<()> {
        let may_be_missing = matches!(self.expected(update), ExpectedOf::Any | ExpectedOf::Missing);
        if !may_be_missing && refusal.reason == Reason::NameConflict {
            // Another ref, or a folder, is where this one should be: above all, this one is missing.
            return self.refuse_missing(update);
        }
        let shortest = match refusal.reason {
            Reason::NameConflict => names::shortest_conflict(self, update, refusal.message.name()),
            _ => None,
        };
        let message = shortest.map_or_else(|| refusal.message.clone(), Message::from);
        self.refuse_lock(update, refusal.reason, message)
    }
}

/// Records what was found under the lock of an update.
fn record(
    updates: &mut [Update],
    ids: &mut Ids,
    targets: &mut Vec<RefNameBuf>,
    refused: &mut HashMap<usize, Refusal>,
    update: usize,
    found: Locked,
) {
    match found {
        Locked::Found(found) => {
            updates[update].current = match found.target {
                Target::Direct(oid) => Current::Direct(ids.number(oid)),
                Target::Symbolic(target) => {
                    let next = u32::try_from(targets.len());
                    targets.push(target);
                    Current::Symbolic(next.expect("no more than there are bytes of names"))
                }
            };
        }
        Locked::Missing | Locked::Behind => {}
        Locked::Alone => updates[update].alone = true,
        Locked::Refused(refusal) => {
            refused.insert(update, refusal);
        }
    }
}
