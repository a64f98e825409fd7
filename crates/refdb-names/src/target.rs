//! What a ref holds: an object id, or the name of another ref.
//!
//! ```
//! use refdb_names::{RefName, TargetRef};
//! let target = TargetRef::Symbolic(RefName::new("refs/heads/main").unwrap());
//! assert!(target.oid().is_none());
//! ```

use crate::name::{RefName, RefNameBuf};
use crate::oid::ObjectId;

/// The value of a ref, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The ref names an object.
    Direct(ObjectId),
    /// The ref is a symref: it names another ref.
    Symbolic(RefNameBuf),
}

/// The value of a ref, borrowed from a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetRef<'a> {
    /// The ref names an object.
    Direct(ObjectId),
    /// The ref is a symref: it names another ref.
    Symbolic(RefName<'a>),
}

impl Target {
    /// Borrows the value.
    pub fn as_ref(&self) -> TargetRef<'_> {
        match self {
            Target::Direct(oid) => TargetRef::Direct(*oid),
            Target::Symbolic(name) => TargetRef::Symbolic(name.as_name()),
        }
    }

    /// Returns the object id, unless the ref is a symref.
    pub fn oid(&self) -> Option<ObjectId> {
        self.as_ref().oid()
    }

    /// Returns the name of the other ref, if the ref is a symref.
    pub fn symbolic(&self) -> Option<RefName<'_>> {
        match self {
            Target::Direct(_) => None,
            Target::Symbolic(name) => Some(name.as_name()),
        }
    }
}

impl TargetRef<'_> {
    /// Copies the value.
    pub fn to_owned(self) -> Target {
        match self {
            TargetRef::Direct(oid) => Target::Direct(oid),
            TargetRef::Symbolic(name) => Target::Symbolic(name.to_owned()),
        }
    }

    /// Returns the object id, unless the ref is a symref.
    pub fn oid(self) -> Option<ObjectId> {
        match self {
            TargetRef::Direct(oid) => Some(oid),
            TargetRef::Symbolic(_) => None,
        }
    }
}
