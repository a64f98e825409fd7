//! A machine's cache of tables: what was fetched once is mapped from then on, so that cursors keep what
//! they read from whatever is collected.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::head::TableEntry;
use crate::error::{Error, OrIo, Result};
use crate::system::{Bytes, System, if_there};

/// What the names of tables begin with that are being written.
const BEGUN: &str = "tmp-";

/// Nobody writes a table for so long: one that is older was left by a process that ended.
const WRITTEN_MAX: Duration = Duration::from_secs(3600);

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
        // One that is cut off is fetched anew. It was synced before it got its name, so that no loss of power tears it: to
        // look at every byte would take each process that asks for one ref as long as to read them all.
        Ok(kept.filter(|content| content.len() as u64 == entry.len))
    }

    /// Keeps a table, as far as that is possible; returns its content from where it is kept.
    pub(super) fn keep(&self, entry: &TableEntry, content: Bytes) -> Bytes {
        let path = self.path(entry);
        let temporary = format!("{BEGUN}{:016x}", self.system.random());
        let temporary = self.dir.join(temporary);
        let kept = (|| {
            let mut file = self.system.create_new(&temporary, 0o600)?;
            file.write_all(&content)?;
            file.sync()?;
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

    /// Removes the tables that a head does not name, and what was begun long ago; who has one open keeps it.
    pub(super) fn trim(&self, listed: &[TableEntry]) {
        // A cache that cannot be read is trimmed by the next one: what is in it does no harm.
        let entries = self.system.read_dir(&self.dir).unwrap_or_default();
        for entry in entries {
            let name = String::from_utf8_lossy(&entry.name);
            let path = self.dir.join(name.as_ref());
            let is_needless = match name.parse() {
                Ok(key) => !listed.iter().any(|listed| listed.key == key),
                Err(_) => name.starts_with(BEGUN) && self.is_old(&path),
            };
            if is_needless {
                let _ = self.system.remove_file(&path);
            }
        }
    }

    fn is_old(&self, path: &Path) -> bool {
        let now = i128::try_from(self.system.now().as_nanos()).unwrap_or(i128::MAX);
        let most = i128::try_from(WRITTEN_MAX.as_nanos()).unwrap_or(i128::MAX);
        let stat = self.system.lstat(path);
        stat.is_ok_and(|stat| now.saturating_sub(stat.mtime_ns) > most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::head::checksum;
    use crate::system::OsSystem;

    fn scene() -> (tempfile::TempDir, TableCache, TableEntry, Bytes) {
        let temp = tempfile::tempdir().unwrap();
        let cache = TableCache::open(Arc::new(OsSystem::new()), temp.path()).unwrap();
        let content = Bytes::from(b"the content of a table".to_vec());
        let key = "0x000000000001-0x000000000001-70a0facc70a0facc.ref";
        let entry = TableEntry {
            key: key.parse().unwrap(),
            len: content.len() as u64,
            checksum: checksum(&content),
        };
        (temp, cache, entry, content)
    }

    #[test]
    fn a_table_that_was_cut_off_is_as_good_as_none() {
        let (_temp, cache, entry, content) = scene();
        assert!(cache.find(&entry).unwrap().is_none());
        cache.keep(&entry, content.clone());
        assert_eq!(cache.find(&entry).unwrap().as_deref(), Some(&*content));
        std::fs::write(cache.path(&entry), &content[1..]).unwrap();
        assert!(cache.find(&entry).unwrap().is_none());
        cache.keep(&entry, content.clone());
        assert_eq!(cache.find(&entry).unwrap().as_deref(), Some(&*content));
    }

    #[test]
    fn what_was_begun_long_ago_goes() {
        let (temp, cache, entry, content) = scene();
        cache.keep(&entry, content);
        let [old, new, other] = ["tmp-1", "tmp-2", "other"].map(|name| temp.path().join(name));
        let long_ago = std::time::SystemTime::now() - WRITTEN_MAX * 2;
        for path in [&old, &new, &other] {
            let file = std::fs::File::create(path).unwrap();
            if path != &new {
                file.set_modified(long_ago).unwrap();
            }
        }
        cache.trim(std::slice::from_ref(&entry));
        assert!(!old.exists() && new.exists() && other.exists());
        assert!(cache.path(&entry).exists());
        cache.trim(&[]);
        assert!(!cache.path(&entry).exists());
    }
}
