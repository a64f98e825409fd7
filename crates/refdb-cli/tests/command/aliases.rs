//! One ref by two names, in a repository with worktrees: never both of `n` and `n/x`, and no update that is
//! dropped without a word.

use bstr::ByteSlice;
use refdb_testkit::oracle;
use refdb_testkit::repo::Repo;
use refdb_testkit::{Format, RefFormat, for_every_format};

/// Two edits in the worktree `w`, of which the second names the ref of the first, or one below it.
const IN_WORKTREE: [&str; 4] = [
    "create refs/bisect/n ONE|create worktrees/w/refs/bisect/n TWO",
    "create refs/bisect/n ONE|create worktrees/w/refs/bisect/n/x TWO",
    "create worktrees/w/refs/worktree/n/x ONE|create refs/worktree/n TWO",
    "update refs/bisect/b ONE|update worktrees/w/refs/bisect/b TWO",
];

for_every_format! {
    fn a_ref_has_one_value_by_whatever_name(format) {
        for edits in IN_WORKTREE {
            for together in [true, false] {
                let repo = Repo::init(format);
                let [one, two] = [0, 1].map(|at| repo.objects().commits[at].clone());
                let worktree = repo.worktree("w");
                worktree.git(["update-ref", "refs/bisect/b", &one]).run().ok();
                let edits = edits.replace("ONE", &one).replace("TWO", &two);
                let (first, second) = edits.split_once('|').expect("two edits");
                let input = match together {
                    true => format!("{first}\n{second}\n"),
                    false => format!("start\n{first}\ncommit\nstart\n{second}\ncommit\n"),
                };
                let ours = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), &worktree.path);
                let out = ours.args(["update-ref", "--stdin"]).stdin(input).run();
                let said = String::from_utf8_lossy(&out.stderr).into_owned();
                // An update of what the first one has made is right; else the second one is refused.
                let is_update = second.starts_with("update") && !together;
                assert_eq!(out.status.success(), is_update, "{edits}: {said}");
                assert!(!said.contains("in part") && !said.contains("misuse"), "{edits}: {said}");
                assert!(!repo.git_dir().join("refdb.journal").exists(), "{edits}: {said}");
                let deep = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path());
                deep.args(["refs", "verify", "--deep"]).run().ok();
                let made = first.split(' ').nth(1).expect("a name");
                let found = worktree.git(["rev-parse", "-q", "--verify", made]).run();
                let expected = match (together, is_update) {
                    (false, true) => Some(&two),
                    (false, false) => Some(&one),
                    (true, _) => made.ends_with("/b").then_some(&one),
                };
                let found = String::from_utf8_lossy(&found.stdout).trim().to_owned();
                assert_eq!(found, expected.map_or("", |oid| oid.as_str()), "{edits}: {said}");
            }
        }
    }
}

/// The name of a worktree as a whole is that of no ref: one edit is refused, not the whole batch.
#[test]
fn a_worktree_as_a_whole_is_no_ref() {
    for format in [
        Format::FILES_SHA1,
        Format::REFTABLE_SHA1,
        Format::REFTABLE_SHA256,
    ] {
        let repo = Repo::init(format);
        let commit = &repo.objects().commits[0];
        repo.update_refs(format!("create refs/heads/main {commit}\n"));
        repo.worktree("w");
        for many in [0, 200] {
            let more = (0..many).map(|at| format!("create refs/heads/n/{at:03} {commit}\n"));
            let input = format!(
                "create refs/heads/m{many} {commit}\ncreate worktrees/w {commit}\n{}",
                more.collect::<String>()
            );
            let run = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path());
            let out = run
                .args(["update-ref", "--stdin", "--batch-updates"])
                .stdin(input)
                .run();
            let told = format!("{}{}", out.stdout.as_bstr(), out.stderr.as_bstr());
            assert!(told.contains("worktrees/w"), "{format}: {told}");
            assert!(!told.contains("misuse"), "{format}: {told}");
            if format.refs == RefFormat::Reftable {
                out.ok();
                let made = repo
                    .refs()
                    .iter()
                    .filter(|listed| {
                        listed.name.starts_with(b"refs/heads/n/")
                            || listed.name == format!("refs/heads/m{many}").as_bytes()
                    })
                    .count();
                assert_eq!(made, 1 + many);
            }
        }
    }
}
