//! The session as the other side sees it: numbers and buffers. Damaged tables and senseless calls end in an
//! answer or an error.
#![allow(clippy::unwrap_used)]

use refdb_wasm::session::{FAILED, Session};
use reftable::{
    LogRecord, LogUpdate, LogValue, ObjectFormat, RefRecord, RefValue, WriteOptions, Writer,
};

const OLD: [u8; 20] = [0x1a; 20];
const NEW: [u8; 20] = [0x2b; 20];

/// What is in a ref: its kind, its name, its value.
type Shown = (u32, String, String);

fn table(update_index: u64, refs: &[(&str, RefValue<'_>)], logs: &[(&str, &str)]) -> Vec<u8> {
    let mut options = WriteOptions::new(ObjectFormat::Sha1);
    options.block_size = 256;
    (options.min_update_index, options.max_update_index) = (update_index, update_index);
    let mut writer = Writer::new(Vec::new(), options).unwrap();
    for (name, value) in refs {
        let record = RefRecord {
            name: name.as_bytes(),
            update_index,
            value: *value,
        };
        writer.add_ref(record).unwrap();
    }
    for (name, message) in logs {
        let update = LogUpdate {
            old: &OLD,
            new: &NEW,
            name: b"Ann",
            email: b"ann@example.org",
            time: 1_700_000_000,
            tz: -530,
            message: message.as_bytes(),
        };
        let record = LogRecord {
            name: name.as_bytes(),
            update_index,
            value: LogValue::Update(update),
        };
        writer.add_log(record).unwrap();
    }
    writer.finish().unwrap().sink
}

fn give(session: &mut Session, bytes: &[u8]) {
    session.input(bytes.len()).copy_from_slice(bytes);
}

fn open(session: &mut Session, data: &[u8], label: &str) -> u32 {
    give(session, &[data, label.as_bytes()].concat());
    session.open_table(data.len())
}

fn stack(session: &mut Session, tables: &[Vec<u8>]) -> u32 {
    let mut numbers = Vec::new();
    for (at, data) in tables.iter().enumerate() {
        let number = open(session, data, &format!("table {at}"));
        assert_ne!(number, 0, "{:?}", error(session));
        numbers.extend_from_slice(&number.to_le_bytes());
    }
    give(session, &numbers);
    session.stack()
}

fn number(bytes: &[u8], field: usize) -> u32 {
    let at = 4 * field;
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn len(bytes: &[u8], field: usize) -> usize {
    number(bytes, field).try_into().unwrap()
}

/// Takes an answer of `count` refs apart.
fn shown(session: &Session, count: i32) -> Vec<Shown> {
    let count = usize::try_from(count).unwrap();
    let output = session.output();
    let (fields, mut text) = output.split_at(20 * count);
    let mut shown = Vec::new();
    for record in fields.chunks_exact(20) {
        let (name, rest) = text.split_at(len(record, 1));
        let (value, rest) = rest.split_at(len(record, 2));
        text = rest;
        let string = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        shown.push((number(record, 0), string(name), string(value)));
    }
    assert!(text.is_empty());
    shown
}

fn list(session: &mut Session, stack: u32, prefix: &str, after: &str, deleted: bool) -> Vec<Shown> {
    give(session, format!("{prefix}{after}").as_bytes());
    let cursor = session.refs(stack, prefix.len(), deleted);
    let mut all = Vec::new();
    loop {
        let count = session.next(cursor, 2);
        assert_ne!(count, FAILED, "{:?}", error(session));
        if count == 0 {
            break;
        }
        all.extend(shown(session, count));
    }
    assert_eq!(session.next(cursor, 2), 0, "a cursor stays at its end");
    session.close(cursor);
    all
}

/// Where in a file the last error is, of which table, and what it is.
fn error(session: &Session) -> (u64, String, String) {
    let error = session.error();
    let offset = u64::from_le_bytes(error[..8].try_into().unwrap());
    let (label, text) = error[12..].split_at(len(error, 2));
    let string = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (offset, string(label), string(text))
}

fn two_tables() -> [Vec<u8>; 2] {
    let symref = RefValue::Symref(b"refs/heads/main");
    let peeled = RefValue::Peeled {
        oid: &NEW,
        peeled: &OLD,
    };
    let direct = RefValue::Direct(&OLD);
    let older = table(
        1,
        &[
            ("HEAD", symref),
            ("refs/heads/a", direct),
            ("refs/heads/ab", direct),
            ("refs/heads/b", direct),
            ("refs/tags/v1", peeled),
        ],
        &[("HEAD", "first\n"), ("HEADS", "other\n")],
    );
    let newer = table(
        2,
        &[
            ("refs/heads/ab", RefValue::Deletion),
            ("refs/heads/b", RefValue::Direct(&NEW)),
        ],
        &[("HEAD", "second\n")],
    );
    [older, newer]
}

fn names(refs: &[Shown]) -> Vec<&str> {
    refs.iter().map(|(_, name, _)| name.as_str()).collect()
}

#[test]
fn refs_of_a_stack_are_found_and_listed() {
    let mut session = Session::default();
    let stack = stack(&mut session, &two_tables());

    give(&mut session, b"HEAD");
    assert_eq!(session.find(stack), 1);
    let head = (3, "HEAD".to_owned(), "refs/heads/main".to_owned());
    assert_eq!(shown(&session, 1), [head]);
    give(&mut session, b"refs/heads/ab");
    assert_eq!(session.find(stack), 1);
    assert_eq!(shown(&session, 1)[0].0, 0, "it is deleted");
    give(&mut session, b"refs/heads/");
    assert_eq!(session.find(stack), 0);

    let all = list(&mut session, stack, "", "", false);
    assert_eq!(
        names(&all),
        ["HEAD", "refs/heads/a", "refs/heads/b", "refs/tags/v1"]
    );
    assert_eq!(all[2].2, "2b".repeat(20));
    assert_eq!(all[3].2, "2b".repeat(20) + &"1a".repeat(20));
    assert_eq!(list(&mut session, stack, "", "", true).len(), 5);
    assert_eq!(list(&mut session, stack, "refs/heads/", "", false).len(), 2);
    assert_eq!(list(&mut session, stack, "refs/z", "", false), []);
}

#[test]
fn a_listing_goes_on_behind_a_name() {
    let mut session = Session::default();
    let stack = stack(&mut session, &two_tables());
    let mut after = |after: &str| {
        let found = list(&mut session, stack, "refs/heads/", after, true);
        names(&found).join(" ")
    };
    assert_eq!(after("refs/heads/a"), "refs/heads/ab refs/heads/b");
    assert_eq!(after("refs/heads/aa"), "refs/heads/ab refs/heads/b");
    assert_eq!(after("refs/heads/b"), "");
    assert_eq!(
        after("refs/heads/"),
        "refs/heads/a refs/heads/ab refs/heads/b"
    );
    assert_eq!(after("HEAD"), "refs/heads/a refs/heads/ab refs/heads/b");
    assert_eq!(
        after("refs/tags/v1"),
        "",
        "no name with the prefix is behind it"
    );
}

#[test]
fn reflogs_go_from_new_to_old_and_end_with_their_name() {
    let mut session = Session::default();
    let stack = stack(&mut session, &two_tables());
    give(&mut session, b"HEAD");
    let cursor = session.logs(stack, 4, false, false, 0);
    assert_eq!(session.next(cursor, 9), 2);
    let output = session.output();
    assert_eq!(&output[4..8], 4_u32.to_le_bytes());
    assert_eq!(i32::from_le_bytes(output[40..44].try_into().unwrap()), -530);
    let text = std::str::from_utf8(&output[88..]).unwrap();
    let entry = |message| {
        format!(
            "HEAD{}{}Annann@example.org{message}\n",
            "1a".repeat(20),
            "2b".repeat(20)
        )
    };
    assert_eq!(text, entry("second") + &entry("first"));
    assert_eq!(session.next(cursor, 9), 0);

    give(&mut session, b"HEAD");
    let cursor = session.logs(stack, 4, true, false, 0);
    assert_eq!(session.next(cursor, 9), 3, "those of HEADS too");

    for (index, is_prefix, left) in [
        (2, true, 2),
        (1, true, 1),
        (2, false, 1),
        (1, false, 0),
        (3, false, 2),
    ] {
        give(&mut session, b"HEADHEAD");
        let cursor = session.logs(stack, 4, is_prefix, false, index);
        assert_eq!(session.next(cursor, 9), left, "behind {index}");
    }
}

#[test]
fn a_table_is_described() {
    let mut session = Session::default();
    let data = table(
        7,
        &[("refs/heads/a", RefValue::Direct(&OLD))],
        &[("HEAD", "x\n")],
    );
    let number = open(&mut session, &data, "");
    assert_eq!(session.describe(number), 1);
    let fields: Vec<u64> = session
        .output()
        .chunks_exact(8)
        .map(|field| u64::from_le_bytes(field.try_into().unwrap()))
        .collect();
    assert_eq!(fields[..5], [1, 20, 256, 7, 7]);
    assert_eq!(fields[5], data.len() as u64);
    assert_eq!(fields[6], data.len() as u64 - 68);
    assert_eq!(session.blocks(number), 2);
    assert!(session.error().is_empty());
    assert_eq!(session.output()[0], b'r');
    assert_eq!(session.output()[48], b'g');
}

#[test]
fn records_are_passed_over() {
    let mut session = Session::default();
    let stack = stack(&mut session, &two_tables());
    let cursor = session.refs(stack, 0, true);
    assert_eq!(session.skip(cursor, 3), 3);
    assert_eq!(names(&shown(&session, 1)), ["refs/heads/ab"]);
    assert_eq!(session.skip(cursor, 9), 2);
    assert!(session.output().is_empty());
}

#[test]
fn what_cannot_be_is_an_error() {
    let mut session = Session::default();
    assert_eq!(
        open(&mut session, b"REFT\x07 and more bytes of nothing", "a.ref"),
        0
    );
    let wanted = (5, "a.ref".to_owned(), "unknown format version".to_owned());
    assert_eq!(error(&session), wanted);

    let stack = stack(&mut session, &two_tables());
    for number in [0, 1, 2, stack + 1, u32::MAX] {
        give(&mut session, b"HEAD");
        assert_eq!(session.find(number), FAILED);
        assert_eq!(session.refs(number, 0, false), 0);
        assert_eq!(session.logs(number, 4, false, false, 0), 0);
        assert_eq!(session.next(number, 1), FAILED);
        assert_eq!(session.skip(number, 1), FAILED);
    }
    for number in [0, stack, u32::MAX] {
        assert_eq!(session.describe(number), FAILED);
        assert_eq!(session.blocks(number), FAILED);
        session.close(number);
    }
    give(&mut session, b"HEAD");
    assert_eq!(session.find(stack), FAILED, "it was closed");
    assert_eq!(error(&session).2, "there is no such stack");

    let mut options = WriteOptions::new(ObjectFormat::Sha256);
    options.max_update_index = 1;
    let other = Writer::new(Vec::new(), options)
        .unwrap()
        .finish()
        .unwrap()
        .sink;
    let numbers = [
        open(&mut session, &two_tables()[0], ""),
        open(&mut session, &other, ""),
    ];
    give(&mut session, &numbers.map(u32::to_le_bytes).concat());
    assert_eq!(session.stack(), 0);
    assert_eq!(
        error(&session).2,
        "the tables have different hash functions"
    );
}

/// Asks everything of a table, however damaged it is. Returns how many records were seen.
fn ask_everything(data: &[u8]) -> usize {
    let mut session = Session::default();
    let number = open(&mut session, data, "damaged");
    if number == 0 {
        assert!(!session.error().is_empty());
        return 0;
    }
    session.describe(number);
    session.blocks(number);
    give(&mut session, &number.to_le_bytes());
    let stack = session.stack();
    for name in [&b"HEAD"[..], b"refs/heads/main", b"zz"] {
        give(&mut session, name);
        session.find(stack);
    }
    give(&mut session, b"");
    let cursors = [
        session.refs(stack, 0, true),
        session.logs(stack, 0, true, true, 0),
    ];
    let mut seen = 0;
    for cursor in cursors.into_iter().filter(|cursor| *cursor != 0) {
        while let Ok(count) = usize::try_from(session.next(cursor, 16)) {
            if count == 0 {
                break;
            }
            seen += count;
            assert!(seen <= data.len(), "more records than bytes");
        }
    }
    seen
}

#[test]
fn no_damage_makes_it_panic_or_go_on_without_end() {
    let names: Vec<String> = (0..40)
        .map(|at| format!("refs/heads/branch-{at:02}"))
        .collect();
    let refs: Vec<_> = names
        .iter()
        .map(|name| (name.as_str(), RefValue::Direct(&OLD)))
        .collect();
    let logs: Vec<_> = names.iter().map(|name| (name.as_str(), "made\n")).collect();
    let whole = table(1, &refs, &logs);
    assert_eq!(ask_everything(&whole), 80);
    let mut answered = 0;
    for at in 0..whole.len() {
        for change in [0x01, 0x80, 0xff] {
            let mut damaged = whole.clone();
            damaged[at] ^= change;
            answered += usize::from(ask_everything(&damaged) > 0);
        }
        ask_everything(&whole[..at]);
    }
    assert!(
        answered > whole.len(),
        "most of a damaged table can be read"
    );
}
