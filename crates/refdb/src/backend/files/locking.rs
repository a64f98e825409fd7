//! Locking the names that a write asks for, in the one order of all locks.
//!
//! Invariants:
//! 1. Names above new ones that go into packed-refs are locked with them, in the same order.
//! 2. What is answered of a name was read under its lock: first its loose ref, then packed-refs.

use std::collections::HashSet;
use std::sync::Arc;

use super::acquire::NotTaken;
use super::apart::{is_shared, names_above};
use super::known_dirs::KnownDirs;
use super::packed::Forwards;
use super::publish::BATCH_MIN;
use super::session::FilesSession;
use crate::backend::{Locked, Refusal};
use crate::error::{Reason, Result};
use crate::name::RefName;

/// Names to be locked.
struct Names<'n> {
    /// All of them, in the order of locks.
    all: Vec<RefName<'n>>,
    /// The positions of those that are locked for the ones below them alone.
    above: Vec<usize>,
}

impl FilesSession {
    /// Locks names that are in the order of locks, and those above them that need it.
    pub(super) fn lock_in_order(
        &mut self,
        names: &[RefName<'_>],
        stop_at_refusal: bool,
        answer: &mut dyn FnMut(usize, Locked),
    ) -> Result<()> {
        if names.len() > 1 && names.is_sorted() {
            self.bar_directories(names);
        }
        loop {
            let is_done = match self.with_names_above(names)? {
                Some(Names { all, above }) => {
                    self.lock_all(&all, stop_at_refusal, Some(&above), answer)?
                }
                None => self.lock_all(names, stop_at_refusal, None, answer)?,
            };
            if is_done {
                return Ok(());
            }
        }
    }

    /// Adds to names those above them, if they may be written into packed-refs; `None` if they are not.
    fn with_names_above<'n>(&mut self, names: &[RefName<'n>]) -> Result<Option<Names<'n>>> {
        if names.len() < BATCH_MIN || !self.held.is_empty() || self.files.options.ignore_case {
            return Ok(None);
        }
        let count = names.iter().filter(|name| is_shared(**name)).count();
        let is_one_order = count == names.len() || !self.files.layout.is_linked();
        if count < BATCH_MIN || !is_one_order || !names.is_sorted() {
            return Ok(None);
        }
        if !self.is_worth_packing(count)? {
            return Ok(None);
        }
        // Nobody gets below a locked directory, so that nothing in it is above anything.
        let (parts, dirs) = self.bars.outside(names);
        let mut parents: Vec<RefName<'n>> = parts.into_iter().flat_map(names_above).collect();
        parents.extend(dirs.chunks(1).flat_map(names_above));
        parents.sort();
        parents.dedup();
        let mut all = Vec::with_capacity(names.len() + parents.len());
        let mut above = Vec::with_capacity(parents.len());
        let mut rest = names;
        for parent in parents {
            let (before, after) = rest.split_at(rest.partition_point(|name| *name < parent));
            all.extend_from_slice(before);
            rest = after;
            // One that is written itself is locked for that.
            if after.first() != Some(&parent) {
                above.push(all.len());
                all.push(parent);
            }
        }
        all.extend_from_slice(rest);
        Ok(Some(Names { all, above }))
    }

    /// Locks names that are in the order of locks. If `above` says at which positions those are that are
    /// locked for the ones below them alone, nothing is asked of these, they do not count in what is
    /// answered, and the places of new ones are barred as well. Returns `false`, and no lock is held,
    /// after directories were given back that had been locked as a whole.
    #[allow(
        clippy::too_many_lines,
        reason = "what is locked, read and barred stands in one order"
    )]
    fn lock_all(
        &mut self,
        names: &[RefName<'_>],
        stop_at_refusal: bool,
        above: Option<&[usize]>,
        answer: &mut dyn FnMut(usize, Locked),
    ) -> Result<bool> {
        let is_batch = above.is_some();
        let above = above.unwrap_or_default();
        let first = self.held.len();
        self.log_dirs = KnownDirs::default();
        self.held.reserve(names.len());
        self.is_alone = names.len() == 1;
        let Some(unopposed) = self.take_together(names) else {
            return Ok(false);
        };
        let mut taken = Vec::with_capacity(names.len());
        taken.resize_with(unopposed, || Ok(()));
        for &name in names.get(unopposed..).unwrap_or_default() {
            match self.take(name) {
                Ok(()) => taken.push(Ok(())),
                Err(NotTaken::Behind) => {
                    let before = above.partition_point(|above| *above < taken.len());
                    answer(taken.len() - before, Locked::Behind);
                    return Ok(true);
                }
                Err(NotTaken::Refused(refusal)) => {
                    let is_asked = above.binary_search(&taken.len()).is_err();
                    taken.push(Err(refusal));
                    if stop_at_refusal && is_asked {
                        break;
                    }
                }
            }
        }
        self.mark_above(first, taken.iter().map(std::result::Result::is_ok), above);
        // Loose refs first, packed-refs afterwards: this is the order that misses none.
        let before = is_batch.then(|| self.files.packed.snapshot()).transpose()?;
        let mut loose = self.read_loose(first, before.as_deref()).into_iter();
        let packed = self.files.packed.snapshot()?;
        self.packed = Some(Arc::clone(&packed));
        let mut packed = Forwards::over(&packed);
        let mut above = above.iter().peekable();
        // Names above others that somebody else has: nothing can be made below.
        let mut blocked: Vec<(RefName<'_>, Box<Refusal>)> = Vec::new();
        // Which of the locks are of new names, and where these are among those that were asked for.
        let mut missing: Vec<usize> = Vec::new();
        let mut missing_at: Vec<usize> = Vec::new();
        let mut of_new = None;
        let (mut index, mut asked) = (first, 0);
        for (position, taken) in taken.into_iter().enumerate() {
            let is_above = above.next_if_eq(&&position).is_some();
            let (this, at) = (index, asked);
            index += usize::from(taken.is_ok());
            asked += usize::from(!is_above);
            let current = match taken {
                Ok(()) => loose.next(),
                Err(refusal) if !is_above => {
                    answer(at, Locked::Refused(*refusal));
                    continue;
                }
                Err(refusal) => {
                    if refusal.reason == Reason::CreateExists {
                        blocked.extend(names.get(position).map(|name| (*name, refusal)));
                    }
                    continue;
                }
            };
            if is_above {
                continue;
            }
            let mut locked = self.judge(this, current, &mut packed)?;
            if matches!(locked, Locked::Missing) {
                locked = match &of_new {
                    Some(locked) => Locked::clone(locked),
                    None => of_new.insert(self.look_for_migration()?).clone(),
                };
            }
            if matches!(locked, Locked::Missing)
                && let Some(name) = names.get(position)
                && let Some((_, why)) = blocked.iter().find(|(above, _)| name.is_below(*above))
            {
                locked = Locked::Refused(Refusal::clone(why));
            }
            if let Some(held) = self.held.get_mut(this) {
                match locked {
                    Locked::Found(_) => held.exists = true,
                    Locked::Refused(_) => held.lock = None,
                    // The lock of its directory bars the place of another.
                    Locked::Missing if is_batch && held.bar.is_none() => {
                        missing.push(this);
                        missing_at.push(at);
                        continue;
                    }
                    Locked::Missing | Locked::Behind | Locked::Alone => {}
                }
            }
            answer(at, locked);
        }
        let mut refused = HashSet::new();
        self.bar_new(&missing, &mut |index, locked| {
            if let Ok(found) = missing.binary_search(&index) {
                answer(missing_at[found], locked);
                refused.insert(index);
            }
        })?;
        for (index, at) in missing.into_iter().zip(missing_at) {
            if refused.contains(&index) {
                self.held[index].lock = None;
            } else {
                answer(at, Locked::Missing);
            }
        }
        Ok(true)
    }

    /// Marks the locks, from the one at `first` on, of the names that are at the positions `above` among
    /// all, of which some are held.
    fn mark_above(&mut self, first: usize, is_held: impl Iterator<Item = bool>, above: &[usize]) {
        let mut above = above.iter().peekable();
        let mut held = self.held.iter_mut().skip(first);
        for (at, is_held) in is_held.enumerate() {
            if above.peek().is_none() {
                break;
            }
            let is_above = above.next_if_eq(&&at).is_some();
            if is_held && let Some(held) = held.next() {
                held.is_above = is_above;
            }
        }
    }
}
