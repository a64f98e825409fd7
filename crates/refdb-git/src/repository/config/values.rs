//! The meaning of configuration values: booleans, numbers, paths.
//!
//! ```
//! use refdb_git::repository::config::values;
//! assert_eq!(values::boolean(Some(b"Yes")), Some(true));
//! assert_eq!(values::boolean(None), Some(true)); // `key` without `=`
//! assert_eq!(values::integer(b"2k"), Ok(2048));
//! ```

/// Reads a boolean; `None` if the value is not one. A key without `=` is true, an empty value is
/// false, and a number is true unless it is zero.
pub fn boolean(value: Option<&[u8]>) -> Option<bool> {
    let Some(value) = value else {
        return Some(true);
    };
    let is = |words: &[&str]| {
        words
            .iter()
            .any(|word| value.eq_ignore_ascii_case(word.as_bytes()))
    };
    if is(&["true", "yes", "on"]) {
        Some(true)
    } else if is(&["false", "no", "off", ""]) {
        Some(false)
    } else {
        let number = integer(value).ok()?;
        i32::try_from(number).ok().map(|number| number != 0)
    }
}

/// What is wrong with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadNumber {
    /// It is no number, or has an unknown unit.
    InvalidUnit,
    /// It is too large or too small.
    OutOfRange,
}

impl BadNumber {
    /// Returns Git's words for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            BadNumber::InvalidUnit => "invalid unit",
            BadNumber::OutOfRange => "out of range",
        }
    }
}

/// Reads a number: decimal, octal (`0`) or hexadecimal (`0x`), with one of the units `k`, `m`, `g`
/// (powers of 1024) behind it.
///
/// # Errors
/// What is wrong, when it is not such a number.
pub fn integer(value: &[u8]) -> Result<i64, BadNumber> {
    let text = value.trim_ascii_start();
    let (negative, text) = match text.split_first() {
        Some((b'-', rest)) => (true, rest),
        Some((b'+', rest)) => (false, rest),
        _ => (false, text),
    };
    let is_hex = matches!(text, [b'0', b'x' | b'X', digit, ..] if digit.is_ascii_hexdigit());
    let (radix, text) = match text {
        [_, _, rest @ ..] if is_hex => (16, rest),
        [b'0', ..] => (8, text),
        _ => (10, text),
    };
    let mut magnitude: i128 = 0;
    let mut digits = 0_usize;
    for digit in text
        .iter()
        .map_while(|&byte| char::from(byte).to_digit(radix))
    {
        digits += 1;
        magnitude = magnitude
            .saturating_mul(i128::from(radix))
            .saturating_add(i128::from(digit));
    }
    let factor: i128 = match text.get(digits..).unwrap_or_default() {
        b"" => 1,
        b"k" | b"K" => 1 << 10,
        b"m" | b"M" => 1 << 20,
        b"g" | b"G" => 1 << 30,
        _ => return Err(BadNumber::InvalidUnit),
    };
    if digits == 0 {
        return Err(BadNumber::InvalidUnit);
    }
    let number = magnitude.saturating_mul(factor);
    let number = if negative { -number } else { number };
    i64::try_from(number).map_err(|_| BadNumber::OutOfRange)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn booleans() {
        for yes in ["true", "YES", "on", "1", "-1", "1k", "0x10"] {
            assert_eq!(boolean(Some(yes.as_bytes())), Some(true), "{yes}");
        }
        for no in ["false", "No", "OFF", "", "0", "0k"] {
            assert_eq!(boolean(Some(no.as_bytes())), Some(false), "{no}");
        }
        for neither in ["maybe", "truee", "9999999999", "1x"] {
            assert_eq!(boolean(Some(neither.as_bytes())), None, "{neither}");
        }
    }

    #[test]
    fn numbers() {
        assert_eq!(integer(b"010"), Ok(8));
        assert_eq!(integer(b"0x1F"), Ok(31));
        assert_eq!(integer(b" -3m"), Ok(-3 << 20));
        assert_eq!(integer(b"0"), Ok(0));
        for text in [&b""[..], b"k", b"1kb", b"-", b"0x", b"1 ", b"08"] {
            assert_eq!(integer(text), Err(BadNumber::InvalidUnit), "{text:?}");
        }
        for text in [&b"9223372036854775808"[..], b"9999999999g"] {
            assert_eq!(integer(text), Err(BadNumber::OutOfRange), "{text:?}");
        }
        assert_eq!(integer(b"-9223372036854775808"), Ok(i64::MIN));
    }
}
