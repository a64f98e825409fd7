//! Atoms: the `%(...)` of formats and the keys of sorting.
//!
//! Every atom that a format or a key names stands once in a list of [`Atoms`], in the order in which
//! it was met; formats and keys speak of it by its place there.

use bstr::{BString, ByteSlice};

use super::argument::{contents, digits, fatal, part_of, person, trailers, unrecognised};
use super::block::{Alignment, Condition};
use super::color;
use super::date::DateFormat;
use super::history::HistoryAtom;
use super::remote::RemoteForm;
use super::signature::SignaturePart;
use super::trailers::TrailerOptions;
use crate::context::Digits;
use crate::failure::{Result, say};

/// Splits text at the first byte of a kind. Formats are short: a search that begins by asking the
/// processor what it can do would take longer.
pub(super) fn split_once(text: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    let mut parts = text.splitn(2, |it| *it == byte);
    parts.next().zip(parts.next())
}

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
    Upstream(RemoteForm),
    Push(RemoteForm),
    /// The sequence; empty where no colours are wanted.
    Color(Vec<u8>),
    Align(Alignment),
    If(Condition),
    Then,
    Else,
    End,
    /// Of another command; here it only sorts, and everything alike.
    Rest,
    ObjectName(Digits),
    ObjectType,
    ObjectSize,
    DiskSize,
    DeltaBase,
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
    Trailers(Box<TrailerOptions>),
    Raw,
    RawSize,
    History(HistoryAtom),
    Signature(SignaturePart),
    /// A known atom with an argument that leaves nothing of it.
    Empty,
}

/// Where the value of an atom comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The ref, the configuration or nothing.
    Ref,
    /// The object's kind and size, or its place in the database.
    Header,
    /// What is in the object.
    Content,
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

/// What is told of a person. What is `mapped` is so by the mailmap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    All,
    Name {
        mapped: bool,
    },
    Email {
        trim: bool,
        local: bool,
        mapped: bool,
    },
    /// What is wrong with a format matters only where there is a date.
    Date(std::result::Result<DateFormat, String>),
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

/// The atoms that are in use, each once.
#[derive(Debug, Default)]
pub(super) struct Atoms {
    list: Vec<Atom>,
    /// Whether `%(color:...)` is more than nothing.
    colored: bool,
    /// What was to be a colour and is none.
    bad_color: Option<BString>,
}

impl Atoms {
    /// Makes an empty list; `colored` says whether colours are wanted.
    pub(super) fn new(colored: bool) -> Self {
        Atoms {
            list: Vec::new(),
            colored,
            bad_color: None,
        }
    }

    /// Reads an atom, unless it is there already, and returns its place.
    ///
    /// # Errors
    /// Fatal, when there is no such atom or it does not take its argument.
    pub(super) fn add(&mut self, text: &[u8]) -> Result<usize> {
        let known = |atom: &Atom| atom.text.as_bytes() == text;
        if let Some(index) = self.list.iter().position(known) {
            return Ok(index);
        }
        let atom = Atom::parse(text, self.colored);
        if atom.is_err()
            && let Some((b"color" | b"*color", color)) = split_once(text, b':')
        {
            self.bad_color = Some(color.into());
        }
        let atom = atom?;
        self.list.push(atom);
        Ok(self.list.len() - 1)
    }

    /// Says what is no colour, if an atom could not be read for that.
    pub(super) fn complain(&self) {
        if let Some(color) = self.bad_color.as_ref().filter(|color| !color.is_empty()) {
            say("error", format!("invalid color value: {color}").as_bytes());
        }
    }

    /// Returns the atoms in their order.
    pub(super) fn list(&self) -> &[Atom] {
        &self.list
    }

    /// Returns whether colours are wanted.
    pub(super) fn is_colored(&self) -> bool {
        self.colored
    }
}

impl Atom {
    fn parse(text: &[u8], colored: bool) -> Result<Atom> {
        let name = text.strip_prefix(b"*").unwrap_or(text);
        if name.is_empty() {
            return Err(fatal(format!("malformed field name: {}", text.as_bstr())));
        }
        let whole = text.to_str_lossy();
        let (word, argument) = match split_once(name, b':') {
            Some((word, argument)) => (word, Some(argument).filter(|it| !it.is_empty())),
            None => (name, None),
        };
        let word = word.to_str_lossy();
        let argument = argument.map(|argument| argument.to_str_lossy());
        let kind = Kind::parse(&word, argument.as_deref(), &whole, colored)?;
        Ok(Atom {
            kind,
            deref: name.len() < text.len(),
            text: whole.into_owned(),
        })
    }
}

impl Kind {
    fn parse(word: &str, argument: Option<&str>, whole: &str, colored: bool) -> Result<Kind> {
        let without = |kind: Kind| match argument {
            None => Ok(kind),
            Some(_) => Err(fatal(format!("%({word}) does not take arguments"))),
        };
        match word {
            "refname" => NameForm::parse(argument, whole).map(Kind::RefName),
            "symref" => NameForm::parse(argument, whole).map(Kind::Symref),
            "upstream" => RemoteForm::parse(argument, whole).map(Kind::Upstream),
            "push" => RemoteForm::parse(argument, whole).map(Kind::Push),
            "HEAD" => without(Kind::Head),
            "flag" => Ok(Kind::Flag),
            "worktreepath" => Ok(Kind::WorktreePath),
            "color" => match argument.map(|color| (color, color::sequence(color))) {
                None => Err(fatal("expected format: %(color:<color>)".to_owned())),
                Some((color, None)) => Err(fatal(format!("unrecognized color: %(color:{color})"))),
                Some((_, Some(sequence))) => {
                    Ok(Kind::Color(if colored { sequence } else { Vec::new() }))
                }
            },
            "align" => Alignment::parse(argument.unwrap_or_default()).map(Kind::Align),
            "if" => Condition::parse(argument.unwrap_or_default()).map(Kind::If),
            "then" => Ok(Kind::Then),
            "else" => Ok(Kind::Else),
            "end" => Ok(Kind::End),
            "rest" => without(Kind::Rest),
            "objectname" => digits(argument, whole).map(Kind::ObjectName),
            "objecttype" => without(Kind::ObjectType),
            "objectsize" => match argument {
                None => Ok(Kind::ObjectSize),
                Some("disk") => Ok(Kind::DiskSize),
                Some(argument) => Err(unrecognised(word, argument)),
            },
            "deltabase" => without(Kind::DeltaBase),
            _ => Kind::of_content(word, argument, whole),
        }
    }

    fn of_content(word: &str, argument: Option<&str>, whole: &str) -> Result<Kind> {
        match word {
            "tree" => digits(argument, whole).map(Kind::Tree),
            "parent" => digits(argument, whole).map(Kind::Parent),
            "numparent" => Ok(Kind::NumParent),
            "object" => Ok(Kind::Object),
            "type" => Ok(Kind::Type),
            "tag" => Ok(Kind::Tag),
            "body" => match argument {
                None if whole.ends_with(':') => Ok(Kind::Empty),
                None => Ok(Kind::Body),
                Some(_) => Err(fatal("%(body) does not take arguments".to_owned())),
            },
            "subject" => match argument {
                None => Ok(Kind::Subject { sanitized: false }),
                Some("sanitize") => Ok(Kind::Subject { sanitized: true }),
                Some(argument) => Err(unrecognised(word, argument)),
            },
            "contents" => contents(argument),
            "trailers" => trailers(argument),
            "raw" => match argument {
                None => Ok(Kind::Raw),
                Some("size") => Ok(Kind::RawSize),
                Some(argument) => Err(unrecognised(word, argument)),
            },
            // With a colon and nothing behind it, Git finds nothing to tell.
            "signature" if whole.ends_with("signature:") => Ok(Kind::Empty),
            "signature" => SignaturePart::parse(argument).map(Kind::Signature),
            _ => match (person(word), HistoryAtom::parse(word, argument)?) {
                (Some((role, part)), _) => part_of(role, part, argument, whole),
                (None, Some(atom)) => Ok(Kind::History(atom)),
                (None, None) => Err(fatal(format!("unknown field name: {whole}"))),
            },
        }
    }

    /// Returns where the value comes from.
    pub(super) fn source(&self) -> Source {
        match self {
            Kind::RefName(_)
            | Kind::Symref(_)
            | Kind::Flag
            | Kind::Head
            | Kind::WorktreePath
            | Kind::Upstream(_)
            | Kind::Push(_)
            | Kind::Color(_)
            | Kind::Align(_)
            | Kind::If(_)
            | Kind::Then
            | Kind::Else
            | Kind::End
            | Kind::Rest
            | Kind::ObjectName(_)
            | Kind::History(HistoryAtom::AheadBehind(_) | HistoryAtom::IsBase(_)) => Source::Ref,
            Kind::ObjectType | Kind::ObjectSize | Kind::DiskSize | Kind::DeltaBase => {
                Source::Header
            }
            _ => Source::Content,
        }
    }

    /// Returns whether this shapes other values and has none of its own.
    pub(super) fn is_of_blocks(&self) -> bool {
        matches!(
            self,
            Kind::Align(_) | Kind::If(_) | Kind::Then | Kind::Else | Kind::End | Kind::Color(_)
        )
    }

    /// Returns whether values are compared as numbers.
    pub(super) fn is_number(&self) -> bool {
        match self {
            Kind::ObjectSize
            | Kind::DiskSize
            | Kind::NumParent
            | Kind::RawSize
            | Kind::Contents(Contents::Size) => true,
            // A date in a certain format is compared as the text that it is.
            Kind::Person(_, Part::Date(Ok(format))) => format.is_unspecified(),
            _ => false,
        }
    }

    /// Returns whether this is a date that a format makes a text of.
    pub(super) fn is_shown_date(&self) -> bool {
        matches!(self, Kind::Person(_, Part::Date(_))) && !self.is_number()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Failure;

    fn message(text: &str) -> String {
        match Atom::parse(text.as_bytes(), false).unwrap_err() {
            Failure::Fatal(message) => String::from_utf8(message.text).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn arguments_are_read() {
        let kind = |text: &str| Atom::parse(text.as_bytes(), false).unwrap().kind;
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
                    local: false,
                    mapped: false
                }
            )
        );
        assert_eq!(kind("color:red"), Kind::Color(Vec::new()));
    }

    #[test]
    fn mistakes_are_named() {
        assert_eq!(message("nonsense"), "unknown field name: nonsense");
        assert_eq!(message("*"), "malformed field name: *");
        assert_eq!(message("refname:x"), "unrecognized %(refname) argument: x");
        assert_eq!(
            message("authoremail:trimx"),
            "unrecognized %(authoremail) argument: x"
        );
    }

    #[test]
    fn an_atom_stands_once_in_a_list() {
        let mut atoms = Atoms::new(false);
        let places = ["refname", "tree", "refname"].map(|it| atoms.add(it.as_bytes()).unwrap());
        assert_eq!(places, [0, 1, 0]);
        assert_eq!(atoms.list().len(), 2);
    }
}
