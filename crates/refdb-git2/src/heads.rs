//! HEADs of worktrees go along with a branch that gets another name. libgit2 does it by itself where it can:
//! in a repository that it opens for that, with its own refs, which does not help where refs are tables.

use bstr::BStr;
use refdb::{Edit, Expected, RefName, Renaming};
use refdb_git::Repository;

use crate::backend::Backend;

/// Makes every HEAD that leads to `from` lead to `to`.
pub(crate) fn follow(
    backend: &Backend,
    from: RefName<'_>,
    to: RefName<'_>,
    how: &Renaming<'_>,
) -> refdb::Result<()> {
    let repository = backend.repository();
    for head in heads(&repository)? {
        let store = backend.store();
        let name = RefName::new(&head)?;
        let target = store.read(name)?.map(|found| found.target);
        if target.as_ref().and_then(|target| target.symbolic()) != Some(from) {
            continue;
        }
        let mut transaction = store.transaction();
        if let Some(who) = &how.who {
            transaction = transaction.committer(who.clone())?;
        }
        let expected = Expected::Symbolic(<&BStr>::from(from.as_bytes()).into());
        let edit = Edit::symbolic(name, to).no_deref().expecting(expected);
        transaction.add(edit.message(how.message))?;
        let _ = transaction.commit()?;
    }
    Ok(())
}

/// Returns the names of all HEADs, as this worktree calls them.
fn heads(repository: &Repository) -> refdb::Result<Vec<Vec<u8>>> {
    let mut heads = Vec::new();
    for worktree in repository.worktrees()? {
        heads.push(match worktree.id {
            _ if worktree.git_dir == repository.git_dir() => b"HEAD".to_vec(),
            None => b"main-worktree/HEAD".to_vec(),
            Some(id) => [b"worktrees/", id.as_slice(), b"/HEAD"].concat(),
        });
    }
    Ok(heads)
}
