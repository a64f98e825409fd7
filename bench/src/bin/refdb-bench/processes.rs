//! How near single processes are to what no process can do without: what `scripts/process-speed` measured last.

use std::fmt::Write;
use std::path::Path;

use serde_json::{Value, json};

use crate::{Result, read, write};

const PROCESSES: &str = "bench/processes.json";
/// What is asked for: so many times the speed of Git.
const WANTED: f64 = 2.0;
/// The row that does nothing but start and end.
const STARTS: &str = "nothing but its version";

/// The last measurement.
#[derive(Debug)]
pub(crate) struct Processes {
    commit: String,
    date: String,
    machine: String,
    git: String,
    /// A program that does nothing, in milliseconds.
    empty: f64,
    rows: Vec<Row>,
}

/// One command, in milliseconds.
#[derive(Debug)]
struct Row {
    name: String,
    git: f64,
    refdb: f64,
}

/// Records lines of `NAME<TAB>EMPTY<TAB>GIT<TAB>REFDB`, in milliseconds.
pub(crate) fn record(lines: &str, [commit, date, machine, git]: [&str; 4]) -> Result<()> {
    let mut rows = Vec::new();
    for line in read(Path::new(lines))?.lines() {
        let parts: Vec<&str> = line.split('\t').collect();
        let number = |at: usize| parts.get(at).and_then(|text| text.parse::<f64>().ok());
        let wrong = || format!("not a row: {line}");
        let figures = [1, 2, 3].map(|at| number(at).ok_or_else(wrong));
        let [empty, git, refdb] = figures;
        rows.push(json!([parts[0], empty?, git?, refdb?]));
    }
    let all = json!({"commit": commit, "date": date, "machine": machine, "git": git, "rows": rows});
    // A row on each line, for whoever reads the differences.
    let text = all
        .to_string()
        .replace("[[", "[\n[")
        .replace("],[", "],\n[");
    write(
        Path::new(PROCESSES),
        &format!("{}\n", text.replace("]]", "]\n]")),
    )
}

/// Reads what was recorded last; `None` if nothing was.
pub(crate) fn read_processes() -> Result<Option<Processes>> {
    match Path::new(PROCESSES).exists() {
        true => read_from(&read(Path::new(PROCESSES))?).map(Some),
        false => Ok(None),
    }
}

/// Reads a recorded measurement.
pub(crate) fn read_from(text: &str) -> Result<Processes> {
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let text = |key: &str| value[key].as_str().unwrap_or("unknown").to_owned();
    let mut empty = f64::INFINITY;
    let mut rows = Vec::new();
    for row in value["rows"].as_array().ok_or("there are no rows")? {
        let number = |at: usize| row[at].as_f64().ok_or(format!("not a row: {row}"));
        empty = empty.min(number(1)?);
        rows.push(Row {
            name: row[0].as_str().unwrap_or_default().to_owned(),
            git: number(2)?,
            refdb: number(3)?,
        });
    }
    Ok(Processes {
        commit: text("commit"),
        date: text("date"),
        machine: text("machine"),
        git: text("git"),
        empty,
        rows,
    })
}

impl Processes {
    /// Says what the floor is.
    pub(crate) fn floor(&self) -> String {
        let starts = self.rows.iter().find(|row| row.name == STARTS);
        let [git, refdb] = starts.map_or([0.0; 2], |row| [row.git, row.refdb]);
        format!(
            "A process that does nothing takes {:.2} ms on this machine, `git --version` {git:.2} ms and \
             `refdb --version` {refdb:.2} ms. To be twice as fast as Git, refdb may take half of Git's time: what \
             is left of that for the work, once it has started, stands beside what the work takes.",
            self.empty
        )
    }

    /// Returns the heads of the columns.
    pub(crate) fn heads() -> [&'static str; 6] {
        [
            "one process, milliseconds",
            "Git",
            "refdb",
            "ratio",
            "left for the work at 2x",
            "the work takes",
        ]
    }

    /// Returns the cells of every row but the one that only starts; the first is text with backquotes.
    pub(crate) fn cells(&self) -> Vec<[String; 6]> {
        let starts = self.rows.iter().find(|row| row.name == STARTS);
        let start = starts.map_or(self.empty, |row| row.refdb);
        let rows = self.rows.iter().filter(|row| row.name != STARTS);
        rows.map(|row| {
            let ratio = (row.git / row.refdb * 100.0).floor() / 100.0;
            [
                row.name.clone(),
                format!("{:.2}", row.git),
                format!("{:.2}", row.refdb),
                format!("{ratio:.2}x"),
                format!("{:.2}", row.git / WANTED - start),
                format!("{:.2}", row.refdb - start),
            ]
        })
        .collect()
    }

    /// Says where the figures are from.
    pub(crate) fn origin(&self) -> String {
        format!(
            "{}, {}, {}, commit {}",
            self.date, self.machine, self.git, self.commit
        )
    }

    /// Returns all of it as Markdown.
    pub(crate) fn markdown(&self) -> String {
        let mut text = format!(
            "{}\n\n| {} |\n|---",
            self.floor(),
            Self::heads().join(" | ")
        );
        text.push_str(&"|---:".repeat(Self::heads().len() - 1));
        text.push_str("|\n");
        for cells in self.cells() {
            let _ = writeln!(text, "| {} |", cells.join(" | "));
        }
        let _ = writeln!(
            text,
            "\n{}. Again: `scripts/process-speed --record`",
            self.origin()
        );
        text
    }
}
