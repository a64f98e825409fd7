//! The permissions of what both backends write, beside those of real Git, for every kind of
//! `core.sharedRepository`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use refdb::store::Optimize;
use refdb::{Edit, ObjectId, RefName, RefNameBuf};
use refdb_testkit::{for_every_format, ours, repo::Repo};

/// The settings, among them exact permissions for files that only the owner may write.
const SETTINGS: [&str; 8] = [
    "umask", "group", "all", "0660", "0640", "0644", "0664", "0600",
];

/// Returns the permissions of everything that belongs to refs, below two directories. Random parts
/// of names are left out.
fn modes(git_dir: &Path) -> BTreeMap<String, String> {
    let mut modes = BTreeMap::new();
    let mut paths: Vec<PathBuf> = ["HEAD", "packed-refs", "refs", "logs", "reftable"]
        .iter()
        .map(|name| git_dir.join(name))
        .filter(|path| path.exists())
        .collect();
    while let Some(path) = paths.pop() {
        let metadata = fs::symlink_metadata(&path).expect("it is there");
        if metadata.is_dir() {
            let entries = fs::read_dir(&path).expect("a directory");
            paths.extend(entries.map(|entry| entry.expect("an entry").path()));
        }
        let name = path
            .strip_prefix(git_dir)
            .expect("below")
            .display()
            .to_string();
        let name = match name.rsplit_once('-') {
            Some((indices, _)) if name.ends_with(".ref") => indices.to_owned(),
            _ => name,
        };
        modes.insert(name, format!("{:o}", metadata.permissions().mode()));
    }
    modes
}

fn name(text: &str) -> RefNameBuf {
    RefNameBuf::new(text).expect("a good name")
}

/// Carries out edits with refdb in one repository and the same with Git in the other, packs, and
/// compares after each step.
fn compare(ours: &Repo, gits: &Repo, setting: &str) {
    let commit = &ours.objects().commits[0];
    let oid = ObjectId::from_hex(commit.as_bytes()).expect("an object id");
    let step = |edits: Vec<Edit<'static>>, script: String, what: &str| {
        let repository = ours::open(&ours.git_dir());
        let mut transaction = repository.store().transaction();
        for edit in edits {
            transaction.add(edit).expect("a good edit");
        }
        let outcome = transaction.commit().expect("no refusal");
        assert!(outcome.afterwards.is_empty(), "{outcome:?}");
        gits.update_refs(script);
        let (ours, gits) = (modes(&ours.git_dir()), modes(&gits.git_dir()));
        assert_eq!(ours, gits, "{setting}, {what}");
    };
    let update = |text: &str| Edit::update(RefName::from(&name(text)), oid).into_owned();
    step(
        vec![update("refs/heads/main"), update("refs/heads/deep/er/one")],
        format!("update refs/heads/main {commit}\nupdate refs/heads/deep/er/one {commit}\n"),
        "create",
    );
    let (head, target) = (name("refs/remotes/o/HEAD"), name("refs/remotes/o/main"));
    let symref = Edit::symbolic(&head, &target);
    step(
        vec![symref.no_deref().into_owned(), update("refs/tags/one")],
        format!(
            "symref-update refs/remotes/o/HEAD refs/remotes/o/main\nupdate refs/tags/one {commit}\n"
        ),
        "symref",
    );
    let pack = |what: &str| {
        let repository = ours::open(&ours.git_dir());
        repository
            .store()
            .optimize(&Optimize::default())
            .expect("nobody else is at it");
        gits.git(["pack-refs", "--all"]).run().ok();
        let (ours, gits) = (modes(&ours.git_dir()), modes(&gits.git_dir()));
        assert_eq!(ours, gits, "{setting}, {what}");
    };
    pack("pack");
    step(
        vec![
            Edit::delete(RefName::from(&name("refs/heads/deep/er/one"))).into_owned(),
            update("refs/heads/deep/er/two"),
        ],
        format!("delete refs/heads/deep/er/one\nupdate refs/heads/deep/er/two {commit}\n"),
        "delete a packed ref",
    );
    pack("pack again");
}

for_every_format! {
    fn files_get_the_permissions_that_git_gives(format) {
        for setting in SETTINGS {
            let ours = Repo::init(format);
            ours.config("core.sharedRepository", setting);
            let gits = ours.duplicate();
            compare(&ours, &gits, setting);
        }
    }

    fn files_made_in_a_batch_are_shared_as_well(format) {
        let repo = Repo::init(format);
        repo.config("core.sharedRepository", "0660");
        let oid = ObjectId::from_hex(repo.objects().commits[0].as_bytes()).expect("an object id");
        let repository = ours::open(&repo.git_dir());
        let mut transaction = repository.store().transaction();
        for number in 0..200 {
            let name = name(&format!("refs/heads/batch/{number}"));
            let edit = Edit::update(RefName::from(&name), oid).into_owned();
            transaction.add(edit).expect("a good edit");
        }
        let outcome = transaction.commit().expect("no refusal");
        assert!(outcome.rejections.is_empty());
        let is_written = |name: &str| {
            ["packed-refs", "logs/refs/heads/batch", "reftable/"]
                .iter()
                .any(|path| name.starts_with(path))
        };
        let mut wrong = modes(&repo.git_dir());
        wrong.retain(|name, _| is_written(name));
        assert!(wrong.len() > 1);
        wrong.retain(|_, mode| !["100660", "42770"].contains(&mode.as_str()));
        assert_eq!(wrong, BTreeMap::new());
    }
}
