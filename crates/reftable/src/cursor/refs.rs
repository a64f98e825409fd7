//! The cursor over the refs of one table.

use std::sync::Arc;

use super::{SectionCursor, Source};
use crate::error::Result;
use crate::record::{RefCodec, RefRecord};
use crate::short::has_prefix;
use crate::table::Table;

/// Moves over the refs of one table in the order of their names, deletions included.
///
/// A new cursor stands before the first ref. Any number of seeks may follow in any direction, also
/// from the end; a seek to a name nearby costs less than one far away.
///
/// ```
/// # use std::sync::Arc;
/// # use reftable::*;
/// # let mut writer = Writer::new(Vec::new(), WriteOptions::new(ObjectFormat::Sha1))?;
/// # for name in [&b"refs/heads/a"[..], b"refs/heads/b", b"refs/tags/a"] {
/// #     let value = RefValue::Direct(&[7; 20]);
/// #     writer.add_ref(RefRecord { name, update_index: 1, value })?;
/// # }
/// # let table = Arc::new(Table::open(writer.finish()?.sink)?);
/// let mut refs = RefCursor::new(table);
/// refs.seek_prefix(b"refs/heads/")?;
/// let mut count = 0;
/// while refs.advance()? {
///     assert!(refs.record().name.starts_with(b"refs/heads/"));
///     count += 1;
/// }
/// assert_eq!(count, 2);
/// # Ok::<(), Error>(())
/// ```
pub struct RefCursor {
    pub(crate) inner: SectionCursor<RefCodec>,
    prefix: Vec<u8>,
}

impl RefCursor {
    /// Creates a cursor that stands before the first ref.
    #[must_use]
    pub fn new(table: Arc<Table>) -> Self {
        let section = table.ref_section();
        RefCursor {
            inner: SectionCursor::new(table, section),
            prefix: Vec::new(),
        }
    }

    /// Moves before the first ref whose name is not less than `name`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if a block on the way is damaged. The
    /// cursor then stands at the end.
    pub fn seek(&mut self, name: &[u8]) -> Result<()> {
        self.prefix.clear();
        self.inner.seek(name)
    }

    /// Moves before the first ref whose name starts with `prefix`; the cursor ends after the last
    /// such ref, until it is moved by another seek.
    ///
    /// # Errors
    ///
    /// As for [`seek`](Self::seek).
    pub fn seek_prefix(&mut self, prefix: &[u8]) -> Result<()> {
        self.prefix.clear();
        self.prefix.extend_from_slice(prefix);
        self.inner.seek(prefix)
    }

    /// Moves onto the next ref; false at the end.
    ///
    /// # Errors
    ///
    /// As for [`seek`](Self::seek).
    #[inline]
    pub fn advance(&mut self) -> Result<bool> {
        if !self.inner.advance()? {
            return Ok(false);
        }
        if has_prefix(self.inner.key(), &self.prefix) {
            return Ok(true);
        }
        self.inner.end();
        Ok(false)
    }

    /// Returns the ref that the cursor is on. Only valid after `advance` gave true.
    #[inline]
    #[must_use]
    pub fn record(&self) -> RefRecord<'_> {
        self.inner
            .codec
            .record(self.inner.key(), self.inner.value())
    }

    /// Moves onto the next ref and returns it; `None` at the end.
    ///
    /// # Errors
    ///
    /// As for [`seek`](Self::seek).
    #[expect(
        clippy::should_implement_trait,
        reason = "the record borrows from the cursor"
    )]
    pub fn next(&mut self) -> Result<Option<RefRecord<'_>>> {
        Ok(self.advance()?.then(|| self.record()))
    }

    /// Returns the first name of the block that begins `bytes` or more behind the one where the cursor
    /// is; `None` if none does, or the cursor is in no block. Does not move the cursor: this is how
    /// readers find where to split a table between them.
    ///
    /// # Errors
    ///
    /// As for [`seek`](Self::seek).
    pub fn name_ahead(&self, bytes: u64) -> Result<Option<Vec<u8>>> {
        self.inner.key_ahead(bytes)
    }
}
