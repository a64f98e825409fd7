//! `refdb refs repair`: rebuilds what can be rebuilt, and says what cannot.

use std::io::IsTerminal;
use std::path::PathBuf;

use refdb::Target;
use refdb_git::Repository;
use refdb_maintenance::repair::{Options, Plan, RefChange, WayOut, finish_unseen, plan_watched};

use super::deep;
use super::verify::shown;
use crate::context::Context;
use crate::failure::{Failure, Result, complain, say};
use crate::options::{Opt, Spec};
use crate::output::Output;
use crate::progress::{self, Meter};

#[derive(Clone, Copy)]
pub(super) enum Id {
    DryRun,
    RemoveLocks,
    GiveUp,
    Progress,
}

pub(super) const SPEC: Spec<Id> = Spec {
    name: "refs repair",
    forms: &["[--[no-]dry-run] [--remove-locks | --give-up]\n[--[no-]progress]"],
    options: &[
        Opt::flag(
            Id::DryRun,
            "dry-run",
            "tell what would be done (default on a terminal)",
        ),
        Opt::flag(
            Id::RemoveLocks,
            "remove-locks",
            "no process is writing: take locks away",
        ),
        Opt::flag(
            Id::GiveUp,
            "give-up",
            "the same, and give up what cannot be finished",
        ),
        Opt::flag(Id::Progress, "progress", progress::HELP),
    ],
};

/// How many refs are shown on a terminal, where nobody reads more.
pub(in crate::commands) const SHOWN_MAX: usize = 40;

/// The exit code of a dry run that found something to do, for a repair or for a person.
pub(in crate::commands) const TO_DO: u8 = 1;

/// The exit code of a repair after which something is lost.
pub(in crate::commands) const LOSS: u8 = 1;

/// Runs `refs repair`.
pub(super) fn run(context: &Context, out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    let mut dry_run = std::io::stdout().is_terminal();
    let mut options = Options::default();
    let (mut wish, mut gives_up) = (None, false);
    let operands = SPEC.parse(args, |id, value| {
        match id {
            Id::DryRun => dry_run = value.is_set(),
            Id::RemoveLocks => options.remove_locks = value.is_set(),
            Id::GiveUp => gives_up = value.is_set(),
            Id::Progress => wish = Some(value.is_set()),
        }
        Ok(())
    })?;
    if !operands.is_empty() {
        return Err(SPEC.misuse());
    }
    let repository = context.damaged_repository()?;
    Context::local_refs_only(repository, "repair", "'refdb store repair' mends a store")?;
    options.remove_locks |= gives_up;
    if options.remove_locks && !dry_run {
        finish_unseen(repository, gives_up)?;
    }
    let plan = {
        let meter = Meter::counted(wish, deep::READING, progress::refs_of(repository.store()));
        plan_watched(repository, options, &|far| meter.show(far))?
    };
    if let Err(error) = plan.may_be_applied() {
        // What it would change is not told: none of it comes true.
        warn(&plan);
        return Err(error.into());
    }
    out.put(describe(repository, &plan))?;
    out.flush()?;
    count(&plan);
    warn(&plan);
    if dry_run {
        if !plan.is_empty() {
            complain("Nothing was changed: --no-dry-run carries this out.\n");
        } else if plan.notes().is_empty() {
            return Ok(());
        }
        return Err(Failure::Exit(TO_DO));
    }
    let loses = plan.loses();
    if !plan.is_empty() {
        let gone: Vec<PathBuf> = (plan.files().into_iter())
            .filter(|(_, goes)| *goes)
            .map(|(file, _)| file.to_owned())
            .collect();
        let aside = {
            let meter = Meter::begin(wish, "Repairing");
            plan.apply_watched(&|far| meter.show(far))?
        };
        warn_of_what_stays(repository, &gone);
        let aside = shown(repository, &aside);
        complain(&format!(
            "What was there before is in {}\n",
            aside.display()
        ));
    }
    deep::run(repository, out, &deep::Wishes::default())?;
    match loses {
        true => Err(Failure::Exit(LOSS)),
        false => Ok(()),
    }
}

/// Tells how many refs come back, and what does not.
fn count(plan: &Plan<'_>) {
    let is_nameless = plan.notes().iter().any(|note| note.is_loss);
    if plan.refs().is_empty() && !is_nameless {
        return;
    }
    let is_lost = |change: &&RefChange| change.after.is_none();
    let lost = plan.refs().iter().filter(is_lost).count();
    let found = plan.refs().len() - lost;
    let more = match is_nameless {
        true => ", and more that nobody can name",
        false => "",
    };
    complain(&format!(
        "Refs that get a value back: {found}, refs that are lost: {lost}{more}\n"
    ));
}

/// Tells what cannot be repaired, or only in part.
fn warn(plan: &Plan<'_>) {
    for note in plan.notes() {
        let way_out = match &note.way_out {
            None => String::new(),
            Some(WayOut::Advice(advice)) => format!("; {}", deep::advised(advice)),
            Some(_) => ": see --remove-locks".to_owned(),
        };
        let text = format!("{}: {}{way_out}", note.file.display(), note.what);
        say("warning", text.as_bytes());
    }
}

/// Tells of locks that were to go and did not: what they guard is still to be finished.
fn warn_of_what_stays(repository: &Repository, gone: &[PathBuf]) {
    let is_there = |file: &&PathBuf| repository.system().lstat(file).is_ok();
    for file in gone.iter().filter(is_there) {
        let what =
            "was not taken away: a transaction that cannot be finished keeps it; see --give-up";
        let text = format!("'{}' {what}", shown(repository, file).display());
        say("warning", plain(&text).as_bytes());
    }
}

fn describe(repository: &Repository, plan: &Plan<'_>) -> String {
    let most = match std::io::stdout().is_terminal() {
        true => SHOWN_MAX,
        false => usize::MAX,
    };
    let mut text = changes_of(plan.refs(), most);
    for (file, goes) in plan.files() {
        let what = if goes { "taken away" } else { "written again" };
        let line = format!("file: {}: {what}\n", shown(repository, file).display());
        text.push_str(&plain(&line));
    }
    text
}

/// Returns what becomes of refs, a line for each of the first ones.
pub(in crate::commands) fn changes_of(changes: &[RefChange], most: usize) -> String {
    let value = |target: &Option<Target>, none: &str| match target {
        None => none.to_owned(),
        Some(Target::Direct(oid)) => oid.to_string(),
        Some(Target::Symbolic(name)) => format!("ref: {name}"),
    };
    let mut text = String::new();
    for change in changes.iter().take(most) {
        let before = value(&change.before, "(unreadable)");
        let after = value(&change.after, "(lost)");
        let from = if change.from_log {
            ", from its reflog"
        } else {
            ""
        };
        text.push_str(&format!("{}: {before} -> {after}{from}\n", change.name));
    }
    if let Some(more) = changes.len().checked_sub(most).filter(|&more| more > 0) {
        text.push_str(&format!(
            "and {more} more: all of them without a terminal\n"
        ));
    }
    plain(&text)
}

/// Returns what a name cannot paint the terminal with.
pub(in crate::commands) fn plain(text: &str) -> String {
    let plain = |c: char| if c.is_control() && c != '\n' { '?' } else { c };
    text.chars().map(plain).collect()
}
