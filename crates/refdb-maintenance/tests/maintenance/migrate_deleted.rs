//! A migration dies after the switch, and somebody who knows nothing of it deletes a ref before it is finished. The old
//! store still has that ref, and it may have no lock any more: the migration gave it back, or somebody has removed all
//! locks.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use refdb::objects::NoObjects;
use refdb::system::{FileKind, System};
use refdb::{Edit, RefFormat, RefNameBuf, Result};
use refdb_maintenance::migrate::Migration;
use refdb_simulation::{Fault, SimSystem};
use refdb_testkit::{Format, for_every_format, ours};

use super::migrate_faults::{GIT_DIR, assert_same, changes, other, repository, state, stores};

/// A loose ref with a reflog.
const TAG: &str = "refs/tags/v1";

fn migrate(system: &SimSystem, from: RefFormat, format: Format, keep: bool) -> Result<()> {
    let (process, objects) = (Arc::new(system.clone()), Arc::new(NoObjects));
    let options = ours::simulated(format.objects);
    let migration = Migration::new(process, GIT_DIR, from, objects, options);
    migration.to(other(from)).keep(keep).run().map(drop)
}

fn delete(system: &SimSystem, refs: RefFormat, format: Format) -> bool {
    let [main, _] = stores(system, refs, format);
    let name = RefNameBuf::new(TAG).expect("a good name");
    let mut transaction = main.transaction();
    transaction.add(Edit::delete(&name)).expect("a good edit");
    transaction.commit().is_ok()
}

/// As `find -name '*.lock' -delete` does.
pub(super) fn remove_locks(system: &SimSystem, dir: &Path) {
    for entry in system.read_dir(dir).expect("a directory") {
        let path = dir.join(OsStr::from_bytes(&entry.name));
        match entry.kind {
            FileKind::Directory => remove_locks(system, &path),
            _ if entry.name.ends_with(b".lock") => system.remove_file(&path).expect("a lock"),
            _ => {}
        }
    }
}

fn die_everywhere(format: Format, keep: bool, removes_locks: bool) {
    let base = repository(format);
    let (refs, mut expected) = state(&base, format, "the beginning");
    expected.retain(|key, _| !key.contains(TAG));
    let mut deleted = 0;
    let whole = |whole: &SimSystem| migrate(whole, refs, format, keep).expect("no fault");
    for (at, op) in changes(&base, whole) {
        let context = format!("dies at {op}, {keep}, locks removed: {removes_locks}");
        let system = base.fork();
        system.set_fault(Some(Fault::dies_at(at)));
        let _ = migrate(&system, refs, format, keep);
        system.end();
        if removes_locks {
            remove_locks(&system.process(3000), GIT_DIR.as_ref());
        }
        let (now, _) = state(&system, format, &context);
        if now == refs || !delete(&system.process(3500), now, format) {
            continue;
        }
        deleted += 1;
        // The next one finishes what was begun, first of all.
        let _ = migrate(&system.process(4000), now, format, false);
        let (_, found) = state(&system, format, &context);
        assert_same(&found, &expected, &context);
    }
    assert!(deleted > 0);
}

for_every_format! {
    fn what_was_deleted_before_a_migration_is_finished_stays_deleted(format) {
        for (keep, removes_locks) in [(false, false), (true, false), (false, true), (true, true)] {
            die_everywhere(format, keep, removes_locks);
        }
    }
}
