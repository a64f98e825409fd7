//! The one seam to the outside world: files, directories, the clock, random numbers. All of it is in the
//! crate `refdb-system`; these are the parts that a user of a store meets.
//!
//! ```
//! use refdb::system::{OsSystem, System};
//! let error = OsSystem::new().read("/no/such/file".as_ref()).unwrap_err();
//! assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
//! ```

pub use refdb_system::beside::both;
pub use refdb_system::{
    Bytes, DirEntry, FileKind, GUARDED_MODE, Guard, GuardedFile, Machine, OsSystem, ProcessState,
    ReadFile, Scan, Stat, System, WHOLE_MAX, WriteFile, beside_this_thread, syncs,
};
pub(crate) use refdb_system::{
    FileId, Leaf, MAP_MIN, MayWrite, Tree, beside, bytes_to_path, dirs, find, is_absent, joined,
    list, processor_count, remove_empty_tree,
};
