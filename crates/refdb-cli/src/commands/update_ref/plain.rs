//! Lines of the usual form, as nearly all of a large input are: an edit that creates, updates or
//! deletes, a bare name, object ids in full.
//!
//! They are found before anything is known of the session. Whatever is unusual is for
//! [`Parser`](super::command::Parser), which knows all forms and all complaints.

use bstr::ByteSlice;
use refdb::name::{FormatOptions, goes_on_plainly, is_well_formed};
use refdb::{Edit, Expected, ObjectId, RefName};

use super::command::Verb;
use super::expected;
use super::fields::Fields;

/// A line of the usual form.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plain {
    pub(super) verb: Verb,
    /// Where the line begins in its text.
    pub(super) start: usize,
    /// Where the name begins, and where it ends.
    name: (usize, usize),
    /// Where the line ends, with its line feed.
    pub(super) end: usize,
    new: Option<ObjectId>,
    old: Option<ObjectId>,
}

/// Finds the lines of the usual form.
pub(super) fn find_lines(text: &[u8], hex_len: usize, lines: &mut Vec<Plain>) {
    let mut start = 0;
    // The last name that was found to be well-formed.
    let mut good: &[u8] = b"";
    while let Some(rest) = text.get(start..).filter(|rest| !rest.is_empty()) {
        start = match Plain::read(text, start, hex_len, &mut good) {
            Some(line) => {
                lines.push(line);
                line.end
            }
            None => start + rest.find_byte(b'\n').map_or(rest.len(), |at| at + 1),
        };
    }
}

impl Plain {
    /// Reads the line that begins at `start`. Of the name of a ref that gets a value nothing is
    /// looked at here, since the transaction does that.
    #[inline]
    fn read<'t>(
        text: &'t [u8],
        start: usize,
        hex_len: usize,
        good: &mut &'t [u8],
    ) -> Option<Plain> {
        let (word, rest) = text.get(start..)?.split_first_chunk()?;
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
        let (new, old) = match (verb, first, second) {
            (Verb::Create, Some(new), None) if !new.is_null() => (first, None),
            (Verb::Update, Some(new), old) if !new.is_null() => (first, old),
            (Verb::Delete, old, None) if old.is_none_or(|old| !old.is_null()) => {
                let is_good =
                    goes_on_plainly(good, name) || is_well_formed(name, FormatOptions::ONE_LEVEL);
                if !is_good {
                    return None;
                }
                *good = name;
                (None, old)
            }
            _ => return None,
        };
        let name_start = start + word.len();
        Some(Plain {
            verb,
            start,
            name: (name_start, name_start + len),
            end: text.len() - after.len(),
            new,
            old,
        })
    }

    /// Returns the edit that the line asks for; `text` is that in which it was found.
    #[inline]
    pub(super) fn edit<'t>(&self, text: &'t [u8]) -> Edit<'t> {
        let name = text.get(self.name.0..self.name.1).unwrap_or_default();
        let name = RefName::from_disk(name);
        match self.new {
            None => Edit::delete(name).expecting(expected(self.old)),
            Some(new) => Edit::update(name, new).expecting(match self.verb {
                Verb::Create => Expected::Missing,
                _ => expected(self.old),
            }),
        }
    }
}
