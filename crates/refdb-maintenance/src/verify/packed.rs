//! Git's checks of packed-refs, line by line.

use std::io;
use std::path::Path;

use bstr::ByteSlice;
use refdb::internals::{PACKED_HEADER, is_space};
use refdb::name::{FormatOptions, is_well_formed};
use refdb::system::{FileKind, System};
use refdb::{Error, ObjectFormat, ObjectId, Result};

use super::{Event, MessageId, Report, c_string};

/// Checks the file in `dir`.
pub(super) fn check(
    system: &dyn System,
    dir: &Path,
    format: ObjectFormat,
    report: &mut Report<'_>,
) -> Result<()> {
    let path = dir.join("packed-refs");
    (report.on)(Event::PackedRefs(&path));
    let bad_kind = match system.lstat(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::io("unable to open", &path, error)),
        Ok(stat) => match stat.kind {
            FileKind::File => None,
            FileKind::Symlink => Some("not a regular file but a symlink"),
            _ => Some("not a regular file"),
        },
    };
    if let Some(text) = bad_kind {
        report.find(b"packed-refs", MessageId::BadRefFiletype, text);
        return Ok(());
    }
    let content = system.map_whole(&path);
    let content = content.map_err(|error| Error::io("unable to read", &path, error))?;
    let content = content.as_ref();
    if content.is_empty() {
        let id = MessageId::EmptyPackedRefsFile;
        report.find(b"packed-refs", id, "file is empty");
        return Ok(());
    }
    let mut lines = Lines {
        rest: content,
        number: 0,
    };
    let was_clean = std::mem::replace(&mut report.clean, true);
    let sorted = lines.header(report);
    let first = lines;
    while let Some(line) = lines.next(report) {
        entry(report, &mut lines, line, format);
    }
    if sorted && report.clean {
        order(report, first, format);
    }
    report.clean &= was_clean;
    Ok(())
}

/// The lines that are still to be read, with the number of the last one that was.
#[derive(Clone, Copy)]
struct Lines<'a> {
    rest: &'a [u8],
    number: usize,
}

impl<'a> Lines<'a> {
    fn path(&self) -> Vec<u8> {
        format!("packed-refs line {}", self.number).into_bytes()
    }

    /// Returns the next line without its end.
    fn take(&mut self) -> Option<(&'a [u8], bool)> {
        if self.rest.is_empty() {
            return None;
        }
        self.number += 1;
        let end = self.rest.find_byte(b'\n');
        let (line, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest.get(1..).unwrap_or_default();
        Some((line, end.is_some()))
    }

    /// Returns the next line, and reports one that has no end.
    fn next(&mut self, report: &mut Report<'_>) -> Option<&'a [u8]> {
        let (line, terminated) = self.take()?;
        if !terminated {
            let id = MessageId::PackedRefEntryNotTerminated;
            let text = [b"'", c_string(line), b"' is not terminated with a newline"].concat();
            report.find(&self.path(), id, text);
        }
        Some(line)
    }

    /// Checks the first line, and goes behind it if it is meant as a header; returns whether the
    /// file says that it is sorted.
    fn header(&mut self, report: &mut Report<'_>) -> bool {
        let start = *self;
        // A first line without an end is told even where the entries tell it again.
        let line = self.next(report).unwrap_or_default();
        if !line.starts_with(b"#") {
            *self = start;
            return false;
        }
        let Some(traits) = line.strip_prefix(PACKED_HEADER) else {
            if self.number == 1 && self.rest.is_empty() && !start.rest.ends_with(b"\n") {
                return false;
            }
            let shown = [b"'", c_string(line), b"' does not start with '"].concat();
            let text = [shown.as_slice(), PACKED_HEADER, b"'"].concat();
            report.find(b"packed-refs.header", MessageId::BadPackedRefHeader, text);
            return false;
        };
        traits.split_str(" ").any(|word| word == b"sorted")
    }
}

/// Checks the line of a ref, and the line of its peeled value if there is one.
fn entry(report: &mut Report<'_>, lines: &mut Lines<'_>, line: &[u8], format: ObjectFormat) {
    name_line(report, lines, line, format);
    if !lines.rest.starts_with(b"^") {
        return;
    }
    let Some(line) = lines.next(report) else {
        return;
    };
    let line = line.get(1..).unwrap_or_default();
    let bad = MessageId::BadPackedRefEntry;
    match split_oid(line, format) {
        None => {
            let text = [b"'", c_string(line), b"' has invalid peeled oid"].concat();
            report.find(&lines.path(), bad, text);
        }
        Some((_, b"")) => {}
        Some((_, rest)) => {
            let before = b"has trailing garbage after peeled oid '";
            let text = [&before[..], c_string(rest), b"'"].concat();
            report.find(&lines.path(), bad, text);
        }
    }
}

fn name_line(report: &mut Report<'_>, at: &Lines<'_>, line: &[u8], format: ObjectFormat) {
    let bad = MessageId::BadPackedRefEntry;
    let Some((hex, rest)) = split_oid(line, format) else {
        let text = [b"'", c_string(line), b"' has invalid oid"].concat();
        report.find(&at.path(), bad, text);
        return;
    };
    let Some((_, name)) = rest.split_first().filter(|(space, _)| is_space(**space)) else {
        let (hex, rest) = (hex.as_bstr(), c_string(rest));
        let before = format!("has no space after oid '{hex}' but with '");
        report.find(&at.path(), bad, [before.as_bytes(), rest, b"'"].concat());
        return;
    };
    let shown = c_string(name);
    let has_zero = shown.len() < name.len();
    if has_zero {
        let text = [b"refname '", shown, b"' contains NULL binaries"].concat();
        report.find(&at.path(), bad, text);
    }
    if !is_well_formed(shown, FormatOptions::FULL) {
        let text = [b"has bad refname '", shown, b"'"].concat();
        // Git names the place twice then.
        let path = at.path().repeat(if has_zero { 2 } else { 1 });
        report.find(&path, MessageId::BadRefName, text);
    }
}

/// Checks the order of the names, up to the first one that is out of it.
fn order(report: &mut Report<'_>, mut lines: Lines<'_>, format: ObjectFormat) {
    let mut last: Option<&[u8]> = None;
    while let Some((line, _)) = lines.take() {
        if line.starts_with(b"^") {
            continue;
        }
        let name = line.get(format.hex_len() + 1..).unwrap_or_default();
        if let Some(last) = last.filter(|last| name <= *last) {
            let (name, last) = (name.as_bstr(), last.as_bstr());
            let text = format!("refname '{name}' is less than previous refname '{last}'");
            let id = MessageId::PackedRefUnsorted;
            report.find(&lines.path(), id, text);
            return;
        }
        last = Some(name);
    }
}

/// Splits the object id off a line.
fn split_oid(line: &[u8], format: ObjectFormat) -> Option<(&[u8], &[u8])> {
    let (hex, rest) = line.split_at_checked(format.hex_len())?;
    ObjectId::from_hex(hex)?;
    Some((hex, rest))
}
