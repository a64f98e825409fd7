//! A stack whose tables are on a shared place: the head is its list, and the newest table is in the head.
//!
//! Nobody holds the right to publish alone. A transaction is checked against the head that is known here,
//! and published on the condition that it still stands; else the answer is [`Publication::Moved`].

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use refdb_names::ObjectFormat;
use reftable::Table;

use super::tables::{Claim, Hold, List, NewTable, Publication, Stamp, Tables};
use crate::commit::{Change, LockFile};
use crate::error::{Error, ErrorKind, Result};
use crate::options::LockTimeout;
use crate::shared::head::{
    DROPPED_MAX, Dropped, Head, INLINE_AHEAD_MAX, INLINE_LEN_MAX, TABLES_MAX, TableEntry, checksum,
};
use crate::shared::{Known, Register, Swapped, TableKey, check_open};
use crate::system::beside;
use crate::system::{Bytes, unpoisoned};

/// What the name of the table in a head begins with; its generation comes next.
const INLINE: &str = "inline-";

/// So many tables are fetched at once.
const FETCHED_AT_ONCE: usize = 16;

/// Tables on a shared place.
#[derive(Clone, Debug)]
pub(super) struct SharedTables(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    register: Arc<Register>,
    object_format: ObjectFormat,
    /// Tables that no head names yet, by name.
    pending: Mutex<HashMap<String, Bytes>>,
    /// Those that are stored all the same, since a head was tried that names them.
    stored: Mutex<HashSet<TableKey>>,
    /// What was stored for a later head: the last two of each kind.
    ahead: Mutex<Vec<Ahead>>,
}

/// A table that is stored, and that a head may name in place of what says the same.
#[derive(Clone, Debug)]
pub(super) struct Ahead {
    entry: TableEntry,
    pub(super) table: Arc<Table>,
    pub(super) instead_of: InsteadOf,
}

/// What a table says the same as.
#[derive(Clone, Debug)]
pub(super) enum InsteadOf {
    /// What is in the head, as long as it is these bytes.
    Newest(Bytes),
    /// Tables that stand side by side. Deletions up to an index are not recorded any more.
    Tables(Vec<TableKey>, u64),
}

impl Ahead {
    pub(super) fn name(&self) -> String {
        self.entry.key.to_string()
    }

    /// Returns whether a head may name it next: not after its epoch, since it may be removed then.
    fn stands_for(&self, head: &Head) -> bool {
        let is_same = match &self.instead_of {
            InsteadOf::Newest(content) => head.inline == *content,
            InsteadOf::Tables(keys, _) => {
                let mut windows = head.tables.windows(keys.len());
                windows.any(|side_by_side| side_by_side.iter().map(|it| &it.key).eq(keys))
            }
        };
        is_same && self.entry.key.epoch == Some(head.epoch)
    }

    /// Returns whether it is made of what is in the head, and not of other tables.
    pub(super) fn is_newest(&self) -> bool {
        matches!(self.instead_of, InsteadOf::Newest(_))
    }
}

impl SharedTables {
    pub(super) fn new(register: Arc<Register>, object_format: ObjectFormat) -> SharedTables {
        SharedTables(Arc::new(Inner {
            register,
            object_format,
            pending: Mutex::default(),
            stored: Mutex::default(),
            ahead: Mutex::default(),
        }))
    }

    pub(super) fn register(&self) -> &Register {
        &self.0.register
    }

    fn pending(&self) -> MutexGuard<'_, HashMap<String, Bytes>> {
        unpoisoned(&self.0.pending)
    }

    fn ahead(&self) -> MutexGuard<'_, Vec<Ahead>> {
        unpoisoned(&self.0.ahead)
    }

    /// Returns what is stored that the next head may name, if that of the stamp is known here.
    pub(super) fn stored_ahead(&self, stamp: &Stamp) -> Result<Vec<Ahead>> {
        let known = self.known()?;
        let mut found = self.ahead().clone();
        found.retain(|ahead| stamp_is(stamp, &known) && ahead.stands_for(&known.head));
        Ok(found)
    }

    /// Stores a table that says the same as what a head has, or will have if its replacement succeeds. Where that
    /// fails, there is none.
    pub(super) fn store_ahead(
        &self,
        content: &[u8],
        table: Table,
        instead_of: InsteadOf,
        epoch: u64,
    ) {
        let key = TableKey {
            epoch: Some(epoch),
            min: table.min_update_index(),
            max: table.max_update_index(),
            random: self.register().system().random(),
        };
        if self.register().try_table(&key, content).is_err() {
            return;
        }
        let new = Ahead {
            entry: entry_of(key, content),
            table: Arc::new(table.labelled(&key.to_string())),
            instead_of,
        };
        let mut ahead = self.ahead();
        // The one before it may be what is being named now.
        let of_its_kind = |it: &&Ahead| it.is_newest() == new.is_newest();
        if ahead.iter().filter(of_its_kind).count() > 1
            && let Some(oldest) = ahead.iter().position(|it| of_its_kind(&it))
        {
            ahead.remove(oldest);
        }
        ahead.push(new);
    }

    /// Returns whether so many bytes of newest records stay in the head, `head` being the one that is replaced, until
    /// a table of them is stored.
    pub(super) fn waits_in_head(&self, len: usize, head: &Head) -> bool {
        let most = self.inline_max();
        len > most && len <= INLINE_AHEAD_MAX.min(2 * most) && self.register().is_busy(head)
    }

    fn inline_max(&self) -> usize {
        self.register().settings().inline_max.min(INLINE_LEN_MAX)
    }

    /// Returns a table that no head names yet.
    pub(super) fn kept(&self, name: &str) -> Option<Bytes> {
        self.pending().get(name).cloned()
    }

    /// Returns the head that is known here.
    pub(super) fn known(&self) -> Result<Arc<Known>> {
        let known = self.0.register.known()?;
        if known.head.object_format != self.0.object_format {
            let name = self.0.register.name();
            let what = format!("{name}: the store is of another object format");
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        Ok(known)
    }

    /// Makes what is known here as fresh as reads are to be.
    pub(super) fn look(&self) -> Result<()> {
        let freshness = self.register().settings().freshness;
        self.register().current(freshness).map(drop)
    }

    /// Returns whether what a stack has is what is known here.
    pub(super) fn is_known(&self, stamp: &Stamp) -> Result<bool> {
        Ok(stamp.is_generation(self.known()?.head.generation))
    }

    /// Returns the table in the head, if that is the one of the stamp.
    pub(super) fn known_inline(&self, stamp: &Stamp) -> Result<Option<Bytes>> {
        let known = self.known()?;
        Ok(stamp_is(stamp, &known).then(|| known.head.inline.clone()))
    }

    /// Keeps a table for the next list, which names it.
    pub(super) fn keep(&self, name: &str, content: Bytes) {
        self.pending().insert(name.to_owned(), content);
    }

    /// Returns the name of a new table.
    pub(super) fn new_name(&self, epoch: Option<u64>, min: u64, max: u64) -> String {
        let random = self.0.register.system().random();
        let key = TableKey {
            epoch,
            min,
            max,
            random,
        };
        key.to_string()
    }

    /// Publishes a list of tables in place of the expected one. The last may be small enough to be in the
    /// head. Deletions up to `forgotten` are recorded no longer.
    pub(super) fn swap(
        &self,
        expected: &Stamp,
        names: &[String],
        forgotten: u64,
    ) -> Result<Publication> {
        let base = self.known()?;
        if !stamp_is(expected, &base) {
            return Ok(Publication::Moved);
        }
        let register = self.register();
        check_open(&base.head, &register.name())?;
        let Some(mut new) = self.new_head(&base.head, names)? else {
            return Ok(Publication::Moved);
        };
        new.complete_since = new.complete_since.max(forgotten);
        let generation = base.head.generation + 1;
        let swapped = register.swap(&base, new)?;
        let mut pending = self.pending();
        names.iter().for_each(|name| drop(pending.remove(name)));
        drop(pending);
        Ok(match swapped {
            Swapped::Done => Publication::Done(Stamp::of_generation(generation), None),
            Swapped::Moved => Publication::Moved,
        })
    }

    /// Stores new tables, and returns the head that has this list in place of that of `base`; `None` where a table
    /// that was stored ahead says something else by now.
    fn new_head(&self, base: &Head, names: &[String]) -> Result<Option<Head>> {
        let mut new = base.clone();
        new.inline = Bytes::new();
        new.tables.clear();
        for (at, name) in names.iter().enumerate() {
            if is_inline(name) {
                new.inline = base.inline.clone();
                continue;
            }
            let key = key_of(name)?;
            if let Some(entry) = base.tables.iter().find(|table| table.key == key) {
                new.tables.push(entry.clone());
                continue;
            }
            let ahead = self.ahead().iter().find(|it| it.entry.key == key).cloned();
            if let Some(ahead) = ahead {
                if !ahead.stands_for(base) {
                    return Ok(None);
                }
                if let InsteadOf::Tables(_, forgotten) = ahead.instead_of {
                    new.complete_since = new.complete_since.max(forgotten);
                }
                self.add(&mut new, ahead.entry)?;
                continue;
            }
            let content = self.kept(name);
            if content.is_none() && key.epoch.is_some() {
                // It was stored ahead, and others have been since.
                return Ok(None);
            }
            let content = content.ok_or_else(|| {
                let what = format!("{}: the table {name} is lost", self.register().name());
                Error::new(ErrorKind::Misuse, what)
            })?;
            new.index = new.index.max(key.max);
            let fits = content.len() <= self.inline_max();
            if at + 1 == names.len()
                && key.epoch.is_none()
                && (fits || self.waits_in_head(content.len(), base))
            {
                new.inline = content;
                continue;
            }
            self.add(&mut new, entry_of(key, &content))?;
            self.store(&key, &content)?;
        }
        self.note_dropped(base, &mut new);
        Ok(Some(new))
    }

    fn add(&self, head: &mut Head, entry: TableEntry) -> Result<()> {
        if head.tables.len() == TABLES_MAX {
            let what = format!(
                "{}: the store has {TABLES_MAX} tables, and cannot name more before they are merged: \
                 refdb pack-refs",
                self.register().name()
            );
            return Err(Error::new(ErrorKind::Locked, what));
        }
        head.tables.push(entry);
        Ok(())
    }

    /// Stores a table on the place, once.
    fn store(&self, key: &TableKey, content: &[u8]) -> Result<()> {
        if !unpoisoned(&self.0.stored).contains(key) {
            self.register().put_table(key, content)?;
            unpoisoned(&self.0.stored).insert(*key);
        }
        Ok(())
    }

    /// Writes down which tables the new head does not name any more.
    fn note_dropped(&self, old: &Head, new: &mut Head) {
        let time = self.register().system().now().as_secs();
        let (generation, kept) = (old.generation + 1, &new.tables);
        let is_kept = |entry: &&TableEntry| !kept.iter().any(|kept| kept.key == entry.key);
        let dropped = old.tables.iter().filter(is_kept).map(|entry| Dropped {
            key: entry.key,
            generation,
            time,
        });
        new.dropped = dropped
            .chain(old.dropped.iter().cloned())
            .take(DROPPED_MAX)
            .collect();
    }
}

/// Returns whether a name is that of the table in a head.
pub(super) fn is_inline(name: &str) -> bool {
    name.starts_with(INLINE)
}

fn stamp_is(stamp: &Stamp, known: &Known) -> bool {
    stamp.is_generation(known.head.generation)
}

fn entry_of(key: TableKey, content: &[u8]) -> TableEntry {
    TableEntry {
        key,
        len: content.len() as u64,
        checksum: checksum(content),
    }
}

pub(super) fn key_of(name: &str) -> Result<TableKey> {
    name.parse()
        .map_err(|error| Error::new(ErrorKind::Misuse, format!("'{name}': {error}")))
}

impl Tables for SharedTables {
    fn path_of(&self, table: &str) -> PathBuf {
        PathBuf::from(self.register().name()).join(table)
    }

    fn as_shared(&self) -> Option<&SharedTables> {
        Some(self)
    }

    fn list(&self) -> Result<List> {
        let known = self.known()?;
        let head = &known.head;
        let mut names: Vec<String> = head.tables.iter().map(|it| it.key.to_string()).collect();
        if !head.inline.is_empty() {
            names.push(format!("{INLINE}{}", head.generation));
        }
        Ok(List {
            names,
            stamp: Stamp::of_generation(head.generation),
            index: head.index,
        })
    }

    fn is_current(&self, stamp: &Stamp) -> Result<bool> {
        let freshness = self.register().settings().freshness;
        Ok(stamp_is(stamp, &*self.register().current(freshness)?))
    }

    fn open(&self, table: &str) -> Result<Option<Bytes>> {
        if let Some(content) = self.kept(table) {
            return Ok(Some(content));
        }
        let known = self.known()?;
        if let Some(generation) = table.strip_prefix(INLINE) {
            let is_it = generation == known.head.generation.to_string();
            return Ok(is_it.then(|| known.head.inline.clone()));
        }
        let key = key_of(table)?;
        match known.head.tables.iter().find(|entry| entry.key == key) {
            Some(entry) => self.register().table(entry),
            None => Ok(None),
        }
    }

    /// What is far away is fetched at once, and not one after the other.
    fn open_all(&self, tables: &[&str]) -> Result<Vec<Option<Bytes>>> {
        if !self.register().shared().is_far() {
            return tables.iter().map(|table| self.open(table)).collect();
        }
        let mut opened = Vec::with_capacity(tables.len());
        for some in tables.chunks(FETCHED_AT_ONCE) {
            let Some((last, others)) = some.split_last() else {
                continue;
            };
            let fetched = thread::scope(|scope| {
                let threads: Vec<_> = others
                    .iter()
                    .map(|table| match is_inline(table) {
                        true => None,
                        false => beside::start(scope, || self.open(table)).ok(),
                    })
                    .collect();
                let last = self.open(last);
                let others = threads.into_iter().zip(others);
                let others = others.map(|(thread, table)| match thread {
                    Some(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
                    // Perhaps no thread was to be had.
                    None => self.open(table),
                });
                let mut fetched: Vec<_> = others.collect();
                fetched.push(last);
                fetched
            });
            for content in fetched {
                opened.push(content?);
            }
        }
        Ok(opened)
    }

    fn hold(&self, _timeout: LockTimeout, _beside: Option<&LockFile>) -> Result<Box<dyn Hold>> {
        let known = self.register().to_write()?;
        check_open(&known.head, &self.register().name())?;
        Ok(Box::new(SharedHold(self.clone())))
    }

    fn claim(&self, _table: &str) -> Result<Box<dyn Claim>> {
        // An epoch is what keeps two maintainers apart.
        Err(super::stack::locked())
    }

    fn is_claimed(&self, _table: &str) -> Result<bool> {
        Ok(false)
    }

    fn create(&self, table: &str) -> Result<Box<dyn NewTable>> {
        Ok(Box::new(PendingTable {
            tables: self.clone(),
            name: table.to_owned(),
            content: Vec::new(),
        }))
    }

    /// What is on the place is collected, when nobody can list it any more.
    fn drop_table(&self, table: &str) -> Result<()> {
        self.pending().remove(table);
        Ok(())
    }

    fn clean(&self, _hold: &mut dyn Hold, _listed: &[String], _max: u64) -> Result<()> {
        Ok(())
    }
}

/// The right to try.
struct SharedHold(SharedTables);

impl Hold for SharedHold {
    fn stage(&mut self, _tables: &[String], _change: &mut Change) -> Result<()> {
        Err(Error::new(
            ErrorKind::Misuse,
            "refs of a shared store and of a single worktree cannot be changed in one transaction",
        ))
    }

    fn as_lock(&self) -> Option<&LockFile> {
        None
    }

    fn leave(&mut self) {}

    fn publish(&mut self, expected: &Stamp, tables: &[String]) -> Result<Publication> {
        self.0.swap(expected, tables, 0)
    }
}

/// A table that is stored when a head is to name it, unless the head has room for it.
struct PendingTable {
    tables: SharedTables,
    name: String,
    content: Vec<u8>,
}

impl Write for PendingTable {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.content.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl NewTable for PendingTable {
    fn finish(self: Box<Self>) -> Result<()> {
        let PendingTable {
            tables,
            name,
            content,
        } = *self;
        tables.keep(&name, Bytes::from(content));
        Ok(())
    }
}
