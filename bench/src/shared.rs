//! A store that machines share, measured: how long commits and reads take, and how many requests each is.
//!
//! What a place in memory takes, measured in the same run, is the part that is not the place's.

use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use refdb::objects::NoObjects;
use refdb::shared::{MemoryShared, Read, Register, Settings, Shared, Swap, Version};
use refdb::system::{Bytes, OsSystem, System};
use refdb::{Edit, Expected, ObjectFormat, ObjectId, Options, RefNameBuf, Store};

/// How many writers wait for each other in one process.
const WRITERS: usize = 64;

/// How many commits each of them makes for every ten of one writer alone.
const EACH: usize = 1;

/// What a measurement gives up with.
type Result<T> = std::result::Result<T, String>;

/// A place whose requests are counted: those that write, and those that read.
#[derive(Debug)]
struct Counted {
    place: Arc<dyn Shared>,
    writes: AtomicU64,
    reads: AtomicU64,
}

impl Counted {
    fn new(place: Arc<dyn Shared>) -> Arc<Counted> {
        Arc::new(Counted {
            place,
            writes: AtomicU64::new(0),
            reads: AtomicU64::new(0),
        })
    }

    fn write(&self) -> &dyn Shared {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.place.as_ref()
    }

    fn read(&self) -> &dyn Shared {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.place.as_ref()
    }

    fn so_far(&self) -> (u64, u64) {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (get(&self.writes), get(&self.reads))
    }
}

impl Shared for Counted {
    fn name(&self) -> String {
        self.place.name()
    }

    fn is_far(&self) -> bool {
        self.place.is_far()
    }

    fn head(&self, slot: u32, known: Option<&Version>) -> refdb::Result<Read> {
        self.read().head(slot, known)
    }

    fn swap(&self, slot: u32, expected: Option<&Version>, new: &[u8]) -> refdb::Result<Swap> {
        self.write().swap(slot, expected, new)
    }

    fn get(&self, key: &str, range: Option<Range<u64>>) -> refdb::Result<Option<Bytes>> {
        self.read().get(key, range)
    }

    fn put(&self, key: &str, content: &[u8]) -> refdb::Result<()> {
        self.write().put(key, content)
    }

    fn delete(&self, keys: &[&str]) -> refdb::Result<()> {
        self.place.delete(keys)
    }

    fn clear(&self, slots: Range<u32>) -> refdb::Result<()> {
        self.place.clear(slots)
    }

    fn list(&self, prefix: &str) -> refdb::Result<Vec<(String, u64)>> {
        self.read().list(prefix)
    }
}

/// Measures a place in which no store is yet: one is made, and stays. `commits` is how many one writer makes.
///
/// # Errors
/// Says what did not work.
pub fn measure_shared(place: Arc<dyn Shared>, commits: usize) -> Result<String> {
    let mut report = format!("{}, and a place in memory; times in ms\n\n", place.name());
    let _ = writeln!(
        report,
        "{:<34}{:>10}{:>9}{:>9}{:>8}{:>8}{:>12}",
        "", "a second", "median", "99%", "PUT", "GET", "in memory"
    );
    let here = rows(place, commits)?;
    let memory = rows(Arc::new(MemoryShared::new()), commits)?;
    for (row, memory) in here.iter().zip(&memory) {
        let _ = writeln!(
            report,
            "{:<34}{:>10.0}{:>9.2}{:>9.2}{:>8.3}{:>8.3}{:>12.0}",
            row.what, row.rate, row.median, row.late, row.writes, row.reads, memory.rate
        );
    }
    let _ = writeln!(
        report,
        "\nPUT and GET: requests that write and read, for each of them"
    );
    Ok(report)
}

struct Row {
    what: String,
    rate: f64,
    median: f64,
    late: f64,
    writes: f64,
    reads: f64,
}

fn rows(place: Arc<dyn Shared>, commits: usize) -> Result<Vec<Row>> {
    let system = OsSystem::new();
    let failed = |error: refdb::Error| error.to_string();
    Register::init(place.as_ref(), &system, ObjectFormat::Sha1, 1).map_err(failed)?;
    let counted = Counted::new(place);
    let open = || -> refdb::Result<Store> {
        let place = Arc::clone(&counted) as Arc<dyn Shared>;
        let register = Register::open(place, Arc::new(OsSystem::new()), Settings::default())?;
        let options = Options::new(ObjectFormat::Sha1);
        Store::open_shared(Arc::new(register), Arc::new(NoObjects), options)
    };
    let store = open().map_err(failed)?;
    let random = system.random();
    create(&store, &format!("refs/bench/{random:016x}/first")).map_err(failed)?;
    let row = |what: String,
               writers: usize,
               each: usize,
               act: &(dyn Fn(usize, usize) -> refdb::Result<()> + Sync)| {
        row(&counted, what, writers, each, act)
    };
    let commit = |writers: usize| {
        let store = &store;
        move |writer: usize, at: usize| {
            create(
                store,
                &format!("refs/bench/{random:016x}/{writers}.{writer}/{at}"),
            )
        }
    };
    let alone = row("one writer, one ref each".into(), 1, commits, &commit(1))?;
    let each = (commits * EACH / 10).max(1);
    let together = row(
        format!("{WRITERS} writers, one process"),
        WRITERS,
        each,
        &commit(WRITERS),
    )?;
    let reader = open().map_err(failed)?;
    let name = RefNameBuf::lax(format!("refs/bench/{random:016x}/first").as_bytes());
    let name = name.map_err(failed)?;
    reader.resolve(name.as_name()).map_err(failed)?;
    let read = row(
        "reading a ref, nothing older".into(),
        1,
        commits,
        &|_, _| reader.resolve(name.as_name()).map(drop),
    )?;
    Ok(vec![alone, together, read])
}

fn create(store: &Store, name: &str) -> refdb::Result<()> {
    let oid = ObjectId::from_hex(&[b'1'; 40]);
    let name = RefNameBuf::lax(name.as_bytes())?;
    let mut transaction = store.transaction().skip_logs();
    if let Some(oid) = oid {
        transaction.add(Edit::update(name.as_name(), oid).expecting(Expected::Missing))?;
    }
    transaction.commit().map(drop)
}

/// Does something many times in so many threads.
fn row(
    counted: &Counted,
    what: String,
    writers: usize,
    each: usize,
    act: &(dyn Fn(usize, usize) -> refdb::Result<()> + Sync),
) -> Result<Row> {
    let before = counted.so_far();
    let begun = Instant::now();
    let took: Result<Vec<Vec<Duration>>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..writers)
            .map(|writer| {
                scope.spawn(move || {
                    let timed = |at| {
                        let begun = Instant::now();
                        act(writer, at).map(|()| begun.elapsed())
                    };
                    (0..each).map(timed).collect::<refdb::Result<Vec<_>>>()
                })
            })
            .collect();
        let joined = threads.into_iter().map(|thread| match thread.join() {
            Ok(took) => took.map_err(|error| error.to_string()),
            Err(_) => Err("a writer panicked".to_owned()),
        });
        joined.collect()
    });
    let mut took = took?.concat();
    let whole = begun.elapsed().as_secs_f64();
    let after = counted.so_far();
    took.sort_unstable();
    let at = |share: usize| {
        let found = took.get(took.len() * share / 100);
        found.copied().unwrap_or_default().as_secs_f64() * 1000.0
    };
    let count = took.len() as f64;
    Ok(Row {
        what,
        rate: count / whole,
        median: at(50),
        late: at(99),
        writes: (after.0 - before.0) as f64 / count,
        reads: (after.1 - before.1) as f64 / count,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_commit_is_one_request_and_those_who_wait_share_them() {
        let rows = rows(Arc::new(MemoryShared::new()), 50).expect("it is measured");
        let requests: Vec<(f64, f64)> = rows.iter().map(|row| (row.writes, row.reads)).collect();
        assert_eq!(requests[0], (1.0, 0.0));
        assert!(requests[1].0 < 1.0, "{requests:?}");
        assert_eq!(requests[2], (0.0, 1.0));
    }
}
