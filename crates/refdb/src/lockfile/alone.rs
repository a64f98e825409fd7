//! The lock of a ref that is written alone: a file that its process has for itself, and that becomes
//! the ref.
//!
//! A link that says who holds the lock costs a name and an inode besides those of the new content, a
//! quarter of the time of such a write. Here the lock takes the content, and the name of the ref in
//! the end; that its process has ended shows in that nobody has the file any more. That is certain on
//! one machine only, and for as long as the file is open: locks of many refs are links.
//!
//! Invariants:
//! 1. Whoever has the file knows that it still had its name after he took it; nobody removes it
//!    before having it.
//! 2. The file is marked as guarded from its creation until it is the ref. An ordinary file is the
//!    lock of another program, whatever is in it.

use std::io;
use std::path::Path;

use super::{Holder, LockFile, LockOptions, Written, suffixed};
use crate::options::SharedRepository;
use crate::system::System;

impl LockFile {
    /// Creates `<target>.lock` as a guarded file, which takes the new content itself; as
    /// [`LockFile::acquire`] does where such a file cannot be.
    ///
    /// # Errors
    /// As for [`LockFile::acquire`].
    pub(crate) fn acquire_alone(
        holder: &Holder,
        target: &Path,
        options: LockOptions,
    ) -> io::Result<LockFile> {
        // The content would have to get its permissions before its name, and lose the mark.
        if options.shared != SharedRepository::Umask {
            return LockFile::acquire(holder, target, options);
        }
        let path = suffixed(target, ".lock");
        let mut file = None;
        holder.retry(&path, options.timeout, || {
            file = holder.who.system.create_guarded(&path, 0o666)?;
            match file {
                Some(_) => Ok(()),
                None => holder.create(&path),
            }
        })?;
        let mut lock = LockFile::acquired(holder, path, target, options)?;
        lock.is_guarded = file.is_some();
        lock.file = file;
        Ok(lock)
    }

    /// Returns whether the lock is a guarded file.
    pub(crate) fn is_guarded(&self) -> bool {
        self.is_guarded
    }

    /// Puts a link in the place of a guarded file, in one step, so that a journal can name the lock
    /// and other locks be linked to it.
    ///
    /// # Errors
    /// Those of the system, and `InvalidInput` if the new content is already in the file; the lock
    /// is as it was then.
    pub(crate) fn make_link(&mut self) -> io::Result<()> {
        if !self.is_guarded {
            return Ok(());
        }
        if self.written != Written::Nothing {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let link = self.value_path();
        self.fresh(|| self.holder.create(&link))?;
        if let Err(error) = self.system().rename(&link, &self.path) {
            self.remove(&link)?;
            return Err(error);
        }
        self.is_guarded = false;
        self.file = None;
        Ok(())
    }

    /// Gives the file the name that it was a lock for, and with that the lock away.
    pub(super) fn place_guarded(&mut self) -> io::Result<()> {
        self.system().rename(&self.path, &self.target())?;
        self.held = false;
        if let Some(mut file) = self.file.take() {
            // The mark says nothing of a file that is no lock: it is only not to be seen.
            let _ = file.unguard();
        }
        self.written = Written::Nothing;
        self.remove_pid_file();
        Ok(())
    }
}

/// Removes the lock at `path`, with what its process left for it, if it is a guarded file and its
/// process has ended; returns whether that was so.
///
/// # Errors
/// Those of the system; the lock is still there then.
pub(super) fn remove_dead(system: &dyn System, path: &Path) -> io::Result<bool> {
    match system.guard_file(path)? {
        Some(_guard) => super::takeover::remove_with_value(system, path).map(|()| true),
        None => Ok(false),
    }
}

/// Returns whether the lock at `path` is a guarded file whose process has ended.
pub(super) fn is_dead(system: &dyn System, path: &Path) -> bool {
    system.guard_file(path).is_ok_and(|guard| guard.is_some())
}

/// Says who holds the guarded file at `path`, for how long, and what can be done about it.
pub(super) fn describe(system: &dyn System, path: &Path, age: &str) -> String {
    if is_dead(system, path) {
        return "It was held by a refdb process that has ended, and could not be taken over: try again"
            .to_owned();
    }
    match system.guard_owner(path) {
        Some(pid) => format!(
            "It is held by the refdb process {pid}, which runs, for {age}: wait for it, or end it, \
             and the next refdb takes the lock over"
        ),
        None => format!(
            "It was made by a refdb process {age} ago, and from here it cannot be told whether that \
             runs: if it does not, remove the file"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::lockfile::tests::{DIR, at, is_held, repository};
    use crate::lockfile::{describe_refusal, owner, sweep};
    use crate::options::LockTimeout;
    use crate::system::OsSystem;
    use crate::system::simulation::{Fault, SimSystem};

    const PATIENT: LockOptions = LockOptions {
        timeout: LockTimeout::FOREVER,
        ..LockOptions::AT_ONCE
    };

    fn acquire(system: &SimSystem, name: &str) -> io::Result<LockFile> {
        let system: Arc<dyn System> = Arc::new(system.clone());
        let holder = Holder::new(&system, Path::new(DIR));
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
        assert!(lock.is_guarded());
        assert!(is_held(acquire(&system.process(7), "a")), "it runs");
        lock.write_all(b"on").unwrap();
        lock.write_all(b"e").unwrap();
        lock.close();
        assert!(is_held(acquire(&system.process(8), "a")), "it still runs");
        lock.place().unwrap();
        assert_eq!(files(&system), ["a"]);
        assert_eq!(system.read(&at("a")).unwrap(), b"one");
        assert_eq!(system.lstat(&at("a")).unwrap().mode, 0o644);
        let next = acquire(&system, "a").unwrap();
        drop(lock);
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
        // Creating, taking, writing, renaming, and taking the mark off.
        assert_eq!(ends, 5);
    }

    #[test]
    fn only_files_that_are_marked_and_nobodys_are_removed() {
        let system = repository();
        let shared: Arc<dyn System> = Arc::new(system.clone());
        let sweep = || sweep(&shared, Path::new(DIR), Path::new(DIR), false).unwrap();
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
    fn a_link_takes_its_place_and_it_is_locked_all_the_time() {
        let system = repository();
        let mut lock = acquire(&system, "a").unwrap();
        system.start_trace();
        lock.make_link().unwrap();
        let ops: Vec<_> = system.take_trace().iter().map(|op| op.name).collect();
        assert_eq!(ops, ["symlink", "rename"]);
        assert!(!lock.is_guarded());
        assert!(owner::of_lock(&system, &at("a.lock")).is_some());
        assert_eq!(files(&system), ["a.lock"]);
        lock.make_link().unwrap();
        lock.write_all(b"one").unwrap();
        assert_eq!(files(&system), [".a.lock", "a.lock"]);
        lock.place().unwrap();
        drop(lock);
        assert_eq!(files(&system), ["a"]);

        let mut late = acquire(&system, "b").unwrap();
        late.write_all(b"two").unwrap();
        assert!(late.make_link().is_err(), "its content would be lost");
        late.place().unwrap();
        assert_eq!(system.read(&at("b")).unwrap(), b"two");
    }

    #[test]
    fn a_link_that_cannot_be_leaves_the_lock_as_it_was() {
        for op in 0..2 {
            let system = repository();
            let mut lock = acquire(&system, "a").unwrap();
            let nth = system.op_count() + op;
            system.set_fault(Some(Fault::once(nth, io::ErrorKind::StorageFull)));
            assert!(lock.make_link().is_err());
            assert_eq!(files(&system), ["a.lock"]);
            lock.write_all(b"one").unwrap();
            lock.place().unwrap();
            assert_eq!(files(&system), ["a"]);
        }
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
        assert!(tell().contains("that has ended"), "{}", tell());
        assert!(owner::is_left(&system, &at("a.lock")));
    }

    /// Many die one after the other, each with a lock, and whoever is alive takes it: at no moment do
    /// two have it. On the real system, where one can look at the lock before its process has it.
    #[test]
    #[expect(clippy::print_stderr, reason = "says what cannot be tried here")]
    fn of_many_who_take_it_over_one_has_it_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let near = OsSystem::new().near(dir.path()).unwrap();
        let holders = AtomicU32::new(0);
        let guarded = AtomicU32::new(0);
        let work = || {
            let holder = Holder::new(&near, dir.path());
            for round in 0..200 {
                let mut lock =
                    LockFile::acquire_alone(&holder, &dir.path().join("a"), PATIENT).unwrap();
                assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0);
                guarded.fetch_add(u32::from(lock.is_guarded()), Ordering::SeqCst);
                std::thread::yield_now();
                assert_eq!(holders.fetch_sub(1, Ordering::SeqCst), 1);
                match round % 3 {
                    // As a process that ends: the file is closed, and stays.
                    0 if lock.is_guarded() => lock.held = false,
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
}
