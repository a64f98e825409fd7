//! The gate: instruction counts of the hot paths against the recorded ones.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use crate::{Result, read, say, write};

const BASELINE: &str = "bench/instructions.json";
/// How much a count may grow before it has to be recorded anew: 3 %.
const GROWTH_MAX: f64 = 1.03;

type Counts = BTreeMap<String, u64>;

/// Records the counts as those that later ones are compared with.
pub(crate) fn record(summaries: &Path) -> Result<()> {
    let counts = counts(summaries)?;
    let mut text = serde_json::to_string_pretty(&counts).map_err(|error| error.to_string())?;
    text.push('\n');
    write(Path::new(BASELINE), &text)
}

/// Compares the counts with the recorded ones and prints a line for each.
///
/// # Errors
/// When one has grown too much, or there is one on one side only.
pub(crate) fn compare(summaries: &Path) -> Result<()> {
    let baseline: Counts =
        serde_json::from_str(&read(Path::new(BASELINE))?).map_err(|error| error.to_string())?;
    let (text, failed) = judge(&baseline, &counts(summaries)?);
    say(&text, &mut std::io::stdout());
    if failed.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{} took more than 3% more instructions than recorded, or are not recorded; if that is \
         meant, run 'scripts/instructions --record' and commit {BASELINE} with the change",
        failed.join(", ")
    ))
}

/// Returns a table, and the names of the operations that are not as they should be.
fn judge(baseline: &Counts, counts: &Counts) -> (String, Vec<String>) {
    let mut text = String::new();
    let mut failed = Vec::new();
    let names: std::collections::BTreeSet<_> = baseline.keys().chain(counts.keys()).collect();
    for name in names {
        let (old, new) = (baseline.get(name), counts.get(name));
        let growth = match (old, new) {
            #[expect(clippy::cast_precision_loss, reason = "a ratio of counts")]
            (Some(&old), Some(&new)) => new as f64 / old as f64,
            _ => f64::INFINITY,
        };
        if growth > GROWTH_MAX {
            failed.push(name.clone());
        }
        let show = |count: Option<&u64>| count.map_or("none".to_owned(), u64::to_string);
        let (old, new) = (show(old), show(new));
        let _ = writeln!(
            text,
            "{name:<40} {old:>14} -> {new:>14}  {:+.2}%",
            (growth - 1.0) * 100.0
        );
    }
    (text, failed)
}

/// Reads the summaries that the runner has written, one line of JSON each.
fn counts(summaries: &Path) -> Result<Counts> {
    let mut counts = Counts::new();
    for line in read(summaries)?
        .lines()
        .filter(|line| line.starts_with('{'))
    {
        let summary: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
        let part = |key: &str| summary[key].as_str().unwrap_or_default().to_owned();
        let name = format!("{}/{}", part("function_name"), part("id"));
        let instructions = find_instructions(&summary)
            .ok_or_else(|| format!("{}: no count for {name}", summaries.display()))?;
        counts.insert(name, instructions);
    }
    if counts.is_empty() {
        return Err(format!("{}: no summaries", summaries.display()));
    }
    Ok(counts)
}

/// Finds the total of instructions (`Ir`) of the new run.
fn find_instructions(summary: &Value) -> Option<u64> {
    let mut profiles = summary["profiles"].as_array()?.iter();
    let total = "/data/total/metrics/Ir/values/new";
    profiles.find_map(|profile| profile.pointer(total)?.as_u64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts_of(pairs: &[(&str, u64)]) -> Counts {
        pairs
            .iter()
            .map(|&(name, count)| (name.to_owned(), count))
            .collect()
    }

    #[test]
    fn growth_above_three_percent_fails_and_anything_less_passes() {
        let baseline = counts_of(&[("a", 1000), ("b", 1000), ("c", 1000)]);
        let counts = counts_of(&[("a", 1030), ("b", 1031), ("c", 500)]);
        let (text, failed) = judge(&baseline, &counts);
        assert_eq!(failed, ["b"], "{text}");
    }

    #[test]
    fn the_total_is_found_in_a_summary() {
        let summary = r#"{"profiles":[{"tool":"Callgrind","data":{"total":{"metrics":{
            "Dr":{"values":{"new":1}},"Ir":{"values":{"new":7}}}}}}]}"#;
        let summary: Value = serde_json::from_str(summary).expect("it is JSON");
        assert_eq!(find_instructions(&summary), Some(7));
    }

    #[test]
    fn an_operation_that_is_on_one_side_only_fails() {
        let (_, failed) = judge(&counts_of(&[("gone", 1)]), &counts_of(&[("new", 1)]));
        assert_eq!(failed, ["gone", "new"]);
    }
}
