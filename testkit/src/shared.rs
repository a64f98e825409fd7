//! Histories of several writers on a simulated place that machines share.
//!
//! Everything happens in one thread and depends on one seed: while one client waits for a request, others
//! carry out whole transactions, and what was sent arrives late, twice or never. The generation of a head
//! tells the order of all that was committed, so that no order has to be searched for:
//!
//! 1. What was acknowledged is in the chain of heads once, and the model, carried along that chain, comes to
//!    the same verdict and in the end to the same refs and reflogs.
//! 2. What was refused, or changes nothing, is in no head, and has its reason in a state of the time between
//!    call and answer.
//! 3. What failed without an answer is in the chain once or not at all.
//! 4. A listing shows the state of one moment between call and answer.

pub mod simulation;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bstr::BString;
use refdb::objects::{ObjectKind, Peeled};
use refdb::options::{Committer, Identity};
use refdb::shared::{Register, Settings};
use refdb::{ErrorKind, ObjectId, Store, TargetRef};
use refdb_simulation::SimSystem;

use crate::Format;
use crate::generate::Generator;
use crate::model::{Mistake, Model, Reason, Rules, Transaction, Verdict};
use crate::objects::Objects;
use crate::oracle::{EMAIL, NAME, TIME, ZONE};
use crate::ours::{self, Rejected};
use crate::rng::Rng;
use crate::state::Target;
use simulation::{Applied, Faults, SimShared, World};

/// How deep one client's work may be inside that of another.
const DEPTH_MAX: usize = 3;

/// What one seed came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tried {
    /// Transactions that were acknowledged and changed something.
    pub committed: usize,
    /// Those that were refused, or changed nothing.
    pub unchanged: usize,
    /// Those whose outcome nobody knew.
    pub unknown: usize,
    /// Those that another one overtook.
    pub overlapped: usize,
    /// Whether the end was compared: the model is not sure of every verdict.
    pub is_decided: bool,
}

/// How a call ended.
enum Answer {
    Done(Rejected),
    Refused(Option<Reason>),
    Failed,
    Unknown,
}

enum Act {
    Write(Transaction, Answer),
    List(BTreeMap<BString, Target>),
}

/// A call, and the newest generations when it began and ended.
struct Call {
    task: u64,
    begun: u64,
    ended: u64,
    act: Act,
}

struct Client {
    store: Store,
    register: Arc<Register>,
    shared: Arc<SimShared>,
    system: SimSystem,
    is_busy: bool,
}

/// What all clients share; borrowed for moments only.
struct Scene {
    world: World,
    clients: Vec<Client>,
    rng: Rng,
    generator: Generator,
    guess: Model,
    left: usize,
    depth: usize,
    tasks: u64,
    calls: Vec<Call>,
}

thread_local! {
    static SCENE: RefCell<Option<Scene>> = const { RefCell::new(None) };
}

fn with<T>(f: impl FnOnce(&mut Scene) -> T) -> T {
    SCENE.with(|scene| f(scene.borrow_mut().as_mut().expect("a history is running")))
}

/// The standard objects, without a repository.
#[derive(Debug)]
struct Standard(Mutex<BTreeMap<ObjectId, (ObjectKind, Peeled)>>);

impl Standard {
    fn new(format: Format) -> Standard {
        let objects = Objects::standard(format.objects);
        let id = |hex: &str| ObjectId::from_hex(hex.as_bytes()).expect("an id");
        let mut known = BTreeMap::new();
        for commit in objects.commits.iter().take(8) {
            known.insert(id(commit), (ObjectKind::Commit, Peeled::Itself));
        }
        known.insert(id(&objects.blob), (ObjectKind::Blob, Peeled::Itself));
        for tag in objects.tags.iter().take(8) {
            known.insert(id(&tag.id), (ObjectKind::Tag, Peeled::To(id(&tag.peeled))));
        }
        Standard(Mutex::new(known))
    }

    fn find(&self, oid: ObjectId) -> Option<(ObjectKind, Peeled)> {
        self.0.lock().expect("nobody panics").get(&oid).copied()
    }
}

impl refdb::objects::Objects for Standard {
    fn kind(&self, oid: ObjectId) -> refdb::Result<Option<ObjectKind>> {
        Ok(self.find(oid).map(|found| found.0))
    }

    fn peel(&self, oid: ObjectId) -> refdb::Result<Peeled> {
        Ok(self.find(oid).map_or(Peeled::Missing, |found| found.1))
    }
}

fn open(world: &World, system: &SimSystem, settings: Settings, format: Format) -> Client {
    let shared = Arc::new(world.client(0));
    let system = system.clone();
    let register = Register::open(shared.clone(), Arc::new(system.clone()), settings);
    let register = Arc::new(register.expect("nothing is read yet"));
    let mut options = crate::ours::simulated(format.objects);
    options.committer = Committer::from(Identity {
        name: NAME.into(),
        email: EMAIL.into(),
        date: Some((TIME, ZONE.parse().expect("a zone"))),
        ..Identity::default()
    });
    let objects = Arc::new(Standard::new(format));
    let store = Store::open_shared(Arc::clone(&register), objects, options);
    Client {
        store: store.expect("a store"),
        register,
        shared,
        system,
        is_busy: false,
    }
}

/// Runs the history of a seed, and checks it.
///
/// # Errors
///
/// What is wrong with it.
///
/// # Panics
///
/// If the store itself does.
pub fn run(seed: u64, faults: Faults) -> Result<Tried, String> {
    let mut rng = Rng::new(seed ^ 0x5a5a);
    let format = *rng.pick(&[Format::REFTABLE_SHA1, Format::REFTABLE_SHA256]);
    let world = World::new(seed, Faults::NONE);
    let system = SimSystem::new(seed);
    let slots = *rng.pick(&[1, 1, 1, 2, 3, 16]);
    Register::init(&world.client(0), &system, format.objects, slots)
        .map_err(|error| format!("init: {error}"))?;
    let mut model = Model::new(Rules::new(format));
    let settings = Settings {
        inline_max: *rng.pick(&[0, 0, 250, 600, 64 << 10]),
        tables_many: *rng.pick(&[1, 2, 8]),
        ahead_after: *rng.pick(&[0, 0, 1, 4]),
        // With no time at all, whoever gets no answer gives up at once.
        limit: Duration::from_millis(*rng.pick(&[0, 100, 30_000, 30_000])),
        ..Settings::default()
    };
    // HEAD is there from the beginning.
    let head = open(&world, &system.process(90), settings.clone(), format);
    let first = crate::model::Edit::new(
        "HEAD",
        crate::model::Verb::SymrefCreate {
            target: "refs/heads/main".into(),
        },
    );
    let first = Transaction::of([first]);
    ours::apply(&head.store, &first).map_err(|error| format!("HEAD: {error}"))?;
    model = Model::with_state(model.rules(), ours::state(&head.store));
    let start = world.generation();

    let faulty = world.with_faults(faults);
    let clients = (0..2 + rng.below(2)).map(|at| {
        let pid = u32::try_from(at).expect("a few") + 1;
        open(&faulty, &system.process(pid), settings.clone(), format)
    });
    let scene = Scene {
        world: world.clone(),
        clients: clients.collect(),
        generator: Generator::new(seed, format),
        guess: model.clone(),
        left: 4 + rng.below(5),
        rng,
        depth: 0,
        tasks: 0,
        calls: Vec::new(),
    };
    SCENE.with(|place| *place.borrow_mut() = Some(scene));
    for at in 0..with(|scene| scene.clients.len()) {
        let shared = with(|scene| scene.clients[at].shared.clone());
        shared.set_others(Some(Arc::new(others)));
    }
    while with(|scene| scene.left > 0) {
        step();
    }
    world.settle();
    let scene = SCENE.with(|place| place.borrow_mut().take());
    let scene = scene.expect("nobody else takes it");
    let end = open(&world, &system.process(91), settings, format);
    let applied = world.applied();
    check(&model, start, &scene.calls, &applied, &end.store)
        .map_err(|what| format!("seed {seed}, {format}, {slots} slots: {what}"))
}

/// Lets another client work, now and then.
fn others() {
    let may = with(|scene| scene.depth < DEPTH_MAX && scene.left > 0 && scene.rng.percent(20));
    if may {
        step();
    }
}

/// Lets a client that is free do one thing.
fn step() {
    let begun = with(|scene| {
        let free: Vec<usize> = (0..scene.clients.len())
            .filter(|at| !scene.clients[*at].is_busy)
            .collect();
        if free.is_empty() {
            return None;
        }
        let at = *scene.rng.pick(&free);
        scene.left -= 1;
        scene.depth += 1;
        scene.tasks += 1;
        let client = &mut scene.clients[at];
        client.is_busy = true;
        // Now and then a client has been away for a while.
        if scene.rng.percent(30) {
            refdb::system::System::sleep(&client.system, Duration::from_secs(1));
        }
        client.shared.set_task(scene.tasks);
        let (store, register) = (client.store.clone(), Arc::clone(&client.register));
        Some((
            at,
            scene.tasks,
            store,
            register,
            scene.world.generation(),
            scene.rng.below(10),
        ))
    });
    let Some((at, task, store, register, begun, what)) = begun else {
        return;
    };
    let act = match what {
        0 => {
            // Whatever becomes of it, the refs are as they were.
            let _ = store.optimize(&refdb::Optimize::default());
            None
        }
        1 => {
            let _ = register.collect(Duration::ZERO);
            None
        }
        2 => list(&store).map(Act::List),
        _ => {
            let transaction = with(|scene| scene.generator.next(&scene.guess));
            let answer = write(&store, &transaction);
            if matches!(answer, Answer::Done(_)) {
                // A guess at how things are, so that half of what is expected is right.
                with(|scene| drop(scene.guess.apply(&transaction)));
            }
            Some(Act::Write(transaction, answer))
        }
    };
    with(|scene| {
        scene.clients[at].is_busy = false;
        scene.clients[at].shared.set_task(0);
        scene.depth -= 1;
        let ended = scene.world.generation();
        if let Some(act) = act {
            scene.calls.push(Call {
                task,
                begun,
                ended,
                act,
            });
        }
    });
}

fn write(store: &Store, transaction: &Transaction) -> Answer {
    match ours::apply_whatever_follows(store, transaction) {
        Ok((rejected, _)) => Answer::Done(rejected),
        Err(error) => match error.kind() {
            ErrorKind::Unknown => Answer::Unknown,
            ErrorKind::Rejected | ErrorKind::InvalidName => {
                Answer::Refused(Reason::of_message(error.to_string().as_bytes()))
            }
            ErrorKind::Io | ErrorKind::Overtaken => Answer::Failed,
            _ => panic!("{error:?}"),
        },
    }
}

/// Lists the refs; nothing if no answer came.
fn list(store: &Store) -> Option<BTreeMap<BString, Target>> {
    let mut refs = match store.refs() {
        Ok(refs) => refs,
        Err(error) if error.kind() == ErrorKind::Io => return None,
        Err(error) => panic!("{error:?}"),
    };
    let mut found = BTreeMap::new();
    while let Some(record) = refs.next().expect("the tables are there") {
        let target = match record.target {
            TargetRef::Direct(oid) => Target::Direct(oid.to_string()),
            TargetRef::Symbolic(name) => Target::Symbolic(BString::from(name.as_bytes())),
        };
        found.insert(BString::from(record.name.as_bytes()), target);
    }
    Some(found)
}

/// The states of all generations from the first on, and which call made each.
struct Chain {
    start: u64,
    models: Vec<Model>,
    made: BTreeMap<u64, u64>,
}

impl Chain {
    fn between<'c>(&'c self, call: &Call) -> impl Iterator<Item = &'c Model> {
        let place = |generation: u64| {
            usize::try_from(generation.saturating_sub(self.start)).expect("a short history")
        };
        self.models[place(call.begun)..=place(call.ended)].iter()
    }
}

fn check(
    first: &Model,
    start: u64,
    calls: &[Call],
    applied: &[Applied],
    end: &Store,
) -> Result<Tried, String> {
    let mut tried = Tried::default();
    let Some(chain) = replay(first, start, calls, applied)? else {
        return Ok(tried);
    };
    for call in calls {
        let is_made = chain.made.values().any(|task| *task == call.task);
        tried.overlapped += usize::from(call.ended > call.begun + 1);
        let is_explained = match &call.act {
            Act::List(found) => chain
                .between(call)
                .any(|model| model.state().refs == *found),
            Act::Write(_, Answer::Done(_)) if is_made => {
                tried.committed += 1;
                true
            }
            Act::Write(_, Answer::Unknown) => {
                tried.unknown += 1;
                true
            }
            Act::Write(_, Answer::Failed) => !is_made,
            Act::Write(transaction, answer) => {
                tried.unchanged += 1;
                !is_made
                    && chain
                        .between(call)
                        .any(|model| explains(model, transaction, answer))
            }
        };
        // Where the model is not sure, a refusal may have a reason that it does not see.
        if let (false, Act::Write(transaction, _)) = (is_explained || is_made, &call.act)
            && chain
                .between(call)
                .any(|model| is_unsure(model, transaction))
        {
            return Ok(tried);
        }
        if !is_explained {
            return Err(format!("nothing explains {}", describe(call)));
        }
    }
    let last = chain.models.last().expect("the first one at least");
    let difference = last.state().difference(&ours::state(end));
    match difference.is_empty() {
        true => tried.is_decided = true,
        false => return Err(format!("- model, + refdb:\n{difference}")),
    }
    Ok(tried)
}

/// Carries the model along the heads; `None` if it is not sure of a verdict.
fn replay(
    first: &Model,
    start: u64,
    calls: &[Call],
    applied: &[Applied],
) -> Result<Option<Chain>, String> {
    let mut chain = Chain {
        start,
        models: vec![first.clone()],
        made: BTreeMap::new(),
    };
    let mut now = *applied
        .iter()
        .find(|it| it.generation == start)
        .ok_or("the first head is gone")?;
    for next in applied.iter().filter(|it| it.generation > start) {
        if next.generation != now.generation + 1 {
            return Err(format!("{next:?} follows {now:?}"));
        }
        let mut model = chain.models[chain.models.len() - 1].clone();
        if next.index > now.index {
            let call = calls.iter().find(|call| call.task == next.task);
            let Some(Act::Write(transaction, answer)) = call.map(|call| &call.act) else {
                return Err(format!("{next:?} is of no transaction"));
            };
            if chain.made.values().any(|task| *task == next.task) {
                return Err(format!("{transaction:?} was committed twice"));
            }
            let is_unsure = is_unsure(&model, transaction);
            let verdict = model.apply(transaction);
            let is_right = match (answer, &verdict) {
                (Answer::Unknown, Verdict::Done { .. }) => true,
                (Answer::Done(rejected), Verdict::Done { rejections }) => {
                    *rejected == sorted(rejections)
                }
                _ => false,
            };
            if !is_right && is_unsure {
                return Ok(None);
            }
            if !is_right {
                let script = transaction.script();
                return Err(format!(
                    "at {next:?} the model says {verdict:?} of\n{script}"
                ));
            }
            chain.made.insert(next.generation, next.task);
        }
        chain.models.push(model);
        now = *next;
    }
    Ok(Some(chain))
}

/// Whether the model may be wrong about a verdict.
fn is_unsure(model: &Model, transaction: &Transaction) -> bool {
    model
        .mistakes(transaction)
        .iter()
        .any(Mistake::is_about_verdict)
}

fn sorted(rejections: &[crate::model::Rejection]) -> Rejected {
    let mut sorted: Rejected = rejections.iter().map(|it| (it.index, it.reason)).collect();
    sorted.sort_unstable();
    sorted
}

/// Whether a state explains why a transaction changed nothing.
fn explains(model: &Model, transaction: &Transaction, answer: &Answer) -> bool {
    let mut after = model.clone();
    match (answer, after.apply(transaction)) {
        (Answer::Done(rejected), Verdict::Done { rejections }) => {
            *rejected == sorted(&rejections) && after.state() == model.state()
        }
        (Answer::Refused(reason), Verdict::Refused { reasons }) => {
            reason.is_some_and(|reason| reasons.contains(&reason))
        }
        _ => false,
    }
}

fn describe(call: &Call) -> String {
    let (begun, ended) = (call.begun, call.ended);
    let what = match &call.act {
        Act::List(found) => format!("the list {found:?}"),
        Act::Write(transaction, answer) => {
            let answer = match answer {
                Answer::Done(rejected) => format!("done, {rejected:?}"),
                Answer::Refused(reason) => format!("refused, {reason:?}"),
                Answer::Failed => "failed".to_owned(),
                Answer::Unknown => "unknown".to_owned(),
            };
            format!("{answer}:\n{}", transaction.script())
        }
    };
    format!("[{begun} {ended}] task {}: {what}", call.task)
}
