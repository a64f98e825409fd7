//! Directories: which exist, and making those that are missing.
//!
//! Invariant: a directory counts as missing only if it, or one above it, was looked for in vain.

use std::collections::HashMap;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::beside::HALVES_MIN;
use crate::{SharedRepository, System, bytes_to_path};

/// What is known of directories, each of which is looked at once: whoever asks is the only one who makes what he asks
/// for.
#[derive(Debug, Default)]
pub struct KnownDirs {
    known: HashMap<Vec<u8>, bool>,
    // The one that was asked for last: names come sorted.
    last: Option<(Vec<u8>, bool)>,
    // The uppermost of the directories that were found missing last: nothing is below it.
    missing: Option<Vec<u8>>,
}

impl KnownDirs {
    /// Returns whether the directory of `path` exists.
    pub fn have_parent(&mut self, system: &dyn System, path: &Path) -> bool {
        let Some(dir) = parent(path) else {
            return true;
        };
        if let Some((last, exists)) = &self.last
            && last == dir
        {
            return *exists;
        }
        let exists = self.look(system, dir);
        self.last = Some((dir.to_vec(), exists));
        exists
    }

    fn look(&mut self, system: &dyn System, dir: &[u8]) -> bool {
        let missing = self.missing.as_ref();
        if missing.is_some_and(|missing| is_in(dir, missing)) {
            return false;
        }
        // One directory is asked for itself; among many, it pays to know how much is missing.
        let first = self.known.is_empty();
        let exists = self.exists(system, dir);
        if !exists {
            let mut uppermost = dir;
            while !first
                && let Some(above) =
                    parent_of(uppermost).filter(|above| !self.exists(system, above))
            {
                uppermost = above;
            }
            self.missing = Some(uppermost.to_vec());
        }
        exists
    }

    fn exists(&mut self, system: &dyn System, dir: &[u8]) -> bool {
        if let Some(&exists) = self.known.get(dir) {
            return exists;
        }
        // What cannot be looked at is not absent: the error of the file that is made there tells why. Nor is
        // what has a file above it, which is in the way.
        let found = system.lstat(bytes_to_path(dir));
        let exists = !found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        self.known.insert(dir.to_vec(), exists);
        exists
    }
}

/// Returns whether a path is the directory `dir`, or in it.
pub fn is_in(path: &[u8], dir: &[u8]) -> bool {
    let rest = path.strip_prefix(dir);
    rest.is_some_and(|rest| rest.first().is_none_or(|&byte| byte == b'/'))
}

/// As [`is_in`], for paths without `//` and `.`.
pub fn is_path_in(path: &Path, dir: &Path) -> bool {
    let dir = dir.as_os_str().as_bytes();
    let dir = dir.strip_suffix(b"/").unwrap_or(dir);
    is_in(path.as_os_str().as_bytes(), dir)
}

/// Returns the directory of a path, to be compared as bytes; `None` for one that has none above it.
pub fn parent(path: &Path) -> Option<&[u8]> {
    parent_of(path.as_os_str().as_bytes())
}

/// As [`parent`], for bytes.
pub fn parent_of(path: &[u8]) -> Option<&[u8]> {
    let slash = path.iter().rposition(|&byte| byte == b'/')?;
    path.get(..slash).filter(|dir| !dir.is_empty())
}

/// Returns where sorted names are to be divided between two threads that change the directories of these names: both
/// parts take about as long, and no name of one is in a directory of the other. `None` of few, and where one directory
/// has most: two threads wait for each other there, in the system (10,000 transactions with reflogs took 240 ms of a
/// processor in one thread and 340 in two, and as much time; beside other programs two took longer).
///
/// A name in another directory than the one before counts twice: that directory has to be made, and to be removed.
pub fn middle<'n>(names: impl ExactSizeIterator<Item = &'n [u8]>) -> Option<usize> {
    if names.len() < HALVES_MIN {
        return None;
    }
    let mut before = None;
    let mut sum = 0;
    let mut borders = Vec::new();
    for (at, name) in names.enumerate() {
        let dir = parent_of(name);
        let last = before.replace(dir);
        let is_other = last != Some(dir);
        let (last, dir) = (last.flatten().unwrap_or_default(), dir.unwrap_or_default());
        if is_other && !is_inside(last, dir) && !is_inside(dir, last) {
            borders.push((at, sum));
        }
        sum += 1 + usize::from(is_other);
    }
    let smaller = |low: usize| low.min(sum - low);
    let best = borders.into_iter().max_by_key(|&(_, low)| smaller(low))?;
    (4 * smaller(best.1) >= sum).then_some(best.0)
}

/// Returns whether a directory is another one, or below it: what is in that one may come up again.
fn is_inside(dir: &[u8], other: &[u8]) -> bool {
    dir.strip_prefix(other)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// Creates the directory `dir` and those above it as far down from `floor` as they are missing;
/// tells `created` of each.
///
/// # Errors
/// `NotFound` when `floor` does not exist, or when directories vanish meanwhile.
pub fn create(
    system: &dyn System,
    shared: SharedRepository,
    floor: &Path,
    dir: &Path,
    created: &mut Vec<PathBuf>,
) -> io::Result<()> {
    let missing = match system.create_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => error,
        Err(error) => return Err(error),
        Ok(()) => return made(system, shared, dir, created),
    };
    match dir.parent() {
        Some(parent) if parent != floor && parent.starts_with(floor) => {
            create(system, shared, floor, parent, created)?;
        }
        _ => return Err(missing),
    }
    match system.create_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
        Ok(()) => made(system, shared, dir, created),
    }
}

/// Creates the directory `dir`, if that alone is missing, and tells `created` of it; returns whether
/// it was.
///
/// # Errors
/// Only of what is done with the new directory.
pub fn create_one(
    system: &dyn System,
    shared: SharedRepository,
    dir: &Path,
    created: &mut Vec<PathBuf>,
) -> io::Result<bool> {
    match system.create_dir(dir) {
        Ok(()) => made(system, shared, dir, created).map(|()| true),
        Err(_) => Ok(false),
    }
}

fn made(
    system: &dyn System,
    shared: SharedRepository,
    dir: &Path,
    created: &mut Vec<PathBuf>,
) -> io::Result<()> {
    created.push(dir.to_owned());
    shared.adjust(system, dir)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OsSystem, remove_empty_tree};

    #[test]
    fn both_halves_have_as_much_to_do_in_directories_of_their_own() {
        // So many names in the directory "a", and so on.
        let middle = |counts: &[(&str, usize)]| {
            let dirs = counts.iter().flat_map(|&(dir, count)| vec![dir; count]);
            let names: Vec<String> = dirs.map(|dir| format!("{dir}/x")).collect();
            super::middle(names.iter().map(|name| name.as_bytes()))
        };
        assert_eq!(middle(&[]), None);
        assert_eq!(middle(&[("a", 200), ("b", 200)]), None);
        assert_eq!(middle(&[("a", 1000)]), None);
        assert_eq!(middle(&[("a", 900), ("b", 100)]), None);
        assert_eq!(middle(&[("a", 100), ("b", 900)]), None);
        assert_eq!(middle(&[("a", 400), ("b", 600)]), Some(400));
        assert_eq!(middle(&[("a", 300), ("a/m", 50), ("a", 300)]), None);
        assert_eq!(middle(&[("a/m", 300), ("am", 300)]), Some(300));
        assert_eq!(middle(&[("a", 300), ("b", 300), ("c", 300)]), Some(600));
        assert_eq!(middle(&[("a", 100), ("b", 300), ("c", 500)]), Some(400));
    }

    #[test]
    fn what_is_missing_is_told_from_what_is_there() {
        let temp = tempfile::tempdir().unwrap();
        let system = OsSystem::new();
        for dir in ["logs", "logs/a", "logs/a/b", "logs/ab"] {
            system.create_dir(&temp.path().join(dir)).unwrap();
        }
        let mut known = KnownDirs::default();
        let mut have = |path: &str| known.have_parent(&system, &temp.path().join(path));
        assert!(!have("logs/x/1"));
        assert!(!have("logs/a/x/y/1"));
        assert!(!have("logs/a/x/z/1"));
        assert!(have("logs/a/b/1"));
        assert!(have("logs/ab/1"));
        assert!(have("logs/a/1"));
        assert!(!have("none/refs/heads/1"));
        assert!(!have("none/1"));
        assert!(have("logs/a/b/2"));
        assert!(have("nonex"));
    }

    #[test]
    fn a_tree_with_a_file_stays() {
        let temp = tempfile::tempdir().unwrap();
        let system = OsSystem::new();
        let tree = temp.path().join("t");
        for dir in ["t", "t/a", "t/b", "t/b/c"] {
            system.create_dir(&temp.path().join(dir)).unwrap();
        }
        let file = temp.path().join("t/b/file");
        system.create_new(&file, 0o666).unwrap();
        assert!(!remove_empty_tree(&system, &tree));
        system.remove_file(&file).unwrap();
        assert!(remove_empty_tree(&system, &tree));
        assert!(!tree.exists());
        assert!(remove_empty_tree(&system, &tree), "it is gone already");
    }

    #[test]
    fn nothing_is_created_without_the_floor() {
        let temp = tempfile::tempdir().unwrap();
        let system = OsSystem::new();
        let floor = temp.path().join("gone");
        let made = create(
            &system,
            SharedRepository::Umask,
            &floor,
            &floor.join("refs/heads"),
            &mut Vec::new(),
        );
        assert_eq!(made.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
