//! Arrow's C data interface: three structs whose layout others rely on, and who frees what.
#![expect(
    unsafe_code,
    reason = "columns change hands by raw pointers, with a function that frees them"
)]

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;
use std::vec::IntoIter;

use crate::table::{Batch, Bits, Field, Ids, Table, Texts};

/// A type, as Arrow describes one in C.
#[repr(C)]
#[derive(Debug)]
pub struct ArrowSchema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut ArrowSchema,
    dictionary: *mut ArrowSchema,
    release: Option<unsafe extern "C" fn(*mut ArrowSchema)>,
    private_data: *mut c_void,
}

/// A column or a batch of columns, as Arrow describes one in C.
#[repr(C)]
#[derive(Debug)]
pub struct ArrowArray {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut ArrowArray,
    dictionary: *mut ArrowArray,
    release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    private_data: *mut c_void,
}

/// Batches, one after the other, as Arrow describes them in C. Dropping it frees what nobody took.
#[repr(C)]
#[derive(Debug)]
pub struct ArrowArrayStream {
    get_schema: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowSchema) -> c_int>,
    get_next: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowArray) -> c_int>,
    get_last_error: Option<unsafe extern "C" fn(*mut ArrowArrayStream) -> *const c_char>,
    release: Option<unsafe extern "C" fn(*mut ArrowArrayStream)>,
    private_data: *mut c_void,
}

// SAFETY: what it points to is its own, and nothing of it belongs to a thread.
unsafe impl Send for ArrowArrayStream {}

impl Drop for ArrowArrayStream {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: it was not released, or `release` would be gone.
            unsafe { release(self) }
        }
    }
}

const NULLABLE: i64 = 2;

/// The end of a stream owns nothing: it counts as released.
const END: ArrowArray = ArrowArray {
    length: 0,
    null_count: 0,
    offset: 0,
    n_buffers: 0,
    n_children: 0,
    buffers: ptr::null_mut(),
    children: ptr::null_mut(),
    dictionary: ptr::null_mut(),
    release: None,
    private_data: ptr::null_mut(),
};

/// What a schema owns.
struct OwnedSchema {
    format: CString,
    name: CString,
    children: Vec<*mut ArrowSchema>,
}

/// What an array owns: buffers, and the pointers to them.
struct OwnedArray {
    _buffers: Vec<Buffer>,
    pointers: Vec<*const c_void>,
    children: Vec<*mut ArrowArray>,
}

enum Buffer {
    None,
    Zeros,
    Ones,
    Bytes(Vec<u8>),
    Offsets(Vec<i32>),
}

/// What columns have in common of which all is zero. No batch needs more, but for long ones.
static ZEROS: [u64; 4096] = [0; 4096];
/// The same, of all bits set.
static ONES: [u64; 64] = [u64::MAX; 64];

impl Buffer {
    fn zeros(len: usize) -> Buffer {
        match len <= size_of_val(&ZEROS) {
            true => Buffer::Zeros,
            false => Buffer::Bytes(vec![0; len]),
        }
    }

    fn bits(bits: Bits) -> Buffer {
        let len = bits.len.div_ceil(8);
        match bits.unset {
            _ if !bits.bytes.is_empty() => Buffer::Bytes(bits.bytes),
            unset if unset == bits.len => Buffer::zeros(len),
            _ if len <= size_of_val(&ONES) => Buffer::Ones,
            _ => Buffer::Bytes(vec![u8::MAX; len]),
        }
    }

    fn pointer(&self) -> *const c_void {
        match self {
            Buffer::None => ptr::null(),
            Buffer::Zeros => ZEROS.as_ptr().cast(),
            Buffer::Ones => ONES.as_ptr().cast(),
            Buffer::Bytes(bytes) => bytes.as_ptr().cast(),
            Buffer::Offsets(offsets) => offsets.as_ptr().cast(),
        }
    }
}

/// What a stream owns.
struct OwnedStream {
    id_len: usize,
    batches: IntoIter<Batch>,
}

impl Table {
    /// Hands the columns on: batches of some thousand rows each.
    pub fn into_stream(self) -> ArrowArrayStream {
        let owned = OwnedStream {
            id_len: self.format.raw_len(),
            batches: self.batches.into_iter(),
        };
        ArrowArrayStream {
            get_schema: Some(get_schema),
            get_next: Some(get_next),
            get_last_error: Some(get_last_error),
            release: Some(release_stream),
            private_data: Box::into_raw(Box::new(owned)).cast(),
        }
    }
}

/// The caller keeps Arrow's contract: both point to structs, and `stream` was not released.
unsafe extern "C" fn get_schema(stream: *mut ArrowArrayStream, out: *mut ArrowSchema) -> c_int {
    // SAFETY: `private_data` is what `into_stream` made, until it is released.
    let owned = unsafe { &*(*stream).private_data.cast::<OwnedStream>() };
    let ids = format!("w:{}", owned.id_len);
    let children = Field::ALL.map(|field| match field {
        Field::Name => schema("z", "name", 0, vec![]),
        Field::Oid => schema(&ids, "oid", NULLABLE, vec![]),
        Field::Symref => schema("z", "symref", NULLABLE, vec![]),
        Field::Peeled => schema(&ids, "peeled", NULLABLE, vec![]),
        Field::Broken => schema("b", "broken", 0, vec![]),
    });
    // SAFETY: `out` is the caller's and holds nothing.
    unsafe { out.write(schema("+s", "", 0, children.into())) };
    0
}

/// As for `get_schema`.
unsafe extern "C" fn get_next(stream: *mut ArrowArrayStream, out: *mut ArrowArray) -> c_int {
    // SAFETY: as in `get_schema`; one thread at a time uses a stream.
    let owned = unsafe { &mut *(*stream).private_data.cast::<OwnedStream>() };
    let next = match owned.batches.next() {
        Some(batch) => batch_array(batch, owned.id_len),
        None => END,
    };
    // SAFETY: `out` is the caller's and holds nothing.
    unsafe { out.write(next) };
    0
}

/// There never is one: everything was read before the stream was made.
unsafe extern "C" fn get_last_error(_stream: *mut ArrowArrayStream) -> *const c_char {
    ptr::null()
}

/// As for `get_schema`.
unsafe extern "C" fn release_stream(stream: *mut ArrowArrayStream) {
    // SAFETY: made by `into_stream`, and released only once, since `release` is taken away below.
    unsafe {
        drop(Box::from_raw((*stream).private_data.cast::<OwnedStream>()));
        (*stream).release = None;
        (*stream).private_data = ptr::null_mut();
    }
}

fn schema(format: &str, name: &str, flags: i64, children: Vec<ArrowSchema>) -> ArrowSchema {
    let children = children.into_iter().map(Box::new).map(Box::into_raw);
    let mut owned = Box::new(OwnedSchema {
        format: CString::new(format).unwrap_or_default(),
        name: CString::new(name).unwrap_or_default(),
        children: children.collect(),
    });
    ArrowSchema {
        format: owned.format.as_ptr(),
        name: owned.name.as_ptr(),
        metadata: ptr::null(),
        flags,
        n_children: count(owned.children.len()),
        children: owned.children.as_mut_ptr(),
        dictionary: ptr::null_mut(),
        release: Some(release_schema),
        private_data: Box::into_raw(owned).cast(),
    }
}

/// As for `get_schema`.
unsafe extern "C" fn release_schema(schema: *mut ArrowSchema) {
    // SAFETY: made by `schema`; a child that its parent still has is freed with it, and one that was
    // moved away has no `release` left.
    unsafe {
        let owned = Box::from_raw((*schema).private_data.cast::<OwnedSchema>());
        for &child in &owned.children {
            if let Some(release) = (*child).release {
                release(child);
            }
            drop(Box::from_raw(child));
        }
        (*schema).release = None;
        (*schema).private_data = ptr::null_mut();
    }
}

fn array(
    length: usize,
    null_count: usize,
    buffers: Vec<Buffer>,
    children: Vec<ArrowArray>,
) -> ArrowArray {
    let children = children.into_iter().map(Box::new).map(Box::into_raw);
    let mut owned = Box::new(OwnedArray {
        pointers: buffers.iter().map(Buffer::pointer).collect(),
        _buffers: buffers,
        children: children.collect(),
    });
    ArrowArray {
        length: count(length),
        null_count: count(null_count),
        offset: 0,
        n_buffers: count(owned.pointers.len()),
        n_children: count(owned.children.len()),
        buffers: owned.pointers.as_mut_ptr(),
        children: owned.children.as_mut_ptr(),
        dictionary: ptr::null_mut(),
        release: Some(release_array),
        private_data: Box::into_raw(owned).cast(),
    }
}

/// As for `get_schema`.
unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    // SAFETY: as in `release_schema`.
    unsafe {
        let owned = Box::from_raw((*array).private_data.cast::<OwnedArray>());
        for &child in &owned.children {
            if let Some(release) = (*child).release {
                release(child);
            }
            drop(Box::from_raw(child));
        }
        (*array).release = None;
        (*array).private_data = ptr::null_mut();
    }
}

/// Returns the columns of a batch, in the order of [`Field::ALL`].
fn batch_array(batch: Batch, id_len: usize) -> ArrowArray {
    let Batch {
        len,
        names,
        oids,
        symrefs,
        symref_valid,
        peeled,
        broken,
    } = batch;
    let texts = |unset: usize, valid: Buffer, texts: Texts| {
        let offsets = match texts.offsets.is_empty() {
            true => Buffer::zeros((texts.empty + 1) * size_of::<i32>()),
            false => Buffer::Offsets(texts.offsets),
        };
        let buffers = vec![valid, offsets, Buffer::Bytes(texts.bytes)];
        array(len, unset, buffers, vec![])
    };
    let ids = |ids: Ids| {
        let bytes = match ids.bytes.is_empty() {
            true => Buffer::zeros(len * id_len),
            false => Buffer::Bytes(ids.bytes),
        };
        let unset = ids.valid.unset;
        array(len, unset, vec![Buffer::bits(ids.valid), bytes], vec![])
    };
    let broken = vec![Buffer::None, Buffer::bits(broken)];
    let columns = vec![
        texts(0, Buffer::None, names),
        ids(oids),
        texts(symref_valid.unset, Buffer::bits(symref_valid), symrefs),
        ids(peeled),
        array(len, 0, broken, vec![]),
    ];
    array(len, 0, vec![Buffer::None], columns)
}

fn count(len: usize) -> i64 {
    i64::try_from(len).unwrap_or(i64::MAX)
}
