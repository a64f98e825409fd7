//! Collects which ref block names which object id, for the object section.
//!
//! The ids are sorted once at the end: most tables never get an object section, so collecting has
//! to be cheap. They are put into buckets by their first bits, which spreads them evenly because
//! ids are hashes, and sorted there by their first eight bytes, which nearly always decide.

use super::block::{common_prefix, first_word};

/// The least and the greatest length to which object ids are abbreviated.
const ID_LEN_MIN: usize = 2;
const ID_LEN_MAX: usize = 31;

/// The object ids of a table's refs.
#[derive(Default)]
pub(super) struct Objects {
    /// All ids, one behind the other.
    ids: Vec<u8>,
    seen: Vec<Seen>,
}

/// One mention of an object id.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// The first bytes of the id.
    word: u64,
    /// The offset of the ref block.
    block: u64,
    /// Where the id starts in `ids`.
    at: usize,
}

impl Objects {
    /// Notes that the ref block at this offset names this id. Offsets never decrease.
    #[inline]
    pub(super) fn add(&mut self, id: &[u8], block: u64) {
        let word = first_word(id);
        // Neighbours often name the same object.
        if let Some(last) = self.seen.last()
            && (last.word, last.block) == (word, block)
            && self.ids.get(last.at..) == Some(id)
        {
            return;
        }
        self.seen.push(Seen {
            word,
            block,
            at: self.ids.len(),
        });
        self.ids.extend_from_slice(id);
    }

    /// Sorts the ids, which are `len` bytes long, and calls `f` for each distinct one with its
    /// abbreviation and the offsets of the blocks that name it. Returns the abbreviated length,
    /// or `None` if the ids cannot be told apart by as many bytes as the format can express; `f`
    /// has not been called then.
    pub(super) fn finish<E>(
        mut self,
        len: usize,
        mut f: impl FnMut(&[u8], &[u64]) -> Result<(), E>,
    ) -> Result<Option<u8>, E> {
        let ids = std::mem::take(&mut self.ids);
        let id = |seen: &Seen| &ids[seen.at..seen.at + len];
        self.seen = in_buckets(&self.seen);
        for bucket in self.seen.chunk_by_mut(|a, b| bucket_of(a) == bucket_of(b)) {
            // Blocks are in order already, and buckets keep it.
            bucket.sort_by_key(|seen| seen.word);
            // Ids that differ have the same first bytes only if somebody made them so.
            for same in bucket.chunk_by_mut(|a, b| a.word == b.word) {
                if same.windows(2).any(|pair| id(&pair[0]) != id(&pair[1])) {
                    same.sort_by(|a, b| id(a).cmp(id(b)));
                }
            }
        }
        let same = |a: &Seen, b: &Seen| a.word == b.word && id(a) == id(b);
        let groups: Vec<&[Seen]> = self.seen.chunk_by(same).collect();
        let firsts = groups.iter().map(|group| &group[0]);
        let shared = |(a, b): (&Seen, &Seen)| match (a.word ^ b.word).leading_zeros() {
            u64::BITS => common_prefix(id(a), id(b)),
            bits => bits as usize / 8,
        };
        let neighbours = firsts.clone().zip(firsts.skip(1));
        let id_len = neighbours.map(shared).max().unwrap_or(0) + 1;
        let id_len = id_len.max(ID_LEN_MIN);
        let Some(stated) = u8::try_from(id_len).ok().filter(|_| id_len <= ID_LEN_MAX) else {
            return Ok(None);
        };
        let mut blocks = Vec::new();
        for group in groups {
            blocks.clear();
            blocks.extend(group.iter().map(|seen| seen.block));
            blocks.dedup();
            f(&id(&group[0])[..id_len], &blocks)?;
        }
        Ok(Some(stated))
    }
}

/// How many buckets there are.
const BUCKETS: usize = 1 << 12;

fn bucket_of(seen: &Seen) -> usize {
    usize::try_from(seen.word >> (u64::BITS - BUCKETS.trailing_zeros())).unwrap_or_default()
}

/// Puts the mentions into the order of their buckets; within one the order stays.
fn in_buckets(all: &[Seen]) -> Vec<Seen> {
    let mut ends = vec![0; BUCKETS];
    for seen in all {
        ends[bucket_of(seen)] += 1;
    }
    let mut end = 0;
    for count in &mut ends {
        end += *count;
        *count = end;
    }
    let mut sorted = vec![Seen::default(); all.len()];
    for seen in all.iter().rev() {
        let place = &mut ends[bucket_of(seen)];
        *place -= 1;
        sorted[*place] = *seen;
    }
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    type Listed = Vec<(Vec<u8>, Vec<u64>)>;

    fn finish(mentions: &[([u8; 20], u64)]) -> (Option<u8>, Listed) {
        let mut objects = Objects::default();
        for (id, block) in mentions {
            objects.add(id, *block);
        }
        let mut out = Vec::new();
        let len = objects.finish(20, |id, blocks| {
            out.push((id.to_vec(), blocks.to_vec()));
            Ok::<(), ()>(())
        });
        (len.unwrap(), out)
    }

    #[test]
    fn ids_are_as_long_as_it_takes_to_tell_them_apart() {
        let mut late = [1; 20];
        late[11] = 2;
        let (len, out) = finish(&[([1; 20], 0), ([9; 20], 0), (late, 256), ([1; 20], 512)]);
        assert_eq!(len, Some(12));
        assert_eq!(out[0], (vec![1; 12], vec![0, 512]));
        assert_eq!(out[1], (late[..12].to_vec(), vec![256]));
        assert_eq!(out[2], (vec![9; 12], vec![0]));
    }

    #[test]
    fn ids_have_two_bytes_at_least_and_blocks_are_named_once() {
        let (len, out) = finish(&[([1; 20], 0), ([2; 20], 0), ([1; 20], 0)]);
        assert_eq!(len, Some(2));
        assert_eq!(out, [(vec![1; 2], vec![0]), (vec![2; 2], vec![0])]);
        assert_eq!(finish(&[]), (Some(2), vec![]));
    }
}
