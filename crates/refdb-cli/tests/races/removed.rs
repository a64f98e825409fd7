//! Somebody removes all locks while a transaction is prepared, as people do who take them for left,
//! and perhaps somebody else writes then: what is acknowledged has happened, and nothing that was
//! acknowledged to the other is undone.

use std::fs;
use std::path::Path;
use std::time::Instant;

use bstr::ByteSlice;
use refdb_testkit::linear::{Act, Call, Edit, Fault, History, Isolation, Outcome, Value, check};
use refdb_testkit::trust::Tally;
use refdb_testkit::{Format, RefFormat};

use crate::actor::{Actor, How, Op, Program, lines};
use crate::listing::{self, Listing};
use crate::names::{BRANCHES, LINK, MANY, NESTED, SPARE};
use crate::round::{Arena, settle};

/// Removes every file and link that ends in `.lock`, and nothing that ends otherwise.
fn remove_locks(dir: &Path) -> usize {
    let mut count = 0;
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            count += remove_locks(&path);
        } else if path.extension().is_some_and(|it| it == "lock") {
            fs::remove_file(&path).expect("nobody else removes it");
            count += 1;
        }
    }
    count
}

/// What is prepared, and what others write before it is committed.
fn cases(commits: &[String]) -> Vec<(Vec<Edit>, Vec<Option<Edit>>)> {
    let [main, x] = BRANCHES;
    let [old, new, other] = [0, 1, 2].map(|index| commits[index].as_str());
    let oid = |oid: &str| Value::Oid(oid.to_owned());
    let spare = || Some(Edit::create(SPARE, other));
    let theirs = |name: &str| Some(Edit::put(name, oid(other)));
    let link = |name: &str, target: &str| Edit::put(name, Value::Symbolic(target.to_owned()));
    let above = || Some(Edit::create(NESTED[0], other));
    let swap = |name: &str| Edit::swap(name, old, new);
    let gone = Some(Edit::delete(x));
    vec![
        (vec![swap(x)], vec![None, spare(), theirs(x), gone.clone()]),
        (
            vec![swap("HEAD")],
            vec![None, spare(), theirs(main), Some(link("HEAD", x))],
        ),
        (
            vec![swap(main), swap(x)],
            vec![None, spare(), theirs(main), theirs(x), gone],
        ),
        (
            vec![Edit::create(NESTED[1], new)],
            vec![None, spare(), theirs(NESTED[1]), above(), theirs(NESTED[2])],
        ),
        (vec![Edit::delete(x)], vec![None, spare(), theirs(x)]),
        (
            vec![Edit::delete(x), swap(main)],
            vec![None, spare(), theirs(x), theirs(main)],
        ),
        (
            vec![link(LINK, x)],
            vec![None, spare(), Some(link(LINK, main)), theirs(LINK)],
        ),
        (
            vec![Edit::create(MANY[0], new)],
            vec![None, spare(), theirs(NESTED[1]), above()],
        ),
        (
            vec![Edit::create(MANY[0], new), swap(x)],
            vec![None, spare(), theirs(x), above()],
        ),
    ]
}

/// One such case; returns what is wrong with it.
fn one_case(
    format: Format,
    packed: bool,
    by: [Program; 2],
    edits: &[Edit],
    rival: Option<&Edit>,
) -> Option<String> {
    let arena = Arena::new(format, false);
    let commits = &arena.repo.objects().commits;
    for branch in BRANCHES {
        arena
            .repo
            .update_refs(format!("create {branch} {}\n", commits[0]));
    }
    if packed {
        arena.repo.git(["pack-refs", "--all"]).run().ok();
    }
    let first = listing::of_library(&arena.git_dir).and_then(Listing::settled);
    let mut history = History {
        first: first.expect("nobody else is there").into_iter().collect(),
        calls: Vec::new(),
    };
    let start = Instant::now();
    let mut session = by[0]
        .run(&arena.dir)
        .args(["update-ref", "--stdin"])
        .begin();
    session.say(&format!("start\n{}prepare\n", lines(edits)));
    assert_eq!(
        [session.hear(), session.hear()],
        ["start: ok\n", "prepare: ok\n"]
    );
    assert!(remove_locks(&arena.git_dir) > 0, "there were no locks");
    if let Some(edit) = rival {
        let actor = Actor {
            program: by[1],
            dir: &arena.dir,
            beside_migration: false,
            start,
        };
        let done = actor.carry_out(&Op::Write(vec![edit.clone()], How::Plain), format.refs);
        history.calls.extend(done.calls);
    }
    session.tell("commit\n");
    let is_done = session.hear() == "commit: ok\n";
    let out = session.end();
    let said = out.stderr.to_str_lossy();
    let outcome = match is_done {
        true => Outcome::Done,
        false if by[0] == Program::Git || said.contains("in part") => Outcome::Perhaps,
        false => Outcome::Failed,
    };
    history.calls.push(Call {
        who: format!("{:?}, its locks removed", by[0]),
        begun: std::time::Duration::ZERO,
        ended: start.elapsed(),
        act: Act::Write(edits.to_vec(), outcome),
    });
    let wrong = match settle(&arena, start, &mut history) {
        Err(why) => Some(why),
        Ok(_) => match check(&history, Isolation::EachRef) {
            Ok(_) => None,
            Err(Fault::Wrong(why)) => Some(why),
            Err(Fault::Undecided) => Some("undecided".into()),
        },
    };
    let wrong = wrong.or_else(|| listing::leftovers(&arena.repo).err())?;
    let packed = if packed { " (packed)" } else { "" };
    Some(format!(
        "{format}, {by:?}{packed}: {wrong}\nit said: {said}\n{history}"
    ))
}

fn locks_are_removed(format: Format) {
    let mut tally = Tally::begin("races: transactions whose locks were removed", 0);
    let commits = refdb_testkit::objects::Objects::standard(format.objects);
    let (mut wrong, mut of_git) = (Vec::new(), Vec::new());
    for (edits, rivals) in cases(&commits.commits) {
        for rival in &rivals {
            for packed in [false, true] {
                if packed && format.refs == RefFormat::Reftable {
                    continue;
                }
                for other in [Program::Git, Program::Refdb] {
                    if rival.is_none() && other == Program::Refdb {
                        continue;
                    }
                    let case = |by| one_case(format, packed, by, &edits, rival.as_ref());
                    wrong.extend(case([Program::Refdb, other]));
                    tally.add(1);
                    if other == Program::Git {
                        of_git.extend(case([Program::Git, Program::Git]));
                    }
                }
            }
        }
    }
    if !of_git.is_empty() {
        eprintln!(
            "{} cases are wrong with two Gits, such as {}",
            of_git.len(),
            of_git[0]
        );
    }
    let count = wrong.len();
    assert!(
        wrong.is_empty(),
        "{count} of {}:\n\n{}",
        tally.count(),
        wrong.join("\n\n")
    );
}

#[test]
fn nothing_is_done_for_nothing_when_locks_are_removed_in_files() {
    locks_are_removed(Format::FILES_SHA1);
}

#[test]
fn nothing_is_done_for_nothing_when_locks_are_removed_in_reftable() {
    locks_are_removed(Format::REFTABLE_SHA1);
}
