//! Carrying a plan out: keep aside, then change, each step durable before the next.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use refdb::internals::{
    Holder, Home, LockFile, LockOptions, is_table_name, is_unfinished, remove_if_there,
    short_random, suffixed, take_over,
};
use refdb::options::SharedRepository;
use refdb::system::{FileKind, System};
use refdb::{Error, ErrorKind, Result};

use super::{Plan, Step, content};
use crate::progress::{Progress, Watch, nobody};

/// The directory in the common one that keeps what a repair changed.
const ASIDE: &str = "refdb-damaged";

impl Plan<'_> {
    /// Says why nothing of the plan can be carried out, if that is so.
    ///
    /// # Errors
    /// `Unsupported` when a file that would change lies outside of the repository.
    pub fn may_be_applied(&self) -> Result<()> {
        let Some(path) = &self.outside else {
            return Ok(());
        };
        let text = format!(
            "'{}' is in the repository only by a link, and may be no ref where it is: no damage is \
             repaired",
            path.display()
        );
        Err(Error::new(ErrorKind::Unsupported, text))
    }

    /// Keeps every file aside that will change, then changes them. Returns where the old ones are.
    ///
    /// # Errors
    /// As for [`Plan::may_be_applied`]: nothing was done then. `Locked` or `Misuse` when another process holds a
    /// lock or has changed a file since the repair was planned; `Io` when the system refuses. What was done until
    /// then stands: the repair is to be planned again.
    pub fn apply(self) -> Result<PathBuf> {
        self.apply_watched(&nobody)
    }

    /// The same, and tells how far it is.
    ///
    /// # Errors
    /// As for [`Plan::apply`].
    pub fn apply_watched(self, progress: &Watch<'_>) -> Result<PathBuf> {
        self.may_be_applied()?;
        let system = self.repository.system();
        let common = self.repository.common_dir();
        // What lies there may be a link, which somebody else brought along.
        let beneath = system
            .beneath(common)
            .map_err(|error| Error::io("unable to open", common, error))?;
        let aside = new_aside(beneath.as_ref(), common)?;
        for (file, _) in self.files() {
            let inner = file.strip_prefix(common).unwrap_or(file);
            let inner = inner.strip_prefix("/").unwrap_or(inner);
            keep(system.as_ref(), beneath.as_ref(), file, &aside, inner)
                .map_err(|error| Error::io("cannot keep a copy of", file, error))?;
        }
        let total = u64::try_from(self.steps.len()).ok();
        for (at, step) in self.steps.iter().enumerate() {
            progress(Progress {
                what: "Repairing",
                count: u64::try_from(at).unwrap_or(u64::MAX),
                total,
            });
            self.step(system, step)?;
        }
        Ok(aside)
    }

    fn step(&self, system: &Arc<dyn System>, step: &Step) -> Result<()> {
        match step {
            Step::Create(path, content) => {
                let done = write_table(system.as_ref(), self.permissions(), path, content);
                done.map_err(|error| Error::io("cannot write", path, error))
            }
            Step::Replace { path, old, new } => self.exchange(system, path, old.as_deref(), new),
            Step::Remove(path) => match system.remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(Error::io("cannot remove", path, error))
                }
                _ => sync_parent(system.as_ref(), path)
                    .map_err(|error| Error::io("cannot sync the directory of", path, error)),
            },
            Step::TakeOver(path) => take_over(&self.home(system), path)
                .map(drop)
                .map_err(|error| Error::io("cannot remove", path, error)),
            Step::DropTable(path) => self.drop_table(system, path),
        }
    }

    /// Takes away a table that its list does not name: whoever names one holds the list's lock.
    fn drop_table(&self, system: &Arc<dyn System>, path: &Path) -> Result<()> {
        let failed = |error| Error::io("cannot remove", path, error);
        let list = path.with_file_name("tables.list");
        let lock = self.lock(system, &list)?;
        let listed = content(system.as_ref(), &list).map_err(failed)?;
        let name = path.file_name().unwrap_or_default();
        let is_listed = listed.is_some_and(|listed| {
            let mut lines = listed.split(|&byte| byte == b'\n');
            lines.any(|line| line == name.as_bytes())
        });
        let mut is_claimed = false;
        if name.to_str().is_some_and(is_unfinished) {
            // A compaction writes without the list's lock, under those of the tables.
            let dir = path.parent().unwrap_or(Path::new(""));
            let entries = system.read_dir(dir).map_err(failed)?;
            is_claimed = entries.iter().any(|entry| {
                let table = entry.name.strip_suffix(b".lock");
                let table = table.and_then(|table| std::str::from_utf8(table).ok());
                table.is_some_and(is_table_name)
            });
        }
        if !is_listed && !is_claimed {
            remove_if_there(system.as_ref(), path).map_err(failed)?;
            sync_parent(system.as_ref(), path).map_err(failed)?;
        }
        lock.release().map_err(failed)
    }

    /// Returns who may read and write what is made in the repository.
    fn permissions(&self) -> SharedRepository {
        self.repository.store().options().shared_repository
    }

    fn home(&self, system: &Arc<dyn System>) -> Arc<Home> {
        let options = self.repository.store().options();
        Home::new(system, self.repository.refs_base(), options)
    }

    /// Takes the lock of a file; that of a process that has ended is taken over.
    fn lock(&self, system: &Arc<dyn System>, path: &Path) -> Result<LockFile> {
        let settings = self.repository.store().options();
        let options = LockOptions {
            timeout: settings.packed_refs_timeout,
            shared: settings.shared_repository,
            pid_file: settings.lockfile_pid,
        };
        let holder = Holder::new(&self.home(system));
        LockFile::take(&holder, path, options)
    }

    fn exchange(
        &self,
        system: &Arc<dyn System>,
        path: &Path,
        old: Option<&[u8]>,
        new: &[u8],
    ) -> Result<()> {
        let io = |error| Error::io("cannot write", path, error);
        if let Some(parent) = path.parent() {
            make_dirs(system.as_ref(), self.permissions(), parent).map_err(io)?;
        }
        let guard = match self.guards.get(path) {
            Some(guard) => self.guard(system, guard)?,
            None => None,
        };
        let mut lock = self.lock(system, path)?;
        let now = content(system.as_ref(), path).map_err(io)?;
        if now.as_deref() != old {
            let text = format!(
                "'{}' was changed after the repair was planned: plan it again",
                path.display()
            );
            return Err(Error::new(ErrorKind::Misuse, text));
        }
        lock.write_all(new).map_err(io)?;
        lock.sync().map_err(io)?;
        lock.place().map_err(io)?;
        sync_parent(system.as_ref(), path).map_err(io)?;
        lock.release().map_err(io)?;
        guard.map_or(Ok(()), LockFile::release).map_err(io)
    }

    /// Takes the lock of a ref, for its reflog; `None` where there can be no such ref, and so nobody who writes it.
    fn guard(&self, system: &Arc<dyn System>, path: &Path) -> Result<Option<LockFile>> {
        let io = |error| Error::io("unable to lock", path, error);
        if let Some(parent) = path.parent() {
            match make_dirs(system.as_ref(), self.permissions(), parent) {
                Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(None),
                made => made.map_err(io)?,
            }
            let stat = system.stat(parent).map_err(io)?;
            if stat.kind != FileKind::Directory {
                return Ok(None);
            }
        }
        self.lock(system, path).map(Some)
    }
}

/// Makes a directory that no repair has used.
fn new_aside(system: &dyn System, common: &Path) -> Result<PathBuf> {
    let top = common.join(ASIDE);
    let failed = |error| Error::io("cannot create", &top, error);
    make_dirs(system, SharedRepository::Umask, &top).map_err(failed)?;
    // A repair that was cut short may have made it, and no more.
    system.sync_dir(common).map_err(failed)?;
    let mut number = 1;
    loop {
        let dir = top.join(number.to_string());
        match system.create_dir(&dir) {
            Ok(()) => {
                system.sync_dir(&top).map_err(failed)?;
                return Ok(dir);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(failed(error)),
        }
    }
}

/// Copies a file, whatever it is, below `aside`, where `there` reaches.
fn keep(
    system: &dyn System,
    there: &dyn System,
    file: &Path,
    aside: &Path,
    inner: &Path,
) -> io::Result<()> {
    let copy = aside.join(inner);
    let stat = match system.lstat(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        stat => stat?,
    };
    if let Some(parent) = copy.parent() {
        make_dirs(there, SharedRepository::Umask, parent)?;
    }
    match stat.kind {
        FileKind::Symlink => {
            there.symlink(&system.read_link(file)?, &copy)?;
            sync_parent(there, &copy)
        }
        FileKind::File => write_new(there, &copy, &system.read(file)?),
        // There is no content to be kept.
        FileKind::Directory | FileKind::Other => Ok(()),
    }
}

/// Writes a table: what has the name of one is whole.
fn write_table(
    system: &dyn System,
    permissions: SharedRepository,
    path: &Path,
    content: &[u8],
) -> io::Result<()> {
    let temporary = suffixed(path, &format!(".temp.{:08x}", short_random(system)));
    write_new(system, &temporary, content)?;
    permissions.adjust(system, &temporary)?;
    system.rename(&temporary, path)?;
    sync_parent(system, path)
}

fn write_new(system: &dyn System, path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = system.create_new(path, 0o666)?;
    file.write_all(content)?;
    file.sync()?;
    sync_parent(system, path)
}

fn sync_parent(system: &dyn System, path: &Path) -> io::Result<()> {
    path.parent()
        .map_or(Ok(()), |parent| system.sync_dir(parent))
}

/// Creates a directory and those above it, each durable: what is kept must not hang on a name that
/// goes with the power.
fn make_dirs(system: &dyn System, permissions: SharedRepository, dir: &Path) -> io::Result<()> {
    match system.create_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match dir.parent() {
            Some(parent) => {
                make_dirs(system, permissions, parent)?;
                system.create_dir(dir)?;
            }
            None => return Err(error),
        },
        made => made?,
    }
    permissions.adjust(system, dir)?;
    sync_parent(system, dir)
}
