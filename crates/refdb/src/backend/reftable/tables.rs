//! Where the tables of a stack live.
//!
//! A stack is a list of tables, oldest first. [`Tables`] is all that a stack asks of the place that
//! keeps them: read the list, open a table, store a new one, publish a new list, drop a table.
//! Publishing requires the right to do so: here [`LocalTables`] takes `tables.list.lock`, as Git
//! does. A place without locks may grant the right to anybody and answer
//! [`Publication::Moved`] when somebody else published first.

use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::fresh::{unreadable, what_is_lost};
use super::hold::LocalHold;
use super::names::{is_table_name, is_unfinished, may_be_listed, short_random};
use super::shared::SharedTables;
pub(super) use super::stamp::Stamp;
use crate::commit::{
    Becomes, Change, Holder, Home, JournalWatch, LockFile, LockOptions, Place, is_new_value,
    refused, take_over,
};
use crate::error::{Error, OrIo, Result};
use crate::layout::Layout;
use crate::options::{LockTimeout, Options, SharedRepository, StillThere};
use crate::system::{
    Bytes, ReadFile, Stat, System, WriteFile, bytes_to_path, if_there, is_absent, list,
};

/// How many tables a list may name; Git keeps a few dozen at most.
const TABLES_MAX: usize = 100_000;

/// How long a list may be, in bytes: so many names of the usual length, and some more.
pub const LIST_LEN_MAX: usize = 8 << 20;

/// Where the tables of one stack live.
pub(super) trait Tables: Send + Sync + fmt::Debug {
    /// Returns what to call the place, or a table of it, in messages.
    fn path_of(&self, table: &str) -> PathBuf;

    /// Returns the tables on a shared place, if these are.
    fn as_shared(&self) -> Option<&SharedTables> {
        None
    }

    /// Reads the list.
    fn list(&self) -> Result<List>;

    /// Returns whether the list of that stamp is still the list. Cheap: one question, no reading.
    fn is_current(&self, stamp: &Stamp) -> Result<bool>;

    /// Opens a table; `None` if it is gone.
    fn open(&self, table: &str) -> Result<Option<Bytes>>;

    /// Opens several, each as [`Tables::open`] does.
    fn open_all(&self, tables: &[&str]) -> Result<Vec<Option<Bytes>>> {
        tables.iter().map(|table| self.open(table)).collect()
    }

    /// Acquires the right to publish, for a transaction that may hold another one by a lock.
    ///
    /// # Errors
    /// `Locked` when somebody else has it for longer than the timeout.
    fn hold(&self, timeout: LockTimeout, beside: Option<&LockFile>) -> Result<Box<dyn Hold>>;

    /// Claims a table for compaction.
    ///
    /// # Errors
    /// `Locked` when somebody else is at it: whose lock it is, as far as that is known.
    fn claim(&self, table: &str) -> Result<Box<dyn Claim>>;

    /// Returns whether somebody has claimed a table. Only to be trusted while the right to publish
    /// is held, without which nobody claims one.
    fn is_claimed(&self, table: &str) -> Result<bool>;

    /// Begins to store a table. It is not found under its name before it is finished.
    fn create(&self, table: &str) -> Result<Box<dyn NewTable>>;

    /// Removes a table that no list names any more.
    fn drop_table(&self, table: &str) -> Result<()>;

    /// Removes what writers that died left behind: unfinished tables, and those that no list names
    /// and no index of which is above `max_update_index`. Asks for the right to publish as a
    /// witness.
    fn clean(&self, hold: &mut dyn Hold, listed: &[String], max_update_index: u64) -> Result<()>;
}

/// The right to publish a new list. Dropping it gives the right back.
pub(super) trait Hold: Send {
    /// Writes a list, durably, that will be published: what is left to do then is added to the
    /// steps of a journal.
    fn stage(&mut self, tables: &[String], change: &mut Change) -> Result<()>;

    /// Returns the lock that is this right, if it is one.
    fn as_lock(&self) -> Option<&LockFile>;

    /// Leaves it all to whoever finishes what the journal says.
    fn leave(&mut self);

    /// Publishes a list in place of the one that the stamp belongs to, durably.
    fn publish(&mut self, expected: &Stamp, tables: &[String]) -> Result<Publication>;
}

impl dyn Hold {
    /// Keeps the lock a lock when a list is published: whoever takes it over takes the claims over that
    /// were made under it, so that it has to be there as long as they are.
    pub(super) fn stay(&self) -> Result<()> {
        let lock = self.as_lock();
        lock.map_or(Ok(()), |lock| {
            lock.sign().or_io("cannot write", lock.path())
        })
    }
}

/// The exclusive right to compact one table. Dropping it gives the right back.
pub(super) trait Claim {}

/// A table that is being stored. Dropping it unfinished removes it.
pub(super) trait NewTable: Write {
    /// Makes the table durable and gives it its name.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// The names of a stack's tables, oldest first, and how to recognise that they are still it.
#[derive(Clone, Debug)]
pub(super) struct List {
    pub(super) names: Vec<String>,
    pub(super) stamp: Stamp,
    /// An update index that no new table has; 0 if the tables tell that by themselves.
    pub(super) index: u64,
}

/// A list that names nothing, and was written so. One without a byte may have lost its content.
pub(super) const NO_TABLES: &str = "\n";

/// What became of a list that was to be published.
pub(super) enum Publication {
    /// It stands. The error says why it may not be durable, although readers see it.
    Done(Stamp, Option<Error>),
    /// Another list was published before; nothing changed.
    Moved,
}

/// Tables in the directory `reftable/`, published under `tables.list.lock`.
#[derive(Debug)]
pub(super) struct LocalTables {
    system: Arc<dyn System>,
    home: Arc<Home>,
    journal: Arc<JournalWatch>,
    dir: PathBuf,
    // What a journal calls the list.
    place: Place,
    /// The directory that `reftable/` is in.
    base: PathBuf,
    /// Where the objects are whose refs these tables hold.
    objects: Option<PathBuf>,
    /// Whether it is no loss if there is nothing.
    may_be_missing: bool,
    fsync: bool,
    shared: SharedRepository,
    pid_file: bool,
    still_there: Option<StillThere>,
}

impl LocalTables {
    /// The stack in `base`, one of the directories of the layout.
    pub(super) fn new(
        home: &Arc<Home>,
        journal: &Arc<JournalWatch>,
        layout: &Layout,
        base: &Path,
        options: &Options,
    ) -> Self {
        let dir = stack_dir(base);
        LocalTables {
            system: Arc::clone(&home.system),
            home: Arc::clone(home),
            journal: Arc::clone(journal),
            place: Place::of_list(layout.common_dir(), base, &dir.join("tables.list")),
            dir,
            base: base.to_owned(),
            objects: layout.objects_beside(base).map(Path::to_owned),
            may_be_missing: layout.may_be_missing(),
            fsync: options.fsync,
            shared: options.shared_repository,
            pid_file: options.lockfile_pid,
            still_there: options.still_there.clone(),
        }
    }

    fn list_path(&self) -> PathBuf {
        self.dir.join("tables.list")
    }

    fn lock(
        &self,
        target: &Path,
        timeout: LockTimeout,
        beside: Option<&LockFile>,
    ) -> io::Result<LockFile> {
        let options = LockOptions {
            timeout,
            shared: self.shared,
            pid_file: self.pid_file,
        };
        let Some(other) = beside else {
            return LockFile::acquire_alone(&Holder::new(&self.home), target, options);
        };
        LockFile::acquire_beside(other.holder(), target, options, Some(other))
    }

    /// Opens the list as readers are to see it.
    fn open_list(&self) -> io::Result<Box<dyn ReadFile>> {
        let view = self.journal.for_reading().map_err(io::Error::other)?;
        let becomes = view.map_or(Ok(None), |view| view.of_place(&self.place));
        if let Some(Becomes::Content(path)) = becomes.map_err(io::Error::other)? {
            match self.system.open(&path) {
                // It is in its place by now.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                opened => return opened,
            }
        }
        self.system.open(&self.list_path())
    }

    /// Reads a whole list, which is only ever replaced and never changed.
    fn read_list(&self, file: &mut dyn ReadFile, path: &Path) -> Result<Vec<u8>> {
        let failed = |error| unreadable(&*self.system, "cannot read", path, error);
        let len = file.len().map_err(failed)?;
        if len > LIST_LEN_MAX as u64 {
            let what = "the file is too long for a list of tables";
            return Err(Error::corrupt(path, what));
        }
        let mut content = vec![0; usize::try_from(len).unwrap_or(0)];
        let read = file.read_at(0, &mut content).map_err(failed)?;
        content.truncate(read);
        Ok(content)
    }

    /// Describes the list as it is now; `None` if there is none.
    fn list_stat(&self) -> Result<Option<Stat>> {
        let path = self.list_path();
        if_there(self.system.stat(&path)).or_io("cannot read", &path)
    }

    /// Returns the files in the directory that are named like tables.
    fn files(&self) -> Result<Vec<String>> {
        let mut names = self.entries()?;
        names.retain(|name| is_table_name(name));
        Ok(names)
    }

    fn entries(&self) -> Result<Vec<String>> {
        let entries = list(self.system.as_ref(), &self.dir).or_io("cannot read", &self.dir)?;
        let names = entries.into_iter();
        Ok(names
            .filter_map(|it| String::from_utf8(it.name).ok())
            .collect())
    }

    /// Tells a stack that is new from one that lost its list; `false` if there is one now.
    ///
    /// Git's very first writer of a stack stores a table before there is a list, and one that
    /// merges everything away publishes an empty list before it drops the tables: both pass
    /// quickly, so that tables which stay without a list for a while are damage. So is a directory
    /// that stays without either where something was. A list of [`NO_TABLES`] leaves no such doubt.
    fn check_empty(&self, what: &str) -> Result<bool> {
        let mut lost = None;
        for pause_ms in [0, 1, 4, 16, 64, 128] {
            self.system.sleep(Duration::from_millis(pause_ms));
            if let Some(still_there) = &self.still_there {
                (still_there.0)(true)?;
            }
            lost = None;
            if self.files()?.is_empty() {
                lost = match self.may_be_missing {
                    true => None,
                    false => what_is_lost(&*self.system, &self.base, self.objects.as_deref())?,
                };
                if lost.is_none() {
                    return Ok(true);
                }
            }
            if self.list_stat()?.is_some_and(|stat| stat.len > 0) {
                return Ok(false);
            }
        }
        Err(match lost {
            Some(lost) => Error::corrupt(&lost.path, &lost),
            None => Error::corrupt(
                &self.list_path(),
                format_args!("the list of tables is {what}, but there are tables"),
            ),
        })
    }
}

impl Tables for LocalTables {
    fn path_of(&self, table: &str) -> PathBuf {
        self.dir.join(table)
    }

    fn list(&self) -> Result<List> {
        let path = self.list_path();
        loop {
            let mut file = match self.open_list() {
                Ok(file) => file,
                Err(error) if is_absent(&error) => {
                    if self.check_empty("missing")? {
                        return Ok(List {
                            names: Vec::new(),
                            stamp: Stamp::NONE,
                            index: 0,
                        });
                    }
                    continue;
                }
                Err(error) => return Err(unreadable(&*self.system, "cannot open", &path, error)),
            };
            let content = self.read_list(file.as_mut(), &path)?;
            let stamp = Stamp::of(file).or_io("cannot read", &path)?;
            let names = parse_list(&path, &content)?;
            if content.is_empty() && !self.check_empty("empty")? {
                continue;
            }
            return Ok(List {
                names,
                stamp,
                index: 0,
            });
        }
    }

    fn is_current(&self, stamp: &Stamp) -> Result<bool> {
        Ok(stamp.is(self.list_stat()?))
    }

    fn open(&self, table: &str) -> Result<Option<Bytes>> {
        let path = self.path_of(table);
        match self.system.map(&path) {
            Ok(content) => Ok(Some(content)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(unreadable(&*self.system, "cannot open", &path, error)),
        }
    }

    fn hold(&self, timeout: LockTimeout, beside: Option<&LockFile>) -> Result<Box<dyn Hold>> {
        let path = self.list_path();
        match self.lock(&path, timeout, beside) {
            Ok(lock) => Ok(Box::new(LocalHold::new(
                Arc::clone(&self.system),
                &self.dir,
                self.fsync,
                self.place.clone(),
                lock,
            ))),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let error = refused(self.system.as_ref(), &path, error);
                Err(error.below("cannot lock references"))
            }
            Err(error) => {
                if is_absent(&error) {
                    // The directory is gone, and the reason says more.
                    self.list()?;
                }
                Err(Error::io("cannot lock", &path, error))
            }
        }
    }

    fn claim(&self, table: &str) -> Result<Box<dyn Claim>> {
        let path = self.path_of(table);
        match self.lock(&path, LockTimeout::from_millis(0), None) {
            Ok(lock) => {
                // It takes no content.
                lock.sign().or_io("cannot lock", &path)?;
                Ok(Box::new(LocalClaim(lock)))
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(refused(self.system.as_ref(), &path, error))
            }
            Err(error) => Err(Error::io("cannot lock", &path, error)),
        }
    }

    fn is_claimed(&self, table: &str) -> Result<bool> {
        let path = self.path_of(&format!("{table}.lock"));
        match self.system.lstat(&path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Error::io("cannot read", &path, error)),
        }
    }

    fn create(&self, table: &str) -> Result<Box<dyn NewTable>> {
        let name = format!("{table}.temp.{:08x}", short_random(&*self.system));
        let temporary = self.dir.join(name);
        let file = self.system.create_new(&temporary, 0o666);
        let file = file.or_io("cannot create", &temporary)?;
        Ok(Box::new(LocalNewTable {
            system: Arc::clone(&self.system),
            path: self.path_of(table),
            dir: self.dir.clone(),
            fsync: self.fsync,
            shared: self.shared,
            temporary: Some(temporary),
            file: Some(file),
        }))
    }

    fn drop_table(&self, table: &str) -> Result<()> {
        let path = self.path_of(table);
        match self.system.remove_file(&path) {
            // A directory of such a name is somebody else's, and stays.
            Err(error) if !is_absent(&error) && error.kind() != io::ErrorKind::IsADirectory => {
                Err(Error::io("cannot remove", &path, error))
            }
            _ => Ok(()),
        }
    }

    fn clean(&self, _hold: &mut dyn Hold, listed: &[String], max_update_index: u64) -> Result<()> {
        let names = self.entries()?;
        let is_claim = |name: &String| name.strip_suffix(".lock").is_some_and(is_table_name);
        // The claims of processes that have ended are nobody's.
        for claim in names.iter().filter(|name| is_claim(name)) {
            let path = self.path_of(claim);
            take_over(&self.home, &path).or_io("cannot remove", &path)?;
        }
        // Tables are begun under the right to publish, which this caller holds, or under claims.
        let mut nobody_writes = true;
        for claim in names.iter().filter(|name| is_claim(name)) {
            let path = self.path_of(claim);
            let found = self.system.find(&path).or_io("cannot look at", &path)?;
            nobody_writes &= found.is_none();
        }
        for name in names.into_iter().filter(|name| !listed.contains(name)) {
            // What cannot be removed stays, and is in nobody's way.
            if nobody_writes && is_unfinished(&name) || is_new_value(&name, "tables.list") {
                let _ = self.drop_table(&name);
            }
            if !is_table_name(&name) {
                continue;
            }
            let Some(content) = self.open(&name)? else {
                continue;
            };
            // Whoever publishes a table gives it its name while holding the right that this caller
            // holds: an unlisted table is nobody's, and one that cannot be read is no table.
            let max = reftable::Table::open(content).map(|table| table.max_update_index());
            if max.is_ok_and(|max| max <= max_update_index) {
                let _ = self.drop_table(&name);
            }
        }
        Ok(())
    }
}

/// Reads the lines of a list.
fn parse_list(path: &Path, content: &[u8]) -> Result<Vec<String>> {
    if content.last().is_some_and(|&last| last != b'\n') {
        return Err(Error::corrupt(path, "the last line is not terminated"));
    }
    let lines = content.split(|&byte| byte == b'\n').enumerate();
    let mut names: Vec<String> = Vec::new();
    for (index, line) in lines.filter(|(_, line)| !line.is_empty()) {
        let name = std::str::from_utf8(line)
            .ok()
            .filter(|name| may_be_listed(name));
        let Some(name) = name else {
            let line = index + 1;
            return Err(Error::corrupt(
                path,
                format_args!("line {line} is not the name of a table"),
            ));
        };
        if names.len() == TABLES_MAX {
            return Err(Error::corrupt(
                path,
                format_args!("more than {TABLES_MAX} tables"),
            ));
        }
        names.push(name.to_owned());
    }
    Ok(names)
}

struct LocalClaim(#[expect(dead_code, reason = "held until it is dropped")] LockFile);

impl Claim for LocalClaim {}

struct LocalNewTable {
    system: Arc<dyn System>,
    path: PathBuf,
    dir: PathBuf,
    fsync: bool,
    shared: SharedRepository,
    temporary: Option<PathBuf>,
    file: Option<Box<dyn WriteFile>>,
}

impl Write for LocalNewTable {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.file {
            Some(file) => file.write(bytes),
            None => Err(io::Error::other("the table is finished")),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl NewTable for LocalNewTable {
    fn finish(mut self: Box<Self>) -> Result<()> {
        let Some(temporary) = self.temporary.clone() else {
            return Ok(());
        };
        let done = (|| {
            if let Some(mut file) = self.file.take()
                && self.fsync
            {
                file.sync()?;
            }
            self.shared.adjust(&*self.system, &temporary)?;
            self.system.rename(&temporary, &self.path)?;
            // From here on this is the name to be removed if the table is not finished.
            self.temporary = Some(self.path.clone());
            if self.fsync {
                self.system.sync_dir(&self.dir)?;
            }
            self.temporary = None;
            Ok(())
        })();
        done.or_io("cannot store", &self.path)
    }
}

impl Drop for LocalNewTable {
    fn drop(&mut self) {
        self.file = None;
        if let Some(temporary) = self.temporary.take() {
            // At worst the file stays behind under a name that no list has.
            let _ = self.system.remove_file(&temporary);
        }
    }
}

/// Returns the directory of the stack in a directory of the layout.
pub(super) fn stack_dir(base: &Path) -> PathBuf {
    base.join(bytes_to_path(b"reftable"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_files_of_its_own_directory() {
        let parse = |content: &[u8]| parse_list(Path::new("tables.list"), content);
        let (one, two) = (
            "0x000000000001-0x000000000002-70a0facc.ref",
            "00000003-00000004.log",
        );
        let list = format!("{one}\n\n{two}\n");
        assert_eq!(parse(list.as_bytes()).unwrap(), [one, two]);
        assert!(
            parse(b"0x1-0x2-3.ref")
                .unwrap_err()
                .to_string()
                .contains("not terminated")
        );
        assert!(
            parse(b"0x1-0x2-3.ref\n../0x3-0x4-5.ref\n")
                .unwrap_err()
                .to_string()
                .contains("line 2")
        );
        for bad in [
            "../../x",
            "/etc/passwd",
            ".",
            "..",
            "tables.list",
            "tables.list.lock",
            "HEAD",
            ".ref",
            "..ref",
            "0x1-0x2-3.ref\0",
            "0x1-0x2-3.ref.lock",
            "0x1-0x2-3.ref/../../x",
            &format!("0x1-0x2-{}.ref", "3".repeat(250)),
        ] {
            assert!(parse(format!("{bad}\n").as_bytes()).is_err(), "{bad}");
        }
    }
}
