//! Histories on a simulated place that machines share, and what they find when the place lies.
//!
//! `REFDB_SHARED_SEEDS` says how many seeds are tried in place of the usual ones, `REFDB_SHARED_FIRST` where they
//! begin.
#![expect(clippy::print_stdout, reason = "how much was tried")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use refdb::objects::NoObjects;
use refdb::shared::{Register, Settings, Shared};
use refdb::system::OsSystem;
use refdb::{Edit, ErrorKind, Expected, ObjectFormat, ObjectId, RefName, Store};
use refdb_git::places::DirShared;
use refdb_testkit::ours;
use refdb_testkit::shared::simulation::{Faults, Lie, Requests, World};
use refdb_testkit::shared::{Tried, run};
use refdb_testkit::trust::{Tally, budget};

/// How many seeds every test run tries.
const SEEDS: u64 = 100_000;

/// How many seeds a lie has to be found in.
const SEEDS_OF_LIES: u64 = 400;

#[test]
fn every_history_has_an_order() {
    let first = budget("REFDB_SHARED_FIRST", 0);
    let seeds = budget("REFDB_SHARED_SEEDS", SEEDS);
    let mut tally = Tally::begin("histories on a simulated shared place", first);
    let next = AtomicU64::new(first);
    let all = thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let work = || {
            let mut sum = Tried::default();
            let mut decided = 0u64;
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= first + seeds {
                    return (sum, decided);
                }
                let faults = match seed % 4 {
                    0 => Faults::NONE,
                    _ => Faults::MANY,
                };
                let tried = run(seed, faults).unwrap_or_else(|what| panic!("{what}"));
                sum.committed += tried.committed;
                sum.unchanged += tried.unchanged;
                sum.unknown += tried.unknown;
                sum.overlapped += tried.overlapped;
                decided += u64::from(tried.is_decided);
            }
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let done = threads
            .into_iter()
            .map(|it| it.join().expect("no history is wrong"));
        done.collect::<Vec<_>>()
    });
    let decided: u64 = all.iter().map(|it| it.1).sum();
    let sum = |of: fn(&Tried) -> usize| all.iter().map(|it| of(&it.0)).sum::<usize>();
    println!(
        "{seeds} seeds, {decided} decided: {} committed, {} unchanged, {} unknown, {} overlapped",
        sum(|it| it.committed),
        sum(|it| it.unchanged),
        sum(|it| it.unknown),
        sum(|it| it.overlapped),
    );
    assert!(
        decided * 10 >= seeds * 8,
        "only {decided} of {seeds} were decided"
    );
    assert!(sum(|it| it.overlapped) > 0 && sum(|it| it.committed) > 0);
    tally.add(seeds);
}

#[test]
fn a_place_that_lies_is_found_out() {
    for lie in [
        Lie::IgnoresConditions,
        Lie::ReadsTheOld,
        Lie::ForgetsWrites,
        Lie::ForgetsObjects,
    ] {
        let faults = Faults {
            lie: Some(lie),
            ..Faults::NONE
        };
        let is_found = (0..SEEDS_OF_LIES).any(|seed| {
            // What the store itself notices is an error that the history does not expect.
            let found = std::panic::catch_unwind(|| run(seed, faults));
            found.is_err() || found.is_ok_and(|found| found.is_err())
        });
        assert!(is_found, "nobody noticed: {lie:?}");
    }
}

fn oid(digit: u8) -> ObjectId {
    ObjectId::from_hex(&[digit; 40]).expect("forty digits")
}

fn open(shared: Arc<dyn Shared>) -> Store {
    let register = Register::open(shared, Arc::new(OsSystem::new()), Settings::default());
    let register = Arc::new(register.expect("nothing is read yet"));
    let mut options = ours::simulated(ObjectFormat::Sha1);
    options.hook = None;
    Store::open_shared(register, Arc::new(NoObjects), options).expect("a store")
}

fn create(store: &Store, name: &str) -> refdb::Result<()> {
    let edit = Edit::update(RefName::new(name)?, oid(b'1')).expecting(Expected::Missing);
    let mut transaction = store.transaction();
    transaction.add(edit)?;
    let outcome = transaction.commit()?;
    assert!(outcome.afterwards.is_empty(), "{:?}", outcome.afterwards);
    Ok(())
}

fn count(store: &Store) -> usize {
    let refs = store.refs().expect("refs").into_iter();
    let refs: refdb::Result<Vec<_>> = refs.collect();
    refs.expect("every ref").len()
}

/// Requests between two moments.
fn since(before: Requests, after: Requests) -> [u64; 6] {
    [
        after.swaps - before.swaps,
        after.puts - before.puts,
        after.heads - before.heads,
        after.gets - before.gets,
        after.deletes - before.deletes,
        after.lists - before.lists,
    ]
}

#[test]
fn a_small_commit_is_one_request() {
    let world = World::new(1, Faults::NONE);
    let client = Arc::new(world.client(0));
    Register::init(client.as_ref(), &OsSystem::new(), ObjectFormat::Sha1, 1).expect("init");
    let store = open(client);
    assert_eq!(count(&store), 0);
    for at in 0..50 {
        let before = world.requests();
        create(&store, &format!("refs/heads/b{at}")).expect("nobody else writes");
        let requests = since(before, world.requests());
        // Who made the store counts as somebody else, until four commits are this one's: if the machine is
        // busy, there is time to look at what he does.
        if at >= 4 {
            assert_eq!(requests, [1, 0, 0, 0, 0, 0], "commit {at}");
        }
        if at == 25 {
            // However long ago the last look was: nobody else has written.
            thread::sleep(Duration::from_millis(150));
        }
    }
    // A fresh read of what others may have changed is one conditional request, and sees it all.
    let before = world.requests();
    assert_eq!(count(&store), 50);
    assert_eq!(since(before, world.requests()), [0, 0, 1, 0, 0, 0]);
    // A refusal has its reason in what is there now.
    let before = world.requests();
    let error = create(&store, "refs/heads/b1").expect_err("it exists");
    assert_eq!(error.kind(), ErrorKind::Rejected);
    assert_eq!(since(before, world.requests()), [0, 0, 1, 0, 0, 0]);
}

#[test]
fn those_who_wait_are_committed_together() {
    const WRITERS: usize = 64;
    const COMMITS: usize = 20;
    let world = World::new(1, Faults::NONE);
    let client = Arc::new(world.client(0));
    Register::init(client.as_ref(), &OsSystem::new(), ObjectFormat::Sha1, 1).expect("init");
    // A request takes a while.
    let others = || thread::sleep(Duration::from_millis(5));
    client.set_others(Some(Arc::new(others)));
    let store = open(client);
    assert_eq!(count(&store), 0);
    let before = world.requests();
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let store = &store;
            scope.spawn(move || {
                for at in 0..COMMITS {
                    create(store, &format!("refs/heads/w{writer}/{at}")).expect("a new name");
                }
            });
        }
    });
    let [swaps, puts, heads, gets, ..] = since(before, world.requests());
    let each = |requests: u64| requests as f64 / (WRITERS * COMMITS) as f64;
    println!(
        "{} PUT and {} GET each",
        each(swaps + puts),
        each(heads + gets)
    );
    assert!(each(swaps + puts) <= 0.1, "{swaps} swaps and {puts} tables");
    assert!(
        each(heads + gets) <= 0.01,
        "{heads} heads and {gets} tables"
    );
    assert_eq!(count(&store), WRITERS * COMMITS);
}

/// The place in a directory, as four processes would use it.
#[test]
fn writers_of_one_directory_lose_nothing_and_are_not_refused() {
    const COMMITS: usize = 40;
    let temp = tempfile::tempdir().expect("a directory");
    let root = temp.path().join("store");
    let place = |make| DirShared::open(&OsSystem::new(), &root, make).expect("a place");
    Register::init(&place(true), &OsSystem::new(), ObjectFormat::Sha1, 1).expect("init");
    let error = Register::init(&place(true), &OsSystem::new(), ObjectFormat::Sha1, 1);
    assert_eq!(error.expect_err("there is one").kind(), ErrorKind::Misuse);
    thread::scope(|scope| {
        for writer in 0..4 {
            let store = open(Arc::new(place(false)));
            scope.spawn(move || {
                for at in 0..COMMITS {
                    create(&store, &format!("refs/heads/w{writer}/{at}")).expect("a new name");
                }
            });
        }
    });
    let store = open(Arc::new(place(false)));
    assert_eq!(count(&store), 4 * COMMITS);
    store
        .optimize(&refdb::Optimize::default())
        .expect("nobody else is at it");
    assert_eq!(count(&open(Arc::new(place(false)))), 4 * COMMITS);
}

/// What a writer that died left in the directory is in nobody's way, and nobody who only reads it keeps others
/// from writing.
#[test]
fn what_a_dead_writer_left_is_in_nobodys_way() {
    let temp = tempfile::tempdir().expect("a directory");
    let root = temp.path().join("store");
    let system = OsSystem::new();
    let place = || Arc::new(DirShared::open(&system, &root, true).expect("a place"));
    Register::init(place().as_ref(), &system, ObjectFormat::Sha1, 1).expect("init");
    let store = open(place());
    let held = std::fs::File::open(root.join("head")).expect("a folder");
    held.lock().expect("nobody has it");
    create(&store, "refs/heads/a").expect("nobody is waited for without end");
    drop(held);
    // A head and a table that were not finished.
    std::fs::write(root.join("tmp/0123456789abcdef"), "half a head").expect("written");
    std::fs::write(root.join("tables/half"), "half a table").expect("written");
    create(&store, "refs/heads/b").expect("a new name");
    store
        .optimize(&refdb::Optimize::default())
        .expect("nobody else is at it");
    assert_eq!(count(&open(place())), 2);
}

/// Whoever made the directory leads nobody out of it.
#[test]
fn no_link_in_a_directory_is_followed() {
    let temp = tempfile::tempdir().expect("a directory");
    let (root, elsewhere) = (temp.path().join("store"), temp.path().join("elsewhere"));
    let place = |root: &Path, make| DirShared::open(&OsSystem::new(), root, make).expect("a place");
    for dir in [&root, &elsewhere] {
        let place = place(dir, true);
        Register::init(&place, &OsSystem::new(), ObjectFormat::Sha1, 1).expect("init");
        create(&open(Arc::new(place)), "refs/heads/main").expect("a new name");
    }
    let there = std::fs::read(elsewhere.join("head/0.2")).expect("a head");
    for (name, target) in [("head/0.2", "head/0.2"), ("head", "head"), ("tmp", "tmp")] {
        let path = root.join(name);
        let kept = temp.path().join("kept");
        std::fs::rename(&path, &kept).expect("renamed");
        std::os::unix::fs::symlink(elsewhere.join(target), &path).expect("a link");
        let store = open(Arc::new(place(&root, false)));
        let error = create(&store, "refs/heads/other").expect_err("a link is there");
        assert_eq!(error.kind(), ErrorKind::Io, "{name}: {error}");
        std::fs::remove_file(&path).expect("removed");
        std::fs::rename(&kept, &path).expect("renamed");
    }
    assert_eq!(
        std::fs::read(elsewhere.join("head/0.2")).expect("a head"),
        there
    );
    let place = place(&root, false);
    for key in [
        "tables/../store",
        "tables/",
        "../x",
        "head/0.2",
        "tables/.x",
        "/etc/passwd",
    ] {
        assert!(place.get(key, None).is_err(), "{key}");
        assert!(place.put(key, b"").is_err(), "{key}");
        assert!(place.delete(&[key]).is_err(), "{key}");
    }
}
