//! How a list of tables that was read is told from one that took its place.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::system::{ReadFile, Stat};

/// What one version of a list is recognised by: its inode, which is kept open so that no later
/// list can get the same one. `None` when there is no list yet.
#[derive(Clone)]
pub(super) struct Stamp(Option<Pin>);

#[derive(Clone)]
struct Pin {
    dev: u64,
    ino: u64,
    _file: Arc<dyn ReadFile>,
}

impl Stamp {
    /// The stamp of a list that does not exist.
    pub(super) const NONE: Self = Stamp(None);

    /// Returns whether there is a list.
    pub(super) fn is_of_a_list(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn of(file: Box<dyn ReadFile>) -> io::Result<Self> {
        let Stat { dev, ino, .. } = file.stat()?;
        Ok(Stamp(Some(Pin {
            dev,
            ino,
            _file: Arc::from(file),
        })))
    }

    pub(super) fn is(&self, list: Option<Stat>) -> bool {
        match (&self.0, list) {
            (None, None) => true,
            (Some(pin), Some(list)) => (pin.dev, pin.ino) == (list.dev, list.ino),
            _ => false,
        }
    }
}

impl fmt::Debug for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stamp({:?})", self.0.as_ref().map(|pin| pin.ino))
    }
}
