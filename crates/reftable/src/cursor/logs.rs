//! The cursor over the reflog entries of one table.

use std::sync::Arc;

use super::{SectionCursor, Source};
use crate::error::{Error, Result};
use crate::record::{LogCodec, LogRecord, make_log_key, split_log_key};
use crate::short::has_prefix;
use crate::table::Table;

/// Moves over the reflog entries of one table: by name, and from new to old under one name.
/// Deletions are included.
///
/// A new cursor stands before the first entry. Any number of seeks may follow in any direction.
/// One inflated block is kept at a time.
///
/// ```
/// # use std::sync::Arc;
/// # use reftable::*;
/// let mut options = WriteOptions::new(ObjectFormat::Sha1);
/// options.max_update_index = 9;
/// let mut writer = Writer::new(Vec::new(), options)?;
/// for update_index in [9, 8, 7] {
///     writer.add_log(LogRecord { name: b"HEAD", update_index, value: LogValue::Deletion })?;
/// }
/// let mut logs = LogCursor::new(Arc::new(Table::open(writer.finish()?.sink)?));
/// logs.seek_at(b"HEAD", 8)?;
/// assert_eq!(logs.next()?.unwrap().update_index, 8);
/// assert_eq!(logs.next()?.unwrap().update_index, 7);
/// # Ok::<(), Error>(())
/// ```
pub struct LogCursor {
    pub(crate) inner: SectionCursor<LogCodec>,
    prefix: Vec<u8>,
    target: Vec<u8>,
}

impl LogCursor {
    /// Creates a cursor that stands before the first entry.
    #[must_use]
    pub fn new(table: Arc<Table>) -> Self {
        let section = table.log_section();
        LogCursor {
            inner: SectionCursor::new(table, section),
            prefix: Vec::new(),
            target: Vec::new(),
        }
    }

    /// Moves before the newest entry of `name`, or, if it has none, of the next name.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if a block on the way is damaged. The
    /// cursor then stands at the end.
    pub fn seek(&mut self, name: &[u8]) -> Result<()> {
        self.seek_at(name, u64::MAX)
    }

    /// Moves before the newest entry of `name` whose update index is at most `update_index`, or,
    /// if there is none, before the newest entry of the next name.
    ///
    /// # Errors
    ///
    /// As for [`seek`](Self::seek).
    pub fn seek_at(&mut self, name: &[u8], update_index: u64) -> Result<()> {
        self.prefix.clear();
        make_log_key(&mut self.target, name, update_index);
        self.inner.seek(&self.target)
    }

    /// Moves before the first entry whose name starts with `prefix`; the cursor ends after the
    /// last such entry, until it is moved by another seek.
    ///
    /// # Errors
    ///
    /// As for [`seek`](Self::seek).
    pub fn seek_prefix(&mut self, prefix: &[u8]) -> Result<()> {
        self.prefix.clear();
        self.prefix.extend_from_slice(prefix);
        self.inner.seek(prefix)
    }

    /// Moves onto the next entry; false at the end.
    ///
    /// # Errors
    ///
    /// As for [`seek`](Self::seek).
    pub fn advance(&mut self) -> Result<bool> {
        if !self.inner.advance()? {
            return Ok(false);
        }
        match split_log_key(self.inner.key()) {
            Some((name, _)) if has_prefix(name, &self.prefix) => return Ok(true),
            Some(_) => self.inner.end(),
            None => {
                let offset = self.inner.block_offset().unwrap_or_default();
                self.inner.fail();
                return Err(Error::corrupt(offset, "a log record has no proper key"));
            }
        }
        Ok(false)
    }

    /// Returns the entry that the cursor is on. Only valid after `advance` gave true.
    #[must_use]
    pub fn record(&self) -> LogRecord<'_> {
        self.inner
            .codec
            .record(self.inner.key(), self.inner.value())
    }

    /// Moves onto the next entry and returns it; `None` at the end.
    ///
    /// # Errors
    ///
    /// As for [`seek`](Self::seek).
    #[expect(
        clippy::should_implement_trait,
        reason = "the record borrows from the cursor"
    )]
    pub fn next(&mut self) -> Result<Option<LogRecord<'_>>> {
        Ok(self.advance()?.then(|| self.record()))
    }
}
