//! The promises of transactions, wherever the processes run: in containers, in another time
//! namespace, without `/proc`, under other host names, on file systems of odd kinds.
//!
//! What two processes have in common is one repository on one kernel. Whether the other one still
//! runs must be told from what the kernel keeps, and not from the number of a process.
//!
//! - `killed`: a process was killed in the midst of a transaction of several refs. Whoever comes next
//!   reads everything old or everything new, can do the same work at once, and no lock is left.
//! - `alive`: a process is prepared, or was stopped at a system call. Nobody breaks its locks or
//!   removes its journal, everybody reads, and when it goes on it commits everything.
//! - `reading`: nobody can finish what the dead process began: others hold `flock` on all that they
//!   may open, the disk is full, the file system is read-only, the reader may not write. He reads
//!   everything old or everything new.
//! - `linked`: repositories whose `refs`, `config` and the like are links into another one.
//! - `overlay`: the repository is in the lower or the upper layer of an overlay.
//!
//! `REFDB_WHEREVER_POINTS` says at how many system calls a process is killed or stopped in each place
//! and format, `REFDB_KILL_SEED` which. What a machine cannot do is told and not tried: that needs
//! root, `unshare`, `strace`, `mount`.

#![allow(clippy::print_stderr, reason = "says what cannot be tried here")]

mod alive;
mod killed;
mod linked;
mod overlay;
mod places;
mod reading;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bstr::BString;
use refdb_testkit::oracle::{self, Output};
use refdb_testkit::repo::Repo;
use refdb_testkit::state::State;
use refdb_testkit::trust::budget;
use refdb_testkit::{Format, ObjectFormat};

use places::{Call, Place};

/// Where the linked worktree of the repositories here is: transactions over its refs and shared ones
/// take several steps in both formats.
const WORKTREE: &str = ".git/..linked/w";

const STDIN: &[&str] = &["update-ref", "--stdin"];

/// At so many system calls a process is killed or stopped in each place and format; with the longer
/// ids at fewer.
const POINTS: u64 = 6;
const SHARE_OF_SHA256: u64 = 3;

/// A transaction of several refs: what it says, and what is there before and after it.
struct Work {
    base: Repo,
    script: String,
    old: Whole,
    new: Whole,
}

/// What is stored, as Git reads it.
struct Whole {
    listed: String,
    /// What is said of all reflogs that the worktree sees.
    shown: String,
    logs: Vec<BTreeMap<BString, String>>,
}

impl Whole {
    fn read(dir: &Path) -> Whole {
        let git_dir = dir.join(".git");
        let stores = [git_dir.clone(), git_dir.join("worktrees/w")];
        let stores = stores.iter().filter(|dir| dir.exists());
        let logs = stores.map(|dir| {
            let logs = State::read(dir).logs.into_iter();
            logs.map(|(name, entries)| (name, format!("{entries:?}")))
                .collect()
        });
        Whole {
            listed: listed_by_git(dir),
            shown: shown(|words| oracle::git(work_dir(dir)).args(words).run()),
            logs: logs.collect(),
        }
    }
}

impl Work {
    fn new(format: Format) -> Work {
        let base = repository(format);
        let commits = &base.objects().commits;
        let (old, new) = (&commits[1], &commits[2]);
        let script = format!(
            "update refs/heads/main {new}\nupdate refs/heads/new {new}\n\
             update refs/tags/packed {new}\ndelete refs/heads/both\n\
             update refs/worktree/own {new}\nupdate refs/heads/loose {old}\n\
             delete {GONE}\n"
        );
        let done = base.duplicate();
        let git = oracle::git(done.path().join(WORKTREE)).args(STDIN);
        git.stdin(script.as_str()).run().ok();
        Work {
            old: Whole::read(base.path()),
            new: Whole::read(done.path()),
            base,
            script,
        }
    }

    /// Fails unless a listing is wholly that of before or that of after the transaction.
    #[track_caller]
    fn assert_whole(&self, listed: &str, context: &str) {
        assert!(
            listed == self.old.listed || listed == self.new.listed,
            "{context}: half of it:\n{listed}"
        );
    }

    /// Fails unless what is said of reflogs is of the same time as a listing.
    #[track_caller]
    fn assert_shown_as_listed(&self, shown: &str, listed: &str, context: &str) {
        let is_new = listed == self.new.listed;
        let expected = if is_new { &self.new } else { &self.old };
        assert_eq!(shown, expected.shown, "{context}: reflogs, new: {is_new}");
    }

    /// Fails unless every reflog is that of before or that of after the transaction.
    #[track_caller]
    fn assert_whole_logs(&self, found: &Whole, context: &str) {
        let sides = self.old.logs.iter().zip(&self.new.logs);
        for ((old, new), found) in sides.zip(&found.logs) {
            for name in old.keys().chain(new.keys()).chain(found.keys()) {
                let (old, new, found) = (old.get(name), new.get(name), found.get(name));
                // A new reflog is there before its first entry is, and that before the ref.
                let is_begun = old.is_none() && found.is_some_and(|entries| entries == "[]");
                assert!(
                    found == old || found == new || is_begun,
                    "{context}: reflog of {name}: {found:?}"
                );
            }
        }
    }

    /// Draws system calls of the transaction at which something can happen to it, in `dir`, which is
    /// a copy of the repository.
    fn points(&self, place: &Place, dir: &Path, most: u64) -> Vec<Call> {
        let log = dir.join("strace");
        let run = place.traced(&dir.join(WORKTREE), &log, None);
        run.args(STDIN).stdin(self.script.as_str()).run().ok();
        assert_eq!(listed_by_git(dir), self.new.listed, "{}", place.name);
        draw(&log, self.base.format(), most)
    }
}

/// Draws system calls from a log of strace.
fn draw(log: &Path, format: Format, most: u64) -> Vec<Call> {
    let log = fs::read(log).expect("strace writes its log");
    let calls = places::changing_calls(&String::from_utf8_lossy(&log));
    let most = match format.objects {
        ObjectFormat::Sha1 => most,
        ObjectFormat::Sha256 => most.div_ceil(SHARE_OF_SHA256),
    };
    let most = budget("REFDB_WHEREVER_POINTS", most);
    places::draw(&calls, most, budget("REFDB_KILL_SEED", 1))
}

/// A repository with loose and packed refs, or with several tables, and a worktree. Nobody waits for
/// locks in it.
fn repository(format: Format) -> Repo {
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
    repo.config("worktree.useRelativePaths", "true");
    let worktree = repo.worktree("w");
    let own = create("refs/worktree/own", &commits[3]) + &create(GONE, &commits[3]);
    let update = worktree.git(["update-ref", "--create-reflog", "--stdin"]);
    update.stdin(own).run().ok();
    repo
}

/// A ref that the worktree has for itself, which the transaction deletes.
const GONE: &str = "refs/worktree/gone";

const LIST: &[&str] = &[
    "for-each-ref",
    "--include-root-refs",
    "--format=%(refname) %(objectname) %(symref)",
];

/// Returns which reflogs there are and what is in them, and whether a ref is there that may go, as a command tells.
fn shown(run: impl Fn(&[&str]) -> Output) -> String {
    let all = ["reflog", "show", "--all", "--format=%gd %H %gs"];
    let is_there = run(&["show-ref", "--verify", "--quiet", GONE])
        .status
        .success();
    run(&["reflog", "list"]).text() + &run(&all).text() + &is_there.to_string()
}

/// Returns where commands are run in a repository: in its worktree, if it has one.
fn work_dir(dir: &Path) -> PathBuf {
    let worktree = dir.join(WORKTREE);
    match worktree.exists() {
        true => worktree,
        false => dir.to_owned(),
    }
}

fn listed_by_git(dir: &Path) -> String {
    oracle::git(work_dir(dir)).args(LIST).run().text()
}

/// What a command should not leave: locks, new values beside them, journals. With their inodes.
fn locks(dir: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if name != "objects" {
                    dirs.push(entry.path());
                }
            } else if name.ends_with(".lock") || name.starts_with("refdb") {
                let inode = entry.metadata().map_or(0, |found| found.ino());
                found.push((entry.path(), inode));
            }
        }
    }
    found.sort();
    found
}

/// Copies a repository to another file system, links as links.
fn copy(from: &Path, to: &Path) {
    let args = [
        "-RPp".as_ref(),
        "--preserve=links".as_ref(),
        from.as_os_str(),
        to.as_os_str(),
    ];
    let copied = std::process::Command::new("/bin/cp").args(args).status();
    assert!(copied.is_ok_and(|status| status.success()));
}

/// Shows how a command ended, in a form that can be read.
struct Told<'a>(&'a Output);

impl std::fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (stdout, stderr) = (&self.0.stdout, &self.0.stderr);
        let text = |bytes| String::from_utf8_lossy(bytes);
        write!(f, "{}\n{}\n{}", self.0.status, text(stdout), text(stderr))
    }
}
