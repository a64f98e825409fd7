//! Linux.

use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RenameFlags, ResolveFlags, StatxAttributes, StatxFlags,
    renameat_with, statx,
};
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use super::ProcessStat;
use crate::{Stat, System};

/// The sticky bit, which means nothing for files, and which no program gives to those that it creates.
pub(crate) const GUARDED_MODE: u32 = 0o1000;

/// What a directory is opened for that is only gone through.
pub(crate) const THROUGH: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);

/// The dates of files are those of a clock that ticks every few milliseconds: what changed in the same
/// tick has the same date.
pub(crate) const TICK_MAX: Duration = Duration::from_millis(50);

/// Returns the time of the clock by which the kernel dates files.
pub(crate) fn file_clock() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    let (seconds, nanos) = (u64::try_from(now.tv_sec), u32::try_from(now.tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0))
}

/// Returns whether a file is dated by [`file_clock`] and no other: not by that of a server or of a host.
pub(crate) fn has_dates_of_this_kernel(file: BorrowedFd<'_>) -> bool {
    kind_of_file_system(file).is_some_and(|magic| OWN.contains(&magic))
}

/// Whether [`sync_file_system`] keeps what it promises.
pub(crate) const SYNCS_AT_ONCE: bool = true;

/// Returns permission bits as the system takes them.
pub(crate) fn mode(bits: u32) -> Mode {
    Mode::from_raw_mode(bits)
}

/// Makes the content of a file durable, or the names in a directory.
pub(crate) fn sync(file: &File) -> io::Result<()> {
    file.sync_all()
}

/// Makes everything durable that was written to the file system of a file.
pub(crate) fn sync_file_system(file: &File) -> io::Result<()> {
    Ok(rustix::fs::syncfs(file)?)
}

/// Returns why a file cannot be replaced, or the files in a directory: nobody may change it, or only add to it
/// (`chattr`), or the file is mounted there, as containers do. `None` where that is not told.
pub(crate) fn may_replace(dir: BorrowedFd<'_>, path: &Path) -> Option<Result<(), Errno>> {
    let stat = statx(dir, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE).ok()?;
    let has = |attributes| stat.stx_attributes.intersects(attributes);
    let is_dir = FileType::from_raw_mode(stat.stx_mode.into()) == FileType::Directory;
    // A directory that is mounted keeps nobody from the files in it.
    if has(StatxAttributes::MOUNT_ROOT) && !is_dir {
        return Some(Err(Errno::BUSY));
    }
    let fixed = StatxAttributes::IMMUTABLE | StatxAttributes::APPEND;
    let is_told = stat.stx_attributes_mask.contains(fixed);
    is_told.then(|| if has(fixed) { Err(Errno::PERM) } else { Ok(()) })
}

/// Lets two names change places.
///
/// # Errors
/// `Unsupported` where the file system cannot do that.
pub(crate) fn exchange(
    one: (BorrowedFd<'_>, &Path),
    other: (BorrowedFd<'_>, &Path),
) -> io::Result<()> {
    match renameat_with(one.0, one.1, other.0, other.1, RenameFlags::EXCHANGE) {
        // What a file system says that knows no such thing.
        Err(Errno::INVAL | Errno::NOSYS) => Err(io::ErrorKind::Unsupported.into()),
        done => Ok(done?),
    }
}

/// Opens what is below a directory, and follows no link on the way; `None` where the system cannot do
/// that at once: an old kernel, or a sandbox that knows no such call.
pub(crate) fn open_beneath(
    root: &OwnedFd,
    path: &Path,
    flags: OFlags,
) -> Option<io::Result<OwnedFd>> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(root, path, flags, Mode::empty(), resolve) {
        Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) => None,
        opened => Some(opened.map_err(io::Error::from)),
    }
}

/// Returns a random number of the kernel's generator, if it has one.
pub(crate) fn random() -> Option<u64> {
    let mut bytes = [0; 8];
    let flags = rustix::rand::GetRandomFlags::empty();
    let count = rustix::rand::getrandom(&mut bytes, flags);
    (count == Ok(bytes.len())).then(|| u64::from_ne_bytes(bytes))
}

/// Returns what changes whenever the machine is booted; empty if that is not known.
pub(crate) fn boot(system: &dyn System) -> String {
    let boot = system.read(Path::new("/proc/sys/kernel/random/boot_id"));
    let boot = String::from_utf8(boot.unwrap_or_default());
    boot.unwrap_or_default().trim_end().to_owned()
}

/// Finds out about a process.
pub(crate) fn process(system: &dyn System, pid: i32) -> Option<ProcessStat> {
    let stat = system.read(Path::new(&format!("/proc/{pid}/stat")));
    stat.ok().and_then(|stat| parse_stat(&stat))
}

/// Reads the line: a number, a name in brackets that may hold anything, a letter, and numbers.
fn parse_stat(line: &[u8]) -> Option<ProcessStat> {
    let close = line.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(line.get(close + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    // The 20th field of the line is the number of threads, the 22nd the start.
    let threads: u64 = fields.nth(16)?.parse().ok()?;
    let started = fields.nth(1)?.parse().ok()?;
    // The first thread can end before the others do.
    let ended = matches!(state, "Z" | "X" | "x") && threads <= 1;
    Some(ProcessStat { started, ended })
}

/// Returns which process has a file for itself, if that can be found out.
pub(crate) fn lock_owner(system: &dyn System, file: &Stat) -> Option<u32> {
    owner(&system.read(Path::new("/proc/locks")).ok()?, file)
}

/// Returns which process has a file for itself, by the content of `/proc/locks`. Some file systems
/// are told there by another device: of these nothing is known.
fn owner(locks: &[u8], file: &Stat) -> Option<u32> {
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
pub(crate) fn is_local(file: BorrowedFd<'_>) -> bool {
    // Besides: overlayfs, FAT, exFAT.
    const OTHERS: [u32; 3] = [0x794c_7630, 0x4d44, 0x2011_bab0];
    kind_of_file_system(file).is_some_and(|magic| OWN.contains(&magic) || OTHERS.contains(&magic))
}

/// File systems of this kernel, as statfs(2) tells them: ext2 to ext4, XFS, Btrfs, tmpfs, F2FS, ZFS, bcachefs.
const OWN: [u32; 7] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0x0102_1994,
    0xf2f5_2010,
    0x2fc1_2fc1,
    0xca45_1a4e,
];

fn kind_of_file_system(file: BorrowedFd<'_>) -> Option<u32> {
    u32::try_from(rustix::fs::fstatfs(file).ok()?.f_type).ok()
}

/// Returns whether the file system of a directory gives its files numbers of its own. What lies over others is on no
/// device with the number of a driver, as are some that lie over none.
pub(crate) fn keeps_numbers(dir: BorrowedFd<'_>) -> bool {
    let is_own = || kind_of_file_system(dir).is_some_and(|magic| OWN.contains(&magic));
    rustix::fs::fstat(dir).is_ok_and(|stat| rustix::fs::major(stat.st_dev) != 0) || is_own()
}

/// Returns on how many processors this process may run. How much of them a container may use is left out: that would
/// be twenty calls to the kernel, and threads that wait for their share do no harm.
pub(crate) fn processor_count() -> usize {
    let allowed = sched_getaffinity(None).map_or(1, |set| set.count());
    usize::try_from(allowed).unwrap_or(1).max(1)
}

/// Returns what a second thread calls first: see [`crate::beside_this_thread`].
pub(crate) fn stand_apart() -> impl FnOnce() + Copy + Send {
    let here = sched_getcpu();
    move || {
        let Ok(mut others) = sched_getaffinity(None) else {
            return;
        };
        if here < CpuSet::MAX_CPU && others.is_set(here) && others.count() > 1 {
            others.unset(here);
            // Where that is refused, it works all the same.
            let _ = sched_setaffinity(None, &others);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::os::describe;

    #[test]
    fn the_kernel_tells_who_has_a_file() {
        let locks = b"1: POSIX  ADVISORY  WRITE 11 fe:00:77 0 EOF\n\
            2: FLOCK  ADVISORY  WRITE 22 fe:00:78 0 EOF\n\
            3: FLOCK  ADVISORY  WRITE 0 fe:00:79 0 EOF\n\
            3: -> FLOCK  ADVISORY  WRITE 33 fe:00:77 0 EOF\n\
            4: FLOCK  ADVISORY  WRITE 44 fe:00:77 0 EOF\n";
        let dir = tempfile::tempdir().unwrap();
        let mut stat = describe(&rustix::fs::fstat(File::open(dir.path()).unwrap()).unwrap());
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

    #[test]
    fn the_name_of_a_program_does_not_confuse() {
        let tail = "1 1 1 0 -1 4194560 99 0 0 0 0 0 0 0 20 0 7 0 1166 0";
        let stat = |state: &str| parse_stat(format!("42 (a) b (c)) {state} {tail}").as_bytes());
        let running = stat("S").unwrap();
        assert_eq!((running.started, running.ended), (1166, false));
        assert!(!stat("Z").unwrap().ended, "others of its threads run");
        let last = tail.replace(" 7 0 1166", " 1 0 1166");
        assert!(
            parse_stat(format!("42 (x) Z {last}").as_bytes())
                .unwrap()
                .ended
        );
        assert!(parse_stat(b"42 (x").is_none());
    }

    #[test]
    fn a_second_thread_keeps_off_the_processor_of_the_first() {
        let before = sched_getaffinity(None).unwrap();
        let stand = stand_apart();
        let second = std::thread::spawn(move || {
            stand();
            sched_getaffinity(None).unwrap()
        });
        let second = second.join().unwrap();
        // It stays where there is no other.
        assert_eq!(second.count(), (before.count() - 1).max(1));
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
