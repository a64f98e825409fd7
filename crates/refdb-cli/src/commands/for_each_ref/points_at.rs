//! `--points-at`: refs that lead to certain objects, directly or through tags.

use std::collections::{HashMap, HashSet};

use refdb::objects::{ObjectKind, TAG_DEPTH_MAX, tag_target};
use refdb::{ObjectFormat, ObjectId, RefFormat, Refs, Store};

use super::value::Item;
use crate::context::Context;
use crate::failure::{Failure, Result};

/// The objects that refs have to lead to; any ref will do if there is none.
pub(super) struct PointsAt<'c> {
    context: &'c Context,
    format: ObjectFormat,
    objects: HashSet<ObjectId>,
    /// Whether the value that is stored beside a tag is enough to know: where every tag has one,
    /// and no tag is looked for.
    peeled_suffices: bool,
    known: HashMap<ObjectId, bool>,
}

impl<'c> PointsAt<'c> {
    pub(super) fn new(context: &'c Context, objects: Vec<ObjectId>) -> Result<Self> {
        let mut peeled_suffices = context.store()?.format() == RefFormat::Reftable;
        for oid in &objects {
            if !peeled_suffices {
                break;
            }
            let kind = context.odb()?.header(*oid)?.map(|header| header.kind);
            peeled_suffices = kind.is_some_and(|kind| kind != ObjectKind::Tag);
        }
        Ok(PointsAt {
            context,
            format: context.object_format()?,
            objects: objects.into_iter().collect(),
            peeled_suffices,
            known: HashMap::new(),
        })
    }

    /// Returns the refs among which are all that match, if an index knows them.
    pub(super) fn candidates(&self, store: &Store) -> Result<Option<Refs>> {
        if self.objects.is_empty() || !self.peeled_suffices {
            return Ok(None);
        }
        let objects: Vec<ObjectId> = self.objects.iter().copied().collect();
        Ok(store.refs_of_objects(&objects)?)
    }

    /// Returns whether a ref leads to one of the objects.
    pub(super) fn matches(&mut self, item: &Item<'_>) -> Result<bool> {
        if self.objects.is_empty() || self.objects.contains(&item.oid) {
            return Ok(true);
        }
        if let Some(peeled) = item.peeled
            && self.objects.contains(&peeled)
        {
            return Ok(true);
        }
        if self.peeled_suffices && !item.symbolic {
            return Ok(false);
        }
        if let Some(known) = self.known.get(&item.oid) {
            return Ok(*known);
        }
        let matches = self.follow(item)?;
        self.known.insert(item.oid, matches);
        Ok(matches)
    }

    /// Goes from tag to tag.
    fn follow(&self, item: &Item<'_>) -> Result<bool> {
        let odb = self.context.odb()?;
        let mut oid = item.oid;
        for _ in 0..TAG_DEPTH_MAX {
            match odb.header(oid)?.map(|header| header.kind) {
                Some(ObjectKind::Tag) => {}
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
