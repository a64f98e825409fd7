//! Standard input, as far as it has arrived and as far as whole records go.
//!
//! What has arrived is given at once, so that a program that waits for an answer to its last line
//! gets it. One buffer serves the whole input.

use std::io::stdin;

use bstr::ByteSlice;
use rustix::buffer::spare_capacity;
use rustix::io::{Errno, read};

use crate::failure::{Failure, Result};

/// How much is asked for at once: more than a pipe holds.
const READ_SIZE: usize = 256 << 10;

/// Standard input.
pub(super) struct Input {
    terminator: u8,
    buffer: Vec<u8>,
    /// How much of the buffer was taken.
    taken: usize,
    ended: bool,
}

impl Input {
    /// Begins to read records that end with `terminator`.
    pub(super) fn new(terminator: u8) -> Self {
        Input {
            terminator,
            buffer: Vec::new(),
            taken: 0,
            ended: false,
        }
    }

    /// Returns whether nothing is left to read.
    pub(super) fn ended(&self) -> bool {
        self.ended
    }

    /// Waits until a record has ended that was not whole before, or the input has. Returns whether
    /// there is anything.
    ///
    /// # Errors
    /// Fatal when standard input cannot be read.
    pub(super) fn wait(&mut self) -> Result<bool> {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        while !self.ended {
            let searched = self.buffer.len();
            self.buffer.reserve(READ_SIZE);
            let count = loop {
                match read(stdin(), spare_capacity(&mut self.buffer)) {
                    Err(Errno::INTR) => {}
                    Err(error) => {
                        let text = refdb::error::io_text(&error.into());
                        return Err(Failure::fatal(format!(
                            "cannot read standard input: {text}"
                        )));
                    }
                    Ok(count) => break count,
                }
            };
            self.ended = count == 0;
            let arrived = self.buffer.get(searched..).unwrap_or_default();
            if arrived.rfind_byte(self.terminator).is_some() {
                break;
            }
        }
        Ok(!self.buffer.is_empty())
    }

    /// Returns what is there and not taken.
    pub(super) fn text(&self) -> &[u8] {
        self.buffer.get(self.taken..).unwrap_or_default()
    }

    /// Takes so many bytes.
    pub(super) fn take(&mut self, len: usize) {
        self.taken += len;
    }
}
