//! `refdb refs create`, `update`, `delete` and `rename`: one ref, and words for each purpose.

use bstr::ByteSlice;
use refdb::name::{FormatOptions, is_well_formed};
use refdb::{Edit, Expected, ObjectId, RefName};

use crate::commands::{tell_afterwards, update_ref};
use crate::context::Context;
use crate::failure::{Failure, Result, complain};
use crate::options::{Opt, Spec};
use crate::output::Output;

#[derive(Clone, Copy)]
pub(super) enum Id {
    Message,
    NoDeref,
    CreateReflog,
}

const MESSAGE: Opt<Id> = Opt::text(Id::Message, "message", "reason", "reason of the update");
const NO_DEREF: Opt<Id> = Opt::flag(Id::NoDeref, "no-deref", "the symref itself is meant");
const CREATE_REFLOG: Opt<Id> = Opt::flag(Id::CreateReflog, "create-reflog", "create a reflog");

pub(super) const CREATE: Spec<Id> = Spec {
    name: "refs create",
    forms: &["[--message=<reason>] [--no-deref] [--create-reflog] <ref> <new-value>"],
    options: &[MESSAGE, NO_DEREF, CREATE_REFLOG],
};

pub(super) const UPDATE: Spec<Id> = Spec {
    name: "refs update",
    forms: &[
        "[--message=<reason>] [--no-deref] [--create-reflog]\n<ref> <new-value> [<old-value>]",
    ],
    options: &[MESSAGE, NO_DEREF, CREATE_REFLOG],
};

pub(super) const DELETE: Spec<Id> = Spec {
    name: "refs delete",
    forms: &["[--message=<reason>] [--no-deref] <ref> [<old-value>]"],
    options: &[MESSAGE, NO_DEREF],
};

pub(super) const RENAME: Spec<Id> = Spec {
    name: "refs rename",
    forms: &["[--message=<reason>] <old-ref> <new-ref>"],
    options: &[MESSAGE],
};

/// What the options say.
#[derive(Debug, Default)]
struct Settings {
    message: Option<Vec<u8>>,
    no_deref: bool,
    create_reflog: bool,
}

/// Runs `refs create`.
pub(super) fn create(context: &Context, _out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    let (settings, operands) = Settings::parse(&CREATE, args)?;
    let [name, new] = operands.as_slice() else {
        return Err(misuse("create requires reference name and an object ID"));
    };
    let new = object_id(context, new, "object ID")?;
    if new.is_null() {
        let text = "cannot create reference with null new object ID";
        return Err(Failure::fatal(text));
    }
    let edit = Edit::update(name.as_bstr(), new).expecting(Expected::Missing);
    write(context, &settings, name, edit)
}

/// Runs `refs update`.
pub(super) fn update(context: &Context, _out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    let (settings, operands) = Settings::parse(&UPDATE, args)?;
    let (name, new, old) = match operands.as_slice() {
        [name, new] => (name, new, None),
        [name, new, old] => (name, new, Some(old)),
        _ => {
            let text = "update requires reference name, new value and an optional old value";
            return Err(misuse(text));
        }
    };
    let new = object_id(context, new, "new object ID")?;
    let old = match old {
        Some(old) => Some(object_id(context, old, "old object ID")?),
        None => None,
    };
    let edit = Edit::update(name.as_bstr(), new).expecting(update_ref::expected(old));
    write(context, &settings, name, edit)
}

/// Runs `refs delete`.
pub(super) fn delete(context: &Context, _out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    let (settings, operands) = Settings::parse(&DELETE, args)?;
    let (name, old) = match operands.as_slice() {
        [name] => (name, None),
        [name, old] => (name, Some(object_id(context, old, "old object ID")?)),
        _ => {
            return Err(misuse(
                "delete requires reference name and an optional old value",
            ));
        }
    };
    if old.is_some_and(|old| old.is_null()) {
        let text = "cannot delete reference with null old object ID";
        return Err(Failure::fatal(text));
    }
    let edit = Edit::delete(name.as_bstr()).expecting(update_ref::expected(old));
    let done = update_ref::commit(context.store()?, settings.apply(edit));
    done.map_err(|error| Failure::of_transaction(error, |it| Failure::error(it, 1)))
}

/// Runs `refs rename`.
pub(super) fn rename(context: &Context, _out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    let (settings, operands) = Settings::parse(&RENAME, args)?;
    let [old, new] = operands.as_slice() else {
        return Err(misuse("rename requires old and new reference name"));
    };
    for name in [old, new] {
        if !is_well_formed(name, FormatOptions::FULL) {
            return Err(quoting("invalid ref format", name));
        }
    }
    let store = context.store()?;
    let (from, to) = (RefName::new(old)?, RefName::new(new)?);
    if store.resolve(from)?.is_none() {
        return Err(quoting("reference does not exist", old));
    }
    if matches!(store.resolve(to), Ok(Some(_))) {
        return Err(quoting("reference already exists", new));
    }
    let message = settings.message.unwrap_or_default();
    let outcome = store.rename_to_new(from, to, &message);
    tell_afterwards(&outcome.map_err(|error| Failure::error(&error, 1))?);
    Ok(())
}

fn quoting(what: &str, name: &[u8]) -> Failure {
    let before = format!("{what}: '");
    Failure::fatal([before.as_bytes(), name, b"'"].concat())
}

impl Settings {
    fn parse(spec: &Spec<Id>, args: &[Vec<u8>]) -> Result<(Settings, Vec<Vec<u8>>)> {
        let mut settings = Settings::default();
        let operands = spec.parse(args, |id, value| {
            match id {
                Id::Message => settings.message = value.into_text(),
                Id::NoDeref => settings.no_deref = value.is_set(),
                Id::CreateReflog => settings.create_reflog = value.is_set(),
            }
            Ok(())
        })?;
        if settings.message.as_ref().is_some_and(Vec::is_empty) {
            let text = "refusing to perform update with empty message";
            return Err(Failure::fatal(text));
        }
        Ok((settings, operands))
    }

    fn apply<'a>(&'a self, mut edit: Edit<'a>) -> Edit<'a> {
        if let Some(message) = &self.message {
            edit = edit.message(message.as_slice());
        }
        if self.no_deref {
            edit = edit.no_deref();
        }
        if self.create_reflog {
            edit = edit.create_log();
        }
        edit
    }
}

fn write(context: &Context, settings: &Settings, name: &[u8], edit: Edit<'_>) -> Result<()> {
    update_ref::commit(context.store()?, settings.apply(edit)).map_err(|error| {
        let failed = |it: &refdb::Error| Failure::error(update_ref::failed_for(name, it), 1);
        Failure::of_transaction(error, failed)
    })
}

fn object_id(context: &Context, text: &[u8], what: &str) -> Result<ObjectId> {
    context.object_id(text)?.ok_or_else(|| {
        let before = format!("invalid {what}: '");
        Failure::fatal([before.as_bytes(), text, b"'"].concat())
    })
}

/// Tells in one line what is missing from the call.
fn misuse(what: &str) -> Failure {
    complain(&format!("usage: {what}\n"));
    Failure::Exit(129)
}
