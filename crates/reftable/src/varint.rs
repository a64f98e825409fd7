//! Variable-length integers (docs/format.md, "Integers").
//!
//! Every value has exactly one encoding: each continuation adds one before it shifts.

use crate::short;

/// The longest encoding of a 64-bit value.
const LEN_MAX: usize = 10;

/// Decodes the integer at the start of `input`, and returns it with its encoded length.
///
/// `None` when the input ends too early or the value needs more than 64 bits.
#[inline]
pub(crate) fn read(input: &[u8]) -> Option<(u64, usize)> {
    let (&first, rest) = input.split_first()?;
    if first < 0x80 {
        return Some((u64::from(first), 1));
    }
    read_long(u64::from(first & 0x7f), rest)
}

fn read_long(mut value: u64, rest: &[u8]) -> Option<(u64, usize)> {
    for (index, &byte) in rest.iter().enumerate().take(LEN_MAX - 1) {
        value = value.checked_add(1)?.checked_mul(0x80)? | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some((value, index + 2));
        }
    }
    None
}

/// Appends the encoding of `value`.
#[inline]
pub(crate) fn push(out: &mut Vec<u8>, value: u64) {
    if value < 0x80 {
        out.push((value & 0x7f) as u8);
    } else {
        push_long(out, value);
    }
}

fn push_long(out: &mut Vec<u8>, mut value: u64) {
    let mut bytes = [0; LEN_MAX];
    let mut from = LEN_MAX;
    let mut more = 0;
    loop {
        from -= 1;
        bytes[from] = more | (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            break;
        }
        value -= 1;
        more = 0x80;
    }
    short::push(out, &bytes[from..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(value: u64) -> Vec<u8> {
        let mut out = Vec::new();
        push(&mut out, value);
        out
    }

    #[test]
    fn known_encodings() {
        assert_eq!(encoded(0), [0]);
        assert_eq!(encoded(0x7f), [0x7f]);
        assert_eq!(encoded(0x80), [0x80, 0]);
        assert_eq!(encoded(0x3fff), [0xfe, 0x7f]);
        assert_eq!(encoded(0x407f), [0xff, 0x7f]);
        assert_eq!(encoded(0x4080), [0x80, 0x80, 0]);
        assert_eq!(encoded(1_700_000_000), [0x85, 0xa9, 0xce, 0xe1, 0]);
        assert_eq!(encoded(u64::MAX).len(), LEN_MAX);
    }

    #[test]
    fn a_value_past_64_bits_is_refused() {
        let mut bytes = encoded(u64::MAX);
        *bytes.last_mut().unwrap() |= 0x80;
        bytes.push(0);
        assert_eq!(read(&bytes), None);
        assert_eq!(read(&[0xff; 11]), None);
        assert_eq!(read(&[0x81]), None);
        assert_eq!(read(&[]), None);
    }

    proptest! {
        #[test]
        fn round_trip(value in any::<u64>(), shift in 0..64_u32) {
            let value = value >> shift;
            let mut bytes = encoded(value);
            let len = bytes.len();
            bytes.extend_from_slice(&[0xff; 3]);
            prop_assert_eq!(read(&bytes), Some((value, len)));
        }
    }
}
