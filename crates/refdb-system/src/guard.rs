//! Files and directories that a process has for itself, as the real system gives them.
//!
//! What says so is a lock of the kernel's (`flock`), which ends with the process, however it ends.

use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use rustix::fs::{fchmod, fstat};
use rustix::io::Errno;

use super::os::{OsFile, describe};
use super::platform::{self, is_local};
use super::{FileKind, GUARDED_MODE, Guard, GuardedFile, Stat, WriteFile};

/// A file that this process has for itself as long as it is open.
pub(crate) struct OsGuardedFile {
    file: OsFile,
    is_certain: bool,
    /// Whether it was created with the mark: file systems may leave that out.
    has_mark: bool,
    /// The permission bits that it is to have in the end.
    mode: u32,
    identity: (u64, u64),
}

impl Write for OsGuardedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl WriteFile for OsGuardedFile {
    fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }

    fn set_modified(&mut self, at: Duration) -> io::Result<()> {
        self.file.set_modified(at)
    }
}

impl GuardedFile for OsGuardedFile {
    fn is_certain(&self) -> bool {
        self.is_certain
    }

    fn stat(&self) -> io::Result<Stat> {
        Ok(describe(&fstat(&self.file.0)?))
    }

    fn identity(&self) -> io::Result<(u64, u64)> {
        Ok(self.identity)
    }

    fn has_mark(&self) -> bool {
        self.has_mark
    }

    fn keep_mode(&mut self, mode: u32) {
        self.mode = mode;
    }

    fn kept_mode(&self) -> u32 {
        self.mode
    }

    fn reveal(&mut self) -> io::Result<()> {
        if self.mode & 0o044 == 0 {
            return Ok(());
        }
        let mark = if self.has_mark { GUARDED_MODE } else { 0 };
        set_mode(&self.file.0, self.mode | mark)
    }

    fn unguard(&mut self) -> io::Result<()> {
        set_mode(&self.file.0, self.mode)
    }
}

/// Gives a file that this process made these permission bits. Where files have none of their own, as on FAT, all
/// have those of the mount, and that is how it is to be.
fn set_mode(file: &File, mode: u32) -> io::Result<()> {
    match fchmod(file, platform::mode(mode)) {
        Err(Errno::PERM | Errno::INVAL | Errno::NOTSUP | Errno::NOSYS) => Ok(()),
        set => Ok(set?),
    }
}

/// Takes a file or directory, unless somebody has it. `named` describes what has its name by now.
pub(crate) fn take(
    file: File,
    named: impl FnOnce() -> io::Result<Stat>,
) -> io::Result<Option<Guard>> {
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    // Whoever had it may have removed it, or given it another name, and something else has this one.
    let (held, named) = (describe(&fstat(&file)?), named()?);
    let is_same = (held.dev, held.ino) == (named.dev, named.ino);
    Ok(is_same.then(|| Box::new(file) as Guard))
}

/// How often, and for how long each time, it is waited for whoever looks whether a new file is one of the dead.
const PAUSES: u32 = 800;
const PAUSE: Duration = Duration::from_micros(250);

/// Takes a file, which is waited for, unless the file system has no such locks.
fn take_soon(file: &File) -> io::Result<bool> {
    for _ in 0..PAUSES {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::Error(_)) => return Ok(false),
            Err(TryLockError::WouldBlock) => thread::sleep(PAUSE),
        }
    }
    Err(Errno::EXIST.into())
}

/// Takes a file that was just created; `local` is a device that is known to be this machine's alone. `None` if somebody
/// took it for one of the dead, and has removed it.
///
/// # Errors
/// Those of the system, and `AlreadyExists` if somebody keeps it.
pub(crate) fn take_new(file: File, local: Option<u64>) -> io::Result<Option<OsGuardedFile>> {
    let is_taken = take_soon(&file)?;
    let stat = describe(&fstat(&file)?);
    if stat.nlink == 0 {
        return Ok(None);
    }
    let hidden = stat.mode & !((!stat.mode & 0o222) << 1);
    if hidden != stat.mode {
        set_mode(&file, hidden)?;
    }
    let is_local = local == Some(stat.dev) || is_local(file.as_fd());
    Ok(Some(OsGuardedFile {
        file: OsFile(file),
        is_certain: is_taken && is_local,
        has_mark: stat.is_guarded(),
        mode: stat.mode & !GUARDED_MODE,
        identity: (stat.dev, stat.ino),
    }))
}

/// As [`take`], of a file. What cannot be found out is left alone.
pub(crate) fn take_file(
    file: File,
    named: impl FnOnce() -> io::Result<Stat>,
) -> io::Result<Option<Guard>> {
    let is_file = describe(&fstat(&file)?).kind == FileKind::File;
    if !is_file || !is_local(file.as_fd()) {
        return Ok(None);
    }
    take(file, named).or(Ok(None))
}

/// Returns whether somebody has a file for certain.
pub(crate) fn is_taken(file: &File) -> bool {
    is_local(file.as_fd()) && matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
    use std::path::Path;

    use super::*;

    fn create(path: &Path, mode: u32) -> (File, u64) {
        let mut options = File::options();
        let file = options.write(true).create_new(true).mode(mode).open(path);
        let file = file.unwrap();
        let device = file.metadata().unwrap().dev();
        (file, device)
    }

    fn is_there_already<T>(taken: io::Result<T>) -> bool {
        taken.is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists)
    }

    /// What others can do between the creation of a file and its being taken.
    #[test]
    fn a_new_file_is_taken_only_as_it_was_created() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let (file, device) = create(&at("sound"), 0o644 | GUARDED_MODE);
        let is_local = is_local(file.as_fd());
        let mut sound = take_new(file, Some(device)).unwrap().unwrap();
        assert!(sound.is_certain());
        // Nobody can take it who could not write it.
        for (mode, step) in [(0o1600, 0), (0o1644, 1), (0o644, 2)] {
            match step {
                0 => {}
                1 => sound.reveal().unwrap(),
                _ => sound.unguard().unwrap(),
            }
            assert_eq!(sound.stat().unwrap().mode, mode);
        }
        let (file, device) = create(&at("removed"), 0o666 | GUARDED_MODE);
        fs::remove_file(at("removed")).unwrap();
        assert!(take_new(file, Some(device)).unwrap().is_none());
        let (file, device) = create(&at("looked at"), 0o666 | GUARDED_MODE);
        let other = File::open(at("looked at")).unwrap();
        other.try_lock().unwrap();
        assert!(is_there_already(take_new(file, Some(device))));
        let (file, device) = create(&at("elsewhere"), 0o666 | GUARDED_MODE);
        let elsewhere = take_new(file, Some(device + 1)).unwrap().unwrap();
        assert_eq!(elsewhere.is_certain(), is_local);
    }

    /// What others can do between the moment in which a file is opened and that in which it is taken.
    #[test]
    fn a_file_is_taken_only_by_the_name_that_it_has() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let stat = |name: &str| Ok(describe(&fstat(File::open(at(name))?)?));
        let (first, _) = create(&at("first"), 0o666 | GUARDED_MODE);
        create(&at("second"), 0o666 | GUARDED_MODE);
        let free = take_file(File::open(at("first")).unwrap(), || stat("first")).unwrap();
        assert_eq!(free.is_some(), is_local(first.as_fd()));
        drop(free);
        for named in ["second", "none"] {
            let opened = File::open(at("first")).unwrap();
            assert!(
                take_file(opened, || stat(named)).unwrap().is_none(),
                "{named}"
            );
        }
    }
}
