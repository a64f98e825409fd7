//! A machine's cache of tables: what was fetched once is mapped from then on, so that cursors keep what
//! they read from whatever is collected.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::head::TableEntry;
use crate::error::{Error, OrIo, Result};
use crate::system::{Bytes, System, if_there};

#[derive(Debug)]
pub(super) struct TableCache {
    system: Arc<dyn System>,
    dir: PathBuf,
}

impl TableCache {
    /// Opens the cache in a directory, which is made if need be.
    pub(super) fn open(system: Arc<dyn System>, dir: &Path) -> Result<TableCache> {
        match system.create_dir(dir) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(Error::io("cannot create", dir, error));
            }
            _ => {}
        }
        let system = system.beneath(dir).or_io("cannot open", dir)?;
        Ok(TableCache {
            system,
            dir: dir.to_owned(),
        })
    }

    fn path(&self, entry: &TableEntry) -> PathBuf {
        self.dir.join(entry.key.to_string())
    }

    /// Returns a table that was kept.
    pub(super) fn find(&self, entry: &TableEntry) -> Result<Option<Bytes>> {
        let path = self.path(entry);
        let kept = if_there(self.system.map(&path)).or_io("cannot read", &path)?;
        // One that was cut off is fetched anew.
        Ok(kept.filter(|content| content.len() as u64 == entry.len))
    }

    /// Keeps a table, as far as that is possible; returns its content from where it is kept.
    pub(super) fn keep(&self, entry: &TableEntry, content: Bytes) -> Bytes {
        let path = self.path(entry);
        let temporary = self.dir.join(format!("tmp-{:016x}", self.system.random()));
        let kept = (|| {
            let mut file = self.system.create_new(&temporary, 0o600)?;
            file.write_all(&content)?;
            drop(file);
            self.system.rename(&temporary, &path)?;
            self.system.map(&path)
        })();
        match kept {
            Ok(mapped) if mapped.len() == content.len() => mapped,
            // A full disk is no reason not to read.
            _ => {
                let _ = self.system.remove_file(&temporary);
                content
            }
        }
    }

    /// Removes the tables that a head does not name; who has one open keeps it.
    pub(super) fn trim(&self, listed: &[TableEntry]) {
        let entries = self.system.read_dir(&self.dir).unwrap_or_default();
        for entry in entries {
            let name = String::from_utf8_lossy(&entry.name);
            let Ok(key) = name.parse() else { continue };
            if !listed.iter().any(|listed| listed.key == key) {
                let _ = self.system.remove_file(&self.dir.join(name.as_ref()));
            }
        }
    }
}
