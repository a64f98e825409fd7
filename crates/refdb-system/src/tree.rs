//! Whatever lies below a directory.
//!
//! Invariant: a directory that comes or goes meanwhile is walked as it is found, and one that is gone, or has become
//! something else, is empty. What is in the place of the first one is told.

use std::io;
use std::path::{Path, PathBuf};

use crate::{DirEntry, FileKind, System, bytes_to_path, is_absent};

/// Lists a directory; one that is not there is empty, also if something else is in its place or above it.
///
/// # Errors
/// Those of [`System::read_dir`].
pub fn list(system: &dyn System, dir: &Path) -> io::Result<Vec<DirEntry>> {
    match system.read_dir(dir) {
        Err(error) if is_absent(&error) => Ok(Vec::new()),
        entries => entries,
    }
}

/// Something below a directory that is no directory itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Where it is.
    pub path: PathBuf,
    /// Its name, with the directories that lead to it.
    pub name: Vec<u8>,
    /// What it is; links are not followed.
    pub kind: FileKind,
}

impl Leaf {
    /// Returns its last name alone.
    pub fn last_name(&self) -> &[u8] {
        let name = self.name.as_slice();
        name.rsplit(|&byte| byte == b'/').next().unwrap_or(name)
    }
}

/// A walk through a directory and those in it, each in the order in which it is listed. It gives what is
/// no directory, or with which error a directory could not be listed, which is then passed over.
///
/// ```
/// use refdb_system::{OsSystem, Tree};
/// let dir = tempfile::tempdir().unwrap();
/// std::fs::create_dir(dir.path().join("heads")).unwrap();
/// std::fs::write(dir.path().join("heads/main"), "").unwrap();
/// let system = OsSystem::new();
/// let found: Vec<_> = Tree::new(&system, dir.path(), b"refs/").map(|leaf| leaf.unwrap()).collect();
/// assert_eq!(found[0].name, b"refs/heads/main");
/// ```
#[derive(Debug)]
pub struct Tree<'s> {
    system: &'s dyn System,
    /// The name of what was found last.
    name: Vec<u8>,
    levels: Vec<Level>,
    /// The directory that is listed next; its name is `name`.
    next: Option<PathBuf>,
    /// Whether a link leads to that.
    is_link_next: bool,
    is_deep: bool,
}

/// A directory, of which a part was given.
#[derive(Debug)]
struct Level {
    dir: PathBuf,
    name_len: usize,
    entries: std::vec::IntoIter<DirEntry>,
    /// Whether a link was followed to get there.
    is_behind_link: bool,
}

impl<'s> Tree<'s> {
    /// Begins at `dir`; names begin with `name`, which is empty or ends with a slash.
    pub fn new(system: &'s dyn System, dir: &Path, name: &[u8]) -> Tree<'s> {
        Tree {
            system,
            name: name.to_vec(),
            levels: Vec::new(),
            next: Some(dir.to_owned()),
            is_link_next: false,
            is_deep: true,
        }
    }

    /// As [`Tree::new`], without what is in the directories of `dir`.
    pub fn flat(system: &'s dyn System, dir: &Path) -> Tree<'s> {
        Tree {
            is_deep: false,
            ..Tree::new(system, dir, b"")
        }
    }

    /// Walks next through the directory that a link leads to: what was found last.
    pub fn follow(&mut self, link: &Leaf) {
        self.enter(link.path.clone());
        self.is_link_next = true;
    }

    /// Returns whether a link was followed to get to what was found last.
    pub fn is_behind_link(&self) -> bool {
        self.levels.last().is_some_and(|level| level.is_behind_link)
    }

    fn enter(&mut self, dir: PathBuf) {
        self.name.push(b'/');
        self.next = Some(dir);
    }
}

impl Iterator for Tree<'_> {
    type Item = Result<Leaf, (PathBuf, io::Error)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(dir) = self.next.take() {
                let is_link = std::mem::take(&mut self.is_link_next);
                match self.system.read_dir(&dir) {
                    Ok(entries) => self.levels.push(Level {
                        dir,
                        name_len: self.name.len(),
                        entries: entries.into_iter(),
                        is_behind_link: is_link || self.is_behind_link(),
                    }),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) if is_absent(&error) && !self.levels.is_empty() => {}
                    Err(error) => return Some(Err((dir, error))),
                }
            }
            let level = self.levels.last_mut()?;
            let Some(entry) = level.entries.next() else {
                self.levels.pop();
                continue;
            };
            self.name.truncate(level.name_len);
            self.name.extend_from_slice(&entry.name);
            let path = level.dir.join(bytes_to_path(&entry.name));
            match entry.kind {
                FileKind::Directory if self.is_deep => self.enter(path),
                FileKind::Directory => {}
                kind => {
                    let name = self.name.clone();
                    return Some(Ok(Leaf { path, name, kind }));
                }
            }
        }
    }
}
