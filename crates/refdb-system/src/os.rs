//! The real system.

mod narrow;

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{Access, AtFlags, CWD, Dir, FileType, OFlags, fstat, statat};
use rustix::io::{Errno, retry_on_intr};

use super::beneath::Beneath;
use super::dates;
use super::{
    Bytes, DirEntry, FileKind, GUARDED_MODE, Guard, GuardedFile, Machine, ProcessState, ReadFile,
    Scan, Stat, System, WriteFile, bytes_to_path, guard, map, platform, process,
};

/// How often this process has waited until something was durable.
static SYNCS: AtomicU64 = AtomicU64::new(0);

/// Returns how often this process has waited until the content of a file, the names in a directory or a
/// file system was durable.
pub fn syncs() -> u64 {
    SYNCS.load(Ordering::Relaxed)
}

/// The operating system's files, clock and random numbers.
#[derive(Clone, Debug, Default)]
pub struct OsSystem {
    near: Option<Near>,
    /// A second directory, for what concerns two paths.
    other: Option<Near>,
    /// Whether no link is followed, not even one that a path ends with.
    strict: bool,
    /// Whether every step of a way is gone by itself, as on kernels that cannot do it at once.
    step_by_step: bool,
}

/// A directory that stays open, so that the way to it is not looked for again and again.
#[derive(Clone, Debug)]
struct Near {
    path: PathBuf,
    dir: Arc<OwnedFd>,
    /// The device, if this machine alone has it; found out when it is asked for first.
    local: OnceLock<Option<u64>>,
}

impl Near {
    fn local_device(&self) -> Option<u64> {
        *self.local.get_or_init(|| {
            let stat = describe(&fstat(&self.dir).ok()?);
            platform::is_local(self.dir.as_fd()).then_some(stat.dev)
        })
    }
}

impl OsSystem {
    /// Returns the real system.
    pub fn new() -> Self {
        OsSystem::default()
    }

    /// Returns the real system as kernels have it that cannot go a whole way below a directory at once: what
    /// leads out is to be found there as well.
    pub fn step_by_step() -> Self {
        OsSystem {
            step_by_step: true,
            ..OsSystem::default()
        }
    }

    /// Returns from where a path is followed, and what of it then remains.
    fn from<'p>(&self, path: &'p Path) -> (BorrowedFd<'_>, &'p Path) {
        let below = |near: &'_ Near| {
            let rest = path.as_os_str().as_bytes();
            let rest = rest.strip_prefix(near.path.as_os_str().as_bytes())?;
            // The directory that is held, whatever has its place by now: another repository, perhaps. (Nobody removes
            // it, or gives it another name.)
            if rest.is_empty() {
                return Some(Path::new("."));
            }
            let rest = rest.strip_prefix(b"/")?;
            if self.strict && rest.contains(&b'/') {
                // It is below the directory of the other path, and the way there may be a link by now.
                return None;
            }
            // A second slash would make it a path from the root.
            (!rest.is_empty() && !rest.starts_with(b"/")).then(|| bytes_to_path(rest))
        };
        let mut near = self.near.iter().chain(&self.other);
        near.find_map(|near| Some((near.dir.as_fd(), below(near)?)))
            .unwrap_or((CWD, path))
    }

    /// Opens a file; `mode` is what a new one gets.
    fn open_as(&self, path: &Path, flags: OFlags, mode: u32) -> io::Result<File> {
        let (dir, path) = self.from(path);
        let mut flags = flags | OFlags::CLOEXEC;
        if self.strict {
            flags |= OFlags::NOFOLLOW;
        }
        let open = || rustix::fs::openat(dir, path, flags, platform::mode(mode));
        Ok(File::from(retry_on_intr(open)?))
    }

    fn open_to_guard(&self, path: &Path) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW;
        self.open_as(path, flags, 0)
    }

    /// Opens a file to read it. A FIFO would be waited for until somebody writes to it, so that this
    /// asks for what is there now; of a file that is all there is.
    fn open_now(&self, path: &Path) -> io::Result<File> {
        self.open_as(path, OFlags::RDONLY | OFlags::NONBLOCK, 0)
    }

    fn stat_at(&self, path: &Path, mut flags: AtFlags) -> io::Result<Stat> {
        if self.strict {
            flags |= AtFlags::SYMLINK_NOFOLLOW;
        }
        let (dir, path) = self.from(path);
        Ok(describe(&statat(dir, path, flags)?))
    }
}

pub(crate) struct OsFile(pub(crate) File);

impl Write for OsFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl WriteFile for OsFile {
    fn sync(&mut self) -> io::Result<()> {
        SYNCS.fetch_add(1, Ordering::Relaxed);
        platform::sync(&self.0)
    }

    fn set_modified(&mut self, at: Duration) -> io::Result<()> {
        let at = UNIX_EPOCH.checked_add(at);
        self.0.set_modified(at.ok_or(io::ErrorKind::InvalidInput)?)
    }
}

impl ReadFile for OsFile {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        fill(buffer, |done, rest| {
            FileExt::read_at(&self.0, rest, offset + done as u64)
        })
    }

    fn stat(&self) -> io::Result<Stat> {
        regular(&self.0)
    }
}

/// Describes an open file, or refuses what is none: a FIFO looks empty, and a device has no end.
/// Reading a folder has an error of its own.
fn regular(file: &File) -> io::Result<Stat> {
    let stat = describe(&rustix::fs::fstat(file)?);
    match stat.kind {
        FileKind::Other => Err(io::Error::other("not a regular file")),
        _ => Ok(stat),
    }
}

fn kind_of(kind: FileType) -> FileKind {
    match kind {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        _ => FileKind::Other,
    }
}

#[allow(
    clippy::useless_conversion,
    clippy::unnecessary_fallible_conversions,
    reason = "the types of the fields differ between systems"
)]
pub(crate) fn describe(stat: &rustix::fs::Stat) -> Stat {
    fn nanoseconds(seconds: impl Into<i128>, nanos: impl Into<i128>) -> i128 {
        seconds.into() * 1_000_000_000 + nanos.into()
    }
    Stat {
        kind: kind_of(FileType::from_raw_mode(stat.st_mode)),
        len: u64::try_from(stat.st_size).unwrap_or(0),
        dev: u64::try_from(stat.st_dev).unwrap_or(0),
        ino: stat.st_ino,
        mtime_ns: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
        ctime_ns: nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
        uid: stat.st_uid,
        gid: stat.st_gid,
        mode: u32::from(stat.st_mode) & 0o7777,
        nlink: u64::try_from(stat.st_nlink).unwrap_or(0),
    }
}

impl System for OsSystem {
    fn read_stream(&self, path: &Path) -> io::Result<Vec<u8>> {
        read_until_end(File::open(path)?, STREAM_MAX)
    }

    fn near(&self, dir: &Path) -> Option<Arc<dyn System>> {
        let file = self.open_as(dir, platform::THROUGH, 0).ok()?;
        let near = Near {
            path: dir.to_owned(),
            dir: Arc::new(file.into()),
            local: OnceLock::new(),
        };
        Some(Arc::new(OsSystem {
            near: Some(near),
            ..self.clone()
        }))
    }

    fn beneath(&self, root: &Path) -> io::Result<Arc<dyn System>> {
        Ok(Arc::new(Beneath::new(self, root)?))
    }

    fn read_at_most(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        let file = self.open_now(path)?;
        read_start(&file, limit, || Ok(regular(&file)?.len))
    }

    fn map(&self, path: &Path) -> io::Result<Bytes> {
        let file = self.open_now(path)?;
        let len = regular(&file)?.len;
        map::content(&file, len)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadFile>> {
        Ok(Box::new(OsFile(self.open_now(path)?)))
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.stat_at(path, AtFlags::empty())
    }

    fn lstat(&self, path: &Path) -> io::Result<Stat> {
        self.stat_at(path, AtFlags::SYMLINK_NOFOLLOW)
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        let (dir, path) = self.from(path);
        let text = rustix::fs::readlinkat(dir, path, Vec::new())?;
        Ok(bytes_to_path(text.as_bytes()).to_owned())
    }

    fn scan_dir(&self, path: &Path) -> io::Result<Scan> {
        // Some systems choose what a reading gives when the directory is opened.
        let begun = platform::file_clock();
        let file = self.open_as(path, OFlags::RDONLY | OFlags::DIRECTORY, 0)?;
        let mut dir = Dir::new(file)?;
        let before = fstat(dir.fd()?)?;
        let mut entries = Vec::new();
        while let Some(entry) = dir.read() {
            let entry = entry?;
            let name = entry.file_name();
            let kind = match entry.file_type() {
                // Some file systems do not keep it with the name.
                FileType::Unknown => match statat(dir.fd()?, name, AtFlags::SYMLINK_NOFOLLOW) {
                    // It went meanwhile.
                    Err(Errno::NOENT) => continue,
                    stat => FileType::from_raw_mode(stat?.st_mode),
                },
                kind => kind,
            };
            let name = name.to_bytes().to_vec();
            if name != b"." && name != b".." {
                let kind = kind_of(kind);
                entries.push(DirEntry { name, kind });
            }
        }
        let after = fstat(dir.fd()?)?;
        let dates = |stat: &Stat| (stat.mtime_ns, stat.ctime_ns);
        let (before, after) = (dates(&describe(&before)), dates(&describe(&after)));
        // A name that comes, goes or is given to another file dates the content of the directory.
        let changed = before != after;
        let is_exact = || dir.fd().is_ok_and(platform::has_dates_of_this_kernel);
        Ok(Scan {
            entries,
            quiet: !changed && dates::is_past(after.0.max(after.1), begun, is_exact),
            changed,
        })
    }

    fn create_new(&self, path: &Path, mode: u32) -> io::Result<Box<dyn WriteFile>> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        Ok(Box::new(OsFile(self.open_as(path, flags, mode)?)))
    }

    fn create_guarded(&self, path: &Path, mode: u32) -> io::Result<Box<dyn GuardedFile>> {
        let local = self.near.as_ref().and_then(Near::local_device);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        // Whoever sweeps here takes each new file for one of the dead until this process has it, and may remove it.
        // That is no answer to somebody who waits for nobody: there is no file then.
        for _ in 0..BEGINNINGS_MAX {
            let file = self.open_as(path, flags, mode | GUARDED_MODE)?;
            match guard::take_new(file, local) {
                Ok(Some(file)) => return Ok(Box::new(file)),
                Ok(None) => {}
                // It is somebody else's to remove by now.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(error),
                Err(error) => {
                    self.remove_file(path)?;
                    return Err(error);
                }
            }
        }
        Err(Errno::EXIST.into())
    }

    fn guard_file(&self, path: &Path) -> io::Result<Option<Guard>> {
        // What cannot be found out is left alone: the file may be anybody's.
        match self.open_to_guard(path) {
            Ok(file) => guard::take_file(file, || self.lstat(path)),
            Err(_) => Ok(None),
        }
    }

    fn is_taken(&self, path: &Path) -> bool {
        self.open_to_guard(path)
            .is_ok_and(|file| guard::is_taken(&file))
    }

    fn guard_owner(&self, path: &Path) -> Option<u32> {
        let stat = self.lstat(path).ok()?;
        platform::lock_owner(self, &stat)
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        // A FIFO would be waited for until somebody reads from it.
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NONBLOCK | OFlags::NOFOLLOW;
        let file = self.open_as(path, flags, 0);
        let file = file.map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::LOOP) => io::Error::other("it is a symbolic link, which is not followed"),
            _ => error,
        })?;
        regular(&file)?;
        Ok(Box::new(OsFile(file)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let ((from_dir, from), (to_dir, to)) = (self.from(from), self.from(to));
        Ok(rustix::fs::renameat(from_dir, from, to_dir, to)?)
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        platform::exchange(self.from(one), self.from(other))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let ((from_dir, from), (to_dir, to)) = (self.from(from), self.from(to));
        let flags = AtFlags::empty();
        Ok(rustix::fs::linkat(from_dir, from, to_dir, to, flags)?)
    }

    fn symlink(&self, text: &Path, path: &Path) -> io::Result<()> {
        let (dir, path) = self.from(path);
        Ok(rustix::fs::symlinkat(text, dir, path)?)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let (dir, path) = self.from(path);
        Ok(rustix::fs::unlinkat(dir, path, AtFlags::empty())?)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let (dir, path) = self.from(path);
        Ok(rustix::fs::mkdirat(dir, path, platform::mode(0o777))?)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let (dir, path) = self.from(path);
        Ok(rustix::fs::unlinkat(dir, path, AtFlags::REMOVEDIR)?)
    }

    fn may_write(&self, path: &Path) -> io::Result<()> {
        // The system answers for the user who started a program, who may be another one than it works for.
        if !process::is_itself() {
            return self.stat(path).map(drop);
        }
        let (dir, path) = self.from(path);
        Ok(rustix::fs::accessat(
            dir,
            path,
            Access::WRITE_OK,
            AtFlags::empty(),
        )?)
    }

    fn may_replace(&self, path: &Path) -> io::Result<()> {
        let (dir, below) = self.from(path);
        match platform::may_replace(dir, below) {
            Some(told) => Ok(told?),
            None => match self.may_write(path) {
                Err(error) if Errno::from_io_error(&error) == Some(Errno::PERM) => Err(error),
                _ => Ok(()),
            },
        }
    }

    fn longest_file(&self) -> u64 {
        process::longest_file()
    }

    fn keeps_number(&self, dir: &Path) -> io::Result<bool> {
        let file = self.open_now(dir)?;
        Ok(platform::keeps_numbers(file.as_fd()))
    }

    fn set_mode(&self, path: &Path, mode: u32) -> io::Result<()> {
        let mode = platform::mode(mode);
        if self.strict {
            let file = self.open_now(path)?;
            return Ok(rustix::fs::fchmod(&file, mode)?);
        }
        let (dir, path) = self.from(path);
        Ok(rustix::fs::chmodat(dir, path, mode, AtFlags::empty())?)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let dir = self.open_now(path)?;
        SYNCS.fetch_add(1, Ordering::Relaxed);
        platform::sync(&dir)
    }

    fn sync_file_system(&self, path: &Path) -> io::Result<()> {
        let file = self.open_now(path)?;
        SYNCS.fetch_add(1, Ordering::Relaxed);
        platform::sync_file_system(&file)
    }

    fn syncs_at_once(&self) -> bool {
        platform::SYNCS_AT_ONCE
    }

    fn now(&self) -> Duration {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
    }

    fn elapsed(&self) -> Duration {
        static BEGUN: OnceLock<Instant> = OnceLock::new();
        BEGUN.get_or_init(Instant::now).elapsed()
    }

    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }

    fn random(&self) -> u64 {
        // Without the kernel's generator the clock and the process id still differ between the writers
        // whose names must not collide.
        platform::random().unwrap_or_else(|| {
            let now = self.now();
            let moment = now.as_secs().rotate_left(32) ^ u64::from(now.subsec_nanos());
            moment ^ (u64::from(self.process_id()) << 40)
        })
    }

    fn user_id(&self) -> u32 {
        rustix::process::geteuid().as_raw()
    }

    fn process_id(&self) -> u32 {
        std::process::id()
    }

    fn machine(&self) -> Machine {
        // No process lives on when its machine is booted.
        static BOOT: OnceLock<String> = OnceLock::new();
        let names = rustix::system::uname();
        Machine {
            host: names.nodename().to_string_lossy().into_owned(),
            boot: BOOT.get_or_init(|| platform::boot(self)).clone(),
        }
    }

    fn process_state(&self, pid: u32) -> ProcessState {
        let Some(pid) = i32::try_from(pid)
            .ok()
            .and_then(rustix::process::Pid::from_raw)
        else {
            return ProcessState::Gone;
        };
        // This sees processes that /proc hides from other users.
        if rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH) {
            return ProcessState::Gone;
        }
        match platform::process(self, pid.as_raw_nonzero().get()) {
            Some(stat) if stat.ended => ProcessState::Gone,
            Some(stat) => ProcessState::Since(stat.started),
            None => ProcessState::Unknown,
        }
    }

    fn guard_dir(&self, path: &Path) -> io::Result<Option<Guard>> {
        let dir = self.open_as(path, OFlags::RDONLY, 0)?;
        guard::take(dir, || self.stat(path))
    }
}

/// Reads until the buffer is full or nothing comes any more; `read` is told how much has come.
fn fill(
    buffer: &mut [u8],
    mut read: impl FnMut(usize, &mut [u8]) -> io::Result<usize>,
) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match read(done, rest) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Reads the first `limit` bytes.
///
/// Most files read so are loose refs: one read into a small buffer beats asking for the length
/// first. A file system may give less than was asked for before the end is met, so that only what is
/// one whole line is believed to be all of a file without asking again. Of anything else `len` is
/// asked, which refuses what is no file.
fn read_start(
    mut file: impl Read,
    limit: usize,
    len: impl FnOnce() -> io::Result<u64>,
) -> io::Result<Vec<u8>> {
    let mut start = [0; 256];
    let count = loop {
        match file.read(&mut start) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A FIFO with a writer who has nothing to say.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break 0,
            count => break count?,
        }
    };
    let text = start.get(..count).unwrap_or_default();
    let line_end = text.iter().position(|&byte| byte == b'\n');
    let is_line = count > 0 && line_end == count.checked_sub(1) && count < start.len();
    let mut content = text.get(..limit).unwrap_or(text).to_vec();
    if !is_line {
        let len = len()?;
        if len > READ_MAX && limit == usize::MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        // Growing would take twice as much.
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(limit);
        content.reserve_exact(len.saturating_sub(content.len()).min(RESERVED_MAX));
    }
    if count > 0 && !is_line && limit > count {
        let rest = u64::try_from(limit - count).unwrap_or(u64::MAX);
        file.take(rest).read_to_end(&mut content)?;
    }
    Ok(content)
}

/// Reads all that comes, and refuses what is longer than `max` bytes: nobody asks how long it is
/// before.
fn read_until_end(stream: impl Read, max: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    stream.take(max + 1).read_to_end(&mut content)?;
    if content.len() as u64 > max {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(content)
}

/// So often a file is created for this process alone that others remove meanwhile.
const BEGINNINGS_MAX: u32 = 100;

/// A file that is longer than this is not read whole: no reflog of a few million entries is as long,
/// but a file with holes may say that it is.
const READ_MAX: u64 = 512 << 20;
/// For so many bytes there is always room.
const RESERVED_MAX: usize = 512 << 20;

/// What need not be a file is not read any further: a device has no end.
const STREAM_MAX: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::OpenOptionsExt;
    use std::sync::atomic::{AtomicBool, AtomicU64};

    use super::*;

    /// Somebody takes each file at once that nobody has yet, and removes it as one of the dead.
    #[test]
    fn a_new_file_that_is_taken_for_one_of_the_dead_is_created_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.lock");
        let (system, is_done) = (OsSystem::new(), AtomicBool::new(false));
        let removed = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let system = OsSystem::new();
                while !is_done.load(Ordering::Relaxed) {
                    if let Ok(Some(_guard)) = system.guard_file(&path) {
                        fs::remove_file(&path).unwrap();
                        removed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
            // On a busy machine it takes longer until the other thread is ever too fast.
            let created = (0..2_000_000)
                .take_while(|turn| *turn < 20_000 || removed.load(Ordering::Relaxed) == 0)
                .try_for_each(|_| {
                    let file = system.create_guarded(&path, 0o666)?;
                    fs::remove_file(&path)?;
                    drop(file);
                    Ok::<(), io::Error>(())
                });
            is_done.store(true, Ordering::Relaxed);
            created.unwrap();
        });
        assert!(removed.into_inner() > 0, "nobody was ever too fast");
    }

    /// Others work in bursts, so that readings begin while nothing happens, and end when something does.
    #[test]
    fn a_quiet_reading_has_every_name_that_was_there_all_the_time() {
        // So many that the kernel gives them in several parts.
        let names: Vec<String> = (0..100)
            .map(|at| format!("a name of some length {at}"))
            .collect();
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in &names {
            fs::write(at(name), "").unwrap();
        }
        let is_done = AtomicBool::new(false);
        let system = OsSystem::new();
        let (mut quiet, mut missed) = (0, Vec::new());
        std::thread::scope(|scope| {
            for own in ["x", "y"] {
                let (at, names, is_done) = (&at, &names, &is_done);
                scope.spawn(move || {
                    for turn in 0_u64.. {
                        for name in names.iter().cycle().take(500) {
                            fs::write(at(own), own).unwrap();
                            fs::rename(at(own), at(name)).unwrap();
                        }
                        if is_done.load(Ordering::Relaxed) {
                            return;
                        }
                        std::thread::sleep(Duration::from_micros(turn * 977 % 7000));
                    }
                });
            }
            for _ in 0..10_000 {
                let scan = system.scan_dir(dir.path()).unwrap();
                let found = scan.entries.iter().filter(|it| it.name.starts_with(b"a "));
                let found = found.count();
                quiet += usize::from(scan.quiet);
                if scan.quiet && found != names.len() {
                    missed.push(found);
                }
            }
            is_done.store(true, Ordering::Relaxed);
        });
        assert_eq!(missed, [0; 0]);
        // Elsewhere the directory is too young for one all the time.
        let folder = File::open(dir.path()).unwrap();
        assert!(quiet > 0 || !platform::has_dates_of_this_kernel(folder.as_fd()));
    }

    #[test]
    fn a_directory_that_is_held_is_the_same_when_another_has_its_place() {
        let temp = tempfile::tempdir().unwrap();
        let (base, away) = (temp.path().join("base"), temp.path().join("away"));
        let far = OsSystem::new();
        far.create_dir(&base).unwrap();
        let near = far.near(&base).unwrap();
        let held = near.stat(&base).unwrap();
        far.rename(&base, &away).unwrap();
        assert_eq!(near.stat(&base).unwrap().ino, held.ino);
        near.sync_dir(&base).unwrap();
        far.create_dir(&base).unwrap();
        drop(far.create_new(&base.join("other"), 0o600).unwrap());
        assert_eq!(near.stat(&base).unwrap().ino, held.ino);
        assert!(near.read_dir(&base).unwrap().is_empty());
    }

    #[test]
    fn near_a_directory_all_is_as_from_afar() {
        let temp = tempfile::tempdir().unwrap();
        let base = temp.path().join("base");
        fs::create_dir(&base).unwrap();
        let far = OsSystem::new();
        let near = far.near(&base).unwrap();
        let at = |name: &str| base.join(name);
        near.create_dir(&at("dir")).unwrap();
        near.create_new(&at("dir/a"), 0o600)
            .unwrap()
            .write_all(b"one")
            .unwrap();
        near.append(&at("dir/a")).unwrap().write_all(b"!").unwrap();
        near.hard_link(&at("dir/a"), &at("b")).unwrap();
        near.symlink(Path::new("dir/a"), &at("link")).unwrap();
        near.rename(&at("b"), &at("c")).unwrap();
        // To a name beside it that begins with its own.
        near.rename(&at("c"), &temp.path().join("based")).unwrap();
        near.set_mode(&at("dir/a"), 0o640).unwrap();
        let slashes = PathBuf::from(format!("{}//dir/a", base.display()));
        let paths = [
            at("dir/a"),
            at("link"),
            at("dir"),
            at("dir/"),
            at("none"),
            at("../based"),
            temp.path().join("based"),
            base.clone(),
            slashes,
        ];
        for path in &paths {
            let kind = |error: io::Error| error.raw_os_error();
            assert_eq!(
                near.stat(path).map_err(kind),
                far.stat(path).map_err(kind),
                "{path:?}"
            );
            assert_eq!(
                near.lstat(path).map_err(kind),
                far.lstat(path).map_err(kind)
            );
            assert_eq!(near.read(path).map_err(kind), far.read(path).map_err(kind));
            assert_eq!(
                near.read_link(path).map_err(kind),
                far.read_link(path).map_err(kind)
            );
            let sorted = |mut entries: Vec<DirEntry>| {
                entries.sort_by(|low, high| low.name.cmp(&high.name));
                entries
            };
            assert_eq!(
                near.read_dir(path).map(sorted).map_err(kind),
                far.read_dir(path).map(sorted).map_err(kind)
            );
        }
        assert_eq!(near.stat(&at("link")).unwrap().kind, FileKind::File);
        assert_eq!(near.lstat(&at("link")).unwrap().kind, FileKind::Symlink);
        assert_eq!(near.lstat(&at("dir/a")).unwrap().mode, 0o640);
        assert_eq!(near.read_dir(&base).unwrap().len(), 2);
        // The directory is the same by another name.
        let moved = temp.path().join("moved");
        fs::rename(&base, &moved).unwrap();
        assert_eq!(near.read(&at("dir/a")).unwrap(), b"one!");
        near.remove_file(&at("dir/a")).unwrap();
        near.remove_dir(&at("dir")).unwrap();
        assert!(!moved.join("dir").exists());
        assert!(far.near(&base).is_none());
    }

    #[test]
    fn one_that_runs_is_known_and_one_that_ended_is_gone() {
        let system = OsSystem::new();
        assert!(!system.machine().host.is_empty());
        let this = system.process_state(std::process::id());
        assert!(matches!(this, ProcessState::Since(_)));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        // Ended, and nobody has asked how: the kernel still lists it.
        while system.process_state(pid) != ProcessState::Gone {
            std::thread::sleep(Duration::from_millis(1));
        }
        child.wait().unwrap();
        assert_eq!(system.process_state(pid), ProcessState::Gone);
        assert_eq!(system.process_state(0), ProcessState::Gone);
    }

    #[test]
    fn a_directory_is_for_one_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let system = OsSystem::new();
        let guard = system.guard_dir(dir.path()).unwrap();
        assert!(guard.is_some());
        assert!(system.guard_dir(dir.path()).unwrap().is_none());
        drop(guard);
        assert!(system.guard_dir(dir.path()).unwrap().is_some());
    }

    /// Gives no more than so many bytes at once, and is interrupted before each time.
    struct Halting<'a>(&'a [u8], usize, bool);

    impl Read for Halting<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.2 = !self.2;
            if self.2 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let (now, later) = self.0.split_at(self.0.len().min(self.1).min(buffer.len()));
            buffer[..now.len()].copy_from_slice(now);
            self.0 = later;
            Ok(now.len())
        }
    }

    #[test]
    fn what_comes_in_parts_is_read_whole() {
        let oid = "0123456789abcdef0123456789abcdef01234567";
        let long = format!("{oid}\n").repeat(20);
        for text in [
            "",
            "ref: refs/heads/main\n",
            "x",
            oid,
            "a\nb\n",
            "\n",
            &long,
        ] {
            for part in [1, 7, 20, 40, 256, 1000] {
                let halting = |content| Halting(content, part, false);
                // A part that is one line by chance is all that a loose ref can be.
                if part == 256 || !text[..part.min(text.len())].ends_with('\n') {
                    let len = || Ok(text.len() as u64);
                    let found = read_start(halting(text.as_bytes()), usize::MAX, len).unwrap();
                    assert_eq!(found, text.as_bytes(), "{part} at once");
                }
                let mut buffer = vec![0; 500];
                let mut file = halting(text.as_bytes());
                let count = fill(&mut buffer, |_, rest| file.read(rest)).unwrap();
                assert_eq!(&buffer[..count], &text.as_bytes()[..text.len().min(500)]);
            }
        }
    }

    #[test]
    fn what_is_no_file_is_neither_waited_for_nor_read_without_end() {
        let dir = tempfile::tempdir().unwrap();
        let system = OsSystem::new();
        let fifo = dir.path().join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status();
        assert!(made.unwrap().success());
        let told = |error: io::Error| error.to_string();
        // Without a writer, and with one who says nothing.
        for with_writer in [false, true] {
            let flags = rustix::fs::OFlags::NONBLOCK.bits().try_into().unwrap();
            let mut options = fs::OpenOptions::new();
            options.read(true).write(true).custom_flags(flags);
            let writer = with_writer.then(|| options.open(&fifo).unwrap());
            for error in [
                system.read(&fifo).unwrap_err(),
                system.read_at_most(&fifo, 40).unwrap_err(),
                system.map(&fifo).err().unwrap(),
                system.open(&fifo).unwrap().len().unwrap_err(),
            ] {
                assert_eq!(told(error), "not a regular file");
            }
            drop(writer);
        }
        let zeros = Path::new("/dev/zero");
        assert_eq!(told(system.read(zeros).unwrap_err()), "not a regular file");
        assert!(system.map(zeros).is_err());
        // Files with holes take no room, and would take memory.
        let holes = dir.path().join("holes");
        File::create(&holes).unwrap().set_len(1 << 40).unwrap();
        let error = system.read(&holes).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(system.read_at_most(&holes, 1000).unwrap(), [0; 1000]);
        assert_eq!(system.read_stream(Path::new("/dev/null")).unwrap(), b"");
        // An empty file is one, and so is one of the kernel that claims to be empty.
        File::create(&holes).unwrap();
        assert_eq!(system.read(&holes).unwrap(), b"");
        assert!(
            !system
                .read(Path::new("/proc/self/stat"))
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn a_stream_is_read_whole_or_not_at_all() {
        assert_eq!(read_until_end(&b"abc"[..], 3).unwrap(), b"abc");
        let error = read_until_end(&b"abcd"[..], 3).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert!(read_until_end(io::repeat(0), 1000).is_err());
    }

    #[test]
    fn no_more_is_read_than_was_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let content: Vec<u8> = (0..=255).cycle().take(1000).collect();
        fs::write(&path, &content).unwrap();
        let system = OsSystem::new();
        assert_eq!(system.read(&path).unwrap(), content);
        for limit in [0, 1, 255, 256, 257, 999, 1000, 1001] {
            let part = content.get(..limit).unwrap_or(&content);
            assert_eq!(system.read_at_most(&path, limit).unwrap(), part, "{limit}");
        }
    }
}
