//! What a writer has to see of a migration by another process.

use std::path::Path;

use super::RefFormat;
use crate::error::{Error, Result};
use crate::system::{FileKind, System, is_absent};

/// The folder in which a migration works.
pub(crate) const MIGRATION: &str = "refdb-migration";

/// What is in that folder from before the first lock of the old store is taken.
pub(crate) const MIGRATION_JOURNAL: &str = "journal";

/// No journal of a migration is longer.
const JOURNAL_MAX: usize = 256;

/// Returns whether a migration of a process that lives keeps writers out of the stores of a repository that
/// are in this format, or is about to. Whoever asks has the lock of a name already: either he sees it, or
/// it sees his lock. Where locks of other machines are not seen, on network file systems, there is none.
///
/// # Errors
/// `Io` when that cannot be told.
pub(crate) fn is_migrating(
    system: &dyn System,
    common_dir: &Path,
    from: RefFormat,
) -> Result<bool> {
    let mut path = common_dir.join(MIGRATION);
    path.push(MIGRATION_JOURNAL);
    let journal = match system.lstat(&path) {
        Err(error) if is_absent(&error) => return Ok(false),
        stat => stat.and_then(|stat| match stat.kind {
            FileKind::File => system.read_at_most(&path, JOURNAL_MAX),
            _ => Ok(Vec::new()),
        }),
    };
    let journal = match journal {
        // It came to its end.
        Err(error) if is_absent(&error) => return Ok(false),
        journal => journal.map_err(|error| Error::io("unable to read", &path, error))?,
    };
    path.pop();
    let is_folder = system
        .lstat(&path)
        .is_ok_and(|stat| stat.kind == FileKind::Directory);
    let line = format!("from {}\n", from.name());
    Ok(is_folder && journal.starts_with(line.as_bytes()) && system.is_taken(&path))
}
