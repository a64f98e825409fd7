//! Places in which a command can be run: namespaces, another root, another machine.
//!
//! A place is what is put before a command. All of them see the same repository by the same path,
//! and share the kernel.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::process::Command;

use refdb_testkit::oracle::{self, GitRun, Output};
use refdb_testkit::rng::Rng;
use tempfile::TempDir;

const STRACE: &str = "/usr/bin/strace";

/// System calls that change something, or that keep others out.
const CHANGING: &[&str] = &[
    "creat",
    "fallocate",
    "fchmod",
    "fdatasync",
    "flock",
    "fsync",
    "ftruncate",
    "link",
    "linkat",
    "mkdir",
    "mkdirat",
    "pwrite64",
    "rename",
    "renameat",
    "renameat2",
    "rmdir",
    "symlink",
    "symlinkat",
    "syncfs",
    "unlink",
    "unlinkat",
    "write",
];

/// A system call by its name, and its number among those of that name: strace counts each name by
/// itself.
pub(crate) type Call = (String, usize);

/// A place.
pub(crate) struct Place {
    pub(crate) name: &'static str,
    /// What stands before the command.
    words: Vec<OsString>,
    /// System calls that do not work there, and the error that they give.
    broken: Option<&'static str>,
    /// Needed for as long as the place is.
    _folder: Option<TempDir>,
}

/// Becomes a machine with the same name that was booted later: of the present one, all that the
/// kernel tells of its start is another.
const OTHER_MACHINE: &str = "sed 's/^btime.*/btime 4000000000/' /proc/stat > \"$0/stat\" && \
    echo 00000000-1111-2222-3333-444444444444 > \"$0/boot\" && \
    mount --bind \"$0/stat\" /proc/stat && \
    mount --bind \"$0/boot\" /proc/sys/kernel/random/boot_id && exec \"$@\"";

/// Becomes a system whose root is a copy of this one without `/proc`. The folder for temporary files is
/// there too, with what is mounted in it.
const OTHER_ROOT: &str = "mount --bind / \"$0\" && mount --rbind /dev \"$0/dev\" && \
    here=$PWD && mkdir -p \"$0$here\" && temporary=${TMPDIR:-/tmp} && \
    mount --rbind \"$temporary\" \"$0$temporary\" && \
    exec /usr/sbin/chroot \"$0\" /usr/bin/env -C \"$here\" \"$@\"";

impl Place {
    /// Where the test itself runs.
    pub(crate) fn here() -> Place {
        Place::of("here", &[])
    }

    fn of(name: &'static str, words: &[&str]) -> Place {
        Place {
            name,
            words: words.iter().map(OsString::from).collect(),
            broken: None,
            _folder: None,
        }
    }

    fn with_folder(name: &'static str, script: &str) -> Place {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().to_str().expect("a path of a test").to_owned();
        let words = [
            "/usr/bin/unshare",
            "--mount",
            "/bin/sh",
            "-c",
            script,
            &path,
        ];
        Place {
            _folder: Some(folder),
            ..Place::of(name, &words)
        }
    }

    /// A file system on which neither symbolic nor hard links can be made: a place because only those
    /// who are there see it so.
    pub(crate) fn without_links() -> Place {
        Place {
            broken: Some("inject=symlink,symlinkat,link,linkat:error=EPERM"),
            ..Place::of("without links", &[])
        }
    }

    /// A file system whose files have no permissions of their own, as FAT: those of the mount cannot be changed.
    pub(crate) fn without_permissions() -> Place {
        Place {
            broken: Some("inject=chmod,fchmod,fchmodat:error=EPERM"),
            ..Place::of("without permissions", &[])
        }
    }

    /// All places that are not here, as far as they are to be had; of the others it is told why not.
    pub(crate) fn elsewhere() -> Vec<Place> {
        let container: &[&str] = &[
            "/usr/bin/unshare",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ];
        let host = [
            "--uts",
            "/bin/sh",
            "-c",
            "hostname \"$0\" && exec \"$@\"",
            "other",
        ];
        let time: &[&str] = &[
            "/usr/bin/unshare",
            "--time",
            "--boottime=1000000",
            "--monotonic=1000000",
            "--fork",
        ];
        let places = [
            Place::of("a pid namespace", container),
            Place::of("a pid namespace with the /proc of another", &container[..4]),
            Place::of("a container", &[container, &host].concat()),
            Place::of("a time namespace", time),
            Place::of("another host name", &[&container[..1], &host].concat()),
            Place::with_folder("a root without /proc", OTHER_ROOT),
            Place::with_folder("another machine of this name", OTHER_MACHINE),
        ];
        let places = places.into_iter().filter(|place| place.is_there());
        places.collect()
    }

    /// Returns whether each command there has processes of its own, and sees no others.
    pub(crate) fn is_container(&self) -> bool {
        self.words.iter().any(|word| word == "--pid")
    }

    /// Returns whether commands can be run there, killed at system calls; says why not.
    pub(crate) fn is_there(&self) -> bool {
        let folder = tempfile::tempdir().expect("a folder");
        let mut words = self.words.clone();
        words.extend([STRACE, "-f", "-qq", "-o", "log"].map(OsString::from));
        words.extend(["-e", "trace=rename", "/bin/true"].map(OsString::from));
        let mut words = words.into_iter();
        let program = words.next().expect("one word at least");
        let out = Command::new(&program)
            .args(words)
            .current_dir(folder.path())
            .output();
        let said = match out {
            Ok(out) if out.status.success() => return true,
            Ok(out) => String::from_utf8_lossy(&out.stderr).into_owned(),
            Err(error) => format!("{}: {error}", program.display()),
        };
        eprintln!("skipped: {}: {}", self.name, said.trim_end());
        false
    }

    /// Begins a command there.
    pub(crate) fn begin(&self, dir: &Path, words: &[OsString]) -> GitRun {
        let mut words = self.words.iter().chain(words);
        let program = words.next().expect("one word at least");
        oracle::run_of(program, dir).args(words)
    }

    /// Begins a run of refdb there.
    pub(crate) fn refdb(&self, dir: &Path) -> GitRun {
        self.refdb_behind(dir, &[])
    }

    /// Begins a run of refdb there that ends after a while, whatever it waits for.
    pub(crate) fn in_time(&self, dir: &Path) -> GitRun {
        self.refdb_behind(dir, &["/usr/bin/timeout", "-k", "1", PATIENCE])
    }

    fn refdb_behind(&self, dir: &Path, before: &[&str]) -> GitRun {
        let mut words: Vec<OsString> = before.iter().map(OsString::from).collect();
        if self.broken.is_some() {
            words.extend(self.strace(Path::new("/dev/null"), None));
        }
        words.push(env!("CARGO_BIN_EXE_refdb").into());
        self.begin(dir, &words)
    }

    /// Begins a run of refdb there under strace, which sends it a signal at a system call, if one is
    /// given.
    pub(crate) fn traced(
        &self,
        dir: &Path,
        log: &Path,
        signal_at: Option<(&str, &Call)>,
    ) -> GitRun {
        let mut words = self.strace(log, signal_at);
        words.push(env!("CARGO_BIN_EXE_refdb").into());
        self.begin(dir, &words)
    }

    fn strace(&self, log: &Path, signal_at: Option<(&str, &Call)>) -> Vec<OsString> {
        let mut words: Vec<OsString> = [STRACE, "-f", "-qq", "-o"].map(OsString::from).into();
        words.push(log.into());
        let mut inject = |text: String| words.extend(["-e".into(), OsString::from(text)]);
        if let Some(broken) = self.broken {
            inject(broken.to_owned());
        }
        if let Some((signal, (call, nth))) = signal_at {
            inject(format!("inject={call}:signal={signal}:when={nth}"));
        }
        words
    }

    /// Kills a run of refdb there at a system call.
    pub(crate) fn kill(&self, dir: &Path, args: &[&str], input: &str, at: &Call) -> Output {
        let log = log_beside(dir);
        let run = self.traced(dir, &log, Some(("SIGKILL", at)));
        run.args(args).stdin(input).run()
    }
}

/// Whoever takes longer waits for something that does not come.
const PATIENCE: &str = "20";

/// Returns where strace writes what it sees of a command in a folder.
fn log_beside(dir: &Path) -> std::path::PathBuf {
    dir.join("strace")
}

/// Returns the system calls in what strace wrote that change something, in their order; and which of
/// them stand between the making of a journal and its end.
pub(crate) fn changing_calls(log: &str) -> (Vec<Call>, Range<usize>) {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    let mut calls = Vec::new();
    let mut journal = None;
    let mut end = 0;
    for line in log.lines() {
        let line = line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ');
        let Some((name, args)) = line.split_once('(') else {
            continue;
        };
        let count = counts.entry(name).or_default();
        *count += 1;
        // What was made to fail is not killed as well.
        if !CHANGING.contains(&name) || line.ends_with("(INJECTED)") {
            continue;
        }
        calls.push((name.to_owned(), *count));
        if args.contains("refdb.journal\"") {
            journal.get_or_insert(calls.len());
            end = calls.len();
        }
    }
    (calls, journal.unwrap_or(end)..end)
}

/// Draws so many of the system calls, as a seed says: of each part as many. Half of them are among
/// those between the making of a journal and its end.
pub(crate) fn draw(
    (calls, journal): &(Vec<Call>, Range<usize>),
    most: u64,
    seed: u64,
) -> Vec<Call> {
    let most = usize::try_from(most).expect("not so many");
    let mut rng = Rng::new(seed);
    let mut drawn = |calls: &[Call], most: usize| -> Vec<Call> {
        let most = most.min(calls.len());
        let part = |number: usize| number * calls.len() / most;
        let parts = (0..most).map(|number| part(number)..part(number + 1));
        parts
            .map(|part| calls[part.start + rng.below(part.len())].clone())
            .collect()
    };
    let mut points = drawn(&calls[journal.clone()], most.div_ceil(2));
    let rest = [&calls[..journal.start], &calls[journal.end..]].concat();
    points.extend(drawn(&rest, most - points.len()));
    points
}

/// Returns the number, as it is called here, of the process of refdb that has a word in its command
/// line.
pub(crate) fn process_of(word: &str) -> Option<u32> {
    let found = fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let mut words = line.split(|&byte| byte == 0);
        let is_refdb = words.next()?.ends_with(b"/refdb");
        (is_refdb && words.any(|found| found == word.as_bytes())).then_some(pid)
    });
    found.into_iter().next()
}
