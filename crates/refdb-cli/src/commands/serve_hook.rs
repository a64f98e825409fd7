//! `refdb serve-hook`: lets Git hand pushes over to `refdb receive`.

use refdb_maintenance::shared::{install_hook, uninstall_hook};

use super::{Subcommand, follow, forms_of, subcommand_of};
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::options::{Opt, Spec};
use crate::output::Output;

pub(super) const SUBCOMMANDS: &[Subcommand] = &[
    Subcommand {
        name: "install",
        form: "install",
        spec: &INSTALL,
        run: install,
    },
    Subcommand {
        name: "uninstall",
        form: "uninstall",
        spec: &UNINSTALL,
        run: uninstall,
    },
];

const NO_OPTIONS: &[Opt<()>] = &[];

pub(super) const SPEC: Spec<()> = Spec {
    name: "serve-hook",
    forms: &forms_of::<{ SUBCOMMANDS.len() }>(SUBCOMMANDS),
    options: NO_OPTIONS,
};

const INSTALL: Spec<()> = Spec {
    name: "serve-hook install",
    forms: &[""],
    options: NO_OPTIONS,
};

const UNINSTALL: Spec<()> = Spec {
    name: "serve-hook uninstall",
    forms: &[""],
    options: NO_OPTIONS,
};

/// Runs `serve-hook`.
pub(super) fn run(context: &Context, out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    let (subcommand, rest) = subcommand_of(&SPEC, SUBCOMMANDS, args)?;
    (subcommand.run)(context, out, rest)
}

fn install(context: &Context, out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    if !INSTALL.parse(args, |(), _| Ok(()))?.is_empty() {
        return Err(INSTALL.misuse());
    }
    let repository = context.repository()?;
    if !repository.is_bare() {
        return Err(Failure::fatal(
            "pushes are taken in a bare repository: Git cannot move a branch that is checked out here",
        ));
    }
    // It is a copy of the store from now on, if it was none: Git cannot write here beside the hook.
    follow::sync(context, out, &[])?;
    let program = std::env::current_exe().map_err(|error| {
        let why = refdb::error::io_text(&error);
        Failure::fatal(format!("cannot find out where this program is: {why}"))
    })?;
    out.put(match install_hook(repository, &program)? {
        true => "pushes to this repository go to the store from now on\n",
        false => "pushes to this repository go to the store already\n",
    })
}

fn uninstall(context: &Context, out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    if !UNINSTALL.parse(args, |(), _| Ok(()))?.is_empty() {
        return Err(UNINSTALL.misuse());
    }
    out.put(match uninstall_hook(context.repository()?)? {
        true => "pushes to this repository are refused from now on: it is a copy of the store\n",
        false => "there was no hook of refdb\n",
    })
}
