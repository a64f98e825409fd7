//! Remote-tracking branches: where a branch is pulled from and pushed to, as far as the
//! configuration tells.

use bstr::{BStr, BString, ByteSlice};

use super::{Revisions, shown};
use crate::error::{Error, ErrorKind, Result};
use crate::name::{RefName, SYMREF_DEPTH_MAX};
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
            Some(short) => Ok(self.tracked(short, direction)?.ok()),
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
        self.tracked(&branch, direction)?.map_err(refuse)
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

    fn tracked(&self, branch: &[u8], direction: Direction) -> Result<Tracked> {
        match direction {
            Direction::Upstream => self.upstream(branch),
            Direction::Push => self.push_target(branch),
        }
    }

    fn upstream(&self, branch: &[u8]) -> Result<Tracked> {
        let remote = self.branch_setting(branch, "remote");
        let merge = self.branch_setting(branch, "merge");
        let (Some(remote), Some(merge)) = (remote, merge) else {
            let full = [b"refs/heads/", branch].concat();
            let exists = self.store.resolve(RefName::from_disk(&full))?.is_some();
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
            let found = self.dwim_ref(merge)?.filter(|found| !found.is_ambiguous);
            let name = found.map(|found| BString::from(found.name.as_bytes()));
            return Ok(Ok(name.unwrap_or_else(|| merge.to_owned())));
        }
        Ok(Err(format!(
            "upstream branch '{merge}' not stored as a remote-tracking branch"
        )))
    }

    fn push_target(&self, branch: &[u8]) -> Result<Tracked> {
        let config = self.repository.config();
        let remote = self.push_remote(branch);
        let remote = remote.as_bstr();
        let full = BString::from([b"refs/heads/", branch].concat());
        let tracking = |name: &BStr| {
            self.fetched_to(remote, name).ok_or_else(|| {
                format!(
                    "push destination '{name}' on remote '{remote}' has no local tracking branch"
                )
            })
        };
        let pushed: Vec<_> = self.refspecs(remote, "push").collect();
        if !pushed.is_empty() {
            let target = map_refspecs(pushed.into_iter(), full.as_bstr());
            return Ok(match target {
                Some(target) => tracking(target.as_bstr()),
                None => Err(format!(
                    "push refspecs for '{remote}' do not include '{}'",
                    shown(branch)
                )),
            });
        }
        let mirror = self.remote_key(remote, "mirror");
        if config.boolean(&mirror)?.unwrap_or(false) {
            return Ok(tracking(full.as_bstr()));
        }
        let default = config.string("push.default").map(|value| value.as_bytes());
        match default {
            Some(b"nothing") => Ok(Err(
                "push has no destination (push.default is 'nothing')".to_owned()
            )),
            Some(b"matching" | b"current") => Ok(tracking(full.as_bstr())),
            Some(b"upstream" | b"tracking") => self.upstream(branch),
            _ => {
                let upstream = match self.upstream(branch)? {
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

    /// Returns the remote that a branch is pushed to.
    fn push_remote(&self, branch: &[u8]) -> BString {
        let config = self.repository.config();
        let configured = self
            .branch_setting(branch, "pushremote")
            .or_else(|| config.string("remote.pushdefault"))
            .or_else(|| self.branch_setting(branch, "remote"));
        if let Some(remote) = configured {
            return remote.to_owned();
        }
        let urls = config.entries().iter().map(|entry| entry.key());
        let mut remotes: Vec<&[u8]> = urls
            .filter_map(|key| key.strip_prefix(b"remote.")?.strip_suffix(b".url"))
            .collect();
        remotes.dedup();
        match remotes.as_slice() {
            [only] => (*only).into(),
            _ => "origin".into(),
        }
    }

    /// Returns the tracking branch that a remote's ref is fetched to.
    fn fetched_to(&self, remote: &BStr, name: &BStr) -> Option<BString> {
        map_refspecs(self.refspecs(remote, "fetch"), name)
    }

    fn refspecs<'a>(
        &'a self,
        remote: &BStr,
        kind: &str,
    ) -> impl Iterator<Item = &'a BStr> + use<'a> {
        let key = BString::from(self.remote_key(remote, kind));
        let entries = self.repository.config().entries().iter();
        let entries = entries.filter(move |entry| entry.key() == key.as_bstr());
        entries.filter_map(|entry| entry.value())
    }

    fn remote_key(&self, remote: &BStr, variable: &str) -> String {
        format!("remote.{remote}.{variable}")
    }

    fn branch_setting(&self, branch: &[u8], variable: &str) -> Option<&BStr> {
        let key = format!("branch.{}.{variable}", shown(branch));
        self.repository.config().string(&key)
    }
}

/// Returns what the first refspec that has `name` on its left side makes of it, unless a negative
/// one excludes it.
fn map_refspecs<'s>(refspecs: impl Iterator<Item = &'s BStr>, name: &BStr) -> Option<BString> {
    let mut target = None;
    for refspec in refspecs {
        if let Some(excluded) = refspec.strip_prefix(b"^") {
            if matched(excluded, name).is_some() {
                return None;
            }
            continue;
        }
        let refspec = refspec.strip_prefix(b"+").unwrap_or(refspec);
        let (from, to) = refspec.split_once_str(":").unwrap_or((refspec, refspec));
        let Some(middle) = matched(from, name).filter(|_| target.is_none() && !to.is_empty())
        else {
            continue;
        };
        target = Some(match to.split_once_str("*") {
            Some((front, back)) => [front, middle, back].concat().into(),
            None => BString::from(to),
        });
    }
    target
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
        assert_eq!(map(&[all, "^refs/heads/a/*"], "refs/heads/a/b"), None);
        assert_eq!(map(&["refs/heads/a:x", all], "refs/heads/a"), to("x"));
        assert_eq!(
            map(&["refs/heads/a-*:r/*-b"], "refs/heads/a-1"),
            to("r/1-b")
        );
    }
}
