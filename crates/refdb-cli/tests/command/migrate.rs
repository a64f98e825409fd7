//! `refdb refs migrate`: what it leaves beside what Git leaves, worktrees, other writers, processes
//! that know nothing of it.

// Long: one command, whose tests share what they make and compare.

#![allow(clippy::print_stderr, reason = "says what was not tried")]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bstr::{BString, ByteSlice};
use refdb_testkit::clone_like::clone_like;
use refdb_testkit::oracle::{self, GitRun};
use refdb_testkit::repo::{Listed, Repo, Worktree};
use refdb_testkit::state::State;
use refdb_testkit::{Format, RefFormat, for_every_format};

/// How many refs the large repositories have, unless `REFDB_REFS` says otherwise.
const REFS: usize = 2000;
const WORKTREES: usize = 5;

fn refdb(dir: &Path) -> GitRun {
    oracle::run_of(env!("CARGO_BIN_EXE_refdb"), dir)
}

fn other(format: RefFormat) -> RefFormat {
    match format {
        RefFormat::Files => RefFormat::Reftable,
        RefFormat::Reftable => RefFormat::Files,
    }
}

fn migrate(repo: &Repo, to: RefFormat) -> GitRun {
    let format = format!("--ref-format={}", to.name());
    refdb(repo.path()).args(["refs", "migrate", &format])
}

#[track_caller]
fn migrate_silently(repo: &Repo, to: RefFormat) {
    let out = migrate(repo, to).run();
    assert!(out.status.success(), "{}", out.stderr.as_bstr());
    assert_eq!(
        (out.stdout.as_bstr(), out.stderr.as_bstr()),
        (b"".as_bstr(), b"".as_bstr())
    );
}

/// For how long a migration waits for slow processes, if no other has written meanwhile.
const WAITED_ALONE: Duration = Duration::from_secs(2);

/// Returns which format Git takes the repository for.
fn format_of(repo: &Repo) -> String {
    let show = repo.git(["rev-parse", "--show-ref-format"]).run().text();
    show.trim().to_owned()
}

/// Everything that Git reads, in the main worktree and in the others.
#[derive(Debug, PartialEq)]
struct Everything {
    refs: Vec<Listed>,
    state: State,
    worktrees: BTreeMap<PathBuf, (Vec<Listed>, State)>,
}

fn everything(repo: &Repo, worktrees: &[Worktree]) -> Everything {
    let of = |worktree: &Worktree| (worktree.refs(), own_state(worktree));
    Everything {
        refs: repo.refs(),
        state: repo.state(),
        worktrees: worktrees
            .iter()
            .map(|it| (it.path.clone(), of(it)))
            .collect(),
    }
}

/// Returns what Git finds fault with: some of the objects are damaged on purpose.
fn fsck(repo: &Repo) -> Vec<BString> {
    let fsck = repo.git(["fsck", "--no-dangling"]).run();
    let said = [fsck.stdout.as_slice(), fsck.stderr.as_slice()].concat();
    let mut lines: Vec<BString> = said.lines().map(BString::from).collect();
    lines.sort();
    lines
}

fn own_state(worktree: &Worktree) -> State {
    worktree.state()
}

/// Adds what repositories have besides branches: worktrees in the middle of a bisection or a rebase,
/// a stash, empty reflogs, refs of every kind.
fn furnish(repo: &Repo) -> Vec<Worktree> {
    let commits = &repo.objects().commits;
    let script = format!(
        "create refs/stash {c}\ncreate refs/bisect/bad {c}\ncreate refs/worktree/mine {c}\n\
         create refs/rewritten/onto {c}\ncreate ORIG_HEAD {c}\ncreate refs/notes/commits {c}\n\
         create refs/odd/tree {t}\nsymref-create refs/heads/symref refs/heads/main\n\
         symref-create refs/heads/dangling refs/heads/none\n",
        c = commits[1],
        t = repo.objects().tree,
    );
    repo.git(["update-ref", "--create-reflog", "--stdin"])
        .stdin(script)
        .run()
        .ok();
    for commit in &commits[..3] {
        let update = ["update-ref", "-m", "stash", "refs/stash", commit];
        repo.git(update).run().ok();
    }
    repo.quiet_branch("refs/heads/quiet", &commits[0]);
    (0..WORKTREES)
        .map(|at| {
            let worktree = repo.worktree(&format!("w{at}"));
            let script = format!(
                "create refs/bisect/good-{at} {c}\ncreate refs/worktree/own {c}\n\
                 create refs/rewritten/label {c}\ncreate REBASE_HEAD {c}\nupdate ORIG_HEAD {c}\n",
                c = commits[at],
            );
            let update = worktree.git(["update-ref", "--create-reflog", "-m", "own", "--stdin"]);
            update.stdin(script).run().ok();
            worktree
        })
        .collect()
}

fn assert_works(repo: &Repo, worktrees: &[Worktree]) {
    repo.assert_sound();
    let list = repo.git(["worktree", "list", "--porcelain"]).run().text();
    assert_eq!(
        list.matches("worktree ").count(),
        worktrees.len() + 1,
        "{list}"
    );
    for worktree in worktrees {
        worktree.git(["status", "--short"]).run().ok();
        let next = &repo.objects().commits[7];
        worktree
            .git(["update-ref", "-m", "go on", "HEAD", next])
            .run()
            .ok();
        let log = worktree
            .git(["reflog", "-1", "--format=%gs", "HEAD"])
            .run()
            .text();
        assert_eq!(log.trim(), "go on");
    }
}

for_every_format! {
    fn everything_is_there_after_a_migration_and_after_one_back(format) {
        let refs = std::env::var("REFDB_REFS").ok().map_or(REFS, |refs| refs.parse().expect("a number"));
        let repo = clone_like(format, refs).repo;
        let worktrees = furnish(&repo);
        let before = everything(&repo, &worktrees);
        let faults = fsck(&repo);
        for to in [other(format.refs), format.refs] {
            migrate_silently(&repo, to);
            assert_eq!(format_of(&repo), to.name());
            assert_eq!(fsck(&repo), faults);
            let after = everything(&repo, &worktrees);
            assert!(before.state == after.state, "{}", before.state.difference(&after.state));
            assert_eq!(before.refs, after.refs);
            for (path, (refs, state)) in &before.worktrees {
                let (refs_after, state_after) = &after.worktrees[path];
                assert!(state == state_after, "{}", state.difference(state_after));
                assert_eq!(refs, refs_after);
            }
            repo.git(["reflog", "exists", "refs/heads/quiet"]).run().ok();
        }
        assert_works(&repo, &worktrees);
        migrate_silently(&repo, other(format.refs));
        assert_works(&repo, &worktrees);
        assert_eq!(leftovers(&repo), Vec::<String>::new());
    }

    fn no_ref_of_a_worktree_is_packed(format) {
        let repo = Repo::init(format);
        let worktrees = furnish(&repo);
        migrate_silently(&repo, other(format.refs));
        migrate_silently(&repo, format.refs);
        let packed = fs::read_to_string(repo.git_dir().join("packed-refs")).unwrap_or_default();
        for name in ["refs/bisect", "refs/worktree", "refs/rewritten", "HEAD"] {
            assert!(!packed.contains(name), "{packed}");
        }
        assert_works(&repo, &worktrees);
    }

    fn the_same_files_as_git_leaves(format) {
        let ours = Repo::init(format);
        let commit = &ours.objects().commits[1];
        let script = format!(
            "create refs/heads/main {commit}\ncreate refs/tags/light {commit}\n\
             create refs/heads/a/b {commit}\nsymref-create refs/heads/s refs/heads/main\n\
             create ORIG_HEAD {commit}\n"
        );
        ours.update_refs(script);
        let theirs = ours.duplicate();
        for to in [other(format.refs), format.refs, other(format.refs)] {
            migrate_silently(&ours, to);
            let format = format!("--ref-format={}", to.name());
            theirs.git(["refs", "migrate", &format]).run().ok();
            assert_eq!(files(&ours), files(&theirs), "to {}", to.name());
        }
    }

    fn the_configuration_is_what_git_leaves(format) {
        let v = "core.repositoryformatversion";
        let configs: [&[(&str, &str)]; 6] = [
            &[],
            &[("extensions.worktreeConfig", "true")],
            &[(v, "1"), ("extensions.relativeWorktrees", "true")],
            &[(v, "1"), ("extensions.noop-v1", "true"), ("extensions.noop", "1")],
            &[("zz.y", "1")],
            &[(v, "1"), ("extensions.preciousObjects", "true"), ("extensions.partialClone", "o")],
        ];
        for (at, config) in configs.iter().enumerate() {
            let ours = Repo::init(format);
            for (key, value) in *config {
                ours.config(key, value);
            }
            let theirs = ours.duplicate();
            for repo in [&ours, &theirs] {
                let path = repo.git_dir().join("config");
                let mut text = fs::read_to_string(&path).expect("a file of the repository");
                match at {
                    4 => text = text.replace("[core]\n", "# before\n[core] ; with a comment\n# and one\n"),
                    5 => text = text.trim_end().to_owned(),
                    _ => {}
                }
                fs::write(&path, text).expect("a file of the repository");
            }
            for to in [other(format.refs), format.refs] {
                migrate_silently(&ours, to);
                let format = format!("--ref-format={}", to.name());
                theirs.git(["refs", "migrate", &format]).run().ok();
                let text = |repo: &Repo| fs::read_to_string(repo.git_dir().join("config")).expect("a file of the repository");
                assert_eq!(text(&ours), text(&theirs), "{config:?} to {}", to.name());
            }
        }
    }

    fn a_dry_run_changes_nothing_and_leaves_its_copy(format) {
        let repo = Repo::init(format);
        let worktrees = furnish(&repo);
        let before = everything(&repo, &worktrees);
        let to = other(format.refs);
        let said = migrate(&repo, to).arg("--dry-run").run().text();
        let start = "Finished dry-run migration of refs, the result can be found at '.git/ref_migration.";
        assert!(said.starts_with(start) && said.ends_with('\''), "{said}");
        assert_eq!(everything(&repo, &worktrees), before);
        let folder = repo.path().join(said.split('\'').nth(1).expect("a path"));
        for file in ["config", "objects"] {
            let (from, to) = (repo.git_dir().join(file), folder.join(file));
            std::os::unix::fs::symlink(from, to).expect("a file of the repository");
        }
        let listing = oracle::git(&folder)
            .args(["-c", &format!("extensions.refStorage={}", to.name()), "--git-dir=."])
            .args(["for-each-ref", "--format=%(refname)"]);
        assert_eq!(listing.run().code(), 0);
        assert_eq!(format_of(&repo), format.refs.name());
    }

    fn what_is_broken_is_named_or_left_behind(format) {
        let repo = Repo::init(format);
        let commit = repo.objects().commits[1].clone();
        repo.update_refs(format!("create refs/heads/main {commit}\ncreate refs/heads/z {commit}\n"));
        if format.refs == RefFormat::Reftable {
            migrate_silently(&repo, RefFormat::Files);
        }
        for (name, content) in [("empty", ""), ("bad..name", commit.as_str()), ("text", "hello\n")] {
            fs::write(repo.git_dir().join("refs/heads").join(name), content).expect("a file of the repository");
        }
        let before = files(&repo);
        let out = migrate(&repo, RefFormat::Reftable).run();
        assert_eq!(out.code(), 255);
        for name in ["refs/heads/empty", "refs/heads/bad..name", "refs/heads/text"] {
            assert!(out.stderr.contains_str(format!("  {name}: ")), "{}", out.stderr.as_bstr());
        }
        assert_eq!(files(&repo), before, "nothing is changed");
        let out = migrate(&repo, RefFormat::Reftable).args(["--skip-broken", "--keep"]).run();
        assert_eq!(out.code(), 0);
        for name in ["refs/heads/empty", "refs/heads/bad..name", "refs/heads/text"] {
            let line = format!("warning: left behind: {name}: ");
            assert!(out.stderr.contains_str(&line), "{}", out.stderr.as_bstr());
        }
        let names: Vec<BString> = repo.refs().into_iter().map(|listed| listed.name).collect();
        assert_eq!(names, ["HEAD", "refs/heads/main", "refs/heads/z"]);
        assert!(repo.git_dir().join("refdb-kept/refs/heads/text").exists());
    }

    fn lines_of_reflogs_that_are_no_entries_are_told(format) {
        let repo = Repo::init(format);
        let commits = &repo.objects().commits;
        for commit in &commits[..3] {
            repo.git(["update-ref", "-m", "x", "refs/heads/main", commit]).run().ok();
        }
        if format.refs == RefFormat::Files {
            let path = repo.git_dir().join("logs/refs/heads/main");
            let whole = fs::read_to_string(&path).expect("a reflog");
            let (first, rest) = whole.split_once('\n').expect("lines");
            fs::write(&path, format!("{first}\nno entry\nand none\n{rest}cut")).expect("a reflog");
        }
        let to = format!("--ref-format={}", other(format.refs).name());
        let out = refdb(repo.path()).args(["refs", "migrate", "--json", &to]).run();
        assert!(out.status.success(), "{}", out.stderr.as_bstr());
        let said: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
        let lines = match format.refs {
            RefFormat::Files => {
                for place in ["main:2-3: ", "main:6: "] {
                    let place = format!("left behind: .git/logs/refs/heads/{place}");
                    let place = place.replace(".git/", if repo.path() == repo.git_dir() { "./" } else { ".git/" });
                    assert!(out.stderr.contains_str(&place), "{}", out.stderr.as_bstr());
                }
                2
            }
            RefFormat::Reftable => 0,
        };
        let told = said["lost_lines"].as_array().expect("a list");
        assert_eq!(told.len(), lines, "{said}");
        assert_eq!(told.first().map(|told| told["count"].as_u64()), (lines > 0).then_some(Some(2)));
        assert!(said["reflogs"].as_u64() > Some(0), "{said}");
        let log = repo.git(["reflog", "refs/heads/main"]).run().text();
        assert_eq!(log.lines().count(), 3, "{log}");
    }

    fn a_configuration_that_is_locked_is_told_and_left_alone(format) {
        let repo = Repo::init(format);
        furnish(&repo);
        let lock = repo.git_dir().join("config.lock");
        fs::write(&lock, "").expect("a lock of Git's");
        let before = files(&repo);
        let config = fs::read(repo.git_dir().join("config")).expect("a configuration");
        let out = migrate(&repo, other(format.refs)).run();
        let said = out.stderr.to_str_lossy();
        assert!(!out.status.success());
        for part in ["could not lock config file", "config.lock': File exists", "refdb did not make it"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert_eq!(files(&repo), before);
        assert_eq!(fs::read(repo.git_dir().join("config")).expect("still there"), config);
        fs::remove_file(&lock).expect("it goes");
        migrate_silently(&repo, other(format.refs));
        assert!(!lock.exists());
    }

    fn undo_goes_back_and_loses_nothing(format) {
        let repo = Repo::init(format);
        let commits = &repo.objects().commits;
        repo.update_refs(format!("create refs/heads/main {}\n", commits[1]));
        let undo = || refdb(repo.path()).args(["refs", "migrate", "--undo"]).run();
        let out = undo();
        assert_eq!(out.code(), 255);
        assert!(out.stderr.starts_with_str("error: there is nothing to undo"));
        let out = migrate(&repo, other(format.refs)).arg("--keep").run();
        assert_eq!(out.text(), "The old refs are kept in '.git/refdb-kept'");
        repo.update_refs(format!("update refs/heads/main {}\n", commits[2]));
        let before = everything(&repo, &[]);
        assert_eq!(undo().code(), 0);
        assert_eq!(format_of(&repo), format.refs.name());
        assert_eq!(everything(&repo, &[]), before);
        assert_eq!(leftovers(&repo), Vec::<String>::new());
        assert_eq!(undo().code(), 255);
    }

    fn refdb_notices_that_the_refs_were_migrated(format) {
        let commit = Repo::init(format).objects().commits[1].clone();
        for name in ["refs/tags/x", "refs/notes/commits", "refs/heads/x", "ORIG_HEAD"] {
            let repo = Repo::init(format);
            repo.update_refs(format!("create refs/heads/main {commit}\n"));
            let mut stale = Stale::start(env!("CARGO_BIN_EXE_refdb").as_ref(), &repo);
            stale.migrate_beside_it(&repo, other(format.refs));
            assert!(!stale.write(&format!("update {name} {commit}\n")), "{name}: nobody would read it");
            let out = refdb(repo.path()).args(["update-ref", name, &commit]).run();
            assert!(out.status.success(), "{}", out.stderr.as_bstr());
            assert_eq!(leftovers(&repo), Vec::<String>::new(), "{name}");
        }
    }

    fn a_process_that_knows_the_old_format_only_fails(format) {
        let commit = Repo::init(format).objects().commits[1].clone();
        let names = ["refs/heads/main", "refs/heads/new", "refs/heads/deep/er", "HEAD"];
        for program in [oracle::program().as_os_str(), env!("CARGO_BIN_EXE_refdb").as_ref()] {
            for name in names {
                let repo = Repo::init(format);
                repo.update_refs(format!("create refs/heads/main {}\n", repo.objects().commits[0]));
                let mut stale = Stale::start(program, &repo);
                stale.migrate_beside_it(&repo, other(format.refs));
                let before = repo.state();
                let written = stale.write(&format!("update {name} {commit}\n"));
                assert!(!written, "{program:?} {name}: it would be lost");
                assert_eq!(repo.state(), before, "{program:?} {name}");
                repo.assert_sound();
            }
        }
    }
}

for_every_format! {
    fn a_process_that_is_slow_is_waited_for(format) {
        let repo = Repo::init(format);
        let commit = repo.objects().commits[1].clone();
        repo.update_refs(format!("create refs/heads/main {commit}\ncreate refs/tags/one {commit}\n"));
        for name in ["refs/tags/late", "refs/notes/late", "refs/remotes/o/late"] {
            let mut stale = Stale::start(oracle::program().as_os_str(), &repo);
            let to = match format_of(&repo).as_str() {
                "files" => RefFormat::Reftable,
                _ => RefFormat::Files,
            };
            let begun = Instant::now();
            let (written, said) = std::thread::scope(|scope| {
                let migrating = scope.spawn(|| migrate(&repo, to).run());
                // It is over by then, but for what keeps latecomers out.
                while format_of(&repo) != to.name() {
                    std::thread::sleep(Duration::from_millis(5));
                }
                std::thread::sleep(Duration::from_millis(100));
                let written = stale.write(&format!("create {name} {commit}\n"));
                (written, migrating.join().expect("it ends"))
            });
            if written {
                // So slow a process is not waited for, but told of.
                assert!(begun.elapsed() > WAITED_ALONE, "{name} is lost: it was not waited for");
                assert!(said.stderr.contains_str("still run"), "{name} is lost, and nobody is told");
                eprintln!("no time to show that {name} is waited for: this test stood still for {WAITED_ALONE:?}");
                return;
            }
            assert!(said.status.success() && said.stderr.is_empty(), "{}", said.stderr.as_bstr());
            repo.assert_sound();
            assert_eq!(leftovers(&repo), Vec::<String>::new());
        }
        assert_eq!(repo.refs().len(), 3);
    }
}

/// A process that has opened the repository and waits for what to write.
struct Stale(Child);

impl Stale {
    fn start(program: &std::ffi::OsStr, repo: &Repo) -> Stale {
        let mut command = Command::new(program);
        command
            .args(["update-ref", "--stdin"])
            .current_dir(repo.path());
        command.env_clear().envs(oracle::environment());
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("a program");
        // It answers when it has read the configuration.
        let stdin = child.stdin.as_mut().expect("a pipe");
        stdin.write_all(b"start\n").expect("it reads");
        let mut answer = [0; 10];
        let stdout = child.stdout.as_mut().expect("a pipe");
        std::io::Read::read_exact(stdout, &mut answer).expect("an answer");
        assert_eq!(&answer, b"start: ok\n");
        Stale(child)
    }

    /// Migrates; that it runs on is told where it could write what nobody reads.
    #[track_caller]
    fn migrate_beside_it(&self, repo: &Repo, to: RefFormat) {
        let out = migrate(repo, to).run();
        assert!(out.status.success(), "{}", out.stderr.as_bstr());
        let is_told = out
            .stderr
            .contains_str(format!("still run: {};", self.0.id()));
        assert_eq!(
            is_told,
            to == RefFormat::Reftable,
            "{}",
            out.stderr.as_bstr()
        );
    }

    /// Lets it write; returns whether it says that it has.
    fn write(&mut self, line: &str) -> bool {
        let mut stdin = self.0.stdin.take().expect("a pipe");
        // It may have ended.
        let _ = stdin.write_all(format!("{line}commit\n").as_bytes());
        drop(stdin);
        self.0.wait().expect("it ends").success()
    }
}

/// Returns every file and directory but objects and worktrees, with its permissions; names of tables
/// are random, and empty directories stay where refs were.
fn files(repo: &Repo) -> Vec<String> {
    fn walk(dir: &Path, below: &str, found: &mut Vec<String>) {
        for entry in fs::read_dir(dir)
            .expect("a file of the repository")
            .flatten()
        {
            let name = format!("{below}{}", entry.file_name().to_string_lossy());
            if matches!(name.as_str(), "objects" | "worktrees" | "..linked") {
                continue;
            }
            let mode = std::os::unix::fs::PermissionsExt::mode(
                &entry
                    .metadata()
                    .expect("a file of the repository")
                    .permissions(),
            );
            if entry
                .file_type()
                .expect("a file of the repository")
                .is_dir()
            {
                let before = found.len();
                walk(&entry.path(), &format!("{name}/"), found);
                if found.len() == before && !matches!(name.as_str(), "refs/heads" | "refs/tags") {
                    continue;
                }
            }
            let is_table = name.ends_with(".ref");
            let name = if is_table { "a table" } else { &name };
            let content = fs::read_to_string(entry.path()).unwrap_or_default();
            let content = if is_table || name == "reftable/tables.list" {
                String::new()
            } else {
                content
            };
            found.push(format!("{name} {mode:o} {content}"));
        }
    }
    let mut found = Vec::new();
    walk(&repo.git_dir(), "", &mut found);
    found.sort();
    found
}

/// Returns what a migration should have removed.
fn leftovers(repo: &Repo) -> Vec<String> {
    let mut found: Vec<String> = files(repo);
    found.retain(|file| {
        file.contains("refdb") || file.contains(".lock") || file.contains("ref_mig")
    });
    found
}

/// What one of those who write without pause was told.
#[derive(Default)]
struct Acknowledged {
    /// The last value of its branches, and of HEAD in its worktree.
    last: Option<String>,
    /// The tags that it made, each in a process of its own.
    tags: Vec<(String, String)>,
    /// How many entries the reflog of its branch must have.
    moves: usize,
    refused: usize,
}

fn keep_writing(
    program: &Path,
    dir: &Path,
    commits: &[String],
    me: usize,
    stop: &AtomicBool,
) -> Acknowledged {
    let mut told = Acknowledged::default();
    for round in 0_usize.. {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let commit = &commits[(round + 1) % commits.len()];
        let tag = format!("refs/tags/w{me}/{round}");
        let script = match round % 3 {
            0 => format!("create {tag} {commit}\n"),
            _ => format!("update refs/heads/w{me} {commit}\n"),
        };
        let update = ["update-ref", "--create-reflog", "-m", "turn", "--stdin"];
        let out = oracle::run_of(program, dir)
            .args(update)
            .stdin(script)
            .run();
        match (out.status.success(), round % 3) {
            (false, _) => told.refused += 1,
            (true, 0) => told.tags.push((tag, commit.clone())),
            (true, _) => {
                told.last = Some(commit.clone());
                told.moves += 1;
            }
        }
    }
    told
}

for_every_format! {
    fn what_others_write_meanwhile_is_there_afterwards(format) {
        let repo = clone_like(format, 1000).repo;
        let worktrees: Vec<Worktree> = (0..2).map(|at| repo.worktree(&format!("w{at}"))).collect();
        let commits = &repo.objects().commits[..8];
        for me in 0..4 {
            repo.update_refs(format!("create refs/heads/w{me} {}\n", commits[0]));
        }
        let refdb = Path::new(env!("CARGO_BIN_EXE_refdb"));
        let programs = [refdb, oracle::program(), refdb, oracle::program()];
        let stop = AtomicBool::new(false);
        let told: Vec<Acknowledged> = std::thread::scope(|scope| {
            let (repo, stop) = (&repo, &stop);
            let dirs = [repo.path(), repo.path(), &worktrees[0].path, &worktrees[1].path];
            let writers: Vec<_> = programs
                .into_iter()
                .zip(dirs)
                .enumerate()
                .map(|(me, (program, dir))| scope.spawn(move || keep_writing(program, dir, commits, me, stop)))
                .collect();
            let mut said = String::new();
            for to in [other(format.refs), format.refs, other(format.refs)] {
                std::thread::sleep(Duration::from_millis(200));
                said += &migrate(repo, to).run().stderr.to_str_lossy();
            }
            std::thread::sleep(Duration::from_millis(100));
            stop.store(true, Ordering::SeqCst);
            assert_eq!(said, "");
            writers.into_iter().map(|writer| writer.join().expect("a writer")).collect()
        });
        let refs: BTreeMap<String, String> =
            repo.refs().into_iter().map(|listed| (listed.name.to_string(), listed.id)).collect();
        let state = repo.state();
        for (me, told) in told.iter().enumerate() {
            assert!(told.moves > 3, "writer {me}: {} moves, {} refused", told.moves, told.refused);
            for (tag, commit) in &told.tags {
                assert_eq!(refs.get(tag), Some(commit), "{tag} of writer {me} is lost");
            }
            let branch = format!("refs/heads/w{me}");
            assert_eq!(refs.get(&branch), told.last.as_ref(), "{branch} lost an update");
            // The first entry is the creation; one whose writer was refused may be there as well.
            let log = state.log(&branch);
            assert!(log.len() > told.moves, "{branch}: {} entries, {} moves", log.len(), told.moves);
        }
        repo.assert_sound();
        assert_eq!(leftovers(&repo), Vec::<String>::new());
    }
}

/// A new name has nothing that a migration could lock: whoever makes one, by a renaming too, waits for
/// the migration of a process that lives.
#[test]
fn a_new_name_waits_for_a_migration() {
    for format in [Format::FILES_SHA1, Format::FILES_SHA256] {
        let repo = Repo::init(format);
        let commit = &repo.objects().commits[0];
        repo.update_refs(format!("create refs/heads/old {commit}\n"));
        repo.config("core.filesRefLockTimeout", "20000");
        let folder = repo.git_dir().join("refdb-migration");
        fs::create_dir(&folder).expect("it is new");
        fs::write(folder.join("journal"), "from files\nto reftable\n").expect("a file");
        let makes = ["update-ref", "refs/heads/new", commit];
        let renames = ["refs", "rename", "refs/heads/old", "refs/heads/other"];
        for args in [&makes[..], &renames] {
            let guard = fs::File::open(&folder).expect("a folder");
            guard.lock().expect("nobody has it");
            std::thread::scope(|scope| {
                let writes = scope.spawn(|| refdb(repo.path()).args(args).run());
                std::thread::sleep(Duration::from_millis(200));
                assert!(!writes.is_finished(), "{format}: {args:?} does not wait");
                drop(guard);
                writes.join().expect("it ends").ok();
            });
        }
    }
}

/// Git's own migration takes no locks, and removes the old refs: what went with them was not deleted.
#[test]
fn a_migration_by_git_at_the_same_time_is_noticed() {
    for format in [Format::FILES_SHA1, Format::REFTABLE_SHA256] {
        for takes in ["", "rm -rf refs/heads packed-refs reftable HEAD"] {
            let repo = Repo::init(format);
            let commit = &repo.objects().commits[0];
            repo.update_refs(format!(
                "create refs/heads/a {commit}\ncreate refs/tags/t {commit}\n"
            ));
            repo.git(["pack-refs", "--all"]).run().ok();
            let config = fs::read(repo.git_dir().join("config")).expect("a file");
            // The hook is asked about the copy, before the locks are taken.
            let hook = repo.git_dir().join("hooks/reference-transaction");
            fs::create_dir_all(hook.parent().expect("a folder")).expect("a folder");
            let dir = repo.git_dir();
            let script = format!(
                "#!/bin/sh\ncd '{}'\nmkdir -p ref_migration.Abc123\n{takes}\n",
                dir.display()
            );
            fs::write(&hook, script).expect("a file");
            fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).expect("it is ours");
            let out = migrate(&repo, other(format.refs)).run();
            fs::remove_file(&hook).expect("it is there");
            assert!(!out.status.success(), "{format}: {takes}");
            let told = out.stderr.to_str_lossy();
            assert!(told.contains("ref_migration.Abc123"), "{format}: {told}");
            assert_eq!(
                fs::read(repo.git_dir().join("config")).expect("a file"),
                config
            );
            assert!(!repo.git_dir().join("refdb-migration").exists());
            if takes.is_empty() {
                assert_eq!(repo.refs().len(), 2);
                // What is left of it keeps nobody from migrating later.
                migrate_silently(&repo, other(format.refs));
                assert_eq!(repo.refs().len(), 2);
            }
        }
    }
}

/// Git's migration stores tags without what they peel to (2.55), and says of packed-refs that all are peeled. Who asks
/// for the refs of an object finds them: also through a chain of tags, and those of a tree and of a blob.
#[test]
fn tags_that_git_migrated_are_found_by_their_object() {
    for format in [
        Format::FILES_SHA1,
        Format::FILES_SHA256,
        Format::REFTABLE_SHA1,
        Format::REFTABLE_SHA256,
    ] {
        let repo = Repo::init(format);
        let objects = repo.objects();
        let chains = objects.nested_tags.iter();
        let tags: Vec<&str> = (objects.tags.iter().chain(chains))
            .chain([&objects.tree_tag, &objects.blob_tag])
            .map(|tag| tag.id.as_str())
            .collect();
        let named = tags.iter().enumerate();
        let script = named.map(|(at, tag)| format!("create refs/tags/t{at} {tag}\n"));
        let many = (0..300).map(|at| {
            let value = match at % 50 {
                17 => &objects.tree,
                18 => &objects.blob,
                _ => &objects.commits[at % 3],
            };
            format!("create refs/tags/light/{at:03} {value}\n")
        });
        let branch = format!("create refs/heads/main {}\n", objects.commits[0]);
        repo.update_refs(branch + &script.chain(many).collect::<String>());
        repo.git(["pack-refs", "--all"]).run().ok();
        // One way, and back again.
        for to in [other(format.refs), format.refs] {
            let to = format!("--ref-format={}", to.name());
            repo.git(["refs", "migrate", &to]).run().ok();
            refs_of_objects_are_as_git_says(&repo, &tags);
        }
        repo.update_refs(format!("create refs/tags/late {}\n", objects.tags[0].id));
        refs_of_objects_are_as_git_says(&repo, &tags);
        repo.git(["pack-refs", "--all"]).run().ok();
        refs_of_objects_are_as_git_says(&repo, &tags);
    }
}

fn refs_of_objects_are_as_git_says(repo: &Repo, tags: &[&str]) {
    let objects = repo.objects();
    let plain = objects.commits.iter().take(4);
    let plain = plain.chain([&objects.tree, &objects.blob]);
    for object in plain.map(String::as_str).chain(tags.iter().copied()) {
        let points_at = format!("--points-at={object}");
        let list = [
            "for-each-ref",
            "--format=%(refname) %(objectname)",
            &points_at,
        ];
        let git = repo.git(list).run().text();
        let told = refdb(repo.path()).args(list).run().text();
        assert_eq!(told, git, "{object}");
        assert!(!git.is_empty() || !tags.contains(&object), "{object}");
        let asked = format!("points-at {object}\n");
        let told = refdb(repo.path()).arg("batch").stdin(asked).run().text();
        let told: Vec<&str> = told
            .lines()
            .filter_map(|line| line.split(' ').nth(2))
            .collect();
        // A tag in the middle of a chain is what no ref is said to peel to.
        let is_direct = |line: &&str| !tags.contains(&object) || line.ends_with(object);
        let git = git.lines().filter(is_direct);
        let git: Vec<&str> = git.filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(told, git, "{object}, batch");
    }
}
