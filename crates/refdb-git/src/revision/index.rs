//! The index, as far as `:path` asks for it: the object of one path, in the versions 2 to 4.
//!
//! What does not have the form of an index is an error; checksum and extensions are not looked at,
//! but for the one that says that the entries are elsewhere.

use std::path::Path;

use bstr::ByteSlice;
use refdb::{Error, ErrorKind, ObjectFormat, ObjectId, Result};

/// How many bytes of an entry tell of the file in the work tree.
const STAT_LEN: usize = 40;
/// Set in the flags of entries with more flags.
const EXTENDED: u16 = 0x4000;

/// Returns the object of `path` in a stage, by the content of the index at `file`.
pub(super) fn find(
    content: &[u8],
    file: &Path,
    format: ObjectFormat,
    path: &[u8],
    stage: u16,
) -> Result<Option<ObjectId>> {
    let damaged = || Error::corrupt(file, "this is no index");
    let mut rest = content.strip_prefix(b"DIRC").ok_or_else(damaged)?;
    let version = take_u32(&mut rest).ok_or_else(damaged)?;
    let count = take_u32(&mut rest).ok_or_else(damaged)?;
    if !(2..=4).contains(&version) {
        let text = format!("index of version {version} in {}", file.display());
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    let mut name = Vec::new();
    for _ in 0..count {
        let entry = Entry::take(&mut rest, version, format, &mut name).ok_or_else(damaged)?;
        if name == path && entry.stage == stage {
            return Ok(Some(entry.oid));
        }
    }
    if is_split(rest, format) {
        let text = format!("{} is split, and cannot be read", file.display());
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    Ok(None)
}

/// What is of interest of an entry.
struct Entry {
    oid: ObjectId,
    stage: u16,
}

impl Entry {
    /// Reads an entry off the front of `rest`; `name` holds the name of the one before it, and then
    /// its own.
    fn take(
        rest: &mut &[u8],
        version: u32,
        format: ObjectFormat,
        name: &mut Vec<u8>,
    ) -> Option<Entry> {
        let start = *rest;
        take(rest, STAT_LEN)?;
        let oid = ObjectId::from_bytes(take(rest, format.raw_len())?)?;
        let flags = u16::from_be_bytes(take(rest, 2)?.try_into().ok()?);
        if version >= 3 && flags & EXTENDED != 0 {
            take(rest, 2)?;
        }
        let kept = match version {
            4 => name.len().checked_sub(take_varint(rest)?)?,
            _ => 0,
        };
        name.truncate(kept);
        let len = rest.find_byte(0)?;
        name.extend_from_slice(take(rest, len)?);
        if version < 4 {
            // From one to eight zeros fill the entry up.
            let used = start.len() - rest.len();
            take(rest, 8 - used % 8)?;
        } else {
            take(rest, 1)?;
        }
        Some(Entry {
            oid,
            stage: flags >> 12 & 3,
        })
    }
}

/// Returns whether the extensions name another index with more entries.
fn is_split(mut extensions: &[u8], format: ObjectFormat) -> bool {
    while extensions.len() > format.raw_len() {
        let Some(signature) = take(&mut extensions, 4) else {
            break;
        };
        if signature == b"link" {
            return true;
        }
        let len = take_u32(&mut extensions).and_then(|len| usize::try_from(len).ok());
        if len.and_then(|len| take(&mut extensions, len)).is_none() {
            break;
        }
    }
    false
}

fn take<'b>(rest: &mut &'b [u8], len: usize) -> Option<&'b [u8]> {
    let (taken, after) = rest.split_at_checked(len)?;
    *rest = after;
    Some(taken)
}

fn take_u32(rest: &mut &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(take(rest, 4)?.try_into().ok()?))
}

/// Reads a number in the form that packs have for offsets, too.
fn take_varint(rest: &mut &[u8]) -> Option<usize> {
    let mut value = 0_usize;
    loop {
        let byte = *take(rest, 1)?.first()?;
        value = value
            .checked_mul(128)?
            .checked_add(usize::from(byte & 127))?;
        if byte & 128 == 0 {
            return Some(value);
        }
        value = value.checked_add(1)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_an_error() {
        for content in [
            &b""[..],
            b"DIRC",
            b"DIRC\0\0\0\x02\0\0\0\x01",
            b"XXXX\0\0\0\x02\0\0\0\0",
        ] {
            let found = find(content, Path::new("index"), ObjectFormat::Sha1, b"a", 0);
            assert_eq!(found.unwrap_err().kind(), ErrorKind::Corrupt);
        }
        let newer = b"DIRC\0\0\0\x09\0\0\0\0";
        let found = find(newer, Path::new("index"), ObjectFormat::Sha1, b"a", 0);
        assert_eq!(found.unwrap_err().kind(), ErrorKind::Unsupported);
        let empty = b"DIRC\0\0\0\x02\0\0\0\0";
        let found = find(empty, Path::new("index"), ObjectFormat::Sha1, b"a", 0);
        assert_eq!(found.unwrap(), None);
    }

    #[test]
    fn numbers() {
        assert_eq!(take_varint(&mut &b"\x05"[..]), Some(5));
        assert_eq!(take_varint(&mut &b"\x80\x00"[..]), Some(128));
        assert_eq!(take_varint(&mut &b"\x80"[..]), None);
    }
}
