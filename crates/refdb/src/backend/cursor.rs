//! Cursors over refs: one interface on every layer.
//!
//! Making a cursor and moving it are separate things: a fresh cursor stands before the first ref,
//! and any number of seeks in any direction may follow. A record is borrowed from the cursor.

use crate::backend::Ref;
use crate::error::Result;
use crate::name::{RefName, RefNameBuf, is_per_worktree};
use crate::oid::ObjectId;
use crate::target::TargetRef;

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
    /// Whether the name is not well-formed.
    pub bad_name: bool,
}

/// A cursor over refs in byte order of their names.
pub(crate) trait Cursor: Send {
    /// Stands before the first ref whose name is `name` or greater and starts with `prefix`; the
    /// cursor ends behind the last name that starts with `prefix`. An empty prefix limits nothing.
    fn seek(&mut self, name: &[u8], prefix: &[u8]) -> Result<()>;

    /// Moves to the next ref; returns whether there is one.
    fn advance(&mut self) -> Result<bool>;

    /// Returns the ref on which the cursor stands.
    ///
    /// Only to be called after [`Cursor::advance`] returned `true`.
    fn record(&self) -> RefRecord<'_>;
}

/// Refs that were gathered beforehand.
pub(crate) struct ListCursor {
    refs: Vec<(RefNameBuf, Ref)>,
    /// The position of the next ref.
    next: usize,
    prefix: Vec<u8>,
}

impl ListCursor {
    /// Takes refs in name order.
    pub(crate) fn new(refs: Vec<(RefNameBuf, Ref)>) -> Self {
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
        let found = next.is_some_and(|(name, _)| name.as_bytes().starts_with(&self.prefix));
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
            bad_name: !name.as_name().is_well_formed(),
        }
    }
}

/// What a linked worktree sees: its own refs, and the shared ones of the common directory, whose
/// per-worktree refs are the main worktree's and hidden.
pub(crate) struct WorktreeCursor {
    own: Side,
    shared: Side,
    /// Which side the present record is from.
    on_own: bool,
}

/// One of two merged cursors, one record ahead.
struct Side {
    cursor: Box<dyn Cursor>,
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

impl Side {
    fn new(cursor: Box<dyn Cursor>) -> Self {
        Side {
            cursor,
            state: SideState::Behind,
        }
    }

    fn seek(&mut self, name: &[u8], prefix: &[u8]) -> Result<()> {
        self.state = SideState::Behind;
        self.cursor.seek(name, prefix)
    }

    /// Fetches the next record that `is_visible`, unless it is there already.
    fn fetch(&mut self, is_visible: impl Fn(&[u8]) -> bool) -> Result<()> {
        while self.state == SideState::Behind {
            if !self.cursor.advance()? {
                self.state = SideState::Ended;
            } else if is_visible(self.cursor.record().name.as_bytes()) {
                self.state = SideState::Ahead;
            }
        }
        Ok(())
    }

    fn name(&self) -> Option<RefName<'_>> {
        (self.state == SideState::Ahead).then(|| self.cursor.record().name)
    }
}

impl WorktreeCursor {
    /// Merges a cursor over the worktree's own refs with one over the common directory.
    pub(crate) fn new(own: Box<dyn Cursor>, shared: Box<dyn Cursor>) -> Self {
        WorktreeCursor {
            own: Side::new(own),
            shared: Side::new(shared),
            on_own: false,
        }
    }
}

impl Cursor for WorktreeCursor {
    fn seek(&mut self, name: &[u8], prefix: &[u8]) -> Result<()> {
        self.own.seek(name, prefix)?;
        self.shared.seek(name, prefix)
    }

    fn advance(&mut self) -> Result<bool> {
        self.own.fetch(|_| true)?;
        self.shared.fetch(|name| !is_per_worktree(name))?;
        let (own, shared) = (self.own.name(), self.shared.name());
        let (take_own, take_shared) = match (own, shared) {
            (None, None) => return Ok(false),
            (Some(_), None) => (true, false),
            (None, Some(_)) => (false, true),
            (Some(own), Some(shared)) => (own <= shared, shared <= own),
        };
        self.on_own = take_own;
        if take_own {
            self.own.state = SideState::Behind;
        }
        if take_shared {
            self.shared.state = SideState::Behind;
        }
        Ok(true)
    }

    fn record(&self) -> RefRecord<'_> {
        if self.on_own {
            self.own.cursor.record()
        } else {
            self.shared.cursor.record()
        }
    }
}
