//! Replacing packed-refs: one merge of the old file and the edits, streamed into a new one.
//!
//! Invariants:
//! 1. Whoever rewrites holds `packed-refs.lock`.
//! 2. Records that no edit names are carried through byte for byte, whatever is in them.
//! 3. What replaces a file of this second is dated in the future, after that file. Git tells files
//!    by second, length and inode, and the inode of a small file that was replaced is soon that of
//!    the next but one: within one second, Git would take that for what it has read before, and
//!    lose the updates in between.
//! 4. The header claims no more than is true: peeled values that the old file left open are looked
//!    up, or stay open.
//! 5. No edit writes a name twice, or out of order: Git would take a second record for the ref once the
//!    first one is gone. Of records that an older program wrote twice the first one is what lookups
//!    find, and the one that Git's own rewriting leaves newest: a change of the ref replaces all of
//!    them, and packing, which looks at every record, leaves no name there twice.

use std::cmp::Ordering;
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bstr::ByteSlice;
use refdb_names::ObjectId;
use reftable::short;

use super::Files;
use super::packed::{HEADER, PackedRefs, Peeling, Snapshot};
use crate::commit::{Content, Holder, LockFile, LockOptions, Part, not_placed, refused, suffixed};
use crate::error::{Error, ErrorKind, Message, OrIo, Result, Role};
use crate::options::{InvalidSettings, Options};
use crate::system::{Stat, System, WriteFile};

/// Bytes that are gathered before they are written.
const BUFFER_LEN: usize = 1 << 18;

/// Files that were changed so long one after the other have dates of different seconds.
const DATES_APART_SECS: u64 = 1;

/// What a name is to hold in packed-refs.
#[derive(Clone, Debug)]
pub(super) struct PackedEdit<'a> {
    pub(super) name: &'a [u8],
    pub(super) value: Option<PackedValue>,
}

/// The value of a packed ref.
#[derive(Clone, Copy, Debug)]
pub(super) struct PackedValue {
    pub(super) oid: ObjectId,
    pub(super) peeled: Option<ObjectId>,
}

/// Finds out what an object peels to, if it is a tag.
pub(super) type Peel<'a> = &'a dyn Fn(ObjectId) -> Result<Option<ObjectId>>;

/// The lock of packed-refs, and the new file once it is written.
pub(super) struct PackedLock {
    system: Arc<dyn System>,
    lock: LockFile,
    path: PathBuf,
}

impl PackedLock {
    /// Takes `packed-refs.lock`; says in it whose it is only once something is written, or with
    /// [`PackedLock::sign`].
    ///
    /// # Errors
    /// `Locked` when somebody else holds it for longer than the timeout; `Io`.
    pub(super) fn acquire(files: &Files, holder: &Holder) -> Result<PackedLock> {
        PackedLock::acquire_at(files.packed.resolved_path()?, files, holder, None)
    }

    /// As [`PackedLock::acquire`], with what is packed then. Most often one look at the file tells both where
    /// it is and whether it is known. `other` is a lock under which nothing is to be written, of which this
    /// can be another name.
    ///
    /// # Errors
    /// As there, and as for [`PackedRefs::snapshot`].
    pub(super) fn acquire_to_read(
        files: &Files,
        holder: &Holder,
        other: Option<&LockFile>,
    ) -> Result<(PackedLock, Arc<Snapshot>)> {
        let packed = &files.packed;
        if let Some(path) = packed.plain_path() {
            let lock = PackedLock::acquire_at(path.to_owned(), files, holder, other)?;
            if let Some(snapshot) = packed.snapshot_if_plain()? {
                return Ok((lock, snapshot));
            }
        }
        let lock = PackedLock::acquire_at(packed.resolved_path()?, files, holder, other)?;
        let snapshot = match packed.snapshot_if_plain()? {
            Some(snapshot) => snapshot,
            None => packed.snapshot()?,
        };
        Ok((lock, snapshot))
    }

    fn acquire_at(
        path: PathBuf,
        files: &Files,
        holder: &Holder,
        other: Option<&LockFile>,
    ) -> Result<PackedLock> {
        InvalidSettings::check(files.options.invalid.packing.as_ref())?;
        let options = LockOptions::of(&files.options, files.options.packed_refs_timeout);
        let lock = LockFile::acquire_with(holder, &path, options, other);
        let lock = lock.map_err(|error| refused(files.system.as_ref(), &path, error))?;
        files.packed.forget_uncertain();
        Ok(PackedLock {
            system: Arc::clone(&files.system),
            lock,
            path,
        })
    }

    /// Writes into the lock who holds it, unless that is there.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn sign(&self) -> Result<()> {
        self.lock.sign().or_io("unable to lock", &self.path)
    }

    /// Refuses to go on where the file lies that Git writes before it becomes packed-refs.
    ///
    /// # Errors
    /// `Io`, in the words of Git, which makes that file only if it is not there.
    pub(super) fn refuse_another(&self) -> Result<()> {
        if !is_written_by_another(self.system.as_ref(), &self.path) {
            return Ok(());
        }
        let path = suffixed(&self.path, ".new");
        let message = format!("unable to create file {}: File exists", path.display());
        let message = Message::from(message).of(&path, Role::InTheWay);
        Err(Error::new(ErrorKind::Io, message))
    }

    /// Writes the new file beside the old one; it becomes visible with [`PackedLock::publish`].
    ///
    /// # Errors
    /// `Io`; `Corrupt` when the old file is damaged where it must be read, or when a name would be
    /// written twice or out of order: nothing becomes visible then.
    pub(super) fn write(
        &mut self,
        old: &Snapshot,
        edits: &[PackedEdit<'_>],
        peel: Option<Peel<'_>>,
        options: &Options,
    ) -> Result<()> {
        self.refuse_another()?;
        check_order(&self.path, edits)?;
        self.sign()?;
        self.lock.made_from(old.file);
        let path = self.lock.value_path();
        let failed = |error| unable_to_write(&path, error);
        let file = self.lock.create().map_err(failed)?;
        let mut out = BufWriter::with_capacity(BUFFER_LEN, file);
        let mut sink = Sink::new(&mut out, &path);
        merge(&mut sink, old, edits, peel)?;
        self.lock.written = Some(Content::Part(sink.part));
        let mut file = out
            .into_inner()
            .map_err(|error| failed(error.into_error()))?;
        self.date(file.as_mut())?;
        if options.fsync {
            file.sync().map_err(failed)?;
        }
        Ok(())
    }

    /// Dates the new file after the old one.
    fn date(&self, file: &mut dyn WriteFile) -> Result<()> {
        let old = match self.system.stat(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            old => old.or_io("unable to read", &self.path)?,
        };
        if let Some(date) = date_after(&old, self.system.now()) {
            // A file system that does not allow it is no reason to write nothing.
            let _ = file.set_modified(date);
        }
        Ok(())
    }

    /// Gives the new file the name `packed-refs`, and makes that durable if that is asked for. The lock stays held.
    ///
    /// # Errors
    /// `Io`. The new file may be visible all the same, if only that name could not be made durable.
    pub(super) fn publish(&mut self, packed: &PackedRefs, fsync: bool) -> Result<()> {
        let placed = self.lock.place();
        placed.map_err(|error| not_placed("unable to replace", &self.path, error))?;
        packed.forget();
        if !fsync {
            return Ok(());
        }
        let dir = self.path.parent().unwrap_or(Path::new("."));
        self.system.sync_dir(dir).or_io("unable to sync", dir)
    }

    /// Notes that the new file got its name, if one was written.
    pub(super) fn was_placed(&mut self, packed: &PackedRefs) {
        if self.lock.written.is_some() {
            packed.forget();
        }
        self.lock.was_placed();
    }

    pub(super) fn lock(&self) -> &LockFile {
        &self.lock
    }

    /// Returns the lock if a new file is waiting for its name.
    pub(super) fn with_content(&self) -> Option<&LockFile> {
        Some(&self.lock).filter(|lock| lock.written.is_some())
    }

    /// Releases the lock.
    ///
    /// # Errors
    /// `Io` when the lock file cannot be removed.
    pub(super) fn release(self) -> Result<()> {
        let path = self.lock.path().to_owned();
        self.lock.release().or_io("unable to remove", &path)
    }

    /// Leaves the lock to whoever finishes the transaction.
    pub(super) fn leave(self) {
        self.lock.leave();
    }
}

/// Returns the date of a file that replaces `old`; `None` if its own will do.
///
/// Git dates its files by the clock, so that none of them has a date in the future. Of those that were
/// dated here only the last one is known, if it is still there: each millisecond has another date.
fn date_after(old: &Stat, now: Duration) -> Option<Duration> {
    let since_1970 = |time_ns: i128| u64::try_from(time_ns / 1_000_000_000).unwrap_or(0);
    let dated = since_1970(old.mtime_ns);
    let changed = since_1970(old.ctime_ns).max(dated);
    if changed.saturating_add(DATES_APART_SECS) < now.as_secs() {
        return None;
    }
    let future = now.as_secs() + 1 + u64::from(now.subsec_millis());
    Some(Duration::from_secs(future.max(dated.saturating_add(1))))
}

/// Returns whether Git's new file lies beside packed-refs; `path` is where packed-refs is, links
/// followed.
pub(super) fn is_written_by_another(system: &dyn System, path: &Path) -> bool {
    system.lstat(&suffixed(path, ".new")).is_ok()
}

fn unable_to_write(path: &Path, error: io::Error) -> Error {
    Error::io("unable to write", path, error)
}

/// Where the new file goes, with errors that name it.
struct Sink<'a> {
    out: &'a mut dyn Write,
    path: &'a Path,
    record: Vec<u8>,
    part: Part,
}

impl<'a> Sink<'a> {
    fn new(out: &'a mut dyn Write, path: &'a Path) -> Self {
        Sink {
            out,
            path,
            record: Vec::new(),
            part: Part::default(),
        }
    }

    fn raw(&mut self, bytes: &[u8]) -> Result<()> {
        self.part.add(bytes);
        self.out
            .write_all(bytes)
            .map_err(|error| unable_to_write(self.path, error))
    }

    /// Writes the record of a name in the place of `old`, what stood there.
    fn value(&mut self, name: &[u8], value: PackedValue, old: &[u8]) -> Result<()> {
        let mut record = std::mem::take(&mut self.record);
        record.clear();
        push_record(&mut record, name, &value.oid, value.peeled.as_ref());
        if record != old {
            self.part.differs();
        }
        let written = self.raw(&record);
        self.record = record;
        written
    }

    fn peeled(&mut self, oid: Option<ObjectId>) -> Result<()> {
        let mut line = Vec::new();
        push_peeled(&mut line, oid.as_ref());
        self.raw(&line)
    }
}

/// Appends the record of a name.
#[inline]
pub(super) fn push_record(
    out: &mut Vec<u8>,
    name: &[u8],
    oid: &ObjectId,
    peeled: Option<&ObjectId>,
) {
    oid.push_hex(out);
    out.push(b' ');
    short::push(out, name);
    out.push(b'\n');
    push_peeled(out, peeled);
}

#[inline]
fn push_peeled(out: &mut Vec<u8>, peeled: Option<&ObjectId>) {
    if let Some(peeled) = peeled {
        out.push(b'^');
        peeled.push_hex(out);
        out.push(b'\n');
    }
}

/// Refuses edits that are not in the order of their names, or of which two have one name.
fn check_order(path: &Path, edits: &[PackedEdit<'_>]) -> Result<()> {
    let mut pairs = edits.iter().zip(edits.iter().skip(1));
    match pairs.find(|(last, next)| short::compare(last.name, next.name).is_ge()) {
        None => Ok(()),
        Some((last, next)) => Err(out_of_order(path, last.name, next.name)),
    }
}

/// Says that a file cannot be written, as its names would not follow each other.
pub(super) fn out_of_order(path: &Path, last: &[u8], next: &[u8]) -> Error {
    let (last, next) = (last.as_bstr(), next.as_bstr());
    let what = match last == next {
        true => format!("'{next}' would be written twice"),
        false => format!("'{next}' comes after '{last}', which is out of order"),
    };
    Error::corrupt(path, what)
}

/// Writes the header, and the records of `old` with `edits` applied, which are in name order.
fn merge<'o>(
    out: &mut Sink<'_>,
    old: &'o Snapshot,
    edits: &'o [PackedEdit<'o>],
    peel: Option<Peel<'_>>,
) -> Result<()> {
    let peeling = match peel {
        Some(_) => Peeling::Fully,
        None => old.peeling(),
    };
    out.raw(HEADER)?;
    out.raw(match peeling {
        Peeling::Fully => b"peeled fully-peeled sorted \n",
        Peeling::Tags => b"peeled sorted \n",
        Peeling::Unknown => b"sorted \n",
    })?;
    let mut at = old.start();
    let mut last: &[u8] = b"";
    for edit in edits {
        let bound = old.lower_bound(edit.name, at)?;
        match peel {
            Some(peel) => last = tidy(out, old, at..bound, last, peel)?,
            None => out.raw(old.slice(&(at..bound)))?,
        }
        at = bound;
        // Every record of the name is replaced, should there be several.
        while at < old.len() {
            let record = old.record(at)?;
            if !short::same(old.slice(&record.name), edit.name) {
                break;
            }
            at = record.all.end;
        }
        match edit.value {
            Some(value) => {
                out.value(edit.name, value, old.slice(&(bound..at)))?;
                last = edit.name;
            }
            None => out.part.differs(),
        }
    }
    let rest = at..old.len();
    match peel {
        Some(peel) => tidy(out, old, rest, last, peel).map(drop),
        None => out.raw(old.slice(&rest)),
    }
}

/// Writes the records in a part of the old file as they are, but each name once, and with the peeled
/// values that they lack. Takes the name before them, and returns the last one.
fn tidy<'o>(
    out: &mut Sink<'_>,
    old: &'o Snapshot,
    part: Range<usize>,
    mut last: &'o [u8],
    peel: Peel<'_>,
) -> Result<&'o [u8]> {
    let lacks_peeled = old.peeling() != Peeling::Fully;
    // What is still to be written starts here.
    let mut start = part.start;
    let mut at = part.start;
    while at < part.end {
        let Some(name) = old.name_of_ref(at) else {
            // What is no record is carried, and whoever needs what it said is told: here, where
            // something is to be added to it.
            if lacks_peeled {
                old.record(at)?;
            }
            at = old.next_line(at);
            continue;
        };
        let end = old.after(name.end);
        let name = old.slice(&name);
        if !follows(old.path(), last, name)? {
            out.raw(old.slice(&(start..at)))?;
            start = end;
        } else if lacks_peeled {
            let record = old.record(at)?;
            if record.peeled.is_none() {
                out.raw(old.slice(&(start..end)))?;
                start = end;
                out.peeled(peel(record.oid)?)?;
            }
        }
        (at, last) = (end, name);
    }
    out.raw(old.slice(&(start..part.end)))?;
    Ok(last)
}

/// Returns whether a name comes after the last one; if not, it is that one once more.
///
/// # Errors
/// `Corrupt` when it comes before that.
fn follows(path: &Path, last: &[u8], name: &[u8]) -> Result<bool> {
    match short::compare(last, name) {
        Ordering::Less => Ok(true),
        Ordering::Equal => Ok(false),
        Ordering::Greater => Err(out_of_order(path, last, name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::{Bytes, FileKind};
    use refdb_names::oid::ObjectFormat;

    fn oid(digit: char) -> ObjectId {
        ObjectId::from_hex(digit.to_string().repeat(40).as_bytes()).unwrap()
    }

    fn merged(old: &str, edits: &[PackedEdit<'_>], peel: Option<Peel<'_>>) -> String {
        let bytes = Bytes::copy_from_slice(old.as_bytes());
        let old = Snapshot::new("packed-refs".into(), ObjectFormat::Sha1, bytes).unwrap();
        let mut out = Vec::new();
        merge(&mut Sink::new(&mut out, Path::new("x")), &old, edits, peel).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn set(name: &str, value: Option<(char, Option<char>)>) -> PackedEdit<'_> {
        let value = value.map(|(to, peeled)| PackedValue {
            oid: oid(to),
            peeled: peeled.map(oid),
        });
        PackedEdit {
            name: name.as_bytes(),
            value,
        }
    }

    #[test]
    fn what_replaces_a_file_of_this_second_has_a_date_that_no_other_has() {
        let seconds = Duration::from_secs;
        let file = |dated: u64, changed: u64| Stat {
            kind: FileKind::File,
            len: 1,
            dev: 1,
            ino: 1,
            mtime_ns: i128::from(dated) * 1_000_000_000,
            ctime_ns: i128::from(changed) * 1_000_000_000 + 999_999_999,
            uid: 0,
            gid: 0,
            mode: 0o644,
            nlink: 1,
        };
        let now = Duration::from_millis(1_000_000_070);
        assert_eq!(date_after(&file(999_998, 999_998), now), None);
        assert_eq!(date_after(&file(5, 999_998), now), None);
        let date = Some(seconds(1_000_071));
        assert_eq!(date_after(&file(999_999, 999_999), now), date);
        assert_eq!(date_after(&file(1_000_000, 1_000_000), now), date);
        assert_eq!(date_after(&file(5, 1_000_000), now), date);
        assert_eq!(date_after(&file(1_000_070, 1_000_000), now), date);
        let after = |dated| date_after(&file(dated, 5), now);
        assert_eq!(after(1_000_071), Some(seconds(1_000_072)));
        assert_eq!(after(4_000_000), Some(seconds(4_000_001)));
    }

    #[test]
    fn edits_and_records_are_merged_in_order() {
        let (a, b, c) = (oid('a'), oid('b'), oid('c'));
        let header = "# pack-refs with: peeled fully-peeled sorted \n";
        let old = format!("{header}{a} refs/b\n{a} refs/d\n^{b}\n{a} refs/x..y\n{a} refs/z\n");
        let edits = [
            set("refs/a", Some(('c', None))),
            set("refs/b", Some(('c', Some('b')))),
            set("refs/c", None),
            set("refs/d", None),
            set("refs/zz", Some(('c', None))),
        ];
        let expected = format!(
            "{header}{c} refs/a\n{c} refs/b\n^{b}\n{a} refs/x..y\n{a} refs/z\n{c} refs/zz\n"
        );
        assert_eq!(merged(&old, &edits, None), expected);
        assert_eq!(merged(&old, &[], None), old);
    }

    #[test]
    fn a_name_is_carried_once_and_nothing_is_written_out_of_order() {
        let (a, b, c) = (oid('a'), oid('b'), oid('c'));
        for header in [
            "# pack-refs with: peeled fully-peeled sorted \n",
            "# pack-refs with: peeled sorted \n",
        ] {
            let peel = |_| Ok(None);
            let old = format!(
                "{header}{a} refs/b\n^{b}\n{b} refs/b\n{c} refs/c\n{c} refs/c\n^{a}\n{a} refs/d\n"
            );
            let rest = format!("{c} refs/c\n{a} refs/d\n");
            let first = format!("{a} refs/b\n^{b}\n");
            let records = |content: String| content.split_once('\n').unwrap().1.to_owned();
            assert_eq!(records(merged(&old, &[], Some(&peel))), first + &rest);
            let edits = [set("refs/b", None), set("refs/ba", Some(('c', None)))];
            let added = format!("{c} refs/ba\n");
            let tidied = records(merged(&old, &edits, Some(&peel)));
            assert_eq!(tidied, added.clone() + &rest);
            // An edit replaces all records of its name, and looks at no other.
            let twice = format!("{c} refs/c\n{c} refs/c\n^{a}\n{a} refs/d\n");
            assert_eq!(records(merged(&old, &edits, None)), added + &twice);
            let unsorted = format!("{header}{a} refs/c\n{a} refs/b\n{a} refs/d\n");
            let bytes = Bytes::from(unsorted);
            let old = Snapshot::new("packed-refs".into(), ObjectFormat::Sha1, bytes).unwrap();
            let mut out = Vec::new();
            let mut sink = Sink::new(&mut out, Path::new("x"));
            let error = merge(&mut sink, &old, &[], Some(&peel)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            assert!(error.to_string().contains("'refs/b' comes after 'refs/c'"));
        }
    }

    #[test]
    fn what_is_no_record_is_carried_and_no_name_is_taken_from_it() {
        let a = oid('a');
        let old = format!(
            "# pack-refs with: peeled fully-peeled sorted \n{a} refs/b\nzz{} refs/a\n\n^\n{a} refs/c\n",
            &a.to_string()[2..]
        );
        let peel = |_| Ok(None);
        assert_eq!(merged(&old, &[], None), old);
        assert_eq!(merged(&old, &[], Some(&peel)), old);
    }

    #[test]
    fn edits_come_in_order_and_one_for_each_name() {
        let check = |names: &[&str]| {
            let edits: Vec<PackedEdit<'_>> = names.iter().map(|name| set(name, None)).collect();
            check_order(Path::new("packed-refs"), &edits).map_err(|error| error.to_string())
        };
        assert!(check(&[]).is_ok());
        assert!(check(&["refs/a", "refs/b", "refs/c"]).is_ok());
        let twice = check(&["refs/a", "refs/b", "refs/b"]).unwrap_err();
        assert!(twice.contains("'refs/b' would be written twice"), "{twice}");
        let order = check(&["refs/b", "refs/a"]).unwrap_err();
        assert!(order.contains("out of order"), "{order}");
    }

    #[test]
    fn the_header_does_not_claim_peeled_values_that_nobody_looked_up() {
        let (a, b) = (oid('a'), oid('b'));
        let old = format!("{a} refs/b\n{b} refs/c\n");
        assert_eq!(
            merged(&old, &[], None),
            format!("# pack-refs with: sorted \n{old}")
        );
        let tags = format!("# pack-refs with: peeled \n{old}");
        let kept = format!("# pack-refs with: peeled sorted \n{old}");
        assert_eq!(merged(&tags, &[], None), kept);
        let peel = |found: ObjectId| Ok((found == a).then_some(b));
        let full = format!(
            "# pack-refs with: peeled fully-peeled sorted \n{a} refs/b\n^{b}\n{b} refs/c\n"
        );
        assert_eq!(merged(&old, &[], Some(&peel)), full);
        assert_eq!(merged(&tags, &[], Some(&peel)), full);
    }
}
