//! A copy of a store in a repository of Git's: Git reads it, cannot write, and finds all or nothing of a switch.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use refdb_testkit::dialogue::wait_until;
use refdb_testkit::format::RefFormat;
use refdb_testkit::oracle::{self, Output};
use refdb_testkit::repo::Repo;
use refdb_testkit::{Format, for_every_format};

fn refdb(repo: &Repo, args: &[&str]) -> Output {
    oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path())
        .args(args)
        .run()
}

fn said(output: &Output) -> String {
    let text = [output.stdout.as_slice(), &output.stderr].concat();
    format!("{}: {}", output.code(), String::from_utf8_lossy(&text))
}

/// A repository whose refs are in a store, and an empty one that is to follow it and borrows its objects.
fn scene(format: Format) -> (Repo, Repo, tempfile::TempDir) {
    let writer = Repo::init(format);
    let commits = &writer.objects().commits;
    let names = (0..50).map(|at| format!("create refs/heads/b{at} {}\n", commits[at % 4]));
    writer.update_refs(names.collect::<String>());
    let temp = tempfile::tempdir().expect("a folder");
    let url = format!("file://{}", temp.path().join("store").display());
    refdb(&writer, &["store", "init", &url]).ok();
    refdb(&writer, &["store", "import", &url]).ok();
    writer.config("refdb.store", &url);
    let copy = Repo::init_bare(Format::new(RefFormat::Reftable, format.objects));
    copy.config("refdb.store", &url);
    (writer, copy, temp)
}

fn listed_by_git(repo: &Repo) -> String {
    repo.git(["for-each-ref"]).run().text()
}

/// Fails unless Git finds everything that refs and reflogs name. (Some objects that no ref names are damaged.)
fn sound(copy: &Repo) {
    copy.git(["fsck", "--connectivity-only", "--no-dangling"])
        .run()
        .ok();
}

for_every_format! {
    fn git_reads_what_the_store_says_and_cannot_write(format) {
        let (writer, copy, _temp) = scene(format);
        let commits = &writer.objects().commits;
        let told = refdb(&copy, &["sync"]).text();
        assert!(told.ends_with("refs changed"), "{told}");
        assert_eq!(listed_by_git(&copy), refdb(&writer, &["for-each-ref"]).text());
        assert_eq!(said(&refdb(&copy, &["sync"])), "0: ");
        for (at, args) in [
            &["update-ref", "refs/heads/new", &commits[0]][..],
            &["update-ref", "-d", "refs/heads/b7"],
            &["symbolic-ref", "HEAD", "refs/heads/b1"],
            &["pack-refs", "--all"],
            &["update-ref", "refs/heads/new", &commits[1]],
            &["store", "maintain", "--grace=0"],
        ].into_iter().enumerate() {
            refdb(&writer, args).ok();
            refdb(&copy, &["sync"]).ok();
            assert_eq!(listed_by_git(&copy), refdb(&writer, &["for-each-ref"]).text(), "{at}");
        }
        assert_eq!(copy.git(["symbolic-ref", "HEAD"]).run().text().trim(), "refs/heads/b1");
        let refused = copy.git(["update-ref", "refs/heads/mine", &commits[0]]).run();
        assert!(refused.code() != 0, "{}", said(&refused));
        assert!(said(&refused).contains("lock"), "{}", said(&refused));
        copy.git(["refs", "verify"]).run().ok();
        sound(&copy);
        // It cannot pack, and takes nothing away.
        let before = listed_by_git(&copy);
        copy.git(["gc", "--prune=now"]).run();
        assert_eq!(listed_by_git(&copy), before);
        sound(&copy);
        refdb(&writer, &["update-ref", "refs/heads/later", &commits[2]]).ok();
        refdb(&copy, &["sync"]).ok();
        assert_eq!(listed_by_git(&copy), refdb(&writer, &["for-each-ref"]).text());
    }

    fn what_somebody_writes_who_removes_the_lock_is_told_and_kept(format) {
        let (writer, copy, _temp) = scene(format);
        let commits = &writer.objects().commits;
        refdb(&copy, &["sync"]).ok();
        let lock = copy.git_dir().join("reftable/tables.list.lock");
        // The lock alone is put back.
        std::fs::remove_file(&lock).expect("the lock");
        let told = refdb(&copy, &["sync"]);
        assert!(said(&told).starts_with("0: warning: somebody had removed the lock"), "{}", said(&told));
        assert!(lock.exists());

        std::fs::remove_file(&lock).expect("the lock");
        copy.git(["update-ref", "-m", "mine", "refs/heads/mine", &commits[3]]).run().ok();
        let mine = listed_by_git(&copy);
        for _ in 0..2 {
            refdb(&writer, &["update-ref", "refs/heads/theirs", &commits[2]]).ok();
            let told = refdb(&copy, &["sync"]);
            assert!(said(&told).contains("somebody removed the lock of this copy and wrote refs here"), "{}", said(&told));
            assert_eq!((told.code(), listed_by_git(&copy)), (128, mine.clone()));
        }
        let told = refdb(&copy, &["sync", "--set-aside"]);
        assert_eq!(told.code(), 0, "{}", said(&told));
        assert_eq!(listed_by_git(&copy), refdb(&writer, &["for-each-ref"]).text());
        // Git reads what is aside, were it to be put back.
        let aside = copy.git_dir().join("refdb-aside");
        let kept = std::fs::read_dir(&aside).expect("a folder").next().expect("one").expect("one").path();
        let other = Repo::init_bare(copy.format());
        let tables = other.git_dir().join("reftable");
        for entry in std::fs::read_dir(&tables).expect("tables") {
            std::fs::remove_file(entry.expect("one").path()).expect("it goes");
        }
        for entry in std::fs::read_dir(&kept).expect("tables") {
            let from = entry.expect("one").path();
            std::fs::copy(&from, tables.join(from.file_name().expect("a name"))).expect("it comes");
        }
        assert_eq!(listed_by_git(&other), mine);
        // A writer that is at work is left to it.
        std::fs::write(&lock, "").expect("a lock of Git's");
        let told = refdb(&copy, &["sync"]);
        assert!(said(&told).contains("another program is writing"), "{}", said(&told));
    }

    fn a_store_that_was_put_back_hides_nothing(format) {
        let (writer, copy, temp) = scene(format);
        let commits = &writer.objects().commits;
        let [store, backup] = ["store", "backup"].map(|name| temp.path().join(name));
        let run = |command: &str, args: &[&std::path::Path]| {
            assert!(Command::new(command).args(args).status().expect("it runs").success());
        };
        run("cp", &["-r".as_ref(), &store, &backup]);
        refdb(&writer, &["update-ref", "refs/heads/lost", &commits[0]]).ok();
        refdb(&copy, &["sync"]).ok();
        let watched = refdb(&writer, &["watch"]).text();
        let moment = watched.rsplit(' ').next().expect("a moment").to_owned();
        run("rm", &["-r".as_ref(), &store]);
        run("mv", &[&backup, &store]);
        // The same generation, and the same update index.
        refdb(&writer, &["update-ref", "refs/heads/new", &commits[1]]).ok();
        let told = refdb(&writer, &["watch", &format!("--since={moment}")]).text();
        assert!(told.starts_with("resync\n") && told.contains("refs/heads/new"), "{told}");
        refdb(&copy, &["sync"]).ok();
        assert_eq!(listed_by_git(&copy), refdb(&writer, &["for-each-ref"]).text());
        sound(&copy);
    }

    fn what_others_put_there_leads_nowhere(format) {
        let (writer, copy, temp) = scene(format);
        refdb(&copy, &["sync"]).ok();
        let (elsewhere, at) = (temp.path().join("elsewhere"), |name: &str| copy.git_dir().join(name));
        std::fs::create_dir(&elsewhere).expect("a folder");
        let precious = elsewhere.join("0x1-0x1-a.ref");
        std::fs::write(&precious, "the only copy").expect("a file");
        // A table that is gone from the list is removed after two switches, whatever its name is.
        let marker = std::fs::read_to_string(at("refdb-followed")).expect("what is known");
        let leads_out = format!("before ../../../{}\n", precious.display());
        std::fs::write(at("refdb-followed"), marker.clone() + &leads_out).expect("a line more");
        let told = refdb(&copy, &["sync"]);
        assert!(said(&told).contains("this is not what refdb sync writes"), "{}", said(&told));
        std::fs::write(at("refdb-followed"), marker).expect("as it was");
        // Nor are tables kept, or removed, where a link leads.
        std::os::unix::fs::symlink(&elsewhere, at("refdb-aside")).expect("a link");
        std::fs::remove_file(at("reftable/tables.list.lock")).expect("the lock");
        let commit = &writer.objects().commits[3];
        copy.git(["update-ref", "refs/heads/mine", commit]).run().ok();
        let told = refdb(&copy, &["sync", "--set-aside"]);
        assert!(said(&told).contains("is no directory of this copy"), "{}", said(&told));
        std::fs::rename(at("reftable"), temp.path().join("tables")).expect("it moves");
        std::os::unix::fs::symlink(temp.path().join("tables"), at("reftable")).expect("a link");
        let told = refdb(&copy, &["sync"]);
        assert!(said(&told).contains("is no directory of this copy"), "{}", said(&told));
        let left: Vec<_> = std::fs::read_dir(&elsewhere).expect("a folder").collect();
        assert_eq!((left.len(), std::fs::read(&precious).expect("it is there")), (1, b"the only copy".to_vec()));
    }

    fn what_a_switch_left_that_did_not_come_to_be_goes(format) {
        let (writer, copy, _temp) = scene(format);
        refdb(&copy, &["sync"]).ok();
        let (common, tables) = (copy.git_dir(), copy.git_dir().join("reftable"));
        let list = std::fs::read_to_string(tables.join("tables.list")).expect("a list");
        let marker = std::fs::read_to_string(common.join("refdb-followed")).expect("what is known");
        refdb(&writer, &["update-ref", "refs/heads/new", &writer.objects().commits[1]]).ok();
        // One ended while it wrote a table, another when its tables had their names.
        std::fs::write(common.join("refdb-followed.0123456789abcdef"), "half").expect("a file");
        refdb(&copy, &["sync"]).ok();
        assert!(!common.join("refdb-followed.0123456789abcdef").exists());
        let unlisted = "0x000000000001-0x000000000009-01234567.ref";
        std::fs::write(tables.join(unlisted), "never read").expect("a table");
        let listed = std::fs::read_to_string(tables.join("tables.list")).expect("a list");
        let before: String = listed.lines().map(|name| format!("before {name}\n")).collect();
        let first = marker.lines().next().expect("a line");
        let killed = format!("{first}\ntable {unlisted} 1-2-3\n{before}");
        std::fs::write(common.join("refdb-followed"), killed).expect("what is known");
        refdb(&copy, &["sync"]).ok();
        assert!(!tables.join(unlisted).exists() && list != listed);
        assert_eq!(listed_by_git(&copy), refdb(&writer, &["for-each-ref"]).text());
        only_what_is_listed(&tables);
    }

    fn refs_that_were_there_are_left_alone(format) {
        let (_writer, copy, _temp) = scene(format);
        let commits = &copy.objects().commits;
        copy.git(["update-ref", "refs/heads/mine", &commits[0]]).run().ok();
        let told = refdb(&copy, &["sync"]);
        assert!(said(&told).contains("there are refs here already: nothing was changed"), "{}", said(&told));
        copy.git(["update-ref", "refs/heads/mine", &commits[1]]).run().ok();
        refdb(&copy, &["sync", "--set-aside"]).ok();
        assert!(!listed_by_git(&copy).contains("mine"));
    }

    fn a_repository_of_files_is_told_what_a_copy_needs(format) {
        let (writer, _copy, _temp) = scene(Format::new(RefFormat::Files, format.objects));
        let told = said(&refdb(&writer, &["sync"]));
        assert!(told.starts_with("128: fatal: a copy that Git reads needs"), "{told}");
    }

    fn a_copy_that_did_not_come_to_be_keeps_nobody_from_writing(format) {
        let (writer, copy, _temp) = scene(format);
        let tree = writer.git(["write-tree"]).run().text();
        let new = writer.git(["commit-tree", "-m", "only here", tree.trim()]).run().text();
        refdb(&writer, &["update-ref", "refs/heads/new", new.trim()]).ok();
        let told = refdb(&copy, &["sync"]);
        assert!(said(&told).contains("nothing was switched"), "{}", said(&told));
        assert!(!copy.git_dir().join("reftable/tables.list.lock").exists());
        copy.git(["update-ref", "refs/heads/own", &copy.objects().commits[0]]).run().ok();
        let told = refdb(&copy, &["sync", "--set-aside"]);
        assert!(said(&told).contains("nothing was switched"), "{}", said(&told));
        copy.git(["update-ref", "refs/heads/own", &copy.objects().commits[1]]).run().ok();
        // Where somebody removed the lock of this turn, the lock of the list may be that of another follower by now.
        copy.config("refdb.fetchObjects", "rm refdb-followed.lock; exit 3");
        let told = refdb(&copy, &["sync", "--set-aside"]);
        assert!(said(&told).contains("refdb.fetchObjects failed"), "{}", said(&told));
        assert!(copy.git_dir().join("reftable/tables.list.lock").exists());
    }

    fn nothing_is_switched_before_the_objects_are_there(format) {
        let (writer, copy, _temp) = scene(format);
        refdb(&copy, &["sync"]).ok();
        let before = listed_by_git(&copy);
        let tree = writer.git(["write-tree"]).run().text();
        let new = writer.git(["commit-tree", "-m", "only here", tree.trim()]).run().text();
        refdb(&writer, &["update-ref", "refs/heads/new", new.trim()]).ok();
        let told = refdb(&copy, &["sync"]);
        assert!(said(&told).contains("of 'refs/heads/new' is not here: nothing was switched"), "{}", said(&told));
        assert_eq!(listed_by_git(&copy), before);
        copy.config("refdb.fetchObjects", "exit 3");
        let told = refdb(&copy, &["sync"]);
        assert!(said(&told).contains("refdb.fetchObjects failed"), "{}", said(&told));
        let objects = writer.git_dir().join("objects");
        let fetch = format!("sh -c 'while read oid name; do GIT_DIR={} git cat-file commit $oid | git hash-object -t commit -w --stdin; done'", objects.parent().expect("a folder").display());
        copy.config("refdb.fetchObjects", &fetch);
        refdb(&copy, &["sync"]).ok();
        assert_eq!(listed_by_git(&copy), refdb(&writer, &["for-each-ref"]).text());
    }
}

/// Counts how often stock Git, reading all the time, saw something else than one state of the store.
fn inconsistent(copy: &Repo, done: &AtomicBool, reads: &AtomicUsize) -> usize {
    let mut wrong = 0;
    while !done.load(Ordering::Relaxed) {
        let output = copy
            .git(["for-each-ref", "--format=%(objectname)", "refs/pair"])
            .run();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default();
        // All ten have one value at any time.
        let is_one = text.lines().count() == 10 && lines.all(|line| line == first);
        wrong += usize::from(output.code() != 0 || !is_one);
        reads.fetch_add(1, Ordering::Relaxed);
    }
    wrong
}

#[test]
fn readers_see_one_state_while_the_copy_is_switched() {
    let turns = std::env::var("REFDB_FOLLOW_TURNS").ok();
    let turns: usize = turns.and_then(|turns| turns.parse().ok()).unwrap_or(60);
    let (writer, copy, _temp) = scene(Format::REFTABLE_SHA1);
    let commits = &writer.objects().commits;
    let set = |at: usize| {
        let lines = (0..10).map(|pair| format!("update refs/pair/{pair} {}\n", commits[at % 4]));
        let run = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), writer.path());
        run.args(["update-ref", "--stdin"])
            .stdin(lines.collect::<String>())
            .run()
            .ok();
        if at.is_multiple_of(7) {
            refdb(&writer, &["pack-refs", "--all"]).ok();
        }
    };
    set(0);
    refdb(&copy, &["sync"]).ok();
    let (done, reads) = (AtomicBool::new(false), AtomicUsize::new(0));
    let wrong: usize = thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| inconsistent(&copy, &done, &reads)))
            .collect();
        for at in 1..=turns {
            set(at);
            refdb(&copy, &["sync"]).ok();
        }
        done.store(true, Ordering::Relaxed);
        readers
            .into_iter()
            .map(|reader| reader.join().expect("a reader"))
            .sum()
    });
    assert_eq!(wrong, 0, "of {} reads", reads.load(Ordering::Relaxed));
    assert!(reads.load(Ordering::Relaxed) > turns / 4);
    only_what_is_listed(&copy.git_dir().join("reftable"));
}

/// Tables that nobody needs any more are gone.
fn only_what_is_listed(tables: &Path) {
    let files = std::fs::read_dir(tables).expect("tables").count();
    assert!(files < 20, "{files}");
}

/// `refdb follow`, which is stopped when the test fails.
struct Following(Child);

impl Following {
    fn begin(copy: &Repo, temp: &Path) -> Following {
        let file = |name| std::fs::File::create(temp.join(name)).expect("a file");
        // Whoever runs the tests in the background may have them ignore signals.
        let child = Command::new("env")
            .args(["--default-signal", env!("CARGO_BIN_EXE_refdb")])
            .args(["follow", "--interval=0.02"])
            .current_dir(copy.path())
            .stdin(Stdio::null())
            .stdout(file("told"))
            .stderr(file("warned"))
            .spawn();
        Following(child.expect("it starts"))
    }

    fn end(mut self) -> std::process::ExitStatus {
        let killed = Command::new("kill").arg(self.0.id().to_string()).status();
        assert!(killed.expect("it runs").success());
        self.0.wait().expect("it ends")
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.0.kill();
    }
}

#[test]
fn a_copy_is_followed_while_others_write_until_a_signal_ends_it() {
    let turns = std::env::var("REFDB_FOLLOW_TURNS").ok();
    let turns: usize = turns.and_then(|turns| turns.parse().ok()).unwrap_or(12);
    let (one, copy, temp) = scene(Format::REFTABLE_SHA1);
    let commits = one.objects().commits.clone();
    let two = Repo::init(Format::REFTABLE_SHA1);
    two.config(
        "refdb.store",
        &format!("file://{}", temp.path().join("store").display()),
    );
    let read = |name: &str| std::fs::read_to_string(temp.path().join(name)).expect("a file");
    let set = |writer: &Repo, prefix: &str, at: usize| {
        let lines = (0..10).map(|ten| format!("update refs/{prefix}/{ten} {}\n", commits[at % 4]));
        let run = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), writer.path());
        let run = run.args(["update-ref", "--stdin"]);
        run.stdin(lines.collect::<String>()).run().ok();
    };
    let is_there = || listed_by_git(&copy) == refdb(&one, &["for-each-ref"]).text();
    set(&one, "pair", 0);
    refdb(&copy, &["sync"]).ok();
    let following = Following::begin(&copy, temp.path());
    let (done, reads) = (AtomicBool::new(false), AtomicUsize::new(0));
    let wrong = thread::scope(|scope| {
        let reader = scope.spawn(|| inconsistent(&copy, &done, &reads));
        let other = scope.spawn(|| (0..turns).for_each(|at| set(&two, "other", at)));
        (1..=turns).for_each(|at| set(&one, "pair", at));
        other.join().expect("a writer");
        wait_until("the copy is what the store is", is_there);
        done.store(true, Ordering::Relaxed);
        reader.join().expect("a reader")
    });
    assert_eq!(wrong, 0, "of {} reads", reads.load(Ordering::Relaxed));
    assert!(reads.load(Ordering::Relaxed) > 0);
    assert_eq!(read("warned"), "");

    // The store goes away for a while. That is told once, and the copy can be read meanwhile.
    let (store, away) = (temp.path().join("store/head"), temp.path().join("away"));
    let before = listed_by_git(&copy);
    std::fs::rename(&store, &away).expect("it goes");
    wait_until("it is told", || {
        read("warned").contains("the head of the store is gone")
    });
    thread::sleep(Duration::from_millis(100));
    assert_eq!(read("warned").lines().count(), 1, "{}", read("warned"));
    assert_eq!(listed_by_git(&copy), before);
    std::fs::rename(&away, &store).expect("it comes back");
    set(&two, "other", turns + 1);
    wait_until("the copy goes on", is_there);

    let switches = read("told")
        .lines()
        .filter(|line| line.starts_with("generation "))
        .count();
    assert!(switches > 1, "{}", read("told"));
    assert_eq!(following.end().signal(), Some(15));
    // It is a copy still, and no turn is left.
    assert!(copy.git_dir().join("reftable/tables.list.lock").exists());
    assert!(!copy.git_dir().join("refdb-followed.lock").exists());
    assert_eq!(said(&refdb(&copy, &["sync"])), "0: ");
    sound(&copy);
    only_what_is_listed(&copy.git_dir().join("reftable"));
}
