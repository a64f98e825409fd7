//! What is done to a store of refs as a whole: moving it into the other format, checking it,
//! mending it, and saying what it is made of.
//!
//! ```no_run
//! use refdb::RefFormat;
//! use refdb_git::Repository;
//! use refdb_maintenance::migrate::Migration;
//!
//! let repository = Repository::discover(".".as_ref())?;
//! let report = Migration::of(&repository).to(RefFormat::Reftable).run()?;
//! println!("{} refs", report.refs);
//! # Ok::<(), refdb::Error>(())
//! ```

pub mod inspect;
pub mod migrate;
pub mod progress;
pub mod repair;
pub mod shared;
mod stacks;
pub mod verify;
