//! What is left of a damaged table: why it cannot be opened, and the records of its whole blocks.
//!
//! Invariants:
//! 1. A record is taken only from a block that decodes from its first byte to its last, with a
//!    restart table that fits: of half a block nobody knows which half is the right one.
//! 2. Neither header nor footer is needed: where they are damaged, the caller's knowledge stands
//!    in for them.
//! 3. A ref whose update index is not one of the table's is a ref all the same: Git lists it. It
//!    gets the nearest of the table's when the table is written again.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::block::Block;
use crate::check::{Finding, TableSection};
use crate::error::Result;
use crate::hash::HashId;
use crate::header::{Footer, Header, checksum};
use crate::key::split_key;
use crate::record::{Codec, LogCodec, LogRecord, Params, RefCodec, RefRecord};
use crate::spelled::Spelled;
use crate::table::Table;
use crate::walk::Walk;
use crate::writer::{WriteOptions, Writer};

/// So much is looked through for anything but zeros. A file that is one hole may be of any length.
const ZEROS_MAX: usize = 256 << 20;

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
    let whole_footer = [HashId::Sha1, HashId::Sha256]
        .into_iter()
        .find_map(|hash| footer_start(data, hash));
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
fn footer_start(data: &[u8], hash: HashId) -> Option<usize> {
    let header = Header {
        version: hash.version(),
        hash,
        block_size: 0,
        min_update_index: 0,
        max_update_index: 0,
    };
    let start = data.len().checked_sub(header.footer_len())?;
    let copy = data.get(start..)?;
    let header = Header::decode(copy).ok()?;
    let (fields, sum) = copy.split_at_checked(copy.len().checked_sub(4)?)?;
    let is_whole = sum == checksum(fields).to_be_bytes();
    (header.version == hash.version() && is_whole).then_some(start)
}

/// The records that whole blocks of a table hold; see [`salvage`].
#[derive(Clone, Debug, Default)]
pub struct Salvaged {
    /// The least update index, by the header or as the caller knows it.
    pub min_update_index: u64,
    /// The greatest update index.
    pub max_update_index: u64,
    /// How many blocks with refs or log entries could be read.
    pub blocks: usize,
    /// The file offsets of what could not be read.
    pub lost: Vec<u64>,
    block_size: u32,
    // Keys with the whole record behind them: the extra bits and the value's bytes.
    refs: BTreeMap<Vec<u8>, (RefCodec, Vec<u8>)>,
    logs: BTreeMap<Vec<u8>, (LogCodec, Vec<u8>)>,
    spelled: Spelled,
}

/// Reads what can be read of a table, with or without header and footer.
///
/// `update_indices` stands in for a header that cannot be read: the name of the table says them.
///
/// ```
/// use reftable::{HashId, RefRecord, RefValue, Table, WriteOptions, Writer, salvage};
/// let mut writer = Writer::new(Vec::new(), WriteOptions::new(HashId::Sha1))?;
/// let value = RefValue::Symref(b"refs/heads/main");
/// writer.add_ref(RefRecord { name: b"HEAD", update_index: 1, value })?;
/// let mut bytes = writer.finish()?.sink;
/// let whole = bytes.clone();
/// let footer = bytes.len() - 68;
/// bytes[footer..].fill(0);
/// assert!(Table::open(bytes.clone()).is_err());
/// let salvaged = salvage(bytes, HashId::Sha1, 1..=1);
/// assert_eq!(salvaged.rebuild(HashId::Sha1, |_| true)?, whole);
/// # Ok::<(), reftable::Error>(())
/// ```
#[must_use]
pub fn salvage(data: Vec<u8>, hash: HashId, update_indices: RangeInclusive<u64>) -> Salvaged {
    let stated = Header::decode(&data).ok();
    let footer_copy = footer_start(&data, hash).and_then(|start| data.get(start..));
    let copied = footer_copy.and_then(|copy| Header::decode(copy).ok());
    let header = copied.or(stated.filter(|header| header.hash == hash));
    let header = header.unwrap_or(Header {
        version: hash.version(),
        hash,
        block_size: 4096,
        min_update_index: *update_indices.start(),
        max_update_index: *update_indices.end(),
    });
    read_blocks(data, header)
}

/// As [`salvage`], but believes these update indices rather than the table's header.
#[must_use]
pub fn salvage_as(data: Vec<u8>, hash: HashId, update_indices: RangeInclusive<u64>) -> Salvaged {
    let stated = Header::decode(&data).ok();
    let stated = stated.filter(|header| header.hash == hash);
    let header = Header {
        version: hash.version(),
        hash,
        block_size: stated.map_or(4096, |header| header.block_size),
        min_update_index: *update_indices.start(),
        max_update_index: *update_indices.end(),
    };
    read_blocks(data, header)
}

fn read_blocks(data: Vec<u8>, header: Header) -> Salvaged {
    let hash = header.hash;
    let mut salvaged = Salvaged {
        min_update_index: header.min_update_index,
        max_update_index: header.max_update_index,
        block_size: header.block_size,
        ..Salvaged::default()
    };
    // A footer that is there ends the blocks; one that is not there counts as one more block,
    // which cannot be read.
    let end = footer_start(&data, hash).unwrap_or(data.len());
    let table = Table::without_footer(data, header, end);
    let mut walk = Walk::new(&table);
    loop {
        let at = walk.offset;
        let taken = match walk.next() {
            Ok(None) => break,
            Ok(Some(block)) => salvaged.take(&table, &block, walk.body(&block)).is_some(),
            Err(_) => false,
        };
        if taken {
            continue;
        }
        salvaged.lost.push(at);
        match next_start(&table, at) {
            Some(next) => walk.offset = next,
            None => break,
        }
    }
    // The place where a footer was, or should have been, is no lost block.
    let footer_at = end.saturating_sub(header.footer_len()) as u64;
    if end == table.len_of_file() && salvaged.lost.last() == Some(&footer_at) {
        salvaged.lost.pop();
    }
    salvaged
}

/// Returns where the next block behind `at` may start.
fn next_start(table: &Table, at: u64) -> Option<u64> {
    let body = table.body();
    let from = usize::try_from(at).ok()?.checked_add(1)?;
    let mut inflate = None;
    let mut inflated = Vec::new();
    (from..body.len())
        .filter(|start| matches!(body.get(*start), Some(&(RefCodec::KIND | LogCodec::KIND))))
        .map(|start| start as u64)
        .find(|start| {
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
            Salvaged::default().take(table, &block, body).is_some()
        })
}

impl Salvaged {
    /// Takes the records of a block, all of them or none.
    fn take(&mut self, table: &Table, block: &Block, body: &[u8]) -> Option<()> {
        let params = table.params();
        match block.kind {
            RefCodec::KIND => {
                let spelled = &mut self.spelled;
                let add = |name: &[u8]| spelled.add(name, table, block.offset).ok();
                self.refs
                    .extend(records::<RefCodec>(block, body, params, add)?);
                self.blocks += 1;
            }
            LogCodec::KIND => {
                let logs = records::<LogCodec>(block, body, params, |_| Some(()))?;
                self.logs.extend(logs);
                self.blocks += 1;
            }
            _ => {}
        }
        Some(())
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

    /// Writes a table of these records, without the refs that `keep` turns down.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::EntryTooLarge`](crate::ErrorKind::EntryTooLarge) if a record does not fit.
    pub fn rebuild(&self, hash: HashId, keep: impl Fn(RefRecord<'_>) -> bool) -> Result<Vec<u8>> {
        let mut options = WriteOptions::new(hash);
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
            writer.add_log(codec.record(key, value))?;
        }
        Ok(writer.finish()?.sink)
    }
}

/// Keys with their values.
type Records<C> = Vec<(Vec<u8>, (C, Vec<u8>))>;

/// Decodes a block, which has to be whole; `add` is told of each key, and may end that.
fn records<C: Codec + Default + Clone>(
    block: &Block,
    body: &[u8],
    params: Params,
    mut add: impl FnMut(&[u8]) -> Option<()>,
) -> Option<Records<C>> {
    let mut records = Vec::new();
    let mut full_keys = Vec::new();
    let mut codec = C::default();
    let mut key = Vec::new();
    let mut at = block.first;
    while at < block.end {
        if body.get(at..).and_then(split_key)?.0 == 0 {
            full_keys.push(at);
        }
        let place = block.read(body, at, &mut key, &mut codec, params).ok()?;
        add(&key)?;
        let value = body.get(place.value..place.next)?.to_vec();
        records.push((key.clone(), (codec.clone(), value)));
        at = place.next;
    }
    let mut last = None;
    for index in 0..block.restart_count {
        let restart = block.restart(body, index).ok()?;
        let in_order = last.is_none_or(|last| last < restart);
        if !in_order || full_keys.binary_search(&restart).is_err() {
            return None;
        }
        last = Some(restart);
    }
    (last.is_some() && !records.is_empty()).then_some(records)
}
