//! Refs of the old format that are kept: whoever finishes a migration that died, and dies as well, keeps them; and they
//! are kept without a wish where nobody can say any more what is new in them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use refdb::objects::NoObjects;
use refdb::system::{FileKind, System};
use refdb::{Edit, ErrorKind, ObjectId, RefFormat, RefNameBuf};
use refdb_maintenance::migrate::Migration;
use refdb_simulation::{Fault, SimSystem};
use refdb_testkit::{Format, for_every_format, ours};

use super::migrate_deleted::remove_locks;
use super::migrate_faults::{GIT_DIR, assert_same, changes, other, repository, state, stores};

const KEPT: &str = "/repo/.git/refdb-kept";
const FOLDER: &str = "/repo/.git/refdb-migration";

/// Migrates, and returns the error, or one that says that it is done.
fn migrate(
    system: &SimSystem,
    from: RefFormat,
    format: Format,
    to: RefFormat,
    keep: bool,
) -> refdb::Error {
    let (process, objects) = (Arc::new(system.clone()), Arc::new(NoObjects));
    let options = ours::simulated(format.objects);
    let migration = Migration::new(process, GIT_DIR, from, objects, options);
    let done = migration.to(to).keep(keep).run();
    done.err()
        .unwrap_or_else(|| refdb::Error::new(ErrorKind::Unsupported, "it is done"))
}

/// What the next process does first, whatever it was called for: there is nothing to migrate then.
fn finish(system: &SimSystem, now: RefFormat, format: Format) -> refdb::Error {
    migrate(system, now, format, now, false)
}

/// Returns every file of the old refs. No lock is left there.
fn kept(system: &SimSystem) -> BTreeMap<PathBuf, Vec<u8>> {
    let system = system.process(5000);
    let mut dirs = vec![PathBuf::from(KEPT)];
    let mut found = BTreeMap::new();
    while let Some(dir) = dirs.pop() {
        let Ok(entries) = system.read_dir(&dir) else {
            continue;
        };
        for entry in entries {
            let path = dir.join(OsStr::from_bytes(&entry.name));
            match entry.kind {
                FileKind::Directory => dirs.push(path),
                FileKind::File => {
                    assert!(!entry.name.ends_with(b".lock"), "{}", path.display());
                    let content = system.read(&path).expect("a file");
                    found.insert(path, content);
                }
                _ => {}
            }
        }
    }
    found
}

/// Calls `each` with what a migration leaves that dies after the switch, for every operation at which it can.
fn after_the_switch(format: Format, keep: bool, mut each: impl FnMut(&SimSystem, &str)) {
    let base = repository(format);
    let (refs, _) = state(&base, format, "the beginning");
    let act = |system: &SimSystem| drop(migrate(system, refs, format, other(refs), keep));
    let mut count = 0;
    for (at, op) in changes(&base, act) {
        let context = format!("dies at {op}");
        let system = base.fork();
        system.set_fault(Some(Fault::dies_at(at)));
        act(&system);
        system.end();
        if state(&system, format, &context).0 != refs {
            count += 1;
            each(&system, &context);
        }
    }
    assert!(count > 10, "{count}");
}

fn who_dies_as_well_keeps_them(format: Format) {
    after_the_switch(format, true, |system, context| {
        let (now, expected) = state(system, format, context);
        let mut all = BTreeMap::new();
        let whole = |whole: &SimSystem| {
            let done = finish(&whole.process(4000), now, format);
            assert_eq!(done.kind(), ErrorKind::Misuse, "{context}: {done}");
            all = kept(whole);
            assert!(all.len() > 3, "{context}: {all:?}");
        };
        for (at, op) in changes(system, whole) {
            let context = format!("{context}; again at {op}");
            let system = system.fork();
            let second = system.process(4000);
            second.set_fault(Some(Fault::dies_at(at)));
            let _ = finish(&second, now, format);
            second.end();
            let done = finish(&system.process(4001), now, format);
            assert_eq!(done.kind(), ErrorKind::Misuse, "{context}: {done}");
            assert_eq!(kept(&system), all, "{context}");
            assert_same(&state(&system, format, &context).1, &expected, &context);
        }
    });
}

/// Kept refs that are in the refs go with the next migration, wherever it dies.
fn what_is_removed_goes_whole(format: Format) {
    let base = repository(format);
    let (refs, expected) = state(&base, format, "the beginning");
    let _ = migrate(&base.process(3000), refs, format, other(refs), true);
    assert!(kept(&base).len() > 3);
    let back = |system: &SimSystem| drop(migrate(system, other(refs), format, refs, false));
    let mut count = 0;
    for (at, op) in changes(&base, back) {
        let context = format!("dies at {op}");
        let system = base.fork();
        system.set_fault(Some(Fault::dies_at(at)));
        back(&system);
        system.end();
        let (now, _) = state(&system, format, &context);
        let done = migrate(&system.process(4000), now, format, refs, false);
        let _ = finish(&system.process(4001), refs, format);
        assert_same(&state(&system, format, &context).1, &expected, &context);
        let left = system
            .process(5000)
            .read_dir(Path::new(GIT_DIR))
            .expect("a folder");
        let left = left
            .iter()
            .filter(|entry| entry.name.starts_with(b"refdb-"));
        assert_eq!(left.count(), 0, "{context}: {done}");
        count += usize::from(now == refs);
    }
    assert!(count > 10, "{count}");
}

fn without_its_list_they_are_kept(format: Format) {
    let list = Path::new(FOLDER).join("locked");
    let mut counts = [0, 0];
    after_the_switch(format, true, |system, context| {
        let (now, expected) = state(system, format, context);
        let user = system.process(3000);
        let journal = user.read(&Path::new(FOLDER).join("journal"));
        let journal = String::from_utf8(journal.unwrap_or_default()).expect("text");
        let is_asked = !journal.contains("swept") && !journal.is_empty();
        if user.read(&list).is_err() {
            return;
        }
        counts[usize::from(is_asked)] += 1;
        // A part of it is not believed, and stops nobody from reading.
        user.overwrite(&list, b"2\nrefs/heads/main\0")
            .expect("a list");
        let told = finish(&user, now, format);
        assert_eq!(
            told.kind() == ErrorKind::Corrupt,
            is_asked,
            "{context}: {told}"
        );
        assert_eq!(told.to_string().contains("locked"), is_asked, "{told}");
        assert_same(&state(system, format, context).1, &expected, context);
        if is_asked {
            user.remove_file(&list).expect("a list");
            let told = finish(&system.process(4000), now, format);
            assert_eq!(told.kind(), ErrorKind::Misuse, "{context}: {told}");
        }
        assert!(kept(system).len() > 3, "{context}");
        assert_same(&state(system, format, context).1, &expected, context);
    });
    assert!(counts[1] > 0, "{counts:?}");
}

/// Somebody removes all locks, and a process that knows nothing of the switch writes to the old refs.
fn late_refs_are_not_lost(format: Format) {
    let old = format.ours();
    let mut count = 0;
    after_the_switch(format, false, |system, context| {
        let (now, mut expected) = state(system, format, context);
        let writer = system.process(3500);
        remove_locks(&writer, GIT_DIR.as_ref());
        let [main, _] = stores(&writer, old, format);
        let name = RefNameBuf::new("refs/heads/late").expect("a good name");
        let digits = main.options().object_format.hex_len();
        let oid = ObjectId::from_hex("7".repeat(digits).as_bytes()).expect("an id");
        let mut transaction = main.transaction();
        transaction
            .add(Edit::update(&name, oid))
            .expect("a good edit");
        if !transaction
            .commit()
            .is_ok_and(|done| done.rejections.is_empty())
        {
            return;
        }
        count += 1;
        let told = finish(&system.process(4000), now, format);
        assert_eq!(told.kind(), ErrorKind::Misuse, "{context}: {told}");
        let (_, mut found) = state(system, format, context);
        found.retain(|key, _| !key.contains(" log "));
        expected.retain(|key, _| !key.contains(" log "));
        let is_there = found.remove("main refs/heads/late").is_some();
        found.remove("linked refs/heads/late");
        assert_same(&found, &expected, context);
        assert!(is_there || !kept(system).is_empty(), "{context}");
    });
    assert!(count > 0);
}

for_every_format! {
    fn what_is_written_after_locks_were_removed_is_not_lost(format) {
        late_refs_are_not_lost(format);
    }

    fn who_finishes_a_migration_and_dies_as_well_keeps_the_old_refs(format) {
        who_dies_as_well_keeps_them(format);
    }

    fn kept_refs_that_are_removed_leave_nothing_wherever_that_dies(format) {
        what_is_removed_goes_whole(format);
    }

    fn without_a_list_of_what_was_locked_the_old_refs_are_kept(format) {
        without_its_list_they_are_kept(format);
    }
}
