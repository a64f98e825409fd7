//! `refdb pack-refs`, also `refdb refs optimize`: stores refs compactly.

use std::sync::atomic::{AtomicU64, Ordering};

use bstr::ByteSlice;
use refdb::{ErrorKind, Optimize, RefFormat, RefName};
use refdb_maintenance::progress::Progress;

use crate::context::Context;
use crate::failure::{Failure, Result, Words, say_error};
use crate::options::{Opt, Spec};
use crate::output::Output;
use crate::progress::{self, Meter};

/// What is done, for whoever waits, and after how many refs it is told how far it is.
const PACKING: &str = "Optimizing refs";
const COUNT_STEP: u64 = 256;

#[derive(Clone, Copy)]
pub(super) enum Id {
    All,
    Prune,
    Auto,
    Include,
    Exclude,
    Progress,
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
    Opt::flag(Id::Progress, "progress", progress::HELP).own(),
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
    let mut shown = None;
    let operands = spec.parse(args, |id, value| {
        match id {
            Id::All => all = value.is_set(),
            Id::Prune => prune = value.is_set(),
            Id::Auto => auto = value.is_set(),
            Id::Include => value.add_or_clear(&mut include),
            Id::Exclude => value.add_or_clear(&mut exclude),
            Id::Progress => shown = Some(value.is_set()),
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
    let meter = Meter::counted(shown, PACKING, progress::refs_of(store));
    let looked_at = AtomicU64::new(0);
    let options = Optimize {
        auto,
        prune,
        include: &|name| {
            let count = looked_at.fetch_add(1, Ordering::Relaxed) + 1;
            if count.is_multiple_of(COUNT_STEP) {
                meter.show(Progress {
                    what: PACKING,
                    count,
                    total: None,
                });
            }
            any(&include, name) && !any(&exclude, name)
        },
        warn: &|error| say_error("error", &error),
    };
    let result = store.optimize(&options);
    drop(meter);
    result.map_err(|error| match store.format() {
        RefFormat::Files => error.into(),
        RefFormat::Reftable if error.kind() == ErrorKind::Config => error.into(),
        RefFormat::Reftable => {
            Failure::error(Words::from(&error).after("unable to compact stack: "), 255)
        }
    })
}
