//! One block: where its records and restart points are, and the search for a key inside it
//! (docs/format.md, "Blocks").
//!
//! Invariants:
//! 1. A `Block` that exists has its records and its restart table inside its body.
//! 2. The next block always starts behind this one, so that walking over blocks comes to an end.
//! 3. The body of the first block of a file starts at the file's first byte, as its offsets do.

use std::cmp::Ordering;

use crate::error::{Error, Result};
use crate::header::read_be24;
use crate::key::{read_any_key, read_key, split_key};
use crate::record::{Codec, Params};
use crate::short::{self, common_prefix};

/// The type byte and the length that every block starts with.
pub(crate) const HEAD_LEN: usize = 4;
/// The width of one restart offset.
pub(crate) const RESTART_LEN: usize = 3;
/// The width of the number of restart offsets.
pub(crate) const COUNT_LEN: usize = 2;

/// The layout of one block. All positions except the file offsets are relative to the body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub(crate) kind: u8,
    /// Where the block starts in the file; zero for the first one, header included.
    pub(crate) offset: u64,
    /// Where the next block would start in the file.
    pub(crate) next: u64,
    /// The length of the body, uncompressed and without padding.
    pub(crate) len: usize,
    /// Where the first record starts.
    pub(crate) first: usize,
    /// Where the records end and the restart table starts.
    pub(crate) end: usize,
    pub(crate) restart_count: usize,
}

/// The first bytes of a block, read before its body is there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockHead {
    pub(crate) kind: u8,
    pub(crate) len: usize,
    /// Where the first record starts, relative to the body.
    pub(crate) first: usize,
}

impl BlockHead {
    /// Reads the head of the block at `offset`; `None` if the file ends there or a section of
    /// another kind of data starts.
    pub(crate) fn read(data: &[u8], offset: usize, header_len: usize) -> Result<Option<Self>> {
        let skip = if offset == 0 { header_len } else { 0 };
        let Some(&[kind, ref len @ ..]) = data.get(offset + skip..offset + skip + HEAD_LEN) else {
            return Ok(None);
        };
        let first = skip + HEAD_LEN;
        let len = read_be24(len)
            .and_then(|len| usize::try_from(len).ok())
            .unwrap_or_default();
        if !matches!(kind, b'r' | b'o' | b'i' | b'g') {
            return Ok(None);
        }
        if len < first + COUNT_LEN {
            return Err(Error::corrupt(offset as u64, "the block is too short"));
        }
        Ok(Some(BlockHead { kind, len, first }))
    }

    /// Finishes the layout with the help of the body, whatever the restart table says.
    pub(crate) fn layout_any(self, body: &[u8], offset: u64, next: u64) -> Result<Block> {
        let BlockHead { kind, len, first } = self;
        let count = len
            .checked_sub(COUNT_LEN)
            .and_then(|at| body.get(at..len)?.try_into().ok())
            .map(u16::from_be_bytes)
            .ok_or_else(|| Error::corrupt(offset, "the block is longer than the file"))?;
        let restart_count = usize::from(count);
        let end = (len - COUNT_LEN)
            .checked_sub(restart_count * RESTART_LEN)
            .filter(|end| *end >= first)
            .ok_or_else(|| Error::corrupt(offset, "the restart table does not fit the block"))?;
        Ok(Block {
            kind,
            offset,
            next,
            len,
            first,
            end,
            restart_count,
        })
    }

    /// Finishes the layout with the help of the body.
    pub(crate) fn layout(self, body: &[u8], offset: u64, next: u64) -> Result<Block> {
        let block = self.layout_any(body, offset, next)?;
        // A wrong number of restart offsets would cut records off, or take offsets for records.
        if block.restart_count > 0 && !block.starts_first_run(body) {
            return Err(Error::corrupt(
                offset,
                "the restart table does not begin with the first record",
            ));
        }
        Ok(block)
    }
}

/// Where a record that has just been decoded lies in the body.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    /// Where its value starts.
    pub(crate) value: usize,
    /// Where the record after it starts.
    pub(crate) next: usize,
    /// How many bytes its key shares with the one before it.
    pub(crate) shared: usize,
}

/// Records that follow each other: from a position of the body on, at most so many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    pub(crate) from: usize,
    pub(crate) most: usize,
}

/// What has to be known of the key before a record to tell how that compares to a target.
#[derive(Clone, Copy)]
struct Before {
    len: usize,
    /// How many bytes at its start are those of the target.
    shared: usize,
    /// The byte behind them, if it has more.
    next: Option<u8>,
}

impl Before {
    fn new(key: &[u8], target: &[u8]) -> Self {
        let shared = common_prefix(key, target);
        Before {
            len: key.len(),
            shared,
            next: key.get(shared).copied(),
        }
    }

    /// Returns whether this key is less than one that shares so many bytes with the target, and has
    /// `next` behind them where the target has `wanted`; what is out of order would be missed.
    #[inline]
    fn is_less(&self, shared: usize, next: Option<&u8>, wanted: Option<&u8>) -> bool {
        match shared.cmp(&self.shared) {
            Ordering::Less => next > wanted,
            // Where the two share even more, the rest of this key is not known.
            Ordering::Equal => next.is_some() && next >= self.next.as_ref(),
            Ordering::Greater => true,
        }
    }

    /// Leaves the first `len` bytes of the target in `key`, of which it has the first `held`.
    #[inline]
    fn hold(&self, key: &mut Vec<u8>, held: usize, target: &[u8], len: usize) {
        key.truncate(held.min(len));
        short::push(key, target.get(key.len()..len).unwrap_or_default());
    }
}

/// Decodes the value behind the head of a record, which lies at `at`.
#[inline]
fn place<C: Codec>(
    input: &[u8],
    at: usize,
    head: Option<(u8, usize, usize)>,
    codec: &mut C,
    params: Params,
) -> Option<Place> {
    let (extra, used, shared) = head?;
    let value = codec.decode(params, extra, input.get(used..)?)?;
    Some(Place {
        value: at + used,
        next: at + used + value,
        shared,
    })
}

impl Block {
    /// Returns the restart offset with this number.
    pub(crate) fn restart(&self, body: &[u8], index: usize) -> Result<usize> {
        let at = self.end + index * RESTART_LEN;
        body.get(at..at + RESTART_LEN)
            .and_then(read_be24)
            .and_then(|offset| usize::try_from(offset).ok())
            .filter(|offset| (self.first..self.end).contains(offset))
            .ok_or_else(|| self.corrupt("a restart offset points outside the records"))
    }

    /// Returns whether the restart table begins with the first record.
    pub(crate) fn starts_first_run(&self, body: &[u8]) -> bool {
        self.restart_count > 0 && self.restart(body, 0).ok() == Some(self.first)
    }

    /// Returns the key of the record at a restart offset, which is stored in full.
    pub(crate) fn full_key<'a>(&self, body: &'a [u8], at: usize) -> Result<&'a [u8]> {
        match body.get(at..self.end).and_then(split_key) {
            Some((0, _, _, key)) => Ok(key),
            _ => Err(self.corrupt("a record that starts a run has no full key")),
        }
    }

    /// Decodes the record at `at`; `key` holds the key of the record before it.
    #[inline]
    pub(crate) fn read<C: Codec>(
        &self,
        body: &[u8],
        at: usize,
        key: &mut Vec<u8>,
        codec: &mut C,
        params: Params,
    ) -> Result<Place> {
        let input = body.get(at..self.end).unwrap_or_default();
        let head = read_key(input, key);
        place(input, at, head, codec, params).ok_or_else(|| self.not_decoded())
    }

    /// Decodes a record as [`read`](Self::read) does, in whatever order it stands; `None` if that is none.
    pub(crate) fn read_any<C: Codec>(
        &self,
        body: &[u8],
        at: usize,
        key: &mut Vec<u8>,
        codec: &mut C,
        params: Params,
    ) -> Option<Place> {
        let input = body.get(at..self.end)?;
        let head = read_any_key(input, key);
        place(input, at, head, codec, params)
    }

    /// Finds the first record whose key is not less than `target`.
    ///
    /// On success `key` and `codec` hold that record; `None` says that all keys are less. The
    /// search goes on at `from`, the record after the one in `key`, if that saves work; the
    /// caller vouches that the key in `key` is less than the target.
    pub(crate) fn search<C: Codec>(
        &self,
        body: &[u8],
        target: &[u8],
        from: Option<usize>,
        key: &mut Vec<u8>,
        codec: &mut C,
        params: Params,
    ) -> Result<Option<Place>> {
        let mut low = 0;
        let mut high = self.restart_count;
        let mut at = self.first;
        // `at` is the start of the last run whose first key is known to be less than the target.
        while low < high {
            let middle = low + (high - low) / 2;
            let offset = self.restart(body, middle)?;
            if short::is_less(self.full_key(body, offset)?, target) {
                at = offset;
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        match from {
            Some(from) if from > at => at = from,
            _ => key.clear(),
        }
        let rest = Stretch {
            from: at,
            most: usize::MAX,
        };
        let passed = self.pass(body, rest, target, key, codec, params)?;
        Ok(passed.ok())
    }

    /// Passes over records up to the first one whose key is not less than `target`. `key` holds the
    /// key before them, which is less than the target.
    ///
    /// On success `key` and `codec` hold the record found; otherwise the position behind the last
    /// one passed over comes back, and `key` is good for passing on from there to the same target
    /// only. No key that is passed over is put together: how much of the target it begins with, and
    /// what it has there instead, tell how it and those after it compare to the target. Of the rest
    /// only the length is kept: a prefix that is longer than the key before it is damage.
    pub(crate) fn pass<C: Codec>(
        &self,
        body: &[u8],
        stretch: Stretch,
        target: &[u8],
        key: &mut Vec<u8>,
        codec: &mut C,
        params: Params,
    ) -> Result<std::result::Result<Place, usize>> {
        let mut at = stretch.from;
        let mut before = Before::new(key, target);
        let held = before.shared;
        for _ in 0..stretch.most {
            if at >= self.end {
                break;
            }
            let input = body.get(at..self.end).unwrap_or_default();
            let head = split_key(input).filter(|(prefix_len, ..)| *prefix_len <= before.len);
            let Some((prefix_len, extra, suffix_at, suffix)) = head else {
                return Err(self.not_decoded());
            };
            // What shares more with the key before it than that shares with the target is less, too.
            let mut is_found = false;
            if prefix_len <= before.shared {
                let rest = target.get(prefix_len..).unwrap_or_default();
                let common = common_prefix(suffix, rest);
                let (next, wanted) = (suffix.get(common), rest.get(common));
                let shared = prefix_len + common;
                if !before.is_less(shared, next, wanted) {
                    return Err(self.not_decoded());
                }
                is_found = next >= wanted;
                before.shared = shared;
                before.next = next.copied();
            }
            before.len = prefix_len + suffix.len();
            let used = suffix_at + suffix.len();
            let value = input.get(used..);
            let value = value.and_then(|input| codec.decode(params, extra, input));
            let value = value.ok_or_else(|| self.not_decoded())?;
            if is_found {
                before.hold(key, held, target, prefix_len);
                short::push(key, suffix);
                return Ok(Ok(Place {
                    value: at + used,
                    next: at + used + value,
                    shared: prefix_len,
                }));
            }
            at += used + value;
        }
        before.hold(key, held, target, before.shared);
        key.extend(before.next);
        key.resize(before.len, 0);
        Ok(Err(at))
    }

    #[cold]
    fn not_decoded(&self) -> Error {
        self.corrupt("a record cannot be decoded or is out of order")
    }

    #[cold]
    pub(crate) fn corrupt(&self, message: &'static str) -> Error {
        let kind = match self.kind {
            b'r' => "ref",
            b'o' => "object",
            b'i' => "index",
            _ => "log",
        };
        let message = [message, ", in a block of type ", kind].concat();
        Error::corrupt(self.offset, message)
    }
}
