//! The object database of a repository, read with the gix libraries.
//!
//! [`Odb`] answers what the store asks through the trait [`Objects`], and what commands ask beside:
//! the content of an object, its size, its short id.
//!
//! ```no_run
//! use refdb_git::objects::Objects;
//!
//! let repository = refdb_git::Repository::discover(".".as_ref())?;
//! let head = repository.store().resolve(refdb::RefName::new("HEAD")?)?;
//! if let Some(head) = head {
//!     println!("{:?}", repository.odb().kind(head.oid)?);
//! }
//! # Ok::<(), refdb::Error>(())
//! ```

mod abbreviations;
mod alternates;
mod chains;
mod database;
mod kinds;
mod odb;
mod packs;
mod storage;

pub use abbreviations::{ABBREVIATION_MIN, Abbreviations};
pub use odb::{
    Absent, AbsentFolder, Header, LEN_MAX, LargeSum, Object, Odb, TAG_DEPTH_MAX, tag_target,
};
pub(crate) use odb::{Replacements, is_history};
#[doc(no_inline)]
pub use refdb::objects::{NoObjects, ObjectKind, Objects, Peeled};
pub use storage::Storage;
