//! Checks every invariant of one table, block by block and record by record.
//!
//! Readers trust much of what is checked here, for speed: the order of keys, the index, the object
//! section. A table that passes is one that every lookup agrees with every scan about.

use std::fmt;

use crate::block::Block;
use crate::error::{Error, Result};
use crate::header::{Footer, Header};
use crate::key::split_key;
use crate::record::{Codec, IndexCodec, LogCodec, ObjectCodec, RefCodec, RefValue, split_log_key};
use crate::spelled::Spelled;
use crate::table::Table;
use crate::walk::Walk;

/// The part of a table that a finding concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum TableSection {
    /// The header.
    Header,
    /// The ref blocks.
    Refs,
    /// The index over the ref blocks.
    RefIndex,
    /// The object blocks.
    Objects,
    /// The index over the object blocks.
    ObjectIndex,
    /// The log blocks.
    Logs,
    /// The index over the log blocks.
    LogIndex,
    /// The footer.
    Footer,
}

impl fmt::Display for TableSection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TableSection::Header => "header",
            TableSection::Refs => "refs",
            TableSection::RefIndex => "ref index",
            TableSection::Objects => "objects",
            TableSection::ObjectIndex => "object index",
            TableSection::Logs => "logs",
            TableSection::LogIndex => "log index",
            TableSection::Footer => "footer",
        })
    }
}

/// Something that is wrong with a table.
///
/// ```
/// # use reftable::*;
/// # let mut writer = Writer::new(Vec::new(), WriteOptions::new(ObjectFormat::Sha1))?;
/// # let value = RefValue::Symref(b"refs/heads/main");
/// # writer.add_ref(RefRecord { name: b"HEAD", update_index: 1, value })?;
/// let mut bytes = writer.finish()?.sink;
/// bytes[53] = 29; // The restart offset.
/// let findings = check(&Table::open(bytes)?);
/// assert_eq!(findings[0].section, TableSection::Refs);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where it is, by part.
    pub section: TableSection,
    /// Where it is, by file offset in bytes.
    pub offset: u64,
    /// What it is.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} (at offset {})",
            self.section, self.what, self.offset
        )
    }
}

/// Checks everything about a table that can be checked without other tables, and returns what is
/// wrong, in file order as far as possible. An empty list is a sound table.
#[must_use]
pub fn check(table: &Table) -> Vec<Finding> {
    let mut checker = Checker {
        table,
        findings: Vec::new(),
        section: TableSection::Header,
        blocks: Vec::new(),
        entries: Vec::new(),
        mentions: Vec::new(),
        objects: Vec::new(),
        last_key: Vec::new(),
        spelled: Spelled::default(),
    };
    checker.run();
    checker.findings
}

struct Checker<'a> {
    table: &'a Table,
    findings: Vec<Finding>,
    /// The section of the block that is being checked.
    section: TableSection,
    blocks: Vec<SeenBlock>,
    /// The index records in file order.
    entries: Vec<Entry>,
    /// The object ids that refs name, and the offsets of the ref blocks.
    mentions: Vec<(Vec<u8>, u64)>,
    /// The object records: abbreviated id, offset of the record's block, offsets of ref blocks.
    objects: Vec<(Vec<u8>, u64, Option<Vec<u64>>)>,
    /// The last key of the section so far.
    last_key: Vec<u8>,
    spelled: Spelled,
}

/// A block that has been walked over.
struct SeenBlock {
    section: TableSection,
    offset: u64,
    last_key: Vec<u8>,
}

/// An index record.
struct Entry {
    /// The offset of the block that has it.
    within: u64,
    key: Vec<u8>,
    child: u64,
}

impl Checker<'_> {
    fn find(&mut self, offset: u64, what: impl Into<String>) {
        self.findings.push(Finding {
            section: self.section,
            offset,
            what: what.into(),
        });
    }

    fn find_error(&mut self, error: &Error) {
        self.find(error.offset().unwrap_or_default(), error.to_string());
    }

    fn run(&mut self) {
        let table = self.table;
        if table.min_update_index() > table.max_update_index() {
            self.find(8, "the least update index is above the greatest one");
        }
        let mut walk = Walk::new(table);
        let complete = loop {
            match walk.next() {
                Ok(Some(block)) => {
                    self.enter(block.kind, block.offset);
                    let body = walk.body(&block);
                    if let Err(error) = self.check_block(&block, body) {
                        self.find_error(&error);
                    }
                    self.check_len(&block);
                    self.check_padding(&block);
                }
                Ok(None) => break true,
                Err(error) => {
                    if let Ok(Some(head)) = table.head(walk.offset) {
                        self.enter(head.kind, walk.offset);
                    }
                    self.find_error(&error);
                    break false;
                }
            }
        };
        // After a block that cannot be read everything below would be found missing.
        if complete {
            for (data, index) in [
                (TableSection::Refs, TableSection::RefIndex),
                (TableSection::Objects, TableSection::ObjectIndex),
                (TableSection::Logs, TableSection::LogIndex),
            ] {
                self.check_index(data, index);
            }
            self.check_objects();
            self.check_footer();
        }
    }

    /// Finds out to which section the block of that kind at `offset` belongs.
    fn enter(&mut self, kind: u8, offset: u64) {
        let before = self.section;
        let section = match (kind, before) {
            (RefCodec::KIND, _) => TableSection::Refs,
            (ObjectCodec::KIND, _) => TableSection::Objects,
            (LogCodec::KIND, _) => TableSection::Logs,
            (_, TableSection::Objects | TableSection::ObjectIndex) => TableSection::ObjectIndex,
            (_, TableSection::Logs | TableSection::LogIndex) => TableSection::LogIndex,
            _ => TableSection::RefIndex,
        };
        self.section = section;
        if section < before || (section == TableSection::RefIndex && self.blocks.is_empty()) {
            self.find(offset, format!("the section follows the {before}"));
        }
        if section != before {
            self.last_key.clear();
        }
    }

    fn check_block(&mut self, block: &Block, body: &[u8]) -> Result<()> {
        let mut full_keys = Vec::new();
        match block.kind {
            RefCodec::KIND => self.records(block, body, &mut full_keys, Self::check_ref)?,
            IndexCodec::KIND => {
                // Every level of an index starts over.
                if self
                    .blocks
                    .last()
                    .is_some_and(|last| last.section == self.section)
                {
                    let first = block.full_key(body, block.first)?;
                    if first <= self.last_key.as_slice() {
                        self.last_key.clear();
                    }
                }
                self.records(block, body, &mut full_keys, Self::check_index_record)?;
            }
            ObjectCodec::KIND => self.records(block, body, &mut full_keys, Self::check_object)?,
            _ => self.records(block, body, &mut full_keys, Self::check_log)?,
        }
        self.check_restarts(block, body, &full_keys)?;
        if full_keys.is_empty() {
            self.find(block.offset, "the block has no records");
        }
        let last_key = self.last_key.clone();
        self.blocks.push(SeenBlock {
            section: self.section,
            offset: block.offset,
            last_key,
        });
        Ok(())
    }

    /// Decodes all records of a block; collects where those with a full key start.
    fn records<C: Codec + Default>(
        &mut self,
        block: &Block,
        body: &[u8],
        full_keys: &mut Vec<usize>,
        each: impl Fn(&mut Self, &Block, &[u8], &[u8], &C),
    ) -> Result<()> {
        let mut codec = C::default();
        let mut key = Vec::new();
        let mut at = block.first;
        while at < block.end {
            if body
                .get(at..)
                .and_then(split_key)
                .is_some_and(|record| record.0 == 0)
            {
                full_keys.push(at);
            }
            let place = block.read(body, at, &mut key, &mut codec, self.table.params())?;
            if C::KIND == RefCodec::KIND {
                self.spelled.add(&key, self.table, block.offset)?;
            }
            if key <= self.last_key {
                let (key, last) = (key.escape_ascii(), self.last_key.escape_ascii());
                self.find(block.offset, format!("{key} stands behind {last}"));
            }
            self.last_key.clone_from(&key);
            let value = body.get(place.value..place.next).unwrap_or_default();
            each(self, block, &key, value, &codec);
            at = place.next;
        }
        Ok(())
    }

    fn check_ref(&mut self, block: &Block, key: &[u8], value: &[u8], codec: &RefCodec) {
        let record = codec.record(key, value);
        let range = self.table.min_update_index()..=self.table.max_update_index();
        if !range.contains(&record.update_index) {
            let index = record.update_index;
            let name = key.escape_ascii();
            self.find(
                block.offset,
                format!("{name} has update index {index}, out of range"),
            );
        }
        let ids = match record.value {
            RefValue::Direct(oid) => [oid, &[]],
            RefValue::Peeled { oid, peeled } => [oid, peeled],
            RefValue::Deletion | RefValue::Symref(_) => [&[][..], &[]],
        };
        if self.table.object_section().is_some() {
            for id in ids.into_iter().filter(|id| !id.is_empty()) {
                self.mentions.push((id.to_vec(), block.offset));
            }
        }
    }

    fn check_index_record(&mut self, block: &Block, key: &[u8], _: &[u8], codec: &IndexCodec) {
        self.entries.push(Entry {
            within: block.offset,
            key: key.to_vec(),
            child: codec.offset,
        });
    }

    fn check_object(&mut self, block: &Block, key: &[u8], value: &[u8], codec: &ObjectCodec) {
        if key.len() != usize::from(self.table.footer.object_id_len) {
            self.find(
                block.offset,
                "an abbreviated object id has not the footer's length",
            );
        }
        let mut offsets = Vec::new();
        codec.offsets(value, &mut offsets);
        let offsets = (codec.count > 0).then_some(offsets);
        self.objects.push((key.to_vec(), block.offset, offsets));
    }

    fn check_log(&mut self, block: &Block, key: &[u8], _: &[u8], _: &LogCodec) {
        match split_log_key(key) {
            None => self.find(block.offset, "a log record has no proper key"),
            Some((name, index)) if index > self.table.max_update_index() => {
                let name = name.escape_ascii();
                self.find(
                    block.offset,
                    format!("{name} has update index {index}, out of range"),
                );
            }
            Some(_) => {}
        }
    }

    fn check_restarts(&mut self, block: &Block, body: &[u8], full_keys: &[usize]) -> Result<()> {
        let mut last = None;
        for index in 0..block.restart_count {
            let restart = block.restart(body, index)?;
            if last.is_some_and(|last| last >= restart) {
                self.find(block.offset, "the restart offsets do not increase");
            }
            if full_keys.binary_search(&restart).is_err() {
                self.find(
                    block.offset,
                    "a restart offset points at no record with a full key",
                );
            }
            last = Some(restart);
        }
        if block.restart_count == 0 {
            self.find(block.offset, "the block has no restart offsets");
        }
        Ok(())
    }

    /// Checks that the block is no longer than the block size: Git reads nothing of a table whose first block is.
    /// Index blocks of JGit may be longer, and log blocks are as long as what they say.
    fn check_len(&mut self, block: &Block) {
        let block_size = usize::try_from(self.table.block_size()).unwrap_or_default();
        let is_bound = matches!(block.kind, RefCodec::KIND | ObjectCodec::KIND);
        if is_bound && block_size > 0 && block.len > block_size {
            let len = block.len;
            let what =
                format!("the block of {len} bytes is longer than the block size, {block_size}");
            self.find(block.offset, what);
        }
    }

    /// Checks that what lies between this block and the next one is zero.
    fn check_padding(&mut self, block: &Block) {
        if block.kind == LogCodec::KIND {
            return;
        }
        let bounds = (usize::try_from(block.offset), usize::try_from(block.next));
        let (Ok(start), Ok(next)) = bounds else {
            return;
        };
        let padding = self
            .table
            .body()
            .get(start + block.len..next)
            .unwrap_or_default();
        if padding.iter().any(|byte| *byte != 0) {
            self.find(block.offset, "the padding is not zero");
        }
        if next == self.table.body().len() && !padding.is_empty() {
            self.find(next as u64, "there is padding before the footer");
        }
    }

    /// Checks the levels of an index, from the lowest to the top, against the blocks below.
    fn check_index(&mut self, data: TableSection, index: TableSection) {
        self.section = index;
        let footer = self.table.footer;
        let stated = match index {
            TableSection::RefIndex => footer.ref_index,
            TableSection::ObjectIndex => footer.object_index,
            _ => footer.log_index,
        };
        let blocks = std::mem::take(&mut self.blocks);
        let of = |section| blocks.iter().filter(move |block| block.section == section);
        let mut level: Vec<&SeenBlock> = of(data).collect();
        let mut rest: Vec<&SeenBlock> = of(index).collect();
        let mut top = 0;
        while !rest.is_empty() {
            top = rest[0].offset;
            // A level ends with the block that names the last block of the level below.
            let mut entries = Vec::new();
            let mut len = 0;
            while len < rest.len() && entries.len() < level.len() {
                let within = rest[len].offset;
                entries.extend(self.entries.iter().filter(|entry| entry.within == within));
                len += 1;
            }
            let agree = !level.is_empty()
                && entries.len() == level.len()
                && entries.iter().zip(&level).all(|(entry, block)| {
                    entry.child == block.offset && entry.key == block.last_key
                });
            if !agree {
                self.find(top, "the index does not agree with the blocks it is about");
                break;
            }
            let above = rest.split_off(len);
            level = std::mem::replace(&mut rest, above);
        }
        self.blocks = blocks;
        if top != stated {
            let what = format!("the footer places the index at {stated}, it is at {top}");
            self.find(top, what);
        }
    }

    /// Checks that the object section says exactly what the refs say.
    fn check_objects(&mut self) {
        self.section = TableSection::Objects;
        if self.table.object_section().is_none() {
            return;
        }
        let id_len = usize::from(self.table.footer.object_id_len);
        let mut mentions = std::mem::take(&mut self.mentions);
        for mention in &mut mentions {
            mention.0.truncate(id_len);
        }
        mentions.sort_unstable();
        mentions.dedup();
        let objects = std::mem::take(&mut self.objects);
        let mut expected = mentions.chunk_by(|a, b| a.0 == b.0);
        for (id, within, offsets) in &objects {
            let blocks = expected.next().unwrap_or_default();
            if blocks.first().is_none_or(|block| block.0 != *id) {
                self.find(
                    *within,
                    "the object section lists other objects than the refs name",
                );
                return;
            }
            let blocks = blocks.iter().map(|block| block.1);
            if offsets
                .as_ref()
                .is_some_and(|offsets| !blocks.eq(offsets.iter().copied()))
            {
                let id = Hex(id);
                self.find(
                    *within,
                    format!("object {id} is listed with the wrong ref blocks"),
                );
            }
        }
        if expected.next().is_some() {
            self.find(
                self.table.footer.objects,
                "an object that refs name is not listed",
            );
        }
    }

    fn check_footer(&mut self) {
        self.section = TableSection::Footer;
        let table = self.table;
        let at = table.body().len() as u64;
        if let Err(error) = table.reread() {
            self.find_error(&error);
        }
        for (section, stated) in [
            (TableSection::Objects, table.footer.objects),
            (TableSection::Logs, table.footer.logs),
        ] {
            let first = self.blocks.iter().find(|block| block.section == section);
            let first = first.map_or(0, |block| block.offset);
            if first != stated {
                let what = format!("the {section} are placed at {stated}, they are at {first}");
                self.find(at, what);
            }
        }
    }
}

impl Table {
    /// Reads header and footer again, as far as opening checks them.
    fn reread(&self) -> Result<(Header, Footer)> {
        let header = Header::decode(self.file())?;
        let footer = Footer::decode(self.file(), &header)?;
        Ok((header, footer))
    }
}

/// Shows bytes as hexadecimal digits.
struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
