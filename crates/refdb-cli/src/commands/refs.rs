//! `refdb refs`: everything about refs under one name.

mod deep;
mod migrate;
pub(super) mod repair;
mod verify;
mod write;

use refdb::{ErrorKind, RefFormat, RefName, Store};

use super::{Subcommand, for_each_ref, forms_of, pack_refs};
use crate::context::Context;
use crate::failure::{Failure, Result, Words, ends_all};
use crate::options::{Opt, Spec, of_subcommands};
use crate::output::Output;
use crate::shim::called;
use crate::suggest;

pub(super) const SUBCOMMANDS: &[Subcommand] = &[
    Subcommand {
        name: "migrate",
        form: concat!(
            "migrate (--ref-format=<format> | --undo) [--dry-run]\n",
            "        [--no-reflog] [--keep] [--skip-broken] [--json]"
        ),
        spec: &migrate::MIGRATE,
        run: migrate::run,
    },
    Subcommand {
        name: "list",
        form: "list [<options>] [<pattern>...]",
        spec: &for_each_ref::LIST,
        run: for_each_ref::list,
    },
    Subcommand {
        name: "exists",
        form: "exists <ref>",
        spec: &EXISTS,
        run: exists,
    },
    Subcommand {
        name: "create",
        form: "create [<options>] <ref> <new-value>",
        spec: &write::CREATE,
        run: write::create,
    },
    Subcommand {
        name: "update",
        form: "update [<options>] <ref> <new-value> [<old-value>]",
        spec: &write::UPDATE,
        run: write::update,
    },
    Subcommand {
        name: "delete",
        form: "delete [<options>] <ref> [<old-value>]",
        spec: &write::DELETE,
        run: write::delete,
    },
    Subcommand {
        name: "rename",
        form: "rename [<options>] <old-ref> <new-ref>",
        spec: &write::RENAME,
        run: write::rename,
    },
    Subcommand {
        name: "optimize",
        form: concat!(
            "optimize [--all] [--no-prune] [--auto] [--include <pattern>]\n",
            "         [--exclude <pattern>]"
        ),
        spec: &pack_refs::OPTIMIZE,
        run: pack_refs::optimize,
    },
    Subcommand {
        name: "verify",
        form: "verify [--strict] [--verbose] [--deep [--json]]",
        spec: &verify::SPEC,
        run: verify::run,
    },
    Subcommand {
        name: "repair",
        form: "repair [--[no-]dry-run] [--remove-locks | --give-up]",
        spec: &repair::SPEC,
        run: repair::run,
    },
];

/// Those that every Git with reftables has, in its order, and those that Git 2.56 has behind them.
const OF_GIT: [&str; 5] = ["migrate", "verify", "list", "exists", "optimize"];
const OF_NEWEST_GIT: [&str; 4] = ["create", "delete", "update", "rename"];

/// Options that stand before the subcommand: there are none but `-h`.
const NO_OPTIONS: &[Opt<()>] = &[];

pub(super) const SPEC: Spec<()> = Spec {
    name: "refs",
    forms: &forms_of::<{ SUBCOMMANDS.len() }>(SUBCOMMANDS),
    options: NO_OPTIONS,
};

/// Returns whether a call is one of a subcommand that Git has, as Git takes it.
pub(super) fn is_gits(args: &[Vec<u8>]) -> bool {
    let Some((name, rest)) = args.split_first() else {
        return false;
    };
    let found = SUBCOMMANDS.iter().find(|it| it.name.as_bytes() == name);
    found.is_some_and(|it| OF_GIT.contains(&it.name) && it.spec.is_gits(rest))
}

/// Runs `refs`.
pub(super) fn run(context: &Context, out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    let Some((name, rest)) = args.split_first() else {
        return Err(SPEC.mistake("need a subcommand", None));
    };
    if let Some(answer) = of_subcommands(args, OF_GIT.into_iter().chain(OF_NEWEST_GIT)) {
        return Err(answer);
    }
    if name.starts_with(b"-") && name != b"-" {
        SPEC.parse(args, |(), _| Ok(()))?;
        return Err(SPEC.mistake("need a subcommand", None));
    }
    let found = SUBCOMMANDS
        .iter()
        .find(|subcommand| subcommand.name.as_bytes() == name);
    match found {
        Some(subcommand) => (subcommand.run)(context, out, rest),
        None => {
            let name = String::from_utf8_lossy(name);
            let names = SUBCOMMANDS.iter().map(|sub| sub.name.to_owned());
            let hint = suggest::nearest(&name, names).map(|it| format!("did you mean {it}?"));
            Err(SPEC.mistake(&format!("unknown subcommand: `{name}'"), hint))
        }
    }
}

/// Returns whether the subcommand is there for repositories that nobody else can open.
pub(super) fn is_for_damaged(args: &[Vec<u8>]) -> bool {
    match args.split_first() {
        Some((name, _)) if name == b"repair" => true,
        Some((name, rest)) if name == b"verify" => rest.iter().any(|arg| arg == b"--deep"),
        _ => false,
    }
}

const EXISTS: Spec<()> = Spec {
    name: "refs exists",
    forms: &["<ref>"],
    options: NO_OPTIONS,
};

fn exists(context: &Context, _out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    match EXISTS.parse(args, |(), _| Ok(()))?.as_slice() {
        [name] => check_exists(context, name),
        _ => Err(Failure::fatal(format!(
            "'{} refs exists' requires a reference",
            called()
        ))),
    }
}

/// Returns whether a loose ref has the place of one of the directories that a name would lie in. Git
/// tells that from a ref that is missing.
fn is_below_file(store: &Store, name: &[u8]) -> bool {
    let slashes = name.iter().enumerate().filter(|&(_, &byte)| byte == b'/');
    let mut parents = slashes.filter_map(|(at, _)| RefName::lax(name.get(..at)?).ok());
    store.format() == RefFormat::Files
        && parents.any(|parent| match store.read(parent) {
            Ok(found) => found.is_some_and(|found| !found.packed),
            Err(error) => error.kind() == ErrorKind::BrokenRef,
        })
}

/// Fails with Git's exit codes unless a ref of that name is stored, whatever it holds.
pub(super) fn check_exists(context: &Context, name: &[u8]) -> Result<()> {
    let failed = |words: Words| Failure::error(words.after("failed to look up reference: "), 1);
    let store = context.store()?;
    match RefName::lax(name).map_or(Ok(None), |name| store.read(name)) {
        Ok(Some(_)) => Ok(()),
        Ok(None) if is_below_file(store, name) => Err(failed("Not a directory".into())),
        Ok(None) => Err(Failure::error("reference does not exist", 2)),
        Err(error) if error.kind() == ErrorKind::BrokenRef => {
            Err(failed("Invalid argument".into()))
        }
        Err(error) if error.kind() == ErrorKind::Moved || ends_all(&error) => {
            Err(Failure::from(error))
        }
        Err(error) => Err(failed(Words::from(&error))),
    }
}
