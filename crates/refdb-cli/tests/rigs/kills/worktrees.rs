//! Migrations that are stopped at a system call, while Git adds a worktree, or removes one and adds it again: nothing
//! that Git has acknowledged is lost, whether the migration goes on or refuses.
//!
//! `REFDB_WORKTREE_STOPS` says at how many calls, drawn by `REFDB_KILL_SEED`.

use std::io::{BufRead, BufReader};

use super::*;

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
    let made = Command::new("mkfifo").arg(&log).status();
    assert!(made.is_ok_and(|made| made.success()), "no pipe can be made");
    let inject = format!("inject={}:signal=SIGSTOP:when={}", at.0, at.1);
    let run = oracle::run_of("/usr/bin/strace", "/").args(["-f", "-qq", "-o"]);
    let run = run
        .arg(&log)
        .args(["-e", &format!("trace={}", at.0), "-e", &inject]);
    let run = run.arg(env!("CARGO_BIN_EXE_refdb")).arg("-C").arg(dir);
    let (done, before) = std::thread::scope(|scope| {
        let migration = scope.spawn(|| run.args(to).run());
        let mut before = None;
        let seen = fs::File::open(&log).expect("strace writes into it");
        for line in BufReader::new(seen).lines() {
            let line = line.expect("strace writes text");
            if let Some((process, _)) = line.split_once(" --- stopped by SIGSTOP") {
                if before.is_none() {
                    act(&repo, again);
                    before = Some(read(&repo));
                }
                let _ = Command::new("kill")
                    .args(["-CONT", process.trim()])
                    .output();
            }
        }
        (migration.join().expect("no panic"), before)
    });
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
        for index in (1..points.len()).rev() {
            points.swap(index, rng.below(index + 1));
        }
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
