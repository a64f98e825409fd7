//! `refdb inspect`: what a store is made of, for people.

use std::fmt::Write;

use refdb_git::Repository;
use refdb_maintenance::inspect::{FilesShape, Shape, StackShape, TableShape, inspect, records};
use serde_json::{Value as Json, json};

use crate::context::Context;
use crate::failure::{Failure, Result, say_message};
use crate::options::{Opt, Spec};
use crate::output::Output;

#[derive(Clone, Copy)]
pub(super) enum Id {
    Table,
    Records,
    Json,
}

pub(super) const SPEC: Spec<Id> = Spec {
    name: "inspect",
    forms: &["[--table=<name>] [--records] [--json]"],
    options: &[
        Opt::text(Id::Table, "table", "name", "the blocks of one table"),
        Opt::flag(Id::Records, "records", "the records of that table as text"),
        Opt::flag(Id::Json, "json", "print one object"),
    ],
};

/// Runs `inspect`.
pub(super) fn run(context: &Context, out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    let (mut table, mut with_records, mut json) = (None, false, false);
    let operands = SPEC.parse(args, |id, value| {
        match id {
            Id::Table => table = value.into_text(),
            Id::Records => with_records = value.is_set(),
            Id::Json => json = value.is_set(),
        }
        Ok(())
    })?;
    if !operands.is_empty() {
        return Err(SPEC.misuse());
    }
    if with_records && table.is_none() {
        return Err(SPEC.mistake("--records requires --table", None));
    }
    let repository = context.repository()?;
    let table = table.map(|name| String::from_utf8_lossy(&name).into_owned());
    match (inspect(repository)?, table) {
        (Shape::Files(_), Some(_)) => Err(Failure::fatal(
            "--table is for stacks: these refs are in files",
        )),
        (Shape::Files(files), None) => {
            for message in &files.unread {
                say_message("warning", message);
            }
            out.put(match json {
                true => format!("{}\n", files_json(&files)),
                false => files_text(&files),
            })
        }
        (Shape::Stack(stack), None) => out.put(match json {
            true => format!("{}\n", stack_json(&stack)),
            false => stack_text(&stack),
        }),
        (Shape::Stack(stack), Some(name)) => {
            let found = stack.tables.iter().find(|table| table.name == name);
            let found =
                found.ok_or_else(|| Failure::fatal(format!("there is no table '{name}'")))?;
            one_table(repository, out, found, with_records, json)
        }
    }
}

fn one_table(
    repository: &Repository,
    out: &mut Output,
    table: &TableShape,
    with_records: bool,
    json: bool,
) -> Result<()> {
    if json {
        let mut object = table_json(table);
        let block = |block: &refdb_maintenance::inspect::BlockShape| {
            json!({"kind": block.kind, "offset": block.offset,
                   "len_on_disk": block.len_on_disk, "records": block.records})
        };
        object["blocks"] = table.blocks.iter().map(block).collect();
        let text = object.to_string();
        if !with_records {
            return out.put(format!("{text}\n"));
        }
        // Each record is written when it is read: a small table may hold gigabytes of them.
        out.put(text.strip_suffix('}').unwrap_or(&text))?;
        out.put(",\"records\":[")?;
        let mut comma = "";
        each_record(repository, table, &mut |text| {
            out.put(format!("{comma}{}", json!(text)))?;
            comma = ",";
            Ok(())
        })?;
        return out.put("]}\n");
    }
    let mut text = String::from("  offset    bytes  records  kind\n");
    for block in &table.blocks {
        let (offset, len, count) = (block.offset, block.len_on_disk, block.records);
        let _ = writeln!(text, "{offset:>8} {len:>8} {count:>8}  {}", block.kind);
    }
    out.put(text)?;
    if !with_records {
        return Ok(());
    }
    each_record(repository, table, &mut |text| {
        // A name must not paint the terminal. JSON says such bytes in its own way.
        let plain = |c: char| if c.is_control() { '?' } else { c };
        out.put(text.chars().map(plain).chain(['\n']).collect::<String>())
    })
}

/// Calls `each` for the records of a table, until it fails.
fn each_record(
    repository: &Repository,
    table: &TableShape,
    each: &mut dyn FnMut(&str) -> Result<()>,
) -> Result<()> {
    let mut done = Ok(());
    records(repository, &table.name, &mut |line| {
        done = each(&String::from_utf8_lossy(line));
        done.is_ok()
    })?;
    done
}

fn stack_text(stack: &StackShape) -> String {
    let mut text = String::from("   bytes     refs  deleted     logs  table\n");
    for table in &stack.tables {
        let (bytes, refs, deletions, logs) = (table.bytes, table.refs, table.deletions, table.logs);
        let name = &table.name;
        let _ = writeln!(
            text,
            "{bytes:>8} {refs:>8} {deletions:>8} {logs:>8}  {name}"
        );
    }
    let _ = writeln!(
        text,
        "refs: {} live, {} dead; reflog entries: {} live, {} dead",
        stack.live_refs, stack.dead_refs, stack.live_logs, stack.dead_logs
    );
    match &stack.next_compaction {
        None => text.push_str("compaction: nothing is due\n"),
        Some(range) => {
            let (first, count) = (range.start + 1, range.len());
            let _ = writeln!(
                text,
                "compaction: merges {count} tables, from number {first} on"
            );
        }
    }
    text
}

fn files_text(files: &FilesShape) -> String {
    let mut text = format!(
        "refs: {} loose, {} packed\nreflogs: {}, {} bytes\n",
        files.loose, files.packed, files.logs, files.log_bytes
    );
    for (name, bytes) in &files.largest_logs {
        let plain = |c: char| if c.is_control() { '?' } else { c };
        let name: String = name.to_string().chars().map(plain).collect();
        let _ = writeln!(text, "{bytes:>8}  {name}");
    }
    text
}

fn table_json(table: &TableShape) -> Json {
    json!({
        "name": table.name,
        "bytes": table.bytes,
        "min_update_index": table.min_update_index,
        "max_update_index": table.max_update_index,
        "refs": table.refs,
        "deletions": table.deletions,
        "logs": table.logs,
    })
}

fn stack_json(stack: &StackShape) -> Json {
    let next = stack.next_compaction.as_ref();
    json!({
        "tables": stack.tables.iter().map(table_json).collect::<Vec<_>>(),
        "live_refs": stack.live_refs,
        "dead_refs": stack.dead_refs,
        "live_logs": stack.live_logs,
        "dead_logs": stack.dead_logs,
        "next_compaction": next.map(|range| json!({"first": range.start, "count": range.len()})),
    })
}

fn files_json(files: &FilesShape) -> Json {
    let log = |log: &(bstr::BString, u64)| json!({"name": log.0.to_string(), "bytes": log.1});
    json!({
        "loose": files.loose,
        "packed": files.packed,
        "logs": files.logs,
        "log_bytes": files.log_bytes,
        "largest_logs": files.largest_logs.iter().map(log).collect::<Vec<_>>(),
    })
}
