//! `refdb bench`: refdb and Git do the same work, and both are timed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bstr::ByteSlice;
use refdb::RefFormat;
use refdb::system::OsSystem;
use refdb_bench::{Settings, WORKLOADS, Workload, measure_shared};
use refdb_git::places::open_url;
use refdb_git::repository::{FSYNC_OF_OTHERS, FSYNC_OF_REFS};

use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::options::{Opt, Spec};
use crate::output::Output;
use crate::progress::{self, Meter};
use crate::suggest;

#[derive(Clone, Copy)]
pub(super) enum Id {
    Refs,
    Formats,
    Only,
    Runs,
    Fsync,
    Repo,
    Git,
    Limit,
    Dir,
    Json,
    List,
    Progress,
    Store,
}

pub(super) const BENCH: Spec<Id> = Spec {
    name: "bench",
    forms: &[
        concat!(
            "[--refs=<n>] [--formats=<list>] [--fsync=<list>]\n",
            "[--only=<list>] [--runs=<n>] [--limit=<seconds>]\n",
            "[--repo=<path>] [--git=<program> | --no-git]\n",
            "[--dir=<path>] [--json] [--list] [--[no-]progress]"
        ),
        "--store=<url> [--runs=<n>] [--dir=<path>]",
    ],
    options: &[
        Opt::number(Id::Refs, "refs", "n", "how many refs (10000)"),
        Opt::text(
            Id::Formats,
            "formats",
            "list",
            "ref formats (reftable,files)",
        ),
        Opt::text(
            Id::Fsync,
            "fsync",
            "list",
            "values of core.fsync (none,reference)",
        ),
        Opt::text(Id::Only, "only", "list", "only these workloads"),
        Opt::number(Id::Runs, "runs", "n", "how often each is measured (3)"),
        Opt::number(
            Id::Limit,
            "limit",
            "seconds",
            "how long Git may take for a step (10)",
        ),
        Opt::text(
            Id::Repo,
            "repo",
            "path",
            "use the refs of this repository, on a copy",
        ),
        Opt::text(Id::Git, "git", "program", "the Git to compare with"),
        Opt::text(Id::Dir, "dir", "path", "where the repositories are made"),
        Opt::flag(Id::Json, "json", "print Bencher's metric format"),
        Opt::flag(Id::List, "list", "only list the workloads"),
        Opt::flag(Id::Progress, "progress", progress::HELP),
        Opt::text(
            Id::Store,
            "store",
            "url",
            "measure a store, made in an empty place",
        ),
    ],
};

/// How many commits one writer makes in a run on a store.
const COMMITS: usize = 200;

/// Runs `bench`.
pub(super) fn run(_context: &Context, out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    let (mut shown, mut store) = (None, None);
    let parsed = parse(args, &mut shown, &mut store)?;
    if let (Some(url), Some(settings)) = (&store, &parsed) {
        let url = String::from_utf8_lossy(url);
        let place = open_url(&OsSystem::new(), &url, true)?;
        let commits = settings.runs.saturating_mul(COMMITS);
        let report = Meter::during(shown, "Measuring", || {
            measure_shared(place, commits, &settings.dir)
        });
        return out.put(report.map_err(Failure::fatal)?);
    }
    let Some(settings) = parsed else {
        for workload in WORKLOADS {
            out.put(format!("{:<20} {}\n", workload.name, workload.about))?;
        }
        return Ok(());
    };
    let refdb = std::env::current_exe().map_err(|error| Failure::fatal(error.to_string()))?;
    let report = {
        let meter = Meter::begin(shown, "Measuring");
        let watch = |what: &str, done: usize, total: usize| meter.told(what, done, total);
        settings.run(refdb, &watch).map_err(Failure::fatal)?
    };
    out.put(report)
}

/// Returns what is to be measured; `None` if the workloads are only to be listed.
fn parse(
    args: &[Vec<u8>],
    shown: &mut Option<bool>,
    store: &mut Option<Vec<u8>>,
) -> Result<Option<Settings>> {
    let mut settings = Settings::default();
    let mut list_only = false;
    let operands = BENCH.parse(args, |id, value| {
        let path = |value: crate::options::Value| {
            let text = value.into_text()?;
            text.to_path().ok().map(Path::to_owned)
        };
        match id {
            Id::Refs => settings.refs = number(value, "refs", 10)?,
            Id::Runs => settings.runs = number(value, "runs", 1)?,
            Id::Limit => {
                let seconds = number(value, "limit", 1)?;
                settings.limit = Duration::from_secs(seconds as u64);
            }
            Id::Formats => settings.formats = list(value, "ref format", format_named)?,
            Id::Fsync => settings.fsync = list(value, "value of core.fsync", fsync_named)?,
            Id::Only => settings.workloads = list(value, "workload", workload_named)?,
            Id::Repo => settings.repo = path(value),
            Id::Git => settings.git = path(value).map(absolute),
            Id::Dir => settings.dir = path(value).unwrap_or_else(std::env::temp_dir),
            Id::Json => settings.json = value.is_set(),
            Id::List => list_only = value.is_set(),
            Id::Progress => *shown = Some(value.is_set()),
            Id::Store => *store = value.into_text(),
        }
        Ok(())
    })?;
    match operands.first() {
        Some(_) => Err(BENCH.misuse()),
        None => Ok((!list_only).then_some(settings)),
    }
}

fn number(value: crate::options::Value, name: &str, least: usize) -> Result<usize> {
    match value {
        crate::options::Value::Number(number) => usize::try_from(number)
            .ok()
            .filter(|&number| number >= least)
            .ok_or_else(|| Failure::error(format!("--{name} must be at least {least}"), 129)),
        _ => Err(Failure::error(format!("--{name} cannot be left out"), 129)),
    }
}

/// Reads a list of words between commas.
fn list<T>(
    value: crate::options::Value,
    what: &str,
    named: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>> {
    let text = value.into_text().unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    text.split(',')
        .map(|word| {
            named(word).ok_or_else(|| {
                let way_out = match what {
                    "ref format" => suggest::format(word.as_bytes()),
                    "workload" => "see 'refdb bench --list'".to_owned(),
                    _ => format!(
                        "it is one of {}",
                        fsync_words().collect::<Vec<_>>().join(", ")
                    ),
                };
                Failure::error(format!("unknown {what} '{word}'; {way_out}"), 129)
            })
        })
        .collect()
}

fn format_named(name: &str) -> Option<RefFormat> {
    RefFormat::from_name(name)
}

/// Returns the words that `core.fsync` takes.
fn fsync_words() -> impl Iterator<Item = &'static str> {
    ["none"]
        .into_iter()
        .chain(FSYNC_OF_REFS)
        .chain(FSYNC_OF_OTHERS)
}

fn fsync_named(word: &str) -> Option<String> {
    let name = word.strip_prefix('-').unwrap_or(word);
    fsync_words()
        .any(|known| known == name)
        .then(|| word.to_owned())
}

fn workload_named(name: &str) -> Option<&'static Workload> {
    WORKLOADS.iter().find(|workload| workload.name == name)
}

/// Returns the path of a program as it is from any folder; a bare word is left to be searched for.
fn absolute(program: PathBuf) -> PathBuf {
    match program.components().count() {
        1 => program,
        // It is only refused when it is empty.
        _ => std::path::absolute(&program).unwrap_or(program),
    }
}
