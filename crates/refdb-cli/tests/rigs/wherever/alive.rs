//! A process that lives holds a transaction, in one place; others come from another.

use std::thread::sleep;
use std::time::{Duration, Instant};

use refdb_testkit::dialogue::Dialogue;
use refdb_testkit::for_every_format;

use super::*;

/// For so long the tests wait until a process has come to a point.
const STOPPED_WITHIN: Duration = Duration::from_secs(30);

/// What others do beside a transaction that is prepared, and whether that must be refused.
fn others(work: &Work) -> Vec<(Vec<&str>, bool)> {
    let commit = work.base.objects().commits[5].as_str();
    vec![
        (vec!["for-each-ref"], false),
        (vec!["refs", "verify"], false),
        (vec!["update-ref", "refs/heads/main", commit], true),
        (vec!["update-ref", "-d", "refs/heads/both"], true),
        (vec!["update-ref", "refs/worktree/own", commit], true),
        (vec!["pack-refs", "--all"], true),
        (
            vec!["reflog", "expire", "--expire=all", "refs/heads/main"],
            true,
        ),
        (vec!["refs", "migrate", other(work)], true),
    ]
}

fn other(work: &Work) -> &'static str {
    match work.base.format().refs {
        refdb_testkit::RefFormat::Files => "--ref-format=reftable",
        refdb_testkit::RefFormat::Reftable => "--ref-format=files",
    }
}

/// Prepares the transaction in one place, and does in another what others do.
fn prepare(work: &Work, there: &Place, here: &Place) {
    let context = format!(
        "{}, prepared in {}, seen from {}",
        work.base.format(),
        there.name,
        here.name
    );
    let copy = work.base.duplicate();
    let dir = copy.path();
    let place = dir.join(WORKTREE);
    let mut holder = there.refdb(&place).args(STDIN).begin();
    holder.say(&format!("start\n{}prepare\n", work.script));
    assert_eq!(holder.hear(), "start: ok\n", "{context}");
    assert_eq!(holder.hear(), "prepare: ok\n", "{context}");
    let held = locks(&dir.join(".git"));
    assert_ne!(held, [], "{context}: there are no locks");
    for (args, is_refused) in others(work) {
        let out = here.in_time(&place).args(&args).run();
        // What another transaction does in these formats does not concern every lock.
        if is_refused && args[0] != "pack-refs" {
            assert!(!out.status.success(), "{context}: {args:?}: {}", Told(&out));
        } else if !is_refused {
            assert!(out.status.success(), "{context}: {args:?}: {}", Told(&out));
        }
        assert_eq!(
            locks(&dir.join(".git")),
            held,
            "{context}: {args:?}: {}",
            Told(&out)
        );
        let listed = here.in_time(&place).args(LIST).run().text();
        assert_eq!(listed, work.old.listed, "{context}: {args:?}");
    }
    holder.say("commit\n");
    assert_eq!(holder.hear(), "commit: ok\n", "{context}");
    let out = holder.end();
    assert!(out.status.success(), "{context}: {}", Told(&out));
    assert_new(work, dir, here, &context);
}

/// Fails unless the transaction is there, whole, and nothing else of it.
#[track_caller]
fn assert_new(work: &Work, dir: &Path, here: &Place, context: &str) {
    let listed = here.in_time(&dir.join(WORKTREE)).args(LIST).run().text();
    assert_eq!(listed, work.new.listed, "{context}: at the end");
    let found = Whole::read(dir);
    assert_eq!(found.listed, work.new.listed, "{context}: Git at the end");
    assert_eq!(found.logs, work.new.logs, "{context}: reflogs at the end");
    assert_eq!(locks(&dir.join(".git")), [], "{context}: locks are left");
}

/// A process that was stopped at a system call.
struct Stopped {
    running: Dialogue,
    /// Its number, if it came to the point.
    pid: Option<u32>,
}

impl Stopped {
    /// Runs the transaction until a system call.
    fn at(work: &Work, dir: &Path, at: &Call, there: &Place) -> Stopped {
        let log = dir.join("strace");
        let word = dir.file_name().expect("a name").to_str().expect("text");
        let run = there.traced(&dir.join(WORKTREE), &log, Some(("SIGSTOP", at)));
        let run = run.args(["update-ref", "-m", word, "--stdin"]);
        let mut running = run.begin();
        // With a commit, it ends without an end of the input.
        running.say(&format!("start\n{}prepare\ncommit\n", work.script));
        let begun = Instant::now();
        let pid = loop {
            let log = fs::read(&log).unwrap_or_default();
            let log = String::from_utf8_lossy(&log);
            if log.contains("--- stopped by SIGSTOP ---") {
                break places::process_of(word);
            }
            assert!(
                begun.elapsed() < STOPPED_WITHIN,
                "{at:?}: it is not there:\n{log}"
            );
            if log.contains("exit_group(") {
                break None;
            }
            sleep(Duration::from_millis(2));
        };
        Stopped { running, pid }
    }

    /// Lets it go on, and waits for its end.
    fn go_on(self, context: &str) {
        if let Some(pid) = self.pid {
            let pid = pid.to_string();
            let out = std::process::Command::new("/usr/bin/kill")
                .args(["-CONT", &pid])
                .status();
            assert!(out.is_ok_and(|status| status.success()), "{context}");
        }
        let out = self.running.end();
        assert!(out.status.success(), "{context}: {}", Told(&out));
        let said = String::from_utf8_lossy(&out.stdout);
        assert!(said.ends_with("commit: ok\n"), "{context}: {}", Told(&out));
    }
}

/// Stops the transaction at a system call in one place, and does in another what others do; returns
/// whether it came to that call.
fn stop(work: &Work, at: &Call, there: &Place, here: &Place) -> bool {
    let context = format!(
        "{}, stopped at {at:?} in {}, seen from {}",
        work.base.format(),
        there.name,
        here.name
    );
    let copy = work.base.duplicate();
    let dir = copy.path();
    let place = dir.join(WORKTREE);
    let git_dir = dir.join(".git");
    let stopped = Stopped::at(work, dir, at, there);
    if stopped.pid.is_none() {
        stopped.go_on(&context);
        return false;
    }
    let held = locks(&git_dir);
    // Nothing is changed by this, so that it does not matter whether a lock is held at this moment.
    for args in [
        &["for-each-ref"][..],
        &["for-each-ref", "--count=1", "refs/heads/loose"],
        &["symbolic-ref", "HEAD"],
        &["update-ref", "-d", "refs/heads/not-there"],
        &[
            "update-ref",
            "--no-deref",
            "refs/heads/side",
            &work.base.objects().commits[0],
        ],
    ] {
        let out = here.in_time(&place).args(args).run();
        // 124 and 137 say that the time was up.
        assert!(
            ![124, 137].contains(&out.code()),
            "{context}: {args:?}: {}",
            Told(&out)
        );
        let is_reading = args[0] == "for-each-ref";
        assert!(
            !is_reading || out.status.success(),
            "{context}: {args:?}: {}",
            Told(&out)
        );
        assert_eq!(locks(&git_dir), held, "{context}: {args:?}: {}", Told(&out));
    }
    let listed = here.in_time(&place).args(LIST).run().text();
    for line in listed.lines() {
        let mut sides = work.old.listed.lines().chain(work.new.listed.lines());
        assert!(sides.any(|side| side == line), "{context}: {line}");
    }
    stopped.go_on(&context);
    let listed = here.in_time(&place).args(LIST).run().text();
    assert_eq!(listed, work.new.listed, "{context}: at the end");
    assert_eq!(
        listed_by_git(dir),
        work.new.listed,
        "{context}: Git at the end"
    );
    assert_eq!(locks(&git_dir), [], "{context}: locks are left");
    true
}

/// Stops at points of the transaction in one place, and looks from another.
fn stop_everywhere(format: Format, most: u64, there: &Place, here: &Place) {
    let work = Work::new(format);
    let copy = work.base.duplicate();
    let points = work.points(there, copy.path(), most);
    let stopped = points.iter().filter(|at| stop(&work, at, there, here));
    assert!(stopped.count() > 0, "nothing was stopped in {}", there.name);
}

for_every_format! {
    fn nobody_breaks_what_is_prepared_in_another_place(format) {
        let (work, here) = (Work::new(format), Place::here());
        for place in &Place::elsewhere() {
            prepare(&work, place, &here);
            prepare(&work, &here, place);
            if place.is_container() {
                prepare(&work, place, place);
            }
        }
    }

    fn nobody_breaks_what_is_prepared_where_no_links_can_be_made(format) {
        let place = Place::without_links();
        if place.is_there() {
            prepare(&Work::new(format), &place, &place);
        }
    }

    fn nobody_breaks_what_is_prepared_where_files_have_no_permissions(format) {
        let place = Place::without_permissions();
        if place.is_there() {
            prepare(&Work::new(format), &place, &place);
        }
    }

    fn a_process_that_was_stopped_commits_everything_when_it_goes_on(format) {
        let here = Place::here();
        for place in &Place::elsewhere() {
            stop_everywhere(format, POINTS, place, &here);
            stop_everywhere(format, POINTS, &here, place);
            if place.is_container() {
                stop_everywhere(format, POINTS, place, place);
            }
        }
    }

    fn a_process_that_was_stopped_where_no_links_can_be_made_commits_everything(format) {
        let place = Place::without_links();
        if place.is_there() {
            stop_everywhere(format, 4 * POINTS, &place, &place);
        }
    }
}
