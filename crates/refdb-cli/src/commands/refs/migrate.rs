//! `refdb refs migrate`: all refs in the other format.

use std::path::Path;

use refdb::{Error, RefFormat};
use refdb_maintenance::migrate::{Migration, Report};
use refdb_maintenance::progress::Progress;
use serde_json::json;

use crate::context::Context;
use crate::failure::{Failure, Result, complain, ends_all, full_text, say, say_message};
use crate::options::{Opt, Spec};
use crate::output::Output;
use crate::progress::{self, Meter};
use crate::suggest;

/// So many lost lines are told one by one.
const LINES_SHOWN: usize = 20;

#[derive(Clone, Copy)]
pub(super) enum Id {
    RefFormat,
    DryRun,
    NoReflog,
    Keep,
    Undo,
    SkipBroken,
    Json,
    Progress,
}

pub(super) const MIGRATE: Spec<Id> = Spec {
    name: "refs migrate",
    forms: &[
        "--ref-format=<format> [--no-reflog] [--dry-run]\n[--keep] [--skip-broken] [--json]",
        "--undo [--no-reflog] [--keep] [--skip-broken] [--json]",
    ],
    options: &[
        Opt::text(
            Id::RefFormat,
            "ref-format",
            "format",
            "the format to convert to: files or reftable",
        )
        .positive(),
        Opt::flag(
            Id::DryRun,
            "dry-run",
            "only make the copy, and leave it for inspection",
        ),
        Opt::flag(Id::NoReflog, "no-reflog", "drop all reflogs"),
        Opt::flag(
            Id::Keep,
            "keep",
            "keep the old refs in a folder of the repository",
        )
        .own(),
        Opt::flag(
            Id::Undo,
            "undo",
            "give the refs of now the format of those that are kept",
        )
        .own(),
        Opt::flag(
            Id::SkipBroken,
            "skip-broken",
            "leave behind what is broken or the format cannot hold",
        )
        .own(),
        Opt::flag(Id::Json, "json", "say as JSON what it came to").own(),
        Opt::flag(Id::Progress, "progress", progress::HELP).own(),
    ],
};

/// What the options say.
#[derive(Default)]
struct Settings {
    format: Option<Vec<u8>>,
    dry_run: bool,
    no_reflog: bool,
    keep: bool,
    undo: bool,
    skip_broken: bool,
    json: bool,
    progress: Option<bool>,
}

/// Runs `refs migrate`.
pub(super) fn run(context: &Context, out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    let mut settings = Settings::default();
    let operands = MIGRATE.parse(args, |id, value| {
        match id {
            Id::RefFormat => settings.format = value.into_text(),
            Id::DryRun => settings.dry_run = value.is_set(),
            Id::NoReflog => settings.no_reflog = value.is_set(),
            Id::Keep => settings.keep = value.is_set(),
            Id::Undo => settings.undo = value.is_set(),
            Id::SkipBroken => settings.skip_broken = value.is_set(),
            Id::Json => settings.json = value.is_set(),
            Id::Progress => settings.progress = Some(value.is_set()),
        }
        Ok(())
    })?;
    if !operands.is_empty() {
        return Err(misuse("too many arguments"));
    }
    if settings.undo && (settings.format.is_some() || settings.dry_run) {
        return Err(misuse(
            "--undo goes with neither --ref-format nor --dry-run",
        ));
    }
    if settings.format.is_none() && !settings.undo {
        return Err(misuse("missing --ref-format=<format>"));
    }
    migrate(context, out, &settings)
}

fn migrate(context: &Context, out: &mut Output, settings: &Settings) -> Result<()> {
    let repository = context.repository()?;
    let instead = "'refdb store import' brings refs into a store, 'refdb store export' out of it";
    Context::local_refs_only(repository, "migrate", instead)?;
    if repository.has_other_refs() {
        let text = "GIT_COMMON_DIR names another directory than the one that has the refs: the format would change in \
                    one, and the refs in the other; unset it to migrate";
        return Err(Failure::fatal(text));
    }
    let mut migration = Migration::of(repository)
        .dry_run(settings.dry_run)
        .logs(!settings.no_reflog)
        .keep(settings.keep)
        .skip_broken(settings.skip_broken);
    if let Some(name) = &settings.format {
        let format = std::str::from_utf8(name)
            .ok()
            .and_then(RefFormat::from_name);
        let Some(format) = format else {
            let before = b"unknown ref storage format '".as_slice();
            let failure = Failure::error([before, name, b"'"].concat(), 255);
            return Err(failure.advised(suggest::format(name)));
        };
        migration = migration.to(format);
    }
    let count = progress::refs_of(repository.store());
    let meter = Meter::counted(settings.progress, "Migrating refs", count);
    let show = |far: Progress| meter.show(far);
    let migration = migration.progress(&show);
    let done = match settings.undo {
        true => migration.undo(),
        false => migration.run(),
    };
    drop(meter);
    let report = done.map_err(|error| failure(&error))?;
    for problem in &report.skipped {
        let text = format!("left behind: {}: {}", problem.name, problem.why);
        say("warning", text.as_bytes());
    }
    tell_lost_lines(context, &report)?;
    for warning in &report.warnings {
        say_message("warning", warning);
    }
    if settings.json {
        return out.put(as_json(context, &report)?);
    }
    if let Some(folder) = &report.folder {
        let folder = shown(context, folder)?;
        let text = match settings.dry_run {
            true => format!(
                "Finished dry-run migration of refs, the result can be found at '{folder}'\n"
            ),
            false => format!("The old refs are kept in '{folder}'\n"),
        };
        out.put(text)?;
    }
    Ok(())
}

/// Tells which lines of reflogs were no entries, and have no place in the new format.
fn tell_lost_lines(context: &Context, report: &Report) -> Result<()> {
    for lost in report.lost_lines.iter().take(LINES_SHOWN) {
        let file = shown(context, &lost.file)?;
        let (first, last) = (lost.lines.start, lost.lines.end.saturating_sub(1));
        let text = match first == last {
            true => format!("left behind: {file}:{first}: the line is no entry"),
            false => format!("left behind: {file}:{first}-{last}: the lines are no entries"),
        };
        say("warning", text.as_bytes());
    }
    if report.lost_lines.len() > LINES_SHOWN {
        let more = report.lost_lines.iter().skip(LINES_SHOWN);
        let more: u64 = more.map(|lost| lost.lines.end - lost.lines.start).sum();
        let text = format!("left behind: {more} more lines of reflogs that are no entries");
        say("warning", text.as_bytes());
    }
    Ok(())
}

fn as_json(context: &Context, report: &Report) -> Result<String> {
    let skipped = report.skipped.iter();
    let skipped = skipped.map(|problem| json!({ "name": problem.name, "why": problem.why }));
    let mut lines = Vec::new();
    for lost in &report.lost_lines {
        let count = lost.lines.end - lost.lines.start;
        let file = shown(context, &lost.file)?;
        lines.push(json!({ "file": file, "line": lost.lines.start, "count": count }));
    }
    let folder = report.folder.as_ref();
    let object = json!({
        "refs": report.refs,
        "reflogs": report.logs,
        "skipped": skipped.collect::<Vec<_>>(),
        "lost_lines": lines,
        "warnings": report.warnings.iter().map(full_text).collect::<Vec<_>>(),
        "folder": folder.map(|folder| shown(context, folder)).transpose()?,
    });
    Ok(format!("{object}\n"))
}

/// Returns the path of a folder in the repository as Git would show it.
fn shown(context: &Context, folder: &Path) -> Result<String> {
    let repository = context.repository()?;
    let Ok(name) = folder.strip_prefix(repository.common_dir()) else {
        // Where refs are kept elsewhere.
        return Ok(folder.display().to_string());
    };
    let dir = context.shown_git_dir(repository);
    Ok(format!("{dir}/{}", name.display()))
}

fn failure(error: &Error) -> Failure {
    match ends_all(error) {
        true => Failure::whole(error),
        false => Failure::error(error, 255),
    }
}

/// Tells in one line what is wrong with the call.
fn misuse(what: &str) -> Failure {
    complain(&format!("usage: {what}\n"));
    Failure::Exit(129)
}
