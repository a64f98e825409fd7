//! Several refdb and Git processes write the same repository at once.
//!
//! Nothing that was acknowledged is lost, no transaction is half visible in `reftable`, and no lock
//! is left. Each writer moves three branches of its own together, and all writers take turns at one
//! shared branch, which they move only from the value that they read: its reflog must be one chain
//! without a gap, with as many links as there were acknowledgements.

#![allow(clippy::print_stderr, reason = "says what cannot be tried here")]

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bstr::ByteSlice;
use refdb_testkit::oracle::{self, GitRun};
use refdb_testkit::repo::Repo;
use refdb_testkit::rng::Rng;
use refdb_testkit::{RefFormat, for_every_format};

const ROUNDS: usize = 25;
/// How often a branch is updated by each of two.
const TIMES: usize = 400;
const SHARED: &str = "refs/heads/shared";
const TOGETHER: [&str; 3] = ["refs/pull/1/head", "refs/pull/2/head", "refs/pull/2/merge"];

/// Who writes: refdb and Git in turns.
const WRITERS: [Program; 5] = [
    Program::Refdb,
    Program::Git,
    Program::Refdb,
    Program::Git,
    Program::Refdb,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    Refdb,
    Git,
}

impl Program {
    fn run(self, dir: &Path) -> GitRun {
        match self {
            Program::Refdb => oracle::run_of(env!("CARGO_BIN_EXE_refdb"), dir),
            Program::Git => oracle::git(dir),
        }
    }
}

fn names(writer: usize) -> [String; 3] {
    ["a", "b", "c"].map(|leaf| format!("refs/heads/writer-{writer}/{leaf}"))
}

/// Moves the writer's own branches together, deleting them now and then; returns their last
/// acknowledged value.
fn write(writer: usize, repo: &Repo, shared_moves: &AtomicUsize) -> Option<String> {
    let program = WRITERS[writer];
    let commits = &repo.objects().commits;
    let mut rng = Rng::new(writer as u64);
    let mut current: Option<String> = None;
    for round in 0..ROUNDS {
        let next = (rng.below(6) > 0).then(|| rng.pick(commits).clone());
        let mut script = String::from("start\n");
        for name in names(writer) {
            let line = match (&current, &next) {
                (Some(old), Some(new)) => format!("update {name} {new} {old}\n"),
                (None, Some(new)) => format!("create {name} {new}\n"),
                (Some(old), None) => format!("delete {name} {old}\n"),
                (None, None) => continue,
            };
            script.push_str(&line);
        }
        script.push_str("prepare\ncommit\n");
        let out = program
            .run(repo.path())
            .args(["update-ref", "--stdin"])
            .stdin(script)
            .run();
        assert!(
            out.status.success(),
            "writer {writer} ({program:?}), round {round}: {}",
            out.stderr.as_bstr()
        );
        current = next;
        let commit: &String = rng.pick(commits);
        move_shared(program, repo, &[SHARED], commit, shared_moves);
        if round % 10 == 9 {
            // Packing and compacting go on meanwhile; somebody else's being at it is fine.
            program.run(repo.path()).args(["pack-refs", "--all"]).run();
        }
    }
    current
}

/// Moves `names`, which have one value, from the value they have now, if nobody else is faster.
fn move_shared(program: Program, repo: &Repo, names: &[&str], next: &str, moves: &AtomicUsize) {
    let list = ["for-each-ref", "--format=%(objectname)", names[0]];
    let old = program
        .run(repo.path())
        .args(list)
        .run()
        .text()
        .trim()
        .to_owned();
    assert!(!old.is_empty(), "what is shared is always there");
    if old == next {
        return;
    }
    let update = |name: &&str| format!("update {name} {next} {old}\n");
    let update = program
        .run(repo.path())
        .args(["update-ref", "-m", "turn", "--stdin"])
        .stdin(names.iter().map(update).collect::<String>());
    if update.run().status.success() {
        moves.fetch_add(1, Ordering::SeqCst);
    }
}

/// Asserts that the reflogs of `names` are chains without a gap that tell of so many moves.
fn assert_chains(repo: &Repo, names: &[&str], moves: &AtomicUsize) {
    let state = repo.state();
    let values: HashMap<_, _> = repo
        .refs()
        .into_iter()
        .map(|listed| (listed.name.to_string(), listed.id))
        .collect();
    for name in names {
        let chain = state.log(name);
        // The first entry is the creation.
        assert_eq!(
            chain.len(),
            moves.load(Ordering::SeqCst) + 1,
            "the reflog of {name}"
        );
        for pair in chain.windows(2) {
            assert_eq!(pair[0].new, pair[1].old, "the reflog of {name} has a gap");
        }
        assert_eq!(chain.last().map(|entry| &entry.new), values.get(*name));
    }
}

/// Lists without pause until the writers are done; returns how many listings were looked at.
fn watch(program: Program, repo: &Repo, done: &AtomicBool) -> usize {
    let mut listings = 0;
    while !done.load(Ordering::SeqCst) {
        let list = ["for-each-ref", "--format=%(refname) %(objectname)"];
        let listing = program.run(repo.path()).args(list).run().text();
        let values: HashMap<&str, &str> = listing
            .lines()
            .filter_map(|line| line.split_once(' '))
            .collect();
        assert!(
            values.contains_key(SHARED),
            "{program:?} lost the shared branch"
        );
        if repo.format().refs == RefFormat::Reftable {
            for writer in 0..WRITERS.len() {
                let [a, b, c] = names(writer).map(|name| values.get(name.as_str()).copied());
                assert!(
                    a == b && b == c,
                    "{program:?} saw half a transaction of {writer}"
                );
            }
        }
        listings += 1;
    }
    listings
}

/// Updates `name` so many times in a worktree, by one process and one transaction after the other, and
/// asserts that none is refused.
fn update_again_and_again(dir: &Path, name: &str, commits: &[String], times: usize) {
    let mut refdb = Program::Refdb
        .run(dir)
        .args(["update-ref", "--stdin"])
        .begin();
    for commit in commits.iter().cycle().take(times) {
        refdb.say(&format!("start\nupdate {name} {commit}\nprepare\ncommit\n"));
        for step in ["start", "prepare", "commit"] {
            let answer = refdb.hear();
            if answer != format!("{step}: ok\n") {
                let out = refdb.wait();
                panic!("{step} of {name}: {answer:?}, {}", out.stderr.as_bstr());
            }
        }
    }
    assert!(refdb.end().status.success());
}

fn locks(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(locks(&path));
        } else if path
            .extension()
            .is_some_and(|extension| extension == "lock")
        {
            found.push(path);
        }
    }
    found
}

for_every_format! {
    fn nothing_is_lost_and_no_lock_is_left(format) {
        let repo = Repo::init(format);
        for key in ["core.filesRefLockTimeout", "core.packedRefsTimeout", "reftable.lockTimeout"] {
            repo.config(key, "60000");
        }
        repo.update_refs(format!("create {SHARED} {}\n", repo.objects().commits[0]));
        let moves = AtomicUsize::new(0);
        let done = AtomicBool::new(false);
        let lasts: Vec<Option<String>> = std::thread::scope(|scope| {
            let (repo, moves, done) = (&repo, &moves, &done);
            let watchers = [Program::Refdb, Program::Git]
                .map(|program| scope.spawn(move || watch(program, repo, done)));
            let writers: Vec<_> = (0..WRITERS.len())
                .map(|writer| scope.spawn(move || write(writer, repo, moves)))
                .collect();
            let lasts: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
            done.store(true, Ordering::SeqCst);
            for watcher in watchers {
                assert!(watcher.join().expect("a watcher saw damage") > 0);
            }
            lasts.into_iter().map(|last| last.expect("a writer failed")).collect()
        });
        let values: HashMap<_, _> =
            repo.refs().into_iter().map(|listed| (listed.name.to_string(), listed.id)).collect();
        for (writer, last) in lasts.iter().enumerate() {
            for name in names(writer) {
                assert_eq!(values.get(&name), last.as_ref(), "{name} lost an update");
            }
        }
        assert_chains(&repo, &[SHARED], &moves);
        assert_eq!(locks(&repo.git_dir()), Vec::<PathBuf>::new(), "locks were left");
        repo.assert_sound();
    }

    /// Directories come and go, and whoever writes the refs in one locks them one by one or, with
    /// refdb, as a whole.
    fn locked_directories_keep_everybody_out(format) {
        let repo = Repo::init(format);
        for (key, value) in [
            ("core.filesRefLockTimeout", "60000"),
            ("core.packedRefsTimeout", "60000"),
            ("reftable.lockTimeout", "60000"),
            ("refdb.directoryLockMin", "2"),
            ("core.logAllRefUpdates", "always"),
        ] {
            repo.config(key, value);
        }
        let commits = &repo.objects().commits;
        let create = |name: &&str| format!("create {name} {}\n", commits[0]);
        repo.update_refs(TOGETHER.iter().map(create).collect::<String>());
        let moves = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let (repo, moves) = (&repo, &moves);
            for (writer, program) in WRITERS.into_iter().enumerate() {
                scope.spawn(move || {
                    let mut rng = Rng::new(writer as u64);
                    for round in 0..ROUNDS {
                        let next: &String = rng.pick(commits);
                        move_shared(program, repo, &TOGETHER, next, moves);
                        if program == Program::Refdb && round % 3 == 2 {
                            // Afterwards the directory is gone, unless somebody writes in it. Git
                            // does not pack here: twice in one second, and it takes the second
                            // packed-refs for the first one (docs/compat.md).
                            program.run(repo.path()).args(["pack-refs", "--all"]).run();
                        }
                    }
                });
            }
        });
        assert!(moves.load(Ordering::SeqCst) > ROUNDS, "hardly anybody came through: {moves:?}");
        assert_chains(&repo, &TOGETHER, &moves);
        assert_eq!(locks(&repo.git_dir()), Vec::<PathBuf>::new(), "locks were left");
        let barrier = repo.git_dir().join("refs/pull");
        assert!(!barrier.is_symlink(), "a barrier was left");
        repo.assert_sound();
    }

    /// Git tells one packed-refs from another by second, length and inode. Here the inode of one
    /// becomes that of the next but one, as it often does by itself.
    fn git_does_not_take_a_new_packed_refs_for_an_old_one(format) {
        if format.refs == RefFormat::Reftable {
            eprintln!("skipped: Git keeps the list of tables open, so that nothing gets its inode");
            return;
        }
        let repo = Repo::init(format);
        let name = "refs/pull/1/head";
        let commits = &repo.objects().commits;
        let packed = repo.git_dir().join("packed-refs");
        let write = |id: &str| {
            let script = format!("update {name} {id}\nupdate refs/pull/2/head {id}\n");
            let settings = ["-c", "refdb.directoryLockMin=2", "update-ref", "--stdin"];
            let out = Program::Refdb.run(repo.path()).args(settings).stdin(script).run();
            assert!(out.status.success(), "{}", out.stderr.as_bstr());
            assert!(fs::read_to_string(&packed).expect("a file").contains(id));
        };
        write(&commits[0]);
        let kept = repo.git_dir().join("kept");
        fs::hard_link(&packed, &kept).expect("a second name");
        let mut git = oracle::git(repo.path()).args(["update-ref", "--stdin"]).begin();
        // A name in place of a value makes Git read packed-refs.
        git.say(&format!("start\nupdate refs/heads/x {name}\nprepare\ncommit\n"));
        let answers = [git.hear(), git.hear(), git.hear()];
        assert_eq!(answers, ["start: ok\n", "prepare: ok\n", "commit: ok\n"]);
        write(&commits[1]);
        write(&commits[2]);
        let dated = packed.metadata().and_then(|file| file.modified()).expect("a date");
        fs::copy(&packed, &kept).expect("as many bytes");
        let file = fs::File::options().write(true).open(&kept).expect("a file of ours");
        file.set_modified(dated).expect("a file of ours");
        fs::rename(&kept, &packed).expect("a file of ours");
        let [old, new] = [&commits[0], &commits[3]];
        git.say(&format!("start\nupdate {name} {new} {old}\nprepare\ncommit\n"));
        let out = git.end();
        assert!(!out.status.success(), "Git took the old value for the present one");
        assert!(out.stderr.contains_str(&commits[2]), "{}", out.stderr.as_bstr());
    }

    /// Each changes the branch and writes into both reflogs, one of them by way of HEAD. Where they
    /// took their locks in the order in which they came upon them, both waited until the time was over.
    fn head_and_its_branch_get_past_each_other(format) {
        let repo = Repo::init(format);
        for key in ["core.filesRefLockTimeout", "reftable.lockTimeout"] {
            repo.config(key, "20000");
        }
        let commits = &repo.objects().commits;
        let linked = repo.worktree("w");
        linked.git(["symbolic-ref", "HEAD", "refs/heads/topic"]).run().ok();
        let branch = repo.git(["symbolic-ref", "HEAD"]).run().text();
        let here = [(repo.path(), branch.trim_end()), (&linked.path, "refs/heads/topic")];
        for (dir, branch) in here {
            repo.update_refs(format!("update {branch} {}\n", commits[0]));
            std::thread::scope(|scope| {
                for name in ["HEAD", branch] {
                    scope.spawn(move || update_again_and_again(dir, name, commits, TIMES));
                }
            });
        }
        for (state, name) in [
            (repo.state(), "HEAD"),
            (repo.state(), branch.trim_end()),
            (repo.state(), "refs/heads/topic"),
            (linked.state(), "HEAD"),
        ] {
            let chain = state.log(name);
            assert!(chain.len() >= TIMES - 1, "the reflog of {name} has {}", chain.len());
            let is_whole = chain.windows(2).all(|pair| pair[0].new == pair[1].old);
            assert!(is_whole, "the reflog of {name} has a gap");
        }
        assert_eq!(locks(&repo.git_dir()), Vec::<PathBuf>::new(), "locks were left");
        repo.assert_sound();
    }
}
