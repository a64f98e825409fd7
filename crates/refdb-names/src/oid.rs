//! Object ids: the names of the objects that refs point to.
//!
//! An [`ObjectId`] knows its [`ObjectFormat`] and is never of another length than that format has.
//!
//! ```
//! use refdb_names::{ObjectFormat, ObjectId};
//! let id = ObjectId::from_hex(b"89abcdef0123456789abcdef0123456789abcdef").unwrap();
//! assert_eq!(id.format(), ObjectFormat::Sha1);
//! assert_eq!(id.to_string(), "89abcdef0123456789abcdef0123456789abcdef");
//! assert!(ObjectId::null(ObjectFormat::Sha256).is_null());
//! ```

use std::fmt;
use std::hash::{Hash, Hasher};

pub use reftable::ObjectFormat;

/// The id of an object, of either format.
// Aligned, and the format as wide as that, so that it is copied in the pieces in which it was written:
// other pieces make the processor wait, at each of the many copies on the way through a listing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(align(8))]
pub struct ObjectId {
    // Bytes past the format's length are always zero, so that the derived comparisons hold.
    bytes: [u8; 32],
    format: ObjectFormat,
}

/// Reads eight hexadecimal digits at once, each in a byte of one word. The second value is not zero if
/// one of them is none.
#[inline]
fn eight_digits(digits: [u8; 8]) -> ([u8; 4], u64) {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let text = u64::from_le_bytes(digits);
    // Letters have this bit, and their low half counts from one.
    let is_letter = (text >> 6) & EACH;
    let values = (text & (EACH * 0x0f)) + is_letter * 9;
    // Only digits come out as they went in, in small letters: `0` is 0x30 and `a` is 39 above `:`.
    let above_nine = ((values + EACH * 6) >> 4) & EACH;
    let again = (values & (EACH * 0x0f)) + EACH * 0x30 + above_nine * 39;
    let wrong = (again ^ (text | is_letter << 5)) | (values & (EACH * 0xf0));
    let pairs = ((values << 4) | (values >> 8)) & 0x00ff_00ff_00ff_00ff;
    let halves = (pairs | (pairs >> 8)) & 0x0000_ffff_0000_ffff;
    let [first, second, third, fourth, ..] = (halves | (halves >> 16)).to_le_bytes();
    ([first, second, third, fourth], wrong)
}

/// Returns the first byte of an id in hexadecimal digits; `None` if there is something else.
#[inline]
pub fn first_byte(hex: &[u8]) -> Option<u8> {
    let (groups, rest) = hex.as_chunks::<8>();
    let (&first, others) = groups.split_first().filter(|_| rest.is_empty())?;
    let ([first, ..], wrong) = eight_digits(first);
    let wrong = others
        .iter()
        .fold(wrong, |wrong, &digits| wrong | eight_digits(digits).1);
    (wrong == 0).then_some(first)
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
    #[inline]
    pub fn from_bytes(raw: &[u8]) -> Option<Self> {
        let format = match raw.len() {
            20 => ObjectFormat::Sha1,
            32 => ObjectFormat::Sha256,
            _ => return None,
        };
        // In two halves that are written whole: what is written in pieces and read as a whole right
        // after that makes the processor wait.
        let (low, rest) = raw.split_first_chunk::<16>()?;
        let high = match rest.first_chunk::<16>() {
            Some(high) => u128::from_le_bytes(*high),
            None => u128::from(u32::from_le_bytes(*rest.first_chunk()?)),
        };
        let mut bytes = [0; 32];
        let (first, second) = bytes.split_at_mut(16);
        first.copy_from_slice(low);
        second.copy_from_slice(&high.to_le_bytes());
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
        let mut wrong = 0;
        let (groups, _) = hex.as_chunks::<8>();
        for (out, &digits) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(groups) {
            let (value, is_wrong) = eight_digits(digits);
            *out = value;
            wrong |= is_wrong;
        }
        (wrong == 0).then_some(ObjectId { bytes, format })
    }

    /// Returns the raw bytes, 20 or 32 of them.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.format.raw_len()]
    }

    /// Returns the object format that this id belongs to.
    pub const fn format(&self) -> ObjectFormat {
        self.format
    }

    /// Returns whether this is the all-zero id.
    #[inline]
    pub fn is_null(&self) -> bool {
        // Without a call to compare so few bytes: every listed ref is asked.
        let (halves, _) = self.bytes.as_chunks::<16>();
        let or = |sum, half: &[u8; 16]| sum | u128::from_ne_bytes(*half);
        halves.iter().fold(0, or) == 0
    }

    /// Appends the hexadecimal digits to `out`.
    pub fn push_hex(&self, out: &mut Vec<u8>) {
        let pairs = self.bytes.map(two_digits);
        let digits = pairs.as_flattened();
        match (self.format, digits.first_chunk::<40>()) {
            // At a length that is known beforehand it takes no call.
            (ObjectFormat::Sha1, Some(digits)) => out.extend_from_slice(digits),
            _ => out.extend_from_slice(digits),
        }
    }
}

/// Returns the two digits of a byte.
fn two_digits(byte: u8) -> [u8; 2] {
    // Both halves at once, without a branch or a table, so that many bytes are done together.
    let byte = u16::from(byte);
    let halves = byte >> 4 | (byte & 0xf) << 8;
    let above_nine = (halves + 0x0606) >> 4 & 0x0101;
    (halves + 0x3030 + above_nine * 39).to_le_bytes()
}

impl Hash for ObjectId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // All of it: a file may name ids that nobody has, as many as it likes, which differ in their end alone.
        let (halves, _) = self.bytes.as_chunks::<16>();
        for half in halves {
            state.write_u128(u128::from_ne_bytes(*half));
        }
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
    use std::hash::DefaultHasher;

    use super::*;

    #[test]
    fn each_byte_is_a_digit_or_none() {
        for byte in 0..=255_u8 {
            for place in 0..8 {
                let mut digits = *b"01aF9c7e";
                digits[place] = byte;
                let expected: Option<Vec<u8>> = digits
                    .chunks(2)
                    .map(|pair| {
                        let digit = |byte: u8| char::from(byte).to_digit(16);
                        u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok()
                    })
                    .collect();
                let (value, wrong) = eight_digits(digits);
                let found = (wrong == 0).then(|| value.to_vec());
                assert_eq!(found, expected, "{digits:?}");
            }
        }
    }

    #[test]
    fn hex_of_the_wrong_length_or_alphabet_is_no_id() {
        assert!(ObjectId::from_hex(&[b'0'; 39]).is_none());
        assert!(ObjectId::from_hex(&[b'g'; 40]).is_none());
        assert!(ObjectId::from_hex(&[b'A'; 64]).is_some());
    }

    #[test]
    fn ids_that_differ_anywhere_have_other_hashes() {
        let hash = |id: &ObjectId| {
            let mut hasher = DefaultHasher::new();
            id.hash(&mut hasher);
            hasher.finish()
        };
        for raw in [[7; 32].as_slice(), &[7; 20]] {
            let id = ObjectId::from_bytes(raw).unwrap();
            for at in 0..raw.len() {
                let mut other = raw.to_vec();
                other[at] ^= 1;
                let other = ObjectId::from_bytes(&other).unwrap();
                assert_ne!(hash(&id), hash(&other), "byte {at} of {}", raw.len());
            }
        }
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
