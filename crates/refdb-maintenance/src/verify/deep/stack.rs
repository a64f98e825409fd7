//! A stack of tables: the list, the folder, every table, and what all of them say together.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bstr::ByteSlice;
use refdb::internals::{
    LIST_LEN_MAX, bytes_to_path, is_table_name, is_unfinished, may_be_listed, what_is_lost,
};
use refdb::name::{FormatOptions, is_well_formed};
use refdb::system::{Bytes, DirEntry, FileKind};
use refdb::{ObjectFormat, ObjectId, Result};
use reftable::{LogCursor, MergedLogs, MergedRefs, RefValue, Table};

use super::{Deep, Repair, Seen, Severity, Source, Value, condition, no_file};

/// How often a list is read again that changed while its tables were looked for.
const ATTEMPTS: usize = 10;

/// What was opened of a stack.
#[derive(Default)]
struct Opened {
    /// The names that the list gives.
    listed: BTreeSet<String>,
    tables: Vec<Arc<Table>>,
    /// What the files hold, opened while the list named them.
    contents: Contents,
}

type Contents = BTreeMap<String, io::Result<Bytes>>;

impl Deep<'_> {
    /// Checks the stack of a directory.
    pub(super) fn stack(&mut self, index: usize) -> Result<()> {
        let dir = self.dir(index).join("reftable");
        let list_path = dir.join("tables.list");
        if self.tells_no_file(&list_path, "no ref can be read", Repair::RebuildList) {
            return Ok(());
        }
        let settled = self.settled_list(&dir, &list_path);
        let Some((list, contents)) = self.told_unless_read(&list_path, settled)? else {
            return Ok(());
        };
        let has_content = list.as_ref().is_some_and(|list| condition(list).is_none());
        let has_tables = self.has_tables(&dir);
        let Some(has_tables) = self.told_unless_read(&dir, has_tables)? else {
            return Ok(());
        };
        if !has_content && !has_tables {
            return self.without_tables(index, list.is_some());
        }
        if list.as_ref().is_some_and(|list| list.len() > LIST_LEN_MAX) {
            let what = "the file is too long for a list of tables";
            self.error(&list_path, None, what, Repair::ByHand);
            return Ok(());
        }
        let Some(content) = list else {
            let what = "the list of tables is missing, but there are tables: no ref is seen";
            self.error(&list_path, None, what, Repair::RebuildList);
            return Ok(());
        };
        let format = self.repository.object_format();
        let mut opened = Opened {
            contents,
            ..Opened::default()
        };
        let mut at = 0;
        // Without tables it is how a store begins again.
        let is_blank = has_tables && content.trim_ascii().is_empty();
        let nothing = condition(&content).or(is_blank.then_some("the list names no table"));
        if let Some(what) = nothing {
            let what = format!("{what}, but there are tables: no ref is seen");
            self.error(&list_path, Some(0), what, Repair::RebuildList);
            return Ok(());
        }
        for line in content.split_inclusive(|&byte| byte == b'\n') {
            self.listed(&dir, line, at, format, &mut opened)?;
            at += line.len();
        }
        self.folder(&dir, &content, &opened)?;
        self.merged(index, &dir, &opened.tables);
        let is_readable = opened.tables.len() == opened.listed.len();
        let has_head = |seen: Seen<'_>| seen.dir == index && seen.name == b"HEAD";
        if is_readable && !self.seen.iter().rev().any(has_head) {
            let what = "HEAD is missing: Git takes it for a branch that nobody knows";
            self.error(&list_path, None, what, Repair::FromReflog);
        }
        Ok(())
    }

    /// Checks a stack with neither a table nor a list that says so. What is lost there no repair
    /// brings back.
    fn without_tables(&mut self, index: usize, has_list: bool) -> Result<()> {
        let base = self.dir(index);
        let objects = (index == 0).then(|| self.repository.odb().dir());
        match what_is_lost(self.system, &base, objects)? {
            Some(lost) => {
                self.put_back(&lost.path, lost.what.clone(), lost.advice());
            }
            None if has_list => {
                let list_path = base.join("reftable").join("tables.list");
                let what = "HEAD is missing: Git takes it for a branch that nobody knows";
                self.error(&list_path, None, what, Repair::FromReflog);
            }
            None => {}
        }
        Ok(())
    }

    /// Reads the list, and opens all tables that it names, or those that are there when it stays as it is although
    /// others are not; no content if there is no list. A writer may take tables away between the two.
    fn settled_list(&self, dir: &Path, path: &Path) -> io::Result<(Option<Vec<u8>>, Contents)> {
        let mut last: Option<Vec<u8>> = None;
        let mut contents = Contents::new();
        for _ in 0..ATTEMPTS {
            let content = match self.system.read_at_most(path, LIST_LEN_MAX + 1) {
                Err(error) if missing(&error) => return Ok((None, Contents::new())),
                content => content?,
            };
            if content.len() > LIST_LEN_MAX {
                return Ok((Some(content), Contents::new()));
            }
            let unchanged = last.as_ref() == Some(&content);
            let names = content.lines().filter_map(|line| line.to_str().ok());
            let names = names.filter(|name| may_be_listed(name));
            let map = |name: &str| match no_file(self.system, &dir.join(name)) {
                Some(_) => Err(io::ErrorKind::Unsupported.into()),
                None => self.system.map(&dir.join(name)),
            };
            contents = names.map(|name| (name.to_owned(), map(name))).collect();
            let is_gone = |it: &io::Result<Bytes>| it.as_ref().is_err_and(missing);
            let whole = !contents.values().any(is_gone);
            last = Some(content);
            if whole || unchanged {
                break;
            }
        }
        Ok((last, contents))
    }

    fn has_tables(&self, dir: &Path) -> io::Result<bool> {
        let entries = match self.system.read_dir(dir) {
            Err(error) if missing(&error) => return Ok(false),
            entries => entries?,
        };
        let mut names = entries.iter().filter_map(|entry| entry.name.to_str().ok());
        Ok(names.any(is_table_name))
    }

    /// Checks one line of the list and the table that it names.
    fn listed(
        &mut self,
        dir: &Path,
        line: &[u8],
        at: usize,
        format: ObjectFormat,
        opened: &mut Opened,
    ) -> Result<()> {
        let list_path = dir.join("tables.list");
        let at = u64::try_from(at).ok();
        let bad = |what: &str| (what.to_owned(), Repair::RebuildList);
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        if line == b"\n" {
            return Ok(());
        }
        let name = text.to_str().ok().filter(|name| may_be_listed(name));
        let (what, repair) = match name {
            _ if !line.ends_with(b"\n") => bad("the last line has no end: the list was cut"),
            None => bad("the line is not the name of a table"),
            Some(name) if !opened.listed.insert(name.to_owned()) => {
                bad("the table is listed twice")
            }
            Some(name) => return self.table(dir, name, format, at, opened),
        };
        self.error(&list_path, at, what, repair);
        Ok(())
    }

    fn table(
        &mut self,
        dir: &Path,
        name: &str,
        format: ObjectFormat,
        line: Option<u64>,
        opened: &mut Opened,
    ) -> Result<()> {
        let path = dir.join(name);
        if no_file(self.system, &path).is_some() {
            let what =
                "a directory, a pipe or a device has the place of the table: no ref can be read";
            self.error(&path, None, what, Repair::RebuildList);
            return Ok(());
        }
        let content = opened.contents.remove(name);
        let content = match content.unwrap_or_else(|| self.system.map(&path)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let what = "the table is missing, but the list names it: no ref can be read";
                self.error(&path, None, what, Repair::RebuildList);
                return Ok(());
            }
            content => match self.told_unless_read(&path, content)? {
                Some(content) => content,
                None => return Ok(()),
            },
        };
        self.counts.tables += 1;
        if let Some(found) = reftable::diagnose(content.as_ref()) {
            let what = format!("{}: {}: no ref can be read", found.section, found.what);
            self.error(&path, Some(found.offset), what, Repair::RebuildTable);
            return Ok(());
        }
        let table = match Table::open(content) {
            Ok(table) => table.labelled(name),
            Err(error) => {
                self.error(
                    &path,
                    error.offset(),
                    error.to_string(),
                    Repair::RebuildTable,
                );
                return Ok(());
            }
        };
        for found in reftable::check(&table) {
            let what = format!("{}: {}", found.section, found.what);
            self.error(&path, Some(found.offset), what, Repair::RebuildTable);
        }
        if table.object_format() != format {
            let what = "the table is of another object format";
            self.error(&path, Some(4), what, Repair::RebuildList);
            return Ok(());
        }
        let stated = (table.min_update_index(), table.max_update_index());
        match indices_of_name(name) {
            None => {
                let what = "the table is not named like one";
                self.warning(&path, what, Repair::ByHand);
            }
            Some(named) if named != stated => {
                let what = "header: the update indices are not those of the table's name";
                self.error(&path, Some(8), what, Repair::RebuildTable);
            }
            Some(_) => {}
        }
        let before = opened.tables.last().map(|table| table.max_update_index());
        if before.is_some_and(|before| before >= stated.0) {
            let what = "the table has no later update indices than the one before it";
            self.error(&dir.join("tables.list"), line, what, Repair::RebuildList);
        }
        opened.tables.push(Arc::new(table));
        Ok(())
    }

    /// Checks what lies in the folder beside the listed tables, of which the list with this content tells.
    fn folder(&mut self, dir: &Path, list: &[u8], opened: &Opened) -> Result<()> {
        let entries = self.system.read_dir(dir);
        let Some(entries) = self.told_unless_read(dir, entries)? else {
            return Ok(());
        };
        let covered = Covered::by(opened);
        let names = entries.iter().filter_map(|entry| entry.name.to_str().ok());
        let unlisted = names.filter(|name| !opened.listed.contains(*name));
        let mut cut = covered.cut(unlisted.filter_map(indices_of_name).collect());
        if cut.is_some() {
            // Nobody writes the next but one before the next is listed, unless the list is another one by now.
            let path = dir.join("tables.list");
            let now = self.system.read_at_most(&path, LIST_LEN_MAX + 1);
            cut = cut.filter(|_| now.is_ok_and(|now| now == list));
        }
        let went_on = cut.is_some_and(|cut| self.went_on(dir, opened, &entries, cut));
        for entry in entries {
            let path = dir.join(bytes_to_path(&entry.name));
            let name = entry.name.to_str_lossy();
            if opened.listed.contains(name.as_ref())
                || name == "tables.list"
                || entry.kind == FileKind::Directory
            {
                continue;
            }
            let indices = indices_of_name(&name);
            if indices.is_some_and(|indices| covered.is_lost(indices)) {
                let what = "the list does not name this table, and no other has its update indices: \
                     what it says is not seen";
                self.error(&path, None, what, Repair::RebuildList);
            } else if is_table_name(&name) && went_on {
                let what = "the list does not name this table: it was cut, and the stack went on without what this \
                     one says";
                let words = "compare the refs with a copy, then move the table away";
                self.put_back(&path, what.to_owned(), words.to_owned());
            } else if indices
                .is_some_and(|(min, max)| cut.is_some_and(|(from, to)| from <= min && max <= to))
            {
                let what = "the list does not name this table, nor the next one, which nobody could write before: \
                     the list was cut, and what it says is not seen";
                self.error(&path, None, what, Repair::RebuildList);
            } else if is_table_name(&name) {
                let what = "a table that the list does not name: a writer died, or is at work";
                self.warning(&path, what, Repair::RemoveLeftover);
            } else if name.ends_with(".lock") || is_unfinished(&name) {
                self.leftover(&path);
            } else {
                let what = "the file does not belong there";
                self.warning(&path, what, Repair::ByHand);
            }
        }
        Ok(())
    }

    /// Returns whether what a list that was cut named before is older than what it names now.
    fn went_on(
        &self,
        dir: &Path,
        opened: &Opened,
        entries: &[DirEntry],
        (from, to): (u64, u64),
    ) -> bool {
        let modified = |name: &str| {
            let stat = self.system.lstat(&dir.join(name)).ok()?;
            Some(stat.mtime_ns)
        };
        let listed = opened.listed.iter();
        let newest = listed.max_by_key(|name| indices_of_name(name).map(|range| range.1));
        let newest = newest.and_then(|name| modified(name));
        let names = entries.iter().filter_map(|entry| entry.name.to_str().ok());
        let mut cut = names.filter(|name| {
            let indices = indices_of_name(name);
            indices.is_some_and(|(min, max)| from <= min && max <= to)
        });
        newest.is_some_and(|newest| cut.any(|name| modified(name).is_some_and(|at| at < newest)))
    }

    /// Checks the names, and remembers the values, of what the tables say together.
    fn merged(&mut self, index: usize, dir: &Path, tables: &[Arc<Table>]) {
        let mut refs = MergedRefs::new(tables.to_vec()).live_only();
        // What cannot be read was told of its table.
        while let Ok(true) = refs.advance() {
            let record = refs.record();
            self.count_ref();
            // Whoever asks for one of no directory may write it, and read it.
            if !is_well_formed(record.name, FormatOptions::ONE_LEVEL) {
                let name = record.name.to_vec();
                let (file, offset) = place(dir, tables, &name);
                let what = format!("{}: no name that a ref can have", name.as_bstr());
                self.report(Severity::Error, &file, offset, what, Repair::RebuildTable);
                continue;
            }
            let oid = ObjectId::from_bytes;
            let value = match record.value {
                RefValue::Deletion => None,
                RefValue::Direct(id) => oid(id).map(|oid| Value::Oid { oid, peeled: None }),
                RefValue::Peeled { oid: id, peeled } => oid(id).map(|id| Value::Oid {
                    oid: id,
                    peeled: oid(peeled),
                }),
                RefValue::Symref(target) => Some(Value::Symref(target)),
            };
            if let Some(value) = value {
                self.seen.push(Seen {
                    name: record.name,
                    value,
                    dir: index,
                    source: Source::Table,
                });
            }
        }
        let mut logs = MergedLogs::new(tables.to_vec()).live_only();
        let mut last = Vec::new();
        while let Ok(true) = logs.advance() {
            self.count_entries(1);
            let name = logs.record().name;
            if name != last {
                last.clear();
                last.extend_from_slice(name);
                if !is_well_formed(name, FormatOptions::ONE_LEVEL) {
                    let file = table_of_log(dir, tables, name);
                    let name = name.as_bstr();
                    let what = format!("the reflog of {name}: no name that a ref can have");
                    self.error(&file, None, what, Repair::RebuildTable);
                }
            }
        }
    }

    /// Returns in which table of a directory's stack a ref stands, and where.
    pub(super) fn place_in_stack(&self, dir: &Path, name: &[u8]) -> (PathBuf, Option<u64>) {
        let dir = dir.join("reftable");
        let content = self.system.read(&dir.join("tables.list"));
        let names = content.unwrap_or_default();
        let names = names.lines().filter_map(|line| line.to_str().ok());
        let names = names.filter(|name| may_be_listed(name));
        let tables: Vec<Arc<Table>> = names
            .filter_map(|name| {
                let content = self.system.map(&dir.join(name)).ok()?;
                let table = Table::open(content).ok()?;
                Some(Arc::new(table.labelled(name)))
            })
            .collect();
        place(&dir, &tables, name)
    }
}

/// The update indices of which a stack has tables: ranges that do not touch, in their order.
struct Covered(Vec<(u64, u64)>);

impl Covered {
    /// Takes those of the tables, and of each listed one that cannot be opened what its name says.
    fn by(opened: &Opened) -> Covered {
        let named = opened
            .listed
            .iter()
            .filter_map(|name| indices_of_name(name));
        let stated = opened
            .tables
            .iter()
            .map(|table| (table.min_update_index(), table.max_update_index()));
        let mut ranges: Vec<(u64, u64)> = named.chain(stated).collect();
        ranges.sort_unstable();
        ranges.dedup_by(|next, before| {
            let is_one = next.0 <= before.1;
            if is_one {
                before.1 = before.1.max(next.1);
            }
            is_one
        });
        Covered(ranges)
    }

    /// Returns the newest update index of the stack, 0 if it has none.
    fn newest(&self) -> u64 {
        self.0.last().map_or(0, |range| range.1)
    }

    /// Returns whether a table that is not listed was once part of the stack, by its update indices: compaction
    /// leaves behind what its result covers, and a dead writer what is newer than the stack.
    fn is_lost(&self, (min, max): (u64, u64)) -> bool {
        let before = self.0.partition_point(|range| range.1 < min);
        let is_covered = self.0.get(before).is_some_and(|range| range.0 <= max);
        max <= self.newest() && !is_covered
    }

    /// Returns the update indices that follow those of the stack in tables that are not listed, if there are at
    /// least two, one behind the other: a dead writer leaves one.
    fn cut(&self, mut unlisted: Vec<(u64, u64)>) -> Option<(u64, u64)> {
        unlisted.sort_unstable();
        let first = self.newest().checked_add(1)?;
        let (mut next, mut count) = (first, 0);
        let mut rest = unlisted.iter().peekable();
        while let Some((_, max)) = rest.find(|(min, max)| *min == next && max >= min) {
            // The widest of those that begin there.
            let mut last = *max;
            while let Some((_, max)) = rest.next_if(|(min, _)| *min == next) {
                last = last.max(*max);
            }
            count += 1;
            next = last.checked_add(1)?;
        }
        (count > 1).then_some((first, next - 1))
    }
}

/// Returns whether a path leads nowhere.
fn missing(error: &io::Error) -> bool {
    let kind = error.kind();
    matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn place(dir: &Path, tables: &[Arc<Table>], name: &[u8]) -> (PathBuf, Option<u64>) {
    let found = tables.iter().rev().find_map(|table| {
        let offset = table.offset_of_ref(name).ok()??;
        Some((dir.join(table.label()), Some(offset)))
    });
    found.unwrap_or_else(|| (dir.join("tables.list"), None))
}

/// Returns the newest table in which a reflog has a record.
fn table_of_log(dir: &Path, tables: &[Arc<Table>], name: &[u8]) -> PathBuf {
    let has_it = |table: &&Arc<Table>| {
        let mut logs = LogCursor::new(Arc::clone(table));
        let is_found = logs.seek(name).and_then(|()| logs.advance());
        matches!(is_found, Ok(true)) && logs.record().name == name
    };
    let found = tables.iter().rev().find(has_it);
    dir.join(found.map_or("tables.list", |table| table.label()))
}

/// Returns the update indices that the name of a table says.
pub(crate) fn indices_of_name(name: &str) -> Option<(u64, u64)> {
    if !is_table_name(name) {
        return None;
    }
    let mut parts = name.split('-').map(|part| {
        let digits = part.strip_prefix("0x").unwrap_or(part);
        u64::from_str_radix(digits, 16).ok()
    });
    Some((parts.next()??, parts.next()??))
}
