//! The steps of a change, each of which makes one thing visible.
//!
//! The process that makes a change and one that finishes it after a crash take the same steps by the
//! same code.
//!
//! Invariant: to take a step twice is as to take it once.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::encoding::checksum;
use super::place::{Place, Roots, Spot};
use super::{lock_path, remove_if_there, value_path};
use crate::error::{Error, Result, Role};
use crate::options::SharedRepository;
use crate::system::{System, is_absent, remove_empty_tree};

/// From so many files or directories on, they are synced with their file systems.
pub(crate) const MANY_MIN: usize = 8;

/// One step of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The new content, which stands beside the lock, gets the name under which it is read; if `sum`
    /// is given, only one with this checksum.
    Put { place: Place, sum: Option<u64> },
    /// A file goes.
    Remove { place: Place },
    /// Lines come behind the first `len` bytes of a file, which is made if it is not there.
    Append {
        place: Place,
        len: u64,
        lines: Vec<u8>,
    },
}

/// How steps are taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    pub(crate) shared: SharedRepository,
    /// Whether the process lives that made the change: what is not there then was taken away from it.
    pub(crate) is_live: bool,
    /// Whether no step was taken before.
    pub(crate) is_first: bool,
    /// Whether every file is made durable by itself.
    pub(crate) sync_each: bool,
}

impl Step {
    pub(super) fn place_mut(&mut self) -> &mut Place {
        match self {
            Step::Put { place, .. } | Step::Remove { place } | Step::Append { place, .. } => place,
        }
    }

    pub(super) fn place(&self) -> &Place {
        match self {
            Step::Put { place, .. } | Step::Remove { place } | Step::Append { place, .. } => place,
        }
    }

    /// Takes the step, if it was not taken; adds the directories whose names it changed to `dirs`.
    ///
    /// # Errors
    /// `Io`, which names the file.
    pub(super) fn take(&self, roots: &Roots, how: How, dirs: &mut BTreeSet<PathBuf>) -> Result<()> {
        let place = self.place();
        let spot = roots.spot(place).map_err(|error| {
            let path = roots.path(place);
            Error::io("unable to reach", &path, error)
        })?;
        let Spot { system, path, .. } = &spot;
        match self {
            Step::Put { sum, .. } => {
                // Who has just written the content need not read it.
                let sum = sum.filter(|_| !how.is_live);
                put(system.as_ref(), path, sum, how.is_live)?;
                add_parent(dirs, path);
            }
            Step::Remove { .. } => match remove_if_there(system.as_ref(), path) {
                Err(error) if is_in_the_way(&error) => {}
                removed => {
                    removed.map_err(|error| Error::io("unable to remove", path, error))?;
                    add_parent(dirs, path);
                }
            },
            Step::Append { len, lines, .. } => {
                match append(&spot, *len, lines, how, dirs) {
                    // Something has the place of the reflog that was not there when the transaction
                    // was committed: its entries are lost, and nothing waits for them.
                    Err(error) if is_in_the_way(&error) => {}
                    appended => appended.map_err(|error| {
                        let failed = Error::io("unable to append to", path, error);
                        failed.with_role(Role::Place)
                    })?,
                }
            }
        }
        Ok(())
    }
}

fn is_in_the_way(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::IsADirectory | io::ErrorKind::NotADirectory
    )
}

fn put(system: &dyn System, path: &Path, sum: Option<u64>, is_live: bool) -> Result<()> {
    let value = value_path(&lock_path(path));
    if let Some(sum) = sum
        && !has_sum(system, &value, sum)?
    {
        // It is there already; this is the content of a later transaction. A power failure brought
        // the journal back, and the lock, which the later one had taken.
        return Ok(());
    }
    let mut renamed = system.rename(&value, path);
    if renamed.is_err() && remove_empty_tree(system, path) {
        renamed = system.rename(&value, path);
    }
    match renamed {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !is_live => {
            match system.lstat(path) {
                Ok(_) => Ok(()),
                Err(_) => Err(unable_to_set(path, error)),
            }
        }
        renamed => renamed.map_err(|error| unable_to_set(path, error)),
    }
}

fn unable_to_set(path: &Path, error: io::Error) -> Error {
    Error::io("unable to replace", path, error)
}

fn has_sum(system: &dyn System, path: &Path, sum: u64) -> Result<bool> {
    match system.read(path) {
        Ok(content) => Ok(checksum(&content) == sum),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::io("unable to read", path, error)),
    }
}

/// Puts `lines` behind the first `len` bytes of a file. A part of them may be there already, or what
/// a power failure left of them: nobody else writes to the file while its lock is held.
fn append(
    spot: &Spot,
    len: u64,
    lines: &[u8],
    how: How,
    dirs: &mut BTreeSet<PathBuf>,
) -> io::Result<()> {
    let Spot { system, path, .. } = spot;
    let tail = match how.is_first {
        true => Vec::new(),
        false => match read_from(system.as_ref(), path, len) {
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                if !remove_empty_tree(system.as_ref(), path) {
                    return Err(error);
                }
                Vec::new()
            }
            tail => tail?.unwrap_or_default(),
        },
    };
    if !lines.is_empty() && tail.starts_with(lines) {
        return Ok(());
    }
    let Some(missing) = lines.strip_prefix(&*tail) else {
        return rewrite(system.as_ref(), path, len, lines);
    };
    let mut file = match system.append(path, None) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let parent = path.parent().unwrap_or(&spot.floor);
            create_dirs(spot, how.shared, parent, dirs)?;
            add_parent(dirs, path);
            system.append(path, Some(0o666))?
        }
        file => file?,
    };
    // One that was there before the setting follows it from now on; one of somebody else stays.
    let _ = how.shared.adjust(system.as_ref(), path);
    file.write_all(missing)?;
    if how.sync_each {
        file.sync()?;
    } else {
        add_parent(dirs, path);
    }
    Ok(())
}

/// Returns what is in a file behind so many bytes; `None` if there is no file.
fn read_from(system: &dyn System, path: &Path, len: u64) -> io::Result<Option<Vec<u8>>> {
    let mut file = match system.open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let stat = file.stat()?;
    if stat.kind == crate::system::FileKind::Directory {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let count = usize::try_from(stat.len.saturating_sub(len)).unwrap_or(0);
    let mut tail = vec![0; count];
    let count = file.read_at(len, &mut tail)?;
    tail.truncate(count);
    Ok(Some(tail))
}

/// Writes a file anew: its first `len` bytes, and `lines` behind them.
fn rewrite(system: &dyn System, path: &Path, len: u64, lines: &[u8]) -> io::Result<()> {
    let content = system.read(path)?;
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    let before = content.get(..len).unwrap_or(&content);
    let new = value_path(&lock_path(path));
    remove_if_there(system, &new)?;
    let mut file = system.create_new(&new, 0o666)?;
    file.write_all(before)?;
    file.write_all(lines)?;
    file.sync()?;
    system.rename(&new, path)
}

/// Makes a directory, and those that lead to it.
fn create_dirs(
    spot: &Spot,
    shared: SharedRepository,
    dir: &Path,
    dirs: &mut BTreeSet<PathBuf>,
) -> io::Result<()> {
    let system = spot.system.as_ref();
    let made = match system.create_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && dir != spot.floor => {
            create_dirs(spot, shared, dir.parent().unwrap_or(&spot.floor), dirs)?;
            system.create_dir(dir)
        }
        made => made,
    };
    match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
        Ok(()) => {
            add_parent(dirs, dir);
            shared.adjust(system, dir)
        }
    }
}

/// Adds the directory of `path`.
pub(super) fn add_parent(dirs: &mut BTreeSet<PathBuf>, path: &Path) {
    if let Some(parent) = path.parent()
        && !dirs.contains(parent)
    {
        dirs.insert(parent.to_owned());
    }
}

/// Makes the names in directories durable; with `all`, or of many, everything on their file systems.
///
/// # Errors
/// `Io`, after every one of them was tried. A directory that is gone is passed over: another writer
/// removed it when nothing was left in it.
pub(crate) fn sync(system: &dyn System, dirs: &BTreeSet<PathBuf>, all: bool) -> Result<()> {
    let all = all || dirs.len() >= MANY_MIN;
    let mut first = None;
    let mut done = BTreeSet::new();
    for dir in dirs {
        let synced = match all {
            false => system.sync_dir(dir),
            true => system
                .stat(dir)
                .and_then(|stat| match done.contains(&stat.dev) {
                    true => Ok(()),
                    false => system.sync_file_system(dir).map(|()| {
                        done.insert(stat.dev);
                    }),
                }),
        };
        match synced {
            Err(error) if is_absent(&error) => {}
            synced => {
                let failed = synced
                    .err()
                    .map(|error| Error::io("unable to sync", dir, error));
                first = first.or(failed);
            }
        }
    }
    first.map_or(Ok(()), Err)
}
