//! Collects which ref block names which object id, for the object section.
//!
//! Each id is kept once and has a number; what is collected for a ref is that number and no more.
//! Many refs name few objects: they are told apart in memory that is at hand, and only the distinct
//! ones are sorted at the end. Ids are known again by their first bytes: of those that share them,
//! which only somebody can bring about who makes ids up, some have several numbers until then.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

use crate::short::{self, common_prefix, first_word};

/// The least and the greatest length to which object ids are abbreviated.
const ID_LEN_MIN: usize = 2;
const ID_LEN_MAX: usize = 31;

/// The object ids of a table's refs.
pub(super) struct Objects {
    /// How many bytes an id has.
    len: usize,
    /// All ids, one behind the other, in the order of their numbers.
    ids: Vec<u8>,
    /// What is known of each id.
    seen: Vec<Seen>,
    /// The last number that was given to an id with these first bytes.
    numbers: HashMap<u64, u32, Keyed>,
    /// The ids that the blocks name, by number.
    mentions: Vec<u32>,
    /// The offset of each block, and where its mentions begin.
    blocks: Vec<(u64, usize)>,
}

/// What is known of an id.
struct Seen {
    /// The first bytes of the id.
    word: u64,
    /// How many blocks name it.
    count: usize,
    /// The last one of them.
    block: u64,
}

/// Hashes the first bytes of ids, which are hashes already: one multiplication takes the place of
/// SipHash, which took 6 % of the instructions of a migration. Nobody who makes ids up knows the key.
struct Keyed([u64; 2]);

/// A hash on its way.
struct Mixed {
    key: [u64; 2],
    hash: u64,
}

impl Keyed {
    fn new() -> Self {
        let random = RandomState::new();
        Keyed([0, 1].map(|number: u64| random.hash_one(number)))
    }
}

impl BuildHasher for Keyed {
    type Hasher = Mixed;

    fn build_hasher(&self) -> Mixed {
        Mixed {
            key: self.0,
            hash: 0,
        }
    }
}

impl Hasher for Mixed {
    #[inline]
    fn write_u64(&mut self, word: u64) {
        let [add, times] = self.key;
        let product = (self.hash ^ word ^ add).wrapping_mul(times | 1);
        // A table looks at both ends of a hash, and the lower end comes from the lower end alone.
        self.hash = product ^ (product >> 32);
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn finish(&self) -> u64 {
        self.hash
    }
}

impl Objects {
    /// Begins with no id; all of them are `len` bytes long.
    pub(super) fn new(len: usize) -> Self {
        Objects {
            len,
            ids: Vec::new(),
            seen: Vec::new(),
            numbers: HashMap::with_hasher(Keyed::new()),
            mentions: Vec::new(),
            blocks: Vec::new(),
        }
    }

    /// Notes that the ref block at this offset names this id. Offsets never decrease.
    #[inline]
    pub(super) fn add(&mut self, id: &[u8], block: u64) {
        let Some(number) = self.number(id) else {
            return;
        };
        let seen = &mut self.seen[number as usize];
        if seen.count > 0 && seen.block == block {
            return;
        }
        seen.count += 1;
        seen.block = block;
        if self.blocks.last().is_none_or(|&(last, _)| last != block) {
            self.blocks.push((block, self.mentions.len()));
        }
        self.mentions.push(number);
    }

    /// Returns the number of an id; `None` for more of them than 32 bits can count, which have no
    /// place in memory.
    #[inline]
    fn number(&mut self, id: &[u8]) -> Option<u32> {
        let word = first_word(id);
        if let Some(&known) = self.numbers.get(&word)
            && short::same(self.id(known as usize), id)
        {
            return Some(known);
        }
        let number = u32::try_from(self.seen.len()).ok()?;
        self.numbers.insert(word, number);
        self.ids.extend_from_slice(id);
        self.seen.push(Seen {
            word,
            count: 0,
            block: 0,
        });
        Some(number)
    }

    /// Returns the id of that number.
    fn id(&self, number: usize) -> &[u8] {
        &self.ids[number * self.len..(number + 1) * self.len]
    }

    /// Sorts the ids and calls `f` for each one with its abbreviation and the offsets of the blocks
    /// that name it. Returns the abbreviated length, or `None` if the ids cannot be told apart by as
    /// many bytes as the format can express; `f` has not been called then.
    pub(super) fn finish<E>(
        self,
        mut f: impl FnMut(&[u8], &[u64]) -> Result<(), E>,
    ) -> Result<Option<u8>, E> {
        let id = |number: usize| self.id(number);
        let words = self.seen.iter().map(|seen| seen.word);
        let mut order: Vec<(u64, usize)> = words.zip(0..).collect();
        order.sort_unstable_by(|low, high| {
            let words = low.0.cmp(&high.0);
            words.then_with(|| short::compare(id(low.1), id(high.1)))
        });
        let same =
            |low: &(u64, usize), high: &(u64, usize)| low.0 == high.0 && id(low.1) == id(high.1);
        let groups: Vec<&[(u64, usize)]> = order.chunk_by(same).collect();
        let shared = |pair: &[&[(u64, usize)]]| {
            let (low, high) = (pair[0][0], pair[1][0]);
            match (low.0 ^ high.0).leading_zeros() {
                u64::BITS => common_prefix(id(low.1), id(high.1)),
                bits => bits as usize / 8,
            }
        };
        let id_len = groups.windows(2).map(shared).max().unwrap_or(0) + 1;
        let id_len = id_len.max(ID_LEN_MIN);
        let Some(stated) = u8::try_from(id_len).ok().filter(|_| id_len <= ID_LEN_MAX) else {
            return Ok(None);
        };
        let (offsets, ends) = self.offsets_by_id();
        let of = |number: usize| &offsets[ends[number] - self.seen[number].count..ends[number]];
        for group in groups {
            let id = &id(group[0].1)[..id_len];
            if let [(_, number)] = group {
                f(id, of(*number))?;
                continue;
            }
            let mut all: Vec<u64> = group.iter().flat_map(|it| of(it.1)).copied().collect();
            all.sort_unstable();
            all.dedup();
            f(id, &all)?;
        }
        Ok(Some(stated))
    }

    /// Returns the offsets of the blocks that name the ids, one id behind the other, and where those
    /// of each id end.
    fn offsets_by_id(&self) -> (Vec<u64>, Vec<usize>) {
        let mut start = 0;
        let starts = self.seen.iter().map(|seen| {
            start += seen.count;
            start - seen.count
        });
        let mut next: Vec<usize> = starts.collect();
        let mut offsets = vec![0; self.mentions.len()];
        let ends = self.blocks.iter().skip(1).map(|&(_, start)| start);
        let ends = ends.chain([self.mentions.len()]);
        for (&(offset, start), end) in self.blocks.iter().zip(ends) {
            for &number in &self.mentions[start..end] {
                let place = &mut next[number as usize];
                offsets[*place] = offset;
                *place += 1;
            }
        }
        (offsets, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Listed = Vec<(Vec<u8>, Vec<u64>)>;

    fn finish(mentions: &[([u8; 20], u64)]) -> (Option<u8>, Listed) {
        let mut objects = Objects::new(20);
        for (id, block) in mentions {
            objects.add(id, *block);
        }
        let mut out = Vec::new();
        let len = objects.finish(|id, blocks| {
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
    fn ids_that_begin_alike_are_told_apart() {
        let mut other = [1; 20];
        other[19] = 2;
        // By turns, so that each is taken for a new one again and again.
        let mentions: Vec<([u8; 20], u64)> = (0..40)
            .map(|at| (if at % 2 == 0 { other } else { [1; 20] }, at / 4))
            .collect();
        let (len, out) = finish(&mentions);
        let blocks: Vec<u64> = (0..10).collect();
        assert_eq!(len, Some(20));
        assert_eq!(
            out,
            [(vec![1; 20], blocks.clone()), (other.to_vec(), blocks)]
        );
    }

    #[test]
    fn ids_have_two_bytes_at_least_and_blocks_are_named_once() {
        let (len, out) = finish(&[([1; 20], 0), ([2; 20], 0), ([1; 20], 0)]);
        assert_eq!(len, Some(2));
        assert_eq!(out, [(vec![1; 2], vec![0]), (vec![2; 2], vec![0])]);
        assert_eq!(finish(&[]), (Some(2), vec![]));
    }
}
