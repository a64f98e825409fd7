//! One cell of the matrix: rounds in which two workers and some readers are let loose on a
//! repository, whose history is checked when all of them are done.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use refdb_testkit::linear::{Act, Call, Fault, History, Isolation, Value, check};
use refdb_testkit::repo::Repo;
use refdb_testkit::rng::Rng;
use refdb_testkit::{Format, RefFormat};

use super::actor::{Actor, Done, Op, Program};
use super::draw::{Drawer, Kind};
use super::listing::{self, Listing};
use super::names::{BRANCHES, LINK, MANY, NESTED, spread};

/// Whoever waits so long for a lock waits for somebody who waits for him: no worker holds one
/// for longer than some milliseconds. refdb gives up after five seconds.
const STALLED: Duration = Duration::from_secs(4);

/// Nothing takes so long, on whatever machine.
const STUCK: Duration = Duration::from_secs(30);

/// A worker does so many operations in a round, one beside a migration at most so many.
const OPS: usize = 4;
const OPS_BESIDE_MIGRATION: usize = 60;

/// A worker that migrates goes there and back.
const MIGRATIONS: usize = 2;

/// A reader keeps so many listings of a round.
const LISTINGS: usize = 8;

/// Who works on what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) format: Format,
    pub(crate) programs: [Program; 2],
    pub(crate) kinds: [Kind; 2],
    pub(crate) seed: u64,
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Cell {
            format,
            programs: [one, other],
            kinds: [first, second],
            ..
        } = self;
        write!(f, "{format}: {one:?} {first:?} / {other:?} {second:?}")
    }
}

/// What a cell came to.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) rounds: u64,
    pub(crate) operations: u64,
    pub(crate) listings: u64,
    /// How often the workers gave up waiting for a lock.
    pub(crate) gave_up: u64,
    /// How often what had been prepared could not be committed.
    pub(crate) broke_off: u64,
    /// Rounds whose history allows too many orders.
    pub(crate) undecided: u64,
    /// What is wrong, with the round and its history.
    pub(crate) failure: Option<Failure>,
}

/// What is wrong with a cell.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) why: String,
    /// Whether refdb itself failed, or waited, or listed what cannot be: whoever wrote beside it.
    pub(crate) is_refdbs: bool,
}

/// The repository of a cell.
pub(crate) struct Arena {
    pub(crate) repo: Repo,
    /// Where the workers are: in the main or in a linked worktree.
    pub(crate) dir: PathBuf,
    pub(crate) git_dir: PathBuf,
    is_linked: bool,
}

impl Arena {
    /// Makes one. Where refs have reflogs, those are in each other's way as well, which can hide
    /// that the refs are.
    pub(crate) fn new(format: Format, is_linked: bool, has_logs: bool) -> Arena {
        let repo = Repo::init(format);
        let logs = if has_logs { "always" } else { "false" };
        repo.config("core.logAllRefUpdates", logs);
        let (mut dir, mut git_dir) = (repo.path().to_owned(), repo.git_dir());
        if is_linked {
            let worktree = repo.worktree("w");
            (dir, git_dir) = (worktree.path, worktree.git_dir);
        }
        Arena {
            repo,
            dir,
            git_dir,
            is_linked,
        }
    }

    /// Lets nobody wait for long, where who has a lock may be stopped, or does not give it back.
    pub(crate) fn hurry(&self) {
        for key in [
            "core.filesRefLockTimeout",
            "core.packedRefsTimeout",
            "reftable.lockTimeout",
        ] {
            self.repo.config(key, "30");
        }
    }

    /// Returns the commits that no ref has.
    pub(crate) fn fresh(&self, refs: &BTreeMap<String, Value>) -> Vec<&String> {
        let used: Vec<&Value> = refs.values().collect();
        let is_fresh = |oid: &&String| !used.contains(&&Value::Oid((*oid).clone()));
        let commits = self.repo.objects().commits.iter();
        commits.filter(is_fresh).collect()
    }

    /// Makes a second one with the same content; nobody works in a linked worktree of it.
    pub(crate) fn duplicate(&self) -> Arena {
        let repo = self.repo.duplicate();
        Arena {
            dir: repo.path().to_owned(),
            git_dir: repo.git_dir(),
            repo,
            is_linked: false,
        }
    }

    /// Removes the reflogs that a Git left of refs which it could not make: they are in the way of others
    /// (`gits_own`). Nobody else is there, and all these refs are about to be deleted.
    fn remove_left_logs(&self) {
        let logs = self.repo.git_dir().join("logs").join(NESTED[0]);
        let removed = match logs.is_dir() {
            true => std::fs::remove_dir_all(&logs),
            false => std::fs::remove_file(&logs),
        };
        let is_gone = |error: &std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
        assert!(removed.as_ref().err().is_none_or(is_gone), "{removed:?}");
    }

    /// Puts the refs into a state that is drawn, while nobody else is there.
    ///
    /// # Errors
    /// What Git says that cannot, since something was left that is in the way.
    pub(crate) fn prepare(
        &self,
        rng: &mut Rng,
        before: &BTreeMap<String, Value>,
    ) -> Result<(), String> {
        let git = |args: &[&str], script: String| {
            let done = Program::Git.run(&self.dir).args(args).stdin(script).run();
            match done.code() {
                0 => Ok(()),
                _ => Err(String::from_utf8_lossy(&done.stderr).into_owned()),
            }
        };
        let mut script = String::new();
        for name in before.keys().filter(|name| *name != "HEAD") {
            let names = spread(name).unwrap_or_else(|| vec![name.clone()]);
            for name in names {
                script.push_str(&format!("option no-deref\ndelete {name}\n"));
            }
        }
        git(&["update-ref", "--stdin"], script)?;
        let commits = &self.repo.objects().commits;
        let mut script = String::new();
        let mut names: Vec<String> = match rng.below(8) {
            nested @ 0..3 => vec![NESTED[nested].into()],
            3 => spread(MANY[rng.below(MANY.len())]).expect("many"),
            _ => Vec::new(),
        };
        let oid = rng.pick(commits);
        names.extend(
            BRANCHES
                .iter()
                .filter(|_| rng.percent(70))
                .map(|it| (*it).into()),
        );
        for name in names {
            script.push_str(&format!("create {name} {oid}\n"));
        }
        if rng.percent(40) {
            script.push_str(&format!("symref-create {LINK} {}\n", rng.pick(&NESTED)));
        }
        if rng.percent(30) {
            let head = ["symbolic-ref", "HEAD", *rng.pick::<&str>(&BRANCHES)];
            git(&head, String::new())?;
        }
        git(&["update-ref", "--stdin"], script)?;
        if rng.percent(30) {
            git(&["pack-refs", "--all"], String::new())?;
        }
        Ok(())
    }
}

/// Runs a cell, for that long or until something is wrong. A round that has begun is finished.
pub(crate) fn run(cell: &Cell, time: Duration) -> Report {
    let begun = Instant::now();
    let mut rng = Rng::new(cell.seed);
    let is_linked = cell.kinds.contains(&Kind::Head) && rng.percent(40);
    let arena = Arena::new(cell.format, is_linked, rng.percent(50));
    let mut report = Report::default();
    let mut before = BTreeMap::new();
    while report.rounds == 0 || begun.elapsed() < time {
        let is_anew = report.rounds == 0 || rng.percent(60);
        if is_anew && cell.programs.contains(&Program::Git) && cell.format.refs == RefFormat::Files
        {
            arena.remove_left_logs();
        }
        if is_anew && let Err(why) = arena.prepare(&mut rng, &before) {
            let why = format!("after round {}: {why}", report.rounds);
            let is_refdbs = false;
            report.failure = Some(Failure { why, is_refdbs });
            return report;
        }
        report.rounds += 1;
        let round = report.rounds;
        match one_round(cell, &arena, &mut rng, &mut report) {
            Ok(after) => before = after,
            Err(Failure { why, is_refdbs }) => {
                let why = format!("round {round}: {why}");
                report.failure = Some(Failure { why, is_refdbs });
                return report;
            }
        }
    }
    let failure = |why| Failure {
        why,
        is_refdbs: false,
    };
    report.failure = listing::leftovers(&arena.repo).err().map(failure);
    report
}

fn quiet(why: String) -> String {
    format!("while nobody else was there: {why}")
}

/// Lets everybody do his work once; returns the refs afterwards.
fn one_round(
    cell: &Cell,
    arena: &Arena,
    rng: &mut Rng,
    report: &mut Report,
) -> Result<BTreeMap<String, Value>, Failure> {
    let first = listing::of_library(&arena.git_dir).and_then(Listing::settled);
    let first = first.map_err(|why| Failure {
        why: quiet(why),
        is_refdbs: false,
    })?;
    let first: BTreeMap<String, Value> = first.into_iter().collect();
    let start = Instant::now();
    let calls = play(cell, arena, &first, rng, start);
    examine(cell, arena, (first, calls), start, report)
}

/// Checks what everybody did, from the refs before it; returns the refs afterwards.
pub(crate) fn examine(
    cell: &Cell,
    arena: &Arena,
    (first, calls): (BTreeMap<String, Value>, Vec<Done>),
    start: Instant,
    report: &mut Report,
) -> Result<BTreeMap<String, Value>, Failure> {
    let is_migrating = cell.kinds.contains(&Kind::Migrate);
    let mut history = History {
        first,
        calls: Vec::new(),
    };
    let mut wrong = Vec::new();
    for done in calls {
        report.gave_up += u64::from(done.gave_up);
        report.broke_off += u64::from(done.broke_off);
        for call in &done.calls {
            match call.act {
                Act::List(_) => report.listings += 1,
                _ => report.operations += 1,
            }
            let took = call.ended - call.begun;
            if !is_migrating && done.gave_up && took > STALLED || took > STUCK {
                wrong.push(format!(
                    "{took:.1?} for this, and nobody held a lock: {call}"
                ));
            }
        }
        wrong.extend(done.odd);
        history.calls.extend(done.calls);
    }
    let is_refdbs = !wrong.is_empty();
    let after = settle(arena, start, &mut history).map_err(quiet);
    let isolation = match cell.format.refs {
        RefFormat::Reftable if !arena.is_linked && !is_migrating => Isolation::Snapshot,
        _ => Isolation::EachRef,
    };
    for seen in observers(&history, cell, isolation) {
        match check(&seen, isolation) {
            Ok(_) => {}
            Err(Fault::Undecided) => report.undecided += 1,
            Err(Fault::Wrong(why)) => wrong.push(why),
        }
    }
    match after {
        Ok(after) if wrong.is_empty() => return Ok(after.into_iter().collect()),
        Ok(_) => {}
        Err(why) => wrong.push(why),
    }
    // The first of each kind: what stands in the way of everybody is told by everybody.
    wrong.dedup();
    wrong.truncate(5);
    let place = if arena.is_linked {
        ", in a linked worktree"
    } else {
        ""
    };
    let why = format!("{}\n{isolation:?}{place}\n{history}", wrong.join("\n"));
    Err(Failure { why, is_refdbs })
}

/// Returns the history as each program's readers have it. A transaction of refdb with a journal is committed
/// when that is there: refdb reads from it what Git sees only when it is in its place, a moment later. So
/// where there are journals, readers of each program agree among themselves and with all writers.
fn observers(history: &History, cell: &Cell, isolation: Isolation) -> Vec<History> {
    let is_mixed = [Program::Refdb, Program::Git]
        .iter()
        .all(|program| cell.programs.contains(program));
    if !is_mixed || isolation == Isolation::Snapshot {
        return vec![history.clone()];
    }
    let without = |others: &[&str]| {
        let mut seen = history.clone();
        seen.calls
            .retain(|call| !others.contains(&call.who.as_str()));
        seen
    };
    vec![
        without(&["Git reads"]),
        without(&["Refdb reads", "library reads"]),
    ]
}

/// Reads everything when all are done, by Git and by the library.
pub(crate) fn settle(
    arena: &Arena,
    start: Instant,
    history: &mut History,
) -> Result<Vec<(String, Value)>, String> {
    let begun = start.elapsed();
    let mut note = |who: &str, listed: &[(String, Value)]| {
        history.calls.push(Call {
            who: who.into(),
            begun,
            ended: start.elapsed(),
            act: Act::List(listed.to_vec()),
        });
    };
    for program in [Program::Git, Program::Refdb] {
        let listed = listing::of_program(program, &arena.dir).and_then(Listing::settled)?;
        note(&format!("{program:?} at the end"), &listed);
    }
    let listed = listing::of_library(&arena.git_dir).and_then(Listing::settled)?;
    note("library at the end", &listed);
    Ok(listed)
}

/// Runs the workers and the readers; returns what they did.
fn play(
    cell: &Cell,
    arena: &Arena,
    first: &BTreeMap<String, Value>,
    rng: &mut Rng,
    start: Instant,
) -> Vec<Done> {
    let is_migrating = cell.kinds.contains(&Kind::Migrate);
    let mut fresh = arena.fresh(first);
    let other = fresh.split_off(fresh.len() / 2);
    let (done, together) = (AtomicBool::new(false), Barrier::new(2));
    let mut reading = cell.programs.to_vec();
    reading.dedup();
    let is_with_refdb = reading.contains(&Program::Refdb);
    std::thread::scope(|scope| {
        let mut workers = Vec::new();
        for (number, fresh) in [fresh, other].into_iter().enumerate() {
            let drawer = Drawer {
                rng: Rng::new(rng.next_u64()),
                fresh,
                first,
                hurry: is_migrating,
            };
            let actor = Actor {
                program: cell.programs[number],
                dir: &arena.dir,
                beside_migration: is_migrating,
                stop: None,
                start,
            };
            let kinds = (cell.kinds[number], cell.kinds[1 - number]);
            let (done, together) = (&done, &together);
            workers.push(scope.spawn(move || {
                together.wait();
                let all = work(actor, kinds, drawer, cell.format.refs, done);
                if kinds.0 == Kind::Migrate {
                    done.store(true, Ordering::SeqCst);
                }
                all
            }));
        }
        let dir = &arena.dir;
        let mut readers = vec![scope.spawn(|| watch(dir, &reading, start, &done))];
        if is_with_refdb && !is_migrating {
            readers.push(scope.spawn(|| listing::watch_by_library(&arena.git_dir, start, &done)));
        }
        let mut all: Vec<Done> = Vec::new();
        for worker in workers {
            all.extend(worker.join().expect("a worker does not panic"));
        }
        done.store(true, Ordering::SeqCst);
        for reader in readers {
            all.push(reader.join().expect("a reader does not panic"));
        }
        all
    })
}

fn work(
    actor: Actor<'_>,
    (kind, other): (Kind, Kind),
    mut drawer: Drawer<'_>,
    format: RefFormat,
    done: &AtomicBool,
) -> Vec<Done> {
    let most = match (kind, other) {
        (Kind::Migrate, _) => MIGRATIONS,
        (_, Kind::Migrate) => OPS_BESIDE_MIGRATION,
        _ => OPS,
    };
    let mut all = Vec::new();
    for _ in 0..most {
        if other == Kind::Migrate && done.load(Ordering::SeqCst) {
            break;
        }
        let op: Op = drawer.op(kind);
        all.push(actor.carry_out(&op, format));
        if other == Kind::Migrate {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    all
}

/// Lists with programs in turns until the workers are done.
fn watch(dir: &Path, programs: &[Program], start: Instant, done: &AtomicBool) -> Done {
    let mut seen = Done::default();
    for program in programs.iter().cycle() {
        if done.load(Ordering::SeqCst) || seen.calls.len() >= LISTINGS {
            break;
        }
        list(*program, dir, start, &mut seen);
    }
    seen
}

/// Lists with a program while others write. Git's failure to do so is not counted.
pub(crate) fn list(program: Program, dir: &Path, start: Instant, seen: &mut Done) {
    let begun = start.elapsed();
    match listing::beside_others(program, dir) {
        Ok(listed) => seen.calls.push(Call {
            who: format!("{program:?} reads"),
            begun,
            ended: start.elapsed(),
            act: Act::List(listed),
        }),
        Err(why) if program == Program::Refdb => seen.odd.push(why),
        Err(_) => {}
    }
}
