//! Damaged tables: every operation ends with a result or an error, whatever the bytes are.
//!
//! The footer's checksum would catch most damage to header and footer before it gets anywhere, so
//! it is put right again after the damage: what a broken writer or an attacker would do.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use super::common::{Entry, Model, Value, options, put_checksum_right};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use reftable::{
    BlockKind, ErrorKind, LogCursor, MergedLogs, MergedRefs, RefCursor, Result, Table,
    WriteOptions, check, compact, find_ref, objects_without_peeled, refs_by_oid,
    refs_that_may_lead_to,
};

/// A table with two index levels over refs, objects and logs in a few thousand bytes.
fn dense() -> Vec<u8> {
    refs_and_logs(70).write(options(256, 3))
}

fn refs_and_logs(count: u8) -> Model {
    let mut model = Model::default();
    for n in 0..count {
        let name = format!("refs/heads/{}/topic-{n:02}", n % 5).into_bytes();
        let mut oid = vec![n; 20];
        oid[0] = n / 3;
        let value = match n % 7 {
            0 => Value::Deletion,
            1 => Value::Symref(b"refs/heads/main".to_vec()),
            2 => Value::Peeled(oid.clone(), vec![0xee; 20]),
            _ => Value::Direct(oid.clone()),
        };
        model.refs.insert(name.clone(), (u64::from(n) + 1, value));
        let entry = if n % 9 == 0 {
            Entry::Deletion
        } else {
            Entry::Update {
                old: vec![0; 20],
                new: oid,
                who: b"A".to_vec(),
                time: 1_700_000_000,
                tz: 100,
                message: b"x\n".to_vec(),
            }
        };
        model.logs.insert((name, !u64::from(n)), entry);
    }
    model
}

fn fixture(name: &str) -> Vec<u8> {
    let data = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    std::fs::read(data.join(name)).unwrap()
}

/// Does everything that can be done with a table, and returns how many refs it had.
fn exercise(bytes: Vec<u8>) -> Result<u64> {
    let table = Arc::new(Table::open(bytes)?);
    let names = [
        &b"HEAD"[..],
        b"refs/heads/2/topic-32",
        b"refs/heads/4/topic-69",
        b"\xff",
        b"",
    ];
    let mut first_error = None;
    let mut note = |result: Result<()>| {
        if let Err(error) = result {
            first_error.get_or_insert(error);
        }
    };
    let mut count = 0;
    let mut refs = RefCursor::new(Arc::clone(&table));
    note((|| {
        while let Some(record) = refs.next()? {
            count += 1;
            std::hint::black_box(record);
        }
        Ok(())
    })());
    let mut logs = LogCursor::new(Arc::clone(&table));
    note((|| {
        while let Some(record) = logs.next()? {
            std::hint::black_box(record);
        }
        Ok(())
    })());
    for name in names {
        note(refs.seek(name).and_then(|()| refs.advance().map(drop)));
        note(logs.seek(name).and_then(|()| logs.advance().map(drop)));
        note(find_ref(&[Arc::clone(&table)], name, |_| ()).map(drop));
    }
    let oid = vec![0xee; table.object_format().raw_len()];
    note(refs_by_oid(&[Arc::clone(&table)], &oid, &mut |_| ()));
    note(objects_without_peeled(
        &[Arc::clone(&table)],
        b"refs/heads/",
        &mut |_| (),
    ));
    note(refs_that_may_lead_to(
        &[Arc::clone(&table)],
        &[&oid],
        &mut |_| (),
    ));
    note(table.blocks().try_for_each(|block| block.map(drop)));
    std::hint::black_box(check(&table));
    let twice = vec![Arc::clone(&table), Arc::clone(&table)];
    note(MergedRefs::new(twice.clone()).advance().map(drop));
    note(MergedLogs::new(twice.clone()).advance().map(drop));
    let options = WriteOptions::new(table.object_format());
    note(compact(&twice, true, &options, Vec::new()).map(drop));
    first_error.map_or(Ok(count), Err)
}

#[test]
fn a_cut_table_is_never_taken_for_a_whole_one() {
    for bytes in [dense(), fixture("small.ref"), fixture("sha256.ref")] {
        exercise(bytes.clone()).unwrap();
        for len in 0..bytes.len() {
            let error = Table::open(bytes[..len].to_vec()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
        }
    }
}

#[test]
fn a_cut_table_with_a_footer_is_survived() {
    let bytes = dense();
    let (body, footer) = bytes.split_at(bytes.len() - 68);
    for len in 24..body.len() {
        let _ = exercise([&body[..len], footer].concat());
    }
}

#[test]
fn any_byte_may_be_wrong() {
    let mut refused = 0;
    for bytes in [
        dense(),
        fixture("small.ref"),
        fixture("sha256.ref"),
        fixture("log-only.ref"),
        fixture("jgit-small.ref"),
        fixture("jgit-log-only.ref"),
    ] {
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= if at % 9 == 8 { 0xff } else { 1 << (at % 9) };
            put_checksum_right(&mut damaged);
            refused += usize::from(exercise(damaged).is_err());
        }
    }
    assert!(refused > 1000, "{refused}");
}

#[test]
fn what_is_wrong_with_the_structure_is_found() {
    // Every byte of an object or index block matters.
    let bytes = dense();
    let sound = Arc::new(Table::open(bytes.clone()).unwrap());
    let expected = answers(&sound);
    assert_eq!(expected.len(), 50);
    let mut unnoticed = 0;
    for block in sound.blocks() {
        let block = block.unwrap();
        if block.kind != BlockKind::Index && block.kind != BlockKind::Object {
            continue;
        }
        let start = usize::try_from(block.offset).unwrap();
        let len = usize::try_from(block.len_on_disk).unwrap();
        for at in start..start + len {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x01;
            let table = Arc::new(Table::open(damaged).unwrap());
            if check(&table).is_empty() {
                // An object record may say that all blocks have to be searched.
                assert_eq!(block.kind, BlockKind::Object, "{at}");
                assert_eq!(answers(&table), expected, "{at}");
                unnoticed += 1;
            }
        }
    }
    assert!(unnoticed < 20, "{unnoticed} of {} bytes", bytes.len());
}

/// Who merges tables takes the records that he sees for all there are.
#[test]
fn logs_that_the_footer_hides_are_not_lost_by_a_merge() {
    let logs = |table: &Arc<Table>| {
        let mut logs = LogCursor::new(Arc::clone(table));
        let mut count = 0;
        while logs.advance().unwrap() {
            count += 1;
        }
        count
    };
    for index_objects in [true, false] {
        let mut options = options(256, 3);
        options.index_objects = index_objects;
        let bytes = refs_and_logs(70).write(options.clone());
        let sound = Arc::new(Table::open(bytes.clone()).unwrap());
        compact(&[Arc::clone(&sound)], true, &options, Vec::new()).unwrap();
        let mut damaged = bytes;
        let end = damaged.len() - 4;
        damaged[end - 16..end].fill(0);
        put_checksum_right(&mut damaged);
        let table = Arc::new(Table::open(damaged).unwrap().labelled("one.ref"));
        assert_eq!((logs(&sound), logs(&table)), (70, 0));
        let merged = compact(&[table], true, &options, Vec::new());
        let error = merged.expect_err("it must not go on");
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains("one.ref"), "{error}");
    }
}

/// What the object section is there for, asked about all objects that the refs name.
fn answers(table: &Arc<Table>) -> Vec<(u8, Vec<u8>)> {
    let mut answers = Vec::new();
    for n in 0..70 {
        let mut oid = [n; 20];
        oid[0] = n / 3;
        let tables = [Arc::clone(table)];
        refs_by_oid(&tables, &oid, &mut |record| {
            answers.push((n, record.name.to_vec()))
        })
        .unwrap();
    }
    answers
}

/// Reads everything, and merges it; returns how many refs, entries and symrefs there are.
fn count(bytes: &[u8]) -> Result<(usize, usize, usize)> {
    let table = Arc::new(Table::open(bytes.to_vec())?);
    let (mut counted, mut symrefs) = ((0, 0), 0);
    let mut refs = RefCursor::new(Arc::clone(&table));
    while refs.advance()? {
        counted.0 += 1;
    }
    let mut logs = LogCursor::new(Arc::clone(&table));
    while logs.advance()? {
        counted.1 += 1;
    }
    refs_that_may_lead_to(&[Arc::clone(&table)], &[], &mut |_| symrefs += 1)?;
    let mut options = WriteOptions::new(table.object_format());
    options.max_update_index = u64::MAX;
    let merged = compact(&[table], false, &options, Vec::new())?.stats;
    assert_eq!(
        (merged.refs, merged.logs),
        (counted.0 as u64, counted.1 as u64)
    );
    Ok((counted.0, counted.1, symrefs))
}

/// The tables whose damage must not pass for an end: with and without indexes and padding.
fn with_sections() -> Vec<Vec<u8>> {
    let mut model = Model::default();
    for n in 0..40_u8 {
        let name = format!("refs/heads/topic-{n:02}").into_bytes();
        model.refs.insert(name, (1, Value::Direct(vec![n; 20])));
    }
    let few = [0, 1024].map(|block_size| model.write(options(block_size, 16)));
    let [unaligned, aligned] = few;
    let fixtures = [
        "small.ref",
        "sha256.ref",
        "log-only.ref",
        "symrefs.ref",
        "jgit-small.ref",
        "jgit-aligned.ref",
        "jgit-unaligned.ref",
        "jgit-one-level.ref",
        "jgit-log-only.ref",
    ];
    let mut tables = vec![dense(), unaligned, aligned];
    tables.extend(fixtures.map(fixture));
    tables
}

#[test]
fn a_section_ends_where_the_next_one_begins_and_nowhere_else() {
    for bytes in with_sections() {
        let whole = count(&bytes).unwrap();
        let header_len = if bytes[4] == 1 { 24 } else { 28 };
        let body_len = bytes.len() - header_len - 44;
        let table = Table::open(bytes.clone()).unwrap();
        for block in table.blocks().map(Result::unwrap) {
            let start = usize::try_from(block.offset).unwrap();
            let at = start.max(header_len);
            let end = start + usize::try_from(block.len_on_disk).unwrap();
            // A block of no type or of another one, one that was never written, one behind which
            // the padding is not as it should be, and one whose restart offsets are miscounted.
            for kind in [b's', b'r', b'o', b'i', b'g', 0, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] = kind;
                let found = count(&damaged);
                assert!(
                    found.is_err() || found.is_ok_and(|found| found == whole),
                    "{at}: {kind}"
                );
            }
            let mut zeroed = bytes.clone();
            zeroed[at..end].fill(0);
            let found = count(&zeroed);
            assert!(
                found.is_err() || found.is_ok_and(|found| found == whole),
                "{at}"
            );
            if block.kind == BlockKind::Log {
                continue;
            }
            let len = start + usize::try_from(block.len).unwrap();
            for (at, bit) in [len - 2, len - 1, len]
                .into_iter()
                .flat_map(|at| (0..8).map(move |bit| (at, bit)))
            {
                let mut damaged = bytes.clone();
                if at < body_len {
                    damaged[at] ^= 1 << bit;
                }
                let found = count(&damaged);
                assert!(
                    found.is_err() || found.is_ok_and(|found| found == whole),
                    "{at}: {bit}"
                );
            }
        }
    }
}

#[test]
fn a_seek_past_a_damaged_block_is_not_an_end() {
    // Behind the last name of a block the next one is looked at.
    let bytes = dense();
    let table = Table::open(bytes.clone()).unwrap();
    let blocks: Vec<_> = table.blocks().map(Result::unwrap).collect();
    let mut refs = blocks.iter().filter(|block| block.kind == BlockKind::Ref);
    let second = usize::try_from(refs.nth(1).unwrap().offset).unwrap();
    let mut damaged = bytes;
    damaged[second] = 0;
    let mut cursor = RefCursor::new(Arc::new(Table::open(damaged).unwrap()));
    assert!(cursor.advance().unwrap());
    assert!(cursor.seek(b"refs/heads/4/topic-69").is_err());
    // The cursor stays usable.
    assert!(cursor.seek(b"refs/heads/0/topic-00").is_ok());
    assert!(cursor.advance().unwrap());
}

#[test]
fn a_prefix_longer_than_the_key_before_is_not_passed_over() {
    let mut model = Model::default();
    let name = |n: usize| format!("refs/heads/topic-{n:02}").into_bytes();
    for n in 0..16 {
        model.refs.insert(name(n), (1, Value::Direct(vec![7; 20])));
    }
    let bytes = model.write(options(0, 16));
    // Behind the first record, whose length takes two bytes: prefix, suffix, update index, id.
    let mut at = 28 + 1 + 2 + name(0).len() + 1 + 20;
    for n in 1..16 {
        let suffix_len = usize::from(bytes[at + 1] >> 3);
        assert_eq!(usize::from(bytes[at]) + suffix_len, name(n).len());
        let mut damaged = bytes.clone();
        damaged[at] += 32;
        let table = Arc::new(Table::open(damaged).unwrap());
        for from in [None, Some(0), n.checked_sub(2)] {
            let mut refs = RefCursor::new(Arc::clone(&table));
            if let Some(from) = from {
                refs.seek(&name(from)).unwrap();
                assert!(refs.advance().unwrap());
            }
            assert!(refs.seek(&name(n)).is_err(), "{n} from {from:?}");
        }
        at += 2 + suffix_len + 1 + 20;
    }
}

#[test]
fn a_record_that_ends_behind_its_block_is_not_passed_over() {
    let mut model = Model::default();
    let name = |n: usize| format!("refs/heads/topic-{n:03}").into_bytes();
    for n in 0..300 {
        model.refs.insert(name(n), (1, Value::Direct(vec![7; 20])));
    }
    let bytes = model.write(options(1024, u16::MAX));
    let u16_at = |at: usize| usize::from(bytes[at]) << 8 | usize::from(bytes[at + 1]);
    let block_len = usize::from(bytes[25]) << 16 | u16_at(26);
    let end = block_len - 2 - 3 * u16_at(block_len - 2);
    // Behind the first record, whose length takes two bytes: prefix, suffix, update index, id.
    let mut at = 28 + 1 + 2 + name(0).len() + 1 + 20;
    let len = |at: usize| 2 + usize::from(bytes[at + 1] >> 3) + 1 + 20;
    while at + len(at) < end {
        at += len(at);
    }
    assert_eq!(at + len(at), end);
    let mut damaged = bytes.clone();
    damaged[at + 1] += 1 << 3;
    let tables = [Arc::new(Table::open(damaged).unwrap())];
    for oid in [[7; 20], [8; 20]] {
        assert!(refs_that_may_lead_to(&tables, &[&oid], &mut |_| ()).is_err());
        assert!(objects_without_peeled(&tables, b"refs/", &mut |_| ()).is_err());
    }
}

#[test]
fn a_wrong_checksum_is_refused() {
    let bytes = dense();
    for at in bytes.len() - 68..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        assert_eq!(Table::open(damaged).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}

/// A table of one index block, in the place of the ref blocks' index, behind one ref block.
fn with_index(child: u8) -> Vec<u8> {
    let mut model = Model::default();
    model
        .refs
        .insert(b"a".to_vec(), (1, Value::Symref(b"b".to_vec())));
    let bytes = model.write(options(256, 16));
    let (body, footer) = bytes.split_at(bytes.len() - 68);
    let at = u8::try_from(body.len()).unwrap();
    // One record with the key `z`, one restart.
    let index = [b'i', 0, 0, 13, 0, 1 << 3, b'z', child, 0, 0, 4, 0, 1];
    let mut footer = footer.to_vec();
    footer[31] = at;
    let mut bytes = [body, &index, &footer].concat();
    put_checksum_right(&mut bytes);
    bytes
}

#[test]
fn an_index_that_points_at_itself_is_refused() {
    let seek = |child| {
        let bytes = with_index(child);
        let mut refs = RefCursor::new(Arc::new(Table::open(bytes).unwrap()));
        refs.seek(b"a")?;
        refs.advance()
    };
    assert!(seek(0).unwrap());
    let own = 24 + 4 + 6 + 3 + 2;
    for child in [own, own + 1, own - 1, 24, 0x7f] {
        assert_eq!(
            seek(child).unwrap_err().kind(),
            ErrorKind::Corrupt,
            "{child}"
        );
    }
}

#[test]
fn an_index_over_nothing_is_refused() {
    let bytes = Model::default().write(options(256, 16));
    let (header, footer) = bytes.split_at(24);
    let index = [b'i', 0, 0, 37, 0, 1 << 3, b'z', 0, 0, 0, 28, 0, 1];
    let error = Table::open([header, &index, footer].concat()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}

#[test]
fn a_log_block_that_claims_too_much_is_refused() {
    let bytes = fixture("log-only.ref");
    for len in [0_u32, 5, 29, 31, 0xff_ffff] {
        let mut damaged = bytes.clone();
        damaged[25..28].copy_from_slice(&len.to_be_bytes()[1..]);
        let mut logs = LogCursor::new(Arc::new(Table::open(damaged).unwrap()));
        assert_eq!(logs.advance().unwrap_err().kind(), ErrorKind::Corrupt);
        // After an error the cursor is at the end, and stays there.
        assert!(!logs.advance().unwrap());
    }
}

#[test]
fn a_table_without_records_is_read_and_found_empty() {
    let bytes = Model::default().write(options(0, 0));
    assert_eq!(bytes.len(), 24 + 68);
    let table = Arc::new(Table::open(bytes).unwrap());
    assert_eq!(table.weight(), 1);
    assert_eq!(check(&table), []);
    assert_eq!(table.blocks().count(), 0);
    assert!(!RefCursor::new(Arc::clone(&table)).advance().unwrap());
    assert!(!LogCursor::new(table).advance().unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    /// Single bytes do not get far: what is damaged in several places does.
    #[test]
    fn several_bytes_may_be_wrong(
        which in 0..5_usize,
        edits in vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        removed in option::of((any::<prop::sample::Index>(), 1..8_usize)),
    ) {
        let mut bytes = match which {
            0 => dense(),
            1 => fixture("small.ref"),
            2 => fixture("symrefs.ref"),
            3 => fixture("jgit-small.ref"),
            _ => fixture("jgit-log-only.ref"),
        };
        if let Some((at, len)) = removed {
            let end = bytes.len() - 68;
            let at = 24 + at.index(end - 24);
            bytes.drain(at..end.min(at + len));
        }
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        put_checksum_right(&mut bytes);
        let _ = exercise(bytes);
    }
}

/// A table in which each name is one byte longer than the one before, of which it repeats the beginning: so many
/// symrefs in one block.
fn with_names_that_grow(count: usize) -> Vec<u8> {
    let varint = |mut number: usize| {
        let low = |number: usize| u8::try_from(number & 0x7f).unwrap();
        let mut bytes = vec![low(number)];
        while number > 0x7f {
            number = (number >> 7) - 1;
            bytes.insert(0, 0x80 | low(number));
        }
        bytes
    };
    let mut records = Vec::new();
    for shared in 0..count {
        records.extend(varint(shared));
        // One byte more, which is a symref's; no index behind the table's own; it points to `b`.
        records.extend([1 << 3 | 3, b'a', 0, 1, b'b']);
    }
    let bytes = Model::default().write(options(0, 16));
    let (header, footer) = bytes.split_at(24);
    let len = u32::try_from(24 + 4 + records.len() + 3 + 2).unwrap();
    let head = [&b"r"[..], &len.to_be_bytes()[1..]].concat();
    let mut bytes = [header, &head, &records, &[0, 0, 28, 0, 1], footer].concat();
    put_checksum_right(&mut bytes);
    bytes
}

#[test]
fn names_far_longer_than_the_table_are_refused() {
    let count = |many: usize| {
        let bytes = with_names_that_grow(many);
        let mut refs = RefCursor::new(Arc::new(Table::open(bytes).unwrap()));
        let mut count = 0;
        while refs.advance()? {
            count += 1;
        }
        Ok::<_, reftable::Error>(count)
    };
    assert_eq!(count(2000).unwrap(), 2000);
    let error = count(20_000).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(
        error.to_string().contains("longer than the table"),
        "{error}"
    );
}
