//! Keys: how records store them, each by what it does not share with the one before it, and how they
//! are compared (docs/format.md, "Records").

use crate::{short, varint};

/// Reads the key at the start of `input` into `key`, which holds the key before it, and returns
/// the three extra bits, the length read, and how many bytes the two keys share.
///
/// `None` if the bytes are no key, or one that is not greater than the key before it: what is out
/// of order would be missed by every search.
#[inline]
pub(crate) fn read_key(input: &[u8], key: &mut Vec<u8>) -> Option<(u8, usize, usize)> {
    let head = split_key(input)?;
    if !is_greater(head.3, key.get(head.0..)?) {
        return None;
    }
    Some(put_key(input, head, key))
}

/// Reads a key as [`read_key`] does, in whatever order it stands.
#[inline]
pub(crate) fn read_any_key(input: &[u8], key: &mut Vec<u8>) -> Option<(u8, usize, usize)> {
    let head = split_key(input)?;
    (head.0 <= key.len()).then(|| put_key(input, head, key))
}

/// Puts the key with this head, which starts `input`, in the place of the one before it.
#[inline]
fn put_key(input: &[u8], head: Head<'_>, key: &mut Vec<u8>) -> (u8, usize, usize) {
    let (prefix_len, extra, suffix_at, suffix) = head;
    key.truncate(prefix_len);
    match input
        .get(suffix_at..)
        .and_then(<[u8]>::first_chunk::<COPIED>)
    {
        // What is copied at a fixed length is copied without a call.
        Some(start) if suffix.len() <= COPIED => {
            key.extend_from_slice(start);
            key.truncate(prefix_len + suffix.len());
        }
        _ => short::push(key, suffix),
    }
    (extra, suffix_at + suffix.len(), prefix_len)
}

/// The head of a record: prefix length, extra bits, where the suffix starts, the suffix.
type Head<'i> = (usize, u8, usize, &'i [u8]);

/// Most suffixes have no more bytes.
const COPIED: usize = 16;

/// Compares two strings, of which the first bytes nearly always differ: then without a call.
#[inline]
fn is_greater(left: &[u8], right: &[u8]) -> bool {
    match (left.first(), right.first()) {
        (Some(left), Some(right)) if left != right => left > right,
        _ => short::compare(left, right).is_gt(),
    }
}

/// Reads the head of a record.
#[inline]
pub(crate) fn split_key(input: &[u8]) -> Option<Head<'_>> {
    if let [prefix_len, tagged, rest @ ..] = input
        && (prefix_len | tagged) & 0x80 == 0
    {
        let suffix = rest.get(..usize::from(tagged >> 3))?;
        return Some((usize::from(*prefix_len), tagged & 7, 2, suffix));
    }
    let (prefix_len, prefix_used) = varint::read(input)?;
    let (tagged, suffix_used) = varint::read(input.get(prefix_used..)?)?;
    let at = prefix_used + suffix_used;
    let len = usize::try_from(tagged >> 3).ok()?;
    let suffix = input.get(at..at.checked_add(len)?)?;
    Some((
        usize::try_from(prefix_len).ok()?,
        (tagged & 7) as u8,
        at,
        suffix,
    ))
}
