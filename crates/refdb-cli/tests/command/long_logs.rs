//! Reflogs that are longer than what is read of one at once, and more than are rewritten at once.

use std::fs;
use std::path::Path;

use bstr::ByteSlice;
use refdb_testkit::oracle::{self, GitRun};
use refdb_testkit::repo::Repo;
use refdb_testkit::{Format, RefFormat, for_every_format};

fn refdb(dir: &Path) -> GitRun {
    oracle::run_of(env!("CARGO_BIN_EXE_refdb"), dir)
}

for_every_format! {
    fn a_reflog_of_long_messages_is_shown_as_by_git(format) {
        let repo = Repo::init(format);
        repo.config("core.fsync", "none");
        let begin = 1_700_000_000;
        for number in 0..200_u64 {
            let message = format!("{number} {}", "x".repeat(100_000));
            let name = if number % 10 == 9 { "refs/heads/other" } else { "refs/heads/main" };
            let id = &repo.objects().commits[usize::try_from(number % 3).expect("a small number")];
            let args = ["update-ref", "-m", &message, name, id];
            refdb(repo.path()).args(args).at(begin + number, "+0000").run().ok();
        }
        for revisions in [
            &["refs/heads/main"][..],
            &["refs/heads/main@{170}"],
            &["refs/heads/main@{180}"],
            &["refs/heads/main@{1700000011}"],
            &["main", "other"],
            &["other@{3}", "main@{175}"],
        ] {
            let args = ["reflog", "show", "--format=%gd %H %gs"].iter().chain(revisions);
            let theirs = repo.git(args.clone().copied()).run();
            let ours = refdb(repo.path()).args(args.copied()).run();
            assert_eq!(ours.code(), theirs.code(), "{revisions:?}");
            assert!(ours.stdout == theirs.stdout, "{revisions:?}");
        }
    }
}

/// A repository of some hundred reflogs, each with an entry that is old and one that is not.
fn with_many_logs(format: Format) -> Repo {
    let repo = Repo::init(format);
    repo.config("core.logAllRefUpdates", "always");
    let [first, second] = [0, 1].map(|at| &repo.objects().commits[at]);
    let names = || (0..300).map(|at| format!("refs/heads/{}/topic-{at}", at % 7));
    for (time, oid) in [(1_600_000_000, first), (1_700_000_000, second)] {
        let edits: String = names()
            .map(|name| format!("update {name} {oid}\n"))
            .collect();
        let run = repo
            .git(["update-ref", "-m", "made", "--stdin"])
            .at(time, "+0000");
        run.stdin(edits).run().ok();
    }
    repo
}

for_every_format! {
    fn many_reflogs_expire_as_by_git(format) {
        let repo = with_many_logs(format);
        repo.config("core.filesRefLockTimeout", "100");
        let git_dir = repo.git_dir();
        if format.refs == RefFormat::Files {
            // One that nobody can change now, one with a line that is none, and a symref.
            fs::write(git_dir.join("refs/heads/3/topic-31.lock"), "").expect("a lock");
            let log = git_dir.join("logs/refs/heads/4/topic-4");
            let damaged = [fs::read(&log).expect("a reflog"), b"nonsense\n".to_vec()].concat();
            fs::write(log, damaged).expect("a reflog");
            repo.git(["symbolic-ref", "refs/heads/2/led", "refs/heads/1/topic-1"]).run().ok();
        }
        for options in [
            &["--expire=1650000000", "--expire-unreachable=never"][..],
            &["--expire=never", "--verbose"],
            &["--expire=1650000000", "--verbose"],
            &["--expire=never", "--expire-unreachable=all"],
            &["--expire=all", "--rewrite"],
            &["--expire=1650000000", "--updateref"],
        ] {
            let [theirs, ours] = [repo.duplicate(), repo.duplicate()];
            let args = ["reflog", "expire", "--all"].iter().chain(options);
            let git = theirs.git(args.clone().copied()).run();
            let run = refdb(ours.path()).args(args.copied()).run();
            assert_eq!(run.code(), git.code(), "{options:?}: {run:?}");
            assert!(run.stdout == git.stdout, "{options:?}: {run:?}");
            assert!(run.stderr.find_iter("error: ").count() < 3, "{options:?}: {run:?}");
            assert_eq!(ours.state(), theirs.state(), "{options:?}");
        }
    }
}

/// A signal ends the whole command, and not one reflog after the other.
#[test]
fn a_signal_ends_the_expiry_of_all_reflogs() {
    for format in [Format::FILES_SHA1, Format::REFTABLE_SHA256] {
        let repo = with_many_logs(format);
        repo.config("core.filesRefLockTimeout", "20000");
        repo.config("reftable.lockTimeout", "20000");
        let lock = match format.refs {
            RefFormat::Files => "refs/heads/1/topic-1.lock",
            RefFormat::Reftable => "reftable/tables.list.lock",
        };
        fs::write(repo.git_dir().join(lock), "").expect("a lock");
        let script = "timeout --signal=TERM 1 \"$0\" reflog expire --all --expire=now";
        let run = oracle::run_of("/bin/sh", repo.path());
        let run = run.args(["-c", script, env!("CARGO_BIN_EXE_refdb")]).run();
        assert_eq!(run.code(), 124, "{format}: {run:?}");
        assert!(
            run.stderr.find_iter("error: ").count() < 3,
            "{format}: {run:?}"
        );
    }
}
