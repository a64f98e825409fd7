//! The cursor of the `files` backend: loose refs over packed-refs.
//!
//! Invariants:
//! 1. The loose refs of a range are read before packed-refs is opened for it. A ref that is packed
//!    in between is then seen in packed-refs, perhaps in both places, and never in neither.
//! 2. A loose ref shadows the packed one of its name.
//! 3. What was read once is not read again: the cursor shows one moment of each range.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use refdb_names::internals::name_from_disk;
use refdb_names::name::{FormatOptions, is_root_ref, is_well_formed};
use refdb_names::{ObjectId, RefName, Target, TargetRef};
use reftable::short::has_prefix;
use rustix::io::Errno;

use super::loose::{self, Loose};
use super::packed::Peeling;
use super::packed_cursor::PackedCursor;
use super::seen::{coming, put_in};
use super::{Files, log};
use crate::backend::cursor::{Cursor, Look, RefRecord, least};
use crate::backend::tags::Wanted;
use crate::commit::Entry;
use crate::error::{Error, OrIo, Result};
use crate::system::beside::{BATCH, HALVES_MIN, both};
use crate::system::{DirEntry, FileKind, bytes_to_path};

/// The directories of per-worktree refs, which a linked worktree has for itself.
const PER_WORKTREE_DIRS: [&[u8]; 3] = [b"bisect", b"rewritten", b"worktree"];

/// One loose ref as it was found.
#[derive(Clone, Debug)]
pub(super) struct LooseRef {
    pub(super) name: Vec<u8>,
    /// The value; `None` if the ref is broken.
    pub(super) target: Option<Target>,
}

/// The loose refs whose names start with `prefix`, sorted.
#[derive(Clone, Debug)]
struct Range {
    prefix: Vec<u8>,
    refs: Arc<Vec<LooseRef>>,
}

/// Walks over loose and packed refs together.
#[derive(Debug)]
pub(super) struct Overlay {
    files: Arc<Files>,
    null: ObjectId,
    // None is a part of another.
    ranges: Vec<Range>,
    // Which range the cursor is in, and the next loose ref in it.
    range: usize,
    next: usize,
    packed: Option<PackedCursor>,
    // Whether the packed cursor is to move on before the next ref is shown. It does so when that is asked for:
    // where it shows few refs, a seek would read all of them.
    packed_due: bool,
    prefix: Vec<u8>,
    current: Current,
    // Which packed refs are shown, if not all.
    wanted: Option<Wanted>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Current {
    Before,
    Loose(usize),
    Packed,
}

impl Overlay {
    pub(super) fn new(files: Arc<Files>) -> Self {
        Overlay {
            null: ObjectId::null(files.options.object_format),
            files,
            ranges: Vec::new(),
            range: 0,
            next: 0,
            packed: None,
            packed_due: false,
            prefix: Vec::new(),
            current: Current::Before,
            wanted: None,
        }
    }

    /// Leaves out packed refs that do not lead to a wanted object; if others are wanted that may lead there, only
    /// where no tag can be among those without a peeled value.
    pub(super) fn of_objects(files: Arc<Files>, wanted: &Wanted) -> Self {
        Overlay {
            wanted: Some(wanted.clone()),
            ..Overlay::new(files)
        }
    }

    /// Makes sure that the loose refs below `prefix` are read, and returns in which range they are.
    fn load(&mut self, prefix: &[u8]) -> Result<usize> {
        let covers = |range: &Range| prefix.starts_with(&range.prefix);
        if let Some(found) = self.ranges.iter().position(covers) {
            return Ok(found);
        }
        let view = self.files.journal.for_reading()?;
        let coming = match &view {
            Some(view) => coming(&self.files, view, prefix)?,
            None => Vec::new(),
        };
        let mut refs = list(&self.files, prefix)?;
        put_in(coming, &mut refs);
        let snapshot = self.files.packed_seen(view.as_deref())?;
        let linked = self.files.layout.is_linked();
        let tells_tags = snapshot.peeling() == Peeling::Fully;
        let wanted = self.wanted.as_ref().filter(|of| tells_tags || !of.wide);
        let ids = wanted.map(|of| of.ids(&snapshot.untold, || snapshot.tags_without_peeled()));
        let ids = ids.transpose()?;
        let packed = PackedCursor::new(snapshot, self.null, linked);
        self.packed = Some(match ids {
            Some(ids) => packed.of_objects(ids),
            None => packed,
        });
        self.ranges
            .retain(|range| !range.prefix.starts_with(prefix));
        self.ranges.push(Range {
            prefix: prefix.to_vec(),
            refs: Arc::new(refs),
        });
        Ok(self.ranges.len() - 1)
    }

    fn loose(&self, index: usize) -> Option<&LooseRef> {
        self.ranges.get(self.range)?.refs.get(index)
    }
}

impl Cursor for Overlay {
    fn seek(&mut self, name: &[u8], prefix: &[u8]) -> Result<()> {
        self.seek_part(name, prefix, None)
    }

    fn seek_part(&mut self, name: &[u8], prefix: &[u8], end: Option<&[u8]>) -> Result<()> {
        self.current = Current::Before;
        self.range = self.load(prefix)?;
        self.prefix = prefix.to_vec();
        let start = name.max(prefix);
        self.next = match self.ranges.get(self.range) {
            Some(range) => range
                .refs
                .partition_point(|found| found.name.as_slice() < start),
            None => 0,
        };
        if let Some(packed) = &mut self.packed {
            packed.seek_part(start, prefix, end)?;
        }
        self.packed_due = true;
        Ok(())
    }

    fn advance(&mut self) -> Result<bool> {
        if self.ranges.is_empty() {
            self.seek(b"", b"")?;
        }
        if self.packed_due
            && let Some(packed) = &mut self.packed
        {
            packed.advance()?;
        }
        self.packed_due = false;
        let packed = self.packed.as_ref().and_then(PackedCursor::present);
        let loose = self
            .loose(self.next)
            .map(|found| found.name.as_slice())
            .filter(|name| has_prefix(name, &self.prefix));
        self.current = match (loose, packed) {
            (None, None) => {
                self.current = Current::Before;
                return Ok(false);
            }
            (Some(loose), packed) if packed.is_none_or(|packed| loose <= packed) => {
                self.packed_due = packed == Some(loose);
                self.next += 1;
                Current::Loose(self.next - 1)
            }
            _ => {
                self.packed_due = true;
                Current::Packed
            }
        };
        Ok(true)
    }

    fn name(&self) -> RefName<'_> {
        let name = match self.current {
            Current::Loose(index) => self.loose(index).map(|found| found.name.as_slice()),
            _ => self.packed.as_ref().and_then(PackedCursor::present),
        };
        name_from_disk(name.expect("advance returned true"))
    }

    fn record(&self) -> RefRecord<'_> {
        let index = match self.current {
            Current::Loose(index) => index,
            _ => {
                let packed = self.packed.as_ref().expect("advance returned true");
                return packed.record();
            }
        };
        let found = self.loose(index).expect("advance returned true");
        let bad_name = !is_well_formed(&found.name, FormatOptions::ONE_LEVEL);
        let target = match &found.target {
            Some(target) if !bad_name => target.as_ref(),
            _ => TargetRef::Direct(self.null),
        };
        RefRecord {
            name: name_from_disk(&found.name),
            target,
            peeled: None,
            packed: false,
            broken: target == TargetRef::Direct(self.null),
            look: Look::at(!bad_name),
        }
    }

    fn another(&self) -> Option<Box<dyn Cursor>> {
        // What was not read yet would be read at another moment.
        let packed = self.packed.as_ref()?.again();
        Some(Box::new(Overlay {
            ranges: self.ranges.clone(),
            range: self.range,
            packed: Some(packed),
            wanted: self.wanted.clone(),
            ..Overlay::new(Arc::clone(&self.files))
        }))
    }

    fn is_sparse(&self) -> bool {
        self.wanted.is_some()
    }

    fn name_ahead(&mut self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        if self.ranges.is_empty() {
            self.seek(b"", b"")?;
        }
        let packed = match &mut self.packed {
            Some(packed) => packed.name_ahead(name)?,
            None => None,
        };
        let loose = self.ranges.get(self.range).and_then(|range| {
            let at = range
                .refs
                .partition_point(|found| found.name.as_slice() < name);
            Some(range.refs.get(at + BATCH)?.name.clone())
        });
        Ok(least(packed, loose))
    }
}

/// Reads all loose refs whose names start with `prefix`, sorted.
///
/// # Errors
/// `Io` when a directory cannot be listed or a file not be read.
pub(super) fn list(files: &Files, prefix: &[u8]) -> Result<Vec<LooseRef>> {
    list_with_locks(files, prefix, &mut Vec::new())
}

/// As [`list`], and adds to `locks` the paths of what is named like a lock.
pub(super) fn list_with_locks(
    files: &Files,
    prefix: &[u8],
    locks: &mut Vec<PathBuf>,
) -> Result<Vec<LooseRef>> {
    let (mut found, mut linked) = (Vec::new(), Vec::new());
    if !prefix.starts_with(b"refs/") {
        root_refs(files, prefix, &mut found)?;
    }
    if prefix.starts_with(b"refs/") || b"refs/".starts_with(prefix) {
        let dir = match prefix.iter().rposition(|&byte| byte == b'/') {
            Some(slash) => prefix.get(..=slash).unwrap_or_default(),
            None => b"refs/",
        };
        if leads_to_refs(dir) {
            let mut walk = Walk {
                files,
                prefix,
                found: &mut found,
                behind_links: &mut linked,
                locks,
                linked: 0,
                linked_refs: 0,
                inside: 0,
            };
            walk.dir(dir)?;
        }
    }
    let mut refs = match found.len() {
        0..HALVES_MIN => read_all(files, found)?,
        len => {
            let second = found.split_off(len / 2);
            let (first, second) = both(|| read_all(files, found), || read_all(files, second));
            let mut refs = first?;
            refs.append(&mut second?);
            refs
        }
    };
    refs.append(&mut linked);
    // Each directory is walked in order; only links and odd listings can break the order.
    if !refs.is_sorted_by(|a, b| a.name <= b.name) {
        refs.sort_by(|a, b| a.name.cmp(&b.name));
    }
    // Two ways can lead to one name, where a file system gives one twice whatever is done.
    refs.dedup_by(|next, kept| next.name == kept.name);
    Ok(refs)
}

/// Returns whether refs can be in a directory of that name: none are in hidden ones, and `.` and `..`
/// would lead to refs by another name, or out of the repository.
fn leads_to_refs(dir: &[u8]) -> bool {
    let mut names = dir
        .strip_suffix(b"/")
        .unwrap_or(dir)
        .split(|&byte| byte == b'/');
    names.all(|name| !name.is_empty() && !name.starts_with(b".") && !name.contains(&0))
}

fn root_refs(files: &Files, prefix: &[u8], found: &mut Vec<Found>) -> Result<()> {
    let dir = files.layout.worktree_dir();
    for entry in files.entries(dir)?.unwrap_or_default() {
        let is_file = matches!(entry.kind, FileKind::File | FileKind::Symlink);
        if is_file && entry.name.starts_with(prefix) && is_root_ref(&entry.name) {
            found.push(Found {
                path: dir.join(bytes_to_path(&entry.name)),
                name: entry.name,
                kind: entry.kind,
            });
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(())
}

impl Files {
    /// Lists a directory; `None` if it is not there.
    pub(super) fn entries(&self, dir: &Path) -> Result<Option<Vec<DirEntry>>> {
        log::if_there(self.system.read_dir(dir)).or_io("unable to list", dir)
    }
}

/// A file of which a listing told.
struct Found {
    name: Vec<u8>,
    path: PathBuf,
    kind: FileKind,
}

/// Reads loose refs.
fn read_all(files: &Files, found: Vec<Found>) -> Result<Vec<LooseRef>> {
    let mut refs = Vec::with_capacity(found.len());
    for found in found {
        refs.extend(read(files, found)?);
    }
    Ok(refs)
}

/// Reads one loose ref that a listing told of; `None` if it is none any more.
fn read(files: &Files, Found { name, path, kind }: Found) -> Result<Option<LooseRef>> {
    let format = files.options.object_format;
    let found = match kind {
        FileKind::File => loose::read_listed(files.system.as_ref(), &path, format),
        _ => loose::read(files.system.as_ref(), &path, format),
    };
    let target = match log::if_there(found).or_io("unable to read", &path)? {
        Some(Loose::Found(target)) => Some(target),
        Some(Loose::Broken) => None,
        // Packed or deleted since the directory was listed.
        Some(Loose::Missing | Loose::Directory) | None => return Ok(None),
    };
    Ok(Some(LooseRef { name, target }))
}

/// A walk over the directories below `refs/`.
struct Walk<'a> {
    files: &'a Files,
    prefix: &'a [u8],
    found: &'a mut Vec<Found>,
    /// What was read at once: links that lead in a circle come to an end where nothing can be read any more.
    behind_links: &'a mut Vec<LooseRef>,
    locks: &'a mut Vec<PathBuf>,
    /// How many directories links led to, and how many refs were found there.
    linked: usize,
    linked_refs: usize,
    /// How many links lead to the directory that is read.
    inside: usize,
}

/// So many directories of refs may be reached by links, each as often as links lead to it: a few links
/// in each of a few directories come to billions.
const LINKED_MAX: usize = 10_000;
/// Where there are more than a few, so many refs may be reached by them.
const LINKED_FEW: usize = 100;
const LINKED_REFS_MAX: usize = 200_000;

/// Returns whether more is behind links than anybody means to have there.
pub fn are_too_many_linked(dirs: usize, refs: usize) -> bool {
    dirs > LINKED_MAX || dirs > LINKED_FEW && refs > LINKED_REFS_MAX
}

/// What is said of a repository with more.
pub const TOO_MANY_LINKED: &str = "links lead to more than 10000 directories of refs, or more than 100 of them to more than 200000 refs: perhaps to a few again and again";

impl Walk<'_> {
    /// Finds the refs in the directory `dir`, a name with a slash at the end, and below it.
    fn dir(&mut self, dir: &[u8]) -> Result<()> {
        let (place, bare) = self.files.layout.locate(name_from_disk(dir));
        let base = self.files.layout.dir(&place).to_owned();
        let path = base.join(bytes_to_path(bare.as_bytes()));
        let mut entries = self.files.entries(&path)?.unwrap_or_default();
        if dir == b"refs/" && self.files.layout.is_linked() {
            // A file of such a name is a ref that all worktrees share.
            entries.retain(|entry| {
                let is_shared = !PER_WORKTREE_DIRS.contains(&entry.name.as_slice());
                is_shared || entry.kind == FileKind::File
            });
            entries.extend(PER_WORKTREE_DIRS.map(|name| DirEntry {
                name: name.to_vec(),
                kind: FileKind::Directory,
            }));
        }
        let mut links = HashSet::new();
        for entry in &mut entries {
            let mut is_link = false;
            match Entry::of(self.files.system.as_ref(), &path, entry) {
                // What lies behind a link is nobody's that this repository knows.
                Entry::Lock | Entry::Barrier | Entry::NewValue if self.inside > 0 => {}
                Entry::Lock | Entry::Barrier | Entry::NewValue => {
                    self.locks.push(path.join(bytes_to_path(&entry.name)));
                }
                Entry::Ref if entry.kind == FileKind::Symlink => {
                    is_link = self.resolve_kind(&path, entry)?;
                }
                Entry::Ref | Entry::Dir => {}
            }
            if entry.kind == FileKind::Directory {
                // So that the order of the entries is that of the full names.
                entry.name.push(b'/');
            }
            if is_link {
                links.insert(entry.name.clone());
            }
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let mut name = dir.to_vec();
        for entry in entries {
            name.truncate(dir.len());
            name.extend_from_slice(&entry.name);
            let is_lock = entry.name.ends_with(b".lock") || entry.name.ends_with(b".lock/");
            if entry.name.starts_with(b".") || is_lock {
                continue;
            }
            if entry.kind == FileKind::Directory {
                if name.starts_with(self.prefix) || self.prefix.starts_with(&name) {
                    let inside = usize::from(links.contains(&entry.name));
                    self.inside += inside;
                    self.dir(&name)?;
                    self.inside -= inside;
                }
            } else if name.starts_with(self.prefix) {
                let found = Found {
                    name: name.clone(),
                    path: path.join(bytes_to_path(&entry.name)),
                    kind: entry.kind,
                };
                if self.inside == 0 {
                    self.found.push(found);
                    continue;
                }
                self.linked_refs += 1;
                if are_too_many_linked(self.linked, self.linked_refs) {
                    return Err(Error::corrupt(&found.path, TOO_MANY_LINKED));
                }
                self.behind_links.extend(read(self.files, found)?);
            }
        }
        Ok(())
    }

    /// Finds out whether a link is a ref or leads to a directory of refs. One that leads nowhere
    /// is no ref: it stays a link, and reading it finds nothing, unless its text is a ref's name.
    /// Returns whether it leads to one.
    fn resolve_kind(&mut self, dir: &Path, entry: &mut DirEntry) -> Result<bool> {
        let path = dir.join(bytes_to_path(&entry.name));
        let stat = self.files.system.stat(&path);
        if let Err(error) = &stat
            && self.inside > 0
            && error.raw_os_error() == Some(Errno::LOOP.raw_os_error())
        {
            // The links that were followed lead back to themselves: there is no end to what is below.
            return stat.map(|_| false).or_io("unable to read", &path);
        }
        if stat.is_err() || stat.is_ok_and(|stat| stat.kind != FileKind::Directory) {
            return Ok(false);
        }
        entry.kind = FileKind::Directory;
        self.linked += 1;
        match are_too_many_linked(self.linked, self.linked_refs) {
            true => Err(Error::corrupt(&path, TOO_MANY_LINKED)),
            false => Ok(true),
        }
    }
}
