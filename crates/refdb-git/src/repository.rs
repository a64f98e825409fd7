//! Opening a repository as Git does: finding it, reading its format and configuration, and giving
//! out its refs and objects.
//!
//! 1. What Git would refuse to open is refused, for the same reason in the same words: a version
//!    or extension that is not understood, another user's directory.
//! 2. The environment is read through [`Environment`] and files through the [`System`], so that a
//!    test can bring its own.
//!
//! ```no_run
//! use refdb_git::repository::OpenOptions;
//!
//! let repository = OpenOptions::new()
//!     .config("core.fsync=none")
//!     .open("/srv/repo.git".as_ref())?;
//! println!("{}", repository.git_dir().display());
//! # Ok::<(), refdb::Error>(())
//! ```

pub mod config;
mod discover;
mod environment;
pub(crate) mod format;
mod history;
mod hooks;
mod identity;
pub(crate) mod moved;
mod open;
mod ownership;
pub(crate) mod paths;
mod replace;
mod settings;
mod shared;
mod view;
mod worktrees;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use bstr::{BString, ByteSlice};
use config::Config;
use refdb::error::Message;
use refdb::internals::{MIGRATION, is_absent};
use refdb::layout::Layout;
use refdb::name::{FormatOptions, is_well_formed};
use refdb::shared::Register;
use refdb::system::{FileKind, System};
use refdb::{Error, ErrorKind, ObjectFormat, Options, RefFormat, Result, Store};

use crate::date::Zone;
use crate::objects::Odb;
pub use environment::Environment;
pub use hooks::{Ending, Notice, Program, Programs};
pub use open::OpenOptions;
pub(crate) use paths::real as real_path;
pub use settings::{FSYNC_OF_OTHERS, FSYNC_OF_REFS};
pub use worktrees::Worktree;

/// A repository, seen from one of its worktrees.
#[derive(Clone, Debug)]
pub struct Repository {
    system: Arc<dyn System>,
    environment: Environment,
    git_dir: PathBuf,
    common_dir: PathBuf,
    refs_dir: Option<PathBuf>,
    /// Whether the refs are not those of the common directory that was named.
    has_other_refs: bool,
    work_tree: Option<PathBuf>,
    bare: bool,
    zone: OnceLock<Zone>,
    namespace: BString,
    config: Arc<Config>,
    odb: Arc<Odb>,
    store: Store,
    register: Option<Arc<Register>>,
    hooks: Option<Arc<hooks::Hooks>>,
    warnings: Vec<String>,
    again: Arc<open::Again>,
}

impl Repository {
    /// Finds the repository that `start` is in, with the process's environment.
    ///
    /// # Errors
    /// `Repository` when there is none or it may not be opened, `Unsupported` for a format that is
    /// not understood, `Config` for configuration that makes no sense.
    pub fn discover(start: &Path) -> Result<Repository> {
        OpenOptions::new().discover(start)
    }

    /// Opens the repository whose directory (or gitfile) is `git_dir`.
    ///
    /// # Errors
    /// As for [`Repository::discover`].
    pub fn open(git_dir: &Path) -> Result<Repository> {
        OpenOptions::new().open(git_dir)
    }

    /// Opens the repository once more, in the same way: with the configuration, the format and the objects
    /// that it has now. What was opened before stays as it is.
    ///
    /// # Errors
    /// As for [`Repository::discover`].
    pub fn reload(&self) -> Result<Repository> {
        self.again.open()
    }

    /// Returns whether a migration between the formats was killed here and nobody has cleared up after it.
    /// The refs are whole, but its locks may keep writers waiting until `finish_interrupted` of the crate
    /// `refdb-maintenance` is called.
    ///
    /// # Errors
    /// `Io` when that cannot be told.
    pub fn is_migration_interrupted(&self) -> Result<bool> {
        let folder = self.common_dir.join(MIGRATION);
        match self.system.lstat(&folder) {
            Err(error) if is_absent(&error) => Ok(false),
            Err(error) => Err(Error::io("unable to read", &folder, error)),
            Ok(stat) => Ok(stat.kind == FileKind::Directory && !self.system.is_taken(&folder)),
        }
    }

    /// Returns the refs, as the current worktree sees them.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns where the refs are if many machines share them (`refdb.store`).
    pub fn register(&self) -> Option<&Arc<Register>> {
        self.register.as_ref()
    }

    /// Returns the objects.
    pub fn odb(&self) -> &Arc<Odb> {
        &self.odb
    }

    /// Returns the directory of the current worktree's own state.
    pub fn git_dir(&self) -> &Path {
        &self.git_dir
    }

    /// Returns the directory that all worktrees share.
    pub fn common_dir(&self) -> &Path {
        &self.common_dir
    }

    /// Returns the top of the current work tree; `None` if there is none.
    pub fn work_tree(&self) -> Option<&Path> {
        self.work_tree.as_deref()
    }

    /// Returns whether a directory, as the system names it, is in the work tree: what is in the
    /// repository itself is not.
    pub fn is_in_work_tree(&self, dir: &Path) -> bool {
        let real = |top: &Path| real_path(self.system.as_ref(), top);
        let is_below = |top: &Path| real(top).is_ok_and(|real| dir.starts_with(real));
        self.work_tree().is_some_and(is_below) && !is_below(self.git_dir())
    }

    /// Returns whether the repository has no work tree and does not claim to have one.
    pub fn is_bare(&self) -> bool {
        self.bare
    }

    /// Returns the configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the environment that the repository was opened in.
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// Returns the system that files are read through.
    pub fn system(&self) -> &Arc<dyn System> {
        &self.system
    }

    /// Returns the object format.
    pub fn object_format(&self) -> ObjectFormat {
        self.odb.format()
    }

    /// Returns the format that refs are kept in.
    pub fn ref_format(&self) -> RefFormat {
        self.store.format()
    }

    /// Returns where refs are kept, if not in the repository's own directory.
    pub fn refs_dir(&self) -> Option<&Path> {
        self.refs_dir.as_deref()
    }

    /// Returns the directory that refs, their locks and their journal are below, where no worktree has its own.
    pub fn refs_base(&self) -> &Path {
        self.refs_dir().unwrap_or(self.common_dir())
    }

    /// Returns whether `GIT_COMMON_DIR` names another directory than the one that has the refs: for Git, that says where
    /// configuration and objects are, and not where refs are.
    pub fn has_other_refs(&self) -> bool {
        self.has_other_refs
    }

    /// Returns the local time zone.
    pub fn zone(&self) -> &Zone {
        self.zone
            .get_or_init(|| self.environment.zone(self.system.as_ref()))
    }

    /// Returns the moment that dates such as `yesterday` and `2 days ago` are counted from, in seconds since 1970: that
    /// of the clock, or what `GIT_TEST_DATE_NOW` says. What is written is dated by the clock.
    pub fn now(&self) -> u64 {
        self.environment.now(self.system.as_ref())
    }

    /// Returns the prefix of the refs that commands of transport show: `refs/namespaces/<name>/` for
    /// each part of the namespace, empty without one. The refs themselves know nothing of it.
    ///
    /// # Errors
    /// `Misuse` when the namespace is no name of a ref.
    pub fn namespace(&self) -> Result<BString> {
        let mut prefix = BString::default();
        for part in self
            .namespace
            .split_str("/")
            .filter(|part| !part.is_empty())
        {
            prefix.extend_from_slice(b"refs/namespaces/");
            prefix.extend_from_slice(part);
            prefix.push(b'/');
        }
        let name = prefix.strip_suffix(b"/").unwrap_or(&prefix);
        if !name.is_empty() && !is_well_formed(name, FormatOptions::FULL) {
            return Err(Error::new(
                ErrorKind::Misuse,
                format!("bad git namespace path \"{}\"", self.namespace),
            ));
        }
        Ok(prefix)
    }

    /// Runs the hooks that there are for an event, such as `update`, as Git does: those of the configuration,
    /// and the file. Returns whether all ended well. Without [`Programs`] there are none.
    ///
    /// # Errors
    /// `Config` for hooks that are configured in part.
    pub fn run_hooks(&self, event: &str, args: &[BString], input: &[u8]) -> Result<bool> {
        let hooks = self.hooks.as_ref();
        hooks.map_or(Ok(true), |hooks| hooks.run(event, args, input))
    }

    /// Returns what was strange about the configuration and yet no reason to stop.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns the main worktree, then the linked ones in the order of their ids.
    ///
    /// # Errors
    /// `Io` when the directory of linked worktrees cannot be read.
    pub fn worktrees(&self) -> Result<Vec<Worktree>> {
        worktrees::list(self.system.as_ref(), &self.common_dir)
    }

    /// Returns the refs as another worktree sees them.
    ///
    /// # Errors
    /// As for [`Store::open`].
    pub fn worktree_store(&self, worktree: &Worktree) -> Result<Store> {
        let layout = self.worktree_layout(worktree)?;
        self.open_store(layout, self.store.options().clone())
    }

    /// As [`worktree_store`](Self::worktree_store); `None` for a linked worktree that has no refs, since those of the
    /// repository are in a store that machines share, which it cannot use.
    ///
    /// # Errors
    /// As there.
    pub fn worktree_store_if_any(&self, worktree: &Worktree) -> Result<Option<Store>> {
        match self.worktree_store(worktree) {
            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(None),
            store => store.map(Some),
        }
    }

    /// Returns where the refs of a worktree are kept.
    pub fn worktree_layout(&self, worktree: &Worktree) -> Result<Layout> {
        let refs_dir = self.refs_dir.as_deref();
        let layout = open::layout(&worktree.git_dir, &self.common_dir, refs_dir)?;
        Ok(layout.with_objects(self.odb.dir()))
    }

    /// Returns how many digits `core.abbrev` asks for; `None` for as many as it takes.
    ///
    /// # Errors
    /// `Config` when the value is out of range.
    pub fn abbreviation(&self) -> Result<Option<usize>> {
        settings::abbreviation(&self.config, self.object_format())
    }

    fn open_store(&self, layout: Layout, options: Options) -> Result<Store> {
        if let Some(register) = &self.register {
            let (register, odb) = (Arc::clone(register), Arc::clone(&self.odb));
            return Store::open_shared_beside(&layout, register, odb, options);
        }
        Store::open(
            Arc::clone(&self.system),
            layout,
            self.store.format(),
            Arc::clone(&self.odb) as _,
            options,
        )
    }
}

/// Makes the error of a path that is no repository, or may not be opened.
fn refused(message: impl Into<Message>) -> Error {
    Error::new(ErrorKind::Repository, message)
}
