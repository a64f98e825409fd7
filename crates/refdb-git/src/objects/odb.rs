//! The repository's own object database: loose objects, packs and alternates.
//!
//! 1. Nothing is opened before the first object is asked for.
//! 2. What an object is said to be is not believed: a tag's target must have the type that the tag
//!    claims.
//! 3. An object that cannot be decoded counts as missing, as in Git; a database that cannot be
//!    read is an error.
//!
//! ```no_run
//! use refdb::{ObjectFormat, ObjectId};
//! use refdb::objects::Objects;
//! use refdb_git::objects::Odb;
//!
//! let odb = Odb::new("/repo/.git/objects", [], ObjectFormat::Sha1);
//! let id = ObjectId::from_hex(b"89abcdef0123456789abcdef0123456789abcdef").unwrap();
//! if let Some(header) = odb.header(id)? {
//!     println!("{} {}", header.kind.as_str(), header.size);
//! }
//! # Ok::<(), refdb::Error>(())
//! ```

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use refdb::error::{Message, Remedy};
use refdb::system::both;
use refdb::{Error, ErrorKind, ObjectFormat, ObjectId, Result};

use super::abbreviations::Abbreviations;
use super::chains::Chains;
use super::database::{Database, has_file, has_something, loose_header};
use super::storage::{Storage, loose_path};
use super::{ObjectKind, Objects, Peeled};

/// How many tags that point to tags are followed: a longer chain is damage, such as a tag that names
/// itself in a file of the wrong name.
pub const TAG_DEPTH_MAX: usize = 4096;

/// How many bytes an object may have that is read: what a pack claims is not believed without bound, and what is done
/// with an object takes some times as much.
pub const LEN_MAX: usize = 128 << 20;

/// So many bytes may be read of larger objects in all, for one question: a pack of some kilobytes can have thousands.
const LARGE_MIN: usize = 1 << 20;
const LARGE_SUM_MAX: usize = 1 << 30;

/// How many bytes a small object has at most.
const SMALL_MAX: u64 = 4 << 10;

/// How often an object that replaces another may be replaced itself.
const REPLACEMENTS_MAX: usize = 5;

/// Objects that are read instead of others.
pub(crate) type Replacements = HashMap<ObjectId, ObjectId>;

/// Reads the replacements.
type ReadReplacements = Box<dyn Fn() -> Result<Replacements> + Send + Sync>;

/// The objects of a repository.
pub struct Odb {
    format: ObjectFormat,
    dirs: Vec<PathBuf>,
    database: OnceLock<Database>,
    was_asked: AtomicBool,
    read_replacements: OnceLock<ReadReplacements>,
    replacements: OnceLock<Replacements>,
    chains: Chains,
}

/// What can be told of an object without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The kind.
    pub kind: ObjectKind,
    /// The size of the content in bytes.
    pub size: u64,
}

/// Where objects may be that cannot be had: whoever does not find one there does not know that it is lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Absent {
    /// Folders that are named as alternates and are not there, the first 16 of them.
    pub folders: Vec<AbsentFolder>,
    /// Packs without an index that can be read, or that are not the pack of theirs.
    pub packs: Vec<PathBuf>,
}

/// A folder to borrow objects from that is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbsentFolder {
    /// The folder.
    pub dir: PathBuf,
    /// The list that names it; `None` if that is the environment.
    pub list: Option<PathBuf>,
}

impl Absent {
    /// Returns whether every object that there is can be had.
    pub fn is_empty(&self) -> bool {
        self.folders.is_empty() && self.packs.is_empty()
    }
}

/// An object with its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// The kind.
    pub kind: ObjectKind,
    /// The content.
    pub data: Vec<u8>,
}

/// How much was read of objects that have more than 1 MiB, to answer one question.
#[derive(Clone, Copy, Debug, Default)]
pub struct LargeSum(usize);

impl LargeSum {
    /// Adds an object; returns whether all that were added have 1 GiB at most.
    #[must_use]
    pub fn add(&mut self, object: &Object) -> bool {
        if object.data.len() > LARGE_MIN {
            self.0 += object.data.len();
        }
        self.0 <= LARGE_SUM_MAX
    }
}

impl Odb {
    /// Names the directories: the repository's `objects`, and others to look in as well. Their own
    /// alternates are followed. Nothing is opened yet.
    pub fn new(
        objects: impl Into<PathBuf>,
        alternates: impl IntoIterator<Item = PathBuf>,
        format: ObjectFormat,
    ) -> Odb {
        let mut dirs = vec![objects.into()];
        dirs.extend(alternates);
        Odb {
            format,
            dirs,
            database: OnceLock::new(),
            was_asked: AtomicBool::new(false),
            read_replacements: OnceLock::new(),
            replacements: OnceLock::new(),
            chains: Chains::default(),
        }
    }

    /// Says how to find out which objects are read instead of others, which the first object that is
    /// asked for does. Only the first call counts.
    pub(crate) fn replace_by(&self, read: ReadReplacements) {
        let _ = self.read_replacements.set(read);
    }

    /// Returns whether some objects are read instead of others.
    ///
    /// # Errors
    /// `Corrupt` or `Io` for the refs that say so.
    pub fn has_replacements(&self) -> Result<bool> {
        Ok(!self.replacements()?.is_empty())
    }

    fn replacements(&self) -> Result<&Replacements> {
        if let Some(replacements) = self.replacements.get() {
            return Ok(replacements);
        }
        let read = match self.read_replacements.get() {
            Some(read) => read()?,
            None => Replacements::new(),
        };
        Ok(self.replacements.get_or_init(|| read))
    }

    /// Returns the object that is read where `oid` is asked for.
    fn replaced(&self, oid: ObjectId) -> Result<ObjectId> {
        let replacements = self.replacements()?;
        let mut found = oid;
        for _ in 0..REPLACEMENTS_MAX {
            match replacements.get(&found) {
                Some(&by) => found = by,
                None => return Ok(found),
            }
        }
        let message = Message::from(format!("replace depth too high for object {oid}"));
        let message = message.with(Remedy::EndReplacement);
        Err(Error::new(ErrorKind::Corrupt, message))
    }

    /// Returns the object format.
    pub fn format(&self) -> ObjectFormat {
        self.format
    }

    /// Returns the repository's own `objects` directory.
    pub fn dir(&self) -> &Path {
        self.dirs.first().map_or(Path::new(""), PathBuf::as_path)
    }

    /// Returns kind and size of an object; `None` if it is missing.
    ///
    /// # Errors
    /// `Io` when the database cannot be read.
    pub fn header(&self, oid: ObjectId) -> Result<Option<Header>> {
        let oid = self.replaced(oid)?;
        if self.is_empty_tree(oid) {
            return Ok(Some(Header {
                kind: ObjectKind::Tree,
                size: 0,
            }));
        }
        match self.first(oid) {
            None => self.database()?.header(oid),
            header => Ok(header),
        }
    }

    /// Returns what an object is said to be; `None` if it is missing. Of one that a pack stores as the difference from
    /// others, which takes the longest, that is found out without decompressing any of them: so what is wrong with
    /// their content is not seen, as it is by [`Odb::header`].
    ///
    /// # Errors
    /// `Io` when the database cannot be read.
    pub fn kind_said(&self, oid: ObjectId) -> Result<Option<ObjectKind>> {
        let oid = self.replaced(oid)?;
        if self.is_empty_tree(oid) {
            return Ok(Some(ObjectKind::Tree));
        }
        match self.first(oid) {
            None => self.database()?.kind(oid),
            Some(header) => Ok(Some(header.kind)),
        }
    }

    /// Returns what many objects are said to be, as [`Odb::kind_said`] does; `None` for one that has to be asked for by
    /// itself.
    ///
    /// # Errors
    /// `Io` when the database cannot be read; `Corrupt` or `Io` for the refs that say what is read instead of others.
    pub fn kinds_at_once(&self, oids: &[ObjectId]) -> Result<Vec<Option<ObjectKind>>> {
        match self.has_replacements()? {
            true => Ok(vec![None; oids.len()]),
            false => Ok(self.database()?.kinds(oids)),
        }
    }

    /// Returns whether an object is there, whatever is read instead of it. That it can be read is not tried.
    ///
    /// # Errors
    /// `Io` when the database cannot be read.
    pub fn exists(&self, oid: ObjectId) -> Result<bool> {
        if self.is_empty_tree(oid) || self.is_first() && has_file(&loose_path(self.dir(), oid)) {
            return Ok(true);
        }
        self.database()?.exists(oid)
    }

    /// Makes sure that an object which could not be read is missing: nothing is there that should be it, and nothing
    /// is away that may have it.
    ///
    /// # Errors
    /// `Corrupt` when one of these is so; `Io` when the database cannot be read.
    pub(crate) fn check_missing(&self, oid: ObjectId) -> Result<()> {
        let read = self.replaced(oid)?;
        let is_there = |dir: &PathBuf| has_something(&loose_path(dir, read));
        let why = if self.dirs.iter().any(is_there) || self.exists(read)? {
            "is damaged".to_owned()
        } else {
            let absent = self.absent()?;
            let folders = absent.folders.iter().map(|folder| &folder.dir);
            match folders.chain(&absent.packs).next() {
                None => return Ok(()),
                Some(path) => format!("may be in '{}', which cannot be read", path.display()),
            }
        };
        let text = format!(
            "object {oid} {why}; restore it from a copy of the repository, or fetch it again"
        );
        Err(Error::new(ErrorKind::Corrupt, text))
    }

    /// Makes sure that what an object lacks, or a tag that it leads to, is missing.
    ///
    /// # Errors
    /// As for [`Odb::check_missing`].
    pub(crate) fn check_end_missing(&self, oid: ObjectId) -> Result<()> {
        let mut at = oid;
        for _ in 0..TAG_DEPTH_MAX {
            let Some(object) = self.read_of(at, is_history)? else {
                return self.check_missing(at);
            };
            match tag_target(&object.data, self.format) {
                Some((target, _)) if object.kind == ObjectKind::Tag => at = target,
                _ => break,
            }
        }
        Ok(())
    }

    /// Reads an object; `None` if it is missing.
    ///
    /// # Errors
    /// `Io` when the database cannot be read.
    pub fn read(&self, oid: ObjectId) -> Result<Option<Object>> {
        self.read_of(oid, |_| true)
    }

    /// Reads objects of at most 4 KiB, as most commits and tags are, half of them in a second thread; `None` for one
    /// that is larger, empty or missing, or cannot be read: that one has to be asked for by itself.
    pub fn read_small(&self, oids: &[ObjectId]) -> Vec<Option<Object>> {
        let read_one = |oid: &ObjectId| {
            let read = self.read_of(*oid, |header| header.size <= SMALL_MAX);
            read.ok()?.filter(|object| !object.data.is_empty())
        };
        let read = |oids: &[ObjectId]| -> Vec<_> { oids.iter().map(read_one).collect() };
        let (first, second) = oids.split_at(oids.len() / 2);
        let (mut all, rest) = both(|| read(first), || read(second));
        all.extend(rest);
        all
    }

    /// As [`Odb::read`], but of an object that is not `wanted` nothing more is read than what it is.
    pub(crate) fn read_of(
        &self,
        oid: ObjectId,
        wanted: fn(Header) -> bool,
    ) -> Result<Option<Object>> {
        let oid = self.replaced(oid)?;
        if self.is_empty_tree(oid) {
            return Ok(Some(Object {
                kind: ObjectKind::Tree,
                data: Vec::new(),
            }));
        }
        self.database()?.read(oid, wanted)
    }

    /// Returns how an object is stored; `None` if it is missing.
    ///
    /// # Errors
    /// `Io` when the database cannot be read.
    pub fn storage(&self, oid: ObjectId) -> Result<Option<Storage>> {
        let oid = self.replaced(oid)?;
        if self.is_empty_tree(oid) {
            return Ok(Some(Storage {
                size: 0,
                delta_base: None,
            }));
        }
        self.database()?.storage(oid)
    }

    /// Returns what a tag leads to, as it says itself: whether that is there is not looked at. `None` for anything else,
    /// and for a tag that cannot be read.
    ///
    /// # Errors
    /// `Io` when the database cannot be read.
    pub fn tagged(&self, oid: ObjectId) -> Result<Option<ObjectId>> {
        if self.kind(oid)? != Some(ObjectKind::Tag) {
            return Ok(None);
        }
        Ok(self.end_of(oid)?.map(|(end, _)| end))
    }

    /// Follows a tag to what is no tag, by its own words and those of the tags behind it: the object, and the kind that
    /// is claimed for it. `None` for what is no tag, and where one cannot be read.
    ///
    /// # Errors
    /// `Io` when the database cannot be read.
    pub(crate) fn end_of(&self, tag: ObjectId) -> Result<Option<(ObjectId, ObjectKind)>> {
        self.chains.end_of(tag, self.format, |tag| self.read(tag))
    }

    /// Returns what tells how few digits name an object, and which objects some digits name, among those that there
    /// are now.
    ///
    /// # Errors
    /// `Io` when the database cannot be read.
    pub fn abbreviations(&self) -> Result<Abbreviations> {
        self.database()?.abbreviations()
    }

    /// Returns what the first object that is asked for says of itself, if that has a file of its own.
    fn first(&self, oid: ObjectId) -> Option<Header> {
        let path = || loose_path(self.dir(), oid);
        self.is_first().then(|| loose_header(&path()))??
    }

    /// Returns whether no object was asked for yet: a process that moves one ref to what was just made needs no list of
    /// packs.
    fn is_first(&self) -> bool {
        !self.was_asked.swap(true, Ordering::Relaxed)
    }

    /// Returns whether this is the tree with nothing in it, which every repository has.
    fn is_empty_tree(&self, oid: ObjectId) -> bool {
        let empty = gix_hash::ObjectId::empty_tree(gix_kind(self.format));
        oid.as_bytes() == empty.as_bytes()
    }

    /// Names where objects may be that cannot be had.
    ///
    /// # Errors
    /// `Io` when the database cannot be read.
    pub fn absent(&self) -> Result<Absent> {
        self.database()?.absent()
    }

    fn database(&self) -> Result<&Database> {
        if let Some(database) = self.database.get() {
            return Ok(database);
        }
        let database = Database::open(&self.dirs, self.format)?;
        Ok(self.database.get_or_init(|| database))
    }
}

impl Objects for Odb {
    fn kind(&self, oid: ObjectId) -> Result<Option<ObjectKind>> {
        Ok(self.header(oid)?.map(|header| header.kind))
    }

    fn may_be_tags(&self, oids: &[ObjectId]) -> Result<Vec<ObjectId>> {
        let mut found = Vec::new();
        for (oid, said) in oids.iter().zip(self.kinds_at_once(oids)?) {
            let kind = match said {
                Some(kind) => Some(kind),
                None => self.kind(*oid)?,
            };
            if matches!(kind, None | Some(ObjectKind::Tag)) {
                found.push(*oid);
            }
        }
        Ok(found)
    }

    fn peel(&self, oid: ObjectId) -> Result<Peeled> {
        match self.kind(oid)? {
            None => return Ok(Peeled::Missing),
            Some(ObjectKind::Tag) => {}
            Some(_) => return Ok(Peeled::Itself),
        }
        // The tag itself is there: it may be its content that cannot be read.
        match self.end_of(oid)? {
            Some((end, claimed)) if self.kind(end)? == Some(claimed) => Ok(Peeled::To(end)),
            _ => Ok(Peeled::Nowhere),
        }
    }
}

impl fmt::Debug for Odb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Odb")
            .field("format", &self.format)
            .field("dirs", &self.dirs)
            .finish_non_exhaustive()
    }
}

/// Returns whether objects of a kind lead to commits.
pub(crate) fn is_history(header: Header) -> bool {
    matches!(header.kind, ObjectKind::Commit | ObjectKind::Tag)
}

/// Returns the object that a tag names and the kind that it claims for it; `None` if the content
/// is no tag's.
pub fn tag_target(content: &[u8], format: ObjectFormat) -> Option<(ObjectId, ObjectKind)> {
    let rest = content.strip_prefix(b"object ")?;
    let (hex, rest) = rest.split_at_checked(format.hex_len())?;
    let oid = ObjectId::from_hex(hex)?;
    let rest = rest.strip_prefix(b"\ntype ")?;
    let end = rest.iter().position(|&byte| byte == b'\n')?;
    let (kind, rest) = rest.split_at(end);
    rest.strip_prefix(b"\ntag ")?;
    Some((oid, kind_of(kind)?))
}

/// Returns the kind that has that name.
pub(super) fn kind_of(name: &[u8]) -> Option<ObjectKind> {
    let kinds = [
        ObjectKind::Commit,
        ObjectKind::Tree,
        ObjectKind::Blob,
        ObjectKind::Tag,
    ];
    let is_named = |kind: &ObjectKind| kind.as_str().as_bytes() == name;
    kinds.into_iter().find(is_named)
}

pub(super) fn gix_kind(format: ObjectFormat) -> gix_hash::Kind {
    match format {
        ObjectFormat::Sha1 => gix_hash::Kind::Sha1,
        ObjectFormat::Sha256 => gix_hash::Kind::Sha256,
    }
}

pub(super) fn to_gix(oid: &ObjectId) -> &gix_hash::oid {
    gix_hash::oid::from_bytes_unchecked(oid.as_bytes())
}

pub(super) fn kind_from_gix(kind: gix_object::Kind) -> ObjectKind {
    match kind {
        gix_object::Kind::Commit => ObjectKind::Commit,
        gix_object::Kind::Tree => ObjectKind::Tree,
        gix_object::Kind::Blob => ObjectKind::Blob,
        gix_object::Kind::Tag => ObjectKind::Tag,
    }
}
