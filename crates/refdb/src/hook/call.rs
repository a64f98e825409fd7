//! Calling a hook, and what its answer means.

use refdb_names::{ObjectId, RefName};

use super::{Hook, Step};
use crate::error::{Error, ErrorKind, Result};

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
    error.words_as(ErrorKind::Hook)
}
