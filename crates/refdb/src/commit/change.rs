//! A change, and the one way in which it becomes visible.
//!
//! A backend describes what a transaction changes: the locks that it holds, and steps in their order. One
//! step is taken. Several are written into the journal first, which commits them; then they are taken and
//! made durable, and the journal goes. Recovery takes the same steps by the same code (`journal`).
//!
//! Invariants:
//! 1. Entries of reflogs come before the one step that they belong to. If that fails they stay, but no
//!    reflog does that was made for it.
//! 2. A journal promises no step that is seen to be impossible. One that fails is taken once more after all
//!    others. If it fails again, the locks and the journal stay for the next process; but entries of a reflog
//!    that cannot be written are lost, and keep nobody out.
//! 3. As soon as packed-refs is in place no barrier stands before what is in it: Git finds nothing behind one that it
//!    asks for by name. What leads there, a symref, comes after that.
//! 4. Nothing is taken away, live or in recovery, before all that the change gives is in place: what goes here
//!    may have its only other value there. Where somebody removed locks or new content, it stays, and that is told.
//! 5. What a lock guards that somebody removed is neither replaced nor taken away, live or in recovery: whoever
//!    got that lock since may have written it.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::dirs::{MANY_MIN, sync};
use super::hold::{Holds, lost_in_part};
use super::journal::Journal;
use super::place::{Place, PlainDirs, Roots, Spot};
use super::possible;
use super::step::{Clear, GivesUp, How, Source, Step, Taken};
use super::{Holder, LockFile, LockOptions, lock_path, remove_if_there};
use crate::error::{Error, ErrorKind, Result};
use crate::system::beside::both;
use crate::system::dirs::middle;
use crate::system::{FileKind, MayWrite, System, is_absent};

/// The steps of a transaction, each with the lock that guards it.
#[derive(Debug, Default)]
pub(crate) struct Change {
    /// The places whose locks the transaction holds; none if it takes one step.
    pub(super) guards: Vec<Place>,
    /// Which of them are barred and get no file. No journal names them: whoever finishes it looks.
    barred: Vec<usize>,
    pub(super) steps: Vec<(usize, Step)>,
}

/// What it takes to make a change visible.
pub(crate) struct Means<'m> {
    pub(crate) holder: &'m Holder,
    /// One of the locks of the transaction, if it has any.
    pub(crate) lock: Option<&'m LockFile>,
    /// That of packed-refs, if it has the new content of that.
    pub(crate) packed: Option<&'m LockFile>,
    pub(crate) options: LockOptions,
    /// Whether all of it is made durable.
    pub(crate) fsync: bool,
    /// Where the places are.
    pub(crate) roots: Roots,
    /// Directories whose names were changed before.
    pub(crate) dirs: BTreeSet<PathBuf>,
    /// Makes room for a new reflog.
    pub(crate) clear: Clear<'m>,
}

/// What became of a change that is visible.
pub(crate) enum Carried {
    /// All of it is done. What went wrong afterwards has no bearing on it.
    Whole { afterwards: Vec<Error> },
    /// It is committed, and a part of it is still to be done, by whoever comes when this process has ended:
    /// the locks have to stay.
    InPart(Error),
}

/// A step, and which lock guards it.
type Guarded = (usize, Step);

/// Steps that failed, with why; those without a reason were left out, as one before them failed.
type Failed<'s> = Vec<(&'s Guarded, Option<Error>)>;

/// Returns the name of a step that concerns no file that another one concerns, else nothing: a reflog below `refs/`
/// has one name in a transaction, and all its entries are one step.
fn apart((_, step): &Guarded) -> &[u8] {
    match step {
        Step::Append {
            place: Place::Log(name),
            ..
        } if name.as_bytes().starts_with(b"refs/") => name.as_bytes(),
        _ => b"",
    }
}

/// Takes steps in their order, but for those that follow a failed one on the same place, and those that take
/// something away: what is given in its place may have failed.
fn take_each<'s>(
    steps: &'s [Guarded],
    take: &dyn Fn(&Guarded, &mut Taken) -> Result<()>,
    taken: &mut Taken,
    failed: &mut Failed<'s>,
) {
    for guarded in steps {
        let (_, step) = guarded;
        let is_same = |((_, other), _): &(&Guarded, _)| other.place() == step.place();
        let is_early = !failed.is_empty() && step.takes_away();
        if is_early || failed.iter().any(is_same) {
            failed.push((guarded, None));
        } else if let Err(error) = take(guarded, taken) {
            failed.push((guarded, Some(error)));
        }
    }
}

fn is_packing(step: &Step) -> bool {
    *step.place() == Place::Packed && matches!(step, Step::Put { .. })
}

/// Removes barriers in the places of refs that are in packed-refs now. One that cannot be removed, as its directory
/// was made read-only, say, keeps nobody from anything but that name, and is told. Whoever does not know that a barrier
/// is there (`is_known`) looks.
fn unbar(roots: &Roots, places: &mut dyn Iterator<Item = &Place>, is_known: bool) -> Option<Error> {
    let mut first = None;
    for place in places {
        let removed = roots.spot(place).and_then(|spot| {
            match is_known || super::is_barrier(spot.system.as_ref(), &spot.path) {
                true => remove_if_there(spot.system.as_ref(), &spot.path),
                false => Ok(()),
            }
        });
        let failed = removed.err().filter(|error| !is_absent(error));
        first = first.or_else(|| {
            let error = Error::io("unable to remove", &roots.path(place), failed?);
            Some(error.context("Git does not find a ref by its name"))
        });
    }
    first
}

/// Tells that somebody removed a lock while what it guards was finished.
fn torn_meanwhile() -> Error {
    let message = "somebody removed a lock of it just now";
    Error::new(ErrorKind::Locked, message)
}

impl Change {
    /// Adds the lock of a place; returns what to call it in [`Change::add`].
    pub(crate) fn lock(&mut self, place: Place) -> usize {
        self.guards.push(place);
        self.guards.len() - 1
    }

    /// Notes that the place of a lock is barred, and gets no file.
    pub(crate) fn note_barred(&mut self, lock: usize) {
        self.barred.push(lock);
    }

    /// Adds a step that is guarded by a lock.
    pub(crate) fn add(&mut self, lock: usize, step: Step) {
        self.steps.push((lock, step));
    }

    /// Adds the step that puts the new content of a lock in place.
    pub(crate) fn put(&mut self, guard: usize, place: Place, lock: &LockFile) {
        let step = Step::Put {
            place,
            // Of one step there is no journal.
            content: (!self.guards.is_empty()).then_some(lock.written).flatten(),
            from: match (lock.is_alone(), lock.bars()) {
                (false, _) => Source::Beside,
                (true, false) => Source::Lock,
                (true, true) => Source::BarredLock,
            },
        };
        self.add(guard, step);
    }

    /// Makes the change visible, and durable. The caller has looked whether his locks are still his.
    ///
    /// # Errors
    /// `Locked` when another transaction is at it for too long, or when somebody took a lock away;
    /// `Interrupted`; `Io`. Nothing is visible then.
    pub(crate) fn carry_out(mut self, mut means: Means<'_>) -> Result<Carried> {
        let mut taken = Taken {
            dirs: std::mem::take(&mut means.dirs),
            ..Taken::default()
        };
        let holds = Holds::of(means.holder);
        let how = self.as_maker(&means, &holds);
        let system = means.holder.system();
        let mut journal = None;
        if self.guards.is_empty() {
            let how = How {
                packed: None,
                clear: Some(means.clear),
                ..how
            };
            self.check_is_one(means.lock)?;
            self.take_one(system, &means.roots, how, &mut taken)?;
        } else {
            let written = self.commit(&means)?;
            if let Err(error) = self.take_all(&means.roots, how, &mut taken) {
                written.leave();
                return Ok(Carried::InPart(error));
            }
            journal = Some(written);
        }
        let mut afterwards = taken.lost;
        if means.fsync {
            afterwards.extend(sync(system, &taken.dirs, !how.sync_each).err());
        }
        afterwards.extend(journal.and_then(|journal| journal.end().err()));
        Ok(Carried::Whole { afterwards })
    }

    /// Returns how the process takes the steps that made the change.
    fn as_maker<'m>(&self, means: &Means<'m>, holds: &'m Holds) -> How<'m> {
        let is_few = self.steps.len() < MANY_MIN;
        // A lock that takes its content itself says nothing, and to make up what it would say takes time.
        let is_beside = |(_, step): &(usize, Step)| {
            matches!(
                step,
                Step::Put {
                    from: Source::Beside,
                    ..
                }
            )
        };
        let is_signed = !self.guards.is_empty() || self.steps.iter().any(is_beside);
        How {
            shared: means.options.shared,
            transaction: if is_signed {
                means.holder.owner().id
            } else {
                0
            },
            packed: means.packed,
            holds,
            is_live: true,
            is_first: true,
            gives_up: GivesUp::Nothing,
            is_journalled: !self.guards.is_empty(),
            sync_each: means.fsync && (is_few || !means.holder.system().syncs_at_once()),
            fsync: means.fsync,
            clear: None,
        }
    }

    /// Takes the steps of a change whose journal is written.
    #[cfg(test)]
    pub(super) fn take_after(&self, means: &Means<'_>) -> Result<()> {
        let holds = Holds::of(means.holder);
        let how = self.as_maker(means, &holds);
        self.take_all(&means.roots, how, &mut Taken::default())
    }

    /// Writes the journal, which commits the change.
    pub(super) fn commit(&mut self, means: &Means<'_>) -> Result<Journal> {
        means.holder.may_publish()?;
        let mut may = MayWrite::default();
        let mut steps = self.steps.iter();
        steps.try_for_each(|(_, step)| possible::check(&mut may, step, &means.roots))?;
        self.leave_out_linked(&means.roots)?;
        Journal::commit(self, means)
    }

    /// Makes sure that there is one step, and entries of reflogs. What is done without a lock is no
    /// transaction: each step of it stands for itself.
    fn check_is_one(&self, lock: Option<&LockFile>) -> Result<()> {
        let others = self.steps.iter().filter(|(_, step)| !step.is_entry());
        if lock.is_none() || others.count() <= 1 {
            return Ok(());
        }
        let message = "a transaction of several steps names no locks";
        Err(Error::new(ErrorKind::Misuse, message))
    }

    /// Takes the one step that there is, after entries of reflogs.
    fn take_one(
        &self,
        system: &dyn System,
        roots: &Roots,
        how: How<'_>,
        taken: &mut Taken,
    ) -> Result<()> {
        for (_, step) in &self.steps {
            if let Err(error) = step.take(roots, how, taken) {
                // A later reflog below such a name would have no place. At worst it stays, as one of Git
                // does.
                for path in &taken.made {
                    let _ = remove_if_there(system, path);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Takes every step; those that fail are taken once more, with those that concern the same places.
    fn take_all(&self, roots: &Roots, how: How<'_>, taken: &mut Taken) -> Result<()> {
        let mut failed = Failed::new();
        let take = |step: &Guarded, taken: &mut Taken| self.take_live(step, roots, how, taken);
        let is_apart = |step: &Guarded| !apart(step).is_empty();
        for steps in self
            .steps
            .chunk_by(|one, next| is_apart(one) == is_apart(next))
        {
            let names = steps.iter().map(apart);
            let is_apart = steps.first().is_some_and(is_apart);
            let Some(middle) = is_apart.then(|| middle(names)).flatten() else {
                take_each(steps, &take, taken, &mut failed);
                continue;
            };
            // Two threads take 0.88 times as long for 20,000 refs with new reflogs in many folders, all of it counted.
            let (here, there) = steps.split_at(middle);
            let second = || {
                let (mut taken, mut failed) = (Taken::default(), Failed::new());
                let take = |(_, step): &Guarded, taken: &mut Taken| step.take(roots, how, taken);
                take_each(there, &take, &mut taken, &mut failed);
                (taken, failed)
            };
            let first = || take_each(here, &take, taken, &mut failed);
            let ((), (mut also_taken, also_failed)) = both(first, second);
            taken.dirs.append(&mut also_taken.dirs);
            taken.made.append(&mut also_taken.made);
            taken.lost.append(&mut also_taken.lost);
            failed.extend(also_failed);
        }
        let again = How {
            is_first: false,
            gives_up: GivesUp::Hopeless,
            ..how
        };
        for (step, first) in failed {
            let done = self.take_live(step, roots, again, taken);
            done.map_err(|error| first.unwrap_or(error))?;
        }
        Ok(())
    }

    /// Takes a step as the process that makes the change.
    fn take_live(
        &self,
        (guard, step): &Guarded,
        roots: &Roots,
        how: How<'_>,
        taken: &mut Taken,
    ) -> Result<()> {
        // Somebody else may have written what it would replace, once the lock was removed.
        if let (Some(guard), false) = (self.guards.get(*guard), step.is_entry()) {
            let lock = lock_path(&roots.path(guard));
            let checked = how.holds.check(roots.system(), &lock);
            checked.map_err(lost_in_part)?;
        }
        step.take(roots, how, taken)?;
        if !is_packing(step) {
            return Ok(());
        }
        // The locks were just looked at, or those who could have taken them.
        let barred = self.barred.iter();
        let mut barred = barred.filter_map(|&guard| self.guards.get(guard));
        taken.lost.extend(unbar(roots, &mut barred, true));
        Ok(())
    }

    /// Returns whether the change takes something away and cannot give all that it was to give, since somebody
    /// removed locks or new content: then nothing is taken away.
    ///
    /// # Errors
    /// `Io` if that could not be found out.
    pub(super) fn is_torn(
        &self,
        roots: &Roots,
        transaction: u64,
        is_own: &dyn Fn(&Place) -> Result<bool>,
    ) -> Result<bool> {
        if !self.takes_away() {
            return Ok(false);
        }
        for step in &self.steps {
            if !self.is_given(step, roots, transaction, is_own)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn takes_away(&self) -> bool {
        self.steps.iter().any(|(_, step)| step.takes_away())
    }

    fn is_given(
        &self,
        (guard, step): &Guarded,
        roots: &Roots,
        transaction: u64,
        is_own: &dyn Fn(&Place) -> Result<bool>,
    ) -> Result<bool> {
        match step {
            Step::Put { .. } => {
                let is_held = self.guards.get(*guard).map_or(Ok(false), is_own)?;
                step.is_given(roots, transaction, is_held)
            }
            _ => Ok(true),
        }
    }

    /// Takes every step whose lock is still held, for a process that did not make the change; of one that is torn
    /// none that takes something away.
    ///
    /// # Errors
    /// `Locked` if it was torn since that was looked at: to be looked at again. Those of the steps.
    pub(super) fn take_own(
        &self,
        roots: &Roots,
        how: How<'_>,
        taken: &mut Taken,
        mut is_torn: bool,
        is_own: &dyn Fn(&Place) -> Result<bool>,
    ) -> Result<()> {
        let mut first = None;
        let mut last: Option<(usize, bool)> = None;
        let give_up = |step: &Step, error: Error, taken: &mut Taken| {
            let lost = step.given_up(roots, how.transaction, error);
            taken.lost.push(lost);
        };
        for (guard, step) in &self.steps {
            if is_torn && step.takes_away() {
                continue;
            }
            // Steps under one lock follow each other.
            let is_held = match last {
                Some((at, is_held)) if at == *guard => is_held,
                _ => match self.guards.get(*guard).map_or(Ok(false), is_own) {
                    Err(error) if how.gives_up == GivesUp::Whatever => {
                        give_up(step, error, taken);
                        false
                    }
                    is_held => is_held?,
                },
            };
            last = Some((*guard, is_held));
            if !is_held
                && !is_torn
                && self.takes_away()
                && let Step::Put { .. } = step
            {
                match step.is_given(roots, how.transaction, false) {
                    Ok(true) => {}
                    _ if how.gives_up == GivesUp::Whatever => is_torn = true,
                    is_given => return Err(is_given.err().unwrap_or_else(torn_meanwhile)),
                }
            }
            let take = |taken: &mut Taken| {
                step.take(roots, how, taken)?;
                if is_packing(step) {
                    taken.lost.extend(self.unbar_own(roots, is_own));
                }
                Ok(())
            };
            if is_held && let Err(error) = take(taken) {
                match how.gives_up {
                    GivesUp::Whatever => give_up(step, error, taken),
                    _ => first = first.or(Some(error)),
                }
            }
        }
        first.map_or(Ok(()), Err)
    }

    /// Removes the barriers in the places whose locks are still held, for a process that did not make the change;
    /// returns what cannot be removed.
    pub(super) fn unbar_own(
        &self,
        roots: &Roots,
        is_own: &dyn Fn(&Place) -> Result<bool>,
    ) -> Option<Error> {
        let is_own = |guard: &&Place| matches!(is_own(guard), Ok(true));
        unbar(roots, &mut self.guards.iter().filter(is_own), false)
    }

    /// Returns which refs were not changed as they were to be, and cannot be any more, since somebody took
    /// their locks away: what is there is older than the journal, which is of this time.
    pub(super) fn missed(
        &self,
        roots: &Roots,
        transaction: u64,
        journal_ns: i128,
        is_torn: bool,
        is_own: &dyn Fn(&Place) -> Result<bool>,
    ) -> Vec<PathBuf> {
        let is_old = |step: &Step| {
            let Ok(Spot { system, path, .. }) = roots.spot(step.place()) else {
                return false;
            };
            match system.lstat(&path) {
                Ok(stat) if stat.kind != FileKind::File => !step.takes_away(),
                // packed-refs can be dated in the future.
                Ok(stat) => stat.mtime_ns.min(stat.ctime_ns) < journal_ns,
                Err(error) => is_absent(&error) && !step.takes_away(),
            }
        };
        // Steps under one lock follow each other.
        let mut last: Option<(usize, bool)> = None;
        let mut is_lost = |at: usize| match last {
            Some((known, is_lost)) if known == at => is_lost,
            _ => {
                let guard = self.guards.get(at);
                let is_lost = guard.is_some_and(|guard| matches!(is_own(guard), Ok(false)));
                last = Some((at, is_lost));
                is_lost
            }
        };
        let is_missed = |both: &&Guarded| match both {
            (_, step @ Step::Put { .. }) => {
                let is_given = self.is_given(both, roots, transaction, is_own);
                matches!(is_given, Ok(false)) && is_old(step)
            }
            (at, step @ Step::Remove { .. }) => (is_torn || is_lost(*at)) && is_old(step),
            (_, Step::Append { .. } | Step::Move { .. }) => false,
        };
        let missed = self.steps.iter().filter(is_missed);
        missed.map(|(_, step)| roots.path(step.place())).collect()
    }

    /// Takes out of the journal what nobody could finish later, who follows no link below the directories
    /// that everybody uses: what lies in a directory that is one, such as `refs/heads` on another disk. As
    /// beside Git, a crash leaves a part of that.
    ///
    /// # Errors
    /// `Io` if that could not be found out.
    fn leave_out_linked(&mut self, roots: &Roots) -> Result<()> {
        let mut dirs = PlainDirs::new(roots);
        let steps = self.steps.iter_mut();
        let steps = steps.flat_map(|(_, step)| step.places_mut());
        for place in self.guards.iter_mut().chain(steps) {
            match dirs.leads_to(place) {
                Ok(true) => {}
                Ok(false) => *place = Place::Outside(roots.path(place)),
                Err(error) => {
                    return Err(Error::io("unable to look at", &roots.path(place), error));
                }
            }
        }
        Ok(())
    }
}
