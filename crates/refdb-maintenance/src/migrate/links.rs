//! Repositories that have their refs or their configuration from elsewhere, by links: from another one,
//! as `git-new-workdir` makes them, which would list nothing after a migration of this one, or from a
//! folder that may have more in it than refs, which would be moved with them. Nor is a link within the
//! repository followed: what is written follows none, as somebody may put one there meanwhile.

use std::path::{Path, PathBuf};

use refdb::internals::{bytes_to_path, is_absent};
use refdb::system::{FileKind, System};
use refdb::{Error, ErrorKind, Result};

use super::context::Context;
use super::folder::{self, list};
use super::place::Place;

/// What a migration changes, and what could be a link.
const CHANGED: [&str; 7] = [
    "config",
    "refs",
    "packed-refs",
    "reftable",
    "logs",
    "logs/refs",
    "worktrees",
];

/// Makes sure that what a migration changes is no link, but for a configuration that is in this repository
/// or in none: that is changed in one place and nothing else is touched beside it.
///
/// # Errors
/// `Unsupported` if something is not; `Io` if that cannot be found out.
pub(super) fn check(context: &Context, places: &[Place]) -> Result<()> {
    let system = context.system.as_ref();
    let real = |path: &Path| {
        refdb_git::internals::real_path(system, path)
            .map_err(|error| Error::io("unable to follow the links of", path, error))
    };
    let here = real(&context.base)?;
    for place in places {
        for name in CHANGED {
            let path = match name {
                "config" if place.is_common() => context.common_dir.join(name),
                _ => place.dir.join(name),
            };
            if !is_link(system, &path)? {
                continue;
            }
            let target = real(&path)?;
            let other = match target.starts_with(&here) {
                // What another migration left, which leads nowhere.
                true if !folder::exists(system, &target)? => continue,
                true => None,
                false => repository_of(system, &target)?,
            };
            if other.is_some() || name != "config" {
                return Err(refused(&path, &target, other.as_deref()));
            }
        }
        let mut folders = Vec::new();
        linked_folders(system, &place.dir.join("refs"), &mut folders)?;
        if let Some(path) = folders.first() {
            return Err(refused(path, &real(path)?, None));
        }
    }
    Ok(())
}

fn refused(path: &Path, target: &Path, other: Option<&Path>) -> Error {
    let what = match other {
        Some(other) => format!(
            "which belongs to another repository: '{}' would list no refs after a migration of this \
             one",
            other.display()
        ),
        None => "and a migration follows no link: what is there may be more than refs, and somebody could \
                 exchange it meanwhile. Put the folder itself there first"
            .to_owned(),
    };
    let (path, target) = (path.display(), target.display());
    let message = format!("'{path}' is a link to '{target}', {what}");
    Error::new(ErrorKind::Unsupported, message)
}

/// Finds the links to folders below a folder of refs. Links to files are refs, and are not followed
/// when they are moved.
fn linked_folders(system: &dyn System, dir: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in list(system, dir)? {
        let path = dir.join(bytes_to_path(&entry.name));
        match entry.kind {
            FileKind::Directory => linked_folders(system, &path, found)?,
            FileKind::Symlink => {
                let stat = system.stat(&path);
                if stat.is_ok_and(|stat| stat.kind == FileKind::Directory) {
                    found.push(path);
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns whether there is a link of that name.
pub(super) fn is_link(system: &dyn System, path: &Path) -> Result<bool> {
    match system.lstat(path) {
        Ok(stat) => Ok(stat.kind == FileKind::Symlink),
        Err(error) if is_absent(&error) => Ok(false),
        Err(error) => Err(Error::io("unable to read", path, error)),
    }
}

/// Returns the repository in which a file is, be it a file that is still to be made.
fn repository_of(system: &dyn System, path: &Path) -> Result<Option<PathBuf>> {
    for dir in path.ancestors().skip(1) {
        let mut has_all = true;
        for name in ["HEAD", "objects", "refs"] {
            has_all = has_all && folder::exists(system, &dir.join(name))?;
        }
        if has_all {
            return Ok(Some(dir.to_owned()));
        }
    }
    Ok(None)
}
