//! Atoms of formats and sort keys, right and wrong.

use bstr::{BString, ByteVec};

use crate::rng::Rng;

/// Atoms, some with arguments.
const ATOMS: [&str; 121] = [
    "deltabase",
    "raw:size",
    "raw",
    "trailers",
    "trailers:only,unfold",
    "trailers:key=x,separator=%x2C",
    "trailers:foo",
    "contents:trailers",
    "authorname:mailmap",
    "committeremail:mailmap,trim",
    "authoremail:foo",
    "authordate:human-local",
    "creatordate:format-local:%c %z",
    "taggerdate:iso-strict-local",
    "upstream",
    "upstream:short",
    "upstream:track",
    "upstream:trackshort",
    "upstream:track,nobracket",
    "upstream:remoteref",
    "upstream:foo",
    "push",
    "push:lstrip=2",
    "push:track",
    "push:remotename",
    "push:remoteref",
    "color:red",
    "color:bold blue reset",
    "color:foo",
    "align:3",
    "align",
    "if",
    "ahead-behind:main",
    "ahead-behind:{c1}",
    "*ahead-behind:topic",
    "ahead-behind:none",
    "ahead-behind",
    "is-base:topic",
    "is-base:{c4}",
    "is-base:none",
    "describe",
    "describe:tags",
    "describe:abbrev=0,tags",
    "describe:match=l*,tags",
    "describe:foo",
    "refname",
    "refname:short",
    "refname:lstrip=1",
    "refname:lstrip=-1",
    "refname:rstrip=2",
    "refname:rstrip=-1",
    "refname:strip=2",
    "refname:lstrip=x",
    "refname:foo",
    "refname:",
    "objectname",
    "objectname:short",
    "objectname:short=5",
    "objectname:short=0",
    "objecttype",
    "objectsize",
    "objectsize:disk",
    "tree",
    "tree:short",
    "parent",
    "parent:short=9",
    "numparent",
    "object",
    "type",
    "tag",
    "author",
    "authorname",
    "authoremail",
    "authoremail:trim",
    "authoremail:localpart",
    "authoremail:trim,localpart",
    "authordate",
    "authordate:short",
    "authordate:iso",
    "authordate:raw",
    "authordate:unix",
    "authordate:relative",
    "authordate:format:%Y",
    "authordate:foo",
    "committer",
    "committername",
    "committerdate",
    "committerdate:rfc",
    "committerdate:iso-strict",
    "committerdate:local",
    "committerdate:short-local",
    "tagger",
    "taggername",
    "taggeremail",
    "taggerdate",
    "taggerdate:default",
    "creator",
    "creatordate",
    "creatordate:unix",
    "subject",
    "subject:sanitize",
    "body",
    "contents",
    "contents:subject",
    "contents:body",
    "contents:signature",
    "contents:size",
    "contents:lines=1",
    "contents:lines=x",
    "symref",
    "symref:short",
    "symref:lstrip=2",
    "symref:rstrip=1",
    "flag",
    "HEAD",
    "worktreepath",
    "foo",
    "",
    "*",
    "rest",
    "Refname",
];

/// A format or a part of one.
pub(super) fn format(rng: &mut Rng, depth: usize) -> BString {
    let mut text = BString::default();
    for _ in 0..1 + rng.below(4) {
        match rng.below(20) {
            0 => text.push_str(*rng.pick(&["%", "%%", "%41", "%zz", "%(", ")", "%00", "%0a", " "])),
            1 | 2 if depth < 3 => {
                text.push_str(*rng.pick(&[
                    "%(if)",
                    "%(if)",
                    "%(if:equals=commit)",
                    "%(if:notequals=refs/heads/main)",
                ]));
                text.push_str(format(rng, depth + 1));
                text.push_str("%(then)");
                text.push_str(format(rng, depth + 1));
                if rng.percent(50) {
                    text.push_str("%(else)");
                    text.push_str(format(rng, depth + 1));
                }
                text.push_str("%(end)");
            }
            3 if depth < 3 => {
                text.push_str(*rng.pick(&[
                    "%(align:20)",
                    "%(align:20,right)",
                    "%(align:9,middle)",
                    "%(align:width=4)",
                ]));
                text.push_str(format(rng, depth + 1));
                text.push_str("%(end)");
            }
            4 if rng.percent(20) => text.push_str(*rng.pick(&["%(if)", "%(then)", "%(end)"])),
            _ => {
                let star = if rng.percent(20) { "*" } else { "" };
                text.push_str(format!("%({star}{})", atom(rng)));
            }
        }
        text.push(b'|');
    }
    text
}

/// What atoms are called, and what is not.
const NAMES: [&str; 44] = [
    "refname",
    "objecttype",
    "objectsize",
    "objectname",
    "deltabase",
    "tree",
    "parent",
    "numparent",
    "object",
    "type",
    "tag",
    "author",
    "authorname",
    "authoremail",
    "authordate",
    "committer",
    "committername",
    "committeremail",
    "committerdate",
    "tagger",
    "taggername",
    "taggeremail",
    "taggerdate",
    "creator",
    "creatordate",
    "describe",
    "subject",
    "body",
    "trailers",
    "contents",
    "signature",
    "raw",
    "upstream",
    "push",
    "symref",
    "flag",
    "HEAD",
    "color",
    "worktreepath",
    "align",
    "if",
    "ahead-behind",
    "is-base",
    "head",
];

/// What may stand behind the colon of one atom or another.
const MODIFIERS: [&str; 84] = [
    "short",
    "short=4",
    "short=-1",
    "short=x",
    "short=",
    "strip=1",
    "lstrip=0",
    "lstrip=-2",
    "lstrip=9",
    "lstrip=",
    "rstrip=1",
    "rstrip=-9",
    "rstrip=x",
    "size",
    "disk",
    "sanitize",
    "subject",
    "body",
    "lines=0",
    "lines=2",
    "lines=-1",
    "lines=",
    "signature",
    "trailers:only",
    "only",
    "only=no",
    "only=x",
    "unfold",
    "unfold=true",
    "keyonly",
    "valueonly",
    "valueonly=1",
    "key=Signed-off-by",
    "key",
    "key=",
    "separator=%x00",
    "separator=",
    "key_value_separator=: ",
    "trim",
    "localpart",
    "mailmap",
    "track",
    "trackshort",
    "nobracket",
    "remotename",
    "remoteref",
    "remoteref=x",
    "default",
    "relative",
    "human",
    "human-local",
    "local",
    "default-local",
    "short-local",
    "iso",
    "iso8601",
    "iso-local",
    "iso-strict",
    "iso8601-strict",
    "rfc",
    "rfc2822",
    "raw",
    "raw-local",
    "unix",
    "unix-local",
    "format:%a %b %e %H:%M:%S %Y",
    "format:",
    "format",
    "format-local:%z %Z %s %j %%",
    "format:%",
    "auto:x",
    "equals=tag",
    "notequals=",
    "equals",
    "left",
    "width=9,position=right",
    "0",
    "-1",
    "5,foo",
    "red",
    "grade",
    "key",
    "tags=no",
    "exclude=v*",
];

/// An atom, without the parentheses: one that is known, or one that is put together.
pub(super) fn atom(rng: &mut Rng) -> BString {
    if rng.percent(70) {
        return (*rng.pick(&ATOMS)).into();
    }
    let mut atom = BString::from(*rng.pick(&NAMES));
    let mut mark = ":";
    while rng.percent(if mark == ":" { 75 } else { 25 }) {
        atom.push_str(mark);
        atom.push_str(*rng.pick(&MODIFIERS));
        mark = ",";
    }
    if rng.percent(4) {
        atom.push_str(*rng.pick(&[":", ",", " ", "=", ":x=y"]));
    }
    if rng.percent(3) {
        atom.insert_str(0, *rng.pick(&[" ", "*", "-", ":"]));
    }
    atom
}
