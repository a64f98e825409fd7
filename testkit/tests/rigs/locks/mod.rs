//! Searching for lock cycles: processes that write what is drawn, in turns that are drawn.
//!
//! 1. No processes wait for each other.
//! 2. Nobody waits for one lock while he holds another if anybody waits for this while he holds that,
//!    be it over others: locks have one order, whoever takes them and for whatever.
//! 3. Nobody gives up: each gets every lock in the end.
//!
//! The search is seen to find processes that wait whatever they hold.

mod turns;

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use refdb::layout::Layout;
use refdb::objects::NoObjects;
use refdb::options::LockTimeout;
use refdb::store::Optimize;
use refdb::system::System;
use refdb::{
    Edit, Error, ErrorKind, LogRewrite, ObjectFormat, ObjectId, Outcome, RefFormat, RefName,
    RefNameBuf, Rejection, Result, Store, Transaction,
};
use refdb_simulation::SimSystem;
use refdb_testkit::rng::Rng;
use refdb_testkit::trust::{self, Tally};
use refdb_testkit::{Format, for_every_format, ours};
use turns::{Found, Process, Turns};

const GIT_DIR: &str = "/repo/.git";

/// The worktrees: the main one, and linked ones.
const VIEWS: usize = 3;
const LINKED: [&str; VIEWS - 1] = ["v", "w"];

const PROCESSES: usize = 4;

/// How much each process does.
const WORKS: usize = 5;

/// Names that mean the same in every worktree, then those that each has for itself, and the same seen
/// from elsewhere.
const SHARED: [&str; 9] = [
    "refs/heads/a",
    "refs/heads/link",
    "refs/heads/m",
    "refs/heads/z",
    "refs/heads/zlink",
    "refs/pull/1",
    "refs/pull/2",
    "refs/remotes/o/HEAD",
    "refs/remotes/o/main",
];
const OWN: [&str; 4] = ["HEAD", "HEAD", "ORIG_HEAD", "refs/bisect/bad"];
const ELSEWHERE: [&str; 5] = [
    "main-worktree/HEAD",
    "main-worktree/refs/bisect/bad",
    "worktrees/v/HEAD",
    "worktrees/w/HEAD",
    "worktrees/w/refs/bisect/bad",
];

/// The symrefs that there are, as each worktree says it.
const SYMREFS: [(usize, &str, &str); 7] = [
    (0, "HEAD", "refs/heads/m"),
    (1, "HEAD", "refs/heads/a"),
    (2, "HEAD", "refs/heads/zlink"),
    (0, "refs/heads/link", "refs/heads/a"),
    (0, "refs/heads/zlink", "refs/heads/link"),
    (0, "refs/remotes/o/HEAD", "refs/remotes/o/main"),
    (0, "refs/bisect/bad", "refs/heads/m"),
];

#[derive(Clone, Debug)]
enum Step {
    Update(&'static str, u32),
    UpdateItself(&'static str, u32),
    Delete(&'static str),
    DeleteItself(&'static str),
    Point(&'static str, &'static str),
}

#[derive(Clone, Debug)]
enum What {
    Commit(Vec<Step>),
    Batch(Vec<Step>),
    Prepare(Vec<Step>),
    Group(Vec<Vec<Step>>),
    Rename(&'static str, &'static str),
    Copy(&'static str, &'static str),
    Optimize,
    RewriteLog(&'static str),
    RemoveLogs(Vec<&'static str>),
}

/// What a process does at once, and as seen from which worktree.
#[derive(Clone, Debug)]
struct Work {
    view: usize,
    what: What,
}

fn draw_name(rng: &mut Rng) -> &'static str {
    let names: &[&'static str] = match rng.below(10) {
        0..5 => &SHARED,
        5..8 => &OWN,
        _ => &ELSEWHERE,
    };
    names[rng.below(names.len())]
}

fn draw_shared(rng: &mut Rng) -> &'static str {
    SHARED[rng.below(SHARED.len())]
}

fn draw_steps(rng: &mut Rng) -> Vec<Step> {
    let mut names: Vec<&'static str> = Vec::new();
    for _ in 0..=rng.below(4) {
        let name = draw_name(rng);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let number = |rng: &mut Rng| 1 + u32::try_from(rng.below(200)).expect("small");
    let step = |name| match rng.below(12) {
        0 => Step::Delete(name),
        1 => Step::DeleteItself(name),
        2 => Step::Point(name, draw_shared(rng)),
        3 => Step::UpdateItself(name, number(rng)),
        _ => Step::Update(name, number(rng)),
    };
    names.into_iter().map(step).collect()
}

impl Work {
    fn draw(rng: &mut Rng) -> Work {
        let what = match rng.below(20) {
            0 => What::Rename(draw_shared(rng), draw_shared(rng)),
            1 => What::Copy(draw_shared(rng), draw_shared(rng)),
            2 | 3 => What::Optimize,
            4 => What::RewriteLog(draw_name(rng)),
            5 => What::RemoveLogs((0..3).map(|_| draw_name(rng)).collect()),
            6..9 => What::Group((0..3).map(|_| draw_steps(rng)).collect()),
            9..12 => What::Batch(draw_steps(rng)),
            12 => What::Prepare(draw_steps(rng)),
            _ => What::Commit(draw_steps(rng)),
        };
        Work {
            view: rng.below(VIEWS),
            what,
        }
    }

    /// Does it. What the transaction itself is wrong about is none of this test's business.
    fn run(&self, world: &World) -> Result<()> {
        let store = &world.stores[self.view];
        match &self.what {
            What::Commit(steps) => world.transaction(store, steps)?.commit().and_then(lockless),
            What::Batch(steps) => {
                let transaction = world.transaction(store, steps)?.batch();
                transaction.commit().and_then(lockless)
            }
            What::Prepare(steps) => {
                let prepared = world.transaction(store, steps)?.prepare()?;
                prepared.commit().and_then(lockless)
            }
            What::Group(members) => world.group(store, members),
            What::Rename(from, to) => {
                let (from, to) = (name(from), name(to));
                let renamed = store.rename(from.as_name(), to.as_name(), b"rename");
                renamed.and_then(lockless)
            }
            What::Copy(from, to) => {
                let (from, to) = (name(from), name(to));
                let copied = store.copy(from.as_name(), to.as_name(), b"copy");
                copied.and_then(lockless)
            }
            What::Optimize => match store.optimize(&Optimize::default()) {
                // Somebody else is at it.
                Err(error) if error.to_string().contains("data is locked") => Ok(()),
                done => done,
            },
            What::RewriteLog(text) => {
                let mut is_oldest = true;
                let keep = |_: &_| Ok(!std::mem::replace(&mut is_oldest, false));
                let how = LogRewrite::default();
                let rewritten = store.rewrite_log(name(text).as_name(), how, keep)?;
                rewritten.map_or(Ok(()), lockless)
            }
            What::RemoveLogs(names) => {
                let names: Vec<RefNameBuf> = names.iter().map(|text| name(text)).collect();
                let names = names.iter().map(RefNameBuf::as_name);
                store.delete_logs(names).and_then(lockless)
            }
        }
    }
}

/// Makes an error of an edit that a batch refused, for the sake of the lock.
fn lockless(outcome: Outcome) -> Result<()> {
    let refused = outcome.rejections.into_iter();
    let mut errors = refused.map(Error::rejected).filter(is_for_a_lock);
    errors.next().map_or(Ok(()), Err)
}

fn is_for_a_lock(error: &Error) -> bool {
    let message = error.to_string();
    // A directory that went is no lock of anybody.
    let is_gone = message.contains("No such file or directory");
    message.contains("File exists") || error.kind() == ErrorKind::Locked && !is_gone
}

fn name(text: &str) -> RefNameBuf {
    RefNameBuf::new(text).expect("a good name")
}

/// What one process sees.
struct World {
    format: Format,
    stores: Vec<Store>,
}

impl World {
    fn new(system: Arc<dyn System>, format: Format) -> World {
        let linked = LINKED.map(|id| Layout::linked(format!("{GIT_DIR}/worktrees/{id}"), GIT_DIR));
        let layouts = [Layout::main(GIT_DIR)].into_iter().chain(linked);
        let open = |layout| {
            let mut options = ours::simulated(format.objects);
            // Longer than everything takes together: who gives up has waited for himself.
            let timeout = LockTimeout::from_millis(60_000);
            options.files_ref_lock_timeout = timeout;
            options.packed_refs_timeout = timeout;
            options.reftable.lock_timeout = timeout;
            if format.objects == ObjectFormat::Sha256 {
                options.directory_lock_min = 2;
            }
            let system = Arc::clone(&system);
            Store::open(system, layout, format.ours(), Arc::new(NoObjects), options)
                .expect("a store")
        };
        World {
            format,
            stores: layouts.map(open).collect(),
        }
    }

    fn oid(&self, number: u32) -> ObjectId {
        let digits = self.format.objects.hex_len();
        ObjectId::from_hex(format!("{number:0digits$x}").as_bytes()).expect("an object id")
    }

    fn transaction<'s>(&self, store: &'s Store, steps: &[Step]) -> Result<Transaction<'s>> {
        let mut transaction = store.transaction();
        for step in steps {
            let (Step::Update(text, _)
            | Step::UpdateItself(text, _)
            | Step::Delete(text)
            | Step::DeleteItself(text)
            | Step::Point(text, _)) = *step;
            let name = name(text);
            let named = RefName::from(&name);
            let edit = match *step {
                Step::Update(_, number) => Edit::update(named, self.oid(number)),
                Step::UpdateItself(_, number) => Edit::update(named, self.oid(number)).no_deref(),
                Step::Delete(_) => Edit::delete(named),
                Step::DeleteItself(_) => Edit::delete(named).no_deref(),
                Step::Point(_, target) => {
                    let target = RefNameBuf::new(target).expect("a good name");
                    Edit::symbolic(named, &target).no_deref().into_owned()
                }
            };
            transaction.add(edit)?;
        }
        Ok(transaction)
    }

    /// Commits transactions together, and alone what cannot be committed so.
    fn group(&self, store: &Store, members: &[Vec<Step>]) -> Result<()> {
        let mut alone = Vec::new();
        let mut group = store.group()?.expect("there is no hook");
        for steps in members {
            let transaction = self.transaction(store, steps)?.batch();
            match group.add(&transaction) {
                Ok(rejections) => {
                    let rejected = |all: Vec<Rejection>| Outcome {
                        rejections: all,
                        afterwards: Vec::new(),
                    };
                    lockless(rejected(rejections))?;
                }
                Err(_) => alone.push(transaction),
            }
        }
        group.close()?.commit().and_then(lockless)?;
        for transaction in alone {
            transaction.commit().and_then(lockless)?;
        }
        Ok(())
    }
}

/// Makes a repository with two linked worktrees, and the symrefs above.
fn repository(format: Format, seed: u64) -> SimSystem {
    let system = SimSystem::new(seed);
    let dirs: &[&str] = match format.ours() {
        RefFormat::Reftable => &["reftable", "worktrees/v/reftable", "worktrees/w/reftable"],
        RefFormat::Files => &["refs/heads", "worktrees/v/refs", "worktrees/w/refs"],
    };
    for dir in dirs {
        let dir = Path::new(GIT_DIR).join(dir);
        system.create_dir_all(&dir).expect("a new directory");
        if format.ours() == RefFormat::Reftable {
            // Without it, the stack of a repository with a worktree has lost everything.
            let list = system.create_new(&dir.join("tables.list"), 0o666);
            list.and_then(|mut list| list.write_all(b"\n"))
                .expect("room");
        }
    }
    let world = World::new(Arc::new(system.clone()), format);
    let values = ["refs/heads/a", "refs/heads/m", "refs/remotes/o/main"];
    let values = values.map(|text| (0, Step::Update(text, 1)));
    let symrefs = SYMREFS.map(|(view, text, target)| (view, Step::Point(text, target)));
    for (view, step) in values.into_iter().chain(symrefs) {
        let transaction = world.transaction(&world.stores[view], &[step]);
        let outcome = transaction.and_then(Transaction::commit);
        lockless(outcome.expect("nobody is in the way")).expect("nobody is in the way");
    }
    system.sleep(Duration::from_secs(10));
    system
}

/// What came of one search.
struct Searched {
    found: Found,
    /// Who did not get a lock, and what for.
    gave_up: Vec<String>,
}

impl Searched {
    fn fault(&self) -> Option<String> {
        self.found.fault().or_else(|| self.gave_up.first().cloned())
    }
}

/// Lets each process do its works.
fn run(format: Format, seed: u64, patient: bool, works: &[Vec<Work>]) -> Searched {
    let system = repository(format, seed);
    let (turns, processes) = Turns::begin(&system, works.len(), seed, patient);
    let gave_up = thread::scope(|scope| {
        let work = |(process, works): (Process, &'_ [Work])| {
            let process = Arc::new(process);
            let _present = process.begin();
            // A ref that has two names in one transaction is refused, as it is by Git.
            let own = format!("the refdb process {},", process.process_id());
            let world = World::new(process, format);
            let mut gave_up = Vec::new();
            for work in works {
                if let Err(error) = work.run(&world)
                    && is_for_a_lock(&error)
                    && !error.to_string().contains(&own)
                {
                    gave_up.push(format!("{work:?}: {error}"));
                }
            }
            gave_up
        };
        let works = works.iter().map(Vec::as_slice);
        let threads: Vec<_> = processes
            .into_iter()
            .zip(works)
            .map(|task| scope.spawn(move || work(task)))
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.flat_map(|done| done.expect("no panic")).collect()
    });
    let held = turns.held();
    assert!(
        held.is_empty(),
        "seed {seed}: these locks are left: {held:?}"
    );
    Searched {
        found: turns.found(),
        gave_up,
    }
}

/// Draws what each process does, and lets them.
fn search(format: Format, seed: u64, patient: bool) -> Searched {
    let mut rng = Rng::new(seed);
    let mut works = || (0..WORKS).map(|_| Work::draw(&mut rng)).collect();
    let works: Vec<Vec<Work>> = (0..PROCESSES).map(|_| works()).collect();
    run(format, seed, patient, &works)
}

for_every_format! {
    fn nobody_waits_for_who_waits(format) {
        let first = trust::budget("REFDB_LOCKS_SEED", 0);
        let seeds = first..first + trust::budget("REFDB_LOCKS_SEEDS", 60);
        let mut tally = Tally::begin("transactions searched for lock cycles", first);
        let mut pairs = 0;
        for seed in seeds {
            let searched = search(format, seed, false);
            if let Some(fault) = searched.fault() {
                panic!("seed {seed}: {fault}");
            }
            pairs += searched.found.pairs();
            tally.add((PROCESSES * WORKS) as u64);
        }
        assert!(pairs > 0, "nobody held a lock while waiting for another");
    }
}

for_every_format! {
    fn who_waits_whatever_he_holds_is_found(format) {
        let is_found = |seed| search(format, seed, true).found.fault().is_some();
        assert!((0..60).any(is_found), "waiting in a circle is not noticed");
    }
}

for_every_format! {
    fn head_and_its_branch_are_updated_by_two(format) {
        for (view, _, branch) in SYMREFS.into_iter().take(VIEWS) {
            let update = |text| Work {
                view,
                what: What::Commit(vec![Step::Update(text, 2)]),
            };
            let works = [vec![update("HEAD"); 20], vec![update(branch); 20]];
            for seed in 0..10 {
                let searched = run(format, seed, false, &works);
                assert_eq!(searched.fault(), None, "worktree {view}, seed {seed}");
            }
        }
    }
}
