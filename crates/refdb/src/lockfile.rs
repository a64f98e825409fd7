//! Lock files: `<file>.lock`, created exclusively, renamed over the file or removed.
//!
//! Invariants:
//! 1. A lock that was acquired is released on every path: by commit, by release, or by drop.
//! 2. A lock that somebody else holds is waited for and never broken.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::error::io_text;
use crate::options::{LockTimeout, SharedRepository};
use crate::system::{System, WriteFile};

/// A lock file that this process holds.
pub(crate) struct LockFile {
    system: Arc<dyn System>,
    path: PathBuf,
    file: Option<Box<dyn WriteFile>>,
    pid_file: bool,
    held: bool,
}

/// What a lock needs to know of the repository's settings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockOptions {
    pub(crate) timeout: LockTimeout,
    pub(crate) shared: SharedRepository,
    /// Write `<file>~pid.lock` beside the lock (`core.lockfilePid`).
    pub(crate) pid_file: bool,
}

impl LockFile {
    /// Creates `<target>.lock`, waiting for another holder as long as the timeout allows.
    ///
    /// # Errors
    /// `AlreadyExists` when the lock is still held after the timeout; any other error of the
    /// system at once.
    pub(crate) fn acquire(
        system: &Arc<dyn System>,
        target: &Path,
        options: LockOptions,
    ) -> io::Result<LockFile> {
        let path = suffixed(target, ".lock");
        let file = retry(system.as_ref(), options.timeout, || {
            system.create_new(&path, 0o666)
        })?;
        let mut lock = LockFile {
            system: Arc::clone(system),
            path,
            file: Some(file),
            pid_file: options.pid_file,
            held: true,
        };
        options.shared.adjust(system.as_ref(), &lock.path)?;
        if options.pid_file {
            lock.write_pid_file(target)?;
        }
        Ok(lock)
    }

    fn write_pid_file(&mut self, target: &Path) -> io::Result<()> {
        let path = suffixed(target, "~pid.lock");
        match self.system.create_new(&path, 0o666) {
            Ok(mut file) => writeln!(file, "pid {}", self.system.process_id()),
            // Left over by a process that died; it says who held the lock last, nothing more.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns the path of the lock file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the file that the lock guards.
    pub(crate) fn target(&self) -> PathBuf {
        self.path.with_extension("")
    }

    /// Writes the content that a commit will give to the file, in one call if the system allows.
    /// A file that was closed is opened again.
    pub(crate) fn write_all(&mut self, content: &[u8]) -> io::Result<()> {
        let mut file = match self.file.take() {
            Some(file) => file,
            None => self.system.append(&self.path, None)?,
        };
        file.write_all(content)?;
        self.file = Some(file);
        Ok(())
    }

    /// Makes the content durable.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), |file| file.sync())
    }

    /// Closes the file and keeps the lock, so that many locks need not be many descriptors.
    pub(crate) fn close(&mut self) {
        self.file = None;
    }

    /// Renames the lock over the file it guards, which also releases it.
    pub(crate) fn commit(mut self) -> io::Result<()> {
        self.rename_over()
    }

    /// As [`LockFile::commit`], but after a failure the lock is still held and may be tried again.
    pub(crate) fn rename_over(&mut self) -> io::Result<()> {
        self.close();
        let target = self.target();
        self.system.rename(&self.path, &target)?;
        self.held = false;
        self.remove_pid_file();
        Ok(())
    }

    /// Removes the lock file and leaves the guarded file as it was.
    pub(crate) fn release(mut self) -> io::Result<()> {
        self.unlock()
    }

    fn unlock(&mut self) -> io::Result<()> {
        self.close();
        if !std::mem::take(&mut self.held) {
            return Ok(());
        }
        self.remove_pid_file();
        match self.system.remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                // A lock that stays is in everybody's way: worth a second attempt.
                self.system.remove_file(&self.path)
            }
            removed => removed,
        }
    }

    fn remove_pid_file(&self) {
        if self.pid_file {
            // Nobody depends on it: at worst it names a process that no longer holds the lock.
            let _ = self
                .system
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
    format!("{message}.\n\n{advice}")
}

/// Returns the process that holds the lock of `target`, if it left its number.
fn holder(system: &dyn System, target: &Path) -> Option<u32> {
    let content = system.read(&suffixed(target, "~pid.lock")).ok()?;
    let number = content.strip_prefix(b"pid ")?.trim_ascii_end();
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// Returns `path` with `suffix` behind its last component.
pub(crate) fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Calls `attempt` until it gives something else than `AlreadyExists`, with growing jittered
/// pauses: n squared milliseconds for the n-th, at most a second, times 0.75 to 1.25.
fn retry<T>(
    system: &dyn System,
    timeout: LockTimeout,
    mut attempt: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    let mut waited = Duration::ZERO;
    let mut step: u64 = 1;
    loop {
        match attempt() {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if !timeout.allows(waited) {
                    return Err(error);
                }
            }
            done => return done,
        }
        let pause_ms = (step * step).min(1000);
        let pause = Duration::from_micros(pause_ms * (750 + system.random() % 501));
        system.sleep(pause);
        waited += pause;
        step += 1;
    }
}
