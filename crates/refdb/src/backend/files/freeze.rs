//! Keeping every other writer out of a store of files, while readers go on.
//!
//! A ref is written under its lock, and a lock is a file beside the loose ref. So a ref is kept from
//! being written by a lock, or by having no directory in which its lock could be: a directory that
//! has no loose refs is replaced by a link that leads nowhere. Readers find nothing behind such a
//! link and look into packed-refs; writers cannot make the directory. This way a store with a hundred
//! thousand packed refs takes few locks.
//!
//! Invariants:
//! 1. Nothing is hidden from readers at any moment: a directory is replaced only when it is empty.
//! 2. Names that exist when the store is frozen cannot be written. New names can be made only in
//!    directories that have loose refs; [`Frozen::names`] tells them from the others.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use refdb_names::ObjectId;
use refdb_names::name::is_root_ref;

use super::Files;
use super::packed_cursor::PackedCursor;
use crate::backend::bulk::{Frozen, Locks};
use crate::backend::cursor::Cursor;
use crate::commit::Entry;
use crate::commit::entries::{FREEZE, is_frozen};
use crate::error::{Error, ErrorKind, Result};
use crate::system::{FileKind, bytes_to_path};

/// Root refs that Git writes, whether they are there or not.
const ROOT_REFS: [&[u8]; 11] = [
    b"AUTO_MERGE",
    b"BISECT_EXPECTED_REV",
    b"BISECT_HEAD",
    b"CHERRY_PICK_HEAD",
    b"HEAD",
    b"MERGE_AUTOSTASH",
    b"NOTES_MERGE_PARTIAL",
    b"NOTES_MERGE_REF",
    b"ORIG_HEAD",
    b"REBASE_HEAD",
    b"REVERT_HEAD",
];

/// How often a directory is looked at again because others made refs in it.
const ATTEMPTS: usize = 1000;

type Names = Vec<Vec<u8>>;

/// A store that nobody else writes to.
pub(super) struct FrozenFiles {
    files: Arc<Files>,
    names: HashSet<Vec<u8>>,
    locks: Locks,
    barriers: Vec<Barrier>,
    barred: HashSet<PathBuf>,
    left: bool,
}

/// What came of putting a link where a directory would be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Barred {
    /// It is there.
    Done,
    /// Something else is there, or was.
    Not,
    /// The directory above is not there.
    NoPlace,
}

/// A link in the place of a directory.
struct Barrier {
    path: PathBuf,
    was_directory: bool,
}

impl FrozenFiles {
    pub(super) fn new(files: Arc<Files>) -> Result<FrozenFiles> {
        let locks = Locks::new(&files.home, files.options.shared_repository);
        let mut frozen = FrozenFiles {
            files,
            names: HashSet::new(),
            locks,
            barriers: Vec::new(),
            barred: HashSet::new(),
            left: false,
        };
        frozen.root_refs()?;
        frozen.dir(b"refs")?;
        let packed = frozen.files.packed.resolved_path()?;
        let system = Arc::clone(&frozen.files.system);
        frozen.locks.take(system.as_ref(), &packed)?;
        // Refs that were packed meanwhile may have no loose file any more.
        frozen.files.packed.forget();
        frozen.dir(b"refs")?;
        Ok(frozen)
    }

    fn base(&self) -> &Path {
        self.files.layout.common_dir()
    }

    fn root_refs(&mut self) -> Result<()> {
        let mut names: Vec<Vec<u8>> = ROOT_REFS.iter().map(|name| name.to_vec()).collect();
        for entry in self.files.entries(self.base())?.unwrap_or_default() {
            let name = entry.name.strip_suffix(b".lock").unwrap_or(&entry.name);
            if is_root_ref(name) && entry.kind != FileKind::Directory {
                names.push(name.to_vec());
            }
        }
        for name in names {
            self.lock(name)?;
        }
        Ok(())
    }

    /// Takes the lock of a name, unless it is held; returns whether it was not.
    fn lock(&mut self, name: Vec<u8>) -> Result<bool> {
        if self.names.contains(&name) {
            return Ok(false);
        }
        let path = self.base().join(bytes_to_path(&name));
        match self.locks.take(self.files.system.as_ref(), &path) {
            Ok(()) => {
                self.names.insert(name);
            }
            // Its directory went: there is nothing to lock any more, and the caller looks again.
            Err(error) if error.io_kind() == Some(io::ErrorKind::NotFound) => {}
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Keeps writers out of everything below a directory; returns whether it has a place: if not, the
    /// directory above it went, and is to be looked at again.
    fn dir(&mut self, dir: &[u8]) -> Result<bool> {
        let path = self.base().join(bytes_to_path(dir));
        if self.barred.contains(&path) && is_frozen(self.files.system.as_ref(), &path) {
            return Ok(true);
        }
        for _ in 0..ATTEMPTS {
            let entries = match self.files.entries(&path)? {
                Some(entries) if entries.is_empty() && dir != b"refs" => {
                    if self.replace(&path)? == Barred::Done {
                        return Ok(true);
                    }
                    continue;
                }
                Some(entries) => entries,
                None => match self.bar(&path, false)? {
                    Barred::Done => return Ok(true),
                    Barred::Not => continue,
                    Barred::NoPlace => return Ok(false),
                },
            };
            let mut changed = false;
            let (mut names, mut dirs) = self.packed_in(dir)?;
            for entry in entries {
                let full = [dir, b"/", &entry.name].concat();
                match Entry::of(self.files.system.as_ref(), &path, &entry) {
                    Entry::Dir => dirs.push(full),
                    // Of a ref that is locked, and listed for its lock.
                    Entry::NewValue => {}
                    // Something else is as well locked.
                    Entry::Ref | Entry::Lock | Entry::Barrier => {
                        names.push(full.strip_suffix(b".lock").unwrap_or(&full).to_vec())
                    }
                }
            }
            dirs.sort();
            dirs.dedup();
            for child in dirs {
                changed |= !self.dir(&child)?;
            }
            for name in names {
                if !self
                    .barred
                    .contains(&self.base().join(bytes_to_path(&name)))
                {
                    changed |= self.lock(name)?;
                }
            }
            if !changed {
                return Ok(true);
            }
        }
        let message = format!(
            "unable to keep other writers out of '{}': refs are made in it all the time",
            path.display()
        );
        Err(Error::new(ErrorKind::Locked, message))
    }

    /// Replaces an empty directory by a link that leads nowhere; returns whether that came off.
    fn replace(&mut self, path: &Path) -> Result<Barred> {
        match self.files.system.remove_dir(path) {
            Ok(()) => self.bar(path, true),
            Err(error) if super::log::is_absent(&error) => Ok(Barred::Not),
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(Barred::Not),
            Err(error) => Err(Error::io("unable to remove", path, error)),
        }
    }

    /// Puts a link that leads nowhere where no directory is; returns whether that came off.
    fn bar(&mut self, path: &Path, was_directory: bool) -> Result<Barred> {
        match self.files.system.symlink(Path::new(FREEZE), path) {
            Ok(()) => {
                self.barriers.push(Barrier {
                    path: path.to_owned(),
                    was_directory,
                });
                self.barred.insert(path.to_owned());
                Ok(Barred::Done)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if is_frozen(self.files.system.as_ref(), path) {
                    return Ok(Barred::Done);
                }
                // A transaction has locked the directory for the time that it takes.
                self.locks.pass(self.files.system.as_ref(), path)?;
                Ok(Barred::Not)
            }
            Err(error) if super::log::is_absent(&error) => Ok(Barred::NoPlace),
            Err(error) => Err(Error::io("unable to create", path, error)),
        }
    }

    /// Returns the packed refs directly in a directory, and the directories of those further below.
    fn packed_in(&self, dir: &[u8]) -> Result<(Names, Names)> {
        let snapshot = self.files.packed.snapshot()?;
        let null = ObjectId::null(self.files.options.object_format);
        let mut cursor = PackedCursor::new(snapshot, null, false);
        let prefix = [dir, b"/"].concat();
        let (mut names, mut dirs) = (Vec::new(), Vec::new());
        cursor.seek(&prefix, &prefix)?;
        while cursor.advance()? {
            let name = cursor.name().as_bytes();
            let rest = name.get(prefix.len()..).unwrap_or_default();
            match rest.iter().position(|&byte| byte == b'/') {
                None => names.push(name.to_vec()),
                Some(slash) => {
                    let child = name
                        .get(..prefix.len() + slash)
                        .unwrap_or_default()
                        .to_vec();
                    // The byte behind `/`: everything below the directory is passed over.
                    let behind = [&child[..], b"0"].concat();
                    dirs.push(child);
                    cursor.seek(&behind, &prefix)?;
                }
            }
        }
        Ok((names, dirs))
    }
}

impl Frozen for FrozenFiles {
    fn names(&self) -> Vec<&[u8]> {
        self.names.iter().map(Vec::as_slice).collect()
    }

    fn check(&self) -> Result<()> {
        self.locks.check()?;
        let system = self.files.system.as_ref();
        match (self.barriers.iter()).find(|barrier| !is_frozen(system, &barrier.path)) {
            None => Ok(()),
            Some(barrier) => {
                let path = barrier.path.display();
                let text = format!("'{path}', which kept other writers out, was removed");
                Err(Error::new(ErrorKind::Locked, text))
            }
        }
    }

    fn leave(&mut self) {
        self.left = true;
    }

    fn abandon(&mut self) {
        for lock in &mut self.locks.taken {
            lock.abandon();
        }
    }
}

impl Drop for FrozenFiles {
    fn drop(&mut self) {
        if self.left {
            return;
        }
        let system = self.files.system.as_ref();
        for barrier in self.barriers.drain(..).rev() {
            // What fails here stays for the next migration to clean up: nobody else is told.
            let removed = system.remove_file(&barrier.path);
            if removed.is_ok() && barrier.was_directory && system.create_dir(&barrier.path).is_ok()
            {
                let shared = self.files.options.shared_repository;
                let _ = shared.adjust(system, &barrier.path);
            }
        }
    }
}
