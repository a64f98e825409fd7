//! Compresses log blocks, with one reused state.

use flate2::{Compress, Compression, FlushCompress, Status};

use crate::error::{Error, Result};

/// The compressor of a writer.
pub(super) struct Deflate {
    state: Compress,
    out: Vec<u8>,
}

impl Deflate {
    pub(super) fn new(level: u32) -> Self {
        Deflate {
            state: Compress::new(Compression::new(level), true),
            out: Vec::new(),
        }
    }

    /// Returns `input` as one zlib stream, behind the bytes of `head` as they are.
    pub(super) fn run(&mut self, head: &[u8], input: &[u8]) -> Result<&[u8]> {
        self.state.reset();
        self.out.clear();
        self.out.extend_from_slice(head);
        loop {
            let done = usize::try_from(self.state.total_in()).unwrap_or(input.len());
            let rest = input.get(done..).unwrap_or_default();
            // What does not shrink grows by a few bytes only, so one round nearly always does.
            self.out.reserve(rest.len() + rest.len() / 8 + 64);
            let status = self
                .state
                .compress_vec(rest, &mut self.out, FlushCompress::Finish)
                .map_err(|error| Error::misuse(format!("cannot compress a log block: {error}")))?;
            if status == Status::StreamEnd {
                return Ok(&self.out);
            }
        }
    }
}
