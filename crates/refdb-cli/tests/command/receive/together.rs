//! Pushes that processes of one machine take at once: few commits, and nothing is lost when one of them dies.

#![allow(clippy::print_stderr, reason = "says what was tried")]

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Output};

use refdb_testkit::dialogue::wait_until;
use refdb_testkit::format::ObjectFormat;
use refdb_testkit::repo::Repo;

use super::hostile::{packet, started};
use super::{Scene, listed_by_git, push, refdb, sound};

fn folder(host: &Repo) -> PathBuf {
    host.git_dir().join("refdb-committer")
}

/// Keeps anybody from leading, until it is dropped.
fn kept_from_leading(host: &Repo) -> File {
    let _ = std::fs::create_dir(folder(host));
    let options = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .to_owned();
    let file = options.open(folder(host).join("leader")).expect("a file");
    file.lock().expect("it is locked");
    file
}

fn waiting(host: &Repo) -> usize {
    let files = std::fs::read_dir(folder(host)).expect("a folder").flatten();
    let requests = files.filter(|file| file.file_name().as_encoded_bytes().ends_with(b".request"));
    // One that is not whole is being written, and is not looked at by whoever leads.
    let contents = requests.filter_map(|file| std::fs::read(file.path()).ok());
    contents
        .filter(|content| content.ends_with(b"end\n"))
        .count()
}

fn generation(host: &Repo) -> u64 {
    let status = refdb(host, &["store", "status", "--json"]).text();
    let (_, after) = status.split_once("\"generation\":").expect("a number");
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number")
}

/// Starts a process that takes a push of a ref of its own.
fn one_of_many(host: &Repo, at: usize) -> Child {
    let commit = &host.objects().commits[at % 4];
    let null = "0".repeat(commit.len());
    let command = packet(format!("{null} {commit} refs/many/{at}").as_bytes());
    let greeting = packet(b"version=1\0atomic\n");
    started(
        host,
        &[&greeting, b"0000".as_slice(), &command, b"0000"].concat(),
    )
}

fn said_well(output: &Output, at: usize) -> bool {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success() && text.contains(&format!("ok refs/many/{at}"))
}

fn assert_whole(host: &Repo, count: usize) {
    let listed = listed_by_git(host);
    assert_eq!(
        listed
            .lines()
            .filter(|line| line.contains("refs/many/"))
            .count(),
        count,
        "{listed}"
    );
    assert_eq!(listed, refdb(host, &["for-each-ref"]).text());
    sound(host);
    assert_eq!(waiting(host), 0);
    assert!(!folder(host).join("claim").exists());
}

#[test]
fn processes_that_wait_are_one_commit() {
    let many = std::env::var("REFDB_RECEIVE_MANY").ok();
    let many: usize = many.and_then(|many| many.parse().ok()).unwrap_or(16);
    let scene = Scene::new(ObjectFormat::Sha1, 1);
    let host = scene.host();
    let kept = kept_from_leading(host);
    let before = generation(host);
    let children: Vec<Child> = (0..many).map(|at| one_of_many(host, at)).collect();
    wait_until("all wait", || waiting(host) == many);
    drop(kept);
    for (at, child) in children.into_iter().enumerate() {
        let output = child.wait_with_output().expect("it ends");
        assert!(said_well(&output, at), "{output:?}");
    }
    let written = generation(host) - before;
    eprintln!("{many} processes that waited: {written} commits");
    assert_eq!(written, 1);
    assert_whole(host, many);
}

/// One leads, commits for all, and is killed before anybody is answered.
#[test]
fn who_waits_for_a_leader_that_dies_behind_its_commit_is_answered() {
    const MANY: usize = 6;
    let scene = Scene::new(ObjectFormat::Sha1, 2);
    let (host, other) = (scene.host(), &scene.hosts[1]);
    // What another host has pushed cannot be had here at first.
    std::fs::remove_file(host.git_dir().join("objects/info/alternates")).expect("a file");
    let tree = format!("{}^{{tree}}", scene.pusher.objects().commits[0]);
    let tree = scene.pusher.git(["rev-parse", &tree]).run().text();
    let new = scene
        .pusher
        .git(["commit-tree", "-m", "there", tree.trim()])
        .run()
        .text();
    let there = format!("{}:refs/heads/there", new.trim());
    assert_eq!(push(&scene.pusher, other, &[&there]).code(), 0);
    let from = scene.pusher.git_dir();
    let fetch = format!(
        "test -e killed || {{ touch killed; kill -9 $PPID; }}; while read oid name; do GIT_DIR={} git cat-file commit \
         $oid | git hash-object -t commit -w --stdin; done; true",
        from.display()
    );
    host.config("refdb.fetchObjects", &fetch);
    let kept = kept_from_leading(host);
    let before = generation(host);
    let children: Vec<Child> = (0..MANY).map(|at| one_of_many(host, at)).collect();
    wait_until("all wait", || waiting(host) == MANY);
    drop(kept);
    let mut killed = 0;
    for (at, child) in children.into_iter().enumerate() {
        let output = child.wait_with_output().expect("it ends");
        match output.status.signal() {
            Some(9) => killed += 1,
            _ => assert!(said_well(&output, at), "{output:?}"),
        }
    }
    assert_eq!(killed, 1);
    assert_eq!(generation(host) - before, 1);
    assert_whole(host, MANY);
}

/// Returns which of these processes leads.
fn leader(host: &Repo, children: &[Child]) -> Option<usize> {
    use std::os::unix::fs::MetadataExt;
    let inode = std::fs::metadata(folder(host).join("leader")).ok()?.ino();
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let holds = |child: &Child| {
        locks.lines().any(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            !words.contains(&"->")
                && words.get(4) == Some(&child.id().to_string().as_str())
                && words
                    .get(5)
                    .is_some_and(|it| it.ends_with(&format!(":{inode}")))
        })
    };
    children.iter().position(holds)
}

/// One leads, has written down what it is about to send, and is killed before it does.
#[test]
fn who_waits_for_a_leader_that_dies_before_its_commit_is_committed_once() {
    const MANY: usize = 6;
    let scene = Scene::new(ObjectFormat::Sha1, 1);
    let host = scene.host();
    if !Path::new("/proc/locks").exists() {
        eprintln!("not tried: nothing tells here who holds a lock");
        return;
    }
    let kept = kept_from_leading(host);
    let before = generation(host);
    let mut children: Vec<Child> = (0..MANY).map(|at| one_of_many(host, at)).collect();
    wait_until("all wait", || waiting(host) == MANY);
    // It is somebody else's turn to replace the head of the store.
    let store = File::open(scene.store().join("head")).expect("a folder");
    store.lock().expect("it is locked");
    drop(kept);
    wait_until("a claim is there", || folder(host).join("claim").exists());
    let leads = leader(host, &children).expect("somebody leads");
    children[leads].kill().expect("it is killed");
    children[leads].wait().expect("it ends");
    drop(store);
    for (at, child) in children.into_iter().enumerate() {
        let output = child.wait_with_output().expect("it ends");
        match at == leads {
            true => assert_eq!(output.status.signal(), Some(9)),
            false => assert!(said_well(&output, at), "{output:?}"),
        }
    }
    // An empty one in the place of the one that was not sent, and one for the rest.
    assert_eq!(generation(host) - before, 2);
    assert_whole(host, MANY - 1);
}
