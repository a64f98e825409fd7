//! Directories that come and go with the refs in them.
//!
//! Invariant: `refs/` and the directories one level below it are never removed.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::known_dirs::parent_of;
use crate::options::SharedRepository;
use crate::system::beside::{HALVES_MIN, both};
use crate::system::{System, bytes_to_path};

/// Directories that shall go if they are empty; each is tried once.
#[derive(Debug, Default)]
pub(super) struct EmptyDirs {
    // Names without a slash at the end, and below what they are. Paths take far longer to compare.
    dirs: BTreeSet<(Vec<u8>, PathBuf)>,
}

impl EmptyDirs {
    /// Adds the directory in which `name` is kept below `base`.
    pub(super) fn add_parent(&mut self, base: &Path, name: &[u8]) {
        let Some(parent) = parent_of(name) else {
            return;
        };
        let levels = parent.iter().filter(|&&byte| byte == b'/').count() + 1;
        let known = |last: &(Vec<u8>, PathBuf)| last.0 == parent && last.1 == base;
        if levels > 2 && !self.dirs.last().is_some_and(known) {
            self.dirs.insert((parent.to_owned(), base.to_owned()));
        }
    }

    /// Removes those that are empty, and those above them that become so. Of many, each half is removed
    /// by a thread of its own: the last one to leave a directory above both tries it.
    pub(super) fn remove(&mut self, system: &dyn System) {
        if self.dirs.len() < HALVES_MIN {
            return self.remove_alone(system);
        }
        let middle = self.dirs.iter().nth(self.dirs.len() / 2).cloned();
        let mut second = EmptyDirs {
            dirs: middle.map_or_else(BTreeSet::new, |middle| self.dirs.split_off(&middle)),
        };
        both(|| self.remove_alone(system), || second.remove_alone(system));
    }

    /// As [`EmptyDirs::remove`], in this thread.
    pub(super) fn remove_alone(&mut self, system: &dyn System) {
        // A directory sorts before all that is in it: taken from the end, it comes after them.
        while let Some((dir, base)) = self.dirs.pop_last() {
            match system.remove_dir(&base.join(bytes_to_path(&dir))) {
                Ok(()) => self.add_parent(&base, &dir),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    self.add_parent(&base, &dir);
                }
                // Not empty: it stays.
                Err(_) => {}
            }
        }
    }
}

/// Creates the directory `dir` and those above it as far down from `floor` as they are missing;
/// tells `created` of each.
///
/// # Errors
/// `NotFound` when `floor` does not exist, or when directories vanish meanwhile.
pub(super) fn create(
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
pub(super) fn create_one(
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
    use crate::system::{OsSystem, remove_empty_tree};

    #[test]
    fn empty_directories_go_up_to_the_second_level() {
        let temp = tempfile::tempdir().unwrap();
        let system = OsSystem::new();
        let mut created = Vec::new();
        for dir in ["refs/heads/a/b/c", "refs/heads/a/d"] {
            let dir = temp.path().join(dir);
            create(
                &system,
                SharedRepository::Umask,
                temp.path(),
                &dir,
                &mut created,
            )
            .unwrap();
        }
        assert_eq!(created.len(), 6);
        let mut empty = EmptyDirs::default();
        for name in [
            &b"refs/heads/a/b/c/x"[..],
            b"refs/heads/a/d/x",
            b"refs/heads/x",
            b"HEAD",
        ] {
            empty.add_parent(temp.path(), name);
        }
        empty.remove(&system);
        assert!(!temp.path().join("refs/heads/a").exists());
        assert!(temp.path().join("refs/heads").exists());
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
