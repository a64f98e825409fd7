//! HEADs of worktrees go along with a branch that gets another name. libgit2 does it by itself where it can:
//! in a repository that it opens for that, with its own refs, which does not help where refs are tables.

use std::sync::Arc;

use crate::backend::Backend;
use bstr::BStr;
use refdb::{Edit, Expected, RefName, Renaming};

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
