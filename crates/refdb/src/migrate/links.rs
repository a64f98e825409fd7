//! Repositories that have their refs or their configuration from another one, by links, as
//! `git-new-workdir` makes them: they are not migrated, since the other one would list nothing then.

use std::path::{Path, PathBuf};

use super::place::Place;
use crate::error::{Error, ErrorKind, Result};
use crate::system::{FileKind, System};

/// What a migration changes, and what could be a link.
const CHANGED: [&str; 6] = [
    "config",
    "refs",
    "packed-refs",
    "reftable",
    "logs",
    "logs/refs",
];

/// Makes sure that nothing that a migration changes belongs to another repository.
///
/// # Errors
/// `Unsupported` if something does; `Io` if that cannot be found out.
pub(super) fn check(system: &dyn System, common_dir: &Path, places: &[Place]) -> Result<()> {
    let real = |path: &Path| {
        crate::repository::real_path(system, path)
            .map_err(|error| Error::io("unable to follow the links of", path, error))
    };
    let here = real(common_dir)?;
    for place in places {
        for name in CHANGED {
            let path = place.dir.join(name);
            if !is_link(system, &path)? {
                continue;
            }
            let target = real(&path)?;
            if target.starts_with(&here) {
                continue;
            }
            if let Some(other) = repository_of(system, &target)? {
                let (path, target, other) = (path.display(), target.display(), other.display());
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!(
                        "'{path}' is a link to '{target}', which belongs to another repository: \
                         '{other}' would list no refs after a migration of this one"
                    ),
                ));
            }
        }
    }
    Ok(())
}

fn is_link(system: &dyn System, path: &Path) -> Result<bool> {
    match system.lstat(path) {
        Ok(stat) => Ok(stat.kind == FileKind::Symlink),
        Err(error) if super::folder::is_absent(&error) => Ok(false),
        Err(error) => Err(Error::io("unable to read", path, error)),
    }
}

/// Returns the repository in which a file is, be it a file that is still to be made.
fn repository_of(system: &dyn System, path: &Path) -> Result<Option<PathBuf>> {
    for dir in path.ancestors().skip(1) {
        let mut has_all = true;
        for name in ["HEAD", "objects", "refs"] {
            has_all = has_all && super::folder::exists(system, &dir.join(name))?;
        }
        if has_all {
            return Ok(Some(dir.to_owned()));
        }
    }
    Ok(None)
}
