//! Runs a case in twin repositories and compares what comes of it.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use bstr::ByteSlice;
use refdb_testkit::oracle;
use refdb_testkit::repo::Repo;

use crate::fixture::Fixture;
use crate::script::{Case, Step, words};

/// Two repositories with the same content.
pub(crate) struct Twins<'f> {
    fixture: &'f Fixture,
    git: Repo,
    ours: Repo,
}

/// What a command line came to, in comparable form.
#[derive(PartialEq, Eq)]
struct Answer {
    code: i32,
    stdout: String,
    stderr: String,
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
                named.iter().fold(self.fixture.fill(text), replace)
            };
            let args = words(&fill(&step.args));
            let stdin = fill(&step.stdin);
            if step.prepares {
                let [text, _] = [&self.git, &self.ours]
                    .map(|repo| repo.git(&args).stdin(stdin.clone()).run().text());
                named.extend(step.names.clone().map(|name| (name, text)));
                continue;
            }
            let expected = answer(oracle::program(), &args, &stdin, &self.git);
            let program = Path::new(env!("CARGO_BIN_EXE_refdb"));
            let actual = answer(program, &args, &stdin, &self.ours);
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

    fn is_named_in(&self, formats: &[String]) -> bool {
        let format = self.git.format().refs.name();
        formats.iter().any(|it| it.is_empty() || it == format)
    }
}

fn answer(program: &Path, args: &[String], stdin: &str, repo: &Repo) -> Answer {
    let mut child = Command::new(program)
        .args(args)
        .current_dir(repo.path())
        .env_clear()
        .envs(oracle::environment())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be run");
    let mut pipe = child.stdin.take().expect("it is a pipe");
    let input = stdin.as_bytes().to_vec();
    let out = std::thread::scope(|scope| {
        // The program may end before it has read everything.
        scope.spawn(move || pipe.write_all(&input));
        child.wait_with_output().expect("the program ends")
    });
    Answer {
        code: out.status.code().unwrap_or(-1),
        stdout: comparable(&out.stdout, repo),
        stderr: comparable(&out.stderr, repo),
    }
}

/// Takes away what differs by its nature: where the repository lies, what the program is called,
/// and the words in which options are explained.
fn comparable(text: &[u8], repo: &Repo) -> String {
    let path = repo.path().to_str().expect("test names are UTF-8");
    let text = text.as_bstr().to_string().replace(path, "<repo>");
    let text = text.replace("refdb ", "git ");
    let mut out = String::new();
    let mut in_usage = false;
    for line in text.lines() {
        if line.starts_with("usage: git ") {
            in_usage = true;
            out.push_str("usage\n");
        } else if in_usage {
            // Of each option the spelling remains; the forms and the explanations do not.
            let option = line.strip_prefix("    ").filter(|it| it.starts_with('-'));
            if let Some(option) = option {
                let end = option.find("  ").unwrap_or(option.len());
                let spelled = &option[..end.min(22).min(option.len())];
                let _ = writeln!(out, "    {}", spelled.trim_end());
            }
        } else {
            let _ = writeln!(out, "{line}");
        }
    }
    if !in_usage && !text.ends_with('\n') {
        out.pop();
    }
    out
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
    if git.code != ours.code {
        let _ = write!(text, "\n  exit code {} for {}", ours.code, git.code);
    }
    for (name, git, ours) in [
        ("stdout", &git.stdout, &ours.stdout),
        ("stderr", &git.stderr, &ours.stderr),
    ] {
        if git != ours {
            let _ = write!(text, "\n  {name}:");
            compare_lines(&mut text, git, ours);
        }
    }
    text
}

/// Appends the lines in which two texts differ, Git's with `-` and the command's with `+`.
fn compare_lines(text: &mut String, git: &str, ours: &str) {
    let (git, ours): (Vec<&str>, Vec<&str>) = (git.lines().collect(), ours.lines().collect());
    // The length of the longest common run of lines from each pair of positions on.
    let mut common = vec![vec![0; ours.len() + 1]; git.len() + 1];
    for (i, a) in git.iter().enumerate().rev() {
        for (j, b) in ours.iter().enumerate().rev() {
            common[i][j] = match a == b {
                true => common[i + 1][j + 1] + 1,
                false => common[i + 1][j].max(common[i][j + 1]),
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    while i < git.len() || j < ours.len() {
        if i < git.len() && j < ours.len() && git[i] == ours[j] {
            (i, j) = (i + 1, j + 1);
        } else if j == ours.len() || (i < git.len() && common[i + 1][j] >= common[i][j + 1]) {
            let _ = write!(text, "\n  - {}", git[i].escape_debug());
            i += 1;
        } else {
            let _ = write!(text, "\n  + {}", ours[j].escape_debug());
            j += 1;
        }
    }
}
