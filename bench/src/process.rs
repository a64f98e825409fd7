//! Running the two programs and taking their time and memory.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use wait4::Wait4;

/// A program that is measured, and how long it may take for one step.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) limit: Option<Duration>,
}

/// What a step took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// From the start of a process to its end: of one, of all that come in a row, or from the first
    /// to the last of those that run side by side.
    pub(crate) time: Duration,
    /// The most memory that one process took, in bytes.
    pub(crate) memory: u64,
}

impl Program {
    /// Returns the program without its limit: for steps of which each is short.
    pub(crate) fn unlimited(&self) -> Program {
        Program {
            name: self.name,
            path: self.path.clone(),
            limit: None,
        }
    }

    /// Runs the program in `dir` once; `None` if it took longer than it may.
    ///
    /// # Errors
    /// When it cannot be started or ends with a failure; the text is for people.
    pub(crate) fn run(
        &self,
        dir: &Path,
        args: &[String],
        input: Option<&Path>,
        output: Option<&Path>,
    ) -> Result<Option<Cost>, String> {
        let failed = |error: io::Error| format!("{}: {error}", self.path.display());
        let stdin = match input {
            Some(path) => Stdio::from(File::open(path).map_err(failed)?),
            None => Stdio::null(),
        };
        let stdout = match output {
            Some(path) => Stdio::from(File::create(path).map_err(failed)?),
            None => Stdio::null(),
        };
        let mut errors = tempfile::tempfile().map_err(failed)?;
        let mut command = self.command(dir, args);
        command
            .stdin(stdin)
            .stdout(stdout)
            .stderr(errors.try_clone().map_err(failed)?);
        let start = Instant::now();
        let child = command.spawn().map_err(failed)?;
        let limited = self.limit.map(|limit| Watchdog::start(child.id(), limit));
        let used = child.wait4().map_err(failed)?;
        let time = start.elapsed();
        if limited.is_some_and(Watchdog::has_ended_it) {
            return Ok(None);
        }
        if !used.status.success() {
            let mut stderr = String::new();
            // What the program said is only an addition to how it ended.
            let _ = errors
                .rewind()
                .and_then(|()| errors.read_to_string(&mut stderr));
            let (program, args) = (self.path.display(), args.join(" "));
            return Err(format!("{program} {args}: {}\n{stderr}", used.status));
        }
        Ok(Some(Cost {
            time,
            memory: used.rusage.maxrss,
        }))
    }

    /// Returns the command, in an environment in which nothing but the repository decides. It is
    /// not run in another directory: that would make starting a process a good deal slower than the
    /// quickest programs are.
    fn command(&self, dir: &Path, args: &[String]) -> Command {
        let mut command = Command::new(&self.path);
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"GIT_") && name != "GIT_EXEC_PATH" {
                command.env_remove(name);
            }
        }
        command
            .env("GIT_DIR", dir)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_AUTHOR_NAME", "A U Thor")
            .env("GIT_AUTHOR_EMAIL", "author@example.com")
            .env("GIT_COMMITTER_NAME", "A U Thor")
            .env("GIT_COMMITTER_EMAIL", "author@example.com")
            .args(args);
        command
    }
}

/// Returns the most memory that this process has taken, in bytes: the system counts a new process
/// from there, so that no smaller figure can be had of those that it starts.
pub(crate) fn peak_memory() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kibibytes = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next())
        .and_then(|number| number.parse::<f64>().ok());
    kibibytes.unwrap_or(0.0) * 1024.0
}

/// Counts the most memory that this process has taken from here on, where the system can do so.
pub(crate) fn forget_peak_memory() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// Ends a process that takes too long.
struct Watchdog {
    done: mpsc::Sender<()>,
    thread: std::thread::JoinHandle<bool>,
}

impl Watchdog {
    fn start(process: u32, limit: Duration) -> Self {
        let (done, is_done) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let late = is_done.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout);
            let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
            late && pid.is_some_and(|pid| kill_process(pid, Signal::TERM).is_ok())
        });
        Watchdog { done, thread }
    }

    fn has_ended_it(self) -> bool {
        // The watchdog may have gone already.
        let _ = self.done.send(());
        self.thread.join().unwrap_or(false)
    }
}
