//! Merging what a commit brings with the tables below it, before it is stored.

use std::sync::Arc;

use reftable::{Table, WriteOptions};

use super::{Added, COMPACT_UNDER_LOCK_MAX, Held, Stack};

/// So many times what a commit brings itself may be merged with it under its lock.
const TIMES_MAX: u64 = 8;

/// A new table that stands for itself and for those on top of the stack.
pub(in crate::backend::reftable) struct Folded {
    pub(in crate::backend::reftable) content: Vec<u8>,
    pub(in crate::backend::reftable) options: WriteOptions,
    /// How many tables it takes the place of.
    pub(in crate::backend::reftable) replaces: usize,
}

impl Stack {
    /// Merges a table that is not stored yet with those that a compaction would merge it with as
    /// soon as it is: one table is stored and one list published instead of two. `None` where that
    /// is to be left to the compaction: it would take long, somebody else is merging one of the
    /// tables, or something is wrong with them, which is no reason to refuse the commit.
    ///
    /// Tables are claimed only by who has the right to publish. While that is held here, a table
    /// that is not claimed stays so.
    pub(in crate::backend::reftable) fn fold(
        &self,
        held: &Held,
        content: &[u8],
        added: Added,
    ) -> Option<Folded> {
        let below = &held.snapshot.tables;
        let weight = |tables: &[Arc<Table>]| -> u64 { tables.iter().map(|t| t.weight()).sum() };
        let own = content.len() as u64;
        let most = COMPACT_UNDER_LOCK_MAX.max(own.saturating_mul(TIMES_MAX));
        if added.deleted > 0 && weight(below) > most {
            return None;
        }
        let new = Arc::new(self.open_table("", content.to_vec()).ok()?);
        let tables: Vec<Arc<Table>> = below.iter().cloned().chain([new]).collect();
        let range = self.choose(&tables, added).ok()??;
        let merged = tables.get(range.clone())?;
        let names = held.snapshot.names.get(range.start..)?;
        if range.end != tables.len() || weight(merged) > most {
            return None;
        }
        let is_claimed = |name: &String| self.tables.is_claimed(name).unwrap_or(true);
        if names.iter().any(is_claimed) {
            return None;
        }
        let options = self.options_of_merge(merged);
        let finished = reftable::compact(merged, range.start == 0, &options, Vec::new()).ok()?;
        (!finished.stats.is_empty()).then_some(Folded {
            content: finished.sink,
            options,
            replaces: names.len(),
        })
    }
}
