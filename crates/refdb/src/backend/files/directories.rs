//! Directories that come and go with the refs in them.
//!
//! Invariant: `refs/` and the directories one level below it are never removed.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use crate::system::beside::{HALVES_MIN, both};
use crate::system::dirs::parent_of;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::SharedRepository;
    use crate::system::OsSystem;
    use crate::system::dirs::create;

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
}
