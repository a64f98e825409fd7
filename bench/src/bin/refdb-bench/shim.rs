//! What `refdb install-shim` costs other commands: `git --version` through the shim beside the same by
//! the real Git itself.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::{Result, say};

/// What a call through the shim may take longer.
const MAX: Duration = Duration::from_micros(500);

/// How many pairs are run before those that count.
const WARM_UP: usize = 20;

/// Measures `runs` pairs, one program right behind the other and in turn the first, so that whatever
/// else the machine does meets both; fails if the median difference is more than half a millisecond.
pub(crate) fn measure(shim: &Path, git: &Path, runs: &str) -> Result<()> {
    let runs: usize = runs
        .parse()
        .ok()
        .filter(|&runs| runs > 0)
        .ok_or_else(|| format!("'{runs}' is no number of runs"))?;
    let mut direct = Vec::new();
    let mut through = Vec::new();
    let mut more = Vec::new();
    for run in 0..WARM_UP + runs {
        let (first, second) = if run % 2 == 0 {
            (git, shim)
        } else {
            (shim, git)
        };
        let (first, second) = (time(first)?, time(second)?);
        let (of_git, of_shim) = if run % 2 == 0 {
            (first, second)
        } else {
            (second, first)
        };
        if run >= WARM_UP {
            direct.push(of_git);
            through.push(of_shim);
            more.push(of_shim - of_git);
        }
    }
    let [direct, through, more] = [direct, through, more].map(median);
    let text = format!(
        "git --version, medians of {runs} pairs in ms: itself {direct:.3}, through the shim \
         {through:.3}, the difference {more:.3}\n"
    );
    say(&text, &mut std::io::stdout());
    if more > MAX.as_secs_f64() * 1e3 {
        return Err(format!("the shim costs more than {MAX:?}"));
    }
    Ok(())
}

/// Returns how long a program takes to say its version, in milliseconds.
fn time(program: &Path) -> Result<f64> {
    let failed = |why: String| format!("{}: {why}", program.display());
    let mut command = Command::new(program);
    command
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let begun = Instant::now();
    let ended = command
        .status()
        .map_err(|error| failed(error.to_string()))?;
    let took = begun.elapsed();
    match ended.success() {
        true => Ok(took.as_secs_f64() * 1e3),
        false => Err(failed(ended.to_string())),
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
