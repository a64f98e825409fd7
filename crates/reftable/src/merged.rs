//! Several tables read as one: per key the record of the newest table (`merge.rs` says how).

use std::sync::Arc;

use crate::cursor::{LogCursor, RefCursor, Source};
use crate::error::{Error, Result};
use crate::merge::Merge;
use crate::record::{LogRecord, RefRecord, make_log_key, split_log_key};
use crate::short::has_prefix;
use crate::table::Table;

/// Moves over the refs of several tables in the order of their names: per name the record of the
/// newest table that has one.
///
/// Deletions are records as well, unless [`live_only`](Self::live_only) leaves them out. A new
/// cursor stands before the first ref; any number of seeks may follow in any direction, and a seek
/// forwards does not touch tables that are already past the target.
///
/// ```
/// # use std::sync::Arc;
/// # use reftable::*;
/// # fn table(update_index: u64, value: RefValue<'_>) -> Result<Arc<Table>> {
/// #     let mut options = WriteOptions::new(ObjectFormat::Sha1);
/// #     (options.min_update_index, options.max_update_index) = (update_index, update_index);
/// #     let mut writer = Writer::new(Vec::new(), options)?;
/// #     writer.add_ref(RefRecord { name: b"refs/heads/main", update_index, value })?;
/// #     Ok(Arc::new(Table::open(writer.finish()?.sink)?))
/// # }
/// let tables = vec![table(1, RefValue::Direct(&[7; 20]))?, table(2, RefValue::Deletion)?];
/// let mut refs = MergedRefs::new(tables.clone());
/// assert_eq!(refs.next()?.unwrap().value, RefValue::Deletion);
/// assert_eq!(refs.next()?, None);
/// assert_eq!(MergedRefs::new(tables).live_only().next()?, None);
/// # Ok::<(), Error>(())
/// ```
pub struct MergedRefs {
    merge: Merge<RefCursor>,
    live_only: bool,
    prefix: Vec<u8>,
}

impl Source for RefCursor {
    fn seek(&mut self, target: &[u8]) -> Result<()> {
        self.inner.seek(target)
    }

    #[inline]
    fn advance(&mut self) -> Result<bool> {
        self.inner.advance()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.inner.key()
    }
}

impl MergedRefs {
    /// Creates a cursor over these tables, oldest first, that stands before the first ref.
    #[must_use]
    pub fn new(tables: Vec<Arc<Table>>) -> Self {
        let merge = Merge::new(tables.into_iter().map(RefCursor::new).collect());
        MergedRefs {
            merge,
            live_only: false,
            prefix: Vec::new(),
        }
    }

    /// Leaves out deleted refs.
    #[must_use]
    pub fn live_only(mut self) -> Self {
        self.live_only = true;
        self
    }

    /// Moves before the first ref whose name is not less than `name`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if a block on the way is damaged. The
    /// cursor then stands at the end.
    pub fn seek(&mut self, name: &[u8]) -> Result<()> {
        self.prefix.clear();
        self.merge.seek(name)
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
        self.merge.seek(prefix)
    }

    /// Moves onto the next ref; false at the end.
    ///
    /// # Errors
    ///
    /// As for [`seek`](Self::seek).
    pub fn advance(&mut self) -> Result<bool> {
        while self.merge.advance()? {
            let Some(top) = self.merge.top() else { break };
            if !has_prefix(top.inner.key(), &self.prefix) {
                self.merge.stop_behind(&self.prefix);
                return Ok(false);
            }
            if !(self.live_only && top.inner.codec.is_deletion()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether the cursor is on a deletion.
    #[must_use]
    pub fn is_deletion(&self) -> bool {
        let top = self.merge.top();
        top.is_some_and(|top| top.inner.codec.is_deletion())
    }

    /// Returns the name of the ref that the cursor is on; empty if it is on none.
    #[must_use]
    #[inline]
    pub fn name(&self) -> &[u8] {
        self.merge.top().map_or(&[], Source::key)
    }

    /// Asks whether the name is good, whatever that is, and remembers that: `look` is given the name,
    /// and how many bytes at its start are those of the last name of its table that was found good. A
    /// name shares most of its bytes with the one before it, and need not be looked at as a whole.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use reftable::*;
    /// # let mut writer = Writer::new(Vec::new(), WriteOptions::new(ObjectFormat::Sha1))?;
    /// # for name in [&b"refs/heads/a"[..], b"refs/heads/b"] {
    /// #     let value = RefValue::Direct(&[7; 20]);
    /// #     writer.add_ref(RefRecord { name, update_index: 1, value })?;
    /// # }
    /// # let mut refs = MergedRefs::new(vec![Arc::new(Table::open(writer.finish()?.sink)?)]);
    /// while refs.advance()? {
    ///     assert!(refs.is_good(|name, seen| !name[seen..].contains(&b' ')));
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn is_good(&mut self, look: impl FnOnce(&[u8], usize) -> bool) -> bool {
        let top = self.merge.top_mut();
        top.is_some_and(|top| top.inner.is_good(look))
    }

    /// Returns the ref that the cursor is on. Only valid after `advance` gave true.
    ///
    /// # Panics
    ///
    /// If the cursor is on no ref.
    #[must_use]
    #[inline]
    pub fn record(&self) -> RefRecord<'_> {
        self.merge
            .top()
            .expect("the last advance gave true")
            .record()
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
}

/// Moves over the reflog entries of several tables: by name, and from new to old under one name.
/// Of entries with one name and update index the newest table's counts.
///
/// Deletions are records as well, unless [`live_only`](Self::live_only) leaves them out.
pub struct MergedLogs {
    merge: Merge<LogCursor>,
    live_only: bool,
    prefix: Vec<u8>,
    target: Vec<u8>,
}

impl Source for LogCursor {
    fn seek(&mut self, target: &[u8]) -> Result<()> {
        self.inner.seek(target)
    }

    fn advance(&mut self) -> Result<bool> {
        LogCursor::advance(self)
    }

    fn key(&self) -> &[u8] {
        self.inner.key()
    }
}

impl MergedLogs {
    /// Creates a cursor over these tables, oldest first, that stands before the first entry.
    #[must_use]
    pub fn new(tables: Vec<Arc<Table>>) -> Self {
        let merge = Merge::new(tables.into_iter().map(LogCursor::new).collect());
        MergedLogs {
            merge,
            live_only: false,
            prefix: Vec::new(),
            target: Vec::new(),
        }
    }

    /// Leaves out deleted entries.
    #[must_use]
    pub fn live_only(mut self) -> Self {
        self.live_only = true;
        self
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
        self.merge.seek(&self.target)
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
        self.merge.seek(prefix)
    }

    /// Moves onto the next entry; false at the end.
    ///
    /// # Errors
    ///
    /// As for [`seek`](Self::seek).
    pub fn advance(&mut self) -> Result<bool> {
        while self.merge.advance()? {
            let Some(top) = self.merge.top() else { break };
            let name = split_log_key(top.inner.key()).map_or(&[][..], |(name, _)| name);
            if !has_prefix(name, &self.prefix) {
                self.merge.stop_behind(&self.prefix);
                return Ok(false);
            }
            if !(self.live_only && top.inner.codec.is_deletion()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the entry that the cursor is on. Only valid after `advance` gave true.
    ///
    /// # Panics
    ///
    /// If the cursor is on no entry.
    #[must_use]
    pub fn record(&self) -> LogRecord<'_> {
        self.merge
            .top()
            .expect("the last advance gave true")
            .record()
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

/// Looks one ref up: calls `f` with the record of the newest table that has one, be it a deletion,
/// and returns what `f` made of it. `None` if no table has the name.
///
/// # Errors
///
/// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if a block on the way is damaged.
///
/// ```
/// # use std::sync::Arc;
/// # use reftable::*;
/// # let mut writer = Writer::new(Vec::new(), WriteOptions::new(ObjectFormat::Sha1))?;
/// # let value = RefValue::Symref(b"refs/heads/main");
/// # writer.add_ref(RefRecord { name: b"HEAD", update_index: 1, value })?;
/// let tables = [Arc::new(Table::open(writer.finish()?.sink)?)];
/// assert_eq!(find_ref(&tables, b"HEAD", |record| record.update_index)?, Some(1));
/// assert_eq!(find_ref(&tables, b"refs/heads/main", |_| ())?, None);
/// # Ok::<(), Error>(())
/// ```
pub fn find_ref<R>(
    tables: &[Arc<Table>],
    name: &[u8],
    f: impl FnOnce(RefRecord<'_>) -> R,
) -> Result<Option<R>> {
    for table in tables.iter().rev() {
        let mut cursor = RefCursor::new(Arc::clone(table));
        cursor.seek(name)?;
        if let Some(record) = cursor.next()?
            && record.name == name
        {
            return Ok(Some(f(record)));
        }
    }
    Ok(None)
}

/// Returns the hash function that all tables use, if they agree on one.
pub(crate) fn common_format(tables: &[Arc<Table>]) -> Result<Option<crate::ObjectFormat>> {
    let mut hashes = tables.iter().map(|table| table.object_format());
    let Some(first) = hashes.next() else {
        return Ok(None);
    };
    if hashes.any(|object_format| object_format != first) {
        return Err(Error::misuse(
            "the tables have different object_format functions",
        ));
    }
    Ok(Some(first))
}
