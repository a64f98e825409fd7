//! A system whose paths lead to what is below one directory, whatever lies there.
//!
//! What lies in a repository was made by somebody else: a link in the place of a directory would lead
//! whoever follows it out. Here every path is followed from the directory, which stays open, and no
//! link on the way is: neither one that was there, nor one that somebody puts there meanwhile.

use std::fmt;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::{
    Bytes, Guard, GuardedFile, Machine, ProcessState, ReadFile, Scan, Stat, System, WriteFile,
};

/// What a system says that finds a link where it follows none.
const LOOP: i32 = rustix::io::Errno::LOOP.raw_os_error();

/// A system that can be asked for the way to a file without following links.
pub trait Narrow: System + Clone + 'static {
    /// The directory below which all paths are.
    type Root: Clone + fmt::Debug + Send + Sync;

    /// Opens the directory itself; links to it are followed.
    fn root(&self, path: &Path) -> io::Result<Self::Root>;
    /// Returns a system for which the directories of `paths` are found. A link that a path ends with
    /// is not followed either; with `no_link` one may be refused at once.
    fn narrow(
        &self,
        root: &Self::Root,
        paths: &[Below<'_>],
        no_link: bool,
    ) -> io::Result<Arc<dyn System>>;
}

/// A path.
#[derive(Clone, Copy, Debug)]
pub struct Below<'p> {
    /// The whole of it.
    pub whole: &'p Path,
    /// What is below the root.
    pub rest: &'p Path,
}

/// A system all of whose paths are below a directory.
#[derive(Clone, Debug)]
pub struct Beneath<S: Narrow> {
    inner: S,
    path: PathBuf,
    root: S::Root,
}

impl<S: Narrow> Beneath<S> {
    /// Opens the directory `path` of a system.
    ///
    /// # Errors
    /// As for [`Narrow::root`].
    pub fn new(inner: &S, path: &Path) -> io::Result<Beneath<S>> {
        Ok(Beneath {
            inner: inner.clone(),
            path: path.to_owned(),
            root: inner.root(path)?,
        })
    }

    fn below<'p>(&self, whole: &'p Path) -> io::Result<Below<'p>> {
        let rest = whole.strip_prefix(&self.path).ok();
        let is_plain = |rest: &&Path| {
            let mut components = rest.components();
            components.all(|part| matches!(part, Component::Normal(_)))
        };
        match rest.filter(is_plain) {
            Some(rest) => Ok(Below { whole, rest }),
            None => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("it is not below '{}'", self.path.display()),
            )),
        }
    }

    fn at(&self, path: &Path) -> io::Result<Arc<dyn System>> {
        self.inner.narrow(&self.root, &[self.below(path)?], false)
    }

    /// As [`Beneath::at`], for what would follow a link that the path ends with.
    fn at_file(&self, path: &Path) -> io::Result<Arc<dyn System>> {
        self.inner.narrow(&self.root, &[self.below(path)?], true)
    }

    fn at_both(&self, one: &Path, other: &Path) -> io::Result<Arc<dyn System>> {
        let paths = [self.below(one)?, self.below(other)?];
        self.inner.narrow(&self.root, &paths, false)
    }
}

impl<S: Narrow> System for Beneath<S> {
    fn beneath(&self, root: &Path) -> io::Result<Arc<dyn System>> {
        // A directory below is reached without links as well.
        self.at(root)?.lstat(root)?;
        Ok(Arc::new(self.clone()))
    }

    fn read_at_most(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        self.at_file(path)?.read_at_most(path, limit)
    }

    fn map(&self, path: &Path) -> io::Result<Bytes> {
        self.at_file(path)?.map(path)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadFile>> {
        self.at_file(path)?.open(path)
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.at(path)?.lstat(path)
    }

    fn lstat(&self, path: &Path) -> io::Result<Stat> {
        self.at(path)?.lstat(path)
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        self.at(path)?.read_link(path)
    }

    fn scan_dir(&self, path: &Path) -> io::Result<Scan> {
        // A link is no directory, be it a barrier or somebody's way out.
        let narrow = self.at_file(path).map_err(|error| match error {
            error if error.raw_os_error() == Some(LOOP) => io::ErrorKind::NotADirectory.into(),
            error => error,
        })?;
        narrow.scan_dir(path)
    }

    fn create_new(&self, path: &Path, mode: u32) -> io::Result<Box<dyn WriteFile>> {
        self.at(path)?.create_new(path, mode)
    }

    fn create_guarded(&self, path: &Path, mode: u32) -> io::Result<Box<dyn GuardedFile>> {
        self.at(path)?.create_guarded(path, mode)
    }

    fn guard_file(&self, path: &Path) -> io::Result<Option<Guard>> {
        match self.at(path) {
            Ok(narrow) => narrow.guard_file(path),
            Err(_) => Ok(None),
        }
    }

    fn is_taken(&self, path: &Path) -> bool {
        self.at(path).is_ok_and(|narrow| narrow.is_taken(path))
    }

    fn guard_owner(&self, path: &Path) -> Option<u32> {
        self.inner.guard_owner(path)
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.at_file(path)?.append(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.at_both(from, to)?.rename(from, to)
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        self.at_both(one, other)?.exchange(one, other)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.at_both(from, to)?.hard_link(from, to)
    }

    fn symlink(&self, text: &Path, path: &Path) -> io::Result<()> {
        self.at(path)?.symlink(text, path)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.at(path)?.remove_file(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.at(path)?.create_dir(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.at(path)?.remove_dir(path)
    }

    fn may_write(&self, path: &Path) -> io::Result<()> {
        self.at_file(path)?.may_write(path)
    }

    fn may_replace(&self, path: &Path) -> io::Result<()> {
        self.at(path)?.may_replace(path)
    }

    fn longest_file(&self) -> u64 {
        self.inner.longest_file()
    }

    fn keeps_number(&self, dir: &Path) -> io::Result<bool> {
        self.at_file(dir)?.keeps_number(dir)
    }

    fn set_mode(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.at_file(path)?.set_mode(path, mode)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.at_file(path)?.sync_dir(path)
    }

    fn sync_file_system(&self, path: &Path) -> io::Result<()> {
        self.at_file(path)?.sync_file_system(path)
    }

    fn syncs_at_once(&self) -> bool {
        self.inner.syncs_at_once()
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

    fn user_id(&self) -> u32 {
        self.inner.user_id()
    }

    fn process_id(&self) -> u32 {
        self.inner.process_id()
    }

    fn machine(&self) -> Machine {
        self.inner.machine()
    }

    fn process_state(&self, pid: u32) -> ProcessState {
        self.inner.process_state(pid)
    }

    fn guard_dir(&self, path: &Path) -> io::Result<Option<Guard>> {
        self.at_file(path)?.guard_dir(path)
    }
}
