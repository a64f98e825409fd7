//! Two transactions of which the first is prepared before the second comes, in every pair, so that
//! nothing depends on who is faster.
//!
//! 1. Their names are in each other's way: not both are committed.
//! 2. Somebody removes all locks after the first was prepared, as people do who take them for left:
//!    what is acknowledged has happened, and nothing that was acknowledged to the other is undone.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Instant;

use bstr::ByteSlice;
use refdb_testkit::dialogue::wait_until;
use refdb_testkit::linear::{Edit, Fault, History, Isolation, Value, check};
use refdb_testkit::objects::Objects;
use refdb_testkit::oracle;
use refdb_testkit::repo::Repo;
use refdb_testkit::trust::Tally;
use refdb_testkit::{Format, RefFormat};

use super::actor::{Actor, Done, How, Op, Program};
use super::listing::{self, Listing};
use super::names::{BRANCHES, LINK, MANY, NESTED, SPARE};
use super::round::{Arena, settle};

/// Removes every file and link that ends in `.lock`, and nothing that ends otherwise.
fn remove_locks(dir: &Path) -> usize {
    let mut count = 0;
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            count += remove_locks(&path);
        } else if path.extension().is_some_and(|it| it == "lock") {
            fs::remove_file(&path).expect("nobody else removes it");
            count += 1;
        }
    }
    count
}

/// What is prepared, and what others write before it is committed.
fn cases(commits: &[String]) -> Vec<(Vec<Edit>, Vec<Option<Edit>>)> {
    let [main, x] = BRANCHES;
    let [old, new, other] = [0, 1, 2].map(|index| commits[index].as_str());
    let oid = |oid: &str| Value::Oid(oid.to_owned());
    let spare = || Some(Edit::create(SPARE, other));
    let theirs = |name: &str| Some(Edit::put(name, oid(other)));
    let link = |name: &str, target: &str| Edit::put(name, Value::Symbolic(target.to_owned()));
    let above = || Some(Edit::create(NESTED[0], other));
    let swap = |name: &str| Edit::swap(name, old, new);
    let gone = Some(Edit::delete(x));
    vec![
        (vec![swap(x)], vec![None, spare(), theirs(x), gone.clone()]),
        (
            vec![swap("HEAD")],
            vec![None, spare(), theirs(main), Some(link("HEAD", x))],
        ),
        (
            vec![swap(main), swap(x)],
            vec![None, spare(), theirs(main), theirs(x), gone],
        ),
        (
            vec![Edit::create(NESTED[1], new)],
            vec![None, spare(), theirs(NESTED[1]), above(), theirs(NESTED[2])],
        ),
        (vec![Edit::delete(x)], vec![None, spare(), theirs(x)]),
        (
            vec![Edit::delete(x), swap(main)],
            vec![None, spare(), theirs(x), theirs(main)],
        ),
        (
            vec![link(LINK, x)],
            vec![None, spare(), Some(link(LINK, main)), theirs(LINK)],
        ),
        (
            vec![Edit::create(MANY[0], new)],
            vec![None, spare(), theirs(NESTED[1]), above()],
        ),
        (
            vec![Edit::create(MANY[0], new), swap(x)],
            vec![None, spare(), theirs(x), above()],
        ),
    ]
}

/// When the second transaction is committed: both before the first is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Second {
    /// It is a command of its own, and done before the first one is committed.
    Done,
    /// The same, and all refs are packed then: no directory is left that would be in the way.
    Packed,
    /// It is prepared before the first one is committed, and committed after it.
    Prepared,
}

/// Two transactions.
struct Case<'a> {
    format: Format,
    /// Whether the refs are packed to begin with.
    packed: bool,
    /// Whether reflogs are kept.
    has_logs: bool,
    by: [Program; 2],
    edits: &'a [Edit],
    rival: Option<(&'a [Edit], Second)>,
    /// Whether the locks of the first are removed before the second comes.
    is_unlocked: bool,
}

impl Case<'_> {
    fn arena(&self) -> Arena {
        let arena = Arena::new(self.format, false, self.has_logs);
        // Where the first one's locks are respected, the second one shall not wait for long.
        arena.hurry();
        let commits = &arena.repo.objects().commits;
        let create = |name: &str| format!("create {name} {}\n", commits[0]);
        arena.repo.update_refs(BRANCHES.map(create).concat());
        if self.packed {
            arena.repo.git(["pack-refs", "--all"]).run().ok();
        }
        arena
    }

    /// Returns what is wrong.
    fn run(&self) -> Option<String> {
        let arena = self.arena();
        let first = listing::of_library(&arena.git_dir).and_then(Listing::settled);
        let mut history = History {
            first: first.expect("nobody else is there").into_iter().collect(),
            calls: Vec::new(),
        };
        let start = Instant::now();
        let actor = |index: usize| Actor {
            program: self.by[index],
            dir: &arena.dir,
            beside_migration: false,
            stop: None,
            start,
        };
        let [mut one, mut other] = [Done::default(), Done::default()];
        let mut session = actor(0).session(self.edits);
        assert!(session.prepare(), "the first is alone");
        if self.is_unlocked {
            assert!(remove_locks(&arena.git_dir) > 0, "there were no locks");
        }
        let mut second = None;
        match self.rival {
            None => {}
            Some((edits, Second::Done | Second::Packed)) => {
                let op = Op::Write(edits.to_vec(), How::Plain);
                other = actor(1).carry_out(&op, self.format.refs);
            }
            Some((edits, Second::Prepared)) => {
                let mut session = actor(1).session(edits);
                session.prepare();
                second = Some(session);
            }
        }
        if matches!(self.rival, Some((_, Second::Packed))) {
            let packed = actor(1).carry_out(&Op::Pack, self.format.refs);
            other.odd.extend(packed.odd);
        }
        session.end("commit", &mut one);
        if let Some(second) = second {
            second.end("commit", &mut other);
        }
        history.calls.append(&mut one.calls);
        history.calls.append(&mut other.calls);
        let mut wrong = [one.odd, other.odd].concat();
        if self.is_unlocked {
            // What it says of the locks that it lost is its own affair.
            wrong.clear();
        }
        wrong.extend(settle(&arena, start, &mut history).err());
        match check(&history, Isolation::EachRef) {
            Ok(_) => {}
            Err(Fault::Wrong(why)) => wrong.push(why),
            Err(Fault::Undecided) => wrong.push("undecided".into()),
        }
        wrong.extend(listing::leftovers(&arena.repo).err());
        let (format, by, wrong) = (self.format, self.by, wrong.join("\n"));
        let packed = if self.packed { ", packed" } else { "" };
        let logs = if self.has_logs { ", reflogs" } else { "" };
        (!wrong.is_empty()).then(|| format!("{format}, {by:?}{packed}{logs}: {wrong}\n{history}"))
    }
}

/// Runs a case with refdb and refdb, refdb and Git, Git and refdb, and two Gits. What is wrong with two
/// Gits as well is not counted, unless it is refdb that is asked to commit last and has its locks:
/// then it can see what Git did.
fn in_every_pair(
    case: &Case<'_>,
    tally: &mut Tally,
    wrong: &mut Vec<String>,
    gits_own: &mut Vec<String>,
) {
    let (refdb, git) = (Program::Refdb, Program::Git);
    let run = |by| Case { by, ..*case }.run();
    tally.add(1);
    wrong.extend(run([refdb, refdb]));
    if case.rival.is_none() {
        return;
    }
    for by in [[refdb, git], [git, refdb]] {
        // With Git's own locks gone it is Git that fails.
        if case.is_unlocked && by[0] == git {
            continue;
        }
        tally.add(1);
        if let Some(why) = run(by) {
            let is_refdbs = by[0] == refdb && !case.is_unlocked;
            match run([git, git]) {
                Some(of_git) if !is_refdbs => gits_own.push(of_git),
                _ => wrong.push(why),
            }
        }
    }
}

fn tell(tally: &Tally, wrong: &[String], gits_own: &[String]) {
    if let Some(one) = gits_own.first() {
        eprintln!(
            "{} cases are wrong with two Gits as well, such as {one}",
            gits_own.len()
        );
    }
    let (count, all) = (wrong.len(), tally.count());
    assert!(
        wrong.is_empty(),
        "{count} of {all}:\n\n{}",
        wrong.join("\n\n")
    );
}

fn locks_are_removed(format: Format) {
    let mut tally = Tally::begin("races: transactions whose locks are removed", 0);
    let commits = Objects::standard(format.objects);
    let (mut wrong, mut gits_own) = (Vec::new(), Vec::new());
    for (edits, rivals) in cases(&commits.commits) {
        for rival in rivals {
            let rival = rival.map(|edit| vec![edit]);
            for packed in [false, true] {
                if packed && format.refs == RefFormat::Reftable {
                    continue;
                }
                let case = Case {
                    format,
                    packed,
                    has_logs: true,
                    by: [Program::Refdb; 2],
                    edits: &edits,
                    rival: rival.as_ref().map(|edits| (&edits[..], Second::Done)),
                    is_unlocked: true,
                };
                in_every_pair(&case, &mut tally, &mut wrong, &mut gits_own);
            }
        }
    }
    tell(&tally, &wrong, &gits_own);
}

fn names_are_in_the_way(format: Format) {
    let mut tally = Tally::begin("races: transactions prepared in each other's way", 0);
    let commits = &Objects::standard(format.objects).commits;
    let [main, x] = BRANCHES;
    let (mut wrong, mut gits_own) = (Vec::new(), Vec::new());
    let transactions = |new: &str| {
        let create = |name: &str| Edit::create(name, new);
        let mut all: Vec<Vec<Edit>> = NESTED.iter().map(|name| vec![create(name)]).collect();
        all.push(vec![create(MANY[0])]);
        all.push(vec![create(MANY[1]), Edit::swap(x, &commits[0], new)]);
        all.push(vec![create(NESTED[1]), Edit::swap(main, &commits[0], new)]);
        all
    };
    for edits in transactions(&commits[1]) {
        for rival in transactions(&commits[2]) {
            for (second, has_logs) in [
                (Second::Done, false),
                (Second::Done, true),
                (Second::Packed, false),
                (Second::Prepared, false),
            ] {
                let is_of_files = has_logs || second == Second::Packed;
                if is_of_files && format.refs == RefFormat::Reftable {
                    continue;
                }
                let case = Case {
                    format,
                    packed: false,
                    has_logs,
                    by: [Program::Refdb; 2],
                    edits: &edits,
                    rival: Some((&rival, second)),
                    is_unlocked: false,
                };
                in_every_pair(&case, &mut tally, &mut wrong, &mut gits_own);
            }
        }
    }
    tell(&tally, &wrong, &gits_own);
}

#[test]
fn names_in_the_way_are_never_both_prepared_and_committed_in_files() {
    names_are_in_the_way(Format::FILES_SHA1);
}

#[test]
fn names_in_the_way_are_never_both_prepared_and_committed_in_reftable() {
    names_are_in_the_way(Format::REFTABLE_SHA1);
}

#[test]
fn nothing_is_done_for_nothing_when_locks_are_removed_in_files() {
    locks_are_removed(Format::FILES_SHA1);
}

#[test]
fn nothing_is_done_for_nothing_when_locks_are_removed_in_reftable() {
    locks_are_removed(Format::REFTABLE_SHA1);
}

/// Git looks for the name of a new ref under its lock, and later for what is in the way of it. In between no
/// other ref may get that name, from a packed ref above, of which nothing bars the place of the lock.
#[test]
fn nothing_is_renamed_to_a_name_that_git_is_about_to_make() {
    for format in [Format::FILES_SHA1, Format::FILES_SHA256] {
        let repo = Repo::init(format);
        let [old, new] = [0, 1].map(|index| repo.objects().commits[index].clone());
        repo.update_refs(format!(
            "create {} {old}\ncreate {SPARE} {old}\n",
            NESTED[0]
        ));
        repo.git(["pack-refs", "--all"]).run().ok();
        // Git takes the first lock, and waits for the second.
        let [made, second] =
            [NESTED[2], SPARE].map(|name| repo.git_dir().join(format!("{name}.lock")));
        fs::write(&second, "").expect("nobody else is there");
        let mut git = oracle::git(repo.path())
            .args(["-c", "core.filesRefLockTimeout=-1", "update-ref", "--stdin"])
            .begin();
        git.say(&format!(
            "start\ncreate {} {new}\nupdate {SPARE} {new}\ncommit\n",
            NESTED[2]
        ));
        wait_until("Git has the first lock", || made.exists());
        let renamed = Program::Refdb
            .run(repo.path())
            .args([
                "-c",
                "core.filesRefLockTimeout=30",
                "refs",
                "rename",
                NESTED[0],
                NESTED[2],
            ])
            .run();
        fs::remove_file(&second).expect("nobody else is there");
        let made = git.end();
        let said = made.stderr.as_bstr();
        assert_ne!([renamed.code(), made.code()], [0, 0], "{format}: not both");
        let there = repo.git(["rev-parse", NESTED[0]]).run().text();
        assert_eq!(there, old, "{format}: {said}");
        // Nobody is in the way any more.
        let renamed = ["refs", "rename", NESTED[0], NESTED[2]];
        Program::Refdb.run(repo.path()).args(renamed).run().ok();
        let refs = repo
            .git(["for-each-ref", "--format=%(refname) %(objectname)"])
            .run()
            .text();
        assert_eq!(
            refs,
            format!("{} {old}\n{SPARE} {old}", NESTED[2]),
            "{format}"
        );
        listing::leftovers(&repo).expect("nothing is left");
    }
}

/// Where a ref gets a name above or below its old one, nobody makes a third in the way of the new one while the
/// transaction is prepared: one that the old name was not in the way of, or one that the new name is.
#[test]
fn nothing_comes_in_the_way_of_a_ref_that_is_renamed() {
    let [above, middle, below] = NESTED;
    let cases = [
        (below, above, "refs/heads/a/x"),
        (below, middle, "refs/heads/a/b/x"),
        (below, above, middle),
        (above, below, middle),
        (above, below, below),
        (above, middle, below),
    ];
    for format in [Format::FILES_SHA1, Format::FILES_SHA256] {
        for (from, to, third) in cases {
            beside_a_third(format, [from, to, third], false, Program::Git);
            beside_a_third(format, [from, to, third], true, Program::Git);
            beside_a_third(format, [from, to, third], true, Program::Refdb);
        }
    }
}

fn beside_a_third(format: Format, [from, to, third]: [&str; 3], is_packed: bool, by: Program) {
    let what = format!("{format}: {from} to {to}, {third} by {by:?}, packed: {is_packed}");
    let repo = Repo::init(format);
    repo.config("core.filesRefLockTimeout", "30");
    repo.config("core.logAllRefUpdates", "always");
    let commit = repo.objects().commits[0].clone();
    repo.update_refs(format!("create {from} {commit}\n"));
    if is_packed {
        repo.git(["pack-refs", "--all"]).run().ok();
    }
    let [asked, done] = ["asked", "done"].map(|mark| repo.git_dir().join(mark));
    let hook = format!(
        "#!/bin/sh\ntest $1 = prepared -a ! -e {asked} || exit 0\ntouch {asked}\n\
         while ! test -e {done}; do sleep 0.01; done\n",
        asked = asked.display(),
        done = done.display()
    );
    let hooks = repo.git_dir().join("hooks");
    fs::create_dir_all(&hooks).expect("a folder");
    let path = hooks.join("reference-transaction");
    fs::write(&path, hook).expect("a hook");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let renaming = Program::Refdb
        .run(repo.path())
        .args(["refs", "rename", from, to])
        .begin();
    wait_until(&what, || asked.exists());
    let made = by
        .run(repo.path())
        .args(["update-ref", third, &commit])
        .run();
    fs::write(&done, "").expect("nobody else is there");
    let renamed = renaming.end();
    let said = [&renamed, &made].map(|it| it.stderr.to_str_lossy().into_owned());
    assert_ne!([renamed.code(), made.code()], [0, 0], "{what}: not both");
    let mut expected = match renamed.code() {
        0 => vec![to],
        _ => vec![from],
    };
    if made.code() == 0 {
        expected.push(third);
    }
    expected.sort_unstable();
    let refs = repo
        .git(["for-each-ref", "--format=%(refname)"])
        .run()
        .text();
    assert!(
        refs.lines().eq(expected.clone()),
        "{what}: {refs}, {said:?}"
    );
    let logs = repo.git(["reflog", "list"]).run().text();
    assert!(logs.lines().eq(expected), "{what}: {logs}, {said:?}");
    listing::leftovers(&repo).expect(&what);
    let last = if renamed.code() == 0 { to } else { from };
    repo.git(["update-ref", last, &commit]).run().ok();
}
