//! refdb for Python: the module `refdb._refdb`, which the package `refdb` shows.
//!
//! Invariants:
//! 1. No file is touched, and no lock of Rust's waited for, while this thread keeps Python to itself.
//! 2. Nothing is tied to the thread or the process that made it.

mod columns;
mod convert;
mod failure;
mod refs;
mod store;
mod transaction;

use pyo3::prelude::*;

/// What the package `refdb` is made of.
#[pymodule(gil_used = false)]
mod _refdb {
    #[pymodule_export]
    use crate::columns::Columns;
    #[pymodule_export]
    use crate::refs::{Names, Ref, Refs};
    #[pymodule_export]
    use crate::store::{LogEntry, Store, open};
    #[pymodule_export]
    use crate::transaction::{Rejection, Transaction};
}
