//! What Git does to Git: experiments for what the check of histories allows it, so that nobody has to
//! believe that. One that turns out otherwise says so, and then the check can be stricter.

use std::time::Duration;

use refdb_testkit::Format;
use refdb_testkit::dialogue::Dialogue;
use refdb_testkit::repo::Repo;

use super::actor::GITS_COMMIT;

/// Longer than any command of this test waits for a lock.
const PATIENCE_MS: &str = "20000";

/// So long a command takes at most to look and to come to a lock that is held. If it takes longer, the
/// experiment shows nothing.
const TO_THE_LOCK: Duration = Duration::from_millis(500);

/// A session of Git that has prepared a transaction.
fn prepared(repo: &Repo, edits: &str) -> Dialogue {
    let mut session = repo.git(["update-ref", "--stdin"]).begin();
    session.say(&format!("start\n{edits}prepare\n"));
    assert_eq!(session.hear() + &session.hear(), "start: ok\nprepare: ok\n");
    session
}

/// A transaction of several refs can be committed in part, and says that it failed (`GITS_COMMIT`): the
/// directory of a lock is in the place of one of them that is to come, or to go. The reflog of one that
/// was to come stays, and is in the way of refs below it from then on (`Arena::remove_left_logs`).
#[test]
fn a_transaction_of_git_is_committed_in_part_beside_another() {
    for (deed, said) in [("create", GITS_COMMIT[0]), ("delete", GITS_COMMIT[1])] {
        let repo = Repo::init(Format::FILES_SHA1);
        let [old, new] = [0, 1].map(|at| repo.objects().commits[at].clone());
        repo.update_refs(format!("create refs/heads/z {old}\n"));
        let value = if deed == "create" { new.as_str() } else { "" };
        let edit = format!("{deed} refs/heads/a {value}");
        let edits = format!("update refs/heads/z {new}\n{}\n", edit.trim_end());
        let mut above = prepared(&repo, &edits);
        let mut below = prepared(&repo, &format!("create refs/heads/a/b {new}\n"));
        above.say("commit\n");
        let failed = above.end();
        below.say("abort\n");
        assert_eq!(below.hear(), "abort: ok\n");
        assert_eq!(below.end().code(), 0);
        let stderr = String::from_utf8_lossy(&failed.stderr).into_owned();
        assert!(stderr.contains(said), "{stderr}");
        let now = repo.git(["rev-parse", "refs/heads/z"]).run().text();
        let is_half = now == new;
        assert!(is_half || now == old, "{now}");
        let after = repo.git(["update-ref", "refs/heads/a/b", &new]).run();
        let is_blocked = after.code() != 0;
        eprintln!("{deed}: a half is committed: {is_half}; its reflog is in the way: {is_blocked}");
    }
}

/// `git branch -m` looks whether names above and below the new one are free before it has the lock, and
/// not under it: refs that were made and packed meanwhile are not seen (`Put::Free`).
#[test]
fn a_renaming_by_git_does_not_see_what_was_packed_meanwhile() {
    let repo = Repo::init(Format::FILES_SHA1);
    repo.config("core.filesRefLockTimeout", PATIENCE_MS);
    repo.config("core.logAllRefUpdates", "false");
    let [old, new] = [0, 1].map(|at| repo.objects().commits[at].clone());
    repo.update_refs(format!("create refs/heads/r {old}\n"));
    let mut holds = prepared(&repo, &format!("create refs/heads/a {new}\n"));
    let renamed = std::thread::scope(|scope| {
        let renames = scope.spawn(|| repo.git(["branch", "-m", "r", "a"]).run());
        std::thread::sleep(TO_THE_LOCK);
        repo.update_refs(format!("create refs/heads/a/f {new}\n"));
        repo.git(["pack-refs", "--all"]).run().ok();
        holds.say("abort\n");
        assert_eq!(holds.hear(), "abort: ok\n");
        renames.join().expect("it ends")
    });
    assert_eq!(holds.end().code(), 0);
    let listed = ["for-each-ref", "--format=%(refname)", "refs/heads/a"];
    let both = repo.git(listed).run().text() == "refs/heads/a\nrefs/heads/a/f";
    assert!(both || renamed.code() != 0, "the renaming is lost");
    eprintln!("a name and one below it both exist after Git has renamed: {both}");
}

/// `git branch -m` looks whether the new name is free before it has a lock, and then writes over whatever
/// is there: a creation that was acknowledged is lost (`Act::RenameOver`, `Act::LooseRename`).
#[test]
fn a_renaming_by_git_writes_over_what_came_meanwhile() {
    for format in [Format::FILES_SHA1, Format::REFTABLE_SHA1] {
        let repo = Repo::init(format);
        for key in ["core.filesRefLockTimeout", "reftable.lockTimeout"] {
            repo.config(key, PATIENCE_MS);
        }
        let [old, new] = [0, 1].map(|at| repo.objects().commits[at].clone());
        repo.update_refs(format!("create refs/heads/a {old}\n"));
        let mut creates = prepared(&repo, &format!("create refs/heads/b {new}\n"));
        let renamed = std::thread::scope(|scope| {
            let renames = scope.spawn(|| repo.git(["branch", "-m", "a", "b"]).run());
            std::thread::sleep(TO_THE_LOCK);
            creates.say("commit\n");
            assert_eq!(creates.hear(), "commit: ok\n");
            renames.join().expect("it ends")
        });
        assert_eq!(creates.end().code(), 0);
        let now = repo.git(["rev-parse", "refs/heads/b"]).run().text();
        let is_lost = renamed.status.success() && now == old;
        assert!(is_lost || now == new, "{format}: {now}");
        let what = if is_lost { "lost" } else { "there, this time" };
        eprintln!("{format}: what was created while Git was renaming is {what}");
    }
}

/// In a linked worktree of `reftable`, where two stacks are listed, Git tells for `HEAD` where a symref
/// leads that is not listed, since it leads nowhere (`listing::of_program`).
#[test]
fn git_lists_the_target_of_another_symref() {
    let repo = Repo::init(Format::REFTABLE_SHA1);
    let worktree = repo.worktree("w").path;
    let git = |args: &[&str]| {
        let run = refdb_testkit::oracle::git(&worktree);
        run.args(args).run().text()
    };
    let head = "refs/heads/x";
    git(&["update-ref", head, "HEAD"]);
    git(&["symbolic-ref", "HEAD", head]);
    git(&["symbolic-ref", "refs/heads/s", "refs/heads/nowhere"]);
    let listed = git(&[
        "for-each-ref",
        "--include-root-refs",
        "--format=%(refname) %(symref)",
    ]);
    let told = listed.lines().find_map(|line| line.strip_prefix("HEAD "));
    let told = told.expect("it is listed");
    assert!([head, "refs/heads/nowhere"].contains(&told), "{told}");
    eprintln!("HEAD leads to {head}, and is listed as {told}");
}
