//! The one seam to the outside world: files, directories, the clock, random numbers. All of it is in the
//! crate `refdb-system`; these are the parts that a user of a store meets.
//!
//! ```
//! use refdb::system::{OsSystem, System};
//! let error = OsSystem::new().read("/no/such/file".as_ref()).unwrap_err();
//! assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
//! ```

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use refdb_system::beside::both;
pub use refdb_system::{
    Bytes, DirEntry, FileKind, GUARDED_MODE, Guard, GuardedFile, Machine, OsSystem, ProcessState,
    ReadFile, Scan, Stat, System, WHOLE_MAX, WriteFile, beside_this_thread, syncs,
};
pub(crate) use refdb_system::{
    FileId, Leaf, MAP_MIN, MayWrite, Tree, beside, bytes_to_path, dirs, find, is_absent, joined,
    list, processor_count, remove_empty_tree,
};

/// Takes a mutex. What is behind those of this crate is whole whenever one is given up, so that a panic
/// spoils none.
pub(crate) fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns nothing where a path leads to nothing.
pub(crate) fn if_there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(error) if is_absent(&error) => Ok(None),
        found => found.map(Some),
    }
}
