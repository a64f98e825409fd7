//! How time and memory grow with the number of refs.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use crate::{Result, read, write};

const GROWTH: &str = "bench/growth.json";

/// The last measurement at several sizes.
#[derive(Debug)]
pub(crate) struct Growth {
    pub(crate) commit: String,
    pub(crate) date: String,
    pub(crate) machine: String,
    /// By `format/fsync/workload`, then by the number of refs.
    pub(crate) figures: BTreeMap<String, BTreeMap<u64, Point>>,
}

/// What one size took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    pub(crate) ms: f64,
    pub(crate) mib: f64,
}

/// Records results in Bencher's metric format, each given as `SIZE=FILE`.
pub(crate) fn record(results: &[&str], [commit, date, machine]: [&str; 3]) -> Result<()> {
    let mut figures: BTreeMap<String, BTreeMap<String, [f64; 2]>> = BTreeMap::new();
    for result in results {
        let (size, path) = result.split_once('=').ok_or("not SIZE=FILE")?;
        let measured: Value = parse(&read(Path::new(path))?)?;
        for (name, measures) in measured.as_object().ok_or("the results are no object")? {
            let value = |measure: &str| measures[measure]["value"].as_f64();
            let ns = value("latency").ok_or(format!("{name} has no latency"))?;
            let bytes = value("memory").unwrap_or(0.0);
            let round = |number: f64| (number * 1000.0).round() / 1000.0;
            let point = [round(ns / 1e6), round(bytes / f64::from(1 << 20))];
            let sizes = figures.entry(name.clone()).or_default();
            sizes.insert(size.to_owned(), point);
        }
    }
    let all = json!({"commit": commit, "date": date, "machine": machine, "figures": figures});
    let text = serde_json::to_string_pretty(&all).map_err(|error| error.to_string())?;
    write(Path::new(GROWTH), &format!("{text}\n"))
}

/// Reads what was recorded last; `None` if nothing was.
pub(crate) fn read_growth() -> Result<Option<Growth>> {
    match Path::new(GROWTH).exists() {
        true => read_from(&read(Path::new(GROWTH))?).map(Some),
        false => Ok(None),
    }
}

/// Reads a recorded measurement.
pub(crate) fn read_from(text: &str) -> Result<Growth> {
    let value = parse(text)?;
    let text = |key: &str| value[key].as_str().unwrap_or("unknown").to_owned();
    let mut figures: BTreeMap<String, BTreeMap<u64, Point>> = BTreeMap::new();
    for (name, sizes) in value["figures"].as_object().ok_or("there are no figures")? {
        for (size, point) in sizes.as_object().ok_or("a workload has no sizes")? {
            let size = size.parse().map_err(|_| format!("{size} is no number"))?;
            let part = |at: usize| point[at].as_f64().ok_or(format!("{name} has no figure"));
            let (ms, mib) = (part(0)?, part(1)?);
            let points = figures.entry(name.clone()).or_default();
            points.insert(size, Point { ms, mib });
        }
    }
    Ok(Growth {
        commit: text("commit"),
        date: text("date"),
        machine: text("machine"),
        figures,
    })
}

fn parse(text: &str) -> Result<Value> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}
