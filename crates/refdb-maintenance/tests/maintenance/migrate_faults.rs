//! A migration that fails, dies, or loses power at every single operation.
//!
//! 1. The repository is wholly in the format that its configuration names: every ref and reflog of
//!    every worktree is there.
//! 2. What a process that died has left is cleaned up by the next migration, which then succeeds.
//! 3. The same where directories cannot be renamed: in the lower layer of an overlay.
//! 4. The same where the refs are kept in a directory outside the repository.

use std::collections::BTreeMap;
use std::io::ErrorKind as Io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use refdb::layout::Layout;
use refdb::objects::NoObjects;
use refdb::store::Optimize;
use refdb::system::{FileKind, System};
use refdb::{Edit, LogOrder, ObjectId, Options, RefFormat, RefName, RefNameBuf, Store};
use refdb_maintenance::migrate::Migration;
use refdb_simulation::{Content, Crash, Fault, Names, SimSystem};
use refdb_testkit::{Format, for_every_format, ours};

pub(super) const GIT_DIR: &str = "/repo/.git";
const ELSEWHERE: &str = "/elsewhere";

/// Every ref and every reflog, as both worktrees see them.
pub(super) type State = BTreeMap<String, String>;

fn options(format: Format) -> Options {
    ours::simulated(format.objects)
}

pub(super) fn other(format: RefFormat) -> RefFormat {
    match format {
        RefFormat::Files => RefFormat::Reftable,
        RefFormat::Reftable => RefFormat::Files,
    }
}

fn open(system: &SimSystem, layout: Layout, refs: RefFormat, format: Format) -> Store {
    let system = Arc::new(system.clone());
    Store::open(system, layout, refs, Arc::new(NoObjects), options(format)).expect("a store")
}

/// Where the refs are kept.
fn base(system: &SimSystem) -> &'static str {
    let dir = system.process(9000).stat(ELSEWHERE.as_ref());
    if dir.is_ok() { ELSEWHERE } else { GIT_DIR }
}

pub(super) fn stores(system: &SimSystem, refs: RefFormat, format: Format) -> [Store; 2] {
    let base = base(system);
    [
        Layout::main(base),
        Layout::linked(format!("{base}/worktrees/w"), base),
    ]
    .map(|layout| open(system, layout, refs, format))
}

fn write(system: &SimSystem, path: &str, content: &str) {
    let mut file = system.create_new(path.as_ref(), 0o666).expect("a new file");
    file.write_all(content.as_bytes()).expect("room");
}

/// Makes a durable repository with refs of every kind in two worktrees.
pub(super) fn repository(format: Format) -> SimSystem {
    let system = SimSystem::new(7);
    fill(system, GIT_DIR, format)
}

/// The same with refs outside of it.
fn repository_elsewhere(format: Format) -> SimSystem {
    let system = SimSystem::new(7);
    for dir in ["refs/heads", "worktrees/w/refs"] {
        let dir = Path::new(GIT_DIR).join(dir);
        system.create_dir_all(&dir).expect("a new directory");
    }
    let head = format!("{GIT_DIR}/HEAD");
    write(&system, &head, "ref: refs/heads/.invalid\n");
    fill(system, ELSEWHERE, format)
}

#[expect(clippy::too_many_lines, reason = "a list of what is there")]
fn fill(system: SimSystem, base: &str, format: Format) -> SimSystem {
    let linked_dir = format!("{base}/worktrees/w");
    let dirs: &[&str] = match format.ours() {
        RefFormat::Reftable => &[
            "refs",
            "reftable",
            "worktrees/w/reftable",
            "worktrees/w/refs",
        ],
        RefFormat::Files => &["refs/heads", "refs/tags", "worktrees/w/refs"],
    };
    for dir in dirs {
        system
            .create_dir_all(&Path::new(base).join(dir))
            .expect("a new directory");
    }
    let mut config = String::new();
    if base == ELSEWHERE {
        let name = format.ours().name();
        config = format!("[extensions]\n\trefstorage = {name}://../..{ELSEWHERE}\n");
    } else if format.ours() == RefFormat::Reftable {
        config.push_str("[extensions]\n\trefstorage = reftable\n");
    }
    if format.ours() == RefFormat::Reftable {
        for dir in [base, &linked_dir] {
            write(
                &system,
                &format!("{dir}/HEAD"),
                "ref: refs/heads/.invalid\n",
            );
            write(&system, &format!("{dir}/refs/heads"), "stub\n");
            // As Git begins a stack: without a list it would have lost its tables.
            write(&system, &format!("{dir}/reftable/tables.list"), "\n");
        }
    }
    config.push_str("[core]\n\trepositoryformatversion = 1\n");
    write(&system, &format!("{GIT_DIR}/config"), &config);
    let [main, linked] = stores(&system, format.ours(), format);
    let oid = |number: u32| {
        let digits = main.options().object_format.hex_len();
        ObjectId::from_hex(format!("{number:0digits$x}").as_bytes()).expect("an id")
    };
    let name = |text: &str| RefNameBuf::new(text).expect("a good name");
    let update = |store: &Store, text: &str, number| {
        let name = name(text);
        let mut transaction = store.transaction();
        transaction
            .add(Edit::update(&name, oid(number)).create_log())
            .expect("a good edit");
        let _ = transaction.commit().expect("no fault");
    };
    let point = |store: &Store, text: &str, target: &str| {
        let (name, target) = (name(text), name(target));
        let mut transaction = store.transaction();
        transaction
            .add(Edit::symbolic(&name, &target).no_deref())
            .expect("a good edit");
        let _ = transaction.commit().expect("no fault");
    };
    point(&main, "HEAD", "refs/heads/main");
    point(&linked, "HEAD", "refs/heads/side");
    for text in [
        "refs/tags/v1",
        "refs/heads/deep/er/packed",
        "refs/pull/1/head",
    ] {
        update(&main, text, 1);
    }
    main.optimize(&Optimize::default()).expect("no fault");
    for (text, number) in [
        ("refs/heads/main", 2),
        ("refs/heads/side", 3),
        ("refs/tags/v1", 4),
    ] {
        update(&main, text, number);
    }
    update(&main, "refs/heads/main", 5);
    update(&main, "refs/bisect/bad", 6);
    update(&main, "ORIG_HEAD", 6);
    update(&linked, "refs/bisect/good", 7);
    update(&linked, "ORIG_HEAD", 7);
    point(&main, "refs/remotes/o/HEAD", "refs/remotes/o/main");
    system.sync_all();
    system
}

/// Reads everything in the format that the configuration names.
pub(super) fn state(system: &SimSystem, format: Format, context: &str) -> (RefFormat, State) {
    let system = system.process(3000);
    let config = system
        .read(&Path::new(GIT_DIR).join("config"))
        .expect("a configuration");
    let is_reftable = String::from_utf8(config)
        .expect("text")
        .contains("refstorage = reftable");
    let refs = if is_reftable {
        RefFormat::Reftable
    } else {
        RefFormat::Files
    };
    // What makes Git take the directory for a repository.
    let head = system
        .read(&Path::new(GIT_DIR).join("HEAD"))
        .unwrap_or_default();
    assert!(head.starts_with(b"ref: refs/"), "{context}: no HEAD");
    let dir = system.stat(&Path::new(GIT_DIR).join("refs"));
    assert!(
        dir.is_ok_and(|stat| stat.kind == FileKind::Directory),
        "{context}: no refs"
    );
    let mut state = State::new();
    for (view, store) in ["main", "linked"]
        .into_iter()
        .zip(stores(&system, refs, format))
    {
        let mut listing = store.refs().expect(context);
        while let Some(record) = listing.next().expect(context) {
            assert!(
                !record.broken && !record.has_bad_name(),
                "{context}: {record:?}"
            );
            state.insert(
                format!("{view} {}", record.name),
                format!("{:?}", record.target),
            );
        }
        for name in store.log_names().expect(context) {
            let log = store
                .log(RefName::from(&name), LogOrder::OldestFirst)
                .expect(context);
            state.insert(format!("{view} log {name}"), format!("{log:?}"));
        }
    }
    (refs, state)
}

pub(super) fn migrate(system: &SimSystem, from: RefFormat, format: Format) -> refdb::Result<()> {
    let process = Arc::new(system.clone());
    let options = options(format);
    let migration = Migration::new(process, GIT_DIR, from, Arc::new(NoObjects), options);
    let report = migration.refs_in(base(system)).to(other(from)).run()?;
    match report.warnings.is_empty() {
        true => Ok(()),
        false => Err(refdb::Error::new(
            refdb::ErrorKind::Io,
            format!("{:?}", report.warnings),
        )),
    }
}

/// Returns everything that a migration should not leave.
fn leftovers(system: &SimSystem) -> Vec<PathBuf> {
    let system = system.process(5000);
    let mut dirs = vec![PathBuf::from(GIT_DIR), PathBuf::from(base(&system))];
    let mut found = Vec::new();
    while let Some(dir) = dirs.pop() {
        for entry in system.read_dir(&dir).expect("a directory") {
            let name = String::from_utf8(entry.name).expect("text");
            let path = dir.join(&name);
            let is_odd = name.ends_with(".lock")
                || name.contains("refdb")
                || entry.kind == FileKind::Symlink;
            if is_odd || name.contains(".temp.") {
                found.push(path);
            } else if entry.kind == FileKind::Directory {
                dirs.push(path);
            }
        }
    }
    found
}

#[track_caller]
pub(super) fn assert_same(found: &State, expected: &State, context: &str) {
    let only = |one: &State, other: &State| -> Vec<String> {
        let differs = one
            .iter()
            .filter(|(name, value)| other.get(*name) != Some(value));
        differs
            .map(|(name, value)| format!("{name} {value}"))
            .collect()
    };
    let (lost, new) = (only(expected, found), only(found, expected));
    assert!(
        lost.is_empty() && new.is_empty(),
        "{context}: without {lost:#?}, with {new:#?}"
    );
}

/// Looks at what is found after the end of a process, and migrates from there.
pub(super) fn check_and_go_on(system: &SimSystem, expected: &State, format: Format, context: &str) {
    let (refs, found) = state(system, format, context);
    assert_same(
        &found,
        expected,
        &format!("{context}: refs are in {}", refs.name()),
    );
    let next = system.process(4000);
    // Something that a dead process left is told of as a warning, which is no failure.
    let migrated = migrate(&next, refs, format);
    if let Err(error) = &migrated {
        let text = error.to_string();
        assert!(
            text.contains("migration that was interrupted"),
            "{context}: {text}"
        );
    }
    let (now, found) = state(system, format, context);
    assert_eq!(now, other(refs), "{context}");
    assert_same(&found, expected, &format!("{context}: after the next one"));
    assert_eq!(leftovers(system), Vec::<PathBuf>::new(), "{context}");
}

/// Writes loose refs with reflogs as a process does that has read the old configuration.
fn write_late(system: &SimSystem, names: &[&str], format: Format) {
    let oid = |number: u32| format!("{number:0digits$x}", digits = format.objects.hex_len());
    for name in names {
        for (path, content) in [
            (format!("{GIT_DIR}/{name}"), format!("{}\n", oid(9))),
            (
                format!("{GIT_DIR}/logs/{name}"),
                format!("{} {} A <a@b> 1 +0000\tlate\n", oid(0), oid(9)),
            ),
        ] {
            let dir = Path::new(&path).parent().expect("a directory");
            system.create_dir_all(dir).expect("a directory");
            write(system, &path, &content);
        }
    }
}

#[test]
fn refs_that_are_written_after_the_switch_are_carried_over() {
    for format in [Format::FILES_SHA1, Format::FILES_SHA256] {
        carry_over(&repository(format), format);
        let base = repository(format);
        base.lay_over();
        carry_over(&base, format);
    }
}

fn carry_over(base: &SimSystem, format: Format) {
    let (refs, before) = state(base, format, "the beginning");
    let whole = base.fork();
    whole.start_trace();
    migrate(&whole, refs, format).expect("no fault");
    let config = Path::new(GIT_DIR).join("config");
    let trace = whole.take_trace();
    let switch = trace
        .iter()
        .rposition(|op| op.name == "rename" && op.path == config)
        .expect("one step is the switch");
    let system = base.fork();
    system.set_fault(Some(Fault::dies_at(switch as u64 + 1)));
    let _ = migrate(&system, refs, format);
    system.end();
    // The order of their names is not the one in which directories are walked.
    let late = ["refs/tags/a/x", "refs/tags/a-b", "refs/tags/new"];
    write_late(&system.process(3500), &late, format);
    // Somebody has read the new configuration, and makes one of them as well.
    let both = ["refs/heads/main", "refs/tags/both"];
    write_late(&system.process(3500), &both[1..], format);
    let [main, _] = stores(&system.process(3600), other(refs), format);
    let mut transaction = main.transaction();
    for text in both {
        let name = RefNameBuf::new(text).expect("a good name");
        let digits = format.objects.hex_len();
        let oid = ObjectId::from_hex("8".repeat(digits).as_bytes()).expect("an id");
        let edit = Edit::update(&name, oid).create_log().message(b"meanwhile");
        transaction.add(edit).expect("a good edit");
    }
    let _ = transaction.commit().expect("no fault");
    let told = migrate(&system.process(4000), other(refs), format)
        .map_err(|error| error.to_string())
        .expect_err("what was interrupted is told");
    assert!(told.contains("was finished"), "{told}");
    assert!(
        told.contains("'refs/tags/both' was written in both"),
        "{told}"
    );
    let (now, mut after) = state(&system, format, "afterwards");
    assert_eq!(now, refs, "the next migration went back");
    for name in late {
        for view in ["main", "linked"] {
            assert!(after.remove(&format!("{view} {name}")).is_some(), "{name}");
            let log = after.remove(&format!("{view} log {name}"));
            assert!(log.is_some_and(|log| log.contains("late")), "{name}");
        }
    }
    for name in both {
        for view in ["main", "linked"] {
            let value = after.remove(&format!("{view} {name}"));
            assert!(value.is_some_and(|value| value.contains("888")), "{name}");
            let log = after.remove(&format!("{view} log {name}"));
            assert!(log.is_some_and(|log| log.contains("meanwhile") && !log.contains("late")));
        }
    }
    // HEAD's own reflog has what happened to its branch.
    after.remove("main log HEAD");
    let mut before = before.clone();
    for view in ["main", "linked"] {
        for item in [
            format!("{view} {}", both[0]),
            format!("{view} log {}", both[0]),
        ] {
            before.remove(&item);
        }
    }
    before.remove("main log HEAD");
    assert_same(&after, &before, "what was there before");
    assert_eq!(leftovers(&system), Vec::<PathBuf>::new());
}

/// What a process does that has read the old configuration, in the moment between the end of the old
/// stack's lock and that of its directory: where directories cannot be renamed there is one.
#[test]
fn tables_that_are_written_after_the_switch_are_carried_over() {
    for format in [Format::REFTABLE_SHA1, Format::REFTABLE_SHA256] {
        let base = repository(format);
        base.lay_over();
        let (refs, before) = state(&base, format, "the beginning");
        let whole = base.fork();
        whole.start_trace();
        migrate(&whole, refs, format).expect("no fault");
        let lock = Path::new(GIT_DIR).join("refdb-migration/old/reftable/tables.list.lock");
        let trace = whole.take_trace();
        let moved = trace
            .iter()
            .rposition(|op| op.name == "rename" && op.path == lock)
            .expect("the lock is moved");
        let system = base.fork();
        system.set_fault(Some(Fault::dies_at(moved as u64 + 1)));
        let _ = migrate(&system, refs, format);
        system.end();
        let late = system.process(3500);
        let stack = Path::new(GIT_DIR).join("reftable");
        assert_eq!(late.read_dir(&stack).expect("it is still there"), []);
        // A stack of one who found none.
        let other_dir = Path::new("/other/.git/reftable");
        late.create_dir_all(other_dir).expect("a directory");
        let store = open(&late, Layout::main("/other/.git"), refs, format);
        let mut transaction = store.transaction();
        let digits = format.objects.hex_len();
        let oid = ObjectId::from_hex("8".repeat(digits).as_bytes()).expect("an id");
        let names = ["refs/heads/late", "refs/heads/main"]
            .map(|text| RefNameBuf::new(text).expect("a name"));
        for name in &names {
            let edit = Edit::update(name, oid).create_log().message(b"late");
            transaction.add(edit).expect("a good edit");
        }
        let _ = transaction.commit().expect("no fault");
        for entry in late.read_dir(other_dir).expect("a directory") {
            let name = String::from_utf8(entry.name).expect("text");
            late.rename(&other_dir.join(&name), &stack.join(&name))
                .expect("room");
        }
        let told = migrate(&system.process(4000), other(refs), format)
            .map_err(|error| error.to_string())
            .expect_err("what was interrupted is told");
        assert!(told.contains("was finished"), "{told}");
        assert!(
            told.contains("'refs/heads/main' was written in both"),
            "{told}"
        );
        let (now, mut after) = state(&system, format, "afterwards");
        assert_eq!(now, refs, "the next migration went back");
        for view in ["main", "linked"] {
            assert!(after.remove(&format!("{view} refs/heads/late")).is_some());
            let log = after.remove(&format!("{view} log refs/heads/late"));
            assert!(log.is_some_and(|log| log.contains("late")));
        }
        assert_same(&after, &before, "what was there before");
        assert_eq!(leftovers(&system), Vec::<PathBuf>::new());
    }
}

/// Returns every change that something makes in a copy, and at which a process can die: its number, and what it is.
pub(super) fn changes(base: &SimSystem, act: impl FnOnce(&SimSystem)) -> Vec<(u64, String)> {
    let whole = base.fork();
    whole.start_trace();
    act(&whole);
    let trace = whole.take_trace().into_iter().enumerate();
    let changes = trace.filter(|(_, op)| op.changes);
    let told = changes.map(|(at, op)| {
        let what = format!("{at}: {} {}", op.name, op.path.display());
        (at as u64, what)
    });
    told.collect()
}

/// As [`die_everywhere`], and what was left is found in the lower layer of an overlay.
fn die_everywhere_below(base: &SimSystem, format: Format) {
    let (refs, expected) = state(base, format, "the beginning");
    for (at, op) in changes(base, |whole| {
        migrate(whole, refs, format).expect("no fault")
    }) {
        let context = format!("dies below at {op}");
        let system = base.fork();
        system.set_fault(Some(Fault::dies_at(at)));
        let _ = migrate(&system, refs, format);
        system.end();
        system.lay_over();
        check_and_go_on(&system, &expected, format, &context);
    }
}

fn die_everywhere(base: &SimSystem, format: Format) {
    let (refs, expected) = state(base, format, "the beginning");
    let whole = base.fork();
    migrate(&whole, refs, format).expect("no fault");
    check_and_go_on(&whole, &expected, format, "without a fault");
    for (at, op) in changes(base, |whole| {
        migrate(whole, refs, format).expect("no fault")
    }) {
        let context = format!("dies at {op}");
        let system = base.fork();
        system.set_fault(Some(Fault::dies_at(at)));
        let _ = migrate(&system, refs, format);
        system.end();
        check_and_go_on(&system, &expected, format, &context);
    }
}

fn lose_power_everywhere(base: &SimSystem, format: Format) {
    let (refs, expected) = state(base, format, "the beginning");
    for (at, op) in changes(base, |whole| {
        migrate(whole, refs, format).expect("no fault")
    }) {
        let with = |names| Crash {
            names,
            content: Content::Durable,
            seed: 1,
        };
        for crash in [with(Names::Durable), with(Names::All), Crash::seeded(at)] {
            let context = format!("{crash:?} at {op}");
            let system = base.fork();
            system.set_fault(Some(Fault::dies_at(at)));
            let _ = migrate(&system, refs, format);
            let after = system.crash(crash);
            let (_, found) = state(&after, format, &context);
            assert_same(&found, &expected, &context);
        }
    }
}

fn fail_everywhere(base: &SimSystem, format: Format) {
    let (refs, expected) = state(base, format, "the beginning");
    let whole = base.fork();
    migrate(&whole, refs, format).expect("no fault");
    for at in 0..whole.op_count() {
        let context = format!("fails at {at}");
        let system = base.fork();
        system.set_fault(Some(Fault::once(at, Io::StorageFull)));
        let _ = migrate(&system, refs, format);
        check_and_go_on(&system, &expected, format, &context);
    }
}

for_every_format! {
    fn a_process_that_dies_leaves_one_whole_repository(format) {
        die_everywhere(&repository(format), format);
    }

    fn a_loss_of_power_leaves_one_whole_repository(format) {
        lose_power_everywhere(&repository(format), format);
    }

    fn a_failure_leaves_one_whole_repository(format) {
        fail_everywhere(&repository(format), format);
    }

    fn a_process_that_dies_over_a_lower_layer_leaves_one_whole_repository(format) {
        let base = repository(format);
        base.lay_over();
        die_everywhere(&base, format);
    }

    fn a_loss_of_power_over_a_lower_layer_leaves_one_whole_repository(format) {
        let base = repository(format);
        base.lay_over();
        lose_power_everywhere(&base, format);
    }

    fn a_failure_over_a_lower_layer_leaves_one_whole_repository(format) {
        let base = repository(format);
        base.lay_over();
        fail_everywhere(&base, format);
    }

    fn what_died_in_a_lower_layer_is_cleared_up(format) {
        die_everywhere_below(&repository(format), format);
    }
}

#[test]
fn refs_elsewhere_stay_whole_whatever_happens() {
    for format in [Format::FILES_SHA1, Format::REFTABLE_SHA1] {
        let base = repository_elsewhere(format);
        die_everywhere(&base, format);
        lose_power_everywhere(&base, format);
    }
}
