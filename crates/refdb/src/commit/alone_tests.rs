//! The lock of a file that is written alone: it takes the content, and becomes the file.

use std::sync::atomic::{AtomicU32, Ordering};

use super::tests::{DIR, at, home, is_held, repository};
use super::*;
use crate::oid::ObjectFormat;
use crate::options::LockTimeout;
use crate::options::Options;
use crate::system::OsSystem;
use refdb_simulation::{Fault, SimSystem};

const PATIENT: LockOptions = LockOptions {
    timeout: LockTimeout::FOREVER,
    ..LockOptions::AT_ONCE
};

fn acquire(system: &SimSystem, name: &str) -> io::Result<LockFile> {
    let holder = Holder::new(&home(system));
    LockFile::acquire_alone(&holder, &at(name), LockOptions::AT_ONCE)
}

fn files(system: &SimSystem) -> Vec<String> {
    let entries = system.read_dir(Path::new(DIR)).unwrap();
    let name = |name: Vec<u8>| String::from_utf8(name).unwrap();
    entries.into_iter().map(|entry| name(entry.name)).collect()
}

#[test]
fn the_lock_becomes_the_file() {
    let system = repository();
    let mut lock = acquire(&system, "a").unwrap();
    assert!(lock.is_alone());
    assert!(is_held(acquire(&system.process(7), "a")), "it runs");
    lock.write_all(b"on").unwrap();
    lock.write_all(b"e").unwrap();
    lock.close();
    assert!(is_held(acquire(&system.process(8), "a")), "it still runs");
    lock.place().unwrap();
    assert_eq!(files(&system), ["a"]);
    assert_eq!(system.read(&at("a")).unwrap(), b"one");
    assert!(
        system.lstat(&at("a")).unwrap().is_guarded(),
        "until it is durable"
    );
    let next = acquire(&system, "a").unwrap();
    drop(lock);
    assert_eq!(system.lstat(&at("a")).unwrap().mode, 0o644);
    assert_eq!(files(&system), ["a", "a.lock"], "the next one's");
    next.release().unwrap();
    assert_eq!(files(&system), ["a"]);
}

/// The process ends at every operation of a write in turn; whoever comes next can write at once,
/// and finds the old value or the new one.
#[test]
fn wherever_its_process_ends_the_lock_is_taken_over() {
    let mut ends = 0;
    for after in 0.. {
        let system = repository();
        let dies = system.process(7);
        dies.set_fault(Some(Fault::dies_at(after)));
        let written = acquire(&dies, "a").and_then(|mut lock| {
            lock.write_all(b"one")?;
            lock.place()
        });
        dies.end();
        let found = system.read(&at("a")).unwrap_or_default();
        assert!([&b""[..], b"one"].contains(&&*found), "{after}");
        let mut lock = acquire(&system, "a").unwrap();
        lock.write_all(b"two").unwrap();
        lock.place().unwrap();
        assert_eq!(files(&system), ["a"], "{after}");
        assert_eq!(system.read(&at("a")).unwrap(), b"two");
        if dies.op_count() <= after {
            written.unwrap();
            break;
        }
        ends += 1;
    }
    // Creating, taking, looking at the mark, writing, looking at the file and at its name, renaming, and
    // taking the mark off.
    assert_eq!(ends, 8);
}

/// Between the look at a lock and its taking the lock can become somebody else's. The system knows of nobody who has one
/// of Git.
#[test]
fn a_lock_that_changed_hands_meanwhile_is_not_taken() {
    let system = repository();
    let is_taken = |name: &str, owner: Option<&owner::Owner>| {
        let guard = takeover::guard_of(&system, &at(name), owner);
        guard.unwrap().is_some()
    };
    system.create_new(&at("git.lock"), 0o666).unwrap();
    assert!(!is_taken("git.lock", None), "it is Git's");
    let dies = system.process(7);
    std::mem::forget(acquire(&dies, "dead").unwrap());
    let signed = LockFile::acquire(
        &Holder::new(&home(&dies)),
        &at("signed"),
        LockOptions::AT_ONCE,
    );
    let signed = signed.unwrap();
    let owner = signed.holder().owner().clone();
    std::mem::forget(signed);
    assert!(!is_taken("dead.lock", None), "it is held");
    dies.end();
    assert!(is_taken("dead.lock", None));
    assert!(
        !is_taken("dead.lock", Some(&owner)),
        "another transaction had it"
    );
    assert!(is_taken("signed.lock", Some(&owner)));
    assert!(!is_taken("signed.lock", None), "another transaction had it");
}

#[test]
fn only_files_that_are_marked_and_nobodys_are_removed() {
    let system = repository();
    let sweep = || sweep(&home(&system), Path::new(DIR), false).unwrap();
    let runs = acquire(&system.process(7), "runs").unwrap();
    let dies = system.process(8);
    for name in ["dead", "written"] {
        let mut lock = acquire(&dies, name).unwrap();
        if name == "written" {
            lock.write_all(b"never seen").unwrap();
        }
        std::mem::forget(lock);
    }
    system.create_new(&at("other.lock"), 0o666).unwrap();
    dies.end();
    sweep();
    assert_eq!(files(&system), ["other.lock", "runs.lock"]);
    drop(runs);
    assert_eq!(files(&system), ["other.lock"]);
}

#[test]
fn it_says_who_made_it_before_it_has_a_second_name() {
    let system = repository();
    let lock = acquire(&system, "a").unwrap();
    assert!(system.read(lock.path()).unwrap().is_empty());
    let holder = lock.holder().clone();
    let second = LockFile::acquire_linked(&holder, &at("b"), LockOptions::AT_ONCE, &lock).unwrap();
    assert!(!lock.is_alone());
    assert_eq!(system.read(second.path()).unwrap(), holder.owner().text());
    let mut lock = lock;
    lock.write_all(b"one").unwrap();
    let value = format!("a~{:016x}.lock", holder.owner().id);
    assert_eq!(files(&system), ["a.lock", &value, "b.lock"]);
    lock.place().unwrap();
    drop((lock, second));
    assert_eq!(files(&system), ["a"]);

    let mut late = acquire(&system, "c").unwrap();
    late.write_all(b"two").unwrap();
    assert!(late.sign().is_err(), "its content would be lost");
    late.place().unwrap();
    assert_eq!(system.read(&at("c")).unwrap(), b"two");
}

#[test]
fn it_is_held_whatever_comes_of_writing() {
    let system = repository();
    let process = system.process(7);
    let mut lock = acquire(&process, "a").unwrap();
    let nth = process.op_count();
    process.set_fault(Some(Fault::once(nth, io::ErrorKind::StorageFull)));
    assert!(lock.write_all(b"one").is_err());
    assert!(is_held(acquire(&system, "a")));
    lock.release().unwrap();
    assert!(files(&system).is_empty());
}

#[test]
fn who_holds_it_is_told() {
    let system = repository();
    let other = system.process(7);
    let lock = acquire(&other, "a").unwrap();
    let exists = io::Error::from(io::ErrorKind::AlreadyExists);
    let tell = || describe_refusal(&system, &at("a"), &exists);
    assert!(tell().contains("refdb process 7, which runs"), "{}", tell());
    assert!(!owner::is_left(&system, &at("a.lock")));
    std::mem::forget(lock);
    other.end();
    assert!(tell().contains("which has ended"), "{}", tell());
    assert!(owner::is_left(&system, &at("a.lock")));
}

/// Many die one after the other, each with a lock, and whoever is alive takes it: at no moment do
/// two have it. On the real system, where one can look at the lock before its process has it.
#[test]
#[expect(clippy::print_stderr, reason = "says what cannot be tried here")]
fn of_many_who_take_it_over_one_has_it_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let near = OsSystem::new().near(dir.path()).unwrap();
    let home = Home::new(&near, dir.path(), &Options::new(ObjectFormat::Sha1));
    let holders = AtomicU32::new(0);
    let guarded = AtomicU32::new(0);
    let work = || {
        let holder = Holder::new(&home);
        for round in 0..200 {
            let mut lock =
                LockFile::acquire_alone(&holder, &dir.path().join("a"), PATIENT).unwrap();
            assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0);
            guarded.fetch_add(u32::from(lock.is_alone()), Ordering::SeqCst);
            std::thread::yield_now();
            assert_eq!(holders.fetch_sub(1, Ordering::SeqCst), 1);
            match round % 3 {
                // As a process that ends: the file is closed, and stays.
                0 if lock.is_alone() => lock.abandon(),
                1 => lock.write_all(b"x").and_then(|()| lock.place()).unwrap(),
                _ => {}
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(work);
        }
    });
    if guarded.into_inner() == 0 {
        eprintln!(
            "skipped: {} is on no local file system",
            dir.path().display()
        );
    }
}
