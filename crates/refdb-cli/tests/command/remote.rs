//! Stores in buckets: the command becomes `refdb-remote`, which is looked for beside it and in `PATH`.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use refdb_testkit::Format;
use refdb_testkit::oracle::{self, GitRun};
use refdb_testkit::repo::Repo;

/// The command, alone in a folder.
fn alone(dir: &Path, repo: &Repo) -> GitRun {
    let program = dir.join("refdb");
    if !program.exists() {
        std::fs::copy(env!("CARGO_BIN_EXE_refdb"), &program).expect("a copy");
    }
    oracle::run_of(&program, repo.path())
}

/// Puts a program there that says how it was called.
fn stand_in(dir: &Path, word: &str) {
    let path = dir.join("refdb-remote");
    let script =
        format!("#!/bin/sh\nprintf '{word} %s' \"$PWD\"\nprintf ' <%s>' \"$@\"\ncat\nexit 7\n");
    std::fs::write(&path, script).expect("a script");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("a mode");
}

#[test]
fn without_the_program_the_command_says_how_to_get_it() {
    let (dir, repo) = (
        tempfile::tempdir().expect("a folder"),
        Repo::init(Format::ALL[0]),
    );
    repo.config("refdb.store", "s3://bucket/x");
    let calls: [&[&str]; 5] = [
        &["for-each-ref"],
        &["--store=az://container", "show-ref"],
        &["store", "init", "gs://bucket"],
        &["probe", "s3://bucket"],
        &["update-ref", "refs/heads/a", "HEAD"],
    ];
    for args in calls {
        let output = alone(dir.path(), &repo).args(args).run();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.code(), 128, "{said}");
        assert!(
            said.starts_with("fatal: ") && said.lines().count() == 1,
            "{said}"
        );
        assert!(said.contains("needs the program refdb-remote"), "{said}");
        assert!(
            said.contains("cargo install --locked --path crates/refdb-remote"),
            "{said}"
        );
    }
}

#[test]
fn the_command_becomes_the_program_with_the_same_arguments_and_input() {
    let (dir, repo) = (
        tempfile::tempdir().expect("a folder"),
        Repo::init(Format::ALL[0]),
    );
    let elsewhere = tempfile::tempdir().expect("a folder");
    stand_in(elsewhere.path(), "path");
    let here = repo.path().canonicalize().expect("a path");
    let here = here.display();
    let path = format!("{}:/usr/bin:/bin", elsewhere.path().display());
    let run = |args: &[&str]| {
        let run = alone(dir.path(), &repo).args(args).env("PATH", &path);
        let output = run.stdin("some input").run();
        assert_eq!(
            output.code(),
            7,
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    // What stands before the command word takes effect once.
    let said = run(&[
        "-C",
        ".",
        "--store=s3://b/x",
        "-c",
        "a.b=c",
        "update-ref",
        "--stdin",
    ]);
    let args = "<-c> <refdb.store=s3://b/x> <-c> <a.b=c> <update-ref> <--stdin>";
    assert_eq!(said, format!("path {here} {args}some input"));
    let said = run(&["store", "status", "gs://b"]);
    assert_eq!(
        said,
        format!("path {here} <store> <status> <gs://b>some input")
    );
    // Beside the command goes first.
    stand_in(dir.path(), "beside");
    repo.config("refdb.store", "az://c");
    let said = run(&["refs", "list"]);
    assert_eq!(said, format!("beside {here} <refs> <list>some input"));
    repo.config("refdb.store", "");
    // A store in a folder needs nothing of that.
    let url = format!("file://{}", elsewhere.path().join("store").display());
    alone(dir.path(), &repo)
        .args(["store", "init", &url])
        .run()
        .ok();
}
