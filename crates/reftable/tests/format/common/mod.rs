//! Owned records and models of tables, for the tests that compare cursors with a sorted map.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::sync::Arc;

use reftable::{
    LogRecord, LogUpdate, LogValue, ObjectFormat, RefRecord, RefValue, Table, WriteOptions, Writer,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Deletion,
    Direct(Vec<u8>),
    Peeled(Vec<u8>, Vec<u8>),
    Symref(Vec<u8>),
}

impl Value {
    pub(crate) fn of(value: RefValue<'_>) -> Value {
        match value {
            RefValue::Deletion => Value::Deletion,
            RefValue::Direct(oid) => Value::Direct(oid.to_vec()),
            RefValue::Peeled { oid, peeled } => Value::Peeled(oid.to_vec(), peeled.to_vec()),
            RefValue::Symref(target) => Value::Symref(target.to_vec()),
        }
    }

    pub(crate) fn borrow(&self) -> RefValue<'_> {
        match self {
            Value::Deletion => RefValue::Deletion,
            Value::Direct(oid) => RefValue::Direct(oid),
            Value::Peeled(oid, peeled) => RefValue::Peeled { oid, peeled },
            Value::Symref(target) => RefValue::Symref(target),
        }
    }

    pub(crate) fn names(&self, wanted: &[u8]) -> bool {
        match self {
            Value::Deletion | Value::Symref(_) => false,
            Value::Direct(oid) => oid == wanted,
            Value::Peeled(oid, peeled) => oid == wanted || peeled == wanted,
        }
    }
}

/// A log entry, or that it is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Deletion,
    Update {
        old: Vec<u8>,
        new: Vec<u8>,
        who: Vec<u8>,
        time: u64,
        tz: i16,
        message: Vec<u8>,
    },
}

impl Entry {
    pub(crate) fn of(value: LogValue<'_>) -> Entry {
        match value {
            LogValue::Deletion => Entry::Deletion,
            LogValue::Update(update) => {
                assert_eq!(update.email, [update.name, b"@example.com"].concat());
                Entry::Update {
                    old: update.old.to_vec(),
                    new: update.new.to_vec(),
                    who: update.name.to_vec(),
                    time: update.time,
                    tz: update.tz,
                    message: update.message.to_vec(),
                }
            }
        }
    }
}

/// Names with their update index and value.
pub(crate) type Refs = BTreeMap<Vec<u8>, (u64, Value)>;
/// Names and inverted update indices with the entry: sorted as a table sorts them.
pub(crate) type Logs = BTreeMap<(Vec<u8>, u64), Entry>;

#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) refs: Refs,
    pub(crate) logs: Logs,
}

impl Model {
    pub(crate) fn write(&self, options: WriteOptions) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new(), options).unwrap();
        for (name, (update_index, value)) in &self.refs {
            let (name, update_index, value) = (name.as_slice(), *update_index, value.borrow());
            writer
                .add_ref(RefRecord {
                    name,
                    update_index,
                    value,
                })
                .unwrap();
        }
        for ((name, inverted), entry) in &self.logs {
            let email;
            let value = match entry {
                Entry::Deletion => LogValue::Deletion,
                Entry::Update {
                    old,
                    new,
                    who,
                    time,
                    tz,
                    message,
                } => {
                    email = [who, &b"@example.com"[..]].concat();
                    LogValue::Update(LogUpdate {
                        old,
                        new,
                        name: who,
                        email: &email,
                        time: *time,
                        tz: *tz,
                        message,
                    })
                }
            };
            writer
                .add_log(LogRecord {
                    name,
                    update_index: !inverted,
                    value,
                })
                .unwrap();
        }
        let finished = writer.finish().unwrap();
        assert_eq!(finished.stats.refs, self.refs.len() as u64);
        assert_eq!(finished.stats.logs, self.logs.len() as u64);
        assert_eq!(finished.stats.bytes, finished.sink.len() as u64);
        finished.sink
    }

    pub(crate) fn table(&self, options: WriteOptions) -> Arc<Table> {
        Arc::new(Table::open(self.write(options)).unwrap())
    }

    /// Puts a newer table's records over these.
    pub(crate) fn overlay(&mut self, newer: &Model) {
        self.refs.extend(newer.refs.clone());
        self.logs.extend(newer.logs.clone());
    }

    pub(crate) fn without_tombstones(mut self) -> Model {
        self.refs.retain(|_, (_, value)| *value != Value::Deletion);
        self.logs.retain(|_, entry| *entry != Entry::Deletion);
        self
    }
}

pub(crate) fn own_ref(record: RefRecord<'_>) -> (Vec<u8>, (u64, Value)) {
    (
        record.name.to_vec(),
        (record.update_index, Value::of(record.value)),
    )
}

pub(crate) fn own_log(record: LogRecord<'_>) -> ((Vec<u8>, u64), Entry) {
    (
        (record.name.to_vec(), !record.update_index),
        Entry::of(record.value),
    )
}

/// Options with room for update indices 1 to 100.
pub(crate) fn options(block_size: u32, restart_interval: u16) -> WriteOptions {
    let mut options = WriteOptions::new(ObjectFormat::Sha1);
    options.block_size = block_size;
    options.restart_interval = restart_interval;
    options.max_update_index = 100;
    options
}

/// Puts the checksum of the footer right.
pub(crate) fn put_checksum_right(bytes: &mut [u8]) {
    let footer_len = if bytes.get(4) == Some(&1) { 68 } else { 72 };
    let Some(start) = bytes.len().checked_sub(footer_len) else {
        return;
    };
    let (fields, crc) = bytes[start..].split_at_mut(footer_len - 4);
    let mut sum = flate2::Crc::new();
    sum.update(fields);
    crc.copy_from_slice(&sum.sum().to_be_bytes());
}
