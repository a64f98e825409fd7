//! Which of several branches a commit was most likely begun from.

use std::collections::HashMap;

use refdb::Result;

use super::{Graph, Node};

impl Graph<'_> {
    /// Returns the place in `bases` of the branch from which `tip` most likely started: the one
    /// whose line of first parents meets that of `tip` nearest to it; the first of several.
    ///
    /// # Errors
    /// As for [`Graph::commit`].
    pub fn base_of(&mut self, tip: Node, bases: &[Node]) -> Result<Option<usize>> {
        // A branch that stands at the commit itself is it, whatever stands in front of it.
        if let Some(index) = bases.iter().position(|base| *base == tip) {
            return Ok(Some(index));
        }
        // How far from the tip a commit is, or a line that comes through it gets to the tip's.
        let mut meets: HashMap<Node, Option<usize>> = HashMap::new();
        let mut next = Some(tip);
        let mut distance = 0;
        // A line can lead back into itself, by what replaces commits or is damaged.
        while let Some(node) = next.filter(|node| !meets.contains_key(node)) {
            meets.insert(node, Some(distance));
            distance += 1;
            next = self.parents(node)?.first().copied();
        }
        let mut nearest: Option<(usize, usize)> = None;
        let mut line = Vec::new();
        for (index, &base) in bases.iter().enumerate() {
            let mut next = Some(base);
            let mut met = None;
            while let Some(node) = next {
                if let Some(known) = meets.get(&node) {
                    met = *known;
                    break;
                }
                meets.insert(node, None);
                line.push(node);
                next = self.parents(node)?.first().copied();
            }
            meets.extend(line.drain(..).map(|node| (node, met)));
            if let Some(distance) = met
                && nearest.is_none_or(|(nearest, _)| distance < nearest)
            {
                nearest = Some((distance, index));
            }
        }
        Ok(nearest.map(|(_, index)| index))
    }
}
