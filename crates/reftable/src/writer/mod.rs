//! Writes one table: records in, blocks out (docs/format.md, "Writing").
//!
//! For the same records and options the bytes are those of Git's own writer, compressed log blocks
//! aside.
//!
//! Invariants:
//! 1. Sections follow each other in the format's order: refs, their index, objects, their index,
//!    logs, their index, footer. Each of them is finished before the next one starts.
//! 2. Memory is bounded by the keys of the index, the log blocks that wait to be compressed, one
//!    block, and, if objects are indexed, the object ids.

mod block;
mod deflate;
mod objects;

use std::io::Write;

use block::{Added, BlockBuilder};
use deflate::Deflate;
use objects::Objects;

use crate::error::{Error, Result};
use crate::header::{BLOCK_LEN_MAX, Footer, Header};
use crate::object_format::ObjectFormat;
use crate::record::{
    Codec, IndexCodec, LogCodec, LogRecord, LogUpdate, LogValue, ObjectCodec, RefCodec, RefRecord,
    RefValue, is_oid, make_log_key,
};
use crate::{short, varint};

/// The block size that 0 stands for.
const BLOCK_SIZE_DEFAULT: u32 = 4096;
/// The restart interval that 0 stands for.
const RESTART_INTERVAL_DEFAULT: u16 = 16;
/// How many blocks a section of a padded table has before it gets an index.
const UNINDEXED_BLOCKS_MAX: usize = 3;
/// How strongly log blocks are compressed by default. Git uses 9, which takes three to four times
/// as long for blocks that are 5 to 10 % smaller.
const DEFLATE_LEVEL_DEFAULT: u32 = 1;

/// How to write a table.
///
/// ```
/// use reftable::{ObjectFormat, WriteOptions};
/// let mut options = WriteOptions::new(ObjectFormat::Sha256);
/// options.max_update_index = 7;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteOptions {
    /// The format of the object ids.
    pub object_format: ObjectFormat,
    /// The size of a block in bytes, at most 16,777,215. 0 stands for 4096.
    pub block_size: u32,
    /// How many records share one full key. 0 stands for 16.
    pub restart_interval: u16,
    /// Whether large tables get an index from object ids to refs.
    pub index_objects: bool,
    /// Whether blocks follow each other without padding.
    pub unpadded: bool,
    /// The least update index that a ref record may have.
    pub min_update_index: u64,
    /// The greatest update index that a record may have.
    pub max_update_index: u64,
    /// How strongly log blocks are compressed, 0 to 9. Costs time, saves space. The first 16 KiB of
    /// them are always compressed as strongly as Git does it, with 9.
    pub deflate_level: u32,
    /// How many threads may compress log blocks side by side, in a table with enough of them. The
    /// bytes do not depend on it. 0 stands for 1.
    pub deflate_threads: usize,
}

impl WriteOptions {
    /// Returns Git's defaults, except for the compression, and 1 as the only update index.
    #[must_use]
    pub fn new(object_format: ObjectFormat) -> Self {
        WriteOptions {
            object_format,
            block_size: 0,
            restart_interval: 0,
            index_objects: true,
            unpadded: false,
            min_update_index: 1,
            max_update_index: 1,
            deflate_level: DEFLATE_LEVEL_DEFAULT,
            deflate_threads: 1,
        }
    }
}

/// What a finished table contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The number of ref records, deletions included.
    pub refs: u64,
    /// How many of the ref records are deletions.
    pub tombstones: u64,
    /// The number of log records, deletions included.
    pub logs: u64,
    /// How many of the log records are deletions.
    pub log_tombstones: u64,
    /// The length of the table in bytes.
    pub bytes: u64,
}

impl Stats {
    /// Returns whether the table has no records. Such a table belongs into no stack.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.refs == 0 && self.logs == 0
    }
}

/// A finished table.
#[derive(Clone, Debug)]
pub struct Finished<W> {
    /// Where the table was written to, not flushed.
    pub sink: W,
    /// What it contains.
    pub stats: Stats,
}

/// Writes one table to a sink: refs in the order of their names, then log entries, then `finish`.
///
/// The writer hands whole blocks to the sink and never reads back. A record that is refused leaves
/// the table as it was, so that the caller may go on; after an error of kind
/// [`Io`](crate::ErrorKind::Io) the table is worthless.
///
/// ```
/// use reftable::{ObjectFormat, RefRecord, RefValue, WriteOptions, Writer};
/// let mut writer = Writer::new(Vec::new(), WriteOptions::new(ObjectFormat::Sha1))?;
/// let value = RefValue::Direct(&[7; 20]);
/// writer.add_ref(RefRecord { name: b"refs/heads/main", update_index: 1, value })?;
/// let finished = writer.finish()?;
/// assert_eq!(finished.stats.refs, 1);
/// assert_eq!(finished.stats.bytes, finished.sink.len() as u64);
/// # Ok::<(), reftable::Error>(())
/// ```
pub struct Writer<W> {
    sink: W,
    options: WriteOptions,
    header: Header,
    footer: Footer,
    block: BlockBuilder,
    /// Where the block that is being filled will start.
    offset: u64,
    /// How much padding the last block gets if another one follows.
    padding: usize,
    /// The blocks of the section so far.
    index: Index,
    objects: Option<Objects>,
    deflate: Option<Deflate>,
    log_key: Vec<u8>,
    stats: Stats,
}

/// The last keys and the offsets of blocks, for the index over them.
#[derive(Default)]
struct Index {
    keys: Vec<u8>,
    /// Where a key ends in `keys`, and the offset of its block.
    entries: Vec<(usize, u64)>,
}

impl Index {
    fn push(&mut self, key: &[u8], offset: u64) {
        self.keys.extend_from_slice(key);
        self.entries.push((self.keys.len(), offset));
    }

    fn iter(&self) -> impl Iterator<Item = (&[u8], u64)> {
        let starts = std::iter::once(0).chain(self.entries.iter().map(|entry| entry.0));
        starts
            .zip(&self.entries)
            .map(|(start, (end, offset))| (&self.keys[start..*end], *offset))
    }
}

impl<W: Write> Writer<W> {
    /// Starts a table.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Misuse`](crate::ErrorKind::Misuse) if the options contradict the format.
    pub fn new(sink: W, mut options: WriteOptions) -> Result<Self> {
        if options.block_size == 0 {
            options.block_size = BLOCK_SIZE_DEFAULT;
        }
        if options.restart_interval == 0 {
            options.restart_interval = RESTART_INTERVAL_DEFAULT;
        }
        if options.block_size > BLOCK_LEN_MAX {
            return Err(Error::misuse("the block size has more than 24 bits"));
        }
        if options.min_update_index > options.max_update_index {
            return Err(Error::misuse(
                "the least update index is above the greatest one",
            ));
        }
        let header = Header {
            version: options.object_format.table_version(),
            object_format: options.object_format,
            block_size: options.block_size,
            min_update_index: options.min_update_index,
            max_update_index: options.max_update_index,
        };
        let block_size = usize::try_from(options.block_size).unwrap_or(usize::MAX);
        let block = BlockBuilder::new(block_size, usize::from(options.restart_interval));
        Ok(Writer {
            sink,
            header,
            footer: Footer::default(),
            block,
            offset: 0,
            padding: 0,
            index: Index::default(),
            objects: options
                .index_objects
                .then(|| Objects::new(options.object_format.raw_len())),
            deflate: None,
            log_key: Vec::new(),
            stats: Stats::default(),
            options,
        })
    }

    /// Adds a ref. Names strictly increase.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Misuse`](crate::ErrorKind::Misuse) if name, update index or object id are out
    /// of order or range, [`ErrorKind::EntryTooLarge`](crate::ErrorKind::EntryTooLarge) if the
    /// record does not fit a block, [`ErrorKind::Io`](crate::ErrorKind::Io) if the sink fails.
    pub fn add_ref(&mut self, record: RefRecord<'_>) -> Result<()> {
        let delta = self.check_ref(&record)?;
        if self.block.kind() != RefCodec::KIND {
            self.begin_section(RefCodec::KIND);
        }
        let (extra, oid, peeled) = match record.value {
            RefValue::Deletion => (RefCodec::DELETION, &[][..], &[][..]),
            RefValue::Direct(oid) => (RefCodec::DIRECT, oid, &[][..]),
            RefValue::Peeled { oid, peeled } => (RefCodec::PEELED, oid, peeled),
            RefValue::Symref(_) => (RefCodec::SYMREF, &[][..], &[][..]),
        };
        self.add(record.name, extra, |out| {
            varint::push(out, delta);
            if let RefValue::Symref(target) = record.value {
                push_bytes(out, target);
            } else {
                short::push(out, oid);
                short::push(out, peeled);
            }
        })?;
        self.stats.refs += 1;
        self.stats.tombstones += u64::from(record.is_deletion());
        if let Some(objects) = &mut self.objects {
            for id in [oid, peeled] {
                if !id.is_empty() {
                    objects.add(id, self.offset);
                }
            }
        }
        Ok(())
    }

    /// Returns the update index relative to the least one.
    fn check_ref(&self, record: &RefRecord<'_>) -> Result<u64> {
        let object_format = self.options.object_format;
        if self.stats.logs > 0 || self.block.kind() == LogCodec::KIND {
            return Err(Error::misuse("a ref is added after a log entry"));
        }
        if record.name.is_empty() {
            return Err(Error::misuse("a ref has an empty name"));
        }
        let oids_fit = match record.value {
            RefValue::Deletion | RefValue::Symref(_) => true,
            RefValue::Direct(oid) => is_oid(oid, object_format),
            RefValue::Peeled { oid, peeled } => {
                is_oid(oid, object_format) && is_oid(peeled, object_format)
            }
        };
        if !oids_fit {
            return Err(Error::misuse("an object id has the wrong length"));
        }
        record
            .update_index
            .checked_sub(self.options.min_update_index)
            .filter(|_| record.update_index <= self.options.max_update_index)
            .ok_or_else(|| Error::misuse("the update index of a ref is outside the table's range"))
    }

    /// Adds a reflog entry, after all refs. Names increase; under one name the update indices
    /// decrease. They may be less than the table's least one, but not above its greatest.
    ///
    /// # Errors
    ///
    /// As for [`add_ref`](Self::add_ref).
    pub fn add_log(&mut self, record: LogRecord<'_>) -> Result<()> {
        let object_format = self.options.object_format;
        if record.name.is_empty() {
            return Err(Error::misuse("a log entry has an empty name"));
        }
        if record.update_index > self.options.max_update_index {
            return Err(Error::misuse(
                "the update index of a log entry is above the table's",
            ));
        }
        if let LogValue::Update(update) = record.value
            && !(is_oid(update.old, object_format) && is_oid(update.new, object_format))
        {
            return Err(Error::misuse("an object id has the wrong length"));
        }
        if self.block.kind() != LogCodec::KIND {
            self.finish_refs()?;
            self.drop_padding();
            self.footer.logs = self.offset;
            self.begin_section(LogCodec::KIND);
        }
        let mut key = std::mem::take(&mut self.log_key);
        make_log_key(&mut key, record.name, record.update_index);
        let added = match &record.value {
            LogValue::Deletion => self.add(&key, LogCodec::DELETION, |_| {}),
            LogValue::Update(update) => {
                self.add(&key, LogCodec::UPDATE, |out| push_update(out, update))
            }
        };
        self.log_key = key;
        added?;
        self.stats.logs += 1;
        self.stats.log_tombstones += u64::from(record.is_deletion());
        Ok(())
    }

    /// Writes what is left: the last block, the indices, the footer.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) if the sink fails, and
    /// [`ErrorKind::EntryTooLarge`](crate::ErrorKind::EntryTooLarge) if the last name of a block
    /// does not fit an index block.
    pub fn finish(mut self) -> Result<Finished<W>> {
        if self.block.kind() == LogCodec::KIND {
            self.footer.log_index = self.finish_section()?;
            if self.stats.logs == 0 {
                self.footer.logs = 0; // The only entry that was tried did not fit.
            }
        } else {
            self.finish_refs()?;
        }
        self.drop_padding();
        if self.offset == 0 {
            let header = self.header.encode();
            self.sink.write_all(&header)?;
            self.offset = header.len() as u64;
        }
        let footer = self.footer.encode(&self.header);
        self.sink.write_all(&footer)?;
        self.stats.bytes = self.offset + footer.len() as u64;
        Ok(Finished {
            sink: self.sink,
            stats: self.stats,
        })
    }

    /// Finishes the sections before the logs.
    fn finish_refs(&mut self) -> Result<()> {
        if self.block.kind() != RefCodec::KIND {
            return Ok(());
        }
        self.footer.ref_index = self.finish_section()?;
        match self.objects.take() {
            Some(objects) if self.footer.ref_index > 0 => self.write_objects(objects),
            _ => Ok(()),
        }
    }

    fn write_objects(&mut self, objects: Objects) -> Result<()> {
        let start = self.offset;
        self.begin_section(ObjectCodec::KIND);
        let id_len = objects.finish(|id, blocks| {
            let count = u8::try_from(blocks.len())
                .ok()
                .filter(|count| *count < 8)
                .unwrap_or(0);
            let named = self.add(id, count, |out| {
                if count == 0 {
                    varint::push(out, blocks.len() as u64);
                }
                let mut before = 0;
                for block in blocks {
                    varint::push(out, block - before);
                    before = *block;
                }
            });
            match named {
                // So many blocks that they are not worth listing: readers search all of them.
                Err(error) if error.kind() == crate::ErrorKind::EntryTooLarge => {
                    self.add(id, 0, |out| varint::push(out, 0))
                }
                named => named,
            }
        })?;
        self.footer.object_index = self.finish_section()?;
        if let Some(id_len) = id_len {
            self.footer.object_id_len = id_len;
            self.footer.objects = if self.offset > start { start } else { 0 };
        }
        Ok(())
    }

    fn begin_section(&mut self, kind: u8) {
        self.index = Index::default();
        let header = self.first_header();
        self.block.begin_section(kind, &header);
    }

    /// Returns what stands before the next block: the file's header, if it is the first one.
    fn first_header(&self) -> Vec<u8> {
        if self.offset == 0 {
            self.header.encode()
        } else {
            Vec::new()
        }
    }

    /// Adds a record to the block, or to a fresh one if it does not fit.
    #[inline]
    fn add(&mut self, key: &[u8], extra: u8, value: impl Fn(&mut Vec<u8>)) -> Result<()> {
        let mut added = self.block.add(key, extra, &value);
        if added == Added::Full && !self.block.is_empty() {
            self.flush_block()?;
            added = self.block.add(key, extra, &value);
        }
        match added {
            Added::Yes => Ok(()),
            Added::Full => Err(Error::too_large(format!(
                "{} does not fit a block of {} bytes",
                key.escape_ascii(),
                self.options.block_size
            ))),
            Added::OutOfOrder => Err(Error::misuse(format!(
                "{} is not behind the record before it",
                key.escape_ascii()
            ))),
        }
    }

    /// Writes the block, if it has records, and begins another one of its kind.
    fn flush_block(&mut self) -> Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        let kind = self.block.kind();
        if kind == LogCodec::KIND {
            let WriteOptions {
                deflate_level,
                deflate_threads,
                ..
            } = self.options;
            let deflate = self
                .deflate
                .get_or_insert_with(|| Deflate::new(deflate_level, deflate_threads));
            let (bytes, first, last_key) = self.block.seal();
            deflate.push(bytes, first, last_key);
            if deflate.is_due() {
                self.write_log_blocks()?;
            }
        } else {
            write_zeros(&mut self.sink, self.padding)?;
            let (bytes, _, last_key) = self.block.seal();
            self.index.push(last_key, self.offset);
            self.sink.write_all(bytes)?;
            let block_size = usize::try_from(self.options.block_size).unwrap_or_default();
            let padded = if self.options.unpadded {
                bytes.len()
            } else {
                block_size
            };
            self.padding = padded.saturating_sub(bytes.len());
            self.offset += (bytes.len() + self.padding) as u64;
        }
        self.block.begin(kind, &[]);
        Ok(())
    }

    /// Compresses and writes the log blocks that are complete.
    fn write_log_blocks(&mut self) -> Result<()> {
        let Some(deflate) = &mut self.deflate else {
            return Ok(());
        };
        deflate.drain(|last_key, block| {
            self.index.push(last_key, self.offset);
            self.sink.write_all(block)?;
            self.offset += block.len() as u64;
            Ok(())
        })
    }

    /// Finishes the section: writes its last block and an index over its blocks, if there are
    /// enough of them. Returns where the top level of the index starts, 0 if there is none.
    fn finish_section(&mut self) -> Result<u64> {
        self.flush_block()?;
        self.write_log_blocks()?;
        let unindexed_max = if self.options.unpadded {
            1
        } else {
            UNINDEXED_BLOCKS_MAX
        };
        let mut top = 0;
        let mut blocks = usize::MAX;
        // A level that has no fewer blocks than the one below leads nowhere: that happens when
        // names are so long that an index block holds a single one.
        while self.index.entries.len() > unindexed_max && self.index.entries.len() < blocks {
            let below = std::mem::take(&mut self.index);
            blocks = below.entries.len();
            top = self.offset;
            self.begin_section(IndexCodec::KIND);
            for (key, offset) in below.iter() {
                self.add(key, 0, |out| varint::push(out, offset))?;
            }
            self.flush_block()?;
        }
        Ok(top)
    }

    /// Forgets the padding after the last block: a log block or the footer follows at once.
    fn drop_padding(&mut self) {
        self.offset -= self.padding as u64;
        self.padding = 0;
    }
}

fn push_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    varint::push(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn push_update(out: &mut Vec<u8>, update: &LogUpdate<'_>) {
    out.extend_from_slice(update.old);
    out.extend_from_slice(update.new);
    push_bytes(out, update.name);
    push_bytes(out, update.email);
    varint::push(out, update.time);
    out.extend_from_slice(&update.tz.to_be_bytes());
    push_bytes(out, update.message);
}

fn write_zeros(sink: &mut impl Write, mut len: usize) -> Result<()> {
    static ZEROS: [u8; 4096] = [0; 4096];
    while len > 0 {
        let part = len.min(ZEROS.len());
        sink.write_all(&ZEROS[..part])?;
        len -= part;
    }
    Ok(())
}
