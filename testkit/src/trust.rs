//! The trust ledger: what was tried, how often, from which seed, with how many failures.
//!
//! Every rig that counts what it tries says so here when it is done. With `REFDB_TRUST_LEDGER` the
//! counts are added to that file, one line for each count: what, how often, seed, failures and
//! seconds, with tabs between them. `scripts/trust` sums them up.
//!
//! ```no_run
//! use refdb_testkit::trust::Tally;
//!
//! let mut tally = Tally::begin("things", 1);
//! tally.add(3);
//! assert_eq!(tally.count(), 3);
//! ```

use std::fs::OpenOptions;
use std::io::Write;
use std::time::Instant;

/// One count, written to the ledger when it is dropped. In a panic it counts a failure.
#[derive(Debug)]
pub struct Tally {
    what: &'static str,
    seed: u64,
    count: u64,
    started: Instant,
}

impl Tally {
    /// Begins to count.
    pub fn begin(what: &'static str, seed: u64) -> Tally {
        Tally {
            what,
            seed,
            count: 0,
            started: Instant::now(),
        }
    }

    /// Counts so many more.
    pub fn add(&mut self, more: u64) {
        self.count += more;
    }

    /// Returns how many were counted.
    pub fn count(&self) -> u64 {
        self.count
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        let Some(path) = std::env::var_os("REFDB_TRUST_LEDGER") else {
            return;
        };
        let failures = u8::from(std::thread::panicking());
        let seconds = self.started.elapsed().as_secs_f64();
        let Tally {
            what, seed, count, ..
        } = self;
        let line = format!("{what}\t{count}\t{seed}\t{failures}\t{seconds:.1}\n");
        let file = OpenOptions::new().create(true).append(true).open(path);
        // One write of a short line: lines of several processes do not mix.
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        if let Err(error) = written
            && failures == 0
        {
            panic!("cannot write the trust ledger: {error}");
        }
    }
}

/// Returns how much a rig shall do: the number in an environment variable, or `short`, its share of
/// every test run.
///
/// # Panics
///
/// If the variable is no number.
pub fn budget(variable: &str, short: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().expect("the budget is a number"),
        Err(_) => short,
    }
}
