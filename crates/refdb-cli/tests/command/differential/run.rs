//! Runs a case in twin repositories and compares what comes of it.

use std::fmt::Write as _;
use std::path::Path;

use refdb_testkit::RefFormat;
use refdb_testkit::answer::{Answer, compare_lines};
use refdb_testkit::fixture::Fixture;
use refdb_testkit::oracle;
use refdb_testkit::repo::Repo;

use super::script::{Case, Step, unescape, words};

/// Two repositories with the same content.
pub(crate) struct Twins<'f> {
    fixture: &'f Fixture,
    git: Repo,
    ours: Repo,
}

impl<'f> Twins<'f> {
    /// Makes the repositories.
    pub(crate) fn new(fixture: &'f Fixture) -> Self {
        Twins {
            fixture,
            git: fixture.repo.duplicate(),
            ours: fixture.repo.duplicate(),
        }
    }

    /// Runs a case; returns a readable text for each difference.
    pub(crate) fn run(&self, case: &Case) -> Vec<String> {
        let mut differences = Vec::new();
        let mut named: Vec<(String, String)> = Vec::new();
        for step in &case.steps {
            let fill = |text: &str| {
                let replace = |text: String, (name, value): &(String, String)| {
                    text.replace(&format!("{{{name}}}"), value)
                };
                let filled = self.fixture.fill(text.as_bytes()).to_string();
                named.iter().fold(filled, replace)
            };
            if step.writes {
                self.write(&fill(&step.args));
                continue;
            }
            let args = words(&fill(&step.args));
            let stdin = fill(&step.stdin);
            if step.prepares {
                let [text, _] = [&self.git, &self.ours]
                    .map(|repo| repo.git(&args).stdin(stdin.clone()).run().text());
                named.extend(step.names.clone().map(|name| (name, text)));
                continue;
            }
            let expected = Answer::of(oracle::program(), &args, stdin.as_bytes(), &self.git, ".");
            let program = Path::new(env!("CARGO_BIN_EXE_refdb"));
            let actual = Answer::of(program, &args, stdin.as_bytes(), &self.ours, ".");
            let differ = expected != actual;
            if differ != self.is_named_in(&step.differs) {
                differences.push(describe(case, step, &stdin, &expected, &actual));
            }
        }
        let (expected, actual) = (self.git.state(), self.ours.state());
        let known = self.is_named_in(&case.state_differs);
        if expected == actual && known {
            differences.push(format!("# {}: the state does not differ", case.title));
        }
        if expected != actual && !known {
            let mut text = format!("# {}: other refs or reflogs", case.title);
            let (expected, actual) = (format!("{expected:#?}"), format!("{actual:#?}"));
            compare_lines(&mut text, &expected, &actual);
            differences.push(text);
        }
        differences
    }

    /// Writes a file into both repositories, if their refs are files.
    fn write(&self, step: &str) {
        let (path, text) = step.split_once(' ').unwrap_or((step, ""));
        if self.git.format().refs == RefFormat::Files {
            for repo in [&self.git, &self.ours] {
                let path = repo.git_dir().join(path);
                let parent = path.parent().expect("it lies in Git's folder");
                std::fs::create_dir_all(parent).expect("a folder can be made");
                std::fs::write(&path, unescape(text)).expect("a file can be written");
            }
        }
    }

    fn is_named_in(&self, formats: &[String]) -> bool {
        let format = self.git.format().refs.name();
        formats.iter().any(|it| it.is_empty() || it == format)
    }
}

fn describe(case: &Case, step: &Step, stdin: &str, git: &Answer, ours: &Answer) -> String {
    let mut text = format!("# {}\n$ {}", case.title, step.args);
    for line in stdin.lines() {
        let _ = write!(text, "\n< {}", line.escape_debug());
    }
    if git == ours {
        text.push_str("\n  was expected to differ, but does not");
        return text;
    }
    text.push_str(&git.difference(ours));
    text
}
