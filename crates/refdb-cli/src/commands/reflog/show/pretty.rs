//! The forms in which an entry and its commit are shown.

use std::borrow::Cow;
use std::cell::OnceCell;

use bstr::ByteSlice;
use refdb::{ObjectId, Signature};
use refdb_git::objects::Object;
use refdb_git::repository::config::Config;

use super::decorate::Decorations;
use super::message::{Message, push_without_tabs};
use super::walk::{Selector, Step};
use crate::commands::for_each_ref::date::{Clock, Date, DateFormat};
use crate::commands::for_each_ref::mailmap::Mailmap;
use crate::context::{Context, Digits};
use crate::failure::{Failure, Result};

/// How entries are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pretty {
    Oneline,
    Short,
    Medium,
    Full,
    Fuller,
    Reference,
    Raw,
    /// By a template; the flag tells whether each ends in a line feed, or only all but the last.
    Template(Vec<u8>, bool),
}

impl Pretty {
    /// Reads the value of `--pretty` or `--format`, which can be a name of the configuration.
    pub(super) fn named(text: &[u8], config: &Config) -> Result<Pretty> {
        let alias = text.to_str().ok().map(|name| format!("pretty.{name}"));
        let alias = alias.as_deref().and_then(|key| config.string(key));
        Pretty::parse(alias.map_or(text, |alias| alias.as_bytes()))
    }

    /// Reads the value of `--pretty` or `--format`.
    fn parse(text: &[u8]) -> Result<Pretty> {
        if let Some(template) = text.strip_prefix(b"format:") {
            return Ok(Pretty::Template(template.to_vec(), false));
        }
        if let Some(template) = text.strip_prefix(b"tformat:") {
            return Ok(Pretty::Template(template.to_vec(), true));
        }
        if text.is_empty() || text.contains(&b'%') {
            return Ok(Pretty::Template(text.to_vec(), true));
        }
        let named = [
            ("oneline", Pretty::Oneline),
            ("short", Pretty::Short),
            ("medium", Pretty::Medium),
            ("full", Pretty::Full),
            ("fuller", Pretty::Fuller),
            ("reference", Pretty::Reference),
            ("raw", Pretty::Raw),
        ];
        // An abbreviation means the first that it fits, a full name itself.
        let exact = named.iter().find(|(name, _)| name.as_bytes() == text);
        let found = exact.or_else(|| {
            let fits = |(name, _): &&(&str, Pretty)| name.as_bytes().starts_with(text);
            named.iter().find(fits)
        });
        match found {
            Some((_, pretty)) => Ok(pretty.clone()),
            None => {
                let before = b"invalid --pretty format: ".as_slice();
                Err(Failure::fatal([before, text].concat()))
            }
        }
    }
}

/// Shows entries.
pub(super) struct Printer<'c> {
    pub(super) context: &'c Context,
    pub(super) pretty: Pretty,
    pub(super) abbreviates_commit: bool,
    pub(super) digits: Digits,
    pub(super) date: DateFormat,
    pub(super) clock: Clock,
    /// Whether the form of dates was asked for on the command line: then they name entries, too.
    pub(super) date_is_explicit: bool,
    /// What is shown beside every commit.
    pub(super) decorations: Option<Decorations>,
    /// What templates ask for.
    pub(super) template_decorations: Option<Decorations>,
    pub(super) ends_with_nul: bool,
    /// Whether the long forms show people by their proper names.
    pub(super) maps_names: bool,
    pub(super) mailmap: OnceCell<Mailmap>,
    pub(super) is_first: bool,
}

/// A person of a commit.
struct Person<'d> {
    name: &'d [u8],
    email: &'d [u8],
    date: Option<Moment<'d>>,
}

/// When a person did something.
#[derive(Clone, Copy)]
struct Moment<'d> {
    /// The seconds as they are written.
    digits: &'d [u8],
    date: Date,
}

/// What Git's log shows where nothing says when, or no clock can: the first second of 1970.
const EPOCH: Date = Date {
    seconds: 0,
    zone: 0,
};

impl<'d> Moment<'d> {
    fn parse(line: &'d [u8]) -> Option<Moment<'d>> {
        let (_, after) = line.rsplit_once_str(">")?;
        let after = after.trim_ascii_start();
        let len = after
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        let digits = after.get(..len).filter(|digits| !digits.is_empty())?;
        let date = Date::parse(line).filter(|date| i64::try_from(date.seconds).is_ok());
        Some(Moment {
            digits,
            date: date.unwrap_or(EPOCH),
        })
    }
}

impl<'d> Person<'d> {
    fn parse(line: &'d [u8]) -> Person<'d> {
        let (name, rest) = line.split_once_str("<").unwrap_or((line, b""));
        let (email, _) = rest.split_once_str(">").unwrap_or((rest, b""));
        Person {
            name: name.trim_ascii(),
            email,
            date: Moment::parse(line),
        }
    }
}

/// Returns what a commit says of a person.
fn line_of<'d>(data: &'d [u8], role: &str) -> &'d [u8] {
    let mut headers = data.lines().take_while(|line| !line.is_empty());
    let line = headers.find_map(|line| line.strip_prefix(role.as_bytes())?.strip_prefix(b" "));
    line.unwrap_or_default()
}

impl Printer<'_> {
    /// Appends one entry with its commit.
    pub(super) fn push(
        &mut self,
        step: &Step<'_>,
        commit: &Object,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let end = if self.ends_with_nul { 0 } else { b'\n' };
        let is_first = std::mem::replace(&mut self.is_first, false);
        let oid = step.entry.new;
        match self.pretty.clone() {
            Pretty::Oneline => {
                self.push_id(oid, out)?;
                self.push_decorations(oid, out);
                out.push(b' ');
                self.push_selector(step, false, out)?;
                out.extend_from_slice(b": ");
                out.extend_from_slice(&step.entry.message);
                out.push(b'\n');
            }
            Pretty::Template(template, true) if template.is_empty() => {}
            Pretty::Template(template, terminated) => {
                if !terminated && !is_first {
                    out.push(end);
                }
                self.expand(&template, step, commit, out)?;
                if terminated {
                    out.push(end);
                }
            }
            Pretty::Reference => {
                let given = self.date.clone();
                if !self.date_is_explicit {
                    self.date = named("short");
                }
                let expanded = self.expand(b"%h (%s, %ad)", step, commit, out);
                self.date = given;
                expanded?;
                out.push(end);
            }
            long => {
                if !is_first {
                    out.push(end);
                }
                self.push_long(&long, step, commit, out)?;
            }
        }
        Ok(())
    }

    /// Appends one of the forms that have several lines.
    fn push_long(
        &self,
        pretty: &Pretty,
        step: &Step<'_>,
        commit: &Object,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let oid = step.entry.new;
        out.extend_from_slice(b"commit ");
        match pretty {
            Pretty::Raw => oid.push_hex(out),
            _ => self.push_id(oid, out)?,
        }
        self.push_decorations(oid, out);
        out.extend_from_slice(b"\nReflog: ");
        self.push_selector(step, false, out)?;
        let who = &step.entry.who;
        for part in [b" (".as_slice(), &who.name, b" <", &who.email, b">)\n"] {
            out.extend_from_slice(part);
        }
        out.extend_from_slice(b"Reflog message: ");
        out.extend_from_slice(&step.entry.message);
        out.push(b'\n');
        let data = commit.data.as_slice();
        if *pretty == Pretty::Raw {
            for line in data.lines().take_while(|line| !line.is_empty()) {
                out.extend_from_slice(line);
                out.push(b'\n');
            }
        } else {
            self.push_people(pretty, oid, data, out)?;
        }
        let message = Message::parse(data);
        let text = match pretty {
            Pretty::Short => message.subject,
            _ => message.text,
        };
        let text = text.trim_ascii_end();
        if !text.is_empty() {
            out.push(b'\n');
        }
        for line in text.lines().map(<[u8]>::trim_ascii_end) {
            out.extend_from_slice(b"    ");
            match pretty {
                Pretty::Short | Pretty::Raw => out.extend_from_slice(line),
                _ => push_without_tabs(line, out),
            }
            out.push(b'\n');
        }
        Ok(())
    }

    fn push_people(
        &self,
        pretty: &Pretty,
        oid: ObjectId,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let parents = self.parents(oid, data)?;
        if parents.len() > 1 {
            out.extend_from_slice(b"Merge:");
            for parent in parents {
                out.push(b' ');
                self.push_abbreviated(parent, out)?;
            }
            out.push(b'\n');
        }
        let wide = *pretty == Pretty::Fuller;
        let mut line = |label: &str, value: &[u8]| {
            let width = if wide { 12 } else { 8 };
            out.extend_from_slice(format!("{:width$}", format!("{label}:")).as_bytes());
            out.extend_from_slice(value);
            out.push(b'\n');
        };
        let [author, committer] = ["author", "committer"].map(|role| line_of(data, role));
        let [author, committer] = match self.maps_names {
            true => [self.mapped(author)?, self.mapped(committer)?],
            false => [author.into(), committer.into()],
        };
        let (author, committer) = (Person::parse(&author), Person::parse(&committer));
        let address = |person: &Person<'_>| [person.name, b" <", person.email, b">"].concat();
        let date = |person: &Person<'_>| {
            let date = person.date.map_or(EPOCH, |moment| moment.date);
            self.date(date, &self.date)
        };
        line("Author", &address(&author));
        match pretty {
            Pretty::Medium => line("Date", &date(&author)?),
            Pretty::Full => line("Commit", &address(&committer)),
            Pretty::Fuller => {
                line("AuthorDate", &date(&author)?);
                line("Commit", &address(&committer));
                line("CommitDate", &date(&committer)?);
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the line of a person with the proper name and address.
    fn mapped<'l>(&self, line: &'l [u8]) -> Result<Cow<'l, [u8]>> {
        if self.mailmap.get().is_none() {
            let mailmap = Mailmap::read(self.context)?;
            self.mailmap.get_or_init(|| mailmap);
        }
        let mapped = self.mailmap.get().and_then(|map| map.rewrite(line));
        Ok(mapped.map_or(Cow::Borrowed(line), Cow::Owned))
    }

    /// Returns the parents that a commit is taken to have.
    fn parents(&self, oid: ObjectId, data: &[u8]) -> Result<Vec<ObjectId>> {
        if let Some(parents) = self.context.grafts()?.parents(oid) {
            return Ok(parents.to_vec());
        }
        let lines = data.lines().skip(1);
        let lines = lines.map_while(|line| line.strip_prefix(b"parent "));
        Ok(lines.filter_map(ObjectId::from_hex).collect())
    }

    /// Returns a moment as it is shown.
    ///
    /// # Errors
    /// For one that Git refuses to show.
    fn date(&self, date: Date, format: &DateFormat) -> Result<Vec<u8>> {
        let mut text = Vec::new();
        date.push(format, &self.clock, &mut text)
            .map_err(Failure::fatal)?;
        Ok(text)
    }

    fn push_decorations(&self, oid: ObjectId, out: &mut Vec<u8>) {
        if let Some(decorations) = &self.decorations {
            decorations.push(oid, " (", ")", out);
        }
    }

    fn push_id(&self, oid: ObjectId, out: &mut Vec<u8>) -> Result<()> {
        match self.abbreviates_commit {
            true => self.push_abbreviated(oid, out),
            false => {
                oid.push_hex(out);
                Ok(())
            }
        }
    }

    fn push_abbreviated(&self, oid: ObjectId, out: &mut Vec<u8>) -> Result<()> {
        self.context.push_oid(oid, self.digits, out)
    }

    /// Appends the name of an entry, such as `HEAD@{1}`.
    fn push_selector(&self, step: &Step<'_>, short: bool, out: &mut Vec<u8>) -> Result<()> {
        let by_time = match step.selector {
            Selector::Time => true,
            Selector::Open => self.date_is_explicit,
            Selector::Position => false,
        };
        // Before anything is appended: a moment that cannot be shown ends the output here.
        let which = match by_time {
            true => self.date(moment(&step.entry.who), &self.date)?,
            false => step.position.to_string().into_bytes(),
        };
        let name = if short { step.short } else { step.name };
        for part in [name.as_bytes(), b"@{", &which, b"}"] {
            out.extend_from_slice(part);
        }
        Ok(())
    }

    /// Appends what a template makes of an entry.
    fn expand(
        &self,
        template: &[u8],
        step: &Step<'_>,
        commit: &Object,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        // What stands before it belongs to other entries.
        let start = out.len();
        let mut rest = template;
        while let Some(at) = rest.find_byte(b'%') {
            let (text, placeholder) = rest.split_at(at);
            out.extend_from_slice(text);
            let after = placeholder.get(1..).unwrap_or_default();
            let (sign, body) = match after.first() {
                Some(b'+' | b'-' | b' ') => after.split_at(1),
                _ => (&b""[..], after),
            };
            let mut value = Vec::new();
            let known = self.placeholder(body, step, commit, &mut value)?;
            // Behind a sign anything will do, be it nothing.
            let Some(len) = known.or((!sign.is_empty()).then_some(0)) else {
                out.push(b'%');
                rest = after.strip_prefix(b"%").unwrap_or(after);
                continue;
            };
            match (sign, value.is_empty()) {
                (b"+", false) => out.push(b'\n'),
                (b" ", false) => out.push(b' '),
                (b"-", true) => {
                    let own = out.get(start..).unwrap_or_default();
                    let kept = own.trim_end_with(|c| c == '\n').len();
                    out.truncate(start + kept);
                }
                _ => {}
            }
            out.extend_from_slice(&value);
            rest = body.get(len..).unwrap_or_default();
        }
        out.extend_from_slice(rest);
        Ok(())
    }

    /// Appends the value of the placeholder at the start of `text`, and returns its length; `None`
    /// if there is none.
    #[expect(clippy::too_many_lines, reason = "one line for each placeholder")]
    fn placeholder(
        &self,
        text: &[u8],
        step: &Step<'_>,
        commit: &Object,
        out: &mut Vec<u8>,
    ) -> Result<Option<usize>> {
        let data = commit.data.as_slice();
        let oid = step.entry.new;
        let two = text.get(..2).unwrap_or_default();
        match two {
            [role @ (b'a' | b'c'), letter] => {
                let role = if *role == b'a' { "author" } else { "committer" };
                let line = line_of(data, role);
                let line = match letter {
                    b'N' | b'E' | b'L' => self.mapped(line)?,
                    _ => line.into(),
                };
                let known = self.push_person(*letter, &Person::parse(&line), out)?;
                return Ok(known.then_some(2));
            }
            [b'g', letter] => {
                let who = &step.entry.who;
                let proper;
                let person = match letter {
                    b'N' | b'E' => {
                        let line = [&who.name, b" <".as_slice(), &who.email, b">"].concat();
                        proper = self.mapped(&line)?.into_owned();
                        Person::parse(&proper)
                    }
                    _ => Person {
                        name: &who.name,
                        email: &who.email,
                        date: None,
                    },
                };
                match letter {
                    b'd' => self.push_selector(step, true, out)?,
                    b'D' => self.push_selector(step, false, out)?,
                    b's' => out.extend_from_slice(&step.entry.message),
                    b'n' | b'N' => out.extend_from_slice(person.name.trim_ascii_end()),
                    b'e' | b'E' => out.extend_from_slice(person.email),
                    _ => return Ok(None),
                }
                return Ok(Some(2));
            }
            _ => {}
        }
        let message = || Message::parse(data);
        match text.first() {
            Some(b'n') => out.push(b'\n'),
            Some(b'm') => out.push(b'>'),
            Some(b'x') => {
                let byte = text
                    .get(1..3)
                    .and_then(|hex| u8::from_str_radix(hex.to_str().ok()?, 16).ok());
                let Some(byte) = byte else { return Ok(None) };
                out.push(byte);
                return Ok(Some(3));
            }
            Some(b'C') => return Ok(color_len(text)),
            Some(b'H') => oid.push_hex(out),
            Some(b'h') => self.push_abbreviated(oid, out)?,
            Some(letter @ (b'T' | b't')) => {
                let tree = data
                    .lines()
                    .next()
                    .and_then(|line| line.strip_prefix(b"tree "));
                if let Some(tree) = tree.and_then(ObjectId::from_hex) {
                    match letter {
                        b'T' => tree.push_hex(out),
                        _ => self.push_abbreviated(tree, out)?,
                    }
                }
            }
            Some(letter @ (b'P' | b'p')) => {
                for (index, parent) in self.parents(oid, data)?.into_iter().enumerate() {
                    if index > 0 {
                        out.push(b' ');
                    }
                    match letter {
                        b'P' => parent.push_hex(out),
                        _ => self.push_abbreviated(parent, out)?,
                    }
                }
            }
            Some(b'd') => {
                if let Some(decorations) = &self.template_decorations {
                    decorations.push(oid, " (", ")", out);
                }
            }
            Some(b'D') => {
                if let Some(decorations) = &self.template_decorations {
                    decorations.push(oid, "", "", out);
                }
            }
            Some(b's') => message().push_subject(out),
            Some(b'f') => message().push_sanitized_subject(out),
            Some(b'b') => out.extend_from_slice(message().body),
            Some(b'B') => out.extend_from_slice(message().all),
            Some(b'e') => {
                let mut headers = data.lines().take_while(|line| !line.is_empty());
                let encoding = headers.find_map(|line| line.strip_prefix(b"encoding "));
                out.extend_from_slice(encoding.unwrap_or_default());
            }
            _ => return Ok(None),
        }
        Ok(Some(1))
    }

    /// Appends what a letter tells of a person; returns whether it is a known one.
    fn push_person(&self, letter: u8, person: &Person<'_>, out: &mut Vec<u8>) -> Result<bool> {
        let local = |email: &[u8]| {
            email
                .split_once_str("@")
                .map_or(email.len(), |(it, _)| it.len())
        };
        let format = match letter {
            b'n' | b'N' => {
                out.extend_from_slice(person.name);
                return Ok(true);
            }
            b'e' | b'E' => {
                out.extend_from_slice(person.email);
                return Ok(true);
            }
            b'l' | b'L' => {
                let len = local(person.email);
                out.extend_from_slice(person.email.get(..len).unwrap_or_default());
                return Ok(true);
            }
            b't' => {
                out.extend_from_slice(person.date.map_or(b"", |moment| moment.digits));
                return Ok(true);
            }
            b'd' => self.date.clone(),
            b'D' => named("rfc2822"),
            b'r' => named("relative"),
            b'h' => named("human"),
            b'i' => named("iso"),
            b'I' => named("iso-strict"),
            b's' => named("short"),
            _ => return Ok(false),
        };
        match person.date {
            Some(moment) => out.extend_from_slice(&self.date(moment.date, &format)?),
            // The younger placeholders stay as they are where nothing says when.
            None => return Ok(matches!(letter, b'd' | b'D' | b'r' | b'i')),
        }
        Ok(true)
    }
}

/// Returns a form of dates that has a name.
fn named(name: &str) -> DateFormat {
    DateFormat::parse(Some(name)).expect("these names are known")
}

/// Returns the moment of a reflog entry.
fn moment(who: &Signature) -> Date {
    Date {
        seconds: who.time,
        zone: who.zone.into(),
    }
}

/// Returns the length of a placeholder for a colour. None is shown where output is no terminal.
fn color_len(text: &[u8]) -> Option<usize> {
    if text.starts_with(b"C(") {
        return Some(text.find_byte(b')')? + 1);
    }
    ["Cred", "Cgreen", "Cblue", "Creset"]
        .iter()
        .find_map(|word| text.starts_with(word.as_bytes()).then_some(word.len()))
}
