//! The history of commits, as a graph that is read from the object database as far as a question
//! asks for it.
//!
//! 1. Nothing recurses: a history may be of any depth.
//! 2. A commit is read once; what is kept of it are its parents, its time and its generation.
//! 3. A commit-graph file is believed as Git believes it: not beside grafts, a shallow history or
//!    replaced objects, which it knows nothing of, and not when it is damaged.
//! 4. Every walk ends: what replaces commits, grafts, and a damaged commit-graph file can make a commit
//!    its own ancestor.
//! 5. A commit that is missing is an error that names it, never a shorter history, unless the
//!    caller asks for that.
//!
//! ```no_run
//! use refdb_git::Repository;
//!
//! let repository = Repository::discover(".".as_ref())?;
//! let mut graph = repository.graph()?;
//! let resolve = |name| repository.store().resolve(refdb::RefName::new(name)?);
//! let (main, topic) = (resolve("refs/heads/main")?, resolve("refs/heads/topic")?);
//! if let (Some(main), Some(topic)) = (main, topic) {
//!     let (main, topic) = (graph.commit(main.oid)?, graph.commit(topic.oid)?);
//!     let counts = graph.ahead_behind(topic, main)?;
//!     println!("ahead {}, behind {}", counts.ahead, counts.behind);
//! }
//! # Ok::<(), refdb::Error>(())
//! ```

mod bases;
mod counts;
mod file;
mod first_parents;
mod queue;
mod reach;

use std::collections::HashMap;

use bstr::ByteSlice;
use file::CommitGraph;
use queue::Key;
use refdb::{Error, ErrorKind, ObjectFormat, ObjectId, Result};

use crate::objects::{LargeSum, Object, ObjectKind, Odb, is_history, tag_target};

pub use queue::Queue;
pub use reach::{Containing, Reachable};

/// A commit of a [`Graph`]. It means nothing to another graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node(u32);

/// How far two commits are apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AheadBehind {
    /// How many commits the first one reaches and the second does not.
    pub ahead: u64,
    /// How many commits the second one reaches and the first does not.
    pub behind: u64,
}

/// Commits whose parents are taken to be others than they say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grafts(HashMap<ObjectId, Vec<ObjectId>>);

impl Grafts {
    /// Reads a file of grafts, one commit with its parents on each line, and a list of the commits
    /// at which a shallow history ends. A line of grafts that is something else is not looked at, as in Git.
    ///
    /// # Errors
    /// `Corrupt` for a line of the list that does not begin with an id.
    pub fn parse(grafts: &[u8], shallow: &[u8], format: ObjectFormat) -> Result<Grafts> {
        let id = |hex: &[u8]| ObjectId::from_hex(hex).filter(|oid| oid.format() == format);
        let mut parents = HashMap::new();
        for line in grafts.lines().filter(|line| !line.starts_with(b"#")) {
            let ids: Option<Vec<_>> = line
                .trim_ascii_end()
                .split(u8::is_ascii_whitespace)
                .map(id)
                .collect();
            if let Some((commit, of)) = ids.as_deref().and_then(<[_]>::split_first) {
                parents.entry(*commit).or_insert_with(|| of.to_vec());
            }
        }
        for line in shallow.lines() {
            let Some(oid) = line.get(..format.hex_len()).and_then(id) else {
                let line = line.as_bstr();
                return Err(damaged(format!("bad shallow line: {line}")));
            };
            parents.insert(oid, Vec::new());
        }
        Ok(Grafts(parents))
    }

    /// Returns whether every commit has the parents that it names.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether a commit gets parents, where a shallow history takes them away.
    fn have_parents(&self) -> bool {
        self.0.values().any(|parents| !parents.is_empty())
    }

    /// Returns the parents that a commit is taken to have, if they are others than it says.
    pub fn parents(&self, commit: ObjectId) -> Option<&[ObjectId]> {
        self.0.get(&commit).map(Vec::as_slice)
    }
}

/// The history of commits, as far as it was read.
pub struct Graph<'o> {
    odb: &'o Odb,
    grafts: Grafts,
    file: Option<CommitGraph>,
    /// Whether its generations are believed; `None` if that is to be looked at when the first commit is read.
    is_ordered: Option<bool>,
    missing_ends_history: bool,
    /// What was read of large commits.
    large: LargeSum,
    commits: Vec<Commit>,
    /// The parents of all commits that were read, one list behind the other.
    parents: Vec<Node>,
    known: HashMap<ObjectId, Node>,
    /// What a walk has found out of each commit; zero between walks.
    marks: Vec<u8>,
    /// The commits whose marks are not zero.
    marked: Vec<Node>,
}

/// What is known of a commit.
#[derive(Clone, Copy, Debug)]
struct Commit {
    oid: ObjectId,
    /// When it was committed, in seconds since 1970.
    time: u64,
    /// More than any of its parents', by the commit-graph file; [`UNKNOWN`] outside of it.
    generation: u32,
    /// More than any of its parents', as [`Graph::measure_levels`] finds it; 0 before.
    level: u32,
    /// Where its parents stand in the list.
    parents: (u32, u32),
    /// Whether anything but the id is known.
    is_read: bool,
}

/// The generation of a commit that is in no commit-graph file. Such a commit is never an ancestor
/// of one that is.
const UNKNOWN: u32 = u32::MAX;

/// The level of a commit while those of its ancestors are measured.
const ON_THE_WAY: u32 = u32::MAX;

impl<'o> Graph<'o> {
    /// Begins with an empty graph over the objects of `odb`.
    pub fn new(odb: &'o Odb) -> Self {
        Graph {
            odb,
            grafts: Grafts::default(),
            file: None,
            is_ordered: Some(true),
            missing_ends_history: false,
            large: LargeSum::default(),
            commits: Vec::new(),
            parents: Vec::new(),
            known: HashMap::new(),
            marks: Vec::new(),
            marked: Vec::new(),
        }
    }

    /// Takes other parents for some commits.
    pub(crate) fn with_grafts(mut self, grafts: Grafts) -> Self {
        self.grafts = grafts;
        self
    }

    /// Reads the commit-graph file beside the objects, if there is one that is sound.
    pub(crate) fn with_commit_graph_file(mut self) -> Self {
        self.file = CommitGraph::open(self.odb.dir(), self.odb.format());
        self
    }

    /// Looks whether each commit in the commit-graph file is later than its parents, before the first one is read, and
    /// lets walks go to their ends if not: what they do not find is to be deleted.
    pub(crate) fn with_checked_generations(mut self) -> Self {
        self.is_ordered = None;
        self
    }

    /// Takes a commit that is missing for one without parents, instead of refusing to go on. A damaged one is still
    /// an error.
    pub fn missing_ends_history(mut self) -> Self {
        self.missing_ends_history = true;
        self
    }

    /// Returns a commit.
    ///
    /// # Errors
    /// `Corrupt` when the object is missing or no commit, `Io` when it cannot be read.
    pub fn commit(&mut self, oid: ObjectId) -> Result<Node> {
        let node = self.enter(oid)?;
        self.read(node)?;
        Ok(node)
    }

    /// Returns the commit that an object is, or leads to through tags; `None` if there is none, and if one of them is
    /// missing.
    ///
    /// # Errors
    /// `Corrupt` when an object is damaged or a commit malformed, `Io` when an object cannot be read.
    pub fn peel(&mut self, oid: ObjectId) -> Result<Option<Node>> {
        let mut oid = oid;
        let mut claimed = None;
        // The object, and what it leads to if it is a tag.
        for _ in 0..2 {
            let is_in_file = || self.file.as_ref().is_some_and(|file| file.contains(oid));
            let is_known = self.known.get(&oid).is_some_and(|it| self.at(*it).is_read);
            if claimed.is_none_or(|kind| kind == ObjectKind::Commit) && (is_known || is_in_file()) {
                return self.commit(oid).map(Some);
            }
            let Some(object) = self.odb.read_of(oid, is_history)? else {
                self.odb.check_missing(oid)?;
                return Ok(None);
            };
            if claimed.is_some_and(|kind| kind != object.kind) {
                return Ok(None);
            }
            match object.kind {
                ObjectKind::Commit => {
                    let node = self.enter(oid)?;
                    self.read_from(node, Some(object))?;
                    return Ok(Some(node));
                }
                ObjectKind::Tag => {
                    let end = match tag_target(&object.data, self.odb.format()) {
                        Some((tag, ObjectKind::Tag)) => self.odb.end_of(tag)?,
                        end => end,
                    };
                    let Some((end, kind)) = end else {
                        self.odb.check_end_missing(oid)?;
                        return Ok(None);
                    };
                    (oid, claimed) = (end, Some(kind));
                }
                ObjectKind::Tree | ObjectKind::Blob => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Returns the id of a commit.
    pub fn oid(&self, node: Node) -> ObjectId {
        self.at(node).oid
    }

    /// Returns when a commit was committed, in seconds since 1970; 0 when it does not say.
    ///
    /// # Errors
    /// As for [`Graph::commit`].
    pub fn time(&mut self, node: Node) -> Result<u64> {
        self.read(node)?;
        Ok(self.at(node).time)
    }

    /// Returns the number of parents of a commit.
    ///
    /// # Errors
    /// As for [`Graph::commit`].
    pub fn parent_count(&mut self, node: Node) -> Result<usize> {
        self.read(node)?;
        Ok(self.parents_of(node).len())
    }

    /// Returns the parents of a commit.
    ///
    /// # Errors
    /// As for [`Graph::commit`].
    pub fn parents(&mut self, node: Node) -> Result<&[Node]> {
        self.read(node)?;
        Ok(self.parents_of(node))
    }

    fn parents_of(&self, node: Node) -> &[Node] {
        let (start, end) = self.at(node).parents;
        let range = start as usize..end as usize;
        self.parents.get(range).unwrap_or_default()
    }

    /// Returns one parent of a commit that was read.
    fn parent_at(&self, node: Node, index: usize) -> Option<Node> {
        self.parents_of(node).get(index).copied()
    }

    fn at(&self, node: Node) -> &Commit {
        &self.commits[node.0 as usize]
    }

    /// Gives a commit its place, without reading it.
    fn enter(&mut self, oid: ObjectId) -> Result<Node> {
        if let Some(node) = self.known.get(&oid) {
            return Ok(*node);
        }
        let node = Node(place(self.commits.len())?);
        self.commits.push(Commit {
            oid,
            time: 0,
            generation: UNKNOWN,
            level: 0,
            parents: (0, 0),
            is_read: false,
        });
        self.marks.push(0);
        self.known.insert(oid, node);
        Ok(node)
    }

    /// Reads a commit, if it was not read before.
    fn read(&mut self, node: Node) -> Result<()> {
        if self.at(node).is_read {
            return Ok(());
        }
        let oid = self.at(node).oid;
        let is_in_file = self.file.as_ref().is_some_and(|file| file.contains(oid));
        let object = if is_in_file {
            None
        } else {
            self.odb.read(oid)?
        };
        self.read_from(node, object)
    }

    /// Takes what is to be known of a commit from the commit-graph file, else from the object.
    fn read_from(&mut self, node: Node, object: Option<Object>) -> Result<()> {
        let oid = self.at(node).oid;
        let file = self.file.as_ref();
        let is_ordered = || file.is_none_or(CommitGraph::is_ordered);
        let is_ordered = *self.is_ordered.get_or_insert_with(is_ordered);
        let from_file = file.and_then(|file| file.commit(oid));
        let (time, generation, parents) = match from_file {
            Some(found) if is_ordered && !found.is_later => {
                let text = format!(
                    "the commit-graph file says that commit {oid} is no later than its parents; remove \
                     objects/info/commit-graph and objects/info/commit-graphs, and write it again with \
                     'git commit-graph write --reachable', or set core.commitGraph to false"
                );
                return Err(Error::new(ErrorKind::Corrupt, text));
            }
            Some(found) if is_ordered => (found.time, found.generation, found.parents),
            Some(found) => (found.time, UNKNOWN, found.parents),
            None => {
                let (time, parents) = self.parse(oid, object)?;
                (time, UNKNOWN, parents)
            }
        };
        let start = place(self.parents.len())?;
        for parent in parents {
            let parent = self.enter(parent)?;
            self.parents.push(parent);
        }
        let end = place(self.parents.len())?;
        self.commits[node.0 as usize] = Commit {
            oid,
            time,
            generation,
            level: if generation == UNKNOWN { 0 } else { generation },
            parents: (start, end),
            is_read: true,
        };
        Ok(())
    }

    /// Reads time and parents from the object itself.
    fn parse(&mut self, oid: ObjectId, object: Option<Object>) -> Result<(u64, Vec<ObjectId>)> {
        let object = match object {
            Some(object) => Some(object),
            // Its entry in the commit-graph file is damaged.
            None => self.odb.read(oid)?,
        };
        let Some(object) = object else {
            self.odb.check_missing(oid)?;
            if self.missing_ends_history {
                return Ok((0, Vec::new()));
            }
            return Err(damaged(format!(
                "unable to parse commit {oid}: it is missing"
            )));
        };
        if object.kind != ObjectKind::Commit {
            let kind = object.kind.as_str();
            return Err(damaged(format!("object {oid} is a {kind}, not a commit")));
        }
        if !self.large.add(&object) {
            let text = format!(
                "more than 1 GiB would be read in this history of commits that have more than 1 MiB each; {oid} is one \
                 too many"
            );
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        let time = commit_time(&object.data);
        if let Some(parents) = self.grafts.parents(oid) {
            return Ok((time, parents.to_vec()));
        }
        let parents = commit_parents(&object.data, self.odb.format());
        match parents {
            Some(parents) => Ok((time, parents)),
            None => Err(damaged(format!(
                "unable to parse commit {oid}: it is malformed"
            ))),
        }
    }

    /// Returns whether a commit may reach itself, as only replaced commits and grafts bring about.
    fn may_go_in_circles(&self) -> Result<bool> {
        Ok(self.grafts.have_parents() || self.odb.has_replacements()?)
    }

    fn key(&mut self, node: Node) -> Result<Key> {
        self.read(node)?;
        let commit = self.at(node);
        Ok(Key {
            generation: commit.generation,
            time: commit.time,
        })
    }

    fn mark(&self, node: Node) -> u8 {
        self.marks[node.0 as usize]
    }

    /// Adds to the mark of a commit; returns whether that was new.
    fn add_mark(&mut self, node: Node, mark: u8) -> bool {
        let old = self.marks[node.0 as usize];
        if old == 0 {
            self.marked.push(node);
        }
        self.marks[node.0 as usize] = old | mark;
        old | mark != old
    }

    fn take_mark(&mut self, node: Node, mark: u8) {
        self.marks[node.0 as usize] &= !mark;
    }

    fn clear_marks(&mut self) {
        for node in self.marked.drain(..) {
            self.marks[node.0 as usize] = 0;
        }
    }

    /// Measures how high each commit stands above the roots, for all that the tips reach. Then a
    /// commit has a higher level than its parents, whatever the clocks said.
    fn measure_levels(&mut self, tips: &[Node]) -> Result<()> {
        let mut path: Vec<(Node, usize)> = Vec::new();
        for &tip in tips {
            self.read(tip)?;
            if self.at(tip).level == 0 {
                self.commits[tip.0 as usize].level = ON_THE_WAY;
                path.push((tip, 0));
            }
            while let Some((node, next)) = path.last_mut() {
                let node = *node;
                if let Some(parent) = self.parent_at(node, *next) {
                    *next += 1;
                    self.read(parent)?;
                    match self.at(parent).level {
                        0 => {
                            self.commits[parent.0 as usize].level = ON_THE_WAY;
                            path.push((parent, 0));
                        }
                        // A file that says so is damaged: nothing is to be counted on there.
                        ON_THE_WAY if self.file.is_some() => {}
                        ON_THE_WAY => {
                            // Only replaced commits and grafts can do that.
                            let oid = self.at(parent).oid;
                            return Err(damaged(format!("commit {oid} is its own ancestor")));
                        }
                        _ => {}
                    }
                    continue;
                }
                let levels = self.parents_of(node).iter().map(|it| self.at(*it).level);
                let level = levels
                    .filter(|level| *level != ON_THE_WAY)
                    .max()
                    .unwrap_or(0)
                    .saturating_add(1)
                    .min(ON_THE_WAY - 1);
                self.commits[node.0 as usize].level = level;
                path.pop();
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for Graph<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Graph")
            .field("commits", &self.commits.len())
            .field("grafts", &self.grafts)
            .finish_non_exhaustive()
    }
}

/// Returns an index as it is stored.
fn place(index: usize) -> Result<u32> {
    u32::try_from(index).map_err(|_| {
        Error::new(
            ErrorKind::Unsupported,
            "a history of more than 4294967295 commits or parents cannot be followed",
        )
    })
}

fn damaged(what: String) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!("{what}; restore it from a copy of the repository, or fetch it again"),
    )
}

/// Returns the parents that a commit names; `None` if it is malformed.
pub(crate) fn commit_parents(commit: &[u8], format: ObjectFormat) -> Option<Vec<ObjectId>> {
    let id = |hex: &[u8]| ObjectId::from_hex(hex).filter(|oid| oid.format() == format);
    let mut lines = commit.lines();
    id(lines.next()?.strip_prefix(b"tree ")?)?;
    lines
        .map_while(|line| line.strip_prefix(b"parent "))
        .map(id)
        .collect()
}

/// Returns when a commit was committed, in seconds since 1970; 0 when it does not say.
pub fn commit_time(commit: &[u8]) -> u64 {
    let mut headers = commit.lines().take_while(|line| !line.is_empty());
    let line = headers.find(|line| line.starts_with(b"committer "));
    let time = line.and_then(|line| {
        let rest = line.get(line.rfind_byte(b'>')? + 1..)?;
        rest.fields().next()?.to_str().ok()?.parse().ok()
    });
    time.unwrap_or(0)
}
