//! The order in which histories are walked: later generations first, then later times.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use refdb::Result;

use super::{Graph, Node};

/// What commits are ordered by.
///
/// The generation alone would do, where it is known; where it is not, times stand for it. They can
/// be wrong, so that a commit may come before its child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) generation: u32,
    pub(super) time: u64,
}

/// Commits that wait to be looked at, the youngest first.
///
/// Commits that cannot be told apart come out in the order in which they went in.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    heap: BinaryHeap<(Key, Reverse<u64>, Node)>,
    entered: u64,
}

impl Queue {
    /// Adds a commit.
    ///
    /// # Errors
    /// As for [`Graph::commit`].
    pub fn push(&mut self, graph: &mut Graph<'_>, node: Node) -> Result<()> {
        let key = graph.key(node)?;
        self.push_at(key, node);
        Ok(())
    }

    /// Adds a commit by its time alone, whatever is known of its generation.
    ///
    /// # Errors
    /// As for [`Graph::commit`].
    pub(crate) fn push_by_time(&mut self, graph: &mut Graph<'_>, node: Node) -> Result<()> {
        let time = graph.time(node)?;
        let key = Key {
            generation: 0,
            time,
        };
        self.push_at(key, node);
        Ok(())
    }

    pub(super) fn push_at(&mut self, key: Key, node: Node) {
        self.heap.push((key, Reverse(self.entered), node));
        self.entered += 1;
    }

    /// Takes the first commit out.
    pub fn pop(&mut self) -> Option<Node> {
        self.heap.pop().map(|(_, _, node)| node)
    }

    /// Returns the first commit's place in the order.
    pub(super) fn first(&self) -> Option<Key> {
        self.heap.peek().map(|(key, _, _)| *key)
    }

    /// Returns the commits that wait, in no order.
    pub fn iter(&self) -> impl Iterator<Item = Node> {
        self.heap.iter().map(|(_, _, node)| *node)
    }

    /// Returns whether no commit waits.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}
