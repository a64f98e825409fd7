//! The kinds and sizes of objects, each asked for once.

use hashbrown::HashMap;
use refdb::{ObjectId, RefName};
use refdb_git::objects::{Header, Odb};

use super::value::missing;
use crate::failure::Result;

/// What is known of objects. A copy begins with that.
#[derive(Clone)]
pub(super) struct Headers<'a> {
    odb: &'a Odb,
    known: HashMap<ObjectId, Option<Header>>,
}

impl<'a> Headers<'a> {
    pub(super) fn new(odb: &'a Odb) -> Self {
        Headers {
            odb,
            known: HashMap::new(),
        }
    }

    /// Returns the header of an object; `None` if it is missing.
    #[inline]
    pub(super) fn get(&mut self, oid: &ObjectId) -> Result<Option<Header>> {
        if let Some(header) = self.known.get(oid) {
            return Ok(*header);
        }
        let header = self.odb.header(*oid)?;
        self.known.insert(*oid, header);
        Ok(header)
    }

    /// Returns the header of the object that a ref names.
    ///
    /// # Errors
    /// Fatal, if it is missing.
    #[inline]
    pub(super) fn of_ref(&mut self, oid: &ObjectId, name: RefName<'_>) -> Result<Header> {
        self.get(oid)?.ok_or_else(|| missing(oid, name))
    }
}
