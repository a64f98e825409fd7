//! A copy of a shared store in `reftable/`, which Git reads and cannot write.
//!
//! Invariants:
//! 1. A table has its name here once: a list names it from one switch on until another, and never again. A
//!    Git that reads removes tables which have left the list it knows.
//! 2. The list is switched in one step, after every table that it names is there, and everything that refs
//!    name was brought.
//! 3. What is read here may be somebody else's: only names of tables become paths, and a link in the place of
//!    a directory of this copy is an error, wherever it leads.
//! 4. `tables.list.lock` is there as long as the copy is followed: Git cannot write. What somebody wrote who
//!    removed it is noticed by its list, and set aside before the copy is followed again.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bstr::ByteSlice;
use refdb::internals::{
    Holder, Home, LockFile, LockOptions, is_absent, is_table_name, may_be_listed, new_table_name,
};
use refdb::options::SharedRepository;
use refdb::shared::head::checksum;
use refdb::shared::{Freshness, Known, Register};
use refdb::system::{Bytes, FileKind, System};
use refdb::{Error, ErrorKind, ObjectFormat, Options, Result};
use refdb_git::Repository;
use reftable::{MergedRefs, Table};

use super::changes::{Changes, Moment, changes_of};

/// What is known of the copy, beside the directory of the tables.
const MARKER: &str = "refdb-followed";
/// Where what others wrote is kept.
const ASIDE: &str = "refdb-aside";
/// What the lock begins with.
const LOCK_TEXT: &str = "refdb follows";

/// What a call of [`Follower::sync`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Synced {
    /// The generation that the copy shows.
    pub generation: u64,
    /// How many refs changed; `None` if the copy was up to date.
    pub changed: Option<usize>,
    /// Where the tables are that others wrote here, if some were set aside.
    pub aside: Option<PathBuf>,
    /// Whether somebody had removed the lock, and wrote nothing.
    pub lock_was_gone: bool,
}

/// Keeps a copy of a store in a repository whose refs are tables.
#[derive(Debug)]
pub struct Follower {
    register: Arc<Register>,
    system: Arc<dyn System>,
    common: PathBuf,
    /// Who may read and write what is made there.
    permissions: SharedRepository,
}

/// A table of the copy.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Copied {
    /// Its name here.
    name: String,
    /// What it is there: the name of a table, or the checksum of the newest records.
    source: String,
}

/// New tables, and the names that they are to have.
type Staged = Vec<(PathBuf, String)>;

/// What is remembered between two switches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Marker {
    moment: Option<Moment>,
    generation: u64,
    /// The list.
    tables: Vec<Copied>,
    /// The list before, which stands if a switch was interrupted.
    before: Vec<String>,
}

impl Marker {
    fn encode(&self) -> String {
        let moment = self.moment.map(|moment| moment.to_string());
        let mut text = format!("1 {} {}\n", self.generation, moment.unwrap_or_default());
        for table in &self.tables {
            text.push_str(&format!("table {} {}\n", table.name, table.source));
        }
        for name in &self.before {
            text.push_str(&format!("before {name}\n"));
        }
        text
    }

    fn decode(text: &str) -> Option<Marker> {
        let mut lines = text.lines();
        let mut words = lines.next()?.split(' ');
        let is_known = words.next()? == "1";
        let mut marker = Marker {
            generation: words.next()?.parse().ok()?,
            moment: Some(words.next()?.parse().ok()?),
            ..Marker::default()
        };
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["table", name, source] if is_table_name(name) => marker.tables.push(Copied {
                    name: (*name).to_owned(),
                    source: (*source).to_owned(),
                }),
                ["before", name] if may_be_listed(name) => marker.before.push((*name).to_owned()),
                _ => return None,
            }
        }
        is_known.then_some(marker)
    }

    fn names(&self) -> Vec<String> {
        self.tables.iter().map(|table| table.name.clone()).collect()
    }
}

impl Follower {
    /// Has a repository follow a store.
    pub fn new(register: Arc<Register>, repository: &Repository) -> Follower {
        Follower {
            register,
            system: Arc::clone(repository.system()),
            common: repository.common_dir().to_owned(),
            permissions: repository.store().options().shared_repository,
        }
    }

    fn reftable(&self, name: &str) -> PathBuf {
        self.common.join("reftable").join(name)
    }

    /// Takes the lock of a file of the copy.
    fn lock(&self, target: &Path) -> Result<LockFile> {
        // Nothing of a lock depends on the format of objects.
        let mut settings = Options::new(ObjectFormat::Sha1);
        settings.shared_repository = self.permissions;
        let home = Home::new(&self.system, &self.common, &settings);
        let options = LockOptions {
            shared: self.permissions,
            ..LockOptions::AT_ONCE
        };
        LockFile::take(&Holder::new(&home), target, options)
    }

    /// Makes the copy what the store is now. Before the list is switched, `bring` is told what changed, and
    /// brings the objects; its failure leaves the copy as it is. With `set_aside`, tables that somebody else
    /// wrote here are kept in another place first.
    ///
    /// # Errors
    /// `Misuse` where there are refs that are not of this copy; `Locked` where another program works on it;
    /// `Corrupt` for a copy of another store; as for reading the store and writing here.
    pub fn sync(
        &self,
        set_aside: bool,
        bring: &mut dyn FnMut(&Changes) -> Result<()>,
    ) -> Result<Synced> {
        self.assert_own(&self.common.join("reftable"))?;
        // The right to work on the copy, among programs of this kind.
        let turn = self.lock(&self.common.join(MARKER));
        let turn = turn.map_err(|error| error.context("another process follows here"))?;
        self.sweep()?;
        let synced = self.follow_on(&turn, set_aside, bring);
        // What never was a copy, and is none now, goes on without a lock: its writers would wait for nobody. If somebody
        // removed the lock of this turn, another process may follow by now, and the lock of the list is that one's.
        if synced.is_err() && turn.check().is_ok() && matches!(self.marker(), Ok(None)) {
            self.give_list_back();
        }
        synced
    }

    fn follow_on(
        &self,
        turn: &LockFile,
        set_aside: bool,
        bring: &mut dyn FnMut(&Changes) -> Result<()>,
    ) -> Result<Synced> {
        let mut synced = Synced::default();
        let marker = self.marker()?;
        let list = self.begin(marker.as_ref(), set_aside, &mut synced)?;
        let marker = marker.unwrap_or_default();
        loop {
            let known = self.register.current(Freshness::Fresh)?;
            synced.generation = known.head.generation;
            let is_current = marker.generation == known.head.generation
                && marker.moment == Some(Moment::of(&known.head))
                && marker.names() == list;
            if let Some(moment) = marker.moment
                && moment.uuid != known.head.uuid
            {
                let what = "the copy here is of another store";
                return Err(Error::corrupt_with(&self.common.join(MARKER), what, None));
            }
            if is_current {
                return Ok(synced);
            }
            // Who took something aside begins anew.
            let since = marker.moment.filter(|_| synced.aside.is_none());
            let Some(changes) = changes_of(&self.register, &known, since)? else {
                continue;
            };
            bring(&changes)?;
            let mut staged = Staged::new();
            let Some(tables) = self.store_tables(&known, &marker, &list, &mut staged)? else {
                self.sweep()?;
                continue;
            };
            let new = Marker {
                moment: Some(changes.until),
                generation: known.head.generation,
                tables,
                before: list.clone(),
            };
            // Somebody may have removed the lock meanwhile, and another one follows here.
            turn.check()?;
            self.tidy(&marker, &new);
            self.switch(&new, &list, &staged)?;
            synced.changed = Some(changes.changes.len());
            return Ok(synced);
        }
    }

    /// Removes what was written for a switch that did not come to be.
    fn sweep(&self) -> Result<()> {
        let entries = self.system.read_dir(&self.common);
        for entry in entries.map_err(|error| Error::io("cannot read", &self.common, error))? {
            let name = entry.name.to_str().ok();
            let number = name.and_then(|name| name.strip_prefix(MARKER)?.strip_prefix('.'));
            if let (Some(name), Some(16)) = (name, number.map(str::len)) {
                let path = self.common.join(name);
                let removed = self.system.remove_file(&path);
                removed.map_err(|error| Error::io("cannot remove", &path, error))?;
            }
        }
        Ok(())
    }

    /// Returns a new path for what gets its name later.
    fn temporary(&self) -> PathBuf {
        let random = self.system.random();
        self.common.join(format!("{MARKER}.{random:016x}"))
    }

    /// Returns the list of the copy, which nobody else can change from now on.
    fn begin(
        &self,
        marker: Option<&Marker>,
        set_aside: bool,
        synced: &mut Synced,
    ) -> Result<Vec<String>> {
        let lock_path = self.reftable("tables.list.lock");
        let lock = self.read_if_there(&lock_path)?;
        if !lock.as_deref().is_some_and(is_copys) {
            self.take_list(&lock_path)?;
        }
        // From here on Git cannot write.
        let begun = (|| {
            let list = self.list()?;
            let (is_known, what) = match marker {
                Some(marker) => (
                    marker.names() == list || marker.before == list,
                    "somebody removed the lock of this copy and wrote refs here",
                ),
                None => (self.is_empty(&list)?, "there are refs here already"),
            };
            match (is_known, set_aside) {
                (true, _) => synced.lock_was_gone = lock.is_none() && marker.is_some(),
                (false, true) => synced.aside = Some(self.keep_aside(&list)?),
                (false, false) => {
                    let what = format!(
                        "{what}: nothing was changed; to keep them in {ASIDE}/ and follow the store: the same call with \
                         --set-aside"
                    );
                    return Err(Error::new(ErrorKind::Misuse, what));
                }
            }
            Ok(list)
        })();
        if begun.is_err() && lock.is_none() {
            self.give_list_back();
        }
        begun
    }

    /// Takes the lock of the list, for longer than this process lives.
    fn take_list(&self, path: &Path) -> Result<()> {
        let lock = self.lock(&self.reftable("tables.list"));
        let _lock = lock.map_err(|error| error.context("another program is writing"))?;
        let text = format!(
            "{LOCK_TEXT} {} here: Git reads, and cannot write. Write to the store (refdb update-ref, ...). Who \
             removes this file and writes is told by the next refdb sync.\n",
            self.register.name()
        );
        self.replace(path, text.as_bytes())
    }

    /// Removes the lock of the list, if it is one of a copy.
    fn give_list_back(&self) {
        let path = self.reftable("tables.list.lock");
        if let Ok(Some(lock)) = self.read_if_there(&path)
            && is_copys(&lock)
        {
            let _ = self.system.remove_file(&path);
        }
    }

    fn read_if_there(&self, path: &Path) -> Result<Option<Vec<u8>>> {
        match self.system.read(path) {
            Ok(content) => Ok(Some(content)),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(Error::io("cannot read", path, error)),
        }
    }

    fn marker(&self) -> Result<Option<Marker>> {
        let path = self.common.join(MARKER);
        let Some(content) = self.read_if_there(&path)? else {
            return Ok(None);
        };
        let marker = content.to_str().ok().and_then(Marker::decode);
        let what = "this is not what refdb sync writes; remove it to begin anew";
        marker
            .map(Some)
            .ok_or_else(|| Error::corrupt_with(&path, what, None))
    }

    fn list(&self) -> Result<Vec<String>> {
        let path = self.reftable("tables.list");
        let content = self.read_if_there(&path)?.unwrap_or_default();
        let text = String::from_utf8_lossy(&content).into_owned();
        if !text.lines().all(may_be_listed) {
            return Err(Error::corrupt(&path, "a line is no name of a table"));
        }
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// Fails if a directory is a link, or anything else.
    fn assert_own(&self, dir: &Path) -> Result<()> {
        match self.system.lstat(dir) {
            Ok(stat) if stat.kind == FileKind::Directory => Ok(()),
            Ok(_) => {
                let what = format!(
                    "'{}' is no directory of this copy: nothing was changed",
                    dir.display()
                );
                Err(Error::new(ErrorKind::Misuse, what))
            }
            Err(error) => Err(Error::io("cannot read", dir, error)),
        }
    }

    /// Returns whether there is no ref but `HEAD`.
    fn is_empty(&self, list: &[String]) -> Result<bool> {
        let mut tables = Vec::new();
        for name in list {
            let path = self.reftable(name);
            let content = self.system.map(&path);
            let content = content.map_err(|error| Error::io("cannot read", &path, error))?;
            let table = Table::open(content).map_err(|error| Error::corrupt(&path, error))?;
            tables.push(Arc::new(table));
        }
        let mut refs = MergedRefs::new(tables).live_only();
        let damaged = |error| Error::corrupt(&self.reftable("tables.list"), error);
        while let Some(record) = refs.next().map_err(damaged)? {
            if record.name != b"HEAD" {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Gives everything that is in the directory of the tables a second name elsewhere.
    fn keep_aside(&self, list: &[String]) -> Result<PathBuf> {
        let root = self.common.join(ASIDE);
        let (now, random) = (self.system.now().as_secs(), self.system.random());
        let dir = root.join(format!("{now}-{random:016x}"));
        for path in [&root, &dir] {
            let made = self.system.create_dir(path);
            match made.and_then(|()| self.permissions.adjust(self.system.as_ref(), path)) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(Error::io("cannot create", path, error));
                }
                _ => self.assert_own(path)?,
            }
        }
        let tables = self.common.join("reftable");
        let entries = self.system.read_dir(&tables);
        for entry in entries.map_err(|error| Error::io("cannot read", &tables, error))? {
            let name = entry.name.to_str_lossy().into_owned();
            if !name.ends_with(".ref") && !name.ends_with(".log") {
                continue;
            }
            let linked = self.system.hard_link(&tables.join(&name), &dir.join(&name));
            linked.map_err(|error| Error::io("cannot link", &dir.join(&name), error))?;
        }
        let text = list.iter().map(|name| format!("{name}\n"));
        self.write_new(
            &dir.join("tables.list"),
            text.collect::<String>().as_bytes(),
        )?;
        self.sync_dir(&dir)?;
        Ok(dir)
    }

    fn write_new(&self, path: &Path, content: &[u8]) -> Result<()> {
        let written = (|| {
            let mode = self.permissions.mode_of_new_file();
            let mut file = self.system.create_new(path, mode)?;
            let adjusted = self.permissions.adjust(self.system.as_ref(), path);
            let done = adjusted
                .and_then(|()| file.write_all(content))
                .and_then(|()| file.sync());
            if done.is_err() {
                // On a full disk it would only be in the way.
                let _ = self.system.remove_file(path);
            }
            done
        })();
        written.map_err(|error| Error::io("cannot write", path, error))
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        let synced = self.system.sync_dir(path);
        synced.map_err(|error| Error::io("cannot sync", path, error))
    }

    /// Writes the tables that are not here yet, beside their directory; `None` if one is gone, since there is a later head.
    fn store_tables(
        &self,
        known: &Known,
        marker: &Marker,
        list: &[String],
        staged: &mut Staged,
    ) -> Result<Option<Vec<Copied>>> {
        let head = &known.head;
        let mut tables = Vec::new();
        let here = |source: &str| {
            let mut known = marker.tables.iter();
            known.find(|table| table.source == source && list.contains(&table.name))
        };
        for entry in &head.tables {
            let source = entry.key.to_string();
            if let Some(table) = here(&source) {
                tables.push(table.clone());
                continue;
            }
            match self.register.table(entry)? {
                Some(content) => tables.push(self.store_table(source, &content, staged)?),
                None if self.register.current(Freshness::Fresh)?.head.generation
                    > head.generation =>
                {
                    return Ok(None);
                }
                None => {
                    let what = format!("the table {} is missing", entry.key);
                    return Err(Error::corrupt_store(&self.register.name(), what));
                }
            }
        }
        if !head.inline.is_empty() {
            let source = format!("inline-{:016x}", checksum(&head.inline));
            match here(&source) {
                Some(table) => tables.push(table.clone()),
                None => tables.push(self.store_table(source, &head.inline, staged)?),
            }
        }
        Ok(Some(tables))
    }

    fn store_table(&self, source: String, content: &Bytes, staged: &mut Staged) -> Result<Copied> {
        let place = self.register.name();
        let table = Table::open(content.clone());
        let table = table.map_err(|error| Error::corrupt_store(&place, error))?;
        let (min, max) = (table.min_update_index(), table.max_update_index());
        let name = new_table_name(self.system.as_ref(), min, max);
        let path = self.temporary();
        self.write_new(&path, content)?;
        staged.push((path, name.clone()));
        Ok(Copied { name, source })
    }

    /// Remembers what is to be, gives the new tables their names, and switches the list. Whatever has a name is
    /// remembered, so that it goes if the list is not switched.
    fn switch(&self, new: &Marker, list: &[String], staged: &Staged) -> Result<()> {
        self.replace(&self.common.join(MARKER), new.encode().as_bytes())?;
        self.sync_dir(&self.common)?;
        for (path, name) in staged {
            self.rename(path, &self.reftable(name))?;
        }
        self.sync_dir(&self.common.join("reftable"))?;
        let lock = self.read_if_there(&self.reftable("tables.list.lock"))?;
        let is_held = lock.is_some_and(|lock| lock.starts_with(LOCK_TEXT.as_bytes()));
        if !is_held || self.list()? != list {
            let what = "somebody removed the lock of this copy meanwhile: nothing was switched";
            return Err(Error::new(ErrorKind::Locked, what));
        }
        let text: String = new.names().iter().map(|name| format!("{name}\n")).collect();
        self.replace(&self.reftable("tables.list"), text.as_bytes())?;
        self.sync_dir(&self.common.join("reftable"))
    }

    /// Gives a file a content in one step.
    fn replace(&self, path: &Path, content: &[u8]) -> Result<()> {
        let temporary = self.temporary();
        self.write_new(&temporary, content)?;
        self.rename(&temporary, path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let renamed = self.system.rename(from, to);
        renamed.map_err(|error| Error::io("cannot rename to", to, error))
    }

    /// Removes tables that neither the list to come nor the present one names: who reads an older one reads
    /// again. Then nothing that is forgotten is left.
    fn tidy(&self, old: &Marker, new: &Marker) {
        let names = new.names();
        let kept: BTreeSet<&String> = names.iter().chain(&new.before).collect();
        for name in old.before.iter().chain(&old.names()) {
            if !kept.contains(name) {
                let _ = self.system.remove_file(&self.reftable(name));
            }
        }
    }
}

/// Returns whether this is the lock of a list that is a copy.
fn is_copys(lock: &[u8]) -> bool {
    lock.starts_with(LOCK_TEXT.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marker_is_read_as_it_was_written() {
        let table = |name: &str, source: &str| Copied {
            name: name.to_owned(),
            source: source.to_owned(),
        };
        let marker = Marker {
            moment: Some(Moment {
                uuid: 3,
                index: 9,
                commit: Some((4, 5)),
            }),
            generation: 4,
            tables: vec![
                table("0x1-0x2-a.ref", "b"),
                table("0x3-0x3-c.ref", "inline-1"),
            ],
            before: vec!["d.ref".to_owned()],
        };
        assert_eq!(Marker::decode(&marker.encode()), Some(marker.clone()));
        for damaged in [
            "",
            "2 4 x",
            "1 4 x\n",
            &marker.encode().replace("table", "stool"),
            &marker.encode().replace("0x1-", "../x1-"),
            &marker.encode().replace("d.ref", "../HEAD"),
        ] {
            assert_eq!(Marker::decode(damaged), None, "{damaged}");
        }
    }
}
