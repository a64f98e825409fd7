//! Looks through ref blocks for records of certain values. Names are not put together on the way.

use crate::block::Block;
use crate::error::{Error, Result};
use crate::key::split_key;
use crate::record::RefCodec;
use crate::table::Table;
use crate::varint;

/// What is looked for.
pub(crate) struct Wanted<'o> {
    /// Refs that name one of these objects, themselves or as peeled tags. Sorted.
    oids: Vec<&'o [u8]>,
    /// A bit for each value that the lowest six bits of an id's first byte have, which tells most
    /// other ids apart.
    first: u64,
    /// Symrefs as well.
    symrefs: bool,
}

/// Where a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// The offset of its block.
    pub(crate) block: u64,
    /// Where it starts in there.
    pub(crate) at: usize,
}

/// How many blocks are looked through at the same time. Where a record ends is known only when its
/// lengths are read: a processor that waits for those in one block goes on in another.
const LANES: usize = 4;

/// A block that is looked through. Positions are those in the body of the table.
#[derive(Clone, Copy, Default)]
struct Lane {
    start: usize,
    /// Where the next record starts.
    at: usize,
    /// Where the records end.
    end: usize,
}

/// A ref record without its name.
struct Record<'t> {
    /// What its value is.
    extra: u8,
    /// The ids of the value.
    ids: &'t [u8],
    end: usize,
}

/// The longest suffix, in bytes, that is passed over by the short way.
const SUFFIX_MAX: usize = 255;

/// How many bytes the short way looks at: two lengths, the second one of up to two bytes, the suffix,
/// the update index, and the first byte of an id.
const WINDOW: usize = 3 + SUFFIX_MAX + 2;

impl<'o> Wanted<'o> {
    pub(crate) fn new(oids: &[&'o [u8]], symrefs: bool) -> Self {
        let mut oids = oids.to_vec();
        oids.sort_unstable();
        let first = oids.iter().fold(0, |bits, oid| {
            bits | oid.first().map_or(0, |&first| first_bit(first))
        });
        Wanted {
            oids,
            first,
            symrefs,
        }
    }

    /// Returns where the wanted records of some blocks are, in order.
    pub(crate) fn places(
        &self,
        table: &Table,
        mut blocks: impl FnMut() -> Result<Option<Block>>,
    ) -> Result<Vec<Place>> {
        let (body, hash_len) = (table.body(), table.params().hash_len);
        let mut places = Vec::new();
        let mut lanes = [Lane::default(); LANES];
        let mut is_last = false;
        while !is_last {
            for lane in &mut lanes {
                while !is_last && self.unwanted(body, hash_len, lane).is_none() {
                    if self.look(body, hash_len, lane, &mut places)? {
                        continue;
                    }
                    match blocks()? {
                        Some(block) => *lane = Lane::of(&block),
                        None => is_last = true,
                    }
                }
            }
            self.pass(body, hash_len, &mut lanes);
        }
        for lane in &mut lanes {
            loop {
                while let Some(end) = self.unwanted(body, hash_len, lane) {
                    lane.at = end;
                }
                if !self.look(body, hash_len, lane, &mut places)? {
                    break;
                }
            }
        }
        places.sort_unstable();
        Ok(places)
    }

    /// Passes over records of all lanes, until one needs a closer look.
    fn pass(&self, body: &[u8], hash_len: usize, lanes: &mut [Lane; LANES]) {
        loop {
            for lane in &mut *lanes {
                match self.unwanted(body, hash_len, lane) {
                    Some(end) => lane.at = end,
                    None => return,
                }
            }
        }
    }

    /// Returns where the next record of a lane ends, if it is one of those that nearly all are: a ref
    /// of one id, certainly not wanted, with a suffix that is not too long.
    #[inline]
    fn unwanted(&self, body: &[u8], hash_len: usize, lane: &Lane) -> Option<usize> {
        let (id, first) = plain_id(body, lane.at)?;
        let end = id + hash_len;
        (self.first & first_bit(first) == 0 && end <= lane.end).then_some(end)
    }

    /// Takes the next record, and keeps its place if it is wanted; returns whether there was one.
    fn look(
        &self,
        body: &[u8],
        hash_len: usize,
        lane: &mut Lane,
        places: &mut Vec<Place>,
    ) -> Result<bool> {
        if lane.at >= lane.end.min(body.len()) {
            return Ok(false);
        }
        let record = lane.read(body, hash_len)?;
        let is_wanted = match record.extra {
            RefCodec::SYMREF => self.symrefs,
            _ => {
                let mut ids = record.ids.chunks_exact(hash_len);
                ids.any(|id| self.oids.binary_search(&id).is_ok())
            }
        };
        if is_wanted {
            let (block, at) = (lane.start as u64, lane.at - lane.start);
            places.push(Place { block, at });
        }
        lane.at += record.end;
        Ok(true)
    }
}

/// Returns where the id starts, and its first byte, of the record at `at`, if that is one of those that nearly
/// all are: a ref of one id, with a suffix that is not too long.
#[inline]
fn plain_id(body: &[u8], at: usize) -> Option<(usize, u8)> {
    let record = body.get(at..)?.first_chunk::<WINDOW>()?;
    let [prefix_len, tagged, more, ..] = *record;
    let (tagged, suffix) = match tagged {
        0..0x80 => (usize::from(tagged), 2),
        // A length of two bytes has one added to the first.
        0x80..0x8f if more < 0x80 => (usize::from(tagged - 0x7f) << 7 | usize::from(more), 3),
        _ => return None,
    };
    // The suffix is followed by the update index, and that by the id.
    let index = suffix + (tagged >> 3);
    let (update_index, first) = (*record.get(index)?, *record.get(index + 1)?);
    let is_plain =
        tagged & 7 == usize::from(RefCodec::DIRECT) && (prefix_len | update_index) & 0x80 == 0;
    is_plain.then_some((at + index + 1, first))
}

/// Calls `each` with the id of every record of a block that has one id.
pub(crate) fn single_ids(table: &Table, block: &Block, each: &mut impl FnMut(&[u8])) -> Result<()> {
    let (body, hash_len) = (table.body(), table.params().hash_len);
    let mut lane = Lane::of(block);
    while lane.at < lane.end {
        if let Some((id, _)) = plain_id(body, lane.at)
            && id + hash_len <= lane.end
        {
            each(body.get(id..id + hash_len).unwrap_or_default());
            lane.at = id + hash_len;
            continue;
        }
        let record = lane.read(body, hash_len)?;
        if record.extra == RefCodec::DIRECT {
            each(record.ids);
        }
        lane.at += record.end;
    }
    Ok(())
}

impl Lane {
    /// Reads the record that is next.
    fn read<'t>(&self, body: &'t [u8], hash_len: usize) -> Result<Record<'t>> {
        let records = body.get(self.at..self.end).unwrap_or_default();
        Record::read(records, hash_len).ok_or_else(|| {
            let what = "a record cannot be decoded, in a block of type ref";
            Error::corrupt(self.start as u64, what)
        })
    }

    fn of(block: &Block) -> Self {
        let start = usize::try_from(block.offset).unwrap_or(usize::MAX);
        Lane {
            start,
            at: start.saturating_add(block.first),
            end: start.saturating_add(block.end),
        }
    }
}

impl<'t> Record<'t> {
    fn read(records: &'t [u8], hash_len: usize) -> Option<Self> {
        let (_, extra, suffix_at, suffix) = split_key(records)?;
        let index = suffix_at + suffix.len();
        let (_, used) = varint::read(records.get(index..)?)?;
        let at = index + used;
        let ids = match extra {
            RefCodec::DELETION => 0,
            RefCodec::DIRECT => hash_len,
            RefCodec::PEELED => 2 * hash_len,
            RefCodec::SYMREF => {
                let (len, used) = varint::read(records.get(at..)?)?;
                let end = (at + used).checked_add(usize::try_from(len).ok()?)?;
                records.get(..end)?;
                let ids = &[];
                return Some(Record { extra, ids, end });
            }
            _ => return None,
        };
        let end = at + ids;
        let ids = records.get(at..end)?;
        Some(Record { extra, ids, end })
    }
}

#[inline]
fn first_bit(first: u8) -> u64 {
    1 << (first & 63)
}
