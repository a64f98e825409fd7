//! How far something is, for whoever waits: on a terminal, or where it is asked for, and nowhere else.

#![allow(clippy::print_stderr, reason = "says what cannot be tried here")]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use refdb_testkit::repo::Repo;
use refdb_testkit::{RefFormat, for_every_format, oracle};

/// What says that a command waits.
const WORDS: &str = "Optimizing refs";

/// Makes a repository in which packing waits for a lock, for longer than a second.
fn locked(format: refdb_testkit::Format) -> Repo {
    let repo = Repo::init(format);
    let commit = &repo.objects().commits[0];
    repo.update_refs(format!("create refs/heads/a {commit}\n"));
    let lock = match format.refs {
        RefFormat::Files => "packed-refs.lock",
        RefFormat::Reftable => "reftable/tables.list.lock",
    };
    repo.config("core.packedRefsTimeout", "2600");
    repo.config("reftable.lockTimeout", "2600");
    fs::write(repo.git_dir().join(lock), "").expect("a lock of another program");
    repo
}

fn run(program: &Path, repo: &Repo, args: &[&str]) -> String {
    let out = Command::new(program)
        .args(args)
        .current_dir(repo.path())
        .env_clear()
        .envs(oracle::environment())
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .output()
        .expect("the program can be run");
    assert!(!out.status.success(), "the lock stays");
    let text = [out.stdout, out.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}

for_every_format! {
    fn it_is_told_where_it_is_asked_for(format) {
        let repo = locked(format);
        let refdb = Path::new(env!("CARGO_BIN_EXE_refdb"));
        let told = run(refdb, &repo, &["refs", "optimize", "--progress"]);
        let lines: Vec<&str> = told.lines().filter(|line| line.starts_with(WORDS)).collect();
        assert!(!lines.is_empty(), "{told}");
        assert!(lines.iter().all(|line| line.ends_with(" s")), "{told}");
        assert!(!told.contains('\x1b'), "{told:?}");
        if format.refs == RefFormat::Reftable {
            // In `files` this lock is not in its way.
            for (option, is_told) in [("--progress", true), ("--no-progress", false)] {
                let expire = ["reflog", "expire", "--expire=now", option, "--all"];
                let told = run(refdb, &repo, &expire);
                assert_eq!(told.contains("Expiring reflogs"), is_told, "{told}");
            }
        }
        for args in [&["refs", "optimize"][..], &["pack-refs", "--no-progress"]] {
            let told = run(refdb, &repo, args);
            assert!(!told.contains(WORDS), "{told}");
        }
        let script = Path::new("/usr/bin/script");
        if !script.exists() {
            eprintln!("not tried on a terminal: there is no {}", script.display());
            return;
        }
        for (call, is_shown) in [("refs optimize", true), ("refs optimize --no-progress", false)] {
            let line = format!("{} {call}", refdb.display());
            let told = run(script, &repo, &["-qec", &line, "/dev/null"]);
            assert_eq!(told.contains(WORDS), is_shown, "{call}: {told:?}");
        }
    }
}
