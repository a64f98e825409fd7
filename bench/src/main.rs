//! The main job, measured: refdb and Git do the same to twin repositories that Git made.
//!
//! Both formats, one transaction a step: create many refs, create a tenth more on top, list, delete
//! all, create all again, compact. After every step Git lists both repositories, and every ref must
//! be where the step should have put it. The programs take turns in who goes first, the durability
//! (`core.fsync`) is the same for both, and the figure is the median of the runs.
//!
//! ```text
//! refdb-bench [--refs N] [--runs N] [--fsync none|reference] [--formats files,reftable]
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
    };
    while let Some(option) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{option} needs a value"));
        let number = |text: String| text.parse().map_err(|_| format!("'{text}' is no number"));
        match option.as_str() {
            "--refs" => settings.refs = number(value()?)?,
            "--runs" => settings.runs = number(value()?)?,
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
    dir: PathBuf,
}

fn run(settings: &Settings) -> Result<(), String> {
    let refdb = std::env::current_exe()
        .ok()
        .and_then(|exe| Some(exe.parent()?.join("refdb")))
        .filter(|path| path.exists())
        .ok_or("the program 'refdb' is not beside this one: build it first (scripts/main-job)")?;
    let mut out = std::io::stdout();
    say(
        &format!(
            "{} refs, core.fsync={}, {} run(s), {}\n\n",
            settings.refs,
            settings.fsync,
            settings.runs,
            oracle::version().trim()
        ),
        &mut out,
    );
    for &format in &settings.formats {
        let mut table: BTreeMap<usize, (&str, Vec<[Duration; 2]>)> = BTreeMap::new();
        for run in 0..settings.runs {
            for (at, (step, times)) in one_run(settings, format, &refdb, run)?
                .into_iter()
                .enumerate()
            {
                table.entry(at).or_insert((step, Vec::new())).1.push(times);
            }
        }
        say(&render(format, &table), &mut out);
    }
    say("Git confirmed every ref after every step.\n", &mut out);
    Ok(())
}

type Timed = (&'static str, [Duration; 2]);

fn one_run(
    settings: &Settings,
    format: Format,
    refdb: &Path,
    run: usize,
) -> Result<Vec<Timed>, String> {
    let repos = [Repo::init_bare(format), Repo::init_bare(format)];
    let objects = Objects::standard(format.objects);
    for repo in &repos {
        repo.config("core.fsync", &settings.fsync);
        repo.config("gc.auto", "0");
    }
    let sides = [
        Side {
            program: refdb.to_owned(),
            dir: repos[0].git_dir(),
        },
        Side {
            program: oracle::program().to_owned(),
            dir: repos[1].git_dir(),
        },
    ];
    let first = values(objects, 0..settings.refs);
    let more = values(objects, settings.refs..settings.refs + settings.refs / 10);
    let both: BTreeMap<String, String> = first.clone().into_iter().chain(more.clone()).collect();
    let none = BTreeMap::new();
    let steps: [(&str, &[&str], String, &BTreeMap<String, String>); 6] = [
        ("create", UPDATE, script("create", &first), &first),
        (
            "create a tenth more",
            UPDATE,
            script("create", &more),
            &both,
        ),
        ("list", LIST, String::new(), &both),
        ("delete all", UPDATE, script("delete", &both), &none),
        ("create all again", UPDATE, script("create", &both), &both),
        ("compact", PACK, String::new(), &both),
    ];
    let mut timed = Vec::new();
    for (at, (step, args, input, expected)) in steps.into_iter().enumerate() {
        progress(&format!("{format}: {step}"));
        let mut times = [Duration::ZERO; 2];
        // Who goes first changes, so that neither always finds the caches warm.
        let order = if (run + at).is_multiple_of(2) {
            [0, 1]
        } else {
            [1, 0]
        };
        for side in order {
            times[side] = sides[side].run(args, &input)?;
        }
        for (side, repo) in sides.iter().zip(&repos) {
            confirm(repo, expected).map_err(|what| {
                format!(
                    "{format}: after '{step}' by {}: {what}",
                    side.program.display()
                )
            })?;
        }
        timed.push((step, times));
    }
    progress("");
    Ok(timed)
}

const UPDATE: &[&str] = &["update-ref", "--stdin"];
const LIST: &[&str] = &["for-each-ref"];
const PACK: &[&str] = &["pack-refs", "--all"];

impl Side {
    fn run(&self, args: &[&str], input: &str) -> Result<Duration, String> {
        let mut command = Command::new(&self.program);
        command.env_clear().envs(oracle::environment());
        command.current_dir(&self.dir).args(args);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let start = Instant::now();
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let mut stdin = child.stdin.take().ok_or("no standard input")?;
        let input = input.to_owned();
        let feeder = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
        let output = child
            .wait_with_output()
            .map_err(|error| error.to_string())?;
        let time = start.elapsed();
        // A program that ends without reading all its input says why on its own.
        let _ = feeder.join();
        if output.status.success() {
            return Ok(time);
        }
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(format!(
            "{} {}: {stderr}",
            self.program.display(),
            args.join(" ")
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

fn render(format: Format, table: &BTreeMap<usize, (&str, Vec<[Duration; 2]>)>) -> String {
    let mut text = format!("| {format} | refdb ms | git ms | ratio |\n|---|---:|---:|---:|\n");
    for (step, times) in table.values() {
        let median = |side: usize| {
            let mut all: Vec<Duration> = times.iter().map(|times| times[side]).collect();
            all.sort();
            all[all.len() / 2].as_secs_f64() * 1000.0
        };
        let (ours, gits) = (median(0), median(1));
        let _ = writeln!(
            text,
            "| {step} | {ours:.1} | {gits:.1} | {:.1}x |",
            gits / ours
        );
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
