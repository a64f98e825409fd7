//! Runs the targets on mutations of good inputs.
//!
//!     cargo run --release -- list
//!     cargo run --release -- run TARGET|all [--seconds N] [--executions N] [--seed S]
//!     cargo run --release -- repeat TARGET FILE
//!     cargo run --release -- planted
//!
//! The same seed and number of executions give the same inputs everywhere. An input that fails is
//! kept as a file in `failures`, and the exit code is 1. The memory of the process is limited.
//! `planted` runs what must fail, and fails if it does not.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use refdb_fuzz::rng::Rng;
use refdb_fuzz::{PLANTED, TARGETS, Target, target};
use rustix::process::{Resource, Rlimit, setrlimit};

/// How much memory the process may have, and how long an execution may take.
const MEMORY: u64 = 2 << 30;
const LONG: Duration = Duration::from_secs(10);

/// How many inputs are kept to make others from.
const POOL: usize = 256;

struct Limits {
    seconds: u64,
    executions: u64,
    seed: u64,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["list"] => {
            TARGETS
                .iter()
                .for_each(|target| println!("{}", target.name));
            ExitCode::SUCCESS
        }
        ["run", which, rest @ ..] => run_all(which, rest),
        ["planted"] => run_planted(),
        ["repeat", which, file] => {
            let bytes = std::fs::read(file).expect("the input can be read");
            (target(which).expect("a target of that name").run)(&bytes);
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!(
                "usage: list | run TARGET|all [--seconds N] [--executions N] [--seed S] | \
                 repeat TARGET FILE | planted"
            );
            ExitCode::from(129)
        }
    }
}

fn run_all(which: &str, options: &[&str]) -> ExitCode {
    let mut limits = Limits {
        seconds: u64::MAX,
        executions: u64::MAX,
        seed: 1,
    };
    for pair in options.chunks(2) {
        let number = pair.get(1).and_then(|text| text.parse().ok());
        match (pair[0], number) {
            ("--seconds", Some(number)) => limits.seconds = number,
            ("--executions", Some(number)) => limits.executions = number,
            ("--seed", Some(number)) => limits.seed = number,
            _ => {
                eprintln!("not understood: {pair:?}");
                return ExitCode::from(129);
            }
        }
    }
    let memory = Rlimit {
        current: Some(MEMORY),
        maximum: Some(MEMORY),
    };
    setrlimit(Resource::As, memory).expect("less memory can always be had");
    let chosen: Vec<&Target> = TARGETS
        .iter()
        .filter(|target| which == "all" || target.name == which)
        .collect();
    if chosen.is_empty() {
        eprintln!("no such target: {which}");
        return ExitCode::from(129);
    }
    let mut code = ExitCode::SUCCESS;
    for target in chosen {
        if !run(target, &limits) {
            code = ExitCode::FAILURE;
        }
    }
    code
}

/// After so many executions a planted bug must have shown.
const PLANTED_EXECUTIONS: u64 = 20_000;

fn run_planted() -> ExitCode {
    // Their panics are what is wanted.
    std::panic::set_hook(Box::new(|_| {}));
    let mut code = ExitCode::SUCCESS;
    for target in PLANTED {
        let mut inputs = Inputs::new(target, 1);
        let caught = (1..=PLANTED_EXECUTIONS).find(|_| {
            let input = inputs.next();
            let done = catch_unwind(AssertUnwindSafe(|| (target.run)(&input)));
            inputs.passed(input);
            done.is_err()
        });
        match caught {
            Some(after) => println!("{}: caught after {after} executions", target.name),
            None => {
                eprintln!("{}: not caught", target.name);
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

/// The inputs of a target: first the good ones, then mutations.
struct Inputs {
    rng: Rng,
    seeds: usize,
    pool: Vec<Vec<u8>>,
    given: usize,
}

impl Inputs {
    fn new(target: &Target, seed: u64) -> Inputs {
        let pool = (target.seeds)();
        Inputs {
            rng: Rng::new(seed),
            seeds: pool.len(),
            pool,
            given: 0,
        }
    }

    fn next(&mut self) -> Vec<u8> {
        self.given += 1;
        if self.given <= self.seeds {
            return self.pool[self.given - 1].clone();
        }
        let mut input = self.pool[self.rng.below(self.pool.len())].clone();
        let other = self.rng.below(self.pool.len());
        self.rng.mutate(&mut input, &self.pool[other]);
        input
    }

    /// Keeps some of the inputs with which nothing was wrong: later ones are several mutations away
    /// from the good ones.
    fn passed(&mut self, input: Vec<u8>) {
        if input.len() < 1 << 16 && self.rng.below(32) == 0 {
            let place = self.rng.below(POOL);
            match self.pool.get_mut(self.seeds + place) {
                Some(old) => *old = input,
                None => self.pool.push(input),
            }
        }
    }
}

/// Runs one target; prints what came of it, and returns whether nothing failed.
fn run(target: &Target, limits: &Limits) -> bool {
    let mut inputs = Inputs::new(target, limits.seed);
    let (started, mut executions, mut failures) = (Instant::now(), 0, 0);
    while executions < limits.executions && started.elapsed().as_secs() < limits.seconds {
        let input = inputs.next();
        executions += 1;
        let began = Instant::now();
        let done = catch_unwind(AssertUnwindSafe(|| (target.run)(&input)));
        let took = began.elapsed();
        if done.is_err() || took > LONG {
            failures += 1;
            keep(target.name, limits.seed, executions, &input, took);
            if failures == 5 {
                break;
            }
        } else {
            inputs.passed(input);
        }
    }
    let (name, seed) = (target.name, limits.seed);
    let time = started.elapsed().as_secs_f64();
    println!("{name}\t{executions}\t{seed}\t{failures}\t{time:.1}");
    failures == 0
}

fn keep(name: &str, seed: u64, execution: u64, input: &[u8], took: Duration) {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/failures");
    let path = format!("{dir}/{name}-{seed}-{execution}");
    let kept = std::fs::create_dir_all(dir).and_then(|()| std::fs::write(&path, input));
    eprintln!("{name}, seed {seed}, execution {execution}: failed in {took:?}: {path} {kept:?}");
}
