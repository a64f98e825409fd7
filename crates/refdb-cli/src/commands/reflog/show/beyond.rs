//! What lies beyond this command: calls of `reflog show` that compare trees, choose by paths, or
//! show more than entries and commits are answered by Git's log, where there is a Git.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use bstr::ByteSlice;
use refdb::RefName;

use super::pretty::Pretty;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::output::Output;

/// Becomes Git's log, with these arguments; fails with `otherwise` where there is no Git.
pub(super) fn hand_over(
    context: &Context,
    out: &mut Output,
    args: &[Vec<u8>],
    pretty: &Pretty,
    otherwise: Failure,
) -> Result<()> {
    out.flush()?;
    let arguments = |args: &[Vec<u8>]| -> Vec<_> {
        let args = args.iter().map(|arg| OsStr::from_bytes(arg).to_owned());
        args.collect()
    };
    // Only a failure returns.
    let _ = Command::new("git")
        .args(arguments(&context.globals().as_arguments()))
        .args(["log", "--walk-reflogs", "--pretty=oneline"])
        .arg(match pretty {
            Pretty::Raw => "--no-abbrev-commit",
            _ => "--abbrev-commit",
        })
        .args(arguments(args))
        .exec();
    Err(otherwise)
}

/// Returns whether notes may be shown beside commits.
pub(super) fn shows_notes(context: &Context, pretty: &Pretty) -> Result<bool> {
    let is_long = !matches!(
        pretty,
        Pretty::Oneline | Pretty::Template(..) | Pretty::Reference
    );
    if !is_long {
        return Ok(false);
    }
    let repository = context.repository()?;
    let (config, environment) = (repository.config(), repository.environment());
    let is_set = ["notes.displayref", "core.notesref"]
        .iter()
        .any(|key| config.string(key).is_some());
    let is_named = ["GIT_NOTES_REF", "GIT_NOTES_DISPLAY_REF"]
        .iter()
        .any(|name| environment.get(name).is_some());
    let usual = RefName::from_disk(b"refs/notes/commits");
    Ok(is_set || is_named || context.store()?.read(usual)?.is_some())
}

/// Returns whether the configuration asks for colours also where nobody looks.
pub(super) fn always_colors(context: &Context) -> Result<bool> {
    let config = context.repository()?.config();
    let setting = config.string("color.diff");
    let setting = setting.or_else(|| config.string("color.ui"));
    Ok(setting.is_some_and(|setting| setting == "always"))
}

/// Returns whether a template asks for nothing but what this command shows itself: no notes,
/// signatures, trailers, padding, and no colours that depend on anything.
pub(super) fn is_within(template: &[u8]) -> bool {
    let mut rest = template;
    while let Some(at) = rest.find_byte(b'%') {
        rest = rest.get(at + 1..).unwrap_or_default();
        rest = rest.strip_prefix(b"+").unwrap_or(rest);
        match rest.first() {
            Some(b'N' | b'G' | b'<' | b'>' | b'w' | b'(') => return false,
            Some(b'C') if rest.starts_with(b"C(always") => return false,
            Some(_) => rest = rest.get(1..).unwrap_or_default(),
            None => break,
        }
    }
    true
}

/// What a call cannot do without Git that names paths.
pub(super) const PATHS: &str = "entries cannot be chosen by paths";

/// How a revision and a path are told from each other.
pub(super) const SEPARATE: &str = "Use '--' to separate paths from revisions, like this:\n\
    'refdb <command> [<revision>...] -- [<file>...]'";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_within_and_beyond() {
        for within in [
            "",
            "%h %gd: %gs",
            "100%%N",
            "%C(red)%h%Creset",
            "%x41%N".get(..4).unwrap(),
        ] {
            assert!(is_within(within.as_bytes()), "{within}");
        }
        for beyond in [
            "%N",
            "%G?",
            "a %<(10)%h",
            "%>>(3)%h",
            "%w(20)%B",
            "%(trailers)",
            "%+N",
        ] {
            assert!(!is_within(beyond.as_bytes()), "{beyond}");
        }
    }
}
