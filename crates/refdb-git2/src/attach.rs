//! What a host calls: these refs in place of libgit2's own.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;

use refdb::{Error, ErrorKind, Result};

use crate::abi::Libgit2;
use crate::backend::Backend;
use crate::border::{Answer, Failure, run};
use crate::ffi::{
    Functions, GET_EXTENSIONS, SET_EXTENSIONS, class, code, git_repository, git_strarray,
};
use crate::find;

/// The extension that says in which format refs are.
const EXTENSION: &CStr = c"refstorage";

/// Runs a call of a host with the libgit2 that it means.
pub(crate) fn with(
    found: Result<&'static Libgit2>,
    act: impl FnOnce(&'static Libgit2) -> Answer,
) -> c_int {
    match found {
        Ok(lib) => run(lib, || act(lib)),
        Err(error) => {
            keep(&error);
            code::ERROR
        }
    }
}

thread_local! {
    /// Why no libgit2 was found: that cannot be told to one.
    static LAST: RefCell<CString> = RefCell::default();
}

fn keep(error: &Error) {
    let text = CString::new(error.to_string().replace('\0', "\\0")).unwrap_or_default();
    // A thread that ends may have lost its place already: then nobody asks any more.
    let _ = LAST.try_with(|last| *last.borrow_mut() = text);
}

/// Returns why the last call of this thread found no libgit2; empty if all did. What goes wrong otherwise,
/// `git_error_last` tells.
#[unsafe(no_mangle)]
pub extern "C" fn refdb_git2_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr())
        .unwrap_or(c"".as_ptr())
}

/// Lets libgit2 open repositories whose refs are tables (the extension `refstorage`), beside those that it
/// opens already. Call it once; each of them needs [`refdb_git2_attach`] then.
#[unsafe(no_mangle)]
pub extern "C" fn refdb_git2_enable() -> c_int {
    with(find::only(), enable)
}

/// As [`refdb_git2_enable`], for the libgit2 of a handle that `dlopen` gave.
///
/// # Safety
/// The handle is open, and stays so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refdb_git2_enable_in(handle: *mut c_void) -> c_int {
    with(find::of_handle(handle), enable)
}

/// As [`refdb_git2_enable`], for the libgit2 that has these functions.
///
/// # Safety
/// They are libgit2's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refdb_git2_enable_with(functions: *const Functions) -> c_int {
    // SAFETY: as this function's.
    with(unsafe { given(functions) }, enable)
}

/// Gives a repository the refs of refdb in place of libgit2's own, in both formats.
///
/// # Safety
/// The repository is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refdb_git2_attach(repository: *mut git_repository) -> c_int {
    // SAFETY: as this function's.
    with(find::only(), |lib| unsafe { attach(lib, repository) })
}

/// As [`refdb_git2_attach`], for the libgit2 of a handle that `dlopen` gave.
///
/// # Safety
/// The repository is open, the handle too, and stays so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refdb_git2_attach_in(
    handle: *mut c_void,
    repository: *mut git_repository,
) -> c_int {
    // SAFETY: as this function's.
    with(find::of_handle(handle), |lib| unsafe {
        attach(lib, repository)
    })
}

/// As [`refdb_git2_attach`], for the libgit2 that has these functions.
///
/// # Safety
/// They are libgit2's, and the repository is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refdb_git2_attach_with(
    functions: *const Functions,
    repository: *mut git_repository,
) -> c_int {
    // SAFETY: as this function's.
    unsafe { with(given(functions), |lib| attach(lib, repository)) }
}

/// Takes the functions that a host gives: all of them have to be there.
pub(crate) unsafe fn given(functions: *const Functions) -> Result<&'static Libgit2> {
    let refuse = |text: &str| Err(Error::new(ErrorKind::Misuse, text));
    let words = size_of::<Functions>() / size_of::<usize>();
    if functions.is_null() {
        return refuse("the functions of libgit2 are null");
    }
    // SAFETY: the first member says how long it is, and all are of the size of a pointer.
    let given = unsafe {
        let size = functions.cast::<usize>().read();
        if size != size_of::<Functions>() {
            return refuse("the functions of libgit2 are of another version of the header");
        }
        std::slice::from_raw_parts(functions.cast::<usize>(), words)
    };
    if given.contains(&0) {
        return refuse("one of the functions of libgit2 is null");
    }
    // SAFETY: as this function's caller says.
    Libgit2::of(unsafe { *functions })
}

fn passed(answer: c_int) -> std::result::Result<(), Failure> {
    match answer {
        0.. => Ok(()),
        _ => Err(Failure::Passed(answer)),
    }
}

pub(crate) fn enable(lib: &'static Libgit2) -> Answer {
    let functions = &lib.functions;
    let mut known = git_strarray {
        strings: ptr::null_mut(),
        count: 0,
    };
    // SAFETY: the options take these arguments, and what was given out is freed by its own function.
    unsafe {
        passed((functions.git_libgit2_opts)(GET_EXTENSIONS, &raw mut known))?;
        let mut names: Vec<*const c_char> = Vec::new();
        for at in 0..known.count {
            names.push(*known.strings.add(at));
        }
        if !names.iter().any(|&name| CStr::from_ptr(name) == EXTENSION) {
            names.push(EXTENSION.as_ptr());
        }
        let set = (functions.git_libgit2_opts)(SET_EXTENSIONS, names.as_ptr(), names.len());
        (functions.git_strarray_dispose)((&raw mut known).cast());
        passed(set)?;
    }
    Ok(code::OK)
}

/// # Safety
/// The repository is one of this libgit2.
pub(crate) unsafe fn attach(lib: &'static Libgit2, repository: *mut git_repository) -> Answer {
    let functions = &lib.functions;
    if repository.is_null() {
        lib.tell(class::INVALID, "a repository is null");
        return Err(Failure::Passed(code::ERROR));
    }
    // SAFETY: the repository outlives its refs. What libgit2 took is its own, and what it did not is freed.
    unsafe {
        let backend = Backend::make(lib, repository)?;
        let mut refdb = ptr::null_mut();
        let made = (functions.git_refdb_new)(&raw mut refdb, repository);
        if made < 0 {
            Backend::free(backend);
            return Err(Failure::Passed(made));
        }
        let taken = (functions.git_refdb_set_backend)(refdb, backend);
        if taken < 0 {
            Backend::free(backend);
        }
        let set = match taken {
            0.. => (functions.git_repository_set_refdb)(repository, refdb),
            _ => taken,
        };
        (functions.git_refdb_free)(refdb);
        passed(set)?;
    }
    Ok(code::OK)
}
