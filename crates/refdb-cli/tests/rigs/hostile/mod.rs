//! Every command on every kind of hostile repository.
//!
//! 1. Nothing outside of the repository changes, but what Git changes there with the same command.
//! 2. A command that only reads changes nothing inside either, unless a process of the user's may
//!    have left that to be finished.
//! 3. Every command ends: soon, within its memory, by itself, without a panic.
//! 4. What the deep check has to find it finds.
//!
//! Each kind is tried with a few calls, so that all kinds and all calls are tried in every test run;
//! `REFDB_HOSTILE_SHARE=1` tries all kinds with all calls. `REFDB_HOSTILE=<part of a name>` tries some
//! kinds only, with all calls.

#![allow(
    clippy::print_stderr,
    reason = "says how much was tried, and what cannot be tried here"
)]

mod commands;
mod compare;
mod planted;
mod run;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use refdb_testkit::hostile::{Change, Kind, Scene, Tree, kinds};
use refdb_testkit::trust::{Tally, budget};
use refdb_testkit::{Format, ObjectFormat, for_every_format, oracle};
use tempfile::TempDir;

use commands::{BENCH, CALLS, Call, Does, filled};
use compare::Theirs;
use run::{Ended, run};

/// So many kinds there are for each format, or more.
const KINDS_MIN: usize = 60;

/// Of so many calls a kind is tried with one in a test run, besides the first.
const SHARE: u64 = 7;

/// What takes longer is told: so many seconds.
const SLOW: f64 = 1.0;

/// So often a kind may keep commands from ending before it is known well enough.
const WAITS_MAX: usize = 3;

/// Settings with which nobody waits for locks.
const SETTINGS: [&str; 3] = [
    "core.filesRefLockTimeout=20",
    "core.packedRefsTimeout=20",
    "reftable.lockTimeout=20",
];

/// So many kinds are tried at the same time: commands mostly wait for something.
const WORKERS: usize = 4;

for_every_format! {
    fn nothing_leads_out_of_a_hostile_repository(format) {
        let mut tally = Tally::begin("commands on hostile repositories", 0);
        let part = std::env::var("REFDB_HOSTILE").ok();
        let share = match part {
            Some(_) => 1,
            None => usize::try_from(budget("REFDB_HOSTILE_SHARE", SHARE)).expect("a small number"),
        };
        let mut kinds = kinds(format);
        assert!(kinds.len() >= KINDS_MIN, "only {} kinds", kinds.len());
        kinds.retain(|kind| match &part {
            Some(part) => kind.name.contains(part.as_str()),
            None => kind.by_hash || format.objects == ObjectFormat::Sha1,
        });
        let next = AtomicUsize::new(0);
        let done = thread::scope(|scope| {
            let work = || work(format, &kinds, share, &next);
            let workers = [(); WORKERS].map(|()| scope.spawn(work));
            workers.map(|worker| worker.join().expect("it does not panic"))
        });
        let count = done.iter().map(|bench| bench.count).sum();
        let tried: usize = done.iter().map(|bench| bench.tried).sum();
        let faults: Vec<Fault> = done.into_iter().flat_map(|bench| bench.faults).collect();
        tally.add(count);
        eprintln!("{format}: {tried} kinds, {count} commands, {} faults", faults.len());
        assert!(faults.is_empty(), "{}", report(&faults));
    }
}

/// Tries one kind after the other, as long as there are any, each with its share of the calls.
fn work(format: Format, kinds: &[Kind], share: usize, next: &AtomicUsize) -> Bench {
    let mut bench = Bench::new(Path::new(env!("CARGO_BIN_EXE_refdb")), format);
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let Some(kind) = kinds.get(number) else {
            return bench;
        };
        let calls = CALLS.iter().chain([&BENCH]).enumerate();
        let calls = calls.filter(|(at, _)| *at == 0 || at % share == number % share);
        bench.try_kind(kind, calls.map(|(_, call)| call));
    }
}

/// Makes a folder in memory where that is to be had: thousands of worlds are made in it.
fn folder() -> TempDir {
    let in_memory = tempfile::tempdir_in("/dev/shm");
    in_memory.unwrap_or_else(|_| tempfile::tempdir().expect("a folder"))
}

/// What is wrong: the kind, what it wants, the command, what came of it.
struct Fault {
    kind: String,
    wants: &'static str,
    line: String,
    what: String,
}

/// Says for each kind what came of it, and how many commands it came of.
fn report(faults: &[Fault]) -> String {
    let mut kinds: BTreeMap<(&str, &str), BTreeMap<&str, Vec<&str>>> = BTreeMap::new();
    for fault in faults {
        let of_kind = kinds.entry((&fault.kind, fault.wants)).or_default();
        of_kind.entry(&fault.what).or_default().push(&fault.line);
    }
    let mut text = format!("{} kinds have faults\n", kinds.len());
    for ((kind, wants), whats) in kinds {
        let _ = writeln!(text, "{kind} ({wants})");
        for (what, lines) in whats {
            let count = lines.len();
            let _ = writeln!(
                text,
                "    {what}\n        {count} times, first by: {}",
                lines[0]
            );
        }
    }
    text
}

/// Where kinds are tried with which program, and what came of it so far.
struct Bench {
    program: PathBuf,
    folder: TempDir,
    format: Format,
    tried: usize,
    count: u64,
    faults: Vec<Fault>,
}

/// A kind that was made, and what it was like before a command.
struct Stage {
    scene: Scene,
    before: Tree,
}

impl Bench {
    fn new(program: &Path, format: Format) -> Bench {
        Bench {
            program: program.to_owned(),
            folder: folder(),
            format,
            tried: 0,
            count: 0,
            faults: Vec::new(),
        }
    }

    /// Makes calls on one kind, if it can be made here.
    fn try_kind<'c>(&mut self, kind: &Kind, calls: impl Iterator<Item = &'c Call>) {
        let stage = match self.stage(kind) {
            Ok(stage) => stage,
            Err(reason) => {
                eprintln!("skipped: {}: {reason}", kind.name);
                return;
            }
        };
        self.tried += 1;
        let roots = self.roots(kind, &stage.scene);
        let mut stage = Some(stage);
        for call in calls {
            let ready = stage.take().or_else(|| self.stage(kind).ok());
            let ready = ready.expect("it could be made before");
            stage = self.try_call(kind, call, ready, &roots);
            let waits = |fault: &&Fault| fault.kind == kind.name && fault.what == run::NO_END;
            if self.faults.iter().filter(waits).count() >= WAITS_MAX {
                eprintln!("{}: not tried any further", kind.name);
                break;
            }
        }
    }

    fn stage(&self, kind: &Kind) -> Result<Stage, String> {
        let scene = Scene::make(self.folder.path(), self.format, kind.form);
        kind.apply(&scene)?;
        Tree::age(scene.world());
        let before = Tree::of(scene.world());
        Ok(Stage { scene, before })
    }

    /// Returns what belongs to the repository that commands work on: what is hostile, and what Git
    /// takes for the repository, if that is elsewhere.
    fn roots(&self, kind: &Kind, scene: &Scene) -> Vec<PathBuf> {
        let mut roots = vec![Scene::inside().to_owned()];
        roots.extend(kind.belongs.map(PathBuf::from));
        let line = "rev-parse --path-format=absolute --git-common-dir";
        let ended = self.run_line(oracle::program(), line, kind, scene);
        let common = Path::new(ended.answer.trim_end());
        if let Ok(below) = common.strip_prefix(scene.world())
            && ended.code == Some(0)
        {
            roots.push(below.to_owned());
        }
        roots
    }

    /// Runs one call; returns the stage if it is as it was.
    fn try_call(
        &mut self,
        kind: &Kind,
        call: &Call,
        stage: Stage,
        roots: &[PathBuf],
    ) -> Option<Stage> {
        let Stage { scene, before } = stage;
        for line in call.lines {
            let ended = self.run_line(&self.program, line, kind, &scene);
            self.count += 1;
            if let Some(fault) = ended.fault() {
                self.fault(kind, line, fault);
            } else if ended.seconds > SLOW {
                eprintln!("{}: {line}: {:.1} s", kind.name, ended.seconds);
            }
            if kind.told && line.ends_with("--deep") && ended.code == Some(0) {
                self.fault(kind, line, "finds nothing".into());
            }
        }
        let changes = before.changes(&Tree::of(scene.world()));
        let is_as_before = changes.is_empty();
        let is_inside = |change: &Change| {
            // What is made or removed in a folder shows in its time.
            let is_above = |root: &Path| change.is_dir && root.parent() == Some(&change.path);
            let is_of = |root: &PathBuf| change.path.starts_with(root) || is_above(root);
            roots.iter().any(is_of)
        };
        let (inside, outside): (Vec<_>, Vec<_>) = changes.into_iter().partition(is_inside);
        let harm = inside.iter().filter(|change| is_harm(kind, call, change));
        let outside = outside
            .iter()
            .filter(|change| !kind.leads.is_some_and(|leads| is_passing(leads, change)));
        let strange: Vec<(&str, &Change)> = harm
            .map(|change| ("inside", change))
            .chain(outside.map(|change| ("OUTSIDE", change)))
            .collect();
        if !strange.is_empty() {
            let theirs = self.theirs(kind, call);
            let lines = call.lines.join(" && ");
            for (place, change) in strange {
                if !theirs.have(change) {
                    self.fault(kind, &lines, format!("{place}: {change}"));
                }
            }
        }
        is_as_before.then_some(Stage { scene, before })
    }

    fn run_line(&self, program: &Path, line: &str, kind: &Kind, scene: &Scene) -> Ended {
        let temporary = self.folder.path().join("temporary");
        std::fs::create_dir_all(&temporary).expect("a folder");
        let (words, input) = filled(line, scene, temporary.to_str().expect("a plain name"));
        let settings = SETTINGS.iter().flat_map(|setting| ["-c", setting]);
        let mut args: Vec<String> = settings.map(str::to_owned).collect();
        args.extend(words);
        let dir = scene.thing().join(kind.cwd);
        let home = scene.home();
        run(program, &args, &input, &dir, &home, &temporary)
    }

    /// Returns what Git changes with the same commands.
    fn theirs(&self, kind: &Kind, call: &Call) -> Theirs {
        let stage = match call.git {
            [] => None,
            _ => self.stage(kind).ok(),
        };
        let Some(Stage { scene, before }) = stage else {
            return Theirs::default();
        };
        for line in call.git {
            self.run_line(oracle::program(), line, kind, &scene);
        }
        Theirs::new(before.changes(&Tree::of(scene.world())))
    }

    fn fault(&mut self, kind: &Kind, line: &str, what: String) {
        self.faults.push(Fault {
            kind: kind.name.clone(),
            wants: kind.wants,
            line: line.to_owned(),
            what,
        });
    }
}

/// What nobody changes who finishes something that concerns refs.
const NOT_REFS: [&str; 5] = ["config", "objects", "hooks", "info", "precious"];

/// Returns whether a change is one that a command that does not write must not make inside.
fn is_harm(kind: &Kind, call: &Call, change: &Change) -> bool {
    if call.does == Does::Writes {
        return false;
    }
    let mut parts = change.path.components().map(|part| part.as_os_str());
    let is_own = parts.clone().any(|part| part == "refdb-migration");
    let is_of_refs = is_own || !parts.any(|part| NOT_REFS.iter().any(|name| part == *name));
    if kind.genuine && is_of_refs {
        return false;
    }
    let is_copy = change.what == "made" && call.does == Does::Copies;
    // That a file was there for a moment shows in the time of its folder.
    !(is_copy || change.is_dir && change.what == "time")
}

/// Returns whether a change is that a file was there for a moment, beside or below what Git follows a
/// link to.
fn is_passing(leads: &str, change: &Change) -> bool {
    let beside = Path::new(leads).parent().unwrap_or(Path::new(""));
    let is_there = change.path.starts_with(leads) || change.path == beside;
    is_there && change.is_dir && change.what == "time"
}
