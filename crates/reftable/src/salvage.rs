//! What is left of a damaged table: why it cannot be opened, and the records of its whole blocks and runs.
//!
//! Invariants:
//! 1. A record is taken only from a block that decodes from its first byte to its last. Either its names are in order or
//!    its restart table fits; where both are wrong, or a block is only guessed to begin, what decodes may be none. Of a
//!    block of refs that does not decode, those runs are taken that do, from one restart offset to the next: by these
//!    offsets readers look up names. Of half a run nobody knows which half is the right one.
//! 2. Neither header nor footer is needed: where they are damaged, the caller's knowledge stands
//!    in for them.
//! 3. A ref whose update index is not one of the table's is a ref all the same: Git lists it. It
//!    gets the nearest of the table's when the table is written again.
//! 4. The block size, which may be unknown or wrong, leads past no block: the next one begins behind
//!    the zeros. It only tells how many zeros are padding, and from where on they are a lost block.
//! 5. Of a name that stands there twice the first value counts, and a deletion last: Git lists all values, and looks up
//!    the one or the other, by where the restart offsets are.

mod records;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use crate::block::{Block, HEAD_LEN};
use crate::check::{Finding, TableSection};
use crate::error::Result;
use crate::header::{BLOCK_LEN_MAX, Footer, Header, MAGIC, checksum};
use crate::object_format::ObjectFormat;
use crate::record::{Codec, IndexCodec, LogCodec, LogRecord, RefCodec, RefRecord};
use crate::spelled::Spelled;
use crate::table::Table;
use crate::walk::Walk;
use crate::writer::{WriteOptions, Writer};
use records::{records, whole_runs};

/// So much is looked through for anything but zeros. A file that is one hole may be of any length.
const ZEROS_MAX: usize = 256 << 20;

/// So many times the length of the file is looked at in vain for blocks: somebody may have made one in which each byte
/// seems to begin one.
const TRIED_MAX: usize = 64;

/// The block size, or more, of what is written again where nothing says what it was.
const BLOCK_SIZE_MIN: usize = 4096;

/// Says why [`Table::open`] refuses these bytes, and where; `None` if it does not.
///
/// Where header and footer disagree, the checksum tells which of them is damaged.
///
/// ```
/// use reftable::{TableSection, diagnose};
/// let finding = diagnose(b"REFX").expect("that is no table");
/// assert_eq!((finding.section, finding.offset), (TableSection::Header, 0));
/// ```
#[must_use]
pub fn diagnose(data: &[u8]) -> Option<Finding> {
    let find = |section, offset, what: String| {
        Some(Finding {
            section,
            offset,
            what,
        })
    };
    let whole_footer = [ObjectFormat::Sha1, ObjectFormat::Sha256]
        .into_iter()
        .find_map(|object_format| footer_start(data, object_format));
    let header = match Header::decode(data) {
        Ok(header) => header,
        Err(_) if data.is_empty() => {
            return find(TableSection::Header, 0, "the file is empty".to_owned());
        }
        Err(_) if data.len() <= ZEROS_MAX && data.iter().all(|byte| *byte == 0) => {
            let what = "the file holds nothing but zeros, as after a power failure".to_owned();
            return find(TableSection::Header, 0, what);
        }
        Err(error) => {
            let offset = error.offset().unwrap_or_default();
            return find(TableSection::Header, offset, error.to_string());
        }
    };
    let error = Footer::decode(data, &header).err()?;
    if let Some(start) = whole_footer {
        let footer = data.get(start..).unwrap_or_default();
        let same = footer.iter().zip(data).take_while(|(a, b)| a == b).count();
        let what = "the header differs from its copy in the footer".to_owned();
        return find(TableSection::Header, same as u64, what);
    }
    let start = data.len().saturating_sub(header.footer_len());
    let footer = data.get(start..).unwrap_or_default();
    if footer.iter().all(|byte| *byte == 0) {
        let what = "the footer was never written: zeros stand in its place".to_owned();
        return find(TableSection::Footer, start as u64, what);
    }
    find(
        TableSection::Footer,
        error.offset().unwrap_or(start as u64),
        error.to_string(),
    )
}

/// Returns where the footer starts, if it is one of a table of that hash with the right checksum.
fn footer_start(data: &[u8], object_format: ObjectFormat) -> Option<usize> {
    let header = Header {
        version: object_format.table_version(),
        object_format,
        block_size: 0,
        min_update_index: 0,
        max_update_index: 0,
    };
    let start = data.len().checked_sub(header.footer_len())?;
    let copy = data.get(start..)?;
    let header = Header::decode(copy).ok()?;
    let (fields, sum) = copy.split_at_checked(copy.len().checked_sub(4)?)?;
    let is_whole = sum == checksum(fields).to_be_bytes();
    (header.version == object_format.table_version() && is_whole).then_some(start)
}

/// The records that whole blocks of a table hold, and whole runs of the others; see [`salvage`].
#[derive(Clone, Debug, Default)]
pub struct Salvaged {
    /// The least update index, by the header or as the caller knows it.
    pub min_update_index: u64,
    /// The greatest update index.
    pub max_update_index: u64,
    /// How many blocks with refs or log entries could be read, in whole or in part.
    pub blocks: usize,
    /// The file offsets of what could not be read, or not in whole.
    pub lost: Vec<u64>,
    block_size: u32,
    // Keys with the whole record behind them: the extra bits and the value's bytes.
    refs: BTreeMap<Vec<u8>, (RefCodec, Vec<u8>)>,
    logs: BTreeMap<Vec<u8>, (LogCodec, Vec<u8>)>,
    doubled: BTreeSet<Vec<u8>>,
    spelled: Spelled,
}

/// Reads what can be read of a table, with or without header and footer.
///
/// `update_indices` stands in for a header that cannot be read: the name of the table says them.
///
/// ```
/// use reftable::{ObjectFormat, RefRecord, RefValue, Table, WriteOptions, Writer, salvage};
/// let mut writer = Writer::new(Vec::new(), WriteOptions::new(ObjectFormat::Sha1))?;
/// let value = RefValue::Symref(b"refs/heads/main");
/// writer.add_ref(RefRecord { name: b"HEAD", update_index: 1, value })?;
/// let mut bytes = writer.finish()?.sink;
/// let whole = bytes.clone();
/// let footer = bytes.len() - 68;
/// bytes[footer..].fill(0);
/// assert!(Table::open(bytes.clone()).is_err());
/// let salvaged = salvage(bytes, ObjectFormat::Sha1, 1..=1);
/// assert_eq!(salvaged.rebuild(ObjectFormat::Sha1, |_| true)?, whole);
/// # Ok::<(), reftable::Error>(())
/// ```
#[must_use]
pub fn salvage(
    data: Vec<u8>,
    object_format: ObjectFormat,
    update_indices: RangeInclusive<u64>,
) -> Salvaged {
    let stated = stated_header(&data, object_format);
    let header = stated.unwrap_or_else(|| assumed_header(object_format, &update_indices));
    read_blocks(data, header, stated.map(|header| header.block_size))
}

/// As [`salvage`], but believes these update indices rather than the table's header.
#[must_use]
pub fn salvage_as(
    data: Vec<u8>,
    object_format: ObjectFormat,
    update_indices: RangeInclusive<u64>,
) -> Salvaged {
    let stated = stated_header(&data, object_format);
    let header = assumed_header(object_format, &update_indices);
    read_blocks(data, header, stated.map(|header| header.block_size))
}

/// Returns the header, rather as the footer repeats it: there a checksum vouches for it.
fn stated_header(data: &[u8], object_format: ObjectFormat) -> Option<Header> {
    let copy =
        footer_start(data, object_format).and_then(|start| Header::decode(data.get(start..)?).ok());
    copy.or(Header::decode(data).ok())
        .filter(|header| header.object_format == object_format)
}

/// Returns a header of which only this is known.
fn assumed_header(object_format: ObjectFormat, update_indices: &RangeInclusive<u64>) -> Header {
    Header {
        version: object_format.table_version(),
        object_format,
        block_size: 0,
        min_update_index: *update_indices.start(),
        max_update_index: *update_indices.end(),
    }
}

/// Where a block that could be read lies in the file.
struct Span {
    kind: u8,
    start: u64,
    end: u64,
    /// Where the zeros behind it end: the next block, or something else.
    next: u64,
}

fn read_blocks(data: Vec<u8>, header: Header, block_size: Option<u32>) -> Salvaged {
    let mut salvaged = Salvaged {
        min_update_index: header.min_update_index,
        max_update_index: header.max_update_index,
        ..Salvaged::default()
    };
    let end = footer_start(&data, header.object_format).unwrap_or(data.len());
    // Without a block size, a block ends where its own bytes do.
    let unpadded = Header {
        block_size: 0,
        ..header
    };
    let table = Table::without_footer(data, unpadded, end);
    let mut walk = Walk::new(&table);
    let (mut spans, mut longest) = (Vec::new(), 0);
    let (mut lost, mut torn) = (BTreeSet::new(), BTreeSet::new());
    let mut budget = TRIED_MAX.saturating_mul(table.body().len());
    loop {
        let at = walk.offset;
        let block = match walk.next() {
            Ok(None) => break,
            Ok(Some(block)) => {
                let taken = salvaged.take(&table, &block, walk.body(&block), Start::Known);
                torn.extend((taken == Some(Taken::InPart)).then_some(at));
                taken.map(|_| block)
            }
            Err(_) => None,
        };
        if let Some(block) = block {
            walk.offset = behind_zeros(table.body(), block.next);
            longest = longest.max(block.len);
            spans.push(Span {
                kind: block.kind,
                start: block.offset,
                end: block.next,
                next: walk.offset,
            });
            continue;
        }
        let next = next_start(&table, at, &mut budget);
        // Of JGit, log blocks that begin a file do not count the header as theirs.
        if next != Some(table.header_len() as u64) {
            lost.insert(at);
        }
        match next {
            Some(next) => walk.offset = next,
            None => break,
        }
    }
    let padded_to = block_size.map_or_else(|| block_size_of(&spans), u64::from);
    settle(&mut lost, &spans, &table, padded_to);
    lost.append(&mut torn);
    salvaged.lost = lost.into_iter().collect();
    // A size that is less than a block of refs has is none.
    let refs = spans.iter().filter(|span| span.kind == RefCodec::KIND);
    let least = refs.map(|span| span.end - span.start).max();
    let fits = |size: &u32| *size == 0 || least <= Some(u64::from(*size));
    salvaged.block_size = block_size.filter(fits).unwrap_or_else(|| {
        // What was in one block, each record has to find room in, be it the first block.
        let size = BLOCK_SIZE_MIN.max(longest + table.header_len());
        u32::try_from(size).map_or(BLOCK_LEN_MAX, |size| size.min(BLOCK_LEN_MAX))
    });
    salvaged
}

/// Returns the place of the first byte from `from` on that is not zero, or the end.
fn behind_zeros(body: &[u8], from: u64) -> u64 {
    let rest = usize::try_from(from).ok().and_then(|from| body.get(from..));
    let zeros = rest.map(|rest| rest.iter().take_while(|byte| **byte == 0).count());
    from + zeros.unwrap_or_default() as u64
}

/// Returns the block size by which these blocks lie where they do; 0 if there is none, or no telling.
fn block_size_of(spans: &[Span]) -> u64 {
    let (mut step, mut before) = (0, None::<&Span>);
    for span in spans {
        let padded = before.filter(|it| it.kind != LogCodec::KIND && it.end < it.next);
        let distance = match span.kind {
            LogCodec::KIND => 0,
            // Behind log blocks, which have any length, it starts anywhere, and JGit does not pad it.
            IndexCodec::KIND => padded
                .filter(|before| before.next == span.start)
                .map_or(0, |before| span.start - before.start),
            _ => span.start,
        };
        step = greatest_divisor(step, distance);
        before = Some(span);
    }
    // It is a divisor of this step, and no block is longer. An index may be: JGit's.
    let lens = spans.iter().filter(|span| span.kind != LogCodec::KIND);
    let lens = lens
        .map(|span| span.end - span.start)
        .filter(|len| *len <= step);
    let fullest = lens.max().unwrap_or_default();
    // Of two neighbours that found no room in one block, one fills more than half of it.
    (fullest..2 * fullest)
        .find(|size| step.is_multiple_of(*size))
        .unwrap_or_default()
}

/// Returns the greatest number that divides both.
fn greatest_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Adds the places of blocks that are nothing but zeros now, and takes out that of a footer.
fn settle(lost: &mut BTreeSet<u64>, spans: &[Span], table: &Table, block_size: u64) {
    let header_len = table.header_len() as u64;
    let footer = footer_place(table, spans.last(), lost.last().copied());
    lost.retain(|at| (*at).max(header_len) < footer);
    let followers = spans.iter().skip(1).map(Some).chain([None]);
    for (span, follower) in spans.iter().zip(followers) {
        let follower = follower.filter(|follower| follower.start == span.next);
        let mut place = span.end;
        if span.kind != LogCodec::KIND && block_size > 0 {
            place = span.start + (span.end - span.start).next_multiple_of(block_size);
        }
        let zeros_end = span.next.min(footer);
        // Neither before a log block nor before the footer is there padding; what cannot be read
        // may be a block that has it, where such a block would start.
        let is_padding = match follower {
            Some(follower) => follower.kind != LogCodec::KIND,
            None => zeros_end < footer && zeros_end == place,
        };
        if place >= zeros_end && !is_padding {
            place = span.end;
        }
        if place < zeros_end {
            // If it was not all zeros, its rest was told already.
            lost.remove(&span.next);
            lost.insert(place);
        }
    }
}

/// Returns where the footer starts, or what is left of it: that is no lost block.
fn footer_place(table: &Table, last: Option<&Span>, unread: Option<u64>) -> u64 {
    let (body, header_len) = (table.body(), table.header_len() as u64);
    let end = body.len() as u64;
    if body.len() < table.len_of_file() {
        return end;
    }
    let from = |at| usize::try_from(at).ok().and_then(|at| body.get(at..));
    let behind = last.map_or(header_len, |last| last.end);
    let footer_len = table.footer_len();
    let rest = from(behind).unwrap_or_default();
    let is_zeros = || rest.iter().all(|byte| *byte == 0);
    if rest.len() == footer_len || (rest.len() < footer_len && is_zeros()) {
        return behind;
    }
    // It begins as the header does, which no block does.
    let unread = unread.unwrap_or_default().max(behind);
    let is_footer =
        |rest: &[u8]| !rest.is_empty() && rest.iter().zip(MAGIC).all(|(byte, magic)| byte == magic);
    match from(unread).is_some_and(is_footer) {
        true => unread,
        false => end,
    }
}

/// Returns where the next block behind `at` may start. No more bytes are looked at in vain than `budget` says.
fn next_start(table: &Table, at: u64, budget: &mut usize) -> Option<u64> {
    let body = table.body();
    let from = usize::try_from(at).ok()?.checked_add(1)?;
    let mut inflate = None;
    let mut inflated = Vec::new();
    (from..body.len())
        .filter(|start| match body.get(*start) {
            Some(&RefCodec::KIND) => true,
            // Names are full of this letter, and to inflate takes memory for what a length says.
            Some(&LogCodec::KIND) => body.get(start + HEAD_LEN..).is_some_and(is_deflated),
            _ => false,
        })
        .map(|start| start as u64)
        .find(|start| {
            if *budget == 0 {
                return false;
            }
            let block = match body.get(usize::try_from(*start).unwrap_or_default()) {
                Some(&RefCodec::KIND) => table.block(*start, RefCodec::KIND),
                _ => table.log_block(*start, &mut inflate, &mut inflated),
            };
            let Ok(Some(block)) = block else {
                return false;
            };
            let body = match block.kind {
                LogCodec::KIND => inflated.as_slice(),
                _ => table.block_body(&block),
            };
            // Every writer makes one for the first record.
            if !block.starts_first_run(body) {
                return false;
            }
            let taken = Salvaged::default().take(table, &block, body, Start::Guessed);
            let is_block = taken.is_some();
            if !is_block {
                *budget = budget.saturating_sub(block.len);
            }
            is_block
        })
}

/// Returns whether a zlib stream may begin with these bytes (RFC 1950, 2.2).
fn is_deflated(bytes: &[u8]) -> bool {
    let head = bytes.first_chunk().map(|head| u16::from_be_bytes(*head));
    head.is_some_and(|head| head >> 8 & 0xf == 8 && head.is_multiple_of(31))
}

/// How it is known that a block starts somewhere.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    /// The one before it ends there.
    Known,
    /// The bytes look like it.
    Guessed,
}

/// What was taken of a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    Whole,
    InPart,
}

impl Salvaged {
    /// Takes the records of a block: all of them, those of its whole runs, or none.
    fn take(&mut self, table: &Table, block: &Block, body: &[u8], start: Start) -> Option<Taken> {
        let mut taken = Taken::Whole;
        // An update index that no number can hold is no reason to lose the refs beside it.
        let mut params = table.params();
        let min = std::mem::take(&mut params.min_update_index);
        match block.kind {
            RefCodec::KIND => {
                let spelled = &mut self.spelled;
                let mut add = |name: &[u8]| spelled.add(name, table, block.offset).ok();
                let whole = records::<RefCodec>(block, body, params, start, &mut add);
                let found = match whole {
                    Some(whole) => whole,
                    None if start == Start::Known => {
                        taken = Taken::InPart;
                        whole_runs::<RefCodec>(block, body, params, &mut add)?
                    }
                    None => return None,
                };
                for (name, mut new) in found {
                    new.0.update_index = new.0.update_index.saturating_add(min);
                    self.take_ref(name, new);
                }
                self.blocks += 1;
            }
            LogCodec::KIND => {
                for (key, new) in
                    records::<LogCodec>(block, body, params, start, &mut |_| Some(()))?
                {
                    put(&mut self.logs, key, new, LogCodec::is_deletion);
                }
                self.blocks += 1;
            }
            _ => {}
        }
        Some(taken)
    }

    fn take_ref(&mut self, name: Vec<u8>, new: (RefCodec, Vec<u8>)) {
        if let Some((codec, value)) = self.refs.get(&name)
            && codec.record(&name, value).value != new.0.record(&name, &new.1).value
        {
            self.doubled.insert(name.clone());
        }
        put(&mut self.refs, name, new, RefCodec::is_deletion);
    }

    /// Returns the names that stand there twice, with different values.
    pub fn doubled(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.doubled.iter().map(Vec::as_slice)
    }

    /// Calls `each` for the refs, in the order of their names.
    pub fn for_each_ref(&self, mut each: impl FnMut(RefRecord<'_>)) {
        for (name, (codec, value)) in &self.refs {
            each(codec.record(name, value));
        }
    }

    /// Calls `each` for the log entries, in the order of a table.
    pub fn for_each_log(&self, mut each: impl FnMut(LogRecord<'_>)) {
        for (key, (codec, value)) in &self.logs {
            each(codec.record(key, value));
        }
    }

    /// Returns whether the update index of each ref is one of the table's.
    #[must_use]
    pub fn is_within(&self) -> bool {
        let of_table = self.min_update_index..=self.max_update_index;
        let mut codecs = self.refs.values().map(|(codec, _)| codec);
        codecs.all(|codec| of_table.contains(&codec.update_index))
    }

    /// Returns whether nothing could be read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.refs.is_empty() && self.logs.is_empty()
    }

    /// Returns how many log entries have an update index above the greatest one of the table, which no writer lets
    /// them have, and the greatest one of all entries.
    #[must_use]
    pub fn logs_above(&self) -> (usize, u64) {
        let (mut count, mut greatest) = (0, 0);
        self.for_each_log(|record| {
            count += usize::from(record.update_index > self.max_update_index);
            greatest = record.update_index.max(greatest);
        });
        (count, greatest)
    }

    /// Writes a table of these records, without the refs that `keep` turns down, and without log entries
    /// [above](Self::logs_above) the table. Refs that are outside get the nearest update index of it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::EntryTooLarge`](crate::ErrorKind::EntryTooLarge) if a record does not fit.
    pub fn rebuild(
        &self,
        object_format: ObjectFormat,
        keep: impl Fn(RefRecord<'_>) -> bool,
    ) -> Result<Vec<u8>> {
        let mut options = WriteOptions::new(object_format);
        options.block_size = self.block_size;
        options.min_update_index = self.min_update_index;
        options.max_update_index = self.max_update_index.max(self.min_update_index);
        let (min, max) = (options.min_update_index, options.max_update_index);
        let mut writer = Writer::new(Vec::new(), options)?;
        for (name, (codec, value)) in &self.refs {
            let mut record = codec.record(name, value);
            record.update_index = record.update_index.clamp(min, max);
            if keep(record) {
                writer.add_ref(record)?;
            }
        }
        for (key, (codec, value)) in &self.logs {
            let record = codec.record(key, value);
            if record.update_index <= max {
                writer.add_log(record)?;
            }
        }
        Ok(writer.finish()?.sink)
    }
}

/// Adds a record; of one key the first counts that is no deletion.
fn put<C>(
    records: &mut BTreeMap<Vec<u8>, (C, Vec<u8>)>,
    key: Vec<u8>,
    new: (C, Vec<u8>),
    is_deletion: impl Fn(&C) -> bool,
) {
    match records.entry(key) {
        Entry::Vacant(place) => drop(place.insert(new)),
        Entry::Occupied(mut one) if is_deletion(&one.get().0) => drop(one.insert(new)),
        Entry::Occupied(_) => {}
    }
}
