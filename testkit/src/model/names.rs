//! The two rules for names: what `git check-ref-format --allow-onelevel` accepts, and what cannot
//! lead out of the store.

/// Tells whether a name has Git's format; one component is enough.
pub fn is_valid(name: &[u8]) -> bool {
    let bad_byte = |b: &u8| {
        matches!(
            b,
            0..=32 | 127 | b':' | b'?' | b'[' | b'\\' | b'^' | b'~' | b'*'
        )
    };
    let bad_part = |part: &[u8]| {
        part.is_empty()
            || part.starts_with(b".")
            || part.ends_with(b".lock")
            || part.windows(2).any(|pair| pair == b".." || pair == b"@{")
    };
    name != b"@"
        && !name.ends_with(b".")
        && !name.iter().any(bad_byte)
        && !name.split(|b| *b == b'/').any(bad_part)
}

/// Tells whether a name may be deleted or made a symref: below `refs/` in the literal sense, or
/// all capitals and underscores.
pub fn is_safe(name: &[u8]) -> bool {
    match name.strip_prefix(b"refs/") {
        Some(rest) => {
            let parts = rest.split(|b| *b == b'/');
            !parts
                .clone()
                .any(|part| part.is_empty() || part == b"." || part == b"..")
        }
        None => name.iter().all(|b| b.is_ascii_uppercase() || *b == b'_'),
    }
}

/// Tells whether no transaction may touch a name, since it is no ref.
pub(super) fn is_pseudoref(name: &[u8]) -> bool {
    matches!(name, b"FETCH_HEAD" | b"MERGE_HEAD")
}

/// Tells whether one name is a folder on the way to the other.
pub(super) fn conflict(one: &[u8], other: &[u8]) -> bool {
    let (short, long) = if one.len() < other.len() {
        (one, other)
    } else {
        (other, one)
    };
    long.strip_prefix(short)
        .is_some_and(|rest| rest.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::git;
    use crate::rng::Rng;

    #[test]
    fn the_format_is_the_one_that_git_checks() {
        const PARTS: [&str; 24] = [
            "a", "refs", "/", "/", ".", "..", "@", "{", "@{", ".lock", "lock", " ", "~", "^", ":",
            "?", "*", "[", "\\", "\x7f", "\x01", "-", "HEAD", "\u{e9}",
        ];
        let dir = std::env::temp_dir();
        let mut valid = 0;
        for seed in 0..300 {
            let mut rng = Rng::new(seed);
            let parts = 1 + rng.below(4);
            let name: String = (0..parts).map(|_| *rng.pick(&PARTS)).collect();
            if name.starts_with('-') {
                // Git takes it for an option.
                continue;
            }
            let check = ["check-ref-format", "--allow-onelevel", &name];
            let accepted = git(&dir).args(check).run().code() == 0;
            assert_eq!(is_valid(name.as_bytes()), accepted, "{name:?}");
            valid += usize::from(accepted);
        }
        assert!(
            (20..280).contains(&valid),
            "{valid} of 300 names were valid"
        );
    }

    #[test]
    fn only_whole_components_conflict() {
        assert!(conflict(b"refs/a", b"refs/a/b"));
        assert!(conflict(b"refs/a/b", b"refs/a"));
        assert!(!conflict(b"refs/a", b"refs/ab"));
        assert!(!conflict(b"refs/a", b"refs/a"));
    }
}
