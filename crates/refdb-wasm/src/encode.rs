//! How records are written for the other side: fields of four bytes, the lowest first, and behind those
//! of all records the text of all of them. Ids are hexadecimal there, so that one call makes one string
//! of everything.

#[cfg(feature = "whole")]
use reftable::{LogRecord, LogValue};
use reftable::{RefRecord, RefValue};

/// The records of one answer.
#[derive(Default)]
pub(crate) struct Records {
    fields: Vec<u8>,
    text: Vec<u8>,
    count: usize,
}

/// What a value is, in its first field.
const DELETION: usize = 0;
const DIRECT: usize = 1;
const PEELED: usize = 2;
const SYMREF: usize = 3;
#[cfg(feature = "whole")]
const UPDATE: usize = 1;

impl Records {
    /// Takes the buffer of the last answer, so that it need not be made again.
    pub(crate) fn reusing(mut fields: Vec<u8>) -> Records {
        fields.clear();
        Records {
            fields,
            ..Records::default()
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// How many bytes there are by now.
    pub(crate) fn len(&self) -> usize {
        self.fields.len() + self.text.len()
    }

    /// Returns fields and text, one behind the other.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.fields.extend_from_slice(&self.text);
        self.fields
    }

    /// Adds a ref: what it is, the lengths of name and value, the update index.
    pub(crate) fn add_ref(&mut self, record: &RefRecord<'_>) {
        let before = self.text.len() + record.name.len();
        self.text.extend_from_slice(record.name);
        let kind = match record.value {
            RefValue::Deletion => DELETION,
            RefValue::Direct(oid) => {
                self.hex(oid);
                DIRECT
            }
            RefValue::Peeled { oid, peeled } => {
                self.hex(oid);
                self.hex(peeled);
                PEELED
            }
            RefValue::Symref(target) => {
                self.text.extend_from_slice(target);
                SYMREF
            }
        };
        self.field(kind);
        self.field(record.name.len());
        self.field(self.text.len() - before);
        self.number(record.update_index);
        self.count += 1;
    }

    /// Adds a reflog entry: what it is, the lengths of the ref's name, of an id, of the committer's name
    /// and address, and of the message, the update index, the time, the zone.
    #[cfg(feature = "whole")]
    pub(crate) fn add_log(&mut self, record: &LogRecord<'_>) {
        self.text.extend_from_slice(record.name);
        self.count += 1;
        let LogValue::Update(update) = record.value else {
            self.field(DELETION);
            self.field(record.name.len());
            [0; 4].into_iter().for_each(|len| self.field(len));
            self.number(record.update_index);
            self.number(0);
            self.field(0);
            return;
        };
        self.hex(update.old);
        self.hex(update.new);
        self.field(UPDATE);
        self.field(record.name.len());
        self.field(2 * update.new.len());
        for text in [update.name, update.email, update.message] {
            self.text.extend_from_slice(text);
            self.field(text.len());
        }
        self.number(record.update_index);
        self.number(update.time);
        let zone = i32::from(update.tz);
        self.fields.extend_from_slice(&zone.to_le_bytes());
    }

    /// Adds a field. No length of a record has more bits: a block has at most 16 MiB.
    fn field(&mut self, value: usize) {
        let value = u32::try_from(value).unwrap_or(u32::MAX);
        self.fields.extend_from_slice(&value.to_le_bytes());
    }

    /// Adds two fields, the lower half first.
    fn number(&mut self, value: u64) {
        self.fields.extend_from_slice(&value.to_le_bytes());
    }

    fn hex(&mut self, bytes: &[u8]) {
        for byte in bytes {
            for half in [byte >> 4, byte & 0x0f] {
                self.text.push(match half {
                    0..=9 => b'0' + half,
                    _ => b'a' - 10 + half,
                });
            }
        }
    }
}
