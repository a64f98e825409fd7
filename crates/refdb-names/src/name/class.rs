//! Which class a name belongs to: pseudoref, root ref, per-worktree ref, another worktree's ref.

use super::rules::is_path;

/// Returns whether `name` is a pseudoref: a file that Git writes beside the refs and that no
/// backend holds.
pub fn is_pseudoref(name: &[u8]) -> bool {
    matches!(name, b"FETCH_HEAD" | b"MERGE_HEAD")
}

/// Returns whether `name` is spelled as root refs are: capitals, `-` and `_` only.
fn is_root_ref_syntax(name: &[u8]) -> bool {
    name.iter()
        .all(|byte| byte.is_ascii_uppercase() || matches!(byte, b'-' | b'_'))
}

/// Returns whether `name` is a root ref: `HEAD` and its like, beside `refs/`.
pub fn is_root_ref(name: &[u8]) -> bool {
    is_root_ref_syntax(name)
        && !is_pseudoref(name)
        && (name.ends_with(b"_HEAD")
            || matches!(
                name,
                b"HEAD"
                    | b"AUTO_MERGE"
                    | b"BISECT_EXPECTED_REV"
                    | b"NOTES_MERGE_PARTIAL"
                    | b"NOTES_MERGE_REF"
                    | b"MERGE_AUTOSTASH"
            ))
}

/// Returns whether every worktree has a ref of this name of its own.
pub fn is_per_worktree(name: &[u8]) -> bool {
    is_root_ref_syntax(name)
        || [&b"refs/worktree/"[..], b"refs/bisect/", b"refs/rewritten/"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
}

/// Which worktree a name speaks of, and the name within that worktree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorktreeName<'a> {
    /// A shared ref, kept in the common directory.
    Shared(&'a [u8]),
    /// A per-worktree ref of the current worktree.
    Current(&'a [u8]),
    /// `main-worktree/<name>`: a per-worktree ref of the main worktree.
    Main(&'a [u8]),
    /// `worktrees/<id>/<name>`: a per-worktree ref of the linked worktree `id`.
    Linked {
        /// The id of the worktree: its directory in `worktrees/`.
        id: &'a [u8],
        /// The name within that worktree; empty where the worktree as a whole is named.
        name: &'a [u8],
    },
}

impl<'a> WorktreeName<'a> {
    /// Returns the name without the prefix that says which worktree it belongs to.
    pub fn bare(self) -> &'a [u8] {
        match self {
            WorktreeName::Shared(name)
            | WorktreeName::Current(name)
            | WorktreeName::Main(name)
            | WorktreeName::Linked { name, .. } => name,
        }
    }
}

/// Returns which worktree `name` speaks of.
///
/// `main-worktree/` and `worktrees/<id>/` are prefixes only before a per-worktree name: before
/// any other they are ordinary components of a shared name. An id is the name of a directory: what
/// would lead to another place is none.
pub fn worktree_name(name: &[u8]) -> WorktreeName<'_> {
    // Nearly every name is that of a branch, a tag or the like, and none of these begins so.
    if let Some(rest) = name.strip_prefix(b"refs/")
        && !matches!(rest.first(), Some(b'b' | b'r' | b'w'))
    {
        return WorktreeName::Shared(name);
    }
    if is_per_worktree(name) {
        return WorktreeName::Current(name);
    }
    if let Some(bare) = name.strip_prefix(b"main-worktree/") {
        if !bare.is_empty() && is_per_worktree(bare) {
            return WorktreeName::Main(bare);
        }
    } else if let Some(rest) = name.strip_prefix(b"worktrees/") {
        let slash = rest.iter().position(|&byte| byte == b'/');
        let (id, bare) = match slash {
            Some(at) => (&rest[..at], &rest[at + 1..]),
            None => (rest, &rest[rest.len()..]),
        };
        if is_path(id) && (slash.is_none() || is_per_worktree(bare)) {
            return WorktreeName::Linked { id, name: bare };
        }
    }
    WorktreeName::Shared(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_refs() {
        assert!(is_root_ref(b"HEAD"));
        assert!(is_root_ref(b"ORIG_HEAD"));
        assert!(is_root_ref(b"AUTO_MERGE"));
        assert!(!is_root_ref(b"FETCH_HEAD"));
        assert!(!is_root_ref(b"FOO"));
        assert!(!is_root_ref(b"refs/HEAD"));
    }

    #[test]
    fn worktree_names() {
        assert_eq!(worktree_name(b"FOO"), WorktreeName::Current(b"FOO"));
        assert_eq!(
            worktree_name(b"refs/bisect/bad"),
            WorktreeName::Current(b"refs/bisect/bad")
        );
        assert_eq!(
            worktree_name(b"main-worktree/HEAD"),
            WorktreeName::Main(b"HEAD")
        );
        assert_eq!(
            worktree_name(b"worktrees/w/refs/bisect/x"),
            WorktreeName::Linked {
                id: b"w",
                name: b"refs/bisect/x"
            }
        );
        assert_eq!(
            worktree_name(b"worktrees/w"),
            WorktreeName::Linked {
                id: b"w",
                name: b""
            }
        );
        for shared in [
            &b"worktrees/w/refs/heads/main"[..],
            b"refs/heads/main",
            b"worktrees/",
            b"worktrees//HEAD",
            b"worktrees/./HEAD",
            b"worktrees/../HEAD",
            b"worktrees/..",
            b"worktrees/a\0b/HEAD",
        ] {
            assert_eq!(worktree_name(shared), WorktreeName::Shared(shared));
        }
    }
}
