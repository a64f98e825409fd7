//! Transactions: libgit2 locks one ref after the other, then says of each what becomes of it.
//!
//! The locks of one thread are one transaction of the store: where refs are tables, one lock covers them all.
//! It is committed when the last of them is given back, all of it or nothing.

use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use refdb::{Edit, LockedRefs, LogEntry, RefName, RefNameBuf, Signature, Store};

use crate::backend::{Backend, signature};
use crate::border::{Answer, Failure, name, run, text};
use crate::ffi::{code, git_refdb_backend, git_reference, git_signature};
use crate::logs::entries;
use crate::refs::Value;

/// The locks of one thread.
pub(crate) struct Group {
    held: Option<Held>,
    names: Vec<RefNameBuf>,
    /// How many of them were not given back yet.
    open: usize,
    /// Whether something is to be written.
    edits: bool,
    /// Whether one of the edits was refused: then nothing is written.
    is_refused: bool,
    /// What HEAD becomes. If the ref that it leads to changes as well, its own change comes after that.
    head: Option<(Edit<'static>, Option<Signature>)>,
    /// Reflogs that are to be written whole, once no lock is in the way.
    logs: Vec<(Vec<u8>, Vec<LogEntry>)>,
}

/// Locked refs, and the store that they are of.
struct Held {
    // Before the store, which it borrows.
    locked: LockedRefs<'static>,
    _store: Arc<Store>,
}

// SAFETY: what is locked is files and memory, of no thread in particular, and a mutex is around this.
unsafe impl Send for Held {}

impl Held {
    fn lock(store: Arc<Store>, name: RefName<'_>) -> refdb::Result<Held> {
        // SAFETY: the store stays where it is for as long as it has an owner, and this one outlives what
        // borrows it, by the order of the members.
        let borrowed: &'static Store = unsafe { &*Arc::as_ptr(&store) };
        let locked = borrowed.transaction().lock([name])?;
        Ok(Held {
            locked,
            _store: store,
        })
    }
}

/// What libgit2 carries from `lock` to `unlock`.
struct Payload {
    group: Arc<Mutex<Group>>,
    name: RefNameBuf,
}

fn guard(group: &Mutex<Group>) -> MutexGuard<'_, Group> {
    group.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Backend {
    /// Returns the locks of this thread, if it has any.
    fn group(&self) -> Option<Arc<Mutex<Group>>> {
        let groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        groups.get(&thread::current().id()).cloned()
    }
}

/// Keeps a reflog to be written later, if this thread has its ref locked.
pub(crate) fn later(backend: &Backend, name: &[u8], entries: &[LogEntry]) -> bool {
    let Some(group) = backend.group() else {
        return false;
    };
    let mut group = guard(&group);
    let is_locked = group.names.iter().any(|locked| locked.as_bytes() == name);
    if is_locked {
        group.logs.push((name.to_vec(), entries.to_vec()));
    }
    is_locked
}

pub(crate) unsafe extern "C" fn lock(
    payload: *mut *mut c_void,
    backend: *mut git_refdb_backend,
    ref_name: *const c_char,
) -> c_int {
    // SAFETY: libgit2 gives back its backend.
    let backend = unsafe { Backend::of(backend) };
    run(backend.lib, || {
        // SAFETY: libgit2 gives a text and a place.
        let name = unsafe {
            *payload = std::ptr::null_mut();
            RefName::new(name(ref_name)?)?
        };
        let group = match backend.group() {
            Some(group) => {
                let mut held = guard(&group);
                if held.names.iter().any(|locked| locked.as_name() == name) {
                    let text = format!("the reference '{name}' is locked already");
                    return Err(Failure::Told(code::LOCKED, text));
                }
                if let Some(held) = &mut held.held {
                    held.locked.lock([name])?;
                }
                held.names.push(name.to_owned());
                held.open += 1;
                drop(held);
                group
            }
            None => {
                let held = backend.with_settings(|_| Held::lock(backend.store(), name))?;
                let group = Arc::new(Mutex::new(Group {
                    held: Some(held),
                    names: vec![name.to_owned()],
                    open: 1,
                    edits: false,
                    is_refused: false,
                    head: None,
                    logs: Vec::new(),
                }));
                let mut groups = backend
                    .groups
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                groups.insert(thread::current().id(), Arc::clone(&group));
                group
            }
        };
        let name = name.to_owned();
        // SAFETY: as above.
        unsafe { *payload = Box::into_raw(Box::new(Payload { group, name })).cast() };
        Ok(code::OK)
    })
}

pub(crate) unsafe extern "C" fn unlock(
    backend: *mut git_refdb_backend,
    payload: *mut c_void,
    success: c_int,
    update_reflog: c_int,
    reference: *const git_reference,
    who: *const git_signature,
    message: *const c_char,
) -> c_int {
    // SAFETY: libgit2 gives back its backend.
    let backend = unsafe { Backend::of(backend) };
    run(backend.lib, || {
        if payload.is_null() {
            return Err(Failure::Told(code::ERROR, "a lock is null".to_owned()));
        }
        // SAFETY: libgit2 gives back what it got, once.
        let payload = unsafe { Box::from_raw(payload.cast::<Payload>()) };
        let mut group = guard(&payload.group);
        let added = match success {
            0 => Ok(code::OK),
            _ => {
                // SAFETY: libgit2 gives a reference, and the others or null.
                let (value, who, message) = unsafe {
                    let value = match success {
                        2 => None,
                        _ => Some(Value::of(backend.lib, reference)?.1),
                    };
                    let message = text(message).unwrap_or_default();
                    (value, signature(who), message)
                };
                let (store, name) = (backend.store(), payload.name.as_bytes());
                let edit = match &value {
                    Some(value) => value.edit(&store, name, message),
                    None => Edit::delete(payload.name.as_name())
                        .no_deref()
                        .message(message),
                };
                let edit = match update_reflog {
                    0 => edit.skip_log(),
                    _ => edit,
                };
                group.add(edit, who)
            }
        };
        group.is_refused |= added.is_err();
        group.open -= 1;
        if group.open > 0 {
            return added;
        }
        let done = group.end(backend, added);
        drop(group);
        let mut groups = backend
            .groups
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        groups.retain(|_, group| !Arc::ptr_eq(group, &payload.group));
        done
    })
}

impl Group {
    fn add(&mut self, edit: Edit<'_>, who: Option<Signature>) -> Answer {
        if edit.name() == "HEAD" {
            self.head = Some((edit.into_owned(), who));
            return Ok(code::OK);
        }
        if let Some(held) = &mut self.held {
            if let Some(who) = who {
                held.locked.committer(who)?;
            }
            held.locked.add(edit)?;
            self.edits = true;
        }
        Ok(code::OK)
    }

    /// Writes what is to be written, unless an edit was refused, and gives all locks back.
    fn end(&mut self, backend: &Backend, added: Answer) -> Answer {
        let held = self.held.take();
        if self.is_refused {
            return added;
        }
        let store = backend.store();
        let before = self.logs.iter().map(|(name, _)| entries(&store, name));
        let before: Vec<_> = before.collect::<refdb::Result<_>>()?;
        match held {
            Some(Held { locked, _store }) if self.edits => {
                let _ = locked.commit()?;
            }
            Some(Held { mut locked, _store }) if self.head.is_some() => {
                if let Some((edit, who)) = self.head.take() {
                    if let Some(who) = who {
                        locked.committer(who)?;
                    }
                    locked.add(edit)?;
                }
                let _ = locked.commit()?;
            }
            held => drop(held),
        }
        if let Some((edit, who)) = self.head.take() {
            let mut transaction = store.transaction();
            if let Some(who) = who {
                transaction = transaction.committer(who)?;
            }
            transaction.add(edit)?;
            let _ = transaction.commit()?;
        }
        for ((name, mut whole), before) in self.logs.drain(..).zip(before) {
            // What the commit itself has added comes after what was given.
            let known = before.map_or(0, |before| before.len());
            let now = entries(&store, &name)?.unwrap_or_default();
            whole.extend(now.into_iter().skip(known));
            let _ = store.replace_log(RefName::new(&name)?, &whole)?;
        }
        Ok(code::OK)
    }
}
