//! Reading many names of one stack.

use std::cmp::Ordering;
use std::sync::Arc;

use reftable::MergedRefs;
use reftable::short::{self, has_prefix};

use super::stack::Stack;
use super::to_ref;
use crate::backend::Value;
use crate::error::Result;
use crate::name::RefName;

/// Reads many names of one stack in one pass: a name that is not beyond the record on which the
/// cursor stands, or of the next one, needs no seek.
pub(super) struct Walk<'n> {
    merged: MergedRefs,
    /// Whether the cursor stands on the first record that is not before the last name asked for.
    stands: bool,
    /// Whether that record is the one that was asked for.
    is_it: bool,
    ended: bool,
    /// Whether there is no table, and so nothing at all.
    is_empty: bool,
    last: &'n [u8],
}

impl<'n> Walk<'n> {
    pub(super) fn new(tables: &[Arc<reftable::Table>]) -> Self {
        Walk {
            merged: MergedRefs::new(tables.to_vec()),
            stands: false,
            is_it: false,
            ended: false,
            is_empty: tables.is_empty(),
            last: &[],
        }
    }

    pub(super) fn find(&mut self, stack: &Stack, name: RefName<'n>) -> Result<Option<Value>> {
        if self.is_empty {
            return Ok(None);
        }
        self.place(name.as_bytes())
            .map_err(|error| stack.format_error(error))?;
        if !self.is_it {
            return Ok(None);
        }
        if !self.merged.is_deletion() {
            return to_ref(stack, &self.merged.record());
        }
        // What stands behind it tells whether anything can be below the name.
        self.is_it = false;
        self.advance().map_err(|error| stack.format_error(error))?;
        Ok(None)
    }

    /// Returns whether no name is below the one that was asked for last, which was not found.
    pub(super) fn is_alone(&self, name: RefName<'_>) -> bool {
        let (next, name) = (self.merged.name(), name.as_bytes());
        // What is below sorts behind all that goes on with less than a slash.
        !self.stands
            || !has_prefix(next, name)
            || next.get(name.len()).is_some_and(|byte| *byte > b'/')
    }

    /// Places the cursor on the first record that is not before `name`.
    fn place(&mut self, name: &'n [u8]) -> reftable::Result<()> {
        let forward = short::compare(self.last, name);
        self.last = name;
        // The record of a name before this one is before this one as well.
        let is_before = std::mem::take(&mut self.is_it) && forward.is_lt();
        let forward = forward.is_le();
        if forward && self.ended {
            return Ok(());
        }
        if forward && self.stands {
            if !is_before && !self.stands_before(name) {
                return Ok(());
            }
            self.advance()?;
            if self.ended || !self.stands_before(name) {
                return Ok(());
            }
        }
        self.merged.seek(name)?;
        self.advance()?;
        self.stands_before(name);
        Ok(())
    }

    fn advance(&mut self) -> reftable::Result<()> {
        self.stands = self.merged.advance()?;
        self.ended = !self.stands;
        Ok(())
    }

    /// Returns whether the cursor stands on a record before `name`, and notes whether on that of it.
    fn stands_before(&mut self, name: &[u8]) -> bool {
        let order = self
            .stands
            .then(|| short::compare(self.merged.name(), name));
        self.is_it = order == Some(Ordering::Equal);
        order == Some(Ordering::Less)
    }
}
