//! Many transactions that arrive together on the standard input of `update-ref`: refdb publishes
//! them together where it can, and nobody may notice.

#![allow(clippy::print_stderr, reason = "says what cannot be tried here")]

use std::collections::BTreeSet;
use std::fmt::Write;
use std::io::{BufRead, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use bstr::ByteSlice;
use refdb_testkit::oracle::{Output, run_of};
use refdb_testkit::repo::Repo;
use refdb_testkit::rng::Rng;
use refdb_testkit::{Format, for_every_format, oracle};

/// The names are few, so that transactions get in each other's way.
const NAMES: &[&str] = &[
    "refs/heads/main",
    "refs/heads/a",
    "refs/heads/a/b",
    "refs/heads/a/b/c",
    "refs/heads/topic",
    "refs/tags/one",
    "refs/tags/two",
    "refs/x/1",
    "refs/x/2",
    "HEAD",
];

/// Writes one command.
fn command(rng: &mut Rng, ids: &[String], zero: &str, text: &mut String) {
    let name = *rng.pick(NAMES);
    let new = rng.pick(ids);
    let old = match rng.below(8) {
        0 => format!(" {}", rng.pick(ids)),
        1 => format!(" {zero}"),
        _ => String::new(),
    };
    let done = match rng.below(100) {
        0..55 => writeln!(text, "update {name} {new}{old}"),
        55..70 => writeln!(text, "create {name} {new}"),
        70..84 => writeln!(text, "delete {name}{}", old.replace(zero, "")),
        // In files, Git may add an entry to the reflog of HEAD when that or its branch is verified.
        84..88 if !matches!(name, "refs/heads/main" | "HEAD") => {
            writeln!(text, "verify {name}{old}")
        }
        88..91 => writeln!(text, "option no-deref"),
        91..94 => writeln!(text, "update {name} refs/heads/main"),
        94..96 => writeln!(text, "symref-update refs/heads/link {name}"),
        96..98 => writeln!(text, "delete refs/heads/link"),
        _ => writeln!(text, "update \"{name}\" {new}"),
    };
    done.expect("a string takes everything");
}

/// Writes transactions, most of them of one or two commands.
fn stream(seed: u64, ids: &[String], zero: &str) -> String {
    let mut rng = Rng::new(seed);
    let mut text = String::new();
    for _ in 0..2 + rng.below(25) {
        text.push_str("start\n");
        for _ in 0..rng.below(3) {
            command(&mut rng, ids, zero, &mut text);
        }
        text.push_str(match rng.below(40) {
            0 => "prepare\ncommit\n",
            1 => "abort\n",
            2 => "start\n",
            3 => "nonsense\n",
            _ => "commit\n",
        });
    }
    text
}

fn run(program: &std::path::Path, repo: &Repo, seed: u64, text: &str) -> Output {
    let message = format!("seed {seed}");
    run_of(program, repo.path())
        .args(["update-ref", "-m", &message, "--stdin"])
        .stdin(text)
        .run()
}

/// Compares what both programs say and leave behind.
fn compare(format: Format, seeds: std::ops::Range<u64>) {
    let ours = std::path::Path::new(env!("CARGO_BIN_EXE_refdb"));
    let start = Repo::init(format);
    let ids = &start.objects().commits;
    let mut codes = BTreeSet::new();
    for seed in seeds {
        let text = stream(seed, ids, &format.zero());
        let (theirs, twin) = (start.duplicate(), start.duplicate());
        let git = run(oracle::program(), &theirs, seed, &text);
        let refdb = run(ours, &twin, seed, &text);
        codes.insert(git.code());
        let shown = |out: &Output| {
            let (stdout, stderr) = (out.stdout.as_bstr(), out.stderr.as_bstr());
            format!("exit {}\n{stdout}--\n{stderr}", out.code())
        };
        let answers = |out: &Output| (out.code(), out.stdout.clone(), out.stderr.clone());
        assert!(
            answers(&git) == answers(&refdb),
            "seed {seed}:\n{text}\nGit: {}\nrefdb: {}",
            shown(&git),
            shown(&refdb)
        );
        assert_eq!(theirs.state(), twin.state(), "seed {seed}:\n{text}");
    }
    assert_eq!(codes.len(), 2, "some streams end well and some do not");
}

/// Gives `text` to `update-ref --stdin` as a file, all of which is there from the beginning; returns
/// what it made of these system calls. `None`, with the reason printed, where nobody can look on.
fn traced(repo: &Repo, calls: &str, text: &str) -> Option<String> {
    let strace = std::path::Path::new("/usr/bin/strace");
    if !strace.exists() {
        eprintln!("skipped: there is no /usr/bin/strace");
        return None;
    }
    let input = repo.path().join("input");
    std::fs::write(&input, text).expect("room for the input");
    let trace = repo.path().join("trace");
    let out = Command::new(strace)
        .args(["-f", "-e", &format!("trace={calls}"), "-o"])
        .arg(&trace)
        .args([env!("CARGO_BIN_EXE_refdb"), "update-ref", "--stdin"])
        .current_dir(repo.path())
        .env_clear()
        .envs(oracle::environment())
        .stdin(std::fs::File::open(&input).expect("the input"))
        .output()
        .expect("strace starts");
    assert!(out.status.success(), "{}", out.stderr.as_bstr());
    Some(std::fs::read_to_string(trace).expect("strace writes text"))
}

for_every_format! {
    fn transactions_that_arrive_together_come_to_the_same(format) {
        compare(format, 0..80);
    }

    fn what_arrived_with_a_failure_is_kept_up_to_it(format) {
        let repo = Repo::init(format);
        let id = &repo.objects().commits[0];
        let mut text = String::new();
        for at in 0..500 {
            writeln!(text, "start\ncreate refs/heads/{at} {id}\ncommit").expect("a string");
        }
        text.push_str(&format!("start\ncreate refs/heads/7 {id}\ncommit\n"));
        let ours = std::path::Path::new(env!("CARGO_BIN_EXE_refdb"));
        let out = run(ours, &repo, 0, &text);
        assert_eq!(out.code(), 128);
        assert_eq!(out.stdout.lines_with_terminator().count(), 1001);
        assert_eq!(repo.refs().len(), 500);
    }

    fn streams_longer_than_a_pipe_come_to_the_same(format) {
        let start = Repo::init(format);
        let ids = &start.objects().commits;
        // Long names, as each transaction takes Git its time.
        let name = |at: usize| format!("refs/heads/{}/{at}", "x".repeat(200));
        let mut text = String::new();
        for at in 0..700 {
            let id = &ids[at % ids.len()];
            writeln!(text, "start\nupdate {} {id}\ncommit", name(at % 600)).expect("a string");
        }
        assert!(text.len() > 2 * (64 << 10));
        // The last one fails.
        writeln!(text, "start\ncreate {} {}\ncommit", name(0), ids[0]).expect("a string");
        let (theirs, twin) = (start.duplicate(), start.duplicate());
        let git = run(oracle::program(), &theirs, 1, &text);
        let ours = run(std::path::Path::new(env!("CARGO_BIN_EXE_refdb")), &twin, 1, &text);
        assert_eq!((ours.code(), &ours.stderr), (git.code(), &git.stderr));
        assert!(ours.stdout == git.stdout, "the same answers");
        assert_eq!(theirs.state(), twin.state());
    }

    fn who_waits_for_answers_gets_them_however_much_was_sent(format) {
        let repo = Repo::init(format);
        let id = &repo.objects().commits[0];
        let mut child = Command::new(env!("CARGO_BIN_EXE_refdb"))
            .args(["update-ref", "--stdin"])
            .current_dir(repo.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("refdb starts");
        let mut input = child.stdin.take().expect("a pipe");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let (sender, answers) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in output.lines() {
                sender.send(line.expect("text")).expect("somebody listens");
            }
        });
        let mut at = 0;
        for count in [1, 3000, 1] {
            for _ in 0..count {
                let transaction = format!("start\ncreate refs/heads/{at} {id}\ncommit\n");
                input.write_all(transaction.as_bytes()).expect("refdb reads");
                at += 1;
            }
            for _ in 0..count {
                for expected in ["start: ok", "commit: ok"] {
                    let answer = answers.recv_timeout(Duration::from_secs(60));
                    assert_eq!(answer.as_deref(), Ok(expected), "of {count}");
                }
            }
        }
        drop(input);
        assert!(child.wait().expect("it ends").success());
    }

    fn no_lock_is_kept_for_the_whole_of_a_long_stream(format) {
        let repo = Repo::init(format);
        let id = &repo.objects().commits[0];
        // More than any machine checks in the time for which transactions are gathered.
        let mut text = String::new();
        for at in 0..10_000 {
            writeln!(text, "start\ncreate refs/tags/{at} {id}\ncommit").expect("a string");
        }
        let Some(trace) = traced(&repo, "rename,renameat,renameat2", &text) else {
            return;
        };
        assert_eq!(repo.refs().len(), 10_000);
        let is_published = |line: &&str| {
            ["/tables.list\"", "\"packed-refs\""].iter().any(|name| line.contains(name))
        };
        let published = trace.lines().filter(is_published).count();
        assert!((2..5000).contains(&published), "published {published} times");
    }

    fn what_arrived_together_is_one_write(format) {
        let repo = Repo::init(format);
        let id = &repo.objects().commits[0];
        let mut text = String::new();
        for at in 0..300 {
            writeln!(text, "start\ncreate refs/heads/{at} {id}\ncommit").expect("a string");
        }
        let Some(trace) = traced(&repo, "fsync,syncfs", &text) else {
            return;
        };
        assert_eq!(repo.refs().len(), 300);
        let syncs = trace.lines().filter(|line| line.contains("sync")).count();
        assert!(syncs > 0 && syncs < 100, "{syncs} syncs for 300 transactions");
    }
}
