//! Histories in which a commit is its own ancestor: every question about them ends, in bounded
//! memory, and where Git answers the answer is Git's.

use std::fs;
use std::path::{Path, PathBuf};

use bstr::ByteSlice;
use refdb_testkit::oracle::{self, GitRun, Output};
use refdb_testkit::repo::Repo;
use refdb_testkit::rng::Rng;
use refdb_testkit::{Format, RefFormat, for_every_format};

use super::untrue::chunk;

/// Damages of a commit-graph file.
const SEEDS: u64 = 60;

/// What a program says that panicked, was killed, ran out of memory, or of time.
const NO_ANSWERS: [i32; 4] = [101, 124, 134, 137];

fn bounded(program: &str, dir: &Path, args: &[&str]) -> GitRun {
    let script = "ulimit -v 1500000 && exec timeout -s KILL 20 \"$0\" \"$@\"";
    oracle::run_of("/bin/bash", dir)
        .args(["-c", script, program])
        .args(args)
}

fn ours(dir: &Path, args: &[&str]) -> Output {
    let output = bounded(env!("CARGO_BIN_EXE_refdb"), dir, args).run();
    let code = output.code();
    assert!(!NO_ANSWERS.contains(&code), "{args:?} does not end: {code}");
    output
}

/// Makes commits 1 to 6 in a line, and 7 and 8 beside it on top of 3, each with a tag.
fn history(repo: &Repo) -> Vec<String> {
    let tree = repo.git(["mktree"]).run().text();
    let mut commits: Vec<String> = Vec::new();
    for number in 1..=8 {
        let parent = match number {
            1 => None,
            7 => commits.get(2),
            _ => commits.last(),
        };
        let parent = parent.map(|parent| ["-p".to_owned(), parent.clone()]);
        let made = repo
            .git(["commit-tree", "-m", "x", tree.trim()])
            .args(parent.iter().flatten())
            .at(1_700_000_000 + number, "+0000")
            .run();
        let commit = made.text().trim().to_owned();
        repo.update_refs(format!("create refs/tags/c{number} {commit}\n"));
        commits.push(commit);
    }
    repo.update_refs(format!(
        "create refs/heads/one {}\ncreate refs/heads/two {}\ncreate refs/heads/low {}\n",
        commits[5], commits[7], commits[1]
    ));
    for (branch, upstream) in [("one", "two"), ("two", "low"), ("low", "one")] {
        repo.config(&format!("branch.{branch}.remote"), ".");
        repo.config(
            &format!("branch.{branch}.merge"),
            &format!("refs/heads/{upstream}"),
        );
    }
    repo.config("advice.graftFileDeprecated", "false");
    commits
}

const ANSWERED: [&str; 9] = [
    "--contains=c2",
    "--contains=c7",
    "--no-contains=c4",
    "--merged=c3",
    "--merged=c8",
    "--no-merged=c3",
    "--format=%(refname) %(upstream:track) %(push:trackshort)",
    "--format=%(refname) %(describe)",
    "--format=%(refname) %(describe:tags)",
];

/// Git itself does not end.
const UNANSWERED: [&str; 3] = [
    "--format=%(refname) %(ahead-behind:c7)",
    "--format=%(refname) %(is-base:c1)",
    "--format=%(refname) %(is-base:refs/detached)",
];

for_every_format! {
    fn a_circle_of_grafts_or_replacements_ends(format) {
        for by_grafts in [true, false] {
            let repo = Repo::init(format);
            let commits = history(&repo);
            // The first commit gets the sixth for its parent.
            if by_grafts {
                let line = format!("{} {}\n", commits[0], commits[5]);
                fs::create_dir_all(repo.git_dir().join("info")).expect("room");
                fs::write(repo.git_dir().join("info/grafts"), line).expect("room");
            } else {
                let content = repo.git(["cat-file", "commit", &commits[0]]).run().ok();
                let content = String::from_utf8(content).expect("text");
                let content = content.replacen("\nauthor", &format!("\nparent {}\nauthor", commits[5]), 1);
                let write = ["hash-object", "-t", "commit", "-w", "--stdin"];
                let made = repo.git(write).stdin(content).run().text();
                let name = format!("refs/replace/{}", commits[0]);
                repo.update_refs(format!("create {name} {}\n", made.trim()));
            }
            for option in ANSWERED {
                let args = ["for-each-ref", option, "refs/heads", "refs/tags"];
                let git = repo.git(args).run();
                let ours = ours(repo.path(), &args);
                assert_eq!(ours.stdout, git.stdout, "{format}: {option}");
                assert_eq!(ours.code(), git.code(), "{format}: {option}");
            }
            repo.update_refs(format!("create refs/detached {}\n", commits[4]));
            repo.update_refs("delete refs/tags/c5\n");
            for option in UNANSWERED {
                ours(repo.path(), &["for-each-ref", option, "refs/heads", "refs/tags"]);
            }
            for args in [
                &["reflog", "expire", "--all", "--expire-unreachable=now"][..],
                &["update-ref", "refs/heads/new", ":/nothing says this"],
                &["update-ref", "refs/heads/new", "c3~40"],
                &["reflog", "show", "c8..c6"],
                &["refs", "verify", "--deep"],
            ] {
                ours(repo.path(), args);
            }
            let far = repo.git(["rev-parse", "c3~40"]).run().text();
            let new = repo.git(["rev-parse", "refs/heads/new"]).run().text();
            assert_eq!(new, far, "{format}");
            // However often it is gone round, no commit is read again and again.
            for count in (0_u64..13).chain([100_000_000, 100_000_001, 1_000_000_003]) {
                // Six commits make the circle.
                let far = repo.git(["rev-parse", &format!("c3~{}", count % 6)]).run().text();
                let given = format!("c3~{count}");
                ours(repo.path(), &["update-ref", "refs/heads/new", &given]);
                let new = repo.git(["rev-parse", "refs/heads/new"]).run().text();
                assert_eq!(new, far, "{format}: {given}");
            }
        }
    }
}

/// What a check says: its findings, and what it takes for an error.
fn checked(repo: &Repo, args: &[&str]) -> (i32, String) {
    let out = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path())
        .args(args)
        .run();
    let said = [out.stdout.as_slice(), &out.stderr].concat();
    (out.code(), String::from_utf8_lossy(&said).into_owned())
}

/// Makes what cannot be read of a repository in its directory, with a script. What is wrong elsewhere is found all the
/// same, and mended.
fn a_check_goes_on_beside(format: Format, script: &str, told: &str) {
    let repo = Repo::init(format);
    repo.objects();
    let bad = repo.git_dir().join("refs/heads/bad");
    fs::write(&bad, "bad\n").expect("a file");
    let make = oracle::run_of("/bin/bash", repo.git_dir()).args(["-ec", script]);
    make.run().ok();
    let (code, said) = checked(&repo, &["refs", "verify", "--deep"]);
    assert_eq!(code, 2, "{script}: {said}");
    for part in [told, "refs/heads/bad"] {
        assert!(said.contains(part), "{script}: {said}");
    }
    let (code, said) = checked(&repo, &["refs", "repair"]);
    assert_eq!(code, 2, "{script}: {said}");
    assert!(said.contains(told), "{script}: {said}");
    assert!(!bad.exists(), "{script}: {said}");
}

/// Makes a folder that is deeper than a path may be long, whose name is to follow: one after the other is put into the
/// last folder of the next.
const DEEP: &str = "part=$(printf 'e/%.0s' {1..500}); mkdir in; for _ in {1..5}; do mkdir -p out/$part; mv in out/$part; mv out in; done; mv in";

#[test]
fn what_has_too_long_a_path_is_passed_over_with_a_warning_and_not_migrated() {
    for format in [Format::FILES_SHA1, Format::FILES_SHA256] {
        let repo = Repo::init(format);
        let commit = &repo.objects().commits[0];
        // It comes before the folder, and behind it, whatever is listed first.
        let names = ["refs/heads/a", "refs/heads/z", "refs/tags/a"];
        let creates = names.map(|name| format!("create {name} {commit}\n"));
        repo.update_refs(creates.concat());
        for place in ["refs/heads/e", "logs/refs/e"] {
            let script = format!("{DEEP} {place}");
            let make = oracle::run_of("/bin/bash", repo.git_dir()).args(["-ec", &script]);
            make.run().ok();
        }
        let verify = ["refs", "verify", "--verbose"];
        let git = repo.git(verify).run();
        let (code, said) = checked(&repo, &verify);
        assert_eq!(code, git.code(), "{format}: {said}");
        // The other lines are the same. Of which length a path is too long differs by a byte, and Git shows no more
        // than its buffer holds.
        let git_said = String::from_utf8_lossy(&git.stderr).into_owned();
        let parts = |said: &str| -> (Vec<String>, Vec<String>) {
            let lines = said.lines().map(str::to_owned);
            lines.partition(|line| line.starts_with("warning: "))
        };
        let ((warnings, rest), (git_warnings, git_rest)) = (parts(&said), parts(&git_said));
        assert_eq!(rest, git_rest, "{format}");
        assert_eq!((warnings.len(), git_warnings.len()), (1, 1), "{format}");
        let warning = &warnings[0];
        assert!(
            warning.starts_with("warning: failed to stat '.git/refs/heads/e/e/"),
            "{warning}"
        );
        assert!(warning.ends_with("': File name too long"), "{warning}");

        let (code, said) = checked(&repo, &["inspect"]);
        assert_eq!(code, 0, "{format}: {said}");
        assert!(said.contains("refs: 3 loose, 0 packed"), "{format}: {said}");
        for place in ["refs/heads/e/", "logs/refs/e/"] {
            let is_told = |line: &str| line.starts_with("warning: ") && line.contains(place);
            assert!(said.lines().any(is_told), "{format}: {place}: {said}");
        }

        let before = repo.refs();
        let (code, said) = checked(&repo, &["refs", "migrate", "--ref-format=reftable"]);
        assert_eq!(code, 255, "{format}: {said}");
        assert!(
            said.contains("nothing was changed; move a folder"),
            "{format}: {said}"
        );
        assert_eq!(repo.refs(), before, "{format}");
    }
}

#[test]
fn a_check_goes_on_where_something_cannot_be_read() {
    for format in [Format::FILES_SHA1, Format::FILES_SHA256] {
        for (script, told) in [
            ("ln -s x refs/heads/x", "refs/heads/x"),
            (
                "mkdir -p logs/refs/heads; ln -s x logs/refs/heads/x",
                "logs/refs/heads/x",
            ),
            (&format!("{DEEP} refs/heads/e"), "File name too long"),
            (
                &format!("mkdir -p logs/refs; {DEEP} logs/refs/e"),
                "File name too long",
            ),
            (
                "rm -f packed-refs; ln -s packed-refs packed-refs",
                "packed-refs",
            ),
        ] {
            a_check_goes_on_beside(format, script, told);
        }
    }
}

for_every_format! {
    fn a_check_goes_on_where_replace_refs_lead_in_a_circle(format) {
        let repo = Repo::init(format);
        let commits = &repo.objects().commits;
        let (one, two) = (&commits[0], &commits[1]);
        repo.update_refs(format!(
            "create refs/heads/one {one}\ncreate refs/heads/two {two}\n\
             create refs/replace/{one} {two}\ncreate refs/replace/{two} {one}\n"
        ));
        for args in [&["refs", "verify", "--deep"][..], &["refs", "repair"]] {
            let (code, said) = checked(&repo, args);
            assert!([1, 2].contains(&code), "{args:?}: {code}: {said}");
            let told = said.matches("replace depth too high").count();
            assert!(told >= 2, "{args:?}: {said}");
        }
    }
}

for_every_format! {
    fn refs_are_migrated_where_replace_refs_lead_in_a_circle(format) {
        let repo = Repo::init(format);
        let objects = repo.objects();
        let (one, two) = (&objects.commits[0], &objects.commits[1]);
        repo.update_refs(format!(
            "create refs/heads/one {one}\ncreate refs/tags/one {one}\ncreate refs/tags/tag {}\n\
             create refs/replace/{one} {two}\ncreate refs/replace/{two} {one}\n",
            objects.tags[0].id
        ));
        let list = ["--no-replace-objects", "show-ref", "-d"];
        let before = repo.git(list).run().text();
        let to = match format.refs {
            RefFormat::Files => "--ref-format=reftable",
            RefFormat::Reftable => "--ref-format=files",
        };
        let (code, said) = checked(&repo, &["refs", "migrate", to]);
        assert_eq!((code, said.as_str()), (0, ""), "{format}");
        assert_eq!(repo.git(list).run().text(), before, "{format}");
        let ours = ours(repo.path(), &list);
        assert_eq!(ours.text(), before, "{format}");
    }
}

/// Writes the commit-graph file of a repository; returns its path and its content.
fn commit_graph(repo: &Repo) -> (PathBuf, Vec<u8>) {
    let write = ["commit-graph", "write", "--reachable"];
    repo.git(write).run().ok();
    let path = repo.git_dir().join("objects/info/commit-graph");
    let whole = fs::read(&path).expect("it can be read");
    (path, whole)
}

#[test]
fn a_damaged_commit_graph_file_does_not_keep_anybody() {
    for format in [Format::FILES_SHA1, Format::FILES_SHA256] {
        let repo = Repo::init(format);
        history(&repo);
        let (path, whole) = commit_graph(&repo);
        for seed in 0..SEEDS {
            let mut rng = Rng::new(seed);
            let mut content = whole.clone();
            // The header is looked at when the file is opened; what commits say is behind it.
            for _ in 0..1 + rng.below(4) {
                let at = content.len() / 3 + rng.below(content.len() * 2 / 3);
                content[at] ^= 1 << rng.below(8);
            }
            let _ = fs::remove_file(&path);
            fs::write(&path, content).expect("room");
            for option in ANSWERED.iter().chain(&UNANSWERED[..2]) {
                ours(
                    repo.path(),
                    &["for-each-ref", option, "refs/heads", "refs/tags"],
                );
            }
        }
    }
}

/// Every commit has the first one's place for its parents: two that lead back, in all ways.
#[test]
fn circles_of_a_commit_graph_file_end() {
    let repo = Repo::init(Format::FILES_SHA1);
    history(&repo);
    let (path, whole) = commit_graph(&repo);
    let data = chunk(&whole, b"CDAT");
    let count = 8;
    let options: Vec<&str> = ANSWERED
        .into_iter()
        .chain(UNANSWERED[..2].iter().copied())
        .collect();
    let mut answered = 0;
    for step in 1..count {
        for generation in [None, Some(0_u32), Some(7)] {
            let mut content = whole.clone();
            for at in 0..count {
                let commit = data + at * 36;
                let parent = u32::try_from((at + step) % count).expect("small");
                content[commit + 20..commit + 24].copy_from_slice(&parent.to_be_bytes());
                if let Some(generation) = generation {
                    let word = (generation << 2).to_be_bytes();
                    content[commit + 28..commit + 32].copy_from_slice(&word);
                }
            }
            let _ = fs::remove_file(&path);
            fs::write(&path, content).expect("room");
            for option in &options {
                let args = ["for-each-ref", option, "refs/heads", "refs/tags"];
                let out = ours(repo.path(), &args);
                // Where the circle itself is seen, that is said.
                let is_told = out.stderr.contains_str("no later than its parents");
                answered += usize::from(out.code() == 0 || is_told);
            }
        }
    }
    assert!(answered > 100, "{answered} answers");
}
