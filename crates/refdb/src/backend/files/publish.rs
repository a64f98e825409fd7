//! Carrying out a plan: first everything that nobody sees yet, then everything at once.
//!
//! A large batch of direct refs goes into packed-refs, under the same locks as ever: one file to
//! write, one rename, and then the loose copies that shadow it are removed.
//!
//! Invariants:
//! 1. packed-refs is renamed, and durable, before a loose file that shadows it is removed: a
//!    reader sees an old value or the new one, and once it has seen the new one never an old one.
//! 2. A ref's lock is held until its new value is visible.
//! 3. With fsync, every file is durable before it gets its name, and every name before the write
//!    is acknowledged. Many files are not synced one by one but with their file system.
//!    So is the absence of a loose file, before packed-refs says what it would shadow.
//! 4. What takes more than one step is written into the journal first (`steps`), unless a reflog is
//!    moved or rewritten with it: then a ref has its new name, durably, before it loses the old one.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use reftable::short;

use super::Files;
use super::directories;
use super::known_dirs::KnownDirs;
use super::log;
use super::log_write::WholeLogs;
use super::loose;
use super::packed::Forwards;
use super::rewrite::{PackedEdit, PackedLock, PackedValue, is_written_by_another};
use super::session::{ByName, FilesSession, blocked_by};
use crate::backend::{NewValue, Plan, Published, committed_in_part};
use crate::commit::{Journal, MANY_MIN};
use crate::error::{Error, ErrorKind, Message, Result, Role, io_text};
use crate::layout::Place;
use crate::name::{RefName, RefNameBuf, is_per_worktree};
use crate::system::{bytes_to_path, remove_empty_tree};

/// From so many direct refs on, packed-refs is considered.
pub(super) const BATCH_MIN: usize = 64;

/// Writing one loose ref takes about as long as copying so many bytes of packed-refs, without
/// fsync and with it.
const LOOSE_COST_BYTES: usize = 16 << 10;
const LOOSE_COST_SYNCED_BYTES: usize = 256 << 10;

/// What is ready to become visible.
#[derive(Default)]
pub(super) struct Planned {
    pub(super) packed: Option<PackedLock>,
    pub(super) logs: Vec<LogAppend>,
    // Indices of locks whose content becomes the ref.
    pub(super) renames: Vec<usize>,
    // Indices of locks whose loose ref goes, because the ref is deleted or was packed.
    pub(super) unlinks: Vec<usize>,
    // Indices of locks whose reflog goes.
    pub(super) log_unlinks: Vec<usize>,
    // Directories in the place of reflogs that go.
    pub(super) log_dirs: Vec<PathBuf>,
    pub(super) whole_logs: WholeLogs,
    // Reflogs that were made for what is not visible yet.
    pub(super) made_logs: Vec<PathBuf>,
    // Whether there is more than one new value.
    pub(super) several: bool,
    // Whether new values are to be there before old ones go.
    new_first: bool,
    // Whether new values, or reflogs, are to be synced with their file systems.
    pub(super) many_values: bool,
    many_logs: bool,
}

/// The lines that are appended to one reflog.
pub(super) struct LogAppend {
    pub(super) name: RefNameBuf,
    pub(super) lines: Vec<u8>,
    pub(super) create: bool,
}

/// A write of the plan and the lock that it is made under; none for what is packed without one.
pub(super) struct Assigned<'a> {
    pub(super) name: RefName<'a>,
    value: NewValue<'a>,
    pub(super) held: Option<usize>,
    /// Whether what is above and below the name is kept apart from it if there is no file of it.
    pub(super) is_apart: bool,
}

impl Assigned<'_> {
    /// Returns whether packed-refs may hold this: direct refs that all worktrees share.
    fn may_be_packed(&self) -> bool {
        self.is_apart && self.is_packable()
    }

    /// Returns whether this is of a kind that packed-refs can hold.
    pub(super) fn is_packable(&self) -> bool {
        let name = self.name.as_bytes();
        matches!(self.value, NewValue::Direct { .. })
            && name.starts_with(b"refs/")
            && !is_per_worktree(name)
    }
}

impl FilesSession {
    pub(super) fn prepare_plan(&mut self, plan: &Plan<'_>) -> Result<()> {
        self.assert_not_migrated()?;
        self.planned.logs = log_appends(&self.files, plan, &mut self.log_dirs)?;
        let made = self.planned.whole_logs.plan(&plan.log_changes);
        self.planned
            .logs
            .extend(made.into_iter().map(|name| LogAppend {
                name: name.to_owned(),
                lines: Vec::new(),
                create: true,
            }));
        self.planned.new_first = plan.renames;
        let mut writes = self.assign(plan)?;
        self.planned.several = writes.len() > 1;
        if self.planned.several || !plan.ended.is_empty() {
            // There may be a journal, and what stands in a lock by then could not be named in it.
            self.sign_locks()?;
        }
        self.keep_apart(&mut writes)?;
        let packable = writes.iter().filter(|write| write.may_be_packed()).count();
        // Where one name lies below the other, the new ref can be no file before the old one goes.
        let is_above = |at: usize| self.held.get(at).is_some_and(|held| held.is_above);
        let is_nested = plan.renames && writes.iter().any(|write| write.held.is_none_or(is_above));
        let is_delete = |write: &Assigned<'_>| matches!(write.value, NewValue::Deleted);
        // Below a directory that is locked as a whole there is no place for a file.
        let no_files = plan.initial || is_nested || !self.bars.is_empty();
        let batch = packable > 0 && (no_files || self.is_worth_packing(packable)?);
        if batch || writes.iter().any(is_delete) {
            self.rewrite_packed(&writes, batch)?;
        }
        let is_loose = |write: &Assigned<'_>| !(is_delete(write) || batch && write.may_be_packed());
        let loose = writes.iter().filter(|write| is_loose(write)).count();
        let many = self.files.options.fsync && loose >= MANY_MIN;
        for write in &writes {
            let Some(held) = write.held else { continue };
            if is_loose(write) {
                self.write_loose(held, write.value, many)?;
            } else {
                self.unlink_later(held);
            }
            if is_delete(write) {
                self.planned.log_unlinks.push(held);
            }
        }
        if !plan.ended.is_empty() {
            let mut by_name = ByName::of(&self.held);
            let held = |name: &RefName<'_>| by_name.find(&self.held, *name);
            let ended: Vec<usize> = plan.ended.iter().filter_map(held).collect();
            self.planned.log_unlinks.extend(ended);
        }
        // They are synced with the locks: what is many is in the journal.
        self.planned.many_values = many;
        self.holder.seal();
        Ok(())
    }

    /// Finds the lock of every write, and takes those that are missing.
    fn assign<'a>(&mut self, plan: &Plan<'a>) -> Result<Vec<Assigned<'a>>> {
        let mut by_name = ByName::of(&self.held);
        let mut writes = Vec::new();
        for write in plan.writes() {
            let mut assigned = Assigned {
                name: write.name,
                value: write.value,
                held: by_name.find(&self.held, write.name),
                is_apart: true,
            };
            let needs_none = (plan.initial || plan.renames) && assigned.may_be_packed();
            if assigned.held.is_none() && !needs_none {
                assigned.held = Some(self.take_unseen(write.name)?);
            }
            if let Some(held) = assigned.held.and_then(|at| self.held.get(at)) {
                assigned.is_apart = held.exists || held.is_barred() || held.is_above;
                if held.is_above {
                    // Whoever has a lock below may be making a ref there.
                    self.check_below(held)?;
                }
            }
            writes.push(assigned);
        }
        Ok(writes)
    }

    /// Returns whether so many direct refs are better written into packed-refs than one by one.
    pub(super) fn is_worth_packing(&self, count: usize) -> Result<bool> {
        let cost = match self.files.options.fsync {
            true => LOOSE_COST_SYNCED_BYTES,
            false => LOOSE_COST_BYTES,
        };
        if count < BATCH_MIN {
            return Ok(false);
        }
        let path = self.files.packed.resolved_path()?;
        if is_written_by_another(self.files.system.as_ref(), &path) {
            return Ok(false);
        }
        Ok(self.files.packed.snapshot()?.len() <= count.saturating_mul(cost))
    }

    /// Takes `packed-refs.lock`, and writes a new file if the plan changes what is packed.
    fn rewrite_packed(&mut self, writes: &[Assigned<'_>], batch: bool) -> Result<()> {
        let files = &self.files;
        let mut lock = files.lock_packed(&self.holder)?;
        let old = files.packed.snapshot()?;
        let mut packed = Forwards::over(&old);
        let mut edits = Vec::new();
        for write in writes {
            let (place, bare) = files.layout.locate(write.name);
            let name = bare.as_bytes();
            match write.value {
                NewValue::Deleted => {
                    if place == Place::Common && packed.find_ref(name)?.is_some() {
                        edits.push(PackedEdit { name, value: None });
                    }
                }
                NewValue::Direct { oid, peeled } if batch && write.may_be_packed() => {
                    let value = Some(PackedValue {
                        oid: *oid,
                        peeled: peeled.copied(),
                    });
                    edits.push(PackedEdit { name, value });
                }
                NewValue::Direct { .. } | NewValue::Symbolic(_) => {}
            }
        }
        if !edits.is_empty() {
            // Names with a worktree before them are sorted by what is behind it.
            edits.sort_by(|low, high| short::compare(low.name, high.name));
            lock.write(&old, &edits, None, &files.options)?;
        }
        self.planned.packed = Some(lock);
        Ok(())
    }

    fn unlink_later(&mut self, index: usize) {
        if self.held.get(index).is_some_and(|held| held.loose) {
            self.planned.unlinks.push(index);
        }
    }

    /// Writes a new value into the lock of a ref; as one of many, it is synced with the others.
    fn write_loose(&mut self, index: usize, value: NewValue<'_>, many: bool) -> Result<()> {
        let options = &self.files.options;
        let Some(held) = self.held.get_mut(index) else {
            return Ok(());
        };
        // Locks of refused names, which were in the way, may have been released meanwhile.
        if held.blocked && !self.files.clear_way(&held.path) {
            let blocked = blocked_by(held.name.as_name(), &held.path);
            let error = Error::new(ErrorKind::Io, blocked.message);
            return Err(error.context(format_args!("cannot lock ref '{}'", held.name)));
        }
        if held.bar.is_some() {
            let message = format!("cannot update ref '{}': its directory is locked", held.name);
            return Err(Error::new(ErrorKind::Misuse, message));
        }
        let Some(lock) = &mut held.lock else {
            return Ok(());
        };
        let content = match value {
            NewValue::Direct { oid, .. } => loose::direct(*oid),
            NewValue::Symbolic(target) => {
                let text = bytes_to_path(target.as_bytes());
                if options.prefer_symlink_refs && lock.write_link(text).is_ok() {
                    self.planned.renames.push(index);
                    return Ok(());
                }
                loose::symbolic(target)
            }
            NewValue::Deleted => return Ok(()),
        };
        let mut written = lock.write_all(&content);
        if options.fsync && !many {
            written = written.and_then(|()| lock.sync());
        }
        lock.close();
        if let Err(error) = written {
            let message = format!(
                "cannot update ref '{}': couldn't write '{}': {}",
                held.name,
                lock.path().display(),
                io_text(&error)
            );
            return Err(Error::new(ErrorKind::Io, message).with_source(error));
        }
        self.planned.renames.push(index);
        Ok(())
    }

    pub(super) fn publish_plan(&mut self) -> Result<Published> {
        if !self.bars.are_held() {
            let message = "a directory that this transaction has locked was taken from it by \
                           somebody else: nothing was changed";
            return Err(Error::new(ErrorKind::Locked, message));
        }
        let mut afterwards = Vec::new();
        match self.begin_journal()? {
            Some(journal) => self.carry_out_journal(journal, &mut afterwards)?,
            None => {
                self.bar_new_files(false)?;
                self.check_locks()?;
                self.sync_absence()?;
                self.carry_out_alone(&mut afterwards)?;
            }
        }
        self.tidy();
        if let Some(packed) = self.planned.packed.take() {
            afterwards.extend(packed.release().err());
        }
        Ok(Published::Done { afterwards })
    }

    /// Makes a plan visible that takes one step, or has an order of its own.
    fn carry_out_alone(&mut self, afterwards: &mut Vec<Error>) -> Result<()> {
        let mut sync = BTreeSet::new();
        let mut visible = false;
        if let Err(error) = self.carry_out(&mut sync, &mut visible, afterwards) {
            if !visible {
                self.undo_moves();
                self.remove_made_logs();
            }
            return Err(match self.planned.several && visible {
                true => committed_in_part(error),
                false => error,
            });
        }
        if self.files.options.fsync {
            afterwards.extend(self.sync_dirs(sync, self.planned.many_logs).err());
        }
        Ok(())
    }

    /// Removes what has the place of reflogs and is none.
    pub(super) fn remove_log_dirs(&mut self, afterwards: &mut Vec<Error>) {
        for path in std::mem::take(&mut self.planned.log_dirs) {
            // It stays, and stands for no reflog.
            let removed = self.files.system.remove_file(&path).err();
            afterwards.extend(
                removed.map(|it| Error::io("unable to unlink", &path, it).with_role(Role::Place)),
            );
        }
    }

    /// Makes the plan visible, step by step.
    fn carry_out(
        &mut self,
        sync: &mut BTreeSet<PathBuf>,
        visible: &mut bool,
        afterwards: &mut Vec<Error>,
    ) -> Result<()> {
        self.move_logs(sync)?;
        self.append_logs(sync)?;
        self.remove_logs(sync)?;
        self.remove_log_dirs(afterwards);
        self.replace_logs(sync)?;
        if self.planned.new_first {
            self.rename_loose(sync, visible)?;
            if self.files.options.fsync {
                // Only what has a durable name may lose the old one.
                self.sync_dirs(std::mem::take(sync), false)?;
            }
        }
        if let Some(packed) = &mut self.planned.packed {
            *visible |= packed.publish(&self.files.packed)?;
            if self.files.options.fsync {
                afterwards.extend(packed.sync_name().err());
            }
        }
        self.rename_loose(sync, visible)?;
        self.unlink_loose(sync, visible)
    }

    /// Leaves everything as it is, for whoever comes after this process.
    pub(super) fn leave(&mut self, journal: Journal) {
        journal.leave();
        self.files.packed.forget();
        for held in self.held.drain(..) {
            if let Some(lock) = held.lock {
                lock.leave();
            }
        }
        self.bars.leave();
        if let Some(packed) = self.planned.packed.take() {
            packed.leave();
        }
    }

    /// Makes the names in `dirs` durable, and those of the directories that were created; `all` of
    /// their file systems if that is asked for, or less work.
    pub(super) fn sync_dirs(&self, mut dirs: BTreeSet<PathBuf>, all: bool) -> Result<()> {
        let created = self.created_dirs.iter();
        dirs.extend(created.filter_map(|dir| Some(dir.parent()?.to_owned())));
        crate::commit::sync(self.files.system.as_ref(), &dirs, all)
    }

    /// Appends to every reflog that exists or is to be made.
    fn append_logs(&mut self, sync: &mut BTreeSet<PathBuf>) -> Result<()> {
        let appends = std::mem::take(&mut self.planned.logs);
        let many = self.files.options.fsync && appends.len() >= MANY_MIN;
        for append in &appends {
            let (base, path) = self.files.log_path(append.name.as_name())?;
            if self.append_log(append, &base, &path, many, sync)? && many {
                add_parent(sync, &path);
            }
        }
        // The journal says what is in them until they are durable.
        self.planned.many_logs = many;
        Ok(())
    }

    /// Appends lines to a reflog, creating it if that is asked for; as one of many, it is synced
    /// with the others. Returns whether there is a reflog.
    fn append_log(
        &mut self,
        append: &LogAppend,
        base: &Path,
        path: &Path,
        many: bool,
        sync: &mut BTreeSet<PathBuf>,
    ) -> Result<bool> {
        let name = append.name.as_name();
        let failed = |what: String, error: io::Error| {
            let message = format!(
                "cannot update the ref '{name}': {what}: {}",
                io_text(&error)
            );
            let message = Message::from(message).of(path, Role::Place);
            Error::new(ErrorKind::Io, message).with_source(error)
        };
        let to_append = |error| failed(format!("unable to append to '{}'", path.display()), error);
        let system = self.files.system.as_ref();
        let mut file = match system.append(path, None) {
            Ok(file) => {
                // One that was there before the setting follows it from now on; one of somebody else
                // stays as it is.
                let _ = self.files.options.shared_repository.adjust(system, path);
                file
            }
            Err(error) if !append.create && log::is_missing(&error) => return Ok(false),
            Err(error) if append.create && log::is_blocked(&error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    self.files.clear_log_way(name)?;
                }
                let shared = self.files.options.shared_repository;
                let floor = base.parent().unwrap_or(base);
                if let Some(dir) = path.parent() {
                    directories::create(system, shared, floor, dir, &mut self.created_dirs)
                        .map_err(|error| {
                            let path = path.display();
                            failed(format!("unable to create directory for '{path}'"), error)
                        })?;
                    sync.insert(dir.to_owned());
                }
                let file = system.append(path, Some(0o666)).map_err(to_append)?;
                self.planned.made_logs.push(path.to_owned());
                shared.adjust(system, path).map_err(to_append)?;
                file
            }
            Err(error) => return Err(to_append(error)),
        };
        file.write_all(&append.lines).map_err(to_append)?;
        if self.files.options.fsync && !many {
            file.sync().map_err(to_append)?;
        }
        Ok(true)
    }

    /// Removes the reflogs of deleted refs.
    fn remove_logs(&mut self, sync: &mut BTreeSet<PathBuf>) -> Result<()> {
        for index in std::mem::take(&mut self.planned.log_unlinks) {
            if let Some(held) = self.held.get(index) {
                let name = held.name.clone();
                self.remove_log(name.as_name(), sync)?;
            }
        }
        Ok(())
    }

    /// Removes one reflog, if it is there.
    pub(super) fn remove_log(
        &mut self,
        name: RefName<'_>,
        sync: &mut BTreeSet<PathBuf>,
    ) -> Result<()> {
        let (base, path) = self.files.log_path(name)?;
        match self.files.system.remove_file(&path) {
            Err(error) if log::is_missing(&error) || log::is_absent(&error) => return Ok(()),
            removed => removed.map_err(|error| Error::io("unable to remove", &path, error))?,
        }
        add_parent(sync, &path);
        let (_, bare) = self.files.layout.locate(name);
        self.empty_dirs.add_parent(&base, bare.as_bytes());
        Ok(())
    }

    /// Renames the locks that hold new values; sets `visible` once there is one.
    fn rename_loose(&mut self, sync: &mut BTreeSet<PathBuf>, visible: &mut bool) -> Result<()> {
        let system = self.files.system.as_ref();
        for index in std::mem::take(&mut self.planned.renames) {
            let Some(held) = self.held.get_mut(index) else {
                continue;
            };
            let Some(lock) = &mut held.lock else { continue };
            let mut renamed = lock.place();
            if renamed.is_err() && remove_empty_tree(system, &held.path) {
                renamed = lock.place();
            }
            renamed.map_err(|error| unable_to_set(&held.name, error))?;
            *visible = true;
            held.loose = true;
            add_parent(sync, &held.path);
        }
        Ok(())
    }

    /// Removes loose refs that are deleted, or shadow the new value in packed-refs. One that cannot
    /// be removed does not keep the others. Sets `visible` once one is gone.
    fn unlink_loose(&mut self, sync: &mut BTreeSet<PathBuf>, visible: &mut bool) -> Result<()> {
        let mut first_error = None;
        for index in std::mem::take(&mut self.planned.unlinks) {
            let Some(held) = self.held.get_mut(index) else {
                continue;
            };
            match self.files.system.remove_file(&held.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    let error = Error::io("unable to remove", &held.path, error);
                    first_error = first_error.or(Some(error));
                }
                _ => {
                    *visible = true;
                    held.loose = false;
                    add_parent(sync, &held.path);
                }
            }
        }
        first_error.map_or(Ok(()), Err)
    }
}

fn unable_to_set(name: &RefNameBuf, error: io::Error) -> Error {
    let message = format!("couldn't set '{name}': {}", io_text(&error));
    Error::new(ErrorKind::Io, message).with_source(error)
}

/// Adds the directory of `path`.
pub(super) fn add_parent(dirs: &mut BTreeSet<PathBuf>, path: &Path) {
    if let Some(parent) = path.parent()
        && !dirs.contains(parent)
    {
        dirs.insert(parent.to_owned());
    }
}

/// Puts the entries of the plan together by reflog, each reflog's in order. Left out is what has no
/// reflog for want of its directory: often that is everything.
fn log_appends(files: &Files, plan: &Plan<'_>, dirs: &mut KnownDirs) -> Result<Vec<LogAppend>> {
    let mut appends: Vec<LogAppend> = Vec::new();
    let mut known: HashMap<&[u8], usize> = HashMap::new();
    // An entry that comes before the one that makes the reflog is written too.
    let made = plan.logs().filter(|(_, entry)| entry.create);
    let made: HashSet<&[u8]> = made.map(|(_, entry)| entry.name.as_bytes()).collect();
    for (_, entry) in plan.logs() {
        let name = entry.name.as_bytes();
        let create = !made.is_empty() && made.contains(name);
        if !create && !dirs.have_parent(files.system.as_ref(), &files.log_path(entry.name)?.1) {
            continue;
        }
        let who = plan.who(&entry)?;
        let index = *known.entry(name).or_insert(appends.len());
        if index == appends.len() {
            appends.push(LogAppend {
                name: entry.name.to_owned(),
                lines: Vec::new(),
                create,
            });
        }
        if let Some(append) = appends.get_mut(index) {
            log::push_line(&mut append.lines, entry.old, entry.new, who, entry.message);
        }
    }
    Ok(appends)
}
