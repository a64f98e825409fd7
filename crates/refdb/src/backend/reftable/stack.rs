//! A stack: its tables as they were at one moment, kept fresh, added to and compacted.
//!
//! Invariants:
//! 1. A [`Snapshot`] never changes; cursors keep the one they were made from.
//! 2. A table is whole, durable and named before a list names it, and dropped only after a list
//!    without it is durable.
//! 3. Compaction never changes what a reader sees; when it fails, the stack is as it was.

mod ahead;
mod compact;
mod fold;
mod maintain;

pub(super) use fold::Own;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use refdb_names::ObjectFormat;
use reftable::{Table, WriteOptions};

use super::names::new_table_name;
use super::tables::{Hold, Publication, Stamp, Tables};
use crate::backend::tags::Untold;
use crate::commit::{Change, LockFile};
use crate::error::{Error, ErrorKind, Remedy, Result};
use crate::options::{InvalidSettings, LockTimeout, Options, ReftableOptions};
use crate::system::{System, unpoisoned};

/// How long a reader goes on looking for a table that a list names, while lists keep changing.
const RELOAD_MAX: Duration = Duration::from_secs(3);

/// Up to so many bytes are compacted under the lock that a commit holds anyway: giving it up and
/// taking it again costs more.
const COMPACT_UNDER_LOCK_MAX: u64 = 256 * 1024;

/// From so many bytes on a stack is worth a look at how much of it is dead. Smaller ones are left
/// as Git leaves them.
const DEAD_STACK_MIN: u64 = 16 * 1024;

/// How long tables of a shared place are left for slow readers that nobody lists any more.
const GRACE: Duration = Duration::from_secs(60 * 60);

/// No transaction begins behind this update index: each takes some, and tables follow each other by them.
const UPDATE_INDEX_MAX: u64 = u64::MAX - (1 << 40);

#[derive(Debug)]
pub(super) struct Stack {
    pub(super) tables: Box<dyn Tables>,
    system: Arc<dyn System>,
    object_format: ObjectFormat,
    options: ReftableOptions,
    /// What is wrong with them.
    invalid: Option<Error>,
    current: Mutex<Option<Arc<Snapshot>>>,
}

/// The tables of a stack at one moment, oldest first.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) stamp: Stamp,
    pub(super) names: Vec<String>,
    pub(super) tables: Vec<Arc<Table>>,
    /// An update index that is taken, whatever the tables have.
    index: u64,
    pub(super) untold: Untold,
}

impl Snapshot {
    /// Returns the update index of the next transaction.
    pub(super) fn next_update_index(&self) -> u64 {
        let last = self.tables.last();
        let taken = last.map_or(0, |table| table.max_update_index());
        taken.max(self.index).saturating_add(1)
    }
}

/// What a new table did to the stack, as far as compaction cares.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Added {
    /// How many refs that existed were deleted.
    pub(super) deleted: u64,
}

/// A table that is encoded and not stored yet.
pub(super) struct Pending {
    pub(super) content: Vec<u8>,
    pub(super) options: WriteOptions,
    pub(super) added: Added,
    /// How many tables on top of the stack it takes the place of.
    pub(super) replaces: usize,
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
    pub(super) fn new(tables: Box<dyn Tables>, system: Arc<dyn System>, options: &Options) -> Self {
        Stack {
            tables,
            system,
            object_format: options.object_format,
            options: options.reftable,
            invalid: options.invalid.tables.clone(),
            current: Mutex::new(None),
        }
    }

    pub(super) fn object_format(&self) -> ObjectFormat {
        self.object_format
    }

    /// Returns how long a message may be. Git cuts it so that an entry fits into a block.
    pub(super) fn message_max(&self) -> usize {
        usize::try_from(self.options.block_size / 2).unwrap_or(usize::MAX)
    }

    /// Returns the tables as they are now.
    pub(super) fn snapshot(&self) -> Result<Arc<Snapshot>> {
        if let Some(known) = self.cached() {
            if self.tables.is_current(&known.stamp)? {
                return Ok(known);
            }
            return self.reload(Some(known));
        }
        if let Some(shared) = self.tables.as_shared() {
            // It may have been a while ago that somebody else here looked.
            shared.look()?;
        }
        self.reload(None)
    }

    /// Returns whether a shared stack is of another generation by now.
    pub(super) fn is_behind(&self, stamp: &Stamp, now: u64) -> bool {
        self.tables.as_shared().is_some() && !stamp.is_generation(now)
    }

    /// Returns the tables on which a transaction is tried: what nobody else can change is as it is now;
    /// for what others can change, what is known here is good enough.
    fn snapshot_to_write(&self) -> Result<Arc<Snapshot>> {
        let Some(shared) = self.tables.as_shared() else {
            return self.snapshot();
        };
        match self.cached() {
            Some(known) if shared.is_known(&known.stamp)? => Ok(known),
            known => self.reload(known),
        }
    }

    fn cached(&self) -> Option<Arc<Snapshot>> {
        unpoisoned(&self.current).clone()
    }

    fn cache(&self, snapshot: &Arc<Snapshot>) {
        *unpoisoned(&self.current) = Some(Arc::clone(snapshot));
    }

    fn reload(&self, known: Option<Arc<Snapshot>>) -> Result<Arc<Snapshot>> {
        let mut waited = Duration::ZERO;
        let mut pause = Duration::from_millis(1);
        loop {
            let list = self.tables.list()?;
            match self.open_all(&list.names, known.as_deref())? {
                Ok(tables) => {
                    let snapshot = Arc::new(Snapshot {
                        stamp: list.stamp,
                        names: list.names,
                        tables,
                        index: list.index,
                        untold: Untold::default(),
                    });
                    self.cache(&snapshot);
                    return Ok(snapshot);
                }
                // A table is gone. Either a compaction has just replaced it, and there is a new
                // list, or it is lost.
                Err(gone) => {
                    if self.tables.is_current(&list.stamp)? || waited >= RELOAD_MAX {
                        let what = match self.tables.as_shared() {
                            Some(_) => "the table is missing, but the head names it",
                            None => "the table is missing, but tables.list names it",
                        };
                        return Err(self.corrupt(&gone, what));
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
        let found = |name: &String| {
            let at = known.and_then(|known| known.names.iter().position(|other| other == name));
            at.and_then(|at| known?.tables.get(at))
        };
        let new: Vec<&str> = names
            .iter()
            .filter(|name| found(name).is_none())
            .map(String::as_str)
            .collect();
        let mut new = self.tables.open_all(&new)?.into_iter();
        let mut tables = Vec::with_capacity(names.len());
        for name in names {
            if let Some(table) = found(name) {
                tables.push(Arc::clone(table));
                continue;
            }
            match new.next().flatten() {
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
                return Err(self.corrupt(name, what));
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
        let table = Table::open(content).map_err(|error| self.corrupt(name, error))?;
        if table.object_format() != self.object_format {
            return Err(self.corrupt(name, "the table is of another object format"));
        }
        Ok(table.labelled(name))
    }

    /// Makes the error of damage in a table.
    pub(super) fn corrupt(&self, table: &str, what: impl fmt::Display) -> Error {
        let path = self.tables.path_of(table);
        let remedy = match self.tables.as_shared() {
            Some(_) => Remedy::RepairStore,
            None => Remedy::Repair,
        };
        Error::corrupt_with(&path, what, remedy)
    }

    /// Returns what the format gave, or an error that names the table, or at least the stack.
    ///
    /// # Errors
    /// As for [`Stack::format_error`].
    pub(super) fn checked<T>(&self, given: reftable::Result<T>) -> Result<T> {
        given.map_err(|error| self.format_error(error))
    }

    /// Turns a failure of the format into one that names the table, or at least the stack.
    fn format_error(&self, error: reftable::Error) -> Error {
        match error.kind() {
            reftable::ErrorKind::EntryTooLarge => {
                let what = error.message();
                Error::new(
                    ErrorKind::Misuse,
                    format!("reftable: transaction failure: entry too large ({what})"),
                )
            }
            _ => {
                let table = error.table().unwrap_or_default().to_owned();
                self.corrupt(&table, error.without_table())
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
        self.may_write()?;
        let hold = self.tables.hold(timeout, beside)?;
        let snapshot = self.snapshot_to_write()?;
        if snapshot.next_update_index() > UPDATE_INDEX_MAX {
            let last = snapshot.names.last().map_or("", String::as_str);
            let path = self.tables.path_of(last);
            let message = "its update indices leave none for what is written; to migrate the refs to the \
                           other format and back gives them new ones";
            let message = format!("'{}': {message}", path.display());
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
        Ok(Held {
            hold,
            snapshot,
            staged: false,
        })
    }

    /// Fails if the settings for new tables make no sense.
    pub(super) fn may_write(&self) -> Result<()> {
        InvalidSettings::check(self.invalid.as_ref())
    }

    /// Returns how new tables are to be written.
    pub(super) fn write_options(
        &self,
        min_update_index: u64,
        max_update_index: u64,
    ) -> WriteOptions {
        let mut options = WriteOptions::new(self.object_format);
        options.block_size = self.options.block_size;
        options.restart_interval = self.options.restart_interval;
        options.index_objects = self.options.index_objects;
        options.min_update_index = min_update_index;
        options.max_update_index = max_update_index;
        options
    }

    pub(super) fn new_name(&self, min: u64, max: u64) -> String {
        if let Some(shared) = self.tables.as_shared() {
            return shared.new_name(None, min, max);
        }
        new_table_name(&*self.system, min, max)
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
        if let Some(shared) = self.tables.as_shared() {
            return self.publish_beside(shared, held, names, tables);
        }
        let published = self.publish(held, names, tables, &[name])?;
        // Else the old list may come back after a power failure: its tables have to stay.
        if let Publish::Done { unsynced: None } = published {
            self.discard(&old);
        }
        Ok(published)
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
                let index = held.snapshot.index;
                held.snapshot = Arc::new(Snapshot {
                    stamp,
                    names,
                    tables,
                    index,
                    untold: Untold::default(),
                });
                if self.tables.as_shared().is_some() {
                    // The newest table may have become a part of the head. Whoever wants to know
                    // what is wrong with that meets it again: the commit is done.
                    let known = Some(Arc::clone(&held.snapshot));
                    held.snapshot = self.reload(known).unwrap_or(Arc::clone(&held.snapshot));
                } else {
                    self.cache(&held.snapshot);
                }
                Ok(Publish::Done { unsynced })
            }
        }
    }

    /// Removes tables that no list names, or none any more.
    pub(super) fn discard<'n>(&self, names: impl IntoIterator<Item = &'n String>) {
        for name in names {
            // At worst one stays behind, as it does for Git: what is asked for is done.
            let _ = self.tables.drop_table(name);
        }
    }

    /// Returns how the merge of these tables is to be written.
    fn options_of_merge(&self, tables: &[Arc<Table>]) -> WriteOptions {
        let min = tables.first().map_or(0, |table| table.min_update_index());
        let max = tables.last().map_or(0, |table| table.max_update_index());
        self.write_options(min, max)
    }

    /// Opens a table that was just stored.
    pub(super) fn reopen(&self, name: &str) -> Result<Table> {
        let content = self.tables.open(name)?;
        let content = content.ok_or_else(|| self.corrupt(name, "the new table is missing"))?;
        self.open_table(name, content)
    }

    /// Removes what dead writers left behind.
    pub(super) fn clean(&self) -> Result<()> {
        if let Some(shared) = self.tables.as_shared() {
            return shared.register().collect(GRACE).map(drop);
        }
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

pub(super) fn locked() -> Error {
    Error::new(ErrorKind::Locked, "data is locked")
}
