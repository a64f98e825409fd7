//! What a program that uses the library relies on, in every format.

use refdb::{
    Edit, ErrorKind, Expected, ObjectId, Reason, Ref, RefName, RefNameBuf, Signature, Store,
};
use refdb_testkit::generate::Generator;
use refdb_testkit::model::{Model, Rules};
use refdb_testkit::repo::Repo;
use refdb_testkit::state::LogEntry;
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

    fn a_ref_that_must_exist_is_one_that_the_model_knows(format) {
        const NAMES: [&str; 9] = [
            "HEAD", "ORIG_HEAD", "refs/heads/main", "refs/heads/side", "refs/heads/a",
            "refs/heads/a/b", "refs/heads/a/b/c", "refs/heads/sym", "refs/tags/t",
        ];
        let (mut there, mut missing, mut dangling) = (0, 0, 0);
        for seed in 0..60 {
            let repo = Repo::init(format);
            let repository = ours::open(&repo.git_dir());
            let store = repository.store();
            let mut model = Model::new(Rules::new(format));
            let mut generator = Generator::new(seed, format);
            for _ in 0..3 {
                let transaction = generator.next(&model);
                // What the model is not sure of is not what this is about.
                if model.mistakes(&transaction).is_empty() {
                    let _ = ours::apply(store, &transaction);
                    model.apply(&transaction);
                }
            }
            if seed % 2 == 0 {
                store.optimize(&refdb::Optimize::default()).expect("packed");
            }
            assert_eq!(model.state().difference(&repo.state()), "", "seed {seed}");
            for text in NAMES {
                let stands = model.state().refs.contains_key(bstr::BStr::new(text));
                let leads = model.resolve(text.into()).is_some();
                dangling += usize::from(stands && !leads);
                for (follows, exists) in [(true, leads), (false, stands)] {
                    let case = format!("seed {seed}: {text}, followed {follows}");
                    let verify = |expected| {
                        let edit = Edit::verify(name(text), expected);
                        commit_edits(store, [if follows { edit } else { edit.no_deref() }])
                    };
                    match verify(Expected::Exists) {
                        Ok(()) => assert!(exists, "{case}"),
                        Err(error) => {
                            let rejection = error.rejection().unwrap_or_else(|| panic!("{error}"));
                            // A chain may be too long to be followed.
                            let is_known = [Reason::NonexistentRef, Reason::Generic]
                                .contains(&rejection.reason);
                            assert!(!exists && is_known, "{case}: {rejection:?}");
                        }
                    }
                    assert!(!exists || verify(Expected::Missing).is_err(), "{case}");
                    there += usize::from(exists);
                    missing += usize::from(!exists);
                }
            }
        }
        assert!(there > 100 && missing > 100 && dangling > 5, "{there} {missing} {dangling}");
    }

    fn an_edit_of_a_ref_that_must_exist_does_what_it_says_or_nothing(format) {
        let repo = Repo::init(format);
        let repository = ours::open(&repo.git_dir());
        let store = repository.store();
        let (old, new) = (commit(&repo, 0), commit(&repo, 1));
        let there = name("refs/heads/there");
        commit_edits(store, [Edit::update(there, old)]).expect("made");
        let before = repo.state();
        let missing = ["refs/heads/missing", "refs/heads/there/below", "HEAD"];
        for text in missing {
            for edit in [
                Edit::update(name(text), new),
                Edit::delete(name(text)),
                Edit::symbolic(name(text), there),
            ] {
                let edits = [Edit::update(there, new), edit.expecting(Expected::Exists)];
                let error = commit_edits(store, edits).expect_err("it is missing");
                let reason = error.rejection().map(|rejection| rejection.reason);
                assert_eq!(reason, Some(Reason::NonexistentRef), "{text}: {error}");
            }
        }
        assert_eq!(before.difference(&repo.state()), "");
        // HEAD is there, though it leads nowhere.
        let head = Edit::symbolic(RefName::HEAD, there).no_deref();
        let update = Edit::update(there, new).expecting(Expected::Exists);
        commit_edits(store, [head.expecting(Expected::Exists), update]).expect("both are there");
        let by_head = Edit::update(RefName::HEAD, old).expecting(Expected::Exists);
        commit_edits(store, [by_head]).expect("it leads to one");
        assert_eq!(repo.git(["rev-parse", "refs/heads/there"]).run().text(), old.to_string());
    }

    fn a_transaction_says_who_commits_and_why(format) {
        let repo = Repo::init(format);
        let repository = ours::open(&repo.git_dir());
        let store = repository.store();
        let (old, new) = (commit(&repo, 0), commit(&repo, 1));
        let who = |name: &str| Signature {
            name: name.into(),
            email: "someone@example.org".into(),
            time: 1_234_567_890,
            zone: -530,
        };
        for text in ["A\nB", "A<B", "A>B", "A\0B"] {
            let refused = store.transaction().committer(who(text)).err().expect("refused");
            assert_eq!(refused.kind(), ErrorKind::Misuse);
        }
        let begin = |name: &str| {
            let transaction = store.transaction().message(b" as  a\nrule ");
            transaction.committer(who(name)).expect("a good name")
        };
        let mut first = begin("First");
        first.add(Edit::update(name("refs/heads/main"), old)).expect("added");
        first.add(Edit::update(name("refs/heads/side"), old).message(b"its own")).expect("added");
        let entry = Edit::log(name("refs/heads/side"), old, new);
        first.add(entry.clone().signed(who("Another"))).expect("added");
        let _ = first.commit().expect("committed");

        let mut group = store.group().expect("a group").expect("no hook");
        for (by, on) in [("Second", "refs/heads/main"), ("Third", "refs/heads/side")] {
            let mut transaction = begin(by);
            transaction.add(Edit::update(name(on), new)).expect("added");
            assert_eq!(group.add(&transaction).expect("added"), []);
        }
        let _ = group.close().expect("prepared").commit().expect("committed");

        let state = repo.state();
        let told = |name: &str| -> Vec<String> {
            let entries = state.log(name).iter();
            let line = |entry: &LogEntry| {
                let (by, time, zone) = (&entry.committer, entry.time, &entry.zone);
                format!("{by} {time} {zone} {}", entry.message)
            };
            entries.map(line).collect()
        };
        let line = |by: &str, why: &str| {
            format!("{by} <someone@example.org> 1234567890 -0530 {why}")
        };
        let main = [line("First", "as a rule"), line("Second", "as a rule")];
        assert_eq!(told("refs/heads/main"), main);
        assert_eq!(told("HEAD"), main, "it points to main");
        let side = [line("First", "its own"), line("Another", "as a rule"), line("Third", "as a rule")];
        assert_eq!(told("refs/heads/side"), side);
        repo.assert_sound();
    }

    fn an_edit_may_bring_no_entry(format) {
        let repo = Repo::init(format);
        let repository = ours::open(&repo.git_dir());
        let store = repository.store();
        let (old, new) = (commit(&repo, 0), commit(&repo, 1));
        let main = name("refs/heads/main");
        let update = |oid| Edit::update(main, oid);
        commit_edits(store, [update(old).skip_log(), Edit::symbolic(name("refs/heads/sym"), main)])
            .expect("made");
        assert!(!store.log_exists(main).expect("read") && !store.log_exists(RefName::HEAD).expect("read"));
        commit_edits(store, [update(new)]).expect("changed");
        let before = repo.state();
        let mut transaction = store.transaction().skip_logs();
        transaction.add(Edit::update(name("refs/heads/sym"), old)).expect("added");
        transaction.add(Edit::log(name("refs/tags/t"), old, new)).expect("added");
        let _ = transaction.commit().expect("committed");
        let after = repo.state();
        for text in ["HEAD", "refs/heads/main", "refs/heads/sym"] {
            assert_eq!(before.log(text), after.log(text), "{text}");
        }
        assert_eq!(after.log("refs/tags/t").len(), 1, "an entry that was asked for");
        assert_eq!(repo.git(["rev-parse", "main"]).run().text(), old.to_string());
        commit_edits(store, [Edit::delete(main).skip_log()]).expect("deleted");
        assert!(!store.log_exists(main).expect("read"));
        assert_eq!(before.log("HEAD"), repo.state().log("HEAD"));
    }

    fn an_iterator_gives_what_the_cursor_lends(format) {
        let repo = Repo::init(format);
        let repository = ours::open(&repo.git_dir());
        let store = repository.store();
        let tag = ObjectId::from_hex(repo.objects().tags[0].id.as_bytes()).expect("an id");
        let names: Vec<String> = (0..30)
            .flat_map(|at| ["heads/a", "heads/a-", "pull", "tags"].map(|kind| format!("refs/{kind}/{at}")))
            .collect();
        let edits = names.iter().map(|text| match text.starts_with("refs/tags/") {
            true => Edit::update(name(text), tag),
            false => Edit::update(name(text), commit(&repo, 0)),
        });
        commit_edits(store, edits).expect("made");
        store.optimize(&refdb::Optimize::default()).expect("packed");
        commit_edits(store, [Edit::update(name("refs/heads/a/7"), commit(&repo, 1))]).expect("made");

        let mut all = Vec::new();
        let mut refs = store.refs().expect("refs");
        while let Some(record) = refs.next().expect("a ref") {
            let found = store.read(record.name).expect("read").expect("it is listed");
            assert_eq!(found, record.to_ref());
            all.push(found);
        }
        assert_eq!(all.len(), names.len() + 1, "HEAD too");
        for prefix in ["", "refs/", "refs/heads/a", "refs/heads/a/", "refs/tags/", "refs/x", "HEAD"] {
            for after in ["", "HEAD", "refs/heads/a/", "refs/heads/a/7", "refs/heads/b", "refs/z"] {
                for excluded in [&[][..], &["refs/pull/", "refs/heads/a/1"], &["refs/heads/a/7", "H"]] {
                    let is_meant = |found: &&Ref| {
                        let text = found.name.to_string();
                        text.starts_with(prefix)
                            && text.as_str() > after
                            && !excluded.iter().any(|range| text.starts_with(range))
                    };
                    let expected: Vec<Ref> = all.iter().filter(is_meant).cloned().collect();
                    let excluded = excluded.iter().map(|range| range.as_bytes().to_vec());
                    let mut refs = store.refs().expect("refs").excluding(excluded);
                    refs.seek_after(after.as_bytes(), prefix.as_bytes()).expect("sought");
                    let found: refdb::Result<Vec<Ref>> = refs.into_iter().collect();
                    assert_eq!(found.expect("refs"), expected, "{prefix} {after}");
                }
            }
        }
        let tags = store.refs_by_oid(tag).expect("found");
        assert_eq!(tags.len(), 30);
        assert!(tags.iter().all(|found| all.contains(found)));
    }
}
