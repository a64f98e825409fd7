//! The border: failures become libgit2's codes, with a text for `git_error_last`, and a panic ends here.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use refdb::{Error, ErrorKind, InvalidName, Reason};

use crate::abi::Libgit2;
use crate::ffi::{class, code};

/// Why a call fails.
pub(crate) enum Failure {
    /// With this code and text.
    Told(c_int, String),
    /// What libgit2 itself has told about already.
    Passed(c_int),
    /// The iteration is over: nothing is told.
    Over,
    Refdb(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Refdb(error)
    }
}

impl From<InvalidName> for Failure {
    fn from(error: InvalidName) -> Self {
        Error::from(error).into()
    }
}

/// What a call comes to: what it returns if all is well, or a failure.
pub(crate) type Answer = Result<c_int, Failure>;

/// Returns the failure for a ref that is not there.
pub(crate) fn not_found(name: &[u8]) -> Failure {
    let name = String::from_utf8_lossy(name);
    Failure::Told(code::NOT_FOUND, format!("reference '{name}' not found"))
}

/// Runs the body of a function that libgit2 calls.
pub(crate) fn run(lib: &Libgit2, body: impl FnOnce() -> Answer) -> c_int {
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(answer)) => return answer,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().copied();
            let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            let text = format!("a fault in refdb: {}", text.unwrap_or("of an unknown kind"));
            // What is dropped may panic once more.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(panic)));
            Failure::Told(code::ERROR, text)
        }
    };
    match failure {
        Failure::Over => code::ITER_OVER,
        Failure::Passed(code) => code,
        Failure::Told(code, text) => {
            lib.tell(class::REFERENCE, &text);
            code
        }
        Failure::Refdb(error) => {
            let (class, code) = code_of(&error);
            lib.tell(class, &error.to_string());
            code
        }
    }
}

/// Returns the class and the code that stand for an error.
pub(crate) fn code_of(error: &Error) -> (c_int, c_int) {
    if error.message().is_held() {
        return (class::REFERENCE, code::LOCKED);
    }
    match error.kind() {
        ErrorKind::Locked => (class::REFERENCE, code::LOCKED),
        ErrorKind::InvalidName => (class::REFERENCE, code::INVALID_SPEC),
        ErrorKind::Rejected => {
            let code = match error.rejection().map(|rejection| rejection.reason) {
                Some(Reason::CreateExists) => code::EXISTS,
                Some(
                    Reason::IncorrectOldValue | Reason::NonexistentRef | Reason::ExpectedSymref,
                ) => code::MODIFIED,
                _ => code::ERROR,
            };
            (class::REFERENCE, code)
        }
        ErrorKind::Io => (class::SYSTEM, code::ERROR),
        ErrorKind::NoRepository | ErrorKind::Repository => (class::REPOSITORY, code::ERROR),
        ErrorKind::Unsupported | ErrorKind::Misuse => (class::INVALID, code::ERROR),
        _ => (class::REFERENCE, code::ERROR),
    }
}

/// Returns the bytes of a text that a zero byte ends; none for null.
///
/// # Safety
/// It is null, or such a text.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Option<&'a [u8]> {
    match text.is_null() {
        true => None,
        // SAFETY: the caller says so.
        false => Some(unsafe { CStr::from_ptr(text) }.to_bytes()),
    }
}

/// Returns bytes as a path.
pub(crate) fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// Returns the bytes of a name.
///
/// # Safety
/// As for [`text`].
pub(crate) unsafe fn name<'a>(name: *const c_char) -> Result<&'a [u8], Failure> {
    // SAFETY: as this function's.
    unsafe { text(name) }.ok_or_else(|| Failure::Told(code::ERROR, "a name is null".to_owned()))
}
