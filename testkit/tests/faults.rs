//! The `files` backend on a disk that fails, a process that dies, and a machine that loses power,
//! at every single operation.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind as Io;
use std::path::Path;
use std::sync::Arc;

use refdb::layout::Layout;
use refdb::objects::NoObjects;
use refdb::options::{Committer, Identity, LockTimeout};
use refdb::store::Optimize;
use refdb::system::simulation::{Content, Crash, Failure, Fault, Names, SimSystem};
use refdb::system::{FileKind, System};
use refdb::target::Target;
use refdb::{
    Edit, LogOrder, ObjectFormat, ObjectId, Options, RefFormat, RefName, RefNameBuf, Result, Store,
};

const GIT_DIR: &str = "/repo/.git";

/// Refs by name, as text.
type State = BTreeMap<String, String>;

/// Whether all of a write is done, its durability included.
type Acknowledged = bool;

/// One thing that a process does, and whether it does all of it or nothing even when it fails.
struct Workload {
    name: &'static str,
    run: fn(&Store) -> Result<Acknowledged>,
    one_step: bool,
}

fn name(text: &str) -> RefNameBuf {
    RefNameBuf::new(text).expect("a good name")
}

fn oid(number: u32) -> ObjectId {
    ObjectId::from_hex(format!("{number:040x}").as_bytes()).expect("forty digits")
}

fn open(system: &SimSystem) -> Store {
    let mut options = Options::new(ObjectFormat::Sha1);
    options.committer = Committer::from(Identity {
        name: "A".into(),
        email: "a@b".into(),
        ..Identity::default()
    });
    options.files_ref_lock_timeout = LockTimeout::from_millis(0);
    options.packed_refs_timeout = LockTimeout::from_millis(0);
    Store::open(
        Arc::new(system.clone()),
        Layout::main(GIT_DIR),
        RefFormat::Files,
        Arc::new(NoObjects),
        options,
    )
    .expect("a store")
}

fn commit(store: &Store, edits: Vec<Edit<'static>>) -> Result<Acknowledged> {
    let mut transaction = store.transaction();
    for edit in edits {
        transaction.add(edit)?;
    }
    let outcome = transaction.commit()?;
    assert!(outcome.rejections.is_empty());
    Ok(outcome.afterwards.is_empty())
}

fn update(text: &str, number: u32) -> Edit<'static> {
    Edit::update(RefName::from(&name(text)), oid(number)).into_owned()
}

fn delete(text: &str) -> Edit<'static> {
    Edit::delete(RefName::from(&name(text))).into_owned()
}

/// A durable repository with loose refs, packed refs, and one that is both.
fn repository() -> SimSystem {
    let system = SimSystem::new(7);
    for dir in ["objects", "refs/heads", "refs/tags"] {
        system
            .create_dir_all(&Path::new(GIT_DIR).join(dir))
            .expect("a new directory");
    }
    let head = Path::new(GIT_DIR).join("HEAD");
    let mut file = system.create_new(&head, 0o666).expect("a new file");
    file.write_all(b"ref: refs/heads/main\n").expect("room");
    let store = open(&system);
    let packed = [
        "refs/heads/both",
        "refs/heads/deep/er/packed",
        "refs/tags/v1",
    ];
    commit(&store, packed.map(|text| update(text, 1)).to_vec()).expect("no fault");
    store.optimize(&Optimize::default()).expect("no fault");
    let loose = ["refs/heads/both", "refs/heads/dir/loose", "refs/heads/main"];
    commit(&store, loose.map(|text| update(text, 2)).to_vec()).expect("no fault");
    system.sync_all();
    // Long ago, as far as the times of files can tell.
    system.sleep(std::time::Duration::from_secs(10));
    system
}

fn workloads() -> Vec<Workload> {
    vec![
        Workload {
            name: "create in new directories",
            run: |store| commit(store, vec![update("refs/heads/new/er/one", 5)]),
            one_step: true,
        },
        Workload {
            name: "update the branch of HEAD",
            run: |store| commit(store, vec![update("HEAD", 5)]),
            one_step: true,
        },
        Workload {
            name: "update a packed ref",
            run: |store| commit(store, vec![update("refs/tags/v1", 5)]),
            one_step: true,
        },
        Workload {
            name: "delete a loose ref",
            run: |store| commit(store, vec![delete("refs/heads/dir/loose")]),
            one_step: true,
        },
        Workload {
            name: "delete a packed ref",
            run: |store| commit(store, vec![delete("refs/heads/deep/er/packed")]),
            one_step: true,
        },
        Workload {
            name: "delete a ref that is loose and packed",
            run: |store| commit(store, vec![delete("refs/heads/both")]),
            one_step: true,
        },
        Workload {
            name: "repoint HEAD",
            run: |store| {
                let (head, target) = (name("HEAD"), name("refs/heads/both"));
                let edit = Edit::symbolic(&head, &target).no_deref().into_owned();
                commit(store, vec![edit])
            },
            one_step: true,
        },
        Workload {
            name: "several at once",
            run: |store| {
                commit(
                    store,
                    vec![
                        update("refs/heads/main", 6),
                        delete("refs/heads/both"),
                        update("refs/heads/new", 6),
                        delete("refs/heads/deep/er/packed"),
                    ],
                )
            },
            one_step: false,
        },
        Workload {
            name: "a large batch",
            run: |store| {
                let mut edits: Vec<_> = (0..70)
                    .map(|number| update(&format!("refs/remotes/o/{number}"), 6))
                    .collect();
                edits.push(update("refs/heads/dir/loose", 6));
                edits.push(update("refs/heads/both", 6));
                commit(store, edits)
            },
            one_step: false,
        },
        Workload {
            name: "pack",
            run: |store| store.optimize(&Optimize::default()).map(|()| true),
            one_step: true,
        },
    ]
}

/// Returns all refs, read by a process of its own; fails on damage and on broken refs.
fn state(system: &SimSystem) -> State {
    let store = open(&system.process(2000));
    let mut refs = store.refs().expect("readable refs");
    let mut state = State::new();
    while let Some(record) = refs.next().expect("readable refs") {
        assert!(!record.broken && !record.bad_name, "{record:?}");
        state.insert(record.name.to_string(), format!("{:?}", record.target));
    }
    for (text, target) in &state {
        let found = store
            .read(RefName::from(&name(text)))
            .expect("readable")
            .expect("there");
        let found = match found.target {
            Target::Direct(oid) => format!("Direct({oid:?})"),
            Target::Symbolic(name) => format!("Symbolic({name:?})"),
        };
        assert_eq!(&found, target, "{text}");
    }
    state
}

/// Returns the files below the repository that are neither refs nor logs nor packed-refs.
fn leftovers(system: &SimSystem) -> BTreeSet<String> {
    let mut dirs = vec![GIT_DIR.to_owned()];
    let mut found = BTreeSet::new();
    while let Some(dir) = dirs.pop() {
        for entry in system.read_dir(Path::new(&dir)).expect("a directory") {
            let entry_name = String::from_utf8(entry.name).expect("text");
            let path = format!("{dir}/{entry_name}");
            if entry.kind == FileKind::Directory {
                dirs.push(path);
            } else if path.ends_with(".lock") || path.ends_with(".new") {
                found.insert(path);
            }
        }
    }
    found
}

/// Asserts that every ref has its old value or its new one.
fn assert_between(found: &State, old: &State, new: &State, context: &str) {
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).chain(found.keys()).collect();
    for text in names {
        let value = found.get(text);
        assert!(
            value == old.get(text) || value == new.get(text),
            "{context}: {text} is {value:?}, was {:?}, should become {:?}",
            old.get(text),
            new.get(text)
        );
    }
}

/// Returns the state after a run without faults, and how many operations it takes.
fn undisturbed(base: &SimSystem, workload: &Workload) -> (State, u64) {
    let system = base.fork();
    (workload.run)(&open(&system)).expect("no fault");
    let ops = system.op_count();
    assert_eq!(leftovers(&system), BTreeSet::new(), "{}", workload.name);
    (state(&system), ops)
}

#[test]
fn a_failing_operation_leaves_the_old_state_or_the_new_one() {
    let base = repository();
    let old = state(&base);
    for workload in workloads() {
        let (new, ops) = undisturbed(&base, &workload);
        for at in 0..ops {
            for kind in [Io::Other, Io::PermissionDenied] {
                let context = format!("{}, operation {at}, {kind:?}", workload.name);
                let system = base.fork();
                system.set_fault(Some(Fault::once(at, kind)));
                let done = (workload.run)(&open(&system));
                system.set_fault(None);
                let found = state(&system);
                match done {
                    Ok(_) => assert_eq!(found, new, "{context}"),
                    Err(_) if workload.one_step => assert_between(&found, &old, &old, &context),
                    Err(_) => assert_between(&found, &old, &new, &context),
                }
                assert_eq!(leftovers(&system), BTreeSet::new(), "{context}");
                (workload.run)(&open(&system)).expect("no fault any more");
                assert_eq!(state(&system), new, "{context}, again");
            }
        }
    }
}

#[test]
fn short_writes_are_completed() {
    let base = repository();
    for workload in workloads() {
        let (new, ops) = undisturbed(&base, &workload);
        for at in 0..ops {
            let system = base.fork();
            system.set_fault(Some(Fault {
                at,
                failure: Failure::Short(1),
                persistent: false,
            }));
            (workload.run)(&open(&system)).expect("a short write is no failure");
            assert_eq!(state(&system), new, "{}, operation {at}", workload.name);
        }
    }
}

#[test]
fn a_process_that_dies_leaves_every_ref_old_or_new() {
    let base = repository();
    let old = state(&base);
    for workload in workloads() {
        let (new, ops) = undisturbed(&base, &workload);
        for at in 0..=ops {
            let context = format!("{}, dead before operation {at}", workload.name);
            let system = base.fork();
            system.set_fault(Some(Fault::dies_at(at)));
            let done = (workload.run)(&open(&system));
            let found = state(&system);
            assert_between(&found, &old, &new, &context);
            if done.is_ok() {
                assert_eq!(found, new, "{context}");
            }
        }
    }
}

#[test]
fn a_power_failure_loses_nothing_that_was_acknowledged() {
    let base = repository();
    let old = state(&base);
    let worst = [Names::Durable, Names::Prefix, Names::Subset, Names::All]
        .map(|names| [Content::Durable, Content::Zeros].map(|content| (names, content)))
        .concat();
    for workload in workloads() {
        let (new, ops) = undisturbed(&base, &workload);
        for at in 0..=ops {
            let system = base.fork();
            system.set_fault(Some(Fault::dies_at(at)));
            let done = (workload.run)(&open(&system));
            let worst = worst.iter().map(|&(names, content)| Crash {
                names,
                content,
                seed: at,
            });
            for crash in worst.chain((0..12).map(Crash::seeded)) {
                let context = format!("{}, operation {at}, {crash:?}", workload.name);
                let after = system.crash(crash);
                let found = state(&after);
                if done.as_ref().is_ok_and(|&acknowledged| acknowledged) {
                    assert_eq!(found, new, "{context}");
                } else {
                    assert_between(&found, &old, &new, &context);
                }
            }
        }
    }
}

#[test]
fn an_acknowledged_reflog_entry_survives_a_power_failure() {
    let system = repository();
    let store = open(&system);
    let main = name("refs/heads/main");
    let entries = |system: &SimSystem| {
        let log = open(system).log(RefName::from(&main), LogOrder::OldestFirst);
        log.expect("readable").map_or(0, |entries| entries.len())
    };
    let before = entries(&system);
    commit(&store, vec![update("refs/heads/main", 9)]).expect("no fault");
    for seed in 0..50 {
        assert_eq!(entries(&system.crash(Crash::seeded(seed))), before + 1);
    }
}
