//! The history of the repository's commits: where it is grafted, where a shallow one ends.

use std::io;
use std::path::PathBuf;

use refdb::{Error, ErrorKind, Result};

use super::Repository;
use crate::graph::{Grafts, Graph};

/// How long a file of grafts, or of the ends of a shallow history, may be: what is read of it takes five times as
/// much memory.
const HISTORY_LEN_MAX: usize = 128 << 20;

impl Repository {
    /// Returns the graph of commits, of which nothing is read yet.
    ///
    /// # Errors
    /// `Config` when `core.commitGraph` is no boolean; as for [`Repository::grafts`].
    pub fn graph(&self) -> Result<Graph<'_>> {
        let grafts = self.grafts()?;
        let uses_file = grafts.is_empty()
            && self.config.boolean("core.commitgraph")? != Some(false)
            && !self.odb.has_replacements()?;
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
    /// `Io` when one of the files is there and cannot be read; `Corrupt` for a line of `shallow` that names no commit;
    /// `Unsupported` for more than 128 MiB.
    pub fn grafts(&self) -> Result<Grafts> {
        let read = |variable: &str, usual: PathBuf| {
            let (path, content) = match self.environment.path(variable) {
                Some(path) => {
                    let content = self.system.read_stream(&path);
                    (path, content)
                }
                None => {
                    let content = self.system.read_at_most(&usual, HISTORY_LEN_MAX + 1);
                    (usual, content)
                }
            };
            match content {
                Err(error) if is_absence(&error) => Ok(Vec::new()),
                Ok(content) if content.len() > HISTORY_LEN_MAX => {
                    let path = path.display();
                    let text = format!("'{path}' is longer than {HISTORY_LEN_MAX} bytes");
                    Err(Error::new(ErrorKind::Unsupported, text))
                }
                content => content.map_err(|error| Error::io("unable to read", &path, error)),
            }
        };
        let grafts = read("GIT_GRAFT_FILE", self.common_dir.join("info/grafts"))?;
        let shallow = read("GIT_SHALLOW_FILE", self.common_dir.join("shallow"))?;
        Grafts::parse(&grafts, &shallow, self.object_format())
    }
}

/// Returns whether there is no such file. In Git, a folder in its place is none.
fn is_absence(error: &io::Error) -> bool {
    refdb::internals::is_absent(error) || error.kind() == io::ErrorKind::IsADirectory
}
