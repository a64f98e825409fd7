//! What a writer has to see of a migration by another process.

use std::io;
use std::path::Path;

use super::RefFormat;
use crate::error::{Error, Result};
use crate::system::{FileKind, System, if_there};

/// The folder in which a migration works.
pub const MIGRATION: &str = "refdb-migration";

/// What is in that folder from before the first lock of the old store is taken.
pub const MIGRATION_JOURNAL: &str = "journal";

/// No journal of a migration is longer.
const JOURNAL_MAX: usize = 256;

/// Returns whether a process that lives migrates the refs of a repository from this format: it keeps writers
/// out of the old stores, or is about to. Whoever asks has the lock of a name already, which a later
/// migration finds. On a network file system nobody can tell whether a process lives: the answer is no.
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
    let unreadable = |error| Error::io("unable to read", &path, error);
    let found = match system.find(&path) {
        // Somebody was killed before he had let the others of a shared repository into his folder: it goes, if nothing
        // is in it.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let folder = path.parent().unwrap_or(common_dir);
            let removed = system.remove_dir(folder);
            return removed.map(|()| false).map_err(|_| unreadable(error));
        }
        found => found.map_err(unreadable)?,
    };
    if found.is_none_or(|stat| stat.kind != FileKind::File) {
        return Ok(false);
    }
    let journal = if_there(system.read_at_most(&path, JOURNAL_MAX));
    let Some(journal) = journal.map_err(unreadable)? else {
        // It came to its end.
        return Ok(false);
    };
    path.pop();
    let is_folder = system
        .lstat(&path)
        .is_ok_and(|stat| stat.kind == FileKind::Directory);
    let is_ours = journal.starts_with(first_line(from).as_bytes());
    Ok(is_folder && is_ours && system.is_taken(&path))
}

/// Returns how the journal of a migration begins.
pub fn first_line(from: RefFormat) -> String {
    format!("from {}\n", from.name())
}
