//! The journal: what a transaction that takes several steps is about to do.
//!
//! It is `refdb.journal` in the repository's directory, and exists while such a transaction makes
//! itself visible. If the process ends meanwhile, the next one that reads or writes refs does all
//! the steps again, and then removes the journal and the locks. One that finds no journal has
//! nothing to ask.
//!
//! Invariants:
//! 1. The journal is whole and, like all that its steps need (new content under its own name, the
//!    locks), durable before the first step is taken; every step is durable before the journal goes.
//! 2. Doing a step twice is as doing it once.
//! 3. A step is taken only while the lock that guards it is the transaction's own: what it changes
//!    has been changed by nobody else since. Locks are given back after the journal is gone.
//! 4. One journal at a time: whoever writes it holds `refdb.journal.lock`.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bstr::ByteSlice;

use super::owner::{Fate, Owner};
use super::takeover::remove_with_barrier;
use super::{Holder, LockFile, LockOptions, remove_if_there};
use crate::error::{Error, ErrorKind, Result};
use crate::system::{System, bytes_to_path, remove_empty_tree};

const HEADER: &[u8] = b"refdb journal 2\n";

/// How the journals of all versions begin.
const HEADER_START: &[u8] = b"refdb journal ";

/// How long recovery waits for another process that is at it.
const GUARD_WAIT: Duration = Duration::from_secs(30);

/// How much of a journal is read to see whose it is.
const HEAD_LEN: usize = 8 << 10;

/// One step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A file that nobody else knows gets the name under which it is read; if `sum` is given, only
    /// one whose content has this checksum.
    Rename {
        from: PathBuf,
        to: PathBuf,
        sum: Option<u64>,
    },
    /// A file is removed.
    Remove { path: PathBuf },
    /// Lines come behind the first `len` bytes of a file, which is made if it is not there.
    Append {
        path: PathBuf,
        len: u64,
        lines: Vec<u8>,
    },
}

/// The steps of a transaction, each with the lock that guards it.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    locks: Vec<Guarding>,
    steps: Vec<(usize, Step)>,
}

/// A lock of the transaction, and the text by which it is recognised.
#[derive(Debug)]
struct Guarding {
    path: PathBuf,
    text: Arc<Path>,
}

impl Guarding {
    /// Returns whether the lock is still the transaction's.
    fn is_held(&self, system: &dyn System) -> bool {
        let found = system.read_link(&self.path);
        found.is_ok_and(|found| *found == *self.text)
    }
}

impl Steps {
    /// Adds a lock of the transaction; returns what to call it in [`Steps::add`].
    pub(crate) fn lock(&mut self, lock: &LockFile) -> usize {
        self.locks.push(Guarding {
            path: lock.path.clone(),
            text: Arc::clone(lock.holder.text()),
        });
        self.locks.len() - 1
    }

    /// Adds a step that is guarded by a lock.
    pub(crate) fn add(&mut self, lock: usize, step: Step) {
        self.steps.push((lock, step));
    }
}

/// A journal that this transaction wrote.
pub(crate) struct Journal {
    holder: Holder,
    lock: LockFile,
    steps: Steps,
}

fn journal_path(git_dir: &Path) -> PathBuf {
    git_dir.join("refdb.journal")
}

impl Journal {
    /// Writes the journal: from here on the transaction is committed, whatever becomes of this
    /// process. With `fsync` it is durable, and so has to be all that the steps need.
    ///
    /// # Errors
    /// `Locked` when another transaction is at it for too long; `Io`. Nothing is committed then.
    pub(crate) fn commit(
        holder: &Holder,
        options: LockOptions,
        fsync: bool,
        steps: Steps,
    ) -> Result<Journal> {
        let path = journal_path(&holder.who.git_dir);
        let mut lock = LockFile::acquire(holder, &path, options).map_err(|error| {
            let kind = match error.kind() {
                io::ErrorKind::AlreadyExists => ErrorKind::Locked,
                _ => ErrorKind::Io,
            };
            let message = super::describe_refusal(holder.who.system.as_ref(), &path, &error);
            Error::new(kind, message).with_source(error)
        })?;
        let failed = |error| Error::io("unable to write", &path, error);
        // Whose lock is gone, its journal is not to be lost for that.
        recover(&holder.who.system, &holder.who.git_dir)?;
        if holder.who.system.lstat(&path).is_ok() {
            let error = io::ErrorKind::AlreadyExists.into();
            return Err(failed(error));
        }
        lock.write_all(&steps.encode(&holder.who.git_dir, lock.holder.text()))
            .map_err(failed)?;
        if fsync {
            lock.sync().map_err(failed)?;
        }
        lock.place().map_err(failed)?;
        let journal = Journal {
            holder: holder.clone(),
            lock,
            steps,
        };
        if fsync && let Err(error) = holder.who.system.sync_dir(&holder.who.git_dir) {
            journal.end()?;
            return Err(Error::io("unable to sync", &holder.who.git_dir, error));
        }
        Ok(journal)
    }

    /// Takes every step again that was not taken, after one of them failed.
    ///
    /// # Errors
    /// `Io`: the transaction is committed in part, and the next process will try again.
    pub(crate) fn redo(&self) -> Result<()> {
        self.steps.redo(self.holder.who.system.as_ref())
    }

    /// Removes the journal, after every step is durable.
    ///
    /// # Errors
    /// `Io`; the journal is still there, and with its locks gone it does no harm.
    pub(crate) fn end(self) -> Result<()> {
        let path = journal_path(&self.holder.who.git_dir);
        let system = self.holder.who.system.as_ref();
        remove_if_there(system, &path)
            .or_else(|_| remove_if_there(system, &path))
            .map_err(|error| Error::io("unable to remove", &path, error))?;
        self.lock
            .release()
            .map_err(|error| Error::io("unable to unlock", &path, error))
    }

    /// Leaves the journal to whoever comes when this process has ended.
    pub(crate) fn leave(self) {
        self.lock.leave();
    }
}

/// Finishes the transaction that a process began and did not finish before it ended, if there is
/// one. To be called before anything is said about refs, and before anything is locked.
///
/// # Errors
/// `Io`; the transaction is then still to be finished. It is no error if that is only because this
/// process may not write.
pub(crate) fn recover(system: &Arc<dyn System>, git_dir: &Path) -> Result<()> {
    let path = journal_path(git_dir);
    let mut waited = Duration::ZERO;
    loop {
        // The common case, and the only question that costs every reader something.
        match system.lstat(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(()),
            _ => {}
        }
        if !is_dead(system.as_ref(), &path)? {
            return Ok(());
        }
        let guard = system
            .guard_dir(git_dir)
            .map_err(|error| Error::io("unable to lock", git_dir, error))?;
        if guard.is_some() {
            return match recover_guarded(system, git_dir) {
                // Who may not write reads what there is, as Git does. No writer gets past the locks
                // of the dead process, which are taken over with its journal or not at all.
                Err(error) if may_not_write(&error) => Ok(()),
                done => done,
            };
        }
        if waited > GUARD_WAIT {
            let message = format!(
                "{}: another process has been finishing this transaction for too long",
                path.display()
            );
            return Err(Error::new(ErrorKind::Locked, message));
        }
        let pause = Duration::from_millis(2);
        system.sleep(pause);
        waited += pause;
    }
}

fn may_not_write(error: &Error) -> bool {
    matches!(
        error.io_kind(),
        Some(io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
    )
}

/// Returns whether the journal is one that has to be dealt with here: that of a process that has
/// ended, or one that was never finished. One that is gone by now is not.
fn is_dead(system: &dyn System, path: &Path) -> Result<bool> {
    let read = |error: io::Error| Error::io("unable to read", path, error);
    let head = match system.read_at_most(path, HEAD_LEN) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        head => head.map_err(read)?,
    };
    let Some(owner) = owner_of(&head).and_then(Owner::parse) else {
        return Ok(true);
    };
    let made_ns = match system.lstat(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        stat => stat.map_err(read)?.mtime_ns,
    };
    Ok(owner.fate(system, made_ns) == Fate::Dead)
}

fn owner_of(content: &[u8]) -> Option<&Path> {
    let rest = content.strip_prefix(HEADER)?;
    rest.split_once_str("\0")
        .map(|(text, _)| bytes_to_path(text))
}

/// As [`recover`], for a caller that has the repository's directory for itself.
pub(super) fn recover_guarded(system: &Arc<dyn System>, git_dir: &Path) -> Result<()> {
    let path = journal_path(git_dir);
    // Another process may have done all this meanwhile.
    if system.lstat(&path).is_err() || !is_dead(system.as_ref(), &path)? {
        return Ok(());
    }
    let content = system
        .read(&path)
        .map_err(|error| Error::io("unable to read", &path, error))?;
    let unfinished = |error: Error| {
        error.context(format_args!(
            "a transaction that a process began and did not finish ('{}') cannot be finished",
            path.display()
        ))
    };
    let is_foreign = |line: &[u8]| line.starts_with(HEADER_START) && !HEADER.starts_with(line);
    if content
        .split_once_str("\n")
        .is_some_and(|(line, _)| is_foreign(line))
    {
        let message = "another version of refdb wrote it: let that version read the refs once";
        return Err(unfinished(Error::new(ErrorKind::Corrupt, message)));
    }
    // A journal that is not whole was never committed: without fsync power failed before its
    // content was written.
    if let Some((text, steps)) = Steps::decode(&content, git_dir) {
        steps.redo(system.as_ref()).map_err(unfinished)?;
        system
            .sync_file_system(git_dir)
            .map_err(|error| unfinished(Error::io("unable to sync", git_dir, error)))?;
        remove_if_there(system.as_ref(), &path)
            .map_err(|error| unfinished(Error::io("unable to remove", &path, error)))?;
        let own = Guarding {
            path: super::suffixed(&path, ".lock"),
            text,
        };
        for lock in steps.locks.iter().chain([&own]) {
            if lock.is_held(system.as_ref()) {
                remove_with_barrier(system.as_ref(), &lock.path, &lock.text)
                    .map_err(|error| Error::io("unable to remove", &lock.path, error))?;
            }
        }
        return Ok(());
    }
    remove_if_there(system.as_ref(), &path)
        .map_err(|error| Error::io("unable to remove", &path, error))
}

impl Steps {
    /// Takes every step whose lock is still the transaction's.
    fn redo(&self, system: &dyn System) -> Result<()> {
        for (lock, step) in &self.steps {
            let lock = self.locks.get(*lock);
            if lock.is_some_and(|lock| lock.is_held(system)) {
                step.take(system)?;
            }
        }
        Ok(())
    }

    /// Returns the journal's content.
    fn encode(&self, git_dir: &Path, text: &Path) -> Vec<u8> {
        let mut out = HEADER.to_vec();
        let push = |out: &mut Vec<u8>, field: &[u8]| {
            out.extend_from_slice(field);
            out.push(0);
        };
        let push_path = |out: &mut Vec<u8>, path: &Path| {
            // The repository may be moved before this is read.
            let path = path.strip_prefix(git_dir).unwrap_or(path);
            push(out, path.as_os_str().as_bytes());
        };
        let push_number = |out: &mut Vec<u8>, number: u64| push(out, number.to_string().as_bytes());
        push(&mut out, text.as_os_str().as_bytes());
        let mut last = None;
        for Guarding { path, text } in &self.locks {
            if last.replace(text) != Some(text) {
                push(&mut out, b"owner");
                push(&mut out, text.as_os_str().as_bytes());
            }
            push(&mut out, b"lock");
            push_path(&mut out, path);
        }
        for (lock, step) in &self.steps {
            push(&mut out, step.word());
            push_number(&mut out, *lock as u64);
            match step {
                Step::Rename { from, to, sum } => {
                    push_path(&mut out, from);
                    push_path(&mut out, to);
                    let sum = sum.map(|sum| sum.to_string());
                    push(&mut out, sum.unwrap_or_default().as_bytes());
                }
                Step::Remove { path } => push_path(&mut out, path),
                Step::Append { path, len, lines } => {
                    push_path(&mut out, path);
                    push_number(&mut out, *len);
                    push_number(&mut out, lines.len() as u64);
                    out.extend_from_slice(lines);
                }
            }
        }
        let sum = checksum(&out);
        push(&mut out, b"end");
        push(&mut out, format!("{sum:016x}").as_bytes());
        out
    }

    /// Reads the content of a journal: the text of its locks, and its steps. `None` if it is not
    /// whole.
    fn decode(content: &[u8], git_dir: &Path) -> Option<(Arc<Path>, Steps)> {
        let mut fields = Fields {
            rest: content.strip_prefix(HEADER)?,
            git_dir,
        };
        let own: Arc<Path> = bytes_to_path(fields.next()?).into();
        let mut text = Arc::clone(&own);
        let mut steps = Steps::default();
        loop {
            let at = content.len() - fields.rest.len();
            let word = fields.next()?;
            if word == b"owner" {
                text = bytes_to_path(fields.next()?).into();
                continue;
            }
            if word == b"lock" {
                steps.locks.push(Guarding {
                    path: fields.path()?,
                    text: Arc::clone(&text),
                });
                continue;
            }
            if word == b"end" {
                let sum = format!("{:016x}", checksum(content.get(..at)?));
                let whole = fields.next()? == sum.as_bytes() && fields.rest.is_empty();
                return whole.then_some((own, steps));
            }
            let lock = usize::try_from(fields.number()?).ok()?;
            let step = match word {
                b"rename" => Step::Rename {
                    from: fields.path()?,
                    to: fields.path()?,
                    sum: fields.number_or_none()?,
                },
                b"remove" => Step::Remove {
                    path: fields.path()?,
                },
                b"append" => Step::Append {
                    path: fields.path()?,
                    len: fields.number()?,
                    lines: fields.counted()?,
                },
                _ => return None,
            };
            steps.steps.push((lock, step));
        }
    }
}

impl Step {
    fn word(&self) -> &'static [u8] {
        match self {
            Step::Rename { .. } => b"rename",
            Step::Remove { .. } => b"remove",
            Step::Append { .. } => b"append",
        }
    }

    /// Takes the step, if it was not taken.
    fn take(&self, system: &dyn System) -> Result<()> {
        match self {
            Step::Rename { from, to, sum } => {
                if let Some(sum) = sum
                    && !has_sum(system, from, *sum)?
                {
                    // It is there already; this is the content of a later transaction. A power
                    // failure brought the journal back, and the lock, which the later one had taken.
                    return Ok(());
                }
                let mut renamed = system.rename(from, to);
                if renamed.is_err() && remove_empty_tree(system, to) {
                    renamed = system.rename(from, to);
                }
                match renamed {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                    renamed => renamed.map_err(|error| Error::io("unable to replace", to, error)),
                }
            }
            Step::Remove { path } => match remove_if_there(system, path) {
                Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(()),
                Err(error) if error.kind() == io::ErrorKind::IsADirectory => Ok(()),
                removed => removed.map_err(|error| Error::io("unable to remove", path, error)),
            },
            Step::Append { path, len, lines } => match append(system, path, *len, lines) {
                // Something has the place of the reflog that was not there when the transaction
                // was committed: its entries are lost, and nothing waits for them.
                Err(error) if error.kind() == io::ErrorKind::IsADirectory => Ok(()),
                Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(()),
                appended => appended.map_err(|error| Error::io("unable to append to", path, error)),
            },
        }
    }
}

fn has_sum(system: &dyn System, path: &Path, sum: u64) -> Result<bool> {
    match system.read(path) {
        Ok(content) => Ok(checksum(&content) == sum),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::io("unable to read", path, error)),
    }
}

/// Puts `lines` behind the first `len` bytes of a file. A part of them may be there already, or
/// what a power failure left of them: nobody else writes to the file while its lock is held.
fn append(system: &dyn System, path: &Path, len: u64, lines: &[u8]) -> io::Result<()> {
    let content = match system.read(path) {
        Ok(content) => content,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
            if !remove_empty_tree(system, path) {
                return Err(error);
            }
            Vec::new()
        }
        Err(error) => return Err(error),
    };
    let len = usize::try_from(len)
        .unwrap_or(usize::MAX)
        .min(content.len());
    let (before, tail) = content.split_at(len);
    if tail.starts_with(lines) {
        return Ok(());
    }
    if let Some(missing) = lines.strip_prefix(tail) {
        create_parents(system, path)?;
        return system.append(path, Some(0o666))?.write_all(missing);
    }
    let new = super::value_path(&super::suffixed(path, ".lock"));
    remove_if_there(system, &new)?;
    let mut file = system.create_new(&new, 0o666)?;
    file.write_all(before)?;
    file.write_all(lines)?;
    file.sync()?;
    system.rename(&new, path)
}

fn create_parents(system: &dyn System, path: &Path) -> io::Result<()> {
    let Some(dir) = path.parent() else {
        return Ok(());
    };
    match system.create_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            create_parents(system, dir)?;
            system.create_dir(dir)
        }
        created => created,
    }
}

/// Reads the fields of a journal one after the other.
struct Fields<'c> {
    rest: &'c [u8],
    git_dir: &'c Path,
}

impl<'c> Fields<'c> {
    fn next(&mut self) -> Option<&'c [u8]> {
        let (field, rest) = self.rest.split_once_str("\0")?;
        self.rest = rest;
        Some(field)
    }

    fn path(&mut self) -> Option<PathBuf> {
        Some(self.git_dir.join(bytes_to_path(self.next()?)))
    }

    fn number(&mut self) -> Option<u64> {
        self.number_or_none()?
    }

    /// Returns a number, or nothing if the field is empty.
    fn number_or_none(&mut self) -> Option<Option<u64>> {
        match self.next()? {
            b"" => Some(None),
            field => std::str::from_utf8(field).ok()?.parse().ok().map(Some),
        }
    }

    fn counted(&mut self) -> Option<Vec<u8>> {
        let count = usize::try_from(self.number()?).ok()?;
        let (lines, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(lines.to_vec())
    }
}

/// FNV-1a: tells content that is whole from content that is not.
pub(super) fn checksum(content: &[u8]) -> u64 {
    checksum_after(0xcbf2_9ce4_8422_2325, content)
}

/// Returns the checksum of what has the checksum `sum` and of `content` behind it.
pub(super) fn checksum_after(sum: u64, content: &[u8]) -> u64 {
    content.iter().fold(sum, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
