//! Formats: literal text, atoms, and blocks of them that are aligned or depend on a condition.
//!
//! 1. A format is taken apart once, into a tree; what is wrong with an atom is told at once.
//! 2. What is wrong with the order of `if`, `then`, `else` and `end` is told when the first ref is
//!    formatted, as Git does: where no ref is listed, it is not told at all.

use bstr::ByteSlice;

use super::atom::Atom;
use super::block::{Alignment, Condition};
use crate::failure::{Failure, Result};

/// A format, taken apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Format {
    pub(super) pieces: Vec<Piece>,
    /// What is wrong with the order of the blocks.
    mistake: Option<&'static str>,
}

/// A piece of a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Literal(Vec<u8>),
    Atom(Atom),
    Align(Alignment, Vec<Piece>),
    If(If),
}

/// A condition and what depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct If {
    pub(super) condition: Condition,
    pub(super) tested: Vec<Piece>,
    pub(super) then: Vec<Piece>,
    pub(super) otherwise: Vec<Piece>,
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
        let mut tree = Tree::default();
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
                tree.literal(std::mem::take(&mut literal));
                tree.atom(atom)?;
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
        tree.literal(literal);
        Ok(Ok(tree.finish()))
    }

    /// Checks the order of the blocks.
    ///
    /// # Errors
    /// Fatal, for what is not in order.
    pub(super) fn check(&self) -> Result<()> {
        match self.mistake {
            Some(mistake) => Err(Failure::fatal(format!("format: {mistake}"))),
            None => Ok(()),
        }
    }

    /// Returns the atoms outside of blocks.
    pub(super) fn atoms(&self) -> impl Iterator<Item = &Atom> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Atom(atom) => Some(atom),
            Piece::Literal(_) | Piece::Align(..) | Piece::If(_) => None,
        })
    }
}

/// A tree that grows piece by piece.
#[derive(Default)]
struct Tree {
    format: Format,
    /// The blocks that have no end yet, the innermost last.
    open: Vec<Open>,
}

enum Open {
    Align(Alignment, Vec<Piece>),
    /// A condition, and which of its three parts is being filled.
    If(If, Part),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Tested,
    Then,
    Otherwise,
}

impl Tree {
    fn push(&mut self, piece: Piece) {
        let pieces = match self.open.last_mut() {
            None => &mut self.format.pieces,
            Some(Open::Align(_, pieces)) => pieces,
            Some(Open::If(block, Part::Tested)) => &mut block.tested,
            Some(Open::If(block, Part::Then)) => &mut block.then,
            Some(Open::If(block, Part::Otherwise)) => &mut block.otherwise,
        };
        pieces.push(piece);
    }

    fn literal(&mut self, text: Vec<u8>) {
        if !text.is_empty() {
            self.push(Piece::Literal(text));
        }
    }

    fn atom(&mut self, text: &[u8]) -> Result<()> {
        let (word, argument) = match text.split_once_str(":") {
            Some((word, argument)) => (word, argument),
            None => (text, &b""[..]),
        };
        let argument = argument.to_str_lossy();
        match word {
            b"align" => {
                let alignment = Alignment::parse(&argument)?;
                self.open.push(Open::Align(alignment, Vec::new()));
            }
            b"if" => {
                let block = If {
                    condition: Condition::parse(&argument)?,
                    tested: Vec::new(),
                    then: Vec::new(),
                    otherwise: Vec::new(),
                };
                self.open.push(Open::If(block, Part::Tested));
            }
            b"then" => self.then(),
            b"else" => self.otherwise(),
            b"end" => self.end(),
            _ => {
                let atom = Atom::parse(text)?;
                if matches!(word, b"rest" | b"*rest") {
                    let text = format!("this command reject atom %({})", atom.text);
                    return Err(Failure::fatal(text));
                }
                self.push(Piece::Atom(atom));
            }
        }
        Ok(())
    }

    fn then(&mut self) {
        match self.open.last_mut() {
            Some(Open::If(_, part)) => match part {
                Part::Tested => *part = Part::Then,
                Part::Then | Part::Otherwise => self.mistake("%(then) atom used more than once"),
            },
            _ => self.mistake("%(then) atom used without a %(if) atom"),
        }
    }

    fn otherwise(&mut self) {
        match self.open.last_mut() {
            Some(Open::If(_, part)) => match part {
                Part::Tested => self.mistake("%(else) atom used without a %(then) atom"),
                Part::Then => *part = Part::Otherwise,
                Part::Otherwise => self.mistake("%(else) atom used more than once"),
            },
            _ => self.mistake("%(else) atom used without a %(if) atom"),
        }
    }

    fn end(&mut self) {
        match self.open.pop() {
            None => self.mistake("%(end) atom used without corresponding atom"),
            Some(Open::Align(alignment, pieces)) => self.push(Piece::Align(alignment, pieces)),
            Some(Open::If(_, Part::Tested)) => {
                self.mistake("%(if) atom used without a %(then) atom");
            }
            Some(Open::If(block, _)) => self.push(Piece::If(block)),
        }
    }

    /// Remembers what is wrong; the first mistake is the one that is told.
    fn mistake(&mut self, what: &'static str) {
        self.format.mistake.get_or_insert(what);
    }

    fn finish(mut self) -> Format {
        if !self.open.is_empty() {
            self.mistake("%(end) atom missing");
        }
        self.format
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

    fn format(text: &str) -> Format {
        Format::parse(text.as_bytes()).unwrap().unwrap()
    }

    fn literal(text: &str) -> Vec<u8> {
        match format(text).pieces.as_slice() {
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
        let format = format("a%(refname)%(flag)b");
        assert_eq!(format.atoms().count(), 2);
        assert_eq!(format.pieces.len(), 4);
    }

    #[test]
    fn blocks_nest() {
        let format = format("%(if)%(HEAD)%(then)%(align:5)a%(end)%(else)b%(end)");
        assert!(format.check().is_ok());
        let [Piece::If(block)] = format.pieces.as_slice() else {
            panic!("{format:?}");
        };
        assert!(matches!(block.then.as_slice(), [Piece::Align(..)]));
        assert_eq!(block.otherwise, [Piece::Literal(b"b".to_vec())]);
    }

    #[test]
    fn the_first_mistake_in_the_order_of_blocks_is_kept() {
        assert_eq!(
            format("%(else)%(if)").mistake,
            Some("%(else) atom used without a %(if) atom")
        );
        assert_eq!(format("%(if)").mistake, Some("%(end) atom missing"));
    }
}
