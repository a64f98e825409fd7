//! Finds refs by the object they name, with the help of the object section where a table has one,
//! and symrefs, which no object section knows.

use std::ops::Range;
use std::sync::Arc;

use crate::block::Block;
use crate::cursor::{RefCursor, SectionCursor, Source};
use crate::error::{Error, Result};
use crate::merged::common_format;
use crate::record::{Codec, ObjectCodec, RefCodec, RefRecord, RefValue};
use crate::search::{Place, Wanted, single_ids};
use crate::table::Table;

/// Calls `f` for every ref that names this object, itself or as a peeled tag, in the order of
/// names. Only the newest record of a ref counts.
///
/// Tables, oldest first, without an object section are read in full.
///
/// # Errors
///
/// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if a block on the way is damaged,
/// [`ErrorKind::Misuse`](crate::ErrorKind::Misuse) if the id has not the tables' length.
///
/// ```
/// # use std::sync::Arc;
/// # use reftable::*;
/// # let mut writer = Writer::new(Vec::new(), WriteOptions::new(ObjectFormat::Sha1))?;
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
    check_len(tables, &[oid])?;
    let wanted = Wanted::new(&[oid], false);
    find(tables, f, |table, hit| match blocks_of(table, oid)? {
        Some(offsets) => {
            let mut cursor = RefCursor::new(Arc::clone(table));
            let mut offsets = offsets.into_iter();
            let blocks = || offsets.next().map(|at| enter(&mut cursor, at)).transpose();
            each_at(table, &wanted.places(table, blocks)?, hit)
        }
        None => each_wanted(table, &wanted, hit),
    })
}

/// Calls `f` for every ref that names one of these objects, itself or as a peeled tag, and for every
/// symref, wherever it leads, in the order of names. Only the newest record of a ref counts.
///
/// Since no object section knows symrefs, all ref records are passed over, and that tells which of
/// them name an object as well. Names are put together for those only that `f` is called for.
///
/// # Errors
///
/// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if a block is damaged,
/// [`ErrorKind::Misuse`](crate::ErrorKind::Misuse) if an id has not the tables' length.
///
/// ```
/// # use std::sync::Arc;
/// # use reftable::*;
/// # let mut writer = Writer::new(Vec::new(), WriteOptions::new(ObjectFormat::Sha1))?;
/// # let records = [
/// #     (&b"HEAD"[..], RefValue::Symref(b"refs/heads/main")),
/// #     (b"refs/heads/main", RefValue::Direct(&[7; 20])),
/// #     (b"refs/heads/other", RefValue::Direct(&[8; 20])),
/// # ];
/// # for (name, value) in records {
/// #     writer.add_ref(RefRecord { name, update_index: 1, value })?;
/// # }
/// # let tables = [Arc::new(Table::open(writer.finish()?.sink)?)];
/// let mut names = Vec::new();
/// refs_that_may_lead_to(&tables, &[&[7; 20]], &mut |record| names.push(record.name.to_vec()))?;
/// assert_eq!(names, [&b"HEAD"[..], b"refs/heads/main"]);
/// # Ok::<(), Error>(())
/// ```
pub fn refs_that_may_lead_to(
    tables: &[Arc<Table>],
    oids: &[&[u8]],
    f: &mut dyn FnMut(RefRecord<'_>),
) -> Result<()> {
    check_len(tables, oids)?;
    let wanted = Wanted::new(oids, true);
    find(tables, f, |table, hit| each_wanted(table, &wanted, hit))
}

/// Calls `f` with the object of every ref below `prefix` that names one, and beside which no peeled value is
/// stored: in no certain order, again where several refs name it, and also for refs that a newer table hides.
///
/// # Errors
///
/// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if a block on the way is damaged.
///
/// ```
/// # use std::sync::Arc;
/// # use reftable::*;
/// # let mut writer = Writer::new(Vec::new(), WriteOptions::new(ObjectFormat::Sha1))?;
/// # let peeled = RefValue::Peeled { oid: &[8; 20], peeled: &[7; 20] };
/// # let records = [
/// #     (&b"refs/heads/main"[..], RefValue::Direct(&[7; 20])),
/// #     (b"refs/tags/told", peeled),
/// #     (b"refs/tags/untold", RefValue::Direct(&[9; 20])),
/// # ];
/// # for (name, value) in records {
/// #     writer.add_ref(RefRecord { name, update_index: 1, value })?;
/// # }
/// # let tables = [Arc::new(Table::open(writer.finish()?.sink)?)];
/// let mut objects = Vec::new();
/// objects_without_peeled(&tables, b"refs/tags/", &mut |oid| objects.push(oid.to_vec()))?;
/// assert_eq!(objects, [[9; 20]]);
/// # Ok::<(), Error>(())
/// ```
pub fn objects_without_peeled(
    tables: &[Arc<Table>],
    prefix: &[u8],
    f: &mut impl FnMut(&[u8]),
) -> Result<()> {
    tables.iter().try_for_each(|table| {
        each_without_peeled(table, prefix, f).map_err(|error| error.in_table(table.label()))
    })
}

/// Does that for one table. Names are put together only in the blocks in which those below the prefix begin and end.
fn each_without_peeled(table: &Arc<Table>, prefix: &[u8], f: &mut impl FnMut(&[u8])) -> Result<()> {
    let mut refs = RefCursor::new(Arc::clone(table));
    refs.seek_prefix(prefix)?;
    if !refs.advance()? {
        return Ok(());
    }
    // The block with the first name behind all of them, or no block.
    let mut behind = RefCursor::new(Arc::clone(table));
    let last = match behind_all(prefix) {
        Some(name) => {
            behind.seek(&name)?;
            behind.advance()?.then(|| behind.inner.block_offset())
        }
        None => None,
    };
    let last = last.flatten().unwrap_or(u64::MAX);
    let Some(first) = refs.inner.block() else {
        return Ok(());
    };
    loop {
        if let RefValue::Direct(oid) = refs.record().value {
            f(oid);
        }
        if !refs.advance()? {
            return Ok(());
        }
        if refs.inner.block_offset() != Some(first.offset) {
            break;
        }
    }
    let mut at = first.next;
    while at < last
        && let Some(block) = table.block(at, RefCodec::KIND)?
    {
        single_ids(table, &block, f)?;
        at = block.next;
    }
    if at == last {
        enter(&mut refs, at)?;
        while let Some(record) = refs.next()? {
            if let RefValue::Direct(oid) = record.value {
                f(oid);
            }
        }
    }
    Ok(())
}

/// Returns the least name behind all that begin with `prefix`, if there is one.
fn behind_all(prefix: &[u8]) -> Option<Vec<u8>> {
    let at = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut name = prefix.get(..=at)?.to_vec();
    *name.last_mut()? += 1;
    Some(name)
}

/// Checks that the ids have the length of those in the tables.
fn check_len(tables: &[Arc<Table>], oids: &[&[u8]]) -> Result<()> {
    let object_format = common_format(tables)?;
    match oids
        .iter()
        .all(|oid| object_format.is_none_or(|object_format| object_format.raw_len() == oid.len()))
    {
        true => Ok(()),
        false => Err(Error::misuse("the object id has the wrong length")),
    }
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
    if let [table] = tables {
        let each = &mut |record: RefRecord<'_>| {
            if !matches!(record.value, RefValue::Deletion) {
                f(record);
            }
            Ok(())
        };
        return search(table, each).map_err(|error| error.in_table(table.label()));
    }
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

/// Calls `f` for every wanted ref of a table.
fn each_wanted(table: &Arc<Table>, wanted: &Wanted<'_>, f: &mut Each<'_>) -> Result<()> {
    let Some(section) = table.ref_section() else {
        return Ok(());
    };
    let mut at = section.start;
    let blocks = || {
        let block = table.block(at, RefCodec::KIND)?;
        at = block.map_or(at, |block| block.next);
        Ok(block)
    };
    let places = wanted.places(table, blocks)?;
    table.check_end(section, at)?;
    each_at(table, &places, f)
}

/// Calls `f` for the refs at these places, which follow each other. A name is put together from the
/// last full one before it on.
fn each_at(table: &Arc<Table>, places: &[Place], f: &mut Each<'_>) -> Result<()> {
    let mut cursor = RefCursor::new(Arc::clone(table));
    for place in places {
        if cursor.inner.block_offset() != Some(place.block) {
            enter(&mut cursor, place.block)?;
        }
        cursor.inner.seek_run(place.at)?;
        while cursor.inner.next_position() <= place.at && cursor.advance()? {}
        f(cursor.record())?;
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
