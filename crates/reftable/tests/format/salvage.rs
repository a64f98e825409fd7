//! Whole blocks of a damaged table are found, whatever says how long blocks are, or if nothing does.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use super::common::{Entry, Logs, Model, Refs, Value, own_log, own_ref, put_checksum_right};
use proptest::collection::vec;
use proptest::prelude::*;
use reftable::{
    BlockInfo, BlockKind, LogCursor, ObjectFormat, RefCursor, Result, Salvaged, Table,
    WriteOptions, check, salvage, salvage_as,
};

const BLOCK_SIZES: [u32; 6] = [256, 512, 1000, 1024, 4096, 65536];
const HASHES: [ObjectFormat; 2] = [ObjectFormat::Sha1, ObjectFormat::Sha256];

fn model(object_format: ObjectFormat, refs: u32, logs: u32) -> Model {
    let id = |n: u32| {
        n.wrapping_mul(2_654_435_761).to_be_bytes().repeat(8)[..object_format.raw_len()].to_vec()
    };
    let name = |n: u32| format!("refs/heads/topic-{n:05}").into_bytes();
    let mut model = Model::default();
    for n in 0..refs {
        let value = match n % 5 {
            0 => Value::Symref(b"refs/heads/main".to_vec()),
            1 => Value::Peeled(id(n), id(n + 1)),
            _ => Value::Direct(id(n)),
        };
        model.refs.insert(name(n), (u64::from(n % 100) + 1, value));
    }
    for n in 0..logs {
        let entry = Entry::Update {
            old: id(n),
            new: id(n + 1),
            who: b"A".to_vec(),
            time: 1_700_000_000 + u64::from(n),
            tz: 100,
            message: format!("{n}\n").into_bytes(),
        };
        model
            .logs
            .insert((name(n), !(u64::from(n % 100) + 1)), entry);
    }
    model
}

fn options(object_format: ObjectFormat, block_size: u32, unpadded: bool) -> WriteOptions {
    let mut options = WriteOptions::new(object_format);
    options.block_size = block_size;
    options.unpadded = unpadded;
    options.max_update_index = 100;
    options
}

/// All block sizes and hashes with and without padding: so many refs that they take some blocks.
fn tables() -> impl Iterator<Item = (String, ObjectFormat, Model, Vec<u8>)> {
    let all = BLOCK_SIZES
        .into_iter()
        .flat_map(|size| HASHES.map(|object_format| (size, object_format)))
        .flat_map(|it| [(0, false), (0, true), (1, false), (1, true)].map(|how| (it, how)));
    all.map(|((block_size, object_format), (logs, unpadded))| {
        let refs = (block_size / 8).max(300);
        let model = model(object_format, refs, logs * (refs / 2));
        let bytes = model.write(options(object_format, block_size, unpadded));
        let what = format!("{object_format:?}, {block_size}, unpadded {unpadded}, logs {logs}");
        (what, object_format, model, bytes)
    })
}

fn blocks(bytes: &[u8]) -> Vec<BlockInfo> {
    let table = Table::open(bytes.to_vec()).unwrap();
    table.blocks().map(Result::unwrap).collect()
}

fn range(block: &BlockInfo, object_format: ObjectFormat) -> std::ops::Range<usize> {
    let start = usize::try_from(block.offset).unwrap();
    // Padding is no part of it; log blocks have none.
    let len = match block.kind {
        BlockKind::Log => block.len_on_disk,
        _ => block.len,
    };
    let header = 20 + 4 * usize::from(object_format.table_version());
    start.max(header)..start + usize::try_from(len).unwrap()
}

fn footer_len(object_format: ObjectFormat) -> usize {
    64 + 4 * usize::from(object_format.table_version())
}

/// Makes the header say nothing.
fn without_header(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[..8].fill(0);
    bytes
}

fn without_both(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = without_header(bytes.to_vec());
    bytes.truncate(bytes.len() - 10);
    bytes
}

fn records(salvaged: &Salvaged) -> (Refs, Logs) {
    let (mut refs, mut logs) = (Refs::new(), Logs::new());
    salvaged.for_each_ref(|record| refs.extend([own_ref(record)]));
    salvaged.for_each_log(|record| logs.extend([own_log(record)]));
    (refs, logs)
}

/// How many blocks with refs or logs there are.
fn count(blocks: &[BlockInfo]) -> usize {
    let has_records = |kind| matches!(kind, BlockKind::Ref | BlockKind::Log);
    blocks.iter().filter(|it| has_records(it.kind)).count()
}

fn assert_rebuilt(salvaged: &Salvaged, object_format: ObjectFormat, what: &str) {
    let table = Table::open(salvaged.rebuild(object_format, |_| true).expect(what)).unwrap();
    assert_eq!(check(&table), [], "{what}");
}

#[test]
fn all_blocks_are_found_without_a_header() {
    for (what, object_format, model, bytes) in tables() {
        let blocks = blocks(&bytes);
        assert!(count(&blocks) > 3, "{what}");
        let footer = bytes.len() - footer_len(object_format);
        let mut zeroed = without_header(bytes.clone());
        zeroed[footer..].fill(0);
        let mut overwritten = zeroed.clone();
        overwritten[footer + 8..].fill(b'x');
        let damaged = [
            without_header(bytes.clone()),
            without_both(&bytes),
            zeroed.clone(),
            zeroed[..footer + 20].to_vec(),
            zeroed[..footer].to_vec(),
            overwritten,
            [&without_header(bytes.clone())[..], b"more"].concat(),
            bytes[..bytes.len() - 10].to_vec(),
        ];
        for (at, damaged) in damaged.into_iter().enumerate() {
            for how in [salvage, salvage_as]
                .into_iter()
                .take(if at < 2 { 2 } else { 1 })
            {
                let salvaged = how(damaged.clone(), object_format, 1..=100);
                let what = format!("{what}, {at}");
                assert_eq!(salvaged.lost, [], "{what}");
                assert_eq!(salvaged.blocks, count(&blocks), "{what}");
                let (refs, logs) = records(&salvaged);
                assert!(refs == model.refs && logs == model.logs, "{what}");
                // The records are the same each time.
                if at < 2 {
                    assert_rebuilt(&salvaged, object_format, &what);
                }
            }
        }
    }
}

/// Readers look up names by restart offsets: what one wrong byte takes from them is a run, or two, of which nobody knows
/// which one is right.
#[test]
fn a_wrong_byte_in_a_block_of_refs_takes_away_two_runs_at_most() {
    const RUN: usize = 16;
    for object_format in HASHES {
        let model = model(object_format, 600, 0);
        let bytes = model.write(options(object_format, 4096, false));
        let blocks = blocks(&bytes);
        let refs: Vec<_> = (blocks.iter().filter(|it| it.kind == BlockKind::Ref)).collect();
        assert!(refs.len() > 2 && model.refs.len() / refs.len() > 3 * RUN);
        let mut in_part = 0;
        for block in refs {
            let range = range(block, object_format);
            // Behind the head of the block, and far from its restart offsets.
            let records = range.start + 4..range.end - range.len() / 8;
            let bits = [0x01, 0x40, 0x80].into_iter().cycle();
            for (at, bit) in records.step_by(29).zip(bits) {
                let mut damaged = bytes.clone();
                damaged[at] ^= bit;
                let salvaged = salvage(damaged, object_format, 1..=100);
                let (found, _) = self::records(&salvaged);
                let right = found.iter().filter(|it| model.refs.get(it.0) == Some(it.1));
                let lost = model.refs.len() - right.count();
                assert!(
                    lost <= 2 * RUN,
                    "{object_format:?}, {bit:#x} at {at}: {lost} lost"
                );
                if !salvaged.lost.is_empty() {
                    assert_eq!(salvaged.lost, [block.offset], "{bit:#x} at {at}");
                    assert_rebuilt(&salvaged, object_format, "a part");
                    in_part += 1;
                }
            }
        }
        assert!(in_part > 20, "{in_part}");
    }
}

/// Returns the records that are left without those of one block, from the bytes of a sound table.
fn without(
    block: &BlockInfo,
    bytes: &[u8],
    object_format: ObjectFormat,
    model: &Model,
) -> (Refs, Logs) {
    let (mut refs, mut logs) = (model.refs.clone(), model.logs.clone());
    // What the block holds is read by the cursors, which say nothing of blocks: they fail at it.
    let mut damaged = bytes.to_vec();
    damaged[range(block, object_format).start] = b'x';
    let (mut firsts, mut first_logs) = (0, 0);
    if let Ok(table) = Table::open(damaged).map(Arc::new) {
        let mut cursor = RefCursor::new(Arc::clone(&table));
        while matches!(cursor.advance(), Ok(true)) {
            firsts += 1;
        }
        let mut cursor = LogCursor::new(table);
        while matches!(cursor.advance(), Ok(true)) {
            first_logs += 1;
        }
    }
    let records = usize::try_from(block.records).unwrap();
    let gone = |first: usize, kind| {
        let is_it = block.kind == kind;
        first..first + if is_it { records } else { 0 }
    };
    let (gone_refs, gone_logs) = (
        gone(firsts, BlockKind::Ref),
        gone(first_logs, BlockKind::Log),
    );
    let mut at = 0..;
    refs.retain(|_, _| !at.next().is_some_and(|at| gone_refs.contains(&at)));
    let mut at = 0..;
    logs.retain(|_, _| !at.next().is_some_and(|at| gone_logs.contains(&at)));
    (refs, logs)
}

#[test]
fn one_lost_block_is_one_lost_place() {
    for (what, object_format, model, bytes) in tables() {
        let blocks = blocks(&bytes);
        let some = [0, 1, blocks.len() / 4, blocks.len() / 2, blocks.len() - 1];
        let last_ref = blocks.iter().rposition(|it| it.kind == BlockKind::Ref);
        for at in some.into_iter().chain(last_ref) {
            let block = &blocks[at];
            let range = range(block, object_format);
            let (refs, logs) = without(block, &bytes, object_format, &model);
            let is_data = matches!(block.kind, BlockKind::Ref | BlockKind::Log);
            let middle = range.start.midpoint(range.end);
            for (fill, end) in [(b'x', range.end), (0, range.end), (0, middle)] {
                let mut damaged = without_both(&bytes);
                damaged[range.start..end].fill(fill);
                let what = format!("{what}: block {at} at {range:?}, {fill} to {end}");
                let salvaged = salvage(damaged, object_format, 1..=100);
                // Zeros behind a block may be padding in part.
                let place = block.offset..if fill == 0 {
                    range.end as u64
                } else {
                    block.offset + 1
                };
                let told = matches!(salvaged.lost[..], [at] if place.contains(&at));
                assert!(told, "{what}: {:?}", salvaged.lost);
                assert_eq!(
                    salvaged.blocks,
                    count(&blocks) - usize::from(is_data),
                    "{what}"
                );
                assert!(records(&salvaged) == (refs.clone(), logs.clone()), "{what}");
                if fill != 0 {
                    assert_rebuilt(&salvaged, object_format, &what);
                }
            }
        }
    }
}

#[test]
fn a_block_size_that_is_wrong_costs_no_block() {
    for (what, object_format, model, bytes) in tables() {
        for size in [0, 1, 4096, 0x00ff_ffff_u32] {
            let mut damaged = bytes[..bytes.len() - 10].to_vec();
            damaged[5..8].copy_from_slice(&size.to_be_bytes()[1..]);
            let salvaged = salvage(damaged, object_format, 1..=100);
            assert!(
                records(&salvaged) == (model.refs.clone(), model.logs.clone()),
                "{what}, {size}"
            );
        }
    }
}

#[test]
fn a_table_that_ends_within_a_block_is_told() {
    for (what, object_format, _, bytes) in tables() {
        let blocks = blocks(&bytes);
        for at in [blocks.len() / 3, blocks.len() - 1] {
            let range = range(&blocks[at], object_format);
            let damaged = &without_header(bytes.clone())[..range.end - 5];
            let salvaged = salvage(damaged.to_vec(), object_format, 1..=100);
            assert_eq!(salvaged.lost, [blocks[at].offset], "{what}: {at}");
            assert_eq!(salvaged.blocks, count(&blocks[..at]), "{what}: {at}");
            // The rest was never written: more zeros than a footer has.
            let mut damaged = without_header(bytes.clone());
            damaged[range.start..].fill(0);
            let salvaged = salvage(damaged, object_format, 1..=100);
            let (first, len) = (blocks[at].offset, bytes.len() as u64);
            let told = matches!(salvaged.lost[..], [place] if (first..len).contains(&place));
            assert!(told, "{what}: {at}: {:?}", salvaged.lost);
        }
    }
}

#[test]
fn few_long_names_are_no_lost_blocks() {
    for (block_size, len) in [(256, 100), (256, 130), (256, 160), (512, 200), (4096, 1500)] {
        for refs in 1..8 {
            let mut model = Model::default();
            for n in 0..refs {
                let name = format!("refs/heads/{n}{}", "n".repeat(len - n));
                let value = Value::Direct(vec![7; 20]);
                model.refs.insert(name.into_bytes(), (1, value));
            }
            let bytes = model.write(options(ObjectFormat::Sha1, block_size, false));
            let salvaged = salvage(without_both(&bytes), ObjectFormat::Sha1, 1..=100);
            assert_eq!(salvaged.lost, [], "{block_size}, {len}, {refs}");
            assert_eq!(records(&salvaged).0, model.refs);
        }
    }
}

#[test]
fn a_record_longer_than_the_usual_block_is_written_again() {
    let mut model = Model::default();
    let name = format!("refs/heads/{}", "n".repeat(60_000)).into_bytes();
    let value = Value::Direct(vec![7; 20]);
    model
        .refs
        .insert(b"refs/heads/a".to_vec(), (1, value.clone()));
    model.refs.insert(name, (1, value));
    let bytes = model.write(options(ObjectFormat::Sha1, 65536, false));
    let salvaged = salvage(without_both(&bytes), ObjectFormat::Sha1, 1..=100);
    assert_eq!(records(&salvaged).0, model.refs);
    assert_rebuilt(&salvaged, ObjectFormat::Sha1, "long");
}

/// Git's tables and JGit's, with index blocks longer than others, with logs that begin a file, at
/// several levels.
#[test]
fn tables_of_other_programs_lose_nothing() {
    let files = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut read = 0;
    for file in std::fs::read_dir(files).unwrap().flatten() {
        if file.path().extension() != Some("ref".as_ref()) {
            continue;
        }
        let what = file.path().display().to_string();
        let bytes = std::fs::read(file.path()).unwrap();
        let table = Arc::new(Table::open(bytes.clone()).unwrap());
        let object_format = table.object_format();
        let indices = table.min_update_index()..=table.max_update_index();
        let (mut refs, mut logs) = (0, 0);
        let mut cursor = RefCursor::new(Arc::clone(&table));
        while cursor.advance().unwrap() {
            refs += 1;
        }
        let mut cursor = LogCursor::new(table);
        while cursor.advance().unwrap() {
            logs += 1;
        }
        for damaged in [without_both(&bytes), without_header(bytes)] {
            let salvaged = salvage(damaged, object_format, indices.clone());
            assert_eq!(salvaged.lost, [], "{what}");
            let (mut found, mut found_logs) = (0, 0);
            salvaged.for_each_ref(|_| found += 1);
            salvaged.for_each_log(|_| found_logs += 1);
            assert_eq!((found, found_logs), (refs, logs), "{what}");
        }
        read += 1;
    }
    assert!(read > 10, "{read}");
}

/// Returns where the restart offsets of a ref block are in the file.
fn restarts(block: &BlockInfo, object_format: ObjectFormat) -> std::ops::Range<usize> {
    let end = range(block, object_format).end - 2;
    end - 3 * usize::try_from(block.restarts).unwrap()..end
}

/// Only a search needs restart offsets; whoever lists reads on from record to record.
#[test]
fn flawed_restart_offsets_cost_no_record() {
    for (what, object_format, model, bytes) in tables() {
        let blocks = blocks(&bytes);
        let of_refs = || blocks.iter().filter(|it| it.kind == BlockKind::Ref);
        for flaw in ["the same", "between records", "not the first"] {
            let mut damaged = bytes.clone();
            for block in of_refs() {
                let table = &mut damaged[restarts(block, object_format)];
                let first = table[..3].to_vec();
                match flaw {
                    "the same" => table
                        .chunks_mut(3)
                        .for_each(|it| it.copy_from_slice(&first)),
                    "between records" => table.chunks_mut(3).skip(1).for_each(|it| it[2] ^= 1),
                    _ => table[2] += 1,
                }
            }
            let what = format!("{what}, {flaw}");
            let salvaged = salvage(damaged, object_format, 1..=100);
            assert_eq!(salvaged.lost, [], "{what}");
            assert!(
                records(&salvaged) == (model.refs.clone(), model.logs.clone()),
                "{what}"
            );
        }
    }
}

#[test]
fn a_block_without_restart_offsets_is_read() {
    for object_format in HASHES {
        let model = model(object_format, 5, 0);
        let mut bytes = model.write(options(object_format, 4096, false));
        let block = blocks(&bytes)[0];
        let restarts = restarts(&block, object_format);
        bytes.drain(restarts.start..restarts.end);
        bytes[restarts.start + 1] = 0;
        let header = 20 + 4 * usize::from(object_format.table_version());
        bytes[header + 3] -= u8::try_from(restarts.len()).unwrap();
        let salvaged = salvage(bytes, object_format, 1..=100);
        assert_eq!(salvaged.lost, []);
        assert_eq!(records(&salvaged).0, model.refs);
        assert_rebuilt(&salvaged, object_format, "no restarts");
    }
}

/// Writes refs of these names in this order, each with a value of its own.
fn in_disorder(object_format: ObjectFormat, names: &[&str]) -> Vec<u8> {
    let mut model = Model::default();
    for n in 0..names.len() {
        let value = Value::Direct(vec![u8::try_from(n).unwrap(); object_format.raw_len()]);
        model
            .refs
            .insert(format!("refs/heads/{n:02}").into_bytes(), (1, value));
    }
    let mut options = options(object_format, 4096, false);
    // Each name stands there as a whole.
    options.restart_interval = 1;
    let mut bytes = model.write(options);
    for (n, name) in names.iter().enumerate() {
        let name = format!("refs/heads/{name}");
        let old = format!("refs/heads/{n:02}");
        let at = bytes.windows(old.len()).position(|it| it == old.as_bytes());
        bytes[at.unwrap()..][..old.len()].copy_from_slice(name.as_bytes());
    }
    bytes
}

#[test]
fn names_out_of_order_are_taken_and_of_two_alike_the_first() {
    for object_format in HASHES {
        let values = |names: &[&str]| {
            let salvaged = salvage(in_disorder(object_format, names), object_format, 1..=100);
            assert_eq!(salvaged.lost, [], "{names:?}");
            assert_rebuilt(&salvaged, object_format, "disorder");
            let doubled: Vec<_> = salvaged.doubled().map(<[u8]>::to_vec).collect();
            let values = records(&salvaged)
                .0
                .into_values()
                .map(|(_, value)| match value {
                    Value::Direct(oid) => oid[0],
                    _ => u8::MAX,
                });
            (values.collect::<Vec<_>>(), doubled)
        };
        assert_eq!(values(&["a0", "a1", "a2"]), (vec![0, 1, 2], vec![]));
        assert_eq!(values(&["a0", "a2", "a1"]), (vec![0, 2, 1], vec![]));
        let doubled = vec![b"refs/heads/a1".to_vec()];
        assert_eq!(
            values(&["a0", "a1", "a1", "a3"]),
            (vec![0, 1, 3], doubled.clone())
        );
        assert_eq!(values(&["a1", "a0", "a1"]), (vec![1, 0], doubled));
    }
}

/// Where neither the order nor the restart table is right, what decodes may be none, but for runs in order.
#[test]
fn of_a_block_with_two_flaws_only_runs_in_order_are_taken() {
    let object_format = ObjectFormat::Sha1;
    let mut bytes = in_disorder(object_format, &["a0", "a2", "a1"]);
    let end = bytes.len() - footer_len(object_format);
    bytes[end - 3] ^= 1;
    let salvaged = salvage(bytes, object_format, 1..=100);
    assert_eq!(self::records(&salvaged).0.len(), 1);
    assert_eq!(salvaged.lost, [0]);
}

/// A table that says that its blocks are smaller than they are: Git reads nothing of it.
#[test]
fn a_block_longer_than_the_block_size_is_told_and_written_again() {
    for object_format in HASHES {
        let model = model(object_format, 20, 5);
        for size in [1, 64, 512_u32] {
            let mut bytes = model.write(options(object_format, 4096, true));
            let footer = bytes.len() - footer_len(object_format);
            for at in [0, footer] {
                bytes[at + 5..at + 8].copy_from_slice(&size.to_be_bytes()[1..]);
            }
            put_checksum_right(&mut bytes);
            let found = check(&Table::open(bytes.clone()).unwrap());
            let told = |it: &reftable::Finding| it.what.contains("longer than the block size");
            assert!(found.first().is_some_and(told), "{size}: {found:?}");
            let salvaged = salvage(bytes, object_format, 1..=100);
            assert!(records(&salvaged) == (model.refs.clone(), model.logs.clone()));
            assert_rebuilt(&salvaged, object_format, "a small block size");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever the bytes are, what is found can be written, and what is told lies in the file.
    #[test]
    fn any_bytes_are_survived(
        size in prop::sample::select(vec![256, 512, 4096]),
        unpadded: bool,
        edits in vec((any::<prop::sample::Index>(), 0..300_usize, any::<u8>()), 1..9),
        cut in any::<prop::sample::Index>(),
    ) {
        let object_format = ObjectFormat::Sha1;
        let mut bytes = model(object_format, 70, 30).write(options(object_format, size, unpadded));
        let before = count(&blocks(&bytes));
        bytes.truncate(bytes.len() - cut.index(bytes.len() / 4));
        for (at, len, byte) in edits {
            let at = at.index(bytes.len());
            let end = bytes.len().min(at + len);
            bytes[at..end].fill(byte);
        }
        let len = bytes.len() as u64;
        let salvaged = salvage(without_header(bytes), object_format, 1..=100);
        prop_assert!(salvaged.blocks <= before);
        prop_assert!(salvaged.lost.is_sorted_by(|a, b| a < b));
        prop_assert!(salvaged.lost.iter().all(|at| *at < len));
        assert_rebuilt(&salvaged, object_format, "edited");
    }
}
