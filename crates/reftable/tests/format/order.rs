//! Records out of order are told: a search would silently miss them.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use reftable::{ObjectFormat, RefCursor, RefRecord, RefValue, Table, WriteOptions, Writer};

fn table(names: &[&str]) -> Vec<u8> {
    let mut options = WriteOptions::new(ObjectFormat::Sha1);
    options.block_size = 256;
    let mut writer = Writer::new(Vec::new(), options).unwrap();
    for name in names {
        let value = RefValue::Direct(&[7; 20]);
        writer
            .add_ref(RefRecord {
                name: name.as_bytes(),
                update_index: 1,
                value,
            })
            .unwrap();
    }
    writer.finish().unwrap().sink
}

fn scan(bytes: Vec<u8>) -> Result<usize, String> {
    let table = Table::open(bytes).unwrap().labelled("some.ref");
    let mut refs = RefCursor::new(Arc::new(table));
    let mut count = 0;
    while refs.advance().map_err(|error| error.to_string())? {
        count += 1;
    }
    Ok(count)
}

fn replace(bytes: &mut [u8], from: &[u8], to: &[u8]) {
    let at = bytes
        .windows(from.len())
        .position(|part| part == from)
        .expect("it is there");
    bytes[at..at + from.len()].copy_from_slice(to);
}

#[test]
fn within_a_block() {
    let mut bytes = table(&["refs/heads/a", "refs/heads/b", "refs/heads/d"]);
    assert_eq!(scan(bytes.clone()), Ok(3));
    // The first name is stored whole, the others share its beginning.
    replace(&mut bytes, b"refs/heads/a", b"refs/heads/c");
    let error = scan(bytes).unwrap_err();
    assert!(
        error.contains("out of order") && error.contains("some.ref"),
        "{error}"
    );
}

#[test]
fn from_one_block_to_the_next() {
    let names: Vec<String> = (10..60)
        .map(|at| format!("refs/heads/topic-{at}"))
        .collect();
    let mut bytes = table(&names.iter().map(String::as_str).collect::<Vec<_>>());
    // The second block starts with a name in full; a lower one there breaks no order within it.
    let full = b"refs/heads/topic-";
    let starts: Vec<usize> = bytes
        .windows(full.len())
        .enumerate()
        .filter(|(_, w)| w == full)
        .map(|(at, _)| at)
        .collect();
    let second = starts
        .iter()
        .copied()
        .find(|at| *at > 256)
        .expect("there is a second block");
    bytes[second + full.len()..second + full.len() + 2].copy_from_slice(b"00");
    let error = scan(bytes).unwrap_err();
    assert!(error.contains("out of order"), "{error}");
}
