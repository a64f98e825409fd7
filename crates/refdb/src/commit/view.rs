//! What readers see of a transaction that is committed and not finished.

use std::io;
use std::path::PathBuf;

use bytes::Bytes;

use super::home::Home;
use super::journal::{Read, check_links, is_own, journal_path};
use super::owner::Owner;
use super::place::{Place, Roots};
use super::step::{Step, between};
use super::value_path;
use crate::error::Result;

/// What a journal says that nobody has finished yet: what readers are to see.
#[derive(Debug)]
pub(crate) struct View {
    roots: Roots,
    journal: Read,
    /// Whether nothing goes, as not all is there that comes ([`Change::is_torn`]).
    is_torn: bool,
    /// Which steps concern which places, in the order of the places, and for each in that of the steps: a name is
    /// there once, however many millions somebody has put into the journal.
    steps: Vec<Concern>,
}

/// That a step concerns a place: the one that it changes, or the one that a reflog comes from.
#[derive(Clone, Copy, Debug)]
struct Concern {
    step: u32,
    is_source: bool,
}

impl Concern {
    fn place(self, steps: &[(usize, Step)]) -> Option<&Place> {
        match steps.get(self.step as usize)? {
            (_, Step::Move { from, .. }) if self.is_source => Some(from),
            (_, step) => Some(step.place()),
        }
    }
}

/// What becomes of a place by a transaction that is committed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Becomes {
    /// It gets the content of this file, unless it has it already and the file is gone.
    Content(PathBuf),
    /// It goes.
    Nothing,
    /// It gets what is in the first of these files that is there, up to so many bytes, and lines behind
    /// that.
    Longer(Vec<PathBuf>, u64, Bytes),
}

/// Returns what was found out about a lock, or `otherwise` if this user may not read it. Everybody who may read refs
/// may read the locks of a journal, so that it is not one of those.
fn unless_hidden(found: Result<bool>, otherwise: bool) -> Result<bool> {
    match found {
        Err(error) if error.io_kind() == Some(io::ErrorKind::PermissionDenied) => Ok(otherwise),
        found => found,
    }
}

impl View {
    pub(super) fn of(home: &Home, journal: Read) -> Result<View> {
        let roots = home.roots(&journal.stat)?;
        let path = journal_path(home.journal_dir()?);
        check_links(&path, &roots)?;
        let (seat, all) = (home.seat()?, &*journal.change.steps);
        let concerns = (0..).zip(all).flat_map(|(at, (_, step))| {
            let concern = |is_source| Concern {
                step: at,
                is_source,
            };
            let source = matches!(step, Step::Move { .. }).then(|| concern(true));
            [Some(concern(false)), source].into_iter().flatten()
        });
        let is_named = |it: &Concern| it.place(all).is_some_and(|place| seat.names(place));
        let mut steps: Vec<Concern> = concerns.filter(is_named).collect();
        let written = |it: &Concern| it.place(all).and_then(Place::write);
        steps.sort_by(|a, b| written(a).cmp(&written(b)));
        let is_own = |guard: &Place| is_own(&roots, guard, &journal);
        let is_torn = journal.change.is_torn(&roots, journal.owner.id, &is_own);
        Ok(View {
            is_torn: unless_hidden(is_torn, true)?,
            roots,
            journal,
            steps,
        })
    }

    /// Returns what becomes of a place; `None` if nothing does, or did already.
    ///
    /// # Errors
    /// `Io` if the lock of the place cannot be looked at.
    pub(crate) fn of_place(&self, place: &Place) -> Result<Option<Becomes>> {
        let change = &self.journal.change;
        let found = self.steps_of(place).next_back().and_then(|(guard, step)| {
            let guard = change.guards.get(*guard)?;
            Some((guard, step))
        });
        let Some((guard, step)) = found else {
            return Ok(None);
        };
        let is_own = unless_hidden(is_own(&self.roots, guard, &self.journal), false)?;
        if !is_own || self.is_torn && step.takes_away() {
            return Ok(None);
        }
        let path = self.roots.path(place);
        Ok(Some(match step {
            Step::Put { .. } => Becomes::Content(value_path(&path, self.journal.owner.id)),
            Step::Remove { .. } => Becomes::Nothing,
            Step::Append { len, lines, .. } => {
                Becomes::Longer(self.files(place, path), *len, lines.clone())
            }
            Step::Move { from, .. } if from == place => Becomes::Nothing,
            Step::Move { .. } => Becomes::Longer(self.files(place, path), u64::MAX, Bytes::new()),
        }))
    }

    /// Returns the steps that concern a place.
    fn steps_of(&self, place: &Place) -> impl DoubleEndedIterator<Item = &(usize, Step)> {
        let all = &*self.journal.change.steps;
        let written = |it: &Concern| it.place(all).and_then(Place::write);
        let found = place.write().and_then(|name| {
            let first = self.steps.partition_point(|it| written(it) < Some(name));
            let end = self.steps.partition_point(|it| written(it) <= Some(name));
            self.steps.get(first..end)
        });
        found
            .unwrap_or_default()
            .iter()
            .filter_map(|it| all.get(it.step as usize))
    }

    /// Returns the files of which one is a reflog, in the order in which it has these names.
    fn files(&self, place: &Place, path: PathBuf) -> Vec<PathBuf> {
        let source = |(_, step): &(usize, Step)| match step {
            Step::Move { place: to, from } if to == place => Some(from.clone()),
            _ => None,
        };
        let Some(from) = self.steps_of(place).find_map(source) else {
            return vec![path];
        };
        let from = self.roots.path(&from);
        let between = between(&from, &path);
        [Some(from), between, Some(path)]
            .into_iter()
            .flatten()
            .collect()
    }

    /// Returns whether this is the transaction of an owner of locks.
    pub(super) fn is_of(&self, owner: &Owner) -> bool {
        self.journal.owner.id == owner.id
    }

    /// Returns the places of which something becomes.
    pub(crate) fn places(&self) -> impl Iterator<Item = &Place> {
        let all = &*self.journal.change.steps;
        self.steps.iter().filter_map(|it| it.place(all))
    }
}
