//! `refdb symbolic-ref`: reads, sets and deletes symrefs.

use bstr::ByteSlice;
use refdb::name::{FormatOptions, SYMREF_DEPTH_MAX, is_well_formed};
use refdb::{Edit, RefName, RefNameBuf, Store, Target};

use super::tell_afterwards;
use crate::context::Context;
use crate::failure::{Failure, Result, complain};
use crate::options::{Opt, Spec};
use crate::output::Output;

#[derive(Clone, Copy)]
pub(super) enum Id {
    Quiet,
    Delete,
    Short,
    Recurse,
    Message,
}

pub(super) const SPEC: Spec<Id> = Spec {
    name: "symbolic-ref",
    forms: &[
        "[-m <reason>] <name> <ref>",
        "[-q] [--short] [--no-recurse] <name>",
        "--delete [-q] <name>",
    ],
    options: &[
        Opt::flag(Id::Quiet, "quiet", "say nothing when the ref is no symref").short(b'q'),
        Opt::flag(Id::Delete, "delete", "delete the symref").short(b'd'),
        Opt::flag(Id::Short, "short", "shorten the name that is printed"),
        Opt::flag(
            Id::Recurse,
            "recurse",
            "follow symrefs to their end (default)",
        ),
        Opt::text(Id::Message, "", "reason", "reason of the update").short(b'm'),
    ],
};

/// What Git says whenever it has written a symref as a symbolic link.
pub(super) const LINKS_END: &str = "\
warning: 'core.preferSymlinkRefs=true' is nominated for removal.
hint: The use of symbolic links for symbolic refs is deprecated
hint: and will be removed in Git 3.0. The configuration that
hint: tells Git to use them is thus going away. You can unset
hint: it with:
hint:
hint:\tgit config unset core.preferSymlinkRefs
hint:
hint: Git will then use the textual symref format instead.
";

/// Runs `symbolic-ref`.
pub(super) fn run(context: &Context, out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    let (mut quiet, mut delete, mut short, mut recurse) = (false, false, false, true);
    let mut message = None;
    let operands = SPEC.parse(args, |id, value| {
        match id {
            Id::Quiet => quiet = value.is_set(),
            Id::Delete => delete = value.is_set(),
            Id::Short => short = value.is_set(),
            Id::Recurse => recurse = value.is_set(),
            Id::Message => message = value.into_text(),
        }
        Ok(())
    })?;
    if message.as_ref().is_some_and(Vec::is_empty) {
        let text = "Refusing to perform update with empty message";
        return Err(Failure::fatal(text));
    }
    let message = message.unwrap_or_default();
    match (delete, operands.as_slice()) {
        (true, [name]) => remove(context, name),
        (false, [name]) => show(context, out, name, quiet, short, recurse),
        (false, [name, target]) => set(context, name, target, message),
        _ => Err(SPEC.misuse()),
    }
}

fn show(
    context: &Context,
    out: &mut Output,
    name: &[u8],
    quiet: bool,
    short: bool,
    recurse: bool,
) -> Result<()> {
    match target(context.store()?, name, recurse)? {
        Some(target) if short => {
            out.put(context.shorten(target.as_name())?)?;
            out.put("\n")
        }
        Some(target) => {
            out.put(target.as_bytes())?;
            out.put("\n")
        }
        None if quiet => Err(Failure::Exit(1)),
        None => Err(named("ref ", name, " is not a symbolic ref")),
    }
}

/// Returns where the symref `name` leads, to the last name or only to the next; `None` if it is no
/// symref.
fn target(store: &Store, name: &[u8], recurse: bool) -> Result<Option<RefNameBuf>> {
    let missing = || named("No such ref: ", name, "");
    let name = RefName::new(name).map_err(|_| missing())?;
    let mut last: Option<RefNameBuf> = None;
    for _ in 0..SYMREF_DEPTH_MAX {
        let current = last.as_ref().map_or(name, RefNameBuf::as_name);
        match store.read(current) {
            Ok(Some(found)) => match found.target {
                Target::Direct(_) => return Ok(last),
                Target::Symbolic(target) if !recurse => return Ok(Some(target)),
                Target::Symbolic(target) if target.as_name().is_well_formed() => {
                    last = Some(target)
                }
                Target::Symbolic(_) => return Err(missing()),
            },
            Ok(None) => return Ok(last),
            Err(error) if error.kind() == refdb::ErrorKind::BrokenRef => return Err(missing()),
            Err(error) => return Err(error.into()),
        }
    }
    Err(missing())
}

fn set(context: &Context, name: &[u8], target: &[u8], message: Vec<u8>) -> Result<()> {
    if name == b"HEAD" && !target.starts_with(b"refs/") {
        return Err(Failure::fatal("Refusing to point HEAD outside of refs/"));
    }
    if !is_well_formed(target, FormatOptions::ONE_LEVEL) {
        let text = [
            b"Refusing to set '",
            name,
            b"' to invalid ref '",
            target,
            b"'",
        ];
        return Err(Failure::fatal(text.concat()));
    }
    let edit = Edit::symbolic(name.as_bstr(), target.as_bstr())
        .no_deref()
        .message(message);
    apply(context, edit)?;
    if context.store()?.options().prefer_symlink_refs {
        complain(LINKS_END);
    }
    Ok(())
}

fn remove(context: &Context, name: &[u8]) -> Result<()> {
    if target(context.store()?, name, false)?.is_none() {
        return Err(named("Cannot delete ", name, ", not a symbolic ref"));
    }
    if name == b"HEAD" {
        return Err(Failure::fatal("deleting 'HEAD' is not allowed"));
    }
    apply(context, Edit::delete(name.as_bstr()).no_deref())
}

fn apply(context: &Context, edit: Edit<'_>) -> Result<()> {
    let mut transaction = context.store()?.transaction();
    let done = transaction.add(edit).and_then(|()| transaction.commit());
    let outcome =
        done.map_err(|error| Failure::of_transaction(error, |it| Failure::error(it, 1)))?;
    tell_afterwards(&outcome);
    Ok(())
}

fn named(before: &str, name: &[u8], after: &str) -> Failure {
    Failure::fatal([before.as_bytes(), name, after.as_bytes()].concat())
}
