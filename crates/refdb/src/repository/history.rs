//! The history of the repository's commits: where it is grafted, where a shallow one ends.

use std::path::PathBuf;

use super::Repository;
use crate::error::Result;
use crate::graph::{Grafts, Graph};

impl Repository {
    /// Returns the graph of commits, of which nothing is read yet.
    ///
    /// # Errors
    /// `Config` when `core.commitGraph` is no boolean.
    pub fn graph(&self) -> Result<Graph<'_>> {
        let grafts = self.grafts();
        let uses_file = grafts.is_empty()
            && self.config.boolean("core.commitgraph")? != Some(false)
            && !self.odb.has_replacements();
        let graph = Graph::new(&self.odb).with_grafts(grafts);
        Ok(match uses_file {
            true => graph.with_commit_graph_file(),
            false => graph,
        })
    }

    /// Returns the commits that are taken to have other parents than they name: those of the file of
    /// grafts, and those at which a shallow history ends.
    pub fn grafts(&self) -> Grafts {
        let read = |variable: &str, usual: PathBuf| {
            let path = self.environment.path(variable).unwrap_or(usual);
            self.system.read_stream(&path).unwrap_or_default()
        };
        let grafts = read("GIT_GRAFT_FILE", self.common_dir.join("info/grafts"));
        let shallow = read("GIT_SHALLOW_FILE", self.common_dir.join("shallow"));
        Grafts::parse(&grafts, &shallow, self.object_format())
    }
}
