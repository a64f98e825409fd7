//! README's tables: every row of the history that the page shows, both formats side by side; and how near
//! single processes are to what none can do without.

use std::fmt::Write;
use std::path::Path;

use crate::processes::Processes;
use crate::questions::grouped;
use crate::rows::{FORMATS, Row, Rows, nearest, options};
use crate::{Result, read, write};

const README: &str = "README.md";
const BEGIN: &str = "<!-- written by `cargo run -p refdb-bench -- readme` -->\n";
const BEGIN_PROCESSES: &str =
    "<!-- single processes, written by `cargo run -p refdb-bench -- readme` -->\n";
/// The durability of the table: neither program syncs, so that the disk is not what is measured.
const FSYNC: &str = "none";
const END: &str = "<!-- until here -->\n";

/// Writes the tables into the README.
pub(crate) fn renew(rows: &Rows<'_>, processes: Option<&Processes>) -> Result<()> {
    let readme = read(Path::new(README))?;
    let mut readme = replaced(&readme, BEGIN, &table(rows))?;
    if let Some(processes) = processes {
        readme = replaced(&readme, BEGIN_PROCESSES, &processes.markdown())?;
    }
    write(Path::new(README), &readme)
}

/// Returns the README with another text behind a mark.
fn replaced(readme: &str, begin: &str, text: &str) -> Result<String> {
    let missing = || format!("{README} has no place for a table, between {begin} and {END}");
    let (before, rest) = readme.split_once(begin).ok_or_else(missing)?;
    let (_, after) = rest.split_once(END).ok_or_else(missing)?;
    Ok(format!("{before}{begin}{text}{END}{after}"))
}

/// Returns the table, and where its figures come from.
fn table(rows: &Rows<'_>) -> String {
    let mut text = format!("| {} refs: how long to", grouped(rows.refs));
    for format in FORMATS {
        let _ = write!(text, " | {format}: refdb | Git | ratio");
    }
    let columns = "|---:".repeat(3 * FORMATS.len());
    let _ = writeln!(text, " |\n|---{columns}|");
    let mut workloads: Vec<&Row<'_>> = shown(rows).collect();
    // The formats are side by side, so that the order is that of the questions alone.
    workloads.sort_by_key(|row| row.place());
    workloads.dedup_by_key(|row| row.workload);
    for of_both in workloads {
        let _ = write!(text, "| {}", of_both.question());
        for format in FORMATS {
            let mut of_this = shown(rows).filter(|row| row.workload == of_both.workload);
            match of_this.find(|row| row.format == format) {
                Some(row) => text.push_str(&cells(row)),
                None => text.push_str(" | | |"),
            }
        }
        text.push_str(" |\n");
    }
    text.push('\n');
    for format in FORMATS {
        text.push_str(&origin(rows, format));
    }
    text
}

/// Returns where the figures of a format come from: a line for each run.
fn origin(rows: &Rows<'_>, format: &str) -> String {
    let mut text = String::new();
    let runs = rows.runs((format, FSYNC));
    for (at, (run, of_run)) in runs.iter().enumerate() {
        let workloads: Vec<&str> = of_run.iter().map(|row| row.workload).collect();
        // The first has most of the rows: the others name theirs.
        let (some, only) = match at {
            0 => ("", String::new()),
            _ => (", some rows", format!(" --only={}", workloads.join(","))),
        };
        let _ = writeln!(
            text,
            "- {format}{some}: {}, {}, {}, commit {}. Again: `scripts/bench {}{only}`",
            run.date,
            run.machine,
            run.git,
            run.commit,
            options(of_run)
        );
    }
    text
}

/// Returns the rows that the table shows.
fn shown<'a, 'b>(rows: &'b Rows<'a>) -> impl Iterator<Item = &'b Row<'a>> {
    rows.rows.iter().filter(|row| row.fsync == FSYNC)
}

fn cells(row: &Row<'_>) -> String {
    let git = match (row.figure.git_ms, row.run.limit_ms()) {
        (Some(ms), _) => milliseconds(ms),
        (None, Some(limit)) => format!("over {}", milliseconds(limit)),
        (None, None) => "too long".to_owned(),
    };
    let (refdb, ratio) = (milliseconds(row.figure.refdb_ms), row.shown_ratio());
    format!(" | {refdb} | {git} | {ratio}")
}

/// Returns milliseconds with as many digits as mean something.
fn milliseconds(ms: f64) -> String {
    match ms {
        ms if ms < 9.95 => format!("{ms:.1}"),
        ms => nearest(ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::read_from;

    fn of_the_workspace(path: &str) -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
        read(&path).expect("a file of the workspace")
    }

    #[test]
    fn the_readme_shows_the_history() {
        let runs = read_from(&of_the_workspace("bench/history.jsonl")).expect("the history");
        let rows = Rows::last(&runs).expect("there are rows");
        let readme = of_the_workspace(README);
        let processes = crate::processes::read_from(&of_the_workspace("bench/processes.json"));
        let processes = processes.expect("the processes").markdown();
        for (begin, text) in [(BEGIN, table(&rows)), (BEGIN_PROCESSES, processes)] {
            assert!(
                replaced(&readme, begin, &text).expect("there is a place") == readme,
                "README differs from what is recorded: cargo run -p refdb-bench -- readme"
            );
        }
        let questions = |row: &Row<'_>| readme.contains(&format!("| {} |", row.question()));
        assert!(rows.rows.iter().all(questions), "a row is missing");
    }

    #[test]
    fn a_table_has_every_row_in_both_formats() {
        let runs = read_from(concat!(
            r#"{"commit":"a1","date":"2026-01-01","machine":"m","git":"git version 2.55.0","#,
            r#""options":"--refs 1000 --limit 10","figures":{"files/none/list":[2.0,4500.4,3.0],"#,
            r#""reftable/none/list":[30.0,45.0,3.0],"reftable/none/create":[10.0,null,3.0]}}"#,
        ))
        .expect("one run");
        let rows = Rows::last(&runs).expect("there are rows");
        let readme = format!("before\n{BEGIN}old\n{END}after\n");
        let text = replaced(&readme, BEGIN, &table(&rows)).expect("a place");
        let expected = "| create 1,000 refs in an empty repository | 10 | over 10,000 | over 1,000x | | | |\n\
             | list 1,000 refs | 30 | 45 | 1.5x | 2.0 | 4,500 | 2,250x |\n";
        assert!(text.contains(expected), "{text}");
        assert!(
            text.starts_with("before\n") && text.ends_with("after\n"),
            "{text}"
        );
        assert!(!text.contains("old"), "{text}");
    }
}
