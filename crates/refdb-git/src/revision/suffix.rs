//! The suffixes `~<n>`, `^<n>` and `^{...}`.

use bstr::{BStr, ByteSlice};
use refdb::{ObjectId, Result};

use super::{Hint, Note, Revisions};
use crate::objects::{ObjectKind, TAG_DEPTH_MAX, tag_target};

/// What `~` or `^` at the end of an expression asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suffix {
    /// So many generations up, along first parents.
    Ancestor(u64),
    /// The parent of that number; 0 is the commit itself.
    Parent(u64),
    /// More than there can be.
    TooLarge,
}

/// What `^{...}` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peel<'e> {
    /// `^{}`: whatever the tag, or chain of tags, leads to.
    Tags,
    /// `^{object}`: the object itself, which must exist.
    Object,
    /// `^{commit}` and its like.
    Kind(ObjectKind),
    /// `^{/text}`: the youngest commit from there on whose message matches.
    Search(&'e [u8]),
}

/// Splits `~<n>` or `^<n>` off the end.
pub(super) fn split(expression: &[u8]) -> Option<(&[u8], Suffix)> {
    let digits = expression
        .iter()
        .rev()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let (rest, digits) = expression.split_at(expression.len() - digits);
    let (&mark, front) = rest.split_last()?;
    if !matches!(mark, b'~' | b'^') {
        return None;
    }
    let number = match digits {
        b"" => Some(1),
        digits => digits
            .to_str()
            .ok()
            .and_then(|digits| digits.parse::<u64>().ok())
            .filter(|&number| i32::try_from(number).is_ok()),
    };
    let suffix = match number {
        None => Suffix::TooLarge,
        Some(number) if mark == b'~' => Suffix::Ancestor(number),
        Some(number) => Suffix::Parent(number),
    };
    Some((front, suffix))
}

/// Splits `^{...}` off the end.
pub(super) fn split_peel(expression: &[u8]) -> Option<(&[u8], Peel<'_>)> {
    let inner = expression.strip_suffix(b"}")?;
    let at = inner.rfind("^{").filter(|&at| at > 0)?;
    let (front, what) = (inner.get(..at)?, inner.get(at + 2..)?);
    let peel = match what {
        b"" => Peel::Tags,
        b"object" => Peel::Object,
        b"commit" => Peel::Kind(ObjectKind::Commit),
        b"tree" => Peel::Kind(ObjectKind::Tree),
        b"blob" => Peel::Kind(ObjectKind::Blob),
        b"tag" => Peel::Kind(ObjectKind::Tag),
        _ => Peel::Search(what.strip_prefix(b"/")?),
    };
    Some((front, peel))
}

impl Revisions<'_> {
    /// Resolves `<front>` and the suffix `last` behind it. Suffixes at the end of `front` are taken
    /// one after the other, so that any number of them is only a walk.
    pub(super) fn walk(&self, front: &[u8], last: Suffix) -> Result<Option<ObjectId>> {
        let mut front = front;
        let mut suffixes = vec![last];
        while let Some((before, suffix)) = split(front) {
            suffixes.push(suffix);
            front = before;
        }
        if suffixes.contains(&Suffix::TooLarge) {
            return Ok(None);
        }
        let Some(mut oid) = self.revision(front, Hint::Committish)? else {
            return Ok(None);
        };
        for suffix in suffixes.into_iter().rev() {
            let Some(commit) = self.commit(oid)? else {
                return Ok(None);
            };
            let reached = match suffix {
                Suffix::Ancestor(count) => self.ancestor(commit, count)?,
                Suffix::Parent(number) => self.parent(commit, number)?,
                Suffix::TooLarge => None,
            };
            match reached {
                Some(reached) => oid = reached,
                None => return Ok(None),
            }
        }
        Ok(Some(oid))
    }

    /// Goes so many generations up, along first parents. Of a circle, as replaced commits can make one, whole rounds are
    /// passed over: each step reads a commit.
    fn ancestor(&self, commit: ObjectId, count: u64) -> Result<Option<ObjectId>> {
        let (mut commit, mut left) = (commit, count);
        // A commit that was met so many steps ago; another one after twice as many.
        let (mut met, mut ago, mut at_most) = (commit, 0, 1);
        while left > 0 {
            match self
                .parents(commit)?
                .and_then(|parents| parents.first().copied())
            {
                Some(parent) => commit = parent,
                None => return Ok(None),
            }
            left -= 1;
            ago += 1;
            if commit == met {
                left %= ago;
            }
            if ago == at_most {
                (met, ago, at_most) = (commit, 0, at_most.saturating_mul(2));
            }
        }
        Ok(Some(commit))
    }

    /// Returns the parent of that number; the commit itself for 0.
    fn parent(&self, commit: ObjectId, number: u64) -> Result<Option<ObjectId>> {
        let Some(index) = number.checked_sub(1) else {
            return Ok(Some(commit));
        };
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        let parents = self.parents(commit)?;
        Ok(parents.and_then(|parents| parents.get(index).copied()))
    }

    /// Returns the commit that an object is, or leads to through tags; a note says why it is none,
    /// unless it is missing.
    ///
    /// # Errors
    /// `Io` when an object cannot be read.
    pub fn commit(&self, oid: ObjectId) -> Result<Option<ObjectId>> {
        let mut next = (oid, None);
        for _ in 0..=TAG_DEPTH_MAX {
            let (reached, claimed) = next;
            let kind = self.kind(reached)?;
            match (kind, claimed) {
                (Some(ObjectKind::Commit), _) => return Ok(Some(reached)),
                (None, Some(ObjectKind::Commit)) => {
                    self.complain(format!("Could not read {reached}"));
                    return Ok(None);
                }
                (Some(_), Some(ObjectKind::Commit)) => {
                    self.complain(format!("Object {reached} not a commit"));
                    return Ok(None);
                }
                (Some(ObjectKind::Tag), _) => {}
                (Some(kind), _) => {
                    self.complain_of_kind(oid, kind, ObjectKind::Commit);
                    return Ok(None);
                }
                (None, _) => return Ok(None),
            }
            let tag = self.odb.read(reached)?;
            match tag.and_then(|tag| tag_target(&tag.data, self.odb.format())) {
                Some((target, kind)) => next = (target, Some(kind)),
                None => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Resolves `<front>^{...}`.
    pub(super) fn peel(
        &self,
        front: &[u8],
        expression: &BStr,
        peel: Peel<'_>,
    ) -> Result<Option<ObjectId>> {
        let hint = match peel {
            Peel::Kind(ObjectKind::Commit) => Hint::Committish,
            Peel::Kind(ObjectKind::Tree) => Hint::Treeish,
            _ => Hint::Any,
        };
        let Some(oid) = self.revision(front, hint)? else {
            return Ok(None);
        };
        let wanted = match peel {
            Peel::Object => return Ok(self.kind(oid)?.map(|_| oid)),
            Peel::Tags => {
                let target = self.through_tags(oid)?;
                if target.is_none() && self.kind(oid)?.is_some() {
                    let front = front.as_bstr();
                    self.complain(format!("missing object referenced by '{front}'"));
                }
                return Ok(target.map(|(_, oid)| oid));
            }
            Peel::Search(_) => ObjectKind::Commit,
            Peel::Kind(kind) => kind,
        };
        let Some(found) = self.peel_to(oid, wanted, expression)? else {
            return Ok(None);
        };
        match peel {
            Peel::Search(text) if !text.is_empty() => self.search_from(&[found], text),
            _ => Ok(Some(found)),
        }
    }

    /// Follows tags, and a commit to its tree, until an object of the wanted kind is reached.
    fn peel_to(
        &self,
        oid: ObjectId,
        wanted: ObjectKind,
        expression: &BStr,
    ) -> Result<Option<ObjectId>> {
        let mut next = Some((oid, None));
        // One step more, for the commit at the end and its tree.
        for _ in 0..=TAG_DEPTH_MAX {
            let Some((oid, claimed)) = next else { break };
            let Some(object) = self.odb.read(oid)? else {
                break;
            };
            if !self.is_as_claimed(oid, object.kind, claimed) {
                break;
            }
            if object.kind == wanted {
                return Ok(Some(oid));
            }
            next = match object.kind {
                ObjectKind::Tag => tag_target(&object.data, self.odb.format())
                    .map(|(target, kind)| (target, Some(kind))),
                ObjectKind::Commit => self
                    .tree_of(&object.data)
                    .map(|tree| (tree, Some(ObjectKind::Tree))),
                kind => {
                    self.complain(format!(
                        "{expression}: expected {} type, but the object dereferences to {} type",
                        wanted.as_str(),
                        kind.as_str()
                    ));
                    None
                }
            };
        }
        Ok(None)
    }

    /// Follows tags to an object that is none; `None` when one is missing or of another kind than
    /// its tag claims.
    pub(super) fn through_tags(&self, oid: ObjectId) -> Result<Option<(ObjectKind, ObjectId)>> {
        let mut next = Some((oid, None));
        for _ in 0..=TAG_DEPTH_MAX {
            let Some((oid, claimed)) = next else { break };
            let Some(kind) = self.kind(oid)? else {
                break;
            };
            if !self.is_as_claimed(oid, kind, claimed) {
                break;
            }
            if kind != ObjectKind::Tag {
                return Ok(Some((kind, oid)));
            }
            let tag = self.odb.read(oid)?;
            let target = tag.and_then(|tag| tag_target(&tag.data, self.odb.format()));
            next = target.map(|(target, kind)| (target, Some(kind)));
        }
        Ok(None)
    }

    /// Returns whether an object has the kind that another one claims for it, and complains if it
    /// has not.
    fn is_as_claimed(&self, oid: ObjectId, kind: ObjectKind, claimed: Option<ObjectKind>) -> bool {
        match claimed {
            Some(claimed) if claimed != kind => {
                self.complain_of_kind(oid, claimed, kind);
                false
            }
            _ => true,
        }
    }

    fn complain_of_kind(&self, oid: ObjectId, is: ObjectKind, wanted: ObjectKind) {
        self.complain(format!(
            "object {oid} is a {}, not a {}",
            is.as_str(),
            wanted.as_str()
        ));
    }

    pub(super) fn complain(&self, message: String) {
        self.notes.borrow_mut().push(Note::Error(message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes() {
        let split = |text: &'static str| split(text.as_bytes());
        assert_eq!(split("a~"), Some((&b"a"[..], Suffix::Ancestor(1))));
        assert_eq!(split("a~0"), Some((&b"a"[..], Suffix::Ancestor(0))));
        assert_eq!(split("a^^2"), Some((&b"a^"[..], Suffix::Parent(2))));
        assert_eq!(split("a~99999999999"), Some((&b"a"[..], Suffix::TooLarge)));
        assert_eq!(split("a12"), None);
        assert_eq!(split("^{tree}"), None);
    }

    #[test]
    fn peels() {
        let split = |text: &'static str| split_peel(text.as_bytes());
        assert_eq!(split("a^{}"), Some((&b"a"[..], Peel::Tags)));
        assert_eq!(
            split("a^{tag}^{tree}"),
            Some((&b"a^{tag}"[..], Peel::Kind(ObjectKind::Tree)))
        );
        assert_eq!(split("a^{/x}"), Some((&b"a"[..], Peel::Search(b"x"))));
        assert_eq!(split("a^{other}"), None);
        assert_eq!(split("^{tree}"), None);
    }
}
