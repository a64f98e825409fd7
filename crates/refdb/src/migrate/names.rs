//! Which names a store can hold beside each other.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use crate::backend::RefFormat;

/// How many bytes of a file's name are left for a ref, beside those of its lock.
const COMPONENT_MAX: usize = 255 - ".lock".len();

/// How long a path within the repository can be, roughly: what comes before it has its part too.
const PATH_MAX: usize = 3500;

/// Names in the order of a store, checked one after the other.
///
/// Of the names seen only numbers are kept, so that a million of them take little room; two names
/// with one number would be a false alarm in some ten million migrations of such a size.
pub(super) struct Names {
    to: RefFormat,
    ignore_case: bool,
    state: RandomState,
    seen: HashSet<u64>,
    folded: HashSet<u64>,
    last_dir: Vec<u8>,
}

impl Names {
    pub(super) fn new(to: RefFormat, ignore_case: bool) -> Names {
        Names {
            to,
            ignore_case: ignore_case && to == RefFormat::Files,
            state: RandomState::new(),
            seen: HashSet::new(),
            folded: HashSet::new(),
            last_dir: Vec::new(),
        }
    }

    /// Returns why the store cannot hold the next name, if it cannot.
    pub(super) fn add(&mut self, name: &[u8]) -> Option<String> {
        if self.to == RefFormat::Files {
            let mut parts = name.split(|&byte| byte == b'/');
            if parts.any(|part| part.len() > COMPONENT_MAX) || name.len() > PATH_MAX {
                return Some("the name is too long for a file".to_owned());
            }
        }
        let dir = name.iter().rposition(|&byte| byte == b'/');
        let dir = dir.and_then(|slash| name.get(..slash)).unwrap_or_default();
        if dir != self.last_dir {
            // `a` comes before `a/b`, so that only parents have to be looked for.
            let slashes = name.iter().enumerate().filter(|(_, byte)| **byte == b'/');
            for (slash, _) in slashes {
                let parent = name.get(..slash).unwrap_or_default();
                if self.seen.contains(&self.state.hash_one(parent)) {
                    let parent = String::from_utf8_lossy(parent);
                    return Some(format!("'{parent}' exists as well"));
                }
            }
            self.last_dir = dir.to_vec();
        }
        if self.ignore_case {
            let folded = name.to_ascii_lowercase();
            if !self.folded.insert(self.state.hash_one(&folded[..])) {
                return Some(
                    "another name differs only in case, and the file system takes both for one"
                        .to_owned(),
                );
            }
        }
        self.seen.insert(self.state.hash_one(name));
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
