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
use super::{FileKind, GUARDED_MODE, Guard, GuardedFile, Stat, WriteFile};

/// A file that this process has for itself as long as it is open.
pub(super) struct OsGuardedFile {
    file: OsFile,
    is_certain: bool,
    /// The permission bits that it is to have in the end.
    mode: u32,
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

    fn reveal(&mut self) -> io::Result<()> {
        if self.mode & 0o044 == 0 {
            return Ok(());
        }
        Ok(fchmod(
            &self.file.0,
            Mode::from_raw_mode(self.mode | GUARDED_MODE),
        )?)
    }

    fn unguard(&mut self) -> io::Result<()> {
        Ok(fchmod(&self.file.0, Mode::from_raw_mode(self.mode))?)
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

/// Takes a file that was just created; `local` is a device that is known to be this machine's alone.
pub(super) fn take_new(file: File, local: Option<u64>) -> io::Result<OsGuardedFile> {
    let is_taken = match file.try_lock() {
        Ok(()) => true,
        // Somebody looks whether it is one of the dead, and may remove it.
        Err(TryLockError::WouldBlock) => return Err(Errno::EXIST.into()),
        // A file system without such locks.
        Err(TryLockError::Error(_)) => false,
    };
    let stat = describe(&fstat(&file)?);
    if stat.nlink == 0 {
        // Somebody has removed it.
        return Err(Errno::EXIST.into());
    }
    let hidden = stat.mode & !((!stat.mode & 0o222) << 1);
    if hidden != stat.mode {
        fchmod(&file, Mode::from_raw_mode(hidden))?;
    }
    let is_local = local == Some(stat.dev) || is_local(file.as_fd());
    Ok(OsGuardedFile {
        file: OsFile(file),
        is_certain: is_taken && is_local,
        mode: stat.mode & !GUARDED_MODE,
    })
}

/// As [`take`], of a file. What cannot be found out is left alone.
pub(super) fn take_file(
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
pub(super) fn is_taken(file: &File) -> bool {
    is_local(file.as_fd()) && matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
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
/// a lock (`flock`) of one process is one for all that can see the file. Of file systems that are put
/// together of others only overlayfs is among these: whoever writes to it writes to a layer that, by
/// the kernel's rules, nobody else uses meanwhile.
#[cfg(target_os = "linux")]
pub(super) fn is_local(file: BorrowedFd<'_>) -> bool {
    // As statfs(2) tells them: ext2 to ext4, XFS, Btrfs, tmpfs, F2FS, ZFS, bcachefs, overlayfs, FAT,
    // exFAT.
    const LOCAL: [u32; 10] = [
        0xef53,
        0x5846_5342,
        0x9123_683e,
        0x0102_1994,
        0xf2f5_2010,
        0x2fc1_2fc1,
        0xca45_1a4e,
        0x794c_7630,
        0x4d44,
        0x2011_bab0,
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
        let (file, device) = create(&at("sound"), 0o644 | GUARDED_MODE);
        let is_local = is_local(file.as_fd());
        let mut sound = take_new(file, Some(device)).unwrap();
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
        assert!(is_there_already(take_new(file, Some(device))));
        let (file, device) = create(&at("looked at"), 0o666 | GUARDED_MODE);
        let other = File::open(at("looked at")).unwrap();
        other.try_lock().unwrap();
        assert!(is_there_already(take_new(file, Some(device))));
        let (file, device) = create(&at("elsewhere"), 0o666 | GUARDED_MODE);
        let elsewhere = take_new(file, Some(device + 1)).unwrap();
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
