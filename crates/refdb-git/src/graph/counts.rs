//! How far many commits are apart from a few, in one walk over the history of all of them.
//!
//! 1. Commits are walked strictly before their parents, by levels that are measured beforehand, so
//!    that no clock can falsify a count.
//! 2. A commit is walked once, also where levels are not to be trusted and a parent comes first: as
//!    in Git, what reaches it after that is not passed on.
//! 3. For each commit in the queue there is one bit for every tip that reaches it. Only so many tips
//!    are taken at once, so that these take little memory however many tips there are.

use std::collections::HashMap;

use refdb::Result;

use super::reach::Nodes;
use super::{AheadBehind, Graph, Node, Queue};
use crate::graph::queue::Key;

/// How many tips are counted for in one walk.
const TIPS_MAX: usize = 4096;
/// How many bits a word has.
const BITS: usize = 64;

impl Graph<'_> {
    /// Returns how far each of `tips` is ahead of each of `bases` and behind it: one list for each
    /// tip, with an entry for each base. The counts are right whatever the clocks said; for that the
    /// whole history is walked, except where a commit-graph file tells of it.
    ///
    /// # Errors
    /// As for [`Graph::commit`].
    pub fn ahead_behind_all(
        &mut self,
        tips: &[Node],
        bases: &[Node],
    ) -> Result<Vec<Vec<AheadBehind>>> {
        self.measure_levels(bases)?;
        self.measure_levels(tips)?;
        let mut all = Vec::with_capacity(tips.len());
        for tips in tips.chunks(TIPS_MAX) {
            all.extend(self.count(tips, bases)?);
        }
        Ok(all)
    }

    fn count(&mut self, tips: &[Node], bases: &[Node]) -> Result<Vec<Vec<AheadBehind>>> {
        // The bits of the tips come first, then those of the bases.
        let mut walk = Walk::new(tips.len() + bases.len());
        for (bit, &node) in tips.iter().chain(bases).enumerate() {
            let mut bits = walk.zeros();
            set(&mut bits, bit);
            walk.reach(self, node, &bits);
            walk.pool.push(bits);
        }
        let words = tips.len().div_ceil(BITS);
        let mut ahead: Vec<Counters> = bases.iter().map(|_| Counters::default()).collect();
        let mut behind = ahead.clone();
        while walk.unfilled > 0 {
            let Some((node, bits)) = walk.next() else {
                break;
            };
            for base in 0..bases.len() {
                let of_tips = bits.get(..words).unwrap_or_default();
                if is_set(&bits, tips.len() + base) {
                    behind[base].add(of_tips.iter().map(|word| !word));
                } else {
                    ahead[base].add(of_tips.iter().copied());
                }
            }
            for index in 0..self.parent_count(node)? {
                if let Some(parent) = self.parent_at(node, index) {
                    // What a commit-graph file tells of was not walked to measure its level.
                    self.read(parent)?;
                    walk.reach(self, parent, &bits);
                }
            }
            walk.pool.push(bits);
        }
        let of_tip = |tip| {
            let counts = ahead
                .iter()
                .zip(&behind)
                .map(|(ahead, behind)| AheadBehind {
                    ahead: ahead.get(tip),
                    behind: behind.get(tip),
                });
            counts.collect()
        };
        Ok((0..tips.len()).map(of_tip).collect())
    }
}

type Bits = Vec<u64>;

/// A walk that passes on which tips reach a commit.
struct Walk {
    queue: Queue,
    bits: HashMap<Node, Bits>,
    done: Nodes,
    /// How many commits in the queue are not reached by every tip.
    unfilled: usize,
    len: usize,
    /// Memory to use again.
    pool: Vec<Bits>,
}

impl Walk {
    fn new(len: usize) -> Self {
        Walk {
            queue: Queue::default(),
            bits: HashMap::new(),
            done: Nodes::default(),
            unfilled: 0,
            len,
            pool: Vec::new(),
        }
    }

    fn zeros(&mut self) -> Bits {
        let mut bits = self.pool.pop().unwrap_or_default();
        bits.clear();
        bits.resize(self.len.div_ceil(BITS), 0);
        bits
    }

    fn is_full(&self, bits: &[u64]) -> bool {
        let ones: usize = bits.iter().map(|word| word.count_ones() as usize).sum();
        ones == self.len
    }

    /// Adds tips to those that reach a commit.
    fn reach(&mut self, graph: &Graph<'_>, node: Node, more: &[u64]) {
        if self.done.contains(node) {
            return;
        }
        match self.bits.remove(&node) {
            Some(mut bits) => {
                let was_full = self.is_full(&bits);
                for (word, more) in bits.iter_mut().zip(more) {
                    *word |= more;
                }
                if !was_full && self.is_full(&bits) {
                    self.unfilled -= 1;
                }
                self.bits.insert(node, bits);
            }
            None => {
                let mut bits = self.zeros();
                bits.copy_from_slice(more);
                self.unfilled += usize::from(!self.is_full(&bits));
                self.bits.insert(node, bits);
                let key = Key {
                    generation: graph.at(node).level,
                    time: 0,
                };
                self.queue.push_at(key, node);
            }
        }
    }

    fn next(&mut self) -> Option<(Node, Bits)> {
        let node = self.queue.pop()?;
        let bits = self.bits.remove(&node)?;
        self.done.insert(node);
        self.unfilled -= usize::from(!self.is_full(&bits));
        Some((node, bits))
    }
}

fn set(bits: &mut [u64], bit: usize) {
    if let Some(word) = bits.get_mut(bit / BITS) {
        *word |= 1 << (bit % BITS);
    }
}

fn is_set(bits: &[u64], bit: usize) -> bool {
    let word = bits.get(bit / BITS).copied().unwrap_or_default();
    word >> (bit % BITS) & 1 != 0
}

/// A counter for each tip. The counters stand across the words: word `w` of digit `d` holds the
/// binary digit `d` of 64 counters, so that adding a word of bits counts for all of them at once.
#[derive(Clone, Debug, Default)]
struct Counters(Vec<Vec<u64>>);

impl Counters {
    fn add(&mut self, words: impl ExactSizeIterator<Item = u64>) {
        let len = words.len();
        for (at, mut carry) in words.enumerate() {
            for digit in &mut self.0 {
                if carry == 0 {
                    break;
                }
                let next = digit[at] & carry;
                digit[at] ^= carry;
                carry = next;
            }
            if carry != 0 {
                let mut digit = vec![0; len];
                digit[at] = carry;
                self.0.push(digit);
            }
        }
    }

    fn get(&self, tip: usize) -> u64 {
        let digits = self.0.iter().enumerate();
        digits
            .map(|(at, digit)| u64::from(is_set(digit, tip)) << at)
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_count_each_for_itself() {
        let mut counters = Counters::default();
        for round in 0..1000_u64 {
            counters.add([u64::MAX << (round % 64), round].into_iter());
        }
        for bit in 0..64 {
            let first = (0..1000).filter(|round| bit >= round % 64).count();
            let second = (0..1000_u64).filter(|round| round >> bit & 1 != 0).count();
            assert_eq!(counters.get(bit), first as u64);
            assert_eq!(counters.get(64 + bit), second as u64);
        }
    }
}
