//! Standard input in pieces that end where a record ends, each as large as what has arrived.
//!
//! A piece is given as soon as it is there, so that a program that waits for an answer to its last
//! line gets it.

use std::io::{ErrorKind, Read, stdin};

use bstr::ByteSlice;

use crate::failure::{Failure, Result};

const READ_SIZE_MIN: usize = 64 << 10;
const READ_SIZE_MAX: usize = 4 << 20;

/// Standard input.
pub(super) struct Input {
    terminator: u8,
    // What was read and not yet given.
    pending: Vec<u8>,
    read_size: usize,
    ended: bool,
}

impl Input {
    /// Begins to read records that end with `terminator`.
    pub(super) fn new(terminator: u8) -> Self {
        Input {
            terminator,
            pending: Vec::new(),
            read_size: READ_SIZE_MIN,
            ended: false,
        }
    }

    /// Returns whether nothing is left to read.
    pub(super) fn ended(&self) -> bool {
        self.ended
    }

    /// Returns what has arrived, up to the end of a record, or all of it at the end; `None` if
    /// there is nothing more.
    ///
    /// # Errors
    /// Fatal when standard input cannot be read.
    pub(super) fn piece(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            let searched = self.pending.len();
            self.read()?;
            if self.ended {
                let piece = std::mem::take(&mut self.pending);
                return Ok((!piece.is_empty()).then_some(piece));
            }
            let arrived = self.pending.get(searched..).unwrap_or_default();
            if let Some(at) = arrived.rfind_byte(self.terminator) {
                let rest = self.pending.split_off(searched + at + 1);
                return Ok(Some(std::mem::replace(&mut self.pending, rest)));
            }
        }
    }

    /// Takes the beginning of a command back, whose rest has not arrived yet.
    pub(super) fn push_back(&mut self, beginning: &[u8]) {
        self.pending.splice(0..0, beginning.iter().copied());
    }

    fn read(&mut self) -> Result<()> {
        let start = self.pending.len();
        self.pending.resize(start + self.read_size, 0);
        let buffer = self.pending.get_mut(start..).unwrap_or_default();
        let count = loop {
            match stdin().read(buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    let text = refdb::error::io_text(&error);
                    return Err(Failure::fatal(format!(
                        "cannot read standard input: {text}"
                    )));
                }
                Ok(count) => break count,
            }
        };
        self.pending.truncate(start + count);
        self.ended = count == 0;
        if count == self.read_size {
            self.read_size = (self.read_size * 4).min(READ_SIZE_MAX);
        }
        Ok(())
    }
}
