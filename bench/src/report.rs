//! The results: a table for people, Bencher's metric format for programs.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Map, Value, json};

use crate::measure::Sample;

/// The samples of one workload.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) format: &'static str,
    pub(crate) fsync: String,
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// One for each run; `None` where the program was ended at the limit.
    pub(crate) refdb: Vec<Option<Sample>>,
    /// The same of Git; empty if there is none.
    pub(crate) git: Vec<Option<Sample>>,
}

/// The middle of some values, and how far they spread.
#[derive(Clone, Copy, Debug)]
struct Median {
    value: f64,
    least: f64,
    most: f64,
}

/// Returns the median of what `of` gives; a run that was ended counts as longer than any other.
fn median(samples: &[Option<Sample>], of: fn(&Sample) -> Option<f64>) -> Option<Median> {
    let mut values: Vec<f64> = samples
        .iter()
        .map(|sample| sample.as_ref().map_or(Some(f64::INFINITY), of))
        .collect::<Option<_>>()?;
    values.sort_by(f64::total_cmp);
    Some(Median {
        value: *values.get(values.len() / 2)?,
        least: *values.first()?,
        most: *values.last()?,
    })
}

/// Nanoseconds, bytes and nanoseconds of a sample.
fn latency(sample: &Sample) -> Option<f64> {
    Some(sample.cost.time.as_secs_f64() * 1e9)
}

#[expect(clippy::cast_precision_loss, reason = "memory is shown in MiB")]
fn memory(sample: &Sample) -> Option<f64> {
    Some(sample.cost.memory as f64)
}

fn p99(sample: &Sample) -> Option<f64> {
    sample.p99.map(|time| time.as_secs_f64() * 1e9)
}

/// Returns the tables of each format and durability: how long it takes, how much memory, and how long the slowest of
/// many processes. No line is longer than 80 columns.
pub(crate) fn table(rows: &[Row], limit: f64) -> String {
    let mut text = String::new();
    for group in rows.chunk_by(|one, next| (one.format, &one.fsync) == (next.format, &next.fsync)) {
        let Some(first) = group.first() else {
            continue;
        };
        let _ = writeln!(text, "\n{}, core.fsync={}", first.format, first.fsync);
        let all: Vec<&Row> = group.iter().collect();
        let slow: Vec<&Row> = group.iter().filter(|row| has_p99(row)).collect();
        block(&mut text, "time, ms", &all, limit, latency, milliseconds);
        block(&mut text, "memory, MiB", &all, limit, memory, mebibytes);
        block(
            &mut text,
            "99 of 100 took at most, ms",
            &slow,
            limit,
            p99,
            milliseconds,
        );
    }
    text
}

/// Adds a table of one measure, if there are rows.
fn block(
    text: &mut String,
    what: &str,
    rows: &[&Row],
    limit: f64,
    of: fn(&Sample) -> Option<f64>,
    told: fn(Option<Median>, f64) -> String,
) {
    if rows.is_empty() {
        return;
    }
    let _ = write!(
        text,
        "\n| {what:<33} | {:>12} | {:>12} | {:>8} |\n|{:->35}|{:->13}:|{:->13}:|{:->9}:|\n",
        "refdb", "Git", "ratio", "", "", "", ""
    );
    for row in rows {
        let (ours, theirs) = (median(&row.refdb, of), median(&row.git, of));
        let ratio = ratio(ours, theirs, limit);
        let (about, ours, theirs) = (row.about, told(ours, limit), told(theirs, limit));
        let _ = writeln!(
            text,
            "| {about:<33} | {ours:>12} | {theirs:>12} | {ratio:>8} |"
        );
    }
}

fn has_p99(row: &Row) -> bool {
    let mut samples = row.refdb.iter().flatten();
    row.name == "writers" && samples.any(|sample| sample.p99.is_some())
}

fn milliseconds(median: Option<Median>, limit: f64) -> String {
    match median {
        None => "-".to_owned(),
        Some(median) if median.value.is_infinite() => format!("over {:.0}", limit * 1e3),
        Some(median) => {
            let spread = (median.most - median.least) / median.value / 2.0 * 100.0;
            let spread = match spread {
                spread if spread > 0.0 && spread.is_finite() => format!(" \u{b1}{spread:.0}%"),
                _ => String::new(),
            };
            format!("{:.1}{spread}", median.value / 1e6)
        }
    }
}

fn mebibytes(median: Option<Median>, _: f64) -> String {
    match median {
        Some(median) if median.value.is_finite() => {
            format!("{:.1}", median.value / f64::from(1 << 20))
        }
        _ => "-".to_owned(),
    }
}

fn ratio(ours: Option<Median>, theirs: Option<Median>, limit: f64) -> String {
    match (ours, theirs) {
        (Some(ours), Some(theirs)) if theirs.value.is_infinite() => {
            format!(">{:.0}x", limit * 1e9 / ours.value)
        }
        (Some(ours), Some(theirs)) if ours.value > 0.0 => {
            format!("{:.1}x", theirs.value / ours.value)
        }
        _ => "-".to_owned(),
    }
}

/// Returns the results in Bencher's metric format: nanoseconds, bytes, and how many times the time
/// Git took.
pub(crate) fn json(rows: &[Row]) -> Value {
    let mut benchmarks = Map::new();
    for row in rows {
        let mut measures: BTreeMap<&str, Value> = BTreeMap::new();
        let mut add = |name, found: Option<Median>| {
            if let Some(found) = found.filter(|found| found.value.is_finite()) {
                let mut measure = json!({ "value": found.value, "lower_value": found.least });
                if found.most.is_finite() {
                    measure["upper_value"] = json!(found.most);
                }
                measures.insert(name, measure);
            }
        };
        let (ours, theirs) = (median(&row.refdb, latency), median(&row.git, latency));
        add("latency", ours);
        add("git-latency", theirs);
        add("memory", median(&row.refdb, memory));
        add("git-memory", median(&row.git, memory));
        add("latency-p99", median(&row.refdb, p99));
        add("git-latency-p99", median(&row.git, p99));
        if let (Some(ours), Some(theirs)) = (ours, theirs) {
            add(
                "ratio",
                Some(Median {
                    value: theirs.value / ours.value,
                    least: theirs.least / ours.most,
                    most: theirs.most / ours.least,
                }),
            );
        }
        let name = format!("{}/{}/{}", row.format, row.fsync, row.name);
        benchmarks.insert(name, json!(measures));
    }
    Value::Object(benchmarks)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::process::Cost;

    fn sample(ms: u64) -> Option<Sample> {
        Some(Sample {
            cost: Cost {
                time: Duration::from_millis(ms),
                memory: 3 << 20,
            },
            p99: None,
        })
    }

    fn row(git: Vec<Option<Sample>>) -> Row {
        Row {
            format: "reftable",
            fsync: "none".to_owned(),
            name: "create",
            about: "create all refs",
            refdb: vec![sample(30), sample(10), sample(20)],
            git,
        }
    }

    #[test]
    fn medians_and_ratios_are_those_of_the_samples() {
        let rows = [row(vec![sample(200), sample(220), sample(180)])];
        let text = table(&rows, 1.0);
        assert!(text.contains("20.0 \u{b1}50%"), "{text}");
        assert!(text.contains("10.0x"), "{text}");
        let width = text.lines().map(|line| line.chars().count()).max();
        assert!(width <= Some(80), "{text}");
        let json = json(&rows);
        let measures = &json["reftable/none/create"];
        assert_eq!(measures["latency"]["value"], 20e6);
        assert_eq!(measures["git-latency"]["upper_value"], 220e6);
        assert_eq!(measures["ratio"]["value"], 10.0);
        assert_eq!(measures["memory"]["value"], 3.0 * 1024.0 * 1024.0);
    }

    #[test]
    fn a_program_that_was_ended_took_longer_than_the_limit() {
        let rows = [row(vec![None, None, sample(900)])];
        let text = table(&rows, 1.0);
        assert!(text.contains("over 1000"), "{text}");
        assert!(text.contains(">50x"), "{text}");
        let json = json(&rows);
        assert!(json["reftable/none/create"].get("git-latency").is_none());
    }
}
