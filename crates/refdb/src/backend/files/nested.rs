//! Making room for a ref whose new name lies above or below its old one.
//!
//! There is no place for both as files, and nobody may get a third name there who looked while the old ref was
//! in his way, or one of these two. So the old ref is packed first, and the upper name is locked as a directory
//! (`bars`): nobody else has a lock there then, nor gets one, until packed-refs has the new ref for the old.
//!
//! Invariants:
//! 1. Before the directory is locked nothing changes but how the old ref is stored.
//! 2. While somebody else is waited for, no lock is held that comes after the one of the upper name.

use std::io;
use std::path::Path;

use super::apart::is_shared;
use super::optimize::pack_alone;
use super::overlay;
use super::session::{FilesSession, blocked_by, name_conflict};
use crate::backend::{Locked, Nested, Refusal};
use crate::commit::{LockFile, lock_path};
use crate::error::{Error, ErrorKind, Reason, Result};
use crate::layout::Place;
use crate::options::LockTimeout;
use crate::system::{FileKind, bytes_to_path};

/// What a try came to.
enum Tried {
    /// The directory is locked.
    Done,
    /// Somebody else is there.
    Busy(Refusal),
}

impl FilesSession {
    /// Locks the directory of the upper name as soon as nobody else is there. Returns `false` where all locks
    /// are to be given back.
    ///
    /// # Errors
    /// `Locked` when others are there for too long; `Misuse` when another ref is in the way, or when the ref
    /// cannot be packed; else as for packing.
    pub(super) fn make_room(&mut self, nested: &Nested<'_>) -> Result<bool> {
        let upper = nested.upper();
        let (place, path) = self.files.path(upper)?;
        if place != Place::Common || !is_shared(nested.from) || !is_shared(nested.to) {
            let (from, to) = (nested.from, nested.to);
            let message = format!(
                "cannot rename '{from}' to '{to}': such a ref has to be packed on the way, which one of a \
                 worktree cannot be"
            );
            return Err(Error::new(ErrorKind::Misuse, message));
        }
        self.check_length(nested, &path)?;
        let may_wait = self.against_last(upper).is_gt();
        let timeout = match may_wait {
            true => self.timeout,
            false => LockTimeout::from_millis(0),
        };
        let mut tried = Ok(Tried::Done);
        let holder = self.waiter.clone();
        let waited = holder.wait_while(&lock_path(&path), timeout, || {
            tried = self.try_to_make_room(nested, &path);
            matches!(tried, Ok(Tried::Busy(_)))
        });
        match (waited, tried?) {
            (Ok(()), _) => match self.look_for_migration()? {
                Locked::Behind => Ok(false),
                Locked::Refused(refusal) => Err(refusal.into_error(upper)),
                Locked::Found(_) | Locked::Missing | Locked::Alone => Ok(true),
            },
            (Err(_), _) if (!may_wait || self.sees_migration()) && self.may_turn_back() => {
                Ok(false)
            }
            (Err(error), Tried::Done) => Err(self.refuse(upper, &error).into_error(upper)),
            (Err(_), Tried::Busy(refusal)) => {
                self.files.still_there()?;
                Err(Error::new(ErrorKind::Locked, refusal.message))
            }
        }
    }

    /// Makes sure that the new name is none that the file system cannot have: nothing tells it, as no file of that
    /// name is made here.
    fn check_length(&self, nested: &Nested<'_>, upper: &Path) -> Result<()> {
        let (to, len) = (nested.to, nested.upper().as_bytes().len());
        let below = to.as_bytes().get(len..).unwrap_or_default();
        let parts = below.split(|&byte| byte == b'/').map(bytes_to_path);
        let paths = parts
            .map(|part| upper.with_file_name(part))
            .chain([self.files.path(to)?.1]);
        for path in paths {
            let found = self.files.system.lstat(&lock_path(&path));
            if let Err(error) = found
                && error.kind() == io::ErrorKind::InvalidFilename
            {
                return Err(self.refuse(to, &error).into_error(to));
            }
        }
        Ok(())
    }

    fn try_to_make_room(&mut self, nested: &Nested<'_>, path: &Path) -> Result<Tried> {
        let upper = nested.upper();
        pack_alone(&self.files, nested.from, nested.objects)?;
        match self.take_within(upper, LockTimeout::from_millis(0)) {
            Ok(()) => {}
            Err(refusal) if refusal.reason == Reason::CreateExists => {
                return Ok(Tried::Busy(*refusal));
            }
            Err(refusal) => return Err(refusal.into_error(upper)),
        }
        let Some(mut lock) = self.held.pop().and_then(|held| held.lock) else {
            return Ok(Tried::Done);
        };
        match self.bar_directory(&mut lock, path) {
            Ok(()) => {
                self.bars.add(upper, *lock);
                Ok(Tried::Done)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let others = overlay::list(&self.files, &[upper.as_bytes(), b"/"].concat())?;
                let from = nested.from.as_bytes();
                match others.iter().find(|other| other.name != from) {
                    Some(other) => {
                        let refusal = name_conflict(upper, &other.name);
                        Err(Error::new(ErrorKind::Misuse, refusal.message))
                    }
                    None => Ok(Tried::Busy(blocked_by(upper, path))),
                }
            }
            Err(error) => Err(self.refuse(upper, &error).into_error(upper)),
        }
    }

    /// Bars the place of a directory, which goes if nobody is in it.
    fn bar_directory(&self, lock: &mut LockFile, path: &Path) -> io::Result<()> {
        let system = self.files.system.as_ref();
        let is_directory = |kind| kind == FileKind::Directory;
        if system.lstat(path).is_ok_and(|stat| is_directory(stat.kind)) {
            self.files.clear_way(path);
        }
        lock.bar(None)
    }
}
