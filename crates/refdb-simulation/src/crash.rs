//! What a power failure leaves of what was not durable.

use std::sync::Arc;

use super::disk::{Disk, Ino, NameChange, Node, ROOT};
use super::inodes::Inodes;

/// What a power failure does.
///
/// ```
/// use refdb_simulation::{Content, Crash, Names};
/// // Names survive, and the files behind them are empty.
/// let crash = Crash { names: Names::All, content: Content::Durable, seed: 0 };
/// assert_ne!(crash, Crash::seeded(1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crash {
    /// Which changes to names survive that were not made durable.
    pub names: Names,
    /// What survives of the content that was not made durable.
    pub content: Content,
    /// Decides wherever there is a choice.
    pub seed: u64,
}

/// Which changes to names survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// None.
    Durable,
    /// The first so many, in the order in which they were made: a file system with a journal.
    First(usize),
    /// Any number from the first on.
    Prefix,
    /// Any of them: all that is ever promised.
    Subset,
    /// All.
    All,
}

/// What survives of each file's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// What was made durable.
    Durable,
    /// Everything up to some byte.
    Prefix,
    /// The right length, but zeros.
    Zeros,
    /// Everything.
    Full,
    /// Any of these, for each file anew.
    Any,
}

impl Crash {
    /// A power failure drawn by a seed.
    pub fn seeded(seed: u64) -> Self {
        let names = match seed % 4 {
            0 => Names::Durable,
            1 => Names::Prefix,
            2 => Names::Subset,
            _ => Names::All,
        };
        Crash {
            names,
            content: Content::Any,
            seed,
        }
    }
}

impl Disk {
    /// Returns the disk as it is found after a power failure: all of it is durable.
    pub(super) fn after(&self, crash: Crash) -> Disk {
        let mut disk = self.clone();
        let seed_random = disk.random;
        disk.random = crash.seed;
        let pending = std::mem::take(&mut disk.pending);
        let survivors = disk.survivors(crash.names, pending);
        disk.make_durable(survivors);
        let mut inodes = Inodes::default();
        disk.keep(ROOT, crash.content, &mut inodes);
        disk.inodes = inodes;
        disk.random = seed_random;
        disk.tick();
        disk.machine.boot();
        disk
    }

    fn survivors(&mut self, names: Names, pending: Vec<NameChange>) -> Vec<NameChange> {
        let count = match names {
            Names::Durable => 0,
            Names::First(count) => count,
            Names::Prefix => self.below(pending.len() + 1),
            Names::Subset => {
                return pending.into_iter().filter(|_| self.below(2) == 0).collect();
            }
            Names::All => pending.len(),
        };
        pending.into_iter().take(count).collect()
    }

    /// Copies what can be reached from `ino` by durable names.
    fn keep(&mut self, ino: Ino, content: Content, kept: &mut Inodes) {
        if let Some(seen) = kept.get_mut(ino) {
            Arc::make_mut(seen).nlink += 1;
            return;
        }
        let Some(mut shared) = self.inodes.get(ino).cloned() else {
            return;
        };
        let inode = Arc::make_mut(&mut shared);
        inode.nlink = u64::from(ino != ROOT);
        let mut below = Vec::new();
        match &mut inode.node {
            Node::File {
                content: bytes,
                durable_len,
            } => {
                *bytes = self.survived(content, bytes, *durable_len);
                *durable_len = bytes.len();
            }
            Node::Directory { names, durable } => {
                durable.retain(|_, ino| self.inodes.get(*ino).is_some());
                names.clone_from(durable);
                below.extend(names.values().copied());
            }
            Node::Symlink(_) => {}
        }
        kept.insert(ino, shared);
        for ino in below {
            self.keep(ino, content, kept);
        }
    }

    fn survived(
        &mut self,
        choice: Content,
        bytes: &Arc<Vec<u8>>,
        durable_len: usize,
    ) -> Arc<Vec<u8>> {
        let cut = |len: usize| Arc::new(bytes.iter().take(len).copied().collect());
        let open = bytes.len() - durable_len;
        match choice {
            _ if open == 0 => Arc::clone(bytes),
            Content::Durable => cut(durable_len),
            Content::Prefix => cut(durable_len + self.below(open + 1)),
            Content::Zeros => {
                let mut zeros: Vec<u8> = bytes.iter().take(durable_len).copied().collect();
                zeros.resize(bytes.len(), 0);
                Arc::new(zeros)
            }
            Content::Full => Arc::clone(bytes),
            Content::Any => {
                let choice = match self.below(4) {
                    0 => Content::Durable,
                    1 => Content::Prefix,
                    2 => Content::Zeros,
                    _ => Content::Full,
                };
                self.survived(choice, bytes, durable_len)
            }
        }
    }

    /// Returns a random number below `limit`, which is not 0.
    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.random() % limit as u64).unwrap_or(0)
    }
}
