//! Preparing what becomes of whole reflogs: rewriting, moving, copying and removing them.
//!
//! Invariant: a reflog that is rewritten or copied is complete, and durable, before it gets its name.

use std::path::Path;

use refdb_names::{RefName, RefNameBuf};

use super::Files;
use super::log;
use super::publish::LogAppend;
use super::session::FilesSession;
use crate::backend::{Fate, Judge, LogChange, LogOrder};
use crate::commit::{LockFile, MANY_MIN, between, refused, sweep};
use crate::error::{Error, ErrorKind, OrIo, Result};
use crate::options::LockTimeout;
use crate::reflog::LogEntry;
use crate::system::dirs;
use crate::system::{FileKind, unpoisoned};

/// So many bytes of a rewritten reflog are written at once.
const CHUNK_LEN: usize = 1 << 16;

/// A directory of so many bytes has a few thousand names at most.
const SMALL_DIR_LEN: u64 = 1 << 16;

/// What is to happen to reflogs.
#[derive(Default)]
pub(super) struct WholeLogs {
    /// Reflogs that get another name.
    pub(super) moved: Vec<(RefNameBuf, RefNameBuf)>,
    /// Reflogs that go while their refs stay.
    pub(super) removed: Vec<RefNameBuf>,
    /// Locks that hold a whole new reflog.
    pub(super) written: Vec<(RefNameBuf, LockFile)>,
}

impl WholeLogs {
    pub(super) fn len(&self) -> usize {
        self.moved.len() + self.removed.len() + self.written.len()
    }

    /// Returns whether nothing of the kind is planned.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Notes that everything is done; returns the names that have no reflog any more.
    pub(super) fn was_placed(&mut self) -> impl Iterator<Item = RefNameBuf> {
        for (_, mut lock) in self.written.drain(..) {
            lock.was_placed();
        }
        let moved = std::mem::take(&mut self.moved).into_iter();
        let removed = std::mem::take(&mut self.removed).into_iter();
        moved.map(|(from, _)| from).chain(removed)
    }

    /// Leaves the locks to whoever comes after this process.
    pub(super) fn leave(&mut self) {
        self.written.drain(..).for_each(|(_, lock)| lock.leave());
    }
}

fn write(lock: &mut LockFile, content: &[u8]) -> Result<()> {
    lock.write_all(content).or_io("cannot write", lock.path())
}

impl FilesSession {
    /// Writes a reflog anew into its lock, with what `judge` leaves of it, and `then` behind that.
    pub(super) fn rewrite_log_into_lock(
        &mut self,
        name: RefName<'_>,
        judge: &mut Judge<'_>,
        then: &[LogEntry],
    ) -> Result<bool> {
        let files = &self.files;
        if !files.log_exists(name)? {
            return Ok(false);
        }
        let path = files.log_path(name)?;
        files.tidy_logs_beside(&path);
        let mut kept = Vec::new();
        // Nobody writes to it who has not the lock of its ref: its own is for what is written anew, most often nothing.
        let (mut lock, mut is_gone) = (None, false);
        // Of lines that stay as they are, how long they are.
        let mut same_len = Some(0);
        let is_there =
            files.for_each_log_line(name, LogOrder::OldestFirst, &mut |line, entry| {
                let start = kept.len();
                if let Fate::Keep { old } = judge(&entry)? {
                    log::push_kept(&mut kept, old, line, &entry);
                }
                let new = kept.get(start..).unwrap_or_default();
                let is_same = new.strip_suffix(b"\n") == Some(line);
                same_len = same_len
                    .filter(|_| is_same)
                    .map(|len| len + new.len() as u64);
                if kept.len() >= CHUNK_LEN {
                    if lock.is_none() {
                        lock = self.lock_log(&path)?;
                    }
                    let Some(lock) = &mut lock else {
                        is_gone = true;
                        return Ok(false);
                    };
                    write(lock, &kept)?;
                    kept.clear();
                }
                Ok(true)
            })?;
        if !is_there || is_gone {
            return Ok(false);
        }
        // No line was lost either, such as one that is none: nothing is written.
        let is_whole = || {
            files
                .system
                .lstat(&path)
                .is_ok_and(|stat| Some(stat.len) == same_len)
        };
        // It gets the permissions that it would have if it had been. Who may not do that may write it.
        let is_shared = || {
            let shared = files.options.shared_repository;
            shared.adjust(files.system.as_ref(), &path).is_ok()
        };
        if then.is_empty() && is_whole() && is_shared() {
            return Ok(true);
        }
        for entry in then {
            log::push_entry(&mut kept, entry);
        }
        if lock.is_none() {
            lock = self.lock_log(&path)?;
        }
        let Some(mut lock) = lock else {
            return Ok(false);
        };
        write(&mut lock, &kept)?;
        self.keep_for_publishing(name, lock)?;
        Ok(true)
    }

    /// Keeps a lock whose content is written. Of a few the files stay open, to be synced when it is known how many
    /// there are.
    fn keep_for_publishing(&mut self, name: RefName<'_>, mut lock: LockFile) -> Result<()> {
        let is_synced_later = self.files.system.syncs_at_once();
        if self.files.options.fsync && !is_synced_later {
            lock.sync().or_io("cannot write", lock.path())?;
        }
        let written = &mut self.planned.whole_logs.written;
        if !is_synced_later || written.len() >= MANY_MIN {
            lock.make_ready().or_io("cannot write", lock.path())?;
        }
        written.push((name.to_owned(), lock));
        Ok(())
    }

    /// Makes durable what was written of whole reflogs: a few one by one, many with the locks.
    pub(super) fn sync_whole_logs(&mut self) -> Result<()> {
        let written = &mut self.planned.whole_logs.written;
        let at_once = written.len() >= MANY_MIN && self.files.system.syncs_at_once();
        for (_, lock) in written {
            let mut done = Ok(());
            if self.files.options.fsync && !at_once {
                done = lock.sync();
            }
            let done = done.and_then(|()| lock.make_ready());
            done.or_io("cannot write", lock.path())?;
        }
        self.planned.many_values |= at_once;
        Ok(())
    }

    /// Takes the lock of a reflog; `None` if that went with its directory: whoever removes a reflog alone holds no lock of
    /// the ref.
    fn lock_log(&self, path: &Path) -> Result<Option<LockFile>> {
        let at_once = LockTimeout::from_millis(0);
        let options = self.files.lock_options().within(at_once);
        // A name is had sooner than a file.
        let mut held = self.held.iter().filter_map(|held| held.lock.as_deref());
        let other = held.next().or_else(|| self.bars.locks().next());
        match LockFile::acquire_beside(&self.holder, path, options, other) {
            Ok(lock) => Ok(Some(lock)),
            Err(error) if log::is_blocked(&error) => Ok(None),
            Err(error) => Err(refused(self.files.system.as_ref(), path, error)),
        }
    }

    /// Prepares what becomes of whole reflogs.
    pub(super) fn prepare_whole_logs(&mut self, changes: &[LogChange<'_>]) -> Result<()> {
        for change in changes {
            match *change {
                LogChange::Create(name) => self.planned.logs.push(LogAppend {
                    name: name.to_owned(),
                    lines: Vec::new(),
                    create: true,
                }),
                LogChange::Delete(name) => self.planned.whole_logs.removed.push(name.to_owned()),
                LogChange::Copy { from, to } => self.copy_log_into_lock(from, to)?,
                LogChange::Move { from, to } => {
                    let moved = (from.to_owned(), to.to_owned());
                    self.planned.whole_logs.moved.push(moved);
                }
            }
        }
        Ok(())
    }

    /// Writes a reflog into the lock of another one, with the entries behind it that this one gets. One
    /// that is not there leaves the other as it is.
    fn copy_log_into_lock(&mut self, from: RefName<'_>, to: RefName<'_>) -> Result<()> {
        let files = std::sync::Arc::clone(&self.files);
        if files.len_to_move(from, to)?.is_none() {
            return Ok(());
        }
        let from_path = files.log_path(from)?;
        let (base, path) = (files.log_base(to), files.log_path(to)?);
        let failed = |error| Error::io("unable to copy the reflog to", &path, error);
        let (system, shared) = (files.system.as_ref(), files.options.shared_repository);
        if let Some(dir) = path.parent() {
            let floor = base.parent().unwrap_or(&base);
            dirs::create(system, shared, floor, dir, &mut self.created_dirs).map_err(failed)?;
        }
        let mut content = system.read(&from_path).map_err(failed)?;
        self.planned.logs.retain(|append| {
            let is_other = append.name.as_name() != to;
            if !is_other {
                content.extend_from_slice(&append.lines);
            }
            is_other
        });
        // Should nothing come of it, its directory goes.
        let (_, bare) = files.layout.locate(to);
        self.empty_dirs.add_parent(&base, bare.as_bytes());
        files.tidy_logs_beside(&path);
        let lock = LockFile::acquire(&self.holder, &path, files.lock_options());
        let mut lock = lock.map_err(failed)?;
        let mut written = lock.write_all(&content);
        if files.options.fsync {
            written = written.and_then(|()| lock.sync());
        }
        lock.close();
        written.map_err(failed)?;
        self.planned.whole_logs.written.push((to.to_owned(), lock));
        Ok(())
    }
}

impl Files {
    /// Removes what is left of rewriting reflogs in the directory of `path` by processes that have ended. As that
    /// lists the directory, it is done once; in a large one with the second reflog there, since the first one may be the
    /// only one of many thousands.
    fn tidy_logs_beside(&self, path: &Path) {
        let Some(dir) = path.parent() else { return };
        let mut seen = unpoisoned(&self.rewritten_log_dirs);
        let is_large = || {
            let stat = self.system.stat(dir);
            stat.is_ok_and(|stat| stat.len > SMALL_DIR_LEN)
        };
        let is_due = match seen.get(dir) {
            None => !is_large(),
            Some(is_tidy) => !is_tidy,
        };
        // What cannot be removed is in nobody's way.
        let is_tidy = is_due && sweep(&self.home, dir, false).is_ok();
        if is_due || !seen.contains_key(dir) {
            seen.insert(dir.to_owned(), is_tidy);
        }
    }

    /// Returns how long a reflog is that gets another name, or is copied to it, and makes room for that;
    /// `None` if there is none.
    ///
    /// # Errors
    /// `Io`, also if it is a link, or if another reflog is in the way.
    pub(super) fn len_to_move(&self, from: RefName<'_>, to: RefName<'_>) -> Result<Option<u64>> {
        let (path, to_path) = (self.log_path(from)?, self.log_path(to)?);
        let between = between(&path, &to_path);
        // What an earlier renaming left half way is the reflog.
        for path in [Some(&path), between.as_ref()].into_iter().flatten() {
            let found = log::if_there(self.system.lstat(path));
            match found.or_io("unable to move the reflog to", &to_path)? {
                Some(stat) if stat.kind == FileKind::Symlink => {
                    let message = format!("reflog for {from} is a symlink");
                    return Err(Error::new(ErrorKind::Io, message));
                }
                Some(stat) if stat.kind == FileKind::File => {
                    match between {
                        None => self.clear_log_way(to)?,
                        Some(_) => self.clear_log_way_beside(to, from)?,
                    }
                    return Ok(Some(stat.len));
                }
                _ => {}
            }
        }
        Ok(None)
    }
}
