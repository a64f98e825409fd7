//! Standard input, as far as it has arrived and as far as whole records go.
//!
//! What has arrived is given at once, so that a program that waits for an answer to its last line
//! gets it. Where much arrives, a second thread reads on, and looks at the lines, while the first one
//! works on those before.

use std::io::{self, stdin};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{mem, thread};

use bstr::ByteSlice;
use refdb::system::beside_this_thread;
use rustix::buffer::spare_capacity;
use rustix::io::{Errno, read};

use super::plain::Lines;
use crate::failure::{Failure, Result};
use crate::interrupt;

/// How much is asked for at once: as much as a pipe holds. A few pieces of this size are on their way,
/// in memory that is touched for the first time.
const READ_SIZE: usize = 64 << 10;

/// A program that sends so much at once does not wait for an answer to each line.
const LARGE: usize = 32 << 10;

/// So many pieces may wait for the first thread.
const WAITING_MAX: usize = 2;

/// Standard input, in pieces.
pub(super) struct Input {
    source: Source,
    /// The piece that was found to be there.
    next: Option<Result<Piece>>,
    /// Pieces that were worked on: their memory takes the next ones.
    spare: Arc<Mutex<Vec<Piece>>>,
}

/// Who reads.
enum Source {
    /// This thread, whenever it wants a piece.
    Here(Arc<Mutex<Reader>>),
    /// A second thread, which is not waited for: after an error it may read on until the process ends.
    Ahead(Receiver<Result<Piece>>),
}

/// Reads standard input.
struct Reader {
    terminator: u8,
    /// How long an object id is in lines of the usual form; `None` where there are no lines.
    hex_len: Option<usize>,
    /// What has arrived and was not given.
    buffer: Vec<u8>,
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
        // Whoever reads ahead waits already when the first lock is taken.
        interrupt::came();
        let spare: Arc<Mutex<Vec<Piece>>> = Arc::default();
        let reader = Reader {
            terminator: if hex_len.is_some() { b'\n' } else { 0 },
            hex_len,
            buffer: Vec::new(),
            spare: Arc::clone(&spare),
            ended: false,
        };
        Input {
            source: Source::Here(Arc::new(Mutex::new(reader))),
            next: None,
            spare,
        }
    }

    /// Waits for a piece; `None` when the input has ended and all of it was given.
    ///
    /// # Errors
    /// As for [`Reader::next`].
    pub(super) fn next(&mut self) -> Result<Option<Piece>> {
        if let Some(piece) = self.next.take() {
            return piece.map(Some);
        }
        match &self.source {
            Source::Ahead(pieces) => pieces.recv().ok().transpose(),
            Source::Here(reader) => {
                let piece = lock(reader).next()?;
                if piece.as_ref().is_some_and(|it| it.text.len() >= LARGE) {
                    let reader = Arc::clone(reader);
                    self.read_ahead(reader);
                }
                Ok(piece)
            }
        }
    }

    /// Lets a second thread read on. Perhaps none is to be had: then this one does.
    fn read_ahead(&mut self, reader: Arc<Mutex<Reader>>) {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let stand_apart = beside_this_thread();
        let read = move || {
            stand_apart();
            while let Some(piece) = lock(&reader).next().transpose()
                && sender.send(piece).is_ok()
            {}
        };
        if thread::Builder::new().spawn(read).is_ok() {
            self.source = Source::Ahead(receiver);
        }
    }

    /// Returns whether there is a piece that need not be waited for.
    pub(super) fn has_more(&mut self) -> bool {
        if let (None, Source::Ahead(pieces)) = (&self.next, &self.source) {
            self.next = pieces.try_recv().ok();
        }
        matches!(self.next, Some(Ok(_)))
    }

    /// Takes back a piece that was worked on.
    pub(super) fn give_back(&self, piece: Piece) {
        lock(&self.spare).push(piece);
    }
}

impl Reader {
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
                if let Err(error) = interrupt::wait_for(stdin().as_fd()) {
                    return Err(unreadable(&error));
                }
                match read(stdin(), spare_capacity(&mut self.buffer)) {
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(unreadable(&error.into())),
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

fn unreadable(error: &io::Error) -> Failure {
    let text = refdb::error::io_text(error);
    Failure::fatal(format!("cannot read standard input: {text}"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
