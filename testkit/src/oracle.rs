//! Real Git as the oracle, run with nothing of the caller's environment.
//!
//! 1. The program is the one that `REFDB_GIT` names, else `.git-oracle/root/usr/bin/git` of the
//!    workspace; the host's own Git is never used, since what it can do differs from host to host.
//! 2. No variable of the caller, no configuration of the user or the system, and no clock reaches
//!    Git: the same arguments in the same repository give the same bytes.
//!
//! ```
//! let dir = tempfile::tempdir().expect("a folder");
//! refdb_testkit::oracle::git(dir.path()).args(["init", "-q"]).run().ok();
//! let out = refdb_testkit::oracle::git(dir.path()).args(["rev-parse", "nonsense"]).run();
//! assert_eq!(out.code(), 128);
//! ```

use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use bstr::ByteSlice;

use crate::dialogue::Dialogue;

/// The name of author and committer.
pub const NAME: &str = "Ann Tester";
/// The mail address of author and committer.
pub const EMAIL: &str = "ann@example.org";
/// The time of every commit and reflog entry, in seconds since 1970, unless [`GitRun::at`] says
/// another.
pub const TIME: u64 = 1_700_000_000;
/// The time zone of every commit and reflog entry.
pub const ZONE: &str = "+0230";

/// Settings that would otherwise depend on the host or start work in the background.
const CONFIG: [(&str, &str); 7] = [
    ("init.defaultBranch", "main"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("protocol.file.allow", "always"),
    ("protocol.ext.allow", "never"),
    ("advice.detachedHead", "false"),
    ("core.abbrev", "no"),
];

/// Where the oracle is, and where its helpers are.
#[derive(Debug)]
struct Oracle {
    program: PathBuf,
    helpers: Option<PathBuf>,
    version: String,
}

/// One run of Git that is being put together.
#[derive(Debug)]
#[must_use = "Git runs when `run` is called"]
pub struct GitRun {
    command: Command,
    stdin: Vec<u8>,
}

/// What a run of Git answered.
#[derive(Clone, Debug)]
pub struct Output {
    /// How it ended.
    pub status: ExitStatus,
    /// What it wrote to standard output.
    pub stdout: Vec<u8>,
    /// What it wrote to standard error.
    pub stderr: Vec<u8>,
    /// The command line, for messages.
    pub(crate) command: String,
}

/// Begins a run of Git in `dir`.
///
/// # Panics
///
/// If there is no oracle, with the reason and the command that puts one in place.
pub fn git(dir: impl AsRef<Path>) -> GitRun {
    run_of(program(), dir)
}

/// Begins a run of another program in the same environment that Git gets.
///
/// # Panics
///
/// If there is no oracle.
pub fn run_of(program: impl AsRef<OsStr>, dir: impl AsRef<Path>) -> GitRun {
    let mut command = Command::new(program);
    command.current_dir(dir.as_ref());
    command.env_clear();
    for (name, value) in environment() {
        command.env(name, value);
    }
    GitRun {
        command,
        stdin: Vec::new(),
    }
}

/// Returns the oracle's version, such as `2.55.0`.
pub fn version() -> &'static str {
    &oracle().version
}

/// Returns whether the oracle answers as Git 2.56: whatever it calls itself, a call with `-h` succeeds.
pub fn is_newest() -> bool {
    static IS_NEWEST: OnceLock<bool> = OnceLock::new();
    *IS_NEWEST.get_or_init(|| git("/").args(["update-ref", "-h"]).run().code() == 0)
}

/// Turns the answer of a Git that was asked for a usage text into that of Git 2.56, which ends with
/// exit code 0 where older ones end with 129, and tells of an ambiguous option on standard error.
/// Every other answer stays.
pub fn as_newest(code: &mut i32, stdout: &mut String, stderr: &mut String) {
    if *code != 129 || !stdout.starts_with("usage") {
        return;
    }
    if stderr.is_empty() {
        *code = 0;
    } else {
        stderr.push_str(&std::mem::take(stdout));
    }
}

/// Returns the oracle's program, for measurements that must start it themselves.
pub fn program() -> &'static Path {
    &oracle().program
}

/// Returns the whole environment that Git runs in, for tests that start it in another way.
pub fn environment() -> Vec<(OsString, OsString)> {
    let oracle = oracle();
    let mut variables: Vec<(OsString, OsString)> = Vec::new();
    let mut set = |name: &str, value: &OsStr| variables.push((name.into(), value.into()));
    let bin = oracle.program.parent().expect("a program has a parent");
    let mut path = bin.as_os_str().to_owned();
    path.push(":/usr/bin:/bin");
    set("PATH", &path);
    if let Some(helpers) = &oracle.helpers {
        set("GIT_EXEC_PATH", helpers.as_os_str());
    }
    let time = format!("{TIME} {ZONE}");
    let count = CONFIG.len().to_string();
    for (name, value) in [
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_TEMPLATE_DIR", ""),
        ("GIT_AUTHOR_NAME", NAME),
        ("GIT_AUTHOR_EMAIL", EMAIL),
        ("GIT_AUTHOR_DATE", &time),
        ("GIT_COMMITTER_NAME", NAME),
        ("GIT_COMMITTER_EMAIL", EMAIL),
        ("GIT_COMMITTER_DATE", &time),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_CONFIG_COUNT", &count),
        ("HOME", "/nonexistent"),
        ("LC_ALL", "C"),
        ("TZ", "UTC"),
    ] {
        set(name, OsStr::new(value));
    }
    for (index, (key, value)) in CONFIG.iter().enumerate() {
        set(&format!("GIT_CONFIG_KEY_{index}"), OsStr::new(key));
        set(&format!("GIT_CONFIG_VALUE_{index}"), OsStr::new(value));
    }
    variables
}

impl GitRun {
    /// Adds one argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> GitRun {
        self.command.arg(arg);
        self
    }

    /// Adds arguments.
    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> GitRun {
        self.command.args(args);
        self
    }

    /// Sets an environment variable for this run.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> GitRun {
        self.command.env(name, value);
        self
    }

    /// Takes an environment variable away for this run.
    pub fn unset(mut self, name: &str) -> GitRun {
        self.command.env_remove(name);
        self
    }

    /// Sets the committer's time, in seconds since 1970, and zone for this run.
    pub fn at(self, time: u64, zone: &str) -> GitRun {
        self.env("GIT_COMMITTER_DATE", format!("{time} {zone}"))
    }

    /// Gives Git these bytes on standard input, which is empty otherwise.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> GitRun {
        self.stdin = bytes.into();
        self
    }

    /// Starts the program, to be talked to. What [`GitRun::stdin`] was given is not said.
    ///
    /// # Panics
    ///
    /// If it cannot be run.
    pub fn begin(mut self) -> Dialogue {
        let line = describe(&self.command);
        Dialogue::begin(&mut self.command, line)
    }

    /// Runs Git to its end.
    pub fn run(mut self) -> Output {
        let line = describe(&self.command);
        self.command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut tries = 0..100;
        let begun = loop {
            match self.command.spawn() {
                // It was just written, and another thread has started a process that has it open for a moment.
                Err(e) if e.kind() == ErrorKind::ExecutableFileBusy && tries.next().is_some() => {
                    thread::sleep(Duration::from_millis(10));
                }
                begun => break begun,
            }
        };
        let mut child = begun.unwrap_or_else(|e| panic!("cannot run {line}: {e}"));
        let mut stdin = child.stdin.take().expect("it was set to a pipe");
        let input = self.stdin;
        let result = thread::scope(|scope| {
            // A thread of its own: Git may answer before it has read everything. It may also stop
            // reading when it dies, which is for the caller to judge.
            scope.spawn(move || stdin.write_all(&input));
            child.wait_with_output()
        });
        let out = result.unwrap_or_else(|e| panic!("cannot wait for {line}: {e}"));
        Output {
            status: out.status,
            stdout: out.stdout,
            stderr: out.stderr,
            command: line,
        }
    }
}

impl Output {
    /// Returns the exit code, or -1 if a signal ended Git.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or(-1)
    }

    /// Returns standard output of a run that must have succeeded.
    ///
    /// # Panics
    ///
    /// If the exit code is not 0, with what Git said.
    #[track_caller]
    pub fn ok(self) -> Vec<u8> {
        assert!(
            self.status.success(),
            "{} failed ({}):\n{}{}",
            self.command,
            self.status,
            self.stdout.as_bstr(),
            self.stderr.as_bstr()
        );
        self.stdout
    }

    /// Returns standard output of a run that must have succeeded, as text without the line feed
    /// at its end.
    ///
    /// # Panics
    ///
    /// If the exit code is not 0 or the text is not UTF-8.
    #[track_caller]
    pub fn text(self) -> String {
        let mut text = String::from_utf8(self.ok()).expect("the caller asked for text");
        if text.ends_with('\n') {
            text.pop();
        }
        text
    }
}

fn describe(command: &Command) -> String {
    let mut line = String::from("git");
    for arg in command.get_args() {
        line.push(' ');
        line.push_str(&arg.to_string_lossy());
    }
    line
}

fn oracle() -> &'static Oracle {
    static ORACLE: OnceLock<Result<Oracle, String>> = OnceLock::new();
    match ORACLE.get_or_init(find) {
        Ok(oracle) => oracle,
        Err(reason) => panic!(
            "the tests compare refdb with a recent Git, and there is none: {reason}\n\
             run scripts/get-git, or name one of version 2.50 or newer in REFDB_GIT"
        ),
    }
}

fn find() -> Result<Oracle, String> {
    let program = match std::env::var_os("REFDB_GIT") {
        Some(program) => PathBuf::from(program),
        None => workspace_root().join(".git-oracle/root/usr/bin/git"),
    };
    check(&program)
}

/// Returns the folder that holds the workspace's `Cargo.toml`.
pub fn workspace_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the test kit is in the workspace")
}

fn check(program: &Path) -> Result<Oracle, String> {
    let program = program
        .canonicalize()
        .map_err(|error| format!("{}: {error}", program.display()))?;
    let out = Command::new(&program)
        .arg("--version")
        .output()
        .map_err(|error| format!("{}: {error}", program.display()))?;
    let text = String::from_utf8_lossy(&out.stdout);
    let version = text
        .trim()
        .strip_prefix("git version ")
        .unwrap_or_default()
        .to_owned();
    let mut numbers = version
        .split('.')
        .map(|part| part.parse::<u32>().unwrap_or(0));
    let newest = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if newest < (2, 50) {
        return Err(format!(
            "{} says {text:?}, not 2.50 or newer",
            program.display()
        ));
    }
    // A Git unpacked beside the host's would otherwise start the host's helpers.
    let helpers = program.parent().map(|bin| bin.join("../lib/git-core"));
    let helpers = helpers.filter(|dir| dir.join("git").exists());
    let helpers = helpers.and_then(|dir| dir.canonicalize().ok());
    Ok(Oracle {
        program,
        helpers,
        version,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_oracle_is_told_with_its_path() {
        let error = check(Path::new("/no/such/git")).expect_err("there is no such file");
        assert!(error.contains("/no/such/git"), "{error}");
    }

    #[test]
    fn a_program_that_is_not_a_recent_git_is_refused() {
        let error = check(Path::new("/bin/true")).expect_err("it is not Git");
        assert!(error.contains("2.50"), "{error}");
    }

    #[test]
    fn nothing_of_the_caller_reaches_git() {
        let dir = tempfile::tempdir().expect("a folder");
        let out = git(dir.path())
            .args(["config", "--list", "--show-scope"])
            .run()
            .text();
        assert!(
            out.lines().all(|line| line.starts_with("command\t")),
            "{out}"
        );
        let ident = git(dir.path())
            .args(["var", "GIT_COMMITTER_IDENT"])
            .run()
            .text();
        assert_eq!(ident, format!("{NAME} <{EMAIL}> {TIME} {ZONE}"));
    }

    #[test]
    fn helpers_are_the_oracles_own() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = git(dir.path()).arg("--exec-path").run().text();
        let ours = program()
            .parent()
            .expect("a folder")
            .join("../lib/git-core");
        assert_eq!(Path::new(&path), ours.canonicalize().expect("helpers"));
    }

    #[test]
    fn large_input_and_output_do_not_block_each_other() {
        let dir = tempfile::tempdir().expect("a folder");
        git(dir.path()).args(["init", "-q"]).run().ok();
        let input = "nonsense\n".repeat(100_000);
        let out = git(dir.path())
            .args(["cat-file", "--batch-check"])
            .stdin(input)
            .run()
            .ok();
        assert_eq!(out.lines().count(), 100_000);
    }

    #[test]
    #[should_panic(expected = "git rev-parse --verify none failed")]
    fn a_failed_run_is_not_ok() {
        let dir = tempfile::tempdir().expect("a folder");
        git(dir.path()).args(["init", "-q"]).run().ok();
        git(dir.path())
            .args(["rev-parse", "--verify", "none"])
            .run()
            .ok();
    }
}
