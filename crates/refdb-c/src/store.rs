//! Opening a repository, and single refs.

use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use refdb::{ObjectFormat, Optimize, Ref, RefFormat, RefName, Target, TargetRef};
use refdb_arrow::{ArrowArrayStream, Table};
use refdb_git::Repository;
use refdb_git::repository::OpenOptions;

use crate::border::Failure;
use crate::refs::{refdb_selection, selection};
use crate::types::{many, place, refdb_bytes, refdb_oid, refdb_status, shared, take_back};

/// The refs of a repository, as one of its worktrees sees them. It sees what other processes write.
///
/// Any number of threads may use one at the same time. `refdb_close` frees it.
pub struct refdb_store(pub(crate) Arc<Repository>);

impl refdb_store {
    pub(crate) fn store(&self) -> &refdb::Store {
        self.0.store()
    }
}

/// How `refdb_open` opens: flags, added up.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub enum refdb_open_flags {
    /// Search for the repository that the path is in, as Git does, `GIT_DIR` included. Without it the
    /// path is the repository itself, or the top of its work tree.
    REFDB_OPEN_DISCOVER = 1,
}

/// How refs are kept.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub enum refdb_ref_format {
    /// As loose files and packed-refs.
    REFDB_FORMAT_FILES = 1,
    /// As tables.
    REFDB_FORMAT_REFTABLE = 2,
}

/// What is said of a ref: flags, added up.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub enum refdb_ref_flags {
    /// The value comes from packed-refs.
    REFDB_REF_PACKED = 1,
    /// The value could not be read, or is the null id: it has no id then.
    REFDB_REF_BROKEN = 2,
    /// The name is not well-formed: the ref can be read and deleted.
    REFDB_REF_BAD_NAME = 4,
}

/// One ref.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct refdb_ref {
    /// The full name.
    pub name: refdb_bytes,
    /// The name that a symref names; empty for any other ref.
    pub symref: refdb_bytes,
    /// The object; none for a symref and a broken ref.
    pub oid: refdb_oid,
    /// What an annotated tag peels to, where that is stored.
    pub peeled: refdb_oid,
    /// Of `refdb_ref_flags`.
    pub flags: u32,
}

/// A single ref with what it points to. C sees its first field.
#[repr(C)]
struct Found {
    shown: refdb_ref,
    text: Vec<u8>,
}

impl Found {
    /// Gives out a ref; the caller frees it.
    fn give_out(name: &[u8], symref: &[u8], mut shown: refdb_ref) -> *mut refdb_ref {
        let text = [name, symref].concat();
        let (name, symref) = text.split_at(name.len());
        shown.name = refdb_bytes::of(name);
        shown.symref = refdb_bytes::of(symref);
        Box::into_raw(Box::new(Found { shown, text })).cast()
    }
}

/// Returns a ref as C sees it, its texts excepted.
pub(crate) fn shown(found: &Ref) -> refdb_ref {
    let target = found.target.as_ref();
    let flags = [
        (found.packed, refdb_ref_flags::REFDB_REF_PACKED),
        (found.broken, refdb_ref_flags::REFDB_REF_BROKEN),
        (
            !found.name.as_name().is_well_formed(),
            refdb_ref_flags::REFDB_REF_BAD_NAME,
        ),
    ];
    plain(target, found.peeled, flags)
}

pub(crate) fn plain(
    target: TargetRef<'_>,
    peeled: Option<refdb::ObjectId>,
    flags: [(bool, refdb_ref_flags); 3],
) -> refdb_ref {
    refdb_ref {
        name: refdb_bytes::EMPTY,
        symref: refdb_bytes::EMPTY,
        oid: refdb_oid::of(target.oid().filter(|oid| !oid.is_null())),
        peeled: refdb_oid::of(peeled),
        flags: flags
            .iter()
            .filter(|flag| flag.0)
            .map(|flag| flag.1 as u32)
            .sum(),
    }
}

/// Opens a repository.
///
/// `path` ends with a zero byte. `flags` are of `refdb_open_flags`. `config` are `config_len` values of
/// the configuration, each `section.key=value` and a zero byte, which go before those of files; null is
/// fine for none. Configuration and environment are read as Git reads them, now and not again. The hook
/// `reference-transaction` is not run.
///
/// Ownership: `*out` is the caller's, who frees it by `refdb_close`; null after a failure.
/// Threads: any.
///
/// # Safety
/// The pointers point to what is said above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refdb_open(
    path: *const c_char,
    flags: u32,
    config: *const *const c_char,
    config_len: usize,
    out: *mut *mut refdb_store,
) -> refdb_status {
    border! {
        // SAFETY: as this function's.
        let (out, path, config) = unsafe { (place(out)?, text(path)?, many(config, config_len)?) };
        let path = Path::new(OsStr::from_bytes(path));
        let mut options = OpenOptions::new();
        for &value in config {
            // SAFETY: as this function's.
            options = options.config(unsafe { text(value)? });
        }
        let repository = match flags {
            0 => {
                let inside = path.join(".git");
                let is_work_tree = inside.symlink_metadata().is_ok();
                options.open(if is_work_tree { &inside } else { path })
            }
            1 => options.discover(path),
            _ => return Err(Failure::Argument("there is no such flag for opening")),
        };
        *out = Box::into_raw(Box::new(refdb_store(Arc::new(repository?))));
        Ok(refdb_status::REFDB_OK)
    }
}

/// Returns the bytes of a text that a zero byte ends.
unsafe fn text<'a>(text: *const c_char) -> Result<&'a [u8], Failure> {
    if text.is_null() {
        return Err(Failure::Argument("a text is null"));
    }
    // SAFETY: the caller says so.
    Ok(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// Frees a store; null is fine.
///
/// Ownership: `store` is gone. What was made from it lives on. Threads: none may use it any more.
///
/// # Safety
/// `store` is from `refdb_open` and was not closed yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refdb_close(store: *mut refdb_store) {
    // SAFETY: as this function's.
    unsafe { take_back(store) }
}

/// Tells how the refs are kept, and how long the raw ids are (20 or 32). Either place may be null.
///
/// Threads: any.
///
/// # Safety
/// `store` is open; the others are null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refdb_format(
    store: *const refdb_store,
    ref_format: *mut refdb_ref_format,
    id_len: *mut u8,
) -> refdb_status {
    border! {
        // SAFETY: as this function's.
        let store = unsafe { shared(store)? };
        let format = match store.store().format() {
            RefFormat::Files => refdb_ref_format::REFDB_FORMAT_FILES,
            RefFormat::Reftable => refdb_ref_format::REFDB_FORMAT_REFTABLE,
        };
        let len = match store.0.object_format() {
            ObjectFormat::Sha1 => 20,
            ObjectFormat::Sha256 => 32,
        };
        // SAFETY: as this function's. What is there need not be a value: it is only written.
        unsafe {
            if !ref_format.is_null() {
                ref_format.write(format);
            }
            if !id_len.is_null() {
                id_len.write(len);
            }
        }
        Ok(refdb_status::REFDB_OK)
    }
}

/// Reads one ref as it is stored: a symref is not followed. `REFDB_MISSING` if there is none.
///
/// Ownership: `*out` is the caller's, who frees it by `refdb_ref_free`; null unless `REFDB_OK`.
/// Threads: any.
///
/// # Safety
/// `store` is open, `name` can be read, and `out` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refdb_read(
    store: *const refdb_store,
    name: refdb_bytes,
    out: *mut *mut refdb_ref,
) -> refdb_status {
    border! {
        // SAFETY: as this function's.
        let (store, out, name) = unsafe { (shared(store)?, place(out)?, name.get()?) };
        let Some(found) = store.store().read(RefName::lax(name)?)? else {
            return Ok(refdb_status::REFDB_MISSING);
        };
        let symref = match &found.target {
            Target::Symbolic(name) => name.as_bytes(),
            Target::Direct(_) => b"",
        };
        *out = Found::give_out(found.name.as_bytes(), symref, shown(&found));
        Ok(refdb_status::REFDB_OK)
    }
}

/// Follows symrefs to an object: `*out` is the ref at the end, which has an id. `REFDB_MISSING` if the
/// name, or one that it leads to, does not exist.
///
/// Ownership and threads: as for `refdb_read`.
///
/// # Safety
/// As for `refdb_read`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refdb_resolve(
    store: *const refdb_store,
    name: refdb_bytes,
    out: *mut *mut refdb_ref,
) -> refdb_status {
    border! {
        // SAFETY: as this function's.
        let (store, out, name) = unsafe { (shared(store)?, place(out)?, name.get()?) };
        let Some(found) = store.store().resolve(RefName::lax(name)?)? else {
            return Ok(refdb_status::REFDB_MISSING);
        };
        let flag = !found.name.as_name().is_well_formed();
        let none = (false, refdb_ref_flags::REFDB_REF_PACKED);
        let flags = [(flag, refdb_ref_flags::REFDB_REF_BAD_NAME), none, none];
        let shown = plain(TargetRef::Direct(found.oid), found.peeled, flags);
        *out = Found::give_out(found.name.as_bytes(), b"", shown);
        Ok(refdb_status::REFDB_OK)
    }
}

/// Frees what `refdb_read` or `refdb_resolve` gave out; null is fine. Refs of other functions belong
/// to what they came from.
///
/// Threads: any.
///
/// # Safety
/// `found` is from one of these and was not freed yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refdb_ref_free(found: *mut refdb_ref) {
    // SAFETY: as this function's; a `Found` is what it points to.
    unsafe { take_back(found.cast::<Found>()) }
}

/// Gives a ref and its reflog another name. With `copies` the old one stays; with `replaces` a ref that
/// has the new name is replaced. `REFDB_REJECTED` when there is no such ref, or another one is in the way.
///
/// Threads: any.
///
/// # Safety
/// `store` is open, and the bytes can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refdb_rename(
    store: *const refdb_store,
    from: refdb_bytes,
    to: refdb_bytes,
    message: refdb_bytes,
    copies: bool,
    replaces: bool,
) -> refdb_status {
    border! {
        // SAFETY: as this function's.
        let store = unsafe { shared(store)? }.store();
        // SAFETY: as this function's.
        let (from, to, message) = unsafe { (from.get()?, to.get()?, message.get()?) };
        let (from, to) = (RefName::lax(from)?, RefName::new(to)?);
        // What failed after the refs were in place keeps nobody from going on.
        let _ = match (copies, replaces) {
            (false, true) => store.rename(from, to, message)?,
            (false, false) => store.rename_to_new(from, to, message)?,
            (true, true) => store.copy(from, to, message)?,
            (true, false) => {
                return Err(Failure::Argument("a copy replaces what has its name"));
            }
        };
        Ok(refdb_status::REFDB_OK)
    }
}

/// Packs loose refs, or compacts tables. With `only_if_worth_it` little is left as it is.
///
/// Threads: any.
///
/// # Safety
/// `store` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refdb_optimize(
    store: *const refdb_store,
    only_if_worth_it: bool,
) -> refdb_status {
    border! {
        // SAFETY: as this function's.
        let store = unsafe { shared(store)? }.store();
        store.optimize(&Optimize {
            auto: only_if_worth_it,
            ..Optimize::default()
        })?;
        Ok(refdb_status::REFDB_OK)
    }
}

/// Reads refs into columns, by Arrow's C data interface: `name` (binary), `oid` (fixed-size binary),
/// `symref` (binary), `peeled` (fixed-size binary), `broken` (boolean), in batches of some thousand
/// rows. `selected` says which refs; null stands for all.
///
/// Ownership: `*out`, which holds nothing before, is the caller's; its own `release` frees it.
/// Threads: any; the stream, and what comes out of it, is for one thread at a time.
///
/// # Safety
/// `store` is open, `selected` can be read, and `out` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refdb_arrow_stream(
    store: *const refdb_store,
    selected: *const refdb_selection,
    out: *mut ArrowArrayStream,
) -> refdb_status {
    border! {
        // SAFETY: as this function's.
        let (store, selection) = unsafe { (shared(store)?, selection(selected)?) };
        if out.is_null() {
            return Err(Failure::Argument("a pointer is null"));
        }
        let table = Table::read(store.store(), &selection)?;
        // SAFETY: as this function's; nothing is dropped that may have been there.
        unsafe { out.write(table.into_stream()) };
        Ok(refdb_status::REFDB_OK)
    }
}

/// Returns the version of this interface: a library that says the same number can take the place of
/// the one that a program was compiled for.
#[unsafe(no_mangle)]
pub extern "C" fn refdb_abi_version() -> u32 {
    1
}
