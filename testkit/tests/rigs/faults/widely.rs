//! The same at every operation with every kind of failure, and many losses of power at each: most of
//! them leave a disk that was looked at before, and is not looked at again. Such a disk has the same
//! names and contents and the same answer was given; all that differs are times.
//!
//! `REFDB_POWER_SEEDS` says how many losses of power are drawn at each operation, and
//! `REFDB_POWER_SEED` from which seed on; `REFDB_FAULT_WORKLOADS` how many workloads are drawn beside
//! those that are named, and `REFDB_FAULT_SEED` from which seed on.

#![allow(clippy::print_stderr, reason = "says what was tried")]

use std::collections::HashSet;

use refdb_testkit::trust::{Tally, budget};
use rustix::io::Errno;

use super::*;

/// How many losses of power are drawn at each operation in every test run, and how many workloads.
const SHORT: u64 = 10;
const SHORT_WORKLOADS: u64 = 3;

/// What was looked at: a disk, and what was said about it.
type Seen = HashSet<(u64, u8)>;

/// Returns what fails, and whether it fails from then on as well. Each operation has every failure, and in a
/// short run half of them last: at the next operation, the other half.
fn kinds(turn: usize, is_long: bool) -> Vec<(Failure, bool)> {
    let errors = [
        Errno::IO,
        Errno::NOSPC,
        Errno::ACCESS,
        Errno::MFILE,
        Errno::DQUOT,
        Errno::ROFS,
        Errno::NOMEM,
        Errno::STALE,
    ];
    let errors = errors.map(Failure::Errno).into_iter();
    let failures = errors.chain([1, 7].map(Failure::Short));
    let mut kinds = Vec::new();
    for (number, failure) in failures.enumerate() {
        let lasts = [false, true].into_iter();
        let lasts = lasts.filter(|&lasts| is_long || lasts == (number + turn).is_multiple_of(2));
        kinds.extend(lasts.map(|lasts| (failure, lasts)));
    }
    // What is interrupted again and again never ends, here as in the system.
    kinds.push((Failure::Errno(Errno::INTR), false));
    kinds
}

/// What was said, as far as it matters for what must be found.
fn said(done: &Result<Acknowledged>) -> u8 {
    match done {
        Ok(true) => 0,
        Ok(false) => 1,
        Err(error) if error.to_string().contains("committed in part") => 2,
        Err(_) => 3,
    }
}

impl Case {
    /// Lets the operation `at` fail, and those after it too if the failure is persistent; then the
    /// process ends.
    fn fail_widely_at(&self, at: u64, failure: Failure, persistent: bool, seen: &mut Seen) {
        let system = self.base.fork();
        system.set_fault(Some(Fault {
            at,
            failure,
            persistent,
        }));
        let done = self.run(&system);
        system.set_fault(None);
        system.end();
        if !seen.insert((system.fingerprint(), said(&done))) {
            return;
        }
        let name = &self.workload.name;
        let context = format!("{name}, operation {at}, {failure:?}, from then on: {persistent}");
        if done.is_ok() {
            assert_eq!(state(&system, self.format), self.new, "{context}");
        } else {
            let (old, new) = self.sides();
            let found = self.state(&system);
            assert_between(&found, &old, &new, self.is_at_once(), &context);
        }
        self.assert_works(&system, &context);
    }

    /// Lets power fail before an operation, in many ways; returns how many were tried.
    fn lose_power_widely_at(&self, at: u64, seeds: std::ops::Range<u64>, seen: &mut Seen) -> u64 {
        let (old, new) = self.sides();
        let system = self.base.fork();
        system.set_fault(Some(Fault::dies_at(at)));
        let done = self.run(&system);
        let acknowledged = done.as_ref().is_ok_and(|&acknowledged| acknowledged);
        let prefixes = (0..=system.pending_names()).flat_map(|count| {
            [Content::Durable, Content::Zeros, Content::Full].map(|content| Crash {
                names: Names::First(count),
                content,
                seed: at,
            })
        });
        let mut tried = 0;
        for crash in prefixes.chain(seeds.map(Crash::seeded)) {
            tried += 1;
            let after = system.crash(crash);
            if !seen.insert((after.fingerprint(), u8::from(acknowledged))) {
                continue;
            }
            let context = format!("{}, operation {at}, {crash:?}", self.workload.name);
            if acknowledged {
                assert_eq!(state(&after, self.format), self.new, "{context}");
            } else {
                let found = self.state(&after);
                assert_between(&found, &old, &new, self.is_at_once(), &context);
            }
        }
        tried
    }

    /// With the second hash every other operation is enough: what differs is that directories are locked.
    fn stride(&self) -> usize {
        match self.format.objects == ObjectFormat::Sha1 {
            true => 1,
            false => 2,
        }
    }
}

fn every_failure(format: Format) {
    let first = budget("REFDB_FAULT_SEED", 0);
    let workloads = budget("REFDB_FAULT_WORKLOADS", SHORT_WORKLOADS);
    let (seeds, is_long) = (first..first + workloads, workloads > SHORT_WORKLOADS);
    let mut tally = Tally::begin("fault points", first);
    let drawn = seeds.map(|seed| drawn::case(format, seed));
    for case in Case::all(format).into_iter().chain(drawn) {
        let mut seen = Seen::new();
        for (turn, at) in (0..case.ops).step_by(case.stride()).enumerate() {
            for (failure, persistent) in kinds(turn, is_long) {
                case.fail_widely_at(at, failure, persistent, &mut seen);
                tally.add(1);
            }
        }
    }
    eprintln!("{} fault points in {format}", tally.count());
}

fn every_loss_of_power(format: Format) {
    let first = budget("REFDB_POWER_SEED", 1);
    let seeds = first..first + budget("REFDB_POWER_SEEDS", SHORT);
    let mut tally = Tally::begin("power-failure states", first);
    let mut different = 0;
    for case in Case::all(format) {
        let mut seen = Seen::new();
        for at in (0..=case.ops).step_by(case.stride()) {
            tally.add(case.lose_power_widely_at(at, seeds.clone(), &mut seen));
        }
        different += seen.len();
    }
    eprintln!(
        "{} power-failure states in {format}, {different} of them different",
        tally.count()
    );
}

macro_rules! widely {
    ($($name:ident: $check:ident($format:ident);)*) => {
        $(#[test]
        fn $name() {
            $check(Format::$format);
        })*
    };
}

widely! {
    every_failure_in_files: every_failure(FILES_SHA1);
    every_failure_in_files_with_sha256: every_failure(FILES_SHA256);
    every_failure_in_reftable: every_failure(REFTABLE_SHA1);
    every_failure_in_reftable_with_sha256: every_failure(REFTABLE_SHA256);
    every_loss_of_power_in_files: every_loss_of_power(FILES_SHA1);
    every_loss_of_power_in_files_with_sha256: every_loss_of_power(FILES_SHA256);
    every_loss_of_power_in_reftable: every_loss_of_power(REFTABLE_SHA1);
    every_loss_of_power_in_reftable_with_sha256: every_loss_of_power(REFTABLE_SHA256);
}
