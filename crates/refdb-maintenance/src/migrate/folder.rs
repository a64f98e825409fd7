//! The folder in which a migration works, and what it leaves there for the next one to go on from.
//!
//! Invariants:
//! 1. The folder is held for as long as the process lives: one that is not held was left by a process
//!    that died.
//! 2. There is a journal only when the copies are complete and durable, and before the first lock of
//!    the old store is taken.
//! 3. The copies have the layout of the repository: what is put in place, and where, follows from its
//!    path.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bstr::ByteSlice;

use refdb::internals::{
    self, MIGRATION, MIGRATION_JOURNAL, bytes_to_path, first_line, is_absent, remove_empty_tree,
};
use refdb::system::{FileKind, Guard, System};
use refdb::{Error, ErrorKind, RefFormat, Result};
use refdb_git::internals::GITS_FOLDER;

use super::Context;

/// What says in it for which repository it was made.
const MARK: &str = "made-for";
/// The line of a journal whose old stores hold what the new ones do not.
const MORE: &str = "more yes\n";
/// The last line of a journal whose old stores were swept.
const SWEPT: &str = "swept yes\n";
/// The folder of old refs that are kept.
const KEPT: &str = "refdb-kept";

/// How often the folder is asked for that another process has, and after which time.
const ATTEMPTS: usize = 40;
const PAUSE: Duration = Duration::from_millis(5);

/// The folder of a migration, which this process holds.
pub(super) struct Folder {
    pub(super) path: PathBuf,
    /// The directory in which it is, with the refs.
    base: PathBuf,
    /// Reaches what is below that directory by no link: what is removed there may have been
    /// made by anybody.
    beneath: Arc<dyn System>,
    /// Whether there was nothing in it to be cleared up when it was opened.
    pub(super) was_empty: bool,
    _guard: Guard,
}

/// What a migration is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Journal {
    pub(super) from: RefFormat,
    pub(super) to: RefFormat,
    pub(super) keep: bool,
    /// Whether what others made in the old stores in the last moment is in the new ones. From then on locks go, and
    /// their absence says nothing.
    pub(super) is_swept: bool,
    /// Whether the old stores may hold what the new ones do not: then nobody removes them who was not asked to.
    pub(super) has_more: bool,
}

impl Folder {
    /// Opens the folder, making it if need be.
    ///
    /// # Errors
    /// `Locked` when another migration is running; `Corrupt` when something else has its place, or
    /// something is in it that no migration of this repository left.
    pub(super) fn open(context: &Context) -> Result<Folder> {
        let path = context.base.join(MIGRATION);
        let system = context.system.as_ref();
        // Whoever clears up after another migration may have it for a moment, or remove it.
        for _ in 0..ATTEMPTS {
            match context.create_dir(&path) {
                Err(error) if error.io_kind() == Some(io::ErrorKind::AlreadyExists) => {}
                made => made?,
            }
            is_folder(context.system.as_ref(), &path)?;
            if let Some(mut folder) = Folder::hold(context)? {
                folder.check(context)?;
                folder.sign(context)?;
                return Ok(folder);
            }
            system.sleep(PAUSE);
        }
        Err(Error::new(
            ErrorKind::Locked,
            "another migration of this repository is running",
        ))
    }

    /// Opens the folder that a migration left whose process has ended; `None` if there is none, or
    /// if somebody has it.
    pub(super) fn left(context: &Context) -> Result<Option<Folder>> {
        if !is_there(context)? {
            return Ok(None);
        }
        let folder = Folder::hold(context)?;
        folder.map_or(Ok(None), |mut folder| {
            folder.check(context)?;
            Ok(Some(folder))
        })
    }

    /// Says in the folder for which repository it was made.
    fn sign(&self, context: &Context) -> Result<()> {
        let path = self.path.join(MARK);
        match exists(context.system.as_ref(), &path)? {
            true => Ok(()),
            false => context.write(&path, self.mark(context)?.as_bytes()),
        }
    }

    fn mark(&self, context: &Context) -> Result<String> {
        let ino = |system: &dyn System, dir: &Path| {
            let stat = system.stat(dir);
            stat.map(|stat| stat.ino)
                .map_err(|error| Error::io("unable to read", dir, error))
        };
        // The repository, and not where it has its refs: others may have theirs there as well.
        let dir = ino(context.followed.as_ref(), &context.common_dir)?;
        let own = ino(context.system.as_ref(), &self.path)?;
        let boot = context.system.machine().boot;
        Ok(format!("refdb migration\n{dir} {own}\n{boot}\n"))
    }

    /// Makes sure that a migration of this repository made the folder: one that somebody brought along
    /// would have refs moved and removed.
    fn check(&mut self, context: &Context) -> Result<()> {
        let system = context.system.as_ref();
        // Without anything else it takes nothing to clear up. Nobody else puts anything there now.
        let entries = match system.scan_dir(&self.path) {
            Err(error) if is_absent(&error) => Vec::new(),
            Err(error) => return Err(Error::io("unable to list", &self.path, error)),
            Ok(scan) => scan.entries,
        };
        self.was_empty = entries.iter().all(|entry| entry.name == MARK.as_bytes());
        if self.was_empty {
            return Ok(());
        }
        let failed = |error| Error::io("unable to read", &self.path, error);
        let stat = system.stat(&self.path).map_err(failed)?;
        if !context.home().is_of_writer(&stat) {
            return Err(foreign(&self.path));
        }
        let mark = system.read_at_most(&self.path.join(MARK), 256);
        let expected = self.mark(context)?;
        // Where file systems lie over others, a directory can have another number than below: whoever brings
        // the folder along does not know what the machine calls the time since it was booted.
        let has_numbers = system.keeps_number(&self.path).map_err(failed)?;
        let is_ours = |mark: Vec<u8>| {
            let [mut found, mut own] = [mark.as_slice(), expected.as_bytes()].map(<[u8]>::lines);
            let is_same = [found.next() == own.next(), found.next() == own.next()];
            let boot = own.next().filter(|boot| !boot.is_empty());
            let is_of_boot = boot.is_some() && found.next() == boot;
            is_same == [true, true] || (is_same == [true, false] && !has_numbers && is_of_boot)
        };
        if mark.is_ok_and(is_ours) {
            return Ok(());
        }
        Err(foreign(&self.path))
    }

    /// Takes the folder for this process, if it is there and nobody has it.
    fn hold(context: &Context) -> Result<Option<Folder>> {
        let path = context.base.join(MIGRATION);
        let guard = match context.system.guard_dir(&path) {
            Err(error) if is_absent(&error) => None,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                // There is nothing in it yet: whoever made it was killed before he had let others in.
                if context.system.remove_dir(&path).is_ok() {
                    return Ok(None);
                }
                let way_out = "a migration by another user is in the way; if it has ended, the next refdb command \
                               of that user, or of root, in this repository clears it up";
                return Err(Error::io("unable to lock", &path, error).context(way_out));
            }
            guard => guard.map_err(|error| Error::io("unable to lock", &path, error))?,
        };
        let Some(guard) = guard else {
            return Ok(None);
        };
        let beneath = context.beneath()?;
        // It must not have become a link meanwhile.
        is_folder(beneath.as_ref(), &path)?;
        Ok(Some(Folder {
            path,
            base: context.base.clone(),
            beneath,
            was_empty: false,
            _guard: guard,
        }))
    }

    /// Returns where the copies are made.
    pub(super) fn stage(&self) -> PathBuf {
        self.path.join("new")
    }

    /// Returns where the old stores are put.
    pub(super) fn old(&self) -> PathBuf {
        self.path.join("old")
    }

    /// Writes the journal: from here on there are locks that another migration may have to remove.
    pub(super) fn write_journal(&self, context: &Context, journal: Journal) -> Result<()> {
        write_journal(context, &self.path, journal)
    }

    /// Writes the journal once more, which says from now on that the old stores hold what the new ones do not.
    pub(super) fn note_more(&self, context: &Context, journal: &mut Journal) -> Result<()> {
        journal.has_more = true;
        self.write_journal(context, *journal)
    }

    /// Reads the journal that a migration left which did not come to its end.
    pub(super) fn journal(&self) -> Result<Option<Journal>> {
        read_journal(self.beneath.as_ref(), &self.path)
    }

    /// Removes everything but the folder itself. The journal goes last.
    pub(super) fn clear(&self) -> Result<()> {
        clear(self.beneath.as_ref(), &self.path)
    }

    /// Removes the folder after a failure, so far as that is possible; the next migration does the
    /// rest.
    pub(super) fn remove(&self) {
        let _ = remove_tree(self.beneath.as_ref(), &self.path);
    }

    /// Ends a migration that is complete: the old stores are kept or removed, and so is the folder.
    /// Returns where they are kept.
    pub(super) fn close(&self, context: &Context) -> Result<Option<PathBuf>> {
        let kept = self.put_old_away(context)?;
        self.clear()?;
        remove_tree(self.beneath.as_ref(), &self.path)?;
        Ok(kept)
    }

    /// Keeps the old stores in a folder of their own, or removes them, as the journal says, and with them those that
    /// an earlier migration has kept, if all that they held is in the refs.
    pub(super) fn put_old_away(&self, context: &Context) -> Result<Option<PathBuf>> {
        let system = self.beneath.as_ref();
        let old = self.old();
        let there = kept_folders(system, &self.base)?;
        let journal = self.journal()?.filter(|journal| journal.keep);
        // Whoever does this again after a crash finds nothing there: it is kept already, as the last one.
        if journal.is_some() && remove_empty_tree(system, &old) {
            return Ok(there.last().map(|(_, kept)| kept.clone()));
        }
        let kept = free_kept(system, &self.base)?;
        for (_, kept) in there.iter().filter(|(_, kept)| !is_needed(system, kept)) {
            clear(system, kept)?;
            remove_tree(system, kept)?;
        }
        let (Some(journal), true) = (journal, exists(system, &old)?) else {
            return Ok(None);
        };
        remove_if_there(system, &old.join(MIGRATION_JOURNAL))?;
        write_journal(context, &old, journal)?;
        context.rename(&old, &kept)?;
        context.sync_dir(&self.base)?;
        Ok(Some(kept))
    }

    /// Tells what earlier migrations have kept that nobody removes by himself.
    pub(super) fn kept_before(&self) -> Option<String> {
        let system = self.beneath.as_ref();
        let there = kept_folders(system, &self.base).ok()?;
        let there = there.iter().filter(|(_, kept)| is_needed(system, kept));
        let there: Vec<String> = there
            .map(|(_, kept)| format!("'{}'", kept.display()))
            .collect();
        let names = there.join(", ");
        (!names.is_empty()).then(|| {
            format!(
                "{names}: what earlier migrations left behind stays there. Remove what nobody needs"
            )
        })
    }
}

/// Returns the number of old stores that are kept in a folder of that name; `None` if it is not for them.
pub(super) fn kept_number(name: &[u8]) -> Option<u64> {
    match name.strip_prefix(KEPT.as_bytes())? {
        b"" => Some(0),
        rest => {
            let number = rest.strip_prefix(b"-")?.to_str().ok()?.parse().ok()?;
            // Each number is written in one way.
            (number > 0 && kept_name(number).as_bytes() == name).then_some(number)
        }
    }
}

fn kept_name(number: u64) -> String {
    match number {
        0 => KEPT.to_owned(),
        _ => format!("{KEPT}-{number}"),
    }
}

/// Returns what has such a name, in the order in which they were kept.
fn kept_folders(system: &dyn System, base: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let entries = list(system, base)?;
    let names = entries.iter().map(|entry| entry.name.as_slice());
    let mut there: Vec<u64> = names.filter_map(kept_number).collect();
    there.sort_unstable();
    let there = there.into_iter();
    Ok(there
        .map(|number| (number, base.join(kept_name(number))))
        .collect())
}

/// Returns where old stores are kept next: behind all that are still needed.
///
/// # Errors
/// `Corrupt` when something is in the way that is no folder.
pub(super) fn free_kept(system: &dyn System, base: &Path) -> Result<PathBuf> {
    let mut free = 0;
    for (number, kept) in kept_folders(system, base)? {
        is_folder(system, &kept)?;
        if is_needed(system, &kept) {
            // Behind the greatest number there is none: somebody has made that.
            let next = number.checked_add(1);
            free = next.ok_or_else(|| foreign(&kept))?;
        }
    }
    Ok(base.join(kept_name(free)))
}

/// Returns whether a folder may hold what the refs do not: old stores that are said to, or something that no migration
/// has made.
fn is_needed(system: &dyn System, kept: &Path) -> bool {
    match is_folder(system, kept) {
        Ok(true) => {}
        Ok(false) => return false,
        Err(_) => return true,
    }
    match read_journal(system, kept) {
        Ok(Some(journal)) => journal.has_more,
        // Of what is removed the journal goes last, but for the folder itself.
        Ok(None) => !list(system, kept).is_ok_and(|entries| entries.is_empty()),
        Err(_) => true,
    }
}

/// Removes what is in a folder, but for what says whose it is. The journal goes last.
fn clear(system: &dyn System, dir: &Path) -> Result<()> {
    let mut entries = list(system, dir)?;
    entries.retain(|entry| entry.name != MARK.as_bytes());
    entries.sort_by_key(|entry| entry.name == MIGRATION_JOURNAL.as_bytes());
    let mut entries = entries.iter();
    entries.try_for_each(|entry| {
        let path = dir.join(bytes_to_path(&entry.name));
        remove(system, &path, entry.kind)
    })
}

/// Returns whether a migration left its folder, which may be cleared up here.
///
/// # Errors
/// `Corrupt` when something else has its place.
pub(super) fn is_there(context: &Context) -> Result<bool> {
    let path = context.base.join(MIGRATION);
    match context.system.lstat(&path) {
        Err(error) if is_absent(&error) => Ok(false),
        Err(error) => Err(Error::io("unable to read", &path, error)),
        Ok(stat) if stat.kind != FileKind::Directory => Err(foreign(&path)),
        Ok(stat) => Ok(context.home().trusts(&stat)),
    }
}

/// Returns whether there is a folder of that name.
///
/// # Errors
/// `Corrupt` when it is something else: a link would lead out of the repository.
fn is_folder(system: &dyn System, path: &Path) -> Result<bool> {
    match system.lstat(path) {
        Err(error) if is_absent(&error) => Ok(false),
        Err(error) => Err(Error::io("unable to read", path, error)),
        Ok(stat) if stat.kind != FileKind::Directory => Err(foreign(path)),
        Ok(_) => Ok(true),
    }
}

fn foreign(path: &Path) -> Error {
    let path = path.display();
    let message = format!(
        "'{path}' is left alone: no migration of this repository made it. See what it is, and move it \
         away"
    );
    Error::new(ErrorKind::Corrupt, message)
}

/// Returns what is known of the old refs that were kept last, if any are.
pub(super) fn kept(system: &dyn System, base: &Path) -> Result<Option<Journal>> {
    for (_, kept) in kept_folders(system, base)?.iter().rev() {
        // What has none was made by nobody that this is about.
        if let Some(journal) = read_journal(system, kept)? {
            return Ok(Some(journal));
        }
    }
    Ok(None)
}

/// Returns the names by which a migration by Git shows: its folder comes, and what the refs are in goes.
pub(super) fn signs_of_git(context: &Context) -> Result<Vec<Vec<u8>>> {
    let entries = list(context.system.as_ref(), &context.base)?;
    let names = entries.into_iter().map(|entry| entry.name);
    let mut names: Vec<Vec<u8>> = names
        .filter(|name| is_gits(name) || matches!(name.as_slice(), b"HEAD" | b"refs" | b"reftable"))
        .collect();
    names.sort();
    Ok(names)
}

/// Returns whether a folder is one in which Git migrates, or that a dry run made.
pub(super) fn is_gits(name: &[u8]) -> bool {
    name.starts_with(GITS_FOLDER.as_bytes())
}

/// Makes the folder for the copy of a dry run, which has six characters of its own behind the name of Git's.
pub(super) fn new_dry_run(system: &dyn System, base: &Path) -> Result<PathBuf> {
    const CHARS: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    loop {
        let mut random = system.random();
        let mut name = String::from(GITS_FOLDER);
        for _ in 0..6 {
            let at = usize::try_from(random % 62).unwrap_or_default();
            name.push(CHARS.get(at).copied().map_or('0', char::from));
            random /= 62;
        }
        let path = base.join(name);
        match system.create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => {
                made.and_then(|()| system.set_mode(&path, 0o700))
                    .map_err(|error| Error::io("unable to create", &path, error))?;
                return Ok(path);
            }
        }
    }
}

fn write_journal(context: &Context, dir: &Path, journal: Journal) -> Result<()> {
    let keep = if journal.keep { "yes" } else { "no" };
    let (from, to) = (first_line(journal.from), journal.to.name());
    let mut text = format!("{from}to {to}\nkeep {keep}\n");
    if journal.has_more {
        text.push_str(MORE);
    }
    if journal.is_swept {
        text.push_str(SWEPT);
    }
    let path = dir.join(MIGRATION_JOURNAL);
    let part = dir.join("journal.new");
    remove_if_there(context.system.as_ref(), &part)?;
    context.write(&part, text.as_bytes())?;
    context.rename(&part, &path)?;
    context.sync_dir(dir)
}

fn read_journal(system: &dyn System, dir: &Path) -> Result<Option<Journal>> {
    let path = dir.join(MIGRATION_JOURNAL);
    let content = match system.read(&path) {
        Err(error) if is_absent(&error) => return Ok(None),
        content => content.map_err(|error| Error::io("unable to read", &path, error))?,
    };
    let text = String::from_utf8_lossy(&content);
    let field = |name: &str| {
        let mut lines = text.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
    };
    let format = |name: &str| {
        field(name)
            .and_then(RefFormat::from_name)
            .ok_or_else(|| Error::corrupt(&path, format_args!("there is no '{name}'")))
    };
    Ok(Some(Journal {
        from: format("from")?,
        to: format("to")?,
        keep: field("keep") == Some("yes"),
        is_swept: content.ends_with(SWEPT.as_bytes()),
        has_more: field("more") == Some("yes"),
    }))
}

/// Returns whether there is something of that name, be it a link that leads nowhere.
pub(super) fn exists(system: &dyn System, path: &Path) -> Result<bool> {
    match system.lstat(path) {
        Ok(_) => Ok(true),
        Err(error) if is_absent(&error) => Ok(false),
        Err(error) => Err(Error::io("unable to read", path, error)),
    }
}

/// Lists a directory, which need not be there.
pub(super) fn list(system: &dyn System, dir: &Path) -> Result<Vec<refdb::system::DirEntry>> {
    let entries = internals::list(system, dir);
    entries.map_err(|error| Error::io("unable to list", dir, error))
}

/// Removes a file that need not be there.
pub(super) fn remove_if_there(system: &dyn System, path: &Path) -> Result<()> {
    match system.remove_file(path) {
        Err(error) if !is_absent(&error) => Err(Error::io("unable to remove", path, error)),
        _ => Ok(()),
    }
}

/// So often a directory is read that is to be removed and does not get empty.
const READINGS_MAX: usize = 16;

/// Removes a directory and everything in it; it need not be there.
pub(super) fn remove_tree(system: &dyn System, dir: &Path) -> Result<()> {
    let failed = |error| Error::io("unable to remove", dir, error);
    for _ in 0..READINGS_MAX {
        // What one reading misses keeps the directory from being removed, and is found by the next one.
        let entries = match system.scan_dir(dir) {
            Err(error) if is_absent(&error) => return Ok(()),
            scan => scan.map_err(|error| Error::io("unable to list", dir, error))?,
        };
        for entry in entries.entries {
            remove(system, &dir.join(bytes_to_path(&entry.name)), entry.kind)?;
        }
        match system.remove_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            Err(error) if !is_absent(&error) => return Err(failed(error)),
            _ => return Ok(()),
        }
    }
    Err(failed(io::ErrorKind::DirectoryNotEmpty.into()))
}

fn remove(system: &dyn System, path: &Path, kind: FileKind) -> Result<()> {
    match kind {
        FileKind::Directory => remove_tree(system, path),
        _ => remove_if_there(system, path),
    }
}
