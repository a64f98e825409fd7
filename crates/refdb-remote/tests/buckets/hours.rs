//! Many writers for a long time on buckets that are far away and lie about a quarter of what is stored: nothing that
//! was acknowledged is lost, nothing that failed is there, and nobody is refused who is in nobody's way.
//! `scripts/object-stores hours`.

#![expect(clippy::print_stderr, reason = "how much was tried")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use refdb::objects::NoObjects;
use refdb::shared::{Register, Settings, Shared};
use refdb::system::OsSystem;
use refdb::{
    Edit, ErrorKind, Expected, ObjectFormat, ObjectId, Options, RefNameBuf, Store, Target,
};
use refdb_testkit::trust::{Tally, budget};

use crate::liar::Place;
use crate::open_place;

/// How many write, and how many of them to the same store, each as a process of its own.
const WRITERS: u64 = 40;
const TOGETHER: u64 = 4;
const SECONDS: u64 = 900;
const DELAY: u64 = 40;
const LIES: u64 = 25;

/// What a writer was told of the refs that it made: `None` where nobody knew.
#[derive(Default)]
struct Told {
    made: Vec<(String, Option<bool>)>,
    /// What the ref that it moves each time is, if that is known.
    own: Option<ObjectId>,
    refused: Vec<String>,
}

fn open(place: Arc<dyn Shared>) -> (Arc<Register>, Store) {
    let register = Register::open(place, Arc::new(OsSystem::new()), Settings::default());
    let register = Arc::new(register.expect("nothing is read yet"));
    let options = Options::new(ObjectFormat::Sha1);
    let store = Store::open_shared(Arc::clone(&register), Arc::new(NoObjects), options);
    (register, store.expect("a store"))
}

fn name(text: &str) -> RefNameBuf {
    RefNameBuf::new(text.as_bytes()).expect("a name")
}

fn oid(number: u64) -> ObjectId {
    ObjectId::from_hex(format!("{:040x}", number + 1).as_bytes()).expect("digits")
}

/// Makes a ref and moves the own one from what it was.
fn commit(
    store: &Store,
    new: &str,
    own: &str,
    from: Option<ObjectId>,
    to: ObjectId,
) -> refdb::Result<()> {
    let (new, own) = (name(new), name(own));
    let mut transaction = store.transaction().skip_logs();
    let made = Edit::update(new.as_name(), to).skip_object_check();
    transaction.add(made.expecting(Expected::Missing))?;
    let before = from.map_or(Expected::Missing, Expected::Oid);
    let moved = Edit::update(own.as_name(), to).skip_object_check();
    transaction.add(moved.expecting(before))?;
    transaction.commit().map(drop)
}

/// Returns what the own ref is, however long it takes to be told.
fn look(store: &Store, own: &str) -> Option<ObjectId> {
    loop {
        match store.resolve(name(own).as_name()) {
            Ok(found) => return found.map(|found| found.oid),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Io, "{error}"),
        }
    }
}

fn write(url: &str, writer: u64, until: Instant) -> Told {
    let (_, store) = open(open_place(url));
    let own = format!("refs/own/{writer}");
    let mut told = Told::default();
    for at in 0.. {
        if Instant::now() >= until {
            break;
        }
        let new = format!("refs/heads/w{writer}/{at}");
        let to = oid(writer << 32 | at);
        let outcome = match commit(&store, &new, &own, told.own, to) {
            Ok(()) => {
                told.own = Some(to);
                Some(true)
            }
            Err(error) if error.kind() == ErrorKind::Unknown => {
                told.own = look(&store, &own);
                None
            }
            Err(error) => {
                if !matches!(error.kind(), ErrorKind::Io | ErrorKind::Overtaken) {
                    told.refused.push(format!("{new}: {error}"));
                }
                Some(false)
            }
        };
        told.made.push((new, outcome));
    }
    told
}

#[test]
#[ignore = "it takes a quarter of an hour: scripts/object-stores hours"]
fn writers_who_are_lied_to_for_hours_lose_nothing() {
    let writers = budget("REFDB_HOURS_WRITERS", WRITERS);
    let seconds = budget("REFDB_HOURS_SECONDS", SECONDS);
    let mut tally = Tally::begin("transactions on buckets that lie", 0);
    let place = Place::new(LIES);
    place.set_delay(DELAY);
    let urls: Vec<String> = (0..writers.div_ceil(TOGETHER))
        .map(|at| place.url(&format!("hours{at}")))
        .collect();
    for url in &urls {
        let place = open_place(url);
        Register::init(place.as_ref(), &OsSystem::new(), ObjectFormat::Sha1, 1).expect("init");
    }
    let until = Instant::now() + Duration::from_secs(seconds);
    let url_of = |writer: u64| urls[usize::try_from(writer / TOGETHER).expect("a few")].as_str();
    let all: Vec<Told> = thread::scope(|scope| {
        let url_of = &url_of;
        let threads: Vec<_> = (0..writers)
            .map(|writer| scope.spawn(move || write(url_of(writer), writer, until)))
            .collect();
        let joined = threads.into_iter().map(|it| it.join());
        joined.map(|told| told.expect("no writer panics")).collect()
    });
    let (mut done, mut failed, mut unknown) = (0, 0, 0);
    for (at, url) in urls.iter().enumerate() {
        let (register, store) = open(open_place(url));
        let wrong = refdb_maintenance::shared::verify(&register, &|_| ()).expect("it is read");
        assert!(wrong.is_empty(), "{wrong:?}");
        let mut refs = store.refs().expect("it is read");
        let mut found = BTreeMap::new();
        while let Some(record) = refs.next().expect("it is read") {
            found.insert(record.name.to_string(), record.target.to_owned());
        }
        let first = at as u64 * TOGETHER;
        for writer in first..(first + TOGETHER).min(writers) {
            let told = &all[usize::try_from(writer).expect("a few")];
            assert!(
                told.refused.is_empty(),
                "nobody was in their way: {:?}",
                told.refused
            );
            for (name, outcome) in &told.made {
                match outcome {
                    Some(true) => done += 1,
                    Some(false) => failed += 1,
                    None => unknown += 1,
                }
                let is_there = found.contains_key(name);
                assert!(
                    outcome.is_none_or(|is_done| is_done == is_there),
                    "{name}: told {outcome:?}, there {is_there}"
                );
            }
            let own = told.own.map(Target::Direct);
            assert_eq!(
                found.get(&format!("refs/own/{writer}")),
                own.as_ref(),
                "{writer}"
            );
        }
    }
    let (puts, gets, lies) = place.counts();
    eprintln!(
        "{writers} writers for {seconds} s: {done} done, {failed} failed, {unknown} unknown; {puts} requests that \
         write, {gets} that read, {lies} lies"
    );
    assert!(done > writers && lies * 8 > puts);
    tally.add(done);
}
