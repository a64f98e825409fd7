//! Migrations of a repository with a worktree, in both directions: killed at a system call, the
//! repository is whole for Git before anybody else has looked at it, whichever command comes next
//! can do its work, and nothing is left to be removed by hand.
//!
//! `REFDB_MIGRATION_KILLS` says how many points are tried, of all directions and object formats.

use refdb_testkit::state::State;

use super::*;

/// How many points every test run tries.
const SHORT: u64 = 200;

const WORKTREE: &str = ".git/..linked/w";

/// What Git reads in both worktrees: listings, reflogs, and the worktree itself.
#[derive(Debug, PartialEq)]
struct Whole {
    listed: [String; 2],
    stored: [State; 2],
}

impl Whole {
    fn read(repo: &Repo) -> Whole {
        let dirs = [repo.path().to_owned(), repo.path().join(WORKTREE)];
        let git_dirs = [repo.git_dir(), repo.git_dir().join("worktrees/w")];
        Whole {
            listed: dirs.map(|dir| listed_by_git(&dir)),
            stored: git_dirs.map(|dir| {
                let mut state = State::read(&dir);
                // What stands in the place of branches in a worktree of tables is no ref to Git.
                state.refs.remove(b"refs/heads".as_bstr());
                state
            }),
        }
    }
}

/// A repository with refs of every kind, and a worktree in the middle of a bisection, which can be
/// copied.
fn repository(format: Format) -> Repo {
    let repo = base(format);
    let commits = &repo.objects().commits;
    let tag = &repo.objects().tags[0].id;
    repo.update_refs(format!(
        "create refs/tags/annotated {tag}\ncreate refs/stash {c}\ncreate ORIG_HEAD {c}\n\
         symref-create refs/remotes/o/HEAD refs/remotes/o/main\ncreate refs/remotes/o/main {c}\n\
         create refs/bisect/bad {c}\ncreate refs/pull/1/head {c}\n",
        c = commits[1],
    ));
    repo.quiet_branch("refs/heads/quiet", &commits[0]);
    repo.config("worktree.useRelativePaths", "true");
    let worktree = repo.worktree("w");
    let script = format!(
        "create refs/bisect/good {c}\ncreate refs/worktree/own {c}\nupdate HEAD {c}\n\
         update ORIG_HEAD {c}\n",
        c = commits[2],
    );
    let update = worktree.git(["update-ref", "--create-reflog", "-m", "own", "--stdin"]);
    update.stdin(script).run().ok();
    repo
}

/// What may be done first after the migration was killed: where, and what.
fn next_commands(repo: &Repo) -> Vec<(&'static str, Vec<String>)> {
    let commit = &repo.objects().commits[5];
    let commands: [(&str, &[&str]); 9] = [
        (".", &["update-ref", "refs/heads/main", commit]),
        (".", &["update-ref", "refs/topic/x/y", commit]),
        (".", &["update-ref", "refs/tags/packed", commit]),
        (".", &["update-ref", "-d", "refs/heads/both"]),
        (".", &["symbolic-ref", "HEAD", "refs/heads/side"]),
        (".", &["pack-refs", "--all"]),
        (".", &["reflog", "expire", "--expire=all", "--all"]),
        (WORKTREE, &["update-ref", "HEAD", commit]),
        (WORKTREE, &["update-ref", "refs/bisect/good-1", commit]),
    ];
    let owned = |args: &[&str]| args.iter().map(|arg| (*arg).to_owned()).collect();
    commands.map(|(dir, args)| (dir, owned(args))).to_vec()
}

/// What a migration should not leave, nor what follows it.
fn left(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a folder").flatten() {
        let (path, kind) = (entry.path(), entry.file_type().expect("its kind"));
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".lock") || name.starts_with("refdb") || kind.is_symlink() {
            found.push(path);
        } else if kind.is_dir() && name != "objects" && name != "..linked" {
            left(&path, found);
        }
    }
}

struct Direction {
    base: Repo,
    to: String,
    whole: Whole,
    calls: Vec<Call>,
}

impl Direction {
    fn new(format: Format) -> Direction {
        let base = repository(format);
        let to = match format.refs {
            RefFormat::Files => "--ref-format=reftable",
            RefFormat::Reftable => "--ref-format=files",
        };
        let repo = base.duplicate();
        let log = repo.path().join("strace");
        let args = ["refs", "migrate", to];
        traced(repo.path(), &args, "", &log, None).ok();
        let whole = Whole::read(&base);
        assert_eq!(Whole::read(&repo), whole, "without a kill");
        let calls = calls(&fs::read_to_string(&log).expect("strace writes text"));
        Direction {
            base,
            to: to.to_owned(),
            whole,
            calls,
        }
    }

    fn kill(&self, number: usize, at: &Call) {
        let repo = self.base.duplicate();
        let dir = repo.path();
        let log = dir.join("strace");
        let commands = next_commands(&repo);
        let (place, next) = &commands[number % commands.len()];
        let context = format!(
            "{} from {}, killed at {at:?}, then {next:?} in {place}",
            self.to,
            repo.format()
        );
        let _ = traced(dir, &["refs", "migrate", &self.to], "", &log, Some(at));
        // Git comes first: nothing of refdb has mended anything yet.
        assert_eq!(Whole::read(&repo), self.whole, "{context}");
        check_by_git(dir, &context);
        let next: Vec<&str> = next.iter().map(String::as_str).collect();
        let out = refdb(&dir.join(place), &next, "");
        assert!(out.status.success(), "{context}: {out:?}");
        assert_eq!(listed_by_refdb(dir), listed_by_git(dir), "{context}");
        let mut found = Vec::new();
        left(&repo.git_dir(), &mut found);
        assert_eq!(found, Vec::<PathBuf>::new(), "{context}");
        // And Git goes on, with refs, worktrees, configuration.
        let commit = &repo.objects().commits[6];
        for name in [
            "refs/heads/after",
            "refs/heads/loose",
            "refs/tags/packed",
            "refs/new/er/x",
        ] {
            repo.git(["update-ref", name, commit]).run().ok();
        }
        let worktree = oracle::git(dir.join(WORKTREE));
        worktree.args(["update-ref", "HEAD", commit]).run().ok();
        repo.git(["config", "some.key", "value"]).run().ok();
        repo.git(["pack-refs", "--all"]).run().ok();
        // So does the next migration.
        let before = Whole::read(&repo);
        let again = match repo
            .git(["rev-parse", "--show-ref-format"])
            .run()
            .text()
            .trim()
        {
            "files" => "--ref-format=reftable",
            _ => "--ref-format=files",
        };
        let out = refdb(dir, &["refs", "migrate", again], "");
        assert!(
            out.status.success() && out.stderr.is_empty(),
            "{context}: {out:?}"
        );
        assert_eq!(
            Whole::read(&repo),
            before,
            "{context}: after another migration"
        );
    }
}

#[test]
fn a_killed_migration_leaves_a_repository_that_is_whole_and_can_be_used() {
    let seed = budget("REFDB_KILL_SEED", 1);
    if !can_kill(WHAT, seed) {
        return;
    }
    let mut directions = Vec::new();
    for refs in [RefFormat::Files, RefFormat::Reftable] {
        for objects in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
            directions.push(Direction::new(Format { refs, objects }));
        }
    }
    let mut points = Vec::new();
    for direction in &directions {
        let calls = direction.calls.iter().enumerate();
        points.extend(calls.map(|(number, at)| (direction, number, at)));
    }
    eprintln!("{} system calls of migrations", points.len());
    let most = budget("REFDB_MIGRATION_KILLS", SHORT);
    try_points(points, most, seed, |(direction, number, at)| {
        direction.kill(*number, at);
    });
}
