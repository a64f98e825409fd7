//! How much the names of a table take when they are spelled out.
//!
//! A name shares its beginning with the one before it: a table of 5 MB could have names of 20 GB, for whoever
//! collects them. Invariant: who adds each name that he reads is told before they take far more than the table.

use crate::error::{Error, Result};
use crate::table::Table;

/// A name of more bytes is a long one, and counts.
const LONG: usize = 1024;

/// All long names may take so many bytes, and so many for each byte of the table.
const MOST: u64 = 64 << 20;
const MOST_FOR_EACH: u64 = 64;

/// How many bytes the long names take that were read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spelled(u64);

impl Spelled {
    /// Counts a name; the block at `offset` has it.
    #[inline]
    pub(crate) fn add(&mut self, name: &[u8], table: &Table, offset: u64) -> Result<()> {
        match name.len() > LONG {
            true => self.add_long(name, table, offset),
            false => Ok(()),
        }
    }

    #[cold]
    fn add_long(&mut self, name: &[u8], table: &Table, offset: u64) -> Result<()> {
        self.0 = self.0.saturating_add(name.len() as u64);
        let most = (table.len_of_file() as u64).saturating_mul(MOST_FOR_EACH);
        match self.0 > most.saturating_add(MOST) {
            true => Err(Error::corrupt(
                offset,
                "the names of the refs are far longer than the table",
            )),
            false => Ok(()),
        }
    }
}
