//! What has to be read from the content of an object.
//!
//! Content ends at its first zero byte, except for `raw`; header lines are looked for before the
//! first empty line only.

use std::cell::OnceCell;

use bstr::ByteSlice;
use refdb::ObjectId;
use refdb::objects::ObjectKind;
use refdb_git::objects::{Object, tag_target};

use super::atom::{Atom, Contents, Kind, Part, Role};
use super::date::{Clock, Date};
use super::mailmap::Mailmap;
use super::message::Message;
use super::trailers::TrailerRules;
use crate::context::Context;
use crate::failure::{Failure, Result};

/// Takes values from objects.
pub(super) struct ContentValues<'c> {
    context: &'c Context,
    clock: OnceCell<Clock>,
    mailmap: OnceCell<Mailmap>,
    trailers: OnceCell<TrailerRules>,
}

/// The content of an object whose beginning is as it has to be.
pub(super) struct Content<'o> {
    oid: ObjectId,
    kind: ObjectKind,
    /// All of it.
    data: &'o [u8],
    /// What comes before the first zero byte.
    text: &'o [u8],
    parents: Vec<ObjectId>,
}

impl<'o> Content<'o> {
    /// Checks what is checked before anything is taken from an object.
    pub(super) fn parse(
        oid: ObjectId,
        object: &'o Object,
        context: &Context,
    ) -> Result<Option<Self>> {
        let data = object.data.as_slice();
        let end = data.find_byte(0).unwrap_or(data.len());
        let text = data.get(..end).unwrap_or(data);
        let mut parents = Vec::new();
        let is_sound = match object.kind {
            ObjectKind::Commit => commit_head(data, &mut parents).is_some(),
            ObjectKind::Tag => tag_target(data, context.object_format()?).is_some(),
            ObjectKind::Tree | ObjectKind::Blob => true,
        };
        Ok(is_sound.then_some(Content {
            oid,
            kind: object.kind,
            data,
            text,
            parents,
        }))
    }

    /// Returns what follows a key, up to the end of the text; empty if there is no such line.
    fn behind_key(&self, key: &str) -> &'o [u8] {
        let mut rest = self.text;
        loop {
            let value = rest
                .strip_prefix(key.as_bytes())
                .and_then(|rest| rest.strip_prefix(b" "));
            if let Some(value) = value {
                return value;
            }
            match rest.split_once_str("\n") {
                Some((_, next)) if !next.is_empty() && !next.starts_with(b"\n") => rest = next,
                _ => return b"",
            }
        }
    }

    /// Returns the value of a header line.
    fn header(&self, key: &str) -> &'o [u8] {
        line_of(self.behind_key(key))
    }
}

/// Reads the lines with which a commit begins.
fn commit_head(data: &[u8], parents: &mut Vec<ObjectId>) -> Option<()> {
    let id = |rest: &[u8]| ObjectId::from_hex(rest.lines().next()?);
    let mut rest = data.strip_prefix(b"tree ")?;
    id(rest)?;
    loop {
        let (_, next) = rest.split_once_str("\n")?;
        match next.strip_prefix(b"parent ") {
            Some(parent) => {
                parents.push(id(parent)?);
                rest = parent;
            }
            None => return Some(()),
        }
    }
}

fn line_of(text: &[u8]) -> &[u8] {
    let end = text.find_byte(b'\n').unwrap_or(text.len());
    text.get(..end).unwrap_or(text)
}

impl<'c> ContentValues<'c> {
    pub(super) fn new(context: &'c Context) -> Self {
        ContentValues {
            context,
            clock: OnceCell::new(),
            mailmap: OnceCell::new(),
            trailers: OnceCell::new(),
        }
    }

    /// Returns the parents that a commit is taken to have.
    fn parents<'p>(&'p self, content: &'p Content<'_>) -> Result<&'p [ObjectId]> {
        let grafted = self.context.grafts()?.parents(content.oid);
        Ok(grafted.unwrap_or(&content.parents))
    }

    /// Appends the value of an atom, nothing if the object is of another kind than those that have
    /// it; returns the number by which it is sorted, if it has one. Of a date that is not `shown`
    /// only the number is wanted.
    pub(super) fn push(
        &self,
        atom: &Atom,
        content: &Content<'_>,
        shown: bool,
        out: &mut Vec<u8>,
    ) -> Result<Option<u64>> {
        let is_commit = content.kind == ObjectKind::Commit;
        let is_tag = content.kind == ObjectKind::Tag;
        match &atom.kind {
            Kind::Raw => out.extend_from_slice(content.data),
            Kind::RawSize => return Ok(Some(push_count(content.data.len(), out))),
            Kind::Tree(digits) if is_commit => {
                if let Some(tree) = ObjectId::from_hex(content.header("tree")) {
                    self.context.push_oid(tree, *digits, out)?;
                }
            }
            Kind::Parent(digits) if is_commit => {
                for (index, parent) in self.parents(content)?.iter().enumerate() {
                    if index > 0 {
                        out.push(b' ');
                    }
                    self.context.push_oid(*parent, *digits, out)?;
                }
            }
            Kind::NumParent if is_commit => {
                return Ok(Some(push_count(self.parents(content)?.len(), out)));
            }
            Kind::Object if is_tag => out.extend(content.header("object").to_ascii_lowercase()),
            Kind::Type if is_tag => out.extend_from_slice(content.header("type")),
            Kind::Tag if is_tag => out.extend_from_slice(content.header("tag")),
            Kind::Person(role, part) => {
                let key = match (role, is_commit, is_tag) {
                    (Role::Author, true, _) => "author",
                    (Role::Committer | Role::Creator, true, _) => "committer",
                    (Role::Tagger | Role::Creator, _, true) => "tagger",
                    _ => return Ok(None),
                };
                return self.push_person(content.behind_key(key), part, shown, out);
            }
            Kind::Subject { .. } | Kind::Body | Kind::Contents(_) if is_commit || is_tag => {
                return Ok(push_message(&atom.kind, &Message::parse(content.text), out));
            }
            Kind::Trailers(options) if is_commit || is_tag => {
                let message = Message::parse(content.text);
                self.trailers()?.push(message.unsigned(), options, out);
            }
            _ => {}
        }
        Ok(None)
    }

    /// Appends what is told of a person; `line` goes on behind its end.
    fn push_person(
        &self,
        line: &[u8],
        part: &Part,
        shown: bool,
        out: &mut Vec<u8>,
    ) -> Result<Option<u64>> {
        let mapped = matches!(
            part,
            Part::Name { mapped: true } | Part::Email { mapped: true, .. }
        );
        let rewritten = match mapped {
            true => self.mailmap()?.rewrite(line_of(line)),
            false => None,
        };
        let line = rewritten.as_deref().unwrap_or(line);
        match part {
            Part::All => out.extend_from_slice(line_of(line)),
            Part::Name { .. } => {
                if let Some((name, _)) = line_of(line).split_once_str(" <") {
                    out.extend_from_slice(name);
                }
            }
            Part::Email { trim, local, .. } => push_email(line, *trim, *local, out),
            Part::Date(format) => {
                let format = format
                    .as_ref()
                    .map_err(|text| Failure::fatal(text.as_str()))?;
                let Some(date) = Date::parse(line) else {
                    return Ok(Some(0));
                };
                let pushed = match shown {
                    true => date.push(format, self.clock()?, out),
                    false => date.check(),
                };
                pushed.map_err(Failure::fatal)?;
                return Ok(Some(date.seconds));
            }
        }
        Ok(None)
    }

    fn clock(&self) -> Result<&Clock> {
        if let Some(clock) = self.clock.get() {
            return Ok(clock);
        }
        let repository = self.context.repository()?;
        let now = repository.now();
        let zone = repository.zone().clone();
        Ok(self.clock.get_or_init(|| Clock { zone, now }))
    }

    fn mailmap(&self) -> Result<&Mailmap> {
        if let Some(mailmap) = self.mailmap.get() {
            return Ok(mailmap);
        }
        let mailmap = Mailmap::read(self.context)?;
        Ok(self.mailmap.get_or_init(|| mailmap))
    }

    fn trailers(&self) -> Result<&TrailerRules> {
        let config = self.context.repository()?.config();
        Ok(self.trailers.get_or_init(|| TrailerRules::new(config)))
    }
}

fn push_count(count: usize, out: &mut Vec<u8>) -> u64 {
    out.extend_from_slice(count.to_string().as_bytes());
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn push_email(line: &[u8], trim: bool, local: bool, out: &mut Vec<u8>) {
    let Some(start) = line.find_byte(b'<') else {
        return;
    };
    let mut email = line.get(start..).unwrap_or_default();
    if trim || local {
        email = email.get(1..).unwrap_or_default();
    }
    let at = email.find_byte(b'@').filter(|_| local);
    let end = at.or_else(|| {
        let end = email.find_byte(b'>')?;
        Some(if trim || local { end } else { end + 1 })
    });
    let email = end.and_then(|end| email.get(..end));
    out.extend_from_slice(email.unwrap_or_default());
}

fn push_message(kind: &Kind, message: &Message<'_>, out: &mut Vec<u8>) -> Option<u64> {
    match kind {
        Kind::Subject { sanitized: true } => message.push_sanitized_subject(out),
        Kind::Subject { .. } | Kind::Contents(Contents::Subject) => message.push_subject(out),
        Kind::Body => out.extend_from_slice(message.body),
        Kind::Contents(Contents::All) => out.extend_from_slice(message.all),
        Kind::Contents(Contents::Body) => out.extend_from_slice(message.body_alone()),
        Kind::Contents(Contents::Signature) => out.extend_from_slice(message.signature),
        Kind::Contents(Contents::Size) => return Some(push_count(message.all.len(), out)),
        Kind::Contents(Contents::Lines(count)) => message.push_lines(*count, out),
        _ => {}
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn email(line: &str, trim: bool, local: bool) -> String {
        let mut out = Vec::new();
        push_email(line.as_bytes(), trim, local, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn addresses() {
        let line = "A B <a@b.c> 1 +0000\n";
        assert_eq!(email(line, false, false), "<a@b.c>");
        assert_eq!(email(line, true, false), "a@b.c");
        assert_eq!(email(line, true, true), "a");
        assert_eq!(email("A <ab> 1", false, true), "ab");
        assert_eq!(email("A <ab 1", false, false), "");
    }

    #[test]
    fn the_lines_of_a_commit() {
        let id = "1".repeat(40);
        let mut parents = Vec::new();
        let data = format!("tree {id}\nparent {id}\nparent {id}\nauthor a\nparent {id}\n");
        assert!(commit_head(data.as_bytes(), &mut parents).is_some());
        assert_eq!(parents.len(), 2);
        for data in ["tree 1\n", "parent x", ""] {
            assert!(commit_head(data.as_bytes(), &mut parents).is_none());
        }
    }
}
