//! Telling new content from what others put in its place.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::encoding::{checksum, checksum_after};
use crate::error::{OrIo, Result};
use crate::system::{FileKind, System, if_there};

/// So much of a long file is looked at.
const PART_LEN: u16 = 4096;

/// What is longer is told by a part of it. No loose ref is, but one with a very long name in it; for a reflog that is
/// written anew as a whole the part is its beginning.
const SUM_LEN_MAX: u64 = PART_LEN as u64;

/// How new content is told from what others put in its place: in a copy of the repository too, whatever dates that has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// By its checksum, or that of the text of a link.
    Sum(u64),
    /// By a part: all of it would take long to read.
    Part(Part),
}

/// What tells a long file from others: how long it is, and the checksum of a part of it.
///
/// Of packed-refs the part begins where it differs first from the file that it replaces. That is the value, or the
/// absence, of a ref whose lock the transaction holds: nobody else can bring that about as long as it does. Of other files
/// it is the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    pub(super) len: u64,
    pub(super) at: Option<u64>,
    pub(super) sum: u64,
}

impl Part {
    /// Notes that what comes next is not as in the file that is replaced.
    pub(crate) fn differs(&mut self) {
        self.at.get_or_insert(self.len);
    }

    /// Notes what comes next.
    pub(crate) fn add(&mut self, content: &[u8]) {
        let end = self.at.map_or(0, |at| at + u64::from(PART_LEN));
        let left = usize::try_from(end.saturating_sub(self.len)).unwrap_or(0);
        let counted = content.get(..left).unwrap_or(content);
        self.sum = checksum_after(self.sum, counted);
        self.len += content.len() as u64;
    }
}

impl Content {
    /// Returns what tells a file that is written bit by bit, of which this comes behind what `before` and `part` tell
    /// (a new one: behind nothing).
    pub(super) fn after(before: Option<Content>, part: &mut Part, content: &[u8]) -> Content {
        let sum = match before {
            Some(Content::Sum(sum)) => sum,
            Some(Content::Part(_)) => 0,
            None => {
                *part = Part::default();
                part.differs();
                checksum(b"")
            }
        };
        part.add(content);
        match part.len > SUM_LEN_MAX {
            true => Content::Part(*part),
            false => Content::Sum(checksum_after(sum, content)),
        }
    }

    /// Returns whether the file at `path` is that.
    pub(super) fn is_at(self, system: &dyn System, path: &Path) -> Result<bool> {
        let is_it = system.lstat(path).and_then(|stat| match (self, stat.kind) {
            (Content::Sum(sum), FileKind::File) => {
                Ok(stat.len <= SUM_LEN_MAX && checksum(&system.read(path)?) == sum)
            }
            // A link that bars the place has another text.
            (Content::Sum(sum), FileKind::Symlink) => {
                Ok(checksum(system.read_link(path)?.as_os_str().as_bytes()) == sum)
            }
            (Content::Part(Part { len, at, sum }), FileKind::File) if len == stat.len => {
                let mut part = vec![0; usize::from(PART_LEN)];
                let at = at.unwrap_or(len).min(len);
                let count = system.open(path)?.read_at(at, &mut part)?;
                part.truncate(count);
                Ok(checksum_after(0, &part) == sum)
            }
            _ => Ok(false),
        });
        Ok(if_there(is_it)
            .or_io("unable to read", path)?
            .unwrap_or(false))
    }
}
