//! What a store is made of, for people: tables, blocks and records, or loose and packed refs.
//!
//! ```no_run
//! use refdb_maintenance::inspect::{Shape, inspect};
//!
//! let repository = refdb_git::Repository::discover(".".as_ref())?;
//! match inspect(&repository)? {
//!     Shape::Stack(stack) => println!("{} tables", stack.tables.len()),
//!     Shape::Files(files) => println!("{} loose refs, {} packed", files.loose, files.packed),
//! }
//! # Ok::<(), refdb::Error>(())
//! ```

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bstr::{BString, ByteSlice};
use refdb::error::Message;
use refdb::internals::{Entry, Leaf, Tree, is_absent, still_there};
use refdb::shared::head::Head;
use refdb::shared::{Freshness, Register};
use refdb::{Error, ErrorKind, ObjectId, RefFormat, Result};
use refdb_git::Repository;
use reftable::{
    BlockInfo, LogCursor, LogValue, MergedLogs, MergedRefs, RefCursor, RefValue, Table,
};

use crate::stacks::{own_dir, tables_below};
use crate::verify::is_of_one;

/// How many of the largest reflogs are named.
const LARGEST: usize = 10;

/// What the table is called that is in the head of a shared store: no other one has such a name.
const IN_HEAD: &str = "head";

/// How many times the head of a shared store is read whose tables were merged away meanwhile.
const TRIES_MAX: usize = 100;

/// What the refs of one worktree are kept in.
#[derive(Clone, Debug)]
pub enum Shape {
    /// A stack of tables.
    Stack(StackShape),
    /// Loose refs, packed-refs and reflogs.
    Files(FilesShape),
}

/// A stack of tables.
#[derive(Clone, Debug)]
pub struct StackShape {
    /// The tables, oldest first.
    pub tables: Vec<TableShape>,
    /// How many refs there are.
    pub live_refs: u64,
    /// How many records of refs are hidden by newer ones, or only hide others.
    pub dead_refs: u64,
    /// How many entries the reflogs have.
    pub live_logs: u64,
    /// How many records of entries are hidden, or only hide others.
    pub dead_logs: u64,
    /// Which tables the next compaction merges, by position; `None` while sizes are in proportion, or
    /// there are few tables on a shared place.
    pub next_compaction: Option<Range<usize>>,
}

/// One table.
#[derive(Clone, Debug, Default)]
pub struct TableShape {
    /// The name of its file.
    pub name: String,
    /// The size of the file in bytes.
    pub bytes: u64,
    /// The least update index.
    pub min_update_index: u64,
    /// The greatest update index.
    pub max_update_index: u64,
    /// How many records of refs it has, deletions included.
    pub refs: u64,
    /// How many of them are deletions.
    pub deletions: u64,
    /// How many records of reflog entries it has.
    pub logs: u64,
    /// Its blocks, in file order.
    pub blocks: Vec<BlockShape>,
}

/// One block of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockShape {
    /// What it holds: `ref`, `object`, `index` or `log`.
    pub kind: &'static str,
    /// Where it starts in the file.
    pub offset: u64,
    /// How many bytes it takes in the file.
    pub len_on_disk: u64,
    /// How many records it has.
    pub records: u64,
}

/// Loose refs, packed-refs and reflogs.
#[derive(Clone, Debug, Default)]
pub struct FilesShape {
    /// How many loose refs there are below `refs/`.
    pub loose: u64,
    /// How many refs packed-refs has.
    pub packed: u64,
    /// How many reflogs there are.
    pub logs: u64,
    /// How many bytes the reflogs have together.
    pub log_bytes: u64,
    /// The largest reflogs with their sizes in bytes, the largest first.
    pub largest_logs: Vec<(BString, u64)>,
    /// Which directories or reflogs could not be read, and why: they are not counted.
    pub unread: Vec<Message>,
}

/// Returns what the refs of the current worktree's own directory are kept in, or those of the shared store
/// that the repository uses. The newest records of a shared store are in its head, as a table that is called
/// `head` here.
///
/// # Errors
/// `Corrupt` for a stack that cannot be read, `Io` for the system's; `Moved` where the refs were moved into the
/// other format meanwhile.
pub fn inspect(repository: &Repository) -> Result<Shape> {
    if repository.register().is_some() {
        return stack(repository).map(Shape::Stack);
    }
    let shape = match repository.ref_format() {
        RefFormat::Reftable => stack(repository).map(Shape::Stack),
        RefFormat::Files => files(repository).map(Shape::Files),
    };
    still_there(repository.store().options())?;
    shape
}

fn tables(repository: &Repository) -> Result<Vec<Arc<Table>>> {
    match repository.register() {
        Some(register) => shared_tables(register),
        None => tables_below(repository, &own_dir(repository)),
    }
}

/// Returns the tables that the head of a shared store names, and that in the head.
fn shared_tables(register: &Register) -> Result<Vec<Arc<Table>>> {
    let mut missing = String::new();
    for _ in 0..TRIES_MAX {
        let known = register.current(Freshness::Fresh)?;
        if let Some(tables) = tables_of(register, &known.head, &mut missing)? {
            return Ok(tables);
        }
        let is_the_same = register.current(Freshness::Fresh)?.version == known.version;
        if is_the_same {
            break;
        }
    }
    let place = format!("{}/tables/{missing}", register.name());
    Err(Error::corrupt_store(&place, "the table is missing"))
}

/// Returns the tables of a head; `None` if one is missing, since it was merged with others.
fn tables_of(
    register: &Register,
    head: &Head,
    missing: &mut String,
) -> Result<Option<Vec<Arc<Table>>>> {
    let open = |name: &str, content| match Table::open(content) {
        Ok(table) => Ok(Arc::new(table.labelled(name))),
        Err(error) => Err(damage_in(register, name, error)),
    };
    let mut tables = Vec::with_capacity(head.tables.len() + 1);
    for entry in &head.tables {
        let name = entry.key.to_string();
        let Some(content) = register.table(entry)? else {
            *missing = name;
            return Ok(None);
        };
        tables.push(open(&name, content)?);
    }
    if !head.inline.is_empty() {
        tables.push(open(IN_HEAD, head.inline.clone())?);
    }
    Ok(Some(tables))
}

fn damage_in(register: &Register, table: &str, error: reftable::Error) -> Error {
    let place = match table {
        IN_HEAD => format!("{}/head", register.name()),
        name => format!("{}/tables/{name}", register.name()),
    };
    Error::corrupt_store(&place, error.without_table())
}

fn stack(repository: &Repository) -> Result<StackShape> {
    let dir = own_dir(repository).join("reftable");
    let tables = tables(repository)?;
    let damaged = |error: reftable::Error| {
        let table = error.table().unwrap_or_default().to_owned();
        match repository.register() {
            Some(register) => damage_in(register, &table, error),
            None => Error::corrupt(&dir.join(table), error.without_table()),
        }
    };
    let mut shapes = Vec::with_capacity(tables.len());
    for table in &tables {
        shapes.push(shape(table).map_err(damaged)?);
    }
    let has_newest = tables.last().is_some_and(|table| table.label() == IN_HEAD);
    if repository.register().is_some() && !has_newest {
        shapes.push(TableShape {
            name: IN_HEAD.to_owned(),
            ..TableShape::default()
        });
    }
    let (mut live_refs, mut live_logs) = (0, 0);
    let mut refs = MergedRefs::new(tables.clone()).live_only();
    while refs.advance().map_err(damaged)? {
        live_refs += 1;
    }
    let mut logs = MergedLogs::new(tables.clone()).live_only();
    while logs.advance().map_err(damaged)? {
        live_logs += 1;
    }
    let all = |count: fn(&TableShape) -> u64| shapes.iter().map(count).sum::<u64>();
    Ok(StackShape {
        live_refs,
        dead_refs: all(|table| table.refs).saturating_sub(live_refs),
        live_logs,
        dead_logs: all(|table| table.logs).saturating_sub(live_logs),
        next_compaction: next_compaction(repository, &tables),
        tables: shapes,
    })
}

/// Returns which tables are merged next: on a shared place none while there are few, and never that in the head.
fn next_compaction(repository: &Repository, tables: &[Arc<Table>]) -> Option<Range<usize>> {
    let listed = tables.iter().filter(|table| table.label() != IN_HEAD);
    let weights: Vec<u64> = listed.map(|table| table.weight()).collect();
    let factor = repository.store().options().reftable.geometric_factor;
    let chosen = reftable::compaction::choose(&weights, factor);
    match repository.register() {
        None => chosen,
        Some(register) if weights.len() <= register.settings().tables_many => None,
        Some(_) => chosen.or(Some(0..weights.len())),
    }
}

fn shape(table: &Arc<Table>) -> reftable::Result<TableShape> {
    let mut shape = TableShape {
        name: table.label().to_owned(),
        bytes: table.len(),
        min_update_index: table.min_update_index(),
        max_update_index: table.max_update_index(),
        refs: 0,
        deletions: 0,
        logs: 0,
        blocks: Vec::new(),
    };
    let mut refs = RefCursor::new(Arc::clone(table));
    while let Some(record) = refs.next()? {
        shape.refs += 1;
        shape.deletions += u64::from(record.is_deletion());
    }
    let mut logs = LogCursor::new(Arc::clone(table));
    while logs.advance()? {
        shape.logs += 1;
    }
    for block in table.blocks() {
        shape.blocks.push(block_shape(block?));
    }
    Ok(shape)
}

fn block_shape(block: BlockInfo) -> BlockShape {
    BlockShape {
        kind: match block.kind {
            reftable::BlockKind::Ref => "ref",
            reftable::BlockKind::Object => "object",
            reftable::BlockKind::Index => "index",
            _ => "log",
        },
        offset: block.offset,
        len_on_disk: block.len_on_disk,
        records: block.records,
    }
}

/// Calls `each` for the records of a table as lines of text, without line feed: refs, then log
/// entries. It says whether to go on.
///
/// # Errors
/// `Misuse` when the stack has no such table, `Corrupt` when it cannot be read.
pub fn records(
    repository: &Repository,
    table: &str,
    each: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<()> {
    let tables = tables(repository)?;
    let Some(found) = tables.iter().find(|found| found.label() == table) else {
        if repository.register().is_some() && table == IN_HEAD {
            // All of them were merged with others.
            return Ok(());
        }
        let text = format!("there is no table '{table}'");
        return Err(Error::new(ErrorKind::Misuse, text));
    };
    let damaged = |error: reftable::Error| match repository.register() {
        Some(register) => damage_in(register, table, error),
        None => Error::corrupt(Path::new(table), error),
    };
    let hex = |raw: &[u8]| ObjectId::from_bytes(raw).map_or(String::new(), |oid| oid.to_string());
    let mut refs = RefCursor::new(Arc::clone(found));
    while let Some(record) = refs.next().map_err(damaged)? {
        let value = match record.value {
            RefValue::Deletion => "deleted".to_owned(),
            RefValue::Direct(oid) => hex(oid),
            RefValue::Peeled { oid, peeled } => format!("{} peeled {}", hex(oid), hex(peeled)),
            RefValue::Symref(target) => format!("ref: {}", target.as_bstr()),
        };
        let (name, index) = (record.name.as_bstr(), record.update_index);
        if !each(format!("ref {name} {index} {value}").as_bytes()) {
            return Ok(());
        }
    }
    let mut logs = LogCursor::new(Arc::clone(found));
    while let Some(record) = logs.next().map_err(damaged)? {
        let value = match record.value {
            LogValue::Deletion => "deleted".to_owned(),
            LogValue::Update(update) => format!(
                "{} {} {} <{}> {} {:+05} {}",
                hex(update.old),
                hex(update.new),
                update.name.as_bstr(),
                update.email.as_bstr(),
                update.time,
                update.tz,
                update.message.trim_ascii_end().as_bstr()
            ),
        };
        let (name, index) = (record.name.as_bstr(), record.update_index);
        if !each(format!("log {name} {index} {value}").as_bytes()) {
            return Ok(());
        }
    }
    Ok(())
}

impl FilesShape {
    /// Returns what a walk found; `None` for a directory that is passed over, which is noted.
    ///
    /// # Errors
    /// `Io` for a failure that is not one of that directory alone.
    fn listed(
        &mut self,
        leaf: std::result::Result<Leaf, (PathBuf, io::Error)>,
    ) -> Result<Option<Leaf>> {
        let (dir, error) = match leaf {
            Ok(leaf) => return Ok(Some(leaf)),
            Err(failed) => failed,
        };
        let is_of_dir = is_of_one(&error);
        let error = Error::io("cannot read", &dir, error);
        if !is_of_dir {
            return Err(error);
        }
        self.unread.push(error.message().clone());
        Ok(None)
    }
}

fn files(repository: &Repository) -> Result<FilesShape> {
    let dir = own_dir(repository);
    let mut shape = FilesShape::default();
    let system = repository.system().as_ref();
    for leaf in Tree::new(system, &dir.join("refs"), b"") {
        let Some(leaf) = shape.listed(leaf)? else {
            continue;
        };
        shape.loose += u64::from(Entry::of_name(leaf.last_name()) == Entry::Ref);
    }
    let path = dir.join("packed-refs");
    match system.map(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        content => {
            let content = content.map_err(|error| Error::io("cannot read", &path, error))?;
            let lines = content.as_ref().lines();
            let is_ref = |line: &&[u8]| !line.starts_with(b"#") && !line.starts_with(b"^");
            shape.packed = lines.filter(is_ref).count() as u64;
        }
    }
    let mut logs = Vec::new();
    for leaf in Tree::new(system, &dir.join("logs"), b"") {
        let Some(leaf) = shape.listed(leaf)? else {
            continue;
        };
        match system.lstat(&leaf.path) {
            Ok(stat) => logs.push((BString::from(leaf.name), stat.len)),
            // It was removed since it was listed.
            Err(error) if is_absent(&error) => {}
            Err(error) => {
                shape.listed(Err((leaf.path, error)))?;
            }
        }
    }
    shape.logs = logs.len() as u64;
    shape.log_bytes = logs.iter().map(|log| log.1).sum();
    logs.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    logs.truncate(LARGEST);
    shape.largest_logs = logs;
    Ok(shape)
}
