//! HEADs of worktrees go along with a branch that gets another name. libgit2 does it by itself where it can:
//! in a repository that it opens for that, with its own refs, which does not help where refs are tables.

use std::sync::Arc;

use crate::backend::Backend;
use bstr::BStr;
use refdb::{Edit, Expected, RefName, Renaming, Store};

/// Makes every HEAD that leads to `from` lead to `to`.
pub(crate) fn follow(
    backend: &Backend,
    from: RefName<'_>,
    to: RefName<'_>,
    how: &Renaming<'_>,
) -> refdb::Result<()> {
    let repository = backend.repository();
    for worktree in repository.worktrees()? {
        let is_current = worktree.git_dir == repository.git_dir();
        let store = match is_current {
            true => backend.store(),
            // Its HEAD is written as that worktree sees it: no name of it can be written from here.
            false => Arc::new(repository.worktree_store(&worktree)?),
        };
        let target = store.read(RefName::HEAD)?.map(|found| found.target);
        if target.as_ref().and_then(|target| target.symbolic()) != Some(from) {
            continue;
        }
        let mut transaction = store.transaction();
        if let Some(who) = &how.who {
            transaction = transaction.committer(who.clone())?;
        }
        let expected = Expected::Symbolic(<&BStr>::from(from.as_bytes()).into());
        let edit = Edit::symbolic(RefName::HEAD, to)
            .no_deref()
            .expecting(expected);
        transaction.add(edit.message(how.message))?;
        let _ = transaction.commit()?;
    }
    Ok(())
}

/// Symrefs are followed through so many others.
const LINKS_MAX: usize = 5;

/// Returns whether HEAD has a reflog and leads to a branch through other symrefs: libgit2 changes that branch
/// alone, where Git goes the way from HEAD on, and adds an entry to each reflog.
pub(crate) fn leads_there_by_others(store: &Store, name: &[u8]) -> refdb::Result<bool> {
    if !name.starts_with(b"refs/heads/") || !store.log_exists(RefName::HEAD)? {
        return Ok(false);
    }
    let mut at = RefName::HEAD.to_owned();
    for links in 0..LINKS_MAX {
        // What cannot be read leads nowhere.
        let Ok(Some(found)) = store.read(at.as_name()) else {
            return Ok(false);
        };
        let Some(next) = found.target.symbolic() else {
            return Ok(false);
        };
        if next.as_bytes() == name {
            return Ok(links > 0);
        }
        at = next.to_owned();
    }
    Ok(false)
}
