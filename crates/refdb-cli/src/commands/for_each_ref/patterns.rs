//! Which refs are listed: patterns, and the prefixes that the names of matching refs have.

use std::io::Read;

use bstr::ByteSlice;
use gix_glob::wildmatch::Mode;

use crate::failure::{Failure, Result};

/// Returns the patterns from the command line or from standard input, one from each line.
pub(super) fn given(stdin: bool, operands: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
    if !stdin {
        return Ok(operands);
    }
    if !operands.is_empty() {
        return Err(Failure::fatal("unknown arguments supplied with --stdin"));
    }
    let mut text = Vec::new();
    let read = std::io::stdin().lock().read_to_end(&mut text);
    read.map_err(|error| {
        let why = refdb::error::io_text(&error);
        Failure::fatal(format!("cannot read standard input: {why}"))
    })?;
    // What stands behind a zero byte is not part of a pattern, as nothing behind it is for Git.
    let until_zero = |line: &[u8]| line.split(|&byte| byte == 0).next().map(<[u8]>::to_vec);
    Ok(text.lines().filter_map(until_zero).collect())
}

/// A set of patterns, of which a name has to match one.
#[derive(Debug, Default)]
pub(super) struct Patterns {
    /// All of them, sorted, so that one of many is found by a search.
    patterns: Vec<Vec<u8>>,
    /// Those that may match otherwise than as a directory.
    globs: Vec<Vec<u8>>,
    ignore_case: bool,
}

/// Of more patterns than this a directory is searched, as a name is in some directories only.
const LOOKED_THROUGH: usize = 8;

impl Patterns {
    /// Takes patterns, and whether they match without regard for case.
    pub(super) fn new(mut patterns: Vec<Vec<u8>>, ignore_case: bool) -> Self {
        patterns.sort_unstable();
        patterns.dedup();
        // Only wildcards and whole names can do without the right case; a directory cannot.
        let globs = patterns.iter().filter(|it| ignore_case || has_glob(it));
        Patterns {
            globs: globs.cloned().collect(),
            patterns,
            ignore_case,
        }
    }

    /// Returns whether there is no pattern.
    pub(super) fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Returns whether a pattern is `name`, a directory above it, or a glob that matches all of it.
    pub(super) fn match_path(&self, name: &[u8]) -> bool {
        let glob = Mode::NO_MATCH_SLASH_LITERAL;
        let mode = match self.ignore_case {
            true => glob | Mode::IGNORE_CASE,
            false => glob,
        };
        let is_glob_of = |glob: &Vec<u8>| gix_glob::wildmatch(glob.as_bstr(), name.as_bstr(), mode);
        self.has_directory_of(name) || self.globs.iter().any(is_glob_of)
    }

    /// Returns whether a pattern is `name` or a directory above it.
    fn has_directory_of(&self, name: &[u8]) -> bool {
        if self.patterns.len() <= LOOKED_THROUGH {
            return self.patterns.iter().any(|it| is_directory_of(it, name));
        }
        let has = |start: Option<&[u8]>| {
            let found = |start| {
                self.patterns
                    .binary_search_by(|it| it.as_slice().cmp(start))
            };
            start.is_some_and(|start| !start.is_empty() && found(start).is_ok())
        };
        let mut slashes = name.find_iter("/");
        has(Some(name)) || slashes.any(|at| has(name.get(..at)) || has(name.get(..=at)))
    }

    /// Returns prefixes below `refs/`, sorted and none a prefix of another, one of which every
    /// matching ref has.
    pub(super) fn prefixes(&self) -> Vec<Vec<u8>> {
        let base = b"refs/";
        if self.patterns.is_empty() || self.ignore_case {
            return vec![base.to_vec()];
        }
        let mut prefixes: Vec<Vec<u8>> = self
            .patterns
            .iter()
            .map(|pattern| literal_start(pattern).to_vec())
            .filter_map(|start| {
                if start.starts_with(base) {
                    Some(start)
                } else {
                    // What begins otherwise matches no ref, unless it goes on with a wildcard.
                    base.starts_with(&start).then(|| base.to_vec())
                }
            })
            .collect();
        prefixes.sort();
        prefixes.dedup_by(|next, kept| next.starts_with(kept));
        prefixes
    }

    /// Returns prefixes all of whose refs match: what an exclusion can jump over.
    pub(super) fn whole_ranges(&self) -> Vec<Vec<u8>> {
        if self.ignore_case {
            return Vec::new();
        }
        let directories = self.patterns.iter().filter(|pattern| !has_glob(pattern));
        directories
            .map(|pattern| {
                let mut range = pattern.clone();
                if !range.ends_with(b"/") {
                    range.push(b'/');
                }
                range
            })
            .collect()
    }
}

/// Returns whether `pattern` is `name` or a directory above it.
fn is_directory_of(pattern: &[u8], name: &[u8]) -> bool {
    !pattern.is_empty()
        && name.strip_prefix(pattern).is_some_and(|rest| {
            rest.is_empty() || rest.starts_with(b"/") || pattern.ends_with(b"/")
        })
}

fn has_glob(pattern: &[u8]) -> bool {
    literal_start(pattern).len() < pattern.len()
}

/// Returns what stands before the first wildcard.
fn literal_start(pattern: &[u8]) -> &[u8] {
    let end = pattern.find_byteset(b"*?[\\").unwrap_or(pattern.len());
    pattern.get(..end).unwrap_or(pattern)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(list: &[&str], ignore_case: bool) -> Patterns {
        let list = list.iter().map(|it| it.as_bytes().to_vec()).collect();
        Patterns::new(list, ignore_case)
    }

    #[test]
    fn a_directory_matches_what_is_below_it() {
        let heads = patterns(&["refs/heads"], false);
        assert!(heads.match_path(b"refs/heads/a"));
        assert!(heads.match_path(b"refs/heads"));
        assert!(!heads.match_path(b"refs/headstone"));
        assert!(patterns(&["refs/heads/"], false).match_path(b"refs/heads/a/b"));
        assert!(!patterns(&[""], false).match_path(b"refs/heads/a"));
        assert!(!patterns(&["REFS/Heads"], true).match_path(b"refs/heads/a"));
        assert!(patterns(&["REFS/Heads/A"], true).match_path(b"refs/heads/a"));
    }

    #[test]
    fn many_patterns_match_as_each_does() {
        let names = [
            "refs/heads",
            "refs/heads/a",
            "refs/heads/a-b",
            "refs/headstone",
            "refs/tags/a/b",
            "HEAD",
        ];
        let more = [
            "",
            "refs/heads/a",
            "refs/tags/",
            "refs/x/*",
            "HEAD/",
            "refs/heads/a/b",
        ];
        for one in names.iter().chain(&more) {
            let mut list = vec![*one];
            let alone = patterns(&list, false);
            list.extend(["z0", "z1", "z2", "z3", "z4", "z5", "z6", "z7", "z8"]);
            let among = patterns(&list, false);
            for name in names {
                let name = name.as_bytes();
                assert_eq!(among.match_path(name), alone.match_path(name), "{one}");
            }
        }
    }

    #[test]
    fn wildcards_stop_at_slashes() {
        let one = patterns(&["refs/heads/*"], false);
        assert!(one.match_path(b"refs/heads/a"));
        assert!(!one.match_path(b"refs/heads/a/b"));
        assert!(patterns(&["refs/**/b"], false).match_path(b"refs/heads/a/b"));
    }

    #[test]
    fn prefixes_are_few() {
        let prefixes = |list: &[&str]| patterns(list, false).prefixes();
        assert_eq!(
            prefixes(&["refs/tags/v*", "refs/heads/a", "refs/heads/ab"]),
            [&b"refs/heads/a"[..], b"refs/tags/v"]
        );
        assert_eq!(prefixes(&["*/x"]), [b"refs/"]);
        assert_eq!(prefixes(&["main"]), Vec::<Vec<u8>>::new());
        assert_eq!(prefixes(&[]), [b"refs/"]);
    }
}
