//! The refs are moved into the other format while somebody reads them: he sees all of them, or is told.

#![allow(clippy::print_stderr, reason = "says what Git did")]

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use bstr::ByteSlice;
use refdb::{ErrorKind, LogOrder, RefName, Store};
use refdb_maintenance::inspect::inspect;
use refdb_maintenance::verify::{Event, Severities, as_git};
use refdb_testkit::oracle::{self, GitRun};
use refdb_testkit::repo::Repo;
use refdb_testkit::{Format, RefFormat, for_every_format, ours};

for_every_format! {
    fn a_store_that_was_opened_before_tells_that_the_refs_were_moved(format) {
        let repo = furnished(format);
        let opened = ours::open(&repo.git_dir());
        assert_eq!(listed(opened.store()).expect("nothing was moved"), REFS + 1);
        repo.config("some.thing", "else");
        assert_eq!(listed(opened.store()).expect("nothing was moved"), REFS + 1);
        assert_eq!(opened.store().read(name("refs/heads/none")).expect("nothing was moved"), None);
        refdb(&repo).args(["refs", "migrate", to(format)]).run().ok();
        let store = opened.store();
        let (there, none) = (name("refs/heads/b/1"), name("refs/heads/none"));
        is_moved("a listing", listed(store));
        is_moved("its first ref", store.refs().and_then(|mut refs| refs.next().map(|ref_| ref_.is_some())));
        let page = store.refs().and_then(|mut refs| {
            refs.seek_prefix(b"refs/heads/a/")?;
            refs.each(|_| Ok(false))
        });
        is_moved("a page", page);
        is_moved("a ref", store.read(there));
        is_moved("no ref", store.read(none));
        is_moved("HEAD", store.resolve(name("HEAD")));
        is_moved("a reflog", store.log(there, LogOrder::NewestFirst));
        is_moved("whether there is a reflog", store.log_exists(there));
        is_moved("reflogs", store.log_names());
        let severities = Severities::from_config(&opened, true).expect("a good configuration");
        let tell = |event: Event<'_>| assert!(!matches!(event, Event::Found(_)), "{event:?}");
        is_moved("a check", as_git(&opened, &severities, &mut { tell }));
        is_moved("a look", inspect(&opened));
        let again = ours::open(&repo.git_dir());
        assert_eq!(listed(again.store()).expect("it is open anew"), REFS + 1);
    }

    fn a_command_that_reads_lists_everything_while_the_refs_are_moved(format) {
        let repo = furnished(format);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut count = 0;
                while !done.load(Ordering::SeqCst) {
                    let out = refdb(&repo).args(["for-each-ref"]).run();
                    let lines = out.ok().lines().count();
                    assert_eq!(lines, REFS, "in listing {count}");
                    for words in READ {
                        refdb(&repo).args(words.split(' ')).run().ok();
                    }
                    count += 1;
                }
                count
            });
            for _ in 0..2 {
                refdb(&repo).args(["refs", "migrate", to(format)]).run().ok();
                let back = format!("--ref-format={}", format.refs.name());
                refdb(&repo).args(["refs", "migrate", &back]).run().ok();
            }
            done.store(true, Ordering::SeqCst);
            assert!(reader.join().expect("it read all") > 0);
        });
    }
}

/// Git's migration takes the old refs away before it changes the configuration: a Git that reads in
/// between lists nothing, or a part, and ends with 0. refdb never lists nothing.
#[test]
fn beside_a_migration_by_git_nothing_is_never_all_there_is() {
    for format in [Format::FILES_SHA1, Format::REFTABLE_SHA1] {
        let repo = furnished(format);
        let done = AtomicBool::new(false);
        let [by_git, by_refdb] = std::thread::scope(|scope| {
            let nothing = |run: fn(&Repo) -> GitRun| {
                let (repo, done) = (&repo, &done);
                scope.spawn(move || {
                    let mut count = 0;
                    while !done.load(Ordering::SeqCst) {
                        let out = run(repo).args(["for-each-ref"]).run();
                        count += usize::from(out.status.success() && out.stdout.is_empty());
                    }
                    count
                })
            };
            let readers = [nothing(git), nothing(refdb)];
            for _ in 0..6 {
                for to in ["--ref-format=reftable", "--ref-format=files"] {
                    git(&repo).args(["refs", "migrate", to]).run();
                }
            }
            done.store(true, Ordering::SeqCst);
            readers.map(|reader| reader.join().expect("it read"))
        });
        eprintln!("{format}: beside its own migration Git listed nothing {by_git} times");
        assert_eq!(by_refdb, 0, "{format}");
    }
}

/// What Git leaves that dies between its last two steps.
#[test]
fn the_head_of_tables_where_the_refs_are_files_is_damage() {
    let repo = Repo::init(Format::FILES_SHA1);
    fs::create_dir(repo.git_dir().join("ref_migration.abcdef")).expect("a copy of a dry run");
    assert_eq!(refdb(&repo).args(["for-each-ref"]).run().ok(), b"");
    fs::write(repo.git_dir().join("HEAD"), "ref: refs/heads/.invalid\n").expect("it can be done");
    let out = refdb(&repo).args(["for-each-ref"]).run();
    assert_eq!(out.code(), 128);
    assert!(
        out.stderr.contains_str("a migration was cut short"),
        "{:?}",
        out.stderr
    );
    // Beside a ref it is what it says: Git shows the ref as well.
    let commit = &repo.objects().commits[0];
    fs::write(repo.git_dir().join("refs/heads/a"), format!("{commit}\n")).expect("it can be done");
    assert_eq!(
        refdb(&repo)
            .args(["for-each-ref"])
            .run()
            .ok()
            .lines()
            .count(),
        1
    );
}

/// Commands that begin again if the refs were moved.
const READ: [&str; 8] = [
    "show-ref --verify refs/heads/b/1",
    "refs exists refs/heads/b/1",
    "symbolic-ref HEAD",
    "reflog exists refs/heads/b/1",
    "reflog show refs/heads/b/1",
    "reflog list",
    "refs verify",
    "inspect",
];

/// So many refs has a repository of these tests, besides HEAD.
const REFS: usize = 40;

/// A half of them is packed, where there is such a thing.
fn furnished(format: Format) -> Repo {
    let repo = Repo::init(format);
    repo.config("core.logAllRefUpdates", "always");
    let commit = &repo.objects().commits[0];
    for folder in ["a", "b"] {
        let create = |number: usize| format!("create refs/heads/{folder}/{number} {commit}\n");
        let script: String = (0..REFS / 2).map(create).collect();
        repo.update_refs(script);
        if folder == "a" {
            repo.git(["pack-refs", "--all"]).run().ok();
        }
    }
    repo.git(["symbolic-ref", "HEAD", "refs/heads/b/1"])
        .run()
        .ok();
    repo
}

fn refdb(repo: &Repo) -> GitRun {
    oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path())
}

fn git(repo: &Repo) -> GitRun {
    oracle::git(repo.path())
}

fn to(format: Format) -> &'static str {
    match format.refs {
        RefFormat::Files => "--ref-format=reftable",
        RefFormat::Reftable => "--ref-format=files",
    }
}

fn name(name: &str) -> RefName<'_> {
    RefName::new(name).expect("a name")
}

fn listed(store: &Store) -> refdb::Result<usize> {
    let mut refs = store.refs()?;
    let mut count = 0;
    while refs.next()?.is_some() {
        count += 1;
    }
    Ok(count)
}

fn is_moved<T: std::fmt::Debug>(what: &str, read: refdb::Result<T>) {
    let error = read.expect_err(what);
    assert_eq!(error.kind(), ErrorKind::Moved, "{what}: {error}");
}
