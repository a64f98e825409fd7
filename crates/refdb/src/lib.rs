//! The reference database of a Git repository: branches, tags, `HEAD`, every ref and its reflog,
//! in both of Git's formats, on disk exactly as Git reads and writes them.
//!
//! Whoever knows where the refs are kept, and how, opens the [`Store`]. A program that works in a
//! repository lets `Repository` of the crate `refdb-git` find it and read its configuration, as Git
//! does, and takes the store from there. Here [`NoObjects`](objects::NoObjects) stands for an object
//! database that has every object:
//!
//! ```
//! use std::sync::Arc;
//!
//! use refdb::layout::Layout;
//! use refdb::objects::NoObjects;
//! use refdb::system::OsSystem;
//! use refdb::{
//!     Edit, ErrorKind, Expected, LogOrder, ObjectFormat, ObjectId, Options, RefFormat, RefName, Store,
//! };
//!
//! # let dir = tempfile::tempdir().unwrap();
//! # let git_dir = dir.path();
//! let store = Store::open(
//!     Arc::new(OsSystem::new()),
//!     Layout::main(git_dir),
//!     RefFormat::Files,
//!     Arc::new(NoObjects),
//!     Options::new(ObjectFormat::Sha1),
//! )?;
//!
//! // A transaction: all of it happens, or nothing.
//! let one = ObjectId::from_hex(&[b'1'; 40]).expect("forty digits");
//! let mut transaction = store.transaction();
//! for name in ["refs/heads/main", "refs/heads/topic", "refs/pull/1/head"] {
//!     let edit = Edit::update(RefName::new(name)?, one).expecting(Expected::Missing);
//!     transaction.add(edit.message(b"made for show"))?;
//! }
//! transaction.commit()?;
//!
//! // Reading: absence is no error. `resolve` follows symrefs, `read` does not.
//! let main = RefName::new("refs/heads/main")?;
//! assert_eq!(store.resolve(main)?.map(|found| found.oid), Some(one));
//! assert!(store.read(RefName::new("refs/heads/other")?)?.is_none());
//!
//! // Listing, in the order of names: below a prefix, or without what an exclusion jumps over.
//! let mut refs = store.refs()?.excluding([b"refs/pull/".to_vec()]);
//! refs.seek_prefix(b"refs/")?;
//! let mut names = Vec::new();
//! while let Some(record) = refs.next()? {
//!     names.push(record.name.to_string());
//! }
//! assert_eq!(names, ["refs/heads/main", "refs/heads/topic"]);
//! // The same refs as an iterator, each with a name of its own.
//! let owned = store.refs()?.into_iter().collect::<refdb::Result<Vec<_>>>()?;
//! assert_eq!(owned[0].name.as_name(), main);
//!
//! // An update that depends on the value that was seen is refused when it has changed.
//! let two = ObjectId::from_hex(&[b'2'; 40]).expect("forty digits");
//! let mut transaction = store.transaction();
//! transaction.add(Edit::update(main, two).expecting(Expected::Oid(two)))?;
//! let error = transaction.commit().unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::Rejected);
//!
//! // Why a branch is where it is.
//! let log = store.log(main, LogOrder::NewestFirst)?.expect("branches have a reflog");
//! assert_eq!(log[0].message, "made for show");
//! assert_eq!((log[0].old.is_null(), log[0].new), (true, one));
//! # Ok::<(), refdb::Error>(())
//! ```
//!
//! Errors tell by their [`ErrorKind`] what can be done. Writes are durable when a commit returns,
//! unless [`Options::fsync`] says otherwise. A [`Store`] can be cloned, shared between threads, and
//! kept open: it sees what other processes write.

pub mod error;
pub mod hook;
pub mod internals;
pub mod layout;
pub mod objects;
pub mod options;
pub mod reflog;
pub mod refs;
pub mod shared;
pub mod store;
pub mod system;
pub mod transaction;

mod backend;
mod commit;
mod resolve;

pub use backend::cursor::RefRecord;
pub use backend::{LogOrder, RefFormat};
pub use error::{Error, ErrorKind, Reason, Rejection, Result};
pub use options::Options;
pub use refdb_names::{
    InvalidName, ObjectFormat, ObjectId, RefName, RefNameBuf, Target, TargetRef, name, oid, target,
};
pub use reflog::{LogEntry, Signature};
pub use refs::{Part, Ref, Refs};
pub use reftable::short;
pub use store::{Optimize, Resolved, Store};
pub use transaction::{
    Change, ChangeOf, Edit, Expected, ExpectedOf, Group, LockedRefs, LogEdit, LogRewrite, Outcome,
    Prepared, Renaming, Transaction,
};
