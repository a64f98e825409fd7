//! What the writer refuses, and tables at the edges of what it can write.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::io;
use std::sync::Arc;

use super::common::{Entry, Model, Value, options, own_log, own_ref};
use reftable::{
    BlockKind, ErrorKind, LogCursor, LogRecord, LogUpdate, LogValue, MergedRefs, ObjectFormat,
    RefCursor, RefRecord, RefValue, Table, WriteOptions, Writer, check, compact, refs_by_oid,
};

const OID: [u8; 20] = [7; 20];

fn direct(name: &[u8], update_index: u64) -> RefRecord<'_> {
    RefRecord {
        name,
        update_index,
        value: RefValue::Direct(&OID),
    }
}

fn deletion(name: &[u8], update_index: u64) -> LogRecord<'_> {
    LogRecord {
        name,
        update_index,
        value: LogValue::Deletion,
    }
}

fn writer() -> Writer<Vec<u8>> {
    let mut options = options(256, 16);
    options.min_update_index = 5;
    Writer::new(Vec::new(), options).unwrap()
}

fn model(count: usize, name: impl Fn(usize) -> String, value: impl Fn(usize) -> Value) -> Model {
    let refs = (0..count)
        .map(|n| (name(n).into_bytes(), (1, value(n))))
        .collect();
    Model {
        refs,
        ..Model::default()
    }
}

fn count(table: &Table, kind: BlockKind) -> usize {
    table
        .blocks()
        .filter(|block| block.as_ref().unwrap().kind == kind)
        .count()
}

#[test]
fn refs_out_of_order_or_range_are_misuse() {
    let mut writer = writer();
    writer.add_ref(direct(b"b", 5)).unwrap();
    let wrong = RefValue::Direct(&[7; 32]);
    let peeled = RefValue::Peeled {
        oid: &OID,
        peeled: &[],
    };
    for record in [
        direct(b"b", 5),
        direct(b"a", 5),
        direct(b"", 5),
        direct(b"c", 4),
        direct(b"c", 101),
        RefRecord {
            value: wrong,
            ..direct(b"c", 5)
        },
        RefRecord {
            value: peeled,
            ..direct(b"c", 5)
        },
    ] {
        assert_eq!(
            writer.add_ref(record).unwrap_err().kind(),
            ErrorKind::Misuse,
            "{record:?}"
        );
    }
    // Nothing of that is in the table, and the writer still works.
    writer.add_ref(direct(b"c", 100)).unwrap();
    let finished = writer.finish().unwrap();
    assert_eq!(finished.stats.refs, 2);
    assert_eq!(check(&Table::open(finished.sink).unwrap()), []);
}

#[test]
fn logs_out_of_order_or_range_are_misuse() {
    let mut writer = writer();
    writer.add_log(deletion(b"b", 4)).unwrap();
    let update = LogUpdate {
        old: &OID,
        new: &[],
        name: b"",
        email: b"",
        time: 0,
        tz: 0,
        message: b"\n",
    };
    for record in [
        deletion(b"b", 4),
        deletion(b"b", 5),
        deletion(b"a", 1),
        deletion(b"", 1),
        deletion(b"c", 101),
        LogRecord {
            value: LogValue::Update(update),
            ..deletion(b"c", 1)
        },
    ] {
        assert_eq!(
            writer.add_log(record).unwrap_err().kind(),
            ErrorKind::Misuse,
            "{record:?}"
        );
    }
    assert_eq!(
        writer.add_ref(direct(b"z", 5)).unwrap_err().kind(),
        ErrorKind::Misuse
    );
    writer.add_log(deletion(b"b", 3)).unwrap();
    assert_eq!(writer.finish().unwrap().stats.log_tombstones, 2);
}

#[test]
fn options_that_contradict_the_format_are_misuse() {
    let mut large = options(0x0100_0000, 0);
    assert_eq!(
        Writer::new(vec![], large.clone()).err().unwrap().kind(),
        ErrorKind::Misuse
    );
    large.block_size = 0x00ff_ffff;
    Writer::new(vec![], large).unwrap();
    let mut turned = options(0, 0);
    turned.min_update_index = 101;
    assert_eq!(
        Writer::new(vec![], turned).err().unwrap().kind(),
        ErrorKind::Misuse
    );
}

#[test]
fn a_record_too_large_for_a_block_is_refused_and_the_rest_is_written() {
    let mut writer = writer();
    let long = [b'c'; 300];
    writer.add_ref(direct(b"b", 5)).unwrap();
    let error = writer.add_ref(direct(&long, 5)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::EntryTooLarge);
    writer.add_ref(direct(b"d", 5)).unwrap();
    let error = writer.add_log(deletion(&long, 5)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::EntryTooLarge);
    writer.add_log(deletion(b"d", 5)).unwrap();
    let finished = writer.finish().unwrap();
    assert_eq!((finished.stats.refs, finished.stats.logs), (2, 1));
    let table = Arc::new(Table::open(finished.sink).unwrap());
    assert_eq!(check(&table), []);
    let mut logs = LogCursor::new(table);
    assert_eq!(logs.next().unwrap().unwrap().name, b"d");
}

#[test]
fn the_first_block_has_room_for_less_because_of_the_header() {
    let fits = |len: usize| {
        let name = vec![b'a'; len];
        let record = RefRecord {
            value: RefValue::Deletion,
            ..direct(&name, 5)
        };
        writer().add_ref(record).map_err(|error| error.kind())
    };
    // Header 24, head 4, lengths 3, update index 1, restart 3, count 2.
    assert_eq!(fits(256 - 37), Ok(()));
    assert_eq!(fits(256 - 36), Err(ErrorKind::EntryTooLarge));
}

#[test]
fn a_sink_that_fails_is_an_io_error_with_its_source() {
    struct Full;
    impl io::Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::Error::other("no space"))
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut writer = Writer::new(Full, options(256, 16)).unwrap();
    writer.add_ref(direct(b"a", 1)).unwrap();
    let error = writer.finish().err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert_eq!(error.to_string(), "cannot write the table: no space");
    assert!(std::error::Error::source(&error).is_some());
}

#[test]
fn names_so_long_that_an_index_leads_nowhere() {
    // One name to a block, in the index as well: levels would never get fewer.
    let long = "x".repeat(150);
    let model = model(
        20,
        |n| format!("{n:03}{long}"),
        |_| Value::Direct(OID.to_vec()),
    );
    let table = model.table(options(256, 16));
    assert_eq!(check(&table), []);
    assert_eq!(count(&table, BlockKind::Ref), 20);
    let mut refs = RefCursor::new(table);
    for (name, value) in model.refs.iter().rev() {
        refs.seek(name).unwrap();
        assert_eq!(
            refs.next().unwrap().map(own_ref),
            Some((name.clone(), value.clone()))
        );
    }
    refs.seek(b"999").unwrap();
    assert!(!refs.advance().unwrap());
}

#[test]
fn an_object_in_too_many_blocks_is_found_all_the_same() {
    let other = vec![8; 20];
    let named = |n| {
        if n == 500 {
            other.clone()
        } else {
            OID.to_vec()
        }
    };
    let model = model(
        2000,
        |n| format!("refs/{n:05}"),
        |n| Value::Direct(named(n)),
    );
    let table = model.table(options(256, 16));
    assert_eq!(check(&table), []);
    for (oid, expected) in [(&OID[..], 1999), (&other, 1), (&[9; 20], 0)] {
        let mut found = 0;
        refs_by_oid(&[Arc::clone(&table)], oid, &mut |_| found += 1).unwrap();
        assert_eq!(found, expected);
    }
}

#[test]
fn ids_that_the_format_cannot_tell_apart_get_no_object_section() {
    let id = |n: usize| {
        let mut id = vec![1; 32];
        id[31] = u8::try_from(n % 2).unwrap();
        id
    };
    let model = model(100, |n| format!("refs/{n:03}"), |n| Value::Direct(id(n)));
    let table = model.table(WriteOptions {
        object_format: ObjectFormat::Sha256,
        ..options(256, 16)
    });
    assert_eq!(check(&table), []);
    assert_eq!(count(&table, BlockKind::Object), 0);
    let mut found = 0;
    refs_by_oid(&[table], &id(1), &mut |_| found += 1).unwrap();
    assert_eq!(found, 50);
}

#[test]
fn update_indices_may_be_huge_and_far_apart() {
    let (min, max) = (0x0006_60ce_36a0_f7f9, u64::MAX);
    let mut options = options(256, 16);
    (options.min_update_index, options.max_update_index) = (min, max);
    let mut writer = Writer::new(Vec::new(), options).unwrap();
    writer.add_ref(direct(b"a", min)).unwrap();
    writer.add_ref(direct(b"b", max)).unwrap();
    writer.add_log(deletion(b"a", max)).unwrap();
    writer.add_log(deletion(b"a", 0)).unwrap();
    let table = Arc::new(Table::open(writer.finish().unwrap().sink).unwrap());
    assert_eq!(check(&table), []);
    let mut refs = RefCursor::new(Arc::clone(&table));
    assert_eq!(refs.next().unwrap().unwrap().update_index, min);
    assert_eq!(refs.next().unwrap().unwrap().update_index, max);
    let mut logs = LogCursor::new(table);
    logs.seek_at(b"a", max - 1).unwrap();
    assert_eq!(logs.next().unwrap().unwrap().update_index, 0);
}

#[test]
fn blocks_as_large_as_the_format_allows() {
    let mut options = options(0x00ff_ffff, 16);
    options.deflate_level = 6;
    let mut model = model(3, |n| format!("refs/{n}"), |_| Value::Direct(OID.to_vec()));
    let message = vec![b'm'; 0x00ff_0000];
    let entry = |message: Vec<u8>| Entry::Update {
        old: OID.to_vec(),
        new: OID.to_vec(),
        who: b"A".to_vec(),
        time: 1,
        tz: -1200,
        message,
    };
    model.logs.insert((b"refs/1".to_vec(), !1), entry(message));
    model
        .logs
        .insert((b"refs/2".to_vec(), !1), entry(vec![b'n'; 0x0001_0000]));
    let table = model.table(options);
    assert_eq!(check(&table), []);
    assert_eq!(count(&table, BlockKind::Log), 2);
    let mut logs = LogCursor::new(table);
    for (key, entry) in &model.logs {
        assert_eq!(
            logs.next().unwrap().map(own_log),
            Some((key.clone(), entry.clone()))
        );
    }
}

#[test]
fn the_level_of_compression_changes_no_record() {
    let mut model = Model::default();
    for n in 0..500_u64 {
        let entry = Entry::Update {
            old: vec![u8::try_from(n % 251).unwrap(); 20],
            new: OID.to_vec(),
            who: b"A".to_vec(),
            time: n,
            tz: 0,
            message: b"x\n".to_vec(),
        };
        model
            .logs
            .insert((format!("refs/{n:04}").into_bytes(), !1), entry);
    }
    for deflate_level in [0, 1, 5, 9, 99] {
        let table = model.table(WriteOptions {
            deflate_level,
            ..options(512, 16)
        });
        assert_eq!(check(&table), []);
        let mut logs = LogCursor::new(table);
        for (key, entry) in &model.logs {
            assert_eq!(
                logs.next().unwrap().map(own_log),
                Some((key.clone(), entry.clone()))
            );
        }
    }
}

#[test]
fn the_number_of_threads_changes_no_byte() {
    let mut model = Model::default();
    for n in 0..30_000_u64 {
        let entry = Entry::Update {
            old: n.to_be_bytes().repeat(3)[..20].to_vec(),
            new: OID.to_vec(),
            who: b"A".to_vec(),
            time: n,
            tz: 0,
            message: b"x\n".to_vec(),
        };
        model
            .logs
            .insert((format!("refs/{n:05}").into_bytes(), !1), entry);
    }
    let write = |deflate_threads| {
        model.write(WriteOptions {
            deflate_threads,
            ..options(512, 16)
        })
    };
    let alone = write(1);
    assert_eq!(check(&Table::open(alone.clone()).unwrap()), []);
    for threads in [0, 2, 3, 7] {
        assert!(write(threads) == alone, "{threads}");
    }
}

#[test]
fn a_log_entry_that_does_not_fit_leaves_no_log_section() {
    let mut writer = writer();
    writer.add_ref(direct(b"b", 5)).unwrap();
    writer.add_log(deletion(&[b'c'; 300], 5)).unwrap_err();
    let table = Arc::new(Table::open(writer.finish().unwrap().sink).unwrap());
    assert_eq!(check(&table), []);
    assert!(!LogCursor::new(table).advance().unwrap());
}

#[test]
fn compaction_of_everything_deleted_is_empty() {
    let alive = model(
        50,
        |n| format!("refs/{n:03}"),
        |_| Value::Direct(OID.to_vec()),
    );
    let dead = model(50, |n| format!("refs/{n:03}"), |_| Value::Deletion);
    let tables = [alive.table(options(256, 16)), dead.table(options(256, 16))];
    let kept = compact(&tables, false, &options(256, 16), Vec::new()).unwrap();
    assert_eq!((kept.stats.refs, kept.stats.tombstones), (50, 50));
    let gone = compact(&tables, true, &options(256, 16), Vec::new()).unwrap();
    assert!(gone.stats.is_empty());
    assert_eq!(gone.stats.bytes, 24 + 68);
}

#[test]
fn tables_with_different_hashes_are_misuse() {
    let sha1 = model(1, |_| "a".to_owned(), |_| Value::Direct(OID.to_vec()));
    let sha256 = model(1, |_| "a".to_owned(), |_| Value::Direct(vec![7; 32]));
    let tables = [
        sha1.table(options(0, 0)),
        sha256.table(WriteOptions {
            object_format: ObjectFormat::Sha256,
            ..options(0, 0)
        }),
    ];
    let error = compact(&tables, true, &options(0, 0), Vec::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misuse);
    let error = refs_by_oid(&tables, &OID, &mut |_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misuse);
    let error = refs_by_oid(&tables[..1], &[7; 32], &mut |_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misuse);
}

#[test]
fn a_merged_cursor_can_be_sought_again_from_anywhere() {
    let old = model(
        30,
        |n| format!("refs/{n:02}"),
        |_| Value::Direct(OID.to_vec()),
    );
    let new = model(15, |n| format!("refs/{:02}", 2 * n), |_| Value::Deletion);
    let mut refs = MergedRefs::new(vec![old.table(options(256, 2)), new.table(options(256, 2))]);
    let mut at = |target: &[u8]| {
        refs.seek(target).unwrap();
        refs.next().unwrap().map(|record| record.name.to_vec())
    };
    assert_eq!(at(b"refs/2"), Some(b"refs/20".to_vec()));
    assert_eq!(at(b"refs/20"), Some(b"refs/20".to_vec()));
    assert_eq!(at(b"refs/3"), None);
    assert_eq!(at(b"refs/07"), Some(b"refs/07".to_vec()));
    assert_eq!(at(b""), Some(b"refs/00".to_vec()));
    refs.seek_prefix(b"refs/1").unwrap();
    assert_eq!(
        std::iter::from_fn(|| refs.advance().unwrap().then_some(())).count(),
        10
    );
    assert!(!refs.advance().unwrap());
    refs.seek_prefix(b"refs/1").unwrap();
    assert_eq!(refs.next().unwrap().unwrap().name, b"refs/10");
    refs.seek(b"refs/19").unwrap();
    assert_eq!(refs.next().unwrap().unwrap().name, b"refs/19");
    assert_eq!(refs.next().unwrap().unwrap().name, b"refs/20");
}
