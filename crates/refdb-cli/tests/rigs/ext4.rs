//! Losses of power on a real file system: an ext4 in a file, which is copied as the disk is in that
//! moment, and mounted again.
//!
//! A writer commits without pause, transactions of one ref and of several. Now and then it is stopped,
//! in the midst of its work or so long after its last commit, and the disk is copied until two copies
//! are the same. In the copy everything that was acknowledged is there, and nothing is there by half.
//!
//! `REFDB_EXT4_FAILURES` says how many losses of power there are in each format; a disk serves for
//! ten of them. Where nothing can be
//! mounted the test says why, and does nothing.

#![allow(clippy::print_stderr, reason = "says what was tried, and why not")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use refdb_testkit::Format;
use refdb_testkit::mount::{Mounted, make_ext4};
use refdb_testkit::oracle::{self, Output};
use refdb_testkit::repo::Repo;
use refdb_testkit::trust::{Tally, budget};

/// How long after the last commit power fails, in milliseconds; 0 is in the midst of one.
const DELAYS: [u64; 10] = [0, 1, 0, 30_000, 0, 100, 0, 1_000, 5_000, 15_000];
const SHORT: u64 = 10;

/// The size of the disk.
const MEGABYTES: u64 = 48;

/// What the writers have been told.
#[derive(Default)]
struct Told {
    /// The numbers of transactions that were acknowledged.
    done: BTreeSet<usize>,
    /// The last one that each writer began.
    begun: BTreeSet<usize>,
}

struct Writer {
    child: Child,
    stdin: ChildStdin,
}

impl Writer {
    fn start(dir: &Path, settings: &[&str]) -> (Writer, BufReader<std::process::ChildStdout>) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_refdb"))
            .current_dir(dir)
            .env_clear()
            .envs(oracle::environment())
            .args(settings)
            .args(["update-ref", "--stdin"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let stdin = child.stdin.take().expect("a pipe");
        let stdout = child.stdout.take().expect("a pipe");
        (Writer { child, stdin }, BufReader::new(stdout))
    }
}

fn transaction(number: usize, commits: &[String]) -> String {
    let id = &commits[number % commits.len()];
    let pair = match number % 2 {
        0 => String::new(),
        _ => format!("update refs/heads/a {id}\nupdate refs/heads/b {id}\n"),
    };
    format!("start\ncreate refs/heads/n{number} {id}\n{pair}commit\n")
}

/// The machine: a disk with a repository on it.
struct Machine<'a> {
    format: Format,
    commits: &'a [String],
    settings: &'a [&'a str],
    folder: &'a Path,
    told: Mutex<Told>,
}

fn refdb(dir: &Path, args: &[&str]) -> Output {
    oracle::run_of(env!("CARGO_BIN_EXE_refdb"), dir)
        .args(args)
        .run()
}

const LIST: &[&str] = &["for-each-ref", "--format=%(refname) %(objectname)"];

impl Machine<'_> {
    /// Writes for a while from transaction `first` on, then loses power; returns what is found
    /// wrong on the disk.
    fn lose_power(&self, mounted: &Mounted, first: usize, delay: u64) -> Result<(), String> {
        let (writer, mut stdout) = Writer::start(&mounted.path().join("repo"), self.settings);
        let pause = AtomicBool::new(false);
        let idle = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let told = &self.told;
            let (pause, idle) = (&pause, &idle);
            let mut stdin = writer.stdin;
            scope.spawn(move || {
                let mut number = first;
                while !pause.load(Ordering::SeqCst) {
                    told.lock().expect("no panic").begun.insert(number);
                    let text = transaction(number, self.commits);
                    let mut line = String::new();
                    if stdin.write_all(text.as_bytes()).is_err() {
                        break;
                    }
                    while line != "commit: ok\n" {
                        line.clear();
                        if stdout.read_line(&mut line).unwrap_or(0) == 0 {
                            // Nobody shall wait for a writer that has ended.
                            idle.store(true, Ordering::SeqCst);
                            return;
                        }
                    }
                    told.lock().expect("no panic").done.insert(number);
                    number += 1;
                }
                idle.store(true, Ordering::SeqCst);
                // Its input stays open until it is killed.
                let mut rest = String::new();
                let _ = stdout.read_line(&mut rest);
            });
            let (pid, mut child) = (writer.child.id().to_string(), writer.child);
            std::thread::sleep(Duration::from_millis(150));
            if delay > 0 {
                pause.store(true, Ordering::SeqCst);
                while !idle.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                std::thread::sleep(Duration::from_millis(delay));
            }
            let stop = Command::new("/bin/kill").args(["-STOP", &pid]).status();
            assert!(stop.is_ok_and(|status| status.success()));
            if let Ok(Some(status)) = child.try_wait() {
                return Err(format!("the writer ended: {status}"));
            }
            // What was acknowledged before this moment is on the disk.
            let done = self.told.lock().expect("no panic").done.clone();
            self.copy_disk();
            // No process of the old machine runs on the new one.
            child.kill().expect("it runs");
            child.wait().expect("it ends");
            pause.store(true, Ordering::SeqCst);
            self.check(&done)
        })
    }

    /// Copies the disk until two copies are the same: the system writes in its own time.
    fn copy_disk(&self) {
        let (disk, copy) = (self.folder.join("disk"), self.folder.join("copy"));
        let mut last = Vec::new();
        loop {
            let now = fs::read(&disk).expect("the disk can be read");
            if now == last {
                break;
            }
            last = now;
        }
        fs::write(copy, last).expect("room");
    }

    fn check(&self, done: &BTreeSet<usize>) -> Result<(), String> {
        let dir = self.folder.join("after");
        fs::create_dir_all(&dir).expect("a folder");
        let mounted = Mounted::ext4(&self.folder.join("copy"), &dir)?;
        let repo = mounted.path().join("repo");
        let listed = refdb(&repo, LIST);
        if !listed.status.success() {
            return Err(format!("unreadable: {listed:?}"));
        }
        let listed = listed.text();
        let value = |name: &str| {
            let prefix = format!("refs/heads/{name} ");
            listed.lines().find_map(|line| line.strip_prefix(&prefix))
        };
        let told = self.told.lock().expect("no panic");
        let mut last_pair = None;
        for &number in &told.begun {
            let id = self.commits[number % self.commits.len()].as_str();
            match value(&format!("n{number}")) {
                Some(found) if found == id => {}
                None if !done.contains(&number) => continue,
                found => return Err(format!("transaction {number} was lost: {found:?}")),
            }
            if number % 2 == 1 {
                last_pair = Some(id);
            }
        }
        if value("a") != last_pair || value("b") != last_pair {
            let found = (value("a"), value("b"));
            return Err(format!("a half transaction: {found:?}, not {last_pair:?}"));
        }
        let verified = refdb(&repo, &["refs", "verify", "--deep"]);
        if verified.code() > 1 {
            return Err(format!("damage: {verified:?}"));
        }
        let by_git = oracle::git(&repo).args(LIST).run().text();
        if by_git != listed {
            return Err(format!("Git reads something else: {by_git}"));
        }
        let id = &self.commits[0];
        for name in ["refs/heads/a", "refs/heads/later"] {
            let written = refdb(&repo, &["update-ref", name, id]);
            if !written.status.success() {
                return Err(format!("nobody can write: {written:?}"));
            }
        }
        Ok(())
    }
}

/// Loses power so many times; `None` where nothing can be mounted.
fn run(
    format: Format,
    settings: &[&str],
    failures: u64,
    tally: Option<&Mutex<Tally>>,
) -> Option<Vec<String>> {
    let mut wrong = Vec::new();
    let all: Vec<u64> = (0..failures).collect();
    for numbers in all.chunks(DELAYS.len()) {
        wrong.extend(run_on_one_disk(format, settings, numbers, tally)?);
    }
    Some(wrong)
}

fn run_on_one_disk(
    format: Format,
    settings: &[&str],
    numbers: &[u64],
    tally: Option<&Mutex<Tally>>,
) -> Option<Vec<String>> {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = folder.path().join("disk");
    let dir = folder.path().join("before");
    fs::create_dir(&dir).expect("a folder");
    let mounted = make_ext4(&disk, MEGABYTES).and_then(|()| Mounted::ext4(&disk, &dir));
    let mounted = match mounted {
        Ok(mounted) => mounted,
        Err(reason) => {
            eprintln!("skipped: {reason}");
            return None;
        }
    };
    let repo = Repo::init(format);
    let copied = Command::new("/bin/cp")
        .args(["-a"])
        .args([repo.path(), &mounted.path().join("repo")])
        .status();
    assert!(copied.is_ok_and(|status| status.success()));
    let synced = Command::new("/bin/sync").status();
    assert!(synced.is_ok_and(|status| status.success()));
    let machine = Machine {
        format,
        commits: &repo.objects().commits,
        settings,
        folder: folder.path(),
        told: Mutex::default(),
    };
    let mut wrong = Vec::new();
    for (&number, delay) in numbers.iter().zip(DELAYS) {
        let first = 100_000 * (1 + usize::try_from(number).expect("not so many"));
        if let Err(what) = machine.lose_power(&mounted, first, delay) {
            wrong.push(format!("{} after {delay} ms: {what}", machine.format));
        }
        if let Some(tally) = tally {
            tally.lock().expect("no panic").add(1);
        }
    }
    Some(wrong)
}

#[test]
fn what_was_acknowledged_is_there_after_a_loss_of_power() {
    let failures = budget("REFDB_EXT4_FAILURES", SHORT);
    let tally = Mutex::new(Tally::begin("power failures on real ext4", 0));
    std::thread::scope(|scope| {
        for format in [Format::FILES_SHA1, Format::REFTABLE_SHA1] {
            let tally = &tally;
            scope.spawn(move || {
                if let Some(wrong) = run(format, &[], failures, Some(tally)) {
                    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
                }
            });
        }
    });
}

#[test]
fn without_syncs_it_would_be_lost() {
    for format in [Format::FILES_SHA1, Format::REFTABLE_SHA1] {
        if let Some(wrong) = run(format, &["-c", "core.fsync=none"], 3, None) {
            assert!(!wrong.is_empty(), "nothing was lost in {format}");
        }
    }
}
