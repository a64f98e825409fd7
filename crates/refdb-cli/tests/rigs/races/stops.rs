//! Two operations of which the first is stopped at one of its system calls, while the second runs from its
//! beginning to its end, and goes on then: what a race meets once in a thousand rounds, each step of it in turn.
//!
//! The refs before and both operations are drawn from a seed, for refdb beside refdb and for refdb beside Git, whichever
//! is stopped. What is asked of the histories is asked of those of races (`mod.rs`). Where two Gits fail in the same
//! case, it is said and not counted.
//!
//! `REFDB_STOP_POINTS` says how many calls are tried, `REFDB_STOP_SEED` from which seed; `REFDB_STOP_CASE` tries every
//! call of one case. A failure says its case.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use std::{fs, thread};

use refdb::{LogOrder, RefName};
use refdb_testkit::Format;
use refdb_testkit::linear::{Edit, Value};
use refdb_testkit::oracle::{self, GitRun};
use refdb_testkit::ours;
use refdb_testkit::rng::Rng;
use refdb_testkit::trust::{Tally, budget};

use super::actor::{Actor, Done, How, Op, Program};
use super::draw::{Drawer, Kind};
use super::listing::{self, Listing};
use super::names::{BRANCHES, NESTED};
use super::planted::Bug;
use super::round::{self, Arena, Cell, Failure, Report};
use crate::kills;

/// How many calls every test run tries.
const SHORT: u64 = 800;

/// At most so many of them are of one case.
const OF_A_CASE: usize = 12;

const WHAT: &str = "races: points at which one is stopped";

/// What a program can touch that refs are in.
const OF_REFS: [&str; 6] = ["refs", "logs", "HEAD", "reftable", "refdb", "tables.list"];

/// What both do, and how often.
const KINDS: [Kind; 10] = [
    Kind::Create,
    Kind::Create,
    Kind::Delete,
    Kind::Delete,
    Kind::Rename,
    Kind::Rename,
    Kind::Symref,
    Kind::Head,
    Kind::Pack,
    Kind::Expire,
];

/// Where a process is stopped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stop<'a> {
    /// The call; none if it is only to be seen.
    pub(crate) at: Option<&'a kills::Call>,
    /// Where strace writes what it sees.
    pub(crate) log: &'a Path,
}

impl Stop<'_> {
    /// Begins a run of refdb that is stopped.
    pub(crate) fn run_refdb(self, dir: &Path) -> GitRun {
        self.run(Program::Refdb, dir)
    }

    /// Begins a run that is stopped.
    pub(crate) fn run(self, program: Program, dir: &Path) -> GitRun {
        // Not in the repository: a migration waits for whoever is at work there.
        let run = oracle::run_of("/usr/bin/strace", "/");
        let mut run = run.args(["-f", "-qq", "-o"]).arg(self.log);
        if let Some((call, nth)) = self.at {
            let inject = format!("inject={call}:signal=SIGSTOP:when={nth}");
            run = run.args(["-e", &format!("trace={call}"), "-e", &inject]);
        }
        let run = run.arg(match program {
            Program::Refdb => Path::new(env!("CARGO_BIN_EXE_refdb")),
            Program::Git | Program::Planted(_) => oracle::program(),
        });
        run.arg("-C").arg(dir)
    }
}

/// Runs `first`, of whose stop strace tells in the pipe `log`, and `second` while it is stopped; returns what the first
/// comes to.
pub(crate) fn while_stopped<T: Send>(
    log: &Path,
    first: impl FnOnce() -> T + Send,
    second: impl FnOnce(),
) -> T {
    let made = Command::new("mkfifo").arg(log).status();
    assert!(made.is_ok_and(|made| made.success()), "no pipe can be made");
    thread::scope(|scope| {
        let first = scope.spawn(first);
        let (mut second, mut done) = (Some(second), Ok(()));
        let seen = fs::File::open(log).expect("strace writes into it");
        for line in BufReader::new(seen).lines() {
            let line = line.expect("strace writes text");
            let Some((process, _)) = line.split_once(" --- stopped by SIGSTOP") else {
                continue;
            };
            if let Some(second) = second.take() {
                // Whatever comes of it, the first goes on: nobody would end it.
                done = catch_unwind(AssertUnwindSafe(second));
            }
            // All of its threads go on with the first; one may have ended when its line is read.
            let _ = Command::new("kill")
                .args(["-CONT", process.trim()])
                .output();
        }
        let first = first.join().expect("no panic");
        done.unwrap_or_else(|panic| resume_unwind(panic));
        first
    })
}

/// The refs before, and two operations.
struct Case {
    cell: Cell,
    base: Arena,
    first: BTreeMap<String, Value>,
    ops: [Op; 2],
}

impl Case {
    /// Draws one; `None` if nothing can be drawn from this seed.
    fn draw(format: Format, programs: [Program; 2], seed: u64) -> Option<Case> {
        let mut rng = Rng::new(seed);
        let base = Arena::new(format, false, rng.percent(50));
        base.hurry();
        base.prepare(&mut rng, &BTreeMap::new()).ok()?;
        // Most that can go wrong is between names that are in each other's way, and packed.
        if rng.percent(60) {
            let (name, commit) = (*rng.pick(&NESTED), &base.repo.objects().commits[0]);
            let _ = base.repo.git(["update-ref", name, commit]).run();
        }
        if rng.percent(40) {
            base.repo.git(["pack-refs", "--all"]).run().ok();
        }
        let first = listing::of_library(&base.git_dir)
            .and_then(Listing::settled)
            .ok()?;
        let first: BTreeMap<String, Value> = first.into_iter().collect();
        let mut kinds = [(); 2].map(|()| *rng.pick(&KINDS));
        // Git says of its migration that it is not safe beside writers, and is not asked for one.
        if programs == [Program::Refdb; 2] && rng.percent(20) {
            kinds[rng.below(2)] = Kind::Migrate;
        }
        let mut fresh = base.fresh(&first);
        let ops = kinds.map(|kind| {
            let mut drawer = Drawer {
                rng: Rng::new(rng.next_u64()),
                fresh: fresh.split_off(fresh.len() / 2),
                first: &first,
                hurry: true,
            };
            drawer.op(kind)
        });
        let cell = Cell {
            format,
            programs,
            kinds,
            seed,
        };
        Some(Case {
            cell,
            ops,
            first,
            base,
        })
    }

    /// Returns the calls by which the first operation touches refs, if nobody is beside it.
    fn calls(&self) -> Vec<kills::Call> {
        let arena = self.base.duplicate();
        let log = arena.repo.path().join("strace");
        let stop = Stop {
            at: None,
            log: &log,
        };
        let alone = self.actor(0, &arena, Some(stop), Instant::now());
        let _ = alone.carry_out(&self.ops[0], self.cell.format.refs);
        let log = fs::read_to_string(&log).unwrap_or_default();
        let touches = |line: &&str| OF_REFS.iter().any(|word| line.contains(word));
        let numbered = kills::calls(&log).into_iter();
        let lines = log.lines().filter(|line| kills::calls(line).len() == 1);
        let all = numbered.zip(lines);
        all.filter(|(_, line)| touches(line) && !line.contains("execve"))
            .map(|(call, _)| call)
            .collect()
    }

    fn actor<'a>(
        &self,
        index: usize,
        arena: &'a Arena,
        stop: Option<Stop<'a>>,
        start: Instant,
    ) -> Actor<'a> {
        Actor {
            program: self.cell.programs[index],
            dir: &arena.dir,
            beside_migration: self.cell.kinds.contains(&Kind::Migrate),
            stop,
            start,
        }
    }

    /// Stops the first at a call and lets the second come before it goes on.
    fn stop_at(&self, at: &kills::Call) -> Result<(), Failure> {
        let format = self.cell.format.refs;
        let arena = self.base.duplicate();
        let log = arena.repo.path().join("calls");
        let stop = Stop {
            at: Some(at),
            log: &log,
        };
        let start = Instant::now();
        let first = self.actor(0, &arena, Some(stop), start);
        let mut done = Vec::new();
        let first = while_stopped(
            &log,
            move || first.carry_out(&self.ops[0], format),
            || {
                let second = self.actor(1, &arena, None, start);
                done.push(second.carry_out(&self.ops[1], format));
                done.push(self.listed(&arena, start));
            },
        );
        done.push(first);
        let calls = (self.first.clone(), done);
        let after = round::examine(&self.cell, &arena, calls, start, &mut Report::default())?;
        let is_refdbs = self.cell.programs == [Program::Refdb; 2];
        let mut found = listing::leftovers(&arena.repo);
        if is_refdbs {
            found = found.and_then(|()| reflogs_agree(&arena, &after));
        }
        found.map_err(|why| Failure {
            why: format!("{why} ({:?})", self.ops),
            is_refdbs,
        })
    }

    /// Lists all refs while the first is stopped, with the programs that are at work: refdb shows what was
    /// committed a moment before Git does (`round`).
    fn listed(&self, arena: &Arena, start: Instant) -> Done {
        let mut programs = self.cell.programs.to_vec();
        programs.dedup();
        let mut done = Done::default();
        for program in programs {
            round::list(program, &arena.dir, start, &mut done);
        }
        done.odd.extend(self.missed_by_git(arena));
        done
    }

    /// Says which refs Git does not find by their names that were there at the beginning, and are there for refdb:
    /// what goes into another place has one all the time.
    fn missed_by_git(&self, arena: &Arena) -> Option<String> {
        let listed = listing::beside_others(Program::Refdb, &arena.dir).ok()?;
        let is_meant = |name: &str| NESTED.contains(&name) || BRANCHES.contains(&name);
        let stay = listed.iter().filter(|(name, value)| {
            is_meant(name) && matches!(value, Value::Oid(_)) && self.first.contains_key(name)
        });
        let stay: Vec<&str> = stay.map(|(name, _)| name.as_str()).collect();
        let missed = kills::missed_by_git(&arena.dir, &stay);
        (!missed.is_empty()).then(|| format!("Git does not find {missed:?}"))
    }

    /// Returns how two Gits fail in this case, if they do.
    fn by_git_alone(&self) -> Option<String> {
        let case = Case::draw(self.cell.format, [Program::Git; 2], self.cell.seed)?;
        case.calls()
            .iter()
            .find_map(|at| Some(format!("at {at:?}: {}", case.stop_at(at).err()?.why)))
    }
}

/// Makes sure that the newest entry of each reflog is about the value that its ref has.
fn reflogs_agree(arena: &Arena, refs: &BTreeMap<String, Value>) -> Result<(), String> {
    let repository = ours::open(&arena.git_dir);
    for (name, value) in refs
        .iter()
        .filter(|(name, _)| name.starts_with("refs/heads/"))
    {
        let Value::Oid(oid) = value else { continue };
        let name = RefName::new(name).map_err(|error| error.to_string())?;
        let log = repository.store().log(name, LogOrder::NewestFirst);
        let log = log.map_err(|error| error.to_string())?;
        let newest = log
            .iter()
            .flatten()
            .next()
            .map(|entry| entry.new.to_string());
        if newest.as_ref().is_some_and(|newest| newest != oid) {
            return Err(format!(
                "{name} is {oid}, and its reflog ends with {newest:?}"
            ));
        }
    }
    Ok(())
}

/// Tries a case at some of its calls, or at all; returns how many were tried, and what is wrong.
fn try_case(case: &Case, most: usize, rng: &mut Rng) -> (u64, Option<(String, Failure)>) {
    let mut calls = case.calls();
    while calls.len() > most {
        calls.swap_remove(rng.below(calls.len()));
    }
    let mut count = 0;
    for at in &calls {
        count += 1;
        if let Err(failure) = case.stop_at(at) {
            return (count, Some((format!("{at:?}"), failure)));
        }
    }
    (count, None)
}

/// Draws cases until so many calls were tried.
fn try_all(format: Format) {
    let seed = budget("REFDB_STOP_SEED", 1);
    if !kills::can_kill(WHAT, seed) {
        return;
    }
    let most = budget("REFDB_STOP_POINTS", SHORT) / 2;
    let only = std::env::var("REFDB_STOP_CASE").ok();
    let only: Option<u64> = only.map(|seed| seed.parse().expect("a number"));
    let tally = Mutex::new(Tally::begin(WHAT, seed));
    let (next, failures) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let pairs = [
        [Program::Git, Program::Refdb],
        [Program::Refdb, Program::Git],
        [Program::Refdb, Program::Refdb],
    ];
    let turn = || {
        let number = next.fetch_add(1, Ordering::SeqCst);
        if only.is_some() && number >= 3 || tally.lock().expect("no panic").count() >= most {
            return false;
        }
        let of_case = only.unwrap_or_else(|| Rng::new(seed ^ (number / 3) << 20).next_u64() >> 1);
        let programs = pairs[usize::try_from(number % 3).expect("small")];
        let Some(case) = Case::draw(format, programs, of_case) else {
            return true;
        };
        let of_one = if only.is_some() {
            usize::MAX
        } else {
            OF_A_CASE
        };
        let (count, failed) = try_case(&case, of_one, &mut Rng::new(number));
        tally.lock().expect("no panic").add(count);
        if let Some((at, failure)) = failed {
            let title = format!("{}, case {of_case}, stopped at {at}", case.cell);
            let may_be_gits = !failure.is_refdbs && programs.contains(&Program::Git);
            match may_be_gits.then(|| case.by_git_alone()).flatten() {
                Some(of_git) => {
                    let first = of_git.lines().next().unwrap_or_default();
                    eprintln!("of Git, and not counted: {title}: {first}");
                }
                None => {
                    let why = format!("{title}: {}\n{:?}", failure.why, case.ops);
                    eprintln!("FAILED {why}\n");
                    failures.lock().expect("no panic").push(why);
                }
            }
        }
        true
    };
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| while turn() {});
        }
    });
    let tried = tally.lock().expect("no panic").count();
    eprintln!(
        "{format}, seed {seed}: stopped at {tried} calls of {} cases",
        next.into_inner()
    );
    let failures = failures.into_inner().expect("no panic");
    assert!(
        failures.is_empty(),
        "{} cases failed:\n{}",
        failures.len(),
        failures.join("\n\n")
    );
}

#[test]
fn every_step_may_be_the_last_before_another_program_in_files() {
    try_all(Format::FILES_SHA1);
}

#[test]
fn every_step_may_be_the_last_before_another_program_in_reftable() {
    try_all(Format::REFTABLE_SHA1);
}

/// Stops the first of two operations at every call of some names, where there is one ref and two branches.
fn try_every(programs: [Program; 2], kinds: [Kind; 2], ops: [Op; 2], names: &[&str]) {
    if !kills::can_kill(WHAT, 0) {
        return;
    }
    let base = Arena::new(Format::FILES_SHA1, false, true);
    let commit = &base.repo.objects().commits[0];
    for name in NESTED[..1].iter().chain(&BRANCHES) {
        base.repo.git(["update-ref", name, commit]).run().ok();
    }
    base.hurry();
    let first = listing::of_library(&base.git_dir).and_then(Listing::settled);
    let case = Case {
        cell: Cell {
            format: Format::FILES_SHA1,
            programs,
            kinds,
            seed: 0,
        },
        base,
        first: first.expect("nobody else is there").into_iter().collect(),
        ops,
    };
    let mut calls = case.calls();
    calls.retain(|(call, _)| names.contains(&call.as_str()));
    assert!(calls.len() > 8, "{calls:?}");
    // Many at once: a migration beside which somebody wrote waits for more of that.
    let case = &case;
    thread::scope(|scope| {
        for some in calls.chunks(calls.len().div_ceil(8)) {
            scope.spawn(move || {
                for at in some {
                    let stopped = case.stop_at(at);
                    stopped.unwrap_or_else(|failure| panic!("{at:?}: {}", failure.why));
                }
            });
        }
    });
}

/// A migration that lists the refs while one gets a name below its own sees both, and may not take that for damage.
#[test]
fn a_ref_that_is_renamed_meanwhile_is_migrated() {
    let [name, below, _] = NESTED;
    let ops = [Op::Migrate, Op::Rename(name.into(), below.into())];
    let kinds = [Kind::Migrate, Kind::Rename];
    try_every([Program::Refdb; 2], kinds, ops, &["openat"]);
}

/// A ref that gets a name below its own does not come back when another program deletes it meanwhile.
#[test]
fn a_ref_that_is_deleted_meanwhile_does_not_come_back() {
    let [name, _, below] = NESTED;
    let delete = || Op::Write(vec![Edit::delete(name)], How::Plain);
    let rename = || Op::Rename(name.into(), below.into());
    let names = [
        "openat",
        "openat2",
        "unlink",
        "unlinkat",
        "rename",
        "link",
        "linkat",
        "read",
        "newfstatat",
    ];
    for other in [Program::Git, Program::Refdb] {
        let programs = [other, Program::Refdb];
        try_every(
            programs,
            [Kind::Delete, Kind::Rename],
            [delete(), rename()],
            &names,
        );
        let programs = [Program::Refdb, other];
        try_every(
            programs,
            [Kind::Rename, Kind::Delete],
            [rename(), delete()],
            &names,
        );
    }
}

/// A writer that looks for names in the way, and then packs a new ref under the lock of packed-refs alone.
#[test]
fn a_step_without_its_lock_is_noticed() {
    if !kills::can_kill("races: planted", 0) {
        return;
    }
    let programs = [Program::Git, Program::Planted(Bug::PacksUnlocked)];
    for seed in 0..400 {
        let case = Case::draw(Format::FILES_SHA1, programs, seed);
        let Some(case) = case.filter(|case| case.cell.kinds == [Kind::Create; 2]) else {
            continue;
        };
        if let (_, Some((_, failure))) = try_case(&case, usize::MAX, &mut Rng::new(seed)) {
            assert!(failure.why.contains("no order explains"), "{}", failure.why);
            return;
        }
    }
    panic!("it was not noticed");
}
