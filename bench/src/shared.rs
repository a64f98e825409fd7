//! A store that machines share, measured: how long commits and reads take, and how many requests each is.
//!
//! Two others are measured in the same run: refs in a repository of this machine, in tables, whose commits are synced;
//! and a place in memory, which shows the part that is not the place's.

use std::fmt::Write as _;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use refdb::layout::Layout;
use refdb::objects::NoObjects;
use refdb::shared::{MemoryShared, Read, Register, Settings, Shared, Swap, Version};
use refdb::system::{Bytes, OsSystem, System};
use refdb::{Edit, Expected, ObjectFormat, ObjectId, Options, RefFormat, RefNameBuf, Store};

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

/// Measures a place in which no store is yet: one is made, and stays. `commits` is how many one writer makes. The
/// repository of this machine is made in `dir`, and does not stay.
///
/// # Errors
/// Says what did not work.
pub fn measure_shared(place: Arc<dyn Shared>, commits: usize, dir: &Path) -> Result<String> {
    let name = place.name();
    let mut report = format!(
        "{name}, beside a local repository in {} and a place in memory; times in ms\n\n",
        dir.display()
    );
    let _ = writeln!(
        report,
        "{:<34}{:>10}{:>9}{:>9}{:>8}{:>8}{:>12}{:>10}{:>12}",
        "", "a second", "median", "99%", "PUT", "GET", "local", "median", "in memory"
    );
    let here = shared_rows(place, commits)?;
    let local = local_rows(dir, commits)?;
    let memory = shared_rows(Arc::new(MemoryShared::new()), commits)?;
    for ((row, local), memory) in here.iter().zip(&local).zip(&memory) {
        let _ = writeln!(
            report,
            "{:<34}{:>10.0}{:>9.2}{:>9.2}{:>8.3}{:>8.3}{:>12.0}{:>10.2}{:>12.0}",
            row.what,
            row.rate,
            row.median,
            row.late,
            row.writes,
            row.reads,
            local.rate,
            local.median,
            memory.rate
        );
    }
    let _ = writeln!(
        report,
        "\nPUT and GET: requests that write and read, for each of them; local, in memory: a second"
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

fn shared_rows(place: Arc<dyn Shared>, commits: usize) -> Result<Vec<Row>> {
    let init = Register::init(place.as_ref(), &OsSystem::new(), ObjectFormat::Sha1, 1);
    init.map_err(|error| error.to_string())?;
    let counted = Counted::new(place);
    let open = || {
        let place = Arc::clone(&counted) as Arc<dyn Shared>;
        let register = Register::open(place, Arc::new(OsSystem::new()), Settings::default())?;
        let options = Options::new(ObjectFormat::Sha1);
        Store::open_shared(Arc::new(register), Arc::new(NoObjects), options)
    };
    rows(&open, &|| counted.so_far(), commits)
}

/// Measures refs that a repository of this machine keeps itself.
fn local_rows(dir: &Path, commits: usize) -> Result<Vec<Row>> {
    let failed = |error: std::io::Error| format!("{}: {error}", dir.display());
    let repository = tempfile::Builder::new()
        .prefix("refdb-bench-")
        .tempdir_in(dir)
        .map_err(failed)?;
    let base = repository.path();
    fs::create_dir(base.join("reftable")).map_err(failed)?;
    fs::write(base.join("reftable/tables.list"), "").map_err(failed)?;
    let open = || {
        let options = Options::new(ObjectFormat::Sha1);
        let (system, layout) = (Arc::new(OsSystem::new()), Layout::alone(base));
        Store::open(
            system,
            layout,
            RefFormat::Reftable,
            Arc::new(NoObjects),
            options,
        )
    };
    rows(&open, &|| (0, 0), commits)
}

/// Measures a store that is empty. `so_far` tells how many requests wrote and read.
fn rows(
    open: &dyn Fn() -> refdb::Result<Store>,
    so_far: &dyn Fn() -> (u64, u64),
    commits: usize,
) -> Result<Vec<Row>> {
    let failed = |error: refdb::Error| error.to_string();
    let store = open().map_err(failed)?;
    let random = OsSystem::new().random();
    create(&store, &format!("refs/bench/{random:016x}/first")).map_err(failed)?;
    let commit = |writers: usize| {
        let store = &store;
        move |writer: usize, at: usize| {
            create(
                store,
                &format!("refs/bench/{random:016x}/{writers}.{writer}/{at}"),
            )
        }
    };
    let what = "one writer, one ref each".to_owned();
    let alone = row(so_far, what, 1, commits, &commit(1))?;
    let (what, each) = (
        format!("{WRITERS} writers, one process"),
        (commits * EACH / 10).max(1),
    );
    let together = row(so_far, what, WRITERS, each, &commit(WRITERS))?;
    let reader = open().map_err(failed)?;
    let name = RefNameBuf::lax(format!("refs/bench/{random:016x}/first").as_bytes());
    let name = name.map_err(|error| error.to_string())?;
    reader.resolve(name.as_name()).map_err(failed)?;
    let what = "reading a ref, nothing older".to_owned();
    let read = row(so_far, what, 1, commits, &|_, _| {
        reader.resolve(name.as_name()).map(drop)
    })?;
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
    so_far: &dyn Fn() -> (u64, u64),
    what: String,
    writers: usize,
    each: usize,
    act: &(dyn Fn(usize, usize) -> refdb::Result<()> + Sync),
) -> Result<Row> {
    let before = so_far();
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
    let after = so_far();
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
        let rows = shared_rows(Arc::new(MemoryShared::new()), 50).expect("it is measured");
        let requests: Vec<(f64, f64)> = rows.iter().map(|row| (row.writes, row.reads)).collect();
        assert_eq!(requests[0], (1.0, 0.0));
        assert!(requests[1].0 < 1.0, "{requests:?}");
        assert_eq!(requests[2], (0.0, 1.0));
    }

    #[test]
    fn refs_of_this_machine_are_measured_as_well_and_leave_nothing() {
        let temp = tempfile::tempdir().expect("a folder");
        let rows = local_rows(temp.path(), 10).expect("they are measured");
        assert!(rows.iter().all(|row| row.rate > 0.0 && row.writes == 0.0));
        assert_eq!(fs::read_dir(temp.path()).expect("a folder").count(), 0);
    }
}
