//! How new content gets the name under which it is read.

use std::io;
use std::path::Path;

use super::content::Content;
use super::entries::{Entry, is_exchanged};
use super::place::Place;
use super::remove_if_there;
use super::step::{How, Taken, is_in_the_way};
use crate::error::{Error, Result};
use crate::system::{FileKind, System, Tree, remove_empty_tree};

/// How often locks below a ref are removed, if new ones come between that and the renaming.
const PUSHES_MAX: u32 = 1000;

/// Gives a file another name, should there be an empty directory in its place as well.
pub(super) fn rename(system: &dyn System, from: &Path, to: &Path) -> io::Result<()> {
    let renamed = system.rename(from, to);
    match renamed {
        Err(_) if remove_empty_tree(system, to) => system.rename(from, to),
        renamed => renamed,
    }
}

/// Gives new content its name. What fails in the system is told apart from what must not be tried.
pub(super) fn put(
    system: &dyn System,
    value: &Path,
    place: &Place,
    path: &Path,
    content: Option<Content>,
    how: How<'_>,
) -> Result<io::Result<()>> {
    if let Some(content) = content
        && !content.is_at(system, value)?
    {
        // It is in place, or somebody took it away: whoever finishes the change has told that.
        return Ok(Ok(()));
    }
    Ok(match rename(system, value, path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !how.is_live => system
            .find(path)
            .and_then(|found| found.map(drop).ok_or(error)),
        Err(error) if is_in_the_way(&error) && how.is_journalled => match place {
            Place::Ref(_) => push_through(system, value, path),
            _ => Err(error),
        },
        renamed => renamed,
    })
}

/// Lets a lock with new content and the barrier in the place of its ref change places, and removes the barrier, which
/// has the name of the lock then. Who renames over something waits on ext4 until the kernel has found blocks for the
/// content: in a loop of nothing but these calls a new ref took 240 us, and takes 90 (a file without a barrier 65).
///
/// A process that ends in between leaves the barrier: [`take_over`](super::take_over) knows it.
pub(super) fn put_for_barrier(
    system: &dyn System,
    lock: &Path,
    path: &Path,
    taken: &mut Taken,
) -> io::Result<()> {
    // Not every file system can do that, and one that is far away may have done it and say that it failed. What else is
    // wrong the renaming tells as well.
    if system.exchange(lock, path).is_err() && !is_exchanged(system, lock) {
        return rename(system, lock, path);
    }
    let failed = |error| Error::io("Git cannot lock the ref: unable to remove", lock, error);
    // What stays is in everybody's way: worth a second attempt.
    let is_left = || is_exchanged(system, lock);
    if is_left() || is_left() {
        let remove = || remove_if_there(system, lock);
        let removed = remove().or_else(|_| remove());
        taken.lost.extend(removed.map_err(failed).err());
        return Ok(());
    }
    // Somebody removed the barrier and put something else there, or removed the link and has the lock now.
    match system.find(lock)?.map(|stat| stat.kind) {
        Some(FileKind::Directory) if !remove_empty_tree(system, lock) => {
            system.exchange(lock, path)?;
            return Err(io::ErrorKind::IsADirectory.into());
        }
        None | Some(FileKind::Directory) => {}
        Some(_) => taken.lost.push(failed(io::ErrorKind::AlreadyExists.into())),
    }
    Ok(())
}

/// Gives new content the name of a ref where somebody has made a directory, to lock a name below. He cannot have that
/// name: the upper ref is there, or a journal has committed it. So his lock goes, even if it is one of Git's. Anything
/// else stays, and is an error.
fn push_through(system: &dyn System, value: &Path, path: &Path) -> io::Result<()> {
    let mut renamed = Err(io::ErrorKind::IsADirectory.into());
    for _ in 0..PUSHES_MAX {
        for leaf in Tree::new(system, path, b"") {
            let leaf = leaf.map_err(|(_, error)| error)?;
            match Entry::of_leaf(system, &leaf) {
                Entry::Lock | Entry::NewValue | Entry::Barrier => {
                    remove_if_there(system, &leaf.path)?;
                }
                Entry::Ref | Entry::Dir => return Err(io::ErrorKind::IsADirectory.into()),
            }
        }
        renamed = rename(system, value, path);
        if !renamed.as_ref().is_err_and(is_in_the_way) {
            break;
        }
    }
    renamed
}
