//! The folders that objects are in: the repository's own, and those that it borrows from.
//!
//! Every folder comes up once, so that folders that name each other, or themselves, end the search
//! as any other does, and lists are followed as far as Git follows them.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use refdb::internals::is_absent;
use refdb::system::{FileKind, System};
use refdb::{Error, ErrorKind, Result};

use super::AbsentFolder;

/// How many lists one behind the other are read.
const DEPTH_MAX: usize = 6;

/// How long a list may be, in bytes.
const LIST_LEN_MAX: usize = 16 << 20;

/// So many folders are looked for, however long that takes, and so many in all. Git has no end; links that lead to
/// links can make each of them take a hundredth of a second.
const FOLDERS_MIN: usize = 64;
const FOLDERS_MAX: usize = 4096;

/// How long it takes to look for more of them.
const LOOK_MAX: Duration = Duration::from_secs(3);

/// So many folders that are not there are named: a list may have millions.
const ABSENT_MAX: usize = 16;

/// Folders that were found, in Git's order.
struct Search<'s> {
    system: &'s dyn System,
    folders: Vec<PathBuf>,
    /// What folders are told apart by, whatever they are called.
    known: Vec<(u64, u64)>,
    /// What is named, and is no folder.
    absent: Vec<AbsentFolder>,
    /// The list that is being read.
    list: Option<PathBuf>,
    /// How many folders were looked for.
    count: usize,
    /// When the search began.
    began: Duration,
}

/// Returns the folders of a database: its own, the first of `dirs`, and the others, with those that
/// they borrow from. A folder to borrow from need not exist.
///
/// # Errors
/// `Io` when the own folder, or a list, cannot be read.
pub(super) fn folders(system: &dyn System, dirs: &[PathBuf]) -> Result<Vec<PathBuf>> {
    Ok(search(system, dirs)?.folders)
}

/// Returns the folders that a database is to borrow from and that are not there.
///
/// # Errors
/// As for [`folders`].
pub(super) fn absent(system: &dyn System, dirs: &[PathBuf]) -> Result<Vec<AbsentFolder>> {
    Ok(search(system, dirs)?.absent)
}

fn search<'s>(system: &'s dyn System, dirs: &[PathBuf]) -> Result<Search<'s>> {
    let mut search = Search {
        system,
        folders: Vec::new(),
        known: Vec::new(),
        absent: Vec::new(),
        list: None,
        count: 0,
        began: system.elapsed(),
    };
    let (own, others) = dirs
        .split_first()
        .ok_or_else(|| Error::new(ErrorKind::Misuse, "an object database needs a directory"))?;
    if !search.enter(own)? {
        let error = io::Error::from(io::ErrorKind::NotADirectory);
        return Err(Error::io("unable to open object database", own, error));
    }
    for dir in others {
        search.add(dir, 0)?;
    }
    search.read_list(own, 0)?;
    Ok(search)
}

fn names_nothing(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidFilename, InvalidInput};
    matches!(error.kind(), InvalidFilename | InvalidInput)
}

impl Search<'_> {
    fn note_absent(&mut self, dir: &Path) {
        if self.absent.len() < ABSENT_MAX {
            let (dir, list) = (dir.to_owned(), self.list.clone());
            self.absent.push(AbsentFolder { dir, list });
        }
    }

    /// Takes a folder in, if it is one and is new.
    fn enter(&mut self, dir: &Path) -> Result<bool> {
        let stat = match self.system.stat(dir) {
            Ok(stat) => stat,
            // What is longer than any path can be names nothing, nor does what has a NUL in it.
            Err(error) if is_absent(&error) || names_nothing(&error) => {
                self.note_absent(dir);
                return Ok(false);
            }
            Err(error) => return Err(Error::io("unable to open object database", dir, error)),
        };
        let id = (stat.dev, stat.ino);
        if stat.kind != FileKind::Directory {
            self.note_absent(dir);
            return Ok(false);
        }
        if self.known.contains(&id) {
            return Ok(false);
        }
        self.known.push(id);
        self.folders.push(dir.to_owned());
        Ok(true)
    }

    fn add(&mut self, dir: &Path, depth: usize) -> Result<()> {
        self.count += 1;
        let took = || self.system.elapsed().saturating_sub(self.began);
        if self.count > FOLDERS_MAX || self.count > FOLDERS_MIN && took() > LOOK_MAX {
            let named = self.list.as_deref().unwrap_or(dir).display();
            let text = format!(
                "there are more than {FOLDERS_MIN} folders to borrow objects from, and it takes too long to look for \
                 them; shorten the list in '{named}'"
            );
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        if self.enter(dir)? {
            self.read_list(dir, depth + 1)?;
        }
        Ok(())
    }

    fn read_list(&mut self, folder: &Path, depth: usize) -> Result<()> {
        let path = folder.join("info").join("alternates");
        let list = match self.system.read_at_most(&path, LIST_LEN_MAX) {
            Ok(list) => list,
            Err(error) if is_absent(&error) => return Ok(()),
            Err(error) => return Err(Error::io("unable to read", &path, error)),
        };
        if depth >= DEPTH_MAX {
            return Ok(());
        }
        let dirs = gix_odb::alternate::parse(&list).map_err(|error| {
            let text = format!("unable to read '{}': {error}", path.display());
            Error::new(ErrorKind::Io, text)
        })?;
        for dir in dirs {
            self.list = Some(path.clone());
            self.add(&folder.join(dir), depth)?;
        }
        self.list = None;
        Ok(())
    }
}
