//! The main job, measured: refdb and Git do the same to twin repositories that Git made.
//!
//! Both formats, one transaction a step: create many refs, create a tenth more on top, list, delete
//! all, create all again, compact. After every step Git lists the repository, and every ref must be
//! where the step should have put it. With `--git`, Git does each step as well, in a twin
//! repository: the programs take turns in who goes first, the durability (`core.fsync`) is the same
//! for both, and the figure is the median of the runs. Git is given a limited time for each step,
//! since some take it longer than anybody would wait.
//!
//! ```text
//! refdb-bench [--refs N] [--runs N] [--fsync none|reference] [--formats files,reftable]
//!             [--git] [--limit SECONDS]
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use refdb_testkit::objects::Objects;
use refdb_testkit::repo::Repo;
use refdb_testkit::{Format, oracle};

/// What the command line asks for.
struct Settings {
    refs: usize,
    runs: usize,
    fsync: String,
    formats: Vec<Format>,
    git: bool,
    limit: Duration,
}

fn main() -> ExitCode {
    let done = parse(std::env::args().skip(1)).and_then(|settings| run(&settings));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            say(&format!("refdb-bench: {message}\n"), &mut std::io::stderr());
            ExitCode::FAILURE
        }
    }
}

fn say(text: &str, to: &mut dyn std::io::Write) {
    // A reader that has gone away does not want to know.
    let _ = to.write_all(text.as_bytes());
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Settings, String> {
    let mut settings = Settings {
        refs: 100_000,
        runs: 1,
        fsync: "reference".to_owned(),
        formats: vec![Format::FILES_SHA1, Format::REFTABLE_SHA1],
        git: false,
        limit: Duration::from_secs(60),
    };
    while let Some(option) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{option} needs a value"));
        let number = |text: String| text.parse().map_err(|_| format!("'{text}' is no number"));
        match option.as_str() {
            "--refs" => settings.refs = number(value()?)?,
            "--runs" => settings.runs = number(value()?)?,
            "--git" => settings.git = true,
            "--limit" => settings.limit = Duration::from_secs(number(value()?)? as u64),
            "--fsync" => settings.fsync = value()?,
            "--formats" => {
                settings.formats = value()?
                    .split(',')
                    .map(format_named)
                    .collect::<Result<_, _>>()?;
            }
            _ => return Err(format!("unknown option '{option}'")),
        }
    }
    if settings.refs < 10 || settings.runs == 0 {
        return Err("at least 10 refs and 1 run are needed".to_owned());
    }
    Ok(settings)
}

fn format_named(name: &str) -> Result<Format, String> {
    match name {
        "files" => Ok(Format::FILES_SHA1),
        "reftable" => Ok(Format::REFTABLE_SHA1),
        _ => Err(format!("unknown ref format '{name}'")),
    }
}

/// One of the two programs, and the repository it works on.
struct Side {
    program: PathBuf,
    repo: Repo,
}

/// What a step took: `None` if it was ended at the limit.
type Time = Option<Duration>;

/// A step with the times of refdb and, if it ran, of Git.
type Timed = (&'static str, Vec<Time>);

/// One step of the main job.
struct Step<'r> {
    name: &'static str,
    args: &'static [&'static str],
    input: String,
    /// The refs afterwards.
    expected: &'r BTreeMap<String, String>,
}

fn run(settings: &Settings) -> Result<(), String> {
    let refdb = std::env::current_exe()
        .ok()
        .and_then(|exe| Some(exe.parent()?.join("refdb")))
        .filter(|path| path.exists())
        .ok_or("the program 'refdb' is not beside this one: build it first (scripts/main-job)")?;
    let mut out = std::io::stdout();
    let (refs, fsync, runs) = (settings.refs, &settings.fsync, settings.runs);
    let version = oracle::version().trim();
    say(
        &format!("{refs} refs, core.fsync={fsync}, {runs} run(s), Git {version}\n\n"),
        &mut out,
    );
    for &format in &settings.formats {
        let mut table: BTreeMap<usize, (&str, Vec<Vec<Time>>)> = BTreeMap::new();
        for run in 0..settings.runs {
            let steps = one_run(settings, format, &refdb, run)?;
            for (at, (step, times)) in steps.into_iter().enumerate() {
                table.entry(at).or_insert((step, Vec::new())).1.push(times);
            }
        }
        say(&render(settings, format, &table), &mut out);
    }
    say("Git confirmed every ref after every step.\n", &mut out);
    Ok(())
}

fn one_run(
    settings: &Settings,
    format: Format,
    refdb: &Path,
    run: usize,
) -> Result<Vec<Timed>, String> {
    let mut programs = vec![refdb];
    if settings.git {
        programs.push(oracle::program());
    }
    let side = |program: &Path| {
        let repo = Repo::init_bare(format);
        repo.config("core.fsync", &settings.fsync);
        repo.config("gc.auto", "0");
        Side {
            program: program.to_owned(),
            repo,
        }
    };
    let mut sides: Vec<Side> = programs.into_iter().map(side).collect();
    let objects = Objects::standard(format.objects);
    let first = values(objects, 0..settings.refs);
    let more = values(objects, settings.refs..settings.refs + settings.refs / 10);
    let both: BTreeMap<String, String> = first.clone().into_iter().chain(more.clone()).collect();
    let none = BTreeMap::new();
    let step = |name, args, input, expected| Step {
        name,
        args,
        input,
        expected,
    };
    let steps = [
        step("create", UPDATE, script("create", &first), &first),
        step(
            "create a tenth more",
            UPDATE,
            script("create", &more),
            &both,
        ),
        step("list", LIST, String::new(), &both),
        step("delete all", UPDATE, script("delete", &both), &none),
        step("create all again", UPDATE, script("create", &both), &both),
        step("compact", PACK, String::new(), &both),
    ];
    let mut timed = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        progress(&format!("{format}: {}", step.name));
        let times = one_step(settings, &mut sides, step, (run + at).is_multiple_of(2))
            .map_err(|what| format!("{format}, '{}': {what}", step.name))?;
        timed.push((step.name, times));
    }
    progress("");
    Ok(timed)
}

/// Has every side do a step, and Git confirm what came of it.
fn one_step(
    settings: &Settings,
    sides: &mut [Side],
    step: &Step<'_>,
    refdb_first: bool,
) -> Result<Vec<Time>, String> {
    let mut times = vec![None; sides.len()];
    // Who goes first changes, so that neither always finds the caches warm.
    let mut order: Vec<usize> = (0..sides.len()).collect();
    if !refdb_first {
        order.reverse();
    }
    for side in order {
        // Only Git is ever ended: what refdb does has to come to its end.
        let limit = (side > 0).then_some(settings.limit);
        times[side] = sides[side].run(step, limit)?;
    }
    if times.get(1) == Some(&None) {
        // Git goes on from where refdb came to.
        sides[1].repo = sides[0].repo.duplicate();
    }
    for side in sides {
        confirm(&side.repo, step.expected)
            .map_err(|what| format!("after {}: {what}", side.program.display()))?;
    }
    Ok(times)
}

const UPDATE: &[&str] = &["update-ref", "--stdin"];
const LIST: &[&str] = &["for-each-ref"];
const PACK: &[&str] = &["pack-refs", "--all"];

impl Side {
    fn run(&self, step: &Step<'_>, limit: Option<Duration>) -> Result<Time, String> {
        let mut command = Command::new(&self.program);
        command.env_clear().envs(oracle::environment());
        command.current_dir(self.repo.git_dir()).args(step.args);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let text = |error: std::io::Error| error.to_string();
        let start = Instant::now();
        let mut child = command.spawn().map_err(text)?;
        let mut stdin = child.stdin.take().ok_or("no standard input")?;
        let input = step.input.clone();
        // A program that ends without reading all its input says why on its own.
        std::thread::spawn(move || stdin.write_all(input.as_bytes()));
        let id = child.id();
        let (done, is_done) = std::sync::mpsc::channel();
        let waiter = std::thread::spawn(move || {
            let output = child.wait_with_output();
            let time = start.elapsed();
            // Nobody listens any more after the limit.
            let _ = done.send(());
            output.map(|output| (output, time))
        });
        if let Some(limit) = limit
            && is_done.recv_timeout(limit).is_err()
        {
            Command::new("kill")
                .arg(id.to_string())
                .status()
                .map_err(text)?;
            // How it ended does not matter.
            let _ = waiter.join();
            return Ok(None);
        }
        let (output, time) = waiter
            .join()
            .map_err(|_| "the waiting thread died".to_owned())?
            .map_err(text)?;
        if output.status.success() {
            return Ok(Some(time));
        }
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(format!(
            "{} {}: {stderr}",
            self.program.display(),
            step.args.join(" ")
        ))
    }
}

/// Returns refs named as in a hosting service, each with a commit.
fn values(objects: &Objects, range: std::ops::Range<usize>) -> BTreeMap<String, String> {
    range
        .map(|at| {
            let name = match at % 4 {
                0 => format!("refs/heads/team-{:02}/feature-{at:07}", at % 89),
                1 => format!("refs/pull/{}/head", at / 4),
                2 => format!("refs/remotes/origin/topic/{:02}/{at:07}", at % 53),
                _ => format!("refs/tags/release-{:03}/v{at:07}", at % 211),
            };
            (name, objects.commits[at % objects.commits.len()].clone())
        })
        .collect()
}

fn script(verb: &str, refs: &BTreeMap<String, String>) -> String {
    let mut script = String::new();
    for (name, id) in refs {
        let _ = writeln!(script, "{verb} {name} {id}");
    }
    script
}

/// Has Git list the repository and compares every ref.
fn confirm(repo: &Repo, expected: &BTreeMap<String, String>) -> Result<(), String> {
    let listing = repo
        .git(["for-each-ref", "--format=%(objectname) %(refname)"])
        .run()
        .text();
    let mut listed = listing.lines();
    for (name, id) in expected {
        let line = listed.next().unwrap_or("nothing");
        if line != format!("{id} {name}") {
            return Err(format!("Git lists '{line}' where '{id} {name}' should be"));
        }
    }
    match listed.next() {
        Some(line) => Err(format!("Git lists '{line}', which should not be there")),
        None => Ok(()),
    }
}

fn render(
    settings: &Settings,
    format: Format,
    table: &BTreeMap<usize, (&str, Vec<Vec<Time>>)>,
) -> String {
    let mut text = if settings.git {
        format!("| {format} | refdb ms | Git ms | ratio |\n|---|---:|---:|---:|\n")
    } else {
        format!("| {format} | refdb ms |\n|---|---:|\n")
    };
    let limit_ms = settings.limit.as_secs_f64() * 1000.0;
    for (step, runs) in table.values() {
        // A run that was ended counts as longer than any other.
        let median = |side: usize| {
            let mut all: Vec<f64> = runs
                .iter()
                .map(|times| times[side].map_or(f64::INFINITY, |time| time.as_secs_f64() * 1000.0))
                .collect();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        let ours = median(0);
        let _ = write!(text, "| {step} | {ours:.1} |");
        if settings.git {
            let git = median(1);
            let _ = if git.is_finite() {
                write!(text, " {git:.1} | {:.1}x |", git / ours)
            } else {
                write!(text, " over {limit_ms:.0} | over {:.0}x |", limit_ms / ours)
            };
        }
        text.push('\n');
    }
    text.push('\n');
    text
}

/// Shows what is being done, on a terminal only.
fn progress(what: &str) {
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        say(&format!("\r\x1b[K{what}"), &mut stderr);
    }
}
