//! Generated scripts of commands, run by Git and by refdb on twin repositories: the same answers,
//! and the same refs and reflogs afterwards, except where a rule says why not.
//!
//! `REFDB_SEEDS=first..last` runs other seeds than the usual ones. How often each rule was needed is
//! appended to the file that `REFDB_RULES` names.

mod rules;
mod states;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Write as _;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use bstr::ByteSlice;
use refdb_testkit::answer::{self, Answer, compare_lines};
use refdb_testkit::fixture::Fixture;
use refdb_testkit::repo::Repo;
use refdb_testkit::scripts::{Call, HOOK_LOG, Script, Step};
use refdb_testkit::state::ref_format;

use refdb_testkit::{Format, RefFormat, for_every_format, oracle};
use rules::{Allowed, writes_elsewhere};
use states::Deeds;

/// Seeds for each of the four formats.
const SEEDS: Range<u64> = 0..300;
/// Options in usages that are refdb's own.
const OWN_OPTIONS: [&str; 5] = [
    "    --[no-]deep\n",
    "    --[no-]json\n",
    "    --[no-]keep\n",
    "    --[no-]undo\n",
    "    --[no-]skip-broken\n",
];
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
        let needed: Mutex<Needed> = Mutex::default();
        std::thread::scope(|scope| {
            for _ in 0..threads() {
                scope.spawn(|| {
                    loop {
                        let seed = next.fetch_add(1, Ordering::SeqCst);
                        if seed >= seeds.end {
                            break;
                        }
                        let script = Script::generate(seed, format.refs);
                        let mut by_rules = Needed::default();
                        let difference = difference(&fixture, &script, &mut by_rules);
                        for (name, count) in by_rules {
                            *needed.lock().expect("no thread fails").entry(name).or_default() += count;
                        }
                        let Some(difference) = difference else {
                            continue;
                        };
                        failed.fetch_add(1, Ordering::SeqCst);
                        if found.lock().expect("no thread fails").len() >= SHOWN {
                            continue;
                        }
                        let text = shrunk(&fixture, &script, difference);
                        let mut found = found.lock().expect("no thread fails");
                        let known = text.split_once("\n\n").map_or(text.as_str(), |it| it.1);
                        found.entry(known.to_owned()).or_insert_with(|| format!("seed {seed}, {text}"));
                    }
                });
            }
        });
        tell(format, &needed.into_inner().expect("no thread fails"));
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

/// Appends how often each rule was needed to a file, if that is asked for.
fn tell(format: Format, needed: &Needed) {
    let Some(path) = std::env::var_os("REFDB_RULES") else {
        return;
    };
    let line = |(name, count): (&&str, &u64)| format!("{format}: {count} times: {name}\n");
    let lines: String = needed.iter().map(line).collect();
    let file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path);
    file.and_then(|mut file| file.write_all(lines.as_bytes()))
        .expect("the file can be written");
}

/// Returns the smallest script that still differs in the same way, and how it does.
fn shrunk(fixture: &Fixture, script: &Script, difference: Difference) -> String {
    let kind = difference.kind;
    let again = |script: &Script| self::difference(fixture, script, &mut Needed::default());
    let small = script.shrink(|script| again(script).is_some_and(|it| it.kind == kind));
    let text = again(&small).map_or(difference.text, |it| it.text);
    format!("{kind:?}\n{small}\n{text}\n")
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

/// The rules that were needed, with how often.
type Needed = BTreeMap<&'static str, u64>;

/// Runs a script in twin repositories and returns the first difference that no rule explains.
fn difference(fixture: &Fixture, script: &Script, needed: &mut Needed) -> Option<Difference> {
    let (git, ours) = (fixture.repo.duplicate(), fixture.repo.duplicate());
    let format = fixture.repo.format();
    let mut first = None;
    let mut deeds = Deeds::default();
    let mut hooks_differ = false;
    for step in &script.steps {
        let (Step::Call(call) | Step::Prepare(call)) = step else {
            step.prepare(fixture, &git);
            step.prepare(fixture, &ours);
            continue;
        };
        if writes_elsewhere(call, &git) {
            *needed.entry("refs of another worktree").or_default() += 1;
            continue;
        }
        if let Step::Prepare(_) = step {
            step.prepare(fixture, &git);
            step.prepare(fixture, &ours);
            continue;
        }
        let [expected, actual] = [
            (oracle::program(), &git),
            (Path::new(env!("CARGO_BIN_EXE_refdb")), &ours),
        ]
        .map(|(program, repo)| answer(program, call, fixture, repo));
        deeds.note(call, &expected.stdout, &format.zero());
        // Where packed-refs cannot be read, hooks may have been told before.
        hooks_differ |= expected.stderr.contains("packed-refs: ");
        // Of a rejected edit Git tells hooks in `reftable` by the name of the ref behind it.
        let tells_end = ref_format(&git.git_dir()) == RefFormat::Reftable;
        hooks_differ |= tells_end && expected.stdout.contains("rejected ");
        if expected == actual {
            continue;
        }
        if rules::reads_logs(call) && deeds.concern_logs(ref_format(&git.git_dir())) {
            *needed.entry("reads reflogs that differ").or_default() += 1;
            return None;
        }
        if let Some(rule) = rules::find(call, &expected, &actual, format.refs) {
            *needed.entry(rule.name).or_default() += 1;
            match rule.allowed {
                Allowed::Words => {}
                Allowed::WordsAndHooks => hooks_differ = true,
                Allowed::Deeds => return None,
            }
            continue;
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
    let mut text = deeds.difference(&git, &ours);
    if !hooks_differ && hooks_told(&git) != hooks_told(&ours) {
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
    answer.stdout = without_chance(&answer.stdout);
    answer
}

/// Takes away what is chance in the name of a folder, and options of a usage that are refdb's own.
fn without_chance(text: &str) -> String {
    let mut out = String::new();
    for line in text.split_inclusive('\n') {
        match line.split_once("/ref_migration.") {
            Some((before, _)) => out.push_str(&format!("{before}/ref_migration\n")),
            None if OWN_OPTIONS.contains(&line) => {}
            None => out.push_str(line),
        }
    }
    out
}

/// Takes away what stands behind Git's words about a lock or about damage, options that are refdb's own, and what
/// is chance in the names of tables.
fn without_own_words(text: &str) -> String {
    let mut out = String::new();
    let mut lines = text.split_inclusive('\n');
    while let Some(line) = lines.next() {
        if OWN_OPTIONS.contains(&line) {
            continue;
        }
        if let Some((before, _)) = line.split_once("; 'git refs verify --deep' tells all") {
            // What stands before it is Git's, but for the number of the line.
            let text = before.rsplit_once(" (line ").map_or(before, |it| it.0);
            out.push_str(&format!("{text}\n"));
            continue;
        }
        if line.starts_with("Unable to create ") && out.ends_with("cannot lock references\n") {
            // The rest of the message is an empty line and one about the lock.
            lines.nth(1);
        } else if let Some((before, _)) = line.split_once("may be stale. It ") {
            out.push_str(&format!("{before}may be stale\n"));
        } else if line.starts_with("Checking table: ") {
            // How many there are is chance as well.
            if !out.ends_with("Checking table\n") {
                out.push_str("Checking table\n");
            }
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
