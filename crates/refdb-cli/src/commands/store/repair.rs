//! `refdb store repair`: rebuilds what can be rebuilt of a store, and says what cannot.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;

use refdb::objects::{NoObjects, Objects};
use refdb::system::{OsSystem, System};
use refdb_maintenance::repair::{StoreMeans, plan_store};

use super::{named_or_used, open, url_of, verify_all};
use crate::commands::refs::repair::{LOSS, SHOWN_MAX, TO_DO, changes_of};
use crate::context::Context;
use crate::failure::{Failure, Result, complain, say};
use crate::options::{Opt, Spec};
use crate::output::Output;
use crate::progress;

#[derive(Clone, Copy)]
pub(super) enum Id {
    DryRun,
    Head,
    Tables,
    Progress,
}

pub(super) const SPEC: Spec<Id> = Spec {
    name: "store repair",
    forms: &[
        "[--[no-]dry-run] [--[no-]progress] [<url>]",
        "[--head=<file>] [--tables=<folder>] [<url>]",
    ],
    options: &[
        Opt::flag(
            Id::DryRun,
            "dry-run",
            "tell what would be done (default on a terminal)",
        ),
        Opt::text(
            Id::Head,
            "head",
            "file",
            "a copy of a head, if none can be read",
        ),
        Opt::text(
            Id::Tables,
            "tables",
            "folder",
            "where there are copies of tables",
        ),
        Opt::flag(Id::Progress, "progress", progress::HELP),
    ],
};

pub(super) fn run(context: &Context, out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    let mut dry_run = std::io::stdout().is_terminal();
    let (mut head, mut tables, mut wish) = (None, None, None);
    let operands = SPEC.parse(args, |id, value| {
        match id {
            Id::DryRun => dry_run = value.is_set(),
            Id::Head => head = value.into_text(),
            Id::Tables => tables = value.into_text(),
            Id::Progress => wish = Some(value.is_set()),
        }
        Ok(())
    })?;
    // Refs that cannot be read are why this is called; it goes without a repository, too.
    let _ = context.damaged_repository();
    let register = named_or_used(context, &operands, &SPEC)?;
    let system = OsSystem::new();
    let path = |text: Vec<u8>| PathBuf::from(OsString::from_vec(text));
    let head = match head {
        None => None,
        Some(text) => {
            let path = path(text);
            let read = system.read(&path);
            Some(read.map_err(|error| refdb::Error::io("unable to read", &path, error))?)
        }
    };
    let means = StoreMeans {
        objects: objects(context, &register.name())?,
        head,
        tables: tables.map(path),
    };
    let plan = plan_store(register.shared(), &system, &means)?;
    let most = match std::io::stdout().is_terminal() {
        true => SHOWN_MAX,
        false => usize::MAX,
    };
    out.put(changes_of(plan.refs(), most))?;
    for object in plan.objects() {
        out.put(format!("object: {object}\n"))?;
    }
    out.flush()?;
    for note in plan.notes() {
        say("warning", note.as_bytes());
    }
    if !dry_run {
        // What a killed writer left is nobody's, and no damage.
        register.shared().sweep()?;
    }
    if plan.is_empty() {
        return Ok(());
    }
    if dry_run {
        complain("Nothing was changed: --no-dry-run carries this out.\n");
        return Err(Failure::Exit(TO_DO));
    }
    let loses = plan.loses();
    let aside = plan.apply()?;
    complain(&format!("What was there before is in {aside}...\n"));
    // What was read before is not believed any more.
    let url = register.name().into_bytes();
    let register = open(url_of(&url)?)?;
    verify_all(&register, out, wish)?;
    match loses {
        true => Err(Failure::Exit(LOSS)),
        false => Ok(()),
    }
}

/// Returns the objects that refs of the store name, if this is a repository that uses it.
fn objects(context: &Context, store: &str) -> Result<Arc<dyn Objects>> {
    let repository = context.repository_if_any()?;
    let uses = repository.filter(|it| it.register().is_some_and(|used| used.name() == store));
    Ok(match uses {
        Some(repository) => Arc::clone(repository.store().objects()),
        None => {
            let what =
                "values are not compared with objects: for that, call it where refdb.store is set";
            complain(&format!("hint: {what}\n"));
            Arc::new(NoObjects)
        }
    })
}
