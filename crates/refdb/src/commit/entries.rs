//! What lies in a directory of refs: everybody who walks below `refs/` is told it here.
//!
//! Invariant: what has the name of a lock is no ref. No ref ends as locks do, so that nobody else locks what
//! has such a name.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::LOCK;
use crate::system::{DirEntry, FileKind, Leaf, System, bytes_to_path};

/// What a link that bars a place for a transaction leads to begins with; behind it is a random number.
/// Nothing has that name, since nobody can know the number before. Git's checks take the link for an old
/// symref to a ref that is not there, and have nothing against it; so it has to be a name that a ref could
/// have.
const BARRIER: &str = "refdb-locked-";

/// What a link that keeps writers out of a directory during a migration leads to: nothing has that name. It is one
/// that a ref could have, as that of a barrier.
pub const FREEZE: &str = "refdb-frozen--the-refs-are-being-migrated";

/// What an entry of a directory of refs is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A directory.
    Dir,
    /// A ref, or what is none of refdb's.
    Ref,
    /// A lock.
    Lock,
    /// New content of a file that is locked.
    NewValue,
    /// A link that keeps others from the place of a ref or a directory for as long as its lock is there.
    Barrier,
}

impl Entry {
    /// Tells what the name of a file says, as far as its end tells.
    pub fn of_name(name: &[u8]) -> Entry {
        match name.strip_suffix(LOCK) {
            None => Entry::Ref,
            Some(stem) if stem.ends_with(LOCK) || stem.contains(&b'~') => Entry::NewValue,
            Some(_) => Entry::Lock,
        }
    }

    /// Tells what an entry of the directory `dir` is.
    pub fn of(system: &dyn System, dir: &Path, entry: &DirEntry) -> Entry {
        let is_barrier = || leads_to(system, &dir.join(bytes_to_path(&entry.name)), bars);
        Entry::tell(entry.kind, &entry.name, is_barrier)
    }

    /// Tells what a walk found.
    pub fn of_leaf(system: &dyn System, leaf: &Leaf) -> Entry {
        let is_barrier = || leads_to(system, &leaf.path, bars);
        Entry::tell(leaf.kind, leaf.last_name(), is_barrier)
    }

    fn tell(kind: FileKind, name: &[u8], is_barrier: impl FnOnce() -> bool) -> Entry {
        match (kind, Entry::of_name(name)) {
            (FileKind::Directory, _) => Entry::Dir,
            (FileKind::Symlink, Entry::Ref) if is_barrier() => Entry::Barrier,
            (_, entry) => entry,
        }
    }
}

/// Returns a new text of a link that bars a place.
pub(super) fn barrier(system: &dyn System) -> PathBuf {
    format!("{BARRIER}{:016x}", system.random()).into()
}

/// Returns whether the link at `path` bars a place for a transaction.
pub fn is_barrier(system: &dyn System, path: &Path) -> bool {
    !is_lock(path) && leads_to(system, path, bars)
}

/// Returns whether a lock is the barrier that changed places with it: the new content has its place by now, and is the
/// file that the holder of the lock has.
pub(super) fn is_exchanged(system: &dyn System, lock: &Path) -> bool {
    leads_to(system, lock, bars)
}

/// Returns whether the link at `path` keeps writers out for a migration.
pub fn is_frozen(system: &dyn System, path: &Path) -> bool {
    leads_to(system, path, |text| text == Path::new(FREEZE))
}

/// Returns whether a link that leads to `text` is a barrier.
pub(crate) fn bars(text: &Path) -> bool {
    let number = text.as_os_str().as_bytes().strip_prefix(BARRIER.as_bytes());
    number.is_some_and(|number| number.len() == 16 && number.iter().all(u8::is_ascii_hexdigit))
}

pub(super) fn is_lock(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    Entry::of_name(name.as_bytes()) == Entry::Lock
}

fn leads_to(system: &dyn System, path: &Path, is_meant: impl Fn(&Path) -> bool) -> bool {
    system.read_link(path).is_ok_and(|text| is_meant(&text))
}
