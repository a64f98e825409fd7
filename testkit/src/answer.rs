//! What a command line comes to, in a form in which Git's and the command's can be compared.
//!
//! ```
//! use refdb_testkit::{Format, answer::Answer, oracle, repo::Repo};
//!
//! let repo = Repo::init(Format::FILES_SHA1);
//! let answer = Answer::of(oracle::program(), ["symbolic-ref", "HEAD"], b"", &repo, ".");
//! assert_eq!((answer.code, answer.stdout.as_str()), (0, "refs/heads/main\n"));
//! ```

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use bstr::{BString, ByteSlice};

use crate::oracle;
use crate::repo::Repo;

/// Lines that a session answers.
const ANSWERED: [&[u8]; 4] = [b"start", b"prepare", b"commit", b"abort"];
/// How long an answer is awaited. It fails to come where the line is taken for something else.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a command line came to, without what differs by its nature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The exit code, or -1 if a signal ended it.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Answer {
    /// Runs a program in the folder `below` of a repository, in Git's environment.
    ///
    /// # Panics
    ///
    /// If it cannot be run.
    pub fn of(
        program: &Path,
        args: impl IntoIterator<Item = impl AsRef<OsStr>>,
        stdin: &[u8],
        repo: &Repo,
        below: &str,
    ) -> Answer {
        let mut command = command(program, args, repo, below);
        Answer::of_command(&mut command, stdin, repo)
    }

    /// Runs a command that [`command`] began.
    ///
    /// # Panics
    ///
    /// If it cannot be run.
    pub fn of_command(command: &mut Command, stdin: &[u8], repo: &Repo) -> Answer {
        let mut child = command.spawn().expect("the program can be run");
        let mut pipe = child.stdin.take().expect("it is a pipe");
        let out = std::thread::scope(|scope| {
            // The program may end before it has read everything.
            scope.spawn(move || pipe.write_all(stdin));
            child.wait_with_output().expect("the program ends")
        });
        Answer::new(out.status, &exact(&out.stdout), &out.stderr, repo).into_newest(command)
    }

    /// Talks with a command that [`command`] began: it is told a piece of input, and where that
    /// asks for an answer, the answer is awaited, and `look` has a look around. What was seen stands
    /// in standard output.
    ///
    /// # Panics
    ///
    /// If it cannot be run.
    pub fn of_dialogue(
        command: &mut Command,
        pieces: &[BString],
        repo: &Repo,
        mut look: impl FnMut() -> String,
    ) -> Answer {
        let mut child = command.spawn().expect("the program can be run");
        let mut pipe = child.stdin.take().expect("it is a pipe");
        let out = child.stdout.take().expect("it is a pipe");
        let mut err = child.stderr.take().expect("it is a pipe");
        let (sender, receiver) = mpsc::channel();
        let mut stdout = String::new();
        let mut stderr = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut out = BufReader::new(out);
                let mut line = Vec::new();
                while out.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                    let _ = sender.send(exact(&line));
                    line.clear();
                }
            });
            scope.spawn(|| err.read_to_end(&mut stderr));
            for piece in pieces {
                // Whether a program that has ended can still be told something is chance, but not
                // what it had answered.
                let _ = pipe.write_all(piece);
                let word = piece.trim_end_with(|c| c == '\n' || c == '\0');
                if !ANSWERED.contains(&word) {
                    continue;
                }
                let Ok(line) = receiver.recv_timeout(PATIENCE) else {
                    continue;
                };
                stdout.push_str(&line);
                if line.ends_with(": ok\n") {
                    let _ = write!(stdout, "> {}\n{}", word.as_bstr(), look());
                }
            }
            drop(pipe);
            stdout.extend(receiver);
        });
        let status = child.wait().expect("the program ends");
        Answer::new(status, &stdout, &stderr, repo).into_newest(command)
    }

    /// Turns an answer of the oracle into that of the newest Git.
    fn into_newest(mut self, command: &Command) -> Answer {
        if Path::new(command.get_program()) == oracle::program() {
            oracle::as_newest(&mut self.code, &mut self.stdout, &mut self.stderr);
        }
        self
    }

    fn new(status: ExitStatus, stdout: &str, stderr: &[u8], repo: &Repo) -> Answer {
        Answer {
            code: status.code().unwrap_or(-1),
            // Bytes that are no UTF-8 must not become the same in both, except in messages.
            stdout: comparable(stdout, repo),
            stderr: comparable(&String::from_utf8_lossy(stderr), repo),
        }
    }

    /// Returns a readable text of what differs, empty if nothing does.
    pub fn difference(&self, ours: &Answer) -> String {
        let mut text = String::new();
        if self.code != ours.code {
            let _ = write!(text, "\n  exit code {} for {}", ours.code, self.code);
        }
        for (name, git, ours) in [
            ("stdout", &self.stdout, &ours.stdout),
            ("stderr", &self.stderr, &ours.stderr),
        ] {
            if git != ours {
                let _ = write!(text, "\n  {name}:");
                compare_lines(&mut text, git, ours);
            }
        }
        text
    }
}

/// Begins a command in the folder `below` of a repository, in Git's environment.
pub fn command(
    program: &Path,
    args: impl IntoIterator<Item = impl AsRef<OsStr>>,
    repo: &Repo,
    below: &str,
) -> Command {
    let mut command = Command::new(program);
    command
        .args(args)
        .current_dir(repo.path().join(below))
        .env_clear()
        .envs(oracle::environment())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn exact(text: &[u8]) -> String {
    text.utf8_chunks()
        .map(|chunk| format!("{}{}", chunk.valid(), chunk.invalid().escape_ascii()))
        .collect()
}

/// Takes away what differs by its nature: where the repository lies, what the program is called,
/// and the words in which options are explained.
fn comparable(text: &str, repo: &Repo) -> String {
    let path = repo.path().to_str().expect("test names are UTF-8");
    let text = text.replace(path, "<repo>");
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
                // It is refdb's own, in commands that Git has as well.
                if spelled.trim_end() == "--[no-]progress" {
                    continue;
                }
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

/// Appends the lines in which two texts differ, Git's with `-` and the command's with `+`.
pub fn compare_lines(text: &mut String, git: &str, ours: &str) {
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
