//! A program that is talked to: what is said to it may depend on what it answered.
//!
//! ```
//! use refdb_testkit::{Format, oracle, repo::Repo};
//!
//! let repo = Repo::init(Format::FILES_SHA1);
//! let mut git = oracle::git(repo.path()).args(["update-ref", "--stdin"]).begin();
//! git.say("start\n");
//! assert_eq!(git.hear(), "start: ok\n");
//! assert_eq!(git.end().code(), 0);
//! ```

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::oracle::Output;

/// Nothing takes so long, on whatever machine.
const STUCK: Duration = Duration::from_secs(60);

/// Waits until something is so, which another program does.
///
/// # Panics
///
/// If it is not so after a minute.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < STUCK, "waiting until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A running program, its input and what it answers.
///
/// What it writes to standard error is read at its end: no more than a pipe holds.
pub struct Dialogue {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    line: String,
}

impl Dialogue {
    /// Starts a program; `line` tells messages its command line.
    pub(crate) fn begin(command: &mut Command, line: String) -> Dialogue {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("cannot run {line}: {e}"));
        Dialogue {
            stdin: child.stdin.take(),
            stdout: BufReader::new(child.stdout.take().expect("it was set to a pipe")),
            child,
            line,
        }
    }

    /// Writes to the program.
    ///
    /// # Panics
    ///
    /// If it reads no more.
    pub fn say(&mut self, text: &str) {
        let stdin = self.stdin.as_mut().expect("it is open until the end");
        stdin
            .write_all(text.as_bytes())
            .unwrap_or_else(|e| panic!("{} does not read: {e}", self.line));
    }

    /// Writes to a program that may have ended; returns whether it still reads.
    pub fn tell(&mut self, text: &str) -> bool {
        let stdin = self.stdin.as_mut().expect("it is open until the end");
        stdin.write_all(text.as_bytes()).is_ok()
    }

    /// Returns the next line of the program, with its line feed; empty if there is none.
    ///
    /// # Panics
    ///
    /// If it writes no text.
    pub fn hear(&mut self) -> String {
        let mut answer = String::new();
        self.stdout
            .read_line(&mut answer)
            .unwrap_or_else(|e| panic!("{} writes no text: {e}", self.line));
        answer
    }

    /// Says no more, and waits until the program has ended; returns what it had not yet been heard to
    /// answer.
    pub fn end(mut self) -> Output {
        self.stdin = None;
        self.wait()
    }

    /// As [`end`](Self::end), while the program might be told more.
    ///
    /// # Panics
    ///
    /// If it cannot be waited for.
    pub fn wait(mut self) -> Output {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let mut errors = self.child.stderr.take().expect("it was set to a pipe");
        let status = self
            .stdout
            .read_to_end(&mut stdout)
            .and_then(|_| errors.read_to_end(&mut stderr))
            .and_then(|_| self.child.wait())
            .unwrap_or_else(|e| panic!("cannot wait for {}: {e}", self.line));
        Output {
            status,
            stdout,
            stderr,
            command: self.line,
        }
    }
}
