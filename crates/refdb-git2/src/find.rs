//! Finding the libgit2 that is in this process: a shared library, which may have any name, or the program
//! itself, if that gives its symbols out.

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr;

use refdb::{Error, ErrorKind, Result};

use crate::abi::Libgit2;
use crate::ffi::Functions;

/// A symbol that every libgit2 has.
const KNOWN_BY: &CStr = c"git_refdb_init_backend";

/// Finds the one libgit2 that is in this process.
pub(crate) fn only() -> Result<&'static Libgit2> {
    let mut found: Vec<(*mut c_void, CString)> = Vec::new();
    let mut objects: Vec<CString> = Vec::new();
    // SAFETY: the callback takes what it is given, and the vector stays until it returns.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut objects).cast()) };
    for object in objects {
        let Some(handle) = open(&object) else {
            continue;
        };
        let at = symbol(handle, KNOWN_BY);
        if !at.is_null() && is_in(at, &object) && !found.iter().any(|(there, _)| *there == at) {
            found.push((at, object));
        }
    }
    match found.as_slice() {
        [] => Err(Error::new(
            ErrorKind::Unsupported,
            "no libgit2 is in this process whose symbols can be found: give its functions",
        )),
        [(_, object)] => match open(object) {
            Some(handle) => of_handle(handle),
            None => Err(Error::new(ErrorKind::Unsupported, "libgit2 went away")),
        },
        several => {
            let names = several.iter().map(|(_, object)| object.to_string_lossy());
            let names: Vec<_> = names.collect();
            Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "there are {} libgit2 in this process, say which: {}",
                    names.len(),
                    names.join(", ")
                ),
            ))
        }
    }
}

/// Takes the libgit2 that a handle of `dlopen` is for.
pub(crate) fn of_handle(handle: *mut c_void) -> Result<&'static Libgit2> {
    let functions = Functions::find(&|name| symbol(handle, name)).map_err(|name| {
        let text = format!("this libgit2 has no function {}", name.to_string_lossy());
        Error::new(ErrorKind::Unsupported, text)
    })?;
    Libgit2::of(functions)
}

/// Takes the libgit2 in which an address is.
pub(crate) fn around(at: *mut c_void) -> Result<&'static Libgit2> {
    let object = object_of(at).and_then(|object| open(&object));
    // The program has no name by which it could be opened.
    match object.or_else(|| open(c"")) {
        Some(handle) => of_handle(handle),
        None => Err(Error::new(ErrorKind::Unsupported, "libgit2 went away")),
    }
}

/// Returns what a caller would have called if `own`, which stands before it, were not there.
pub(crate) fn for_caller(
    own: *const c_void,
    caller: *const c_void,
    name: &CStr,
) -> Result<*mut c_void> {
    let is_other = |found: &*mut c_void| !found.is_null() && found.cast_const() != own;
    // What a library was linked with comes before what others have brought.
    let handle = object_of(caller.cast_mut()).and_then(|object| open(&object));
    let near = handle.map_or(ptr::null_mut(), |handle| symbol(handle, name));
    // SAFETY: the name ends with a null byte. This library comes before all that it could find.
    let next = || unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    let found = Some(near)
        .filter(is_other)
        .or_else(|| Some(next()).filter(is_other));
    found.ok_or_else(|| {
        let text = format!("there is no {} but that of refdb", name.to_string_lossy());
        Error::new(ErrorKind::Unsupported, text)
    })
}

/// Returns the name of the object in which an address is.
fn object_of(at: *mut c_void) -> Option<CString> {
    // SAFETY: all zero is a value of this structure.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the place can be written.
    if unsafe { libc::dladdr(at, &raw mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: it is a text, as it was found.
    Some(unsafe { CStr::from_ptr(info.dli_fname) }.to_owned())
}

/// Returns a handle for what is loaded already; the empty name stands for the program.
fn open(object: &CStr) -> Option<*mut c_void> {
    let name = match object.is_empty() {
        true => ptr::null(),
        false => object.as_ptr(),
    };
    // SAFETY: nothing is loaded. The handle is never closed, and so what it is for stays.
    let handle = unsafe { libc::dlopen(name, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    (!handle.is_null()).then_some(handle)
}

pub(crate) fn symbol(handle: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: the handle is one of `dlopen`, and the name ends with a null byte.
    unsafe { libc::dlsym(handle, name.as_ptr()) }
}

/// Returns whether what is at an address belongs to an object, and not to one that it stands on.
fn is_in(at: *mut c_void, object: &CStr) -> bool {
    let Some(name) = object_of(at) else {
        return false;
    };
    // The program has no name in one of the two.
    object.is_empty() || name.as_c_str() == object
}

/// Notes the name of an object that is loaded.
unsafe extern "C" fn note(
    info: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    names: *mut c_void,
) -> c_int {
    // SAFETY: the loader gives an object, and the vector is ours.
    unsafe {
        let names = &mut *names.cast::<Vec<CString>>();
        let name = (*info).dlpi_name;
        names.push(match name.is_null() {
            true => CString::default(),
            false => CStr::from_ptr(name).to_owned(),
        });
    }
    0
}
