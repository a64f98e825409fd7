//! Object ids: the names of the objects that refs point to.
//!
//! An [`ObjectId`] knows its [`ObjectFormat`] and is never of another length than that format has.
//!
//! ```
//! use refdb::{ObjectFormat, ObjectId};
//! let id = ObjectId::from_hex(b"89abcdef0123456789abcdef0123456789abcdef").unwrap();
//! assert_eq!(id.format(), ObjectFormat::Sha1);
//! assert_eq!(id.to_string(), "89abcdef0123456789abcdef0123456789abcdef");
//! assert!(ObjectId::null(ObjectFormat::Sha256).is_null());
//! ```

use std::fmt;
use std::hash::{Hash, Hasher};

/// The object format of a repository: which hash names its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectFormat {
    /// SHA-1: ids of 20 bytes.
    Sha1,
    /// SHA-256: ids of 32 bytes.
    Sha256,
}

impl ObjectFormat {
    /// Returns the length of an id in bytes.
    pub const fn raw_len(self) -> usize {
        match self {
            ObjectFormat::Sha1 => 20,
            ObjectFormat::Sha256 => 32,
        }
    }

    /// Returns the length of an id in hexadecimal digits.
    pub const fn hex_len(self) -> usize {
        self.raw_len() * 2
    }

    /// Returns the name that Git's configuration uses (`extensions.objectFormat`).
    pub const fn name(self) -> &'static str {
        match self {
            ObjectFormat::Sha1 => "sha1",
            ObjectFormat::Sha256 => "sha256",
        }
    }

    /// Returns the format of that name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        [ObjectFormat::Sha1, ObjectFormat::Sha256]
            .into_iter()
            .find(|format| format.name() == name)
    }
}

/// The id of an object, of either format.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectId {
    // Bytes past the format's length are always zero, so that the derived comparisons hold.
    bytes: [u8; 32],
    format: ObjectFormat,
}

impl ObjectId {
    /// Returns the all-zero id, which stands for "no object".
    pub const fn null(format: ObjectFormat) -> Self {
        ObjectId {
            bytes: [0; 32],
            format,
        }
    }

    /// Reads an id from its raw bytes; the length (20 or 32) decides the format.
    pub fn from_bytes(raw: &[u8]) -> Option<Self> {
        let format = match raw.len() {
            20 => ObjectFormat::Sha1,
            32 => ObjectFormat::Sha256,
            _ => return None,
        };
        let mut bytes = [0; 32];
        bytes.get_mut(..raw.len())?.copy_from_slice(raw);
        Some(ObjectId { bytes, format })
    }

    /// Reads an id from exactly 40 or 64 hexadecimal digits, in either case.
    pub fn from_hex(hex: &[u8]) -> Option<Self> {
        let format = match hex.len() {
            40 => ObjectFormat::Sha1,
            64 => ObjectFormat::Sha256,
            _ => return None,
        };
        let mut bytes = [0; 32];
        // What is no digit has the high bits set: one look at the end tells of any.
        let mut seen = 0;
        let (pairs, _) = hex.as_chunks::<2>();
        for (byte, &[high, low]) in bytes.iter_mut().zip(pairs) {
            let (high, low) = (DIGITS[usize::from(high)], DIGITS[usize::from(low)]);
            seen |= high | low;
            *byte = (high << 4) | low;
        }
        (seen & 0xf0 == 0).then_some(ObjectId { bytes, format })
    }

    /// Returns the raw bytes, 20 or 32 of them.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.format.raw_len()]
    }

    /// Returns the object format that this id belongs to.
    pub const fn format(&self) -> ObjectFormat {
        self.format
    }

    /// Returns whether this is the all-zero id.
    pub fn is_null(&self) -> bool {
        self.bytes == [0; 32]
    }

    /// Appends the hexadecimal digits to `out`.
    pub fn push_hex(&self, out: &mut Vec<u8>) {
        let mut hex = [[0; 2]; 32];
        for (pair, byte) in hex.iter_mut().zip(self.as_bytes()) {
            *pair = PAIRS[usize::from(*byte)];
        }
        out.extend_from_slice(&hex.as_flattened()[..self.format.hex_len()]);
    }
}

/// The two digits of each byte.
static PAIRS: [[u8; 2]; 256] = pairs();

const fn pairs() -> [[u8; 2]; 256] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut table = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = [DIGITS[byte >> 4], DIGITS[byte & 0xf]];
        byte += 1;
    }
    table
}

/// The value of each hexadecimal digit; 0xff for every other byte.
static DIGITS: [u8; 256] = digits();

const fn digits() -> [u8; 256] {
    let mut table = [0xff; 256];
    let mut value = 0;
    while value < 16 {
        table[b"0123456789abcdef"[value as usize] as usize] = value;
        table[b"0123456789ABCDEF"[value as usize] as usize] = value;
        value += 1;
    }
    table
}

impl Hash for ObjectId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // An id is a hash itself: sixteen bytes of it tell as much as all.
        let (start, _) = self
            .bytes
            .split_first_chunk::<16>()
            .unwrap_or((&[0; 16], &[]));
        state.write_u128(u128::from_ne_bytes(*start));
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes()
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_of_the_wrong_length_or_alphabet_is_no_id() {
        assert!(ObjectId::from_hex(&[b'0'; 39]).is_none());
        assert!(ObjectId::from_hex(&[b'g'; 40]).is_none());
        assert!(ObjectId::from_hex(&[b'A'; 64]).is_some());
    }

    #[test]
    fn ids_order_as_their_bytes_do() {
        let low = ObjectId::from_hex(&[b'1'; 40]).unwrap();
        let high = ObjectId::from_hex(&[b'f'; 40]).unwrap();
        assert!(low < high);
        let mut hex = Vec::new();
        high.push_hex(&mut hex);
        assert_eq!(hex, vec![b'f'; 40]);
    }
}
