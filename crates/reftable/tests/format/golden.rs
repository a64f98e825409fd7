//! Tables written by real Git: they can be read, they pass every check, and writing their records
//! again gives the same bytes. Compressed blocks are compared after inflating, since two
//! compressors need not agree; so are index records about them, by the block they name.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use reftable::{
    BlockInfo, BlockKind, LogCursor, LogRecord, LogValue, ObjectFormat, RefCursor, RefValue, Table,
    WriteOptions, Writer, check, find_ref, refs_by_oid,
};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(data(name)).unwrap()
}

fn open(name: &str) -> Arc<Table> {
    Arc::new(Table::open(bytes(name)).unwrap())
}

/// How the fixtures were written, as far as the file does not say it.
fn fixtures() -> Vec<(&'static str, u16, bool)> {
    vec![
        ("initial.ref", 16, true),
        ("small.ref", 16, true),
        ("small-deletion.ref", 16, true),
        ("sha256.ref", 16, true),
        ("sha256-deletion.ref", 16, true),
        ("log-only.ref", 16, true),
        ("levels.ref", 3, true),
        ("few-objects.ref", 16, true),
        ("no-objects.ref", 16, false),
        ("symrefs.ref", 16, true),
    ]
}

fn rewrite(table: &Arc<Table>, restart_interval: u16, index_objects: bool) -> Vec<u8> {
    let mut options = WriteOptions::new(table.object_format());
    options.block_size = table.block_size();
    options.min_update_index = table.min_update_index();
    options.max_update_index = table.max_update_index();
    options.restart_interval = restart_interval;
    options.index_objects = index_objects;
    let mut writer = Writer::new(Vec::new(), options).unwrap();
    let mut refs = RefCursor::new(Arc::clone(table));
    while let Some(record) = refs.next().unwrap() {
        writer.add_ref(record).unwrap();
    }
    let mut logs = LogCursor::new(Arc::clone(table));
    while let Some(record) = logs.next().unwrap() {
        writer.add_log(record).unwrap();
    }
    writer.finish().unwrap().sink
}

fn blocks(table: &Table) -> Vec<BlockInfo> {
    table.blocks().collect::<Result<_, _>>().unwrap()
}

#[test]
fn the_list_of_fixtures_is_complete() {
    let mut listed: Vec<_> = fixtures()
        .into_iter()
        .map(|fixture| fixture.0.to_owned())
        .collect();
    let mut present: Vec<_> = std::fs::read_dir(data("."))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".ref") && !name.starts_with("jgit-"))
        .collect();
    listed.sort();
    present.sort();
    assert_eq!(listed, present);
}

#[test]
fn every_fixture_passes_the_check() {
    for (name, ..) in fixtures() {
        assert_eq!(check(&open(name)), [], "{name}");
    }
}

#[test]
fn writing_the_records_again_gives_the_same_bytes() {
    for (name, restart_interval, index_objects) in fixtures() {
        let original = bytes(name);
        let table = open(name);
        let again = rewrite(&table, restart_interval, index_objects);
        let first_log = blocks(&table)
            .iter()
            .find(|block| block.kind == BlockKind::Log)
            .copied();
        let Some(first_log) = first_log else {
            assert_eq!(original, again, "{name}");
            continue;
        };
        let same = usize::try_from(first_log.offset).unwrap();
        assert_eq!(original[..same], again[..same], "{name}: before the logs");

        let again = Arc::new(Table::open(again).unwrap());
        assert_eq!(check(&again), [], "{name}");
        let (left, right) = (blocks(&table), blocks(&again));
        let shape = |block: &BlockInfo| (block.kind, block.records, block.restarts);
        let shapes = |blocks: &[BlockInfo]| blocks.iter().map(shape).collect::<Vec<_>>();
        assert_eq!(shapes(&left), shapes(&right), "{name}");
        let logs = |blocks: &[BlockInfo]| {
            let logs = blocks.iter().filter(|block| block.kind == BlockKind::Log);
            logs.map(|block| block.len).collect::<Vec<_>>()
        };
        assert_eq!(logs(&left), logs(&right), "{name}: uncompressed lengths");
        let all = |table: &Arc<Table>| {
            let mut cursor = LogCursor::new(Arc::clone(table));
            let mut out = Vec::new();
            while let Some(record) = cursor.next().unwrap() {
                out.push(format!("{record:?}"));
            }
            out
        };
        assert_eq!(all(&table), all(&again), "{name}: log records");
    }
}

#[test]
fn the_fixtures_have_the_shapes_they_are_there_for() {
    let count = |name: &str, kind| {
        blocks(&open(name))
            .iter()
            .filter(|b| b.kind == kind)
            .count()
    };
    assert!(count("levels.ref", BlockKind::Ref) > 30);
    assert!(count("levels.ref", BlockKind::Object) > 3);
    assert!(count("levels.ref", BlockKind::Log) > 30);
    assert!(count("levels.ref", BlockKind::Index) > 9);
    assert!(count("few-objects.ref", BlockKind::Object) > 0);
    assert_eq!(count("no-objects.ref", BlockKind::Object), 0);
    assert!(count("no-objects.ref", BlockKind::Index) > 0);
    assert!(count("symrefs.ref", BlockKind::Index) > 0);
    assert_eq!(count("log-only.ref", BlockKind::Ref), 0);
    assert_eq!(open("sha256.ref").version(), 2);
    assert_eq!(open("sha256.ref").object_format(), ObjectFormat::Sha256);
}

#[test]
fn what_git_wrote_is_what_is_read() {
    let tables = [open("small.ref")];
    let head = find_ref(&tables, b"HEAD", |record| format!("{:?}", record.value)).unwrap();
    let main = format!("{:?}", RefValue::Symref(b"refs/heads/main"));
    assert_eq!(head, Some(main));
    let peeled = |name: &[u8]| {
        find_ref(&tables, name, |record| match record.value {
            RefValue::Peeled { peeled, .. } => peeled.to_vec(),
            value => panic!("not peeled: {value:?}"),
        })
    };
    let commit = peeled(b"refs/tags/v1").unwrap().unwrap();
    assert_eq!(peeled(b"refs/tags/v2").unwrap().unwrap(), commit);

    let mut names = Vec::new();
    refs_by_oid(&tables, &commit, &mut |record| {
        names.push(String::from_utf8(record.name.to_vec()).unwrap());
    })
    .unwrap();
    assert_eq!(
        names,
        [
            "refs/heads/main",
            "refs/heads/other",
            "refs/tags/v1",
            "refs/tags/v2"
        ]
    );

    let mut logs = LogCursor::new(Arc::clone(&tables[0]));
    logs.seek(b"refs/heads/main").unwrap();
    let record = logs.next().unwrap().unwrap();
    let LogRecord {
        name,
        value: LogValue::Update(update),
        ..
    } = record
    else {
        panic!("not an update: {record:?}");
    };
    assert_eq!(name, b"refs/heads/main");
    assert_eq!(update.old, [0; 20]);
    assert_eq!(update.new, commit);
    assert_eq!(
        (update.name, update.email),
        (&b"C O Mitter"[..], &b"committer@example.com"[..])
    );
    assert_eq!((update.time, update.tz), (1_700_000_000, -530));
    assert_eq!(update.message, b"first message\n");
}

#[test]
fn deletions_are_records() {
    let table = open("small-deletion.ref");
    let gone = find_ref(&[Arc::clone(&table)], b"refs/heads/gone", |record| {
        record.is_deletion()
    });
    assert_eq!(gone.unwrap(), Some(true));
    let mut logs = LogCursor::new(table);
    logs.seek(b"refs/heads/gone").unwrap();
    assert!(logs.next().unwrap().unwrap().is_deletion());
}

#[test]
fn objects_are_found_by_the_object_section() {
    for (name, ..) in fixtures() {
        let table = open(name);
        let mut ids = Vec::new();
        let mut refs = RefCursor::new(Arc::clone(&table));
        while let Some(record) = refs.next().unwrap() {
            if let RefValue::Direct(oid) = record.value {
                ids.push((oid.to_vec(), record.name.to_vec()));
            }
        }
        for (oid, name) in ids.iter().step_by(7) {
            let mut found = Vec::new();
            let tables = [Arc::clone(&table)];
            refs_by_oid(&tables, oid, &mut |record| found.push(record.name.to_vec())).unwrap();
            assert!(found.contains(name));
            assert!(found.is_sorted());
        }
    }
}
