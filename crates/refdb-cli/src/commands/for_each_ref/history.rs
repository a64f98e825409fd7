//! The atoms that speak of where a ref's commit stands in history: how far it is ahead of another
//! and behind it, which ref another began from, and the nearest tag.
//!
//! The first two are found out for all refs together, in one walk; for them all refs are gathered
//! before the first one is printed.

use std::collections::HashMap;

use bstr::BString;
use refdb::ObjectId;
use refdb_git::describe::{Describer, Options};
use refdb_git::graph::{AheadBehind, Graph, Node};
use refdb_git::repository::config::values::boolean;

use super::argument::{fatal, unrecognised};
use super::atom::{Atoms, Kind};
use super::sort::Owned;
use super::value::Item;
use crate::context::Context;
use crate::failure::Result;

/// An atom about history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HistoryAtom {
    /// How many commits a ref has that the named one has not, and the other way round.
    AheadBehind(String),
    /// Whether the named commit most likely began from the ref.
    IsBase(String),
    /// The name after the nearest tag.
    Describe(Box<Options>),
}

impl HistoryAtom {
    /// Reads an atom; `None` if it is of another kind.
    ///
    /// # Errors
    /// Fatal, when it does not take its argument.
    pub(super) fn parse(word: &str, argument: Option<&str>) -> Result<Option<Self>> {
        let committish = || match argument {
            Some(argument) => Ok(argument.to_owned()),
            None => Err(fatal(format!("expected format: %({word}:<committish>)"))),
        };
        Ok(Some(match word {
            "ahead-behind" => HistoryAtom::AheadBehind(committish()?),
            "is-base" => HistoryAtom::IsBase(committish()?),
            "describe" => {
                let options = describe_options(argument.unwrap_or_default())?;
                HistoryAtom::Describe(Box::new(options))
            }
            _ => return Ok(None),
        }))
    }
}

/// Reads a list such as `tags,abbrev=4,match=v*`.
fn describe_options(list: &str) -> Result<Options> {
    let mut options = Options::default();
    let mut rest = list;
    while !rest.is_empty() {
        let unread = rest;
        let (mut name, mut value, mut after) = first_option(rest);
        if name == "tags" {
            let tags = value.map_or(Some(true), |value| boolean(Some(value.as_bytes())));
            rest = after;
            if let Some(tags) = tags {
                options.tags = tags;
                continue;
            }
            // Git says what is wrong with it only where none of the others comes behind it.
            (name, value, after) = first_option(rest);
        }
        let given = value.filter(|value| !value.is_empty());
        match name {
            "abbrev" => {
                let Some(value) = given else {
                    return Err(fatal("argument expected for describe:abbrev".to_owned()));
                };
                options.abbrev = Some(digits(value, rest)?);
            }
            "match" | "exclude" => {
                let Some(value) = given else {
                    return Err(fatal(format!("value expected describe:{name}=")));
                };
                let patterns = match name {
                    "match" => &mut options.include,
                    _ => &mut options.exclude,
                };
                patterns.push(BString::from(value));
            }
            _ => return Err(unrecognised("describe", unread)),
        }
        rest = after;
    }
    Ok(options)
}

/// Returns the name of the first option of a list, its value, and what comes behind it.
fn first_option(list: &str) -> (&str, Option<&str>, &str) {
    let (option, after) = list.split_once(',').unwrap_or((list, ""));
    match option.split_once('=') {
        Some((name, value)) => (name, Some(value), after),
        None => (option, None, after),
    }
}

/// Reads a number of digits; `rest` is the list from there on.
fn digits(value: &str, rest: &str) -> Result<usize> {
    let number = value.trim_ascii_start();
    let unsigned = number.strip_prefix(['+', '-']).unwrap_or(number);
    if unsigned.is_empty() || !unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(fatal(format!("cannot fully parse describe:{rest}")));
    }
    if number.starts_with('-') && unsigned.bytes().any(|byte| byte != b'0') {
        return Err(fatal(format!("positive value expected describe:{rest}")));
    }
    Ok(unsigned.parse().unwrap_or(usize::MAX))
}

/// The values of these atoms.
pub(super) struct Histories<'c> {
    context: &'c Context,
    graph: Option<Graph<'c>>,
    /// The commits that refs are compared with, by how they are written.
    compared: Vec<(String, ObjectId)>,
    /// The commits of which the origin is asked for.
    begun: Vec<(String, ObjectId)>,
    /// For the object of each ref, one entry for each commit that it is compared with.
    counts: HashMap<ObjectId, Vec<AheadBehind>>,
    /// The name of the ref from which each commit most likely began.
    origins: Vec<Option<BString>>,
    describers: Vec<(Options, Describer<'c>)>,
}

impl<'c> Histories<'c> {
    /// Begins without any atoms.
    pub(super) fn new(context: &'c Context) -> Self {
        Histories {
            context,
            graph: None,
            compared: Vec::new(),
            begun: Vec::new(),
            counts: HashMap::new(),
            origins: Vec::new(),
            describers: Vec::new(),
        }
    }

    /// Finds the commits that atoms name, as far as that was not done before. It is called before a
    /// later mistake is told, so that the first one is.
    ///
    /// # Errors
    /// Fatal, for what names no commit.
    pub(super) fn find(&mut self, atoms: &Atoms) -> Result<()> {
        let context = self.context;
        for atom in atoms.list() {
            let (text, list) = match &atom.kind {
                Kind::History(HistoryAtom::AheadBehind(text)) => (text, &mut self.compared),
                Kind::History(HistoryAtom::IsBase(text)) => (text, &mut self.begun),
                _ => continue,
            };
            if list.iter().any(|(known, _)| known == text) {
                continue;
            }
            let commit = match context.named_object(text.as_bytes())? {
                Some(oid) => context.commit_of(oid)?,
                None => None,
            };
            let commit = commit.ok_or_else(|| fatal(format!("failed to find '{text}'")))?;
            list.push((text.clone(), commit));
        }
        Ok(())
    }

    /// Returns whether all refs have to be known before a value is.
    pub(super) fn needs_all(&self) -> bool {
        !self.compared.is_empty() || !self.begun.is_empty()
    }

    fn graph(&mut self) -> Result<&mut Graph<'c>> {
        let graph = match self.graph.take() {
            Some(graph) => graph,
            None => self.context.repository()?.graph()?,
        };
        Ok(self.graph.insert(graph))
    }

    /// Finds out what has to be found out for all refs together.
    ///
    /// # Errors
    /// Fatal, when the history cannot be read.
    pub(super) fn prepare(&mut self, refs: &[Owned]) -> Result<()> {
        if !self.needs_all() {
            return Ok(());
        }
        let context = self.context;
        let complains = !self.compared.is_empty();
        let commits = |list: &[(String, ObjectId)]| -> Vec<ObjectId> {
            list.iter().map(|(_, commit)| *commit).collect()
        };
        let (compared, begun) = (commits(&self.compared), commits(&self.begun));
        let believes_stored = !context.odb()?.has_replacements()?;
        let graph = self.graph()?;
        let mut found: Vec<(usize, Node)> = Vec::with_capacity(refs.len());
        for (index, owned) in refs.iter().enumerate() {
            let item = owned.item();
            match graph.peel(item.tip(believes_stored))? {
                Some(node) => found.push((index, node)),
                None if complains => {
                    context.commit_of(item.oid)?;
                }
                None => {}
            }
        }
        let mut nodes = |list: Vec<ObjectId>| -> Result<Vec<Node>> {
            list.into_iter().map(|oid| Ok(graph.commit(oid)?)).collect()
        };
        let (compared, begun) = (nodes(compared)?, nodes(begun)?);
        let all: Vec<Node> = found.iter().map(|(_, node)| *node).collect();
        let mut origins = Vec::with_capacity(begun.len());
        for tip in begun {
            let origin = graph.base_of(tip, &all)?;
            let origin = origin.and_then(|place| refs.get(found.get(place)?.0));
            origins.push(origin.map(|owned| BString::from(owned.item().name.as_bytes())));
        }
        let mut distinct = all;
        distinct.sort_unstable();
        distinct.dedup();
        let counts = match compared.is_empty() {
            true => Vec::new(),
            false => graph.ahead_behind_all(&distinct, &compared)?,
        };
        for (index, node) in found {
            let counts = distinct
                .binary_search(&node)
                .ok()
                .and_then(|at| counts.get(at));
            if let (Some(counts), Some(owned)) = (counts, refs.get(index)) {
                self.counts.insert(owned.item().oid, counts.clone());
            }
        }
        self.origins = origins;
        Ok(())
    }

    /// Appends a value that was found out for all refs together.
    pub(super) fn push(&self, atom: &HistoryAtom, item: &Item<'_>, out: &mut Vec<u8>) {
        let place = |list: &[(String, ObjectId)], text: &str| {
            list.iter().position(|(written, _)| written == text)
        };
        match atom {
            HistoryAtom::AheadBehind(text) => {
                let counts = self.counts.get(&item.oid);
                let place = place(&self.compared, text);
                if let Some(counts) = counts.zip(place).and_then(|(all, at)| all.get(at)) {
                    let text = format!("{} {}", counts.ahead, counts.behind);
                    out.extend_from_slice(text.as_bytes());
                }
            }
            HistoryAtom::IsBase(text) => {
                let origin = place(&self.begun, text).and_then(|at| self.origins.get(at)?.as_ref());
                if origin.is_some_and(|name| name == item.name.as_bytes()) {
                    out.extend_from_slice(format!("({text})").as_bytes());
                }
            }
            HistoryAtom::Describe(_) => {}
        }
    }

    /// Appends the name of a commit after the nearest tag; nothing if there is none.
    ///
    /// # Errors
    /// Fatal, when the history or the tags cannot be read.
    pub(super) fn describe(
        &mut self,
        options: &Options,
        oid: ObjectId,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let known = self
            .describers
            .iter()
            .position(|(known, _)| known == options);
        let place = match known {
            Some(place) => place,
            None => {
                let describer = Describer::new(self.context.repository()?, options.clone())?;
                self.describers.push((options.clone(), describer));
                self.describers.len() - 1
            }
        };
        self.graph()?;
        if let (Some((_, describer)), Some(graph)) =
            (self.describers.get(place), self.graph.as_mut())
            && let Some(text) = describer.describe(graph, oid)?
        {
            out.extend_from_slice(&text);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Failure;

    #[test]
    fn options_of_describe_are_read() {
        let read = |list: &str| describe_options(list);
        let options = read("tags,abbrev= 12,match=a*,match==b,exclude=c,tags=no").unwrap();
        assert!(!options.tags);
        assert_eq!(options.abbrev, Some(12));
        assert_eq!((options.include.len(), options.exclude.len()), (2, 1));
        let mistake = |list: &str| match read(list).unwrap_err() {
            Failure::Fatal(text) => String::from_utf8(text.text).unwrap(),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            mistake("abbrev=x,tags"),
            "cannot fully parse describe:abbrev=x,tags"
        );
        assert_eq!(
            mistake("abbrev=-1"),
            "positive value expected describe:abbrev=-1"
        );
        assert_eq!(mistake("tags,,x"), "unrecognized %(describe) argument: ,x");
    }
}
