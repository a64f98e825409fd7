//! A stack: its tables as they were at one moment, kept fresh, added to and compacted.
//!
//! Invariants:
//! 1. A [`Snapshot`] never changes; cursors keep the one they were made from.
//! 2. A table is whole, durable and named before a list names it, and dropped only after a list
//!    without it is durable.
//! 3. Compaction never changes what a reader sees; when it fails, the stack is as it was.

mod fold;

pub(super) use fold::Own;

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reftable::{HashId, Table, WriteOptions};

use super::tables::{Claim, Hold, Publication, Stamp, Tables, short_random};
use crate::commit::{Change, LockFile};
use crate::error::{Error, ErrorKind, Result};
use crate::oid::ObjectFormat;
use crate::options::{LockTimeout, ReftableOptions};
use crate::system::System;

/// How long a reader goes on looking for a table that a list names, while lists keep changing.
const RELOAD_MAX: Duration = Duration::from_secs(3);

/// Up to so many bytes are compacted under the lock that a commit holds anyway: giving it up and
/// taking it again costs more.
const COMPACT_UNDER_LOCK_MAX: u64 = 256 * 1024;

/// From so many bytes on a stack is worth a look at how much of it is dead. Smaller ones are left
/// as Git leaves them.
const DEAD_STACK_MIN: u64 = 16 * 1024;

#[derive(Debug)]
pub(super) struct Stack {
    pub(super) tables: Box<dyn Tables>,
    system: Arc<dyn System>,
    hash: HashId,
    options: ReftableOptions,
    current: Mutex<Option<Arc<Snapshot>>>,
}

/// The tables of a stack at one moment, oldest first.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) stamp: Stamp,
    pub(super) names: Vec<String>,
    pub(super) tables: Vec<Arc<Table>>,
}

impl Snapshot {
    /// Returns the update index of the next transaction.
    pub(super) fn next_update_index(&self) -> u64 {
        self.tables
            .last()
            .map_or(1, |table| table.max_update_index().saturating_add(1))
    }
}

/// What a new table did to the stack, as far as compaction cares.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Added {
    /// How many refs that existed were deleted.
    pub(super) deleted: u64,
}

/// What became of a new list.
pub(super) enum Publish {
    /// Readers see it. The error says why it may not be durable, or what it replaced is still there.
    Done { unsynced: Option<Error> },
    /// Another writer was faster; nothing changed.
    Moved,
}

/// A stack that nobody else can publish to.
pub(super) struct Held {
    pub(super) hold: Box<dyn Hold>,
    pub(super) snapshot: Arc<Snapshot>,
    /// Whether a journal says that what is stored will be published.
    pub(super) staged: bool,
}

impl Stack {
    pub(super) fn new(
        tables: Box<dyn Tables>,
        system: Arc<dyn System>,
        hash: HashId,
        options: ReftableOptions,
    ) -> Self {
        Stack {
            tables,
            system,
            hash,
            options,
            current: Mutex::new(None),
        }
    }

    pub(super) fn object_format(&self) -> ObjectFormat {
        match self.hash {
            HashId::Sha1 => ObjectFormat::Sha1,
            HashId::Sha256 => ObjectFormat::Sha256,
        }
    }

    /// Returns how large the blocks of new tables are, in bytes.
    pub(super) fn block_size(&self) -> u32 {
        self.options.block_size
    }

    /// Returns the tables as they are now.
    pub(super) fn snapshot(&self) -> Result<Arc<Snapshot>> {
        let known = self.cached();
        if let Some(known) = known {
            if self.tables.is_current(&known.stamp)? {
                return Ok(known);
            }
            return self.reload(Some(known));
        }
        self.reload(None)
    }

    fn cached(&self) -> Option<Arc<Snapshot>> {
        self.current
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn cache(&self, snapshot: &Arc<Snapshot>) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        *current = Some(Arc::clone(snapshot));
    }

    fn reload(&self, known: Option<Arc<Snapshot>>) -> Result<Arc<Snapshot>> {
        let mut waited = Duration::ZERO;
        let mut pause = Duration::from_millis(1);
        loop {
            let list = self.tables.list()?;
            match self.open_all(&list.names, known.as_deref())? {
                Ok(tables) => {
                    let names = list.names;
                    let snapshot = Arc::new(Snapshot {
                        stamp: list.stamp,
                        names,
                        tables,
                    });
                    self.cache(&snapshot);
                    return Ok(snapshot);
                }
                // A table is gone. Either a compaction has just replaced it, and there is a new
                // list, or it is lost.
                Err(gone) => {
                    if self.tables.is_current(&list.stamp)? || waited >= RELOAD_MAX {
                        return Err(Error::corrupt(
                            &self.tables.path_of(&gone),
                            "the table is missing, but tables.list names it",
                        ));
                    }
                }
            }
            self.system.sleep(pause);
            waited += pause;
            pause *= 2;
        }
    }

    /// Opens every table that `known` does not have; the inner error is a table that is gone.
    fn open_all(
        &self,
        names: &[String],
        known: Option<&Snapshot>,
    ) -> Result<std::result::Result<Vec<Arc<Table>>, String>> {
        let mut tables = Vec::with_capacity(names.len());
        for name in names {
            let at = known.and_then(|known| known.names.iter().position(|other| other == name));
            if let Some(table) = at.and_then(|at| known?.tables.get(at)) {
                tables.push(Arc::clone(table));
                continue;
            }
            match self.tables.open(name)? {
                Some(content) => tables.push(Arc::new(self.open_table(name, content)?)),
                None => return Ok(Err(name.clone())),
            }
        }
        self.check_order(names, &tables)?;
        Ok(Ok(tables))
    }

    /// Checks that the tables follow each other (S6), as every writer leaves them. In another order
    /// old values would hide new ones, and the next entries of reflogs those that have their indices;
    /// of a table that is listed twice, compaction would drop the file that is still listed.
    fn check_order(&self, names: &[String], tables: &[Arc<Table>]) -> Result<()> {
        let mut before = None;
        for (name, table) in names.iter().zip(tables) {
            if before.is_some_and(|before| before >= table.min_update_index()) {
                let what =
                    "the table has no later update indices than the one before it in the list";
                return Err(Error::corrupt(&self.tables.path_of(name), what));
            }
            before = Some(table.max_update_index());
        }
        Ok(())
    }

    fn open_table(
        &self,
        name: &str,
        content: impl AsRef<[u8]> + Send + Sync + 'static,
    ) -> Result<Table> {
        let path = self.tables.path_of(name);
        let table = Table::open(content).map_err(|error| Error::corrupt(&path, error))?;
        if table.hash() != self.hash {
            return Err(Error::corrupt(
                &path,
                "the table is of another object format",
            ));
        }
        Ok(table.labelled(name))
    }

    /// Turns a failure of the format into one that names the table, or at least the stack.
    pub(super) fn format_error(&self, error: reftable::Error) -> Error {
        match error.kind() {
            reftable::ErrorKind::EntryTooLarge => Error::new(
                ErrorKind::Misuse,
                format!("reftable: transaction failure: entry too large ({error})"),
            ),
            _ => {
                let path = self.tables.path_of(error.table().unwrap_or_default());
                Error::corrupt(&path, error.without_table())
            }
        }
    }

    /// Acquires the right to add a table, and the tables as they are under it.
    ///
    /// A stack that has no list yet gets one that names nothing: if the writer of the first table
    /// died before it published that, the table would look like one whose list was lost.
    pub(super) fn hold_to_add(
        &self,
        timeout: LockTimeout,
        beside: Option<&LockFile>,
    ) -> Result<Held> {
        let mut held = self.hold_beside(timeout, beside)?;
        if held.snapshot.stamp.is_of_a_list() {
            return Ok(held);
        }
        held.hold.publish(&held.snapshot.stamp, &[])?;
        drop(held);
        self.hold_beside(timeout, beside)
    }

    /// Acquires the right to publish, and the tables as they are under it.
    pub(super) fn hold(&self, timeout: LockTimeout) -> Result<Held> {
        self.hold_beside(timeout, None)
    }

    /// As [`Stack::hold`], for a transaction that holds another stack by the lock `beside`.
    fn hold_beside(&self, timeout: LockTimeout, beside: Option<&LockFile>) -> Result<Held> {
        let hold = self.tables.hold(timeout, beside)?;
        let snapshot = self.snapshot()?;
        Ok(Held {
            hold,
            snapshot,
            staged: false,
        })
    }

    /// Returns how new tables are to be written.
    pub(super) fn write_options(
        &self,
        min_update_index: u64,
        max_update_index: u64,
    ) -> WriteOptions {
        let mut options = WriteOptions::new(self.hash);
        options.block_size = self.options.block_size;
        options.restart_interval = self.options.restart_interval;
        options.index_objects = self.options.index_objects;
        options.min_update_index = min_update_index;
        options.max_update_index = max_update_index;
        options
    }

    pub(super) fn new_name(&self, min: u64, max: u64) -> String {
        format!(
            "0x{min:012x}-0x{max:012x}-{:08x}.ref",
            short_random(&*self.system)
        )
    }

    /// Stores a table so that only a list is missing that names it; returns its name.
    pub(super) fn store(&self, options: &WriteOptions, content: &[u8]) -> Result<String> {
        let name = self.new_name(options.min_update_index, options.max_update_index);
        let mut file = self.tables.create(&name)?;
        let written = file.write_all(content);
        written.map_err(|error| Error::io("cannot write", &self.tables.path_of(&name), error))?;
        file.finish()?;
        Ok(name)
    }

    /// Writes the list with one more table on top, for a journal that other stacks are in too.
    pub(super) fn stage_on_top(
        &self,
        held: &mut Held,
        name: &str,
        change: &mut Change,
    ) -> Result<()> {
        let mut names = held.snapshot.names.clone();
        names.push(name.to_owned());
        held.hold.stage(&names, change)
    }

    /// Publishes the stack with one more table on top, in place of as many as it `replaces`.
    pub(super) fn publish_on_top(
        &self,
        held: &mut Held,
        name: String,
        content: Vec<u8>,
        replaces: usize,
    ) -> Result<Publish> {
        let table = self.open_table(&name, content);
        if table.is_err() && !held.staged {
            self.discard([&name]);
        }
        let table = Arc::new(table?);
        let (mut names, mut tables) = (held.snapshot.names.clone(), held.snapshot.tables.clone());
        let kept = names.len().saturating_sub(replaces);
        let old = names.split_off(kept);
        tables.truncate(kept);
        names.push(name.clone());
        tables.push(table);
        let published = self.publish(held, names, tables, &[name])?;
        match published {
            Publish::Done { unsynced: None } => Ok(Publish::Done {
                unsynced: self.drop_tables(&old).err(),
            }),
            // The old list may come back after a power failure: its tables have to stay.
            _ => Ok(published),
        }
    }

    /// Publishes a new list. If that fails, the tables that only this list names are removed.
    pub(super) fn publish(
        &self,
        held: &mut Held,
        names: Vec<String>,
        tables: Vec<Arc<Table>>,
        new: &[String],
    ) -> Result<Publish> {
        let published = held.hold.publish(&held.snapshot.stamp, &names);
        if !matches!(published, Ok(Publication::Done(..))) && !held.staged {
            self.discard(new);
        }
        match published? {
            Publication::Moved => Ok(Publish::Moved),
            Publication::Done(stamp, unsynced) => {
                held.snapshot = Arc::new(Snapshot {
                    stamp,
                    names,
                    tables,
                });
                self.cache(&held.snapshot);
                Ok(Publish::Done { unsynced })
            }
        }
    }

    /// Removes tables that were stored and will not be published.
    pub(super) fn discard<'n>(&self, names: impl IntoIterator<Item = &'n String>) {
        for name in names {
            // At worst a table stays behind that no list names.
            let _ = self.tables.drop_table(name);
        }
    }

    /// Compacts what is worth compacting.
    ///
    /// # Errors
    /// `Locked` when somebody else is at it, which is fine after a commit.
    pub(super) fn auto_compact(&self, added: Added) -> Result<()> {
        let Some(snapshot) = self.cached() else {
            return Ok(());
        };
        if self.choose(&snapshot.tables, added)?.is_none() {
            return Ok(());
        }
        let held = self.hold(LockTimeout::from_millis(0))?;
        match self.choose(&held.snapshot.tables, added)? {
            Some(range) => self.compact(held, range, true),
            None => Ok(()),
        }
    }

    /// Returns the tables that are worth merging: by the sizes alone, as Git chooses unless that
    /// means to rewrite much for little, or all of them if the last commit left more dead records
    /// than live ones.
    fn choose(&self, tables: &[Arc<Table>], added: Added) -> Result<Option<Range<usize>>> {
        let count = tables.len();
        if count > 1 && added.deleted > 0 && self.is_mostly_dead(tables, added.deleted)? {
            return Ok(Some(0..count));
        }
        let weights: Vec<u64> = tables.iter().map(|table| table.weight()).collect();
        let factor = self.options.geometric_factor;
        let chosen = reftable::compaction::choose(&weights, factor);
        let weight = |range: &Range<usize>| {
            weights
                .get(range.clone())?
                .iter()
                .copied()
                .reduce(u64::saturating_add)
        };
        match chosen.as_ref().and_then(weight) {
            Some(weight) if weight > COMPACT_UNDER_LOCK_MAX => {
                Ok(reftable::compaction::choose_worthwhile(&weights, factor))
            }
            _ => Ok(chosen),
        }
    }

    /// Returns whether `deleted` records, the deletions of the newest table, are more than half of
    /// those below, in a stack that is too large to be read through for every ref. Counting reads
    /// every table, so it is done only if the deletions weigh enough to make that likely.
    fn is_mostly_dead(&self, tables: &[Arc<Table>], deleted: u64) -> Result<bool> {
        let Some((newest, below)) = tables.split_last() else {
            return Ok(false);
        };
        let weight: u64 = below.iter().map(|table| table.weight()).sum();
        if !may_be_mostly_dead(weight, newest.weight()) {
            return Ok(false);
        }
        let mut records = reftable::MergedRefs::new(below.to_vec());
        let mut count: u64 = 0;
        while records
            .advance()
            .map_err(|error| self.format_error(error))?
        {
            count += 1;
        }
        Ok(is_most_of(deleted, count))
    }

    /// Merges all tables into one.
    pub(super) fn compact_all(&self) -> Result<()> {
        let held = self.hold(self.options.lock_timeout)?;
        let count = held.snapshot.tables.len();
        if count > 1 {
            self.compact(held, 0..count, false)
        } else {
            Ok(())
        }
    }

    /// Merges a range of tables into one: claim them, newest first, merge without the right to
    /// publish unless it is quick, publish, drop.
    fn compact(&self, held: Held, mut range: Range<usize>, best_effort: bool) -> Result<()> {
        let snapshot = Arc::clone(&held.snapshot);
        let mut claims: Vec<Box<dyn Claim>> = Vec::new();
        for at in range.clone().rev() {
            match self.tables.claim(&snapshot.names[at])? {
                Some(claim) => claims.push(claim),
                // Somebody is merging this one; what is newer can still be merged.
                None if best_effort && claims.len() >= 2 => {
                    range.start = at + 1;
                    break;
                }
                None => return Err(locked()),
            }
        }
        let merged = &snapshot.tables[range.clone()];
        let weight: u64 = merged.iter().map(|table| table.weight()).sum();
        let held = (weight <= COMPACT_UNDER_LOCK_MAX).then_some(held);
        let (name, is_empty) = self.merge(merged, range.start == 0)?;
        let mut held = match held {
            Some(held) => held,
            None => self.hold(self.options.lock_timeout)?,
        };
        held.hold.stay()?;
        // Others may have added tables meanwhile, or compacted others; ours were claimed.
        let old = &snapshot.names[range.clone()];
        let now = Arc::clone(&held.snapshot);
        let Some(at) = now.names.windows(old.len()).position(|names| names == old) else {
            drop(name);
            return Err(locked());
        };
        let mut names = now.names.clone();
        let mut tables = now.tables.clone();
        let (mut new_names, mut new_tables) = (Vec::new(), Vec::new());
        if !is_empty {
            let name = name.finish(self)?;
            let table = self.reopen(&name);
            if table.is_err() {
                self.discard([&name]);
            }
            new_tables.push(Arc::new(table?));
            new_names.push(name);
        }
        names.splice(at..at + old.len(), new_names.clone());
        tables.splice(at..at + old.len(), new_tables);
        match self.publish(&mut held, names, tables, &new_names)? {
            Publish::Moved => return Err(locked()),
            // The old list may come back after a power failure: its tables have to stay.
            Publish::Done {
                unsynced: Some(error),
            } => return Err(error),
            // The claims go first: a process that dies has both, and whoever takes over the one
            // takes over the others, or its merge took long, and the tables are claimed by others.
            Publish::Done { unsynced: None } => drop((claims, held)),
        }
        self.drop_tables(old)
    }

    /// Removes tables that no list names any more; one that cannot be removed does not keep the
    /// others.
    fn drop_tables(&self, names: &[String]) -> Result<()> {
        let dropped = names.iter().map(|name| self.tables.drop_table(name));
        dropped.fold(Ok(()), Result::and)
    }

    /// Returns how the merge of these tables is to be written.
    fn options_of_merge(&self, tables: &[Arc<Table>]) -> WriteOptions {
        let min = tables.first().map_or(0, |table| table.min_update_index());
        let max = tables.last().map_or(0, |table| table.max_update_index());
        self.write_options(min, max)
    }

    /// Opens a table that was just stored.
    pub(super) fn reopen(&self, name: &str) -> Result<Table> {
        let content = self.tables.open(name)?.ok_or_else(|| {
            Error::corrupt(&self.tables.path_of(name), "the new table is missing")
        })?;
        self.open_table(name, content)
    }

    fn merge(&self, tables: &[Arc<Table>], to_the_bottom: bool) -> Result<(Merged, bool)> {
        let options = self.options_of_merge(tables);
        let name = self.new_name(options.min_update_index, options.max_update_index);
        let file = self.tables.create(&name)?;
        let sink = std::io::BufWriter::with_capacity(256 * 1024, file);
        let finished = reftable::compact(tables, to_the_bottom, &options, sink)
            .map_err(|error| self.format_error(error))?;
        let is_empty = finished.stats.is_empty();
        Ok((
            Merged {
                name,
                file: finished.sink,
            },
            is_empty,
        ))
    }

    /// Removes what dead writers left behind.
    pub(super) fn clean(&self) -> Result<()> {
        let mut held = self.hold(self.options.lock_timeout)?;
        let max = held.snapshot.next_update_index().saturating_sub(1);
        let names = held.snapshot.names.clone();
        self.tables.clean(held.hold.as_mut(), &names, max)
    }
}

/// Returns whether the deletions of a table of weight `newest` can be most of what is below: one
/// weighs at least a sixteenth of the record that it deletes.
fn may_be_mostly_dead(below: u64, newest: u64) -> bool {
    below >= DEAD_STACK_MIN && newest.saturating_mul(16) >= below
}

/// Returns whether so many deletions are more than half of so many records.
fn is_most_of(deleted: u64, records: u64) -> bool {
    deleted.saturating_mul(2) > records
}

fn locked() -> Error {
    Error::new(ErrorKind::Locked, "data is locked")
}

/// A merged table that is written and not yet named.
struct Merged {
    name: String,
    file: std::io::BufWriter<Box<dyn super::tables::NewTable>>,
}

impl Merged {
    fn finish(self, stack: &Stack) -> Result<String> {
        let file = self.file.into_inner().map_err(|error| {
            Error::io(
                "cannot write",
                &stack.tables.path_of(&self.name),
                error.into_error(),
            )
        })?;
        file.finish()?;
        Ok(self.name)
    }
}
