//! The harness for JGit, and what is known of JGit that tests of refdb lean on.

use refdb::LogOrder::NewestFirst;
use refdb_testkit::clone_like::clone_like;
use refdb_testkit::jgit::{self, JgitUpdate};
use refdb_testkit::model::{Edit, Transaction};
use refdb_testkit::objects::Objects;
use refdb_testkit::oracle::TIME;
use refdb_testkit::repo::Repo;
use refdb_testkit::{Format, ours};

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
    let zero = repo.format().zero();
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

/// Refs enough for indexes, as a batch of JGit.
fn many(objects: &Objects) -> Vec<JgitUpdate> {
    let zero = "0".repeat(40);
    (0..3000)
        .map(|at| JgitUpdate {
            name: format!("refs/heads/team-{}/topic-{at}", at % 7),
            old: zero.clone(),
            new: objects.commits[at % objects.commits.len()].clone(),
        })
        .collect()
}

#[test]
fn refdb_reads_what_jgit_wrote() {
    let repo = repo();
    let objects = repo.objects();
    let batch = many(objects);
    let results = jgit::update(&repo.git_dir(), "by JGit", &batch);
    assert!(results.iter().all(|(_, result)| result == "OK"));
    for step in ["written", "compacted"] {
        let repository = ours::open(&repo.git_dir());
        let store = repository.store();
        let found = ours::state(store);
        let difference = repo.state().difference(&found);
        assert!(
            difference.is_empty(),
            "{step}: - Git, + refdb:\n{difference}"
        );
        assert_eq!(found.refs.len(), batch.len() + 4);
        let id = &objects.commits[17];
        let oid = refdb::ObjectId::from_hex(id.as_bytes()).expect("an id");
        let by_id = store.refs_by_oid(oid).expect("an answer");
        let expected: Vec<&str> = {
            let mut names: Vec<&str> = batch
                .iter()
                .filter(|u| u.new == *id)
                .map(|u| u.name.as_str())
                .collect();
            names.sort_unstable();
            names
        };
        let names: Vec<String> = by_id.iter().map(|found| found.name.to_string()).collect();
        assert_eq!(names, expected, "{step}");
        let log = store.log(
            refdb::RefName::new(&expected[0]).expect("a good name"),
            NewestFirst,
        );
        let log = log.expect("a reflog").expect("JGit logs branches");
        assert_eq!(log[0].message, "by JGit", "{step}");
        jgit::compact(&repo.git_dir());
    }
    // refdb goes on where JGit left off, and JGit after it.
    let repository = ours::open(&repo.git_dir());
    let delete = Transaction::of(
        batch
            .iter()
            .map(|update| Edit::delete(update.name.as_str())),
    );
    assert_eq!(ours::apply(repository.store(), &delete).expect("done"), []);
    let left: Vec<String> = jgit::list(&repo.git_dir())
        .into_iter()
        .map(|r| r.name)
        .collect();
    assert_eq!(
        left,
        ["HEAD", "refs/heads/main", "refs/heads/side", "refs/tags/v1"]
    );
}

#[test]
fn jgit_reads_what_refdb_wrote() {
    let repo = Repo::init(Format::REFTABLE_SHA1);
    let objects = repo.objects();
    let repository = ours::open(&repo.git_dir());
    let mut creates: Vec<Edit> = many(objects)
        .into_iter()
        .map(|update| Edit::create(update.name, update.new))
        .collect();
    for (at, tag) in objects.tags.iter().enumerate() {
        creates.push(Edit::create(format!("refs/tags/v{at}"), tag.id.as_str()));
    }
    creates.push(Edit::create("refs/heads/main", objects.commits[0].as_str()));
    let mut transaction = Transaction::of(creates);
    transaction.message = "by refdb".into();
    assert_eq!(
        ours::apply(repository.store(), &transaction).expect("done"),
        []
    );
    for step in ["written", "compacted"] {
        let refs = jgit::list(&repo.git_dir());
        let expected = repo.refs();
        assert_eq!(refs.len(), expected.len(), "{step}");
        for (theirs, gits) in refs.iter().zip(&expected) {
            assert_eq!(theirs.name, gits.name.to_string(), "{step}");
            if theirs.target.is_none() {
                assert_eq!(theirs.id.as_ref(), Some(&gits.id), "{step}: {}", gits.name);
                assert_eq!(theirs.peeled, gits.peeled, "{step}: {}", gits.name);
            }
        }
        let id = &objects.commits[17];
        let mut found = jgit::find(&repo.git_dir(), id);
        found.retain(|name| !name.ends_with("HEAD"));
        // A tag points at what it peels to as well.
        let pointing = expected
            .iter()
            .filter(|gits| gits.id == *id || gits.peeled.as_ref() == Some(id));
        assert_eq!(
            found,
            pointing
                .map(|gits| gits.name.to_string())
                .collect::<Vec<_>>(),
            "{step}"
        );
        assert_eq!(
            jgit::log(&repo.git_dir(), "refs/heads/main")[0].message,
            "by refdb",
            "{step}"
        );
        repository
            .store()
            .optimize(&refdb::Optimize::default())
            .expect("an optimized store");
    }
}
