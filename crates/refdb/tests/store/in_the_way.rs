//! Names in each other's way, where most of what a store holds is deleted: what is dead is in nobody's way,
//! and hides nothing that is.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use refdb::{Edit, Expected, ObjectId, Reason, RefName};
use refdb_testkit::repo::Repo;
use refdb_testkit::{for_every_format, ours};

/// So many rounds in one repository.
const ROUNDS: u32 = 150;

/// Names that go on from each other in every way: below, with what sorts before a slash, and behind it.
fn name() -> impl Strategy<Value = String> {
    let part = prop_oneof![Just("a"), Just("a-"), Just("a!"), Just("a0"), Just("b")];
    proptest::collection::vec(part, 1..4).prop_map(|parts| format!("refs/x/{}", parts.join("/")))
}

fn is_below(upper: &str, lower: &str) -> bool {
    lower
        .strip_prefix(upper)
        .is_some_and(|rest| rest.starts_with('/'))
}

fn are_in_the_way(one: &str, other: &str) -> bool {
    is_below(one, other) || is_below(other, one)
}

/// Takes names out until none is in the way of another.
fn apart(names: Vec<String>) -> BTreeSet<String> {
    let mut kept: BTreeSet<String> = BTreeSet::new();
    for name in names {
        if !kept.iter().any(|other| are_in_the_way(&name, other)) {
            kept.insert(name);
        }
    }
    kept
}

for_every_format! {
    fn what_is_in_the_way_is_refused_beside_what_is_dead(format) {
        let repo = Repo::init(format);
        let repository = ours::open(&repo.git_dir());
        let store = repository.store();
        let oid = ObjectId::from_hex(repo.objects().commits[0].as_bytes()).expect("an id");
        let name_of = |name: &str| RefName::new(name).expect("a name").to_owned();
        // Below these, tables with what is deleted are not merged away.
        let mut transaction = store.transaction();
        for at in 0..3_000 {
            let name = name_of(&format!("refs/w/{at}"));
            transaction.add(Edit::update(name.as_name(), oid).into_owned()).expect("added");
        }
        assert!(transaction.commit().expect("a commit").rejections.is_empty());
        let mut live: BTreeSet<String> = BTreeSet::new();
        let mut refused = 0;
        let names = proptest::collection::vec(name(), 1..40);
        let rounds = (names, proptest::collection::vec(any::<bool>(), 60));
        let mut runner = TestRunner::new_with_rng(
            Config::with_cases(ROUNDS),
            proptest::test_runner::TestRng::deterministic_rng(Default::default()),
        );
        for _ in 0..ROUNDS {
            let (names, fates) = rounds.new_tree(&mut runner).expect("a round").current();
            let mut transaction = store.transaction().batch();
            let mut expected = BTreeSet::new();
            for name in apart(names) {
                if live.contains(&name) {
                    continue;
                }
                transaction.add(Edit::update(name_of(&name).as_name(), oid).expecting(Expected::Missing).into_owned()).expect("added");
                if live.iter().any(|other| are_in_the_way(&name, other)) {
                    expected.insert(name);
                } else {
                    live.insert(name);
                }
            }
            let outcome = transaction.commit().expect("a commit");
            let told: BTreeSet<String> = outcome
                .rejections
                .iter()
                .map(|it| {
                    assert_eq!(it.reason, Reason::NameConflict);
                    it.name.to_string()
                })
                .collect();
            assert_eq!(told, expected);
            refused += told.len();

            let mut transaction = store.transaction();
            for (name, _) in live.clone().iter().zip(fates).filter(|(_, goes)| *goes) {
                transaction.add(Edit::delete(name_of(name).as_name()).into_owned()).expect("added");
                live.remove(name);
            }
            assert!(transaction.commit().expect("a commit").rejections.is_empty());
        }
        assert!(refused > 100, "{refused}");
        let refs = repo.refs();
        let listed = refs.iter().map(|it| it.name.to_string());
        assert_eq!(listed.filter(|name| name.starts_with("refs/x/")).collect::<BTreeSet<_>>(), live);
        repo.assert_sound();
    }
}
