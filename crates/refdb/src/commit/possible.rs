//! Looking whether the steps of a change can be taken, before a journal promises them.
//!
//! A journal that nobody can finish keeps all writers out. So what would fail however often it is tried is
//! found before: a reflog that this user may not write, a ref that only somebody else may replace, a file
//! that nobody may change. What comes to be in the way after the look is told when the step is taken.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::place::{Place, Roots, Spot};
use super::step::{Step, unable_to_append, unable_to_put};
use crate::error::{Error, Result};
use crate::system::System;

/// By this bit a directory lets nobody replace the files of others.
const STICKY: u32 = 0o1000;

/// What is known of directories, of which steps that follow each other mostly share one.
#[derive(Default)]
pub(super) struct Possible {
    /// A directory in which names can be made.
    writable: PathBuf,
    /// The last directory in which a file was to be replaced, and whether that has to be one's own.
    replaced: PathBuf,
    only_own: bool,
}

impl Possible {
    /// Makes sure that a step can be taken, as far as that can be seen.
    ///
    /// # Errors
    /// `Io`, as of the step itself.
    pub(super) fn check(&mut self, step: &Step, roots: &Roots) -> Result<()> {
        let reach = |place: &Place| {
            let spot = roots.spot(place);
            spot.map_err(|error| Error::io("unable to reach", &roots.path(place), error))
        };
        let place = step.place();
        let Spot { system, path, .. } = &reach(place)?;
        let system = system.as_ref();
        match step {
            Step::Put { .. } => {
                let checked = self.replace(system, place, path);
                checked.map_err(|error| unable_to_put(place, path, error))
            }
            Step::Remove { .. } => {
                let checked = self.replace(system, place, path);
                checked.map_err(|error| Error::io("unable to remove", path, error))
            }
            Step::Append { create, .. } => {
                let checked = self.append(system, path, *create);
                checked.map_err(|error| unable_to_append(place, path, error))
            }
            Step::Move { from, .. } => {
                let source = reach(from)?;
                let checked = self.replace(source.system.as_ref(), from, &source.path);
                let checked = checked.and_then(|()| self.create(system, path));
                checked.map_err(|error| Error::io("unable to move the reflog to", path, error))
            }
        }
    }

    fn append(&mut self, system: &dyn System, path: &Path, create: bool) -> io::Result<()> {
        match system.may_write(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => match create {
                true => self.create(system, path),
                false => Ok(()),
            },
            // What is in the way goes, or its entries do.
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(()),
            checked => checked,
        }
    }

    /// Makes sure that a name can be made, or removed, in the directory of `path`, or in the first one
    /// above it that is there.
    fn create(&mut self, system: &dyn System, path: &Path) -> io::Result<()> {
        for dir in path.ancestors().skip(1) {
            if dir == self.writable {
                return Ok(());
            }
            match system.may_write(dir) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(()),
                Err(error) => return Err(error),
                Ok(()) => {
                    self.writable = dir.to_owned();
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Makes sure that a file can be replaced, or removed, if it is there.
    fn replace(&mut self, system: &dyn System, place: &Place, path: &Path) -> io::Result<()> {
        // That of a ref has just got a lock.
        if matches!(place, Place::Log(_)) {
            self.create(system, path)?;
        }
        // What its mode says does not count, but some files are nobody's to change.
        if let Err(error) = system.may_write(path)
            && Errno::from_io_error(&error) == Some(Errno::PERM)
        {
            return Err(error);
        }
        let user = system.user_id();
        let dir = path.parent().unwrap_or(path);
        if dir != self.replaced {
            let stat = system.stat(dir);
            let is_others = |uid: u32| user != 0 && uid != user;
            self.only_own = stat.is_ok_and(|stat| stat.mode & STICKY != 0 && is_others(stat.uid));
            self.replaced = dir.to_owned();
        }
        let is_own = || system.lstat(path).map_or(true, |stat| stat.uid == user);
        match self.only_own && !is_own() {
            true => Err(Errno::PERM.into()),
            false => Ok(()),
        }
    }
}
