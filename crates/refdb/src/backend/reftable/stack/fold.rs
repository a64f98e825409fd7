//! Merging what a commit brings with the tables below it, before it is stored.

use std::sync::Arc;

use reftable::Table;
use reftable::compaction::{choose, choose_worthwhile};

use crate::backend::reftable::shared::{Ahead, SharedTables, is_inline};

use super::{
    COMPACT_UNDER_LOCK_MAX, Held, Pending, Snapshot, Stack, is_most_of, may_be_mostly_dead,
};

/// So many times what a commit brings itself may be merged with it under its lock.
const TIMES_MAX: u64 = 8;

/// The same, where a commit changes so much that the whole stack is merged with it.
const WHOLE_TIMES_MAX: u64 = 16;

/// A table is known to weigh between so much and so much before it is encoded.
pub(in crate::backend::reftable) struct Own {
    pub(in crate::backend::reftable) least: u64,
    pub(in crate::backend::reftable) most: u64,
    /// How many deletions it has.
    pub(in crate::backend::reftable) deleted: u64,
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
        pending: &Pending,
    ) -> Option<Pending> {
        if let Some(shared) = self.tables.as_shared() {
            return self.fold_newest(shared, held, pending);
        }
        let (content, added) = (&pending.content, pending.added);
        let below = &held.snapshot.tables;
        let weight = |tables: &[Arc<Table>]| -> u64 { tables.iter().map(|t| t.weight()).sum() };
        let own = content.len() as u64;
        let most = COMPACT_UNDER_LOCK_MAX.max(own.saturating_mul(TIMES_MAX));
        if added.deleted > 0 && weight(below) > most {
            return None;
        }
        let new = Arc::new(self.open_table("", content.clone()).ok()?);
        let tables: Vec<Arc<Table>> = below.iter().cloned().chain([new]).collect();
        let range = self.choose(&tables, added).ok()??;
        let merged = tables.get(range.clone())?;
        let names = held.snapshot.names.get(range.start..)?;
        if range.end != tables.len() || weight(merged) > most {
            return None;
        }
        if self.is_any_claimed(names) {
            return None;
        }
        let options = self.options_of_merge(merged);
        let finished = reftable::compact(merged, range.start == 0, &options, Vec::new()).ok()?;
        (!finished.stats.is_empty()).then_some(Pending {
            content: finished.sink,
            options,
            added,
            replaces: names.len(),
        })
    }

    /// Merges a table with the newest records of a shared store, which are in its head; `None` if there
    /// are none, or if they are a table by now. Deletions stay, for whoever follows the changes.
    fn fold_newest(&self, shared: &SharedTables, held: &Held, new: &Pending) -> Option<Pending> {
        let ahead = shared.stored_ahead(&held.snapshot.stamp).ok()?;
        if ahead.iter().any(Ahead::is_newest) {
            return None;
        }
        is_inline(held.snapshot.names.last()?).then_some(())?;
        let newest = held.snapshot.tables.last()?;
        let table = Arc::new(self.open_table("", new.content.clone()).ok()?);
        let tables = [Arc::clone(newest), table];
        let options = self.options_of_merge(&tables);
        let finished = reftable::compact(&tables, false, &options, Vec::new()).ok()?;
        Some(Pending {
            content: finished.sink,
            options,
            added: new.added,
            replaces: 1,
        })
    }

    /// Returns whether it is worth finding out if every table is merged with one that is not encoded
    /// yet, and changes so many refs.
    pub(in crate::backend::reftable) fn may_fold_whole(
        &self,
        snapshot: &Snapshot,
        count: usize,
    ) -> bool {
        if self.tables.as_shared().is_some() {
            return false;
        }
        let below: u64 = snapshot.tables.iter().map(|table| table.weight()).sum();
        let own_about = (count as u64).saturating_mul(self.object_format.raw_len() as u64);
        let factor = self.options.geometric_factor;
        choose_worthwhile(&[below, own_about], factor).is_some()
    }

    /// Returns whether every table is certain to be merged with one that is not encoded yet, so that
    /// the merged one can be encoded at once.
    pub(in crate::backend::reftable) fn folds_whole(&self, snapshot: &Snapshot, own: &Own) -> bool {
        let weights: Vec<u64> = snapshot.tables.iter().map(|t| t.weight()).collect();
        let below: u64 = weights.iter().sum();
        let limit = COMPACT_UNDER_LOCK_MAX.max(own.least.saturating_mul(WHOLE_TIMES_MAX));
        if below > limit {
            return false;
        }
        let factor = self.options.geometric_factor;
        let whole = Some(0..weights.len() + 1);
        let is_chosen = [own.least, own.most].iter().all(|&own| {
            let weights: Vec<u64> = weights.iter().copied().chain([own]).collect();
            choose(&weights, factor) == whole && choose_worthwhile(&weights, factor) == whole
        });
        // No ref weighs less than its object id: there cannot be more of them.
        let refs_most = below / self.object_format.raw_len() as u64;
        let is_dead = may_be_mostly_dead(below, own.least) && is_most_of(own.deleted, refs_most);
        (is_chosen || is_dead) && !self.is_any_claimed(&snapshot.names)
    }

    fn is_any_claimed(&self, names: &[String]) -> bool {
        let is_claimed = |name: &String| self.tables.is_claimed(name).unwrap_or(true);
        names.iter().any(is_claimed)
    }
}
