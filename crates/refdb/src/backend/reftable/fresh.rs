//! Whether a stack without a list and without tables is new, or has lost them.
//!
//! Git writes the first list before a repository is one at all, and before it uses a worktree. So a
//! stack without a list is one whose making was cut short, or that another program made, and then
//! there is nothing beside it that refs could have held; or it is damage. And so is whatever else has the
//! place of a file.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::tables::stack_dir;
use crate::error::{Error, Result};
use crate::system::{FileKind, System, if_there, list};

/// What Git notes in the file `locked` of a worktree while it makes it.
const BEING_MADE: &[u8] = b"initializing";

/// A stack that lost everything.
#[derive(Debug)]
pub struct Lost {
    /// What is missing or wrong.
    pub path: PathBuf,
    /// What is wrong with it, and what that means.
    pub what: String,
    is_link: bool,
}

impl Lost {
    fn every_ref(path: PathBuf, what: &str) -> Lost {
        Lost {
            path,
            what: format!("{what}: every ref is gone"),
            is_link: false,
        }
    }

    /// Returns what a person can do.
    pub fn advice(&self) -> String {
        let dir = self.dir().display();
        let first = match self.is_link {
            true => format!("rm '{dir}' && "),
            false => String::new(),
        };
        format!(
            "put back what was there, from a copy or from a disk that is not mounted; to begin again \
             without a ref: {first}mkdir -p '{dir}' && echo >'{dir}/tables.list'"
        )
    }

    fn dir(&self) -> &Path {
        match self
            .path
            .file_name()
            .is_some_and(|name| name == "tables.list")
        {
            true => self.path.parent().unwrap_or(&self.path),
            false => &self.path,
        }
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

/// Says what a stack lost in which neither a list with content nor a table is; `None` if it is new.
/// `base` is the directory that `reftable/` is in. `objects` is where the objects are of the
/// repository, if this is its common stack, and none for that of a linked worktree.
///
/// # Errors
/// `Io` when the system refuses to tell.
pub fn what_is_lost(
    system: &dyn System,
    base: &Path,
    objects: Option<&Path>,
) -> Result<Option<Lost>> {
    let dir = stack_dir(base);
    let unreadable = |error| Error::io("cannot read", &stack_dir(base), error);
    let stat = if_there(system.stat(&dir)).map_err(unreadable)?;
    let is_there = stat.is_some_and(|stat| stat.kind == FileKind::Directory);
    if is_new(system, base, objects, is_there).map_err(unreadable)? {
        return Ok(None);
    }
    if is_there {
        let what = "the list of tables is missing or empty, and there are no tables";
        return Ok(Some(Lost::every_ref(dir.join("tables.list"), what)));
    }
    let Some(stat) = system.lstat(&dir).ok() else {
        return Ok(Some(Lost::every_ref(dir, "the directory is missing")));
    };
    if stat.kind != FileKind::Symlink {
        return Ok(Some(Lost::every_ref(dir, "it is no directory")));
    }
    let text = system.read_link(&dir).map_err(unreadable)?;
    let what = format!("the link leads nowhere, to '{}'", text.display());
    Ok(Some(Lost {
        is_link: true,
        ..Lost::every_ref(dir, &what)
    }))
}

/// Returns the error of a file that cannot be read: damage where something else has its place.
pub(super) fn unreadable(
    system: &dyn System,
    doing: &'static str,
    path: &Path,
    error: io::Error,
) -> Error {
    match system.stat(path) {
        Ok(stat) if stat.kind != FileKind::File => Error::corrupt(
            path,
            "a directory, a pipe or a device has the place of the file",
        ),
        _ => Error::io(doing, path, error),
    }
}

fn is_new(
    system: &dyn System,
    base: &Path,
    objects: Option<&Path>,
    is_there: bool,
) -> io::Result<bool> {
    let has = |path: &Path| system.find(path).map(|found| found.is_some());
    if !has(base)? {
        // A worktree that nobody made, or that is no more.
        return Ok(true);
    }
    if has(&base.join("index"))? {
        return Ok(false);
    }
    if let Some(objects) = objects {
        // Git makes the directory first of all that a repository must have. What a push brings may have a place of its
        // own, which is empty where it brings nothing.
        return Ok(is_there
            && !has(&base.join("worktrees"))?
            && !has_objects(system, objects)?
            && !has_objects(system, &base.join("objects"))?);
    }
    // Git writes the file `refs/heads` between the directory and the list.
    if !has(&base.join("refs").join("heads"))? {
        return Ok(true);
    }
    match system.read_at_most(&base.join("locked"), BEING_MADE.len()) {
        Ok(reason) => Ok(reason == BEING_MADE),
        Err(_) => Ok(false),
    }
}

/// Returns whether a repository has, or borrows, an object.
fn has_objects(system: &dyn System, objects: &Path) -> io::Result<bool> {
    for entry in list(system, objects)? {
        let is_empty = match entry.name.as_slice() {
            b"info" => list(system, &objects.join("info"))?.is_empty(),
            b"pack" => list(system, &objects.join("pack"))?.is_empty(),
            _ => false,
        };
        if !is_empty {
            return Ok(true);
        }
    }
    Ok(false)
}
