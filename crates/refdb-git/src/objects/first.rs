//! What the first object is that anybody asks for, told without opening the database.
//!
//! A process that moves one ref, or reads one, asks for no other, and to open the database takes
//! longer than all the rest that it does. What is not found here at once, or is stored as a
//! difference from something else, is left to the database, which also says what is wrong.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use gix_pack::{data, index};
use refdb::system::{FileKind, OsSystem, System};
use refdb::{ObjectFormat, ObjectId};

use super::Header;
use super::odb::{gix_kind, kind_from_gix, to_gix};
use super::storage::loose_path;

/// Of more packs than that the database knows better where to look first.
const PACKS_MAX: usize = 8;

/// Whoever opens an index reads a part of it. In vain that should not take long.
const INDEX_LEN_MAX: u64 = 8 << 20;

/// Before its data, an object in a pack has no more bytes than that: its kind and length, and which
/// object it is a difference from.
const ENTRY_LEN_MAX: usize = 64;

/// Returns kind and size of an object in the folder `objects`; `None` if the database has to be asked.
pub(super) fn header(objects: &Path, format: ObjectFormat, oid: &ObjectId) -> Option<Header> {
    loose(objects, format, oid).or_else(|| packed(objects, format, oid))
}

fn loose(objects: &Path, format: ObjectFormat, oid: &ObjectId) -> Option<Header> {
    // The library makes the same path, but asks the processor first how that is done best, and waits
    // for what is no file.
    let stat = OsSystem::new().stat(&loose_path(objects, *oid)).ok()?;
    if stat.kind != FileKind::File {
        return None;
    }
    let objects = gix_odb::loose::Store::at(objects, gix_kind(format));
    let (size, kind) = objects.try_header(to_gix(oid)).ok()??;
    let kind = kind_from_gix(kind);
    Some(Header { kind, size })
}

fn packed(objects: &Path, format: ObjectFormat, oid: &ObjectId) -> Option<Header> {
    let packs = objects.join("pack").read_dir().ok()?;
    let mut indices: Vec<PathBuf> = Vec::new();
    for file in packs {
        let file = file.ok()?;
        if !file.file_name().as_bytes().ends_with(b".idx") {
            continue;
        }
        if indices.len() == PACKS_MAX || file.metadata().ok()?.len() > INDEX_LEN_MAX {
            return None;
        }
        indices.push(file.path());
    }
    indices.iter().find_map(|path| {
        let content = OsSystem::new().map(path).ok()?;
        let index = index::File::from_data(content, path.clone(), gix_kind(format)).ok()?;
        let offset = index.pack_offset_at_index(index.lookup(to_gix(oid))?);
        let entry = entry(&path.with_extension("pack"), offset, format)?;
        let kind = kind_from_gix(entry.header.as_kind()?);
        let size = entry.decompressed_size;
        Some(Header { kind, size })
    })
}

/// Reads what a pack says of the object at an offset.
fn entry(pack: &Path, offset: u64, format: ObjectFormat) -> Option<data::Entry> {
    // The library maps all of it, and asks the processor how its path is hashed best.
    let mut pack = OsSystem::new().open(pack).ok()?;
    let mut start = [0; data::header::SIZE];
    pack.read_at(0, &mut start).ok()?;
    data::header::decode(&start).ok()?;
    let mut bytes = [0; ENTRY_LEN_MAX];
    let count = pack.read_at(offset, &mut bytes).ok()?;
    data::Entry::from_bytes(bytes.get(..count)?, offset, gix_kind(format)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_damaged_or_missing_is_left_to_the_database() {
        let dir = tempfile::tempdir().unwrap();
        let oid = ObjectId::from_hex(&[b'1'; 40]).unwrap();
        let ask = || header(dir.path(), ObjectFormat::Sha1, &oid);
        assert_eq!(ask(), None);
        let folder = dir.path().join("11");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("1".repeat(38)), "no object").unwrap();
        assert_eq!(ask(), None);
        let packs = dir.path().join("pack");
        std::fs::create_dir_all(&packs).unwrap();
        std::fs::write(packs.join("pack-1.idx"), "no index").unwrap();
        assert_eq!(ask(), None);
    }
}
