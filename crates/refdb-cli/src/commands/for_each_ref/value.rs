//! The values of atoms for a ref. Objects are looked up only where an atom needs them, and each
//! distinct one once.

use std::collections::HashMap;
use std::rc::Rc;

use bstr::ByteSlice;
use refdb::objects::{Header, Object, ObjectKind, Peeled};
use refdb::revision::Shortener;
use refdb::{ObjectId, RefName, Store};

use super::atom::{Atom, Contents, Kind, NameForm, Part, Role};
use super::date::Date;
use super::format::Piece;
use super::message::{Message, header};
use crate::context::Context;
use crate::failure::{Failure, Result};

/// A ref that is listed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item<'a> {
    pub(super) name: RefName<'a>,
    /// The object it leads to.
    pub(super) oid: ObjectId,
    /// What the object peels to, where that is stored.
    pub(super) peeled: Option<ObjectId>,
    pub(super) symbolic: bool,
    pub(super) packed: bool,
}

/// Computes values.
pub(super) struct Values<'c> {
    context: &'c Context,
    store: &'c Store,
    /// Whether short names may mean nothing else at all.
    strict: bool,
    shortener: Shortener,
    headers: HashMap<ObjectId, Option<Header>>,
    peeled: HashMap<ObjectId, Option<ObjectId>>,
    /// The object that was read last: several atoms speak of the same one.
    last: Option<(ObjectId, Rc<Object>)>,
    /// The branch that is checked out.
    head: Option<Option<Vec<u8>>>,
    /// For each branch that is checked out, where.
    worktrees: Option<HashMap<Vec<u8>, Vec<u8>>>,
}

impl<'c> Values<'c> {
    pub(super) fn new(context: &'c Context) -> Result<Self> {
        Ok(Values {
            context,
            store: context.store()?,
            strict: context.warns_of_ambiguous_refs()?,
            shortener: Shortener::new(context.repository()?),
            headers: HashMap::new(),
            peeled: HashMap::new(),
            last: None,
            head: None,
            worktrees: None,
        })
    }

    /// Appends the value of an atom to `out`.
    pub(super) fn push(&mut self, atom: &Atom, item: Item<'_>, out: &mut Vec<u8>) -> Result<()> {
        match &atom.kind {
            Kind::RefName(form) => self.push_name(item.name.as_bytes(), *form, out)?,
            Kind::Symref(form) => {
                if item.symbolic
                    && let Some(resolved) = self.store.resolve(item.name)?
                {
                    self.push_name(resolved.name.as_bytes(), *form, out)?;
                }
            }
            Kind::Flag => return self.push_flags(item, out),
            Kind::Head => {
                let is_head = self
                    .head()?
                    .is_some_and(|head| head == item.name.as_bytes());
                out.push(if is_head { b'*' } else { b' ' });
                return Ok(());
            }
            Kind::WorktreePath => {
                let path = self.worktrees()?.get(item.name.as_bytes());
                out.extend_from_slice(path.map_or(&b""[..], Vec::as_slice));
                return Ok(());
            }
            _ => return self.push_of_object(atom, item, out),
        }
        if atom.deref {
            out.extend_from_slice(b"^{}");
        }
        Ok(())
    }

    /// Appends a piece of a format to `out`.
    pub(super) fn push_piece(
        &mut self,
        piece: &Piece,
        item: Item<'_>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        match piece {
            Piece::Literal(literal) => out.extend_from_slice(literal),
            Piece::Atom(atom) => self.push(atom, item, out)?,
            Piece::Align(alignment, pieces) => {
                let mut text = Vec::new();
                self.push_all(pieces, item, &mut text)?;
                alignment.push(&text, out);
            }
            Piece::If(block) => {
                let mut tested = Vec::new();
                self.push_all(&block.tested, item, &mut tested)?;
                let pieces = match block.condition.holds(&tested) {
                    true => &block.then,
                    false => &block.otherwise,
                };
                self.push_all(pieces, item, out)?;
            }
        }
        Ok(())
    }

    fn push_all(&mut self, pieces: &[Piece], item: Item<'_>, out: &mut Vec<u8>) -> Result<()> {
        pieces
            .iter()
            .try_for_each(|piece| self.push_piece(piece, item, out))
    }

    /// Returns the number by which an atom is sorted; 0 where there is none.
    pub(super) fn number(&mut self, atom: &Atom, item: Item<'_>) -> Result<i64> {
        let raw = match &atom.kind {
            Kind::Person(role, Part::Date(_)) => Atom {
                kind: Kind::Person(*role, Part::All),
                ..atom.clone()
            },
            _ => atom.clone(),
        };
        let mut text = Vec::new();
        self.push(&raw, item, &mut text)?;
        let text = text.to_str_lossy();
        Ok(match &atom.kind {
            Kind::Person(..) => Date::parse(&text).map_or(0, |date| date.seconds),
            _ => text.parse().unwrap_or(0),
        })
    }

    fn push_of_object(&mut self, atom: &Atom, item: Item<'_>, out: &mut Vec<u8>) -> Result<()> {
        let oid = match atom.deref {
            false => item.oid,
            true => match self.peel(item)? {
                Some(peeled) => peeled,
                None => return Ok(()),
            },
        };
        match &atom.kind {
            Kind::ObjectName(digits) => self.context.push_oid(oid, *digits, out),
            Kind::ObjectType => {
                let kind = self.header(oid, item)?.kind;
                out.extend_from_slice(kind.as_str().as_bytes());
                Ok(())
            }
            Kind::ObjectSize => {
                let size = self.header(oid, item)?.size;
                out.extend_from_slice(size.to_string().as_bytes());
                Ok(())
            }
            _ => {
                let object = self.object(oid, item)?;
                self.push_content(atom, &object, out)
            }
        }
    }

    /// Appends what has to be read from the content of an object; nothing if it is of another
    /// kind than those that have it.
    fn push_content(&self, atom: &Atom, object: &Object, out: &mut Vec<u8>) -> Result<()> {
        let is_commit = object.kind == ObjectKind::Commit;
        let is_tag = object.kind == ObjectKind::Tag;
        let data = object.data.as_slice();
        let first = |key: &'static str| header(data, key).next().unwrap_or_default();
        let kind = &atom.kind;
        match kind {
            Kind::Tree(digits) if is_commit => {
                if let Some(tree) = ObjectId::from_hex(first("tree")) {
                    self.context.push_oid(tree, *digits, out)?;
                }
            }
            Kind::Parent(digits) if is_commit => {
                for (index, parent) in header(data, "parent").enumerate() {
                    if index > 0 {
                        out.push(b' ');
                    }
                    if let Some(parent) = ObjectId::from_hex(parent) {
                        self.context.push_oid(parent, *digits, out)?;
                    }
                }
            }
            Kind::NumParent if is_commit => {
                let count = header(data, "parent").count();
                out.extend_from_slice(count.to_string().as_bytes());
            }
            Kind::Object if is_tag => out.extend_from_slice(first("object")),
            Kind::Type if is_tag => out.extend_from_slice(first("type")),
            Kind::Tag if is_tag => out.extend_from_slice(first("tag")),
            Kind::Person(role, part) => {
                let key = match (role, is_commit, is_tag) {
                    (Role::Author, true, _) => "author",
                    (Role::Committer | Role::Creator, true, _) => "committer",
                    (Role::Tagger | Role::Creator, _, true) => "tagger",
                    _ => return Ok(()),
                };
                let line = first(key);
                if *part == Part::UnknownDate && !line.is_empty() {
                    let (_, name) = atom.text.split_once(':').unwrap_or_default();
                    return Err(Failure::fatal(format!("unknown date format {name}")));
                }
                push_person(line, *part, out);
            }
            Kind::Subject { .. } | Kind::Body | Kind::Contents(_) if is_commit || is_tag => {
                push_message(kind, &Message::parse(data), out);
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns what the object of a ref peels to; `None` if it is no tag.
    pub(super) fn peel(&mut self, item: Item<'_>) -> Result<Option<ObjectId>> {
        if item.peeled.is_some() {
            return Ok(item.peeled);
        }
        if let Some(peeled) = self.peeled.get(&item.oid) {
            return Ok(*peeled);
        }
        let peeled = match self.store.objects().peel(item.oid)? {
            Peeled::To(peeled) => Some(peeled),
            Peeled::Itself => None,
            Peeled::Nowhere => return Err(Failure::fatal("bad tag")),
            Peeled::Missing => return Err(missing(item.oid, item)),
        };
        self.peeled.insert(item.oid, peeled);
        Ok(peeled)
    }

    fn header(&mut self, oid: ObjectId, item: Item<'_>) -> Result<Header> {
        let header = match self.headers.get(&oid) {
            Some(header) => *header,
            None => {
                let header = self.context.odb()?.header(oid)?;
                self.headers.insert(oid, header);
                header
            }
        };
        header.ok_or_else(|| missing(oid, item))
    }

    fn object(&mut self, oid: ObjectId, item: Item<'_>) -> Result<Rc<Object>> {
        if let Some((last, object)) = &self.last
            && *last == oid
        {
            return Ok(Rc::clone(object));
        }
        let read = self.context.odb()?.read(oid)?;
        let object = Rc::new(read.ok_or_else(|| missing(oid, item))?);
        self.last = Some((oid, Rc::clone(&object)));
        Ok(object)
    }

    fn push_name(&mut self, name: &[u8], form: NameForm, out: &mut Vec<u8>) -> Result<()> {
        match form {
            NameForm::Full => out.extend_from_slice(name),
            NameForm::Short => {
                let short = self
                    .shortener
                    .shorten(RefName::from_disk(name), self.strict)?;
                out.extend_from_slice(&short);
            }
            NameForm::StripLeft(count) => out.extend_from_slice(strip_left(name, count)),
            NameForm::StripRight(count) => out.extend_from_slice(strip_right(name, count)),
        }
        Ok(())
    }

    fn push_flags(&self, item: Item<'_>, out: &mut Vec<u8>) -> Result<()> {
        let mut packed = item.packed;
        if item.symbolic {
            // A symref has the flags of the ref at its end as well.
            out.extend_from_slice(b"symref");
            if let Some(resolved) = self.store.resolve(item.name)? {
                let target = self.store.read(resolved.name.as_name())?;
                packed |= target.is_some_and(|target| target.packed);
            }
        }
        if packed {
            if item.symbolic {
                out.push(b',');
            }
            out.extend_from_slice(b"packed");
        }
        Ok(())
    }

    fn head(&mut self) -> Result<Option<&[u8]>> {
        if self.head.is_none() {
            let resolved = self.store.resolve(RefName::from_disk(b"HEAD"))?;
            self.head = Some(resolved.map(|it| it.name.as_bytes().to_vec()));
        }
        Ok(self.head.as_ref().and_then(|head| head.as_deref()))
    }

    fn worktrees(&mut self) -> Result<&HashMap<Vec<u8>, Vec<u8>>> {
        if self.worktrees.is_none() {
            self.worktrees = Some(self.context.checked_out()?);
        }
        Ok(self.worktrees.get_or_insert_default())
    }
}

fn missing(oid: ObjectId, item: Item<'_>) -> Failure {
    Failure::fatal(format!("missing object {oid} for {}", item.name))
}

/// Returns how many of so many components are left out: `count`, or all but so many if it is negative.
fn components_to_strip(components: usize, count: i32) -> usize {
    usize::try_from(count).unwrap_or_else(|_| {
        let keep = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
        components.saturating_sub(keep)
    })
}

/// Leaves out so many components at the front, or all but so many if `count` is negative.
fn strip_left(name: &[u8], count: i32) -> &[u8] {
    let slashes: Vec<usize> = name.find_iter("/").collect();
    let strip = components_to_strip(slashes.len() + 1, count);
    match strip.checked_sub(1) {
        None => name,
        Some(last) => slashes
            .get(last)
            .and_then(|at| name.get(at + 1..))
            .unwrap_or_default(),
    }
}

/// Leaves out so many components at the end, or all but so many if `count` is negative.
fn strip_right(name: &[u8], count: i32) -> &[u8] {
    let slashes: Vec<usize> = name.find_iter("/").collect();
    let strip = components_to_strip(slashes.len() + 1, count);
    if strip == 0 {
        return name;
    }
    let at = slashes
        .len()
        .checked_sub(strip)
        .and_then(|index| slashes.get(index));
    at.and_then(|at| name.get(..*at)).unwrap_or_default()
}

fn push_person(line: &[u8], part: Part, out: &mut Vec<u8>) {
    match part {
        Part::All => out.extend_from_slice(line),
        Part::Name => {
            if let Some((name, _)) = line.split_once_str(" <") {
                out.extend_from_slice(name);
            }
        }
        Part::Email { trim, local } => {
            let Some(start) = line.find_byte(b'<') else {
                return;
            };
            let rest = line.get(start..).unwrap_or_default();
            let end = rest.find_byte(b'>').map_or(rest.len(), |at| at + 1);
            let mut email = rest.get(..end).unwrap_or(rest);
            if trim || local {
                email = email.get(1..).unwrap_or_default();
                let stop: &[u8] = if local { b"@>" } else { b">" };
                let end = email.find_byteset(stop).unwrap_or(email.len());
                email = email.get(..end).unwrap_or(email);
            }
            out.extend_from_slice(email);
        }
        Part::UnknownDate => {}
        Part::Date(format) => {
            if let Some(date) = Date::parse(&line.to_str_lossy()) {
                out.extend_from_slice(date.show(format).as_bytes());
            }
        }
    }
}

fn push_message(kind: &Kind, message: &Message<'_>, out: &mut Vec<u8>) {
    match kind {
        Kind::Subject { sanitized: true } => message.push_sanitized_subject(out),
        Kind::Subject { .. } | Kind::Contents(Contents::Subject) => message.push_subject(out),
        Kind::Body => out.extend_from_slice(message.body),
        Kind::Contents(Contents::All) => out.extend_from_slice(message.all),
        Kind::Contents(Contents::Body) => out.extend_from_slice(message.body_alone()),
        Kind::Contents(Contents::Signature) => out.extend_from_slice(message.signature),
        Kind::Contents(Contents::Size) => {
            out.extend_from_slice(message.all.len().to_string().as_bytes());
        }
        Kind::Contents(Contents::Lines(count)) => message.push_lines(*count, out),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_are_stripped_from_both_ends() {
        let name = b"refs/heads/topic";
        let left = |count| strip_left(name, count).as_bstr().to_string();
        assert_eq!(
            [left(1), left(3), left(-1), left(-9), left(0)],
            [
                "heads/topic",
                "",
                "topic",
                "refs/heads/topic",
                "refs/heads/topic"
            ]
        );
        let right = |count| strip_right(name, count).as_bstr().to_string();
        assert_eq!(
            [right(1), right(3), right(-1), right(-9)],
            ["refs/heads", "", "refs", "refs/heads/topic"]
        );
    }
}
