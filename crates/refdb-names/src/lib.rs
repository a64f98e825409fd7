//! What refs are called, and what they hold: names by Git's rules, and ids of objects.
//!
//! Nothing here opens a file or knows of a store: a tool that only asks whether a name is one, or which class it
//! belongs to, needs no more. `refdb` has all of it under the same names.
//!
//! ```
//! use refdb_names::{ObjectId, RefName, Target};
//!
//! assert!(RefName::new("refs/heads/topic").is_ok());
//! assert!(RefName::new("refs/heads/topic.lock").is_err());
//! let target = Target::Direct(ObjectId::from_hex(&[b'1'; 40]).expect("forty digits"));
//! assert!(target.symbolic().is_none());
//! ```

pub mod internals;
pub mod name;
pub mod oid;
pub mod target;

pub use name::{InvalidName, RefName, RefNameBuf};
pub use oid::{ObjectFormat, ObjectId};
pub use target::{Target, TargetRef};
