//! refdb beside other libraries: the same operations on the same data, in one process.
//!
//! Each library works on its own copy of a repository that Git made, with the same names and
//! values, and from the same bytes: Git packs what the writes before left, as after a clone or `git
//! gc`. The libraries take turns, the figure is the median of the runs, and after each run Git lists
//! the repository. refdb checks that every object exists, which the others do not; none waits for the
//! disk (`core.fsync=none`).
//!
//! ```text
//! refdb-bench-peers [--refs N] [--runs N] [--formats files,reftable]
//! ```

mod git2_library;
mod gix_library;
mod grit_library;
mod refdb_library;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use refdb_testkit::Format;
use refdb_testkit::repo::Repo;

/// Whatever a library fails with.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A ref to be written: its name and the id in hexadecimal digits.
struct Item {
    name: String,
    id: String,
}

/// What is asked of a library. Every call is one transaction, unless it says otherwise.
trait Library {
    /// Creates refs that must not exist.
    fn create(&self, items: &[Item]) -> Result<()>;
    /// Creates refs that must not exist, each in a transaction of its own.
    fn create_each(&self, items: &[Item]) -> Result<()> {
        items.chunks(1).try_for_each(|one| self.create(one))
    }
    /// Gives refs another value, whatever they had.
    fn update(&self, items: &[Item]) -> Result<()>;
    /// Deletes refs.
    fn delete(&self, items: &[Item]) -> Result<()>;
    /// Counts the refs whose names start with a prefix, reading name and value of each.
    fn list(&self, prefix: &str) -> Result<usize>;
    /// Returns whether a ref exists.
    fn lookup(&self, name: &str) -> Result<bool>;
}

/// A library that is measured, and how it opens a repository.
struct Peer {
    name: &'static str,
    formats: &'static [&'static str],
    open: fn(&Path) -> Result<Box<dyn Library>>,
}

const PEERS: &[Peer] = &[
    Peer {
        name: "refdb",
        formats: &["files", "reftable"],
        open: refdb_library::open,
    },
    Peer {
        name: "grit-lib",
        formats: &["files", "reftable"],
        open: grit_library::open,
    },
    Peer {
        name: "gix-ref",
        formats: &["files"],
        open: gix_library::open,
    },
    Peer {
        name: "libgit2",
        formats: &["files"],
        open: git2_library::open,
    },
];

/// The folders of branches.
const TEAMS: usize = 89;

/// One operation: what is measured, with the refs of the job.
struct Operation {
    name: &'static str,
    /// What it starts from.
    from: Start,
    run: fn(&dyn Library, &Job) -> Result<()>,
}

/// What an operation finds in the repository.
enum Start {
    /// Nothing: it is a new one, for this operation alone.
    New,
    /// What the library itself left there.
    AsLeft,
    /// What Git made of it with `pack-refs --all`.
    Packed,
}

const OPERATIONS: &[Operation] = &[
    Operation {
        name: "create all",
        from: Start::AsLeft,
        run: |library, job| library.create(&job.first),
    },
    Operation {
        name: "create a tenth more",
        from: Start::Packed,
        run: |library, job| library.create(&job.more),
    },
    Operation {
        name: "update all",
        from: Start::Packed,
        run: |library, job| library.update(&job.second),
    },
    Operation {
        name: "list all",
        from: Start::Packed,
        run: |library, job| expect(library.list("refs/")?, job.first.len() + job.more.len()),
    },
    Operation {
        name: "list each of 89 prefixes",
        from: Start::AsLeft,
        run: |library, job| {
            let prefixes = (0..TEAMS).map(|team| format!("refs/heads/team-{team:02}/"));
            let counts = prefixes.map(|prefix| library.list(&prefix));
            let sum = counts.sum::<Result<usize>>()?;
            let all = job.first.iter().chain(&job.more);
            expect(
                sum,
                all.filter(|item| item.name.starts_with("refs/heads/team-"))
                    .count(),
            )
        },
    },
    Operation {
        name: "look up 1,000 names",
        from: Start::AsLeft,
        run: |library, job| {
            let step = (job.first.len() / 1000).max(1);
            for item in job.first.iter().step_by(step).take(1000) {
                expect(usize::from(library.lookup(&item.name)?), 1)?;
                let absent = format!("{}-absent", item.name);
                expect(usize::from(library.lookup(&absent)?), 0)?;
            }
            Ok(())
        },
    },
    Operation {
        name: "200 transactions of one ref, among all",
        from: Start::AsLeft,
        run: |library, job| library.create_each(&job.singles),
    },
    Operation {
        name: "200 transactions of one ref, in a new repository",
        from: Start::New,
        run: |library, job| library.create_each(&job.singles),
    },
    Operation {
        name: "delete all",
        from: Start::Packed,
        run: |library, job| {
            library.delete(&job.singles)?;
            library.delete(&job.more)?;
            library.delete(&job.first)
        },
    },
    Operation {
        name: "create all again",
        // What deletions leave behind is part of it.
        from: Start::AsLeft,
        run: |library, job| library.create(&job.first),
    },
];

fn expect(found: usize, expected: usize) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(format!("{found} refs where {expected} should be").into())
}

/// The refs of a run.
struct Job {
    first: Vec<Item>,
    more: Vec<Item>,
    second: Vec<Item>,
    singles: Vec<Item>,
}

impl Job {
    fn new(repo: &Repo, refs: usize) -> Self {
        let commits = &repo.objects().commits;
        let items = |range: std::ops::Range<usize>, turn: usize, name: fn(usize) -> String| {
            let mut items: Vec<Item> = range
                .map(|at| Item {
                    name: name(at),
                    id: commits[(at * 7919 + turn) % commits.len()].clone(),
                })
                .collect();
            items.sort_by(|a, b| a.name.cmp(&b.name));
            items
        };
        let name = |at: usize| match at % 4 {
            0 => format!("refs/heads/team-{:02}/feature-{at:07}", at % TEAMS),
            1 => format!("refs/pull/{}/head", at / 4),
            2 => format!("refs/remotes/origin/topic/{:02}/{at:07}", at % 53),
            _ => format!("refs/tags/release-{:03}/v{at:07}", at % 211),
        };
        Job {
            first: items(0..refs, 0, name),
            more: items(refs..refs + refs / 10, 0, name),
            second: items(0..refs, 1, name),
            singles: items(0..200, 0, |at| format!("refs/heads/single/{at:04}")),
        }
    }
}

struct Settings {
    refs: usize,
    runs: usize,
    formats: Vec<Format>,
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)).and_then(|settings| run(&settings)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("refdb-bench-peers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Settings> {
    let mut settings = Settings {
        refs: 10_000,
        runs: 3,
        formats: vec![Format::REFTABLE_SHA1, Format::FILES_SHA1],
    };
    while let Some(option) = args.next() {
        let value = args.next().ok_or(format!("{option} needs a value"))?;
        match option.as_str() {
            "--refs" => settings.refs = value.parse()?,
            "--runs" => settings.runs = value.parse()?,
            "--formats" => {
                let named = |name| match name {
                    "files" => Ok(Format::FILES_SHA1),
                    "reftable" => Ok(Format::REFTABLE_SHA1),
                    _ => Err(format!("unknown ref format '{name}'")),
                };
                settings.formats = value
                    .split(',')
                    .map(named)
                    .collect::<std::result::Result<_, _>>()?;
            }
            _ => return Err(format!("unknown option '{option}'").into()),
        }
    }
    if settings.refs < 1000 || settings.runs == 0 {
        return Err("at least 1,000 refs and 1 run are needed".into());
    }
    Ok(settings)
}

fn run(settings: &Settings) -> Result<()> {
    println!(
        "{} refs, median of {} run(s), in one process, core.fsync=none, ms",
        settings.refs, settings.runs
    );
    for &format in &settings.formats {
        let name = if format == Format::FILES_SHA1 {
            "files"
        } else {
            "reftable"
        };
        let peers: Vec<&Peer> = PEERS
            .iter()
            .filter(|peer| peer.formats.contains(&name))
            .collect();
        let mut times: BTreeMap<(usize, usize), Vec<Duration>> = BTreeMap::new();
        for run in 0..settings.runs {
            // Another library begins in each run, so that none always finds the caches warm.
            for turn in 0..peers.len() {
                let at = (turn + run) % peers.len();
                for (operation, time) in measure(settings, format, peers[at])?
                    .into_iter()
                    .enumerate()
                {
                    times.entry((operation, at)).or_default().push(time);
                }
            }
        }
        println!("\n{}", table(name, &peers, &mut times));
    }
    println!("Git listed what there should be at the end of every run.");
    Ok(())
}

/// Has a library do every operation once, and Git look at what came of it.
fn measure(settings: &Settings, format: Format, peer: &Peer) -> Result<Vec<Duration>> {
    let begin = || {
        let repo = Repo::init_bare(format);
        repo.config("core.fsync", "none");
        let library = (peer.open)(&repo.git_dir())?;
        Ok::<_, Box<dyn std::error::Error>>((repo, library))
    };
    let (repo, library) = begin()?;
    let job = Job::new(&repo, settings.refs);
    let mut times = Vec::new();
    for operation in OPERATIONS {
        let new = match operation.from {
            Start::New => Some(begin()?),
            Start::AsLeft => None,
            Start::Packed => {
                repo.git(["pack-refs", "--all"]).run().text();
                None
            }
        };
        let library = new.as_ref().map_or(&library, |(_, library)| library);
        let start = Instant::now();
        (operation.run)(library.as_ref(), &job)
            .map_err(|error| format!("{format}, {}, {}: {error}", peer.name, operation.name))?;
        times.push(start.elapsed());
    }
    let format = "--format=%(objectname) %(refname)";
    let listing = repo.git(["for-each-ref", format]).run().text();
    let expected: Vec<String> = job
        .first
        .iter()
        .map(|item| format!("{} {}", item.id, item.name))
        .collect();
    let listed: Vec<&str> = listing.lines().collect();
    if listed != expected {
        let counts = format!("{} refs instead of {}", listed.len(), expected.len());
        let pair = listed
            .iter()
            .zip(&expected)
            .find(|(listed, expected)| listed != expected);
        return Err(format!("after {}, Git lists others: {counts}, {pair:?}", peer.name).into());
    }
    Ok(times)
}

fn table(
    format: &str,
    peers: &[&Peer],
    times: &mut BTreeMap<(usize, usize), Vec<Duration>>,
) -> String {
    let mut text = format!("| {format} |");
    for peer in peers {
        let _ = write!(text, " {} |", peer.name);
    }
    text.push_str(" ahead of the next by |\n|---|");
    text.push_str(&"---:|".repeat(peers.len() + 1));
    text.push('\n');
    for (at, operation) in OPERATIONS.iter().enumerate() {
        let medians: Vec<f64> = (0..peers.len())
            .map(|peer| {
                let all = times.entry((at, peer)).or_default();
                all.sort();
                all[all.len() / 2].as_secs_f64() * 1000.0
            })
            .collect();
        let _ = write!(text, "| {} |", operation.name);
        for median in &medians {
            let _ = write!(text, " {median:.1} |");
        }
        let next = medians[1..].iter().copied().fold(f64::INFINITY, f64::min);
        let _ = writeln!(text, " {:.1}x |", next / medians[0]);
    }
    text
}
