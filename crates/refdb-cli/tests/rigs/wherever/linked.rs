//! Repositories that share what another one has by links, as `git-new-workdir` makes them: `config`,
//! `refs`, `packed-refs`, `reftable`, `logs/refs`, `objects` and others are links into it, and only
//! `HEAD` and its reflog are their own.

use std::os::unix::fs::symlink;

use refdb_testkit::{RefFormat, for_every_format};

use super::*;

/// What is a link into the other repository.
const LINKS: &[&str] = &[
    "config",
    "refs",
    "logs/refs",
    "objects",
    "info",
    "hooks",
    "packed-refs",
    "remotes",
    "reftable",
];

/// Two repositories, the second of which has nearly all from the first.
struct Pair {
    _folder: tempfile::TempDir,
    first: PathBuf,
    second: PathBuf,
}

impl Pair {
    fn new(base: &Repo) -> Pair {
        let folder = tempfile::tempdir().expect("a folder");
        let (first, second) = (folder.path().join("first"), folder.path().join("second"));
        copy(base.path(), &first);
        fs::create_dir_all(second.join(".git/logs")).expect("a folder");
        for link in LINKS {
            symlink(
                first.join(".git").join(link),
                second.join(".git").join(link),
            )
            .expect("a link");
        }
        let head = fs::read(first.join(".git/HEAD")).expect("there is one");
        fs::write(second.join(".git/HEAD"), head).expect("room");
        Pair {
            _folder: folder,
            first,
            second,
        }
    }
}

/// The refs that both repositories have.
const SHARED: &[&str] = &[
    "for-each-ref",
    "--format=%(refname) %(objectname) %(symref)",
];

fn shared_by_git(dir: &Path) -> String {
    oracle::git(dir).args(SHARED).run().text()
}

/// Returns all names in a repository with what they are, and the content of small files.
fn everything(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![dir.join(".git")];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).expect("a folder").flatten() {
            let (path, kind) = (entry.path(), entry.file_type().expect("its kind"));
            let content = if kind.is_symlink() {
                let text = fs::read_link(&path).expect("a link");
                text.into_os_string().into_encoded_bytes()
            } else if kind.is_dir() {
                if entry.file_name() != "objects" {
                    dirs.push(path.clone());
                }
                Vec::new()
            } else {
                fs::read(&path).expect("a file")
            };
            found.insert(path, content);
        }
    }
    found
}

fn migrate_to_the_other(format: Format) -> [&'static str; 3] {
    let to = match format.refs {
        RefFormat::Files => "--ref-format=reftable",
        RefFormat::Reftable => "--ref-format=files",
    };
    ["refs", "migrate", to]
}

for_every_format! {
    fn a_migration_of_what_another_repository_has_is_refused(format) {
        let base = repository(format);
        let pair = Pair::new(&base);
        let listed = shared_by_git(&pair.first);
        assert_eq!(shared_by_git(&pair.second), listed);
        let before = [&pair.first, &pair.second].map(|dir| everything(dir));
        let migrate = migrate_to_the_other(format);
        for more in [&[][..], &["--dry-run"], &["--keep"]] {
            let out = Place::here().refdb(&pair.second).args(migrate).args(more).run();
            assert!(!out.status.success(), "{more:?}: {}", Told(&out));
            let said = String::from_utf8_lossy(&out.stderr);
            assert!(said.contains("is a link to"), "{said}");
            assert!(said.contains(pair.first.to_str().expect("text")), "{said}");
            let after = [&pair.first, &pair.second].map(|dir| everything(dir));
            assert_eq!(after, before, "{more:?}");
        }
        for dir in [&pair.first, &pair.second] {
            assert_eq!(shared_by_git(dir), listed);
            let ours = Place::here().refdb(dir).args(SHARED).run().text();
            assert_eq!(ours, listed);
        }
    }

    fn each_link_alone_is_refused(format) {
        for link in ["config", "refs", "packed-refs", "reftable", "logs"] {
            let (first, second) = (repository(format), repository(format));
            let [theirs, ours] = [&first, &second].map(|repo| repo.git_dir().join(link));
            if !theirs.exists() {
                continue;
            }
            let removed = match ours.is_dir() {
                true => fs::remove_dir_all(&ours),
                false => fs::remove_file(&ours),
            };
            removed.expect("it is there");
            symlink(&theirs, &ours).expect("a link");
            let before = [&first, &second].map(|repo| everything(repo.path()));
            let migrate = migrate_to_the_other(format);
            let out = Place::here().refdb(second.path()).args(migrate).run();
            assert!(!out.status.success(), "{link}: {}", Told(&out));
            let said = String::from_utf8_lossy(&out.stderr);
            assert!(said.contains(&format!("{link}' is a link to")), "{said}");
            let after = [&first, &second].map(|repo| everything(repo.path()));
            assert_eq!(after, before, "{link}");
        }
    }

    fn a_worktree_whose_directory_is_a_link_is_refused(format) {
        let repo = repository(format);
        let link = repo.git_dir().join("worktrees/w");
        let real = repo.git_dir().join("moved");
        fs::rename(&link, &real).expect("it is there");
        symlink("../moved", &link).expect("a link");
        let before = everything(repo.path());
        let migrate = migrate_to_the_other(format);
        let out = Place::here().refdb(repo.path()).args(migrate).run();
        assert!(!out.status.success(), "{}", Told(&out));
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(said.contains("worktrees/w' is a link to"), "{said}");
        assert_eq!(everything(repo.path()), before);
    }

    fn a_configuration_that_is_a_link_to_no_repository_is_no_hindrance(format) {
        let repo = repository(format);
        let elsewhere = tempfile::tempdir().expect("a folder");
        let (real, link) = (elsewhere.path().join("some"), repo.git_dir().join("config"));
        fs::copy(&link, &real).expect("room");
        fs::remove_file(&link).expect("it is there");
        symlink(&real, &link).expect("a link");
        let before = Whole::read(repo.path());
        Place::here().refdb(repo.path()).args(migrate_to_the_other(format)).run().ok();
        let after = Whole::read(repo.path());
        assert_eq!(after.listed, before.listed);
        assert!(link.is_symlink(), "it is still a link");
    }

    fn what_died_in_one_repository_is_finished_in_the_other(format) {
        let here = Place::here();
        if !here.is_there() {
            return;
        }
        let base = repository(format);
        let commits = &base.objects().commits;
        let new = &commits[2];
        let script = format!(
            "update refs/heads/main {new}\nupdate refs/heads/new {new}\n\
             update refs/tags/packed {new}\ndelete refs/heads/both\n\
             update refs/heads/loose {}\n",
            commits[1]
        );
        let run = |dir: &Path| here.in_time(dir).args(STDIN).stdin(script.as_str()).run();
        let old = shared_by_git(base.path());
        for (dead, next) in [("first", "second"), ("second", "first")] {
            let pair = Pair::new(&base);
            let dir = pair.first.parent().expect("a folder").join(dead);
            let log = dir.join("strace");
            let traced = here.traced(&dir, &log, None).args(STDIN);
            traced.stdin(script.as_str()).run().ok();
            let whole = shared_by_git(&pair.first);
            for at in &draw(&log, format, 4 * POINTS) {
                let pair = Pair::new(&base);
                let folder = pair.first.parent().expect("a folder");
                let (dead, next) = (folder.join(dead), folder.join(next));
                let context = format!("{format}, killed at {at:?} in {}", dead.display());
                here.kill(&dead, STDIN, &script, at);
                let found = here.in_time(&next).args(SHARED).run();
                assert!(found.status.success(), "{context}: {}", Told(&found));
                let found = found.text();
                assert!(found == old || found == whole, "{context}: half of it:\n{found}");
                assert_eq!(shared_by_git(&next), found, "{context}: Git");
                let out = run(&next);
                assert!(out.status.success(), "{context}: again: {}", Told(&out));
                assert_eq!(shared_by_git(&dead), whole, "{context}: again");
                for dir in [&next, &dead] {
                    let listed = here.in_time(dir).args(SHARED).run().text();
                    assert_eq!(listed, whole, "{context}: again");
                    here.in_time(dir).args(["pack-refs", "--all"]).run().ok();
                }
                let left = [locks(&dead.join(".git")), locks(&next.join(".git"))].concat();
                assert_eq!(left, [], "{context}: locks are left");
            }
        }
    }

    fn what_is_prepared_in_one_repository_is_locked_in_the_other(format) {
        let base = repository(format);
        let commit = &base.objects().commits[5];
        for (held, other) in [("first", "second"), ("second", "first")] {
            let pair = Pair::new(&base);
            let folder = pair.first.parent().expect("a folder");
            let (held, other) = (folder.join(held), folder.join(other));
            let mut holder = Place::here().refdb(&held).args(STDIN).begin();
            holder.say(&format!(
                "start\nupdate refs/heads/main {commit}\nupdate refs/heads/new {commit}\nprepare\n"
            ));
            assert_eq!(holder.hear(), "start: ok\n");
            assert_eq!(holder.hear(), "prepare: ok\n");
            let before = locks(&pair.first.join(".git"));
            assert_ne!(before, [], "there are no locks");
            for args in [
                &["for-each-ref"][..],
                &["update-ref", "refs/heads/main", commit],
                &["pack-refs", "--all"],
            ] {
                let out = Place::here().in_time(&other).args(args).run();
                assert!(![124, 137].contains(&out.code()), "{}", Told(&out));
                assert_eq!(out.status.success(), args[0] != "update-ref" && (
                    args[0] != "pack-refs" || format.refs == RefFormat::Files), "{}", Told(&out));
                assert_eq!(locks(&pair.first.join(".git")), before, "{}", Told(&out));
            }
            holder.say("commit\n");
            assert_eq!(holder.hear(), "commit: ok\n");
            assert!(holder.end().status.success());
            let listed = Place::here().in_time(&other).args(SHARED).run().text();
            assert!(listed.contains(&format!("refs/heads/new {commit}")), "{listed}");
            assert_eq!(listed, shared_by_git(&other));
        }
    }
}
