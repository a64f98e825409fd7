//! A shared place in memory: for trying things out, and for tests.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

use super::{Read, Shared, Swap, Version};
use crate::error::Result;
use crate::system::{Bytes, unpoisoned};

/// A place in the memory of this process.
#[derive(Debug, Default)]
pub struct MemoryShared {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    slots: BTreeMap<u32, (Bytes, u64)>,
    objects: BTreeMap<String, Bytes>,
    versions: u64,
}

impl MemoryShared {
    /// Makes an empty place.
    pub fn new() -> MemoryShared {
        MemoryShared::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        unpoisoned(&self.state)
    }
}

impl Shared for MemoryShared {
    fn name(&self) -> String {
        "memory:".to_owned()
    }

    fn head(&self, slot: u32, known: Option<&Version>) -> Result<Read> {
        Ok(match self.state().slots.get(&slot) {
            None => Read::Missing,
            Some((content, version)) => {
                let version = Version(version.to_string());
                match known == Some(&version) {
                    true => Read::Same,
                    false => Read::Head(content.clone(), version),
                }
            }
        })
    }

    fn swap(&self, slot: u32, expected: Option<&Version>, new: &[u8]) -> Result<Swap> {
        let mut state = self.state();
        let version = state.slots.get(&slot).map(|found| found.1.to_string());
        if version.as_deref() != expected.map(|version| version.0.as_str()) {
            return Ok(Swap::Moved);
        }
        state.versions += 1;
        let version = state.versions;
        let content = Bytes::copy_from_slice(new);
        state.slots.insert(slot, (content, version));
        Ok(Swap::Done(Version(version.to_string())))
    }

    fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Option<Bytes>> {
        let content = self.state().objects.get(key).cloned();
        Ok(content.map(|content| part(&content, range)))
    }

    fn put(&self, key: &str, content: &[u8]) -> Result<()> {
        let content = Bytes::copy_from_slice(content);
        self.state().objects.insert(key.to_owned(), content);
        Ok(())
    }

    fn delete(&self, keys: &[&str]) -> Result<()> {
        let mut state = self.state();
        for key in keys {
            state.objects.remove(*key);
        }
        Ok(())
    }

    fn clear(&self, slots: Range<u32>) -> Result<()> {
        self.state().slots.retain(|slot, _| !slots.contains(slot));
        Ok(())
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>> {
        let state = self.state();
        let named = state.objects.iter();
        let named = named.filter(|(key, _)| key.starts_with(prefix));
        Ok(named
            .map(|(key, content)| (key.clone(), content.len() as u64))
            .collect())
    }
}

/// Returns the part of a content that a range names, as far as there is one.
pub fn part(content: &Bytes, range: Option<Range<u64>>) -> Bytes {
    let Some(range) = range else {
        return content.clone();
    };
    let end = |at: u64| usize::try_from(at).map_or(content.len(), |at| at.min(content.len()));
    let (start, end) = (end(range.start), end(range.end));
    content.slice(start.min(end)..end)
}
