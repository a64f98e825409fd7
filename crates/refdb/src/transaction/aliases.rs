//! One ref by two names: what is `HEAD` here is `worktrees/w/HEAD` as well, or `main-worktree/HEAD`.
//!
//! Names are compared as they are given. So a transaction that names worktrees is looked at once more, by
//! where its refs are kept, and is never published together with others.

use crate::backend::Session;
use crate::error::{Error, Reason, Rejection, Result};

use super::expand::Expansion;
use super::queue::Queue;

/// Returns whether a name says in which worktree its ref is; `edits` are those of a queue, in the order of
/// their names.
pub(super) fn say_worktree(queue: &Queue, edits: &[usize]) -> bool {
    [&b"main-worktree/"[..], b"worktrees/"].iter().any(|start| {
        let name = |edit: usize| queue.name(edit).as_bytes();
        let at = edits.partition_point(|&edit| name(edit) < *start);
        edits
            .get(at)
            .is_some_and(|&edit| name(edit).starts_with(start))
    })
}

/// Refuses a transaction in which two names are those of one ref, or of one below the other, if that does
/// not show in the names.
///
/// # Errors
/// `Rejected` for the second one.
pub(super) fn check(expansion: &Expansion<'_>, session: &dyn Session) -> Result<()> {
    if !say_worktree(expansion.queue, expansion.order) {
        return Ok(());
    }
    let is_value = |update: &usize| {
        let state = &expansion.updates[*update];
        !state.rejected && !state.log_only
    };
    let values = (0..expansion.updates.len()).filter(is_value);
    let located = values.map(|update| {
        let (place, bare) = session.locate(expansion.name(update));
        // `a-b` sorts before `a/`, and `a` before both.
        (place, [bare.as_bytes(), b"/"].concat(), update)
    });
    let mut kept: Vec<_> = located.collect();
    kept.sort();
    for (one, other) in kept.iter().zip(kept.iter().skip(1)) {
        let is_nested = one.0 == other.0 && other.1.starts_with(&one.1);
        let [first, second] = [one, other].map(|(_, _, update)| expansion.name(*update));
        if !is_nested || first == second || second.is_below(first) {
            continue;
        }
        let message = match one.1 == other.1 {
            true => {
                format!("multiple updates for ref '{first}' not allowed: '{second}' is the same")
            }
            false => format!("cannot process '{first}' and '{second}' at the same time"),
        };
        return Err(Error::rejected(Rejection {
            index: expansion.edit(other.2),
            name: second.to_owned(),
            reason: Reason::NameConflict,
            message: message.into(),
        }));
    }
    Ok(())
}
