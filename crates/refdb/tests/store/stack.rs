//! What becomes of a stack: compaction as Git chooses it, and at once when most of it is dead.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bstr::ByteSlice;
use refdb::{RefFormat, RefName};
use refdb_testkit::model::{Edit, Reason, Transaction};
use refdb_testkit::repo::Repo;
use refdb_testkit::{Format, ours};
use reftable::{MergedRefs, Table};

fn tables(git_dir: &Path) -> Vec<Arc<Table>> {
    let folder = git_dir.join("reftable");
    let list = fs::read_to_string(folder.join("tables.list")).expect("a list");
    list.lines()
        .map(|name| fs::read(folder.join(name)).expect("a listed table"))
        .map(|content| Arc::new(Table::open(content).expect("a whole table")))
        .collect()
}

/// Files in the stack's folder that are neither the list nor listed.
fn leftovers(git_dir: &Path) -> Vec<String> {
    let folder = git_dir.join("reftable");
    let list = fs::read_to_string(folder.join("tables.list")).expect("a list");
    let entries = fs::read_dir(folder).expect("a stack");
    let names = entries.map(|entry| entry.expect("an entry").file_name().into_string());
    names
        .map(|name| name.expect("an ASCII name"))
        .filter(|name| name != "tables.list" && !list.lines().any(|line| line == name))
        .collect()
}

/// Counts records: (live refs, all ref records, tombstones included).
fn records(tables: &[Arc<Table>]) -> (usize, usize) {
    let count = |mut refs: MergedRefs| {
        let mut count = 0;
        while refs.advance().expect("a whole table") {
            count += 1;
        }
        count
    };
    let all = tables
        .iter()
        .map(|table| count(MergedRefs::new(vec![Arc::clone(table)])))
        .sum();
    (count(MergedRefs::new(tables.to_vec()).live_only()), all)
}

#[test]
fn single_updates_leave_the_tables_that_git_leaves() {
    for format in [Format::REFTABLE_SHA1, Format::REFTABLE_SHA256] {
        let (repo, twin) = (Repo::init(format), Repo::init(format));
        for repo in [&repo, &twin] {
            // Reflogs are compressed to other lengths by another deflate.
            repo.config("core.logAllRefUpdates", "false");
        }
        let repository = ours::open(&repo.git_dir());
        assert_eq!(repository.store().format(), RefFormat::Reftable);
        let commits = &repo.objects().commits;
        for (at, commit) in commits.iter().enumerate().take(120) {
            // Larger ones in between, so that the sizes do not only grow by one.
            let count = if at % 9 == 4 { 40 } else { 1 };
            let edits = (0..count).map(|part| {
                Edit::update(format!("refs/heads/t{at:03}-{part:02}"), commit.as_str())
            });
            let transaction = Transaction::of(edits);
            assert_eq!(
                ours::apply(repository.store(), &transaction).expect("done"),
                []
            );
            twin.update_refs(transaction.script());
            let sizes = |repo: &Repo| -> Vec<(u64, u64)> {
                let tables = tables(&repo.git_dir());
                tables
                    .iter()
                    .map(|t| (t.min_update_index(), t.max_update_index()))
                    .collect()
            };
            assert_eq!(
                sizes(&repo),
                sizes(&twin),
                "{format}, after transaction {at}"
            );
        }
        assert_eq!(leftovers(&repo.git_dir()), Vec::<String>::new());
    }
}

/// As `cp -a` puts a backup back: the files that are there keep their inodes.
#[test]
fn a_backup_that_is_written_over_a_stack_is_read_by_whoever_has_it_open() {
    for format in [Format::REFTABLE_SHA1, Format::REFTABLE_SHA256] {
        let repo = Repo::init(format);
        let commit = repo.objects().commits[0].as_str();
        let create = |name: &str| repo.update_refs(format!("create {name} {commit}\n"));
        create("refs/heads/before");
        let folder = repo.git_dir().join("reftable");
        let files = fs::read_dir(&folder).expect("a stack").map(|entry| {
            let path = entry.expect("an entry").path();
            let content = fs::read(&path).expect("a file");
            (path, content)
        });
        let backup: Vec<_> = files.collect();
        create("refs/heads/lost");
        repo.git(["pack-refs", "--all"]).run().ok();
        let repository = ours::open(&repo.git_dir());
        let has = |name: &str| {
            let name = RefName::new(name).expect("a good name");
            repository.store().read(name).expect("it reads").is_some()
        };
        assert!(has("refs/heads/before") && has("refs/heads/lost"));
        for (path, content) in &backup {
            fs::write(path, content).expect("room");
        }
        assert!(
            has("refs/heads/before") && !has("refs/heads/lost"),
            "{format}"
        );
        let edits = [Edit::create("refs/heads/after", commit)];
        let applied = ours::apply(repository.store(), &Transaction::of(edits));
        assert_eq!(applied.expect("done"), []);
        let names = repo.refs().into_iter().map(|found| found.name.to_string());
        let names: Vec<String> = names
            .filter(|name| name.starts_with("refs/heads/"))
            .collect();
        assert_eq!(names, ["refs/heads/after", "refs/heads/before"]);
    }
}

#[test]
fn a_table_that_somebody_else_merges_is_left_alone() {
    for format in [Format::REFTABLE_SHA1, Format::REFTABLE_SHA256] {
        let repo = Repo::init(format);
        let repository = ours::open(&repo.git_dir());
        let commit = repo.objects().commits[0].as_str();
        let create = |name: &str| {
            let edits = [Edit::create(name, commit)];
            let applied = ours::apply(repository.store(), &Transaction::of(edits));
            assert_eq!(applied.expect("done"), []);
            tables(&repo.git_dir()).len()
        };
        let folder = repo.git_dir().join("reftable");
        let list = fs::read_to_string(folder.join("tables.list")).expect("a list");
        let bottom = list.lines().next().expect("a table");
        let claim = folder.join(format!("{bottom}.lock"));
        fs::write(&claim, "").expect("a claim");
        let claimed = create("refs/heads/one");
        assert_eq!(claimed, list.lines().count() + 1);
        assert!(folder.join(bottom).exists());

        fs::remove_file(&claim).expect("no claim");
        assert_eq!(create("refs/heads/two"), 1);
        assert_eq!(leftovers(&repo.git_dir()), Vec::<String>::new());
        assert_eq!(repo.refs().len(), 2);
    }
}

#[test]
fn a_commit_that_changes_nearly_all_refs_leaves_what_merging_leaves() {
    nearly_all_refs_change(900);
}

#[test]
fn a_commit_that_two_threads_share_leaves_what_merging_leaves() {
    nearly_all_refs_change(17_000);
}

fn nearly_all_refs_change(count: usize) {
    for format in [Format::REFTABLE_SHA1, Format::REFTABLE_SHA256] {
        let base = Repo::init(format);
        base.config("core.logAllRefUpdates", "false");
        let commits = &base.objects().commits;
        let name = |at: usize| format!("refs/heads/team-{}/topic-{at}", at % 7);
        let create = |at: usize| Edit::create(name(at), commits[0].as_str());
        let apply = |repo: &Repo, edits: Vec<Edit>| {
            let repository = ours::open(&repo.git_dir());
            let applied = ours::apply(repository.store(), &Transaction::of(edits));
            assert_eq!(applied.expect("done"), []);
        };
        apply(&base, (0..count).map(create).collect());
        // A small table below all others would be left alone.
        base.git(["pack-refs"]).run().ok();
        let update = |at: usize| Edit::update(name(at), commits[1].as_str());
        let delete = |at: usize| Edit::delete(name(at));
        let changes: [Vec<Edit>; 3] = [
            (0..count).map(update).collect(),
            (0..count + 100)
                .map(|at| match at {
                    _ if at >= count => create(at),
                    _ if at % 50 == 0 => delete(at),
                    _ => update(at),
                })
                .collect(),
            (3..count).map(delete).collect(),
        ];
        for (which, edits) in changes.into_iter().enumerate() {
            let (repo, apart) = (base.duplicate(), base.duplicate());
            // Somebody else is merging every table there: the new one stands alone.
            let folder = apart.git_dir().join("reftable");
            let list = fs::read_to_string(folder.join("tables.list")).expect("a list");
            for table in list.lines() {
                fs::write(folder.join(format!("{table}.lock")), "").expect("a claim");
            }
            apply(&repo, edits.clone());
            apply(&apart, edits);
            let apart = tables(&apart.git_dir());
            assert_eq!(apart.len(), list.lines().count() + 1, "{format}, {which}");
            let options = reftable::WriteOptions::new(apart[0].object_format());
            let merged = reftable::compact(&apart, true, &options, Vec::new()).expect("a merge");
            let list = fs::read_to_string(repo.git_dir().join("reftable/tables.list"));
            let list = list.expect("a list");
            assert_eq!(list.lines().count(), 1, "{format}, {which}");
            let whole = repo.git_dir().join("reftable").join(list.trim_end());
            let whole = fs::read(whole).expect("a table");
            assert!(whole == merged.sink, "{format}, {which}");
            assert_eq!(leftovers(&repo.git_dir()), Vec::<String>::new());
        }
    }
}

#[test]
fn a_ref_below_a_new_name_is_found_among_many_names() {
    for format in [Format::REFTABLE_SHA1, Format::REFTABLE_SHA256] {
        let repo = Repo::init(format);
        let commit = repo.objects().commits[0].as_str();
        let repository = ours::open(&repo.git_dir());
        let create = |name: &str| Edit::create(name, commit);
        // `a-b` and `a.b` stand between `a` and `a/b`.
        let old = ["refs/heads/a-b", "refs/heads/a.b", "refs/heads/a/b"];
        let applied = ours::apply(repository.store(), &Transaction::of(old.map(create)));
        assert_eq!(applied.expect("done"), []);
        // As many as are looked for in one walk over the stack.
        let many = (0..20).map(|at| format!("refs/heads/m{at:02}"));
        let names: Vec<String> = many.chain(["refs/heads/a".to_owned()]).collect();
        let mut edits = Transaction::of(names.iter().map(|name| create(name)));
        edits.batch = true;
        let applied = ours::apply(repository.store(), &edits).expect("a batch");
        assert_eq!(applied, [(20, Reason::NameConflict)], "{format}");
    }
}

#[test]
fn deleting_most_refs_cleans_up_after_itself() {
    for format in [Format::REFTABLE_SHA1, Format::REFTABLE_SHA256] {
        let repo = Repo::init(format);
        let repository = ours::open(&repo.git_dir());
        let commit = repo.objects().commits[0].as_str();
        let names: Vec<String> = (0..5000)
            .map(|at| format!("refs/heads/topic-{at:05}"))
            .collect();
        let create = Transaction::of(names.iter().map(|name| Edit::create(name.as_str(), commit)));
        assert_eq!(ours::apply(repository.store(), &create).expect("done"), []);
        let (live, _) = records(&tables(&repo.git_dir()));
        assert_eq!(live, 5001);

        // A third: the tombstones stay, as Git leaves them.
        let delete = |names: &[String]| {
            let edits = names.iter().map(|name| Edit::delete(name.as_str()));
            let deleted = ours::apply(repository.store(), &Transaction::of(edits));
            assert_eq!(deleted.expect("done"), []);
        };
        delete(&names[..1700]);
        let (live, all) = records(&tables(&repo.git_dir()));
        assert_eq!(live, 3301);
        assert!(all > live, "a third is not worth a merge of everything");

        // The rest: nothing is left but HEAD.
        delete(&names[1700..]);
        assert_eq!(records(&tables(&repo.git_dir())), (1, 1));
        assert_eq!(leftovers(&repo.git_dir()), Vec::<String>::new());
        assert_eq!(repo.refs().len(), 0, "Git sees the unborn branch");
        assert!(repo.reflogs().keys().all(|name| name == "HEAD"));
    }
}

/// Git leaves a tombstone for each ref that it deleted; what is left among them is not lost.
#[test]
fn refs_that_git_deleted_are_created_again_beside_those_that_it_left() {
    let topic = |at: usize| format!("refs/heads/topic-{at:05}");
    let beside = |places: &[&str]| places.iter().map(|at| format!("refs/{at}")).collect();
    let (many, one_place) = ((0..3000).step_by(50), 0..40);
    // Which are not created again, and what is left. Names are looked for in batches of 1024.
    let cases: [(Range<usize>, Vec<String>); 7] = [
        (0..0, vec![]),
        (0..0, [0, 1023, 1024, 2047, 2999].map(topic).into()),
        (
            0..0,
            beside(&[
                "aa",
                "heads/main",
                "heads/topic-01023x",
                "heads/topic-01500x",
            ]),
        ),
        (2900..3000, beside(&["heads/topic-01700x", "zz"])),
        (1500..1600, beside(&["heads/topic-01550x"])),
        (0..0, many.map(|at| topic(at) + "x").collect()),
        (
            0..0,
            one_place
                .map(|at| format!("{}x{at:02}", topic(1500)))
                .collect(),
        ),
    ];
    for format in [Format::REFTABLE_SHA1, Format::REFTABLE_SHA256] {
        for (at, (gap, left)) in cases.iter().enumerate() {
            let repo = Repo::init(format);
            let commits = &repo.objects().commits;
            let made: Vec<String> = (0..3000).map(topic).collect();
            let others = left.iter().filter(|name| !made.contains(name));
            let script = |verb: &str, names: &mut dyn Iterator<Item = &String>, value: &str| {
                names
                    .map(|name| format!("{verb} {name}{value}\n"))
                    .collect::<String>()
            };
            repo.config("core.logAllRefUpdates", "false");
            let all = &mut made.iter().chain(others);
            repo.update_refs(script("create", all, &format!(" {}", commits[0])));
            let gone = &mut made.iter().filter(|name| !left.contains(name));
            repo.update_refs(script("delete", gone, ""));
            let (live, records) = records(&tables(&repo.git_dir()));
            assert!(
                live == left.len() + 1 && records > 3000,
                "case {at}: Git has merged them"
            );

            let again = made[..gap.start].iter().chain(&made[gap.end..]);
            let edits = again.clone();
            let edits = edits.map(|name| Edit::update(name.as_str(), commits[1].as_str()));
            let repository = ours::open(&repo.git_dir());
            let applied = ours::apply(repository.store(), &Transaction::of(edits));
            assert_eq!(applied.expect("done"), []);
            let mut expected: BTreeMap<&str, &str> = BTreeMap::new();
            expected.extend(left.iter().map(|name| (name.as_str(), commits[0].as_str())));
            expected.extend(again.map(|name| (name.as_str(), commits[1].as_str())));
            let mut found = repo.refs();
            found.retain(|it| it.symref.is_none());
            let found = found
                .iter()
                .map(|it| (it.name.to_str().expect("text"), it.id.as_str()));
            assert!(found.eq(expected), "{format}, case {at}");
            let merged = tables(&repo.git_dir()).len();
            assert_eq!(merged, 1, "case {at}: all is merged at once");
        }
    }
}

/// What a transaction did not ask for is told by whoever does, as by Git.
#[test]
fn a_damaged_block_is_in_the_way_of_nobody_who_does_not_need_it() {
    for format in [Format::REFTABLE_SHA1, Format::REFTABLE_SHA256] {
        let repo = Repo::init(format);
        repo.config("core.logAllRefUpdates", "false");
        let [old, new] = [0, 1].map(|at| repo.objects().commits[at].clone());
        let name = |at: usize| format!("refs/heads/topic-{at:05}");
        let create = (0..3000).map(|at| format!("create {} {old}\n", name(at)));
        repo.update_refs(create.collect::<String>());
        let folder = repo.git_dir().join("reftable");
        let list = fs::read_to_string(folder.join("tables.list")).expect("a list");
        let path = folder.join(list.lines().last().expect("a table"));
        let mut table = fs::read(&path).expect("a table");
        // The second block of refs.
        table[4096 + 4..4096 + 60].fill(0xff);
        fs::remove_file(&path).expect("it is there");
        fs::write(&path, table).expect("a file");
        for (from, count) in [(1500, 8), (1600, 600), (2980, 20)] {
            let names = (from..from + count).map(name);
            let edits = names.map(|name| Edit::update(name.as_str(), new.as_str()));
            let repository = ours::open(&repo.git_dir());
            let applied = ours::apply(repository.store(), &Transaction::of(edits));
            assert!(
                matches!(&applied, Ok(refused) if refused.is_empty()),
                "{format}, {count} from {from}: {applied:?}"
            );
        }
        repo.update_refs(format!("update {} {new}\n", name(1499)));
    }
}

#[test]
fn tables_of_every_shape_are_read_and_searched() {
    for format in [Format::REFTABLE_SHA1, Format::REFTABLE_SHA256] {
        for block_size in ["256", "512", "4096", "65536"] {
            for restart_interval in ["1", "16", "65535"] {
                for index_objects in ["true", "false"] {
                    let repo = Repo::init(format);
                    repo.config("reftable.blockSize", block_size);
                    repo.config("reftable.restartInterval", restart_interval);
                    repo.config("reftable.indexObjects", index_objects);
                    // An entry of a reflog does not fit a block of 256 bytes.
                    repo.config("core.logAllRefUpdates", "false");
                    let what = format!("{format} {block_size} {restart_interval} {index_objects}");
                    read_and_search(&repo, &what);
                }
            }
        }
    }
}

fn read_and_search(repo: &Repo, what: &str) {
    let objects = repo.objects();
    let mut script = String::new();
    for (at, commit) in objects.commits.iter().enumerate() {
        script.push_str(&format!(
            "create refs/heads/t{}/topic-{at} {commit}\n",
            at % 7
        ));
        script.push_str(&format!(
            "create refs/pull/{at}/head {}\n",
            objects.commits[at % 50]
        ));
    }
    for (at, tag) in objects.tags.iter().enumerate() {
        script.push_str(&format!("create refs/tags/v{at} {}\n", tag.id));
    }
    repo.update_refs(script);
    let repository = ours::open(&repo.git_dir());
    let store = repository.store();
    let listed = repo.refs();
    let mut refs = store.refs().expect("a cursor");
    refs.seek(b"refs/").expect("a seek");
    for git in &listed {
        let ours = refs
            .next()
            .expect("a ref")
            .expect("as many refs as Git lists");
        let id = ours.target.oid().map(|oid| oid.to_string());
        assert_eq!(
            (ours.name.as_bytes(), id.as_ref()),
            (&git.name[..], Some(&git.id)),
            "{what}"
        );
        assert_eq!(
            ours.peeled.map(|oid| oid.to_string()),
            git.peeled,
            "{what}: {}",
            git.name
        );
    }
    assert!(refs.next().expect("the end").is_none(), "{what}");
    for id in objects.commits.iter().step_by(23) {
        let oid = refdb::ObjectId::from_hex(id.as_bytes()).expect("an id");
        let found = store.refs_by_oid(oid).expect("an answer");
        let found: Vec<String> = found.iter().map(|found| found.name.to_string()).collect();
        let points =
            |git: &&refdb_testkit::repo::Listed| git.id == *id || git.peeled.as_ref() == Some(id);
        let expected: Vec<String> = listed
            .iter()
            .filter(points)
            .map(|git| git.name.to_string())
            .collect();
        assert!(!expected.is_empty());
        assert_eq!(found, expected, "{what}: {id}");
    }
}
