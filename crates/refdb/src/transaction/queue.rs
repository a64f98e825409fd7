//! What a transaction is asked to do: edits with their names, and the objects of their new values,
//! checked.
//!
//! Edits are kept in columns: one buffer for all names and messages, ids by number, and a few bytes
//! for each edit. Memory that is touched for the first time costs more than anything else that is
//! done to an edit.

use refdb_names::internals::{goes_on_well, name_from_disk};
use refdb_names::{ObjectFormat, ObjectId, RefName};
use reftable::short;

use crate::error::{Error, ErrorKind, Reason, Rejection, Result};
use crate::objects::{ObjectKind, Objects, Peeled};
use crate::reflog::{Signature, is_normalized, normalize_message};

use super::checks::{check_name, check_text, text_len};
use super::edit::{Change, ChangeOf, Edit, Expected, ExpectedOf, LogEdit};
use super::flags::Flags;
use super::ids::{Id, Ids};
use super::rename::LogMove;
use super::sort::{Sequence, after, sort_by_name};

/// How many bytes the names and messages of one transaction may have together.
const TEXT_LEN_MAX: usize = u32::MAX as usize;

#[derive(Clone)]
pub(super) struct Queue {
    format: ObjectFormat,
    /// The names, one behind the other.
    names: Vec<u8>,
    /// Targets and messages, one behind the other.
    text: Vec<u8>,
    /// The targets.
    targets: Vec<Span>,
    /// The messages: edits that follow each other mostly have the same.
    messages: Vec<Span>,
    edits: Vec<Queued>,
    /// Whether a short look told that the last name is well-formed.
    is_plain: bool,
    /// How the names follow each other.
    sequence: Sequence,
    logs: Vec<LogEdit>,
    /// Who is named in entries, if it is not the store's committer.
    pub(super) who: Option<Box<Signature>>,
    /// Which reflog goes with the edits to another name.
    pub(super) log_move: Option<Box<LogMove>>,
    /// The reason of edits that give none, normalised.
    pub(super) message: Vec<u8>,
    /// Whether edits bring no entries.
    pub(super) skips_logs: bool,
    /// Whether an edit asks for a reflog to be made.
    creates_logs: bool,
    /// What is known of the objects of new values, by the number of their id.
    known: Vec<Known>,
    ids: Ids,
}

/// The order of edits by their names.
pub(super) struct Order {
    /// The positions of the edits.
    pub(super) edits: Vec<usize>,
    /// Whether no two edits are of one name.
    pub(super) distinct: bool,
}

/// One edit.
#[derive(Clone, Copy)]
struct Queued {
    name: Span,
    /// The position of the message.
    message: u32,
    change: ChangeOf<At, At, At>,
    expected: ExpectedOf<At, At>,
    flags: Flags,
}

/// The number of an id, or the position of a target or of an entry. In bytes, so that an edit takes 24 of
/// them and not 32: it is the memory of edits that costs.
#[derive(Clone, Copy)]
struct At([u8; 4]);

impl At {
    fn new(number: u32) -> At {
        At(number.to_ne_bytes())
    }

    fn of(id: Id) -> At {
        At::new(id.to_number())
    }

    fn id(self) -> Id {
        Id::from_number(u32::from_ne_bytes(self.0))
    }

    fn index(self) -> usize {
        u32::from_ne_bytes(self.0) as usize
    }
}

const _: () = assert!(size_of::<Queued>() == 24);

/// A part of the text. A transaction has less text than 32 bits can count.
#[derive(Clone, Copy)]
struct Span {
    start: u32,
    end: u32,
}

impl Span {
    fn of(self, text: &[u8]) -> &[u8] {
        &text[self.start as usize..self.end as usize]
    }

    /// Adds bytes to a text that has room for them.
    fn push(text: &mut Vec<u8>, bytes: &[u8]) -> Span {
        let count = |len: usize| u32::try_from(len).expect("checked for the whole edit");
        let start = count(text.len());
        short::push(text, bytes);
        let end = count(text.len());
        Span { start, end }
    }
}

/// What is known of an object.
#[derive(Clone, Copy, Default)]
enum Known {
    #[default]
    Nothing,
    Missing,
    Is {
        is_commit: bool,
        peeled: Option<Id>,
    },
}

/// From so many bytes on, a list grows to many times its size instead of twice: room that nobody has
/// touched takes no memory, while copying what was there takes it twice.
const LARGE: usize = 16 << 10;

/// How many times.
const GROWTH: usize = 16;

/// Makes room for so many more things.
#[inline]
fn room_for<T>(list: &mut Vec<T>, more: usize) {
    let is_large = list.capacity().saturating_mul(size_of::<T>()) >= LARGE;
    if is_large && list.capacity() - list.len() < more {
        let much = list.capacity().saturating_mul(GROWTH);
        // Where so much is not to be had, it grows as lists do.
        let _ = list.try_reserve_exact(more.max(much));
    }
}

impl Queue {
    pub(super) fn new(format: ObjectFormat) -> Self {
        Queue {
            format,
            names: Vec::new(),
            text: Vec::new(),
            targets: Vec::new(),
            messages: Vec::new(),
            edits: Vec::new(),
            is_plain: false,
            sequence: Sequence::Increasing,
            logs: Vec::new(),
            who: None,
            log_move: None,
            message: Vec::new(),
            skips_logs: false,
            creates_logs: false,
            known: Vec::new(),
            ids: Ids::new(format),
        }
    }

    /// Returns the ids, before they are handed over.
    pub(super) fn ids(&self) -> &Ids {
        &self.ids
    }

    /// Hands over the ids, when all edits are there and are checked once.
    pub(super) fn take_ids(&mut self) -> Ids {
        std::mem::replace(&mut self.ids, Ids::new(self.format))
    }

    pub(super) fn len(&self) -> usize {
        self.edits.len()
    }

    /// Says what the object of the last edit peels to, which nobody has looked up.
    pub(super) fn set_peeled(&mut self, peeled: ObjectId) {
        let peeled = Some(self.ids.number(peeled));
        if let Some(last) = self.edits.last_mut()
            && let ChangeOf::Update(new) = last.change
        {
            last.flags = last.flags.with_peeled();
            let is_commit = false;
            self.know(new.id(), Known::Is { is_commit, peeled });
        }
    }

    /// Returns whether an edit names the target of a symref.
    pub(super) fn has_targets(&self) -> bool {
        !self.targets.is_empty()
    }

    pub(super) fn name(&self, edit: usize) -> RefName<'_> {
        name_from_disk(self.edits[edit].name.of(&self.names))
    }

    /// Returns whether an edit asks for a reflog to be made.
    pub(super) fn creates_logs(&self) -> bool {
        self.creates_logs
    }

    /// Returns the reason that the reflog records, normalised.
    pub(super) fn message(&self, edit: usize) -> &[u8] {
        self.slice(self.messages[self.edits[edit].message as usize])
    }

    pub(super) fn flags(&self, edit: usize) -> Flags {
        self.edits[edit].flags
    }

    pub(super) fn change(&self, edit: usize) -> ChangeOf<Id, RefName<'_>, &LogEdit> {
        let change = self.edits[edit].change;
        change.map(At::id, |at| self.target(at), |at| &self.logs[at.index()])
    }

    pub(super) fn expected(&self, edit: usize) -> ExpectedOf<Id, RefName<'_>> {
        let expected = self.edits[edit].expected;
        expected.map(At::id, |at| self.target(at))
    }

    /// Returns whether an edit touches nothing but a reflog.
    pub(super) fn is_log_only(&self, edit: usize) -> bool {
        matches!(self.edits[edit].change, ChangeOf::Log(_))
    }

    /// Returns whether an edit deletes.
    pub(super) fn deletes(&self, edit: usize) -> bool {
        match self.edits[edit].change {
            ChangeOf::Delete => true,
            ChangeOf::Update(new) => new.id() == Id::NULL,
            ChangeOf::Symbolic(_) | ChangeOf::Verify | ChangeOf::Log(_) => false,
        }
    }

    /// Returns what the new value of an edit peels to, if it is a tag.
    pub(super) fn peeled(&self, edit: usize) -> Option<Id> {
        let Queued { change, flags, .. } = self.edits[edit];
        match (change, flags.checked()) {
            (ChangeOf::Update(new), true) => match self.known.get(new.index()) {
                Some(Known::Is { peeled, .. }) => *peeled,
                _ => None,
            },
            _ => None,
        }
    }

    fn slice(&self, span: Span) -> &[u8] {
        span.of(&self.text)
    }

    fn target(&self, at: At) -> RefName<'_> {
        name_from_disk(self.slice(self.targets[at.index()]))
    }

    fn push_target(&mut self, target: &[u8]) -> At {
        let target = Span::push(&mut self.text, target);
        self.targets.push(target);
        At::new(last_of(&self.targets))
    }

    pub(super) fn add(&mut self, edit: &Edit<'_>, objects: &dyn Objects) -> Result<()> {
        let last = self.edits.last().map(|last| last.name.of(&self.names));
        let (shared, sequence) = after(last, &edit.name);
        let seen = if self.is_plain { shared } else { 0 };
        // Names often come in their order, where most of a name was seen already.
        let is_plain = goes_on_well(&edit.name, seen);
        if !is_plain {
            check_name(edit)?;
        }
        check_text(edit)?;
        self.check_ids(edit)?;
        let checked = match edit.change {
            Change::Update(oid) if !oid.is_null() && !edit.skip_object_check => {
                Some(self.check_object(edit, oid, objects)?)
            }
            _ => None,
        };
        if text_len(edit) + self.message.len() > TEXT_LEN_MAX - self.text.len() - self.names.len() {
            let message = format!("the names and messages are longer than {TEXT_LEN_MAX} bytes");
            return Err(Error::new(ErrorKind::Misuse, message));
        }
        room_for(&mut self.names, edit.name.len());
        room_for(&mut self.edits, 1);
        let name = Span::push(&mut self.names, &edit.name);
        let message = match edit.message.is_empty() && !self.message.is_empty() {
            true => {
                let message = std::mem::take(&mut self.message);
                let position = self.push_message(&message, true);
                self.message = message;
                position
            }
            false => self.push_message(&edit.message, edit.is_spaced),
        };
        let change = match &edit.change {
            Change::Update(oid) => {
                let id = checked.unwrap_or_else(|| self.ids.number(*oid));
                ChangeOf::Update(At::of(id))
            }
            Change::Symbolic(target) => ChangeOf::Symbolic(self.push_target(target)),
            Change::Delete => ChangeOf::Delete,
            Change::Verify => ChangeOf::Verify,
            Change::Log(entry) => {
                self.logs.push(LogEdit::clone(entry));
                ChangeOf::Log(At::new(last_of(&self.logs)))
            }
        };
        let expected = match &edit.expected {
            Expected::Any => ExpectedOf::Any,
            Expected::Missing => ExpectedOf::Missing,
            Expected::Exists => ExpectedOf::Exists,
            Expected::Oid(oid) => ExpectedOf::Oid(At::of(self.ids.number(*oid))),
            Expected::Symbolic(target) => ExpectedOf::Symbolic(self.push_target(target)),
        };
        let queued = Queued {
            name,
            message,
            change,
            expected,
            flags: Flags::of(edit, self.skips_logs, checked.is_some()),
        };
        self.creates_logs |= edit.create_log;
        self.is_plain = is_plain;
        self.sequence = self.sequence.max(sequence);
        self.edits.push(queued);
        Ok(())
    }

    /// Adds the edits of another queue, as they were checked there. Returns `false`, and this queue is of
    /// no use any more, if one does something else than to set, delete or verify an object id, or if
    /// somebody of its own is named in reflogs.
    pub(super) fn append(&mut self, other: &Queue) -> bool {
        let is_plain = other.targets.is_empty()
            && other.logs.is_empty()
            && other.who.is_none()
            && other.log_move.is_none();
        let text_len = other.names.len() + other.text.len();
        if !is_plain || text_len > TEXT_LEN_MAX - self.text.len() - self.names.len() {
            return false;
        }
        room_for(&mut self.names, other.names.len());
        room_for(&mut self.edits, other.edits.len());
        for (at, &edit) in other.edits.iter().enumerate() {
            let last = self.edits.last().map(|last| last.name.of(&self.names));
            let given = edit.name.of(&other.names);
            self.sequence = self.sequence.max(after(last, given).1);
            // There are no targets and no entries.
            let change = edit
                .change
                .map(|new| self.take_id(other, new), |at| at, |at| at);
            let expected = edit.expected.map(|old| self.take_id(other, old), |at| at);
            let name = Span::push(&mut self.names, given);
            let message = self.push_message(other.message(at), true);
            self.edits.push(Queued {
                name,
                message,
                change,
                expected,
                ..edit
            });
        }
        self.creates_logs |= other.creates_logs;
        self.is_plain = false;
        true
    }

    /// Takes over the id that has this number in another queue, with what is known of its object; returns
    /// its number here.
    fn take_id(&mut self, other: &Queue, at: At) -> At {
        let theirs = at.id();
        let ours = self.ids.number(*other.ids.get(theirs));
        if let Some(Known::Is { is_commit, peeled }) = other.known.get(theirs.index()).copied() {
            let peeled = peeled.map(|peeled| self.ids.number(*other.ids.get(peeled)));
            self.know(ours, Known::Is { is_commit, peeled });
        }
        At::of(ours)
    }

    /// Notes what is known of the object that has this number.
    fn know(&mut self, id: Id, known: Known) {
        if self.known.len() <= id.index() {
            self.known.resize(id.index() + 1, Known::Nothing);
        }
        self.known[id.index()] = known;
    }

    /// Returns whether every edit deletes, or none does.
    pub(super) fn is_of_one_kind(&self) -> bool {
        let deletes = |edit: &usize| self.deletes(*edit);
        let first = (0..self.len()).next().is_some_and(|edit| deletes(&edit));
        (0..self.len()).all(|edit| deletes(&edit) == first)
    }

    /// Keeps a message, as it is if it may be so: most edits have that of the one before. Returns its position.
    fn push_message(&mut self, message: &[u8], as_it_is: bool) -> u32 {
        if let Some(&last) = self.messages.last() {
            // Not compared if empty: an empty slice points nowhere, and looking there, even at no
            // byte, takes some processors longer than all the rest.
            let (known, is_empty) = (self.slice(last), message.is_empty());
            if known.len() == message.len() && (is_empty || known == message) {
                return last_of(&self.messages);
            }
        }
        let message = match as_it_is || is_normalized(message) {
            true => Span::push(&mut self.text, message),
            false => Span::push(&mut self.text, &normalize_message(message)),
        };
        self.messages.push(message);
        last_of(&self.messages)
    }

    /// Fails for an id of the other hash.
    fn check_ids(&self, edit: &Edit<'_>) -> Result<()> {
        let oids = match &edit.change {
            Change::Update(oid) => [Some(*oid), None],
            Change::Log(entry) => [Some(entry.old), Some(entry.new)],
            Change::Symbolic(_) | Change::Delete | Change::Verify => [None; 2],
        };
        let is_other = |oid: &&ObjectId| oid.format() != self.format;
        match oids.iter().flatten().find(is_other) {
            Some(oid) => Err(Error::new(
                ErrorKind::Misuse,
                format!("{oid} is not of the object format {}", self.format.name()),
            )),
            None => Ok(()),
        }
    }

    fn check_object(
        &mut self,
        edit: &Edit<'_>,
        oid: ObjectId,
        objects: &dyn Objects,
    ) -> Result<Id> {
        let name = name_from_disk(&edit.name);
        let id = self.ids.number(oid);
        if self.known.len() <= id.index() {
            self.known.resize(id.index() + 1, Known::Nothing);
        }
        if let Known::Nothing = self.known[id.index()] {
            self.known[id.index()] = self.look_up(oid, objects)?;
        }
        let message = match self.known[id.index()] {
            Known::Is { is_commit, .. }
                if is_commit
                    || !(name.is_head() || name.as_bytes().starts_with(b"refs/heads/")) =>
            {
                return Ok(id);
            }
            Known::Is { .. } => {
                format!("trying to write non-commit object {oid} to branch '{name}'")
            }
            Known::Nothing | Known::Missing => {
                format!("trying to write ref '{name}' with nonexistent object {oid}")
            }
        };
        Err(Error::rejected(Rejection {
            index: self.edits.len(),
            name: name.to_owned(),
            reason: Reason::InvalidNewValue,
            message: message.into(),
        }))
    }

    fn look_up(&mut self, oid: ObjectId, objects: &dyn Objects) -> Result<Known> {
        let Some(kind) = objects.kind(oid)? else {
            return Ok(Known::Missing);
        };
        let peeled = match kind {
            ObjectKind::Tag => match objects.peel(oid)? {
                Peeled::To(peeled) => Some(self.ids.number(peeled)),
                Peeled::Itself | Peeled::Nowhere | Peeled::Missing => None,
            },
            ObjectKind::Commit | ObjectKind::Tree | ObjectKind::Blob => None,
        };
        Ok(Known::Is {
            is_commit: kind == ObjectKind::Commit,
            peeled,
        })
    }

    /// Returns the order of the edits by their names.
    pub(super) fn order(&self) -> Order {
        let mut edits: Vec<usize> = (0..self.edits.len()).collect();
        let mut distinct = self.sequence == Sequence::Increasing;
        if self.sequence == Sequence::Unsorted {
            sort_by_name(&mut edits, |edit| self.name(edit).as_bytes());
            distinct = edits.is_sorted_by(|&a, &b| self.name(a) < self.name(b));
        }
        Order { edits, distinct }
    }

    /// Lays the names out in their order, in which they will be read again and again.
    pub(super) fn arrange(&mut self, order: &Order) {
        if order.edits.is_sorted() {
            return;
        }
        let given = std::mem::take(&mut self.names);
        self.names.reserve_exact(given.len());
        for &edit in &order.edits {
            let name = &mut self.edits[edit].name;
            *name = Span::push(&mut self.names, name.of(&given));
        }
    }

    /// Refuses two edits of the same name, entries for the reflog alone aside.
    ///
    /// # Errors
    /// `Rejected` for the first such name.
    pub(super) fn check_unique(&self, order: &Order) -> Result<()> {
        if order.distinct {
            return Ok(());
        }
        let mut previous: Option<RefName<'_>> = None;
        let values = order.edits.iter().filter(|&&edit| !self.is_log_only(edit));
        for &index in values {
            let name = self.name(index);
            if previous == Some(name) {
                return Err(Error::rejected(Rejection {
                    index,
                    name: name.to_owned(),
                    reason: Reason::Generic,
                    message: format!("multiple updates for ref '{name}' not allowed").into(),
                }));
            }
            previous = Some(name);
        }
        Ok(())
    }
}

/// Returns the position of the last thing. Edits have no more of each than there are of them.
fn last_of<T>(list: &[T]) -> u32 {
    let last = u32::try_from(list.len().saturating_sub(1));
    last.expect("each edit has a name, and the names are not longer than that")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::NoObjects;

    #[test]
    fn what_could_not_be_read_back_is_refused() {
        let mut queue = Queue::new(ObjectFormat::Sha1);
        let name = RefName::new("refs/heads/a").unwrap();
        // Safe, and so a name that may be deleted, but nothing to point to.
        let target = RefName::lax("refs/heads/two\nlines").unwrap();
        let error = queue
            .add(&Edit::symbolic(name, target), &NoObjects)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidName);

        let null = ObjectId::null(ObjectFormat::Sha1);
        let one = ObjectId::from_hex(&[b'1'; 40]).unwrap();
        let signature = |email: &str| Signature {
            name: "A".into(),
            email: email.into(),
            time: 1,
            zone: 0,
        };
        let log = |email: &str| Edit::log(name, null, one).signed(signature(email));
        let error = queue.add(&log("a@b>\nforged"), &NoObjects).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misuse);
        assert!(queue.add(&log("a@b"), &NoObjects).is_ok());
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn edits_are_ordered_by_name_as_they_come() {
        for (names, edits, distinct) in [
            (&["a", "a-b", "a/b", "ab"][..], &[0, 1, 2, 3][..], true),
            (&["a/b", "a-b", "ab"], &[1, 0, 2], true),
            (&["b", "b/c", "b"], &[0, 2, 1], false),
            (&["b", "a", "c", "c"], &[1, 0, 2, 3], false),
        ] {
            let mut queue = Queue::new(ObjectFormat::Sha1);
            for name in names {
                let name = format!("refs/heads/{name}");
                let edit = Edit::delete(RefName::new(&name).unwrap());
                queue.add(&edit, &NoObjects).unwrap();
            }
            let order = queue.order();
            assert_eq!(
                (order.edits.as_slice(), order.distinct),
                (edits, distinct),
                "{names:?}"
            );
        }
    }

    #[test]
    fn two_edits_of_one_name_are_refused_and_entries_are_not() {
        let mut queue = Queue::new(ObjectFormat::Sha1);
        let name = RefName::new("refs/heads/a").unwrap();
        let one = ObjectId::from_hex(&[b'1'; 40]).unwrap();
        queue.add(&Edit::log(name, one, one), &NoObjects).unwrap();
        queue.add(&Edit::log(name, one, one), &NoObjects).unwrap();
        queue.add(&Edit::update(name, one), &NoObjects).unwrap();
        let order = queue.order();
        assert_eq!(order.edits, [0, 1, 2]);
        assert!(!order.distinct);
        assert!(queue.check_unique(&order).is_ok());
        queue.add(&Edit::delete(name), &NoObjects).unwrap();
        let error = queue.check_unique(&queue.order()).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("multiple updates for ref 'refs/heads/a'")
        );
    }
}
