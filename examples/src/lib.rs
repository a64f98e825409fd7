//! Ten everyday tasks with refdb, and the same with gix-ref and git2. docs/everyday.md shows them side by
//! side; the tests run each, and Git says what came of it.

pub mod git2_tasks;
pub mod gix_ref_tasks;
pub mod refdb_tasks;

/// Whatever a library fails with.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
