//! What readers see of a transaction that is committed and not finished.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;

use bytes::Bytes;

use super::home::Home;
use super::journal::{Read, is_own, journal_path, leads_out};
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
    /// The last step that concerns a place, and its lock.
    steps: HashMap<Place, (usize, usize)>,
    /// Where the reflogs that move come from, by where they go to.
    moves: HashMap<Place, Place>,
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
        roots.check().map_err(|error| leads_out(&path, &error))?;
        let (mut steps, mut moves) = (HashMap::new(), HashMap::new());
        for (at, (guard, step)) in journal.change.steps.iter().enumerate() {
            steps.insert(step.place().clone(), (*guard, at));
            if let Step::Move { place, from } = step {
                steps.insert(from.clone(), (*guard, at));
                moves.insert(place.clone(), from.clone());
            }
        }
        let is_own = |guard: &Place| is_own(&roots, guard, &journal);
        let is_torn = journal.change.is_torn(&roots, journal.owner.id, &is_own);
        Ok(View {
            is_torn: unless_hidden(is_torn, true)?,
            roots,
            journal,
            steps,
            moves,
        })
    }

    /// Returns what becomes of a place; `None` if nothing does, or did already.
    ///
    /// # Errors
    /// `Io` if the lock of the place cannot be looked at.
    pub(crate) fn of_place(&self, place: &Place) -> Result<Option<Becomes>> {
        let change = &self.journal.change;
        let found = self.steps.get(place).and_then(|&(guard, at)| {
            let (_, step) = change.steps.get(at)?;
            Some((change.guards.get(guard)?, step))
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

    /// Returns the files of which one is a reflog, in the order in which it has these names.
    fn files(&self, place: &Place, path: PathBuf) -> Vec<PathBuf> {
        let Some(from) = self.moves.get(place) else {
            return vec![path];
        };
        let from = self.roots.path(from);
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
        self.steps.keys()
    }
}
