//! The stacks of a repository: where they are, and their tables as their lists name them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bstr::ByteSlice;
use refdb::internals::{LIST_LEN_MAX, is_absent, may_be_listed};
use refdb::{Error, RefFormat, Result};
use refdb_git::Repository;
use reftable::Table;

/// Returns the directory that the refs of this worktree alone are below.
pub(crate) fn own_dir(repository: &Repository) -> PathBuf {
    let base = repository.refs_base();
    if repository.git_dir() == repository.common_dir() {
        return base.to_owned();
    }
    match (repository.refs_dir(), repository.git_dir().file_name()) {
        (Some(base), Some(id)) => base.join("worktrees").join(id),
        _ => repository.git_dir().to_owned(),
    }
}

/// Returns the `HEAD` by which Git knows the repository of a directory with refs: it does not lie beside tables that are
/// kept elsewhere.
pub(crate) fn head_file(repository: &Repository, dir: &Path) -> PathBuf {
    let is_elsewhere = repository.refs_dir() == Some(dir);
    let is_beside = !is_elsewhere || repository.ref_format() == RefFormat::Files;
    let dir = if is_beside {
        dir
    } else {
        repository.common_dir()
    };
    dir.join("HEAD")
}

/// Returns the list of the stack below a directory, which somebody may have made as long as he likes.
///
/// # Errors
/// Those of the system; for one that no reader takes.
pub(crate) fn list_below(repository: &Repository, base: &Path) -> io::Result<Vec<u8>> {
    let path = base.join("reftable").join("tables.list");
    let list = repository.system().read_at_most(&path, LIST_LEN_MAX + 1)?;
    match list.len() > LIST_LEN_MAX {
        true => Err(io::Error::other(
            "the file is too long for a list of tables",
        )),
        false => Ok(list),
    }
}

/// Returns the tables of the stack below a directory, as its list names them.
pub(crate) fn tables_below(repository: &Repository, base: &Path) -> Result<Vec<Arc<Table>>> {
    let dir = base.join("reftable");
    let list = match list_below(repository, base) {
        Err(error) if is_absent(&error) => Vec::new(),
        list => list.map_err(|error| Error::io("cannot read", &dir, error))?,
    };
    if list.trim_ascii().is_empty() {
        // Nothing is there, or everything is lost: the store tells.
        repository.store().refs()?;
    }
    let list = list.to_str_lossy();
    let names = list.lines().filter(|name| !name.is_empty());
    let open = |name: &str| {
        if !may_be_listed(name) {
            let what = format!("'{name}' is not the name of a table");
            return Err(Error::corrupt(&dir.join("tables.list"), what));
        }
        let path = dir.join(name);
        let content = repository.system().map(&path);
        let content = content.map_err(|error| Error::io("cannot open", &path, error))?;
        let table = Table::open(content).map_err(|error| Error::corrupt(&path, error))?;
        Ok(Arc::new(table.labelled(name)))
    };
    names.map(open).collect()
}
