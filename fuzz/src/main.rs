//! Runs the targets on mutations of good inputs.
//!
//!     cargo run --release -- list
//!     cargo run --release -- run TARGET|all [--seconds N] [--executions N] [--seed S]
//!     cargo run --release -- repeat TARGET FILE
//!
//! The same seed and number of executions give the same inputs everywhere. An input that fails is
//! kept as a file in `failures`, and the exit code is 1. The memory of the process is limited.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use refdb_fuzz::rng::Rng;
use refdb_fuzz::{TARGETS, Target, target};
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
        ["repeat", which, file] => {
            let bytes = std::fs::read(file).expect("the input can be read");
            (target(which).expect("a target of that name").run)(&bytes);
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!(
                "usage: list | run TARGET|all [--seconds N] [--executions N] [--seed S] | repeat TARGET FILE"
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

/// Runs one target; prints what came of it, and returns whether nothing failed.
fn run(target: &Target, limits: &Limits) -> bool {
    let mut rng = Rng::new(limits.seed);
    let seeds = (target.seeds)();
    let mut pool = seeds.clone();
    let (started, mut executions, mut failures) = (Instant::now(), 0, 0);
    while executions < limits.executions && started.elapsed().as_secs() < limits.seconds {
        let index = usize::try_from(executions).unwrap_or(usize::MAX);
        let mut input = match seeds.get(index) {
            Some(seed) => seed.clone(),
            None => pool[rng.below(pool.len())].clone(),
        };
        if index >= seeds.len() {
            let other = rng.below(pool.len());
            rng.mutate(&mut input, &pool[other]);
        }
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
        } else if input.len() < 1 << 16 && rng.below(32) == 0 {
            // Later inputs are several mutations away from the good ones.
            let place = rng.below(POOL);
            match pool.get_mut(seeds.len() + place) {
                Some(old) => *old = input,
                None => pool.push(input),
            }
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
