//! What `refs repair` keeps: nothing goes that is still there somewhere.

mod tables;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use bstr::ByteSlice;
use refdb_testkit::oracle::{self, Output};
use refdb_testkit::repo::Repo;
use refdb_testkit::{Format, RefFormat, for_every_format};

const FILES: [Format; 2] = [Format::FILES_SHA1, Format::FILES_SHA256];
const REFTABLE: [Format; 2] = [Format::REFTABLE_SHA1, Format::REFTABLE_SHA256];

fn refdb(repo: &Repo, args: &[&str]) -> Output {
    let ours = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path());
    ours.args(args).run()
}

fn repair(repo: &Repo) -> Output {
    refdb(repo, &["refs", "repair", "--no-dry-run"])
}

/// Returns what Git lists, `HEAD` included.
fn listed(repo: &Repo) -> String {
    let format = "--format=%(refname) %(objectname) %(symref)";
    let args = ["for-each-ref", "--include-root-refs", format];
    repo.git(args).run().text()
}

/// A repository with some branches, each in a table of its own.
fn repo(format: Format) -> Repo {
    let repo = Repo::init(format);
    for at in 0..4 {
        let name = format!("refs/heads/b{at}");
        let commit = &repo.objects().commits[at];
        let git = repo.git(["update-ref", &name, commit]);
        git.env("GIT_TEST_REFTABLE_AUTOCOMPACTION", "false")
            .run()
            .ok();
    }
    repo
}

fn stack(repo: &Repo) -> PathBuf {
    repo.git_dir().join("reftable")
}

fn list_of_tables(repo: &Repo) -> Vec<String> {
    let list = fs::read_to_string(stack(repo).join("tables.list")).expect("a list");
    list.lines().map(str::to_owned).collect()
}

/// Repairs, twice; Git lists the same as before, and nothing is left to mend.
fn comes_back(repo: &Repo, before: &str, what: &str) {
    let repaired = repair(repo);
    assert_eq!(listed(repo), before, "{what}: {repaired:?}");
    assert!(repaired.code() < 2, "{what}: {repaired:?}");
    let again = refdb(repo, &["refs", "repair", "--dry-run"]);
    let is_done = !again.stderr.contains_str("carries this out");
    assert!(is_done, "{what}: {again:?}");
}

/// Returns a repository that borrows the objects of another one, and where those are.
fn borrower(format: Format) -> (Repo, tempfile::TempDir) {
    let repo = repo(format);
    let away = tempfile::tempdir().expect("a folder");
    let info = repo.git_dir().join("objects/info/alternates");
    let lent = away.path().join("lent");
    fs::rename(repo.git_dir().join("objects"), &lent).expect("it can be moved");
    fs::create_dir_all(info.parent().expect("a folder")).expect("a folder");
    fs::write(info, format!("{}\n", lent.display())).expect("it can be written");
    (repo, away)
}

for_every_format! {
    fn a_disk_that_is_not_there_is_no_loss(format) {
        let (repo, away) = borrower(format);
        let before = listed(&repo);
        let (here, gone) = (away.path().join("lent"), away.path().join("gone"));
        fs::rename(&here, &gone).expect("it can be moved");
        let found = refdb(&repo, &["refs", "verify", "--deep"]);
        assert!(found.stdout.contains_str("lent' is not there"), "{found:?}");
        assert_eq!(found.code(), 2, "{found:?}");
        let repaired = repair(&repo);
        assert_eq!(repaired.code(), 2, "{repaired:?}");
        fs::rename(&gone, &here).expect("it can be moved");
        assert_eq!(listed(&repo), before, "{repaired:?}");
        let found = refdb(&repo, &["refs", "verify", "--deep"]);
        assert_eq!(found.code(), 0, "{found:?}");
    }

    fn a_pack_without_its_index_is_no_loss(format) {
        let repo = repo(format);
        let before = listed(&repo);
        repo.git(["repack", "-adq"]).run().ok();
        for entry in fs::read_dir(repo.git_dir().join("objects/pack")).expect("a folder") {
            let path = entry.expect("an entry").path();
            let is_needed = path.extension().is_some_and(|extension| extension == "pack");
            if !is_needed {
                fs::remove_file(path).expect("it can be removed");
            }
        }
        let _ = fs::remove_file(repo.git_dir().join("objects/info/alternates"));
        let repaired = repair(&repo);
        assert!(repaired.stderr.contains_str("git index-pack"), "{repaired:?}");
        for entry in fs::read_dir(repo.git_dir().join("objects/pack")).expect("a folder") {
            repo.git(["index-pack"]).arg(entry.expect("an entry").path()).run().ok();
        }
        assert_eq!(listed(&repo), before, "{repaired:?}");
    }

    /// The value before the last one has an object.
    fn an_older_value_is_better_than_none(format) {
        let repo = repo(format);
        repo.config("core.logAllRefUpdates", "false");
        let objects = repo.objects();
        let tree = repo.git(["rev-parse", &format!("{}^{{tree}}", objects.commits[0])]).run().text();
        let lost = repo.git(["commit-tree", "-m", "lost", tree.trim()]).run().text();
        let lost = lost.trim();
        match format.refs {
            RefFormat::Reftable => {
                for value in [objects.commits[2].as_str(), lost] {
                    repo.git(["update-ref", "refs/tags/t", value])
                        .env("GIT_TEST_REFTABLE_AUTOCOMPACTION", "false")
                        .run()
                        .ok();
                }
            }
            RefFormat::Files => {
                repo.git(["update-ref", "refs/tags/t", &objects.commits[2]]).run().ok();
                repo.git(["pack-refs", "--all"]).run().ok();
                let packed = repo.git_dir().join("packed-refs");
                let content = fs::read_to_string(&packed).expect("packed refs");
                let line = format!("{} refs/tags/t\n", objects.commits[2]);
                let both = format!("{lost} refs/tags/t\n{line}");
                fs::write(&packed, content.replace(&line, &both)).expect("it can be written");
            }
        }
        let (dir, file) = lost.split_at(2);
        fs::remove_file(repo.git_dir().join("objects").join(dir).join(file)).expect("an object");
        let repaired = repair(&repo);
        let shown = repo.git(["rev-parse", "refs/tags/t"]).run().text();
        assert_eq!(shown.trim(), objects.commits[2], "{repaired:?}");
    }
}

#[test]
fn a_writer_of_a_reflog_is_waited_for() {
    for format in FILES {
        let repo = repo(format);
        repo.config("core.logAllRefUpdates", "true");
        repo.config("core.packedRefsTimeout", "300");
        let commits = &repo.objects().commits;
        repo.git(["update-ref", "refs/heads/b0", &commits[5]])
            .run()
            .ok();
        let log = repo.git_dir().join("logs/refs/heads/b0");
        let damaged = [&fs::read(&log).expect("a reflog")[..], b"no entry\n"].concat();
        fs::write(&log, &damaged).expect("it can be written");
        let mut git = repo.git(["update-ref", "--stdin"]).begin();
        git.say(&format!(
            "start\nupdate refs/heads/b0 {}\nprepare\n",
            commits[6]
        ));
        assert_eq!([git.hear(), git.hear()], ["start: ok\n", "prepare: ok\n"]);
        let repaired = repair(&repo);
        assert_ne!(repaired.code(), 0, "{repaired:?}");
        assert_eq!(fs::read(&log).expect("a reflog"), damaged);
        git.say("commit\n");
        assert_eq!(git.hear(), "commit: ok\n");
        assert!(git.end().status.success());
        // The bad line may have been an entry.
        let repaired = repair(&repo);
        assert_eq!(repaired.code(), 1, "{repaired:?}");
        let args = ["log", "-g", "--format=%H", "refs/heads/b0"];
        let shown = repo.git(args).run().text();
        assert_eq!(
            shown.lines().collect::<Vec<_>>(),
            [&commits[6], &commits[5], &commits[0]]
        );
    }
}

#[test]
fn blanks_of_an_editor_hide_no_packed_ref() {
    for format in FILES {
        for (from, to) in [("\n", "\r\n"), ("\n", " \n"), (" refs/", "  refs/")] {
            let repo = repo(format);
            let before = listed(&repo);
            repo.git(["pack-refs", "--all"]).run().ok();
            fs::remove_dir_all(repo.git_dir().join("logs")).expect("reflogs");
            let packed = repo.git_dir().join("packed-refs");
            let content = fs::read_to_string(&packed).expect("packed refs");
            fs::write(&packed, content.replace(from, to)).expect("it can be written");
            comes_back(&repo, &before, to);
        }
    }
}

for_every_format! {
    fn head_goes_where_its_reflog_says_that_it_went(format) {
        let repo = repo(format);
        repo.config("core.logAllRefUpdates", "true");
        let git = |args: &[&str]| {
            let git = repo.git(args).env("GIT_TEST_REFTABLE_AUTOCOMPACTION", "false");
            git.run().ok();
        };
        git(&["symbolic-ref", "HEAD", "refs/heads/b1"]);
        git(&["symbolic-ref", "-m", "checkout: moving from b1 to b2", "HEAD", "refs/heads/b2"]);
        match format.refs {
            RefFormat::Files => {
                let (full, cut) = ("refs/heads/b2-and-more", "ref: refs/heads/b2");
                git(&["update-ref", full, &repo.objects().commits[1]]);
                let message = "checkout: moving from b2 to b2-and-more";
                git(&["symbolic-ref", "-m", message, "HEAD", full]);
                let before = listed(&repo);
                fs::write(repo.git_dir().join("HEAD"), cut).expect("it can be written");
                comes_back(&repo, &before, cut);
            }
            RefFormat::Reftable => {
                let before = listed(&repo);
                let newest = list_of_tables(&repo).last().expect("a table").clone();
                let path = stack(&repo).join(newest);
                let mut bytes = fs::read(&path).expect("a table");
                // The type of the first block, which has HEAD and no other ref.
                let header = if bytes[4] == 1 { 24 } else { 28 };
                assert_eq!(bytes[header], b'r');
                bytes[header] = b'X';
                fs::write(&path, bytes).expect("it can be written");
                comes_back(&repo, &before, "a block");
            }
        }
    }
}

#[test]
fn a_branch_that_became_a_symref_to_no_name_comes_from_its_reflog() {
    for format in FILES {
        for content in ["ref: \n", "ref: refs/../../x\n"] {
            let repo = repo(format);
            repo.config("core.logAllRefUpdates", "true");
            let commit = &repo.objects().commits[7];
            repo.git(["pack-refs", "--all"]).run().ok();
            repo.git(["update-ref", "refs/heads/b1", commit]).run().ok();
            let before = listed(&repo);
            fs::write(repo.git_dir().join("refs/heads/b1"), content).expect("it can be written");
            comes_back(&repo, &before, content);
        }
    }
}

/// Others may have it in common.
#[test]
fn packed_refs_that_are_a_link_stay_one() {
    for format in FILES {
        let repo = repo(format);
        repo.git(["pack-refs", "--all"]).run().ok();
        let (packed, shared) = (
            repo.git_dir().join("packed-refs"),
            repo.path().join("shared"),
        );
        fs::rename(&packed, &shared).expect("it can be moved");
        symlink(&shared, &packed).expect("a link");
        let damaged = [&fs::read(&shared).expect("packed refs")[..], b"garbage\n"].concat();
        fs::write(&shared, &damaged).expect("it can be written");
        let repaired = repair(&repo);
        assert_ne!(repaired.code(), 0, "{repaired:?}");
        assert!(fs::symlink_metadata(&packed).expect("there").is_symlink());
        assert_eq!(fs::read(&shared).expect("there"), damaged);
    }
}

/// Git follows it, and writes where it leads.
#[test]
fn a_reflog_that_is_a_link_is_no_damage() {
    for format in FILES {
        let repo = repo(format);
        repo.config("core.logAllRefUpdates", "true");
        repo.git(["update-ref", "refs/heads/b1", &repo.objects().commits[7]])
            .run()
            .ok();
        let (log, elsewhere) = (
            repo.git_dir().join("logs/refs/heads/b1"),
            repo.path().join("elsewhere"),
        );
        fs::rename(&log, &elsewhere).expect("it can be moved");
        symlink(&elsewhere, &log).expect("a link");
        let found = refdb(&repo, &["refs", "verify", "--deep"]);
        assert_eq!(found.code(), 0, "{found:?}");
        let bad = [&fs::read(&elsewhere).expect("a reflog")[..], b"no entry\n"].concat();
        fs::write(&elsewhere, bad).expect("it can be written");
        let dry = refdb(&repo, &["refs", "repair", "--dry-run"]);
        assert_eq!(dry.code(), 1, "{dry:?}");
        let repaired = repair(&repo);
        assert_eq!(repaired.code(), 2, "{repaired:?}");
        assert!(fs::symlink_metadata(&log).expect("there").is_symlink());
    }
}

/// One repair is enough where what it takes away hid something.
#[test]
fn what_comes_to_light_is_mended_at_once() {
    for format in FILES {
        let repo = repo(format);
        repo.git(["pack-refs", "--all"]).run().ok();
        fs::remove_dir_all(repo.git_dir().join("logs")).expect("reflogs");
        let packed = repo.git_dir().join("packed-refs");
        let content = fs::read_to_string(&packed).expect("packed refs");
        let ones = "1".repeat(repo.objects().commits[1].len());
        let lost = content.replace(&repo.objects().commits[1], &ones);
        fs::write(&packed, lost).expect("it can be written");
        fs::create_dir_all(repo.git_dir().join("refs/heads")).expect("a folder");
        fs::write(repo.git_dir().join("refs/heads/b1"), "garbage\n").expect("it can be written");
        let dry = refdb(&repo, &["refs", "repair", "--dry-run"]);
        assert!(!dry.stdout.contains_str(&ones), "{dry:?}");
        let repaired = repair(&repo);
        assert_eq!(repaired.code(), 0, "{repaired:?}");
        assert!(!listed(&repo).contains("b1"), "{repaired:?}");
        repo.git(["refs", "verify"]).run().ok();
    }
}

for_every_format! {
    /// Another ref is lost; that HEAD is whole, and its reflog says nothing newer.
    fn a_head_that_is_whole_stays(format) {
        let repo = repo(format);
        repo.config("core.logAllRefUpdates", "true");
        let head = repo.git(["symbolic-ref", "HEAD"]).run().text();
        let commits = &repo.objects().commits;
        for (at, name) in [head.trim(), "refs/heads/b1", "refs/heads/b2"].into_iter().enumerate() {
            let message = "rebase onto upstream by hand";
            let git = repo.git(["update-ref", "-m", message, name, &commits[12 + at]]);
            git.env("GIT_TEST_REFTABLE_AUTOCOMPACTION", "false").run().ok();
        }
        let damaged = match format.refs {
            RefFormat::Files => repo.git_dir().join("refs/heads/b1"),
            RefFormat::Reftable => {
                let tables = list_of_tables(&repo);
                stack(&repo).join(&tables[tables.len() - 2])
            }
        };
        fs::write(damaged, "").expect("it can be written");
        let repaired = repair(&repo);
        let now = repo.git(["symbolic-ref", "HEAD"]).run().text();
        assert_eq!(now, head, "{repaired:?}");
    }

    /// Git takes tables away and others list new ones while they are looked at.
    fn nothing_is_told_of_what_a_writer_does_meanwhile(format) {
        let repo = repo(format);
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for at in 0..120 {
                    let commit = &repo.objects().commits[at % 20];
                    let name = format!("refs/heads/b{}", at % 4);
                    repo.git(["update-ref", &name, commit]).run().ok();
                    if at % 8 == 0 {
                        repo.git(["pack-refs", "--all"]).run().ok();
                    }
                }
                done.store(true, std::sync::atomic::Ordering::SeqCst);
            });
            while !done.load(std::sync::atomic::Ordering::SeqCst) {
                let found = refdb(&repo, &["refs", "verify", "--deep"]);
                let is_error = found.stdout.contains_str("error:") || found.code() > 1;
                assert!(!is_error, "{}{}", found.stdout.as_bstr(), found.stderr.as_bstr());
            }
        });
    }
}

/// `git reflog write` makes one.
#[test]
fn a_reflog_without_a_ref_makes_none() {
    for format in FILES {
        let repo = repo(format);
        repo.git(["pack-refs", "--all"]).run().ok();
        let commit = &repo.objects().commits[1];
        let zeros = "0".repeat(commit.len());
        let line = format!("{zeros} {commit} a <a@b> 1700000000 +0000\tmsg\n");
        fs::create_dir_all(repo.git_dir().join("logs/refs/heads")).expect("a folder");
        fs::write(repo.git_dir().join("logs/refs/heads/ghost"), line).expect("it can be written");
        let before = listed(&repo);
        let packed = repo.git_dir().join("packed-refs");
        let content = fs::read_to_string(&packed).expect("packed refs");
        fs::write(&packed, content.replace("heads/b1", "heads/b1 ")).expect("it can be written");
        comes_back(&repo, &before, "ghost");
    }
}

#[test]
fn the_list_is_told_that_names_an_alternate_which_is_not_there() {
    let (repo, away) = borrower(Format::FILES_SHA1);
    let middle = away.path().join("lent");
    let base = away.path().join("base");
    fs::create_dir(&base).expect("a folder");
    for entry in fs::read_dir(&middle).expect("a folder") {
        let entry = entry.expect("an entry");
        if entry.file_name() != "info" {
            fs::rename(entry.path(), base.join(entry.file_name())).expect("it can be moved");
        }
    }
    fs::create_dir_all(middle.join("info")).expect("a folder");
    let list = middle.join("info/alternates");
    fs::write(&list, format!("{}\n", base.display())).expect("it can be written");
    assert_eq!(refdb(&repo, &["refs", "verify", "--deep"]).code(), 0);
    fs::remove_dir_all(&base).expect("there");
    let found = refdb(&repo, &["refs", "verify", "--deep"]);
    let advice = format!("take it out of '{}'", list.display());
    assert!(
        found.stdout.contains_str(&advice),
        "{}",
        found.stdout.as_bstr()
    );
}

/// Who holds a lock is written beside it if `core.lockfilePid` is set.
#[test]
fn what_stood_beside_a_lock_of_the_dead_goes_with_a_repair() {
    for format in FILES {
        let repo = repo(format);
        repo.git(["config", "core.lockfilePid", "true"]).run().ok();
        let heads = repo.git_dir().join("refs/heads");
        let (pid, litter) = (heads.join("b1~pid.lock"), heads.join("b3~pid~pid.lock"));
        for file in [&pid, &litter] {
            fs::write(file, "pid 1\n").expect("it can be written");
        }
        let repaired = repair(&repo);
        assert_eq!(repaired.code(), 0, "{repaired:?}");
        let left: Vec<_> = fs::read_dir(&heads).expect("a folder").collect();
        assert_eq!(left.len(), 4, "{left:?}");
        // That of a lock which somebody has stays with it.
        let held = heads.join("b2.lock");
        fs::write(&held, "").expect("it can be written");
        fs::write(heads.join("b2~pid.lock"), "pid 1\n").expect("it can be written");
        let repaired = repair(&repo);
        assert!(repaired.stderr.contains_str("b2~pid.lock"), "{repaired:?}");
        assert!(held.exists() && heads.join("b2~pid.lock").exists());
    }
}

/// As a power failure leaves it: nobody can count what stood there.
#[test]
fn entries_are_told_that_zeros_have_the_place_of() {
    for format in FILES {
        for taken in ["all", "behind", "before"] {
            let repo = repo(format);
            let args = [
                "update-ref",
                "--create-reflog",
                "-m",
                "x",
                "refs/heads/logged",
            ];
            repo.git(args).arg(&repo.objects().commits[1]).run().ok();
            let log = repo.git_dir().join("logs/refs/heads/logged");
            let line = fs::read(&log).expect("a reflog");
            let zeros = vec![0; line.len()];
            let (content, left) = match taken {
                "all" => (zeros, &b""[..]),
                "behind" => ([&line[..], &zeros].concat(), &line[..]),
                _ => ([&zeros[..], &line].concat(), &line[..]),
            };
            fs::write(&log, content).expect("it can be written");
            let repaired = repair(&repo);
            let told = repaired.stderr.contains_str("nobody can say how many");
            assert!(told, "{taken}: {repaired:?}");
            assert_eq!(fs::read(&log).expect("a reflog").as_bstr(), left, "{taken}");
        }
    }
}
