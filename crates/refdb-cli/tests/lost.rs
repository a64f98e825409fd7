//! A stack that lost everything is damage, which every command tells, and nothing is written there;
//! a stack that nobody has written to yet is empty.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use bstr::ByteSlice;
use refdb_testkit::Format;
use refdb_testkit::oracle::{self, Output};
use refdb_testkit::repo::Repo;

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
