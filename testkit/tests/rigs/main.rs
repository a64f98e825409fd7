//! Searches on the simulated disk, and random transactions: the store fails, dies, loses power and
//! waits for locks in more ways than one can list.
//!
//! They take minutes, so that they are not among the tests of `refdb`. How much each of them does can be
//! said (docs/testing.md), and each writes what it did to the trust ledger.

mod ahead;
mod faults;
mod follow;
mod here;
mod hosts;
mod locks;
mod random;
mod shared;

use std::path::Path;
use std::sync::Arc;

use refdb::shared::Shared;
use refdb::system::OsSystem;
use refdb_git::places::DirShared;

/// Opens the place of the machines: a directory, behind a URL that the store lets others open.
pub(crate) fn open_place(url: &str) -> Arc<dyn Shared> {
    let path = url.strip_prefix("s3://directory").expect("a URL of ours");
    Arc::new(DirShared::open(&OsSystem::new(), Path::new(path), true).expect("a folder"))
}
