//! A repository like a large clone, made by Git: refdb lists it as Git does, writes to it, and
//! Git goes on with what refdb wrote.

use bstr::ByteSlice;
use refdb_testkit::clone_like::{LARGE, clone_like};
use refdb_testkit::for_every_format;
use refdb_testkit::oracle::{self, GitRun};
use refdb_testkit::repo::Repo;

const LIST: [&str; 3] = [
    "for-each-ref",
    "--include-root-refs",
    "--format=%(objectname) %(refname) %(symref) %(*objectname)",
];

fn refdb(repo: &Repo) -> GitRun {
    oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path())
}

/// Lists with both programs and compares every byte.
#[track_caller]
fn assert_same_listing(repo: &Repo, when: &str) {
    let expected = repo.git(LIST).run().ok();
    let actual = refdb(repo).args(LIST).run().ok();
    if expected == actual {
        return;
    }
    let pair = expected
        .lines()
        .zip(actual.lines())
        .find(|(git, ours)| git != ours);
    let (lines, ours) = (expected.lines().count(), actual.lines().count());
    match pair {
        Some((git, ours)) => panic!(
            "{when}: Git {:?}, refdb {:?}",
            git.as_bstr(),
            ours.as_bstr()
        ),
        None => panic!("{when}: Git lists {lines} refs, refdb {ours}"),
    }
}

for_every_format! {
    fn both_programs_list_and_write_the_same(format) {
        let clone = clone_like(format, LARGE);
        let repo = &clone.repo;
        assert_same_listing(repo, "as Git made it");

        // refdb writes: every tenth ref moves, a thousand go, a thousand come.
        let (commit, tag) = (&clone.objects.commits[7], &clone.objects.tags[3].id);
        let mut script = String::new();
        for (at, (name, id)) in clone.refs.iter().enumerate() {
            match at {
                at if at % 97 == 5 && name != "refs/heads/main" => {
                    script.push_str(&format!("delete {name} {id}\n"));
                }
                at if at % 10 == 0 => script.push_str(&format!("update {name} {commit} {id}\n")),
                _ => {}
            }
        }
        for at in 0..1000 {
            let id = if at % 5 == 0 { tag } else { commit };
            script.push_str(&format!("create refs/tags/added/{}/t{at} {id}\n", at % 13));
        }
        refdb(repo).args(["update-ref", "-m", "by refdb", "--stdin"]).stdin(script).run().ok();
        let head = ["symbolic-ref", "-m", "switch", "HEAD", "refs/heads/main"];
        refdb(repo).args(head).run().ok();
        assert_same_listing(repo, "after refdb wrote");
        repo.assert_sound();
        repo.git(["fsck", "--connectivity-only"]).run().ok();

        // Git goes on: it packs, collects garbage, writes; refdb goes on after that.
        repo.git(["pack-refs", "--all"]).run().ok();
        assert_same_listing(repo, "after git pack-refs");
        // Among the objects that no ref needs is a tag that lies, on which gc would stumble if it
        // kept them.
        repo.git(["gc", "--quiet", "--prune=now"]).run().ok();
        assert_same_listing(repo, "after git gc");
        repo.git(["fsck"]).run().ok();
        repo.update_refs(format!("create refs/heads/by-git {commit}\n"));
        refdb(repo).args(["update-ref", "refs/heads/by-refdb", commit, ""]).run().ok();
        refdb(repo).args(["pack-refs", "--all"]).run().ok();
        assert_same_listing(repo, "after refdb pack-refs");
        repo.assert_sound();
    }
}
