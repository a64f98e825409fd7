//! Runs the model: the protocol has no bad state, and every planted bug has one.
//!
//! `refdb-model` checks what every test run does, `refdb-model long` more.

mod protocol;

use std::process::ExitCode;
use std::time::Instant;

use protocol::{Bug, Protocol};
use stateright::{Checker, Model};

/// Writers, maintainers, collectors, slots, and busy writers.
type Shape = (usize, usize, usize, usize, usize);

const SHORT: &[Shape] = &[
    (2, 1, 1, 1, 0),
    (3, 0, 0, 2, 0),
    (2, 1, 0, 2, 0),
    (2, 0, 1, 3, 0),
    (1, 0, 1, 1, 1),
    (1, 0, 1, 2, 1),
    (2, 0, 0, 1, 1),
];
const LONG: &[Shape] = &[
    (3, 1, 0, 1, 0),
    (2, 1, 1, 2, 0),
    (2, 2, 0, 1, 0),
    (3, 0, 1, 1, 0),
    (2, 0, 1, 1, 1),
    (1, 1, 1, 1, 1),
    (0, 1, 1, 1, 2),
];
/// In which of them bugs are looked for.
const OF_BUGS: &[Shape] = &[(2, 1, 1, 1, 0), (2, 1, 1, 2, 0)];
const OF_BUGS_AHEAD: &[Shape] = &[(1, 0, 1, 1, 1)];

fn model(shape: Shape, bug: Option<Bug>) -> Protocol {
    let (writers, maintainers, collectors, slots, busy) = shape;
    Protocol {
        slots,
        writers,
        maintainers,
        collectors,
        busy,
        bug,
    }
}

fn main() -> ExitCode {
    let is_long = std::env::args().nth(1).is_some_and(|it| it == "long");
    let mut is_good = true;
    let shapes = SHORT.iter().chain(LONG.iter().filter(|_| is_long));
    for shape in shapes {
        let begun = Instant::now();
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let checker = model(*shape, None)
            .checker()
            .threads(threads)
            .spawn_bfs()
            .join();
        let states = checker.unique_state_count();
        println!(
            "{shape:?}: {states} states in {:.1} s",
            begun.elapsed().as_secs_f64()
        );
        for property in checker.model().properties() {
            let found = checker.discovery(property.name);
            let is_sometimes = property.expectation == stateright::Expectation::Sometimes;
            if found.is_some() != is_sometimes {
                is_good = false;
                println!("{shape:?}: not so: {}", property.name);
                if let Some(path) = found {
                    println!("{path}");
                }
            }
        }
    }
    for bug in Bug::ALL {
        let mut found = None;
        let shapes = match bug {
            Bug::AheadAsOfCommit | Bug::AheadOfEpoch | Bug::AheadOfAnything => OF_BUGS_AHEAD,
            _ => OF_BUGS,
        };
        for shape in shapes {
            let checker = model(*shape, Some(bug)).checker().target_max_depth(40);
            let checker = checker.finish_when(stateright::HasDiscoveries::AnyFailures);
            let checker = checker.spawn_bfs().join();
            let mut names: Vec<&str> = checker.discoveries().into_keys().collect();
            names.retain(|name| {
                let properties = checker.model().properties();
                let property = properties.iter().find(|property| property.name == *name);
                property.is_some_and(|it| it.expectation == stateright::Expectation::Always)
            });
            if let Some(name) = names.first() {
                found = Some((*shape, name.to_string(), checker.unique_state_count()));
                break;
            }
        }
        match found {
            Some((shape, name, states)) => {
                println!("{bug:?} is found in {shape:?} after {states} states: not so: {name}");
            }
            None => {
                is_good = false;
                println!("{bug:?} is not found");
            }
        }
    }
    match is_good {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
