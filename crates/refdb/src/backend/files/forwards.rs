//! Looking names up in packed-refs one after the other.

use reftable::short;

use super::packed::{Record, Snapshot};
use crate::backend::Value;
use crate::error::Result;

/// A search for one name after the other: one that follows the name before it is found near its place.
pub(super) struct Forwards<'s> {
    snapshot: &'s Snapshot,
    last: Vec<u8>,
    /// Where the first record starts that is not less than the last name.
    at: usize,
}

impl<'s> Forwards<'s> {
    pub(super) fn over(snapshot: &'s Snapshot) -> Self {
        Forwards {
            snapshot,
            last: Vec::new(),
            at: snapshot.start(),
        }
    }

    /// Returns the ref of that name.
    ///
    /// # Errors
    /// As for [`Snapshot::find`].
    pub(super) fn find_ref(&mut self, name: &[u8]) -> Result<Option<Value>> {
        let is_ahead = short::compare(name, &self.last).is_ge();
        let from = if is_ahead {
            self.at
        } else {
            self.snapshot.start()
        };
        self.at = self.snapshot.lower_bound(name, from)?;
        self.last.clear();
        short::push(&mut self.last, name);
        let found = self.snapshot.record_if_of(self.at, name)?;
        Ok(found.map(Record::into_ref))
    }
}
