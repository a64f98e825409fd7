//! Finding the names of a transaction in the stacks that it holds.

use std::ops::Range;
use std::sync::Arc;

use refdb_names::RefName;
use reftable::{RefFinder, Table};

use super::stack::Stack;
use super::to_ref;
use crate::backend::{Locked, Refusal};
use crate::error::{Reason, Result};
use crate::layout::{Layout, Place};

/// The names of all refs of a stack, in their order, where they are known to be few.
pub(super) type Few = Option<Vec<Vec<u8>>>;

/// The stacks that are held.
pub(super) type Stacks<'s> = [(&'s Place, &'s Stack, &'s [Arc<Table>])];

/// Finds names in stacks, batch after batch. Each thread has one of its own.
pub(super) struct Walk<'s> {
    stacks: &'s Stacks<'s>,
    finders: Vec<RefFinder<'s>>,
    layout: &'s Layout,
    /// Which stack all names are in, if that is known.
    together: Option<usize>,
    /// Whether it finds out which refs are in that stack at all.
    keeps_few: bool,
}

impl<'s> Walk<'s> {
    pub(super) fn new(
        stacks: &'s Stacks<'s>,
        layout: &'s Layout,
        together: Option<usize>,
        keeps_few: bool,
    ) -> Self {
        let finders = stacks.iter().map(|it| RefFinder::new(it.2.to_vec()));
        Walk {
            finders: finders.collect(),
            stacks,
            layout,
            together,
            keeps_few,
        }
    }

    /// Finds one batch of these names, and what else is in their stack from the end of the batch before
    /// up to that of this one.
    pub(super) fn find(
        &mut self,
        names: &'s [RefName<'s>],
        batch: Range<usize>,
    ) -> Result<(Vec<Locked>, Few)> {
        let first = names.get(batch.start).filter(|_| batch.start > 0);
        let behind = names.get(batch.end).map(|name| name.as_bytes());
        if let Some(at) = self.together.filter(|_| self.keeps_few) {
            self.finders[at].begin(first.map_or(b"", |name| name.as_bytes()));
        }
        let batch = names[batch].iter();
        let found: Result<Vec<Locked>> = batch.map(|name| self.find_one(*name)).collect();
        let few = self.together.map(|at| self.finders[at].take_few(behind));
        Ok((found?, few.flatten()))
    }

    fn find_one(&mut self, name: RefName<'s>) -> Result<Locked> {
        let (at, bare) = match self.together {
            Some(at) => (at, name),
            None => {
                let (place, bare) = self.layout.locate(name);
                let at = self.stacks.iter().position(|stack| *stack.0 == place);
                (at.expect("every place has got a stack"), bare)
            }
        };
        let (finder, stack) = (&mut self.finders[at], self.stacks[at].1);
        let bare = bare.as_bytes();
        if bare.is_empty() {
            return Ok(whole_worktree(name));
        }
        let found = stack.checked(finder.find(bare))?;
        let found = found.map(|record| to_ref(stack, &record)).transpose()?;
        // What lies below a name may be in another stack than the name.
        let knows_all = !self.layout.is_linked() && bare.len() == name.as_bytes().len();
        Ok(match found.flatten() {
            Some(found) => Locked::Found(found),
            None if knows_all && finder.is_alone(bare) => Locked::Alone,
            None => Locked::Missing,
        })
    }
}

/// Puts the names of batch after batch together, which may share one where they meet.
pub(super) fn join(few: Few, more: Few) -> Few {
    let (mut few, more) = (few?, more?);
    few.extend(more);
    few.dedup();
    // Batches that are not in order may overlap.
    few.is_sorted().then_some(few)
}

/// Says that the name of a worktree as a whole is none of a ref.
pub(super) fn whole_worktree(name: RefName<'_>) -> Locked {
    let message = format!("'{name}' names a worktree, and no ref of it");
    Locked::Refused(Refusal::new(Reason::NameConflict, message))
}
