//! Directories that change while they are read, and files that an older program wrote of them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use refdb::hook::{Hook, Step};
use refdb::layout::Layout;
use refdb::objects::NoObjects;
use refdb::store::Optimize;
use refdb::system::{OsSystem, System};
use refdb::{
    Edit, ErrorKind, Expected, ObjectFormat, ObjectId, RefFormat, RefName, RefNameBuf, Result,
    Store, Target,
};
use refdb_simulation::SimSystem;
use refdb_testkit::ours;

const DIR: &str = "/r";

fn oid(number: usize, format: ObjectFormat) -> ObjectId {
    let hex = format!("{number:0len$x}", len = format.hex_len());
    ObjectId::from_hex(hex.as_bytes()).expect("no fault")
}

/// Returns the content of a loose ref.
fn direct(oid: ObjectId) -> Vec<u8> {
    format!("{oid}\n").into_bytes()
}

fn open_with(system: &SimSystem, format: ObjectFormat, hook: Option<Arc<dyn Hook>>) -> Store {
    let mut options = ours::simulated(format);
    options.hook = hook;
    let system = Arc::new(system.clone());
    let layout = Layout::main(DIR);
    Store::open(
        system,
        layout,
        RefFormat::Files,
        Arc::new(NoObjects),
        options,
    )
    .expect("no fault")
}

fn open(system: &SimSystem, format: ObjectFormat) -> Store {
    open_with(system, format, None)
}

fn write(system: &SimSystem, path: &str, content: &[u8]) {
    let path = Path::new(DIR).join(path);
    system
        .create_dir_all(path.parent().expect("no fault"))
        .expect("no fault");
    let mut file = system.create_new(&path, 0o666).expect("no fault");
    file.write_all(content).expect("no fault");
}

fn listed(store: &Store) -> Vec<(String, Option<ObjectId>)> {
    let mut refs = store.refs().expect("no fault");
    let mut listed = Vec::new();
    while let Some(record) = refs.next().expect("no fault") {
        listed.push((record.name.to_string(), record.target.oid()));
    }
    listed
}

fn update(store: &Store, name: &str, to: ObjectId) {
    let mut transaction = store.transaction();
    let edit = Edit::update(RefName::new(name).expect("no fault"), to);
    transaction.add(edit).expect("no fault");
    let _ = transaction.commit().expect("no fault");
}

fn delete(store: &Store, name: &str, expected: Expected<'_>) -> Result<()> {
    let mut transaction = store.transaction();
    transaction.add(Edit::delete(RefName::new(name)?).expecting(expected))?;
    transaction.commit().map(drop)
}

fn packed(system: &SimSystem) -> String {
    let content = system
        .read(&Path::new(DIR).join("packed-refs"))
        .expect("no fault");
    String::from_utf8(content).expect("no fault")
}

#[test]
fn each_ref_is_listed_once_and_packed_once_while_others_rename() {
    for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
        let system = SimSystem::new(1);
        let mut all = BTreeMap::new();
        for number in 1..60 {
            let name = match number % 3 {
                0 => format!("refs/heads/topic-{number}"),
                1 => format!("refs/heads/{}/{number}", number % 7),
                _ => format!("refs/tags/v{number}"),
            };
            write(&system, &name, &direct(oid(number, format)));
            write(&system, &format!("logs/{name}"), b"");
            all.insert(name, Some(oid(number, format)));
        }
        write(&system, "HEAD", b"ref: refs/heads/topic-3\n");
        system.make_restless();
        let expected: Vec<_> = all.clone().into_iter().collect();
        let refs = |store: &Store| {
            let mut listed = listed(store);
            listed.retain(|(name, _)| name != "HEAD");
            listed
        };
        for _ in 0..20 {
            let store = open(&system, format);
            assert_eq!(refs(&store), expected);
            let names = store.log_names().expect("no fault");
            let names: Vec<String> = names.iter().map(RefNameBuf::to_string).collect();
            assert_eq!(names.len(), all.len(), "{names:?}");
        }
        let store = open(&system, format);
        store.optimize(&Optimize::default()).expect("no fault");
        let content = packed(&system);
        let lines = expected
            .iter()
            .map(|(name, oid)| format!("{} {name}\n", oid.expect("no fault")));
        let lines: String = lines.collect();
        assert_eq!(content.split_once('\n').expect("no fault").1, lines);
        assert_eq!(refs(&store), expected);
    }
}

/// What Git leaves of a directory that gave a name twice, between two other names.
fn twice(format: ObjectFormat, header: &str) -> SimSystem {
    let system = SimSystem::new(1);
    let record = |number, name: &str| format!("{} {name}\n", oid(number, format));
    let content = [
        header.to_owned(),
        record(1, "refs/heads/a"),
        record(2, "refs/heads/b"),
        record(3, "refs/heads/b"),
        record(4, "refs/heads/c"),
        record(4, "refs/heads/c"),
        record(4, "refs/heads/c"),
        record(5, "refs/heads/d"),
    ];
    write(&system, "packed-refs", content.concat().as_bytes());
    write(&system, "HEAD", b"ref: refs/heads/main\n");
    system
        .create_dir_all(&Path::new(DIR).join("refs/heads"))
        .expect("no fault");
    system
}

const HEADERS: [&str; 3] = [
    "# pack-refs with: peeled fully-peeled sorted \n",
    "# pack-refs with: peeled \n",
    "",
];

#[test]
fn a_ref_that_is_packed_twice_is_one_ref() {
    for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
        for header in HEADERS {
            let system = twice(format, header);
            let store = open(&system, format);
            let name = |letter: &str| format!("refs/heads/{letter}");
            let expected = [("a", 1), ("b", 2), ("c", 4), ("d", 5)]
                .map(|(letter, number)| (name(letter), Some(oid(number, format))));
            let mut found = listed(&store);
            found.retain(|(name, _)| name != "HEAD");
            assert_eq!(found, expected);
            let read = store
                .read(RefName::new("refs/heads/b").expect("no fault"))
                .expect("no fault");
            assert_eq!(
                read.expect("no fault").target,
                Target::Direct(oid(2, format))
            );
        }
    }
}

#[test]
fn no_change_of_a_ref_that_is_packed_twice_is_lost() {
    for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
        for header in HEADERS {
            // Deleted: no second value comes up.
            let system = twice(format, header);
            let store = open(&system, format);
            let old = Expected::Oid(oid(2, format));
            delete(&store, "refs/heads/b", old).expect("no fault");
            assert!(
                !packed(&system).contains("refs/heads/b"),
                "{}",
                packed(&system)
            );
            delete(&store, "refs/heads/c", Expected::Any).expect("no fault");
            let left: Vec<_> = listed(&store).into_iter().map(|(name, _)| name).collect();
            assert!(left.iter().all(|name| name != "refs/heads/c"), "{left:?}");
            assert!(!packed(&system).contains("refs/heads/c"));
            // Updated, and packed: the new value is the only one.
            let system = twice(format, header);
            let store = open(&system, format);
            update(&store, "refs/heads/b", oid(9, format));
            store.optimize(&Optimize::default()).expect("no fault");
            let content = packed(&system);
            assert_eq!(content.matches("refs/heads/b\n").count(), 1, "{content}");
            assert!(content.contains(&format!("{} refs/heads/b\n", oid(9, format))));
            assert_eq!(content.matches("refs/heads/c\n").count(), 1, "{content}");
        }
    }
}

/// Puts a ref in the place of a directory of refs, before a ref in that is to be pruned.
#[derive(Debug)]
struct Replace {
    system: SimSystem,
    format: ObjectFormat,
    by_file: bool,
}

impl Hook for Replace {
    fn is_there(&self) -> Result<bool> {
        Ok(true)
    }

    fn call(&self, step: Step, lines: &[u8]) -> Result<bool> {
        let null = ObjectId::null(self.format).to_string();
        let line = String::from_utf8_lossy(lines);
        let is_prune = line.split(' ').nth(1) == Some(null.as_str());
        if step == Step::Preparing && is_prune && line.contains("refs/heads/a/b") {
            let dir = Path::new(DIR).join("refs/heads/a");
            self.system.remove_file(&dir.join("b")).expect("no fault");
            self.system.remove_dir(&dir).expect("no fault");
            if self.by_file {
                let content = direct(oid(7, self.format));
                write(&self.system, "refs/heads/a", &content);
            }
        }
        Ok(true)
    }
}

#[test]
fn packing_goes_on_where_a_directory_went_or_became_a_ref() {
    for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
        for by_file in [false, true] {
            let system = SimSystem::new(1);
            write(&system, "HEAD", b"ref: refs/heads/main\n");
            for (number, name) in [(1, "refs/heads/a/b"), (2, "refs/heads/c")] {
                write(&system, name, &direct(oid(number, format)));
            }
            let hook = Replace {
                system: system.process(2000),
                format,
                by_file,
            };
            let store = open_with(&system, format, Some(Arc::new(hook)));
            store.optimize(&Optimize::default()).expect("no fault");
            let c = Path::new(DIR).join("refs/heads/c");
            assert!(system.lstat(&c).is_err(), "it was not pruned");
        }
    }
}

/// Takes a lock away that somebody holds to remove a packed ref's file, and writes another value.
#[derive(Debug)]
struct TakeLock {
    system: SimSystem,
    format: ObjectFormat,
}

impl Hook for TakeLock {
    fn is_there(&self) -> Result<bool> {
        Ok(true)
    }

    fn call(&self, step: Step, lines: &[u8]) -> Result<bool> {
        let null = ObjectId::null(self.format).to_string();
        let line = String::from_utf8_lossy(lines);
        if step == Step::Prepared && line.split(' ').nth(1) == Some(null.as_str()) {
            let lock = Path::new(DIR).join("refs/heads/a.lock");
            self.system.remove_file(&lock).expect("it is held");
            let path = Path::new(DIR).join("refs/heads/a");
            self.system.remove_file(&path).expect("no fault");
            write(&self.system, "refs/heads/a", &direct(oid(2, self.format)));
        }
        Ok(true)
    }
}

#[test]
fn packing_removes_no_file_whose_lock_was_taken_away() {
    for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
        let system = SimSystem::new(1);
        write(&system, "HEAD", b"ref: refs/heads/main\n");
        write(&system, "refs/heads/a", &direct(oid(1, format)));
        let hook = TakeLock {
            system: system.process(2000),
            format,
        };
        let store = open_with(&system, format, Some(Arc::new(hook)));
        let told = RefCell::new(Vec::new());
        let options = Optimize {
            warn: &|error| told.borrow_mut().push(error.kind()),
            ..Optimize::default()
        };
        store.optimize(&options).expect("one ref stays loose");
        assert_eq!(told.into_inner(), [ErrorKind::Locked]);
        let a = RefName::new("refs/heads/a").expect("a name");
        let found = open(&system, format).resolve(a).expect("no fault");
        assert_eq!(found.map(|found| found.oid), Some(oid(2, format)));
    }
}

/// How long others rename without pause, unless `REFDB_CHANGING_SECONDS` says otherwise.
const SECONDS: u64 = 3;

/// On a real tmpfs, where a name that is given to another file gets a new place in its directory.
#[test]
#[expect(clippy::print_stderr, reason = "says what cannot be tried here")]
fn no_ref_is_met_twice_or_missed_on_a_busy_tmpfs() {
    let Ok(temp) = tempfile::tempdir_in("/dev/shm") else {
        eprintln!("skipped: no folder can be made in /dev/shm");
        return;
    };
    let seconds = std::env::var("REFDB_CHANGING_SECONDS").map_or(SECONDS, |seconds| {
        seconds.parse().expect("REFDB_CHANGING_SECONDS is a number")
    });
    let format = ObjectFormat::Sha1;
    let heads = temp.path().join("refs/heads");
    fs::create_dir_all(&heads).expect("no fault");
    fs::write(temp.path().join("HEAD"), "ref: refs/heads/main\n").expect("no fault");
    let names: Vec<String> = (0..200)
        .map(|number| format!("topic-{number:03}"))
        .collect();
    let content = direct(oid(1, format));
    for name in &names {
        fs::write(heads.join(name), &content).expect("no fault");
    }
    let open = || {
        let options = ours::simulated(format);
        let system = Arc::new(OsSystem::new());
        let layout = Layout::main(temp.path());
        Store::open(
            system,
            layout,
            RefFormat::Files,
            Arc::new(NoObjects),
            options,
        )
        .expect("no fault")
    };
    let full = names.iter().map(|name| format!("refs/heads/{name}"));
    let expected: Vec<String> = full.collect();
    let done = AtomicBool::new(false);
    let listings = thread::scope(|scope| {
        let _end = SetOnDrop(&done);
        for part in names.chunks(names.len() / 2) {
            let (done, heads, content) = (&done, &heads, &content);
            scope.spawn(move || {
                for name in part.iter().cycle() {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    let lock = heads.join(format!("{name}.lock"));
                    fs::write(&lock, content).expect("no fault");
                    fs::rename(&lock, heads.join(name)).expect("no fault");
                }
            });
        }
        let (start, mut listings) = (Instant::now(), 0);
        while start.elapsed() < Duration::from_secs(seconds) {
            let store = open();
            let mut found: Vec<String> = listed(&store).into_iter().map(|(name, _)| name).collect();
            found.retain(|name| name != "HEAD");
            assert_eq!(found, expected, "listing {listings}");
            listings += 1;
        }
        listings
    });
    assert!(listings > 0);
    // Nobody holds a lock any more: all of them are packed, each once.
    open().optimize(&Optimize::default()).expect("no fault");
    let content = fs::read_to_string(temp.path().join("packed-refs")).expect("no fault");
    assert_eq!(content.lines().count(), 1 + names.len());
}

/// Ends the threads of a test, also when it fails.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
