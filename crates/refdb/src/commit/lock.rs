//! A lock file: `<file>.lock`, created exclusively.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::content::{Content, Part};
use super::entries::barrier;
use super::hold::{Hold, Holder, Signs, lost};
use super::{
    LockOptions, encoding, lock_path, pid_path, put, refused, remove_if_there, value_path,
};
use crate::options::SharedRepository;
use crate::system::{FileId, FileKind, System, WriteFile, if_there};

/// A lock file that this process holds.
///
/// A large write holds one for each ref, so that what is the same for all stands elsewhere.
pub struct LockFile {
    holder: Holder,
    hold: Arc<Hold>,
    path: PathBuf,
    /// What takes the new content, while it is open.
    value: Option<Box<dyn WriteFile>>,
    /// What the new content is, if there is some.
    pub(crate) written: Option<Content>,
    /// What tells it from others if it is long.
    part: Part,
    /// The file that the new content was made from, if that was said; the inner `None` if there was none.
    made_from: Option<Option<FileId>>,
    shared: SharedRepository,
    pid_file: bool,
    /// Whether the lock may take the new content itself.
    is_alone: bool,
    /// Whether the lock bars the place of its file as well.
    bars: bool,
    held: bool,
    /// Whether the lock became the file.
    is_placed: bool,
}

impl LockFile {
    /// Creates `<target>.lock`, waiting for another holder as long as the timeout allows.
    ///
    /// # Errors
    /// `AlreadyExists` when the lock is still held after the timeout; any other error of the
    /// system at once.
    pub fn acquire(holder: &Holder, target: &Path, options: LockOptions) -> io::Result<LockFile> {
        LockFile::create_lock(holder, target, options, false)
    }

    /// As [`LockFile::acquire`], with a refusal that says who holds the lock.
    ///
    /// # Errors
    /// `Locked` when it is held after the timeout; `Io`.
    pub fn take(
        holder: &Holder,
        target: &Path,
        options: LockOptions,
    ) -> crate::error::Result<LockFile> {
        LockFile::acquire(holder, target, options)
            .map_err(|error| refused(holder.system(), target, error))
    }

    /// Creates `<target>.lock` as another name of `other`, if there is that and it can have more names.
    ///
    /// # Errors
    /// As for [`LockFile::acquire`].
    pub(crate) fn acquire_beside(
        holder: &Holder,
        target: &Path,
        options: LockOptions,
        other: Option<&LockFile>,
    ) -> io::Result<LockFile> {
        let linked = other.map(|other| LockFile::acquire_linked(holder, target, options, other));
        let says_more = |error: &io::Error| {
            use io::ErrorKind::{AlreadyExists, NotADirectory, NotFound};
            matches!(error.kind(), AlreadyExists | NotFound | NotADirectory)
        };
        match linked {
            Some(Err(error)) if says_more(&error) => Err(error),
            Some(Ok(lock)) => Ok(lock),
            _ => LockFile::acquire(holder, target, options),
        }
    }

    /// As [`LockFile::acquire_alone`]; but where `other` is given, a lock under which nothing is to be
    /// written, this is another name of it. Neither says then who holds it, as one alone does not: that comes
    /// with what is written under this one, or with a journal.
    ///
    /// # Errors
    /// As for [`LockFile::acquire`].
    pub(crate) fn acquire_with(
        holder: &Holder,
        target: &Path,
        options: LockOptions,
        other: Option<&LockFile>,
    ) -> io::Result<LockFile> {
        let other = other.filter(|other| other.written.is_none());
        match other.map(|other| LockFile::link(holder, target, options, other)) {
            // Anything else may concern the other lock alone.
            Some(Err(error)) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
            Some(Ok(lock)) => Ok(lock),
            _ => LockFile::acquire_alone(holder, target, options),
        }
    }

    /// As [`LockFile::acquire`], of a file that is written alone: its lock takes the new content, and
    /// becomes the file. That saves a name and an inode, a quarter of the time of such a write.
    ///
    /// # Errors
    /// As for [`LockFile::acquire`].
    pub(crate) fn acquire_alone(
        holder: &Holder,
        target: &Path,
        options: LockOptions,
    ) -> io::Result<LockFile> {
        LockFile::create_lock(holder, target, options, true)
    }

    fn create_lock(
        holder: &Holder,
        target: &Path,
        options: LockOptions,
        is_alone: bool,
    ) -> io::Result<LockFile> {
        let path = lock_path(target);
        let signs = match options.shared {
            SharedRepository::Umask if is_alone => Signs::Later,
            SharedRepository::Umask => Signs::IfThereIsRoom,
            // The content would have to get its permissions before its name.
            _ => Signs::AtOnce,
        };
        let hold = holder.retry(&path, options.timeout, || holder.create(&path, signs))?;
        let mut lock = LockFile::acquired(holder, hold, path, options);
        // Without a mark it is signed, and takes no content.
        lock.is_alone = !lock.hold.is_signed();
        lock.write_pid_file(target);
        Ok(lock)
    }

    /// Creates `<target>.lock` as another name of a lock that this transaction holds. File systems
    /// give a name in a fraction of the time that a file takes, and a lock is no more than a name.
    ///
    /// # Errors
    /// As for [`LockFile::acquire`]; besides, those of a file that can have no more names, and
    /// `InvalidInput` if that lock has taken new content.
    pub(crate) fn acquire_linked(
        holder: &Holder,
        target: &Path,
        options: LockOptions,
        other: &LockFile,
    ) -> io::Result<LockFile> {
        other.sign()?;
        LockFile::link(holder, target, options, other)
    }

    fn link(
        holder: &Holder,
        target: &Path,
        options: LockOptions,
        other: &LockFile,
    ) -> io::Result<LockFile> {
        let path = lock_path(target);
        holder.retry(&path, options.timeout, || {
            holder.who.home.system.hard_link(&other.path, &path)
        })?;
        other.hold.add_name();
        let mut lock = LockFile::acquired(holder, Arc::clone(&other.hold), path, options);
        lock.write_pid_file(target);
        Ok(lock)
    }

    fn acquired(holder: &Holder, hold: Arc<Hold>, path: PathBuf, options: LockOptions) -> LockFile {
        LockFile {
            holder: holder.plain(),
            hold,
            path,
            value: None,
            written: None,
            part: Part::default(),
            made_from: None,
            shared: options.shared,
            pid_file: options.pid_file,
            is_alone: false,
            bars: false,
            held: true,
            is_placed: false,
        }
    }

    /// Writes who holds the lock beside it, for people. Where that cannot be written, a name is too long for it,
    /// say, there is none, as with Git.
    fn write_pid_file(&mut self, target: &Path) {
        if !self.pid_file {
            return;
        }
        match self.system().create_new(&pid_path(target), 0o666) {
            Ok(mut file) => drop(writeln!(file, "pid {}", self.system().process_id())),
            // Left over by a process that died; it says who held the lock last, nothing more. What is
            // no such file is not removed with the lock either.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let stat = self.system().lstat(&pid_path(target));
                self.pid_file = stat.is_ok_and(|stat| stat.kind == FileKind::File);
            }
            Err(_) => self.pid_file = false,
        }
    }

    fn system(&self) -> &dyn System {
        self.holder.who.home.system.as_ref()
    }

    /// Returns whether the lock takes new content itself, unless it is signed first.
    pub(crate) fn is_alone(&self) -> bool {
        self.is_alone && !self.hold.is_signed()
    }

    /// Writes into the lock who holds it, so that it can have further names and be in a journal.
    ///
    /// # Errors
    /// Those of the system, and `InvalidInput` if the new content is already in the lock; the lock
    /// is as it was then.
    pub(crate) fn sign(&self) -> io::Result<()> {
        if self.is_alone() && self.written.is_some() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.hold.sign(self.holder.owner())
    }

    /// Bars the place of the file as well, until the lock is released or the file is there: a link that
    /// leads nowhere keeps everybody from making a directory there. Who looks for a file behind it
    /// finds none. The link is a name of another one, if there is: that is less work.
    ///
    /// # Errors
    /// `AlreadyExists` when there is something; another error of the system where such a link
    /// cannot be.
    pub(crate) fn bar(&mut self, other: Option<&Path>) -> io::Result<()> {
        let target = self.target();
        let new = || self.system().symlink(&barrier(self.system()), &target);
        let mut made = match other {
            Some(other) => self.system().hard_link(other, &target),
            None => new(),
        };
        let is_there = |made: &io::Result<()>| matches!(made, Err(error) if error.kind() == io::ErrorKind::AlreadyExists);
        if made.is_err() && !is_there(&made) && other.is_some() {
            made = new();
        }
        // Who puts one here has this lock: one that is there is left of a process that has ended.
        let is_left = is_there(&made) && super::is_barrier(self.system(), &target);
        if !is_left {
            made?;
        }
        self.bars = true;
        Ok(())
    }

    /// Notes that the barrier was removed.
    pub(crate) fn was_unbarred(&mut self) {
        self.bars = false;
    }

    /// Returns whether the lock bars the place of its file.
    pub(crate) fn bars(&self) -> bool {
        self.bars
    }

    /// Returns whether the barrier is still there, if the lock has one.
    pub(crate) fn is_barred(&self) -> bool {
        !self.bars || super::is_barrier(self.system(), &self.target())
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
        match self.is_alone() {
            true => self.path.clone(),
            false => value_path(&self.target(), self.holder.owner().id),
        }
    }

    /// Writes the new content of the file, in one call if the system allows. What is already there
    /// is continued.
    pub fn write_all(&mut self, content: &[u8]) -> io::Result<()> {
        let before = self.written;
        if self.is_alone() {
            self.hold.file().write_all(content)?;
        } else {
            let mut file = match self.value.take() {
                Some(file) => file,
                None if before.is_some() => self.system().append(&self.value_path())?,
                None => self.create()?,
            };
            file.write_all(content)?;
            self.value = Some(file);
        }
        self.written = Some(Content::after(before, &mut self.part, content));
        Ok(())
    }

    /// Creates the file that takes the new content.
    pub(crate) fn create(&mut self) -> io::Result<Box<dyn WriteFile>> {
        self.sign()?;
        let path = self.value_path();
        let file = self.fresh(|| self.system().create_new(&path, 0o666))?;
        self.written = Some(Content::after(None, &mut self.part, b""));
        self.shared.adjust(self.system(), &path)?;
        Ok(file)
    }

    /// Makes the file a symbolic link of the given text.
    pub(crate) fn write_link(&mut self, text: &Path) -> io::Result<()> {
        self.sign()?;
        self.fresh(|| self.system().symlink(text, &self.value_path()))?;
        self.written = Some(Content::Sum(encoding::checksum(
            text.as_os_str().as_bytes(),
        )));
        Ok(())
    }

    /// Notes what the new content is made from, which has to be there when that is put in place: who was in
    /// between had a lock that somebody took away from him, or took this one.
    pub(crate) fn made_from(&mut self, file: Option<FileId>) {
        self.made_from = Some(file);
    }

    /// Creates what takes the place of the file, should there be something left of an attempt that failed
    /// too: only the holder of the lock uses the name.
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
    pub fn sync(&mut self) -> io::Result<()> {
        if self.is_alone() {
            return self.hold.file().sync();
        }
        self.value.as_mut().map_or(Ok(()), |file| file.sync())
    }

    /// Closes the file with the new content, so that many locks need not be many descriptors.
    pub(crate) fn close(&mut self) {
        self.value = None;
    }

    /// Makes ready what is written: from here on the step that puts it in place may be taken.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn make_ready(&mut self) -> io::Result<()> {
        self.close();
        match self.is_alone() {
            true => self.hold.file().reveal(),
            false => Ok(()),
        }
    }

    /// Renames the new content over the file. The lock is still held, unless it was the content;
    /// after a failure this may be tried again.
    ///
    /// # Errors
    /// Those of the system, and `ESTALE` if somebody took the lock away, or what was written through it.
    pub fn place(&mut self) -> io::Result<()> {
        self.check_name()?;
        self.make_ready()?;
        put::rename(self.system(), &self.value_path(), &self.target())?;
        self.was_placed();
        Ok(())
    }

    /// Makes sure that the lock has its name, and what was written through it as well, and that this was made
    /// from what is there.
    ///
    /// # Errors
    /// `Locked` if somebody took one of them away; nothing may be published then. `Io`.
    pub fn check(&self) -> crate::error::Result<()> {
        self.check_name().map_err(lost)
    }

    pub(super) fn check_name(&self) -> io::Result<()> {
        let is_whole = self.has_name()?
            && (self.is_alone()
                || self.written.is_none()
                || self.system().find(&self.value_path())?.is_some())
            && self.is_made_from_this()?;
        if is_whole {
            return Ok(());
        }
        self.hold.tear();
        Err(rustix::io::Errno::STALE.into())
    }

    fn is_made_from_this(&self) -> io::Result<bool> {
        let Some(made_from) = self.made_from.filter(|_| self.written.is_some()) else {
            return Ok(true);
        };
        // It was read where a link leads that is in its place.
        let found = if_there(self.system().stat(&self.target()))?;
        Ok(found.as_ref().map(FileId::of) == made_from)
    }

    pub(crate) fn holder(&self) -> &Holder {
        &self.holder
    }

    /// Notes that the new content is in place. With a lock that takes it itself, that gives the lock away.
    pub(crate) fn was_placed(&mut self) {
        if self.is_alone() && self.written.is_some() {
            self.held = false;
            self.is_placed = true;
            self.remove_pid_file();
        }
        self.written = None;
        // The file has the place of the barrier.
        self.bars = false;
    }

    pub(super) fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }

    /// Removes the lock, and new content that is not in place.
    pub fn release(mut self) -> io::Result<()> {
        self.unlock()
    }

    /// Leaves the lock to whoever finishes what this process began, when it has ended.
    pub(crate) fn leave(mut self) {
        self.close();
        if std::mem::take(&mut self.held) {
            Arc::clone(&self.hold).keep();
        }
    }

    /// Lets go of the lock as a process does that ends: it stays, and nobody has it.
    pub(crate) fn abandon(&mut self) {
        self.held = false;
    }

    fn unlock(&mut self) -> io::Result<()> {
        self.close();
        if !std::mem::take(&mut self.held) {
            return Ok(());
        }
        let is_alone = self.is_alone();
        let written = self.written.take();
        if written.is_some() && !is_alone {
            self.remove(&self.value_path())?;
        }
        // What does not have its name any more must not be taken for it.
        let has_name = || self.has_name().or_else(|_| self.has_name());
        let is_ours = self.hold.is_whole() || has_name().unwrap_or(false);
        self.hold.lose_name();
        if !is_ours {
            // Somebody took it away, and it may be somebody else's by now. What it barred may be so
            // as well, unless the lock is to be had.
            if std::mem::take(&mut self.bars)
                && let Ok(_lock) =
                    LockFile::acquire(&self.holder, &self.target(), LockOptions::AT_ONCE)
                && super::is_barrier(self.system(), &self.target())
            {
                return self.remove(&self.target());
            }
            return Ok(());
        }
        self.remove_pid_file();
        // Without the lock it might be somebody else's file by then; it is so already if somebody removed the barrier.
        if self.bars && (self.is_barred() || self.is_barred()) {
            self.remove(&self.target())?;
        }
        self.remove(&self.path)
    }

    fn has_name(&self) -> io::Result<bool> {
        let ours = self.hold.file().identity()?;
        let named = self.system().find(&self.path)?;
        Ok(named.is_some_and(|named| ours == (named.dev, named.ino)))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        // What stays is in everybody's way: worth a second attempt.
        remove_if_there(self.system(), path).or_else(|_| remove_if_there(self.system(), path))
    }

    fn remove_pid_file(&self) {
        if self.pid_file {
            // Nobody depends on it: at worst it names a process that no longer holds the lock.
            let _ = self.system().remove_file(&pid_path(&self.target()));
        }
    }
}

/// Returns the error of new content that could not be put in place. It is gone only if somebody took it away.
pub(crate) fn not_placed(what: &str, path: &Path, error: io::Error) -> crate::error::Error {
    match error.kind() {
        io::ErrorKind::StaleNetworkFileHandle | io::ErrorKind::NotFound => {
            lost(rustix::io::Errno::STALE.into())
        }
        _ => crate::error::Error::io(what, path, error),
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // A failure here leaves the lock file behind; there is nobody left to tell.
        let _ = self.unlock();
        if self.is_placed {
            // The mark says nothing of a file that is no lock: it is only not to be seen. It stays until
            // the new name is durable: the old one may come back with a loss of power.
            let _ = self.hold.file().unguard();
        }
    }
}
