//! What a folder holds: names, kinds, modes, owners, contents, link texts and times, so that
//! nothing can change in it unseen.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

/// Files up to this length are compared byte by byte, others by length and time.
const CONTENT_MAX: u64 = 1 << 20;

/// When everything was changed last before a command, in seconds since 1970.
const LONG_AGO: i64 = 1_600_000_000;

/// Everything below a folder at one moment.
#[derive(Clone, Debug)]
pub struct Tree {
    entries: BTreeMap<PathBuf, Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    kind: char,
    mode: u32,
    owner: (u32, u32),
    len: u64,
    modified: (i64, i64),
    content: Vec<u8>,
}

/// How something differs from what it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Where, from the folder.
    pub path: PathBuf,
    /// What: `made`, `removed`, `replaced`, `mode`, `content` or `time`.
    pub what: &'static str,
    /// Whether it is a directory now, or was one.
    pub is_dir: bool,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.what, self.path.display())
    }
}

impl Tree {
    /// Looks at everything below `root`, and follows no link.
    ///
    /// # Panics
    ///
    /// If something cannot be read.
    pub fn of(root: &Path) -> Tree {
        let mut tree = Tree {
            entries: BTreeMap::new(),
        };
        tree.add(root, Path::new("")).expect("it can be read");
        tree
    }

    fn add(&mut self, root: &Path, below: &Path) -> io::Result<()> {
        let path = root.join(below);
        let stat = fs::symlink_metadata(&path)?;
        let kind = stat.file_type();
        let mut entry = Entry {
            kind: '?',
            mode: stat.mode() & 0o7777,
            owner: (stat.uid(), stat.gid()),
            len: stat.len(),
            modified: (stat.mtime(), stat.mtime_nsec()),
            content: Vec::new(),
        };
        if kind.is_dir() {
            (entry.kind, entry.len) = ('d', 0);
            for inner in fs::read_dir(&path)? {
                self.add(root, &below.join(inner?.file_name()))?;
            }
        } else if kind.is_symlink() {
            entry.kind = 'l';
            entry.content = fs::read_link(&path)?.into_os_string().into_encoded_bytes();
        } else if kind.is_file() {
            entry.kind = 'f';
            // Nobody writes to packs, of which there are many links.
            if entry.len <= CONTENT_MAX && !below.to_string_lossy().contains("objects/pack/") {
                entry.content = fs::read(&path)?;
            }
        } else if kind.is_fifo() {
            entry.kind = 'p';
        }
        self.entries.insert(below.to_owned(), entry);
        Ok(())
    }

    /// Makes everything below `root` long unchanged, so that whatever changes later has another time.
    ///
    /// # Panics
    ///
    /// If the file system refuses.
    pub fn age(root: &Path) {
        let past = Timespec {
            tv_sec: LONG_AGO,
            tv_nsec: 0,
        };
        let times = Timestamps {
            last_access: past,
            last_modification: past,
        };
        let stat = fs::symlink_metadata(root).expect("it is there");
        if stat.is_dir() {
            for entry in fs::read_dir(root).expect("it can be read") {
                Tree::age(&entry.expect("it can be read").path());
            }
        }
        utimensat(CWD, root, &times, AtFlags::SYMLINK_NOFOLLOW).expect("it is ours");
    }

    /// Returns what differs in `now`, in the order of names.
    pub fn changes(&self, now: &Tree) -> Vec<Change> {
        let mut changes = Vec::new();
        let paths = self.entries.keys().chain(now.entries.keys());
        let mut paths: Vec<&PathBuf> = paths.collect();
        paths.sort();
        paths.dedup();
        for path in paths {
            let (old, new) = (self.entries.get(path), now.entries.get(path));
            let Some(what) = difference(old, new) else {
                continue;
            };
            let one = new.or(old);
            changes.push(Change {
                path: path.clone(),
                what,
                is_dir: one.is_some_and(|entry| entry.kind == 'd'),
            });
        }
        changes
    }
}

fn difference(old: Option<&Entry>, new: Option<&Entry>) -> Option<&'static str> {
    let (old, new) = match (old, new) {
        (None, None) => return None,
        (None, Some(_)) => return Some("made"),
        (Some(_), None) => return Some("removed"),
        (Some(old), Some(new)) => (old, new),
    };
    if old == new {
        None
    } else if old.kind != new.kind {
        Some("replaced")
    } else if (old.mode, old.owner) != (new.mode, new.owner) {
        Some("mode")
    } else if (old.len, &old.content) != (new.len, &new.content) {
        Some("content")
    } else {
        Some("time")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::time::{Duration, SystemTime};

    /// Returns what is seen of a change in a folder with a file, a folder and a link.
    fn seen(change: impl Fn(&Path)) -> Vec<String> {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        fs::write(root.join("file"), "old").expect("a file");
        fs::create_dir(root.join("dir")).expect("a folder");
        symlink("file", root.join("link")).expect("a link");
        let before = Tree::of(root);
        change(root);
        let changes = before.changes(&Tree::of(root));
        let of_files = changes.iter().filter(|change| !change.is_dir);
        of_files.map(Change::to_string).collect()
    }

    #[test]
    fn every_change_is_seen() {
        assert_eq!(seen(|_| ()), [""; 0]);
        let file = |root: &Path| root.join("file");
        assert_eq!(
            seen(|root| fs::write(file(root), "new").expect("it is there")),
            ["content file"]
        );
        let mode = fs::Permissions::from_mode(0o600);
        assert_eq!(
            seen(|root| fs::set_permissions(file(root), mode.clone()).expect("it is there")),
            ["mode file"]
        );
        let touch = |root: &Path| {
            let file = fs::File::options().append(true).open(file(root));
            let past = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
            file.and_then(|file| file.set_modified(past))
                .expect("it is there");
        };
        assert_eq!(seen(touch), ["time file"]);
        assert_eq!(
            seen(|root| fs::remove_file(file(root)).expect("it is there")),
            ["removed file"]
        );
        assert_eq!(
            seen(|root| fs::write(root.join("dir/new"), "").expect("a file")),
            ["made dir/new"]
        );
        let relink = |root: &Path| {
            fs::remove_file(root.join("link")).expect("it is there");
            symlink("dir", root.join("link")).expect("a link");
        };
        assert_eq!(seen(relink), ["content link"]);
    }
}
