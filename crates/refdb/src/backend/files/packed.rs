//! packed-refs: one file of direct refs in byte order, with what they peel to.
//!
//! Invariants:
//! 1. A [`Snapshot`] never changes. The file is only ever replaced as a whole, so the snapshot is
//!    one moment of it, for as long as anybody holds it.
//! 2. Its records are in order: a file that does not claim so is checked, and sorted in memory.
//! 3. No byte of the file can make a reader panic, and damage is an error that names the line.
//! 4. Reading needs no memory beyond the map of the file, however many refs there are.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bstr::ByteSlice;
use refdb_names::internals::first_byte;
use refdb_names::{ObjectFormat, ObjectId, Target};

pub(super) use super::forwards::Forwards;
use crate::backend::Value;
use crate::backend::tags::Untold;
use crate::error::{Error, ErrorKind, Message, OrIo, Result, Role, io_text};
use crate::reflog::is_space;
use crate::system::find::{byte, last_byte};
use crate::system::{Bytes, FileId, FileKind, MAP_MIN, Stat, System, unpoisoned};

/// How every header starts.
pub const HEADER: &[u8] = b"# pack-refs with: ";

/// How many symbolic links the name of packed-refs is followed through.
const LINKS_MAX: usize = 5;

/// Which records of a file are followed by what they peel to, where there is something to peel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peeling {
    /// Nobody knows.
    Unknown,
    /// Those below `refs/tags/`.
    Tags,
    /// All.
    Fully,
}

/// The packed-refs of a repository: reads the file again whenever it changed.
#[derive(Debug)]
pub(super) struct PackedRefs {
    system: Arc<dyn System>,
    path: PathBuf,
    format: ObjectFormat,
    cached: Mutex<Option<Cached>>,
    /// Whether the name was that of no link when it was last looked at.
    is_plain: AtomicBool,
}

#[derive(Debug)]
struct Cached {
    stat: Stat,
    settled: bool,
    mapped: bool, // the file itself: then no other has its inode
    snapshot: Arc<Snapshot>,
}

/// One moment of packed-refs.
#[derive(Debug)]
pub(super) struct Snapshot {
    path: PathBuf,
    format: ObjectFormat,
    bytes: Bytes,
    // Where the records start, behind the header.
    start: usize,
    peeling: Peeling,
    // Whether the bytes are those of the file, or a sorted copy.
    as_on_disk: bool,
    // Where the last search ended: often the next one ends there, or soon behind it.
    pub(super) hint: AtomicUsize,
    // Whether it ended far from where the one before did: then so will the next one.
    pub(super) is_far: AtomicBool,
    /// Which file that is; `None` if there was none.
    pub(super) file: Option<FileId>,
    pub(super) untold: Untold,
}

/// One record, and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) name: Range<usize>,
    pub(super) oid: ObjectId,
    pub(super) peeled: Option<ObjectId>,
    /// The record with the line of its peeled value.
    pub(super) all: Range<usize>,
}

impl Record {
    pub(super) fn into_ref(self) -> Value {
        Value {
            target: Target::Direct(self.oid),
            peeled: self.peeled,
            packed: true,
        }
    }
}

impl PackedRefs {
    pub(super) fn new(system: Arc<dyn System>, path: PathBuf, format: ObjectFormat) -> Self {
        PackedRefs {
            system,
            path,
            format,
            cached: Mutex::new(None),
            is_plain: AtomicBool::new(false),
        }
    }

    /// Returns the present state of the file; one `stat` if it did not change.
    ///
    /// # Errors
    /// `Corrupt` for damage that every reader must know of, `Io` for the system's.
    pub(super) fn snapshot(&self) -> Result<Arc<Snapshot>> {
        self.snapshot_of(self.system.stat(&self.path))
    }

    /// As [`PackedRefs::snapshot`], unless the name is that of a link by now: then nothing is read.
    ///
    /// # Errors
    /// As there.
    pub(super) fn snapshot_if_plain(&self) -> Result<Option<Arc<Snapshot>>> {
        let stat = self.system.lstat(&self.path);
        let is_link = matches!(&stat, Ok(stat) if stat.kind == FileKind::Symlink);
        self.is_plain.store(!is_link, Ordering::Relaxed);
        match is_link {
            true => Ok(None),
            false => self.snapshot_of(stat).map(Some),
        }
    }

    /// Returns the state of the file that was described just now.
    fn snapshot_of(&self, stat: io::Result<Stat>) -> Result<Arc<Snapshot>> {
        let io = |error: io::Error| {
            let (path, text) = (self.path.display(), io_text(&error));
            let message = format!("couldn't read {path}: {text}");
            let message = Message::from(message).of(&self.path, Role::PackedRefs);
            Error::new(ErrorKind::Io, message).with_source(error)
        };
        let stat = match stat {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.forget();
                let empty = Bytes::new();
                return Snapshot::new(self.path.clone(), self.format, empty).map(Arc::new);
            }
            stat => stat.map_err(io)?,
        };
        let mut cached = unpoisoned(&self.cached);
        if let Some(cached) = &*cached
            && cached.settled
            && cached.stat == stat
        {
            return Ok(Arc::clone(&cached.snapshot));
        }
        let settled = stat.is_settled(self.system.now());
        // Should the file be replaced in this moment, the next look finds another inode.
        let bytes = self.system.map_whole(&self.path).map_err(io)?;
        let snapshot = Arc::new(Snapshot {
            file: Some(FileId::of(&stat)),
            ..Snapshot::new(self.path.clone(), self.format, bytes)?
        });
        // While a file is mapped nobody else gets its inode, and what is written over it is seen.
        let mapped = stat.len >= MAP_MIN && snapshot.as_on_disk;
        *cached = Some(Cached {
            stat,
            settled: settled || mapped,
            mapped,
            snapshot: Arc::clone(&snapshot),
        });
        Ok(snapshot)
    }

    /// Returns what tells the present state of the file from others; `None` while it may still
    /// change without a trace.
    pub(super) fn state(&self) -> Result<Option<Vec<u8>>> {
        match self.system.stat(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Some(Vec::new())),
            Err(error) => Err(Error::io("unable to read", &self.path, error)),
            Ok(stat) => {
                let settled = stat.is_settled(self.system.now());
                Ok(settled.then(|| format!("{stat:?}").into_bytes()))
            }
        }
    }

    /// Forgets what was read unless a look at the file tells for certain whether it is the same.
    pub(super) fn forget_uncertain(&self) {
        let mut cached = unpoisoned(&self.cached);
        cached.take_if(|cached| !cached.mapped);
    }

    /// Forgets what was read, because the file was replaced or is about to be.
    pub(super) fn forget(&self) {
        *unpoisoned(&self.cached) = None;
    }

    /// Returns the path of the file, if its name was that of no link when it was last looked at.
    pub(super) fn plain_path(&self) -> Option<&Path> {
        let is_plain = self.is_plain.load(Ordering::Relaxed);
        is_plain.then_some(self.path.as_path())
    }

    /// Returns the path of the file itself, should `packed-refs` be a symbolic link.
    pub(super) fn resolved_path(&self) -> Result<PathBuf> {
        let io = |path: &Path, error| Error::io("unable to read", path, error);
        let mut path = self.path.clone();
        for _ in 0..LINKS_MAX {
            match self.system.lstat(&path) {
                Ok(stat) if stat.kind == FileKind::Symlink => {}
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(io(&path, error));
                }
                _ => return Ok(path),
            }
            let text = self
                .system
                .read_link(&path)
                .or_io("unable to read", &path)?;
            path = path.parent().unwrap_or(Path::new("")).join(text);
        }
        Err(io(&self.path, io::Error::other("too many symbolic links")))
    }
}

/// Returns whether an id has nothing but hexadecimal digits. Many are looked at together.
#[inline]
fn has_digits_only(hex: &[u8]) -> bool {
    let is_sound = |digits: &[u8; 16]| {
        let mut others = 0;
        for digit in digits {
            let is_decimal = digit.wrapping_sub(b'0') < 10;
            others |= u8::from(!(is_decimal | ((digit | 0x20).wrapping_sub(b'a') < 6)));
        }
        others == 0
    };
    // An id is longer than that; its last digits may be looked at twice.
    hex.last_chunk().is_some_and(is_sound) && hex.as_chunks().0.iter().all(is_sound)
}

/// First bytes of ids, by their lowest six bits, which tells most other ids apart.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FirstBytes(u64);

impl FirstBytes {
    pub(super) fn add(&mut self, oid: &ObjectId) {
        self.0 |= oid.as_bytes().first().map_or(0, |first| 1 << (first & 63));
    }

    #[inline]
    fn has(self, byte: u8) -> bool {
        self.0 >> (byte & 63) & 1 != 0
    }
}

impl Snapshot {
    /// Takes the content of the file at `path`, and checks what every reader relies on.
    ///
    /// # Errors
    /// `Corrupt` for a bad header or a bad end, and for any bad record of an unsorted file.
    pub(super) fn new(path: PathBuf, format: ObjectFormat, bytes: Bytes) -> Result<Snapshot> {
        let mut snapshot = Snapshot {
            path,
            format,
            bytes,
            start: 0,
            peeling: Peeling::Unknown,
            file: None,
            as_on_disk: true,
            hint: AtomicUsize::new(0),
            is_far: AtomicBool::new(false),
            untold: Untold::default(),
        };
        if snapshot.content().is_empty() {
            snapshot.peeling = Peeling::Fully;
            return Ok(snapshot);
        }
        if !snapshot.content().ends_with(b"\n") {
            let line = last_byte(b'\n', snapshot.content()).map_or(0, |lf| lf + 1);
            return Err(snapshot.bad_line("unterminated line", line));
        }
        let sorted = snapshot.read_header()?;
        if snapshot.start < snapshot.len() {
            let last = snapshot.record_start(snapshot.len() - 1, snapshot.start);
            snapshot.name_at(last)?;
        }
        if !sorted {
            snapshot.sort()?;
        }
        Ok(snapshot)
    }

    /// Reads the first line, if it is a header; returns whether the file claims to be sorted.
    fn read_header(&mut self) -> Result<bool> {
        let line = self.line(0);
        if !line.starts_with(b"#") {
            return Ok(false);
        }
        let Some(traits) = line.strip_prefix(HEADER) else {
            return Err(self.bad_line("unexpected line", 0));
        };
        let words = traits.split(|byte| *byte == b' ');
        let has = |name: &str| words.clone().any(|found| found == name.as_bytes());
        let peeling = if has("fully-peeled") {
            Peeling::Fully
        } else if has("peeled") {
            Peeling::Tags
        } else {
            Peeling::Unknown
        };
        let (sorted, start) = (has("sorted"), line.len() + 1);
        self.peeling = peeling;
        self.start = start;
        Ok(sorted)
    }

    /// Checks the order of the records, and makes a sorted copy, with each name once, if they are in none.
    fn sort(&mut self) -> Result<()> {
        let mut records = Vec::new();
        let (mut sorted, mut last, mut at) = (true, None::<Range<usize>>, self.start);
        while at < self.len() {
            let record = self.record(at)?;
            if let Some(last) = last.replace(record.name.clone()) {
                sorted &= self.slice(&last) < self.slice(&record.name);
            }
            at = record.all.end;
        }
        if sorted {
            return Ok(());
        }
        at = self.start;
        while at < self.len() {
            let record = self.record(at)?;
            at = record.all.end;
            records.push((record.name, record.all));
        }
        records.sort_by(|a, b| self.slice(&a.0).cmp(self.slice(&b.0)));
        records.dedup_by(|next, kept| self.slice(&next.0) == self.slice(&kept.0));
        let mut copy = Vec::with_capacity(self.len() - self.start);
        for (_, all) in &records {
            copy.extend_from_slice(self.slice(all));
        }
        self.bytes = copy.into();
        self.start = 0;
        self.as_on_disk = false;
        Ok(())
    }

    /// Returns how many digits an id has.
    pub(super) fn hex_len(&self) -> usize {
        self.format.hex_len()
    }

    /// Returns the path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the length of the content in bytes.
    pub(super) fn len(&self) -> usize {
        self.content().len()
    }

    /// Returns where the first record starts.
    pub(super) fn start(&self) -> usize {
        self.start
    }

    /// Returns which records have their peeled values.
    pub(super) fn peeling(&self) -> Peeling {
        self.peeling
    }

    /// Returns whether the file holds at least one ref and is as this library would write it.
    pub(super) fn is_tidy(&self) -> bool {
        self.as_on_disk && self.peeling == Peeling::Fully && self.start > 0
    }

    pub(super) fn content(&self) -> &[u8] {
        self.bytes.as_ref()
    }

    /// Returns a part of the content; a range that this snapshot made is always within it.
    pub(super) fn slice(&self, range: &Range<usize>) -> &[u8] {
        self.content().get(range.clone()).unwrap_or_default()
    }

    /// Returns the line that starts at `at`, without its line feed.
    fn line(&self, at: usize) -> &[u8] {
        let rest = self.content().get(at..).unwrap_or_default();
        let end = byte(b'\n', rest).unwrap_or(rest.len());
        rest.get(..end).unwrap_or_default()
    }

    /// Returns where the name stands of the record that starts at `at`.
    pub(super) fn name_at(&self, at: usize) -> Result<Range<usize>> {
        let name = self.name_if_any(at);
        name.ok_or_else(|| self.bad_line("unexpected line", at))
    }

    /// Returns where the name stands of the record that starts at `at`, if there is one.
    pub(super) fn name_if_any(&self, at: usize) -> Option<Range<usize>> {
        // In one search: this is what each step of a lookup costs.
        let line = self.content().get(at..)?;
        let (hex_len, len) = (self.format.hex_len(), byte(b'\n', line)?);
        if len <= hex_len {
            let is_space_behind = len == hex_len;
            return is_space_behind.then(|| self.name_behind(at + hex_len))?;
        }
        let is_name = hex_len + 1 < len && is_space(*line.get(hex_len)?);
        is_name.then_some(at + hex_len + 1..at + len)
    }

    /// Returns where the name stands of the record whose id ends at `hex_end`, on the same line.
    fn name_behind(&self, hex_end: usize) -> Option<Range<usize>> {
        let (&space, rest) = self.content().get(hex_end..)?.split_first()?;
        let len = byte(b'\n', rest).filter(|len| *len > 0)?;
        let start = hex_end + 1;
        is_space(space).then_some(start..start + len)
    }

    /// Returns where the name stands of the record that starts at `at`, if that starts with an id.
    pub(super) fn name_of_ref(&self, at: usize) -> Option<Range<usize>> {
        let hex = at..at.saturating_add(self.format.hex_len());
        has_digits_only(self.slice(&hex)).then(|| self.name_behind(hex.end))?
    }

    /// Reads the record that starts at `at`.
    ///
    /// # Errors
    /// `Corrupt` when there is no record.
    pub(super) fn record(&self, at: usize) -> Result<Record> {
        let record = self.record_of_any_name(at)?;
        self.check_name(&record.name)?;
        Ok(record)
    }

    /// Checks what no name can have.
    pub(super) fn check_name(&self, name: &Range<usize>) -> Result<()> {
        if byte(0, self.slice(name)).is_none() {
            return Ok(());
        }
        let text = self.slice(name).as_bstr();
        let path = self.path.display();
        Err(Error::damage(
            &self.path,
            format!("packed refname contains embedded NULL: {text} (in {path})"),
        ))
    }

    /// Returns the name of the record that starts at `at`, and where that ends, if it is like nearly
    /// all: in order, without a peeled value, and not of an id whose first byte has a bit in `first`.
    #[inline]
    pub(super) fn pass(&self, at: usize, first: &FirstBytes) -> Option<(Range<usize>, usize)> {
        let hex = at..at.saturating_add(self.format.hex_len());
        let byte = first_byte(self.slice(&hex))?;
        if first.has(byte) {
            return None;
        }
        let name = self.name_behind(hex.end)?;
        let end = name.end + 1;
        (self.content().get(end) != Some(&b'^')).then_some((name, end))
    }

    /// Reads the record that starts at `at`, but does not look at its name.
    ///
    /// # Errors
    /// As for [`Snapshot::record`].
    pub(super) fn record_of_any_name(&self, at: usize) -> Result<Record> {
        let bad_line = || self.bad_line("unexpected line", at);
        let hex = at..at.saturating_add(self.format.hex_len());
        // Digits are no line feed: what follows them is on the same line.
        let oid = ObjectId::from_hex(self.slice(&hex)).ok_or_else(bad_line)?;
        let name = self.name_behind(hex.end).ok_or_else(bad_line)?;
        let mut end = name.end + 1;
        let mut peeled = None;
        if self.content().get(end) == Some(&b'^') {
            let line = self.line(end).get(1..).unwrap_or_default();
            let hex = ObjectId::from_hex(line).filter(|oid| oid.format() == self.format);
            peeled = Some(hex.ok_or_else(|| self.bad_line("unexpected line", end))?);
            end += self.format.hex_len() + 2;
        }
        let all = at..end;
        Ok(Record {
            name,
            oid,
            peeled,
            all,
        })
    }

    /// Returns where the record starts to which the byte at `at` belongs; `low` is the start of
    /// some record before it.
    pub(super) fn record_start(&self, at: usize, low: usize) -> usize {
        let mut at = at;
        while at > low {
            let before = self.slice(&(low..at));
            let start = last_byte(b'\n', before).map_or(low, |lf| low + lf + 1);
            if self.content().get(start) != Some(&b'^') {
                return start;
            }
            at = start.saturating_sub(1);
        }
        low
    }

    /// Returns where the line starts behind the one that starts at `at`.
    pub(super) fn next_line(&self, at: usize) -> usize {
        at + self.line(at).len() + 1
    }

    /// Returns the end of the record whose name ends at `name_end`.
    pub(super) fn after(&self, name_end: usize) -> usize {
        let mut end = name_end + 1;
        while self.content().get(end) == Some(&b'^') {
            end += self.line(end).len() + 1;
        }
        end
    }

    /// Returns the first name that begins with `dir`, if there is one.
    pub(super) fn first_in(&self, dir: &[u8]) -> Result<Option<Vec<u8>>> {
        let at = self.lower_bound(dir, self.start())?;
        if at >= self.len() {
            return Ok(None);
        }
        let found = self.slice(&self.name_at(at)?);
        Ok(found.starts_with(dir).then(|| found.to_vec()))
    }

    /// Makes the error of a packed name that could lead out of the repository.
    pub(super) fn dangerous(&self, name: &[u8]) -> Error {
        let (path, name) = (self.path.display(), name.as_bstr());
        let what = format!("packed refname is dangerous: {name} (in {path})");
        Error::damage(&self.path, what)
    }

    fn bad_line(&self, what: &str, at: usize) -> Error {
        let line = self.line(at);
        let text = match line.get(..75) {
            Some(head) if line.len() > 79 => format!("{}...", head.as_bstr()),
            _ => line.as_bstr().to_string(),
        };
        let number = || self.slice(&(0..at)).find_iter("\n").count() + 1;
        let what = format!("{what} in {}: {text}", self.path.display());
        Error::packed_line(&self.path, what, self.as_on_disk.then(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::OsSystem;

    fn snapshot(content: &str) -> Result<Snapshot> {
        let bytes = Bytes::copy_from_slice(content.as_bytes());
        Snapshot::new("packed-refs".into(), ObjectFormat::Sha1, bytes)
    }

    fn names(snapshot: &Snapshot) -> Vec<String> {
        let mut at = snapshot.start();
        let mut names = Vec::new();
        while at < snapshot.len() {
            let record = snapshot.record(at).unwrap();
            names.push(snapshot.slice(&record.name).as_bstr().to_string());
            at = record.all.end;
        }
        names
    }

    fn hex(digit: char) -> String {
        digit.to_string().repeat(40)
    }

    #[test]
    fn every_name_and_every_gap_is_found() {
        let mut content = String::from("# pack-refs with: peeled fully-peeled sorted \n");
        for number in (0..3000).step_by(2) {
            content += &format!("{} refs/tags/{number:05}\n", hex('a'));
            if number % 3 == 0 {
                content += &format!("^{}\n", hex('b'));
            }
        }
        let snapshot = snapshot(&content).unwrap();
        for number in 0..3000 {
            let name = format!("refs/tags/{number:05}");
            let found = snapshot.find_ref(name.as_bytes()).unwrap();
            assert_eq!(found.is_some(), number % 2 == 0, "{name}");
            let peeled = found.and_then(|found| found.peeled);
            assert_eq!(peeled.is_some(), number % 6 == 0, "{name}");
            for from in [0, 17, 1498] {
                let from = format!("refs/tags/{:05}", from * 2);
                let from = snapshot
                    .lower_bound(from.as_bytes(), snapshot.start())
                    .unwrap();
                let bound = snapshot
                    .lower_bound(name.as_bytes(), snapshot.start())
                    .unwrap();
                let near = snapshot.lower_bound(name.as_bytes(), from).unwrap();
                assert_eq!(near, bound.max(from), "{name}");
            }
        }
    }

    #[test]
    fn an_unsorted_file_is_sorted_in_memory() {
        let content = format!(
            "{a} refs/heads/b\n^{b}\n{b} refs/heads/a\n{a} refs/heads/c\n",
            a = hex('a'),
            b = hex('b')
        );
        let snapshot = snapshot(&content).unwrap();
        assert_eq!(
            names(&snapshot),
            ["refs/heads/a", "refs/heads/b", "refs/heads/c"]
        );
        assert!(
            snapshot
                .find_ref(b"refs/heads/b")
                .unwrap()
                .unwrap()
                .peeled
                .is_some()
        );
        assert_eq!(snapshot.peeling(), Peeling::Unknown);
        assert!(!snapshot.is_tidy());
    }

    #[test]
    fn damage_is_told_with_its_line() {
        let good = format!("{} refs/heads/a\n", hex('a'));
        let long = format!("{} refs/heads/{}\n", hex('g'), "x".repeat(60));
        for (content, message) in [
            (
                format!("# other\n{good}"),
                "unexpected line in packed-refs: # other (line 1)",
            ),
            (
                format!("{good}{}", hex('a')),
                "unterminated line in packed-refs: ",
            ),
            (
                format!("{good}abc\n"),
                "unexpected line in packed-refs: abc (line 2)",
            ),
            (
                format!("{good}{}\n", hex('a')),
                "unexpected line in packed-refs: ",
            ),
            (
                format!("{good}{}x refs/heads/b\n", hex('a')),
                "unexpected line in packed-refs: ",
            ),
            (
                format!("{good}^{}\n^{}\n", hex('a'), hex('a')),
                "unexpected line in packed-refs: ^",
            ),
            (
                format!("{good}# no comment\n"),
                "unexpected line in packed-refs: # no comment",
            ),
            (
                format!("^{}\n{good}", hex('a')),
                "unexpected line in packed-refs: ^",
            ),
            (long, "xxx... (line 1)"),
            (
                format!("{good}{} refs/heads/\0b\n", hex('a')),
                "packed refname contains embedded NULL",
            ),
        ] {
            let error = snapshot(&content).unwrap_err();
            let kind = match message.contains("line") {
                true => ErrorKind::PackedRefs,
                false => ErrorKind::Corrupt,
            };
            assert_eq!(error.kind(), kind);
            assert!(
                error.to_string().contains(message),
                "{error} for {content:?}"
            );
        }
    }

    #[test]
    fn damage_within_a_sorted_file_is_found_where_it_is_met() {
        let content = format!(
            "# pack-refs with: peeled fully-peeled sorted \n{} refs/heads/a\n{} refs/heads/b\n",
            hex('z'),
            hex('a')
        );
        let snapshot = snapshot(&content).unwrap();
        assert!(snapshot.find_ref(b"refs/heads/b").unwrap().is_some());
        assert_eq!(
            snapshot.find_ref(b"refs/heads/a").unwrap_err().kind(),
            ErrorKind::PackedRefs
        );
    }

    #[test]
    fn a_tab_may_separate_and_a_missing_file_is_empty() {
        let found = snapshot(&format!("{}\trefs/heads/a\n", hex('a'))).unwrap();
        assert!(found.find(b"refs/heads/a").unwrap().is_some());
        let empty = snapshot("").unwrap();
        assert_eq!(empty.peeling(), Peeling::Fully);
        assert!(empty.find(b"refs/heads/a").unwrap().is_none());
    }

    #[test]
    fn a_young_file_is_read_again_only_if_it_is_small_or_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("packed-refs");
        let system: Arc<dyn System> = Arc::new(OsSystem::new());
        let packed = PackedRefs::new(system, path.clone(), ObjectFormat::Sha1);
        let written = |digit: char, records: usize| {
            let record = |at: usize| format!("{} refs/heads/{at:09}\n", hex(digit));
            let records: String = (0..records).map(record).collect();
            let content = format!("# pack-refs with: peeled fully-peeled sorted \n{records}");
            let new = dir.path().join("new");
            std::fs::write(&new, content).unwrap();
            // However long this takes, the file stays young.
            let soon = std::time::SystemTime::now() + std::time::Duration::from_secs(3600);
            let file = std::fs::File::options().write(true).open(&new);
            file.and_then(|file| file.set_modified(soon)).unwrap();
            std::fs::rename(&new, &path).unwrap();
            packed.snapshot().unwrap()
        };
        let value =
            |snapshot: &Snapshot| snapshot.find(b"refs/heads/000000000").unwrap().unwrap().oid;

        let large = written('a', 2000);
        assert!(large.len() as u64 >= MAP_MIN);
        assert!(Arc::ptr_eq(&large, &packed.snapshot().unwrap()));
        packed.forget_uncertain();
        assert!(Arc::ptr_eq(&large, &packed.snapshot().unwrap()));
        // As long as the file is mapped, another one of its length has another inode.
        let another = written('b', 2000);
        assert_ne!(value(&another), value(&large));
        let small = written('c', 2);
        assert!(!Arc::ptr_eq(&small, &packed.snapshot().unwrap()));
    }

    #[test]
    fn one_name_after_the_other_is_found_in_any_order() {
        let names: Vec<String> = (0..60)
            .map(|at| format!("refs/heads/{:03}", at * 2))
            .collect();
        let records = names
            .iter()
            .map(|name| format!("{} {name}\n", "1".repeat(40)));
        let content = format!(
            "# pack-refs with: peeled fully-peeled sorted \n{}",
            records.collect::<String>()
        );
        let snapshot = snapshot(&content).unwrap();
        for step in [1, 3, 7, 100, 119] {
            let mut forwards = Forwards::over(&snapshot);
            for turn in 0..250 {
                let name = format!("refs/heads/{:03}", turn * step % 121);
                let found = forwards.find_ref(name.as_bytes()).unwrap();
                assert_eq!(found.is_some(), names.contains(&name), "{name}");
            }
        }
    }
}
