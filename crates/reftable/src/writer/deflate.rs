//! Compresses log blocks: with reused states, and several blocks side by side if that is wanted.
//!
//! What goes into a block depends on lengths before compression only, so blocks can wait and be
//! compressed in any order. They are handed on in the order in which they came.
//!
//! Invariant: at most [`WAITING_MAX`] bytes and one block wait.

use flate2::{Compress, Compression, FlushCompress, Status};

use crate::error::{Error, Result};

/// How many bytes are worth starting threads for.
const WAITING_MAX: usize = 1 << 20;
/// How many bytes are worth a thread of their own.
const SHARE_MIN: usize = 1 << 16;
/// The blocks that begin within the first so many bytes are compressed as well as Git does it. That
/// costs next to nothing, and small tables have the lengths that they have with Git, so that the
/// same ones are compacted.
const BEST_UNTIL: usize = 1 << 14;

/// The compressor of a writer.
pub(super) struct Deflate {
    workers: Vec<Worker>,
    bytes: Vec<u8>,
    keys: Vec<u8>,
    blocks: Vec<Waiting>,
    /// How many bytes have been taken, at most [`BEST_UNTIL`].
    taken: usize,
}

/// A block that waits, by where its parts are in the buffers.
struct Waiting {
    start: usize,
    /// Where its records begin; what is before that is not compressed.
    first: usize,
    end: usize,
    key_end: usize,
    best: bool,
}

/// What one thread needs, and what it made.
struct Worker {
    level: Compression,
    state: Option<Compress>,
    best: Option<Compress>,
    out: Vec<u8>,
    ends: Vec<usize>,
}

impl Deflate {
    pub(super) fn new(level: u32, threads: usize) -> Self {
        let worker = || Worker {
            level: Compression::new(level.min(9)),
            state: None,
            best: None,
            out: Vec::new(),
            ends: Vec::new(),
        };
        Deflate {
            workers: (0..threads.max(1)).map(|_| worker()).collect(),
            bytes: Vec::new(),
            keys: Vec::new(),
            blocks: Vec::new(),
            taken: 0,
        }
    }

    /// Takes a block whose records begin at `first`, and its last key.
    pub(super) fn push(&mut self, block: &[u8], first: usize, last_key: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(block);
        self.keys.extend_from_slice(last_key);
        self.blocks.push(Waiting {
            start,
            first: start + first,
            end: self.bytes.len(),
            key_end: self.keys.len(),
            best: self.taken < BEST_UNTIL,
        });
        self.taken = self.taken.saturating_add(block.len()).min(BEST_UNTIL);
    }

    /// Returns whether the blocks that wait should be compressed now.
    pub(super) fn is_due(&self) -> bool {
        self.workers.len() < 2 || self.bytes.len() >= WAITING_MAX
    }

    /// Compresses the blocks that wait, and calls `f` with the last key and the bytes of each.
    pub(super) fn drain(&mut self, mut f: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
        let Deflate {
            workers,
            bytes,
            keys,
            blocks,
            ..
        } = self;
        let shares = workers.len().min(bytes.len().div_ceil(SHARE_MIN)).max(1);
        let share_len = blocks.len().div_ceil(shares).max(1);
        std::thread::scope(|scope| {
            let bytes = bytes.as_slice();
            let mut jobs = workers.iter_mut().zip(blocks.chunks(share_len));
            let own = jobs.next();
            let threads: Vec<_> = jobs
                .map(|(worker, share)| scope.spawn(move || worker.run(bytes, share)))
                .collect();
            let done = own.map_or(Ok(()), |(worker, share)| worker.run(bytes, share));
            threads.into_iter().fold(done, |done, thread| {
                done.and(thread.join().expect("compressing does not panic"))
            })
        })?;
        let mut key_start = 0;
        for (worker, share) in workers.iter().zip(blocks.chunks(share_len)) {
            let mut start = 0;
            for (block, end) in share.iter().zip(&worker.ends) {
                f(&keys[key_start..block.key_end], &worker.out[start..*end])?;
                (key_start, start) = (block.key_end, *end);
            }
        }
        bytes.clear();
        keys.clear();
        blocks.clear();
        Ok(())
    }
}

impl Worker {
    /// Compresses these blocks.
    fn run(&mut self, bytes: &[u8], blocks: &[Waiting]) -> Result<()> {
        self.out.clear();
        self.ends.clear();
        for block in blocks {
            self.out.extend_from_slice(&bytes[block.start..block.first]);
            self.compress(&bytes[block.first..block.end], block.best)?;
            self.ends.push(self.out.len());
        }
        Ok(())
    }

    /// Appends `input` as one zlib stream.
    fn compress(&mut self, input: &[u8], best: bool) -> Result<()> {
        let (state, level) = if best {
            (&mut self.best, Compression::best())
        } else {
            (&mut self.state, self.level)
        };
        let state = state.get_or_insert_with(|| Compress::new(level, true));
        state.reset();
        loop {
            let done = usize::try_from(state.total_in()).unwrap_or(input.len());
            let rest = input.get(done..).unwrap_or_default();
            // What does not shrink grows by a few bytes only, so one round nearly always does.
            self.out.reserve(rest.len() + rest.len() / 8 + 64);
            let status = state
                .compress_vec(rest, &mut self.out, FlushCompress::Finish)
                .map_err(|error| Error::misuse(format!("cannot compress a log block: {error}")))?;
            if status == Status::StreamEnd {
                return Ok(());
            }
        }
    }
}
