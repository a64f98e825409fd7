//! Where chains of tags end, of which few have two tags and none has a thousand, unless somebody wants readers to take
//! forever: then each ref leads to the beginning of one, and is followed to its end.
//!
//! Of a longer chain it is remembered where some of its tags lead, so that whoever comes to one of these goes no further.
//! Repositories without such chains pay nothing for it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use refdb::{ObjectFormat, ObjectId, Result};

use super::ObjectKind;
use super::odb::{Object, TAG_DEPTH_MAX, tag_target};

/// One tag of so many is remembered.
const STRIDE: usize = 16;

/// So many are remembered at most, which takes 8 MB.
const REMEMBERED_MAX: usize = 1 << 16;

/// For how long it is believed that a tag leads nowhere: what is missing may come.
const NOWHERE_FOR: Duration = Duration::from_millis(100);

/// What a tag leads to, and the kind that the last tag claims for it; `None` if it leads nowhere.
type End = Option<(ObjectId, ObjectKind)>;

/// The tags that are remembered, and since when.
#[derive(Debug, Default)]
pub(super) struct Chains(Mutex<HashMap<ObjectId, (End, Instant)>>);

impl Chains {
    /// Follows a tag to the end of its chain; whether that is there is not looked at.
    ///
    /// # Errors
    /// Those of `read`, which reads an object.
    pub(super) fn end_of(
        &self,
        tag: ObjectId,
        format: ObjectFormat,
        read: impl Fn(ObjectId) -> Result<Option<Object>>,
    ) -> Result<End> {
        let mut passed = Vec::new();
        let mut at = tag;
        let end = loop {
            if passed.len() == TAG_DEPTH_MAX {
                // A chain of so many tags is damage. Those of its second half may be near enough to their end; those of
                // the first half count as damaged too, for a moment, if no more than half as many follow.
                passed.truncate(TAG_DEPTH_MAX / 2);
                break None;
            }
            if !passed.is_empty()
                && let Some(end) = self.recall(at)
            {
                break end;
            }
            passed.push(at);
            let object = read(at)?.filter(|object| object.kind == ObjectKind::Tag);
            match object.and_then(|object| tag_target(&object.data, format)) {
                Some((target, ObjectKind::Tag)) => at = target,
                end => break end,
            }
        };
        // The first one is the caller's to remember.
        self.remember(passed.into_iter().skip(1).step_by(STRIDE), end);
        Ok(end)
    }

    fn recall(&self, tag: ObjectId) -> Option<End> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (end, since) = known.get(&tag)?;
        (end.is_some() || since.elapsed() < NOWHERE_FOR).then_some(*end)
    }

    fn remember(&self, tags: impl ExactSizeIterator<Item = ObjectId>, end: End) {
        if tags.len() == 0 {
            return;
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() + tags.len() > REMEMBERED_MAX {
            known.clear();
        }
        let now = Instant::now();
        known.extend(tags.map(|tag| (tag, (end, now))));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn oid(number: u32) -> ObjectId {
        let mut bytes = [0; 20];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        ObjectId::from_bytes(&bytes).expect("20 bytes")
    }

    /// A tag of the next number, up to one that is a tag of a commit, or of nothing that is there.
    fn read(number: ObjectId, last: u32, is_whole: bool) -> Option<Object> {
        let start = number.as_bytes().get(..4)?.try_into().ok()?;
        let number = u32::from_be_bytes(start);
        let kind = match number == last {
            true if is_whole => "commit",
            true => return None,
            false => "tag",
        };
        let text = format!("object {}\ntype {kind}\ntag x\n", oid(number + 1));
        Some(Object {
            kind: ObjectKind::Tag,
            data: text.into_bytes(),
        })
    }

    #[test]
    fn a_long_chain_is_followed_once() {
        for (last, is_whole) in [(4000, true), (4000, false), (10_000, true)] {
            let (chains, reads) = (Chains::default(), Cell::new(0));
            let end_of = |number| {
                let read = |tag| {
                    reads.set(reads.get() + 1);
                    Ok(read(tag, last, is_whole))
                };
                chains
                    .end_of(oid(number), ObjectFormat::Sha1, read)
                    .unwrap()
            };
            let end = is_whole.then_some((oid(last + 1), ObjectKind::Commit));
            let is_near = last < 4096;
            let mut asked = 0;
            for number in (0..1000).cycle().take(2000) {
                let found = end_of(number);
                assert_eq!(found, end.filter(|_| is_near), "{number}");
                asked += 1;
            }
            // Nowhere is looked at again now and then.
            let most = 4096 + asked * (STRIDE + 1);
            assert!(reads.get() <= most + if is_whole && is_near { 0 } else { 40 * 4096 });
        }
    }

    #[test]
    fn what_was_missing_is_found_once_it_is_there() {
        let chains = Chains::default();
        let end_of = |is_whole| {
            let read = |tag| Ok(read(tag, 50, is_whole));
            chains.end_of(oid(0), ObjectFormat::Sha1, read).unwrap()
        };
        assert_eq!(end_of(false), None);
        std::thread::sleep(2 * NOWHERE_FOR);
        assert_eq!(end_of(true), Some((oid(51), ObjectKind::Commit)));
    }

    #[test]
    fn short_chains_are_not_remembered() {
        let chains = Chains::default();
        let read = |tag| Ok(read(tag, 7, true));
        let end = chains.end_of(oid(7), ObjectFormat::Sha1, read).unwrap();
        assert_eq!(end, Some((oid(8), ObjectKind::Commit)));
        assert!(chains.0.lock().unwrap().is_empty());
    }
}
