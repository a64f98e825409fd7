//! A shared place in a directory: `file://`. What a lock keeps apart is replaced by renaming.
//!
//! Invariants:
//! 1. No link is followed, and no name leads out of the directory.
//! 2. What is stored is durable, content and name, before anybody is told.
//! 3. The lock ends with its process: what a dead one left is taken over, never waited for.

use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::head::{HEAD_LEN_MAX, checksum};
use super::memory::part;
use super::{Read, Shared, Swap, Version};
use crate::error::{Error, ErrorKind, Result};
use crate::system::{Bytes, Guard, GuardedFile, System};

/// How long the lock is waited for: it is held for one write.
const LOCK_MAX: Duration = Duration::from_secs(10);

/// A place in a directory that the processes of one machine share.
#[derive(Debug)]
pub struct DirShared {
    system: Arc<dyn System>,
    root: PathBuf,
}

/// Who has the lock; dropping it gives the lock back.
struct Lock<'d> {
    place: &'d DirShared,
    _taken: Taken,
}

enum Taken {
    New(#[expect(dead_code, reason = "open, it is taken")] Box<dyn GuardedFile>),
    Left(#[expect(dead_code, reason = "open, it is taken")] Guard),
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        // Removed while it is taken: whoever opened it finds that the name is another file's.
        let _ = self.place.system.remove_file(&self.place.lock_path());
    }
}

/// Returns whether there is nothing of that name. A link, or a file in the place of a directory, is
/// something.
fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

impl DirShared {
    /// Opens the place in a directory that is there. With `make`, a directory that is empty or missing
    /// becomes one.
    ///
    /// # Errors
    /// `Io` when it cannot be made or opened; `Misuse` for a relative path.
    pub fn open(system: &dyn System, root: &Path, make: bool) -> Result<DirShared> {
        if !root.is_absolute() {
            let what = format!(
                "the path of a store is absolute, and '{}' is not",
                root.display()
            );
            return Err(Error::new(ErrorKind::Misuse, what));
        }
        let create = |path: &Path| match system.create_dir(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(Error::io("cannot create", path, error))
            }
            _ => Ok(()),
        };
        if make {
            create(root)?;
        }
        let below = system.beneath(root);
        let below = below.map_err(|error| Error::io("cannot open", root, error))?;
        if make {
            for dir in ["head", "probe", "tables", "tmp"] {
                create(&root.join(dir))?;
            }
            below
                .sync_dir(root)
                .map_err(|error| Error::io("cannot sync", root, error))?;
        }
        Ok(DirShared {
            system: below,
            root: root.to_owned(),
        })
    }

    fn lock_path(&self) -> PathBuf {
        self.root.join("head").join("lock")
    }

    fn slot_path(&self, slot: u32) -> PathBuf {
        self.root.join("head").join(slot.to_string())
    }

    /// Returns the path of an object, the parts of whose name are plain.
    fn path(&self, key: &str) -> Result<PathBuf> {
        let is_plain = |part: &str| {
            !part.is_empty()
                && !part.starts_with('.')
                && part
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        };
        let has_dir = key
            .split_once('/')
            .is_some_and(|(dir, name)| matches!(dir, "tables" | "probe") && is_plain(name));
        match has_dir {
            true => Ok(self.root.join(key)),
            false => {
                let what = format!("{}: '{key}' is not the name of an object", self.name());
                Err(Error::new(ErrorKind::Misuse, what))
            }
        }
    }

    fn lock(&self) -> Result<Lock<'_>> {
        let path = self.lock_path();
        let begun = self.system.now();
        let failed = |error| Error::io("cannot lock", &path, error);
        loop {
            let taken = match self.system.create_guarded(&path, 0o666) {
                Ok(file) => Some(Taken::New(file)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    let left = self.system.guard_file(&path).map_err(failed)?;
                    left.map(Taken::Left)
                }
                Err(error) => return Err(failed(error)),
            };
            if let Some(taken) = taken {
                return Ok(Lock {
                    place: self,
                    _taken: taken,
                });
            }
            if self.system.now().saturating_sub(begun) > LOCK_MAX {
                let what = format!("'{}' is locked by another process", path.display());
                return Err(Error::new(ErrorKind::Locked, what));
            }
            let spread = Duration::from_micros(self.system.random() % 500);
            self.system.sleep(Duration::from_micros(200) + spread);
        }
    }

    /// Gives a file a content, durably, in one step.
    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let name = format!("{:016x}", self.system.random());
        let temporary = self.root.join("tmp").join(name);
        let done = (|| {
            let mut file = self.system.create_new(&temporary, 0o666)?;
            file.write_all(content)?;
            file.sync()?;
            drop(file);
            self.system.rename(&temporary, path)
        })();
        if done.is_err() {
            let _ = self.system.remove_file(&temporary);
        }
        done
    }

    fn read(&self, slot: u32) -> Result<Option<(Bytes, Version)>> {
        let path = self.slot_path(slot);
        match self.system.read_at_most(&path, HEAD_LEN_MAX + 1) {
            Ok(content) => {
                // Every head has a random number in it.
                let version = format!("{:016x}-{}", checksum(&content), content.len());
                Ok(Some((Bytes::from(content), Version(version))))
            }
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(Error::io("cannot read", &path, error)),
        }
    }
}

impl Shared for DirShared {
    fn name(&self) -> String {
        format!("file://{}", self.root.display())
    }

    fn head(&self, slot: u32, known: Option<&Version>) -> Result<Read> {
        Ok(match self.read(slot)? {
            None => Read::Missing,
            Some((_, version)) if known == Some(&version) => Read::Same,
            Some((content, version)) => Read::Head(content, version),
        })
    }

    fn swap(&self, slot: u32, expected: Option<&Version>, new: &[u8]) -> Result<Swap> {
        let _lock = self.lock()?;
        let found = self.read(slot)?.map(|found| found.1);
        if found.as_ref() != expected {
            return Ok(Swap::Moved);
        }
        let path = self.slot_path(slot);
        let failed = |error| Error::io("cannot replace", &path, error);
        self.write(&path, new).map_err(failed)?;
        // It is seen by others already, and may be gone after a power failure.
        match self.system.sync_dir(&self.root.join("head")) {
            Ok(()) => {
                let version = format!("{:016x}-{}", checksum(new), new.len());
                Ok(Swap::Done(Version(version)))
            }
            Err(_) => Ok(Swap::Unknown),
        }
    }

    fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Option<Bytes>> {
        let path = self.path(key)?;
        match self.system.map(&path) {
            Ok(content) => Ok(Some(part(&content, range))),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(Error::io("cannot read", &path, error)),
        }
    }

    fn put(&self, key: &str, content: &[u8]) -> Result<()> {
        let path = self.path(key)?;
        let stored = self.write(&path, content);
        let parent = path.parent().unwrap_or(&self.root);
        stored
            .and_then(|()| self.system.sync_dir(parent))
            .map_err(|error| Error::io("cannot store", &path, error))
    }

    fn delete(&self, keys: &[&str]) -> Result<()> {
        for key in keys {
            let path = self.path(key)?;
            match self.system.remove_file(&path) {
                Err(error) if !is_missing(&error) => {
                    return Err(Error::io("cannot remove", &path, error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn clear(&self, slots: Range<u32>) -> Result<()> {
        let _lock = self.lock()?;
        for path in slots.map(|slot| self.slot_path(slot)) {
            match self.system.remove_file(&path) {
                Err(error) if !is_missing(&error) => {
                    return Err(Error::io("cannot remove", &path, error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>> {
        let (dir, rest) = prefix.split_once('/').unwrap_or((prefix, ""));
        let path = self.root.join(dir);
        let entries = match self.system.read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if is_missing(&error) => return Ok(Vec::new()),
            Err(error) => return Err(Error::io("cannot read", &path, error)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let Ok(name) = String::from_utf8(entry.name) else {
                continue;
            };
            if name.starts_with(rest) && self.path(&format!("{dir}/{name}")).is_ok() {
                let stat = self.system.lstat(&path.join(&name));
                found.push((format!("{dir}/{name}"), stat.map_or(0, |stat| stat.len)));
            }
        }
        found.sort();
        Ok(found)
    }
}
