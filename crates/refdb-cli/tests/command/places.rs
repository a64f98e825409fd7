//! Something else in the place of what a repository has: links that lead out of it where refdb works,
//! FIFOs and devices where something is read or appended to, files that include each other.
//!
//! Nothing outside of the repository changes, and every command ends. All kinds of such repositories,
//! with all commands, are in `hostile`.

#![allow(clippy::print_stderr, reason = "says what was not tried")]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bstr::ByteSlice;
use refdb_testkit::mount::Mounted;
use refdb_testkit::oracle::{self, Output};
use refdb_testkit::repo::Repo;
use refdb_testkit::{Format, RefFormat, for_every_format};
use tempfile::TempDir;

/// Runs refdb, which has ten seconds and 700 MB.
fn refdb(dir: &Path, args: &[&str]) -> Output {
    let script = "ulimit -v 700000 && exec /usr/bin/timeout -s KILL 10 \"$0\" \"$@\"";
    let run = oracle::run_of("/bin/bash", dir);
    let run = run.args(["-c", script, env!("CARGO_BIN_EXE_refdb")]);
    run.args(args).run()
}

#[track_caller]
fn refused(dir: &Path, args: &[&str], why: &str) {
    let out = refdb(dir, args);
    let said = out.stderr.as_bstr();
    // 255 is Git's as well; what is between was a signal.
    assert!(matches!(out.code(), 1..=128 | 255), "{args:?}: {said}");
    assert!(out.stderr.contains_str(why), "{args:?}: {said}");
}

fn repository(format: Format) -> Repo {
    let repo = Repo::init(format);
    let objects = repo.objects();
    repo.update_refs(format!(
        "create refs/heads/main {}\ncreate refs/tags/t {}\n",
        objects.commits[0], objects.tags[0].id
    ));
    repo
}

/// A folder with files of the user's.
fn home() -> TempDir {
    let home = tempfile::tempdir().expect("a folder");
    fs::create_dir(home.path().join("notes")).expect("a folder");
    for name in [".bashrc", "notes/one"] {
        fs::write(home.path().join(name), "precious\n").expect("a file");
    }
    home
}

/// Returns all names in a folder, and what the files say.
fn everything(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(dir).expect("a folder") {
        let path = entry.expect("a file").path();
        if path.is_dir() && !path.is_symlink() {
            all.extend(everything(&path));
        }
        all.insert(path.clone(), fs::read(&path).unwrap_or_default());
    }
    all
}

fn fifo(path: &Path) {
    let _ = fs::remove_file(path);
    let made = Command::new("/usr/bin/mkfifo").arg(path).status();
    assert!(made.expect("it runs").success());
}

fn migrate(format: Format) -> [&'static str; 3] {
    let to = match format.refs {
        RefFormat::Files => "--ref-format=reftable",
        RefFormat::Reftable => "--ref-format=files",
    };
    ["refs", "migrate", to]
}

for_every_format! {
    fn a_reflog_that_is_a_link_gets_no_entry(format) {
        if format.refs == RefFormat::Reftable {
            // Its reflogs are no files.
            return;
        }
        // One ref, which has no journal, and several, which have one.
        for (names, is_there) in [&["main"][..], &["main", "other"]]
            .into_iter()
            .flat_map(|names| [(names, false), (names, true)])
        {
            let (repo, home) = (repository(format), home());
            let outside = home.path().join("outside");
            if is_there {
                fs::write(&outside, "precious\n").expect("a file");
            }
            let before = (everything(home.path()), repo.refs());
            let log = repo.git_dir().join("logs/refs/heads/main");
            let _ = fs::remove_file(&log);
            fs::create_dir_all(log.parent().expect("a folder")).expect("a folder");
            symlink(&outside, &log).expect("a link");
            let commit = &repo.objects().commits[1];
            let lines = names.iter().map(|name| format!("update refs/heads/{name} {commit}\n"));
            let input: String = lines.collect();
            let out = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path())
                .args(["update-ref", "--stdin"])
                .stdin(input)
                .run();
            let told = ["unable to append", "symbolic link"];
            let is_told = told.iter().all(|it| out.stderr.contains_str(it));
            assert!(out.code() != 0 && is_told, "{out:?}");
            assert_eq!((everything(home.path()), repo.refs()), before, "{names:?}, {is_there}");
        }
    }

    fn a_migration_empties_nothing_that_a_link_leads_to(format) {
        for name in ["refdb-migration", "refdb-kept"] {
            let (repo, home) = (repository(format), home());
            let path = repo.git_dir().join(name);
            symlink(home.path(), &path).expect("a link");
            let (before, refs) = (everything(home.path()), repo.refs());
            refused(repo.path(), &migrate(format), "is left alone");
            assert_eq!(everything(home.path()), before, "{name}");
            assert!(path.is_symlink());
            assert_eq!(repo.refs(), refs);
        }
    }

    fn a_migration_works_in_no_folder_that_it_did_not_make(format) {
        let repo = repository(format);
        let path = repo.git_dir().join("refdb-migration");
        fs::create_dir(&path).expect("a folder");
        fs::write(path.join("precious"), "").expect("a file");
        refused(repo.path(), &migrate(format), "is left alone");
        assert!(path.join("precious").exists());
        // A check says so by its exit code, too, and a repair that it is there still.
        for check in [&["refs", "verify", "--deep"][..], &["refs", "repair"]] {
            let out = refdb(repo.path(), check);
            assert_eq!(out.code(), 1, "{check:?}: {out:?}");
            assert!(out.stdout.contains_str("is left alone"), "{check:?}: {out:?}");
        }
        fs::remove_dir_all(&path).expect("it is there");
        fifo(&path);
        refused(repo.path(), &migrate(format), "is left alone");
        // Whoever dies at once leaves an empty one.
        fs::remove_file(&path).expect("it is there");
        fs::create_dir(&path).expect("a folder");
        refdb(repo.path(), &migrate(format)).ok();
    }

    fn a_backend_that_is_named_once_more_hides_no_loss(format) {
        if format.refs == RefFormat::Files {
            // Without files there are no refs in files.
            return;
        }
        let repo = repository(format);
        let stack = repo.git_dir().join("reftable");
        for entry in fs::read_dir(&stack).expect("a stack") {
            fs::remove_file(entry.expect("a table").path()).expect("it is there");
        }
        let commit = &repo.objects().commits[0];
        let own = format!("reftable://{}", repo.git_dir().display());
        for said in ["reftable", "reftable://", &own, &format!("{own}/../.git/.")] {
            for args in [&["for-each-ref"][..], &["update-ref", "refs/heads/new", commit]] {
                let run = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path());
                let out = run.env("GIT_REFERENCE_BACKEND", said).args(args).run();
                assert!(out.stderr.contains_str("every ref is gone"), "{said} {args:?}: {out:?}");
            }
        }
    }

    fn what_a_migration_left_behind_is_removed_by_no_other(format) {
        let repo = repository(format);
        let kept = repo.git_dir().join("refdb-kept");
        let run = |args: &[&str]| {
            let out = refdb(repo.path(), args);
            assert_eq!(out.code(), 0, "{args:?}: {}", out.stderr.as_bstr());
            out
        };
        run(&[&migrate(format)[..], &["--keep", "--no-reflog"]].concat());
        let before = everything(&kept);
        let out = run(&["refs", "migrate", "--undo"]);
        assert!(out.stderr.contains_str("earlier migrations left behind"), "{}", out.stderr.as_bstr());
        assert_eq!(everything(&kept), before);
        // Nor by one that keeps refs as well.
        let out = run(&[&migrate(format)[..], &["--keep"]].concat());
        assert_eq!(out.text(), "The old refs are kept in '.git/refdb-kept-1'");
        let back = format!("--ref-format={}", format.refs.name());
        run(&["refs", "migrate", &back]);
        assert!(!repo.git_dir().join("refdb-kept-1").exists(), "all that it has is in the refs");
        assert_eq!(everything(&kept), before);
        // The last that was kept is what there is to undo.
        run(&[&migrate(format)[..], &["--keep"]].concat());
        run(&["refs", "migrate", "--undo"]);
        // What is there that no migration made is nobody's to remove, and is told in time.
        let other = repo.git_dir().join("refdb-kept-1");
        fs::create_dir(&other).expect("a folder");
        fs::write(other.join("notes"), "precious").expect("a file");
        run(&migrate(format));
        assert_eq!(fs::read(other.join("notes")).expect("it stays"), b"precious");
        fs::remove_dir_all(&other).expect("it goes");
        fs::write(&other, "precious").expect("a file");
        refused(repo.path(), &["refs", "migrate", &back], "is left alone");
        assert!(!repo.git_dir().join("refdb-migration").exists());
        // Nor is it in the way of what is kept later, and undone.
        fs::remove_file(&other).expect("it goes");
        fs::remove_dir_all(&kept).expect("it goes");
        fs::create_dir(&kept).expect("a folder");
        fs::write(kept.join("notes"), "precious").expect("a file");
        let out = run(&["refs", "migrate", &back, "--keep"]);
        assert_eq!(out.text(), "The old refs are kept in '.git/refdb-kept-1'");
        run(&["refs", "migrate", "--undo"]);
        assert!(kept.join("notes").exists() && !other.exists());
        // Behind the greatest number there is none.
        let greatest = repo.git_dir().join(format!("refdb-kept-{}", u64::MAX));
        fs::create_dir(&greatest).expect("a folder");
        fs::write(greatest.join("notes"), "precious").expect("a file");
        refused(repo.path(), &["refs", "migrate", &back, "--keep"], "is left alone");
    }

    fn what_no_migration_copies_is_kept_for_good(format) {
        if format.refs == RefFormat::Reftable {
            // Its tables hold nothing but refs and reflogs.
            return;
        }
        let long = |name: &str| format!("{0} {0} a <a@x> 1 +0000\t{name}\n", "1".repeat(format.objects.hex_len()));
        for stray in ["logs/refs/heads/bad..name", "logs/refs/heads/a b", "refs/.hidden", "refs/heads/link", "logs/HEAD.lock", ""] {
            let repo = repository(format);
            let path = repo.git_dir().join(stray);
            match stray {
                "" => {}
                "refs/heads/link" => symlink("nowhere", &path).expect("a link"),
                _ => {
                    fs::create_dir_all(path.parent().expect("a folder")).expect("it is there");
                    fs::write(&path, long(stray)).expect("a file");
                }
            }
            for args in [&[&migrate(format)[..], &["--keep"]].concat()[..], &["refs", "migrate", "--undo"]] {
                let out = refdb(repo.path(), args);
                assert_eq!(out.code(), 0, "{stray} {args:?}: {}", out.stderr.as_bstr());
            }
            let kept = repo.git_dir().join("refdb-kept");
            let is_kept = fs::symlink_metadata(kept.join(stray)).is_ok();
            assert_eq!(is_kept, !stray.is_empty(), "{stray:?}");
        }
    }

    fn a_migration_moves_nothing_that_is_mounted(format) {
        let places: &[&str] = match format.refs {
            RefFormat::Files => &[
                "refs", "refs/tags", "refs/heads/a b", "logs/refs", "packed-refs", "HEAD", "ORIG_HEAD", "refdb-kept",
            ],
            RefFormat::Reftable => &["refs", "reftable", "HEAD"],
        };
        for place in places {
            let (repo, home) = (repository(format), home());
            let (path, other) = (repo.git_dir().join(place), home.path().join("other"));
            repo.git(["pack-refs", "--all"]).run().ok();
            if !path.exists() {
                fs::create_dir_all(&path).expect("a folder");
            }
            let copied = Command::new("cp").arg("-a").args([&path, &other]).status();
            assert!(copied.expect("it runs").success());
            let mounted = match Mounted::bind(&other, &path) {
                Ok(mounted) => mounted,
                Err(reason) => {
                    eprintln!("skipped: {reason}");
                    return;
                }
            };
            let before = repo.git(["for-each-ref"]).run().text();
            refused(repo.path(), &migrate(format), "something is mounted at");
            assert!(!repo.git_dir().join("refdb-migration").exists(), "{place}");
            assert_eq!(repo.git(["for-each-ref"]).run().text(), before, "{place}");
            drop(mounted);
            refdb(repo.path(), &migrate(format)).ok();
        }
    }

    fn a_migration_takes_no_folder_outside_for_refs(format) {
        let links: &[&str] = match format.refs {
            RefFormat::Files => &["refs", "refs/tags", "refs/heads/sub", "logs", "worktrees"],
            RefFormat::Reftable => &["refs", "worktrees", "reftable"],
        };
        for link in links {
            let (repo, home) = (repository(format), home());
            let path = repo.git_dir().join(link);
            let _ = fs::remove_dir_all(&path);
            symlink(home.path(), &path).expect("a link");
            let before = everything(home.path());
            for more in [&[][..], &["--keep"], &["--skip-broken"]] {
                refused(repo.path(), &[&migrate(format)[..], more].concat(), "");
            }
            assert_eq!(everything(home.path()), before, "{link}");
            assert!(path.is_symlink(), "{link}");
        }
    }

    fn a_list_of_refs_that_is_a_link_is_written_as_by_git(format) {
        let list = match format.refs {
            RefFormat::Files => "packed-refs",
            RefFormat::Reftable => "reftable/tables.list",
        };
        let first = repository(format);
        first.git(["pack-refs", "--all"]).run().ok();
        let path = first.git_dir().join(list);
        fs::rename(&path, path.with_extension("moved")).expect("it is there");
        let moved = Path::new(list).with_extension("moved");
        symlink(moved.file_name().expect("a name"), &path).expect("a link");
        let commit = &first.objects().commits[1];
        let input = format!("create refs/heads/new {commit}\ndelete refs/tags/t\n");
        let second = first.duplicate();
        let write = ["update-ref", "--stdin"];
        first.git(write).stdin(input.clone()).run().ok();
        let ours = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), second.path()).args(write);
        ours.stdin(input).run().ok();
        assert_eq!(second.refs(), first.refs());
        let is_link = |repo: &Repo| repo.git_dir().join(list).is_symlink();
        assert_eq!(is_link(&second), is_link(&first));
        refdb(second.path(), &["pack-refs", "--all"]).ok();
        assert_eq!(second.refs(), first.refs());
    }

    fn a_head_that_is_none_is_not_migrated(format) {
        if format.refs == RefFormat::Reftable {
            let repo = repository(format);
            refdb(repo.path(), &["symbolic-ref", "HEAD", "refs/heads/main"]).ok();
            let head = (&b"HEAD"[..], refdb_testkit::forge::RefValue::Symref(b"HEAD"));
            refdb_testkit::forge::on_top(&repo.git_dir(), format.objects, &[head], &[]);
            refused(repo.path(), &migrate(format), "not below refs/");
        }
    }

    fn a_pipe_of_the_user_is_waited_for(format) {
        let repo = repository(format);
        let script = "exec \"$0\" -c include.path=<(sleep 0.3; printf '[x]\\n\\ty = z\\n') \
                      for-each-ref --format='%(refname)'";
        let run = oracle::run_of("/bin/bash", repo.path());
        let out = run.args(["-c", script, env!("CARGO_BIN_EXE_refdb")]).run();
        assert_eq!(out.text(), "refs/heads/main\nrefs/tags/t");
    }

    fn what_a_configuration_includes_is_a_file(format) {
        let repo = repository(format);
        let config = repo.git_dir().join("config");
        let old = fs::read_to_string(&config).expect("it is there");
        let with = |path: &str| {
            fs::write(&config, format!("{old}[include]\n\tpath = {path}\n")).expect("it is there");
        };
        fifo(&repo.git_dir().join("fifo"));
        for path in ["fifo", "/dev/zero"] {
            with(path);
            refused(repo.path(), &["for-each-ref"], "unable to access");
        }
        with("/dev/null");
        assert_eq!(refdb(repo.path(), &["for-each-ref"]).text().lines().count(), 2);
    }

    fn files_that_include_each_other_ten_times_end(format) {
        let repo = repository(format);
        let lines = |number: usize| format!("[include]\n\tpath = c{number}\n").repeat(10);
        for number in 0..9 {
            let path = repo.git_dir().join(format!("c{number}"));
            fs::write(path, lines(number + 1)).expect("a file");
        }
        let path = repo.git_dir().join("config");
        let file = fs::File::options().append(true).open(path);
        file.and_then(|mut file| file.write_all(lines(0).as_bytes())).expect("it is there");
        refused(repo.path(), &["for-each-ref"], "more than 1000 files are included");
    }

    fn a_mailmap_is_a_file(format) {
        let repo = repository(format);
        let list = ["for-each-ref", "--format=%(refname) %(authorname:mailmap)", "refs/heads"];
        let expected = refdb(repo.path(), &list).text();
        fifo(&repo.path().join(".mailmap"));
        assert_eq!(refdb(repo.path(), &list).text(), expected);
        for path in [".mailmap", "/dev/zero"] {
            repo.git(["config", "mailmap.file", path]).run().ok();
            assert_eq!(refdb(repo.path(), &list).text(), expected, "{path}");
        }
    }
}

#[test]
fn a_reflog_is_a_file() {
    for format in [Format::FILES_SHA1, Format::FILES_SHA256] {
        let repo = repository(format);
        let commits = &repo.objects().commits;
        let log = repo.git_dir().join("logs/refs/heads/main");
        fs::create_dir_all(log.parent().expect("a folder")).expect("a folder");
        fifo(&log);
        let before = repo.refs();
        let update = ["update-ref", "refs/heads/main", &commits[1]];
        refused(repo.path(), &update, "logs/refs/heads/main");
        assert_eq!(repo.refs(), before);
        let file = fs::File::create({
            fs::remove_file(&log).expect("it is there");
            &log
        });
        file.and_then(|file| file.set_len(8 << 30)).expect("holes");
        for args in [
            &["reflog", "expire", "--expire=now", "refs/heads/main"][..],
            &["reflog", "show", "refs/heads/main"],
        ] {
            refused(repo.path(), args, "too large");
        }
    }
}

#[test]
fn a_table_that_is_a_hole_is_not_read_to_its_end() {
    for format in [Format::REFTABLE_SHA1, Format::REFTABLE_SHA256] {
        let repo = repository(format);
        let tables = repo.git_dir().join("reftable");
        let list = fs::read_to_string(tables.join("tables.list")).expect("a list");
        let table = list.lines().next().expect("a table");
        let hole = fs::File::create(tables.join(table)).expect("room");
        hole.set_len(1 << 40).expect("holes");
        for args in [
            "refs verify --deep",
            "refs repair --dry-run",
            "for-each-ref",
        ] {
            let script = format!("exec timeout -s KILL 30 \"$0\" {args}");
            let out = oracle::run_of("/bin/bash", repo.path())
                .args(["-c", &script, env!("CARGO_BIN_EXE_refdb")])
                .run();
            let said = [out.stdout.as_slice(), &out.stderr].concat();
            assert!(![134, 137].contains(&out.code()), "{args}: {}", out.code());
            assert!(said.contains_str(table), "{args}: {}", said.as_bstr());
        }
    }
}

#[test]
fn a_repair_changes_no_file_elsewhere() {
    let repo = repository(Format::FILES_SHA1);
    let home = home();
    symlink(home.path(), repo.git_dir().join("refs/heads/sub")).expect("a link");
    let before = everything(home.path());
    let found = refdb(repo.path(), &["refs", "verify", "--deep"]);
    assert_eq!(found.code(), 2, "{}", found.stderr.as_bstr());
    for options in [&["--dry-run"][..], &["--no-dry-run"], &["--give-up"]] {
        let out = refdb(repo.path(), &[&["refs", "repair"], options].concat());
        let said = out.stderr.as_bstr();
        assert!(said.contains_str("out of the repository"), "{said}");
        assert!(said.contains_str("only by a link"), "{said}");
        // It is not told what would become of files, or how to do it.
        assert!(!said.contains_str("carries this out"), "{said}");
        assert_eq!((out.code(), out.stdout.as_bstr()), (128, b"".as_bstr()));
    }
    assert_eq!(everything(home.path()), before);
    // What is kept aside stays here as well.
    fs::remove_file(repo.git_dir().join("refs/heads/sub")).expect("a link");
    fs::write(repo.git_dir().join("refs/heads/bad"), "bad\n").expect("a file");
    symlink(home.path(), repo.git_dir().join("refdb-damaged")).expect("a link");
    refused(repo.path(), &["refs", "repair"], "refdb-damaged");
    assert_eq!(everything(home.path()), before);
}

/// What is written to is no pipe that somebody reads from, either.
#[test]
fn nothing_is_written_into_a_pipe() {
    let repo = repository(Format::FILES_SHA1);
    let log = repo.git_dir().join("logs/refs/heads/main");
    fs::create_dir_all(log.parent().expect("a folder")).expect("a folder");
    fifo(&log);
    let mut reader = Command::new("/bin/cat")
        .arg(&log)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let id = &repo.objects().commits[1];
    refused(
        repo.path(),
        &["update-ref", "refs/heads/main", id],
        "logs/refs/heads/main",
    );
    let _ = reader.kill();
    let read = reader.wait_with_output().expect("it ends").stdout;
    assert_eq!(read.as_bstr(), "");
}

#[test]
fn links_that_lead_to_folders_again_and_again_end() {
    let repo = repository(Format::FILES_SHA1);
    let heads = repo.git_dir().join("refs/heads");
    for depth in 0..10 {
        let dir = heads.join(format!("d{depth}"));
        fs::create_dir(&dir).expect("a folder");
        for number in 0..10 {
            let to = format!("../d{}", depth + 1);
            symlink(to, dir.join(number.to_string())).expect("a link");
        }
    }
    fs::create_dir(heads.join("d10")).expect("a folder");
    for args in [
        &["for-each-ref"][..],
        &["refs", "verify", "--deep"],
        &["refs", "repair"],
    ] {
        refused(repo.path(), args, "more than 10000 directories");
    }
}

/// As in Git, which looks for none there; with the name of its ref a reflog is found.
#[test]
fn no_reflogs_are_looked_for_behind_a_link() {
    let (repo, home) = (repository(Format::FILES_SHA1), home());
    let logs = repo.git_dir().join("logs");
    let _ = fs::remove_dir_all(&logs);
    symlink(home.path(), &logs).expect("a link");
    let before = everything(home.path());
    for args in [
        &["reflog", "list"][..],
        &["reflog", "expire", "--expire=now", "--all"],
        &["reflog", "drop", "--all"],
    ] {
        let (ours, git) = (refdb(repo.path(), args), repo.git(args).run());
        assert_eq!(
            (ours.code(), ours.text()),
            (git.code(), git.text()),
            "{args:?}"
        );
        assert_eq!(everything(home.path()), before, "{args:?}");
    }
}

/// A folder of refs may be a link, and what lies behind it somebody else's.
#[test]
fn packing_takes_no_lock_away_behind_a_link() {
    let repo = repository(Format::FILES_SHA1);
    let elsewhere = tempfile::tempdir().expect("a folder");
    let file = elsewhere.path().join("notes~1122334455667788.lock");
    fs::write(&file, "mine\n").expect("a file");
    symlink(elsewhere.path(), repo.git_dir().join("refs/link")).expect("a link");
    for args in [&["pack-refs", "--no-prune"][..], &["pack-refs", "--all"]] {
        refdb(repo.path(), args).ok();
        assert!(file.exists(), "{args:?}");
    }
}

/// What has its name is left behind by somebody else, or was made by an attacker.
#[test]
fn a_lock_removes_no_link_that_is_there_as_its_pid_file() {
    let repo = repository(Format::FILES_SHA1);
    repo.git(["config", "core.lockfilePid", "true"]).run().ok();
    let (link, file) = (
        repo.git_dir().join("refs/heads/main~pid.lock"),
        repo.git_dir().join("refs/heads/new~pid.lock"),
    );
    symlink("nothing", &link).expect("a link");
    fs::write(&file, "pid 1\n").expect("a file");
    for name in ["refs/heads/main", "refs/heads/new"] {
        let id = &repo.objects().commits[1];
        refdb(repo.path(), &["update-ref", name, id]).ok();
    }
    assert!(link.is_symlink());
    assert!(!file.exists());
}
