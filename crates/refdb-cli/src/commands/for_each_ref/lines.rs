//! Lines of which a ref's name, the id of its object, and the object's kind and size are all: those of
//! the default format, and of many others. Two threads make them where there are many.

use refdb::{ObjectId, Part, RefName, RefNameBuf, Refs, short};

use super::atom::{Atoms, Kind, NameForm};
use super::end_line;
use super::format::{Format, Piece};
use super::headers::Headers;
use super::selection::Selection;
use super::value::{strip_left, strip_right};
use crate::context::{Context, Digits, resolve_listed};
use crate::failure::{Failure, Result, say};
use crate::output::Output;

/// What a line consists of.
pub(super) struct Lines<'a> {
    pieces: Vec<LinePiece<'a>>,
    omit_empty: bool,
    /// What is known of objects before the first line.
    headers: Headers<'a>,
    /// The branch that is checked out, if lines tell of it.
    head: Option<RefNameBuf>,
}

enum LinePiece<'a> {
    Literal(&'a [u8]),
    RefName,
    /// The name without so many components at its front.
    FromLeft(i32),
    /// The name without so many components at its end.
    FromRight(i32),
    ObjectName,
    ObjectType,
    ObjectSize,
    /// Whether it is the branch that is checked out.
    Head,
}

impl<'a> Lines<'a> {
    /// Takes a format, if its lines consist of no more than that. What is empty is a line as well,
    /// unless that is to be omitted.
    ///
    /// # Errors
    /// When HEAD cannot be read, if lines tell of it.
    pub(super) fn of(
        context: &'a Context,
        format: &'a Format,
        atoms: &'a Atoms,
        omit_empty: bool,
        headers: &Headers<'a>,
    ) -> Result<Option<Self>> {
        let pieces = format.plain_pieces().and_then(|pieces| {
            let pieces = pieces.iter().map(|piece| LinePiece::of(piece, atoms));
            pieces.collect::<Option<Vec<_>>>()
        });
        let Some(pieces) = pieces else {
            return Ok(None);
        };
        let head = match pieces.iter().any(|piece| matches!(piece, LinePiece::Head)) {
            true => resolve_listed(context.store()?, RefName::HEAD)?,
            false => None,
        };
        Ok(Some(Lines {
            pieces,
            omit_empty,
            headers: headers.clone(),
            head: head.map(|head| head.name),
        }))
    }

    /// Prints the lines of all refs of a range that are asked for. Many are made by two threads, each
    /// of which asks for objects by itself.
    pub(super) fn print_range(
        &self,
        selection: &Selection<'_>,
        refs: &mut Refs,
        out: &mut Output,
    ) -> Result<bool> {
        let maker = || {
            let mut writer = LineWriter::new(self);
            let mut len = 0;
            move |part: &mut Part<'_>| {
                // Lines of names that follow each other are about as long.
                let mut made = Made {
                    text: Vec::with_capacity(len + len / 8),
                    ..Made::default()
                };
                made.failure = writer.fill(selection, part, &mut made).err();
                len = made.text.len();
                made
            }
        };
        refs.by_parts(maker, |made| {
            for (severity, text) in made.notes {
                say(severity, text.as_bytes());
            }
            out.put_lines(&made.text)?;
            made.failure.map_or(Ok(true), Err)
        })
    }
}

impl<'a> LinePiece<'a> {
    fn of(piece: &'a Piece, atoms: &'a Atoms) -> Option<Self> {
        let index = match piece {
            Piece::Literal(literal) => return Some(LinePiece::Literal(literal)),
            Piece::Atom(index) => *index,
        };
        let atom = atoms.list().get(index).filter(|atom| !atom.deref)?;
        match &atom.kind {
            Kind::RefName(NameForm::Full) => Some(LinePiece::RefName),
            Kind::RefName(NameForm::StripLeft(count)) => Some(LinePiece::FromLeft(*count)),
            Kind::RefName(NameForm::StripRight(count)) => Some(LinePiece::FromRight(*count)),
            Kind::ObjectName(Digits::All) => Some(LinePiece::ObjectName),
            Kind::ObjectType => Some(LinePiece::ObjectType),
            Kind::ObjectSize => Some(LinePiece::ObjectSize),
            Kind::Head => Some(LinePiece::Head),
            Kind::Color(sequence) => Some(LinePiece::Literal(sequence)),
            _ => None,
        }
    }
}

/// The lines of some refs.
#[derive(Default)]
struct Made {
    text: Vec<u8>,
    /// What is to be told before.
    notes: Vec<(&'static str, String)>,
    /// Why there are no more.
    failure: Option<Failure>,
}

/// Writes lines.
pub(super) struct LineWriter<'l> {
    lines: &'l Lines<'l>,
    headers: Headers<'l>,
}

impl<'l> LineWriter<'l> {
    pub(super) fn new(lines: &'l Lines<'l>) -> Self {
        LineWriter {
            lines,
            headers: lines.headers.clone(),
        }
    }

    fn fill(
        &mut self,
        selection: &Selection<'_>,
        part: &mut Part<'_>,
        made: &mut Made,
    ) -> Result<()> {
        let (text, notes) = (&mut made.text, &mut made.notes);
        let mut tell = |severity, text| notes.push((severity, text));
        part.each(|record| {
            if let Some(oid) = selection.plain(record) {
                return self.push(record.name, oid, text);
            }
            match selection.item(record, &mut tell)? {
                Some(item) => self.push(item.name, &item.oid, text),
                None => Ok(()),
            }
        })
    }

    /// Appends the line of a ref.
    ///
    /// # Errors
    /// Fatal, if its object is missing and the line tells of it; then nothing is appended.
    #[inline]
    pub(super) fn push(
        &mut self,
        name: RefName<'_>,
        oid: &ObjectId,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let start = out.len();
        for piece in &self.lines.pieces {
            match piece {
                LinePiece::Literal(literal) => short::push(out, literal),
                LinePiece::RefName => short::push(out, name.as_bytes()),
                LinePiece::FromLeft(count) => short::push(out, strip_left(name.as_bytes(), *count)),
                LinePiece::FromRight(count) => {
                    short::push(out, strip_right(name.as_bytes(), *count));
                }
                LinePiece::ObjectName => oid.push_hex(out),
                LinePiece::Head => {
                    let head = self.lines.head.as_ref();
                    let is_head = head.is_some_and(|head| head.as_name() == name);
                    out.push(if is_head { b'*' } else { b' ' });
                }
                LinePiece::ObjectType | LinePiece::ObjectSize => {
                    match self.headers.of_ref(oid, name) {
                        Ok(header) if matches!(piece, LinePiece::ObjectType) => {
                            short::push(out, header.kind.as_str().as_bytes());
                        }
                        Ok(header) => out.extend_from_slice(header.size.to_string().as_bytes()),
                        Err(failure) => {
                            // Nobody is to take half a line for a whole one.
                            out.truncate(start);
                            return Err(failure);
                        }
                    }
                }
            }
        }
        end_line(start, self.lines.omit_empty, out);
        Ok(())
    }
}
