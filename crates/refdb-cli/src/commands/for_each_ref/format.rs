//! Formats: literal text and atoms, and how they become a line.
//!
//! 1. A format is taken apart once; what is wrong with an atom is told at once.
//! 2. What is wrong with the order of `if`, `then`, `else` and `end` is told when the first ref is
//!    formatted, as Git does: where no ref is listed, it is not told at all.
//! 3. All atoms have their values before the first of them is used, also those of a branch that is
//!    not taken.

use bstr::ByteSlice;

use super::atom::{Atoms, Kind, split_once};
use super::block::{Alignment, Condition};
use super::color;
use super::quote::Quoting;
use super::row::Row;
use crate::failure::{Failure, Result};

/// A format, taken apart.
#[derive(Debug, Default)]
pub(super) struct Format {
    pieces: Vec<Piece>,
    quoting: Quoting,
    has_blocks: bool,
    /// Whether a line ends with taking all colours back.
    resets: bool,
}

/// A piece of a format.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Literal(Vec<u8>),
    /// The place of the atom in the list.
    Atom(usize),
}

/// What a format is that has an atom without an end.
#[derive(Debug)]
pub(super) struct Malformed<'a>(pub(super) &'a [u8]);

impl Format {
    /// Takes a format apart; the inner result is the place of an atom without an end.
    ///
    /// # Errors
    /// Fatal, for an atom that does not exist, or does not go with the quoting.
    pub(super) fn parse<'t>(
        text: &'t [u8],
        quoting: Quoting,
        atoms: &mut Atoms,
    ) -> Result<std::result::Result<Format, Malformed<'t>>> {
        let mut format = Format {
            quoting,
            ..Format::default()
        };
        let mut literal = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = split_once(rest, b'%') {
            let from = rest.get(before.len()..).unwrap_or_default();
            literal.extend_from_slice(before);
            rest = after;
            if let Some(inner) = rest.strip_prefix(b"(") {
                let Some((atom, after)) = split_once(inner, b')') else {
                    return Ok(Err(Malformed(from)));
                };
                format.literal(&mut literal);
                format.atom(atom, atoms)?;
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
        format.literal(&mut literal);
        format.resets &= atoms.is_colored();
        Ok(Ok(format))
    }

    fn literal(&mut self, literal: &mut Vec<u8>) {
        if !literal.is_empty() {
            self.pieces.push(Piece::Literal(std::mem::take(literal)));
        }
    }

    fn atom(&mut self, text: &[u8], atoms: &mut Atoms) -> Result<()> {
        let index = atoms.add(text)?;
        let shown = text.as_bstr();
        match atoms.list().get(index).map(|atom| &atom.kind) {
            Some(Kind::Rest) => {
                let text = format!("this command reject atom %({shown})");
                return Err(Failure::fatal(text));
            }
            Some(Kind::Raw) if !self.quoting.takes_zero_bytes() => {
                let text = format!("--format={shown} cannot be used with --python, --shell, --tcl");
                return Err(Failure::fatal(text));
            }
            Some(Kind::Color(_)) | None => {}
            Some(kind) => self.has_blocks |= kind.is_of_blocks(),
        }
        if let Some(color) = text.strip_prefix(b"color:") {
            self.resets = color != b"reset";
        }
        self.pieces.push(Piece::Atom(index));
        Ok(())
    }

    /// Returns the places of the atoms.
    pub(super) fn atoms(&self) -> impl Iterator<Item = usize> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Atom(index) => Some(*index),
            Piece::Literal(_) => None,
        })
    }

    /// Returns the pieces, if a line is nothing but one of them behind the other.
    pub(super) fn plain_pieces(&self) -> Option<&[Piece]> {
        let is_plain = !self.has_blocks && !self.resets && self.quoting == Quoting::None;
        is_plain.then_some(self.pieces.as_slice())
    }

    /// Appends the line of a ref.
    ///
    /// # Errors
    /// Fatal, for blocks that are not in order.
    pub(super) fn push(&self, row: &Row, atoms: &Atoms, out: &mut Vec<u8>) -> Result<()> {
        if self.has_blocks {
            return self.push_blocks(row, atoms, out);
        }
        for piece in &self.pieces {
            match piece {
                Piece::Literal(literal) => out.extend_from_slice(literal),
                Piece::Atom(index) => self.quoting.push(row.value(*index), out),
            }
        }
        if self.resets {
            self.quoting.push(color::RESET, out);
        }
        Ok(())
    }

    fn push_blocks(&self, row: &Row, atoms: &Atoms, out: &mut Vec<u8>) -> Result<()> {
        let mut blocks = Blocks {
            open: Vec::new(),
            quoting: self.quoting,
            out,
        };
        for piece in &self.pieces {
            let index = match piece {
                Piece::Literal(literal) => {
                    blocks.literal(literal);
                    continue;
                }
                Piece::Atom(index) => *index,
            };
            match atoms.list().get(index).map(|atom| &atom.kind) {
                Some(Kind::Align(alignment)) => blocks.begin(Block::Align(*alignment)),
                Some(Kind::If(condition)) => blocks.begin(Block::If {
                    condition,
                    holds: None,
                    then: None,
                }),
                Some(Kind::Then) => blocks.then()?,
                Some(Kind::Else) => blocks.otherwise()?,
                Some(Kind::End) => blocks.end()?,
                _ => blocks.value(row.value(index)),
            }
        }
        if self.resets {
            blocks.value(color::RESET);
        }
        match blocks.open.is_empty() {
            true => Ok(()),
            false => Err(mistake("%(end) atom missing")),
        }
    }
}

fn mistake(what: &str) -> Failure {
    Failure::fatal(format!("format: {what}"))
}

/// The blocks that have no end yet, and what was written into each of them.
struct Blocks<'a> {
    open: Vec<(Block<'a>, Vec<u8>)>,
    quoting: Quoting,
    out: &'a mut Vec<u8>,
}

enum Block<'a> {
    Align(Alignment),
    If {
        condition: &'a Condition,
        /// Known from `then` on.
        holds: Option<bool>,
        /// What was written between `then` and `else`; known from `else` on.
        then: Option<Vec<u8>>,
    },
}

impl<'a> Blocks<'a> {
    fn begin(&mut self, block: Block<'a>) {
        self.open.push((block, Vec::new()));
    }

    fn literal(&mut self, text: &[u8]) {
        match self.open.last_mut() {
            Some((_, written)) => written.extend_from_slice(text),
            None => self.out.extend_from_slice(text),
        }
    }

    /// A block is quoted as a whole, whatever is in it.
    fn value(&mut self, text: &[u8]) {
        match self.open.last_mut() {
            Some((_, written)) => written.extend_from_slice(text),
            None => self.quoting.push(text, self.out),
        }
    }

    fn then(&mut self) -> Result<()> {
        let Some((
            Block::If {
                condition, holds, ..
            },
            written,
        )) = self.open.last_mut()
        else {
            return Err(mistake("%(then) atom used without a %(if) atom"));
        };
        if holds.is_some() {
            return Err(mistake("%(then) atom used more than once"));
        }
        *holds = Some(condition.holds(written));
        written.clear();
        Ok(())
    }

    fn otherwise(&mut self) -> Result<()> {
        let Some((Block::If { holds, then, .. }, written)) = self.open.last_mut() else {
            return Err(mistake("%(else) atom used without a %(if) atom"));
        };
        if holds.is_none() {
            return Err(mistake("%(else) atom used without a %(then) atom"));
        }
        if then.is_some() {
            return Err(mistake("%(else) atom used more than once"));
        }
        *then = Some(std::mem::take(written));
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        let Some((block, mut written)) = self.open.pop() else {
            return Err(mistake("%(end) atom used without corresponding atom"));
        };
        let text = match block {
            Block::Align(alignment) => {
                let mut text = Vec::new();
                alignment.push(&written, &mut text);
                text
            }
            Block::If { holds: None, .. } => {
                return Err(mistake("%(if) atom used without a %(then) atom"));
            }
            Block::If {
                holds: Some(holds),
                then,
                ..
            } => match (then, holds) {
                (Some(then), true) => then,
                (None, false) => {
                    written.clear();
                    written
                }
                _ => written,
            },
        };
        self.value(&text);
        Ok(())
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

    fn line(text: &str, quoting: Quoting) -> std::result::Result<String, String> {
        let mut atoms = Atoms::new(true);
        let format = Format::parse(text.as_bytes(), quoting, &mut atoms);
        let format = format.unwrap().unwrap();
        let mut row = Row::default();
        row.clear(atoms.list().len());
        for (index, atom) in atoms.list().iter().enumerate() {
            let (out, start) = row.begin();
            match &atom.kind {
                Kind::Color(sequence) => out.extend_from_slice(sequence),
                _ => out.extend_from_slice(atom.text.as_bytes()),
            }
            row.end(index, start, false);
        }
        let mut out = Vec::new();
        match format.push(&row, &atoms, &mut out) {
            Ok(()) => Ok(String::from_utf8(out).unwrap()),
            Err(Failure::Fatal(text)) => Err(String::from_utf8(text.text).unwrap()),
            Err(other) => panic!("{other:?}"),
        }
    }

    fn plain(text: &str) -> String {
        line(text, Quoting::None).unwrap()
    }

    #[test]
    fn percent_signs_stand_for_bytes_or_for_themselves() {
        assert_eq!(plain("%%x%41%4%zz%"), "%xA%4%zz%");
        assert_eq!(plain("%00"), "\0");
        assert_eq!(plain("%+1"), "%+1");
        assert_eq!(plain("%%(x"), "%(x");
    }

    #[test]
    fn an_atom_without_an_end_is_told_with_what_follows() {
        let mut atoms = Atoms::new(false);
        let malformed = Format::parse(b"a%(refname", Quoting::None, &mut atoms);
        assert_eq!(malformed.unwrap().unwrap_err().0.as_bstr(), "%(refname");
        assert_eq!(plain("a%(refname)%(flag)b"), "arefnameflagb");
    }

    #[test]
    fn blocks_nest() {
        let text = "%(if)%(HEAD)%(then)%(align:5)a%(end)%(else)b%(end)|";
        assert_eq!(plain(text), "a    |");
        let text = "%(if) %(then)a%(else)%(if:equals=x)x%(then)y%(end)%(end)|";
        assert_eq!(plain(text), "y|");
        assert_eq!(
            line(
                "%(align:3)%(flag)%(end)%(if)x%(then)'%(end)",
                Quoting::Shell
            )
            .unwrap(),
            r"'flag'''\'''"
        );
    }

    #[test]
    fn the_first_mistake_in_the_order_of_blocks_is_told() {
        let mistake = |text: &str| line(text, Quoting::None).unwrap_err();
        assert_eq!(
            mistake("%(else)%(if)"),
            "format: %(else) atom used without a %(if) atom"
        );
        assert_eq!(mistake("%(if)"), "format: %(end) atom missing");
        assert_eq!(
            mistake("%(if)%(then)%(else)%(then)%(end)"),
            "format: %(then) atom used more than once"
        );
    }

    #[test]
    fn colors_are_taken_back_at_the_end() {
        assert_eq!(plain("%(color:red)a"), "\x1b[31ma\x1b[m");
        assert_eq!(plain("%(color:red)a%(color:reset)b"), "\x1b[31ma\x1b[mb");
        assert_eq!(
            line("%(color:red)", Quoting::Perl).unwrap(),
            "'\x1b[31m''\x1b[m'"
        );
    }
}
