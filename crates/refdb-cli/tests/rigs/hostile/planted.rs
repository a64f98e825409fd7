//! Planted bugs: programs that do what refdb must not do. Each is noticed, and a harmless one is not.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use refdb_testkit::Format;
use refdb_testkit::hostile::{Kind, kinds};

use super::commands::CALLS;
use super::{Bench, run};

/// What a program does, and how what is wrong with it begins. It is run in the hostile repository, with
/// the user's home as `HOME`.
const PROGRAMS: &[(&str, &str)] = &[
    ("exit 0", ""),
    ("exit 1", ""),
    (
        "echo attacked >> \"$HOME/.bashrc\"",
        "OUTSIDE: content home/.bashrc",
    ),
    ("rm \"$HOME/notes/one\"", "OUTSIDE: removed home/notes/one"),
    ("echo new > \"$HOME/new\"", "OUTSIDE: made home/new"),
    ("chmod 777 \"$HOME\"", "OUTSIDE: mode home"),
    ("touch \"$HOME/.bashrc\"", "OUTSIDE: time home/.bashrc"),
    ("rm -r ../../.git/refs", "OUTSIDE: removed work/.git/refs"),
    (
        "rm .git/refs/heads/topic",
        "inside: removed work/vendor/thing/.git/refs/heads/topic",
    ),
    ("exec sleep 30", run::NO_END),
    ("kill -SEGV $$", "ended by signal 11"),
    ("exit 101", "panics"),
    ("echo \"thread 'main' panicked at\" >&2", "panics"),
    // Whoever asks for more memory than there may be is given none, and aborts.
    (
        "[ \"$(ulimit -v)\" = 1048576 ] && kill -ABRT $$",
        "ended by signal 6",
    ),
];

#[test]
fn each_planted_bug_is_noticed() {
    let kinds = kinds(Format::FILES_SHA1);
    let kind = find(&kinds, "settings: wrong words");
    for &(does, wrong) in PROGRAMS {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("refdb");
        fs::write(&program, format!("#!/bin/sh\n{does}\n")).expect("a file");
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&program, mode).expect("it is ours");
        let mut bench = Bench::new(&program, Format::FILES_SHA1);
        // One that only reads, of one line.
        let calls = CALLS
            .iter()
            .filter(|call| call.lines == ["refs verify --deep"]);
        bench.try_kind(kind, calls);
        let whats: Vec<&str> = bench.faults.iter().map(|fault| &*fault.what).collect();
        match wrong {
            "" => assert_eq!(whats, [""; 0], "{does}"),
            wrong => {
                let is_it = |what: &&str| what.starts_with(wrong);
                assert!(whats.iter().any(is_it), "{does}: {whats:?}");
            }
        }
    }
}

/// What is forged is what refdb would have to believe, but for what it leads to.
#[test]
fn what_is_forged_is_believed() {
    for (format, name, gone) in [
        (
            Format::FILES_SHA1,
            "journal 5: of this repository",
            "refdb.journal",
        ),
        (
            Format::FILES_SHA1,
            "journal 5: of this repository",
            "refs/heads/topic",
        ),
        (
            Format::FILES_SHA256,
            "journal 5: of this repository",
            "refdb.journal",
        ),
        (
            Format::FILES_SHA1,
            "signed migration: of this repository",
            "refdb-migration",
        ),
        (
            Format::REFTABLE_SHA1,
            "signed migration: of this repository",
            "refdb-migration",
        ),
        (
            Format::FILES_SHA1,
            "locks: files of the dead",
            "refs/heads/main.lock",
        ),
        (
            Format::REFTABLE_SHA1,
            "locks: files of the dead",
            "reftable/tables.list.lock",
        ),
    ] {
        let kinds = kinds(format);
        let kind = find(&kinds, name);
        let bench = Bench::new(Path::new(env!("CARGO_BIN_EXE_refdb")), format);
        let scene = bench.stage(kind).expect("it can be made").scene;
        let path = scene.git_dir().join(gone);
        assert!(fs::symlink_metadata(&path).is_ok(), "{name}: {gone}");
        for line in ["for-each-ref", "update-ref refs/heads/main {one}"] {
            let program = bench.program.clone();
            let ended = bench.run_line(&program, line, kind, &scene);
            assert_eq!(ended.code, Some(0), "{name}: {line}: {}", ended.said);
        }
        assert!(fs::symlink_metadata(&path).is_err(), "{name}: {gone}");
    }
}

fn find<'k>(kinds: &'k [Kind], name: &str) -> &'k Kind {
    let found = kinds.iter().find(|kind| kind.name == name);
    found.unwrap_or_else(|| panic!("there is no kind '{name}'"))
}
