//! What is answered where there is no repository, or none that may be opened: beside Git.

use std::path::Path;
use std::process::{Command, Stdio};

use refdb_testkit::oracle;

/// Exit code, standard output and standard error of a program in a folder.
fn answer(
    program: &Path,
    dir: &Path,
    env: &[(&str, &str)],
    args: &[&str],
) -> (i32, String, String) {
    let out = Command::new(program)
        .args(args)
        .current_dir(dir)
        .env_clear()
        .envs(oracle::environment())
        .env(
            "GIT_CEILING_DIRECTORIES",
            dir.parent().expect("a folder in a folder"),
        )
        .envs(env.iter().copied())
        .stdin(Stdio::null())
        .output()
        .expect("the program can be run");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).replace("refdb ", "git ");
    let mut code = out.status.code().unwrap_or(-1);
    let (mut stdout, mut stderr) = (text(out.stdout), text(out.stderr));
    if program == oracle::program() {
        oracle::as_newest(&mut code, &mut stdout, &mut stderr);
    }
    (code, stdout, stderr)
}

#[track_caller]
fn assert_same(dir: &Path, env: &[(&str, &str)], args: &[&str]) {
    let git = answer(oracle::program(), dir, env, args);
    let ours = answer(Path::new(env!("CARGO_BIN_EXE_refdb")), dir, env, args);
    assert_eq!(ours, git, "{args:?}");
}

#[test]
fn names_are_checked_without_a_repository() {
    let dir = tempfile::tempdir().expect("a folder");
    let nowhere = [("GIT_DIR", "/nonexistent")];
    for env in [&[][..], &nowhere] {
        assert_same(dir.path(), env, &["check-ref-format", "refs/heads/main"]);
        assert_same(
            dir.path(),
            env,
            &["check-ref-format", "--normalize", "/refs//heads"],
        );
        assert_same(dir.path(), env, &["check-ref-format", "main"]);
        for name in ["main", "@", "@{-1}", "@{u}", "main@{u}", "-x", "HEAD"] {
            assert_same(dir.path(), env, &["check-ref-format", "--branch", name]);
        }
    }
    assert_same(dir.path(), &[], &["check-ref-format"]);
    assert_same(dir.path(), &[], &["check-ref-format", "-h"]);
}

/// A script whose variable is empty names no repository: not the directory that it is in, either.
#[test]
fn an_empty_name_is_that_of_no_repository() {
    let repo = refdb_testkit::repo::Repo::init(refdb_testkit::Format::FILES_SHA1);
    let git_dir = repo.git_dir();
    for args in [
        &["pack-refs"][..],
        &["symbolic-ref", "HEAD"],
        &["for-each-ref"],
    ] {
        assert_same(&git_dir, &[("GIT_DIR", "")], args);
        assert_same(repo.path(), &[("GIT_DIR", "")], args);
    }
    assert_same(&git_dir, &[], &["--git-dir=", "symbolic-ref", "HEAD"]);
}
