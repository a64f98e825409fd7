//! What is refused of an edit before anything is looked up: names, targets and signatures that could not
//! be read back.

use std::fmt;

use refdb_names::name::{FormatOptions, is_pseudoref, is_safe, is_well_formed};

use super::edit::{Change, Edit, Expected};
use crate::error::{Error, ErrorKind, Result};
use crate::reflog::Signature;

/// Refuses targets and signatures that could not be read back as they were given.
pub(super) fn check_text(edit: &Edit<'_>) -> Result<()> {
    match &edit.change {
        Change::Symbolic(target) if !is_well_formed(target, FormatOptions::ONE_LEVEL) => {
            Err(Error::new(
                ErrorKind::InvalidName,
                format!(
                    "refusing to set '{}' to invalid ref '{target}'",
                    edit.name()
                ),
            ))
        }
        Change::Log(entry) => match &entry.who {
            Some(who) => check_signature(who, &format_args!("an entry for '{}'", edit.name())),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Refuses a signature that could not be read back.
pub(super) fn check_signature(who: &Signature, whose: &dyn fmt::Display) -> Result<()> {
    let is_bad = |byte: &u8| matches!(byte, b'\n' | b'\0' | b'<' | b'>');
    let what = match who.zone.unsigned_abs() {
        _ if who.name.iter().chain(who.email.iter()).any(is_bad) => "an invalid byte",
        10_000.. => "a time zone of more than four digits",
        _ => return Ok(()),
    };
    let message = format!("the signature of {whose} has {what}");
    Err(Error::new(ErrorKind::Misuse, message))
}

/// Refuses names that Git refuses: pseudorefs always, ill-formed names for new values, unsafe
/// names for everything else.
pub(super) fn check_name(edit: &Edit<'_>) -> Result<()> {
    let name = edit.name();
    let what = if edit.is_log_only() { "reflog" } else { "ref" };
    if is_pseudoref(name) {
        let which = if edit.is_log_only() {
            "reflog for pseudoref"
        } else {
            "pseudoref"
        };
        return Err(Error::new(
            ErrorKind::InvalidName,
            format!("refusing to update {which} '{name}'"),
        ));
    }
    let has_new_value = match &edit.change {
        Change::Update(oid) => !oid.is_null(),
        Change::Log(entry) => !entry.new.is_null(),
        Change::Symbolic(_) | Change::Delete | Change::Verify => false,
    };
    let fine = if has_new_value {
        is_well_formed(name, FormatOptions::ONE_LEVEL)
    } else {
        is_safe(name)
    };
    if fine {
        Ok(())
    } else {
        Err(Error::new(
            ErrorKind::InvalidName,
            format!("refusing to update {what} with bad name '{name}'"),
        ))
    }
}

/// Returns how much text an edit brings at most.
pub(super) fn text_len(edit: &Edit<'_>) -> usize {
    let target = match &edit.change {
        Change::Symbolic(target) => target.len(),
        _ => 0,
    };
    let expected = match &edit.expected {
        Expected::Symbolic(target) => target.len(),
        _ => 0,
    };
    edit.name.len() + edit.message.len() + target + expected
}
