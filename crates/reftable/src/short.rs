//! Short byte strings, compared and copied without a call.
//!
//! A store spends much of its time on comparing and copying names and ids, which have some dozen
//! bytes. What a C library has for that is made for long strings: it takes about as long to get
//! going as eight bytes at a time take to be done, and some libraries compare byte by byte.
//!
//! ```
//! use std::cmp::Ordering;
//! use reftable::short;
//!
//! let (main, topic) = (b"refs/heads/main", b"refs/heads/topic");
//! assert_eq!(short::compare(main, topic), Ordering::Less);
//! assert!(!short::same(main, topic) && short::has_prefix(topic, b"refs/heads/"));
//! let mut text = Vec::new();
//! short::push(&mut text, topic);
//! assert_eq!(text, topic);
//! ```

use std::cmp::Ordering;

/// How many bytes are compared at a time.
const WORD: usize = size_of::<u64>();

/// How many bytes are copied at a time.
const COPIED: usize = 16;

/// Longer strings are better left to the library.
const SHORT_MAX: usize = 8 * COPIED;

/// Compares two strings byte by byte, as slices are compared.
#[inline]
pub fn compare(left: &[u8], right: &[u8]) -> Ordering {
    let len = left.len().min(right.len());
    let (low, high) = (&left[..len], &right[..len]);
    let words = low.as_chunks::<WORD>().0.iter();
    for (low, high) in words.zip(high.as_chunks::<WORD>().0) {
        if low != high {
            return u64::from_be_bytes(*low).cmp(&u64::from_be_bytes(*high));
        }
    }
    let rest = match (low.last_chunk(), high.last_chunk()) {
        // All but the end of these words was found to be the same.
        (Some(low), Some(high)) => u64::from_be_bytes(*low).cmp(&u64::from_be_bytes(*high)),
        _ => first_word(low).cmp(&first_word(high)),
    };
    rest.then(left.len().cmp(&right.len()))
}

/// Returns whether a string sorts before another one.
#[inline]
pub fn is_less(left: &[u8], right: &[u8]) -> bool {
    compare(left, right).is_lt()
}

/// Returns whether two strings are the same.
#[inline]
pub fn same(left: &[u8], right: &[u8]) -> bool {
    if left.len() != right.len() {
        return false;
    }
    let mut words = left
        .as_chunks::<WORD>()
        .0
        .iter()
        .zip(right.as_chunks::<WORD>().0);
    words.all(|(left, right)| left == right)
        && match (left.last_chunk::<WORD>(), right.last_chunk::<WORD>()) {
            (Some(left), Some(right)) => left == right,
            _ => first_word(left) == first_word(right),
        }
}

/// Returns whether `string` starts with `prefix`.
///
/// No prefix is frequent, and comparing nothing is not free: a vectorized `memcmp` may load from the
/// dangling address of an empty vector under a mask, which costs some processors more than decoding
/// a record does.
#[inline]
pub fn has_prefix(string: &[u8], prefix: &[u8]) -> bool {
    if let (Some(word), 1..=WORD) = (string.first_chunk(), prefix.len()) {
        let behind = 8 * (WORD - prefix.len());
        return (u64::from_be_bytes(*word) ^ first_word(prefix)) >> behind == 0;
    }
    let start = string.get(..prefix.len());
    prefix.is_empty() || start.is_some_and(|start| same(start, prefix))
}

/// Returns how many bytes two strings share at their start.
#[inline]
pub fn common_prefix(left: &[u8], right: &[u8]) -> usize {
    let mut shared = 0;
    let words = left.as_chunks::<WORD>().0.iter();
    for (left, right) in words.zip(right.as_chunks::<WORD>().0) {
        let (left, right) = (u64::from_be_bytes(*left), u64::from_be_bytes(*right));
        if left != right {
            return shared + (left ^ right).leading_zeros() as usize / 8;
        }
        shared += WORD;
    }
    let tail = left[shared..].iter().zip(&right[shared..]);
    shared + tail.take_while(|(left, right)| left == right).count()
}

/// Returns the first eight bytes as a number that sorts as the bytes do, zeros behind short strings.
#[inline]
pub fn first_word(string: &[u8]) -> u64 {
    match string.first_chunk() {
        Some(word) => u64::from_be_bytes(*word),
        // Two pieces, which lie over each other in part, hold the same bytes there.
        None => match (string.first_chunk::<4>(), string.last_chunk::<4>()) {
            (Some(first), Some(last)) => {
                let (first, last) = (u32::from_be_bytes(*first), u32::from_be_bytes(*last));
                u64::from(first) << 32 | u64::from(last) << (64 - 8 * string.len())
            }
            _ => match string {
                [] => 0,
                [first, .., middle, last] => word_of([*first, *middle, *last]),
                [first, last] => word_of([*first, *last, 0]),
                [first] => word_of([*first, 0, 0]),
            },
        },
    }
}

/// Returns these bytes as the first ones of a word.
#[inline]
fn word_of([first, second, third]: [u8; 3]) -> u64 {
    u64::from(first) << 56 | u64::from(second) << 48 | u64::from(third) << 40
}

/// Appends a string.
#[inline]
pub fn push(out: &mut Vec<u8>, string: &[u8]) {
    if string.len() > SHORT_MAX {
        return out.extend_from_slice(string);
    }
    out.reserve(string.len());
    let (pieces, mut rest) = string.as_chunks::<COPIED>();
    for piece in pieces {
        out.extend_from_slice(piece);
    }
    if !rest.is_empty()
        && let Some(last) = string.last_chunk::<COPIED>()
    {
        // It lies over what was copied before, where that is the same. How long the rest is nobody
        // could predict.
        out.truncate(out.len() + rest.len() - COPIED);
        out.extend_from_slice(last);
        return;
    }
    // What is copied at a fixed length is copied without a call.
    if let Some((piece, behind)) = rest.split_first_chunk::<8>() {
        out.extend_from_slice(piece);
        rest = behind;
    }
    if let Some((piece, behind)) = rest.split_first_chunk::<4>() {
        out.extend_from_slice(piece);
        rest = behind;
    }
    if let Some((piece, behind)) = rest.split_first_chunk::<2>() {
        out.extend_from_slice(piece);
        rest = behind;
    }
    if let [last] = rest {
        out.push(*last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Strings that often begin alike.
    fn pair() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
        let bytes = |max| proptest::collection::vec(0..=255u8, 0..max);
        let part = || prop_oneof![bytes(3), bytes(20), bytes(200)];
        (bytes(40), part(), part()).prop_map(|(start, left, right)| {
            let left = [start.as_slice(), &left].concat();
            (left, [start.as_slice(), &right].concat())
        })
    }

    proptest! {
        #[test]
        fn as_slices_do((left, right) in pair()) {
            prop_assert_eq!(compare(&left, &right), left.cmp(&right));
            prop_assert_eq!(compare(&left, &left), Ordering::Equal);
            prop_assert_eq!(same(&left, &right), left == right);
            prop_assert!(same(&left, &left.clone()));
            prop_assert_eq!(has_prefix(&left, &right), left.starts_with(&right));
            for len in 0..=left.len().min(50) {
                prop_assert!(has_prefix(&left, &left[..len]));
            }
            let naive = left.iter().zip(&right).take_while(|(a, b)| a == b).count();
            prop_assert_eq!(common_prefix(&left, &right), naive);
            let (low, high) = (first_word(&left), first_word(&right));
            prop_assert!(low == high || low.cmp(&high) == left.cmp(&right));
        }

        #[test]
        fn one_byte_makes_a_difference((mut left, _) in pair(), at in any::<prop::sample::Index>()) {
            prop_assume!(!left.is_empty());
            let right = left.clone();
            left[at.index(right.len())] ^= 1;
            prop_assert!(!same(&left, &right));
            prop_assert!(!has_prefix(&left, &right));
            prop_assert_eq!(compare(&left, &right), left.cmp(&right));
        }

        #[test]
        fn what_is_pushed_stands_behind_what_was((left, right) in pair()) {
            let mut out = left.clone();
            push(&mut out, &right);
            prop_assert_eq!(out, [left, right].concat());
        }
    }
}
