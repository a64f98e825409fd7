//! The `files` backend: a file for each ref, and packed-refs for the many that seldom change.
//!
//! Invariants:
//! 1. The order of reading is loose, then packed-refs; the order of packing is packed-refs, then
//!    loose. So no ref is ever missing from a reader's view while it moves from one to the other.
//! 2. A name that could lead out of the repository is never made a path: `join` makes all paths of
//!    names, and refuses it.
//!
//! How the parts go together: `loose` and `packed` read the two kinds of files, `overlay` walks
//! over both, `log` reads reflogs; `session` locks, `current` reads what is locked, `publish` and
//! `log_write` (whole reflogs) write what nobody sees yet, `steps` tells what makes it visible and hands that to
//! `commit`, `rewrite` replaces packed-refs, `optimize` packs; `bulk` writes a
//! store from nothing, `freeze` keeps every other writer out.

mod acquire;
mod apart;
mod bars;
mod bulk;
mod current;
mod directories;
mod forwards;
mod freeze;
mod locking;
mod log;
mod log_way;
mod log_write;
mod loose;
mod new_names;
mod optimize;
mod overlay;
mod packed;
mod packed_cursor;
mod publish;
mod rewrite;
mod search;
mod seen;
mod session;
mod steps;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bstr::ByteSlice;
use refdb_names::internals::name_from_disk;
use refdb_names::name::is_path;
use refdb_names::{ObjectFormat, RefName, RefNameBuf, Target};

use super::cursor::Cursor;
use super::tags::Wanted;
use super::{Backend, LogOrder, Optimize, Quirks, RefFormat, Session, Value};
use crate::commit::{Holder, Home, JournalWatch, LockOptions};
use crate::error::{Error, ErrorKind, OrIo, Result};
use crate::layout::{Layout, Place};
use crate::objects::Objects;
use crate::options::Options;
use crate::reflog::LogEntry;
use crate::system::{FileKind, System, bytes_to_path, is_absent};
pub use log::{LOG_LINE_MAX, parse as parse_log_line};
use loose::Loose;
pub use loose::{parse as parse_loose, read_symlink as read_loose_link};
pub use overlay::{TOO_MANY_LINKED, are_too_many_linked};
pub use packed::HEADER as PACKED_HEADER;
use packed::PackedRefs;
use rewrite::PackedLock;

/// Refs in the `files` format.
#[derive(Debug)]
pub(crate) struct FilesBackend {
    files: Arc<Files>,
}

/// What sessions and cursors share with their backend.
#[derive(Debug)]
struct Files {
    system: Arc<dyn System>,
    layout: Layout,
    options: Arc<Options>,
    packed: PackedRefs,
    home: Arc<Home>,
    journal: JournalWatch,
    /// The reflogs that were found to hold lines that are no entries.
    damaged_logs: Mutex<BTreeSet<PathBuf>>,
    /// In which directories reflogs were written anew, and whether what processes that ended have left there was removed.
    rewritten_log_dirs: Mutex<BTreeMap<PathBuf, bool>>,
}

impl FilesBackend {
    pub(crate) fn new(system: Arc<dyn System>, layout: Layout, options: Arc<Options>) -> Self {
        let path = layout.common_dir().join("packed-refs");
        let packed = PackedRefs::new(Arc::clone(&system), path, options.object_format);
        let home = Home::new(&system, layout.common_dir(), &options);
        let journal = JournalWatch::new(&home);
        FilesBackend {
            files: Arc::new(Files {
                system,
                layout,
                options,
                packed,
                home,
                journal,
                damaged_logs: Mutex::default(),
                rewritten_log_dirs: Mutex::default(),
            }),
        }
    }
}

impl Files {
    /// Returns the path of the loose ref `name`.
    ///
    /// # Errors
    /// As for [`join`].
    fn path(&self, name: RefName<'_>) -> Result<(Place, PathBuf)> {
        let (place, bare) = self.layout.locate(name);
        let path = join(self.layout.dir(&place), "", bare)?;
        Ok((place, path))
    }

    /// Returns `name` without the worktree that it may start with.
    fn bare<'n>(&self, name: &'n RefNameBuf) -> &'n [u8] {
        self.layout.locate(name.as_name()).1.as_bytes()
    }

    /// Returns who takes the locks of a new transaction.
    fn holder(&self) -> Holder {
        Holder::new(&self.home)
    }

    /// Takes `packed-refs.lock`.
    ///
    /// # Errors
    /// As for [`PackedLock::acquire`] and [`Files::assert_not_migrated`].
    fn lock_packed(self: &Arc<Files>, holder: &Holder) -> Result<PackedLock> {
        let waiter = holder.looking(new_names::Beside::packed(self));
        let taken = PackedLock::acquire(self, &waiter);
        if taken.is_err() {
            self.still_there()?;
        }
        let lock = taken?;
        // A migration gives the lock back when it is over, to whoever waited for it.
        self.assert_not_migrated()?;
        Ok(lock)
    }

    /// Fails if the refs are in the other format by now. Where locks of this one can be had that is over,
    /// and `refs/heads` is a file.
    ///
    /// # Errors
    /// `Moved`.
    fn assert_not_migrated(&self) -> Result<()> {
        let base = self.layout.common_dir();
        let path = base.join("refs/heads");
        // A ref may be called so as well, where there is no branch.
        let is_ref = || matches!(self.loose(&path), Ok(Loose::Found(_)));
        match self.system.lstat(&path) {
            Ok(stat) if stat.kind == FileKind::File && !is_ref() => Err(Error::new(
                ErrorKind::Moved,
                format!(
                    "'{}' is a file: the refs were migrated to another format; try again",
                    path.display()
                ),
            )),
            _ if self.layout.is_apart() && are_tables(self.system.as_ref(), base) => {
                let base = base.display();
                let what =
                    format!("the refs in '{base}' were migrated to another format; try again");
                Err(Error::new(ErrorKind::Moved, what))
            }
            _ => Ok(()),
        }
    }

    /// As [`Files::assert_not_migrated`], and before the branches are put away: the configuration tells it first.
    ///
    /// # Errors
    /// `Moved`, and whatever is found of the configuration.
    fn still_there(&self) -> Result<()> {
        self.assert_not_migrated()?;
        self.options.still_there()
    }

    /// Returns how locks of refs are taken.
    fn lock_options(&self) -> LockOptions {
        LockOptions::of(&self.options, self.options.files_ref_lock_timeout)
    }

    /// Reads one ref, without following symrefs.
    fn read(&self, name: RefName<'_>) -> Result<Option<Value>> {
        match self.look_for(name)? {
            Sought::Known(value) => Ok(value),
            Sought::MayBePacked { is_below } => {
                self.find_packed(name, &*self.packed.snapshot()?, is_below)
            }
        }
    }

    /// Reads refs as [`Files::read`] does each, and looks once at packed-refs: behind all loose refs, so that
    /// one which was packed meanwhile is found there.
    fn read_all(&self, names: &[RefName<'_>]) -> Vec<Result<Option<Value>>> {
        let sought: Vec<_> = names.iter().map(|&name| self.look_for(name)).collect();
        let may_be_packed = |it: &Result<Sought>| matches!(it, Ok(Sought::MayBePacked { .. }));
        let packed = match sought.iter().any(may_be_packed) {
            true => Some(self.packed.snapshot()),
            false => None,
        };
        let found = sought.into_iter().zip(names);
        let found = found.map(|(sought, &name)| match (sought?, &packed) {
            (Sought::Known(value), _) => Ok(value),
            (Sought::MayBePacked { is_below }, Some(Ok(packed))) => {
                self.find_packed(name, packed, is_below)
            }
            (Sought::MayBePacked { .. }, Some(Err(error))) => Err(error.clone()),
            (Sought::MayBePacked { .. }, None) => Ok(None),
        });
        found.collect()
    }

    /// Reads the file of a loose ref.
    ///
    /// # Errors
    /// As for [`loose::read`].
    fn loose(&self, path: &Path) -> io::Result<Loose> {
        loose::read(self.system.as_ref(), path, self.options.object_format)
    }

    /// Looks for a loose ref.
    fn look_for(&self, name: RefName<'_>) -> Result<Sought> {
        if !may_be_path(name) {
            return Ok(Sought::Known(None));
        }
        let (place, path) = self.path(name)?;
        let missing = |is_below| match place == Place::Common {
            true => Sought::MayBePacked { is_below },
            false => Sought::Known(None),
        };
        match self.loose(&path) {
            Ok(Loose::Found(target)) => Ok(Sought::Known(Some(unpeeled(target)))),
            Ok(Loose::Broken) => Err(broken(name)),
            Ok(Loose::Missing | Loose::Directory) => Ok(missing(false)),
            // A name of more bytes than a file can have is that of no loose ref.
            Err(error) if error.kind() == io::ErrorKind::InvalidFilename => Ok(Sought::Known(None)),
            // A ref is above it. A renaming that stopped half way leaves a packed ref below a loose one.
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(missing(true)),
            Err(error) => Err(Error::io("unable to read", &path, error)),
        }
    }

    /// Looks for a ref of which there is no file among packed ones; `is_below` says that a file is above it.
    fn find_packed(
        &self,
        name: RefName<'_>,
        packed: &packed::Snapshot,
        is_below: bool,
    ) -> Result<Option<Value>> {
        let bare = self.layout.locate(name).1;
        let found = packed.find_ref(bare.as_bytes())?;
        if is_below && found.is_none() && self.options.still_there.is_none() {
            // Whoever knows the configuration finds out by that.
            self.assert_not_migrated()?;
        }
        Ok(found)
    }
}

/// What a look at the file of a ref came to.
enum Sought {
    /// The value, or that there is none.
    Known(Option<Value>),
    /// There is no file, and the name may be packed.
    MayBePacked {
        /// Whether a file is in the way of the name.
        is_below: bool,
    },
}

/// Returns whether the refs in a directory outside of a repository are tables: there is not even a HEAD
/// beside them.
pub fn are_tables(system: &dyn System, base: &Path) -> bool {
    let is_missing = |path: &Path| system.lstat(path).is_err_and(|error| is_absent(&error));
    is_missing(&base.join("HEAD")) && !is_missing(&base.join("reftable/tables.list"))
}

/// Reads a pseudoref, which is a file in the directory of its worktree in every format.
pub(crate) fn pseudoref(
    system: &dyn System,
    dir: &Path,
    name: RefName<'_>,
    format: ObjectFormat,
) -> Result<Option<Value>> {
    let path = join(dir, "", name)?;
    let found = loose::read(system, &path, format).or_io("unable to read", &path)?;
    loose_value(found, name)
}

/// Returns what a loose ref holds; `None` if there is none.
fn loose_value(found: Loose, name: RefName<'_>) -> Result<Option<Value>> {
    match found {
        Loose::Found(target) => Ok(Some(unpeeled(target))),
        Loose::Broken => Err(broken(name)),
        Loose::Missing | Loose::Directory => Ok(None),
    }
}

fn unpeeled(target: Target) -> Value {
    Value {
        target,
        peeled: None,
        packed: false,
    }
}

fn broken(name: RefName<'_>) -> Error {
    Error::new(
        ErrorKind::BrokenRef,
        format!("unable to resolve reference '{name}': reference broken"),
    )
}

/// Returns the path of a name below the folder `folder`, which ends with a slash unless it is empty,
/// of the directory `dir`. Slashes at the end of a name stay: they lead to a directory, if to anything.
///
/// # Errors
/// `InvalidName` when it would lead elsewhere.
fn join(dir: &Path, folder: &str, bare: RefName<'_>) -> Result<PathBuf> {
    let name = bare.as_bytes();
    if !name.is_empty() && !is_path(name.trim_end_with(|end| end == '/')) || is_own_file(name) {
        let message = format!("'{bare}' is no name of a ref: it would lead to another file");
        return Err(Error::new(ErrorKind::InvalidName, message));
    }
    let room = dir.as_os_str().len() + folder.len() + bare.as_bytes().len() + "/".len();
    let mut path = PathBuf::with_capacity(room);
    path.push(dir);
    path.push(folder);
    path.push(bytes_to_path(name));
    Ok(path)
}

/// Returns whether a name can be made a path without leading out of the repository, or to what has
/// another name. With slashes at its end it leads to no file, and the system says what is there.
fn may_be_path(name: RefName<'_>) -> bool {
    let name = name_from_disk(name.as_bytes().trim_end_with(|end| end == '/'));
    name.may_exist() && !is_own_file(name.as_bytes())
}

/// Returns whether a name is, or may be, that of a journal, of a folder of copies, or whatever else stands beside the
/// refs and is none. Git has no such files, and lets a name outside of `refs/` be anything.
fn is_own_file(name: &[u8]) -> bool {
    let start = name.first_chunk::<6>();
    start.is_some_and(|start| {
        [b"refdb.", b"refdb-"]
            .iter()
            .any(|own| start.eq_ignore_ascii_case(*own))
    })
}

impl Backend for FilesBackend {
    fn format(&self) -> RefFormat {
        RefFormat::Files
    }

    fn quirks(&self) -> Quirks {
        Quirks {
            names_are_paths: true,
            asks_in_lower_case: self.files.options.ignore_case,
            null_is_none: true,
            log_edits_read: true,
            compares_on_the_way: false,
            edits_in_turn: true,
            judges_joined: true,
            renames_in_one_entry: true,
            renaming: "renaming",
        }
    }

    fn read(&self, name: RefName<'_>) -> Result<Option<Value>> {
        let view = self.files.journal.for_reading()?;
        self.files.read_seen(name, view.as_deref())
    }

    fn read_all(&self, names: &[RefName<'_>]) -> Result<Vec<Result<Option<Value>>>> {
        let view = self.files.journal.for_reading()?;
        Ok(match view.as_deref() {
            None => self.files.read_all(names),
            view => {
                let each = names.iter().map(|&name| self.files.read_seen(name, view));
                each.collect()
            }
        })
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>> {
        Ok(Box::new(overlay::Overlay::new(Arc::clone(&self.files))))
    }

    fn log_exists(&self, name: RefName<'_>) -> Result<bool> {
        let view = self.files.journal.for_reading()?;
        self.files.log_exists_seen(name, view.as_deref())
    }

    fn for_each_log_entry(
        &self,
        name: RefName<'_>,
        order: LogOrder,
        each: &mut dyn FnMut(LogEntry) -> Result<bool>,
    ) -> Result<bool> {
        let view = self.files.journal.for_reading()?;
        let each: &mut dyn FnMut(&[u8], LogEntry) -> Result<bool> = &mut |_, entry| each(entry);
        self.files
            .for_each_log_line_seen(name, order, view.as_deref(), each)
    }

    fn log_names(&self) -> Result<Vec<RefNameBuf>> {
        let view = self.files.journal.for_reading()?;
        self.files.log_names_seen(view.as_deref())
    }

    fn begin(&self) -> Result<Box<dyn Session + '_>> {
        self.files.journal.for_writing()?;
        Ok(Box::new(session::FilesSession::new(Arc::clone(
            &self.files,
        ))))
    }

    fn optimize(&self, options: &Optimize<'_>, objects: &dyn Objects) -> Result<()> {
        self.files.journal.for_writing()?;
        optimize::optimize(&self.files, options, objects)
    }

    fn maintained(&self) -> &dyn super::maintained::Maintained {
        self
    }

    fn refs_of_objects(&self, wanted: &Wanted) -> Result<Box<dyn Cursor>> {
        let overlay = overlay::Overlay::of_objects(Arc::clone(&self.files), wanted);
        Ok(Box::new(overlay))
    }
}

#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod tests;
