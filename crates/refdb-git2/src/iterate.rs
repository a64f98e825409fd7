//! Iterators over refs. Each has its own snapshot: what is written meanwhile, it does not see.

use std::ffi::{CString, c_char, c_int};
use std::ptr;

use gix_glob::wildmatch::Mode;
use refdb::{ErrorKind, Refs};

use crate::abi::Libgit2;
use crate::backend::Backend;
use crate::border::{Failure, run, text};
use crate::ffi::{code, git_refdb_backend, git_reference, git_reference_iterator as Parent};
use crate::refs::give_out;

/// What is below it is listed: HEAD and other root refs are not.
const ALL: &[u8] = b"refs/";

/// An iterator, as libgit2 sees it, and behind that what is ours.
#[repr(C)]
struct Iterator {
    parent: Parent,
    lib: &'static Libgit2,
    /// `None` if no ref can match.
    refs: Option<Refs>,
    glob: Option<Vec<u8>>,
    /// The name that was given out last.
    name: CString,
}

impl Iterator {
    /// Moves to the next ref that matches, and returns what `take` makes of it; passes over those of which
    /// it makes nothing.
    fn next<T>(
        &mut self,
        mut take: impl FnMut(&Libgit2, &refdb::RefRecord<'_>) -> Result<Option<T>, Failure>,
    ) -> Result<T, Failure> {
        let Some(refs) = &mut self.refs else {
            return Err(Failure::Over);
        };
        loop {
            let record = match refs.next() {
                Ok(record) => record.ok_or(Failure::Over)?,
                Err(error) if error.kind() == ErrorKind::BrokenRef => continue,
                Err(error) => return Err(error.into()),
            };
            let name = record.name.as_bytes();
            let matches = |glob: &Vec<u8>| {
                gix_glob::wildmatch(glob.as_slice().into(), name.into(), Mode::empty())
            };
            if self.glob.as_ref().is_none_or(matches)
                && let Some(taken) = take(self.lib, &record)?
            {
                return Ok(taken);
            }
        }
    }
}

/// Returns with what every name begins that matches; `None` if no ref of those that are listed can.
fn prefix(glob: &[u8]) -> Option<&[u8]> {
    let special = glob.iter().position(|byte| b"*?[\\".contains(byte));
    let literal = glob
        .get(..special.unwrap_or(glob.len()))
        .unwrap_or_default();
    if literal.starts_with(ALL) {
        Some(literal)
    } else {
        ALL.starts_with(literal).then_some(ALL)
    }
}

pub(crate) unsafe extern "C" fn iterator(
    out: *mut *mut Parent,
    backend: *mut git_refdb_backend,
    glob: *const c_char,
) -> c_int {
    // SAFETY: libgit2 gives back its backend.
    let backend = unsafe { Backend::of(backend) };
    run(backend.lib, || {
        // SAFETY: libgit2 gives a place, and a text or null.
        let glob = unsafe {
            *out = ptr::null_mut();
            text(glob)
        };
        let refs = match glob.map_or(Some(ALL), prefix) {
            None => None,
            Some(prefix) => Some(backend.with(|store| {
                let mut refs = store.refs()?;
                refs.seek_prefix(prefix)?;
                Ok(refs)
            })?),
        };
        let made = Box::new(Iterator {
            parent: Parent {
                db: ptr::null_mut(),
                next,
                next_name,
                free,
            },
            lib: backend.lib,
            refs,
            glob: glob.map(<[u8]>::to_vec),
            name: CString::default(),
        });
        // SAFETY: as above.
        unsafe { *out = Box::into_raw(made).cast() };
        Ok(code::OK)
    })
}

unsafe extern "C" fn next(out: *mut *mut git_reference, parent: *mut Parent) -> c_int {
    // SAFETY: libgit2 gives back its iterator, to one thread at a time.
    let iterator = unsafe { &mut *parent.cast::<Iterator>() };
    run(iterator.lib, || {
        let found = iterator.next(|lib, record| match record.broken {
            true => Ok(None),
            false => {
                let (target, peeled) = (record.target, record.peeled.as_ref());
                give_out(lib, record.name, target, peeled).map(Some)
            }
        })?;
        // SAFETY: libgit2 gives a place.
        unsafe { *out = found };
        Ok(code::OK)
    })
}

unsafe extern "C" fn next_name(out: *mut *const c_char, parent: *mut Parent) -> c_int {
    // SAFETY: as for `next`.
    let iterator = unsafe { &mut *parent.cast::<Iterator>() };
    run(iterator.lib, || {
        // A name with a null byte cannot be told.
        iterator.name = iterator.next(|_, record| Ok(CString::new(record.name.as_bytes()).ok()))?;
        // SAFETY: libgit2 gives a place.
        unsafe { *out = iterator.name.as_ptr() };
        Ok(code::OK)
    })
}

unsafe extern "C" fn free(parent: *mut Parent) {
    if !parent.is_null() {
        // SAFETY: it was made above, and is freed once.
        drop(unsafe { Box::from_raw(parent.cast::<Iterator>()) });
    }
}

#[cfg(test)]
mod tests {
    use super::prefix;

    #[test]
    fn a_pattern_begins_with_a_literal_part() {
        let of =
            |glob: &str| prefix(glob.as_bytes()).map(|it| String::from_utf8_lossy(it).into_owned());
        assert_eq!(of("refs/heads/a*").as_deref(), Some("refs/heads/a"));
        assert_eq!(of("refs/tags/v1").as_deref(), Some("refs/tags/v1"));
        assert_eq!(of("*").as_deref(), Some("refs/"));
        assert_eq!(of("re?s/*").as_deref(), Some("refs/"));
        assert_eq!(of("HEAD"), None);
        assert_eq!(of("heads/*"), None);
    }
}
