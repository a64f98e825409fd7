//! Generated scripts of commands, run by Git and by refdb on twin repositories: the same answers,
//! and the same refs and reflogs afterwards, except where a rule says why not.
//!
//! `REFDB_SEEDS=first..last` runs other seeds than the usual ones.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use bstr::{BString, ByteSlice};
use refdb_testkit::answer::{self, Answer, compare_lines};
use refdb_testkit::fixture::Fixture;
use refdb_testkit::repo::Repo;
use refdb_testkit::scripts::{Call, HOOK_LOG, Script, Step};
use refdb_testkit::state::{State, Target};
use refdb_testkit::{RefFormat, for_every_format, oracle};

/// Seeds for each of the four formats.
const SEEDS: Range<u64> = 0..300;
/// Failing scripts that are made smaller and shown.
const SHOWN: usize = 40;

for_every_format! {
    fn git_and_refdb_agree(format) {
        let fixture = Fixture::new(format);
        // Locks of others stay; how long they are waited for is shown elsewhere.
        for key in ["core.filesRefLockTimeout", "core.packedRefsTimeout", "reftable.lockTimeout"] {
            fixture.repo.config(key, "5");
        }
        let seeds = seeds();
        let next = AtomicU64::new(seeds.start);
        // What is shown of a difference, without its numbers, so that each is shown once.
        let found: Mutex<BTreeMap<String, String>> = Mutex::default();
        let failed = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..threads() {
                scope.spawn(|| {
                    loop {
                        let seed = next.fetch_add(1, Ordering::SeqCst);
                        if seed >= seeds.end {
                            break;
                        }
                        let script = Script::generate(seed, format.refs);
                        let Some(difference) = difference(&fixture, &script) else {
                            continue;
                        };
                        failed.fetch_add(1, Ordering::SeqCst);
                        if found.lock().expect("no thread fails").len() >= SHOWN {
                            continue;
                        }
                        let kind = difference.kind;
                        let small = script.shrink(|script| {
                            self::difference(&fixture, script).is_some_and(|it| it.kind == kind)
                        });
                        let text = self::difference(&fixture, &small)
                            .map_or(difference.text, |it| it.text);
                        let mut found = found.lock().expect("no thread fails");
                        found
                            .entry(text.clone())
                            .or_insert_with(|| format!("seed {seed}, {kind:?}\n{small}{text}\n"));
                    }
                });
            }
        });
        let found = found.into_inner().expect("no thread fails");
        let texts: Vec<String> = found.into_values().collect();
        assert!(
            texts.is_empty(),
            "{format}: {} of {} scripts differ\n\n{}",
            failed.into_inner(),
            seeds.end - seeds.start,
            texts.join("\n")
        );
    }
}

fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("REFDB_SEEDS") else {
        return SEEDS;
    };
    let (first, last) = text.split_once("..").expect("REFDB_SEEDS=first..last");
    first.parse().expect("a number")..last.parse().expect("a number")
}

/// Threads for each format, of which the tests run several at a time.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get().div_ceil(2))
}

/// What differs first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Refs,
    Code,
    Stdout,
    Stderr,
}

/// A difference.
struct Difference {
    kind: Kind,
    text: String,
}

/// Runs a script in twin repositories and returns the first difference.
fn difference(fixture: &Fixture, script: &Script) -> Option<Difference> {
    let (git, ours) = (fixture.repo.duplicate(), fixture.repo.duplicate());
    let mut first = None;
    let mut logs_differ = false;
    let mut expires = false;
    for step in &script.steps {
        if let Step::Prepare(call) = step
            && writes_elsewhere(call)
        {
            break;
        }
        let Step::Call(call) = step else {
            step.prepare(fixture, &git);
            step.prepare(fixture, &ours);
            continue;
        };
        if writes_elsewhere(call) {
            break;
        }
        let [expected, actual] = [
            (oracle::program(), &git),
            (Path::new(env!("CARGO_BIN_EXE_refdb")), &ours),
        ]
        .map(|(program, repo)| answer(program, call, fixture, repo));
        // Of a rejected edit Git tells the reflogs of the symrefs that led to it nonetheless.
        logs_differ |= expected.stdout.contains("rejected ");
        // In `reftable` it takes all entries of symrefs for unreachable.
        expires |= call.args.iter().any(|it| it == "expire");
        // In `files` it does so of verified refs too.
        let verifies = call.stdin.iter().any(|it| it.starts_with(b"verify"));
        logs_differ |= verifies && fixture.repo.format().refs == RefFormat::Files;
        if expected == actual {
            continue;
        }
        match rule(call, &expected, &actual) {
            Some(Allowed::Words) => continue,
            Some(Allowed::Deeds) => return None,
            None => {}
        }
        let kind = if expected.code != actual.code {
            Kind::Code
        } else if expected.stdout != actual.stdout {
            Kind::Stdout
        } else {
            Kind::Stderr
        };
        let text = expected.difference(&actual);
        first = Some(Difference { kind, text });
        break;
    }
    let [mut expected, mut actual] = [&git, &ours].map(states);
    for (git, ours) in expected.iter_mut().zip(&mut actual) {
        know_old(git, ours);
        if logs_differ {
            git.logs.clear();
            ours.logs.clear();
        } else if fixture.repo.format().refs == RefFormat::Reftable {
            forget_deleted(git, ours);
            if expires {
                forget_symrefs(git, ours);
            }
        }
    }
    let mut text: String = expected
        .iter()
        .zip(&actual)
        .map(|(expected, actual)| expected.difference(actual))
        .collect();
    if hooks_told(&git) != hooks_told(&ours) {
        let [git, ours] = [&git, &ours].map(hooks_told);
        text.push_str("  told to hooks:");
        compare_lines(&mut text, &git, &ours);
    }
    if text.is_empty() {
        return first;
    }
    let text = first.map_or_else(String::new, |it| it.text) + "\n" + &text;
    Some(Difference {
        kind: Kind::Refs,
        text,
    })
}

/// Returns what hooks of a repository were told.
fn hooks_told(repo: &Repo) -> String {
    std::fs::read_to_string(repo.git_dir().join(HOOK_LOG)).unwrap_or_default()
}

/// Where a ref was reached through several symrefs, Git may not know its old value in the reflog
/// of the first. Fills it in from ours.
fn know_old(git: &mut State, ours: &State) {
    for (name, entries) in &mut git.logs {
        for (git, ours) in entries.iter_mut().zip(ours.log(name)) {
            if git.old.bytes().all(|byte| byte == b'0') {
                git.old.clone_from(&ours.old);
            }
        }
    }
}

/// In `reftable` Git keeps the reflogs of some deleted symrefs, and goes on with them should a ref
/// of the name be made again. Takes away from Git's reflogs what was before ours.
fn forget_deleted(git: &mut State, ours: &mut State) {
    for (name, entries) in &mut git.logs {
        let kept = ours.log(name).len();
        if entries.ends_with(ours.log(name)) {
            entries.drain(..entries.len() - kept);
        }
    }
    for state in [git, ours] {
        state.logs.retain(|_, entries| !entries.is_empty());
    }
}

/// Takes away the reflogs of symrefs, except HEAD's.
fn forget_symrefs(git: &mut State, ours: &mut State) {
    let State { refs, .. } = git;
    let is_symref =
        |name: &BString| name != "HEAD" && matches!(refs.get(name), Some(Target::Symbolic(_)));
    for logs in [&mut git.logs, &mut ours.logs] {
        logs.retain(|name, _| !is_symref(name));
    }
}

/// What may differ by one of the rules below.
enum Allowed {
    /// What is said; what is stored afterwards is the same.
    Words,
    /// What is done: the script is not followed further.
    Deeds,
}

/// Returns whether a call writes refs of another worktree. Git makes folders for worktrees that are
/// not there, and in `reftable` stores names that nothing reads.
fn writes_elsewhere(call: &Call) -> bool {
    let mut all = call.args.iter().chain(&call.stdin);
    let writes = ["update-ref", "symbolic-ref", "reflog"]
        .iter()
        .any(|it| call.args[0] == *it);
    writes && all.any(|it| it.contains_str("worktrees/") || it.contains_str("main-worktree/"))
}

/// Returns what may differ in the answers to a call. docs/compat.md has the reasons at length.
fn rule(call: &Call, git: &Answer, ours: &Answer) -> Option<Allowed> {
    let ours_says = |text: &str| ours.stderr.contains(text);
    let git_says = |text: &str| git.stderr.contains(text);
    // Git crashed.
    if git.code == -1 {
        return Some(Allowed::Deeds);
    }
    // Nobody is told to unset `core.preferSymlinkRefs`.
    let first = "warning: 'core.preferSymlinkRefs=true' is nominated for removal.\n";
    let last = "hint: Git will then use the textual symref format instead.\n";
    if let Some((before, rest)) = git.stderr.split_once(first) {
        let after = rest.split_once(last).map_or("", |it| it.1);
        let quiet = Answer {
            stderr: format!("{before}{after}"),
            ..git.clone()
        };
        return match quiet == *ours {
            true => Some(Allowed::Words),
            false => rule(call, &quiet, ours),
        };
    }
    // In `reftable` Git says nothing where it cannot lock the stack to clean it up.
    let locked = "error: unable to compact stack: data is locked";
    if git.code == 251 && git.stderr.is_empty() && ours.code == 255 && ours_says(locked) {
        return Some(Allowed::Words);
    }
    // A record that is cut off is no record. Git takes what its buffer held before for the rest.
    let cut = call.stdin.concat().last().is_some_and(|last| *last != 0);
    let missing = [": missing ", "unterminated", "expected NUL but got"];
    if cut && call.args.iter().any(|it| it == "-z") && missing.iter().any(|it| ours_says(it)) {
        return Some(Allowed::Deeds);
    }
    // Git says nothing of a lock that keeps it from changing a reflog.
    let told = "error: cannot lock references\n";
    let without = ours.stderr.replace(told, "");
    if call.args[0] == "reflog" && ours_says(told) && without == git.stderr && git.code == ours.code
    {
        return Some(Allowed::Words);
    }
    // Files are named by their whole paths.
    let packed = "Checking packed-refs file ";
    if call.args[0] == "refs" && git_says(packed) && ours_says(packed) && git.code == ours.code {
        return Some(Allowed::Words);
    }
    // `reflog show` reads its options as such to the end.
    if call.args[0] == "reflog" && call.args.iter().any(|it| it == "--end-of-options") {
        return Some(Allowed::Words);
    }
    // A setting that makes no sense is told before an option that does.
    let fails = git.code == 128 || git.code == 129;
    if fails && ours_says("from command-line config") {
        return Some(Allowed::Words);
    }
    // Objects are not looked at in passing.
    if git_says("does not point to a valid object!") && git.stdout == ours.stdout {
        return Some(Allowed::Words);
    }
    // Of two edits that cannot be, the other one is told.
    let refused = "fatal: cannot lock ref";
    if call.stdin.len() > 1 && git_says(refused) && ours_says(refused) {
        return Some(Allowed::Words);
    }
    // Git names a lock that cannot be made by a path from where it is.
    let in_the_way = "non-directory in the way";
    if git_says(in_the_way) && ours_says(in_the_way) {
        return Some(Allowed::Words);
    }
    // Packed refs are locked only if one of them changes.
    if git_says("packed-refs.lock': File exists") && !ours_says("packed-refs.lock") {
        return Some(Allowed::Deeds);
    }
    // In `reftable` Git goes on with a rejected edit, and may tell another reason for it too.
    let told = |answer: &Answer| -> Vec<String> {
        let lines = answer.stdout.lines();
        lines
            .filter(|line| !line.starts_with("rejected "))
            .map(str::to_owned)
            .collect()
    };
    let rejected = ours
        .stdout
        .lines()
        .filter(|line| line.starts_with("rejected "));
    let also_by_git = rejected.clone().all(|line| git.stdout.contains(line));
    if rejected.count() > 0 && also_by_git && told(git) == told(ours) && git.code == ours.code {
        return Some(Allowed::Words);
    }
    // There is no index here.
    if ours_says("paths in the index cannot be resolved") {
        return Some(Allowed::Deeds);
    }
    // A ref that cannot be read is an error, not a line that is missing.
    if ours_says("reference broken") && !git_says("reference broken") {
        return Some(Allowed::Deeds);
    }
    // Git stops reading a line at a zero byte.
    if !call.args.iter().any(|it| it == "-z") && call.stdin.iter().any(|it| it.contains(&0)) {
        return Some(Allowed::Deeds);
    }
    // What is left out of a listing is not read, so nothing is said of it.
    let ignoring = "warning: ignoring ref with broken name";
    let excludes = call.args.iter().any(|it| it.starts_with(b"--exc"));
    if git_says(ignoring) || (excludes && git_says("warning: ignoring broken ref")) {
        return Some(Allowed::Words);
    }
    // In `files` Git leaves the refs beside `refs/` out of a listing that asks for the history.
    let asks = [
        "--merged",
        "--no-merged",
        "--contains",
        "--no-contains",
        "ahead-behind",
        "is-base",
    ];
    let asks = |it: &BString| asks.iter().any(|word| it.contains_str(word));
    let shows_root = call.args.iter().any(|it| it.starts_with(b"--inc"));
    if shows_root && call.args.iter().any(asks) && git.code == ours.code {
        return Some(Allowed::Words);
    }
    // Git has printed less when it finds out that it cannot go on.
    if git.code == 128 && ours.stdout.starts_with(&git.stdout) && git.stderr == ours.stderr {
        return Some(Allowed::Words);
    }
    // Git names an option twice here.
    if git_says("ambiguous option: no- ") {
        return Some(Allowed::Words);
    }
    None
}

fn answer(program: &Path, call: &Call, fixture: &Fixture, repo: &Repo) -> Answer {
    let args = call.args(fixture);
    let before = call.before.iter().map(OsStr::new);
    let args = before.chain(args.iter().map(|arg| OsStr::from_bytes(arg)));
    let folder = match repo.path().join(call.folder).is_dir() {
        true => call.folder,
        false => ".",
    };
    let mut command = answer::command(program, args, repo, folder);
    command.envs(call.variables.iter().copied());
    let mut answer = match call.is_dialogue() {
        true => {
            let pieces: Vec<_> = call.stdin.iter().map(|piece| fixture.fill(piece)).collect();
            Answer::of_dialogue(&mut command, &pieces, repo, || seen(repo))
        }
        false => Answer::of_command(&mut command, &call.input(fixture), repo),
    };
    answer.stderr = without_own_words(&answer.stderr);
    answer
}

/// Takes away what stands behind Git's words about a lock, options that are refdb's own, and what
/// is chance in the names of tables.
fn without_own_words(text: &str) -> String {
    let mut out = String::new();
    let mut lines = text.split_inclusive('\n');
    while let Some(line) = lines.next() {
        let own_option = ["    --[no-]deep\n", "    --[no-]json\n"].contains(&line);
        if own_option {
            continue;
        }
        if let Some((before, _)) = line.split_once("cannot lock references: Unable to create ") {
            // The rest of the message is an empty line and one about the lock.
            lines.nth(1);
            out.push_str(&format!("{before}cannot lock references\n"));
        } else if let Some((before, _)) = line.split_once("may be stale. It ") {
            out.push_str(&format!("{before}may be stale\n"));
        } else if line.starts_with("Checking table: ") {
            out.push_str("Checking table\n");
        } else {
            out.push_str(line);
        }
    }
    out
}

/// Returns the refs that another process sees.
fn seen(repo: &Repo) -> String {
    let out = repo.git(["for-each-ref"]).run();
    out.stdout.to_str_lossy().into_owned()
}

/// Returns what is stored, in the repository and in its linked worktree.
fn states(repo: &Repo) -> [State; 2] {
    let linked = repo.git_dir().join("worktrees/w");
    let linked = linked.is_dir().then(|| State::read(&linked));
    [repo.state(), linked.unwrap_or_default()]
}
