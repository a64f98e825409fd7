//! The object database: folders with loose objects and packs, as they are now.
//!
//! 1. What is not found is looked for again in what there is by then: packs come and go, and there
//!    is no limit to how many.
//! 2. A failure is never taken for absence. A copy of an object that is damaged counts as none, as
//!    in Git, and the next copy is read; but where an index cannot be read, nobody knows what it has.
//! 3. No file is opened before it is known to be one: nothing waits for a FIFO or reads a device.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use flate2::{Decompress, FlushDecompress, Status};
use gix_odb::loose;
use gix_pack::data::decode::{entry, header};
use gix_zlib::Inflate;
use refdb::internals::is_absent;
use refdb::system::{FileKind, OsSystem, System};
use refdb::{Error, ErrorKind, ObjectFormat, ObjectId, Result};

use super::abbreviations::Abbreviations;
use super::alternates;
use super::kinds::kind_at;
use super::odb::{gix_kind, kind_from_gix, kind_of, to_gix};
use super::packs::{Failure, Index, Pack, Slot, slots, unusable};
use super::storage::loose_path;
use super::{Absent, Header, LEN_MAX, Object, ObjectKind};

/// So much of a file holds what an object is said to be, however it is compressed, and so long that can be for Git.
const LOOSE_START_LEN: usize = 4096;
const LOOSE_HEADER_LEN: usize = 32;

/// How long the file of an object may be: what cannot be compressed takes a little more.
const LOOSE_LEN_MAX: usize = LEN_MAX + (LEN_MAX >> 8);

/// How often an object is looked for while packs come and go.
const LOOKS_MAX: usize = 100;

pub(super) struct Database {
    pub(super) system: OsSystem,
    format: ObjectFormat,
    /// The own folder, and others that were named beside it.
    dirs: Vec<PathBuf>,
    state: Mutex<Arc<State>>,
    /// Tools for decompressing that no thread uses at the moment.
    idle: Mutex<Vec<Inflate>>,
    /// What the last loose object said that was asked, and when: many refs get one value, and to decompress what that
    /// says is half of what the processor does for each of them.
    said: Mutex<Option<(ObjectId, Header, Instant)>>,
}

/// For how long that is believed.
const SAID_FOR: Duration = Duration::from_millis(10);

/// What was there when somebody looked.
#[derive(Default)]
pub(super) struct State {
    pub(super) folders: Vec<Folder>,
    pub(super) slots: Vec<Arc<Slot>>,
    /// The index in which something was found last.
    last: AtomicUsize,
}

impl State {
    fn is_like(&self, other: &State) -> bool {
        let dirs = |state: &State| -> Vec<PathBuf> {
            let folders = state.folders.iter();
            folders.map(|folder| folder.dir.clone()).collect()
        };
        let same = |(a, b): (&Arc<Slot>, &Arc<Slot>)| a.is_like(b);
        self.slots.len() == other.slots.len()
            && self.slots.iter().zip(&other.slots).all(same)
            && dirs(self) == dirs(other)
    }
}

pub(super) struct Folder {
    pub(super) dir: PathBuf,
    loose: loose::Store,
}

/// Where a copy of an object is.
#[derive(Clone, Copy)]
pub(super) enum Place<'s> {
    /// In a pack: its index, the pack, and where it begins there.
    Packed(&'s Index, &'s Pack, u64),
    /// In a file of its own in the folder.
    Loose(&'s Path, &'s loose::Store),
}

/// A pack that was opened.
type File = gix_pack::data::File<refdb::system::Bytes>;

/// What an entry of a pack is a difference from.
type Base = gix_error::Result<Option<gix_pack::data::Entry>>;

/// What came of looking at a copy.
type Look<T> = Result<Option<T>>;

impl Database {
    /// Opens the folders.
    ///
    /// # Errors
    /// `Io` when one cannot be read.
    pub(super) fn open(dirs: &[PathBuf], format: ObjectFormat) -> Result<Database> {
        let mut database = Database {
            system: OsSystem::new(),
            format,
            dirs: dirs.to_vec(),
            state: Mutex::default(),
            idle: Mutex::new(Vec::new()),
            said: Mutex::default(),
        };
        let state = database.look(&[])?;
        database.state = Mutex::new(Arc::new(state));
        Ok(database)
    }

    /// Lists what there is, taking over what was opened.
    fn look(&self, known: &[Arc<Slot>]) -> Result<State> {
        let dirs = alternates::folders(&self.system, &self.dirs)?;
        let known: HashMap<&Path, &Arc<Slot>> = known.iter().map(|it| (it.path(), it)).collect();
        let mut all = Vec::with_capacity(known.len());
        for dir in &dirs {
            let found = slots(&self.system, dir, self.format, &known);
            all.extend(found.map_err(|error| Error::io("unable to read packs in", dir, error))?);
        }
        let kind = gix_kind(self.format);
        let options = loose::Options {
            alloc_limit_bytes: Some(LEN_MAX),
            ..loose::Options::default()
        };
        let folders = dirs.into_iter().map(|dir| Folder {
            loose: loose::Store::at_opts(&dir, kind, options),
            dir,
        });
        Ok(State {
            folders: folders.collect(),
            slots: all,
            last: AtomicUsize::new(0),
        })
    }

    /// Names where objects may be that cannot be had: folders to borrow from that are not there, and packs of which
    /// nothing can be read.
    pub(super) fn absent(&self) -> Result<Absent> {
        let folders = alternates::absent(&self.system, &self.dirs)?;
        let mut packs = Vec::new();
        for dir in alternates::folders(&self.system, &self.dirs)? {
            let found = unusable(&self.system, &dir, self.format);
            packs.extend(found.map_err(|error| Error::io("unable to read packs in", &dir, error))?);
        }
        Ok(Absent { folders, packs })
    }

    pub(super) fn state(&self) -> Arc<State> {
        Arc::clone(&self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Looks again; `None` if nothing has changed since `old`.
    fn refresh(&self, old: &Arc<State>) -> Result<Option<Arc<State>>> {
        let now = self.state();
        if !Arc::ptr_eq(&now, old) {
            // Another thread did so.
            return Ok((!now.is_like(old)).then_some(now));
        }
        let new = Arc::new(self.look(&old.slots)?);
        let changed = !new.is_like(old);
        // Also where nothing has changed, what could not be opened before may be tried again.
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&new);
        Ok(changed.then_some(new))
    }

    /// Calls `look` for the copies of an object until one of them can be read.
    pub(super) fn find<T>(
        &self,
        oid: ObjectId,
        look: &mut dyn FnMut(Place<'_>) -> Look<T>,
    ) -> Look<T> {
        let mut state = self.state();
        for _ in 0..LOOKS_MAX {
            let mut failure = None;
            if let Some(found) = self.find_in(&state, oid, look, &mut failure)? {
                return Ok(Some(found));
            }
            match self.refresh(&state)? {
                Some(new) => state = new,
                // What is not found may be where nobody can look.
                None => return failure.map_or(Ok(None), Err),
            }
        }
        Err(unreadable_text("the packs keep changing".to_owned()))
    }

    /// Looks for an object in what is known. A failure is kept, and does not end the search.
    fn find_in<T>(
        &self,
        state: &State,
        oid: ObjectId,
        look: &mut dyn FnMut(Place<'_>) -> Look<T>,
        failure: &mut Option<Error>,
    ) -> Look<T> {
        let id = to_gix(&oid);
        let mut tried = |place: Place<'_>| {
            look(place).unwrap_or_else(|error| {
                *failure = Some(error);
                None
            })
        };
        let mut unusable = None;
        // Where the last one was, the next one often is.
        let last = state.last.load(Ordering::Relaxed);
        for at in std::iter::once(last).chain((0..state.slots.len()).filter(|at| *at != last)) {
            let Some(slot) = state.slots.get(at) else {
                continue;
            };
            let index = match slot.index(&self.system) {
                Ok(index) => index,
                Err(Failure::Gone) => continue,
                Err(error) => {
                    unusable = Some(unreadable(error));
                    continue;
                }
            };
            let Some((pack, offset)) = index.find(id) else {
                continue;
            };
            match index.check(&self.system, pack) {
                Ok(()) => {}
                Err(Failure::Damaged(_) | Failure::Gone) => continue,
                Err(failure) => {
                    unusable = Some(unreadable(failure));
                    continue;
                }
            }
            if let Some(found) = tried(Place::Packed(index, pack, offset)) {
                state.last.store(at, Ordering::Relaxed);
                return Ok(Some(found));
            }
        }
        for folder in &state.folders {
            let path = loose_path(&folder.dir, oid);
            match self.system.stat(&path) {
                Ok(stat) if stat.kind == FileKind::File => {
                    if let Some(found) = tried(Place::Loose(&path, &folder.loose)) {
                        return Ok(Some(found));
                    }
                }
                // A folder, a FIFO or a device holds no object.
                Ok(_) => {}
                Err(error) if is_absent(&error) => {}
                Err(error) => unusable = Some(Error::io("unable to read", &path, error)),
            }
        }
        *failure = failure.take().or(unusable);
        Ok(None)
    }

    /// Returns whether an object is there, as far as an index or the name of a file says it.
    pub(super) fn exists(&self, oid: ObjectId) -> Result<bool> {
        let found = self.find(oid, &mut |_| Ok(Some(())))?;
        Ok(found.is_some())
    }

    /// Returns kind and size of an object; `None` if it is missing.
    pub(super) fn header(&self, oid: ObjectId) -> Look<Header> {
        self.find(oid, &mut |place| match place {
            Place::Loose(path, store) => self.loose_header(path, store, oid),
            Place::Packed(index, pack, offset) => self.packed_header(index, pack, offset),
        })
    }

    /// Returns what an object is said to be; `None` if it is missing. Nothing of it is decompressed in a pack.
    pub(super) fn kind(&self, oid: ObjectId) -> Look<ObjectKind> {
        self.find(oid, &mut |place| {
            let header = match place {
                Place::Loose(path, store) => self.loose_header(path, store, oid)?,
                Place::Packed(index, pack, offset) => {
                    let kind = kind_at(&self.system, index, pack, offset);
                    if kind.is_some() {
                        return Ok(kind);
                    }
                    self.packed_header(index, pack, offset)?
                }
            };
            Ok(header.map(|header| header.kind))
        })
    }

    fn loose_header(&self, path: &Path, store: &loose::Store, oid: ObjectId) -> Look<Header> {
        let lock = || self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, header, at)) = *lock()
            && known == oid
            && at.elapsed() < SAID_FOR
        {
            return Ok(Some(header));
        }
        let found = told_by(path, store, oid)?;
        *lock() = found.map(|header| (oid, header, Instant::now()));
        Ok(found)
    }

    fn packed_header(&self, index: &Index, pack: &Pack, offset: u64) -> Look<Header> {
        if let Some(entry) = pack.entry(&self.system, offset)
            && let Some(kind) = entry.header.as_kind()
        {
            return Ok(Some(Header {
                kind: kind_from_gix(kind),
                size: entry.decompressed_size,
            }));
        }
        let found = self.in_pack(index, pack, |data, inflate, base| {
            let resolve = |id: &gix_hash::oid| Ok(base(id)?.map(header::ResolvedBase::InPack));
            data.decode_header(data.entry(offset)?, inflate, &resolve)
        })?;
        Ok(found.map(|found| Header {
            kind: kind_from_gix(found.kind),
            size: found.object_size,
        }))
    }

    /// Reads an object; `None` if it is missing. The content of one that is not `wanted` stays empty.
    pub(super) fn read(&self, oid: ObjectId, wanted: fn(Header) -> bool) -> Look<Object> {
        self.find(oid, &mut |place| {
            let header = match place {
                Place::Loose(path, store) => told_by(path, store, oid)?,
                Place::Packed(index, pack, offset) => self.packed_header(index, pack, offset)?,
            };
            let Some(header) = header else {
                return Ok(None);
            };
            if !wanted(header) {
                let (kind, data) = (header.kind, Vec::new());
                return Ok(Some(Object { kind, data }));
            }
            bounded(oid, header.size)?;
            match place {
                Place::Loose(path, _) => self.loose(path, header),
                Place::Packed(index, pack, offset) => self.packed(index, pack, offset),
            }
        })
    }

    /// Reads an object that has a file of its own; `None` if the file is gone or damaged. The library does not mind
    /// where the stream ends: here, as in Git, it gives as many bytes as the object is said to have, its sum is right,
    /// and nothing comes after it.
    fn loose(&self, path: &Path, header: Header) -> Look<Object> {
        let file = match self.system.read_at_most(path, LOOSE_LEN_MAX) {
            Err(error) if is_absent(&error) => return Ok(None),
            file => file.map_err(|error| Error::io("unable to read", path, error))?,
        };
        let text = format!("{} {}\0", header.kind.as_str(), header.size);
        let len = usize::try_from(header.size).unwrap_or(usize::MAX);
        let whole = text.len().saturating_add(len);
        // With room for one byte more, a stream that is too long is seen.
        let mut data = Vec::with_capacity(whole.saturating_add(1));
        let mut inflate = Decompress::new(true);
        let end = inflate.decompress_vec(&file, &mut data, FlushDecompress::Finish);
        let is_whole = matches!(end, Ok(Status::StreamEnd))
            && usize::try_from(inflate.total_in()).is_ok_and(|count| count == file.len())
            && data.len() == whole
            && data.starts_with(text.as_bytes());
        if !is_whole {
            return Ok(None);
        }
        data.drain(..text.len());
        let kind = header.kind;
        Ok(Some(Object { kind, data }))
    }

    fn packed(&self, index: &Index, pack: &Pack, offset: u64) -> Look<Object> {
        let mut content = Vec::new();
        let found = self.in_pack(index, pack, |data, inflate, base| {
            let resolve = |id: &gix_hash::oid, _: &mut Vec<u8>| {
                Ok(base(id)?.map(entry::ResolvedBase::InPack))
            };
            let cache = &mut gix_pack::cache::Never;
            data.decode_entry(data.entry(offset)?, &mut content, inflate, &resolve, cache)
        })?;
        Ok(found.map(|found| Object {
            kind: kind_from_gix(found.kind),
            data: content,
        }))
    }

    /// Reads in a pack; `None` if what is there is damaged. `read` gets the pack, a tool for decompressing, and what
    /// finds the entry that another one is a difference from.
    fn in_pack<T>(
        &self,
        index: &Index,
        pack: &Pack,
        read: impl FnOnce(&File, &mut Inflate, &dyn Fn(&gix_hash::oid) -> Base) -> gix_error::Result<T>,
    ) -> Look<T> {
        let Some(data) = self.data(pack)? else {
            return Ok(None);
        };
        let failed = RefCell::new(None);
        let base = |id: &gix_hash::oid| match index.offset_in(&self.system, pack, id) {
            Ok(Some(offset)) => data.entry(offset).map(Some),
            Ok(None) | Err(Failure::Damaged(_) | Failure::Gone) => Ok(None),
            Err(failure) => {
                *failed.borrow_mut() = Some(unreadable(failure));
                Ok(None)
            }
        };
        let found = self.with_inflate(|inflate| read(data, inflate, &base));
        match failed.into_inner() {
            Some(error) => Err(error),
            None => undamaged(found),
        }
    }

    /// Returns the length of a file in bytes; `None` if it is gone.
    pub(super) fn file_len(&self, path: &Path) -> Look<u64> {
        match self.system.stat(path) {
            Ok(stat) => Ok(Some(stat.len)),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(Error::io("unable to read", path, error)),
        }
    }

    /// Opens a pack; `None` if it is gone or damaged.
    pub(super) fn data<'p>(&self, pack: &'p Pack) -> Look<&'p File> {
        match pack.data(&self.system) {
            Ok(data) => Ok(Some(data)),
            Err(Failure::Damaged(_) | Failure::Gone) => Ok(None),
            Err(failure) => Err(unreadable(failure)),
        }
    }

    fn with_inflate<T>(&self, run: impl FnOnce(&mut Inflate) -> T) -> T {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = idle().pop();
        let mut inflate = taken.unwrap_or_default();
        let done = run(&mut inflate);
        idle().push(inflate);
        done
    }

    /// Returns what tells how few digits name an object, among those that there are now.
    pub(super) fn abbreviations(&self) -> Result<Abbreviations> {
        let old = self.state();
        let state = self.refresh(&old)?.unwrap_or(old);
        Ok(Abbreviations::new(self.system.clone(), self.format, state))
    }
}

/// Returns whether an object has a file of its own here.
pub(super) fn has_file(path: &Path) -> bool {
    let found = OsSystem::new().stat(path);
    found.is_ok_and(|stat| stat.kind == FileKind::File)
}

/// Returns whether anything has the place of an object here.
pub(super) fn has_something(path: &Path) -> bool {
    OsSystem::new().lstat(path).is_ok()
}

/// Returns kind and size of an object if it has a file of its own; `Some(None)` if that makes no sense, and `None` if
/// the library has to be asked.
pub(super) fn loose_header(path: &Path) -> Option<Option<Header>> {
    // The library makes the same path and reads the same bytes, but asks the processor how each step of that is done
    // best, also adding up a sum that nobody compares: a virtual machine takes a tenth of the whole process for that.
    let start = OsSystem::new().read_at_most(path, LOOSE_START_LEN);
    let start = start.ok()?;
    let (of_zlib, rest) = start.split_first_chunk()?;
    if !is_zlib(*of_zlib) {
        return None;
    }
    let mut header = [0; LOOSE_HEADER_LEN];
    let mut inflate = Decompress::new(false);
    let status = inflate.decompress(rest, &mut header, FlushDecompress::None);
    if status.ok()? == Status::StreamEnd {
        // Of what is as short as that the sum is compared.
        return None;
    }
    let len = usize::try_from(inflate.total_out()).ok()?;
    let mut parts = header.get(..len)?.split(|&byte| byte == 0);
    let text = parts.next()?;
    Some(parts.next().and_then(|_| said_in(text)))
}

/// Returns kind and size as the text before the content of an object says them. Git takes no size with a zero or a sign
/// before it.
fn said_in(text: &[u8]) -> Option<Header> {
    let (kind, size) = std::str::from_utf8(text).ok()?.split_once(' ')?;
    let is_size = size.bytes().all(|byte| byte.is_ascii_digit())
        && (size.len() == 1 || !size.starts_with('0'));
    Some(Header {
        kind: kind_of(kind.as_bytes())?,
        size: size.parse().ok().filter(|_| is_size)?,
    })
}

/// Returns whether a stream that begins so is one of zlib: compressed as that knows it, and without a dictionary.
fn is_zlib(start: [u8; 2]) -> bool {
    let [method, flags] = start;
    method & 0x8f == 8 && flags & 0x20 == 0 && u16::from_be_bytes(start).is_multiple_of(31)
}

/// Returns kind and size of an object that has a file of its own, as that says.
fn told_by(path: &Path, store: &loose::Store, oid: ObjectId) -> Look<Header> {
    if let Some(header) = loose_header(path) {
        return Ok(header);
    }
    let found = undamaged(store.try_header(to_gix(&oid)))?.flatten();
    Ok(found.map(|(size, kind)| Header {
        kind: kind_from_gix(kind),
        size,
    }))
}

/// Returns an index unless it is damaged, in which Git sees no object.
pub(super) fn known<'i>(index: std::result::Result<&'i Index, &Failure>) -> Look<&'i Index> {
    match index {
        Ok(index) => Ok(Some(index)),
        Err(Failure::Damaged(_) | Failure::Gone) => Ok(None),
        Err(failure) => Err(unreadable(failure)),
    }
}

/// Refuses what would take too much memory.
fn bounded(oid: ObjectId, len: u64) -> Result<()> {
    match usize::try_from(len) {
        Ok(len) if len <= LEN_MAX => Ok(()),
        _ => {
            let text = format!("object {oid} is too large to be read: {len} bytes");
            Err(Error::new(ErrorKind::Unsupported, text))
        }
    }
}

/// Gives the system's error back if there is one behind a failure, and one about memory: else a copy
/// is damaged, and counts as none.
fn undamaged<T>(found: gix_error::Result<T>) -> Look<T> {
    let error = match found {
        Ok(found) => return Ok(Some(found)),
        Err(error) => error,
    };
    let first: &(dyn std::error::Error + 'static) = &error;
    let mut causes = std::iter::successors(Some(first), |error| error.source());
    let of_system = causes.any(|cause| {
        let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        !matches!(
            kind,
            None | Some(
                io::ErrorKind::InvalidData
                    | io::ErrorKind::UnexpectedEof
                    | io::ErrorKind::Other
                    | io::ErrorKind::NotFound
            )
        )
    });
    match of_system || error.is_resource_exhausted() {
        true => Err(unreadable_text(error.to_string())),
        false => Ok(None),
    }
}

fn unreadable(failure: &Failure) -> Error {
    match failure {
        Failure::Unreadable(text) | Failure::Damaged(text) => unreadable_text(text.clone()),
        Failure::Gone => unreadable_text("a file is gone".to_owned()),
    }
}

fn unreadable_text(text: String) -> Error {
    let text = format!("unable to read object database: {text}");
    Error::new(ErrorKind::Io, text)
}

#[cfg(test)]
mod tests {
    use super::said_in;

    #[test]
    fn a_size_is_written_in_one_way() {
        for text in ["blob 0", "commit 1", "tree 120", "tag 18446744073709551615"] {
            assert!(said_in(text.as_bytes()).is_some(), "{text}");
        }
        let no_header = [
            "",
            "blob",
            "blob ",
            "blob 00",
            "blob 05",
            "blob +5",
            "blob -5",
            "blob 5 ",
            "blub 5",
            "BLOB 5",
            " 5",
            "tag 18446744073709551616",
        ];
        for text in no_header {
            assert!(said_in(text.as_bytes()).is_none(), "{text}");
        }
    }
}
