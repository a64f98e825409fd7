//! refdb and Git do the same work, and both are timed: what `refdb bench` calls.
//!
//! 1. The programs take turns in who goes first, start from copies of the same repository, and run
//!    at the same durability (`core.fsync`).
//! 2. After every measurement the refs are listed, by Git if there is one, and must be those that
//!    there should be; a figure is only shown for work that was done.
//! 3. Only Git is ever ended for taking too long.
//!
//! ```no_run
//! use refdb_bench::Settings;
//!
//! let settings = Settings {
//!     refs: 1_000,
//!     runs: 1,
//!     ..Settings::default()
//! };
//! let report = settings.run("/usr/bin/refdb".into(), &|_, _, _| ())?;
//! assert!(report.starts_with("1000 refs"));
//! # Ok::<(), String>(())
//! ```

mod measure;
mod process;
mod report;
mod repository;
mod shape;
mod shared;
mod workload;

use std::path::{Path, PathBuf};
use std::time::Duration;

use refdb::error::io_text;
use refdb::{ObjectFormat, RefFormat};

use measure::{Result, Stage, told};
use process::Program;
use report::Row;
use shape::{Shape, first_tag};
pub use shared::measure_shared;
use workload::{By, State};
pub use workload::{WORKLOADS, Workload};

/// Told what is being done, how many measurements are done, and how many there are.
pub type Watch<'w> = dyn Fn(&str, usize, usize) + 'w;

/// What is measured, and how.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How many refs the repositories have, unless `repo` is given; at least 10.
    pub refs: usize,
    /// In which formats.
    pub formats: Vec<RefFormat>,
    /// With which values of `core.fsync`.
    pub fsync: Vec<String>,
    /// The workloads, of [`WORKLOADS`].
    pub workloads: Vec<&'static Workload>,
    /// How often each is measured.
    pub runs: usize,
    /// How long Git may take for a step.
    pub limit: Duration,
    /// The repository whose refs are used, on a copy.
    pub repo: Option<PathBuf>,
    /// The Git to compare with; `None` to measure refdb alone.
    pub git: Option<PathBuf>,
    /// Where the repositories are made.
    pub dir: PathBuf,
    /// Whether the report is in Bencher's metric format, and not a table for people.
    pub json: bool,
}

impl Default for Settings {
    /// All workloads with 10,000 refs, beside the Git that the shell would find.
    fn default() -> Self {
        Settings {
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
        }
    }
}

impl Settings {
    /// Takes every measurement with the program `refdb`, and returns the report. `progress` is told
    /// what is being done, how many measurements are done, and how many there are.
    ///
    /// # Errors
    /// When a program fails or does not do its work; the text is for people.
    pub fn run(&self, refdb: PathBuf, progress: &Watch<'_>) -> std::result::Result<String, String> {
        let folder = tempfile::Builder::new()
            .prefix("refdb-bench-")
            .tempdir_in(&self.dir)
            .map_err(|error| {
                let (dir, why) = (self.dir.display(), io_text(&error));
                format!("cannot make a folder in '{dir}': {why}")
            })?;
        let refdb = Program {
            name: "refdb",
            path: refdb,
            limit: None,
        };
        let git = self.git.clone().map(|path| Program {
            name: "Git",
            path,
            limit: Some(self.limit),
        });
        let version = git.as_ref().map(|git| version(git, folder.path()));
        let version = version.transpose()?;
        let result = self.measure(folder.path(), &refdb, git.as_ref(), progress);
        let (refs, rows) = result?;
        if self.json {
            return Ok(format!("{:#}\n", report::json(&rows)));
        }
        Ok(format!(
            "{refs} refs, median of {} run(s), {}\n{}\n{} confirmed the refs after every measurement. \
             Less memory than this\nprocess has taken ({:.1} MiB) cannot be told.\n",
            self.runs,
            version.as_deref().unwrap_or("no Git"),
            report::table(&rows, self.limit.as_secs_f64()),
            if version.is_some() { "Git" } else { "refdb" },
            process::peak_memory() / f64::from(1 << 20),
        ))
    }

    /// Takes every measurement; returns how many refs there were, too.
    fn measure(
        &self,
        folder: &Path,
        refdb: &Program,
        git: Option<&Program>,
        progress: &Watch<'_>,
    ) -> Result<(usize, Vec<Row>)> {
        let source = |name: &str| {
            let dir = folder.join(name);
            let made = repository::create(&dir, RefFormat::Files, ObjectFormat::Sha1, None);
            made.map(|()| dir).map_err(told)
        };
        let dir = source("source")?;
        let (commits, tags) = repository::write_pack(&dir).map_err(told)?;
        let pack = dir.join("objects/pack");
        // What Git leaves cannot be had without it.
        let (own, others): (Vec<_>, Vec<_>) = (self.workloads.iter().copied())
            .filter(|it| git.is_some() || it.by != By::Git)
            .partition(|it| it.state == State::Own);
        let mut shape = match &self.repo {
            None => Shape::made(self.refs, commits, tags),
            Some(path) => Shape::of_repository(path, !own.is_empty())?,
        };
        let mut work = Work {
            settings: self,
            folder,
            refdb,
            git,
            progress,
            total: self.formats.len() * self.fsync.len() * (own.len() + others.len()) * self.runs,
            rows: Vec::new(),
        };
        work.measure(&shape, &others, |stage| stage.prepare(&pack))?;
        // An object for each ref takes memory in this process, which is a floor under what is told of others: so what
        // needs them comes last, and what making them took is forgotten.
        if !own.is_empty() {
            let mut pack = pack;
            if self.repo.is_none() {
                let dir = source("own-source")?;
                let refs = shape.len();
                shape.own =
                    repository::write_own_pack(&dir, refs, first_tag(refs)).map_err(told)?;
                pack = dir.join("objects/pack");
                process::forget_peak_memory();
            }
            work.measure(&shape, &own, |stage| stage.prepare_own(&pack))?;
        }
        let mut rows = work.rows;
        let place = |row: &Row| {
            let format = self.formats.iter().position(|it| it.name() == row.format);
            let fsync = self.fsync.iter().position(|it| *it == row.fsync);
            let workload = self.workloads.iter().position(|it| it.name == row.name);
            (format, fsync, workload)
        };
        rows.sort_by_key(place);
        Ok((shape.len(), rows))
    }
}

/// The measurements of one call.
struct Work<'a> {
    settings: &'a Settings,
    folder: &'a Path,
    refdb: &'a Program,
    git: Option<&'a Program>,
    progress: &'a Watch<'a>,
    /// How many there are.
    total: usize,
    rows: Vec<Row>,
}

impl Work<'_> {
    /// Takes the measurements of some workloads, in each format and with each value of `core.fsync`, once `prepare` has
    /// made the states that they start from.
    fn measure(
        &mut self,
        shape: &Shape,
        workloads: &[&'static Workload],
        prepare: impl Fn(&Stage<'_>) -> Result<()>,
    ) -> Result<()> {
        if workloads.is_empty() {
            return Ok(());
        }
        let Settings {
            formats,
            fsync,
            runs,
            ..
        } = self.settings;
        for &format in formats {
            for fsync in fsync {
                let what = format!("{}, core.fsync={fsync}", format.name());
                (self.progress)(&what, self.rows.len() * runs, self.total);
                let stage = Stage {
                    folder: self.folder,
                    shape,
                    format,
                    fsync,
                    refdb: self.refdb,
                    judge: self.git.unwrap_or(self.refdb),
                };
                prepare(&stage)?;
                for workload in workloads {
                    let row = self.measure_one(&stage, workload)?;
                    self.rows.push(row);
                }
            }
        }
        Ok(())
    }

    /// Measures one workload as often as it is asked for.
    fn measure_one(&self, stage: &Stage<'_>, workload: &'static Workload) -> Result<Row> {
        let mut row = Row {
            format: stage.format.name(),
            fsync: stage.fsync.to_owned(),
            name: workload.name,
            about: workload.about,
            refdb: Vec::new(),
            git: Vec::new(),
        };
        let runs = self.settings.runs;
        for run in 0..runs {
            let (format, fsync, about) = (row.format, &row.fsync, row.about);
            let what = format!("{format}, core.fsync={fsync}: {about}");
            (self.progress)(&what, self.rows.len() * runs + run, self.total);
            let refdb_first = run % 2 == 0;
            for refdb_now in [refdb_first, !refdb_first] {
                if refdb_now {
                    row.refdb.push(stage.measure(stage.refdb, workload)?);
                } else if let Some(git) = self.git {
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
}

/// Returns the Git that the shell would find.
fn find_git() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join("git"))
        .find(|program| program.is_file())
}

fn version(git: &Program, folder: &Path) -> Result<String> {
    let answer = folder.join("version");
    git.run(folder, &["--version".to_owned()], None, Some(&answer))?;
    let text = std::fs::read_to_string(&answer).map_err(|error| error.to_string())?;
    Ok(text.trim().to_owned())
}
