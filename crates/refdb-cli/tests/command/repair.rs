//! `refs repair` and `inspect` as commands: what they show, what they change, how they end.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use bstr::ByteSlice;
use refdb_testkit::forge;
use refdb_testkit::oracle::{self, Output};
use refdb_testkit::repo::Repo;
use refdb_testkit::{Format, RefFormat, for_every_format};
use serde_json::Value;

fn refdb(repo: &Repo, args: &[&str]) -> Output {
    let ours = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path());
    ours.args(args).run()
}

fn repo(format: Format) -> Repo {
    let repo = Repo::init(format);
    let objects = repo.objects();
    let script: String = (0..20)
        .map(|at| format!("create refs/heads/b{at} {}\n", objects.commits[at]))
        .collect();
    repo.update_refs(script);
    repo
}

/// Does what a power failure does to Git's newest table, or to a loose ref.
fn power_failure(repo: &Repo) -> PathBuf {
    let git_dir = repo.git_dir();
    let (path, from) = match repo.format().refs {
        RefFormat::Files => (git_dir.join("refs/heads/b3"), 0),
        RefFormat::Reftable => {
            let list = fs::read_to_string(git_dir.join("reftable/tables.list")).expect("a list");
            let newest = list.lines().last().expect("a table");
            let path = git_dir.join("reftable").join(newest);
            let version = fs::read(&path).expect("a table")[4];
            let footer = if version == 1 { 68 } else { 72 };
            let len = fs::metadata(&path).expect("a table").len();
            (path, usize::try_from(len).expect("a small table") - footer)
        }
    };
    let mut bytes = fs::read(&path).expect("a file");
    bytes[from..].fill(0);
    fs::write(&path, bytes).expect("it can be written");
    path
}

/// Makes a FIFO, or a directory, in the place of a file.
fn put_in_its_place(path: &Path, a_fifo: bool) {
    // Not every file is there.
    let _ = fs::remove_file(path);
    if !a_fifo {
        return fs::create_dir(path).expect("a directory");
    }
    let made = Command::new("mkfifo").arg(path).status();
    assert!(made.is_ok_and(|status| status.success()));
}

/// Returns the files of a repository that something else can stand in for, and whether a directory can.
fn files_of(repo: &Repo) -> Vec<(PathBuf, bool)> {
    let git_dir = repo.git_dir();
    match repo.format().refs {
        RefFormat::Files => vec![
            (git_dir.join("packed-refs"), true),
            (git_dir.join("refs/heads/late"), false),
            (git_dir.join("logs/refs/heads/late"), false),
        ],
        RefFormat::Reftable => {
            let stack = git_dir.join("reftable");
            let list = fs::read_to_string(stack.join("tables.list")).expect("a list");
            let newest = list.lines().nth(1).expect("two tables");
            vec![
                (stack.join(newest), true),
                (stack.join("tables.list"), true),
                (git_dir.join("HEAD"), true),
            ]
        }
    }
}

/// A repository in which a ref came later than the others, with a reflog.
fn repo_with_a_late_ref(format: Format) -> Repo {
    let repo = repo(format);
    repo.config("core.logAllRefUpdates", "true");
    repo.git(["pack-refs", "--all"]).run().ok();
    let late = &repo.objects().commits[21];
    repo.git(["update-ref", "refs/heads/late", late]).run().ok();
    repo
}

/// Git leaves them where refs were.
#[test]
fn an_empty_directory_stands_before_no_packed_ref() {
    for format in [Format::FILES_SHA1, Format::FILES_SHA256] {
        // The line cannot be read, or its object is missing.
        for bytes in ["zzzzzz", "123456"] {
            let repo = repo_with_a_late_ref(format);
            fs::create_dir_all(repo.git_dir().join("refs/heads/b3")).expect("a directory");
            let packed = repo.git_dir().join("packed-refs");
            let content = fs::read_to_string(&packed).expect("packed refs");
            let commit = &repo.objects().commits[3];
            let line = format!("{commit} refs/heads/b3\n");
            assert!(content.contains(&line));
            let bad = format!("{bytes}{}", &line[bytes.len()..]);
            fs::write(&packed, content.replace(&line, &bad)).expect("it can be written");
            let repaired = refdb(&repo, &["refs", "repair", "--no-dry-run"]);
            let found = refdb(&repo, &["refs", "verify", "--deep"]);
            assert_eq!(found.code(), 0, "{found:?}\n{repaired:?}");
            let shown = repo.git(["rev-parse", "refs/heads/b3"]).run().ok();
            assert_eq!(shown.trim_ascii(), commit.as_bytes(), "{repaired:?}");
        }
    }
}

/// Git reads and writes reflogs there.
#[test]
fn a_link_to_a_directory_of_reflogs_stays() {
    for format in [Format::FILES_SHA1, Format::FILES_SHA256] {
        let repo = repo_with_a_late_ref(format);
        let (logs, elsewhere) = (
            repo.git_dir().join("logs/refs/heads"),
            repo.path().join("x"),
        );
        fs::rename(&logs, &elsewhere).expect("it can be moved");
        symlink(&elsewhere, &logs).expect("a link");
        let found = refdb(&repo, &["refs", "verify", "--deep"]);
        assert_eq!(found.code(), 0, "{found:?}");
        let damaged = elsewhere.join("late");
        let bad = [&fs::read(&damaged).expect("a reflog")[..], b"no entry\n"].concat();
        fs::write(&damaged, &bad).expect("it can be written");
        let found = refdb(&repo, &["refs", "verify", "--deep"]);
        assert!(found.stdout.contains_str("late"), "{found:?}");
        refdb(&repo, &["refs", "repair", "--no-dry-run"]);
        assert!(fs::symlink_metadata(&logs).expect("there").is_symlink());
        // What is outside is nobody's to repair.
        assert_eq!(fs::read(&damaged).expect("a reflog"), bad);
    }
}

/// It has no line that is bad, and no ref.
#[test]
fn it_is_told_that_nobody_knows_what_an_empty_packed_refs_held() {
    for format in [Format::FILES_SHA1, Format::FILES_SHA256] {
        let repo = repo_with_a_late_ref(format);
        fs::write(repo.git_dir().join("packed-refs"), "").expect("it can be written");
        let repaired = refdb(&repo, &["refs", "repair", "--no-dry-run"]);
        assert!(
            repaired
                .stderr
                .contains_str("nobody can say which they were"),
            "{repaired:?}"
        );
    }
}

/// As a ref that is no branch Git would refuse it.
#[test]
fn a_head_that_was_cut_leads_to_the_branch_that_it_led_to() {
    for format in [Format::FILES_SHA1, Format::FILES_SHA256] {
        let repo = repo(format);
        repo.config("core.logAllRefUpdates", "true");
        let b3 = "refs/heads/b3";
        repo.git([
            "symbolic-ref",
            "-m",
            "checkout: moving from b1 to b3",
            "HEAD",
            b3,
        ])
        .run()
        .ok();
        fs::write(repo.git_dir().join("HEAD"), "ref: refs/head").expect("it can be written");
        let repaired = refdb(&repo, &["refs", "repair", "--no-dry-run"]);
        let head = fs::read_to_string(repo.git_dir().join("HEAD")).expect("HEAD");
        assert_eq!(head, "ref: refs/heads/b3\n", "{repaired:?}");
        repo.git(["refs", "verify"]).run().ok();
    }
}

for_every_format! {
    fn what_has_the_place_of_a_file_is_told_and_taken_away(format) {
        for at in 0..files_of(&repo_with_a_late_ref(format)).len() {
            for a_fifo in [true, false] {
                let repo = repo_with_a_late_ref(format);
                let (path, may_be_dir) = files_of(&repo).swap_remove(at);
                if !a_fifo && !may_be_dir {
                    continue;
                }
                put_in_its_place(&path, a_fifo);
                let name = path.file_name().expect("a name").to_str().expect("text");
                let found = refdb(&repo, &["refs", "verify", "--deep"]);
                let context = format!("{format}: {name}, FIFO: {a_fifo}");
                assert_eq!(found.code(), 2, "{context}: {found:?}");
                assert!(found.stdout.contains_str(name), "{context}: {found:?}");
                let repaired = refdb(&repo, &["refs", "repair", "--no-dry-run"]);
                let is_by_hand = !a_fifo && !name.ends_with(".ref");
                if is_by_hand {
                    assert_eq!(repaired.code(), 2, "{context}: {repaired:?}");
                    assert!(repaired.stdout.contains_str("move it away"), "{context}: {repaired:?}");
                    fs::remove_dir(&path).expect("still there, and empty");
                    refdb(&repo, &["refs", "repair", "--no-dry-run"]);
                } else {
                    assert!([0, 1, 2].contains(&repaired.code()), "{context}: {repaired:?}");
                }
                let found = refdb(&repo, &["refs", "verify", "--deep"]);
                assert_eq!(found.code(), 0, "{context}, then: {found:?}\n{repaired:?}");
                let listed = repo.git(["for-each-ref", "--format=%(refname)"]).run().ok();
                let is_there = |name: &str| listed.lines().any(|line| line == name.as_bytes());
                // Those that were packed come back from their reflogs, unless nobody can tell that there were any.
                let is_packed = name == "packed-refs";
                assert_eq!(is_there("refs/heads/b3"), !is_packed || a_fifo, "{context}: {repaired:?}");
                assert_eq!(is_there("refs/heads/late"), !name.ends_with(".ref"), "{context}");
            }
        }
    }

    fn what_is_written_anew_is_for_whom_the_repository_is(format) {
        let repo = repo(format);
        repo.git(["config", "core.sharedRepository", "group"]).run();
        power_failure(&repo);
        let program = env!("CARGO_BIN_EXE_refdb");
        let call = format!("umask 077; exec '{program}' refs repair --no-dry-run");
        let output = Command::new("sh").args(["-c", &call]).current_dir(repo.path()).output();
        let output = output.expect("it runs");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let dir = repo.git_dir().join(match format.refs {
            RefFormat::Files => "refs/heads",
            RefFormat::Reftable => "reftable",
        });
        for entry in fs::read_dir(dir).expect("a directory") {
            let path = entry.expect("an entry").path();
            let stat = fs::metadata(&path).expect("it is there");
            // What Git wrote before the setting stays as it is.
            assert_eq!(stat.mode() & 0o040, 0o040, "{} {:o}", path.display(), stat.mode());
        }
    }

    fn after_a_power_failure_all_refs_come_back(format) {
        let repo = repo(format);
        let whole = repo.refs();
        let path = power_failure(&repo);
        let damaged = fs::read(&path).expect("a file");
        let found = refdb(&repo, &["refs", "verify", "--deep"]);
        assert_eq!(found.code(), 2, "{}", found.stdout.as_bstr());
        let dry = refdb(&repo, &["refs", "repair", "--dry-run"]);
        assert_eq!(dry.code(), 1);
        assert!(dry.stdout.contains_str("refs/heads/b3: "), "{}", dry.stdout.as_bstr());
        assert_eq!(fs::read(&path).expect("a file"), damaged);
        assert!(!repo.git_dir().join("refdb-damaged").exists());
        let done = refdb(&repo, &["refs", "repair"]);
        assert_eq!(done.code(), 0, "{}", done.stderr.as_bstr());
        assert_eq!(repo.refs(), whole);
        let inner = path.strip_prefix(repo.git_dir()).expect("inside");
        let kept = repo.git_dir().join("refdb-damaged/1").join(inner);
        assert_eq!(fs::read(kept).expect("it was kept"), damaged);
        let again = refdb(&repo, &["refs", "repair"]);
        assert_eq!((again.code(), again.stdout.as_bstr()), (0, "".into()));
    }

    fn a_damaged_head_gets_its_branch_back(format) {
        let repo = repo(format);
        let head = repo.git_dir().join("HEAD");
        let branch = "refs/heads/b7";
        repo.git(["symbolic-ref", "-m", "checkout: moving from main to b7", "HEAD", branch])
            .run()
            .ok();
        let commit = &repo.objects().commits[9];
        repo.git(["update-ref", "-m", "commit: x", "HEAD", commit]).run().ok();
        let whole = repo.refs();
        for damage in [Some(""), Some("\0\0\0\0\0\0\0\0"), Some("ref: elsewhere\n"), None] {
            match damage {
                Some(text) => fs::write(&head, text).expect("HEAD can be written"),
                None => fs::remove_file(&head).expect("HEAD is there"),
            }
            assert_ne!(refdb(&repo, &["for-each-ref"]).code(), 0);
            assert_eq!(refdb(&repo, &["refs", "verify", "--deep"]).code(), 2);
            let done = refdb(&repo, &["refs", "repair"]);
            assert_eq!(done.code(), 0, "{damage:?}: {}", done.stderr.as_bstr());
            assert_eq!(repo.refs(), whole, "{damage:?}");
            let found = repo.git(["symbolic-ref", "HEAD"]).run().text();
            assert_eq!(found.trim_end(), branch, "{damage:?}");
        }
    }

    fn what_a_person_has_to_decide_is_told(format) {
        let repo = repo(format);
        let circle = "refs/heads/circle";
        repo.git(["symbolic-ref", circle, circle]).run().ok();
        let found = refdb(&repo, &["refs", "verify", "--deep", "--json"]);
        assert_eq!(found.code(), 2);
        let found: Value = serde_json::from_slice(&found.stdout).expect("JSON");
        assert_eq!(found["repair"], "by-hand");
        let advice = found["advice"].as_str().expect("advice");
        assert!(advice.contains("refdb symbolic-ref --delete refs/heads/circle"), "{advice}");
        let told = refdb(&repo, &["refs", "repair"]);
        assert!(told.stderr.contains_str(advice), "{}", told.stderr.as_bstr());
        refdb(&repo, &["symbolic-ref", "--delete", circle]).ok();
        assert_eq!(refdb(&repo, &["refs", "verify", "--deep"]).code(), 0);
        if format.refs == RefFormat::Files {
            // Loose beside packed: the one is in the way of the other.
            repo.git(["pack-refs", "--all"]).run().ok();
            let id = format!("{}\n", repo.objects().commits[0]);
            fs::remove_file(repo.git_dir().join("refs/heads/b3")).ok();
            fs::create_dir_all(repo.git_dir().join("refs/heads/b3")).expect("a folder");
            fs::write(repo.git_dir().join("refs/heads/b3/x"), id).expect("a ref");
            let found = refdb(&repo, &["refs", "verify", "--deep"]);
            let advice = "refdb update-ref --no-deref -d refs/heads/b3/x";
            assert!(found.stdout.contains_str(advice), "{}", found.stdout.as_bstr());
            refdb(&repo, &["update-ref", "--no-deref", "-d", "refs/heads/b3/x"]).ok();
            assert_eq!(refdb(&repo, &["refs", "verify", "--deep"]).code(), 0);
        }
    }

    fn refs_that_nobody_can_name_are_told(format) {
        let repo = repo(format);
        let tag = &repo.objects().tags[0].id;
        let tags: String = (0..10).map(|at| format!("create refs/tags/t{at} {tag}\n")).collect();
        repo.update_refs(tags);
        repo.git(["pack-refs", "--all"]).run().ok();
        let path = match format.refs {
            RefFormat::Files => repo.git_dir().join("packed-refs"),
            RefFormat::Reftable => {
                let list = repo.git_dir().join("reftable/tables.list");
                let list = fs::read_to_string(list).expect("a list");
                repo.git_dir().join("reftable").join(list.trim_end())
            }
        };
        let whole = fs::read(&path).expect("a file");
        let mut damaged = 0;
        for at in (150..600).step_by(11) {
            let mut bytes = whole.clone();
            match format.refs {
                RefFormat::Files => bytes[at..at + 9].fill(0),
                RefFormat::Reftable => bytes[at] ^= 4,
            }
            fs::write(&path, &bytes).expect("it can be written");
            if refdb(&repo, &["for-each-ref"]).code() == 0 && format.refs == RefFormat::Reftable {
                // Another name or id came of it, and no damage.
                continue;
            }
            let output = refdb(&repo, &["refs", "repair", "--no-dry-run"]);
            let said = output.stderr.to_str_lossy().into_owned();
            // Another name may have become one that is there.
            if said.contains("nobody can say which") || said.contains("there twice, with different") {
                damaged += 1;
            } else if !said.contains("refs that are lost: 1") {
                let left = repo.git(["for-each-ref"]).run().text().lines().count();
                assert_eq!(left, 30, "{at}: {said}");
            }
            // Its block is the one that is damaged.
            let head = repo.git(["symbolic-ref", "HEAD"]).run();
            assert_eq!(head.text(), "refs/heads/main", "{at}: {said}");
            repo.git(["for-each-ref"]).run().ok();
            // A repair of tables makes new ones.
            if let (RefFormat::Reftable, Some(dir)) = (format.refs, path.parent()) {
                let name = path.file_name().expect("a name").to_string_lossy();
                fs::write(dir.join("tables.list"), format!("{name}\n")).expect("it can be written");
            }
        }
        assert!(damaged > 0);
    }

    fn a_name_that_stands_twice_is_no_line_that_cannot_be_read(format) {
        if format.refs == RefFormat::Files {
            let repo = repo(format);
            repo.git(["pack-refs", "--all"]).run().ok();
            let path = repo.git_dir().join("packed-refs");
            let mut content = fs::read(&path).expect("a file");
            let line = content.find(b"refs/heads/b7\n").expect("its line") - 1 - format.objects.hex_len();
            let again = content[line..line + format.objects.hex_len() + 15].to_vec();
            content.splice(line..line, again);
            fs::write(&path, content).expect("it can be written");
            let output = refdb(&repo, &["refs", "repair", "--no-dry-run"]);
            let said = output.stderr.to_str_lossy();
            assert!(!said.contains("could not be read"), "{said}");
            assert_eq!(repo.git(["for-each-ref"]).run().text().lines().count(), 20);
        }
    }

    fn a_worktree_that_does_not_say_where_it_is_has_refs(format) {
        let repo = repo(format);
        repo.git(["worktree", "add", "-q", "linked", "b1"]).run().ok();
        let gitdir = repo.git_dir().join("worktrees/linked/gitdir");
        fs::remove_file(&gitdir).expect("it was there");
        fs::create_dir(&gitdir).expect("a directory");
        let bad = [("update-ref", "refs/worktree/x")].map(|(command, name)| {
            let commit = repo.objects().commits[0].clone();
            let path = repo.git_dir().join("worktrees/linked");
            let git_dir = format!("--git-dir={}", path.display());
            refdb(&repo, &[&git_dir, command, name, &commit]).code()
        });
        assert_eq!(bad, [0]);
        if format.refs == RefFormat::Files {
            fs::write(repo.git_dir().join("worktrees/linked/refs/worktree/x"), "bad\n").expect("room");
            let told = refdb(&repo, &["refs", "verify", "--deep"]);
            assert!(told.code() != 0, "{}", told.stderr.to_str_lossy());
        }
        // As long as somebody likes.
        fs::remove_dir(&gitdir).expect("it was there");
        fs::File::create(&gitdir).expect("a file").set_len(500 << 20).expect("a hole");
        let program = env!("CARGO_BIN_EXE_refdb");
        let call = format!("ulimit -v 400000; exec '{program}' for-each-ref --format='%(worktreepath)'");
        let output = Command::new("sh").args(["-c", &call]).current_dir(repo.path()).output();
        assert_eq!(output.expect("it runs").status.code(), Some(0));
    }

    fn locks_are_left_unless_told(format) {
        let repo = repo(format);
        let name = match format.refs {
            RefFormat::Files => "refs/heads/b1.lock",
            RefFormat::Reftable => "reftable/tables.list.lock",
        };
        let lock = repo.git_dir().join(name);
        fs::write(&lock, "").expect("a lock");
        assert_eq!(refdb(&repo, &["refs", "repair"]).code(), 1);
        assert!(lock.exists());
        assert_eq!(refdb(&repo, &["refs", "repair", "--remove-locks"]).code(), 0);
        assert!(!lock.exists());
    }

    fn inspect_counts(format) {
        let repo = repo(format);
        repo.update_refs("delete refs/heads/b0\n".to_owned());
        let out = refdb(&repo, &["inspect", "--json"]).ok();
        let shape: Value = serde_json::from_slice(&out).expect("JSON");
        let text = String::from_utf8(refdb(&repo, &["inspect"]).ok()).expect("text");
        if format.refs == RefFormat::Files {
            assert_eq!((&shape["loose"], &shape["packed"]), (&19.into(), &0.into()));
            assert_eq!(shape["largest_logs"].as_array().map(Vec::len), Some(10));
            assert!(text.starts_with("refs: 19 loose, 0 packed\n"), "{text}");
            let table = refdb(&repo, &["inspect", "--table=x"]);
            assert_eq!(table.code(), 128);
            return;
        }
        assert_eq!(shape["live_refs"], 20, "with HEAD");
        assert!(text.contains("refs: 20 live"), "{text}");
        let name = shape["tables"][0]["name"].as_str().expect("a name");
        let table = format!("--table={name}");
        let out = refdb(&repo, &["inspect", &table, "--records", "--json"]).ok();
        let shape: Value = serde_json::from_slice(&out).expect("JSON");
        assert_eq!(shape["blocks"][0]["kind"], "ref");
        let records = shape["records"].as_array().expect("records");
        assert!(records.iter().any(|line| line == "ref HEAD 1 ref: refs/heads/main"));
        let plain = refdb(&repo, &["inspect", &table]).ok();
        assert!(plain.contains_str("  ref\n"), "{}", plain.as_bstr());
    }
}

/// Somebody made a table whose header says other update indices than its records have. Git lists its refs, and they
/// are sound: a repair loses none.
#[test]
fn refs_with_update_indices_of_no_table_are_kept() {
    for format in [Format::REFTABLE_SHA1, Format::REFTABLE_SHA256] {
        for index in [(1 << 48) - 1, i64::MAX as u64] {
            let repo = repo(format);
            repo.git(["pack-refs", "--all"]).run().ok();
            let dir = repo.git_dir().join("reftable");
            let list = fs::read_to_string(dir.join("tables.list")).expect("a list");
            assert_eq!(list.lines().count(), 1);
            let path = dir.join(list.trim_end());
            let bytes = fs::read(&path).expect("a table");
            fs::remove_file(&path).expect("Git made it read-only");
            fs::write(&path, forge::with_indices(bytes, index, index)).expect("a table");
            let whole = repo.refs();
            assert_eq!(whole.len(), 20);
            assert_eq!(refdb(&repo, &["refs", "verify", "--deep"]).code(), 2);
            let done = refdb(&repo, &["refs", "repair"]);
            assert_eq!(done.code(), 0, "{}", done.stderr.as_bstr());
            assert_eq!(repo.refs(), whole);
            assert_eq!(refdb(&repo, &["refs", "verify", "--deep"]).code(), 0);
            let commit = &repo.objects().commits[1];
            refdb(&repo, &["update-ref", "refs/heads/b0", commit]).ok();
            refdb(&repo, &["pack-refs", "--all"]).ok();
            assert_eq!(repo.refs().len(), 20);
        }
    }
}

/// The same with entries of reflogs, which no writer puts above the indices of a table. Readers find them: they stay
/// where no table is newer, and are told where one is.
#[test]
fn entries_of_reflogs_above_the_indices_of_a_table_are_kept_or_told() {
    for format in [Format::REFTABLE_SHA1, Format::REFTABLE_SHA256] {
        for is_last in [true, false] {
            let repo = repo(format);
            let commits = &repo.objects().commits;
            for number in 0..5 {
                let name = format!("refs/heads/b{number}");
                repo.git(["update-ref", &name, &commits[1]]).run().ok();
            }
            repo.git(["pack-refs", "--all"]).run().ok();
            let dir = repo.git_dir().join("reftable");
            let list = fs::read_to_string(dir.join("tables.list")).expect("a list");
            let path = dir.join(list.trim_end());
            let bytes = fs::read(&path).expect("a table");
            fs::remove_file(&path).expect("Git made it read-only");
            let name = "0x000000000001-0x000000000002-12345678.ref";
            fs::write(dir.join(name), forge::with_indices(bytes, 1, 2)).expect("a table");
            fs::write(dir.join("tables.list"), format!("{name}\n")).expect("a list");
            if !is_last {
                let value = forge::RefValue::Direct(&[7; 20]);
                let refs = [(&b"refs/heads/z"[..], value)];
                let refs = &refs[..usize::from(format == Format::REFTABLE_SHA1)];
                forge::on_top_at(3, &repo.git_dir(), format.objects, refs, &[]);
            }
            let log = |number| {
                let name = format!("refs/heads/b{number}");
                repo.git(["reflog", "show", &name]).run().text()
            };
            let logs: Vec<String> = (0..5).map(log).collect();
            let done = refdb(&repo, &["refs", "repair"]);
            let said = [&*done.stdout, &done.stderr].concat();
            let is_told =
                said.contains_str("entries of reflogs with update indices of newer tables");
            assert_eq!(is_told, !is_last, "{}", said.as_bstr());
            if is_last {
                assert_eq!(logs, (0..5).map(log).collect::<Vec<_>>());
                assert!(logs.iter().all(|log| !log.is_empty()));
            }
            assert!(repo.refs().len() >= 20);
            assert_eq!(refdb(&repo, &["refs", "verify", "--deep"]).code(), 0);
        }
    }
}

/// Refs of no directory, which whoever names them may write and read, as with Git: no damage, and a migration tells
/// that it leaves them behind, as Git does in silence.
#[test]
fn refs_of_no_directory_are_kept() {
    for format in [Format::REFTABLE_SHA1, Format::REFTABLE_SHA256] {
        let repo = repo(format);
        let commit = &repo.objects().commits[0];
        let names = ["FOO", "foo", "a-b"];
        for name in names {
            refdb(&repo, &["update-ref", name, commit]).ok();
        }
        assert_eq!(refdb(&repo, &["refs", "verify", "--deep"]).code(), 0);
        refdb(&repo, &["refs", "repair"]).ok();
        for name in names {
            let found = repo.git(["rev-parse", name]).run().text();
            assert_eq!(found.trim_end(), commit, "{name}");
        }
        let out = refdb(&repo, &["refs", "migrate", "--ref-format=files"]);
        assert_eq!(out.code(), 0);
        let told = out.stderr.to_str_lossy();
        assert!(names.iter().all(|name| told.contains(name)), "{told}");
    }
}

/// A list of a million lines: every answer ends.
#[test]
fn a_list_without_end_is_told() {
    let repo = repo(Format::REFTABLE_SHA1);
    let path = repo.git_dir().join("reftable/tables.list");
    let list = fs::read_to_string(&path).expect("a list");
    let line = list.lines().next().expect("a table").to_owned() + "\n";
    fs::write(&path, line.repeat(1_000_000)).expect("it is ours");
    let begun = std::time::Instant::now();
    let found = refdb(&repo, &["refs", "verify", "--deep"]);
    assert_eq!(found.code(), 2);
    assert!(
        found.stdout.contains_str("too long for a list"),
        "{}",
        found.stdout.as_bstr()
    );
    let told = refdb(&repo, &["refs", "repair"]);
    assert!(
        told.stderr.contains_str("too long for a list"),
        "{}",
        told.stderr.as_bstr()
    );
    // Fewer, which can be read, but each of the same table.
    fs::write(&path, line.repeat(100_000)).expect("it is ours");
    assert_eq!(refdb(&repo, &["refs", "verify", "--deep"]).code(), 2);
    refdb(&repo, &["refs", "repair"]).ok();
    assert_eq!(repo.refs().len(), 20);
    assert!(begun.elapsed().as_secs() < 60, "{:?}", begun.elapsed());
}
