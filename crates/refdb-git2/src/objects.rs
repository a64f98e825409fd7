//! Objects, as libgit2 has them: also those that only backends of the host know.

use std::ffi::c_int;
use std::fmt;

use refdb::objects::{ObjectKind, Objects, Peeled};
use refdb::{Error, ErrorKind, ObjectId, Result};

use crate::abi::Libgit2;
use crate::ffi::{code, git_odb, git_odb_object, git_repository};

/// No chain of tags is longer.
const TAGS_MAX: usize = 1024;

/// The object database of a repository that libgit2 has open.
pub(crate) struct OdbOf {
    pub(crate) lib: &'static Libgit2,
    pub(crate) repository: *mut git_repository,
}

// SAFETY: libgit2's object databases may be used by several threads.
unsafe impl Send for OdbOf {}
// SAFETY: as above.
unsafe impl Sync for OdbOf {}

impl fmt::Debug for OdbOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OdbOf")
    }
}

/// What is freed at the end.
struct Freed<T>(*mut T, unsafe extern "C" fn(*mut T));

impl<T> Drop for Freed<T> {
    fn drop(&mut self) {
        // SAFETY: whoever made this says that it may be freed so, once.
        unsafe { (self.1)(self.0) }
    }
}

impl OdbOf {
    /// Opens the object database. The host may have set another one since the last time.
    fn open(&self) -> Result<Freed<git_odb>> {
        let functions = &self.lib.functions;
        let mut odb = std::ptr::null_mut();
        // SAFETY: the repository outlives its refs.
        let answer = unsafe { (functions.git_repository_odb)(&raw mut odb, self.repository) };
        self.check(answer)?;
        Ok(Freed(odb, functions.git_odb_free))
    }

    /// Turns a code of libgit2's into an error.
    fn check(&self, answer: c_int) -> Result<()> {
        match answer {
            0.. => Ok(()),
            _ => Err(Error::new(
                ErrorKind::Corrupt,
                "the object database cannot be read",
            )),
        }
    }

    fn kind_in(&self, odb: &Freed<git_odb>, oid: ObjectId) -> Result<Option<ObjectKind>> {
        let (mut len, mut kind) = (0, 0);
        let raw = self.lib.raw(&oid);
        let functions = &self.lib.functions;
        // SAFETY: the places can be written, and the id is one of this libgit2.
        let answer = unsafe {
            (functions.git_odb_read_header)(&raw mut len, &raw mut kind, odb.0, raw.as_ptr())
        };
        if answer == code::NOT_FOUND {
            // SAFETY: it only forgets what it said just now.
            unsafe { (functions.git_error_clear)() };
            return Ok(None);
        }
        self.check(answer)?;
        Ok(match kind {
            1 => Some(ObjectKind::Commit),
            2 => Some(ObjectKind::Tree),
            3 => Some(ObjectKind::Blob),
            4 => Some(ObjectKind::Tag),
            _ => None,
        })
    }

    /// Returns what a tag is of, and of which kind it says that this is.
    fn target(&self, odb: &Freed<git_odb>, tag: ObjectId) -> Result<Option<(ObjectId, Vec<u8>)>> {
        let functions = &self.lib.functions;
        let mut object: *mut git_odb_object = std::ptr::null_mut();
        let raw = self.lib.raw(&tag);
        // SAFETY: the place can be written, and the id is one of this libgit2.
        let answer = unsafe { (functions.git_odb_read)(&raw mut object, odb.0, raw.as_ptr()) };
        self.check(answer)?;
        let object = Freed(object, functions.git_odb_object_free);
        // SAFETY: it was given out just now, and has so many bytes.
        let content = unsafe {
            let data = (functions.git_odb_object_data)(object.0).cast::<u8>();
            std::slice::from_raw_parts(data, (functions.git_odb_object_size)(object.0))
        };
        let mut lines = content.split(|&byte| byte == b'\n');
        let mut field = |key: &[u8]| lines.next()?.strip_prefix(key);
        let oid = field(b"object ").and_then(ObjectId::from_hex);
        let kind = field(b"type ").map(<[u8]>::to_vec);
        Ok(oid.zip(kind))
    }
}

impl Objects for OdbOf {
    fn kind(&self, oid: ObjectId) -> Result<Option<ObjectKind>> {
        self.kind_in(&self.open()?, oid)
    }

    fn peel(&self, oid: ObjectId) -> Result<Peeled> {
        let odb = self.open()?;
        let mut kind = match self.kind_in(&odb, oid)? {
            None => return Ok(Peeled::Missing),
            Some(kind) => kind,
        };
        let mut at = oid;
        for _ in 0..TAGS_MAX {
            if kind != ObjectKind::Tag {
                return Ok(match at == oid {
                    true => Peeled::Itself,
                    false => Peeled::To(at),
                });
            }
            let Some((next, claimed)) = self.target(&odb, at)? else {
                return Ok(Peeled::Nowhere);
            };
            match self.kind_in(&odb, next)? {
                Some(found) if found.as_str().as_bytes() == claimed => (at, kind) = (next, found),
                _ => return Ok(Peeled::Nowhere),
            }
        }
        Ok(Peeled::Nowhere)
    }
}
