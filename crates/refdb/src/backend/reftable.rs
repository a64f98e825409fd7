//! The `reftable` backend: a stack of tables for the common directory, one more for each worktree.
//!
//! Records in a stack carry bare names; which stack a name belongs to is the layout's to say, for
//! reading and for writing alike. (Git's writers put the long name of another worktree's ref into
//! that worktree's stack, where no reader finds it.)

mod bulk;
mod cursor;
mod encode;
mod fresh;
mod hold;
mod log_write;
mod logs;
mod names;
mod session;
mod shared;
mod stack;
mod stamp;
mod tables;
mod walk;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use refdb_names::internals::owned_from_disk;
use refdb_names::name::is_per_worktree;
use refdb_names::{ObjectId, RefName, RefNameBuf, Target};
use reftable::{RefRecord, RefValue};

use self::cursor::StackCursor;
pub use self::fresh::what_is_lost;
pub use self::names::{is_table_name, is_unfinished, may_be_listed, new_table_name, short_random};
use self::session::ReftableSession;
use self::shared::SharedTables;
use self::stack::{Added, Snapshot, Stack};
pub use self::tables::LIST_LEN_MAX;
use self::tables::{LocalTables, Tables};
use super::cursor::{Cursor, ListCursor, OverCursor};
use super::tags::{Distinct, TAGS, Wanted};
use super::{Backend, LogOrder, Optimize, Quirks, RefFormat, Session, Value};
use crate::commit::{Home, JournalWatch, LockFile, LockOptions, Means, Roots, sweep};
use crate::error::{Error, ErrorKind, OrIo, Result};
use crate::layout::{Layout, Place};
use crate::objects::Objects;
use crate::options::Options;
use crate::reflog::LogEntry;
use crate::shared::{Freshness, Register};
use crate::system::{System, unpoisoned};

/// Of more ids than that refs are looked for by all of them at once, and not by one after the other.
const BY_ID_MAX: usize = 8;

#[derive(Debug)]
pub(crate) struct ReftableBackend {
    system: Arc<dyn System>,
    layout: Layout,
    options: Arc<Options>,
    home: Arc<Home>,
    journal: Arc<JournalWatch>,
    stacks: Mutex<HashMap<Place, Arc<Stack>>>,
    /// Where the refs of the common directory are, if not there.
    register: Option<Arc<Register>>,
}

impl ReftableBackend {
    pub(crate) fn new(
        system: Arc<dyn System>,
        layout: Layout,
        options: Arc<Options>,
        register: Option<Arc<Register>>,
    ) -> Self {
        let home = Home::new(&system, layout.common_dir(), &options);
        let journal = Arc::new(JournalWatch::new(&home));
        ReftableBackend {
            system,
            layout,
            options,
            home,
            journal,
            stacks: Mutex::new(HashMap::new()),
            register,
        }
    }

    /// Returns the stack of a place; it stays open for as long as the backend lives.
    fn stack(&self, place: &Place) -> Arc<Stack> {
        let mut stacks = unpoisoned(&self.stacks);
        if let Some(stack) = stacks.get(place) {
            return Arc::clone(stack);
        }
        let stack = Arc::new(self.open_stack(place));
        stacks.insert(place.clone(), Arc::clone(&stack));
        stack
    }

    fn open_stack(&self, place: &Place) -> Stack {
        let base = self.layout.dir(place);
        let tables: Box<dyn Tables> = match &self.register {
            Some(register) if *place == Place::Common => {
                let register = Arc::clone(register);
                Box::new(SharedTables::new(register, self.options.object_format))
            }
            _ => Box::new(LocalTables::new(
                &self.home,
                &self.journal,
                &self.layout,
                base,
                &self.options,
            )),
        };
        Stack::new(tables, Arc::clone(&self.system), &self.options)
    }

    /// Returns what it takes to change several stacks at once, of which one is held by a lock.
    fn means<'m>(&self, lock: &'m LockFile) -> Means<'m> {
        let common = self.layout.common_dir();
        Means {
            holder: lock.holder(),
            lock: Some(lock),
            packed: None,
            options: LockOptions::of(&self.options, self.options.reftable.lock_timeout),
            fsync: self.options.fsync,
            roots: Roots::new(&self.system, common, &common.join("packed-refs")),
            dirs: BTreeSet::new(),
            clear: &|_| Ok(()),
        }
    }

    /// Returns the stacks of this worktree: the common one, and its own if it is a linked one.
    fn view(&self) -> (Arc<Stack>, Option<Arc<Stack>>) {
        let own = self
            .layout
            .is_linked()
            .then(|| self.stack(&Place::Worktree));
        (self.stack(&Place::Common), own)
    }

    /// Calls `each` for the stacks of this worktree, with the names that are visible in each.
    fn for_each_visible<T>(
        &self,
        mut each: impl FnMut(&Stack, &dyn Fn(&[u8]) -> bool) -> Result<T>,
    ) -> Result<Vec<T>> {
        let (common, own) = self.view();
        match own {
            None => Ok(vec![each(&common, &|_| true)?]),
            Some(own) => Ok(vec![
                each(&common, &|name| !is_per_worktree(name))?,
                each(&own, &|_| true)?,
            ]),
        }
    }
}

impl Backend for ReftableBackend {
    fn format(&self) -> RefFormat {
        RefFormat::Reftable
    }

    fn quirks(&self) -> Quirks {
        Quirks {
            names_are_paths: false,
            asks_in_lower_case: false,
            null_is_none: false,
            log_edits_read: false,
            compares_on_the_way: true,
            edits_in_turn: false,
            judges_joined: false,
            renames_in_one_entry: false,
            renaming: "copying",
        }
    }

    fn read(&self, name: RefName<'_>) -> Result<Option<Value>> {
        self.journal.for_reading()?;
        if !name.may_exist() {
            return Ok(None);
        }
        let (place, bare) = self.layout.locate(name);
        let stack = self.stack(&place);
        let snapshot = stack.snapshot()?;
        find(&stack, &snapshot.tables, bare)
    }

    fn read_all(&self, names: &[RefName<'_>]) -> Result<Vec<Result<Option<Value>>>> {
        self.journal.for_reading()?;
        // Each stack is looked at once.
        let mut seen: Vec<(Place, Arc<Stack>, Result<Arc<Snapshot>>)> = Vec::new();
        let mut read = |name: RefName<'_>| {
            if !name.may_exist() {
                return Ok(None);
            }
            let (place, bare) = self.layout.locate(name);
            let at = seen.iter().position(|(known, ..)| *known == place);
            let at = at.unwrap_or_else(|| {
                let stack = self.stack(&place);
                let snapshot = stack.snapshot();
                seen.push((place, stack, snapshot));
                seen.len() - 1
            });
            match seen.get(at) {
                Some((_, stack, Ok(snapshot))) => find(stack, &snapshot.tables, bare),
                Some((_, _, Err(error))) => Err(error.clone()),
                None => Ok(None),
            }
        };
        Ok(names.iter().map(|&name| read(name)).collect())
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>> {
        self.journal.for_reading()?;
        let (common, own) = self.view();
        let shared = StackCursor::new(&common, common.snapshot()?);
        Ok(match own {
            None => Box::new(shared),
            Some(own) => {
                let own = StackCursor::new(&own, own.snapshot()?);
                Box::new(OverCursor::new(
                    Box::new(own),
                    Box::new(shared),
                    is_per_worktree,
                ))
            }
        })
    }

    fn log_exists(&self, name: RefName<'_>) -> Result<bool> {
        self.journal.for_reading()?;
        let (place, bare) = self.layout.locate(name);
        let stack = self.stack(&place);
        let snapshot = stack.snapshot()?;
        logs::exists(&stack, &mut logs::live(&snapshot), bare)
    }

    fn for_each_log_entry(
        &self,
        name: RefName<'_>,
        order: LogOrder,
        each: &mut dyn FnMut(LogEntry) -> Result<bool>,
    ) -> Result<bool> {
        self.journal.for_reading()?;
        let (place, bare) = self.layout.locate(name);
        let stack = self.stack(&place);
        let snapshot = stack.snapshot()?;
        logs::for_each(&stack, &snapshot, bare, order, each)
    }

    fn log_names(&self) -> Result<Vec<RefNameBuf>> {
        self.journal.for_reading()?;
        let lists = self.for_each_visible(|stack, is_visible| {
            let mut names = logs::names(stack, &*stack.snapshot()?)?;
            names.retain(|name| is_visible(name.as_bytes()) && name.as_name().is_well_formed());
            Ok(names)
        })?;
        let mut names: Vec<RefNameBuf> = lists.into_iter().flatten().collect();
        names.sort();
        names.dedup();
        Ok(names)
    }

    fn begin(&self) -> Result<Box<dyn Session + '_>> {
        self.journal.for_writing()?;
        Ok(Box::new(ReftableSession::new(self)))
    }

    fn tries_again(&self) -> Option<Duration> {
        self.register.as_ref().map(|it| it.settings().limit)
    }

    fn generation(&self, now: bool) -> Result<u64> {
        let Some(register) = &self.register else {
            return Ok(0);
        };
        let known = match now {
            true => register.current(Freshness::Fresh)?,
            false => register.known()?,
        };
        Ok(known.head.generation)
    }

    fn optimize(&self, options: &Optimize<'_>, _objects: &dyn Objects) -> Result<()> {
        self.journal.for_writing()?;
        let dir = self.layout.common_dir();
        sweep(&self.home, dir, false).or_io("cannot remove locks in", dir)?;
        let (common, own) = self.view();
        let stack = own.unwrap_or(common);
        let unable = |error: Error| match error.kind() {
            // Whose lock it is, where that is known, stands below the words of Git.
            ErrorKind::Locked if error.message().path().is_some() => error.below("data is locked"),
            _ => error,
        };
        if options.auto {
            stack.snapshot()?;
            stack.auto_compact(Added::default()).map_err(unable)?;
        } else {
            stack.compact_all().map_err(unable)?;
        }
        stack.clean().map_err(unable)
    }

    fn maintained(&self) -> &dyn super::maintained::Maintained {
        self
    }

    fn refs_of_objects(&self, wanted: &Wanted) -> Result<Box<dyn Cursor>> {
        let mut found = self.find_all(wanted)?;
        // A tag is found by its own id and by that of its commit.
        found.dedup_by(|next, kept| next.0 == kept.0);
        Ok(Box::new(ListCursor::new(found)))
    }
}

impl ReftableBackend {
    /// Returns the refs of this worktree that lead to wanted objects, in name order, and some of them again.
    fn find_all(&self, wanted: &Wanted) -> Result<Vec<(RefNameBuf, Value)>> {
        self.journal.for_reading()?;
        let lists = self.for_each_visible(|stack, is_visible| {
            let (mut found, mut broken) = (Vec::new(), None);
            let snapshot = stack.snapshot()?;
            let tables = &snapshot.tables;
            let ids = wanted.ids(&snapshot.untold, || tags_without_peeled(stack, tables))?;
            let ids: Vec<&[u8]> = ids.iter().map(ObjectId::as_bytes).collect();
            let each = &mut |record: RefRecord<'_>| {
                if is_visible(record.name) && cursor::is_listed(record.name) {
                    let name = || owned_from_disk(record.name);
                    match to_ref(stack, &record) {
                        Ok(Some(value)) => found.push((name(), value)),
                        Ok(None) => {}
                        Err(error) => broken = Some(error),
                    }
                }
            };
            let searched = match wanted.wide || ids.len() > BY_ID_MAX {
                true => reftable::refs_that_may_lead_to(tables, &ids, each),
                false => ids
                    .iter()
                    .try_for_each(|oid| reftable::refs_by_oid(tables, oid, each)),
            };
            stack.checked(searched)?;
            broken.map_or(Ok(found), Err)
        })?;
        let mut found: Vec<(RefNameBuf, Value)> = lists.into_iter().flatten().collect();
        if !found.is_sorted_by(|low, high| low.0 <= high.0) {
            found.sort_by(|low, high| low.0.cmp(&high.0));
        }
        Ok(found)
    }
}

/// Returns the values of the refs below `refs/tags/` without a stored peeled value.
fn tags_without_peeled(stack: &Stack, tables: &[Arc<reftable::Table>]) -> Result<Vec<ObjectId>> {
    let len = tables
        .first()
        .map_or(0, |table| table.object_format().raw_len());
    let mut ids = Distinct::new(len);
    let read = reftable::objects_without_peeled(tables, TAGS, &mut |oid| ids.add(oid));
    stack.checked(read)?;
    Ok(ids.read(ObjectId::from_bytes))
}

/// Finds one ref in a stack's tables.
fn find(
    stack: &Stack,
    tables: &[Arc<reftable::Table>],
    name: RefName<'_>,
) -> Result<Option<Value>> {
    let found = reftable::find_ref(tables, name.as_bytes(), |record| to_ref(stack, &record));
    stack.checked(found)?.unwrap_or(Ok(None))
}

/// Turns a record into a ref; `None` for a deletion.
fn to_ref(stack: &Stack, record: &RefRecord<'_>) -> Result<Option<Value>> {
    let (target, peeled) = match record.value {
        RefValue::Deletion => return Ok(None),
        RefValue::Direct(oid) => (Target::Direct(object_id(stack, oid)?), None),
        RefValue::Peeled { oid, peeled } => (
            Target::Direct(object_id(stack, oid)?),
            Some(object_id(stack, peeled)?),
        ),
        RefValue::Symref(target) => (Target::Symbolic(owned_from_disk(target)), None),
    };
    Ok(Some(Value {
        target,
        peeled,
        packed: false,
    }))
}

fn object_id(stack: &Stack, raw: &[u8]) -> Result<ObjectId> {
    ObjectId::from_bytes(raw).ok_or_else(|| stack.corrupt("", "an object id has the wrong length"))
}
