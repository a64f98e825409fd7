//! Where something runs out, or is not as it should be: a full disk, no descriptors, folders that
//! cannot be written, links in the place of folders, very long lines, very long reflogs.
//!
//! Nothing is lost, nothing is left in the way, nothing panics, and memory stays bounded. Where Git
//! goes on, the answers are Git's.

#![allow(clippy::print_stderr, reason = "says what cannot be tried here")]

mod memory;

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use bstr::ByteSlice;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use refdb_testkit::mount::Mounted;
use refdb_testkit::oracle::{self, GitRun, Output};
use refdb_testkit::repo::Repo;
use refdb_testkit::{RefFormat, for_every_format};

fn refdb(dir: &Path) -> GitRun {
    oracle::run_of(env!("CARGO_BIN_EXE_refdb"), dir)
}

/// Runs refdb with limits as `ulimit` takes them.
fn limited(dir: &Path, limits: &str, args: &str, input: impl Into<Vec<u8>>) -> Output {
    let script = format!("ulimit {limits} && exec \"$0\" {args}");
    oracle::run_of("/bin/bash", dir)
        .args(["-c", &script, env!("CARGO_BIN_EXE_refdb")])
        .stdin(input)
        .run()
}

/// So much memory, in kilobytes, must do for everything here.
const MEMORY: &str = "-v 700000";

fn create(names: impl Iterator<Item = String>, id: &str) -> String {
    names.map(|name| format!("create {name} {id}\n")).collect()
}

fn branches(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|number| format!("refs/heads/b{number:05}"))
}

/// Puts a copy of a repository into a folder.
fn copy(repo: &Repo, to: &Path) {
    let copied = Command::new("/bin/cp")
        .arg("-a")
        .arg(repo.path())
        .arg(to)
        .status();
    assert!(copied.is_ok_and(|status| status.success()));
}

fn list(dir: &Path) -> String {
    refdb(dir).args(["for-each-ref"]).run().text()
}

fn locks_below(dir: &Path) -> Vec<String> {
    let found = Command::new("/usr/bin/find")
        .arg(dir)
        .args(["-name", "*.lock"])
        .output();
    let found = found.expect("find runs").stdout;
    found
        .lines()
        .map(|line| line.to_str_lossy().into_owned())
        .collect()
}

for_every_format! {
    fn a_full_disk_changes_nothing(format) {
        let folder = tempfile::tempdir().expect("a folder");
        let mounted = match Mounted::tmpfs("16m", folder.path()) {
            Ok(mounted) => mounted,
            Err(reason) => {
                eprintln!("skipped: {reason}");
                return;
            }
        };
        let repo = Repo::init(format);
        repo.update_refs(create(branches(20), &repo.objects().commits[0]));
        let dir = mounted.path().join("repo");
        copy(&repo, &dir);
        let before = list(&dir);
        let filler = mounted.path().join("filler");
        let mut file = fs::File::create(&filler).expect("room");
        while file.write_all(&[7; 4096]).is_ok() {}
        while file.write_all(&[7; 1]).is_ok() {}
        let id = &repo.objects().commits[1];
        let update = |count| {
            branches(count).map(|name| format!("update {name} {id}\n")).collect::<String>()
        };
        for script in [update(1), update(5), update(3000), "delete refs/heads/b00003\n".into()] {
            let out = refdb(&dir).args(["update-ref", "--stdin"]).stdin(script).run();
            if !out.status.success() {
                assert!(out.stderr.contains_str("No space left"), "{}", out.stderr.as_bstr());
                assert_eq!(list(&dir), before);
            }
            assert_eq!(locks_below(&dir), [""; 0]);
            assert!(refdb(&dir).args(["refs", "verify", "--deep"]).run().code() <= 1);
        }
        drop(file);
        fs::remove_file(filler).expect("it is there");
        // A process that another test is just starting may have the file open for a moment.
        let has_room = || fs::write(mounted.path().join("room"), [7; 1 << 20]).is_ok();
        let waited = (0..100).find(|_| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            has_room()
        });
        assert!(waited.is_some(), "there is no room");
        refdb(&dir).args(["update-ref", "--stdin"]).stdin(update(100)).run().ok();
        assert_eq!(refdb(&dir).args(["refs", "verify", "--deep"]).run().code(), 0);
    }

    fn few_descriptors_do_for_many_refs(format) {
        let repo = Repo::init(format);
        let count = 50_000;
        let script = create(branches(count), &repo.objects().commits[0]);
        let settings = "-c core.logAllRefUpdates=false -c core.fsync=none";
        let args = format!("{settings} update-ref --stdin");
        let out = limited(repo.path(), "-n 24", &args, script);
        assert!(out.status.success(), "{}", out.stderr.as_bstr());
        let listed = limited(repo.path(), "-n 24", "for-each-ref", "");
        assert_eq!(listed.stdout.lines().count(), count);
        let again = "update refs/heads/b00000 ".to_owned() + &repo.objects().commits[1] + "\n";
        let out = limited(repo.path(), "-n 24", "update-ref --stdin", again);
        assert!(out.status.success(), "{}", out.stderr.as_bstr());
    }

    fn a_read_only_file_system_can_be_read(format) {
        let folder = tempfile::tempdir().expect("a folder");
        let mounted = match Mounted::tmpfs("20m", folder.path()) {
            Ok(mounted) => mounted,
            Err(reason) => {
                eprintln!("skipped: {reason}");
                return;
            }
        };
        let repo = Repo::init(format);
        repo.update_refs(create(branches(20), &repo.objects().commits[0]));
        copy(&repo, &mounted.path().join("repo"));
        mounted.make_read_only();
        let dir = mounted.path().join("repo");
        assert_eq!(list(&dir), list(repo.path()));
        let id = &repo.objects().commits[1];
        let out = refdb(&dir).args(["update-ref", "refs/heads/b00003", id]).run();
        assert_eq!(out.code(), 128);
        assert!(out.stderr.contains_str("Read-only file system"), "{}", out.stderr.as_bstr());
        assert_eq!(refdb(&dir).args(["refs", "verify", "--deep"]).run().code(), 0);
    }

    fn a_repository_of_somebody_else_is_refused_as_by_git(format) {
        let repo = Repo::init(format);
        let chowned = Command::new("/bin/chown").args(["-R", "12345"]).arg(repo.path()).output();
        if !chowned.is_ok_and(|out| out.status.success()) {
            eprintln!("skipped: the owner cannot be changed");
            return;
        }
        let args = ["for-each-ref"];
        let git = oracle::git(repo.path()).args(args).run();
        let ours = refdb(repo.path()).args(args).run();
        assert_eq!((ours.code(), ours.stdout), (git.code(), git.stdout));
        let first = |text: &[u8]| text.lines().next().map(<[u8]>::to_vec);
        assert_eq!(first(&ours.stderr), first(&git.stderr), "{}", ours.stderr.as_bstr());
    }

    fn hostile_names_lead_nowhere(format) {
        let repo = Repo::init(format);
        let id = &repo.objects().commits[0];
        for name in [
            "refs/heads/../../x", "refs/heads/..", "../x", "refs/heads/a/../../../../x",
            "refs//heads/x", "/refs/heads/x", "refs/heads/.x", "refs/heads/x.lock", "objects/x",
            "config", "HEAD.lock", "refs/heads/\u{1}",
        ] {
            for args in [&["update-ref", name, id][..], &["symbolic-ref", name, "refs/heads/main"]] {
                let git = repo.duplicate();
                let ours = refdb(repo.path()).args(args).run();
                let theirs = git.git(args).run();
                assert_eq!(ours.code(), theirs.code(), "{args:?}: {}", ours.stderr.as_bstr());
            }
        }
        assert_eq!(list(repo.path()), "");
        assert!(!repo.path().join("x").exists() && !repo.path().parent().expect("a folder").join("x").exists());
    }

    fn very_long_lines_are_told_and_not_kept_in_memory(format) {
        let repo = Repo::init(format);
        repo.update_refs(create(branches(20), &repo.objects().commits[0]));
        let git_dir = repo.git_dir();
        let long = vec![b'a'; 64 << 20];
        let files: &[&str] = match format.refs {
            RefFormat::Files => &["refs/heads/b00003", "packed-refs", "logs/refs/heads/b00004"],
            RefFormat::Reftable => &["reftable/tables.list"],
        };
        for file in files {
            let path = git_dir.join(file);
            let old = fs::read(&path).ok();
            fs::write(&path, &long).expect("room");
            for args in [
                "for-each-ref",
                "show-ref --verify refs/heads/b00003",
                "reflog show refs/heads/b00004",
                "refs verify",
                "refs verify --deep",
                "refs repair --dry-run",
            ] {
                let out = limited(repo.path(), MEMORY, args, "");
                let code = out.status.code();
                assert!(code.is_some_and(|code| code < 256), "{file}, {args}: {out:?}");
                assert!(!out.stderr.contains_str("panicked"), "{}", out.stderr.as_bstr());
                // Git's own check shows the content that it finds fault with, and so does ours.
                let most = if args == "refs verify" { 1 << 28 } else { 1 << 20 };
                assert!(out.stderr.len() < most, "{file}, {args}: {}", out.stderr.len());
                assert!(out.stdout.len() < 1 << 20, "{file}, {args}: {}", out.stdout.len());
            }
            match old {
                Some(old) => fs::write(&path, old).expect("room"),
                None => fs::remove_file(&path).expect("it is there"),
            }
        }
        assert_eq!(list(repo.path()).lines().count(), 20);
    }
}

#[test]
fn a_reflog_of_a_million_entries() {
    let repo = Repo::init(refdb_testkit::Format::FILES_SHA1);
    let commits = &repo.objects().commits;
    repo.update_refs(format!("create refs/heads/main {}\n", commits[0]));
    let path = repo.git_dir().join("logs/refs/heads/main");
    let mut log = Vec::new();
    for number in 0..1_000_000_u64 {
        let (old, new) = (
            &commits[usize::from(number % 2 == 1)],
            &commits[usize::from(number % 2 == 0)],
        );
        let time = 1_600_000_000 + number;
        writeln!(log, "{old} {new} A U Thor <a@b> {time} +0000\tx").expect("memory");
    }
    fs::write(&path, log).expect("room");
    let run = |args: &str| {
        let out = limited(repo.path(), "-v 300000", args, "");
        assert!(out.status.success(), "{args}: {}", out.stderr.as_bstr());
        out.stdout
    };
    assert_eq!(run("reflog show -n 2 refs/heads/main").lines().count(), 2);
    let id = &commits[3];
    run(&format!("update-ref refs/heads/main {id}"));
    run("reflog expire --expire=2021-01-01 refs/heads/main");
    let left = fs::read(&path).expect("it is there");
    assert!(left.lines().count() < 1_000_000);
}

#[test]
fn links_in_the_place_of_folders_are_followed_as_by_git() {
    for link in ["refs/heads/sub", "refs/heads"] {
        let outside = tempfile::tempdir().expect("a folder");
        let repos = [
            Repo::init(refdb_testkit::Format::FILES_SHA1),
            Repo::init(refdb_testkit::Format::FILES_SHA1),
        ];
        let mut found = Vec::new();
        for (number, repo) in repos.iter().enumerate() {
            let commits = &repo.objects().commits;
            let target = outside.path().join(number.to_string());
            fs::create_dir(&target).expect("a folder");
            fs::write(target.join("there"), format!("{}\n", commits[0])).expect("a ref");
            let path = repo.git_dir().join(link);
            let _ = fs::remove_dir_all(&path);
            symlink(&target, &path).expect("a link");
            let run = |args: &[&str]| match number {
                0 => refdb(repo.path()).args(args).run(),
                _ => repo.git(args).run(),
            };
            let there = format!("{link}/there");
            let new = format!("{link}/new");
            let codes = [
                run(&["update-ref", &there, &commits[1]]).code(),
                run(&["update-ref", &new, &commits[2]]).code(),
                run(&["update-ref", "-d", &there]).code(),
                run(&["pack-refs", "--all"]).code(),
            ];
            let listed = run(&["for-each-ref"]).text();
            let left = fs::read_dir(&target).expect("a folder").count();
            found.push((codes, listed, left));
        }
        assert_eq!(found[0], found[1], "{link}");
    }
}

#[test]
fn what_is_no_file_is_not_waited_for() {
    for (format, files) in [
        (
            refdb_testkit::Format::FILES_SHA1,
            &["packed-refs", "HEAD", "refdb.journal", "config"][..],
        ),
        (
            refdb_testkit::Format::REFTABLE_SHA1,
            &["reftable/tables.list", "reftable/table", "config"][..],
        ),
    ] {
        let repo = Repo::init(format);
        repo.update_refs(create(branches(20), &repo.objects().commits[0]));
        repo.git(["pack-refs", "--all"]).run().ok();
        for file in files {
            let git_dir = repo.git_dir();
            let path = match *file {
                "reftable/table" => {
                    let list = git_dir.join("reftable/tables.list");
                    let list = fs::read_to_string(list).expect("a list");
                    git_dir
                        .join("reftable")
                        .join(list.lines().next().expect("a table"))
                }
                file => git_dir.join(file),
            };
            let old = fs::read(&path).ok();
            for make in ["/usr/bin/mkfifo", "/bin/ln -s /dev/zero"] {
                let _ = fs::remove_file(&path);
                let mut words = make.split(' ');
                let program = words.next().expect("a program");
                let made = Command::new(program).args(words).arg(&path).status();
                assert!(made.expect("it runs").success(), "{make}");
                for args in [
                    "for-each-ref",
                    "update-ref -d refs/heads/b00003",
                    "pack-refs --all",
                    "refs verify --deep",
                    "refs repair --dry-run",
                ] {
                    let script = format!("{MEMORY} && exec timeout 20 \"$0\" {args}");
                    let out = oracle::run_of("/bin/bash", repo.path())
                        .args([
                            "-c",
                            &format!("ulimit {script}"),
                            env!("CARGO_BIN_EXE_refdb"),
                        ])
                        .run();
                    let said = &[&out.stderr[..], &out.stdout].concat();
                    let said = said.as_bstr();
                    // 124 and 137 say that the time was up.
                    assert!(![124, 137].contains(&out.code()), "{file}, {args}: {said}");
                    // What has the place of the journal keeps nobody from reading.
                    let goes_on = *file == "refdb.journal" && args == "for-each-ref";
                    assert_eq!(out.code() == 0, goes_on, "{file}, {args}: {said}");
                    let name = path
                        .file_name()
                        .and_then(|name| name.to_str())
                        .expect("a name");
                    let is_told =
                        said.contains_str(name) || said.contains_str("not a git repository");
                    assert!(is_told, "{file}, {args}: {said}");
                }
            }
            fs::remove_file(&path).expect("it is there");
            if let Some(old) = old {
                fs::write(&path, old).expect("room");
            }
        }
        assert_eq!(list(repo.path()).lines().count(), 20);
    }
}

#[test]
fn a_lock_that_keeps_all_reflogs_is_waited_for_once_and_told_once() {
    for format in [
        refdb_testkit::Format::REFTABLE_SHA1,
        refdb_testkit::Format::REFTABLE_SHA256,
    ] {
        let repo = Repo::init(format);
        let script = create(branches(100), &repo.objects().commits[0]);
        repo.update_refs(script);
        let before = refdb(repo.path()).args(["reflog", "list"]).run().text();
        assert_eq!(before.lines().count(), 100);
        let lock = repo.git_dir().join("reftable/tables.list.lock");
        fs::write(&lock, "").expect("room");
        // Waited for by each, it would take 40 s.
        let args = "-c reftable.lockTimeout=400 reflog expire --expire=now --all";
        let script = format!("exec timeout -s KILL 20 \"$0\" {args}");
        let out = oracle::run_of("/bin/bash", repo.path())
            .args(["-c", &script, env!("CARGO_BIN_EXE_refdb")])
            .run();
        let said = out.stderr.as_bstr();
        assert_eq!(out.code(), 251, "{said}");
        assert_eq!(said.find_iter("cannot lock").count(), 1, "{said}");
        assert!(said.contains_str("99 more reflogs"), "{said}");
        fs::remove_file(&lock).expect("it is there");
        refdb(repo.path())
            .args(["reflog", "expire", "--expire=now", "--all"])
            .run()
            .ok();
        let left = refdb(repo.path())
            .args(["reflog", "show", "refs/heads/b00099"])
            .run();
        assert_eq!(left.text(), "");
    }
}

#[test]
fn holes_are_not_read_to_their_end() {
    for format in [
        refdb_testkit::Format::FILES_SHA1,
        refdb_testkit::Format::FILES_SHA256,
    ] {
        let repo = Repo::init(format);
        repo.update_refs(create(branches(20), &repo.objects().commits[0]));
        repo.git(["pack-refs", "--all"]).run().ok();
        for (file, told) in [
            ("logs/refs/heads/b00004", "b00004"),
            ("packed-refs", "packed-refs"),
        ] {
            let path = repo.git_dir().join(file);
            let before = fs::read(&path).expect("it is there");
            let opened = fs::File::options().write(true).open(&path);
            if let Err(error) = opened.expect("it is there").set_len(1 << 42) {
                eprintln!("not tried: no file of 4 TiB can be here: {error}");
                return;
            }
            for args in [
                "refs verify --deep",
                "refs repair --dry-run",
                "reflog expire --expire=now refs/heads/b00004",
            ] {
                let script = format!("ulimit -d 1000000; exec timeout -s KILL 30 \"$0\" {args}");
                let out = oracle::run_of("/bin/bash", repo.path())
                    .args(["-c", &script, env!("CARGO_BIN_EXE_refdb")])
                    .run();
                let said = [out.stdout.as_slice(), &out.stderr].concat();
                let is_plan = out.code() == 0 && args.ends_with("--dry-run");
                assert!(
                    is_plan || ![0, 134, 137].contains(&out.code()),
                    "{file}, {args}: {}",
                    out.code()
                );
                assert!(
                    said.contains_str(told),
                    "{file}, {args}: {}",
                    said.as_bstr()
                );
            }
            fs::write(&path, before).expect("room");
        }
    }
}

#[test]
fn of_many_locks_that_others_hold_one_is_waited_for() {
    for format in [
        refdb_testkit::Format::FILES_SHA1,
        refdb_testkit::Format::FILES_SHA256,
    ] {
        let repo = Repo::init(format);
        let commit = &repo.objects().commits[0];
        repo.update_refs(create(branches(100), commit));
        let mut batch = String::new();
        for name in branches(100) {
            batch += &format!("update {name} {commit}\n");
            fs::write(repo.git_dir().join(format!("{name}.lock")), "").expect("room");
        }
        // Each lock waited for, it would take 40 s.
        for (args, code) in [
            ("reflog expire --expire=now --all", 255),
            ("pack-refs --all", 0),
            ("update-ref --stdin --batch-updates", 0),
        ] {
            let args = format!("-c core.filesRefLockTimeout=400 {args}");
            let script = format!("exec timeout -s KILL 20 \"$0\" {args}");
            let out = oracle::run_of("/bin/bash", repo.path())
                .args(["-c", &script, env!("CARGO_BIN_EXE_refdb")])
                .stdin(batch.clone())
                .run();
            assert_eq!(out.code(), code, "{args}: {}", out.stderr.as_bstr());
        }
    }
}

/// A table of nothing but so many log blocks, each of which is a few kilobytes that become 16 MiB.
/// The length that a block states is right, or `stated`.
fn bombs(count: usize, stated: Option<u32>) -> Vec<u8> {
    const LEN: u32 = 0x00ff_ffff;
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    let content = vec![0; usize::try_from(LEN - 4).expect("small")];
    encoder.write_all(&content).expect("memory");
    let deflated = encoder.finish().expect("memory");
    assert!(deflated.len() < 20_000, "{}", deflated.len());
    let mut table = b"REFT\x01\x00\x10\x00".to_vec();
    table.extend(1000_u64.to_be_bytes());
    table.extend(1100_u64.to_be_bytes());
    let mut footer = table.clone();
    for _ in 0..count {
        let mut head = stated.unwrap_or(LEN).to_be_bytes();
        head[0] = b'g';
        table.extend(head);
        table.extend(&deflated);
    }
    for offset in [0, 0, 0, 24_u64, 0] {
        footer.extend(offset.to_be_bytes());
    }
    let mut crc = flate2::Crc::new();
    crc.update(&footer);
    footer.extend(crc.sum().to_be_bytes());
    table.extend(footer);
    table
}

#[test]
fn blocks_that_become_very_large_are_told_and_not_kept_in_memory() {
    let repo = Repo::init(refdb_testkit::Format::REFTABLE_SHA1);
    let commits = &repo.objects().commits;
    repo.update_refs(create(branches(20), &commits[0]));
    let before = list(repo.path());
    let dir = repo.git_dir().join("reftable");
    let list_path = dir.join("tables.list");
    let listed = fs::read_to_string(&list_path).expect("a list");
    let name = "0x0000000003e8-0x00000000044c-b0b0b0b0.ref";
    for stated in [None, Some(5000)] {
        fs::write(dir.join(name), bombs(40, stated)).expect("room");
        fs::write(&list_path, format!("{listed}{name}\n")).expect("room");
        for (args, fails) in [
            ("for-each-ref", false),
            ("show-ref --verify refs/heads/b00003", false),
            ("reflog show refs/heads/b00004", true),
            ("reflog list", true),
            ("pack-refs --all", true),
            ("refs verify --deep", true),
            ("refs repair --dry-run", true),
            ("inspect", true),
        ] {
            // Of 40 blocks with 16 MiB, not even four are there at the same time.
            let out = limited(repo.path(), "-v 64000", args, "");
            let said = [out.stdout.as_slice(), out.stderr.as_slice()].concat();
            assert!(out.status.code().is_some(), "{args}: {}", said.as_bstr());
            assert!(!said.contains_str("panicked"), "{args}: {}", said.as_bstr());
            assert_eq!(!out.status.success(), fails, "{args}: {}", said.as_bstr());
            assert!(
                !fails || said.contains_str(name),
                "{args}: {}",
                said.as_bstr()
            );
            assert!(said.len() < 1 << 20, "{args}: {}", said.len());
        }
        assert_eq!(list(repo.path()), before);
        refdb(repo.path()).args(["refs", "repair"]).run();
        assert_eq!(list(repo.path()), before, "after a repair");
        repo.assert_sound();
        fs::write(&list_path, &listed).expect("room");
        let _ = fs::remove_file(dir.join(name));
    }
}
