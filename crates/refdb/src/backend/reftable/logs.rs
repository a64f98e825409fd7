//! Reading reflogs from a stack.

use bstr::BString;
use refdb_names::internals::owned_from_disk;
use refdb_names::{ObjectId, RefName, RefNameBuf};
use reftable::{LogRecord, LogUpdate, LogValue, MergedLogs};

use super::object_id;
use super::stack::{Snapshot, Stack};
use crate::backend::LogOrder;
use crate::error::Result;
use crate::reflog::{LogEntry, Signature};

/// Returns a cursor over the entries that no tombstone hides.
pub(super) fn live(snapshot: &Snapshot) -> MergedLogs {
    MergedLogs::new(snapshot.tables.clone()).live_only()
}

/// Returns whether a ref has a reflog: an entry, or the marker of an empty one.
pub(super) fn exists(stack: &Stack, logs: &mut MergedLogs, name: RefName<'_>) -> Result<bool> {
    stack.checked(logs.seek(name.as_bytes()))?;
    Ok(stack.checked(logs.advance())? && logs.record().name == name.as_bytes())
}

/// Returns what a table holds of an entry, the message of which ends with a line feed.
pub(super) fn update<'r>(
    old: &'r ObjectId,
    new: &'r ObjectId,
    who: &'r Signature,
    message: &'r [u8],
) -> LogValue<'r> {
    LogValue::Update(LogUpdate {
        old: old.as_bytes(),
        new: new.as_bytes(),
        name: &who.name,
        email: &who.email,
        time: who.time,
        tz: who.zone,
        message,
    })
}

/// Calls `each` for the entries of a reflog; returns whether there is one.
pub(super) fn for_each(
    stack: &Stack,
    snapshot: &Snapshot,
    name: RefName<'_>,
    order: LogOrder,
    each: &mut dyn FnMut(LogEntry) -> Result<bool>,
) -> Result<bool> {
    let mut logs = live(snapshot);
    stack.checked(logs.seek(name.as_bytes()))?;
    let mut found = false;
    let mut kept = Vec::new();
    while stack.checked(logs.advance())? {
        let record = logs.record();
        if record.name != name.as_bytes() {
            break;
        }
        found = true;
        let Some(entry) = entry(stack, &record)? else {
            continue;
        };
        match order {
            LogOrder::NewestFirst => {
                if !each(entry)? {
                    return Ok(true);
                }
            }
            // Entries lie newest first, and the format has no way back.
            LogOrder::OldestFirst => kept.push(entry),
        }
    }
    for entry in kept.into_iter().rev() {
        if !each(entry)? {
            break;
        }
    }
    Ok(found)
}

/// Returns every record of a reflog with its update index, the newest first; those without an entry
/// only mark that the reflog exists.
pub(super) fn all(
    stack: &Stack,
    snapshot: &Snapshot,
    name: RefName<'_>,
) -> Result<Vec<(u64, Option<LogEntry>)>> {
    let mut logs = live(snapshot);
    stack.checked(logs.seek(name.as_bytes()))?;
    let mut found = Vec::new();
    while stack.checked(logs.advance())? {
        let record = logs.record();
        if record.name != name.as_bytes() {
            break;
        }
        found.push((record.update_index, entry(stack, &record)?));
    }
    Ok(found)
}

/// Returns the names that have a reflog.
pub(super) fn names(stack: &Stack, snapshot: &Snapshot) -> Result<Vec<RefNameBuf>> {
    let mut logs = live(snapshot);
    let mut names: Vec<RefNameBuf> = Vec::new();
    let mut same = 0;
    while stack.checked(logs.advance())? {
        let name = logs.record().name;
        if names.last().is_none_or(|last| last.as_bytes() != name) {
            names.push(owned_from_disk(name));
            same = 0;
            continue;
        }
        same += 1;
        if same == 16 {
            // A long reflog is jumped over: no name continues with a byte as low as 0x01.
            let next = [name, b"\x01"].concat();
            stack.checked(logs.seek(&next))?;
        }
    }
    Ok(names)
}

/// Returns whether a record with these values only says that a reflog exists: to Git, one without
/// any object.
pub(super) fn is_marker(old: &[u8], new: &[u8]) -> bool {
    let is_null = |oid: &[u8]| oid.iter().all(|&byte| byte == 0);
    is_null(old) && is_null(new)
}

/// Turns a record into an entry; `None` for what only marks that a reflog exists.
fn entry(stack: &Stack, record: &LogRecord<'_>) -> Result<Option<LogEntry>> {
    let LogValue::Update(update) = record.value else {
        return Ok(None);
    };
    if is_marker(update.old, update.new) {
        return Ok(None);
    }
    let message = update.message.strip_suffix(b"\n").unwrap_or(update.message);
    Ok(Some(LogEntry {
        old: object_id(stack, update.old)?,
        new: object_id(stack, update.new)?,
        who: Signature {
            name: BString::from(update.name),
            email: BString::from(update.email),
            time: update.time,
            zone: update.tz,
        },
        message: BString::from(message),
    }))
}
