//! The directories in which steps change names: they are made, gathered, and synced once for all steps.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::place::Spot;
use crate::error::{OrIo, Result};
use crate::options::SharedRepository;
use crate::system::dirs::parent;
use crate::system::{System, is_absent};

/// From so many files or directories on, they are synced with their file systems.
pub(crate) const MANY_MIN: usize = 8;

/// Makes a directory, and those that lead to it; returns whether it was missing.
pub(super) fn create_dirs(
    spot: &Spot,
    shared: SharedRepository,
    dir: &Path,
    dirs: &mut BTreeSet<PathBuf>,
) -> io::Result<bool> {
    let system = spot.system.as_ref();
    let made = match system.create_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && dir != spot.floor => {
            create_dirs(spot, shared, dir.parent().unwrap_or(&spot.floor), dirs)?;
            system.create_dir(dir)
        }
        made => made,
    };
    match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
        Ok(()) => {
            add_parent(dirs, dir);
            shared.adjust(system, dir).map(|()| true)
        }
    }
}

/// Adds the directory of `path`. Paths take long to compare, and most come in the order of directories: of refs, and of
/// their reflogs.
pub(crate) fn add_parent(dirs: &mut BTreeSet<PathBuf>, path: &Path) {
    let is_known = |dir: &[u8]| {
        let mut last = dirs.iter().rev().take(2);
        last.any(|last| last.as_os_str().as_bytes() == dir)
    };
    if !parent(path).is_some_and(is_known)
        && let Some(dir) = path.parent()
        && !dirs.contains(dir)
    {
        dirs.insert(dir.to_owned());
    }
}

/// Makes the names in directories durable; with `all`, or of many, everything on their file systems,
/// where the system can do that at once.
///
/// # Errors
/// `Io`, after every one of them was tried. A directory that is gone is passed over: another writer
/// removed it when nothing was left in it.
pub(crate) fn sync(system: &dyn System, dirs: &BTreeSet<PathBuf>, all: bool) -> Result<()> {
    let all = system.syncs_at_once() && (all || dirs.len() >= MANY_MIN);
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
            synced => first = first.or(synced.or_io("unable to sync", dir).err()),
        }
    }
    first.map_or(Ok(()), Err)
}
