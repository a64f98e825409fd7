//! What commits reach, and which commits reach one: both for any number of questions in one walk.

use refdb::Result;

use super::{Graph, Key, Node, Queue, UNKNOWN};

/// The commits that some tips reach. The walk goes on only as far as questions ask.
#[derive(Clone, Debug, Default)]
pub struct Reachable {
    queue: Queue,
    reached: Nodes,
}

impl Reachable {
    /// Begins at these tips, which count as reached.
    ///
    /// # Errors
    /// As for [`Graph::commit`].
    pub fn new(graph: &mut Graph<'_>, tips: impl IntoIterator<Item = Node>) -> Result<Self> {
        let mut reachable = Reachable::default();
        for tip in tips {
            reachable.reach(graph, tip)?;
        }
        Ok(reachable)
    }

    fn reach(&mut self, graph: &mut Graph<'_>, node: Node) -> Result<()> {
        if self.reached.insert(node) {
            self.queue.push(graph, node)?;
        }
        Ok(())
    }

    /// Returns whether a tip is this commit or has it as an ancestor.
    ///
    /// # Errors
    /// As for [`Graph::commit`].
    pub fn contains(&mut self, graph: &mut Graph<'_>, node: Node) -> Result<bool> {
        let wanted = graph.key(node)?.generation;
        while !self.reached.contains(node) {
            // Behind the first in the queue are only commits of its generation and earlier ones.
            let is_behind = |first: Key| first.generation != UNKNOWN && first.generation <= wanted;
            if self.queue.first().is_none_or(is_behind) {
                return Ok(false);
            }
            self.step(graph)?;
        }
        Ok(true)
    }

    /// Walks on while commits are left that were committed at `time` (in seconds since 1970) or
    /// later, and returns the commits that were reached, in no order. At 0 these are all.
    ///
    /// # Errors
    /// As for [`Graph::commit`].
    pub fn walk_to(&mut self, graph: &mut Graph<'_>, time: u64) -> Result<Vec<Node>> {
        while self.queue.first().is_some_and(|first| first.time >= time) {
            self.step(graph)?;
        }
        Ok(self.reached.iter().collect())
    }

    fn step(&mut self, graph: &mut Graph<'_>) -> Result<()> {
        if let Some(node) = self.queue.pop() {
            for index in 0..graph.parent_count(node)? {
                if let Some(parent) = graph.parent_at(node, index) {
                    self.reach(graph, parent)?;
                }
            }
        }
        Ok(())
    }
}

/// Which commits reach one of a few. What is found out of a commit on the way is kept, so that all
/// questions together are one walk.
#[derive(Clone, Debug, Default)]
pub struct Containing {
    wanted: Vec<Node>,
    contains: Nodes,
    lacks: Nodes,
    /// The lowest generation among those that are looked for.
    generation_min: u32,
    /// The commits about which nothing is decided yet, in the order in which they came up.
    open: Vec<Node>,
    /// Where each commit stands among these, counted from 1; 0 if it does not.
    places: Vec<u32>,
}

/// A commit on the way, and how far its parents were looked at.
struct Step {
    node: Node,
    next: usize,
    /// The first of the open commits that it is known to reach.
    low: u32,
}

impl Containing {
    /// Asks for commits that reach one of `wanted`.
    ///
    /// # Errors
    /// As for [`Graph::commit`].
    pub fn new(graph: &mut Graph<'_>, wanted: impl IntoIterator<Item = Node>) -> Result<Self> {
        let mut containing = Containing {
            generation_min: UNKNOWN,
            ..Containing::default()
        };
        for node in wanted {
            let generation = graph.key(node)?.generation;
            containing.wanted.push(node);
            containing.contains.insert(node);
            containing.generation_min = containing.generation_min.min(generation);
        }
        Ok(containing)
    }

    /// Returns whether `tip` is one of the commits or has one as an ancestor.
    ///
    /// # Errors
    /// As for [`Graph::commit`].
    pub fn is_in(&mut self, graph: &mut Graph<'_>, tip: Node) -> Result<bool> {
        if graph.may_go_in_circles()? {
            // What a commit in a circle contains is a matter of where one stops: as Git does.
            for at in 0..self.wanted.len() {
                if graph.is_ancestor(self.wanted[at], tip)? {
                    return Ok(true);
                }
            }
            return Ok(false);
        }
        if let Some(known) = self.known(graph, tip)? {
            return Ok(known);
        }
        let found = self.walk(graph, tip);
        // All that is open leads to a commit on the way, and that to what was found.
        let found_one = matches!(found, Ok(true));
        for node in std::mem::take(&mut self.open) {
            self.places[node.0 as usize] = 0;
            if found_one {
                self.contains.insert(node);
            }
        }
        found
    }

    /// Walks until one of the commits is found. Those that reach each other, in a circle that a
    /// damaged file makes, are decided together.
    fn walk(&mut self, graph: &mut Graph<'_>, tip: Node) -> Result<bool> {
        let mut path = vec![self.enter(tip)?];
        while let Some(step) = path.last_mut() {
            let Some(parent) = graph.parent_at(step.node, step.next) else {
                let (place, low) = (self.place(step.node), step.low);
                path.pop();
                if low == place {
                    for node in self.open.split_off(low as usize - 1) {
                        self.places[node.0 as usize] = 0;
                        self.lacks.insert(node);
                    }
                } else if let Some(child) = path.last_mut() {
                    child.low = child.low.min(low);
                }
                continue;
            };
            step.next += 1;
            let open = self.place(parent);
            if open != 0 {
                step.low = step.low.min(open);
                continue;
            }
            match self.known(graph, parent)? {
                Some(true) => return Ok(true),
                Some(false) => {}
                None => path.push(self.enter(parent)?),
            }
        }
        Ok(false)
    }

    fn enter(&mut self, node: Node) -> Result<Step> {
        self.open.push(node);
        let low = super::place(self.open.len())?;
        let at = node.0 as usize;
        if self.places.len() <= at {
            self.places.resize(at + 1, 0);
        }
        self.places[at] = low;
        Ok(Step { node, next: 0, low })
    }

    fn place(&self, node: Node) -> u32 {
        self.places.get(node.0 as usize).copied().unwrap_or(0)
    }

    fn known(&mut self, graph: &mut Graph<'_>, node: Node) -> Result<Option<bool>> {
        if self.contains.contains(node) {
            return Ok(Some(true));
        }
        if self.lacks.contains(node) {
            return Ok(Some(false));
        }
        let generation = graph.key(node)?.generation;
        if generation != UNKNOWN && generation <= self.generation_min {
            return Ok(Some(false));
        }
        Ok(None)
    }
}

/// A set of commits.
#[derive(Clone, Debug, Default)]
pub(super) struct Nodes(Vec<u64>);

impl Nodes {
    /// Adds a commit; returns whether it was not there.
    pub(super) fn insert(&mut self, node: Node) -> bool {
        let (word, bit) = split(node);
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        let word = &mut self.0[word];
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    pub(super) fn contains(&self, node: Node) -> bool {
        let (word, bit) = split(node);
        self.0.get(word).is_some_and(|word| word & bit != 0)
    }

    fn iter(&self) -> impl Iterator<Item = Node> {
        let all = 0..u32::try_from(self.0.len() * 64).unwrap_or(u32::MAX);
        all.map(Node).filter(|node| self.contains(*node))
    }
}

/// Returns the word and the bit of a commit.
fn split(node: Node) -> (usize, u64) {
    (node.0 as usize / 64, 1 << (node.0 % 64))
}
