//! When a store looks for a journal.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::home::Home;
use super::journal::{self, journal_path};
use super::view::View;
use crate::error::{Error, Result};
use crate::system::{Stat, unpoisoned};

/// How often a store looks for a journal. For so long, a process that ended in the midst of a
/// transaction is as good as a slow one: readers in `files` may see some of its steps, and writers
/// do not get past its locks. Only a loss of power can take the locks and leave the journal, and
/// whoever comes after it looks at once.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The journal of one repository, as a store of its refs sees it.
#[derive(Debug)]
pub(crate) struct JournalWatch {
    home: Arc<Home>,
    // When it was looked for last, in nanoseconds since 1970-01-01 UTC; the greatest number if never.
    looked_ns: AtomicU64,
    view: Mutex<Option<Arc<View>>>,
    unfinished: Mutex<Option<Unfinished>>,
}

/// A journal that could not be finished, which took longer than until the next look: to read it again each time would
/// leave little time for anything else.
#[derive(Debug)]
struct Unfinished {
    /// What the file was.
    stat: Stat,
    /// When that is tried again, unless it is another file by then, by the clock that nobody sets.
    until: Duration,
    error: Error,
}

/// Of so many parts of the time one is spent on such a journal.
const SHARE: u32 = 5;

impl JournalWatch {
    pub(crate) fn new(home: &Arc<Home>) -> JournalWatch {
        JournalWatch {
            home: Arc::clone(home),
            looked_ns: AtomicU64::new(u64::MAX),
            view: Mutex::default(),
            unfinished: Mutex::default(),
        }
    }

    /// Finishes what a process that ended left unfinished, unless that was looked for just now;
    /// returns what is left of it for readers to see. Readers go on, whatever keeps
    /// it from being finished, unless it cannot be looked at.
    ///
    /// What a process that runs has committed just now is not among it: a store that looked before would
    /// still show the old values when another one has shown the new ones. It is seen step by step until
    /// every store has looked.
    ///
    /// # Errors
    /// `Io` if it cannot be seen whether there is a journal, or what it says.
    pub(crate) fn for_reading(&self) -> Result<Option<Arc<View>>> {
        if let Some(error) = self.look()? {
            self.home.warn(&error);
        }
        Ok(unpoisoned(&self.view).clone())
    }

    /// As [`JournalWatch::for_reading`], before refs are written.
    ///
    /// # Errors
    /// What keeps the transaction from being finished; `Corrupt` when there is something else in
    /// the place of the journal.
    pub(crate) fn for_writing(&self) -> Result<()> {
        self.look()?.map_or(Ok(()), Err)
    }

    /// Looks, unless that was done just now; returns what keeps the transaction from being finished.
    fn look(&self) -> Result<Option<Error>> {
        let now_ns = u64::try_from(self.home.system.now().as_nanos()).unwrap_or(u64::MAX);
        // A clock may have been set back.
        let since = now_ns.checked_sub(self.looked_ns.load(Ordering::Relaxed));
        if since.is_some_and(|since| Duration::from_nanos(since) < LOOK_EVERY) {
            return Ok(None);
        }
        let began = self.home.system.elapsed();
        let stat = || {
            let path = journal_path(self.home.journal_dir().ok()?);
            self.home.system.lstat(&path).ok()
        };
        if let Some(known) = &*unpoisoned(&self.unfinished)
            && began < known.until
            && stat() == Some(known.stat)
        {
            return Ok(Some(known.error.clone()));
        }
        let found = journal::recover(&self.home)?;
        let ended = self.home.system.elapsed();
        let took = ended.saturating_sub(began);
        let kept = found.error.clone().filter(|_| took > LOOK_EVERY);
        *unpoisoned(&self.unfinished) = kept.and_then(|error| {
            let (stat, until) = (stat()?, ended + took * (SHARE - 1));
            Some(Unfinished { stat, until, error })
        });
        let view = found.view.filter(|_| !found.is_young);
        *unpoisoned(&self.view) = view;
        // It is looked at again at once, until it is old enough or gone, or can be finished.
        if found.error.is_none() && !found.is_young {
            self.looked_ns.store(now_ns, Ordering::Relaxed);
        }
        Ok(found.error)
    }
}
