//! Short names for many refs: the names that stand in each other's way are found by walking along
//! the sorted refs, not by looking each one up.
//!
//! ```no_run
//! use refdb_git::Repository;
//! use refdb_git::revision::Shortener;
//!
//! let repository = Repository::discover(".".as_ref())?;
//! let mut shortener = Shortener::new(&repository);
//! let mut refs = repository.store().refs()?;
//! while let Some(record) = refs.next()? {
//!     println!("{}", shortener.shorten(record.name.as_bytes(), true)?);
//! }
//! # Ok::<(), refdb::Error>(())
//! ```

use bstr::{BString, ByteSlice};
use refdb::{Refs, Result, TargetRef};

use super::Revisions;
use super::dwim::{RULES, candidates, short_by};
use crate::repository::Repository;

/// How many refs a walk passes before it jumps.
const STEPS_MAX: usize = 8;
/// So few names are looked up one by one: that is cheaper than to begin walks.
const LOOKUPS_MAX: usize = 16;

/// Shortens the names of many refs, fastest in their order.
pub struct Shortener {
    repository: Repository,
    lookups: usize,
    // One walk for each rule: the names that it makes of sorted names are sorted, too.
    walks: Vec<Walk>,
}

impl Shortener {
    /// Prepares to shorten names of refs of `repository`, as they are now.
    pub fn new(repository: &Repository) -> Self {
        Shortener {
            repository: repository.clone(),
            lookups: 0,
            walks: Vec::new(),
        }
    }

    /// Returns what [`Revisions::shorten`] returns.
    ///
    /// # Errors
    /// `Corrupt` or `Io` for the files.
    pub fn shorten(&mut self, full: &[u8], strict: bool) -> Result<BString> {
        if self.lookups < LOOKUPS_MAX {
            self.lookups += 1;
            return Revisions::new(&self.repository).shorten(full, strict);
        }
        if self.walks.is_empty() {
            for _ in RULES {
                self.walks.push(Walk::new(self.repository.store().refs()?));
            }
        }
        for (index, short) in short_by(full) {
            let rivals = if strict { RULES.len() } else { index };
            let mut is_taken = false;
            for (rival, candidate) in candidates(short).enumerate().take(rivals) {
                if rival != index && self.leads(rival, &candidate)? {
                    is_taken = true;
                    break;
                }
            }
            if !is_taken {
                return Ok(short.into());
            }
        }
        Ok(full.into())
    }

    /// Returns whether a full name, made by a rule, leads to an object.
    fn leads(&mut self, rule: usize, full: &[u8]) -> Result<bool> {
        let seen = match self.walks.get_mut(rule) {
            // What is not below `refs/` need not be listed.
            Some(walk) if full.starts_with(b"refs/") => walk.find(full)?,
            _ => Seen::Perhaps,
        };
        match seen {
            Seen::Direct => Ok(true),
            Seen::Absent => Ok(false),
            Seen::Perhaps => Revisions::new(&self.repository).leads_somewhere(full),
        }
    }
}

/// What a walk has seen of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Absent,
    Direct,
    /// It must be looked up to be known.
    Perhaps,
}

/// A walk along the sorted refs.
struct Walk {
    refs: Refs,
    // No ref has a name from here up to `at`.
    from: BString,
    // `None` behind the last ref.
    at: Option<BString>,
    seen: Seen,
    is_begun: bool,
}

impl Walk {
    fn new(refs: Refs) -> Self {
        Walk {
            refs,
            from: BString::default(),
            at: None,
            seen: Seen::Absent,
            is_begun: false,
        }
    }

    /// Walks or jumps to where `name` is, or would be.
    fn find(&mut self, name: &[u8]) -> Result<Seen> {
        for _ in 0..STEPS_MAX {
            if !self.is_begun || name < self.from.as_slice() {
                break;
            }
            match &self.at {
                Some(at) if at.as_slice() < name => {
                    // The least name behind that of this ref.
                    self.from.clone_from(at);
                    self.from.push(0);
                    self.step()?;
                }
                at => return Ok(self.answer(at.as_ref(), name)),
            }
        }
        self.refs.seek(name)?;
        self.from = name.into();
        self.is_begun = true;
        self.step()?;
        Ok(self.answer(self.at.as_ref(), name))
    }

    fn answer(&self, at: Option<&BString>, name: &[u8]) -> Seen {
        match at {
            Some(at) if at.as_bytes() == name => self.seen,
            _ => Seen::Absent,
        }
    }

    fn step(&mut self) -> Result<()> {
        match self.refs.next()? {
            Some(record) => {
                self.seen = match record.target {
                    _ if record.broken || record.has_bad_name() => Seen::Perhaps,
                    TargetRef::Direct(_) => Seen::Direct,
                    TargetRef::Symbolic(_) => Seen::Perhaps,
                };
                let at = self.at.get_or_insert_default();
                at.clear();
                at.extend_from_slice(record.name.as_bytes());
            }
            None => self.at = None,
        }
        Ok(())
    }
}
