//! Storing tables while the head is replaced, for the next head to name: a busy writer waits for one request where
//! it would wait for several, one after the other.
//!
//! 1. Such a table says the same as what a head has: the newest records that are in it, or some of its tables. So to
//!    name it in their place changes no ref.
//! 2. It has the name of a merged one of the present epoch. Whoever collects ends that epoch first; then no head
//!    names it any more.
//! 3. It is named only in place of what it was made of, byte by byte and side by side, however many heads there were
//!    in between, and whatever became of the one beside which it was stored.

use std::ops::Range;
use std::sync::Arc;
use std::thread;

use reftable::Table;

use super::{Held, Publish, Stack};
use crate::backend::reftable::shared::{Ahead, InsteadOf, SharedTables, is_inline, key_of};
use crate::error::Result;
use crate::shared::TableKey;
use crate::shared::head::Head;
use crate::system::Bytes;
use crate::system::beside;

/// Tables that weigh more together are not merged beside a commit, which would wait for them.
const WEIGHT_MAX: u64 = 4 << 20;

type Work<'w> = Box<dyn FnOnce() + Send + 'w>;

impl Stack {
    /// Publishes a list that has a new table on top, and what was stored ahead in place of what it says the same as.
    /// Meanwhile it stores what the next list may name.
    pub(super) fn publish_beside(
        &self,
        shared: &SharedTables,
        held: &mut Held,
        mut names: Vec<String>,
        mut tables: Vec<Arc<Table>>,
    ) -> Result<Publish> {
        let new: Vec<String> = names.last().cloned().into_iter().collect();
        for ahead in shared.stored_ahead(&held.snapshot.stamp)? {
            if let Some(place) = place_of(&ahead, &names) {
                names.splice(place.clone(), [ahead.name()]);
                tables.splice(place, [ahead.table]);
            }
        }
        let below = names.split_last().map_or(&[][..], |(_, below)| below);
        if below.iter().any(|name| is_inline(name)) {
            // They were a table, and are none any more.
            self.discard(&new);
            return Ok(Publish::Moved);
        }
        let head = &shared.known()?.head;
        let newest = self.newest_ahead(shared, head, &names);
        let merged = self.merge_ahead(shared, head, below, &tables);
        let works = [newest, merged].into_iter().flatten();
        if !shared.register().shared().is_far() {
            works.for_each(|work| work());
            return self.publish(held, names, tables, &new);
        }
        thread::scope(|scope| {
            for work in works {
                // Where no thread is to be had, nothing is stored ahead.
                let _ = beside::start(scope, work);
            }
            self.publish(held, names, tables, &new)
        })
    }

    /// Returns how to store the newest records, if they are too many to stay in the head for long.
    fn newest_ahead<'w>(
        &self,
        shared: &'w SharedTables,
        head: &Head,
        names: &[String],
    ) -> Option<Work<'w>> {
        let name = names.last()?;
        let content = shared.kept(name)?;
        if !shared.waits_in_head(content.len(), head) {
            return None;
        }
        let table = self.open_table(name, content.clone()).ok()?;
        let epoch = head.epoch;
        Some(Box::new(move || {
            let instead_of = InsteadOf::Newest(content.clone());
            shared.store_ahead(&content, table, instead_of, epoch);
        }))
    }

    /// Returns how to merge tables, if there are many.
    fn merge_ahead<'w>(
        &self,
        shared: &'w SharedTables,
        head: &Head,
        below: &[String],
        tables: &[Arc<Table>],
    ) -> Option<Work<'w>> {
        let register = shared.register();
        if below.len() <= register.settings().tables_many || !register.is_busy(head) {
            return None;
        }
        let weights: Vec<u64> = tables.iter().map(|table| table.weight()).collect();
        let weights = weights.get(..below.len())?;
        let chosen = reftable::compaction::choose(weights, self.options.geometric_factor);
        let range = chosen.unwrap_or(0..below.len());
        let keys = below.get(range.clone())?.iter().map(|name| key_of(name));
        let keys: Vec<TableKey> = keys.collect::<Result<_>>().ok()?;
        let weight: u64 = weights.get(range.clone())?.iter().sum();
        if keys.len() < 2 || weight > WEIGHT_MAX {
            return None;
        }
        let to_the_bottom = range.start == 0;
        let merged = tables.get(range)?.to_vec();
        let (epoch, options) = (head.epoch, self.options_of_merge(&merged));
        Some(Box::new(move || {
            let finished = reftable::compact(&merged, to_the_bottom, &options, Vec::new());
            let Some(finished) = finished.ok().filter(|it| !it.stats.is_empty()) else {
                return;
            };
            let content = Bytes::from(finished.sink);
            let Ok(table) = Table::open(content.clone()) else {
                return;
            };
            let forgotten = if to_the_bottom {
                options.max_update_index
            } else {
                0
            };
            let instead_of = InsteadOf::Tables(keys, forgotten);
            shared.store_ahead(&content, table, instead_of, epoch);
        }))
    }
}

/// Returns which tables of a list one stands for that was stored ahead.
fn place_of(ahead: &Ahead, names: &[String]) -> Option<Range<usize>> {
    match &ahead.instead_of {
        InsteadOf::Newest(_) => {
            let below = names.len().checked_sub(2)?;
            is_inline(names.get(below)?).then_some(below..below + 1)
        }
        InsteadOf::Tables(keys, _) => {
            let keys: Vec<String> = keys.iter().map(TableKey::to_string).collect();
            let at = names.windows(keys.len()).position(|names| names == keys)?;
            Some(at..at + keys.len())
        }
    }
}
