mod patience;
mod syncs;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use refdb_names::internals::name_from_disk;
use refdb_names::{ObjectFormat, ObjectId, Target};
use tempfile::TempDir;

use super::publish::BATCH_MIN;
use super::*;
use crate::backend::{Locked, LogWrite, NewValue, Plan, Published, Refusal, Write};
use crate::commit::entries::FREEZE;
use crate::error::Reason;
use crate::objects::{NoObjects, ObjectKind, Objects, Peeled};
use crate::options::{LockTimeout, StillThere};
use crate::reflog::Signature;
use crate::store::Store;
use crate::system::beside::HALVES_MIN;
use crate::system::{OsSystem, System};

/// A repository in a directory of its own.
struct Fixture {
    dir: TempDir,
    backend: FilesBackend,
}

fn fixture() -> Fixture {
    fixture_with(|_| {})
}

fn fixture_with(settings: impl FnOnce(&mut Options)) -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    for path in ["refs", "refs/heads", "refs/tags"] {
        fs::create_dir(dir.path().join(path)).unwrap();
    }
    fs::write(dir.path().join("HEAD"), "ref: refs/heads/main\n").unwrap();
    let mut options = Options::new(ObjectFormat::Sha1);
    options.fsync = false;
    options.files_ref_lock_timeout = LockTimeout::from_millis(0);
    options.packed_refs_timeout = LockTimeout::from_millis(0);
    settings(&mut options);
    let layout = Layout::main(dir.path());
    let backend = FilesBackend::new(Arc::new(OsSystem::new()), layout, Arc::new(options));
    Fixture { dir, backend }
}

fn oid(number: usize) -> ObjectId {
    ObjectId::from_hex(format!("{number:040x}").as_bytes()).unwrap()
}

fn name(name: &str) -> RefName<'_> {
    name_from_disk(name.as_bytes())
}

fn who() -> Signature {
    Signature {
        name: "A".into(),
        email: "a@b".into(),
        time: 1,
        zone: 0,
    }
}

fn direct(number: usize) -> NewValue<'static> {
    NewValue::Direct {
        oid: Box::leak(Box::new(oid(number))),
        peeled: None,
    }
}

impl Fixture {
    /// Packs every ref, and removes their files.
    fn pack_all(&self) -> Result<()> {
        self.backend.optimize(&Optimize::default(), &NoObjects)
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn write(&self, path: &str, content: &str) {
        fs::create_dir_all(self.path(path).parent().unwrap()).unwrap();
        fs::write(self.path(path), content).unwrap();
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    fn exists(&self, path: &str) -> bool {
        self.path(path).symlink_metadata().is_ok()
    }

    fn read(&self, ref_name: &str) -> Option<Target> {
        self.backend
            .read(name(ref_name))
            .unwrap()
            .map(|found| found.target)
    }

    /// Locks the names and writes the values; panics when a name is refused.
    fn apply(&self, writes: &[(&str, NewValue<'_>)]) {
        self.apply_logged(writes, &[]);
    }

    fn apply_logged(&self, writes: &[(&str, NewValue<'_>)], logs: &[LogWrite<'_>]) {
        let mut session = self.backend.begin().unwrap();
        let mut names: Vec<_> = writes.iter().map(|write| name(write.0)).collect();
        names.sort();
        for locked in lock(session.as_mut(), &names, false) {
            assert!(!matches!(locked, Locked::Refused(_)), "{locked:?}");
        }
        session.prepare(plan(writes, logs)).unwrap();
        let Published::Done { afterwards } = session.publish().unwrap() else {
            panic!("only a shared store moves")
        };
        assert!(afterwards.is_empty(), "{afterwards:?}");
    }

    /// Returns why the last of the names cannot be locked.
    /// Prepares to make `refs/heads/a`, with a reflog.
    fn creation_of_a(&self) -> Box<dyn Session + '_> {
        let mut session = self.backend.begin().unwrap();
        lock(session.as_mut(), &[name("refs/heads/a")], true);
        let writes = [("refs/heads/a", direct(1))];
        session
            .prepare(plan(&writes, &[log("refs/heads/a", "x", true)]))
            .unwrap();
        session
    }

    fn refusal(&self, names: &[&str]) -> Refusal {
        let mut session = self.backend.begin().unwrap();
        let names: Vec<_> = names.iter().map(|text| name(text)).collect();
        match lock(session.as_mut(), &names, false).pop() {
            Some(Locked::Refused(refusal)) => refusal,
            other => panic!("{other:?}"),
        }
    }

    fn names(&self, from: &str, prefix: &str) -> Vec<String> {
        let mut cursor = self.backend.cursor().unwrap();
        cursor.seek(from.as_bytes(), prefix.as_bytes()).unwrap();
        rest(cursor.as_mut())
    }

    /// Returns every file below the directory that ends in `.lock` or `.new`.
    fn leftovers(&self) -> Vec<PathBuf> {
        let mut dirs = vec![self.dir.path().to_owned()];
        let mut found = Vec::new();
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                let text = path.to_str().unwrap();
                if text.ends_with(".lock") || text.ends_with(".new") {
                    found.push(path.clone());
                }
                if path.symlink_metadata().unwrap().is_dir() {
                    dirs.push(path);
                }
            }
        }
        found
    }
}

fn rest(cursor: &mut dyn Cursor) -> Vec<String> {
    let mut names = Vec::new();
    while cursor.advance().unwrap() {
        names.push(cursor.record().name.to_string());
    }
    names
}

/// Locks the names and returns the answers.
fn lock(session: &mut dyn Session, names: &[RefName<'_>], stop_at_refusal: bool) -> Vec<Locked> {
    let mut answers = Vec::new();
    let answer = &mut |at: usize, locked| answers.push((at, locked));
    session.lock(names, stop_at_refusal, answer).unwrap();
    answers.sort_by_key(|answer| answer.0);
    answers.into_iter().map(|answer| answer.1).collect()
}

fn plan<'a>(writes: &[(&'a str, NewValue<'a>)], logs: &[LogWrite<'a>]) -> Plan<'a> {
    let mut writes: Vec<_> = writes
        .iter()
        .map(|(text, value)| Write {
            name: name(text),
            value: *value,
        })
        .collect();
    writes.sort_by(|a, b| a.name.cmp(&b.name));
    let logs = logs.to_vec();
    let places = logs.len();
    Plan::new(
        move || Box::new(writes.clone().into_iter()),
        move |at| logs.get(at).copied(),
        places,
        || Ok(who()),
        false,
    )
}

fn log<'a>(text: &'a str, message: &'a str, create: bool) -> LogWrite<'a> {
    LogWrite {
        name: name(text),
        old: oid(1),
        new: oid(2),
        message: message.as_bytes(),
        who: None,
        create,
    }
}

fn packed_refs(records: &[(&str, usize)]) -> String {
    let mut text = String::from("# pack-refs with: peeled fully-peeled sorted \n");
    for (name, number) in records {
        text += &format!("{} {name}\n", oid(*number));
    }
    text
}

#[test]
fn a_ref_is_created_updated_and_deleted() {
    let fixture = fixture();
    fixture.apply(&[("refs/heads/a/b/c", direct(1))]);
    assert_eq!(fixture.text("refs/heads/a/b/c"), format!("{}\n", oid(1)));
    fixture.apply(&[("refs/heads/a/b/c", direct(2)), ("refs/heads/d", direct(3))]);
    assert_eq!(
        fixture.read("refs/heads/a/b/c"),
        Some(Target::Direct(oid(2)))
    );
    fixture.apply(&[("refs/heads/a/b/c", NewValue::Deleted)]);
    assert_eq!(fixture.read("refs/heads/a/b/c"), None);
    assert!(!fixture.exists("refs/heads/a"));
    assert!(!fixture.exists("packed-refs"));
    assert_eq!(fixture.leftovers(), Vec::<PathBuf>::new());
}

/// Each half of them is read by a thread of its own.
#[test]
fn many_loose_refs_are_listed_in_order() {
    let fixture = fixture();
    let mut names: Vec<String> = (0..3 * HALVES_MIN)
        .map(|at| format!("refs/heads/{}/{at}", at % 7))
        .collect();
    for (at, name) in names.iter().enumerate() {
        let dir = fixture.path(name);
        fs::create_dir_all(dir.parent().unwrap()).unwrap();
        fixture.write(name, &format!("{}\n", oid(at + 1)));
    }
    let broken = "refs/heads/3/broken".to_owned();
    fixture.write(&broken, "nothing\n");
    let mut cursor = fixture.backend.cursor().unwrap();
    cursor.seek(b"refs/", b"refs/").unwrap();
    let mut found = Vec::new();
    while cursor.advance().unwrap() {
        let record = cursor.record();
        let name = record.name.to_string();
        assert_eq!(record.broken, name == broken);
        let at = names.iter().position(|other| *other == name);
        let value = at.map(|at| oid(at + 1));
        assert_eq!(record.target.oid().filter(|oid| !oid.is_null()), value);
        found.push(name);
    }
    names.push(broken);
    names.sort();
    assert_eq!(found, names);
}

#[test]
fn symrefs_are_text_or_links() {
    let fixture = fixture();
    let target = NewValue::Symbolic(name("refs/heads/x"));
    fixture.apply(&[("HEAD", target), ("refs/remotes/o/HEAD", target)]);
    assert_eq!(fixture.text("HEAD"), "ref: refs/heads/x\n");
    let links = fixture_with(|options| options.prefer_symlink_refs = true);
    links.apply(&[("HEAD", target), ("refs/remotes/o/HEAD", target)]);
    for link in ["HEAD", "refs/remotes/o/HEAD"] {
        let text = fs::read_link(links.path(link)).unwrap();
        assert_eq!(text.to_str(), Some("refs/heads/x"));
        assert_eq!(
            links.read(link),
            Some(Target::Symbolic(name("refs/heads/x").to_owned()))
        );
    }
    links.apply(&[("HEAD", direct(1))]);
    assert_eq!(links.text("HEAD"), format!("{}\n", oid(1)));
    assert_eq!(links.leftovers(), Vec::<PathBuf>::new());
}

#[test]
fn a_session_that_is_dropped_leaves_nothing() {
    let fixture = fixture_with(|options| options.lockfile_pid = true);
    fixture.write("packed-refs", &packed_refs(&[("refs/heads/p", 1)]));
    let before = fixture.text("packed-refs");
    let mut session = fixture.backend.begin().unwrap();
    let names = [name("refs/heads/n/e/w"), name("refs/heads/p")];
    lock(session.as_mut(), &names, true);
    let writes = [
        ("refs/heads/n/e/w", direct(1)),
        ("refs/heads/p", NewValue::Deleted),
    ];
    session.prepare(plan(&writes, &[])).unwrap();
    let left = fixture.leftovers();
    let is_new_packed = |path: &PathBuf| path.to_string_lossy().contains("packed-refs~");
    assert!(left.iter().any(is_new_packed), "{left:?}");
    assert!(fixture.exists("refs/heads/n/e/w.lock"));
    drop(session);
    assert_eq!(fixture.leftovers(), Vec::<PathBuf>::new());
    assert!(!fixture.exists("refs/heads/n"));
    assert_eq!(fixture.text("packed-refs"), before);
}

#[test]
fn locking_reads_loose_refs_before_packed_ones() {
    let fixture = fixture();
    let packed = packed_refs(&[("refs/heads/a", 1), ("refs/heads/b", 2)]);
    fixture.write("packed-refs", &packed);
    fixture.write("refs/heads/b", &format!("{}\n", oid(3)));
    let mut session = fixture.backend.begin().unwrap();
    let names = ["refs/heads/a", "refs/heads/b", "refs/heads/c"].map(name);
    let locked = lock(session.as_mut(), &names, true);
    let values: Vec<_> = locked
        .iter()
        .map(|locked| match locked {
            Locked::Found(found) => Some((found.target.clone(), found.packed)),
            _ => None,
        })
        .collect();
    assert_eq!(
        values,
        [
            Some((Target::Direct(oid(1)), true)),
            Some((Target::Direct(oid(3)), false)),
            None
        ]
    );
    assert!(fixture.exists("refs/heads/c.lock"));
}

#[test]
fn refusals_say_what_is_in_the_way() {
    let fixture = fixture();
    fixture.write("refs/heads/a", &format!("{}\n", oid(1)));
    fixture.write("refs/heads/d/e/f", &format!("{}\n", oid(1)));
    fixture.write("refs/heads/junk", "junk");
    fixture.write("refs/heads/dir/.hidden", "");
    fixture.write("refs/heads/held.lock", "");
    let at = |path: &str| fixture.path(path).display().to_string();
    for (ref_name, reason, message) in [
        (
            "refs/heads/a/b/c",
            Reason::NameConflict,
            "'refs/heads/a' exists; cannot create 'refs/heads/a/b/c'".to_owned(),
        ),
        (
            "refs/heads/d",
            Reason::NameConflict,
            "'refs/heads/d/e/f' exists; cannot create 'refs/heads/d'".to_owned(),
        ),
        (
            "refs/heads/junk",
            Reason::Generic,
            "unable to resolve reference 'refs/heads/junk': reference broken".to_owned(),
        ),
        (
            "refs/heads/junk/x",
            Reason::Generic,
            format!(
                "unable to create lock file {}.lock; non-directory in the way",
                at("refs/heads/junk/x")
            ),
        ),
        (
            "refs/heads/dir",
            Reason::NameConflict,
            format!(
                "there is a non-empty directory '{}' blocking reference 'refs/heads/dir'",
                at("refs/heads/dir")
            ),
        ),
        (
            "refs/heads/held",
            Reason::CreateExists,
            format!(
                "Unable to create '{}.lock': File exists.\n\nAnother git process seems to be \
                 running in this repository, or the lock file may be stale",
                at("refs/heads/held")
            ),
        ),
    ] {
        let refusal = fixture.refusal(&["refs/heads/ok", ref_name]);
        // Behind Git's words it says more.
        assert!(refusal.message.starts_with(&message), "{}", refusal.message);
        assert_eq!(refusal.reason, reason, "{message}");
    }
    fixture.write("refs/heads/held~pid.lock", "pid 4711\n");
    assert!(
        fixture
            .refusal(&["refs/heads/held"])
            .message
            .contains("process 4711")
    );
}

#[test]
fn empty_directories_give_way_to_a_ref() {
    let fixture = fixture();
    fs::create_dir_all(fixture.path("refs/heads/a/b/c")).unwrap();
    fs::create_dir_all(fixture.path("logs/refs/heads/a/b")).unwrap();
    fixture.apply_logged(
        &[("refs/heads/a", direct(1))],
        &[log("refs/heads/a", "x", true)],
    );
    assert_eq!(fixture.text("refs/heads/a"), format!("{}\n", oid(1)));
    assert!(fixture.text("logs/refs/heads/a").ends_with("\tx\n"));
}

#[test]
fn what_the_dead_left_gives_way_to_a_ref() {
    use crate::commit::{Holder, Home, LockFile, LockOptions};
    use refdb_simulation::SimSystem;
    let options = LockOptions::AT_ONCE;
    for (packed, dead) in [(true, true), (true, false), (false, true), (false, false)] {
        let system = SimSystem::new(1);
        let path = |path: &str| Path::new("/r").join(path);
        system.create_dir_all(&path("refs/heads/a")).unwrap();
        let process = system.process(7);
        let sha1 = Options::new(ObjectFormat::Sha1);
        let home = Home::new(&(Arc::new(process.clone()) as _), Path::new("/r"), &sha1);
        let holder = Holder::new(&home);
        let mut lock = LockFile::acquire(&holder, &path("refs/heads/a/b"), options).unwrap();
        lock.write_all(b"new").unwrap();
        lock.leave();
        // A power failure took the lock of this one.
        system
            .create_new(&path("refs/heads/a/c~0123456789abcdef.lock"), 0o666)
            .unwrap();
        if dead {
            process.end();
        }
        if packed {
            let mut file = system.create_new(&path("packed-refs"), 0o666).unwrap();
            file.write_all(packed_refs(&[("refs/heads/a", 1)]).as_bytes())
                .unwrap();
        }
        let store = crate::Store::open(
            Arc::new(system.clone()),
            Layout::main("/r"),
            crate::RefFormat::Files,
            Arc::new(NoObjects),
            Options::simulated(ObjectFormat::Sha1),
        );
        let store = store.unwrap();
        let mut transaction = store.transaction();
        transaction
            .add(crate::Edit::update(name("refs/heads/a"), oid(2)))
            .unwrap();
        assert_eq!(transaction.commit().is_ok(), dead, "packed: {packed}");
        assert_eq!(system.lstat(&path("refs/heads/a/b.lock")).is_err(), dead);
    }
}

/// Of a ref alone, and of two.
#[test]
fn packing_takes_over_what_the_dead_left() {
    use refdb_simulation::SimSystem;
    for names in [&["refs/heads/a"][..], &["refs/heads/a", "refs/heads/b"]] {
        for ends in [true, false] {
            let system = SimSystem::new(1);
            system.create_dir_all(Path::new("/r/refs/heads")).unwrap();
            let process = system.process(7);
            let open = |system: &SimSystem| {
                let (system, layout) = (Arc::new(system.clone()), Layout::main("/r"));
                let options = Options::simulated(ObjectFormat::Sha1);
                let format = crate::RefFormat::Files;
                crate::Store::open(system, layout, format, Arc::new(NoObjects), options).unwrap()
            };
            let dies = open(&process);
            let mut transaction = dies.transaction();
            for &ref_name in names {
                let edit = crate::Edit::update(name(ref_name), oid(1));
                transaction.add(edit).unwrap();
            }
            std::mem::forget(transaction.prepare().unwrap());
            let found = system.lstat(Path::new("/r/refs/heads/a.lock")).unwrap();
            assert_eq!(found.nlink, names.len() as u64);
            if ends {
                process.end();
            }
            open(&system).optimize(&crate::Optimize::default()).unwrap();
            for ref_name in names {
                let lock = Path::new("/r").join(format!("{ref_name}.lock"));
                assert_eq!(system.lstat(&lock).is_err(), ends, "{lock:?}");
            }
        }
    }
}

/// While a batch is on its way to packed-refs, nobody can begin to write a name above or below.
#[test]
fn a_batch_keeps_the_names_above_and_below_it_from_everybody() {
    let fixture = fixture();
    fixture.write("refs/heads/a/old", &format!("{}\n", oid(1)));
    let names: Vec<String> = (0..BATCH_MIN)
        .map(|at| format!("refs/heads/a/{at:03}"))
        .collect();
    let refs: Vec<_> = names.iter().map(|text| name(text)).collect();
    let writes: Vec<_> = names
        .iter()
        .map(|text| (text.as_str(), direct(2)))
        .collect();
    let mut session = fixture.backend.begin().unwrap();
    for locked in lock(session.as_mut(), &refs, true) {
        assert!(matches!(locked, Locked::Missing), "{locked:?}");
    }
    session.prepare(plan(&writes, &[])).unwrap();
    assert!(fixture.exists("refs/heads/a/007.lock"));
    // Nobody gets a file into the place of a directory in which something is locked.
    let mut above = fixture.backend.begin().unwrap();
    let refused = lock(above.as_mut(), &[name("refs/heads/a")], true);
    assert!(matches!(refused.as_slice(), [Locked::Refused(_)]));
    drop(above);
    let below = fixture.path("refs/heads/a/007");
    assert!(below.is_symlink() && fs::create_dir(below.join("x")).is_err());
    session.publish().unwrap();
    assert_eq!(fixture.leftovers(), Vec::<PathBuf>::new());
    assert!(!fixture.path("refs/heads/a/007").is_symlink());
    assert!(fixture.backend.read(refs[7]).unwrap().unwrap().packed);
}

/// Somebody has locked a name above new ones, and perhaps found nothing in his way: he is waited for.
#[test]
fn whoever_is_about_to_make_a_ref_above_a_batch_comes_first() {
    let in_a = (0..BATCH_MIN).map(|at| format!("refs/heads/a/b/{at:03}"));
    let names: Vec<String> = in_a.chain(["refs/heads/c/d".to_owned()]).collect();
    let refs: Vec<_> = names.iter().map(|text| name(text)).collect();
    for (is_given_back, timeout) in [(false, 0), (false, 20), (true, 60_000)] {
        let fixture = fixture_with(|options| {
            options.files_ref_lock_timeout = LockTimeout::from_millis(timeout);
        });
        fixture.write("refs/heads/a.lock", "");
        let mut session = fixture.backend.begin().unwrap();
        let answers = std::thread::scope(|scope| {
            scope.spawn(|| {
                // Not before it was found in the way, if that ever is.
                for _ in 0..200 {
                    std::thread::sleep(Duration::from_millis(1));
                    if is_given_back && fixture.exists("refs/heads/a/b") {
                        break;
                    }
                }
                if is_given_back {
                    fs::rename(fixture.path("refs/heads/a.lock"), fixture.path("other")).unwrap();
                }
            });
            lock(session.as_mut(), &refs, false)
        });
        for (name, locked) in names.iter().zip(&answers) {
            let is_free = is_given_back || !name.contains("/a/");
            match locked {
                Locked::Missing => assert!(is_free, "{name}"),
                Locked::Refused(refusal) => {
                    assert!(!is_free && refusal.reason == Reason::CreateExists);
                    let message = refusal.message.to_string();
                    assert!(
                        message.contains("refs/heads/a.lock': File exists"),
                        "{message}"
                    );
                }
                locked => panic!("{name}: {locked:?}"),
            }
        }
        drop(session);
        assert!(!fixture.exists("refs/heads/a/b"));
    }
}

/// A prepared transaction finds another ref below one of its new ones when it is to be published:
/// nothing is committed, and no journal is left that nobody could finish.
#[test]
fn what_came_to_be_below_a_new_ref_since_it_was_prepared_is_in_its_way() {
    let fixture = fixture();
    let mut session = fixture.backend.begin().unwrap();
    let names = [name("refs/heads/a/b"), name("refs/heads/main")];
    lock(session.as_mut(), &names, true);
    let writes = [
        ("refs/heads/a/b", direct(1)),
        ("refs/heads/main", direct(1)),
    ];
    session.prepare(plan(&writes, &[])).unwrap();
    fixture.write("refs/heads/a/b/c", &format!("{}\n", oid(2)));
    let Err(error) = session.publish() else {
        panic!("it is in the way");
    };
    assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
    assert_eq!(fixture.read("refs/heads/main"), None);
    assert_eq!(
        fixture.read("refs/heads/a/b/c"),
        Some(Target::Direct(oid(2)))
    );
    assert_eq!(fixture.leftovers(), Vec::<PathBuf>::new());
    assert!(!fixture.exists("refdb.journal"));
}

/// A ref that is only packed has no file that would keep others from a directory of its name: whoever
/// locks a name below makes one, and nothing is committed that could not be finished.
#[test]
fn what_is_locked_below_a_packed_ref_since_it_was_prepared_is_in_its_way() {
    let fixture = fixture();
    fixture.write("packed-refs", &packed_refs(&[("refs/heads/a", 1)]));
    let mut session = fixture.backend.begin().unwrap();
    let names = [name("refs/heads/a"), name("refs/heads/main")];
    lock(session.as_mut(), &names, true);
    let writes = [("refs/heads/a", direct(2)), ("refs/heads/main", direct(2))];
    session.prepare(plan(&writes, &[])).unwrap();
    fixture.write("refs/heads/a/b.lock", "");
    let Err(error) = session.publish() else {
        panic!("it is in the way");
    };
    assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
    assert_eq!(fixture.read("refs/heads/main"), None);
    assert_eq!(fixture.read("refs/heads/a"), Some(Target::Direct(oid(1))));
    assert!(!fixture.exists("refdb.journal"));
}

/// Whoever waited for `packed-refs.lock` until a migration gave it back writes nothing that nobody would
/// read.
#[test]
fn nothing_is_packed_when_the_refs_are_in_the_other_format() {
    let fixture = fixture();
    let packed = packed_refs(&[("refs/heads/a", 1)]);
    fixture.write("packed-refs", &packed);
    let mut session = fixture.backend.begin().unwrap();
    lock(session.as_mut(), &[name("refs/heads/a")], true);
    fs::rename(
        fixture.dir.path().join("refs"),
        fixture.dir.path().join("old"),
    )
    .unwrap();
    fixture.write("refs/heads", "");
    let writes = [("refs/heads/a", NewValue::Deleted)];
    let error = session.prepare(plan(&writes, &[])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Moved, "{error}");
    drop(session);
    assert_eq!(fixture.pack_all().unwrap_err().kind(), ErrorKind::Moved);
    let content = fs::read_to_string(fixture.dir.path().join("packed-refs"));
    assert_eq!(content.unwrap(), packed);
}

/// A migration can lock what exists. Whoever makes a new name looks for one under the lock of that, and
/// makes way.
#[test]
fn a_new_name_waits_for_a_migration_of_a_process_that_lives() {
    let fixture = fixture();
    fixture.apply(&[("refs/heads/there", direct(1))]);
    let journal = "from files\nto reftable\nkeep no\n";
    fixture.write("refdb-migration/journal", journal);
    let lock_new = |session: &mut dyn Session| {
        let names = [name("refs/heads/new"), name("refs/heads/there")];
        lock(session, &names, false)
    };
    let system = OsSystem::new();
    let folder = fixture.path("refdb-migration");
    let guard = system.guard_dir(&folder).unwrap().unwrap();
    let mut session = fixture.backend.begin().unwrap();
    let locked = lock_new(session.as_mut());
    assert!(
        matches!(locked.as_slice(), [Locked::Behind, Locked::Found(_)]),
        "{locked:?}"
    );
    session.begin_again();
    assert_eq!(fixture.leftovers(), Vec::<PathBuf>::new());
    let locked = lock_new(session.as_mut());
    let [Locked::Refused(refusal), Locked::Found(_)] = locked.as_slice() else {
        panic!("{locked:?}");
    };
    let message = "the refs are being migrated to another format; try again";
    assert_eq!(refusal.message, message);
    assert!(session.lock_nested(name("refs/heads/above")).is_err());
    // When the refs are in the other format there is nothing more to wait for.
    fs::rename(fixture.path("refs/heads"), fixture.path("refs/old")).unwrap();
    fixture.write("refs/heads", "");
    session.begin_again();
    let stash = session.lock(&[name("refs/stash")], false, &mut |_, _| {});
    assert_eq!(stash.unwrap_err().kind(), ErrorKind::Moved);
    fs::remove_file(fixture.path("refs/heads")).unwrap();
    fs::rename(fixture.path("refs/old"), fixture.path("refs/heads")).unwrap();
    // One that brings refs here has taken the locks of the other format.
    fixture.write("refdb-migration/journal", "from reftable\nto files\n");
    session.begin_again();
    let locked = lock_new(session.as_mut());
    assert!(matches!(
        locked.as_slice(),
        [Locked::Missing, Locked::Found(_)]
    ));
    fixture.write("refdb-migration/journal", journal);
    // Now its process has ended.
    drop(guard);
    session.begin_again();
    let locked = lock_new(session.as_mut());
    assert!(
        matches!(locked.as_slice(), [Locked::Missing, Locked::Found(_)]),
        "{locked:?}"
    );
}

/// A migration takes locks in whatever order. Whoever waits for one that it may have gives back what it may be
/// waiting for; else both would wait until one of them gives up.
#[test]
fn who_holds_locks_waits_for_none_beside_a_migration() {
    let fixture = fixture_with(|options| {
        options.files_ref_lock_timeout = LockTimeout::from_millis(200);
    });
    fixture.apply(&[("refs/heads/b", direct(1)), ("refs/heads/z", direct(1))]);
    fixture.write("refdb-migration/journal", "from files\nto reftable\n");
    let system = OsSystem::new();
    let folder = fixture.path("refdb-migration");
    let _guard = system.guard_dir(&folder).unwrap().unwrap();
    let mut other = fixture.backend.begin().unwrap();
    let held = lock(other.as_mut(), &[name("refs/heads/z")], false);
    assert!(matches!(held.as_slice(), [Locked::Found(_)]), "{held:?}");
    let mut session = fixture.backend.begin().unwrap();
    let names = [name("refs/heads/b"), name("refs/heads/z")];
    let locked = lock(session.as_mut(), &names, false);
    assert!(
        matches!(locked.as_slice(), [.., Locked::Behind]),
        "{locked:?}"
    );
    session.begin_again();
    assert!(!fixture.path("refs/heads/b.lock").exists());
    // The migration lasts: he is told at once, and his batch goes on without the ref.
    let locked = lock(session.as_mut(), &names, false);
    let [Locked::Found(_), Locked::Refused(refusal)] = locked.as_slice() else {
        panic!("{locked:?}");
    };
    assert_eq!(refusal.reason, Reason::CreateExists);
}

/// After its switch a migration keeps the locks of what stays in its place, and waits for whoever waits for
/// them: he is told that the refs have moved.
#[test]
fn who_waits_for_what_a_migration_keeps_is_told_when_the_refs_have_moved() {
    let fixture = fixture_with(|options| {
        options.files_ref_lock_timeout = LockTimeout::from_millis(10_000);
        options.packed_refs_timeout = LockTimeout::from_millis(10_000);
    });
    fixture.write("refdb-migration/journal", "from files\nto reftable\n");
    let system = OsSystem::new();
    let _guard = system.guard_dir(&fixture.path("refdb-migration")).unwrap();
    fixture.write("HEAD.lock", "");
    fixture.write("packed-refs.lock", "");
    let moved = |waits: &(dyn Fn() -> Error + Sync)| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(150));
                fs::remove_dir(fixture.path("refs/heads")).unwrap();
                fixture.write("refs/heads", "");
            });
            let error = waits();
            assert_eq!(error.kind(), ErrorKind::Moved, "{error}");
        });
        fs::remove_file(fixture.path("refs/heads")).unwrap();
        fs::create_dir(fixture.path("refs/heads")).unwrap();
    };
    moved(&|| {
        let mut session = fixture.backend.begin().unwrap();
        let head = session.lock(&[name("HEAD")], false, &mut |_, _| {});
        head.unwrap_err()
    });
    moved(&|| fixture.pack_all().unwrap_err());
}

/// The configuration says first that the refs have moved, before anything is put away.
#[test]
fn who_waits_is_told_what_the_configuration_says() {
    let fixture = fixture_with(|options| {
        options.files_ref_lock_timeout = LockTimeout::from_millis(10_000);
        options.packed_refs_timeout = LockTimeout::from_millis(10_000);
        let moved = |_| Err(Error::new(ErrorKind::Moved, "the configuration says so"));
        options.still_there = Some(StillThere(Arc::new(moved)));
    });
    fixture.write("refdb-migration/journal", "from files\nto reftable\n");
    let system = OsSystem::new();
    let _guard = system.guard_dir(&fixture.path("refdb-migration")).unwrap();
    fixture.write("HEAD.lock", "");
    fixture.write("packed-refs.lock", "");
    let mut session = fixture.backend.begin().unwrap();
    let head = session.lock(&[name("HEAD")], false, &mut |_, _| {});
    assert_eq!(head.unwrap_err().kind(), ErrorKind::Moved);
    assert_eq!(fixture.pack_all().unwrap_err().kind(), ErrorKind::Moved);
}

/// A migration puts loose refs away before packed-refs: what was packed before they were written is no answer then.
#[test]
fn a_packed_value_behind_a_file_that_was_moved_is_no_answer() {
    let fixture = fixture();
    fixture.write("packed-refs", &format!("{} refs/heads/a\n", oid(1)));
    fixture.write("refs/heads/a", &format!("{}\n", oid(2)));
    let is_moved = Arc::new(AtomicBool::new(false));
    let moved = Arc::clone(&is_moved);
    let mut options = Options::new(ObjectFormat::Sha1);
    options.still_there = Some(StillThere(Arc::new(move |_| {
        match moved.load(Ordering::Relaxed) {
            true => Err(Error::new(ErrorKind::Moved, "the configuration says so")),
            false => Ok(()),
        }
    })));
    let (system, layout) = (Arc::new(OsSystem::new()), Layout::main(fixture.dir.path()));
    let format = crate::RefFormat::Files;
    let store = Store::open(system, layout, format, Arc::new(NoObjects), options).unwrap();
    let value = |number| Some(oid(number));
    let read = || Ok::<_, Error>(store.resolve(name("refs/heads/a"))?.map(|found| found.oid));
    assert_eq!(read().unwrap(), value(2));
    fs::remove_file(fixture.path("refs/heads/a")).unwrap();
    assert_eq!(read().unwrap(), value(1));
    is_moved.store(true, Ordering::Relaxed);
    assert_eq!(read().unwrap_err().kind(), ErrorKind::Moved);
    let mut all = store.read_all(&[name("refs/heads/a")]);
    assert_eq!(all.remove(0).unwrap_err().kind(), ErrorKind::Moved);
}

/// What lies where a migration would have its folder keeps nobody from waiting for a lock.
#[test]
fn who_cannot_look_for_a_migration_waits_all_the_same() {
    let fixture = fixture_with(|options| {
        options.files_ref_lock_timeout = LockTimeout::from_millis(10_000);
    });
    fixture.apply(&[("refs/heads/b", direct(1)), ("refs/heads/z", direct(1))]);
    let folder = fixture.path("refdb-migration");
    std::os::unix::fs::symlink(&folder, &folder).unwrap();
    fixture.write("refs/heads/z.lock", "");
    let locked = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(250));
            fs::remove_file(fixture.path("refs/heads/z.lock")).unwrap();
        });
        let mut session = fixture.backend.begin().unwrap();
        let names = [name("refs/heads/b"), name("refs/heads/z")];
        lock(session.as_mut(), &names, false)
    });
    let is_found = |locked: &Locked| matches!(locked, Locked::Found(_));
    assert!(
        locked.len() == 2 && locked.iter().all(is_found),
        "{locked:?}"
    );
}

/// Where a directory is kept from being made by a migration that lives, its end is waited for.
#[test]
fn a_name_in_a_frozen_directory_waits_for_the_migration() {
    let fixture = fixture_with(|options| {
        options.files_ref_lock_timeout = LockTimeout::from_millis(200);
    });
    fixture.write("packed-refs", &format!("{} refs/a/b\n", oid(1)));
    fixture.write("refdb-migration/journal", "from files\nto reftable\n");
    let system = OsSystem::new();
    let guard = system.guard_dir(&fixture.path("refdb-migration")).unwrap();
    std::os::unix::fs::symlink(FREEZE, fixture.path("refs/a")).unwrap();
    let mut session = fixture.backend.begin().unwrap();
    let locked = lock(session.as_mut(), &[name("refs/a/b")], false);
    assert!(matches!(locked.as_slice(), [Locked::Behind]), "{locked:?}");
    session.begin_again();
    let locked = lock(session.as_mut(), &[name("refs/a/b")], false);
    let [Locked::Refused(refusal)] = locked.as_slice() else {
        panic!("{locked:?}");
    };
    assert_eq!(
        refusal.message,
        "the refs are being migrated to another format; try again"
    );
    drop(guard);
    fs::remove_file(fixture.path("refs/a")).unwrap();
    let mut session = fixture.backend.begin().unwrap();
    let locked = lock(session.as_mut(), &[name("refs/a/b")], false);
    assert!(
        matches!(locked.as_slice(), [Locked::Found(_)]),
        "{locked:?}"
    );
}

/// Somebody is about to make the ref `refs/heads/a`, and looked for conflicts before there was one
/// below: what is packed stays in his way as a file, and goes with the next packing.
#[test]
fn packing_leaves_a_ref_in_the_way_of_one_that_is_being_made_above() {
    let fixture = fixture();
    fixture.write("refs/heads/a/b", &format!("{}\n", oid(1)));
    fixture.write("refs/heads/c", &format!("{}\n", oid(1)));
    fixture.write("refs/heads/a.lock", "");
    let pack = || fixture.pack_all().unwrap();
    pack();
    assert!(fixture.exists("refs/heads/a/b") && !fixture.exists("refs/heads/c"));
    fs::remove_file(fixture.path("refs/heads/a.lock")).unwrap();
    pack();
    assert!(!fixture.exists("refs/heads/a"));
    assert_eq!(fixture.leftovers(), Vec::<PathBuf>::new());
}

#[test]
fn names_of_one_session_are_not_in_each_others_way() {
    let fixture = fixture();
    for names in [
        ["refs/heads/a", "refs/heads/a/b"],
        ["refs/heads/a/b", "refs/heads/a"],
    ] {
        let mut session = fixture.backend.begin().unwrap();
        let locked = lock(session.as_mut(), &names.map(name), true);
        assert!(
            locked
                .iter()
                .all(|locked| matches!(locked, Locked::Missing)),
            "{locked:?}"
        );
        drop(session);
        assert!(!fixture.exists("refs/heads/a"));
    }
}

#[test]
fn a_case_conflict_within_a_session_is_told_apart() {
    let fixture = fixture_with(|options| options.ignore_case = true);
    let mut session = fixture.backend.begin().unwrap();
    lock(session.as_mut(), &[name("refs/heads/a")], true);
    // What a file system that ignores case would answer.
    fixture.write("refs/heads/A.lock", "");
    let locked = lock(session.as_mut(), &[name("refs/heads/A")], true);
    let [Locked::Refused(refusal)] = locked.as_slice() else {
        panic!("{locked:?}")
    };
    assert_eq!(refusal.reason, Reason::CaseConflict);
}

#[test]
fn many_names_are_locked_by_halves_unless_something_is_in_the_way() {
    const COUNT: usize = 2 * crate::system::beside::HALVES_MIN;
    let names: Vec<String> = (0..COUNT)
        .map(|at| format!("refs/heads/{:03}/{at:06}", at / 100))
        .collect();
    let names: Vec<_> = names.iter().map(|text| name(text)).collect();
    let (early, late) = (COUNT / 3, COUNT - COUNT / 3);
    for in_the_way in [vec![], vec![early], vec![late], vec![early, late]] {
        for stop_at_refusal in [false, true] {
            let fixture = fixture();
            for &at in &in_the_way {
                // A lock of somebody else, and a ref where a directory has to be.
                let (dir, number) = (at / 100, at);
                fixture.write(&format!("refs/heads/{dir:03}/{number:06}.lock"), "");
                fixture.write(&format!("refs/heads/{:03}", dir + 1), "");
            }
            let before = fixture.leftovers();
            let mut session = fixture.backend.begin().unwrap();
            let answers = lock(session.as_mut(), &names, stop_at_refusal);
            let is_in_the_way = |at: usize| {
                let mut refused = in_the_way.iter();
                refused.any(|&other| at == other || at / 100 == other / 100 + 1)
            };
            let answered = match in_the_way.first() {
                Some(first) if stop_at_refusal => first + 1,
                _ => COUNT,
            };
            assert_eq!(answers.len(), answered);
            for (at, answer) in answers.iter().enumerate() {
                match answer {
                    Locked::Missing => assert!(!is_in_the_way(at), "{at}"),
                    Locked::Refused(_) => assert!(is_in_the_way(at), "{at}"),
                    Locked::Found(_) | Locked::Alone | Locked::Behind => panic!("{at}"),
                }
                let path = format!("refs/heads/{:03}/{at:06}.lock", at / 100);
                let is_locked = !is_in_the_way(at) || in_the_way.contains(&at);
                assert_eq!(fixture.exists(&path), is_locked, "{at}");
            }
            if stop_at_refusal && answered < COUNT {
                let last = format!("refs/heads/{:03}/{:06}.lock", (COUNT - 1) / 100, COUNT - 1);
                assert!(!fixture.exists(&last), "given back");
            }
            drop(session);
            assert_eq!(fixture.leftovers(), before);
            assert!(!fixture.exists("refs/heads/000"));
        }
    }
}

#[test]
fn a_large_batch_is_packed_and_shadows_nothing() {
    let fixture = fixture();
    fixture.write("refs/heads/x/0003", &format!("{}\n", oid(9)));
    fixture.write(
        "packed-refs",
        &packed_refs(&[("refs/heads/a", 1), ("refs/heads/x/0004", 9)]),
    );
    let names: Vec<String> = (0..200)
        .map(|number| format!("refs/heads/x/{number:04}"))
        .collect();
    let mut writes: Vec<_> = names
        .iter()
        .map(|text| (text.as_str(), direct(7)))
        .collect();
    let link = NewValue::Symbolic(name("refs/heads/a"));
    writes.push(("refs/heads/link", link));
    writes.push(("refs/bisect/bad", direct(7)));
    fixture.apply(&writes);
    assert!(!fixture.exists("refs/heads/x"));
    assert!(fixture.exists("refs/heads/link"));
    assert!(fixture.exists("refs/bisect/bad"));
    for text in &names {
        let found = fixture.backend.read(name(text)).unwrap().unwrap();
        assert_eq!((found.target, found.packed), (Target::Direct(oid(7)), true));
    }
    assert_eq!(fixture.read("refs/heads/a"), Some(Target::Direct(oid(1))));
    assert_eq!(fixture.leftovers(), Vec::<PathBuf>::new());
    let deletes: Vec<_> = names
        .iter()
        .map(|text| (text.as_str(), NewValue::Deleted))
        .collect();
    fixture.apply(&deletes);
    assert_eq!(
        fixture.text("packed-refs"),
        packed_refs(&[("refs/heads/a", 1)])
    );
    assert!(!fixture.exists("refs/heads/x"));
}

#[test]
fn many_names_in_one_directory_are_read_as_single_ones_are() {
    let fixture = fixture();
    fixture.write("refs/heads/001", &format!("{}\n", oid(1)));
    fixture.write("refs/heads/002", "junk");
    fixture.write("refs/heads/003/below", &format!("{}\n", oid(1)));
    fs::create_dir_all(fixture.path("refs/heads/004/empty")).unwrap();
    std::os::unix::fs::symlink("refs/heads/001", fixture.path("refs/heads/005")).unwrap();
    fixture.write("refs/heads/006", "ref: refs/heads/001\n");
    fixture.write(
        "packed-refs",
        &packed_refs(&[("refs/heads/001", 8), ("refs/heads/007", 8)]),
    );
    let names: Vec<String> = (0..100)
        .map(|number| format!("refs/heads/{number:03}"))
        .collect();
    let names: Vec<_> = names.iter().map(|text| name(text)).collect();
    for count in [10, 100] {
        let mut session = fixture.backend.begin().unwrap();
        let locked = lock(session.as_mut(), &names[..count], false);
        let described: Vec<_> = locked
            .iter()
            .map(|locked| match locked {
                Locked::Found(found) => format!("{:?}", found.target),
                Locked::Missing | Locked::Alone => "missing".to_owned(),
                Locked::Refused(refusal) => refusal.message.to_string(),
                Locked::Behind => panic!("nothing was locked before"),
            })
            .collect();
        let symref = "Symbolic(\"refs/heads/001\")".to_owned();
        let mut expected = vec!["missing".to_owned(); count];
        expected[1] = format!("Direct({})", oid(1));
        expected[2] = "unable to resolve reference 'refs/heads/002': reference broken".to_owned();
        expected[3] = "'refs/heads/003/below' exists; cannot create 'refs/heads/003'".to_owned();
        expected[5].clone_from(&symref);
        expected[6] = symref;
        expected[7] = format!("Direct({})", oid(8));
        assert_eq!(described, expected);
        assert!(!fixture.exists("refs/heads/002.lock") && fixture.exists("refs/heads/004.lock"));
    }
}

#[test]
fn a_batch_that_is_small_against_packed_refs_stays_loose() {
    let fixture = fixture();
    let many: Vec<String> = (0..40_000)
        .map(|number| format!("refs/tags/{number:06}"))
        .collect();
    let records: Vec<_> = many.iter().map(|text| (text.as_str(), 1)).collect();
    fixture.write("packed-refs", &packed_refs(&records));
    let names: Vec<String> = (0..70)
        .map(|number| format!("refs/heads/{number:04}"))
        .collect();
    let writes: Vec<_> = names
        .iter()
        .map(|text| (text.as_str(), direct(7)))
        .collect();
    fixture.apply(&writes);
    assert!(fixture.exists("refs/heads/0069"));
    assert_eq!(fixture.names("refs/heads/", "refs/heads/").len(), 70);
}

#[test]
fn an_initial_plan_packs_shared_refs_only() {
    let fixture = fixture();
    let session = fixture.backend.begin();
    let mut session = session.unwrap();
    let (tag, commit) = (oid(2), oid(1));
    let mut plan = plan(
        &[
            ("HEAD", NewValue::Symbolic(name("refs/heads/main"))),
            ("ORIG_HEAD", direct(4)),
            ("refs/bisect/bad", direct(3)),
            ("refs/heads/main", direct(1)),
            (
                "refs/tags/v1",
                NewValue::Direct {
                    oid: &tag,
                    peeled: Some(&commit),
                },
            ),
        ],
        &[],
    );
    plan.initial = true;
    session.prepare(plan).unwrap();
    session.publish().unwrap();
    let mut expected = packed_refs(&[("refs/heads/main", 1), ("refs/tags/v1", 2)]);
    expected += &format!("^{}\n", oid(1));
    assert_eq!(fixture.text("packed-refs"), expected);
    assert!(fixture.exists("refs/bisect/bad") && fixture.exists("ORIG_HEAD"));
    assert_eq!(fixture.leftovers(), Vec::<PathBuf>::new());
}

#[test]
fn another_new_file_and_a_held_lock_are_respected() {
    let fixture = fixture();
    fixture.write(
        "packed-refs",
        &packed_refs(&[("refs/heads/a", 1), ("refs/heads/b", 1)]),
    );
    fixture.write("packed-refs.new", "another's");
    let writes = [("refs/heads/a", NewValue::Deleted)];
    let mut session = fixture.backend.begin().unwrap();
    lock(session.as_mut(), &[name("refs/heads/a")], true);
    let error = session.prepare(plan(&writes, &[])).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "unable to create file {}: File exists",
            fixture.path("packed-refs.new").display()
        )
    );
    drop(session);
    assert_eq!(fixture.text("packed-refs.new"), "another's");
    fs::remove_file(fixture.path("packed-refs.new")).unwrap();
    fixture.apply(&[("refs/heads/a", NewValue::Deleted)]);
    assert_eq!(
        fixture.text("packed-refs"),
        packed_refs(&[("refs/heads/b", 1)])
    );
    fixture.write("packed-refs.lock", "");
    let mut session = fixture.backend.begin().unwrap();
    lock(session.as_mut(), &[name("refs/heads/b")], true);
    let writes = [("refs/heads/b", NewValue::Deleted)];
    let error = session.prepare(plan(&writes, &[])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked);
    assert!(
        error
            .to_string()
            .contains("packed-refs.lock': File exists."),
        "{error}"
    );
    drop(session);
    assert!(fixture.exists("packed-refs.lock"));
}

#[test]
fn a_linked_packed_refs_is_replaced_where_it_is() {
    let fixture = fixture();
    fixture.write(
        "elsewhere/packed",
        &packed_refs(&[("refs/heads/a", 1), ("refs/heads/b", 1)]),
    );
    std::os::unix::fs::symlink("elsewhere/packed", fixture.path("packed-refs")).unwrap();
    fixture.apply(&[("refs/heads/a", NewValue::Deleted)]);
    assert!(
        fixture
            .path("packed-refs")
            .symlink_metadata()
            .unwrap()
            .is_symlink()
    );
    assert_eq!(
        fixture.text("elsewhere/packed"),
        packed_refs(&[("refs/heads/b", 1)])
    );
}

#[test]
fn changes_of_packed_refs_by_others_are_seen() {
    let fixture = fixture();
    for number in 0..50 {
        let path = fixture.path("packed-refs.other");
        fs::write(&path, packed_refs(&[("refs/heads/a", number)])).unwrap();
        fs::rename(&path, fixture.path("packed-refs")).unwrap();
        let found = fixture.read("refs/heads/a");
        assert_eq!(found, Some(Target::Direct(oid(number))));
    }
    fs::remove_file(fixture.path("packed-refs")).unwrap();
    assert_eq!(fixture.read("refs/heads/a"), None);
}

#[test]
fn the_cursor_merges_loose_and_packed_refs() {
    let fixture = fixture();
    let packed = [
        ("refs/heads/a", 1),
        ("refs/heads/b/c", 1),
        ("refs/heads/z", 1),
        ("refs/tags/t", 1),
    ];
    fixture.write("packed-refs", &packed_refs(&packed));
    for path in [
        "refs/heads/a",
        "refs/heads/a-b",
        "refs/heads/b/d",
        "refs/x/y",
        "ORIG_HEAD",
    ] {
        fixture.write(path, &format!("{}\n", oid(2)));
    }
    for path in [
        "refs/heads/.hidden",
        "refs/heads/q.lock",
        "FETCH_HEAD",
        "config",
    ] {
        fixture.write(path, &format!("{}\n", oid(2)));
    }
    let all = [
        "HEAD",
        "ORIG_HEAD",
        "refs/heads/a",
        "refs/heads/a-b",
        "refs/heads/b/c",
        "refs/heads/b/d",
        "refs/heads/z",
        "refs/tags/t",
        "refs/x/y",
    ];
    assert_eq!(fixture.names("", ""), all);
    assert_eq!(fixture.names("refs/heads/b", ""), all[4..]);
    assert_eq!(fixture.names("", "refs/heads/b"), all[4..6]);
    assert_eq!(fixture.names("refs/heads/b/d", "refs/heads/"), all[5..7]);
    assert_eq!(fixture.names("", "O"), ["ORIG_HEAD"]);
    assert_eq!(fixture.names("", "refs/none/"), Vec::<String>::new());
    let mut cursor = fixture.backend.cursor().unwrap();
    assert_eq!(rest(cursor.as_mut()), all);
    for from in (0..all.len()).rev() {
        cursor.seek(all[from].as_bytes(), b"").unwrap();
        assert_eq!(rest(cursor.as_mut()), all[from..]);
    }
    cursor.seek(b"refs/heads/a", b"refs/heads/a").unwrap();
    assert!(cursor.advance().unwrap());
    assert_eq!(cursor.record().target.oid(), Some(oid(2)));
    assert!(!cursor.record().packed);
}

#[test]
fn a_cursor_keeps_its_moment() {
    let fixture = fixture();
    fixture.write(
        "packed-refs",
        &packed_refs(&[("refs/heads/a", 1), ("refs/heads/b", 1)]),
    );
    fixture.write("refs/heads/c", &format!("{}\n", oid(1)));
    let mut cursor = fixture.backend.cursor().unwrap();
    cursor.seek(b"", b"refs/").unwrap();
    let deleted = ["refs/heads/a", "refs/heads/b", "refs/heads/c"];
    fixture.apply(&deleted.map(|text| (text, NewValue::Deleted)));
    assert_eq!(rest(cursor.as_mut()), deleted);
    cursor.seek(b"refs/heads/b", b"refs/heads/").unwrap();
    assert_eq!(rest(cursor.as_mut()), deleted[1..]);
}

#[test]
fn broken_refs_and_bad_names_are_flagged() {
    let fixture = fixture();
    fixture.write("refs/heads/bad..name", &format!("{}\n", oid(1)));
    fixture.write("refs/heads/junk", "");
    fixture.write("refs/heads/null", &format!("{}\n", oid(0)));
    fixture.write("refs/heads/sym", "ref: refs/heads/nowhere\n");
    let mut cursor = fixture.backend.cursor().unwrap();
    cursor.seek(b"", b"refs/").unwrap();
    let mut found = Vec::new();
    while cursor.advance().unwrap() {
        let record = cursor.record();
        assert!(record.target.oid().is_none_or(|oid| oid.is_null()));
        found.push((
            record.name.to_string(),
            record.broken,
            record.has_bad_name(),
        ));
    }
    let expected = [
        ("refs/heads/bad..name", true, true),
        ("refs/heads/junk", true, false),
        ("refs/heads/null", true, false),
        ("refs/heads/sym", false, false),
    ];
    assert_eq!(
        found,
        expected.map(|(name, broken, bad)| (name.to_owned(), broken, bad))
    );
    let error = fixture.backend.read(name("refs/heads/junk")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BrokenRef);
    assert!(fixture.backend.read(name("HEAD/x")).unwrap().is_none());
    assert_eq!(fixture.read("refs/../HEAD"), None);
}

#[test]
fn a_linked_worktree_sees_its_own_refs_and_the_shared_ones() {
    let fixture = fixture();
    fixture.write(
        "packed-refs",
        &packed_refs(&[("refs/bisect/strayed", 1), ("refs/heads/p", 1)]),
    );
    for path in [
        "refs/heads/a",
        "refs/bisect/main",
        "worktrees/w/refs/bisect/own",
        "logs/HEAD",
    ] {
        fixture.write(path, &format!("{}\n", oid(2)));
    }
    for path in [
        "logs/refs/heads/a",
        "worktrees/w/logs/HEAD",
        "worktrees/w/HEAD",
    ] {
        fixture.write(path, &format!("{}\n", oid(3)));
    }
    let layout = Layout::linked(fixture.path("worktrees/w"), fixture.dir.path());
    let options = Arc::clone(&fixture.backend.files.options);
    let linked = FilesBackend::new(Arc::new(OsSystem::new()), layout, options);
    let mut cursor = linked.cursor().unwrap();
    let names = ["HEAD", "refs/bisect/own", "refs/heads/a", "refs/heads/p"];
    assert_eq!(rest(cursor.as_mut()), names);
    cursor.seek(b"", b"refs/bisect/").unwrap();
    assert_eq!(rest(cursor.as_mut()), ["refs/bisect/own"]);
    let read = |text| linked.read(name(text)).unwrap().map(|found| found.target);
    assert_eq!(read("HEAD"), Some(Target::Direct(oid(3))));
    assert_eq!(
        read("main-worktree/refs/bisect/main"),
        Some(Target::Direct(oid(2)))
    );
    assert_eq!(read("refs/bisect/strayed"), None);
    assert_eq!(
        fixture.read("worktrees/w/HEAD"),
        Some(Target::Direct(oid(3)))
    );
    let logs: Vec<_> = linked
        .log_names()
        .unwrap()
        .iter()
        .map(|name| name.to_string())
        .collect();
    assert_eq!(logs, ["HEAD", "refs/heads/a"]);
    let mut session = linked.begin().unwrap();
    lock(session.as_mut(), &[name("refs/bisect/own")], true);
    let writes = [("refs/bisect/own", NewValue::Deleted)];
    session.prepare(plan(&writes, &[])).unwrap();
    session.publish().unwrap();
    assert!(!fixture.exists("worktrees/w/refs/bisect/own"));
}

#[test]
fn reflogs_are_appended_in_order_and_go_with_their_ref() {
    let fixture = fixture();
    let logs = [
        log("HEAD", "first", true),
        log("refs/heads/a/b", "second", true),
        log("HEAD", "", true),
        log("refs/tags/t", "not there", false),
    ];
    fixture.apply_logged(&[("refs/heads/a/b", direct(2))], &logs);
    let line = format!("{} {} A <a@b> 1 +0000", oid(1), oid(2));
    assert_eq!(
        fixture.text("logs/HEAD"),
        format!("{line}\tfirst\n{line}\n")
    );
    assert_eq!(
        fixture.text("logs/refs/heads/a/b"),
        format!("{line}\tsecond\n")
    );
    let names = fixture.backend.log_names().unwrap();
    let names: Vec<_> = names.iter().map(|name| name.to_string()).collect();
    assert_eq!(names, ["HEAD", "refs/heads/a/b"]);
    let mut messages = Vec::new();
    let each = &mut |entry: LogEntry| {
        messages.push(entry.message.to_string());
        Ok(messages.len() < 2)
    };
    assert!(
        fixture
            .backend
            .for_each_log_entry(name("HEAD"), LogOrder::NewestFirst, each)
            .unwrap()
    );
    assert_eq!(messages, ["", "first"]);
    assert!(fixture.backend.log_exists(name("HEAD")).unwrap());
    assert!(!fixture.backend.log_exists(name("refs/tags/t")).unwrap());
    fixture.apply(&[("refs/heads/a/b", NewValue::Deleted)]);
    assert!(!fixture.exists("logs/refs/heads/a"));
}

#[test]
fn logs_below_a_new_ref_are_an_error_before_anything_is_visible() {
    let fixture = fixture();
    // All that is left of a ref that was once moved.
    let line = format!("{} {} A <a@b> 1 +0000\n", oid(1), oid(2));
    fixture.write("logs/refs/heads/a/b", &line);
    let session = fixture.creation_of_a();
    let error = session.publish().unwrap_err();
    let path = fixture.path("logs/refs/heads/a");
    assert_eq!(
        error.to_string(),
        format!(
            "cannot update the ref 'refs/heads/a': there are still logs under '{}'",
            path.display()
        )
    );
    assert_eq!(fixture.read("refs/heads/a"), None);
    assert_eq!(fixture.leftovers(), Vec::<PathBuf>::new());
}

/// A reflog of a ref that is not there would be in the way of those below it.
#[test]
fn a_ref_that_could_not_be_made_leaves_no_reflog() {
    let fixture = fixture();
    let session = fixture.creation_of_a();
    fixture.write("refs/heads/a/b.lock", "");
    session.publish().unwrap_err();
    assert_eq!(fixture.read("refs/heads/a"), None);
    assert!(!fixture.exists("logs/refs/heads/a"));
}

/// Objects of which the one numbered 9 is missing, and 5 a tag of 4.
#[derive(Debug)]
struct SomeObjects;

impl Objects for SomeObjects {
    fn kind(&self, _oid: ObjectId) -> Result<Option<ObjectKind>> {
        Ok(Some(ObjectKind::Commit))
    }

    fn peel(&self, found: ObjectId) -> Result<Peeled> {
        Ok(match found {
            found if found == oid(9) => Peeled::Missing,
            found if found == oid(5) => Peeled::To(oid(4)),
            _ => Peeled::Itself,
        })
    }
}

fn optimize(fixture: &Fixture, auto: bool, prune: bool, objects: &dyn Objects) -> Vec<String> {
    let warnings = std::cell::RefCell::new(Vec::new());
    let options = Optimize {
        auto,
        prune,
        include: &|name| !name.as_bytes().starts_with(b"refs/keep/"),
        warn: &|warning| warnings.borrow_mut().push(warning.to_string()),
    };
    fixture.backend.optimize(&options, objects).unwrap();
    warnings.into_inner()
}

#[test]
fn packing_takes_what_can_be_packed_and_prunes_it() {
    let fixture = fixture();
    fixture.write("packed-refs", &format!("{} refs/tags/old\n", oid(5)));
    for (path, number) in [
        ("refs/heads/a/b", 1),
        ("refs/tags/new", 5),
        ("refs/bisect/bad", 1),
        ("refs/heads/missing", 9),
        ("refs/keep/x", 1),
        ("refs/heads/held", 1),
    ] {
        fixture.write(path, &format!("{}\n", oid(number)));
    }
    fixture.write("refs/heads/sym", "ref: refs/heads/held\n");
    fixture.write("refs/heads/junk", "junk");
    fixture.write("refs/heads/held.lock", "");
    let warnings = optimize(&fixture, false, true, &SomeObjects);
    let [missing, held] = warnings.as_slice() else {
        panic!("{warnings:?}");
    };
    assert_eq!(
        missing,
        "refs/heads/missing does not point to a valid object!"
    );
    assert!(
        held.starts_with("cannot lock ref 'refs/heads/held': Unable to create "),
        "{held}"
    );
    let expected = format!(
        "# pack-refs with: peeled fully-peeled sorted \n{} refs/heads/a/b\n{} refs/heads/held\n\
         {tag} refs/tags/new\n^{to}\n{tag} refs/tags/old\n^{to}\n",
        oid(1),
        oid(1),
        tag = oid(5),
        to = oid(4)
    );
    assert_eq!(fixture.text("packed-refs"), expected);
    for gone in ["refs/heads/a", "refs/tags/new"] {
        assert!(!fixture.exists(gone), "{gone}");
    }
    for kept in ["sym", "junk", "missing", "held", "held.lock"] {
        assert!(fixture.exists(&format!("refs/heads/{kept}")), "{kept}");
    }
    assert!(fixture.exists("refs/bisect/bad") && fixture.exists("refs/keep/x"));
}

#[test]
fn pruning_waits_for_a_lock_without_keeping_another() {
    let fixture = fixture_with(|options| {
        options.files_ref_lock_timeout = LockTimeout::from_millis(20_000);
    });
    for path in ["refs/heads/a", "refs/heads/b"] {
        fixture.write(path, &format!("{}\n", oid(1)));
    }
    fixture.write("refs/heads/a.lock", "");
    let lock = fixture.path("refs/heads/b.lock");
    let taken = std::thread::scope(|scope| {
        scope.spawn(|| optimize(&fixture, false, true, &NoObjects));
        // The last name goes first, and then that of the lock is waited for.
        while fixture.exists("refs/heads/b") {
            std::thread::yield_now();
        }
        // Whoever holds the one takes the other, as a transaction would.
        let until = Instant::now() + Duration::from_secs(10);
        let mut taken = false;
        while !taken && Instant::now() < until {
            taken = fs::File::create_new(&lock).is_ok();
        }
        fs::remove_file(fixture.path("refs/heads/a.lock")).unwrap();
        taken
    });
    assert!(taken, "the lock of a ref that is gone was kept");
    assert!(!fixture.exists("refs/heads/a"));
}

/// Between packing and pruning a ref went, or got another value in packed-refs, and came back as a file with
/// the value that was packed.
#[test]
fn what_is_not_packed_any_more_is_not_pruned() {
    for since in [packed_refs(&[]), packed_refs(&[("refs/heads/a", 2)])] {
        let fixture = fixture_with(|options| {
            options.files_ref_lock_timeout = LockTimeout::from_millis(20_000);
        });
        for path in ["refs/heads/a", "refs/heads/b"] {
            fixture.write(path, &format!("{}\n", oid(1)));
        }
        fixture.write("refs/heads/a.lock", "");
        std::thread::scope(|scope| {
            scope.spawn(|| optimize(&fixture, false, true, &NoObjects));
            // The last name goes first, and then that of the lock is waited for.
            while fixture.exists("refs/heads/b") {
                std::thread::yield_now();
            }
            fixture.write("new", &since);
            fs::rename(fixture.path("new"), fixture.path("packed-refs")).unwrap();
            fs::remove_file(fixture.path("refs/heads/a.lock")).unwrap();
        });
        assert_eq!(fixture.read("refs/heads/a"), Some(Target::Direct(oid(1))));
    }
}

#[test]
fn packing_without_pruning_keeps_the_loose_refs() {
    let fixture = fixture();
    fixture.write("refs/heads/a", &format!("{}\n", oid(1)));
    optimize(&fixture, false, false, &NoObjects);
    assert!(fixture.exists("refs/heads/a"));
    assert_eq!(
        fixture.text("packed-refs"),
        packed_refs(&[("refs/heads/a", 1)])
    );
}

#[test]
fn automatic_packing_waits_for_sixteen_refs() {
    let fixture = fixture();
    for number in 0..15 {
        fixture.write(&format!("refs/heads/{number}"), &format!("{}\n", oid(1)));
    }
    optimize(&fixture, true, true, &NoObjects);
    assert!(!fixture.exists("packed-refs"));
    fixture.write("refs/heads/15", &format!("{}\n", oid(1)));
    optimize(&fixture, true, true, &NoObjects);
    assert!(fixture.exists("packed-refs") && !fixture.exists("refs/heads/0"));
}

#[test]
fn no_name_and_no_prefix_leads_out_of_the_repository() {
    let fixture = fixture();
    fixture.write("refs/heads/main", &format!("{}\n", oid(1)));
    fixture.write("stray", &format!("{}\n", oid(2)));
    fixture.write("logs/refs/heads/main", "");
    for prefix in [
        "refs/../",
        "refs//heads/",
        "refs/./heads/",
        "refs/heads/../heads/",
        "refs/\0/",
    ] {
        assert_eq!(
            fixture.names("", prefix),
            Vec::<String>::new(),
            "{prefix:?}"
        );
    }
    assert_eq!(fixture.names("", "refs/heads/"), ["refs/heads/main"]);
    assert!(fixture.backend.log_exists(name("refs/heads/main")).unwrap());
    for odd in [
        "refs/../logs/refs/heads/main",
        "refs//heads/main",
        "refs/heads/\0",
        "",
    ] {
        assert_eq!(fixture.read(odd), None, "{odd:?}");
        assert!(!fixture.backend.log_exists(name(odd)).unwrap(), "{odd:?}");
    }
}

#[test]
fn a_name_longer_than_a_file_name_can_be_is_absent() {
    let fixture = fixture();
    let long = format!("refs/heads/{}", "x".repeat(300));
    assert_eq!(fixture.read(&long), None);
    assert!(!fixture.backend.log_exists(name(&long)).unwrap());
    assert!(fixture.names("", &format!("{long}/")).is_empty());
}

#[test]
fn a_file_too_long_for_a_ref_is_broken_and_not_read_to_its_end() {
    let fixture = fixture();
    fixture.write("refs/heads/long", &format!("{}\n", oid(1)));
    let file = fs::OpenOptions::new()
        .append(true)
        .open(fixture.path("refs/heads/long"))
        .unwrap();
    // A hole of a terabyte, which no memory would hold.
    file.set_len(1 << 40).unwrap();
    let error = fixture.backend.read(name("refs/heads/long")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BrokenRef);
    let mut cursor = fixture.backend.cursor().unwrap();
    cursor.seek(b"refs/", b"refs/").unwrap();
    assert!(cursor.advance().unwrap());
    assert!(cursor.record().broken);
}

#[test]
fn every_packed_refs_is_dated_a_whole_second_after_the_one_before() {
    let fixture = fixture();
    let names: Vec<String> = (0..BATCH_MIN).map(|at| format!("refs/x/{at}")).collect();
    let dated = |path: PathBuf| path.metadata().unwrap().mtime();
    let mut before = 0;
    for turn in 1..5 {
        let writes = names.iter().map(|name| (name.as_str(), direct(turn)));
        fixture.apply(&writes.collect::<Vec<_>>());
        let now = dated(fixture.path("packed-refs"));
        assert!(now > before, "{now} after {before}");
        before = now;
    }
    // No date on a disk is too late for a write, whatever its own one is then.
    let last = std::time::UNIX_EPOCH + Duration::from_secs(i64::MAX as u64);
    let packed = fs::File::options()
        .write(true)
        .open(fixture.path("packed-refs"));
    packed.unwrap().set_modified(last).unwrap();
    fixture.apply(&[("refs/x/0", NewValue::Deleted)]);
    assert_eq!(fixture.read("refs/x/0"), None);
}

#[test]
fn a_reflog_that_was_made_before_its_ref_was_locked_gets_its_entry() {
    let fixture = fixture();
    let mut session = fixture.backend.begin().unwrap();
    lock(session.as_mut(), &[name("refs/heads/a")], false);
    assert!(!session.may_have_log(name("HEAD")).unwrap());
    fixture.write("logs/refs/heads/b", "");
    lock(session.as_mut(), &[name("refs/heads/b")], false);
    let entries = [log("refs/heads/b", "later", false)];
    session
        .prepare(plan(&[("refs/heads/b", direct(2))], &entries))
        .unwrap();
    session.publish().unwrap();
    assert!(fixture.text("logs/refs/heads/b").ends_with("later\n"));
}
