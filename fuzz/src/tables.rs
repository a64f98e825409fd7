//! Tables and blocks: damaged ones are told, and good ones are written again to the same records.

use std::io::Write;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use reftable::{
    ObjectFormat, LogCursor, LogRecord, LogUpdate, LogValue, MergedLogs, MergedRefs, RefCursor,
    RefRecord, RefValue, Result, Table, WriteOptions, Writer, check, compact, find_ref,
    refs_by_oid,
};

/// A table with small blocks, so that a few records make indices of several levels.
pub(crate) fn dense(count: u8, block_size: u32) -> Vec<u8> {
    let mut options = WriteOptions::new(ObjectFormat::Sha1);
    options.block_size = block_size;
    options.restart_interval = 3;
    options.max_update_index = 100;
    let mut writer = Writer::new(Vec::new(), options).expect("good options");
    let name = |n: u8| format!("refs/heads/{n:03}/topic").into_bytes();
    for n in 0..count {
        let (oid, peeled) = ([n / 3; 20], [0xee; 20]);
        let value = match n % 7 {
            0 => RefValue::Deletion,
            1 => RefValue::Symref(b"refs/heads/main"),
            2 => RefValue::Peeled {
                oid: &oid,
                peeled: &peeled,
            },
            _ => RefValue::Direct(&oid),
        };
        let record = RefRecord {
            name: &name(n),
            update_index: u64::from(n) % 100 + 1,
            value,
        };
        writer.add_ref(record).expect("sorted");
    }
    for n in 0..count {
        let update = LogUpdate {
            old: &[0; 20],
            new: &[n; 20],
            name: b"A",
            email: b"a@b",
            time: 1_700_000_000,
            tz: 100,
            message: b"x\n",
        };
        let value = if n % 9 == 0 {
            LogValue::Deletion
        } else {
            LogValue::Update(update)
        };
        let record = LogRecord {
            name: &name(n),
            update_index: u64::from(n) % 100 + 1,
            value,
        };
        writer.add_log(record).expect("sorted");
    }
    writer.finish().expect("memory").sink
}

/// Puts the checksum of the footer right, which would hide everything else.
fn repaired(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let footer = if bytes.get(4) == Some(&1) { 68 } else { 72 };
    if let Some(start) = bytes.len().checked_sub(footer) {
        let header = footer - 44;
        if bytes[0] & 1 == 0 {
            // The footer repeats the header: keep the two alike in half of the cases.
            bytes.copy_within(..header, start);
        }
        let (fields, crc) = bytes[start..].split_at_mut(footer - 4);
        crc.copy_from_slice(&crc32fast::hash(fields).to_be_bytes());
    }
    bytes
}

pub(crate) fn table(bytes: &[u8]) {
    let _ = exercise(bytes.to_vec());
    let _ = exercise(repaired(bytes));
}

pub(crate) fn salvage(bytes: &[u8]) {
    for data in [bytes.to_vec(), repaired(bytes)] {
        let _ = reftable::diagnose(&data);
        for hash in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
            for salvaged in [
                reftable::salvage(data.clone(), hash, 1..=100),
                reftable::salvage_as(data.clone(), hash, 1..=100),
            ] {
                if let Ok(rebuilt) = salvaged.rebuild(hash, |_| true) {
                    let table = Table::open(rebuilt).expect("a table of our own");
                    assert_eq!(check(&table).len(), 0, "what is rebuilt is sound");
                }
            }
        }
    }
}

/// Does all that can be done with a table; one that [`check`] finds sound is written again.
fn exercise(bytes: Vec<u8>) -> Result<()> {
    let table = Arc::new(Table::open(bytes)?);
    let hash = table.object_format();
    let (mut records, mut size) = (Vec::new(), 0);
    let listed = (|| {
        let mut refs = RefCursor::new(Arc::clone(&table));
        while let Some(record) = refs.next()? {
            size += record.name.len();
            records.push(record.name.to_vec());
        }
        Ok(())
    })();
    assert!(size < 64 << 20, "memory for {size} bytes of names");
    for name in records
        .iter()
        .take(3)
        .map(Vec::as_slice)
        .chain([&b""[..], b"HEAD", b"\xff"])
    {
        let _ = find_ref(&[Arc::clone(&table)], name, |_| ());
        let mut refs = RefCursor::new(Arc::clone(&table));
        let _ = refs.seek(name).and_then(|()| refs.advance().map(drop));
        let mut logs = LogCursor::new(Arc::clone(&table));
        let _ = logs.seek(name).and_then(|()| logs.advance().map(drop));
        let _ = logs
            .seek_at(name, 5)
            .and_then(|()| logs.advance().map(drop));
    }
    let oid = vec![0xee; hash.raw_len()];
    let _ = refs_by_oid(&[Arc::clone(&table)], &oid, &mut |_| ());
    let _ = reftable::refs_that_may_lead_to(&[Arc::clone(&table)], &[&oid], &mut |_| ());
    let _ = table.blocks().try_for_each(|block| block.map(drop));
    let twice = vec![Arc::clone(&table), Arc::clone(&table)];
    let _ = MergedRefs::new(twice.clone()).advance();
    let _ = MergedLogs::new(twice.clone()).advance();
    let mut options = WriteOptions::new(hash);
    options.min_update_index = table.min_update_index();
    options.max_update_index = table.max_update_index();
    let merged = compact(&[Arc::clone(&table)], false, &options, Vec::new());
    if !check(&table).is_empty() {
        return listed;
    }
    listed.expect("a sound table is read to its end");
    let again = match merged {
        Ok(finished) => Arc::new(Table::open(finished.sink).expect("a table of our own")),
        // A sound table may hold what only other writers write; it is told, not lost.
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return Ok(());
        }
    };
    assert_eq!(check(&again).len(), 0);
    let (mut ours, mut theirs) = (RefCursor::new(again.clone()), RefCursor::new(table.clone()));
    loop {
        let (ours, theirs) = (ours.next()?, theirs.next()?);
        assert_eq!(format!("{ours:?}"), format!("{theirs:?}"), "written again");
        let Some(record) = theirs else { break };
        let found = find_ref(&[Arc::clone(&table)], record.name, |found| {
            format!("{found:?}")
        })?;
        assert_eq!(
            found,
            Some(format!("{record:?}")),
            "what is listed is found"
        );
    }
    let (mut ours, mut theirs) = (LogCursor::new(again), LogCursor::new(table));
    loop {
        let (ours, theirs) = (ours.next()?, theirs.next()?);
        assert_eq!(format!("{ours:?}"), format!("{theirs:?}"), "written again");
        if theirs.is_none() {
            return Ok(());
        }
    }
}

/// Puts a header before a block and a footer behind it.
fn around(block: &[u8], is_log: bool) -> Vec<u8> {
    let mut table = b"REFT\x01\x00\x10\x00".to_vec();
    table.extend(1_u64.to_be_bytes());
    table.extend(100_u64.to_be_bytes());
    let mut footer = table.clone();
    table.extend(block);
    let log_at = if is_log { 24_u64 } else { 0 };
    for offset in [0, 0, 0, log_at, 0] {
        footer.extend(offset.to_be_bytes());
    }
    let crc = crc32fast::hash(&footer);
    footer.extend(crc.to_be_bytes());
    table.extend(footer);
    table
}

/// The bytes behind the header of a block of refs, from its type on.
pub(crate) fn block(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    let whole = u32::try_from(bytes.len() + 24).unwrap_or(u32::MAX);
    if let Some(head) = bytes.get_mut(..4) {
        // Mostly a block of refs with its true length; anything in one of 16 cases.
        if head[3] & 15 != 9 {
            head.copy_from_slice(&whole.to_be_bytes());
            head[0] = b'r';
        }
    }
    let _ = exercise(around(&bytes, false));
}

/// The inflated content of a block of log records.
pub(crate) fn log_block(bytes: &[u8]) {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("memory");
    let deflated = encoder.finish().expect("memory");
    // Told as long as it is, or, in one of 8 cases, otherwise: short, long, very long.
    let len = bytes.len() + 4;
    let len = match bytes.first().map(|byte| byte & 31) {
        Some(7) => len / 2,
        Some(15) => len + 10,
        Some(23) => 0x00ff_ffff,
        _ => len,
    };
    let mut block = u32::try_from(len).unwrap_or(0).to_be_bytes().to_vec();
    block[0] = b'g';
    block.extend(deflated);
    let _ = exercise(around(&block, true));
}
