//! What every step of a migration works with, and what it does with it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use refdb::internals::Home;
use refdb::objects::Objects;
use refdb::options::Interrupt;
use refdb::system::System;
use refdb::{Error, Options, RefFormat, Result};

/// What every step needs.
pub(super) struct Context {
    pub(super) system: Arc<dyn System>,
    /// The system that follows links, should `system` not do so.
    pub(super) followed: Arc<dyn System>,
    pub(super) objects: Arc<dyn Objects>,
    pub(super) options: Options,
    /// The directory of the repository, with its configuration.
    pub(super) common_dir: PathBuf,
    /// The directory with its refs: the same, unless the configuration names another one.
    pub(super) base: PathBuf,
}

impl Context {
    /// Returns whether the refs are kept outside the directory of the repository, where no file has to be
    /// that makes programs take it for one.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.base != self.common_dir
    }

    /// Returns the system that reaches nothing but what is below the directory with the refs.
    pub(super) fn beneath(&self) -> Result<Arc<dyn System>> {
        beneath(&self.system, &self.base)
    }

    /// Returns the system that reaches nothing but what is below the directory of the repository.
    pub(super) fn beneath_repository(&self) -> Result<Arc<dyn System>> {
        match self.is_elsewhere() {
            true => beneath(&self.followed, &self.common_dir),
            false => Ok(Arc::clone(&self.system)),
        }
    }

    /// Returns what clearing up needs: what lies there may have been made by anybody, so that nothing
    /// in it leads out of the repository.
    pub(super) fn strict(&self) -> Result<Context> {
        Ok(self.on(self.beneath()?))
    }

    /// Returns the same for what is done by another system.
    pub(super) fn on(&self, system: Arc<dyn System>) -> Context {
        Context {
            followed: Arc::clone(&self.followed),
            system,
            objects: Arc::clone(&self.objects),
            options: self.options.clone(),
            common_dir: self.common_dir.clone(),
            base: self.base.clone(),
        }
    }

    /// Returns the same for what nobody relies on before [`Context::sync_file_system`] has made it durable, with all
    /// else: where that keeps its word, nothing is synced for itself.
    pub(super) fn synced_later(&self) -> Context {
        let mut later = self.on(Arc::clone(&self.system));
        later.options.fsync &= !self.system.syncs_at_once();
        later
    }

    pub(super) fn store(&self, dir: &Path, format: RefFormat) -> Result<refdb::Store> {
        let mut layout = refdb::layout::Layout::main(dir);
        if dir == self.base {
            layout = layout.with_objects(&self.common_dir.join("objects"));
        }
        refdb::Store::open(
            Arc::clone(&self.system),
            layout,
            format,
            Arc::clone(&self.objects),
            self.options.clone(),
        )
    }

    /// Opens a store that is only read: refs that are links are followed as by everybody who reads.
    pub(super) fn source(&self, dir: &Path, format: RefFormat) -> Result<refdb::Store> {
        self.on(Arc::clone(&self.followed)).store(dir, format)
    }

    /// Whoever asks to stop is not heard any more: what was begun is finished, or undone.
    pub(super) fn unstoppable(mut self) -> Context {
        self.options.interrupt = Interrupt::default();
        self
    }

    /// Returns the repository as its locks know it.
    pub(super) fn home(&self) -> Arc<Home> {
        Home::new(&self.system, &self.base, &self.options)
    }

    pub(super) fn create_dir(&self, dir: &Path) -> Result<()> {
        let shared = self.options.shared_repository;
        self.system
            .create_dir(dir)
            .and_then(|()| shared.adjust(self.system.as_ref(), dir))
            .map_err(|error| Error::io("unable to create", dir, error))
    }

    /// Makes the directory of refs, or gives the one that is there the permissions of a new one, as Git does: with
    /// those that it had, only its owner may be able to make a directory in it.
    pub(super) fn have_refs_dir(&self, dir: &Path) -> Result<()> {
        match self.create_dir(dir) {
            Err(error) if error.io_kind() == Some(io::ErrorKind::AlreadyExists) => {
                // That of another user stays as it is.
                let shared = self.options.shared_repository;
                let _ = shared.adjust(self.system.as_ref(), dir);
                Ok(())
            }
            made => made,
        }
    }

    pub(super) fn write(&self, path: &Path, content: &[u8]) -> Result<()> {
        let shared = self.options.shared_repository;
        let system = self.system.as_ref();
        let mut file = system
            .create_new(path, 0o666)
            .map_err(|error| Error::io("unable to create", path, error))?;
        // The permissions come first: whoever finishes what this process began may be another user.
        let written = shared.adjust(system, path).and_then(|()| {
            file.write_all(content)?;
            match self.options.fsync {
                true => file.sync(),
                false => Ok(()),
            }
        });
        written.map_err(|error| Error::io("unable to write", path, error))
    }

    pub(super) fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.system.rename(from, to).map_err(|error| {
            let what = format!("unable to rename '{}' to", from.display());
            Error::io(&what, to, error)
        })
    }

    pub(super) fn sync_dir(&self, dir: &Path) -> Result<()> {
        if !self.options.fsync {
            return Ok(());
        }
        self.system
            .sync_dir(dir)
            .map_err(|error| Error::io("unable to sync", dir, error))
    }

    pub(super) fn sync_file_system(&self, dir: &Path) -> Result<()> {
        if !self.options.fsync {
            return Ok(());
        }
        self.system
            .sync_file_system(dir)
            .map_err(|error| Error::io("unable to sync", dir, error))
    }
}

fn beneath(system: &Arc<dyn System>, dir: &Path) -> Result<Arc<dyn System>> {
    let beneath = system.beneath(dir);
    beneath.map_err(|error| Error::io("unable to open", dir, error))
}
