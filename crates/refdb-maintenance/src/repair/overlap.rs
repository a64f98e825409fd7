//! Tables with update indices in common: what they say together becomes one table, since only so do the indices
//! say again which of two is the later one.

use std::path::Path;
use std::sync::Arc;

use refdb::{Error, Result};
use reftable::{Table, WriteOptions};

use super::Plan;
use super::stack::{Member, Stack};

/// A table has three bytes to say how large its blocks are.
const BLOCK_SIZE_MAX: u32 = (1 << 24) - 1;

impl Plan<'_> {
    /// Merges those tables of a stack that have update indices in common, in the order in which they are listed.
    pub(super) fn merge_overlapping(&self, dir: &Path, stack: &mut Stack) -> Result<()> {
        let members = std::mem::take(&mut stack.members);
        let mut groups: Vec<Vec<Member>> = Vec::new();
        let mut last = None;
        for member in members {
            let (min, max) = (
                member.table.min_update_index(),
                member.table.max_update_index(),
            );
            match groups.last_mut() {
                Some(group) if Some(min) <= last => group.push(member),
                _ => groups.push(vec![member]),
            }
            last = last.max(Some(max));
        }
        for group in groups {
            let old = group
                .iter()
                .filter(|it| group.len() > 1 && it.new.is_none());
            stack.gone.extend(old.map(|it| dir.join(&it.name)));
            match group.len() {
                1 => stack.members.extend(group),
                _ => self.add(stack, self.merged(dir, &group)?)?,
            }
        }
        Ok(())
    }

    fn merged(&self, dir: &Path, group: &[Member]) -> Result<Vec<u8>> {
        let tables: Vec<Arc<Table>> = group.iter().map(|it| Arc::clone(&it.table)).collect();
        let mut options = WriteOptions::new(self.hash());
        let usual = self.repository.store().options().reftable.block_size;
        let sizes = tables.iter().map(|table| table.block_size());
        options.block_size = sizes.fold(usual, u32::max);
        // What they hide may be in older tables.
        let merged = match reftable::compact(&tables, false, &options, Vec::new()) {
            // Each record has to find room in a block; some tables do not say how large theirs are.
            Err(error) if error.kind() == reftable::ErrorKind::EntryTooLarge => {
                options.block_size = BLOCK_SIZE_MAX;
                reftable::compact(&tables, false, &options, Vec::new())
            }
            merged => merged,
        };
        let merged = merged.map_err(|error| Error::corrupt(dir, error))?;
        Ok(merged.sink)
    }
}
