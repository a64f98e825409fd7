//! Runs a program with an end: so many seconds, so much memory, so many bytes written.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use refdb_testkit::oracle;
use rustix::process::{Pid, Signal, kill_process};
use wait4::Wait4;

/// How long a command may take.
const SECONDS_MAX: u64 = 10;
/// How much memory it may ask for, and really take.
const MEMORY_MAX: u64 = 1 << 30;
/// How long a file may be that it writes to; more is an error.
const WRITTEN_MAX: u64 = 256 << 20;

/// What is said of a command that had to be ended.
pub(crate) const NO_END: &str = "does not end in time";

/// How a program ended.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    signal: Option<i32>,
    timed_out: bool,
    memory: u64,
    pub(crate) seconds: f64,
    pub(crate) said: String,
    pub(crate) answer: String,
}

impl Ended {
    /// Returns what is wrong with it, whatever it was to do.
    pub(crate) fn fault(&self) -> Option<String> {
        if self.timed_out {
            return Some(NO_END.to_owned());
        }
        if let Some(signal) = self.signal {
            return Some(format!("ended by signal {signal}: {}", self.first_line()));
        }
        if matches!(self.code, Some(101 | 134)) || self.said.contains("panicked at") {
            return Some(format!("panics: {}", self.first_line()));
        }
        (self.memory > MEMORY_MAX).then(|| format!("takes {} bytes", self.memory))
    }

    fn first_line(&self) -> String {
        let line = self.said.lines().next().unwrap_or_default();
        line.chars().take(200).collect()
    }
}

/// Runs a program in `dir`, with `home` as the user's home and files of its own in `scratch`.
pub(crate) fn run(
    program: &Path,
    args: &[String],
    input: &str,
    dir: &Path,
    home: &Path,
    scratch: &Path,
) -> Ended {
    let said = scratch.join("stderr");
    let started = Instant::now();
    let stderr = File::create(&said).expect("a file");
    let answer = scratch.join("stdout");
    let stdout = File::create(&answer).expect("a file");
    // The limits of the shell are those of what it becomes, from the first moment.
    let script = format!(
        "ulimit -v {} && ulimit -f {} && trap '' XFSZ && exec \"$0\" \"$@\"",
        MEMORY_MAX >> 10,
        WRITTEN_MAX >> 9
    );
    let mut child = Command::new("/bin/sh")
        .args(["-c", &script])
        .arg(program)
        .env_clear()
        .envs(oracle::environment())
        .env("HOME", home)
        .env("TMPDIR", scratch)
        .args(args)
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(stdout)
        .stderr(stderr)
        .spawn()
        .expect("it can be run");
    let number = i32::try_from(child.id()).expect("a number of a process");
    let pid = Pid::from_raw(number).expect("a number of a process");
    let (ended, watch) = channel::<()>();
    let watcher = thread::spawn(move || {
        let waited = watch.recv_timeout(Duration::from_secs(SECONDS_MAX));
        let timed_out = waited == Err(RecvTimeoutError::Timeout);
        if timed_out {
            let _ = kill_process(pid, Signal::KILL);
        }
        timed_out
    });
    let mut stdin = child.stdin.take().expect("it was set to a pipe");
    // Little enough for the pipe; whoever ends without reading it has said why.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let used = child.wait4().expect("it can be waited for");
    drop(ended);
    let timed_out = watcher.join().expect("it does not panic");
    let text = |path: &Path| {
        let content = fs::read(path).unwrap_or_default();
        String::from_utf8_lossy(&content).into_owned()
    };
    Ended {
        code: used.status.code(),
        signal: used.status.signal(),
        timed_out,
        memory: used.rusage.maxrss,
        seconds: started.elapsed().as_secs_f64(),
        said: text(&said),
        answer: text(&answer),
    }
}
