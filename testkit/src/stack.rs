//! Reads the reflogs of a stack table by table, where Git cannot write them out as files: there a
//! log may be in the way of another ref, or belong to another worktree.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use bstr::{BString, ByteSlice};
use reftable::{LogValue, MergedLogs, Table};

use crate::state::LogEntry;

/// Returns the entries of every reflog of the stack in `folder`, oldest first.
pub(crate) fn logs(folder: &Path) -> BTreeMap<BString, Vec<LogEntry>> {
    let list = fs::read_to_string(folder.join("tables.list")).expect("a stack has a list");
    let table = |name: &str| {
        let bytes = fs::read(folder.join(name)).expect("a table of the list is there");
        Arc::new(Table::open(bytes).expect("what Git and the command write can be read"))
    };
    let mut records = MergedLogs::new(list.lines().map(table).collect()).live_only();
    records.seek_prefix(b"").expect("a table can be read");
    let mut logs: BTreeMap<BString, Vec<LogEntry>> = BTreeMap::new();
    while let Some(record) = records.next().expect("a table can be read") {
        let LogValue::Update(update) = record.value else {
            continue;
        };
        let entries = logs.entry(record.name.into()).or_default();
        let is_marker = [update.old, update.new].concat().iter().all(|it| *it == 0);
        if is_marker && update.time == 0 {
            // It says only that there is a reflog.
            continue;
        }
        let committer = [update.name, b" <", update.email, b">"].concat();
        entries.push(LogEntry {
            old: hex(update.old),
            new: hex(update.new),
            committer: committer.into(),
            time: update.time,
            zone: format!("{:+05}", update.tz),
            message: update.message.trim_end_with(|c| c == '\n').into(),
        });
    }
    // The newest comes first in a table.
    logs.values_mut().for_each(|entries| entries.reverse());
    logs
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}
