//! A simulated shared place: requests are lost, late, doubled and answered wrongly, and others work between
//! any two of them. It all depends on one seed.
//!
//! What a real place may do is a fault ([`Faults`]): the protocol has to get along with it. What it must
//! never do is a lie ([`Lie`]): a test that sees none of them is no test.
//!
//! ```
//! use refdb::shared::{Shared, Swap};
//! use refdb_testkit::shared::simulation::{Faults, World};
//!
//! let world = World::new(1, Faults::NONE);
//! let place = world.client(0);
//! assert!(matches!(place.swap(0, None, b"x")?, Swap::Done(_)));
//! assert_eq!(place.swap(0, None, b"y")?, Swap::Moved);
//! # Ok::<(), refdb::Error>(())
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use refdb::shared::head::Head;
use refdb::shared::{Read, Shared, Swap, Version};
use refdb::system::Bytes;
use refdb::{Error, ErrorKind, Result};

/// Of a hundred requests, so many meet something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// They are lost before they arrive.
    pub lost: u8,
    /// They arrive, and the reply does not.
    pub unanswered: u8,
    /// They arrive later, or never; nobody replies.
    pub late: u8,
    /// They arrive, and once more later.
    pub doubled: u8,
    /// The reply says that the slot was not as expected, whatever happened.
    pub disputed: u8,
    /// A request that only reads fails.
    pub unread: u8,
    /// An object is missing from a list.
    pub unlisted: u8,
    /// What the place must not do, if it is to do so.
    pub lie: Option<Lie>,
}

impl Faults {
    /// Nothing goes wrong.
    pub const NONE: Faults = Faults {
        lost: 0,
        unanswered: 0,
        late: 0,
        doubled: 0,
        disputed: 0,
        unread: 0,
        unlisted: 0,
        lie: None,
    };

    /// About a third of what is written goes wrong in one way or another.
    pub const MANY: Faults = Faults {
        lost: 6,
        unanswered: 8,
        late: 8,
        doubled: 6,
        disputed: 6,
        unread: 3,
        unlisted: 5,
        lie: None,
    };
}

/// What a place must never do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// It replaces a slot whatever is there, one time in four.
    IgnoresConditions,
    /// It gives the slot as it was before, one time in four.
    ReadsTheOld,
    /// It says that a slot was replaced and does not do it, one time in eight.
    ForgetsWrites,
    /// It says that it stored an object and does not do it, one time in four.
    ForgetsObjects,
}

/// How many requests of each kind there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Replacing slots.
    pub swaps: u64,
    /// Storing objects.
    pub puts: u64,
    /// Reading slots.
    pub heads: u64,
    /// Reading objects.
    pub gets: u64,
    /// Removing objects.
    pub deletes: u64,
    /// Listing.
    pub lists: u64,
}

/// A slot that was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// What the client said it was doing, see [`SimShared::set_task`].
    pub task: u64,
    /// The generation that came to be.
    pub generation: u64,
    /// Its greatest update index.
    pub index: u64,
}

/// A request that arrives later.
#[derive(Clone)]
enum Late {
    Swap {
        slot: u32,
        expected: Option<u64>,
        new: Bytes,
        task: u64,
    },
    Put(String, Bytes),
    Delete(String),
}

#[derive(Default)]
struct State {
    slots: BTreeMap<u32, Slot>,
    objects: BTreeMap<String, Bytes>,
    versions: u64,
    late: Vec<Late>,
    applied: Vec<Applied>,
    requests: Requests,
    random: u64,
}

struct Slot {
    content: Bytes,
    version: u64,
    before: Option<(Bytes, u64)>,
}

/// The place itself.
#[derive(Clone)]
pub struct World {
    state: Arc<Mutex<State>>,
    faults: Faults,
}

/// What others do between two requests.
pub type Others = dyn Fn() + Send + Sync;

/// The place as one client reaches it.
pub struct SimShared {
    world: World,
    task: Mutex<u64>,
    others: Mutex<Option<Arc<Others>>>,
}

impl fmt::Debug for SimShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimShared")
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn below(&mut self, limit: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 16) % limit
    }

    fn swap(&mut self, slot: u32, expected: Option<u64>, new: &Bytes, task: u64) -> Swap {
        if self.slots.get(&slot).map(|slot| slot.version) != expected {
            return Swap::Moved;
        }
        self.replace(slot, new, task)
    }

    fn replace(&mut self, slot: u32, new: &Bytes, task: u64) -> Swap {
        self.versions += 1;
        let version = self.versions;
        let before = self.slots.remove(&slot).map(|it| (it.content, it.version));
        let content = new.clone();
        self.slots.insert(
            slot,
            Slot {
                content,
                version,
                before,
            },
        );
        if let Ok(head) = Head::decode(new, "") {
            self.applied.push(Applied {
                task,
                generation: head.generation,
                index: head.index,
            });
        }
        Swap::Done(Version(version.to_string()))
    }

    fn arrive(&mut self, late: Late) {
        match late {
            Late::Swap {
                slot,
                expected,
                new,
                task,
            } => {
                self.swap(slot, expected, &new, task);
            }
            Late::Put(key, content) => {
                self.objects.insert(key, content);
            }
            Late::Delete(key) => {
                self.objects.remove(&key);
            }
        }
    }

    /// Lets one of the late requests arrive, or never.
    fn one_arrives(&mut self) {
        let count = self.late.len() as u64;
        if count == 0 {
            return;
        }
        let at = usize::try_from(self.below(count)).unwrap_or(0);
        let late = self.late.swap_remove(at);
        if self.below(4) > 0 {
            self.arrive(late);
        }
    }
}

impl World {
    /// Makes an empty place.
    pub fn new(seed: u64, faults: Faults) -> World {
        let state = State {
            random: seed,
            ..State::default()
        };
        World {
            state: Arc::new(Mutex::new(state)),
            faults,
        }
    }

    /// Returns the same place with other faults.
    pub fn with_faults(&self, faults: Faults) -> World {
        World {
            state: Arc::clone(&self.state),
            faults,
        }
    }

    /// Returns the place as another client reaches it.
    pub fn client(&self, task: u64) -> SimShared {
        SimShared {
            world: self.clone(),
            task: Mutex::new(task),
            others: Mutex::new(None),
        }
    }

    /// Returns every replacement of a slot, in the order in which they happened.
    pub fn applied(&self) -> Vec<Applied> {
        lock(&self.state).applied.clone()
    }

    /// Returns the generation of the newest head.
    pub fn generation(&self) -> u64 {
        let state = lock(&self.state);
        state
            .applied
            .iter()
            .map(|it| it.generation)
            .max()
            .unwrap_or(0)
    }

    /// Returns how many requests there were.
    pub fn requests(&self) -> Requests {
        lock(&self.state).requests
    }

    /// Returns the names of all objects.
    pub fn objects(&self) -> Vec<String> {
        lock(&self.state).objects.keys().cloned().collect()
    }

    /// Lets everything arrive that is late.
    pub fn settle(&self) {
        let mut state = lock(&self.state);
        while !state.late.is_empty() {
            state.one_arrives();
        }
    }
}

/// What becomes of one request that writes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Normal,
    Lost,
    Unanswered,
    Late,
    Doubled,
    Disputed,
}

impl SimShared {
    /// Says what the client is doing from now on.
    pub fn set_task(&self, task: u64) {
        *lock(&self.task) = task;
    }

    /// Lets `others` work before each request.
    pub fn set_others(&self, others: Option<Arc<Others>>) {
        *lock(&self.others) = others;
    }

    /// Lets others work, and late requests arrive.
    fn begin(&self) -> MutexGuard<'_, State> {
        let others = lock(&self.others).clone();
        if let Some(others) = others {
            others();
        }
        let mut state = lock(&self.world.state);
        if state.below(4) == 0 {
            state.one_arrives();
        }
        state
    }

    fn fate(&self, state: &mut State) -> Fate {
        let faults = &self.world.faults;
        let mut drawn = state.below(100);
        for (percent, fate) in [
            (faults.lost, Fate::Lost),
            (faults.unanswered, Fate::Unanswered),
            (faults.late, Fate::Late),
            (faults.doubled, Fate::Doubled),
            (faults.disputed, Fate::Disputed),
        ] {
            match drawn.checked_sub(u64::from(percent)) {
                None => return fate,
                Some(rest) => drawn = rest,
            }
        }
        Fate::Normal
    }

    fn lies(&self, state: &mut State, lie: Lie, one_in: u64) -> bool {
        self.world.faults.lie == Some(lie) && state.below(one_in) == 0
    }

    fn read(&self, state: &mut State) -> Result<()> {
        match state.below(100) < u64::from(self.world.faults.unread) {
            true => Err(no_answer()),
            false => Ok(()),
        }
    }
}

fn no_answer() -> Error {
    Error::new(ErrorKind::Io, "simulated: no answer")
}

fn number(version: &Version) -> u64 {
    version.0.parse().unwrap_or(u64::MAX)
}

impl Shared for SimShared {
    fn name(&self) -> String {
        "simulated:".to_owned()
    }

    fn head(&self, slot: u32, known: Option<&Version>) -> Result<Read> {
        let mut state = self.begin();
        state.requests.heads += 1;
        self.read(&mut state)?;
        let is_old = self.lies(&mut state, Lie::ReadsTheOld, 4);
        Ok(match state.slots.get(&slot) {
            None => Read::Missing,
            Some(found) => {
                let (mut content, mut version) = (&found.content, found.version);
                if let (true, Some((old, old_version))) = (is_old, &found.before) {
                    (content, version) = (old, *old_version);
                }
                match known.map(number) == Some(version) {
                    true => Read::Same,
                    false => Read::Head(content.clone(), Version(version.to_string())),
                }
            }
        })
    }

    fn swap(&self, slot: u32, expected: Option<&Version>, new: &[u8]) -> Result<Swap> {
        let mut state = self.begin();
        state.requests.swaps += 1;
        let (expected, new) = (expected.map(number), Bytes::copy_from_slice(new));
        let task = *lock(&self.task);
        if self.lies(&mut state, Lie::IgnoresConditions, 4) {
            return Ok(state.replace(slot, &new, task));
        }
        if self.lies(&mut state, Lie::ForgetsWrites, 8) {
            state.versions += 1;
            return Ok(Swap::Done(Version(state.versions.to_string())));
        }
        let fate = self.fate(&mut state);
        let late = |new: &Bytes| Late::Swap {
            slot,
            expected,
            new: new.clone(),
            task,
        };
        match fate {
            Fate::Normal => Ok(state.swap(slot, expected, &new, task)),
            Fate::Lost => Ok(Swap::Unknown),
            Fate::Unanswered => {
                state.swap(slot, expected, &new, task);
                Ok(Swap::Unknown)
            }
            Fate::Late => {
                state.late.push(late(&new));
                Ok(Swap::Unknown)
            }
            Fate::Doubled => {
                state.late.push(late(&new));
                Ok(state.swap(slot, expected, &new, task))
            }
            Fate::Disputed => {
                if state.below(2) == 0 {
                    state.swap(slot, expected, &new, task);
                }
                Ok(Swap::Moved)
            }
        }
    }

    fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Option<Bytes>> {
        let mut state = self.begin();
        state.requests.gets += 1;
        self.read(&mut state)?;
        Ok(state.objects.get(key).map(|content| {
            let range = range.unwrap_or(0..u64::MAX);
            let at =
                |at: u64| usize::try_from(at).map_or(content.len(), |at| at.min(content.len()));
            let (start, end) = (at(range.start), at(range.end));
            content.slice(start.min(end)..end)
        }))
    }

    fn put(&self, key: &str, content: &[u8]) -> Result<()> {
        let mut state = self.begin();
        state.requests.puts += 1;
        let content = Bytes::copy_from_slice(content);
        if self.lies(&mut state, Lie::ForgetsObjects, 4) {
            return Ok(());
        }
        let fate = self.fate(&mut state);
        if matches!(fate, Fate::Late | Fate::Doubled) {
            state.late.push(Late::Put(key.to_owned(), content.clone()));
        }
        if !matches!(fate, Fate::Late | Fate::Lost) {
            state.objects.insert(key.to_owned(), content);
        }
        match fate {
            Fate::Normal | Fate::Doubled => Ok(()),
            _ => Err(no_answer()),
        }
    }

    fn delete(&self, keys: &[&str]) -> Result<()> {
        let mut state = self.begin();
        state.requests.deletes += 1;
        let fate = self.fate(&mut state);
        for key in keys {
            if matches!(fate, Fate::Late | Fate::Doubled) {
                state.late.push(Late::Delete((*key).to_owned()));
            }
            if !matches!(fate, Fate::Late | Fate::Lost) {
                state.objects.remove(*key);
            }
        }
        match fate {
            Fate::Normal | Fate::Doubled => Ok(()),
            _ => Err(no_answer()),
        }
    }

    fn clear(&self, slots: Range<u32>) -> Result<()> {
        let mut state = lock(&self.world.state);
        state.slots.retain(|slot, _| !slots.contains(slot));
        Ok(())
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>> {
        let mut state = self.begin();
        state.requests.lists += 1;
        self.read(&mut state)?;
        let mut found: Vec<(String, u64)> = Vec::new();
        let named = state.objects.iter();
        let named = named.filter(|(key, _)| key.starts_with(prefix));
        found.extend(named.map(|(key, content)| (key.clone(), content.len() as u64)));
        found.retain(|_| state.below(100) >= u64::from(self.world.faults.unlisted));
        Ok(found)
    }
}
