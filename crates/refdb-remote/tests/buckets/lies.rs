//! Writers beside each other, and a place that lies about a quarter of what is stored: nothing that was
//! acknowledged is lost, nothing that was refused is there, and nobody is refused who is in nobody's way.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::thread;

use refdb_testkit::Format;
use refdb_testkit::oracle::Output;
use refdb_testkit::repo::Repo;

use crate::commands::{refdb, run, said};
use crate::liar::Place;

/// How many write, and how many transactions each of them makes; more with `REFDB_TEST_TURNS`.
const WRITERS: usize = 4;
const TURNS: usize = 12;

/// How many transactions a process makes.
const EACH: usize = 4;

#[derive(Default)]
struct Told {
    acknowledged: Vec<String>,
    refused: Vec<(String, String)>,
    unknown: usize,
}

fn turns() -> usize {
    let turns = std::env::var("REFDB_TEST_TURNS").ok();
    turns.and_then(|turns| turns.parse().ok()).unwrap_or(TURNS)
}

/// Makes transactions, several in each process, each of which makes one ref and moves one of the writer's own.
fn write(place: &Place, repo: &Repo, url: &str, writer: usize) -> Told {
    let commits = &repo.objects().commits;
    let mut told = Told::default();
    let mut own: Option<&str> = None;
    let mut turn = 0;
    while turn < turns() {
        let mut input = String::new();
        let mut names = Vec::new();
        let mut value = own;
        for at in turn..(turn + EACH).min(turns()) {
            let (name, new) = (
                format!("refs/heads/w{writer}/{at}"),
                commits[at % 4].as_str(),
            );
            let old = value.unwrap_or("0000000000000000000000000000000000000000");
            input.push_str(&format!(
                "start\ncreate {name} {new}\nupdate refs/own/{writer} {new} {old}\ncommit\n"
            ));
            names.push((name, new));
            value = Some(new);
        }
        let output = run(
            place,
            repo,
            &["--store", url, "update-ref", "--stdin"],
            &input,
        );
        let done = String::from_utf8_lossy(&output.stdout)
            .matches("commit: ok")
            .count();
        for (name, new) in names.iter().take(done) {
            told.acknowledged.push(name.clone());
            own = Some(*new);
        }
        turn += done;
        if let Some((name, _)) = names.get(done) {
            turn += 1;
            told.note_failure(name, &output);
            // What is there now is where it goes on.
            own = refdb_value(place, repo, url, writer).and_then(|value| {
                let mut known = commits.iter().take(4);
                known.find(|known| **known == value).map(String::as_str)
            });
        }
    }
    told
}

impl Told {
    fn note_failure(&mut self, name: &str, output: &Output) {
        let text = said(output);
        match text.contains("no answer says whether it was committed") {
            true => self.unknown += 1,
            false => self.refused.push((name.to_owned(), text)),
        }
    }
}

fn refdb_value(place: &Place, repo: &Repo, url: &str, writer: usize) -> Option<String> {
    let name = format!("refs/own/{writer}");
    let output = refdb(
        place,
        repo,
        &["--store", url, "show-ref", "--verify", "--hash", &name],
    );
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.code() == 0).then_some(text)
}

fn together(percent: u64, slots: u32, name: &str) -> (Place, usize) {
    let place = Place::new(percent);
    let url = place.url(name);
    let repo = Repo::init(Format::ALL[0]);
    let slots = format!("--slots={slots}");
    refdb(&place, &repo, &["store", "init", &slots, &url]).ok();
    let told: Vec<Told> = thread::scope(|scope| {
        let (place, repo, url) = (&place, &repo, url.as_str());
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| scope.spawn(move || write(place, repo, url, writer)))
            .collect();
        let joined = writers
            .into_iter()
            .map(|writer| writer.join().expect("a writer"));
        joined.collect()
    });
    let listed = refdb(
        &place,
        &repo,
        &["--store", &url, "for-each-ref", "--format=%(refname)"],
    )
    .text();
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    for name in listed.lines() {
        *times.entry(name).or_default() += 1;
    }
    let (mut acknowledged, mut unknown) = (0, 0);
    for told in &told {
        for name in &told.acknowledged {
            assert_eq!(times.get(name.as_str()), Some(&1), "lost: {name}");
        }
        assert_eq!(told.refused, [], "nobody was in their way");
        acknowledged += told.acknowledged.len();
        unknown += told.unknown;
    }
    assert!(times.len() <= acknowledged + unknown + WRITERS, "{times:?}");
    assert_eq!(unknown, 0, "everything was found out in time");
    refdb(&place, &repo, &["store", "verify", &url]).ok();
    (place, acknowledged)
}

fn tell(transactions: usize, (puts, gets, lies): (u64, u64, u64)) {
    let text = format!(
        "{transactions} transactions: {puts} requests that write, {gets} that read, {lies} lies"
    );
    let _ = writeln!(std::io::stderr(), "{text}");
}

#[test]
fn writers_beside_each_other_lose_nothing_and_are_not_refused() {
    let (place, acknowledged) = together(0, 1, "beside");
    assert_eq!(acknowledged, WRITERS * turns());
    tell(acknowledged, place.counts());
}

#[test]
fn a_place_that_lies_about_a_quarter_loses_nothing() {
    let (place, acknowledged) = together(25, 1, "lies");
    let (puts, gets, lies) = place.counts();
    tell(acknowledged, (puts, gets, lies));
    assert_eq!(acknowledged, WRITERS * turns());
    assert!(lies * 8 > puts, "{lies} of {puts}");
}

/// As where one name may be written once a second.
#[test]
fn a_head_of_many_slots_loses_nothing_where_the_place_lies() {
    let (place, acknowledged) = together(25, 16, "slots");
    let (puts, gets, lies) = place.counts();
    tell(acknowledged, (puts, gets, lies));
    assert_eq!(acknowledged, WRITERS * turns());
    assert!(lies * 8 > puts, "{lies} of {puts}");
}
