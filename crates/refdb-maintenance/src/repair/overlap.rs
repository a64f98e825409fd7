//! Tables whose update indices are not behind those of the tables before them: what they say together becomes one table,
//! since only so do the indices say again what the order of the list said, which of two is the later one.

use std::path::Path;
use std::sync::Arc;

use refdb::{Error, Result};
use reftable::{Table, WriteOptions};

use super::Plan;
use super::stack::{Member, Stack};

/// A table has three bytes to say how large its blocks are.
const BLOCK_SIZE_MAX: u32 = (1 << 24) - 1;

/// Divides tables, in the order of their list, into groups: one that does not begin behind the end of an earlier one
/// belongs to that, and so does what stands between the two.
pub(super) fn overlapping<T>(tables: Vec<T>, indices: impl Fn(&T) -> (u64, u64)) -> Vec<Vec<T>> {
    let mut groups: Vec<Vec<T>> = Vec::new();
    for table in tables {
        let (min, _) = indices(&table);
        let is_behind = |it: &T| indices(it).1 < min;
        let first = groups.iter().position(|group| !group.iter().all(is_behind));
        let mut joined: Vec<T> = match first {
            Some(first) => groups.drain(first..).flatten().collect(),
            None => Vec::new(),
        };
        joined.push(table);
        groups.push(joined);
    }
    groups
}

impl Plan<'_> {
    /// Merges those tables of a stack whose update indices are not in the order in which they are listed.
    pub(super) fn merge_overlapping(&self, dir: &Path, stack: &mut Stack) -> Result<()> {
        let members = std::mem::take(&mut stack.members);
        let indices = |it: &Member| (it.table.min_update_index(), it.table.max_update_index());
        for group in overlapping(members, indices) {
            let old = group
                .iter()
                .filter(|it| group.len() > 1 && it.new.is_none());
            stack.gone.extend(old.map(|it| dir.join(&it.name)));
            match group.len() {
                1 => stack.members.extend(group),
                _ => {
                    self.add(stack, self.merged(dir, &group)?)?;
                    let last = stack.members.last();
                    let greatest = last.map_or(0, |it| it.table.max_update_index());
                    stack.mixed = stack.mixed.max(greatest);
                }
            }
        }
        Ok(())
    }

    fn merged(&self, dir: &Path, group: &[Member]) -> Result<Vec<u8>> {
        let tables: Vec<Arc<Table>> = group.iter().map(|it| Arc::clone(&it.table)).collect();
        let mut options = WriteOptions::new(self.repository.object_format());
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

#[cfg(test)]
mod tests {
    use super::overlapping;

    #[test]
    fn what_is_not_later_is_one_with_what_stands_between() {
        let groups = |ranges: &[(u64, u64)]| -> Vec<Vec<(u64, u64)>> {
            overlapping(ranges.to_vec(), |range| *range)
        };
        let apart = [(1, 1), (2, 3), (4, 9)];
        assert_eq!(groups(&apart).len(), 3);
        assert_eq!(
            groups(&[(1, 1), (2, 2), (1, 4)]),
            [vec![(1, 1), (2, 2), (1, 4)]]
        );
        assert_eq!(
            groups(&[(1, 1), (2, 3), (1, 1)]),
            [vec![(1, 1), (2, 3), (1, 1)]]
        );
        assert_eq!(
            groups(&[(1, 1), (2, 2), (3, 5), (4, 6), (7, 7)]),
            [
                vec![(1, 1)],
                vec![(2, 2)],
                vec![(3, 5), (4, 6)],
                vec![(7, 7)]
            ]
        );
        let all = [(1, 1), (2, 2), (3, 3), (3, 9), (1, 9)];
        assert_eq!(groups(&all), [all.to_vec()]);
        assert_eq!(
            groups(&[(1, 1), (5, 5), (7, 7), (4, 4), (8, 8)]),
            [vec![(1, 1)], vec![(5, 5), (7, 7), (4, 4)], vec![(8, 8)]]
        );
    }
}
