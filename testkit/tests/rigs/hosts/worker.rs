//! What one process does: some pushes, and one that is killed or stopped at one of its requests, perhaps.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use refdb::shared::{Read, Shared, Swap, Version};
use refdb::system::Bytes;
use refdb::{ObjectId, Optimize, RefNameBuf};
use refdb_git::Repository;
use refdb_maintenance::shared::{Committer, Fate, Push, Wanted};
use refdb_testkit::rng::Rng;

use super::{CONTESTED, VALUES_EACH, note};

/// A process makes so many pushes.
const PUSHES: u64 = 12;

/// Of so many processes, one is killed or stopped at a request.
const DOOMED: usize = 4;

/// At which request something happens, and what.
static DOOM: AtomicU64 = AtomicU64::new(u64::MAX);
static KIND: AtomicU64 = AtomicU64::new(0);
/// Of so many replacements of a head, one is made up; none if it is 0.
static MADE_UP: AtomicU64 = AtomicU64::new(0);

/// A place that ends the process, or stops it, before or after one of its requests.
#[derive(Debug)]
struct Doomed {
    place: Arc<dyn Shared>,
    requests: AtomicU64,
}

impl Doomed {
    fn during<T>(&self, act: impl FnOnce(&dyn Shared) -> T) -> T {
        let at = self.requests.fetch_add(1, Ordering::SeqCst);
        let is_it = at == DOOM.load(Ordering::SeqCst);
        let (kind, pid) = (KIND.load(Ordering::SeqCst), std::process::id().to_string());
        let signal = if kind & 2 == 0 { "-KILL" } else { "-STOP" };
        let strike = || {
            Command::new("kill")
                .args([signal, &pid])
                .status()
                .expect("kill runs");
        };
        if is_it && kind & 1 == 0 {
            strike();
        }
        let done = act(self.place.as_ref());
        if is_it && kind & 1 == 1 {
            strike();
        }
        done
    }
}

impl Shared for Doomed {
    fn name(&self) -> String {
        self.place.name()
    }

    fn head(&self, slot: u32, known: Option<&Version>) -> refdb::Result<Read> {
        self.during(|place| place.head(slot, known))
    }

    fn swap(&self, slot: u32, expected: Option<&Version>, new: &[u8]) -> refdb::Result<Swap> {
        let one_in = MADE_UP.load(Ordering::SeqCst);
        let at = self.requests.load(Ordering::SeqCst);
        if one_in > 0 && at % one_in == 1 {
            self.requests.fetch_add(1, Ordering::SeqCst);
            return Ok(Swap::Done(Version("made up".into())));
        }
        self.during(|place| place.swap(slot, expected, new))
    }

    fn get(&self, key: &str, range: Option<Range<u64>>) -> refdb::Result<Option<Bytes>> {
        self.during(|place| place.get(key, range))
    }

    fn put(&self, key: &str, content: &[u8]) -> refdb::Result<()> {
        self.during(|place| place.put(key, content))
    }

    fn delete(&self, keys: &[&str]) -> refdb::Result<()> {
        self.during(|place| place.delete(keys))
    }

    fn clear(&self, slots: Range<u32>) -> refdb::Result<()> {
        self.place.clear(slots)
    }

    fn list(&self, prefix: &str) -> refdb::Result<Vec<(String, u64)>> {
        self.during(|place| place.list(prefix))
    }
}

/// Nanoseconds by the clock that all processes share.
fn now() -> u128 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("it is later than 1970").as_nanos()
}

struct Worker {
    repository: Repository,
    committer: Committer,
    log: PathBuf,
    writer: usize,
    values: Vec<ObjectId>,
    used: usize,
}

/// Does what a task says: where the repository and the folder of the scene are, which writer this is, a random
/// number, how many milliseconds are left, and what is planted.
pub(super) fn work(task: &str) {
    let mut words = task.split(' ');
    let mut next = || words.next().expect("a word");
    let (git_dir, root) = (PathBuf::from(next()), PathBuf::from(next()));
    let mut number = || next().parse::<u64>().expect("a number");
    let (writer, random, left) = (number(), number(), number());
    let planted = next();
    let mut rng = Rng::new(random);
    if rng.below(DOOMED) == 0 {
        DOOM.store(rng.below(40) as u64, Ordering::SeqCst);
        KIND.store(rng.below(4) as u64, Ordering::SeqCst);
    }
    if planted == "forgets" {
        MADE_UP.store(20, Ordering::SeqCst);
    }
    refdb_git::places::set_opener(|url, _| {
        let (place, requests) = (crate::open_place(url), AtomicU64::new(0));
        Ok(Arc::new(Doomed { place, requests }) as Arc<dyn Shared>)
    });
    let writer = usize::try_from(writer).expect("it is small");
    let Some(mut worker) = Worker::begin(&git_dir, &root, writer) else {
        return;
    };
    let until = Instant::now() + Duration::from_millis(left);
    for _ in 0..PUSHES {
        if Instant::now() >= until || worker.used + 2 > VALUES_EACH {
            return;
        }
        worker.turn(&mut rng);
    }
}

impl Worker {
    fn begin(git_dir: &Path, root: &Path, writer: usize) -> Option<Worker> {
        let log = root.join(format!("told.{writer}"));
        let repository = Repository::open(git_dir).expect("a repository");
        let committer = Committer::open(&repository).expect("it can be opened");
        let values = fs::read_to_string(root.join("values")).expect("values");
        let values = values.lines().skip(writer * VALUES_EACH).take(VALUES_EACH);
        let values = values.map(|line| ObjectId::from_hex(line.as_bytes()).expect("an id"));
        let told = fs::read_to_string(&log).unwrap_or_default();
        let used = told.lines().filter(|line| line.starts_with("begin"));
        let used = used.map(|line| (line.split(' ').count() - 3) / 3).sum();
        Some(Worker {
            committer: committer.expect("it uses a store"),
            repository,
            log,
            writer,
            values: values.collect(),
            used,
        })
    }

    fn turn(&mut self, rng: &mut Rng) {
        let own = format!("refs/own/{}", self.writer);
        let contested = format!("refs/contested/{}", rng.below(CONTESTED));
        match rng.below(20) {
            0 => {
                // Somebody else may be faster at it.
                let _ = self.repository.store().optimize(&Optimize::default());
            }
            1 | 2 => {
                let register = self.repository.register().expect("it uses a store");
                let _ = register.collect(Duration::ZERO);
            }
            3..=5 => self.push(&[own, contested]),
            6..=10 => self.push(&[contested]),
            _ => self.push(&[own]),
        }
    }

    /// Reads a ref, as new as it can be had.
    fn read(&self, name: &str) -> Option<Option<ObjectId>> {
        let begun = now();
        let buf = RefNameBuf::new(name.as_bytes()).expect("a name");
        let found = self.repository.store().read(buf.as_name());
        let found = found.ok()?.and_then(|found| found.target.oid());
        let shown = found.map_or("-".to_owned(), |id| id.to_string());
        note(
            &self.log,
            &format!("read {begun} {} {name} {shown}\n", now()),
        );
        Some(found)
    }

    /// Moves refs, all or none.
    fn push(&mut self, names: &[String]) {
        let mut refs = Vec::new();
        let mut line = String::new();
        for name in names {
            let Some(old) = self.read(name) else {
                // A place that cannot be reached now is tried again.
                thread::sleep(Duration::from_millis(50));
                return;
            };
            let old = old.unwrap_or_else(|| ObjectId::from_hex(&[b'0'; 40]).expect("zeros"));
            let new = self.values[self.used];
            self.used += 1;
            line.push_str(&format!(" {name} {old} {new}"));
            refs.push(Wanted {
                name: RefNameBuf::new(name.as_bytes()).expect("a name"),
                old,
                new,
            });
        }
        let begun = now();
        note(&self.log, &format!("begin {begun} {}{line}\n", self.used));
        let push = Push {
            refs,
            atomic: true,
            who: None,
        };
        let fates = self.committer.commit(push, &mut || ());
        let told = match fates.first() {
            Some(Fate::Done) => "done",
            Some(Fate::Refused { reason, .. }) if reason.contains("not known") => "unknown",
            _ => "refused",
        };
        note(
            &self.log,
            &format!("end {} {} {told} {fates:?}\n", now(), self.used),
        );
    }
}
