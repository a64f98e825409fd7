//! What is measured: commits and reads by so many threads, and how long each took.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use refdb::objects::NoObjects;
use refdb::shared::{Register, Settings, Shared};
use refdb::system::OsSystem;
use refdb::{Edit, Expected, ObjectFormat, ObjectId, Options, RefNameBuf, Store};

use crate::slow::Slow;

/// What was measured of one kind of work.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    /// So many a second.
    pub(crate) rate: f64,
    /// So many if each took as long as half of them: what a machine with nothing else to do comes close to.
    pub(crate) undisturbed: f64,
    /// How long one took, in milliseconds.
    pub(crate) median: f64,
    /// The same of the slowest in a hundred.
    pub(crate) late: f64,
    /// Requests that wrote and read, for each.
    pub(crate) writes: f64,
    pub(crate) reads: f64,
    /// How many were refused or failed. Nobody is in anybody's way here.
    pub(crate) refused: usize,
}

/// Makes a store where none is.
pub(crate) fn init(place: &dyn Shared) {
    Register::init(place, &OsSystem::new(), ObjectFormat::Sha1, 1).expect("an empty place");
}

/// Opens the store as another process would.
pub(crate) fn open(place: &Arc<Slow>) -> Store {
    open_with(place, Settings::default())
}

pub(crate) fn open_with(place: &Arc<Slow>, settings: Settings) -> Store {
    let place = Arc::clone(place) as Arc<dyn Shared>;
    let register = Register::open(place, Arc::new(OsSystem::new()), settings);
    let register = Arc::new(register.expect("nothing is read yet"));
    let options = Options::new(ObjectFormat::Sha1);
    Store::open_shared(register, Arc::new(NoObjects), options).expect("a store")
}

pub(crate) fn oid() -> ObjectId {
    ObjectId::from_hex(&[b'1'; 40]).expect("forty digits")
}

pub(crate) fn name(text: &str) -> RefNameBuf {
    RefNameBuf::new(text.as_bytes()).expect("a name")
}

/// Makes a ref that does not exist, as a push does.
pub(crate) fn create(store: &Store, text: &str) -> refdb::Result<()> {
    let name = name(text);
    let mut transaction = store.transaction().skip_logs();
    let edit = Edit::update(name.as_name(), oid()).skip_object_check();
    transaction.add(edit.expecting(Expected::Missing))?;
    transaction.commit().map(drop)
}

/// Makes many refs in one transaction.
pub(crate) fn fill(store: &Store, count: usize) {
    let names: Vec<RefNameBuf> = (0..count)
        .map(|at| name(&format!("refs/heads/topic/{:03}/{at:07}", at % 997)))
        .collect();
    let mut transaction = store.transaction().skip_logs();
    for (at, name) in names.iter().enumerate() {
        // Object ids that do not compress, as real ones.
        let digits = format!(
            "{:040x}",
            (at as u128 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
        );
        let oid = ObjectId::from_hex(digits.as_bytes()).expect("forty digits");
        let edit = Edit::update(name.as_name(), oid).skip_object_check();
        transaction.add(edit).expect("a new name");
    }
    let _ = transaction.commit().expect("nobody else writes");
}

/// Does something `each` times in each of so many threads, or at its times in `pace`.
pub(crate) fn measure(
    place: &Slow,
    threads: usize,
    each: usize,
    pace: Option<Duration>,
    act: &(dyn Fn(usize, usize) -> refdb::Result<()> + Sync),
) -> Figures {
    let before = place.so_far();
    let begun = Instant::now();
    let one = |thread: usize| {
        let mut took = Vec::with_capacity(each);
        let mut refused = 0;
        for at in 0..each {
            let mut since = Instant::now();
            if let Some(pace) = pace {
                // What comes late has waited since its time.
                let turn = u32::try_from(at * threads + thread).expect("not so many");
                since = begun + pace * turn;
                thread::sleep(since.saturating_duration_since(Instant::now()));
            }
            refused += usize::from(act(thread, at).is_err());
            took.push(since.elapsed());
        }
        (took, refused)
    };
    let all: Vec<(Vec<Duration>, usize)> = thread::scope(|scope| {
        let builder = || thread::Builder::new().stack_size(256 << 10);
        let one = &one;
        let started: Vec<_> = (0..threads)
            .map(|thread| builder().spawn_scoped(scope, move || one(thread)))
            .collect();
        let joined = started.into_iter().map(|it| it.expect("a thread").join());
        joined.map(|done| done.expect("no writer panics")).collect()
    });
    let whole = begun.elapsed().as_secs_f64();
    let after = place.so_far();
    let refused = all.iter().map(|it| it.1).sum();
    let mut took: Vec<Duration> = all.into_iter().flat_map(|it| it.0).collect();
    took.sort_unstable();
    let at = |share: usize| took[took.len() * share / 100].as_secs_f64() * 1000.0;
    let count = took.len() as f64;
    Figures {
        rate: count / whole,
        undisturbed: threads as f64 * 1000.0 / at(50),
        median: at(50),
        late: at(99),
        writes: (after.0 - before.0) as f64 / count,
        reads: (after.1 - before.1) as f64 / count,
        refused,
    }
}
