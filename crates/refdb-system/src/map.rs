//! Mapping files into memory: the only `unsafe` of this crate.
#![expect(unsafe_code, reason = "a memory map cannot be made without it")]

use std::fs::File;
use std::io;

use super::Bytes;

/// Files below this many bytes are copied: a map costs more than it saves, and most tables and
/// packed-refs files of everyday repositories are smaller. While a map lives, no other file gets the
/// inode of its file.
pub const MAP_MIN: u64 = 64 * 1024;

/// Returns the content of `file`, which nobody changes in place.
///
/// Tables and packed-refs are only ever replaced by renaming a new file over the old name, so the
/// mapped inode keeps its content for as long as the map lives.
pub(crate) fn content(file: &File, len: u64) -> io::Result<Bytes> {
    if len < MAP_MIN {
        let mut buffer = Vec::with_capacity(usize::try_from(len).unwrap_or(0));
        io::Read::read_to_end(&mut &*file, &mut buffer)?;
        return Ok(buffer.into());
    }
    let len = usize::try_from(len).map_err(io::Error::other)?;
    // SAFETY: the map is read-only and private. The files mapped here are never written in place
    // by Git or by this library, only replaced by rename. If some other program truncates one
    // while it is mapped, the process is ended by SIGBUS; it cannot read wrong memory.
    let map = unsafe { memmap2::MmapOptions::new().len(len).map(file)? };
    Ok(Bytes::from_owner(map))
}
