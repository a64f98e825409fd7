//! All refs, as a program or the library lists them.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bstr::ByteSlice;
use refdb::{Store, TargetRef};
use refdb_testkit::linear::{Act, Call, Value, twice};
use refdb_testkit::ours;
use refdb_testkit::repo::Repo;

use super::actor::Program;
use super::names::{LINK, MANY, SPREAD, gather};

/// The library keeps so many listings of a round, if they differ.
const LISTINGS: usize = 60;

/// Refs in the order in which they were listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listing(Vec<(String, Value)>);

impl Listing {
    /// Returns what was listed while others wrote: of many refs that belong together, the first.
    pub(crate) fn at_once(self) -> Result<Vec<(String, Value)>, String> {
        let count = self.0.len();
        twice(&self.0).map_err(|name| format!("{name} twice in one listing of {count} lines"))?;
        let mut listed: Vec<(String, Value)> = Vec::new();
        for (name, value) in self.0 {
            let name = gather(&name).to_owned();
            if !listed.iter().any(|(other, _)| *other == name) {
                listed.push((name, value));
            }
        }
        Ok(listed)
    }

    /// Returns what is listed when nobody writes: many refs that belong together are all there
    /// with one value, or none of them.
    pub(crate) fn settled(self) -> Result<Vec<(String, Value)>, String> {
        for many in MANY {
            let all = self.0.iter().filter(|(name, _)| gather(name) == many);
            let values: Vec<&Value> = all.map(|(_, value)| value).collect();
            let is_one = values.windows(2).all(|pair| pair[0] == pair[1]);
            if !values.is_empty() && (values.len() != SPREAD || !is_one) {
                return Err(format!(
                    "{} of {SPREAD} refs {many}: {values:?}",
                    values.len()
                ));
            }
        }
        self.at_once()
    }
}

/// Lists with a program while others write. Where a symref leads is asked later than whether it
/// is one, by Git too: if it leads nowhere by then, it looks like none. So no symref says that.
pub(crate) fn beside_others(program: Program, dir: &Path) -> Result<Vec<(String, Value)>, String> {
    let mut listed = of_program(program, dir).and_then(Listing::at_once)?;
    for (name, value) in &mut listed {
        if ["HEAD", LINK].contains(&name.as_str()) && matches!(value, Value::Oid(_)) {
            *value = Value::Symbolic(name.clone());
        }
    }
    Ok(listed)
}

/// Lists with a program.
pub(crate) fn of_program(program: Program, dir: &Path) -> Result<Listing, String> {
    let format = "--format=%(refname) %(objectname) %(symref)";
    let run = program
        .run(dir)
        .args(["for-each-ref", "--include-root-refs", format]);
    let out = run.run();
    if !out.status.success() {
        let said = out.stderr.to_str_lossy();
        return Err(format!(
            "{program:?} cannot list: exit {}: {said}",
            out.code()
        ));
    }
    // In a linked worktree Git can tell the target of another symref (`gits_own`).
    let is_linked_git = program == Program::Git && dir.join(".git").is_file();
    let mut listed = Vec::new();
    for line in out.stdout.to_str_lossy().lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let [name, oid, symref] = fields[..] else {
            return Err(format!("{program:?} lists {line:?}"));
        };
        let value = match symref {
            "" => Value::Oid(oid.into()),
            target => Value::Symbolic(match is_linked_git {
                true => target_of(name, dir).unwrap_or_else(|| name.to_owned()),
                false => target.into(),
            }),
        };
        listed.push((name.to_owned(), value));
    }
    Ok(Listing(listed))
}

/// Asks Git where a symref leads.
fn target_of(name: &str, dir: &Path) -> Option<String> {
    let out = Program::Git
        .run(dir)
        .args(["symbolic-ref", "-q", name])
        .run();
    out.status.success().then(|| out.text())
}

/// Lists with the library, symrefs that lead nowhere too.
pub(crate) fn of_library(git_dir: &Path) -> Result<Listing, String> {
    of_store(ours::open(git_dir).store())
}

fn of_store(store: &Store) -> Result<Listing, String> {
    let failed = |error: refdb::Error| format!("the library cannot list: {error}");
    let mut refs = store.refs().map_err(failed)?;
    let mut listed = Vec::new();
    while let Some(record) = refs.next().map_err(failed)? {
        let value = match record.target {
            TargetRef::Direct(oid) => Value::Oid(oid.to_string()),
            TargetRef::Symbolic(target) => Value::Symbolic(target.as_bytes().to_str_lossy().into()),
        };
        listed.push((record.name.as_bytes().to_str_lossy().into(), value));
    }
    Ok(Listing(listed))
}

/// Lists with the library without pause until the workers are done: it is quick enough to meet
/// directories that change while they are read.
pub(crate) fn watch_by_library(
    git_dir: &Path,
    start: Instant,
    done: &AtomicBool,
) -> super::actor::Done {
    let mut seen = super::actor::Done::default();
    let repository = ours::open(git_dir);
    let mut last = None;
    while !done.load(Ordering::SeqCst) && seen.odd.is_empty() {
        let begun = start.elapsed();
        let listed = of_store(repository.store()).and_then(Listing::at_once);
        let ended = start.elapsed();
        match listed {
            Ok(listed) if last.as_ref() != Some(&listed) && seen.calls.len() < LISTINGS => {
                last = Some(listed.clone());
                seen.calls.push(Call {
                    who: "library reads".into(),
                    begun,
                    ended,
                    act: Act::List(listed),
                });
            }
            Ok(_) => {}
            Err(why) => seen.odd.push(why),
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    seen
}

/// Fails if locks are left, a line of packed-refs stands twice, or Git finds fault.
pub(crate) fn leftovers(repo: &Repo) -> Result<(), String> {
    let mut left = Vec::new();
    locks(&repo.git_dir(), &mut left);
    if !left.is_empty() {
        let some = &left[..left.len().min(3)];
        return Err(format!("{} locks were left: {some:?}", left.len()));
    }
    let packed = fs::read_to_string(repo.git_dir().join("packed-refs")).unwrap_or_default();
    let mut names: Vec<&str> = packed
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(format!(
            "{} stands twice in packed-refs:\n{packed}",
            pair[0]
        ));
    }
    let out = repo.git(["refs", "verify"]).run();
    match out.status.success() {
        true => Ok(()),
        false => Err(format!("git refs verify: {}", out.stderr.to_str_lossy())),
    }
}

/// Finds locks, and links that lead nowhere where a directory would be.
fn locks(dir: &Path, left: &mut Vec<String>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        let is_lock = path.extension().is_some_and(|it| it == "lock");
        if is_lock || kind.is_symlink() && !path.exists() {
            left.push(path.display().to_string());
        } else if kind.is_dir() && !path.ends_with("objects") {
            locks(&path, left);
        }
    }
}
