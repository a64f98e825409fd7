//! Refs that are owned, and the refs of a cursor as a Rust iterator.

use std::iter::FusedIterator;

use refdb_names::{ObjectId, RefName, RefNameBuf, Target};

use super::Refs;
use crate::backend::Value;
use crate::backend::cursor::RefRecord;
use crate::error::Result;

/// One ref, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ref {
    /// The full name.
    pub name: RefNameBuf,
    /// The value; the null id for a broken ref.
    pub target: Target,
    /// What the value peels to, when it is stored beside it: only for annotated tags. `None` says
    /// nothing about whether the object is a tag.
    pub peeled: Option<ObjectId>,
    /// Whether the value comes from packed-refs.
    pub packed: bool,
    /// Whether the value could not be read, or is the null id. Such a ref is listed and cannot be read.
    pub broken: bool,
}

impl Ref {
    pub(crate) fn new(name: RefName<'_>, value: Value) -> Self {
        let Value {
            target,
            peeled,
            packed,
        } = value;
        Ref {
            name: name.to_owned(),
            target,
            peeled,
            packed,
            broken: false,
        }
    }
}

impl RefRecord<'_> {
    /// Copies the ref.
    pub fn to_ref(&self) -> Ref {
        Ref {
            name: self.name.to_owned(),
            target: self.target.to_owned(),
            peeled: self.peeled,
            packed: self.packed,
            broken: self.broken,
        }
    }
}

/// The refs from where a cursor stood on, each owned; nothing follows an error.
pub struct IntoIter {
    /// `None` behind the last ref.
    refs: Option<Refs>,
}

impl Iterator for IntoIter {
    type Item = Result<Ref>;

    fn next(&mut self) -> Option<Result<Ref>> {
        let found = match self.refs.as_mut()?.next() {
            Ok(Some(record)) => return Some(Ok(record.to_ref())),
            ended => ended.err(),
        };
        self.refs = None;
        found.map(Err)
    }
}

impl FusedIterator for IntoIter {}

impl IntoIterator for Refs {
    type Item = Result<Ref>;
    type IntoIter = IntoIter;

    fn into_iter(self) -> IntoIter {
        IntoIter { refs: Some(self) }
    }
}
