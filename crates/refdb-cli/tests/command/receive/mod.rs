//! Pushes of Git to repositories that follow a store: what Git says of them, what it says where refs are its own.

mod hook;
mod hostile;
mod together;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::thread;

use refdb_testkit::Format;
use refdb_testkit::format::{ObjectFormat, RefFormat};
use refdb_testkit::oracle::{self, Output};
use refdb_testkit::repo::Repo;

const REFDB: &str = env!("CARGO_BIN_EXE_refdb");

fn refdb(repo: &Repo, args: &[&str]) -> Output {
    oracle::run_of(REFDB, repo.path()).args(args).run()
}

fn said(output: &Output) -> String {
    let text = [output.stdout.as_slice(), &output.stderr].concat();
    format!("{}: {}", output.code(), String::from_utf8_lossy(&text))
}

/// A store, hosts that take pushes for it, and somebody who pushes.
struct Scene {
    pusher: Repo,
    hosts: Vec<Repo>,
    temp: tempfile::TempDir,
}

impl Scene {
    fn new(objects: ObjectFormat, hosts: usize) -> Scene {
        let format = Format::new(RefFormat::Reftable, objects);
        let temp = tempfile::tempdir().expect("a folder");
        let url = format!("file://{}", temp.path().join("store").display());
        let pusher = Repo::init(format);
        refdb(&pusher, &["store", "init", &url]).ok();
        refdb(&pusher, &["store", "import", &url]).ok();
        let hosts: Vec<Repo> = (0..hosts).map(|_| Repo::init_bare(format)).collect();
        for (at, host) in hosts.iter().enumerate() {
            host.config("refdb.store", &url);
            // Each finds the objects of all.
            let alternates = host.git_dir().join("objects/info/alternates");
            let mut text = std::fs::read_to_string(&alternates).unwrap_or_default();
            for (other, repo) in hosts.iter().enumerate() {
                if other != at {
                    text.push_str(&format!("{}\n", repo.git_dir().join("objects").display()));
                }
            }
            std::fs::write(&alternates, text).expect("a file");
            refdb(host, &["serve-hook", "install"]).ok();
        }
        Scene {
            pusher,
            hosts,
            temp,
        }
    }

    fn store(&self) -> PathBuf {
        self.temp.path().join("store")
    }

    fn host(&self) -> &Repo {
        &self.hosts[0]
    }

    fn push(&self, host: &Repo, args: &[&str]) -> Output {
        push(&self.pusher, host, args)
    }
}

fn push(pusher: &Repo, host: &Repo, args: &[&str]) -> Output {
    let (options, refs): (Vec<&str>, Vec<&str>) = args.iter().partition(|arg| arg.starts_with('-'));
    let path = host.git_dir();
    let path = path.to_str().expect("text");
    pusher
        .git(
            ["push"]
                .into_iter()
                .chain(options)
                .chain([path])
                .chain(refs),
        )
        .run()
}

fn listed_by_git(repo: &Repo) -> String {
    repo.git(["for-each-ref"]).run().text()
}

/// Fails unless Git finds everything that refs name.
fn sound(repo: &Repo) {
    let fsck = ["fsck", "--connectivity-only", "--no-dangling"];
    repo.git(fsck).run().ok();
}

fn hook(repo: &Repo, name: &str, text: &str) {
    let path = repo.git_dir().join("hooks").join(name);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("a hook");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("it runs");
}

/// What is told of a push, without what is of the place.
fn told(output: &Output) -> Vec<String> {
    let text = said(output);
    let lines = text.lines().map(|line| line.trim_end().to_owned());
    let is_of_place = |line: &String| {
        let is = |what: &str| line.contains(what);
        // Git gives advice, tells one thing on the host alone, and does not tell its hooks of the deletion of
        // what was not there.
        is("To /")
            || is("failed to push some refs")
            || is("objects for refs/")
            || is("remote: error: By default")
            || is("remote: 'git clone'")
            || is("remote: You can set")
            || is("remote: 'warn'")
            || is("remote: To squelch")
            || line == "remote:"
            || line.starts_with("remote: post 0000000000000000000000000000000000000000 0000")
            || line.starts_with(&format!("remote: post {0} {0}", "0".repeat(64)))
    };
    lines.filter(|line| !is_of_place(line)).collect()
}

/// A repository whose refs Git has, and one that follows a store, which are told the same.
struct Both {
    scene: Scene,
    plain: Repo,
    differences: RefCell<Vec<String>>,
    /// A commit beside all others, and a tree.
    other: String,
    tree: String,
}

impl Both {
    fn new(objects: ObjectFormat) -> Both {
        let scene = Scene::new(objects, 1);
        let pusher = &scene.pusher;
        let tree = format!("{}^{{tree}}", pusher.objects().commits[0]);
        let tree = pusher.git(["rev-parse", &tree]).run().text();
        let tree = tree.trim().to_owned();
        let other = pusher.git(["commit-tree", "-m", "other", &tree]);
        let other = other.run().text().trim().to_owned();
        let both = Both {
            plain: Repo::init_bare(scene.host().format()),
            scene,
            differences: RefCell::default(),
            other,
            tree,
        };
        // What post-receive reads are new values, and refs have them.
        let text = "while read old new name; do echo \"post $old $new $name\"; git for-each-ref $name; done";
        both.hook("post-receive", text);
        both
    }

    fn all(&self) -> [&Repo; 2] {
        [&self.plain, self.scene.host()]
    }

    fn hook(&self, name: &str, text: &str) {
        self.all()
            .into_iter()
            .for_each(|repo| hook(repo, name, text));
    }

    fn config(&self, key: &str, value: &str) {
        self.all()
            .into_iter()
            .for_each(|repo| repo.config(key, value));
    }

    /// Runs refdb in both, and brings the copy up to date.
    fn refdb(&self, args: &[&str]) {
        for repo in self.all() {
            refdb(repo, args).ok();
        }
        refdb(self.scene.host(), &["sync"]).ok();
    }

    /// Returns what is pushed to a branch: `a` and `b`, the child of it, `x`, a commit beside them, or `t`, a
    /// tree.
    fn to(&self, what: &str, name: &str) -> String {
        let commits = &self.scene.pusher.objects().commits;
        let what = match what {
            "a" => &commits[0],
            "b" => &commits[1],
            "x" => &self.other,
            _ => &self.tree,
        };
        format!("{what}:refs/heads/{name}")
    }

    fn push(&self, args: &[&str]) {
        let (plain, host) = (&self.plain, self.scene.host());
        let (here, there) = (self.scene.push(plain, args), self.scene.push(host, args));
        let of_git = (told(&here), listed_by_git(plain));
        let found = [
            (told(&there), listed_by_git(host)),
            (told(&there), refdb(host, &["for-each-ref"]).text()),
        ];
        if found.iter().any(|found| *found != of_git) {
            let text = format!("{args:?}: {}\nGit alone: {}", said(&there), said(&here));
            self.differences.borrow_mut().push(text);
        }
    }
}

fn alike(objects: ObjectFormat) {
    let both = Both::new(objects);
    whatever_is_allowed(&both);
    what_settings_deny(&both);
    what_cannot_be(&both);
    what_hooks_decline(&both);
    somebody_else_is_faster(&both);
    sound(both.scene.host());
    let differences = both.differences.into_inner();
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
}

fn whatever_is_allowed(both: &Both) {
    let to = |what: &str, name: &str| both.to(what, name);
    let tag = format!("{}:refs/tags/t", both.scene.pusher.objects().tags[0].id);
    both.push(&[&to("a", "main"), &to("a", "a"), &to("b", "b"), &tag]);
    both.push(&[&to("b", "main"), &to("a", "a")]);
    both.push(&["-f", &to("x", "a"), &to("b", "new")]);
    both.push(&[&to("a", "main"), &to("a", "newer")]);
    both.push(&[
        "--atomic",
        &to("a", "m1"),
        &to("b", "m2"),
        ":refs/heads/newer",
    ]);
    both.push(&[":refs/heads/none"]);
}

fn what_settings_deny(both: &Both) {
    let to = |what: &str, name: &str| both.to(what, name);
    both.config("receive.denyDeletes", "true");
    both.push(&[":refs/heads/a", ":refs/tags/t"]);
    both.config("receive.denyDeletes", "false");
    both.push(&[":refs/heads/a", &to("b", "again")]);
    both.refdb(&["symbolic-ref", "HEAD", "refs/heads/main"]);
    for deny in ["refuse", "true", "warn", "ignore"] {
        both.push(&["-f", &to("a", "main")]);
        both.config("receive.denyDeleteCurrent", deny);
        both.push(&[":refs/heads/main"]);
    }
    both.config("receive.denyNonFastForwards", "true");
    both.push(&[&to("b", "main"), &to("b", "a")]);
    both.push(&["-f", &to("x", "a"), &to("b", "new")]);
    both.push(&["-f", "--atomic", &to("x", "a"), &to("b", "newest")]);
    both.push(&["-f", &to("t", "a")]);
    both.config("receive.denyNonFastForwards", "false");
}

fn what_cannot_be(both: &Both) {
    let to = |what: &str, name: &str| both.to(what, name);
    let (one, tree) = (
        format!("{}:refs/one", both.other),
        format!("{}:refs/tags/tree", both.tree),
    );
    both.push(&[&to("t", "tree"), &tree, &to("a", "fine")]);
    both.push(&[&to("a", "a/b"), &to("a", "fine2")]);
    both.push(&["--atomic", &to("a", "a/b"), &to("a", "fine3")]);
    both.push(&[&to("a", "n"), &to("a", "n/m")]);
    both.push(&[&one, &to("a", "fine4")]);
}

fn what_hooks_decline(both: &Both) {
    let to = |what: &str, name: &str| both.to(what, name);
    both.hook(
        "update",
        "echo \"update $*\"; case $1 in refs/heads/no*) exit 1;; esac",
    );
    both.push(&[&to("a", "no"), &to("a", "yes"), ":refs/heads/m1"]);
    both.push(&["--atomic", &to("a", "no"), &to("a", "yes2")]);
}

/// Refs change between what the pusher is told of them and what it asks for.
fn somebody_else_is_faster(both: &Both) {
    let to = |what: &str, name: &str| both.to(what, name);
    let (a, b) = (to("a", ""), to("b", ""));
    let id = |spec: &str| spec.split(':').next().unwrap_or_default().to_owned();
    let moved = |command: &str| {
        let env = "env -u GIT_QUARANTINE_PATH -u GIT_OBJECT_DIRECTORY -u GIT_ALTERNATE_OBJECT_DIRECTORIES";
        let one =
            |name: &str, to: String| format!("{env} {command} update-ref refs/heads/{name} {to}");
        let (first, second) = (one("a", id(&a)), one("here", id(&b)));
        format!("if test -e move; then rm move; {first} && {second}; fi")
    };
    hook(&both.plain, "pre-receive", &moved("git"));
    hook(both.scene.host(), "pre-receive", &moved(REFDB));
    for (at, atomic) in ["--no-atomic", "--atomic"].into_iter().enumerate() {
        both.refdb(&["update-ref", "refs/heads/a", &id(&b)]);
        both.refdb(&["update-ref", "-d", "refs/heads/here"]);
        for repo in both.all() {
            std::fs::write(repo.git_dir().join("move"), "").expect("a file");
        }
        let beside = to("a", &format!("beside{at}"));
        both.push(&["-f", atomic, &to("x", "a"), &to("a", "here"), &beside]);
    }
}

#[test]
fn what_git_says_of_a_push_to_a_store_is_what_it_says_of_its_own_refs_sha1() {
    alike(ObjectFormat::Sha1);
}

#[test]
fn what_git_says_of_a_push_to_a_store_is_what_it_says_of_its_own_refs_sha256() {
    alike(ObjectFormat::Sha256);
}

#[test]
fn hosts_that_take_pushes_at_once_lose_nothing_and_agree() {
    let rounds = std::env::var("REFDB_RECEIVE_ROUNDS").ok();
    let rounds: usize = rounds.and_then(|rounds| rounds.parse().ok()).unwrap_or(2);
    let scene = Scene::new(ObjectFormat::Sha1, HOSTS);
    let pushers: Vec<Repo> = (0..HOSTS)
        .map(|_| Repo::init(scene.host().format()))
        .collect();
    // What each has made last, which it deletes with its next push.
    let mut made: Vec<Option<String>> = vec![None; HOSTS];
    for round in 0..rounds {
        let done: Vec<Pushed> = thread::scope(|scope| {
            let threads: Vec<_> = (0..HOSTS)
                .map(|at| {
                    let (pusher, host, old) = (&pushers[at], &scene.hosts[at], made[at].as_deref());
                    scope.spawn(move || push_one(pusher, host, (at, round), old))
                })
                .collect();
            let joined = threads.into_iter().map(|it| it.join().expect("a pusher"));
            joined.collect()
        });
        for host in &scene.hosts {
            refdb(host, &["sync"]).ok();
        }
        let listed: Vec<String> = scene.hosts.iter().map(listed_by_git).collect();
        assert!(listed.iter().all(|it| *it == listed[0]), "{listed:?}");
        let listed: BTreeMap<&str, &str> = listed[0]
            .lines()
            .map(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                (words[2], words[0])
            })
            .collect();
        let mut winners = 0;
        for (at, Pushed { commit, text }) in done.iter().enumerate() {
            let is_at = |name: &str| {
                listed.get(format!("refs/heads/{name}").as_str()) == Some(&commit.as_str())
            };
            // By the store, or by the pusher if it looked when there was one.
            let is_refused = text.contains(&format!("all{round} ("));
            let is_there = is_at(&format!("all{round}"));
            assert_ne!(is_refused, is_there, "{text}");
            winners += usize::from(is_there);
            // What is atomic goes as a whole, everything else by itself.
            let is_done = is_there || !is_atomic(at);
            let name = format!("made{at}-{round}");
            assert_eq!(
                (is_at(&format!("own{at}")), is_at(&name)),
                (is_done, is_done),
                "{text}"
            );
            if let Some(old) = &made[at] {
                let is_left = listed.contains_key(format!("refs/heads/{old}").as_str());
                assert_eq!(is_left, !is_done, "{text}");
            }
            if is_done {
                made[at] = Some(name);
            }
        }
        assert_eq!(winners, 1, "{done:?}");
    }
    scene.hosts.iter().for_each(sound);
}

const HOSTS: usize = 4;

#[derive(Debug)]
struct Pushed {
    commit: String,
    text: String,
}

fn is_atomic(at: usize) -> bool {
    at % 2 == 1
}

/// Makes a commit, and pushes it to a ref of the pusher's own, by force, to a new one, and to one that all want;
/// the one that it made last is deleted.
fn push_one(pusher: &Repo, host: &Repo, (at, round): (usize, usize), old: Option<&str>) -> Pushed {
    let tree = format!("{}^{{tree}}", pusher.objects().commits[0]);
    let tree = pusher.git(["rev-parse", &tree]).run().text();
    let message = format!("{round} {at}");
    let commit = ["commit-tree", "-m", &message, tree.trim()];
    let commit = pusher.git(commit).run().text().trim().to_owned();
    let mut refs = vec![
        format!("+{commit}:refs/heads/own{at}"),
        format!("{commit}:refs/heads/made{at}-{round}"),
        format!("{commit}:refs/heads/all{round}"),
    ];
    refs.extend(old.map(|old| format!(":refs/heads/{old}")));
    let atomic = is_atomic(at).then_some("--atomic");
    let args: Vec<&str> = atomic
        .into_iter()
        .chain(refs.iter().map(String::as_str))
        .collect();
    let text = said(&push(pusher, host, &args));
    Pushed { commit, text }
}

#[test]
fn a_hook_that_is_killed_leaves_all_or_nothing_and_nobody_in_the_way() {
    let scene = Scene::new(ObjectFormat::Sha1, 2);
    let (host, commits) = (scene.host(), &scene.pusher.objects().commits);
    for (at, (step, is_there)) in [
        ("preparing", false),
        ("prepared", false),
        ("committed", true),
    ]
    .into_iter()
    .enumerate()
    {
        hook(
            host,
            "reference-transaction",
            &format!("test $1 != {step} || kill -9 $PPID"),
        );
        let (one, two) = (
            format!("{}:refs/heads/one{at}", commits[0]),
            format!("{}:refs/heads/two{at}", commits[1]),
        );
        let output = scene.push(host, &[&one, &two]);
        assert!(
            said(&output).contains("fail to run proc-receive hook"),
            "{}",
            said(&output)
        );
        std::fs::remove_file(host.git_dir().join("hooks/reference-transaction")).expect("a hook");
        for (name, commit) in [("one", &commits[0]), ("two", &commits[1])] {
            let found = refdb(
                host,
                &["show-ref", "--hash", &format!("refs/heads/{name}{at}")],
            );
            let found = String::from_utf8_lossy(&found.stdout).trim().to_owned();
            assert_eq!(found, if is_there { commit.as_str() } else { "" }, "{step}");
        }
        sound(host);
        // Whoever comes next finds nothing in the way, here and elsewhere.
        for (which, host) in scene.hosts.iter().enumerate().rev() {
            let next = format!("{}:refs/heads/next{at}{which}", commits[2]);
            let output = scene.push(host, &[&next]);
            assert_eq!(output.code(), 0, "{}", said(&output));
        }
        assert_eq!(listed_by_git(host), refdb(host, &["for-each-ref"]).text());
        sound(host);
    }
}

#[test]
fn objects_can_be_had_before_a_ref_names_them() {
    let scene = Scene::new(ObjectFormat::Sha1, 1);
    let (host, commits) = (scene.host(), &scene.pusher.objects().commits);
    let to = |at: usize, name: &str| format!("{}:refs/heads/{name}", commits[at]);
    // No ref names them when the command is run, and its failure keeps it so.
    let command = format!("sh -c 'cat >asked; {REFDB} for-each-ref >seen; test ! -e fail'");
    host.config("refdb.publishObjects", &command);
    let read = |name: &str| std::fs::read_to_string(host.git_dir().join(name)).expect("a file");
    assert_eq!(scene.push(host, &[&to(0, "a"), &to(1, "b")]).code(), 0);
    let lines =
        [(0, "a"), (1, "b")].map(|(at, name)| format!("{} refs/heads/{name}\n", commits[at]));
    assert_eq!(
        (read("asked"), read("seen")),
        (lines.concat(), String::new())
    );
    std::fs::write(host.git_dir().join("fail"), "").expect("a file");
    let before = listed_by_git(host);
    for atomic in ["--atomic", "--no-atomic"] {
        let output = scene.push(host, &[atomic, "-f", &to(2, "a"), &to(2, "c")]);
        let text = said(&output);
        assert!(
            text.contains("a (objects cannot be had by other hosts)"),
            "{text}"
        );
        assert!(
            text.contains("c (objects cannot be had by other hosts)"),
            "{text}"
        );
        assert_eq!(listed_by_git(host), before);
        assert_eq!(refdb(host, &["for-each-ref"]).text(), before);
    }
    // What brings no object needs nothing, and what a rule refuses is not asked for.
    assert_eq!(scene.push(host, &[":refs/heads/b"]).code(), 0);
    std::fs::remove_file(host.git_dir().join("fail")).expect("a file");
    hook(host, "update", "test $1 != refs/heads/no");
    scene.push(host, &[&to(2, "no"), &to(3, "yes")]);
    assert_eq!(read("asked"), format!("{} refs/heads/yes\n", commits[3]));
}

#[test]
fn the_hook_is_installed_once_and_nobody_elses_is_touched() {
    let scene = Scene::new(ObjectFormat::Sha1, 1);
    let host = scene.host();
    let path = host.git_dir().join("hooks/proc-receive");
    let state = || {
        (
            std::fs::read(&path).ok(),
            std::fs::read(host.git_dir().join("config")).expect("a file"),
        )
    };
    let installed = state();
    assert!(installed.0.is_some());
    let again = refdb(host, &["serve-hook", "install"]);
    assert!(said(&again).contains("already"), "{}", said(&again));
    assert_eq!(state(), installed);
    assert!(
        said(&refdb(host, &["serve-hook", "uninstall"]))
            .starts_with("0: pushes to this repository are refused")
    );
    assert_eq!(state().0, None);
    let refs = host.git(["config", "get", "receive.procReceiveRefs"]).run();
    assert_eq!(refs.code(), 1, "{}", said(&refs));
    // It is a copy still: Git cannot write here by itself.
    let commit = format!("{}:refs/heads/a", scene.pusher.objects().commits[0]);
    let text = said(&scene.push(host, &[&commit]));
    assert!(text.contains("failed to update refs"), "{text}");
    assert!(
        said(&refdb(host, &["serve-hook", "uninstall"])).contains("there was no hook of refdb")
    );

    hook(host, "proc-receive", "exit 1");
    let before = state();
    for command in ["install", "uninstall"] {
        let refused = refdb(host, &["serve-hook", command]);
        assert!(
            said(&refused).contains("is a hook of somebody else: nothing was changed"),
            "{}",
            said(&refused)
        );
        assert_eq!((refused.code(), state()), (128, before.clone()));
    }
    std::fs::remove_file(&path).expect("a hook");
    host.config("receive.procReceiveRefs", "refs/for");
    let refused = refdb(host, &["serve-hook", "install"]);
    assert!(
        said(&refused).contains("a hook of somebody else takes those refs"),
        "{}",
        said(&refused)
    );
    assert_eq!(state().0, None);
    let checked_out = Repo::init(host.format());
    let refused = refdb(&checked_out, &["serve-hook", "install"]);
    assert!(
        said(&refused).contains("bare repository"),
        "{}",
        said(&refused)
    );
}
