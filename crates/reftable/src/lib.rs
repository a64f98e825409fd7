//! Git's reftable format: bytes to records and back.
//!
//! This crate opens no file, takes no lock and knows no clock. A [`Table`] is read from bytes that
//! the caller has, through cursors that borrow what they show; a [`Writer`] turns sorted records
//! into the bytes that Git itself would write. Everything else is made of these two: merging
//! tables ([`MergedRefs`], [`MergedLogs`]), [`compact`]ing them, finding refs by object id
//! ([`refs_by_oid`]), and [`check`]ing a table in depth.
//!
//! Whatever the bytes of a table are, nothing here panics on them, loops without end, or allocates
//! more than 16 MiB because of a number found in them.
//!
//! The byte layouts are described in docs/format.md of the repository, and nowhere else.
//!
//! ```
//! use std::sync::Arc;
//! use reftable::{ObjectFormat, MergedRefs, RefRecord, RefValue, Table, WriteOptions, Writer};
//!
//! let mut writer = Writer::new(Vec::new(), WriteOptions::new(ObjectFormat::Sha1))?;
//! for name in ["refs/heads/main", "refs/tags/v1"] {
//!     let value = RefValue::Direct(&[7; 20]);
//!     writer.add_ref(RefRecord { name: name.as_bytes(), update_index: 1, value })?;
//! }
//! let table = Arc::new(Table::open(writer.finish()?.sink)?);
//!
//! let mut refs = MergedRefs::new(vec![table]).live_only();
//! refs.seek_prefix(b"refs/tags/")?;
//! while let Some(record) = refs.next()? {
//!     assert_eq!(record.name, b"refs/tags/v1");
//! }
//! # Ok::<(), reftable::Error>(())
//! ```

mod block;
mod by_oid;
mod check;
mod compact;
pub mod compaction;
mod cursor;
mod error;
mod finder;
mod header;
mod key;
mod merge;
mod merged;
mod object_format;
mod record;
mod salvage;
mod search;
pub mod short;
mod spelled;
mod table;
mod varint;
mod walk;
mod writer;

pub use by_oid::{objects_without_peeled, refs_by_oid, refs_that_may_lead_to};
pub use check::{Finding, TableSection, check};
pub use compact::compact;
pub use cursor::{LogCursor, RefCursor};
pub use error::{Error, ErrorKind, Result};
pub use finder::RefFinder;
pub use header::Sections;
pub use merged::{MergedLogs, MergedRefs, find_ref};
pub use object_format::ObjectFormat;
pub use record::{LogRecord, LogUpdate, LogValue, RefRecord, RefValue};
pub use salvage::{Salvaged, diagnose, salvage, salvage_as};
pub use table::Table;
pub use walk::{BlockInfo, BlockKind, Blocks};
pub use writer::{Finished, Stats, WriteOptions, Writer};
