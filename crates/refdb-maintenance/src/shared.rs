//! Stores that many machines share: taking a local repository there and back, and checking one.
//!
//! ```no_run
//! use refdb_git::Repository;
//! use refdb_maintenance::shared::verify;
//!
//! let repository = Repository::discover(".".as_ref())?;
//! if let Some(register) = repository.register() {
//!     for problem in verify(register, &|_| ())? {
//!         println!("{problem}");
//!     }
//! }
//! # Ok::<(), refdb::Error>(())
//! ```

mod changes;
mod claim;
mod committer;
mod follow;
mod local;
mod probe;
mod push;
mod serve;
mod spool;

use std::sync::Arc;

pub use changes::{Changed, Changes, Moment, changes};
pub use committer::Committer;
pub use follow::{Follower, Synced};
pub use local::LocalChanges;
pub use probe::{Latency, Probed, probe};
pub use push::{Fate, Push, Wanted};
pub use serve::{install_hook, uninstall_hook};

use refdb::internals::{Bulk, BulkOptions, NewValue, maintained};
use refdb::objects::Objects;
use refdb::shared::head::{Head, TableEntry};
use refdb::shared::{Freshness, Read, Register, Shared, Version};
use refdb::{
    Edit, Error, ErrorKind, Expected, ObjectFormat, RefName, RefRecord, Result, Store, TargetRef,
};
use reftable::Table;

use crate::progress::{Progress, Watch};

/// Progress is told after so many refs or reflogs.
const PROGRESS_STEP: usize = 1000;

/// How many refs one transaction makes.
const EXPORT_STEP: usize = 50_000;

/// What was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// How many refs.
    pub refs: usize,
    /// How many reflogs.
    pub logs: usize,
}

/// Copies all refs and reflogs of a local repository into a shared store that has none. No program writes to
/// the local one meanwhile; it stays as it is.
///
/// # Errors
/// `Misuse` when the shared store has something; `Locked` when a program writes to the local one for too
/// long; as for reading the one and writing the other.
pub fn import(
    local: &Store,
    register: &Register,
    shared: &Store,
    progress: &Watch<'_>,
) -> Result<Copied> {
    let known = register.current(Freshness::Fresh)?;
    if known.head.index > 0 {
        let what = format!(
            "{}: the store has been written to; refs are imported into a new one",
            register.name()
        );
        return Err(Error::new(ErrorKind::Misuse, what));
    }
    let _frozen = maintained(local).freeze()?;
    let marks = maintained(local).log_marks()?;
    let entries_max = marks.iter().map(|mark| mark.entries_max).max().unwrap_or(0);
    let mut bulk = maintained(shared).bulk(BulkOptions {
        entries_max,
        fully_peeled: false,
        packed: true,
    })?;
    let mut copied = Copied::default();
    let mut refs = local.refs()?;
    while let Some(record) = refs.next()? {
        if record.broken {
            let what = format!("ref '{}' is broken: mend or delete it first", record.name);
            return Err(Error::new(ErrorKind::BrokenRef, what));
        }
        add(bulk.as_mut(), local.objects().as_ref(), &record)?;
        copied.refs += 1;
        if copied.refs.is_multiple_of(PROGRESS_STEP) {
            told(progress, "Importing refs", copied.refs, None);
        }
    }
    let order = bulk.log_order();
    for mark in &marks {
        let name = mark.name.as_name();
        bulk.begin_log(name)?;
        local.for_each_log_entry(name, order, |entry| {
            bulk.add_entry(&entry)?;
            Ok(true)
        })?;
        copied.logs += 1;
        if copied.logs.is_multiple_of(PROGRESS_STEP) {
            told(
                progress,
                "Importing reflogs",
                copied.logs,
                Some(marks.len()),
            );
        }
    }
    bulk.finish()?;
    Ok(copied)
}

fn add(bulk: &mut dyn Bulk, objects: &dyn Objects, record: &RefRecord<'_>) -> Result<()> {
    let oid = match &record.target {
        TargetRef::Symbolic(target) => {
            return bulk.add_ref(record.name, NewValue::Symbolic(*target));
        }
        TargetRef::Direct(oid) => oid,
    };
    let is_asked_for = record.peeled.is_none() && record.name.as_bytes().starts_with(b"refs/tags/");
    let found = match is_asked_for {
        true => match objects.peel(*oid)? {
            refdb::objects::Peeled::To(peeled) => Some(peeled),
            _ => None,
        },
        false => None,
    };
    let peeled = record.peeled.as_ref().or(found.as_ref());
    bulk.add_ref(record.name, NewValue::Direct { oid, peeled })
}

/// Copies all refs and reflogs of a shared store, as they are at one moment, into a local repository that has
/// none but `HEAD`. Freeze the shared one first if nothing is to be left behind.
///
/// # Errors
/// `Misuse` when the local repository has refs; as for reading the one and writing the other.
pub fn export(shared: &Store, local: &Store, progress: &Watch<'_>) -> Result<Copied> {
    let mut there = local.refs()?;
    while let Some(record) = there.next()? {
        if record.name.as_bytes() != b"HEAD" {
            let what = format!(
                "there is a ref here already, '{}': refs are exported into a new repository",
                record.name
            );
            return Err(Error::new(ErrorKind::Misuse, what));
        }
    }
    drop(there);
    let mut copied = Copied::default();
    let mut refs = shared.refs()?;
    let mut transaction = local.transaction().skip_logs();
    while let Some(record) = refs.next()? {
        let edit = match record.target {
            TargetRef::Direct(oid) => Edit::update(record.name, oid).skip_object_check(),
            TargetRef::Symbolic(target) => Edit::symbolic(record.name, target),
        };
        let is_head = record.name.as_bytes() == b"HEAD";
        let expected = if is_head {
            Expected::Any
        } else {
            Expected::Missing
        };
        transaction.add(edit.no_deref().expecting(expected))?;
        copied.refs += 1;
        if copied.refs.is_multiple_of(EXPORT_STEP) {
            let full = std::mem::replace(&mut transaction, local.transaction().skip_logs());
            let _ = full.commit()?;
            told(progress, "Exporting refs", copied.refs, None);
        }
    }
    let _ = transaction.commit()?;
    let names = shared.log_names()?;
    for name in &names {
        let entries = shared.log(name.as_name(), refdb::LogOrder::OldestFirst)?;
        let _ = local.replace_log(name.as_name(), &entries.unwrap_or_default())?;
        copied.logs += 1;
        if copied.logs.is_multiple_of(PROGRESS_STEP) {
            told(
                progress,
                "Exporting reflogs",
                copied.logs,
                Some(names.len()),
            );
        }
    }
    Ok(copied)
}

/// Checks a shared store: the head, and every byte of every table that it names. Returns what is wrong, in
/// words.
///
/// # Errors
/// `Corrupt` for a head that cannot be read; `Io`.
pub fn verify(register: &Register, progress: &Watch<'_>) -> Result<Vec<String>> {
    let known = register.current(Freshness::Fresh)?;
    let head = &known.head;
    let mut problems = Vec::new();
    check_slots(register, head, &mut problems)?;
    for (at, entry) in head.tables.iter().enumerate() {
        told(progress, "Checking tables", at, Some(head.tables.len()));
        let object = format!("tables/{}", entry.key);
        let Some(content) = register.shared().get(&object, Some(entry.range()))? else {
            problems.push(format!("{object}: the table is missing"));
            continue;
        };
        if !entry.is_of(&content) {
            problems.push(format!("{object}: it is not the table that the head names"));
        }
        check_table(
            &object,
            content,
            head.object_format,
            Some(entry),
            &mut problems,
        );
    }
    if !head.inline.is_empty() {
        let content = head.inline.clone();
        check_table(
            "the newest records",
            content,
            head.object_format,
            None,
            &mut problems,
        );
    }
    Ok(problems)
}

/// Checks the slots of earlier heads: each is replaced by its version, in its turn.
fn check_slots(register: &Register, head: &Head, problems: &mut Vec<String>) -> Result<()> {
    for (slot, generation, version) in head.others() {
        if let Some(problem) = slot_problem(register.shared(), slot, (generation, version), head)? {
            problems.push(format!("head/{slot}: {problem}"));
        }
    }
    Ok(())
}

/// Returns what is wrong with the slot of an earlier head: its generation and its version are given.
pub(crate) fn slot_problem(
    place: &dyn Shared,
    slot: u32,
    (generation, version): (u64, &Version),
    newest: &Head,
) -> Result<Option<String>> {
    let content = match place.head(slot, Some(version))? {
        Read::Same => return Ok(None),
        Read::Missing => return Ok(Some("it is missing".to_owned())),
        Read::Head(content, _) => content,
    };
    Ok(match Head::decode(&content, &place.name()) {
        Err(error) => Some(format!("it cannot be read: {error}")),
        // Somebody writes meanwhile.
        Ok(found) if found.generation > newest.generation => None,
        Ok(found) if found.generation != generation => Some(format!(
            "generation {} is there, where {generation} belongs",
            found.generation
        )),
        Ok(_) => Some("it is not of the version that the newest head names".to_owned()),
    })
}

fn told(progress: &Watch<'_>, what: &'static str, count: usize, total: Option<usize>) {
    progress(Progress {
        what,
        count: count as u64,
        total: total.map(|total| total as u64),
    });
}

fn check_table(
    what: &str,
    content: refdb::system::Bytes,
    format: ObjectFormat,
    entry: Option<&TableEntry>,
    problems: &mut Vec<String>,
) {
    let table = match Table::open(content) {
        Ok(table) => Arc::new(table),
        Err(error) => return problems.push(format!("{what}: {error}")),
    };
    if table.object_format() != format {
        problems.push(format!("{what}: the table is of another object format"));
    }
    if let Some(TableEntry { key, .. }) = entry
        && (key.min, key.max) != (table.min_update_index(), table.max_update_index())
    {
        problems.push(format!(
            "{what}: its update indices are not those of its name"
        ));
    }
    let findings = reftable::check(&table);
    problems.extend(findings.iter().map(|finding| format!("{what}: {finding}")));
    let names = reftable::RefCursor::new(table);
    check_names(what, names, problems);
}

fn check_names(what: &str, mut names: reftable::RefCursor, problems: &mut Vec<String>) {
    while let Ok(Some(record)) = names.next() {
        if RefName::new(bstr::BStr::new(record.name)).is_err() {
            let name = bstr::BStr::new(record.name);
            problems.push(format!("{what}: '{name}' is not the name of a ref"));
        }
    }
}
