//! Migrations that are stopped at a system call, while Git adds a worktree, or removes one and adds it again: nothing
//! that Git has acknowledged is lost, whether the migration goes on or refuses.
//!
//! `REFDB_WORKTREE_STOPS` says at how many calls, drawn by `REFDB_KILL_SEED`.

use super::*;
use crate::races::stops::{Stop, while_stopped};

/// At how many calls every test run stops, in each direction.
const SHORT: u64 = 20;

/// Calls that hold a moment for long, as the one that syncs, and those that change what is there.
const CALLS: [&str; 5] = ["linkat", "mkdirat", "renameat", "renameat2", "syncfs"];

/// What Git reads in the main worktree and the others.
fn read(repo: &Repo) -> Vec<String> {
    let dirs = ["", "x", "late"].map(|dir| repo.path().join(dir));
    let there = dirs.iter().filter(|dir| dir.join(".git").exists());
    let asks: [&[&str]; 2] = [
        &["rev-parse", "--symbolic-full-name", "HEAD"],
        &["for-each-ref", "refs/bisect", "refs/heads"],
    ];
    let outs = there.flat_map(|dir| asks.map(|args| oracle::git(dir).args(args).run()));
    outs.map(|out| format!("{} {:?}", out.status.success(), out.stdout.as_bstr()))
        .collect()
}

/// What Git does meanwhile, as far as the locks of the migration let it.
fn act(repo: &Repo, again: bool) {
    let commit = &repo.objects().commits[2];
    if again {
        let removed = repo.git(["worktree", "remove", "--force", "x"]).run();
        if removed.status.success() {
            repo.git(["worktree", "add", "-q", "x", "side"]).run();
        }
        return;
    }
    let add = ["worktree", "add", "-q", "--detach", "late", commit];
    if repo.git(add).run().status.success() {
        let keep = ["update-ref", "refs/bisect/keep", commit];
        oracle::git(repo.path().join("late")).args(keep).run();
    }
}

/// Stops a migration at a call, if it comes to that; returns whether it did.
fn stop(base: &Repo, at: &Call, again: bool) -> bool {
    let repo = base.duplicate();
    let dir = repo.path();
    let to = match repo.format().refs {
        RefFormat::Files => TO_REFTABLE,
        RefFormat::Reftable => TO_FILES,
    };
    let context = format!("from {}, stopped at {at:?}, again: {again}", repo.format());
    let log = dir.join("calls");
    let stop = Stop {
        at: Some(at),
        log: &log,
    };
    let mut before = None;
    let done = while_stopped(
        &log,
        || stop.run_refdb(dir).args(to).run(),
        || {
            act(&repo, again);
            before = Some(read(&repo));
        },
    );
    let Some(before) = before else {
        return false;
    };
    let refused = done
        .stderr
        .contains_str("worktrees were added or removed meanwhile");
    let told = done.stderr.as_bstr();
    assert!(done.status.success() || refused, "{context}: {told}");
    assert_eq!(read(&repo), before, "{context}: {told}");
    check_by_git(dir, &context);
    true
}

#[test]
fn a_worktree_that_is_added_meanwhile_is_not_lost() {
    let seed = budget("REFDB_KILL_SEED", 1);
    if !can_kill(WHAT, seed) {
        return;
    }
    let most = budget("REFDB_WORKTREE_STOPS", SHORT);
    let mut rng = Rng::new(seed);
    for format in [Format::FILES_SHA1, Format::REFTABLE_SHA1] {
        let base = Repo::init(format);
        for key in ["core.filesRefLockTimeout", "reftable.lockTimeout"] {
            base.config(key, "0");
        }
        base.config("worktree.useRelativePaths", "true");
        let commit = &base.objects().commits[0];
        base.update_refs(format!(
            "create refs/heads/main {commit}\ncreate refs/heads/side {commit}\n"
        ));
        base.git(["worktree", "add", "-q", "x", "side"]).run().ok();
        let mut stopped = 0;
        let mut points: Vec<Call> = CALLS
            .iter()
            .flat_map(|call| (1..=16).map(|nth| ((*call).to_owned(), nth)))
            .collect();
        rng.shuffle(&mut points);
        // The moment before the switch is one of them.
        points.insert(0, ("syncfs".to_owned(), 2));
        for at in &points {
            if stopped < most {
                let is_there = stop(&base, at, stopped % 2 == 1);
                stopped += u64::from(is_there);
            }
        }
        assert!(stopped > most / 3, "{stopped} stops");
    }
}

/// A process of the old format adds a worktree in the very moment of the switch, after which the migration is killed:
/// that worktree is told, and keeps nobody from the others.
#[test]
fn a_worktree_without_a_stack_does_not_stop_recovery() {
    let seed = budget("REFDB_KILL_SEED", 1);
    if !can_kill(WHAT, seed) {
        return;
    }
    let base = Repo::init(Format::FILES_SHA1);
    let commit = &base.objects().commits[0];
    base.update_refs(format!("create refs/heads/main {commit}\n"));
    let listed = listed_by_git(base.path());
    let mut switched = 0;
    for nth in 1..=64 {
        let repo = base.duplicate();
        let dir = repo.path();
        let at = ("renameat".to_owned(), nth);
        let done = traced(dir, TO_REFTABLE, "", &dir.join("strace"), Some(&at));
        if done.status.success() {
            break;
        }
        let format = repo.git(["rev-parse", "--show-ref-format"]).run().text();
        let is_left = repo.git_dir().join("refdb-migration/journal").exists();
        if format.trim() != "reftable" || !is_left {
            continue;
        }
        switched += 1;
        let late = repo.git_dir().join("worktrees/late");
        fs::create_dir_all(late.join("refs")).expect("room");
        fs::write(late.join("HEAD"), format!("{commit}\n")).expect("room");
        let out = refdb(dir, LIST, "");
        assert_eq!(
            out.stdout.to_str_lossy().trim_end(),
            listed.trim_end(),
            "{nth}"
        );
        let told = out.stderr.to_str_lossy();
        assert!(
            told.contains("worktrees/late' was added in the moment"),
            "{nth}: {told}"
        );
        assert!(
            !repo.git_dir().join("refdb-migration").exists(),
            "{nth}: it is finished"
        );
    }
    assert!(switched > 0, "no kill came after the switch");
}
