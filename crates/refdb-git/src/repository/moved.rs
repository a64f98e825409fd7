//! Whether refs are still kept where they were when their repository was opened.
//!
//! A migration may take all refs into the other format at any moment. refdb's touches the old ones only
//! when the new configuration has its name: what was read while the configuration stayed as it was is
//! true. So a reader that missed something, found what stands for tables, or came to its end, looks whether
//! it did. Git's takes the old refs away before that: a listing of nothing looks for its signs, too.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use refdb::internals::{are_tables, is_absent};
use refdb::layout::HEAD_OF_TABLES;
use refdb::system::{Stat, System};
use refdb::{Error, ErrorKind, RefFormat, Result};

use super::config::LocalFile;
use super::environment::Environment;
use super::format::Format;

/// The folders in which Git makes the new refs begin so.
pub const GITS_FOLDER: &str = "ref_migration.";

/// For so many milliseconds the end of a migration by Git is waited for where refs seem to be gone.
const PAUSES_MS: [u64; 5] = [1, 4, 16, 64, 128];

/// A configuration that says in which format refs are kept.
pub(super) struct Watched {
    pub(super) system: Arc<dyn System>,
    pub(super) environment: Environment,
    pub(super) common_dir: PathBuf,
    /// What the file was before it was read.
    pub(super) stat: Option<Stat>,
    pub(super) refs: RefFormat,
    /// Where the refs are, if not there.
    pub(super) refs_dir: Option<PathBuf>,
}

impl Watched {
    /// Returns what the configuration in a directory is now.
    pub(super) fn stat(system: &dyn System, common_dir: &Path) -> Option<Stat> {
        system.stat(&common_dir.join("config")).ok()
    }

    /// Returns what a store asks that missed something.
    pub(super) fn still_there(self) -> impl Fn(bool) -> Result<()> + Send + Sync {
        let known = Mutex::new(self.stat);
        move |is_empty| self.check(&known, is_empty)
    }

    fn check(&self, known: &Mutex<Option<Stat>>, is_empty: bool) -> Result<()> {
        self.check_config(known, is_empty)?;
        if self.refs != RefFormat::Files {
            return Ok(());
        }
        if let Some(dir) = &self.refs_dir {
            return self.check_elsewhere(dir);
        }
        if !is_empty {
            return Ok(());
        }
        for pause in PAUSES_MS {
            if !self.is_being_moved() {
                return Ok(());
            }
            self.system.sleep(Duration::from_millis(pause));
            self.check_config(known, is_empty)?;
        }
        match self.has_head_of_tables() {
            true => Err(Error::corrupt(
                &self.common_dir.join("HEAD"),
                "it says that the refs are tables, and the configuration says that they are files: a \
                 migration was cut short",
            )),
            // A copy that somebody made, to see what a migration would do.
            false => Ok(()),
        }
    }

    /// Refs outside the repository may have been migrated by another one that has its own there.
    fn check_elsewhere(&self, dir: &Path) -> Result<()> {
        match are_tables(self.system.as_ref(), dir) {
            true => Err(Error::corrupt(
                dir,
                "the refs there are tables, and the configuration says that they are files: another \
                 repository has migrated them",
            )),
            false => Ok(()),
        }
    }

    /// Looks whether the format is the same as before. Where nothing was found, a configuration that was
    /// changed may have been so twice: there, and back.
    fn check_config(&self, known: &Mutex<Option<Stat>>, is_empty: bool) -> Result<()> {
        let now = Watched::stat(self.system.as_ref(), &self.common_dir);
        let before = *known.lock().unwrap_or_else(PoisonError::into_inner);
        if before == now {
            return Ok(());
        }
        if before.is_some() && now.is_none() {
            return Err(self.is_gone());
        }
        let local = LocalFile::read(self.system.as_ref(), &self.common_dir.join("config"))?;
        let format = Format::read(&local.own_values(), &self.common_dir, &self.environment)?;
        let dir = format.refs_dir.as_deref();
        let dir = dir.map(|dir| super::open::real_refs_dir(self.system.as_ref(), dir));
        let is_same = format.refs == self.refs && dir.transpose()? == self.refs_dir;
        if is_same {
            *known.lock().unwrap_or_else(PoisonError::into_inner) = now;
        }
        if !is_same || is_empty {
            return Err(Error::new(
                ErrorKind::Moved,
                "the format of the refs was changed by another process; try again",
            ));
        }
        Ok(())
    }

    /// Says that the configuration, which was there, is not, or cannot be looked at.
    fn is_gone(&self) -> Error {
        let config = self.common_dir.join("config");
        match self.system.stat(&config) {
            Err(error) if !is_absent(&error) => Error::io("unable to read", &config, error),
            _ => {
                let config = config.display();
                let message = format!(
                    "'{config}' is gone: the repository was moved or removed; open it again"
                );
                Error::new(ErrorKind::Moved, message)
            }
        }
    }

    fn is_being_moved(&self) -> bool {
        let entries = self.system.read_dir(&self.common_dir).unwrap_or_default();
        entries
            .iter()
            .any(|it| it.name.starts_with(GITS_FOLDER.as_bytes()))
            || self.has_head_of_tables()
    }

    fn has_head_of_tables(&self) -> bool {
        let head = self.common_dir.join("HEAD");
        let head = self.system.read_at_most(&head, HEAD_OF_TABLES.len() + 1);
        head.is_ok_and(|head| head == HEAD_OF_TABLES)
    }
}
