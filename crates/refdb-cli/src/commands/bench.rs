//! `refdb bench`: refdb and Git do the same work, and both are timed.
//!
//! 1. The programs take turns in who goes first, start from copies of the same repository, and run
//!    at the same durability (`core.fsync`).
//! 2. After every measurement the refs are listed, by Git if there is one, and must be those that
//!    there should be; a figure is only shown for work that was done.
//! 3. Only Git is ever ended for taking too long.

mod measure;
mod process;
mod report;
mod repository;
mod shape;
mod workload;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bstr::ByteSlice;
use refdb::{ObjectFormat, RefFormat};

use crate::context::Context;
use crate::failure::{Failure, Result, complain};
use crate::options::{Opt, Spec};
use crate::output::Output;
use measure::Stage;
use process::Program;
use report::Row;
use shape::Shape;
use workload::{WORKLOADS, Workload};

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
}

pub(super) const BENCH: Spec<Id> = Spec {
    name: "bench",
    forms: &[concat!(
        "[--refs=<n>] [--formats=<list>] [--fsync=<list>] [--only=<list>]\n",
        "[--runs=<n>] [--limit=<seconds>] [--repo=<path>]\n",
        "[--git=<program> | --no-git] [--dir=<path>] [--json] [--list]"
    )],
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
    ],
};

/// What the command line asks for.
struct Settings {
    refs: usize,
    formats: Vec<RefFormat>,
    fsync: Vec<String>,
    workloads: Vec<&'static Workload>,
    runs: usize,
    limit: Duration,
    repo: Option<PathBuf>,
    /// `None` to measure refdb alone.
    git: Option<PathBuf>,
    dir: PathBuf,
    json: bool,
    list: bool,
}

/// Runs `bench`.
pub(super) fn run(_context: &Context, out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    let settings = parse(args)?;
    if settings.list {
        for workload in WORKLOADS {
            out.put(format!("{:<20} {}\n", workload.name, workload.about))?;
        }
        return Ok(());
    }
    let fatal = |error: std::io::Error| Failure::fatal(error.to_string());
    let folder = tempfile::Builder::new()
        .prefix("refdb-bench-")
        .tempdir_in(&settings.dir)
        .map_err(fatal)?;
    let refdb = Program {
        name: "refdb",
        path: std::env::current_exe().map_err(fatal)?,
        limit: None,
    };
    let git = settings.git.clone().map(|path| Program {
        name: "Git",
        path,
        limit: Some(settings.limit),
    });
    let version = git.as_ref().map(|git| version(git, folder.path()));
    let version = version.transpose().map_err(Failure::fatal)?;
    let result = measure(&settings, folder.path(), &refdb, git.as_ref());
    progress("");
    let (refs, rows) = result.map_err(Failure::fatal)?;
    if settings.json {
        return out.put(format!("{:#}\n", report::json(&rows)));
    }
    out.put(format!(
        "{refs} refs, median of {} run(s), {}\n{}\n{} confirmed the refs after every measurement. \
         Less memory than this process has taken ({:.1} MiB) cannot be told.\n",
        settings.runs,
        version.as_deref().unwrap_or("no Git"),
        report::table(&rows, settings.limit.as_secs_f64()),
        if version.is_some() { "Git" } else { "refdb" },
        process::peak_memory() / f64::from(1 << 20),
    ))
}

fn parse(args: &[Vec<u8>]) -> Result<Settings> {
    let mut settings = Settings {
        refs: 10_000,
        formats: vec![RefFormat::Reftable, RefFormat::Files],
        fsync: vec!["none".to_owned(), "reference".to_owned()],
        workloads: WORKLOADS.iter().collect(),
        runs: 3,
        limit: Duration::from_secs(10),
        repo: None,
        git: find_git(),
        dir: std::env::temp_dir(),
        json: false,
        list: false,
    };
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
            Id::Fsync => settings.fsync = list(value, "core.fsync", |word| Some(word.to_owned()))?,
            Id::Only => settings.workloads = list(value, "workload", workload_named)?,
            Id::Repo => settings.repo = path(value),
            Id::Git => settings.git = path(value).map(absolute),
            Id::Dir => settings.dir = path(value).unwrap_or_else(std::env::temp_dir),
            Id::Json => settings.json = value.is_set(),
            Id::List => settings.list = value.is_set(),
        }
        Ok(())
    })?;
    match operands.first() {
        Some(_) => Err(BENCH.misuse()),
        None => Ok(settings),
    }
}

fn number(value: crate::options::Value, name: &str, least: usize) -> Result<usize> {
    match value {
        crate::options::Value::Number(number) => usize::try_from(number)
            .ok()
            .filter(|&number| number >= least)
            .ok_or_else(|| Failure::fatal(format!("--{name} must be at least {least}"))),
        _ => Err(Failure::fatal(format!("--{name} cannot be left out"))),
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
                Failure::fatal(format!("unknown {what} '{word}'; see 'refdb bench --list'"))
            })
        })
        .collect()
}

fn format_named(name: &str) -> Option<RefFormat> {
    RefFormat::from_name(name)
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

/// Returns the Git that the shell would find.
fn find_git() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join("git"))
        .find(|program| program.is_file())
}

fn version(git: &Program, folder: &Path) -> std::result::Result<String, String> {
    let answer = folder.join("version");
    git.run(folder, &["--version".to_owned()], None, Some(&answer))?;
    let text = std::fs::read_to_string(&answer).map_err(|error| error.to_string())?;
    Ok(text.trim().to_owned())
}

/// Takes every measurement; returns how many refs there were, too.
fn measure(
    settings: &Settings,
    folder: &Path,
    refdb: &Program,
    git: Option<&Program>,
) -> measure::Result<(usize, Vec<Row>)> {
    let pack = folder.join("source");
    repository::create(&pack, RefFormat::Files, ObjectFormat::Sha1, None)
        .map_err(|error| error.to_string())?;
    let (commits, tags) = repository::write_pack(&pack).map_err(|error| error.to_string())?;
    let shape = match &settings.repo {
        None => Shape::made(settings.refs, commits, tags),
        Some(path) => Shape::of_repository(path)?,
    };
    let mut rows = Vec::new();
    for &format in &settings.formats {
        for fsync in &settings.fsync {
            progress(&format!("{}, core.fsync={fsync}", format.name()));
            let stage = Stage {
                folder,
                shape: &shape,
                format,
                fsync,
                refdb,
                judge: git.unwrap_or(refdb),
            };
            stage.prepare(&pack.join("objects/pack"))?;
            for workload in &settings.workloads {
                let row = measure_one(settings, &stage, workload, git)?;
                rows.push(row);
            }
        }
    }
    Ok((shape.len(), rows))
}

/// Measures one workload as often as it is asked for.
fn measure_one(
    settings: &Settings,
    stage: &Stage<'_>,
    workload: &'static Workload,
    git: Option<&Program>,
) -> measure::Result<Row> {
    let mut row = Row {
        format: stage.format.name(),
        fsync: stage.fsync.to_owned(),
        name: workload.name,
        about: workload.about,
        refdb: Vec::new(),
        git: Vec::new(),
    };
    for run in 0..settings.runs {
        let (format, fsync, about) = (row.format, &row.fsync, row.about);
        progress(&format!(
            "{format}, core.fsync={fsync}: {about} ({})",
            run + 1
        ));
        let refdb_first = run % 2 == 0;
        for refdb_now in [refdb_first, !refdb_first] {
            if refdb_now {
                row.refdb.push(stage.measure(stage.refdb, workload)?);
            } else if let Some(git) = git {
                // What took Git too long once is not asked of it again.
                let sample = match row.git.last() {
                    Some(None) => None,
                    _ => stage.measure(git, workload)?,
                };
                row.git.push(sample);
            }
        }
    }
    Ok(row)
}

/// Shows what is being done, on a terminal only.
fn progress(what: &str) {
    if std::io::stderr().is_terminal() {
        complain(&format!("\r\x1b[K{what}"));
    }
}
