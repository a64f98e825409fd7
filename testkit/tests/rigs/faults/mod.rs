//! Both backends on a disk that fails, in a process that dies, and on a machine that loses power,
//! at every single operation of every workload.
//!
//! 1. A failure leaves the old state, or says that a part was committed; a success is the new one.
//! 2. What was acknowledged as durable is there after a power failure.
//! 3. Every table that a list names is whole, always.
//! 4. What comes later works and needs no hand: locks of a process that died are taken over, and
//!    what it began is finished or leaves no trace, before anybody reads a half of it.
//!
//! `planted` shows that these tests find what they are for; `journal` what Git may do between the
//! death of a process and the next one; `repair` disturbs a repair in the same way.

// Long: the rig, and the list of workloads that all of it runs.

mod clocks;
mod drawn;
mod journal;
mod planted;
mod repair;
mod widely;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::io::ErrorKind as Io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use refdb::layout::Layout;
use refdb::objects::NoObjects;
use refdb::store::Optimize;
use refdb::system::{FileKind, System};
use refdb::{
    Edit, LogEntry, LogOrder, LogRewrite, ObjectFormat, ObjectId, Options, RefFormat, RefName,
    RefNameBuf, Result, Store, Target,
};
use refdb_simulation::{Content, Crash, Failure, Fault, Names, SimSystem};
use refdb_testkit::trust::Tally;
use refdb_testkit::{Format, for_every_format, ours};

const GIT_DIR: &str = "/repo/.git";
const LINKED_DIR: &str = "/repo/.git/worktrees/w";

/// Whether all of a write is done, its durability included.
type Acknowledged = bool;

/// How much a workload does at once.
#[derive(Clone, Copy, PartialEq)]
enum Scope {
    /// One value: in `files` its reflog may be ahead of it when something failed.
    OneRef,
    /// One reflog: all or nothing, as it is rewritten whole.
    OneLog,
    /// One transaction: all or nothing.
    Several,
    /// Several transactions, one after the other.
    Steps,
}

type Run = dyn Fn(&Process) -> Result<Acknowledged>;

/// One thing that a process does.
struct Workload {
    name: String,
    scope: Scope,
    run: Box<Run>,
}

impl Workload {
    fn new(
        name: impl Into<String>,
        scope: Scope,
        run: impl Fn(&Process) -> Result<Acknowledged> + 'static,
    ) -> Workload {
        Workload {
            name: name.into(),
            scope,
            run: Box::new(run),
        }
    }
}

/// One process that works on the repository.
struct Process {
    format: Format,
    main: Store,
    linked: Store,
}

/// What a reader in either worktree sees.
#[derive(Clone, Debug, Default, PartialEq)]
struct State {
    refs: BTreeMap<String, Target>,
    logs: BTreeMap<String, Option<Vec<LogEntry>>>,
}

impl Process {
    fn new(system: impl System + 'static, format: Format) -> Process {
        Process::with(Arc::new(system), format, |_| {})
    }

    fn with(system: Arc<dyn System>, format: Format, adjust: fn(&mut Options)) -> Process {
        let open = |layout| {
            let mut options = ours::simulated(format.objects);
            // Room for values so long that a few of them make a large table.
            options.reftable.block_size = 64 << 10;
            // What takes the locks of refs in one object format takes those of directories in the
            // other one.
            if format.objects == ObjectFormat::Sha256 {
                options.directory_lock_min = 2;
            }
            adjust(&mut options);
            let system = Arc::clone(&system);
            Store::open(system, layout, format.ours(), Arc::new(NoObjects), options)
                .expect("a store")
        };
        let main = open(Layout::main(GIT_DIR));
        let linked = open(Layout::linked(LINKED_DIR, GIT_DIR));
        Process {
            format,
            main,
            linked,
        }
    }

    fn update(&self, text: &str, number: u32) -> Edit<'static> {
        let oid = numbered(self.format, number);
        Edit::update(RefName::from(&name(text)), oid).into_owned()
    }
}

/// Returns the object id that is a number.
fn numbered(format: Format, number: u32) -> ObjectId {
    let digits = format.objects.hex_len();
    ObjectId::from_hex(format!("{number:0digits$x}").as_bytes()).expect("an object id")
}

fn is_reftable(format: Format) -> bool {
    format.ours() == RefFormat::Reftable
}

fn name(text: &str) -> RefNameBuf {
    RefNameBuf::new(text).expect("a good name")
}

fn delete(text: &str) -> Edit<'static> {
    Edit::delete(RefName::from(&name(text))).into_owned()
}

fn symbolic(text: &str, target: &str) -> Edit<'static> {
    let (text, target) = (name(text), name(target));
    Edit::symbolic(&text, &target).no_deref().into_owned()
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

fn optimize(process: &Process) -> Result<Acknowledged> {
    process.main.optimize(&Optimize::default()).map(|()| true)
}

/// Rewrites a reflog without its oldest entry.
fn rewrite_log(store: &Store, text: &str, how: LogRewrite) -> Result<Acknowledged> {
    let mut is_oldest = true;
    let outcome = store.rewrite_log(name(text).as_name(), how, |_| {
        Ok(!std::mem::replace(&mut is_oldest, false))
    })?;
    Ok(outcome.expect("a reflog").afterwards.is_empty())
}

/// Renames a ref; done before, it is done.
fn rename(process: &Process, from: &str, to: &str) -> Result<Acknowledged> {
    let (from, to) = (name(from), name(to));
    if process
        .main
        .read(from.as_name())
        .is_ok_and(|found| found.is_none())
    {
        return Ok(process.main.read(to.as_name())?.is_some());
    }
    let outcome = process
        .main
        .rename(from.as_name(), to.as_name(), b"rename")?;
    Ok(outcome.afterwards.is_empty())
}

/// Makes an empty repository with a linked worktree.
fn empty(format: Format) -> SimSystem {
    let system = SimSystem::new(7);
    let dirs: &[&str] = if is_reftable(format) {
        &["reftable", "worktrees/w/reftable"]
    } else {
        &["refs/heads", "refs/tags", "worktrees/w/refs"]
    };
    for dir in dirs {
        let dir = Path::new(GIT_DIR).join(dir);
        system.create_dir_all(&dir).expect("a new directory");
        if is_reftable(format) {
            // Without it, the stack of a repository with a worktree has lost everything.
            let list = system.create_new(&dir.join("tables.list"), 0o666);
            list.and_then(|mut list| list.write_all(b"\n"))
                .expect("room");
        }
    }
    system
}

/// Makes a durable repository: in `files` with loose refs, packed refs, and one that is both; in
/// `reftable` with tables so many that the next commit compacts them.
fn repository(format: Format) -> SimSystem {
    let system = empty(format);
    let process = Process::with(Arc::new(system.clone()), format, |options| {
        options.reftable.auto_compaction = false;
    });
    let main = |edits| commit(&process.main, edits).expect("no fault");
    main(vec![symbolic("HEAD", "refs/heads/main")]);
    let packed = [
        "refs/heads/both",
        "refs/heads/deep/er/packed",
        "refs/pull/1/head",
        "refs/pull/2/head",
        "refs/tags/v1",
    ];
    main(packed.map(|text| process.update(text, 1)).to_vec());
    optimize(&process).expect("no fault");
    let loose = ["refs/heads/both", "refs/heads/dir/loose", "refs/heads/main"];
    main(loose.map(|text| process.update(text, 2)).to_vec());
    main(vec![process.update("refs/heads/side", 3)]);
    main(vec![process.update("refs/heads/side", 4)]);
    let linked = |edits| commit(&process.linked, edits).expect("no fault");
    linked(vec![symbolic("HEAD", "refs/heads/side")]);
    linked(vec![process.update("refs/bisect/bad", 3)]);
    linked(vec![process.update("HEAD", 5)]);
    system.sync_all();
    // Long ago, as far as the times of files can tell.
    system.sleep(Duration::from_secs(10));
    system
}

/// Moves what may be a link elsewhere: each is found in another way, and none beside the others.
fn linked_away(base: &SimSystem) -> SimSystem {
    let system = base.fork();
    for dir in ["/disk/of/refs", "/disk/logs", "/repo/.git/x"] {
        system
            .create_dir_all(Path::new(dir))
            .expect("a new directory");
    }
    for (name, to, text) in [
        ("refs", "/disk/of/refs/refs", "/disk/of/refs/refs"),
        ("logs", "/disk/logs/logs", "x/../../../disk/logs/logs"),
        ("packed-refs", "/disk/packed-refs", "../../disk/packed-refs"),
    ] {
        let from = Path::new(GIT_DIR).join(name);
        system.rename(&from, Path::new(to)).expect("it is there");
        system
            .symlink(Path::new(text), &from)
            .expect("its place is free");
    }
    system.sync_all();
    system
}

/// Makes a repository whose tables are too large to be merged under the lock of a commit.
fn large_repository(format: Format) -> SimSystem {
    let system = empty(format);
    let process = Process::with(Arc::new(system.clone()), format, |options| {
        options.reftable.auto_compaction = false;
    });
    let commit = |edits| commit(&process.main, edits).expect("no fault");
    commit(vec![symbolic("HEAD", "refs/heads/main")]);
    for half in 0..2 {
        let long = |number| {
            let target = format!("refs/heads/{number}{}", "x".repeat(50_000));
            symbolic(&format!("refs/long/{number}"), &target)
        };
        commit((half * 3..half * 3 + 3).map(long).collect());
    }
    system.sync_all();
    system
}

#[expect(clippy::too_many_lines, reason = "a list of workloads")]
fn workloads() -> Vec<Workload> {
    use Scope::{OneLog, OneRef, Several, Steps};
    vec![
        Workload::new("create in new directories", OneRef, |process| {
            commit(
                &process.main,
                vec![process.update("refs/heads/new/er/one", 5)],
            )
        }),
        Workload::new("update the branch of HEAD", OneRef, |process| {
            commit(&process.main, vec![process.update("HEAD", 5)])
        }),
        Workload::new("update a packed ref", OneRef, |process| {
            commit(&process.main, vec![process.update("refs/tags/v1", 5)])
        }),
        Workload::new("delete a loose ref", OneRef, |process| {
            commit(&process.main, vec![delete("refs/heads/dir/loose")])
        }),
        Workload::new("delete a packed ref", OneRef, |process| {
            commit(&process.main, vec![delete("refs/heads/deep/er/packed")])
        }),
        Workload::new("delete a ref that is loose and packed", OneRef, |process| {
            commit(&process.main, vec![delete("refs/heads/both")])
        }),
        Workload::new("repoint HEAD", OneRef, |process| {
            commit(&process.main, vec![symbolic("HEAD", "refs/heads/both")])
        }),
        Workload::new("several at once", Several, |process| {
            let edits = vec![
                process.update("refs/heads/main", 6),
                delete("refs/heads/both"),
                process.update("refs/heads/new", 6),
                delete("refs/heads/deep/er/packed"),
                symbolic("refs/remotes/o/HEAD", "refs/remotes/o/main"),
            ];
            commit(&process.main, edits)
        }),
        Workload::new(
            "a ref that is not packed goes among others",
            Several,
            |process| {
                let edits = vec![
                    process.update("refs/heads/main", 6),
                    delete("refs/heads/dir/loose"),
                    process.update("refs/heads/new", 6),
                ];
                commit(&process.main, edits)
            },
        ),
        Workload::new("a large batch", Several, |process| {
            let numbers = 0..70;
            let update = |number| process.update(&format!("refs/remotes/o/{number}"), 6);
            let mut edits: Vec<_> = numbers.map(update).collect();
            edits.push(process.update("refs/heads/dir/loose", 6));
            edits.push(process.update("refs/heads/both", 6));
            commit(&process.main, edits)
        }),
        Workload::new("new directories, and an old one", Several, |process| {
            let pull = ["1/head", "1/merge", "2/head"].map(|text| format!("refs/pull/{text}"));
            let topic = ["a", "b"].map(|text| format!("refs/heads/topic/{text}"));
            let update = |text: &String| process.update(text, 6);
            let mut edits: Vec<_> = pull.iter().chain(&topic).map(update).collect();
            edits.push(process.update("refs/heads/dir/new", 6));
            edits.push(delete("refs/tags/v1"));
            commit(&process.main, edits)
        }),
        Workload::new("packed refs without directories", Several, |process| {
            let edits = vec![
                process.update("refs/pull/1/head", 6),
                delete("refs/pull/2/head"),
                process.update("refs/pull/3/head", 6),
            ];
            commit(&process.linked, edits)
        }),
        Workload::new("delete nearly all", Several, |process| {
            let names = ["both", "deep/er/packed", "dir/loose", "main", "side"];
            let edits = names.map(|text| delete(&format!("refs/heads/{text}")));
            commit(&process.main, edits.to_vec())
        }),
        Workload::new(
            "HEAD of a linked worktree and its branch",
            OneRef,
            |process| commit(&process.linked, vec![process.update("HEAD", 7)]),
        ),
        Workload::new("refs of both worktrees", Several, |process| {
            let edits = vec![
                process.update("refs/heads/topic", 7),
                symbolic("HEAD", "refs/heads/both"),
                delete("refs/bisect/bad"),
                process.update("main-worktree/refs/bisect/good", 7),
            ];
            commit(&process.linked, edits)
        }),
        Workload::new("one after the other", Steps, |process| {
            let first = commit(&process.main, vec![process.update("refs/heads/a", 5)])?;
            let second = commit(&process.linked, vec![process.update("refs/heads/b", 5)])?;
            let third = commit(&process.main, vec![delete("refs/heads/side")])?;
            Ok(first && second && third)
        }),
        Workload::new("optimize", OneRef, optimize),
        Workload::new("rewrite a reflog", OneLog, |process| {
            rewrite_log(&process.main, "refs/heads/side", LogRewrite::default())
        }),
        Workload::new("rewrite a reflog of a linked worktree", OneLog, |process| {
            rewrite_log(&process.linked, "HEAD", LogRewrite::default())
        }),
        Workload::new("rewrite a reflog and set its ref", OneRef, |process| {
            let how = LogRewrite {
                join: true,
                update_ref: true,
                ..LogRewrite::default()
            };
            rewrite_log(&process.main, "refs/heads/side", how)
        }),
        Workload::new("replace a reflog", OneLog, |process| {
            let side = name("refs/heads/side");
            let entries = process.main.log(side.as_name(), LogOrder::OldestFirst)?;
            let entries = entries.expect("a reflog");
            let left = entries.get(1..).unwrap_or_default();
            let outcome = process.main.replace_log(side.as_name(), left)?;
            Ok(outcome.afterwards.is_empty())
        }),
        Workload::new("remove a reflog", OneLog, |process| {
            let side = name("refs/heads/side");
            let outcome = process.main.delete_logs([side.as_name()])?;
            Ok(outcome.afterwards.is_empty())
        }),
        Workload::new("make an empty reflog", OneRef, |process| {
            let outcome = process.main.create_log(name("refs/x/new").as_name())?;
            Ok(outcome.afterwards.is_empty())
        }),
        Workload::new("rename a loose ref", Several, |process| {
            rename(process, "refs/heads/side", "refs/heads/new/name")
        }),
        Workload::new("rename a packed ref", Several, |process| {
            rename(process, "refs/heads/deep/er/packed", "refs/heads/new")
        }),
        Workload::new(
            "rename a ref that is loose and packed",
            Several,
            |process| rename(process, "refs/heads/both", "refs/heads/new"),
        ),
        Workload::new("rename a ref to one below it", Several, |process| {
            rename(process, "refs/heads/side", "refs/heads/side/below")
        }),
        Workload::new("rename a ref to one above it", Several, |process| {
            rename(process, "refs/heads/dir/loose", "refs/heads/dir")
        }),
        Workload::new("copy a ref", OneRef, |process| {
            let (from, to) = (name("refs/heads/side"), name("refs/heads/new"));
            let outcome = process.main.copy(from.as_name(), to.as_name(), b"copy")?;
            Ok(outcome.afterwards.is_empty())
        }),
    ]
}

/// Returns every workload with the repository that it works on.
fn cases(format: Format) -> Vec<(SimSystem, Workload)> {
    let base = repository(format);
    let mut cases: Vec<_> = workloads()
        .into_iter()
        .map(|workload| (base.fork(), workload))
        .collect();
    let create_first = Workload::new("the first ref", Scope::OneRef, |process| {
        commit(&process.main, vec![process.update("refs/heads/first", 5)])
    });
    let new = empty(format);
    new.sync_all();
    cases.push((new, create_first));
    if !is_reftable(format) {
        let linked = linked_away(&base);
        let several = |work: &Workload| work.scope == Scope::Several;
        let works = workloads().into_iter().filter(several);
        cases.extend(works.map(|mut work| {
            work.name.push_str(", where links lead");
            (linked.fork(), work)
        }));
    }
    if is_reftable(format) {
        let update = Workload::new("compact what is large", Scope::OneRef, |process| {
            commit(&process.main, vec![process.update("refs/heads/main", 5)])
        });
        cases.push((large_repository(format), update));
        let clear = Workload::new("delete everything", Scope::Several, |process| {
            commit(&process.main, vec![delete("refs/heads/first")])
        });
        let last = empty(format);
        let process = Process::new(last.clone(), format);
        commit(&process.main, vec![process.update("refs/heads/first", 5)]).expect("no fault");
        last.sync_all();
        cases.push((last, clear));
    }
    cases
}

/// Returns writes of one step to refs that were packed a moment ago. That their loose files are gone
/// is not yet durable; coming back, they must not shadow what was written since.
fn after_packing(format: Format) -> Vec<Case> {
    // Without reflogs, which would be a second step.
    let dirs = ["tags", "tags/emptied", "x"];
    let names: Vec<String> = (0..70)
        .map(|number| format!("refs/{}/{number}", dirs[number % dirs.len()]))
        .collect();
    let base = empty(format);
    let process = Process::new(base.clone(), format);
    // One by one, so that they are loose.
    for name in &names {
        commit(&process.main, vec![process.update(name, 1)]).expect("no fault");
    }
    base.sync_all();
    optimize(&process).expect("no fault");
    let updated = names.clone();
    let delete_one = Workload::new("delete a ref packed just now", Scope::OneRef, |process| {
        commit(&process.main, vec![delete("refs/tags/0")])
    });
    let delete_all = Workload::new("delete what is packed", Scope::Several, move |process| {
        let edits = names.iter().map(|name| delete(name)).collect();
        commit(&process.main, edits)
    });
    let update_all = Workload::new("update what is packed", Scope::Several, move |process| {
        let edits = updated.iter().map(|name| process.update(name, 2));
        commit(&process.main, edits.collect())
    });
    [delete_one, delete_all, update_all]
        .map(|work| Case::new(base.fork(), format, work))
        .into()
}

/// Returns all refs and reflogs, read by a process of its own; fails on damage and broken refs.
fn state(system: &SimSystem, format: Format) -> State {
    assert_tables_are_whole(system);
    let process = Process::new(system.process(2000), format);
    let mut state = State::default();
    for (view, store) in [("main", &process.main), ("linked", &process.linked)] {
        let mut refs = store.refs().expect("readable refs");
        while let Some(record) = refs.next().expect("readable refs") {
            assert!(!record.broken && !record.has_bad_name(), "{record:?}");
            let found = store.read(record.name).expect("readable").expect("there");
            assert_eq!(found.target, record.target.to_owned(), "{}", record.name);
            state
                .refs
                .insert(format!("{view} {}", record.name), found.target);
        }
        for name in store.log_names().expect("readable reflogs") {
            let log = store.log(name.as_name(), LogOrder::OldestFirst);
            let entries = log.expect("a readable reflog");
            state.logs.insert(format!("{view} {name}"), entries);
        }
    }
    state
}

fn stacks() -> [PathBuf; 2] {
    [GIT_DIR, LINKED_DIR].map(|dir| Path::new(dir).join("reftable"))
}

fn listed(system: &SimSystem, stack: &Path) -> Vec<String> {
    let list = system.read(&stack.join("tables.list")).unwrap_or_default();
    let list = String::from_utf8(list).expect("text");
    let lines = list.lines().filter(|line| !line.is_empty());
    lines.map(str::to_owned).collect()
}

fn assert_tables_are_whole(system: &SimSystem) {
    for stack in stacks() {
        for table in listed(system, &stack) {
            let content = system
                .read(&stack.join(&table))
                .expect("a listed table exists");
            let table = reftable::Table::open(content).expect("a whole table");
            assert_eq!(reftable::check(&table).len(), 0);
        }
    }
}

/// Returns the lock files, and the files that belong to nothing: those that have a temporary name,
/// and tables that no list names.
fn leftovers(system: &SimSystem) -> (Vec<String>, Vec<String>) {
    let elsewhere = system.lstat(Path::new("/disk")).map(|_| "/disk".to_owned());
    let mut dirs = vec![GIT_DIR.to_owned()];
    dirs.extend(elsewhere);
    let (mut locks, mut orphans) = (Vec::new(), Vec::new());
    while let Some(dir) = dirs.pop() {
        let named = listed(system, Path::new(&dir));
        for entry in system.read_dir(Path::new(&dir)).expect("a directory") {
            let name = String::from_utf8(entry.name).expect("text");
            let path = format!("{dir}/{name}");
            if entry.kind == FileKind::Directory {
                dirs.push(path);
            } else if name.ends_with(".lock") {
                locks.push(path);
            } else if name.ends_with(".new")
                || name.starts_with('.')
                || name.contains(".temp.")
                || name.ends_with(".ref") && !named.contains(&name)
            {
                orphans.push(path);
            }
        }
    }
    (locks, orphans)
}

/// Asserts that everything has its old value or its new one: all the same if `at_once`.
#[track_caller]
fn assert_between(found: &State, old: &State, new: &State, at_once: bool, context: &str) {
    if at_once && found != old && found != new {
        panic!(
            "{context}: a half of it: not old are {:?} {:?}; not new are {:?} {:?}",
            differs(&old.refs, &found.refs),
            differs(&old.logs, &found.logs),
            differs(&new.refs, &found.refs),
            differs(&new.logs, &found.logs),
        );
    }
    assert_each_between(&found.refs, &old.refs, &new.refs, context);
    assert_each_between(&found.logs, &old.logs, &new.logs, context);
}

/// Names what is not the same.
fn differs<V: PartialEq>(
    side: &BTreeMap<String, V>,
    found: &BTreeMap<String, V>,
) -> BTreeSet<String> {
    let names = side.keys().chain(found.keys()).cloned();
    names
        .filter(|name| side.get(name) != found.get(name))
        .collect()
}

#[track_caller]
fn assert_each_between<V: PartialEq + Debug>(
    found: &BTreeMap<String, V>,
    old: &BTreeMap<String, V>,
    new: &BTreeMap<String, V>,
    context: &str,
) {
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).chain(found.keys()).collect();
    for text in names {
        let (value, old, new) = (found.get(text), old.get(text), new.get(text));
        assert!(
            value == old || value == new,
            "{context}: {text} is {value:?}, was {old:?}, should become {new:?}"
        );
    }
}

/// Makes a system of the simulated one.
type Wrap = fn(SimSystem) -> Box<dyn System>;

/// A workload with what it comes to when nothing fails.
struct Case {
    base: SimSystem,
    format: Format,
    workload: Workload,
    old: State,
    new: State,
    ops: u64,
}

impl Case {
    fn all(format: Format) -> Vec<Case> {
        let cases = cases(format).into_iter();
        cases
            .map(|(base, work)| Case::new(base, format, work))
            .collect()
    }

    fn new(base: SimSystem, format: Format, workload: Workload) -> Case {
        let mut case = Case {
            old: state(&base, format),
            new: State::default(),
            ops: 0,
            base,
            format,
            workload,
        };
        let system = case.base.fork();
        case.run(&system).expect("no fault");
        case.ops = system.op_count();
        assert_eq!(
            leftovers(&system),
            (vec![], vec![]),
            "{}",
            case.workload.name
        );
        case.new = state(&system, format);
        case
    }

    fn run(&self, system: &SimSystem) -> Result<Acknowledged> {
        self.run_on(Box::new(system.clone()))
    }

    fn run_on(&self, system: Box<dyn System>) -> Result<Acknowledged> {
        (self.workload.run)(&Process::with(Arc::from(system), self.format, |_| {}))
    }

    /// Returns whether a reflog can be ahead of its ref after a failure.
    fn logs_lead(&self) -> bool {
        !is_reftable(self.format) && !matches!(self.workload.scope, Scope::Several | Scope::OneLog)
    }

    fn state(&self, system: &SimSystem) -> State {
        let mut state = state(system, self.format);
        if self.logs_lead() {
            state.logs.clear();
        }
        state
    }

    /// Returns the old state and the new one, as far as one can be told from the other when
    /// something failed.
    fn sides(&self) -> (State, State) {
        let (mut old, mut new) = (self.old.clone(), self.new.clone());
        if self.logs_lead() {
            old.logs.clear();
            new.logs.clear();
        }
        (old, new)
    }

    fn is_at_once(&self) -> bool {
        match self.workload.scope {
            Scope::OneRef | Scope::OneLog | Scope::Several => true,
            Scope::Steps => false,
        }
    }

    /// Returns before which operations to disturb the work, the end included: about `most`, or all
    /// if there are fewer. Which hash names the objects makes so little difference that few are
    /// enough for the second one.
    fn points(&self, most: u64) -> impl Iterator<Item = u64> + use<> {
        let is_first = self.format.objects == ObjectFormat::Sha1;
        let most = if is_first { most } else { 15 };
        let step = usize::try_from(1 + self.ops / most).expect("not many");
        (0..=self.ops).rev().step_by(step)
    }

    /// Asserts that the work can be done now, that more can follow, and that nothing is left over
    /// when the repository has been optimized.
    fn assert_works(&self, system: &SimSystem, context: &str) {
        let system = system.process(3000);
        if let Err(error) = self.run(&system) {
            panic!("{context}, again: {error}");
        }
        let found = state(&system, self.format);
        assert_eq!(found.refs, self.new.refs, "{context}, again");
        let process = Process::new(system.clone(), self.format);
        // A table that no list names is kept while its index is greater than that of the stack.
        for (store, text) in [
            (&process.main, "refs/later"),
            (&process.linked, "refs/bisect/later"),
        ] {
            for number in 1..=2 {
                let later = commit(store, vec![process.update(text, number)]);
                assert!(later.expect("no fault"), "{context}, later");
            }
            store.optimize(&Optimize::default()).expect("no fault");
        }
        let left = leftovers(&system);
        assert_eq!(left, (vec![], vec![]), "{context}, later");
        let mut found = state(&system, self.format);
        found.refs.retain(|name, _| !name.ends_with("/later"));
        assert_eq!(found.refs, self.new.refs, "{context}, later");
    }

    /// Lets the process die before an operation, with a system that `wrap` makes of the simulated
    /// one, and asserts that the next process finds everything old or everything new.
    fn die_at(&self, at: u64, wrap: Wrap) {
        let context = format!("{}, dead before operation {at}", self.workload.name);
        let (old, new) = self.sides();
        let system = self.base.fork();
        system.set_fault(Some(Fault::dies_at(at)));
        let done = self.run_on(wrap(system.clone()));
        system.end();
        let journal = Path::new(GIT_DIR).join("refdb.journal");
        let is_journalled = system.process(1400).lstat(&journal).is_ok();
        if done.is_ok() {
            assert_eq!(state(&system, self.format), self.new, "{context}");
        } else {
            let found = self.state(&system);
            assert_between(&found, &old, &new, self.is_at_once(), &context);
        }
        if is_journalled {
            // Whoever finishes a transaction gives its locks back: no Git would get past one.
            let left = leftovers(&system.process(1600));
            assert_eq!(left, (vec![], vec![]), "{context}");
        }
        self.assert_works(&system, &context);
    }

    /// Lets the process die, and the next one that reads the refs as well, at every operation.
    fn die_twice_at(&self, at: u64) {
        let (old, new) = self.sides();
        let dead = self.base.fork();
        dead.set_fault(Some(Fault::dies_at(at)));
        let _ = self.run(&dead);
        dead.end();
        for second in (0..).step_by(2) {
            let system = dead.fork();
            let reader = system.process(1500);
            reader.set_fault(Some(Fault::dies_at(second)));
            let process = Process::new(reader.clone(), self.format);
            let read = process.main.read(RefName::from(&name("refs/heads/main")));
            reader.end();
            let context = format!("{}, dead at {at} and {second}", self.workload.name);
            let found = self.state(&system);
            assert_between(&found, &old, &new, true, &context);
            if read.is_ok() {
                return;
            }
        }
    }

    /// Lets power fail before an operation, with a system that `wrap` makes of the simulated one,
    /// and asserts that everything is old or new, and new if that was acknowledged.
    fn lose_power_at(&self, at: u64, wrap: Wrap) {
        let worst = [Names::Durable, Names::Prefix, Names::Subset, Names::All]
            .map(|names| [Content::Durable, Content::Zeros].map(|content| (names, content)))
            .concat();
        let (old, new) = self.sides();
        let system = self.base.fork();
        system.set_fault(Some(Fault::dies_at(at)));
        let done = self.run_on(wrap(system.clone()));
        let acknowledged = done.as_ref().is_ok_and(|&acknowledged| acknowledged);
        let worst = worst.iter().map(|&(names, content)| Crash {
            names,
            content,
            seed: at,
        });
        for crash in worst.chain((0..4).map(Crash::seeded)) {
            let context = format!("{}, operation {at}, {crash:?}", self.workload.name);
            let after = system.crash(crash);
            if acknowledged {
                assert_eq!(state(&after, self.format), self.new, "{context}");
            } else {
                let found = self.state(&after);
                assert_between(&found, &old, &new, self.is_at_once(), &context);
            }
            // The least and the most that can be left over.
            let extreme = matches!(crash.names, Names::Durable | Names::All);
            if extreme && crash.content == Content::Durable {
                self.assert_works(&after, &context);
            }
        }
    }

    fn fail_at(&self, at: u64, kind: Io) {
        let system = self.base.fork();
        system.set_fault(Some(Fault::once(at, kind)));
        system.start_trace();
        let done = self.run(&system);
        system.set_fault(None);
        let trace = system.take_trace();
        let op = &trace[usize::try_from(at).expect("not many")];
        let context = format!("{}, operation {at}, {kind:?}, {op:?}", self.workload.name);
        match &done {
            Ok(is_durable) => {
                assert_eq!(state(&system, self.format), self.new, "{context}");
                // What a disk could not write once may be lost, though it says nothing of it the next time.
                assert!(!is_durable || !op.name.starts_with("sync"), "{context}");
            }
            Err(error) => {
                let (old, new) = self.sides();
                let found = self.state(&system);
                let tells = error.to_string().contains("committed in part");
                if self.is_at_once() || !tells && self.workload.scope != Scope::Steps {
                    assert_eq!(found, old, "{context}: {error}");
                } else {
                    assert_between(&found, &old, &new, false, &context);
                }
            }
        }
        let (locks, orphans) = leftovers(&system);
        assert_eq!(locks, [""; 0], "{context}");
        if !["remove_file", "sync_dir"].contains(&op.name) {
            assert_eq!(orphans, [""; 0], "{context}, {done:?}");
        }
        self.assert_works(&system, &context);
    }
}

for_every_format! {
    fn a_failing_operation_leaves_the_old_state_or_the_new_one(format) {
        let mut tally = Tally::begin("fault points", 0);
        for case in Case::all(format) {
            for at in case.points(u64::MAX).filter(|&at| at < case.ops) {
                for kind in [Io::Other, Io::PermissionDenied] {
                    case.fail_at(at, kind);
                    tally.add(1);
                }
            }
        }
    }

    fn short_writes_are_completed(format) {
        let mut tally = Tally::begin("fault points", 0);
        for case in Case::all(format) {
            for at in 0..case.ops {
                let system = case.base.fork();
                system.set_fault(Some(Fault {
                    at,
                    failure: Failure::Short(1),
                    persistent: false,
                }));
                case.run(&system).expect("a short write is no failure");
                let context = format!("{}, operation {at}", case.workload.name);
                assert_eq!(state(&system, format), case.new, "{context}");
                tally.add(1);
            }
        }
    }

    fn a_process_that_dies_leaves_the_old_state_or_the_new_one(format) {
        let mut tally = Tally::begin("deaths of the process", 0);
        for case in Case::all(format) {
            for at in case.points(u64::MAX) {
                case.die_at(at, |system| Box::new(system));
                tally.add(1);
            }
        }
    }

    fn a_power_failure_loses_nothing_that_was_acknowledged(format) {
        for case in Case::all(format).iter().chain(&after_packing(format)) {
            for at in case.points(60) {
                case.lose_power_at(at, |system| Box::new(system));
            }
        }
    }

    fn a_process_that_dies_while_it_recovers_changes_nothing(format) {
        for case in Case::all(format) {
            if case.workload.scope == Scope::Several {
                for at in case.points(6) {
                    case.die_twice_at(at);
                }
            }
        }
    }
}

#[test]
fn the_workloads_compact() {
    for format in [Format::REFTABLE_SHA1, Format::REFTABLE_SHA256] {
        for base in [repository(format), large_repository(format)] {
            let stack = Path::new(GIT_DIR).join("reftable");
            let before = listed(&base, &stack).len();
            let process = Process::new(base.clone(), format);
            commit(&process.main, vec![process.update("refs/heads/main", 5)]).expect("no fault");
            // Without a compaction there would be one more.
            assert!(listed(&base, &stack).len() <= before);
        }
        let weight = |table: &String| {
            let path = Path::new(GIT_DIR).join("reftable").join(table);
            large_repository(format)
                .read(&path)
                .map_or(0, |content| content.len())
        };
        let large = large_repository(format);
        let tables = listed(&large, &Path::new(GIT_DIR).join("reftable"));
        assert!(tables.iter().map(weight).sum::<usize>() > 256 * 1024);
    }
}
