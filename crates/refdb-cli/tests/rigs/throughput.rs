//! Thirty-two processes that write without pause, beside one: all of it is there afterwards, nobody
//! gives up waiting, and together they write at least half of what one does.
//!
//! The last is asked for where `REFDB_THROUGHPUT_SECONDS` is given, which says how long each measurement
//! takes: a machine with other things to do, or a disk that takes its time to sync, tells nothing.

#![allow(clippy::print_stderr, reason = "says what was measured")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use refdb_testkit::oracle;
use refdb_testkit::repo::Repo;
use refdb_testkit::trust::budget;
use refdb_testkit::{Format, RefFormat};

const WRITERS: usize = 32;

/// How many refs each writer has.
const REFS: usize = 50;

fn name(writer: usize, number: usize) -> String {
    format!("refs/heads/w{writer}/{}", number % REFS)
}

/// Commits one transaction after the other through a session; returns how many.
fn write(repo: &Repo, writer: usize, until: Instant) -> usize {
    let commits = &repo.objects().commits;
    let mut session = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path())
        .args(["update-ref", "--stdin"])
        .begin();
    let mut count = 0;
    while Instant::now() < until {
        let (name, id) = (name(writer, count), &commits[count % commits.len()]);
        session.say(&format!("start\nupdate {name} {id}\ncommit\n"));
        for expected in ["start: ok\n", "commit: ok\n"] {
            assert_eq!(session.hear(), expected, "writer {writer}");
        }
        count += 1;
    }
    session.end().ok();
    count
}

/// Lets so many write for so long; returns how many transactions there were in a second.
fn rate(format: Format, writers: usize, time: Duration) -> f64 {
    let repo = Repo::init(format);
    let begun = Instant::now();
    let until = begun + time;
    let counts: Vec<usize> = std::thread::scope(|scope| {
        let repo = &repo;
        let all: Vec<_> = (0..writers)
            .map(|writer| scope.spawn(move || write(repo, writer, until)))
            .collect();
        all.into_iter()
            .map(|one| one.join().expect("a writer"))
            .collect()
    });
    let taken = begun.elapsed().as_secs_f64();
    let found: BTreeMap<String, String> = repo
        .refs()
        .into_iter()
        .map(|listed| (listed.name.to_string(), listed.id))
        .collect();
    let commits = &repo.objects().commits;
    for (writer, &count) in counts.iter().enumerate() {
        for number in count.saturating_sub(REFS)..count {
            let id = &commits[number % commits.len()];
            assert_eq!(
                found.get(&name(writer, number)),
                Some(id),
                "writer {writer}"
            );
        }
    }
    let all: u32 = counts
        .iter()
        .map(|&count| u32::try_from(count).expect("not so many"))
        .sum();
    f64::from(all) / taken
}

#[test]
fn many_writers_do_at_least_half_of_what_one_does() {
    let seconds = budget("REFDB_THROUGHPUT_SECONDS", 0);
    let time = Duration::from_secs(seconds).max(Duration::from_millis(500));
    for refs in [RefFormat::Files, RefFormat::Reftable] {
        let format = Format {
            refs,
            ..Format::FILES_SHA1
        };
        let (one, many) = (rate(format, 1, time), rate(format, WRITERS, time));
        let ratio = many / one;
        eprintln!("{format}: {one:.0}/s by one, {many:.0}/s by {WRITERS}: {ratio:.2}");
        assert!(seconds == 0 || ratio >= 0.5, "{format}: {ratio:.2}");
    }
}
