//! What Git does to Git: experiments for what the check of histories allows it, so that nobody has to
//! believe that. One that turns out otherwise says so, and then the check can be stricter.

use std::time::Duration;

use refdb_testkit::Format;
use refdb_testkit::repo::Repo;

/// Longer than any command of this test waits for a lock.
const PATIENCE_MS: &str = "20000";

/// So long a command takes at most to look and to come to a lock that is held. If it takes longer, the
/// experiment shows nothing.
const TO_THE_LOCK: Duration = Duration::from_millis(500);

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
        let mut creates = repo.git(["update-ref", "--stdin"]).begin();
        creates.say(&format!("start\ncreate refs/heads/b {new}\nprepare\n"));
        assert_eq!(creates.hear() + &creates.hear(), "start: ok\nprepare: ok\n");
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
