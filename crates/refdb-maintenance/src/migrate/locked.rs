//! What was kept from being written when the refs were switched, as a list in the folder of the migration: the names of
//! refs in files, or the tables of each stack.
//!
//! A loose ref in the old store whose name is not on it was made in the last moment, and is carried over. A table that
//! is not on it was written afterwards, which only somebody can do who removes locks: the old refs are kept. The list is
//! durable before the switch: locks go, whoever removes them, and what is absent tells nothing. Should the list itself be
//! gone, nothing is carried over, and the old refs are kept.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use bstr::ByteSlice;
use refdb::internals::{Frozen, bytes_to_path, is_absent};
use refdb::{Error, RefFormat, Result};

use super::Context;
use super::folder::Folder;
use super::moving::{LIST as LIST_OF_TABLES, STACK};
use super::place::Place;

/// What the list is called.
const LIST: &str = "locked";

/// What is on the list, as paths below the directory with the refs.
pub(super) struct Locked(HashSet<PathBuf>);

impl Locked {
    /// Writes the list: how many paths there are, and a line feed; then these, each with a NUL behind it.
    pub(super) fn write(
        context: &Context,
        folder: &Folder,
        places: &[Place],
        frozen: &[Box<dyn Frozen>],
        from: RefFormat,
    ) -> Result<()> {
        let mut paths = Vec::new();
        for (place, frozen) in places.iter().zip(frozen) {
            match from {
                RefFormat::Files => {
                    let names = frozen.names().into_iter();
                    paths.extend(names.map(|name| path(place, name)));
                }
                RefFormat::Reftable => paths.extend(tables(context, place, &place.dir)?),
            }
        }
        let mut list = format!("{}\n", paths.len()).into_bytes();
        for path in paths {
            list.extend_from_slice(path.as_os_str().as_bytes());
            list.push(0);
        }
        context.write(&folder.path.join(LIST), &list)
    }

    /// Reads the list that this migration wrote, or the one that it goes on with; `None` if it is gone.
    ///
    /// # Errors
    /// `Io` when it cannot be read; `Corrupt` when it is not whole.
    pub(super) fn read(context: &Context, folder: &Folder) -> Result<Option<Locked>> {
        let file = folder.path.join(LIST);
        let way_out = "what a migration has left cannot be finished; move this file away, and the old refs are kept";
        let list = match context.system.read(&file) {
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => return Err(Error::io("unable to read", &file, error).context(way_out)),
            Ok(list) => list,
        };
        let damaged = || Error::corrupt_with(&file, "it is not whole", None).context(way_out);
        let (count, names) = list.split_once_str("\n").ok_or_else(damaged)?;
        let names = names.split(|&byte| byte == 0);
        let paths: HashSet<PathBuf> = names
            .filter(|name| !name.is_empty())
            .map(|name| bytes_to_path(name).to_owned())
            .collect();
        match count == paths.len().to_string().as_bytes() {
            true => Ok(Some(Locked(paths))),
            false => Err(damaged()),
        }
    }

    /// Returns whether the stack of a place, which was put away into `old`, has only tables that it had at the switch.
    pub(super) fn has_tables(&self, context: &Context, place: &Place, old: &Path) -> Result<bool> {
        let tables = tables(context, place, old)?;
        Ok(tables.iter().all(|table| self.0.contains(table)))
    }

    /// Returns whether a ref of that place was kept from being written.
    pub(super) fn has(&self, place: &Place, name: &[u8]) -> bool {
        self.0.contains(&path(place, name))
    }
}

/// Returns the tables on the list of the stack in a directory, if there is one.
fn tables(context: &Context, place: &Place, dir: &Path) -> Result<Vec<PathBuf>> {
    let list = dir.join(STACK).join(LIST_OF_TABLES);
    match context.system.read(&list) {
        Err(error) if is_absent(&error) => Ok(Vec::new()),
        Err(error) => Err(Error::io("unable to read", &list, error)),
        Ok(content) => {
            let tables = content.lines().filter(|line| !line.is_empty());
            let stack = place.below.join(STACK);
            Ok(tables
                .map(|table| stack.join(bytes_to_path(table)))
                .collect())
        }
    }
}

fn path(place: &Place, name: &[u8]) -> PathBuf {
    place.below.join(bytes_to_path(name))
}
