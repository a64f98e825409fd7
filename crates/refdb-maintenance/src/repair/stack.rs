//! Repair of a stack: its tables, its list, and the refs whose values are lost.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bstr::ByteSlice;
use refdb::internals::{LIST_LEN_MAX, may_be_listed, name_from_disk, new_table_name};
use refdb::layout::HEAD_OF_TABLES;
use refdb::name::{FormatOptions, is_well_formed};
use refdb::objects::Peeled;
use refdb::system::FileKind;
use refdb::{Error, ErrorKind, ObjectFormat, ObjectId, Result, Target};
use reftable::{
    LogRecord, LogValue, MergedLogs, MergedRefs, RefCursor, RefRecord, RefValue, Table,
    WriteOptions, Writer,
};

use super::head::{Entry, branch_of};
use super::members::{has_good_list, sensible, whole_table};
use super::{NAMELESS, OF_NEWER_TABLES, OF_NO_TABLE, Options, Plan, Step, doubled};
use crate::stacks::head_file;
use crate::verify::{Damage, Repair, indices_of_name, no_file};

/// A table of the repaired stack.
pub(super) struct Member {
    pub(super) name: String,
    pub(super) table: Arc<Table>,
    /// The bytes, if it has to be written.
    pub(super) new: Option<Vec<u8>>,
}

/// What becomes of a stack.
#[derive(Default)]
pub(super) struct Stack {
    pub(super) members: Vec<Member>,
    /// The files of tables that do not stay.
    pub(super) gone: Vec<PathBuf>,
    /// Whether blocks with refs or log entries are lost.
    is_incomplete: bool,
    /// Whether no table is newer than the one that is looked at.
    is_last: bool,
    /// The greatest update index of the newest table, where it keeps log entries above that.
    stated: Option<u64>,
    /// The greatest update index of tables that were merged: up to it, no index says what came first.
    pub(super) mixed: u64,
}

/// An update index as great as this is damage: the names of tables have twelve digits for it.
const INDEX_END: u64 = 1 << 47;

/// The newest log entries of a ref: update index and value, oldest first.
pub(super) type Logged = BTreeMap<Vec<u8>, Vec<(u64, ObjectId)>>;

impl Plan<'_> {
    /// Plans the repair of the stack in `dir`, if the check found something there.
    #[expect(
        clippy::too_many_lines,
        reason = "one plan, in which each step uses what those before found"
    )]
    pub(super) fn stack_of(
        &mut self,
        dir: &Path,
        prefix: &[u8],
        found: &[Damage],
        options: Options,
    ) -> Result<()> {
        let dir = dir.join("reftable");
        let mut here = found.iter().filter(|damage| {
            let is_for_others = damage.repair.is_for_others();
            damage.file.starts_with(&dir) && !is_for_others
        });
        if here.next().is_none() {
            return Ok(());
        }
        let list_path = dir.join("tables.list");
        let system = self.repository.system();
        let old_list = match system.read_at_most(&list_path, LIST_LEN_MAX + 1) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            _ if no_file(system.as_ref(), &list_path).is_some() => None,
            list => Some(list.map_err(|error| Error::io("unable to read", &list_path, error))?),
        };
        if old_list
            .as_ref()
            .is_some_and(|list| list.len() > LIST_LEN_MAX)
        {
            // No list: a person has to see what it is.
            return Ok(());
        }
        let format = self.repository.object_format();
        let has_good_list = has_good_list(&dir, found);
        let names = self.members(&dir, old_list.as_deref(), format, has_good_list)?;
        if !has_good_list {
            self.others_in_folder(&dir, &names, found, options)?;
        }
        // What looked like a leftover beside a damaged list may belong to the stack.
        let kept: BTreeSet<PathBuf> = names.iter().map(|name| dir.join(name)).collect();
        self.steps
            .retain(|step| !matches!(step, Step::Remove(path) | Step::DropTable(path) if kept.contains(path)));
        let mut stack = Stack::default();
        for (at, name) in names.iter().enumerate() {
            stack.is_last = at + 1 == names.len();
            self.member(&dir, name, format, &mut stack)?;
        }
        self.merge_overlapping(&dir, &mut stack)?;
        let tables: Vec<_> = stack
            .members
            .iter()
            .map(|it| Arc::clone(&it.table))
            .collect();
        let before = self.readable(&dir, old_list.as_deref());
        let (mut fixes, mut from_log) = self.fixes(&tables, &stack)?;
        let head = b"HEAD".as_slice();
        let before = with_lost(before, &values(&tables), &fixes);
        let is_moved = stack.is_incomplete && has_moved_since(&tables);
        if is_moved || !values(&tables).contains_key(head) || fixes.get(head) == Some(&None) {
            // What is read may be as old as what is left of the tables.
            let is_old = |read: &&Target| is_moved && values(&tables).get(head) == Some(read);
            let read = before.get(head).filter(|read| !is_old(read));
            let found = self.head_of(&tables, &fixes, read, prefix.is_empty())?;
            self.note_head(&list_path, found.as_ref());
            match &found {
                Some(_) => from_log.push(head.to_vec()),
                None => drop(fixes.remove(head)),
            }
            fixes.extend(found.map(|found| (head.to_vec(), Some(found))));
        }
        let logs = bad_logs(&tables);
        if !(fixes.is_empty() && logs.is_empty()) {
            let last = tables.last().map_or(0, |table| table.max_update_index());
            let index = last.checked_add(1).ok_or_else(|| {
                let what = format!("'{}': its update indices leave none", dir.display());
                Error::new(ErrorKind::Corrupt, what)
            })?;
            let bytes = self.table_of(&fixes, &logs, index, format)?;
            self.add(&mut stack, bytes)?;
        }
        let tables: Vec<_> = stack
            .members
            .iter()
            .map(|it| Arc::clone(&it.table))
            .collect();
        let after = values(&tables);
        self.compare(prefix, &before, &after, &from_log);
        let new = stack.members.iter().filter_map(|member| {
            let bytes = member.new.clone()?;
            Some(Step::Create(dir.join(&member.name), bytes))
        });
        self.steps.extend(new);
        let lines: Vec<&str> = stack
            .members
            .iter()
            .map(|member| member.name.as_str())
            .collect();
        let new_list = (lines.join("\n") + "\n").into_bytes();
        if old_list.as_ref() != Some(&new_list) {
            self.steps.push(Step::Replace {
                path: list_path,
                old: old_list,
                new: new_list,
            });
        }
        self.steps.extend(stack.gone.into_iter().map(Step::Remove));
        Ok(())
    }

    /// Plans the file `HEAD` beside a stack, by which Git knows a repository.
    pub(super) fn head_stub(&mut self, dir: &Path, found: &[Damage]) -> Result<()> {
        let path = head_file(self.repository, dir);
        let is_bad = found
            .iter()
            .any(|damage| damage.file == path && damage.repair == Repair::RewriteRef);
        if !is_bad {
            return Ok(());
        }
        let old = self.content(&path)?;
        let new = HEAD_OF_TABLES.to_vec();
        self.steps.push(Step::Replace { path, old, new });
        Ok(())
    }

    /// Returns what `HEAD` was, by what the tables still say, `fixes` give, and it could be read as; `main` says
    /// whether they are those with the branches.
    fn head_of(
        &mut self,
        tables: &[Arc<Table>],
        fixes: &BTreeMap<Vec<u8>, Option<Target>>,
        read: Option<&Target>,
        main: bool,
    ) -> Result<Option<Target>> {
        let entries = log_of_head(tables);
        let values = values(tables);
        let fixed = |name: &[u8]| match fixes.get(name) {
            Some(fix) => fix.as_ref(),
            None => values.get(name),
        };
        let value = |name: &[u8]| match fixed(name) {
            Some(Target::Direct(oid)) => Some(*oid),
            Some(Target::Symbolic(_)) => None,
            // The branches of a worktree are in another stack.
            None => entries.last().map(|entry| entry.new).filter(|_| !main),
        };
        // The block may be damaged behind it.
        let read = read.filter(|read| match read {
            Target::Symbolic(to) => to.as_bytes().starts_with(b"refs/"),
            Target::Direct(_) => false,
        });
        if let Some(Target::Symbolic(to)) = read
            && value(to.as_bytes()).is_some()
        {
            return Ok(read.cloned());
        }
        Ok(match (self.head_was(&entries, &value)?, read) {
            // A branch that is not born is likelier than none.
            (None | Some(Target::Direct(_)), Some(read)) => Some(read.clone()),
            (was, _) => was,
        })
    }

    /// Takes a table into the stack: as it is, or as what its whole blocks say.
    fn member(
        &mut self,
        dir: &Path,
        name: &str,
        format: ObjectFormat,
        stack: &mut Stack,
    ) -> Result<()> {
        let path = dir.join(name);
        let Some(content) = self.content(&path)? else {
            self.note_loss(&path, "the table is gone, and with it what only it said");
            stack.is_incomplete = true;
            if no_file(self.repository.system().as_ref(), &path) == Some(FileKind::Other) {
                stack.gone.push(path);
            }
            return Ok(());
        };
        let named = indices_of_name(name);
        let opened = Table::open(content.clone()).ok();
        if opened.is_some_and(|table| table.object_format() != format) {
            self.note_loss(
                &path,
                "a table of another object format: it is taken out of the stack",
            );
            stack.is_incomplete = true;
            stack.gone.push(path);
            return Ok(());
        }
        if let Some(table) = whole_table(content.clone(), name, format) {
            stack.members.push(Member {
                name: name.to_owned(),
                table: Arc::new(table.labelled(name)),
                new: None,
            });
            return Ok(());
        }
        self.rebuild(path, content, named, stack)
    }

    fn rebuild(
        &mut self,
        path: PathBuf,
        content: Vec<u8>,
        named: Option<(u64, u64)>,
        stack: &mut Stack,
    ) -> Result<()> {
        let format = self.repository.object_format();
        let (min, max) = sensible(named).unwrap_or((1, u64::MAX - 1));
        let mut salvaged = reftable::salvage(content.clone(), format, min..=max);
        let (first, last) = (salvaged.min_update_index, salvaged.max_update_index);
        // Name and header may say two things: the header counts unless it makes no sense, alone or with the records.
        let before = stack
            .members
            .last()
            .map_or(0, |it| it.table.max_update_index());
        let is_other = named.is_some_and(|named| named != (first, last));
        let makes_sense = first <= last && first > before && !salvaged.is_empty();
        if !makes_sense || (is_other && !salvaged.is_within()) {
            salvaged = reftable::salvage_as(content, format, min..=max);
        }
        if !salvaged.lost.is_empty() {
            let count = salvaged.lost.len();
            self.note_loss(&path, &format!("{count} places {NAMELESS}"));
            stack.is_incomplete = true;
        }
        if let Some(what) = doubled(&salvaged) {
            self.note(&path, &what);
        }
        stack.gone.push(path.clone());
        if salvaged.is_empty() {
            self.note_loss(&path, "no block could be read");
            stack.is_incomplete = true;
            return Ok(());
        }
        let (above, greatest) = salvaged.logs_above();
        // By a name whose first index is above its last, those of the next tables need not be above these.
        let is_turned = named.is_some_and(|(min, max)| min > max);
        if above > 0 && stack.is_last && greatest < INDEX_END {
            let named = sensible(named).map_or(0, |named| named.1);
            let stated = salvaged.max_update_index.max(named);
            salvaged.max_update_index = stated;
            let (strays, _) = salvaged.logs_above();
            if strays > 0 {
                stack.stated = Some(stated);
                self.note(&path, &format!("{strays} {OF_NO_TABLE}"));
            }
            salvaged.max_update_index = greatest;
        } else if above > 0 && is_turned && greatest < INDEX_END {
            self.note(&path, &format!("{above} {OF_NO_TABLE}"));
            stack.mixed = stack.mixed.max(greatest);
            salvaged.max_update_index = greatest;
        } else if above > 0 {
            self.note_loss(&path, &format!("{above} {OF_NEWER_TABLES}"));
        }
        let bytes = salvaged
            .rebuild(format, |_| true)
            .map_err(|error| Error::corrupt(&path, error))?;
        self.add(stack, bytes)
    }

    /// Puts a new table on top of the stack.
    pub(super) fn add(&self, stack: &mut Stack, bytes: Vec<u8>) -> Result<()> {
        let table = Table::open(bytes.clone());
        let table = table.map_err(|error| Error::corrupt(Path::new("the new table"), error))?;
        let (min, max) = (table.min_update_index(), table.max_update_index());
        let name = new_table_name(self.repository.system().as_ref(), min, max);
        stack.members.push(Member {
            table: Arc::new(table.labelled(&name)),
            name,
            new: Some(bytes),
        });
        Ok(())
    }

    /// Returns the refs that can be read before the repair: all of them, or none.
    fn readable(&self, dir: &Path, list: Option<&[u8]>) -> BTreeMap<Vec<u8>, Target> {
        let text = list.unwrap_or_default().to_str_lossy();
        let tables: Option<Vec<_>> = text
            .lines()
            .map(|name| {
                let name = may_be_listed(name).then_some(name)?;
                let content = self.repository.system().read(&dir.join(name)).ok()?;
                Table::open(content).ok().map(Arc::new)
            })
            .collect();
        values(&tables.unwrap_or_default())
    }

    /// Returns the values that lost or impossible refs get: `None` takes the ref away.
    #[expect(clippy::type_complexity, reason = "two lists that belong together")]
    fn fixes(
        &self,
        tables: &[Arc<Table>],
        stack: &Stack,
    ) -> Result<(BTreeMap<Vec<u8>, Option<Target>>, Vec<Vec<u8>>)> {
        let logged = logged(tables);
        let is_incomplete = stack.is_incomplete;
        let mut fixes = BTreeMap::new();
        let mut from_log = Vec::new();
        let mut present = BTreeSet::new();
        let mut refs = MergedRefs::new(tables.to_vec()).live_only();
        while let Ok(true) = refs.advance() {
            let record = refs.record();
            let name = record.name.to_vec();
            present.insert(name.clone());
            let log = logged.get(&name).map(Vec::as_slice).unwrap_or_default();
            let newer = newer(log, record.update_index.max(stack.mixed), stack.stated);
            let is_bad_name = !is_well_formed(&name, FormatOptions::ONE_LEVEL);
            let value = match record.value {
                _ if is_bad_name => {
                    fixes.insert(name, None);
                    continue;
                }
                RefValue::Direct(id) => (ObjectId::from_bytes(id), None),
                RefValue::Peeled { oid, peeled } => {
                    (ObjectId::from_bytes(oid), ObjectId::from_bytes(peeled))
                }
                RefValue::Symref(target) => {
                    let leads_out = name == b"HEAD" && !target.starts_with(b"refs/");
                    if leads_out || !is_well_formed(target, FormatOptions::ONE_LEVEL) {
                        fixes.insert(name, None);
                    }
                    continue;
                }
                RefValue::Deletion => continue,
            };
            let (Some(oid), peeled) = value else {
                continue;
            };
            if !self.may_hold(&name, oid)? {
                let ids: Vec<ObjectId> = log.iter().map(|entry| entry.1).collect();
                let mut found = self.newest(&name, &ids)?;
                from_log.extend(found.map(|_| name.clone()));
                if found.is_none() {
                    found = self.older(tables, &name)?;
                }
                fixes.insert(name, found.map(Target::Direct));
            } else if is_incomplete && !newer.is_empty() {
                if let Some(found) = self.newest(&name, &newer)? {
                    from_log.push(name.clone());
                    fixes.insert(name, Some(Target::Direct(found)));
                }
            } else if let Some(peeled) = peeled
                && self.objects().kind(oid)?.is_some()
                && self.objects().peel(oid)? != Peeled::To(peeled)
            {
                fixes.insert(name, Some(Target::Direct(oid)));
            }
        }
        if is_incomplete {
            for (name, log) in &logged {
                let ids: Vec<ObjectId> = log.iter().map(|entry| entry.1).collect();
                let is_gone = ids.last().is_none_or(ObjectId::is_null);
                let is_name =
                    name.starts_with(b"refs/") && is_well_formed(name, FormatOptions::FULL);
                if present.contains(name) || is_gone || !is_name {
                    continue;
                }
                if let Some(found) = self.newest(name, &ids)? {
                    from_log.push(name.clone());
                    fixes.insert(name.clone(), Some(Target::Direct(found)));
                }
            }
        }
        Ok((fixes, from_log))
    }

    /// Returns the newest value that tables give a ref since it was created, and that it may hold.
    fn older(&self, tables: &[Arc<Table>], name: &[u8]) -> Result<Option<ObjectId>> {
        let mut older: Vec<_> = older_values(tables, name).flatten().collect();
        older.reverse();
        self.newest(name, &older)
    }

    fn table_of(
        &self,
        fixes: &BTreeMap<Vec<u8>, Option<Target>>,
        logs: &[(Vec<u8>, u64)],
        index: u64,
        format: ObjectFormat,
    ) -> Result<Vec<u8>> {
        let mut options = WriteOptions::new(format);
        options.block_size = self.repository.store().options().reftable.block_size;
        (options.min_update_index, options.max_update_index) = (index, index);
        let failed = |error| Error::corrupt(Path::new("the new table"), error);
        let mut writer = Writer::new(Vec::new(), options).map_err(failed)?;
        for (name, fix) in fixes {
            let peeled = match fix {
                Some(Target::Direct(oid)) => match self.objects().peel(*oid)? {
                    Peeled::To(peeled) => Some(peeled),
                    _ => None,
                },
                _ => None,
            };
            let value = match (fix, &peeled) {
                (None, _) => RefValue::Deletion,
                (Some(Target::Symbolic(to)), _) => RefValue::Symref(to.as_bytes()),
                (Some(Target::Direct(oid)), None) => RefValue::Direct(oid.as_bytes()),
                (Some(Target::Direct(oid)), Some(peeled)) => RefValue::Peeled {
                    oid: oid.as_bytes(),
                    peeled: peeled.as_bytes(),
                },
            };
            let record = RefRecord {
                name,
                update_index: index,
                value,
            };
            writer.add_ref(record).map_err(failed)?;
        }
        for (name, update_index) in logs {
            let record = LogRecord {
                name,
                update_index: *update_index,
                value: LogValue::Deletion,
            };
            writer.add_log(record).map_err(failed)?;
        }
        Ok(writer.finish().map_err(failed)?.sink)
    }
}

/// Returns what these tables say together, as far as it can be read.
pub(super) fn values(tables: &[Arc<Table>]) -> BTreeMap<Vec<u8>, Target> {
    let mut values = BTreeMap::new();
    let mut refs = MergedRefs::new(tables.to_vec()).live_only();
    while let Ok(true) = refs.advance() {
        let record = refs.record();
        let target = match record.value {
            RefValue::Direct(id) | RefValue::Peeled { oid: id, .. } => {
                ObjectId::from_bytes(id).map(Target::Direct)
            }
            RefValue::Symref(name) => Some(Target::Symbolic(name_from_disk(name).to_owned())),
            RefValue::Deletion => None,
        };
        values.extend(target.map(|target| (record.name.to_vec(), target)));
    }
    values
}

/// Returns the entries of the reflog of `HEAD`, oldest first.
fn log_of_head(tables: &[Arc<Table>]) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut logs = MergedLogs::new(tables.to_vec()).live_only();
    if logs.seek(b"HEAD").is_err() {
        return entries;
    }
    while let Ok(true) = logs.advance() {
        let record = logs.record();
        if record.name != b"HEAD" {
            break;
        }
        if let LogValue::Update(update) = record.value
            && let Some(new) = ObjectId::from_bytes(update.new)
        {
            let message = update.message.trim_ascii_end().into();
            entries.push(Entry { new, message });
        }
    }
    entries.reverse();
    entries
}

/// Returns whether `HEAD` went to another branch, by its reflog, after it was written as it can be read: in a later
/// table, since update indices within one do not say what came first.
fn has_moved_since(tables: &[Arc<Table>]) -> bool {
    let has_head = |table: &Arc<Table>| table.offset_of_ref(b"HEAD").is_ok_and(|at| at.is_some());
    let written = tables.iter().rposition(has_head);
    let later = written.and_then(|at| tables.get(at + 1..));
    later.is_some_and(|later| branch_of(&log_of_head(later)).is_some())
}

/// Returns what could be read, with those refs that are taken away: of each it is told, also where one damaged table
/// kept all from being read.
fn with_lost(
    mut before: BTreeMap<Vec<u8>, Target>,
    values: &BTreeMap<Vec<u8>, Target>,
    fixes: &BTreeMap<Vec<u8>, Option<Target>>,
) -> BTreeMap<Vec<u8>, Target> {
    let gone = fixes.iter().filter(|(_, fix)| fix.is_none());
    for (name, value) in gone.filter_map(|(name, _)| values.get_key_value(name)) {
        before.entry(name.clone()).or_insert_with(|| value.clone());
    }
    before
}

/// Returns the values that a reflog tells of times behind an update index, but not of such as no table can have said:
/// those above `stated`.
fn newer(log: &[(u64, ObjectId)], than: u64, stated: Option<u64>) -> Vec<ObjectId> {
    let times = log.iter();
    let newer = times.filter(|(at, _)| *at > than && stated.is_none_or(|stated| *at <= stated));
    newer.map(|(_, value)| *value).collect()
}

/// Returns what tables say of a ref since it was last created, newest first.
fn older_values(tables: &[Arc<Table>], name: &[u8]) -> impl Iterator<Item = Option<ObjectId>> {
    let records = tables.iter().rev().filter_map(move |table| {
        let mut refs = RefCursor::new(Arc::clone(table));
        let is_found = refs.seek(name).and_then(|()| refs.advance());
        let record = (matches!(is_found, Ok(true))).then(|| refs.record())?;
        let value = match record.value {
            RefValue::Deletion => None,
            RefValue::Direct(id) | RefValue::Peeled { oid: id, .. } => {
                Some(ObjectId::from_bytes(id))
            }
            RefValue::Symref(_) => Some(None),
        };
        (record.name == name).then_some(value)
    });
    records.map_while(|value| value)
}

/// Returns the entries of reflogs whose names no ref can have.
fn bad_logs(tables: &[Arc<Table>]) -> Vec<(Vec<u8>, u64)> {
    let mut bad = Vec::new();
    let mut logs = MergedLogs::new(tables.to_vec()).live_only();
    while let Ok(true) = logs.advance() {
        let record = logs.record();
        if !is_well_formed(record.name, FormatOptions::ONE_LEVEL) {
            bad.push((record.name.to_vec(), record.update_index));
        }
    }
    bad
}

/// Returns what the reflogs say, oldest entry first.
pub(super) fn logged(tables: &[Arc<Table>]) -> Logged {
    let mut logged = Logged::new();
    let mut logs = MergedLogs::new(tables.to_vec()).live_only();
    while let Ok(true) = logs.advance() {
        let record = logs.record();
        if let LogValue::Update(update) = record.value
            && let Some(new) = ObjectId::from_bytes(update.new)
        {
            let entries = logged.entry(record.name.to_vec()).or_default();
            entries.insert(0, (record.update_index, new));
        }
    }
    logged
}
