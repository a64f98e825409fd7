//! What crosses the border: byte strings, ids, codes.

use std::slice;

use refdb::{ObjectFormat, ObjectId};

use crate::border::Failure;

/// Whether a call succeeded, and if not, what can be done. Failures are negative.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum refdb_status {
    /// It did.
    REFDB_OK = 0,
    /// There is no such thing. This is an answer and no failure.
    REFDB_MISSING = 1,
    /// The system refused a file operation: look at the message; a retry may help.
    REFDB_IO = -1,
    /// Another process holds a lock: try again later.
    REFDB_LOCKED = -2,
    /// A file of the ref store, or an object, is damaged or missing: look at the remedy.
    REFDB_CORRUPT = -3,
    /// A single ref is unreadable: delete or rewrite it.
    REFDB_BROKEN_REF = -4,
    /// A name breaks Git's rules: choose another.
    REFDB_INVALID_NAME = -5,
    /// An edit was refused: see the outcome; read again and decide anew.
    REFDB_REJECTED = -6,
    /// The repository needs something that this version cannot do.
    REFDB_UNSUPPORTED = -7,
    /// A configuration value, or a date in the environment, is invalid: mend it.
    REFDB_CONFIG = -8,
    /// There is no repository at the path, or it may not be opened: check path and owner.
    REFDB_REPOSITORY = -9,
    /// A hook refused the transaction, or could not be called.
    REFDB_HOOK = -10,
    /// The caller asked for something that makes no sense: mend the caller.
    REFDB_MISUSE = -11,
    /// The refs were moved into the other format since the store was opened: open it again.
    REFDB_MOVED = -12,
    /// A failure that has no code of its own: look at the message.
    REFDB_UNKNOWN = -13,
    /// A fault in refdb itself. The thing that was used is to be freed and not to be used again.
    REFDB_PANIC = -14,
}

/// What can be done about an error beside what its code says.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum refdb_remedy {
    /// Nothing in particular.
    REFDB_REMEDY_NONE = 0,
    /// The refs are damaged: `refdb refs verify --deep` tells all that is wrong, `refdb refs repair`
    /// mends what can be mended.
    REFDB_REMEDY_REPAIR = 1,
    /// A lock was made by a process of which nobody can tell whether it runs: if it does not,
    /// `refdb refs repair --remove-locks` finishes what it began.
    REFDB_REMEDY_REMOVE_LOCKS = 2,
    /// A transaction that was committed cannot be finished: remove what is in its way, or let
    /// `refdb refs repair --give-up` do what can be done of it.
    REFDB_REMEDY_GIVE_UP = 3,
}

/// Bytes of any value, a name for example; no zero byte ends them. Null is fine where `len` is 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct refdb_bytes {
    /// The first one.
    pub data: *const u8,
    /// How many there are.
    pub len: usize,
}

/// The id of an object, of either hash.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct refdb_oid {
    /// The raw bytes, of which the first `len` count.
    pub bytes: [u8; 32],
    /// How many there are: 20 for SHA-1, 32 for SHA-256, 0 for no id at all.
    pub len: u8,
}

impl refdb_bytes {
    pub(crate) const EMPTY: refdb_bytes = refdb_bytes {
        data: std::ptr::null(),
        len: 0,
    };

    /// Shows bytes that somebody keeps.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        refdb_bytes {
            data: bytes.as_ptr(),
            len: bytes.len(),
        }
    }

    /// Returns the bytes.
    ///
    /// # Safety
    /// `data` is null or begins `len` readable bytes, which nobody changes during `'a`.
    pub(crate) unsafe fn get<'a>(self) -> Result<&'a [u8], Failure> {
        match (self.data.is_null(), self.len) {
            (_, 0) => Ok(b""),
            (true, _) => Err(Failure::Argument("bytes are null, but not empty")),
            (false, len) if isize::try_from(len).is_err() => {
                Err(Failure::Argument("there are more bytes than memory has"))
            }
            // SAFETY: the caller says so.
            (false, len) => Ok(unsafe { slice::from_raw_parts(self.data, len) }),
        }
    }
}

impl refdb_oid {
    pub(crate) const NONE: refdb_oid = refdb_oid {
        bytes: [0; 32],
        len: 0,
    };

    pub(crate) fn of(oid: Option<ObjectId>) -> Self {
        let Some(oid) = oid else {
            return refdb_oid::NONE;
        };
        let raw = oid.as_bytes();
        let mut bytes = [0; 32];
        bytes[..raw.len()].copy_from_slice(raw);
        let len = match oid.format() {
            ObjectFormat::Sha1 => 20,
            ObjectFormat::Sha256 => 32,
        };
        refdb_oid { bytes, len }
    }

    /// Returns the id, which has to be one.
    pub(crate) fn get(&self) -> Result<ObjectId, Failure> {
        let raw = self.bytes.get(..usize::from(self.len));
        let oid = raw.and_then(ObjectId::from_bytes);
        oid.ok_or(Failure::Argument("an id has 20 or 32 bytes"))
    }
}

/// Returns what a pointer of a caller points to.
///
/// # Safety
/// It is null or points to a `T` that nobody changes during `'a`.
pub(crate) unsafe fn shared<'a, T>(pointer: *const T) -> Result<&'a T, Failure> {
    // SAFETY: the caller says so.
    unsafe { pointer.as_ref() }.ok_or(Failure::Argument("a pointer is null"))
}

/// Returns what a pointer of a caller points to.
///
/// # Safety
/// It is null or points to a `T` that nobody else uses during `'a`.
pub(crate) unsafe fn unique<'a, T>(pointer: *mut T) -> Result<&'a mut T, Failure> {
    // SAFETY: the caller says so.
    unsafe { pointer.as_mut() }.ok_or(Failure::Argument("a pointer is null"))
}

/// Returns the things that a caller gives as an array.
///
/// # Safety
/// `first` is null or begins `len` of them, which nobody changes during `'a`.
pub(crate) unsafe fn many<'a, T>(first: *const T, len: usize) -> Result<&'a [T], Failure> {
    if len == 0 {
        return Ok(&[]);
    }
    if first.is_null()
        || len
            .checked_mul(size_of::<T>())
            .is_none_or(|len| isize::try_from(len).is_err())
    {
        return Err(Failure::Argument("an array is null, but not empty"));
    }
    // SAFETY: the caller says so.
    Ok(unsafe { slice::from_raw_parts(first, len) })
}

/// Returns the place where a caller wants a handle, and makes it null.
///
/// # Safety
/// It is null or points to a place that nobody else uses during `'a`.
pub(crate) unsafe fn place<'a, T>(out: *mut *mut T) -> Result<&'a mut *mut T, Failure> {
    // SAFETY: the caller says so. What was there need not be a pointer: it is not read.
    let place = unsafe { unique(out)? };
    *place = std::ptr::null_mut();
    Ok(place)
}

/// Takes back what was given out by `Box::into_raw`; null is fine.
///
/// # Safety
/// It was given out so, and was not taken back yet.
pub(crate) unsafe fn take_back<T>(pointer: *mut T) {
    if !pointer.is_null() {
        // A panic of a destructor is no reason to end the caller.
        let _ = border!({
            // SAFETY: the caller says so.
            drop(unsafe { Box::from_raw(pointer) });
            Ok(refdb_status::REFDB_OK)
        });
    }
}
