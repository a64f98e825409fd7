//! The kinds and sizes of objects, each asked for once.

use hashbrown::HashMap;
use refdb::ObjectId;
use refdb::objects::ObjectKind;
use refdb_git::objects::Odb;

use super::value::missing;
use crate::failure::Result;

/// Of so many objects it is kept: where most refs have objects of their own, more would only take memory.
const KNOWN_MAX: usize = 1 << 15;

/// What is known of objects. A copy begins with that.
#[derive(Clone)]
pub(super) struct Headers<'a> {
    odb: &'a Odb,
    /// Whether sizes are wanted as well, which takes longer.
    sizes: bool,
    known: HashMap<ObjectId, Option<Said>>,
}

/// What an object is said to be.
#[derive(Clone, Copy)]
struct Said {
    kind: ObjectKind,
    size: Option<u64>,
}

impl<'a> Headers<'a> {
    pub(super) fn new(odb: &'a Odb) -> Self {
        Headers {
            odb,
            sizes: false,
            known: HashMap::new(),
        }
    }

    /// Says that the size of each object will be asked for, too.
    pub(super) fn with_sizes(mut self) -> Self {
        self.sizes = true;
        self
    }

    /// Returns the kind of an object; `None` if it is missing.
    #[inline]
    pub(super) fn kind(&mut self, oid: &ObjectId) -> Result<Option<ObjectKind>> {
        Ok(self.said(oid, self.sizes)?.map(|said| said.kind))
    }

    /// Returns the kind of the object that a ref names.
    ///
    /// # Errors
    /// Fatal, if it is missing.
    #[inline]
    pub(super) fn kind_of_ref(&mut self, oid: &ObjectId, name: &[u8]) -> Result<ObjectKind> {
        self.kind(oid)?.ok_or_else(|| missing(oid, name))
    }

    /// Returns the size of the object that a ref names.
    ///
    /// # Errors
    /// Fatal, if it is missing.
    pub(super) fn size_of_ref(&mut self, oid: &ObjectId, name: &[u8]) -> Result<u64> {
        let size = self.said(oid, true)?.and_then(|said| said.size);
        size.ok_or_else(|| missing(oid, name))
    }

    /// Returns the kind of an object, if it is known.
    #[inline]
    pub(super) fn known_kind(&self, oid: &ObjectId) -> Option<ObjectKind> {
        self.known.get(oid)?.map(|said| said.kind)
    }

    /// Returns the kinds of objects that can be told at once: each of the others is asked for by itself, which tells
    /// what is wrong.
    pub(super) fn kinds_at_once(&self, oids: &[ObjectId]) -> Vec<Option<ObjectKind>> {
        let kinds = self.odb.kinds_at_once(oids);
        kinds.unwrap_or_else(|_| vec![None; oids.len()])
    }

    /// Finds out what is not known of many objects, unless sizes are wanted.
    pub(super) fn learn(&mut self, mut oids: Vec<ObjectId>) {
        if self.sizes {
            return;
        }
        oids.retain(|oid| !self.known.contains_key(oid));
        let kinds = self.kinds_at_once(&oids);
        self.make_room(oids.len());
        let told = oids.into_iter().zip(kinds);
        self.known.extend(told.filter_map(|(oid, kind)| {
            let said = kind.map(|kind| Said { kind, size: None })?;
            Some((oid, Some(said)))
        }));
    }

    #[inline]
    fn said(&mut self, oid: &ObjectId, size: bool) -> Result<Option<Said>> {
        if let Some(known) = self.known.get(oid)
            && !(size && known.is_some_and(|said| said.size.is_none()))
        {
            return Ok(*known);
        }
        let said = ask(self.odb, *oid, size)?;
        self.make_room(1);
        self.known.insert(*oid, said);
        Ok(said)
    }

    /// Forgets all if so many more would be too many.
    fn make_room(&mut self, count: usize) {
        if self.known.len() + count > KNOWN_MAX {
            self.known.clear();
        }
    }
}

fn ask(odb: &Odb, oid: ObjectId, size: bool) -> refdb::Result<Option<Said>> {
    if size {
        let header = odb.header(oid)?;
        return Ok(header.map(|header| Said {
            kind: header.kind,
            size: Some(header.size),
        }));
    }
    let kind = odb.kind_said(oid)?;
    Ok(kind.map(|kind| Said { kind, size: None }))
}
