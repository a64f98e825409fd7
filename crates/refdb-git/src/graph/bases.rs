//! What two commits have in common: their best common ancestors, and how far they are apart.

use refdb::Result;

use super::{AheadBehind, Graph, Key, Node, Queue};

/// The first commit reaches it.
const ONE: u8 = 1;
/// The second commit reaches it.
const TWO: u8 = 2;
/// A common ancestor reaches it.
const STALE: u8 = 4;
/// It is a common ancestor that no other was known to reach when it came up.
const RESULT: u8 = 8;
/// It waits to pass its mark on.
const QUEUED: u8 = 16;

impl Graph<'_> {
    /// Returns whether `ancestor` is `descendant` or one of its ancestors.
    ///
    /// # Errors
    /// As for [`Graph::commit`].
    pub fn is_ancestor(&mut self, ancestor: Node, descendant: Node) -> Result<bool> {
        let mut walk = Walk::default();
        let painted = walk.paint(self, ancestor, &[descendant], Some(ancestor));
        let is_ancestor = self.mark(ancestor) & TWO != 0;
        self.clear_marks();
        painted.map(|()| is_ancestor)
    }

    /// Returns the best common ancestors of a commit and any of several others, those committed
    /// last first.
    ///
    /// # Errors
    /// As for [`Graph::commit`].
    pub fn merge_bases(&mut self, one: Node, others: &[Node]) -> Result<Vec<Node>> {
        let mut walk = Walk::default();
        let painted = walk.paint(self, one, others, None);
        let mut bases: Vec<Node> = self.marked.clone();
        bases.retain(|node| self.mark(*node) & (RESULT | STALE) == RESULT);
        self.clear_marks();
        painted?;
        // Where clocks were wrong, one can still reach another.
        let mut redundant = Vec::new();
        if bases.len() > 1 {
            for &base in &bases {
                for &other in &bases {
                    if base != other && self.is_ancestor(base, other)? {
                        redundant.push(base);
                        break;
                    }
                }
            }
        }
        bases.retain(|base| !redundant.contains(base));
        bases.sort_by_key(|base| (std::cmp::Reverse(self.at(*base).time), self.at(*base).oid));
        Ok(bases)
    }

    /// Returns how far `one` is ahead of `two` and behind it.
    ///
    /// Only the history down to what they have in common is walked, as far as the times of commits
    /// tell: where clocks were badly wrong and no commit-graph file helps, a common commit can be
    /// counted. [`Graph::ahead_behind_all`] walks everything and cannot err.
    ///
    /// # Errors
    /// As for [`Graph::commit`].
    pub fn ahead_behind(&mut self, one: Node, two: Node) -> Result<AheadBehind> {
        if one == two {
            return Ok(AheadBehind::default());
        }
        let mut walk = Walk::default();
        let painted = walk
            .paint(self, one, &[two], None)
            .and_then(|()| walk.paint_stale(self));
        let mut counts = AheadBehind::default();
        for &node in &self.marked {
            match self.mark(node) & (ONE | TWO) {
                ONE => counts.ahead += 1,
                TWO => counts.behind += 1,
                _ => {}
            }
        }
        self.clear_marks();
        painted.map(|()| counts)
    }
}

/// A walk that passes marks on from commits to their parents.
#[derive(Default)]
struct Walk {
    queue: Queue,
    /// How many of the commits in the queue no common ancestor is known to reach.
    fresh: usize,
    /// The earliest commit that was taken for one side's alone.
    earliest: Option<Key>,
}

impl Walk {
    /// Adds to the mark of a commit, which waits to pass it on if that is new.
    fn reach(&mut self, graph: &mut Graph<'_>, node: Node, mark: u8) -> Result<()> {
        let before = graph.mark(node);
        if !graph.add_mark(node, mark) {
            return Ok(());
        }
        let is_fresh = (before | mark) & STALE == 0;
        if before & QUEUED == 0 {
            graph.add_mark(node, QUEUED);
            self.queue.push(graph, node)?;
            self.fresh += usize::from(is_fresh);
        } else if before & STALE == 0 && !is_fresh {
            self.fresh -= 1;
        }
        Ok(())
    }

    /// Takes the next commit out, with its mark.
    fn next(&mut self, graph: &mut Graph<'_>) -> Option<(Node, u8)> {
        let node = self.queue.pop()?;
        graph.take_mark(node, QUEUED);
        let mark = graph.mark(node) & (ONE | TWO | STALE);
        self.fresh -= usize::from(mark & STALE == 0);
        Some((node, mark))
    }

    /// Walks until only ancestors of common ancestors are left, or until it is known whether the
    /// second side reaches `until`.
    fn paint(
        &mut self,
        graph: &mut Graph<'_>,
        one: Node,
        others: &[Node],
        until: Option<Node>,
    ) -> Result<()> {
        let lowest = match until {
            Some(node) => graph.key(node)?.generation,
            None => 0,
        };
        self.reach(graph, one, ONE)?;
        for &other in others {
            self.reach(graph, other, TWO)?;
        }
        while self.fresh > 0 {
            let is_too_low = |first: Key| first.generation < lowest;
            let is_known = until.is_some_and(|node| graph.mark(node) & TWO != 0);
            if is_known || self.queue.first().is_some_and(is_too_low) {
                break;
            }
            let Some((node, mut mark)) = self.next(graph) else {
                break;
            };
            if mark == ONE | TWO {
                graph.add_mark(node, RESULT);
                mark |= STALE;
            }
            self.pass_on(graph, node, mark)?;
        }
        Ok(())
    }

    /// Walks on through common ancestors while one of them may still reach a commit that was taken
    /// for one side's alone.
    fn paint_stale(&mut self, graph: &mut Graph<'_>) -> Result<()> {
        // In a circle no time tells what is behind.
        let is_ordered = !graph.may_go_in_circles()?;
        while let (Some(first), Some(earliest)) = (self.queue.first(), self.earliest) {
            if is_ordered && first < earliest {
                break;
            }
            if let Some((node, mark)) = self.next(graph) {
                self.pass_on(graph, node, mark)?;
            }
        }
        Ok(())
    }

    fn pass_on(&mut self, graph: &mut Graph<'_>, node: Node, mark: u8) -> Result<()> {
        if mark == ONE || mark == TWO {
            let key = graph.key(node)?;
            self.earliest = Some(self.earliest.map_or(key, |earliest| earliest.min(key)));
        }
        for index in 0..graph.parent_count(node)? {
            if let Some(parent) = graph.parent_at(node, index) {
                self.reach(graph, parent, mark)?;
            }
        }
        Ok(())
    }
}
