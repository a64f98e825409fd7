//! Collecting tables that no head names, without a clock that anything depends on.
//!
//! An unlisted table is dead for ever if a commit brought it and its greatest index is not above the
//! head's, since a commit lists only tables above that; or if a maintainer merged it in an epoch that has
//! ended, since a maintainer publishes only in its own. The time for which a dead table is left is for slow
//! readers, and nothing is lost if clocks are wrong.

use std::time::Duration;

use super::head::Head;
use super::{Freshness, Known, Register, Swapped, TABLES_PREFIX, TableKey, table_object};
use crate::error::{Error, ErrorKind, Result};

/// How many times a maintainer tries to begin beside busy writers.
const FENCES_MAX: usize = 100;

/// How many tables are removed by one request.
const DELETES: usize = 500;

/// What a collection found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Tables that were removed.
    pub removed: usize,
    /// Tables that are dead and were left for readers.
    pub left: usize,
    /// Tables that no head names yet, or any more, and that may still be listed.
    pub pending: usize,
}

impl Register {
    /// Begins an epoch: whoever maintained the store before publishes no table any more. Returns the head
    /// that says so, the epoch of which is this maintainer's.
    ///
    /// # Errors
    /// As for [`Register::swap`], and `Locked` when the store is frozen, or too busy.
    pub fn begin_epoch(&self) -> Result<u64> {
        self.change("maintained", |head| {
            check_open(head, &self.name())?;
            head.epoch += 1;
            Ok(head.epoch)
        })
    }

    /// Keeps every writer out, or lets them in again (`None`).
    ///
    /// # Errors
    /// As for [`Register::swap`], and `Locked` when the store is too busy.
    pub fn set_frozen(&self, reason: Option<&str>) -> Result<()> {
        self.change("frozen", |head| {
            head.frozen = reason.map(str::to_owned);
            Ok(())
        })
    }

    /// Replaces the head by what `change` makes of it, unless other writers are faster again and again; returns
    /// what that gives. `what` says what the store is to be then.
    fn change<T>(&self, what: &str, change: impl Fn(&mut Head) -> Result<T>) -> Result<T> {
        for _ in 0..FENCES_MAX {
            let base = self.known()?;
            let mut new = base.head.clone();
            let given = change(&mut new)?;
            if let Swapped::Done = self.swap(&base, new)? {
                return Ok(given);
            }
        }
        let what = format!("{}: too busy to be {what} now", self.name());
        Err(Error::new(ErrorKind::Locked, what))
    }

    /// Removes tables that no head names and none ever will, but for those that were dropped within
    /// `grace`, and what writers left who were killed.
    ///
    /// # Errors
    /// As for [`Register::begin_epoch`]; `Io`.
    pub fn collect(&self, grace: Duration) -> Result<Collected> {
        // Listed before the head is read: what is stored meanwhile is not looked at.
        let stored = self.shared().list(TABLES_PREFIX)?;
        let mut head = self.current(Freshness::Fresh)?;
        if stored.iter().any(|(name, _)| is_merged(name, &head)) {
            // Only what is merged in an epoch that has ended is dead.
            self.begin_epoch()?;
            head = self.known()?;
        }
        let now = self.system().now().as_secs();
        let mut collected = Collected::default();
        let mut dead = Vec::new();
        for (object, _) in &stored {
            let Some(key) = key_of(object) else { continue };
            if head.head.tables.iter().any(|table| table.key == key) {
                continue;
            }
            if !is_dead(&key, &head.head) {
                collected.pending += 1;
                continue;
            }
            let dropped = head.head.dropped.iter().find(|it| it.key == key);
            let is_recent = dropped.is_some_and(|it| now < it.time.saturating_add(grace.as_secs()));
            match is_recent {
                true => collected.left += 1,
                false => dead.push(table_object(&key.to_string())),
            }
        }
        for some in dead.chunks(DELETES) {
            let keys: Vec<&str> = some.iter().map(String::as_str).collect();
            self.shared().delete(&keys)?;
        }
        collected.removed = dead.len();
        self.shared().sweep()?;
        if let Some(cache) = self.cache() {
            cache.trim(&head.head.tables);
        }
        Ok(collected)
    }
}

/// Fails where a store is kept as it is.
pub(crate) fn check_open(head: &Head, place: &str) -> Result<()> {
    match &head.frozen {
        None => Ok(()),
        Some(reason) => {
            let what = format!("{place}: the store is frozen ({reason}): nothing can be written");
            Err(Error::new(ErrorKind::Locked, what))
        }
    }
}

fn key_of(object: &str) -> Option<TableKey> {
    object.strip_prefix(TABLES_PREFIX)?.parse().ok()
}

/// Returns whether an object is a merged table that the head does not name.
fn is_merged(object: &str, known: &Known) -> bool {
    key_of(object).is_some_and(|key| {
        key.epoch.is_some() && !known.head.tables.iter().any(|table| table.key == key)
    })
}

/// Returns whether no later head can name a table that this one does not name.
fn is_dead(key: &TableKey, head: &Head) -> bool {
    match key.epoch {
        None => key.max <= head.index,
        Some(epoch) => epoch < head.epoch,
    }
}
