//! Taking the locks of an expansion, and what to say where one is refused.

use std::borrow::Cow;

use crate::backend::{Locked, Refusal, Session};
use crate::error::{Reason, Result};
use crate::name::RefName;
use crate::target::Target;

use super::expand::{Current, Expansion, name_of};
use super::names;
use super::queue::Wanted;

impl Expansion<'_> {
    /// Locks the names of the updates in `by_name`, each name once, and records what was found.
    pub(super) fn lock_round(
        &mut self,
        session: &mut dyn Session,
        by_name: Cow<'_, [usize]>,
        start: usize,
    ) -> Result<()> {
        if start == 0 && self.distinct {
            return self.lock_fresh(session, by_name);
        }
        let mut fresh: Vec<usize> = Vec::with_capacity(by_name.len());
        let mut twins: Vec<(usize, usize)> = Vec::new();
        for &update in by_name.iter() {
            let name = self.name(update);
            let neighbour = fresh
                .last()
                .copied()
                .filter(|&last| self.name(last) == name);
            match neighbour.or_else(|| self.locked_as(name.as_bytes(), start)) {
                Some(twin) => twins.push((update, twin)),
                None => fresh.push(update),
            }
        }
        self.lock_fresh(session, Cow::Owned(fresh))?;
        for (update, twin) in twins {
            self.updates[update].current = self.updates[twin].current;
            if let Some(refusal) = self.refused.get(&twin).cloned() {
                self.refused.insert(update, refusal);
            }
        }
        Ok(())
    }

    /// Locks the names of updates that have no lock yet. After a refusal only what is checked before
    /// the refused one is of interest, unless this is a batch: the first update that is wrong is
    /// the one that is told.
    fn lock_fresh(&mut self, session: &mut dyn Session, mut fresh: Cow<'_, [usize]>) -> Result<()> {
        while !fresh.is_empty() {
            let Expansion {
                queue,
                derived,
                ids,
                updates,
                targets,
                refused,
                ..
            } = self;
            let name = |&update: &usize| name_of(queue, derived, update);
            let names: Vec<RefName<'_>> = fresh.iter().map(name).collect();
            let mut answered = vec![false; names.len()];
            session.lock(&names, !self.batch, &mut |at, answer| {
                let update = fresh[at];
                answered[at] = true;
                match answer {
                    Locked::Found(found) => {
                        updates[update].current = match found.target {
                            Target::Direct(oid) => Current::Direct(ids.number(oid)),
                            Target::Symbolic(target) => {
                                let next = u32::try_from(targets.len());
                                targets.push(target);
                                Current::Symbolic(
                                    next.expect("no more than there are bytes of names"),
                                )
                            }
                        };
                    }
                    Locked::Missing => {}
                    Locked::Alone => updates[update].alone = true,
                    Locked::Refused(refusal) => {
                        refused.insert(update, refusal);
                    }
                }
            })?;
            let Some(&first) = self.refused.keys().min() else {
                break;
            };
            let mut answered = answered.into_iter();
            let fresh = fresh.to_mut();
            fresh.retain(|&update| !answered.next().unwrap_or(true) && update < first);
        }
        Ok(())
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

    /// Refuses an update whose ref could not be locked.
    pub(super) fn refuse_for_lock(&mut self, update: usize, refusal: &Refusal) -> Result<()> {
        let must_exist = matches!(self.expected(update), Wanted::Oid(_) | Wanted::Symbolic(_));
        if must_exist && refusal.reason == Reason::NameConflict {
            // Another ref, or a folder, is where this one should be: above all, this one is missing.
            let message = format!("unable to resolve reference '{}'", self.name(update));
            return self.refuse_lock(update, Reason::NonexistentRef, &message);
        }
        let shortest = match refusal.reason {
            Reason::NameConflict => names::shortest_conflict(self, update, &refusal.message),
            _ => None,
        };
        let message = shortest.as_ref().unwrap_or(&refusal.message);
        self.refuse_lock(update, refusal.reason, message)
    }
}
