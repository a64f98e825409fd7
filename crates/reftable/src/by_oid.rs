//! Finds refs by the object they name, with the help of the object section where a table has one.

use std::ops::Range;
use std::sync::Arc;

use crate::cursor::{RefCursor, SectionCursor, Source};
use crate::error::{Error, Result};
use crate::merged::common_hash;
use crate::record::{ObjectCodec, RefRecord, RefValue};
use crate::table::Table;

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
    let mut hits = Hits::default();
    for (index, table) in tables.iter().enumerate() {
        let newer = tables.get(index + 1..).unwrap_or_default();
        let mut newer: Vec<_> = newer.iter().cloned().map(RefCursor::new).collect();
        each_in_table(table, oid, |record| {
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
        })?;
    }
    hits.each(f);
    Ok(())
}

/// Calls `f` for every ref of one table that names this object.
fn each_in_table(
    table: &Arc<Table>,
    oid: &[u8],
    mut f: impl FnMut(RefRecord<'_>) -> Result<()>,
) -> Result<()> {
    let mut cursor = RefCursor::new(Arc::clone(table));
    let Some(blocks) = blocks_of(table, oid)? else {
        while let Some(record) = cursor.next()? {
            if names(&record, oid) {
                f(record)?;
            }
        }
        return Ok(());
    };
    for offset in blocks {
        if !cursor.inner.seek_block(offset)? {
            return Err(Error::corrupt(
                offset,
                "an object record points at no ref block",
            ));
        }
        while cursor.advance()? && cursor.inner.block_offset() == Some(offset) {
            if names(&cursor.record(), oid) {
                f(cursor.record())?;
            }
        }
    }
    Ok(())
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
    oid: Range<usize>,
    peeled: Range<usize>,
}

impl Hits {
    fn push(&mut self, record: &RefRecord<'_>) {
        let (oid, peeled) = match record.value {
            RefValue::Direct(oid) => (oid, &[][..]),
            RefValue::Peeled { oid, peeled } => (oid, peeled),
            RefValue::Deletion | RefValue::Symref(_) => return,
        };
        let name = self.copy(record.name);
        let oid = self.copy(oid);
        let peeled = self.copy(peeled);
        self.hits.push(Hit {
            name,
            update_index: record.update_index,
            oid,
            peeled,
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
            let oid = get(&hit.oid);
            let value = match get(&hit.peeled) {
                [] => RefValue::Direct(oid),
                peeled => RefValue::Peeled { oid, peeled },
            };
            f(RefRecord {
                name: get(&hit.name),
                update_index: hit.update_index,
                value,
            });
        }
    }
}
