//! Writing whole reflogs: rewriting, moving, copying and removing them.
//!
//! Invariants:
//! 1. A reflog that is rewritten or copied is complete, and durable, before it gets its name.
//! 2. A reflog that moves has a name at every moment: where the way from one name to the other
//!    leads through a directory that is still a file, or the other way round, it stays under a name
//!    that the next attempt looks for.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::directories;
use super::log;
use super::publish::add_parent;
use super::session::FilesSession;
use crate::backend::{Fate, Judge, LogChange, LogOrder};
use crate::commit::{LockFile, describe_refusal, suffixed};
use crate::error::{Error, ErrorKind, Result};
use crate::name::{RefName, RefNameBuf};
use crate::options::LockTimeout;
use crate::reflog::LogEntry;
use crate::system::{FileKind, remove_empty_tree};

/// So many bytes of a rewritten reflog are written at once.
const CHUNK_LEN: usize = 1 << 16;

/// What is to happen to reflogs.
#[derive(Default)]
pub(super) struct WholeLogs {
    moves: Vec<LogMove>,
    // Reflogs that go while their refs stay.
    removed: Vec<RefNameBuf>,
    // Locks that hold a whole new reflog.
    rewritten: Vec<LockFile>,
}

/// A reflog that gets the name of another one, or is copied to it.
struct LogMove {
    from: RefNameBuf,
    to: RefNameBuf,
    copies: bool,
    done: bool,
}

impl WholeLogs {
    /// Takes over what becomes of whole reflogs; returns those that are to be made.
    pub(super) fn plan<'a>(&mut self, changes: &[LogChange<'a>]) -> Vec<RefName<'a>> {
        let mut made = Vec::new();
        for change in changes {
            match *change {
                LogChange::Create(name) => made.push(name),
                LogChange::Delete(name) => self.removed.push(name.to_owned()),
                LogChange::Copy { from, to } => self.moves.push(LogMove::new(from, to, true)),
                LogChange::Move { from, to } => self.moves.push(LogMove::new(from, to, false)),
            }
        }
        made
    }

    /// Returns whether nothing of the kind is planned.
    pub(super) fn is_empty(&self) -> bool {
        self.moves.is_empty() && self.removed.is_empty() && self.rewritten.is_empty()
    }
}

impl LogMove {
    fn new(from: RefName<'_>, to: RefName<'_>, copies: bool) -> Self {
        LogMove {
            from: from.to_owned(),
            to: to.to_owned(),
            copies,
            done: false,
        }
    }
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
        let (_, path) = files.log_path(name)?;
        let options = crate::commit::LockOptions {
            timeout: LockTimeout::from_millis(0),
            ..files.lock_options()
        };
        let mut lock = match LockFile::acquire(&self.holder, &path, options) {
            Ok(lock) => lock,
            // It went with its directory: whoever removes a reflog alone holds no lock of the ref.
            Err(error) if log::is_blocked(&error) => return Ok(false),
            Err(error) => {
                let message = describe_refusal(files.system.as_ref(), &path, &error);
                return Err(Error::new(ErrorKind::Locked, message).with_source(error));
            }
        };
        let failed = |lock: &LockFile, error| Error::io("cannot write", lock.path(), error);
        let mut kept: Vec<u8> = Vec::new();
        let is_there =
            files.for_each_log_line(name, LogOrder::OldestFirst, &mut |line, entry| {
                if let Fate::Keep { old } = judge(&entry)? {
                    log::push_kept(&mut kept, old, line, &entry);
                }
                if kept.len() >= CHUNK_LEN {
                    lock.write_all(&kept)
                        .map_err(|error| failed(&lock, error))?;
                    kept.clear();
                }
                Ok(true)
            })?;
        if !is_there {
            return Ok(false);
        }
        for entry in then {
            log::push_line(&mut kept, entry.old, entry.new, &entry.who, &entry.message);
        }
        let mut written = lock.write_all(&kept);
        if files.options.fsync {
            written = written.and_then(|()| lock.sync());
        }
        lock.close();
        written.map_err(|error| failed(&lock, error))?;
        self.planned.whole_logs.rewritten.push(lock);
        Ok(true)
    }

    /// Moves and copies reflogs; tells `sync` which directories changed.
    pub(super) fn move_logs(&mut self, sync: &mut BTreeSet<PathBuf>) -> Result<()> {
        let mut moves = std::mem::take(&mut self.planned.whole_logs.moves);
        let moved = moves.iter_mut().try_for_each(|it| self.move_log(it, sync));
        self.planned.whole_logs.moves = moves;
        moved
    }

    /// Removes reflogs, and gives rewritten ones their names.
    pub(super) fn replace_logs(&mut self, sync: &mut BTreeSet<PathBuf>) -> Result<()> {
        for name in std::mem::take(&mut self.planned.whole_logs.removed) {
            self.remove_log(name.as_name(), sync)?;
        }
        for mut lock in std::mem::take(&mut self.planned.whole_logs.rewritten) {
            let path = lock.target();
            lock.place()
                .map_err(|error| Error::io("unable to write reflog", &path, error))?;
            add_parent(sync, &path);
        }
        Ok(())
    }

    /// Gives moved reflogs their old names back, after the refs could not be moved.
    pub(super) fn undo_moves(&mut self) {
        for moved in std::mem::take(&mut self.planned.whole_logs.moves) {
            if moved.done && !moved.copies {
                let back = &mut LogMove::new(moved.to.as_name(), moved.from.as_name(), false);
                // At worst the reflog stays under the new name, and the next attempt finds it.
                let _ = self.move_log(back, &mut BTreeSet::new());
            }
        }
    }

    /// Removes the reflogs of refs that could not be made: a later one below such a name would have no
    /// place for its own.
    pub(super) fn remove_made_logs(&mut self) {
        for path in std::mem::take(&mut self.planned.made_logs) {
            // At worst it stays, as one of Git does.
            let _ = self.files.system.remove_file(&path);
        }
    }

    /// Moves or copies one reflog; one that is not there leaves the other as it is.
    fn move_log(&mut self, moved: &mut LogMove, sync: &mut BTreeSet<PathBuf>) -> Result<()> {
        let (from, to) = (moved.from.as_name(), moved.to.as_name());
        let (from_base, from_path) = self.files.log_path(from)?;
        let (to_base, to_path) = self.files.log_path(to)?;
        let between = between(&from_path, &to_path);
        let failed = |error| Error::io("unable to move the reflog to", &to_path, error);
        let system = std::sync::Arc::clone(&self.files.system);
        let mut source = from_path.clone();
        match system.lstat(&from_path) {
            Ok(stat) if stat.kind == FileKind::Symlink => {
                let message = format!("reflog for {from} is a symlink");
                return Err(Error::new(ErrorKind::Io, message));
            }
            Ok(stat) if stat.kind == FileKind::File => {}
            Err(error) if !log::is_absent(&error) => return Err(failed(error)),
            // What an earlier attempt left half way is the reflog.
            _ => match between.as_deref().filter(|path| system.lstat(path).is_ok()) {
                Some(path) => source = path.to_owned(),
                None => return Ok(()),
            },
        }
        if moved.copies {
            return self.copy_log(&source, &to_base, &to_path, sync);
        }
        if let Some(between) = between.filter(|between| *between != source) {
            system.rename(&source, &between).map_err(failed)?;
            source = between;
            let (_, bare) = self.files.layout.locate(from);
            self.empty_dirs.add_parent(&from_base, bare.as_bytes());
        }
        let placed = self
            .make_log_dir(&to_base, &to_path, sync)
            .and_then(|()| system.rename(&source, &to_path));
        if let Err(error) = placed {
            // At worst it stays between the names, where the next attempt looks for it.
            let _ = self
                .make_log_dir(&from_base, &from_path, sync)
                .and_then(|()| system.rename(&source, &from_path));
            return Err(failed(error));
        }
        moved.done = true;
        add_parent(sync, &from_path);
        add_parent(sync, &to_path);
        let (_, bare) = self.files.layout.locate(from);
        self.empty_dirs.add_parent(&from_base, bare.as_bytes());
        Ok(())
    }

    fn copy_log(
        &mut self,
        source: &Path,
        to_base: &Path,
        to_path: &Path,
        sync: &mut BTreeSet<PathBuf>,
    ) -> Result<()> {
        let failed = |error| Error::io("unable to copy the reflog to", to_path, error);
        self.make_log_dir(to_base, to_path, sync).map_err(failed)?;
        let files = &self.files;
        let content = files.system.read(source).map_err(failed)?;
        let mut lock =
            LockFile::acquire(&self.holder, to_path, files.lock_options()).map_err(failed)?;
        let mut written = lock.write_all(&content);
        if files.options.fsync {
            written = written.and_then(|()| lock.sync());
        }
        written.and_then(|()| lock.place()).map_err(failed)?;
        add_parent(sync, to_path);
        Ok(())
    }

    /// Makes the directory of a reflog, and removes an empty one that has its place.
    fn make_log_dir(
        &mut self,
        base: &Path,
        path: &Path,
        sync: &mut BTreeSet<PathBuf>,
    ) -> io::Result<()> {
        let system = self.files.system.as_ref();
        if matches!(system.lstat(path), Ok(stat) if stat.kind == FileKind::Directory) {
            remove_empty_tree(system, path);
        }
        let floor = base.parent().unwrap_or(base);
        let shared = self.files.options.shared_repository;
        match path.parent() {
            Some(dir) => {
                sync.insert(dir.to_owned());
                directories::create(system, shared, floor, dir, &mut self.created_dirs)
            }
            None => Ok(()),
        }
    }
}

/// Returns where a reflog stays on its way between two names of which one lies below the other;
/// `None` if neither does.
fn between(from: &Path, to: &Path) -> Option<PathBuf> {
    let upper = match (from.starts_with(to), to.starts_with(from)) {
        (false, false) => return None,
        (true, _) => to,
        (_, true) => from,
    };
    let mut name = std::ffi::OsString::from(".");
    name.push(upper.file_name().unwrap_or_default());
    Some(suffixed(&upper.with_file_name(name), ".moved"))
}
