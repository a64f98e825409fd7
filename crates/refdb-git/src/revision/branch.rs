//! `@`, `@{-N}`, `@{upstream}` and `@{push}`: names that stand for the name of a branch.

use bstr::{BString, ByteSlice};
use refdb::name::{FormatOptions, is_well_formed};
use refdb::{LogOrder, ObjectId, RefName, Result};

use super::Revisions;
use super::tracking::Direction;

/// Returns the length of `@{upstream}`, `@{u}` or `@{push}` at the start of `text`, and what is
/// meant.
pub(super) fn mark_len(text: &[u8]) -> Option<(usize, Direction)> {
    let marks = [
        ("@{upstream}", Direction::Upstream),
        ("@{u}", Direction::Upstream),
        ("@{push}", Direction::Push),
    ];
    marks.into_iter().find_map(|(mark, direction)| {
        let start = text.get(..mark.len())?;
        start
            .eq_ignore_ascii_case(mark.as_bytes())
            .then_some((mark.len(), direction))
    })
}

impl Revisions<'_> {
    /// Returns the branch that `check-ref-format --branch` takes `name` for: `@{-1}` and the like
    /// replaced, anything else as it is. Whether the result is well-formed is not checked.
    ///
    /// # Errors
    /// `Misuse` for `@{upstream}` of a branch that has none; `Corrupt` or `Io` for the files.
    pub fn expand_branch(&self, name: &[u8]) -> Result<BString> {
        self.expand(name, true)
    }

    /// Returns `name` with `@`, `@{-1}`, `@{upstream}` and the like at its beginning replaced by the
    /// ref that is meant, remote-tracking ones included; anything else as it is.
    ///
    /// # Errors
    /// `Misuse` for `@{upstream}` of a branch that has none; `Corrupt` or `Io` for the files.
    pub fn expand_ref(&self, name: &[u8]) -> Result<BString> {
        self.expand(name, false)
    }

    fn expand(&self, name: &[u8], local: bool) -> Result<BString> {
        let Some((mut branch, len)) = self.interpret(name, local)? else {
            return Ok(name.into());
        };
        branch.extend_from_slice(name.get(len..).unwrap_or_default());
        Ok(branch)
    }

    /// Returns what stands for the beginning of `name`, and how long that is; `None` if it is
    /// nothing special. With `local`, only names of local branches are of interest.
    pub(super) fn interpret(&self, name: &[u8], local: bool) -> Result<Option<(BString, usize)>> {
        if let Some((number, rest)) = prior_number(name) {
            let Some(branch) = self.prior_branch(number)? else {
                return Ok(None);
            };
            let len = name.len() - rest.len();
            // A reflog can say anything; what it gives as a branch is not looked into without end.
            if rest.is_empty() || !is_well_formed(&branch, FormatOptions::ONE_LEVEL) {
                return Ok(Some((branch, len)));
            }
            return self.interpret_again(branch, name, len, local).map(Some);
        }
        if !local && let Some(rest) = lone_at(name) {
            let head = BString::from("HEAD");
            return match rest {
                b"" => Ok(Some((head, name.len()))),
                _ => self.interpret_again(head, name, 1, local).map(Some),
            };
        }
        for at in name.find_iter("@") {
            let (branch, rest) = name.split_at(at);
            let Some((len, direction)) = mark_len(rest) else {
                continue;
            };
            if branch.contains(&b':') {
                continue;
            }
            let tracking = self.tracking(branch, direction)?;
            if local && !tracking.starts_with(b"refs/heads/") {
                return Ok(None);
            }
            let short = self.shorten(&tracking, false)?;
            return Ok(Some((short, at + len)));
        }
        Ok(None)
    }

    /// Looks whether `start`, which stands for the first `len` bytes of `name`, and what follows
    /// there have a meaning together.
    fn interpret_again(
        &self,
        start: BString,
        name: &[u8],
        len: usize,
        local: bool,
    ) -> Result<(BString, usize)> {
        let mut whole = start.clone();
        whole.extend_from_slice(name.get(len..).unwrap_or_default());
        match self.interpret(&whole, local)? {
            Some((meant, end)) if end >= start.len() => Ok((meant, end - start.len() + len)),
            _ => Ok((start, len)),
        }
    }

    /// Returns the id that `@{-N}` stands for if no branch was checked out then.
    pub(super) fn detached_prior(&self, name: &[u8]) -> Result<Option<ObjectId>> {
        match prior_number(name) {
            Some((number, b"")) => {
                let branch = self.prior_branch(number)?;
                Ok(branch.and_then(|branch| self.full_id(&branch)))
            }
            _ => Ok(None),
        }
    }

    /// Returns what was checked out before the last so many checkouts.
    fn prior_branch(&self, number: u64) -> Result<Option<BString>> {
        let mut left = number;
        let mut found = None;
        let head = RefName::HEAD;
        self.store
            .for_each_log_entry(head, LogOrder::NewestFirst, |entry| {
                let from = entry
                    .message
                    .strip_prefix(b"checkout: moving from ")
                    .and_then(|rest| rest.split_once_str(" to "))
                    .map(|(from, _)| from);
                if let Some(from) = from {
                    left -= 1;
                    if left == 0 {
                        found = Some(BString::from(from));
                    }
                }
                Ok(left > 0)
            })?;
        Ok(found)
    }
}

/// Splits `@{-N}` off the start of a name.
fn prior_number(name: &[u8]) -> Option<(u64, &[u8])> {
    let rest = name.strip_prefix(b"@{-")?;
    let (number, rest) = rest.split_once_str("}")?;
    if !number.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = number.to_str().ok()?.parse().ok()?;
    (number > 0).then_some((number, rest))
}

/// Returns what follows an `@` that stands for `HEAD`: nothing, or another `@{`.
fn lone_at(name: &[u8]) -> Option<&[u8]> {
    let rest = name.strip_prefix(b"@")?;
    (rest.is_empty() || rest.starts_with(b"@{")).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks() {
        assert_eq!(mark_len(b"@{u}x"), Some((4, Direction::Upstream)));
        assert_eq!(mark_len(b"@{UpStream}"), Some((11, Direction::Upstream)));
        assert_eq!(mark_len(b"@{push}"), Some((7, Direction::Push)));
        assert_eq!(mark_len(b"@{up}"), None);
    }

    #[test]
    fn lone_ats_and_prior_numbers() {
        assert_eq!(lone_at(b"@"), Some(&b""[..]));
        assert_eq!(lone_at(b"@@{u}"), Some(&b"@{u}"[..]));
        assert_eq!(lone_at(b"@{1}"), None);
        assert_eq!(lone_at(b"@foo"), None);
        assert_eq!(prior_number(b"@{-2}@{u}"), Some((2, &b"@{u}"[..])));
        assert_eq!(prior_number(b"@{-0}"), None);
        assert_eq!(prior_number(b"@{--1}"), None);
    }
}
