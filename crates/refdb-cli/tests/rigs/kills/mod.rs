//! The command, killed at system calls of every workload: the next refdb and Git read everything old
//! or everything new, every reflog is the old or the new one, the same work can be done at once, and
//! no lock is left.
//!
//! The points are drawn by a seed from all system calls of all workloads in both formats.
//! `REFDB_KILL_POINTS` says how many (all, if there are fewer), `REFDB_KILL_SEED` from which seed,
//! `REFDB_KILL_WORKLOADS` how many workloads are drawn in each of the four formats.
//! Without `strace` nothing can be killed at a system call: the tests say so and do nothing.
//! Migrations with worktrees are in `migration`, those beside a Git that adds worktrees in `worktrees`, repairs in
//! `repair`.

#![allow(clippy::print_stderr, reason = "says what was tried")]

mod copied;
mod drawn;
mod given_up;
mod migration;
mod repair;
mod unlocked;
mod worktrees;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use bstr::{BString, ByteSlice};
use refdb_testkit::oracle::{self, Output};
use refdb_testkit::ours;
use refdb_testkit::repo::Repo;
use refdb_testkit::rng::Rng;
use refdb_testkit::trust::{Tally, budget};
use refdb_testkit::{Format, ObjectFormat, RefFormat};

/// What is counted.
const WHAT: &str = "kill points of the real binary";

/// How many points every test run tries.
const SHORT: u64 = 1600;

/// How many workloads every test run draws in each format.
const DRAWN: u64 = 2;

/// Of each workload with the longer ids so many are among them.
const SHARE_OF_SHA256: usize = 12;

/// One thing that a process does: what it is called, its arguments, and its input.
type Work = (String, &'static [&'static str], String);

/// What is refused when it is done, and how.
const ONCE: [(&str, &str); 4] = [
    ("to files", "already uses"),
    ("to reftable", "already uses"),
    ("a new branch and HEAD", "including one via its referent"),
    ("bulk and HEAD", "including one via its referent"),
];

const STDIN: &[&str] = &["update-ref", "--stdin"];
const WITHOUT_REFLOGS: &[&str] = &["-c", "core.logAllRefUpdates=false", "update-ref", "--stdin"];
const TO_FILES: &[&str] = &["refs", "migrate", "--ref-format=files"];
const TO_REFTABLE: &[&str] = &["refs", "migrate", "--ref-format=reftable"];

#[expect(clippy::too_many_lines, reason = "a list of workloads")]
fn workloads(repo: &Repo) -> Vec<Work> {
    let commits = &repo.objects().commits;
    let (one, two) = (&commits[1], &commits[2]);
    let update = |name: &str, id: &str| format!("update {name} {id}\n");
    let many: String = (0..80)
        .map(|number| update(&format!("refs/remotes/o/{number}"), one))
        .collect();
    let to_other = match repo.format().refs {
        RefFormat::Files => ("to reftable", TO_REFTABLE),
        RefFormat::Reftable => ("to files", TO_FILES),
    };
    let named: Vec<(&str, &[&str], String)> = vec![
        (to_other.0, to_other.1, String::new()),
        (
            "expire a reflog",
            &["reflog", "expire", "--expire=all", "refs/heads/main"],
            String::new(),
        ),
        (
            "expire all reflogs",
            &["reflog", "expire", "--expire=all", "--all"],
            String::new(),
        ),
        (
            "delete an entry",
            &["reflog", "delete", "--rewrite", "refs/heads/main@{1}"],
            String::new(),
        ),
        ("create", STDIN, update("refs/heads/new/er/one", one)),
        ("update the branch of HEAD", STDIN, update("HEAD", one)),
        (
            "update a packed ref",
            STDIN,
            update("refs/tags/packed", two),
        ),
        (
            "delete a loose ref",
            &["update-ref", "-d", "refs/heads/loose"],
            String::new(),
        ),
        (
            "delete a packed ref",
            &["update-ref", "-d", "refs/tags/packed"],
            String::new(),
        ),
        (
            "delete what is loose and packed",
            &["update-ref", "-d", "refs/heads/both"],
            String::new(),
        ),
        (
            "several at once",
            STDIN,
            format!(
                "{}{}{}{}",
                update("refs/heads/main", two),
                update("refs/heads/new", two),
                update("refs/heads/both", two),
                update("refs/tags/packed", two),
            ),
        ),
        ("bulk", STDIN, many.clone()),
        ("bulk without reflogs", WITHOUT_REFLOGS, many.clone()),
        (
            "a new branch and HEAD",
            STDIN,
            format!(
                "option no-deref\nsymref-update HEAD refs/heads/new\n{}",
                update("refs/heads/new", two)
            ),
        ),
        (
            "bulk and HEAD",
            STDIN,
            format!(
                "{}option no-deref\nsymref-update HEAD refs/heads/o/7\n",
                many.replace("refs/remotes/", "refs/heads/")
            ),
        ),
        (
            "delete several",
            STDIN,
            "delete refs/heads/both\ndelete refs/heads/loose\ndelete refs/tags/packed\n".into(),
        ),
        ("pack", &["pack-refs", "--all"], String::new()),
        (
            "symref",
            &["symbolic-ref", "HEAD", "refs/heads/both"],
            String::new(),
        ),
        (
            "symref and refs",
            STDIN,
            format!(
                "option no-deref\nsymref-update refs/remotes/o/HEAD refs/remotes/o/main\n{}{}",
                update("refs/remotes/o/main", one),
                update("refs/heads/side", two)
            ),
        ),
    ];
    let work = named.into_iter();
    work.map(|(name, args, input)| (name.to_owned(), args, input))
        .collect()
}

/// A repository with loose and packed refs, or with several tables.
fn base(format: Format) -> Repo {
    let repo = Repo::init(format);
    for key in [
        "core.filesRefLockTimeout",
        "core.packedRefsTimeout",
        "reftable.lockTimeout",
    ] {
        repo.config(key, "0");
    }
    let commits = &repo.objects().commits;
    let create = |name: &str, id: &str| format!("update {name} {id}\n");
    let packed = ["refs/heads/both", "refs/tags/packed", "refs/heads/side"];
    repo.update_refs(packed.map(|name| create(name, &commits[0])).concat());
    repo.git(["pack-refs", "--all"]).run().ok();
    for name in ["refs/heads/both", "refs/heads/loose", "refs/heads/main"] {
        repo.update_refs(create(name, &commits[3]));
    }
    repo
}

fn refdb(dir: &Path, args: &[&str], input: &str) -> Output {
    let program = env!("CARGO_BIN_EXE_refdb");
    oracle::run_of(program, dir).args(args).stdin(input).run()
}

const LIST: &[&str] = &[
    "for-each-ref",
    "--include-root-refs",
    "--format=%(refname) %(objectname) %(symref)",
];

fn listed_by_refdb(dir: &Path) -> String {
    refdb(dir, LIST, "").text()
}

fn listed_by_git(dir: &Path) -> String {
    oracle::git(dir).args(LIST).run().text()
}

/// Returns which of some refs Git does not find when it is asked for each by its name. It can list a ref that it does
/// not find so.
pub(crate) fn missed_by_git(dir: &Path, names: &[&str]) -> Vec<String> {
    let ask = oracle::git(dir).args(["cat-file", "--batch-check"]);
    let lines = names.iter().map(|name| format!("{name}\n"));
    let answers = ask.stdin(lines.collect::<String>()).run().text();
    let missed = answers
        .lines()
        .filter_map(|line| line.strip_suffix(" missing"));
    missed.map(str::to_owned).collect()
}

/// Makes sure that Git's checks, those of refs among them, find nothing wrong: what refdb leaves disturbs none.
fn check_by_git(dir: &Path, context: &str) {
    let check = oracle::git(dir).args(["fsck", "--connectivity-only", "--no-dangling"]);
    let out = check.run();
    assert!(out.status.success(), "{context}: {out:?}");
}

/// Returns the names in a listing.
fn names(listed: &str) -> impl Iterator<Item = &str> {
    listed
        .lines()
        .filter_map(|line| Some(line.split_once(' ')?.0))
}

/// The entries of every reflog, read by the library: the next refdb process.
fn logs(dir: &Path) -> BTreeMap<BString, String> {
    let repository = ours::open(&dir.join(".git"));
    let state = ours::state(repository.store());
    let logs = state.logs.into_iter();
    logs.map(|(name, entries)| (name, format!("{entries:?}")))
        .collect()
}

fn locks(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            // What a repair keeps aside locks nothing.
            if entry.file_name() != "objects" && entry.file_name() != "refdb-damaged" {
                locks(&path, found);
            }
        } else if path
            .extension()
            .is_some_and(|extension| extension == "lock")
        {
            found.push(path);
        }
    }
}

/// A system call by its name, and its number among those of that name: strace counts each name by
/// itself.
pub(crate) type Call = (String, usize);

/// Returns the system calls in what strace wrote.
pub(crate) fn calls(log: &str) -> Vec<Call> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    let mut calls = Vec::new();
    for line in log.lines() {
        let line = line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ');
        // Not the second halves of calls that another thread interrupted, nor signals and exits.
        let Some((name, _)) = line.split_once('(') else {
            continue;
        };
        if !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        {
            let count = counts.entry(name).or_default();
            *count += 1;
            calls.push((name.to_owned(), *count));
        }
    }
    calls
}

/// Runs the command under strace, which kills it at a system call, if one is given.
fn traced(dir: &Path, args: &[&str], input: &str, log: &Path, kill_at: Option<&Call>) -> Output {
    let mut run = oracle::run_of("/usr/bin/strace", dir);
    run = run.args(["-f", "-qq", "-o"]).arg(log);
    if let Some((call, nth)) = kill_at {
        let inject = format!("inject={call}:signal=SIGKILL:when={nth}");
        run = run.args(["-e".to_owned(), inject]);
    }
    let run = run.arg(env!("CARGO_BIN_EXE_refdb")).args(args);
    run.stdin(input).run()
}

/// Returns whether a process can be killed at a system call here, and says so if not.
pub(crate) fn can_kill(tally: &'static str, seed: u64) -> bool {
    let can = Command::new("/usr/bin/strace").arg("-V").output();
    let can = can.is_ok_and(|out| out.status.success());
    if !can {
        eprintln!("skipped: there is no /usr/bin/strace");
        drop(Tally::begin(tally, seed));
    }
    can
}

/// Tries so many of the points, two at a time: which ones, the seed says.
fn try_points<P: Sync>(mut points: Vec<P>, most: u64, seed: u64, kill: impl Fn(&P) + Sync) {
    // Shuffled, so that any number of them is spread over all workloads.
    Rng::new(seed).shuffle(&mut points);
    points.truncate(usize::try_from(most).expect("not so many"));
    let tally = Mutex::new(Tally::begin(WHAT, seed));
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(point) = points.get(next.fetch_add(1, Ordering::SeqCst)) {
                    kill(point);
                    tally.lock().expect("no panic with the lock").add(1);
                }
            });
        }
    });
}

/// A workload in a format, with what it comes to.
struct Case {
    base: Repo,
    work: Work,
    old: String,
    new: String,
    old_logs: BTreeMap<BString, String>,
    new_logs: BTreeMap<BString, String>,
    calls: Vec<Call>,
}

impl Case {
    fn new(base: Repo, work: Work) -> Case {
        let repo = base.duplicate();
        let log = repo.path().join("strace");
        let out = traced(repo.path(), work.1, &work.2, &log, None);
        assert!(out.status.success(), "{}: {:?}", work.0, out);
        let log = fs::read_to_string(&log).expect("strace writes text");
        if work.0.starts_with("bulk") && base.format().refs == RefFormat::Files {
            // Else nobody would know what to give back.
            let is_linked =
                |line: &str| line.contains(" linkat(") && line.contains("refdb.journal");
            assert!(log.lines().any(is_linked), "{}: no journal", work.0);
        }
        let calls = calls(&log);
        Case {
            old: listed_by_refdb(base.path()),
            new: listed_by_refdb(repo.path()),
            old_logs: logs(base.path()),
            new_logs: logs(repo.path()),
            base,
            work,
            calls,
        }
    }

    /// Git, which finishes nothing that refdb has begun, finds every ref that was there and was to stay.
    fn check_before_recovery(&self, dir: &Path, context: &str) {
        let stay: BTreeSet<&str> = names(&self.new).collect();
        let stay: Vec<&str> = names(&self.old)
            .filter(|name| stay.contains(name))
            .collect();
        let missed = missed_by_git(dir, &stay);
        assert_eq!(missed, Vec::<String>::new(), "{context}: Git alone");
        check_by_git(dir, context);
    }

    fn kill(&self, at: &Call) {
        let repo = self.base.duplicate();
        let dir = repo.path();
        let context = format!("{} in {}, killed at {at:?}", self.work.0, repo.format());
        let log = dir.join("strace");
        let done = traced(dir, self.work.1, &self.work.2, &log, Some(at));
        self.check_before_recovery(dir, &context);
        let was_committed = repo.git_dir().join("refdb.journal").exists();
        let found = listed_by_refdb(dir);
        if done.status.success() {
            assert_eq!(found, self.new, "{context}: acknowledged");
        } else {
            assert!(
                found == self.old || found == self.new,
                "{context}: half of it:\n{found}"
            );
        }
        assert_eq!(
            listed_by_git(dir),
            found,
            "{context}: Git and refdb disagree"
        );
        if was_committed && self.work.0.starts_with("bulk") {
            // Whoever finished it has given everything back, the directory that was locked as a whole, too.
            let id = &repo.objects().commits[0];
            for name in ["refs/remotes/o/by-git", "refs/heads/o/by-git"] {
                let made = repo.git(["update-ref", name, id]).run();
                assert!(made.status.success(), "{context}: {made:?}");
                repo.git(["update-ref", "-d", name]).run().ok();
            }
        }
        let all: Vec<&str> = names(&found).collect();
        let missed = missed_by_git(dir, &all);
        assert_eq!(missed, Vec::<String>::new(), "{context}: listed by Git");
        let found = logs(dir);
        let names = self.old_logs.keys().chain(self.new_logs.keys());
        for name in names.chain(found.keys()) {
            let sides = [&self.old_logs, &self.new_logs].map(|side| side.get(name));
            let found = found.get(name);
            // A new reflog is there before its first entry is, and that before the ref.
            let is_begun = sides[0].is_none() && found.is_some_and(|entries| entries == "[]");
            assert!(
                sides.contains(&found) || is_begun,
                "{context}: reflog of {name}: {found:?}"
            );
        }
        let again = refdb(dir, self.work.1, &self.work.2);
        let is_done = ONCE
            .iter()
            .any(|(name, why)| *name == self.work.0 && again.stderr.contains_str(why));
        let is_gone = self.work.0 == "delete an entry" && found != self.old_logs;
        let succeeds = again.status.success() || is_done || is_gone;
        assert!(succeeds, "{context}, again: {again:?}");
        assert_eq!(listed_by_refdb(dir), self.new, "{context}, again");
        // Git is not held up either.
        let (name, id) = ("refs/heads/after", &repo.objects().commits[0]);
        repo.git(["update-ref", name, id]).run().ok();
        let mut left = Vec::new();
        if repo.format().refs == RefFormat::Files {
            // Locks of other refs go when all of them are packed.
            refdb(dir, &["pack-refs", "--all"], "").ok();
        }
        locks(&repo.git_dir(), &mut left);
        assert_eq!(left, Vec::<PathBuf>::new(), "{context}: locks are left");
    }
}

#[test]
fn a_killed_command_leaves_everything_old_or_everything_new() {
    let seed = budget("REFDB_KILL_SEED", 1);
    if !can_kill(WHAT, seed) {
        return;
    }
    let most = budget("REFDB_KILL_POINTS", SHORT);
    let mut cases = Vec::new();
    for refs in [RefFormat::Files, RefFormat::Reftable] {
        for objects in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
            let format = Format { refs, objects };
            let named = workloads(&base(format)).into_iter();
            cases.extend(named.map(|work| Case::new(base(format), work)));
            let drawn = seed..seed + budget("REFDB_KILL_WORKLOADS", DRAWN);
            cases.extend(drawn.map(|seed| {
                let (base, work) = drawn::case(format, seed);
                Case::new(base, work)
            }));
        }
    }
    let mut points: Vec<(usize, &Call)> = Vec::new();
    for (index, case) in cases.iter().enumerate() {
        let share = match case.base.format().objects {
            ObjectFormat::Sha1 => 1,
            ObjectFormat::Sha256 if most < u64::MAX => case.calls.len() / SHARE_OF_SHA256 + 1,
            ObjectFormat::Sha256 => 1,
        };
        points.extend(case.calls.iter().step_by(share).map(|at| (index, at)));
    }
    eprintln!("{} points", points.len());
    try_points(points, most, seed, |&(index, at)| cases[index].kill(at));
}
