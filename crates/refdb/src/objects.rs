//! Objects, as far as refs care: whether one exists, of what kind it is, what a tag peels to.
//!
//! The store asks through the trait [`Objects`]; `Odb` of the crate `refdb-git` reads the object
//! database of a repository. [`NoObjects`] takes every object for a commit: for callers that know
//! their ids to be right.
//!
//! ```
//! use refdb::objects::{NoObjects, ObjectKind, Objects};
//! use refdb::{ObjectFormat, ObjectId};
//! let id = ObjectId::null(ObjectFormat::Sha1);
//! assert_eq!(NoObjects.kind(id).unwrap(), Some(ObjectKind::Commit));
//! ```

use std::fmt;

use refdb_names::ObjectId;

use crate::error::Result;

/// The kinds of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ObjectKind {
    /// A commit.
    Commit,
    /// A tree.
    Tree,
    /// A blob.
    Blob,
    /// An annotated tag.
    Tag,
}

impl ObjectKind {
    /// Returns Git's word for the kind.
    pub const fn as_str(self) -> &'static str {
        match self {
            ObjectKind::Commit => "commit",
            ObjectKind::Tree => "tree",
            ObjectKind::Blob => "blob",
            ObjectKind::Tag => "tag",
        }
    }
}

/// What an object peels to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peeled {
    /// The object is no tag: there is nothing to peel.
    Itself,
    /// The object is a tag, or a chain of tags, that ends at this object, and every object on the
    /// way has the type that the tag before it claims.
    To(ObjectId),
    /// The object is a tag whose object is missing or of another type: no value is stored for it.
    Nowhere,
    /// There is no such object.
    Missing,
}

/// An object database, as far as refs care.
pub trait Objects: Send + Sync + fmt::Debug {
    /// Returns the kind of an object; `None` if it is missing.
    ///
    /// # Errors
    /// When the database cannot be read.
    fn kind(&self, oid: ObjectId) -> Result<Option<ObjectKind>>;

    /// Returns what an object peels to.
    ///
    /// # Errors
    /// When the database cannot be read.
    fn peel(&self, oid: ObjectId) -> Result<Peeled>;

    /// Returns those of some objects that may be tags: that are tags, or are missing. Whoever finds that out for
    /// many objects in less time than for one after the other says how.
    ///
    /// # Errors
    /// When the database cannot be read.
    fn may_be_tags(&self, oids: &[ObjectId]) -> Result<Vec<ObjectId>> {
        let mut found = Vec::new();
        for oid in oids {
            if matches!(self.kind(*oid)?, None | Some(ObjectKind::Tag)) {
                found.push(*oid);
            }
        }
        Ok(found)
    }
}

/// An object database that has every object, each a commit.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObjects;

impl Objects for NoObjects {
    fn kind(&self, _oid: ObjectId) -> Result<Option<ObjectKind>> {
        Ok(Some(ObjectKind::Commit))
    }

    fn peel(&self, _oid: ObjectId) -> Result<Peeled> {
        Ok(Peeled::Itself)
    }
}
