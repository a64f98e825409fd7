//! The two binary interfaces of libgit2: that of the releases up to 1.9, and that of its main branch. Both
//! say that they are of version 1, so each is known by what it does.
//!
//! Invariant: nothing is told by a version number, and what is neither is refused.

use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

use refdb::{Error, ErrorKind, ObjectFormat, ObjectId, Result};

use crate::ffi::{Functions, git_oid, git_refdb_backend, git_reference};

/// A libgit2 that is in this process.
pub(crate) struct Libgit2 {
    pub(crate) functions: Functions,
    /// Whether backends have the callback `init` before the others.
    pub(crate) has_init: bool,
    /// Whether an id begins with a byte that says its kind.
    pub(crate) typed_oids: bool,
}

/// As many words as the longest `git_refdb_backend` has.
pub(crate) const WORDS_MAX: usize = 18;
/// Bytes of the longest `git_oid`.
const OID_MAX: usize = 33;

/// An id as libgit2 takes it.
#[repr(C, align(8))]
pub(crate) struct RawOid([u8; OID_MAX]);

impl RawOid {
    pub(crate) fn as_ptr(&self) -> *const git_oid {
        self.0.as_ptr().cast()
    }
}

impl Libgit2 {
    /// Finds out how the libgit2 of these functions does things. It stays as long as the process.
    pub(crate) fn of(functions: Functions) -> Result<&'static Libgit2> {
        static KNOWN: Mutex<Vec<&'static Libgit2>> = Mutex::new(Vec::new());
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let place = |functions: &Functions| functions.git_refdb_new as usize;
        let same = |lib: &&&Libgit2| place(&lib.functions) == place(&functions);
        if let Some(lib) = known.iter().find(same) {
            return Ok(lib);
        }
        let lib: &Libgit2 = Box::leak(Box::new(Libgit2 {
            has_init: has_init(&functions)?,
            typed_oids: has_typed_oids(&functions)?,
            functions,
        }));
        known.push(lib);
        Ok(lib)
    }

    /// Returns an id as libgit2 takes it.
    pub(crate) fn raw(&self, oid: &ObjectId) -> RawOid {
        let mut raw = [0; OID_MAX];
        let from = match self.typed_oids {
            true => {
                raw[0] = match oid.format() {
                    ObjectFormat::Sha1 => 1,
                    ObjectFormat::Sha256 => 2,
                };
                1
            }
            false => 0,
        };
        let bytes = oid.as_bytes();
        raw[from..from + bytes.len()].copy_from_slice(bytes);
        RawOid(raw)
    }

    /// Reads an id of libgit2's; `None` for a null pointer, and for what is no id.
    ///
    /// # Safety
    /// It points to an id.
    pub(crate) unsafe fn oid(&self, oid: *const git_oid) -> Option<ObjectId> {
        if oid.is_null() {
            return None;
        }
        let bytes = oid.cast::<u8>();
        let (from, len) = match self.typed_oids {
            // SAFETY: the caller says so.
            true => match unsafe { bytes.read() } {
                1 => (1, 20),
                2 => (1, 32),
                _ => return None,
            },
            false => (0, 20),
        };
        // SAFETY: the caller says so.
        ObjectId::from_bytes(unsafe { std::slice::from_raw_parts(bytes.add(from), len) })
    }
}

/// Returns whether a backend has one member more: `git_refdb_init_backend` writes as many as there are.
fn has_init(functions: &Functions) -> Result<bool> {
    const UNTOUCHED: usize = usize::MAX;
    let mut words = [UNTOUCHED; 2 * WORDS_MAX];
    let backend = words.as_mut_ptr().cast::<git_refdb_backend>();
    // SAFETY: there is room for twice as many members as there are in any version.
    let answer = unsafe { (functions.git_refdb_init_backend)(backend, 1) };
    let written = words.iter().rposition(|&word| word != UNTOUCHED);
    match (answer, written.map_or(0, |last| last + 1)) {
        (0, 17) => Ok(false),
        (0, 18) => Ok(true),
        (_, count) => {
            let text = format!("this libgit2 has backends of {count} members, which is unknown");
            Err(Error::new(ErrorKind::Unsupported, text))
        }
    }
}

/// Returns whether ids are longer by a byte that says their kind: then one byte more of an id is copied.
fn has_typed_oids(functions: &Functions) -> Result<bool> {
    const FILLED: u8 = 0xa5;
    let mut given = [FILLED; OID_MAX];
    given[0] = 1;
    // SAFETY: it is as long as the longest id, and the text ends with a null byte.
    let made: *mut git_reference = unsafe {
        (functions.git_reference__alloc)(
            c"refs/heads/probe".as_ptr(),
            given.as_ptr().cast(),
            std::ptr::null(),
        )
    };
    if made.is_null() {
        return Err(Error::new(ErrorKind::Io, "libgit2 has no memory left"));
    }
    // SAFETY: it was made just now. After the id there is the one that it peels to, so that 21 bytes can be
    // read in either case.
    let copied = unsafe {
        let target = (functions.git_reference_target)(made).cast::<[u8; 21]>();
        let copied = target.as_ref().copied();
        (functions.git_reference_free)(made);
        copied
    };
    match copied {
        Some(copied) if copied[..20] == given[..20] => match copied[20] {
            FILLED => Ok(true),
            0 => Ok(false),
            _ => Err(unknown_oids()),
        },
        _ => Err(unknown_oids()),
    }
}

fn unknown_oids() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "this libgit2 has ids of an unknown kind",
    )
}

/// Where the callbacks of a backend are, from the first that all versions have.
#[derive(Clone, Copy)]
#[repr(usize)]
pub(crate) enum Member {
    Exists,
    Lookup,
    Iterator,
    Write,
    Rename,
    Del,
    Compress,
    HasLog,
    EnsureLog,
    Free,
    ReflogRead,
    ReflogWrite,
    ReflogRename,
    ReflogDelete,
    Lock,
    Unlock,
}

impl Libgit2 {
    /// Returns at which word of a backend a callback is.
    pub(crate) fn word(&self, member: Member) -> usize {
        1 + usize::from(self.has_init) + member as usize
    }

    /// Tells a caller what is wrong, for `git_error_last`.
    pub(crate) fn tell(&self, class: c_int, text: &str) {
        let text = std::ffi::CString::new(text.replace('\0', "\\0")).unwrap_or_default();
        // SAFETY: the text ends with a null byte, and is copied.
        unsafe { (self.functions.git_error_set_str)(class, text.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::{CStr, c_char, c_uint, c_void};
    use std::ptr;

    use super::*;

    /// A libgit2 whose backends have so many members, and of whose ids so many bytes are copied.
    fn fake<const MEMBERS: usize, const OID_LEN: usize>() -> Functions {
        unsafe extern "C" fn init<const MEMBERS: usize>(
            backend: *mut git_refdb_backend,
            version: c_uint,
        ) -> c_int {
            assert_eq!(version, 1);
            // SAFETY: the caller has room for more.
            unsafe { ptr::write_bytes(backend.cast::<usize>(), 0, MEMBERS) };
            0
        }
        unsafe extern "C" fn alloc<const OID_LEN: usize>(
            _name: *const c_char,
            oid: *const git_oid,
            _peeled: *const git_oid,
        ) -> *mut git_reference {
            let made = Box::into_raw(Box::new([0_u8; 80]));
            // SAFETY: an id has so many bytes, and there is room for them.
            unsafe { ptr::copy_nonoverlapping(oid.cast::<u8>(), made.cast::<u8>(), OID_LEN) };
            made.cast()
        }
        unsafe extern "C" fn target(made: *const git_reference) -> *const git_oid {
            made.cast()
        }
        unsafe extern "C" fn free(made: *mut git_reference) {
            // SAFETY: it was made above.
            drop(unsafe { Box::from_raw(made.cast::<[u8; 80]>()) });
        }
        let place = 16 * (1000 * MEMBERS + OID_LEN);
        let found = |name: &CStr| match name.to_bytes() {
            b"git_refdb_init_backend" => init::<MEMBERS> as *mut c_void,
            b"git_reference__alloc" => alloc::<OID_LEN> as *mut c_void,
            b"git_reference_target" => target as *mut c_void,
            b"git_reference_free" => free as *mut c_void,
            // Called by nobody here. It tells one fake from another.
            _ => ptr::without_provenance_mut(place),
        };
        Functions::find(&found).unwrap()
    }

    fn sha1() -> ObjectId {
        ObjectId::from_hex(&[b'7'; 40]).unwrap()
    }

    #[test]
    fn a_release_is_known_by_what_it_does() {
        let lib = Libgit2::of(fake::<17, 20>()).unwrap();
        assert_eq!((lib.has_init, lib.typed_oids), (false, false));
        assert_eq!(lib.word(Member::Exists), 1);
        assert_eq!(lib.word(Member::Unlock), 16);
        let raw = lib.raw(&sha1());
        assert_eq!(raw.0[..21], [&[0x77; 20][..], &[0]].concat());
        // SAFETY: it is one.
        assert_eq!(unsafe { lib.oid(raw.as_ptr()) }, Some(sha1()));
        // SAFETY: null is fine.
        assert_eq!(unsafe { lib.oid(ptr::null()) }, None);
    }

    #[test]
    fn the_main_branch_is_known_by_what_it_does() {
        let lib = Libgit2::of(fake::<18, 21>()).unwrap();
        assert_eq!((lib.has_init, lib.typed_oids), (true, true));
        assert_eq!(lib.word(Member::Exists), 2);
        assert_eq!(lib.word(Member::Unlock), 17);
        for oid in [sha1(), ObjectId::from_hex(&[b'8'; 64]).unwrap()] {
            // SAFETY: it is one.
            assert_eq!(unsafe { lib.oid(lib.raw(&oid).as_ptr()) }, Some(oid));
        }
        assert_eq!(lib.raw(&sha1()).0[0], 1);
    }

    #[test]
    fn what_is_neither_is_refused() {
        for functions in [fake::<16, 20>(), fake::<19, 21>(), fake::<17, 19>()] {
            let refused = Libgit2::of(functions).err().unwrap();
            assert_eq!(refused.kind(), ErrorKind::Unsupported);
        }
    }
}
