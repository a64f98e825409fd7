//! The callbacks for reflogs.

use std::collections::HashSet;
use std::ffi::{c_char, c_int};
use std::sync::{MutexGuard, PoisonError};

use refdb::{LogEntry, LogOrder, ObjectId, RefFormat, RefName, Store};

use crate::abi::Libgit2;
use crate::backend::{Backend, signature};
use crate::border::{Failure, name, path, run, text};
use crate::ffi::{code, git_refdb_backend, git_reflog};
use crate::locks::later;
use crate::scratch::Scratch;

pub(crate) unsafe extern "C" fn has_log(
    backend: *mut git_refdb_backend,
    ref_name: *const c_char,
) -> c_int {
    // SAFETY: libgit2 gives back its backend.
    let backend = unsafe { Backend::of(backend) };
    run(backend.lib, || {
        // SAFETY: libgit2 gives a text.
        let name = unsafe { name(ref_name)? };
        let Ok(name) = RefName::lax(name) else {
            return Ok(0);
        };
        Ok(c_int::from(backend.with(|store| store.log_exists(name))?))
    })
}

pub(crate) unsafe extern "C" fn ensure_log(
    backend: *mut git_refdb_backend,
    ref_name: *const c_char,
) -> c_int {
    // SAFETY: libgit2 gives back its backend.
    let backend = unsafe { Backend::of(backend) };
    run(backend.lib, || {
        // SAFETY: libgit2 gives a text.
        let name = RefName::new(unsafe { name(ref_name)? })?;
        backend.with(|store| match store.log_exists(name)? {
            true => Ok(()),
            false => store.create_log(name).map(drop),
        })?;
        Ok(code::OK)
    })
}

/// Returns the entries of a reflog, the oldest first.
pub(crate) fn entries(store: &Store, name: &[u8]) -> refdb::Result<Option<Vec<LogEntry>>> {
    match RefName::lax(name) {
        Ok(name) => store.log(name, LogOrder::OldestFirst),
        Err(_) => Ok(None),
    }
}

/// Gives out a reflog: one without entries if there is none, as libgit2 does.
pub(crate) unsafe extern "C" fn reflog_read(
    out: *mut *mut git_reflog,
    backend: *mut git_refdb_backend,
    ref_name: *const c_char,
) -> c_int {
    // SAFETY: libgit2 gives back its backend.
    let backend = unsafe { Backend::of(backend) };
    run(backend.lib, || {
        // SAFETY: libgit2 gives a text and a place.
        let name = unsafe {
            *out = std::ptr::null_mut();
            name(ref_name)?
        };
        RefName::lax(name)?;
        let found = backend.with(|store| entries(store, name))?;
        if found.is_none() {
            unlogged(backend).insert(name.to_vec());
        }
        let format = backend.store().options().object_format;
        let mut place = backend
            .scratch
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let scratch = Scratch::of(&mut place, backend.lib, format)?;
        let log = scratch.read(name, &found.unwrap_or_default())?;
        // SAFETY: as above.
        unsafe { *out = log };
        Ok(code::OK)
    })
}

fn unlogged(backend: &Backend) -> MutexGuard<'_, HashSet<Vec<u8>>> {
    backend
        .unlogged
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

pub(crate) unsafe extern "C" fn reflog_write(
    backend: *mut git_refdb_backend,
    log: *mut git_reflog,
) -> c_int {
    // SAFETY: libgit2 gives back its backend.
    let backend = unsafe { Backend::of(backend) };
    run(backend.lib, || {
        let format = backend.store().options().object_format;
        // SAFETY: libgit2 gives a reflog.
        let (name, entries) = unsafe { written(backend.lib, log, ObjectId::null(format))? };
        RefName::new(&name)?;
        // One that was renamed or deleted since it was read is not to come back.
        let is_there = backend.with(|store| store.log_exists(RefName::new(&name)?))?;
        if !is_there && !unlogged(backend).remove(&name) {
            let name = String::from_utf8_lossy(&name);
            let text = format!("there is no reflog of '{name}' any more");
            return Err(Failure::Told(code::ERROR, text));
        }
        if later(backend, &name, &entries) {
            return Ok(code::OK);
        }
        let _ = backend.with(|store| store.replace_log(RefName::new(&name)?, &entries))?;
        Ok(code::OK)
    })
}

/// Returns of which ref a reflog of libgit2's is, and its entries, the oldest first.
///
/// # Safety
/// It is one.
unsafe fn written(
    lib: &Libgit2,
    log: *mut git_reflog,
    null: ObjectId,
) -> Result<(Vec<u8>, Vec<LogEntry>), Failure> {
    let functions = &lib.functions;
    // SAFETY: the caller says so. Of a reflog, the second word is the name of its ref: no function tells it.
    unsafe {
        let name = *log.cast::<*const c_char>().add(1);
        let name = text(name).unwrap_or_default().to_vec();
        let count = (functions.git_reflog_entrycount)(log);
        let mut entries = Vec::with_capacity(count);
        for at in (0..count).rev() {
            let entry = (functions.git_reflog_entry_byindex)(log, at);
            let who = signature((functions.git_reflog_entry_committer)(entry));
            let oid = |oid| lib.oid(oid).unwrap_or(null);
            entries.push(LogEntry {
                old: oid((functions.git_reflog_entry_id_old)(entry)),
                new: oid((functions.git_reflog_entry_id_new)(entry)),
                who: who.unwrap_or_default(),
                message: text((functions.git_reflog_entry_message)(entry))
                    .unwrap_or_default()
                    .into(),
            });
        }
        Ok((name, entries))
    }
}

impl Backend {
    /// Returns whether the place of a new ref's reflog is taken by those of refs below it, which may be gone.
    pub(crate) fn has_logs_below(&self, name: &[u8]) -> refdb::Result<bool> {
        let store = self.store();
        if store.format() != RefFormat::Files {
            return Ok(false);
        }
        let place = self.logs_dir().join(path(name));
        if !place.symlink_metadata().is_ok_and(|place| place.is_dir()) {
            return Ok(false);
        }
        let names = store.log_names()?;
        Ok(names.iter().any(|log| is_below(log.as_bytes(), name)))
    }
}

fn is_below(name: &[u8], above: &[u8]) -> bool {
    name.strip_prefix(above)
        .is_some_and(|rest| rest.starts_with(b"/"))
}

pub(crate) unsafe extern "C" fn reflog_rename(
    backend: *mut git_refdb_backend,
    old_name: *const c_char,
    new_name: *const c_char,
) -> c_int {
    // SAFETY: libgit2 gives back its backend.
    let backend = unsafe { Backend::of(backend) };
    run(backend.lib, || {
        // SAFETY: libgit2 gives texts.
        let (old, new) = unsafe { (name(old_name)?, name(new_name)?) };
        let (from, to) = (RefName::lax(old)?, RefName::new(new)?);
        let Some(entries) = backend.with(|store| entries(store, old))? else {
            let old = String::from_utf8_lossy(old);
            let text = format!("there is no reflog of '{old}'");
            return Err(Failure::Told(code::NOT_FOUND, text));
        };
        let _ = backend.with(|store| {
            // A reflog may have to make room for one below it.
            if is_below(new, old) || is_below(old, new) {
                let _ = store.delete_logs([from])?;
                return store.replace_log(to, &entries);
            }
            let _ = store.replace_log(to, &entries)?;
            store.delete_logs([from])
        })?;
        Ok(code::OK)
    })
}

pub(crate) unsafe extern "C" fn reflog_delete(
    backend: *mut git_refdb_backend,
    ref_name: *const c_char,
) -> c_int {
    // SAFETY: libgit2 gives back its backend.
    let backend = unsafe { Backend::of(backend) };
    run(backend.lib, || {
        // SAFETY: libgit2 gives a text.
        let name = RefName::lax(unsafe { name(ref_name)? })?;
        let _ = backend.with(|store| store.delete_logs([name]))?;
        Ok(code::OK)
    })
}
