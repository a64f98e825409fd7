//! The two rules for names: well-formed, as `git check-ref-format` answers, and safe.

use reftable::short::has_prefix;

/// What `check-ref-format` may let through beside full names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FormatOptions {
    /// Names of one component, such as `HEAD`.
    pub allow_onelevel: bool,
    /// One `*` in the whole name.
    pub refspec_pattern: bool,
}

impl FormatOptions {
    /// Two components at least, no pattern.
    pub const FULL: Self = FormatOptions {
        allow_onelevel: false,
        refspec_pattern: false,
    };
    /// One component is enough.
    pub const ONE_LEVEL: Self = FormatOptions {
        allow_onelevel: true,
        refspec_pattern: false,
    };
}

// What a byte does inside a component.
const PLAIN: u8 = 0;
const SLASH: u8 = 1;
const DOT: u8 = 2;
const BRACE: u8 = 3;
const STAR: u8 = 4;
const REFUSED: u8 = 5;

static CLASS: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut table = [PLAIN; 256];
    let mut byte = u8::MIN;
    loop {
        if is_refused(byte) {
            table[byte as usize] = REFUSED;
        }
        if byte == u8::MAX {
            break;
        }
        byte += 1;
    }
    table[b'/' as usize] = SLASH;
    table[b'.' as usize] = DOT;
    table[b'{' as usize] = BRACE;
    table[b'*' as usize] = STAR;
    table
}

/// How many bytes are looked at together.
const LANES: usize = 16;

/// Returns whether a look at each byte and the one before it tells that `name` is well-formed and
/// has several components, as it does of most names; `false` tells nothing.
fn is_plainly_well_formed(name: &[u8]) -> bool {
    has_plain_ends(name) && has_plain_pairs(name)
}

/// Returns whether a name of several components has no end that would ask for another look.
#[inline]
fn has_plain_ends(name: &[u8]) -> bool {
    !matches!(name.last(), None | Some(b'.' | b'/' | b'k')) && name.starts_with(b"refs/")
}

/// Returns whether `name` differs from a well-formed one in its last bytes at most, and these tell that
/// it is well-formed as well; `false` tells nothing. Names in their order are like the one before.
///
/// ```
/// use refdb_names::name::goes_on_plainly;
///
/// let first = b"refs/heads/a-topic-of-many-001";
/// assert!(goes_on_plainly(first, b"refs/heads/a-topic-of-many-002"));
/// assert!(!goes_on_plainly(first, b"refs/heads/a-topic-of-many/.lock"));
/// assert!(!goes_on_plainly(first, b"HEAD"));
/// ```
pub fn goes_on_plainly(well_formed: &[u8], name: &[u8]) -> bool {
    let Some((start, last)) = name.split_last_chunk::<LANES>() else {
        return false;
    };
    let before = start.len().checked_sub(1);
    let before = before.and_then(|at| name.get(at..)?.first_chunk());
    before.is_some_and(|before| {
        has_prefix(well_formed, start) && has_plain_ends(name) && !has_refused(before, last)
    })
}

/// Returns whether a look at each byte from `seen` on and the one before it tells that `name` is
/// well-formed, whose bytes before that are those of a name of which it told so; `false` tells nothing.
#[inline]
pub fn goes_on_well(name: &[u8], seen: usize) -> bool {
    // The bytes are looked at many at a time: some that were seen before make no difference.
    let from = seen.min(name.len().saturating_sub(LANES)).saturating_sub(1);
    has_plain_ends(name) && has_plain_pairs(name.get(from..).unwrap_or_default())
}

/// Returns whether no byte makes a name ill-formed, alone or with the one before it. With plain ends,
/// that is enough.
fn has_plain_pairs(text: &[u8]) -> bool {
    // All pairs of neighbours, at full width. The last few are looked at twice.
    let before_last = text.len().checked_sub(LANES + 1);
    let before_last = before_last.and_then(|at| text.get(at..)?.first_chunk());
    let (Some(before), Some(last)) = (before_last, text.last_chunk()) else {
        let (mut befores, mut bytes) = ([b'r'; LANES], [b'r'; LANES]);
        let pairs = text.iter().zip(text.iter().skip(1));
        let places = befores.iter_mut().zip(&mut bytes);
        for ((to_before, to_byte), (before, byte)) in places.zip(pairs) {
            (*to_before, *to_byte) = (*before, *byte);
        }
        return !has_refused(&befores, &bytes);
    };
    let mut refused = has_refused(before, last);
    if text.len() == LANES + 1 {
        return !refused;
    }
    let (befores, _) = text.as_chunks();
    let (bytes, _) = text.get(1..).unwrap_or_default().as_chunks();
    for (before, bytes) in befores.iter().zip(bytes) {
        refused |= has_refused(before, bytes);
    }
    !refused
}

/// Returns whether one of the bytes makes a name ill-formed, or may do so, with the one before it.
/// Written without branches, so that all are looked at in a few steps.
#[inline]
fn has_refused(before: &[u8; LANES], bytes: &[u8; LANES]) -> bool {
    let mut refused = 0;
    for (&before, &byte) in before.iter().zip(bytes) {
        let after_slash = before == b'/';
        let dot = (byte == b'.') & (after_slash | (before == b'.'));
        // It may be the end of `.lock`.
        let slash = (byte == b'/') & (after_slash | (before == b'k'));
        let brace = (byte == b'{') & (before == b'@');
        refused |= u8::from(is_refused(byte) | dot | slash | brace);
    }
    refused != 0
}

/// Returns whether a byte is in no name, or in none without another look.
#[inline]
const fn is_refused(byte: u8) -> bool {
    (byte <= 0x20)
        | (byte == 0x7f)
        | (byte == b':')
        | (byte == b'?')
        | (byte == b'*')
        | (byte == b'[')
        | (byte == b'\\')
        | (byte == b'^')
        | (byte == b'~')
}

/// Returns whether `name` is a well-formed ref name.
pub fn is_well_formed(name: &[u8], options: FormatOptions) -> bool {
    is_plainly_well_formed(name) || is_well_formed_by_components(name, options)
}

fn is_well_formed_by_components(name: &[u8], options: FormatOptions) -> bool {
    if name == b"@" || name.ends_with(b".") {
        return false;
    }
    let (mut stars, mut components) = (0, 1);
    // Where a component begins, and what is still to be looked at.
    let (mut start, mut at) = (0, 0);
    let is_special = |&byte: &u8| CLASS[usize::from(byte)] != PLAIN;
    while let Some(plain) = name
        .get(at..)
        .and_then(|rest| rest.iter().position(is_special))
    {
        at += plain;
        let previous = at.checked_sub(1).and_then(|before| name.get(before));
        match name
            .get(at)
            .map_or(REFUSED, |&byte| CLASS[usize::from(byte)])
        {
            SLASH => {
                if !ends_well(name.get(start..at).unwrap_or_default()) {
                    return false;
                }
                start = at + 1;
                components += 1;
            }
            DOT if matches!(previous, None | Some(b'.' | b'/')) => return false,
            BRACE if previous == Some(&b'@') => return false,
            STAR => stars += 1,
            REFUSED => return false,
            _ => {}
        }
        at += 1;
    }
    ends_well(name.get(start..).unwrap_or_default())
        && (stars == 0 || (options.refspec_pattern && stars == 1))
        && (components > 1 || options.allow_onelevel)
}

fn ends_well(component: &[u8]) -> bool {
    !component.is_empty() && !component.ends_with(b".lock")
}

/// Returns whether `name` cannot lead out of the repository: below `refs/` a normal path, elsewhere
/// only capitals and underscores. Deletes, verifies and symref writes ask for no more than this.
pub fn is_safe(name: &[u8]) -> bool {
    is_plainly_well_formed(name) || is_safe_by_components(name)
}

fn is_safe_by_components(name: &[u8]) -> bool {
    match name.strip_prefix(b"refs/") {
        Some(rest) => {
            !rest.contains(&0)
                && rest
                    .split(|&byte| byte == b'/')
                    .all(|part| !part.is_empty() && part != b"." && part != b"..")
        }
        None => {
            !name.is_empty()
                && name
                    .iter()
                    .all(|byte| byte.is_ascii_uppercase() || *byte == b'_')
        }
    }
}

/// Returns whether `name` can be made a path below a directory without leading out of it, or to what
/// another name leads to: no component is empty, `.` or `..`, and no byte ends it early. A well-formed
/// name can, and a safe one.
///
/// ```
/// use refdb_names::name::is_path;
///
/// assert!(is_path(b"refs/heads/two..dots"));
/// assert!(!is_path(b"refs/heads/../../config"));
/// assert!(!is_path(b"/etc/passwd"));
/// ```
pub fn is_path(name: &[u8]) -> bool {
    is_plainly_well_formed(name)
        || !name.contains(&0)
            && name
                .split(|&byte| byte == b'/')
                .all(|part| !matches!(part, b"" | b"." | b".."))
}

/// Returns `name` without leading and repeated slashes, as `check-ref-format --normalize` prints.
pub fn normalize(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    let mut previous = b'/';
    for &byte in name {
        if byte != b'/' || previous != b'/' {
            out.push(byte);
        }
        previous = byte;
    }
    out
}

#[cfg(test)]
mod tests {
    use reftable::short::common_prefix;

    use super::*;

    #[test]
    fn well_formed_names() {
        for name in [
            &b"refs/heads/main"[..],
            b"refs/heads/a./b",
            b"refs/heads/-x",
            b"refs/heads/\xff\xfe",
            b"refs/heads/a@b{c}",
            b"refs/heads/x.LOCK",
            b"refs/heads/]\"'&",
        ] {
            assert!(is_well_formed(name, FormatOptions::FULL), "{name:?}");
        }
    }

    #[test]
    fn ill_formed_names() {
        for name in [
            &b""[..],
            b"@",
            b"/",
            b"a//b",
            b"/a/b",
            b"a/b/",
            b"a/.b",
            b"a/b.lock",
            b"a.lock/b",
            b"a/b..c",
            b"a/b@{c",
            b"a/b c",
            b"a/b\x7f",
            b"a/b\n",
            b"a/b:c",
            b"a/b?c",
            b"a/b[c",
            b"a/b\\c",
            b"a/b^c",
            b"a/b~c",
            b"a/b*c",
            b"a/b.",
            b"a/.",
        ] {
            assert!(!is_well_formed(name, FormatOptions::ONE_LEVEL), "{name:?}");
        }
    }

    #[test]
    fn the_short_way_takes_no_other_names() {
        let parts: [&[u8]; 14] = [
            b"/", b".", b"..", b".lock", b"lock", b"@", b"@{", b"{", b"*", b" ", b"k", b"x", b"~",
            b"\xff",
        ];
        let mut taken = 0;
        for number in 0..parts.len().pow(4) {
            let digits = (0..4).map(|place| number / parts.len().pow(place) % parts.len());
            let tail: Vec<u8> = digits.flat_map(|digit| parts[digit]).copied().collect();
            for (start, end) in [
                ("", ""),
                ("refs/", ""),
                ("refs/01234567", "0123456789abcdef"),
            ] {
                let name = [start.as_bytes(), &tail, end.as_bytes()].concat();
                if is_plainly_well_formed(&name) {
                    assert!(
                        is_well_formed_by_components(&name, FormatOptions::FULL),
                        "{name:?}"
                    );
                    taken += 1;
                }
            }
        }
        assert!(taken > 1000);
    }

    #[test]
    fn a_name_like_a_well_formed_one_is_well_formed() {
        let parts: [&[u8]; 10] = [
            b"/", b".", b".lock", b"k", b"@", b"{", b"*", b"0123456", b"x", b"\0",
        ];
        let (mut last, mut taken) = (b"refs/".to_vec(), 0);
        let mut seen = Vec::new();
        for number in 0..parts.len().pow(5) {
            let digits = (0..5).map(|place| number / parts.len().pow(place) % parts.len());
            let tail: Vec<u8> = digits.flat_map(|digit| parts[digit]).copied().collect();
            let name = [b"refs/0123456789abcdef.lock", tail.as_slice()].concat();
            let is_fine = is_well_formed_by_components(&name, FormatOptions::FULL);
            if goes_on_plainly(&last, &name) {
                assert!(is_fine, "{name:?} behind {last:?}");
                taken += 1;
            }
            let shared = common_prefix(&seen, &name);
            for shared in [shared, shared / 2] {
                let goes_on = goes_on_well(&name, shared);
                assert_eq!(
                    goes_on,
                    is_plainly_well_formed(&name),
                    "{name:?} behind {seen:?}"
                );
            }
            if is_plainly_well_formed(&name) {
                seen.clone_from(&name);
            }
            if is_fine {
                last = name;
            }
        }
        assert!(taken > 1000);
    }

    #[test]
    fn levels_and_patterns() {
        let pattern = FormatOptions {
            refspec_pattern: true,
            ..FormatOptions::FULL
        };
        assert!(!is_well_formed(b"HEAD", FormatOptions::FULL));
        assert!(is_well_formed(b"HEAD", FormatOptions::ONE_LEVEL));
        assert!(is_well_formed(b"refs/heads/*", pattern));
        assert!(!is_well_formed(b"refs/*/*", pattern));
    }

    #[test]
    fn safe_names() {
        assert!(is_safe(b"FOO_BAR"));
        assert!(is_safe(b"refs/heads/two..dots"));
        assert!(!is_safe(b"foo"));
        assert!(!is_safe(b"FOO-BAR"));
        assert!(!is_safe(b"refs/../config"));
        assert!(!is_safe(b"refs/heads//x"));
        assert!(!is_safe(b"refs/"));
    }

    #[test]
    fn names_that_lead_out_are_no_paths() {
        for name in [
            &b""[..],
            b"/",
            b"/a",
            b"a/",
            b"a//b",
            b".",
            b"..",
            b"refs/heads/../../x",
            b"refs/./x",
            b"refs/heads/x/..",
            b"refs/heads/a\0b",
        ] {
            assert!(!is_path(name), "{name:?}");
        }
        for name in [
            &b"HEAD"[..],
            b"foo",
            b"refs/heads/a b",
            b"refs/heads/...",
            b"refs/heads/.x.lock",
            b"refs/heads/a..b/c",
        ] {
            assert!(is_path(name), "{name:?}");
        }
    }

    #[test]
    fn normalizing_keeps_a_trailing_slash() {
        assert_eq!(normalize(b"//refs///heads/x/"), b"refs/heads/x/");
    }
}
