//! Publishing a list of tables in a directory, under its lock.
//!
//! Invariant: the lock is held until this is dropped, also after the list was published: a journal
//! that other stacks are in may still have to be removed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::tables::{Hold, NO_TABLES, Publication, Stamp};
use crate::commit::{Change, LockFile, Place, not_placed};
use crate::error::{Error, ErrorKind, OrIo, Result};
use crate::system::System;

/// The right to publish: `tables.list.lock` is held.
pub(super) struct LocalHold {
    system: Arc<dyn System>,
    dir: PathBuf,
    fsync: bool,
    // What a journal calls the list.
    place: Place,
    // `None` once it is left to others.
    lock: Option<LockFile>,
    staged: bool,
    published: bool,
}

impl LocalHold {
    pub(super) fn new(
        system: Arc<dyn System>,
        dir: &Path,
        fsync: bool,
        place: Place,
        lock: LockFile,
    ) -> LocalHold {
        LocalHold {
            system,
            dir: dir.to_owned(),
            fsync,
            place,
            lock: Some(lock),
            staged: false,
            published: false,
        }
    }

    fn lock(&mut self) -> Result<&mut LockFile> {
        let lock = self.lock.as_mut().filter(|_| !self.published);
        lock.ok_or_else(|| Error::new(ErrorKind::Misuse, "a lock publishes only once"))
    }

    /// Writes the new list beside the old one.
    fn write(&mut self, tables: &[String]) -> Result<()> {
        let fsync = self.fsync;
        let lock = self.lock()?;
        let content = match tables {
            [] => NO_TABLES.to_owned(),
            _ => tables.join("\n") + "\n",
        };
        lock.write_all(content.as_bytes())
            .or_io("cannot write", lock.path())?;
        if fsync {
            lock.sync().or_io("cannot sync", lock.path())?;
        }
        lock.close();
        Ok(())
    }

    fn sync_dir(&self) -> Result<()> {
        if !self.fsync {
            return Ok(());
        }
        self.system
            .sync_dir(&self.dir)
            .or_io("cannot sync", &self.dir)
    }
}

impl Hold for LocalHold {
    fn stage(&mut self, tables: &[String], change: &mut Change) -> Result<()> {
        let place = self.place.clone();
        let lock = self.lock()?;
        lock.sign().or_io("cannot write", lock.path())?;
        self.write(tables)?;
        self.sync_dir()?;
        self.staged = true;
        let guard = change.lock(place.clone());
        change.put(guard, place, self.lock()?);
        Ok(())
    }

    fn as_lock(&self) -> Option<&LockFile> {
        self.lock.as_ref()
    }

    fn leave(&mut self) {
        if let Some(lock) = self.lock.take() {
            lock.leave();
        }
    }

    fn publish(&mut self, expected: &Stamp, tables: &[String]) -> Result<Publication> {
        if !self.staged {
            self.write(tables)?;
        }
        // The stamp is that of the file which gets the name.
        let lock = self.lock()?;
        let (new, list) = (lock.value_path(), lock.target());
        let system = Arc::clone(&self.system);
        let in_place = if self.staged { &list } else { &new };
        let stamp = system.open(in_place).and_then(Stamp::of);
        let stamp = stamp.map_err(|error| not_placed("cannot read", in_place, error))?;
        let mut unsynced = None;
        if self.staged {
            // The change has put it there, and made it durable.
            self.lock()?.was_placed();
        } else {
            let lock = self.lock()?;
            lock.holder().may_publish()?;
            lock.made_from(expected.file());
            lock.place()
                .map_err(|error| not_placed("cannot replace", &list, error))?;
            unsynced = self.sync_dir().err();
        }
        self.published = true;
        Ok(Publication::Done(stamp, unsynced))
    }
}
