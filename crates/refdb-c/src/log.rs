//! Reflogs.

use refdb::{LogEntry, LogOrder, RefName, Signature};

use crate::store::refdb_store;
use crate::types::{place, refdb_bytes, refdb_oid, refdb_status, shared, take_back, unique};

/// A person and a moment.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct refdb_signature {
    /// The name.
    pub name: refdb_bytes,
    /// The email address, without angle brackets.
    pub email: refdb_bytes,
    /// Seconds since 1970-01-01 UTC.
    pub time: u64,
    /// The time zone as the decimal number `HHMM` with its sign: -530 is half past five west. More than four
    /// digits are `REFDB_MISUSE`.
    pub zone: i16,
}

impl refdb_signature {
    /// # Safety
    /// Its bytes can be read.
    pub(crate) unsafe fn get(&self) -> Result<Signature, crate::border::Failure> {
        // SAFETY: the caller says so.
        let (name, email) = unsafe { (self.name.get()?, self.email.get()?) };
        Ok(Signature {
            name: name.into(),
            email: email.into(),
            time: self.time,
            zone: self.zone,
        })
    }
}

/// One entry of a reflog.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct refdb_log_entry {
    /// The value before; all zero when the ref came into being.
    pub old_id: refdb_oid,
    /// The value after; all zero when the ref was deleted.
    pub new_id: refdb_oid,
    /// Who did it, and when.
    pub who: refdb_signature,
    /// Why, without a line feed.
    pub message: refdb_bytes,
}

/// The entries of a reflog, as they were at one moment. `refdb_log_free` frees it.
///
/// Any number of threads may read one at the same time.
pub struct refdb_log {
    // What the entries point to.
    _entries: Vec<LogEntry>,
    shown: Vec<refdb_log_entry>,
}

/// Names. `refdb_names_free` frees them. Any number of threads may read them at the same time.
pub struct refdb_names {
    _names: Vec<refdb::RefNameBuf>,
    shown: Vec<refdb_bytes>,
}

/// Reads a reflog; `REFDB_MISSING` if there is none.
///
/// Ownership: `*out` is the caller's, who frees it by `refdb_log_free`; null unless `REFDB_OK`.
/// Threads: any.
///
/// # Safety
/// `store` is open, `name` can be read, and `out` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refdb_log_read(
    store: *const refdb_store,
    name: refdb_bytes,
    newest_first: bool,
    out: *mut *mut refdb_log,
) -> refdb_status {
    border! {
        // SAFETY: as this function's.
        let (store, out, name) = unsafe { (shared(store)?, place(out)?, name.get()?) };
        let order = match newest_first {
            true => LogOrder::NewestFirst,
            false => LogOrder::OldestFirst,
        };
        let Some(entries) = store.store().log(RefName::lax(name)?, order)? else {
            return Ok(refdb_status::REFDB_MISSING);
        };
        let shown = entries.iter().map(|entry| refdb_log_entry {
            old_id: refdb_oid::of(Some(entry.old)),
            new_id: refdb_oid::of(Some(entry.new)),
            who: refdb_signature {
                name: refdb_bytes::of(&entry.who.name),
                email: refdb_bytes::of(&entry.who.email),
                time: entry.who.time,
                zone: entry.who.zone,
            },
            message: refdb_bytes::of(&entry.message),
        });
        let shown = shown.collect();
        *out = Box::into_raw(Box::new(refdb_log { _entries: entries, shown }));
        Ok(refdb_status::REFDB_OK)
    }
}

/// Returns the entries of a reflog, `*count` of them.
///
/// Ownership: they belong to `log`. Threads: any. Null, and nothing in `*count`, for a null pointer.
///
/// # Safety
/// `log` is not freed, and `count` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refdb_log_entries(
    log: *const refdb_log,
    count: *mut usize,
) -> *const refdb_log_entry {
    // SAFETY: as this function's.
    match unsafe { (shared(log), unique(count)) } {
        (Ok(log), Ok(count)) => {
            *count = log.shown.len();
            log.shown.as_ptr()
        }
        _ => std::ptr::null(),
    }
}

/// Frees a reflog that was read; null is fine.
///
/// # Safety
/// `log` was not freed yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refdb_log_free(log: *mut refdb_log) {
    // SAFETY: as this function's.
    unsafe { take_back(log) }
}

/// Lists the names that have a reflog.
///
/// Ownership: `*out` is the caller's, who frees it by `refdb_names_free`; null after a failure.
/// Threads: any.
///
/// # Safety
/// `store` is open, and `out` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refdb_log_names(
    store: *const refdb_store,
    out: *mut *mut refdb_names,
) -> refdb_status {
    border! {
        // SAFETY: as this function's.
        let (store, out) = unsafe { (shared(store)?, place(out)?) };
        let names = store.store().log_names()?;
        let shown = names.iter().map(|name| refdb_bytes::of(name.as_bytes())).collect();
        *out = Box::into_raw(Box::new(refdb_names { _names: names, shown }));
        Ok(refdb_status::REFDB_OK)
    }
}

/// Returns the names, `*count` of them.
///
/// Ownership: they belong to `names`. Threads: any. Null, and nothing in `*count`, for a null pointer.
///
/// # Safety
/// `names` is not freed, and `count` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refdb_names_get(
    names: *const refdb_names,
    count: *mut usize,
) -> *const refdb_bytes {
    // SAFETY: as this function's.
    match unsafe { (shared(names), unique(count)) } {
        (Ok(names), Ok(count)) => {
            *count = names.shown.len();
            names.shown.as_ptr()
        }
        _ => std::ptr::null(),
    }
}

/// Frees names; null is fine.
///
/// # Safety
/// `names` was not freed yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refdb_names_free(names: *mut refdb_names) {
    // SAFETY: as this function's.
    unsafe { take_back(names) }
}

/// Makes a reflog without entries, unless there is one.
///
/// Threads: any.
///
/// # Safety
/// `store` is open, and `name` can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refdb_log_create(
    store: *const refdb_store,
    name: refdb_bytes,
) -> refdb_status {
    border! {
        // SAFETY: as this function's.
        let (store, name) = unsafe { (shared(store)?, name.get()?) };
        // What failed after the reflog was in place keeps nobody from going on.
        let _ = store.store().create_log(RefName::new(name)?)?;
        Ok(refdb_status::REFDB_OK)
    }
}

/// Removes a reflog; its ref stays. One that is not there is fine.
///
/// Threads: any.
///
/// # Safety
/// `store` is open, and `name` can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refdb_log_delete(
    store: *const refdb_store,
    name: refdb_bytes,
) -> refdb_status {
    border! {
        // SAFETY: as this function's.
        let (store, name) = unsafe { (shared(store)?, name.get()?) };
        let _ = store.store().delete_logs([RefName::lax(name)?])?;
        Ok(refdb_status::REFDB_OK)
    }
}
