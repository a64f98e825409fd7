//! Two programs in one repository: refdb beside refdb, and refdb beside Git, each creating,
//! deleting, renaming, changing symrefs or `HEAD`, packing, expiring or migrating, in every pair of
//! these (a cell), on names that are in each other's way. Transactions come plain, prepared and in
//! batches of many refs. Other processes and threads list all refs meanwhile.
//!
//! 1. The history of each round is linearizable across all names (`refdb_testkit::linear`): a name
//!    and one below it never both exist, no update or deletion is lost, nothing is acknowledged
//!    that did not happen, no name is listed twice.
//! 2. Nobody waits for a lock whose holder waits for him.
//! 3. No failure of refdb is other than a refusal or somebody's lock, and nothing is left behind.
//!
//! Where two Gits break the first in the same cell, it is said and not counted.
//!
//! `REFDB_RACE_SECONDS` says how long the matrix takes, `REFDB_RACE_SEED` from which seed,
//! `REFDB_RACE_CELL` which cells (a part of their title). A cell that fails says its seed:
//! `REFDB_RACE_CELL_SEED` draws the same again, in short turns.

#![allow(clippy::print_stderr, reason = "says what was tried")]

mod actor;
mod draw;
mod gits_own;
mod listing;
mod names;
mod planted;
mod round;
mod staged;
pub(crate) mod stops;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use refdb_testkit::Format;
use refdb_testkit::rng::Rng;
use refdb_testkit::trust::{Tally, budget};

use actor::Program;
use draw::Kind;
use round::{Cell, Failure, Report};

/// How many seconds the matrix takes in every test run, half of them for each format. It goes on until each format
/// had so many rounds: what a run has tried does not depend on how busy the machine was.
const SHORT: u64 = 60;
const SHORT_ROUNDS: u64 = 300;

/// A cell takes at most so long before the next one has its turn.
const TURN: Duration = Duration::from_secs(3);

/// One that is drawn again from the same seed begins anew so soon: it failed in one of its first rounds.
const TURN_AGAIN: Duration = Duration::from_millis(300);

/// Of a hundred seconds so many are for migrations, each of which takes two.
const MIGRATIONS: u32 = 20;

/// So many times as long two Gits are tried where something was wrong beside one, and so long at least: in a short
/// run a cell has its turn for less than a second, and what two Gits do wrong is as rare as that.
const PATIENCE: u32 = 8;
const PATIENCE_MIN: Duration = Duration::from_secs(24);

/// The two formats one after the other: each race needs the machine for itself.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Lists all cells of a format: whether Git takes part, and what both do.
fn cells(format: Format) -> Vec<Cell> {
    let mut cells = Vec::new();
    for one in Kind::ALL {
        for other in Kind::ALL {
            let cell = |programs| Cell {
                format,
                programs,
                kinds: [one, other],
                seed: 0,
            };
            if one <= other {
                cells.push(cell([Program::Refdb, Program::Refdb]));
            }
            // Git's migration says itself that it is not safe beside writers.
            if other != Kind::Migrate {
                cells.push(cell([Program::Refdb, Program::Git]));
            }
        }
    }
    cells
}

/// What all cells of a format came to.
#[derive(Debug, Default)]
struct Sum {
    cells: u64,
    report: Report,
    failures: Vec<String>,
    gits_own: BTreeMap<String, String>,
}

impl Sum {
    fn add(&mut self, cell: &Cell, report: Report, time: Duration) {
        self.cells += 1;
        self.report.rounds += report.rounds;
        self.report.operations += report.operations;
        self.report.listings += report.listings;
        self.report.gave_up += report.gave_up;
        self.report.broke_off += report.broke_off;
        self.report.undecided += report.undecided;
        let Some(Failure { why, is_refdbs }) = report.failure else {
            return;
        };
        // A name that is new cannot be locked before it is there: what Git makes in a directory of files
        // while these are frozen is seen again when it was carried over (docs/design.md, 11).
        if !is_refdbs
            && cell.programs.contains(&Program::Git)
            && cell.kinds.contains(&Kind::Migrate)
        {
            self.gits_own.insert(cell.to_string(), why);
            return;
        }
        if !is_refdbs
            && cell.programs.contains(&Program::Git)
            && let Some(of_git) = by_git_alone(cell, time * PATIENCE)
        {
            self.gits_own.insert(cell.to_string(), of_git);
            return;
        }
        let failure = format!("{cell}, seed {}, {why}", cell.seed);
        eprintln!("FAILED {failure}\n");
        self.failures.push(failure);
    }
}

/// Tries the same with two Gits.
fn by_git_alone(cell: &Cell, time: Duration) -> Option<String> {
    let alone = Cell {
        programs: [Program::Git, Program::Git],
        ..*cell
    };
    let report = round::run(&alone, time.max(PATIENCE_MIN));
    report.failure.map(|failure| failure.why)
}

/// Runs the cells in turns until the time is over.
#[expect(clippy::too_many_lines, reason = "one run, and what it reports")]
fn matrix(format: Format) {
    let _alone = ONE_AT_A_TIME.lock();
    let total = Duration::from_secs(budget("REFDB_RACE_SECONDS", SHORT)) / 2;
    if total.is_zero() {
        eprintln!("{format}: no race was run, as REFDB_RACE_SECONDS says");
        return;
    }
    let seed = budget("REFDB_RACE_SEED", 1);
    let only = std::env::var("REFDB_RACE_CELL").unwrap_or_default();
    let is_short = only.is_empty() && std::env::var_os("REFDB_RACE_SECONDS").is_none();
    let rounds_min = if is_short { SHORT_ROUNDS } else { 0 };
    let again = std::env::var("REFDB_RACE_CELL_SEED");
    let again: Option<u64> = again.ok().map(|seed| seed.parse().expect("a number"));
    let turn_max = again.map_or(TURN, |_| TURN_AGAIN);
    let mut tally = Tally::begin("races: rounds", seed);
    let mut operations = Tally::begin("races: operations", seed);
    let mut all = cells(format);
    all.retain(|cell| cell.to_string().contains(&only));
    assert!(!all.is_empty(), "no cell has {only:?} in its title");
    let (migrating, mut quick): (Vec<Cell>, Vec<Cell>) = all
        .into_iter()
        .partition(|cell| cell.kinds.contains(&Kind::Migrate));
    let mut sum = Sum::default();
    let begun = Instant::now();
    let mut rng = Rng::new(seed);
    let mut next = rng.below(migrating.len().max(1));
    while begun.elapsed() < total || sum.report.rounds < rounds_min {
        shuffle(&mut quick, &mut rng);
        let left = total.saturating_sub(begun.elapsed());
        let share = if quick.is_empty() { 100 } else { MIGRATIONS };
        let for_migrations = left.min(turn_max * 80) * share / 100;
        let for_quick = left.saturating_sub(for_migrations);
        let turn = (for_quick / u32::try_from(quick.len().max(1)).expect("few")).min(turn_max);
        let turn_began = Instant::now();
        while !migrating.is_empty() && turn_began.elapsed() < for_migrations {
            let seed = again.unwrap_or_else(|| rng.next_u64() >> 1);
            let cell = Cell {
                seed,
                ..migrating[next % migrating.len()]
            };
            sum.add(&cell, round::run(&cell, Duration::ZERO), turn);
            next += 1;
        }
        for cell in &quick {
            let seed = again.unwrap_or_else(|| rng.next_u64() >> 1);
            let cell = Cell { seed, ..*cell };
            sum.add(&cell, round::run(&cell, turn), turn);
        }
    }
    tally.add(sum.report.rounds);
    operations.add(sum.report.operations);
    let Sum {
        cells,
        report,
        failures,
        gits_own,
    } = sum;
    eprintln!(
        "{format}, seed {seed}: {cells} cells, {} rounds, {} operations ({} gave way, {} after \
         they had been prepared), {} listings, {} undecided",
        report.rounds,
        report.operations,
        report.gave_up,
        report.broke_off,
        report.listings,
        report.undecided
    );
    for (cell, why) in gits_own {
        let first = why.lines().next().unwrap_or_default();
        eprintln!("of Git, and not counted: {cell}: {first}");
    }
    assert!(
        report.undecided * 50 <= report.rounds,
        "too many rounds were not decided"
    );
    assert!(
        failures.is_empty(),
        "{} cells of {format} failed:\n\n{}",
        failures.len(),
        failures.join("\n\n")
    );
}

fn shuffle(cells: &mut [Cell], rng: &mut Rng) {
    for last in (1..cells.len()).rev() {
        cells.swap(last, rng.below(last + 1));
    }
}

#[test]
fn every_cell_is_linearizable_in_files() {
    matrix(Format::FILES_SHA1);
}

#[test]
fn every_cell_is_linearizable_in_reftable() {
    matrix(Format::REFTABLE_SHA1);
}
