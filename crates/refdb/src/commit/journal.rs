//! The journal: what a transaction that takes several steps is about to do.
//!
//! The file whose names are the transaction's locks gets one name more, `refdb.journal`, after the
//! steps were written into it. From then on the transaction is committed. If the process ends
//! meanwhile, the next one that may write does all the steps again, and then removes the journal and
//! the locks; whoever may not reads what the journal says.
//!
//! Invariants:
//! 1. The journal is whole and, like all that its steps need (new content under its own name, the
//!    locks), durable before the first step is taken; every step is durable before the journal goes.
//! 2. A step is taken only while the lock that guards it is the transaction's own: what it changes
//!    has been changed by nobody else since. Locks are given back after the journal is gone.
//! 3. One journal at a time: a name is given to one file only.
//! 4. A journal is believed if it says that it was made in this place, and if its owner may write
//!    here anyway. It names places by names that pass the rules, and never paths. Any other file of
//!    that name is left alone: it does not stop reading, and writing is refused with the reason.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::change::{Change, Means};
use super::dirs::sync;
use super::encoding::{END, END_LEN, Flaw, LEN_MAX, begin, decode};
use super::hold::{Hold, Holds, Signs};
use super::home::Home;
use super::owner::{HEAD_LEN, Owner};
use super::place::{MAY_NOT_WRITE, Place, Roots};
use super::step::{GivesUp, How, Taken};
use super::takeover::{remove_with_barrier, take_over};
use super::view::View;
use super::watch::LOOK_EVERY;
use super::{is_barrier, lock_path, owner, remove_if_there};
use crate::error::{Error, ErrorKind, OrIo, Remedy, Result};
use crate::layout::JOURNAL;
use crate::system::{FileKind, Guard, Stat, if_there, is_absent};

/// The permission bit by which a journal says that somebody finishes it, as its process has ended.
const FINISHED_MODE: u32 = 0o100;

/// For how long it is waited for whoever may be about to finish a journal: so many pauses, and one more for
/// so many bytes.
const PAUSE: Duration = Duration::from_micros(250);
const PAUSES: u64 = 8;
const LEN_OF_PAUSE: u64 = 32 << 10;

/// The path of the journal in its directory.
pub(super) fn journal_path(dir: &Path) -> PathBuf {
    dir.join(JOURNAL)
}

/// A journal that this transaction wrote.
pub(super) struct Journal {
    home: Arc<Home>,
    path: PathBuf,
    hold: Arc<Hold>,
}

impl Journal {
    /// Writes the journal: from here on the transaction is committed, whatever becomes of this
    /// process. With fsync it is durable, and so has to be all that the steps need.
    ///
    /// # Errors
    /// `Locked` when another transaction is at it for too long, or when somebody took a lock away;
    /// `Io`. Nothing is committed then.
    pub(super) fn commit(change: &Change, means: &Means<'_>) -> Result<Journal> {
        let (holder, options, fsync) = (means.holder, means.options, means.fsync);
        let Some(other) = means.lock else {
            let message = "a transaction of several steps holds no lock";
            return Err(Error::new(ErrorKind::Misuse, message));
        };
        let home = Arc::clone(&holder.who.home);
        let seat = home.seat()?;
        let (dir, path) = (&seat.dir, journal_path(&seat.dir));
        let failed = |error: io::Error| {
            if error.kind() == io::ErrorKind::AlreadyExists {
                let told = super::describe_held(home.system.as_ref(), &path, &path, &error);
                return Error::new(ErrorKind::Locked, told).with_source(error);
            }
            Error::io("unable to write", &path, error)
        };
        other.sign().map_err(failed)?;
        let stat = home.system.stat(dir).map_err(failed)?;
        let hold = Arc::clone(other.hold());
        holder.reveal(&hold, fsync).map_err(failed)?;
        // A link may lead to where this user can write by a right that others cannot check (an access list, say).
        // They would not finish such a journal, so it names nothing.
        let is_makers = home.roots(&hold.stat().map_err(failed)?)?.are_makers();
        let is_makers = is_makers.map_err(failed)?;
        let write = |hold: &Hold| {
            let own = hold.stat()?;
            let named = |place: &Place| is_makers && seat.names(place);
            let text = change.encode(&holder.owner().text(), &stat, &own, &named)?;
            let mut file = hold.file();
            // Who may only read the repository has to see what it says.
            file.reveal()?;
            file.write_all(&text)?;
            if fsync { file.sync() } else { Ok(()) }
        };
        write(&hold).map_err(failed)?;
        let linked = holder.retry(&path, options.timeout, || {
            home.system.hard_link(other.path(), &path)
        });
        let hold = match linked {
            Ok(()) => {
                hold.add_name();
                hold
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(failed(error));
            }
            // A file has one name there, or no more than it has: another file says the same.
            Err(_) => {
                let attempt = || holder.create(&path, Signs::AtOnce);
                let hold = holder
                    .retry(&path, options.timeout, attempt)
                    .map_err(failed)?;
                if let Err(error) = write(&hold) {
                    remove_if_there(home.system.as_ref(), &path).map_err(failed)?;
                    return Err(failed(error));
                }
                hold
            }
        };
        let journal = Journal {
            home: Arc::clone(&home),
            path,
            hold,
        };
        if fsync && let Err(error) = home.system.sync_dir(dir) {
            journal.end()?;
            return Err(Error::io("unable to sync", dir, error));
        }
        Ok(journal)
    }

    /// Removes the journal, after every step is durable.
    ///
    /// # Errors
    /// `Io`; the journal is still there, and with its locks gone it does no harm.
    pub(super) fn end(self) -> Result<()> {
        let remove = || remove_if_there(self.home.system.as_ref(), &self.path);
        let removed = remove().or_else(|_| remove());
        removed.or_io("unable to remove", &self.path)?;
        self.hold.lose_name();
        Ok(())
    }

    /// Leaves the journal to whoever comes when this process has ended.
    pub(super) fn leave(self) {
        self.hold.keep();
    }
}

/// What was found in the place of the journal.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// What the journal says of a transaction that is committed and not finished.
    pub(crate) view: Option<Arc<View>>,
    /// Why it was not finished here, if it should have been.
    pub(crate) error: Option<Error>,
    /// Whether its process runs and has made it so lately that others may have looked before, who look
    /// again only after a while.
    pub(crate) is_young: bool,
}

/// Finishes the transaction that a process began and did not finish before it ended, if there is
/// one; else says what the journal says, should there be one. To be called before anything is said
/// about refs, and before anything is locked.
pub(crate) fn recover(home: &Arc<Home>) -> Result<Found> {
    match look(home, Says::Nothing) {
        // What somebody put in its place keeps nobody from reading.
        Err(error) if error.kind() == ErrorKind::Corrupt => Ok(Found {
            error: Some(error),
            ..Found::default()
        }),
        found => found,
    }
}

/// Returns nothing in the place of what is damaged, or was not made here.
fn unless_corrupt<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Err(error) if error.kind() == ErrorKind::Corrupt => Ok(None),
        found => found.map(Some),
    }
}

/// What a person says of a transaction that was left unfinished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Says {
    /// Nothing: it is finished if its process has certainly ended.
    Nothing,
    /// No process is at work, where that cannot be told.
    NobodyWorks,
    /// And what cannot be done of it is given up.
    GiveUp,
}

/// Finishes the transaction that a process began and did not finish before it ended, if there is one.
///
/// # Errors
/// What keeps the transaction from being finished.
pub fn finish_left(home: &Arc<Home>, says: Says) -> Result<()> {
    look(home, says)?.error.map_or(Ok(()), Err)
}

fn look(home: &Arc<Home>, says: Says) -> Result<Found> {
    let path = journal_path(home.journal_dir()?);
    let system = home.system.as_ref();
    // The common case, and the only question that costs every reader something.
    let Some(stat) = system.find(&path).or_io("unable to read", &path)? else {
        return Ok(Found::default());
    };
    if stat.kind != FileKind::File || stat.len > LEN_MAX as u64 {
        return Err(foreign(&path, "it is no file that refdb made"));
    }
    let (mut error, mut is_young) = (None, false);
    if home.trusts(&stat) {
        let guard = system.guard_file(&path).unwrap_or_else(|failed| {
            error = Some(Error::io("unable to lock", &path, failed));
            None
        });
        let may = says >= Says::NobodyWorks && !system.is_taken(&path);
        is_young =
            guard.is_none() && is_made_lately(home, &stat) && !is_finished(home, &path, &stat);
        if let Some(guard) = guard.or_else(|| may.then(|| Box::new(()) as Guard)) {
            match finish(home, &path, &stat, says) {
                Ok(()) => return Ok(Found::default()),
                // Who may not write reads what the journal says.
                Err(unfinished) => {
                    error =
                        Some(unfinished).filter(|it| says > Says::Nothing || !may_not_write(it));
                }
            }
            drop(guard);
        }
    }
    match read(home, &path, false) {
        Ok(journal) => {
            // If there is none, it was finished meanwhile, or is not written yet.
            let view = journal.map(|journal| View::of(home, journal)).transpose()?;
            Ok(Found {
                view: view.map(Arc::new),
                error,
                is_young,
            })
        }
        // That of a repository that was copied in the midst of a transaction says what is seen in the copy:
        // whole or not at all. That it was made here only matters to whoever finishes it.
        Err(flaw) if home.trusts(&stat) && flaw.kind() == ErrorKind::Corrupt => {
            let journal = unless_corrupt(read(home, &path, true))?.flatten();
            let view = journal.map(|journal| unless_corrupt(View::of(home, journal)));
            Ok(Found {
                view: view.transpose()?.flatten().map(Arc::new),
                error: Some(flaw),
                ..Found::default()
            })
        }
        // Everybody who may read refs may read a journal.
        Err(flaw) if flaw.io_kind() == Some(io::ErrorKind::PermissionDenied) => {
            Err(foreign(&path, "this user may not read it"))
        }
        Err(flaw) => Err(flaw),
    }
}

/// Returns whether a journal got its name so lately that some store has not looked since. The system
/// dates files by a clock that is some milliseconds late.
fn is_made_lately(home: &Home, stat: &Stat) -> bool {
    let now_ns = i128::try_from(home.system.now().as_nanos()).unwrap_or(i128::MAX);
    let long_ns = i128::try_from(2 * LOOK_EVERY.as_nanos()).unwrap_or(i128::MAX);
    // What is dated later than now, by a clock that was set, is old.
    (0..long_ns).contains(&(now_ns - stat.ctime_ns))
}

/// Returns whether somebody finishes what the maker of the journal left, who has ended, or has finished it.
/// Whoever has taken the file reads it before he marks it, and that is waited for.
fn is_finished(home: &Home, path: &Path, stat: &Stat) -> bool {
    let pauses = PAUSES + stat.len / LEN_OF_PAUSE;
    (0..pauses).any(|_| {
        home.system.sleep(PAUSE);
        match home.system.lstat(path) {
            Ok(stat) => stat.mode & FINISHED_MODE != 0 || !is_made_lately(home, &stat),
            Err(error) => is_absent(&error),
        }
    })
}

fn may_not_write(error: &Error) -> bool {
    matches!(
        error.io_kind(),
        Some(io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
    )
}

fn foreign(path: &Path, why: &str) -> Error {
    let path = path.display();
    let message = format!(
        "'{path}' is left alone: {why}. If no refdb process works in this repository, see what it \
         is, and move it away"
    );
    Error::new(ErrorKind::Corrupt, message)
}

/// Makes sure that no link of a repository leads to where the maker of its journal, at `path`, may not write.
///
/// # Errors
/// `Corrupt` if one does; `Io` if that cannot be found out.
pub(super) fn check_links(path: &Path, roots: &Roots) -> Result<()> {
    let are_makers = roots.are_makers();
    match are_makers.or_io("unable to follow the links beside", path)? {
        true => Ok(()),
        false => Err(foreign(path, MAY_NOT_WRITE)),
    }
}

/// Tells of a journal of another directory. To move it away would leave a copy with half of a transaction.
fn elsewhere(path: &Path) -> Error {
    let path = path.display();
    let message = format!(
        "'{path}' is left alone: it was made for another repository, or is a copy, and cannot be finished \
         here. If this repository was copied in the midst of a transaction, a repair that takes locks away \
         finishes that; if not, see what the file is, and move it away"
    );
    Error::new(ErrorKind::Corrupt, message)
}

/// Tells that a transaction could not be finished, since somebody removed its locks.
fn done_in_part(first: &Path, count: usize) -> Error {
    let first = first.display();
    let more = match count {
        1 => String::new(),
        _ => format!(" and {} more", count - 1),
    };
    let message = format!(
        "a transaction that was committed is done in part: somebody removed its locks, or what it had written, before \
         it was finished; as they were before it are '{first}'{more}"
    );
    Error::new(ErrorKind::Corrupt, message)
}

/// A journal as it was read.
pub(super) struct Read {
    pub(super) owner: Owner,
    /// What the file is.
    pub(super) stat: Stat,
    pub(super) change: Change,
}

impl std::fmt::Debug for Read {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Read").field("owner", &self.owner).finish()
    }
}

/// Reads the journal at `path`; `None` if it is gone, or not whole: then it was never committed. With
/// `is_copied` it may say that it was made elsewhere.
///
/// # Errors
/// `Corrupt` for what is no journal of this repository.
fn read(home: &Home, path: &Path, is_copied: bool) -> Result<Option<Read>> {
    let failed = |error| Error::io("unable to read", path, error);
    let system = home.system.as_ref();
    let dir = system.stat(home.journal_dir()?).map_err(failed)?;
    let Some(mut file) = if_there(system.open(path)).map_err(failed)? else {
        return Ok(None);
    };
    let stat = file.stat().map_err(failed)?;
    // What lies elsewhere itself is not changed for the sake of a file that says nothing of it.
    let is_copied = is_copied && home.roots(&stat)?.are_plain();
    let mut read = |from: u64, len: usize| -> Result<Vec<u8>> {
        let mut content = vec![0; len];
        let count = file.read_at(from, &mut content).map_err(failed)?;
        content.truncate(count);
        Ok(content)
    };
    let made = (!is_copied).then_some((&stat, &dir));
    // What was not made here, or is not whole, is not read to its end, which may be far away.
    let whole = usize::try_from(stat.len).unwrap_or(0);
    let mut content = read(0, whole.min(HEAD_LEN))?;
    if whole > content.len() && begin(&content, made).is_ok() {
        if !read(stat.len.saturating_sub(END_LEN as u64), END_LEN)?.starts_with(END) {
            return Ok(None);
        }
        content = read(0, whole)?;
    }
    match decode(&Bytes::from(content), made) {
        Ok((owner, change)) => Ok(Some(Read {
            owner,
            stat,
            change,
        })),
        Err(Flaw::NotWhole) => Ok(None),
        Err(Flaw::Foreign(why)) => Err(foreign(path, why)),
        Err(Flaw::Elsewhere) => Err(elsewhere(path)),
    }
}

/// Finishes what a journal says whose process has ended: the caller has the file. Where somebody says that no
/// process is at work it may be that of a repository that was copied with all its locks.
fn finish(home: &Arc<Home>, path: &Path, stat: &Stat, says: Says) -> Result<()> {
    let is_copied = says >= Says::NobodyWorks;
    let unfinished = |error: Error| {
        let error = error.context(format_args!(
            "a transaction that a process began and did not finish ('{}') cannot be finished",
            path.display()
        ));
        error.with_remedy(Remedy::GiveUp)
    };
    let dir = home.journal_dir()?;
    let beneath = home.system.beneath(dir).or_io("unable to open", dir);
    let beneath = beneath.map_err(unfinished)?;
    let remove = || {
        let removed = remove_if_there(beneath.as_ref(), path);
        removed.or_io("unable to remove", path).map_err(unfinished)
    };
    let Some(journal) = read(home, path, is_copied)? else {
        // One that is not whole was never committed: without fsync power failed before its content
        // was written.
        return remove();
    };
    let roots = home.roots(&journal.stat).map_err(unfinished)?;
    check_links(path, &roots)?;
    // What cannot be found out is no reason to take a step for one that is no business of this journal.
    let is_own = |guard: &Place| is_own(&roots, guard, &journal);
    let (change, transaction) = (&journal.change, journal.owner.id);
    let is_torn = match change.is_torn(&roots, transaction, &is_own) {
        Err(_) if says == Says::GiveUp => true,
        is_torn => is_torn.map_err(unfinished)?,
    };
    // Who cannot have the file now is to know that its maker has ended. Of somebody else's file in a shared
    // repository that cannot be said: for a moment its transaction is seen step by step.
    let _ = beneath.set_mode(path, stat.mode | FINISHED_MODE);
    // The locks are asked for by what the journal says of them.
    let none = Holds::default();
    let how = as_finisher(home, &journal, says, &none);
    let mut taken = Taken::default();
    // In a copy no date says what is older.
    let made_ns = match is_copied && read(home, path, false).is_err() {
        true => i128::MAX,
        false => journal.stat.mtime_ns,
    };
    let missed = change.missed(&roots, transaction, made_ns, is_torn, &is_own);
    let finished = change.take_own(&roots, how, &mut taken, is_torn, &is_own);
    let synced = finished.and_then(|()| {
        home.system
            .sync_file_system(dir)
            .or_io("unable to sync", dir)?;
        sync(home.system.as_ref(), &taken.dirs, true)
    });
    if let Err(error) = synced {
        let _ = beneath.set_mode(path, stat.mode);
        return Err(unfinished(error));
    }
    // Without the journal nobody would look for them. What failed before was told.
    let barred = change.unbar_own(&roots, &is_own);
    remove()?;
    taken.lost.extend(barred.filter(|_| taken.lost.is_empty()));
    taken.lost.iter().for_each(|lost| home.tell(lost));
    if let Some(first) = missed.first() {
        home.tell(&done_in_part(first, missed.len()));
    }
    let guards = change.guards.iter();
    let (own, others): (Vec<_>, _) = guards.partition(|guard| matches!(is_own(guard), Ok(true)));
    give_back(&roots, transaction, &own)?;
    remove_lockless_barriers(home, &roots, &others);
    Ok(())
}

/// Removes the barriers that stand where somebody removed the locks: Git finds no ref behind them.
fn remove_lockless_barriers(home: &Home, roots: &Roots, guards: &[&Place]) {
    for spot in guards.iter().filter_map(|guard| roots.spot(guard).ok()) {
        if is_barrier(spot.system.as_ref(), &spot.path)
            && let Err(error) = take_over(&home.on(&spot.system), &spot.path)
        {
            home.tell(&Error::io("unable to remove", &spot.path, error));
        }
    }
}

/// Returns how the steps of a journal are taken by whoever finishes it.
fn as_finisher<'h>(home: &Home, journal: &Read, says: Says, holds: &'h Holds) -> How<'h> {
    How {
        shared: home.shared,
        transaction: journal.owner.id,
        packed: None,
        holds,
        is_live: false,
        is_first: false,
        gives_up: match says {
            Says::GiveUp => GivesUp::Whatever,
            // Another user may be able to do what this one is not.
            _ if [journal.stat.uid, 0].contains(&home.system.user_id()) => GivesUp::Hopeless,
            _ => GivesUp::Nothing,
        },
        is_journalled: true,
        sync_each: !home.system.syncs_at_once(),
        fsync: true,
        clear: None,
    }
}

/// Removes the locks of a transaction that is finished.
fn give_back(roots: &Roots, transaction: u64, guards: &[&Place]) -> Result<()> {
    for spot in guards.iter().filter_map(|guard| roots.spot(guard).ok()) {
        let lock = lock_path(&spot.path);
        let removed = remove_with_barrier(spot.system.as_ref(), &lock, Some(transaction));
        removed.or_io("unable to remove", &lock)?;
    }
    Ok(())
}

/// Returns whether the lock of a place is still one of the transaction that wrote the journal: a name
/// of the same file, or of another that it made.
///
/// # Errors
/// `Io`, which names the lock, unless nothing is there.
pub(super) fn is_own(roots: &Roots, guard: &Place, journal: &Read) -> Result<bool> {
    if matches!(guard, Place::Outside(_)) {
        return Ok(false);
    }
    let failed = |error| Error::io("unable to read", &lock_path(&roots.path(guard)), error);
    let found = roots.spot(guard).and_then(|spot| {
        let lock = lock_path(&spot.path);
        let stat = spot.system.lstat(&lock)?;
        Ok((spot, lock, stat))
    });
    let Some((spot, lock, stat)) = if_there(found).map_err(failed)? else {
        return Ok(false);
    };
    if (stat.dev, stat.ino) == (journal.stat.dev, journal.stat.ino) {
        return Ok(true);
    }
    let owner = owner::of_lock(spot.system.as_ref(), &lock).map_err(failed)?;
    Ok(owner.is_some_and(|owner| owner.id == journal.owner.id))
}
