//! Preparing a plan: writing everything that nobody sees yet.
//!
//! A large batch of direct refs goes into packed-refs, under the same locks as ever: one file to
//! write, one rename, and then the loose copies that shadow it are removed.
//!
//! Invariants:
//! 1. A ref's lock is held until its new value is visible.
//! 2. With fsync, every file is durable before it gets its name. Many files are not synced one by one but
//!    with their file system.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use refdb_names::{RefName, RefNameBuf, Target};
use reftable::short;

use super::Files;
use super::apart::is_shared;
use super::log;
use super::log_write::WholeLogs;
use super::loose::{self, Loose};
use super::new_names::Beside;
use super::packed::Forwards;
use super::rewrite::{PackedEdit, PackedLock, PackedValue, is_written_by_another};
use super::session::{ByName, FilesSession, Held, blocked_by};
use crate::backend::{LogChange, NewValue, Plan};
use crate::commit::MANY_MIN;
use crate::error::{Error, ErrorKind, Result, io_text};
use crate::layout::Place;
use crate::system::bytes_to_path;
use crate::system::dirs::KnownDirs;

/// From so many direct refs on, packed-refs is considered.
pub(super) const BATCH_MIN: usize = 64;

/// Writing one loose ref takes about as long as copying so many bytes of packed-refs, without
/// fsync and with it.
const LOOSE_COST_BYTES: usize = 16 << 10;
const LOOSE_COST_SYNCED_BYTES: usize = 256 << 10;

/// So many symrefs are followed to find out which of them comes first: nobody reads through more.
const SYMREFS_MAX: usize = 8;
/// How far it can be from a symref to a ref: so many steps, or none.
const RANKS: usize = SYMREFS_MAX + 1;

/// What is ready to become visible.
#[derive(Default)]
pub(super) struct Planned {
    pub(super) packed: Option<PackedLock>,
    pub(super) logs: Vec<LogAppend>,
    // Indices of locks whose content becomes the ref, symrefs after the refs that they lead to.
    pub(super) renames: Vec<usize>,
    // So many of them, the last, lead to refs that go into packed-refs.
    pub(super) late: usize,
    // Indices of locks whose loose ref goes, because the ref is deleted or was packed.
    pub(super) unlinks: Vec<usize>,
    // Indices of locks whose reflog goes.
    pub(super) log_unlinks: Vec<usize>,
    // Directories in the place of reflogs that go.
    pub(super) log_dirs: Vec<PathBuf>,
    pub(super) whole_logs: WholeLogs,
    // Whether there is more than one new value.
    pub(super) several: bool,
    // Whether new values are to be synced with their file systems.
    pub(super) many_values: bool,
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
    /// Whether this is of a kind that packed-refs can hold: direct refs that all worktrees share.
    pub(super) is_packable: bool,
}

impl Assigned<'_> {
    /// Returns whether packed-refs may hold this.
    fn may_be_packed(&self) -> bool {
        self.is_apart && self.is_packable
    }
}

impl FilesSession {
    pub(super) fn prepare_plan(&mut self, plan: &Plan<'_>) -> Result<()> {
        self.assert_not_migrated()?;
        let unlocked = plan.log_changes.iter().filter_map(LogChange::unlocked);
        let layout = &self.files.layout;
        layout.assert_own_folders(self.files.system.as_ref(), unlocked)?;
        self.planned.logs = log_appends(&self.files, plan, &mut self.log_dirs)?;
        let mut writes = self.assign(plan)?;
        self.planned.several = writes.len() > 1;
        self.prepare_whole_logs(&plan.log_changes)?;
        self.sync_whole_logs()?;
        let several = writes.len() + self.planned.whole_logs.len() > 1;
        if several || !plan.ended.is_empty() {
            // There may be a journal, and what stands in a lock by then could not be named in it.
            self.sign_locks()?;
        }
        self.keep_apart(&mut writes)?;
        let packable = writes.iter().filter(|write| write.may_be_packed()).count();
        // Where one name lies below the other, the new ref can be no file before the old one goes.
        let is_nested = |at: usize| self.held.get(at).is_some_and(|held| held.is_nested);
        let is_nested = plan.renames && writes.iter().any(|write| write.held.is_none_or(is_nested));
        let is_delete = |write: &Assigned<'_>| matches!(write.value, NewValue::Deleted);
        // Below a directory that is locked as a whole there is no place for a file.
        let no_files = plan.initial || is_nested || !self.bars.is_empty();
        let batch = packable > 0 && (no_files || self.is_worth_packing(packable)?);
        // Refs that a linked worktree has for itself are never packed.
        let place = |write: &Assigned<'_>| self.files.layout.locate(write.name).0;
        let may_be_packed =
            |write: &Assigned<'_>| is_delete(write) && place(write) == Place::Common;
        if batch || writes.iter().any(may_be_packed) {
            self.rewrite_packed(&writes, batch)?;
        }
        let is_loose = |write: &Assigned<'_>| !(is_delete(write) || batch && write.may_be_packed());
        let loose = writes.iter().filter(|write| is_loose(write)).count();
        let at_once = self.files.options.fsync && self.files.system.syncs_at_once();
        let many = at_once && loose >= MANY_MIN;
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
        self.put_symrefs_last(&writes, batch);
        if !plan.ended.is_empty() {
            let mut by_name = ByName::of(&self.held);
            let held = |name: &RefName<'_>| by_name.find(&self.held, *name);
            let ended: Vec<usize> = plan.ended.iter().filter_map(held).collect();
            self.planned.log_unlinks.extend(ended);
        }
        // They are synced with the locks: what is many is in the journal.
        self.planned.many_values |= many;
        if !self.is_each_looked_at() {
            self.holder.seal();
        }
        Ok(())
    }

    /// Puts symrefs behind the refs that they lead to: a `HEAD` whose new branch is not there yet is an unborn one.
    fn put_symrefs_last(&mut self, writes: &[Assigned<'_>], batch: bool) {
        let is_symref = |write: &&Assigned<'_>| matches!(write.value, NewValue::Symbolic(_));
        if !writes.iter().any(|write| is_symref(&write)) {
            return;
        }
        let mut by_name = ByName::of(&self.held);
        let mut of_held: Vec<Option<&Assigned<'_>>> = vec![None; self.held.len()];
        for write in writes {
            if let Some(place) = write.held.and_then(|held| of_held.get_mut(held)) {
                *place = Some(write);
            }
        }
        // How far it is to a ref, behind all others if that goes into packed-refs. Some lead to each other in a circle.
        let mut ranks = vec![0; self.held.len()];
        for write in writes.iter().filter(is_symref) {
            let mut target = symbolic(write.value);
            let (mut is_packed, mut steps) = (false, 0);
            while let Some(name) = target.take().filter(|_| steps < SYMREFS_MAX) {
                steps += 1;
                let held = by_name.find(&self.held, name.as_name());
                target = match held.and_then(|held| of_held.get(held).copied().flatten()) {
                    Some(next) => {
                        is_packed = batch && next.may_be_packed();
                        symbolic(next.value)
                    }
                    // A symref that was there before can lead to what is new.
                    None => self.files.loose_symref(name.as_name()),
                };
            }
            if let Some(rank) = write.held.and_then(|held| ranks.get_mut(held)) {
                *rank = if is_packed { RANKS + steps } else { steps };
            }
        }
        // A call of the library's sort for this is 8 kB of the program.
        let renames = std::mem::take(&mut self.planned.renames);
        for rank in 0..2 * RANKS {
            let is_next = |held: &usize| ranks.get(*held) == Some(&rank);
            let next = renames.iter().copied().filter(is_next);
            self.planned.renames.extend(next);
        }
        let is_late = |held: &&usize| ranks.get(**held).is_some_and(|rank| *rank >= RANKS);
        self.planned.late = self.planned.renames.iter().filter(is_late).count();
    }

    /// Finds the lock of every write, and takes those that are missing.
    fn assign<'a>(&mut self, plan: &Plan<'a>) -> Result<Vec<Assigned<'a>>> {
        let mut by_name = ByName::of(&self.held);
        let mut writes = Vec::with_capacity(plan.len_hint());
        for write in plan.writes() {
            let mut assigned = Assigned {
                name: write.name,
                value: write.value,
                held: by_name.find(&self.held, write.name),
                is_apart: true,
                is_packable: matches!(write.value, NewValue::Direct { .. })
                    && is_shared(write.name),
            };
            let needs_none = (plan.initial || plan.renames) && assigned.may_be_packed();
            if assigned.held.is_none() && !needs_none {
                assigned.held = Some(self.take_unseen(write.name)?);
            }
            if let Some(held) = assigned.held.and_then(|at| self.held.get(at)) {
                assigned.is_apart = held.exists || held.is_barred() || held.is_nested;
                if held.is_nested {
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
        // Where a ref is deleted alone, nothing is written into its lock.
        let other = match (writes, self.held.as_slice()) {
            ([_], [held]) if !batch && self.planned.whole_logs.is_empty() => held.lock.as_deref(),
            _ => None,
        };
        let waiter = self.holder.looking(Beside::packed(files));
        let taken = PackedLock::acquire_to_read(files, &waiter, other);
        if taken.is_err() {
            files.still_there()?;
        }
        let (mut lock, old) = taken?;
        // A migration gives the lock back when it is over, to whoever waited for it. It is not over while a
        // branch is locked that is a file.
        if !self.has_loose_branch() {
            files.assert_not_migrated()?;
        }
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

    /// Returns whether the lock of a branch is held here that has a file.
    fn has_loose_branch(&self) -> bool {
        let is_branch = |held: &Held| held.name.as_bytes().starts_with(b"refs/heads/");
        let is_locked = |held: &Held| held.lock.is_some() && held.place == Place::Common;
        let mut held = self.held.iter();
        held.any(|held| held.loose && is_locked(held) && is_branch(held))
            && !self.files.layout.is_apart()
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
}

impl Files {
    /// Returns where a loose symref leads.
    fn loose_symref(&self, name: RefName<'_>) -> Option<RefNameBuf> {
        let (_, path) = self.path(name).ok()?;
        match self.loose(&path) {
            Ok(Loose::Found(Target::Symbolic(target))) => Some(target),
            _ => None,
        }
    }
}

/// Returns where a new symref leads.
fn symbolic(value: NewValue<'_>) -> Option<RefNameBuf> {
    match value {
        NewValue::Symbolic(target) => Some(target.to_owned()),
        _ => None,
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
        if !create && !dirs.have_parent(files.system.as_ref(), &files.log_path(entry.name)?) {
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
