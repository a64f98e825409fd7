//! Whether a process may write, found out before it tries: what would fail however often it is tried is told first.
//!
//! What comes to be in the way after the look is told by whoever tries.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::dirs::{is_path_in, parent};
use crate::{FileKind, Stat, System};

/// By this bit a directory lets nobody replace the files of others.
const STICKY: u32 = 0o1000;

/// So many files that are to be made longer are asked for themselves.
const APPENDED_MIN: usize = 64;

/// Why a file that containers mount alone cannot be replaced.
const MOUNTED: &str =
    "the file is mounted there, so that nothing can take its place; mount the directory instead";

/// What is known of directories, of which many steps in a row share one.
#[derive(Default)]
pub struct MayWrite {
    /// A directory in which names can be made, and one in it that is missing, if one is.
    writable: PathBuf,
    missing: Option<PathBuf>,
    /// How many files were to be made longer, and the directory of the last one that was not asked for itself.
    appended: usize,
    appended_in: PathBuf,
    /// The last directory in which a file was to be replaced, and whether that has to be one's own.
    replaced: PathBuf,
    only_own: bool,
    /// Who asks.
    user: Option<u32>,
    /// How long a file of this process may become.
    longest: Option<u64>,
}

impl MayWrite {
    /// Makes sure that lines can be put behind a file that was described.
    ///
    /// # Errors
    /// Those that writing would have.
    pub fn append(&mut self, system: &dyn System, path: &Path, stat: &Stat) -> io::Result<()> {
        // The owner, and root, may write, unless the file is on something that may only be read, or nobody may change it:
        // one call less for each of many reflogs, of which only the first ones, and their directories, are asked for.
        self.appended += 1;
        let user = *self.user.get_or_insert_with(|| system.user_id());
        let is_own = user == 0 || stat.uid == user && stat.mode & 0o200 != 0;
        if !is_own || self.appended <= APPENDED_MIN {
            return system.may_write(path);
        }
        let dir = path.parent().unwrap_or(path);
        if dir != self.appended_in {
            dir.clone_into(&mut self.appended_in);
            if let Err(error) = system.may_write(dir)
                && error.kind() == io::ErrorKind::ReadOnlyFilesystem
            {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Makes sure that a file may become `len` bytes long (`ulimit -f`).
    ///
    /// # Errors
    /// `EFBIG`.
    pub fn reach(&mut self, system: &dyn System, len: u64) -> io::Result<()> {
        let longest = *self.longest.get_or_insert_with(|| system.longest_file());
        match len > longest {
            true => Err(Errno::FBIG.into()),
            false => Ok(()),
        }
    }

    /// Makes sure that a file can be made, or removed: in its directory, or the first one above it that is
    /// there.
    ///
    /// # Errors
    /// Those that making it would have.
    pub fn make(&mut self, system: &dyn System, path: &Path) -> io::Result<()> {
        let is_same = parent(path) == Some(self.writable.as_os_str().as_bytes());
        let missing = self.missing.as_ref();
        if is_same || missing.is_some_and(|dir| is_path_in(path, dir)) {
            return Ok(());
        }
        let mut missing = None;
        for dir in path.ancestors().skip(1) {
            let known = dir == self.writable;
            match if known { Ok(()) } else { system.may_write(dir) } {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    // A link that leads nowhere is in the way.
                    let found = system.find(dir)?;
                    if found.is_some_and(|stat| stat.kind == FileKind::Symlink) {
                        return Err(error);
                    }
                    missing = Some(dir);
                }
                // What is in the way goes, or its entries do.
                Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(()),
                Err(error) => return Err(error),
                Ok(()) => {
                    self.writable = dir.to_owned();
                    self.missing = missing.map(Path::to_owned);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Makes sure that a file can be replaced, or removed, if it is there, in a directory in which names can be made.
    ///
    /// # Errors
    /// Those that replacing it would have.
    pub fn replace(&mut self, system: &dyn System, path: &Path) -> io::Result<()> {
        // What its mode says does not count, but some files are nobody's to change.
        system.may_replace(path).map_err(|error| {
            match Errno::from_io_error(&error) == Some(Errno::BUSY) {
                true => io::Error::new(io::ErrorKind::ResourceBusy, MOUNTED),
                false => error,
            }
        })?;
        let dir = path.parent().unwrap_or(path);
        let user = *self.user.get_or_insert_with(|| system.user_id());
        if dir != self.replaced {
            system.may_replace(dir)?;
            // Root may replace whatever is there: one call less for each of many new directories.
            let is_only_own = |stat: Stat| stat.mode & STICKY != 0 && stat.uid != user;
            self.only_own = user != 0 && system.stat(dir).is_ok_and(is_only_own);
            self.replaced = dir.to_owned();
        }
        let is_own = || {
            let stat = system.lstat(path);
            stat.map_or(true, |stat| stat.uid == user)
        };
        match self.only_own && !is_own() {
            true => Err(Errno::PERM.into()),
            false => Ok(()),
        }
    }
}
