//! Standing in libgit2's way: where it makes its own refs for a repository, it gets these. So programs that
//! know nothing of refdb open repositories whose refs are tables, also those that libgit2 opens by itself.

use std::ffi::{c_int, c_void};
use std::path::{Path, PathBuf};

use crate::abi::Libgit2;
use crate::attach::{enable, given, with};
use crate::backend::Backend;
use crate::border::{Answer, Failure, text};
use crate::ffi::{Functions, code, git_refdb_backend, git_repository};
use crate::find;

/// The variable that says whose refs are refdb's: `all`, or only those that are tables.
const FORMATS: &str = "REFDB_GIT2_FORMATS";

/// Gives out a backend for a repository: one of refdb if its refs are tables, else libgit2's own. For a host
/// that links libgit2 statically and has its calls of `git_refdb_backend_fs` come here, by its linker
/// (`--wrap`); among the functions has to be the real one.
///
/// # Safety
/// The functions are libgit2's, the repository is open, and the place can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refdb_git2_backend_with(
    functions: *const Functions,
    out: *mut *mut git_refdb_backend,
    repository: *mut git_repository,
) -> c_int {
    // SAFETY: as this function's.
    unsafe { with(given(functions), |lib| backend(lib, out, repository)) }
}

/// What stands in the place of libgit2's `git_refdb_backend_fs` in a library that is loaded before it.
/// `own` is what stands there, `caller` where it was called.
///
/// # Safety
/// As for [`refdb_git2_backend_with`]; `caller` is in libgit2.
#[doc(hidden)]
pub unsafe fn backend_fs(
    own: *const c_void,
    caller: *const c_void,
    out: *mut *mut git_refdb_backend,
    repository: *mut git_repository,
) -> c_int {
    // SAFETY: as this function's.
    let found = find::for_caller(own, caller, c"git_refdb_backend_fs").and_then(find::around);
    with(found, |lib| unsafe { backend(lib, out, repository) })
}

/// What stands in the place of libgit2's `git_libgit2_init`: reftables may be opened from then on.
#[doc(hidden)]
pub fn init(own: *const c_void, caller: *const c_void) -> c_int {
    type Init = unsafe extern "C" fn() -> c_int;
    let real = match find::for_caller(own, caller, c"git_libgit2_init") {
        Ok(real) => real,
        Err(error) => return with(Err(error), |_| Ok(code::ERROR)),
    };
    // SAFETY: what has this name is of this type.
    let count = unsafe { std::mem::transmute::<*mut c_void, Init>(real)() };
    if count == 1 {
        // A libgit2 in which this does not go is as it would be without refdb.
        with(find::around(real), enable);
    }
    count
}

/// # Safety
/// As for [`refdb_git2_backend_with`].
unsafe fn backend(
    lib: &'static Libgit2,
    out: *mut *mut git_refdb_backend,
    repository: *mut git_repository,
) -> Answer {
    // SAFETY: as this function's.
    unsafe {
        if !is_ours(lib, repository) {
            return match (lib.functions.git_refdb_backend_fs)(out, repository) {
                answer @ 0.. => Ok(answer),
                failed => Err(Failure::Passed(failed)),
            };
        }
        *out = Backend::make(lib, repository)?;
    }
    Ok(code::OK)
}

/// Returns whether refdb takes the refs of a repository over.
///
/// # Safety
/// The repository is open.
unsafe fn is_ours(lib: &Libgit2, repository: *mut git_repository) -> bool {
    // SAFETY: as this function's.
    let path = unsafe { text((lib.functions.git_repository_path)(repository)) };
    let Some(path) = path else { return false };
    if std::env::var_os(FORMATS).is_some_and(|formats| formats == "all") {
        // The one in which libgit2 reads reflogs for refdb stays libgit2's.
        return !crate::scratch::is_one(path);
    }
    mentions_tables(&common_dir(crate::border::path(path)))
}

/// Returns the directory of a repository that has the configuration.
fn common_dir(git_dir: &Path) -> PathBuf {
    match std::fs::read(git_dir.join("commondir")) {
        Ok(named) => git_dir.join(crate::border::path(named.trim_ascii())),
        Err(_) => git_dir.to_owned(),
    }
}

/// Returns whether the configuration has the extension that says how refs are kept. Which format it names is
/// found out when the repository is opened.
fn mentions_tables(common_dir: &Path) -> bool {
    let Ok(mut config) = std::fs::read(common_dir.join("config")) else {
        return false;
    };
    config.make_ascii_lowercase();
    config.windows(10).any(|word| word == b"refstorage")
}
