//! Locks, unfinished files and tables that no list names: what a process left that died, and what one
//! is at work on right now.
//!
//! Invariant: what may be a living process's is taken away only if the caller says that there is none.

use std::path::Path;

use refdb::internals::{
    is_barrier, is_left, is_table_name, is_unfinished, lock_path, target_beside,
};
use refdb::system::System;

use super::{Options, Plan, Step, WayOut};
use crate::verify::{Damage, Repair};

impl Plan<'_> {
    /// Takes away what does not belong there, and notes what is left to a person.
    pub(super) fn leftovers(&mut self, found: &[Damage], options: Options) {
        for damage in found {
            let file = &damage.file;
            match damage.repair {
                Repair::ByHand => {
                    let advice = damage.advice.clone();
                    self.note_with(file, &damage.what, advice.map(WayOut::Advice));
                }
                Repair::RemoveLeftover => self.leftover(file, options),
                Repair::RemoveFile => self.steps.push(Step::Remove(file.clone())),
                _ => {}
            }
        }
    }

    /// Takes a file away that may be that of a writer, if there is none.
    pub(super) fn leftover(&mut self, file: &Path, options: Options) {
        let step = match options.remove_locks {
            true => Some(Step::Remove(file.to_owned())),
            false => of_the_dead(self.repository.system().as_ref(), file),
        };
        match step {
            // A lock, and what was written under it, go together.
            Some(step) if !self.leftovers.insert(step.path().to_owned()) => {}
            Some(step) => self.steps.push(step),
            None => {
                let what = "left, since a process may be at work";
                self.note_with(file, what, Some(WayOut::RemoveLocks));
            }
        }
    }
}

/// Returns how to take away a leftover that is certainly nobody's.
fn of_the_dead(system: &dyn System, file: &Path) -> Option<Step> {
    let name = file.file_name()?.to_str()?;
    if is_table_name(name) || is_unfinished(name) {
        // Whoever writes a table holds the lock of the list, or claims tables: that is looked at
        // again when the table goes.
        let lock = lock_path(&file.with_file_name("tables.list"));
        return is_left_or_missing(system, &lock).then(|| Step::DropTable(file.to_owned()));
    }
    let beside = target_beside(file);
    let lock = beside.as_deref().map_or_else(|| file.to_owned(), lock_path);
    if is_barrier(system, file) {
        return is_left_or_missing(system, &lock_path(file))
            .then(|| Step::TakeOver(file.to_owned()));
    }
    if is_left(system, &lock) {
        return Some(Step::TakeOver(lock));
    }
    let is_alone = beside.is_some() && is_missing(system, &lock);
    is_alone.then(|| Step::TakeOver(file.to_owned()))
}

fn is_left_or_missing(system: &dyn System, lock: &Path) -> bool {
    is_missing(system, lock) || is_left(system, lock)
}

fn is_missing(system: &dyn System, path: &Path) -> bool {
    let error = system.lstat(path).err();
    error.is_some_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}
