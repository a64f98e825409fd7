//! Merging tables on a shared place: what takes long is done while others commit.
//!
//! 1. An epoch begins: no other maintainer can publish any more.
//! 2. Tables are merged, and stored under names that say the epoch.
//! 3. The list is published with the merged table in their place, if the epoch has not ended and they
//!    still stand side by side. Commits that came meanwhile only mean another try.

use std::ops::Range;

use super::{Snapshot, Stack, locked};
use crate::backend::reftable::shared::{SharedTables, is_inline};
use crate::backend::reftable::tables::{Publication, Stamp};
use crate::error::Result;
use crate::system::Bytes;

/// How many times it is tried beside busy writers.
const TRIES_MAX: usize = 1000;

impl Stack {
    /// Merges tables, if there are many and they are not merged for the next head already.
    pub(super) fn auto_maintain(&self, shared: &SharedTables) -> Result<()> {
        let many = shared.register().settings().tables_many;
        let known = shared.known()?;
        let ahead = shared.stored_ahead(&Stamp::of_generation(known.head.generation))?;
        let is_merged = ahead.iter().any(|it| !it.is_newest());
        match known.head.tables.len() > many && !is_merged {
            true => self.maintain(shared, false),
            false => Ok(()),
        }
    }

    /// Merges tables: all of them, the newest records as well, or those that it is worth for.
    pub(super) fn maintain(&self, shared: &SharedTables, all: bool) -> Result<()> {
        let known = shared.known()?;
        let newest = usize::from(all && !known.head.inline.is_empty());
        if known.head.tables.len() + newest < 2 {
            return Ok(());
        }
        let epoch = shared.register().begin_epoch()?;
        if all {
            self.spill(shared, epoch)?;
        }
        let snapshot = self.snapshot_to_write()?;
        let listed = snapshot.names.iter().filter(|name| !is_inline(name));
        let listed = listed.count();
        let tables = snapshot.tables.iter().take(listed);
        let weights: Vec<u64> = tables.map(|table| table.weight()).collect();
        let chosen = match all {
            true => None,
            false => reftable::compaction::choose(&weights, self.options.geometric_factor),
        };
        self.merge_range(shared, epoch, &snapshot, chosen.unwrap_or(0..listed))
    }

    /// Makes a table of the newest records, so that they can be merged with the others.
    fn spill(&self, shared: &SharedTables, epoch: u64) -> Result<()> {
        self.publish_in(shared, epoch, 0, &mut |now| {
            let (names, tables) = (&now.names, &now.tables);
            let (Some((last, below)), Some(table)) = (names.split_last(), tables.last()) else {
                return Ok(None);
            };
            if !is_inline(last) {
                return Ok(None);
            }
            let Some(content) = shared.known_inline(&now.stamp)? else {
                return Ok(Some(names.clone()));
            };
            let (min, max) = (table.min_update_index(), table.max_update_index());
            let name = shared.new_name(Some(epoch), min, max);
            shared.keep(&name, content);
            let mut names = below.to_vec();
            names.push(name);
            Ok(Some(names))
        })
    }

    fn merge_range(
        &self,
        shared: &SharedTables,
        epoch: u64,
        snapshot: &Snapshot,
        range: Range<usize>,
    ) -> Result<()> {
        let merged = snapshot.tables.get(range.clone()).unwrap_or_default();
        let old = snapshot.names.get(range.clone()).unwrap_or_default();
        if old.len() < 2 {
            return Ok(());
        }
        let to_the_bottom = range.start == 0;
        let options = self.options_of_merge(merged);
        let finished = reftable::compact(merged, to_the_bottom, &options, Vec::new());
        let finished = self.checked(finished)?;
        let (min, max) = (options.min_update_index, options.max_update_index);
        let name = shared.new_name(Some(epoch), min, max);
        let name = (!finished.stats.is_empty()).then_some(name);
        let content = Bytes::from(finished.sink);
        let forgotten = if to_the_bottom { max } else { 0 };
        self.publish_in(shared, epoch, forgotten, &mut |now| {
            let mut windows = now.names.windows(old.len());
            let at = windows.position(|names| names == old);
            let at = at.ok_or_else(locked)?;
            if let Some(name) = &name {
                shared.keep(name, content.clone());
            }
            let mut names = now.names.clone();
            names.splice(at..at + old.len(), name.clone());
            Ok(Some(names))
        })
    }

    /// Publishes the list that `change` makes of the present one, as long as the epoch lasts.
    fn publish_in(
        &self,
        shared: &SharedTables,
        epoch: u64,
        forgotten: u64,
        change: &mut dyn FnMut(&Snapshot) -> Result<Option<Vec<String>>>,
    ) -> Result<()> {
        for _ in 0..TRIES_MAX {
            let now = self.snapshot_to_write()?;
            if shared.known()?.head.epoch != epoch {
                return Err(locked());
            }
            let Some(names) = change(&now)? else {
                return Ok(());
            };
            match shared.swap(&now.stamp, &names, forgotten)? {
                Publication::Done(..) => return Ok(()),
                Publication::Moved => {}
            }
        }
        Err(locked())
    }
}
