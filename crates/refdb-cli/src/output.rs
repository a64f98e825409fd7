//! Standard output: one large buffer, and a quiet end when nobody reads it.

use std::io::{ErrorKind, Write};

use crate::failure::{Failure, Result};

/// How much is collected before it is written.
const BUFFER_SIZE: usize = 128 << 10;

/// Standard output.
#[derive(Debug, Default)]
pub(crate) struct Output {
    buffer: Vec<u8>,
    /// Whether anything was written out.
    is_begun: bool,
}

impl Output {
    /// Forgets what was not written out yet; returns whether that is all there was.
    pub(crate) fn begin_again(&mut self) -> bool {
        self.buffer.clear();
        !self.is_begun
    }

    /// Returns the buffer to append to; [`Output::line_done`] is to follow.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Writes the buffer out if it is full.
    pub(crate) fn line_done(&mut self) -> Result<()> {
        if self.buffer.len() < BUFFER_SIZE {
            return Ok(());
        }
        self.flush()
    }

    /// Appends `bytes`.
    pub(crate) fn put(&mut self, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.buffer.extend_from_slice(bytes.as_ref());
        self.line_done()
    }

    /// Appends lines that were made elsewhere; many are written out at once.
    pub(crate) fn put_lines(&mut self, lines: &[u8]) -> Result<()> {
        if lines.len() < BUFFER_SIZE / 4 {
            return self.put(lines);
        }
        self.flush()?;
        self.is_begun = true;
        write(lines)
    }

    /// Writes the buffer out.
    ///
    /// # Errors
    /// `OutputClosed` when nobody reads, and a fatal failure for everything else.
    pub(crate) fn flush(&mut self) -> Result<()> {
        let written = write(&self.buffer);
        self.is_begun = true;
        self.buffer.clear();
        written
    }
}

/// Writes to standard output.
fn write(bytes: &[u8]) -> Result<()> {
    let mut stdout = std::io::stdout();
    let written = stdout.write_all(bytes).and_then(|()| stdout.flush());
    written.map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Failure::OutputClosed,
        _ => {
            let why = refdb::error::io_text(&error);
            Failure::fatal(format!("write failure on standard output: {why}"))
        }
    })
}
