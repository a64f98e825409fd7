//! Remote-tracking branches: where a branch is pulled from and pushed to, as far as the
//! configuration tells.
//!
//! The configuration is taken apart once for as many branches as are asked for.

use std::collections::HashMap;

use bstr::{BStr, BString, ByteSlice};

use super::{Revisions, shown};
use crate::error::{Error, ErrorKind, Result};
use crate::name::{RefName, SYMREF_DEPTH_MAX};
use crate::repository::Repository;
use crate::target::Target;

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
                let tracking = Tracking::new(self.repository);
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
        let tracking = Tracking::new(self.repository);
        tracking.tracked(self, &branch, direction)?.map_err(refuse)
    }

    /// Returns the branch that is checked out, without `refs/heads/`: the one at the end of HEAD's
    /// symrefs, which need not exist.
    fn current_branch(&self) -> Result<Option<BString>> {
        let mut name = BString::from("HEAD");
        for _ in 0..SYMREF_DEPTH_MAX {
            let found = self.store.read(RefName::from_disk(&name))?;
            match found.map(|found| found.target) {
                Some(Target::Symbolic(target)) => name = target.as_bytes().into(),
                _ => break,
            }
        }
        Ok(name.strip_prefix(b"refs/heads/").map(BString::from))
    }
}

impl<'r> Tracking<'r> {
    /// Takes the configuration of a repository apart.
    pub fn new(repository: &'r Repository) -> Self {
        let mut tracking = Tracking {
            repository,
            branches: HashMap::new(),
            remotes: HashMap::new(),
        };
        for entry in repository.config().entries() {
            let Some(value) = entry.value() else { continue };
            let key = entry.key();
            let Some((name, variable)) = key.rsplit_once_str(".") else {
                continue;
            };
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
        tracking
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
                map_refspecs(push.iter().copied(), full.as_bstr())
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
            let exists = revisions.store.resolve(RefName::from_disk(&full))?;
            let branch = shown(branch);
            return Ok(Err(if exists.is_some() {
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
            let target = map_refspecs(configured.push.iter().copied(), full.as_bstr());
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
        let default = config.string("push.default").map(|value| value.as_bytes());
        match default {
            Some(b"nothing") => Ok(Err(
                "push has no destination (push.default is 'nothing')".to_owned()
            )),
            Some(b"matching" | b"current") => Ok(tracking(full.as_bstr())),
            Some(b"upstream" | b"tracking") => self.upstream(revisions, branch),
            _ => {
                let upstream = match self.upstream(revisions, branch)? {
                    Ok(upstream) => upstream,
                    Err(reason) => return Ok(Err(reason)),
                };
                Ok(tracking(full.as_bstr()).and_then(|current| {
                    if current == upstream {
                        Ok(current)
                    } else {
                        Err("cannot resolve 'simple' push to a single destination".to_owned())
                    }
                }))
            }
        }
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
        map_refspecs(fetch.iter().copied(), name)
    }
}

/// Returns what the first refspec that has `name` on its left side makes of it, unless a negative
/// one excludes it.
///
/// A negative refspec is compared with the left side of each other one that has `name` on its right
/// side, or is `name` alone: that is how Git does it, also where the left side is asked for.
fn map_refspecs<'s>(
    refspecs: impl Iterator<Item = &'s BStr> + Clone,
    name: &BStr,
) -> Option<BString> {
    let positive = refspecs
        .clone()
        .filter(|refspec| !refspec.starts_with(b"^"));
    let sides = positive.map(|refspec| {
        let refspec = refspec.strip_prefix(b"+").unwrap_or(refspec);
        match refspec.split_once_str(":") {
            Some((from, to)) => (from, Some(to)),
            None => (refspec, None),
        }
    });
    let mut reversed = sides
        .clone()
        .filter_map(|(from, to)| match from.contains(&b'*') {
            true => Some(fill(from, matched(to.unwrap_or(from), name)?)),
            false => (from == name.as_bytes()).then(|| BString::from(from)),
        });
    let is_excluded = reversed.any(|source| {
        let mut negative = refspecs.clone().filter_map(|it| it.strip_prefix(b"^"));
        negative.any(|excluded| matched(excluded, source.as_bstr()).is_some())
    });
    if is_excluded {
        return None;
    }
    sides
        .filter_map(|(from, to)| Some((from, to.filter(|to| !to.is_empty())?)))
        .find_map(|(from, to)| Some(fill(to, matched(from, name)?)))
}

/// Puts something in the place of the `*` of a pattern, if it has one.
fn fill(pattern: &[u8], middle: &[u8]) -> BString {
    match pattern.split_once_str("*") {
        Some((front, back)) => [front, middle, back].concat().into(),
        None => pattern.into(),
    }
}

/// Returns what the `*` of a pattern stands for in `name`; empty for an equal name.
fn matched<'n>(pattern: &[u8], name: &'n BStr) -> Option<&'n [u8]> {
    match pattern.split_once_str("*") {
        None => (pattern == name.as_bytes()).then_some(b""),
        Some((front, back)) => name.strip_prefix(front)?.strip_suffix(back),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(refspecs: &[&str], name: &str) -> Option<String> {
        let refspecs = refspecs.iter().map(|refspec| refspec.as_bytes().as_bstr());
        map_refspecs(refspecs, name.into()).map(|target| target.to_string())
    }

    #[test]
    fn refspecs() {
        let all = "+refs/heads/*:refs/remotes/o/*";
        let to = |name: &str| Some(name.to_owned());
        assert_eq!(map(&[all], "refs/heads/a/b"), to("refs/remotes/o/a/b"));
        assert_eq!(map(&[all], "refs/tags/a"), None);
        assert_eq!(
            map(&["refs/heads/a:x", "^refs/heads/a"], "refs/heads/a"),
            None
        );
        assert_eq!(
            map(&[all, "^refs/heads/a"], "refs/heads/a"),
            to("refs/remotes/o/a")
        );
        assert_eq!(map(&["refs/heads/a"], "refs/heads/a"), None);
        assert_eq!(map(&["refs/heads/a:x", all], "refs/heads/a"), to("x"));
        assert_eq!(
            map(&["refs/heads/a-*:r/*-b"], "refs/heads/a-1"),
            to("r/1-b")
        );
    }
}
