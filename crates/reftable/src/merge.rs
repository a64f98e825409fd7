//! Several sources read as one, by their keys: per key the record of the newest source.
//!
//! A heap holds the sources that stand on a record, least key first and newest source first among
//! equal keys. Records that a newer source hides are passed over only when the next record is asked
//! for, so the heap is never rebuilt while records are read, however many deletions there are.
//!
//! Invariants:
//! 1. Every source in the heap is on a record; a source outside it has none left.
//! 2. Every source that is on a record is on its first one not less than `floor`, unless records
//!    have been read since the last seek.

use std::cmp::Ordering;

use crate::cursor::Source;
use crate::error::Result;
use crate::short::{self, is_less};

/// The merge of several sources by key.
pub(crate) struct Merge<S> {
    /// Oldest first.
    sources: Vec<S>,
    /// The numbers of the sources that are on a record.
    heap: Vec<usize>,
    state: State,
    /// The target of the last seek.
    floor: Vec<u8>,
    /// Of two sources, whether they are on the same key, where that is known.
    is_tied: Option<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// The sources stand before their records, the heap is not built.
    Unbuilt,
    /// The top of the heap is the next record.
    Before,
    /// The top of the heap is the current record.
    On,
}

impl<S: Source> Merge<S> {
    pub(crate) fn new(sources: Vec<S>) -> Self {
        let heap = Vec::with_capacity(sources.len());
        Merge {
            sources,
            heap,
            state: State::Unbuilt,
            floor: Vec::new(),
            is_tied: None,
        }
    }

    /// Returns the source that is on the current record.
    #[inline]
    pub(crate) fn top(&self) -> Option<&S> {
        self.heap.first().and_then(|top| self.sources.get(*top))
    }

    pub(crate) fn seek(&mut self, target: &[u8]) -> Result<()> {
        self.is_tied = None;
        let moved = if self.may_keep_heads(target) {
            self.seek_forward(target)
        } else {
            self.heap.clear();
            self.state = State::Unbuilt;
            self.sources
                .iter_mut()
                .try_for_each(|source| source.seek(target))
        };
        if moved.is_err() {
            self.fail();
        }
        self.floor.clear();
        self.floor.extend_from_slice(target);
        moved
    }

    /// Returns whether a source that is at or behind the target needs no seek: whether there is
    /// certainly nothing between the target and the source's record.
    fn may_keep_heads(&self, target: &[u8]) -> bool {
        let Some(top) = self.top() else { return false };
        match self.state {
            State::Unbuilt => false,
            State::Before => !is_less(target, &self.floor),
            State::On => !is_less(target, top.key()),
        }
    }

    fn seek_forward(&mut self, target: &[u8]) -> Result<()> {
        self.state = State::Before;
        if self.top().is_some_and(|top| !is_less(top.key(), target)) {
            return Ok(());
        }
        let mut kept = 0;
        for at in 0..self.heap.len() {
            let index = self.heap[at];
            let source = &mut self.sources[index];
            let mut more = true;
            // The top was found to be.
            if at == 0 || is_less(source.key(), target) {
                source.seek(target)?;
                more = source.advance()?;
            }
            if more {
                self.heap[kept] = index;
                kept += 1;
            }
        }
        self.heap.truncate(kept);
        self.build_heap();
        Ok(())
    }

    #[inline]
    pub(crate) fn advance(&mut self) -> Result<bool> {
        let moved = self.step();
        if moved.is_err() {
            self.fail();
        }
        moved
    }

    fn step(&mut self) -> Result<bool> {
        match self.state {
            State::On if self.heap.len() == 1 => {
                if !self.sources[self.heap[0]].advance()? {
                    self.heap.clear();
                }
            }
            State::On if self.heap.len() == 2 => self.step_two()?,
            State::On => {
                while let Some(child) = self.hidden_child() {
                    self.advance_at(child)?;
                }
                if !self.heap.is_empty() {
                    self.advance_at(0)?;
                }
            }
            State::Before => {}
            State::Unbuilt => {
                self.heap.clear();
                for (index, source) in self.sources.iter_mut().enumerate() {
                    if source.advance()? {
                        self.heap.push(index);
                    }
                }
                self.build_heap();
            }
        }
        self.state = State::On;
        Ok(!self.heap.is_empty())
    }

    /// Goes on where two sources are left, as in most stacks: one comparison tells which is the next
    /// record, and whether it hides the other, where the heap makes two or three (a fifth of the time
    /// of whoever reads refs that were created and deleted).
    fn step_two(&mut self) -> Result<()> {
        let (top, below) = (self.heap[0], self.heap[1]);
        let is_hidden = match self.is_tied.take() {
            Some(is_tied) => is_tied,
            None => short::same(self.sources[top].key(), self.sources[below].key()),
        };
        if is_hidden && !self.sources[below].advance()? {
            self.heap.truncate(1);
        }
        if !self.sources[top].advance()? {
            self.heap.remove(0);
        }
        if self.heap.len() == 2 {
            let order = short::compare(self.sources[top].key(), self.sources[below].key());
            self.is_tied = Some(order.is_eq());
            if order.then(below.cmp(&top)).is_gt() {
                self.heap.swap(0, 1);
            }
        }
        Ok(())
    }

    /// Returns the position of a record below the top that has the top's key.
    #[inline]
    fn hidden_child(&self) -> Option<usize> {
        if self.heap.len() < 2 {
            return None;
        }
        let key = self.top()?.key();
        (1..self.heap.len().min(3)).find(|at| short::same(self.sources[self.heap[*at]].key(), key))
    }

    /// Moves the source at this position of the heap, and puts the heap in order again.
    ///
    /// The position is the top or one of its children, and the top's key is not greater than the
    /// one moved to, so that the order above the position stays as it is.
    #[inline]
    fn advance_at(&mut self, at: usize) -> Result<()> {
        if !self.sources[self.heap[at]].advance()? {
            self.heap.swap_remove(at);
        }
        self.sift_down(at);
        Ok(())
    }

    fn build_heap(&mut self) {
        for at in (0..self.heap.len() / 2).rev() {
            self.sift_down(at);
        }
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let mut least = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if child < self.heap.len() && self.less(child, least) {
                    least = child;
                }
            }
            if least == at {
                return;
            }
            self.heap.swap(at, least);
            at = least;
        }
    }

    fn less(&self, left: usize, right: usize) -> bool {
        let (left, right) = (self.heap[left], self.heap[right]);
        match short::compare(self.sources[left].key(), self.sources[right].key()) {
            Ordering::Less => true,
            Ordering::Equal => left > right,
            Ordering::Greater => false,
        }
    }

    /// Makes the current record, the first one behind those that start with `prefix`, the next
    /// one, so that a seek from here finds it without moving any source.
    pub(crate) fn stop_behind(&mut self, prefix: &[u8]) {
        let Some(top) = self.heap.first().and_then(|top| self.sources.get(*top)) else {
            return;
        };
        let shared = top
            .key()
            .iter()
            .zip(prefix)
            .take_while(|(a, b)| a == b)
            .count();
        // The shortest key that is behind all keys with the prefix and not behind the record.
        self.floor.clear();
        self.floor.extend(top.key().iter().take(shared + 1));
        self.state = State::Before;
    }

    /// Returns the source that is on the current record, to be asked what it remembers.
    #[inline]
    pub(crate) fn top_mut(&mut self) -> Option<&mut S> {
        let top = self.heap.first();
        top.and_then(|top| self.sources.get_mut(*top))
    }

    /// Stands at the end until the next seek.
    fn fail(&mut self) {
        self.heap.clear();
        self.state = State::On;
    }
}
