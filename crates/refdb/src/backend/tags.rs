//! Who leads to an object, where nobody stored what tags peel to.
//!
//! The rule, which stands in this file alone: a ref below `refs/tags/` without a stored peeled value may be an annotated
//! tag, and the objects are asked what it leads to. Git's own migration stores no peeled value, in either format, says of
//! packed-refs that all of them are stored, and its packing and compaction keep it so. Everywhere else a ref without a
//! stored peeled value is no tag, in tables and in packed-refs that say so.
//!
//! 1. Each object is asked for once, however many refs name it.
//! 2. What was found out stays with the snapshot of the refs: neither that nor an object ever changes. What may change is
//!    found out again: an object that is missing may come, and be a tag.

use std::sync::{Arc, Mutex, Weak};

use refdb_names::ObjectId;
use reftable::short::{first_word, same};

use super::cursor::RefRecord;
use crate::error::Result;
use crate::objects::{Objects, Peeled};
use crate::system::unpoisoned;

/// Refs of which many are annotated tags begin so.
pub(crate) const TAGS: &[u8] = b"refs/tags/";

/// Of so many tags without a stored peeled value it is remembered what they lead to, which takes 5 MiB.
const REMEMBERED_MAX: usize = 1 << 16;

/// From so many ids on they are sorted before the objects are asked: then these are met in the order of an index.
const SORTED_MIN: usize = 1 << 12;

/// Which refs are looked for: those that lead to certain objects.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    oids: Vec<ObjectId>,
    /// Whether refs are found as well that may lead there by what no ref format stores: symrefs, and tags in
    /// packed-refs that do not say which values they have.
    pub(crate) wide: bool,
    objects: Arc<dyn Objects>,
}

impl Wanted {
    pub(crate) fn new(oids: &[ObjectId], wide: bool, objects: &Arc<dyn Objects>) -> Self {
        Wanted {
            oids: oids.to_vec(),
            wide,
            objects: Arc::clone(objects),
        }
    }

    /// Returns the ids that refs which lead there have as a value or as a peeled value, sorted: those that are
    /// wanted, and those of tags that are `untold` in a snapshot and lead, or may lead, to one of these.
    pub(crate) fn ids(
        &self,
        untold: &Untold,
        list: impl FnOnce() -> Result<Vec<ObjectId>>,
    ) -> Result<Vec<ObjectId>> {
        let known = untold.known(&self.objects, list)?;
        let mut ids = self.oids.clone();
        ids.extend_from_slice(&known.open);
        let leads = known.leads.iter();
        ids.extend(
            leads
                .filter(|(end, _)| self.oids.contains(end))
                .map(|(_, tag)| *tag),
        );
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }

    /// Returns whether a ref leads to one of the objects, itself or as a tag.
    pub(crate) fn is_named_by(&self, record: &RefRecord<'_>) -> Result<bool> {
        let is_wanted = |oid: Option<ObjectId>| oid.is_some_and(|oid| self.oids.contains(&oid));
        let oid = record.target.oid();
        if is_wanted(oid) || is_wanted(record.peeled) {
            return Ok(true);
        }
        Ok(match oid {
            Some(oid) if record.peeled.is_none() && record.name.as_bytes().starts_with(TAGS) => {
                matches!(self.objects.peel(oid)?, Peeled::To(end) if is_wanted(Some(end)))
            }
            _ => false,
        })
    }
}

/// What is known of the tags of a snapshot beside which no peeled value is stored.
#[derive(Debug, Default)]
pub(crate) struct Untold(Mutex<Option<Arc<Known>>>);

#[derive(Debug)]
struct Known {
    /// Whom it was heard from.
    objects: Weak<dyn Objects>,
    /// The ends of chains of tags, and the tags at their beginning that refs name.
    leads: Vec<(ObjectId, ObjectId)>,
    /// Tags that lead nowhere, and objects that are missing.
    open: Vec<ObjectId>,
}

impl Untold {
    fn known(
        &self,
        objects: &Arc<dyn Objects>,
        list: impl FnOnce() -> Result<Vec<ObjectId>>,
    ) -> Result<Arc<Known>> {
        let is_of_these = |known: &&Arc<Known>| {
            let of = known.objects.upgrade();
            of.is_some_and(|it| Arc::ptr_eq(&it, objects))
        };
        if let Some(known) = unpoisoned(&self.0).as_ref().filter(is_of_these) {
            return Ok(Arc::clone(known));
        }
        let mut known = Known {
            objects: Arc::downgrade(objects),
            leads: Vec::new(),
            open: Vec::new(),
        };
        let mut listed = list()?;
        if listed.len() >= SORTED_MIN {
            listed.sort_unstable();
            listed.dedup();
        }
        for tag in objects.may_be_tags(&listed)? {
            match objects.peel(tag)? {
                Peeled::To(end) => known.leads.push((end, tag)),
                Peeled::Nowhere | Peeled::Missing => known.open.push(tag),
                Peeled::Itself => {}
            }
        }
        let known = Arc::new(known);
        if known.leads.len() + known.open.len() <= REMEMBERED_MAX {
            *unpoisoned(&self.0) = Some(Arc::clone(&known));
        }
        Ok(known)
    }
}

/// Gathers ids as they are stored, of which most come again and again. Few are kept twice.
pub(super) struct Distinct {
    /// The length of each.
    len: usize,
    ids: Vec<u8>,
    /// The number of an id, at the place that some bits of it say or soon behind that; or zero.
    last: Vec<u32>,
}

/// How many bits say the place of an id.
const BITS: u32 = 12;

/// At so many places an id may be.
const TRIES: usize = 4;

impl Distinct {
    /// Takes ids of a length, in bytes.
    pub(super) fn new(len: usize) -> Self {
        Distinct {
            len: len.max(1),
            ids: Vec::new(),
            last: vec![0; 1 << BITS],
        }
    }

    /// Adds an id, unless it is known to be there.
    #[inline]
    pub(super) fn add(&mut self, id: &[u8]) {
        if id.len() != self.len {
            return;
        }
        // Ids are spread evenly; digits of them are, when they are multiplied.
        let spread = first_word(id).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - BITS);
        let first = usize::try_from(spread).unwrap_or_default();
        let mut place = first;
        for at in (first..first + TRIES).map(|at| at & ((1 << BITS) - 1)) {
            let number = self.last.get(at).map_or(0, |number| *number as usize);
            if number == 0 {
                place = at;
                break;
            }
            let start = (number - 1) * self.len;
            if let Some(other) = self.ids.get(start..start + self.len)
                && same(other, id)
            {
                return;
            }
        }
        self.ids.extend_from_slice(id);
        if let Some(last) = self.last.get_mut(place) {
            *last = u32::try_from(self.ids.len() / self.len).unwrap_or_default();
        }
    }

    /// Returns those that can be read.
    pub(super) fn read(&self, read: impl Fn(&[u8]) -> Option<ObjectId>) -> Vec<ObjectId> {
        self.ids.chunks_exact(self.len).filter_map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::ObjectKind;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Objects of which 5 and 6 are tags of 4, 7 is a tag of nothing, and 9 is missing, until it is a tag of 4. They
    /// count how often they are asked.
    #[derive(Debug, Default)]
    struct Counting {
        asked: AtomicUsize,
        has_nine: std::sync::atomic::AtomicBool,
    }

    impl Objects for Counting {
        fn kind(&self, found: ObjectId) -> Result<Option<ObjectKind>> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            Ok(match self.peel(found)? {
                Peeled::Itself => Some(ObjectKind::Commit),
                Peeled::To(_) | Peeled::Nowhere => Some(ObjectKind::Tag),
                Peeled::Missing => None,
            })
        }

        fn peel(&self, found: ObjectId) -> Result<Peeled> {
            let number = found.as_bytes().first().copied().unwrap_or_default();
            Ok(match number {
                5 | 6 => Peeled::To(oid(4)),
                7 => Peeled::Nowhere,
                9 if self.has_nine.load(Ordering::Relaxed) => Peeled::To(oid(4)),
                9 => Peeled::Missing,
                _ => Peeled::Itself,
            })
        }
    }

    fn oid(number: u8) -> ObjectId {
        ObjectId::from_bytes(&[number; 20]).unwrap()
    }

    #[test]
    fn each_object_of_a_snapshot_is_asked_for_once() {
        let counting = Arc::new(Counting::default());
        let objects: Arc<dyn Objects> = Arc::clone(&counting) as _;
        let untold = Untold::default();
        let list = || Ok([1, 2, 4, 5, 6, 7, 9].map(oid).to_vec());
        let ids = |number, objects| {
            let wanted = Wanted::new(&[oid(number)], false, objects);
            wanted.ids(&untold, list).unwrap()
        };
        // 7 and 9 may lead there some day.
        assert_eq!(ids(4, &objects), [4, 5, 6, 7, 9].map(oid));
        assert_eq!(ids(1, &objects), [1, 7, 9].map(oid));
        assert_eq!(ids(4, &objects), [4, 5, 6, 7, 9].map(oid));
        assert_eq!(counting.asked.load(Ordering::Relaxed), 7);
        // Other objects may say something else.
        let others: Arc<dyn Objects> = Arc::new(crate::objects::NoObjects);
        assert_eq!(ids(4, &others), [oid(4)]);
        assert_eq!(ids(4, &objects), [4, 5, 6, 7, 9].map(oid));
        assert_eq!(counting.asked.load(Ordering::Relaxed), 14);
    }

    #[test]
    fn a_missing_object_that_comes_is_found() {
        let counting = Arc::new(Counting::default());
        let objects: Arc<dyn Objects> = Arc::clone(&counting) as _;
        let wanted = Wanted::new(&[oid(4)], false, &objects);
        let name = refdb_names::name::RefName::new("refs/tags/a").unwrap();
        let record = |number, peeled| RefRecord {
            name,
            target: refdb_names::target::TargetRef::Direct(oid(number)),
            peeled,
            packed: true,
            broken: false,
            look: super::super::cursor::Look::None,
        };
        for number in 1..10 {
            let leads = matches!(number, 4..=6);
            assert_eq!(wanted.is_named_by(&record(number, None)).unwrap(), leads);
        }
        assert!(wanted.is_named_by(&record(1, Some(oid(4)))).unwrap());
        counting.has_nine.store(true, Ordering::Relaxed);
        assert!(wanted.is_named_by(&record(9, None)).unwrap());
    }

    #[test]
    fn distinct_ids_are_kept() {
        let mut distinct = Distinct::new(20);
        for at in 0..100_000_u32 {
            let mut id = [0; 20];
            let spread = (at % 1000).wrapping_mul(0x9e37_79b9);
            id[..4].copy_from_slice(&spread.to_be_bytes());
            distinct.add(&id);
        }
        distinct.add(&[1; 32]);
        let mut ids = distinct.read(ObjectId::from_bytes);
        let kept = ids.len();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 1000);
        assert!(kept < 2000, "{kept}");
    }
}
