//! Finding names in packed-refs, whose records are in order.

use std::ops::Range;
use std::sync::atomic::Ordering;

use refdb_names::ObjectId;
use reftable::short;

use super::packed::{Record, Snapshot};
use crate::backend::Value;
use crate::backend::tags::{Distinct, TAGS};
use crate::error::Result;

/// A search is far from the last one if it ends so many bytes before or behind it.
const FAR: usize = 1 << 14;

impl Snapshot {
    /// Returns the values of the refs below `refs/tags/` without a peeled value. What is damaged there is told by
    /// those who read the refs themselves.
    ///
    /// # Errors
    /// As for [`Snapshot::lower_bound`].
    pub(super) fn tags_without_peeled(&self) -> Result<Vec<ObjectId>> {
        let hex_len = self.hex_len();
        let mut ids = Distinct::new(hex_len);
        let mut at = self.lower_bound(TAGS, self.start())?;
        while let Some(name) = self.name_if_any(at)
            && self.slice(&name).starts_with(TAGS)
        {
            let next = name.end + 1;
            if self.content().get(next) == Some(&b'^') {
                at = self.after(name.end);
                continue;
            }
            ids.add(self.slice(&(at..at + hex_len)));
            at = next;
        }
        Ok(ids.read(ObjectId::from_hex))
    }

    /// Returns where the first record starts whose name is `name` or greater, looking from the
    /// record at `from` on: near records are found in fewer steps than far ones.
    ///
    /// # Errors
    /// `Corrupt` when the search meets a line that is no record.
    pub(super) fn lower_bound(&self, name: &[u8], from: usize) -> Result<usize> {
        let (mut low, mut high, mut step) = (from, self.len(), 256);
        let is_less = |found: &Range<usize>| short::compare(self.slice(found), name).is_lt();
        let hint = self.hint.load(Ordering::Relaxed);
        // What is damaged there is told by those who come there by themselves.
        if (from..self.len()).contains(&hint)
            && let Some(found) = self.name_if_any(hint)
        {
            if is_less(&found) {
                low = self.after(found.end);
            } else if hint == from {
                return Ok(hint);
            } else {
                high = self.record_start(hint - 1, from);
                // Most names that are not there come right before it.
                if self.name_if_any(high).is_some_and(|found| is_less(&found)) {
                    return Ok(hint);
                }
            }
        }
        // Steps that grow find what is near; what is not, halves find in fewer.
        while low < high && !self.is_far.load(Ordering::Relaxed) {
            let probe = low.saturating_add(step);
            if probe >= high {
                break;
            }
            let start = self.record_start(probe, low);
            let found = self.name_at(start)?;
            if is_less(&found) {
                low = self.after(found.end);
                step = step.saturating_mul(4);
            } else {
                high = start;
                break;
            }
        }
        while low < high {
            let start = self.record_start(low + (high - low) / 2, low);
            let found = self.name_at(start)?;
            if is_less(&found) {
                low = self.after(found.end);
            } else {
                high = start;
            }
        }
        self.is_far
            .store(low.abs_diff(hint) > FAR, Ordering::Relaxed);
        self.hint.store(low, Ordering::Relaxed);
        Ok(low)
    }

    /// Returns the record of `name`.
    ///
    /// # Errors
    /// `Corrupt` when the search meets a line that is no record.
    pub(super) fn find(&self, name: &[u8]) -> Result<Option<Record>> {
        let at = self.lower_bound(name, self.start())?;
        self.record_if_of(at, name)
    }

    /// Returns the record at `at`, if it is that of `name`.
    ///
    /// # Errors
    /// `Corrupt` when there is no record.
    pub(super) fn record_if_of(&self, at: usize, name: &[u8]) -> Result<Option<Record>> {
        if at >= self.len() {
            return Ok(None);
        }
        let found = self.name_at(at)?;
        if self.slice(&found) == name {
            self.record(at).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Returns the ref of that name.
    ///
    /// # Errors
    /// As for [`Snapshot::find`].
    pub(super) fn find_ref(&self, name: &[u8]) -> Result<Option<Value>> {
        Ok(self.find(name)?.map(Record::into_ref))
    }
}
