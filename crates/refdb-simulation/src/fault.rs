//! Failures on demand, and what a process did.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

/// One operation of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op {
    /// The method of [`System`](refdb_system::System), `write` or `sync`.
    pub name: &'static str,
    /// The path that it was given.
    pub path: PathBuf,
    /// Whether it changes what is on the disk, or makes it durable.
    pub changes: bool,
}

/// Which operation fails, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The number of the operation, counted from 0.
    pub at: u64,
    /// How it fails.
    pub failure: Failure,
    /// Whether all that come after it fail too.
    pub persistent: bool,
}

/// How an operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It has no effect and gives this error.
    Error(io::ErrorKind),
    /// It has no effect and gives the system's error of this number.
    Errno(Errno),
    /// If it is a write, it writes no more than so many bytes; otherwise it succeeds.
    Short(usize),
}

impl Fault {
    /// The process dies before the operation `at`: nothing has an effect from then on.
    pub fn dies_at(at: u64) -> Self {
        Fault {
            at,
            failure: Failure::Error(io::ErrorKind::BrokenPipe),
            persistent: true,
        }
    }

    /// The operation `at` fails once.
    pub fn once(at: u64, kind: io::ErrorKind) -> Self {
        Fault {
            at,
            failure: Failure::Error(kind),
            persistent: false,
        }
    }

    /// Whether the failure is an error, and which.
    pub(super) fn error(self) -> Option<io::Error> {
        match self.failure {
            Failure::Error(kind) => Some(kind.into()),
            Failure::Errno(errno) => Some(errno.into()),
            Failure::Short(_) => None,
        }
    }

    pub(super) fn applies(&self, number: u64) -> bool {
        number == self.at || (self.persistent && number > self.at)
    }
}
