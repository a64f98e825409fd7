//! The reference database of a Git repository: branches, tags, `HEAD`, every ref and its reflog,
//! in both of Git's formats, on disk exactly as Git reads and writes them.
//!
//! Start with [`Repository::discover`] (feature `git`, on by default) or [`Store::open`].

#[cfg(feature = "git")]
pub mod date;
pub mod error;
pub mod layout;
pub mod name;
pub mod objects;
pub mod oid;
pub mod options;
pub mod reflog;
#[cfg(feature = "git")]
pub mod repository;
#[cfg(feature = "git")]
pub mod revision;
pub mod store;
pub mod system;
pub mod target;
pub mod transaction;

mod backend;
mod lockfile;
mod resolve;

pub use backend::cursor::RefRecord;
pub use backend::{LogOrder, Ref, RefFormat};
pub use error::{Error, ErrorKind, Reason, Rejection, Result};
pub use name::{RefName, RefNameBuf};
pub use oid::{ObjectFormat, ObjectId};
pub use options::Options;
pub use reflog::{LogEntry, Signature};
#[cfg(feature = "git")]
pub use repository::Repository;
pub use store::{Optimize, Refs, Resolved, Store};
pub use target::{Target, TargetRef};
pub use transaction::{Change, Edit, Expected, Outcome, Prepared, Transaction};
