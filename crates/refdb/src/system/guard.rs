//! Files and directories that a process has for itself, as the real system gives them.
//!
//! What says so is a lock of the kernel's (`flock`), which ends with the process, however it ends.

use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::fs::{Mode, fchmod, fstat};
use rustix::io::Errno;

use super::os::{OsFile, describe};
use super::{GUARDED_MODE, Guard, Stat, WriteFile};

/// A file that this process has for itself as long as it is open.
pub(super) struct GuardedFile {
    file: OsFile,
    /// The permission bits that it is to have in the end.
    mode: Mode,
}

impl Write for GuardedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl WriteFile for GuardedFile {
    fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }

    fn set_modified(&mut self, at: Duration) -> io::Result<()> {
        self.file.set_modified(at)
    }

    fn unguard(&mut self) -> io::Result<()> {
        Ok(fchmod(&self.file.0, self.mode)?)
    }
}

/// Takes a file or directory, unless somebody has it. `named` describes what has its name by now.
pub(super) fn take(
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

/// Takes a file that was just created, with the mark of such files. `None` if that cannot be, or if
/// it is not on the device on which it should be.
pub(super) fn take_new(file: File, device: u64) -> io::Result<Option<GuardedFile>> {
    match file.try_lock() {
        Ok(()) => {}
        // Somebody looks whether it is one of the dead, and may remove it.
        Err(TryLockError::WouldBlock) => return Err(Errno::EXIST.into()),
        Err(TryLockError::Error(_)) => return Ok(None),
    }
    let Ok(stat) = fstat(&file) else {
        return Ok(None);
    };
    if stat.st_nlink == 0 {
        // Somebody has removed it.
        return Err(Errno::EXIST.into());
    }
    let stat = describe(&stat);
    let is_sound = stat.dev == device && stat.is_guarded();
    Ok(is_sound.then(|| GuardedFile {
        file: OsFile(file),
        mode: Mode::from_raw_mode(stat.mode & !GUARDED_MODE),
    }))
}

/// As [`take`], of a file with the mark of such files. What cannot be found out is left alone.
pub(super) fn take_file(
    file: File,
    named: impl FnOnce() -> io::Result<Stat>,
) -> io::Result<Option<Guard>> {
    if !describe(&fstat(&file)?).is_guarded() || !is_local(file.as_fd()) {
        return Ok(None);
    }
    take(file, named).or(Ok(None))
}

/// Returns which process has a file for itself, by the content of `/proc/locks`. Some file systems
/// are told there by another device: of these nothing is known.
pub(super) fn owner(locks: &[u8], file: &Stat) -> Option<u32> {
    let (major, minor) = (rustix::fs::major(file.dev), rustix::fs::minor(file.dev));
    let file = format!("{major:02x}:{minor:02x}:{}", file.ino);
    // "7: FLOCK  ADVISORY  WRITE 4242 fe:00:1234 0 EOF"
    let mut owners = locks.split(|&byte| byte == b'\n').filter_map(|line| {
        let mut fields = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
        let is_flock = fields.nth(1) == Some("FLOCK");
        let (pid, of) = (fields.nth(2)?, fields.next()?);
        (is_flock && of == file).then(|| pid.parse().ok())?
    });
    // Of a process in another namespace the kernel gives no number.
    owners.find(|&pid| pid != 0)
}

/// Returns whether a file is on a file system of this machine alone, as far as that is certain: there,
/// a lock (`flock`) of one process is one for all that can see the file. File systems that are put
/// together of others are not among these, as one file may have two faces there.
#[cfg(target_os = "linux")]
pub(super) fn is_local(file: BorrowedFd<'_>) -> bool {
    // As statfs(2) tells them: ext2 to ext4, XFS, Btrfs, tmpfs, F2FS, ZFS, bcachefs.
    const LOCAL: [u32; 7] = [
        0xef53,
        0x5846_5342,
        0x9123_683e,
        0x0102_1994,
        0xf2f5_2010,
        0x2fc1_2fc1,
        0xca45_1a4e,
    ];
    let Ok(found) = rustix::fs::fstatfs(file) else {
        return false;
    };
    u32::try_from(found.f_type).is_ok_and(|magic| LOCAL.contains(&magic))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn is_local(_file: BorrowedFd<'_>) -> bool {
    false
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
        let (file, device) = create(&at("sound"), 0o666 | GUARDED_MODE);
        assert!(take_new(file, device).unwrap().is_some());
        let (file, device) = create(&at("removed"), 0o666 | GUARDED_MODE);
        fs::remove_file(at("removed")).unwrap();
        assert!(is_there_already(take_new(file, device)));
        let (file, device) = create(&at("looked at"), 0o666 | GUARDED_MODE);
        let other = File::open(at("looked at")).unwrap();
        other.try_lock().unwrap();
        assert!(is_there_already(take_new(file, device)));
        let (file, device) = create(&at("elsewhere"), 0o666 | GUARDED_MODE);
        assert!(take_new(file, device + 1).unwrap().is_none());
        let (file, device) = create(&at("without mark"), 0o666);
        assert!(take_new(file, device).unwrap().is_none());
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

    #[test]
    fn the_kernel_tells_who_has_a_file() {
        let locks = b"1: POSIX  ADVISORY  WRITE 11 fe:00:77 0 EOF\n\
            2: FLOCK  ADVISORY  WRITE 22 fe:00:78 0 EOF\n\
            3: FLOCK  ADVISORY  WRITE 0 fe:00:79 0 EOF\n\
            3: -> FLOCK  ADVISORY  WRITE 33 fe:00:77 0 EOF\n\
            4: FLOCK  ADVISORY  WRITE 44 fe:00:77 0 EOF\n";
        let dir = tempfile::tempdir().unwrap();
        let mut stat = describe(&fstat(File::open(dir.path()).unwrap()).unwrap());
        stat.dev = rustix::fs::makedev(0xfe, 0);
        let mut owner_of = |ino| {
            stat.ino = ino;
            owner(locks, &stat)
        };
        assert_eq!(owner_of(77), Some(44));
        assert_eq!(owner_of(78), Some(22));
        assert_eq!(owner_of(79), None, "in another namespace");
        assert_eq!(owner_of(80), None);
    }
}
