//! The lock of a file that is written alone: it takes the content, and becomes the file.

use std::io::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};

use super::entries::is_exchanged;
use super::tests::{DIR, at, home, is_held, means, repository};
use super::*;
use crate::error::Error;
use crate::options::LockTimeout;
use crate::options::Options;
use crate::system::OsSystem;
use refdb_names::ObjectFormat;
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

/// Puts a new ref in place whose lock bars that meanwhile.
fn put_barred(system: &SimSystem, content: &[u8]) -> crate::error::Result<Vec<Error>> {
    put_with(system, content, || {})
}

/// As [`put_barred`]; calls `meanwhile` right before the ref is put in place.
fn put_with(
    system: &SimSystem,
    content: &[u8],
    meanwhile: impl FnOnce(),
) -> crate::error::Result<Vec<Error>> {
    let failed = |error| Error::io("unable to write", &at("HEAD"), error);
    let mut lock = acquire(system, "HEAD").map_err(failed)?;
    if system.lstat(&at("HEAD")).is_err() {
        lock.bar(None).map_err(failed)?;
    }
    lock.write_all(content).map_err(failed)?;
    lock.make_ready().map_err(failed)?;
    let mut change = Change::default();
    change.put(0, Place::read(b"ref", b"HEAD").unwrap(), &lock);
    meanwhile();
    let carried = change.carry_out(means(system, &lock))?;
    lock.was_placed();
    match carried {
        Carried::Whole { afterwards } => Ok(afterwards),
        Carried::InPart(error) => Err(error),
    }
}

#[test]
fn a_barrier_leaves_its_place_to_the_new_ref() {
    let system = repository();
    let barred = || {
        assert!(is_barrier(&system, &at("HEAD")));
        assert!(is_held(acquire(&system.process(8), "HEAD")));
    };
    assert!(put_with(&system, b"one", barred).unwrap().is_empty());
    assert_eq!(files(&system), ["HEAD"]);
    assert_eq!(system.read(&at("HEAD")).unwrap(), b"one");
}

/// The process ends at every operation of that in turn; whoever comes next can write at once, whether he waits for the
/// lock or clears up.
#[test]
fn wherever_its_process_ends_a_barred_lock_is_taken_over() {
    let mut exchanged = 0;
    for after in 0.. {
        let system = repository();
        let dies = system.process(7);
        dies.set_fault(Some(Fault::dies_at(after)));
        let written = put_barred(&dies, b"one");
        let is_exchanged = is_exchanged(&system, &at("HEAD.lock"));
        if is_exchanged {
            exchanged += 1;
            assert_eq!(system.read(&at("HEAD")).unwrap(), b"one");
        }
        dies.end();
        assert_eq!(
            owner::is_left(&system, &at("HEAD.lock")),
            system.lstat(&at("HEAD.lock")).is_ok()
        );
        if after % 2 == 0 {
            sweep(&home(&system), Path::new(DIR), true).unwrap();
            assert!(!files(&system).contains(&"HEAD.lock".to_owned()), "{after}");
        }
        put_barred(&system, b"two").unwrap();
        assert_eq!(files(&system), ["HEAD"], "{after}");
        assert_eq!(system.read(&at("HEAD")).unwrap(), b"two");
        if dies.op_count() <= after {
            written.unwrap();
            break;
        }
    }
    assert!(exchanged > 0);
}

/// As long as the process lives that lets the two change places, nobody has the lock; what took its name is left alone.
#[test]
fn a_barrier_with_the_name_of_a_lock_is_held() {
    let system = repository();
    let lives = system.process(7);
    let mut lock = acquire(&lives, "HEAD").unwrap();
    lock.bar(None).unwrap();
    system.exchange(&at("HEAD.lock"), &at("HEAD")).unwrap();
    let exists = io::Error::from(io::ErrorKind::AlreadyExists);
    let tell = || describe_refusal(&system, &at("HEAD"), &exists);
    let sweep = || sweep(&home(&system), Path::new(DIR), true).unwrap();
    assert!(tell().contains("which runs"), "{}", tell());
    assert!(is_held(acquire(&system, "HEAD")));
    sweep();
    assert_eq!(files(&system), ["HEAD", "HEAD.lock"]);
    lives.end();
    assert!(tell().contains("which has ended"), "{}", tell());
    sweep();
    assert_eq!(files(&system), ["HEAD"]);
    std::mem::forget(lock);
}

#[test]
fn what_took_the_place_of_a_barrier_is_not_lost() {
    let make_dir = |system: &SimSystem| {
        system.remove_file(&at("HEAD")).unwrap();
        system.create_dir(&at("HEAD")).unwrap();
    };
    let system = repository();
    let meanwhile = || {
        make_dir(&system);
        system.create_new(&at("HEAD/file"), 0o666).unwrap();
    };
    assert!(put_with(&system, b"one", meanwhile).is_err());
    assert!(system.lstat(&at("HEAD/file")).is_ok());
    assert_eq!(files(&system), ["HEAD"]);

    let system = repository();
    let told = put_with(&system, b"one", || make_dir(&system)).unwrap();
    assert!(told.is_empty(), "nothing is in it: {told:?}");
    assert_eq!(system.read(&at("HEAD")).unwrap(), b"one");
    assert_eq!(files(&system), ["HEAD"]);

    let system = repository();
    let meanwhile = || {
        system.remove_file(&at("HEAD")).unwrap();
        let mut file = system.create_new(&at("HEAD"), 0o666).unwrap();
        file.write_all(b"somebody's").unwrap();
    };
    let told = put_with(&system, b"one", meanwhile).unwrap();
    assert!(told[0].to_string().contains("HEAD.lock"), "{told:?}");
    assert_eq!(system.read(&at("HEAD")).unwrap(), b"one");
    assert_eq!(system.read(&at("HEAD.lock")).unwrap(), b"somebody's");
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

/// What says who has a lock goes with the lock, among refs; what is beside them has locks of others.
#[test]
fn who_had_a_lock_is_forgotten_once_nobody_has_it() {
    let system = repository();
    system.create_dir(&at("refs")).unwrap();
    for name in ["index~pid.lock", "refs/a~pid.lock", "refs/b~pid.lock"] {
        system.create_new(&at(name), 0o666).unwrap();
    }
    let lock = acquire(&system.process(7), "refs/b").unwrap();
    let is_there = |name: &str| system.lstat(&at(name)).is_ok();
    for (dir, deep) in [(DIR.into(), false), (at("refs"), true)] {
        sweep(&home(&system), &dir, deep).unwrap();
    }
    assert!(is_there("index~pid.lock") && is_there("refs/b~pid.lock"));
    assert!(!is_there("refs/a~pid.lock"));
    drop(lock);
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
