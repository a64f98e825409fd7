//! How objects are stored: how many bytes one takes, and what it is a difference from.

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

impl Database {
    /// Returns how an object is stored; `None` if it is missing.
    pub(super) fn storage(&self, oid: ObjectId) -> Result<Option<Storage>> {
        self.find(oid, &mut |place| match place {
            Place::Loose(path, _) => Ok(self.file_len(path)?.map(|size| Storage {
                size,
                delta_base: None,
            })),
            Place::Packed(index, pack, offset) => self.packed_storage(index, pack, offset),
        })
    }

    fn packed_storage(&self, index: &Index, pack: &Pack, offset: u64) -> Result<Option<Storage>> {
        let Some(data) = self.data(pack)? else {
            return Ok(None);
        };
        let order = index.order_of(&self.system, pack);
        let after = order.partition_point(|(start, _)| *start <= offset);
        // An object goes on to where the next one begins, the last one to the checksum.
        let end = order.get(after);
        let end = end.map_or_else(|| data.pack_end() as u64, |(start, _)| *start);
        let base = match data.entry(offset).map(|entry| entry.header) {
            Ok(Header::RefDelta { base_id }) => ObjectId::from_bytes(base_id.as_bytes()),
            Ok(Header::OfsDelta { base_distance }) => {
                let start = offset.checked_sub(base_distance);
                let at = |start| order.binary_search_by_key(&start, |(start, _)| *start);
                let found = start.and_then(|start| order.get(at(start).ok()?));
                found.and_then(|(_, at)| index.id_in(&self.system, pack, *at))
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
