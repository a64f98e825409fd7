//! Taking the locks of a write, and reading values under them.
//!
//! Invariants:
//! 1. Every `<ref>.lock` that was created is removed or renamed on every path.
//! 2. packed-refs is looked into only after the loose file was found missing under the lock: a
//!    concurrent packing renames the new packed-refs before it removes a loose file, and to remove
//!    it needs the lock.
//! 3. No lock is an open file, but for that of a ref alone: a large write needs no more descriptors
//!    than a small one.
//! 4. Directories are not looked at before a lock fails for want of one; so each is created once.
//! 5. No lock is waited for while one is held that comes after it.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bstr::ByteSlice;
use refdb_names::internals::owned_from_disk;
use refdb_names::{ObjectId, RefName, RefNameBuf};

use super::acquire::{NotTaken, Order};
use super::bars::Bars;
use super::current::Current;
use super::directories::EmptyDirs;
use super::loose::Loose;
use super::new_names::{Beside, Migration, being_migrated};
use super::packed::{Forwards, Snapshot};
use super::packed_cursor::PackedCursor;
use super::publish::Planned;
use super::{Files, overlay};
use crate::backend::cursor::Cursor;
use crate::backend::{Judge, Locked, Plan, Published, Refusal, Session, Value, in_the_way};
use crate::commit::{Holder, LockFile, describe_barred, describe_refusal, sweep};
use crate::error::{Error, Message, Reason, Result, Role, io_text};
use crate::layout::Place;
use crate::options::LockTimeout;
use crate::reflog::LogEntry;
use crate::system::beside::both;
use crate::system::dirs::{KnownDirs, middle};
use crate::system::{bytes_to_path, remove_empty_tree};

/// Up to so many locks are looked at one by one before something is published, or given up; of more, no
/// more than these.
pub(super) const LOOKED_AT_MAX: usize = 64;

/// A running write.
pub(super) struct FilesSession {
    pub(super) files: Arc<Files>,
    pub(super) holder: Holder,
    // The same, who looks for a migration while he waits for the lock of a ref.
    pub(super) waiter: Holder,
    pub(super) held: Vec<Held>,
    pub(super) bars: Bars,
    // Which of the locks further ones are linked to; `None` while there is none that can be.
    pub(super) pattern: Option<usize>,
    pub(super) can_link: bool,
    // Whether no more than one name was asked for at last.
    pub(super) is_alone: bool,
    // How long each lock is waited for.
    pub(super) timeout: LockTimeout,
    pub(super) order: Order,
    pub(super) created_dirs: Vec<PathBuf>,
    // Whether the directory of a name was missing when one was last looked for.
    pub(super) created_last: bool,
    pub(super) empty_dirs: EmptyDirs,
    pub(super) planned: Planned,
    // What was found under the locks that are held.
    pub(super) log_dirs: KnownDirs,
    // What a new name has seen of a migration.
    pub(super) migration: Migration,
    // packed-refs as it was after the last locks were taken, in which conflicts are looked for.
    pub(super) packed: Option<Arc<Snapshot>>,
}

/// A name whose lock is held.
pub(super) struct Held {
    pub(super) name: RefNameBuf,
    pub(super) place: Place,
    /// The path of the loose ref.
    pub(super) path: PathBuf,
    /// `None` once it is released, or where the lock of a directory takes its place.
    pub(super) lock: Option<Box<LockFile>>,
    /// The lock of a directory that keeps others from this name. It has no loose ref then, and
    /// `path` is empty.
    pub(super) bar: Option<u32>,
    /// Whether it is locked for a ref to come in whose way another one is that goes.
    pub(super) is_nested: bool,
    /// Whether there is a ref of that name.
    pub(super) exists: bool,
    /// Whether there is a loose ref.
    pub(super) loose: bool,
    /// Whether a directory that is not empty is in the way of a loose ref.
    pub(super) blocked: bool,
}

impl Held {
    /// Returns whether nobody can have, or make, a name below this one.
    pub(super) fn is_barred(&self) -> bool {
        self.bar.is_some() || self.lock.as_deref().is_some_and(LockFile::bars)
    }

    /// Returns what is held of a name below a locked directory.
    pub(super) fn barred(name: RefName<'_>, bar: u32) -> Held {
        Held {
            name: name.to_owned(),
            place: Place::Common,
            path: PathBuf::new(),
            lock: None,
            bar: Some(bar),
            is_nested: false,
            exists: false,
            loose: false,
            blocked: false,
        }
    }
}

/// Which of the locks is that of a name. Names that are asked for in their order take a step each.
pub(super) struct ByName {
    /// The indices of the locks in the order of their names.
    sorted: Vec<usize>,
    /// Which of them comes after the one that was found last.
    next: usize,
}

impl ByName {
    pub(super) fn of(held: &[Held]) -> Self {
        let mut sorted: Vec<usize> = (0..held.len()).collect();
        sorted.sort_by(|&low, &high| held[low].name.cmp(&held[high].name));
        ByName { sorted, next: 0 }
    }

    /// Returns the index of the lock; `held` may have more of them by now, which are not found.
    pub(super) fn find(&mut self, held: &[Held], name: RefName<'_>) -> Option<usize> {
        let compare = |&index: &usize| held[index].name.as_name().cmp(&name);
        let is_next = self.sorted.get(self.next).map(compare) == Some(Ordering::Equal);
        let at = match is_next {
            true => self.next,
            false => self.sorted.binary_search_by(compare).ok()?,
        };
        self.next = at + 1;
        self.sorted.get(at).copied()
    }
}

impl FilesSession {
    pub(super) fn new(files: Arc<Files>) -> Self {
        let holder = files.holder();
        FilesSession {
            waiter: holder.looking(Beside::refs(&files)),
            holder,
            timeout: files.options.files_ref_lock_timeout,
            files,
            held: Vec::new(),
            order: Order::default(),
            bars: Bars::default(),
            pattern: None,
            can_link: true,
            is_alone: false,
            created_dirs: Vec::new(),
            created_last: false,
            empty_dirs: EmptyDirs::default(),
            migration: Migration::default(),
            packed: None,
            planned: Planned::default(),
            log_dirs: KnownDirs::default(),
        }
    }

    /// Says why the lock of `name` could not be created.
    pub(super) fn refuse(&self, name: RefName<'_>, error: &io::Error) -> Refusal {
        let (place, bare) = self.files.layout.locate(name);
        let base = self.files.layout.dir(&place);
        let path = match super::join(base, "", bare) {
            Ok(path) => path,
            Err(error) => return refused_name(&error),
        };
        let path = &path;
        if bare.as_bytes().is_empty() {
            return self.refuse_worktree(name, path);
        }
        let refuse_place =
            |text: String| Refusal::new(Reason::Generic, Message::from(text).of(path, Role::Place));
        match error.kind() {
            io::ErrorKind::AlreadyExists => Refusal {
                reason: if self.holds_in_other_case(name) {
                    Reason::CaseConflict
                } else {
                    Reason::CreateExists
                },
                message: describe_refusal(self.files.system.as_ref(), path, error),
            },
            io::ErrorKind::NotADirectory => match self.parent_ref(name, base, bare) {
                Some(parent) => name_conflict(name, parent),
                None => {
                    let path = path.display();
                    let text =
                        format!("unable to create lock file {path}.lock; non-directory in the way");
                    refuse_place(text)
                }
            },
            // A link that leads nowhere is in the way.
            io::ErrorKind::NotFound => {
                refuse_place(format!("unable to create directory for {}", path.display()))
            }
            _ => Refusal::new(
                Reason::Generic,
                describe_refusal(self.files.system.as_ref(), path, error),
            ),
        }
    }

    /// Says by whose lock of a directory the name is out of reach.
    pub(super) fn refuse_barred(
        &self,
        name: RefName<'_>,
        barrier: &Path,
        error: &io::Error,
    ) -> Refusal {
        let path = match self.files.path(name) {
            Ok((_, path)) => path,
            Err(error) => return refused_name(&error),
        };
        Refusal::new(
            Reason::CreateExists,
            describe_barred(self.files.system.as_ref(), &path, barrier, error),
        )
    }

    /// Says why the name of a worktree as a whole is no ref: it is that of its folder.
    fn refuse_worktree(&self, name: RefName<'_>, folder: &Path) -> Refusal {
        match self.files.system.stat(folder) {
            Ok(_) => blocked_by(name, folder),
            Err(error) => {
                let why = io_text(&error);
                let text = format!("Unable to create '{}.lock': {why}", folder.display());
                Refusal::new(
                    Reason::Generic,
                    Message::from(text).of(folder, Role::InTheWay),
                )
            }
        }
    }

    /// Returns whether this session itself has the lock in the way, because the file system takes
    /// both names for one.
    fn holds_in_other_case(&self, name: RefName<'_>) -> bool {
        self.files.options.ignore_case
            && self
                .held
                .iter()
                .any(|held| held.name.as_bytes().eq_ignore_ascii_case(name.as_bytes()))
    }

    /// Returns the loose ref that is a parent of `name`, if there is one.
    fn parent_ref<'n>(
        &self,
        name: RefName<'n>,
        base: &Path,
        bare: RefName<'_>,
    ) -> Option<&'n [u8]> {
        let prefix_len = name.as_bytes().len() - bare.as_bytes().len();
        let slashes = bare.as_bytes().find_iter("/");
        let mut parents = slashes.filter_map(|slash| bare.as_bytes().get(..slash));
        let found = parents.find(|parent| {
            let read = self.files.loose(&base.join(bytes_to_path(parent)));
            matches!(read, Ok(Loose::Found(_)))
        })?;
        name.as_bytes().get(..prefix_len + found.len())
    }

    /// Decides about a name that is neither loose nor packed while a directory has its place.
    ///
    /// The locks of this session are no reason to refuse: whether the names of one transaction go
    /// together is for the transaction to say.
    pub(super) fn below(&self, held: &Held) -> Result<Option<Refusal>> {
        let name = held.name.as_name();
        let prefix = [name.as_bytes(), b"/"].concat();
        if let Some(found) = overlay::list(&self.files, &prefix)?.first() {
            // The first of all refs below is told, be it loose or packed.
            let packed = self.files.packed.snapshot()?;
            let at = packed.lower_bound(&prefix, packed.start())?;
            if at < packed.len() {
                let record = packed.record(at)?;
                let first = packed.slice(&record.name);
                if first.starts_with(&prefix) && first < found.name.as_slice() {
                    return Ok(Some(name_conflict(name, first)));
                }
            }
            return Ok(Some(name_conflict(name, &found.name)));
        }
        if self.files.clear_way(&held.path) || self.only_own_locks(&held.path) {
            return Ok(None);
        }
        Ok(Some(blocked_by(name, &held.path)))
    }
}

impl Files {
    /// Gives locks back, and removes the directories that are empty then: the last one who leaves a directory
    /// removes it.
    fn release(&self, held: &mut [Held]) {
        let mut empty_dirs = EmptyDirs::default();
        for held in held {
            held.lock = None;
            if held.loose || held.bar.is_some() {
                // Its directory is not empty, or not there.
                continue;
            }
            empty_dirs.add_parent(self.layout.dir(&held.place), self.bare(&held.name));
        }
        empty_dirs.remove_alone(self.system.as_ref());
    }

    /// Removes a directory that has the place of a loose ref, if there is nothing in it but what
    /// processes left that have ended; returns whether it is gone.
    pub(super) fn clear_way(&self, dir: &Path) -> bool {
        let system = self.system.as_ref();
        remove_empty_tree(system, dir)
            || sweep(&self.home, dir, true).is_ok() && remove_empty_tree(system, dir)
    }
}

/// Says that a name is none that a file can have.
fn refused_name(error: &Error) -> Refusal {
    Refusal::new(Reason::Generic, error.message().clone())
}

pub(super) fn blocked_by(name: RefName<'_>, folder: &Path) -> Refusal {
    let text = format!(
        "there is a non-empty directory '{}' blocking reference '{name}'",
        folder.display()
    );
    Refusal::new(
        Reason::NameConflict,
        Message::from(text).of(folder, Role::Place),
    )
}

pub(super) fn name_conflict(name: RefName<'_>, existing: &[u8]) -> Refusal {
    Refusal::new(
        Reason::NameConflict,
        Message::from(in_the_way(existing, name)).naming(existing),
    )
}

impl Session for FilesSession {
    fn lock(
        &mut self,
        names: &[RefName<'_>],
        stop_at_refusal: bool,
        answer: &mut dyn FnMut(usize, Locked),
    ) -> Result<()> {
        let files = Arc::clone(&self.files);
        files
            .layout
            .assert_own_folders(files.system.as_ref(), names.iter().copied())?;
        let mut is_refused = false;
        let mut answer = |at: usize, locked: Locked| {
            is_refused |= matches!(locked, Locked::Refused(_));
            answer(at, locked);
        };
        let locked = match files.other_order(names) {
            None => self.lock_in_order(names, stop_at_refusal, &mut answer),
            Some(order) => {
                let names: Vec<RefName<'_>> = order.iter().map(|&at| names[at]).collect();
                let mut answer = |at: usize, locked| answer(order[at], locked);
                self.lock_in_order(&names, stop_at_refusal, &mut answer)
            }
        };
        // Else it would be told that somebody else is in the way.
        files.options.interrupt.check()?;
        if is_refused {
            files.still_there()?;
        }
        locked
    }

    fn lock_nested(&mut self, name: RefName<'_>) -> Result<bool> {
        // Below a file its lock can have no place, and nobody else's. Where the ref above is packed, Git may have
        // that lock: it looks for its name before the packed ref goes, and for what is in its way afterwards.
        let is_file_above = |held: &Held| held.loose && name.is_below(held.name.as_name());
        if self.held.iter().any(is_file_above) {
            return Ok(true);
        }
        match self.take(name) {
            Err(NotTaken::Behind) => {
                // All is locked anew then, in the same order. Whoever is in the way is waited for without a lock.
                self.give_back();
                let _ = self.wait_for_lock(name);
                return Ok(false);
            }
            Err(NotTaken::Refused(refusal)) => {
                self.files.still_there()?;
                return Err(refusal.into_error(name));
            }
            Ok(()) => {}
        }
        if let Some(held) = self.held.last_mut() {
            held.is_nested = true;
        }
        match self.look_for_migration()? {
            Locked::Behind => Ok(false),
            Locked::Refused(refusal) => Err(refusal.into_error(name)),
            Locked::Found(_) | Locked::Missing | Locked::Alone => Ok(true),
        }
    }

    fn lock_directories(&mut self) {
        self.bars.allow();
    }

    fn wait_no_more(&mut self) {
        self.timeout = LockTimeout::from_millis(0);
    }

    fn begin_again(&mut self) {
        self.tidy();
        self.wait_for_migration();
        self.order.nothing_is_held();
        self.pattern = None;
        self.created_last = false;
        self.log_dirs = KnownDirs::default();
        self.packed = None;
    }

    fn release(&mut self, names: &HashSet<&[u8]>) {
        for held in &mut self.held {
            if names.contains(held.name.as_bytes()) && held.lock.take().is_some() {
                let base = self.files.layout.dir(&held.place);
                let bare = self.files.bare(&held.name);
                self.empty_dirs.add_parent(base, bare);
            }
        }
        self.empty_dirs.remove(self.files.system.as_ref());
    }

    fn has_apart(&mut self, _name: RefName<'_>) -> Result<bool> {
        // Only loose refs are there, and their files and directories are in the way of a lock.
        Ok(false)
    }

    fn first_below_apart(&mut self, name: RefName<'_>) -> Result<Option<RefNameBuf>> {
        let is_nested = |held: &Held| held.is_nested && held.name.as_name() == name;
        if !self.held.iter().any(is_nested) {
            return Ok(None);
        }
        let below = overlay::list(&self.files, &[name.as_bytes(), b"/"].concat())?;
        let is_held = |name: &[u8]| self.held.iter().any(|held| held.name.as_bytes() == name);
        let other = below.into_iter().find(|found| !is_held(&found.name));
        Ok(other.map(|found| owned_from_disk(found.name)))
    }

    fn names(&mut self) -> Result<Box<dyn Cursor + '_>> {
        let snapshot = match &self.packed {
            Some(packed) => Arc::clone(packed),
            None => self.files.packed.snapshot()?,
        };
        let null = ObjectId::null(self.files.options.object_format);
        let linked = self.files.layout.is_linked();
        Ok(Box::new(PackedCursor::new(snapshot, null, linked)))
    }

    fn read(&mut self, name: RefName<'_>) -> Result<Option<Value>> {
        self.files.read(name)
    }

    fn may_have_log(&mut self, name: RefName<'_>) -> Result<bool> {
        // Often there are no reflogs at all: then the plan's entries need no further look.
        let path = self.files.log_path(name)?;
        let system = self.files.system.as_ref();
        Ok(self.log_dirs.have_parent(system, &path) && self.files.log_exists(name)?)
    }

    fn any_packed(&self, names: &[RefName<'_>]) -> Result<Option<bool>> {
        let snapshot = self.files.packed.snapshot()?;
        for &name in names {
            let (place, bare) = self.files.layout.locate(name);
            if place == Place::Common && snapshot.find_ref(bare.as_bytes())?.is_some() {
                return Ok(Some(true));
            }
        }
        Ok(Some(false))
    }

    fn locate<'n>(&self, name: RefName<'n>) -> (Place, RefName<'n>) {
        self.files.layout.locate(name)
    }

    fn rewrite_log(
        &mut self,
        name: RefName<'_>,
        judge: &mut Judge<'_>,
        then: &[LogEntry],
    ) -> Result<bool> {
        self.rewrite_log_into_lock(name, judge, then)
    }

    fn prepare(&mut self, plan: Plan<'_>) -> Result<()> {
        self.prepare_plan(&plan)
    }

    fn publish(mut self: Box<Self>) -> Result<Published> {
        self.publish_plan()
    }
}

impl FilesSession {
    /// Takes the lock of a name that the transaction did not lock beforehand.
    pub(super) fn take_unseen(&mut self, name: RefName<'_>) -> Result<usize> {
        let index = self.held.len();
        self.log_dirs = KnownDirs::default();
        let taken = self.take(name);
        if self.files.is_migrating()? {
            return Err(being_migrated().into_error(name));
        }
        taken.map_err(|not| not.into_error(name))?;
        match self.read_loose(index, None).pop() {
            Some(Current::Refused(refusal)) => Err(refusal.into_error(name)),
            _ => Ok(index),
        }
    }

    /// Says what the lock at `index` has been taken of.
    pub(super) fn judge(
        &self,
        index: usize,
        loose: Option<Current>,
        packed: Option<&mut Forwards<'_>>,
    ) -> Result<Locked> {
        match loose {
            Some(Current::Found(found)) => return Ok(Locked::Found(*found)),
            Some(Current::Refused(refusal)) => return Ok(Locked::Refused(*refusal)),
            Some(Current::NotLoose) | None => {}
        }
        let Some(held) = self.held.get(index) else {
            return Ok(Locked::Missing);
        };
        if held.place == Place::Common
            && let Some(packed) = packed
            && let Some(found) = packed.find_ref(self.files.bare(&held.name))?
        {
            return Ok(Locked::Found(found));
        }
        let refusal = held.blocked.then(|| self.below(held)).transpose()?;
        Ok(refusal.flatten().map_or(Locked::Missing, Locked::Refused))
    }

    /// Releases every lock that is still held and removes directories that are empty.
    pub(super) fn tidy(&mut self) {
        // What is not ours any more must not be taken away from somebody else.
        let is_held = self.holder.check_held().is_ok() && !self.holder.is_torn();
        if is_held && self.held.len() > LOOKED_AT_MAX {
            self.holder.note_seen();
        }
        let mut held = std::mem::take(&mut self.held);
        match middle(held.iter().map(|held| held.name.as_bytes())) {
            None => self.files.release(&mut held),
            Some(middle) => {
                let (first, second) = held.split_at_mut(middle);
                both(|| self.files.release(first), || self.files.release(second));
            }
        }
        drop(held);
        let base = self.files.layout.common_dir();
        self.bars
            .release(|dir| self.empty_dirs.add_parent(base, dir));
        self.empty_dirs.remove(self.files.system.as_ref());
    }
}

impl Drop for FilesSession {
    fn drop(&mut self) {
        self.tidy();
    }
}
