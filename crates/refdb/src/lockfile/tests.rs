use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::system::OsSystem;
use crate::system::simulation::{Crash, SimSystem};

const OPTIONS: LockOptions = LockOptions::AT_ONCE;

pub(super) const DIR: &str = "/r";

pub(super) fn repository() -> SimSystem {
    let system = SimSystem::new(1);
    system.create_dir(Path::new(DIR)).unwrap();
    system.sync_all();
    system
}

fn holder(system: &SimSystem) -> Holder {
    let system: Arc<dyn System> = Arc::new(system.clone());
    Holder::new(&system, Path::new(DIR))
}

pub(super) fn at(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

fn acquire(system: &SimSystem, name: &str) -> io::Result<LockFile> {
    LockFile::acquire(&holder(system), &at(name), OPTIONS)
}

pub(super) fn is_held(found: io::Result<LockFile>) -> bool {
    found.is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists)
}

#[test]
fn linked_locks_are_locks_and_are_written_apart() {
    let dir = tempfile::tempdir().unwrap();
    let system: Arc<dyn System> = Arc::new(OsSystem::new());
    let holder = Holder::new(&system, dir.path());
    let at = |name: &str| dir.path().join(name);
    let mut first = LockFile::acquire(&holder, &at("a"), OPTIONS).unwrap();
    let mut second = LockFile::acquire_linked(&holder, &at("b"), OPTIONS, &first).unwrap();
    for name in ["a", "b"] {
        assert!(is_held(LockFile::acquire(&holder, &at(name), OPTIONS)));
        let linked = LockFile::acquire_linked(&holder, &at(name), OPTIONS, &first);
        assert!(is_held(linked));
        // To whoever knows nothing of links it is a file that is there.
        let lock = at(&format!("{name}.lock"));
        let created = std::fs::File::create_new(&lock);
        assert_eq!(created.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }
    std::fs::write(at(".b.lock"), "left over").unwrap();
    second.write_all(b"two").unwrap();
    second.write_all(b"!").unwrap();
    first.write_all(b"one").unwrap();
    for lock in [&mut first, &mut second] {
        lock.place().unwrap();
        assert!(lock.path().is_symlink(), "held until it is released");
    }
    drop((first, second));
    assert_eq!(std::fs::read(at("a")).unwrap(), b"one");
    assert_eq!(std::fs::read(at("b")).unwrap(), b"two!");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
}

#[test]
fn a_file_of_the_longest_name_that_can_be_locked_can_be_written() {
    let system = repository();
    for len in [249, 250] {
        let name = "x".repeat(len);
        let mut lock = acquire(&system, &name).unwrap();
        lock.write_all(b"content").unwrap();
        lock.place().unwrap();
        drop(lock);
        assert_eq!(system.read(&at(&name)).unwrap(), b"content");
    }
    assert_eq!(system.read_dir(Path::new(DIR)).unwrap().len(), 2);
}

#[test]
fn a_lock_that_is_dropped_takes_its_content_along() {
    let system = repository();
    let mut lock = acquire(&system, "a").unwrap();
    lock.write_all(b"content").unwrap();
    drop(lock);
    assert_eq!(system.read_dir(Path::new(DIR)).unwrap(), []);
}

#[test]
fn a_lock_of_the_dead_is_taken_over_with_all_that_belongs_to_it() {
    let system = repository();
    let dies = system.process(7);
    let mut lock = acquire(&dies, "a").unwrap();
    lock.write_all(b"never seen").unwrap();
    assert!(is_held(acquire(&system, "a")), "it runs");
    lock.leave();
    assert!(is_held(acquire(&system, "a")), "it still runs");
    dies.end();
    let lock = acquire(&system, "a").unwrap();
    assert_eq!(lock.written, Written::Nothing);
    drop(lock);
    assert_eq!(system.read_dir(Path::new(DIR)).unwrap(), []);
}

/// After a power failure the journal of a transaction can be back, and its lock, when a later one had
/// taken the lock and written its own content.
#[test]
fn recovery_puts_in_place_what_its_transaction_wrote_and_nothing_else() {
    for (found, expected) in [("first", "first"), ("later", "old")] {
        let system = repository();
        system
            .create_new(&at("a"), 0o666)
            .unwrap()
            .write_all(b"old")
            .unwrap();
        let dies = system.process(7);
        let mut lock = acquire(&dies, "a").unwrap();
        lock.write_all(b"fir").unwrap();
        lock.write_all(b"st").unwrap();
        let mut steps = journal::Steps::default();
        let guard = steps.lock(&lock);
        steps.add(guard, lock.placing());
        let journal = journal::Journal::commit(&holder(&dies), OPTIONS, true, steps).unwrap();
        let value = lock.value_path();
        lock.leave();
        journal.leave();
        dies.end();
        system.remove_file(&value).unwrap();
        system
            .create_new(&value, 0o666)
            .unwrap()
            .write_all(found.as_bytes())
            .unwrap();
        let shared: Arc<dyn System> = Arc::new(system.clone());
        journal::recover(&shared, Path::new(DIR)).unwrap();
        assert_eq!(system.read(&at("a")).unwrap(), expected.as_bytes());
        assert_eq!(system.read_dir(Path::new(DIR)).unwrap().len(), 1, "{found}");
    }
}

#[test]
fn a_store_looks_for_a_journal_now_and_then() {
    let system = repository();
    let shared: Arc<dyn System> = Arc::new(system.clone());
    let watch = JournalWatch::new(&shared, Path::new(DIR));
    let looks = || {
        let before = system.op_count();
        watch.recover().unwrap();
        system.op_count() > before
    };
    assert!(looks() && !looks());
    system.sleep(Duration::from_millis(8));
    assert!(!looks());
    system.sleep(Duration::from_millis(3));
    assert!(looks() && !looks());
    // Its own look is not put off by one that failed.
    system.sleep(Duration::from_millis(11));
    let foreign = b"refdb journal 1\nx";
    let mut file = system.create_new(&at("refdb.journal"), 0o666).unwrap();
    file.write_all(foreign).unwrap();
    assert!(watch.recover().is_err() && watch.recover().is_err());
}

#[test]
fn a_journal_of_another_version_is_left_to_that_version() {
    let system = repository();
    let shared: Arc<dyn System> = Arc::new(system.clone());
    let path = at("refdb.journal");
    for (content, stays) in [("refdb journal 1\nx", true), ("refdb jour", false)] {
        let mut file = system.create_new(&path, 0o666).unwrap();
        file.write_all(content.as_bytes()).unwrap();
        let recovered = journal::recover(&shared, Path::new(DIR));
        assert_eq!(recovered.is_err(), stays, "{content}");
        assert_eq!(system.lstat(&path).is_ok(), stays, "{content}");
        if let Err(error) = recovered {
            assert!(error.to_string().contains("refdb.journal"), "{error}");
            system.remove_file(&path).unwrap();
        }
    }
}

#[test]
fn new_content_goes_with_its_lock_and_never_without() {
    let system = repository();
    let shared: Arc<dyn System> = Arc::new(system.clone());
    let sweep = |deep| sweep(&shared, Path::new(DIR), Path::new(DIR), deep).unwrap();
    let mut living = acquire(&system.process(7), "living").unwrap();
    living.write_all(b"content").unwrap();
    let long = "x".repeat(250);
    let orphans = [".orphan.lock", ".dir.new", &format!(".{long}.new")].map(at);
    for path in orphans.iter().chain([&at(".profile")]) {
        system.create_new(path, 0o666).unwrap();
    }
    sweep(false);
    assert!(
        orphans.iter().all(|path| system.lstat(path).is_ok()),
        "not of refs"
    );
    sweep(true);
    assert!(orphans.iter().all(|path| system.lstat(path).is_err()));
    assert!(system.lstat(&at(".profile")).is_ok());
    living.place().unwrap();
    assert_eq!(system.read(&at("living")).unwrap(), b"content");
}

#[test]
fn another_process_with_the_number_of_the_dead_does_not_revive_its_locks() {
    let system = repository();
    let dies = system.process(7);
    acquire(&dies, "a").unwrap().leave();
    let reuses = system.process(7);
    assert!(acquire(&reuses, "a").is_ok());
    // Nor is the lock of the second one that of the first.
    acquire(&reuses, "b").unwrap().leave();
    assert!(is_held(acquire(&system, "b")));
}

#[test]
fn no_lock_survives_a_boot() {
    let system = repository();
    let lock = acquire(&system, "a").unwrap();
    system.sync_all();
    lock.leave();
    let after = system.crash(Crash::seeded(1));
    assert!(after.lstat(&at("a.lock")).is_ok());
    assert!(acquire(&after, "a").is_ok());
}

#[test]
fn locks_of_others_are_never_broken() {
    let system = repository();
    system.create_new(&at("file.lock"), 0o666).unwrap();
    system
        .symlink(Path::new("refs/heads/x"), &at("link.lock"))
        .unwrap();
    let elsewhere = "refdb 1 2 3 4 5 another-machine";
    system
        .symlink(Path::new(elsewhere), &at("far.lock"))
        .unwrap();
    let dies = system.process(7);
    dies.end();
    for name in ["file", "link", "far"] {
        assert!(is_held(acquire(&system, name)), "{name}");
        assert!(system.lstat(&at(&format!("{name}.lock"))).is_ok());
    }
}

#[test]
fn while_another_takes_locks_over_one_waits() {
    let system = repository();
    let dies = system.process(7);
    acquire(&dies, "a").unwrap().leave();
    dies.end();
    let guard = system.guard_dir(Path::new(DIR)).unwrap();
    assert!(is_held(acquire(&system, "a")));
    drop(guard);
    assert!(acquire(&system, "a").is_ok());
}

#[test]
fn who_holds_a_lock_is_told_and_what_can_be_done() {
    let system = repository();
    let dies = system.process(7);
    acquire(&dies, "a").unwrap().leave();
    system.sleep(Duration::from_secs(30));
    let exists = io::Error::from(io::ErrorKind::AlreadyExists);
    let tell = |name: &str| describe_refusal(&system, &at(name), &exists);
    let text = tell("a");
    assert!(text.starts_with("Unable to create '/r/a.lock': "), "{text}");
    assert!(
        text.contains("process 7, which runs, for 30 seconds"),
        "{text}"
    );
    let far = "refdb 9 2 3 4 5 another-machine";
    system.symlink(Path::new(far), &at("far.lock")).unwrap();
    assert!(tell("far").contains("machine 'another-machine'"));
    assert!(tell("far").contains("remove the file"));
    system.create_new(&at("file.lock"), 0o666).unwrap();
    assert!(tell("file").contains("Another git process seems to be running"));
    assert!(tell("file").contains("It was made 0 seconds ago"));
}

/// Many processes die one after the other, each with a lock, and whoever is alive takes it: at no
/// moment do two have it.
#[test]
fn of_many_who_take_a_lock_over_one_has_it_at_a_time() {
    let base = repository();
    let holders = AtomicU32::new(0);
    let work = |seed: u32| {
        for round in 0..50 {
            let system = base.process(1000 + seed * 100 + round);
            let options = LockOptions {
                timeout: LockTimeout::FOREVER,
                ..OPTIONS
            };
            let lock = LockFile::acquire(&holder(&system), &at("a"), options).unwrap();
            assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0);
            std::thread::yield_now();
            assert_eq!(holders.fetch_sub(1, Ordering::SeqCst), 1);
            lock.leave();
            system.end();
        }
    };
    let work = &work;
    std::thread::scope(|scope| {
        for seed in 0..4 {
            scope.spawn(move || work(seed));
        }
    });
}

#[test]
fn a_barrier_goes_with_its_lock_and_before_it() {
    let system = repository();
    let process = system.process(1);
    let mut lock = acquire(&process, "a").unwrap();
    lock.bar().unwrap();
    assert!(is_barrier(&system, &at("a")) && !is_barrier(&system, &at("a.lock")));
    assert!(lock.bar().is_err(), "something is there");
    lock.release().unwrap();
    assert!(system.lstat(&at("a")).is_err());

    let mut lock = acquire(&process, "a").unwrap();
    lock.bar().unwrap();
    std::mem::forget(lock);
    process.end();
    let shared: Arc<dyn System> = Arc::new(system.clone());
    assert!(take_over(&shared, Path::new(DIR), &at("a.lock")).unwrap());
    for left in ["a", "a.lock"] {
        assert!(system.lstat(&at(left)).is_err(), "{left}");
    }
}
