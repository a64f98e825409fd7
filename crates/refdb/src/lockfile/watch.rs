//! When a store looks for a journal.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::journal;
use crate::error::Result;
use crate::system::System;

/// How often a store looks for a journal. For so long, a process that ended in the midst of a
/// transaction is as good as a slow one: readers in `files` may see some of its steps, and writers
/// do not get past its locks. Only a loss of power can take the locks and leave the journal, and
/// whoever comes after it looks at once.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The journal of one repository, as a store of its refs sees it.
#[derive(Debug)]
pub(crate) struct JournalWatch {
    system: Arc<dyn System>,
    git_dir: PathBuf,
    // When it was looked for last, in nanoseconds since 1970-01-01 UTC; the greatest number if never.
    looked_ns: AtomicU64,
}

impl JournalWatch {
    pub(crate) fn new(system: &Arc<dyn System>, git_dir: &Path) -> JournalWatch {
        JournalWatch {
            system: Arc::clone(system),
            git_dir: git_dir.to_owned(),
            looked_ns: AtomicU64::new(u64::MAX),
        }
    }

    /// Finishes what a process that ended left unfinished, unless that was looked for just now.
    ///
    /// # Errors
    /// As for [`journal::recover`].
    pub(crate) fn recover(&self) -> Result<()> {
        let now_ns = u64::try_from(self.system.now().as_nanos()).unwrap_or(u64::MAX);
        // A clock may have been set back.
        let since = now_ns.checked_sub(self.looked_ns.load(Ordering::Relaxed));
        if since.is_some_and(|since| Duration::from_nanos(since) < LOOK_EVERY) {
            return Ok(());
        }
        journal::recover(&self.system, &self.git_dir)?;
        self.looked_ns.store(now_ns, Ordering::Relaxed);
        Ok(())
    }
}
