//! Fills one block (docs/format.md, "Blocks" and "Writing").
//!
//! Invariants:
//! 1. The bytes so far, the restart table and its count never exceed the block size.
//! 2. Keys strictly increase, also from one block to the next of one section.

use crate::block::{COUNT_LEN, RESTART_LEN};
use crate::header::be24;
use crate::short::{self, common_prefix};
use crate::varint;

/// The most restart points that a block can count.
const RESTARTS_MAX: usize = u16::MAX as usize;

/// A block that is being filled.
pub(super) struct BlockBuilder {
    kind: u8,
    /// The block from its start in the file on: with the file's header in the first block.
    bytes: Vec<u8>,
    /// Where the type byte stands.
    start: usize,
    block_size: usize,
    restart_interval: usize,
    restarts: Vec<usize>,
    entries: usize,
    last_key: Vec<u8>,
}

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// It is in the block.
    Yes,
    /// It does not fit; the block is unchanged.
    Full,
    /// Its key is not greater than the last one; the block is unchanged.
    OutOfOrder,
}

impl BlockBuilder {
    pub(super) fn new(block_size: usize, restart_interval: usize) -> Self {
        BlockBuilder {
            kind: 0,
            bytes: Vec::with_capacity(block_size.min(1 << 16)),
            start: 0,
            block_size,
            restart_interval,
            restarts: Vec::new(),
            entries: 0,
            last_key: Vec::new(),
        }
    }

    /// Starts a section: there is no last key.
    pub(super) fn begin_section(&mut self, kind: u8, header: &[u8]) {
        self.last_key.clear();
        self.begin(kind, header);
    }

    /// Starts a block; `header` is what the file has before it if it is the first one.
    pub(super) fn begin(&mut self, kind: u8, header: &[u8]) {
        self.kind = kind;
        self.bytes.clear();
        self.bytes.extend_from_slice(header);
        self.start = header.len();
        self.bytes.extend_from_slice(&[kind, 0, 0, 0]);
        self.restarts.clear();
        self.entries = 0;
    }

    pub(super) fn kind(&self) -> u8 {
        self.kind
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Adds a record, if it fits. `value` appends the bytes of the value.
    #[inline]
    pub(super) fn add(&mut self, key: &[u8], extra: u8, value: impl FnOnce(&mut Vec<u8>)) -> Added {
        let shared = common_prefix(&self.last_key, key);
        // The key must continue where the last one ends, or be greater where the two part.
        let follows = match (self.last_key.get(shared), key.get(shared)) {
            (Some(last), Some(next)) => next > last,
            (None, Some(_)) => true,
            (_, None) => false,
        };
        if !follows {
            return Added::OutOfOrder;
        }
        let prefix_len = if self.entries.is_multiple_of(self.restart_interval) {
            0
        } else {
            shared
        };
        let (prefix, suffix) = key.split_at(prefix_len);
        // Git makes every record without a prefix a restart point, due or not.
        let is_restart = prefix.is_empty() && self.restarts.len() < RESTARTS_MAX;

        let at = self.bytes.len();
        varint::push(&mut self.bytes, prefix.len() as u64);
        varint::push(
            &mut self.bytes,
            (suffix.len() as u64) << 3 | u64::from(extra),
        );
        short::push(&mut self.bytes, suffix);
        value(&mut self.bytes);
        let restarts = self.restarts.len() + usize::from(is_restart);
        if self.bytes.len() + restarts * RESTART_LEN + COUNT_LEN > self.block_size {
            self.bytes.truncate(at);
            return Added::Full;
        }
        if is_restart {
            self.restarts.push(at);
        }
        self.last_key.truncate(shared);
        short::push(&mut self.last_key, &key[shared..]);
        self.entries += 1;
        Added::Yes
    }

    /// Appends the restart table, fills in the length, and returns the block, where its records
    /// start, and its last key.
    pub(super) fn seal(&mut self) -> (&[u8], usize, &[u8]) {
        for restart in &self.restarts {
            self.bytes.extend_from_slice(&be24(in_block(*restart)));
        }
        let count = u16::try_from(self.restarts.len()).expect("at most RESTARTS_MAX are added");
        self.bytes.extend_from_slice(&count.to_be_bytes());
        let len = be24(in_block(self.bytes.len()));
        self.bytes[self.start + 1..self.start + 4].copy_from_slice(&len);
        (&self.bytes, self.start + 4, &self.last_key)
    }
}

fn in_block(position: usize) -> u32 {
    u32::try_from(position).expect("a block is at most block_size long, which has 24 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_must_increase() {
        let mut block = BlockBuilder::new(256, 16);
        block.begin_section(b'r', &[]);
        assert_eq!(block.add(b"b", 0, |_| {}), Added::Yes);
        assert_eq!(block.add(b"b", 0, |_| {}), Added::OutOfOrder);
        assert_eq!(block.add(b"a", 0, |_| {}), Added::OutOfOrder);
        assert_eq!(block.add(b"", 0, |_| {}), Added::OutOfOrder);
        assert_eq!(block.add(b"ba", 0, |_| {}), Added::Yes);
        block.begin(b'r', &[]);
        assert_eq!(block.add(b"b", 0, |_| {}), Added::OutOfOrder);
    }

    #[test]
    fn a_record_fits_to_the_byte() {
        // Head 4, record 2 + 10, restart 3, count 2.
        for (block_size, added) in [(21, Added::Yes), (20, Added::Full)] {
            let mut block = BlockBuilder::new(block_size, 16);
            block.begin_section(b'r', &[]);
            assert_eq!(block.add(b"0123456789", 0, |_| {}), added);
        }
    }

    #[test]
    fn restarts_are_due_by_count_and_where_nothing_is_shared() {
        let mut block = BlockBuilder::new(256, 2);
        block.begin_section(b'r', &[]);
        for key in [&b"HEAD"[..], b"a", b"ab", b"abc", b"abcd"] {
            assert_eq!(block.add(key, 0, |_| {}), Added::Yes);
        }
        // HEAD is due, `a` shares nothing, `ab` is due, `abc` is neither, `abcd` is due.
        assert_eq!(block.restarts, [4, 10, 13, 20]);
    }
}
