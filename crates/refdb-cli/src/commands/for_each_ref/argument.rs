//! What stands behind the colon of an atom: numbers, names, lists of options.

use bstr::ByteSlice;

use super::atom::{Contents, Kind, NameForm, Part, Role};
use super::date::DateFormat;
use super::trailers::TrailerOptions;
use crate::context::Digits;
use crate::failure::{Failure, Result};

/// Makes a failure that ends the command.
pub(super) fn fatal(text: String) -> Failure {
    Failure::fatal(text)
}

/// Refuses an argument; `whole` is how the atom is written.
pub(super) fn unrecognised(whole: &str, argument: &str) -> Failure {
    let word = whole.split_once(':').map_or(whole, |(word, _)| word);
    fatal(format!("unrecognized %({word}) argument: {argument}"))
}

/// Reads a number that is not negative: blanks and a plus sign may stand before it.
pub(super) fn unsigned(text: &str) -> Option<u32> {
    text.trim_ascii_start().parse().ok()
}

/// Reads a number: blanks and a sign may stand before it.
fn signed(text: &str) -> Option<i32> {
    text.trim_ascii_start().parse().ok()
}

impl NameForm {
    /// Reads the argument of an atom that is the name of a ref.
    ///
    /// # Errors
    /// Fatal, for one that is not known.
    pub(super) fn parse(argument: Option<&str>, whole: &str) -> Result<NameForm> {
        let number = |form: fn(i32) -> NameForm, kind: &str, text: &str| {
            signed(text)
                .map(form)
                .ok_or_else(|| fatal(format!("Integer value expected refname:{kind}={text}")))
        };
        match argument {
            None => Ok(NameForm::Full),
            Some("short") => Ok(NameForm::Short),
            Some(argument) => match argument.split_once('=') {
                Some(("lstrip" | "strip", text)) => number(NameForm::StripLeft, "lstrip", text),
                Some(("rstrip", text)) => number(NameForm::StripRight, "rstrip", text),
                _ => Err(unrecognised(whole, argument)),
            },
        }
    }
}

/// Reads the argument of an atom that is an object id.
///
/// # Errors
/// Fatal, for one that is not known.
pub(super) fn digits(argument: Option<&str>, whole: &str) -> Result<Digits> {
    match argument {
        None => Ok(Digits::All),
        Some("short") => Ok(Digits::Configured),
        Some(argument) => match argument.strip_prefix("short=") {
            Some(text) => match unsigned(text).and_then(|number| usize::try_from(number).ok()) {
                Some(number) if number > 0 => Ok(Digits::Least(number)),
                _ => Err(fatal(format!(
                    "positive value expected '{text}' in %({whole})"
                ))),
            },
            None => Err(unrecognised(whole, argument)),
        },
    }
}

/// Reads the argument of `contents`.
///
/// # Errors
/// Fatal, for one that is not known.
pub(super) fn contents(argument: Option<&str>) -> Result<Kind> {
    let part = match argument {
        None => Contents::All,
        Some("subject") => Contents::Subject,
        Some("body") => Contents::Body,
        Some("signature") => Contents::Signature,
        Some("size") => Contents::Size,
        Some("trailers") => return trailers(None),
        Some(argument) => {
            if let Some(options) = argument.strip_prefix("trailers:") {
                return trailers(Some(options));
            }
            let Some(lines) = argument.strip_prefix("lines=") else {
                return Err(unrecognised("contents", argument));
            };
            let count = unsigned(lines);
            let expected = || fatal(format!("positive value expected contents:lines={lines}"));
            let count = count.ok_or_else(expected)?;
            // Git takes what is larger for less than nothing, and shows no line.
            let count = i32::try_from(count).ok();
            let count = count.and_then(|count| usize::try_from(count).ok());
            Contents::Lines(count.unwrap_or(0))
        }
    };
    Ok(Kind::Contents(part))
}

/// Reads the argument of `trailers`.
///
/// # Errors
/// Fatal, for an option that is not known.
pub(super) fn trailers(argument: Option<&str>) -> Result<Kind> {
    let options = TrailerOptions::parse(argument.unwrap_or_default().as_bytes());
    options
        .map(|options| Kind::Trailers(Box::new(options)))
        .map_err(|invalid| match invalid {
            Some(text) => {
                let text = text.as_bstr();
                fatal(format!("unknown %(trailers) argument: {text}"))
            }
            None => fatal("expected %(trailers:key=<value>)".to_owned()),
        })
}

/// Takes a word such as `authordate` apart.
pub(super) fn person(word: &str) -> Option<(Role, &str)> {
    [
        ("author", Role::Author),
        ("committer", Role::Committer),
        ("tagger", Role::Tagger),
        ("creator", Role::Creator),
    ]
    .into_iter()
    .find_map(|(name, role)| Some((role, word.strip_prefix(name)?)))
    .filter(|(role, part)| match role {
        Role::Creator => matches!(*part, "" | "date"),
        _ => matches!(*part, "" | "name" | "email" | "date"),
    })
}

/// Reads the argument of an atom about a person.
///
/// # Errors
/// Fatal, for one that is not known. A date format that is not known is no mistake yet.
pub(super) fn part_of(role: Role, part: &str, argument: Option<&str>, whole: &str) -> Result<Kind> {
    let part = match (part, argument) {
        ("", _) if whole.contains(':') && role != Role::Creator => return Ok(Kind::Empty),
        ("", _) => Part::All,
        ("name", None) => Part::Name { mapped: false },
        ("name", Some("mailmap")) => Part::Name { mapped: true },
        ("email", argument) => email(argument, whole)?,
        // Nothing behind a colon is no format either.
        ("date", None) if whole.contains(':') => Part::Date(DateFormat::parse(Some(""))),
        ("date", argument) => Part::Date(DateFormat::parse(argument)),
        (_, argument) => return Err(unrecognised(whole, argument.unwrap_or_default())),
    };
    Ok(Kind::Person(role, part))
}

fn email(argument: Option<&str>, whole: &str) -> Result<Part> {
    let (mut trim, mut local, mut mapped) = (false, false, false);
    let mut rest = argument;
    while let Some(text) = rest {
        let (flag, after) = if let Some(after) = text.strip_prefix("trim") {
            (&mut trim, after)
        } else if let Some(after) = text.strip_prefix("localpart") {
            (&mut local, after)
        } else if let Some(after) = text.strip_prefix("mailmap") {
            (&mut mapped, after)
        } else {
            return Err(unrecognised(whole, text));
        };
        *flag = true;
        rest = match after.strip_prefix(',') {
            _ if after.is_empty() => None,
            Some(next) => Some(next),
            None => return Err(unrecognised(whole, after)),
        };
    }
    Ok(Part::Email {
        trim,
        local,
        mapped,
    })
}
