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

for_every_format! {
    fn nothing_is_written_for_another_worktree_through_a_link(format) {
        let folders: &[&str] = match format.refs {
            RefFormat::Files => &["..", "", "refs", "refs/bisect", "logs", "logs/refs"],
            RefFormat::Reftable => &["..", "", "logs", "reftable"],
        };
        for folder in folders {
            let [victim, repo] = [Repo::init(format), Repo::init(format)];
            let commit = &repo.objects().commits[0];
            for repo in [&victim, &repo] {
                repo.config("core.logAllRefUpdates", "always");
                repo.git(["update-ref", "HEAD", &repo.objects().commits[0]]).run().ok();
                repo.worktree("other");
            }
            let own = |repo: &Repo| match *folder {
                ".." => repo.git_dir().join("worktrees"),
                "" => repo.git_dir().join("worktrees/other"),
                folder => repo.git_dir().join("worktrees/other").join(folder),
            };
            let (of_victim, of_repo) = (own(&victim), own(&repo));
            let _ = fs::remove_dir_all(&of_repo);
            fs::create_dir_all(&of_victim).expect("a folder");
            fs::create_dir_all(of_repo.parent().expect("a folder")).expect("a folder");
            symlink(&of_victim, &of_repo).expect("a link");
            let before = victim.state();
            for args in [
                &["update-ref", "worktrees/other/refs/bisect/bad", commit][..],
                &["update-ref", "--no-deref", "worktrees/other/HEAD", commit],
                &["update-ref", "-d", "worktrees/other/HEAD"],
                &["symbolic-ref", "worktrees/other/HEAD", "refs/heads/other"],
                &["reflog", "delete", "worktrees/other/HEAD@{0}"],
                &["reflog", "expire", "--expire=all", "worktrees/other/HEAD"],
                &["reflog", "drop", "worktrees/other/HEAD"],
            ] {
                let run = ours(repo.path()).args(args).run();
                // Deeper ones are in the way of what is below them alone.
                if !folder.contains('/') || args.concat().contains("bisect") {
                    assert_ne!(run.code(), 0, "{folder}: {args:?}");
                }
            }
            // Nobody named it: the rest is done.
            for args in [
                &["reflog", "expire", "--expire=all", "--all", "--dry-run"][..],
                &["reflog", "expire", "--expire=all", "--all"],
                &["reflog", "drop", "--all"],
            ] {
                ours(repo.path()).args(args).run().ok();
            }
            assert_eq!(victim.state(), before, "{folder}");
        }
    }

    fn no_ref_has_the_name_of_what_stands_beside_the_refs(format) {
        let repo = Repo::init(format);
        let commit = &repo.objects().commits[0];
        let is_path = format.refs == RefFormat::Files;
        for name in ["refdb.journal", "refdb-migration/journal", "REFDB.JOURNAL"] {
            let made = ours(repo.path()).args(["update-ref", name, commit]).run();
            assert_eq!(made.code(), if is_path { 128 } else { 0 }, "{name}");
            assert_eq!(is_path, !made.stderr.is_empty(), "{name}");
            let read = ours(repo.path()).args(["show-ref", "--verify", name]).run();
            assert_eq!(read.code(), 128, "{name}");
        }
        repo.git(["symbolic-ref", "refs/heads/led", "refs/heads/main"]).run().ok();
        if is_path {
            fs::write(repo.git_dir().join("refs/heads/led"), "ref: refdb.journal\n").expect("written");
            let made = ours(repo.path()).args(["update-ref", "refs/heads/led", commit]).run();
            assert_eq!(made.code(), 128);
        }
        // Whatever was asked for, transactions go on.
        repo.update_refs(format!("create refs/heads/more {commit}\n"));
        let pair = format!("create refs/heads/one {commit}\ncreate refs/heads/two {commit}\n");
        ours(repo.path()).args(["update-ref", "--stdin"]).stdin(pair).run().ok();
    }
}

/// Of an update that is refused nothing is left in another reflog: the branch's comes before that of HEAD.
#[test]
fn a_reflog_that_cannot_be_written_keeps_the_other_as_it_was() {
    for format in [Format::FILES_SHA1, Format::FILES_SHA256] {
        for linked in ["HEAD", "refs/heads/main"] {
            let [victim, repo] = [Repo::init(format), Repo::init(format)];
            let commits = &repo.objects().commits;
            for repo in [&victim, &repo] {
                repo.config("core.logAllRefUpdates", "always");
                repo.git(["update-ref", "HEAD", &repo.objects().commits[0]])
                    .run()
                    .ok();
            }
            let log = |repo: &Repo, name: &str| repo.git_dir().join("logs").join(name);
            fs::remove_file(log(&repo, linked)).expect("a reflog");
            symlink(log(&victim, linked), log(&repo, linked)).expect("a link");
            let before = (victim.state(), repo.state());
            for name in ["HEAD", "refs/heads/main"] {
                let run = ours(repo.path())
                    .args(["update-ref", name, &commits[1]])
                    .run();
                assert_ne!(run.code(), 0, "{linked}: {name}");
            }
            assert_eq!((victim.state(), repo.state()), before, "{linked}");
        }
    }
}

for_every_format! {
    /// Else another repository says which branch this one is at.
    fn a_head_that_is_a_link_elsewhere_makes_no_repository(format) {
        let [other, repo] = [Repo::init(format), Repo::init(format)];
        let head = repo.git_dir().join("HEAD");
        fs::remove_file(&head).expect("a file");
        symlink(other.git_dir().join("HEAD"), &head).expect("a link");
        for run in [ours(repo.path()), oracle::git(repo.path())] {
            let run = run.env("GIT_CEILING_DIRECTORIES", repo.path()).args(["for-each-ref"]).run();
            assert_eq!(run.code(), 128);
            let said = String::from_utf8_lossy(&run.stderr).into_owned();
            assert!(said.contains("not a git repository"), "{said}");
        }
    }
}
