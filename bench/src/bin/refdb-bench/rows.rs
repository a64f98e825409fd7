//! What is shown of the history: of each workload the last measurement, all with as many refs.

use std::collections::BTreeMap;

use crate::history::{Figure, Run};
use crate::questions::{Topic, grouped, question, topic};

/// The formats, in the order in which they are shown.
pub(crate) const FORMATS: [&str; 2] = ["reftable", "files"];

/// Every row, and with how many refs it was measured.
#[derive(Debug)]
pub(crate) struct Rows<'a> {
    pub(crate) refs: u64,
    pub(crate) rows: Vec<Row<'a>>,
}

/// One workload in one format.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    pub(crate) format: &'a str,
    pub(crate) fsync: &'a str,
    pub(crate) workload: &'a str,
    pub(crate) figure: Figure,
    /// Where it was measured.
    pub(crate) run: &'a Run,
}

impl<'a> Rows<'a> {
    /// Finds them: the largest number of refs that a run says it had, and of each workload the last run
    /// with as many.
    pub(crate) fn last(runs: &'a [Run]) -> Option<Self> {
        let refs = runs.iter().filter_map(Run::refs).max()?;
        let mut found: BTreeMap<&str, Row<'a>> = BTreeMap::new();
        for run in runs.iter().filter(|run| run.refs() == Some(refs)) {
            for (name, &figure) in &run.figures {
                let mut parts = name.splitn(3, '/');
                let (Some(format), Some(fsync), Some(workload)) =
                    (parts.next(), parts.next(), parts.next())
                else {
                    continue;
                };
                let row = Row {
                    format,
                    fsync,
                    workload,
                    figure,
                    run,
                };
                found.insert(name, row);
            }
        }
        let mut rows: Vec<Row<'a>> = found.into_values().collect();
        rows.sort_by_key(|row| {
            let format = FORMATS.iter().position(|&format| format == row.format);
            let (topic, place, _) = topic(row.workload);
            (format, row.fsync, topic, place, row.workload)
        });
        Some(Rows { refs, rows })
    }

    /// Returns the formats and durabilities that there are.
    pub(crate) fn groups(&self) -> Vec<(&'a str, &'a str)> {
        let mut groups: Vec<_> = self
            .rows
            .iter()
            .map(|row| (row.format, row.fsync))
            .collect();
        groups.dedup();
        groups
    }

    /// Returns the rows of a format by topic.
    pub(crate) fn topics(&self, group: (&str, &str)) -> Vec<(&'static Topic, Vec<Row<'a>>)> {
        let mut topics: Vec<(&'static Topic, Vec<Row<'a>>)> = Vec::new();
        let rows = self.rows.iter();
        for row in rows.filter(|row| (row.format, row.fsync) == group) {
            let (_, _, of) = topic(row.workload);
            match topics.last_mut() {
                Some((last, rows)) if last.title == of.title => rows.push(*row),
                _ => topics.push((of, vec![*row])),
            }
        }
        topics
    }

    /// Returns the runs that rows of a format come from, each with its rows.
    pub(crate) fn runs(&self, group: (&str, &str)) -> Vec<(&'a Run, Vec<Row<'a>>)> {
        let rows = self.rows.iter().copied();
        by_run(rows.filter(|row| (row.format, row.fsync) == group))
    }
}

/// Returns the runs that rows come from, that of most of them first.
pub(crate) fn by_run<'a>(rows: impl Iterator<Item = Row<'a>>) -> Vec<(&'a Run, Vec<Row<'a>>)> {
    let mut runs: Vec<(&Run, Vec<Row<'_>>)> = Vec::new();
    for row in rows {
        match runs.iter_mut().find(|(run, _)| std::ptr::eq(*run, row.run)) {
            Some((_, rows)) => rows.push(row),
            None => runs.push((row.run, vec![row])),
        }
    }
    runs.sort_by_key(|(_, rows)| std::cmp::Reverse(rows.len()));
    runs
}

impl Row<'_> {
    /// Returns what is asked, without "How long does it take to".
    pub(crate) fn question(&self) -> String {
        question(self.workload, self.run.refs().unwrap_or_default())
    }

    /// Returns where the row stands among those of its format.
    pub(crate) fn place(&self) -> (usize, usize, &str) {
        let (topic, place, _) = topic(self.workload);
        (topic, place, self.workload)
    }

    /// Returns how many times as long Git took; the least that it can be where Git was ended.
    pub(crate) fn ratio(&self) -> Option<f64> {
        let git = self.figure.git_ms.or_else(|| self.run.limit_ms())?;
        Some(git / self.figure.refdb_ms)
    }

    /// Returns the ratio as it is shown.
    pub(crate) fn shown_ratio(&self) -> String {
        match self.ratio() {
            None => "-".to_owned(),
            Some(ratio) if self.figure.git_ms.is_none() => {
                format!("over {}x", nearest(ratio.floor()))
            }
            // What is rounded must not look like more than it is.
            Some(ratio) if ratio < 10.0 => format!("{:.1}x", (ratio * 10.0).floor() / 10.0),
            Some(ratio) => format!("{}x", nearest(ratio.floor())),
        }
    }
}

/// Returns the whole number next to one, as it is read.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a figure is not negative, and far below 2^64"
)]
pub(crate) fn nearest(number: f64) -> String {
    grouped(number.round() as u64)
}

/// Returns the command that measures rows of one format and one run again, and nothing else.
pub(crate) fn command(rows: &[Row<'_>]) -> String {
    let names: Vec<&str> = rows.iter().map(|row| row.workload).collect();
    let options = options(rows);
    format!("scripts/main-job {options} --only={}", names.join(","))
}

/// Returns the options with which rows of one format and one run were measured.
pub(crate) fn options(rows: &[Row<'_>]) -> String {
    let Some(first) = rows.first() else {
        return String::new();
    };
    // Where the repositories were made is a place of that machine.
    let own = ["formats", "fsync", "only", "dir"];
    let options = first.run.options();
    let mut options: Vec<String> = options
        .filter(|(name, _)| !own.contains(name))
        .map(|(name, value)| format!("--{name}={value}"))
        .collect();
    options.push(format!(
        "--formats={} --fsync={}",
        first.format, first.fsync
    ));
    options.push("--dir=/dev/shm".to_owned());
    options.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::read_from;

    const RUNS: &str = concat!(
        r#"{"commit":"a0","figures":{"files/none/list":[1.0,99.0,3.0]}}"#,
        "\n",
        r#"{"commit":"a1","options":"--refs 1000 --limit 10","figures":"#,
        r#"{"files/none/list":[10.0,25.0,3.0],"files/none/create":[10.0,null,3.0]}}"#,
        "\n",
        r#"{"commit":"a2","options":"--refs 10","figures":{"files/none/list":[1.0,9.0,3.0]}}"#,
        "\n",
        r#"{"commit":"a3","options":"--refs=1000 --runs 3 --dir /x","figures":"#,
        r#"{"reftable/none/list":[10.0,199.9,3.0],"files/none/list":[10.0,19.99,3.0]}}"#,
    );

    #[test]
    fn each_row_is_the_last_one_with_as_many_refs() {
        let runs = read_from(RUNS).expect("four runs");
        let rows = Rows::last(&runs).expect("there are rows");
        let shown: Vec<_> = rows
            .rows
            .iter()
            .map(|row| {
                (
                    row.format,
                    row.workload,
                    row.run.commit.as_str(),
                    row.shown_ratio(),
                )
            })
            .collect();
        assert_eq!(rows.refs, 1000);
        let expected = [
            ("reftable", "list", "a3", "19x"),
            ("files", "create", "a1", "over 1,000x"),
            ("files", "list", "a3", "1.9x"),
        ];
        assert_eq!(
            shown,
            expected.map(|(format, name, commit, ratio)| (format, name, commit, ratio.to_owned()))
        );
        assert_eq!(rows.groups(), [("reftable", "none"), ("files", "none")]);
        let topics = rows.topics(("files", "none"));
        let titles: Vec<&str> = topics.iter().map(|(topic, _)| topic.title).collect();
        assert_eq!(
            titles,
            ["Creating refs", "Listing refs and looking them up"]
        );
    }

    #[test]
    fn the_command_has_the_options_of_its_run() {
        let runs = read_from(RUNS).expect("four runs");
        let rows = Rows::last(&runs).expect("there are rows");
        assert_eq!(
            command(&rows.rows[..1]),
            "scripts/main-job --refs=1000 --runs=3 --formats=reftable --fsync=none --dir=/dev/shm \
             --only=list"
        );
    }
}
