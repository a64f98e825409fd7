//! The tables of a store that is repaired: which stay, what takes the place of others, and what becomes of refs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::io::ErrorKind as IoKind;
use std::path::Path;
use std::sync::Arc;

use bstr::BString;
use refdb::name::{FormatOptions, is_well_formed};
use refdb::objects::{Objects, Peeled};
use refdb::shared::TableKey;
use refdb::shared::head::{DROPPED_MAX, Dropped, INLINE_LEN_MAX, TABLES_MAX, TableEntry, checksum};
use refdb::system::Bytes;
use refdb::{Error, ErrorKind, ObjectId, Result, Target};
use reftable::{MergedRefs, RefRecord, RefValue, Table, WriteOptions, Writer};

use super::{StoreMeans, StorePlan};
use crate::repair::OF_NEWER_TABLES;
use crate::repair::stack::{logged, values};
use crate::repair::{RefChange, doubled};

/// A table of the repaired store.
struct Member {
    /// As the head names it; `None` for the newest records.
    entry: Option<TableEntry>,
    table: Arc<Table>,
    /// Its content, if that is not on the place.
    new: Option<Bytes>,
}

impl StorePlan<'_> {
    fn key(&self, min: u64, max: u64) -> TableKey {
        TableKey {
            epoch: Some(self.base.epoch + 1),
            min,
            max,
            random: self.system.random(),
        }
    }

    /// Looks at each table, and plans what takes the place of those that are damaged.
    pub(super) fn tables(&mut self, means: &StoreMeans) -> Result<()> {
        let (mut members, mut gone) = (Vec::new(), Vec::new());
        let mut dropped = BTreeMap::new();
        for entry in self.base.tables.clone() {
            let name = format!("tables/{}", entry.key);
            let content = self.place.get(&name, None)?;
            let is_it = |content: &Bytes| entry.is_of(content);
            if let Some(table) = content.clone().filter(is_it).and_then(whole) {
                members.push(Member {
                    entry: Some(entry),
                    table,
                    new: None,
                });
                continue;
            }
            gone.push(entry.key);
            let kept = content.clone().map(|content| (name.clone(), content));
            self.aside.extend(kept);
            let (min, max) = (entry.key.min, entry.key.max);
            let copy = self.copy_of(&entry, means)?.filter(is_it);
            let found = match (copy, content) {
                (Some(copy), _) => {
                    self.notes.push(format!("{name}: it is taken from a copy"));
                    Some(copy)
                }
                (None, Some(bad)) => self.salvage(&name, &bad, (min, max), means, &mut dropped)?,
                (None, None) => {
                    let what = "the table is missing, and with it what only it said";
                    self.lost_in(&name, min, max, what, "refs that were changed only there");
                    None
                }
            };
            if let Some(content) = found
                && let Some(table) = whole(content.clone())
            {
                let (min, max) = (table.min_update_index(), table.max_update_index());
                members.push(self.new_member(self.key(min, max), table, content));
            }
        }
        let inline = self.base.inline.clone();
        let mut newest = (!inline.is_empty()).then(|| inline.clone());
        if !inline.is_empty() && whole(inline.clone()).is_none() {
            self.is_damaged = true;
            self.aside.push(("newest".to_owned(), inline.clone()));
            let before = members.last().map_or(0, |it| it.table.max_update_index());
            let range = (before + 1, self.base.index);
            newest = self.salvage("the newest records", &inline, range, means, &mut dropped)?;
        }
        if let Some(content) = newest
            && let Some(table) = whole(content.clone())
        {
            members.push(Member {
                entry: None,
                table,
                new: Some(content),
            });
        }
        self.is_damaged |= !gone.is_empty();
        if !self.is_damaged || (gone.is_empty() && !self.is_lossy && !self.is_late) {
            return Ok(());
        }
        if !self.is_late {
            self.repaired.index = self.repaired.index.saturating_add(1);
        }
        self.list(members, &gone, means, dropped)
    }

    fn new_member(&self, key: TableKey, table: Arc<Table>, content: Bytes) -> Member {
        let entry = TableEntry {
            key,
            len: content.len() as u64,
            checksum: checksum(&content),
        };
        Member {
            entry: Some(entry),
            table,
            new: Some(content),
        }
    }

    fn lost_in(&mut self, name: &str, min: u64, max: u64, what: &str, which: &str) {
        self.is_lossy = true;
        self.notes.push(format!(
            "{name}: {what}; {which}, in the updates {min} to {max}, are lost or go \
             back to an older value, unless a reflog tells them"
        ));
    }

    /// Returns the copy of a table, if there is one.
    fn copy_of(&self, entry: &TableEntry, means: &StoreMeans) -> Result<Option<Bytes>> {
        let Some(dir) = &means.tables else {
            return Ok(None);
        };
        let path = dir.join(entry.key.to_string());
        match self.system.read(&path) {
            Ok(content) => Ok(Some(Bytes::from(content))),
            Err(error) if error.kind() == IoKind::NotFound => Ok(None),
            Err(error) => Err(Error::io("unable to read", &path, error)),
        }
    }

    /// Returns a table of what whole blocks of a damaged one say, without refs that name no object.
    fn salvage(
        &mut self,
        name: &str,
        content: &Bytes,
        (min, max): (u64, u64),
        means: &StoreMeans,
        dropped: &mut BTreeMap<Vec<u8>, Target>,
    ) -> Result<Option<Bytes>> {
        let mut found = reftable::salvage(content.to_vec(), self.base.object_format, min..=max);
        let (first, last) = (found.min_update_index, found.max_update_index);
        if first < min || last > max || first > last || found.is_empty() {
            found = reftable::salvage_as(content.to_vec(), self.base.object_format, min..=max);
        }
        let lost = found.lost.len();
        let mut what = match (found.is_empty(), lost) {
            (true, _) => "no block could be read".to_owned(),
            (false, 0) => "all blocks that are there could be read".to_owned(),
            (false, _) => format!("{lost} places could not be read; the blocks around them could"),
        };
        let (above, _) = found.logs_above();
        if above > 0 {
            let _ = write!(what, "; {above} {OF_NEWER_TABLES}");
        }
        let which = match (found.is_empty(), lost) {
            (false, 0) => "if others are missing, refs that were changed only in those",
            _ => "refs that were changed only there",
        };
        self.lost_in(name, min, max, &what, which);
        self.notes
            .extend(doubled(&found).map(|what| format!("{name}: {what}")));
        if found.is_empty() {
            return Ok(None);
        }
        let mut named = Vec::new();
        found.for_each_ref(|record| {
            if let RefValue::Direct(raw) | RefValue::Peeled { oid: raw, .. } = record.value {
                named.push((record.name.to_vec(), ObjectId::from_bytes(raw)));
            }
        });
        let mut bad = BTreeSet::new();
        let mut strangers = 0;
        for (name, oid) in named {
            let is_there = match oid {
                Some(oid) => means.objects.kind(oid)?.is_some(),
                None => false,
            };
            if !is_there || !is_well_formed(&name, FormatOptions::ONE_LEVEL) {
                dropped.extend(oid.map(|oid| (name.clone(), Target::Direct(oid))));
                bad.insert(name);
                strangers += 1;
            }
        }
        if strangers > 0 {
            self.notes.push(format!(
                "{name}: {strangers} values name objects that are not here, and are not taken: if others have \
                 them, fetch them first"
            ));
        }
        let keep = |record: RefRecord<'_>| !bad.contains(record.name);
        let rebuilt = found.rebuild(self.base.object_format, keep);
        rebuilt
            .map(|content| Some(Bytes::from(content)))
            .map_err(|error| Error::corrupt_with(Path::new(name), error, None))
    }

    /// Writes the new list: the tables, and on top of them what reflogs say of refs that lost their value.
    fn list(
        &mut self,
        members: Vec<Member>,
        gone: &[TableKey],
        means: &StoreMeans,
        dropped: BTreeMap<Vec<u8>, Target>,
    ) -> Result<()> {
        let tables: Vec<Arc<Table>> = members.iter().map(|it| Arc::clone(&it.table)).collect();
        let older = values(&tables);
        let (fixes, told) = match self.is_lossy {
            true => fixes(&tables, means.objects.as_ref())?,
            false => (BTreeMap::new(), BTreeMap::new()),
        };
        let new = &mut self.repaired;
        new.tables.clear();
        new.inline = Bytes::new();
        new.epoch += 1;
        new.complete_since = new.index;
        for member in members {
            let content = member.new.unwrap_or_default();
            match member.entry {
                Some(entry) => {
                    if !content.is_empty() {
                        self.new_tables.push((entry.key, content));
                    }
                    self.repaired.tables.push(entry);
                }
                // It stays on top if nothing comes there.
                None if fixes.is_empty() && content.len() <= INLINE_LEN_MAX => {
                    self.repaired.inline = content;
                }
                None => {
                    let table = &member.table;
                    let (min, max) = (table.min_update_index(), table.max_update_index());
                    self.add(min, max, content);
                }
            }
        }
        if !fixes.is_empty() {
            let index = self.repaired.index;
            let content = self.table_of(&fixes, means.objects.as_ref(), index)?;
            self.add(index, index, content);
        }
        if self.repaired.tables.len() > TABLES_MAX {
            let what = format!(
                "{}: the store would have too many tables",
                self.place.name()
            );
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        let (time, generation) = (self.system.now().as_secs(), self.base.generation + 2);
        let dropped_now = gone.iter().map(|key| Dropped {
            key: *key,
            generation,
            time,
        });
        let all = dropped_now.chain(self.base.dropped.iter().cloned());
        self.repaired.dropped = all.take(DROPPED_MAX).collect();
        self.changes(&older, &fixes, told, dropped);
        Ok(())
    }

    fn add(&mut self, min: u64, max: u64, content: Bytes) {
        let key = self.key(min, max);
        self.repaired.tables.push(TableEntry {
            key,
            len: content.len() as u64,
            checksum: checksum(&content),
        });
        self.new_tables.push((key, content));
    }

    fn table_of(
        &self,
        fixes: &BTreeMap<Vec<u8>, ObjectId>,
        objects: &dyn Objects,
        index: u64,
    ) -> Result<Bytes> {
        let mut options = WriteOptions::new(self.base.object_format);
        (options.min_update_index, options.max_update_index) = (index, index);
        let failed = |error| Error::corrupt_with(Path::new("the new table"), error, None);
        let mut writer = Writer::new(Vec::new(), options).map_err(failed)?;
        for (name, oid) in fixes {
            let peeled = match objects.peel(*oid)? {
                Peeled::To(peeled) => Some(peeled),
                _ => None,
            };
            let value = match &peeled {
                Some(peeled) => RefValue::Peeled {
                    oid: oid.as_bytes(),
                    peeled: peeled.as_bytes(),
                },
                None => RefValue::Direct(oid.as_bytes()),
            };
            let record = RefRecord {
                name,
                update_index: index,
                value,
            };
            writer.add_ref(record).map_err(failed)?;
        }
        Ok(Bytes::from(writer.finish().map_err(failed)?.sink))
    }

    /// Notes what becomes of the refs of which something else is known than their value afterwards.
    fn changes(
        &mut self,
        older: &BTreeMap<Vec<u8>, Target>,
        fixes: &BTreeMap<Vec<u8>, ObjectId>,
        told: BTreeMap<Vec<u8>, ObjectId>,
        dropped: BTreeMap<Vec<u8>, Target>,
    ) {
        let mut before: BTreeMap<Vec<u8>, Option<Target>> = BTreeMap::new();
        before.extend(
            fixes
                .keys()
                .map(|name| (name.clone(), older.get(name).cloned())),
        );
        before.extend(
            told.into_iter()
                .map(|(name, oid)| (name, Some(Target::Direct(oid)))),
        );
        before.extend(
            dropped
                .into_iter()
                .map(|(name, target)| (name, Some(target))),
        );
        for (name, before) in before {
            let fixed = fixes.get(&name).map(|oid| Target::Direct(*oid));
            let from_log = fixed.is_some();
            let after = fixed.or_else(|| older.get(&name).cloned());
            if before != after {
                self.refs.push(RefChange {
                    name: BString::from(name),
                    before,
                    after,
                    from_log,
                });
            }
        }
    }
}

/// Returns a table in which nothing is wrong.
fn whole(content: Bytes) -> Option<Arc<Table>> {
    let table = Arc::new(Table::open(content).ok()?);
    reftable::check(&table).is_empty().then_some(table)
}

/// Refs, each with an object.
type Named = BTreeMap<Vec<u8>, ObjectId>;

/// Returns the values that reflogs tell of refs which have none, or an older one; and, of those that no object
/// is there for, the newest that is told.
fn fixes(tables: &[Arc<Table>], objects: &dyn Objects) -> Result<(Named, Named)> {
    let mut index: BTreeMap<Vec<u8>, (u64, bool)> = BTreeMap::new();
    let mut refs = MergedRefs::new(tables.to_vec());
    while let Ok(true) = refs.advance() {
        let record = refs.record();
        let is_symref = matches!(record.value, RefValue::Symref(_));
        index.insert(record.name.to_vec(), (record.update_index, is_symref));
    }
    let (mut fixes, mut told) = (Named::new(), Named::new());
    for (name, entries) in logged(tables) {
        let known = index.get(&name);
        let (at, is_symref) = known.copied().unwrap_or_default();
        let is_name = name.starts_with(b"refs/") && is_well_formed(&name, FormatOptions::FULL);
        let newer: Vec<ObjectId> = entries
            .iter()
            .filter(|entry| entry.0 > at)
            .map(|entry| entry.1)
            .collect();
        let Some(newest) = newer.last().filter(|_| is_name && !is_symref) else {
            continue;
        };
        if newest.is_null() {
            continue;
        }
        let mut found = None;
        for oid in newer.iter().rev().filter(|oid| !oid.is_null()) {
            if found.is_none() && objects.kind(*oid)?.is_some() {
                found = Some(*oid);
            }
        }
        if found != Some(*newest) {
            told.insert(name.clone(), *newest);
        }
        fixes.extend(found.map(|oid| (name, oid)));
    }
    Ok((fixes, told))
}
