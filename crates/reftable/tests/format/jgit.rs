//! Tables written by JGit, which lays them out by rules of its own: with and without alignment,
//! with a single index block longer than the block size, with logs only.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::common::{Value, own_ref};
use reftable::{
    BlockKind, LogCursor, LogValue, RefCursor, Table, WriteOptions, check, compact, refs_by_oid,
};

const TABLES: [(&str, u32, u32); 5] = [
    ("jgit-small.ref", 9, 9),
    ("jgit-aligned.ref", 400, 200),
    ("jgit-unaligned.ref", 400, 200),
    ("jgit-one-level.ref", 400, 200),
    ("jgit-log-only.ref", 0, 40),
];

fn open(name: &str) -> Arc<Table> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    Arc::new(Table::open(std::fs::read(data.join(name)).unwrap()).unwrap())
}

fn id(n: u32) -> Vec<u8> {
    n.wrapping_mul(2_654_435_761).to_be_bytes().repeat(5)
}

fn name(n: u32) -> Vec<u8> {
    format!("refs/heads/topic-{n:04}").into_bytes()
}

fn expected(count: u32) -> BTreeMap<Vec<u8>, (u64, Value)> {
    let value = |n: u32| match n % 8 {
        0 => Value::Deletion,
        1 => Value::Peeled(id(n), id(n / 20)),
        2 => Value::Symref(b"refs/heads/x".to_vec()),
        _ => Value::Direct(id(n / 2)),
    };
    (0..count)
        .map(|n| (name(n), (3 + u64::from(n % 7), value(n))))
        .collect()
}

#[test]
fn refs_are_scanned_and_found() {
    for (file, refs, _) in TABLES {
        let expected = expected(refs);
        let mut cursor = RefCursor::new(open(file));
        for record in &expected {
            assert_eq!(
                cursor
                    .next()
                    .unwrap()
                    .map(own_ref)
                    .as_ref()
                    .map(|r| (&r.0, &r.1)),
                Some(record)
            );
        }
        assert!(!cursor.advance().unwrap());
        for (name, value) in expected.iter().rev() {
            cursor.seek(name).unwrap();
            let found = cursor.next().unwrap().map(own_ref);
            assert_eq!(found, Some((name.clone(), value.clone())), "{file}");
        }
        cursor.seek(b"refs/heads/zzz").unwrap();
        assert!(!cursor.advance().unwrap());
    }
}

#[test]
fn logs_are_scanned_and_found() {
    for (file, _, logs) in TABLES {
        let mut cursor = LogCursor::new(open(file));
        for n in (0..logs).chain((0..logs).rev()) {
            cursor.seek(&name(n)).unwrap();
            let record = cursor.next().unwrap().unwrap();
            assert_eq!((record.name, record.update_index), (name(n).as_slice(), 9));
            let LogValue::Update(update) = record.value else {
                panic!("{file}: {record:?}")
            };
            assert_eq!((update.old, update.new), (&id(n)[..], &id(n + 1)[..]));
            assert_eq!(
                (update.name, update.email),
                (&b"Ann Tester"[..], &b"ann@example.org"[..])
            );
            assert_eq!(update.time, 1_700_000_000 + u64::from(n));
            // Minutes and no LF, where Git has 200 and one.
            assert_eq!(update.tz, 120);
            assert_eq!(update.message, format!("message {n}").as_bytes());
            if n % 3 == 0 {
                let record = cursor.next().unwrap().unwrap();
                assert_eq!((record.update_index, record.is_deletion()), (5, true));
            }
        }
    }
}

#[test]
fn refs_are_found_by_object() {
    for (file, refs, _) in TABLES {
        let expected = expected(refs);
        let tables = [open(file)];
        for n in 0..refs {
            let mut found = Vec::new();
            refs_by_oid(&tables, &id(n), &mut |record| found.push(own_ref(record))).unwrap();
            let named = expected.iter().filter(|(_, value)| value.1.names(&id(n)));
            let named: Vec<_> = named
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect();
            assert_eq!(found, named, "{file}");
        }
    }
}

#[test]
fn they_pass_the_check_and_are_compacted() {
    for (file, refs, logs) in TABLES {
        let table = open(file);
        assert_eq!(check(&table), [], "{file}");
        let options = WriteOptions::new(table.object_format());
        let finished = compact(&[table], false, &options, Vec::new()).unwrap();
        assert_eq!(finished.stats.refs, u64::from(refs));
        assert_eq!(finished.stats.logs, u64::from(logs + logs.div_ceil(3)));
        assert_eq!(check(&Table::open(finished.sink).unwrap()), []);
    }
}

#[test]
fn they_have_the_shapes_they_are_there_for() {
    let longest_index = |file| {
        let table = open(file);
        let blocks = table.blocks().map(Result::unwrap);
        let indices = blocks.filter(|block| block.kind == BlockKind::Index);
        (
            indices.map(|block| block.len).max().unwrap(),
            u64::from(table.block_size()),
        )
    };
    let (longest, block_size) = longest_index("jgit-one-level.ref");
    assert!(longest > block_size, "{longest} in {block_size}");
    assert_eq!(open("jgit-unaligned.ref").block_size(), 0);
}
