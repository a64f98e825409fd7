//! Transactions that another writer has overtaken, where no lock keeps it out.
//!
//! They are checked again, whole, against what is there by now, and hooks hear of it: what was prepared is
//! aborted, then they are asked anew.

use std::time::Duration;

use super::{Outcome, Prepared, Transaction};
use crate::backend::Backend;
use crate::error::{Error, ErrorKind, Result};
use crate::system::System;

/// The longest pause before another try is so many milliseconds.
const PAUSE_MAX: u64 = 64;

impl<'s> Transaction<'s> {
    fn copy(&self) -> Transaction<'s> {
        Transaction {
            queue: self.queue.clone(),
            ..*self
        }
    }

    /// Prepares it so that it can be prepared anew.
    pub(super) fn prepare_to_try(self) -> Result<Prepared<'s>> {
        let prepared = until_not_overtaken(self.backend, self.system, || self.prepare_copy());
        let mut prepared = prepared?;
        prepared.again = Some(Box::new(self));
        Ok(prepared)
    }

    /// Prepares a copy. What is known here is good enough to try; a refusal must have its reason in what
    /// is there now.
    fn prepare_copy(&self) -> Result<Prepared<'s>> {
        let known = self.backend.generation(false)?;
        let prepared = self.copy().prepare_in(|backend| backend.begin());
        match &prepared {
            Err(error) if may_be_out_of_date(error) && self.backend.generation(true)? != known => {
                Err(Error::overtaken())
            }
            _ => prepared,
        }
    }

    /// Commits what was prepared, or what is prepared anew, for as long as another writer is faster.
    pub(super) fn commit_prepared(self, prepared: Prepared<'s>) -> Result<Outcome> {
        let mut prepared = Some(prepared);
        until_not_overtaken(self.backend, self.system, || {
            let now = match prepared.take() {
                Some(prepared) => prepared,
                None => self.prepare_copy()?,
            };
            now.commit_once()
        })
    }
}

/// Returns whether an error says something of the refs.
fn may_be_out_of_date(error: &Error) -> bool {
    !matches!(
        error.kind(),
        ErrorKind::Overtaken | ErrorKind::Hook | ErrorKind::Interrupted | ErrorKind::Io
    )
}

/// Tries something until no other writer is faster, or for too long.
///
/// # Errors
/// What `attempt` fails with.
pub(crate) fn until_not_overtaken<T>(
    backend: &dyn Backend,
    system: &dyn System,
    mut attempt: impl FnMut() -> Result<T>,
) -> Result<T> {
    let Some(limit) = backend.tries_again() else {
        return attempt();
    };
    let begun = system.elapsed();
    let mut most = 1;
    loop {
        match attempt() {
            Err(error) if error.kind() == ErrorKind::Overtaken => {
                if system.elapsed().saturating_sub(begun) >= limit {
                    return Err(error);
                }
                pause(system, &mut most);
            }
            done => return done,
        }
    }
}

/// Waits for a moment that others do not wait for as well, and longer the next time.
pub(super) fn pause(system: &dyn System, most: &mut u64) {
    let micros = system.random() % (*most * 1000);
    system.sleep(Duration::from_micros(micros));
    *most = (*most * 2).min(PAUSE_MAX);
}
