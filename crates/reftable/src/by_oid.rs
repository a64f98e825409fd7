//! Finds refs by the object they name, with the help of the object section where a table has one,
//! and symrefs, which no object section knows.

use std::ops::Range;
use std::sync::Arc;

use crate::block::Block;
use crate::cursor::{RefCursor, SectionCursor, Source};
use crate::error::{Error, Result};
use crate::key::split_key;
use crate::merged::common_hash;
use crate::record::{Codec, ObjectCodec, RefCodec, RefRecord, RefValue};
use crate::table::Table;
use crate::varint;

/// Calls `f` for every ref that names this object, itself or as a peeled tag, in the order of
/// names. Only the newest record of a ref counts.
///
/// Tables, oldest first, without an object section are read in full. All tables are read before
/// `f` is called for the first time.
///
/// # Errors
///
/// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if a block on the way is damaged,
/// [`ErrorKind::Misuse`](crate::ErrorKind::Misuse) if the id has not the tables' length.
///
/// ```
/// # use std::sync::Arc;
/// # use reftable::*;
/// # let mut writer = Writer::new(Vec::new(), WriteOptions::new(HashId::Sha1))?;
/// # for name in [&b"refs/heads/a"[..], b"refs/heads/b"] {
/// #     let value = RefValue::Direct(&[7; 20]);
/// #     writer.add_ref(RefRecord { name, update_index: 1, value })?;
/// # }
/// # let tables = [Arc::new(Table::open(writer.finish()?.sink)?)];
/// let mut names = Vec::new();
/// refs_by_oid(&tables, &[7; 20], &mut |record| names.push(record.name.to_vec()))?;
/// assert_eq!(names, [b"refs/heads/a", b"refs/heads/b"]);
/// # Ok::<(), Error>(())
/// ```
pub fn refs_by_oid(
    tables: &[Arc<Table>],
    oid: &[u8],
    f: &mut dyn FnMut(RefRecord<'_>),
) -> Result<()> {
    if common_hash(tables)?.is_some_and(|hash| hash.len() != oid.len()) {
        return Err(Error::misuse("the object id has the wrong length"));
    }
    find(tables, f, |table, hit| match blocks_of(table, oid)? {
        Some(blocks) => each_naming(table, &blocks, oid, hit),
        None => {
            let mut cursor = RefCursor::new(Arc::clone(table));
            while let Some(record) = cursor.next()? {
                if names(&record, oid) {
                    hit(record)?;
                }
            }
            Ok(())
        }
    })
}

/// Calls `f` for every symref, in the order of names. Only the newest record of a ref counts.
///
/// Every ref block is passed through, and only those that have a symref are read.
///
/// # Errors
///
/// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if a block is damaged.
///
/// ```
/// # use std::sync::Arc;
/// # use reftable::*;
/// # let mut writer = Writer::new(Vec::new(), WriteOptions::new(HashId::Sha1))?;
/// # let value = RefValue::Symref(b"refs/heads/main");
/// # writer.add_ref(RefRecord { name: b"HEAD", update_index: 1, value })?;
/// # let tables = [Arc::new(Table::open(writer.finish()?.sink)?)];
/// let mut names = Vec::new();
/// symrefs(&tables, &mut |record| names.push(record.name.to_vec()))?;
/// assert_eq!(names, [b"HEAD"]);
/// # Ok::<(), Error>(())
/// ```
pub fn symrefs(tables: &[Arc<Table>], f: &mut dyn FnMut(RefRecord<'_>)) -> Result<()> {
    common_hash(tables)?;
    find(tables, f, |table, hit| {
        let mut cursor = RefCursor::new(Arc::clone(table));
        for offset in symref_blocks(table)? {
            enter(&mut cursor, offset)?;
            while cursor.advance()? && cursor.inner.block_offset() == Some(offset) {
                if matches!(cursor.record().value, RefValue::Symref(_)) {
                    hit(cursor.record())?;
                }
            }
        }
        Ok(())
    })
}

/// What is called for a record.
type Each<'f> = dyn FnMut(RefRecord<'_>) -> Result<()> + 'f;

/// Has `search` find records of each table, and calls `f` for those that no newer table hides, in
/// the order of names.
fn find(
    tables: &[Arc<Table>],
    f: &mut dyn FnMut(RefRecord<'_>),
    search: impl Fn(&Arc<Table>, &mut Each<'_>) -> Result<()>,
) -> Result<()> {
    let mut hits = Hits::default();
    for (index, table) in tables.iter().enumerate() {
        let newer = tables.get(index + 1..).unwrap_or_default();
        let mut newer: Vec<_> = newer.iter().cloned().map(RefCursor::new).collect();
        search(table, &mut |record| {
            for cursor in &mut newer {
                cursor.seek(record.name)?;
                if cursor
                    .next()?
                    .is_some_and(|other| other.name == record.name)
                {
                    return Ok(());
                }
            }
            hits.push(&record);
            Ok(())
        })
        .map_err(|error| error.in_table(table.label()))?;
    }
    hits.each(f);
    Ok(())
}

/// Calls `f` for every ref of these blocks that names the object. Records are passed over until one
/// has the id; only from there on, and from the last full name before it, are names put together.
fn each_naming(table: &Arc<Table>, blocks: &[u64], oid: &[u8], f: &mut Each<'_>) -> Result<()> {
    let mut cursor = RefCursor::new(Arc::clone(table));
    for &offset in blocks {
        let block = enter(&mut cursor, offset)?;
        let mut records = Records::of(table, &block);
        let start = oid.first_chunk::<8>();
        let names = |record: &Passed<'_>| match record.extra {
            // The first bytes tell nearly all ids apart, without a call.
            RefCodec::DIRECT => record.payload.first_chunk() == start && record.payload == oid,
            RefCodec::PEELED => record.payload.chunks_exact(oid.len()).any(|id| id == oid),
            _ => false,
        };
        while let Some(record) = records.find(names)? {
            cursor.inner.seek_run(record.at)?;
            while cursor.inner.next_position() <= record.at && cursor.advance()? {}
            f(cursor.record())?;
        }
    }
    Ok(())
}

/// Moves before the first ref of a block.
fn enter(cursor: &mut RefCursor, offset: u64) -> Result<Block> {
    let block = match cursor.inner.seek_block(offset)? {
        true => cursor.inner.block(),
        false => None,
    };
    block.ok_or_else(|| Error::corrupt(offset, "an object record points at no ref block"))
}

/// Returns the offsets of the ref blocks that have a symref. What comes behind it in its block is
/// checked when it is read.
fn symref_blocks(table: &Arc<Table>) -> Result<Vec<u64>> {
    let mut found = Vec::new();
    let Some(section) = table.ref_section() else {
        return Ok(found);
    };
    let mut at = section.start;
    while let Some(block) = table.block(at, RefCodec::KIND)? {
        let mut records = Records::of(table, &block);
        if records
            .find(|record| record.extra == RefCodec::SYMREF)?
            .is_some()
        {
            found.push(at);
        }
        at = block.next;
    }
    table.check_end(section, at)?;
    Ok(found)
}

/// The most bytes that a ref of one id takes whose lengths take one byte each: the two lengths, 15
/// bytes of a suffix, the update index and an id.
const DIRECT_LEN_MAX: usize = 2 + 15 + 1 + 32;

/// The records of one ref block, without their names.
struct Records<'t> {
    block: Block,
    hash_len: usize,
    body: &'t [u8],
    /// Where the next one starts.
    at: usize,
}

/// A ref record of which the name is not put together.
struct Passed<'t> {
    /// Where it starts in its block.
    at: usize,
    /// What its value is.
    extra: u8,
    /// The ids of the value.
    payload: &'t [u8],
}

impl<'t> Records<'t> {
    fn of(table: &'t Table, block: &Block) -> Self {
        let body = table.block_body(block).get(..block.end);
        Records {
            block: *block,
            hash_len: table.params().hash_len,
            body: body.unwrap_or_default(),
            at: block.first,
        }
    }

    #[inline]
    fn next(&mut self) -> Result<Option<Passed<'t>>> {
        let rest = self.body.get(self.at..).unwrap_or_default();
        if rest.is_empty() {
            return Ok(None);
        }
        let record = self.pass(rest);
        let failed = || self.block.corrupt("a record cannot be decoded");
        let (record, len) = record.ok_or_else(failed)?;
        self.at += len;
        Ok(Some(record))
    }

    /// Returns the next record that is `wanted`.
    #[inline]
    fn find(&mut self, wanted: impl Fn(&Passed<'_>) -> bool) -> Result<Option<Passed<'t>>> {
        loop {
            let record = match self.direct() {
                Some(record) => record,
                None => match self.next()? {
                    Some(record) => record,
                    None => return Ok(None),
                },
            };
            if wanted(&record) {
                return Ok(Some(record));
            }
        }
    }

    /// Returns the next record, if it is a ref of one id whose lengths take one byte each, and not
    /// among the last bytes of the block: nearly all are. One check of the length is enough for all
    /// that is read of it.
    #[inline]
    fn direct(&mut self) -> Option<Passed<'t>> {
        let record = self.body.get(self.at..)?.first_chunk::<DIRECT_LEN_MAX>()?;
        let [prefix_len, tagged, ..] = record;
        if (prefix_len | tagged) & 0x80 != 0 || tagged & 7 != RefCodec::DIRECT {
            return None;
        }
        // The suffix is followed by the update index, and that by the id.
        let index = 2 + usize::from(tagged >> 3);
        if *record.get(index)? >= 0x80 {
            return None;
        }
        let end = index + 1 + self.hash_len;
        let passed = Passed {
            at: self.at,
            extra: RefCodec::DIRECT,
            payload: record.get(index + 1..end)?,
        };
        self.at += end;
        Some(passed)
    }

    /// Passes over the first of these records; returns how long it is, too.
    #[inline]
    fn pass(&self, records: &'t [u8]) -> Option<(Passed<'t>, usize)> {
        let (_, extra, at, suffix) = split_key(records)?;
        let index = at + suffix.len();
        let (_, used) = varint::read(records.get(index..)?)?;
        let mut at = index + used;
        let len = match extra {
            RefCodec::DELETION => 0,
            RefCodec::DIRECT => self.hash_len,
            RefCodec::PEELED => 2 * self.hash_len,
            RefCodec::SYMREF => {
                let (len, used) = varint::read(records.get(at..)?)?;
                at += used;
                usize::try_from(len).ok()?
            }
            _ => return None,
        };
        let end = at.checked_add(len)?;
        let payload = records.get(at..end)?;
        let at = self.at;
        Some((Passed { at, extra, payload }, end))
    }
}

fn names(record: &RefRecord<'_>, wanted: &[u8]) -> bool {
    match record.value {
        RefValue::Direct(oid) => oid == wanted,
        RefValue::Peeled { oid, peeled } => oid == wanted || peeled == wanted,
        RefValue::Deletion | RefValue::Symref(_) => false,
    }
}

/// Returns the offsets of the ref blocks that may name the object; `None` stands for all blocks.
fn blocks_of(table: &Arc<Table>, oid: &[u8]) -> Result<Option<Vec<u64>>> {
    let Some(section) = table.object_section() else {
        return Ok(None);
    };
    let id = oid
        .get(..usize::from(table.footer.object_id_len))
        .unwrap_or(oid);
    let mut objects = SectionCursor::<ObjectCodec>::new(Arc::clone(table), Some(section));
    objects.seek(id)?;
    if !objects.advance()? || objects.key() != id {
        return Ok(Some(Vec::new()));
    }
    if objects.codec.count == 0 {
        return Ok(None);
    }
    let mut blocks = Vec::new();
    objects.codec.offsets(objects.value(), &mut blocks);
    Ok(Some(blocks))
}

/// Copies of the records found, since they have to be sorted by name across tables.
#[derive(Default)]
struct Hits {
    bytes: Vec<u8>,
    hits: Vec<Hit>,
}

struct Hit {
    name: Range<usize>,
    update_index: u64,
    value: Found,
}

enum Found {
    Direct(Range<usize>),
    Peeled(Range<usize>, Range<usize>),
    Symref(Range<usize>),
}

impl Hits {
    fn push(&mut self, record: &RefRecord<'_>) {
        let value = match record.value {
            RefValue::Deletion => return,
            RefValue::Direct(oid) => Found::Direct(self.copy(oid)),
            RefValue::Peeled { oid, peeled } => Found::Peeled(self.copy(oid), self.copy(peeled)),
            RefValue::Symref(target) => Found::Symref(self.copy(target)),
        };
        let name = self.copy(record.name);
        self.hits.push(Hit {
            name,
            update_index: record.update_index,
            value,
        });
    }

    fn copy(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    fn each(mut self, f: &mut dyn FnMut(RefRecord<'_>)) {
        let bytes = &self.bytes;
        let get = |range: &Range<usize>| &bytes[range.clone()];
        self.hits.sort_by(|a, b| get(&a.name).cmp(get(&b.name)));
        for hit in &self.hits {
            let value = match &hit.value {
                Found::Direct(oid) => RefValue::Direct(get(oid)),
                Found::Peeled(oid, peeled) => RefValue::Peeled {
                    oid: get(oid),
                    peeled: get(peeled),
                },
                Found::Symref(target) => RefValue::Symref(get(target)),
            };
            f(RefRecord {
                name: get(&hit.name),
                update_index: hit.update_index,
                value,
            });
        }
    }
}
