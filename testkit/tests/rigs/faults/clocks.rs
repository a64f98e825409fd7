//! Clocks that are set by hours, forwards and backwards: in the midst of a transaction, between the death of a
//! process and the next one, and while somebody waits. Nothing is lost, no lock of the living is broken, and every
//! wait ends, neither at once nor never.

use std::sync::atomic::{AtomicU64, Ordering};

use refdb::options::LockTimeout;
use refdb::shared::{Freshness, Register, Settings};
use refdb_testkit::shared::simulation::{Faults, World};

use super::*;

/// By how many seconds the clock is set.
const JUMPS: [i64; 2] = [-5 * 3600, 5 * 3600];

/// How many points of each workload are tried.
const POINTS: u64 = 5;

const WAITS_FOR: Duration = Duration::from_secs(2);

/// A request that is made so often is made for ever.
const REQUESTS_MAX: u64 = 100_000;

fn impatient(options: &mut Options) {
    let limit = LockTimeout::from_millis(2_000);
    options.files_ref_lock_timeout = limit;
    options.packed_refs_timeout = limit;
    options.reftable.lock_timeout = limit;
}

impl Case {
    /// Lets the process die before an operation, after which the clock is set.
    fn die_before_the_clock_is_set(&self, at: u64, seconds: i64) {
        let context = format!(
            "{}, dead before operation {at}, {seconds} s",
            self.workload.name
        );
        let (old, new) = self.sides();
        let system = self.base.fork();
        system.set_fault(Some(Fault::dies_at(at)));
        let _ = self.run(&system);
        system.end();
        system.set_clock(seconds);
        let found = self.state(&system);
        assert_between(&found, &old, &new, self.is_at_once(), &context);
        system.set_clock(-seconds);
        self.assert_works(&system, &context);
    }
}

for_every_format! {
    fn what_a_dead_process_left_is_finished_whatever_the_clock_says(format) {
        for case in Case::all(format) {
            for at in case.points(POINTS) {
                for seconds in JUMPS {
                    case.die_before_the_clock_is_set(at, seconds);
                }
            }
        }
    }

    fn what_is_prepared_is_committed_whatever_the_clock_says(format) {
        for seconds in JUMPS {
            let system = repository(format);
            let living = Process::new(system.process(1), format);
            let waiting = Process::with(Arc::new(system.process(2)), format, impatient);
            // It leads to what is locked before it.
            commit(&living.main, vec![symbolic("refs/z", "refs/heads/both")]).expect("no fault");
            let names = ["refs/heads/main", "refs/heads/both", "refs/heads/new"];
            let mut transaction = living.main.transaction();
            for text in names {
                transaction.add(living.update(text, 6)).expect("no fault");
            }
            let prepared = transaction.prepare().expect("no fault");
            system.set_clock_always(seconds);
            for text in ["refs/heads/both", "refs/z"] {
                let begun = system.elapsed();
                let done = commit(&waiting.main, vec![waiting.update(text, 7)]);
                let waited = system.elapsed() - begun;
                let context = format!("{text}, {seconds} s, {waited:?}");
                let is_locked = |error: &refdb::Error| error.to_string().contains(".lock");
                assert!(done.as_ref().is_err_and(is_locked), "{context}: {done:?}");
                assert!(waited > WAITS_FOR / 2 && waited < 10 * WAITS_FOR, "{context}");
            }
            let outcome = prepared.commit().expect("its locks are its own");
            assert!(outcome.afterwards.is_empty());
            let found = state(&system, format);
            for text in names {
                let value = &found.refs[&format!("main {text}")];
                assert_eq!(value, &Target::Direct(numbered(format, 6)), "{text}");
            }
            assert_eq!(leftovers(&system).0, [""; 0]);
        }
    }
}

/// The format of a place that machines share.
const SHARED: Format = Format::REFTABLE_SHA1;

/// Makes such a place, with nothing in it.
fn shared_place() -> (SimSystem, World) {
    let (system, world) = (SimSystem::new(3), World::new(3, Faults::NONE));
    Register::init(&world.client(0), &system, SHARED.objects, 1).expect("no fault");
    (system, world)
}

/// A place that answers nobody is given up after the time that was said, not at once and not never.
#[test]
fn a_shared_place_that_is_not_there_is_given_up_in_time() {
    for seconds in JUMPS {
        let (system, world) = shared_place();
        let lost = world.with_faults(Faults {
            lost: 100,
            ..Faults::NONE
        });
        let place = Arc::new(lost.client(1));
        let asked = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&asked);
        place.set_others(Some(Arc::new(move || {
            let asked = count.fetch_add(1, Ordering::Relaxed);
            assert!(asked < REQUESTS_MAX, "it never ends");
        })));
        let register = Register::open(place, Arc::new(system.process(1)), Settings::default());
        let register = Arc::new(register.expect("no fault"));
        let options = ours::simulated(SHARED.objects);
        let store = Store::open_shared(register, Arc::new(NoObjects), options).expect("no fault");
        system.set_clock_always(seconds);
        let begun = system.elapsed();
        let edit = symbolic("refs/x", "refs/heads/main");
        let done = commit(&store, vec![edit]);
        let (waited, asked) = (system.elapsed() - begun, asked.load(Ordering::Relaxed));
        assert!(done.is_err(), "{seconds} s: {waited:?}, {asked}");
        assert!(asked > 10, "{seconds} s: {waited:?}, {asked}, {done:?}");
        assert!(
            waited < 10 * Settings::default().limit,
            "{seconds} s: {waited:?}"
        );
    }
}

/// What was looked at a second ago is no fresher for a clock that was set back since.
#[test]
fn what_is_known_of_a_shared_place_grows_old_whatever_the_clock_says() {
    for seconds in JUMPS {
        let (system, world) = shared_place();
        let open = |pid| {
            let place = Arc::new(world.client(u64::from(pid)));
            let register =
                Register::open(place, Arc::new(system.process(pid)), Settings::default());
            Arc::new(register.expect("no fault"))
        };
        let reads = open(1);
        let first = reads.current(Freshness::Fresh).expect("no fault");
        let options = ours::simulated(SHARED.objects);
        let store = Store::open_shared(open(2), Arc::new(NoObjects), options).expect("no fault");
        commit(&store, vec![symbolic("refs/x", "refs/heads/main")]).expect("no fault");
        system.set_clock(seconds);
        let most = Freshness::AtMost(Duration::from_secs(1));
        let generation = |freshness| {
            let known = reads.current(freshness).expect("no fault");
            known.head.generation
        };
        assert_eq!(
            generation(most),
            first.head.generation,
            "it is a moment old"
        );
        system.sleep(Duration::from_secs(2));
        assert!(generation(most) > first.head.generation, "{seconds} s");
    }
}
