//! What a migration left that was killed: before the switch it never was, after it it is finished.
//!
//! The next process that opens the repository does this ([`super::clear_up`]).

use std::path::Path;
use std::sync::Arc;

use refdb::error::Message;
use refdb::internals::{
    Entry, Home, bytes_to_path, is_frozen, lock_path, sweep_all, take_over_any,
};
use refdb::layout::HEAD_OF_TABLES;
use refdb::system::FileKind;
use refdb::{Error, ErrorKind, RefFormat, Result};

use super::folder::{self, Folder, Journal};
use super::place::Place;
use super::{Context, finish, place, switch};

/// How far a migration came that did not come to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// It took no locks.
    Nothing,
    /// It came not so far as the switch: it was undone.
    Undone,
    /// It came to the switch: it was finished, with these warnings.
    Finished(Vec<Message>),
}

impl Found {
    /// Returns what there is to be told about it.
    pub(super) fn warnings(self) -> Vec<Message> {
        let (text, mut more) = match self {
            Found::Nothing => return Vec::new(),
            Found::Undone => (
                "what a migration that was interrupted has left was removed",
                Vec::new(),
            ),
            Found::Finished(more) => (
                "a migration that was interrupted after the switch was finished",
                more,
            ),
        };
        more.insert(0, text.into());
        more
    }
}

/// Cleans up. After a failure it can be called again.
pub(super) fn recover(context: &Context, folder: &Folder) -> Result<Found> {
    let system = context.system.as_ref();
    let Some(journal) = folder.journal()? else {
        remove_staged_config(context, folder)?;
        folder.clear()?;
        return Ok(Found::Nothing);
    };
    let places = place::list(system, &context.base)?;
    let path = context.common_dir.join("config");
    let config = context
        .beneath_repository()?
        .read(&path)
        .map_err(|error| Error::io("unable to read", &path, error))?;
    let is_new = switch::check_said(context, &config)? == journal.to;
    check_fits(context, folder, journal, is_new)?;
    let (places, late) = match is_new {
        true => finish::with_refs(context, places, journal.to)?,
        false => (places, Vec::new()),
    };
    // A store that is to stay must be readable before anything of the other one is removed.
    let live = if is_new { journal.to } else { journal.from };
    for place in &places {
        if place.is_common() && live == RefFormat::Files {
            check_head(context, &place.dir)?;
        }
        let store = context.store(&place.dir, live)?;
        let mut refs = store.refs()?;
        while refs.next()?.is_some() {}
    }
    unlock_config(context, &path)?;
    remove_staged_config(context, folder)?;
    let found = if is_new {
        let mut warnings = finish::finish(context, folder, &places, journal, false)?;
        warnings.extend(late);
        finish::remove_all_barriers(context, &places, journal.to)?;
        for place in &places {
            remove_marks(context, &place.dir, journal.from)?;
        }
        unlock_old(context, folder, &places)?;
        folder.put_old_away(context)?;
        Found::Finished(warnings)
    } else {
        switch::take_back(context, folder, &places, journal.to)?;
        for place in &places {
            remove_marks(context, &place.dir, journal.from)?;
        }
        Found::Undone
    };
    folder.clear()?;
    Ok(found)
}

/// Makes sure that the configuration is of the same time as the rest: one that was put back, or copied earlier, speaks of
/// stores that may be empty by now, and the others would be removed.
fn check_fits(context: &Context, folder: &Folder, journal: Journal, is_new: bool) -> Result<()> {
    let is_past = || -> Result<bool> {
        let is_begun = folder::exists(context.system.as_ref(), &folder.old())?;
        Ok(journal.is_swept || is_begun)
    };
    let (is_other, how_far) = match is_new {
        true => (
            is_staged(context, folder, journal.to)?,
            "did not come to its switch",
        ),
        false => (is_past()?, "was past its switch"),
    };
    if !is_other {
        return Ok(());
    }
    let (said, right) = match is_new {
        true => (journal.to, journal.from),
        false => (journal.from, journal.to),
    };
    let text = format!(
        "the refs are left alone: the migration to '{to}' in '{folder}' {how_far}, and '{config}' speaks of '{said}'. \
         Was it put back, or copied at another moment than the rest? Let it speak of '{right}' (with 'git config \
         extensions.refStorage {right}', and core.repositoryFormatVersion 1), and the next command clears up",
        to = journal.to.name(),
        folder = folder.path.display(),
        config = context.common_dir.join("config").display(),
        said = said.name(),
        right = right.name(),
    );
    Err(Error::new(ErrorKind::Corrupt, text))
}

/// Returns whether some of the new stores are not in their places yet, which all are before the switch.
fn is_staged(context: &Context, folder: &Folder, to: RefFormat) -> Result<bool> {
    // Every copy has this one.
    let first = match to {
        RefFormat::Files => "HEAD",
        RefFormat::Reftable => "reftable",
    };
    let items = switch::listed(context, folder)?.unwrap_or_else(|| vec![first.into()]);
    for item in items {
        if folder::exists(context.system.as_ref(), &folder.stage().join(item))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Makes sure that `HEAD` does not say that the refs are tables.
fn check_head(context: &Context, dir: &Path) -> Result<()> {
    let head = dir.join("HEAD");
    let found = context.system.read_at_most(&head, HEAD_OF_TABLES.len() + 1);
    if !found.is_ok_and(|found| found == HEAD_OF_TABLES) {
        return Ok(());
    }
    let what = "it says that the refs are tables, and the configuration says that they are files: one of both was put \
                back, or copied at another moment than the rest";
    Err(Error::corrupt(&head, what))
}

/// Removes the lock of the configuration if it is one of a migration, or another process, that has ended.
fn unlock_config(context: &Context, path: &Path) -> Result<()> {
    // The configuration may be a link, which everybody follows.
    let real = refdb_git::internals::real_path(context.followed.as_ref(), path)
        .map_err(|error| Error::io("unable to read", path, error))?;
    let system = match real == path {
        true => context.beneath_repository()?,
        false => Arc::clone(&context.followed),
    };
    let home = Home::new(&system, &context.common_dir, &context.options);
    let lock = lock_path(&real);
    let taken = take_over_any(&home, &lock);
    taken.map_err(|error| Error::io("unable to remove", &lock, error))?;
    Ok(())
}

/// Removes the new configuration, if it did not come to its place.
fn remove_staged_config(context: &Context, folder: &Folder) -> Result<()> {
    let system = context.beneath_repository()?;
    folder::remove_if_there(system.as_ref(), &switch::staged_config(context, folder))
}

/// Removes the locks of processes that have ended, and the links that kept writers out of a store.
fn remove_marks(context: &Context, dir: &Path, from: RefFormat) -> Result<()> {
    let home = context.home();
    let sweep = |dir: &Path, deep| {
        sweep_all(&home, dir, deep)
            .map_err(|error| Error::io("unable to remove the locks in", dir, error))
    };
    match from {
        RefFormat::Reftable => sweep(&dir.join("reftable"), false),
        RefFormat::Files => {
            sweep(dir, false)?;
            sweep(&dir.join("refs"), true)?;
            remove_barriers_below(context, &dir.join("refs"), true)
        }
    }
}

fn remove_barriers_below(context: &Context, dir: &Path, is_top: bool) -> Result<()> {
    let system = context.system.as_ref();
    for entry in folder::list(system, dir)? {
        let path = dir.join(bytes_to_path(&entry.name));
        match entry.kind {
            FileKind::Directory => remove_barriers_below(context, &path, false)?,
            FileKind::Symlink if is_frozen(system, &path) => {
                folder::remove_if_there(system, &path)?;
                if is_top && matches!(entry.name.as_slice(), b"heads" | b"tags") {
                    context.create_dir(&path)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Removes the locks in the old stores, if these are kept: nobody waits for them there.
pub(super) fn unlock_old(context: &Context, folder: &Folder, places: &[Place]) -> Result<()> {
    let Some(journal) = folder.journal()?.filter(|journal| journal.keep) else {
        return Ok(());
    };
    places.iter().try_for_each(|place| {
        let old = folder.old().join(&place.below);
        remove_marks(context, &old, journal.from)?;
        remove_old_locks(context, &old, false)
    })
}

fn remove_old_locks(context: &Context, dir: &Path, is_in_refs: bool) -> Result<()> {
    let system = context.system.as_ref();
    for entry in folder::list(system, dir)? {
        let path = dir.join(bytes_to_path(&entry.name));
        match entry.kind {
            // No migration locks a reflog: what is there is somebody else's.
            FileKind::Directory if entry.name == b"logs" && !is_in_refs => {}
            FileKind::Directory => {
                remove_old_locks(context, &path, is_in_refs || entry.name == b"refs")?;
            }
            _ if Entry::of_name(&entry.name) != Entry::Ref => {
                folder::remove_if_there(system, &path)?;
            }
            _ => {}
        }
    }
    Ok(())
}
