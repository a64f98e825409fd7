//! Cursors over refs: one interface on every layer.
//!
//! Making a cursor and moving it are separate things: a fresh cursor stands before the first ref,
//! and any number of seeks in any direction may follow. A record is borrowed from the cursor.

use refdb_names::{ObjectId, RefName, RefNameBuf, TargetRef};
use reftable::short::{compare, has_prefix};

use crate::backend::Value;
use crate::error::Result;

/// One ref, borrowed from the cursor that stands on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefRecord<'a> {
    /// The full name.
    pub name: RefName<'a>,
    /// The value; the null id for a broken ref.
    pub target: TargetRef<'a>,
    /// What the value peels to, when that is stored.
    pub peeled: Option<ObjectId>,
    /// Whether the record comes from packed-refs.
    pub packed: bool,
    /// Whether the value could not be read, or is the null id.
    pub broken: bool,
    /// What is known of the name.
    pub(crate) look: Look,
}

/// Whether somebody has looked at a name and found it well-formed. That is no part of the ref: any two
/// are equal.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Look {
    /// Somebody still has to look.
    None,
    WellFormed,
}

impl PartialEq for Look {
    fn eq(&self, _other: &Look) -> bool {
        true
    }
}

impl Eq for Look {}

impl Look {
    /// Returns what is known after a look.
    #[inline]
    pub(crate) fn at(is_well_formed: bool) -> Self {
        match is_well_formed {
            true => Look::WellFormed,
            false => Look::None,
        }
    }
}

impl RefRecord<'_> {
    /// Returns whether the name is not well-formed.
    #[must_use]
    pub fn has_bad_name(&self) -> bool {
        matches!(self.look, Look::None) && !self.name.is_well_formed()
    }
}

/// What a cursor finds in the place of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It stands on the ref of that name, or on the first one behind it.
    Ref,
    /// There is no ref of that name, and none behind it.
    End,
    /// There is no ref of that name; what comes behind it was not looked for.
    Nothing,
}

/// What is called for a ref; gives whether to go on.
pub(crate) type Each<'f> = dyn FnMut(&RefRecord<'_>) -> bool + 'f;

/// A cursor over refs in byte order of their names.
pub(crate) trait Cursor: Send {
    /// Stands before the first ref whose name is `name` or greater and starts with `prefix`; the
    /// cursor ends behind the last name that starts with `prefix`. An empty prefix limits nothing.
    fn seek(&mut self, name: &[u8], prefix: &[u8]) -> Result<()>;

    /// As [`Cursor::seek`], for somebody who wants no ref from `end` on: where the next one lies behind it, a
    /// cursor that reads much more than it shows may end. Else each of many parts would be read to the end
    /// of all.
    fn seek_part(&mut self, name: &[u8], prefix: &[u8], _end: Option<&[u8]>) -> Result<()> {
        self.seek(name, prefix)
    }

    /// Moves to the next ref; returns whether there is one.
    fn advance(&mut self) -> Result<bool>;

    /// Returns the ref on which the cursor stands.
    ///
    /// Only to be called after [`Cursor::advance`] returned `true`.
    fn record(&self) -> RefRecord<'_>;

    /// Returns the name of that ref, without a look at the rest of it.
    fn name(&self) -> RefName<'_> {
        self.record().name
    }

    /// Moves to the place of a name. A cursor that would have to read through what is deleted to find
    /// the next ref may say that there is nothing, and has to be moved by a seek then.
    fn look_at(&mut self, name: &[u8]) -> Result<Found> {
        self.seek(name, b"")?;
        Ok(match self.advance()? {
            true => Found::Ref,
            false => Found::End,
        })
    }

    /// Calls `each` for the refs from here on whose names are less than `end`, until it gives `false`;
    /// returns whether it did. Cheaper than three calls for each ref.
    fn run(&mut self, end: Option<&[u8]>, each: &mut Each<'_>) -> Result<bool> {
        while self.advance()? {
            if end.is_some_and(|end| compare(self.name().as_bytes(), end).is_ge()) {
                break;
            }
            if !each(&self.record()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Makes another cursor over the same moment of the same refs; `None` if that would be no gain.
    fn another(&self) -> Option<Box<dyn Cursor>> {
        None
    }

    /// Returns whether the cursor shows few of the refs that it reads.
    fn is_sparse(&self) -> bool {
        false
    }

    /// Returns a name behind `name`, at or before which end the next thousand refs or so of each place
    /// that the cursor reads; `None` if there are not that many. It is the same for every cursor over
    /// the same moment, and does not move the cursor.
    fn name_ahead(&mut self, _name: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }
}

/// Returns the lesser of two names, if there are two.
pub(crate) fn least(one: Option<Vec<u8>>, other: Option<Vec<u8>>) -> Option<Vec<u8>> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Refs that were gathered beforehand.
pub(crate) struct ListCursor {
    refs: Vec<(RefNameBuf, Value)>,
    /// The position of the next ref.
    next: usize,
    prefix: Vec<u8>,
}

impl ListCursor {
    /// Takes refs in name order.
    pub(crate) fn new(refs: Vec<(RefNameBuf, Value)>) -> Self {
        ListCursor {
            refs,
            next: 0,
            prefix: Vec::new(),
        }
    }
}

impl Cursor for ListCursor {
    fn seek(&mut self, name: &[u8], prefix: &[u8]) -> Result<()> {
        let start = name.max(prefix);
        self.next = self
            .refs
            .partition_point(|(name, _)| name.as_bytes() < start);
        self.prefix = prefix.to_vec();
        Ok(())
    }

    fn advance(&mut self) -> Result<bool> {
        let next = self.refs.get(self.next);
        let found = next.is_some_and(|(name, _)| has_prefix(name.as_bytes(), &self.prefix));
        self.next += usize::from(found);
        Ok(found)
    }

    fn record(&self) -> RefRecord<'_> {
        let (name, found) = &self.refs[self.next - 1];
        RefRecord {
            name: name.as_name(),
            target: found.target.as_ref(),
            peeled: found.peeled,
            packed: found.packed,
            broken: found.target.as_ref().oid().is_some_and(|oid| oid.is_null()),
            look: Look::None,
        }
    }
}

/// Refs over others: where both have a name, that of the upper ones counts. A linked worktree sees
/// its own refs over the shared ones, whose per-worktree refs are the main worktree's and hidden.
pub(crate) struct OverCursor<'c> {
    upper: Side<'c>,
    lower: Side<'c>,
    /// Whether a name of the lower refs is not to be seen.
    hidden: fn(&[u8]) -> bool,
    /// Which side the present record is from.
    on_upper: bool,
}

/// One of two merged cursors, one record ahead.
struct Side<'c> {
    cursor: Box<dyn Cursor + 'c>,
    state: SideState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SideState {
    /// The next record is still to be fetched.
    Behind,
    /// The next record is the cursor's.
    Ahead,
    Ended,
}

impl<'c> Side<'c> {
    fn new(cursor: Box<dyn Cursor + 'c>) -> Self {
        Side {
            cursor,
            state: SideState::Behind,
        }
    }

    fn seek(&mut self, name: &[u8], prefix: &[u8], end: Option<&[u8]>) -> Result<()> {
        self.state = SideState::Behind;
        self.cursor.seek_part(name, prefix, end)
    }

    /// Fetches the next record that `is_visible`, unless it is there already.
    fn fetch(&mut self, is_visible: impl Fn(&[u8]) -> bool) -> Result<()> {
        while self.state == SideState::Behind {
            if !self.cursor.advance()? {
                self.state = SideState::Ended;
            } else if is_visible(self.cursor.name().as_bytes()) {
                self.state = SideState::Ahead;
            }
        }
        Ok(())
    }

    fn next_name(&self) -> Option<RefName<'_>> {
        (self.state == SideState::Ahead).then(|| self.cursor.name())
    }
}

impl<'c> OverCursor<'c> {
    /// Lays `upper` over those of `lower` that are not `hidden`.
    pub(crate) fn new(
        upper: Box<dyn Cursor + 'c>,
        lower: Box<dyn Cursor + 'c>,
        hidden: fn(&[u8]) -> bool,
    ) -> Self {
        OverCursor {
            upper: Side::new(upper),
            lower: Side::new(lower),
            hidden,
            on_upper: false,
        }
    }
}

impl Cursor for OverCursor<'_> {
    fn seek(&mut self, name: &[u8], prefix: &[u8]) -> Result<()> {
        self.seek_part(name, prefix, None)
    }

    fn seek_part(&mut self, name: &[u8], prefix: &[u8], end: Option<&[u8]>) -> Result<()> {
        self.upper.seek(name, prefix, end)?;
        self.lower.seek(name, prefix, end)
    }

    fn advance(&mut self) -> Result<bool> {
        let hidden = self.hidden;
        self.upper.fetch(|_| true)?;
        self.lower.fetch(|name| !hidden(name))?;
        let (upper, lower) = (self.upper.next_name(), self.lower.next_name());
        let (take_upper, take_lower) = match (upper, lower) {
            (None, None) => return Ok(false),
            (Some(_), None) => (true, false),
            (None, Some(_)) => (false, true),
            (Some(upper), Some(lower)) => (upper <= lower, lower <= upper),
        };
        self.on_upper = take_upper;
        if take_upper {
            self.upper.state = SideState::Behind;
        }
        if take_lower {
            self.lower.state = SideState::Behind;
        }
        Ok(true)
    }

    fn record(&self) -> RefRecord<'_> {
        if self.on_upper {
            self.upper.cursor.record()
        } else {
            self.lower.cursor.record()
        }
    }

    fn name(&self) -> RefName<'_> {
        if self.on_upper {
            self.upper.cursor.name()
        } else {
            self.lower.cursor.name()
        }
    }

    fn another(&self) -> Option<Box<dyn Cursor>> {
        let (upper, lower) = (self.upper.cursor.another()?, self.lower.cursor.another()?);
        Some(Box::new(OverCursor::new(upper, lower, self.hidden)))
    }

    fn name_ahead(&mut self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let upper = self.upper.cursor.name_ahead(name)?;
        Ok(least(upper, self.lower.cursor.name_ahead(name)?))
    }
}
