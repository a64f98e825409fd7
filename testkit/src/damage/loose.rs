//! Damage to a store of the `files` format: loose refs, packed-refs, reflogs, leftovers.

use std::fs;

use bstr::ByteSlice;

use super::corpus::{Expected, Kind, Subject};
use crate::rng::Rng;

fn kind(name: &str, apply: impl Fn(&Subject, &mut Rng) -> Expected + 'static) -> Kind {
    Kind {
        name: name.to_owned(),
        apply: Box::new(apply),
    }
}

/// Returns the kinds of damage to loose refs, packed-refs and reflogs.
pub(super) fn kinds() -> Vec<Kind> {
    let mut kinds = loose();
    kinds.extend(packed());
    kinds.extend(logs());
    kinds.extend(leftovers());
    kinds
}

/// Returns the kinds of damage to the file `HEAD`, by which Git knows a repository in either format.
pub(super) fn heads() -> Vec<Kind> {
    fn content(name: &str, text: &'static str) -> Kind {
        kind(name, move |subject, _| {
            let path = subject.path("HEAD");
            subject.write(&path, text);
            Expected::at(path, 0..1)
        })
    }
    vec![
        content("HEAD: no bytes", ""),
        content("HEAD: nothing but zeros", "\0\0\0\0\0\0\0\0\0\0\0\0"),
        content("HEAD: leads out of refs/", "ref: nowhere\n"),
        kind("HEAD: missing", |subject, _| {
            let path = subject.path("HEAD");
            fs::remove_file(&path).expect("it is there");
            Expected::file(path)
        }),
    ]
}

const REF: &str = "refs/heads/late-7";

#[expect(clippy::too_many_lines, reason = "a list of kinds")]
fn loose() -> Vec<Kind> {
    fn content(
        name: &str,
        path: &'static str,
        make: impl Fn(&Subject) -> String + 'static,
    ) -> Kind {
        kind(name, move |subject, _| {
            let path = subject.path(path);
            let text = make(subject);
            subject.write(&path, text);
            Expected::at(path, 0..1)
        })
    }
    fn commit(subject: &Subject) -> String {
        subject.repo().objects().commits[3].clone()
    }
    let odd = "refs/heads/odd";
    let mut kinds = vec![
        content("loose ref: no bytes", REF, |_| String::new()),
        content("loose ref: nothing but zeros", REF, |_| "\0".repeat(41)),
        content("loose ref: cut", REF, |subject| {
            commit(subject)[..20].to_owned()
        }),
        content("loose ref: garbage", REF, |_| "gar bage\n".to_owned()),
        content("loose ref: object missing", REF, |subject| {
            "ab".repeat(commit(subject).len() / 2) + "\n"
        }),
        content("loose ref: null id", REF, |subject| {
            subject.format().zero() + "\n"
        }),
        content("loose ref: a tag where a commit belongs", REF, |subject| {
            format!("{}\n", subject.repo().objects().tags[0].id)
        }),
        content("symref: circle", odd, |_| {
            "ref: refs/heads/odd\n".to_owned()
        }),
        content("symref: points to no name", odd, |_| {
            "ref: refs/heads/a..b\n".to_owned()
        }),
        content("symref: leads out of the repository", odd, |_| {
            "ref: ../../../out\n".to_owned()
        }),
    ];
    kinds.push(kind("loose ref: a packed one in its way", |subject, _| {
        let packed = subject.path("packed-refs");
        let line = format!("{} refs/heads/main/x\n", commit(subject));
        let at = insert(subject, &line);
        Expected::at(packed, at..at + 1)
    }));
    kinds.push(kind("loose ref: goes on behind its value", |subject, _| {
        let path = subject.path(REF);
        let id = subject
            .original(&path)
            .trim_ascii_end()
            .to_str_lossy()
            .into_owned();
        subject.write(&path, format!("{id} and more\n"));
        Expected::at(path, id.len()..id.len() + 1).warning()
    }));
    kinds.push(kind("loose ref: no line end", |subject, _| {
        let path = subject.path(REF);
        let id = subject
            .original(&path)
            .trim_ascii_end()
            .to_str_lossy()
            .into_owned();
        subject.write(&path, &id);
        Expected::at(path, id.len()..id.len() + 1).warning()
    }));
    kinds.push(kind("loose ref: bad name", |subject, _| {
        let path = subject.path("refs/heads/a..b");
        subject.write(&path, format!("{}\n", commit(subject)));
        Expected::file(path)
    }));
    kinds.push(kind(
        "loose ref: a link that leads nowhere",
        |subject, _| {
            let path = subject.path(REF);
            fs::remove_file(&path).expect("it is there");
            std::os::unix::fs::symlink("/nowhere/at/all", &path).expect("a link");
            Expected::file(path)
        },
    ));
    kinds
}

/// Puts a line into packed-refs where it belongs; returns its offset.
fn insert(subject: &Subject, line: &str) -> usize {
    let path = subject.path("packed-refs");
    let text = String::from_utf8(subject.original(&path)).expect("text");
    let name = |line: &str| line.split(' ').nth(1).map(str::to_owned);
    let mut at = 0;
    for old in text.split_inclusive('\n') {
        let is_ref = !old.starts_with('#') && !old.starts_with('^');
        if is_ref && name(old) > name(line) {
            break;
        }
        at += old.len();
    }
    let (before, after) = text.split_at(at);
    subject.write(&path, [before, line, after].concat());
    at
}

#[expect(clippy::too_many_lines, reason = "a list of kinds")]
fn packed() -> Vec<Kind> {
    fn change(name: &str, make: impl Fn(&mut Vec<u8>, &mut Rng) -> usize + 'static) -> Kind {
        kind(name, move |subject, rng| {
            let path = subject.path("packed-refs");
            let mut bytes = subject.original(&path);
            let at = make(&mut bytes, rng);
            subject.write(&path, bytes);
            Expected::at(path, at..at + 1)
        })
    }
    /// Returns where a line in the middle starts that holds a ref.
    fn middle(bytes: &[u8]) -> usize {
        let half = bytes.len() / 2;
        half + bytes[half..].find_byte(b'\n').expect("more lines") + 1
    }
    let peeled = |bytes: &[u8]| bytes.find(b"\n^").expect("tags are packed") + 1;
    vec![
        change("packed-refs: no bytes", |bytes, _| {
            bytes.clear();
            0
        }),
        change("packed-refs: nothing but zeros", |bytes, _| {
            bytes.fill(0);
            0
        }),
        change("packed-refs: header", |bytes, _| {
            bytes[2] = b'x';
            0
        }),
        change("packed-refs: a line cut short", |bytes, _| {
            let at = middle(bytes);
            bytes.drain(at + 10..at + 50);
            at
        }),
        change("packed-refs: a bad id", |bytes, rng| {
            let at = middle(bytes);
            bytes[at + rng.below(40)] = b'z';
            at
        }),
        change("packed-refs: zeros inside", |bytes, _| {
            let at = middle(bytes);
            let len = bytes[at..].find_byte(b'\n').expect("more lines");
            bytes[at..at + len].fill(0);
            at
        }),
        change("packed-refs: cut", |bytes, _| {
            let at = middle(bytes);
            bytes.truncate(at + 30);
            at
        }),
        change("packed-refs: two lines in the wrong order", |bytes, _| {
            let at = middle(bytes);
            let line = |from: usize| bytes[from..].find_byte(b'\n').expect("more lines") + 1;
            let first = line(at);
            let second = line(at + first);
            bytes[at..at + first + second].rotate_left(first);
            at + second
        }),
        change("packed-refs: a line twice", |bytes, _| {
            let at = middle(bytes);
            let len = bytes[at..].find_byte(b'\n').expect("more lines") + 1;
            let line = bytes[at..at + len].to_vec();
            bytes.splice(at..at, line);
            at + len
        }),
        change("packed-refs: a bad name", |bytes, _| {
            let at = middle(bytes);
            let len = bytes[at..].find_byte(b'\n').expect("more lines");
            bytes[at + len - 1] = b'~';
            at
        }),
        kind(
            "packed-refs: a name that leads out of the repository",
            |subject, _| {
                let commit = &subject.repo().objects().commits[0];
                let at = insert(subject, &format!("{commit} refs/../../../out\n"));
                Expected::at(subject.path("packed-refs"), at..at + 1)
            },
        ),
        change(
            "packed-refs: a line twice, with another value",
            |bytes, _| {
                let at = middle(bytes);
                let len = bytes[at..].find_byte(b'\n').expect("more lines") + 1;
                let mut line = bytes[at..at + len].to_vec();
                let before = bytes[..at - 1].rfind_byte(b'\n').expect("more lines") + 1;
                let id = bytes[before..].find_byte(b' ').expect("a record");
                line[..id].copy_from_slice(&bytes[before..before + id]);
                bytes.splice(at + len..at + len, line);
                at + len
            },
        ),
        change("packed-refs: a bad peeled value", move |bytes, _| {
            let at = peeled(bytes);
            bytes[at + 5] = b'z';
            at
        }),
        change("packed-refs: a peeled value without its ref", |bytes, _| {
            let at = middle(bytes);
            let first = peeled_line(bytes);
            bytes.splice(at..at, first);
            let len = bytes[at..].find_byte(b'\n').expect("more lines") + 1;
            let line = bytes[at..at + len].to_vec();
            bytes.splice(at..at, line);
            at + len
        }),
        kind("packed-refs: object missing", |subject, _| {
            let hex_len = subject.format().objects.hex_len();
            let line = format!("{} refs/heads/x\n", "ab".repeat(hex_len / 2));
            let at = insert(subject, &line);
            Expected::at(subject.path("packed-refs"), at..at + 1)
        }),
        kind("packed-refs: wrong peeled value", |subject, _| {
            let objects = subject.repo().objects();
            let (tag, other) = (&objects.tags[0].id, &objects.commits[299]);
            let at = insert(subject, &format!("{tag} refs/tags/x\n^{other}\n"));
            Expected::at(subject.path("packed-refs"), at..at + 1)
        }),
        kind("packed-refs: a ref of one worktree", |subject, _| {
            let commit = &subject.repo().objects().commits[0];
            insert(subject, &format!("{commit} refs/bisect/bad\n"));
            Expected::file(subject.path("packed-refs")).warning()
        }),
    ]
}

fn peeled_line(bytes: &[u8]) -> Vec<u8> {
    let at = bytes.find(b"\n^").expect("tags are packed") + 1;
    let len = bytes[at..].find_byte(b'\n').expect("more lines") + 1;
    bytes[at..at + len].to_vec()
}

fn logs() -> Vec<Kind> {
    fn change(name: &str, make: impl Fn(&mut Vec<u8>) -> usize + 'static) -> Kind {
        kind(name, move |subject, _| {
            let path = subject.path("logs/refs/heads/team-0/topic-0");
            let mut bytes = subject.original(&path);
            let at = make(&mut bytes);
            subject.write(&path, bytes);
            Expected::at(path, at..at + 1)
        })
    }
    let second = |bytes: &[u8]| bytes.find_byte(b'\n').expect("two entries") + 1;
    vec![
        change("reflog: cut", move |bytes| {
            bytes.truncate(bytes.len() - 9);
            second(bytes)
        }),
        change("reflog: zeros at the end", |bytes| {
            let end = bytes.len();
            bytes.resize(end + 100, 0);
            end
        }),
        change("reflog: nothing but zeros", |bytes| {
            bytes.fill(0);
            0
        }),
        change("reflog: zeros before an entry", move |bytes| {
            let at = second(bytes);
            bytes.splice(at..at, [0; 50]);
            at
        }),
        change("reflog: a bad id", |bytes| {
            bytes[3] = b'z';
            0
        }),
        change("reflog: no time", |bytes| {
            let at = bytes.find(b"> ").expect("an address");
            bytes[at + 2] = b'x';
            0
        }),
        kind("reflog: bad name", |subject, _| {
            let path = subject.path("logs/refs/heads/a..b");
            let content = subject.original(&subject.path("logs/refs/heads/team-0/topic-0"));
            subject.write(&path, content);
            Expected::file(path).warning()
        }),
    ]
}

fn leftovers() -> Vec<Kind> {
    let names = [
        "refs/heads/main.lock",
        "HEAD.lock",
        "packed-refs.lock",
        "packed-refs.new",
        "logs/refs/heads/main.lock",
    ];
    let leftover = |name: &'static str| {
        kind(&format!("leftover: {name}"), move |subject, _| {
            let path = subject.path(name);
            subject.write(&path, "");
            Expected::file(path).warning()
        })
    };
    names.into_iter().map(leftover).collect()
}
