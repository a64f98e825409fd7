//! Which entries of a reflog are too old to keep.
//!
//! 1. Every entry that is older than one moment goes; one that is older than another moment goes if
//!    its ref cannot reach it any more. Command line, configuration of a pattern of names and
//!    configuration for all count in this order.
//! 2. Nothing is written here: what is to go is told to [`Store::rewrite_log`].
//! 3. History is walked once for all reflogs of HEAD, and not at all where age alone decides.
//! 4. A commit that is damaged ends it with an error: what it reaches would be taken for unreachable. One that is
//!    missing does not, as in Git. The generations in a commit-graph file are counted on where all
//!    of them can be right.
//!
//! ```no_run
//! use refdb::{LogRewrite, RefName};
//! use refdb_git::Repository;
//! use refdb_git::expire::{Expiry, Policy};
//!
//! let repository = Repository::discover(".".as_ref())?;
//! let policy = Policy::new(&repository, Default::default())?;
//! let mut expiry = Expiry::new(&repository)?;
//! for name in repository.store().log_names()? {
//!     let mut judge = expiry.of_log(name.as_name(), policy.limits(name.as_name()));
//!     let keep = |entry: &_| judge.is_expired(entry).map(|expired| !expired);
//!     repository.store().rewrite_log(name.as_name(), LogRewrite::default(), keep)?;
//! }
//! # Ok::<(), refdb::Error>(())
//! ```
//!
//! [`Store::rewrite_log`]: refdb::Store::rewrite_log

mod complete;

use std::collections::HashMap;

use bstr::{BStr, BString, ByteSlice};
use complete::Completeness;
use gix_glob::wildmatch;
use gix_glob::wildmatch::Mode;
use refdb::name::worktree_name;
use refdb::{Error, ErrorKind, LogEntry, ObjectId, RefName, RefNameBuf, Result, TargetRef};

use crate::date;
use crate::graph::{Graph, Reachable};
use crate::objects::{ObjectKind, Objects, Odb, Peeled};
use crate::repository::Repository;

const SECONDS_PER_DAY: u64 = 86_400;

/// The ages, in days, that count where nothing else is said.
const TOTAL_DAYS: u64 = 90;
const UNREACHABLE_DAYS: u64 = 30;

/// A moment in seconds since 1970; what is older is expired. Nothing is older than the moment 0.
pub type Cutoff = u64;

/// What is expired of one reflog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Entries that are older go.
    pub total: Cutoff,
    /// Entries that are older go if the ref does not reach their values.
    pub unreachable: Cutoff,
}

/// What was said about the limits of one reflog, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// See [`Limits::total`].
    pub total: Option<Cutoff>,
    /// See [`Limits::unreachable`].
    pub unreachable: Option<Cutoff>,
}

/// Reads the moment before which entries are expired: `never`, `now`, or a date.
///
/// ```
/// use refdb_git::date::Zone;
/// let cutoff = |text: &str| refdb_git::expire::cutoff(text.as_bytes(), 1_700_000_000, &Zone::utc());
/// assert_eq!(cutoff("never"), Some(0));
/// assert_eq!(cutoff("2 hours ago"), Some(1_700_000_000 - 7200));
/// assert_eq!(cutoff("nonsense"), None);
/// ```
pub fn cutoff(text: &[u8], now: u64, zone: &date::Zone) -> Option<Cutoff> {
    match text {
        b"never" | b"false" => Some(0),
        b"now" | b"all" => Some(Cutoff::MAX),
        _ => {
            let now = i64::try_from(now).unwrap_or(i64::MAX);
            let seconds = date::approximate(text, now, zone)?;
            Some(Cutoff::try_from(seconds).unwrap_or(0))
        }
    }
}

/// The limits of every reflog of a repository.
#[derive(Clone, Debug)]
pub struct Policy {
    now: u64,
    wishes: Wishes,
    patterns: Vec<(BString, Wishes)>,
    configured: Wishes,
}

impl Policy {
    /// Reads the configuration; `wishes` overrule it.
    ///
    /// # Errors
    /// `Config` for a moment that is none.
    pub fn new(repository: &Repository, wishes: Wishes) -> Result<Policy> {
        let now = repository.now();
        let mut policy = Policy {
            // What is usual goes by the clock in Git, whatever is taken for now.
            now: repository.system().now().as_secs(),
            wishes,
            patterns: Vec::new(),
            configured: Wishes::default(),
        };
        for entry in repository.config().entries() {
            let key = entry.key();
            let Some((pattern, is_total)) = split_key(key) else {
                continue;
            };
            let Some(value) = entry.value() else {
                return Err(entry.unparsable(format_args!("missing value for '{key}'")));
            };
            let Some(cutoff) = cutoff(value, now, repository.zone()) else {
                let what = format!("'{value}' for '{key}' is not a valid timestamp");
                return Err(entry.unparsable(what));
            };
            let wishes = policy.of_pattern(pattern);
            match is_total {
                true => wishes.total = Some(cutoff),
                false => wishes.unreachable = Some(cutoff),
            }
        }
        Ok(policy)
    }

    /// Returns what is configured for a pattern, or for all reflogs.
    fn of_pattern(&mut self, pattern: Option<&BStr>) -> &mut Wishes {
        let Some(pattern) = pattern else {
            return &mut self.configured;
        };
        let known = self.patterns.iter().position(|(known, _)| known == pattern);
        let at = known.unwrap_or(self.patterns.len());
        if known.is_none() {
            self.patterns.push((pattern.to_owned(), Wishes::default()));
        }
        &mut self.patterns[at].1
    }

    /// Returns the limits of one reflog: those of the first pattern that its name has. What a
    /// pattern leaves open never expires.
    pub fn limits(&self, name: RefName<'_>) -> Limits {
        let pattern = self
            .patterns
            .iter()
            .find(|(pattern, _)| wildmatch(pattern.as_bstr(), name.as_bstr(), Mode::empty()));
        let ago = |days: u64| self.now.saturating_sub(days * SECONDS_PER_DAY);
        let (total, unreachable) = match pattern {
            Some((_, wishes)) => (wishes.total.unwrap_or(0), wishes.unreachable.unwrap_or(0)),
            None if name.as_bytes() == b"refs/stash" => (0, 0),
            None => (
                self.configured.total.unwrap_or_else(|| ago(TOTAL_DAYS)),
                self.configured
                    .unreachable
                    .unwrap_or_else(|| ago(UNREACHABLE_DAYS)),
            ),
        };
        Limits {
            total: self.wishes.total.unwrap_or(total),
            unreachable: self.wishes.unreachable.unwrap_or(unreachable),
        }
    }
}

/// Reads `gc.<pattern>.reflogExpire`, whose pattern may be left out, and the key for unreachable
/// entries, for which `false` is returned.
fn split_key(key: &BStr) -> Option<(Option<&BStr>, bool)> {
    let rest = key.strip_prefix(b"gc.")?;
    let (pattern, variable) = match rest.rsplit_once_str(".") {
        Some((pattern, variable)) => (Some(pattern.as_bstr()), variable),
        None => (None, rest),
    };
    match variable {
        b"reflogexpire" => Some((pattern, true)),
        b"reflogexpireunreachable" => Some((pattern, false)),
        _ => None,
    }
}

/// Of so many values it is known which commits they lead to.
const COMMITS_MAX: usize = 1 << 16;

/// Judges the entries of reflogs.
#[derive(Debug)]
pub struct Expiry<'r> {
    repository: &'r Repository,
    odb: &'r Odb,
    graph: Graph<'r>,
    /// What any ref reaches, once a reflog of HEAD asked for it.
    from_refs: Option<Reachable>,
    /// Which commits the last values are or lead to: entries follow each other, and many refs have the same ones.
    commits: HashMap<ObjectId, Option<ObjectId>>,
    completeness: Option<Completeness>,
}

/// Judges the entries of one reflog.
#[derive(Debug)]
pub struct Judge<'e, 'r> {
    expiry: &'e mut Expiry<'r>,
    name: RefNameBuf,
    limits: Limits,
    reach: Option<Reach>,
}

/// What a ref reaches.
#[derive(Debug)]
enum Reach {
    /// Nothing: age alone decides.
    Nothing,
    /// What any ref reaches.
    FromRefs,
    /// What its own value reaches.
    FromTip(Reachable),
}

impl<'r> Expiry<'r> {
    /// Prepares to judge the reflogs of a repository.
    ///
    /// # Errors
    /// `Io` for the files that say where history ends.
    pub fn new(repository: &'r Repository) -> Result<Self> {
        Ok(Expiry {
            repository,
            odb: repository.odb(),
            // A commit that is lost must not keep others from being judged.
            graph: repository
                .graph()?
                .missing_ends_history()
                .with_checked_generations(),
            from_refs: None,
            commits: HashMap::new(),
            completeness: None,
        })
    }

    /// Lets entries expire whose commits lack something, whatever their age.
    ///
    /// # Errors
    /// `Corrupt` or `Io` for the refs, also for one without an object: what it reached would be
    /// taken for incomplete.
    pub fn expire_incomplete(mut self) -> Result<Self> {
        self.check_refs()?;
        let head = self.repository.store().resolve(RefName::HEAD)?;
        let tips = self.tips()?.into_iter().chain(head.map(|head| head.oid));
        let reached = self.reachable(tips.collect())?;
        self.completeness = Some(Completeness::new(reached));
        Ok(self)
    }

    /// Begins with a reflog. What its ref reaches is looked for when an entry is old enough to depend on it.
    pub fn of_log<'e>(&'e mut self, name: RefName<'_>, limits: Limits) -> Judge<'e, 'r> {
        Judge {
            expiry: self,
            name: name.to_owned(),
            limits,
            reach: None,
        }
    }

    /// Returns what a ref reaches.
    fn reach_of(&mut self, name: RefName<'_>) -> Result<Reach> {
        if worktree_name(name.as_bytes()).bare() == b"HEAD" {
            if self.from_refs.is_none() {
                let tips = self.tips()?;
                self.from_refs = Some(self.reachable(tips)?);
            }
            return Ok(Reach::FromRefs);
        }
        let found = self.repository.store().resolve(name)?;
        let tip = found.map(|found| self.tip(found.oid)).transpose()?;
        Ok(match tip.flatten() {
            Some(tip) => Reach::FromTip(self.reachable(vec![tip])?),
            None => Reach::Nothing,
        })
    }

    /// Makes sure that every ref has its object, and so has HEAD of each worktree.
    fn check_refs(&self) -> Result<()> {
        let refuse = |name: &str| {
            let message = format!("unable to parse object: {name}");
            Err(Error::new(ErrorKind::Corrupt, message))
        };
        let exists = |oid: ObjectId| -> Result<bool> {
            Ok(!oid.is_null() && self.odb.header(oid)?.is_some())
        };
        let store = self.repository.store();
        let checks = self.repository.environment().boolean("GIT_REF_PARANOIA")? != Some(false);
        let mut refs = store.refs()?;
        refs.seek_prefix(b"refs/")?;
        while let Some(record) = refs.next()?.filter(|_| checks) {
            let oid = match record.target {
                _ if record.broken || record.has_bad_name() => None,
                TargetRef::Direct(oid) => Some(oid),
                TargetRef::Symbolic(_) => match store.resolve(record.name) {
                    Ok(Some(end)) => Some(end.oid),
                    Err(error) if error.kind() == ErrorKind::Io => return Err(error),
                    _ => continue,
                },
            };
            if !oid.map(exists).transpose()?.unwrap_or(false) {
                return refuse(&record.name.to_string());
            }
        }
        for worktree in self.repository.worktrees()? {
            let Some(store) = self.repository.worktree_store_if_any(&worktree)? else {
                continue;
            };
            let head = match store.resolve(RefName::HEAD) {
                Ok(Some(head)) => head,
                Err(error) if error.kind() == ErrorKind::Io => return Err(error),
                _ => continue,
            };
            if !exists(head.oid)? {
                let is_here = worktree.git_dir == self.repository.git_dir();
                return refuse(&match &worktree.id {
                    _ if is_here => "HEAD".to_owned(),
                    None => "main-worktree/HEAD".to_owned(),
                    Some(id) => format!("worktrees/{id}/HEAD"),
                });
            }
        }
        Ok(())
    }

    /// Returns the values of all refs that are no symrefs.
    fn tips(&self) -> Result<Vec<ObjectId>> {
        let mut refs = self.repository.store().refs()?;
        refs.seek_prefix(b"refs/")?;
        let mut tips = Vec::new();
        while let Some(record) = refs.next()? {
            if let (false, TargetRef::Direct(oid)) = (record.broken, record.target) {
                tips.push(oid);
            }
        }
        Ok(tips)
    }

    /// Returns what these objects reach, as far as they are commits.
    fn reachable(&mut self, tips: Vec<ObjectId>) -> Result<Reachable> {
        let mut nodes = Vec::with_capacity(tips.len());
        for tip in tips {
            if let Some(commit) = self.tip(tip)? {
                nodes.push(self.graph.commit(commit)?);
            }
        }
        Reachable::new(&mut self.graph, nodes)
    }

    /// Returns the commit that a value is or leads to. What a damaged one reaches would be taken for unreachable.
    fn tip(&mut self, oid: ObjectId) -> Result<Option<ObjectId>> {
        let commit = self.commit(oid)?;
        if commit.is_none() {
            self.odb.check_end_missing(oid)?;
        }
        Ok(commit)
    }

    /// Returns the commit that an object is or that a tag leads to.
    fn commit(&mut self, oid: ObjectId) -> Result<Option<ObjectId>> {
        if let Some(known) = self.commits.get(&oid) {
            return Ok(*known);
        }
        let peeled = match self.odb.peel(oid)? {
            Peeled::Itself => Some(oid),
            Peeled::To(peeled) => Some(peeled),
            Peeled::Nowhere | Peeled::Missing => None,
        };
        let commit = match peeled {
            Some(peeled) if self.odb.kind(peeled)? == Some(ObjectKind::Commit) => Some(peeled),
            _ => None,
        };
        if self.commits.len() >= COMMITS_MAX {
            self.commits.clear();
        }
        self.commits.insert(oid, commit);
        Ok(commit)
    }
}

impl Judge<'_, '_> {
    /// Returns whether an entry is to go.
    ///
    /// # Errors
    /// `Corrupt` or `Io` for refs and objects that cannot be read.
    pub fn is_expired(&mut self, entry: &LogEntry) -> Result<bool> {
        let time = entry.who.time;
        if time < self.limits.total {
            return Ok(true);
        }
        if self.expiry.completeness.is_some() {
            for value in [entry.old, entry.new] {
                if !self.is_complete(value)? {
                    return Ok(true);
                }
            }
        }
        if time >= self.limits.unreachable {
            return Ok(false);
        }
        if self.reach.is_none() {
            self.reach = Some(self.expiry.reach_of(self.name.as_name())?);
        }
        if matches!(self.reach, Some(Reach::Nothing)) {
            return Ok(true);
        }
        Ok(!self.is_reached(entry.old)? || !self.is_reached(entry.new)?)
    }

    /// Returns whether a value is reached. What is no commit counts as reached.
    fn is_reached(&mut self, value: ObjectId) -> Result<bool> {
        if value.is_null() {
            return Ok(true);
        }
        let Some(commit) = self.expiry.commit(value)? else {
            return Ok(true);
        };
        let graph = &mut self.expiry.graph;
        let node = graph.commit(commit)?;
        match (&mut self.reach, &mut self.expiry.from_refs) {
            (Some(Reach::FromTip(reachable)), _) | (Some(Reach::FromRefs), Some(reachable)) => {
                reachable.contains(graph, node)
            }
            _ => Ok(false),
        }
    }

    fn is_complete(&mut self, value: ObjectId) -> Result<bool> {
        if value.is_null() {
            return Ok(true);
        }
        let Some(commit) = self.expiry.tip(value)? else {
            return Ok(false);
        };
        let Expiry {
            odb,
            graph,
            completeness,
            ..
        } = &mut *self.expiry;
        match completeness {
            Some(completeness) => completeness.has(odb, graph, commit),
            None => Ok(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        let split = |key: &'static str| split_key(key.into());
        assert_eq!(split("gc.reflogexpire"), Some((None, true)));
        assert_eq!(
            split("gc.refs/a.b*.reflogexpireunreachable"),
            Some((Some("refs/a.b*".into()), false))
        );
        assert_eq!(split("gc.auto"), None);
    }

    #[test]
    fn patterns_come_before_what_is_for_all() {
        let wishes = |total, unreachable| Wishes { total, unreachable };
        let policy = Policy {
            now: 100 * SECONDS_PER_DAY,
            wishes: Wishes::default(),
            patterns: vec![("refs/heads/*".into(), wishes(Some(5), None))],
            configured: wishes(None, Some(7)),
        };
        let limits = |name: &'static str| {
            let limits = policy.limits(RefName::new(name).unwrap());
            (limits.total, limits.unreachable)
        };
        assert_eq!(limits("refs/heads/a/b"), (5, 0));
        assert_eq!(limits("refs/stash"), (0, 0));
        assert_eq!(limits("HEAD"), (10 * SECONDS_PER_DAY, 7));
    }
}
