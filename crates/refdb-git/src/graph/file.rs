//! Commit-graph files: parents, times and generations of commits without reading the objects.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use bstr::ByteSlice;
use gix_commitgraph::{File, Position};
use refdb::internals::bytes_to_path;
use refdb::system::{FileKind, OsSystem, System};
use refdb::{ObjectFormat, ObjectId};

/// How many parents a commit may have that are told here: a file may say any number.
const PARENTS_MAX: usize = 1 << 20;

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
    /// Whether its generation is later than those of its parents: if not, no walk could be cut short by them.
    pub(super) is_later: bool,
}

impl CommitGraph {
    /// Opens the file of an object directory; `None` if there is none, or it is of no use.
    pub(super) fn open(objects: &Path, format: ObjectFormat) -> Option<Self> {
        let kind = match format {
            ObjectFormat::Sha1 => gix_hash::Kind::Sha1,
            ObjectFormat::Sha256 => gix_hash::Kind::Sha256,
        };
        let paths = find(&OsSystem::new(), &objects.join("info"))?;
        let len: u64 = paths.iter().map(|(_, len)| len).sum();
        let mut files: Vec<File> = Vec::new();
        for (path, _) in paths {
            let file = File::at(path).ok()?;
            // Of a chain whose parts do not belong together Git takes what is below.
            if file.object_hash() != kind || !stands_on(&file, &files) {
                break;
            }
            files.push(file);
        }
        let graph = gix_commitgraph::Graph::new(files).ok()?;
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

    /// Returns whether every commit is later than its parents.
    pub(super) fn is_ordered(&self) -> bool {
        let mut left = self.parents_left.get();
        let mut is_later = |generation: u32, parent: gix_error::Result<Position>| {
            left = left.saturating_sub(1);
            let parent = parent.ok().filter(|_| left > 0);
            parent.is_some_and(|at| self.graph.commit_at(at).generation() < generation)
        };
        self.graph.iter_commits().all(|commit| {
            let generation = commit.generation();
            commit
                .iter_parents()
                .all(|parent| is_later(generation, parent))
        })
    }

    /// Returns what is known of a commit; `None` if it is not there, or its entry is damaged.
    pub(super) fn commit(&self, oid: ObjectId) -> Option<Found> {
        let id = gix_hash::oid::from_bytes_unchecked(oid.as_bytes());
        let commit = self.graph.commit_by_id(id)?;
        let (time, generation) = (commit.committer_timestamp(), commit.generation());
        let mut is_later = true;
        let parents = commit.iter_parents().enumerate().map(|(at, parent)| {
            let left = self.parents_left.get().checked_sub(1)?;
            self.parents_left.set(left);
            let parent = self
                .graph
                .commit_at(parent.ok().filter(|_| at < PARENTS_MAX)?);
            is_later &= parent.generation() < generation;
            ObjectId::from_bytes(parent.id().as_bytes())
        });
        let parents = parents.collect::<Option<_>>()?;
        Some(Found {
            time,
            generation,
            parents,
            is_later,
        })
    }
}

/// Returns whether a file of a chain was made for those below it.
fn stands_on(file: &File, below: &[File]) -> bool {
    usize::from(file.base_graph_count()) == below.len()
        && file
            .iter_base_graph_ids()
            .eq(below.iter().map(File::checksum))
}

/// Returns the file, or those of a chain, and how many bytes each has; `None` if there is none, or something that is
/// no file and would be waited for.
fn find(system: &dyn System, info: &Path) -> Option<Vec<(PathBuf, u64)>> {
    let found = |path: PathBuf| match system.stat(&path) {
        Ok(stat) if stat.kind == FileKind::File => Some((path, stat.len)),
        _ => None,
    };
    let one = info.join("commit-graph");
    if system.stat(&one).is_ok() {
        return Some(vec![found(one)?]);
    }
    let folder = info.join("commit-graphs");
    let chain = system.read_at_most(&folder.join("commit-graph-chain"), CHAIN_MAX * 66);
    let chain = chain.ok()?;
    let files = chain.lines().take(CHAIN_MAX).map(|hash| {
        let name = [b"graph-", hash.trim_ascii_end(), b".graph"].concat();
        found(folder.join(bytes_to_path(&name)))
    });
    files.collect()
}
