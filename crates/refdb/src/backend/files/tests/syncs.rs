//! Of many files, none is synced by itself, and all are durable.

use std::sync::Arc;

use crate::layout::Layout;
use crate::objects::NoObjects;
use crate::options::{Committer, Identity};
use crate::system::System;
use crate::{
    Edit, LogOrder, ObjectFormat, ObjectId, Options, RefFormat, RefName, RefNameBuf, Result, Store,
};
use refdb_simulation::{Content, Crash, Fault, Names, SimSystem};

/// More than are synced one by one, and fewer than are packed.
const COUNT: usize = 12;

fn open(system: &SimSystem) -> Store {
    let mut options = Options::new(ObjectFormat::Sha1);
    options.committer = Committer::from(Identity {
        name: "A".into(),
        email: "a@b".into(),
        ..Identity::default()
    });
    Store::open(
        Arc::new(system.clone()),
        Layout::main("/r"),
        RefFormat::Files,
        Arc::new(NoObjects),
        options,
    )
    .unwrap()
}

fn repository() -> SimSystem {
    let system = SimSystem::new(3);
    for dir in ["/r", "/r/refs", "/r/refs/heads"] {
        system.create_dir(dir.as_ref()).unwrap();
    }
    system.sync_all();
    system
}

fn names() -> Vec<RefNameBuf> {
    let name = |at| RefNameBuf::new(format!("refs/heads/{at}/x")).unwrap();
    (0..COUNT).map(name).collect()
}

fn create(store: &Store) -> Result<bool> {
    let names = names();
    let oid = ObjectId::from_hex(&[b'1'; 40]).unwrap();
    let mut transaction = store.transaction();
    for name in &names {
        transaction.add(Edit::update(name, oid))?;
    }
    Ok(transaction.commit()?.afterwards.is_empty())
}

/// Returns how many of the refs and how many of their reflog entries are there.
fn found(system: &SimSystem) -> (usize, usize) {
    let store = open(system);
    let names = names();
    let refs = names.iter().map(RefName::from);
    let there = |name| usize::from(store.read(name).unwrap().is_some());
    let entries = |name| {
        let log = store.log(name, LogOrder::OldestFirst).unwrap();
        log.map_or(0, |log| log.len())
    };
    (refs.clone().map(there).sum(), refs.map(entries).sum())
}

#[test]
fn many_files_take_few_syncs() {
    let system = repository();
    system.start_trace();
    assert!(create(&open(&system)).unwrap());
    let trace = system.take_trace();
    let syncs = trace.iter().filter(|op| op.name.contains("sync"));
    // Before the journal, the journal and its name, and before it goes.
    assert_eq!(syncs.count(), 4);
}

#[test]
fn a_power_failure_loses_none_of_many() {
    none_is_lost(&repository());
}

/// As on macOS, where nothing makes all durable at once.
#[test]
fn a_power_failure_loses_none_of_many_that_are_synced_one_by_one() {
    let base = repository();
    base.sync_one_by_one();
    none_is_lost(&base);
}

fn none_is_lost(base: &SimSystem) {
    let system = base.fork();
    create(&open(&system)).unwrap();
    let crash = |names, content| Crash {
        names,
        content,
        seed: 1,
    };
    for at in 0..=system.op_count() {
        let system = base.fork();
        system.set_fault(Some(Fault::dies_at(at)));
        let acknowledged = create(&open(&system)).unwrap_or(false);
        for crash in [
            crash(Names::Durable, Content::Durable),
            crash(Names::All, Content::Durable),
            crash(Names::All, Content::Zeros),
            Crash::seeded(at),
        ] {
            // To read a ref that was named before its content was durable would fail.
            let after = found(&system.crash(crash));
            if acknowledged {
                assert_eq!(after, (COUNT, COUNT), "{at}, {crash:?}");
            }
        }
    }
}
