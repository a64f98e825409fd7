//! `--points-at`: refs that lead to certain objects, directly or through tags.

use std::collections::{HashMap, HashSet};

use refdb::objects::{ObjectKind, Objects, Peeled};
use refdb::{ObjectFormat, ObjectId, Refs, Store};
use refdb_git::objects::{TAG_DEPTH_MAX, tag_target};

use super::headers::Headers;
use super::value::Item;
use crate::context::Context;
use crate::failure::{Failure, Result};

/// The objects that refs have to lead to; any ref will do if there is none.
pub(super) struct PointsAt<'c> {
    context: &'c Context,
    format: ObjectFormat,
    objects: HashSet<ObjectId>,
    /// The same, and what those lead to that are tags: whatever leads to one of these leads there as well, so that
    /// what is stored beside refs tells which ones may match. `None` where that is not known.
    ends: Option<Vec<ObjectId>>,
    believes_stored: bool,
    known: HashMap<ObjectId, bool>,
    headers: Headers<'c>,
}

impl<'c> PointsAt<'c> {
    pub(super) fn new(context: &'c Context, objects: Vec<ObjectId>) -> Result<Self> {
        // What is stored beside refs is what they led to when they were written, by whichever replacements.
        let believes_stored = objects.is_empty() || !context.odb()?.has_replacements()?;
        let mut ends = believes_stored.then(|| objects.clone());
        for oid in &objects {
            match context.odb()?.peel(*oid)? {
                Peeled::Itself => {}
                Peeled::To(end) => ends.iter_mut().for_each(|ends| ends.push(end)),
                Peeled::Nowhere | Peeled::Missing => ends = None,
            }
        }
        Ok(PointsAt {
            context,
            format: context.object_format()?,
            objects: objects.into_iter().collect(),
            ends,
            believes_stored,
            known: HashMap::new(),
            headers: Headers::new(context.odb()?),
        })
    }

    /// Returns what is known of objects by now.
    pub(super) fn headers(&self) -> &Headers<'c> {
        &self.headers
    }

    /// Returns whether any ref will do.
    pub(super) fn is_any(&self) -> bool {
        self.objects.is_empty()
    }

    /// Returns refs among which are all that match.
    pub(super) fn candidates(&self, store: &Store) -> Result<Refs> {
        match &self.ends {
            Some(ends) if !ends.is_empty() => Ok(store.refs_of_objects(ends)?),
            _ => Ok(store.refs()?),
        }
    }

    /// Returns whether a ref leads to one of the objects.
    pub(super) fn matches(&mut self, item: &Item<'_>) -> Result<bool> {
        if self.objects.is_empty() || self.objects.contains(&item.oid) {
            return Ok(true);
        }
        if self.believes_stored
            && let Some(peeled) = item.peeled
            && self.objects.contains(&peeled)
        {
            return Ok(true);
        }
        if let Some(known) = self.known.get(&item.oid) {
            return Ok(*known);
        }
        let mut passed = Vec::new();
        let matches = self.follow(item, &mut passed)?;
        // Of a chain that nobody but an attacker makes some tags are enough: whoever comes to one goes no further.
        let some = passed.into_iter().step_by(16);
        self.known.extend(some.map(|tag| (tag, matches)));
        Ok(matches)
    }

    /// Goes from tag to tag, and notes which it has passed.
    fn follow(&mut self, item: &Item<'_>, passed: &mut Vec<ObjectId>) -> Result<bool> {
        let odb = self.context.odb()?;
        let mut oid = item.oid;
        for _ in 0..TAG_DEPTH_MAX {
            if let Some(known) = self.known.get(&oid) {
                return Ok(*known);
            }
            match self.headers.kind(&oid)? {
                Some(ObjectKind::Tag) => passed.push(oid),
                None if oid == item.oid => {
                    let text = format!("malformed object at '{}'", item.name);
                    return Err(Failure::fatal(text));
                }
                _ => return Ok(false),
            }
            let tag = odb.read(oid)?;
            let target = tag.and_then(|tag| tag_target(&tag.data, self.format));
            match target {
                Some((target, _)) if self.objects.contains(&target) => return Ok(true),
                Some((target, _)) => oid = target,
                None => break,
            }
        }
        Ok(false)
    }
}
