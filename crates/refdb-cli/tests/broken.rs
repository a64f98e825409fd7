//! Broken refs in a listing: told and left out, and so are symrefs that lead to them.

use std::fs;

use refdb_testkit::repo::Repo;
use refdb_testkit::{Format, oracle};

#[test]
fn a_listing_goes_on_behind_a_broken_ref() {
    for format in [Format::FILES_SHA1, Format::FILES_SHA256] {
        let repo = Repo::init(format);
        let commit = &repo.objects().commits[0];
        repo.update_refs(format!(
            "create refs/heads/main {commit}\ncreate refs/heads/zz {commit}\n"
        ));
        fs::write(repo.git_dir().join("refs/heads/broken"), "").expect("an empty ref");
        let target = "refs/heads/broken";
        repo.git(["symbolic-ref", "refs/heads/sym", target])
            .run()
            .ok();
        for list in [
            &["for-each-ref"][..],
            &["for-each-ref", "--format=%(refname)"],
        ] {
            let git = repo.git(list).run();
            let ours = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path())
                .args(list)
                .run();
            assert_eq!(ours.stdout, git.stdout, "{format}: {list:?}");
            assert_eq!(ours.stderr, git.stderr, "{format}: {list:?}");
            assert_eq!((ours.code(), git.code()), (0, 0), "{format}: {list:?}");
        }
    }
}
