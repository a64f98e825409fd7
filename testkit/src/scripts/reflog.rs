//! The command `reflog`.

use bstr::{BString, ByteVec};

use super::updates::Parts;
use super::words::{any, message, name, value};
use crate::rng::Rng;

/// Options of `reflog show`.
const SHOW: [&str; 84] = [
    "--oneline",
    "-1",
    "-n2",
    "-n 1",
    "--max-count=1",
    "--skip=1",
    "--since=2001-01-01",
    "--until=2001-01-01",
    "--before=now",
    "--all",
    "--branches",
    "--tags=light",
    "--remotes",
    "--glob=heads/t*",
    "--date=iso",
    "--date=raw",
    "--date=unix",
    "--abbrev=9",
    "--no-abbrev",
    "--abbrev-commit",
    "--no-abbrev-commit",
    "--format=%gD|%gd|%gs|%H",
    "--format=%gn <%ge>%n%s",
    "--pretty=short",
    "--decorate",
    "--no-decorate",
    "--not",
    "--end-of-options",
    "--branches=t*",
    "--remotes=o*",
    "--tags",
    "--glob=refs/heads",
    "--glob=x",
    "--author=A",
    "--committer=nobody",
    "--grep=commit",
    "--grep-reflog=move",
    "-i",
    "--invert-grep",
    "--all-match",
    "-F",
    "-E",
    "--merges",
    "--no-merges",
    "--min-parents=1",
    "--max-parents=0",
    "-z",
    "-g",
    "-q",
    "-2",
    "-n",
    "--skip=x",
    "--max-count",
    "-n-1",
    "--date=relative",
    "--date=human",
    "--date=x",
    "--date",
    "--date=iso-strict-local",
    "--date=format:%Y",
    "--pretty=oneline",
    "--pretty=full",
    "--pretty=fuller",
    "--pretty=raw",
    "--pretty=medium",
    "--pretty=email",
    "--pretty=reference",
    "--pretty=x",
    "--pretty",
    "--format=",
    "--format=tformat:%h %p",
    "--pretty=format:%gd%x00%an",
    "--format=%ad|%ar|%cd|%ct",
    "--format=%d|%D",
    "--format=%b|%B|%s|%f",
    "--abbrev",
    "--abbrev=0",
    "--abbrev=x",
    "--decorate=full",
    "--decorate=x",
    "--relative-date",
    "--reverse",
    "--graph",
    "--bogus",
];

/// Moments, some of which are none.
const MOMENTS: [&str; 8] = [
    "now",
    "all",
    "never",
    "2001-01-01",
    "1700000000",
    "1.day.ago",
    "bogus",
    "",
];

/// A subcommand, or none.
pub(super) fn reflog(rng: &mut Rng) -> Parts {
    let mut args: Vec<BString> = Vec::new();
    match rng.below(16) {
        0..4 => {
            if rng.percent(60) {
                args.push("show".into());
            }
            while rng.percent(45) {
                args.push((*rng.pick(&SHOW)).into());
            }
            if rng.percent(70) {
                args.push(any(rng));
            }
        }
        4 => args.push("list".into()),
        5 => args.extend(["exists".into(), name(rng)]),
        6 => {
            // Of another worktree; it may not be there.
            let names = [
                "worktrees/w/HEAD",
                "worktrees/w/refs/bisect/bad",
                "main-worktree/HEAD",
                "main-worktree/refs/heads/topic",
                "worktrees/none/HEAD",
                "worktrees/w",
            ];
            let verb = *rng.pick(&["exists", "show", "show", "expire", "delete", "drop"]);
            args.push(verb.into());
            let mut name = BString::from(*rng.pick(&names));
            if verb == "delete" {
                name.push_str("@{0}");
            }
            args.push(name);
        }
        7..10 => {
            args.extend(["write".into(), name(rng), value(rng), value(rng)]);
            args.push(message(rng));
        }
        10..12 => {
            args.push("delete".into());
            flags(rng, &mut args);
            for _ in 0..1 + rng.below(2) {
                args.push(entry(rng));
            }
        }
        12..14 => {
            args.push("drop".into());
            names(rng, &mut args);
        }
        _ => {
            args.push("expire".into());
            flags(rng, &mut args);
            for option in ["--expire=", "--expire-unreachable="] {
                if rng.percent(50) {
                    args.push(format!("{option}{}", rng.pick(&MOMENTS)).into());
                }
            }
            if rng.percent(15) {
                args.push("--stale-fix".into());
            }
            names(rng, &mut args);
        }
    }
    if rng.percent(3) {
        args.push(name(rng));
    }
    ("reflog", args, Vec::new())
}

/// What `delete` and `expire` have in common.
fn flags(rng: &mut Rng, args: &mut Vec<BString>) {
    for option in ["--rewrite", "--updateref", "--dry-run", "-n", "--verbose"] {
        if rng.percent(20) {
            args.push(option.into());
        }
    }
}

/// All reflogs or some.
fn names(rng: &mut Rng, args: &mut Vec<BString>) {
    if rng.percent(35) {
        args.push("--all".into());
        if rng.percent(30) {
            args.push("--single-worktree".into());
        }
        return;
    }
    for _ in 0..1 + rng.below(2) {
        args.push(if rng.percent(20) { any(rng) } else { name(rng) });
    }
}

/// An entry of a reflog.
fn entry(rng: &mut Rng) -> BString {
    let mut entry = match rng.percent(40) {
        true => "refs/heads/topic".into(),
        false => name(rng),
    };
    entry.push_str(*rng.pick(&["@{0}", "@{0}", "@{1}", "@{2}", "@{now}", "@{", "", "@{x}"]));
    entry
}
