//! How few digits name an object, and which objects some digits name.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use refdb::internals::{bytes_to_path, list};
use refdb::system::OsSystem;
use refdb::{Error, ObjectFormat, ObjectId, Result};

use super::database::{State, known};
use super::odb::to_gix;

/// The fewest digits that an abbreviated id can have.
pub const ABBREVIATION_MIN: usize = 4;

/// The fewest digits that Git abbreviates to of its own accord.
const ABBREVIATION_AUTO_MIN: usize = 7;

/// The abbreviated ids of the objects that were there when [`Odb::abbreviations`] was called; of those that have files
/// of their own, that were there when the first one with the same two digits was asked for.
///
/// Who asks for many takes one: packs are looked for once, and each directory is read once.
///
/// [`Odb::abbreviations`]: super::Odb::abbreviations
pub struct Abbreviations {
    system: OsSystem,
    format: ObjectFormat,
    state: Arc<State>,
    /// The objects with files of their own, sorted, by the first bytes of their ids.
    loose: Mutex<HashMap<u8, Arc<[ObjectId]>>>,
    auto_len: OnceLock<usize>,
}

impl Abbreviations {
    pub(super) fn new(system: OsSystem, format: ObjectFormat, state: Arc<State>) -> Self {
        Abbreviations {
            system,
            format,
            state,
            loose: Mutex::default(),
            auto_len: OnceLock::new(),
        }
    }

    /// Returns the ids that begin with these hexadecimal digits, sorted. Fewer than
    /// [`ABBREVIATION_MIN`] digits are no abbreviation and match nothing.
    ///
    /// # Errors
    /// `Io` when the database cannot be read.
    pub fn with_prefix(&self, hex: &[u8]) -> Result<Vec<ObjectId>> {
        let range = (hex.len() >= ABBREVIATION_MIN).then(|| self.range(hex));
        let Some(range) = range.flatten() else {
            return Ok(Vec::new());
        };
        self.within(&range, hex.len())
    }

    /// Returns how many digits of `oid` name it and no other object: at least `least`, or as many as
    /// the number of objects calls for.
    ///
    /// # Errors
    /// `Io` when the database cannot be read.
    pub fn len(&self, oid: ObjectId, least: Option<usize>) -> Result<usize> {
        let full = self.format.hex_len();
        let len = match least {
            Some(least) => least.max(ABBREVIATION_MIN),
            None => self.auto_len()?,
        };
        if len >= full {
            return Ok(full);
        }
        // Ids are sorted: none has more digits in common with this one than those beside it.
        let mut shared = 0;
        let mut look_at = |other: ObjectId| {
            if other != oid {
                shared = shared.max(shared_digits(oid, other));
            }
        };
        for slot in &self.state.slots {
            if let Some(index) = known(slot.index(&self.system))? {
                index.neighbours(oid).for_each(&mut look_at);
            }
        }
        let loose = self.loose(oid.as_bytes()[0])?;
        let place = loose.partition_point(|other| *other < oid);
        let (before, after) = loose.split_at(place);
        let after = after.iter().find(|&&other| other != oid);
        before
            .last()
            .into_iter()
            .chain(after)
            .copied()
            .for_each(look_at);
        Ok(len.max(shared + 1).min(full))
    }

    /// Returns how many digits the number of objects calls for.
    fn auto_len(&self) -> Result<usize> {
        if let Some(len) = self.auto_len.get() {
            return Ok(*len);
        }
        let mut count = 0;
        for slot in &self.state.slots {
            count += known(slot.index(&self.system))?.map_or(0, |index| u64::from(index.len()));
        }
        // Half of all ids would share a beginning with another if it had half as many
        // bits as it takes to number them.
        let bits = (u64::BITS - count.leading_zeros()) as usize;
        let len = bits.div_ceil(2).max(ABBREVIATION_AUTO_MIN);
        Ok(*self.auto_len.get_or_init(|| len))
    }

    /// Returns the first and the last id that could begin so; `None` if none can.
    fn range(&self, hex: &[u8]) -> Option<RangeInclusive<ObjectId>> {
        let lower = hex.to_ascii_lowercase();
        let filled = |digit| {
            let mut full = lower.clone();
            full.resize(self.format.hex_len().max(hex.len()), digit);
            let oid = ObjectId::from_hex(&full)?;
            (oid.format() == self.format).then_some(oid)
        };
        Some(filled(b'0')?..=filled(b'f')?)
    }

    /// Returns the ids of a range that have so many digits in common, as far as indices can be read.
    fn within(&self, range: &RangeInclusive<ObjectId>, len: usize) -> Result<Vec<ObjectId>> {
        let mut found = Vec::new();
        if let Ok(prefix) = gix_hash::Prefix::new(to_gix(range.start()), len) {
            for slot in &self.state.slots {
                if let Some(index) = known(slot.index(&self.system))? {
                    index.with_prefix(prefix, &mut found);
                }
            }
        }
        let loose = self.loose(range.start().as_bytes()[0])?;
        let first = loose.partition_point(|oid| oid < range.start());
        let loose = loose.iter().skip(first);
        found.extend(loose.take_while(|oid| *oid <= range.end()));
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// Returns the objects with files of their own whose ids begin with this byte, sorted.
    fn loose(&self, first: u8) -> Result<Arc<[ObjectId]>> {
        let mut known = self.loose.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ids) = known.get(&first) {
            return Ok(Arc::clone(ids));
        }
        let start = format!("{first:02x}");
        let mut ids = Vec::new();
        for folder in &self.state.folders {
            let dir = folder.dir.join(bytes_to_path(start.as_bytes()));
            let entries = list(&self.system, &dir);
            let entries = entries.map_err(|error| Error::io("unable to read", &dir, error))?;
            let named = entries
                .iter()
                .filter_map(|entry| ObjectId::from_hex(&[start.as_bytes(), &entry.name].concat()));
            ids.extend(named.filter(|oid| oid.format() == self.format));
        }
        ids.sort_unstable();
        let ids: Arc<[ObjectId]> = ids.into();
        known.insert(first, Arc::clone(&ids));
        Ok(ids)
    }
}

impl std::fmt::Debug for Abbreviations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Abbreviations")
            .field("format", &self.format)
            .finish_non_exhaustive()
    }
}

/// Returns how many hexadecimal digits two ids have in common at their beginning.
fn shared_digits(a: ObjectId, b: ObjectId) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut digits = 0;
    for (a, b) in a.iter().zip(b) {
        if a != b {
            return digits + usize::from(a >> 4 == b >> 4);
        }
        digits += 2;
    }
    digits
}
