//! Reflogs: one file for each, one line for each entry.
//!
//! Invariants:
//! 1. A line that is no entry is skipped, as if it were not there; it is never an error.
//! 2. Reading needs memory for one chunk and the longest line, in either direction.

use std::cmp::Ordering;
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use refdb_names::internals::owned_from_disk;
use refdb_names::name::{FormatOptions, is_per_worktree, is_well_formed};
use refdb_names::{ObjectFormat, ObjectId, RefName, RefNameBuf};
use reftable::short::common_prefix;

use super::seen::Longer;
use super::{Files, may_be_path};
use crate::backend::LogOrder;
use crate::commit::{Becomes, View};
use crate::error::{Error, OrIo, Result};
use crate::reflog::{LogEntry, Signature, timestamp};
use crate::system::find::{byte, last_byte};
use crate::system::{FileKind, ReadFile, Tree, WHOLE_MAX, unpoisoned};

/// How much of a reflog is read at first.
const FIRST_CHUNK_LEN: usize = 4096;

/// How reflogs are read.
#[derive(Clone, Copy)]
struct Limits {
    /// How many bytes are read at once.
    chunk_len: usize,
    /// From how many bytes on a line is not read: a file of holes can claim to be one that fits no
    /// memory. One chunk more or less does not matter.
    line_len_max: usize,
    /// How much is read in all: holes end lines as well where somebody put line feeds between them.
    len_max: u64,
}

const LIMITS: Limits = Limits {
    chunk_len: 1 << 16,
    line_len_max: LOG_LINE_MAX,
    len_max: WHOLE_MAX,
};

/// From how many bytes on a line of a reflog is not read. An entry of that length is held several times
/// while its reflog is written anew.
pub const LOG_LINE_MAX: usize = 1 << 27;

/// Returns whether an error says that there is no such file: none of that name, or none whose name
/// is so long.
pub(super) fn is_absent(error: &io::Error) -> bool {
    crate::system::is_absent(error) || error.kind() == io::ErrorKind::InvalidFilename
}

/// Returns nothing where there is no such file.
pub(super) fn if_there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(error) if is_absent(&error) => Ok(None),
        found => found.map(Some),
    }
}

impl Files {
    /// Returns the directory below which the reflog of `name` is.
    pub(super) fn log_base(&self, name: RefName<'_>) -> PathBuf {
        let (place, _) = self.layout.locate(name);
        self.layout.dir(&place).join("logs")
    }

    /// Returns the path of the reflog of `name`.
    ///
    /// # Errors
    /// `InvalidName` when the name would lead out of its directory.
    pub(super) fn log_path(&self, name: RefName<'_>) -> Result<PathBuf> {
        let (place, bare) = self.layout.locate(name);
        super::join(self.layout.dir(&place), "logs/", bare)
    }

    /// Returns whether `name` has a reflog.
    pub(super) fn log_exists(&self, name: RefName<'_>) -> Result<bool> {
        if !may_be_path(name) {
            return Ok(false);
        }
        let path = self.log_path(name)?;
        let stat = if_there(self.system.lstat(&path)).or_io("unable to read", &path)?;
        Ok(stat.is_some_and(|stat| stat.kind == FileKind::File))
    }

    /// Calls `each` for the entries of the reflog of `name`, with the line of each without its line
    /// feed; returns whether there is one.
    pub(super) fn for_each_log_line(
        &self,
        name: RefName<'_>,
        order: LogOrder,
        each: &mut dyn FnMut(&[u8], LogEntry) -> Result<bool>,
    ) -> Result<bool> {
        self.for_each_log_line_seen(name, order, None, each)
    }

    /// As [`Files::for_each_log_line`], as readers are to see it.
    pub(super) fn for_each_log_line_seen(
        &self,
        name: RefName<'_>,
        order: LogOrder,
        view: Option<&View>,
        each: &mut dyn FnMut(&[u8], LogEntry) -> Result<bool>,
    ) -> Result<bool> {
        let becomes = self.log_becomes(name, view)?;
        if becomes == Some(Becomes::Nothing) || becomes.is_none() && !self.log_exists(name)? {
            return Ok(false);
        }
        let path = self.log_path(name)?;
        let failed = |error| Error::io("unable to read", &path, error);
        let open = |path: &Path| if_there(self.system.open(path)).map_err(failed);
        let file = match becomes {
            Some(Becomes::Longer(paths, len, lines)) => {
                let mut file = None;
                for path in paths {
                    // Where one of two names is below the other, a directory may have one.
                    if file.is_none() && !self.is_dir(&path) {
                        file = open(&path)?;
                    }
                }
                let longer = Longer::new(file, len, lines).map_err(failed)?;
                Some(Box::new(longer) as Box<dyn ReadFile>)
            }
            Some(Becomes::Content(new)) => match open(&new)? {
                None => open(&path)?,
                file => file,
            },
            _ => open(&path)?,
        };
        let Some(mut file) = file else {
            return Ok(false);
        };
        let format = self.options.object_format;
        let mut is_whole = true;
        let mut line = |line: &[u8]| match parse(line, format) {
            Some(entry) => each(line, entry),
            None => {
                is_whole = false;
                Ok(true)
            }
        };
        let is_cut = match order {
            LogOrder::OldestFirst => forward(file.as_mut(), &failed, LIMITS, &mut line)?,
            LogOrder::NewestFirst => backward(file.as_mut(), &failed, LIMITS, &mut line)?,
        };
        if is_cut || !is_whole {
            unpoisoned(&self.damaged_logs).insert(path);
        }
        Ok(true)
    }

    fn is_dir(&self, path: &Path) -> bool {
        let stat = self.system.lstat(path);
        stat.is_ok_and(|stat| stat.kind == FileKind::Directory)
    }

    /// Returns the lines that are no entries, in the reflogs that were read so far: the file, the numbers
    /// of lines that follow each other, from 1 on.
    pub(super) fn lost_log_lines(&self) -> Result<Vec<(PathBuf, Range<u64>)>> {
        let damaged = unpoisoned(&self.damaged_logs).clone();
        let mut lost: Vec<(PathBuf, Range<u64>)> = Vec::new();
        for path in damaged {
            let first = lost.len();
            let content = if_there(self.system.read(&path)).or_io("unable to read", &path)?;
            let Some(content) = content else { continue };
            for (number, line) in (1..).zip(content.split_inclusive(|&byte| byte == b'\n')) {
                let entry = line.strip_suffix(b"\n");
                let entry = entry.and_then(|entry| parse(entry, self.options.object_format));
                if entry.is_some() {
                    continue;
                }
                // A file of nothing but bad lines must not take many times its size.
                match lost.get_mut(first..).and_then(<[_]>::last_mut) {
                    Some((_, lines)) if lines.end == number => lines.end += 1,
                    _ => lost.push((path.clone(), number..number + 1)),
                }
            }
        }
        Ok(lost)
    }

    /// Returns the names of all reflogs that this worktree sees, in the order of a walk through the
    /// directories, each sorted by itself.
    pub(super) fn log_names(&self) -> Result<Vec<RefNameBuf>> {
        let mut names = Vec::new();
        let linked = self.layout.is_linked();
        // Git looks for none behind a link, where there may be anything.
        let is_link = |dir: &Path| {
            let stat = self.system.lstat(dir);
            stat.is_ok_and(|stat| stat.kind == FileKind::Symlink)
        };
        let common = self.layout.common_dir().join("logs");
        if !is_link(&common) {
            self.logs_below(&common, &mut names, |name| {
                !linked || !is_per_worktree(name)
            })?;
        }
        let own = self.layout.worktree_dir().join("logs");
        if linked && !is_link(&own) {
            self.logs_below(&own, &mut names, is_per_worktree)?;
        }
        sort_as_files(&mut names);
        Ok(names)
    }

    fn logs_below(
        &self,
        dir: &Path,
        names: &mut Vec<RefNameBuf>,
        is_meant: impl Fn(&[u8]) -> bool,
    ) -> Result<()> {
        for leaf in Tree::new(self.system.as_ref(), dir, b"") {
            let leaf = match leaf {
                // A file in the place of all reflogs: there are none.
                Err((_, error)) if is_absent(&error) => continue,
                leaf => leaf.map_err(|(dir, error)| Error::io("unable to list", &dir, error))?,
            };
            let is_log = leaf.kind == FileKind::File
                && is_well_formed(leaf.last_name(), FormatOptions::ONE_LEVEL);
            if is_log && is_meant(&leaf.name) {
                names.push(owned_from_disk(leaf.name));
            }
        }
        Ok(())
    }
}

/// Sorts names as a walk through the directories meets them.
pub(super) fn sort_as_files(names: &mut [RefNameBuf]) {
    names.sort_by(|low, high| as_files(low.as_bytes(), high.as_bytes()));
}

/// Compares names part by part: what lies in a folder comes before whatever goes on otherwise.
fn as_files(low: &[u8], high: &[u8]) -> Ordering {
    let at = common_prefix(low, high);
    // No name has a byte of zero.
    let rank = |name: &[u8]| {
        let byte = name.get(at)?;
        Some(if *byte == b'/' { 0 } else { *byte })
    };
    rank(low).cmp(&rank(high))
}

/// Gives every complete line to `each`, the first one first, until it returns `false`. Returns
/// whether something stands behind the last complete one.
fn forward(
    file: &mut dyn ReadFile,
    failed: &dyn Fn(io::Error) -> Error,
    limits: Limits,
    each: &mut dyn FnMut(&[u8]) -> Result<bool>,
) -> Result<bool> {
    // Most reflogs are short: to clear a chunk for each took 7 % of a migration of 100,000.
    let mut buffer = vec![0; FIRST_CHUNK_LEN.min(limits.chunk_len)];
    // The beginning of a line whose end was not read yet.
    let mut begun: Vec<u8> = Vec::new();
    let mut offset = 0;
    loop {
        let count = file.read_at(offset, &mut buffer).map_err(failed)?;
        // Less is read only where the file ends.
        let is_end = count < buffer.len();
        let chunk = buffer.get(..count).unwrap_or_default();
        offset += chunk.len() as u64;
        let mut rest = chunk;
        while let Some(end) = byte(b'\n', rest) {
            let (line, after) = rest.split_at(end);
            rest = after.get(1..).unwrap_or_default();
            let go_on = if begun.is_empty() {
                each(line)?
            } else {
                begun.extend_from_slice(line);
                let go_on = each(&begun)?;
                begun.clear();
                go_on
            };
            if !go_on {
                return Ok(false);
            }
        }
        // Room for the longest line is never doubled.
        if begun.len() + rest.len() > limits.line_len_max || offset > limits.len_max {
            return Err(failed(io::ErrorKind::FileTooLarge.into()));
        }
        begun.extend_from_slice(rest);
        if is_end {
            return Ok(!begun.is_empty());
        }
        buffer.resize(limits.chunk_len, 0);
    }
}

/// Gives every complete line to `each`, the last one first, until it returns `false`. Returns
/// whether something stands behind it.
fn backward(
    file: &mut dyn ReadFile,
    failed: &dyn Fn(io::Error) -> Error,
    limits: Limits,
    each: &mut dyn FnMut(&[u8]) -> Result<bool>,
) -> Result<bool> {
    let chunk_len = limits.chunk_len;
    let mut buffer = vec![0; chunk_len];
    // The pieces of a line whose beginning was not read yet, the last piece first; `None` while
    // no line feed was met.
    let mut pieces: Option<Vec<Vec<u8>>> = None;
    let len = file.len().map_err(failed)?;
    let mut end = len;
    let mut is_cut = false;
    while end > 0 {
        let want = usize::try_from(end).map_or(chunk_len, |end| end.min(chunk_len));
        let start = end - want as u64;
        let part = buffer.get_mut(..want).unwrap_or_default();
        let count = file.read_at(start, part).map_err(failed)?;
        let mut rest = part.get(..count).unwrap_or_default();
        while let Some(lf) = last_byte(b'\n', rest) {
            let (before, line) = rest.split_at(lf);
            let line = line.get(1..).unwrap_or_default();
            // What follows the last line feed is no line.
            let found = pieces.replace(Vec::new());
            is_cut |= found.is_none() && !line.is_empty();
            if let Some(mut pieces) = found {
                let go_on = if pieces.is_empty() {
                    each(line)?
                } else {
                    pieces.push(line.to_vec());
                    pieces.reverse();
                    each(&pieces.concat())?
                };
                if !go_on {
                    return Ok(is_cut);
                }
            }
            rest = before;
        }
        if len - end > limits.len_max {
            return Err(failed(io::ErrorKind::FileTooLarge.into()));
        }
        match &mut pieces {
            Some(pieces) if pieces.len() > limits.line_len_max / chunk_len => {
                return Err(failed(io::ErrorKind::FileTooLarge.into()));
            }
            Some(pieces) if !rest.is_empty() => pieces.push(rest.to_vec()),
            Some(_) => {}
            None if len - end > limits.line_len_max as u64 => {
                return Err(failed(io::ErrorKind::FileTooLarge.into()));
            }
            None => is_cut |= !rest.is_empty(),
        }
        end = start;
    }
    if let Some(mut pieces) = pieces {
        pieces.reverse();
        each(&pieces.concat())?;
    }
    Ok(is_cut)
}

/// Returns the entry on a line, which comes without its line feed; `None` if it is none.
pub fn parse(line: &[u8], format: ObjectFormat) -> Option<LogEntry> {
    let hex_len = format.hex_len();
    let oid = |hex: &[u8]| ObjectId::from_hex(hex).filter(|oid| oid.format() == format);
    let (old, rest) = line.split_at_checked(hex_len)?;
    let (new, rest) = rest.strip_prefix(b" ")?.split_at_checked(hex_len)?;
    let rest = rest.strip_prefix(b" ")?;
    let close = byte(b'>', rest)?;
    let (who, rest) = rest.split_at(close);
    let rest = rest.strip_prefix(b"> ")?;
    let (time, rest) = timestamp(rest)?;
    let (zone, rest) = rest.strip_prefix(b" ")?.split_at_checked(5)?;
    let (sign, number) = zone.split_first()?;
    let number = number.iter().try_fold(0_i16, |sum, digit| {
        digit
            .is_ascii_digit()
            .then(|| sum * 10 + i16::from(digit - b'0'))
    })?;
    let zone = match sign {
        b'+' => number,
        b'-' => -number,
        _ => return None,
    };
    let (name, email) = match byte(b'<', who) {
        Some(open) => {
            let (name, email) = who.split_at(open);
            (name, email.get(1..).unwrap_or_default())
        }
        None => (who, &b""[..]),
    };
    Some(LogEntry {
        old: oid(old)?,
        new: oid(new)?,
        who: Signature {
            name: name.strip_suffix(b" ").unwrap_or(name).into(),
            email: email.into(),
            time,
            zone,
        },
        message: rest.strip_prefix(b"\t").unwrap_or(rest).into(),
    })
}

/// Appends the line of an entry to `out`.
pub(super) fn push_line(
    out: &mut Vec<u8>,
    old: ObjectId,
    new: ObjectId,
    who: &Signature,
    message: &[u8],
) {
    let ids = 2 * old.format().hex_len();
    out.reserve(ids + who.name.len() + who.email.len() + message.len() + REST_LEN);
    old.push_hex(out);
    out.push(b' ');
    new.push_hex(out);
    out.push(b' ');
    push_without(out, &who.name, is_end);
    out.extend_from_slice(b" <");
    push_without(out, &who.email, is_end);
    let sign = if who.zone < 0 { '-' } else { '+' };
    let zone = who.zone.unsigned_abs();
    // Memory takes everything.
    let _ = write!(out, "> {} {sign}{zone:04}", who.time);
    if !message.is_empty() {
        out.push(b'\t');
        push_without(out, message, |byte| byte == b'\n');
    }
    out.push(b'\n');
}

/// As [`push_line`], of an entry as it was read.
pub(super) fn push_entry(out: &mut Vec<u8>, entry: &LogEntry) {
    push_line(out, entry.old, entry.new, &entry.who, &entry.message);
}

/// So long is at most what stands in a line beside ids, name, address and message.
const REST_LEN: usize = 40;

/// Returns whether a byte would end a name or an address early.
fn is_end(byte: u8) -> bool {
    matches!(byte, b'\n' | b'<' | b'>' | 0)
}

/// Appends the line of an entry that was read from `line` and has another old value now. All else
/// stays as it is, but for the tab before a message, which Git writes here even if there is none.
pub(super) fn push_kept(out: &mut Vec<u8>, old: ObjectId, line: &[u8], entry: &LogEntry) {
    let head_len = line.len().saturating_sub(entry.message.len());
    let head = line
        .get(old.format().hex_len()..head_len)
        .unwrap_or_default();
    old.push_hex(out);
    out.extend_from_slice(head.strip_suffix(b"\t").unwrap_or(head));
    out.push(b'\t');
    out.extend_from_slice(&entry.message);
    out.push(b'\n');
}

/// Appends a part of a line without some bytes, of which hardly any has one.
fn push_without(out: &mut Vec<u8>, part: &[u8], is_left_out: impl Fn(u8) -> bool) {
    match part.iter().any(|&byte| is_left_out(byte)) {
        false => out.extend_from_slice(part),
        true => out.extend(part.iter().filter(|&&byte| !is_left_out(byte))),
    }
}

/// Returns whether there is no reflog at a path, for want of the file or of a directory, or because
/// a directory has its place.
pub(super) fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::IsADirectory
    )
}

/// Returns whether there is no reflog at a path, and something may be in its way.
pub(super) fn is_blocked(error: &io::Error) -> bool {
    is_missing(error) || error.kind() == io::ErrorKind::NotADirectory
}

#[cfg(test)]
mod tests {
    use bstr::ByteSlice;

    use super::*;
    use crate::system::Stat;

    const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

    struct Memory(Vec<u8>);

    impl ReadFile for Memory {
        fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
            let rest = &self.0[usize::try_from(offset).unwrap().min(self.0.len())..];
            let count = rest.len().min(buffer.len());
            buffer[..count].copy_from_slice(&rest[..count]);
            Ok(count)
        }

        fn stat(&self) -> io::Result<Stat> {
            Ok(Stat {
                kind: FileKind::File,
                len: self.0.len() as u64,
                dev: 0,
                ino: 0,
                mtime_ns: 0,
                ctime_ns: 0,
                uid: 0,
                gid: 0,
                mode: 0o644,
                nlink: 1,
            })
        }
    }

    fn read(
        content: &str,
        limits: Limits,
        order: LogOrder,
        each: &mut dyn FnMut(&[u8]) -> Result<bool>,
    ) -> Result<bool> {
        let failed = |error| Error::io("read", Path::new("x"), error);
        let mut file = Memory(content.as_bytes().to_vec());
        match order {
            LogOrder::OldestFirst => forward(&mut file, &failed, limits, each),
            LogOrder::NewestFirst => backward(&mut file, &failed, limits, each),
        }
    }

    fn lines(content: &str, chunk_len: usize, order: LogOrder) -> Vec<String> {
        let mut found = Vec::new();
        let mut each = |line: &[u8]| {
            found.push(line.to_str_lossy().into_owned());
            Ok(true)
        };
        let limits = Limits {
            chunk_len,
            ..LIMITS
        };
        let is_cut = read(content, limits, order, &mut each).unwrap();
        assert_eq!(is_cut, !content.is_empty() && !content.ends_with('\n'));
        found
    }

    #[test]
    fn a_line_without_end_is_not_collected() {
        let limits = Limits {
            chunk_len: 10,
            line_len_max: 100,
            len_max: 2000,
        };
        for order in [LogOrder::OldestFirst, LogOrder::NewestFirst] {
            let mut longest = 0;
            let mut each = |line: &[u8]| {
                longest = longest.max(line.len());
                Ok(true)
            };
            let long = format!("a\n{}\n", "b".repeat(90));
            assert!(!read(&long, limits, order, &mut each).unwrap());
            let endless = format!("a\n{}\n", "b".repeat(1000));
            assert!(read(&endless, limits, order, &mut each).is_err());
            assert_eq!(longest, 90);
            let mut any = |_: &[u8]| Ok(true);
            let lines = format!("{}\n", "b".repeat(90));
            assert!(!read(&lines.repeat(20), limits, order, &mut any).unwrap());
            assert!(read(&lines.repeat(30), limits, order, &mut any).is_err());
        }
    }

    #[test]
    fn lines_of_any_length_come_whole_in_both_directions() {
        for content in [
            "",
            "\n",
            "a",
            "a\n",
            "\n\na\nbcdefghijkl\n\nm\n",
            "abc\ndef\nghi",
            "\nabcdef\n",
        ] {
            let mut expected: Vec<&str> = content.split('\n').collect();
            expected.pop();
            for chunk_len in 1..20 {
                assert_eq!(lines(content, chunk_len, LogOrder::OldestFirst), expected);
                let mut backward = lines(content, chunk_len, LogOrder::NewestFirst);
                backward.reverse();
                assert_eq!(backward, expected, "{content:?} by {chunk_len}");
            }
        }
    }

    fn entry(line: &str) -> Option<LogEntry> {
        parse(line.as_bytes(), ObjectFormat::Sha1)
    }

    #[test]
    fn what_is_written_is_read_again() {
        let (a, b) = (A.parse_oid(), B.parse_oid());
        for (zone, time, message) in [
            (-530, 1_700_000_000, "commit: x"),
            (0, 0, ""),
            (1400, 1, "a\tb"),
        ] {
            let who = Signature {
                name: "A U Thor".into(),
                email: "a@example.org".into(),
                time,
                zone,
            };
            let mut line = Vec::new();
            push_line(&mut line, a, b, &who, message.as_bytes());
            assert_eq!(line.pop(), Some(b'\n'));
            let found = parse(&line, ObjectFormat::Sha1).unwrap();
            assert_eq!(found.who, who);
            assert_eq!((found.old, found.new), (a, b));
            assert_eq!(found.message, message);
        }
    }

    #[test]
    fn an_entry_stays_one_line_whatever_the_name_is() {
        let who = Signature {
            name: "A\n<B>".into(),
            email: "a>\n".into(),
            time: 5,
            zone: 100,
        };
        let mut line = Vec::new();
        push_line(&mut line, A.parse_oid(), B.parse_oid(), &who, b"x\ny");
        assert_eq!(line, format!("{A} {B} AB <a> 5 +0100\txy\n").into_bytes());
    }

    #[test]
    fn what_is_no_entry() {
        assert!(entry(&format!("{A} {B} a <b> 1 +0000")).is_some());
        let joined = entry(&format!("{A} {B} a <b> 1 +0000rest")).unwrap();
        assert_eq!(joined.message, "rest");
        for line in [
            String::new(),
            format!("{A}  {B} a <b> 1 +0000"),
            format!("{A} {B}x a <b> 1 +0000"),
            format!("{A} {} a <b> 1 +0000", &B[1..]),
            format!("{A} {B} a b 1 +0000"),
            format!("{A} {B} a <b>1 +0000"),
            format!("{A} {B} a <b> x +0000"),
            format!("{A} {B} a <b> 1 0000"),
            format!("{A} {B} a <b> 1 +000"),
            format!("{A} {B} a <b>  +0000"),
        ] {
            assert!(entry(&line).is_none(), "{line}");
        }
        for (text, time) in [
            ("99999999999999999999999", u64::MAX),
            ("18446744073709551616", u64::MAX),
            ("-5", u64::MAX - 4),
            ("+5", 5),
            (" \t\u{b}05", 5),
        ] {
            let found = entry(&format!("{A} {B} a <b> {text} +0000"));
            assert_eq!(found.unwrap().who.time, time, "{text}");
        }
    }

    trait ParseOid {
        fn parse_oid(&self) -> ObjectId;
    }

    impl ParseOid for str {
        fn parse_oid(&self) -> ObjectId {
            ObjectId::from_hex(self.as_bytes()).unwrap()
        }
    }
}
