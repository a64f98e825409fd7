//! The tasks with refdb, in both formats.

use refdb::{Edit, ErrorKind, Expected, LogOrder, ObjectId, RefName, Target};
use refdb_git::Repository;

use crate::Result;

/// Open a repository.
pub fn open(git_dir: &std::path::Path) -> Result<Repository> {
    Ok(Repository::open(git_dir)?)
}

/// Which branch is checked out?
pub fn checked_out(repo: &Repository) -> Result<Option<String>> {
    let head = repo.store().read(RefName::HEAD)?;
    Ok(match head.map(|head| head.target) {
        Some(Target::Symbolic(branch)) => Some(branch.to_string()),
        _ => None,
    })
}

/// Which commit is a branch at?
pub fn tip(repo: &Repository, name: &str) -> Result<Option<String>> {
    let found = repo.store().resolve(RefName::new(name)?)?;
    Ok(found.map(|found| found.oid.to_string()))
}

/// List all branches, with what they lead to.
pub fn branches(repo: &Repository) -> Result<Vec<(String, String)>> {
    let mut refs = repo.store().refs()?;
    refs.seek_prefix(b"refs/heads/")?;
    let mut list = Vec::new();
    while let Some(record) = refs.next()? {
        if let Some(oid) = record.target.oid() {
            list.push((record.name.to_string(), oid.to_string()));
        }
    }
    Ok(list)
}

/// Create a branch, unless it exists.
pub fn create(repo: &Repository, name: &str, id: &str) -> Result<bool> {
    let id = ObjectId::from_hex(id.as_bytes()).ok_or("no id")?;
    let edit = Edit::update(RefName::new(name)?, id).expecting(Expected::Missing);
    let mut transaction = repo.store().transaction().message(b"branch: created");
    transaction.add(edit)?;
    match transaction.commit() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::Rejected => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Move a branch, if it is still where it was seen.
pub fn advance(repo: &Repository, name: &str, from: &str, to: &str) -> Result<bool> {
    let [from, to] = [from, to].map(|id| ObjectId::from_hex(id.as_bytes()).ok_or("no id"));
    let edit = Edit::update(RefName::new(name)?, to?).expecting(Expected::Oid(from?));
    let mut transaction = repo.store().transaction().message(b"push");
    transaction.add(edit)?;
    match transaction.commit() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::Rejected => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Delete a branch with its reflog.
pub fn delete(repo: &Repository, name: &str) -> Result<()> {
    let mut transaction = repo.store().transaction();
    transaction.add(Edit::delete(RefName::new(name)?))?;
    // What fails once the refs are in place would be in the outcome.
    let _outcome = transaction.commit()?;
    Ok(())
}

/// Create several tags, all or none: also when the process dies meanwhile.
pub fn several(repo: &Repository, names: &[&str], id: &str) -> Result<bool> {
    let id = ObjectId::from_hex(id.as_bytes()).ok_or("no id")?;
    let mut transaction = repo.store().transaction();
    for name in names {
        let edit = Edit::update(RefName::new(name)?, id);
        transaction.add(edit.expecting(Expected::Missing))?;
    }
    match transaction.commit() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::Rejected => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Rename a branch; its reflog goes with it.
pub fn rename(repo: &Repository, from: &str, to: &str) -> Result<()> {
    let (from, to) = (RefName::new(from)?, RefName::new(to)?);
    let store = repo.store();
    let _outcome = store.rename_to_new(from, to, b"branch: renamed")?;
    Ok(())
}

/// Check another branch out, as far as HEAD is concerned.
pub fn switch(repo: &Repository, name: &str) -> Result<()> {
    let head = Edit::symbolic(RefName::HEAD, RefName::new(name)?).no_deref();
    let mut transaction = repo.store().transaction().message(b"checkout");
    transaction.add(head)?;
    // What fails once the refs are in place would be in the outcome.
    let _outcome = transaction.commit()?;
    Ok(())
}

/// Where has a branch been, and why? The newest entry comes first.
pub fn history(repo: &Repository, name: &str) -> Result<Vec<(String, String)>> {
    let name = RefName::new(name)?;
    let log = repo.store().log(name, LogOrder::NewestFirst)?;
    let entries = log.unwrap_or_default().into_iter();
    let text = |entry: &[u8]| String::from_utf8_lossy(entry).into_owned();
    Ok(entries
        .map(|entry| (entry.new.to_string(), text(&entry.message)))
        .collect())
}
