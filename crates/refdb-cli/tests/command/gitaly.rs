//! Servers that drive `git update-ref -z --stdin` tell failures apart by what it says. Gitaly does so by nine
//! expressions: whatever Git's answer is for it, refdb's is as well.

use std::fs;

use refdb_testkit::oracle;
use refdb_testkit::repo::Repo;
use refdb_testkit::{Format, RefFormat, for_every_format};

/// What Gitaly calls a failure, and how the text of each class looks, where `*` is anything within a line. The text
/// of two of them may go on.
const CLASSES: [(&str, &[&str]); 9] = [
    (
        "conflict in the transaction",
        &["fatal: *: cannot process '*' and '*' at the same time\n"],
    ),
    (
        "another state",
        &[
            "fatal: *: cannot lock ref '*': is at * but expected *\n",
            "fatal: cannot lock ref '*': is at * but expected *\n",
        ],
    ),
    (
        "several updates",
        &["fatal: *: multiple updates for ref '*' not allowed\n"],
    ),
    (
        "no commit",
        &["fatal: *: trying to write non-commit object * to branch '*'\n"],
    ),
    (
        "no object",
        &["fatal: *: trying to write ref '*' with nonexistent object *\n"],
    ),
    ("no name", &["fatal: invalid ref format: *\n"]),
    (
        "there already",
        &["fatal: *: cannot lock ref '*': reference already exists\n"],
    ),
    (
        "another ref in the way",
        &["fatal: *: '*' exists; cannot create '*'\n"],
    ),
    (
        "locked",
        &[
            "fatal: prepare: cannot lock ref '*': Unable to create '*': File exists.",
            "fatal: commit: cannot lock ref '*': Unable to create '*': File exists.",
            "fatal: prepare: cannot lock references\n",
            "fatal: commit: cannot lock references\n",
        ],
    ),
];

/// The classes whose text may go on behind that.
const OPEN: [&str; 2] = ["no commit", "locked"];

fn class_of(text: &str) -> Vec<&'static str> {
    let found = CLASSES.iter().filter(|(name, looks)| {
        looks
            .iter()
            .any(|looks| has_look(text, looks, OPEN.contains(name)))
    });
    found.map(|(name, _)| *name).collect()
}

/// Returns whether a text begins as `look` says, and ends there unless it `goes_on`.
fn has_look(text: &str, look: &str, goes_on: bool) -> bool {
    match look.split_once('*') {
        None => text
            .strip_prefix(look)
            .is_some_and(|rest| goes_on || rest.is_empty()),
        Some((before, after)) => text.strip_prefix(before).is_some_and(|rest| {
            let line = rest.find('\n').unwrap_or(rest.len());
            let mut ends = (0..=line).filter(|at| rest.is_char_boundary(*at));
            ends.any(|at| has_look(&rest[at..], after, goes_on))
        }),
    }
}

/// What leads to each class, in the order of [`CLASSES`]: questions, each of which has a NUL behind it.
fn inputs(repo: &Repo) -> [String; 9] {
    let objects = repo.objects();
    let (first, second) = (&objects.commits[0], &objects.commits[1]);
    let tree = repo
        .git(["rev-parse", &format!("{first}^{{tree}}")])
        .run()
        .text();
    let (tree, missing) = (tree.trim(), "1".repeat(first.len()));
    [
        format!("create refs/heads/a\0{first}\0create refs/heads/a/b\0{first}\0"),
        format!("update refs/heads/main\0{first}\0{second}\0"),
        format!("create refs/heads/x\0{first}\0create refs/heads/x\0{first}\0"),
        format!("create refs/heads/x\0{tree}\0"),
        format!("create refs/heads/x\0{missing}\0"),
        format!("create refs/heads/a..b\0{first}\0"),
        format!("create refs/heads/main\0{second}\0"),
        format!("create refs/heads/main/child\0{second}\0"),
        format!("update refs/heads/main\0{second}\0\0"),
    ]
}

fn failures_are_told_apart(format: Format) {
    let mut unknown = Vec::new();
    for (number, (class, _)) in CLASSES.iter().enumerate() {
        for last in ["prepare", "commit"] {
            let repo = Repo::init(format);
            let first = &repo.objects().commits[0];
            repo.git(["update-ref", "refs/heads/main", first])
                .run()
                .ok();
            let input = format!("start\0{}{last}\0", inputs(&repo)[number]);
            if *class == "locked" {
                let lock = match format.refs {
                    RefFormat::Files => "refs/heads/main.lock",
                    RefFormat::Reftable => "reftable/tables.list.lock",
                };
                fs::write(repo.git_dir().join(lock), "").expect("a lock");
            }
            let ours = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path());
            let [git, ours] = [repo.git([""; 0]), ours].map(|run| {
                let out = run
                    .args(["update-ref", "-z", "--stdin"])
                    .stdin(input.as_str())
                    .run();
                assert!(!out.status.success(), "{class}, {last}");
                String::from_utf8(out.stderr).expect("text")
            });
            let class_of_git = class_of(&git);
            assert_eq!(
                class_of(&ours),
                class_of_git,
                "{last}: {git} is {ours} here"
            );
            match class_of_git.as_slice() {
                // Git 2.55 finds two of them before there is a command to name.
                [] => unknown.push(*class),
                found => assert_eq!(found, [*class], "{git}"),
            }
        }
    }
    assert_eq!(
        unknown,
        ["no commit", "no commit", "no object", "no object"]
    );
}

#[test]
fn a_text_has_the_look_of_its_class_alone() {
    assert_eq!(class_of("fatal: invalid ref format: a..b\n"), ["no name"]);
    assert_eq!(class_of("fatal: invalid ref format: a..b\nmore\n"), [""; 0]);
    assert_eq!(class_of("error: invalid ref format: a..b\n"), [""; 0]);
    let locked =
        "fatal: commit: cannot lock ref 'a': Unable to create 'b': File exists.\n\nAnother";
    assert_eq!(class_of(locked), ["locked"]);
    assert_eq!(class_of(&locked.replace("exists", "is")), [""; 0]);
}

for_every_format! {
    fn gitaly_tells_failures_apart_as_with_git(format) {
        failures_are_told_apart(format);
    }
}
