//! Compare-and-swap by refdb threads, refdb processes and Git processes at once: the history of
//! every ref is linearizable.
//!
//! Every new value is used once, so that the successful updates of a ref are a chain, and there is
//! one order to check: for each value its update, then what read it, then the next update. Each must
//! have taken effect at a moment between its call and its return; taking the earliest one that is
//! possible is exact.
//!
//! `REFDB_WRITER_SECONDS` says how long each of the two formats takes, in rounds of a minute at most.

#![allow(clippy::print_stderr, reason = "says what was tried")]

use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use refdb::{Edit, Expected, ObjectId, RefName, Store};
use refdb_testkit::oracle::{self, GitRun};
use refdb_testkit::repo::Repo;
use refdb_testkit::rng::Rng;
use refdb_testkit::trust::{Tally, budget};
use refdb_testkit::{Format, ours};

const REFS: usize = 3;

fn name(which: usize) -> String {
    format!("refs/linear/{which}")
}

/// What a call did to one ref.
#[derive(Clone, Debug, PartialEq)]
enum Act {
    /// It read this value.
    Read(String),
    /// It replaced the first value by the second.
    Swapped(String, String),
    /// It was refused, because the ref did not have this value.
    Refused(String),
    /// It failed for another reason, and may have replaced the first by the second.
    Unknown(String, String),
}

/// A call, with the moments of its beginning and its end.
#[derive(Clone, Debug)]
struct Call {
    which: usize,
    begun: Duration,
    ended: Duration,
    act: Act,
}

/// Checks the calls on one ref that had the value `first` before all of them and `last` at the end.
#[expect(clippy::too_many_lines, reason = "one proof, step by step")]
fn check(calls: &[Call], first: &str, last: &str) -> Result<(), String> {
    let mut next: HashMap<&str, (&str, Duration, Duration)> = HashMap::new();
    let mut reads: HashMap<&str, Vec<&Call>> = HashMap::new();
    let mut unknown = HashMap::new();
    for call in calls {
        match &call.act {
            Act::Read(value) => reads.entry(value).or_default().push(call),
            Act::Swapped(old, new) => {
                let link = (new.as_str(), call.begun, call.ended);
                if let Some((other, ..)) = next.insert(old, link) {
                    return Err(format!("{old} was replaced by {other} and by {new}"));
                }
            }
            Act::Unknown(old, new) => {
                unknown.insert(new.as_str(), (old.as_str(), call.begun));
            }
            Act::Refused(_) => {}
        }
    }
    // An update that failed counts if its value was seen afterwards: then it may end at any time.
    let seen: Vec<&str> = reads
        .keys()
        .copied()
        .chain(next.keys().copied())
        .chain([last])
        .collect();
    for value in seen {
        if let Some((old, begun)) = unknown.remove(value)
            && next.insert(old, (value, begun, Duration::MAX)).is_some()
        {
            return Err(format!("{old} was replaced by {value} and by another"));
        }
    }
    let mut certain: HashMap<&str, (Duration, Duration)> = HashMap::new();
    let (mut value, mut now, mut sure) = (first, Duration::ZERO, Duration::ZERO);
    let mut links = 0;
    loop {
        let mut latest = now;
        for read in reads.remove(value).into_iter().flatten() {
            let at = now.max(read.begun);
            if at > read.ended {
                return Err(format!("{value} was read before it was written: {read:?}"));
            }
            latest = latest.max(at);
        }
        let Some(&(new, begun, ended)) = next.get(value) else {
            certain.insert(value, (sure, Duration::MAX));
            break;
        };
        now = latest.max(begun);
        if now > ended {
            return Err(format!("{value} was seen after it was replaced by {new}"));
        }
        certain.insert(value, (sure, begun));
        (value, sure) = (new, ended);
        links += 1;
    }
    if let Some(lost) = reads.keys().next() {
        return Err(format!("{lost} was read, and nobody wrote it"));
    }
    if links != next.len() {
        return Err(format!(
            "{} updates are lost after {value}",
            next.len() - links
        ));
    }
    if value != last {
        return Err(format!("it ends with {last}, and {value} was acknowledged"));
    }
    for call in calls {
        if let Act::Refused(old) = &call.act
            && let Some(&(from, to)) = certain.get(old.as_str())
            && from < call.begun
            && call.ended < to
        {
            return Err(format!("{old} was there all the time: {call:?}"));
        }
    }
    Ok(())
}

/// Who calls.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Actor {
    Thread,
    Refdb,
    Git,
}

/// How long each format takes in every test run, and a round at most.
const SHORT: u64 = 30;
const ROUND: u64 = 60;

/// A writer that is a thread waits so long between two calls: processes are to come in between.
const PAUSE: Duration = Duration::from_millis(3);

/// So many new values do for one second.
const VALUES: u64 = 1000;

const ACTORS: [Actor; 8] = [
    Actor::Thread,
    Actor::Refdb,
    Actor::Git,
    Actor::Refdb,
    Actor::Git,
    Actor::Thread,
    Actor::Refdb,
    Actor::Git,
];

struct World<'a> {
    repo: &'a Repo,
    store: Store,
    start: Instant,
    until: Duration,
    /// Values that nobody has used.
    fresh: Mutex<Vec<String>>,
    calls: Mutex<Vec<Call>>,
}

impl World<'_> {
    fn run(&self, actor: Actor) -> GitRun {
        let dir: &Path = self.repo.path();
        match actor {
            Actor::Git => oracle::git(dir),
            _ => oracle::run_of(env!("CARGO_BIN_EXE_refdb"), dir),
        }
    }

    fn read(&self, actor: Actor, which: usize) -> String {
        let name = name(which);
        if actor == Actor::Thread {
            let found = self.store.read(RefName::new(&name).expect("a good name"));
            let found = found.expect("readable").expect("it is never deleted");
            return found.target.as_ref().oid().expect("no symref").to_string();
        }
        let list = ["for-each-ref", "--format=%(objectname)"];
        self.run(actor).args(list).arg(name).run().text()
    }

    fn swap(&self, actor: Actor, which: usize, old: String, new: String) -> Act {
        let name = name(which);
        let (done, said) = if actor == Actor::Thread {
            let oid = |hex: &str| ObjectId::from_hex(hex.as_bytes()).expect("an object id");
            let name = RefName::new(&name).expect("a good name");
            let edit = Edit::update(name, oid(&new)).expecting(Expected::Oid(oid(&old)));
            let mut transaction = self.store.transaction();
            let done = transaction.add(edit).and_then(|()| transaction.commit());
            (
                done.is_ok(),
                done.err().map_or(String::new(), |error| error.to_string()),
            )
        } else {
            let run = self
                .run(actor)
                .args(["update-ref", &name, &new, &old])
                .run();
            (
                run.status.success(),
                String::from_utf8_lossy(&run.stderr).into_owned(),
            )
        };
        match done {
            true => Act::Swapped(old, new),
            false if said.contains("but expected") => Act::Refused(old),
            false => Act::Unknown(old, new),
        }
    }

    fn work(&self, number: usize, actor: Actor) {
        let mut rng = Rng::new(number as u64);
        while self.start.elapsed() < self.until {
            if rng.below(30) == 0 && actor != Actor::Thread {
                // Somebody else's being at it is fine.
                self.run(actor).args(["pack-refs", "--all"]).run();
            }
            if actor == Actor::Thread {
                std::thread::sleep(PAUSE);
            }
            let which = rng.below(REFS);
            let begun = self.start.elapsed();
            let value = self.read(actor, which);
            self.note(which, begun, Act::Read(value.clone()));
            if rng.percent(70) {
                let Some(new) = self.fresh.lock().expect("no panic").pop() else {
                    return;
                };
                let begun = self.start.elapsed();
                let act = self.swap(actor, which, value, new);
                self.note(which, begun, act);
            }
        }
    }

    fn note(&self, which: usize, begun: Duration, act: Act) {
        let ended = self.start.elapsed();
        let call = Call {
            which,
            begun,
            ended,
            act,
        };
        self.calls.lock().expect("no panic").push(call);
    }
}

/// Makes so many blobs.
fn blobs(repo: &Repo, count: usize) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let mut paths = String::new();
    for number in 0..count {
        let path = folder.path().join(number.to_string());
        std::fs::write(&path, number.to_string()).expect("a file");
        paths.push_str(&format!("{}\n", path.display()));
    }
    let hash = ["hash-object", "-w", "--no-filters", "--stdin-paths"];
    let ids = repo.git(hash).stdin(paths).run().text();
    ids.lines().map(str::to_owned).collect()
}

fn histories_are_linearizable(format: Format) {
    let mut tally = Tally::begin("seconds of eight concurrent writers", 0);
    let mut left = budget("REFDB_WRITER_SECONDS", SHORT);
    while left > 0 {
        let seconds = left.min(ROUND);
        one_round(format, seconds);
        tally.add(seconds);
        left -= seconds;
    }
}

fn one_round(format: Format, seconds: u64) {
    let repo = Repo::init(format);
    for key in [
        "core.filesRefLockTimeout",
        "core.packedRefsTimeout",
        "reftable.lockTimeout",
    ] {
        repo.config(key, "60000");
    }
    let count = usize::try_from(seconds * VALUES).expect("not so many");
    let mut fresh = blobs(&repo, count + REFS);
    let firsts = fresh.split_off(count);
    let create = |which: usize| format!("create {} {}\n", name(which), firsts[which]);
    repo.update_refs((0..REFS).map(create).collect::<String>());
    let world = World {
        repo: &repo,
        store: ours::open(&repo.git_dir()).store().clone(),
        start: Instant::now(),
        until: Duration::from_secs(seconds),
        fresh: Mutex::new(fresh),
        calls: Mutex::default(),
    };
    std::thread::scope(|scope| {
        for (number, actor) in ACTORS.into_iter().enumerate() {
            let world = &world;
            scope.spawn(move || world.work(number, actor));
        }
    });
    let calls = world.calls.lock().expect("no panic").clone();
    let swapped = calls
        .iter()
        .filter(|call| matches!(call.act, Act::Swapped(..)))
        .count();
    assert!(swapped > REFS, "next to nothing was done");
    assert!(
        world.start.elapsed() >= world.until,
        "the new values did not last"
    );
    for (which, first) in firsts.iter().enumerate() {
        let calls: Vec<Call> = calls
            .iter()
            .filter(|call| call.which == which)
            .cloned()
            .collect();
        let last = world.read(Actor::Git, which);
        assert_eq!(world.read(Actor::Refdb, which), last);
        if let Err(why) = check(&calls, first, &last) {
            panic!("{} in {format}: {why}", name(which));
        }
    }
    eprintln!(
        "{} calls in {format}, {swapped} of them updates",
        calls.len()
    );
    repo.assert_sound();
}

#[test]
fn histories_are_linearizable_in_files() {
    histories_are_linearizable(Format::FILES_SHA1);
}

#[test]
fn histories_are_linearizable_in_reftable() {
    histories_are_linearizable(Format::REFTABLE_SHA1);
}

/// A writer that compares before it takes the lock: two of them replace the same value, which the
/// check of histories notices.
#[test]
fn a_check_before_the_lock_is_caught() {
    for format in [Format::FILES_SHA1, Format::REFTABLE_SHA1] {
        let repo = Repo::init(format);
        let ids = blobs(&repo, 3);
        repo.update_refs(format!("create {} {}\n", name(0), ids[0]));
        let repository = ours::open(&repo.git_dir());
        let store = repository.store();
        let both_checked = std::sync::Barrier::new(2);
        let start = Instant::now();
        let swap = |new: &String| {
            let begun = start.elapsed();
            let name = name(0);
            let name = RefName::new(&name).expect("a good name");
            let found = store.read(name).expect("readable").expect("there");
            let old = found.target.as_ref().oid().expect("no symref").to_string();
            both_checked.wait();
            let mut transaction = store.transaction();
            let new_id = ObjectId::from_hex(new.as_bytes()).expect("an object id");
            transaction
                .add(Edit::update(name, new_id))
                .expect("a good edit");
            let outcome = transaction.commit().expect("no fault");
            assert!(outcome.afterwards.is_empty());
            let act = Act::Swapped(old, new.clone());
            Call {
                which: 0,
                begun,
                ended: start.elapsed(),
                act,
            }
        };
        let calls = std::thread::scope(|scope| {
            let calls = [&ids[1], &ids[2]].map(|new| {
                scope.spawn({
                    let swap = &swap;
                    move || swap(new)
                })
            });
            calls.map(|call| call.join().expect("a writer"))
        });
        let last = oracle::git(repo.path())
            .args(["rev-parse", &name(0)])
            .run()
            .text();
        check(&calls, &ids[0], &last).expect_err("two replaced the same value");
    }
}

#[test]
fn the_check_tells_good_histories_from_bad_ones() {
    let call = |begun, ended, act| Call {
        which: 0,
        begun: Duration::from_secs(begun),
        ended: Duration::from_secs(ended),
        act,
    };
    let swap = |old: &str, new: &str| Act::Swapped(old.into(), new.into());
    let read = |value: &str| Act::Read(value.into());
    let good = [
        call(0, 5, swap("a", "b")),
        call(1, 2, read("b")),
        call(3, 9, swap("b", "c")),
        call(4, 6, read("b")),
        call(2, 4, Act::Refused("a".into())),
    ];
    check(&good, "a", "c").expect("it is");
    // The old value is read after the new one was.
    let stale = [
        call(0, 5, swap("a", "b")),
        call(1, 2, read("b")),
        call(3, 4, read("a")),
    ];
    check(&stale, "a", "b").expect_err("stale");
    let lost = [call(0, 1, swap("a", "b")), call(2, 3, read("a"))];
    check(&lost, "a", "a").expect_err("lost");
    let early = [call(0, 1, read("b")), call(2, 3, swap("a", "b"))];
    check(&early, "a", "b").expect_err("read before it was written");
    let groundless = [call(1, 2, Act::Refused("a".into()))];
    check(&groundless, "a", "a").expect_err("nothing was in the way");
    let unseen = [call(1, 2, Act::Unknown("a".into(), "b".into()))];
    check(&unseen, "a", "a").expect("it did not happen");
    check(&unseen, "a", "b").expect("it did happen");
}
