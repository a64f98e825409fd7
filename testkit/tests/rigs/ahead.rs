//! How many requests a busy writer waits for one after the other: one for each commit, whatever is stored and merged
//! beside it. Requests are counted and not timed, so that a busy machine changes nothing.

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use refdb::objects::NoObjects;
use refdb::shared::{MemoryShared, Read, Register, Settings, Shared, Swap, Version};
use refdb::system::{Bytes, OsSystem};
use refdb::{Edit, Error, ErrorKind, ObjectFormat, ObjectId, Options, RefNameBuf, Result, Store};

/// So many refs are as many bytes as half of what has room in the head.
const EACH: usize = 1000;
const COMMITS: usize = 60;

/// So many small commits make a process a busy one.
const FIRST: usize = 5;

/// A request that nobody replaces the head beside is given up to be one of its own after so long.
const PATIENCE: Duration = Duration::from_secs(5);

/// Requests so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    swaps: u64,
    /// What was stored while the head was replaced, and what was stored by itself.
    beside: u64,
    alone: u64,
    reads: u64,
    /// How many replacements of the head had begun when the last commit was acknowledged.
    acknowledged: u64,
}

/// A place that is far away.
#[derive(Debug, Default)]
struct Far {
    place: MemoryShared,
    counts: Mutex<Counts>,
    changed: Condvar,
    /// So many tables are not stored.
    failing: Mutex<usize>,
}

impl Far {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().expect("nobody panics")
    }

    /// Returns the requests since the last commit was acknowledged, and begins to count those of the next.
    fn acknowledged(&self) -> Counts {
        let mut counts = self.counts();
        let so_far = *counts;
        *counts = Counts {
            swaps: so_far.swaps,
            acknowledged: so_far.swaps,
            ..Counts::default()
        };
        Counts {
            swaps: so_far.swaps - so_far.acknowledged,
            acknowledged: 0,
            ..so_far
        }
    }
}

impl Shared for Far {
    fn is_far(&self) -> bool {
        true
    }

    fn name(&self) -> String {
        "far:".to_owned()
    }

    fn head(&self, slot: u32, known: Option<&Version>) -> Result<Read> {
        self.counts().reads += 1;
        self.place.head(slot, known)
    }

    fn swap(&self, slot: u32, expected: Option<&Version>, new: &[u8]) -> Result<Swap> {
        self.counts().swaps += 1;
        self.changed.notify_all();
        self.place.swap(slot, expected, new)
    }

    fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Option<Bytes>> {
        self.counts().reads += 1;
        self.place.get(key, range)
    }

    fn put(&self, key: &str, content: &[u8]) -> Result<()> {
        let nobody_swaps = |counts: &mut Counts| counts.swaps == counts.acknowledged;
        let waited = self
            .changed
            .wait_timeout_while(self.counts(), PATIENCE, nobody_swaps);
        let (mut counts, waited) = waited.expect("nobody panics");
        match waited.timed_out() {
            true => counts.alone += 1,
            false => counts.beside += 1,
        }
        drop(counts);
        let mut failing = self.failing.lock().expect("nobody panics");
        if *failing > 0 {
            *failing -= 1;
            return Err(Error::new(ErrorKind::Io, "no answer"));
        }
        self.place.put(key, content)
    }

    fn delete(&self, keys: &[&str]) -> Result<()> {
        self.place.delete(keys)
    }

    fn clear(&self, slots: Range<u32>) -> Result<()> {
        self.place.clear(slots)
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>> {
        self.place.list(prefix)
    }
}

fn open(place: &Arc<Far>) -> (Arc<Register>, Store) {
    let place = Arc::clone(place) as Arc<dyn Shared>;
    let register = Register::open(place, Arc::new(OsSystem::new()), Settings::default());
    let register = Arc::new(register.expect("nothing is read yet"));
    let options = Options::new(ObjectFormat::Sha1);
    let store = Store::open_shared(Arc::clone(&register), Arc::new(NoObjects), options);
    (register, store.expect("a store"))
}

fn create(store: &Store, commit: usize, count: usize) {
    let names: Vec<RefNameBuf> = (0..count)
        .map(|at| format!("refs/heads/{commit:03}/{at:05}"))
        .map(|name| RefNameBuf::new(name.as_bytes()).expect("a name"))
        .collect();
    let mut transaction = store.transaction().skip_logs();
    for (at, name) in names.iter().enumerate() {
        // Object ids that do not compress, as real ones.
        let number = (commit * EACH + at + 1) as u128;
        let digits = number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        let oid = ObjectId::from_hex(format!("{digits:040x}").as_bytes()).expect("digits");
        let edit = Edit::update(name.as_name(), oid).skip_object_check();
        transaction.add(edit).expect("a new name");
    }
    let outcome = transaction.commit().expect("nobody else writes");
    assert!(outcome.afterwards.is_empty(), "{:?}", outcome.afterwards);
}

fn count(store: &Store) -> usize {
    let refs: Result<Vec<_>> = store.refs().expect("refs").into_iter().collect();
    refs.expect("every ref").len()
}

/// Commits what fills the head again and again; returns what was stored beside it, and how many tables there were at
/// most.
fn fill(place: &Arc<Far>) -> (u64, usize) {
    Register::init(place.as_ref(), &OsSystem::new(), ObjectFormat::Sha1, 1).expect("init");
    let (register, store) = open(place);
    for commit in 0..FIRST {
        create(&store, COMMITS + commit, 1);
    }
    place.acknowledged();
    let (mut beside, mut tables) = (0, 0);
    for commit in 0..COMMITS {
        create(&store, commit, EACH);
        let requests = place.acknowledged();
        let one = Counts {
            swaps: 1,
            beside: requests.beside,
            ..Counts::default()
        };
        assert_eq!(requests, one, "commit {commit}");
        beside += requests.beside;
        tables = tables.max(register.known().expect("a head").head.tables.len());
    }
    (beside, tables)
}

#[test]
fn a_busy_writer_waits_for_one_request_for_each_commit() {
    let place = Arc::new(Far::default());
    let (beside, tables) = fill(&place);
    // A table for two or three commits, and a merged one for eight of those.
    assert!(beside >= 20, "only {beside} tables were stored");
    assert!(tables <= 12, "{tables} tables");
    let (register, store) = open(&place);
    assert_eq!(count(&store), COMMITS * EACH + FIRST);
    assert!(register.known().expect("a head").head.inline.len() <= 128 << 10);
}

/// What could not be stored ahead is stored later; nothing depends on it.
#[test]
fn what_could_not_be_stored_ahead_is_stored_later() {
    let place = Arc::new(Far::default());
    *place.failing.lock().expect("nobody panics") = 1;
    fill(&place);
    assert_eq!(count(&open(&place).1), COMMITS * EACH + FIRST);
}
