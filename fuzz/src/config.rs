//! Files of configuration: those of the repository, of its worktree and of the user, and one that
//! they may include, on a simulated disk.

use std::path::Path;
use std::sync::Arc;

use refdb::RefFormat;
use refdb_git::repository::config::Config;
use refdb_git::repository::{Environment, OpenOptions};
use refdb::system::System;

use super::stores::{GIT_DIR, empty, write};

/// The files are one behind the other, this byte between them.
const BETWEEN: u8 = 0xff;

const FILES: [&str; 4] = [
    "config",
    "config.worktree",
    "included",
    "/home/u/.gitconfig",
];

pub(crate) fn config(bytes: &[u8]) {
    let system = empty(RefFormat::Files);
    system
        .create_dir_all("/home/u".as_ref())
        .expect("a new directory");
    write(&system, "HEAD", b"ref: refs/heads/main\n");
    system
        .create_dir(&Path::new(GIT_DIR).join("objects"))
        .expect("a new directory");
    for (path, content) in FILES.iter().zip(bytes.split(|&byte| byte == BETWEEN)) {
        write(&system, path, content);
        if let Ok(read) = Config::parse(content) {
            check(&read);
        }
    }
    let opened = OpenOptions::new()
        .system(Arc::new(system))
        .environment(Environment::from_pairs([("HOME", "/home/u")]))
        .current_dir(GIT_DIR)
        .git_dir(GIT_DIR)
        .open(GIT_DIR.as_ref());
    match opened {
        Ok(repository) => {
            ask(repository.config());
            let _ = repository.abbreviation();
            let _ = repository.namespace();
            let _ = super::stores::refs(repository.store());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Asks for every value in every way.
fn ask(config: &Config) {
    for entry in config.entries() {
        let Ok(key) = std::str::from_utf8(entry.key()) else {
            continue;
        };
        let _ = config.boolean(key);
        let _ = config.integer(key);
        let _ = config.small_integer(key);
        let _ = config.unsigned_integer(key);
        let _ = config.text(key);
        let _ = config.text_of_line(key);
        let _ = config.path(key);
        assert!(config.all(key).count() > 0);
    }
}

/// What was read is written again, every value in quotes, and read: it is the same.
fn check(config: &Config) {
    ask(config);
    let mut text = Vec::new();
    for entry in config.entries() {
        let key: &[u8] = entry.key();
        let first = key
            .iter()
            .position(|&byte| byte == b'.')
            .expect("a section");
        let last = key
            .iter()
            .rposition(|&byte| byte == b'.')
            .expect("a section");
        text.push(b'[');
        text.extend(&key[..first]);
        if first < last {
            text.extend(b" \"");
            text.extend(escaped(&key[first + 1..last], b"\"\\"));
            text.push(b'"');
        }
        text.extend(b"]\n");
        text.extend(&key[last + 1..]);
        if let Some(value) = entry.value() {
            text.extend(b" = \"");
            text.extend(escaped(value, b"\"\\\n\t\x08"));
            text.push(b'"');
        }
        text.push(b'\n');
    }
    let again = Config::parse(&text).expect("what is written can be read");
    let pairs = |config: &Config| -> Vec<_> {
        let pairs = config.entries().iter();
        pairs
            .map(|it| (it.key().to_owned(), it.value().map(ToOwned::to_owned)))
            .collect()
    };
    assert_eq!(pairs(config), pairs(&again), "written again");
}

/// Puts a backslash before each of `special`.
fn escaped(text: &[u8], special: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::new();
    for &byte in text {
        if special.contains(&byte) {
            escaped.push(b'\\');
        }
        escaped.push(match byte {
            b'\n' if special.contains(&byte) => b'n',
            b'\t' if special.contains(&byte) => b't',
            8 if special.contains(&byte) => b'b',
            _ => byte,
        });
    }
    escaped
}

/// A value that stands where nobody gets by chance: below a subsection, with an escape in it.
pub(crate) fn planted(bytes: &[u8]) {
    let Ok(config) = Config::parse(bytes) else {
        return;
    };
    let is_deep = |key: &[u8]| key.iter().filter(|&&byte| byte == b'.').count() > 1;
    for entry in config.entries() {
        let value = entry.value().unwrap_or_default();
        assert!(!is_deep(entry.key()) || !value.contains(&b'\t'), "planted");
    }
}
