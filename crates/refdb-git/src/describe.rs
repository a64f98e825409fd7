//! Names for commits, made of the nearest tag: what `git describe` prints.
//!
//! 1. The tags are read once for any number of commits.
//! 2. Which of several tags counts as the nearest is decided as Git decides it, by walking the
//!    history in the order of time from the commit, and by nothing else.
//!
//! ```no_run
//! use refdb_git::Repository;
//! use refdb_git::describe::{Describer, Options};
//!
//! let repository = Repository::discover(".".as_ref())?;
//! let mut graph = repository.graph()?;
//! let describer = Describer::new(&repository, Options::default())?;
//! if let Some(head) = repository.store().resolve(refdb::RefName::new("HEAD")?)? {
//!     match describer.describe(&mut graph, head.oid)? {
//!         Some(name) => println!("{name}"),
//!         None => println!("no tag leads there"),
//!     }
//! }
//! # Ok::<(), refdb::Error>(())
//! ```

use std::collections::HashMap;

use bstr::{BString, ByteSlice};
use gix_glob::wildmatch;
use gix_glob::wildmatch::Mode;
use refdb::internals::timestamp;
use refdb::{ObjectId, Result};

use crate::graph::{Graph, Node, Queue};
use crate::objects::{Abbreviations, ObjectKind, Objects, Peeled, tag_target};
use crate::repository::Repository;

/// Of how many tags the nearest one is chosen.
const CANDIDATES_MAX: usize = 10;
/// The mark of commits that were met; the other bits are those of the candidates.
const SEEN: u32 = 1;

/// Which tags may name a commit, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether tags that are no objects of their own count as well.
    pub tags: bool,
    /// The fewest digits of the id behind the tag, as many as the configuration says if `None`; 0
    /// leaves out everything but the tag.
    pub abbrev: Option<usize>,
    /// If there are any, only tags that match one of these patterns count.
    pub include: Vec<BString>,
    /// Tags that match one of these patterns do not count.
    pub exclude: Vec<BString>,
}

/// A tag that names a commit.
#[derive(Clone, Debug)]
struct Name {
    /// Its name, without `refs/tags/`.
    name: BString,
    oid: ObjectId,
    is_annotated: bool,
}

/// A tag in whose history the walk is.
struct Candidate {
    commit: ObjectId,
    depth: usize,
    /// The mark of the commits that the tag reaches.
    within: u32,
}

/// Describes commits.
#[derive(Debug)]
pub struct Describer<'r> {
    repository: &'r Repository,
    options: Options,
    /// The tag that stands for each object.
    names: HashMap<ObjectId, Name>,
    abbreviations: Abbreviations,
}

impl<'r> Describer<'r> {
    /// Reads the tags.
    ///
    /// # Errors
    /// `Corrupt` or `Io` for the files.
    pub fn new(repository: &'r Repository, options: Options) -> Result<Self> {
        let mut describer = Describer {
            repository,
            options,
            names: HashMap::new(),
            abbreviations: repository.odb().abbreviations()?,
        };
        let mut refs = repository.store().refs()?;
        refs.seek_prefix(b"refs/tags/")?;
        while let Some(record) = refs.next()? {
            let (Some(name), false) = (
                record.name.as_bytes().strip_prefix(b"refs/tags/"),
                record.broken || record.has_bad_name(),
            ) else {
                continue;
            };
            if !describer.counts(name) {
                continue;
            }
            let (oid, peeled) = match record.target.oid() {
                Some(oid) => (oid, record.peeled),
                None => match repository.store().resolve(record.name)? {
                    Some(resolved) => (resolved.oid, resolved.peeled),
                    None => continue,
                },
            };
            let name = BString::from(name);
            describer.add(name, oid, peeled)?;
        }
        Ok(describer)
    }

    fn counts(&self, name: &[u8]) -> bool {
        let matches =
            |pattern: &BString| wildmatch(pattern.as_bstr(), name.as_bstr(), Mode::empty());
        let options = &self.options;
        let is_included = options.include.is_empty() || options.include.iter().any(matches);
        is_included && !options.exclude.iter().any(matches)
    }

    fn add(&mut self, name: BString, oid: ObjectId, peeled: Option<ObjectId>) -> Result<()> {
        let peeled = match peeled {
            Some(peeled) => Some(peeled),
            None => match self.repository.odb().peel(oid)? {
                Peeled::To(peeled) => Some(peeled),
                Peeled::Itself | Peeled::Nowhere | Peeled::Missing => None,
            },
        };
        let new = Name {
            name,
            oid,
            is_annotated: peeled.is_some(),
        };
        let replaces = match self.names.get(&peeled.unwrap_or(oid)) {
            None => true,
            Some(old) if old.is_annotated != new.is_annotated => new.is_annotated,
            Some(old) => new.is_annotated && self.tag_time(old.oid)? < self.tag_time(oid)?,
        };
        if replaces {
            self.names.insert(peeled.unwrap_or(oid), new);
        }
        Ok(())
    }

    /// Returns when a tag was made, in seconds since 1970; 0 when it does not say.
    fn tag_time(&self, oid: ObjectId) -> Result<u64> {
        let tag = self.repository.odb().read(oid)?;
        let tag = tag.map(|tag| tag.data).unwrap_or_default();
        let mut headers = tag.lines().take_while(|line| !line.is_empty());
        let line = headers.find(|line| line.starts_with(b"tagger "));
        let time = line.and_then(|line| {
            let rest = line.get(line.find_byte(b'>')? + 1..)?;
            timestamp(rest)
        });
        Ok(time.map_or(0, |(time, _)| time))
    }

    /// Returns the description of a commit, or of the commit that a tag leads to; `None` if no tag
    /// leads there or it is no commit.
    ///
    /// # Errors
    /// As for [`Graph::commit`].
    pub fn describe(&self, graph: &mut Graph<'_>, oid: ObjectId) -> Result<Option<BString>> {
        let Some(commit) = graph.peel(oid)? else {
            return Ok(None);
        };
        let oid = graph.oid(commit);
        if let Some(name) = self.names.get(&oid)
            && (self.options.tags || name.is_annotated)
        {
            let (mut text, misnamed) = self.shown(name)?;
            if let Some(target) = misnamed {
                // As in Git, what the tag itself names, which may be another tag.
                self.push_suffix(&mut text, 0, target)?;
            }
            return Ok(Some(text));
        }
        let mut walk = Walk::new(graph, commit)?;
        let Some(best) = walk.nearest(self)? else {
            return Ok(None);
        };
        let Some(name) = self.names.get(&best.commit) else {
            return Ok(None);
        };
        let (mut text, misnamed) = self.shown(name)?;
        if misnamed.is_some() || self.options.abbrev != Some(0) {
            self.push_suffix(&mut text, best.depth, oid)?;
        }
        Ok(Some(text))
    }

    /// Returns what is shown of a tag: the name in its object, and, if that is another than the
    /// ref's, what the tag names.
    fn shown(&self, name: &Name) -> Result<(BString, Option<ObjectId>)> {
        let plain = Ok((name.name.clone(), None));
        if !name.is_annotated {
            return plain;
        }
        let tag = self.repository.odb().read(name.oid)?;
        let Some(tag) = tag.filter(|tag| tag.kind == ObjectKind::Tag) else {
            return plain;
        };
        let mut headers = tag.data.lines().take_while(|line| !line.is_empty());
        let own = headers.find_map(|line| line.strip_prefix(b"tag ").map(BString::from));
        let target = tag_target(&tag.data, name.oid.format());
        match (own, target) {
            (Some(own), Some((target, _))) if own != name.name => Ok((own, Some(target))),
            _ => plain,
        }
    }

    fn push_suffix(&self, text: &mut BString, depth: usize, oid: ObjectId) -> Result<()> {
        let hex = oid.to_string();
        let len = match self.options.abbrev {
            Some(0) => hex.len(),
            Some(least) => self.abbreviations.len(oid, Some(least))?,
            None => self
                .abbreviations
                .len(oid, self.repository.abbreviation()?)?,
        };
        let hex = hex.get(..len).unwrap_or(&hex);
        text.extend_from_slice(format!("-{depth}-g{hex}").as_bytes());
        Ok(())
    }
}

/// A walk from a commit into its history.
struct Walk<'w, 'o> {
    graph: &'w mut Graph<'o>,
    queue: Queue,
    marks: HashMap<Node, u32>,
    seen: usize,
}

impl<'w, 'o> Walk<'w, 'o> {
    fn new(graph: &'w mut Graph<'o>, commit: Node) -> Result<Self> {
        let mut queue = Queue::default();
        queue.push_by_time(graph, commit)?;
        Ok(Walk {
            graph,
            queue,
            marks: HashMap::from([(commit, SEEN)]),
            seen: 0,
        })
    }

    fn mark(&self, node: Node) -> u32 {
        self.marks.get(&node).copied().unwrap_or(0)
    }

    /// Passes the mark of a commit on to its parents.
    fn pass_on(&mut self, node: Node) -> Result<()> {
        let mark = self.mark(node);
        let parents = self.graph.parents(node)?.to_vec();
        for parent in parents {
            let of_parent = self.marks.entry(parent).or_insert(0);
            let is_new = *of_parent & SEEN == 0;
            *of_parent |= mark;
            if is_new {
                self.queue.push_by_time(self.graph, parent)?;
            }
        }
        Ok(())
    }

    /// Finds the nearest tag.
    fn nearest(&mut self, describer: &Describer<'_>) -> Result<Option<Candidate>> {
        let mut candidates: Vec<Candidate> = Vec::new();
        let mut annotated = 0;
        while let Some(node) = self.queue.pop() {
            self.seen += 1;
            let is_enough =
                candidates.len() == CANDIDATES_MAX || candidates.len() == describer.names.len();
            if is_enough {
                // It is looked at again when the depth of the nearest one is counted to the end.
                self.queue.push_by_time(self.graph, node)?;
                self.seen -= 1;
                break;
            }
            let commit = self.graph.oid(node);
            if let Some(name) = describer.names.get(&commit)
                && (describer.options.tags || name.is_annotated)
            {
                let within = SEEN << (candidates.len() + 1);
                candidates.push(Candidate {
                    commit,
                    depth: self.seen - 1,
                    within,
                });
                *self.marks.entry(node).or_insert(0) |= within;
                annotated += usize::from(name.is_annotated);
            }
            let mark = self.mark(node);
            for candidate in &mut candidates {
                candidate.depth += usize::from(mark & candidate.within == 0);
            }
            if annotated > 0 && self.queue.is_empty() && is_covered(mark, &candidates) {
                break;
            }
            self.pass_on(node)?;
        }
        // The first of those that are equally near is the one that was found first.
        candidates.sort_by_key(|candidate| candidate.depth);
        let Some(mut best) = candidates.into_iter().next() else {
            return Ok(None);
        };
        self.finish(&mut best)?;
        Ok(Some(best))
    }

    /// Counts the commits that the best candidate does not reach to the end.
    fn finish(&mut self, best: &mut Candidate) -> Result<()> {
        while let Some(node) = self.queue.pop() {
            if self.mark(node) & best.within == 0 {
                best.depth += 1;
            } else if self.queue.iter().all(|it| self.mark(it) & best.within != 0) {
                break;
            }
            self.pass_on(node)?;
        }
        Ok(())
    }
}

/// Returns whether all of the nearest candidates reach a commit with this mark.
fn is_covered(mark: u32, candidates: &[Candidate]) -> bool {
    let least = candidates.iter().map(|it| it.depth).min();
    let mut best = candidates.iter().filter(|it| Some(it.depth) == least);
    best.all(|it| mark & it.within != 0)
}
