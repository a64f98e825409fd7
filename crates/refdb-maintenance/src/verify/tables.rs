//! Git's checks of a stack: how its tables are named, and what its refs hold.

use std::io;
use std::path::Path;
use std::sync::Arc;

use bstr::ByteSlice;
use refdb::layout::Layout;
use refdb::system::System;
use refdb::{Error, RefFormat, Result, Store, TargetRef};
use refdb_git::Repository;
use refdb_git::repository::Worktree;

use super::{Event, MessageId, Report, loose, name_prefix};

/// Checks the stack of a worktree.
pub(super) fn check(
    repository: &Repository,
    worktree: &Worktree,
    report: &mut Report<'_>,
) -> Result<()> {
    let layout = repository.worktree_layout(worktree)?;
    let prefix = name_prefix(worktree);
    let alone = match worktree.id {
        None => layout.clone(),
        Some(_) => Layout::alone(layout.worktree_dir()),
    };
    let store = store_of(repository, alone)?;
    // Opens the stack: one that cannot be opened has nothing to check.
    let mut refs = store.refs()?;
    for table in table_names(repository.system().as_ref(), layout.worktree_dir())? {
        (report.on)(Event::Table(&table));
        if !has_git_name(&table) {
            let id = MessageId::BadReftableTableName;
            report.find(table.as_bytes(), id, "invalid reftable table name");
        }
    }
    while let Some(record) = refs.next()? {
        let bare = record.name.as_bytes();
        let name = [prefix.as_slice(), bare].concat();
        match record.target {
            TargetRef::Direct(oid) if oid.is_null() && !record.has_bad_name() => {
                let text = format!("points to invalid object ID '{oid}'");
                report.find(&name, MessageId::BadRefOid, text);
            }
            TargetRef::Direct(_) => {}
            TargetRef::Symbolic(target) => {
                loose::referent(report, &name, bare, target.as_bytes());
            }
        }
    }
    Ok(())
}

/// Opens the refs that are kept there.
fn store_of(repository: &Repository, layout: Layout) -> Result<Store> {
    Store::open(
        Arc::clone(repository.system()),
        layout,
        RefFormat::Reftable,
        Arc::clone(repository.store().objects()),
        repository.store().options().clone(),
    )
}

/// Returns the tables that the list names.
fn table_names(system: &dyn System, dir: &Path) -> Result<Vec<String>> {
    let path = dir.join("reftable").join("tables.list");
    match system.read(&path) {
        Ok(content) => Ok(content.to_str_lossy().lines().map(str::to_owned).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(Error::io("cannot read", &path, error)),
    }
}

/// Returns whether Git takes a name for that of a table: three hexadecimal numbers, each as C
/// reads them, and `.ref` or `.log`.
fn has_git_name(name: &str) -> bool {
    let after_number = |text: &str| {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        let rest = digits.trim_start_matches(|c: char| c.is_ascii_hexdigit());
        rest.to_owned()
    };
    let first = after_number(name);
    let second = first.strip_prefix('-').map(after_number);
    let third = second.and_then(|rest| rest.strip_prefix('-').map(after_number));
    third.is_some_and(|rest| matches!(rest.as_str(), ".ref" | ".log"))
}
