//! All refs of a store as columns, which any library that knows Arrow takes over without a copy.
//!
//! [`Table::read`] reads, with two threads where there are many refs; [`Table::into_stream`] hands the
//! columns on by Arrow's C data interface. The columns are those of [`Field`].
//!
//! Invariants:
//! 1. A buffer is never changed once it is part of a [`Table`].
//! 2. What was handed on belongs to its `release` alone, and is freed once, whoever calls that.
//!
//! ```
//! use refdb_arrow::{Selection, Table};
//!
//! fn columns(store: &refdb::Store) -> refdb::Result<refdb_arrow::ArrowArrayStream> {
//!     let selection = Selection {
//!         prefix: b"refs/heads/".to_vec(),
//!         ..Selection::default()
//!     };
//!     Ok(Table::read(store, &selection)?.into_stream())
//! }
//! ```

mod stream;
mod table;

pub use stream::{ArrowArray, ArrowArrayStream, ArrowSchema};
pub use table::{Batch, Field, Selection, Table};
