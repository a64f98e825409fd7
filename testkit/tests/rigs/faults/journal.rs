//! What is done between the death of a process and the next one that reads refs.
//!
//! The dead process is stopped at every operation of a transaction over several refs; then real Git
//! works in what it left; then refdb reads. Nothing that Git did is undone, and what Git did not touch
//! is old or new throughout.

use std::io::Write;
use std::os::unix::ffi::OsStringExt;

use refdb_testkit::repo::Repo;

use super::planted::{Bug, planted};
use super::*;

/// The name of a ref that no transaction here touches.
const APART: &str = "refs/heads/apart";

fn git_repository(format: Format) -> (Repo, Vec<String>) {
    let repo = Repo::init(format);
    let commits = repo.objects().commits.clone();
    let first = &commits[0];
    repo.update_refs(format!(
        "create refs/heads/one {first}\ncreate refs/heads/two {first}\n\
         create refs/tags/three {first}\ncreate refs/heads/four {first}\n"
    ));
    repo.git(["pack-refs", "--include", "refs/tags/*"])
        .run()
        .ok();
    (repo, commits)
}

/// A transaction over several refs: two values, one deletion, and a new ref.
fn transaction(system: &SimSystem, format: Format, to: &str) -> Result<Acknowledged> {
    let process = Process::new(system.clone(), format);
    let oid = ObjectId::from_hex(to.as_bytes()).expect("an object id");
    let update = |text: &str| Edit::update(RefName::from(&name(text)), oid).into_owned();
    let edits = vec![
        update("refs/heads/one"),
        update("refs/heads/two"),
        delete("refs/tags/three"),
        update("refs/heads/new"),
    ];
    commit(&process.main, edits)
}

fn values(system: &SimSystem, format: Format) -> BTreeMap<String, String> {
    let process = Process::new(system.process(2000), format);
    let mut refs = process.main.refs().expect("readable");
    let mut found = BTreeMap::new();
    while let Some(record) = refs.next().expect("readable") {
        if let Some(oid) = record.target.oid() {
            found.insert(record.name.to_string(), oid.to_string());
        }
    }
    found
}

/// Copies a real repository into a simulated disk.
fn import(repo: &Repo) -> SimSystem {
    let system = SimSystem::new(5);
    system.create_dir(Path::new("/repo")).expect("room");
    system
        .import(&repo.git_dir(), Path::new(GIT_DIR))
        .expect("room");
    system
}

/// Has Git do something in what is on the simulated disk; returns what is there then, seen by
/// another process, and whether Git did it.
fn with_git(system: &SimSystem, repo: &Repo, args: &[&str]) -> (SimSystem, bool) {
    let git_dir = repo.git_dir();
    std::fs::remove_dir_all(&git_dir).expect("it is there");
    let other = system.process(3000);
    other.export(Path::new(GIT_DIR), &git_dir).expect("room");
    let done = repo.git(args.iter().copied()).run().status.success();
    // The clock and the processes of the machine go on, and so do files that Git left alone: names of
    // one file stay that.
    let after = system.fork();
    take_changes(&after.process(3000), Path::new(GIT_DIR), &git_dir);
    (after, done)
}

/// Makes a simulated directory what a real one is; what is the same already stays.
fn take_changes(system: &SimSystem, dir: &Path, real: &Path) {
    for entry in system.read_dir(dir).expect("it is there") {
        let name = std::ffi::OsString::from_vec(entry.name);
        let (path, real) = (dir.join(&name), real.join(&name));
        let is_there = real.symlink_metadata().is_ok();
        if !is_there && entry.kind == FileKind::Directory {
            take_changes(system, &path, &real);
            system.remove_dir(&path).expect("it is empty");
        } else if !is_there {
            system.remove_file(&path).expect("it is there");
        }
    }
    for entry in std::fs::read_dir(real).into_iter().flatten() {
        let entry = entry.expect("it can be read");
        let (path, real) = (dir.join(entry.file_name()), entry.path());
        let kind = entry.file_type().expect("it has a kind");
        if kind.is_dir() {
            let _ = system.create_dir(&path);
            take_changes(system, &path, &real);
        } else if kind.is_symlink() {
            let text = std::fs::read_link(&real).expect("it is a link");
            if system.read_link(&path).ok().as_ref() != Some(&text) {
                let _ = system.remove_file(&path);
                system.symlink(&text, &path).expect("room");
            }
        } else {
            let content = std::fs::read(&real).expect("it can be read");
            if system.read(&path).ok().as_ref() != Some(&content) {
                let new = dir.join("written by git");
                let mut file = system.create_new(&new, 0o666).expect("room");
                file.write_all(&content).expect("room");
                system.rename(&new, &path).expect("room");
            }
        }
    }
}

for_every_format! {
    fn what_git_does_between_death_and_recovery_stays(format) {
        let (repo, commits) = git_repository(format);
        let base = import(&repo);
        let old = values(&base.fork(), format);
        let system = base.fork();
        transaction(&system, format, &commits[1]).expect("no fault");
        let new = values(&system, format);
        assert_ne!(old, new);
        let ops = base.process(900);
        transaction(&ops, format, &commits[1]).expect("no fault");
        let base = import(&repo);
        for at in (0..=ops.op_count()).step_by(3) {
            let system = base.fork();
            system.set_fault(Some(Fault::dies_at(at)));
            let _ = transaction(&system, format, &commits[1]);
            system.end();
            for args in [
                ["update-ref", APART, &commits[2]],
                ["update-ref", "refs/heads/one", &commits[2]],
                ["update-ref", "-d", "refs/heads/four"],
            ] {
                let context = format!("dead before {at}, then git {args:?}");
                let (after, done) = with_git(&system, &repo, &args);
                let found = values(&after, format);
                let mut rest = found.clone();
                let (mut rest_old, mut rest_new) = (old.clone(), new.clone());
                let touched = args.iter().find(|arg| arg.starts_with("refs/")).expect("a name");
                for side in [&mut rest, &mut rest_old, &mut rest_new] {
                    side.remove(*touched);
                }
                assert!(rest == rest_old || rest == rest_new, "{context}: {found:#?}");
                let value = found.get(*touched);
                if done {
                    let gits = (args[1] != "-d").then_some(&commits[2]);
                    assert_eq!(value, gits, "{context}: what Git did was undone");
                } else {
                    let is_old = rest == rest_old && value == old.get(*touched);
                    let is_new = rest == rest_new && value == new.get(*touched);
                    assert!(is_old || is_new, "{context}: {found:#?}");
                }
            }
        }
    }
}

for_every_format! {
    fn who_may_not_write_can_read(format) {
        let cases = cases(format).into_iter();
        for (base, work) in cases.filter(|(_, work)| work.scope == Scope::Several) {
            let case = Case::new(base, format, work);
            for at in case.points(12) {
                let system = case.base.fork();
                system.set_fault(Some(Fault::dies_at(at)));
                let _ = case.run(&system);
                system.end();
                let reader = planted(system.process(1700), Bug::ReadOnly);
                let process = Process::with(Arc::from(reader), format, |_| {});
                let context = format!("{}, dead at {at}", case.workload.name);
                let mut refs = process.main.refs().expect(&context);
                while let Some(record) = refs.next().expect(&context) {
                    let key = format!("main {}", record.name);
                    let found = record.target.to_owned();
                    let sides = [&case.old, &case.new].map(|side| side.refs.get(&key));
                    assert!(sides.contains(&Some(&found)), "{context}: {key} is {found:?}");
                }
                let written = commit(&process.main, vec![process.update("refs/x", 1)]);
                assert!(written.is_err(), "{context}");
                // Whoever may write finishes what was begun.
                case.assert_works(&system, &context);
            }
        }
    }

    /// A call that fails is no absence: of a journal, of a lock, of new content.
    fn who_fails_to_look_sees_no_half(format) {
        let mut tally = Tally::begin("fault points", 0);
        let readers: [(&str, Wrap); 2] = [
            ("who may write", |system| Box::new(system)),
            ("who may not", |system| planted(system, Bug::ReadOnly)),
        ];
        let cases = cases(format).into_iter();
        for (base, work) in cases.filter(|(_, work)| work.scope == Scope::Several) {
            let case = Case::new(base, format, work);
            let [old, new] = [&case.old, &case.new].map(refs_of_main);
            let dies = |at: u64| {
                let dead = case.base.fork();
                dead.set_fault(Some(Fault::dies_at(at)));
                let _ = case.run(&dead);
                dead.end();
                // Before, it may be one of the living.
                dead.sleep(Duration::from_secs(1));
                let looks = dead.process(1600);
                let journal = looks.lstat(&Path::new(GIT_DIR).join("refdb.journal"));
                journal.is_ok().then_some((at, dead))
            };
            // When all is done, when something is, and when nothing is; with the second hash only when something is.
            let left: Vec<(u64, SimSystem)> = case.points(60).filter_map(dies).collect();
            let some = [left.len() / 2, 0, left.len().saturating_sub(1)];
            let most = if format.objects == ObjectFormat::Sha1 { 3 } else { 1 };
            for (at, dead) in some.iter().take(most).filter_map(|&some| left.get(some)) {
                for (who, wrap) in readers {
                    for second in 0.. {
                        let system = dead.fork();
                        let reader = system.process(1700);
                        reader.set_fault(Some(Fault::once(second, Io::Other)));
                        let name = &case.workload.name;
                        let context = format!("{name}, dead at {at}, {who}, operation {second}");
                        let store = Process::with(Arc::from(wrap(reader.clone())), format, |_| {});
                        if let Ok(found) = listed_refs(&store.main) {
                            assert!(found == old || found == new, "{context}: {found:#?}");
                        }
                        reader.end();
                        let found = refs_of_main(&case.state(&system));
                        assert!(found == old || found == new, "{context}, then: {found:#?}");
                        tally.add(1);
                        if reader.op_count() <= second {
                            break;
                        }
                    }
                }
            }
        }
    }
}

/// Returns the refs that the main worktree sees.
fn refs_of_main(state: &State) -> BTreeMap<String, Target> {
    let of_main = |(name, target): (&String, &Target)| {
        Some((name.strip_prefix("main ")?.to_owned(), target.clone()))
    };
    state.refs.iter().filter_map(of_main).collect()
}

fn listed_refs(store: &Store) -> Result<BTreeMap<String, Target>> {
    let mut found = BTreeMap::new();
    let mut refs = store.refs()?;
    while let Some(record) = refs.next()? {
        found.insert(record.name.to_string(), record.target.to_owned());
    }
    Ok(found)
}
