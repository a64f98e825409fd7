use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::entries::barrier;
use super::journal::Journal;
use super::*;
use crate::error::Error;
use crate::options::Options;
use crate::system::{FileId, OsSystem};
use refdb_names::ObjectFormat;
use refdb_simulation::{Crash, Fault, SimSystem};

const OPTIONS: LockOptions = LockOptions::AT_ONCE;

pub(super) const DIR: &str = "/r";

pub(super) fn repository() -> SimSystem {
    let system = SimSystem::new(1);
    system.create_dir(Path::new(DIR)).unwrap();
    system.sync_all();
    system
}

pub(super) fn home(system: &SimSystem) -> Arc<Home> {
    let system: Arc<dyn System> = Arc::new(system.clone());
    Home::new(&system, Path::new(DIR), &Options::new(ObjectFormat::Sha1))
}

fn holder(system: &SimSystem) -> Holder {
    Holder::new(&home(system))
}

pub(super) fn at(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

pub(super) fn acquire(system: &SimSystem, name: &str) -> io::Result<LockFile> {
    LockFile::acquire(&holder(system), &at(name), OPTIONS)
}

pub(super) fn is_held(found: io::Result<LockFile>) -> bool {
    found.is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists)
}

#[test]
fn linked_locks_are_locks_and_are_written_apart() {
    let dir = tempfile::tempdir().unwrap();
    let system: Arc<dyn System> = Arc::new(OsSystem::new());
    let options = Options::new(ObjectFormat::Sha1);
    let holder = Holder::new(&Home::new(&system, dir.path(), &options));
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
    std::fs::write(second.value_path(), "left over").unwrap();
    second.write_all(b"two").unwrap();
    second.write_all(b"!").unwrap();
    first.write_all(b"one").unwrap();
    for lock in [&mut first, &mut second] {
        lock.place().unwrap();
        assert!(lock.path().is_file(), "held until it is released");
    }
    drop((first, second));
    assert_eq!(std::fs::read(at("a")).unwrap(), b"one");
    assert_eq!(std::fs::read(at("b")).unwrap(), b"two!");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
}

/// A person removes the locks of processes that live.
#[test]
fn nobody_puts_in_place_what_another_transaction_writes() {
    let system = repository();
    let [mut first, mut second] = [7, 8].map(|process| {
        let mut lock = acquire(&system.process(process), "HEAD").unwrap();
        lock.write_all(b"who").unwrap();
        system.remove_file(lock.path()).unwrap();
        if process == 7 {
            system.remove_file(&lock.value_path()).unwrap();
        }
        lock
    });
    // It had looked at its lock before that was removed.
    let renamed = put::rename(&system, &first.value_path(), &at("HEAD"));
    assert_eq!(renamed.unwrap_err().kind(), io::ErrorKind::NotFound);
    for lock in [&mut first, &mut second] {
        assert!(lock.place().is_err());
    }
    drop((first, second));
    assert_eq!(system.read_dir(Path::new(DIR)).unwrap(), []);
}

#[test]
fn new_content_replaces_only_what_it_was_made_from() {
    for (before, made_from_it) in [(None, true), (Some("old"), true), (Some("old"), false)] {
        let system = repository();
        if let Some(content) = before {
            create(&system, "HEAD", content.as_bytes());
        }
        let mut lock = acquire(&system, "HEAD").unwrap();
        let stat = system.lstat(&at("HEAD")).ok();
        lock.made_from(stat.map(|stat| FileId::of(&stat)));
        lock.write_all(b"new").unwrap();
        if !made_from_it {
            create(&system, "other", b"another");
            system.rename(&at("other"), &at("HEAD")).unwrap();
        }
        let placed = lock.place().map_err(|error| error.kind());
        let (expected, content) = match made_from_it {
            true => (Ok(()), "new"),
            false => (Err(io::ErrorKind::StaleNetworkFileHandle), "another"),
        };
        assert_eq!(placed, expected);
        drop(lock);
        assert_eq!(system.read(&at("HEAD")).unwrap(), content.as_bytes());
        assert_eq!(system.read_dir(Path::new(DIR)).unwrap().len(), 1);
    }
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
fn where_a_number_cannot_be_left_beside_a_lock_there_is_none() {
    let system = repository();
    let options = LockOptions {
        pid_file: true,
        ..OPTIONS
    };
    for len in [246, 247, 250] {
        let name = "x".repeat(len);
        let lock = LockFile::acquire(&holder(&system), &at(&name), options).unwrap();
        let beside = system.lstat(&pid_path(&at(&name)));
        assert_eq!(beside.is_ok(), len == 246);
        drop(lock);
        assert_eq!(system.read_dir(Path::new(DIR)).unwrap(), []);
    }
}

#[test]
fn a_dead_lock_of_the_longest_name_is_taken_over() {
    let system = repository();
    for len in [246, 247, 250] {
        let process = system.process(7);
        let name = "x".repeat(len);
        acquire(&process, &name).unwrap().leave();
        process.end();
        drop(acquire(&system, &name).unwrap());
        assert_eq!(system.read_dir(Path::new(DIR)).unwrap(), []);
    }
}

/// Whoever makes names up can find two that a weak hash takes for one.
#[test]
fn no_two_names_have_one_place_for_their_content() {
    let start = "p".repeat(234);
    let names = ["difnkpabgegcmghi", "dgbfbiecnkegofhd"].map(|end| format!("{start}{end}"));
    let sums = names
        .each_ref()
        .map(|name| encoding::checksum(name.as_bytes()));
    assert_eq!(sums[0], sums[1], "they are such names");
    let values = names.each_ref().map(|name| value_path(&at(name), 1));
    assert_ne!(values[0], values[1]);
    let ways = names
        .each_ref()
        .map(|name| step::between(&at(name), &at(name).join("y")));
    assert_ne!(ways[0], ways[1]);
    for path in ways.iter().flatten().chain(&values) {
        assert!(path.file_name().is_some_and(|name| name.len() <= NAME_MAX));
    }
}

#[test]
fn a_lock_in_a_shared_repository_gets_the_permissions_of_a_ref() {
    let system: Arc<dyn System> = Arc::new(OsSystem::new());
    let plain = tempfile::tempdir().unwrap();
    drop(system.create_new(&plain.path().join("a"), 0o666).unwrap());
    let plain = system.lstat(&plain.path().join("a")).unwrap().mode & 0o777;
    for (shared, in_the_end) in [
        (SharedRepository::Exactly(0o600), 0o600),
        (SharedRepository::Exactly(0o640), 0o640),
        (SharedRepository::Added(0o664), 0o664),
        (SharedRepository::Added(0o660), plain | 0o660),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut options = Options::new(ObjectFormat::Sha1);
        options.shared_repository = shared;
        let holder = Holder::new(&Home::new(&system, dir.path(), &options));
        let target = dir.path().join("a");
        let lock = LockFile::acquire(&holder, &target, OPTIONS).unwrap();
        let mode = || system.lstat(lock.path()).unwrap().mode & 0o777;
        assert_eq!(mode() & !in_the_end, 0, "{:o}", mode());
        holder.reveal(lock.hold(), false).unwrap();
        assert_eq!(mode(), in_the_end);
    }
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
    assert_eq!(lock.written, None);
    drop(lock);
    assert_eq!(system.read_dir(Path::new(DIR)).unwrap(), []);
}

/// A transaction of the process `dies` that sets `HEAD`, which is committed, and left.
fn committed(dies: &SimSystem) -> LockFile {
    commit_ref(dies, "HEAD")
}

/// As [`committed`], of any ref.
fn commit_ref(dies: &SimSystem, name: &str) -> LockFile {
    let (lock, journal) = try_commit_ref(dies, name);
    journal.unwrap().leave();
    lock
}

fn try_commit_ref(dies: &SimSystem, name: &str) -> (LockFile, crate::error::Result<Journal>) {
    let (lock, change) = change_of(dies, name);
    let journal = try_commit(dies, &lock, change);
    (lock, journal)
}

pub(super) fn change_of(dies: &SimSystem, name: &str) -> (LockFile, Change) {
    let mut lock = acquire(dies, name).unwrap();
    lock.write_all(b"fir").unwrap();
    lock.write_all(b"st").unwrap();
    let mut change = Change::default();
    let place = Place::read(b"ref", name.as_bytes()).unwrap();
    let guard = change.lock(place.clone());
    change.put(guard, place, &lock);
    (lock, change)
}

pub(super) fn commit_change(dies: &SimSystem, lock: &LockFile, change: Change) {
    try_commit(dies, lock, change).unwrap().leave();
}

pub(super) fn try_commit(
    dies: &SimSystem,
    lock: &LockFile,
    mut change: Change,
) -> crate::error::Result<Journal> {
    change.commit(&means(dies, lock))
}

pub(super) fn means<'m>(dies: &SimSystem, lock: &'m LockFile) -> Means<'m> {
    let system: Arc<dyn System> = Arc::new(dies.clone());
    Means {
        holder: lock.holder(),
        lock: Some(lock),
        packed: None,
        options: OPTIONS,
        fsync: true,
        roots: Roots::new(&system, Path::new(DIR), &at("packed-refs")),
        dirs: BTreeSet::new(),
        clear: &|_| Ok(()),
    }
}

#[test]
fn who_has_the_journal_is_told() {
    let system = repository();
    let lives = system.process(7);
    committed(&lives).leave();
    let (_lock, journal) = try_commit_ref(&system, "ORIG_HEAD");
    let told = journal.err().expect("it is another one's").to_string();
    assert!(
        told.contains("/refdb.journal': ") && told.contains("process 7,"),
        "{told}"
    );
}

pub(super) fn create(system: &SimSystem, name: &str, content: &[u8]) {
    let mut file = system.create_new(&at(name), 0o666).unwrap();
    file.write_all(content).unwrap();
}

pub(super) fn recover(system: &SimSystem) -> journal::Found {
    journal::recover(&home(system)).unwrap()
}

/// Commits a change of `HEAD`, after which somebody who wants the lock of a name below makes a directory in its place;
/// returns whether the change could be finished, by the process that made it if it lives, else by the next one.
fn finish_over_a_directory(system: &SimSystem, below: &str, lives: bool) -> bool {
    let maker = system.process(7);
    let (lock, mut change) = change_of(&maker, "HEAD");
    let means = means(&maker, &lock);
    let journal = change.commit(&means).unwrap();
    system.create_dir(&at("HEAD")).unwrap();
    system.create_dir(&at("HEAD/b")).unwrap();
    create(system, below, b"");
    system.symlink(&barrier(system), &at("HEAD/d")).unwrap();
    if lives && change.take_after(&means).is_ok() {
        journal.end().unwrap();
        lock.release().unwrap();
        return true;
    }
    journal.leave();
    lock.leave();
    maker.end();
    recover(system).view.is_none()
}

/// Nobody can have a name below one that is committed: whoever is after it gives way.
#[test]
fn a_lock_below_what_is_committed_gives_way() {
    for lives in [true, false] {
        let system = repository();
        assert!(finish_over_a_directory(&system, "HEAD/b/c.lock", lives));
        assert_eq!(system.read(&at("HEAD")).unwrap(), b"first");
        assert_eq!(system.read_dir(Path::new(DIR)).unwrap().len(), 1, "{lives}");
    }
}

/// What is no lock is nobody's to remove.
#[test]
fn a_ref_below_what_is_committed_stays() {
    for lives in [true, false] {
        let system = repository();
        assert!(!finish_over_a_directory(&system, "HEAD/b/c", lives));
        assert_eq!(system.read(&at("HEAD/b/c")).unwrap(), b"");
    }
}

/// What stands under the name of the new content gets into its place only if it is that.
#[test]
fn recovery_puts_in_place_what_its_transaction_wrote_and_nothing_else() {
    for (found, expected) in [("first", "first"), ("later", "old")] {
        let system = repository();
        create(&system, "HEAD", b"old");
        let dies = system.process(7);
        let lock = committed(&dies);
        let value = lock.value_path();
        lock.leave();
        system.remove_file(&value).unwrap();
        let name = value.file_name().and_then(|name| name.to_str());
        create(&system, name.unwrap(), found.as_bytes());
        // While its process may run, readers are told of it, and nothing is done.
        let view = recover(&system).view.expect("a journal");
        let head = Place::read(b"ref", b"HEAD").unwrap();
        assert_eq!(view.of_place(&head).unwrap(), Some(Becomes::Content(value)));
        dies.end();
        assert!(recover(&system).view.is_none());
        assert_eq!(view.of_place(&head).unwrap(), None);
        assert_eq!(system.read(&at("HEAD")).unwrap(), expected.as_bytes());
        assert_eq!(system.read_dir(Path::new(DIR)).unwrap().len(), 1, "{found}");
    }
}

/// What one store reads from a journal none that looked before it was there may contradict: such a store
/// looks again after ten milliseconds.
#[test]
fn what_the_living_have_just_committed_is_seen_when_everybody_has_looked() {
    let system = repository();
    let dies = system.process(7);
    let (looked, late) = [(); 2].map(|()| JournalWatch::new(&home(&system))).into();
    assert!(looked.for_reading().unwrap().is_none());
    committed(&dies).leave();
    assert!(looked.for_reading().unwrap().is_none() && late.for_reading().unwrap().is_none());
    system.sleep(Duration::from_millis(25));
    assert!(looked.for_reading().unwrap().is_some() && late.for_reading().unwrap().is_some());
    // Of the dead it is finished at once.
    let system = repository();
    let dies = system.process(7);
    committed(&dies).leave();
    dies.end();
    assert!(
        JournalWatch::new(&home(&system))
            .for_reading()
            .unwrap()
            .is_none()
    );
    assert_eq!(system.read(&at("HEAD")).unwrap(), b"first");
}

/// Who finds somebody at the journal of a dead process sees the transaction whole, however young it is.
#[test]
fn what_somebody_finishes_just_now_is_no_transaction_of_the_living() {
    let system = repository();
    let dies = system.process(7);
    committed(&dies).leave();
    let found = recover(&system);
    assert!(found.view.is_some() && found.is_young);
    dies.end();
    // Somebody begins to finish it, and gets no further than the first step.
    let finishes = system.process(8);
    let guard = finishes.guard_file(&at("refdb.journal")).unwrap();
    assert!(guard.is_some(), "its maker has ended");
    let mode = system.lstat(&at("refdb.journal")).unwrap().mode;
    system.set_mode(&at("refdb.journal"), mode | 0o100).unwrap();
    let found = recover(&system);
    assert!(found.view.is_some() && !found.is_young);
    drop(guard);
    assert!(recover(&system).view.is_none());
    assert_eq!(system.read(&at("HEAD")).unwrap(), b"first");
}

/// Whoever finishes a transaction says so before the first step.
#[test]
fn who_finishes_a_journal_marks_it_first() {
    let mut marked = 0;
    for after in 0.. {
        let system = repository();
        let dies = system.process(7);
        committed(&dies).leave();
        dies.end();
        let finishes = system.process(8);
        finishes.set_fault(Some(Fault::dies_at(after)));
        let _ = journal::recover(&home(&finishes));
        finishes.end();
        let is_begun = system.read(&at("HEAD")).is_ok();
        match system.lstat(&at("refdb.journal")) {
            Ok(journal) => {
                let is_marked = journal.mode & 0o100 != 0;
                assert!(is_marked || !is_begun, "{after}");
                marked += usize::from(is_marked);
            }
            Err(_) => assert!(is_begun, "{after}"),
        }
        if finishes.op_count() <= after {
            break;
        }
    }
    assert!(marked > 1);
}

/// A journal whose content has no checksum is old: what it puts is looked for by name alone.
#[test]
fn what_cannot_be_looked_at_is_not_taken_for_gone() {
    let mut failed = 0;
    for at_operation in 0..8 {
        let system = repository();
        create(&system, "HEAD", b"first");
        let process = system.process(7);
        process.set_fault(Some(Fault::once(at_operation, io::ErrorKind::Other)));
        let shared: Arc<dyn System> = Arc::new(process);
        let roots = Roots::new(&shared, Path::new(DIR), &at("packed-refs"));
        let step = Step::Put {
            place: Place::read(b"ref", b"HEAD").unwrap(),
            content: None,
            from: step::Source::Beside,
        };
        match step.is_given(&roots, 1, true) {
            Ok(is_given) => assert!(is_given, "{at_operation}"),
            Err(_) => failed += 1,
        }
    }
    assert!(failed > 0);
}

/// The lock of a dead process that lies in another repository, by a link, has its journal there.
#[test]
fn a_lock_is_not_taken_over_without_its_journal() {
    let system = repository();
    let dies = system.process(7);
    committed(&dies).leave();
    dies.end();
    let elsewhere = Path::new("/elsewhere");
    system.create_dir(elsewhere).unwrap();
    let shared: Arc<dyn System> = Arc::new(system.clone());
    let home = Home::new(&shared, elsewhere, &Options::new(ObjectFormat::Sha1));
    assert!(is_held(LockFile::acquire(
        &Holder::new(&home),
        &at("HEAD"),
        OPTIONS
    )));
    let exists = io::Error::from(io::ErrorKind::AlreadyExists);
    let text = describe_refusal(&system, &at("HEAD"), &exists);
    assert!(text.contains("in the midst of a transaction"), "{text}");
    assert!(acquire(&system, "HEAD").is_ok());
    assert_eq!(system.read(&at("HEAD")).unwrap(), b"first");
}

/// Makes `heads`, below `refs`, a link to a directory elsewhere, which it is moved to.
fn move_heads(system: &SimSystem) {
    system.create_dir(Path::new("/elsewhere")).unwrap();
    let heads = Path::new("/elsewhere/heads");
    system.rename(&at("refs/heads"), heads).unwrap();
    system.symlink(heads, &at("refs/heads")).unwrap();
}

fn with_heads() -> SimSystem {
    let system = repository();
    system.create_dir(&at("refs")).unwrap();
    system.create_dir(&at("refs/heads")).unwrap();
    system
}

/// No journal names what nobody could finish who follows no links.
#[test]
fn what_lies_in_a_linked_directory_is_in_no_journal() {
    let system = with_heads();
    move_heads(&system);
    let dies = system.process(7);
    commit_ref(&dies, "refs/heads/a").leave();
    dies.end();
    let found = recover(&system);
    assert!(found.view.is_none() && found.error.is_none(), "{found:?}");
    assert!(system.lstat(&at("refdb.journal")).is_err());
    // It is as if it had not begun, and its lock is one of the dead.
    assert!(acquire(&system, "refs/heads/a").is_ok());
    assert!(system.lstat(&at("refs/heads/a")).is_err());
}

/// A journal that said what a lock guards and not which lock would be nobody's, and keep all writers out.
#[test]
fn what_a_lock_in_a_linked_directory_guards_is_in_no_journal() {
    let system = with_heads();
    move_heads(&system);
    let dies = system.process(7);
    let mut lock = acquire(&dies, "refs/heads/a").unwrap();
    lock.write_all(b"first").unwrap();
    let mut change = Change::default();
    let [place, log] =
        [&b"ref"[..], b"log"].map(|word| Place::read(word, b"refs/heads/a").unwrap());
    let guard = change.lock(place.clone());
    let append = Step::Append {
        place: log,
        len: 0,
        lines: b"line\n".to_vec().into(),
        create: true,
    };
    change.add(guard, append);
    change.put(guard, place, &lock);
    commit_change(&dies, &lock, change);
    lock.leave();
    dies.end();
    let found = recover(&system);
    assert!(found.view.is_none() && found.error.is_none(), "{found:?}");
    assert!(system.lstat(&at("refdb.journal")).is_err());
}

/// What cannot be looked at is neither a link nor none.
#[test]
fn nothing_is_committed_where_a_directory_cannot_be_looked_at() {
    let mut refused = 0;
    for at_operation in 0..40 {
        let system = with_heads();
        let process = system.process(7);
        let lock = acquire(&process, "refs/heads/a").unwrap();
        let mut change = Change::default();
        let place = Place::read(b"ref", b"refs/heads/a").unwrap();
        let guard = change.lock(place.clone());
        change.add(guard, Step::Remove { place });
        process.set_fault(Some(Fault::once(at_operation, io::ErrorKind::Other)));
        let shared: Arc<dyn System> = Arc::new(process.clone());
        let means = Means {
            holder: lock.holder(),
            lock: Some(&lock),
            packed: None,
            options: OPTIONS,
            fsync: true,
            roots: Roots::new(&shared, Path::new(DIR), &at("packed-refs")),
            dirs: BTreeSet::new(),
            clear: &|_| Ok(()),
        };
        match change.commit(&means) {
            Ok(journal) => journal.leave(),
            Err(_) => refused += 1,
        }
        process.set_fault(None);
        lock.leave();
        process.end();
        assert!(recover(&system).error.is_none(), "{at_operation}");
    }
    assert!(refused > 0);
}

/// A lock that cannot be looked at is not taken for one that is gone: its step would be left out.
#[test]
fn a_journal_stays_whose_locks_cannot_be_looked_at() {
    let system = with_heads();
    let dies = system.process(7);
    commit_ref(&dies, "refs/heads/a").leave();
    dies.end();
    move_heads(&system);
    let found = recover(&system);
    assert!(found.error.is_some(), "{found:?}");
    assert!(system.lstat(&at("refdb.journal")).is_ok());
    // When it is to be reached again, it is finished.
    system.remove_file(&at("refs/heads")).unwrap();
    let heads = Path::new("/elsewhere/heads");
    system.rename(heads, &at("refs/heads")).unwrap();
    assert!(recover(&system).error.is_none());
    assert_eq!(system.read(&at("refs/heads/a")).unwrap(), b"first");
}

/// Somebody removes every lock after a kill, as Git's own words advise: what was committed is not dropped
/// without a word.
#[test]
fn what_cannot_be_finished_any_more_is_told() {
    for (is_removed, is_changed) in [(false, false), (true, false), (true, true)] {
        let system = repository();
        create(&system, "HEAD", b"before");
        let dies = system.process(7);
        system.sleep(Duration::from_secs(1));
        committed(&dies).leave();
        dies.end();
        if is_removed {
            system.remove_file(&at("HEAD.lock")).unwrap();
        }
        if is_changed {
            // It has got another value since.
            system.remove_file(&at("HEAD")).unwrap();
            create(&system, "HEAD", b"after");
        }
        let told = Arc::new(std::sync::Mutex::new(Vec::new()));
        let mut options = Options::new(ObjectFormat::Sha1);
        let hears = Arc::clone(&told);
        options.warn = Some(crate::options::Warn(Arc::new(move |error: &Error| {
            hears.lock().unwrap().push(error.to_string());
        })));
        let shared: Arc<dyn System> = Arc::new(system.clone());
        let found = journal::recover(&Home::new(&shared, Path::new(DIR), &options)).unwrap();
        assert!(found.error.is_none() && system.lstat(&at("refdb.journal")).is_err());
        let told = told.lock().unwrap();
        let is_told = told
            .iter()
            .any(|text| text.contains("done in part") && text.contains("HEAD"));
        assert_eq!(is_told, is_removed && !is_changed, "{told:?}");
    }
}

/// Behind what stood beside those locks Git would find no ref; but what somebody else has by then stays.
#[test]
fn a_barrier_goes_in_recovery_also_when_somebody_took_its_lock_away() {
    for is_taken_again in [false, true] {
        let system = repository();
        let dies = system.process(7);
        let (mut lock, change) = change_of(&dies, "HEAD");
        lock.bar(None).unwrap();
        commit_change(&dies, &lock, change);
        lock.leave();
        dies.end();
        system.remove_file(&at("HEAD.lock")).unwrap();
        let next = is_taken_again.then(|| acquire(&system.process(8), "HEAD").unwrap());
        let found = recover(&system);
        assert!(found.error.is_none() && system.lstat(&at("refdb.journal")).is_err());
        assert_eq!(is_barrier(&system, &at("HEAD")), is_taken_again);
        assert_eq!(system.lstat(&at("HEAD.lock")).is_ok(), is_taken_again);
        drop(next);
    }
}

/// A repository that was copied in the midst of a transaction has its locks and its journal as other files.
/// It is seen whole. Somebody has to say so before it is finished, and nothing that lies elsewhere is changed.
#[test]
fn a_copied_journal_is_finished_by_whoever_says_so() {
    for is_linked in [false, true] {
        let system = repository();
        let dies = system.process(7);
        committed(&dies).leave();
        dies.end();
        for name in ["refdb.journal", "HEAD.lock", "refs/heads/a.lock"] {
            let Ok(content) = system.read(&at(name)) else {
                continue;
            };
            system.remove_file(&at(name)).unwrap();
            create(&system, name, &content);
        }
        if is_linked {
            let elsewhere = Path::new("/logs");
            system.create_dir(elsewhere).unwrap();
            system.symlink(elsewhere, &at("logs")).unwrap();
        }
        let found = recover(&system);
        let text = found.error.expect("it is left alone").to_string();
        assert!(text.contains("or is a copy"), "{text}");
        assert!(system.lstat(&at("refdb.journal")).is_ok());
        // Until then readers see what it says, if that lies where everybody looks.
        assert_eq!(found.view.is_some(), !is_linked);
        let finished = journal::finish_left(&home(&system), Says::NobodyWorks);
        assert_eq!(finished.is_ok(), !is_linked);
        assert_eq!(system.lstat(&at("refdb.journal")).is_ok(), is_linked);
        if !is_linked {
            assert_eq!(system.read(&at("HEAD")).unwrap(), b"first");
            assert!(system.lstat(&at("HEAD.lock")).is_err());
        }
    }
}

/// Finishes what a process left, gives up what cannot be done, and returns what is told of that.
fn given_up(system: &SimSystem) -> String {
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut options = Options::new(ObjectFormat::Sha1);
    let into = Arc::clone(&told);
    let tell = move |warning: &Error| into.lock().unwrap().push(warning.to_string());
    options.warn = Some(crate::options::Warn(Arc::new(tell)));
    let shared: Arc<dyn System> = Arc::new(system.clone());
    let home = Home::new(&shared, Path::new(DIR), &options);
    journal::finish_left(&home, Says::GiveUp).unwrap();
    told.lock().unwrap().join("\n")
}

/// Something stands where the value belongs: it stays unfinished until somebody says that it is given up, and
/// the rest is done.
#[test]
fn what_cannot_be_finished_is_given_up_by_whoever_says_so() {
    let system = repository();
    let dies = system.process(7);
    committed(&dies).leave();
    dies.end();
    system.create_dir(&at("HEAD")).unwrap();
    create(&system, "HEAD/x", b"");
    for says in [Says::Nothing, Says::NobodyWorks] {
        let error = journal::finish_left(&home(&system), says).unwrap_err();
        let remedy = error.message().remedy();
        assert_eq!(remedy, Some(crate::error::Remedy::GiveUp), "{error}");
        assert!(system.lstat(&at("refdb.journal")).is_ok());
    }
    let told = given_up(&system);
    assert!(
        told.contains("'HEAD'") && told.contains("'first'"),
        "{told}"
    );
    for gone in ["refdb.journal", "HEAD.lock"] {
        assert!(system.lstat(&at(gone)).is_err(), "{gone}");
    }
}

/// What is told of a value that is given up is what stands in the repository, and not what a link leads to.
#[test]
fn nothing_is_told_of_what_a_link_leads_to() {
    let system = repository();
    let dies = system.process(7);
    let lock = committed(&dies);
    let value = lock.value_path();
    lock.leave();
    dies.end();
    system.create_dir(&at("HEAD")).unwrap();
    create(&system, "HEAD/x", b"");
    system.remove_file(&value).unwrap();
    create(&system, "other", b"secret");
    system.rename(&at("other"), Path::new("/other")).unwrap();
    system.symlink(Path::new("/other"), &value).unwrap();
    let told = given_up(&system);
    assert!(told.contains("HEAD") && !told.contains("secret"), "{told}");
}

/// What is not certain is not done: the lock may be one of a process that runs.
#[test]
fn on_a_file_system_of_many_machines_nobody_is_dead() {
    let system = repository();
    system.share_between_machines();
    let dies = system.process(7);
    committed(&dies).leave();
    dies.end();
    let found = recover(&system);
    assert!(found.view.is_some() && found.error.is_none());
    assert!(is_held(acquire(&system, "HEAD")));
    let exists = io::Error::from(io::ErrorKind::AlreadyExists);
    let text = describe_refusal(&system, &at("HEAD"), &exists);
    assert!(
        text.contains("process 7 of the machine 'simulated'"),
        "{text}"
    );
    assert_eq!(text.remedy(), Some(crate::error::Remedy::RemoveLocks));
    // Somebody says that nothing runs.
    journal::finish_left(&home(&system), Says::NobodyWorks).unwrap();
    assert_eq!(system.read(&at("HEAD")).unwrap(), b"first");
    assert_eq!(system.read_dir(Path::new(DIR)).unwrap().len(), 1);
}

#[test]
fn where_a_file_has_one_name_locks_are_files_of_their_own() {
    let system = repository();
    system.refuse_second_names();
    let dies = system.process(7);
    let first = committed(&dies);
    assert!(LockFile::acquire_linked(first.holder(), &at("b"), OPTIONS, &first).is_err());
    LockFile::acquire(first.holder(), &at("b"), OPTIONS)
        .unwrap()
        .leave();
    first.leave();
    assert!(is_held(acquire(&system, "b")));
    dies.end();
    assert!(acquire(&system, "b").is_ok());
    assert_eq!(
        system.read(&at("HEAD")).unwrap(),
        b"first",
        "with its journal"
    );
}

#[test]
fn a_lock_that_somebody_took_away_is_noticed_and_not_taken_from_its_next_holder() {
    let system = repository();
    let first = acquire(&system, "a").unwrap();
    let second = LockFile::acquire_linked(first.holder(), &at("b"), OPTIONS, &first).unwrap();
    first.holder().check_held().unwrap();
    system.remove_file(&at("b.lock")).unwrap();
    let next = acquire(&system.process(7), "b").unwrap();
    let error = first.holder().check_held().unwrap_err();
    assert!(
        error.to_string().contains("removed by somebody else"),
        "{error}"
    );
    drop((first, second));
    assert!(system.lstat(&at("a.lock")).is_err());
    assert!(system.lstat(&at("b.lock")).is_ok(), "the next one's");
    drop(next);
    // The only name of a lock, and one that takes its content.
    let lock = acquire(&system, "c").unwrap();
    system.remove_file(&at("c.lock")).unwrap();
    let next = acquire(&system.process(8), "c").unwrap();
    drop(lock);
    assert!(system.lstat(next.path()).is_ok());
    let mut alone = LockFile::acquire_alone(&holder(&system), &at("d"), OPTIONS).unwrap();
    alone.write_all(b"one").unwrap();
    system.remove_file(&at("d.lock")).unwrap();
    let mut later = LockFile::acquire_alone(&holder(&system), &at("d"), OPTIONS).unwrap();
    later.write_all(b"two").unwrap();
    assert!(alone.place().is_err());
    drop(alone);
    later.place().unwrap();
    assert_eq!(system.read(&at("d")).unwrap(), b"two");
}

#[test]
fn a_barrier_goes_also_when_somebody_took_its_lock_away() {
    let system = repository();
    let mut lock = acquire(&system, "a").unwrap();
    lock.bar(None).unwrap();
    system.remove_file(&at("a.lock")).unwrap();
    drop(lock);
    assert_eq!(system.read_dir(Path::new(DIR)).unwrap(), []);
    // Unless somebody else has the lock by then.
    let mut lock = acquire(&system, "a").unwrap();
    lock.bar(None).unwrap();
    system.remove_file(&at("a.lock")).unwrap();
    let next = acquire(&system.process(7), "a").unwrap();
    drop(lock);
    assert!(is_barrier(&system, &at("a")));
    drop(next);
}

#[test]
fn a_store_looks_for_a_journal_now_and_then() {
    let system = repository();
    let watch = JournalWatch::new(&home(&system));
    let looks = || {
        let before = system.op_count();
        watch.for_writing().unwrap();
        system.op_count() > before
    };
    assert!(looks() && !looks());
    system.sleep(Duration::from_millis(8));
    assert!(!looks());
    system.sleep(Duration::from_millis(3));
    assert!(looks() && !looks());
    // Its own look is not put off by one that failed, and readers go on.
    system.sleep(Duration::from_millis(11));
    create(&system, "refdb.journal", b"refdb lock 2\nx");
    assert!(watch.for_writing().is_err() && watch.for_writing().is_err());
    assert!(watch.for_reading().unwrap().is_none());
}

/// What is no journal of this repository is left alone, and told; one that was cut goes.
#[test]
#[allow(clippy::too_many_lines, reason = "one forged journal after the other")]
fn only_what_was_made_here_is_a_journal() {
    let sound = {
        let system = repository();
        committed(&system.process(7)).leave();
        system.read(&at("refdb.journal")).unwrap()
    };
    let text = |from: &[u8], to: &[u8]| {
        use bstr::ByteSlice;
        assert!(sound.contains_str(from));
        sound.replace(from, to)
    };
    let signed = |content: Vec<u8>| {
        let body = &content[..content.len() - 21];
        [
            body,
            format!("end\0{:016x}\0", encoding::checksum(body)).as_bytes(),
        ]
        .concat()
    };
    let cut = sound.len() - 1;
    for (content, why) in [
        (b"refdb lock 1\nx".to_vec(), "another version"),
        (b"something else".to_vec(), "did not make it"),
        (sound.clone(), "for another repository"),
        (signed(text(b"HEAD", b"../x")), "for another repository"),
        (sound[..cut].to_vec(), "for another repository"),
        (Vec::new(), ""),
        (vec![0; 100], ""),
        (sound[..20].to_vec(), ""),
        ([&sound[..20], &[0; 60]].concat(), ""),
    ] {
        let system = repository();
        create(&system, "packed-refs", b"");
        create(&system, "refdb.journal", &content);
        let found = recover(&system);
        // Where none of its locks is there, nothing that it says of a ref is believed.
        let head = Place::read(b"ref", b"HEAD").unwrap();
        let becomes = found.view.and_then(|view| view.of_place(&head).unwrap());
        assert_eq!(becomes, None);
        assert_eq!(
            system.lstat(&at("refdb.journal")).is_ok(),
            !why.is_empty(),
            "{why}"
        );
        let text = found
            .error
            .map_or_else(String::new, |error| error.to_string());
        assert!(
            text.contains(why) && text.is_empty() == why.is_empty(),
            "{text}"
        );
        assert!(why.is_empty() || text.contains("refdb.journal"), "{text}");
    }
    // In its own place: by names that are none, or cut.
    for (change, why) in [
        (
            Some((&b"\0HEAD"[..], &b"\0../x"[..])),
            "names that refs do not have",
        ),
        (Some((b"\0ref\0", b"\0dir\0")), "names something else"),
        (None, ""),
    ] {
        let system = repository();
        let dies = system.process(7);
        committed(&dies).leave();
        dies.end();
        let now = system.read(&at("refdb.journal")).unwrap();
        let forged = match change {
            Some((from, to)) => signed(bstr::ByteSlice::replace(&*now, from, to)),
            None => now[..cut].to_vec(),
        };
        system.overwrite(&at("refdb.journal"), &forged).unwrap();
        let found = recover(&system);
        let text = found
            .error
            .map_or_else(String::new, |error| error.to_string());
        assert!(
            text.contains(why) && text.is_empty() == why.is_empty(),
            "{text}"
        );
        assert_eq!(
            system.lstat(&at("refdb.journal")).is_ok(),
            !why.is_empty(),
            "{why}"
        );
        assert!(system.lstat(&at("HEAD")).is_err());
    }
}

#[test]
fn nothing_leads_out_of_the_place_that_a_link_has() {
    let system = repository();
    system.create_dir(Path::new("/out")).unwrap();
    let name = "refs/heads/dir/a";
    for dir in ["refs", "refs/heads", "refs/heads/dir"] {
        system.create_dir(&at(dir)).unwrap();
    }
    let dies = system.process(7);
    let mut lock = acquire(&dies, name).unwrap();
    lock.write_all(b"new").unwrap();
    let mut change = Change::default();
    let place = Place::read(b"ref", name.as_bytes()).unwrap();
    let guard = change.lock(place.clone());
    change.put(guard, place, &lock);
    commit_change(&dies, &lock, change);
    let files = [lock.path().to_owned(), lock.value_path()];
    lock.leave();
    dies.end();
    for from in &files {
        let file = from.file_name().unwrap();
        system.rename(from, &Path::new("/out").join(file)).unwrap();
    }
    system.remove_dir(&at("refs/heads/dir")).unwrap();
    system
        .symlink(Path::new("/out"), &at("refs/heads/dir"))
        .unwrap();
    recover(&system);
    let left = system.read_dir(Path::new("/out")).unwrap();
    let names: Vec<_> = left.into_iter().map(|entry| entry.name).collect();
    let moved = files.map(|file| file.file_name().unwrap().as_bytes().to_vec());
    assert_eq!(names, moved);
}

#[test]
fn new_content_goes_with_its_lock_and_never_without() {
    let system = repository();
    let sweep = |deep| sweep(&home(&system), Path::new(DIR), deep).unwrap();
    let mut living = acquire(&system.process(7), "living").unwrap();
    living.write_all(b"content").unwrap();
    let others = [
        ".profile",
        "other~1.lock",
        "~0123456789abcdef.lock",
        "a~b~0123456789abcdef.lock",
    ]
    .map(at);
    for deep in [false, true] {
        let orphans = ["orphan", "living"].map(|name| value_path(&at(name), 1));
        let is_there = |path: &PathBuf| system.lstat(path).is_ok();
        for path in orphans.iter().chain(&others).filter(|path| !is_there(path)) {
            system.create_new(path, 0o666).unwrap();
        }
        sweep(deep);
        // Whoever has the lock is not disturbed.
        assert_eq!(orphans.each_ref().map(is_there), [false, true]);
        assert!(others.iter().all(is_there), "none of new content");
    }
    living.place().unwrap();
    assert_eq!(system.read(&at("living")).unwrap(), b"content");
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
    create(&system, "text.lock", b"not of refdb\n\n");
    for name in ["file", "link", "text"] {
        assert!(is_held(acquire(&system, name)), "{name}");
        assert!(system.lstat(&at(&format!("{name}.lock"))).is_ok());
    }
}

#[test]
fn while_another_takes_a_lock_over_one_waits() {
    let system = repository();
    let dies = system.process(7);
    acquire(&dies, "a").unwrap().leave();
    dies.end();
    let guard = system.guard_file(&at("a.lock")).unwrap();
    assert!(guard.is_some() && is_held(acquire(&system, "a")));
    drop(guard);
    assert!(acquire(&system, "a").is_ok());
}

/// Whoever may read a repository may take its directory: nobody depends on that.
#[test]
fn who_takes_the_directory_keeps_nobody_from_anything() {
    let system = repository();
    let dies = system.process(7);
    committed(&dies).leave();
    dies.end();
    let _taken = system
        .process(8)
        .guard_dir(Path::new(DIR))
        .unwrap()
        .unwrap();
    assert!(acquire(&system, "HEAD").is_ok());
    assert_eq!(system.read(&at("HEAD")).unwrap(), b"first");
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
    dies.end();
    assert!(tell("a").contains("the refdb process 7, which has ended"));
    let taken = system.process(8).guard_file(&at("a.lock")).unwrap();
    assert!(tell("a").contains("by the process 8, which runs"));
    drop(taken);
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
    lock.bar(None).unwrap();
    assert!(is_barrier(&system, &at("a")) && !is_barrier(&system, &at("a.lock")));
    lock.release().unwrap();
    assert!(system.lstat(&at("a")).is_err());

    let mut lock = acquire(&process, "a").unwrap();
    system.symlink(Path::new("b"), &at("a")).unwrap();
    assert!(lock.bar(None).is_err(), "something else is there");
    system.remove_file(&at("a")).unwrap();
    system.symlink(&barrier(&system), &at("a")).unwrap();
    lock.bar(None).expect("what the dead left is one's own");
    lock.release().unwrap();
    assert!(system.lstat(&at("a")).is_err());

    let mut lock = acquire(&process, "a").unwrap();
    lock.bar(None).unwrap();
    std::mem::forget(lock);
    process.end();
    assert!(take_over(&home(&system), &at("a.lock")).unwrap());
    for left in ["a", "a.lock"] {
        assert!(system.lstat(&at(left)).is_err(), "{left}");
    }
}
