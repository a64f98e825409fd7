//! Lock files: `<file>.lock`, created exclusively, renamed over the file or removed.
//!
//! Invariants:
//! 1. A lock that was acquired is released on every path: by commit, by release, or by drop.
//! 2. A lock that somebody else holds is waited for and never broken.
//! 3. Lock files that share an inode are never written: a new file takes the name first.

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
    // Whether other locks are names of the same file.
    linked: bool,
    options: LockOptions,
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
            linked: false,
            options,
            held: true,
        };
        options.shared.adjust(system.as_ref(), &lock.path)?;
        lock.write_pid_file(target)?;
        Ok(lock)
    }

    /// Creates `<target>.lock` as another name of a lock file that this process holds. File systems
    /// give a name in a fraction of the time that a file takes, and a lock is no more than a name.
    ///
    /// # Errors
    /// As for [`LockFile::acquire`]; besides, those of a file that can have no more names.
    pub(crate) fn acquire_linked(
        system: &Arc<dyn System>,
        target: &Path,
        options: LockOptions,
        other: &mut LockFile,
    ) -> io::Result<LockFile> {
        let path = suffixed(target, ".lock");
        other.close();
        other.linked = true;
        retry(system.as_ref(), options.timeout, || {
            system.hard_link(&other.path, &path)
        })?;
        let mut lock = LockFile {
            system: Arc::clone(system),
            path,
            file: None,
            linked: true,
            options,
            held: true,
        };
        lock.write_pid_file(target)?;
        Ok(lock)
    }

    fn write_pid_file(&mut self, target: &Path) -> io::Result<()> {
        if !self.options.pid_file {
            return Ok(());
        }
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
            None if self.linked => self.unlinked()?,
            None => self.system.append(&self.path, None)?,
        };
        file.write_all(content)?;
        self.file = Some(file);
        Ok(())
    }

    /// Puts a file of its own in the place of one that other locks share.
    fn unlinked(&mut self) -> io::Result<Box<dyn WriteFile>> {
        let path = hidden(&self.path);
        let mut file = self.system.create_new(&path, 0o666);
        if matches!(&file, Err(error) if error.kind() == io::ErrorKind::AlreadyExists) {
            // Only the holder of the lock uses this name: it was left by one that died.
            self.system.remove_file(&path)?;
            file = self.system.create_new(&path, 0o666);
        }
        let file = file?;
        let adjusted = self.options.shared.adjust(self.system.as_ref(), &path);
        if let Err(error) = adjusted.and_then(|()| self.system.rename(&path, &self.path)) {
            // At worst a file stays that readers pass over.
            let _ = self.system.remove_file(&path);
            return Err(error);
        }
        self.linked = false;
        Ok(file)
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
        if self.options.pid_file {
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

/// Returns a name beside `path` that readers of refs pass over, since it starts with a dot.
pub(crate) fn hidden(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    path.with_file_name(name)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::OsSystem;

    #[test]
    fn linked_locks_are_locks_and_are_written_apart() {
        let dir = tempfile::tempdir().unwrap();
        let system: Arc<dyn System> = Arc::new(OsSystem::new());
        let at = |name: &str| dir.path().join(name);
        let options = LockOptions {
            timeout: LockTimeout::from_millis(0),
            shared: SharedRepository::Umask,
            pid_file: false,
        };
        let mut first = LockFile::acquire(&system, &at("a"), options).unwrap();
        let mut second = LockFile::acquire_linked(&system, &at("b"), options, &mut first).unwrap();
        for held in ["a", "b"] {
            let error = LockFile::acquire(&system, &at(held), options)
                .err()
                .unwrap();
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
            let linked = LockFile::acquire_linked(&system, &at(held), options, &mut first);
            assert_eq!(linked.err().unwrap().kind(), io::ErrorKind::AlreadyExists);
        }
        std::fs::write(at(".b.lock"), "left over").unwrap();
        second.write_all(b"two").unwrap();
        second.write_all(b"!").unwrap();
        assert!(!at(".b.lock").exists());
        first.write_all(b"one").unwrap();
        first.commit().unwrap();
        second.commit().unwrap();
        assert_eq!(std::fs::read(at("a")).unwrap(), b"one");
        assert_eq!(std::fs::read(at("b")).unwrap(), b"two!");
        assert!(!at("a.lock").exists() && !at("b.lock").exists());
    }
}
