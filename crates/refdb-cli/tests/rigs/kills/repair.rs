//! Repairs of damaged repositories, killed at a system call: no damaged byte is lost, no value is
//! new, and the next repair comes to what one comes to that was not killed.
//!
//! `REFDB_REPAIR_KILLS` says how many points are tried, of all damages.

use refdb_testkit::damage::corpus::{Subject, kinds};

use super::*;

/// How many points every test run tries.
const SHORT: u64 = 200;

const REPAIR: &[&str] = &["refs", "repair"];

/// Damage whose repair writes every kind of file that a repair writes.
const DAMAGES: [&str; 10] = [
    "HEAD: no bytes",
    "loose ref: nothing but zeros",
    "packed-refs: zeros inside",
    "packed-refs: cut",
    "reflog: zeros before an entry",
    "footer: zeros, as after a power failure",
    "table: cut inside refs",
    "objects: zeros in the place of a block",
    "list: missing",
    "table: missing",
];

/// A damaged repository, with what becomes of it.
struct Damaged {
    base: Repo,
    what: String,
    /// The files that a repair touches, as they are before it.
    touched: Vec<(PathBuf, Vec<u8>)>,
    old: Option<String>,
    new: String,
    calls: Vec<Call>,
}

fn files(dir: &Path, below: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(dir).expect("a folder").flatten() {
        let (path, name) = (entry.path(), below.join(entry.file_name()));
        let kind = entry.file_type().expect("its kind");
        if kind.is_dir() && entry.file_name() != "objects" {
            files(&path, &name, found);
        } else if kind.is_file() {
            found.insert(name, fs::read(&path).expect("a file"));
        }
    }
}

fn all_files(repo: &Repo) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    files(&repo.git_dir(), Path::new(""), &mut found);
    found
}

/// What is listed, unless that fails.
fn readable(repo: &Repo) -> Option<String> {
    let out = refdb(repo.path(), LIST, "");
    out.status.success().then(|| out.text())
}

/// Returns whether a repair came to its end, be it with a loss.
fn is_done(out: &Output) -> bool {
    out.status.code().is_some_and(|code| code <= 1)
}

impl Damaged {
    fn new(base: Repo, what: String) -> Damaged {
        let repo = base.duplicate();
        let log = repo.path().join("strace");
        let out = traced(repo.path(), REPAIR, "", &log, None);
        assert!(is_done(&out), "{what}: {out:?}");
        let calls = calls(&fs::read_to_string(&log).expect("strace writes text"));
        let (before, after) = (all_files(&base), all_files(&repo));
        let touched = before.into_iter();
        let touched = touched.filter(|(path, content)| after.get(path) != Some(content));
        Damaged {
            touched: touched.collect(),
            old: readable(&base),
            new: listed_by_refdb(repo.path()),
            what,
            base,
            calls,
        }
    }

    fn kill(&self, at: &Call) {
        let repo = self.base.duplicate();
        let dir = repo.path();
        let log = dir.join("strace");
        let context = format!("{} in {}, killed at {at:?}", self.what, repo.format());
        let done = traced(dir, REPAIR, "", &log, Some(at));
        let found = all_files(&repo);
        for (path, content) in &self.touched {
            let is_aside = || {
                let mut kept = found
                    .iter()
                    .filter(|(at, _)| at.starts_with("refdb-damaged"));
                kept.any(|(at, found)| at.ends_with(path) && found == content)
            };
            let is_there = found.get(path) == Some(content);
            assert!(
                is_there || is_aside(),
                "{context}: {} is lost",
                path.display()
            );
        }
        let now = readable(&repo);
        // Several files are repaired one by one: each ref is as it was, or as it will be.
        let sides = [self.old.as_deref(), Some(self.new.as_str())];
        for line in now.iter().flat_map(|now| now.lines()) {
            let is_known = sides
                .iter()
                .flatten()
                .any(|side| side.lines().any(|it| it == line));
            assert!(is_known, "{context}: '{line}' is new");
        }
        if is_done(&done) {
            assert_eq!(
                now.as_deref(),
                Some(self.new.as_str()),
                "{context}: acknowledged"
            );
        }
        let again = refdb(dir, REPAIR, "");
        assert!(
            is_done(&again),
            "{context}, again: {}",
            again.stderr.to_str_lossy()
        );
        assert_eq!(listed_by_refdb(dir), self.new, "{context}, again");
        assert_eq!(
            listed_by_git(dir),
            self.new,
            "{context}: Git reads something else"
        );
        let checked = refdb(dir, &["refs", "verify", "--deep"], "");
        assert!(checked.code() <= 1, "{context}: {checked:?}");
        // And everybody can write.
        let commit = &repo.objects().commits[0];
        for name in ["refs/heads/main", "refs/heads/after"] {
            repo.git(["update-ref", name, commit]).run().ok();
            refdb(dir, &["update-ref", "-d", name], "").ok();
        }
        refdb(dir, &["pack-refs", "--all"], "").ok();
        let mut left = Vec::new();
        locks(&repo.git_dir(), &mut left);
        assert_eq!(left, Vec::<PathBuf>::new(), "{context}: locks are left");
    }
}

#[test]
fn a_killed_repair_loses_nothing_and_is_finished_by_the_next() {
    let seed = budget("REFDB_KILL_SEED", 1);
    if !can_kill(WHAT, seed) {
        return;
    }
    let mut damaged = Vec::new();
    for format in [Format::FILES_SHA1, Format::REFTABLE_SHA1] {
        let subject = Subject::new(format);
        for kind in kinds(format) {
            if DAMAGES.contains(&kind.name.as_str()) {
                let _ = (kind.apply)(&subject, &mut Rng::new(0));
                damaged.push(Damaged::new(subject.repo().duplicate(), kind.name));
                subject.restore();
            }
        }
    }
    assert!(damaged.len() > DAMAGES.len(), "some are not in the corpus");
    let mut points = Vec::new();
    for one in &damaged {
        points.extend(one.calls.iter().map(|at| (one, at)));
    }
    eprintln!("{} system calls of repairs", points.len());
    let most = budget("REFDB_REPAIR_KILLS", SHORT);
    try_points(points, most, seed, |(one, at)| one.kill(at));
}
