//! A copy of a shared store, switched as fast as it can be while Git and refdb read it.
//!
//! `REFDB_FOLLOW_SWITCHES` says how many switches there are in place of the usual ones.
#![expect(clippy::print_stdout, reason = "how much was tried")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use refdb::layout::Layout;
use refdb::objects::NoObjects;
use refdb::shared::{MemoryShared, Register, Settings};
use refdb::system::OsSystem;
use refdb::{Edit, ObjectFormat, ObjectId, Optimize, Options, RefFormat, RefNameBuf, Store};
use refdb_maintenance::shared::Follower;
use refdb_testkit::repo::Repo;
use refdb_testkit::trust::{Tally, budget};
use refdb_testkit::{Format, ours};

/// How many switches every test run makes.
const SWITCHES: u64 = 2_000;

/// Refs that have one value at any time.
const PAIR: usize = 10;

/// What readers saw.
#[derive(Default)]
struct Seen {
    done: AtomicBool,
    by_git: AtomicU64,
    here: AtomicU64,
    /// Something else than one state of the store.
    wrong: AtomicU64,
    /// What Git could not read at all.
    failed: AtomicU64,
}

fn oid(at: u64) -> ObjectId {
    let digit = b"123456789"[usize::try_from(at % 9).expect("it is small")];
    ObjectId::from_hex(&[digit; 40]).expect("forty digits")
}

fn set(store: &Store, names: &[RefNameBuf], at: u64) {
    let mut transaction = store.transaction().skip_logs();
    for name in names {
        let edit = Edit::update(name.as_name(), oid(at)).skip_object_check();
        transaction.add(edit).expect("a name");
    }
    let _ = transaction.commit().expect("nobody else writes");
}

/// Readers end with the writer, however it does.
struct End<'s>(&'s AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Seen {
    fn note(&self, values: &[String], count: &AtomicU64) {
        let is_one = values.len() == PAIR && values.iter().all(|it| *it == values[0]);
        self.wrong.fetch_add(u64::from(!is_one), Ordering::Relaxed);
        count.fetch_add(1, Ordering::Relaxed);
    }

    fn read_by_git(&self, copy: &Repo) {
        while !self.done.load(Ordering::Relaxed) {
            let run = copy.git(["for-each-ref", "--format=%(objectname)", "refs/pair"]);
            let output = run.run();
            if output.code() != 0 {
                self.failed.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let values: Vec<String> = text.lines().map(str::to_owned).collect();
            self.note(&values, &self.by_git);
        }
    }

    /// Reads as a program that stays, and now and then as one that begins.
    fn read_here(&self, dir: &Path) {
        let open = || {
            let (system, objects) = (Arc::new(OsSystem::new()), Arc::new(NoObjects));
            let options = Options::new(ObjectFormat::Sha1);
            Store::open(
                system,
                Layout::main(dir),
                RefFormat::Reftable,
                objects,
                options,
            )
        };
        let mut store = open().expect("a repository");
        while !self.done.load(Ordering::Relaxed) {
            if self.here.load(Ordering::Relaxed).is_multiple_of(16) {
                store = open().expect("a repository");
            }
            let mut refs = store.refs().expect("the copy can be read");
            let mut values = Vec::new();
            while let Some(found) = refs.next().expect("the copy can be read") {
                if found.name.as_bytes().starts_with(b"refs/pair/") {
                    values.push(format!("{:?}", found.target));
                }
            }
            self.note(&values, &self.here);
        }
    }
}

/// Switches a copy so many times. With a `mistake`, one of two states of the store is no state that a reader is
/// to see.
fn follow(switches: u64, mistake: bool) -> Seen {
    let place = Arc::new(MemoryShared::new());
    Register::init(place.as_ref(), &OsSystem::new(), ObjectFormat::Sha1, 1).expect("init");
    let register = || {
        let register = Register::open(
            place.clone(),
            Arc::new(OsSystem::new()),
            Settings::default(),
        );
        Arc::new(register.expect("nothing is read yet"))
    };
    let options = Options::new(ObjectFormat::Sha1);
    let store = Store::open_shared(register(), Arc::new(NoObjects), options).expect("a store");
    let copy = Repo::init_bare(Format::REFTABLE_SHA1);
    let follower = Follower::new(register(), &ours::open(&copy.git_dir()));
    let name = |text: String| RefNameBuf::new(text.as_bytes()).expect("a name");
    let pair: Vec<RefNameBuf> = (0..PAIR)
        .map(|at| name(format!("refs/pair/{at}")))
        .collect();
    let switch = |at: u64| {
        let synced = follower
            .sync(false, &mut |_| Ok(()))
            .expect("it is switched");
        assert!(synced.changed.is_some(), "turn {at}");
    };
    set(&store, &pair, 0);
    switch(0);
    let seen = Seen::default();
    thread::scope(|scope| {
        scope.spawn(|| seen.read_by_git(&copy));
        scope.spawn(|| seen.read_here(&copy.git_dir()));
        let _end = End(&seen.done);
        for done in 1..=switches {
            let (one, other) = pair.split_at(if mistake { PAIR / 2 } else { PAIR });
            set(&store, one, done);
            switch(done);
            if mistake {
                set(&store, other, done);
                switch(done);
            }
            if done % 50 == 7 {
                // The newest records have no room in the head any more, and become a table.
                let many = (0..2000).map(|at| name(format!("refs/many/{}/{at}", done % 3)));
                set(&store, &many.collect::<Vec<_>>(), done);
            }
            if done % 350 == 14 {
                store.optimize(&Optimize::default()).expect("it is merged");
            }
        }
    });
    seen
}

#[test]
fn a_copy_is_one_state_however_often_it_is_switched() {
    let switches = budget("REFDB_FOLLOW_SWITCHES", SWITCHES);
    let mut tally = Tally::begin("switches of a followed copy under readers", 0);
    let seen = follow(switches, false);
    let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let (by_git, here, wrong) = (get(&seen.by_git), get(&seen.here), get(&seen.wrong));
    let failed = get(&seen.failed);
    println!(
        "{switches} switches: {by_git} reads by Git, {here} by refdb, {wrong} wrong, {failed} failed"
    );
    assert_eq!((wrong, failed), (0, 0));
    assert!(by_git > 0 && here > 0);
    tally.add(switches);
}

#[test]
fn a_reader_that_sees_half_of_it_is_noticed() {
    let seen = follow(200, true);
    assert!(seen.wrong.load(Ordering::Relaxed) > 0);
}
