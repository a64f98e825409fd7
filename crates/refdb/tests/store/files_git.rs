//! The `files` backend beside real Git: the same work gives the same files, each reads what the
//! other wrote, and neither loses a ref while both are at work.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use refdb::store::Optimize;
use refdb::{Edit, LogOrder, ObjectId, RefName, RefNameBuf, Result};
use refdb_git::Repository;
use refdb_git::repository::{Environment, OpenOptions};
use refdb_testkit::Format;
use refdb_testkit::oracle::environment;
use refdb_testkit::repo::Repo;

const FORMATS: [Format; 2] = [Format::FILES_SHA1, Format::FILES_SHA256];

fn open(git_dir: &Path) -> Repository {
    OpenOptions::new()
        .environment(Environment::from_pairs(environment()))
        .open(git_dir)
        .expect("a repository")
}

fn name(text: &str) -> RefNameBuf {
    RefNameBuf::new(text).expect("a good name")
}

fn oid(hex: &str) -> ObjectId {
    ObjectId::from_hex(hex.as_bytes()).expect("an object id")
}

fn commit(repository: &Repository, edits: Vec<Edit<'static>>) -> Result<()> {
    let mut transaction = repository.store().transaction();
    for edit in edits {
        transaction.add(edit)?;
    }
    let outcome = transaction.commit()?;
    assert!(outcome.afterwards.is_empty(), "{outcome:?}");
    Ok(())
}

fn update(text: &str, hex: &str) -> Edit<'static> {
    Edit::update(RefName::from(&name(text)), oid(hex))
        .message("why".to_owned().into_bytes())
        .into_owned()
}

fn delete(text: &str) -> Edit<'static> {
    Edit::delete(RefName::from(&name(text)))
        .message("why".to_owned().into_bytes())
        .into_owned()
}

/// Returns every file that belongs to refs, with its content.
fn ref_files(git_dir: &Path) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let mut paths: Vec<_> = ["HEAD", "packed-refs", "refs", "logs"]
        .map(|path| git_dir.join(path))
        .to_vec();
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            let entries = fs::read_dir(&path).expect("a directory");
            paths.extend(entries.map(|entry| entry.expect("an entry").path()));
            let key = path
                .strip_prefix(git_dir)
                .expect("below")
                .display()
                .to_string();
            files.insert(format!("{key}/"), String::new());
        } else if path.exists() {
            let key = path
                .strip_prefix(git_dir)
                .expect("below")
                .display()
                .to_string();
            files.insert(key, fs::read_to_string(&path).expect("text"));
        }
    }
    files
}

/// Runs steps with refdb in one copy of a repository and the same steps with Git in another, and
/// compares the files after each.
struct Pair {
    ours: Repo,
    gits: Repo,
}

impl Pair {
    fn new(format: Format) -> Pair {
        let ours = Repo::init(format);
        let gits = ours.duplicate();
        Pair { ours, gits }
    }

    fn repository(&self) -> Repository {
        open(&self.ours.git_dir())
    }

    /// Applies edits, and the same as commands of `git update-ref --stdin`.
    #[track_caller]
    fn edits(&self, edits: Vec<Edit<'static>>, script: &str) {
        commit(&self.repository(), edits).expect("no refusal");
        let out = self
            .gits
            .git(["update-ref", "-m", "why", "--stdin"])
            .stdin(script)
            .run();
        assert_eq!(out.code(), 0, "{out:?}");
        self.compare();
    }

    #[track_caller]
    fn pack(&self) {
        self.repository()
            .store()
            .optimize(&Optimize::default())
            .expect("packed");
        self.gits.git(["pack-refs", "--all"]).run().ok();
        self.compare();
    }

    #[track_caller]
    fn compare(&self) {
        assert_eq!(
            ref_files(&self.ours.git_dir()),
            ref_files(&self.gits.git_dir())
        );
        self.ours.assert_sound();
    }
}

#[test]
fn the_same_work_gives_the_same_files() {
    for format in FORMATS {
        let pair = Pair::new(format);
        let objects = pair.ours.objects();
        let (first, second) = (&objects.commits[0], &objects.commits[1]);
        let (tag, nested) = (&objects.tags[0].id, &objects.nested_tags[0].id);
        pair.edits(
            vec![
                update("refs/heads/main", first),
                update("refs/heads/a/b/c", first),
            ],
            &format!("update refs/heads/main {first}\nupdate refs/heads/a/b/c {first}\n"),
        );
        pair.edits(
            vec![update("refs/tags/t", tag), update("refs/tags/n", nested)],
            &format!("update refs/tags/t {tag}\nupdate refs/tags/n {nested}\n"),
        );
        pair.edits(
            vec![update("HEAD", second)],
            &format!("update HEAD {second}\n"),
        );
        pair.edits(
            vec![update("refs/tags/lie", &objects.lying_tag)],
            &format!("update refs/tags/lie {}\n", objects.lying_tag),
        );
        pair.edits(vec![delete("refs/tags/lie")], "delete refs/tags/lie\n");
        pair.pack();
        pair.edits(
            vec![
                update("refs/heads/main", first),
                update("refs/heads/a/d", first),
            ],
            &format!("update refs/heads/main {first}\nupdate refs/heads/a/d {first}\n"),
        );
        pair.edits(
            vec![delete("refs/heads/a/b/c")],
            "delete refs/heads/a/b/c\n",
        );
        pair.edits(
            vec![update("refs/heads/a/b", second)],
            &format!("update refs/heads/a/b {second}\n"),
        );
        pair.pack();
        pair.edits(
            vec![
                delete("refs/heads/a/b"),
                delete("refs/heads/a/d"),
                delete("refs/tags/t"),
            ],
            "delete refs/heads/a/b\ndelete refs/heads/a/d\ndelete refs/tags/t\n",
        );
        pair.edits(
            vec![delete("refs/heads/main"), update("refs/heads/z", first)],
            &format!("delete refs/heads/main\nupdate refs/heads/z {first}\n"),
        );
        pair.pack();
    }
}

#[test]
fn symrefs_give_the_same_files() {
    let pair = Pair::new(Format::FILES_SHA1);
    let first = &pair.ours.objects().commits[0];
    pair.edits(
        vec![update("HEAD", first)],
        &format!("update HEAD {first}\n"),
    );
    let (symref, target) = (name("refs/remotes/o/HEAD"), name("refs/heads/main"));
    let edit = Edit::symbolic(&symref, &target).message("why".to_owned().into_bytes());
    commit(&pair.repository(), vec![edit.into_owned()]).expect("no refusal");
    let args = [
        "symbolic-ref",
        "-m",
        "why",
        "refs/remotes/o/HEAD",
        "refs/heads/main",
    ];
    pair.gits.git(args).run().ok();
    pair.compare();
    pair.pack();
    pair.edits(
        vec![delete("refs/remotes/o/HEAD").no_deref()],
        "option no-deref\ndelete refs/remotes/o/HEAD\n",
    );
}

#[test]
fn git_reads_a_large_batch_as_if_it_had_written_it() {
    for format in FORMATS {
        let pair = Pair::new(format);
        let objects = pair.ours.objects();
        let mut edits = Vec::new();
        let mut script = String::new();
        for (number, tag) in objects.tags.iter().enumerate() {
            let commit = &objects.commits[number];
            edits.push(update(&format!("refs/tags/{number}"), &tag.id));
            edits.push(update(&format!("refs/heads/b/{number}"), commit));
            script += &format!("update refs/tags/{number} {}\n", tag.id);
            script += &format!("update refs/heads/b/{number} {commit}\n");
        }
        pair.gits
            .git(["update-ref", "-m", "why", "--stdin"])
            .stdin(script)
            .run()
            .ok();
        pair.gits.git(["pack-refs", "--all"]).run().ok();
        commit(&pair.repository(), edits).expect("no refusal");
        pair.compare();
        assert_eq!(pair.ours.refs().len(), pair.gits.refs().len());
    }
}

#[test]
fn what_git_wrote_is_read_alike() {
    for format in FORMATS {
        let repo = Repo::init(format);
        let objects = repo.objects();
        let mut script = String::new();
        for (number, tag) in objects.tags.iter().enumerate() {
            script += &format!("update refs/tags/{number} {}\n", tag.id);
            script += &format!("update refs/x-{}/{number}/y {}\n", number % 7, objects.tree);
        }
        repo.update_refs(script.clone() + &format!("update HEAD {}\n", objects.commits[5]));
        repo.git(["pack-refs", "--include=refs/x-3/*", "--include=refs/tags/*"])
            .run()
            .ok();
        repo.git(["update-ref", "ORIG_HEAD", &objects.commits[7]])
            .run()
            .ok();
        repo.update_refs(format!(
            "update refs/tags/7 {}\n",
            objects.nested_tags[0].id
        ));
        let worktree = repo.worktree("side");
        let bisect = ["update-ref", "refs/bisect/bad", &objects.commits[3]];
        worktree.git(bisect).run().ok();
        for (git_dir, listed) in [
            (repo.git_dir(), repo.refs()),
            (worktree.git_dir.clone(), worktree.refs()),
        ] {
            let repository = open(&git_dir);
            let mut refs = repository.store().refs().expect("refs");
            let mut found = Vec::new();
            while let Some(record) = refs.next().expect("a record") {
                let text = record.name.to_string();
                let resolved = repository.store().resolve(record.name).expect("readable");
                found.push((text, resolved.map(|resolved| resolved.oid.to_string())));
            }
            let listed: Vec<_> = listed
                .iter()
                .map(|listed| (listed.name.to_string(), Some(listed.id.clone())))
                .collect();
            assert_eq!(found, listed, "{}", git_dir.display());
        }
    }
}

#[test]
fn a_lock_of_git_is_told_as_git_tells_it() {
    let repo = Repo::init(Format::FILES_SHA1);
    let first = repo.objects().commits[0].clone();
    let git_dir = repo.git_dir();
    for key in ["core.filesRefLockTimeout", "core.packedRefsTimeout"] {
        repo.config(key, "0");
    }
    // Behind Git's words stands how long the lock is there, and what to do.
    let refuse = |edit: Edit<'static>| {
        let error = commit(&open(&git_dir), vec![edit]).expect_err("a lock is held");
        let message = error.to_string();
        let (gits, more) = message.split_once(". It was made ").expect("its age");
        assert!(more.contains("remove the file"), "{more}");
        format!("fatal: {gits}\n")
    };
    let gits = |script: String| {
        let out = repo.git(["update-ref", "--stdin"]).stdin(script).run();
        String::from_utf8(out.stderr).expect("text")
    };
    fs::write(git_dir.join("refs/heads/held.lock"), "").expect("room");
    let script = format!("update refs/heads/held {first}\n");
    assert_eq!(
        refuse(update("refs/heads/held", &first)),
        gits(script.clone())
    );
    fs::write(
        git_dir.join("refs/heads/held~pid.lock"),
        format!("pid {}\n", std::process::id()),
    )
    .expect("room");
    repo.config("core.lockfilePid", "true");
    assert_eq!(refuse(update("refs/heads/held", &first)), gits(script));
    repo.update_refs(format!("update refs/heads/a {first}\n"));
    fs::write(git_dir.join("packed-refs.lock"), "").expect("room");
    assert_eq!(
        refuse(delete("refs/heads/a")),
        gits("delete refs/heads/a\n".to_owned())
    );
}

#[test]
fn what_is_in_the_way_is_told_as_git_tells_it() {
    let repo = Repo::init(Format::FILES_SHA1);
    let first = repo.objects().commits[0].clone();
    let git_dir = repo.git_dir();
    repo.update_refs(format!(
        "update refs/heads/a {first}\nupdate refs/heads/d/e/f {first}\nupdate refs/tags/t {first}\n"
    ));
    repo.git(["pack-refs"]).run().ok();
    fs::write(git_dir.join("refs/heads/junk"), "junk").expect("room");
    fs::create_dir_all(git_dir.join("refs/heads/full")).expect("room");
    fs::write(git_dir.join("refs/heads/full/.file"), "").expect("room");
    fs::create_dir_all(git_dir.join("logs/refs/heads/logged")).expect("room");
    // A reflog that says no more than a creation is what a killed process leaves, and goes.
    let line = format!("{first} {first} A <a@b> 1 +0000\n");
    fs::write(git_dir.join("logs/refs/heads/logged/x"), line).expect("room");
    for refused in [
        "refs/heads/a/b",
        "refs/heads/d",
        "refs/heads/d/e",
        "refs/heads/junk",
        "refs/heads/junk/x",
        "refs/heads/full",
        "refs/heads/logged",
        "refs/tags/t/u",
    ] {
        let error = commit(&open(&git_dir), vec![update(refused, &first)]).expect_err(refused);
        let script = format!("update {refused} {first}\n");
        let out = repo.git(["update-ref", "--stdin"]).stdin(script).run();
        let theirs = String::from_utf8(out.stderr).expect("text");
        let theirs = theirs.replace("'.git/", &format!("'{}/", git_dir.display()));
        let theirs = theirs.replace(" .git/", &format!(" {}/", git_dir.display()));
        assert_eq!(format!("fatal: {error}\n"), theirs);
    }
}

#[test]
fn reflogs_are_read_as_git_reads_them() {
    let repo = Repo::init(Format::FILES_SHA1);
    let commits = &repo.objects().commits;
    for (number, hex) in commits.iter().take(300).enumerate() {
        let message = format!("step {number} {}", "x".repeat(number * 3));
        repo.git(["update-ref", "-m", &message, "HEAD", hex])
            .run()
            .ok();
    }
    let repository = open(&repo.git_dir());
    let head = name("HEAD");
    let read = |order| {
        let log = repository
            .store()
            .log(RefName::from(&head), order)
            .expect("readable");
        let entries = log.expect("there").into_iter();
        entries
            .map(|entry| (entry.new.to_string(), entry.message.to_string()))
            .collect::<Vec<_>>()
    };
    let newest = read(LogOrder::NewestFirst);
    let mut oldest = read(LogOrder::OldestFirst);
    let out = repo
        .git(["log", "-g", "--format=%H %gs", "HEAD"])
        .run()
        .text();
    let gits: Vec<_> = out
        .lines()
        .map(|line| line.split_once(' ').expect("two fields"))
        .map(|(hex, message)| (hex.to_owned(), message.to_owned()))
        .collect();
    assert_eq!(newest, gits);
    oldest.reverse();
    assert_eq!(oldest, newest);
}

#[test]
fn no_ref_is_missed_while_git_packs_and_refdb_writes() {
    let repo = Repo::init(Format::FILES_SHA1);
    let objects = repo.objects();
    let names: Vec<String> = (0..40)
        .map(|number| format!("refs/heads/d{}/{number}", number % 3))
        .collect();
    let script: String = names
        .iter()
        .map(|name| format!("update {name} {}\n", objects.commits[0]))
        .collect();
    repo.update_refs(script);
    let stop = Arc::new(AtomicBool::new(false));
    let git_dir = repo.git_dir();
    thread::scope(|scope| {
        let packer = scope.spawn(|| {
            let mut runs = 0;
            while !stop.load(Ordering::Relaxed) {
                // A ref that is being written stays loose, and Git reports it.
                let _ = repo.git(["pack-refs", "--all"]).run();
                runs += 1;
            }
            runs
        });
        let reader = scope.spawn(|| {
            let repository = open(&git_dir);
            let mut rounds = 0;
            while !stop.load(Ordering::Relaxed) {
                let mut refs = repository.store().refs().expect("refs");
                refs.seek_prefix(b"refs/heads/").expect("refs");
                let mut count = 0;
                while refs.next().expect("a record").is_some() {
                    count += 1;
                }
                assert_eq!(count, names.len());
                for text in &names {
                    let found = repository.store().read(RefName::from(&name(text)));
                    assert!(found.expect("readable").is_some(), "{text}");
                }
                rounds += 1;
            }
            rounds
        });
        let repository = open(&git_dir);
        let mut last = 0;
        for round in 1..150 {
            let text = &names[round % names.len()];
            // Git may hold the lock for the moment in which it prunes the ref.
            if commit(&repository, vec![update(text, &objects.commits[round])]).is_ok() {
                last = round;
                let found = repository.store().resolve(RefName::from(&name(text)));
                let found = found.expect("readable").expect("there").oid.to_string();
                assert_eq!(found, objects.commits[round]);
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(packer.join().expect("no panic") > 0);
        assert!(reader.join().expect("no panic") > 0);
        assert!(last > 0);
    });
    repo.assert_sound();
}
