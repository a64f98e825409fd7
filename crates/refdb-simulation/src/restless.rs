//! Directories that change while they are read.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::disk::Ino;
use refdb_system::{DirEntry, Scan};

/// What readings of directories have missed.
#[derive(Clone, Debug, Default)]
pub(super) struct Restless {
    readings: u64,
    /// The names that the last reading of a directory has missed.
    missed: BTreeMap<Ino, BTreeSet<Vec<u8>>>,
}

impl Restless {
    /// Makes of what there is what a reading meets.
    pub(super) fn scan(&mut self, dir: Ino, entries: Vec<DirEntry>) -> Scan {
        self.readings += 1;
        let before = self.missed.remove(&dir).unwrap_or_default();
        let mut missed = BTreeSet::new();
        let (mut met, mut again) = (Vec::new(), Vec::new());
        for entry in entries {
            let mut hasher = DefaultHasher::new();
            (self.readings, &entry.name).hash(&mut hasher);
            match hasher.finish() % 3 {
                0 if !before.contains(&entry.name) => {
                    missed.insert(entry.name);
                    continue;
                }
                1 => again.push(entry.clone()),
                _ => {}
            }
            met.push(entry);
        }
        met.append(&mut again);
        self.missed.insert(dir, missed);
        Scan {
            entries: met,
            quiet: false,
            changed: true,
        }
    }
}
