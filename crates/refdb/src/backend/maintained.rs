//! What maintenance asks of a store: copying it whole, telling what changed in it, keeping every other writer
//! out of it.

use std::ops::Range;
use std::path::PathBuf;

use refdb_names::{RefName, RefNameBuf};

use super::bulk::{Bulk, BulkOptions, Frozen, LogMark, Mark, NewLog};
use crate::error::Result;

/// A store of refs that can be maintained.
pub trait Maintained {
    /// Begins to write a whole new store into the directories of this one, which are empty.
    fn bulk(&self, options: BulkOptions) -> Result<Box<dyn Bulk>>;

    /// Replaces whole reflogs, sorted by name, in a store that nobody else writes to, or adds new
    /// ones beside other writers.
    fn replace_logs(&self, logs: &[NewLog]) -> Result<()>;

    /// Returns every reflog of the common directory, sorted, with what tells its present state from
    /// others.
    fn log_marks(&self) -> Result<Vec<LogMark>>;

    /// Returns what tells this moment from later ones.
    fn mark(&self) -> Result<Mark>;

    /// Returns the lines of reflogs that were read and are no entries: the file, and the numbers of
    /// lines that follow each other, from 1 on.
    fn lost_log_lines(&self) -> Result<Vec<(PathBuf, Range<u64>)>> {
        Ok(Vec::new())
    }

    /// Returns the file in which a ref stands, or its reflog, unless that has the name of the ref.
    fn file_of(&self, name: RefName<'_>, is_log: bool) -> Result<Option<PathBuf>> {
        let _ = (name, is_log);
        Ok(None)
    }

    /// Returns up to so many names of refs that can be read and that no listing shows: those of no directory that
    /// are no root refs, as far as the format can tell them from other files.
    fn unlisted(&self, most: usize) -> Result<Vec<RefNameBuf>> {
        let _ = most;
        Ok(Vec::new())
    }

    /// Returns whether a ref from packed-refs without a peeled value is known to be no tag.
    fn is_fully_peeled(&self) -> Result<bool>;

    /// Returns about how many bytes are kept for all refs, where that is cheap to tell.
    fn refs_len(&self) -> Result<u64>;

    /// Takes every lock of the common directory, so that nobody else writes before these locks are
    /// given back. Readers go on.
    ///
    /// # Errors
    /// `Locked` when another process keeps a lock for too long.
    fn freeze(&self) -> Result<Box<dyn Frozen>>;
}
