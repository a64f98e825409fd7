//! Reading many names of one stack.

use std::sync::Arc;

use reftable::MergedRefs;

use super::stack::Stack;
use super::to_ref;
use crate::backend::Ref;
use crate::error::Result;
use crate::name::RefName;

/// Reads many names of one stack in one pass: a name that is not beyond the record on which the
/// cursor stands, or of the next one, needs no seek.
pub(super) struct Walk {
    merged: MergedRefs,
    /// Whether the cursor stands on the first record that is not before the last name asked for.
    stands: bool,
    ended: bool,
    /// Whether there is no table, and so nothing at all.
    is_empty: bool,
    last: Vec<u8>,
}

impl Walk {
    pub(super) fn new(tables: &[Arc<reftable::Table>]) -> Self {
        Walk {
            merged: MergedRefs::new(tables.to_vec()),
            stands: false,
            ended: false,
            is_empty: tables.is_empty(),
            last: Vec::new(),
        }
    }

    pub(super) fn find(&mut self, stack: &Stack, name: RefName<'_>) -> Result<Option<Ref>> {
        if self.is_empty {
            return Ok(None);
        }
        self.place(name.as_bytes())
            .map_err(|error| stack.format_error(error))?;
        if self.stands && self.merged.name() == name.as_bytes() {
            return to_ref(stack, &self.merged.record());
        }
        Ok(None)
    }

    /// Returns whether no name begins with the one that was asked for last, which was not found.
    pub(super) fn is_alone(&self, name: RefName<'_>) -> bool {
        !self.stands || !self.merged.name().starts_with(name.as_bytes())
    }

    /// Places the cursor on the first record that is not before `name`.
    fn place(&mut self, name: &[u8]) -> reftable::Result<()> {
        let forward = self.last.as_slice() <= name;
        self.last.clear();
        self.last.extend_from_slice(name);
        if forward && self.ended {
            return Ok(());
        }
        if forward && self.stands {
            if self.merged.name() < name {
                self.stands = self.merged.advance()?;
                self.ended = !self.stands;
            }
            if self.ended || self.merged.name() >= name {
                return Ok(());
            }
        }
        self.merged.seek(name)?;
        self.stands = self.merged.advance()?;
        self.ended = !self.stands;
        Ok(())
    }
}
