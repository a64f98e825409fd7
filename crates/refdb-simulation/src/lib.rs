//! The simulated system: a disk in memory that can fail, stop and lose power at any operation.
//!
//! Invariants:
//! 1. The same seed and the same calls give the same answers: time passes with operations and
//!    [`System::sleep`] only, and random numbers come from the seed.
//! 2. What was not made durable may be lost in a crash, in every way that
//!    [`Crash`] can say; what was made durable never is.
//! 3. An operation that fails has no effect.
//!
//! A clone is the same process on the same disk. [`SimSystem::process`] is another process on the
//! same disk, [`SimSystem::fork`] a copy of the disk that goes its own way, and
//! [`SimSystem::crash`] the disk that is found after a power failure.
//!
//! ```
//! use refdb_system::System;
//! use refdb_simulation::{Crash, Content, Names, SimSystem};
//! let system = SimSystem::new(1);
//! let mut file = system.create_new("/a".as_ref(), 0o666).unwrap();
//! file.write_all(b"text").unwrap();
//! system.sync_dir("/".as_ref()).unwrap();
//! // The name was made durable, and the content was not.
//! let crash = Crash { names: Names::Durable, content: Content::Durable, seed: 1 };
//! assert_eq!(system.crash(crash).read("/a".as_ref()).unwrap(), b"");
//! file.sync().unwrap();
//! assert_eq!(system.crash(crash).read("/a".as_ref()).unwrap(), b"text");
//! ```

mod copy;
mod crash;
mod disk;
mod fault;
mod file;
mod inodes;
mod naming;
mod restless;
#[cfg(test)]
mod tests;

use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;

pub use crash::{Content, Crash, Names};
pub use fault::{Failure, Fault, Op};

use disk::{Disk, Ino, NameChange, Node};
use file::{SimFile, SimGuard, boxed};
use refdb_system::beneath::Beneath;
use refdb_system::{
    Bytes, FileKind, GUARDED_MODE, Guard, GuardedFile, Machine, ProcessState, ReadFile, Scan, Stat,
    System, WriteFile,
};
use restless::Restless;

/// One process on a simulated disk.
#[derive(Clone, Debug)]
pub struct SimSystem {
    disk: Arc<Mutex<Disk>>,
    process: Arc<Mutex<Process>>,
}

#[derive(Clone, Debug, Default)]
struct Process {
    pid: u32,
    started: u64,
    ops: u64,
    fault: Option<Fault>,
    trace: Option<Vec<Op>>,
}

/// The process that a new disk starts with.
const FIRST_PID: u32 = 1000;

impl SimSystem {
    /// Makes an empty disk, whose random numbers come from `seed`.
    pub fn new(seed: u64) -> Self {
        SimSystem::on(Disk::new(seed), FIRST_PID)
    }

    fn on(disk: Disk, pid: u32) -> Self {
        SimSystem::start(Arc::new(Mutex::new(disk)), pid)
    }

    fn start(disk: Arc<Mutex<Disk>>, pid: u32) -> Self {
        let started = disk
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .machine
            .start(pid);
        SimSystem {
            disk,
            process: Arc::new(Mutex::new(Process {
                pid,
                started,
                ..Process::default()
            })),
        }
    }

    /// Returns another process on the same disk, with a count of operations and faults of its own.
    /// A process that had the identifier has ended.
    pub fn process(&self, pid: u32) -> Self {
        SimSystem::start(Arc::clone(&self.disk), pid)
    }

    /// Ends this process, as far as others can see: what it left on the disk stays.
    pub fn end(&self) {
        let (pid, started) = {
            let this = self.this();
            (this.pid, this.started)
        };
        let running = &mut self.disk().machine.running;
        if running.get(&pid) == Some(&started) {
            running.remove(&pid);
        }
    }

    /// Returns a copy of the disk as it is, with a process that no fault awaits.
    pub fn fork(&self) -> Self {
        SimSystem::on(self.disk().clone(), FIRST_PID)
    }

    /// Returns what is found on the disk after a power failure in this moment.
    pub fn crash(&self, crash: Crash) -> Self {
        SimSystem::on(self.disk().after(crash), FIRST_PID)
    }

    /// Returns how many changes to names are not durable: what [`Names::First`] chooses from.
    pub fn pending_names(&self) -> usize {
        self.disk().pending.len()
    }

    /// Returns a number that is the same for disks with the same names and contents: of what
    /// processes see, whatever is durable, and whenever it was written.
    pub fn fingerprint(&self) -> u64 {
        self.disk().fingerprint()
    }

    /// Makes everything durable, as `sync(1)` does.
    pub fn sync_all(&self) {
        self.disk().sync_all();
    }

    /// Puts other content into a file, as somebody who forges it.
    ///
    /// # Errors
    /// When there is no file.
    pub fn overwrite(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let mut disk = self.disk();
        let ino = disk.existing(path, true)?;
        disk.inode_mut(ino)?.node = Node::file(content);
        Ok(())
    }

    /// Makes the file system one that several machines share: no lock of the system's is certain.
    pub fn share_between_machines(&self) {
        self.disk().is_shared = true;
    }

    /// Makes the file system one on which a file has one name only.
    pub fn refuse_second_names(&self) {
        self.disk().has_one_name = true;
    }

    /// Lets the disk say that something is durable without making it so, as some disks do. Only
    /// [`SimSystem::sync_all`] is believed from then on.
    pub fn lie_about_syncs(&self) {
        self.disk().lies = true;
    }

    /// Makes it a system without a call that makes everything durable at once.
    pub fn sync_one_by_one(&self) {
        self.disk().syncs_at_once = false;
    }

    /// Lays an overlay over all that is there: directories that are there now cannot be renamed from
    /// then on.
    pub fn lay_over(&self) {
        self.disk().lower_directories();
    }

    /// Lets every directory look as if others gave names in it to new files all the time, by renaming
    /// them: of each reading about a third of the names comes twice, and a third not at all, but no name
    /// is missed by two readings in a row.
    pub fn make_restless(&self) {
        self.disk().restless = Some(Restless::default());
    }

    /// Sets the clock, by so many seconds.
    pub fn set_clock(&self, seconds: i64) {
        self.disk().set_clock(seconds);
    }

    /// Sets the clock, by so many seconds, whenever somebody sleeps.
    pub fn set_clock_always(&self, seconds: i64) {
        self.disk().set_by = seconds;
    }

    /// Lets operations of this process fail; `None` ends that.
    pub fn set_fault(&self, fault: Option<Fault>) {
        self.this().fault = fault;
    }

    /// Returns how many operations this process has tried.
    pub fn op_count(&self) -> u64 {
        self.this().ops
    }

    /// Begins to record the operations of this process, forgetting earlier records.
    pub fn start_trace(&self) {
        self.this().trace = Some(Vec::new());
    }

    /// Ends recording, and returns what was recorded.
    pub fn take_trace(&self) -> Vec<Op> {
        self.this().trace.take().unwrap_or_default()
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn this(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an operation and lets its time pass; gives the disk, and how much may be written.
    fn begin(
        &self,
        name: &'static str,
        path: &Path,
        changes: bool,
    ) -> io::Result<(MutexGuard<'_, Disk>, usize)> {
        let mut this = self.this();
        let number = this.ops;
        this.ops += 1;
        if let Some(trace) = &mut this.trace {
            trace.push(Op {
                name,
                path: path.to_owned(),
                changes,
            });
        }
        let fault = this.fault.filter(|fault| fault.applies(number));
        if let Some(error) = fault.and_then(Fault::error) {
            return Err(error);
        }
        let limit = match fault {
            Some(Fault {
                failure: Failure::Short(len),
                ..
            }) => len,
            _ => usize::MAX,
        };
        drop(this);
        let mut disk = self.disk();
        disk.tick();
        Ok((disk, limit))
    }

    fn reading(&self, name: &'static str, path: &Path) -> io::Result<MutexGuard<'_, Disk>> {
        Ok(self.begin(name, path, false)?.0)
    }

    fn changing(&self, name: &'static str, path: &Path) -> io::Result<MutexGuard<'_, Disk>> {
        Ok(self.begin(name, path, true)?.0)
    }

    fn handle(&self, path: &Path, ino: Ino) -> SimFile {
        SimFile {
            system: self.clone(),
            path: path.to_owned(),
            ino,
            _guard: None,
        }
    }

    /// Takes a directory or file for this process alone, unless another one has it.
    fn guard(&self, mut disk: MutexGuard<'_, Disk>, ino: Ino) -> Option<SimGuard> {
        let (pid, started) = {
            let this = self.this();
            (this.pid, this.started)
        };
        let process = (pid, started);
        let is_taken = disk.machine.guard(ino, process);
        let disk = Arc::clone(&self.disk);
        is_taken.then(|| SimGuard { disk, ino, process })
    }

    /// Gives a new inode the name `path`, which must be free.
    fn add(disk: &mut Disk, path: &Path, node: Node, mode: u32) -> io::Result<Ino> {
        let free = disk.free(path)?;
        let ino = disk.new_inode(node, mode);
        disk.change_names(NameChange {
            removed: None,
            added: vec![(free.dir, free.name, ino)],
        })?;
        Ok(ino)
    }
}

/// An open file: it stays what it is when its name goes.
/// The content of a file as it was when it was mapped.
struct Mapped(Arc<Vec<u8>>);

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl System for SimSystem {
    fn beneath(&self, root: &Path) -> io::Result<Arc<dyn System>> {
        Ok(Arc::new(Beneath::new(self, root)?))
    }

    fn read_at_most(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        let disk = self.reading("read", path)?;
        let content = disk.content(disk.existing(path, true)?)?;
        Ok(content.get(..limit).unwrap_or(content).to_vec())
    }

    fn map(&self, path: &Path) -> io::Result<Bytes> {
        let disk = self.reading("map", path)?;
        let ino = disk.existing(path, true)?;
        let content = disk.content(ino)?;
        Ok(Bytes::from_owner(Mapped(Arc::clone(content))))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadFile>> {
        let ino = self.reading("open", path)?.existing(path, true)?;
        Ok(Box::new(self.handle(path, ino)))
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        let disk = self.reading("stat", path)?;
        disk.stat(disk.existing(path, true)?)
    }

    fn lstat(&self, path: &Path) -> io::Result<Stat> {
        let disk = self.reading("lstat", path)?;
        disk.stat(disk.existing(path, false)?)
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        let disk = self.reading("read_link", path)?;
        match &disk.inode(disk.existing(path, false)?)?.node {
            Node::Symlink(text) => Ok(std::ffi::OsString::from_vec(text.clone()).into()),
            _ => Err(Errno::INVAL.into()),
        }
    }

    fn scan_dir(&self, path: &Path) -> io::Result<Scan> {
        let mut disk = self.reading("read_dir", path)?;
        let dir = disk.existing(path, true)?;
        disk.scan(dir)
    }

    fn create_new(&self, path: &Path, mode: u32) -> io::Result<Box<dyn WriteFile>> {
        let mut disk = self.changing("create_new", path)?;
        let ino = Self::add(&mut disk, path, Node::empty_file(), mode & !0o022)?;
        Ok(Box::new(self.handle(path, ino)))
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let disk = self.changing("append", path)?;
        let ino = disk.find(path, false)?.ino.ok_or(Errno::NOENT)?;
        disk.content(ino)?;
        Ok(Box::new(self.handle(path, ino)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.changing("rename", to)?.rename(from, to)
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        self.changing("exchange", other)?.exchange(one, other)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut disk = self.changing("hard_link", to)?;
        if disk.has_one_name {
            return Err(Errno::PERM.into());
        }
        let ino = disk.existing(from, false)?;
        if matches!(disk.inode(ino)?.node, Node::Directory { .. }) {
            return Err(Errno::PERM.into());
        }
        let free = disk.free(to)?;
        disk.change_names(NameChange {
            removed: None,
            added: vec![(free.dir, free.name, ino)],
        })
    }

    fn symlink(&self, text: &Path, path: &Path) -> io::Result<()> {
        let mut disk = self.changing("symlink", path)?;
        let text = text.as_os_str().as_bytes().to_vec();
        Self::add(&mut disk, path, Node::Symlink(text), 0o777).map(drop)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.changing("remove_file", path)?.remove(path, false)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.changing("create_dir", path)?;
        Self::add(&mut disk, path, Node::empty_dir(), 0o755).map(drop)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.changing("remove_dir", path)?.remove(path, true)
    }

    fn set_mode(&self, path: &Path, mode: u32) -> io::Result<()> {
        let mut disk = self.changing("set_mode", path)?;
        let ino = disk.existing(path, true)?;
        disk.inode_mut(ino)?.mode = mode;
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.changing("sync_dir", path)?;
        let dir = disk.existing(path, true)?;
        if disk.lies {
            return Ok(());
        }
        disk.sync_names(dir)
    }

    fn sync_file_system(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.changing("sync_file_system", path)?;
        disk.existing(path, true)?;
        if !disk.lies && disk.syncs_at_once {
            disk.sync_all();
        }
        Ok(())
    }

    fn syncs_at_once(&self) -> bool {
        self.disk().syncs_at_once
    }

    fn now(&self) -> Duration {
        self.disk().clock
    }

    fn elapsed(&self) -> Duration {
        self.disk().passed
    }

    fn sleep(&self, duration: Duration) {
        let mut disk = self.disk();
        disk.pass(duration);
        let seconds = disk.set_by;
        disk.set_clock(seconds);
    }

    fn random(&self) -> u64 {
        self.disk().random()
    }

    fn user_id(&self) -> u32 {
        self.disk().user
    }

    fn process_id(&self) -> u32 {
        self.this().pid
    }

    fn machine(&self) -> Machine {
        Machine {
            boot: format!("{:012x}", self.disk().machine.boots),
            host: "simulated".to_owned(),
        }
    }

    fn process_state(&self, pid: u32) -> ProcessState {
        match self.disk().machine.running.get(&pid) {
            Some(&started) => ProcessState::Since(started),
            None => ProcessState::Gone,
        }
    }

    fn guard_dir(&self, path: &Path) -> io::Result<Option<Guard>> {
        let disk = self.reading("guard_dir", path)?;
        let ino = disk.existing(path, true)?;
        Ok(boxed(self.guard(disk, ino)))
    }

    fn create_guarded(&self, path: &Path, mode: u32) -> io::Result<Box<dyn GuardedFile>> {
        let mut disk = self.changing("create_guarded", path)?;
        let mode = (mode | GUARDED_MODE) & !0o022;
        let ino = Self::add(&mut disk, path, Node::empty_file(), mode)?;
        drop(disk);
        // A process can end between the two.
        let disk = match self.reading("guard", path) {
            Ok(disk) => disk,
            Err(error) => {
                self.remove_file(path)?;
                return Err(error);
            }
        };
        let is_there = disk.existing(path, false).is_ok_and(|found| found == ino);
        let guard = self.guard(disk, ino).filter(|_| is_there);
        let guard = Some(guard.ok_or(Errno::EXIST)?);
        let handle = self.handle(path, ino);
        Ok(Box::new(SimFile {
            _guard: guard,
            ..handle
        }))
    }

    fn guard_file(&self, path: &Path) -> io::Result<Option<Guard>> {
        let disk = self.reading("guard_file", path)?;
        let Ok(ino) = disk.existing(path, false) else {
            return Ok(None);
        };
        match disk.stat(ino)?.kind {
            FileKind::File if !disk.is_shared => Ok(boxed(self.guard(disk, ino))),
            _ => Ok(None),
        }
    }

    fn is_taken(&self, path: &Path) -> bool {
        let disk = self.disk();
        let ino = disk.existing(path, false);
        !disk.is_shared && ino.is_ok_and(|ino| disk.machine.is_taken(ino))
    }

    fn guard_owner(&self, path: &Path) -> Option<u32> {
        let disk = self.reading("guard_owner", path).ok()?;
        let ino = disk.existing(path, false).ok()?;
        disk.machine.guarded.get(&ino).map(|&(pid, _)| pid)
    }
}
