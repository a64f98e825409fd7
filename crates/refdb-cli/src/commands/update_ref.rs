//! `refdb update-ref`: creates, moves and deletes refs, one or many at once.
//!
//! With `--stdin` the commands are carried out as they come, so that a program can hold a dialogue.

pub(super) mod command;
mod fields;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
mod input;
mod plain;
mod session;

use bstr::ByteSlice;
use refdb::{Edit, Expected, ObjectId, Store};

use super::tell_afterwards;
use crate::context::Context;
use crate::failure::{Failure, Result, Words};
use crate::options::{Opt, Spec};
use crate::output::Output;

#[derive(Clone, Copy)]
pub(super) enum Id {
    Message,
    Delete,
    NoDeref,
    Zero,
    Stdin,
    CreateReflog,
    BatchUpdates,
}

pub(super) const SPEC: Spec<Id> = Spec {
    name: "update-ref",
    forms: &[
        "[<options>] -d <refname> [<old-oid>]",
        "[<options>]    <refname> <new-oid> [<old-oid>]",
        "[<options>] --stdin [-z] [--batch-updates]",
    ],
    options: &[
        Opt::text(Id::Message, "", "reason", "reason of the update").short(b'm'),
        Opt::flag(Id::Delete, "", "delete the ref").short(b'd'),
        Opt::flag(
            Id::NoDeref,
            "no-deref",
            "update <refname>, not the ref it points to",
        ),
        Opt::flag(
            Id::Zero,
            "",
            "what is read ends with NUL, not with a line feed",
        )
        .short(b'z'),
        Opt::flag(Id::Stdin, "stdin", "read updates from standard input"),
        Opt::flag(Id::CreateReflog, "create-reflog", "create a reflog"),
        Opt::flag(
            Id::BatchUpdates,
            "batch-updates",
            "let single updates be refused, and end with 0",
        )
        .short(b'0'),
    ],
};

/// What the options say.
#[derive(Debug, Default)]
struct Settings {
    message: Vec<u8>,
    no_deref: bool,
    create_reflog: bool,
    batch: bool,
    zero: bool,
}

impl Settings {
    /// Returns whether every edit is given something.
    fn asks_for_more(&self) -> bool {
        self.create_reflog || !self.message.is_empty()
    }

    /// Gives an edit what the options ask for; a reflog is made only where there is a new value.
    #[inline]
    fn apply<'a>(&'a self, edit: Edit<'a>, no_deref: bool, new_value: bool) -> Edit<'a> {
        let edit = edit.message(self.message.as_slice());
        let edit = if no_deref { edit.no_deref() } else { edit };
        if self.create_reflog && new_value {
            edit.create_log()
        } else {
            edit
        }
    }
}

/// Runs `update-ref`.
pub(super) fn run(context: &Context, out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    let mut settings = Settings::default();
    let (mut delete, mut stdin, mut empty_message) = (false, false, false);
    let operands = SPEC.parse(args, |id, value| {
        match id {
            Id::Message => {
                settings.message = value.into_text().unwrap_or_default();
                empty_message = settings.message.is_empty();
            }
            Id::Delete => delete = value.is_set(),
            Id::NoDeref => settings.no_deref = value.is_set(),
            Id::Zero => settings.zero = value.is_set(),
            Id::Stdin => stdin = value.is_set(),
            Id::CreateReflog => settings.create_reflog = value.is_set(),
            Id::BatchUpdates => settings.batch = value.is_set(),
        }
        Ok(())
    })?;
    if empty_message {
        let text = "Refusing to perform update with empty message.";
        return Err(Failure::fatal(text));
    }
    if stdin {
        if delete || !operands.is_empty() {
            return Err(SPEC.misuse());
        }
        return session::run(context, out, &settings);
    }
    if settings.batch {
        let text = "--batch-updates can only be used with --stdin";
        return Err(Failure::fatal(text));
    }
    if settings.zero {
        return Err(SPEC.misuse());
    }
    match (delete, operands.as_slice()) {
        (true, [name]) => remove(context, &settings, name, None),
        (true, [name, old]) => remove(context, &settings, name, Some(old)),
        (false, [name, new]) => update(context, &settings, name, new, None),
        (false, [name, new, old]) => update(context, &settings, name, new, Some(old)),
        _ => Err(SPEC.misuse()),
    }
}

fn update(
    context: &Context,
    settings: &Settings,
    name: &[u8],
    new: &[u8],
    old: Option<&Vec<u8>>,
) -> Result<()> {
    let new = context
        .object_id(new)?
        .ok_or_else(|| Failure::fatal([new, &b": not a valid SHA1"[..]].concat()))?;
    let expected = expected(old_value(context, old)?);
    let edit = Edit::update(name.as_bstr(), new).expecting(expected);
    let edit = settings.apply(edit, settings.no_deref, true);
    commit(context.store()?, edit)
        .map_err(|error| Failure::of_transaction(error, |it| Failure::fatal(failed_for(name, it))))
}

fn remove(
    context: &Context,
    settings: &Settings,
    name: &[u8],
    old: Option<&Vec<u8>>,
) -> Result<()> {
    let expected = match old_value(context, old)? {
        Some(oid) if !oid.is_null() => Expected::Oid(oid),
        _ => Expected::Any,
    };
    let edit = Edit::delete(name.as_bstr()).expecting(expected);
    let edit = settings.apply(edit, settings.no_deref, false);
    commit(context.store()?, edit)
        .map_err(|error| Failure::of_transaction(error, |it| Failure::error(it, 1)))
}

/// Reads the expected old value; the empty one is the null id.
fn old_value(context: &Context, old: Option<&Vec<u8>>) -> Result<Option<ObjectId>> {
    match old {
        None => Ok(None),
        Some(old) if old.is_empty() => Ok(Some(ObjectId::null(context.object_format()?))),
        Some(old) => match context.object_id(old)? {
            Some(oid) => Ok(Some(oid)),
            None => Err(Failure::fatal(
                [old, &b": not a valid old SHA1"[..]].concat(),
            )),
        },
    }
}

/// Commits one edit.
pub(super) fn commit(store: &Store, edit: Edit<'_>) -> refdb::Result<()> {
    let mut transaction = store.transaction();
    transaction.add(edit)?;
    tell_afterwards(&transaction.commit()?);
    Ok(())
}

/// Returns what an old value asks for: the null id asks that there be no ref.
pub(super) fn expected<'a>(old: Option<ObjectId>) -> Expected<'a> {
    match old {
        None => Expected::Any,
        Some(old) if old.is_null() => Expected::Missing,
        Some(old) => Expected::Oid(old),
    }
}

/// Returns the message of a single update that failed.
pub(super) fn failed_for(name: &[u8], error: &refdb::Error) -> Words {
    let before = b"update_ref failed for ref '".as_slice();
    Words::from(error).after([before, name, b"': "].concat())
}
