//! The callbacks for single refs, and for all at once.

use std::ffi::{CString, c_char, c_int};

use refdb::objects::ObjectKind;
use refdb::{
    Edit, Error, ErrorKind, Expected, ObjectFormat, ObjectId, Optimize, Reason, Ref, RefFormat,
    RefName, Renaming, Store, Target, TargetRef,
};

use crate::abi::Libgit2;
use crate::backend::{Backend, signature};
use crate::border::{Answer, Failure, name, not_found, run, text};
use crate::ffi::{SYMBOLIC, code, git_oid, git_refdb_backend, git_reference, git_signature};

/// What a ref is, or is to be.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Direct(ObjectId),
    Symbolic(&'a [u8]),
}

impl<'a> Value<'a> {
    /// Reads what a reference of libgit2's says.
    ///
    /// # Safety
    /// It is one, or null.
    pub(crate) unsafe fn of(
        lib: &Libgit2,
        reference: *const git_reference,
    ) -> Result<(&'a [u8], Value<'a>), Failure> {
        let functions = &lib.functions;
        if reference.is_null() {
            return Err(Failure::Told(code::ERROR, "a reference is null".to_owned()));
        }
        // SAFETY: the caller says so.
        unsafe {
            let name = name((functions.git_reference_name)(reference))?;
            let symbolic = (functions.git_reference_type)(reference) == SYMBOLIC;
            let value = match symbolic {
                true => {
                    let target = (functions.git_reference_symbolic_target)(reference);
                    text(target).map(Value::Symbolic)
                }
                false => lib
                    .oid((functions.git_reference_target)(reference))
                    .map(Value::Direct),
            };
            let text = || Failure::Told(code::ERROR, "a reference has no value".to_owned());
            Ok((name, value.ok_or_else(text)?))
        }
    }

    fn is(&self, target: &Target) -> bool {
        match (self, target) {
            (Value::Direct(oid), Target::Direct(found)) => oid == found,
            (Value::Symbolic(name), Target::Symbolic(found)) => *name == found.as_bytes(),
            _ => false,
        }
    }

    /// Returns the edit that gives a ref this value, as libgit2 means it: a symref is not followed, and the
    /// host has looked for the object if it wants to.
    pub(crate) fn edit<'e>(&'e self, store: &Store, name: &'e [u8], message: &'e [u8]) -> Edit<'e> {
        let peels = self.is_to_be_peeled(store, name);
        let name: &bstr::BStr = name.into();
        let edit = match self {
            Value::Direct(oid) => Edit::update(name, *oid),
            Value::Symbolic(target) => {
                let target: &bstr::BStr = (*target).into();
                Edit::symbolic(name, target)
            }
        };
        let edit = edit.no_deref().spaced_message(message);
        let edit = match self.leads_nowhere(store) {
            true => edit.skip_log(),
            false => edit,
        };
        match peels {
            true => edit,
            false => edit.skip_object_check(),
        }
    }

    /// Returns whether this is a name that leads to no object: no reflog says then that a ref was led there.
    fn leads_nowhere(&self, store: &Store) -> bool {
        match self {
            Value::Symbolic(target) => {
                RefName::lax(target).is_ok_and(|target| matches!(store.resolve(target), Ok(None)))
            }
            Value::Direct(_) => false,
        }
    }

    /// Returns whether what the object peels to is to be stored: that is found out when it is checked. A
    /// branch that names a tag would be refused then.
    fn is_to_be_peeled(&self, store: &Store, name: &[u8]) -> bool {
        match self {
            Value::Direct(oid) if store.format() == RefFormat::Reftable => {
                let is_tag = matches!(store.objects().kind(*oid), Ok(Some(ObjectKind::Tag)));
                is_tag && !name.starts_with(b"refs/heads/")
            }
            _ => false,
        }
    }
}

/// Makes a reference of libgit2's.
pub(crate) fn give_out(
    lib: &Libgit2,
    name: RefName<'_>,
    target: TargetRef<'_>,
    peeled: Option<&ObjectId>,
) -> Result<*mut git_reference, Failure> {
    let functions = &lib.functions;
    let made = terminated(name.as_bytes(), |name| match target {
        TargetRef::Symbolic(target) => terminated(target.as_bytes(), |target| {
            // SAFETY: both end with a null byte, and are copied.
            unsafe { (functions.git_reference__alloc_symbolic)(name, target) }
        }),
        TargetRef::Direct(oid) => {
            let (raw, peeled) = (lib.raw(&oid), peeled.map(|peeled| lib.raw(peeled)));
            let peeled = peeled
                .as_ref()
                .map_or(std::ptr::null(), |peeled| peeled.as_ptr());
            // SAFETY: as above, and the ids are of this libgit2.
            Ok(unsafe { (functions.git_reference__alloc)(name, raw.as_ptr(), peeled) })
        }
    })??;
    match made.is_null() {
        true => Err(Failure::Passed(code::ERROR)),
        false => Ok(made),
    }
}

/// Calls `with` with a text that a null byte ends. Most are so short that no memory is asked for.
fn terminated<T>(text: &[u8], with: impl FnOnce(*const c_char) -> T) -> Result<T, Failure> {
    let mut short = [0; 128];
    match short.get_mut(..text.len()) {
        Some(place) if text.len() < 128 && !text.contains(&0) => {
            place.copy_from_slice(text);
            Ok(with(short.as_ptr().cast()))
        }
        _ => {
            let long = CString::new(text);
            let text = || Failure::Told(code::ERROR, "a name has a null byte".to_owned());
            Ok(with(long.map_err(|_| text())?.as_ptr()))
        }
    }
}

/// As [`give_out`], of a ref that was read.
fn give_out_read(lib: &Libgit2, found: &Ref) -> Result<*mut git_reference, Failure> {
    let (name, target) = (found.name.as_name(), found.target.as_ref());
    give_out(lib, name, target, found.peeled.as_ref())
}

/// Reads a ref. There can be none with a name that no ref can have.
fn read(store: &Store, name: &[u8]) -> refdb::Result<Option<Ref>> {
    match RefName::lax(name) {
        Ok(name) => store.read(name),
        Err(_) => Ok(None),
    }
}

/// Reads a ref that may be broken: whether there is one, and its value unless it is.
fn read_any(store: &Store, name: &[u8]) -> refdb::Result<(bool, Option<Target>)> {
    match read(store, name) {
        Ok(found) => Ok((found.is_some(), found.map(|found| found.target))),
        Err(error) if error.kind() == ErrorKind::BrokenRef => Ok((true, None)),
        Err(error) => Err(error),
    }
}

pub(crate) unsafe extern "C" fn exists(
    exists: *mut c_int,
    backend: *mut git_refdb_backend,
    ref_name: *const c_char,
) -> c_int {
    // SAFETY: libgit2 gives back its backend.
    let backend = unsafe { Backend::of(backend) };
    run(backend.lib, || {
        // SAFETY: libgit2 gives a text and a place.
        let name = unsafe { name(ref_name)? };
        let (is_there, _) = backend.with(|store| read_any(store, name))?;
        // SAFETY: as above.
        unsafe { *exists = c_int::from(is_there) };
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn lookup(
    out: *mut *mut git_reference,
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
        let found = backend.with(|store| read(store, name))?;
        let found = found.ok_or_else(|| not_found(name))?;
        // SAFETY: as above.
        unsafe { *out = give_out_read(backend.lib, &found)? };
        Ok(0)
    })
}

/// What a caller says that a ref holds; nothing if both are null.
///
/// # Safety
/// They are null, or an id and a text.
unsafe fn old_value<'a>(
    lib: &Libgit2,
    oid: *const git_oid,
    target: *const c_char,
) -> Option<Value<'a>> {
    // SAFETY: the caller says so.
    unsafe {
        match lib.oid(oid) {
            Some(oid) => Some(Value::Direct(oid)),
            // All zero it says of no hash that it is of that, and stands for no ref all the same.
            None if !oid.is_null() => Some(Value::Direct(ObjectId::null(ObjectFormat::Sha1))),
            None => text(target).map(Value::Symbolic),
        }
    }
}

/// Compares what a caller says that a ref holds with what it holds; returns what it has to hold still when
/// it is locked.
fn compare<'a>(
    name: &[u8],
    found: &(bool, Option<Target>),
    old: Option<&Value<'a>>,
) -> Result<Expected<'a>, Failure> {
    let modified = || {
        let name = String::from_utf8_lossy(name);
        let text = format!("old reference value of '{name}' does not match");
        Err(Failure::Told(code::MODIFIED, text))
    };
    match (old, found) {
        (None, _) => Ok(Expected::Any),
        (Some(Value::Direct(oid)), (is_there, _)) if oid.is_null() => match is_there {
            true => modified(),
            false => Ok(Expected::Missing),
        },
        (Some(_), (false, _)) => Err(not_found(name)),
        (Some(old), (true, Some(target))) if old.is(target) => Ok(match old {
            Value::Direct(oid) => Expected::Oid(*oid),
            Value::Symbolic(target) => {
                let target: &bstr::BStr = (*target).into();
                Expected::Symbolic(target.into())
            }
        }),
        (Some(_), (true, _)) => modified(),
    }
}

fn already_there(name: &[u8]) -> Failure {
    let name = String::from_utf8_lossy(name);
    let text =
        format!("failed to write reference '{name}': a reference with that name already exists");
    Failure::Told(code::EXISTS, text)
}

pub(crate) unsafe extern "C" fn write(
    backend: *mut git_refdb_backend,
    reference: *const git_reference,
    force: c_int,
    who: *const git_signature,
    message: *const c_char,
    old_id: *const git_oid,
    old_target: *const c_char,
) -> c_int {
    // SAFETY: libgit2 gives back its backend.
    let backend = unsafe { Backend::of(backend) };
    run(backend.lib, || {
        // SAFETY: libgit2 gives a reference, and the others or null.
        let ((name, value), who, message, old) = unsafe {
            (
                Value::of(backend.lib, reference)?,
                signature(who),
                text(message).unwrap_or_default(),
                old_value(backend.lib, old_id, old_target),
            )
        };
        RefName::new(name)?;
        let mut before = None;
        let expected = match (force, &old) {
            // Whether there is one is seen under its lock.
            (0, None) => Expected::Missing,
            _ => {
                let found = backend.with(|store| read_any(store, name))?;
                if force == 0 && found.0 {
                    return Err(already_there(name));
                }
                let expected = compare(name, &found, old.as_ref())?;
                if found.1.as_ref().is_some_and(|target| value.is(target)) {
                    return Ok(0);
                }
                before = found.1.and_then(|target| target.oid());
                expected
            }
        };
        if expected == Expected::Missing && backend.has_logs_below(name)? {
            let name = String::from_utf8_lossy(name);
            let text = format!("cannot create '{name}': there are still reflogs below it");
            return Err(Failure::Told(code::DIRECTORY, text));
        }
        let written = backend.with_settings(|store| {
            let mut transaction = store.transaction();
            if let Some(who) = &who {
                transaction = transaction.committer(who.clone())?;
            }
            transaction.add(value.edit(store, name, message).expecting(expected.clone()))?;
            if let Value::Direct(new) = value
                && crate::heads::leads_there_by_others(store, name)?
            {
                let old = before.unwrap_or(ObjectId::null(new.format()));
                transaction.add(Edit::log(RefName::HEAD, old, new).spaced_message(message))?;
            }
            transaction.commit()
        });
        match written {
            Ok(_) => Ok(0),
            Err(error) if force == 0 && is_there_already(&error) => Err(already_there(name)),
            Err(error) if is_directory(&backend.store(), name, &error) => {
                Err(Failure::Told(code::DIRECTORY, error.to_string()))
            }
            Err(error) => Err(error.into()),
        }
    })
}

/// Returns whether a ref was refused because there is one of its name.
fn is_there_already(error: &Error) -> bool {
    let reason = error.rejection().map(|rejection| rejection.reason);
    reason == Some(Reason::CreateExists)
}

/// Returns whether a name was refused because there are refs below it.
fn is_directory(store: &Store, name: &[u8], error: &Error) -> bool {
    let reason = error.rejection().map(|rejection| rejection.reason);
    let below = [name, b"/"].concat();
    let is_there = || {
        let mut refs = store.refs()?;
        refs.seek_prefix(&below)?;
        Ok::<_, Error>(refs.next()?.is_some())
    };
    reason == Some(Reason::NameConflict) && is_there().unwrap_or(false)
}

pub(crate) unsafe extern "C" fn del(
    backend: *mut git_refdb_backend,
    ref_name: *const c_char,
    old_id: *const git_oid,
    old_target: *const c_char,
) -> c_int {
    // SAFETY: libgit2 gives back its backend.
    let backend = unsafe { Backend::of(backend) };
    run(backend.lib, || {
        // SAFETY: libgit2 gives a text, and the others or null.
        let (name, old) = unsafe { (name(ref_name)?, old_value(backend.lib, old_id, old_target)) };
        let mut deleted = None;
        let tried = backend.with_settings(|store| {
            deleted = delete_under_lock(store, name, old.as_ref())?;
            Ok(())
        });
        match (tried, deleted) {
            (Ok(()), Some(answer)) => answer,
            // What is broken, or in use by others, is deleted as it can be.
            _ => delete(backend, name, old.as_ref()),
        }
    })
}

/// Deletes a ref that is read once, under its lock; `None` if somebody else has a lock that this needs.
fn delete_under_lock(
    store: &Store,
    name: &[u8],
    old: Option<&Value<'_>>,
) -> refdb::Result<Option<Answer>> {
    let Ok(name) = RefName::new(name) else {
        return Ok(None);
    };
    let Ok(mut locked) = store.transaction().lock([name]) else {
        return Ok(None);
    };
    let found = locked.read(name)?.map(|found| found.target);
    let found = (found.is_some(), found);
    if !found.0 {
        return Ok(Some(Err(not_found(name.as_bytes()))));
    }
    if let Err(failure) = compare(name.as_bytes(), &found, old) {
        return Ok(Some(Err(failure)));
    }
    locked.add(Edit::delete(name).no_deref())?;
    match locked.prepare() {
        Ok(prepared) => prepared.commit().map(|_| Some(Ok(code::OK))),
        Err(_) => Ok(None),
    }
}

/// Deletes a ref that may be broken, and waits for others.
fn delete(backend: &Backend, name: &[u8], old: Option<&Value<'_>>) -> Answer {
    let found = backend.with(|store| read_any(store, name))?;
    if !found.0 {
        return Err(not_found(name));
    }
    let expected = compare(name, &found, old)?;
    let _ = backend.with_settings(|store| {
        let mut transaction = store.transaction();
        let name: &bstr::BStr = name.into();
        transaction.add(Edit::delete(name).no_deref().expecting(expected.clone()))?;
        transaction.commit()
    })?;
    Ok(code::OK)
}

pub(crate) unsafe extern "C" fn rename(
    out: *mut *mut git_reference,
    backend: *mut git_refdb_backend,
    old_name: *const c_char,
    new_name: *const c_char,
    force: c_int,
    who: *const git_signature,
    message: *const c_char,
) -> c_int {
    // SAFETY: libgit2 gives back its backend.
    let backend = unsafe { Backend::of(backend) };
    run(backend.lib, || {
        // SAFETY: libgit2 gives texts and a place, and the others or null.
        let (old, new, who, message) = unsafe {
            *out = std::ptr::null_mut();
            let message = text(message).unwrap_or_default();
            (name(old_name)?, name(new_name)?, signature(who), message)
        };
        let (from, to) = (RefName::lax(old)?, RefName::new(new)?);
        if force == 0 && backend.with(|store| read_any(store, new))?.0 {
            return Err(already_there(new));
        }
        if !backend.with(|store| read_any(store, old))?.0 {
            return Err(not_found(old));
        }
        let how = Renaming {
            message,
            who,
            replaces: force != 0,
            symrefs: true,
            ..Renaming::default()
        };
        let _ = backend.with_settings(|store| store.rename_as(from, to, &how))?;
        crate::heads::follow(backend, from, to, &how)?;
        let found = backend.with(|store| store.read(to))?;
        let found = found.ok_or_else(|| not_found(new))?;
        // SAFETY: as above.
        unsafe { *out = give_out_read(backend.lib, &found)? };
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn compress(backend: *mut git_refdb_backend) -> c_int {
    // SAFETY: libgit2 gives back its backend.
    let backend = unsafe { Backend::of(backend) };
    run(backend.lib, || {
        backend.with(|store| store.optimize(&Optimize::default()))?;
        Ok(0)
    })
}
