//! The hook of transactions: told of each of their steps, and asked before two of them.
//!
//! Running a program is the caller's business. A store calls whatever [`Options::hook`] holds, and
//! what it hands over is exactly what Git's hook `reference-transaction` reads: the name of the
//! step, and for each ref a line `<old> <new> <name>`. With no hook nothing is put together.
//!
//! [`Options::hook`]: crate::Options::hook
//!
//! ```
//! use refdb::hook::{Hook, Step};
//!
//! /// Lets nobody touch tags.
//! #[derive(Debug)]
//! struct NoTags;
//!
//! impl Hook for NoTags {
//!     fn is_there(&self) -> refdb::Result<bool> {
//!         Ok(true)
//!     }
//!
//!     fn call(&self, step: Step, lines: &[u8]) -> refdb::Result<bool> {
//!         let text = String::from_utf8_lossy(lines);
//!         Ok(step != Step::Prepared || !text.contains(" refs/tags/"))
//!     }
//! }
//! ```

pub(crate) mod call;

use std::fmt;

pub(crate) use self::call::{ask, ask_or_abort, present, push_line, tell};
use crate::error::Result;

/// A step of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Edits were gathered; no lock is taken yet. The hook may refuse.
    Preparing,
    /// All locks are held and everything is checked. The hook may refuse.
    Prepared,
    /// The new values can be seen.
    Committed,
    /// Nothing will change.
    Aborted,
}

impl Step {
    /// Returns the argument that Git gives to the hook.
    pub const fn name(self) -> &'static str {
        match self {
            Step::Preparing => "preparing",
            Step::Prepared => "prepared",
            Step::Committed => "committed",
            Step::Aborted => "aborted",
        }
    }
}

/// What is called at each step of a transaction.
pub trait Hook: Send + Sync + fmt::Debug {
    /// Returns whether there is anything to call. It is asked once for each transaction.
    ///
    /// # Errors
    /// When that cannot be found out; the transaction ends with it.
    fn is_there(&self) -> Result<bool>;

    /// Calls the hook with a line `<old> <new> <name>` for each ref, where a value is an id, the
    /// null id for none, or `ref:` and the target of a symref. `old` is what the caller expected,
    /// not what was found. Returns whether the transaction may go on; the answer counts only while
    /// preparing and when prepared.
    ///
    /// # Errors
    /// When the hook cannot be called; the transaction ends with it.
    fn call(&self, step: Step, lines: &[u8]) -> Result<bool>;
}
