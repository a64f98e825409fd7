//! What a program does wrong, or meets where nobody expects it, is told: nothing is written elsewhere, waited for
//! without end, or taken for absence.

use std::sync::{Arc, OnceLock};

use refdb::layout::Layout;
use refdb::options::{Committer, Identity};
use refdb::{Edit, ErrorKind, ObjectFormat, ObjectId, RefName, Store};
use refdb_testkit::repo::Repo;
use refdb_testkit::{for_every_format, ours};

use super::library::{commit, commit_edits, name};

for_every_format! {
    fn a_transaction_of_another_store_is_refused(format) {
        let repos = [Repo::init(format), Repo::init(format)];
        let [one, other] = [0, 1].map(|at: usize| ours::open(&repos[at].git_dir()));
        let edit = || Edit::update(name("refs/heads/new"), commit(&repos[0], 0));
        let mut transaction = other.store().transaction();
        transaction.add(edit()).expect("a good edit");
        let clone = one.store().clone();
        let mut own = clone.transaction();
        own.add(edit()).expect("a good edit");
        let mut group = one.store().group().expect("no hook").expect("no hook");
        let error = group.add(&transaction).expect_err("not of this store");
        assert_eq!(error.kind(), ErrorKind::Misuse);
        drop(group);
        let together = one.store().prepare_together([&own, &transaction]);
        assert_eq!(together.err().map(|error| error.kind()), Some(ErrorKind::Misuse));
        // A clone is the same store.
        let together = one.store().prepare_together([&own]).expect("of this store");
        let outcome = together.expect("nobody refuses it").commit().expect("it is free");
        assert!(outcome.afterwards.is_empty());
        assert_eq!(repos.map(|repo| repo.refs().len()), [1, 0]);
    }

    fn who_commits_while_he_is_asked_who_commits_is_told(format) {
        let repo = Repo::init(format);
        let opened = ours::open(&repo.git_dir());
        let (store, oid) = (Arc::new(OnceLock::<Store>::new()), commit(&repo, 0));
        let asked = Arc::clone(&store);
        let mut options = opened.store().options().clone();
        options.committer = Committer::lazy(move || {
            let store = asked.get().expect("it was set");
            let edit = Edit::update(name("refs/heads/inner"), oid);
            let error = commit_edits(store, [edit]).expect_err("it would wait for itself");
            assert_eq!(error.kind(), ErrorKind::Misuse);
            Ok(Identity { name: "A".into(), ..Identity::default() })
        });
        let system = Arc::clone(opened.system());
        let layout = Layout::main(repo.git_dir());
        let refs = opened.ref_format();
        let made = Store::open(system, layout, refs, Arc::clone(opened.odb()) as _, options);
        let made = store.get_or_init(|| made.expect("a store"));
        for text in ["refs/heads/outer", "refs/heads/next"] {
            commit_edits(made, [Edit::update(name(text), oid)]).expect("it is free");
        }
        assert_eq!(repo.refs().len(), 2);
    }

    fn no_entry_of_another_hash_is_written(format) {
        let repo = Repo::init(format);
        let opened = ours::open(&repo.git_dir());
        let other = match opened.object_format() {
            ObjectFormat::Sha1 => ObjectFormat::Sha256,
            ObjectFormat::Sha256 => ObjectFormat::Sha1,
        };
        let (good, bad) = (commit(&repo, 0), ObjectId::null(other));
        for (old, new) in [(good, bad), (bad, good)] {
            let mut transaction = opened.store().transaction();
            let added = transaction.add(Edit::log(name("refs/heads/main"), old, new));
            assert_eq!(added.map_err(|error| error.kind()), Err(ErrorKind::Misuse));
        }
        for text in ["refs/heads/a.lock", "FETCH_HEAD"] {
            let made = opened.store().create_log(RefName::lax(text).expect("a lax name"));
            let kind = made.map(drop).map_err(|error| error.kind());
            assert_eq!(kind, Err(ErrorKind::InvalidName), "{text}");
        }
    }

    fn a_ref_may_have_the_name_of_all_branches(format) {
        let repo = Repo::init(format);
        let opened = ours::open(&repo.git_dir());
        let oid = commit(&repo, 0);
        let edit = |text| Edit::update(name(text), oid);
        commit_edits(opened.store(), [edit("refs/heads")]).expect("there is no branch");
        commit_edits(opened.store(), [edit("refs/tags/one"), edit("refs/tags/two")]).expect("they are free");
        assert_eq!(repo.refs().len(), 3);
        commit_edits(opened.store(), [Edit::delete(name("refs/heads"))]).expect("it is there");
        commit_edits(opened.store(), [edit("refs/heads/main")]).expect("its place is free");
        // HEAD is listed by now.
        assert_eq!(repo.refs().len(), 4);
    }

    fn a_repository_that_is_gone_is_not_an_empty_one(format) {
        let repo = Repo::init(format);
        let opened = ours::open(&repo.git_dir());
        commit_edits(opened.store(), [Edit::update(name("refs/heads/main"), commit(&repo, 0))]).expect("it is free");
        std::fs::rename(repo.git_dir(), repo.path().join("away")).expect("it is there");
        for _ in 0..2 {
            let missing = opened.store().read(name("refs/heads/none"));
            let listed = opened.store().refs().and_then(|mut refs| refs.next().map(|next| next.is_some()));
            // Where it is kept open, what is there is still found.
            assert!(missing.is_err());
            assert_ne!(listed.ok(), Some(false));
        }
    }
}
