//! A place whose requests are counted, and take longer than they do.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use refdb::shared::{Read, Shared, Swap, Version};
use refdb::system::Bytes;

/// How long requests take at least beside what they take anyway.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delays {
    /// Reading a slot.
    pub(crate) head: Duration,
    /// Reading an object, or a part of one.
    pub(crate) get: Duration,
    /// Replacing a slot, and storing an object.
    pub(crate) put: Duration,
}

/// A place behind delays.
#[derive(Debug)]
pub(crate) struct Slow {
    place: Arc<dyn Shared>,
    delays: Delays,
    writes: AtomicU64,
    reads: AtomicU64,
}

impl Slow {
    pub(crate) fn new(place: Arc<dyn Shared>, delays: Delays) -> Arc<Slow> {
        Arc::new(Slow {
            place,
            delays,
            writes: AtomicU64::new(0),
            reads: AtomicU64::new(0),
        })
    }

    /// Returns how many requests wrote, and how many read.
    pub(crate) fn so_far(&self) -> (u64, u64) {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (get(&self.writes), get(&self.reads))
    }

    fn wait(&self, count: &AtomicU64, delay: Duration) -> &dyn Shared {
        count.fetch_add(1, Ordering::Relaxed);
        if !delay.is_zero() {
            thread::sleep(delay);
        }
        self.place.as_ref()
    }
}

impl Shared for Slow {
    fn name(&self) -> String {
        self.place.name()
    }

    fn is_far(&self) -> bool {
        true
    }

    fn head(&self, slot: u32, known: Option<&Version>) -> refdb::Result<Read> {
        self.wait(&self.reads, self.delays.head).head(slot, known)
    }

    fn swap(&self, slot: u32, expected: Option<&Version>, new: &[u8]) -> refdb::Result<Swap> {
        // Half of the way there, and half of the way back: what others do in between counts.
        let half = self.delays.put / 2;
        let swapped = self.wait(&self.writes, half).swap(slot, expected, new);
        thread::sleep(half);
        swapped
    }

    fn get(&self, key: &str, range: Option<Range<u64>>) -> refdb::Result<Option<Bytes>> {
        self.wait(&self.reads, self.delays.get).get(key, range)
    }

    fn put(&self, key: &str, content: &[u8]) -> refdb::Result<()> {
        self.wait(&self.writes, self.delays.put).put(key, content)
    }

    fn delete(&self, keys: &[&str]) -> refdb::Result<()> {
        self.place.delete(keys)
    }

    fn clear(&self, slots: Range<u32>) -> refdb::Result<()> {
        self.place.clear(slots)
    }

    fn list(&self, prefix: &str) -> refdb::Result<Vec<(String, u64)>> {
        self.wait(&self.reads, self.delays.head).list(prefix)
    }
}
