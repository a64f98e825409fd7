//! The steps of a change, each of which makes one thing visible.
//!
//! The process that makes a change and one that finishes it after a crash take the same steps by the
//! same code.
//!
//! Invariant: to take a step twice is as to take it once.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use bstr::ByteSlice;
use bytes::Bytes;

use super::content::Content;
use super::dirs::{add_parent, create_dirs};
use super::hold::{Holds, lost_in_part};
use super::place::{Place, Roots, Spot};
use super::put::{put, put_for_barrier, rename};
use super::{LockFile, fitting, lock_path, remove_if_there, value_path};
use crate::error::{Error, ErrorKind, Message, OrIo, Result, Role, io_text};
use crate::options::SharedRepository;
use crate::system::{FileKind, MayWrite, Stat, System, WriteFile, is_absent, remove_empty_tree};

/// One step of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The new content gets the name under which it is read. What it is tells whoever finishes the change whether it
    /// is there.
    Put {
        place: Place,
        content: Option<Content>,
        from: Source,
    },
    /// A file goes.
    Remove { place: Place },
    /// Lines come behind the first `len` bytes of a file. With `create` it is made if it is not there,
    /// else nothing is done then.
    Append {
        place: Place,
        len: u64,
        lines: Bytes,
        create: bool,
    },
    /// A reflog gets the name of another one.
    Move { place: Place, from: Place },
}

/// Where new content stands until it is in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Beside the lock.
    Beside,
    /// In the lock: no journal names the step then.
    Lock,
    /// In the lock, and a barrier has the place of the ref.
    BarredLock,
}

/// Makes room for a new reflog.
pub(crate) type Clear<'c> = &'c (dyn Fn(&Place) -> Result<()> + Sync);

/// What is given up of a transaction that was committed, and told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum GivesUp {
    Nothing,
    /// Entries of reflogs that this user will never be able to write.
    Hopeless,
    /// Whatever fails: a person says so.
    Whatever,
}

/// So much of a value is told: no name of a ref is longer.
const TOLD_MAX: usize = 4096;

/// How steps are taken.
#[derive(Clone, Copy)]
pub(crate) struct How<'h> {
    pub(crate) shared: SharedRepository,
    /// The number of the transaction that made the change.
    pub(crate) transaction: u64,
    /// The lock of packed-refs, if it is looked at once more before that is replaced: what came before took its
    /// time, and a person can remove locks.
    pub(crate) packed: Option<&'h LockFile>,
    /// The files whose names are the locks of the process that makes the change.
    pub(crate) holds: &'h Holds,
    /// Whether the process lives that made the change: what is not there then was taken away from it.
    pub(crate) is_live: bool,
    /// Whether no step was taken before.
    pub(crate) is_first: bool,
    /// What is given up that cannot be done.
    pub(crate) gives_up: GivesUp,
    /// Whether a journal names the steps: then it is known how long each file was before.
    pub(crate) is_journalled: bool,
    /// Whether every file is made durable by itself.
    pub(crate) sync_each: bool,
    /// Whether all is made durable in the end.
    pub(crate) fsync: bool,
    /// Makes room for a new reflog, where that may still be done.
    pub(crate) clear: Option<Clear<'h>>,
}

/// What steps leave behind.
#[derive(Default)]
pub(super) struct Taken {
    /// The directories whose names they changed, which are to be made durable.
    pub(super) dirs: BTreeSet<PathBuf>,
    /// The files that they made.
    pub(super) made: Vec<PathBuf>,
    /// Whether the last of these needed a directory.
    pub(super) makes_dirs: bool,
    /// What was given up, and why.
    pub(super) lost: Vec<Error>,
}

impl Taken {
    /// Tells what could not be made durable of a transaction that is committed. It is not tried again: whoever
    /// did would find it done, and the system says only once what a disk could not write.
    fn tell_unsynced(&mut self, path: &Path, synced: io::Result<()>) {
        let failed = |error| Error::io("unable to sync", path, error);
        self.lost.extend(synced.map_err(failed).err());
    }
}

impl Step {
    pub(super) fn places_mut(&mut self) -> impl Iterator<Item = &mut Place> {
        let (place, from) = match self {
            Step::Put { place, .. } | Step::Remove { place } | Step::Append { place, .. } => {
                (place, None)
            }
            Step::Move { place, from } => (place, Some(from)),
        };
        [Some(place), from].into_iter().flatten()
    }

    pub(super) fn place(&self) -> &Place {
        match self {
            Step::Put { place, .. }
            | Step::Remove { place }
            | Step::Append { place, .. }
            | Step::Move { place, .. } => place,
        }
    }

    /// Returns whether the step adds entries to a reflog, and replaces nothing.
    pub(super) fn is_entry(&self) -> bool {
        matches!(self, Step::Append { .. })
    }

    /// Returns whether the step takes something away that another one gives elsewhere, or that was there.
    pub(super) fn takes_away(&self) -> bool {
        matches!(self, Step::Remove { .. } | Step::Move { .. })
    }

    /// Returns whether what the step gives is there, or can be put there by whoever finishes the change.
    ///
    /// # Errors
    /// `Io` if that could not be found out.
    pub(super) fn is_given(&self, roots: &Roots, transaction: u64, is_held: bool) -> Result<bool> {
        let Step::Put { place, content, .. } = self else {
            return Ok(true);
        };
        let Spot { system, path, .. } = roots.reach(place)?;
        let is_at = |path: &Path| match content {
            Some(content) => content.is_at(system.as_ref(), path),
            None => Ok(system.find(path).or_io("unable to read", path)?.is_some()),
        };
        Ok(is_held && is_at(&value_path(&path, transaction))? || is_at(&path)?)
    }

    /// Says that this step, which failed, is given up, and what it would have done to a ref.
    pub(super) fn given_up(&self, roots: &Roots, transaction: u64, error: Error) -> Error {
        let place = self.place();
        let what = match (self, place) {
            (Step::Put { from, .. }, Place::Ref(_)) => {
                let content = roots.spot(place).and_then(|Spot { system, path, .. }| {
                    let value = value_of(&path, *from, transaction);
                    // What somebody else put there leads nowhere, and may be of any length.
                    system.read_at_most(&value, TOLD_MAX)
                });
                let content = content.unwrap_or_default();
                format!(" (it was to become '{}')", content.trim_ascii().as_bstr())
            }
            (Step::Remove { .. }, Place::Ref(_)) => " (it was to go)".to_owned(),
            _ => String::new(),
        };
        error.context(format_args!("given up for good{what}"))
    }

    /// Takes the step, if it was not taken.
    ///
    /// # Errors
    /// `Io`, which names the file, and those of [`How::clear`].
    pub(super) fn take(&self, roots: &Roots, how: How<'_>, taken: &mut Taken) -> Result<()> {
        let place = self.place();
        let spot = roots.reach(place)?;
        let Spot { system, path, .. } = &spot;
        match self {
            Step::Put { content, from, .. } => {
                // Who has just written the content need not read it.
                let content = content.filter(|_| !how.is_live);
                if let (Place::Packed, Some(lock)) = (place, how.packed) {
                    lock.check_name().map_err(lost_in_part)?;
                }
                let value = value_of(path, *from, how.transaction);
                let put = match from {
                    Source::BarredLock => put_for_barrier(system.as_ref(), &value, path, taken),
                    _ => put(system.as_ref(), &value, place, path, content, how)?,
                };
                put.map_err(|error| unable_to_put(place, path, error))?;
                add_parent(&mut taken.dirs, path);
            }
            Step::Remove { .. } => match remove_if_there(system.as_ref(), path) {
                Err(error) if is_in_the_way(&error) => {}
                removed => {
                    removed.or_io("unable to remove", path)?;
                    add_parent(&mut taken.dirs, path);
                }
            },
            Step::Append {
                len, lines, create, ..
            } => {
                let append = Append {
                    spot: &spot,
                    len: *len,
                    lines,
                    create: *create,
                    how,
                };
                let mut appended = append.take(taken);
                if let (Err(error), Some(clear), true) = (&appended, how.clear, *create)
                    && is_in_the_way(error)
                {
                    clear(place)?;
                    appended = append.take(taken);
                }
                match appended {
                    // Something has the place of the reflog that was not there when the transaction
                    // was committed: its entries are lost, and nothing waits for them.
                    Err(error) if how.clear.is_none() && is_in_the_way(&error) => {}
                    Err(error) if how.gives_up >= GivesUp::Hopeless && is_hopeless(&error) => {
                        taken.lost.push(unable_to_append(place, path, error));
                    }
                    appended => {
                        appended.map_err(|error| unable_to_append(place, path, error))?;
                    }
                }
            }
            Step::Move { from, .. } => {
                let moved = move_log(&roots.reach(from)?, &spot, how, taken);
                let failed = |error| Error::io("unable to move the reflog to", path, error);
                match moved {
                    Err(error) if how.gives_up >= GivesUp::Hopeless && is_hopeless(&error) => {
                        taken.lost.push(failed(error));
                    }
                    moved => moved.map_err(failed)?,
                }
            }
        }
        Ok(())
    }
}

fn value_of(path: &Path, from: Source, transaction: u64) -> PathBuf {
    match from {
        Source::Beside => value_path(path, transaction),
        Source::Lock | Source::BarredLock => lock_path(path),
    }
}

/// Says that a file could not be replaced, in Git's words if it is that of a ref.
pub(super) fn unable_to_put(place: &Place, path: &Path, error: io::Error) -> Error {
    match place {
        Place::Ref(name) => {
            let message = format!("couldn't set '{name}': {}", io_text(&error));
            Error::new(ErrorKind::Io, message).with_source(error)
        }
        _ => Error::io("unable to replace", path, error),
    }
}

/// Says that entries could not be written, in Git's words.
pub(crate) fn unable_to_append(place: &Place, path: &Path, error: io::Error) -> Error {
    let why = format!(
        "unable to append to '{}': {}",
        path.display(),
        io_text(&error)
    );
    let message = match place {
        Place::Log(name) => format!("cannot update the ref '{name}': {why}"),
        _ => why,
    };
    let message = Message::from(message).of(path, Role::Place);
    Error::new(ErrorKind::Io, message).with_source(error)
}

/// Returns whether a file cannot be written however often it is tried: by this user, or by anybody.
fn is_hopeless(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let found = Errno::from_io_error(error);
    let hopeless = [
        Errno::ACCESS,
        Errno::PERM,
        Errno::LOOP,
        Errno::NAMETOOLONG,
        Errno::NXIO,
    ];
    // What is no file has no number, and a link that leads nowhere is found and is not there.
    error.kind() == io::ErrorKind::Other
        || is_absent(error)
        || found.is_some_and(|found| hopeless.contains(&found))
}

pub(super) fn is_in_the_way(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::IsADirectory | io::ErrorKind::NotADirectory
    )
}

/// Lines that come behind the first `len` bytes of a file.
struct Append<'s> {
    spot: &'s Spot,
    len: u64,
    lines: &'s [u8],
    create: bool,
    how: How<'s>,
}

impl Append<'_> {
    /// Appends the lines. A part of them may be there already, or what a power failure left of them:
    /// nobody else writes to the file while its lock is held.
    fn take(&self, taken: &mut Taken) -> io::Result<()> {
        let Spot { system, path, .. } = self.spot;
        let system = system.as_ref();
        let tail = match self.how.is_first {
            true => Vec::new(),
            false => match read_from(system, path, self.len, self.lines.len() + 1) {
                Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                    if !remove_empty_tree(system, path) {
                        return Err(error);
                    }
                    Vec::new()
                }
                tail => tail?.unwrap_or_default(),
            },
        };
        if !self.lines.is_empty() && tail.starts_with(self.lines) {
            // Perhaps not durable yet, on a file system of its own.
            add_parent(&mut taken.dirs, path);
            return Ok(());
        }
        if !self.how.is_first {
            // Whoever made the change may have been allowed to write more: this process would be killed.
            let end = self.len.saturating_add(self.lines.len() as u64);
            MayWrite::default().reach(system, end)?;
        }
        let Some(missing) = self.lines.strip_prefix(&*tail) else {
            add_parent(&mut taken.dirs, path);
            return rewrite(system, path, self.len, self.lines, self.how.transaction);
        };
        let Some(mut file) = self.open(taken)? else {
            return Ok(());
        };
        // One that was there before the setting follows it from now on; one of somebody else stays.
        let _ = self.how.shared.adjust(system, path);
        file.write_all(missing)?;
        if !self.how.sync_each {
            add_parent(&mut taken.dirs, path);
            return Ok(());
        }
        match self.how.is_journalled {
            true => {
                taken.tell_unsynced(path, file.sync());
                Ok(())
            }
            false => file.sync(),
        }
    }

    /// Opens the file, and makes it if it is to be made; `None` if there is none.
    fn open(&self, taken: &mut Taken) -> io::Result<Option<Box<dyn WriteFile>>> {
        let Spot { system, path, .. } = self.spot;
        // What was not there is made without a look: many new reflogs cost one call less each.
        let is_new = self.create && self.len == 0 && self.how.is_journalled && self.how.is_first;
        let found = match is_new {
            true => Err(io::ErrorKind::NotFound.into()),
            false => system.append(path),
        };
        match found {
            Err(error) if !self.create && is_missing(&error) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => match self.make(taken) {
                Err(error) if is_new && error.kind() == io::ErrorKind::AlreadyExists => {
                    system.append(path).map(Some)
                }
                made => made.map(Some),
            },
            found => found.map(Some),
        }
    }

    /// Makes the file, and the directories that lead to it.
    fn make(&self, taken: &mut Taken) -> io::Result<Box<dyn WriteFile>> {
        let Spot {
            system,
            path,
            floor,
        } = self.spot;
        let dir = path.parent().unwrap_or(floor);
        let make_dirs = |taken: &mut Taken| -> io::Result<()> {
            taken.makes_dirs = create_dirs(self.spot, self.how.shared, dir, &mut taken.dirs)?;
            Ok(())
        };
        // Where one lay in a directory that was missing, the next often does.
        let is_beside = |last: &PathBuf| last.parent() == path.parent();
        if taken.makes_dirs && !taken.made.last().is_some_and(is_beside) {
            make_dirs(taken)?;
        }
        let file = match system.create_new(path, 0o666) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_dirs(taken)?;
                system.create_new(path, 0o666)?
            }
            made => made?,
        };
        add_parent(&mut taken.dirs, path);
        taken.made.push(path.clone());
        Ok(file)
    }
}

/// Returns whether there is no file, and a directory may have its place or another file that of one of
/// its directories.
fn is_missing(error: &io::Error) -> bool {
    is_absent(error) || error.kind() == io::ErrorKind::IsADirectory
}

/// Gives a reflog another name. It has a name at every moment: where the way leads through a directory
/// that is still a file, or the other way round, it stays between the two, where whoever takes the step
/// again finds it.
fn move_log(from: &Spot, to: &Spot, how: How<'_>, taken: &mut Taken) -> io::Result<()> {
    let system = to.system.as_ref();
    let between = between(&from.path, &to.path);
    let mut source = &from.path;
    match find_file(from.system.as_ref(), source)? {
        Some(_) => {}
        None => match &between {
            Some(path) if find_file(system, path)?.is_some() => source = path,
            // It was moved.
            _ => {
                add_parent(&mut taken.dirs, &from.path);
                add_parent(&mut taken.dirs, &to.path);
                return Ok(());
            }
        },
    }
    add_parent(&mut taken.dirs, &from.path);
    if let Some(between) = between.as_ref().filter(|between| *between != source) {
        system.rename(source, between)?;
        add_parent(&mut taken.dirs, between);
        if how.fsync {
            // Else a loss of power could leave it where a directory is about to come or to go.
            for dir in parents(&from.path, between) {
                taken.tell_unsynced(dir, system.sync_dir(dir));
            }
        }
        source = between;
    }
    add_parent(&mut taken.dirs, &to.path);
    match rename(system, source, &to.path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let parent = to.path.parent().unwrap_or(&to.floor);
            let mut dirs = BTreeSet::new();
            create_dirs(to, how.shared, parent, &mut dirs)?;
            // A loss of power must not take a new directory away, and with it what was moved there.
            for dir in dirs.iter().filter(|_| how.fsync) {
                taken.tell_unsynced(dir, system.sync_dir(dir));
            }
            taken.dirs.append(&mut dirs);
            rename(system, source, &to.path)
        }
        renamed => renamed,
    }
}

/// Returns the directories of two files.
fn parents<'p>(one: &'p Path, other: &'p Path) -> impl Iterator<Item = &'p Path> {
    [one.parent(), other.parent()].into_iter().flatten()
}

/// Returns how long a file is; `None` if there is none.
pub(super) fn find_file(system: &dyn System, path: &Path) -> io::Result<Option<u64>> {
    let file = |stat: &Stat| stat.kind == FileKind::File;
    Ok(system.find(path)?.filter(file).map(|stat| stat.len))
}

/// Returns where a reflog stays on its way between two names of which one lies below the other;
/// `None` if neither does.
pub(crate) fn between(from: &Path, to: &Path) -> Option<PathBuf> {
    let upper = match (from.starts_with(to), to.starts_with(from)) {
        (false, false) => return None,
        (true, _) => to,
        (_, true) => from,
    };
    let name = [b".", upper.file_name().unwrap_or_default().as_bytes()].concat();
    Some(upper.with_file_name(fitting(&name, ".moved")))
}

/// Returns what is in a file behind so many bytes, `most` bytes of it at most; `None` if there is no file. The file
/// may be another user's, and as long as that one likes.
fn read_from(
    system: &dyn System,
    path: &Path,
    len: u64,
    most: usize,
) -> io::Result<Option<Vec<u8>>> {
    let mut file = match system.open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let stat = file.stat()?;
    if stat.kind == FileKind::Directory {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let behind = usize::try_from(stat.len.saturating_sub(len)).unwrap_or(0);
    let mut tail = vec![0; behind.min(most)];
    let count = file.read_at(len, &mut tail)?;
    tail.truncate(count);
    Ok(Some(tail))
}

/// Writes a file anew: its first `len` bytes, and `lines` behind them.
fn rewrite(
    system: &dyn System,
    path: &Path,
    len: u64,
    lines: &[u8],
    transaction: u64,
) -> io::Result<()> {
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    let before = read_from(system, path, 0, len)?.unwrap_or_default();
    let new = value_path(path, transaction);
    remove_if_there(system, &new)?;
    let mut file = system.create_new(&new, 0o666)?;
    file.write_all(&before)?;
    file.write_all(lines)?;
    file.sync()?;
    system.rename(&new, path)
}

#[cfg(test)]
mod tests {
    use refdb_simulation::SimSystem;

    use super::*;

    #[test]
    fn no_more_is_read_than_is_asked_for() {
        let system = SimSystem::new(1);
        let path = Path::new("/log");
        let mut file = system.create_new(path, 0o666).unwrap();
        file.write_all(b"before behind, and far more").unwrap();
        drop(file);
        let read = |len, most| read_from(&system, path, len, most).unwrap();
        assert_eq!(read(7, 6).as_deref(), Some(&b"behind"[..]));
        assert_eq!(read(0, usize::MAX).unwrap().len(), 27);
        assert_eq!(read(27, 6).as_deref(), Some(&b""[..]));
        assert_eq!(read_from(&system, Path::new("/none"), 0, 1).unwrap(), None);
    }
}
