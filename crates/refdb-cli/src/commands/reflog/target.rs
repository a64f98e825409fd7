//! Which reflogs a command is about.

use refdb::layout::link_to_worktree;
use refdb::{LogOrder, RefName, RefNameBuf};
use refdb_git::revision::{Found, Revisions};

use crate::context::Context;
use crate::failure::Result;

/// Returns the name of the reflog that a short name stands for.
pub(super) fn find(context: &Context, name: &[u8]) -> Result<Option<RefNameBuf>> {
    let revisions = Revisions::new(context.repository()?);
    let found = revisions.dwim_log(name);
    context.say_notes(&revisions);
    Ok(found?.map(|found: Found| found.name))
}

/// Returns the names of all reflogs: those of this worktree, and, unless `single`, those that
/// belong to other worktrees alone.
pub(super) fn all(context: &Context, single: bool) -> Result<Vec<RefNameBuf>> {
    let repository = context.repository()?;
    let mut names = Vec::new();
    for worktree in repository.worktrees()? {
        if worktree.git_dir == repository.git_dir() {
            names.extend(repository.store().log_names()?);
        } else if !single
            // What a link leads to belongs to somebody else.
            && link_to_worktree(repository.system().as_ref(), &worktree.git_dir)?.is_none()
        {
            let id = worktree.id.as_ref().map(|id| id.as_slice());
            let Some(store) = repository.worktree_store_if_any(&worktree)? else {
                continue;
            };
            for name in store.log_names()? {
                if refdb::name::is_per_worktree(name.as_bytes()) {
                    names.push(name.as_name().of_worktree(id));
                }
            }
        }
    }
    Ok(names)
}

/// Returns how many entries of a reflog `counts`.
pub(super) fn count(
    context: &Context,
    name: RefName<'_>,
    counts: impl Fn(&refdb::LogEntry) -> bool,
) -> Result<u64> {
    let mut count = 0;
    context
        .store()?
        .for_each_log_entry(name, LogOrder::OldestFirst, |entry| {
            count += u64::from(counts(&entry));
            Ok(true)
        })?;
    Ok(count)
}
