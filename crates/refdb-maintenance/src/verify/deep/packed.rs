//! packed-refs, line by line.

use std::collections::HashSet;
use std::io;
use std::path::Path;

use bstr::ByteSlice;
use refdb::internals::{PACKED_HEADER, is_space};
use refdb::name::{FormatOptions, is_per_worktree, is_well_formed};
use refdb::{ObjectFormat, ObjectId, Result};

use super::{BadLines, Deep, Repair, condition};

impl Deep<'_> {
    /// Checks the file in the common directory.
    pub(super) fn packed_refs(&mut self, dir: &Path) -> Result<()> {
        let path = dir.join("packed-refs");
        if self.tells_no_file(&path, "packed refs are lost", Repair::RewritePackedRefs) {
            return Ok(());
        }
        let content = match self.system.map_whole(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            content => match self.told_unless_read(&path, content)? {
                Some(content) => content,
                None => return Ok(()),
            },
        };
        let format = self.repository.object_format();
        self.seen.set_packed(&content, format);
        let content = content.as_ref();
        if let Some(what) = condition(content) {
            let what = format!("{what}: packed refs are lost");
            self.error(&path, Some(0), what, Repair::RewritePackedRefs);
            return Ok(());
        }
        if !content.ends_with(b"\n") {
            let at = content.rfind_byte(b'\n').map_or(0, |lf| lf + 1);
            self.bad_line(&path, at, "the last line has no end: the file was cut");
        }
        let mut lines = Lines::from(content, 0);
        let mut sorted = false;
        if content.starts_with(b"#") {
            let (_, line) = lines.next().unwrap_or_default();
            match line.strip_prefix(PACKED_HEADER) {
                Some(traits) => sorted = traits.split_str(" ").any(|word| word == b"sorted"),
                None => self.bad_line(&path, 0, "the header is none that Git knows"),
            }
        }
        self.entries(&path, lines, sorted);
        Ok(())
    }

    fn bad_line(&mut self, path: &Path, at: usize, what: &str) {
        let at = u64::try_from(at).ok();
        self.error(path, at, what, Repair::RewritePackedRefs);
    }

    fn entries(&mut self, path: &Path, lines: Lines<'_>, sorted: bool) {
        let format = self.repository.object_format();
        let mut last: Option<&[u8]> = None;
        // Where the file is not sorted, a name may stand there again far from the first time.
        let mut names: Option<HashSet<&[u8]>> = None;
        let content = lines.content;
        let before = |end| {
            let lines = Lines::from(content, 0).take_while(move |(at, _)| *at < end);
            lines.filter_map(|(_, line)| Some(parse(line, format)?.1))
        };
        // Whether the line before holds a ref, whose peeled value may follow.
        let mut open = false;
        let mut bad = BadLines::default();
        for (at, line) in lines {
            if line.starts_with(b"^") {
                match (open, peeled(line, format)) {
                    (true, Some(_)) => {}
                    (false, _) => bad.add(at, "a peeled value without a ref before it"),
                    (true, None) => bad.add(at, "the peeled value is no object id"),
                }
                open = false;
                continue;
            }
            open = false;
            let Some((_, name)) = parse(line, format) else {
                let zeros = !line.is_empty() && line.iter().all(|byte| *byte == 0);
                let what = if zeros {
                    "zeros in the place of refs, as after a power failure"
                } else {
                    "the line is no ref"
                };
                bad.add(at, what);
                continue;
            };
            self.bad_lines(path, &mut bad, Repair::RewritePackedRefs);
            self.count_ref();
            if !is_well_formed(name, FormatOptions::FULL) {
                self.bad_line(path, at, "the name is none that a ref can have");
                continue;
            }
            if is_per_worktree(name) {
                let what = format!("{}: a ref of one worktree, seen by all", name.as_bstr());
                self.warning(path, what, Repair::ByHand);
            }
            if names.is_none() && last.is_some_and(|last| last >= name) {
                names = Some(before(at).collect());
            }
            if names.as_mut().is_some_and(|names| !names.insert(name)) {
                let what = "the ref stands there twice: Git takes this one once the first is gone";
                self.bad_line(path, at, what);
                continue;
            }
            if last.is_some_and(|last| sorted && last > name) {
                self.bad_line(path, at, "the line is out of order: lookups miss it");
            }
            last = Some(name);
            open = true;
            self.seen.push_packed(at, name);
        }
        self.bad_lines(path, &mut bad, Repair::RewritePackedRefs);
    }
}

/// The lines of a file, with the offset of each.
pub(super) struct Lines<'a> {
    content: &'a [u8],
    at: usize,
}

impl<'a> Lines<'a> {
    /// Those from the one that begins there on.
    pub(super) fn from(content: &'a [u8], at: usize) -> Self {
        Lines { content, at }
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = (usize, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self
            .content
            .get(self.at..)
            .filter(|rest| !rest.is_empty())?;
        let at = self.at;
        let len = rest.find_byte(b'\n').unwrap_or(rest.len());
        self.at += len + 1;
        Some((at, rest.get(..len).unwrap_or_default()))
    }
}

/// Returns what a line says that belongs to the ref before it.
pub(super) fn peeled(line: &[u8], format: ObjectFormat) -> Option<ObjectId> {
    let oid = ObjectId::from_hex(line.strip_prefix(b"^")?)?;
    (oid.format() == format).then_some(oid)
}

pub(super) fn parse(line: &[u8], format: ObjectFormat) -> Option<(ObjectId, &[u8])> {
    let (hex, rest) = line.split_at_checked(format.hex_len())?;
    let (space, name) = rest.split_first()?;
    let oid = ObjectId::from_hex(hex)?;
    (is_space(*space) && !name.is_empty()).then_some((oid, name))
}
