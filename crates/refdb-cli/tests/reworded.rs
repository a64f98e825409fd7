//! The command decides nothing by the words of an error.
//!
//! This program is the command, too: with `--as-it-is` before the arguments, and with `--reworded`,
//! where every message of the library has other words: only those that are paths or names of refs stay.
//! Each scenario is run both ways. Exit code, standard output and the refs afterwards must be the
//! same, and so must the form of what is said: which lines there are, how serious each is, and how
//! many words the command puts around those of the library.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};

use refdb_testkit::Format;
use refdb_testkit::oracle::{self, Output};
use refdb_testkit::repo::Repo;

const AS_IT_IS: &str = "--as-it-is";
const REWORDED: &str = "--reworded";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.split_first() {
        Some((how, args)) if how == AS_IT_IS || how == REWORDED => {
            if how == REWORDED {
                refdb::error::reword(reworded);
            }
            let args: Vec<Vec<u8>> = args.iter().map(|arg| arg.clone().into_bytes()).collect();
            refdb_cli::run(&args)
        }
        _ => {
            let scenarios = scenarios();
            let failures = failures(&scenarios);
            #[expect(clippy::print_stdout, reason = "a test tells how it ends")]
            match failures.is_empty() {
                true => println!("{} scenarios: ok", scenarios.len()),
                false => println!("{}", failures.join("\n")),
            }
            ExitCode::from(u8::from(!failures.is_empty()))
        }
    }
}

/// Runs all scenarios, several at a time: most of what they take is waiting for locks.
fn failures(scenarios: &[Scenario]) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let work = || {
        let more = || scenarios.get(next.fetch_add(1, Ordering::Relaxed));
        let found = std::iter::from_fn(more).filter_map(Scenario::fails);
        found.collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let threads = [(); 12].map(|()| scope.spawn(work));
        let found = threads.map(|thread| thread.join().expect("no scenario panics"));
        found.concat()
    })
}

/// Returns a text with other words.
fn reworded(text: &str) -> String {
    let other = |word: &str| match word {
        "fatal:" | "error:" | "warning:" | "hint:" => word.to_owned(),
        _ if word.contains('/') => word.to_owned(),
        _ => "~".repeat(word.len().min(1)),
    };
    let lines = text.split('\n').map(|line| {
        let words: Vec<String> = line.split(' ').map(other).collect();
        words.join(" ")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A call of the command in a repository.
struct Scenario {
    format: Format,
    is_bare: bool,
    /// What is done to the repository before.
    before: fn(&Repo),
    args: &'static str,
    stdin: &'static str,
    env: &'static [(&'static str, &'static str)],
}

/// A call in a repository of that format, with what is done to it before.
fn call(format: Format, before: fn(&Repo), args: &'static str) -> Scenario {
    Scenario {
        format,
        is_bare: false,
        before,
        args,
        stdin: "",
        env: &[],
    }
}

impl Scenario {
    fn reading(self, stdin: &'static str) -> Scenario {
        Scenario { stdin, ..self }
    }

    fn with(self, env: &'static [(&'static str, &'static str)]) -> Scenario {
        Scenario { env, ..self }
    }

    fn bare(self) -> Scenario {
        Scenario {
            is_bare: true,
            ..self
        }
    }

    /// Returns how the two runs differ, if they do.
    fn fails(&self) -> Option<String> {
        let (plain, refs) = self.run(AS_IT_IS);
        let (other, other_refs) = self.run(REWORDED);
        let what = format!("refdb {} < {:?}", self.args, self.stdin);
        if !other.said.contains('~') {
            return Some(format!("{what}: the library says nothing: {}", other.said));
        }
        let said = reworded(&plain.said);
        let is_same =
            (plain.code, &plain.stdout, &said) == (other.code, &other.stdout, &other.said);
        let is_same = is_same && refs == other_refs;
        (!is_same).then(|| format!("{what}:\n{plain:#?}\n{other:#?}\n{refs}\n{other_refs}"))
    }

    /// Runs the command in a new repository; returns which refs there are then, too.
    fn run(&self, how: &str) -> (Told, String) {
        let repo = match self.is_bare {
            true => Repo::init_bare(self.format),
            false => Repo::init(self.format),
        };
        let commits = &repo.objects().commits;
        repo.update_refs(format!(
            "create refs/heads/main {}\ncreate refs/heads/a/b {}\ncreate refs/tags/t {}\n",
            commits[0], commits[0], commits[1]
        ));
        (self.before)(&repo);
        let filled = |text: &str| text.replace("OLD", &commits[0]).replace("NEW", &commits[1]);
        let program = std::env::current_exe().expect("this program has a path");
        let mut run = oracle::run_of(program, repo.path()).arg(how);
        run = run.args(filled(self.args).split(' ').filter(|arg| !arg.is_empty()));
        for (name, value) in self.env {
            run = run.env(name, value);
        }
        let told = Told::of(run.stdin(filled(self.stdin)).run(), repo.path());
        (told, files(&repo))
    }
}

/// What a run comes to.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    code: i32,
    stdout: String,
    said: String,
}

impl Told {
    fn of(output: Output, folder: &Path) -> Told {
        let text = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes).into_owned();
            text.replace(folder.to_str().expect("a plain path"), "FOLDER/")
        };
        Told {
            code: output.code(),
            stdout: text(&output.stdout),
            // The words of the command are replaced as those of the library were.
            said: reworded(&text(&output.stderr)),
        }
    }
}

/// Returns which refs and which files for them there are.
fn files(repo: &Repo) -> String {
    let mut all = Vec::new();
    let mut folders = vec![repo.git_dir().join("refs"), repo.git_dir().join("logs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.expect("it can be listed").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(repo.git_dir()).expect("it is below");
                let content = fs::read(&path).unwrap_or_default();
                all.push(format!("{}: {}", name.display(), content.len()));
            }
        }
    }
    all.sort();
    all.join("\n")
}

fn write(repo: &Repo, path: &str, text: &str) {
    let path = repo.git_dir().join(path);
    let folder = path.parent().expect("it is in the repository");
    fs::create_dir_all(folder).expect("a folder");
    fs::write(path, text).expect("a file");
}

fn configure(repo: &Repo, text: &str) {
    let path = repo.git_dir().join("config");
    let before = fs::read_to_string(&path).expect("there is one");
    fs::write(path, before + text).expect("it can be written");
}

fn scenarios() -> Vec<Scenario> {
    let mut all = of_files();
    all.extend(of_tables());
    all.extend(of_settings());
    all
}

/// What stands in the way of refs and reflogs, and damage.
fn of_files() -> Vec<Scenario> {
    let files = |before, args| call(Format::FILES_SHA1, before, args);
    let packed: fn(&Repo) = |repo| write(repo, "packed-refs", "nonsense\n");
    let locked: fn(&Repo) = |repo| write(repo, "refs/heads/main.lock", "");
    let folder: fn(&Repo) = |repo| write(repo, "refs/heads/dir/x.lock", "");
    let logs: fn(&Repo) = |repo| write(repo, "logs/refs/heads/new/x/y", "\n");
    let log: fn(&Repo) = |repo| {
        write(repo, "logs/refs/heads/p", "x\n");
        write(repo, "refs/heads/p/q/keep", "OLD");
    };
    let broken: fn(&Repo) = |repo| write(repo, "refs/heads/main", "nonsense");
    let another: fn(&Repo) = |repo| write(repo, "packed-refs.new", "");
    vec![
        // packed-refs that cannot be read ends every command of Git, with its own exit code.
        files(packed, "update-ref refs/heads/x NEW"),
        files(packed, "update-ref -d refs/heads/main"),
        files(packed, "update-ref --stdin").reading("update refs/heads/x NEW\n"),
        files(packed, "update-ref --stdin").reading("start\nupdate refs/heads/x NEW\nprepare\n"),
        files(packed, "update-ref --stdin --batch-updates").reading("create refs/heads/x NEW\n"),
        files(packed, "refs exists refs/heads/x"),
        files(packed, "refs migrate --ref-format=reftable"),
        files(packed, "refs create refs/heads/x NEW"),
        files(packed, "refs delete refs/heads/x"),
        files(packed, "refs rename refs/heads/x refs/heads/y"),
        files(packed, "show-ref --verify refs/heads/x"),
        files(packed, "symbolic-ref -d HEAD"),
        files(packed, "symbolic-ref refs/heads/x refs/heads/main"),
        files(packed, "for-each-ref"),
        files(packed, "pack-refs --all"),
        files(packed, "reflog write refs/heads/x OLD NEW text"),
        files(packed, "reflog expire --all"),
        // A lock is shown with its whole path.
        files(locked, "update-ref refs/heads/main NEW"),
        files(locked, "update-ref -d refs/heads/main"),
        files(locked, "update-ref --stdin --batch-updates").reading("update refs/heads/main NEW\n"),
        files(locked, "update-ref --stdin").reading("start\nupdate refs/heads/main NEW\ncommit\n"),
        files(locked, "refs rename refs/heads/main refs/heads/x"),
        files(locked, "reflog write refs/heads/main OLD NEW text"),
        files(locked, "reflog expire --expire=all --all"),
        files(another, "pack-refs --all"),
        // What is in the way of a ref is shown from the top.
        files(folder, "update-ref refs/heads/dir NEW"),
        files(folder, "update-ref --stdin --batch-updates").reading("create refs/heads/dir NEW\n"),
        files(logs, "update-ref refs/heads/new NEW"),
        files(logs, "update-ref --stdin").reading("create refs/heads/new NEW\n"),
        files(log, "update-ref refs/heads/p/q NEW"),
        files(broken, "refs exists refs/heads/main"),
        files(broken, "symbolic-ref HEAD"),
        files(broken, "show-ref --verify refs/heads/main"),
        files(broken, "update-ref refs/heads/main NEW OLD"),
        files(broken, "refs migrate --ref-format=reftable"),
        // Of the names in the way the shortest is told, be it one of the transaction.
        files(|_| (), "update-ref --stdin --batch-updates")
            .reading("create refs/heads/a/b/c NEW\ncreate refs/heads/a NEW\n"),
        files(|_| (), "update-ref --stdin")
            .reading("create refs/heads/a/b/c NEW\ncreate refs/heads/a NEW\n"),
        files(|_| (), "update-ref --stdin --batch-updates")
            .reading("create refs/heads/main/x NEW\ncreate refs/heads/y NEW\n"),
    ]
}

/// The same of the other format.
fn of_tables() -> Vec<Scenario> {
    let tables = |before, args| call(Format::REFTABLE_SHA1, before, args);
    let locked: fn(&Repo) = |repo| write(repo, "reftable/tables.list.lock", "");
    let listed: fn(&Repo) = |repo| write(repo, "reftable/tables.list", "nonsense\n");
    vec![
        tables(locked, "update-ref refs/heads/main NEW"),
        tables(locked, "update-ref --stdin --batch-updates").reading("create refs/heads/x NEW\n"),
        tables(locked, "pack-refs --all"),
        tables(locked, "reflog expire --expire=all --all"),
        tables(locked, "refs migrate --ref-format=files"),
        tables(listed, "update-ref refs/heads/main NEW"),
        tables(listed, "reflog expire --expire=all refs/heads/main"),
        tables(listed, "refs exists refs/heads/main"),
        tables(listed, "show-ref --verify refs/heads/main"),
        tables(listed, "for-each-ref"),
    ]
}

/// Configuration and environment that make no sense, and repositories that cannot be opened.
fn of_settings() -> Vec<Scenario> {
    let files = |before, args| call(Format::FILES_SHA1, before, args);
    let shared: fn(&Repo) = |repo| configure(repo, "[core]\n\tfilesRefLockTimeout = x\n");
    let fsck: fn(&Repo) = |repo| configure(repo, "[fsck]\n\tbadRefName\n");
    let include: fn(&Repo) = |repo| configure(repo, "[include]\n\tpath\n");
    let hook: fn(&Repo) = |repo| configure(repo, "[hook \"a\"]\n\tevent\n");
    let newer: fn(&Repo) = |repo| {
        repo.config("core.repositoryFormatVersion", "1");
        configure(repo, "[extensions]\n\tunheardOf = 1\n");
    };
    let gone: fn(&Repo) = |repo| fs::remove_file(repo.git_dir().join("HEAD")).expect("HEAD");
    let nonsense: &[(&str, &str)] = &[("GIT_COMMITTER_DATE", "nonsense")];
    vec![
        // What is wrong is told apart from where it stands.
        files(fsck, "refs verify"),
        files(include, "for-each-ref"),
        files(hook, "update-ref refs/heads/x NEW"),
        files(hook, "reflog write refs/heads/x OLD NEW text"),
        files(|_| (), "for-each-ref").with(&[("GIT_CONFIG_COUNT", "x")]),
        files(|_| (), "check-ref-format --branch x").with(&[("GIT_CONFIG_COUNT", "x")]),
        files(shared, "update-ref refs/heads/x NEW"),
        files(shared, "update-ref --stdin").reading("start\ncreate refs/heads/x NEW\nprepare\n"),
        // A date that is none is its own message, and nobody's who only reads.
        files(|_| (), "reflog write refs/heads/x OLD NEW text").with(nonsense),
        files(|_| (), "update-ref refs/heads/main NEW").with(nonsense),
        files(|_| (), "update-ref --stdin")
            .reading("update refs/heads/main NEW\n")
            .with(nonsense),
        // No repository is needed to look at a name; who needs one is told why there is none.
        files(newer, "check-ref-format --branch x"),
        files(newer, "for-each-ref"),
        files(gone, "for-each-ref"),
        files(|_| (), "-c safe.bareRepository=explicit for-each-ref").bare(),
        files(|_| (), "--git-dir=/nowhere/to/be for-each-ref"),
    ]
}
