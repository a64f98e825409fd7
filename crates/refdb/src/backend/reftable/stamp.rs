//! How a list of tables that was read is told from one that took its place.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::system::{FileId, ReadFile, Stat};

/// What one version of a list is recognised by: its inode, which is kept open so that no later
/// list can get the same one, its length and its date; or the generation of a head.
#[derive(Clone)]
pub(super) struct Stamp(Version);

#[derive(Clone)]
enum Version {
    /// There is no list yet.
    None,
    File(Pin),
    Generation(u64),
}

#[derive(Clone)]
struct Pin {
    id: FileId,
    _file: Arc<dyn ReadFile>,
}

impl Stamp {
    /// The stamp of a list that does not exist.
    pub(super) const NONE: Self = Stamp(Version::None);

    pub(super) fn of_generation(generation: u64) -> Self {
        Stamp(Version::Generation(generation))
    }

    pub(super) fn is_generation(&self, generation: u64) -> bool {
        matches!(self.0, Version::Generation(own) if own == generation)
    }

    /// Returns whether there is a list.
    pub(super) fn is_of_a_list(&self) -> bool {
        !matches!(self.0, Version::None)
    }

    /// Returns which file the list is; `None` if there is none, or if it is that of a head.
    pub(super) fn file(&self) -> Option<FileId> {
        match &self.0 {
            Version::File(pin) => Some(pin.id),
            Version::None | Version::Generation(_) => None,
        }
    }

    pub(super) fn of(file: Box<dyn ReadFile>) -> io::Result<Self> {
        let id = FileId::of(&file.stat()?);
        Ok(Stamp(Version::File(Pin {
            id,
            _file: Arc::from(file),
        })))
    }

    pub(super) fn is(&self, list: Option<Stat>) -> bool {
        match (&self.0, list) {
            (Version::None, None) => true,
            // One that was written over, as by a backup that was put back, is another one as well.
            (Version::File(pin), Some(list)) => pin.id == FileId::of(&list),
            _ => false,
        }
    }
}

impl fmt::Debug for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Version::None => f.write_str("Stamp(None)"),
            Version::File(pin) => write!(f, "Stamp({})", pin.id.ino),
            Version::Generation(generation) => write!(f, "Stamp(generation {generation})"),
        }
    }
}
