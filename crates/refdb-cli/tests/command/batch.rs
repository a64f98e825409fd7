//! `batch`: a dialogue of many questions, beside what Git says of the same refs.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use refdb_testkit::dialogue::Dialogue;
use refdb_testkit::for_every_format;
use refdb_testkit::oracle::run_of;
use refdb_testkit::repo::Repo;

fn begin(repo: &Repo) -> Dialogue {
    let ours = Path::new(env!("CARGO_BIN_EXE_refdb"));
    run_of(ours, repo.path()).args(["batch"]).begin()
}

/// Asks, and compares the lines of the answer.
fn ask(batch: &mut Dialogue, question: &str, answers: &[&str]) {
    batch.say(&format!("{question}\n"));
    for answer in answers {
        assert_eq!(batch.hear(), format!("{answer}\n"), "{question}");
    }
}

/// Asks, and compares how the answer begins: the rest is for people.
fn ask_and_fail(batch: &mut Dialogue, question: &str, answer: &str) {
    batch.say(&format!("{question}\n"));
    let heard = batch.hear();
    assert!(heard.starts_with(answer), "{question}: {heard}");
}

for_every_format! {
    fn questions_see_what_git_writes_meanwhile(format) {
        let repo = Repo::init(format);
        let ids = &repo.objects().commits;
        let (one, two) = (&ids[0], &ids[1]);
        repo.update_refs(format!("create refs/heads/a {one}\ncreate refs/heads/b {two}\n"));
        let mut batch = begin(&repo);
        ask(&mut batch, "version", &["1 version 1"]);
        ask(&mut batch, "read refs/heads/a", &[&format!("2 oid {one}")]);
        ask(&mut batch, "read refs/heads/none", &["3 missing"]);
        repo.git(["symbolic-ref", "HEAD", "refs/heads/b"]).run();
        ask(&mut batch, "read HEAD", &["4 symref refs/heads/b"]);
        ask(&mut batch, "resolve HEAD", &[&format!("5 oid {two} refs/heads/b")]);
        repo.update_refs(format!("update refs/heads/a {two}\ncreate refs/heads/none {one}\n"));
        ask(&mut batch, "read refs/heads/a", &[&format!("6 oid {two}")]);
        ask(&mut batch, "exists refs/heads/none", &["7 yes"]);
        repo.update_refs("delete refs/heads/none\n");
        ask(&mut batch, "exists refs/heads/none", &["8 no"]);
        let listed = [format!("9 ref refs/heads/a oid {two}"), "9 end more".to_owned()];
        ask(&mut batch, "list prefix=refs/heads/ count=1", &[&listed[0], &listed[1]]);
        let listed = [format!("10 ref refs/heads/b oid {two}"), "10 end".to_owned()];
        ask(&mut batch, "list prefix=refs/heads/ after=refs/heads/a", &[&listed[0], &listed[1]]);
        let pointing = ["a", "b"].map(|name| format!("11 ref refs/heads/{name} oid {two}"));
        ask(&mut batch, &format!("points-at {two}"), &[&pointing[0], &pointing[1], "11 end"]);
        ask(&mut batch, "flush", &["12 ok"]);
        assert_eq!(batch.end().code(), 0);
    }

    fn questions_that_come_together_are_answered_as_single_ones(format) {
        let repo = Repo::init(format);
        let ids = &repo.objects().commits;
        let (one, two) = (&ids[0], &ids[1]);
        repo.update_refs(format!("create refs/heads/packed {one}\ncreate refs/heads/both {one}\n"));
        repo.git(["pack-refs", "--all"]).run().ok();
        repo.update_refs(format!("create refs/heads/loose {two}\nupdate refs/heads/both {two}\n"));
        repo.git(["symbolic-ref", "refs/heads/s", "refs/heads/packed"]).run().ok();
        let mut batch = begin(&repo);
        batch.say(
            "read refs/heads/packed\nread refs/heads/both\nresolve refs/heads/loose\nexists refs/heads/none\n\
             read refs/heads/s\nresolve refs/heads/s\nexists refs/heads/packed/below\nresolve refs/heads/none\n\
             read refs/heads/a..b\nexists refs/heads/s\nread FETCH_HEAD\nversion\nread refs/heads/both\n",
        );
        for answer in [
            &format!("1 oid {one}"),
            &format!("2 oid {two}"),
            &format!("3 oid {two} refs/heads/loose"),
            "4 no",
            "5 symref refs/heads/packed",
            &format!("6 oid {one} refs/heads/packed"),
            "7 no",
            "8 missing",
        ] {
            assert_eq!(batch.hear(), format!("{answer}\n"));
        }
        assert!(batch.hear().starts_with("9 error name "));
        for answer in ["10 yes", "11 missing", "12 version 1", &format!("13 oid {two}")] {
            assert_eq!(batch.hear(), format!("{answer}\n"));
        }
        // One that is moved is told so, and those behind it are asked of the repository as it is then.
        ask(&mut batch, "exists refs/heads/both", &["14 yes"]);
        let to = match format.refs.name() {
            "files" => "--ref-format=reftable",
            _ => "--ref-format=files",
        };
        repo.git(["refs", "migrate", to]).run().ok();
        batch.say(&"resolve refs/heads/both\n".repeat(20));
        let heard: Vec<String> = (0..20).map(|_| batch.hear()).collect();
        assert!(heard[0].starts_with("15 error moved "), "{heard:?}");
        for (number, heard) in (16..).zip(&heard[1..]) {
            assert_eq!(heard, &format!("{number} oid {two} refs/heads/both\n"));
        }
        assert_eq!(batch.end().code(), 0);
    }

    fn a_ref_that_is_packed_meanwhile_is_missed_by_no_question(format) {
        let repo = Repo::init(format);
        let one = &repo.objects().commits[0];
        let (done, newest) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    let next = newest.load(Ordering::SeqCst) + 1;
                    let name = format!("refs/heads/n{next}");
                    let run = |args: &[&str]| run_of(env!("CARGO_BIN_EXE_refdb"), repo.path()).args(args).run().ok();
                    run(&["update-ref", &name, one]);
                    newest.store(next, Ordering::SeqCst);
                    run(&["pack-refs", "--all"]);
                }
            });
            let mut batch = begin(&repo);
            let (begun, mut number, mut wrong) = (Instant::now(), 0, None);
            while begun.elapsed() < Duration::from_millis(500) && wrong.is_none() {
                let there = newest.load(Ordering::SeqCst);
                if there == 0 {
                    continue;
                }
                batch.say(&format!("exists refs/heads/n{there}\n").repeat(1000));
                for _ in 0..1000 {
                    number += 1;
                    let heard = batch.hear();
                    wrong = wrong.or((heard != format!("{number} yes\n")).then_some(heard));
                }
            }
            done.store(true, Ordering::SeqCst);
            writer.join().expect("it wrote");
            assert_eq!((wrong, batch.end().code()), (None, 0));
            assert!(number > 0 && newest.load(Ordering::SeqCst) > 1);
        });
    }

    fn a_question_that_fails_ends_nothing(format) {
        let repo = Repo::init(format);
        let one = &repo.objects().commits[0];
        let mut batch = begin(&repo);
        ask_and_fail(&mut batch, "", "1 error usage ");
        ask_and_fail(&mut batch, "nonsense", "2 error usage ");
        ask_and_fail(&mut batch, "read refs/heads/a..b", "3 error name ");
        ask_and_fail(&mut batch, "commit", "4 error usage ");
        ask_and_fail(&mut batch, "list count=x", "5 error usage ");
        ask_and_fail(&mut batch, "points-at 12", "6 error usage ");
        ask_and_fail(&mut batch, &format!("update refs/heads/a {one}"), "7 error usage ");
        ask_and_fail(&mut batch, &"x".repeat(100_000), "8 error usage ");
        ask(&mut batch, "exists refs/heads/a", &["9 no"]);
        batch.say("exists refs/heads/a");
        let text = batch.end().text();
        assert!(text.starts_with("10 error usage "), "{text}");
    }

    fn a_transaction_is_whole_or_nothing(format) {
        let repo = Repo::init(format);
        let ids = &repo.objects().commits;
        let (one, two) = (&ids[0], &ids[1]);
        let mut batch = begin(&repo);
        ask(&mut batch, "start", &["1 ok"]);
        ask(&mut batch, "message for a reason", &["2 ok"]);
        ask(&mut batch, &format!("create refs/heads/a {one}"), &["3 ok"]);
        ask(&mut batch, "exists refs/heads/a", &["4 no"]);
        ask(&mut batch, "commit", &["5 edit 3 ok", "5 committed"]);
        let log = repo.git(["reflog", "show", "--format=%gs", "refs/heads/a"]).run();
        assert_eq!(log.text(), "for a reason");
        // One edit that is refused when the locks are taken refuses both.
        ask(&mut batch, "start", &["6 ok"]);
        ask(&mut batch, &format!("create refs/heads/b {one}"), &["7 ok"]);
        ask(&mut batch, &format!("update refs/heads/a {two} {two}"), &["8 ok"]);
        ask_and_fail(&mut batch, "commit", "9 edit 8 rejected old-value ");
        assert!(batch.hear().starts_with("9 error rejected "));
        ask(&mut batch, "exists refs/heads/b", &["10 no"]);
        // So does one that cannot be read, though all was sent before it was answered.
        batch.say(&format!("start\nupdate refs/heads/b {one}\nupdate refs/heads/a\ncommit\n"));
        assert_eq!(batch.hear(), "11 ok\n");
        assert_eq!(batch.hear(), "12 ok\n");
        assert!(batch.hear().starts_with("13 error usage "));
        assert!(batch.hear().starts_with("14 error rejected "));
        ask(&mut batch, "exists refs/heads/b", &["15 no"]);
        assert_eq!(batch.end().code(), 0);
        repo.assert_sound();
    }

    fn a_batch_refuses_single_edits(format) {
        let repo = Repo::init(format);
        let ids = &repo.objects().commits;
        let (one, two) = (&ids[0], &ids[1]);
        repo.update_refs(format!("create refs/heads/a {one}\n"));
        let mut batch = begin(&repo);
        ask(&mut batch, "start batch", &["1 ok"]);
        ask(&mut batch, &format!("update refs/heads/a {two} {two}"), &["2 ok"]);
        ask(&mut batch, &format!("create refs/heads/b {two}"), &["3 ok"]);
        ask_and_fail(&mut batch, "commit", "4 edit 2 rejected old-value ");
        assert_eq!(batch.hear(), "4 edit 3 ok\n");
        assert_eq!(batch.hear(), "4 committed\n");
        // Locks are held from `prepare` on, and given back by `abort` and by the end of the input.
        ask(&mut batch, "start", &["5 ok"]);
        ask(&mut batch, "delete refs/heads/b", &["6 ok"]);
        ask(&mut batch, "prepare", &["7 prepared"]);
        let text = format!("update refs/heads/b {one}\n");
        let meanwhile = || repo.git(["update-ref", "--stdin"]).stdin(text.clone()).run().code();
        assert_ne!(meanwhile(), 0, "Git finds the lock");
        ask(&mut batch, "abort", &["8 ok"]);
        assert_eq!(meanwhile(), 0);
        ask(&mut batch, "start", &["9 ok"]);
        ask(&mut batch, "delete refs/heads/b", &["10 ok"]);
        ask(&mut batch, "prepare", &["11 prepared"]);
        assert_eq!(batch.end().code(), 0);
        assert_eq!(meanwhile(), 0);
        repo.assert_sound();
    }

    fn records_end_with_nul_on_request(format) {
        let repo = Repo::init(format);
        let ours = Path::new(env!("CARGO_BIN_EXE_refdb"));
        let run = run_of(ours, repo.path()).args(["batch", "-z"]);
        let out = run.stdin("exists refs/heads/a\0read a\nb\0exists refs/heads/b\0").run();
        let text = out.text();
        let answers: Vec<&str> = text.split_terminator('\0').collect();
        assert_eq!(answers.len(), 3, "{text}");
        assert_eq!((answers[0], answers[2]), ("1 no", "3 no"));
        assert!(answers[1].starts_with("2 error usage "), "{text}");
    }

    fn refs_that_move_into_the_other_format_are_found_again(format) {
        let repo = Repo::init(format);
        let one = &repo.objects().commits[0];
        repo.update_refs(format!("create refs/heads/a {one}\n"));
        let mut batch = begin(&repo);
        ask(&mut batch, "exists refs/heads/a", &["1 yes"]);
        let other = match format.refs == refdb_testkit::format::RefFormat::Reftable {
            true => "--ref-format=files",
            false => "--ref-format=reftable",
        };
        let moved = repo.git(["refs", "migrate", other]).run();
        assert_eq!(moved.code(), 0);
        // Not even the first ref of a page is what stands in the place of HEAD now.
        let mut page = begin(&repo);
        ask(&mut page, "exists refs/heads/a", &["1 yes"]);
        let back = format!("--ref-format={}", format.refs.name());
        repo.git(["refs", "migrate", &back]).run().ok();
        page.say("list count=1\n");
        let heard = page.hear();
        assert!(heard.starts_with("2 error moved "), "{heard}");
        assert_eq!(page.end().code(), 0);
        repo.git(["refs", "migrate", other]).run().ok();
        // At most one question is told that it is to be asked again.
        batch.say("read refs/heads/a\n");
        let mut heard = batch.hear();
        if heard.starts_with("2 error moved ") {
            batch.say("read refs/heads/a\n");
            heard = batch.hear();
        }
        assert!(heard.ends_with(&format!(" oid {one}\n")), "{heard}");
        assert_eq!(batch.end().code(), 0);
    }
}
