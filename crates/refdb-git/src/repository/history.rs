//! The history of the repository's commits: where it is grafted, where a shallow one ends.

use std::io;
use std::path::PathBuf;

use refdb::{Error, Result};

use super::Repository;
use crate::graph::{Grafts, Graph};

impl Repository {
    /// Returns the graph of commits, of which nothing is read yet.
    ///
    /// # Errors
    /// `Config` when `core.commitGraph` is no boolean; as for [`Repository::grafts`].
    pub fn graph(&self) -> Result<Graph<'_>> {
        let grafts = self.grafts()?;
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
    ///
    /// # Errors
    /// `Io` when one of the files is there and cannot be read.
    pub fn grafts(&self) -> Result<Grafts> {
        let read = |variable: &str, usual: PathBuf| {
            let (path, content) = match self.environment.path(variable) {
                Some(path) => {
                    let content = self.system.read_stream(&path);
                    (path, content)
                }
                None => {
                    let content = self.system.read(&usual);
                    (usual, content)
                }
            };
            match content {
                Err(error) if is_absence(&error) => Ok(Vec::new()),
                content => content.map_err(|error| Error::io("unable to read", &path, error)),
            }
        };
        let grafts = read("GIT_GRAFT_FILE", self.common_dir.join("info/grafts"))?;
        let shallow = read("GIT_SHALLOW_FILE", self.common_dir.join("shallow"))?;
        Ok(Grafts::parse(&grafts, &shallow, self.object_format()))
    }
}

/// Returns whether there is no such file. In Git, a folder in its place is none.
fn is_absence(error: &io::Error) -> bool {
    refdb::internals::is_absent(error) || error.kind() == io::ErrorKind::IsADirectory
}
