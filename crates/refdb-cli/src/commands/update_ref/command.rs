//! The commands of `update-ref --stdin`: from the bytes of one to the edit it asks for.

use bstr::{BStr, ByteSlice};
use refdb::name::{FormatOptions, is_well_formed};
use refdb::{Edit, Expected, ObjectId};

use super::expected;
use super::fields::{Field, Fields};
use crate::context::Context;
use crate::failure::{Failure, Result, say};

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::commands) enum Verb {
    Update,
    Create,
    Delete,
    Verify,
    SymrefUpdate,
    SymrefCreate,
    SymrefDelete,
    SymrefVerify,
    Option,
    Start,
    Prepare,
    Abort,
    Commit,
}

/// Each verb with its word, and how many NUL-terminated records its command has.
const VERBS: &[(&str, Verb, usize)] = &[
    ("update", Verb::Update, 3),
    ("create", Verb::Create, 2),
    ("delete", Verb::Delete, 2),
    ("verify", Verb::Verify, 2),
    ("symref-update", Verb::SymrefUpdate, 4),
    ("symref-create", Verb::SymrefCreate, 2),
    ("symref-delete", Verb::SymrefDelete, 2),
    ("symref-verify", Verb::SymrefVerify, 2),
    ("option", Verb::Option, 1),
    ("start", Verb::Start, 1),
    ("prepare", Verb::Prepare, 1),
    ("abort", Verb::Abort, 1),
    ("commit", Verb::Commit, 1),
];

impl Verb {
    /// Returns the word.
    pub(super) fn word(self) -> &'static str {
        VERBS
            .iter()
            .find(|(_, verb, _)| *verb == self)
            .map_or("", |(word, _, _)| word)
    }

    fn takes_arguments(self) -> bool {
        !matches!(
            self,
            Verb::Start | Verb::Prepare | Verb::Abort | Verb::Commit
        )
    }
}

/// Finds the verb that a command begins with, which a space or the terminator must follow.
fn verb_of(command: &[u8], terminator: u8) -> Option<(Verb, usize, &[u8])> {
    let len = command
        .iter()
        .position(|&byte| byte == b' ' || byte == terminator);
    let (word, rest) = command.split_at(len.unwrap_or(command.len()));
    let (_, verb, records) = VERBS.iter().find(|(known, ..)| known.as_bytes() == word)?;
    let next = if verb.takes_arguments() {
        b' '
    } else {
        terminator
    };
    let has_next = rest.first() == Some(&next);
    // A last record without its NUL counts as ended, a last line without its line feed does not.
    (has_next || (next == 0 && rest.is_empty())).then_some((*verb, *records, rest))
}

/// Takes the first command off `piece`; `None` if its end has not arrived yet.
pub(super) fn split(piece: &[u8], zero: bool, ended: bool) -> Option<(&[u8], &[u8])> {
    let (terminator, records) = match zero {
        false => (b'\n', 1),
        true => (0, verb_of(piece, 0).map_or(1, |(_, records, _)| records)),
    };
    let mut len = 0;
    for _ in 0..records {
        let rest = piece.get(len..).unwrap_or_default();
        match rest.find_byte(terminator) {
            Some(at) => len += at + 1,
            None if ended => len = piece.len(),
            None => return None,
        }
    }
    Some(piece.split_at(len))
}

/// Returns the verb of a command and what follows it.
///
/// # Errors
/// Fatal, when it is no command.
pub(in crate::commands) fn recognise(command: &[u8], zero: bool) -> Result<(Verb, &[u8])> {
    let terminator = if zero { 0 } else { b'\n' };
    let shown = match zero {
        false => command,
        true => command
            .split_once_str("\0")
            .map_or(command, |(first, _)| first),
    };
    let refuse = |what: &str| Failure::fatal([what.as_bytes(), shown].concat());
    match command.first() {
        None => return Err(refuse("empty command in input")),
        Some(&first) if first == terminator => {
            return Err(Failure::fatal("empty command in input"));
        }
        Some(b' ' | b'\t' | b'\n' | b'\r') => return Err(refuse("whitespace before command: ")),
        Some(_) => {}
    }
    verb_of(command, terminator)
        .map(|(verb, _, rest)| (verb, rest))
        .ok_or_else(|| refuse("unknown command: "))
}

/// One command with its fields, on the way to an edit.
pub(in crate::commands) struct Parser<'p, 'c> {
    context: &'c Context,
    verb: Verb,
    fields: Fields<'p>,
    zero: bool,
    no_deref: bool,
}

impl<'p, 'c> Parser<'p, 'c> {
    /// Begins with what follows the verb.
    pub(in crate::commands) fn new(
        context: &'c Context,
        verb: Verb,
        rest: &'p [u8],
        zero: bool,
        no_deref: bool,
    ) -> Self {
        let rest = rest.strip_prefix(b" ").unwrap_or(rest);
        Parser {
            context,
            verb,
            fields: Fields::new(rest, zero),
            zero,
            no_deref,
        }
    }

    /// Reads an edit.
    ///
    /// # Errors
    /// Fatal, for whatever is wrong with the command.
    pub(in crate::commands) fn edit(mut self) -> Result<Edit<'p>> {
        let symref_alone = matches!(self.verb, Verb::SymrefDelete | Verb::SymrefVerify);
        if symref_alone && !self.no_deref {
            return Err(self.fail("cannot operate with deref mode"));
        }
        let Some(name) = self.fields.first_name()? else {
            return Err(self.fail("missing <ref>"));
        };
        let edit = match self.verb {
            Verb::Update | Verb::Create => self.set(name)?,
            Verb::Delete | Verb::Verify => self.check_old(name)?,
            Verb::SymrefUpdate | Verb::SymrefCreate => self.set_symref(name)?,
            _ => self.check_symref(name)?,
        };
        if !self.fields.at_end() {
            let rest = self.fields.rest().as_bstr();
            return Err(self.fail_for(name, format_args!("extra input: {rest}")));
        }
        Ok(edit)
    }

    fn set(&mut self, name: &'p [u8]) -> Result<Edit<'p>> {
        let missing = "missing <new-oid>";
        let Some(new) = self.oid(name, "<new-oid>")? else {
            return Err(self.fail_for(name, missing));
        };
        let edit = Edit::update(name.as_bstr(), new);
        if self.verb != Verb::Create {
            let old = self.oid(name, "<old-oid>")?;
            return Ok(edit.expecting(expected(old)));
        }
        if new.is_null() {
            return Err(self.fail_for(name, "zero <new-oid>"));
        }
        Ok(edit.expecting(Expected::Missing))
    }

    fn check_old(&mut self, name: &'p [u8]) -> Result<Edit<'p>> {
        let old = self.oid(name, "<old-oid>")?;
        if self.verb == Verb::Verify {
            let expected = old.map_or(Expected::Missing, |old| expected(Some(old)));
            return Ok(Edit::verify(name.as_bstr(), expected));
        }
        if old.is_some_and(|old| old.is_null()) {
            return Err(self.fail_for(name, "zero <old-oid>"));
        }
        Ok(Edit::delete(name.as_bstr()).expecting(expected(old)))
    }

    fn set_symref(&mut self, name: &'p [u8]) -> Result<Edit<'p>> {
        let Some(target) = self.fields.next_name()? else {
            return Err(self.fail_for(name, "missing <new-target>"));
        };
        let expected = if self.verb == Verb::SymrefCreate {
            Expected::Missing
        } else {
            self.old_of_symref(name)?
        };
        let edit = Edit::symbolic(name.as_bstr(), target.as_bstr());
        Ok(edit.expecting(expected))
    }

    /// Reads `ref <target>` or `oid <oid>`.
    fn old_of_symref(&mut self, name: &[u8]) -> Result<Expected<'p>> {
        let Some(kind) = self.word()? else {
            return Ok(Expected::Any);
        };
        let Some(value) = self.word()? else {
            return Err(self.fail_for(name, "expected old value"));
        };
        let shown = value.as_bstr();
        match &*kind {
            b"oid" => match self.context.object_id(&value)? {
                Some(oid) => Ok(expected(Some(oid))),
                None => Err(self.fail_for(name, format_args!("invalid oid: {shown}"))),
            },
            b"ref" if is_well_formed(&value, FormatOptions::ONE_LEVEL) => {
                let target = std::borrow::Cow::Owned(shown.to_owned());
                Ok(Expected::Symbolic(target))
            }
            b"ref" => Err(self.fail_for(name, format_args!("invalid ref: {shown}"))),
            kind => {
                let kind = kind.as_bstr();
                let what = format_args!("invalid arg '{kind}' for old value");
                Err(self.fail_for(name, what))
            }
        }
    }

    fn check_symref(&mut self, name: &'p [u8]) -> Result<Edit<'p>> {
        let target = self.fields.next_name()?;
        let expected = target.map(|target| {
            let target: &'p BStr = target.as_bstr();
            Expected::Symbolic(target.into())
        });
        let name = name.as_bstr();
        if self.verb == Verb::SymrefVerify {
            return Ok(Edit::verify(name, expected.unwrap_or(Expected::Missing)));
        }
        Ok(Edit::delete(name).expecting(expected.unwrap_or(Expected::Any)))
    }

    fn word(&mut self) -> Result<Option<Vec<u8>>> {
        Ok(match self.fields.next(String::new)? {
            Field::Given(word) if !word.is_empty() => Some(word.into_owned()),
            _ => None,
        })
    }

    /// Reads an object id, called `what` in messages; `None` if it is left out.
    fn oid(&mut self, name: &[u8], what: &str) -> Result<Option<ObjectId>> {
        let hex_len = self.context.object_format()?.hex_len();
        if let Some(oid) = self.fields.plain_oid(hex_len) {
            return Ok(Some(oid));
        }
        let verb = self.verb.word();
        let whose = || format!("{verb} {}: ", name.as_bstr());
        match self.fields.next(whose)? {
            Field::Absent => Ok(None),
            Field::EndOfInput => {
                let text = format_args!("unexpected end of input when reading {what}");
                Err(self.fail_for(name, text))
            }
            Field::Given(text) if !text.is_empty() => match self.context.object_id(&text)? {
                Some(oid) => Ok(Some(oid)),
                None => {
                    let text = format_args!("invalid {what}: {}", text.as_bstr());
                    Err(self.fail_for(name, text))
                }
            },
            Field::Given(_) if !self.zero => self.null().map(Some),
            Field::Given(_) if self.verb == Verb::Update && what == "<new-oid>" => {
                let text = format!("{}missing {what}, treating as zero", whose());
                say("warning", text.as_bytes());
                self.null().map(Some)
            }
            Field::Given(_) => Ok(None),
        }
    }

    fn null(&self) -> Result<ObjectId> {
        Ok(ObjectId::null(self.context.object_format()?))
    }

    fn fail(&self, what: impl std::fmt::Display) -> Failure {
        Failure::fatal(format!("{}: {what}", self.verb.word()))
    }

    fn fail_for(&self, name: &[u8], what: impl std::fmt::Display) -> Failure {
        Failure::fatal(format!("{} {}: {what}", self.verb.word(), name.as_bstr()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_with_records_is_whole_when_all_have_arrived() {
        let text = b"create refs/a\0one\0start\0";
        let (command, rest) = split(text, true, false).unwrap();
        assert_eq!(command.as_bstr(), "create refs/a\0one\0");
        assert_eq!(split(rest, true, false).unwrap().0.as_bstr(), "start\0");
        assert!(split(b"create refs/a\0on", true, false).is_none());
        assert!(split(b"create refs/a\0on", true, true).is_some());
    }

    #[test]
    fn a_verb_ends_where_it_must() {
        for (command, zero, verb) in [
            (&b"update a\n"[..], false, Some(Verb::Update)),
            (b"update\n", false, None),
            (b"start\n", false, Some(Verb::Start)),
            (b"start", false, None),
            (b"start", true, Some(Verb::Start)),
            (b"starts\n", false, None),
        ] {
            let found = recognise(command, zero).ok().map(|(verb, _)| verb);
            assert_eq!(found, verb, "{}", command.as_bstr());
        }
    }
}
