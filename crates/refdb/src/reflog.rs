//! Reflog entries: who moved a ref from where to where, when, and why.
//!
//! ```
//! use refdb::reflog::normalize_message;
//! assert_eq!(normalize_message(b"  commit:\n  fix \t it "), b"commit: fix it");
//! ```

use bstr::BString;
use refdb_names::ObjectId;

/// A person and a moment, as a reflog entry records them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signature {
    /// The name.
    pub name: BString,
    /// The email address, without the angle brackets.
    pub email: BString,
    /// Seconds since 1970-01-01 UTC.
    pub time: u64,
    /// The time zone as the decimal number `HHMM` with its sign: `-0530` is -530. This is what
    /// Git stores in both formats.
    pub zone: i16,
}

/// One entry of a reflog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// The value before; null when the ref came into being.
    pub old: ObjectId,
    /// The value after; null when the ref was deleted.
    pub new: ObjectId,
    /// Who did it and when.
    pub who: Signature,
    /// Why, on one line without its line feed; empty when no reason was given.
    pub message: BString,
}

/// Returns `message` as it is stored: runs of white space become one space, none at the ends.
pub fn normalize_message(message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len());
    for word in message
        .split(|&byte| is_space(byte))
        .filter(|word| !word.is_empty())
    {
        if !out.is_empty() {
            out.push(b' ');
        }
        out.extend_from_slice(word);
    }
    out
}

/// Returns whether `message` is as [`normalize_message`] would leave it.
pub(crate) fn is_normalized(message: &[u8]) -> bool {
    let spaced = |pair: &[u8]| matches!(pair, [b' ', b' ']);
    !message.iter().any(|&byte| is_space(byte) && byte != b' ')
        && !message.starts_with(b" ")
        && !message.ends_with(b" ")
        && !message.windows(2).any(spaced)
}

/// Reads seconds as the C library reads a number, behind blanks and with a sign: too many are the greatest
/// number, and less than none are counted down from it. Returns what follows them as well.
pub(crate) fn timestamp(text: &[u8]) -> Option<(u64, &[u8])> {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let blanks = text.iter().take_while(|byte| is_blank(byte)).count();
    let (_, text) = text.split_at(blanks);
    let (is_negative, text) = match text.split_first() {
        Some((sign @ (b'+' | b'-'), rest)) => (*sign == b'-', rest),
        _ => (false, text),
    };
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = text.split_at(digits);
    let number: Result<u64, _> = match std::str::from_utf8(digits).ok()? {
        "" => return None,
        digits => digits.parse(),
    };
    let number = number.map(|it| if is_negative { it.wrapping_neg() } else { it });
    Some((number.unwrap_or(u64::MAX), rest))
}

/// Returns whether Git takes `byte` for white space.
pub(crate) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}
