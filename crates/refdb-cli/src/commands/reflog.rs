//! `refdb reflog`: shows reflogs, and changes them.
//!
//! What is no subcommand is an argument of `show`.

mod expire;
mod show;
mod target;

use bstr::ByteSlice;
use refdb::name::{FormatOptions, is_root_ref, is_well_formed};
use refdb::{Edit, ErrorKind, ObjectId, RefFormat, RefName};

use super::{Subcommand, forms_of, start_pager, tell_afterwards};
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::options::{Of, Opt, Spec, of_subcommands};
use crate::output::Output;

pub(super) const SUBCOMMANDS: &[Subcommand] = &[
    Subcommand {
        name: "show",
        form: "[show] [<log-options>] [<ref>]",
        spec: &show::TOLD,
        run: |context, out, args| show::run(context, out, args, true),
    },
    Subcommand {
        name: "list",
        form: "list",
        spec: &LIST,
        run: list,
    },
    Subcommand {
        name: "exists",
        form: "exists <ref>",
        spec: &EXISTS,
        run: exists,
    },
    Subcommand {
        name: "write",
        form: "write <ref> <old-oid> <new-oid> <message>",
        spec: &WRITE,
        run: write,
    },
    Subcommand {
        name: "delete",
        form: concat!(
            "delete [--rewrite] [--updateref]\n",
            "       [--dry-run | -n] [--verbose] <ref>@{<specifier>}..."
        ),
        spec: &expire::DELETE,
        run: expire::delete,
    },
    Subcommand {
        name: "drop",
        form: "drop [--all [--single-worktree] | <refs>...]",
        spec: &expire::DROP,
        run: expire::drop,
    },
    Subcommand {
        name: "expire",
        form: concat!(
            "expire [--expire=<time>] [--expire-unreachable=<time>]\n",
            "       [--rewrite] [--updateref] [--stale-fix]\n",
            "       [--dry-run | -n] [--verbose] [--all [--single-worktree] | <refs>...]"
        ),
        spec: &expire::EXPIRE,
        run: expire::expire,
    },
];

const NO_OPTIONS: &[Opt<()>] = &[];

pub(super) const SPEC: Spec<()> = Spec {
    name: "reflog",
    forms: &forms_of::<{ SUBCOMMANDS.len() }>(SUBCOMMANDS),
    options: NO_OPTIONS,
};

/// Returns whether a call is one that Git takes.
pub(super) fn is_gits(args: &[Vec<u8>]) -> bool {
    let named = args.split_first().and_then(|(name, rest)| {
        let mut others = SUBCOMMANDS.iter().filter(|it| it.name != "show");
        Some((others.find(|it| it.name.as_bytes() == name)?, rest))
    });
    match named {
        Some((subcommand, rest)) => subcommand.spec.is_gits(rest),
        // Those of a log are not in a table; what is not known of them is handed on anyway.
        None => !args.iter().any(|arg| show::is_not_gits(arg)),
    }
}

/// Runs `reflog`.
pub(super) fn run(context: &Context, out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    let names = SUBCOMMANDS.iter().map(|subcommand| subcommand.name);
    if let Some(answer) = of_subcommands(args, names) {
        return Err(answer);
    }
    let asks_how = |first: &Vec<u8>| first.starts_with(b"-h") || first == b"--help-all";
    if args.first().is_some_and(asks_how) {
        return Err(SPEC.help(Of::Git));
    }
    let named = args.split_first().and_then(|(name, rest)| {
        let named = |it: &&Subcommand| it.name.as_bytes() == name;
        Some((SUBCOMMANDS.iter().find(named)?, rest))
    });
    match named {
        Some((subcommand, rest)) if subcommand.name == "show" => {
            show::run(context, out, rest, true)
        }
        Some((subcommand, rest)) => {
            // Asking how it is called needs no repository, and so no setting of one.
            if !matches!(rest, [only] if only == b"-h" || only == b"--help-all") {
                start_pager(context, out, "reflog")?;
            }
            (subcommand.run)(context, out, rest)
        }
        None => show::run(context, out, args, false),
    }
}

const LIST: Spec<()> = Spec {
    name: "reflog list",
    forms: &[""],
    options: NO_OPTIONS,
};

fn list(context: &Context, out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    let operands = LIST.parse(args, |(), _| Ok(()))?;
    if let Some(first) = operands.first() {
        let before = b"list does not accept arguments: '".as_slice();
        return Err(Failure::error([before, first, b"'"].concat(), 255));
    }
    let names = context.store()?.log_names();
    let format = context.store()?.format();
    let names = names.map_err(|error| match error.kind() {
        ErrorKind::Moved => error.into(),
        _ => Failure::error(&error, 255),
    })?;
    for name in names {
        // In this format Git does not list what cannot be a ref's name.
        if format == RefFormat::Reftable
            && !is_well_formed(name.as_bytes(), FormatOptions::ONE_LEVEL)
        {
            continue;
        }
        out.buffer().extend_from_slice(name.as_bytes());
        out.put(b"\n")?;
    }
    Ok(())
}

const EXISTS: Spec<()> = Spec {
    name: "reflog exists",
    forms: &["<ref>"],
    options: NO_OPTIONS,
};

fn exists(context: &Context, _out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    let operands = EXISTS.parse(args, |(), _| Ok(()))?;
    let name = operands.first().ok_or_else(|| EXISTS.misuse())?;
    let invalid = |_| refuse("invalid ref format: ", name, "");
    match context
        .store()?
        .log_exists(RefName::new(name).map_err(invalid)?)?
    {
        true => Ok(()),
        false => Err(Failure::Exit(1)),
    }
}

const WRITE: Spec<()> = Spec {
    name: "reflog write",
    forms: &["<ref> <old-oid> <new-oid> <message>"],
    options: NO_OPTIONS,
};

fn write(context: &Context, _out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    let operands = WRITE.parse(args, |(), _| Ok(()))?;
    let [name, old, new, message] = operands.as_slice() else {
        return Err(WRITE.misuse());
    };
    if !is_root_ref(name) && !is_well_formed(name, FormatOptions::FULL) {
        return Err(refuse("invalid reference name: ", name, ""));
    }
    let old = object(context, old, "old")?;
    let new = object(context, new, "new")?;
    let mut transaction = context.store()?.transaction();
    let edit = Edit::log(name.as_bstr(), old, new).message(message.as_slice());
    // What a hook refuses is its own word, and so is a date that is none.
    let fatal = |what: &str, error: refdb::Error| match error.kind() {
        ErrorKind::Hook | ErrorKind::Date => Failure::from(error),
        _ => Failure::whole(&error.context(format_args!("cannot {what} reflog update"))),
    };
    transaction
        .add(edit)
        .map_err(|error| fatal("queue", error))?;
    let outcome = transaction
        .commit()
        .map_err(|error| fatal("commit", error))?;
    tell_afterwards(&outcome);
    Ok(())
}

/// Reads a full object id, whose object must exist unless it is null. As in Git, what stands behind
/// its digits is not looked at.
fn object(context: &Context, hex: &[u8], which: &str) -> Result<ObjectId> {
    let format = context.object_format()?;
    let digits = hex.get(..format.hex_len());
    let oid = digits.and_then(ObjectId::from_hex);
    let Some(oid) = oid else {
        return Err(refuse(&format!("invalid {which} object ID: '"), hex, "'"));
    };
    if !oid.is_null() && context.odb()?.header(oid)?.is_none() {
        return Err(refuse(
            &format!("{which} object '"),
            hex,
            "' does not exist",
        ));
    }
    Ok(oid)
}

/// Makes a fatal failure that quotes what was given.
fn refuse(before: &str, given: &[u8], after: &str) -> Failure {
    Failure::fatal([before.as_bytes(), given, after.as_bytes()].concat())
}
