//! Merges tables into one, as a stream.

use std::io::Write;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::merged::{MergedLogs, MergedRefs, common_format};
use crate::table::Table;
use crate::writer::{Finished, WriteOptions, Writer};

/// Writes one table that says what these tables, oldest first, say together.
///
/// Deletions are kept, since older tables may have what they hide; set `drop_tombstones` if there
/// are no older tables. Update indices and hash are taken from the tables, the rest from
/// `options`. The result may be empty, see [`Stats::is_empty`](crate::Stats::is_empty).
///
/// # Errors
///
/// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if a table is damaged,
/// [`ErrorKind::EntryTooLarge`](crate::ErrorKind::EntryTooLarge) if a record does not fit the
/// block size, [`ErrorKind::Misuse`](crate::ErrorKind::Misuse) if the tables do not belong
/// together or there are none, [`ErrorKind::Io`](crate::ErrorKind::Io) if the sink fails.
///
/// ```
/// # use std::sync::Arc;
/// # use reftable::*;
/// # let options = WriteOptions::new(ObjectFormat::Sha1);
/// # let mut writer = Writer::new(Vec::new(), options.clone())?;
/// # writer.add_ref(RefRecord { name: b"HEAD", update_index: 1, value: RefValue::Deletion })?;
/// # let tables = [Arc::new(Table::open(writer.finish()?.sink)?)];
/// let finished = compact(&tables, true, &options, Vec::new())?;
/// assert!(finished.stats.is_empty());
/// # Ok::<(), Error>(())
/// ```
pub fn compact<W: Write>(
    tables: &[Arc<Table>],
    drop_tombstones: bool,
    options: &WriteOptions,
    sink: W,
) -> Result<Finished<W>> {
    let Some(object_format) = common_format(tables)? else {
        return Err(Error::misuse("there are no tables to compact"));
    };
    let mut options = options.clone();
    options.object_format = object_format;
    let indices = || tables.iter().map(|table| table.min_update_index());
    options.min_update_index = indices().min().unwrap_or_default();
    let indices = || tables.iter().map(|table| table.max_update_index());
    options.max_update_index = indices().max().unwrap_or_default();

    for table in tables {
        table.check_tail()?;
    }
    let mut refs = MergedRefs::new(tables.to_vec());
    let mut logs = MergedLogs::new(tables.to_vec());
    if drop_tombstones {
        refs = refs.live_only();
        logs = logs.live_only();
    }
    let mut writer = Writer::new(sink, options)?;
    while refs.advance()? {
        writer.add_ref(refs.record())?;
    }
    while logs.advance()? {
        writer.add_log(logs.record())?;
    }
    writer.finish()
}
