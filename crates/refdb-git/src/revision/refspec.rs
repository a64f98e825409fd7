//! Refspecs of remotes: whether they are well formed, and what they make of a name.

use bstr::{BStr, BString, ByteSlice};
use refdb::ObjectId;
use refdb::name::{FormatOptions, is_well_formed};

/// Returns whether Git would read the refspec, for fetching or for pushing.
pub(super) fn is_valid(refspec: &BStr, pushes: bool) -> bool {
    let (negative, rest) = match refspec.strip_prefix(b"^") {
        Some(rest) => (true, rest),
        None => (false, refspec.strip_prefix(b"+").unwrap_or(refspec)),
    };
    let (from, to) = match rest.rsplit_once_str(":") {
        Some((from, to)) => (from, Some(to)),
        None => (rest, None),
    };
    if pushes && !negative && from.is_empty() && to == Some(b"") {
        // Whatever both sides have.
        return true;
    }
    let is_pattern = from.contains(&b'*');
    let to_is_pattern = to.is_some_and(|to| to.contains(&b'*'));
    let sides_differ = match to {
        Some(_) => is_pattern != to_is_pattern,
        None => is_pattern && !negative && !pushes,
    };
    if sides_differ || negative && to.is_some() {
        return false;
    }
    let is_name = |name: &[u8]| {
        let options = FormatOptions {
            allow_onelevel: true,
            refspec_pattern: is_pattern,
        };
        is_well_formed(name, options)
    };
    let is_id = ObjectId::from_hex(from).is_some();
    if negative {
        return !from.is_empty() && !is_id && is_name(from);
    }
    if pushes {
        let from_is_right = from.is_empty() || !is_pattern || is_name(from);
        return from_is_right && is_name(to.unwrap_or(from));
    }
    let from_is_right = from.is_empty() || from == b"@" || is_id || is_name(from);
    from_is_right && to.is_none_or(|to| to.is_empty() || is_name(to))
}

/// Returns what the first refspec that has `name` on its left side makes of it, unless a negative
/// one excludes it.
///
/// A negative refspec is compared with the left side of each other one that has `name` on its right
/// side, or is `name` alone: that is how Git does it, also where the left side is asked for.
pub(super) fn map<'s>(
    refspecs: impl Iterator<Item = &'s BStr> + Clone,
    name: &BStr,
) -> Option<BString> {
    let positive = refspecs
        .clone()
        .filter(|refspec| !refspec.starts_with(b"^"));
    let sides = positive.map(|refspec| {
        let refspec = refspec.strip_prefix(b"+").unwrap_or(refspec);
        match refspec.rsplit_once_str(":") {
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
        super::map(refspecs, name.into()).map(|target| target.to_string())
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

    #[test]
    fn well_formed_refspecs() {
        for good in [
            "a",
            "",
            ":",
            "refs/heads/*:r/*",
            "+a:b",
            "^a/*",
            "@:x",
            "a:",
            "*:*",
        ] {
            assert!(is_valid(good.into(), false), "{good}");
        }
        for bad in [
            "a:b:c", "a*:b", "a:b*", "refs/*", "..", "a:..", "^a:b", "^", "^a..b",
        ] {
            assert!(!is_valid(bad.into(), false), "{bad}");
        }
        for good in ["a", ":", "a~1:b", "a:b:c", ":x", "refs/*", "..:x", "^a"] {
            assert!(is_valid(good.into(), true), "{good}");
        }
        for bad in ["a~1", "a:", "", "refs/*:x", "x:..", "a*..:b*"] {
            assert!(!is_valid(bad.into(), true), "{bad}");
        }
    }
}
