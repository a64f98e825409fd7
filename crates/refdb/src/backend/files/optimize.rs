//! Packing: loose refs are copied into packed-refs, and then removed.
//!
//! Invariants:
//! 1. Only shared, direct, well-formed refs whose object exists are packed.
//! 2. A loose ref is removed only after the packed-refs that holds its value is in place, under
//!    the ref's lock, and only if it still has the packed value.

use std::io;
use std::path::Path;
use std::sync::Arc;

use refdb_names::internals::name_from_disk;
use refdb_names::name::{FormatOptions, is_per_worktree, is_well_formed};
use refdb_names::{ObjectId, Target};

use super::Files;
use super::directories::EmptyDirs;
use super::loose::Loose;
use super::new_names::Beside;
use super::overlay::{self, LooseRef};
use super::rewrite::{PackedEdit, PackedValue};
use crate::backend::Optimize;
use crate::commit::{Holder, LockFile, is_new_value, refused, remove_if_there, sweep, take_over};
use crate::error::{Error, ErrorKind, OrIo, Result};
use crate::hook::{self, Hook, Step};
use crate::objects::{Objects, Peeled};
use crate::options::LockTimeout;
use crate::system::{if_there, is_absent, joined};

/// Packs the loose refs that the options include.
///
/// # Errors
/// `Locked` when packed-refs is being written, `Corrupt` or `Io` for the files. What was packed
/// stays packed when removing loose refs fails.
pub(super) fn optimize(
    files: &Arc<Files>,
    options: &Optimize<'_>,
    objects: &dyn Objects,
) -> Result<()> {
    if options.auto && !is_worth_it(files, options)? {
        return Ok(());
    }
    sweep_locks(files)?;
    let holder = files.holder();
    let mut lock = files.lock_packed(&holder)?;
    sweep_values(files, &lock.lock().target())?;
    if files.options.quarantined {
        return Err(Error::new(
            ErrorKind::Misuse,
            "unable to write new packed-refs: ref updates forbidden inside quarantine environment",
        ));
    }
    // Listed under the lock: nobody else packs or removes meanwhile.
    let packed = to_pack(files, options, objects)?;
    let hook = hook::present(files.options.hook.as_deref())?;
    let null = ObjectId::null(files.options.object_format);
    let mut lines = Vec::new();
    if hook.is_some() {
        for (name, value) in &packed {
            hook::push_line(&mut lines, null, value.oid, name_from_disk(name));
        }
    }
    let ask = |step| hook.map_or(Ok(()), |hook| hook::ask_or_abort(hook, step, &lines));
    ask(Step::Preparing)?;
    let old = files.packed.snapshot()?;
    let edits: Vec<PackedEdit<'_>> = packed
        .iter()
        .map(|(name, value)| PackedEdit {
            name,
            value: Some(*value),
        })
        .collect();
    lock.refuse_another()
        .map_err(|error| error.context("unable to write new packed-refs"))?;
    // Where there is nothing to pack Git makes a file that says so.
    if !edits.is_empty() || old.len() == 0 || !old.is_tidy() {
        let peel = |oid| peel(objects, oid);
        lock.write(&old, &edits, Some(&peel), &files.options)?;
        ask(Step::Prepared)?;
        // No loose ref may go before this is durable.
        lock.publish(&files.packed, files.options.fsync)?;
    } else {
        ask(Step::Prepared)?;
    }
    lock.release()?;
    if let Some(hook) = hook {
        hook::tell(hook, Step::Committed, &lines)?;
    }
    if options.prune {
        let waiter = holder.looking(Beside::refs(files));
        prune(files, &waiter, &packed, hook, options.warn)?;
    }
    Ok(())
}

/// Removes the locks of processes that have ended, in the directories of the repository and of the
/// worktree, where `HEAD` is.
fn sweep_locks(files: &Files) -> Result<()> {
    let common = files.layout.common_dir();
    for dir in [common, files.layout.worktree_dir()] {
        sweep(&files.home, dir, false).or_io("unable to remove locks in", dir)?;
    }
    Ok(())
}

/// Removes what a loss of power left of new content of packed-refs, whose lock the caller has, where a link leads
/// to it: nobody looks there for locks.
fn sweep_values(files: &Files, packed: &Path) -> Result<()> {
    let (Some(dir), Some(target)) = (packed.parent(), packed.file_name()) else {
        return Ok(());
    };
    if dir == files.layout.common_dir() {
        return Ok(());
    }
    let is_value = |name: &str| {
        target
            .to_str()
            .is_some_and(|target| is_new_value(name, target))
    };
    let sweep = || -> io::Result<()> {
        for entry in files.system.read_dir(dir)? {
            if std::str::from_utf8(&entry.name).is_ok_and(is_value) {
                remove_if_there(files.system.as_ref(), &joined(dir, &entry.name))?;
            }
        }
        Ok(())
    };
    sweep().or_io("unable to remove what was left in", dir)
}

fn peel(objects: &dyn Objects, oid: ObjectId) -> Result<Option<ObjectId>> {
    Ok(match objects.peel(oid)? {
        Peeled::To(oid) => Some(oid),
        Peeled::Itself | Peeled::Nowhere | Peeled::Missing => None,
    })
}

/// Returns the object id of a loose ref that may be packed.
fn packable(found: &LooseRef, options: &Optimize<'_>) -> Option<ObjectId> {
    let Some(Target::Direct(oid)) = found.target else {
        return None;
    };
    let name = &found.name;
    let shared = !is_per_worktree(name) && is_well_formed(name, FormatOptions::FULL);
    let included = shared && !oid.is_null() && (options.include)(name_from_disk(name));
    included.then_some(oid)
}

/// Returns whether there are so many loose refs that packing them pays: five for each doubling of
/// packed-refs, counted in refs of 100 bytes, and 16 at least.
fn is_worth_it(files: &Files, options: &Optimize<'_>) -> Result<bool> {
    let refs = overlay::list(files, b"refs/")?;
    let count = refs
        .iter()
        .filter(|found| packable(found, options).is_some())
        .count();
    let refs_guessed = files.packed.snapshot()?.len() / 100;
    let doublings = refs_guessed.checked_ilog2().unwrap_or(0);
    Ok(count >= usize::try_from(doublings * 5).unwrap_or(usize::MAX).max(16))
}

/// Returns the refs to pack with their values, in the order of their names.
fn to_pack(
    files: &Files,
    options: &Optimize<'_>,
    objects: &dyn Objects,
) -> Result<Vec<(Vec<u8>, PackedValue)>> {
    let mut packed = Vec::new();
    let mut locks = Vec::new();
    let loose = overlay::list_with_locks(files, b"refs/", &mut locks)?;
    for path in locks {
        take_over(&files.home, &path).or_io("unable to remove", &path)?;
    }
    for found in loose {
        let Some(oid) = packable(&found, options) else {
            continue;
        };
        let peeled = match objects.peel(oid)? {
            Peeled::Missing => {
                let name = name_from_disk(&found.name);
                let message = format!("{name} does not point to a valid object!");
                (options.warn)(Error::new(ErrorKind::BrokenRef, message));
                continue;
            }
            Peeled::To(oid) => Some(oid),
            Peeled::Itself | Peeled::Nowhere => None,
        };
        packed.push((found.name, PackedValue { oid, peeled }));
    }
    Ok(packed)
}

/// Removes the loose refs that still have the value that was packed, and still is. For the hook each of them is a
/// transaction of its own, the last one first.
fn prune(
    files: &Files,
    holder: &Holder,
    packed: &[(Vec<u8>, PackedValue)],
    hook: Option<&dyn Hook>,
    warn: &dyn Fn(Error),
) -> Result<()> {
    let system = files.system.as_ref();
    let null = ObjectId::null(files.options.object_format);
    let mut empty_dirs = EmptyDirs::default();
    let mut first_error = None;
    let mut locks = Locks {
        files,
        holder,
        last: None,
        free_above: Vec::new(),
        timeout: files.lock_options().timeout,
    };
    let mut line = Vec::new();
    for (name, value) in packed.iter().rev() {
        if let Some(hook) = hook {
            line.clear();
            hook::push_line(&mut line, value.oid, null, name_from_disk(name));
            hook::ask_or_abort(hook, Step::Preparing, &line)?;
        }
        let ask = |hook| hook::ask_or_abort(hook, Step::Prepared, &line);
        let may_go = || hook.map_or(Ok(()), ask);
        let removed = match locks.prune_one(name, value.oid, &may_go) {
            Ok(removed) => removed,
            Err(error) if error.kind() == ErrorKind::Hook => return Err(error),
            // Somebody is writing it, or nobody may, or the disk is full: it stays loose, and has that value there too.
            Err(error) if matches!(error.kind(), ErrorKind::Locked | ErrorKind::Io) => {
                warn(error);
                continue;
            }
            Err(error) => {
                first_error = first_error.or(Some(error));
                continue;
            }
        };
        empty_dirs.add_parent(files.layout.common_dir(), name);
        if let (Some(hook), true) = (hook, removed) {
            if let Some(lock) = locks.last.take() {
                release(lock)?;
            }
            hook::tell(hook, Step::Committed, &line)?;
        }
    }
    if let Some(lock) = locks.last.take() {
        first_error = first_error.or(release(lock).err());
    }
    empty_dirs.remove(system);
    first_error.map_or(Ok(()), Err)
}

/// Takes one lock after the other, and holds each until the next one is a link to it, or has to be
/// waited for: whoever holds that one may be waiting for this one.
struct Locks<'a> {
    files: &'a Files,
    holder: &'a Holder,
    last: Option<LockFile>,
    // Names above which nobody had locked since packed-refs is in place: whoever locks one later finds
    // there what is below it.
    free_above: Vec<Vec<u8>>,
    // How long the next one is waited for: not at all after one that was waited for in vain.
    timeout: LockTimeout,
}

impl Locks<'_> {
    /// Returns whether the loose ref was there, with that value, and is gone.
    fn prune_one(
        &mut self,
        name: &[u8],
        oid: ObjectId,
        may_go: &dyn Fn() -> Result<()>,
    ) -> Result<bool> {
        let ref_name = name_from_disk(name);
        let (_, path) = self.files.path(ref_name)?;
        let system = self.files.system.as_ref();
        match self.acquire(&path) {
            // The directory went, and the ref with it; another ref may have the name of the directory.
            Err(error) if is_absent(&error) => return Ok(false),
            locked => locked.map_err(|error| {
                refused(system, &path, error).context(format_args!("cannot lock ref '{ref_name}'"))
            })?,
        }
        let found = if_there(self.files.loose(&path)).or_io("unable to read", &path)?;
        if found != Some(Loose::Found(Target::Direct(oid))) || !self.is_packed(name, oid)? {
            return Ok(false);
        }
        if !self.is_free_above(name)? {
            // Somebody is about to make a ref above: this one stays in his way.
            return Ok(false);
        }
        may_go()?;
        // Where somebody took the lock away, another value may have been written since.
        self.last.as_ref().map_or(Ok(()), LockFile::check)?;
        system.remove_file(&path).or_io("unable to remove", &path)?;
        Ok(true)
    }

    /// Returns whether packed-refs still has the value of a ref whose lock is held. Since it was packed, the
    /// ref may have gone, or got another value there, and come back as a file with the old one.
    fn is_packed(&self, name: &[u8], oid: ObjectId) -> Result<bool> {
        let packed = self.files.packed.snapshot()?.find_ref(name)?;
        Ok(packed.is_some_and(|packed| packed.target == Target::Direct(oid)))
    }

    /// Returns whether nobody is about to make a ref above `name`, who may have looked before that one
    /// was made. The directory of the first name below `refs/` never goes.
    fn is_free_above(&mut self, name: &[u8]) -> Result<bool> {
        let slashes = name.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let above: Vec<&[u8]> = slashes.skip(2).map(|(slash, _)| &name[..slash]).collect();
        self.free_above
            .retain(|free| above.contains(&free.as_slice()));
        for name in above {
            if self.free_above.iter().any(|free| free == name) {
                continue;
            }
            if self.files.is_locked(name_from_disk(name))? {
                return Ok(false);
            }
            self.free_above.push(name.to_vec());
        }
        Ok(true)
    }

    fn acquire(&mut self, path: &Path) -> io::Result<()> {
        let options = self.files.lock_options();
        let at_once = options.within(LockTimeout::from_millis(0));
        let link = |last| LockFile::acquire_linked(self.holder, path, at_once, last).ok();
        let linked = self.last.as_ref().and_then(link);
        if let Some(last) = self.last.take() {
            last.release()?;
        }
        self.last = Some(match linked {
            Some(lock) => lock,
            None => {
                let lock = LockFile::acquire(self.holder, path, options.within(self.timeout));
                if matches!(&lock, Err(error) if error.kind() == io::ErrorKind::AlreadyExists) {
                    self.timeout = at_once.timeout;
                }
                lock?
            }
        });
        Ok(())
    }
}

fn release(lock: LockFile) -> Result<()> {
    let path = lock.path().to_owned();
    lock.release().or_io("unable to unlock", &path)
}
