//! Each invariant of docs/design.md has tests that protect it, as docs/testing.md lists them.

use std::collections::BTreeSet;
use std::fs;

use refdb_testkit::oracle::workspace_root;

use super::sources::all;

#[test]
fn each_invariant_has_its_tests() {
    let read = |path| fs::read_to_string(workspace_root().join(path)).expect("a page");
    let sources: Vec<String> = all().into_iter().map(|source| source.text).collect();
    let tests = sources.iter().flat_map(|text| tests(text)).collect();
    let design = read("docs/design.md");
    let mut faults = faults(&design, &read("docs/testing.md"), &tests);
    faults.extend(crash_faults(&design, &tests));
    assert_eq!(faults, Vec::<String>::new());
}

/// Returns what is wrong with the table that says what a crash leaves: each row names its tests.
fn crash_faults(design: &str, tests: &BTreeSet<String>) -> Vec<String> {
    let rows = rows(design, "## 6. Order of writes");
    let crashes = rows.iter().filter(|cells| cells.len() == 4);
    let mut crashes = crashes
        .filter(|cells| cells[0].starts_with(char::is_numeric))
        .peekable();
    if crashes.peek().is_none() {
        return vec!["no row says what a crash leaves".to_owned()];
    }
    let unknown = crashes.flat_map(|cells| {
        let named = quoted(&cells[3]);
        let none = named.is_empty().then(|| format!("{}: no test", cells[0]));
        let unknown = named.into_iter().filter(|name| !tests.contains(name));
        let unknown = unknown.map(|name| format!("{}: there is no test {name}", cells[0]));
        none.into_iter().chain(unknown).collect::<Vec<_>>()
    });
    unknown.collect()
}

/// Returns what stands in quotes in a cell.
fn quoted(cell: &str) -> Vec<String> {
    let parts = cell.split('`').skip(1).step_by(2);
    parts.map(str::to_owned).collect()
}

/// Returns what is missing on the page of tests, and what it has too much.
fn faults(design: &str, testing: &str, tests: &BTreeSet<String>) -> Vec<String> {
    let stated = rows(design, "## 2. Invariants");
    let listed = rows(testing, "## Which test protects which invariant");
    let mut faults = Vec::new();
    let names = |rows: &[Vec<String>]| -> Vec<String> {
        rows.iter().map(|cells| cells[0].clone()).collect()
    };
    if stated.is_empty() || names(&stated) != names(&listed) {
        faults.push(format!("{:?} and {:?}", names(&stated), names(&listed)));
    }
    for cells in &listed {
        let named: Vec<Vec<String>> = cells[1..].iter().map(|cell| quoted(cell)).collect();
        if named.first().is_none_or(Vec::is_empty) {
            faults.push(format!("{} has no test", cells[0]));
        }
        let unknown = named
            .concat()
            .into_iter()
            .filter(|name| !tests.contains(name));
        faults.extend(unknown.map(|name| format!("{}: there is no test {name}", cells[0])));
    }
    faults
}

/// Returns the cells of the table below a title, line by line, without its head.
fn rows(page: &str, title: &str) -> Vec<Vec<String>> {
    let (_, section) = page.split_once(title).unwrap_or_default();
    let section = section.split("\n## ").next().unwrap_or_default();
    let lines = section.lines().filter(|line| line.starts_with('|'));
    let cells = |line: &str| -> Vec<String> {
        let cells = line.trim_matches('|').split('|');
        cells.map(|cell| cell.trim().to_owned()).collect()
    };
    lines.skip(2).map(cells).collect()
}

/// Returns the names of the tests in a file: functions that are marked as such, those that run once in
/// each format, and those that a macro makes from "name: check(format) with Bug".
fn tests(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut is_marked = false;
    for line in text.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("fn ") {
            let (name, arguments) = rest.split_once('(').unwrap_or((rest, ""));
            if is_marked || arguments.starts_with("format) {") {
                names.push(name.to_owned());
            }
        } else if let Some((name, rest)) = line.split_once(": ")
            && rest.starts_with("check_")
            && rest.contains(") with ")
        {
            names.push(name.to_owned());
        }
        is_marked = line.starts_with("#[") && (is_marked || line == "#[test]");
    }
    names
}

mod the_checker {
    use super::*;

    const DESIGN: &str =
        "## 2. Invariants\n\n| | |\n|---|---|\n| T1 | a |\n| T2 | b |\n\n## 3\n| X | |\n";

    fn found(testing: &str) -> Vec<String> {
        let source = "#[test]\nfn one() {\n}\nfn no_test() {\n}\n    fn two(format) {\n    three: check_x(F) with Bug;\n";
        let title = "## Which test protects which invariant\n\n| | | |\n|---|---|---|\n";
        let tests = tests(source).into_iter().collect();
        faults(DESIGN, &format!("{title}{testing}"), &tests)
    }

    #[test]
    fn finds_what_is_missing() {
        assert_eq!(
            found("| T1 | `one` | |\n| T2 | `two` | `three` |\n"),
            Vec::<String>::new()
        );
        assert_eq!(found("| T1 | `one` | |\n"), [r#"["T1", "T2"] and ["T1"]"#]);
        let none = "| T1 | | `three` |\n| T2 | `two` | |\n";
        assert_eq!(found(none), ["T1 has no test"]);
        let unknown = "| T1 | `one`, `no_test` | |\n| T2 | `two` | |\n";
        assert_eq!(found(unknown), ["T1: there is no test no_test"]);
    }

    #[test]
    fn finds_a_crash_that_no_test_is_about() {
        let found = |rows: &str| {
            let head = "## 6. Order of writes\n\n| | | | |\n|---|---|---|---|\n";
            let tests = BTreeSet::from(["one".to_owned()]);
            crash_faults(&format!("{head}{rows}"), &tests)
        };
        assert_eq!(found("| 1. a | old | | `one` |\n"), Vec::<String>::new());
        assert_eq!(found(""), ["no row says what a crash leaves"]);
        let unknown = "| 1. a | old | | `two` |\n| 2. b | new | | |\n";
        assert_eq!(
            found(unknown),
            ["1. a: there is no test two", "2. b: no test"]
        );
    }
}
