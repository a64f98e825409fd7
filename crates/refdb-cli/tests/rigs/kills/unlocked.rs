//! Migrations that are stopped at a system call, while somebody takes locks away and Git writes, or Git only makes a new
//! branch: what Git has acknowledged is there afterwards, or it is told.
//!
//! `REFDB_UNLOCKED_STOPS` says at how many calls, drawn by `REFDB_KILL_SEED`.

use super::*;
use crate::races::stops::{Stop, while_stopped};

/// At how many calls every test run stops, in each direction.
const SHORT: usize = 30;

/// Calls that hold a moment for long, as the one that syncs, and those that change what is there.
const CALLS: [&str; 5] = ["linkat", "mkdirat", "renameat", "renameat2", "syncfs"];

/// Removes locks of refs, as `find -name '*.lock' -delete` does.
fn unlock(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            unlock(&path);
        } else if path.extension().is_some_and(|it| it == "lock") {
            let _ = fs::remove_file(&path);
        }
    }
}

/// Has Git write refs; returns which it has, and with what values.
fn write(repo: &Repo) -> Vec<(&'static str, String)> {
    let commit = &repo.objects().commits[4];
    let names = [
        "refs/heads/both",
        "refs/heads/loose",
        "refs/tags/packed",
        "refs/heads/new",
    ];
    let is_done = |name: &&str| {
        repo.git(["update-ref", name, commit])
            .run()
            .status
            .success()
    };
    names
        .into_iter()
        .filter(is_done)
        .map(|name| (name, commit.clone()))
        .collect()
}

/// Stops a migration at a call, if it comes to that; returns whether it did.
fn stop(base: &Repo, at: &Call, unlocks: bool) -> bool {
    let repo = base.duplicate();
    let dir = repo.path();
    let to = match repo.format().refs {
        RefFormat::Files => TO_REFTABLE,
        RefFormat::Reftable => TO_FILES,
    };
    let context = format!(
        "from {}, stopped at {at:?}, unlocks: {unlocks}",
        repo.format()
    );
    let log = dir.join("calls");
    let stop = Stop {
        at: Some(at),
        log: &log,
    };
    let mut written = None;
    let done = while_stopped(
        &log,
        || stop.run_refdb(dir).args(to).run(),
        || {
            if unlocks {
                for folder in ["refs", "reftable"] {
                    unlock(&repo.git_dir().join(folder));
                }
            }
            written = Some(write(&repo));
        },
    );
    let Some(written) = written else {
        return false;
    };
    let told = done.stderr.as_bstr();
    let is_told = told.contains_str("compare") || told.contains_str("in both formats");
    assert!(unlocks || done.status.success(), "{context}: {told}");
    assert!(unlocks || done.stderr.is_empty(), "{context}: {told}");
    for (name, value) in written {
        let found = repo.git(["rev-parse", "--verify", "-q", name]).run();
        let found = String::from_utf8_lossy(&found.stdout).trim_end().to_owned();
        assert!(
            found == value || (unlocks && is_told),
            "{context}: {name} is '{found}': {told}"
        );
    }
    true
}

#[test]
fn what_git_writes_beside_a_migration_is_there_or_told() {
    let seed = budget("REFDB_KILL_SEED", 1);
    if !can_kill(WHAT, seed) {
        return;
    }
    let most = budget("REFDB_UNLOCKED_STOPS", SHORT as u64);
    let most = usize::try_from(most).expect("not so many");
    let mut rng = Rng::new(seed);
    for format in [Format::FILES_SHA1, Format::REFTABLE_SHA1] {
        let base = base(format);
        let mut points: Vec<Call> = CALLS
            .iter()
            .flat_map(|call| (1..=24).map(|nth| ((*call).to_owned(), nth)))
            .collect();
        rng.shuffle(&mut points);
        // The moment before the switch is one of them, in both ways.
        let last = || ("syncfs".to_owned(), 2);
        points.splice(..0, [last(), last()]);
        let mut stopped = 0;
        for at in &points {
            if stopped < most {
                stopped += usize::from(stop(&base, at, stopped % 2 == 0));
            }
        }
        assert!(stopped > most / 3, "{stopped} stops");
    }
}
