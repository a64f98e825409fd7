//! Lines of the usual form, as nearly all of a large input are: an edit that creates, updates or
//! deletes, a bare name, object ids in full.
//!
//! They are found before anything is known of the session. Whatever is unusual is for
//! [`Parser`](super::command::Parser), which knows all forms and all complaints.

use bstr::ByteSlice;
use refdb::name::{FormatOptions, goes_on_plainly, is_well_formed};
use refdb::{Edit, Expected, ObjectId};

use super::command::Verb;
use super::expected;
use super::fields::Fields;

/// The lines of the usual form in a text.
#[derive(Debug, Default)]
pub(super) struct Lines {
    lines: Vec<Plain>,
    /// The object ids in them, one after the other.
    ids: Vec<ObjectId>,
}

/// A line of the usual form. There are many of them at a time, so that it is small.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plain {
    /// Where the line begins in its text, and where it ends, with its line feed.
    start: u32,
    end: u32,
    name_len: u32,
    /// The position of its first id.
    ids: u32,
    verb: Verb,
    /// Whether an old value is given. A new one is, unless the ref is deleted.
    has_old: bool,
}

/// How long the word is with which a line begins, with the space behind it.
const VERB_LEN: usize = 7;

/// Hardly any line of the usual form is shorter.
const LINE_MIN: usize = 24;

impl Lines {
    /// Finds the lines in a text, in place of those that are known.
    pub(super) fn find(&mut self, text: &[u8], hex_len: usize) {
        self.lines.clear();
        self.ids.clear();
        // Room costs nothing until it is used.
        self.lines.reserve(text.len() / LINE_MIN);
        self.ids.reserve(text.len() / hex_len);
        let mut start = 0;
        // The last name that was found to be well-formed.
        let mut good: &[u8] = b"";
        while let Some(rest) = text.get(start..).filter(|rest| !rest.is_empty()) {
            start = match self.read(text, start, hex_len, &mut good) {
                Some(end) => end,
                None => start + rest.find_byte(b'\n').map_or(rest.len(), |at| at + 1),
            };
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Plain> {
        self.lines.iter()
    }

    /// Reads the line that begins at `start`; returns its end. Of the name of a ref that gets a value
    /// nothing is looked at here, since the transaction does that.
    #[inline]
    fn read<'t>(
        &mut self,
        text: &'t [u8],
        start: usize,
        hex_len: usize,
        good: &mut &'t [u8],
    ) -> Option<usize> {
        let (word, rest) = text.get(start..)?.split_first_chunk::<VERB_LEN>()?;
        let verb = match word {
            b"create " => Verb::Create,
            b"update " => Verb::Update,
            b"delete " => Verb::Delete,
            _ => return None,
        };
        let len = rest.find_byteset(b" \n")?;
        let (name, rest) = rest.split_at(len);
        if matches!(name.first(), None | Some(b'"')) {
            return None;
        }
        let mut fields = Fields::new(rest, false);
        let (first, second) = (fields.plain_oid(hex_len), fields.plain_oid(hex_len));
        // Whatever is no id in full was not read, and stands here.
        let after = fields.rest().strip_prefix(b"\n")?;
        match (verb, first, second) {
            (Verb::Create, Some(new), None) if !new.is_null() => {}
            (Verb::Update, Some(new), _) if !new.is_null() => {}
            (Verb::Delete, old, None) if old.is_none_or(|old| !old.is_null()) => {
                let is_good =
                    goes_on_plainly(good, name) || is_well_formed(name, FormatOptions::ONE_LEVEL);
                if !is_good {
                    return None;
                }
                *good = name;
            }
            _ => return None,
        }
        let end = text.len() - after.len();
        // A text of more bytes than 32 bits can count is read as any other is.
        self.lines.push(Plain {
            start: u32::try_from(start).ok()?,
            end: u32::try_from(end).ok()?,
            name_len: u32::try_from(len).ok()?,
            ids: u32::try_from(self.ids.len()).ok()?,
            verb,
            has_old: if verb == Verb::Delete { first } else { second }.is_some(),
        });
        self.ids.extend(first.into_iter().chain(second));
        Some(end)
    }

    /// Returns the edit that one of the lines asks for; `text` is that in which it was found.
    #[inline]
    pub(super) fn edit<'t>(&self, line: &Plain, text: &'t [u8]) -> Edit<'t> {
        let start = line.start() + VERB_LEN;
        let name = text.get(start..start + line.name_len as usize);
        let name = name.unwrap_or_default().as_bstr();
        let ids = self.ids.get(line.ids as usize..).unwrap_or_default();
        let mut ids = ids.iter().copied();
        let new = if line.verb == Verb::Delete {
            None
        } else {
            ids.next()
        };
        let old = if line.has_old { ids.next() } else { None };
        match new {
            None => Edit::delete(name).expecting(expected(old)),
            Some(new) => Edit::update(name, new).expecting(match line.verb {
                Verb::Create => Expected::Missing,
                _ => expected(old),
            }),
        }
    }
}

impl Plain {
    /// Returns where the line begins in its text.
    #[inline]
    pub(super) fn start(&self) -> usize {
        self.start as usize
    }

    /// Returns where the line ends, with its line feed.
    #[inline]
    pub(super) fn end(&self) -> usize {
        self.end as usize
    }

    #[inline]
    pub(super) fn verb(&self) -> Verb {
        self.verb
    }
}
