//! The harness for JGit, and what is known of JGit that tests of refdb lean on.

use refdb_testkit::Format;
use refdb_testkit::clone_like::clone_like;
use refdb_testkit::jgit::{self, JgitUpdate};
use refdb_testkit::oracle::TIME;
use refdb_testkit::repo::Repo;

/// Makes a stack with branches, an annotated tag, a symref and reflogs.
fn repo() -> Repo {
    let repo = Repo::init(Format::REFTABLE_SHA1);
    let objects = repo.objects();
    repo.update_refs(format!(
        "create refs/heads/main {}\ncreate refs/heads/side {}\ncreate refs/tags/v1 {}\n",
        objects.commits[0], objects.commits[1], objects.tags[5].id
    ));
    let update = [
        "update-ref",
        "-m",
        "moved on",
        "refs/heads/side",
        &objects.commits[0],
    ];
    repo.git(update).run().ok();
    repo
}

#[test]
fn jgit_reads_what_git_wrote() {
    let repo = repo();
    let objects = repo.objects();
    let refs = jgit::list(&repo.git_dir());
    let names: Vec<&str> = refs.iter().map(|r| r.name.as_str()).collect();
    assert_eq!(
        names,
        ["HEAD", "refs/heads/main", "refs/heads/side", "refs/tags/v1"]
    );
    assert_eq!(refs[0].target.as_deref(), Some("refs/heads/main"));
    assert_eq!(refs[2].id.as_ref(), Some(&objects.commits[0]));
    assert_eq!(refs[3].id.as_ref(), Some(&objects.tags[5].id));
    assert_eq!(refs[3].peeled.as_ref(), Some(&objects.tags[5].peeled));
    let log = jgit::log(&repo.git_dir(), "refs/heads/side");
    assert_eq!(log.len(), 2);
    assert_eq!(log[0].old, objects.commits[1]);
    assert_eq!(log[0].new, objects.commits[0]);
    assert_eq!(log[0].message, "moved on");
    assert_eq!(log[0].time, TIME);
    // Git stores +0230 as 230, and JGit takes it for minutes.
    assert_eq!(log[0].zone_minutes, 230);
}

#[test]
fn jgit_finds_refs_by_their_object() {
    // So many that the tables have an object index.
    let clone = clone_like(Format::REFTABLE_SHA1, 3000);
    for id in clone.refs.values().step_by(1000) {
        let mut found = jgit::find(&clone.repo.git_dir(), id);
        // Symrefs to one of them are found with it, which is not in question here.
        found.retain(|name| !name.ends_with("HEAD"));
        let pointing = clone.refs.iter().filter(|(_, value)| *value == id);
        assert_eq!(
            found,
            pointing.map(|(name, _)| name.clone()).collect::<Vec<_>>()
        );
    }
}

#[test]
fn git_reads_what_jgit_wrote_and_compacted() {
    let repo = repo();
    let objects = repo.objects();
    let zero = repo.format().objects.zero();
    let update = |name: &str, old: &str, new: &str| JgitUpdate {
        name: name.to_owned(),
        old: old.to_owned(),
        new: new.to_owned(),
    };
    let [one, two] = [&objects.commits[0], &objects.commits[2]];
    let batch = [
        update("refs/heads/new/branch", &zero, two),
        update("refs/heads/main", one, two),
        update("refs/heads/side", one, &zero),
    ];
    let results = jgit::update(&repo.git_dir(), "by JGit", &batch);
    assert!(
        results.iter().all(|(_, result)| result == "OK"),
        "{results:?}"
    );
    for _ in 0..2 {
        let refs = repo.refs();
        let names: Vec<String> = refs.iter().map(|r| r.name.to_string()).collect();
        assert_eq!(
            names,
            [
                "HEAD",
                "refs/heads/main",
                "refs/heads/new/branch",
                "refs/tags/v1"
            ]
        );
        assert_eq!(refs[1].id, *two);
        assert_eq!(repo.state().log("refs/heads/main")[1].message, "by JGit");
        jgit::compact(&repo.git_dir());
    }
}

#[test]
fn a_batch_of_jgit_with_a_wrong_old_value_changes_nothing() {
    let repo = repo();
    let before = repo.state();
    let [one, two] = [&repo.objects().commits[1], &repo.objects().commits[2]];
    let wrong = JgitUpdate {
        name: "refs/heads/main".to_owned(),
        old: one.to_owned(),
        new: two.to_owned(),
    };
    let results = jgit::update(&repo.git_dir(), "by JGit", &[wrong]);
    assert_ne!(results[0].1, "OK");
    assert_eq!(repo.state(), before);
}
