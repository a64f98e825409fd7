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

use std::fmt;

use crate::error::{Error, ErrorKind, Result};
use crate::name::RefName;
use crate::oid::ObjectId;

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

/// Calls a hook and turns its refusal into an error.
pub(crate) fn ask(hook: &dyn Hook, step: Step, lines: &[u8]) -> Result<()> {
    match hook.call(step, lines) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::new(
            ErrorKind::Hook,
            format!(
                "in '{}' phase, update aborted by the reference-transaction hook",
                step.name()
            ),
        )),
        Err(error) => Err(as_hook_error(&error)),
    }
}

/// Calls a hook whose answer makes no difference any more.
pub fn tell(hook: &dyn Hook, step: Step, lines: &[u8]) -> Result<()> {
    let answer = hook.call(step, lines);
    answer.map(|_| ()).map_err(|error| as_hook_error(&error))
}

/// Asks the hook about a step, and tells it if its own answer ends everything.
pub fn ask_or_abort(hook: &dyn Hook, step: Step, lines: &[u8]) -> Result<()> {
    let answer = ask(hook, step, lines);
    if answer.is_err() {
        tell(hook, Step::Aborted, lines)?;
    }
    answer
}

/// Returns the hook if there is anything to call.
pub fn present(hook: Option<&dyn Hook>) -> Result<Option<&dyn Hook>> {
    match hook {
        Some(hook) => {
            let there = hook.is_there().map_err(|error| as_hook_error(&error))?;
            Ok(there.then_some(hook))
        }
        None => Ok(None),
    }
}

/// Appends the line of a ref that has object ids on both sides.
pub(crate) fn push_line(lines: &mut Vec<u8>, old: ObjectId, new: ObjectId, name: RefName<'_>) {
    old.push_hex(lines);
    lines.push(b' ');
    new.push_hex(lines);
    lines.push(b' ');
    lines.extend_from_slice(name.as_bytes());
    lines.push(b'\n');
}

/// Whatever went wrong with a hook is no failure of the edit that it was called for.
fn as_hook_error(error: &Error) -> Error {
    Error::new(ErrorKind::Hook, error.to_string())
}
