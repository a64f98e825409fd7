//! What is kept of measurements: a history with a page, and the instruction counts of the hot paths.
//!
//! ```text
//! refdb-bench record RESULTS COMMIT DATE MACHINE GIT OPTIONS...   adds a line to bench/history.jsonl
//! refdb-bench growth COMMIT DATE MACHINE SIZE=RESULTS...  renews bench/growth.json
//! refdb-bench processes LINES COMMIT DATE MACHINE GIT  renews bench/processes.json
//! refdb-bench page                                     writes docs/benchmarks.html from all three
//! refdb-bench readme                                   writes README's tables from the first and the last
//! refdb-bench instructions SUMMARIES [--record]        compares with bench/instructions.json
//! refdb-bench shim SHIM GIT RUNS                       measures what a shim costs other commands
//! ```
//!
//! `scripts/bench`, `scripts/growth`, `scripts/instructions`, `scripts/process-speed` and
//! `scripts/shim-cost` call it.

mod growth;
mod history;
mod instructions;
mod page;
mod processes;
mod questions;
mod readme;
mod rows;
mod shim;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// The result of a command; the text is for people.
type Result<T> = std::result::Result<T, String>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args.as_slice() {
        ["record", results, commit, date, machine, git, options @ ..] => {
            history::record(Path::new(results), [commit, date, machine, git], options)
        }
        ["growth", commit, date, machine, results @ ..] => {
            growth::record(results, [commit, date, machine])
        }
        ["processes", lines, commit, date, machine, git] => {
            processes::record(lines, [commit, date, machine, git])
        }
        ["page"] => write_page(),
        ["readme"] => history::read_history().and_then(|runs| match rows::Rows::last(&runs) {
            Some(rows) => readme::renew(&rows, processes::read_processes()?.as_ref()),
            None => Err("no run of the history says how many refs there were".to_owned()),
        }),
        ["instructions", summaries] => instructions::compare(Path::new(summaries)),
        ["instructions", summaries, "--record"] => instructions::record(Path::new(summaries)),
        ["shim", shim, git, runs] => shim::measure(Path::new(shim), Path::new(git), runs),
        _ => {
            Err("see the head of bench/src/bin/refdb-bench/main.rs for how it is called".to_owned())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            say(&format!("refdb-bench: {message}\n"), &mut std::io::stderr());
            ExitCode::FAILURE
        }
    }
}

fn write_page() -> Result<()> {
    let (runs, growth) = (history::read_history()?, growth::read_growth()?);
    let processes = processes::read_processes()?;
    let page = page::render(&runs, growth.as_ref(), processes.as_ref());
    write(Path::new("docs/benchmarks.html"), &page)
}

fn say(text: &str, to: &mut dyn Write) {
    // A reader that has gone away does not want to know.
    let _ = to.write_all(text.as_bytes());
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
