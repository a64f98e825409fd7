//! Listing refs, many in one call.

use refdb::{RefRecord, Refs, Target, TargetRef};
use refdb_arrow::Selection;

use crate::border::Failure;
use crate::store::{plain, refdb_ref, refdb_ref_flags, refdb_store};
use crate::types::{many, place, refdb_bytes, refdb_oid, refdb_status, shared, take_back, unique};

/// Which refs are listed. All zero stands for all of them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct refdb_selection {
    /// What the names start with (no regard for `/`).
    pub prefix: refdb_bytes,
    /// The name behind which they begin; empty for the first one.
    pub start_after: refdb_bytes,
    /// What the names do not start with: `exclude_len` of them.
    pub exclude: *const refdb_bytes,
    /// How many there are.
    pub exclude_len: usize,
}

/// Refs in the order of their names, as they were at one moment.
///
/// For one thread at a time. `refdb_refs_free` frees it; the store may be closed before.
pub struct refdb_refs {
    source: Source,
    /// The names of the refs that were shown last.
    text: Vec<u8>,
    /// How long these are, the name and what it names as a symref.
    lens: Vec<(usize, usize)>,
}

enum Source {
    Cursor(Box<Refs>),
    List(std::vec::IntoIter<refdb::Ref>),
}

/// Returns the selection that a caller gives; null is all.
pub(crate) unsafe fn selection(given: *const refdb_selection) -> Result<Selection, Failure> {
    // SAFETY: the caller says that it is null or can be read.
    let Some(given) = (unsafe { given.as_ref() }) else {
        return Ok(Selection::default());
    };
    // SAFETY: the caller says so.
    unsafe {
        let mut exclude = Vec::new();
        for prefix in many(given.exclude, given.exclude_len)? {
            exclude.push(prefix.get()?.to_vec());
        }
        let start_after = Some(given.start_after.get()?.to_vec());
        Ok(Selection {
            prefix: given.prefix.get()?.to_vec(),
            start_after: start_after.filter(|name| !name.is_empty()),
            exclude,
        })
    }
}

/// Begins to list refs, root refs such as `HEAD` included. `selected` says which; null stands for all.
///
/// Ownership: `*out` is the caller's, who frees it by `refdb_refs_free`; null after a failure.
/// `selected` is not needed afterwards. Threads: any.
///
/// # Safety
/// `store` is open, `selected` can be read, and `out` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refdb_refs_open(
    store: *const refdb_store,
    selected: *const refdb_selection,
    out: *mut *mut refdb_refs,
) -> refdb_status {
    border! {
        // SAFETY: as this function's.
        let (store, out, selection) = unsafe { (shared(store)?, place(out)?, selection(selected)?) };
        let refs = selection.refs(store.store())?;
        give_out(out, Source::Cursor(Box::new(refs)))
    }
}

/// Lists the refs whose value, or peeled value where that is stored, is `oid`.
///
/// Ownership and threads: as for `refdb_refs_open`.
///
/// # Safety
/// `store` is open, `oid` can be read, and `out` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refdb_points_at(
    store: *const refdb_store,
    oid: *const refdb_oid,
    out: *mut *mut refdb_refs,
) -> refdb_status {
    border! {
        // SAFETY: as this function's.
        let (store, out, oid) = unsafe { (shared(store)?, place(out)?, shared(oid)?) };
        let refs = store.store().refs_by_oid(oid.get()?)?;
        give_out(out, Source::List(refs.into_iter()))
    }
}

fn give_out(out: &mut *mut refdb_refs, source: Source) -> crate::border::Answer {
    *out = Box::into_raw(Box::new(refdb_refs {
        source,
        text: Vec::new(),
        lens: Vec::new(),
    }));
    Ok(refdb_status::REFDB_OK)
}

/// Shows the next refs: at most `capacity` of them are written to `records`, and how many to `*count`,
/// which is 0 behind the last one. 1,024 at a time is a good number.
///
/// Ownership: the texts of the records belong to `refs`, and stay until the next call with it. After a
/// failure nothing more is to be had from it. Threads: one at a time.
///
/// # Safety
/// `refs` is not freed; `records` has room for `capacity` records, and `count` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refdb_refs_next(
    refs: *mut refdb_refs,
    records: *mut refdb_ref,
    capacity: usize,
    count: *mut usize,
) -> refdb_status {
    border! {
        // SAFETY: as this function's.
        let (refs, count) = unsafe { (unique(refs)?, unique(count)?) };
        *count = 0;
        if capacity == 0 || records.is_null() {
            return Err(Failure::Argument("there is no room for refs"));
        }
        refs.text.clear();
        refs.lens.clear();
        while refs.lens.len() < capacity {
            let Some((record, name_len, symref_len)) = refs.advance()? else {
                break;
            };
            // SAFETY: there is room for `capacity` of them, and these are fewer. What was there need
            // not be a record: it is only written.
            unsafe { records.add(refs.lens.len()).write(record) };
            refs.lens.push((name_len, symref_len));
        }
        // The texts move no more.
        let mut rest = refs.text.as_slice();
        for (at, &(name_len, symref_len)) in refs.lens.iter().enumerate() {
            let (name, behind) = rest.split_at(name_len);
            let (symref, behind) = behind.split_at(symref_len);
            rest = behind;
            // SAFETY: it was written above.
            let record = unsafe { &mut *records.add(at) };
            record.name = refdb_bytes::of(name);
            record.symref = refdb_bytes::of(symref);
        }
        *count = refs.lens.len();
        Ok(refdb_status::REFDB_OK)
    }
}

impl refdb_refs {
    /// Reads one ref and keeps its texts; returns it without them, and how long they are.
    fn advance(&mut self) -> refdb::Result<Option<(refdb_ref, usize, usize)>> {
        let text = &mut self.text;
        match &mut self.source {
            Source::Cursor(refs) => Ok(refs.next()?.map(|record| kept(text, record))),
            Source::List(refs) => Ok(refs.next().map(|found| {
                let symref = match &found.target {
                    Target::Symbolic(name) => name.as_bytes(),
                    Target::Direct(_) => b"",
                };
                text.extend_from_slice(found.name.as_bytes());
                text.extend_from_slice(symref);
                (
                    crate::store::shown(&found),
                    found.name.as_bytes().len(),
                    symref.len(),
                )
            })),
        }
    }
}

fn kept(text: &mut Vec<u8>, record: RefRecord<'_>) -> (refdb_ref, usize, usize) {
    let name = record.name.as_bytes();
    let symref = match record.target {
        TargetRef::Symbolic(name) => name.as_bytes(),
        TargetRef::Direct(_) => b"",
    };
    text.extend_from_slice(name);
    text.extend_from_slice(symref);
    let flags = [
        (record.packed, refdb_ref_flags::REFDB_REF_PACKED),
        (record.broken, refdb_ref_flags::REFDB_REF_BROKEN),
        (record.has_bad_name(), refdb_ref_flags::REFDB_REF_BAD_NAME),
    ];
    (
        plain(record.target, record.peeled, flags),
        name.len(),
        symref.len(),
    )
}

/// Frees a listing; null is fine.
///
/// Ownership: `refs` is gone, and the texts that it showed. Threads: none may use it any more.
///
/// # Safety
/// `refs` was not freed yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refdb_refs_free(refs: *mut refdb_refs) {
    // SAFETY: as this function's.
    unsafe { take_back(refs) }
}
