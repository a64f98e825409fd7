//! What is read from standard input, one question after the other.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, ErrorKind, Stdin, stdin};
use std::os::fd::AsFd;

use bstr::ByteSlice;

use crate::failure::{Failure, Result};
use crate::interrupt;

/// How long a question may be, so that memory stays bounded whatever is sent.
const QUESTION_MAX: usize = 64 << 10;

/// What came next.
pub(super) enum Asked {
    /// A question, without its terminator.
    Question(Vec<u8>),
    /// One that is too long, which was passed over.
    TooLong,
    /// The input ended within a question.
    CutOff,
    /// The input ended.
    End,
}

/// Standard input.
pub(super) struct Input {
    stdin: BufReader<Stdin>,
    terminator: u8,
    /// Questions that were taken and not answered.
    back: VecDeque<Vec<u8>>,
}

impl Input {
    pub(super) fn new(terminator: u8) -> Self {
        Input {
            stdin: BufReader::with_capacity(QUESTION_MAX, stdin()),
            terminator,
            back: VecDeque::new(),
        }
    }

    /// Returns whether the next question has arrived whole, so that nothing is waited for.
    pub(super) fn has_next(&self) -> bool {
        !self.back.is_empty() || self.stdin.buffer().contains(&self.terminator)
    }

    /// Takes the next question if it has arrived whole and is one of those that `is_wanted`.
    pub(super) fn next_if(&mut self, is_wanted: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
        if let Some(question) = self.back.front() {
            return is_wanted(question).then(|| self.back.pop_front())?;
        }
        let arrived = self.stdin.buffer();
        let end = arrived.find_byte(self.terminator)?;
        let question = arrived.get(..end).filter(|question| is_wanted(question))?;
        let question = question.to_vec();
        self.stdin.consume(end + 1);
        Some(question)
    }

    /// Gives back questions that come next, in their order.
    pub(super) fn give_back(&mut self, questions: impl Iterator<Item = Vec<u8>>) {
        let behind = std::mem::take(&mut self.back);
        self.back = questions.chain(behind).collect();
    }

    /// Reads the next question, and waits for it.
    ///
    /// # Errors
    /// When standard input cannot be read, or a signal ends the command.
    pub(super) fn next(&mut self) -> Result<Asked> {
        if let Some(question) = self.back.pop_front() {
            return Ok(Asked::Question(question));
        }
        let mut question = Vec::new();
        let mut is_too_long = false;
        loop {
            if self.stdin.buffer().is_empty() {
                interrupt::wait_for(self.stdin.get_ref().as_fd()).map_err(unreadable)?;
            }
            let arrived = match self.stdin.fill_buf() {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                arrived => arrived.map_err(unreadable)?,
            };
            if arrived.is_empty() {
                return Ok(match question.is_empty() && !is_too_long {
                    true => Asked::End,
                    false => Asked::CutOff,
                });
            }
            let end = arrived.find_byte(self.terminator);
            let part = &arrived[..end.unwrap_or(arrived.len())];
            is_too_long |= question.len() + part.len() > QUESTION_MAX;
            if !is_too_long {
                question.extend_from_slice(part);
            }
            let taken = part.len() + usize::from(end.is_some());
            self.stdin.consume(taken);
            if end.is_some() {
                return Ok(match is_too_long {
                    true => Asked::TooLong,
                    false => Asked::Question(question),
                });
            }
        }
    }
}

fn unreadable(error: std::io::Error) -> Failure {
    if error.kind() == ErrorKind::Interrupted {
        return Failure::Exit(1);
    }
    let why = refdb::error::io_text(&error);
    Failure::fatal(format!("cannot read standard input: {why}"))
}
