//! Reflogs by the library: entries without a change of the ref, several for one ref, long ones, and
//! both orders of reading.

use std::os::unix::fs::MetadataExt;

use refdb::error::Reason;
use refdb::{Edit, LogOrder, LogRewrite, ObjectId, RefName, Renaming, Signature};
use refdb_testkit::repo::Repo;
use refdb_testkit::state::Target;
use refdb_testkit::{RefFormat, for_every_format, ours};

fn name(name: &str) -> RefName<'_> {
    RefName::new(name).expect("a name")
}

/// Lets Git write six entries of one reflog.
fn write_six(repo: &Repo) {
    for (at, id) in repo.objects().commits[..6].iter().enumerate() {
        let args = [
            "update-ref",
            "-m",
            &format!("entry {at}"),
            "refs/heads/topic",
            id,
        ];
        repo.git(args).run().ok();
    }
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

    fn rewriting_by_the_library(format) {
        let repo = Repo::init(format);
        let commits = &repo.objects().commits;
        write_six(&repo);
        let repository = ours::open(&repo.git_dir());
        let store = repository.store();
        let topic = name("refs/heads/topic");
        let ids = |state: &refdb_testkit::state::State| -> Vec<(usize, usize)> {
            let at = |id: &str| commits.iter().position(|it| it == id).unwrap_or(99);
            let entries = state.log("refs/heads/topic").iter();
            entries.map(|entry| (at(&entry.old), at(&entry.new))).collect()
        };
        // A dry run asks about every entry and changes nothing.
        let before = repo.state();
        let mut asked = 0;
        let how = LogRewrite { dry_run: true, ..LogRewrite::default() };
        let done = store.rewrite_log(topic, how, |_| {
            asked += 1;
            Ok(false)
        });
        assert!(done.expect("no fault").is_some());
        assert_eq!((asked, repo.state().difference(&before)), (6, String::new()));
        // Without an entry in the middle, and then joined.
        let wanted = ObjectId::from_hex(commits[2].as_bytes()).expect("an id");
        let drop_two = |entry: &refdb::LogEntry| Ok(entry.new != wanted);
        store.rewrite_log(topic, LogRewrite::default(), drop_two).expect("no fault");
        assert_eq!(ids(&repo.state()), [(99, 0), (0, 1), (2, 3), (3, 4), (4, 5)]);
        let how = LogRewrite { join: true, ..LogRewrite::default() };
        store.rewrite_log(topic, how, |_| Ok(true)).expect("no fault");
        assert_eq!(ids(&repo.state()), [(99, 0), (0, 1), (1, 3), (3, 4), (4, 5)]);
        // What the caller fails with leaves everything as it was.
        let failed = store.rewrite_log(topic, LogRewrite::default(), |_| {
            Err(refdb::Error::new(refdb::ErrorKind::Misuse, "no"))
        });
        assert!(failed.is_err());
        assert_eq!(ids(&repo.state()).len(), 5);
        // The ref follows its newest entry.
        let newest = ObjectId::from_hex(commits[5].as_bytes()).expect("an id");
        let how = LogRewrite { update_ref: true, ..LogRewrite::default() };
        let keep = |entry: &refdb::LogEntry| Ok(entry.new != newest);
        store.rewrite_log(topic, how, keep).expect("no fault");
        let git = repo.state();
        assert_eq!(git.refs["refs/heads/topic".as_bytes()].id(), Some(commits[4].as_str()));
        assert_eq!(ids(&git).len(), 4);
        // Empty, it is there; removed, it is not.
        store.rewrite_log(topic, LogRewrite::default(), |_| Ok(false)).expect("no fault");
        assert_eq!(repo.state().logs["refs/heads/topic".as_bytes()].len(), 0);
        let _ = store.delete_logs([topic]).expect("no fault");
        assert!(!repo.state().logs.contains_key("refs/heads/topic".as_bytes()));
        let done = store.rewrite_log(topic, LogRewrite::default(), |_| Ok(true));
        assert!(done.expect("no fault").is_none());
        let _ = store.create_log(topic).expect("no fault");
        assert_eq!(repo.state().logs["refs/heads/topic".as_bytes()].len(), 0);
        repo.assert_sound();
    }

    fn a_reflog_of_which_nothing_goes_is_not_written(format) {
        let repo = Repo::init(format);
        write_six(&repo);
        let repository = ours::open(&repo.git_dir());
        let store = repository.store();
        let topic = name("refs/heads/topic");
        let keep_all = || {
            let kept = store.rewrite_log(topic, LogRewrite::default(), |_| Ok(true));
            assert!(kept.expect("no fault").is_some());
        };
        let before = repo.state();
        let file = match format.refs {
            RefFormat::Files => repo.git_dir().join("logs/refs/heads/topic"),
            RefFormat::Reftable => repo.git_dir().join("reftable/tables.list"),
        };
        let ino = || std::fs::metadata(&file).expect("it is there").ino();
        let first = ino();
        keep_all();
        assert_eq!(ino(), first);
        assert_eq!(repo.state().difference(&before), String::new());
        if format.refs == RefFormat::Files {
            // Nor is what would be written as much as there was.
            let content = std::fs::read(&file).expect("it is there");
            for bad in ["no entry\n", "cut"] {
                std::fs::write(&file, [&content, bad.as_bytes()].concat()).expect("written");
                let first = ino();
                keep_all();
                assert_ne!(ino(), first, "{bad}");
                assert_eq!(std::fs::read(&file).expect("it is there"), content, "{bad}");
            }
        }
        repo.assert_sound();
    }

    fn renaming_and_copying_beside_git(format) {
        for (copies, from, to) in [
            (false, "topic", "other"),
            (false, "topic", "topic/below"),
            (false, "topic", "topic/deep/below"),
            (false, "deep/er/one", "deep"),
            (false, "deep/er/one", "deep/er"),
            (false, "topic", "deep/er/two"),
            (false, "packed", "new"),
            (false, "packed", "packed/below"),
            (false, "packed", "packed/deep/below"),
            (false, "packed", "deep/packed"),
            (false, "topic", "packed"),
            (false, "nolog", "new/one"),
            (false, "topic", "unborn"),
            (true, "topic", "new"),
            (true, "packed", "deep/er/three"),
            (true, "nolog", "new"),
        ] {
            let repo = Repo::init(format);
            let commits = &repo.objects().commits;
            let update = |name: &str, at: usize| {
                let args = ["update-ref", "-m", "made", &format!("refs/heads/{name}")];
                repo.git(args).arg(&commits[at]).run().ok();
            };
            update("packed", 1);
            repo.git(["pack-refs", "--all"]).run().ok();
            for (at, name) in ["main", "topic", "deep/er/one", "nolog"].iter().enumerate() {
                update(name, at);
            }
            update("topic", 4);
            repo.git(["reflog", "drop", "nolog"]).run().ok();
            if to == "unborn" {
                repo.git(["symbolic-ref", "HEAD", "refs/heads/unborn"]).run().ok();
            }
            let twin = repo.duplicate();
            let option = if copies { "-C" } else { "-M" };
            twin.git(["branch", option, from, to]).run().ok();
            let repository = ours::open(&repo.git_dir());
            let (from, to) = (format!("refs/heads/{from}"), format!("refs/heads/{to}"));
            let verb = if copies { "copied" } else { "renamed" };
            let message = format!("Branch: {verb} {from} to {to}");
            let store = repository.store();
            let (old, new) = (name(&from), name(&to));
            let done = match copies {
                true => store.copy(old, new, message.as_bytes()),
                false => store.rename(old, new, message.as_bytes()),
            };
            let outcome = done.unwrap_or_else(|error| panic!("{from} {to}: {error}"));
            assert!(outcome.afterwards.is_empty());
            let difference = twin.state().difference(&repo.state());
            assert_eq!(difference, "", "{verb} {from} to {to}");
            repo.assert_sound();
        }
    }

    fn renaming_names_whom_the_caller_says(format) {
        let repo = Repo::init(format);
        let commits = &repo.objects().commits;
        repo.git(["update-ref", "refs/heads/old", &commits[1]]).run().ok();
        repo.git(["symbolic-ref", "refs/heads/sym", "refs/heads/old"]).run().ok();
        repo.git(["update-ref", "--create-reflog", "-m", "by sym", "refs/heads/sym", &commits[2]]).run().ok();
        let repository = ours::open(&repo.git_dir());
        let who = Signature { name: "Ann".into(), email: "ann@e".into(), time: 1_600_000_000, zone: 130 };
        let how = Renaming { message: b"moved", who: Some(who), ..Renaming::default() };
        let _ = repository.store().rename_as(name("refs/heads/old"), name("refs/heads/new"), &how).expect("renamed");
        let git = repo.state();
        let log = git.log("refs/heads/new");
        let last = log.last().expect("an entry");
        assert_eq!((last.time, last.zone.as_str()), (1_600_000_000, "+0130"));
        assert_eq!(last.committer, "Ann <ann@e>");
        assert_eq!(last.message, "moved");

        // A symref leads where it led. That one leads nowhere by now, and so brings no entry.
        let entries = git.log("refs/heads/sym").len();
        let symrefs = Renaming { symrefs: true, ..how.clone() };
        let (sym, renamed) = (name("refs/heads/sym"), name("refs/heads/renamed"));
        assert!(repository.store().rename_as(sym, renamed, &how).is_err());
        let _ = repository.store().rename_as(sym, renamed, &symrefs).expect("renamed");
        let git = repo.state();
        assert_eq!(git.refs.get(bstr::BStr::new("refs/heads/sym")), None);
        let target = git.refs.get(bstr::BStr::new("refs/heads/renamed"));
        assert_eq!(target, Some(&Target::Symbolic("refs/heads/old".into())));
        assert_eq!(git.log("refs/heads/renamed").len(), entries);
        repo.assert_sound();
    }

    fn renaming_that_is_refused(format) {
        let repo = Repo::init(format);
        let commits = &repo.objects().commits;
        for name in ["main", "deep/one", "deep/two"] {
            let args = ["update-ref", &format!("refs/heads/{name}"), &commits[1]];
            repo.git(args).run().ok();
        }
        repo.git(["symbolic-ref", "refs/heads/sym", "refs/heads/main"]).run().ok();
        let before = repo.state();
        let repository = ours::open(&repo.git_dir());
        for (from, to, why) in [
            ("deep/one", "deep", "'refs/heads/deep/two' exists; cannot create 'refs/heads/deep'"),
            ("main", "deep", "'refs/heads/deep/one' exists; cannot create 'refs/heads/deep'"),
            ("deep/one", "main/x", "'refs/heads/main' exists; cannot create 'refs/heads/main/x'"),
            ("none", "new", "refname refs/heads/none not found"),
            ("sym", "new", "refname refs/heads/sym is a symbolic ref"),
        ] {
            let (from, to) = (format!("refs/heads/{from}"), format!("refs/heads/{to}"));
            let refused = repository.store().rename(name(&from), name(&to), b"m").expect_err("refused");
            assert!(refused.to_string().starts_with(why), "{refused}");
            let reason = refused.rejection().map(|it| (it.reason, it.name.to_string(), it.index));
            let expected = match why {
                _ if why.contains("exists") => Some((Reason::NameConflict, to, 0)),
                _ if why.contains("not found") => Some((Reason::NonexistentRef, from, 0)),
                _ => None,
            };
            assert_eq!(reason, expected, "{why}");
        }
        let store = repository.store();
        for (to, why) in [
            ("refs/heads/deep/one", "reference already exists: 'refs/heads/deep/one'"),
            ("refs/heads/sym", "reference already exists: 'refs/heads/sym'"),
            ("refs/heads/deep", "'refs/heads/deep/one' exists; cannot create 'refs/heads/deep'"),
        ] {
            let refused = store.rename_to_new(name("refs/heads/main"), name(to), b"m").expect_err("refused");
            assert!(refused.to_string().starts_with(why), "{refused}");
            let expected = match why.starts_with("reference already exists") {
                true => Reason::CreateExists,
                false => Reason::NameConflict,
            };
            assert_eq!(refused.rejection().map(|it| it.reason), Some(expected), "{why}");
        }
        // What is copied stays, and is in the way of names above and below it.
        for to in ["refs/heads/main/x", "refs/heads"] {
            let refused = store.copy(name("refs/heads/main"), name(to), b"m");
            let refused = refused.expect_err("refused");
            let why = format!("'refs/heads/main' exists; cannot create '{to}'");
            assert!(refused.to_string().starts_with(&why), "{refused}");
            assert_eq!(refused.rejection().map(|it| it.reason), Some(Reason::NameConflict));
        }
        assert_eq!(before.difference(&repo.state()), "");
    }
}

for_every_format! {
    /// A reflog whose ref never came to be, or went, has the place of one that moves: that is found before
    /// anything is committed.
    fn a_reflog_in_the_way_of_one_that_moves(format) {
        let repo = Repo::init(format);
        repo.config("core.logAllRefUpdates", "true");
        let commit = &repo.objects().commits[1];
        repo.git(["update-ref", "-m", "made", "refs/heads/deep/one", commit]).run().ok();
        let logs = repo.git_dir().join("logs/refs/heads/deep");
        let left = |content: String| {
            std::fs::create_dir_all(logs.join("left")).expect("a folder");
            std::fs::write(logs.join("left/behind"), content).expect("a file");
        };
        let repository = ours::open(&repo.git_dir());
        let rename = |from, to| repository.store().rename(name(from), name(to), b"m");
        let is_files = format.refs == refdb_testkit::RefFormat::Files;
        if is_files {
            left("what this is, nobody knows\n".into());
            let refused = rename("refs/heads/deep/one", "refs/heads/deep").expect_err("in the way");
            assert!(refused.to_string().contains("there are still logs under"), "{refused}");
            repo.git(["update-ref", "refs/heads/other", commit]).run().ok();
            let null = "0".repeat(commit.len());
            left(format!("{null} {commit} A <a@b> 1700000000 +0000\tmade\n"));
        }
        let _ = rename("refs/heads/deep/one", "refs/heads/deep").expect("nothing is in the way");
        assert_eq!(repo.reflogs()[&b"refs/heads/deep"[..]][0].message, "made");
        repo.assert_sound();
    }
}

for_every_format! {
    /// So many that two threads write them.
    fn very_many_new_reflogs_have_their_entry(format) {
        let repo = Repo::init(format);
        repo.config("core.logAllRefUpdates", "always");
        let oid = ObjectId::from_hex(repo.objects().commits[0].as_bytes()).expect("an id");
        let repository = ours::open(&repo.git_dir());
        let mut transaction = repository.store().transaction();
        for at in 0..5_000 {
            let name = format!("refs/heads/{}/{at}", at % 40);
            let edit = Edit::update(RefName::new(&name).expect("a name"), oid);
            transaction.add(edit.into_owned()).expect("added");
        }
        assert!(transaction.commit().expect("a commit").rejections.is_empty());
        let listed = repo.git(["reflog", "list"]).run().ok();
        let heads = |line: &&[u8]| line.starts_with(b"refs/heads/");
        assert_eq!(listed.split(|byte| *byte == b'\n').filter(heads).count(), 5_000);
        for at in [0, 1, 2_499, 2_500, 4_999] {
            let name = format!("refs/heads/{}/{at}", at % 40);
            let shown = repo.git(["reflog", "show", "--format=%H"]).arg(name).run().ok();
            assert_eq!(shown.trim_ascii(), oid.to_string().as_bytes());
        }
    }
}
