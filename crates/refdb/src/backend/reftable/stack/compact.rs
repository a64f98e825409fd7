//! Compaction of a stack in a directory: which tables, and how.

use std::ops::Range;
use std::sync::Arc;

use reftable::Table;

use super::{
    Added, COMPACT_UNDER_LOCK_MAX, Held, Publish, Stack, is_most_of, locked, may_be_mostly_dead,
};
use crate::backend::reftable::tables::{Claim, NewTable};
use crate::error::{Error, ErrorKind, Result};
use crate::options::LockTimeout;

impl Stack {
    /// Compacts what is worth compacting.
    ///
    /// # Errors
    /// `Locked` when somebody else is at it, which is fine after a commit.
    pub(in crate::backend::reftable) fn auto_compact(&self, added: Added) -> Result<()> {
        if let Some(shared) = self.tables.as_shared() {
            return self.auto_maintain(shared);
        }
        let Some(snapshot) = self.cached() else {
            return Ok(());
        };
        if self.choose(&snapshot.tables, added)?.is_none() {
            return Ok(());
        }
        let held = self.hold(LockTimeout::from_millis(0))?;
        match self.choose(&held.snapshot.tables, added)? {
            Some(range) => self.compact(held, range, true),
            None => Ok(()),
        }
    }

    /// Returns the tables that are worth merging: by the sizes alone, as Git chooses unless that
    /// means to rewrite much for little, or all of them if the last commit left more dead records
    /// than live ones.
    pub(super) fn choose(
        &self,
        tables: &[Arc<Table>],
        added: Added,
    ) -> Result<Option<Range<usize>>> {
        let count = tables.len();
        if count > 1 && added.deleted > 0 && self.is_mostly_dead(tables, added.deleted)? {
            return Ok(Some(0..count));
        }
        let weights: Vec<u64> = tables.iter().map(|table| table.weight()).collect();
        let factor = self.options.geometric_factor;
        let chosen = reftable::compaction::choose(&weights, factor);
        let weight = |range: &Range<usize>| {
            weights
                .get(range.clone())?
                .iter()
                .copied()
                .reduce(u64::saturating_add)
        };
        match chosen.as_ref().and_then(weight) {
            Some(weight) if weight > COMPACT_UNDER_LOCK_MAX => {
                Ok(reftable::compaction::choose_worthwhile(&weights, factor))
            }
            _ => Ok(chosen),
        }
    }

    /// Returns whether `deleted` records, the deletions of the newest table, are more than half of
    /// those below, in a stack that is too large to be read through for every ref. Counting reads
    /// every table, so it is done only if the deletions weigh enough to make that likely.
    fn is_mostly_dead(&self, tables: &[Arc<Table>], deleted: u64) -> Result<bool> {
        let Some((newest, below)) = tables.split_last() else {
            return Ok(false);
        };
        let weight: u64 = below.iter().map(|table| table.weight()).sum();
        if !may_be_mostly_dead(weight, newest.weight()) {
            return Ok(false);
        }
        let mut records = reftable::MergedRefs::new(below.to_vec());
        let mut count: u64 = 0;
        while self.checked(records.advance())? {
            count += 1;
        }
        Ok(is_most_of(deleted, count))
    }

    /// Merges all tables into one.
    pub(in crate::backend::reftable) fn compact_all(&self) -> Result<()> {
        if let Some(shared) = self.tables.as_shared() {
            return self.maintain(shared, true);
        }
        let held = self.hold(self.options.lock_timeout)?;
        let count = held.snapshot.tables.len();
        match count > 1 {
            true => self.compact(held, 0..count, false),
            false => Ok(()),
        }
    }

    /// Merges a range of tables into one: claim them, newest first, merge without the right to
    /// publish unless it is quick, publish, drop.
    fn compact(&self, held: Held, mut range: Range<usize>, best_effort: bool) -> Result<()> {
        let snapshot = Arc::clone(&held.snapshot);
        let mut claims: Vec<Box<dyn Claim>> = Vec::new();
        for at in range.clone().rev() {
            match self.tables.claim(&snapshot.names[at]) {
                Ok(claim) => claims.push(claim),
                // Somebody is merging this one; what is newer can still be merged.
                Err(error)
                    if error.kind() == ErrorKind::Locked && best_effort && claims.len() >= 2 =>
                {
                    range.start = at + 1;
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        let merged = &snapshot.tables[range.clone()];
        let weight: u64 = merged.iter().map(|table| table.weight()).sum();
        let held = (weight <= COMPACT_UNDER_LOCK_MAX).then_some(held);
        let (name, is_empty) = self.merge(merged, range.start == 0)?;
        let mut held = match held {
            Some(held) => held,
            None => self.hold(self.options.lock_timeout)?,
        };
        held.hold.stay()?;
        // Others may have added tables meanwhile, or compacted others; ours were claimed.
        let old = &snapshot.names[range.clone()];
        let now = Arc::clone(&held.snapshot);
        let Some(at) = now.names.windows(old.len()).position(|names| names == old) else {
            drop(name);
            return Err(locked());
        };
        let mut names = now.names.clone();
        let mut tables = now.tables.clone();
        let (mut new_names, mut new_tables) = (Vec::new(), Vec::new());
        if !is_empty {
            let name = name.finish(self)?;
            let table = self.reopen(&name);
            if table.is_err() {
                self.discard([&name]);
            }
            new_tables.push(Arc::new(table?));
            new_names.push(name);
        }
        names.splice(at..at + old.len(), new_names.clone());
        tables.splice(at..at + old.len(), new_tables);
        match self.publish(&mut held, names, tables, &new_names)? {
            Publish::Moved => return Err(locked()),
            // The old list may come back after a power failure: its tables have to stay.
            Publish::Done {
                unsynced: Some(error),
            } => return Err(error),
            // The claims go first: a process that dies has both, and whoever takes over the one
            // takes over the others, or its merge took long, and the tables are claimed by others.
            Publish::Done { unsynced: None } => drop((claims, held)),
        }
        self.discard(old);
        Ok(())
    }

    fn merge(&self, tables: &[Arc<Table>], to_the_bottom: bool) -> Result<(Merged, bool)> {
        let options = self.options_of_merge(tables);
        let name = self.new_name(options.min_update_index, options.max_update_index);
        let file = self.tables.create(&name)?;
        let sink = std::io::BufWriter::with_capacity(256 * 1024, file);
        let finished = self.checked(reftable::compact(tables, to_the_bottom, &options, sink))?;
        let is_empty = finished.stats.is_empty();
        let file = finished.sink;
        Ok((Merged { name, file }, is_empty))
    }
}

/// A merged table that is written and not yet named.
struct Merged {
    name: String,
    file: std::io::BufWriter<Box<dyn NewTable>>,
}

impl Merged {
    fn finish(self, stack: &Stack) -> Result<String> {
        let file = self.file.into_inner().map_err(|error| {
            Error::io(
                "cannot write",
                &stack.tables.path_of(&self.name),
                error.into_error(),
            )
        })?;
        file.finish()?;
        Ok(self.name)
    }
}
