//! The one seam to the outside world: files, directories, the clock, random numbers.
//!
//! Invariants:
//! 1. Nothing outside this crate touches `std::fs`, the clock, or a random number generator.
//! 2. Every operation that can make a difference to what survives a crash is a method of its own:
//!    writing a file, making its content durable ([`WriteFile::sync`]), giving it a name
//!    ([`System::rename`]), making the name durable ([`System::sync_dir`]), and making all of this
//!    durable at once ([`System::sync_file_system`]).
//!
//! [`OsSystem`] is the real one. For tests there is a simulated one (`refdb-simulation`), which keeps
//! apart what is on disk and what is only cached, and can fail or crash at any operation.
//!
//! ```
//! use refdb_system::{OsSystem, System};
//! let system = OsSystem::new();
//! let error = system.read("/no/such/file".as_ref()).unwrap_err();
//! assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
//! ```

pub mod beneath;
pub mod beside;
mod dates;
pub mod dirs;
pub mod find;
mod guard;
mod map;
mod may_write;
mod os;
mod paths;
mod permissions;
mod platform;
mod process;
mod scan;
mod threads;
mod tree;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The immutable content of a file, copied or mapped; cheap to share.
pub use bytes::Bytes;
pub use map::MAP_MIN;
pub use may_write::MayWrite;
pub use os::{OsSystem, syncs};
pub use paths::{bytes_to_path, is_absent, joined, remove_empty_tree, remove_if_there, suffixed};
pub use permissions::SharedRepository;
pub use process::{Guard, Machine, ProcessState};
pub use scan::Scan;
pub use threads::{beside_this_thread, processor_count};
pub use tree::{Leaf, Tree, list};

/// What a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// Anything else: a socket, a device.
    Other,
}

/// What tells one state of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// What the path names.
    pub kind: FileKind,
    /// The length in bytes.
    pub len: u64,
    /// The device.
    pub dev: u64,
    /// The inode.
    pub ino: u64,
    /// The time of the last change of the content, in nanoseconds.
    pub mtime_ns: i128,
    /// The time of the last change of the inode, in nanoseconds.
    pub ctime_ns: i128,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The permission bits.
    pub mode: u32,
    /// How many names it has.
    pub nlink: u64,
}

/// What tells a file from one that takes its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId {
    /// The device.
    pub dev: u64,
    /// The inode.
    pub ino: u64,
    len: u64,
    mtime_ns: i128,
}

impl FileId {
    /// Returns what tells the file that is described from others.
    pub fn of(stat: &Stat) -> FileId {
        FileId {
            dev: stat.dev,
            ino: stat.ino,
            len: stat.len,
            mtime_ns: stat.mtime_ns,
        }
    }
}

impl Stat {
    /// Returns whether this is a file that [`System::create_guarded`] made and that was not made one
    /// like all others since.
    pub fn is_guarded(&self) -> bool {
        let bits = self.mode & GUARDED_MODE;
        self.kind == FileKind::File && bits != 0
    }
}

/// The permission bit of files that [`System::create_guarded`] makes: the sticky bit on Linux, none where
/// files cannot have that. It means nothing for files, and no program gives it to those that it creates.
pub const GUARDED_MODE: u32 = platform::GUARDED_MODE;

/// From how many bytes on a file is not read from its beginning to its end.
pub const WHOLE_MAX: u64 = 1 << 32;

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name, as bytes.
    pub name: Vec<u8>,
    /// What it names; links are not followed.
    pub kind: FileKind,
}

/// A file open for writing. Dropping it closes it.
///
/// Its `Write` implementation writes at the end; nothing is buffered.
pub trait WriteFile: io::Write + Send + Sync {
    /// Makes the content durable (not the name: see [`System::sync_dir`]).
    fn sync(&mut self) -> io::Result<()>;
    /// Dates the last change of the content, as time since 1970-01-01 UTC.
    fn set_modified(&mut self, at: Duration) -> io::Result<()>;
}

/// A file that a process has for itself as long as it is open ([`System::create_guarded`]).
pub trait GuardedFile: WriteFile {
    /// Returns whether everybody who can see the file can certainly see as well that it is taken. On
    /// file systems that machines share, above all, that is not so.
    fn is_certain(&self) -> bool;
    /// Describes the file as it is now, under whatever names.
    fn stat(&self) -> io::Result<Stat>;
    /// Returns what tells the file from every other one, for as long as it is open: device and inode.
    fn identity(&self) -> io::Result<(u64, u64)> {
        self.stat().map(|stat| (stat.dev, stat.ino))
    }
    /// Returns whether the file got the mark with which it was to be created.
    fn has_mark(&self) -> bool {
        self.stat().is_ok_and(|stat| stat.is_guarded())
    }
    /// Says which permissions the file is to have in the end, if not those with which it was created.
    fn keep_mode(&mut self, mode: u32) {
        let _ = mode;
    }
    /// Returns which permissions these are, as far as that is known.
    fn kept_mode(&self) -> u32 {
        0
    }
    /// Lets everybody read the file whom its permissions allow to.
    fn reveal(&mut self) -> io::Result<()>;
    /// Makes it a file like all others, but for its being taken: no bit says any more what it is.
    fn unguard(&mut self) -> io::Result<()>;
}

/// A file open for reading at any place. While it is open, no other file gets its inode.
pub trait ReadFile: Send + Sync {
    /// Reads up to `buffer.len()` bytes from `offset` on; fewer only at the end of the file.
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;
    /// Describes the file as it is now, under whatever name.
    fn stat(&self) -> io::Result<Stat>;
    /// Returns the present length in bytes.
    fn len(&mut self) -> io::Result<u64> {
        Ok(self.stat()?.len)
    }
    /// Returns whether the file is empty.
    fn is_empty(&mut self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// The outside world, as far as refs need it.
///
/// Errors are those of the system; a method makes one attempt and does not retry, except that an
/// interrupted call (`EINTR`) is repeated.
pub trait System: Send + Sync + fmt::Debug {
    /// Returns the same system for somebody most of whose paths lead through the directory `dir`:
    /// they are followed from where it is now, whatever becomes of its name. `None` where that
    /// brings nothing.
    fn near(&self, dir: &Path) -> Option<Arc<dyn System>> {
        let _ = dir;
        None
    }

    /// Returns the same system for somebody all of whose paths lead to what is below the directory
    /// `root`, and who trusts nothing that is there: no link is followed, and no path leads out. What
    /// does is an error (`InvalidInput` for a path that is not below `root`).
    ///
    /// # Errors
    /// Those of opening the directory.
    fn beneath(&self, root: &Path) -> io::Result<Arc<dyn System>>;

    /// Reads a whole file. What is no file (a FIFO, a device) is an error, and is not waited for.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.read_at_most(path, usize::MAX)
    }

    /// Reads what a person named, and what need not be a file: `/dev/null`, or a pipe that a shell
    /// made, which is waited for.
    fn read_stream(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.read(path)
    }

    /// Reads a file, but no more than its first `limit` bytes.
    fn read_at_most(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>>;
    /// Reads a whole file that nobody changes in place, mapping it where that is cheaper.
    fn map(&self, path: &Path) -> io::Result<Bytes>;

    /// As [`System::map`], of a file that is read from its beginning to its end: one with holes may say
    /// that it is longer than any that was ever written.
    ///
    /// # Errors
    /// As for [`System::map`], and `FileTooLarge` for more than [`WHOLE_MAX`] bytes.
    fn map_whole(&self, path: &Path) -> io::Result<Bytes> {
        let content = self.map(path)?;
        match content.len() as u64 > WHOLE_MAX {
            true => Err(io::ErrorKind::FileTooLarge.into()),
            false => Ok(content),
        }
    }
    /// Opens a file for reading at any place.
    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadFile>>;
    /// Describes what a path names, following links.
    fn stat(&self, path: &Path) -> io::Result<Stat>;
    /// Describes what a path names, not following a last link.
    fn lstat(&self, path: &Path) -> io::Result<Stat>;
    /// As [`System::lstat`]; `None` if nothing is there.
    fn find(&self, path: &Path) -> io::Result<Option<Stat>> {
        match self.lstat(path) {
            Err(error) if is_absent(&error) => Ok(None),
            stat => stat.map(Some),
        }
    }
    /// Reads the text of a symbolic link.
    fn read_link(&self, path: &Path) -> io::Result<PathBuf>;
    /// Reads a directory once, without `.` and `..`. A name that others give to another file meanwhile
    /// may come twice, or not at all.
    fn scan_dir(&self, path: &Path) -> io::Result<Scan>;
    /// Lists a directory, without `.` and `..`, in no order: each name once, and every name that was
    /// there all the time. One that came or went meanwhile may be there or not.
    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        scan::settle(&mut || self.scan_dir(path))
    }
    /// Creates a file that does not exist yet (`O_EXCL`), with the permission bits `mode` less the
    /// umask.
    fn create_new(&self, path: &Path, mode: u32) -> io::Result<Box<dyn WriteFile>>;
    /// As [`System::create_new`], and takes the file for this process alone: nobody has it from
    /// [`System::guard_file`] until it is closed, which the system does when the process ends,
    /// however it ends. Up to [`GuardedFile::unguard`] a permission bit ([`GUARDED_MODE`]) says that it
    /// is such a file, where the file system keeps it, and up to [`GuardedFile::reveal`] only those
    /// may read it who may write it: who could read it could take it as well.
    ///
    /// # Errors
    /// `AlreadyExists` too when somebody found the file before it was taken.
    fn create_guarded(&self, path: &Path, mode: u32) -> io::Result<Box<dyn GuardedFile>>;
    /// Takes a file that nobody has any more, by the name `path`. `None` if somebody has it, if there
    /// is no such file, or if that cannot be told.
    fn guard_file(&self, path: &Path) -> io::Result<Option<Guard>>;
    /// Returns whether a process has a file or a directory for itself; what cannot be told counts as no.
    fn is_taken(&self, path: &Path) -> bool;
    /// Returns which process has a file for itself that [`System::create_guarded`] made, if that can
    /// be found out.
    fn guard_owner(&self, path: &Path) -> Option<u32>;
    /// Opens a file for appending. What is no file is an error, and so is a link; neither is waited for.
    fn append(&self, path: &Path) -> io::Result<Box<dyn WriteFile>>;
    /// Gives a file another name, replacing what had it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Lets two names, both of which exist, change places in one step.
    ///
    /// # Errors
    /// `Unsupported` where the system cannot do that.
    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        let _ = (one, other);
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Gives a file a second name that must not exist yet.
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Creates a symbolic link of the given text.
    fn symlink(&self, text: &Path, path: &Path) -> io::Result<()>;
    /// Removes a file or a link.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Creates one directory.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// Removes one empty directory.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes sure that this process may write to what a path names, following links: to a file, or names in a
    /// directory. Where that cannot be told it may.
    ///
    /// # Errors
    /// Those that writing would have: `EPERM` for what nobody may change.
    fn may_write(&self, path: &Path) -> io::Result<()> {
        self.stat(path).map(drop)
    }
    /// Makes sure that the attributes of a file let it be replaced and removed, and those of a directory the files in
    /// it (`chattr`). Where they cannot be told they do.
    ///
    /// # Errors
    /// `EPERM` for what nobody may change, or only add to; `EBUSY` for a file that is mounted there.
    fn may_replace(&self, path: &Path) -> io::Result<()> {
        let _ = path;
        Ok(())
    }

    /// Returns how many bytes long a file may become that this process writes.
    fn longest_file(&self) -> u64 {
        u64::MAX
    }

    /// Returns whether a directory keeps the number of its inode for as long as it is there: a file system that is put
    /// together of others may tell a number of theirs.
    ///
    /// # Errors
    /// Those of opening it.
    fn keeps_number(&self, dir: &Path) -> io::Result<bool> {
        self.stat(dir).map(|_| true)
    }
    /// Sets permission bits.
    fn set_mode(&self, path: &Path, mode: u32) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes everything durable that was written to the file system on which `path` is: content
    /// and names.
    fn sync_file_system(&self, path: &Path) -> io::Result<()>;
    /// Returns whether [`System::sync_file_system`] keeps what it promises. Where it only begins to, as
    /// on systems without such a call, each file and directory is synced for itself.
    fn syncs_at_once(&self) -> bool {
        true
    }
    /// Returns the time since 1970-01-01 UTC, by a clock that can be set.
    fn now(&self) -> Duration;
    /// Returns how long it is since some moment, by a clock that nobody sets: what is waited for is measured by it.
    fn elapsed(&self) -> Duration;
    /// Waits.
    fn sleep(&self, duration: Duration);
    /// Returns a random number, good enough for names that must not collide.
    fn random(&self) -> u64;
    /// Returns for which user this process works, as files have owners.
    fn user_id(&self) -> u32;
    /// Returns the process identifier.
    fn process_id(&self) -> u32;
    /// Returns what the machine is called, for people.
    fn machine(&self) -> Machine;
    /// Finds out about the process that has an identifier now, on this machine.
    fn process_state(&self, pid: u32) -> ProcessState;
    /// Takes a directory for this process alone; `None` if another one has it. The system gives it
    /// free when the guard is dropped, and when the process ends, however it ends. Anybody who may
    /// read the directory can do so: nothing may depend on it that somebody else waits for.
    fn guard_dir(&self, path: &Path) -> io::Result<Option<Guard>>;
}
