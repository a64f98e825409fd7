//! `refdb store`: a place that keeps the refs of a repository for many machines.

mod repair;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use refdb::shared::{Freshness, Register, Settings};
use refdb::system::{OsSystem, System};
use refdb::{ErrorKind, Store};
use refdb_git::places::open_url;
use refdb_maintenance::shared::{Copied, Latency, export, import, probe, verify};
use serde_json::json;

use super::{Subcommand, forms_of, subcommand_of};
use crate::context::Context;
use crate::failure::{Failure, Result, complain};
use crate::options::{Opt, Spec};
use crate::output::Output;
use crate::progress::{self, Meter};

pub(super) const SUBCOMMANDS: &[Subcommand] = &[
    Subcommand {
        name: "init",
        form: "init [--slots=<n>] <url>",
        spec: &INIT,
        run: init,
    },
    Subcommand {
        name: "status",
        form: "status [--json] [<url>]",
        spec: &STATUS,
        run: status,
    },
    Subcommand {
        name: "import",
        form: "import [--[no-]progress] <url>",
        spec: &IMPORT,
        run: import_refs,
    },
    Subcommand {
        name: "export",
        form: "export [--[no-]progress] <url>",
        spec: &EXPORT,
        run: export_refs,
    },
    Subcommand {
        name: "verify",
        form: "verify [--[no-]progress] [<url>]",
        spec: &VERIFY,
        run: verify_store,
    },
    Subcommand {
        name: "repair",
        form: "repair [--[no-]dry-run] [--[no-]progress] [<url>]",
        spec: &repair::SPEC,
        run: repair::run,
    },
    Subcommand {
        name: "freeze",
        form: "freeze [--thaw] [--reason=<text>] [<url>]",
        spec: &FREEZE,
        run: freeze,
    },
    Subcommand {
        name: "maintain",
        form: "maintain [--grace=<seconds>] [--[no-]progress] [<url>]",
        spec: &MAINTAIN,
        run: maintain,
    },
];

const NO_OPTIONS: &[Opt<()>] = &[];

const PROGRESS: &[Opt<()>] = &[Opt::flag((), "progress", progress::HELP)];

pub(super) const SPEC: Spec<()> = Spec {
    name: "store",
    forms: &forms_of::<{ SUBCOMMANDS.len() }>(SUBCOMMANDS),
    options: NO_OPTIONS,
};

pub(super) const PROBE: Spec<()> = Spec {
    name: "probe",
    forms: &["[--[no-]progress] <url>"],
    options: PROGRESS,
};

const INIT: Spec<()> = Spec {
    name: "store init",
    forms: &["[--slots=<n>] <url>"],
    options: &[Opt::text((), "slots", "n", "how many heads take turns (1)")],
};

const STATUS: Spec<()> = Spec {
    name: "store status",
    forms: &["[--json] [<url>]"],
    options: &[Opt::flag((), "json", "print one object")],
};

const IMPORT: Spec<()> = Spec {
    name: "store import",
    forms: &["[--[no-]progress] <url>"],
    options: PROGRESS,
};

const EXPORT: Spec<()> = Spec {
    name: "store export",
    forms: &["[--[no-]progress] <url>"],
    options: PROGRESS,
};

const VERIFY: Spec<()> = Spec {
    name: "store verify",
    forms: &["[--[no-]progress] [<url>]"],
    options: PROGRESS,
};

#[derive(Clone, Copy)]
enum FreezeId {
    Thaw,
    Reason,
}

const FREEZE: Spec<FreezeId> = Spec {
    name: "store freeze",
    forms: &["[--thaw] [--reason=<text>] [<url>]"],
    options: &[
        Opt::flag(FreezeId::Thaw, "thaw", "let writers in again"),
        Opt::text(FreezeId::Reason, "reason", "text", "what writers are told"),
    ],
};

#[derive(Clone, Copy)]
enum MaintainId {
    Grace,
    Progress,
}

const MAINTAIN: Spec<MaintainId> = Spec {
    name: "store maintain",
    forms: &["[--grace=<seconds>] [--[no-]progress] [<url>]"],
    options: &[
        Opt::text(
            MaintainId::Grace,
            "grace",
            "seconds",
            "how long readers may need what was merged (3600)",
        ),
        Opt::flag(MaintainId::Progress, "progress", progress::HELP),
    ],
};

/// Runs `store`.
pub(super) fn run(context: &Context, out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    let (subcommand, rest) = subcommand_of(&SPEC, SUBCOMMANDS, args)?;
    (subcommand.run)(context, out, rest)
}

fn url_of(operand: &[u8]) -> Result<&str> {
    std::str::from_utf8(operand).map_err(|_| Failure::fatal("the URL of a store is UTF-8"))
}

fn open(url: &str) -> Result<Arc<Register>> {
    let system: Arc<dyn System> = Arc::new(OsSystem::new());
    let place = open_url(system.as_ref(), url, false)?;
    Ok(Arc::new(Register::open(
        place,
        system,
        Settings::default(),
    )?))
}

/// Opens the store that is named, or that the repository uses.
fn named_or_used<Id: Copy>(
    context: &Context,
    operands: &[Vec<u8>],
    spec: &Spec<Id>,
) -> Result<Arc<Register>> {
    match operands {
        [url] => open(url_of(url)?),
        [] => used(context),
        _ => Err(spec.misuse()),
    }
}

fn used(context: &Context) -> Result<Arc<Register>> {
    let register = context.repository()?.register();
    register.cloned().ok_or_else(|| {
        Failure::fatal(
            "the refs of this repository are in no shared store: name one, or set refdb.store",
        )
    })
}

fn init(context: &Context, out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    let mut slots = None;
    let operands = INIT.parse(args, |(), value| {
        slots = value.into_text();
        Ok(())
    })?;
    let [url] = operands.as_slice() else {
        return Err(INIT.misuse());
    };
    let slots = match slots {
        None => 1,
        Some(text) => number(&text, "--slots")?,
    };
    let slots = u32::try_from(slots).unwrap_or(u32::MAX);
    let format = match context.repository_if_any()? {
        Some(repository) => repository.object_format(),
        None => refdb::ObjectFormat::Sha1,
    };
    let system = OsSystem::new();
    let place = open_url(&system, url_of(url)?, true)?;
    Register::init(place.as_ref(), &system, format, slots)?;
    out.put(format!("Initialized empty store in {}\n", place.name()))
}

fn number(text: &[u8], option: &str) -> Result<u64> {
    let number = std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse().ok());
    number.ok_or_else(|| Failure::error(format!("{option} takes a number"), 129))
}

/// Runs `probe`: whether a place keeps its word.
pub(super) fn probe_place(_context: &Context, out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    let mut shown = None;
    let operands = PROBE.parse(args, |(), value| {
        shown = Some(value.is_set());
        Ok(())
    })?;
    let [url] = operands.as_slice() else {
        return Err(PROBE.misuse());
    };
    let system = OsSystem::new();
    let place = open_url(&system, url_of(url)?, true)?;
    let probed = Meter::during(shown, "Probing", || probe(place.as_ref(), system.random()))?;
    let took = |what: &str, latency: Latency| {
        let ms = |took: Duration| took.as_secs_f64() * 1000.0;
        let (median, most) = (ms(latency.median), ms(latency.most));
        format!("{what:<24} median {median:.2} ms, at most {most:.2} ms\n")
    };
    out.put(took("replacing a head", probed.swaps))?;
    out.put(took("asking for a new head", probed.reads))?;
    out.put(took("storing 64 KiB", probed.puts))?;
    for refusal in &probed.refusals {
        out.put(format!("refused: {refusal}\n"))?;
    }
    match probed.refusals.is_empty() {
        true => out.put(format!("{} can keep a store\n", place.name())),
        false => {
            let text = format!("{} would lose commits", place.name());
            Err(Failure::fatal(text))
        }
    }
}

fn status(context: &Context, out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    let mut json = false;
    let operands = STATUS.parse(args, |(), value| {
        json = value.is_set();
        Ok(())
    })?;
    let register = named_or_used(context, &operands, &STATUS)?;
    let known = register.current(Freshness::Fresh)?;
    let head = &known.head;
    let bytes: u64 = head.tables.iter().map(|table| table.len).sum();
    let format = head.object_format.name();
    if json {
        let object = json!({
            "url": register.name(),
            "uuid": format!("{:032x}", head.uuid),
            "object_format": format,
            "slots": head.slot_count,
            "generation": head.generation,
            "index": head.index,
            "epoch": head.epoch,
            "complete_since": head.complete_since,
            "frozen": head.frozen,
            "tables": head.tables.len(),
            "table_bytes": bytes,
            "inline_bytes": head.inline.len(),
        });
        return out.put(format!("{object}\n"));
    }
    let mut text = format!("Store {}\n", register.name());
    let (tables, newest) = (head.tables.len(), head.inline.len());
    let _ = writeln!(text, "  id                {:032x}", head.uuid);
    let _ = writeln!(text, "  object format     {format}");
    let _ = writeln!(text, "  generation        {}", head.generation);
    let _ = writeln!(text, "  update index      {}", head.index);
    let _ = writeln!(text, "  tables            {tables}, {bytes} bytes");
    let _ = writeln!(text, "  in the head       {newest} bytes");
    if let Some(reason) = &head.frozen {
        let _ = writeln!(text, "  frozen            {reason}");
    }
    out.put(text)
}

/// Returns the local refs, the store that is named, and the refs that are there.
fn both(
    context: &Context,
    operands: &[Vec<u8>],
    spec: &Spec<()>,
) -> Result<(Store, Arc<Register>, Store)> {
    let [url] = operands else {
        return Err(spec.misuse());
    };
    let repository = context.repository()?;
    if repository.register().is_some() {
        return Err(Failure::fatal(
            "refdb.store is set: these refs are in a shared store, and not here",
        ));
    }
    let local = repository.store().clone();
    let register = open(url_of(url)?)?;
    let objects = Arc::clone(local.objects());
    let mut options = local.options().clone();
    // What is copied was told to hooks when it was made.
    options.hook = None;
    let shared = Store::open_shared(Arc::clone(&register), objects, options)?;
    Ok((local, register, shared))
}

fn told(copied: Copied, what: &str, place: &str) -> String {
    let Copied { refs, logs } = copied;
    format!("{what} {refs} refs and {logs} reflogs {place}\n")
}

fn import_refs(context: &Context, out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    let mut shown = None;
    let operands = IMPORT.parse(args, |(), value| {
        shown = Some(value.is_set());
        Ok(())
    })?;
    let (local, register, shared) = both(context, &operands, &IMPORT)?;
    let copied = {
        let meter = Meter::counted(shown, "Importing refs", progress::refs_of(&local));
        import(&local, &register, &shared, &|far| meter.show(far))?
    };
    let name = register.name();
    out.put(told(copied, "Imported", &format!("into {name}")))?;
    complain(&format!(
        "hint: the refs here stay as they are; to use the store: git config refdb.store {name}\n"
    ));
    Ok(())
}

fn export_refs(context: &Context, out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    let mut shown = None;
    let operands = EXPORT.parse(args, |(), value| {
        shown = Some(value.is_set());
        Ok(())
    })?;
    let (local, register, shared) = both(context, &operands, &EXPORT)?;
    let is_frozen = register.current(Freshness::Fresh)?.head.frozen.is_some();
    let copied = {
        let meter = Meter::counted(shown, "Exporting refs", progress::refs_of(&shared));
        export(&shared, &local, &|far| meter.show(far))?
    };
    out.put(told(
        copied,
        "Exported",
        &format!("from {}", register.name()),
    ))?;
    if !is_frozen {
        complain("hint: the store is not frozen: what is written to it now is not here\n");
    }
    Ok(())
}

fn verify_store(context: &Context, out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    let mut shown = None;
    let operands = VERIFY.parse(args, |(), value| {
        shown = Some(value.is_set());
        Ok(())
    })?;
    let register = named_or_used(context, &operands, &VERIFY)?;
    verify_all(&register, out, shown)
}

/// Checks every byte of a store, and prints what is wrong.
pub(super) fn verify_all(register: &Register, out: &mut Output, shown: Option<bool>) -> Result<()> {
    let problems = {
        let meter = Meter::begin(shown, "Checking tables");
        verify(register, &|far| meter.show(far))?
    };
    for problem in &problems {
        out.put(format!("{problem}\n"))?;
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Failure::Exit(255)),
    }
}

fn freeze(context: &Context, out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    let (mut thaw, mut reason) = (false, None);
    let operands = FREEZE.parse(args, |id, value| {
        match id {
            FreezeId::Thaw => thaw = value.is_set(),
            FreezeId::Reason => reason = value.into_text(),
        }
        Ok(())
    })?;
    let register = match operands.as_slice() {
        [url] => open(url_of(url)?)?,
        [] => used(context)?,
        _ => return Err(FREEZE.misuse()),
    };
    let reason = reason.map(|text| String::from_utf8_lossy(&text).into_owned());
    let reason = reason.unwrap_or_else(|| "no reason was given".to_owned());
    register.current(Freshness::Fresh)?;
    register.set_frozen((!thaw).then_some(reason.as_str()))?;
    let what = if thaw { "Open again" } else { "Frozen" };
    out.put(format!("{what}: {}\n", register.name()))
}

fn maintain(context: &Context, out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    let (mut grace, mut shown) = (None, None);
    let operands = MAINTAIN.parse(args, |id, value| {
        match id {
            MaintainId::Grace => grace = value.into_text(),
            MaintainId::Progress => shown = Some(value.is_set()),
        }
        Ok(())
    })?;
    let grace = match grace {
        None => 3600,
        Some(text) => number(&text, "--grace")?,
    };
    let register = named_or_used(context, &operands, &MAINTAIN)?;
    let format = register.current(Freshness::Fresh)?.head.object_format;
    let objects = Arc::new(refdb::objects::NoObjects);
    let store = Store::open_shared(Arc::clone(&register), objects, refdb::Options::new(format))?;
    let merged = Meter::during(shown, "Merging tables", || {
        store.optimize(&refdb::Optimize::default())
    });
    match merged {
        Err(error) if error.kind() == ErrorKind::Locked => {
            complain("hint: another maintainer is at it\n");
        }
        merged => merged?,
    }
    let collected = register.collect(Duration::from_secs(grace))?;
    out.put(format!(
        "Removed {} tables, left {} for readers\n",
        collected.removed, collected.left
    ))
}
