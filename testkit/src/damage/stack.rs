//! Damage to a stack: its list, its folder, and what its refs say.

use std::fs;
use std::path::PathBuf;

use reftable::RefValue;

use super::corpus::{Expected, Kind, Subject};
use super::tables::Victim;
use crate::forge;
use crate::format::ObjectFormat;

fn kind(name: &str, apply: impl Fn(&Subject) -> Expected + 'static) -> Kind {
    Kind {
        name: name.to_owned(),
        apply: Box::new(move |subject, _| apply(subject)),
    }
}

fn list_path(subject: &Subject) -> PathBuf {
    subject.path("reftable/tables.list")
}

fn lines(subject: &Subject) -> Vec<String> {
    let list = String::from_utf8(subject.original(&list_path(subject))).expect("text");
    list.lines().map(str::to_owned).collect()
}

/// Writes the list anew; returns its path.
fn write_list(subject: &Subject, lines: &[String]) -> PathBuf {
    let path = list_path(subject);
    subject.write(&path, lines.join("\n") + "\n");
    path
}

/// Returns the kinds of damage to a stack.
pub(super) fn kinds() -> Vec<Kind> {
    let mut kinds = lists();
    kinds.extend(folders());
    kinds.extend(values());
    kinds
}

fn lists() -> Vec<Kind> {
    vec![
        kind("list: missing", |subject| {
            let path = list_path(subject);
            fs::remove_file(&path).expect("it is there");
            Expected::file(path)
        }),
        kind("list: no bytes", |subject| {
            subject.write(&list_path(subject), "");
            Expected::at(list_path(subject), 0..1)
        }),
        kind("list: nothing but zeros", |subject| {
            let len = subject.original(&list_path(subject)).len();
            subject.write(&list_path(subject), vec![0; len]);
            Expected::at(list_path(subject), 0..1)
        }),
        kind("list: cut in its last line", |subject| {
            let whole = subject.original(&list_path(subject));
            let cut = &whole[..whole.len() - 7];
            subject.write(&list_path(subject), cut);
            Expected::at(list_path(subject), cut.len() - 40..cut.len())
        }),
        kind("list: a line that is no name", |subject| {
            let mut lines = lines(subject);
            lines.insert(1, "../x.ref".to_owned());
            let at = lines[0].len() + 1;
            Expected::at(write_list(subject, &lines), at..at + 1)
        }),
        kind("list: a file that is no table", |subject| {
            let mut lines = lines(subject);
            lines.insert(1, "tables.list".to_owned());
            let at = lines[0].len() + 1;
            Expected::at(write_list(subject, &lines), at..at + 1)
        }),
        kind("list: a table twice", |subject| {
            let mut lines = lines(subject);
            lines.insert(1, lines[0].clone());
            let at = lines[0].len() + 1;
            Expected::at(write_list(subject, &lines), at..at + 1)
        }),
        kind("list: two tables in the wrong order", |subject| {
            let mut lines = lines(subject);
            lines.swap(0, 1);
            let at = lines[0].len() + 1;
            Expected::at(write_list(subject, &lines), at..at + 1)
        }),
        kind("list: a table is left out", |subject| {
            let mut lines = lines(subject);
            let lost = lines.remove(1);
            write_list(subject, &lines);
            Expected::file(subject.path("reftable").join(lost))
        }),
    ]
}

fn folders() -> Vec<Kind> {
    vec![
        kind("table: missing", |subject| {
            let path = Victim::oldest(subject).path;
            fs::remove_file(&path).expect("it is there");
            Expected::file(path)
        }),
        kind("table: another's name", |subject| {
            let mut lines = lines(subject);
            let old = subject.path("reftable").join(&lines[0]);
            lines[0] = "0x000000000001-0x000000000077-12345678.ref".to_owned();
            let path = subject.path("reftable").join(&lines[0]);
            fs::rename(old, &path).expect("it is there");
            write_list(subject, &lines);
            Expected::at(path, 8..9)
        }),
        kind("table: of another object format", |subject| {
            let hash = match subject.format().objects {
                ObjectFormat::Sha1 => ObjectFormat::Sha256,
                ObjectFormat::Sha256 => ObjectFormat::Sha1,
            };
            let id = vec![7; hash.raw_len()];
            let record = [(&b"refs/heads/x"[..], RefValue::Direct(&id))];
            Expected::at(on_top(subject, hash, &record, &[]), 4..5)
        }),
        kind("folder: a lock", |subject| {
            let path = subject.path("reftable/tables.list.lock");
            subject.write(&path, "");
            Expected::file(path).warning()
        }),
        kind("folder: an unfinished table", |subject| {
            let name = "reftable/0x000000000001-0x000000000002-12345678.ref.temp.1a2b3c4d";
            let path = subject.path(name);
            subject.write(&path, "REFT");
            Expected::file(path).warning()
        }),
        kind("folder: an unfinished table of Git", |subject| {
            let name = "reftable/0x000000000001-0x000000000002-12345678.temp.oj1GyR";
            let path = subject.path(name);
            subject.write(&path, "REFT");
            Expected::file(path).warning()
        }),
        kind("folder: a table of a dead writer", |subject| {
            let path = subject.path("reftable/0x000000000100-0x000000000100-12345678.ref");
            let original = Victim::oldest(subject).bytes;
            subject.write(&path, original);
            Expected::file(path).warning()
        }),
        kind("folder: something else", |subject| {
            let path = subject.path("reftable/notes.txt");
            subject.write(&path, "x");
            Expected::file(path).warning()
        }),
    ]
}

fn values() -> Vec<Kind> {
    fn value(
        name: &str,
        make: impl Fn(&Subject) -> (&'static str, Vec<u8>, Option<Vec<u8>>) + 'static,
    ) -> Kind {
        kind(name, move |subject| {
            let (name, id, peeled) = make(subject);
            let value = match &peeled {
                Some(peeled) => RefValue::Peeled { oid: &id, peeled },
                None if id.len() != id_len(subject) => RefValue::Symref(&id),
                None => RefValue::Direct(&id),
            };
            let objects = subject.format().objects;
            let path = on_top(subject, objects, &[(name.as_bytes(), value)], &[]);
            Expected::at(path, 0..1)
        })
    }
    fn log(name: &str, of: &'static str) -> Kind {
        kind(name, move |subject| {
            let objects = subject.format().objects;
            Expected::file(on_top(subject, objects, &[], &[of.as_bytes()]))
        })
    }
    fn commit(subject: &Subject) -> Vec<u8> {
        unhex(&subject.repo().objects().commits[3])
    }
    vec![
        value("ref: object missing", |subject| {
            ("refs/heads/bad", vec![0xab; id_len(subject)], None)
        }),
        value("ref: null id", |subject| {
            ("refs/heads/bad", vec![0; id_len(subject)], None)
        }),
        value("ref: a tag where a commit belongs", |subject| {
            let tag = &subject.repo().objects().tags[0].id;
            ("refs/heads/bad", unhex(tag), None)
        }),
        value("ref: wrong peeled value", |subject| {
            let tag = &subject.repo().objects().tags[0].id;
            let peeled = unhex(&subject.repo().objects().commits[299]);
            ("refs/tags/bad", unhex(tag), Some(peeled))
        }),
        value("ref: bad name", |subject| {
            ("refs/heads/a..b", commit(subject), None)
        }),
        value("ref: name in the way of another", |subject| {
            ("refs/heads/main/x", commit(subject), None)
        }),
        value("symref: circle", |_| {
            ("refs/heads/ring", b"refs/heads/ring".to_vec(), None)
        }),
        value("symref: points to no name", |_| {
            ("refs/heads/odd", b"refs/heads/a..b".to_vec(), None)
        }),
        value("symref: leads out of the repository", |_| {
            ("refs/heads/odd", b"../../../out".to_vec(), None)
        }),
        value("ref: name that leads out of the repository", |subject| {
            ("refs/../../../out", commit(subject), None)
        }),
        log("reflog: bad name", "refs/heads/a..b"),
        log(
            "reflog: name that leads out of the repository",
            "refs/../../../out",
        ),
    ]
}

fn id_len(subject: &Subject) -> usize {
    subject.format().objects.raw_len()
}

/// Puts a table with these refs and reflogs on top of the stack; returns its path.
fn on_top(
    subject: &Subject,
    hash: ObjectFormat,
    refs: &[(&[u8], RefValue<'_>)],
    logs: &[&[u8]],
) -> PathBuf {
    let bytes = forge::table(hash, refs, logs);
    let name = "0x000000000063-0x000000000063-12345678.ref";
    let path = subject.path("reftable").join(name);
    subject.write(&path, bytes);
    let mut lines = lines(subject);
    lines.push(name.to_owned());
    write_list(subject, &lines);
    path
}

fn unhex(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().filter_map(|c| c.to_digit(16)).collect();
    let byte = |pair: &[u32]| u8::try_from(pair[0] * 16 + pair[1]).expect("two digits");
    digits.chunks(2).map(byte).collect()
}
