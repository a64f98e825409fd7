//! Puts scripts together.

use bstr::BString;

use super::surroundings::{BEFORE, FILES, FOLDERS, HOOKS, SETTINGS, VARIABLES};
use super::{Call, Script, Step, WORKTREE, listing, reflog, updates, words};
use crate::format::RefFormat;
use crate::rng::Rng;

/// Makes the script of a seed.
pub(super) fn script(seed: u64, refs: RefFormat) -> Script {
    let rng = &mut Rng::new(seed);
    let mut steps = Vec::new();
    for _ in 0..rng.below(4) {
        steps.push(preparation(rng, refs));
    }
    for _ in 0..3 + rng.below(6) {
        steps.push(Step::Call(call(rng)));
        if rng.percent(8) {
            steps.push(preparation(rng, refs));
        }
    }
    // Folders exist when commands run in them.
    let first = steps.iter().position(|step| match step {
        Step::Call(call) => call.folder == WORKTREE,
        _ => false,
    });
    if let Some(first) = first {
        steps.insert(first, Step::Worktree);
    }
    Script { steps }
}

/// Makes a call of one of the commands.
fn call(rng: &mut Rng) -> Call {
    let (name, args, stdin) = match rng.below(100) {
        0..16 => updates::update_ref(rng),
        16..38 => updates::stdin(rng),
        38..49 => updates::symbolic_ref(rng),
        49..58 => listing::show_ref(rng),
        58..73 => listing::for_each_ref(rng),
        73..86 => reflog::reflog(rng),
        86..90 => listing::pack_refs(rng),
        90..93 => listing::check_ref_format(rng),
        _ => listing::refs(rng),
    };
    let mut args: Vec<BString> = args;
    for arg in &mut args {
        let long = arg.starts_with(b"--") && arg.len() > 3;
        if long && rng.percent(8) {
            // Shortened, with its value.
            let end = arg.iter().position(|b| *b == b'=').unwrap_or(arg.len());
            let keep = 2 + rng.below(end - 1);
            arg.drain(keep..end);
        } else if long && rng.percent(4) {
            arg.splice(2..2, *b"no-");
        } else if rng.percent(1) {
            let half = arg.len() / 2;
            arg.truncate(half);
        }
    }
    if args.len() > 1 && rng.percent(6) {
        let (a, b) = (rng.below(args.len()), rng.below(args.len()));
        args.swap(a, b);
    }
    if rng.percent(3) {
        let at = rng.below(args.len() + 1);
        let odd = ["--", "--end-of-options", "-", "", "-h", "--foo", "-x"];
        args.insert(at, (*rng.pick(&odd)).into());
    }
    args.insert(0, name.into());
    let folder = match rng.below(20) {
        0 => ".git",
        1 => ".git/refs",
        2 | 3 => WORKTREE,
        _ => ".",
    };
    let some = |rng: &mut Rng, percent| rng.percent(percent);
    let before = match some(rng, 8) {
        true => BEFORE[rng.below(BEFORE.len())].to_vec(),
        false => Vec::new(),
    };
    let variables = match some(rng, 8) {
        true => vec![*rng.pick(&VARIABLES)],
        false => Vec::new(),
    };
    Call {
        before,
        variables,
        args,
        stdin,
        folder,
    }
}

/// Changes both repositories.
fn preparation(rng: &mut Rng, refs: RefFormat) -> Step {
    let git = |args: &[&str]| {
        Step::Prepare(Call {
            args: args.iter().map(|arg| (*arg).into()).collect(),
            stdin: Vec::new(),
            folder: ".",
            before: Vec::new(),
            variables: Vec::new(),
        })
    };
    match rng.below(18) {
        16 => Step::Hook(rng.pick::<&str>(&HOOKS)),
        17 if refs == RefFormat::Reftable => match rng.below(3) {
            0 => git(&["pack-refs", "--auto"]),
            1 => Step::Write("reftable/tables.list.lock", ""),
            _ => Step::Write("refs/heads/main", "{c1}\n"),
        },
        0 => git(&["pack-refs", "--all"]),
        1 => git(&["update-ref", "--no-deref", "HEAD", "{c4}"]),
        2 => git(&["symbolic-ref", "HEAD", "refs/heads/none"]),
        3 => git(&["symbolic-ref", "HEAD", "refs/heads/sym"]),
        4 => match rng.below(4) {
            3 => git(&["config", "core.bare", "true"]),
            0 => git(&["config", "core.logAllRefUpdates", "always"]),
            1 => git(&["config", "core.logAllRefUpdates", "false"]),
            _ => git(&["config", "core.warnAmbiguousRefs", "false"]),
        },
        5 | 6 => {
            let names = ["refs/heads/l1", "refs/heads/l2", "refs/heads/l3", "HEAD"];
            let to = ["refs/heads/l1", "refs/heads/l2", "refs/heads/sym", "HEAD"];
            let (name, to) = (*rng.pick(&names), *rng.pick(&to));
            git(&["symbolic-ref", name, to])
        }
        7 => Step::Worktree,
        14 | 15 => {
            let (key, value) = *rng.pick(&SETTINGS);
            git(&["config", "--add", key, value])
        }
        8 | 9 if refs == RefFormat::Files => {
            let (path, content) = *rng.pick(&FILES);
            Step::Write(path, content)
        }
        10 if refs == RefFormat::Files => {
            let folder = *rng.pick(&FOLDERS);
            Step::MakeDir(folder)
        }
        _ => {
            let (name, value) = (words::name(rng), words::value(rng));
            Step::Prepare(Call {
                args: vec!["update-ref".into(), name, value],
                stdin: Vec::new(),
                folder: ".",
                before: Vec::new(),
                variables: Vec::new(),
            })
        }
    }
}
