//! The tasks with git2, in `files`. (docs/libgit2.md has how it works on `reftable` with refdb behind it.)

use git2::{ErrorCode, Oid, Repository};

use crate::Result;

/// Open a repository.
pub fn open(git_dir: &std::path::Path) -> Result<Repository> {
    Ok(Repository::open(git_dir)?)
}

/// Which branch is checked out?
pub fn checked_out(repo: &Repository) -> Result<Option<String>> {
    let head = repo.find_reference("HEAD")?;
    Ok(head.symbolic_target()?.map(str::to_owned))
}

/// Which commit is a branch at?
pub fn tip(repo: &Repository, name: &str) -> Result<Option<String>> {
    match repo.refname_to_id(name) {
        Ok(id) => Ok(Some(id.to_string())),
        Err(error) if error.code() == ErrorCode::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// List all branches, with what they lead to.
pub fn branches(repo: &Repository) -> Result<Vec<(String, String)>> {
    let mut list = Vec::new();
    for reference in repo.references_glob("refs/heads/*")? {
        let reference = reference?;
        if let Some(id) = reference.target() {
            list.push((reference.name()?.to_owned(), id.to_string()));
        }
    }
    // They come in no order.
    list.sort();
    Ok(list)
}

/// Create a branch, unless it exists.
pub fn create(repo: &Repository, name: &str, id: &str) -> Result<bool> {
    match repo.reference(name, Oid::from_str(id)?, false, "branch: created") {
        Ok(_) => Ok(true),
        Err(error) if error.code() == ErrorCode::Exists => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Move a branch, if it is still where it was seen.
pub fn advance(repo: &Repository, name: &str, from: &str, to: &str) -> Result<bool> {
    let (from, to) = (Oid::from_str(from)?, Oid::from_str(to)?);
    match repo.reference_matching(name, to, true, from, "push") {
        Ok(_) => Ok(true),
        Err(error) if error.code() == ErrorCode::Modified => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Delete a branch with its reflog.
pub fn delete(repo: &Repository, name: &str) -> Result<()> {
    Ok(repo.find_reference(name)?.delete()?)
}

/// Create several tags: those before the one that fails stay.
pub fn several(repo: &Repository, names: &[&str], id: &str) -> Result<bool> {
    let mut transaction = repo.transaction()?;
    for name in names {
        transaction.lock_ref(name)?;
        // A transaction expects nothing: whoever does has to look, while the ref is locked.
        if tip(repo, name)?.is_some() {
            return Ok(false);
        }
        transaction.set_target(name, Oid::from_str(id)?, None, "")?;
    }
    transaction.commit()?;
    Ok(true)
}

/// Rename a branch; its reflog goes with it.
pub fn rename(repo: &Repository, from: &str, to: &str) -> Result<()> {
    repo.find_reference(from)?
        .rename(to, false, "branch: renamed")?;
    Ok(())
}

/// Check another branch out, as far as HEAD is concerned.
pub fn switch(repo: &Repository, name: &str) -> Result<()> {
    Ok(repo.set_head(name)?)
}

/// Where has a branch been, and why? The newest entry comes first.
pub fn history(repo: &Repository, name: &str) -> Result<Vec<(String, String)>> {
    let log = repo.reflog(name)?;
    let mut list = Vec::new();
    for entry in log.iter() {
        let message = entry.message()?.unwrap_or_default();
        list.push((entry.id_new().to_string(), message.to_owned()));
    }
    Ok(list)
}
