//! Telling new content from what others put in its place.

use std::path::Path;

use super::encoding::checksum;
use crate::error::{Error, Result};
use crate::system::{FileKind, Stat, System, is_absent};

/// How new content is told from what others put in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// By its checksum.
    Sum(u64),
    /// By how long it is, and the second of its date: what would take long to read. A copy has both.
    Dated { len: u64, secs: i64 },
}

impl Content {
    /// Returns what tells the file of this description from others.
    pub(super) fn dated(stat: &Stat) -> Content {
        Content::Dated {
            len: stat.len,
            secs: i64::try_from(stat.mtime_ns.div_euclid(1_000_000_000)).unwrap_or(i64::MAX),
        }
    }

    /// Returns whether the file at `path` is that.
    pub(super) fn is_at(self, system: &dyn System, path: &Path) -> Result<bool> {
        self.is_there(system, path, true)
    }

    /// Returns the same where nobody else puts anything, since the name is that of the transaction: a copy of a
    /// repository without dates has another one there.
    pub(super) fn waits_at(self, system: &dyn System, path: &Path) -> Result<bool> {
        self.is_there(system, path, false)
    }

    fn is_there(self, system: &dyn System, path: &Path, by_date: bool) -> Result<bool> {
        let is_it = system.lstat(path).and_then(|stat| match self {
            // A link that bars the place, say.
            Content::Sum(_) if stat.kind != FileKind::File => Ok(false),
            Content::Sum(sum) => Ok(checksum(&system.read(path)?) == sum),
            Content::Dated { .. } if by_date => Ok(Content::dated(&stat) == self),
            Content::Dated { len, .. } => Ok(stat.kind == FileKind::File && stat.len == len),
        });
        match is_it {
            Err(error) if is_absent(&error) => Ok(false),
            is_it => is_it.map_err(|error| Error::io("unable to read", path, error)),
        }
    }
}
