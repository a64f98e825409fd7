//! What a program that uses the library relies on, in every format.

use refdb::{
    Edit, ErrorKind, Expected, ObjectId, Reason, Ref, RefName, RefNameBuf, Signature, Store,
};
use refdb_testkit::generate::Generator;
use refdb_testkit::model::{Model, Rules};
use refdb_testkit::repo::Repo;
use refdb_testkit::state::{LogEntry, Target};
use refdb_testkit::{RefFormat, for_every_format, ours};

pub(crate) fn name(text: &str) -> RefName<'_> {
    RefName::new(text).expect("a good name")
}

/// Returns a commit of the repository, by its place.
pub(crate) fn commit(repo: &Repo, at: usize) -> ObjectId {
    ObjectId::from_hex(repo.objects().commits[at].as_bytes()).expect("an id")
}

pub(crate) fn commit_edits<'e>(
    store: &Store,
    edits: impl IntoIterator<Item = Edit<'e>>,
) -> refdb::Result<()> {
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
    is_send::<refdb::LockedRefs<'_>>();
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

    fn refs_are_locked_first_and_what_becomes_of_them_decided_then(format) {
        let repo = Repo::init(format);
        let repository = ours::open(&repo.git_dir());
        let store = repository.store();
        let (old, new) = (commit(&repo, 0), commit(&repo, 1));
        let [main, side, gone, fresh] = ["main", "side", "gone", "new"].map(|it| format!("refs/heads/{it}"));
        let [main, side, gone, fresh] = [&main, &side, &gone, &fresh].map(|text| name(text));
        let made = [Edit::update(main, old), Edit::update(side, new), Edit::update(gone, old)];
        commit_edits(store, made).expect("made");

        let mut locked = store.transaction().lock([side, main, main]).expect("locked");
        // Nobody changes them meanwhile, Git neither.
        let update = ["update-ref", "refs/heads/main", &new.to_string()];
        assert_ne!(repo.git(["-c", "core.filesRefLockTimeout=0"]).args(update).run().code(), 0);
        locked.lock([gone, fresh, RefName::HEAD]).expect("locked as well");
        let values = [main, side, gone, fresh].map(|name| {
            let found = locked.read(name).expect("it is locked");
            found.map(|found| found.target.oid().expect("no symref"))
        });
        assert_eq!(values, [Some(old), Some(new), Some(old), None]);
        let head = locked.read(RefName::HEAD).expect("it is locked").expect("it is there");
        assert_eq!(head.target.symbolic(), Some(main));
        let error = locked.read(name("refs/heads/other")).expect_err("it is not locked");
        assert_eq!(error.kind(), ErrorKind::Misuse);

        locked.add(Edit::update(main, new).expecting(Expected::Oid(old)).message(b"swap")).expect("added");
        locked.add(Edit::update(side, old).message(b"swap")).expect("added");
        let who = Signature { name: "Ann".into(), email: "a@e".into(), time: 1_600_000_000, zone: 0 };
        let bad = Signature { name: "A\nnn".into(), ..who.clone() };
        assert_eq!(locked.committer(bad).expect_err("refused").kind(), ErrorKind::Misuse);
        locked.committer(who).expect("a signature");
        locked.add(Edit::delete(gone).expecting(Expected::Exists)).expect("added");
        // Not locked before, and below what goes; HEAD's reflog is written too.
        locked.add(Edit::update(name("refs/tags/t"), old)).expect("added");
        let outcome = locked.commit().expect("committed");
        assert!(outcome.rejections.is_empty() && outcome.afterwards.is_empty(), "{outcome:?}");
        let state = repo.state();
        let holds = |name: RefName<'_>| state.refs.get(bstr::BStr::new(name.as_bytes())).cloned();
        let direct = |oid: ObjectId| Some(Target::Direct(oid.to_string()));
        assert_eq!(holds(main), direct(new));
        assert_eq!(holds(side), direct(old));
        assert_eq!(holds(name("refs/tags/t")), direct(old));
        assert_eq!((holds(gone), holds(fresh)), (None, None));
        let last = state.log("HEAD").last().expect("an entry").clone();
        assert_eq!(last.message, "swap");
        assert_eq!(last.committer, "Ann <a@e>");
        repo.assert_sound();

        // Dropped, or refused, it changes nothing and leaves no lock.
        for refused in [false, true] {
            let mut locked = store.transaction().lock([main, fresh]).expect("locked");
            locked.add(Edit::update(fresh, old)).expect("added");
            if refused {
                locked.add(Edit::update(main, old).expecting(Expected::Missing)).expect("added");
                let error = locked.commit().expect_err("it is there");
                assert_eq!(error.rejection().expect("refused").reason, Reason::CreateExists);
            } else {
                drop(locked);
            }
            assert_eq!(state.difference(&repo.state()), "");
            repo.update_refs(format!("create {fresh} {new}\n"));
            repo.update_refs(format!("delete {fresh}\n"));
        }
    }

    /// In one format the zone has room for five digits, in the other one for any number.
    fn a_time_zone_is_refused_or_read_back_as_it_was_given(format) {
        let repo = Repo::init(format);
        let repository = ours::options().open(&repo.git_dir()).expect("opened");
        let store = repository.store();
        let main = name("refs/heads/main");
        for (at, zone) in [0, 9, -9, 1234, 9999, -9999, 10_000, -10_000, i16::MAX, i16::MIN].into_iter().enumerate() {
            let who = Signature { name: "A".into(), email: "a@e".into(), time: 1_600_000_000, zone };
            let transaction = store.transaction().committer(who.clone());
            if !(-9999..=9999).contains(&zone) {
                assert_eq!(transaction.err().map(|error| error.kind()), Some(ErrorKind::Misuse), "{zone}");
                continue;
            }
            let mut transaction = transaction.expect("a signature");
            transaction.add(Edit::update(main, commit(&repo, at % 8)).message(b"why")).expect("added");
            let _ = transaction.commit().expect("committed");
            let log = store.log(main, refdb::LogOrder::NewestFirst).expect("read").expect("a reflog");
            assert_eq!((log[0].who.clone(), &log[0].message[..]), (who, &b"why"[..]));
        }
    }

    fn a_lock_that_cannot_be_had_leaves_the_others_as_they_are(format) {
        let repo = Repo::init(format);
        let repository = ours::options().config("core.filesRefLockTimeout=0")
            .config("reftable.lockTimeout=0").open(&repo.git_dir()).expect("opened");
        let store = repository.store();
        let (old, new) = (commit(&repo, 0), commit(&repo, 1));
        let (a, b, c) = (name("refs/heads/a"), name("refs/heads/b"), name("refs/heads/c"));
        commit_edits(store, [Edit::update(a, old), Edit::update(b, old), Edit::update(c, old)])
            .expect("made");
        let other = ours::open(&repo.git_dir());
        let kept = other.store().transaction().lock([b]).expect("locked");
        if format.refs == RefFormat::Reftable {
            // One lock is that of all refs.
            let error = store.transaction().lock([c]).err().expect("the stack is locked");
            assert_eq!(error.kind(), ErrorKind::Locked);
            return;
        }
        let mut locked = store.transaction().lock([c]).expect("locked");
        for names in [&[a, b][..], &[b], &[b, name("refs/heads/d")]] {
            let error = locked.lock(names.iter().copied()).expect_err("another has it");
            assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
        }
        let below = locked.lock([name("refs/heads/c/below")]).expect_err("it cannot be");
        assert_eq!(below.rejection().expect("refused").reason, Reason::NameConflict, "{below}");
        drop(kept);
        locked.lock([a, b]).expect("locked");
        locked.add(Edit::update(b, new)).expect("added");
        let _ = locked.commit().expect("committed");
        assert_eq!(repo.git(["rev-parse", "b"]).run().text(), new.to_string());
        repo.update_refs(format!("update {a} {new}\nupdate {c} {new}\n"));
    }

    fn a_whole_reflog_is_replaced(format) {
        let repo = Repo::init(format);
        let repository = ours::open(&repo.git_dir());
        let store = repository.store();
        let (old, new) = (commit(&repo, 0), commit(&repo, 1));
        let entry = |number: u64, message: &str| refdb::LogEntry {
            old: if number == 0 { ObjectId::null(old.format()) } else { old },
            new,
            who: Signature {
                name: format!("Author {number}").into(),
                email: "a@example.org".into(),
                time: 1_000_000_000 + number,
                zone: 545,
            },
            message: message.into(),
        };
        let main = name("refs/heads/main");
        commit_edits(store, [Edit::update(main, old).message(b"made")]).expect("made");
        commit_edits(store, [Edit::update(main, new).message(b"moved")]).expect("moved");
        let of_others = repo.state().log("HEAD").to_vec();
        let long = "x".repeat(3000);
        let lists: [&[(u64, &str)]; 5] = [
            &[(0, "one"), (1, ""), (2, " three \n words")],
            &[(5, "alone")],
            &[],
            &[(3, "after none"), (4, "and more")],
            &[(0, &long), (1, "b"), (2, "c"), (3, "d"), (4, "e")],
        ];
        // A reflog may be without its ref.
        for name in [main, name("refs/heads/none/at/all"), name("refs/tags/t"), RefName::HEAD] {
            for list in lists {
                let entries: Vec<_> = list.iter().map(|&(number, why)| entry(number, why)).collect();
                let outcome = store.replace_log(name, &entries).expect("replaced");
                assert!(outcome.afterwards.is_empty(), "{outcome:?}");
                let found = store.log(name, refdb::LogOrder::OldestFirst).expect("read");
                let found = found.expect("there is one, though it may be empty");
                assert_eq!(found.len(), entries.len(), "{name}");
                for (found, given) in found.iter().zip(&entries) {
                    assert_eq!((found.old, found.new, &found.who), (given.old, given.new, &given.who));
                    let message = refdb::reflog::normalize_message(&given.message);
                    assert!(message.starts_with(&found.message) && found.message.len() >= message.len().min(2000));
                }
                let git = repo.state();
                assert_eq!(git.log(name.as_bytes()).len(), entries.len(), "Git reads as many");
            }
        }
        commit_edits(store, [Edit::update(main, old).message(b"behind")]).expect("moved");
        let git = repo.state();
        assert_eq!(git.log("refs/heads/main").len(), 6);
        assert_eq!(git.log("refs/heads/main").last().expect("an entry").message, "behind");
        assert_eq!(git.log("HEAD").len(), 6);
        assert_eq!(of_others.len(), 2);
        repo.assert_sound();

        let bad = refdb::LogEntry { who: Signature { email: "a>b".into(), ..Signature::default() }, ..entry(0, "") };
        assert_eq!(store.replace_log(main, &[bad]).expect_err("refused").kind(), ErrorKind::Misuse);
        let fetched = store.replace_log(name("FETCH_HEAD"), &[]).expect_err("no ref");
        assert_eq!(fetched.kind(), ErrorKind::InvalidName);
        let held = ours::open(&repo.git_dir());
        let _held = held.store().transaction().lock([main]).expect("locked");
        let store = ours::options().config("core.filesRefLockTimeout=0").config("reftable.lockTimeout=0")
            .open(&repo.git_dir()).expect("opened").store().clone();
        assert_eq!(store.replace_log(main, &[]).expect_err("locked").kind(), ErrorKind::Locked);
        assert_eq!(git.difference(&repo.state()), "");
    }

    fn a_repository_opens_without_a_head_that_can_be_used(format) {
        let repo = Repo::init(format);
        let oid = commit(&repo, 0);
        repo.update_refs(format!("create refs/heads/main {oid}\ncreate refs/tags/t {oid}\n"));
        let head = repo.git_dir().join("HEAD");
        for content in [None, Some("junk\n"), Some("")] {
            match content {
                None => std::fs::remove_file(&head).expect("removed"),
                Some(content) => std::fs::write(&head, content).expect("written"),
            }
            assert!(ours::options().open(&repo.git_dir()).is_err(), "as in Git");
            let repository = ours::open_damaged(&repo.git_dir());
            let store = repository.store();
            let main = store.resolve(name("refs/heads/main")).expect("read").expect("it is there");
            assert_eq!(main.oid, oid);
            let listed: refdb::Result<Vec<Ref>> = store.refs().expect("refs").into_iter().collect();
            let listed = listed.expect("refs").into_iter().filter(|found| !found.broken);
            let listed = listed.filter(|found| !found.name.as_name().is_head()).count();
            assert_eq!(listed, 2);
            let head = store.read(RefName::HEAD);
            match (format.refs, content) {
                // It is in the tables.
                (RefFormat::Reftable, _) => assert!(head.expect("read").is_some()),
                (RefFormat::Files, None) => assert_eq!(head.expect("absence is no error"), None),
                (RefFormat::Files, Some(_)) => {
                    assert_eq!(head.expect_err("it is broken").kind(), ErrorKind::BrokenRef);
                }
            }
            commit_edits(store, [Edit::update(name("refs/heads/new"), oid)]).expect("written");
            commit_edits(store, [Edit::delete(name("refs/heads/new"))]).expect("written");
        }
    }

    fn settings_and_format_are_read_anew_on_request(format) {
        let repo = Repo::init(format);
        let repository = ours::open(&repo.git_dir());
        let (old, new) = (commit(&repo, 0), commit(&repo, 1));
        let tag = name("refs/tags/t");
        commit_edits(repository.store(), [Edit::update(tag, old)]).expect("made");
        assert!(!repository.store().log_exists(tag).expect("read"));
        repo.config("core.logAllRefUpdates", "always");
        let reloaded = repository.reload().expect("opened again");
        assert_eq!(reloaded.git_dir(), repository.git_dir());
        commit_edits(reloaded.store(), [Edit::update(tag, new)]).expect("changed");
        assert!(reloaded.store().log_exists(tag).expect("read"));

        let to = match format.refs {
            RefFormat::Files => "--ref-format=reftable",
            RefFormat::Reftable => "--ref-format=files",
        };
        repo.git(["refs", "migrate", to]).run().ok();
        let moved = reloaded.reload().expect("opened again");
        assert_eq!(moved.ref_format().name(), to.trim_start_matches("--ref-format="));
        let found = moved.store().read(tag).expect("read").expect("it is there");
        assert_eq!(found.target.oid(), Some(new));
        assert!(!moved.is_migration_interrupted().expect("told"));
    }
}
