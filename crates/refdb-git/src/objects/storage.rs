//! How objects are stored: how many bytes one takes, and what it is a difference from.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use gix_pack::data::entry::Header;
use refdb::{ObjectId, Result};

use super::database::{Database, Place};
use super::packs::{Index, Pack};

/// How an object is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Storage {
    /// The bytes that it takes.
    pub size: u64,
    /// The object that it is stored as a difference from.
    pub delta_base: Option<ObjectId>,
}

/// What was found out to answer such questions: the objects of packs, by their places.
#[derive(Default)]
pub(super) struct Storages(HashMap<PathBuf, Vec<(u64, ObjectId)>>);

impl Storages {
    /// Returns how an object is stored; `None` if it is missing.
    pub(super) fn get(&mut self, database: &Database, oid: ObjectId) -> Result<Option<Storage>> {
        database.find(oid, &mut |place| match place {
            Place::Loose(path, _) => Ok(database.file_len(path)?.map(|size| Storage {
                size,
                delta_base: None,
            })),
            Place::Packed(index, pack, offset) => self.packed(database, index, pack, offset),
        })
    }

    fn packed(
        &mut self,
        database: &Database,
        index: &Index,
        pack: &Pack,
        offset: u64,
    ) -> Result<Option<Storage>> {
        let Some(data) = database.data(pack)? else {
            return Ok(None);
        };
        let objects = match self.0.get(pack.path()) {
            Some(objects) => objects,
            None => {
                let objects = index.objects_of(pack);
                self.0.entry(pack.path().to_owned()).or_insert(objects)
            }
        };
        let after = objects.partition_point(|(place, _)| *place <= offset);
        // An object goes on to where the next one begins, the last one to the checksum.
        let end = objects
            .get(after)
            .map_or_else(|| data.pack_end() as u64, |(place, _)| *place);
        let base = match data.entry(offset).map(|entry| entry.header) {
            Ok(Header::RefDelta { base_id }) => ObjectId::from_bytes(base_id.as_bytes()),
            Ok(Header::OfsDelta { base_distance }) => {
                let place = offset.checked_sub(base_distance);
                let at = |place| objects.binary_search_by_key(&place, |(place, _)| *place);
                let found = place.and_then(|place| at(place).ok());
                found.and_then(|at| objects.get(at)).map(|(_, oid)| *oid)
            }
            Ok(_) => None,
            Err(_) => return Ok(None),
        };
        Ok(Some(Storage {
            size: end.saturating_sub(offset),
            delta_base: base,
        }))
    }
}

/// Returns where an object lies that is in no pack.
pub(super) fn loose_path(folder: &Path, oid: ObjectId) -> PathBuf {
    let mut hex = Vec::new();
    oid.push_hex(&mut hex);
    let (start, rest) = hex.split_at(2);
    let name = |bytes| std::ffi::OsStr::from_bytes(bytes);
    folder.join(name(start)).join(name(rest))
}
