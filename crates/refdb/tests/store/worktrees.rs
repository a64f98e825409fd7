//! Linked worktrees beside real Git, in both formats: each worktree's own refs and the shared ones,
//! read, listed, written and logged from every side.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use bstr::{BStr, BString, ByteSlice};
use refdb::target::TargetRef;
use refdb::{Edit, LogOrder, ObjectId, RefName, RefNameBuf, Store};
use refdb_testkit::oracle::GitRun;
use refdb_testkit::repo::{Listed, Repo, Worktree};
use refdb_testkit::{Format, RefFormat, for_every_format, ours};

/// Refs that every worktree has of its own, apart from HEAD.
const OWN: [&str; 4] = [
    "refs/bisect/bad",
    "refs/worktree/deep/er",
    "refs/rewritten/onto",
    "ORIG_HEAD",
];

/// A repository with two linked worktrees.
struct Fixture {
    repo: Repo,
    one: Worktree,
    two: Worktree,
}

impl Fixture {
    fn new(format: Format) -> Fixture {
        let repo = Repo::init(format);
        let commit = &repo.objects().commits[0];
        repo.update_refs(format!(
            "create refs/heads/main {commit}\ncreate refs/heads/topic {commit}\n\
             create refs/tags/v1 {commit}\n"
        ));
        let (one, two) = (repo.worktree("one"), repo.worktree("two"));
        Fixture { repo, one, two }
    }

    fn commit(&self, number: usize) -> &'static str {
        &self.repo.objects().commits[number]
    }

    /// Begins a run of Git in a worktree: the main one, `one`, or `two`.
    fn git(&self, worktree: usize, args: &[&str]) -> GitRun {
        match worktree {
            0 => self.repo.git(args),
            1 => self.one.git(args),
            _ => self.two.git(args),
        }
    }

    fn git_dir(&self, worktree: usize) -> std::path::PathBuf {
        match worktree {
            0 => self.repo.git_dir(),
            1 => self.one.git_dir.clone(),
            _ => self.two.git_dir.clone(),
        }
    }

    fn listed(&self, worktree: usize) -> Vec<Listed> {
        match worktree {
            0 => self.repo.refs(),
            1 => self.one.refs(),
            _ => self.two.refs(),
        }
    }

    /// What Git finds under each of these names: one process answers for all of them.
    fn resolved_by_git(&self, worktree: usize, names: &[String]) -> Vec<Option<String>> {
        let git = self.git(worktree, &["cat-file", "--batch-check=%(objectname)"]);
        let answers = git.stdin(names.join("\n") + "\n").run().ok();
        let answers = answers.lines().zip(names).map(|(answer, name)| {
            let answer = answer.to_str().expect("text");
            (answer != format!("{name} missing")).then(|| answer.to_owned())
        });
        let answers: Vec<_> = answers.collect();
        assert_eq!(answers.len(), names.len(), "an answer for each name");
        answers
    }

    /// Asserts what Git finds under a name.
    #[track_caller]
    fn is_at(&self, worktree: usize, name: &str, number: usize) {
        let found = self.resolved_by_git(worktree, &[name.to_owned()]);
        let expected = Some(self.commit(number).to_owned());
        assert_eq!(found, [expected], "{name} in worktree {worktree}");
    }

    /// Writes with Git in a worktree, each ref with a message.
    fn write_with_git(&self, worktree: usize, name: &str, number: usize) {
        let args = [
            "update-ref",
            "--create-reflog",
            "-m",
            name,
            name,
            self.commit(number),
        ];
        self.git(worktree, &args).run().ok();
    }

    /// Asserts that in every worktree refdb sees what Git sees.
    #[track_caller]
    fn compare(&self) {
        for worktree in 0..3 {
            let repository = ours::open(&self.git_dir(worktree));
            let store = repository.store();
            assert_eq!(listing(store), self.listed(worktree), "worktree {worktree}");
            let logs = self.git(worktree, &["reflog", "list"]).run().ok();
            let mut logs: Vec<BString> = logs.lines().map(BString::from).collect();
            logs.sort();
            let ours = store.log_names().expect("reflogs");
            let ours: Vec<BString> = ours.iter().map(|name| name.as_bytes().into()).collect();
            assert_eq!(ours, logs, "worktree {worktree}");
            let mut logs: BTreeSet<String> = logs.iter().map(BString::to_string).collect();
            let names = ["", "main-worktree/", "worktrees/one/", "worktrees/two/"]
                .iter()
                .flat_map(|prefix| {
                    OWN.iter()
                        .chain(&["HEAD"])
                        .map(move |name| format!("{prefix}{name}"))
                });
            let names: Vec<String> = names.collect();
            for (name, gits) in names.iter().zip(self.resolved_by_git(worktree, &names)) {
                let found = store.resolve(RefName::from(&self::name(name)));
                let found = found.expect("readable");
                let found = found.map(|found| found.oid.to_string());
                assert_eq!(found, gits, "{name} in worktree {worktree}");
                if gits.is_some() {
                    logs.insert(name.clone());
                }
            }
            self.compare_logs(store, worktree, &logs);
        }
    }

    /// Asserts that reflogs have the same entries to refdb and to Git, which shows all of them at once.
    #[track_caller]
    fn compare_logs(&self, store: &Store, worktree: usize, names: &BTreeSet<String>) {
        let args = ["log", "-g", "--format=%gD %H %gs"].into_iter();
        let args: Vec<&str> = args
            .chain(names.iter().map(String::as_str))
            .chain(["--"])
            .collect();
        let shown = self.git(worktree, &args).run().ok();
        let mut gits: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for line in shown.to_str().expect("text").lines() {
            let (selector, entry) = line.split_once(' ').expect("two fields");
            let (name, number) = selector.split_once("@{").expect("a selector");
            let entries = gits.entry(name).or_default();
            assert_eq!(number, format!("{}}}", entries.len()), "{line}");
            entries.push(entry);
        }
        for name in names {
            let log = store.log(RefName::from(&self::name(name)), LogOrder::NewestFirst);
            let ours = log.expect("a readable reflog").unwrap_or_default();
            let ours: Vec<String> = ours
                .iter()
                .map(|entry| format!("{} {}", entry.new, entry.message))
                .collect();
            let gits = gits.remove(name.as_str()).unwrap_or_default();
            assert_eq!(ours, gits, "reflog of {name} in worktree {worktree}");
        }
        assert!(gits.is_empty(), "{gits:?}");
    }

    /// Writes with refdb in a worktree.
    #[track_caller]
    fn write(&self, worktree: usize, edits: Vec<Edit<'static>>) {
        let repository = ours::open(&self.git_dir(worktree));
        let mut transaction = repository.store().transaction();
        for edit in edits {
            transaction.add(edit).expect("a good edit");
        }
        let outcome = transaction.commit().expect("no refusal");
        assert!(outcome.rejections.is_empty() && outcome.afterwards.is_empty());
    }

    fn update(&self, name: &str, number: usize) -> Edit<'static> {
        let oid = ObjectId::from_hex(self.commit(number).as_bytes()).expect("an object id");
        Edit::update(RefName::from(&self::name(name)), oid)
            .message(name.as_bytes().to_vec())
            .create_log()
            .into_owned()
    }
}

fn name(text: &str) -> RefNameBuf {
    RefNameBuf::new(text).expect("a good name")
}

fn to_topic() -> Edit<'static> {
    let (head, topic) = (name("HEAD"), name("refs/heads/topic"));
    Edit::symbolic(&head, &topic).no_deref().into_owned()
}

fn delete(text: &str) -> Edit<'static> {
    Edit::delete(RefName::from(&name(text))).into_owned()
}

/// Lists what a store has as Git lists it: what resolves, and root refs.
fn listing(store: &Store) -> Vec<Listed> {
    let mut refs = store.refs().expect("refs");
    let mut listed = Vec::new();
    while let Some(record) = refs.next().expect("a ref") {
        let resolved = store.resolve(record.name).expect("readable");
        let Some(resolved) = resolved else { continue };
        let symref = match record.target {
            TargetRef::Symbolic(_) => Some(BString::from(resolved.name.as_bytes())),
            TargetRef::Direct(_) => None,
        };
        listed.push(Listed {
            name: record.name.as_bytes().into(),
            id: resolved.oid.to_string(),
            symref,
            peeled: None,
        });
    }
    listed
}

for_every_format! {
    /// `packed-refs` has none of them: whoever is at it, a migration perhaps that waits for a ref of a worktree, is
    /// not waited for.
    fn a_worktree_deletes_its_own_refs_beside_whoever_packs(format) {
        let fixture = Fixture::new(format);
        let own = "refs/worktree/deep/er";
        fixture.write(1, vec![fixture.update(own, 1)]);
        let lock = fixture.git_dir(0).join("packed-refs.lock");
        std::fs::write(&lock, "").expect("a new file");
        fixture.write(1, vec![delete(own)]);
        std::fs::remove_file(&lock).expect("it is still there");
        fixture.compare();
    }

    fn what_git_wrote_is_seen_from_every_worktree(format) {
        let fixture = Fixture::new(format);
        fixture.compare();
        for worktree in 0..3 {
            for name in OWN {
                fixture.write_with_git(worktree, name, worktree);
            }
        }
        fixture.write_with_git(1, "refs/heads/shared", 1);
        fixture.write_with_git(2, "HEAD", 2);
        let args = ["symbolic-ref", "-m", "switch", "HEAD", "refs/heads/topic"];
        fixture.git(1, &args).run().ok();
        fixture.write_with_git(1, "HEAD", 2);
        fixture.compare();
        fixture.git(0, &["pack-refs", "--all"]).run().ok();
        fixture.git(1, &["pack-refs", "--all"]).run().ok();
        fixture.compare();
    }

    /// Only what lies below is a worktree's own.
    fn refs_with_the_names_of_own_folders_are_shared(format) {
        let fixture = Fixture::new(format);
        for (at, name) in ["refs/bisect", "refs/rewritten", "refs/worktree"].into_iter().enumerate() {
            fixture.write_with_git(at, name, at);
            fixture.compare();
        }
        let edits = ["refs/bisect", "refs/worktree"].map(|name| fixture.update(name, 3));
        fixture.write(1, edits.to_vec());
        fixture.compare();
        fixture.git(0, &["pack-refs", "--all"]).run().ok();
        fixture.compare();
    }

    fn what_refdb_wrote_is_seen_by_git_in_every_worktree(format) {
        let fixture = Fixture::new(format);
        for worktree in 0..3 {
            let edits = OWN.map(|name| fixture.update(name, worktree));
            fixture.write(worktree, edits.to_vec());
            fixture.compare();
        }
        fixture.write(1, vec![to_topic().message(&b"switch"[..])]);
        fixture.compare();
        let edits = vec![
            fixture.update("HEAD", 2),
            fixture.update("refs/heads/shared", 1),
            fixture.update("refs/bisect/good", 1),
            delete("refs/bisect/bad"),
        ];
        fixture.write(1, edits);
        fixture.compare();
        for worktree in 0..3 {
            let edits = OWN.into_iter().map(delete).filter(|edit| {
                let gone = worktree == 1 && edit.name().as_bytes() == b"refs/bisect/bad";
                !gone
            });
            fixture.write(worktree, edits.collect());
            fixture.compare();
        }
    }

    fn another_worktrees_refs_are_written_by_their_long_names(format) {
        let fixture = Fixture::new(format);
        let edits = vec![
            fixture.update("worktrees/two/refs/bisect/bad", 1),
            fixture.update("main-worktree/refs/bisect/bad", 2),
            fixture.update("worktrees/one/refs/bisect/bad", 3),
            fixture.update("refs/heads/shared", 2),
        ];
        fixture.write(1, edits);
        fixture.compare();
        for (worktree, number) in [2, 3, 1].into_iter().enumerate() {
            fixture.is_at(worktree, "refs/bisect/bad", number);
        }
        fixture.write(2, vec![fixture.update("worktrees/one/refs/bisect/bad", 0)]);
        fixture.write(0, vec![fixture.update("worktrees/two/ORIG_HEAD", 0)]);
        fixture.compare();
        fixture.is_at(1, "refs/bisect/bad", 0);
        fixture.is_at(2, "ORIG_HEAD", 0);
    }

    fn the_reflog_of_head_is_kept_by_the_worktree_that_writes(format) {
        let fixture = Fixture::new(format);
        for worktree in [1, 2] {
            fixture.write(worktree, vec![to_topic()]);
        }
        let entries = |worktree| {
            let repository = ours::open(&fixture.git_dir(worktree));
            let log = repository.store().log(RefName::from(&name("HEAD")), LogOrder::OldestFirst);
            log.expect("readable").map_or(0, |entries| entries.len())
        };
        let before = [entries(0), entries(1), entries(2)];
        fixture.write(1, vec![fixture.update("refs/heads/topic", 1)]);
        assert_eq!([entries(0), entries(1), entries(2)], [before[0], before[1] + 1, before[2]]);
        fixture.write(2, vec![fixture.update("HEAD", 2)]);
        assert_eq!(
            [entries(0), entries(1), entries(2)],
            [before[0], before[1] + 1, before[2] + 1]
        );
        fixture.compare();
    }

    fn optimizing_a_worktree_changes_nothing_that_is_seen(format) {
        let fixture = Fixture::new(format);
        for worktree in 0..3 {
            for name in OWN {
                fixture.write(worktree, vec![fixture.update(name, worktree)]);
            }
        }
        for worktree in 0..3 {
            let repository = ours::open(&fixture.git_dir(worktree));
            repository.store().optimize(&Default::default()).expect("nobody else is at it");
            fixture.compare();
        }
        if format.refs == RefFormat::Reftable {
            for worktree in 0..3 {
                let list = fixture.git_dir(worktree).join("reftable/tables.list");
                assert_eq!(std::fs::read(list).expect("a list").lines().count(), 1);
            }
        }
    }
}

#[test]
fn a_list_without_a_table_is_an_empty_stack_to_git() {
    for format in [Format::REFTABLE_SHA1, Format::REFTABLE_SHA256] {
        let fixture = Fixture::new(format);
        // What a worktree has whose own refs, HEAD included, are all deleted.
        fixture.write(1, vec![delete("HEAD").no_deref()]);
        let own = ours::open(&fixture.git_dir(1));
        own.store()
            .optimize(&refdb::Optimize::default())
            .expect("nobody else writes");
        let dir = fixture.git_dir(1).join("reftable");
        assert_eq!(tables(&dir), 0);
        fixture.write_with_git(1, "refs/bisect/bad", 1);
        assert_eq!(tables(&dir), 1);
        let found = ours::state(ours::open(&fixture.git_dir(1)).store());
        assert!(found.refs.contains_key(BStr::new("refs/bisect/bad")));
    }
}

/// It may name a ref of the group by another name.
#[test]
fn who_names_another_worktree_is_committed_alone_and_told_what_is_in_the_way() {
    let fixture = Fixture::new(Format::REFTABLE_SHA1);
    let below = |rest: &str| format!("worktrees/one/refs/worktree/a{rest}");
    fixture.write(0, vec![fixture.update(&below("/m"), 0)]);
    let repository = ours::open(&fixture.git_dir(0));
    let store = repository.store();
    let mut group = store.group().expect("readable").expect("no hook");
    let mut refused = Vec::new();
    for rest in ["/z", ""] {
        let name = below(rest);
        let transaction = || {
            let mut transaction = store.transaction().batch();
            let edit = fixture.update(&name, 0);
            transaction.add(edit).expect("a good edit");
            transaction
        };
        assert!(group.add(&transaction()).is_err());
        let prepared = transaction().prepare().expect("a batch is data");
        refused.extend(prepared.commit().expect("readable").rejections);
    }
    let told: Vec<&str> = refused.iter().map(|it| &*it.message).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("refs/worktree/a/m' exists"), "{told:?}");
}

fn tables(dir: &Path) -> usize {
    let entries = std::fs::read_dir(dir).expect("a stack");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    names
        .filter(|name| name.to_string_lossy().ends_with(".ref"))
        .count()
}
