//! The names that were kept from being written when the refs were switched, as a list in the folder of the migration.
//!
//! A loose ref in the old store whose name is not on it was made in the last moment, and is carried over. The list is
//! durable before the switch: locks go, whoever removes them, and what is absent tells nothing.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use refdb::internals::{Frozen, bytes_to_path};
use refdb::{Error, Result};

use super::Context;
use super::folder::Folder;
use super::place::Place;

/// What the list is called.
const LIST: &str = "locked";

/// The names of the list, as paths below the directory with the refs.
pub(super) struct Locked(HashSet<PathBuf>);

impl Locked {
    /// Writes the list: paths, each with a NUL behind it.
    pub(super) fn write(
        context: &Context,
        folder: &Folder,
        places: &[Place],
        frozen: &[Box<dyn Frozen>],
    ) -> Result<()> {
        let mut list = Vec::new();
        for (place, frozen) in places.iter().zip(frozen) {
            for name in frozen.names() {
                list.extend_from_slice(path(place, name).as_os_str().as_bytes());
                list.push(0);
            }
        }
        context.write(&folder.path.join(LIST), &list)
    }

    /// Reads the list that this migration wrote, or the one that it goes on with.
    ///
    /// # Errors
    /// `Io` when there is none, or it cannot be read: nobody knows then what is new in the old stores.
    pub(super) fn read(context: &Context, folder: &Folder) -> Result<Locked> {
        let file = folder.path.join(LIST);
        let list = context.system.read(&file);
        let list = list.map_err(|error| Error::io("unable to read", &file, error))?;
        let paths = list.split(|&byte| byte == 0).map(bytes_to_path);
        Ok(Locked(paths.map(PathBuf::from).collect()))
    }

    /// Returns whether a ref of that place was kept from being written.
    pub(super) fn has(&self, place: &Place, name: &[u8]) -> bool {
        self.0.contains(&path(place, name))
    }
}

fn path(place: &Place, name: &[u8]) -> PathBuf {
    place.below.join(bytes_to_path(name))
}
