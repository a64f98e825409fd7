//! Whatever is on the disk, reading it ends, and ends with refs or with an error.

use proptest::prelude::*;
use refdb_names::{ObjectFormat, ObjectId};

use super::*;
use crate::system::Bytes;
use packed::Snapshot;
use packed_cursor::PackedCursor;

/// A packed-refs file, and a place and bytes to damage it with.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let header = prop_oneof![
        Just(""),
        Just("# pack-refs with: peeled fully-peeled sorted \n"),
        Just("# pack-refs with: peeled \n"),
    ];
    let record = ("[a-c]{40}", "refs/(heads|tags)/[a-c/.]{1,6}", any::<bool>()).prop_map(
        |(oid, name, peeled)| match peeled {
            true => format!("{oid} {name}\n^{oid}\n"),
            false => format!("{oid} {name}\n"),
        },
    );
    let records = prop::collection::vec(record, 0..12);
    let bytes = prop::collection::vec(
        prop_oneof![
            Just(b'\n'),
            Just(b'^'),
            Just(b' '),
            Just(0),
            Just(b'#'),
            any::<u8>()
        ],
        0..4,
    );
    (
        header,
        records,
        any::<prop::sample::Index>(),
        0..60_usize,
        bytes,
    )
        .prop_map(|(header, records, at, len, bytes)| {
            let mut content = (header.to_owned() + &records.concat()).into_bytes();
            let at = at.index(content.len() + 1);
            let end = (at + len).min(content.len());
            content.splice(at..end, bytes);
            content
        })
}

fn walk(content: &[u8]) -> Result<usize> {
    let bytes = Bytes::copy_from_slice(content);
    let format = ObjectFormat::Sha1;
    let snapshot = Arc::new(Snapshot::new("packed-refs".into(), format, bytes)?);
    let null = ObjectId::null(format);
    let mut cursor = PackedCursor::new(Arc::clone(&snapshot), null, false);
    let mut names = Vec::new();
    while cursor.advance()? {
        names.push(cursor.record().name.to_owned());
    }
    for name in &names {
        cursor.seek(name.as_bytes(), b"refs/")?;
        cursor.advance()?;
        snapshot.find_ref(name.as_bytes())?;
    }
    Ok(names.len())
}

proptest! {
    #[test]
    fn damaged_packed_refs_are_read_to_an_end(content in damaged()) {
        if let Ok(count) = walk(&content) {
            prop_assert!(count <= content.len() / 42);
        }
    }

    #[test]
    fn any_bytes_are_a_loose_ref_or_none(content in prop::collection::vec(any::<u8>(), 0..100)) {
        for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
            let found = loose::parse(&content, format);
            prop_assert!(found.is_none() || content.starts_with(b"ref:") || content.len() >= 40);
        }
    }
}
