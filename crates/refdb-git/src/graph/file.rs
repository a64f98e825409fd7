//! Commit-graph files: parents, times and generations of commits without reading the objects.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use bstr::ByteSlice;
use refdb::internals::bytes_to_path;
use refdb::system::{FileKind, OsSystem, System};
use refdb::{ObjectFormat, ObjectId};

/// How many bytes the lists of parents of merges with many parents may take.
const PARENTS_MAX: usize = 1 << 30;

/// How many files are in a chain at most.
const CHAIN_MAX: usize = 256;

/// The commits of a commit-graph file, or of a chain of them.
pub(super) struct CommitGraph {
    graph: gix_commitgraph::Graph,
    /// How many more parents can be told: each place in a file tells one, unless it is damaged.
    parents_left: Cell<u64>,
}

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
        let info = objects.join("info");
        let (path, len) = find(&OsSystem::new(), &info)?;
        let graph = gix_commitgraph::Graph::at(&path, kind, Some(PARENTS_MAX)).ok()?;
        // The first versions of Git wrote no generations; without them there is no order.
        let has_generations = graph.iter_commits().next()?.generation() > 0;
        has_generations.then_some(CommitGraph {
            graph,
            parents_left: Cell::new(len / 4),
        })
    }

    /// Returns whether a commit is there.
    pub(super) fn contains(&self, oid: ObjectId) -> bool {
        let id = gix_hash::oid::from_bytes_unchecked(oid.as_bytes());
        self.graph.lookup(id).is_some()
    }

    /// Returns what is known of a commit; `None` if it is not there, or its entry is damaged.
    pub(super) fn commit(&self, oid: ObjectId) -> Option<Found> {
        let id = gix_hash::oid::from_bytes_unchecked(oid.as_bytes());
        let commit = self.graph.commit_by_id(id)?;
        let (time, generation) = (commit.committer_timestamp(), commit.generation());
        let parents = commit.iter_parents().map(|parent| {
            let left = self.parents_left.get().checked_sub(1)?;
            self.parents_left.set(left);
            let parent = self.graph.id_at(parent.ok()?);
            ObjectId::from_bytes(parent.as_bytes())
        });
        Some(Found {
            time,
            generation,
            parents: parents.collect::<Option<_>>()?,
        })
    }
}

/// Returns the file, or the folder with a chain of them, and how many bytes are there; `None` if
/// there is none, or something that is no file and would be waited for.
fn find(system: &dyn System, info: &Path) -> Option<(PathBuf, u64)> {
    let len_of = |path: &Path| match system.stat(path) {
        Ok(stat) if stat.kind == FileKind::File => Some(stat.len),
        _ => None,
    };
    let one = info.join("commit-graph");
    if system.stat(&one).is_ok() {
        let len = len_of(&one)?;
        return Some((one, len));
    }
    let folder = info.join("commit-graphs");
    let chain = system.read_at_most(&folder.join("commit-graph-chain"), CHAIN_MAX * 66);
    let chain = chain.ok()?;
    let files = chain.lines().take(CHAIN_MAX).map(|hash| {
        let name = [b"graph-", hash.trim_ascii_end(), b".graph"].concat();
        len_of(&folder.join(bytes_to_path(&name)))
    });
    let len: Option<u64> = files.sum();
    len.map(|len| (folder, len))
}
