//! Tables that no writer makes: with names that no ref can have.
//!
//! ```
//! use refdb_testkit::{Format, forge, forge::RefValue, repo::Repo};
//!
//! let repo = Repo::init(Format::REFTABLE_SHA1);
//! let symref = (&b"refs/heads/s"[..], RefValue::Symref(b"../../x"));
//! let path = forge::on_top(&repo.git_dir(), repo.format().objects, &[symref], &[]);
//! assert!(path.starts_with(repo.git_dir().join("reftable")));
//! ```

use std::fs;
use std::path::{Path, PathBuf};

pub use reftable::RefValue;
use reftable::{LogRecord, LogUpdate, LogValue, RefRecord, WriteOptions, Writer};

use crate::damage::crc32;
use crate::format::ObjectFormat;
use crate::oracle::{EMAIL, NAME, TIME};

/// An update index above those of any small stack.
const INDEX: u64 = 99;

/// Puts a table with these refs, and with a reflog of one entry for each of `logs`, on top of the stack
/// of a repository; both come sorted. Returns its path.
///
/// # Panics
///
/// If the records do not fit, or there is no stack.
pub fn on_top(
    git_dir: &Path,
    objects: ObjectFormat,
    refs: &[(&[u8], RefValue<'_>)],
    logs: &[&[u8]],
) -> PathBuf {
    on_top_at(INDEX, git_dir, objects, refs, logs)
}

/// As [`on_top`], with this update index.
///
/// # Panics
/// As [`on_top`].
pub fn on_top_at(
    index: u64,
    git_dir: &Path,
    objects: ObjectFormat,
    refs: &[(&[u8], RefValue<'_>)],
    logs: &[&[u8]],
) -> PathBuf {
    let dir = git_dir.join("reftable");
    let list = dir.join("tables.list");
    let name = format!("0x{index:012x}-0x{index:012x}-12345678.ref");
    let path = dir.join(&name);
    fs::write(&path, table_at(index, objects, refs, logs)).expect("the table can be written");
    let lines = fs::read_to_string(&list).expect("a stack has a list");
    let new = dir.join("tables.list.new");
    fs::write(&new, format!("{lines}{name}\n")).expect("the list can be written");
    fs::rename(new, list).expect("the list can be replaced");
    path
}

/// Returns the bytes of such a table.
///
/// # Panics
///
/// If the records do not fit.
pub fn table(objects: ObjectFormat, refs: &[(&[u8], RefValue<'_>)], logs: &[&[u8]]) -> Vec<u8> {
    table_at(INDEX, objects, refs, logs)
}

/// Returns a table that says these update indices of itself, and is the same otherwise.
///
/// # Panics
///
/// If that is no table.
#[must_use]
pub fn with_indices(mut table: Vec<u8>, min: u64, max: u64) -> Vec<u8> {
    let header_len = if table[4] == 1 { 24 } else { 28 };
    let footer = table.len() - header_len - 44;
    for header in [0, footer] {
        table[header + 8..header + 16].copy_from_slice(&min.to_be_bytes());
        table[header + 16..header + 24].copy_from_slice(&max.to_be_bytes());
    }
    let end = table.len() - 4;
    let sum = crc32(&table[footer..end]);
    table[end..].copy_from_slice(&sum.to_be_bytes());
    table
}

fn table_at(
    index: u64,
    objects: ObjectFormat,
    refs: &[(&[u8], RefValue<'_>)],
    logs: &[&[u8]],
) -> Vec<u8> {
    let mut options = WriteOptions::new(objects);
    (options.min_update_index, options.max_update_index) = (index, index);
    let mut writer = Writer::new(Vec::new(), options).expect("sound options");
    for &(name, value) in refs {
        let record = RefRecord {
            name,
            update_index: index,
            value,
        };
        writer.add_ref(record).expect("a record that fits");
    }
    let (old, new) = (vec![0; objects.raw_len()], vec![7; objects.raw_len()]);
    for name in logs {
        let update = LogUpdate {
            old: &old,
            new: &new,
            name: NAME.as_bytes(),
            email: EMAIL.as_bytes(),
            time: TIME,
            tz: 0,
            message: b"forged\n",
        };
        let record = LogRecord {
            name,
            update_index: index,
            value: LogValue::Update(update),
        };
        writer.add_log(record).expect("a record that fits");
    }
    writer.finish().expect("memory takes everything").sink
}
