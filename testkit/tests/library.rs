//! What a program that uses the library relies on, in every format.

use refdb::{Edit, ErrorKind, ObjectId, RefName, RefNameBuf, Store};
use refdb_testkit::repo::Repo;
use refdb_testkit::{for_every_format, ours};

fn name(text: &str) -> RefName<'_> {
    RefName::new(text).expect("a good name")
}

/// Returns a commit of the repository, by its place.
fn commit(repo: &Repo, at: usize) -> ObjectId {
    ObjectId::from_hex(repo.objects().commits[at].as_bytes()).expect("an id")
}

fn commit_edits<'e>(store: &Store, edits: impl IntoIterator<Item = Edit<'e>>) -> refdb::Result<()> {
    let mut transaction = store.transaction();
    for edit in edits {
        transaction.add(edit)?;
    }
    let outcome = transaction.commit()?;
    assert!(
        outcome.afterwards.is_empty() && outcome.rejections.is_empty(),
        "{outcome:?}"
    );
    Ok(())
}

/// Compiles if a value may be handed to another thread.
fn is_send<T: Send>() {}

/// Compiles if threads may share a value.
fn is_shared<T: Send + Sync>() {}

#[test]
fn what_is_open_can_be_handed_to_another_thread() {
    is_shared::<Store>();
    is_shared::<refdb_git::Repository>();
    is_shared::<refdb::Options>();
    is_shared::<refdb::Error>();
    is_shared::<refdb::Outcome>();
    is_shared::<refdb::Ref>();
    is_shared::<refdb::LogEntry>();
    is_shared::<Edit<'_>>();
    is_send::<refdb::Transaction<'_>>();
    is_send::<refdb::Prepared<'_>>();
    is_send::<refdb::Group<'_>>();
    is_send::<refdb::Refs>();
    is_send::<refdb::Part<'_>>();
}

#[test]
fn names_are_proved() {
    for (text, is_good, is_lax) in [
        ("refs/heads/main", true, true),
        ("HEAD", true, true),
        ("main", true, true),
        ("refs/heads/two..dots", false, true),
        ("refs/heads/two\nlines", false, true),
        ("refs/heads/../x", false, false),
        ("../config", false, false),
        ("refs/heads/", false, false),
        ("/etc/passwd", false, false),
        ("a b", false, false),
        ("", false, false),
    ] {
        assert_eq!(RefName::new(text).is_ok(), is_good, "{text:?}");
        assert_eq!(RefNameBuf::new(text).is_ok(), is_good, "{text:?}");
        assert_eq!(RefName::lax(text).is_ok(), is_lax, "{text:?}");
        assert_eq!(RefNameBuf::lax(text).is_ok(), is_lax, "{text:?}");
    }
}

for_every_format! {
    fn an_edit_is_checked_by_the_rule_of_what_it_does(format) {
        let repo = Repo::init(format);
        let repository = ours::open(&repo.git_dir());
        let store = repository.store();
        let oid = commit(&repo, 0);
        let bad = RefName::lax("refs/heads/two..dots").expect("a safe name");
        let refused = |edit| commit_edits(store, [edit]).expect_err("refused").kind();
        assert_eq!(refused(Edit::update(bad, oid)), ErrorKind::InvalidName);
        commit_edits(store, [Edit::delete(bad)]).expect("there is no such ref");
        let outside = bstr::BStr::new("refs/heads/../../config");
        assert_eq!(refused(Edit::delete(outside)), ErrorKind::InvalidName);
        assert_eq!(refused(Edit::symbolic(RefName::HEAD, outside)), ErrorKind::InvalidName);
        let good = bstr::BStr::new("refs/heads/good");
        commit_edits(store, [Edit::update(good, oid)]).expect("a good name");
        assert!(store.read(name("refs/heads/good")).expect("read").is_some());
    }

    fn below_a_ref_there_is_none(format) {
        let repo = Repo::init(format);
        let repository = ours::open(&repo.git_dir());
        let store = repository.store();
        let refs = ["refs/heads/a", "refs/bisect/a", "refs/tags/a"];
        commit_edits(store, refs.map(|text| Edit::update(name(text), commit(&repo, 0))))
            .expect("committed");
        repo.git(["pack-refs", "--include", "refs/tags/*"]).run().ok();
        for text in refs.into_iter().chain(["HEAD"]) {
            let below = format!("{text}/b");
            let found = store.read(name(&below)).expect("absence is no failure");
            assert_eq!(found, None, "{below}");
            assert_eq!(store.resolve(name(&below)).expect("nor here"), None, "{below}");
            assert_eq!(store.log(name(&below), refdb::LogOrder::OldestFirst).expect("nor here"), None);
        }
    }
}
