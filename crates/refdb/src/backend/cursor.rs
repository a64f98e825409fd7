//! Cursors over refs: one interface on every layer.
//!
//! Making a cursor and moving it are separate things: a fresh cursor stands before the first ref,
//! and any number of seeks in any direction may follow. A record is borrowed from the cursor.

use crate::error::Result;
use crate::name::RefName;
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
