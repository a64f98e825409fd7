//! Refs that are copied out of a cursor, many at once, for another thread.

use refdb_names::internals::name_from_disk;
use refdb_names::{ObjectId, TargetRef};
use reftable::short;

use super::cursor::{Look, RefRecord};

/// Copies of records.
pub(crate) struct Batch {
    /// The names, each with its target behind it, if it is a symref.
    text: Vec<u8>,
    rows: Vec<Row>,
}

/// One record.
struct Row {
    /// Where the name ends in the text; it begins where the row before ends.
    name_end: usize,
    /// Where the target ends.
    end: usize,
    /// `None` for a symref.
    oid: Option<ObjectId>,
    peeled: Option<ObjectId>,
    packed: bool,
    broken: bool,
    look: Look,
}

impl Batch {
    /// Has room for so many records with so many bytes of text.
    pub(crate) fn with_room(records: usize, text: usize) -> Self {
        Batch {
            text: Vec::with_capacity(text),
            rows: Vec::with_capacity(records),
        }
    }

    /// Returns how many bytes of text there are.
    pub(crate) fn text_len(&self) -> usize {
        self.text.len()
    }

    /// Copies a record.
    #[inline]
    pub(crate) fn push(&mut self, record: &RefRecord<'_>) {
        let name = record.name.as_bytes();
        short::push(&mut self.text, name);
        let name_end = self.text.len();
        let oid = match record.target {
            TargetRef::Direct(oid) => Some(oid),
            TargetRef::Symbolic(target) => {
                self.text.extend_from_slice(target.as_bytes());
                None
            }
        };
        self.rows.push(Row {
            name_end,
            end: self.text.len(),
            oid,
            peeled: record.peeled,
            packed: record.packed,
            broken: record.broken,
            look: record.look,
        });
    }

    /// Returns the records as they were.
    pub(crate) fn records(&self) -> impl Iterator<Item = RefRecord<'_>> {
        let mut start = 0;
        self.rows.iter().map(move |row| {
            let text = |from: usize, to: usize| {
                name_from_disk(self.text.get(from..to).unwrap_or_default())
            };
            let name = text(start, row.name_end);
            start = row.end;
            RefRecord {
                name,
                target: match row.oid {
                    Some(oid) => TargetRef::Direct(oid),
                    None => TargetRef::Symbolic(text(row.name_end, row.end)),
                },
                peeled: row.peeled,
                packed: row.packed,
                broken: row.broken,
                look: row.look,
            }
        })
    }
}
