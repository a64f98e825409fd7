//! Remote-tracking branches: where a branch is pulled from and pushed to, as far as the
//! configuration tells.
//!
//! The configuration is taken apart once for as many branches as are asked for.

use std::collections::HashMap;

use bstr::{BStr, BString, ByteSlice};
use refdb::name::SYMREF_DEPTH_MAX;
use refdb::{Error, ErrorKind, RefName, Result, Target};

use super::{Revisions, refspec, shown};
use crate::repository::Repository;

/// Which of a branch's two remote-tracking branches is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Where it is pulled from.
    Upstream,
    /// Where it is pushed to.
    Push,
}

/// A tracking branch, or why there is none, in Git's words.
type Tracked = std::result::Result<BString, String>;

/// What the configuration says of branches and remotes.
#[derive(Debug)]
pub struct Tracking<'r> {
    repository: &'r Repository,
    branches: HashMap<&'r BStr, Branch<'r>>,
    remotes: HashMap<&'r BStr, Remote<'r>>,
}

#[derive(Debug, Default)]
struct Branch<'r> {
    remote: Option<&'r BStr>,
    push_remote: Option<&'r BStr>,
    /// The first of several counts.
    merge: Option<&'r BStr>,
}

#[derive(Debug, Default)]
struct Remote<'r> {
    has_url: bool,
    fetch: Vec<&'r BStr>,
    push: Vec<&'r BStr>,
}

impl Revisions<'_> {
    /// Returns the full name of the tracking branch of a branch, given by its full name; `None` if
    /// there is none. It need not exist.
    ///
    /// # Errors
    /// `Corrupt` or `Io` for the files.
    pub fn tracking_branch(
        &self,
        branch: RefName<'_>,
        direction: Direction,
    ) -> Result<Option<BString>> {
        match branch.as_bytes().strip_prefix(b"refs/heads/") {
            None => Ok(None),
            Some(short) => {
                let tracking = Tracking::new(self.repository)?;
                Ok(tracking.tracked(self, short, direction)?.ok())
            }
        }
    }

    /// Returns the tracking branch of `branch`, or of the current one if that is empty or `HEAD`.
    ///
    /// # Errors
    /// `Misuse` when there is none.
    pub(super) fn tracking(&self, branch: &[u8], direction: Direction) -> Result<BString> {
        let refuse = |message: String| Error::new(ErrorKind::Misuse, message);
        let branch = if branch.is_empty() || branch == b"HEAD" {
            let current = self.current_branch()?;
            current.ok_or_else(|| refuse("HEAD does not point to a branch".to_owned()))?
        } else {
            branch.into()
        };
        let tracking = Tracking::new(self.repository)?;
        tracking.tracked(self, &branch, direction)?.map_err(refuse)
    }

    /// Returns the branch that is checked out, without `refs/heads/`: the one at the end of HEAD's
    /// symrefs, which need not exist.
    ///
    /// # Errors
    /// `Corrupt` or `Io` for the files.
    pub fn current_branch(&self) -> Result<Option<BString>> {
        let mut name = RefName::HEAD.to_owned();
        for _ in 0..SYMREF_DEPTH_MAX {
            let found = self.store.read(name.as_name())?;
            match found.map(|found| found.target) {
                Some(Target::Symbolic(target)) => name = target,
                _ => break,
            }
        }
        let branch = name.as_bytes().strip_prefix(b"refs/heads/");
        Ok(branch.map(BString::from))
    }
}

impl<'r> Tracking<'r> {
    /// Takes the configuration of a repository apart.
    ///
    /// # Errors
    /// `Config` for a key that needs a value and has none, and a refspec that is none.
    pub fn new(repository: &'r Repository) -> Result<Self> {
        let mut tracking = Tracking {
            repository,
            branches: HashMap::new(),
            remotes: HashMap::new(),
        };
        for entry in repository.config().entries() {
            let key = entry.key();
            let Some((name, variable)) = key.rsplit_once_str(".") else {
                continue;
            };
            let known: &[&[u8]] = match name {
                name if name.starts_with(b"branch.") => &[b"remote", b"pushremote", b"merge"],
                name if name.starts_with(b"remote.") => &[b"url", b"fetch", b"push"],
                _ => continue,
            };
            if !known.contains(&variable) {
                continue;
            }
            let Some(value) = entry.value() else {
                return Err(entry.unparsable(format_args!("missing value for '{key}'")));
            };
            let is_refspec = name.starts_with(b"remote.") && variable != b"url";
            if is_refspec && !refspec::is_valid(value, variable == b"push") {
                let text = format!("invalid refspec '{value}'");
                return Err(Error::new(ErrorKind::Config, text));
            }
            if let Some(name) = name.strip_prefix(b"branch.") {
                let branch = tracking.branches.entry(name.as_bstr()).or_default();
                match variable {
                    b"remote" => branch.remote = Some(value),
                    b"pushremote" => branch.push_remote = Some(value),
                    b"merge" => branch.merge = branch.merge.or(Some(value)),
                    _ => {}
                }
            } else if let Some(name) = name.strip_prefix(b"remote.") {
                let remote = tracking.remotes.entry(name.as_bstr()).or_default();
                match variable {
                    b"url" => remote.has_url = true,
                    b"fetch" => remote.fetch.push(value),
                    b"push" => remote.push.push(value),
                    _ => {}
                }
            }
        }
        Ok(tracking)
    }

    /// Returns the full name of the tracking branch of a branch, given without `refs/heads/`; `None`
    /// if there is none. It need not exist.
    ///
    /// # Errors
    /// As for [`Revisions::tracking_branch`].
    pub fn branch(
        &self,
        revisions: &Revisions<'_>,
        branch: &[u8],
        direction: Direction,
    ) -> Result<Option<BString>> {
        Ok(self.tracked(revisions, branch, direction)?.ok())
    }

    /// Returns the remote that the configuration names for a branch.
    pub fn remote(&self, branch: &[u8], direction: Direction) -> Option<&'r BStr> {
        let settings = self.branches.get(branch.as_bstr());
        let pulled_from = settings.and_then(|branch| branch.remote);
        match direction {
            Direction::Upstream => pulled_from,
            Direction::Push => settings
                .and_then(|branch| branch.push_remote)
                .or_else(|| self.repository.config().string("remote.pushdefault"))
                .or(pulled_from),
        }
    }

    /// Returns the name of the ref in the remote, as far as the configuration tells.
    pub fn remote_ref(&self, branch: &[u8], direction: Direction) -> Option<BString> {
        match direction {
            Direction::Upstream => self.merge(branch).map(BStr::to_owned),
            Direction::Push => {
                let remote = self.push_remote(branch);
                let full = [b"refs/heads/", branch].concat();
                let push = &self.remotes.get(remote)?.push;
                refspec::map(push.iter().copied(), full.as_bstr())
            }
        }
    }

    fn merge(&self, branch: &[u8]) -> Option<&'r BStr> {
        self.branches.get(branch.as_bstr())?.merge
    }

    fn tracked(
        &self,
        revisions: &Revisions<'_>,
        branch: &[u8],
        direction: Direction,
    ) -> Result<Tracked> {
        match direction {
            Direction::Upstream => self.upstream(revisions, branch),
            Direction::Push => self.push_target(revisions, branch),
        }
    }

    fn upstream(&self, revisions: &Revisions<'_>, branch: &[u8]) -> Result<Tracked> {
        let remote = self.remote(branch, Direction::Upstream);
        let (Some(remote), Some(merge)) = (remote, self.merge(branch)) else {
            let full = [b"refs/heads/", branch].concat();
            let exists = match RefName::lax(&full) {
                Ok(full) => revisions.store.resolve(full)?.is_some(),
                Err(_) => false,
            };
            let branch = shown(branch);
            return Ok(Err(if exists {
                format!("no upstream configured for branch '{branch}'")
            } else {
                format!("no such branch: '{branch}'")
            }));
        };
        if let Some(tracking) = self.fetched_to(remote, merge) {
            return Ok(Ok(tracking));
        }
        if remote == "." {
            let found = revisions.dwim_ref(merge)?;
            let found = found.filter(|found| !found.is_ambiguous);
            let name = found.map(|found| BString::from(found.name.as_bytes()));
            return Ok(Ok(name.unwrap_or_else(|| merge.to_owned())));
        }
        Ok(Err(format!(
            "upstream branch '{merge}' not stored as a remote-tracking branch"
        )))
    }

    fn push_target(&self, revisions: &Revisions<'_>, branch: &[u8]) -> Result<Tracked> {
        let config = self.repository.config();
        let remote = self.push_remote(branch);
        let full = BString::from([b"refs/heads/", branch].concat());
        let tracking = |name: &BStr| {
            self.fetched_to(remote, name).ok_or_else(|| {
                format!(
                    "push destination '{name}' on remote '{remote}' has no local tracking branch"
                )
            })
        };
        if let Some(configured) = self.remotes.get(remote)
            && !configured.push.is_empty()
        {
            let target = refspec::map(configured.push.iter().copied(), full.as_bstr());
            return Ok(match target {
                Some(target) => tracking(target.as_bstr()),
                None => Err(format!(
                    "push refspecs for '{remote}' do not include '{}'",
                    shown(branch)
                )),
            });
        }
        if config
            .boolean(&format!("remote.{remote}.mirror"))?
            .unwrap_or(false)
        {
            return Ok(tracking(full.as_bstr()));
        }
        let Some(default) = config.get("push.default") else {
            return self.simple_push_target(revisions, branch, tracking);
        };
        let Some(value) = default.value() else {
            return Err(default.unparsable("missing value for 'push.default'"));
        };
        match value.as_bytes() {
            b"nothing" => Ok(Err(
                "push has no destination (push.default is 'nothing')".to_owned()
            )),
            b"matching" | b"current" => Ok(tracking(full.as_bstr())),
            b"upstream" | b"tracking" => self.upstream(revisions, branch),
            b"simple" => self.simple_push_target(revisions, branch, tracking),
            _ => Err(default.unparsable(format_args!(
                "malformed value for push.default: {value}\n\
                 error: must be one of nothing, matching, simple, upstream or current"
            ))),
        }
    }

    /// Returns the branch of the same name, if it is where the branch is pulled from.
    fn simple_push_target(
        &self,
        revisions: &Revisions<'_>,
        branch: &[u8],
        tracking: impl FnOnce(&BStr) -> Tracked,
    ) -> Result<Tracked> {
        let upstream = match self.upstream(revisions, branch)? {
            Ok(upstream) => upstream,
            Err(reason) => return Ok(Err(reason)),
        };
        let full = BString::from([b"refs/heads/", branch].concat());
        Ok(tracking(full.as_bstr()).and_then(|current| {
            if current == upstream {
                Ok(current)
            } else {
                Err("cannot resolve 'simple' push to a single destination".to_owned())
            }
        }))
    }

    /// Returns the remote that a branch is pushed to: the only one, or `origin`, where the
    /// configuration names none.
    fn push_remote(&self, branch: &[u8]) -> &'r BStr {
        if let Some(remote) = self.remote(branch, Direction::Push) {
            return remote;
        }
        let mut remotes = self.remotes.iter().filter(|(_, remote)| remote.has_url);
        match (remotes.next(), remotes.next()) {
            (Some((only, _)), None) => only,
            _ => "origin".into(),
        }
    }

    /// Returns the tracking branch that a remote's ref is fetched to.
    fn fetched_to(&self, remote: &BStr, name: &BStr) -> Option<BString> {
        let fetch = &self.remotes.get(remote)?.fetch;
        refspec::map(fetch.iter().copied(), name)
    }
}
