//! Planted bugs: each is seen to be caught by the tests of the module above. The bug is in the system
//! that the stores are given, so that what is tested is the code as it is.

// Long: the bugs, which share one system that has them.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use refdb::system::{
    Bytes, Guard, GuardedFile, Machine, ProcessState, ReadFile, Scan, Stat, WriteFile,
};

use super::*;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Bug {
    /// Names are not made durable.
    NoDirectorySync,
    /// The content of files is not made durable.
    NoFileSync,
    /// Neither is that of many at once.
    NoFileSystemSync,
    /// The journal is gone before the first step is taken.
    JournalGoesTooEarly,
    /// The content of the journal is not made durable.
    JournalNotSynced,
    /// There is no journal at all.
    NoJournal,
    /// The process that makes a change takes a step in another way than recovery does: entries of reflogs
    /// that recovery writes are left out.
    StepTakenDifferently,
    /// Every process counts as running: nothing is taken over.
    NobodyIsDead,
    /// A file that a process has for itself is given to others too.
    FilesAreFree,
    /// That somebody took a lock away is not noticed.
    LocksAreNotLookedAt,
    /// Tables are made durable only after a list that names them is.
    ListBeforeTable,
    /// A table is made durable before its footer is written.
    NoFooterSync,
    /// One restart point of a table leads to the middle of a record.
    WrongRestart,
    /// A repair does not keep what it changes.
    NothingKept,
    /// Nothing can be changed: no bug, but the file system of a reader.
    ReadOnly,
}

#[derive(Debug)]
struct Buggy {
    inner: SimSystem,
    bug: Bug,
    journal_is_written: AtomicBool,
}

pub(super) fn planted(inner: SimSystem, bug: Bug) -> Box<dyn System> {
    Box::new(Buggy {
        inner,
        bug,
        journal_is_written: AtomicBool::new(false),
    })
}

fn is_journal(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "refdb.journal")
}

fn is_table(path: &Path) -> bool {
    let name = path.to_string_lossy();
    name.contains("/reftable/0x") || name.contains("/reftable/.0x")
}

struct Unsynced(Box<dyn WriteFile>);

impl io::Write for Unsynced {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl WriteFile for Unsynced {
    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn set_modified(&mut self, at: Duration) -> io::Result<()> {
        self.0.set_modified(at)
    }
}

/// A table whose footer is written after it was made durable.
struct EarlySynced(Box<dyn WriteFile>);

/// The length of a footer: of SHA-1, the shorter one.
const FOOTER: usize = 68;

impl io::Write for EarlySynced {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (blocks, footer) = bytes.split_at(bytes.len().saturating_sub(FOOTER));
        self.0.write_all(blocks)?;
        self.0.sync()?;
        self.0.write_all(footer)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl WriteFile for EarlySynced {
    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn set_modified(&mut self, at: Duration) -> io::Result<()> {
        self.0.set_modified(at)
    }
}

/// A file to which nothing is added.
struct Unchanged(Box<dyn WriteFile>);

impl io::Write for Unchanged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl WriteFile for Unchanged {
    fn sync(&mut self) -> io::Result<()> {
        self.0.sync()
    }

    fn set_modified(&mut self, at: Duration) -> io::Result<()> {
        self.0.set_modified(at)
    }
}

/// A table with a wrong restart point in its first block.
struct Misled(Box<dyn WriteFile>);

impl io::Write for Misled {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut bytes = bytes.to_vec();
        let header = if bytes.get(4) == Some(&1) { 24 } else { 28 };
        if bytes.starts_with(b"REFT") && bytes.get(header) == Some(&b'r') {
            let len = &bytes[header + 1..header + 4];
            let len = len
                .iter()
                .fold(0, |len, &byte| len << 8 | usize::from(byte));
            // The last restart point stands before the count of them.
            bytes[len - 3] ^= 1;
        }
        self.0.write_all(&bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl WriteFile for Misled {
    fn sync(&mut self) -> io::Result<()> {
        self.0.sync()
    }

    fn set_modified(&mut self, at: Duration) -> io::Result<()> {
        self.0.set_modified(at)
    }
}

/// The file whose names are locks, and the journal.
struct Held {
    file: Box<dyn GuardedFile>,
    /// What has the name of the file by now.
    named: Box<dyn Fn() -> io::Result<Stat> + Send + Sync>,
    bug: Bug,
}

impl io::Write for Held {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl WriteFile for Held {
    fn sync(&mut self) -> io::Result<()> {
        match self.bug {
            Bug::NoFileSync | Bug::JournalNotSynced => Ok(()),
            _ => self.file.sync(),
        }
    }

    fn set_modified(&mut self, at: Duration) -> io::Result<()> {
        self.file.set_modified(at)
    }
}

impl GuardedFile for Held {
    fn is_certain(&self) -> bool {
        self.file.is_certain()
    }

    fn stat(&self) -> io::Result<Stat> {
        let mut stat = self.file.stat()?;
        if self.bug == Bug::LocksAreNotLookedAt {
            stat.nlink = u64::MAX;
            if let Ok(named) = (self.named)() {
                (stat.dev, stat.ino) = (named.dev, named.ino);
            }
        }
        Ok(stat)
    }

    fn reveal(&mut self) -> io::Result<()> {
        self.file.reveal()
    }

    fn unguard(&mut self) -> io::Result<()> {
        self.file.unguard()
    }
}

impl Buggy {
    fn file(&self, path: &Path, file: Box<dyn WriteFile>) -> Box<dyn WriteFile> {
        match self.bug {
            Bug::NoFileSync => Box::new(Unsynced(file)),
            Bug::ListBeforeTable if is_table(path) => Box::new(Unsynced(file)),
            Bug::NoFooterSync if is_table(path) => Box::new(EarlySynced(file)),
            Bug::WrongRestart if is_table(path) => Box::new(Misled(file)),
            _ => file,
        }
    }

    /// Comes before every change.
    fn change(&self) -> io::Result<()> {
        match self.bug {
            Bug::ReadOnly => Err(io::ErrorKind::ReadOnlyFilesystem.into()),
            _ => Ok(()),
        }
    }

    /// Comes before every change that is a step of a transaction.
    fn step(&self, path: &Path) -> io::Result<()> {
        self.change()?;
        if self.bug == Bug::JournalGoesTooEarly
            && !is_journal(path)
            && self.journal_is_written.swap(false, Ordering::SeqCst)
        {
            self.inner
                .remove_file(&Path::new(GIT_DIR).join("refdb.journal"))?;
        }
        Ok(())
    }
}

impl System for Buggy {
    fn beneath(&self, root: &Path) -> io::Result<Arc<dyn System>> {
        let sound = self.inner.beneath(root)?;
        // What a repair keeps is put beneath the repository, and who may not write may not write there.
        if [Bug::NothingKept, Bug::ReadOnly].contains(&self.bug) {
            return Ok(planted(self.inner.clone(), self.bug).into());
        }
        // All else beneath a directory is done by the sound system.
        Ok(sound)
    }

    fn read_at_most(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        self.inner.read_at_most(path, limit)
    }

    fn map(&self, path: &Path) -> io::Result<Bytes> {
        self.inner.map(path)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadFile>> {
        self.inner.open(path)
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.inner.stat(path)
    }

    fn lstat(&self, path: &Path) -> io::Result<Stat> {
        self.inner.lstat(path)
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        self.inner.read_link(path)
    }

    fn scan_dir(&self, path: &Path) -> io::Result<Scan> {
        self.inner.scan_dir(path)
    }

    fn create_new(&self, path: &Path, mode: u32) -> io::Result<Box<dyn WriteFile>> {
        self.change()?;
        let file = self.inner.create_new(path, mode)?;
        if self.bug == Bug::NothingKept && path.to_string_lossy().contains("/refdb-damaged/") {
            self.inner.remove_file(path)?;
        }
        Ok(self.file(path, file))
    }

    fn create_guarded(&self, path: &Path, mode: u32) -> io::Result<Box<dyn GuardedFile>> {
        self.change()?;
        let file = self.inner.create_guarded(path, mode)?;
        let (inner, path) = (self.inner.clone(), path.to_owned());
        Ok(Box::new(Held {
            file,
            named: Box::new(move || inner.lstat(&path)),
            bug: self.bug,
        }))
    }

    fn guard_file(&self, path: &Path) -> io::Result<Option<Guard>> {
        match self.bug {
            Bug::FilesAreFree => {
                let is_there = self.inner.lstat(path).is_ok();
                Ok(is_there.then(|| Box::new(()) as Guard))
            }
            Bug::NobodyIsDead => Ok(None),
            _ => self.inner.guard_file(path),
        }
    }

    fn is_taken(&self, path: &Path) -> bool {
        self.bug != Bug::FilesAreFree && self.inner.is_taken(path)
    }

    fn guard_owner(&self, path: &Path) -> Option<u32> {
        self.inner.guard_owner(path)
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.step(path)?;
        let file = self.inner.append(path)?;
        Ok(match self.bug {
            Bug::StepTakenDifferently => Box::new(Unchanged(file)),
            _ => self.file(path, file),
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step(to)?;
        self.inner.rename(from, to)?;
        if self.bug == Bug::ListBeforeTable && to.ends_with("reftable/tables.list") {
            self.inner.sync_file_system(to)?;
        }
        Ok(())
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        self.step(other)?;
        self.inner.exchange(one, other)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change()?;
        if is_journal(to) {
            if self.bug == Bug::NoJournal {
                return Ok(());
            }
            self.inner.hard_link(from, to)?;
            self.journal_is_written.store(true, Ordering::SeqCst);
            return Ok(());
        }
        self.inner.hard_link(from, to)
    }

    fn symlink(&self, text: &Path, path: &Path) -> io::Result<()> {
        self.change()?;
        self.inner.symlink(text, path)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.step(path)?;
        self.inner.remove_file(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.change()?;
        self.inner.create_dir(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.change()?;
        self.inner.remove_dir(path)
    }

    fn set_mode(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.change()?;
        self.inner.set_mode(path, mode)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        match self.bug {
            Bug::NoDirectorySync => Ok(()),
            _ => self.inner.sync_dir(path),
        }
    }

    fn sync_file_system(&self, path: &Path) -> io::Result<()> {
        match self.bug {
            Bug::NoFileSystemSync => Ok(()),
            _ => self.inner.sync_file_system(path),
        }
    }

    fn now(&self) -> Duration {
        self.inner.now()
    }

    fn elapsed(&self) -> Duration {
        self.inner.elapsed()
    }

    fn sleep(&self, duration: Duration) {
        self.inner.sleep(duration);
    }

    fn random(&self) -> u64 {
        self.inner.random()
    }

    fn process_id(&self) -> u32 {
        self.inner.process_id()
    }

    fn user_id(&self) -> u32 {
        self.inner.user_id()
    }

    fn machine(&self) -> Machine {
        self.inner.machine()
    }

    fn process_state(&self, pid: u32) -> ProcessState {
        self.inner.process_state(pid)
    }

    fn guard_dir(&self, path: &Path) -> io::Result<Option<Guard>> {
        self.inner.guard_dir(path)
    }
}

/// Returns whether an assertion fails.
pub(super) fn is_caught(check: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(check)).is_err()
}

/// A process that commits; no bug is in it.
fn sound(system: SimSystem) -> Box<dyn System> {
    Box::new(system)
}

/// The workloads that take several steps: there is the most that can go wrong.
fn several(format: Format) -> impl Iterator<Item = Case> {
    let cases = cases(format).into_iter();
    cases
        .filter(|(_, work)| work.scope == Scope::Several)
        .map(move |(base, work)| Case::new(base, format, work))
}

fn check_deaths(format: Format, wrap: Wrap) {
    for case in several(format) {
        for at in case.points(u64::MAX) {
            case.die_at(at, wrap);
        }
    }
}

fn check_power(format: Format, wrap: Wrap) {
    for case in several(format) {
        for at in case.points(u64::MAX) {
            case.lose_power_at(at, wrap);
        }
    }
}

/// As [`check_held`], of a process that writes two refs.
fn check_locks(format: Format, wrap: Wrap) {
    check_held(format, wrap, &["refs/heads/side", "refs/heads/too"]);
}

/// As [`check_held`], of a process that writes one ref alone.
fn check_lock_alone(format: Format, wrap: Wrap) {
    check_held(format, wrap, &["refs/heads/side"]);
}

/// A live process holds the locks of refs, or of a stack: asserts that another one waits for it, and
/// that one that has ended, or whose machine was booted, is not waited for.
fn check_held(format: Format, wrap: Wrap, names: &[&str]) {
    let base = repository(format);
    let holds = base.process(50);
    let holder = Process::new(holds.clone(), format);
    let mut transaction = holder.main.transaction();
    for name in names {
        let edit = holder.update(name, 9);
        transaction.add(edit).expect("a good edit");
    }
    let prepared = transaction.prepare().expect("no fault");
    let write = |system: SimSystem| {
        let process = Process::with(Arc::from(wrap(system)), format, |_| {});
        commit(&process.main, vec![process.update("refs/heads/side", 8)])
    };
    let refused = write(base.process(60)).expect_err("it is held by a process that runs");
    assert!(refused.to_string().contains("process 50"), "{refused}");
    // The process ends without giving anything back.
    std::mem::forget(prepared);
    base.sync_all();
    let booted = base.crash(Crash::seeded(3));
    write(booted).expect("nothing runs that ran before the machine was booted");
    holds.end();
    let reused = base.fork();
    reused.process(50);
    write(reused.process(60)).expect("another process has the number");
    write(base.process(60)).expect("the process has ended");
}

/// Two processes find the lock of one that has ended, and the first is held up in the moment before
/// it removes the lock: asserts that the second does not get ahead of it.
fn check_race(format: Format, wrap: Wrap) {
    let (base, lock) = left(format);
    let first = wrap(base.process(60)).guard_file(&lock).expect("no fault");
    assert!(first.is_some());
    let second = wrap(base.process(61)).guard_file(&lock).expect("no fault");
    assert!(second.is_none(), "two take locks over at once");
    drop(first);
}

/// A process ended with a lock: the disk, and where the lock is.
fn left(format: Format) -> (SimSystem, PathBuf) {
    let base = repository(format);
    let holds = base.process(50);
    let holder = Process::new(holds.clone(), format);
    let mut transaction = holder.main.transaction();
    let edit = holder.update("refs/heads/side", 9);
    transaction.add(edit).expect("a good edit");
    std::mem::forget(transaction.prepare().expect("no fault"));
    holds.end();
    (base, lock_of(format, "refs/heads/side"))
}

/// Returns which file is the lock of a ref.
fn lock_of(format: Format, name: &str) -> PathBuf {
    Path::new(GIT_DIR).join(match format {
        Format::FILES_SHA1 | Format::FILES_SHA256 => format!("{name}.lock"),
        _ => "reftable/tables.list.lock".to_owned(),
    })
}

/// Somebody removes the locks of a prepared transaction by hand, and another process writes one of
/// the refs: asserts that the transaction says that it could not be committed, and that the other
/// one's value stays.
fn check_removed(format: Format, wrap: Wrap) {
    for names in [
        &["refs/heads/side", "refs/heads/too"][..],
        &["refs/heads/side"],
    ] {
        let base = repository(format);
        let holder = Process::with(Arc::from(wrap(base.process(50))), format, |_| {});
        let mut transaction = holder.main.transaction();
        for name in names {
            transaction
                .add(holder.update(name, 9))
                .expect("a good edit");
        }
        let prepared = transaction.prepare().expect("no fault");
        for name in names {
            let removed = base.remove_file(&lock_of(format, name));
            assert!(removed.is_ok() || name != &names[0]);
        }
        let other = Process::new(base.process(60), format);
        let mut later = other.main.transaction();
        let edit = other.update("refs/heads/side", 8);
        later.add(edit).expect("a good edit");
        let later = later.prepare().expect("nobody has it");
        assert!(prepared.commit().is_err(), "it is not committed");
        let _ = later.commit().expect("it still has the lock");
        let seen = Process::new(base.process(70), format);
        let found = seen
            .main
            .read(RefName::new("refs/heads/side").expect("a name"));
        let found = found.expect("it can be read").expect("it is there");
        let text = format!("{:?}", found.target);
        assert!(text.contains("08"), "{text}");
    }
}

for_every_format! {
    fn sound_locks_are_not_caught(format) {
        check_locks(format, sound);
        check_lock_alone(format, sound);
        check_race(format, sound);
        check_removed(format, sound);
    }
}

macro_rules! caught {
    ($($name:ident: $check:ident($format:ident) with $bug:ident;)*) => {
        $(#[test]
        fn $name() {
            let check = || $check(Format::$format, |system| planted(system, Bug::$bug));
            assert!(is_caught(check), "{:?} was not caught", Bug::$bug);
        })*
    };
}

caught! {
    no_directory_sync_in_files: check_power(FILES_SHA1) with NoDirectorySync;
    no_directory_sync_in_reftable: check_power(REFTABLE_SHA1) with NoDirectorySync;
    no_file_sync_in_files: check_power(FILES_SHA1) with NoFileSync;
    no_file_sync_in_reftable: check_power(REFTABLE_SHA1) with NoFileSync;
    no_file_system_sync: check_power(FILES_SHA1) with NoFileSystemSync;
    journal_not_synced_in_files: check_power(FILES_SHA1) with JournalNotSynced;
    journal_not_synced_in_reftable: check_power(REFTABLE_SHA1) with JournalNotSynced;
    journal_goes_too_early_in_files: check_deaths(FILES_SHA1) with JournalGoesTooEarly;
    journal_goes_too_early_in_reftable: check_deaths(REFTABLE_SHA1) with JournalGoesTooEarly;
    a_step_taken_differently_live_and_in_recovery: check_deaths(FILES_SHA1) with StepTakenDifferently;
    no_journal_in_files: check_deaths(FILES_SHA1) with NoJournal;
    no_journal_in_reftable: check_deaths(REFTABLE_SHA1) with NoJournal;
    takeover_without_the_liveness_check_in_files: check_locks(FILES_SHA1) with FilesAreFree;
    takeover_without_the_liveness_check_in_reftable: check_locks(REFTABLE_SHA1) with FilesAreFree;
    a_lock_alone_without_the_liveness_check: check_lock_alone(FILES_SHA1) with FilesAreFree;
    a_lock_alone_that_is_not_taken_over: check_lock_alone(FILES_SHA1) with NobodyIsDead;
    nothing_taken_over_in_files: check_locks(FILES_SHA1) with NobodyIsDead;
    nothing_taken_over_in_reftable: check_locks(REFTABLE_SHA1) with NobodyIsDead;
    locks_that_are_not_looked_at_in_files: check_removed(FILES_SHA1) with LocksAreNotLookedAt;
    locks_that_are_not_looked_at_in_reftable: check_removed(REFTABLE_SHA1) with LocksAreNotLookedAt;
    list_before_the_table: check_power(REFTABLE_SHA1) with ListBeforeTable;
    table_synced_before_its_footer: check_power(REFTABLE_SHA1) with NoFooterSync;
    wrong_restart_offset: check_deaths(REFTABLE_SHA1) with WrongRestart;
    takeover_without_the_guard: check_race(FILES_SHA1) with FilesAreFree;
}
