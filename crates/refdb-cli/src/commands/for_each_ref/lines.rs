//! Lines of which a ref's name, the id of its object, and the object's kind are all: those of the
//! default format, and of many others. Two threads make them where there are many.

use hashbrown::HashMap;
use refdb::objects::{ObjectKind, Objects};
use refdb::{ObjectId, Part, RefName, Refs, short};

use super::atom::{Atoms, Kind, NameForm};
use super::format::{Format, Piece};
use super::selection::Selection;
use super::value::missing;
use crate::context::Digits;
use crate::failure::{Failure, Result, say};
use crate::output::Output;

/// What a line consists of.
pub(super) struct Lines<'a> {
    pieces: Vec<LinePiece<'a>>,
    omit_empty: bool,
    objects: &'a dyn Objects,
}

enum LinePiece<'a> {
    Literal(&'a [u8]),
    RefName,
    ObjectName,
    ObjectType,
}

impl<'a> Lines<'a> {
    /// Takes a format, if its lines consist of no more than that. What is empty is a line as well,
    /// unless that is to be omitted.
    pub(super) fn of(
        format: &'a Format,
        atoms: &Atoms,
        omit_empty: bool,
        objects: &'a dyn Objects,
    ) -> Option<Self> {
        let pieces = format.plain_pieces()?.iter().map(|piece| {
            let index = match piece {
                Piece::Literal(literal) => return Some(LinePiece::Literal(literal)),
                Piece::Atom(index) => *index,
            };
            let atom = atoms.list().get(index).filter(|atom| !atom.deref)?;
            match atom.kind {
                Kind::RefName(NameForm::Full) => Some(LinePiece::RefName),
                Kind::ObjectName(Digits::All) => Some(LinePiece::ObjectName),
                Kind::ObjectType => Some(LinePiece::ObjectType),
                _ => None,
            }
        });
        Some(Lines {
            pieces: pieces.collect::<Option<_>>()?,
            omit_empty,
            objects,
        })
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

/// The lines of some refs.
#[derive(Default)]
struct Made {
    text: Vec<u8>,
    /// What is to be told before.
    notes: Vec<(&'static str, String)>,
    /// Why there are no more.
    failure: Option<Failure>,
}

/// Writes lines; asks for the kind of each object once.
pub(super) struct LineWriter<'l> {
    lines: &'l Lines<'l>,
    kinds: HashMap<ObjectId, Option<ObjectKind>>,
}

impl<'l> LineWriter<'l> {
    pub(super) fn new(lines: &'l Lines<'l>) -> Self {
        LineWriter {
            lines,
            kinds: HashMap::new(),
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
                LinePiece::ObjectName => oid.push_hex(out),
                LinePiece::ObjectType => match self.kind(name, oid) {
                    Ok(kind) => short::push(out, kind.as_str().as_bytes()),
                    Err(failure) => {
                        // Nobody is to take half a line for a whole one.
                        out.truncate(start);
                        return Err(failure);
                    }
                },
            }
        }
        if out.len() > start || !self.lines.omit_empty {
            out.push(b'\n');
        }
        Ok(())
    }

    #[inline]
    fn kind(&mut self, name: RefName<'_>, oid: &ObjectId) -> Result<ObjectKind> {
        let kind = match self.kinds.get(oid) {
            Some(kind) => *kind,
            None => {
                let kind = self.lines.objects.kind(*oid)?;
                self.kinds.insert(*oid, kind);
                kind
            }
        };
        kind.ok_or_else(|| missing(oid, name))
    }
}
