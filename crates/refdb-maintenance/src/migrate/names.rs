//! Which names a store can hold beside each other.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use refdb::{RefFormat, short};

/// How many bytes of a file's name are left for a ref, beside those of its lock.
const COMPONENT_MAX: usize = 255 - ".lock".len();

/// How long a path within the repository can be, roughly: what comes before it has its part too.
const PATH_MAX: usize = 3500;

/// Names in their order, checked one after the other.
///
/// Of the names seen only those are kept that the next one may begin with. Where case does not
/// count, a number is kept of each, so that a million of them take little room; two names with one
/// number would be a false alarm in some ten million migrations of such a size.
pub(super) struct Names {
    to: RefFormat,
    ignore_case: bool,
    /// The last name that was accepted.
    last: Vec<u8>,
    /// How long the names accepted are that it begins with, itself included.
    begun: Vec<usize>,
    state: RandomState,
    folded: HashSet<u64>,
}

impl Names {
    pub(super) fn new(to: RefFormat, ignore_case: bool) -> Names {
        Names {
            to,
            ignore_case: ignore_case && to == RefFormat::Files,
            last: Vec::new(),
            begun: Vec::new(),
            state: RandomState::new(),
            folded: HashSet::new(),
        }
    }

    /// Returns the name above the next one that is there already, if there is one.
    pub(super) fn above<'n>(&mut self, name: &'n [u8]) -> Option<&'n [u8]> {
        let shared = short::common_prefix(&self.last, name);
        while self.begun.last().is_some_and(|&len| len > shared) {
            self.begun.pop();
        }
        // `a` comes before `a/b`, and only names that begin with `a` come between them.
        let mut above = self
            .begun
            .iter()
            .filter(|len| name.get(**len) == Some(&b'/'));
        above.next().and_then(|&len| name.get(..len))
    }

    /// Returns why the store cannot hold the next name, if it cannot.
    pub(super) fn add(&mut self, name: &[u8]) -> Option<String> {
        if self.to == RefFormat::Files && name.len() > COMPONENT_MAX {
            let mut parts = name.split(|&byte| byte == b'/');
            if parts.any(|part| part.len() > COMPONENT_MAX) || name.len() > PATH_MAX {
                return Some("the name is too long for a file".to_owned());
            }
        }
        if let Some(above) = self.above(name) {
            let above = String::from_utf8_lossy(above);
            return Some(format!("'{above}' exists as well"));
        }
        let shared = short::common_prefix(&self.last, name);
        if self.ignore_case {
            let folded = name.to_ascii_lowercase();
            if !self.folded.insert(self.state.hash_one(&folded[..])) {
                return Some(
                    "another name differs only in case, and the file system takes both for one"
                        .to_owned(),
                );
            }
        }
        self.last.truncate(shared);
        let rest = name.get(shared..).unwrap_or_default();
        self.last.extend_from_slice(rest);
        self.begun.push(name.len());
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(to: RefFormat, ignore_case: bool, names: &[&str]) -> Vec<String> {
        let mut checked = Names::new(to, ignore_case);
        let refused = names
            .iter()
            .filter(|name| checked.add(name.as_bytes()).is_some());
        refused.map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn parents_are_found_whatever_stands_between() {
        for to in [RefFormat::Files, RefFormat::Reftable] {
            let names = ["refs/a", "refs/a-b", "refs/a/b", "refs/a/b/c", "refs/c/d"];
            assert_eq!(refused(to, false, &names), ["refs/a/b", "refs/a/b/c"]);
        }
    }

    #[test]
    fn files_have_short_names_and_some_have_no_case() {
        let (fits, long) = ("x".repeat(250), "x".repeat(251));
        let names = [
            "refs/A",
            "refs/a",
            &format!("refs/{fits}"),
            &format!("refs/{long}/y"),
        ];
        assert_eq!(refused(RefFormat::Files, false, &names), [names[3]]);
        assert_eq!(
            refused(RefFormat::Files, true, &names),
            [names[1], names[3]]
        );
        assert!(refused(RefFormat::Reftable, true, &names).is_empty());
    }
}
