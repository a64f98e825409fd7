//! Formats: literal text with atoms in it.

use bstr::ByteSlice;

use super::atom::Atom;
use crate::failure::Result;

/// A format, taken apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Format {
    pub(super) pieces: Vec<Piece>,
}

/// A piece of a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Literal(Vec<u8>),
    Atom(Atom),
}

/// What a format is that has an atom without an end.
#[derive(Debug)]
pub(super) struct Malformed<'a>(pub(super) &'a [u8]);

impl Format {
    /// Takes a format apart; the inner result is the place of an atom without an end.
    ///
    /// # Errors
    /// Fatal, for an atom that does not exist.
    pub(super) fn parse(text: &[u8]) -> Result<std::result::Result<Format, Malformed<'_>>> {
        let mut pieces = Vec::new();
        let mut literal = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find_byte(b'%') {
            let (before, from) = rest.split_at(at);
            literal.extend_from_slice(before);
            rest = from.get(1..).unwrap_or_default();
            if let Some(inner) = rest.strip_prefix(b"(") {
                let Some((atom, after)) = inner.split_once_str(")") else {
                    return Ok(Err(Malformed(from)));
                };
                if !literal.is_empty() {
                    pieces.push(Piece::Literal(std::mem::take(&mut literal)));
                }
                pieces.push(Piece::Atom(Atom::parse(atom)?));
                rest = after;
            } else if let Some(after) = rest.strip_prefix(b"%") {
                literal.push(b'%');
                rest = after;
            } else if let Some(byte) = rest.get(..2).and_then(hex) {
                literal.push(byte);
                rest = rest.get(2..).unwrap_or_default();
            } else {
                literal.push(b'%');
            }
        }
        literal.extend_from_slice(rest);
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal));
        }
        Ok(Ok(Format { pieces }))
    }

    /// Returns the atoms.
    pub(super) fn atoms(&self) -> impl Iterator<Item = &Atom> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Atom(atom) => Some(atom),
            Piece::Literal(_) => None,
        })
    }
}

fn hex(digits: &[u8]) -> Option<u8> {
    let text = digits.to_str().ok()?;
    let digits_only = digits.iter().all(u8::is_ascii_hexdigit);
    digits_only.then(|| u8::from_str_radix(text, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn literal(text: &str) -> Vec<u8> {
        match Format::parse(text.as_bytes())
            .unwrap()
            .unwrap()
            .pieces
            .as_slice()
        {
            [Piece::Literal(literal)] => literal.clone(),
            [] => Vec::new(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn percent_signs_stand_for_bytes_or_for_themselves() {
        assert_eq!(literal("%%x%41%4%zz%"), b"%xA%4%zz%");
        assert_eq!(literal("%00"), b"\0");
        assert_eq!(literal("%+1"), b"%+1");
        assert_eq!(literal("%%(x"), b"%(x");
    }

    #[test]
    fn an_atom_without_an_end_is_told_with_what_follows() {
        let malformed = Format::parse(b"a%(refname").unwrap().unwrap_err();
        assert_eq!(malformed.0.as_bstr(), "%(refname");
        let format = Format::parse(b"a%(refname)%(flag)b").unwrap().unwrap();
        assert_eq!(format.atoms().count(), 2);
        assert_eq!(format.pieces.len(), 4);
    }
}
