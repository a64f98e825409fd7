//! What changed in a store since a moment: the refs whose newest record is later, each with its value now.
//! For local refs, which keep no such record, see [`LocalChanges`](super::LocalChanges).
//!
//! Deletions are recorded until tables are merged to the bottom. Who comes back later than that has to read
//! everything anew, and is told.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use refdb::internals::name_from_disk;
use refdb::shared::head::Head;
use refdb::shared::{Freshness, Known, Register};
use refdb::system::Bytes;
use refdb::{Error, ErrorKind, ObjectId, RefNameBuf, Result, Target};
use reftable::{MergedRefs, RefValue, Table};

/// A moment of a store: what was written with a greater index is later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Which store; for local refs, also which change.
    pub uuid: u128,
    /// The greatest update index.
    pub index: u64,
    /// The generation of a store, and its commit: after a backup was put back another one comes to the same index.
    pub commit: Option<(u64, u64)>,
}

impl Moment {
    /// Returns the moment of a head.
    pub(super) fn of(head: &Head) -> Moment {
        Moment {
            uuid: head.uuid,
            index: head.index,
            commit: head.recent.first().map(|id| (head.generation, *id)),
        }
    }

    /// Returns whether all that a store changed since then is to be found out.
    fn is_known(&self, head: &Head) -> bool {
        let is_of_head = |(generation, id): (u64, u64)| {
            let after = head.generation.checked_sub(generation);
            let recent = after.map(|after| head.recent.get(usize::try_from(after).ok()?).copied());
            // Of long ago nothing is known.
            recent.is_some_and(|recent| recent.is_none_or(|recent| recent == id))
        };
        self.uuid == head.uuid
            && (head.complete_since..=head.index).contains(&self.index)
            && self.commit.is_none_or(is_of_head)
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}-{}", self.uuid, self.index)?;
        match self.commit {
            Some((generation, id)) => write!(f, "-{generation}-{id:016x}"),
            None => Ok(()),
        }
    }
}

impl FromStr for Moment {
    type Err = Error;

    /// Reads what `Display` writes.
    ///
    /// ```
    /// use refdb_maintenance::shared::Moment;
    /// let moment = Moment { uuid: 7, index: 12, commit: Some((9, 81)) };
    /// assert_eq!(moment.to_string().parse::<Moment>()?, moment);
    /// assert!("12".parse::<Moment>().is_err());
    /// # Ok::<(), refdb::Error>(())
    /// ```
    fn from_str(text: &str) -> Result<Moment> {
        let parse = || {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            let parts: Vec<&str> = text.split('-').collect();
            let (uuid, index, commit) = match *parts.as_slice() {
                [uuid, index] => (uuid, index, None),
                [uuid, index, generation, id] => (uuid, index, Some((generation, id))),
                _ => return None,
            };
            let commit = commit.map(|(generation, id)| {
                let id = u64::from_str_radix(id, 16)
                    .ok()
                    .filter(|_| id.len() == 16)?;
                Some((generation.parse().ok()?, id))
            });
            (uuid.len() == 32 && text.bytes().all(is_plain)).then_some(())?;
            Some(Moment {
                uuid: u128::from_str_radix(uuid, 16).ok()?,
                index: index.parse().ok()?,
                commit: match commit {
                    Some(commit) => Some(commit?),
                    None => None,
                },
            })
        };
        let what = || format!("'{text}' is not a moment that refdb watch has printed");
        parse().ok_or_else(|| Error::new(ErrorKind::Misuse, what()))
    }
}

/// A ref that changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// When: with which update index.
    pub index: u64,
    /// The ref.
    pub name: RefNameBuf,
    /// Its value now; `None` if it was deleted.
    pub target: Option<Target>,
}

/// What became of the refs since a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// Whether these are all refs that there are, since it is not known any more what was deleted, or it is
    /// another store.
    pub is_all: bool,
    /// The changes, in the order in which they were made.
    pub changes: Vec<Changed>,
    /// The moment from which to go on.
    pub until: Moment,
}

/// Returns what changed since a moment; all refs if that is `None`.
///
/// # Errors
/// `Corrupt` for tables that are damaged; `Io`.
pub fn changes(register: &Register, since: Option<Moment>) -> Result<Changes> {
    loop {
        let known = register.current(Freshness::Fresh)?;
        if let Some(changes) = changes_of(register, &known, since)? {
            return Ok(changes);
        }
        // A table was merged and removed meanwhile: there is a later head.
    }
}

/// Returns the changes up to a head; `None` if a table of it is gone, and there is a later one.
pub(super) fn changes_of(
    register: &Register,
    known: &Known,
    since: Option<Moment>,
) -> Result<Option<Changes>> {
    let head = &known.head;
    let until = Moment::of(head);
    let from = since
        .filter(|since| since.is_known(head))
        .map(|since| since.index);
    let tables = tables_above(register, known, from.unwrap_or(0))?;
    tables
        .map(|tables| news(register, tables, from, until))
        .transpose()
}

/// Opens the tables that have records later than an index, oldest first; `None` if one is gone, and there is a
/// later head.
pub(super) fn tables_above(
    register: &Register,
    known: &Known,
    least: u64,
) -> Result<Option<Vec<Arc<Table>>>> {
    let head = &known.head;
    let mut tables: Vec<Arc<Table>> = Vec::new();
    for entry in head.tables.iter().filter(|entry| entry.key.max > least) {
        match register.table(entry)? {
            Some(content) => tables.push(opened(register, content)?),
            None => {
                let now = register.current(Freshness::Fresh)?;
                if now.head.generation == head.generation {
                    let what = format!("the table {} is missing", entry.key);
                    return Err(damaged(register)(what));
                }
                return Ok(None);
            }
        }
    }
    if !head.inline.is_empty() {
        tables.push(opened(register, head.inline.clone())?);
    }
    Ok(Some(tables))
}

pub(super) fn opened(register: &Register, content: Bytes) -> Result<Arc<Table>> {
    let table = Table::open(content).map_err(damaged(register))?;
    Ok(Arc::new(table))
}

/// Returns what makes an error of something that is wrong with the tables of a store.
pub(super) fn damaged<E: fmt::Display>(register: &Register) -> impl Fn(E) -> Error {
    let name = register.name();
    move |error| Error::corrupt_store(&name, error)
}

/// Returns what these tables have later than an index; of all refs those that are there, if that is `None`.
pub(super) fn news(
    register: &Register,
    tables: Vec<Arc<Table>>,
    from: Option<u64>,
    until: Moment,
) -> Result<Changes> {
    let damaged = damaged(register);
    let least = from.unwrap_or(0);
    let mut merged = MergedRefs::new(tables);
    let mut changes = Vec::new();
    while merged
        .advance()
        .map_err(|error| damaged(error.to_string()))?
    {
        let record = merged.record();
        let target = target_of(&record.value)
            .ok_or_else(|| damaged("an object id has the wrong length".to_owned()))?;
        let is_news = record.update_index > least && (from.is_some() || target.is_some());
        if is_news {
            changes.push(Changed {
                index: record.update_index,
                name: RefNameBuf::lax(record.name)?,
                target,
            });
        }
    }
    changes.sort_by(|low, high| low.index.cmp(&high.index).then(low.name.cmp(&high.name)));
    Ok(Changes {
        is_all: from.is_none(),
        changes,
        until,
    })
}

/// Returns what a record says, `Some(None)` for a deletion; `None` for an id of a wrong length.
pub(super) fn target_of(value: &RefValue<'_>) -> Option<Option<Target>> {
    Some(match value {
        RefValue::Deletion => None,
        RefValue::Direct(raw) | RefValue::Peeled { oid: raw, .. } => {
            Some(Target::Direct(ObjectId::from_bytes(raw)?))
        }
        // Whatever it is: who follows it finds out.
        RefValue::Symref(target) => Some(Target::Symbolic(name_from_disk(target).to_owned())),
    })
}

#[cfg(test)]
mod tests {
    use refdb::objects::NoObjects;
    use refdb::shared::{MemoryShared, Settings};
    use refdb::system::OsSystem;
    use refdb::{Edit, ObjectFormat, Optimize, Options, RefName, Store};

    use super::*;

    #[test]
    fn who_comes_back_after_deletions_were_merged_away_gets_everything() {
        let place = Arc::new(MemoryShared::new());
        Register::init(place.as_ref(), &OsSystem::new(), ObjectFormat::Sha1, 1).unwrap();
        let settings = Settings {
            inline_max: 0,
            ..Settings::default()
        };
        let register = Register::open(place, Arc::new(OsSystem::new()), settings).unwrap();
        let register = Arc::new(register);
        let options = Options::new(ObjectFormat::Sha1);
        let store =
            Store::open_shared(Arc::clone(&register), Arc::new(NoObjects), options).unwrap();
        let commit = |edit: Edit<'_>| {
            let mut transaction = store.transaction().skip_logs();
            transaction.add(edit).unwrap();
            assert!(transaction.commit().unwrap().afterwards.is_empty());
        };
        let oid = ObjectId::from_hex(&[b'1'; 40]).unwrap();
        let name = |text: &'static str| RefName::new(text).unwrap();
        commit(Edit::update(name("refs/heads/a"), oid));
        commit(Edit::update(name("refs/heads/b"), oid));
        let early = changes(&register, None).unwrap();
        assert_eq!((early.is_all, early.changes.len()), (true, 2));
        commit(Edit::delete(name("refs/heads/a")));
        let news = changes(&register, Some(early.until)).unwrap();
        assert_eq!((news.is_all, news.changes.len()), (false, 1));
        assert_eq!(news.changes[0].target, None);
        store.optimize(&Optimize::default()).unwrap();
        let all = changes(&register, Some(early.until)).unwrap();
        assert_eq!((all.is_all, all.changes.len()), (true, 1));
        // Who was there before that goes on as before.
        let none = changes(&register, Some(news.until)).unwrap();
        assert_eq!((none.is_all, none.changes.len()), (false, 0));
        // The store went back behind it, so that there is something that it does not know; or it has the same index
        // after another commit, or the same generation.
        let (generation, id) = none.until.commit.unwrap();
        let (late, [other, later]) = (
            Moment {
                index: none.until.index + 1,
                ..none.until
            },
            [(generation, id + 1), (generation + 1, id)].map(|commit| Moment {
                commit: Some(commit),
                ..none.until
            }),
        );
        for moment in [late, other, later] {
            let all = changes(&register, Some(moment)).unwrap();
            assert_eq!((all.is_all, all.changes.len()), (true, 1), "{moment}");
        }
    }
}
