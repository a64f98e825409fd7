//! Where refs are kept: the common directory, and that of each linked worktree.

use std::path::{Path, PathBuf};

use refdb::internals::bytes_to_path;
use refdb::name::is_per_worktree;
use refdb::system::{FileKind, System};
use refdb::{Error, ErrorKind, Result};

/// One directory with refs of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The directory.
    pub(super) dir: PathBuf,
    /// The directory as it is called in a copy of the repository's layout.
    pub(super) below: PathBuf,
    /// What stands before names of refs that are kept here, as other worktrees call them.
    pub(super) prefix: String,
    is_common: bool,
    /// Which directory of that name it is: a worktree can be removed and added again.
    number: Option<u64>,
}

impl Place {
    /// Returns whether this is the common directory.
    pub(super) fn is_common(&self) -> bool {
        self.is_common
    }

    /// Returns whether a ref of that name is kept here.
    pub(super) fn keeps(&self, name: &[u8]) -> bool {
        self.is_common || is_per_worktree(name)
    }
}

/// Returns the common directory, or whichever has its refs, then those of linked worktrees in the order of their ids.
///
/// Every directory in `worktrees/` counts, also that of a worktree that is just being made: its refs
/// are as much in the old format as others.
pub(super) fn list(system: &dyn System, base: &Path) -> Result<Vec<Place>> {
    let mut places = vec![Place {
        dir: base.to_owned(),
        below: PathBuf::new(),
        prefix: String::new(),
        is_common: true,
        number: None,
    }];
    let dir = base.join("worktrees");
    let mut entries = match system.read_dir(&dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        entries => entries.map_err(|error| Error::io("unable to list", &dir, error))?,
    };
    entries.retain(|entry| entry.kind == FileKind::Directory);
    entries.sort_by(|low, high| low.name.cmp(&high.name));
    for entry in entries {
        let name = Path::new(bytes_to_path(&entry.name));
        let path = dir.join(name);
        // One that has just gone is no worktree.
        let found = system.find(&path);
        let found = found.map_err(|error| Error::io("unable to read", &path, error))?;
        let Some(stat) = found else {
            continue;
        };
        places.push(Place {
            dir: path,
            below: Path::new("worktrees").join(name),
            prefix: format!("worktrees/{}/", String::from_utf8_lossy(&entry.name)),
            is_common: false,
            number: Some(stat.ino),
        });
    }
    Ok(places)
}

/// Makes sure that these are all there are, and the same ones.
///
/// # Errors
/// `Locked` if not.
pub(super) fn check(system: &dyn System, base: &Path, places: &[Place]) -> Result<()> {
    match list(system, base)? == places {
        true => Ok(()),
        false => Err(Error::new(
            ErrorKind::Locked,
            "worktrees were added or removed meanwhile; try again",
        )),
    }
}
