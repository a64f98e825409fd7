//! A signal that ends the command: its locks are given back, so that Git, which fails on a lock that is
//! left, can go on.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use refdb_testkit::dialogue::wait_until;
use refdb_testkit::format::RefFormat;
use refdb_testkit::repo::Repo;
use refdb_testkit::rng::Rng;
use refdb_testkit::{Format, for_every_format};

const SIGNALS: [(&str, i32); 4] = [("HUP", 1), ("INT", 2), ("QUIT", 3), ("TERM", 15)];

/// How long a busy machine may take for anything.
const PATIENCE: Duration = Duration::from_secs(30);

/// Returns what a write leaves that has not ended well.
fn left(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_left = name.ends_with(".lock") || name.starts_with("refdb");
        if is_left || path.is_symlink() {
            found.push(path);
        } else if path.is_dir() {
            found.extend(left(&path));
        }
    }
    found
}

fn refdb(repo: &Repo, args: &[&str]) -> Command {
    // Whoever runs the tests in the background may have them ignore SIGINT, and so would the command.
    let mut command = Command::new("env");
    command
        .args(["--default-signal", env!("CARGO_BIN_EXE_refdb")])
        .current_dir(repo.path())
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn send(signal: &str, child: &Child) {
    let killed = Command::new("kill")
        .args([format!("-{signal}"), child.id().to_string()])
        .status()
        .expect("it starts");
    assert!(killed.success());
}

fn ended(mut child: Child) -> ExitStatus {
    let since = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            return status;
        }
        if since.elapsed() > PATIENCE {
            let _ = child.kill();
            panic!("it does not end");
        }
        sleep(Duration::from_millis(2));
    }
}

fn is_reftable(format: Format) -> bool {
    format.refs == RefFormat::Reftable
}

/// Says that nothing is left, nothing changed, and Git can write.
fn gave_back(repo: &Repo, before: &[u8], what: &str) {
    let left = left(&repo.git_dir());
    assert!(left.is_empty(), "{what}: {left:?}");
    assert_eq!(refs(repo), before, "{what}");
    let commit = &repo.objects().commits[0];
    repo.git(["update-ref", "refs/heads/dir/1", commit])
        .run()
        .ok();
    repo.git(["update-ref", "-d", "refs/heads/dir/1"])
        .run()
        .ok();
}

fn refs(repo: &Repo) -> Vec<u8> {
    repo.git(["for-each-ref"]).run().ok()
}

fn prepared(repo: &Repo, count: usize) -> Child {
    let commit = &repo.objects().commits[0];
    let mut child = refdb(repo, &["update-ref", "--stdin"])
        .spawn()
        .expect("it starts");
    let mut text = String::from("start\n");
    for number in 0..count {
        writeln!(text, "create refs/heads/dir/{number} {commit}").expect("memory");
    }
    text.push_str("prepare\n");
    let input = child.stdin.as_mut().expect("a pipe");
    input.write_all(text.as_bytes()).expect("it reads");
    let mut answers = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    for expected in ["start: ok", "prepare: ok"] {
        let answer = answers.next().expect("an answer").expect("text");
        assert_eq!(answer, expected);
    }
    child
}

for_every_format! {
    fn a_prepared_transaction_gives_its_locks_back(format) {
        let repo = Repo::init(format);
        let before = refs(&repo);
        for (signal, number) in SIGNALS {
            // Alone, with a journal, packed at once, and read ahead by a second thread.
            for count in [1, 3, 100, 2000] {
                let child = prepared(&repo, count);
                assert!(!left(&repo.git_dir()).is_empty());
                send(signal, &child);
                assert_eq!(ended(child).signal(), Some(number));
                gave_back(&repo, &before, &format!("{format}: {signal}, {count} refs"));
            }
        }
    }

    fn who_waits_for_a_lock_gives_back_what_he_has(format) {
        let repo = Repo::init(format);
        let commit = repo.objects().commits[0].clone();
        for setting in ["core.filesRefLockTimeout", "reftable.lockTimeout"] {
            repo.config(setting, "-1");
        }
        let before = refs(&repo);
        let lock = match is_reftable(format) {
            true => "reftable/tables.list.lock",
            false => "refs/heads/z.lock",
        };
        let lock = repo.git_dir().join(lock);
        for (signal, number) in SIGNALS {
            fs::write(&lock, "").expect("room");
            let mut child = refdb(&repo, &["update-ref", "--stdin"]).spawn().expect("it starts");
            let mut input = child.stdin.take().expect("a pipe");
            let text = format!("create refs/heads/a {commit}\ncreate refs/heads/z {commit}\n");
            input.write_all(text.as_bytes()).expect("it reads");
            drop(input);
            let first = repo.git_dir().join("refs/heads/a.lock");
            wait_until("it waits", || is_reftable(format) || first.exists());
            sleep(Duration::from_millis(100));
            send(signal, &child);
            assert_eq!(ended(child).signal(), Some(number));
            fs::remove_file(&lock).expect("the lock of another program stays");
            gave_back(&repo, &before, &format!("{format}: {signal}"));
        }
    }

    fn who_waits_for_a_hook_gives_back_what_he_has(format) {
        let repo = Repo::init(format);
        let commit = repo.objects().commits[0].clone();
        let before = refs(&repo);
        let hook = repo.git_dir().join("hooks/reference-transaction");
        fs::create_dir_all(hook.parent().expect("a directory")).expect("room");
        // It ends when the test does, whatever becomes of the command.
        let script = "#!/bin/sh\ntest $1 != prepared || { touch called; exec sleep 60; }\n";
        fs::write(&hook, script).expect("room");
        fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).expect("its own file");
        for (signal, number) in SIGNALS {
            let child = refdb(&repo, &["update-ref", "refs/heads/new", &commit]).spawn();
            let child = child.expect("it starts");
            let called = [repo.path().join("called"), repo.git_dir().join("called")];
            wait_until("the hook is called", || called.iter().any(|path| path.exists()));
            called.iter().for_each(|path| drop(fs::remove_file(path)));
            send(signal, &child);
            assert_eq!(ended(child).signal(), Some(number));
            let kept = hook.with_extension("kept");
            fs::rename(&hook, &kept).expect("its own file");
            gave_back(&repo, &before, &format!("{format}: {signal}"));
            fs::rename(&kept, &hook).expect("its own file");
        }
    }

    /// The state is the old or the new one, whenever the signal comes.
    fn large_writes_leave_nothing_whenever_it_comes(format) {
        let repo = Repo::init(format);
        let commit = repo.objects().commits[0].clone();
        // How long the disk takes has nothing to do with it.
        repo.config("core.fsync", "none");
        let many = |verb: &str, value: &str| {
            let line = |number| format!("{verb} refs/heads/many/{number}{value}\n");
            (0..1000).map(line).collect::<String>()
        };
        let other = if is_reftable(format) { "files" } else { "reftable" };
        let migrate = format!("--ref-format={other}");
        let works: [(&[&str], String); 5] = [
            (&["update-ref", "--stdin"], many("create", &format!(" {commit}"))),
            (&["pack-refs", "--all", "--prune"], String::new()),
            (&["reflog", "expire", "--all", "--expire=now"], String::new()),
            (&["refs", "migrate", &migrate], String::new()),
            (&["update-ref", "--stdin"], many("delete", "")),
        ];
        let mut rng = Rng::new(22);
        let mut signalled = 0;
        for (args, input) in works {
            // So long it takes on this machine, when nobody disturbs it.
            let copy = repo.duplicate();
            let begun = Instant::now();
            run(&copy, args, &input);
            let whole = begun.elapsed();
            let after = refs(&copy);
            for _ in 0..6 {
                let copy = repo.duplicate();
                let before = refs(&copy);
                let mut child = refdb(&copy, args).spawn().expect("it starts");
                let mut pipe = child.stdin.take().expect("a pipe");
                let text = input.clone();
                let writer = std::thread::spawn(move || drop(pipe.write_all(text.as_bytes())));
                sleep(whole * u32::try_from(rng.below(100)).expect("small") / 100);
                send("TERM", &child);
                signalled += usize::from(ended(child).signal() == Some(15));
                writer.join().expect("no panic");
                let left = left(&copy.git_dir());
                assert!(left.is_empty(), "{format}: {args:?}: {left:?}");
                let now = refs(&copy);
                assert!(now == before || now == after, "{format}: {args:?}");
                copy.git(["update-ref", "refs/heads/dir/1", &commit]).run().ok();
            }
            if args[1] != "migrate" {
                run(&repo, args, &input);
            }
        }
        assert!(signalled > 5, "{signalled} ended by the signal");
    }
}

fn run(repo: &Repo, args: &[&str], input: &str) {
    let mut child = refdb(repo, args).spawn().expect("it starts");
    let mut pipe = child.stdin.take().expect("a pipe");
    pipe.write_all(input.as_bytes()).expect("it reads");
    drop(pipe);
    assert!(ended(child).success(), "{args:?}");
}

/// Whoever starts a command with `nohup` wants it to go on.
#[test]
fn a_signal_that_is_ignored_stays_so() {
    let repo = Repo::init(Format::FILES_SHA1);
    let commit = repo.objects().commits[0].clone();
    let mut child = Command::new("/bin/sh")
        .current_dir(repo.path())
        .args(["-c", "trap '' HUP; exec \"$0\" update-ref --stdin"])
        .arg(env!("CARGO_BIN_EXE_refdb"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut input = child.stdin.take().expect("a pipe");
    let mut answers = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut answer = || answers.next().expect("an answer").expect("text");
    let text = format!("start\ncreate refs/heads/new {commit}\nprepare\n");
    input.write_all(text.as_bytes()).expect("it reads");
    assert_eq!(
        (answer(), answer()),
        ("start: ok".into(), "prepare: ok".into())
    );
    send("HUP", &child);
    sleep(Duration::from_millis(50));
    input.write_all(b"commit\n").expect("it reads");
    assert_eq!(answer(), "commit: ok");
    drop(input);
    assert!(ended(child).success());
}
