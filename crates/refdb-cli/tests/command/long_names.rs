//! Names as long as those of files can be, and longer ones: no transaction promises a step that the file
//! system can never take, and no ref comes to be that nobody can write any more.

use std::path::Path;

use refdb_testkit::for_every_format;
use refdb_testkit::oracle::{self, GitRun};
use refdb_testkit::repo::Repo;

fn refdb(dir: &Path) -> GitRun {
    oracle::run_of(env!("CARGO_BIN_EXE_refdb"), dir)
}

/// Makes a commit of the repository a branch of its own, which needs no place that is taken.
fn assert_writable(repo: &Repo, what: &str) {
    let commit = &repo.objects().commits[0];
    let input = format!("update refs/heads/other {commit}\nupdate refs/heads/second {commit}\n");
    let out = refdb(repo.path())
        .args(["update-ref", "--stdin"])
        .stdin(input)
        .run();
    assert!(
        out.status.success(),
        "{what}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    repo.git(["update-ref", "-d", "refs/heads/other"])
        .run()
        .ok();
}

for_every_format! {
    /// A remote may send such names, many at once and in a directory that is new.
    fn a_batch_of_long_names_ends_as_git_ends_it(format) {
        for len in [138, 139, 250, 251, 256, 2000] {
            let names = (100..170).map(|at| format!("refs/remotes/new/{at}{}", "x".repeat(len - 3)));
            let names: Vec<String> = names.collect();
            let [ours, gits] = [(); 2].map(|()| Repo::init(format));
            let commit = &ours.objects().commits[0];
            let line = |name: &String| format!("create {name} {commit}\n");
            let input: String = names.iter().map(line).collect();
            for repo in [&ours, &gits] {
                repo.config("core.logAllRefUpdates", "true");
            }
            let args = ["update-ref", "--stdin"];
            let out = refdb(ours.path()).args(args).stdin(input.as_str()).run();
            let beside = gits.git(args).stdin(input.as_str()).run();
            let said = String::from_utf8_lossy(&out.stderr).into_owned();
            assert_eq!(out.status.success(), beside.status.success(), "{len}: {said}");
            assert_eq!(ours.refs(), gits.refs(), "{len}");
            assert!(!ours.git_dir().join("refdb.journal").exists(), "{len}: {said}");
            assert_writable(&ours, &said);
            for name in names.iter().filter(|_| out.status.success()).take(2) {
                ours.git(["update-ref", "-d", name]).run().ok();
            }
        }
    }

    /// The reflog of a name that comes below its old one rests beside it on its way.
    fn a_long_name_is_renamed_to_one_below_it_and_back(format) {
        for len in [200, 248, 249, 250] {
            let repo = Repo::init(format);
            repo.config("core.logAllRefUpdates", "true");
            let commit = &repo.objects().commits[0];
            let upper = format!("refs/heads/{}", "x".repeat(len));
            let lower = format!("{upper}/y");
            repo.git(["update-ref", "-m", "made", &upper, commit]).run().ok();
            for (from, to) in [(&upper, &lower), (&lower, &upper)] {
                refdb(repo.path()).args(["refs", "rename", from, to]).run().ok();
                assert_eq!(repo.git(["rev-parse", to]).run().text().trim(), commit);
                assert_eq!(repo.reflogs()[to.as_str().as_bytes()][0].message, "made");
                assert!(!repo.git_dir().join("refdb.journal").exists());
            }
            assert_writable(&repo, &upper);
        }
    }
}
