//! The header and the footer of a table (docs/format.md, "Header" and "Footer").

use crc::{CRC_32_ISO_HDLC, Crc};

use crate::error::{Error, Result};
use crate::object_format::ObjectFormat;

/// The first bytes of every table.
pub(crate) const MAGIC: &[u8; 4] = b"REFT";
/// Magic, version, block size, two update indices.
const HEADER_LEN_V1: usize = 24;
/// As version 1, and the name of the hash.
const HEADER_LEN_V2: usize = 28;
/// Five positions and the checksum follow the header's copy.
const FOOTER_TAIL: usize = 5 * 8 + 4;
/// The largest block size and block length: what three bytes can say.
pub(crate) const BLOCK_LEN_MAX: u32 = 0x00ff_ffff;

/// What stands at the start of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) version: u8,
    pub(crate) object_format: ObjectFormat,
    pub(crate) block_size: u32,
    pub(crate) min_update_index: u64,
    pub(crate) max_update_index: u64,
}

impl Header {
    pub(crate) fn len(&self) -> usize {
        if self.version == 1 {
            HEADER_LEN_V1
        } else {
            HEADER_LEN_V2
        }
    }

    pub(crate) fn footer_len(&self) -> usize {
        self.len() + FOOTER_TAIL
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.footer_len());
        out.extend_from_slice(MAGIC);
        out.push(self.version);
        out.extend_from_slice(&be24(self.block_size));
        out.extend_from_slice(&self.min_update_index.to_be_bytes());
        out.extend_from_slice(&self.max_update_index.to_be_bytes());
        if self.version > 1 {
            out.extend_from_slice(&self.object_format.format_id());
        }
        out
    }

    pub(crate) fn decode(data: &[u8]) -> Result<Self> {
        let mut input = Input { data, at: 0 };
        if input.take(4) != Some(MAGIC) {
            return Err(Error::corrupt(0, "the file does not start with REFT"));
        }
        let cut = || Error::corrupt(0, "the file ends inside its header");
        let version = *input.take(1).and_then(<[u8]>::first).ok_or_else(cut)?;
        let block_size = input.take(3).and_then(read_be24).ok_or_else(cut)?;
        let min_update_index = input.u64().ok_or_else(cut)?;
        let max_update_index = input.u64().ok_or_else(cut)?;
        let object_format = match version {
            1 => ObjectFormat::Sha1,
            2 => ObjectFormat::from_format_id(input.take(4).ok_or_else(cut)?)
                .ok_or_else(|| Error::corrupt(24, "unknown object_format function"))?,
            _ => return Err(Error::corrupt(4, "unknown format version")),
        };
        Ok(Header {
            version,
            object_format,
            block_size,
            min_update_index,
            max_update_index,
        })
    }
}

/// What stands at the end of a table, after the copy of its header: where its sections are.
///
/// A position of zero says that there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) ref_index: u64,
    pub(crate) objects: u64,
    pub(crate) object_id_len: u8,
    pub(crate) object_index: u64,
    pub(crate) logs: u64,
    pub(crate) log_index: u64,
}

/// Where the sections of a table start, as its footer says: offsets in the file, in bytes.
///
/// ```
/// # use reftable::*;
/// # let mut writer = Writer::new(Vec::new(), WriteOptions::new(ObjectFormat::Sha1))?;
/// # let value = RefValue::Symref(b"refs/heads/main");
/// # writer.add_ref(RefRecord { name: b"HEAD", update_index: 1, value })?;
/// let table = Table::open(writer.finish()?.sink)?;
/// assert_eq!(table.sections().refs, Some(0));
/// assert_eq!(table.sections().logs, None);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sections {
    /// The ref blocks.
    pub refs: Option<u64>,
    /// The index over them.
    pub ref_index: Option<u64>,
    /// The object blocks.
    pub objects: Option<u64>,
    /// The index over them.
    pub object_index: Option<u64>,
    /// The log blocks.
    pub logs: Option<u64>,
    /// The index over them.
    pub log_index: Option<u64>,
    /// How many bytes of an object id the keys of object blocks have.
    pub object_id_len: u8,
    /// The footer itself.
    pub footer: u64,
}

/// The width of the field for the length of abbreviated object ids.
const OBJECT_ID_LEN_BITS: u32 = 5;

/// Returns the checksum of a footer.
pub(crate) fn checksum(fields: &[u8]) -> u32 {
    // By a table: better ways begin by asking the processor what it can do, which takes a virtual
    // machine a thousand times longer than these few bytes.
    #[cfg(not(target_family = "wasm"))]
    type How = crc::Table<1>;
    // A table of a kilobyte does not compress, and what is sent over a network shall be small.
    #[cfg(target_family = "wasm")]
    type How = crc::NoTable;
    const CRC: Crc<u32, How> = Crc::<u32, How>::new(&CRC_32_ISO_HDLC);
    CRC.checksum(fields)
}

impl Footer {
    pub(crate) fn encode(&self, header: &Header) -> Vec<u8> {
        let mut out = header.encode();
        let objects = self.objects << OBJECT_ID_LEN_BITS | u64::from(self.object_id_len);
        for field in [
            self.ref_index,
            objects,
            self.object_index,
            self.logs,
            self.log_index,
        ] {
            out.extend_from_slice(&field.to_be_bytes());
        }
        let crc = checksum(&out);
        out.extend_from_slice(&crc.to_be_bytes());
        out
    }

    /// Reads the footer of the table `data`, whose header has been read.
    pub(crate) fn decode(data: &[u8], header: &Header) -> Result<Self> {
        let start = data
            .len()
            .checked_sub(header.footer_len())
            .filter(|start| *start >= header.len())
            .ok_or_else(|| Error::corrupt(0, "the file is too short for a header and a footer"))?;
        let at = start as u64;
        let footer = data.get(start..).unwrap_or_default();
        if footer.get(..header.len()) != data.get(..header.len()) {
            return Err(Error::corrupt(at, "the footer does not repeat the header"));
        }
        let (fields, crc) = footer.split_at(footer.len() - 4);
        if crc != checksum(fields).to_be_bytes() {
            return Err(Error::corrupt(at, "the checksum of the footer is wrong"));
        }
        let mut input = Input {
            data: fields,
            at: header.len(),
        };
        let cut = || Error::corrupt(at, "the footer is too short");
        let ref_index = input.u64().ok_or_else(cut)?;
        let objects = input.u64().ok_or_else(cut)?;
        let object_index = input.u64().ok_or_else(cut)?;
        let logs = input.u64().ok_or_else(cut)?;
        let log_index = input.u64().ok_or_else(cut)?;
        let object_id_len = (objects & 0x1f) as u8;
        let objects = objects >> OBJECT_ID_LEN_BITS;
        for position in [ref_index, objects, object_index, logs, log_index] {
            if position >= at && position > 0 {
                return Err(Error::corrupt(
                    at,
                    "a section starts behind the end of the blocks",
                ));
            }
        }
        let bad_len =
            object_id_len == 0 || usize::from(object_id_len) > header.object_format.raw_len();
        if objects > 0 && bad_len {
            return Err(Error::corrupt(at, "bad length of abbreviated object ids"));
        }
        Ok(Footer {
            ref_index,
            objects,
            object_id_len,
            object_index,
            logs,
            log_index,
        })
    }
}

/// Takes fields off the front of a byte string.
struct Input<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> Input<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let field = self.data.get(self.at..self.at + len)?;
        self.at += len;
        Some(field)
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_be_bytes(self.take(8)?.try_into().ok()?))
    }
}

/// Reads three bytes as a number.
pub(crate) fn read_be24(bytes: &[u8]) -> Option<u32> {
    match *bytes {
        [high, middle, low] => Some(u32::from_be_bytes([0, high, middle, low])),
        _ => None,
    }
}

/// Writes a number of at most 24 bits.
pub(crate) fn be24(value: u32) -> [u8; 3] {
    debug_assert!(value <= BLOCK_LEN_MAX);
    let [_, high, middle, low] = value.to_be_bytes();
    [high, middle, low]
}
