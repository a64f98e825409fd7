//! The reflogs of a store.

use refdb_names::{RefName, RefNameBuf};

use super::Store;
use crate::backend::{LogChange, LogOrder};
use crate::error::Result;
use crate::reflog::LogEntry;
use crate::transaction::{LogRewrite, Outcome, log};

impl Store {
    /// Returns whether a ref has a reflog, possibly an empty one.
    ///
    /// # Errors
    /// `Corrupt` or `Io` for the files.
    pub fn log_exists(&self, name: RefName<'_>) -> Result<bool> {
        match self.backend.log_exists(name) {
            Ok(true) => Ok(true),
            missed => self.if_still_there(missed),
        }
    }

    /// Reads a reflog; `None` if there is none.
    ///
    /// # Errors
    /// `Corrupt` or `Io` for the files.
    pub fn log(&self, name: RefName<'_>, order: LogOrder) -> Result<Option<Vec<LogEntry>>> {
        let mut entries = Vec::new();
        let exists = self.for_each_log_entry(name, order, |entry| {
            entries.push(entry);
            Ok(true)
        })?;
        Ok(exists.then_some(entries))
    }

    /// Calls `each` for the entries of a reflog until it gives `false`; returns whether there is a
    /// reflog.
    ///
    /// # Errors
    /// `Corrupt` or `Io` for the files, and whatever `each` fails with.
    pub fn for_each_log_entry(
        &self,
        name: RefName<'_>,
        order: LogOrder,
        mut each: impl FnMut(LogEntry) -> Result<bool>,
    ) -> Result<bool> {
        match self.backend.for_each_log_entry(name, order, &mut each) {
            Ok(true) => Ok(true),
            missed => self.if_still_there(missed),
        }
    }

    /// Returns the names that have a reflog, in the order in which Git lists them: by bytes
    /// (reftable), or directory by directory (files).
    ///
    /// # Errors
    /// `Corrupt` or `Io` for the files.
    pub fn log_names(&self) -> Result<Vec<RefNameBuf>> {
        self.if_still_there(self.backend.log_names())
    }

    /// Rewrites a reflog under the lock of its ref: an entry stays if `keep`, which is asked about
    /// the oldest one first, says so. Returns `None` if there is no reflog.
    ///
    /// # Errors
    /// `Locked` when another process changes the ref or the reflog; `Corrupt` or `Io` for the files,
    /// and whatever `keep` fails with. The reflog is as it was then.
    pub fn rewrite_log(
        &self,
        name: RefName<'_>,
        how: LogRewrite,
        mut keep: impl FnMut(&LogEntry) -> Result<bool>,
    ) -> Result<Option<Outcome>> {
        let (backend, objects) = (self.backend.as_ref(), self.objects.as_ref());
        self.until_done(|| log::rewrite(backend, &self.options, objects, name, how, &mut keep))
    }

    /// Rewrites several reflogs as [`Store::rewrite_log`] does each, all of them or none: an entry stays if `keep`,
    /// which gets the position of its name as well, says so. What has no reflog is passed over. To take the locks of
    /// a hundred together, and to wait for the disk once, takes a fraction of the time.
    ///
    /// # Errors
    /// As for [`Store::rewrite_log`]; `Misuse` where refs are to follow, or nothing is to be written. Every reflog is
    /// as it was then.
    pub fn rewrite_logs(
        &self,
        names: &[RefName<'_>],
        how: LogRewrite,
        mut keep: impl FnMut(usize, &LogEntry) -> Result<bool>,
    ) -> Result<Outcome> {
        let backend = self.backend.as_ref();
        self.until_done(|| log::rewrite_all(backend, &self.options, names, how, &mut keep))
    }

    /// Replaces a whole reflog, or makes it: these are its entries then, the oldest first. It is done
    /// under the lock of its ref, which stays as it is and need not be there, and nobody sees a part of it.
    ///
    /// # Errors
    /// `InvalidName` and `Misuse` when the name or an entry is none that could be read back; `Locked` when
    /// another process changes the ref or the reflog; `Corrupt` or `Io` for the files. The reflog is as
    /// it was then.
    pub fn replace_log(&self, name: RefName<'_>, entries: &[LogEntry]) -> Result<Outcome> {
        let backend = self.backend.as_ref();
        self.until_done(|| log::replace(backend, &self.options, name, entries))
    }

    /// Makes a reflog without entries, unless there is one.
    ///
    /// # Errors
    /// `InvalidName` for a name that has none; `Locked` when another process changes refs; `Corrupt` or `Io`.
    pub fn create_log(&self, name: RefName<'_>) -> Result<Outcome> {
        self.change_logs(&[LogChange::Create(name)])
    }

    /// Removes reflogs; their refs stay. One that is not there is fine.
    ///
    /// # Errors
    /// `Locked` when another process changes refs; `Corrupt` or `Io` for the files.
    pub fn delete_logs<'n>(&self, names: impl IntoIterator<Item = RefName<'n>>) -> Result<Outcome> {
        let changes: Vec<_> = names.into_iter().map(LogChange::Delete).collect();
        self.change_logs(&changes)
    }

    fn change_logs(&self, changes: &[LogChange<'_>]) -> Result<Outcome> {
        let backend = self.backend.as_ref();
        self.until_done(|| log::change(backend, &self.options, changes.to_vec()))
    }
}
