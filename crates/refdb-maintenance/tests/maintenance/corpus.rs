//! The corpus of damage: the deep check finds every kind at its place, and nothing where all is
//! well; a repair brings back what can be, and no value that was not there.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use bstr::{BString, ByteSlice};
use refdb::TargetRef;
use refdb_maintenance::repair::{Options, plan};
use refdb_maintenance::verify::{Damage, Repair, Severity, deep};
use refdb_testkit::damage::corpus::{Expected, Subject, kinds};
use refdb_testkit::generate::Generator;
use refdb_testkit::jgit::{self, JgitUpdate};
use refdb_testkit::model::{Model, Rules};
use refdb_testkit::oracle::workspace_root;
use refdb_testkit::repo::Repo;
use refdb_testkit::rng::Rng;
use refdb_testkit::{Format, for_every_format, ours};

/// Seeds for each kind of damage.
const SEEDS: u64 = 2;

fn check(git_dir: &Path) -> Vec<Damage> {
    let mut found = Vec::new();
    let repository = ours::open_damaged(git_dir);
    deep(&repository, &mut |damage| found.push(damage.clone())).expect("it can be read");
    found
}

fn is_told(found: &[Damage], expected: &Expected) -> bool {
    found.iter().any(|damage| {
        let severity = match expected.warning {
            true => Severity::Warning,
            false => Severity::Error,
        };
        let is_there = match (&expected.offsets, damage.offset) {
            (None, _) => true,
            (Some(offsets), Some(offset)) => offsets.contains(&offset),
            (Some(_), None) => false,
        };
        damage.severity == severity && damage.file == expected.file && is_there
    })
}

for_every_format! {
    fn every_kind_of_damage_is_found_at_its_place(format) {
        let subject = Subject::new(format);
        let git_dir = subject.repo().git_dir();
        assert_eq!(check(&git_dir), []);
        let kinds = kinds(format);
        assert!(kinds.len() >= 40, "only {} kinds", kinds.len());
        let mut missed = Vec::new();
        for kind in &kinds {
            for seed in 0..SEEDS {
                let expected = (kind.apply)(&subject, &mut Rng::new(seed));
                let found = check(&git_dir);
                if !is_told(&found, &expected) {
                    missed.push(format!("{} ({seed}): {expected:?}\n    {found:?}", kind.name));
                }
                subject.restore();
            }
        }
        assert!(missed.is_empty(), "{} missed:\n{}", missed.len(), missed.join("\n"));
        assert_eq!(check(&git_dir), []);
    }
}

/// How many healthy repositories are checked for each format, unless `REFDB_HEALTHY` says
/// otherwise.
const HEALTHY: u64 = 25;

/// Of how many healthy stacks one is also written to by JGit, which takes long to start.
const JGIT_SHARE: u64 = 10;

/// Symrefs may lead in a circle by order, and a tag may be written through one to a branch, as Git
/// allows and its fsck finds fault with: that much is told by right.
fn is_by_order(damage: &Damage) -> bool {
    let by_order = ["leads in a circle", "is a tag, where a commit belongs"];
    by_order.iter().any(|what| damage.what.contains(what))
}

for_every_format! {
    fn nothing_is_found_where_all_is_well(format) {
        let count = std::env::var("REFDB_HEALTHY").map_or(HEALTHY, |count| {
            count.parse().expect("REFDB_HEALTHY is a number")
        });
        for seed in 0..count {
            let repo = healthy(seed, format);
            let mut found = check(&repo.git_dir());
            found.retain(|damage| !is_by_order(damage));
            assert_eq!(found, [], "seed {seed}");
        }
    }
}

/// Makes a repository by transactions of Git and refdb in turn, packed now and then, some of them
/// with a linked worktree; JGit adds to some of the stacks that it can read.
fn healthy(seed: u64, format: Format) -> Repo {
    let repo = Repo::init(format);
    let mut rng = Rng::new(seed);
    if rng.percent(30) {
        repo.config("reftable.blockSize", "300");
    }
    if rng.percent(20) {
        let worktree = repo.worktree("side");
        let commit = &repo.objects().commits[1];
        worktree
            .git(["update-ref", "refs/bisect/bad", commit])
            .run()
            .ok();
    }
    let mut model = Model::new(Rules::new(format));
    let mut generator = Generator::new(seed, format);
    for _ in 0..6 {
        let transaction = generator.next(&model);
        if rng.percent(50) {
            // What is refused leaves nothing behind.
            let _ = ours::apply(ours::open(&repo.git_dir()).store(), &transaction);
        } else {
            let git = repo.git(transaction.arguments());
            git.stdin(transaction.script()).run();
        }
        let _ = model.apply(&transaction);
        if rng.percent(25) {
            repo.git(["pack-refs", "--all"]).run().ok();
        }
    }
    if format == Format::REFTABLE_SHA1 && seed.is_multiple_of(JGIT_SHARE) {
        let update = JgitUpdate {
            name: "refs/heads/by-jgit".to_owned(),
            old: format.zero(),
            new: repo.objects().commits[2].clone(),
        };
        let done = jgit::update(&repo.git_dir(), "by JGit", &[update]);
        assert_eq!(done[0].1, "OK", "seed {seed}");
        if rng.percent(50) {
            jgit::compact(&repo.git_dir());
        }
    }
    repo
}

/// What a repair made of a damaged repository.
struct Repaired {
    /// How many refs have another value than before the damage, or are gone.
    changed: usize,
    /// Whether something is left that a person has to decide.
    by_hand: bool,
}

/// The refs as the library reads them, with their values as Git writes them.
fn refs(repo: &Repo) -> BTreeMap<BString, String> {
    let repository = ours::open(&repo.git_dir());
    let mut cursor = repository.store().refs().expect("refs");
    let mut refs = BTreeMap::new();
    while let Some(record) = cursor.next().expect("a ref") {
        let value = match record.target {
            TargetRef::Direct(oid) => oid.to_string(),
            TargetRef::Symbolic(name) => format!("ref: {name}"),
        };
        refs.insert(record.name.as_bytes().into(), value);
    }
    refs
}

/// Repairs a damaged subject, and checks what has to hold after any repair.
fn repair(subject: &Subject, whole: &BTreeMap<BString, String>, what: &str) -> Repaired {
    let repo = subject.repo();
    let repository = ours::open_damaged(&repo.git_dir());
    let options = Options { remove_locks: true };
    let made = plan(&repository, options).expect(what);
    if !made.is_empty() {
        made.apply().expect(what);
    }
    let left = check(&repo.git_dir());
    let by_hand = left.iter().any(|damage| damage.repair == Repair::ByHand);
    assert!(by_hand || left.is_empty(), "{what}: {left:?}");
    let again = plan(&repository, options).expect(what);
    assert!(again.is_empty(), "{what}: a second repair finds more to do");
    let now = refs(repo);
    // What Git reads is the same, as far as it lists what resolves.
    for listed in repo.refs().iter().filter(|listed| listed.symref.is_none()) {
        let ours = now.get(&listed.name).map(String::as_str);
        assert_eq!(ours, Some(listed.id.as_str()), "{what}: {}", listed.name);
    }
    let objects = repo.objects();
    let is_known = |value: &str| {
        let mut tags = objects.tags.iter().map(|tag| &tag.id);
        let commits = &objects.commits;
        commits.iter().any(|id| id == value) || tags.any(|id| id == value)
    };
    for (name, value) in &now {
        let is_symref = value.starts_with("ref: ");
        assert!(is_symref || is_known(value), "{what}: {name} has {value}");
    }
    let same = |(name, value): &(&BString, &String)| now.get(*name) == Some(*value);
    Repaired {
        changed: whole.iter().filter(|one| !same(one)).count(),
        by_hand,
    }
}

/// Damage after which every ref has to be as it was.
const HARMLESS: [&str; 13] = [
    "HEAD: no bytes",
    "HEAD: nothing but zeros",
    "HEAD: missing",
    "HEAD: leads out of refs/",
    "footer: zeros, as after a power failure",
    "footer: checksum",
    "footer: missing",
    "header: magic",
    "objects: zeros in the place of a block",
    "ref index: zeros in the place of a block",
    "log index: type of a block",
    "list: missing",
    "list: no bytes",
];

for_every_format! {
    fn a_repair_brings_back_what_can_be(format) {
        let subject = Subject::new(format);
        let whole = refs(subject.repo());
        for kind in kinds(format) {
            for seed in 0..SEEDS {
                (kind.apply)(&subject, &mut Rng::new(seed));
                let what = format!("{} ({seed})", kind.name);
                let repaired = repair(&subject, &whole, &what);
                if HARMLESS.contains(&kind.name.as_str()) {
                    assert_eq!(repaired.changed, 0, "{what}");
                }
                subject.restore();
            }
        }
        assert_eq!(refs(subject.repo()), whole);
    }
}

/// What stands before and behind the table in the documentation.
const MARKS: [&str; 2] = ["<!-- damage: begin -->\n", "<!-- damage: end -->"];

/// What `git refs verify` makes of a repository.
fn verdict_of_git(repo: &Repo) -> &'static str {
    let out = repo.git(["refs", "verify"]).run();
    let says = |word: &str| out.stderr.contains_str(word);
    match out.status.code() {
        Some(0) if says("warning: ") => "warning",
        Some(0) => "nothing",
        Some(_) => "error",
        None => "dies",
    }
}

/// Makes the table that stands in the documentation.
fn table() -> String {
    let mut table = String::from(
        "| format | damage | `git refs verify` | `refdb refs verify --deep` | refs after `refdb \
         refs repair` |\n|---|---|---|---|---|\n",
    );
    for format in [Format::FILES_SHA1, Format::REFTABLE_SHA1] {
        let subject = Subject::new(format);
        let whole = refs(subject.repo());
        for kind in kinds(format) {
            let expected = (kind.apply)(&subject, &mut Rng::new(0));
            let git = verdict_of_git(subject.repo());
            let ours = if expected.warning { "warning" } else { "error" };
            let repaired = repair(&subject, &whole, &kind.name);
            let after = match (repaired.changed, repaired.by_hand) {
                (0, false) => "all".to_owned(),
                (0, true) => "all; left to a person".to_owned(),
                (count, _) => format!("all but {count} of {}", whole.len()),
            };
            let name = &kind.name;
            table.push_str(&format!(
                "| {} | {name} | {git} | {ours} | {after} |\n",
                format.refs.name()
            ));
            subject.restore();
        }
    }
    table
}

/// With `REFDB_WRITE_DOCS` set, the documentation is written anew.
#[test]
fn the_documentation_says_what_git_says() {
    let path = workspace_root().join("docs/compat.md");
    let text = fs::read_to_string(&path).expect("docs/compat.md");
    let (before, rest) = text.split_once(MARKS[0]).expect("the first mark");
    let (old, after) = rest.split_once(MARKS[1]).expect("the second mark");
    let new = table();
    if std::env::var_os("REFDB_WRITE_DOCS").is_some() {
        let text = [before, MARKS[0], &new, MARKS[1], after].concat();
        fs::write(&path, text).expect("docs/compat.md");
    } else {
        assert_eq!(old, new, "run this test with REFDB_WRITE_DOCS=1");
    }
}
