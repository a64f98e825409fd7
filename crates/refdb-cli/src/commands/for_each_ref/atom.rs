//! Atoms: the `%(...)` of formats and the keys of sorting.

use bstr::ByteSlice;

use super::date::DateFormat;
use crate::context::Digits;
use crate::failure::{Failure, Result};

/// One atom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Atom {
    /// How it is written.
    pub(super) text: String,
    /// What it stands for.
    pub(super) kind: Kind,
    /// Whether it speaks of what a tag peels to.
    pub(super) deref: bool,
}

/// What an atom stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    RefName(NameForm),
    Symref(NameForm),
    Flag,
    Head,
    WorktreePath,
    ObjectName(Digits),
    ObjectType,
    ObjectSize,
    Tree(Digits),
    Parent(Digits),
    NumParent,
    Object,
    Type,
    Tag,
    Person(Role, Part),
    Subject {
        sanitized: bool,
    },
    Body,
    Contents(Contents),
    /// A known atom with an argument that leaves nothing of it.
    Empty,
}

/// How a name is shortened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameForm {
    Full,
    Short,
    /// Without so many components at the front; if negative, with so many left.
    StripLeft(i32),
    /// The same at the end.
    StripRight(i32),
}

/// Who did something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Author,
    Committer,
    Tagger,
    /// The committer of a commit, the tagger of a tag.
    Creator,
}

/// What is told of a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    All,
    Name,
    Email {
        trim: bool,
        local: bool,
    },
    Date(DateFormat),
    /// In a format that does not exist, which matters only where there is a date.
    UnknownDate,
}

/// What is told of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contents {
    All,
    Subject,
    Body,
    Signature,
    Size,
    Lines(usize),
}

/// Atoms of Git that are not known yet; those of blocks, only where they are no part of a format:
/// as keys of sorting, and with `*` before them.
const LATER: &[&str] = &[
    "deltabase",
    "describe",
    "upstream",
    "push",
    "trailers",
    "signature",
    "raw",
    "color",
    "align",
    "end",
    "if",
    "then",
    "else",
    "ahead-behind",
    "is-base",
];

impl Atom {
    /// Reads an atom.
    ///
    /// # Errors
    /// Fatal, when there is no such atom or it does not take its argument.
    pub(super) fn parse(text: &[u8]) -> Result<Atom> {
        let name = text.strip_prefix(b"*").unwrap_or(text);
        if name.is_empty() {
            return Err(fatal(format!("malformed field name: {}", text.as_bstr())));
        }
        let whole = text.to_str_lossy();
        let (word, argument) = match name.split_once_str(":") {
            Some((word, argument)) => (word, Some(argument).filter(|it| !it.is_empty())),
            None => (name, None),
        };
        let word = word.to_str_lossy();
        let argument = argument.map(|argument| argument.to_str_lossy());
        let kind = Kind::parse(&word, argument.as_deref(), &whole)?;
        Ok(Atom {
            kind,
            deref: name.len() < text.len(),
            text: whole.into_owned(),
        })
    }
}

fn fatal(text: String) -> Failure {
    Failure::fatal(text)
}

/// Refuses an argument.
fn unrecognised(word: &str, argument: &str) -> Failure {
    fatal(format!("unrecognized %({word}) argument: {argument}"))
}

fn later(whole: &str) -> Failure {
    fatal(format!("this version does not know %({whole}) yet"))
}

/// Returns how an atom is written without its argument.
fn before_argument(whole: &str) -> &str {
    whole.split_once(':').map_or(whole, |(word, _)| word)
}

impl Kind {
    fn parse(word: &str, argument: Option<&str>, whole: &str) -> Result<Kind> {
        let without = |kind: Kind| match argument {
            None => Ok(kind),
            Some(_) => Err(fatal(format!("%({word}) does not take arguments"))),
        };
        match word {
            "refname" => NameForm::parse(word, argument, whole).map(Kind::RefName),
            "symref" => NameForm::parse(word, argument, whole).map(Kind::Symref),
            "objectname" => digits(argument, whole).map(Kind::ObjectName),
            "tree" => digits(argument, whole).map(Kind::Tree),
            "parent" => digits(argument, whole).map(Kind::Parent),
            "objecttype" => without(Kind::ObjectType),
            "objectsize" => match argument {
                None => Ok(Kind::ObjectSize),
                Some("disk") => Err(later(whole)),
                Some(argument) => Err(unrecognised(word, argument)),
            },
            "HEAD" => without(Kind::Head),
            "flag" => Ok(Kind::Flag),
            "worktreepath" => Ok(Kind::WorktreePath),
            "numparent" => Ok(Kind::NumParent),
            "object" => Ok(Kind::Object),
            "type" => Ok(Kind::Type),
            "tag" => Ok(Kind::Tag),
            "creator" => Ok(Kind::Person(Role::Creator, Part::All)),
            "body" => without(Kind::Body),
            "subject" => match argument {
                None => Ok(Kind::Subject { sanitized: false }),
                Some("sanitize") => Ok(Kind::Subject { sanitized: true }),
                Some(argument) => Err(unrecognised(word, argument)),
            },
            "contents" => contents(argument, whole),
            // Of another command; here it only sorts, and everything alike.
            "rest" => without(Kind::Empty),
            _ => match person(word) {
                Some((role, part)) => part_of(role, part, argument, whole),
                None if LATER.contains(&word) => Err(later(whole)),
                None => Err(fatal(format!("unknown field name: {whole}"))),
            },
        }
    }
}

impl NameForm {
    fn parse(word: &str, argument: Option<&str>, whole: &str) -> Result<NameForm> {
        let number = |form: fn(i32) -> NameForm, kind: &str, text: &str| {
            text.parse()
                .map(form)
                .map_err(|_| fatal(format!("Integer value expected {word}:{kind}={text}")))
        };
        match argument {
            None => Ok(NameForm::Full),
            Some("short") => Ok(NameForm::Short),
            Some(argument) => match argument.split_once('=') {
                Some(("lstrip" | "strip", text)) => number(NameForm::StripLeft, "lstrip", text),
                Some(("rstrip", text)) => number(NameForm::StripRight, "rstrip", text),
                _ => Err(unrecognised(before_argument(whole), argument)),
            },
        }
    }
}

fn digits(argument: Option<&str>, whole: &str) -> Result<Digits> {
    match argument {
        None => Ok(Digits::All),
        Some("short") => Ok(Digits::Configured),
        Some(argument) => match argument.strip_prefix("short=") {
            Some(number) => match number.parse::<usize>() {
                Ok(number) if number > 0 => Ok(Digits::Least(number)),
                _ => Err(fatal(format!(
                    "positive value expected '{number}' in %({whole})"
                ))),
            },
            None => Err(unrecognised(before_argument(whole), argument)),
        },
    }
}

fn contents(argument: Option<&str>, whole: &str) -> Result<Kind> {
    let part =
        match argument {
            None => Contents::All,
            Some("subject") => Contents::Subject,
            Some("body") => Contents::Body,
            Some("signature") => Contents::Signature,
            Some("size") => Contents::Size,
            Some(argument) if argument.starts_with("trailers") => return Err(later(whole)),
            Some(argument) => match argument.strip_prefix("lines=") {
                Some(lines) => Contents::Lines(lines.parse().map_err(|_| {
                    fatal(format!("positive value expected contents:lines={lines}"))
                })?),
                None => return Err(unrecognised("contents", argument)),
            },
        };
    Ok(Kind::Contents(part))
}

/// Takes a word such as `authordate` apart.
fn person(word: &str) -> Option<(Role, &str)> {
    [
        ("author", Role::Author),
        ("committer", Role::Committer),
        ("tagger", Role::Tagger),
        ("creator", Role::Creator),
    ]
    .into_iter()
    .find_map(|(name, role)| Some((role, word.strip_prefix(name)?)))
    .filter(|(role, part)| match role {
        Role::Creator => *part == "date",
        _ => matches!(*part, "" | "name" | "email" | "date"),
    })
}

fn part_of(role: Role, part: &str, argument: Option<&str>, whole: &str) -> Result<Kind> {
    let part = match (part, argument) {
        ("", None) => Part::All,
        ("", Some(_)) => return Ok(Kind::Empty),
        ("name", None) => Part::Name,
        ("name", Some("mailmap")) => return Err(later(whole)),
        ("email", argument) => email(argument, whole)?,
        ("date", argument) => match DateFormat::parse(argument) {
            Some(format) => Part::Date(format),
            None if DateFormat::is_later(argument) => return Err(later(whole)),
            None => Part::UnknownDate,
        },
        (_, argument) => {
            let argument = argument.unwrap_or_default();
            return Err(unrecognised(before_argument(whole), argument));
        }
    };
    Ok(Kind::Person(role, part))
}

fn email(argument: Option<&str>, whole: &str) -> Result<Part> {
    let (mut trim, mut local) = (false, false);
    for option in argument.into_iter().flat_map(|list| list.split(',')) {
        match option {
            "trim" => trim = true,
            "localpart" => local = true,
            "mailmap" => return Err(later(whole)),
            other => return Err(unrecognised(before_argument(whole), other)),
        }
    }
    Ok(Part::Email { trim, local })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> String {
        match Atom::parse(text.as_bytes()).unwrap_err() {
            Failure::Fatal(message) => String::from_utf8(message).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn arguments_are_read() {
        let kind = |text: &str| Atom::parse(text.as_bytes()).unwrap().kind;
        assert_eq!(
            kind("refname:lstrip=-2"),
            Kind::RefName(NameForm::StripLeft(-2))
        );
        assert_eq!(kind("objectname:"), Kind::ObjectName(Digits::All));
        assert_eq!(
            kind("*objectname:short=7"),
            Kind::ObjectName(Digits::Least(7))
        );
        assert_eq!(
            kind("taggeremail:trim"),
            Kind::Person(
                Role::Tagger,
                Part::Email {
                    trim: true,
                    local: false
                }
            )
        );
    }

    #[test]
    fn mistakes_are_named() {
        assert_eq!(message("nonsense"), "unknown field name: nonsense");
        assert_eq!(message("*"), "malformed field name: *");
        assert_eq!(message("refname:x"), "unrecognized %(refname) argument: x");
        assert_eq!(
            message("upstream:short"),
            "this version does not know %(upstream:short) yet"
        );
    }
}
