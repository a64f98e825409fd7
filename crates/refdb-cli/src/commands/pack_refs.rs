//! `refdb pack-refs`, also `refdb refs optimize`: stores refs compactly.

use bstr::ByteSlice;
use refdb::{Optimize, RefFormat, RefName};

use crate::context::Context;
use crate::failure::{Failure, Result, Words, say};
use crate::options::{Opt, Spec};
use crate::output::Output;
use crate::waiting::Waiting;

#[derive(Clone, Copy)]
pub(super) enum Id {
    All,
    Prune,
    Auto,
    Include,
    Exclude,
}

const OPTIONS: &[Opt<Id>] = &[
    Opt::flag(Id::All, "all", "pack everything"),
    Opt::flag(
        Id::Prune,
        "prune",
        "remove loose refs that were packed (default)",
    ),
    Opt::flag(Id::Auto, "auto", "pack only if it is worth it"),
    Opt::text(Id::Include, "include", "pattern", "which refs to pack"),
    Opt::text(Id::Exclude, "exclude", "pattern", "which refs not to pack"),
];

/// How the command is called; part of the usage text of `refdb refs`.
pub(super) const FORM: &str =
    "[--all] [--no-prune] [--auto] [--include <pattern>] [--exclude <pattern>]";

pub(super) const PACK_REFS: Spec<Id> = Spec {
    name: "pack-refs",
    forms: &[FORM],
    options: OPTIONS,
};

pub(super) const OPTIMIZE: Spec<Id> = Spec {
    name: "refs optimize",
    forms: &[FORM],
    options: OPTIONS,
};

/// Runs `pack-refs`.
pub(super) fn run(context: &Context, _out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    pack(context, args, &PACK_REFS)
}

/// Runs `refs optimize`.
pub(super) fn optimize(context: &Context, _out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    pack(context, args, &OPTIMIZE)
}

fn pack(context: &Context, args: &[Vec<u8>], spec: &Spec<Id>) -> Result<()> {
    let (mut all, mut prune, mut auto) = (false, true, false);
    let (mut include, mut exclude) = (Vec::new(), Vec::new());
    let operands = spec.parse(args, |id, value| {
        match id {
            Id::All => all = value.is_set(),
            Id::Prune => prune = value.is_set(),
            Id::Auto => auto = value.is_set(),
            Id::Include => value.add_or_clear(&mut include),
            Id::Exclude => value.add_or_clear(&mut exclude),
        }
        Ok(())
    })?;
    if !operands.is_empty() {
        return Err(spec.misuse());
    }
    if context.store()?.format() == RefFormat::Files {
        // Nothing of it is looked at, but it has to make sense.
        context.repository()?.namespace()?;
    }
    if all {
        include.push(b"*".to_vec());
    }
    if include.is_empty() {
        include.push(b"refs/tags/*".to_vec());
    }
    let any = |patterns: &[Vec<u8>], name: RefName<'_>| {
        patterns.iter().any(|pattern| {
            gix_glob::wildmatch(
                pattern.as_bstr(),
                name.as_bstr(),
                gix_glob::wildmatch::Mode::empty(),
            )
        })
    };
    let store = context.store()?;
    let options = Optimize {
        auto,
        prune,
        include: &|name| any(&include, name) && !any(&exclude, name),
        warn: &|message| say("error", message.as_bytes()),
    };
    let result = Waiting::during("Optimizing refs", || store.optimize(&options));
    result.map_err(|error| match store.format() {
        RefFormat::Files => error.into(),
        RefFormat::Reftable => {
            Failure::error(Words::from(&error).after("unable to compact stack: "), 255)
        }
    })
}
