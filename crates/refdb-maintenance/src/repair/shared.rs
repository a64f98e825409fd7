//! Repair of a store that many machines share: a head that cannot be read, tables that are missing or damaged.
//!
//! 1. What is damaged is first kept below `aside/` of the place.
//! 2. Then nobody can write any more: the head says that the store is frozen, and where a head could not be
//!    read, each slot is written anew, so that no request that waits for an old one can do anything.
//! 3. One replacement of the head shows what was repaired. Before it, the refs are as they were; after a crash,
//!    the same repair can be planned and applied again.
//! 4. No update index is used twice, and whoever follows the changes gets all refs.
//! 5. As for local refs: no ref gets a value that was not the repository's, as far as there are objects to ask.

mod tables;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use refdb::objects::Objects;
use refdb::shared::head::{Head, RECENT_MAX, SLOTS_MAX};
use refdb::shared::{Read, Shared, Swap, TableKey, Version};
use refdb::system::{Bytes, System};
use refdb::{Error, ErrorKind, Result};

use super::RefChange;
use crate::shared::slot_problem;

/// What the head says while a store is repaired.
const REASON: &str = "refdb store repair: if it was interrupted, call it again";

/// How many generations and update indices are left out where a head is lost: more than it can have had more.
const GAP: u64 = 1 << 32;

/// How many times a request is sent that is not answered.
const TRIES_MAX: u32 = 10;

/// What a repair may use beside the place itself.
#[derive(Clone, Debug)]
pub struct StoreMeans {
    /// The objects of the repository: values that name none of them are not taken from what is damaged.
    pub objects: Arc<dyn Objects>,
    /// A copy of the head, for a place where none can be read.
    pub head: Option<Vec<u8>>,
    /// A directory with copies of tables.
    pub tables: Option<PathBuf>,
}

/// One slot as it was found.
#[derive(Debug)]
struct Slot {
    content: Bytes,
    version: Version,
    head: Option<Head>,
}

/// The repair of a store, planned.
#[derive(Debug)]
pub struct StorePlan<'p> {
    place: &'p dyn Shared,
    system: &'p dyn System,
    slots: Vec<Option<Slot>>,
    base: Head,
    /// Whether a head that was later may be lost.
    is_late: bool,
    /// Whether a slot holds another head than the newest one says.
    is_torn: bool,
    /// What the store is to be: as a head, without the numbers of a replacement.
    repaired: Head,
    new_tables: Vec<(TableKey, Bytes)>,
    aside: Vec<(String, Bytes)>,
    refs: Vec<RefChange>,
    notes: Vec<String>,
    is_damaged: bool,
    /// Whether records of tables may be lost.
    is_lossy: bool,
}

impl StorePlan<'_> {
    /// Returns whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        !self.is_damaged && self.base.frozen.as_deref() != Some(REASON)
    }

    /// Returns what becomes of the refs of which it is known that they change, in the order of their names.
    pub fn refs(&self) -> &[RefChange] {
        &self.refs
    }

    /// Returns what is lost without being known by name, and what else a person should know.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns whether anything is lost, or may be.
    pub fn loses(&self) -> bool {
        self.is_late || self.is_lossy || self.refs.iter().any(|change| change.after.is_none())
    }

    /// Returns the objects of the place that are replaced.
    pub fn objects(&self) -> Vec<&str> {
        self.aside.iter().map(|kept| kept.0.as_str()).collect()
    }

    /// Carries the plan out. Returns what the names of all that was kept aside begin with.
    ///
    /// # Errors
    /// `Locked` when somebody wrote since it was planned; `Unknown` when the place does not answer; `Io`.
    pub fn apply(mut self) -> Result<String> {
        let (time, random) = (self.system.now().as_secs(), self.system.random());
        let aside = format!("aside/{time}-{:08x}-", random >> 32);
        for (name, content) in &self.aside {
            let plain = name.replace('/', "-");
            self.place.put(&format!("{aside}{plain}"), content)?;
        }
        let mut fence = self.base.clone();
        // Who keeps it frozen keeps it so, whatever becomes of the repair.
        fence.frozen.get_or_insert_with(|| REASON.to_owned());
        let is_broken = |slot: &Option<Slot>| slot.as_ref().is_some_and(|it| it.head.is_none());
        let is_any_broken = self.is_late || self.is_torn || self.slots.iter().any(is_broken);
        if self.is_late {
            let count = u64::from(fence.slot_count);
            // The slot that comes next held what is lost: who has read that writes the one behind it, which
            // is therefore taken first.
            fence.generation += 1 + (count << 32);
            fence.recent.clear();
            fence.index = self.repaired.index - 1;
            fence.complete_since = fence.index;
        }
        let fences = if is_any_broken { fence.slot_count } else { 1 };
        for _ in 0..fences {
            self.replace(&mut fence)?;
        }
        for (key, content) in &self.new_tables {
            self.place.put(&format!("tables/{key}"), content)?;
        }
        let mut last = self.repaired.clone();
        (last.generation, last.recent) = (fence.generation, fence.recent);
        self.replace(&mut last)?;
        Ok(aside)
    }

    /// Makes a head the next one after its generation.
    fn replace(&mut self, head: &mut Head) -> Result<()> {
        let count = head.slot_count as usize;
        let place = |generation: u64| {
            let slot = generation % u64::from(head.slot_count);
            usize::try_from(slot).unwrap_or_default()
        };
        let versions = (0..count - 1).map_while(|back| {
            let slot = (place(head.generation) + count - back) % count;
            self.slots.get(slot)?.as_ref()
        });
        head.slots = versions.map(|slot| slot.version.clone()).collect();
        let slot = place(head.generation + 1);
        head.generation += 1;
        head.recent.insert(0, self.system.random());
        head.recent.truncate(RECENT_MAX);
        let content = head.encode();
        let expected = self.slots.get(slot).and_then(Option::as_ref);
        let expected = expected.map(|slot| slot.version.clone());
        let number = u32::try_from(slot).unwrap_or_default();
        let version = self.swap(number, expected.as_ref(), &content)?;
        if let Some(there) = self.slots.get_mut(slot) {
            *there = Some(Slot {
                content: Bytes::from(content),
                version,
                head: Some(head.clone()),
            });
        }
        Ok(())
    }

    fn swap(&self, slot: u32, expected: Option<&Version>, content: &[u8]) -> Result<Version> {
        let mut is_sent = false;
        for attempt in 0..TRIES_MAX {
            match self.place.swap(slot, expected, content) {
                Ok(Swap::Done(version)) => return Ok(version),
                Ok(Swap::Moved) => match self.place.head(slot, None)? {
                    // It was this very request, sent before.
                    Read::Head(found, version) if found.as_ref() == content => return Ok(version),
                    _ => {
                        let what = "somebody wrote to the store meanwhile: call it again";
                        let what = format!("{}: {what}", self.place.name());
                        return Err(Error::new(ErrorKind::Locked, what));
                    }
                },
                Ok(Swap::Unknown) => is_sent = true,
                Err(error) if !is_sent => return Err(error),
                Err(_) => {}
            }
            self.system
                .sleep(Duration::from_millis(10 << attempt.min(6)));
        }
        let what = format!("{}: no answer says what became of it", self.place.name());
        Err(Error::new(ErrorKind::Unknown, what))
    }
}

/// Plans the repair of a store. Nothing is changed yet.
///
/// # Errors
/// `NoRepository` where there is none; `Corrupt` where no head can be read and none was given; `Misuse` for a
/// head of another store; `Io`.
pub fn plan_store<'p>(
    place: &'p dyn Shared,
    system: &'p dyn System,
    means: &StoreMeans,
) -> Result<StorePlan<'p>> {
    let (mut slots, count) = read_slots(place)?;
    let (base, is_late) = base_of(place, &slots, means)?;
    // Where no slot could be read, the copy says how many there are.
    if count.is_none() {
        slots.resize_with(base.slot_count as usize, || None);
    }
    let mut plan = StorePlan {
        repaired: base.clone(),
        is_damaged: is_late,
        place,
        system,
        slots,
        base,
        is_late,
        is_torn: false,
        new_tables: Vec::new(),
        aside: Vec::new(),
        refs: Vec::new(),
        notes: Vec::new(),
        is_lossy: false,
    };
    if plan.repaired.frozen.as_deref() == Some(REASON) {
        plan.repaired.frozen = None;
    }
    for (at, slot) in plan.slots.iter().enumerate() {
        if let Some(slot) = slot.as_ref().filter(|slot| slot.head.is_none()) {
            plan.is_damaged = true;
            let what = "it cannot be read";
            plan.notes.push(format!("head/{at}: {what}"));
            plan.aside
                .push((format!("head/{at}"), slot.content.clone()));
        }
    }
    plan.torn()?;
    if is_late {
        plan.late()?;
    }
    plan.tables(means)?;
    Ok(plan)
}

/// Reads the slots: as many as a head says that there are, and else as many as there may be.
fn read_slots(place: &dyn Shared) -> Result<(Vec<Option<Slot>>, Option<u32>)> {
    let mut slots = Vec::new();
    let mut count = None;
    for at in 0..SLOTS_MAX {
        if count.is_some_and(|count| at >= count) {
            break;
        }
        slots.push(match place.head(at, None)? {
            Read::Head(content, version) => {
                let head = Head::decode(&content, &place.name()).ok();
                count = count.or(head.as_ref().map(|head| head.slot_count));
                Some(Slot {
                    content,
                    version,
                    head,
                })
            }
            Read::Missing | Read::Same => None,
        });
    }
    Ok((slots, count))
}

/// Returns the newest head that can be read, and whether there may have been a later one.
fn base_of(place: &dyn Shared, slots: &[Option<Slot>], means: &StoreMeans) -> Result<(Head, bool)> {
    let name = place.name();
    let found = slots.iter().flatten().filter_map(|slot| slot.head.as_ref());
    let newest = found.clone().max_by_key(|head| head.generation).cloned();
    if slots.iter().all(Option::is_none) && means.head.is_none() {
        let what = format!("{name}: there is no store");
        return Err(Error::new(ErrorKind::NoRepository, what));
    }
    let given = match &means.head {
        Some(content) => Some(Head::decode(
            &Bytes::copy_from_slice(content),
            "the given head",
        )?),
        None => None,
    };
    let base = newest.clone().or(given.clone()).ok_or_else(|| {
        let what = "no head can be read: give an earlier version of head/0, or a copy of it";
        Error::corrupt_with(Path::new(&name), what, None)
    })?;
    let others = found.chain(&given);
    if others.clone().any(|head| head.uuid != base.uuid) {
        let what = format!("{name}: these are the heads of two stores");
        return Err(Error::new(ErrorKind::Misuse, what));
    }
    // Of one that can be read a later copy is better, as long as nothing was written behind it.
    let base = others
        .max_by_key(|head| head.generation)
        .cloned()
        .unwrap_or(base);
    let next = (base.generation + 1) % u64::from(base.slot_count);
    let next = usize::try_from(next).unwrap_or_default();
    let next = slots.get(next).and_then(Option::as_ref);
    let is_there = newest.is_some_and(|head| head.generation == base.generation);
    let was_written = base.generation >= u64::from(base.slot_count) - 1;
    let is_lost = match next {
        Some(Slot { head: None, .. }) => true,
        Some(Slot {
            head: Some(head), ..
        }) => head.generation < base.generation_of_next_slot(),
        // It was written when the ring was closed.
        None => was_written,
    };
    Ok((base, !is_there || is_lost))
}

impl StorePlan<'_> {
    /// Finds slots that hold another head than the newest one says: nobody could write there in its turn.
    fn torn(&mut self) -> Result<()> {
        for (slot, generation, version) in self.base.others() {
            let at = usize::try_from(slot).unwrap_or_default();
            let found = self.slots.get(at).and_then(Option::as_ref);
            if found.is_some_and(|found| found.head.is_none()) {
                // It was told that it cannot be read.
                continue;
            }
            let named = (generation, version);
            if let Some(problem) = slot_problem(self.place, slot, named, &self.base)? {
                (self.is_torn, self.is_damaged) = (true, true);
                self.notes.push(format!("head/{slot}: {problem}"));
                self.aside
                    .extend(found.map(|found| (format!("head/{slot}"), found.content.clone())));
            }
        }
        Ok(())
    }

    /// Goes on where a head is lost: behind every index that it can have used.
    fn late(&mut self) -> Result<()> {
        let mut index = self.base.index;
        for (name, _) in self.place.list("tables/")? {
            let key = name
                .strip_prefix("tables/")
                .and_then(|key| key.parse::<TableKey>().ok());
            let Some(key) = key.filter(|key| key.max > self.base.index) else {
                continue;
            };
            index = index.max(key.max);
            if let Some(content) = self.place.get(&name, None)? {
                let what = "it is later than the head: whether it was committed is not known";
                self.notes.push(format!("{name}: {what}; it is kept aside"));
                self.aside.push((name, content));
            }
        }
        self.repaired.index = index.saturating_add(GAP);
        let generation = self.base.generation;
        self.notes.push(format!(
            "refs are as in generation {generation}: what was committed later, if anything, is lost"
        ));
        Ok(())
    }
}
