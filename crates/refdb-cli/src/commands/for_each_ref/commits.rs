//! `--merged`, `--contains` and their opposites: refs by where their commits stand in history.
//!
//! One walk answers for all refs, and goes only as far as they ask.

use bstr::ByteSlice;
use refdb::ObjectId;
use refdb_git::graph::{Containing, Graph, Node, Reachable};

use super::value::Item;
use crate::context::Context;
use crate::failure::{Failure, Result};

/// The commits that options name.
#[derive(Debug, Default)]
pub(super) struct Commits {
    merged: Vec<ObjectId>,
    no_merged: Vec<ObjectId>,
    contains: Vec<ObjectId>,
    no_contains: Vec<ObjectId>,
}

impl Commits {
    /// Takes the argument of `--merged` or `--no-merged`.
    ///
    /// # Errors
    /// Fatal for what is no object's name, an error for what is no commit.
    pub(super) fn add_merged(
        &mut self,
        context: &Context,
        text: &[u8],
        is_merged: bool,
    ) -> Result<()> {
        let Some(oid) = context.named_object(text)? else {
            let text = format!("malformed object name {}", text.as_bstr());
            return Err(Failure::fatal(text));
        };
        let (name, list) = match is_merged {
            true => ("merged", &mut self.merged),
            false => ("no-merged", &mut self.no_merged),
        };
        match context.commit_of(oid)? {
            Some(commit) => list.push(commit),
            None => {
                let text = format!("option `{name}' must point to a commit");
                return Err(Failure::error(text, 129));
            }
        }
        Ok(())
    }

    /// Takes the argument of `--contains` or `--no-contains`.
    ///
    /// # Errors
    /// An error for what is no object's name or no commit.
    pub(super) fn add_contained(
        &mut self,
        context: &Context,
        text: &[u8],
        contains: bool,
    ) -> Result<()> {
        let mistake = |what: &str| Failure::error(format!("{what} {}", text.as_bstr()), 129);
        let Some(oid) = context.named_object(text)? else {
            return Err(mistake("malformed object name"));
        };
        let list = match contains {
            true => &mut self.contains,
            false => &mut self.no_contains,
        };
        match context.commit_of(oid)? {
            Some(commit) => list.push(commit),
            None => return Err(mistake("no such commit")),
        }
        Ok(())
    }
}

/// Tells which refs are asked for.
pub(super) struct CommitFilter<'c> {
    graph: Graph<'c>,
    /// Whether the values that are stored beside tags are walked from.
    believes_stored: bool,
    merged: Option<Reachable>,
    no_merged: Option<Reachable>,
    contains: Option<Containing>,
    no_contains: Option<Containing>,
}

impl<'c> CommitFilter<'c> {
    /// Prepares to filter; `None` if every ref is asked for.
    pub(super) fn new(context: &'c Context, commits: &Commits) -> Result<Option<Self>> {
        let lists = [
            &commits.merged,
            &commits.no_merged,
            &commits.contains,
            &commits.no_contains,
        ];
        if lists.iter().all(|list| list.is_empty()) {
            return Ok(None);
        }
        let mut graph = context.repository()?.graph()?;
        let mut nodes = |list: &Vec<ObjectId>| -> Result<Option<Vec<Node>>> {
            let nodes = list.iter().map(|oid| Ok(graph.commit(*oid)?));
            let nodes = nodes.collect::<Result<Vec<Node>>>()?;
            Ok(Some(nodes).filter(|nodes| !nodes.is_empty()))
        };
        let [merged, no_merged, contains, no_contains] = lists;
        let reaching = [nodes(merged)?, nodes(no_merged)?];
        let containing = [nodes(contains)?, nodes(no_contains)?];
        let [merged, no_merged] =
            reaching.map(|nodes| nodes.map(|nodes| Reachable::new(&mut graph, nodes)));
        let [contains, no_contains] =
            containing.map(|nodes| nodes.map(|nodes| Containing::new(&mut graph, nodes)));
        Ok(Some(CommitFilter {
            merged: merged.transpose()?,
            no_merged: no_merged.transpose()?,
            contains: contains.transpose()?,
            no_contains: no_contains.transpose()?,
            believes_stored: !context.odb()?.has_replacements()?,
            graph,
        }))
    }

    /// Returns whether a ref is asked for; one that leads to no commit never is.
    pub(super) fn matches(&mut self, item: &Item<'_>) -> Result<bool> {
        let graph = &mut self.graph;
        let Some(node) = graph.peel(item.tip(self.believes_stored))? else {
            return Ok(false);
        };
        if let Some(contains) = &mut self.contains
            && !contains.is_in(graph, node)?
        {
            return Ok(false);
        }
        if let Some(no_contains) = &mut self.no_contains
            && no_contains.is_in(graph, node)?
        {
            return Ok(false);
        }
        if let Some(merged) = &mut self.merged
            && !merged.contains(graph, node)?
        {
            return Ok(false);
        }
        match &mut self.no_merged {
            Some(no_merged) => Ok(!no_merged.contains(graph, node)?),
            None => Ok(true),
        }
    }
}
