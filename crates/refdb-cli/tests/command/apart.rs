//! Refs and objects that are not where the rest of the repository is.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use refdb_testkit::repo::Repo;
use refdb_testkit::{Format, RefFormat, for_every_format, oracle};

fn ours(dir: &Path) -> oracle::GitRun {
    oracle::run_of(env!("CARGO_BIN_EXE_refdb"), dir)
}

#[test]
fn a_stack_is_lost_also_where_a_push_brings_no_object() {
    for format in [Format::REFTABLE_SHA1, Format::REFTABLE_SHA256] {
        let repo = Repo::init(format);
        let commit = repo.objects().commits[0].clone();
        repo.update_refs(format!("create refs/heads/main {commit}\n"));
        let (stack, objects) = (
            repo.git_dir().join("reftable"),
            repo.git_dir().join("objects"),
        );
        for entry in fs::read_dir(&stack).expect("a stack").flatten() {
            fs::remove_file(entry.path()).expect("a table");
        }
        let incoming = objects.join("tmp_objdir-incoming-1");
        fs::create_dir(&incoming).expect("made");
        let list = ours(repo.path())
            .args(["for-each-ref"])
            .env("GIT_OBJECT_DIRECTORY", &incoming)
            .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", &objects)
            .run();
        assert_eq!(list.code(), 128);
        let said = String::from_utf8_lossy(&list.stderr).into_owned();
        assert!(said.contains("every ref is gone"), "{said}");
    }
}

#[test]
fn a_linked_stack_of_a_worktree_is_left_alone() {
    for format in [Format::REFTABLE_SHA1, Format::REFTABLE_SHA256] {
        let [victim, repo] = [Repo::init(format), Repo::init(format)];
        for repo in [&victim, &repo] {
            let commit = &repo.objects().commits[0];
            repo.config("core.logAllRefUpdates", "always");
            repo.git(["update-ref", "HEAD", commit]).run().ok();
        }
        repo.worktree("other");
        let stack = repo.git_dir().join("worktrees/other/reftable");
        fs::remove_dir_all(&stack).expect("a stack");
        symlink(victim.git_dir().join("reftable"), &stack).expect("a link");
        let before = victim.state();
        for all in [
            &["reflog", "expire", "--expire=all", "--all"][..],
            &["reflog", "drop", "--all"],
        ] {
            ours(repo.path()).args(all).run().ok();
        }
        assert_eq!(victim.state(), before);
    }
}

for_every_format! {
    fn no_format_is_changed_where_the_refs_are_not(format) {
        let [named, repo] = [Repo::init(format), Repo::init(format)];
        let commit = &repo.objects().commits[0];
        repo.update_refs(format!("create refs/heads/main {commit}\n"));
        let to = match format.refs {
            RefFormat::Files => "--ref-format=reftable",
            RefFormat::Reftable => "--ref-format=files",
        };
        let migrate = |dir: &Path, git_dir: &Path, common: &Path| {
            let run = ours(dir).args(["refs", "migrate", to]);
            run.env("GIT_DIR", git_dir).env("GIT_COMMON_DIR", common).run()
        };
        let (before, state) = (named.state(), repo.state());
        let refused = migrate(repo.path(), &repo.git_dir(), &named.git_dir());
        assert_eq!(refused.code(), 128);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(said.contains("GIT_COMMON_DIR"), "{said}");
        assert_eq!((named.state(), repo.state()), (before, state));
        // What names the same one is in nobody's way.
        migrate(repo.path(), &repo.git_dir(), &repo.git_dir().join(".")).ok();
    }
}
