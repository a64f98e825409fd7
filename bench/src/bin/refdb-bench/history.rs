//! The history of measurements: one line of JSON for each recorded run.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::Path;

use serde_json::{Value, json};

use crate::{Result, read};

const HISTORY: &str = "bench/history.jsonl";

/// One recorded run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) commit: String,
    pub(crate) date: String,
    pub(crate) machine: String,
    /// What `git --version` said.
    pub(crate) git: String,
    /// How `refdb bench` was called; empty in the first runs, which did not say so.
    options: Vec<(String, String)>,
    /// By `format/fsync/workload`.
    pub(crate) figures: BTreeMap<String, Figure>,
}

/// The figures of one workload: medians.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figure {
    pub(crate) refdb_ms: f64,
    /// `None` where Git took longer than it was given.
    pub(crate) git_ms: Option<f64>,
    pub(crate) refdb_mib: f64,
}

impl Run {
    /// Returns the options with which it was measured.
    pub(crate) fn options(&self) -> impl Iterator<Item = (&str, &str)> {
        let options = self.options.iter();
        options.map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns how many refs the repositories had, if the run says so.
    pub(crate) fn refs(&self) -> Option<u64> {
        self.option("refs")?.parse().ok()
    }

    /// Returns how long Git was given.
    pub(crate) fn limit_ms(&self) -> Option<f64> {
        let seconds: f64 = self.option("limit")?.parse().ok()?;
        Some(seconds * 1e3)
    }

    fn option(&self, wanted: &str) -> Option<&str> {
        let mut options = self.options();
        options.find_map(|(name, value)| (name == wanted).then_some(value))
    }
}

/// Adds the results of a run, in Bencher's metric format, to the history. `options` are those with which
/// it was measured.
pub(crate) fn record(
    results: &Path,
    [commit, date, machine, git]: [&str; 4],
    options: &[&str],
) -> Result<()> {
    let results: Value = parse(&read(results)?)?;
    let mut figures = BTreeMap::new();
    for (name, measures) in results.as_object().ok_or("the results are no object")? {
        let value = |measure: &str| measures[measure]["value"].as_f64();
        let refdb = value("latency").ok_or(format!("{name} has no latency"))?;
        let round = |number: f64| (number * 1000.0).round() / 1000.0;
        let mib = value("memory").unwrap_or(0.0) / f64::from(1 << 20);
        let git = value("git-latency").map(|git| round(git / 1e6));
        figures.insert(name, json!([round(refdb / 1e6), git, round(mib)]));
    }
    let line = json!({
        "commit": commit, "date": date, "machine": machine, "git": git, "figures": figures,
        "options": options.join(" "),
    });
    add(Path::new(HISTORY), &line)
}

/// Adds a line to the end of a history; what is there before is not touched, whatever fails.
fn add(history: &Path, line: &Value) -> Result<()> {
    let opened = OpenOptions::new().create(true).append(true).open(history);
    let added = opened.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    added.map_err(|error| format!("{}: {error}", history.display()))
}

/// Reads every recorded run, the oldest first.
pub(crate) fn read_from(text: &str) -> Result<Vec<Run>> {
    text.lines().map(run).collect()
}

/// Reads the history of this repository, which is empty before the first run is recorded.
pub(crate) fn read_history() -> Result<Vec<Run>> {
    history_of(Path::new(HISTORY))
}

fn history_of(path: &Path) -> Result<Vec<Run>> {
    match std::fs::read_to_string(path) {
        Ok(text) => read_from(&text),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

fn run(line: &str) -> Result<Run> {
    let value = parse(line)?;
    let text = |key: &str| value[key].as_str().unwrap_or("unknown").to_owned();
    let mut figures = BTreeMap::new();
    for (name, figure) in value["figures"].as_object().ok_or("a run has no figures")? {
        let missing = || format!("{name} has no time");
        figures.insert(
            name.clone(),
            Figure {
                refdb_ms: figure[0].as_f64().ok_or_else(missing)?,
                git_ms: figure[1].as_f64(),
                refdb_mib: figure[2].as_f64().unwrap_or(0.0),
            },
        );
    }
    Ok(Run {
        commit: text("commit"),
        date: text("date"),
        machine: text("machine"),
        git: text("git"),
        options: options(value["options"].as_str().unwrap_or_default()),
        figures,
    })
}

/// Reads options as they are written on a command line: `--name value` or `--name=value`.
fn options(text: &str) -> Vec<(String, String)> {
    let mut words = text.split_whitespace();
    let mut options = Vec::new();
    while let Some(word) = words.next() {
        let word = word.trim_start_matches('-');
        let (name, value) = match word.split_once('=') {
            Some(parts) => parts,
            None => (word, words.next().unwrap_or_default()),
        };
        options.push((name.to_owned(), value.to_owned()));
    }
    options
}

fn parse(text: &str) -> Result<Value> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history.jsonl");
        assert!(history_of(&path).unwrap().is_empty());
        let line = json!({ "commit": "c", "figures": {} });
        add(&path, &line).unwrap();
        assert_eq!(history_of(&path).unwrap().len(), 1);
        // No text, so that it cannot be read as such.
        let before = [std::fs::read(&path).unwrap(), b"\xff\n".to_vec()].concat();
        std::fs::write(&path, &before).unwrap();
        assert!(history_of(&path).is_err());
        add(&path, &line).unwrap();
        let after = std::fs::read(&path).unwrap();
        assert_eq!(after, [before, format!("{line}\n").into_bytes()].concat());
        assert!(history_of(&path.join("below")).is_err());
    }
}
