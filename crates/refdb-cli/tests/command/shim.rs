//! `refdb install-shim`: a `git` that answers for refs as Git does, and runs the real Git for all else.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use refdb_testkit::repo::Repo;
use refdb_testkit::{Format, for_every_format, oracle};

/// A shim in a folder of its own, and a Git behind it that says that it was called.
struct Shim {
    folder: tempfile::TempDir,
    /// Where the recording Git is; behind it stands the real one.
    recorder: PathBuf,
}

/// Notes each of its calls, and becomes the real Git.
const RECORDER: &str = "#!/bin/sh\necho called >>\"$CALLS\"\nexec \"$REAL_GIT\" \"$@\"\n";

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn install(dir: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_refdb"))
        .args([Path::new("install-shim"), dir])
        .current_dir("/")
        .output()
        .expect("the program can be run")
}

impl Shim {
    fn new() -> Shim {
        let folder = tempfile::tempdir().expect("a folder");
        let out = install(&folder.path().join("shim"));
        assert!(out.status.success(), "{}", text(&out.stderr));
        let recorder = folder.path().join("recorder");
        fs::create_dir(&recorder).expect("a folder");
        let program = recorder.join("git");
        fs::write(&program, RECORDER).expect("a file");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a file of ours");
        Shim { folder, recorder }
    }

    fn git(&self) -> PathBuf {
        self.folder.path().join("shim/git")
    }

    /// Returns the environment of a call: the shim stands first in `PATH`.
    fn environment(&self) -> Vec<(OsString, OsString)> {
        let mut all = oracle::environment();
        let calls = self.folder.path().join("calls");
        let path = format!(
            "{}:{}:/usr/bin:/bin",
            self.folder.path().join("shim").display(),
            self.recorder.display()
        );
        all.retain(|(name, _)| name != "PATH");
        all.push(("PATH".into(), path.into()));
        all.push(("CALLS".into(), calls.into()));
        all.push(("REAL_GIT".into(), oracle::program().into()));
        all
    }

    /// Runs a program in the environment of the shim; tells whether the real Git was called.
    fn run(
        &self,
        program: &Path,
        repo: &Repo,
        env: &[(&str, &str)],
        args: &[&str],
    ) -> (Output, bool) {
        let calls = self.folder.path().join("calls");
        let _ = fs::remove_file(&calls);
        let commit = &repo.objects().commits[0];
        let out = Command::new(program)
            .args(args.iter().map(|arg| arg.replace("{c}", commit)))
            .current_dir(repo.path())
            .env_clear()
            .envs(self.environment())
            .envs(env.iter().copied())
            .output()
            .expect("the program can be run");
        (out, calls.exists())
    }

    /// Runs the same by the shim and by Git itself, which must answer the same; returns whether the
    /// shim left it to the real Git.
    #[track_caller]
    fn same(&self, twins: &[Repo; 2], env: &[(&str, &str)], args: &[&str]) -> bool {
        let [git, ours] = twins;
        let (expected, _) = self.run(oracle::program(), git, env, args);
        let (actual, is_left) = self.run(&self.git(), ours, env, args);
        let seen = |out: &Output, repo: &Repo| {
            let of =
                |bytes: &[u8]| text(bytes).replace(&repo.path().display().to_string(), "<repo>");
            (out.status.code(), of(&out.stdout), of(&out.stderr))
        };
        assert_eq!(
            seen(&actual, ours),
            seen(&expected, git),
            "{env:?} {args:?}"
        );
        is_left
    }
}

fn twins(format: Format) -> [Repo; 2] {
    let git = Repo::init(format);
    fs::create_dir(git.path().join("sub")).expect("a folder");
    let commit = git.objects().commits[0].clone();
    git.update_refs(format!(
        "create refs/heads/main {commit}\ncreate refs/tags/t {commit}\n"
    ));
    let ours = git.duplicate();
    [git, ours]
}

for_every_format! {
    fn a_shim_answers_for_refs_itself(format) {
        let (shim, twins) = (Shim::new(), twins(format));
        for args in [
            &["update-ref", "refs/heads/a", "{c}"][..],
            &["-C", "sub", "update-ref", "refs/heads/b", "{c}"],
            &["--git-dir=.git", "update-ref", "refs/heads/c", "{c}"],
            &["--git-dir", ".git", "--bare", "show-ref"],
            &["--namespace=n", "--work-tree", ".", "show-ref", "--heads"],
            &["-c", "core.logAllRefUpdates=always", "update-ref", "refs/x/d", "{c}"],
            &["--no-pager", "for-each-ref", "--sort=-refname"],
            &["symbolic-ref", "HEAD"],
            &["pack-refs", "--all"],
            &["refs", "list"],
            &["refs", "exists", "refs/heads/none"],
            &["refs", "verify"],
            &["check-ref-format", "--branch", "main"],
            &["reflog", "list"],
            &["reflog", "exists", "refs/x/d"],
            &["reflog", "expire", "--all"],
            // What is wrong with a call is told in the words of `git`.
            &["show-ref", "--verify"],
            &["update-ref", "refs/heads/a", "nonsense"],
            &["refs", "exists"],
            &["refs", "verify", "x"],
            &["reflog", "nonsense"],
        ] {
            assert!(!shim.same(&twins, &[], args), "{args:?}");
        }
        let [git, ours] = &twins;
        let (out, is_left) = shim.run(&shim.git(), ours, &[], &["update-ref", "refs/heads/a"]);
        let told = text(&out.stderr);
        assert_eq!((out.status.code(), is_left), (Some(129), false), "{told}");
        assert!(told.starts_with("usage: git update-ref "), "{told}");
        assert_eq!(ours.state(), git.state());
    }

    fn a_shim_leaves_all_else_to_git(format) {
        let (shim, twins) = (Shim::new(), twins(format));
        for args in [
            &["--version"][..],
            &["status", "--short"],
            &["-C", "sub", "-c", "alias.x=show-ref", "x"],
            &["-c", "alias.show-ref=status", "log", "-1", "--format=%H"],
            &["branch", "topic"],
            &["rev-parse", "--git-dir"],
            &["nonsense"],
            &["inspect"],
            &["batch"],
            &["man"],
            &["install-shim", "x"],
            &["--store=file:///x", "show-ref"],
            &["--literal-pathspecs", "show-ref"],
            &["--exec-path"],
            &["show-ref", "-h"],
            &["refs", "-h"],
            &["refs", "migrate", "--undo"],
            &["refs", "verify", "--deep"],
            &["refs", "repair"],
            &["for-each-ref", "--json"],
            &["for-each-ref", "--nonsense"],
            &["reflog", "--json"],
            &["update-ref", "--git-completion-helper"],
            &[],
            &["-C"],
            &["-C", "none", "show-ref"],
            &["--git-dir=none", "show-ref"],
            &["-c", "core.bare=nonsense", "-C", "sub", "show-ref"],
        ] {
            // Where nothing is there to go to, the message is the same without the real Git.
            let is_left = shim.same(&twins, &[], args);
            assert!(is_left || args == ["-C", "none", "show-ref"], "{args:?}");
        }
        let [git, ours] = &twins;
        assert_eq!(ours.state(), git.state());
    }

    fn a_shim_lets_git_write_traces_and_open_what_is_newer(format) {
        let (shim, twins) = (Shim::new(), twins(format));
        // What it writes itself is no reason.
        assert!(!shim.same(&twins, &[("GIT_TRACE2_EVENT", "0")], &["show-ref"]));
        assert!(shim.same(&twins, &[("GIT_TRACE2_ENV_VARS", "HOME")], &["show-ref"]));
        assert!(shim.same(&twins, &[("GIT_TRACE", "0")], &["show-ref"]));
        for repo in &twins {
            repo.config("trace2.envVars", "HOME");
        }
        assert!(shim.same(&twins, &[], &["-C", "sub", "show-ref"]));
        for repo in &twins {
            repo.git(["config", "--unset", "trace2.envVars"]).run().ok();
            repo.config("core.repositoryFormatVersion", "1");
            repo.config("extensions.nonsense", "true");
        }
        assert!(shim.same(&twins, &[], &["-C", "sub", "-P", "show-ref"]));
    }
}

#[test]
fn the_git_that_is_run_is_none_of_the_shims() {
    let repo = Repo::init(Format::FILES_SHA1);
    let (one, other) = (Shim::new(), Shim::new());
    let copy = other.folder.path().join("copy");
    fs::create_dir(&copy).expect("a folder");
    fs::copy(env!("CARGO_BIN_EXE_refdb"), copy.join("git")).expect("a copy");
    let (first, second) = (
        one.folder.path().join("shim"),
        other.folder.path().join("shim"),
    );
    let run = |program: &Path, dirs: &[&Path]| {
        let path: Vec<_> = dirs.iter().map(|dir| dir.display().to_string()).collect();
        let out = one
            .run(program, &repo, &[("PATH", &path.join(":"))], &["--version"])
            .0;
        (out.status.code(), text(&out.stdout), text(&out.stderr))
    };
    let version = (
        Some(0),
        format!("git version {}\n", oracle::version()),
        String::new(),
    );
    let real = oracle::program().parent().expect("a program has a folder");
    let shim = first.join("git");
    // By its name in PATH, by its path alone, twice, beside another one and beside a copy.
    for dirs in [
        &[first.as_path(), real][..],
        &[real],
        &[real, &first, real],
        &[&first, &second, &first, real],
        &[&first, &copy, real],
        &[&copy, &first, real],
        &[&copy, &first, &copy, real],
        &[real, &first],
        &[&first, real, &first],
        &[&copy, real, &first],
        &[&first, real, &copy, &second],
        &[
            &first,
            Path::new("/nonexistent"),
            Path::new("/dev/null"),
            real,
        ],
    ] {
        assert_eq!(run(&shim, dirs), version, "{dirs:?}");
        assert_eq!(run(&copy.join("git"), dirs), version, "{dirs:?}");
    }
    for dirs in [
        &[first.as_path()][..],
        &[],
        &[&copy, &first],
        &[&first, &copy, &second],
    ] {
        let (code, _, errors) = run(&shim, dirs);
        assert_eq!(code, Some(127), "{dirs:?}: {errors}");
        assert!(errors.contains("none in PATH: name"), "{errors}");
    }
}

#[test]
fn a_shim_replaces_none_but_a_shim() {
    let folder = tempfile::tempdir().expect("a folder");
    let link = folder.path().join("git");
    fs::write(&link, "mine").expect("a file");
    let out = install(folder.path());
    assert_eq!(out.status.code(), Some(128));
    assert!(
        text(&out.stderr).contains("is there already"),
        "{}",
        text(&out.stderr)
    );
    assert_eq!(fs::read(&link).expect("a file"), b"mine");
    fs::remove_file(&link).expect("a file");
    symlink("/usr/bin/git", &link).expect("a link");
    assert_eq!(install(folder.path()).status.code(), Some(128));
    fs::remove_file(&link).expect("a link");
    // One of a refdb that has moved, and then its own.
    symlink("/nonexistent/refdb", &link).expect("a link");
    for _ in 0..2 {
        let out = install(folder.path());
        assert!(out.status.success(), "{}", text(&out.stderr));
        let ours = fs::canonicalize(env!("CARGO_BIN_EXE_refdb")).expect("a program");
        assert_eq!(fs::canonicalize(&link).expect("a link"), ours);
    }
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    let below_a_file = folder.path().join("git/below");
    assert_eq!(install(&below_a_file).status.code(), Some(128));
}
