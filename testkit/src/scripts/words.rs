//! The words that scripts are made of: names and values, right, borderline and wrong.

use bstr::BString;

use crate::rng::Rng;

/// Refs that the fixture has, and the folders they lie in.
const KNOWN: [&str; 12] = [
    "HEAD",
    "refs/heads/main",
    "refs/heads/topic",
    "refs/heads/dir/leaf",
    "refs/heads/sym",
    "refs/heads/dangling",
    "refs/tags/annotated",
    "refs/tags/light",
    "refs/tags/nested",
    "refs/remotes/origin/main",
    "refs/remotes/origin/HEAD",
    "refs/notes/blob",
];

/// Names without fault that the fixture does not have, some in the way of each other.
const NEW: [&str; 34] = [
    "refs/heads/a",
    "refs/heads/b",
    "refs/heads/a/b",
    "refs/heads/a/b/c",
    "refs/heads/dir",
    "refs/heads/dir/other",
    "refs/heads/topic/x",
    "refs/heads/none",
    "refs/heads/none/x",
    "refs/heads/sym/x",
    "refs/tags/v1.9",
    "refs/tags/v1.10",
    "refs/tags/topic",
    "refs/tags",
    "refs/heads",
    "refs/x",
    "refs/topic",
    "refs/stash",
    "refs/heads/HEAD",
    "refs/heads/A",
    "refs/remotes/origin",
    "refs/worktree/own",
    "refs/bisect/bad",
    "refs/rewritten/x",
    "main-worktree/HEAD",
    "main-worktree/refs/heads/topic",
    "main-worktree/refs/bisect/bad",
    "worktrees/w/HEAD",
    "worktrees/w/refs/bisect/bad",
    "worktrees/none/HEAD",
    "ORIG_HEAD",
    "FETCH_HEAD",
    "MERGE_HEAD",
    "FOO",
];

/// Names that are odd or wrong.
const ODD: [&[u8]; 48] = [
    b"refs/heads/a b",
    b"refs/heads/\x80\xff",
    b"refs/heads/\xc3\xbc",
    b"refs/heads/\xe6\xbc\xa2\xc3\xbc",
    b"refs/heads/q\"x",
    b"\"refs/heads/q",
    b"refs/heads/it's",
    b"refs/heads/$x!{y}",
    b"refs/heads/a..b",
    b"refs/heads/a@{b",
    b"refs/heads/@",
    b"@",
    b"@{0}",
    b"refs/heads/x.lock",
    b"refs/heads/x.lock/y",
    b"refs/heads/.x",
    b"refs/heads/x.",
    b"refs/heads/x./y",
    b"refs//heads/a",
    b"/refs/heads/a",
    b"refs/heads/a/",
    b"refs/heads/",
    b"refs/",
    b"refs",
    b"refs/heads/a\x01",
    b"refs/heads/a\x7f",
    b"refs/heads/a\tb",
    b"refs/heads/a*",
    b"refs/heads/[a",
    b"refs/heads/a?",
    b"refs/heads/a~1",
    b"refs/heads/a^",
    b"refs/heads/a:b",
    b"refs/heads/a\\b",
    b"refs/heads/-x",
    b"-x",
    b"",
    b".",
    b"..",
    b"../x",
    b"refs/../x",
    b"refs/heads/../x",
    b"main",
    b"heads/topic",
    b"lower",
    b"foo/bar",
    b"FOO-BAR",
    b"foo_HEAD",
];

/// Values that name an object or do not.
const VALUES: [&str; 26] = [
    "{c0}",
    "{c1}",
    "{c2}",
    "{c3}",
    "{c4}",
    "{c5}",
    "{c1}",
    "{c2}",
    "{zero}",
    "{t0}",
    "{nested}",
    "{treetag}",
    "{blobtag}",
    "{tree}",
    "{blob}",
    "{missing}",
    "{short}",
    "HEAD",
    "main",
    "topic",
    "sym",
    "annotated",
    "light",
    "refs/heads/dir/leaf",
    "origin",
    "",
];

/// Values that say more, or nothing.
const EXPRESSIONS: [&str; 64] = [
    "HEAD~1",
    "main^",
    "main^0",
    "main^2",
    "main~3",
    "main~4",
    "main~99999999999",
    "annotated^{}",
    "annotated^{commit}",
    "annotated^{tree}",
    "annotated^{blob}",
    "annotated^{tag}",
    "nested^{tag}",
    "nested^{object}",
    "nested^0",
    "annotated~1",
    "main^{/commit 1}",
    "main^{/nothing}",
    "main^{}",
    "main^{foo}",
    "main^{",
    "topic@{0}",
    "topic@{1}",
    "topic@{2}",
    "topic@{9}",
    "topic@{-1}",
    "topic@{now}",
    "topic@{yesterday}",
    "topic@{2001-01-01}",
    "HEAD@{0}",
    "HEAD@{1}",
    "@",
    "@~1",
    "@{0}",
    "@{-1}",
    "@{u}",
    "main@{u}",
    "main@{push}",
    "main@{upstream",
    "main:file",
    "main:none",
    "main:",
    ":file",
    ":/commit 2",
    ":/nothing",
    "{c1}x",
    "{c1}^",
    "{zero}^",
    "{c1}~1^{tree}",
    "{blob}^{tree}",
    "{missing}^{}",
    "0",
    "00000000",
    "^main",
    "main..topic",
    "main...topic",
    "-1",
    "--",
    "nonsense",
    "heads/main",
    "tags/annotated",
    "dangling",
    "annotated-0-g{short}",
    "MAIN",
];

/// Picks a name.
pub(super) fn name(rng: &mut Rng) -> BString {
    match rng.below(100) {
        0..45 => (*rng.pick(&KNOWN)).into(),
        45..85 => (*rng.pick(&NEW)).into(),
        85..99 => (*rng.pick(&ODD)).into(),
        // Long, and with `.lock` just short enough for a file system.
        _ => format!("refs/heads/{}", "n".repeat(200 + rng.below(50))).into(),
    }
}

/// Picks a value.
pub(super) fn value(rng: &mut Rng) -> BString {
    match rng.below(100) {
        0..55 => (*rng.pick(&VALUES[..8])).into(),
        55..80 => (*rng.pick(&VALUES)).into(),
        80..95 => (*rng.pick(&EXPRESSIONS)).into(),
        _ => name(rng),
    }
}

/// Picks an expression, a value or a name.
pub(super) fn any(rng: &mut Rng) -> BString {
    match rng.below(3) {
        0 => (*rng.pick(&EXPRESSIONS)).into(),
        1 => value(rng),
        _ => name(rng),
    }
}

/// Picks the message of a reflog entry.
pub(super) fn message(rng: &mut Rng) -> BString {
    let messages: [&[u8]; 8] = [
        b"why",
        b"",
        b" ",
        b"  two   words ",
        b"a\nb\n",
        b"a\tb\r",
        b"\xff \xc3\xbc",
        b"x > y <z> 1 +0000",
    ];
    (*rng.pick(&messages)).into()
}

/// Picks a pattern of names.
pub(super) fn pattern(rng: &mut Rng) -> BString {
    const PATTERNS: [&str; 30] = [
        "refs/heads",
        "refs/heads/",
        "refs/tags",
        "refs/heads/*",
        "refs/heads/**",
        "refs/*/main",
        "refs/**/main",
        "**/main",
        "*",
        "**",
        "refs/heads/[mt]*",
        "refs/heads/[!m]*",
        "refs/heads/[a-",
        "refs/heads/\\main",
        "refs/heads/?opic",
        "refs/heads/d",
        "refs/heads/di*",
        "refs/heads/dir/*",
        "refs/[[:alpha:]]*/*",
        "REFS/HEADS",
        "refs",
        "refs/",
        "main",
        "topic",
        "heads/main",
        "/main",
        "leaf",
        "dir/leaf",
        "HEAD",
        "",
    ];
    match rng.below(4) {
        0 => name(rng),
        _ => (*rng.pick(&PATTERNS)).into(),
    }
}
