//! The head, read and replaced: what a writer may conclude from an answer, and from none.
//!
//! Invariants (P1 to P6 of docs/scale-out.md):
//! 1. A generation is written once: on the condition that the slot is of the version which the generation
//!    before it was read with.
//! 2. An outcome that is not known is found out by sending the identical request again, never by another
//!    one. Only when the generation has gone on is it told from the ids of the recent commits who it was.
//! 3. Who gives up makes sure first that the request can do nothing any more.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use refdb_names::ObjectFormat;

use super::cache::TableCache;
use super::head::{HEAD_LEN_MAX, Head, INLINE_LEN_MAX, RECENT_MAX, SLOTS_MAX};
use super::{Read, Shared, Swap, TableKey, Version, table_object};
use crate::error::{Error, ErrorKind, Result};
use crate::system::{Bytes, System, unpoisoned};

/// How many times a reader follows heads that go on, and repeats what fails.
const READS_MAX: usize = 200;
const TRIES_MAX: u32 = 5;

/// A writer that looked so lately does not look again before it commits.
const LOOKED_LATELY: Duration = Duration::from_millis(100);

/// So many of the last commits tell whether others are writing.
const LAST_COMMITS: usize = 4;

/// How old may be what a read sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Freshness {
    /// It has everything that was committed before the read began: one conditional request.
    #[default]
    Fresh,
    /// What was current so long ago is good enough.
    AtMost(Duration),
    /// What is known is good enough.
    Known,
}

/// How a store is used by this process.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How old reads may be.
    pub freshness: Freshness,
    /// How long a commit is tried in vain.
    pub limit: Duration,
    /// Up to so many bytes of newest records stay in the head, at most
    /// [`INLINE_LEN_MAX`](super::head::INLINE_LEN_MAX).
    pub inline_max: usize,
    /// From more tables than this on, whoever commits merges some afterwards.
    pub tables_many: usize,
    /// Who made so many of the last commits, one after the other, stores tables while the head is replaced, for the
    /// next one to name. Whoever makes fewer may end before that, and stores them when they are needed.
    pub ahead_after: usize,
    /// Where tables are kept for the processes of this machine; nowhere if that is `None`.
    pub cache: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            freshness: Freshness::Fresh,
            limit: Duration::from_secs(30),
            inline_max: INLINE_LEN_MAX,
            tables_many: 8,
            ahead_after: LAST_COMMITS,
            cache: None,
        }
    }
}

/// A head as it was read, or as it was written.
#[derive(Clone, Debug)]
pub struct Known {
    /// The head.
    pub head: Head,
    /// The version of its slot.
    pub version: Version,
}

/// What became of a new head.
#[derive(Debug)]
pub enum Swapped {
    /// It took the place of the old one. Others may have taken its own place since.
    Done,
    /// Another one did; this one never will.
    Moved,
}

/// The head of a store on a shared place, with what is known of it here.
pub struct Register {
    shared: Arc<dyn Shared>,
    system: Arc<dyn System>,
    settings: Settings,
    cache: Option<TableCache>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    known: Option<(Arc<Known>, Duration)>,
    /// The ids of this process's commits, the newest last.
    own: Vec<u64>,
}

impl fmt::Debug for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Register").field(&self.shared).finish()
    }
}

impl Register {
    /// Makes an empty store, with so many slots.
    ///
    /// # Errors
    /// `Misuse` when there is a store already, or with a number of slots that is not from 1 to 64; `Corrupt` when
    /// there is one without its first head; `Io`.
    pub fn init(
        shared: &dyn Shared,
        system: &dyn System,
        object_format: ObjectFormat,
        slot_count: u32,
    ) -> Result<()> {
        if !(1..=SLOTS_MAX).contains(&slot_count) {
            let what = format!("a store has from 1 to {SLOTS_MAX} slots, not {slot_count}");
            return Err(Error::new(ErrorKind::Misuse, what));
        }
        let uuid = u128::from(system.random()) << 64 | u128::from(system.random());
        let head = Head::first(uuid, object_format, slot_count, system.random());
        let content = head.encode();
        if matches!(shared.head(0, None)?, Read::Missing) && has_other_heads(shared)? {
            let what = "heads of a store are there, but not the first one";
            return Err(Error::corrupt_store(&shared.name(), what));
        }
        for attempt in 0..TRIES_MAX {
            match shared.swap(0, None, &content)? {
                Swap::Done(_) => return Ok(()),
                Swap::Moved => {
                    // Perhaps it was this one, sent before.
                    let read = shared.head(0, None)?;
                    return match read {
                        Read::Head(found, _) if found.as_ref() == content => Ok(()),
                        _ => Err(Error::new(
                            ErrorKind::Misuse,
                            format!("{}: there is a store already", shared.name()),
                        )),
                    };
                }
                Swap::Unknown => system.sleep(pause(attempt)),
            }
        }
        Err(unknown(shared.name()))
    }

    /// Opens a store. Nothing is read yet.
    ///
    /// # Errors
    /// `Io` when the directory of the cache cannot be used.
    pub fn open(
        shared: Arc<dyn Shared>,
        system: Arc<dyn System>,
        settings: Settings,
    ) -> Result<Register> {
        let open = |dir: &PathBuf| TableCache::open(Arc::clone(&system), dir);
        let cache = settings.cache.as_ref().map(open).transpose()?;
        Ok(Register {
            shared,
            system,
            settings,
            cache,
            state: Mutex::default(),
        })
    }

    /// Returns what to call the place in messages.
    pub fn name(&self) -> String {
        self.shared.name()
    }

    /// Returns the place.
    pub fn shared(&self) -> &dyn Shared {
        self.shared.as_ref()
    }

    /// Returns the clock, and what else is outside.
    pub fn system(&self) -> &dyn System {
        self.system.as_ref()
    }

    pub(crate) fn system_shared(&self) -> Arc<dyn System> {
        Arc::clone(&self.system)
    }

    pub(super) fn cache(&self) -> Option<&TableCache> {
        self.cache.as_ref()
    }

    /// Returns how it is used.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    fn state(&self) -> MutexGuard<'_, State> {
        unpoisoned(&self.state)
    }

    /// Returns the head that is known here, without a request if there is one.
    ///
    /// # Errors
    /// As for [`Register::current`].
    pub fn known(&self) -> Result<Arc<Known>> {
        let known = self.state().known.clone();
        known.map_or_else(|| self.current(Freshness::Fresh), |known| Ok(known.0))
    }

    /// Returns a head that is fresh enough.
    ///
    /// # Errors
    /// `NoRepository` where there is no store; `Corrupt` for a head that is damaged, or that of another
    /// store; `Io`.
    pub fn current(&self, freshness: Freshness) -> Result<Arc<Known>> {
        let now = self.system.elapsed();
        let known = self.state().known.clone();
        if let Some((known, looked)) = &known {
            let is_fresh = match freshness {
                Freshness::Fresh => false,
                Freshness::AtMost(most) => now.saturating_sub(*looked) <= most,
                Freshness::Known => true,
            };
            if is_fresh {
                return Ok(Arc::clone(known));
            }
        }
        let found = self.look(known.map(|known| known.0))?;
        Ok(self.note(found, now))
    }

    /// Returns the head on which a commit is tried: the one that is known, unless others are writing too.
    pub(crate) fn to_write(&self) -> Result<Arc<Known>> {
        let known = self.known()?;
        let now = self.system.elapsed();
        let others = {
            let state = self.state();
            let looked = state.known.as_ref().map_or(Duration::ZERO, |it| it.1);
            let mut last = known.head.recent.iter().take(LAST_COMMITS);
            now.saturating_sub(looked) > LOOKED_LATELY && !last.all(|id| state.own.contains(id))
        };
        match others {
            true => self.current(Freshness::Fresh),
            false => Ok(known),
        }
    }

    /// Returns whether this process made the last commits, and so will make the next one, as far as can be told.
    pub(crate) fn is_busy(&self, head: &Head) -> bool {
        let last = head.recent.get(..self.settings.ahead_after);
        let state = self.state();
        last.is_some_and(|last| last.iter().all(|id| state.own.contains(id)))
    }

    /// Remembers a head that was current at `looked`, unless a later one is known; returns the later one.
    fn note(&self, found: Arc<Known>, looked: Duration) -> Arc<Known> {
        let mut state = self.state();
        match &mut state.known {
            Some((known, _)) if known.head.generation > found.head.generation => Arc::clone(known),
            known => {
                *known = Some((Arc::clone(&found), looked));
                found
            }
        }
    }

    /// Finds the present head, from one that was present before.
    fn look(&self, known: Option<Arc<Known>>) -> Result<Arc<Known>> {
        let is_first = known.is_none();
        let first = match known {
            None => self.read(0, None)?,
            known => known,
        };
        let Some(mut known) = first else {
            let name = self.name();
            if has_other_heads(self.shared())? {
                return Err(self.corrupt_slot(0, "it is missing, and other heads are there"));
            }
            let what = format!("{name}: there is no store; to make one: refdb store init");
            return Err(Error::new(ErrorKind::NoRepository, what));
        };
        if is_first && known.head.slot_count == 1 {
            return Ok(known);
        }
        for _ in 0..READS_MAX {
            // The next generation goes where the oldest one is: as long as that is there, this one is the
            // newest.
            let (slot, version) = next_slot(&known);
            match self.read(slot, version)? {
                Some(next) if next.head.uuid != known.head.uuid => {
                    let what = "this is another store than before: it was replaced";
                    // Nothing of either is damaged.
                    return Err(Error::corrupt_with(Path::new(&self.name()), what, None));
                }
                Some(next) if next.head.generation > known.head.generation => {
                    let is_only = next.head.slot_count == 1;
                    known = next;
                    if is_only {
                        return Ok(known);
                    }
                }
                Some(next) if next.head.slot_count == 1 => {
                    let (now, before) = (next.head.generation, known.head.generation);
                    let what = format!("generation {now} is there, and {before} was: it went back");
                    return Err(Error::corrupt_store(&self.name(), what));
                }
                Some(next) if next.head.generation < known.head.generation_of_next_slot() => {
                    let found = next.head.generation;
                    let what =
                        format!("generation {found} is there, and a later one was: it went back");
                    return Err(self.corrupt_slot(slot, what));
                }
                _ => return Ok(known),
            }
        }
        let name = self.name();
        let what = format!("{name}: the head changes faster than it can be read");
        Err(Error::new(ErrorKind::Locked, what))
    }

    fn corrupt_slot(&self, slot: u32, what: impl fmt::Display) -> Error {
        Error::corrupt_store(&format!("{}/head/{slot}", self.name()), what)
    }

    /// Reads a slot; `None` if it is of that version, or was never written.
    fn read(&self, slot: u32, version: Option<&Version>) -> Result<Option<Arc<Known>>> {
        match self.shared.head(slot, version)? {
            Read::Missing if version.is_some() => {
                // Nobody takes a slot away from a store.
                let what = format!("{}: the head of the store is gone", self.name());
                Err(Error::new(ErrorKind::Io, what))
            }
            Read::Same | Read::Missing => Ok(None),
            Read::Head(content, version) => {
                let head = Head::decode(&content, &self.name())?;
                Ok(Some(Arc::new(Known { head, version })))
            }
        }
    }

    /// Replaces the head `base` by `new`, the generation and the ids of which are set here.
    ///
    /// # Errors
    /// `Unknown` when it was not to be found out whether it did; for anything else, nothing was changed.
    pub fn swap(&self, base: &Known, mut new: Head) -> Result<Swapped> {
        let id = self.system.random();
        new.generation = base.head.generation + 1;
        new.recent = [id]
            .into_iter()
            .chain(base.head.recent.iter().copied())
            .take(RECENT_MAX)
            .collect();
        let others = new.slot_count as usize - 1;
        let versions = [&base.version].into_iter().chain(&base.head.slots);
        new.slots = versions.take(others).cloned().collect();
        let content = new.encode();
        if content.len() > HEAD_LEN_MAX {
            let name = self.name();
            let what = format!("{name}: the head would be longer than {HEAD_LEN_MAX} bytes");
            return Err(Error::new(ErrorKind::Misuse, what));
        }
        {
            let mut state = self.state();
            if state.own.len() >= RECENT_MAX {
                state.own.remove(0);
            }
            state.own.push(id);
        }
        Attempt {
            register: self,
            base,
            new,
            id,
            content,
        }
        .carry_out()
    }

    /// Stores a table, under a name that nothing else has.
    pub(crate) fn put_table(&self, key: &TableKey, content: &[u8]) -> Result<()> {
        for attempt in 0..TRIES_MAX {
            match self.try_table(key, content) {
                Err(error) if error.kind() == ErrorKind::Io => self.system.sleep(pause(attempt)),
                stored => return stored,
            }
        }
        self.try_table(key, content)
    }

    /// As [`Register::put_table`], by one attempt.
    pub(crate) fn try_table(&self, key: &TableKey, content: &[u8]) -> Result<()> {
        self.shared.put(&table_object(&key.to_string()), content)
    }

    /// Reads a table; `None` if it is gone, since it was merged with others.
    ///
    /// # Errors
    /// `Corrupt` when it is not the one that the head names; `Io`.
    pub fn table(&self, entry: &super::head::TableEntry) -> Result<Option<Bytes>> {
        let name = entry.key.to_string();
        if let Some(cache) = &self.cache
            && let Some(found) = cache.find(entry)?
        {
            return Ok(Some(found));
        }
        let whole = Some(entry.range());
        let Some(content) = self.shared.get(&table_object(&name), whole)? else {
            return Ok(None);
        };
        if !entry.is_of(&content) {
            let place = format!("{}/{}", self.name(), table_object(&name));
            let what =
                "the table is not the one that the head names: its length or checksum is another";
            return Err(Error::corrupt_store(&place, what));
        }
        Ok(Some(match &self.cache {
            Some(cache) => cache.keep(entry, content),
            None => content,
        }))
    }
}

/// Returns the slot of the next generation, and the version that it replaces; `None` for a new slot.
fn next_slot(known: &Known) -> (u32, Option<&Version>) {
    let count = known.head.slot_count;
    let slot = (known.head.generation + 1) % u64::from(count);
    let mut versions = [&known.version].into_iter().chain(&known.head.slots);
    let version = versions.nth(count as usize - 1);
    (u32::try_from(slot).unwrap_or_default(), version)
}

/// Returns whether a head is there, if the first one is not.
fn has_other_heads(shared: &dyn Shared) -> Result<bool> {
    for slot in 1..SLOTS_MAX {
        if !matches!(shared.head(slot, None)?, Read::Missing) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns how long to wait after so many failures.
fn pause(attempt: u32) -> Duration {
    Duration::from_millis(10 << attempt.min(6))
}

fn unknown(place: String) -> Error {
    let what = format!(
        "{place}: no answer says whether it was committed, and it may still be: read again before \
         anything is repeated"
    );
    Error::new(ErrorKind::Unknown, what)
}

/// One replacement of the head, until its outcome is known.
struct Attempt<'r> {
    register: &'r Register,
    base: &'r Known,
    new: Head,
    id: u64,
    content: Vec<u8>,
}

impl Attempt<'_> {
    fn carry_out(self) -> Result<Swapped> {
        let register = self.register;
        let begun = register.system.elapsed();
        let mut is_sent = false;
        for attempt in 0.. {
            let (slot, expected) = next_slot(self.base);
            let asked = register.system.elapsed();
            match register.shared.swap(slot, expected, &self.content) {
                Ok(Swap::Done(version)) => {
                    let head = self.new;
                    register.note(Arc::new(Known { head, version }), asked);
                    return Ok(Swapped::Done);
                }
                Ok(Swap::Moved) => {
                    if let Some(outcome) = self.who_it_was(asked)? {
                        return Ok(outcome);
                    }
                    is_sent = true;
                }
                Ok(Swap::Unknown) => is_sent = true,
                // What was sent before may still arrive.
                Err(error) if !is_sent => return Err(error),
                Err(_) => {}
            }
            let waited = register.system.elapsed().saturating_sub(begun);
            if waited >= register.settings.limit {
                return self.give_up();
            }
            register.system.sleep(pause(attempt));
        }
        Err(unknown(register.name()))
    }

    /// Finds out which head took the place of the old one; `None` if none did, as far as can be told.
    fn who_it_was(&self, asked: Duration) -> Result<Option<Swapped>> {
        let register = self.register;
        // What is known here may be later than the base already.
        let now = match register.look(Some(Arc::new(self.base.clone()))) {
            Ok(now) => register.note(now, asked),
            // It is asked again, as long as there is time.
            Err(error) if error.kind() == ErrorKind::Io => return Ok(None),
            Err(error) => return Err(unknown(register.name()).context(error)),
        };
        let Some(after) = now.head.generation.checked_sub(self.new.generation) else {
            return self.has_its_version().map(|()| None);
        };
        let after = usize::try_from(after).ok();
        match after.and_then(|after| now.head.recent.get(after)) {
            Some(id) if *id == self.id => Ok(Some(Swapped::Done)),
            Some(_) => Ok(Some(Swapped::Moved)),
            None => Err(unknown(register.name())),
        }
    }

    /// Checks that the slot has the version by which it is replaced, or a newer head: with any other one, nobody
    /// can replace it.
    fn has_its_version(&self) -> Result<()> {
        let register = self.register;
        let (slot, expected) = next_slot(self.base);
        let Ok(Read::Head(content, _)) = register.shared.head(slot, expected) else {
            // Whoever answers otherwise is asked again, as long as there is time.
            return Ok(());
        };
        let head = Head::decode(&content, &register.name())?;
        if head.generation > self.base.head.generation {
            return Ok(());
        }
        let what = "it is not of the version that the newest head names: the store was copied, or put back in part";
        Err(register.corrupt_slot(slot, what))
    }

    /// Puts an empty commit where this one may still come to, so that it cannot any more.
    fn give_up(&self) -> Result<Swapped> {
        let register = self.register;
        let (slot, expected) = next_slot(self.base);
        let mut empty = self.base.head.clone();
        empty.generation = self.new.generation;
        empty.recent.clone_from(&self.new.recent);
        empty.slots.clone_from(&self.new.slots);
        if let Some(id) = empty.recent.first_mut() {
            *id = register.system.random();
        }
        let content = empty.encode();
        for attempt in 0..TRIES_MAX {
            let asked = register.system.elapsed();
            match register.shared.swap(slot, expected, &content) {
                Ok(Swap::Done(version)) => {
                    let head = empty;
                    register.note(Arc::new(Known { head, version }), asked);
                    let what = format!(
                        "{}: no answer for {} seconds; nothing was changed",
                        register.name(),
                        register.settings.limit.as_secs()
                    );
                    return Err(Error::new(ErrorKind::Io, what));
                }
                Ok(Swap::Moved) => {
                    // If it was the empty one, sent before, it is neither of both that is looked for.
                    if let Some(outcome) = self.who_it_was(asked)? {
                        return Ok(outcome);
                    }
                }
                Ok(Swap::Unknown) | Err(_) => {}
            }
            register.system.sleep(pause(attempt));
        }
        Err(unknown(register.name()))
    }
}
