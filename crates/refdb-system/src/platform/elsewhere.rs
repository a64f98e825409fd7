//! macOS, and what other systems have in common with it.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, RawMode};
use rustix::io::Errno;

use super::ProcessStat;
use crate::{Stat, System};

/// Nothing: the sticky bit is taken from files that are created, and a user who sets it is refused on
/// some systems.
pub(crate) const GUARDED_MODE: u32 = 0;

/// What a directory is opened for that is only gone through.
pub(crate) const THROUGH: OFlags = OFlags::DIRECTORY;

/// HFS+ dates changes by the second, FAT by two.
pub(crate) const TICK_MAX: Duration = Duration::from_millis(2050);

/// Returns the time of a clock that is about that by which files are dated.
pub(crate) fn file_clock() -> Duration {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap_or_default()
}

/// Returns whether a file is dated by exactly that clock.
pub(crate) fn has_dates_of_this_kernel(_file: BorrowedFd<'_>) -> bool {
    false
}

/// Whether [`sync_file_system`] keeps what it promises.
pub(crate) const SYNCS_AT_ONCE: bool = false;

/// Returns permission bits as the system takes them.
pub(crate) fn mode(bits: u32) -> Mode {
    Mode::from_raw_mode(RawMode::try_from(bits & 0o7777).unwrap_or(0o600))
}

/// Makes the content of a file durable, or the names in a directory.
///
/// On macOS `fsync` hands it to the disk, which may keep it in its cache; the library calls
/// `F_FULLFSYNC` there, which empties that. File systems that know no such call, those of other
/// machines above all, have `fsync` alone.
pub(crate) fn sync(file: &File) -> io::Result<()> {
    let synced = file.sync_all();
    let unknown = [Errno::NOTSUP, Errno::NOTTY, Errno::INVAL].map(Errno::raw_os_error);
    match synced {
        Err(error)
            if error
                .raw_os_error()
                .is_some_and(|code| unknown.contains(&code)) =>
        {
            Ok(rustix::fs::fsync(file)?)
        }
        synced => synced,
    }
}

/// Begins to make everything durable that was written, and makes this file so: what is not asked for file
/// by file may be lost all the same when power fails soon after.
pub(crate) fn sync_file_system(file: &File) -> io::Result<()> {
    rustix::fs::sync();
    sync(file)
}

/// Returns why a file cannot be replaced: that is not looked at here.
pub(crate) fn may_replace(_dir: BorrowedFd<'_>, _path: &Path) -> Option<Result<(), Errno>> {
    None
}

/// Lets two names change places.
///
/// # Errors
/// `Unsupported` where the file system cannot do that.
#[cfg(target_vendor = "apple")]
pub(crate) fn exchange(
    one: (BorrowedFd<'_>, &Path),
    other: (BorrowedFd<'_>, &Path),
) -> io::Result<()> {
    use rustix::fs::{RenameFlags, renameat_with};
    match renameat_with(one.0, one.1, other.0, other.1, RenameFlags::EXCHANGE) {
        Err(Errno::NOTSUP | Errno::INVAL | Errno::NOSYS) => Err(io::ErrorKind::Unsupported.into()),
        done => Ok(done?),
    }
}

/// Lets two names change places: no such call is known here.
///
/// # Errors
/// `Unsupported`.
#[cfg(not(target_vendor = "apple"))]
pub(crate) fn exchange(
    _one: (BorrowedFd<'_>, &Path),
    _other: (BorrowedFd<'_>, &Path),
) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// There is no call for it: the caller goes step by step.
pub(crate) fn open_beneath(
    _root: &OwnedFd,
    _path: &Path,
    _flags: OFlags,
) -> Option<io::Result<OwnedFd>> {
    None
}

/// Returns a random number: the library takes the keys of its hashes from the system's generator.
#[allow(
    clippy::unnecessary_wraps,
    reason = "another system may have no such generator"
)]
pub(crate) fn random() -> Option<u64> {
    Some(RandomState::new().hash_one(std::process::id()))
}

/// Returns what changes whenever the machine is booted: that is not known here.
pub(crate) fn boot(_system: &dyn System) -> String {
    String::new()
}

/// Finds out about a process: no more is known than that there is one.
pub(crate) fn process(_system: &dyn System, _pid: i32) -> Option<ProcessStat> {
    None
}

/// Returns which process has a file for itself: the system does not tell.
pub(crate) fn lock_owner(_system: &dyn System, _file: &Stat) -> Option<u32> {
    None
}

/// Returns whether a file is on a file system of this machine alone, as far as that is certain.
#[cfg(target_vendor = "apple")]
pub(crate) fn is_local(file: BorrowedFd<'_>) -> bool {
    const LOCAL: [&[u8]; 2] = [b"apfs", b"hfs"];
    let Ok(found) = rustix::fs::fstatfs(file) else {
        return false;
    };
    let name = found.f_fstypename.iter().map(|letter| letter.to_ne_bytes());
    let name: Vec<u8> = name.flatten().take_while(|&letter| letter != 0).collect();
    LOCAL.contains(&name.as_slice())
}

/// Returns whether a file is on a file system of this machine alone: nothing is certain here.
#[cfg(not(target_vendor = "apple"))]
pub(crate) fn is_local(_file: BorrowedFd<'_>) -> bool {
    false
}

/// Returns whether the file system of a directory gives its files numbers of its own: none is known here that lies over
/// others.
pub(crate) fn keeps_numbers(_dir: BorrowedFd<'_>) -> bool {
    true
}

/// Returns on how many processors this process may run.
pub(crate) fn processor_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Returns what a second thread calls first. Nothing needs to be done here.
pub(crate) fn stand_apart() -> impl FnOnce() + Copy + Send {
    || {}
}
