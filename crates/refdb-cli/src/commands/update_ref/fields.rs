//! The fields of one command: words with C-style quoting, or records that end with NUL.

use std::borrow::Cow;

use bstr::ByteSlice;
use refdb::ObjectId;
use refdb::name::{FormatOptions, is_well_formed};

use crate::failure::{Failure, Result};

/// What stands where a field may be.
pub(super) enum Field<'p> {
    /// The command ends here.
    Absent,
    /// The input ends here.
    EndOfInput,
    /// A field, possibly an empty one.
    Given(Cow<'p, [u8]>),
}

/// The fields of one command that are still to be read.
pub(super) struct Fields<'p> {
    rest: &'p [u8],
    zero: bool,
}

impl<'p> Fields<'p> {
    /// Begins to read the fields of `rest`, which is what follows the verb.
    pub(super) fn new(rest: &'p [u8], zero: bool) -> Self {
        Fields { rest, zero }
    }

    /// Returns what is left.
    pub(super) fn rest(&self) -> &'p [u8] {
        self.rest
    }

    /// Returns whether the command ends here, with its terminator.
    pub(super) fn at_end(&self) -> bool {
        match self.rest.first() {
            Some(&byte) => byte == self.terminator(),
            None => self.zero,
        }
    }

    fn terminator(&self) -> u8 {
        if self.zero { 0 } else { b'\n' }
    }

    /// Returns whether what follows the first field are object ids in full and nothing else.
    pub(super) fn are_plain(&self) -> bool {
        let separator = if self.zero { 0 } else { b' ' };
        let text = self.rest.strip_prefix(b" ").unwrap_or(self.rest);
        let text = text.strip_suffix(&[self.terminator()]).unwrap_or(text);
        let mut fields = text.split(|&byte| byte == separator);
        let is_bare = fields.next().is_some_and(|name| !name.starts_with(b"\""));
        is_bare && fields.all(|field| ObjectId::from_hex(field).is_some())
    }

    /// Reads the name of a ref that follows the verb; `None` if it is empty.
    pub(super) fn first_name(&mut self) -> Result<Option<&'p [u8]>> {
        let name = self.value()?;
        checked(name)
    }

    /// Reads the name of a ref that follows another field; `None` if there is none.
    pub(super) fn next_name(&mut self) -> Result<Option<&'p [u8]>> {
        match self.next(String::new)? {
            Field::Given(name) => checked(name),
            Field::Absent | Field::EndOfInput => Ok(None),
        }
    }

    /// Reads the next field; `whose` begins the message when the separator is wrong.
    pub(super) fn next(&mut self, whose: impl FnOnce() -> String) -> Result<Field<'p>> {
        let Some((&separator, after)) = self.rest.split_first() else {
            return Ok(Field::EndOfInput);
        };
        if !self.zero {
            if separator == b'\n' {
                return Ok(Field::Absent);
            }
            if separator != b' ' {
                let text = format!("{}expected SP but got: {}", whose(), self.rest.as_bstr());
                return Err(Failure::fatal(text));
            }
        } else if after.is_empty() {
            return Ok(Field::EndOfInput);
        }
        self.rest = after;
        self.value().map(Field::Given)
    }

    /// Reads the next field if it is an object id in full and without quotes, as it is nearly
    /// always.
    pub(super) fn plain_oid(&mut self, hex_len: usize) -> Option<ObjectId> {
        let (hex, after) = self.rest.strip_prefix(b" ")?.split_at_checked(hex_len)?;
        if self.zero || !after.first().copied().is_some_and(is_space) {
            return None;
        }
        let oid = ObjectId::from_hex(hex)?;
        self.rest = after;
        Some(oid)
    }

    /// Reads the value that begins here.
    fn value(&mut self) -> Result<Cow<'p, [u8]>> {
        if !self.zero && self.rest.starts_with(b"\"") {
            return self.quoted();
        }
        let end = match self.zero {
            true => self.rest.find_byte(0),
            false => self.rest.iter().position(|&byte| is_space(byte)),
        };
        let len = end.unwrap_or(self.rest.len());
        let (value, rest) = self.rest.split_at(len);
        self.rest = rest;
        Ok(Cow::Borrowed(value))
    }

    fn quoted(&mut self) -> Result<Cow<'p, [u8]>> {
        let whole = self.rest;
        let refuse = |what: &str| {
            Failure::fatal([what.as_bytes(), whole.trim_end_with(|c| c == '\0')].concat())
        };
        let (value, rest) = unquote(whole).ok_or_else(|| refuse("badly quoted argument: "))?;
        if rest.first().is_some_and(|&byte| !is_space(byte)) {
            return Err(refuse("unexpected character after quoted argument: "));
        }
        self.rest = rest;
        Ok(value)
    }
}

/// Checks the format of a name. A name that had to be put together lives on until the process
/// ends: there are few of them, and the transaction that holds the name may live as long.
fn checked(name: Cow<'_, [u8]>) -> Result<Option<&[u8]>> {
    if name.is_empty() {
        return Ok(None);
    }
    if !is_well_formed(&name, FormatOptions::ONE_LEVEL) {
        return Err(Failure::fatal([b"invalid ref format: ", &*name].concat()));
    }
    Ok(Some(match name {
        Cow::Borrowed(name) => name,
        Cow::Owned(name) => name.leak(),
    }))
}

fn is_space(byte: u8) -> bool {
    byte <= b' ' && matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// Takes the C-style quoted string at the start of `text`; returns it and what follows.
fn unquote(text: &[u8]) -> Option<(Cow<'_, [u8]>, &[u8])> {
    let text = text.strip_prefix(b"\"")?;
    let plain = text.find_byteset(b"\"\\")?;
    let (start, mut rest) = text.split_at(plain);
    if let Some(rest) = rest.strip_prefix(b"\"") {
        return Some((Cow::Borrowed(start), rest));
    }
    let mut value = start.to_vec();
    loop {
        let (&byte, after) = rest.split_first()?;
        rest = after;
        if byte == b'"' {
            return Some((Cow::Owned(value), rest));
        }
        if byte != b'\\' {
            value.push(byte);
            continue;
        }
        let (&escape, after) = rest.split_first()?;
        rest = after;
        value.push(match escape {
            b'a' => 7,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 11,
            b'\\' | b'"' => escape,
            b'0'..=b'3' => {
                let (digits, after) = rest.split_at_checked(2)?;
                rest = after;
                let digit = |byte: u8| matches!(byte, b'0'..=b'7').then(|| byte - b'0');
                let &[high, low] = digits else { return None };
                ((escape - b'0') << 6) | (digit(high)? << 3) | digit(low)?
            }
            _ => return None,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_those_of_c() {
        let (value, rest) = unquote(br#""a\tb\303\266\"" tail"#).unwrap();
        assert_eq!(&*value, b"a\tb\xc3\xb6\"");
        assert_eq!(rest, b" tail");
        for bad in [&b"\"open"[..], b"\"\\q\"", b"\"\\40\"", b"\"\\", b"\"\\9"] {
            assert!(unquote(bad).is_none(), "{:?}", bad.as_bstr());
        }
    }

    #[test]
    fn plain_quotes_copy_nothing() {
        assert!(matches!(
            unquote(b"\"refs/x\""),
            Some((Cow::Borrowed(b"refs/x"), b""))
        ));
    }
}
