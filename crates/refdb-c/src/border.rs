//! The border: errors become codes, texts are kept for the thread, and a panic ends here.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use refdb::error::Remedy;
use refdb::{Error, ErrorKind, InvalidName};

use crate::types::{refdb_bytes, refdb_remedy, refdb_status};

/// What the last failing call of this thread said.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct refdb_error {
    /// The code that the call returned.
    pub status: refdb_status,
    /// What can be done, beside what the code says.
    pub remedy: refdb_remedy,
    /// What is wrong, for a person: ends with a zero byte, never null.
    pub message: *const c_char,
    /// The file or directory that it is about; empty if it is about none.
    pub path: refdb_bytes,
    /// The line of that file that is damaged, from 1; 0 if none is known.
    pub line: usize,
}

/// An error that is kept for its thread.
struct Kept {
    shown: refdb_error,
    // What it points to.
    _message: CString,
    _path: Vec<u8>,
}

thread_local! {
    static LAST: RefCell<Option<Box<Kept>>> = const { RefCell::new(None) };
}

/// Why a call fails.
pub(crate) enum Failure {
    /// The caller gave something that cannot be.
    Argument(&'static str),
    /// The library says so.
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

/// What a call comes to: `REFDB_OK` or another code that is no failure, or a failure.
pub(crate) type Answer = Result<refdb_status, Failure>;

/// Runs the body of a function that C calls.
macro_rules! border {
    ($($body:tt)*) => {
        $crate::border::run(|| -> $crate::border::Answer { $($body)* })
    };
}

/// Runs `body`; keeps what it fails with, and lets no panic through.
///
/// Whatever a body that panics was about is not used again: the caller is told so.
pub(crate) fn run(body: impl FnOnce() -> Answer) -> refdb_status {
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(status)) => return status,
        Ok(Err(failure)) => catch_unwind(AssertUnwindSafe(|| keep_failure(&failure))).ok(),
        Err(panic) => keep_panic(panic),
    };
    failure.unwrap_or(refdb_status::REFDB_PANIC)
}

fn keep_failure(failure: &Failure) -> refdb_status {
    match failure {
        Failure::Argument(what) => keep(
            refdb_status::REFDB_MISUSE,
            refdb_remedy::REFDB_REMEDY_NONE,
            what,
            &[],
            0,
        ),
        Failure::Refdb(error) => {
            let remedy = match error.message().remedy() {
                Some(Remedy::Repair) => refdb_remedy::REFDB_REMEDY_REPAIR,
                Some(Remedy::GiveUp) => refdb_remedy::REFDB_REMEDY_GIVE_UP,
                Some(Remedy::RemoveLocks) => refdb_remedy::REFDB_REMEDY_REMOVE_LOCKS,
                _ => refdb_remedy::REFDB_REMEDY_NONE,
            };
            let path = error.message().path();
            let path = path.map_or(&b""[..], |path| path.as_os_str().as_bytes());
            let line = error.line().unwrap_or(0);
            keep(status_of(error), remedy, &error.to_string(), path, line)
        }
    }
}

fn keep_panic(panic: Box<dyn Any + Send>) -> Option<refdb_status> {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let message = format!("a fault in refdb: {}", text.unwrap_or("of an unknown kind"));
    let kept = catch_unwind(|| {
        let remedy = refdb_remedy::REFDB_REMEDY_NONE;
        keep(refdb_status::REFDB_PANIC, remedy, &message, &[], 0)
    });
    // What is dropped may panic once more.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(panic)));
    kept.ok()
}

fn keep(
    status: refdb_status,
    remedy: refdb_remedy,
    message: &str,
    path: &[u8],
    line: usize,
) -> refdb_status {
    let message = CString::new(message.replace('\0', "\\0")).unwrap_or_default();
    let path = path.to_vec();
    let kept = Kept {
        shown: refdb_error {
            status,
            remedy,
            message: message.as_ptr(),
            path: refdb_bytes::of(&path),
            line,
        },
        _message: message,
        _path: path,
    };
    // A thread that ends may have lost its place already: then nobody asks any more.
    let _ = LAST.try_with(|last| *last.borrow_mut() = Some(Box::new(kept)));
    status
}

/// Returns the code that stands for an error.
fn status_of(error: &Error) -> refdb_status {
    match error.kind() {
        // What Git tells as a refusal may come off a moment later.
        ErrorKind::Rejected if error.message().is_held() => refdb_status::REFDB_LOCKED,
        ErrorKind::Io => refdb_status::REFDB_IO,
        ErrorKind::Locked => refdb_status::REFDB_LOCKED,
        ErrorKind::Corrupt | ErrorKind::PackedRefs => refdb_status::REFDB_CORRUPT,
        ErrorKind::BrokenRef => refdb_status::REFDB_BROKEN_REF,
        ErrorKind::InvalidName => refdb_status::REFDB_INVALID_NAME,
        ErrorKind::Rejected => refdb_status::REFDB_REJECTED,
        ErrorKind::Unsupported => refdb_status::REFDB_UNSUPPORTED,
        ErrorKind::Config | ErrorKind::Date => refdb_status::REFDB_CONFIG,
        ErrorKind::NoRepository | ErrorKind::BareRepository | ErrorKind::Repository => {
            refdb_status::REFDB_REPOSITORY
        }
        ErrorKind::Hook => refdb_status::REFDB_HOOK,
        ErrorKind::Misuse => refdb_status::REFDB_MISUSE,
        ErrorKind::Moved => refdb_status::REFDB_MOVED,
        // Nobody can ask a store for it that was opened here.
        _ => refdb_status::REFDB_UNKNOWN,
    }
}

/// Returns what the last failing call of this thread said; null if none has failed.
///
/// Ownership: it belongs to the library, and stays as it is until another call of this thread fails.
/// Threads: each has its own.
#[unsafe(no_mangle)]
pub extern "C" fn refdb_last_error() -> *const refdb_error {
    let last = LAST.try_with(|last| match last.borrow().as_ref() {
        Some(kept) => ptr::from_ref(&kept.shown),
        None => ptr::null(),
    });
    last.unwrap_or(ptr::null())
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn last() -> (refdb_status, String) {
        let last = refdb_last_error();
        assert!(!last.is_null());
        // SAFETY: nothing of this thread fails while it is read.
        unsafe {
            let message = CStr::from_ptr((*last).message);
            ((*last).status, message.to_str().unwrap().to_owned())
        }
    }

    #[test]
    fn a_panic_is_a_code_and_a_text() {
        assert!(refdb_last_error().is_null());
        let status = border!(panic!("planted {}", 1));
        assert_eq!(status, refdb_status::REFDB_PANIC);
        let text = "a fault in refdb: planted 1".to_owned();
        assert_eq!(last(), (refdb_status::REFDB_PANIC, text));
    }

    #[test]
    fn each_thread_has_its_own_error() {
        let status = border!(Err(Failure::Argument("one")));
        assert_eq!(status, refdb_status::REFDB_MISUSE);
        std::thread::spawn(|| {
            assert!(refdb_last_error().is_null());
            let _ = border!(Err(Failure::Argument("other")));
        })
        .join()
        .unwrap();
        assert_eq!(last(), (refdb_status::REFDB_MISUSE, "one".to_owned()));
    }

    #[test]
    fn an_error_tells_its_path_and_line() {
        let error = Error::corrupt("/a/packed-refs".as_ref(), "cut\0off");
        let status = border!(Err(Failure::Refdb(error)));
        assert_eq!(status, refdb_status::REFDB_CORRUPT);
        // SAFETY: as above.
        let kept = unsafe { *refdb_last_error() };
        assert_eq!(kept.remedy, refdb_remedy::REFDB_REMEDY_REPAIR);
        // SAFETY: as above.
        assert_eq!(
            unsafe { kept.path.get() }.ok(),
            Some(&b"/a/packed-refs"[..])
        );
        assert_eq!(last().1, "/a/packed-refs: cut\\0off");
    }
}
