//! Packs and their indices: where an object is, and what is there.
//!
//! Every file is opened through the system, which refuses what is no file and does not wait for it.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use gix_pack::{data, index, multi_index};
use refdb::internals::bytes_to_path;
use refdb::system::{Bytes, DirEntry, System};
use refdb::{ObjectFormat, ObjectId};

use super::odb::gix_kind;

/// How many bytes it may take to put an object together that is stored as differences.
const ALLOCATION_MAX: usize = 3 * super::LEN_MAX;

/// Why a file cannot be used.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// It was taken away since somebody saw it.
    Gone,
    /// The system refuses to read it.
    Unreadable(String),
    /// It does not say what such a file says.
    Damaged(String),
}

impl Failure {
    fn io(path: &Path, error: &io::Error) -> Failure {
        if error.kind() == io::ErrorKind::NotFound {
            return Failure::Gone;
        }
        let text = refdb::error::io_text(error);
        Failure::Unreadable(format!("'{}': {text}", path.display()))
    }

    fn damage(path: &Path, error: impl fmt::Display) -> Failure {
        Failure::Damaged(format!("'{}': {error}", path.display()))
    }
}

type Opened<T> = Result<T, Failure>;

/// A pack, which is opened when something is read from it.
pub(super) struct Pack {
    path: PathBuf,
    format: ObjectFormat,
    content: OnceLock<Opened<Bytes>>,
    data: OnceLock<Opened<data::File<Bytes>>>,
    /// Its own index, where another one is for several packs.
    own: OnceLock<Opened<Box<index::File<Bytes>>>>,
    /// Whether it is what its index says.
    checked: OnceLock<Opened<()>>,
    /// Where its objects begin, and their numbers in the index.
    order: OnceLock<Vec<(u64, u32)>>,
}

impl Pack {
    fn new(path: PathBuf, format: ObjectFormat) -> Pack {
        Pack {
            path,
            format,
            content: OnceLock::new(),
            data: OnceLock::new(),
            own: OnceLock::new(),
            checked: OnceLock::new(),
            order: OnceLock::new(),
        }
    }

    fn content(&self, system: &dyn System) -> Result<&Bytes, &Failure> {
        let open = || {
            let content = system.map(&self.path);
            content.map_err(|error| Failure::io(&self.path, &error))
        };
        self.content.get_or_init(open).as_ref()
    }

    /// Opens what objects are read from. That asks the processor how a path is hashed best, which takes a virtual
    /// machine as long as a tenth of a process that changes one ref.
    pub(super) fn data(&self, system: &dyn System) -> Result<&data::File<Bytes>, &Failure> {
        let open = || {
            let content = self.content(system).map_err(Failure::clone)?.clone();
            let kind = gix_kind(self.format);
            let file = data::File::from_data(content, self.path.clone(), kind);
            let file = file.map_err(|error| Failure::damage(&self.path, error))?;
            Ok(file.with_alloc_limit_bytes(Some(ALLOCATION_MAX)))
        };
        self.data.get_or_init(open).as_ref()
    }

    fn own(&self, system: &dyn System) -> Result<&index::File<Bytes>, &Failure> {
        let path = || self.path.with_extension("idx");
        let open = || open_index(system, &path(), self.format).map(|(file, _)| Box::new(file));
        self.own.get_or_init(open).as_deref()
    }

    /// Returns what stands before the data of the object at an offset; `None` if it cannot be told without
    /// [`Pack::data`], which also says what is wrong.
    pub(super) fn entry(&self, system: &dyn System, offset: u64) -> Option<data::Entry> {
        let content = self.content(system).ok()?;
        let start = content.get(..data::header::SIZE)?.try_into().ok()?;
        data::header::decode(start).ok()?;
        let entry = content.get(usize::try_from(offset).ok()?..)?;
        data::Entry::from_bytes(entry, offset, gix_kind(self.format)).ok()
    }
}

/// The sorted ids of an index of one pack, which are compared by words. The library has the C library compare them,
/// which takes four times as many instructions with musl: an eighth of what asks for the refs of an object.
pub(super) struct Ids {
    content: Bytes,
    /// Where the table begins that says how many ids have at most that first byte.
    table: usize,
    /// Where the first one is.
    start: usize,
    /// How far it is from one to the next.
    step: usize,
    len: usize,
}

impl Ids {
    /// What stands before the table in the second version.
    const HEADER_LEN: usize = 8;
    const TABLE_LEN: usize = 256 * size_of::<u32>();
    /// What stands before each id in the first version: where the object begins.
    const OFFSET_LEN: usize = size_of::<u32>();

    fn of(file: &index::File<Bytes>, content: Bytes) -> Ids {
        let len = file.object_hash().len_in_bytes();
        let (table, before) = match file.version() {
            index::Version::V2 => (Ids::HEADER_LEN, 0),
            index::Version::V1 => (0, Ids::OFFSET_LEN),
        };
        Ids {
            content,
            table,
            start: table + Ids::TABLE_LEN + before,
            step: before + len,
            len,
        }
    }

    /// Returns the place of an id, or where it would stand; `None` where the index makes no sense.
    fn search(&self, id: &[u8], after: &mut After) -> Option<Result<u32, u32>> {
        let content: &[u8] = self.content.as_ref();
        let first = *id.first()?;
        let up_to = |first: u8| {
            let at = self.table + usize::from(first) * size_of::<u32>();
            Some(u32::from_be_bytes(*content.get(at..)?.first_chunk()?))
        };
        let places = first.checked_sub(1).map_or(Some(0), up_to)?..up_to(first)?;
        search(places, id, after, |place| {
            let at = self.start + usize::try_from(place).ok()? * self.step;
            content.get(at..at.checked_add(self.len)?)
        })
    }
}

/// Up to where in an index nothing is that is still looked for, by who looks for ids in their order.
#[derive(Default)]
pub(super) struct After(u32);

/// Returns the place of an id among sorted ones, or where it would stand; `None` if `at` does not say which one is at a
/// place.
#[inline]
fn search<'i>(
    places: Range<u32>,
    id: &[u8],
    after: &mut After,
    at: impl Fn(u32) -> Option<&'i [u8]>,
) -> Option<Result<u32, u32>> {
    let word = |id: &[u8]| id.first_chunk().map(|word| u64::from_be_bytes(*word));
    let compare = |place| {
        let found = at(place)?;
        Some(word(found).cmp(&word(id)).then_with(|| found.cmp(id)))
    };
    let (mut low, mut high) = (places.start.max(after.0), places.end);
    if low > places.start {
        // Where the last one was the next one is near.
        let mut step = 1;
        while let Some(next) = low.checked_add(step).filter(|next| *next < high) {
            if compare(next)? == Ordering::Greater {
                high = next;
                break;
            }
            (low, step) = (next, step.saturating_mul(2));
        }
    }
    while low < high {
        let middle = low + (high - low) / 2;
        match compare(middle)? {
            Ordering::Less => low = middle + 1,
            Ordering::Greater => high = middle,
            Ordering::Equal => {
                after.0 = middle;
                return Some(Ok(middle));
            }
        }
    }
    after.0 = low;
    Some(Err(low))
}

/// An index that was opened.
pub(super) enum Index {
    /// Of one pack.
    Single(index::File<Bytes>, Box<Pack>, Ids),
    /// Of several packs of a folder.
    Multi(multi_index::File<Bytes>, Vec<Pack>),
}

impl Index {
    fn open(system: &dyn System, path: &Path, format: ObjectFormat) -> Opened<Index> {
        if path.extension().is_some() {
            let pack = Pack::new(path.with_extension("pack"), format);
            let (file, content) = open_index(system, path, format)?;
            let ids = Ids::of(&file, content);
            return Ok(Index::Single(file, Box::new(pack), ids));
        }
        let content = system.map(path);
        let content = content.map_err(|error| Failure::io(path, &error))?;
        let damage = |error| Failure::damage(path, &error);
        let limit = Some(content.len());
        let file = multi_index::File::from_data(content, path.to_owned(), limit);
        let file = file.map_err(damage)?;
        if file.object_hash() != gix_kind(format) {
            let text = format!("'{}': of another object format", path.display());
            return Err(Failure::Damaged(text));
        }
        let folder = path.parent().unwrap_or(Path::new(""));
        let packs = file.index_names().iter().map(|name| {
            // A name leads nowhere else: only the last part of it counts.
            let name = name.file_name().unwrap_or_default();
            Pack::new(folder.join(name).with_extension("pack"), format)
        });
        let packs = packs.collect();
        Ok(Index::Multi(file, packs))
    }

    /// Fails unless a pack of this index is the one that its own index was made of, as far as its first and its last
    /// bytes say: what was cut off, or put in its place, holds no object for Git.
    pub(super) fn check<'p>(&self, system: &dyn System, pack: &'p Pack) -> Result<(), &'p Failure> {
        let check = || {
            let own = match self {
                Index::Single(own, ..) => own,
                Index::Multi(..) => match pack.own(system) {
                    Ok(own) => own,
                    // What the index of all says is enough.
                    Err(Failure::Gone) => return Ok(()),
                    Err(failure) => return Err(failure.clone()),
                },
            };
            let content = pack.content(system).map_err(Failure::clone)?;
            let start = content.first_chunk().map(data::header::decode);
            let is_own = start
                .and_then(Result::ok)
                .is_some_and(|(_, count)| count == own.num_objects())
                && content.ends_with(own.pack_checksum().as_bytes());
            let other = || Failure::damage(&pack.path, "it is not the pack of its index");
            if is_own { Ok(()) } else { Err(other()) }
        };
        pack.checked.get_or_init(check).as_ref().copied()
    }

    /// Returns in which pack an object is, and where.
    pub(super) fn find(&self, id: &gix_hash::oid) -> Option<(&Pack, u64)> {
        let (pack, offset) = self.find_after(id, &mut After::default())?;
        Some((self.pack(pack)?, offset))
    }

    /// As [`Index::find`], for objects that are looked for in the order of their ids: the pack by its number.
    pub(super) fn find_after(&self, id: &gix_hash::oid, after: &mut After) -> Option<(usize, u64)> {
        match self {
            Index::Single(file, _, ids) => {
                let place = ids.search(id.as_bytes(), after)?.ok()?;
                // Whoever writes over an index that is open may let its table say anything.
                (place < file.num_objects()).then(|| (0, file.pack_offset_at_index(place)))
            }
            Index::Multi(file, _) => {
                // By its table of first bytes: so a damaged id hides no more than those that begin alike.
                let place = file.lookup(id)?;
                let (pack, offset) = file.pack_id_and_pack_offset_at_index(place).ok()?;
                Some((usize::try_from(pack).ok()?, offset))
            }
        }
    }

    /// Returns a pack by its number.
    pub(super) fn pack(&self, number: usize) -> Option<&Pack> {
        match self {
            Index::Single(_, pack, _) => Some(pack),
            Index::Multi(_, packs) => packs.get(number),
        }
    }

    /// Returns where an object is in a pack of this index. What others are differences from is in the same pack, as
    /// for Git: so no two packs lead in a circle.
    pub(super) fn offset_in<'p>(
        &'p self,
        system: &dyn System,
        pack: &'p Pack,
        id: &gix_hash::oid,
    ) -> Result<Option<u64>, &'p Failure> {
        if let Some((found, offset)) = self.find(id)
            && std::ptr::eq(found, pack)
        {
            return Ok(Some(offset));
        }
        match self {
            Index::Single(..) => Ok(None),
            // Of several copies it names one.
            Index::Multi(..) => {
                let own = pack.own(system)?;
                Ok(own.lookup(id).map(|at| own.pack_offset_at_index(at)))
            }
        }
    }

    pub(super) fn len(&self) -> u32 {
        match self {
            Index::Single(file, ..) => file.num_objects(),
            Index::Multi(file, _) => file.num_objects(),
        }
    }

    /// Adds the ids that begin like this.
    pub(super) fn with_prefix(&self, prefix: gix_hash::Prefix, found: &mut Vec<ObjectId>) {
        let mut range = 0..0;
        match self {
            Index::Single(file, ..) => file.lookup_prefix(prefix, Some(&mut range)),
            Index::Multi(file, _) => file.lookup_prefix(prefix, Some(&mut range)),
        };
        found.extend(range.filter_map(|at| self.id_at(at)));
    }

    /// Returns the id at a place.
    fn id_at(&self, at: u32) -> Option<ObjectId> {
        match self {
            Index::Single(file, ..) => id_at(file, at),
            Index::Multi(file, _) if at < file.num_objects() => {
                ObjectId::from_bytes(file.oid_at_index(at).as_bytes())
            }
            Index::Multi(..) => None,
        }
    }

    /// Returns the ids before and after an id, or before and after where it would stand.
    pub(super) fn neighbours(&self, id: ObjectId) -> impl Iterator<Item = ObjectId> {
        let (id, after) = (id.as_bytes(), &mut After::default());
        let place = match self {
            Index::Single(.., ids) => ids.search(id, after),
            Index::Multi(file, _) => {
                let at = |place| Some(file.oid_at_index(place).as_bytes());
                search(0..file.num_objects(), id, after, at)
            }
        };
        let (before, after) = match place.unwrap_or(Err(0)) {
            Ok(at) => (at.checked_sub(1), at.checked_add(1)),
            Err(at) => (at.checked_sub(1), Some(at)),
        };
        [before, after]
            .into_iter()
            .flatten()
            .filter_map(|at| self.id_at(at))
    }

    /// Returns the index that names all objects of a pack; `None` where there is only one of several packs, which names
    /// one of several copies.
    fn whole<'p>(&'p self, system: &dyn System, pack: &'p Pack) -> Option<&'p index::File<Bytes>> {
        match self {
            Index::Single(file, ..) => Some(file),
            Index::Multi(..) => pack.own(system).ok(),
        }
    }

    /// Returns where the objects of a pack of this index begin in it, sorted, each with its number for
    /// [`Index::id_in`].
    pub(super) fn order_of<'p>(&'p self, system: &dyn System, pack: &'p Pack) -> &'p [(u64, u32)] {
        let whole = self.whole(system, pack);
        let offset = |at| match whole {
            Some(file) => Some(file.pack_offset_at_index(at)),
            None => self.offset_at(pack, at),
        };
        pack.order.get_or_init(|| {
            let len = whole.map_or_else(|| self.len(), index::File::num_objects);
            let mut order = Vec::with_capacity(len as usize);
            order.extend((0..len).filter_map(|at| Some((offset(at)?, at))));
            order.shrink_to_fit();
            order.sort_unstable();
            order
        })
    }

    /// Returns where the object at a place of an index of several packs begins, if it is in this pack.
    fn offset_at(&self, pack: &Pack, at: u32) -> Option<u64> {
        let Index::Multi(file, packs) = self else {
            return None;
        };
        let (number, offset) = file.pack_id_and_pack_offset_at_index(at).ok()?;
        let found = packs.get(usize::try_from(number).ok()?)?;
        std::ptr::eq(found, pack).then_some(offset)
    }

    /// Returns the id of an object of a pack by its number.
    pub(super) fn id_in(&self, system: &dyn System, pack: &Pack, at: u32) -> Option<ObjectId> {
        match self.whole(system, pack) {
            Some(file) => id_at(file, at),
            None => self.id_at(at),
        }
    }
}

/// Returns the id at a place. Whoever writes over an index that is open may let its table say anything.
fn id_at(file: &index::File<Bytes>, at: u32) -> Option<ObjectId> {
    let id = (at < file.num_objects()).then(|| file.oid_at_index(at))?;
    ObjectId::from_bytes(id.as_bytes())
}

fn open_index(
    system: &dyn System,
    path: &Path,
    format: ObjectFormat,
) -> Opened<(index::File<Bytes>, Bytes)> {
    let content = system.map(path);
    let content = content.map_err(|error| Failure::io(path, &error))?;
    let file = index::File::from_data(content.clone(), path.to_owned(), gix_kind(format));
    let file = file.map_err(|error| Failure::damage(path, error))?;
    Ok((file, content))
}

/// Lists a folder of packs, which may be missing. Of what has its place nobody knows which objects it hides.
fn in_folder(system: &dyn System, folder: &Path) -> io::Result<Vec<DirEntry>> {
    match system.read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries,
    }
}

/// Returns the packs of a folder whose objects cannot be had: those that have no index which can be read, or are not
/// the pack of theirs.
pub(super) fn unusable(
    system: &dyn System,
    folder: &Path,
    format: ObjectFormat,
) -> io::Result<Vec<PathBuf>> {
    let folder = folder.join("pack");
    let mut found = Vec::new();
    for entry in in_folder(system, &folder)? {
        let path = folder.join(bytes_to_path(&entry.name));
        if path.extension().is_none_or(|extension| extension != "pack") {
            continue;
        }
        let is_usable = match Index::open(system, &path.with_extension("idx"), format) {
            Ok(index) => match &index {
                Index::Single(_, pack, _) => index.check(system, pack).is_ok(),
                Index::Multi(..) => false,
            },
            Err(_) => false,
        };
        if !is_usable {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// An index in a folder, which is opened when an object is looked for in it.
pub(super) struct Slot {
    path: PathBuf,
    /// What a file of several packs is recognised by, which is replaced under its name.
    stamp: (u64, u64, i128),
    format: ObjectFormat,
    index: OnceLock<Opened<Index>>,
}

impl Slot {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether this is the index that another one is.
    pub(super) fn is_like(&self, other: &Slot) -> bool {
        self.path == other.path && self.stamp == other.stamp
    }

    /// Returns whether opening another time may be better.
    fn may_be_opened_again(&self) -> bool {
        let passes = |failure: Option<&Failure>| {
            matches!(failure, Some(Failure::Gone | Failure::Unreadable(_)))
        };
        let failed = |pack: &Pack| passes(pack.content.get().and_then(|it| it.as_ref().err()));
        match self.index.get() {
            None => false,
            Some(Err(failure)) => passes(Some(failure)),
            Some(Ok(Index::Single(_, pack, _))) => failed(pack),
            Some(Ok(Index::Multi(_, packs))) => packs.iter().any(failed),
        }
    }

    pub(super) fn index(&self, system: &dyn System) -> Result<&Index, &Failure> {
        let open = || Index::open(system, &self.path, self.format);
        self.index.get_or_init(open).as_ref()
    }
}

/// Returns the indices of a folder of objects, taking over what is known of those that are still
/// there. A pack without an index, or an index without a pack, is none.
pub(super) fn slots(
    system: &dyn System,
    folder: &Path,
    format: ObjectFormat,
    known: &HashMap<&Path, &Arc<Slot>>,
) -> io::Result<Vec<Arc<Slot>>> {
    let dir = folder.join("pack");
    let entries = in_folder(system, &dir)?;
    let names: HashSet<&[u8]> = entries.iter().map(|entry| entry.name.as_slice()).collect();
    let slot = |path: PathBuf, stamp| {
        let same = |slot: &&&Arc<Slot>| slot.stamp == stamp && !slot.may_be_opened_again();
        match known.get(path.as_path()).filter(same) {
            Some(slot) => Arc::clone(slot),
            None => Arc::new(Slot {
                path,
                stamp,
                format,
                index: OnceLock::new(),
            }),
        }
    };
    let mut slots = Vec::new();
    let mut covered: HashSet<OsString> = HashSet::new();
    let several = b"multi-pack-index".as_slice();
    if names.contains(several)
        && let Ok(stat) = system.stat(&dir.join("multi-pack-index"))
    {
        let several = slot(
            dir.join("multi-pack-index"),
            (stat.dev, stat.ino, stat.mtime_ns),
        );
        // One that cannot be used is in nobody's way: each pack has an index of its own.
        if let Ok(Index::Multi(file, _)) = several.index(system) {
            let names = file.index_names().iter();
            covered.extend(names.filter_map(|name| Some(name.file_name()?.to_owned())));
            slots.push(Arc::clone(&several));
        }
    }
    let mut indices: Vec<&[u8]> = names.iter().copied().collect();
    indices.retain(|name| name.ends_with(b".idx"));
    indices.sort_unstable();
    for name in indices {
        let path = refdb::internals::bytes_to_path(name);
        let pack = path.with_extension("pack");
        let has_pack = names.contains(std::os::unix::ffi::OsStrExt::as_bytes(pack.as_os_str()));
        if has_pack && !covered.contains(path.as_os_str()) {
            slots.push(slot(dir.join(path), (0, 0, 0)));
        }
    }
    Ok(slots)
}
