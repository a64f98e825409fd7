//! refdb for C: the functions of `include/refdb.h`, which is made from this crate.
//!
//! Every function that can fail returns a [`refdb_status`] and goes through
//! `border`, where errors become codes and a panic ends. What a caller has to know of ownership and
//! threads stands with each function, and in docs/c.md.
//!
//! Invariants:
//! 1. Whatever was given out by an `out` parameter is freed by the one function that its type names,
//!    once. Everything else that a caller is shown belongs to the thing that it came from.
//! 2. A null pointer where one is not allowed, or a number that stands for nothing, is an error and
//!    reads nothing.
//! 3. No panic leaves.
#![allow(
    unsafe_code,
    non_camel_case_types,
    reason = "a border to C: pointers come from callers, and types have their C names"
)]

#[macro_use]
mod border;
mod log;
mod refs;
mod store;
mod transaction;
mod types;

pub use border::*;
pub use log::*;
pub use refs::*;
pub use store::*;
pub use transaction::*;
pub use types::*;
