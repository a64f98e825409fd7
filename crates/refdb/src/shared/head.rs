//! The head: the one object that changes. It names the tables, oldest first, and holds the newest records
//! as a table of its own.
//!
//! Numbers are little-endian; a text is its length in two bytes and its bytes. The last eight bytes are a
//! CRC-64 of all before: it is there for accidents. Who may write to the place can write anything.

use std::ops::Range;
use std::sync::LazyLock;

use crc::{CRC_64_XZ, Crc, Table};
use refdb_names::ObjectFormat;

use super::{TableKey, Version};
use crate::error::{Error, Result};
use crate::system::Bytes;

const MAGIC: &[u8; 8] = b"refdbhd1";

/// By sixteen bytes at a time, since a table may have tens of megabytes. What that takes is made when it is needed,
/// and on the heap: in the program it would be 32 KB.
static CRC: LazyLock<Box<Crc<u64, Table<16>>>> =
    LazyLock::new(|| Box::new(Crc::<u64, Table<16>>::new(&CRC_64_XZ)));

/// How long a head may be, in bytes.
pub const HEAD_LEN_MAX: usize = 256 << 10;

/// How many bytes of newest records a head may hold; what is more becomes a table.
pub const INLINE_LEN_MAX: usize = 64 << 10;

/// How many it may hold until the next head, while they are stored as a table.
pub const INLINE_AHEAD_MAX: usize = 2 * INLINE_LEN_MAX;

/// How many tables a head names at most.
pub const TABLES_MAX: usize = 64;

/// How many commits are known by their ids.
pub const RECENT_MAX: usize = 512;

/// How many tables are remembered that were dropped lately.
pub const DROPPED_MAX: usize = 1000;

/// How many slots there may be.
pub const SLOTS_MAX: u32 = 64;

/// How long texts in a head may be, in bytes.
const TEXT_LEN_MAX: usize = 1024;

/// Generation and epoch, which go on one by one, are not greater: what is added to them does not come to an end.
const NUMBER_MAX: u64 = 1 << 62;

/// Returns the checksum that heads and lists of tables have.
///
/// ```
/// assert_eq!(refdb::shared::head::checksum(b"123456789"), 0x995d_c9bb_df19_39fa);
/// ```
pub fn checksum(content: &[u8]) -> u64 {
    CRC.checksum(content)
}

/// The state of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Which store it is.
    pub uuid: u128,
    /// How objects are named. It never changes.
    pub object_format: ObjectFormat,
    /// How many slots take turns. It never changes.
    pub slot_count: u32,
    /// How many times the head was replaced before.
    pub generation: u64,
    /// The greatest update index so far.
    pub index: u64,
    /// Deletions with a greater index are still recorded.
    pub complete_since: u64,
    /// The present maintainer.
    pub epoch: u64,
    /// Who keeps the store as it is, and why; `None` while it is open.
    pub frozen: Option<String>,
    /// The ids of the last commits, the newest first: that of generation `g - n` is at `n`.
    pub recent: Vec<u64>,
    /// The tables, oldest first.
    pub tables: Vec<TableEntry>,
    /// The tables that were dropped lately, the newest first.
    pub dropped: Vec<Dropped>,
    /// The versions of the generations before, the newest first: of as many as there are other slots.
    pub slots: Vec<Version>,
    /// The newest records, a whole table; empty if there are none.
    pub inline: Bytes,
}

/// A table that a head names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableEntry {
    /// Its name, and what that says.
    pub key: TableKey,
    /// How many bytes it has.
    pub len: u64,
    /// Its checksum.
    pub checksum: u64,
}

impl TableEntry {
    /// Returns whether this is the content of the table: it has its length and its checksum.
    ///
    /// ```
    /// use refdb::shared::head::{TableEntry, checksum};
    /// let key = "0x000000000001-0x000000000001-70a0facc70a0facc.ref".parse().unwrap();
    /// let entry = TableEntry { key, len: 3, checksum: checksum(b"abc") };
    /// assert!(entry.is_of(b"abc") && !entry.is_of(b"abd"));
    /// ```
    pub fn is_of(&self, content: &[u8]) -> bool {
        content.len() as u64 == self.len && checksum(content) == self.checksum
    }

    /// Returns what to ask for in order to have all of it: one byte more than there is, which would show that it
    /// has grown, and no more, whatever has its place.
    pub fn range(&self) -> Range<u64> {
        0..self.len.saturating_add(1)
    }
}

/// A table that no head names any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Its name.
    pub key: TableKey,
    /// The first generation without it.
    pub generation: u64,
    /// When, in seconds since 1970, by the clock of who dropped it: only readers that are slow gain by it.
    pub time: u64,
}

impl Head {
    /// Returns what the other slots hold, the newest first: the slot, its generation and its version.
    pub fn others(&self) -> impl Iterator<Item = (u32, u64, &Version)> {
        let before = (0..self.generation).rev().zip(&self.slots);
        before.map(|(generation, version)| {
            let slot = generation % u64::from(self.slot_count);
            (u32::try_from(slot).unwrap_or_default(), generation, version)
        })
    }

    /// Returns the generation that the next one replaces: 0 as well where it is the first in its slot.
    pub fn generation_of_next_slot(&self) -> u64 {
        (self.generation + 1).saturating_sub(u64::from(self.slot_count))
    }

    /// Returns the head as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.inline.len() + 8192);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&self.uuid.to_le_bytes());
        let is_sha256 = self.object_format == ObjectFormat::Sha256;
        put(
            &mut out,
            u64::from(is_sha256) << 32 | u64::from(self.slot_count),
        );
        for number in [self.generation, self.index, self.complete_since, self.epoch] {
            put(&mut out, number);
        }
        out.push(u8::from(self.frozen.is_some()));
        put_text(&mut out, self.frozen.as_deref().unwrap_or_default());
        put_len(&mut out, self.recent.len());
        self.recent.iter().for_each(|id| put(&mut out, *id));
        put_len(&mut out, self.tables.len());
        for table in &self.tables {
            put_text(&mut out, &table.key.to_string());
            put(&mut out, table.len);
            put(&mut out, table.checksum);
        }
        put_len(&mut out, self.dropped.len());
        for dropped in &self.dropped {
            put_text(&mut out, &dropped.key.to_string());
            put(&mut out, dropped.generation);
            put(&mut out, dropped.time);
        }
        put_len(&mut out, self.slots.len());
        self.slots.iter().for_each(|it| put_text(&mut out, &it.0));
        put_len(&mut out, self.inline.len());
        out.extend_from_slice(&self.inline);
        let sum = checksum(&out);
        put(&mut out, sum);
        out
    }

    /// Reads a head, which `place` names in errors.
    ///
    /// # Errors
    /// `Corrupt` for anything that [`Head::encode`] does not write.
    pub fn decode(content: &Bytes, place: &str) -> Result<Head> {
        let corrupt = |what: &str| Error::corrupt_store(place, what);
        if content.len() > HEAD_LEN_MAX {
            return Err(corrupt("the head of the store is too long"));
        }
        if !content.starts_with(MAGIC) {
            return Err(corrupt(
                "this is not the head of a store, or that of a later version of refdb",
            ));
        }
        let Some((body, sum)) = content.split_last_chunk::<8>() else {
            return Err(corrupt("the head of the store is cut off"));
        };
        if checksum(body) != u64::from_le_bytes(*sum) {
            return Err(corrupt("the checksum of the head of the store is wrong"));
        }
        let mut input = Input {
            whole: content,
            rest: body.get(MAGIC.len()..).unwrap_or_default(),
        };
        let head = input.head();
        head.filter(Head::makes_sense)
            .ok_or_else(|| corrupt("the head of the store makes no sense"))
    }

    /// Returns the first head of a store, in which there is nothing yet; `commit` is the id of what made it.
    pub fn first(uuid: u128, object_format: ObjectFormat, slot_count: u32, commit: u64) -> Head {
        Head {
            uuid,
            object_format,
            slot_count,
            generation: 0,
            index: 0,
            complete_since: 0,
            epoch: 0,
            frozen: None,
            recent: vec![commit],
            tables: Vec::new(),
            dropped: Vec::new(),
            slots: Vec::new(),
            inline: Bytes::new(),
        }
    }

    /// Returns whether the tables follow each other and the lists have their lengths.
    fn makes_sense(&self) -> bool {
        let mut before = 0;
        let follow = self.tables.iter().all(|table| {
            let follows = table.key.min > before || before == 0;
            before = table.key.max;
            follows
        });
        follow
            && before <= self.index
            && [self.generation, self.epoch]
                .iter()
                .all(|number| *number <= NUMBER_MAX)
            && self.complete_since <= self.index
            && self.recent.len() <= RECENT_MAX
            && self.tables.len() <= TABLES_MAX
            && self.dropped.len() <= DROPPED_MAX
            && (1..=SLOTS_MAX).contains(&self.slot_count)
            && self.slots.len() < self.slot_count as usize
    }
}

fn put(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_len(out: &mut Vec<u8>, len: usize) {
    put(out, len as u64);
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    // Texts are checked where they come in; a longer one would be cut between two characters.
    let mut len = text.len().min(TEXT_LEN_MAX);
    while !text.is_char_boundary(len) {
        len -= 1;
    }
    out.extend_from_slice(&u16::try_from(len).unwrap_or(u16::MAX).to_le_bytes());
    out.extend_from_slice(text.get(..len).unwrap_or_default().as_bytes());
}

/// Bytes that are still to be read.
struct Input<'i> {
    whole: &'i Bytes,
    rest: &'i [u8],
}

impl<'i> Input<'i> {
    fn head(&mut self) -> Option<Head> {
        let uuid = u128::from_le_bytes(self.take(16)?.try_into().ok()?);
        let shape = self.number()?;
        let object_format = match shape >> 32 {
            0 => ObjectFormat::Sha1,
            1 => ObjectFormat::Sha256,
            _ => return None,
        };
        let slot_count = u32::try_from(shape & u64::from(u32::MAX)).ok()?;
        let (generation, index) = (self.number()?, self.number()?);
        let (complete_since, epoch) = (self.number()?, self.number()?);
        let is_frozen = match self.take(1)? {
            [0] => false,
            [1] => true,
            _ => return None,
        };
        let reason = self.text()?.to_owned();
        let head = Head {
            uuid,
            object_format,
            slot_count,
            generation,
            index,
            complete_since,
            epoch,
            frozen: is_frozen.then_some(reason),
            recent: self.many(RECENT_MAX, Input::number)?,
            tables: self.many(TABLES_MAX, |input| {
                Some(TableEntry {
                    key: input.text()?.parse().ok()?,
                    len: input.number()?,
                    checksum: input.number()?,
                })
            })?,
            dropped: self.many(DROPPED_MAX, |input| {
                Some(Dropped {
                    key: input.text()?.parse().ok()?,
                    generation: input.number()?,
                    time: input.number()?,
                })
            })?,
            slots: self.many(SLOTS_MAX as usize, |input| {
                Some(Version(input.text()?.to_owned()))
            })?,
            inline: {
                let len = usize::try_from(self.number()?).ok()?;
                let inline = self.take(len)?;
                self.whole.slice_ref(inline)
            },
        };
        self.rest.is_empty().then_some(head)
    }

    fn many<T>(
        &mut self,
        most: usize,
        one: impl Fn(&mut Input<'i>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let count = usize::try_from(self.number()?).ok()?;
        if count > most {
            return None;
        }
        (0..count).map(|_| one(self)).collect()
    }

    fn take(&mut self, len: usize) -> Option<&'i [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn text(&mut self) -> Option<&'i str> {
        let len = u16::from_le_bytes(self.take(2)?.try_into().ok()?);
        std::str::from_utf8(self.take(usize::from(len))?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Head {
        let key = |min, max| TableKey {
            epoch: (min == 1).then_some(7),
            min,
            max,
            random: 5,
        };
        Head {
            uuid: 3,
            object_format: ObjectFormat::Sha256,
            slot_count: 2,
            generation: 9,
            index: 30,
            complete_since: 10,
            epoch: 7,
            frozen: Some("by ann: moving".into()),
            recent: vec![1, 2, 3],
            tables: vec![
                TableEntry {
                    key: key(1, 10),
                    len: 5,
                    checksum: 6,
                },
                TableEntry {
                    key: key(11, 20),
                    len: 50,
                    checksum: 60,
                },
            ],
            dropped: vec![Dropped {
                key: key(1, 4),
                generation: 8,
                time: 1_700_000_000,
            }],
            slots: vec![Version("\"etag\"".into())],
            inline: Bytes::from_static(b"a table"),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let mut head = some();
        for _ in 0..2 {
            let content = Bytes::from(head.encode());
            assert_eq!(Head::decode(&content, "x").unwrap(), head);
            (head.frozen, head.object_format) = (None, ObjectFormat::Sha1);
        }
    }

    #[test]
    fn damage_is_told_and_nothing_panics() {
        let good = some().encode();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(Head::decode(&Bytes::from(bad), "x").is_err(), "byte {at}");
            let cut = Bytes::copy_from_slice(&good[..at]);
            assert!(Head::decode(&cut, "x").is_err(), "cut at {at}");
            // With a checksum that is right, it is the content that must be looked at.
            let mut forged = good[..good.len() - 8].to_vec();
            if let Some(byte) = forged.get_mut(at) {
                *byte = 0xff;
                let sum = checksum(&forged);
                put(&mut forged, sum);
                let _ = Head::decode(&Bytes::from(forged), "x");
            }
        }
        let error = Head::decode(&Bytes::from_static(b"<html>"), "s3://b").unwrap_err();
        assert!(error.to_string().starts_with("s3://b: "), "{error}");
    }

    #[test]
    fn tables_that_do_not_follow_each_other_make_no_sense() {
        let mut head = some();
        head.tables.swap(0, 1);
        let content = Bytes::from(head.encode());
        assert!(Head::decode(&content, "x").is_err());
    }

    #[test]
    fn numbers_with_nothing_behind_them_make_no_sense() {
        for number in [u64::MAX, u64::MAX - 1, NUMBER_MAX + 1, NUMBER_MAX] {
            for (generation, epoch) in [(number, 1), (1, number)] {
                let head = Head {
                    generation,
                    epoch,
                    ..some()
                };
                let found = Head::decode(&Bytes::from(head.encode()), "x");
                assert_eq!(found.is_ok(), number == NUMBER_MAX, "{number}");
            }
        }
    }

    #[test]
    fn the_largest_head_fits() {
        let mut head = some();
        let table = head.tables.pop().unwrap();
        let dropped = head.dropped.pop().unwrap();
        head.tables = (0..TABLES_MAX)
            .map(|at| {
                let mut table = table.clone();
                table.key.min = at as u64 * 2 + 1;
                table.key.max = at as u64 * 2 + 2;
                table.key.epoch = Some(u64::MAX);
                table
            })
            .collect();
        head.index = u64::MAX;
        head.dropped = vec![dropped; DROPPED_MAX];
        head.recent = vec![u64::MAX; RECENT_MAX];
        head.slots = vec![Version("v".repeat(TEXT_LEN_MAX)); SLOTS_MAX as usize - 1];
        head.frozen = Some("y".repeat(TEXT_LEN_MAX));
        head.inline = Bytes::from(vec![0; INLINE_AHEAD_MAX]);
        let content = head.encode();
        // The versions of a real place are short; 64 of the longest texts would not matter.
        assert!(content.len() <= HEAD_LEN_MAX + (SLOTS_MAX as usize) * TEXT_LEN_MAX);
        head.slots = vec![Version("v".repeat(128)); 15];
        assert!(head.encode().len() <= HEAD_LEN_MAX);
    }
}
