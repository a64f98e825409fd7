//! Damaged stores: a clear error or the right answer, and never a panic, never an endless loop,
//! never an empty listing instead of an error.
//!
//! Every file of a store is damaged in many seeded ways, and everything is read back. What a
//! reading may answer depends on what the format can notice:
//!
//! - a file that was cut, a table or list: an error, or exactly what was there;
//! - other damage: an error, or a listing that is not empty (a flipped bit in an object id of a
//!   table or of packed-refs cannot be noticed by anybody: neither format has a checksum there).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use refdb::error::Remedy;
use refdb::{LogOrder, RefName, Result};
use refdb_git::Repository;
use refdb_testkit::damage::Damage;
use refdb_testkit::repo::Repo;
use refdb_testkit::rng::Rng;
use refdb_testkit::{Format, RefFormat, for_every_format};

/// Damages for each file of a store.
const SEEDS_PER_FILE: u64 = 60;

/// Everything that can be read, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Reading {
    refs: BTreeMap<Vec<u8>, String>,
    broken: usize,
    logs: BTreeMap<Vec<u8>, Vec<String>>,
}

fn read(git_dir: &Path) -> Result<Reading> {
    let repository = Repository::open(git_dir)?;
    let store = repository.store();
    let mut reading = Reading::default();
    let mut refs = store.refs()?;
    while let Some(record) = refs.next()? {
        if record.broken || record.has_bad_name() {
            reading.broken += 1;
        } else {
            let value = format!("{:?} {:?}", record.target, record.peeled);
            reading.refs.insert(record.name.as_bytes().to_vec(), value);
        }
    }
    for name in store.log_names()? {
        let entries = store
            .log(name.as_name(), LogOrder::NewestFirst)?
            .unwrap_or_default();
        let lines = entries.iter().map(|entry| format!("{entry:?}")).collect();
        reading.logs.insert(name.as_bytes().to_vec(), lines);
    }
    Ok(reading)
}

/// Looks every name up by itself; the answers matter only in that there is one.
fn look_up(git_dir: &Path, names: &[Vec<u8>]) -> Result<()> {
    let repository = Repository::open(git_dir)?;
    for name in names {
        let Ok(name) = RefName::lax(name) else {
            continue;
        };
        if let Some(resolved) = repository.store().resolve(name)? {
            repository.store().refs_by_oid(resolved.oid)?;
        }
    }
    Ok(())
}

/// Returns the files that hold refs and reflogs.
fn store_files(git_dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![
        git_dir.join("refs"),
        git_dir.join("logs"),
        git_dir.join("reftable"),
    ];
    files.extend([git_dir.join("HEAD"), git_dir.join("packed-refs")]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path)
            } else {
                files.push(path)
            }
        }
    }
    files.retain(|file| file.is_file() && fs::metadata(file).is_ok_and(|data| data.len() > 0));
    // Reflogs last: there are many, and damage to one is seldom told.
    let is_log = |file: &Path| file.starts_with(git_dir.join("logs"));
    files.sort_by_key(|file| (is_log(file), file.clone()));
    files
}

/// A small store with everything in it: branches with reflogs, annotated tags, symrefs, and for
/// `files` some refs packed and some loose.
fn subject(format: Format) -> Repo {
    let repo = Repo::init(format);
    let objects = repo.objects();
    let mut script = String::new();
    for at in 0..150 {
        let commit = &objects.commits[at];
        script.push_str(&format!(
            "create refs/heads/team-{}/topic-{at} {commit}\n",
            at % 7
        ));
    }
    for (at, tag) in objects.tags.iter().enumerate() {
        script.push_str(&format!("create refs/tags/v{at} {}\n", tag.id));
    }
    repo.update_refs(script);
    repo.git(["pack-refs", "--all"]).run().ok();
    let commit = &objects.commits[200];
    repo.update_refs(format!(
        "create refs/heads/main {commit}\nupdate refs/heads/team-0/topic-0 {commit}\n\
         create refs/remotes/origin/main {commit}\ndelete refs/heads/team-1/topic-1\n"
    ));
    let head = [
        "symbolic-ref",
        "refs/remotes/origin/HEAD",
        "refs/remotes/origin/main",
    ];
    repo.git(head).run().ok();
    repo
}

for_every_format! {
    fn damage_is_told(format) {
        let repo = subject(format);
        let git_dir = repo.git_dir();
        let whole = read(&git_dir).expect("the store is whole");
        assert!(whole.refs.len() > 200 && whole.broken == 0);
        let names: Vec<Vec<u8>> = whole.refs.keys().step_by(25).cloned().collect();
        // All refs, and of the many alike a few.
        let (logs, refs): (Vec<_>, Vec<_>) = store_files(&git_dir)
            .into_iter()
            .partition(|file| file.starts_with(git_dir.join("logs")));
        assert!(refs.len() > 2, "too few files: {refs:?}");
        let mut told = 0;
        for file in refs.iter().chain(logs.iter().step_by(50)) {
            let original = fs::read(file).expect("it can be read");
            for seed in 0..SEEDS_PER_FILE {
                let mut rng = Rng::new(seed);
                let damage = Damage::any(&mut rng, &original);
                let mut damaged = original.clone();
                damage.apply(&mut damaged);
                // A new file, as a copy of the damaged repository would have.
                fs::remove_file(file).expect("it can be removed");
                fs::write(file, &damaged).expect("it can be written");
                let what = format!("{} {damage:?} (seed {seed})", file.display());
                told += usize::from(check(format, file, &git_dir, &whole, &damage, &what));
                let _ = look_up(&git_dir, &names);
            }
            fs::remove_file(file).expect("it can be removed");
            fs::write(file, &original).expect("it can be written");
        }
        assert!(told > 100, "only {told} damages were told");
        assert_eq!(read(&git_dir).expect("whole again"), whole);
    }
}

/// Reads a damaged store; returns whether the damage was told.
fn check(
    format: Format,
    file: &Path,
    git_dir: &Path,
    whole: &Reading,
    damage: &Damage,
    what: &str,
) -> bool {
    let inside = |folder: &str| file.starts_with(git_dir.join(folder));
    match read(git_dir) {
        Err(error) => {
            let text = error.to_string();
            assert!(text.len() > 10, "no clear error: {text:?} after {what}");
            true
        }
        Ok(found) if found == *whole => false,
        Ok(found) => {
            assert!(!found.refs.is_empty(), "an empty listing after {what}");
            if inside("reftable") && matches!(damage, Damage::Truncate(_)) {
                panic!("a cut file went unnoticed: {what}");
            }
            if format.refs == RefFormat::Files && inside("logs") {
                assert_eq!(found.refs, whole.refs, "refs changed after {what}");
            }
            if format.refs == RefFormat::Files && inside("refs") {
                let lost = whole.refs.len() - found.refs.len();
                assert!(lost <= 1, "{lost} refs lost after {what}");
            }
            found.broken > 0
        }
    }
}

/// Makes a store of three tables; returns it with the path and the lines of its list.
fn stacked(format: Format) -> (Repo, PathBuf, Vec<String>) {
    let repo = subject(format);
    let list = repo.git_dir().join("reftable/tables.list");
    let commit = &repo.objects().commits[201];
    repo.config("reftable.geometricFactor", "2");
    repo.update_refs(format!("update refs/heads/main {commit}\n"));
    let lines: Vec<String> = fs::read_to_string(&list)
        .expect("a list")
        .lines()
        .map(str::to_owned)
        .collect();
    assert!(lines.len() > 1, "{lines:?}");
    (repo, list, lines)
}

#[test]
fn tables_in_the_wrong_order_are_told() {
    let (repo, list, lines) = stacked(Format::REFTABLE_SHA1);
    let git_dir = repo.git_dir();
    let mut swapped = lines.clone();
    swapped.swap(0, 1);
    let mut twice = lines.clone();
    twice.push(lines[0].clone());
    for lines in [swapped, twice] {
        fs::write(&list, lines.join("\n") + "\n").expect("it can be written");
        let error = read(&git_dir).expect_err("the order is wrong");
        let text = error.to_string();
        assert!(text.contains("no later update indices"), "{text}");
        assert_eq!(error.message().remedy(), Some(Remedy::Repair));
    }
}
