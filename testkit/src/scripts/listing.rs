//! Commands that list and pack.

use bstr::{BString, ByteVec};

use super::atoms::{atom, format};
use super::updates::Parts;
use super::words::{any, name, pattern, value};
use crate::rng::Rng;

/// Puts an option and its value together.
fn with(option: &str, value: BString) -> BString {
    let mut text = BString::from(option);
    text.push_str(value);
    text
}

/// Adds some of these options.
fn some(rng: &mut Rng, percent: usize, options: &[&str], args: &mut Vec<BString>) {
    for option in options {
        if rng.percent(percent) {
            args.push((*option).into());
        }
    }
}

/// All modes of `show-ref`.
pub(super) fn show_ref(rng: &mut Rng) -> Parts {
    let mut args = Vec::new();
    let mut stdin = Vec::new();
    let options = [
        "--head",
        "-h",
        "-d",
        "--dereference",
        "-s",
        "--hash",
        "--hash=7",
        "--hash=0",
        "-s3",
        "--hash=x",
        "--abbrev",
        "--abbrev=9",
        "--abbrev=100",
        "--abbrev=0",
        "--tags",
        "--branches",
        "--heads",
        "-q",
        "--quiet",
    ];
    some(rng, 9, &options, &mut args);
    match rng.below(10) {
        0..3 => {
            args.push("--verify".into());
            for _ in 0..1 + rng.below(3) {
                args.push(name(rng));
            }
        }
        3 => args.extend(["--exists".into(), name(rng)]),
        4 => {
            let all = ["--exclude-existing", "--exclude-existing=refs/heads/"];
            args.push((*rng.pick(&all)).into());
            for _ in 0..rng.below(5) {
                let mut line = BString::default();
                line.push_str(*rng.pick(&["", "{c1} ", "x\t", "{c1}\t", " "]));
                line.push_str(name(rng));
                line.push_str(*rng.pick(&["\n", "\n", "\n", "^{}\n", "^{}", " \n"]));
                stdin.push(line);
            }
        }
        _ => {
            for _ in 0..rng.below(3) {
                args.push(pattern(rng));
            }
        }
    }
    let others = [
        "--verify",
        "--exists",
        "--exclude-existing",
        "--no-head",
        "--no-hash",
        "--abbrev=x",
        "--abbrev=-1",
        "--hash=",
        "--hash=100",
        "-ds",
        "-qd",
        "-d7",
        "--",
        "--exclude-existing=",
    ];
    some(rng, 2, &others, &mut args);
    ("show-ref", args, stdin)
}

/// The options of `for-each-ref`.
#[expect(clippy::too_many_lines, reason = "a list of options")]
fn each_ref(rng: &mut Rng) -> (Vec<BString>, Vec<BString>) {
    let (mut args, mut stdin) = (Vec::new(), Vec::new());
    some(
        rng,
        4,
        &["-s", "--perl", "--python", "--tcl", "-p"],
        &mut args,
    );
    some(rng, 10, &["--omit-empty", "--ignore-case"], &mut args);
    some(
        rng,
        12,
        &["--include-root-refs", "--count=2", "--count=1", "--color"],
        &mut args,
    );
    some(
        rng,
        1,
        &[
            "--count=0",
            "--count=-1",
            "--count=x",
            "--color=x",
            "--color",
        ],
        &mut args,
    );
    some(
        rng,
        1,
        &[
            "--shell",
            "--perl",
            "--no-tcl",
            "--color=always",
            "--color=never",
            "--color=auto",
            "--no-color",
            "--no-sort",
            "--no-format",
            "--no-count",
            "--count",
            "--count=1k",
            "--no-merged",
            "--contains",
            "--points-at",
            "--no-points-at",
            "--no-exclude",
            "--exclude=",
            "--no-start-after",
            "--start-after=",
            "--sort",
            "--sort=",
            "--sort=-",
            "--format=",
            "--format",
            "--no-stdin",
            "--end-of-options",
            "--",
        ],
        &mut args,
    );
    if rng.percent(55) {
        args.push(with("--format=", format(rng, 0)));
    }
    for _ in 0..rng.below(6).saturating_sub(3) {
        let sign = *rng.pick(&["", "-", "", "-*", "*", "--", "version:", "-v:"]);
        args.push(with(&format!("--sort={sign}"), atom(rng)));
    }
    for _ in 0..rng.below(5).saturating_sub(3) {
        args.push(with("--exclude=", pattern(rng)));
    }
    if rng.percent(8) {
        args.push(with("--points-at=", any(rng)));
    }
    while rng.percent(15) {
        args.push(by_commit(rng));
    }
    if rng.percent(8) {
        let marker = if rng.percent(70) {
            name(rng)
        } else {
            pattern(rng)
        };
        args.push(with("--start-after=", marker));
    }
    if rng.percent(8) {
        args.push("--stdin".into());
        for _ in 0..rng.below(4) {
            let mut line = pattern(rng);
            line.push_str(*rng.pick(&["\n", "\n", "\r\n", ""]));
            stdin.push(line);
        }
    } else {
        for _ in 0..rng.below(5).saturating_sub(2) {
            args.push(pattern(rng));
        }
    }
    (args, stdin)
}

/// A filter by where a ref's commit stands in history.
fn by_commit(rng: &mut Rng) -> BString {
    let options = ["--merged", "--no-merged", "--contains", "--no-contains"];
    let option = *rng.pick(&options);
    match rng.below(10) {
        0 => option.into(),
        1 => with(&format!("{option}="), any(rng)),
        _ => with(&format!("{option}="), value(rng)),
    }
}

/// `for-each-ref`.
pub(super) fn for_each_ref(rng: &mut Rng) -> Parts {
    let (args, stdin) = each_ref(rng);
    ("for-each-ref", args, stdin)
}

/// `pack-refs`.
pub(super) fn pack_refs(rng: &mut Rng) -> Parts {
    let mut args = Vec::new();
    some(
        rng,
        30,
        &["--all", "--no-prune", "--auto", "--prune"],
        &mut args,
    );
    for option in ["--include=", "--exclude="] {
        if rng.percent(25) {
            args.push(with(option, pattern(rng)));
        }
    }
    ("pack-refs", args, Vec::new())
}

/// What stands under `refs`.
pub(super) fn refs(rng: &mut Rng) -> Parts {
    let (mut args, stdin) = match rng.below(9) {
        7 | 8 => return migrate(rng),
        5 | 6 => {
            let mut args = vec!["verify".into()];
            some(rng, 25, &["--strict", "--verbose"], &mut args);
            return ("refs", args, Vec::new());
        }
        0 => each_ref(rng),
        1 => (pack_refs(rng).1, Vec::new()),
        _ => (vec![name(rng)], Vec::new()),
    };
    let mut subcommands = vec!["exists", "exists", "exists", "list", "optimize", "foo", ""];
    if !stdin.is_empty() || args.iter().any(|arg| arg.starts_with(b"--")) {
        subcommands = vec!["list", "optimize"];
    }
    args.insert(0, (*rng.pick(&subcommands)).into());
    ("refs", args, stdin)
}

/// `refs migrate`.
fn migrate(rng: &mut Rng) -> Parts {
    let mut args = vec!["migrate".into()];
    let formats = [
        "--ref-format=files",
        "--ref-format=reftable",
        "--ref-format=reftable",
        "--ref-format=x",
        "--ref-format=",
        "--ref-format",
        "--no-ref-format",
    ];
    some(rng, 30, &["--dry-run"], &mut args);
    some(rng, 15, &["--no-reflog", "--reflog"], &mut args);
    if rng.percent(95) {
        let known = if rng.percent(80) { 3 } else { formats.len() };
        args.push(formats[rng.below(known)].into());
    }
    some(rng, 2, &["x", "--no-dry-run", "--bogus"], &mut args);
    ("refs", args, Vec::new())
}

/// `check-ref-format`.
pub(super) fn check_ref_format(rng: &mut Rng) -> Parts {
    let mut args = Vec::new();
    let options = [
        "--branch",
        "--normalize",
        "--print",
        "--allow-onelevel",
        "--no-allow-onelevel",
        "--refspec-pattern",
        "--foo",
    ];
    some(rng, 20, &options, &mut args);
    let mut name = any(rng);
    if rng.percent(20) {
        let at = rng.below(name.len() + 1);
        name.insert(at, *rng.pick(b"//*.@{ \x7f"));
    }
    args.push(name);
    ("check-ref-format", args, Vec::new())
}
