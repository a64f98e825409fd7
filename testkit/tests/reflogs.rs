//! Reflogs by the library: entries without a change of the ref, several for one ref, long ones, and
//! both orders of reading.

use refdb::{Edit, LogOrder, ObjectId, RefName, Signature};
use refdb_testkit::repo::Repo;
use refdb_testkit::{for_every_format, ours};

fn name(name: &str) -> RefName<'_> {
    RefName::new(name).expect("a name")
}

for_every_format! {
    fn entries_alone(format) {
        let repo = Repo::init(format);
        let oids: Vec<ObjectId> = repo.objects().commits[..20]
            .iter()
            .map(|hex| ObjectId::from_hex(hex.as_bytes()).expect("an id"))
            .collect();
        let repository = ours::open(&repo.git_dir());
        let store = repository.store();
        let topic = name("refs/heads/topic");
        let mut transaction = store.transaction();
        transaction.add(Edit::update(topic, oids[0]).message(b"first")).expect("added");
        let outcome = transaction.commit().expect("a commit");
        assert!(outcome.afterwards.is_empty());

        // Several entries of one reflog in one transaction, by others and at other times, and one of
        // a ref that does not exist.
        let mut transaction = store.transaction();
        for at in 1..10 {
            let who = Signature {
                name: format!("Writer {at}").into(),
                email: "w@example.org".into(),
                time: 1_600_000_000 + at as u64,
                zone: -330,
            };
            let message = format!("entry {at}");
            let edit = Edit::log(topic, oids[at - 1], oids[at]).signed(who);
            transaction.add(edit.message(message.into_bytes())).expect("added");
        }
        transaction.add(Edit::log(name("refs/heads/ghost"), oids[1], oids[2])).expect("added");
        let outcome = transaction.commit().expect("a commit");
        assert!(outcome.afterwards.is_empty());

        let git = repo.state();
        assert_eq!(git.refs.len(), 2, "HEAD and the branch, and no ghost");
        let log = git.log("refs/heads/topic");
        assert_eq!(log.len(), 10);
        for (at, entry) in log.iter().enumerate().skip(1) {
            assert_eq!(entry.old, oids[at - 1].to_string());
            assert_eq!(entry.new, oids[at].to_string());
            assert_eq!(entry.message, format!("entry {at}"));
            assert_eq!(entry.committer, format!("Writer {at} <w@example.org>"));
            assert_eq!((entry.time, entry.zone.as_str()), (1_600_000_000 + at as u64, "-0330"));
        }
        assert_eq!(git.log("refs/heads/ghost").len(), 1);
        assert!(git.difference(&ours::state(store)).is_empty());
    }

    fn a_long_reflog_is_read_from_both_ends(format) {
        let repo = Repo::init(format);
        let repository = ours::open(&repo.git_dir());
        let store = repository.store();
        let commits = &repo.objects().commits;
        let oid = |at: usize| {
            ObjectId::from_hex(commits[at % commits.len()].as_bytes()).expect("an id")
        };
        let topic = name("refs/heads/topic");
        let mut transaction = store.transaction();
        for at in 0..5000 {
            let message = format!("entry {at}").into_bytes();
            transaction.add(Edit::log(topic, oid(at), oid(at + 1)).message(message)).expect("added");
        }
        let outcome = transaction.commit().expect("a commit");
        assert!(outcome.afterwards.is_empty());
        let read = |order, count| {
            let mut messages = Vec::new();
            let found = store.for_each_log_entry(topic, order, |entry| {
                messages.push(entry.message.to_string());
                Ok(messages.len() < count)
            });
            assert!(found.expect("a reflog"), "the reflog exists");
            messages
        };
        let expected: Vec<String> = (0..5000).map(|at| format!("entry {at}")).collect();
        assert_eq!(read(LogOrder::OldestFirst, usize::MAX), expected);
        assert_eq!(read(LogOrder::OldestFirst, 3), expected[..3]);
        assert_eq!(read(LogOrder::NewestFirst, 2), ["entry 4999", "entry 4998"]);
        let last = repo.git(["rev-parse", "refs/heads/topic@{0}"]).run();
        assert_ne!(last.code(), 0, "entries make no ref");
        assert_eq!(repo.state().log("refs/heads/topic").len(), 5000);
    }
}
