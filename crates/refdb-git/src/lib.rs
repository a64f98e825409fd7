//! A Git repository as Git opens it: found from a directory, with its configuration, its objects
//! and the names that it has for commits. Its refs are a [`refdb::Store`].
//!
//! ```no_run
//! use refdb_git::Repository;
//! use refdb_git::refdb::RefName;
//!
//! let repository = Repository::discover(".".as_ref())?;
//! let main = repository.store().resolve(RefName::new("refs/heads/main")?)?;
//! println!("{:?}", main.map(|found| found.oid));
//! # Ok::<(), refdb_git::refdb::Error>(())
//! ```

pub mod date;
pub mod describe;
pub mod expire;
pub mod graph;
pub mod internals;
pub mod objects;
pub mod places;
pub mod repository;
pub mod revision;

/// The library of the refs themselves, so that one dependency is enough.
pub use refdb;
pub use repository::Repository;

/// The example that README.md begins with, so that it is compiled with the others.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
