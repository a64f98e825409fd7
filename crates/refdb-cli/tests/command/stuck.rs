//! Files that a transaction of several refs cannot write, however often it is tried: nothing is promised then,
//! and nobody else is kept out.

#![allow(clippy::print_stderr, reason = "says what cannot be tried here")]

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;

use refdb_testkit::for_every_format;
use refdb_testkit::mount::Mounted;
use refdb_testkit::oracle;
use refdb_testkit::repo::Repo;
use refdb_testkit::{Format, RefFormat};

/// Puts something in a place.
type Put = fn(&Path);

/// What stands in the place of the reflog of `refs/heads/a`, by that path.
const IN_THE_WAY: [(&str, Put); 3] = [
    ("a FIFO", |path| {
        let made = Command::new("mkfifo").arg(path).status();
        assert!(made.is_ok_and(|status| status.success()));
    }),
    ("a link in a circle", |path| {
        symlink("a", path).expect("a link")
    }),
    ("a link that leads nowhere", |path| {
        symlink("/none/x", path).expect("a link")
    }),
];

/// A repository with reflogs, in which `refs/heads/a` is about to get another value.
fn repository(format: Format) -> (Repo, String) {
    let repo = Repo::init(format);
    repo.config("core.logAllRefUpdates", "true");
    let [first, second] = [0, 1].map(|at| repo.objects().commits[at].clone());
    repo.git(["update-ref", "-m", "made", "refs/heads/a", &first])
        .run()
        .ok();
    let new = (0..70).map(|at| format!("create refs/heads/n/{at} {second}\n"));
    let input = format!("update refs/heads/a {second}\n{}", new.collect::<String>());
    (repo, input)
}

/// Changes other refs, by refdb and by Git, which nothing may be in the way of.
fn assert_writable(repo: &Repo, what: &str) {
    assert!(!repo.git_dir().join("refdb.journal").exists(), "{what}");
    let commit = &repo.objects().commits[0];
    let input = format!("update refs/heads/x {commit}\nupdate refs/heads/y {commit}\n");
    let ours = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path());
    let out = ours.args(["update-ref", "--stdin"]).stdin(input).run();
    assert!(
        out.status.success(),
        "{what}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    repo.git(["update-ref", "-d", "refs/heads/x"]).run().ok();
}

for_every_format! {
    fn what_has_the_place_of_a_reflog_keeps_nobody_out(format) {
        for (what, put) in IN_THE_WAY {
            for few in [true, false] {
                let (repo, mut input) = repository(format);
                if few {
                    input.truncate(input.match_indices('\n').nth(1).expect("lines").0 + 1);
                }
                let twin = repo.duplicate();
                for repo in [&repo, &twin] {
                    let log = repo.git_dir().join("logs/refs/heads/a");
                    if format.refs == RefFormat::Files {
                        fs::remove_file(&log).expect("a reflog");
                    } else {
                        fs::create_dir_all(log.parent().expect("a folder")).expect("room");
                    }
                    put(&log);
                }
                let ours = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path());
                let out = ours.args(["update-ref", "--stdin"]).stdin(input.as_str()).run();
                let said = String::from_utf8_lossy(&out.stderr).into_owned();
                assert!(!said.contains("in part"), "{what}: {said}");
                if what == "a FIFO" && format.refs == RefFormat::Files {
                    // Git waits for somebody who reads from it.
                    assert!(!out.status.success(), "{said}");
                } else {
                    let beside = twin.git(["update-ref", "--stdin"]).stdin(input).run();
                    assert_eq!(out.status.success(), beside.status.success(), "{what}: {said}");
                }
                assert_eq!(repo.refs(), twin.refs(), "{what}: {said}");
                assert_writable(&repo, what);
            }
        }
    }
}

/// Sets or clears the attribute by which a file, or a directory, may only be added to.
fn chattr(path: &Path, attribute: &str) -> bool {
    let set = Command::new("chattr").arg(attribute).arg(path).output();
    set.is_ok_and(|out| out.status.success())
}

/// What may only be added to can be neither replaced nor removed, by root neither.
#[test]
fn what_may_only_be_added_to_refuses_a_batch_that_would_replace_it() {
    for format in [Format::FILES_SHA1, Format::FILES_SHA256] {
        for place in [
            "logs/refs/heads/b",
            "packed-refs",
            "refs/heads/b",
            "refs/heads",
            "logs/refs/heads",
            "",
        ] {
            let (repo, _) = repository(format);
            let [first, second] = [0, 1].map(|at| repo.objects().commits[at].clone());
            for name in ["refs/heads/b", "refs/heads/p"] {
                repo.git(["update-ref", "-m", "made", name, &first])
                    .run()
                    .ok();
            }
            repo.git(["pack-refs", "--include", "refs/heads/p"])
                .run()
                .ok();
            let (before, path) = (repo.refs(), repo.git_dir().join(place));
            if !chattr(&path, "+a") {
                eprintln!("chattr +a does not work here: append-only files are not tried");
                return;
            }
            let input =
                format!("update refs/heads/a {second}\ndelete refs/heads/b\ndelete refs/heads/p\n");
            let run = || {
                let ours = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path());
                ours.args(["update-ref", "--stdin"]).stdin(&*input).run()
            };
            let (out, found) = (run(), repo.refs());
            assert!(chattr(&path, "-a"), "{place}");
            assert!(!out.status.success(), "{place}: {out:?}");
            assert_eq!(found, before, "{place}: {out:?}");
            assert!(!repo.git_dir().join("refdb.journal").exists(), "{place}");
            // Locks cannot be removed from such a directory: the next one takes them over.
            assert!(run().status.success(), "{place}");
            assert_writable(&repo, place);
        }
    }
}

/// Reflogs that nobody may write to, by the attribute of one or as the file system of all, refuse a batch.
#[test]
fn reflogs_that_may_only_be_read_refuse_a_batch() {
    for format in [Format::FILES_SHA1, Format::FILES_SHA256] {
        for is_mounted in [false, true] {
            let (repo, input) = repository(format);
            let logs = repo.git_dir().join("logs");
            let log = logs.join("refs/heads/a");
            let content = fs::read(&log).expect("a reflog");
            let (mounted, is_fixed) = match is_mounted {
                true => (Mounted::tmpfs("1m", &logs), false),
                false => (Err(String::new()), chattr(&log, "+i")),
            };
            if let Ok(mounted) = &mounted {
                fs::create_dir_all(log.parent().expect("a folder")).expect("room");
                fs::write(&log, &content).expect("room");
                mounted.make_read_only();
            } else if !is_fixed {
                eprintln!(
                    "reflogs that may only be read are not tried: chattr or mount does not work here"
                );
                continue;
            }
            let before = repo.refs();
            let ours = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path());
            let out = ours.args(["update-ref", "--stdin"]).stdin(&*input).run();
            let said = String::from_utf8_lossy(&out.stderr);
            assert!(!out.status.success() && !said.contains("in part"), "{said}");
            assert_eq!(repo.refs(), before, "{said}");
            match &mounted {
                Ok(mounted) => mounted.make_writable(),
                Err(_) => assert!(chattr(&log, "-i")),
            }
            assert_writable(&repo, "reflogs");
        }
    }
}

/// What a container mounts alone can be neither replaced nor removed while it is.
#[test]
fn a_file_that_is_mounted_refuses_a_batch_that_would_replace_it() {
    for format in [Format::FILES_SHA1, Format::FILES_SHA256] {
        for place in ["packed-refs", "refs/heads/a", "refs/heads/b"] {
            let (repo, mut input) = repository(format);
            let first = &repo.objects().commits[0];
            for name in ["refs/heads/b", "refs/heads/p"] {
                repo.git(["update-ref", "-m", "made", name, first])
                    .run()
                    .ok();
            }
            repo.git(["pack-refs", "--include", "refs/heads/p"])
                .run()
                .ok();
            input.push_str("delete refs/heads/b\ndelete refs/heads/p\n");
            let (before, path) = (repo.refs(), repo.git_dir().join(place));
            let mounted = match Mounted::bind(&path, &path) {
                Ok(mounted) => mounted,
                Err(reason) => {
                    eprintln!("mounted files are not tried: {reason}");
                    return;
                }
            };
            let run = || {
                let ours = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path());
                ours.args(["update-ref", "--stdin"]).stdin(&*input).run()
            };
            let out = run();
            let said = String::from_utf8_lossy(&out.stderr);
            assert!(!out.status.success(), "{place}");
            assert!(said.contains("mount the directory instead"), "{said}");
            assert_eq!(repo.refs(), before, "{place}: {said}");
            if place != "packed-refs" {
                assert_writable(&repo, place);
            }
            drop(mounted);
            assert!(run().status.success(), "{place}");
            assert_writable(&repo, place);
        }
    }
}

/// Reflogs on a disk that is not there: what cannot be written is seen before anything is promised, as by Git.
#[test]
fn a_link_to_nowhere_in_the_place_of_reflogs_refuses_a_batch() {
    for format in [Format::FILES_SHA1, Format::FILES_SHA256] {
        for place in ["logs", "logs/refs/heads", "logs/refs/heads/n"] {
            for count in [2, 70] {
                let (repo, _) = repository(format);
                let path = repo.git_dir().join(place);
                if path.exists() {
                    fs::remove_dir_all(&path).expect("a folder");
                }
                symlink("gone", &path).expect("a link");
                let before = repo.refs();
                let commit = &repo.objects().commits[0];
                let new = (0..count).map(|at| format!("create refs/heads/n/{at} {commit}\n"));
                let input: String = new.collect();
                let ours = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path());
                for (run, whose) in [(ours, "refdb"), (repo.git([""; 0]), "git")] {
                    let out = run
                        .args(["update-ref", "--stdin"])
                        .stdin(input.as_str())
                        .run();
                    assert!(!out.status.success(), "{whose}, {place}, {count}");
                    assert_eq!(repo.refs(), before, "{whose}, {place}, {count}");
                }
            }
        }
    }
}

/// Gives a repository to a user and a group.
fn give_to(repo: &Repo, user: &str) -> bool {
    let given = Command::new("chown")
        .args(["-R", user])
        .arg(repo.path())
        .status();
    given.is_ok_and(|status| status.success())
}

/// Somebody's reflog, or ref, that another user may not write: root did something in this repository once.
#[test]
fn what_is_anothers_keeps_nobody_out() {
    for what in ["logs/refs/heads/a", "logs/refs/heads", "sticky"] {
        let (repo, input) = repository(Format::FILES_SHA1);
        let git_dir = repo.git_dir();
        let before = repo.refs();
        if !give_to(&repo, "1001:1001") {
            eprintln!("skipped: only root gives files to others");
            return;
        }
        let locked = match what {
            "sticky" => {
                let dir = git_dir.join("refs/heads");
                fs::set_permissions(&dir, fs::Permissions::from_mode(0o1777)).expect("ours");
                chown(&dir, Some(0), Some(0)).expect("root may");
                dir.join("a")
            }
            what => git_dir.join(what),
        };
        chown(&locked, Some(0), Some(0)).expect("root may");
        // What is at stake is one of them, not all reflogs.
        let input = match what {
            "logs/refs/heads" => input.replace("refs/heads/n/", "refs/heads/n"),
            _ => input,
        };
        let script =
            "exec setpriv --reuid 1001 --regid 1001 --clear-groups \"$0\" update-ref --stdin";
        let ours = oracle::run_of("/bin/sh", repo.path()).env("HOME", "/none");
        let out = ours
            .args(["-c", script, env!("CARGO_BIN_EXE_refdb")])
            .stdin(input)
            .run();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(
            !out.status.success() && !said.contains("in part"),
            "{what}: {said}"
        );
        assert!(
            said.contains("ermission denied") || said.contains("not permitted"),
            "{what}: {said}"
        );
        assert!(give_to(&repo, "0:0"));
        assert_eq!(repo.refs(), before, "{what}: {said}");
        assert_writable(&repo, what);
    }
}

/// A folder can be moved only by who may write in it: that is seen before anything is done.
#[test]
fn a_folder_that_cannot_be_moved_refuses_a_migration() {
    for format in [Format::FILES_SHA1, Format::REFTABLE_SHA1] {
        let folders: &[&str] = match format.refs {
            RefFormat::Files => &["refs", "logs"],
            RefFormat::Reftable => &["reftable"],
        };
        for folder in folders {
            let (repo, _) = repository(format);
            let path = repo.git_dir().join(folder);
            let (before, listed) = (repo.refs(), names_in(&repo.git_dir()));
            if !give_to(&repo, "1001:1001") {
                eprintln!("skipped: only root gives files to others");
                return;
            }
            fs::set_permissions(&path, fs::Permissions::from_mode(0o555)).expect("root may");
            let to = match format.refs {
                RefFormat::Files => "reftable",
                RefFormat::Reftable => "files",
            };
            let script = "exec setpriv --reuid 1001 --regid 1001 --clear-groups \"$0\" refs migrate --ref-format=$1";
            let ours = oracle::run_of("/bin/sh", repo.path()).env("HOME", "/none");
            let out = ours
                .args(["-c", script, env!("CARGO_BIN_EXE_refdb"), to])
                .run();
            let said = String::from_utf8_lossy(&out.stderr).into_owned();
            assert!(!out.status.success(), "{folder}: {said}");
            assert!(said.contains("nothing was changed"), "{folder}: {said}");
            assert_eq!(names_in(&repo.git_dir()), listed, "{folder}: {said}");
            assert!(give_to(&repo, "0:0"));
            assert_eq!(repo.refs(), before, "{folder}");
        }
    }
}

/// Lists a folder.
fn names_in(folder: &Path) -> Vec<OsString> {
    let entries = fs::read_dir(folder).expect("a folder").flatten();
    let mut names: Vec<OsString> = entries.map(|entry| entry.file_name()).collect();
    names.sort();
    names
}

/// Whoever began to migrate was killed before he had let the others into his folder: with nothing in it, it keeps nobody
/// out. What is in it stays.
#[test]
fn a_folder_of_a_migration_that_was_just_made_keeps_nobody_out() {
    for format in [Format::FILES_SHA1, Format::REFTABLE_SHA1] {
        let (repo, input) = repository(format);
        let folder = repo.git_dir().join("refdb-migration");
        fs::create_dir(&folder).expect("made");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).expect("ours");
        fs::write(folder.join("new"), "").expect("written");
        if !give_to(&repo, "1001:1001") {
            eprintln!("skipped: only root gives files to others");
            return;
        }
        chown(&folder, Some(0), Some(0)).expect("root may");
        let run = |args: &str| {
            let script =
                format!("exec setpriv --reuid 1001 --regid 1001 --clear-groups \"$0\" {args}");
            let ours = oracle::run_of("/bin/sh", repo.path()).env("HOME", "/none");
            ours.args(["-c", &script, env!("CARGO_BIN_EXE_refdb")])
                .stdin(input.clone())
                .run()
        };
        let to = match format.refs {
            RefFormat::Files => "reftable",
            RefFormat::Reftable => "files",
        };
        let migrate = format!("refs migrate --ref-format={to}");
        assert!(
            !run(&migrate).status.success(),
            "it may be of one that runs"
        );
        assert!(folder.join("new").exists());
        fs::remove_file(folder.join("new")).expect("root may");
        for args in ["update-ref --stdin", &migrate] {
            let out = run(args);
            let said = String::from_utf8_lossy(&out.stderr);
            assert!(out.status.success(), "{args}: {said}");
        }
    }
}

/// Loose refs that only others may lock are packed, and stay; Git ends well, and tells each.
#[test]
fn refs_that_only_others_may_lock_are_packed_and_stay() {
    let (repo, _) = repository(Format::FILES_SHA1);
    let before = repo.refs();
    if !give_to(&repo, "1001:1001") {
        eprintln!("skipped: only root gives files to others");
        return;
    }
    let heads = repo.git_dir().join("refs/heads");
    chown(&heads, Some(0), Some(0)).expect("root may");
    let run = |program: &str| {
        let script = "exec setpriv --reuid 1001 --regid 1001 --clear-groups \"$0\" pack-refs --all";
        let run = oracle::run_of("/bin/sh", repo.path()).env("HOME", "/none");
        let out = run.args(["-c", script, program]).run();
        (
            out.code(),
            String::from_utf8_lossy(&out.stderr).lines().count(),
        )
    };
    let ours = run(env!("CARGO_BIN_EXE_refdb"));
    assert!(heads.join("a").exists(), "it stays");
    let theirs = run(&oracle::program().display().to_string());
    assert!(give_to(&repo, "0:0"));
    assert_eq!((ours, repo.refs()), (theirs, before));
    assert!(ours.1 > 0);
}

/// What somebody may not read is passed over by a check, with the words of Git, and not counted.
#[test]
fn a_check_passes_over_what_it_may_not_read() {
    let (repo, _) = repository(Format::FILES_SHA1);
    let commit = repo.objects().commits[0].to_string();
    let places = ["a/x", "file/x", "folder/x", "listed/x", "z/x"];
    let creates = places.map(|place| format!("create refs/{place} {commit}\n"));
    repo.update_refs(creates.concat());
    if !give_to(&repo, "1001:1001") {
        eprintln!("skipped: only root gives files to others");
        return;
    }
    for (place, mode) in [("file/x", 0), ("folder", 0), ("listed", 0o444)] {
        let path = repo.git_dir().join("refs").join(place);
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("ours");
    }
    let run = |program: &str, args: &str| {
        let script = format!("exec setpriv --reuid 1001 --regid 1001 --clear-groups \"$0\" {args}");
        let run = oracle::run_of("/bin/sh", repo.path()).env("HOME", "/none");
        let out = run.args(["-c", &script, program]).run();
        (
            out.code(),
            String::from_utf8_lossy(&out.stderr).into_owned(),
        )
    };
    let (ours, git) = (
        env!("CARGO_BIN_EXE_refdb"),
        oracle::program().display().to_string(),
    );
    let verify = "refs verify --verbose";
    let (checked, by_git) = (run(ours, verify), run(&git, verify));
    let inspected = run(ours, "inspect");
    assert!(give_to(&repo, "0:0"));
    assert_eq!(checked, by_git);
    for part in [
        "warning: error opening",
        "warning: failed to stat",
        "error: cannot read",
    ] {
        assert!(checked.1.contains(part), "{part}: {checked:?}");
    }
    assert_eq!(inspected.0, 0, "{inspected:?}");
    assert!(inspected.1.contains("refs/folder'"), "{inspected:?}");
}

/// Where a lock keeps tables from being merged, that of the list or of one table, it is told which, and what is
/// known of who holds it.
#[test]
fn whoever_packs_is_told_of_the_lock_in_the_way() {
    for format in [Format::REFTABLE_SHA1, Format::REFTABLE_SHA256] {
        let (repo, _) = repository(format);
        let dir = repo.git_dir().join("reftable");
        for name in ["one", "two"] {
            let script = format!("create refs/heads/{name} {}\n", repo.objects().commits[0]);
            let git = repo.git(["update-ref", "--stdin"]).stdin(script);
            git.env("GIT_TEST_REFTABLE_AUTOCOMPACTION", "false")
                .run()
                .ok();
        }
        let list = fs::read_to_string(dir.join("tables.list")).expect("a list");
        let table = list.lines().last().expect("a table");
        for name in ["tables.list", table] {
            let lock = dir.join(format!("{name}.lock"));
            fs::write(&lock, "").expect("a lock");
            for args in [&["pack-refs", "--all"][..], &["refs", "optimize", "--all"]] {
                let ours = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path());
                let out = ours
                    .args(["-c", "reftable.lockTimeout=10"])
                    .args(args)
                    .run();
                let said = String::from_utf8_lossy(&out.stderr).into_owned();
                assert_eq!(out.code(), 255, "{said}");
                let words = "error: unable to compact stack: data is locked\n";
                assert!(said.starts_with(words), "{said}");
                let file = format!("{name}.lock': File exists");
                assert!(said.contains(&file), "{said}");
                assert!(said.contains("refdb did not make it"), "{said}");
            }
            fs::remove_file(&lock).expect("it goes");
        }
    }
}
