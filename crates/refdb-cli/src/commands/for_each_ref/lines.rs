//! Lines of which a ref's name, the id of its object, and the object's kind and size are all: those of
//! the default format, and of many others. Two threads make them where there are many.

use refdb::objects::ObjectKind;
use refdb::system::both;
use refdb::{ObjectId, Part, RefName, RefNameBuf, Refs, short};

use super::atom::{Atoms, Kind, NameForm};
use super::end_line;
use super::format::{Format, Piece};
use super::headers::Headers;
use super::selection::Selection;
use super::value::{push_number, strip_left, strip_right};
use crate::context::{Context, Digits, resolve_listed};
use crate::failure::{Failure, Result, say};
use crate::output::Output;

/// What a line consists of.
pub(super) struct Lines<'a> {
    pieces: Vec<LinePiece<'a>>,
    /// Whether the kinds of objects are asked for, and no more.
    asks_for_kinds: bool,
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
        let mut asked = pieces.iter().filter_map(|piece| match piece {
            LinePiece::ObjectType => Some(false),
            LinePiece::ObjectSize => Some(true),
            _ => None,
        });
        let asks = asked.clone().next().is_some();
        let asks_for_sizes = asked.any(|is_size| is_size);
        let headers = match asks_for_sizes {
            true => headers.clone().with_sizes(),
            false => headers.clone(),
        };
        Ok(Some(Lines {
            pieces,
            asks_for_kinds: asks && !asks_for_sizes,
            omit_empty,
            headers,
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
        let mut gathered = Gathered::new(self);
        let read = refs.by_parts(maker, |made| gathered.take(made, out));
        // What came before an error is shown before it is told.
        gathered.print(out)?;
        read
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

/// The lines of the refs of a part.
#[derive(Default)]
struct Made {
    text: Vec<u8>,
    /// The refs behind those, as their names end among all of them: the kinds of their objects are not known.
    names: Vec<u8>,
    refs: Vec<(usize, ObjectId)>,
    /// What is to be told before, and how many of the refs that wait it comes behind.
    notes: Vec<(usize, &'static str, String)>,
    /// Why there are no more.
    failure: Option<Failure>,
}

/// Of so many refs it is looked whether they name the same objects.
const FIRST_LEN: usize = 64;

/// From so many refs on, half of their lines are made by a second thread.
const HALVES_MIN: usize = 8 << 10;

/// So many refs wait for the kinds of their objects at most.
const GATHERED_MAX: usize = 64 << 10;

/// The lines of parts, of which some wait for the kinds of their objects until many do, which are told at once then.
struct Gathered<'l> {
    writer: LineWriter<'l>,
    parts: Vec<Made>,
    /// How many refs wait.
    count: usize,
}

impl<'l> Gathered<'l> {
    fn new(lines: &'l Lines<'l>) -> Self {
        Gathered {
            writer: LineWriter::new(lines),
            parts: Vec::new(),
            count: 0,
        }
    }

    fn take(&mut self, made: Made, out: &mut Output) -> Result<bool> {
        self.count += made.refs.len();
        self.parts.push(made);
        if self.count == 0 || self.count >= GATHERED_MAX {
            self.print(out)?;
        }
        Ok(true)
    }

    /// Prints what there is.
    fn print(&mut self, out: &mut Output) -> Result<()> {
        let parts = std::mem::take(&mut self.parts);
        let parts = match std::mem::take(&mut self.count) {
            0 => parts,
            count => self.finish(parts, count),
        };
        for made in parts {
            for (_, severity, text) in made.notes {
                say(severity, text.as_bytes());
            }
            out.put_lines(&made.text)?;
            made.failure.map_or(Ok(()), Err)?;
        }
        Ok(())
    }

    /// Makes the lines of so many refs that waited, half of them in a second thread if they are many.
    fn finish(&mut self, mut parts: Vec<Made>, count: usize) -> Vec<Made> {
        let refs = parts.iter().flat_map(|made| &made.refs);
        let oids: Vec<ObjectId> = refs.map(|(_, oid)| *oid).collect();
        let kinds = self.writer.headers.kinds_at_once(&oids);
        if count < HALVES_MIN {
            return self.writer.finish(parts, &kinds);
        }
        let second = parts.split_off(parts.len() / 2);
        let count = parts.iter().map(|made| made.refs.len()).sum();
        let (kinds, others) = kinds.split_at_checked(count).unwrap_or_default();
        let mut other = LineWriter::new(self.writer.lines);
        let (mut parts, second) = both(
            || self.writer.finish(parts, kinds),
            || other.finish(second, others),
        );
        parts.extend(second);
        parts
    }
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
        let Made {
            text,
            names,
            refs,
            notes,
            ..
        } = made;
        let read = part.each(|record| {
            let waiting = refs.len();
            let mut tell = |severity, text| notes.push((waiting, severity, text));
            let item;
            let (name, oid) = match selection.plain(record) {
                Some(oid) => (record.name.as_bytes(), oid),
                None => match selection.item(record, &mut tell)? {
                    None => return Ok(()),
                    Some(found) => {
                        item = found;
                        (item.name.as_bytes(), &item.oid)
                    }
                },
            };
            let kind = match self.lines.asks_for_kinds {
                true => self.headers.known_kind(oid),
                false => None,
            };
            if refs.is_empty() && (kind.is_some() || !self.lines.asks_for_kinds) {
                return self.push(name, oid, kind, text);
            }
            short::push(names, name);
            refs.push((names.len(), *oid));
            Ok(())
        });
        if Self::are_few(refs) {
            // Others will name the same ones.
            self.headers
                .learn(refs.iter().map(|(_, oid)| *oid).collect());
        }
        read
    }

    /// Makes the lines of the refs of parts that waited for the kinds of their objects.
    fn finish(&mut self, mut parts: Vec<Made>, kinds: &[Option<ObjectKind>]) -> Vec<Made> {
        let mut kinds = kinds.iter();
        for made in &mut parts {
            let mut start = 0;
            let refs = std::mem::take(&mut made.refs);
            for (at, (end, oid)) in refs.into_iter().enumerate() {
                let name = made.names.get(start..end).unwrap_or_default();
                start = end;
                let kind = kinds.next().copied().flatten();
                if let Err(failure) = self.push(name, &oid, kind, &mut made.text) {
                    // Nothing comes behind it.
                    made.notes.retain(|(before, ..)| *before <= at);
                    made.failure = Some(failure);
                    return parts;
                }
            }
        }
        parts
    }

    /// Returns whether few objects have many refs, as far as the first of them tell.
    fn are_few(refs: &[(usize, ObjectId)]) -> bool {
        let mut first: Vec<&ObjectId> = refs.iter().take(FIRST_LEN).map(|(_, oid)| oid).collect();
        first.sort_unstable();
        first.dedup();
        first.len() <= FIRST_LEN / 2
    }

    /// Appends the line of a ref.
    ///
    /// # Errors
    /// Fatal, if its object is missing and the line tells of it; then nothing is appended.
    #[inline]
    pub(super) fn push(
        &mut self,
        name: &[u8],
        oid: &ObjectId,
        kind: Option<ObjectKind>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let start = out.len();
        for piece in &self.lines.pieces {
            match piece {
                LinePiece::Literal(literal) => short::push(out, literal),
                LinePiece::RefName => short::push(out, name),
                LinePiece::FromLeft(count) => short::push(out, strip_left(name, *count)),
                LinePiece::FromRight(count) => {
                    short::push(out, strip_right(name, *count));
                }
                LinePiece::ObjectName => oid.push_hex(out),
                LinePiece::Head => {
                    let head = self.lines.head.as_ref();
                    let is_head = head.is_some_and(|head| head.as_bytes() == name);
                    out.push(if is_head { b'*' } else { b' ' });
                }
                LinePiece::ObjectType | LinePiece::ObjectSize => {
                    let said = match piece {
                        LinePiece::ObjectType => kind
                            .map_or_else(|| self.headers.kind_of_ref(oid, name), Ok)
                            .map(|kind| short::push(out, kind.as_str().as_bytes())),
                        _ => (self.headers.size_of_ref(oid, name)).map(|size| {
                            push_number(size, out);
                        }),
                    };
                    if said.is_err() {
                        // Nobody is to take half a line for a whole one.
                        out.truncate(start);
                        return said;
                    }
                }
            }
        }
        end_line(start, self.lines.omit_empty, out);
        Ok(())
    }
}
