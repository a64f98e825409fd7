//! Good and bad histories, made by hand and by chance.

use std::collections::BTreeMap;

use super::Isolation::{EachRef, Snapshot};
use super::*;
use crate::rng::Rng;

fn call(begun: u64, ended: u64, act: Act) -> Call {
    Call {
        who: format!("{begun}"),
        begun: Duration::from_millis(begun),
        ended: Duration::from_millis(ended),
        act,
    }
}

fn done<const N: usize>(begun: u64, ended: u64, edits: [Edit; N]) -> Call {
    call(begun, ended, Act::Write(edits.into(), Outcome::Done))
}

fn ended<const N: usize>(begun: u64, ended: u64, edits: [Edit; N], outcome: Outcome) -> Call {
    call(begun, ended, Act::Write(edits.into(), outcome))
}

fn oid(text: &str) -> Value {
    Value::Oid(text.into())
}

fn refs(text: &str) -> Vec<(String, Value)> {
    text.split_whitespace()
        .map(|pair| {
            let (name, value) = pair.split_once('=').expect("a name and a value");
            match value.strip_prefix("->") {
                Some(target) => (name.into(), Value::Symbolic(target.into())),
                None => (name.into(), oid(value)),
            }
        })
        .collect()
}

fn list(begun: u64, ended: u64, text: &str) -> Call {
    call(begun, ended, Act::List(refs(text)))
}

fn history<const N: usize>(first: &str, calls: [Call; N]) -> History {
    History {
        first: refs(first).into_iter().collect(),
        calls: calls.into(),
    }
}

#[track_caller]
fn good<const N: usize>(isolation: Isolation, first: &str, calls: [Call; N]) {
    let history = history(first, calls);
    if let Err(why) = check(&history, isolation) {
        panic!("{why}\n{history}");
    }
}

#[track_caller]
fn bad<const N: usize>(first: &str, calls: [Call; N]) -> String {
    let history = history(first, calls);
    for isolation in [Snapshot, EachRef] {
        match check(&history, isolation) {
            Err(Fault::Wrong(why)) if isolation == EachRef => return why,
            Err(Fault::Wrong(_)) => {}
            other => panic!("{other:?} in {isolation:?}:\n{history}"),
        }
    }
    unreachable!("the second one returns")
}

#[test]
fn a_name_and_one_below_it_never_both_exist() {
    let both = || {
        [
            done(0, 5, [Edit::create("a", "1")]),
            done(1, 4, [Edit::create("a/b", "2")]),
        ]
    };
    let [one, other] = both();
    bad("", [one, other, list(6, 7, "a=1 a/b=2")]);
    let [one, other] = both();
    bad("", [one, other, list(6, 7, "a=1")]);
    // `a-b` is another name.
    good(
        EachRef,
        "",
        [
            done(0, 5, [Edit::create("a", "1")]),
            done(1, 4, [Edit::create("a-b", "2")]),
            list(6, 7, "a=1 a-b=2"),
        ],
    );
    // One goes before the other comes.
    for isolation in [Snapshot, EachRef] {
        good(
            isolation,
            "a=1",
            [
                done(0, 5, [Edit::delete("a")]),
                done(1, 6, [Edit::create("a/b", "2")]),
                list(7, 8, "a/b=2"),
            ],
        );
    }
    // Far below counts too, and a symref is a ref.
    bad("a=->x", [done(0, 1, [Edit::create("a/b/c", "1")])]);
    bad(
        "",
        [done(
            0,
            1,
            [Edit::create("a/b/c", "1"), Edit::create("a", "1")],
        )],
    );
}

#[test]
fn a_listing_of_files_may_show_two_moments() {
    let calls = || {
        [
            done(1, 2, [Edit::delete("a")]),
            done(3, 4, [Edit::create("a/b", "2")]),
            list(0, 9, "a=1 a/b=2"),
        ]
    };
    good(EachRef, "a=1", calls());
    let history = history("a=1", calls());
    check(&history, Snapshot).expect_err("at no moment there were both");
}

#[test]
fn a_lost_update_is_noticed() {
    bad(
        "a=1",
        [
            done(0, 5, [Edit::swap("a", "1", "2")]),
            done(1, 4, [Edit::swap("a", "1", "3")]),
            list(6, 7, "a=3"),
        ],
    );
    bad(
        "a=1",
        [done(0, 5, [Edit::swap("a", "1", "2")]), list(6, 7, "a=1")],
    );
    // Through a symref it is the same ref.
    bad(
        "HEAD=->a a=1",
        [
            done(0, 5, [Edit::swap("HEAD", "1", "2")]),
            done(1, 4, [Edit::swap("a", "1", "3")]),
        ],
    );
}

#[test]
fn a_name_twice_in_a_listing_is_noticed() {
    let why = bad("a=1 b=2", [list(0, 1, "a=1 b=2 a=1")]);
    assert!(why.starts_with("a twice in one listing"), "{why}");
}

#[test]
fn what_was_done_for_nothing_is_noticed() {
    bad("", [done(0, 1, [Edit::create("a", "1")]), list(2, 3, "")]);
    bad(
        "a=1",
        [done(0, 1, [Edit::put("a", oid("2"))]), list(2, 3, "a=1")],
    );
    bad("a=1", [done(0, 1, [Edit::delete("a")]), list(2, 3, "a=1")]);
    bad(
        "a=1",
        [
            call(0, 1, Act::Rename("a".into(), "b".into(), Outcome::Done)),
            list(2, 3, "a=1"),
        ],
    );
    let link = Edit::put("s", Value::Symbolic("a".into()));
    bad(
        "a=1 s=->b b=1",
        [done(0, 1, [link]), list(2, 3, "a=1 b=1 s=->b")],
    );
    // A half of it.
    let both = [Edit::create("a", "1"), Edit::create("b", "1")];
    bad("", [done(0, 1, both), list(2, 3, "a=1")]);
}

#[test]
fn a_deletion_that_comes_back_is_noticed() {
    bad(
        "a=1",
        [
            done(0, 5, [Edit::delete("a")]),
            list(6, 7, ""),
            list(8, 9, "a=1"),
        ],
    );
    // Somebody may have made it again.
    good(
        Snapshot,
        "a=1",
        [
            done(0, 5, [Edit::delete("a")]),
            list(6, 7, ""),
            done(6, 8, [Edit::create("a", "1")]),
            list(9, 10, "a=1"),
        ],
    );
}

#[test]
fn what_failed_or_was_refused_changes_nothing() {
    let create = || [Edit::create("a", "1")];
    bad(
        "",
        [ended(0, 1, create(), Outcome::Failed), list(2, 3, "a=1")],
    );
    bad(
        "a=2",
        [ended(0, 1, create(), Outcome::Refused), list(2, 3, "a=1")],
    );
    good(
        EachRef,
        "a=2",
        [ended(0, 1, create(), Outcome::Refused), list(2, 3, "a=2")],
    );
    // Nothing was in the way.
    bad("", [ended(0, 1, create(), Outcome::Refused)]);
    bad("a-b=1 b=1", [ended(0, 1, create(), Outcome::Refused)]);
    good(Snapshot, "a/b=1", [ended(0, 1, create(), Outcome::Refused)]);
    // It was there for a moment of the call, or is about to be made.
    good(
        Snapshot,
        "",
        [
            ended(0, 9, create(), Outcome::Refused),
            done(1, 2, [Edit::create("a/b", "1")]),
            done(3, 4, [Edit::delete("a/b")]),
            list(5, 6, ""),
        ],
    );
}

#[test]
fn what_may_have_happened_happened_or_not() {
    let both = || {
        ended(
            0,
            1,
            [Edit::put("a", oid("1")), Edit::put("b", oid("1"))],
            Outcome::Perhaps,
        )
    };
    for isolation in [Snapshot, EachRef] {
        good(isolation, "", [both(), list(2, 3, "")]);
        good(isolation, "", [both(), list(2, 3, "a=1 b=1")]);
        // It does not happen later.
        let calls = [both(), list(2, 3, ""), list(4, 5, "a=1 b=1")];
        check(&history("", calls), isolation).expect_err("it has ended");
    }
    good(EachRef, "", [both(), list(2, 3, "b=1")]);
    check(&history("", [both(), list(2, 3, "b=1")]), Snapshot).expect_err("a half");
}

#[test]
fn a_transaction_is_seen_whole_in_a_snapshot() {
    let calls = || {
        [
            done(0, 9, [Edit::swap("a", "1", "2"), Edit::swap("b", "1", "2")]),
            list(1, 2, "a=1 b=2"),
            list(3, 4, "a=1 b=2"),
            list(10, 11, "a=2 b=2"),
        ]
    };
    good(EachRef, "a=1 b=1", calls());
    check(&history("a=1 b=1", calls()), Snapshot).expect_err("a half");
    // In files, too, nobody writes in between.
    bad(
        "a=1 b=1",
        [
            done(0, 9, [Edit::swap("a", "1", "2"), Edit::swap("b", "1", "2")]),
            done(0, 9, [Edit::swap("a", "2", "3"), Edit::swap("b", "1", "3")]),
        ],
    );
    // And nothing goes back.
    bad(
        "a=1 b=1",
        [
            done(0, 9, [Edit::swap("a", "1", "2"), Edit::swap("b", "1", "2")]),
            list(1, 2, "a=2 b=1"),
            list(3, 4, "a=1 b=1"),
        ],
    );
}

#[test]
fn a_rename_moves_the_value_that_is_there() {
    let rename = |begun, ended, old: &str, new: &str| {
        call(
            begun,
            ended,
            Act::Rename(old.into(), new.into(), Outcome::Done),
        )
    };
    for isolation in [Snapshot, EachRef] {
        good(
            isolation,
            "a=1",
            [rename(0, 1, "a", "a/b"), list(2, 3, "a/b=1")],
        );
        good(
            isolation,
            "a=1",
            [
                rename(0, 5, "a", "b"),
                done(1, 2, [Edit::swap("a", "1", "2")]),
                list(6, 7, "b=2"),
            ],
        );
    }
    bad("a=1 b=2", [rename(0, 1, "a", "b")]);
    bad("a=1 b/c=2", [rename(0, 1, "a", "b")]);
    bad("", [rename(0, 1, "a", "b")]);
    // It is never missing, unless by a program that takes the old name away first.
    let missing = |act: fn(String, String, Outcome) -> Act| {
        let rename = act("a".into(), "b".into(), Outcome::Done);
        let seen = [list(1, 2, ""), list(3, 4, ""), list(10, 11, "b=1")];
        let [one, other, end] = seen;
        [call(0, 9, rename), one, other, end]
    };
    bad("a=1", missing(Act::Rename));
    good(EachRef, "a=1", missing(Act::LooseRename));
    // One that looked before the new name was made takes its place.
    let over = || call(0, 9, Act::RenameOver("a".into(), "b".into(), Outcome::Done));
    let made = || done(1, 3, [Edit::create("b", "2")]);
    let end = || list(10, 11, "b=1");
    good(Isolation::Snapshot, "a=1", [over(), made(), end()]);
    bad("a=1", [rename(0, 9, "a", "b"), made(), end()]);
    // Where that fails, it may put the old name back, whatever came of it.
    let failed = || Act::LooseRename("a".into(), "b".into(), Outcome::Refused);
    let calls = || {
        [
            call(0, 9, failed()),
            list(1, 2, ""),
            done(1, 3, [Edit::delete("a")]),
            list(10, 11, "a=1"),
        ]
    };
    good(EachRef, "a=1", calls());
    good(EachRef, "a=1", [call(0, 9, failed()), list(10, 11, "a=1")]);
    bad("a=1", [call(0, 9, failed()), list(10, 11, "b=1")]);
    // Where it is not said how it ended, either name may be there.
    for end in ["a=1", "b=1", "a=1 b=1", ""] {
        let perhaps = Act::LooseRename("a".into(), "b".into(), Outcome::Perhaps);
        good(EachRef, "a=1", [call(0, 9, perhaps), list(10, 11, end)]);
    }
    good(
        EachRef,
        "a=1",
        [rename(0, 9, "a", "b"), list(1, 2, "a=1 b=1")],
    );
}

#[test]
fn symrefs_are_followed() {
    let point = |target: &str| [Edit::put("HEAD", Value::Symbolic(target.into()))];
    good(
        EachRef,
        "HEAD=->a a=1",
        [
            done(0, 9, point("b")),
            done(0, 9, [Edit::put("HEAD", oid("2"))]),
            list(10, 11, "HEAD=->b a=1 b=2"),
        ],
    );
    bad(
        "HEAD=->a a=1",
        [
            done(0, 1, point("b")),
            done(2, 3, [Edit::put("HEAD", oid("2"))]),
            list(4, 5, "HEAD=->b a=2"),
        ],
    );
    // One that leads nowhere is not listed.
    good(
        Snapshot,
        "HEAD=->a a=1",
        [done(0, 1, point("b")), list(2, 3, "a=1")],
    );
    // What is made is what it leads to.
    bad(
        "HEAD=->a a/b=1",
        [done(0, 1, [Edit::put("HEAD", oid("2"))])],
    );
    good(
        Snapshot,
        "HEAD=->a a=1",
        [
            done(0, 1, [Edit::put("HEAD", oid("2")).no_deref()]),
            list(2, 3, "HEAD=2 a=1"),
        ],
    );
    // It was one, and was none when it was followed.
    good(EachRef, "HEAD=->a a=1", [list(0, 1, "HEAD=->HEAD a=1")]);
    good(
        Snapshot,
        "HEAD=->a s=1 a=1",
        [list(0, 1, "HEAD=->HEAD s=->s a=1")],
    );
    // A circle ends.
    good(Snapshot, "a=->b b=->a", [list(0, 1, "")]);
}

#[test]
fn the_search_ends() {
    let mut calls = Vec::new();
    for number in 0..20 {
        let name = format!("n{number}");
        calls.push(done(
            0,
            9,
            [
                Edit::create(&name, "1"),
                Edit::create(&format!("m{number}"), "1"),
            ],
        ));
    }
    calls.push(list(10, 11, ""));
    let history = History {
        calls,
        ..History::default()
    };
    assert_eq!(check(&history, EachRef), Err(Fault::Undecided));
}

/// The refs after a call took place at one moment, if it can.
fn apply(refs: &BTreeMap<String, Value>, act: &Act) -> Option<BTreeMap<String, Value>> {
    let mut next = refs.clone();
    match act {
        Act::List(listed) => {
            let listed: BTreeMap<_, _> = listed.iter().cloned().collect();
            (listed == *refs).then_some(next)
        }
        Act::Write(edits, outcome) => {
            let mut fits = true;
            for edit in edits {
                fits &= match &edit.expected {
                    Expected::Any => {
                        edit.new != New::Gone
                            || *outcome == Outcome::Done
                            || refs.contains_key(&edit.name)
                    }
                    Expected::Missing => !refs.contains_key(&edit.name),
                    Expected::Is(value) => refs.get(&edit.name) == Some(value),
                };
                match &edit.new {
                    New::Kept => {}
                    New::Gone => drop(next.remove(&edit.name)),
                    New::Value(value) => drop(next.insert(edit.name.clone(), value.clone())),
                }
            }
            let names: Vec<&String> = next.keys().collect();
            let both = |one: &&String| names.iter().any(|other| in_the_way(one, other));
            fits &= !names.iter().any(both);
            match outcome {
                Outcome::Done => fits.then_some(next),
                Outcome::Refused => (!fits).then(|| refs.clone()),
                _ => Some(refs.clone()),
            }
        }
        _ => None,
    }
}

/// Tries every order.
fn by_trying(refs: &BTreeMap<String, Value>, left: &[Call]) -> bool {
    left.is_empty()
        || (0..left.len()).any(|index| {
            let chosen = &left[index];
            let is_first = left.iter().all(|other| chosen.begun <= other.ended);
            let rest: Vec<Call> = [&left[..index], &left[index + 1..]].concat();
            is_first && apply(refs, &chosen.act).is_some_and(|next| by_trying(&next, &rest))
        })
}

/// A history of calls that took place one after the other, each within its time, and one that has
/// perhaps been changed.
fn drawn(rng: &mut Rng) -> (History, bool) {
    const NAMES: [&str; 4] = ["a", "a/b", "a/b/c", "x"];
    let mut history = History::default();
    let mut refs = BTreeMap::new();
    for number in 0..6_u64 {
        let mut edits = Vec::new();
        for name in NAMES {
            if edits.is_empty() && rng.percent(40) || rng.percent(10) {
                let new = format!("{number}");
                edits.push(match (rng.below(4), refs.get(name)) {
                    (0, _) => Edit::delete(name),
                    (1, Some(Value::Oid(old))) => Edit::swap(name, old, &new),
                    (2, _) => Edit::create(name, &new),
                    _ => Edit::put(name, oid(&new)),
                });
            }
        }
        let mut act = Act::Write(edits, Outcome::Done);
        match apply(&refs, &act) {
            _ if rng.percent(30) => act = Act::List(refs.clone().into_iter().collect()),
            Some(next) => refs = next,
            None => {
                if let Act::Write(_, outcome) = &mut act {
                    *outcome = Outcome::Refused;
                }
            }
        }
        let at = 10 * number + 50;
        let (before, after) = (rng.below(35), rng.below(35));
        history
            .calls
            .push(call(at - before as u64, at + after as u64, act));
    }
    let change = rng.percent(60);
    if change {
        let at = rng.below(history.calls.len());
        match &mut history.calls[at].act {
            Act::List(listed) if listed.is_empty() => listed.push(("x".into(), oid("9"))),
            Act::List(listed) => drop(listed.pop()),
            Act::Write(_, outcome) => {
                *outcome = match outcome {
                    Outcome::Done => Outcome::Refused,
                    _ => Outcome::Done,
                };
            }
            _ => {}
        }
    }
    (history, !change)
}

#[test]
fn drawn_histories_are_judged_as_by_trying_every_order() {
    let (mut right, mut wrong) = (0, 0);
    for seed in 0..2000 {
        let (history, is_good) = drawn(&mut Rng::new(seed));
        let tried = by_trying(&history.first, &history.calls);
        assert!(
            tried || !is_good,
            "seed {seed}: the drawing is wrong\n{history}"
        );
        let found = check(&history, Snapshot);
        assert_ne!(found, Err(Fault::Undecided), "seed {seed}");
        assert_eq!(found.is_ok(), tried, "seed {seed}: {found:?}\n{history}");
        if tried {
            right += 1;
            check(&history, EachRef).expect("who sees less complains of less");
        } else {
            wrong += 1;
        }
    }
    assert!(right > 500 && wrong > 500, "{right} right, {wrong} wrong");
}
