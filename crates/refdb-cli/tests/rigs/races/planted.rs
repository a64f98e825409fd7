//! Planted bugs: writers that do it wrong. The matrix has to notice them.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use refdb_testkit::Format;
use refdb_testkit::linear::{Edit, Expected, New, Outcome, Value, in_the_way};

use super::actor::{Actor, How, Op, Program};
use super::draw::Kind;
use super::listing;
use super::names::spread;
use super::round::{self, Cell};

/// What a planted writer does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// It compares the value and looks for names in the way before it takes a lock.
    ComparesFirst,
    /// It writes new refs into packed-refs, under the lock of that file alone.
    PacksUnlocked,
    /// It says that it did what it did not do, at times.
    SaysOk,
    /// It waits for a lock that nobody gives back.
    Waits,
}

/// So long it takes from the look to the write.
const PAUSE: Duration = Duration::from_millis(5);

/// A bug has to be noticed within so many cells, each of a second.
const CELLS: u64 = 40;

/// Does a transaction in its way.
pub(crate) fn write(actor: Actor<'_>, bug: Bug, edits: &[Edit]) -> Outcome {
    let by_git = |edits: &[Edit]| {
        let git = Actor {
            program: Program::Git,
            ..actor
        };
        let op = Op::Write(edits.to_vec(), How::Input(false));
        let mut done = git.carry_out(&op, refdb_testkit::RefFormat::Files);
        match done.calls.pop().expect("one operation").act {
            refdb_testkit::linear::Act::Write(_, outcome) => outcome,
            _ => Outcome::Perhaps,
        }
    };
    match bug {
        Bug::SaysOk if actor.start.elapsed().subsec_micros().is_multiple_of(3) => Outcome::Done,
        Bug::SaysOk => by_git(edits),
        Bug::Waits => {
            std::thread::sleep(Duration::from_secs(5));
            Outcome::Failed
        }
        Bug::ComparesFirst if is_refused(actor.dir, edits) => Outcome::Refused,
        Bug::ComparesFirst => {
            std::thread::sleep(PAUSE);
            let blindly: Vec<Edit> = edits
                .iter()
                .map(|it| it.clone().expecting(Expected::Any))
                .collect();
            by_git(&blindly)
        }
        Bug::PacksUnlocked => match edits {
            [edit] if edit.expected == Expected::Missing => {
                if is_refused(actor.dir, edits) {
                    return Outcome::Refused;
                }
                std::thread::sleep(PAUSE);
                pack(&actor.dir.join(".git"), edit)
            }
            _ => by_git(edits),
        },
    }
}

/// Looks whether anything is in the way of the edits, under no lock.
fn is_refused(dir: &Path, edits: &[Edit]) -> bool {
    let listed = listing::of_program(Program::Git, dir).and_then(listing::Listing::at_once);
    let listed = listed.unwrap_or_default();
    let found = |name: &str| listed.iter().find(|(other, _)| other == name);
    edits.iter().any(|edit| match &edit.expected {
        Expected::Missing => {
            found(&edit.name).is_some()
                || listed.iter().any(|(name, _)| in_the_way(name, &edit.name))
        }
        Expected::Is(value) => found(&edit.name).is_none_or(|(_, found)| found != value),
        Expected::Any => false,
    })
}

/// Adds refs to packed-refs, which Git sorts when it reads it.
fn pack(git_dir: &Path, edit: &Edit) -> Outcome {
    let New::Value(Value::Oid(oid)) = &edit.new else {
        return Outcome::Failed;
    };
    let [packed, lock] = ["packed-refs", "packed-refs.lock"].map(|name| git_dir.join(name));
    let made = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(&lock);
    if made.is_err() {
        return Outcome::Failed;
    }
    let old = fs::read_to_string(&packed).unwrap_or_default();
    let mut lines: Vec<String> = old
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(str::to_owned)
        .collect();
    for name in spread(&edit.name).unwrap_or_else(|| vec![edit.name.clone()]) {
        lines.push(format!("{oid} {name}"));
    }
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(&lock, text).expect("a file of ours");
    fs::rename(&lock, &packed).expect("a file of ours");
    Outcome::Done
}

/// Races a planted writer until it is noticed; returns how.
fn noticed(bug: Bug, format: Format, kinds: [Kind; 2]) -> String {
    for seed in 0..CELLS {
        let cell = Cell {
            format,
            programs: [Program::Planted(bug), Program::Git],
            kinds,
            seed,
        };
        if let Some(failure) = round::run(&cell, Duration::from_secs(1)).failure {
            return failure.why;
        }
    }
    panic!("{bug:?} in {format} was not noticed");
}

const FORMATS: [Format; 2] = [Format::FILES_SHA1, Format::REFTABLE_SHA1];

#[test]
fn a_comparison_before_the_lock_is_noticed() {
    for format in FORMATS {
        let why = noticed(Bug::ComparesFirst, format, [Kind::Head, Kind::Head]);
        assert!(why.contains("no order explains"), "{why}");
    }
}

/// The bug by which `foo` and `foo/1` both came to exist.
#[test]
fn packing_without_the_locks_of_names_above_is_noticed() {
    let why = noticed(
        Bug::PacksUnlocked,
        Format::FILES_SHA1,
        [Kind::Create, Kind::Create],
    );
    assert!(why.contains("no order explains"), "{why}");
}

#[test]
fn an_answer_without_a_deed_is_noticed() {
    for format in FORMATS {
        let why = noticed(Bug::SaysOk, format, [Kind::Create, Kind::Expire]);
        assert!(why.contains("no order explains"), "{why}");
    }
}

#[test]
fn waiting_for_nobody_is_noticed() {
    let why = noticed(Bug::Waits, Format::FILES_SHA1, [Kind::Head, Kind::Expire]);
    assert!(why.contains("nobody held a lock"), "{why}");
}
