//! What is run on each hostile repository: every command, in the ways that it can be called.

use refdb_testkit::RefFormat;
use refdb_testkit::hostile::Scene;

/// What a command may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Does {
    /// Nothing but to answer.
    Reads,
    /// It makes a copy for the user, and leaves all else as it is.
    Copies,
    /// It changes refs, reflogs, or how they are stored.
    Writes,
}

/// Calls of the command that belong together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    /// Each line is one call, with its standard input behind `<`, where `;` ends a line.
    pub(crate) lines: &'static [&'static str],
    pub(crate) does: Does,
    /// What Git does in its place, as the measure of what may be changed outside.
    pub(crate) git: &'static [&'static str],
}

const fn reads(lines: &'static [&'static str]) -> Call {
    Call {
        lines,
        does: Does::Reads,
        git: lines,
    }
}

const fn writes(lines: &'static [&'static str]) -> Call {
    Call {
        lines,
        does: Does::Writes,
        git: lines,
    }
}

/// A call of what Git does in another way, or does not have.
const fn ours(call: Call, git: &'static [&'static str]) -> Call {
    Call { git, ..call }
}

/// `{one}` and `{two}` are commits, `{other}` is the other format, `{format}` this one, `{temporary}` a
/// folder that is not looked at.
pub(crate) const CALLS: &[Call] = &[
    reads(&[
        "for-each-ref",
        "for-each-ref --include-root-refs --sort=-committerdate",
    ]),
    reads(&[
        "for-each-ref --format=%(refname)%(upstream)%(push)%(symref)%(worktreepath)%(HEAD)",
        "for-each-ref --format=%(authorname:mailmap)%(contents)%(describe)",
    ]),
    reads(&[
        "for-each-ref --contains={one} --no-merged={two}",
        "for-each-ref --points-at=refs/tags/v1 --format=%(ahead-behind:refs/heads/topic)",
    ]),
    reads(&["show-ref --head -d", "show-ref --verify refs/heads/main"]),
    reads(&[
        "show-ref --exists refs/heads/sym",
        "refs exists refs/heads/../../HEAD",
    ]),
    reads(&["refs list refs/heads", "refs exists refs/heads/main"]),
    reads(&["refs verify", "refs verify --strict --verbose"]),
    ours(reads(&["refs verify --deep"]), &[]),
    ours(
        reads(&[
            "refs repair --dry-run",
            "refs repair --dry-run --remove-locks",
        ]),
        &[],
    ),
    ours(reads(&["inspect", "inspect --json"]), &[]),
    reads(&[
        "symbolic-ref HEAD",
        "symbolic-ref --no-recurse refs/heads/sym",
    ]),
    reads(&["reflog show", "reflog show refs/heads/main"]),
    reads(&["reflog list", "reflog exists refs/heads/main"]),
    reads(&[
        "reflog expire --dry-run --expire=now --all",
        "reflog delete -n HEAD@{0}",
    ]),
    reads(&[
        "check-ref-format refs/heads/../x",
        "check-ref-format --branch @{-1}",
    ]),
    Call {
        lines: &["refs migrate --dry-run --ref-format={other}"],
        does: Does::Copies,
        git: &["refs migrate --dry-run --ref-format={other}"],
    },
    writes(&["update-ref refs/heads/new {one}"]),
    writes(&["update-ref refs/heads/main {one}"]),
    writes(&["update-ref refs/heads/sym {one}", "update-ref HEAD {two}"]),
    writes(&[
        "update-ref --no-deref refs/heads/sym {one}",
        "update-ref --no-deref HEAD {two}",
    ]),
    writes(&[
        "update-ref -d refs/heads/main",
        "update-ref -d refs/heads/sym",
    ]),
    writes(&[
        "update-ref --stdin<create refs/heads/new/a {one};create refs/heads/new/b {two};\
         update refs/heads/topic {one};delete refs/heads/dir/deep;",
    ]),
    writes(&[
        "update-ref --stdin<start;update refs/heads/main {one};prepare;abort;",
        "update-ref --stdin<start;update refs/heads/main {one};update refs/tags/v1 {one};prepare;\
         commit;",
    ]),
    writes(&["update-ref --stdin<symref-create refs/heads/s refs/heads/main;symref-delete HEAD;"]),
    writes(&[
        "symbolic-ref refs/heads/sym refs/heads/topic",
        "symbolic-ref -d refs/heads/sym",
    ]),
    writes(&["symbolic-ref HEAD refs/heads/topic"]),
    writes(&["pack-refs --all"]),
    writes(&["refs optimize --all --no-prune", "refs optimize --auto"]),
    writes(&["reflog expire --expire=now --all"]),
    writes(&[
        "reflog delete --rewrite --updateref HEAD@{0}",
        "reflog drop refs/heads/main",
    ]),
    writes(&["reflog drop --all"]),
    writes(&["reflog write refs/heads/main {one} {two} message"]),
    ours(
        writes(&[
            "refs create refs/heads/new {one}",
            "refs delete refs/heads/topic",
        ]),
        &[
            "update-ref refs/heads/new {one}",
            "update-ref -d refs/heads/topic",
        ],
    ),
    ours(
        writes(&["refs rename refs/heads/main refs/heads/other/main"]),
        &["branch -m main other/main"],
    ),
    ours(
        writes(&["refs rename refs/heads/dir/deep refs/heads/dir"]),
        &["branch -m dir/deep dir"],
    ),
    ours(
        writes(&["refs repair", "refs repair --remove-locks", "for-each-ref"]),
        &[],
    ),
    writes(&["refs migrate --ref-format={other}", "for-each-ref"]),
    ours(
        writes(&[
            "refs migrate --keep --ref-format={other}",
            "update-ref refs/heads/main {one}",
            "refs migrate --undo",
        ]),
        &[
            "refs migrate --ref-format={other}",
            "update-ref refs/heads/main {one}",
        ],
    ),
    ours(
        writes(&[
            "refs migrate --undo",
            "refs migrate --undo --keep --skip-broken",
        ]),
        &[],
    ),
    ours(
        writes(&["refs migrate --skip-broken --no-reflog --ref-format={other}"]),
        &["refs migrate --no-reflog --ref-format={other}"],
    ),
];

/// Taken alone since it takes long.
pub(crate) const BENCH: Call = Call {
    lines: &["bench --repo=. --no-git --runs=1 --only=list --formats={format} --dir={temporary}"],
    does: Does::Reads,
    git: &[],
};

/// Puts the commits and names of a scene into a line; returns arguments and standard input.
pub(crate) fn filled(line: &str, scene: &Scene, temporary: &str) -> (Vec<String>, String) {
    let commits = &scene.objects().commits;
    let format = scene.format().refs;
    let other = match format {
        RefFormat::Files => RefFormat::Reftable,
        RefFormat::Reftable => RefFormat::Files,
    };
    let line = line
        .replace("{one}", &commits[20])
        .replace("{two}", &commits[21])
        .replace("{other}", other.name())
        .replace("{format}", format.name())
        .replace("{temporary}", temporary);
    let (args, input) = line.split_once('<').unwrap_or((&line, ""));
    let args = args.split(' ').map(str::to_owned).collect();
    (args, input.replace(';', "\n"))
}
