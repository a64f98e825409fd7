//! Real Git and the command in twin repositories, with any environment and in any folder.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use refdb_testkit::repo::Repo;
use refdb_testkit::{Format, oracle};

/// Two repositories with the same content.
pub(crate) struct Twins {
    pub(crate) git: Repo,
    pub(crate) ours: Repo,
}

/// What a command line comes to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Twins {
    /// Makes repositories with two branches, an annotated tag, and folders in the work tree.
    pub(crate) fn new(format: Format) -> Twins {
        let git = Repo::init(format);
        std::fs::create_dir_all(git.path().join("sub/deep")).expect("a folder");
        let objects = git.objects();
        git.update_refs(format!(
            "create refs/heads/main {0}\ncreate refs/heads/side {0}\ncreate refs/tags/t {1}\n",
            objects.commits[0], objects.tags[0].id
        ));
        let ours = git.duplicate();
        Twins { git, ours }
    }

    /// Returns both repositories, to be given the same content.
    pub(crate) fn both(&self) -> [&Repo; 2] {
        [&self.git, &self.ours]
    }

    /// Runs the same in both, in the folder `below`, and returns what both answered.
    #[track_caller]
    pub(crate) fn same(
        &self,
        below: &str,
        env: &[(&str, &str)],
        args: &[&str],
        stdin: &str,
    ) -> Answer {
        let ours = Path::new(env!("CARGO_BIN_EXE_refdb"));
        let [expected, actual] = [(oracle::program(), &self.git), (ours, &self.ours)]
            .map(|(program, repo)| answer(program, repo, below, env, args, stdin));
        assert_eq!(actual, expected, "{env:?} {args:?} in {below}");
        expected
    }

    /// Checks that both hold the same refs and reflogs.
    #[track_caller]
    pub(crate) fn assert_same_state(&self) {
        assert_eq!(self.ours.state(), self.git.state());
    }
}

/// Runs a program; `<repo>` and `{c}` in what it is given are the repository's path and a commit.
pub(crate) fn answer(
    program: &Path,
    repo: &Repo,
    below: &str,
    env: &[(&str, &str)],
    args: &[&str],
    stdin: &str,
) -> Answer {
    let root = repo.path().to_str().expect("UTF-8");
    let fill = |text: &str| {
        let text = text.replace("<repo>", root);
        text.replace("{c}", &repo.objects().commits[1])
    };
    let mut child = Command::new(program)
        .args(args.iter().map(|arg| fill(arg)))
        .current_dir(repo.path().join(below))
        .env_clear()
        .envs(oracle::environment())
        .envs(env.iter().map(|(name, value)| (name, fill(value))))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be run");
    let mut pipe = child.stdin.take().expect("it is a pipe");
    let input = fill(stdin);
    let out = std::thread::scope(|scope| {
        scope.spawn(move || pipe.write_all(input.as_bytes()));
        child.wait_with_output().expect("the program ends")
    });
    // A prefix is the path without its first slash; the program says what it is called.
    let text = |bytes: Vec<u8>| {
        let text = String::from_utf8_lossy(&bytes).replace(root, "<repo>");
        let text = text.replace(root.trim_start_matches('/'), "<repo>");
        text.replace("refdb ", "git ")
    };
    let (mut stdout, mut stderr) = (text(out.stdout), text(out.stderr));
    let mut code = out.status.code();
    if let (Some(code), true) = (&mut code, program == oracle::program()) {
        oracle::as_newest(code, &mut stdout, &mut stderr);
    }
    Answer {
        code,
        stdout,
        stderr,
    }
}
