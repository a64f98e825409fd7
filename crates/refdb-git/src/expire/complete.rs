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

/// What is still to be looked at: an object, or the answer for one whose parts were looked at.
enum Step {
    Look(ObjectId, ObjectKind),
    Sum(ObjectId, Vec<ObjectId>),
}

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
        let mut steps = vec![Step::Look(commit, ObjectKind::Commit)];
        while let Some(step) = steps.pop() {
            match step {
                Step::Look(oid, _) if self.known.contains_key(&oid) => {}
                Step::Look(oid, kind) => match self.parts(odb, graph, oid, kind)? {
                    None => {
                        self.known.insert(oid, false);
                    }
                    Some(parts) => {
                        // What leads back to itself is damaged, and no reason to go on for ever.
                        self.known.insert(oid, false);
                        let names = parts.iter().map(|&(part, _)| part).collect();
                        steps.push(Step::Sum(oid, names));
                        steps.extend(parts.into_iter().map(|(part, kind)| Step::Look(part, kind)));
                    }
                },
                Step::Sum(oid, parts) => {
                    let is_known = |part| self.known.get(part).copied().unwrap_or(false);
                    let complete = parts.iter().all(is_known);
                    self.known.insert(oid, complete);
                }
            }
        }
        Ok(self.known.get(&commit).copied().unwrap_or(false))
    }

    /// Returns the objects that one object needs; `None` if it is missing or malformed.
    fn parts(
        &mut self,
        odb: &Odb,
        graph: &mut Graph<'_>,
        oid: ObjectId,
        kind: ObjectKind,
    ) -> Result<Option<Vec<(ObjectId, ObjectKind)>>> {
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

/// Returns what the content of a tree names, but for commits of other repositories.
fn tree_parts(mut tree: &[u8], width: usize) -> Option<Vec<(ObjectId, ObjectKind)>> {
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
    Some(parts)
}
