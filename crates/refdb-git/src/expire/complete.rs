//! Whether everything is there that a commit needs: its history, and the trees and blobs of it. What is damaged is an
//! error, not something that is missing.

use std::collections::HashMap;

use bstr::ByteSlice;
use refdb::{ObjectId, Result};

use crate::graph::{Graph, Reachable, commit_parents};
use crate::objects::{ObjectKind, Odb};

/// Commits and trees that were looked at. What the refs reach is taken to be complete.
#[derive(Debug)]
pub(super) struct Completeness {
    reached: Reachable,
    known: HashMap<ObjectId, bool>,
}

/// A part of an object: what it should be.
type Part = (ObjectId, ObjectKind);

impl Completeness {
    pub(super) fn new(reached: Reachable) -> Self {
        Completeness {
            reached,
            known: HashMap::new(),
        }
    }

    /// Returns whether a commit lacks nothing.
    pub(super) fn has(
        &mut self,
        odb: &Odb,
        graph: &mut Graph<'_>,
        commit: ObjectId,
    ) -> Result<bool> {
        // From the commit down, each with those of its parts that are still to be looked at.
        let mut way: Vec<(ObjectId, Vec<Part>)> = Vec::new();
        let mut next = Some((commit, ObjectKind::Commit));
        loop {
            if let Some((oid, kind)) = next.take()
                && self.known.get(&oid) != Some(&true)
            {
                // What lacks something makes all above it lack it. So does what leads back to itself: it is damaged,
                // and no reason to go on for ever.
                if self.known.insert(oid, false).is_some() {
                    return Ok(false);
                }
                match self.parts(odb, graph, oid, kind)? {
                    None => return Ok(false),
                    Some(parts) => way.push((oid, parts)),
                }
            }
            let Some((oid, parts)) = way.last_mut() else {
                return Ok(true);
            };
            next = parts.pop();
            if next.is_none() {
                self.known.insert(*oid, true);
                way.pop();
            }
        }
    }

    /// Returns the objects that one object needs; `None` if it is missing or malformed.
    fn parts(
        &mut self,
        odb: &Odb,
        graph: &mut Graph<'_>,
        oid: ObjectId,
        kind: ObjectKind,
    ) -> Result<Option<Vec<Part>>> {
        match odb.header(oid)? {
            None => {
                odb.check_missing(oid)?;
                return Ok(None);
            }
            Some(header) if header.kind != kind => return Ok(None),
            Some(_) => {}
        }
        if kind == ObjectKind::Blob {
            return Ok(Some(Vec::new()));
        }
        if kind == ObjectKind::Commit {
            let node = graph.commit(oid)?;
            if self.reached.contains(graph, node)? {
                return Ok(Some(Vec::new()));
            }
        }
        let Some(object) = odb.read(oid)? else {
            odb.check_missing(oid)?;
            return Ok(None);
        };
        if kind == ObjectKind::Tree {
            return Ok(tree_parts(&object.data, oid.format().raw_len()));
        }
        let tree = object.data.lines().next();
        let tree = tree.and_then(|line| ObjectId::from_hex(line.strip_prefix(b"tree ")?));
        let parents = commit_parents(&object.data, oid.format());
        Ok(tree.zip(parents).map(|(tree, parents)| {
            let mut parts = vec![(tree, ObjectKind::Tree)];
            parts.extend(
                parents
                    .into_iter()
                    .map(|parent| (parent, ObjectKind::Commit)),
            );
            parts
        }))
    }
}

/// Returns what the content of a tree names, each once, but for commits of other repositories.
fn tree_parts(mut tree: &[u8], width: usize) -> Option<Vec<Part>> {
    let mut parts = Vec::new();
    while !tree.is_empty() {
        let (mode, rest) = tree.split_once_str(" ")?;
        let (_, rest) = rest.split_once_str("\0")?;
        let (raw, rest) = rest.split_at_checked(width)?;
        let oid = ObjectId::from_bytes(raw)?;
        match mode {
            b"160000" => {}
            b"40000" => parts.push((oid, ObjectKind::Tree)),
            _ => parts.push((oid, ObjectKind::Blob)),
        }
        tree = rest;
    }
    // A tree that names another one very often would take memory for each time, on every level.
    parts.sort_unstable_by_key(|&(part, _)| part);
    parts.dedup();
    parts.shrink_to_fit();
    Some(parts)
}
