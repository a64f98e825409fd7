//! What changed in the refs of a repository, where they are kept in it.
//!
//! Neither format tells that. `files` keeps no order of changes and no deletions; a stack of tables forgets
//! deletions when it is merged to the bottom, begins anew when it is empty, and looks like itself after a
//! backup was put back. So what was told is kept beside the refs, as a store of its own (a place in a
//! directory), and compared with them when somebody asks.
//!
//! 1. What is told is the difference between what was told before and what is there: no change is missed,
//!    whatever was done to the refs in between, and by whom.
//! 2. A moment is told when what it stands for is durable.
//! 3. A moment names the very change that it stands behind, by a random number. One that is not known here, such
//!    as one from before a backup was put back, gets all refs.
//! 4. Many may ask at once: a difference is told on the condition that nobody told one meanwhile.
//! 5. What is kept can be made again: where it is damaged, it is begun anew, and everybody gets all refs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use refdb::options::SharedRepository;
use refdb::shared::head::{Head, INLINE_LEN_MAX, TableEntry, checksum};
use refdb::shared::{Freshness, Known, Read, Register, Settings, Shared, Swap, Swapped, TableKey};
use refdb::system::{Bytes, FileKind, System};
use refdb::{Error, ErrorKind, RefFormat, RefName, RefNameBuf, RefRecord, Result, Target};
use refdb_git::Repository;
use refdb_git::places::DirShared;
use reftable::{
    LogRecord, LogUpdate, LogValue, MergedLogs, MergedRefs, RefValue, Table, WriteOptions, Writer,
};

use super::changes::{Changes, Moment, damaged, news, opened, tables_above, target_of};
use crate::stacks::{list_below, own_dir, tables_below};

/// The directory, in that of the worktree.
const FOLDER: &str = "refdb-watch";

/// The name of the log that has the random number of each change.
const LOG: &[u8] = b"refdb-watch";

/// How much of what was told is kept.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Up to so many bytes of changes stay in the head.
    inline: usize,
    /// So many tables are merged.
    tables: usize,
    /// So many bytes of changes are kept at least; what is more is forgotten when it is more than all refs are.
    kept: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            inline: INLINE_LEN_MAX,
            tables: 8,
            kept: 4 << 20,
        }
    }
}

/// For so long those who read tables that were merged are left in peace.
const GRACE: Duration = Duration::from_secs(60 * 60);

/// How many times a difference is found out beside others who tell one.
const TRIES_MAX: usize = 100;

/// A list of tables that is as it was is believed so many times: a transaction whose process ended is read
/// from elsewhere before it stands there.
const BELIEVED: u32 = 10;

/// The changes of a repository that keeps its refs itself.
#[derive(Debug)]
pub struct LocalChanges<'r> {
    repository: &'r Repository,
    /// The same, opened again since its refs were moved.
    again: Option<Repository>,
    dir: PathBuf,
    register: Register,
    /// The lists of tables as they were before the last comparison, and how often they were believed.
    seen: Option<(Vec<Vec<u8>>, u32)>,
    /// The moment that was told last, and the generation in which it was.
    last: Option<(u64, Moment)>,
    limits: Limits,
}

/// A ref that differs from what was told of it.
struct Difference {
    name: RefNameBuf,
    target: Option<Target>,
}

impl<'r> LocalChanges<'r> {
    /// Opens what was told before, or begins anew.
    ///
    /// # Errors
    /// `Misuse` for refs that are in a store which many machines share: see [`changes`](super::changes); `Io`
    /// where nothing can be written beside the refs.
    pub fn open(repository: &'r Repository) -> Result<LocalChanges<'r>> {
        if let Some(register) = repository.register() {
            let what = format!("{}: the refs are not kept here", register.name());
            return Err(Error::new(ErrorKind::Misuse, what));
        }
        let dir = repository.git_dir().join(FOLDER);
        let dir =
            std::path::absolute(&dir).map_err(|error| Error::io("cannot find", &dir, error))?;
        Ok(LocalChanges {
            register: open(repository, &dir)?,
            repository,
            again: None,
            dir,
            seen: None,
            last: None,
            limits: Limits::default(),
        })
    }

    fn repository(&self) -> &Repository {
        self.again.as_ref().unwrap_or(self.repository)
    }

    /// Returns what changed since a moment; all refs if that is `None`, or not known.
    ///
    /// # Errors
    /// As for reading the refs; `Io`; `Locked` where others ask all the time.
    pub fn changes(&mut self, since: Option<Moment>) -> Result<Changes> {
        let (mut troubles, mut is_opened) = (0, false);
        for _ in 0..TRIES_MAX {
            match self.try_changes(since) {
                Ok(Some(changes)) => return Ok(changes),
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::Corrupt && troubles < 2 => {
                    troubles += 1;
                    self.reopen()?;
                    match (troubles, self.is_damaged()?) {
                        // Somebody put something else there.
                        (1, false) => {}
                        (_, true) => self.begin_anew()?,
                        (_, false) => return Err(error),
                    }
                }
                Err(error) if is_opened => return Err(error),
                // The refs may have been moved into the other format.
                Err(error) => {
                    is_opened = true;
                    self.again = Some(self.repository().reload().map_err(|_| error)?);
                    self.reopen()?;
                }
            }
        }
        let what = format!(
            "{}: others ask what changed all the time",
            self.dir.display()
        );
        Err(Error::new(ErrorKind::Locked, what))
    }

    /// Tells what changed; `None` if somebody else was faster.
    fn try_changes(&mut self, since: Option<Moment>) -> Result<Option<Changes>> {
        let lists = self.lists();
        let is_seen = self.seen.as_mut().is_some_and(|(seen, believed)| {
            *believed += 1;
            Some(&*seen) == lists.as_ref() && *believed < BELIEVED
        });
        let known = self.register.current(Freshness::Fresh)?;
        if is_seen
            && let Some((generation, until)) = self.last
            && (generation, Some(until)) == (known.head.generation, since)
        {
            return Ok(Some(Changes {
                is_all: false,
                changes: Vec::new(),
                until,
            }));
        }
        if known.head.object_format != self.repository().object_format() {
            let what = "what was told of changes is of another object format";
            return Err(damaged(&self.register)(what));
        }
        let Some(tables) = tables_above(&self.register, &known, 0)? else {
            return Ok(None);
        };
        if !is_seen {
            let differences = self.differences(&tables)?;
            if !differences.is_empty() && !self.tell(&known, &differences)? {
                return Ok(None);
            }
            self.seen = lists.map(|lists| (lists, 0));
        }
        drop(tables);
        self.told(since)
    }

    /// Returns what was told since a moment.
    fn told(&mut self, since: Option<Moment>) -> Result<Option<Changes>> {
        let known = self.register.known()?;
        let Some(tables) = tables_above(&self.register, &known, 0)? else {
            return Ok(None);
        };
        let head = &known.head;
        let moment = |index| -> Result<Option<Moment>> {
            let id = self.id(&tables, index)?;
            let half = head.uuid >> 64 << 64;
            Ok(id.map(|id| Moment {
                uuid: half | u128::from(id),
                index,
                commit: None,
            }))
        };
        let Some(until) = moment(head.index)? else {
            let what = "the number of the last change is missing";
            return Err(damaged(&self.register)(what));
        };
        let from = match since {
            Some(since) if (head.complete_since..=head.index).contains(&since.index) => {
                (moment(since.index)? == Some(since)).then_some(since.index)
            }
            _ => None,
        };
        let later = match from {
            Some(from) => tables
                .into_iter()
                .filter(|it| it.max_update_index() > from)
                .collect(),
            None => tables,
        };
        let changes = news(&self.register, later, from, until)?;
        self.last = Some((head.generation, until));
        Ok(Some(changes))
    }

    /// Returns the random number of the change with an index.
    fn id(&self, tables: &[Arc<Table>], index: u64) -> Result<Option<u64>> {
        if index == 0 {
            return Ok(Some(0));
        }
        let mut logs = MergedLogs::new(tables.to_vec());
        let found = logs.seek_at(LOG, index).and_then(|()| logs.next());
        let found = found.map_err(damaged(&self.register))?;
        Ok(found.and_then(|record| match record.value {
            LogValue::Update(update) if record.update_index == index => {
                update.new.last_chunk().map(|id| u64::from_be_bytes(*id))
            }
            _ => None,
        }))
    }

    /// Returns where refs are below: those of all worktrees, and those of this one alone.
    fn bases(&self) -> Vec<PathBuf> {
        let common = self.repository().refs_base().to_owned();
        let own = own_dir(self.repository());
        match own == common {
            true => vec![common],
            false => vec![common, own],
        }
    }

    /// Returns the lists of tables as they are now; `None` where there is nothing that is as quick to compare.
    fn lists(&self) -> Option<Vec<Vec<u8>>> {
        (self.repository().ref_format() == RefFormat::Reftable).then_some(())?;
        let read = |base: PathBuf| list_below(self.repository(), &base).ok();
        self.bases().into_iter().map(read).collect()
    }

    /// Compares the refs with what was told of them.
    fn differences(&self, tables: &[Arc<Table>]) -> Result<Vec<Difference>> {
        let mut differences = Vec::new();
        let mut told = MergedRefs::new(tables.to_vec()).live_only();
        let mut next_told = || -> Result<Option<(RefNameBuf, Option<Target>)>> {
            let record = told.next().map_err(damaged(&self.register))?;
            Ok(match record {
                Some(record) => Some((
                    RefNameBuf::lax(record.name)?,
                    target_of(&record.value).flatten(),
                )),
                None => None,
            })
        };
        let mut refs = self.repository().store().refs()?;
        let mut before = next_told()?;
        loop {
            let now = loop {
                match refs.next()? {
                    // Nobody could be told of it, for no command takes such a name.
                    Some(record) if RefName::lax(record.name.as_bytes()).is_err() => {}
                    record => break record,
                }
            };
            while let Some((name, _)) = &before
                && now.is_none_or(|now: RefRecord<'_>| name.as_bytes() < now.name.as_bytes())
            {
                let name = name.clone();
                differences.push(Difference { name, target: None });
                before = next_told()?;
            }
            let Some(now) = now else { break };
            let same = before
                .as_ref()
                .filter(|it| it.0.as_bytes() == now.name.as_bytes());
            let target = now.target.to_owned();
            if same.is_none_or(|same| same.1.as_ref() != Some(&target)) {
                differences.push(Difference {
                    name: now.name.to_owned(),
                    target: Some(target),
                });
            }
            if before
                .as_ref()
                .is_some_and(|it| it.0.as_bytes() == now.name.as_bytes())
            {
                before = next_told()?;
            }
        }
        Ok(differences)
    }

    /// Writes a difference down; `false` if somebody else was faster.
    fn tell(&self, base: &Known, differences: &[Difference]) -> Result<bool> {
        let head = &base.head;
        // Who comes first gets all refs, which have no order.
        let order = match head.index {
            0 => vec![0; differences.len()],
            _ => self.order(differences),
        };
        let last = order.iter().max().copied().unwrap_or(0);
        let min = head.index.saturating_add(1);
        let max = min.saturating_add(last);
        let mut options = WriteOptions::new(head.object_format);
        (options.min_update_index, options.max_update_index) = (min, max);
        let failed = damaged(&self.register);
        let mut writer = Writer::new(Vec::new(), options).map_err(&failed)?;
        for (difference, at) in differences.iter().zip(order) {
            let record = reftable::RefRecord {
                name: difference.name.as_bytes(),
                update_index: min.saturating_add(at),
                value: match &difference.target {
                    None => RefValue::Deletion,
                    Some(Target::Direct(oid)) => RefValue::Direct(oid.as_bytes()),
                    Some(Target::Symbolic(name)) => RefValue::Symref(name.as_bytes()),
                },
            };
            writer.add_ref(record).map_err(&failed)?;
        }
        let id = self.register.system().random();
        self.add_id(&mut writer, max, id)?;
        let content = Bytes::from(writer.finish().map_err(&failed)?.sink);
        self.publish(base, content, min, max)
    }

    fn add_id(&self, writer: &mut Writer<Vec<u8>>, index: u64, id: u64) -> Result<()> {
        let len = self.repository().object_format().hex_len() / 2;
        let mut new = vec![0; len];
        if let Some(end) = new.last_chunk_mut() {
            *end = id.to_be_bytes();
        }
        let record = LogRecord {
            name: LOG,
            update_index: index,
            value: LogValue::Update(LogUpdate {
                old: &vec![0; len],
                new: &new,
                name: b"",
                email: b"",
                time: 0,
                tz: 0,
                message: b"",
            }),
        };
        writer.add_log(record).map_err(damaged(&self.register))
    }

    /// Puts a table on top of what was told; `false` if somebody else was faster.
    fn publish(&self, base: &Known, content: Bytes, min: u64, max: u64) -> Result<bool> {
        let mut new = base.head.clone();
        new.index = max;
        let (mut content, mut min) = (content, min);
        if !new.inline.is_empty() {
            let below = opened(&self.register, std::mem::take(&mut new.inline))?;
            min = below.min_update_index();
            let tables = [below, opened(&self.register, content)?];
            let options = WriteOptions::new(new.object_format);
            let merged = reftable::compact(&tables, false, &options, Vec::new());
            content = Bytes::from(merged.map_err(damaged(&self.register))?.sink);
        }
        if content.len() <= self.limits.inline {
            new.inline = content;
        } else {
            // Before this one comes on top: who knows all before it goes on, whatever is forgotten.
            self.merge(&mut new)?;
            let entry = self.put(None, min, max, &content)?;
            new.tables.push(entry);
        }
        let is_merged = new.epoch > base.head.epoch;
        match self.register.swap(base, new)? {
            Swapped::Moved => return Ok(false),
            Swapped::Done => {}
        }
        if is_merged {
            self.register.collect(GRACE)?;
        }
        Ok(true)
    }

    /// Stores a table.
    fn put(&self, epoch: Option<u64>, min: u64, max: u64, content: &[u8]) -> Result<TableEntry> {
        let random = self.register.system().random();
        let key = TableKey {
            epoch,
            min,
            max,
            random,
        };
        self.register
            .shared()
            .put(&format!("tables/{key}"), content)?;
        Ok(TableEntry {
            key,
            len: content.len() as u64,
            checksum: checksum(content),
        })
    }

    /// Merges tables if there are many: those above the oldest, or all, once their changes are more than the
    /// refs are. Then deletions are forgotten, and the numbers of all changes but the last.
    fn merge(&self, new: &mut Head) -> Result<()> {
        if new.tables.len() < self.limits.tables {
            return Ok(());
        }
        let (oldest, above) = new.tables.split_at(1);
        let len = |tables: &[TableEntry]| tables.iter().map(|table| table.len).sum::<u64>();
        let is_whole = len(above) > len(oldest).max(self.limits.kept);
        let first = usize::from(!is_whole);
        let merged = new.tables.split_off(first);
        let mut tables = Vec::new();
        for entry in &merged {
            let content = self.register.table(entry)?;
            let content = content.ok_or_else(|| damaged(&self.register)("a table is missing"))?;
            tables.push(opened(&self.register, content)?);
        }
        let min = tables.first().map_or(1, |table| table.min_update_index());
        let max = tables.last().map_or(1, |table| table.max_update_index());
        let mut options = WriteOptions::new(new.object_format);
        (options.min_update_index, options.max_update_index) = (min, max);
        let failed = damaged(&self.register);
        let content = match is_whole {
            false => {
                reftable::compact(&tables, false, &options, Vec::new())
                    .map_err(&failed)?
                    .sink
            }
            true => {
                let mut writer = Writer::new(Vec::new(), options).map_err(&failed)?;
                let mut refs = MergedRefs::new(tables.clone()).live_only();
                while refs.advance().map_err(&failed)? {
                    writer.add_ref(refs.record()).map_err(&failed)?;
                }
                if let Some(id) = self.id(&tables, max)? {
                    self.add_id(&mut writer, max, id)?;
                }
                writer.finish().map_err(&failed)?.sink
            }
        };
        new.epoch += 1;
        let entry = self.put(Some(new.epoch), min, max, &content)?;
        new.tables.push(entry);
        if is_whole {
            new.complete_since = max;
        }
        Ok(())
    }

    /// Returns a place for each difference, in the order in which they were made, as far as the tables tell.
    fn order(&self, differences: &[Difference]) -> Vec<u64> {
        // A deletion of which nothing is left may have been made at any time: it comes first. A stack that
        // changes meanwhile, or cannot be read, leaves the order of the names.
        let stacks: Vec<Vec<Arc<Table>>> = match self.repository().ref_format() {
            RefFormat::Files => Vec::new(),
            RefFormat::Reftable => {
                let bases = self.bases().into_iter().rev();
                let tables = bases.filter_map(|base| tables_below(self.repository(), &base).ok());
                tables.collect()
            }
        };
        let index = |name: &RefNameBuf| {
            stacks.iter().find_map(|tables| {
                reftable::find_ref(tables, name.as_bytes(), |it| it.update_index).ok()?
            })
        };
        let mut by_index: Vec<(u64, usize)> = differences
            .iter()
            .enumerate()
            .map(|(at, it)| (index(&it.name).unwrap_or(0), at))
            .collect();
        by_index.sort_unstable();
        let mut order = vec![0; differences.len()];
        for (place, (_, at)) in by_index.into_iter().enumerate() {
            if let Some(slot) = order.get_mut(at) {
                *slot = place as u64;
            }
        }
        order
    }

    /// Returns whether what was told is damaged, and not the refs.
    ///
    /// # Errors
    /// Those of the system: they say nothing of either.
    fn is_damaged(&self) -> Result<bool> {
        let check = || -> Result<bool> {
            let known = self.register.current(Freshness::Fresh)?;
            if known.head.object_format != self.repository().object_format() {
                return Ok(true);
            }
            let Some(tables) = tables_above(&self.register, &known, 0)? else {
                return Ok(false);
            };
            let mut refs = MergedRefs::new(tables.clone());
            while refs.advance().map_err(damaged(&self.register))? {}
            Ok(self.id(&tables, known.head.index)?.is_none())
        };
        match check() {
            Err(error) if error.kind() != ErrorKind::Corrupt => Err(error),
            found => Ok(found.unwrap_or(true)),
        }
    }

    /// Begins anew, in place of what is there.
    fn begin_anew(&mut self) -> Result<()> {
        let system = self.repository().system();
        let permissions = self.repository().store().options().shared_repository;
        let place = place(system.as_ref(), &self.dir, permissions)?;
        let left = place.list("tables/")?;
        let uuid = u128::from(system.random()) << 64;
        let object_format = self.repository().object_format();
        let head = Head::first(uuid, object_format, 1, system.random());
        if let Read::Head(_, version) = place.head(0, None)?
            && let Swap::Done(_) = place.swap(0, Some(&version), &head.encode())?
        {
            // Nobody knows them any more.
            let keys: Vec<&str> = left.iter().map(|it| it.0.as_str()).collect();
            place.delete(&keys)?;
        }
        self.reopen()
    }

    /// Reads what is there anew.
    fn reopen(&mut self) -> Result<()> {
        (self.seen, self.last) = (None, None);
        self.register = open(self.repository(), &self.dir)?;
        Ok(())
    }
}

/// Opens the directory, which is made if need be. A link in its place is not followed.
fn place(system: &dyn System, dir: &Path, shared: SharedRepository) -> Result<DirShared> {
    let is_other = system
        .lstat(dir)
        .is_ok_and(|stat| stat.kind != FileKind::Directory);
    if is_other {
        let what = "something else has the place of the directory for what was told of changes";
        return Err(Error::corrupt(dir, what));
    }
    DirShared::open_in(system, dir, true, shared)
}

fn open(repository: &Repository, dir: &Path) -> Result<Register> {
    let system = repository.system();
    let permissions = repository.store().options().shared_repository;
    let shared = Arc::new(place(system.as_ref(), dir, permissions)?);
    let format = repository.object_format();
    let is_there = !matches!(shared.head(0, None)?, Read::Missing);
    if !is_there {
        match Register::init(shared.as_ref(), system.as_ref(), format, 1) {
            // Somebody else did.
            Err(error) if error.kind() == ErrorKind::Misuse => {}
            made => made?,
        }
    }
    Register::open(shared, Arc::clone(system), Settings::default())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A repository of loose refs, which a test writes as files.
    fn scene() -> (tempfile::TempDir, Repository) {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path();
        for name in ["objects", "refs/heads"] {
            fs::create_dir_all(dir.join(name)).unwrap();
        }
        fs::write(dir.join("HEAD"), "ref: refs/heads/b0\n").unwrap();
        let config = "[core]\n\trepositoryFormatVersion = 0\n\tbare = true\n";
        fs::write(dir.join("config"), config).unwrap();
        let repository = Repository::open(dir).unwrap();
        (temp, repository)
    }

    fn write(repository: &Repository, at: usize, digit: usize) {
        let path = repository.git_dir().join(format!("refs/heads/b{at}"));
        fs::write(path, format!("{digit:040x}\n")).unwrap();
    }

    #[test]
    fn who_is_up_to_date_goes_on_and_who_is_not_gets_everything_when_changes_are_forgotten() {
        let (_temp, repository) = scene();
        let mut local = LocalChanges::open(&repository).unwrap();
        local.limits = Limits {
            inline: 0,
            tables: 4,
            kept: 0,
        };
        let first = local.changes(None).unwrap();
        let mut last = first.until;
        let (mut forgotten, mut merged) = (0, 0);
        for round in 1..60 {
            write(&repository, round % 7, round);
            if round % 5 == 0 {
                let gone = format!("refs/heads/b{}", (round + 2) % 7);
                let _ = fs::remove_file(repository.git_dir().join(gone));
            }
            let news = local.changes(Some(last)).unwrap();
            let head = local.register.known().unwrap().head.clone();
            assert!(!news.is_all, "round {round}");
            assert!(!news.changes.is_empty(), "round {round}");
            assert!(head.tables.len() <= 4, "round {round}");
            forgotten += usize::from(head.complete_since == last.index);
            merged = head.epoch;
            let early = local.changes(Some(first.until)).unwrap();
            assert_eq!(early.is_all, head.complete_since > first.until.index);
            last = news.until;
        }
        assert!(
            forgotten > 1 && merged > 1,
            "{forgotten} times forgotten in {merged} epochs"
        );
    }

    #[test]
    fn two_who_ask_at_once_tell_each_change_once() {
        let (_temp, repository) = scene();
        let mut one = LocalChanges::open(&repository).unwrap();
        let mut other = LocalChanges::open(&repository).unwrap();
        let start = one.changes(None).unwrap().until;
        assert_eq!(other.changes(None).unwrap().until, start);
        // The other one compares with what the first has told since.
        let base = other.register.current(Freshness::Fresh).unwrap();
        write(&repository, 1, 1);
        let tables = tables_above(&other.register, &base, 0).unwrap().unwrap();
        let late = other.differences(&tables).unwrap();
        let news = one.changes(Some(start)).unwrap();
        assert_eq!(news.changes.len(), 1);
        let is_told = other.tell(&base, &late).unwrap();
        assert!(!is_told, "it is not told a second time");
        assert_eq!(other.changes(Some(start)).unwrap(), news);
    }

    #[test]
    fn what_is_damaged_is_begun_anew() {
        let (temp, repository) = scene();
        write(&repository, 1, 1);
        let mut local = LocalChanges::open(&repository).unwrap();
        let start = local.changes(None).unwrap();
        assert_eq!(start.changes.len(), 2);
        let heads = temp.path().join(FOLDER).join("head");
        for at in 0..80 {
            let names = fs::read_dir(&heads).unwrap();
            let number = |path: &PathBuf| {
                let number = path.extension().and_then(|number| number.to_str());
                number.and_then(|number| number.parse::<u64>().ok())
            };
            let newest = names.map(|name| name.unwrap().path()).max_by_key(number);
            let newest = newest.unwrap();
            let mut bad = fs::read(&newest).unwrap();
            let byte = at * 7 % bad.len();
            bad[byte] ^= 0x10;
            fs::write(&newest, bad).unwrap();
            let all = local.changes(Some(start.until)).unwrap();
            assert!(all.is_all && all.changes.len() == 2, "byte {byte}");
            assert_ne!(all.until, start.until, "byte {byte}");
        }
    }
}
