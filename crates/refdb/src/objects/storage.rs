//! How objects are stored: how many bytes one takes, and what it is a difference from.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gix_odb::Store;
use gix_pack::Find;
use gix_pack::data::Entry;
use gix_pack::data::entry::{Header, Location};

use super::odb::{to_gix, unreadable};
use crate::error::Result;
use crate::oid::ObjectId;

/// How an object is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Storage {
    /// The bytes that it takes.
    pub size: u64,
    /// The object that it is stored as a difference from.
    pub delta_base: Option<ObjectId>,
}

/// What was opened to answer such questions.
pub(super) struct Storages {
    places: Vec<Place>,
}

struct Place {
    handle: gix_odb::HandleArc,
    /// The folders with loose objects.
    folders: Vec<PathBuf>,
    /// The objects of packs, sorted by their place in the pack.
    packs: HashMap<u32, Vec<(u64, ObjectId)>>,
}

impl Storages {
    /// Opens the databases, whose folders are `dirs`.
    pub(super) fn new(stores: &[Arc<Store>], dirs: &[PathBuf]) -> Result<Storages> {
        let mut places = Vec::with_capacity(stores.len());
        for store in stores {
            let mut handle = store.to_cache_arc();
            handle.prevent_pack_unload();
            let mut folders = dirs.to_vec();
            let alternates = store.alternate_db_paths();
            folders.extend(alternates.map_err(|error| unreadable(&error))?);
            places.push(Place {
                handle,
                folders,
                packs: HashMap::new(),
            });
        }
        Ok(Storages { places })
    }

    /// Returns how an object is stored; `None` if it is missing.
    pub(super) fn get(&mut self, oid: ObjectId) -> Result<Option<Storage>> {
        let mut buffer = Vec::new();
        for place in &mut self.places {
            let location = place.handle.location_by_oid(to_gix(&oid), &mut buffer);
            if let Some(location) = location.map_err(|error| unreadable(&error))? {
                return place.packed(&location, oid).map(Some);
            }
        }
        let loose = self.places.iter().flat_map(|place| &place.folders);
        Ok(loose
            .filter_map(|folder| loose_path(folder, oid).metadata().ok())
            .map(|file| Storage {
                size: file.len(),
                delta_base: None,
            })
            .next())
    }
}

impl Place {
    fn packed(&mut self, location: &Location, oid: ObjectId) -> Result<Storage> {
        let entry = self.handle.entry_by_location(location);
        let kind = to_gix(&oid).kind();
        let header = entry.and_then(|entry| {
            let entry = Entry::from_bytes(&entry.data, location.pack_offset, kind).ok()?;
            Some(entry.header)
        });
        let delta_base = match header {
            Some(Header::RefDelta { base_id }) => ObjectId::from_bytes(base_id.as_bytes()),
            Some(Header::OfsDelta { base_distance }) => {
                let offset = location.pack_offset.checked_sub(base_distance);
                match offset {
                    Some(offset) => self.at(location.pack_id, offset)?,
                    None => None,
                }
            }
            _ => None,
        };
        Ok(Storage {
            size: u64::try_from(location.entry_size).unwrap_or(u64::MAX),
            delta_base,
        })
    }

    /// Returns the object at a place of a pack.
    fn at(&mut self, pack: u32, offset: u64) -> Result<Option<ObjectId>> {
        if !self.packs.contains_key(&pack) {
            let objects = self.handle.pack_offsets_and_oid(pack);
            let objects = objects.map_err(|error| unreadable(&error))?;
            let objects = objects.unwrap_or_default().into_iter();
            let mut objects: Vec<_> = objects
                .filter_map(|(offset, id)| Some((offset, ObjectId::from_bytes(id.as_bytes())?)))
                .collect();
            objects.sort_unstable();
            self.packs.insert(pack, objects);
        }
        let objects = self.packs.get(&pack).map(Vec::as_slice).unwrap_or_default();
        let index = objects.binary_search_by_key(&offset, |(offset, _)| *offset);
        Ok(index
            .ok()
            .and_then(|index| objects.get(index))
            .map(|(_, oid)| *oid))
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
