//! A stack that lost everything is damage, which every command tells, and nothing is written there;
//! a stack that nobody has written to yet is empty. A transaction that lost its locks fails.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use bstr::ByteSlice;
use refdb_testkit::dialogue::Dialogue;
use refdb_testkit::oracle::{self, Output};
use refdb_testkit::repo::Repo;
use refdb_testkit::{Format, for_every_format};

/// What is done to the folder of a stack, and which file the error names.
type Loss = (&'static str, fn(&Path), &'static str);

const LOSSES: [Loss; 6] = [
    (
        "missing",
        |stack| fs::remove_dir_all(stack).expect("it can be done"),
        "reftable",
    ),
    ("empty", clear, "reftable/tables.list"),
    (
        "a list without a byte",
        |stack| {
            clear(stack);
            fs::write(stack.join("tables.list"), "").expect("it can be done")
        },
        "reftable/tables.list",
    ),
    (
        "a list that is a link to nowhere",
        |stack| {
            clear(stack);
            symlink("/none/such", stack.join("tables.list")).expect("it can be done")
        },
        "reftable/tables.list",
    ),
    (
        "a link to nowhere",
        |stack| {
            fs::remove_dir_all(stack).expect("it can be done");
            symlink("/none/such", stack).expect("it can be done")
        },
        "reftable",
    ),
    (
        "a file",
        |stack| {
            fs::remove_dir_all(stack).expect("it can be done");
            fs::write(stack, "x").expect("it can be done")
        },
        "reftable",
    ),
];

fn clear(stack: &Path) {
    for entry in fs::read_dir(stack).expect("it can be done") {
        fs::remove_file(entry.expect("it can be done").path()).expect("it can be done");
    }
}

fn tables() -> [Format; 2] {
    [Format::REFTABLE_SHA1, Format::REFTABLE_SHA256]
}

fn refdb(dir: &Path, args: &[&str]) -> Output {
    oracle::run_of(env!("CARGO_BIN_EXE_refdb"), dir)
        .args(args)
        .run()
}

fn names(output: &Output, file: &str) -> bool {
    let said = [output.stdout.as_slice(), &output.stderr].concat();
    said.contains_str(format!(".git/{file}: "))
}

/// What lies in a folder, by name.
fn listing(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| {
            entry
                .expect("it can be done")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    names
}

#[test]
fn a_stack_that_lost_everything_is_damage() {
    for format in tables() {
        for (what, lose, file) in LOSSES {
            let repo = Repo::init(format);
            let commit = repo.objects().commits[0].clone();
            repo.update_refs(format!("create refs/heads/main {commit}\n"));
            let stack = repo.git_dir().join("reftable");
            lose(&stack);
            let before = listing(&stack);
            let create = format!("create refs/heads/new {commit}");
            let commands: [(&[&str], i32); 9] = [
                (&["for-each-ref"], 128),
                (&["show-ref"], 128),
                (&["refs", "exists", "HEAD"], 1),
                (&["symbolic-ref", "HEAD"], 128),
                (&["update-ref", "refs/heads/new", &commit], 128),
                (&["refs", "verify"], 128),
                (&["refs", "verify", "--deep"], 2),
                (&["refs", "repair", "--no-dry-run"], 2),
                (&["inspect"], 128),
            ];
            for (args, code) in commands {
                let output = refdb(repo.path(), args);
                let said = output.stderr.as_bstr();
                assert_eq!(output.code(), code, "{format}: {what}: {args:?}: {said}");
                assert!(names(&output, file), "{format}: {what}: {args:?}: {said}");
            }
            let output = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path())
                .args(["update-ref", "--stdin"])
                .stdin(create)
                .run();
            assert_eq!(output.code(), 128, "{format}: {what}");
            assert_eq!(
                listing(&stack),
                before,
                "{format}: {what}: something was written"
            );
        }
    }
}

#[test]
fn a_worktree_that_lost_its_stack_is_damage() {
    for format in tables() {
        for (what, lose, file) in LOSSES {
            let repo = Repo::init(format);
            let commit = repo.objects().commits[0].clone();
            repo.update_refs(format!("create refs/heads/main {commit}\n"));
            let worktree = repo.worktree("w");
            let own = repo.git_dir().join("worktrees/w");
            lose(&own.join("reftable"));
            let file = format!("worktrees/w/{file}");
            let told = |dir: &Path, args: &[&str], code: i32| {
                let output = refdb(dir, args);
                let said = output.stderr.as_bstr();
                assert_eq!(output.code(), code, "{format}: {what}: {args:?}: {said}");
                assert!(names(&output, &file), "{format}: {what}: {args:?}: {said}");
            };
            told(repo.path(), &["refs", "verify"], 128);
            told(repo.path(), &["refs", "verify", "--deep"], 2);
            told(repo.path(), &["refs", "exists", "worktrees/w/HEAD"], 1);
            told(&worktree.path, &["for-each-ref"], 128);
            told(&worktree.path, &["symbolic-ref", "HEAD", "refs/heads/x"], 1);
            // The main worktree does not need it.
            assert_eq!(
                refdb(repo.path(), &["for-each-ref"]).code(),
                0,
                "{format}: {what}"
            );
        }
    }
}

/// What Git leaves when its making of a repository, or of a worktree, is cut short before the first
/// list; and what is no worktree at all.
#[test]
fn what_is_new_is_empty() {
    for format in tables() {
        let repo = Repo::init(format);
        let git_dir = repo.git_dir();
        clear(&git_dir.join("reftable"));
        fs::remove_dir_all(git_dir.join("objects")).expect("it can be done");
        // Git goes on where it was cut short, without making a list.
        let options = [
            "--ref-format=reftable",
            "--object-format",
            format.objects.name(),
        ];
        repo.git(["init", "-q"]).args(options).run().ok();
        assert_eq!(listing(&git_dir.join("reftable")), [""; 0]);
        for args in [
            &["for-each-ref"][..],
            &["refs", "verify"],
            &["refs", "verify", "--deep"],
        ] {
            let output = refdb(repo.path(), args);
            assert_eq!(
                output.code(),
                0,
                "{format}: {args:?}: {}",
                output.stderr.as_bstr()
            );
        }
        refdb(repo.path(), &["symbolic-ref", "HEAD", "refs/heads/main"]).ok();
        assert_eq!(
            repo.git(["symbolic-ref", "HEAD"]).run().text(),
            "refs/heads/main"
        );

        let repo = Repo::init(format);
        let commit = &repo.objects().commits[0];
        repo.update_refs(format!("create refs/heads/main {commit}\n"));
        repo.worktree("w");
        let own = repo.git_dir().join("worktrees/w");
        let _ = fs::remove_file(own.join("index"));
        clear(&own.join("reftable"));
        fs::write(own.join("locked"), "initializing").expect("it can be done");
        for args in [&["refs", "verify"][..], &["refs", "verify", "--deep"]] {
            let output = refdb(repo.path(), args);
            assert_eq!(
                output.code(),
                0,
                "{format}: {args:?}: {}",
                output.stderr.as_bstr()
            );
        }
        let none = refdb(repo.path(), &["refs", "exists", "worktrees/none/HEAD"]);
        assert_eq!(none.code(), 2, "{format}: {}", none.stderr.as_bstr());
    }
}

/// Returns the files below a folder whose names end so.
fn ending(dir: &Path, end: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    // It need not be there.
    for entry in fs::read_dir(dir).into_iter().flatten() {
        let path = entry.expect("it can be listed").path();
        if path.is_dir() && !path.is_symlink() {
            found.extend(ending(&path, end));
        } else if path.to_string_lossy().ends_with(end) {
            found.push(path);
        }
    }
    found
}

/// How somebody takes away what a prepared transaction holds, in the folder of a repository, with
/// a folder to put things aside.
type Theft = (&'static str, fn(&Path, &Path));

const THEFTS: [Theft; 5] = [
    ("removed", |git_dir, _| {
        let locks = ending(git_dir, ".lock");
        locks.iter().for_each(|lock| remove(lock));
    }),
    ("moved", |git_dir, aside| {
        for (at, lock) in ending(git_dir, ".lock").iter().enumerate() {
            fs::rename(lock, aside.join(at.to_string())).expect("it can be done");
        }
    }),
    ("linked and removed", |git_dir, aside| {
        for (at, lock) in ending(git_dir, ".lock").iter().enumerate() {
            fs::hard_link(lock, aside.join(at.to_string())).expect("it can be done");
            remove(lock);
        }
    }),
    ("one is moved", |git_dir, aside| {
        let locks = ending(git_dir, ".lock");
        let is_lock =
            |path: &&PathBuf| path.ends_with("taken-0.lock") || path.ends_with("tables.list.lock");
        let lock = locks.iter().find(is_lock).expect("it is held");
        fs::rename(lock, aside.join("one")).expect("it can be done");
    }),
    ("their folder is moved", |git_dir, aside| {
        for name in ["refs/heads", "reftable"] {
            let (dir, moved) = (git_dir.join(name), aside.join(name.replace('/', "-")));
            if ending(&dir, ".lock").is_empty() {
                continue;
            }
            // Another one has its place, with all in it but the locks.
            fs::rename(&dir, &moved).expect("it can be done");
            fs::create_dir(&dir).expect("it can be done");
            for entry in fs::read_dir(&moved).expect("it can be listed") {
                let entry = entry.expect("it can be listed");
                if !entry.file_name().to_string_lossy().ends_with(".lock") {
                    fs::copy(entry.path(), dir.join(entry.file_name())).expect("it can be done");
                }
            }
        }
    }),
];

fn remove(path: &Path) {
    fs::remove_file(path).expect("it can be done");
}

for_every_format! {
    /// A transaction whose locks somebody took away, in whatever way, changes nothing, and says so; what
    /// others have in the place of its locks by then stays.
    fn a_transaction_that_lost_its_locks_fails(format) {
        for (how, take) in THEFTS {
            for count in [1, 3, 80] {
                let repo = Repo::init(format);
                let ids = repo.objects().commits.clone();
                let name = |at: usize| format!("refs/heads/taken-{at}");
                let line = |verb: &str, new: &str, at: usize| format!("{verb} {} {new}\n", name(at));
                repo.update_refs((0..count).map(|at| line("create", &ids[0], at)).collect::<String>());
                let ours = || oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path())
                    .args(["update-ref", "--stdin"])
                    .begin();
                let mut refdb = ours();
                refdb.say("start\n");
                (0..count).for_each(|at| refdb.say(&line("update", &ids[1], at)));
                refdb.say("prepare\n");
                assert_eq!(refdb.hear(), "start: ok\n");
                assert_eq!(refdb.hear(), "prepare: ok\n");
                let aside = tempfile::tempdir_in(repo.path()).expect("room for it");
                take(&repo.git_dir(), aside.path());
                // Git changes one of them, and is about to change it again.
                repo.update_refs(line("update", &ids[2], 0));
                let mut git = oracle::git(repo.path()).args(["update-ref", "--stdin"]).begin();
                git.say(&format!("start\n{}prepare\n", line("update", &ids[3], 0)));
                assert_eq!(git.hear(), "start: ok\n");
                assert_eq!(git.hear(), "prepare: ok\n");
                refdb.say("commit\n");
                let output = refdb.end();
                let said = output.stderr.as_bstr();
                assert_eq!(output.code(), 128, "{format}: {how}, {count}: {said}");
                assert!(said.contains_str("removed by somebody else"), "{format}: {how}: {said}");
                git.say("commit\n");
                assert_eq!(git.end().code(), 0, "{format}: {how}, {count}");
                for at in 0..count {
                    let expected = if at == 0 { &ids[3] } else { &ids[0] };
                    let found = repo.git(["rev-parse", &name(at)]).run().text();
                    assert_eq!(&found, expected, "{format}: {how}, {count}: {at}");
                }
            }
        }
    }

    /// Who gives a transaction up whose lock somebody took away leaves that of the next holder alone.
    fn a_transaction_that_lost_its_locks_gives_back_no_others(format) {
        for count in [1, 3, 80] {
            let repo = Repo::init(format);
            let id = repo.objects().commits[0].clone();
            let (_, take) = THEFTS[3];
            let prepare = |program: &mut Dialogue, count: usize| {
                program.say("start\n");
                (0..count).for_each(|at| program.say(&format!("create refs/heads/taken-{at} {id}\n")));
                program.say("prepare\n");
                assert_eq!(program.hear(), "start: ok\n");
                assert_eq!(program.hear(), "prepare: ok\n");
            };
            let mut refdb = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path())
                .args(["update-ref", "--stdin"])
                .begin();
            prepare(&mut refdb, count);
            let aside = tempfile::tempdir_in(repo.path()).expect("room for it");
            take(&repo.git_dir(), aside.path());
            let mut git = oracle::git(repo.path()).args(["update-ref", "--stdin"]).begin();
            prepare(&mut git, 1);
            refdb.say("abort\n");
            let output = refdb.end();
            assert_eq!(output.code(), 0, "{format}, {count}: {}", output.stderr.as_bstr());
            let locks = ending(&repo.git_dir(), ".lock");
            assert_eq!(locks.len(), 1, "{format}, {count}: {locks:?}");
            git.say("commit\n");
            let output = git.end();
            assert_eq!(output.code(), 0, "{format}, {count}: {}", output.stderr.as_bstr());
        }
    }

    /// Whoever writes without a lock, or lost it, is not overwritten with what was made from the file before.
    fn a_file_that_was_replaced_meanwhile_stays(format) {
        let repo = Repo::init(format);
        let id = repo.objects().commits[0].clone();
        repo.update_refs(format!("create refs/heads/main {id}\n"));
        repo.git(["pack-refs", "--all"]).run();
        let mut refdb = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path())
            .args(["update-ref", "--stdin"])
            .begin();
        refdb.say("start\n");
        (0..80).for_each(|at| refdb.say(&format!("create refs/heads/new-{at} {id}\n")));
        refdb.say("prepare\n");
        assert_eq!(refdb.hear(), "start: ok\n");
        assert_eq!(refdb.hear(), "prepare: ok\n");
        let file = ["reftable/tables.list", "packed-refs"].map(|file| repo.git_dir().join(file));
        let file = file.iter().find(|file| file.exists()).expect("one of them");
        let other = repo.git_dir().join("other");
        fs::copy(file, &other).expect("it can be done");
        fs::rename(&other, file).expect("it can be done");
        let before = fs::metadata(file).expect("it is there").ino();
        refdb.say("commit\n");
        let output = refdb.end();
        assert_eq!(output.code(), 128, "{format}: {}", output.stderr.as_bstr());
        assert_eq!(fs::metadata(file).expect("it is there").ino(), before);
        let refs = repo.git(["for-each-ref", "--format=%(refname)"]).run();
        assert_eq!(refs.stdout.as_bstr(), "refs/heads/main\n");
        assert_eq!(ending(&repo.git_dir(), ".lock"), Vec::<PathBuf>::new());
    }

    /// New values that somebody took away are not taken for ones that are in their places.
    fn a_transaction_that_lost_its_values_fails(format) {
        for count in [1, 3, 80] {
            let repo = Repo::init(format);
            let ids = repo.objects().commits.clone();
            let name = |at: usize| format!("refs/heads/taken-{at}");
            let mut refdb = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path())
                .args(["update-ref", "--stdin"])
                .begin();
            refdb.say("start\n");
            (0..count).for_each(|at| refdb.say(&format!("create {} {}\n", name(at), ids[0])));
            refdb.say("prepare\n");
            assert_eq!(refdb.hear(), "start: ok\n");
            assert_eq!(refdb.hear(), "prepare: ok\n");
            let mut values = ending(&repo.git_dir(), ".lock");
            values.retain(|value| value.to_string_lossy().contains('~'));
            values.iter().for_each(|value| remove(value));
            refdb.say("commit\n");
            let output = refdb.end();
            let made = (0..count).filter(|&at| {
                let found = repo.git(["show-ref", "--verify", "-q", &name(at)]).run();
                found.code() == 0
            });
            let expected = if values.is_empty() { (0, count) } else { (128, 0) };
            assert_eq!((output.code(), made.count()), expected, "{format}: {count}");
        }
    }
}
