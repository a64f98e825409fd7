//! One repository's refs on a place that many machines share: a bucket, or a directory.
//!
//! All that is asked of the place is [`Shared`]: immutable objects, and a few that are replaced only on
//! the condition that they are still what was read. The newest of these, the [`Head`](head::Head), names the
//! tables and holds the newest records itself, so that a small commit is one request ([`Register`]). The
//! protocol, in numbered invariants, is in docs/scale-out.md.
//!
//! ```
//! use std::sync::Arc;
//!
//! use refdb::objects::NoObjects;
//! use refdb::shared::{MemoryShared, Register, Settings};
//! use refdb::system::OsSystem;
//! use refdb::{Edit, ObjectFormat, ObjectId, Options, RefName, Store};
//!
//! let bucket = Arc::new(MemoryShared::new());
//! Register::init(bucket.as_ref(), &OsSystem::new(), ObjectFormat::Sha1, 1)?;
//!
//! let open = || -> refdb::Result<Store> {
//!     let register = Register::open(bucket.clone(), Arc::new(OsSystem::new()), Settings::default())?;
//!     let options = Options::new(ObjectFormat::Sha1);
//!     Store::open_shared(Arc::new(register), Arc::new(NoObjects), options)
//! };
//! let (one, other) = (open()?, open()?);
//! let main = RefName::new("refs/heads/main")?;
//! let oid = ObjectId::from_hex(&[b'1'; 40]).expect("forty digits");
//! let mut transaction = one.transaction();
//! transaction.add(Edit::update(main, oid))?;
//! transaction.commit()?;
//! assert_eq!(other.resolve(main)?.map(|found| found.oid), Some(oid));
//! # Ok::<(), refdb::Error>(())
//! ```

mod cache;
mod garbage;
pub mod head;
pub(crate) mod memory;
mod register;
mod table_key;

use std::fmt;
use std::ops::Range;

pub use garbage::Collected;
pub(crate) use garbage::check_open;
pub use memory::MemoryShared;
pub use register::{Freshness, Known, Register, Settings, Swapped};
pub use table_key::TableKey;

use crate::error::Result;
use crate::system::Bytes;

/// What tells one content of a slot from every other: an ETag, a generation, a hash.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Version(pub String);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What reading a slot found.
#[derive(Clone, Debug)]
pub enum Read {
    /// It is of the version that the caller knows.
    Same,
    /// It was never written.
    Missing,
    /// Its content, and the version of that.
    Head(Bytes, Version),
}

/// What became of replacing a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swap {
    /// It was replaced, and is of this version now.
    Done(Version),
    /// It is not as expected (any more). Whether it was this very request that changed it, sent before,
    /// nobody has said.
    Moved,
    /// Whether it was replaced, or will be, is not known: the reply was lost, or is an error that says
    /// nothing of it.
    Unknown,
}

/// A place that keeps the refs of one repository for many machines.
///
/// A slot is replaced by one writer for each version of it: of two that expect the same version, at most
/// one succeeds, whenever their requests arrive. Reading one gives what the last finished replacement
/// wrote, or a later one. Everything else is stored once, under a name that nothing else ever gets.
pub trait Shared: Send + Sync + fmt::Debug {
    /// Returns whether an answer takes so long that several requests are better sent at once.
    fn is_far(&self) -> bool {
        false
    }

    /// Returns what to call the place in messages.
    fn name(&self) -> String;

    /// Reads a slot, unless it is of the version that is known.
    ///
    /// # Errors
    /// `Io` when the place cannot be reached, or refuses.
    fn head(&self, slot: u32, known: Option<&Version>) -> Result<Read>;

    /// Replaces a slot that is of the expected version; `None` for one that was never written. One
    /// attempt: a request that is sent again by anything but the caller may be answered by what it did
    /// itself.
    ///
    /// # Errors
    /// Only when it is certain that the request changed nothing, and never will.
    fn swap(&self, slot: u32, expected: Option<&Version>, new: &[u8]) -> Result<Swap>;

    /// Reads an object, or a range of it; `None` if there is none.
    ///
    /// # Errors
    /// `Io` when the place cannot be reached, or refuses.
    fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Option<Bytes>>;

    /// Stores an object whose name nothing else has. Storing it twice does no harm.
    ///
    /// # Errors
    /// `Io` when it is not known to be stored.
    fn put(&self, key: &str, content: &[u8]) -> Result<()>;

    /// Removes objects. Those that are not there are fine.
    ///
    /// # Errors
    /// `Io` when one may still be there.
    fn delete(&self, keys: &[&str]) -> Result<()>;

    /// Removes slots that no store uses, such as those that a probe wrote. Those that are not there are fine.
    ///
    /// # Errors
    /// `Io` when one may still be there.
    fn clear(&self, slots: Range<u32>) -> Result<()>;

    /// Removes what writers left who ended in the middle, where they leave anything.
    ///
    /// # Errors
    /// `Io` when some of it is still there.
    fn sweep(&self) -> Result<()> {
        Ok(())
    }

    /// Lists the objects whose names begin with `prefix`, and how many bytes each has. One that came or
    /// went lately may be missing, or still be there.
    ///
    /// # Errors
    /// `Io` when the place cannot be reached, or refuses.
    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>>;
}

/// What the names of all tables begin with.
const TABLES_PREFIX: &str = "tables/";

/// Returns the name of the object of a table.
fn table_object(name: &str) -> String {
    format!("{TABLES_PREFIX}{name}")
}
