//! JGit, the second implementation of reftable that refdb is compared with.
//!
//! 1. It is put in place by `scripts/get-jgit`; a test that needs it fails without it and says so.
//! 2. It reads and writes tables of version 1, so SHA-1 only.
//!
//! ```
//! use refdb_testkit::{jgit, repo::Repo, Format};
//!
//! let repo = Repo::init(Format::REFTABLE_SHA1);
//! let commit = &repo.objects().commits[0];
//! repo.update_refs(format!("create refs/heads/main {commit}\n"));
//! let refs = jgit::list(&repo.git_dir());
//! assert_eq!(refs[1].name, "refs/heads/main");
//! assert_eq!(refs[1].id.as_ref(), Some(commit));
//! ```

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::oracle::workspace_root;

/// A ref as JGit reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JgitRef {
    /// Its full name.
    pub name: String,
    /// The object it points at, unless it is a symref.
    pub id: Option<String>,
    /// The ref it points at, if it is a symref.
    pub target: Option<String>,
    /// The peeled object, if one is stored.
    pub peeled: Option<String>,
}

/// A reflog entry as JGit reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JgitLogEntry {
    /// The value before.
    pub old: String,
    /// The value after.
    pub new: String,
    /// Seconds since 1970.
    pub time: u64,
    /// The time zone as JGit takes it, in minutes.
    pub zone_minutes: i32,
    /// The message without its line feed.
    pub message: String,
}

/// One command of a batch: the zero id is "does not exist".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JgitUpdate {
    /// The full name.
    pub name: String,
    /// The expected value.
    pub old: String,
    /// The new value.
    pub new: String,
}

/// Returns all refs, HEAD included, sorted by name.
pub fn list(git_dir: &Path) -> Vec<JgitRef> {
    let some = |field: &str| {
        if field == "-" {
            None
        } else {
            Some(field.to_owned())
        }
    };
    let parse = |line: &str| {
        let fields: Vec<&str> = line.split(' ').collect();
        let [name, id, target, peeled] = fields[..] else {
            panic!("not a ref: {line}");
        };
        let name = name.to_owned();
        JgitRef {
            name,
            id: some(id),
            target: some(target),
            peeled: some(peeled),
        }
    };
    run(git_dir, &["list"], "").lines().map(parse).collect()
}

/// Returns a reflog, newest entry first.
pub fn log(git_dir: &Path, name: &str) -> Vec<JgitLogEntry> {
    let parse = |line: &str| {
        let fields: Vec<&str> = line.splitn(5, ' ').collect();
        let [old, new, time, zone, message] = fields[..] else {
            panic!("not an entry: {line}");
        };
        JgitLogEntry {
            old: old.to_owned(),
            new: new.to_owned(),
            time: time.parse().expect("seconds"),
            zone_minutes: zone.parse().expect("minutes"),
            message: message.to_owned(),
        }
    };
    run(git_dir, &["log", name], "")
        .lines()
        .map(parse)
        .collect()
}

/// Returns the names of the refs that point at an object. In a stack JGit asks the object index.
pub fn find(git_dir: &Path, id: &str) -> Vec<String> {
    run(git_dir, &["find", id], "")
        .lines()
        .map(str::to_owned)
        .collect()
}

/// Carries out a batch, all or nothing. Returns each name with JGit's result, `OK` if it is done.
pub fn update(git_dir: &Path, message: &str, updates: &[JgitUpdate]) -> Vec<(String, String)> {
    let line = |u: &JgitUpdate| format!("{} {} {} {message}\n", u.name, u.old, u.new);
    let input: String = updates.iter().map(line).collect();
    let pair = |line: &str| {
        let (name, result) = line.split_once(' ').expect("a name and a result");
        (name.to_owned(), result.to_owned())
    };
    run(git_dir, &["update"], &input)
        .lines()
        .map(pair)
        .collect()
}

/// Makes one table of a stack.
pub fn compact(git_dir: &Path) {
    run(git_dir, &["compact"], "");
}

/// # Panics
///
/// If JGit is missing or fails.
fn run(git_dir: &Path, args: &[&str], input: &str) -> String {
    let jgit = workspace_root().join(".jgit");
    assert!(
        fs::exists(jgit.join("made-from")).unwrap_or(false),
        "the tests compare refdb with JGit, and it is not in {}: run scripts/get-jgit",
        jgit.display()
    );
    let home = jgit.join("java-home");
    let java = if home.is_dir() {
        home.join("bin/java")
    } else {
        "java".into()
    };
    let mut class_path = jgit.join("lib/*").into_os_string();
    class_path.push(":");
    class_path.push(jgit.join("classes"));
    let mut command = Command::new(java);
    // Starting quickly matters more here than running fast. JGit must not read the user's settings.
    command.args([
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-Xshare:auto",
    ]);
    command
        .arg("-Duser.home=/nonexistent")
        .arg("-cp")
        .arg(class_path)
        .arg("Interop");
    command.arg(git_dir).args(args);
    command
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", "/nonexistent");
    command
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("LC_ALL", "C.UTF-8")
        .env("TZ", "UTC");
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .unwrap_or_else(|e| panic!("cannot run Java: {e}"));
    let mut stdin = child.stdin.take().expect("it was set to a pipe");
    stdin
        .write_all(input.as_bytes())
        .expect("JGit reads its input first");
    drop(stdin);
    let out = child
        .wait_with_output()
        .expect("the program can be waited for");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "JGit failed at {args:?}:\n{said}");
    String::from_utf8(out.stdout).expect("JGit writes UTF-8")
}
