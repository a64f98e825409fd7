//! How a journal is written, and read by whoever does not know who wrote it.

use std::collections::HashSet;
use std::io::{self, Write as _};
use std::path::PathBuf;

use bstr::ByteSlice;
use bytes::Bytes;

use super::change::Change;
use super::content::{Content, Part};
use super::owner::{self, Owner, Signed};
use super::place::Place;
use super::step::{Source, Step};
use crate::system::Stat;

/// How the part of the file starts that is the journal.
const START: &[u8] = b"journal 5\n";

/// A journal has no more bytes, and no more locks and steps: whoever reads one that somebody else made takes 1 GiB of
/// memory at most, whichever stores it has open. A million new refs with new reflogs take 240 MB.
pub(super) const LEN_MAX: usize = 1 << 28;
const COUNT_MAX: usize = 1 << 21;

/// So many files get new content, each of which is looked at whether it is there. More refs go into packed-refs.
const PUTS_MAX: usize = 1 << 18;

/// How the end of a journal starts, and how long it is: the checksum follows, in hexadecimal digits.
pub(super) const END: &[u8] = b"end\0";
pub(super) const END_LEN: usize = END.len() + 16 + 1;

/// Says whether the journal can name a place.
type Named<'n> = &'n dyn Fn(&Place) -> bool;

/// Why a file is not the journal of a transaction that was committed here.
pub(super) enum Flaw {
    /// Power failed, or its process ended, before it was written.
    NotWhole,
    Foreign(&'static str),
    /// It says that it was made in another directory, or as another file.
    Elsewhere,
}

impl Change {
    /// Returns what stands behind the text of a lock: `text`, which the checksum is of as well. What is not
    /// `named`, or guarded by what is not, is left out: a crash leaves it as it was. If that is new content, no step
    /// that takes something away is written either: its only other value may be in what was left out.
    ///
    /// # Errors
    /// `FileTooLarge` if nobody would read it.
    pub(super) fn encode(
        &self,
        text: &[u8],
        dir: &Stat,
        own: &Stat,
        named: Named<'_>,
    ) -> io::Result<Vec<u8>> {
        let mut out = text.to_vec();
        out.extend_from_slice(START);
        let ids = format!("{} {}\n", dir.ino, own.ino);
        out.extend_from_slice(ids.as_bytes());
        let push = |out: &mut Vec<u8>, field: &[u8]| {
            out.extend_from_slice(field);
            out.push(0);
        };
        // There are three for each of many steps.
        let push_number = |out: &mut Vec<u8>, number: u64| {
            let _ = write!(out, "{number}");
            out.push(0);
        };
        for place in &self.guards {
            // Of what no journal names the lock is nobody's business.
            let (word, name) = write(place, named).unwrap_or((b"none", b""));
            push(&mut out, b"lock");
            push(&mut out, word);
            push(&mut out, name);
        }
        let is_written = |(guard, step): &(usize, Step)| {
            self.guards.get(*guard).is_some_and(named) && write(step.place(), named).is_some()
        };
        let is_put = |(_, step): &&(usize, Step)| matches!(step, Step::Put { .. });
        let gives_all = self.steps.iter().filter(is_put).all(is_written);
        let is_left_out = |it| !is_written(it) || !gives_all && it.1.takes_away();
        for (guard, step) in self.steps.iter().filter(|&it| !is_left_out(it)) {
            let (word, name) = write(step.place(), named).unwrap_or_default();
            let part;
            let (verb, number, lines): (&[u8], _, &[u8]) = match step {
                Step::Put { content, .. } => match content {
                    None => (b"put", None, b""),
                    Some(Content::Sum(sum)) => (b"put", Some(*sum), b""),
                    Some(Content::Part(Part { len, at, sum })) => {
                        part = format!("{} {sum}", at.unwrap_or(*len));
                        (b"put", Some(*len), part.as_bytes())
                    }
                },
                Step::Remove { .. } => (b"remove", None, b""),
                Step::Append { len, lines, .. } => (b"append", Some(*len), lines),
                Step::Move { from, .. } => match write(from, named) {
                    Some((_, from)) => (b"move", None, from),
                    None => continue,
                },
            };
            push(&mut out, verb);
            push_number(&mut out, *guard as u64);
            push(&mut out, word);
            push(&mut out, name);
            match number {
                Some(number) => push_number(&mut out, number),
                None => push(&mut out, b""),
            }
            push_number(&mut out, lines.len() as u64);
            out.extend_from_slice(lines);
        }
        let sum = checksum(&out);
        push(&mut out, b"end");
        push(&mut out, format!("{sum:016x}").as_bytes());
        let puts = self.steps.iter().filter(is_put).count();
        if out.len() > LEN_MAX
            || self.guards.len() + self.steps.len() > COUNT_MAX
            || puts > PUTS_MAX
        {
            let why = "a transaction has 256 MiB, two million steps and locks, and 262144 new files, at most: \
                       make it in several";
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
        }
        out.drain(..text.len());
        Ok(out)
    }
}

/// Returns the word and the name by which a journal calls a place, if it is `named`.
fn write<'p>(place: &'p Place, named: Named<'_>) -> Option<(&'static [u8], &'p [u8])> {
    place.write().filter(|_| named(place))
}

/// Reads how a journal begins, the file `own` in the directory `dir`: who made it, and how long that is.
pub(super) fn begin(
    content: &[u8],
    made: Option<(&Stat, &Stat)>,
) -> std::result::Result<(Owner, usize), Flaw> {
    let (owner, text_len) = match Owner::parse(content) {
        Signed::By(owner, len) => (owner, len),
        Signed::OtherVersion => {
            let why = "another version of refdb made it: let that version read the refs once";
            return Err(Flaw::Foreign(why));
        }
        Signed::Nothing if owner::is_cut(content) => return Err(Flaw::NotWhole),
        Signed::Nothing => return Err(Flaw::Foreign("refdb did not make it")),
    };
    let rest = content.get(text_len..).unwrap_or_default();
    let Some((ids, _)) = rest
        .strip_prefix(START)
        .and_then(|rest| rest.split_once_str("\n"))
    else {
        return Err(Flaw::NotWhole);
    };
    if made.is_some_and(|(own, dir)| !is_made_here(ids, own, dir)) {
        return Err(Flaw::Elsewhere);
    }
    Ok((owner, text_len + START.len() + ids.len() + 1))
}

/// Returns for which directory a lock, of whose file this is the beginning, has a journal: its inode.
pub(super) fn dir_of_journal(head: &[u8]) -> Option<u64> {
    let Signed::By(_, text_len) = Owner::parse(head) else {
        return None;
    };
    let ids = head.get(text_len..)?.strip_prefix(START)?;
    let (dir, _) = ids.split_once_str(" ")?;
    parse(dir)
}

/// Reads the content of a journal, the file `own` in the directory `dir`.
pub(super) fn decode(
    content: &Bytes,
    made: Option<(&Stat, &Stat)>,
) -> std::result::Result<(Owner, Change), Flaw> {
    let (owner, start) = begin(content, made)?;
    let whole = content.len().checked_sub(END_LEN);
    let (body, end) = content.split_at(whole.ok_or(Flaw::NotWhole)?);
    if *end != *format!("end\0{:016x}\0", checksum(body)).as_bytes() {
        return Err(Flaw::NotWhole);
    }
    let fields = Fields(body.get(start..).unwrap_or_default());
    let change = fields.change(content).ok_or(Flaw::Foreign(
        "it names something else than refs, or by names that refs do not have",
    ))?;
    Ok((owner, change))
}

/// Returns whether a journal says that it was made in this directory, as this file. The device is not
/// asked: it can have another number after each boot, and after each mount.
fn is_made_here(ids: &[u8], own: &Stat, dir: &Stat) -> bool {
    let text = std::str::from_utf8(ids).unwrap_or_default();
    let mut ids = text.split(' ').map(|id| id.parse::<u64>().ok());
    let mut next = || ids.next().flatten();
    next() == Some(dir.ino) && next() == Some(own.ino) && next().is_none()
}

/// The fields of a journal, one after the other.
struct Fields<'c>(&'c [u8]);

impl<'c> Fields<'c> {
    /// Reads all of them, which stand in `content`; `None` if one does not pass the rules.
    fn change(mut self, content: &Bytes) -> Option<Change> {
        let mut change = Change::default();
        // A step that stood there often would have its file read as often.
        let mut puts = HashSet::new();
        while !self.0.is_empty() {
            if change.guards.len() + change.steps.len() == COUNT_MAX {
                return None;
            }
            let verb = self.next()?;
            if verb == b"lock" {
                let (word, name) = (self.next()?, self.next()?);
                change.guards.push(match word {
                    // It guards nothing that is named here.
                    b"none" => Place::Outside(PathBuf::new()),
                    _ => Place::read(word, name)?,
                });
                continue;
            }
            let guard = usize::try_from(self.number()??).ok()?;
            let place = Place::read(self.next()?, self.next()?)?;
            let number = self.number()?;
            let count = usize::try_from(self.number()??).ok()?;
            let (lines, rest) = self.0.split_at_checked(count)?;
            self.0 = rest;
            let is_log = matches!(place, Place::Log(_));
            let step = match verb {
                b"put" if !puts.insert(place.clone()) || puts.len() > PUTS_MAX => return None,
                b"put" => Step::Put {
                    place,
                    content: match lines {
                        b"" => number.map(Content::Sum),
                        part => {
                            let (at, sum) = part.split_once_str(" ")?;
                            let (len, at, sum) = (number?, Some(parse(at)?), parse(sum)?);
                            Some(Content::Part(Part { len, at, sum }))
                        }
                    },
                    from: Source::Beside,
                },
                b"remove" => Step::Remove { place },
                b"append" if is_log => Step::Append {
                    place,
                    len: number?,
                    lines: content.slice_ref(lines),
                    create: true,
                },
                b"move" if is_log => Step::Move {
                    place,
                    from: Place::read(b"log", lines)?,
                },
                _ => return None,
            };
            change.steps.push((guard, step));
        }
        let is_guarded = |(guard, step): &(usize, Step)| {
            let lock = change.guards.get(*guard);
            lock.is_some_and(|lock| match step.place() {
                // Its own lock lies beside it, wherever it is.
                Place::Packed => matches!(step, Step::Put { .. }) && *lock == Place::Packed,
                _ => !matches!(lock, Place::Outside(_)),
            })
        };
        change.steps.iter().all(is_guarded).then_some(change)
    }

    fn next(&mut self) -> Option<&'c [u8]> {
        let (field, rest) = self.0.split_once_str("\0")?;
        self.0 = rest;
        Some(field)
    }

    /// Returns a number, or nothing if the field is empty.
    fn number(&mut self) -> Option<Option<u64>> {
        match self.next()? {
            b"" => Some(None),
            field => parse(field).map(Some),
        }
    }
}

fn parse(number: &[u8]) -> Option<u64> {
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// FNV-1a: tells content that is whole from content that is not.
pub(super) fn checksum(content: &[u8]) -> u64 {
    checksum_after(0xcbf2_9ce4_8422_2325, content)
}

/// Returns the checksum of what has the checksum `sum` and of `content` behind it.
pub(super) fn checksum_after(sum: u64, content: &[u8]) -> u64 {
    content.iter().fold(sum, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
