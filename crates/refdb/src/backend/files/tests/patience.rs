//! Of many locks that others hold, one is waited for.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::SomeObjects;
use crate::commit::{Holder, Home, LockFile, LockOptions};
use crate::layout::Layout;
use crate::options::LockTimeout;
use crate::system::System;
use crate::system::beside::HALVES_MIN;
use crate::{Edit, ObjectFormat, ObjectId, Optimize, Options, RefFormat, RefNameBuf, Store};
use refdb_simulation::SimSystem;

const COUNT: usize = 9;
const TIMEOUT: Duration = Duration::from_secs(5);

fn names() -> Vec<RefNameBuf> {
    let name = |at| RefNameBuf::new(format!("refs/heads/r{at}")).unwrap();
    (0..COUNT).map(name).collect()
}

fn oid(digit: u8) -> ObjectId {
    ObjectId::from_hex(&[digit; 40]).unwrap()
}

/// A repository with refs whose locks somebody holds who lives, and a store that waits.
fn locked() -> (SimSystem, Store, Vec<LockFile>) {
    let system = SimSystem::new(3);
    for dir in ["/r", "/r/refs", "/r/refs/heads"] {
        system.create_dir(dir.as_ref()).unwrap();
    }
    let mut options = Options::simulated(ObjectFormat::Sha1);
    options.files_ref_lock_timeout = LockTimeout::from_millis(5000);
    let store = Store::open(
        Arc::new(system.process(2)),
        Layout::main("/r"),
        RefFormat::Files,
        Arc::new(SomeObjects),
        options,
    );
    let store = store.unwrap();
    let mut transaction = store.transaction();
    for name in &names() {
        transaction.add(Edit::update(name, oid(b'1'))).unwrap();
    }
    let _ = transaction.commit().unwrap();
    let other = Options::new(ObjectFormat::Sha1);
    let other = Home::new(&(Arc::new(system.process(7)) as _), Path::new("/r"), &other);
    let holder = Holder::new(&other);
    let lock = |name: &RefNameBuf| {
        let path = Path::new("/r").join(name.to_string());
        LockFile::acquire(&holder, &path, LockOptions::AT_ONCE).unwrap()
    };
    let locks = names().iter().map(lock).collect();
    (system, store, locks)
}

/// Runs something that meets all these locks; it has to wait for one.
fn waits_once(work: impl FnOnce(&Store)) {
    let (system, store, _locks) = locked();
    let began = system.now();
    work(&store);
    let waited = system.now() - began;
    assert!(waited >= TIMEOUT, "{waited:?}: it should wait");
    assert!(waited < 2 * TIMEOUT, "{waited:?}");
}

#[test]
fn a_batch_waits_for_one_of_many_locks() {
    waits_once(|store| {
        let mut batch = store.transaction().batch();
        for name in &names() {
            batch.add(Edit::update(name, oid(b'2'))).unwrap();
        }
        assert_eq!(batch.commit().unwrap().rejections.len(), COUNT);
    });
}

#[test]
fn packing_waits_for_one_of_many_locks() {
    waits_once(|store| {
        store.optimize(&Optimize::default()).unwrap();
    });
}

/// Of so many names above new ones that each thread looks at half of them.
#[test]
fn locks_above_new_names_are_found_in_both_halves() {
    let (system, store, locks) = locked();
    drop(locks);
    let other = Options::new(ObjectFormat::Sha1);
    let other = Home::new(&(Arc::new(system.process(7)) as _), Path::new("/r"), &other);
    let holder = Holder::new(&other);
    let dirs = 0..HALVES_MIN + 100;
    for locked in [dirs.start + 3, dirs.end - 3] {
        let path = Path::new("/r").join(format!("refs/heads/d{locked:04}"));
        let _lock = LockFile::acquire(&holder, &path, LockOptions::AT_ONCE).unwrap();
        let mut batch = store.transaction().batch();
        let names: Vec<RefNameBuf> = (dirs.clone())
            .map(|at| RefNameBuf::new(format!("refs/heads/d{at:04}/x{locked}")).unwrap())
            .collect();
        for name in &names {
            batch.add(Edit::update(name, oid(b'2'))).unwrap();
        }
        let rejections = batch.commit().unwrap().rejections;
        assert_eq!(rejections.len(), 1, "{locked}");
        let missing = |name: &&RefNameBuf| store.read(name.as_name()).unwrap().is_none();
        let missing: Vec<&RefNameBuf> = names.iter().filter(missing).collect();
        assert_eq!(missing, [&names[locked]]);
    }
}
