//! Looking whether the steps of a change can be taken, before a journal promises them.
//!
//! A journal that nobody can finish keeps all writers out. So what would fail however often it is tried is
//! found before: a reflog that this user may not write, or that would become longer than he may make a file, a ref
//! that only somebody else may replace, a file that nobody may change. What comes to be in the way after the look
//! is told when the step is taken.

use super::place::{Place, Roots};
use super::step::{Step, unable_to_append, unable_to_put};
use crate::error::{OrIo, Result};
use crate::system::MayWrite;

/// Makes sure that a step can be taken, as far as that can be seen. Whether entries of a reflog can be
/// written is seen where its length is looked at.
///
/// # Errors
/// `Io`, as of the step itself.
pub(super) fn check(may: &mut MayWrite, step: &Step, roots: &Roots) -> Result<()> {
    let place = step.place();
    let system = roots.system();
    let replaced = match step {
        Step::Append { len, lines, .. } => {
            let end = len.saturating_add(lines.len() as u64);
            let allowed = may.reach(system, end);
            return allowed.map_err(|error| unable_to_append(place, &roots.path(place), error));
        }
        Step::Move { from, .. } => from,
        Step::Put { .. } | Step::Remove { .. } => place,
    };
    let path = roots.path(replaced);
    // The directory of a ref has just got a lock.
    let checked = match replaced {
        Place::Log(_) => may.make(system, &path),
        _ => Ok(()),
    };
    let checked = checked.and_then(|()| may.replace(system, &path));
    match step {
        Step::Put { .. } => checked.map_err(|error| unable_to_put(place, &path, error)),
        Step::Move { .. } => {
            let to = roots.path(place);
            checked
                .and_then(|()| may.make(system, &to))
                .or_io("unable to move the reflog to", &to)
        }
        _ => checked.or_io("unable to remove", &path),
    }
}
