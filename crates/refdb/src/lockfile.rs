//! Lock files: `<file>.lock`, created exclusively; the new content stands in `.<file>.lock` until it
//! is renamed over the file.
//!
//! A lock is a symbolic link whose text says who holds it (`owner`): to everybody who wants to
//! create the file it is there, and a lock whose process has ended can be told and taken over. The
//! lock of a ref that is written alone is a file that its process has for itself as long as it runs
//! ([`System::create_guarded`]), and that becomes the ref (`alone`).
//!
//! Invariants:
//! 1. A lock that was acquired is released on every path: by release, or by drop.
//! 2. A lock of a living process, of another program, or of somebody of whom nothing is known is
//!    waited for and never broken.
//! 3. Whoever takes a lock over has the repository's directory for itself from the moment in which
//!    it looks at the lock to the one in which it is gone, and finishes the transaction that the
//!    dead process began, should there be one (`journal`); of a guarded file it has the file.
//! 4. A lock that is a guarded file is open as long as it is held, and in no journal.
//! 5. A `.<file>.lock` exists only while its lock does. Where a power failure took the lock alone, it
//!    goes when it is in somebody's way ([`sweep`]).

mod alone;
pub(crate) mod journal;
pub(crate) mod owner;
mod takeover;
mod watch;

pub(crate) use takeover::{is_barrier, sweep, sweep_all, take_over};
pub(crate) use watch::JournalWatch;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::error::io_text;
use crate::options::{LockTimeout, SharedRepository};
use crate::system::{System, WriteFile};
use journal::Step;
use owner::{Owner, Purpose};

/// A lock file that this process holds.
///
/// A large write holds one for each ref, so that what is the same for all stands elsewhere.
pub(crate) struct LockFile {
    holder: Holder,
    path: PathBuf,
    file: Option<Box<dyn WriteFile>>,
    written: Written,
    shared: SharedRepository,
    pid_file: bool,
    /// Whether the lock is a guarded file, `file`, which takes the new content itself.
    is_guarded: bool,
    /// Whether the lock bars the place of its file as well.
    bars: bool,
    held: bool,
}

/// What stands where the new content does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    /// Nothing.
    Nothing,
    /// Content with this checksum.
    Content(u64),
    /// What was not written through the lock.
    Unseen,
}

/// What a lock needs to know of the repository's settings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockOptions {
    pub(crate) timeout: LockTimeout,
    pub(crate) shared: SharedRepository,
    /// Write `<file>~pid.lock` beside the lock (`core.lockfilePid`).
    pub(crate) pid_file: bool,
}

impl LockOptions {
    /// A lock that is there now, or not to be had, and has nothing beside it.
    pub(crate) const AT_ONCE: LockOptions = LockOptions {
        timeout: LockTimeout::from_millis(0),
        shared: SharedRepository::Umask,
        pid_file: false,
    };
}

/// Who takes locks: one transaction in one repository.
#[derive(Clone, Debug)]
pub(crate) struct Holder {
    who: Arc<Who>,
}

/// What is the same for all locks of a holder.
#[derive(Debug)]
struct Who {
    system: Arc<dyn System>,
    /// The directory of the repository, in which the journal is.
    git_dir: PathBuf,
    purpose: Purpose,
    text: OnceLock<Arc<Path>>,
}

impl Holder {
    /// Begins a transaction of this process in the repository at `git_dir`.
    pub(crate) fn new(system: &Arc<dyn System>, git_dir: &Path) -> Holder {
        Holder::with(system, git_dir, Purpose::Transaction)
    }

    /// Begins to keep writers out for a migration. Its locks are not taken over one by one but by
    /// whoever clears up after the whole migration ([`sweep_all`]).
    pub(crate) fn migrating(system: &Arc<dyn System>, git_dir: &Path) -> Holder {
        Holder::with(system, git_dir, Purpose::Migration)
    }

    fn with(system: &Arc<dyn System>, git_dir: &Path, purpose: Purpose) -> Holder {
        let who = Arc::new(Who {
            system: Arc::clone(system),
            git_dir: git_dir.to_owned(),
            purpose,
            text: OnceLock::new(),
        });
        Holder { who }
    }

    /// Returns the text of the locks; empty if the system does not know who this process is.
    fn text(&self) -> &Arc<Path> {
        let who = &self.who;
        who.text.get_or_init(|| {
            let owner = Owner::new(who.system.as_ref(), who.purpose);
            owner.map(|owner| owner.text()).unwrap_or_default().into()
        })
    }

    fn create(&self, path: &Path) -> io::Result<()> {
        let text = self.text();
        if !text.as_os_str().is_empty() {
            match self.who.system.symlink(text, path) {
                Err(error) if lacks_links(&error) => {}
                made => return made,
            }
        }
        self.who.system.create_new(path, 0o666).map(drop)
    }

    /// Calls `attempt` until it gives something else than `AlreadyExists`, and takes the lock at
    /// `path` over if its owner has ended. The pauses grow by a half each and have a random length,
    /// between a half and one and a half of that; they stay short, so that whoever came late does
    /// not get ahead of whoever has waited for long.
    fn retry(
        &self,
        path: &Path,
        timeout: LockTimeout,
        mut attempt: impl FnMut() -> io::Result<()>,
    ) -> io::Result<()> {
        let (mut waited, mut pause) = (Duration::ZERO, PAUSE_MIN);
        let mut look_at = Duration::ZERO;
        loop {
            let refused = match attempt() {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => error,
                done => return done,
            };
            // What keeps a lock from being taken over does not keep it from being waited for.
            if waited >= look_at
                && take_over(&self.who.system, &self.who.git_dir, path).unwrap_or(false)
            {
                continue;
            }
            if waited >= look_at {
                look_at = waited + LOOK_EVERY;
            }
            if !timeout.allows(waited) {
                return Err(refused);
            }
            let percent = 50 + u32::try_from(self.who.system.random() % 101).unwrap_or(0);
            let sleep = pause * percent / 100;
            self.who.system.sleep(sleep);
            waited += sleep;
            pause = (pause * 3 / 2).min(PAUSE_MAX);
        }
    }

    /// Waits until the barrier at `path` is gone.
    ///
    /// # Errors
    /// `AlreadyExists` when it is still there after the timeout.
    pub(crate) fn pass(&self, path: &Path, timeout: LockTimeout) -> io::Result<()> {
        let system = self.who.system.as_ref();
        self.retry(path, timeout, || match is_barrier(system, path) {
            true => Err(rustix::io::Errno::EXIST.into()),
            false => Ok(()),
        })
    }
}

/// The shortest and the longest pause between two attempts.
const PAUSE_MIN: Duration = Duration::from_micros(500);
const PAUSE_MAX: Duration = Duration::from_millis(8);

/// How long a lock is waited for before it is looked at again who holds it.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Returns whether a file system has no symbolic links; locks are empty files there, which nobody
/// takes over.
fn lacks_links(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::PERM | Errno::NOSYS | Errno::OPNOTSUPP))
}

/// Removes a file, or finds that it is gone.
pub(crate) fn remove_if_there(system: &dyn System, path: &Path) -> io::Result<()> {
    match system.remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// How long a name can be, in bytes.
const NAME_MAX: usize = 255;

/// Returns where the new content of a file stands while the file is locked by the lock at `path`.
/// Every program that lists refs passes over names that end so, and most over those that begin so.
fn value_path(path: &Path) -> PathBuf {
    let lock = path.file_name().unwrap_or_default();
    let mut name = OsString::from(".");
    if lock.len() < NAME_MAX {
        name.push(lock);
    } else {
        // No room for all of it: the name of a file that can be locked leaves room for this.
        name.push(path.file_stem().unwrap_or_default());
        name.push(".new");
    }
    path.with_file_name(name)
}

impl LockFile {
    /// Creates `<target>.lock`, waiting for another holder as long as the timeout allows.
    ///
    /// # Errors
    /// `AlreadyExists` when the lock is still held after the timeout; any other error of the
    /// system at once.
    pub(crate) fn acquire(
        holder: &Holder,
        target: &Path,
        options: LockOptions,
    ) -> io::Result<LockFile> {
        let path = suffixed(target, ".lock");
        holder.retry(&path, options.timeout, || holder.create(&path))?;
        LockFile::acquired(holder, path, target, options)
    }

    /// Creates `<target>.lock` as another name of a lock that this transaction holds. File systems
    /// give a name in a fraction of the time that a file takes, and a lock is no more than a name.
    ///
    /// # Errors
    /// As for [`LockFile::acquire`]; besides, those of a file that can have no more names.
    pub(crate) fn acquire_linked(
        holder: &Holder,
        target: &Path,
        options: LockOptions,
        other: &LockFile,
    ) -> io::Result<LockFile> {
        let path = suffixed(target, ".lock");
        holder.retry(&path, options.timeout, || {
            holder.who.system.hard_link(&other.path, &path)
        })?;
        LockFile::acquired(holder, path, target, options)
    }

    fn acquired(
        holder: &Holder,
        path: PathBuf,
        target: &Path,
        options: LockOptions,
    ) -> io::Result<LockFile> {
        let mut lock = LockFile {
            holder: holder.clone(),
            path,
            file: None,
            written: Written::Nothing,
            shared: options.shared,
            pid_file: options.pid_file,
            is_guarded: false,
            bars: false,
            held: true,
        };
        lock.write_pid_file(target)?;
        Ok(lock)
    }

    fn write_pid_file(&mut self, target: &Path) -> io::Result<()> {
        if !self.pid_file {
            return Ok(());
        }
        let path = suffixed(target, "~pid.lock");
        match self.system().create_new(&path, 0o666) {
            Ok(mut file) => writeln!(file, "pid {}", self.system().process_id()),
            // Left over by a process that died; it says who held the lock last, nothing more.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn system(&self) -> &dyn System {
        self.holder.who.system.as_ref()
    }

    /// Bars the place of the file as well, until the lock is released: a link with the lock's text,
    /// which leads nowhere, keeps everybody from making a directory there. Who looks for a file
    /// behind it finds none.
    ///
    /// # Errors
    /// `AlreadyExists` when there is something; `Unsupported`, or another error of the system, where
    /// such a link cannot be.
    pub(crate) fn bar(&mut self) -> io::Result<()> {
        let text = self.holder.text();
        if text.as_os_str().is_empty() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.system().symlink(text, &self.target())?;
        self.bars = true;
        Ok(())
    }

    /// Returns the path of the lock file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the file that the lock guards.
    pub(crate) fn target(&self) -> PathBuf {
        self.path.with_extension("")
    }

    /// Returns where the new content stands until it is in place.
    pub(crate) fn value_path(&self) -> PathBuf {
        value_path(&self.path)
    }

    /// Writes the new content of the file, in one call if the system allows. What is already there
    /// is continued.
    pub(crate) fn write_all(&mut self, content: &[u8]) -> io::Result<()> {
        let before = self.written;
        let mut file = match self.file.take() {
            Some(file) => file,
            None if before != Written::Nothing => self.system().append(&self.value_path(), None)?,
            None => self.create()?,
        };
        let done = file.write_all(content);
        // A guarded file is the lock, whatever comes of writing.
        self.file = Some(file);
        done?;
        self.written = match before {
            Written::Nothing => Written::Content(journal::checksum(content)),
            Written::Content(sum) => Written::Content(journal::checksum_after(sum, content)),
            Written::Unseen => Written::Unseen,
        };
        Ok(())
    }

    /// Creates the file that takes the new content.
    pub(crate) fn create(&mut self) -> io::Result<Box<dyn WriteFile>> {
        self.make_link()?;
        let path = self.value_path();
        let file = self.fresh(|| self.system().create_new(&path, 0o666))?;
        self.written = Written::Unseen;
        self.shared.adjust(self.system(), &path)?;
        Ok(file)
    }

    /// Makes the file a symbolic link of the given text.
    pub(crate) fn write_link(&mut self, text: &Path) -> io::Result<()> {
        self.make_link()?;
        self.fresh(|| self.system().symlink(text, &self.value_path()))?;
        self.written = Written::Unseen;
        Ok(())
    }

    /// Creates what takes the place of the file, should there be something left of a process that
    /// died too: only the holder of the lock uses the name.
    fn fresh<T>(&self, create: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match create() {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.system().remove_file(&self.value_path())?;
                create()
            }
            created => created,
        }
    }

    /// Makes the content durable.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), |file| file.sync())
    }

    /// Closes the file, so that many locks need not be many descriptors, unless it is the lock.
    pub(crate) fn close(&mut self) {
        if !self.is_guarded {
            self.file = None;
        }
    }

    /// Renames the new content over the file. The lock is still held, unless it was the content;
    /// after a failure this may be tried again.
    pub(crate) fn place(&mut self) -> io::Result<()> {
        if self.is_guarded {
            return self.place_guarded();
        }
        self.close();
        self.system().rename(&self.value_path(), &self.target())?;
        self.written = Written::Nothing;
        Ok(())
    }

    /// Returns the step of a journal that renames the new content over the file.
    pub(crate) fn placing(&self) -> Step {
        Step::Rename {
            from: self.value_path(),
            to: self.target(),
            sum: match self.written {
                Written::Content(sum) => Some(sum),
                Written::Nothing | Written::Unseen => None,
            },
        }
    }

    /// Removes the lock, and new content that is not in place.
    pub(crate) fn release(mut self) -> io::Result<()> {
        self.unlock()
    }

    /// Leaves the lock to whoever finishes what this process began, when it has ended.
    pub(crate) fn leave(mut self) {
        // No journal names a guarded file: nothing would be finished under it.
        if !self.is_guarded {
            self.close();
            self.held = false;
        }
    }

    fn unlock(&mut self) -> io::Result<()> {
        // A guarded file is this process's until it is closed, and so is its name until then.
        let guarded = self.file.take().filter(|_| self.is_guarded);
        if !std::mem::take(&mut self.held) {
            return Ok(());
        }
        let written = std::mem::replace(&mut self.written, Written::Nothing);
        if written != Written::Nothing && guarded.is_none() {
            self.remove(&self.value_path())?;
        }
        self.remove_pid_file();
        if self.bars {
            // Without the lock it might be somebody else's file by then.
            self.remove(&self.target())?;
        }
        self.remove(&self.path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        // What stays is in everybody's way: worth a second attempt.
        remove_if_there(self.system(), path).or_else(|_| remove_if_there(self.system(), path))
    }

    fn remove_pid_file(&self) {
        if self.pid_file {
            // Nobody depends on it: at worst it names a process that no longer holds the lock.
            let _ = self
                .system()
                .remove_file(&suffixed(&self.target(), "~pid.lock"));
        }
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // A failure here leaves the lock file behind; there is nobody left to tell.
        let _ = self.unlock();
    }
}

/// Says why `<target>.lock` could not be created, in Git's words as far as scripts look for them.
pub(crate) fn describe_refusal(system: &dyn System, target: &Path, error: &io::Error) -> String {
    let target = std::path::absolute(target).unwrap_or_else(|_| target.to_owned());
    let path = suffixed(&target, ".lock");
    let message = format!("Unable to create '{}': {}", path.display(), io_text(error));
    if error.kind() != io::ErrorKind::AlreadyExists {
        return message;
    }
    let advice = match holder(system, &target) {
        Some(pid) => format!(
            "Lock may be held by process {pid}; if no git process is running, the lock file may be \
             stale (PIDs can be reused)"
        ),
        None => "Another git process seems to be running in this repository, or the lock file may \
                 be stale"
            .to_owned(),
    };
    let more = owner::describe(system, &path).unwrap_or_default();
    if owner::is_ours(system, &path) {
        return format!("{message}.\n\n{more}");
    }
    format!("{message}.\n\n{advice}. {more}")
}

/// Says why `<target>.lock` could not be created below a barrier.
pub(crate) fn describe_barred(
    system: &dyn System,
    target: &Path,
    barrier: &Path,
    error: &io::Error,
) -> String {
    let path = suffixed(target, ".lock");
    let (path, text) = (path.display(), io_text(error));
    let message = format!("Unable to create '{path}': {text}");
    let about = owner::describe(system, barrier).unwrap_or_default();
    let barrier = barrier.display();
    format!("{message}.\n\nThe directory '{barrier}' is locked as a whole. {about}")
}

/// Returns the process that holds the lock of `target`, if it left its number.
fn holder(system: &dyn System, target: &Path) -> Option<u32> {
    let content = system.read(&suffixed(target, "~pid.lock")).ok()?;
    let number = content.strip_prefix(b"pid ")?.trim_ascii_end();
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// Returns `path` with `suffix` behind its last component.
pub(crate) fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let path = path.as_os_str();
    let mut name = OsString::with_capacity(path.len() + suffix.len());
    name.push(path);
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests;
