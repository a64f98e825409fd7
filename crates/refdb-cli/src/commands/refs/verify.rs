//! `refdb refs verify`: whether what is stored is as it should be.

use std::path::{Path, PathBuf};

use refdb_git::Repository;
use refdb_git::repository::config::Scope;
use refdb_maintenance::verify::{Event, Severities, Severity, as_git};

use super::deep;
use crate::commands::store;
use crate::context::Context;
use crate::failure::{Failure, Result, Words, complain, say, say_message};
use crate::options::{Opt, Spec};
use crate::output::Output;
use crate::progress;
use crate::shim::called;

#[derive(Clone, Copy)]
pub(super) enum Id {
    Verbose,
    Strict,
    Deep,
    Json,
    Progress,
}

pub(super) const SPEC: Spec<Id> = Spec {
    name: "refs verify",
    forms: &[
        "[--strict] [--verbose]",
        "--deep [--strict] [--verbose]\n[--json] [--[no-]progress]",
    ],
    options: &[
        Opt::flag(Id::Verbose, "verbose", "tell what is looked at"),
        Opt::flag(Id::Strict, "strict", "count warnings as errors"),
        Opt::flag(Id::Deep, "deep", "check every byte and every object")
            .group()
            .own(),
        Opt::flag(Id::Json, "json", "print an object for each finding").own(),
        Opt::flag(Id::Progress, "progress", progress::HELP).own(),
    ],
};

/// Runs `refs verify`.
pub(super) fn run(context: &Context, out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    let (mut verbose, mut strict) = (false, false);
    let (mut deep, mut json, mut wish) = (false, false, None);
    let operands = SPEC.parse(args, |id, value| {
        match id {
            Id::Verbose => verbose = value.is_set(),
            Id::Strict => strict = value.is_set(),
            Id::Deep => deep = value.is_set(),
            Id::Json => json = value.is_set(),
            Id::Progress => wish = Some(value.is_set()),
        }
        Ok(())
    })?;
    if !operands.is_empty() {
        let usage = format!("usage: '{} refs verify' takes no arguments\n", called());
        complain(&usage);
        return Err(Failure::Exit(129));
    }
    if json && !deep {
        return Err(SPEC.mistake("--json requires --deep", None));
    }
    if deep {
        let repository = context.damaged_repository()?;
        if let Some(register) = repository.register() {
            return store::verify_all(register, out, wish);
        }
        let wishes = deep::Wishes {
            json,
            strict,
            verbose,
            progress: wish,
        };
        return deep::run(repository, out, &wishes);
    }
    let repository = context.repository()?;
    if let Some(register) = repository.register() {
        return store::verify_all(register, out, wish);
    }
    check_as_git(context, repository, strict, verbose)
}

/// Tells what Git's checks find.
fn check_as_git(
    context: &Context,
    repository: &Repository,
    strict: bool,
    verbose: bool,
) -> Result<()> {
    let git_dir = context.shown_git_dir(repository);
    let severities = severities(repository, strict)?;
    let mut has_told = false;
    let checked = as_git(repository, &severities, &mut |event| {
        let line = match event {
            Event::Found(finding) => {
                has_told = true;
                let id = format!(": {}: ", finding.id.name());
                say(
                    word(finding.severity),
                    &[&finding.path, id.as_bytes(), &finding.text].concat(),
                );
                return;
            }
            Event::Unread(message, severity) => {
                has_told = true;
                say_message(word(severity), message);
                return;
            }
            Event::Begin => "references consistency".to_owned(),
            Event::Ref(name) => name.to_string(),
            Event::PackedRefs(_) => format!("packed-refs file {git_dir}/packed-refs"),
            Event::Table(name) => format!("table: {name}"),
        };
        if verbose {
            complain(&format!("Checking {line}\n"));
        }
    });
    match checked {
        Ok(true) => Ok(()),
        Ok(false) => Err(Failure::Exit(255)),
        // Were it begun again, that would be told twice.
        Err(error) if has_told => Err(Failure::whole(&error)),
        Err(error) => Err(error.into()),
    }
}

fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    }
}

fn severities(repository: &Repository, strict: bool) -> Result<Severities> {
    Severities::from_config(repository, strict).map_err(|error| {
        let Some(key) = error.variable() else {
            return Failure::from(error);
        };
        let mut entries = repository.config().all(key);
        let entry = entries.find(|entry| entry.value().is_none());
        let place = entry.map(|entry| (entry.scope(), entry.file(), entry.line()));
        let place = match place {
            Some((scope, Some(file), line)) if scope != Scope::Command => {
                let file = shown(repository, file);
                let file = file.display();
                format!("bad config variable '{key}' in file '{file}' at line {line}")
            }
            _ => format!("unable to parse '{key}' from command-line config"),
        };
        Failure::Misconfigured {
            cause: Words::from(&error),
            place: place.into(),
        }
    })
}

/// Returns a path as Git shows it: from the top of the work tree, or of a bare repository.
pub(super) fn shown(repository: &Repository, path: &Path) -> PathBuf {
    let top = repository.work_tree();
    if let Some(inner) = top.and_then(|top| path.strip_prefix(top).ok()) {
        return inner.to_owned();
    }
    match path.strip_prefix(repository.common_dir()) {
        Ok(inner) if repository.is_bare() => Path::new(".").join(inner),
        _ => path.to_owned(),
    }
}
