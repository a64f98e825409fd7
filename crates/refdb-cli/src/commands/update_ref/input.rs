//! Standard input, as far as it has arrived and as far as whole records go.
//!
//! What has arrived is given at once, so that a program that waits for an answer to its last line
//! gets it. Where much arrives, a second thread reads on, and looks at the lines, while the first one
//! works on those before.

use std::io::stdin;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{iter, mem, thread};

use bstr::ByteSlice;
use rustix::buffer::spare_capacity;
use rustix::io::{Errno, read};

use super::plain::Lines;
use crate::failure::{Failure, Result};

/// How much is asked for at once: as much as a pipe holds. A few pieces of this size are on their way,
/// in memory that is touched for the first time.
const READ_SIZE: usize = 64 << 10;

/// A program that sends so much at once does not wait for an answer to each line.
const LARGE: usize = 32 << 10;

/// So many pieces may wait for the first thread.
const WAITING_MAX: usize = 2;

/// Standard input.
pub(super) struct Input {
    terminator: u8,
    /// How long an object id is in lines of the usual form; `None` where there are no lines.
    hex_len: Option<usize>,
    /// What has arrived and was not given.
    buffer: Vec<u8>,
    /// Pieces that were worked on: their memory takes the next ones.
    spare: Arc<Mutex<Vec<Piece>>>,
    ended: bool,
}

/// Records that have arrived together.
#[derive(Default)]
pub(super) struct Piece {
    /// Their bytes. Each of them is whole, unless the input has ended.
    pub(super) text: Vec<u8>,
    /// The lines that have the usual form.
    pub(super) lines: Lines,
    /// Whether nothing is left to read.
    pub(super) ended: bool,
}

impl Input {
    /// Begins to read lines, or, without the length of an object id, records that end with a NUL.
    pub(super) fn new(hex_len: Option<usize>) -> Self {
        Input {
            terminator: if hex_len.is_some() { b'\n' } else { 0 },
            hex_len,
            buffer: Vec::new(),
            spare: Arc::default(),
            ended: false,
        }
    }

    /// Calls `work` with one piece after the other, until the input has ended.
    ///
    /// # Errors
    /// The first one of `work`, and as for [`Input::next`].
    pub(super) fn each(mut self, mut work: impl FnMut(&mut Piece) -> Result<()>) -> Result<()> {
        while let Some(mut piece) = self.next()? {
            if piece.text.len() >= LARGE {
                return self.each_ahead(piece, work);
            }
            work(&mut piece)?;
            lock(&self.spare).push(piece);
        }
        Ok(())
    }

    /// As [`Input::each`] from a piece on, with a second thread. It is not waited for: after an error
    /// it may read on until the process ends.
    fn each_ahead(
        self,
        mut first: Piece,
        mut work: impl FnMut(&mut Piece) -> Result<()>,
    ) -> Result<()> {
        let spare = Arc::clone(&self.spare);
        let input = Arc::new(Mutex::new(self));
        let next = move || lock(&input).next().transpose();
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let read = next.clone();
        let reader = thread::Builder::new().spawn(move || {
            while let Some(piece) = read()
                && sender.send(piece).is_ok()
            {}
        });
        let pieces: Box<dyn Iterator<Item = Result<Piece>>> = match reader {
            Ok(_) => Box::new(receiver.into_iter()),
            // Perhaps no thread is to be had.
            Err(_) => Box::new(iter::from_fn(next)),
        };
        work(&mut first)?;
        for piece in pieces {
            let mut piece = piece?;
            work(&mut piece)?;
            lock(&spare).push(piece);
        }
        Ok(())
    }

    /// Waits until a record has ended that was not whole before, or the input has. Returns what is
    /// there, perhaps nothing at the end, or `None` after that.
    ///
    /// # Errors
    /// Fatal when standard input cannot be read.
    fn next(&mut self) -> Result<Option<Piece>> {
        if self.ended {
            return Ok(None);
        }
        let mut whole = 0;
        while !self.ended && whole == 0 {
            let searched = self.buffer.len();
            if self.buffer.capacity() - searched < READ_SIZE / 2 {
                self.buffer.reserve(READ_SIZE);
            }
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
            let end = arrived.rfind_byte(self.terminator);
            whole = end.map_or(0, |end| searched + end + 1);
        }
        if self.ended {
            whole = self.buffer.len();
        }
        let mut piece = lock(&self.spare).pop().unwrap_or_default();
        piece.text.clear();
        piece.text.extend(self.buffer.drain(whole..));
        mem::swap(&mut piece.text, &mut self.buffer);
        if let Some(hex_len) = self.hex_len {
            piece.lines.find(&piece.text, hex_len);
        }
        piece.ended = self.ended;
        Ok(Some(piece))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
