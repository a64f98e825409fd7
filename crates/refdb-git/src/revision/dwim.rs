//! From a short name to a ref and back: Git's six rules.

use bstr::BString;
use refdb::internals::bytes_to_path;
use refdb::name::is_pseudoref;
use refdb::{ErrorKind, ObjectId, RefName, RefNameBuf, Result, Target};

use super::{Revisions, shown};

/// What stands before and behind a short name, the strongest rule first.
pub(super) const RULES: [(&str, &str); 6] = [
    ("", ""),
    ("refs/", ""),
    ("refs/tags/", ""),
    ("refs/heads/", ""),
    ("refs/remotes/", ""),
    ("refs/remotes/", "/HEAD"),
];

/// A ref that a short name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its full name; where it leads, if it is a symref.
    pub name: RefNameBuf,
    /// Its value.
    pub oid: ObjectId,
    /// Whether the short name stands for other refs, too.
    pub is_ambiguous: bool,
}

/// What a full name leads to.
enum Led {
    To(RefNameBuf, ObjectId),
    Nowhere,
    Dangling,
    Broken,
}

impl Revisions<'_> {
    /// Returns the ref that a short name, `@`, `@{-N}` or `@{upstream}` stands for.
    ///
    /// # Errors
    /// `Misuse` for `@{upstream}` of a branch that has none; `Corrupt` or `Io` for the files.
    pub(super) fn dwim_ref(&self, name: &[u8]) -> Result<Option<Found>> {
        let name = self.interpreted(name)?;
        let all = self.warns_of_ambiguity()?;
        let mut found: Option<Found> = None;
        let candidates: Vec<_> = candidates(&name).collect();
        let are_there = self.are_there(&candidates);
        for (full, is_there) in candidates.into_iter().zip(are_there) {
            let led = match is_there {
                true => self.lead(&full)?,
                false => Led::Nowhere,
            };
            match led {
                Led::To(name, oid) => match &mut found {
                    Some(found) => found.is_ambiguous = true,
                    None => {
                        found = Some(Found {
                            name,
                            oid,
                            is_ambiguous: false,
                        });
                        if !all {
                            break;
                        }
                    }
                },
                Led::Dangling if full != "HEAD" => {
                    self.warn(format!("ignoring dangling symref {full}"));
                }
                Led::Broken if full.contains(&b'/') => {
                    self.warn(format!("ignoring broken ref {full}"));
                }
                Led::Dangling | Led::Broken | Led::Nowhere => {}
            }
        }
        Ok(found)
    }

    /// Returns the ref whose reflog a short name stands for, with the ref's value.
    ///
    /// # Errors
    /// `Misuse` for `@{upstream}` of a branch that has none; `Corrupt` or `Io` for the files.
    pub fn dwim_log(&self, name: &[u8]) -> Result<Option<Found>> {
        let name = self.interpreted(name)?;
        let all = self.warns_of_ambiguity()?;
        let mut found: Option<Found> = None;
        for full in candidates(&name) {
            let Led::To(target, oid) = self.lead(&full)? else {
                continue;
            };
            let log = RefName::new(&full)?;
            let log = if self.store.log_exists(log)? {
                log.to_owned()
            } else if target.as_name() != log && self.store.log_exists(target.as_name())? {
                target
            } else {
                continue;
            };
            match &mut found {
                Some(found) => found.is_ambiguous = true,
                None => {
                    found = Some(Found {
                        name: log,
                        oid,
                        is_ambiguous: false,
                    });
                    if !all {
                        break;
                    }
                }
            }
        }
        Ok(found)
    }

    /// Returns the shortest name that stands for `full`: for it alone if `strict`, else for it
    /// first.
    ///
    /// # Errors
    /// `Corrupt` or `Io` for the files.
    pub fn shorten(&self, full: &[u8], strict: bool) -> Result<BString> {
        for (index, short) in short_by(full) {
            let rivals = if strict { RULES.len() } else { index };
            let mut is_taken = false;
            for (rival, candidate) in candidates(short).enumerate().take(rivals) {
                if rival != index && self.leads_somewhere(&candidate)? {
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

    /// Returns whether a full name leads to an object.
    pub(super) fn leads_somewhere(&self, full: &[u8]) -> Result<bool> {
        // Mostly there is nothing, which one look says.
        Ok(self.are_there(&[full]) != [false] && matches!(self.lead(full)?, Led::To(..)))
    }

    /// Returns which full names have to be followed: that there is no ref of most of them is found out at once.
    fn are_there(&self, names: &[impl AsRef<[u8]>]) -> Vec<bool> {
        let refs: Vec<Option<RefName<'_>>> = names
            .iter()
            .map(|name| RefName::new(name.as_ref()).ok())
            .map(|name| name.filter(|name| !is_pseudoref(name.as_bytes())))
            .collect();
        let asked: Vec<RefName<'_>> = refs.iter().copied().flatten().collect();
        let mut answers = self.store.read_all(&asked).into_iter();
        let mut is_there = |_: &RefName<'_>| !matches!(answers.next(), Some(Ok(None)));
        refs.iter()
            .map(|name| name.as_ref().is_none_or(&mut is_there))
            .collect()
    }

    /// Follows a full name to an object.
    fn lead(&self, full: &[u8]) -> Result<Led> {
        let Ok(name) = RefName::new(full) else {
            return Ok(Led::Nowhere);
        };
        if is_pseudoref(full) {
            return Ok(self.pseudoref(name));
        }
        match self.store.resolve(name) {
            Ok(Some(resolved)) if resolved.oid.is_null() => Ok(Led::Broken),
            Ok(Some(resolved)) => Ok(Led::To(resolved.name, resolved.oid)),
            Ok(None) => match self.store.read(name) {
                Ok(Some(found)) if matches!(found.target, Target::Symbolic(_)) => Ok(Led::Dangling),
                _ => Ok(Led::Nowhere),
            },
            Err(error) if error.kind() == ErrorKind::BrokenRef => Ok(Led::Broken),
            Err(error) => Err(error),
        }
    }

    /// Reads `FETCH_HEAD` or `MERGE_HEAD`, which are files beside the refs: the first id counts.
    fn pseudoref(&self, name: RefName<'_>) -> Led {
        let path = self
            .repository
            .git_dir()
            .join(bytes_to_path(name.as_bytes()));
        let system = self.repository.system();
        let len = self.odb.format().hex_len();
        let text = system.read_at_most(&path, len + 1).unwrap_or_default();
        let (hex, rest) = text.split_at_checked(len).unwrap_or((&text, b""));
        match self.full_id(hex) {
            Some(oid) if rest.iter().all(u8::is_ascii_whitespace) => Led::To(name.to_owned(), oid),
            _ => Led::Nowhere,
        }
    }

    /// Returns a name with `@`, `@{-N}` and `@{upstream}` replaced.
    fn interpreted(&self, name: &[u8]) -> Result<BString> {
        if !name.contains(&b'@') {
            return Ok(name.into());
        }
        Ok(match self.interpret(name, false)? {
            Some((meant, len)) if len == name.len() => meant,
            _ => shown(name).to_owned(),
        })
    }
}

/// Returns the full names that a short one can stand for.
pub(super) fn candidates(short: &[u8]) -> impl Iterator<Item = BString> {
    RULES.iter().map(move |(front, back)| {
        let mut full = BString::from(*front);
        full.extend_from_slice(short);
        full.extend_from_slice(back.as_bytes());
        full
    })
}

/// Returns what a full name is short for under each rule that could have made it, the weakest rule
/// first.
pub(super) fn short_by(full: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let rules = RULES.iter().enumerate().skip(1).rev();
    rules.filter_map(move |(index, (front, back))| {
        let short = full.strip_prefix(front.as_bytes())?;
        let short = short.strip_suffix(back.as_bytes())?;
        (!short.is_empty()).then_some((index, short))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_in_their_order() {
        let names: Vec<_> = candidates(b"x").map(|name| name.to_string()).collect();
        assert_eq!(
            names,
            [
                "x",
                "refs/x",
                "refs/tags/x",
                "refs/heads/x",
                "refs/remotes/x",
                "refs/remotes/x/HEAD"
            ]
        );
    }
}
