//! A repair that fails, dies, or loses power, at operations of every kind of damage that there is.
//!
//! 1. What could be read before can be read at any time, with its old value or the repaired one.
//! 2. The bytes of every damaged file are there: where they were, or aside.
//! 3. A second repair comes to what one comes to that nothing disturbs, and finds nothing after it.

use std::path::Path;

use refdb_git::Repository;
use refdb_git::repository::{Environment, OpenOptions};
use refdb_maintenance::repair::{self, plan};
use refdb_testkit::damage::corpus::{Subject, kinds};
use refdb_testkit::oracle;
use refdb_testkit::rng::Rng;
use refdb_testkit::trust::budget;

use super::planted::{Bug, is_caught, planted};
use super::*;

/// Points of each kind of damage in every test run: for each way to disturb it.
const SHORT: u64 = 2;

/// A damaged repository on a simulated disk.
struct Damaged {
    name: String,
    base: SimSystem,
    /// The objects, which are on the real disk.
    objects: PathBuf,
    /// What is changed or taken away, with its content.
    files: Vec<(PathBuf, Vec<u8>)>,
    /// What can be read before, if anything can, and what after a repair.
    before: Option<State>,
    after: State,
    /// The operations from the first after planning to the last.
    ops: std::ops::Range<u64>,
}

const ALL: repair::Options = repair::Options { remove_locks: true };

fn open(system: Arc<dyn System>, objects: &Path) -> Repository {
    let mut variables = oracle::environment();
    variables.push(("GIT_OBJECT_DIRECTORY".into(), objects.into()));
    let mut options = OpenOptions::new()
        .system(system)
        .damaged(true)
        .environment(Environment::from_pairs(variables));
    for key in [
        "core.filesRefLockTimeout",
        "core.packedRefsTimeout",
        "reftable.lockTimeout",
    ] {
        options = options.config(format!("{key}=0"));
    }
    options.open(Path::new(GIT_DIR)).expect("a repository")
}

/// Returns what can be read; `None` if the listing ends in an error.
fn read(repository: &Repository) -> Option<State> {
    let store = repository.store();
    let mut state = State::default();
    let mut refs = store.refs().ok()?;
    while let Some(record) = refs.next().ok()? {
        if !record.broken && !record.has_bad_name() {
            let target = record.target.to_owned();
            state.refs.insert(record.name.to_string(), target);
        }
    }
    for name in store.log_names().ok()? {
        let log = store.log(name.as_name(), LogOrder::OldestFirst).ok()?;
        state.logs.insert(name.to_string(), log);
    }
    Some(state)
}

impl Damaged {
    /// Brings a damaged repository onto a simulated disk, and sees what a repair makes of it;
    /// `None` if that is nothing.
    fn new(subject: &Subject, name: String) -> Option<Damaged> {
        let base = SimSystem::new(7);
        let git_dir = subject.repo().git_dir();
        let objects = git_dir.join("objects");
        // Where the objects are is read from the real disk, and that they are from this one.
        let made = base.create_dir_all(&objects);
        made.and_then(|()| base.import(&git_dir, Path::new(GIT_DIR)))
            .expect("the repository can be copied");
        let mut damaged = Damaged {
            name,
            objects,
            files: Vec::new(),
            before: None,
            after: State::default(),
            ops: 0..0,
            base,
        };
        damaged.before = read(&damaged.open(&damaged.base.fork()));
        let system = damaged.base.fork();
        let repository = damaged.open(&system);
        let made = plan(&repository, ALL).expect("a plan");
        if made.is_empty() {
            return None;
        }
        for (path, _) in made.files() {
            if damaged.base.lstat(path).is_err() {
                // It is missing, and comes back.
                continue;
            }
            let content = damaged.base.read(path).unwrap_or_default();
            damaged.files.push((path.to_owned(), content));
        }
        let first = system.op_count();
        made.apply().expect("no fault");
        damaged.ops = first..system.op_count();
        damaged.after = read(&damaged.open(&system)).expect("it is repaired");
        Some(damaged)
    }

    fn open(&self, system: &SimSystem) -> Repository {
        open(Arc::new(system.clone()), &self.objects)
    }

    /// Plans and applies with a system that `wrap` makes of the simulated one; returns whether that
    /// was acknowledged.
    fn repair(&self, system: &SimSystem, wrap: Wrap) -> bool {
        let repository = open(Arc::from(wrap(system.clone())), &self.objects);
        plan(&repository, ALL).is_ok_and(|made| made.is_empty() || made.apply().is_ok())
    }

    /// Asserts that nothing is lost, and that a second repair finishes.
    fn check(&self, system: &SimSystem, acknowledged: bool, context: &str) {
        let context = format!("{}: {context}", self.name);
        let next = system.process(3000);
        let repository = self.open(&next);
        let found = read(&repository);
        match (&self.before, &found) {
            (Some(_), None) => panic!("{context}: what could be read is damaged"),
            (Some(before), Some(found)) => {
                assert_between(found, before, &self.after, false, &context);
            }
            (None, _) => {}
        }
        if acknowledged {
            assert_eq!(found.as_ref(), Some(&self.after), "{context}: acknowledged");
        }
        self.assert_kept(&next, &context);
        let made = plan(&repository, ALL).expect("a plan");
        if !made.is_empty() {
            made.apply()
                .unwrap_or_else(|error| panic!("{context}: again: {error}"));
        }
        let found = read(&repository);
        assert_eq!(found.as_ref(), Some(&self.after), "{context}: again");
        self.assert_kept(&next, &context);
        let rest = plan(&repository, ALL).expect("a plan");
        assert!(rest.is_empty(), "{context}: left is {:?}", rest.files());
    }

    /// Asserts that the damaged bytes are where they were, or aside.
    fn assert_kept(&self, system: &SimSystem, context: &str) {
        let aside = Path::new(GIT_DIR).join("refdb-damaged");
        let kept = system.read_dir(&aside).unwrap_or_default();
        for (path, content) in &self.files {
            let inner = path
                .strip_prefix(GIT_DIR)
                .expect("a file of the repository");
            let mut places = kept.iter().map(|entry| {
                let number = String::from_utf8(entry.name.clone()).expect("a number");
                aside.join(number).join(inner)
            });
            let is_there = |path: &Path| match content.is_empty() {
                // A link that leads nowhere has no content, but a text.
                true => system.lstat(path).is_ok(),
                false => system.read(path).is_ok_and(|found| found == *content),
            };
            assert!(
                is_there(path) || places.any(|place| is_there(&place)),
                "{context}: the old bytes of {} are gone",
                path.display()
            );
        }
    }

    /// Returns operations, about `most` of them, not the same ones for every kind of damage.
    fn points(&self, most: u64, shift: u64) -> impl Iterator<Item = u64> + use<> {
        let count = self.ops.end - self.ops.start;
        let step = usize::try_from(1 + count / most).expect("not many");
        let first = self.ops.start + shift % (1 + count / most);
        (first..self.ops.end + 1).step_by(step)
    }

    fn die_at(&self, at: u64, wrap: Wrap) {
        let system = self.base.fork();
        system.set_fault(Some(Fault::dies_at(at)));
        let done = self.repair(&system, wrap);
        system.end();
        self.check(&system, done, &format!("dead before operation {at}"));
    }

    fn lose_power_at(&self, at: u64, wrap: Wrap) -> u64 {
        let system = self.base.fork();
        system.set_fault(Some(Fault::dies_at(at)));
        let done = self.repair(&system, wrap);
        let mut seen = BTreeSet::new();
        let worst = [
            (Names::Durable, Content::Durable),
            (Names::All, Content::Durable),
            (Names::All, Content::Zeros),
        ];
        let worst = worst.map(|(names, content)| Crash {
            names,
            content,
            seed: at,
        });
        let mut tried = 0;
        for crash in worst.into_iter().chain([Crash::seeded(4 * at + 2)]) {
            let after = system.crash(crash);
            tried += 1;
            if seen.insert(after.fingerprint()) {
                self.check(&after, done, &format!("{crash:?} at operation {at}"));
            }
        }
        tried
    }

    fn fail_at(&self, at: u64, kind: Io) {
        let system = self.base.fork();
        system.set_fault(Some(Fault::once(at, kind)));
        let done = self.repair(&system, |system| Box::new(system));
        system.set_fault(None);
        self.check(
            &system,
            done,
            &format!("operation {at} fails with {kind:?}"),
        );
    }
}

/// Damages a repository in every way that there is.
fn every_damage(format: Format, each: impl Fn(&Damaged, u64)) {
    let subject = Subject::new(format);
    for (number, kind) in (0..).zip(kinds(format)) {
        (kind.apply)(&subject, &mut Rng::new(number));
        if let Some(damaged) = Damaged::new(&subject, kind.name) {
            each(&damaged, number);
        }
        subject.restore();
    }
}

/// How many points to try in a format: few in the one that differs in the length of ids alone.
fn most(format: Format) -> u64 {
    match format.objects {
        ObjectFormat::Sha1 => budget("REFDB_REPAIR_POINTS", SHORT),
        ObjectFormat::Sha256 => 1,
    }
}

for_every_format! {
    fn a_repair_that_dies_is_finished_by_the_next(format) {
        let tally = std::cell::RefCell::new(Tally::begin("deaths of the process", 0));
        every_damage(format, |damaged, number| {
            for at in damaged.points(most(format), number) {
                damaged.die_at(at, |system| Box::new(system));
                tally.borrow_mut().add(1);
            }
        });
    }

    fn a_repair_that_loses_power_loses_nothing_else(format) {
        let tally = std::cell::RefCell::new(Tally::begin("power-failure states", 1));
        every_damage(format, |damaged, number| {
            for at in damaged.points(most(format), number) {
                let tried = damaged.lose_power_at(at, |system| Box::new(system));
                tally.borrow_mut().add(tried);
            }
        });
    }

    fn a_repair_that_fails_can_be_tried_again(format) {
        let tally = std::cell::RefCell::new(Tally::begin("fault points", 0));
        every_damage(format, |damaged, number| {
            for at in damaged.points(most(format), number + 1) {
                damaged.fail_at(at, Io::StorageFull);
                tally.borrow_mut().add(1);
            }
        });
    }
}

/// The damage that planted bugs are tried with: a power failure under Git's writing.
fn after_a_power_failure(format: Format, check: impl Fn(&Damaged)) {
    let name = match format.ours() {
        RefFormat::Files => "loose ref: nothing but zeros",
        RefFormat::Reftable => "footer: zeros, as after a power failure",
    };
    let subject = Subject::new(format);
    let mut kinds = kinds(format).into_iter();
    let kind = kinds
        .find(|kind| kind.name == name)
        .expect("a kind of damage");
    (kind.apply)(&subject, &mut Rng::new(1));
    check(&Damaged::new(&subject, kind.name).expect("something to do"));
}

macro_rules! caught {
    ($($name:ident: $format:ident with $bug:ident;)*) => {
        $(#[test]
        fn $name() {
            after_a_power_failure(Format::$format, |damaged| {
                let check = |wrap: Wrap| {
                    for at in damaged.points(u64::MAX, 0) {
                        damaged.die_at(at, wrap);
                        damaged.lose_power_at(at, wrap);
                    }
                };
                check(|system| Box::new(system));
                let caught = is_caught(|| check(|system| planted(system, Bug::$bug)));
                assert!(caught, "{:?} was not caught", Bug::$bug);
            });
        })*
    };
}

caught! {
    nothing_kept_in_files: FILES_SHA1 with NothingKept;
    nothing_kept_in_reftable: REFTABLE_SHA1 with NothingKept;
    no_file_sync_in_a_repair_of_files: FILES_SHA1 with NoFileSync;
    no_file_sync_in_a_repair_of_reftable: REFTABLE_SHA1 with NoFileSync;
    no_directory_sync_in_a_repair_of_files: FILES_SHA1 with NoDirectorySync;
    no_directory_sync_in_a_repair_of_reftable: REFTABLE_SHA1 with NoDirectorySync;
}
