//! Reflogs that are longer than what is read of one at once.

use std::path::Path;

use refdb_testkit::for_every_format;
use refdb_testkit::oracle::{self, GitRun};
use refdb_testkit::repo::Repo;

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
