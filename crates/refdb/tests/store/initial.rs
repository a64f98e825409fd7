//! The first transaction of an empty store, as a clone or a migration makes it.

use std::fs;

use refdb::{Edit, Expected, ObjectId, RefName};
use refdb_testkit::repo::Repo;
use refdb_testkit::{RefFormat, for_every_format, ours};

for_every_format! {
    fn everything_arrives(format) {
        let repo = Repo::init(format);
        let objects = repo.objects();
        let repository = ours::open(&repo.git_dir());
        let oid = |hex: &str| ObjectId::from_hex(hex.as_bytes()).expect("an id");
        let names: Vec<String> =
            (0..500).map(|at| format!("refs/remotes/origin/team-{}/topic-{at}", at % 7)).collect();
        let name = |name: &'static str| RefName::new(name).expect("a name");
        let mut transaction = repository.store().transaction().initial();
        let mut add = |edit: Edit<'static>| transaction.add(edit).expect("an edit");
        for (at, name) in names.iter().enumerate() {
            let name = RefName::new(name).expect("a name");
            add(Edit::update(name, oid(&objects.commits[at])).into_owned());
        }
        add(Edit::update(name("refs/tags/v1"), oid(&objects.tags[0].id)));
        add(Edit::update(name("refs/bisect/bad"), oid(&objects.commits[3])));
        add(Edit::update(name("ORIG_HEAD"), oid(&objects.commits[4])));
        let head = Edit::symbolic(name("refs/remotes/origin/HEAD"), name("refs/tags/v1"));
        add(head.expecting(Expected::Missing));
        let outcome = transaction.commit().expect("a commit");
        assert!(outcome.rejections.is_empty() && outcome.afterwards.is_empty());

        let refs = repo.refs();
        let found = |name: &str| refs.iter().find(|listed| listed.name == name);
        for (at, name) in names.iter().enumerate() {
            assert_eq!(found(name).map(|listed| &listed.id), Some(&objects.commits[at]), "{name}");
        }
        assert_eq!(found("refs/bisect/bad").map(|l| &l.id), Some(&objects.commits[3]));
        assert_eq!(found("ORIG_HEAD").map(|l| &l.id), Some(&objects.commits[4]));
        let tag = found("refs/tags/v1").expect("a tag");
        assert_eq!(tag.peeled.as_ref(), Some(&objects.tags[0].peeled));
        assert!(found("refs/remotes/origin/HEAD").is_some_and(|l| l.symref.is_some()));
        repo.assert_sound();
        if format.refs == RefFormat::Files {
            // One file and one rename for all; what belongs to a worktree is never packed.
            let packed = fs::read_to_string(repo.git_dir().join("packed-refs")).expect("packed");
            assert!(packed.contains(&names[499]) && packed.contains("refs/tags/v1"));
            assert!(!packed.contains("refs/bisect") && !packed.contains("ORIG_HEAD"));
            assert!(repo.git_dir().join("refs/bisect/bad").exists());
        }
    }

    fn names_that_conflict_within_it_are_refused(format) {
        let repo = Repo::init(format);
        let repository = ours::open(&repo.git_dir());
        let oid = ObjectId::from_hex(repo.objects().commits[0].as_bytes()).expect("an id");
        let mut transaction = repository.store().transaction().initial();
        for name in ["refs/heads/a/b", "refs/heads/a"] {
            transaction.add(Edit::update(RefName::new(name).expect("a name"), oid)).expect("added");
        }
        let error = transaction.commit().expect_err("a conflict");
        assert!(error.to_string().contains("at the same time"), "{error}");
        assert!(repo.refs().is_empty());
    }
}
