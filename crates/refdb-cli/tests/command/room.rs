//! What there is no room for, or no right to take away: what is asked for is done as far as Git does it, and nobody
//! else is kept out.

#![allow(clippy::print_stderr, reason = "says what cannot be tried here")]

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use refdb_testkit::Format;
use refdb_testkit::mount::Mounted;
use refdb_testkit::oracle::{self, Output};
use refdb_testkit::repo::Repo;

fn ours(dir: &Path, args: &[&str]) -> Output {
    let run = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), dir);
    run.args(args).run()
}

fn said(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

fn repository(format: Format) -> Repo {
    let repo = Repo::init(format);
    repo.config("core.logAllRefUpdates", "true");
    let commit = &repo.objects().commits[0];
    for name in ["a", "b", "c", "d/x"] {
        let name = format!("refs/heads/{name}");
        repo.git(["update-ref", "-m", "made", &name, commit])
            .run()
            .ok();
    }
    repo
}

/// The limit kills whoever writes more into a reflog: seen after the journal, that would kill each who finishes it.
#[test]
fn a_reflog_longer_than_files_may_be_refuses_a_batch() {
    for format in [Format::FILES_SHA1, Format::FILES_SHA256] {
        let repo = repository(format);
        let [first, second] = [0, 1].map(|at| repo.objects().commits[at].clone());
        let message = "0".repeat(3000);
        for oid in [&second, &first] {
            repo.git(["update-ref", "-m", &message, "refs/heads/b", oid])
                .run()
                .ok();
        }
        let before = repo.state();
        let input = format!("update refs/heads/a {second}\nupdate refs/heads/b {second}\n");
        let script = "ulimit -f 8; exec \"$0\" \"$@\"";
        let limited = |args: &[&str]| {
            let run = oracle::run_of("/bin/sh", repo.path());
            let run = run
                .args(["-c", script, env!("CARGO_BIN_EXE_refdb")])
                .args(args);
            run.stdin(&*input).run()
        };
        let out = limited(&["update-ref", "--stdin"]);
        assert_eq!(out.status.code(), Some(128), "{out:?}");
        assert!(said(&out).contains("File too large"), "{out:?}");
        assert_eq!(repo.state(), before);
        limited(&["update-ref", "refs/heads/c", &second]).ok();
        limited(&["for-each-ref"]).ok();
    }
}

/// What is lost by a full disk is room for content: a reflog without entries needs none.
#[test]
fn entries_of_reflogs_can_go_where_the_disk_is_full() {
    let dir = tempfile::tempdir().expect("a folder");
    let mounted = match Mounted::tmpfs("4m", dir.path()) {
        Ok(mounted) => mounted,
        Err(reason) => {
            eprintln!("a full disk is not tried: {reason}");
            return;
        }
    };
    let run = |args: &[&str]| oracle::git(mounted.path()).args(args).run();
    run(&["init", "-q", "--ref-format=files", "-b", "main", "r"]).ok();
    let repo = mounted.path().join("r");
    let git = |args: &[&str]| oracle::git(&repo).args(args).run();
    let at = |time: u64| oracle::git(&repo).at(time, "+0000");
    for time in [1_000_000_000, 1_000_000_001] {
        let commit = at(time)
            .args(["commit", "-q", "--allow-empty", "-m", "made"])
            .run();
        commit.ok();
    }
    git(&["branch", "other"]).ok();
    let mut file = fs::File::create(mounted.path().join("fill")).expect("a file");
    while file.write_all(&[0; 4096]).is_ok() {}
    let expired = ours(&repo, &["reflog", "expire", "--expire=all", "--all"]);
    assert_eq!(expired.status.code(), Some(0), "{}", said(&expired));
    fs::remove_file(mounted.path().join("fill")).expect("it is there");
    assert_eq!(git(&["reflog", "show", "main"]).ok(), b"");
    for log in ["HEAD", "refs/heads/main"] {
        let log = fs::metadata(repo.join(".git/logs").join(log)).expect("a reflog");
        assert_eq!((log.len(), log.permissions().mode() & 0o7777), (0, 0o644));
    }
    git(&["fsck"]).ok();
}

/// Refs are packed once packed-refs is in place: a file that cannot go stays, with the same value.
#[test]
fn a_loose_ref_that_cannot_go_is_packed() {
    for format in [Format::FILES_SHA1, Format::FILES_SHA256] {
        let repo = repository(format);
        let before = repo.refs();
        let [file, folder] = ["b", "d"].map(|name| repo.git_dir().join("refs/heads").join(name));
        let content = fs::read(folder.join("x")).expect("a ref");
        let mounts = (Mounted::bind(&file, &file), Mounted::tmpfs("1m", &folder));
        let (Ok(_file), Ok(mounted)) = &mounts else {
            eprintln!("files that cannot go are not tried: they cannot be mounted here");
            return;
        };
        fs::write(folder.join("x"), &content).expect("room");
        mounted.make_read_only();
        let packed = ours(repo.path(), &["pack-refs", "--all"]);
        assert_eq!(packed.status.code(), Some(0), "{}", said(&packed));
        assert_eq!(said(&packed).lines().count(), 2, "{}", said(&packed));
        assert_eq!(repo.refs(), before);
    }
}

/// Tables that no list names any more are in nobody's way.
#[test]
fn tables_that_cannot_go_are_merged() {
    for format in [Format::REFTABLE_SHA1, Format::REFTABLE_SHA256] {
        let repo = repository(format);
        let commit = &repo.objects().commits[0];
        for name in ["refs/heads/e", "refs/heads/f"] {
            let separate = ["-c", "reftable.geometricFactor=0", "update-ref"];
            repo.git(separate).args([name, commit]).run().ok();
        }
        let (before, stack) = (repo.refs(), repo.git_dir().join("reftable"));
        let tables = || {
            let entries = fs::read_dir(&stack).expect("a stack").flatten();
            let paths = entries.map(|entry| entry.path());
            paths.filter(|path| path.extension().is_some_and(|end| end == "ref"))
        };
        let change = |attribute: &str| {
            let mut run = Command::new("chattr");
            let done = run.arg(attribute).args(tables()).output();
            done.is_ok_and(|out| out.status.success())
        };
        if !change("+i") {
            eprintln!("chattr +i does not work here: tables that cannot go are not tried");
            return;
        }
        let runs = ["pack-refs", "pack-refs"].map(|command| ours(repo.path(), &[command, "--all"]));
        let left = tables().count();
        assert!(change("-i"));
        for out in runs {
            assert_eq!(out.status.code(), Some(0), "{}", said(&out));
        }
        assert!(left > 1);
        assert_eq!(repo.refs(), before);
        ours(repo.path(), &["pack-refs", "--all"]);
        assert_eq!(tables().count(), 1);
    }
}
