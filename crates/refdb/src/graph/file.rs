//! Commit-graph files: parents, times and generations of commits without reading the objects.

use std::path::Path;

use crate::oid::{ObjectFormat, ObjectId};

/// How many bytes the lists of parents of merges with many parents may take.
const PARENTS_MAX: usize = 1 << 30;

/// The commits of a commit-graph file, or of a chain of them.
pub(super) struct CommitGraph(gix_commitgraph::Graph);

/// What the file says of a commit.
pub(super) struct Found {
    pub(super) time: u64,
    pub(super) generation: u32,
    pub(super) parents: Vec<ObjectId>,
}

impl CommitGraph {
    /// Opens the file of an object directory; `None` if there is none, or it is of no use.
    pub(super) fn open(objects: &Path, format: ObjectFormat) -> Option<Self> {
        let kind = match format {
            ObjectFormat::Sha1 => gix_hash::Kind::Sha1,
            ObjectFormat::Sha256 => gix_hash::Kind::Sha256,
        };
        let graph =
            gix_commitgraph::Graph::at(&objects.join("info"), kind, Some(PARENTS_MAX)).ok()?;
        // The first versions of Git wrote no generations; without them there is no order.
        let has_generations = graph.iter_commits().next()?.generation() > 0;
        has_generations.then_some(CommitGraph(graph))
    }

    /// Returns whether a commit is there.
    pub(super) fn contains(&self, oid: ObjectId) -> bool {
        let id = gix_hash::oid::from_bytes_unchecked(oid.as_bytes());
        self.0.lookup(id).is_some()
    }

    /// Returns what is known of a commit; `None` if it is not there, or its entry is damaged.
    pub(super) fn commit(&self, oid: ObjectId) -> Option<Found> {
        let id = gix_hash::oid::from_bytes_unchecked(oid.as_bytes());
        let commit = self.0.commit_by_id(id)?;
        let (time, generation) = (commit.committer_timestamp(), commit.generation());
        let parents = commit.iter_parents().map(|parent| {
            let parent = self.0.id_at(parent.ok()?);
            ObjectId::from_bytes(parent.as_bytes())
        });
        Some(Found {
            time,
            generation,
            parents: parents.collect::<Option<_>>()?,
        })
    }
}
