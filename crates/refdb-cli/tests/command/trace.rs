//! What operators read of a run (`GIT_TRACE2` and its kin): the same events as from Git, in the same
//! places.

#![allow(clippy::print_stderr, reason = "says what cannot be tried here")]

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use refdb_testkit::repo::Repo;
use refdb_testkit::{Format, for_every_format, oracle};
use serde_json::Value;

use super::beside::Twins;

const EVENTS: &str = "GIT_TRACE2_EVENT";

fn refdb() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_refdb"))
}

fn run(program: &Path, repo: &Repo, env: &[(&str, &str)], args: &[&str]) -> Output {
    let commit = &repo.objects().commits[1];
    Command::new(program)
        .args(args.iter().map(|arg| arg.replace("{c}", commit)))
        .current_dir(repo.path())
        .env_clear()
        .envs(oracle::environment())
        .envs(env.iter().copied())
        .stdin(Stdio::null())
        .output()
        .expect("the program can be run")
}

/// Runs a program, and returns the events that it wrote.
fn events(program: &Path, repo: &Repo, args: &[&str]) -> Vec<Value> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let path = file.path().to_str().expect("UTF-8");
    run(program, repo, &[(EVENTS, path)], args);
    let text = fs::read_to_string(path).expect("a trace");
    let parse = |line| serde_json::from_str(line).expect("each line is an object");
    text.lines().map(parse).collect()
}

/// Returns what an event says, without when and where.
fn said(event: &Value, repo: &Repo) -> String {
    let mut event = event.clone();
    let fields = event.as_object_mut().expect("an object");
    for name in [
        "sid", "time", "file", "line", "t_abs", "exe", "fmt", "argv", "count",
    ] {
        fields.remove(name);
    }
    let root = repo.path().to_str().expect("UTF-8");
    let text = event.to_string().replace(root, "<repo>");
    text.replace("refdb ", "git ")
}

for_every_format! {
    fn the_events_are_those_of_git(format) {
        let twins = Twins::new(format);
        let syncs = ["-c", "core.fsync=reference"];
        let syncs_not = ["-c", "core.fsync=none"];
        for args in [
            &["show-ref"][..],
            &["show-ref", "nothing"],
            &["refs", "list"],
            &[&syncs[..], &["update-ref", "refs/heads/n", "{c}"]].concat(),
            &[&syncs_not[..], &["update-ref", "refs/heads/m", "{c}"]].concat(),
            &["update-ref", "refs/heads/n", "bogus"],
            &["update-ref", "--bogus"],
            &[&syncs_not[..], &["update-ref", "-d", "refs/heads/n"]].concat(),
            &[&syncs[..], &["pack-refs", "--all"]].concat(),
            &[&syncs_not[..], &["symbolic-ref", "HEAD", "refs/heads/m"]].concat(),
            &["reflog", "exists", "refs/heads/n"],
            &["check-ref-format", "a..b"],
        ] {
            let [git, ours] = [(oracle::program(), &twins.git), (refdb(), &twins.ours)]
                .map(|(program, repo)| (events(program, repo, args), repo));
            // Of these there are none.
            let lacks = |event: &&Value| event["event"] != "cmd_ancestry";
            let all = |(events, repo): &(Vec<Value>, &Repo)| -> BTreeSet<String> {
                events.iter().filter(lacks).map(|event| said(event, repo)).collect()
            };
            let (mut expected, mut actual) = (all(&git), all(&ours));
            if args[0] == "check-ref-format" {
                // No repository is opened for it.
                expected.retain(|event| !event.contains("def_repo"));
                actual.retain(|event| !event.contains("def_repo"));
            }
            assert_eq!(actual, expected, "{args:?}");
            let names = ours.0.iter().map(|event| event["event"].as_str().expect("a name"));
            let names: Vec<&str> = names.collect();
            assert_eq!((names[0], names[1]), ("version", "start"), "{names:?}");
            assert_eq!(names[names.len() - 1], "atexit", "{names:?}");
            let keys = |events: &[Value]| -> BTreeSet<(String, Vec<String>)> {
                let of = |event: &Value| {
                    let names = event.as_object().expect("an object").keys().cloned();
                    (event["event"].to_string(), names.collect())
                };
                events.iter().filter(lacks).map(of).collect()
            };
            let (ours, git) = (keys(&ours.0), keys(&git.0));
            assert!(ours.is_subset(&git), "{ours:?}\n{git:?}");
        }
    }

    fn syncs_are_counted_as_the_kernel_sees_them(format) {
        let Ok(true) = Command::new("strace").arg("-V").output().map(|it| it.status.success()) else {
            eprintln!("not tried: there is no strace");
            return;
        };
        let repo = Repo::init(format);
        let calls = tempfile::NamedTempFile::new().expect("a file");
        let trace = tempfile::NamedTempFile::new().expect("a file");
        let path = |file: &tempfile::NamedTempFile| file.path().to_str().expect("UTF-8").to_owned();
        let (calls_path, program) = (path(&calls), refdb().to_str().expect("UTF-8").to_owned());
        let which = "trace=fsync,fdatasync,syncfs";
        let args = ["-f", "-e", which, "-o", &calls_path, &program, "update-ref", "refs/heads/a", "{c}"];
        let out = run(Path::new("strace"), &repo, &[(EVENTS, &path(&trace))], &args);
        if !out.status.success() {
            eprintln!("not tried: strace says {}", String::from_utf8_lossy(&out.stderr));
            return;
        }
        let seen = fs::read_to_string(calls.path()).expect("a file");
        let seen = seen.lines().filter(|line| line.contains("sync")).count();
        let text = fs::read_to_string(trace.path()).expect("a trace");
        let counter = text.lines().find(|line| line.contains("\"counter\"")).expect("a counter");
        let counter: Value = serde_json::from_str(counter).expect("an object");
        assert_eq!((&counter["category"], &counter["name"]), (&"fsync".into(), &"hardware-flush".into()));
        assert!(seen > 0);
        assert_eq!(counter["count"], seen);
    }
}

#[test]
fn a_trace_goes_where_the_variable_says() {
    let repo = Repo::init(Format::FILES_SHA1);
    let call = ["check-ref-format", "a/b"];
    let dir = tempfile::tempdir().expect("a folder");
    let path = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    let stderr = |variable: &str, value: &str| {
        let debug = ("GIT_TRACE2_DST_DEBUG", "1");
        [oracle::program(), refdb()].map(|program| {
            let out = run(program, &repo, &[(variable, value), debug], &call);
            assert!(out.status.success());
            String::from_utf8(out.stderr).expect("UTF-8")
        })
    };
    for value in ["", "0", "false", "FALSE"] {
        assert_eq!(stderr("GIT_TRACE2", value), ["", ""], "{value}");
    }
    for value in ["1", "true", "True", "2"] {
        for (variable, first) in [
            ("GIT_TRACE2", " version "),
            ("GIT_TRACE2_PERF", " | version "),
            (EVENTS, "\"event\":\"version\""),
        ] {
            for told in stderr(variable, value) {
                assert!(
                    told.lines().next().expect("a line").contains(first),
                    "{value} {told}"
                );
            }
        }
    }
    let missing = path("missing/file");
    let socket = format!("af_unix:{missing}");
    for value in ["relative", "yes", "12", "9", &missing, &socket] {
        let [git, ours] = stderr("GIT_TRACE2", value);
        assert!(git.starts_with("warning: "), "{value}: {git}");
        assert_eq!(ours, git, "{value}");
    }
}

#[test]
fn runs_share_a_file_or_have_one_each() {
    let repo = Repo::init(Format::FILES_SHA1);
    let call = ["check-ref-format", "a/b"];
    let dir = tempfile::tempdir().expect("a folder");
    let path = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    let shared = path("shared");
    for _ in 0..2 {
        run(
            refdb(),
            &repo,
            &[("GIT_TRACE2", &shared), ("GIT_TRACE2_BRIEF", "1")],
            &call,
        );
    }
    let text = fs::read_to_string(&shared).expect("a file");
    let firsts: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    let once = ["version", "start", "cmd_name", "exit", "atexit"];
    assert_eq!(firsts, [once, once].concat());
    // A folder gets a file for each run, as long as there are not too many.
    let folder = path("folder");
    fs::create_dir(&folder).expect("a folder");
    for _ in 0..3 {
        run(
            refdb(),
            &repo,
            &[("GIT_TRACE2", &folder), ("GIT_TRACE2_MAX_FILES", "2")],
            &call,
        );
    }
    let names = fs::read_dir(&folder).expect("a folder");
    let names = names.map(|it| {
        it.expect("a name")
            .file_name()
            .into_string()
            .expect("UTF-8")
    });
    let (runs, others): (Vec<String>, Vec<String>) = names.partition(|it| it.contains("-P"));
    assert_eq!(
        (runs.len(), others),
        (2, vec!["git-trace2-discard".to_owned()])
    );
    let listener = UnixListener::bind(path("socket")).expect("a socket");
    let value = format!("af_unix:stream:{}", path("socket"));
    run(refdb(), &repo, &[(EVENTS, &value)], &call);
    let mut heard = String::new();
    let (mut stream, _) = listener.accept().expect("somebody came");
    stream.read_to_string(&mut heard).expect("text");
    assert!(
        heard.ends_with("}\n") && heard.contains("\"atexit\""),
        "{heard}"
    );
}

/// A repository that somebody else made names no place to write to.
#[test]
fn a_repository_names_no_place() {
    let repo = Repo::init(Format::FILES_SHA1);
    let dir = tempfile::tempdir().expect("a folder");
    let path = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    let setting = |place: &str| format!("[trace2]\n\tnormalTarget = {place}\n\tnormalBrief = 1\n");
    let own = repo.git_dir().join("config");
    let content = fs::read_to_string(&own).expect("a file");
    fs::write(&own, content + &setting(&path("local"))).expect("a file");
    let argument = format!("trace2.normalTarget={}", path("argument"));
    let call = ["-c", &argument, "show-ref", "--head"];
    fs::write(path("config"), setting(&path("global"))).expect("a file");
    for program in [oracle::program(), refdb()] {
        run(program, &repo, &[], &call);
        run(
            program,
            &repo,
            &[("GIT_CONFIG_GLOBAL", &path("config"))],
            &call,
        );
        let text = fs::read_to_string(path("global")).expect("the user's setting counts");
        assert!(
            text.starts_with("version ") && text.contains("\nexit "),
            "{text}"
        );
        fs::remove_file(path("global")).expect("a file");
        // What the environment says goes before it.
        let env = [("GIT_CONFIG_GLOBAL", &*path("config")), ("GIT_TRACE2", "0")];
        run(program, &repo, &env, &call);
        for name in ["local", "argument", "global"] {
            assert!(
                !dir.path().join(name).exists(),
                "{name} by {}",
                program.display()
            );
        }
    }
}

/// Hooks belong to the session of the command that starts them.
#[test]
fn programs_know_whose_session_they_belong_to() {
    let repo = Repo::init(Format::FILES_SHA1);
    let dir = tempfile::tempdir().expect("a folder");
    let seen = dir.path().join("seen");
    let setting = format!(
        "echo $GIT_TRACE2_PARENT_SID $GIT_TRACE2_PARENT_NAME >{} #",
        seen.display()
    );
    let command = format!("hook.h.command={setting}");
    let event = "hook.h.event=reference-transaction";
    let call = [
        "-c",
        &command,
        "-c",
        event,
        "update-ref",
        "refs/heads/h",
        "{c}",
    ];
    let trace = dir.path().join("trace");
    let env = [
        (EVENTS, trace.to_str().expect("UTF-8")),
        ("GIT_TRACE2_PARENT_NAME", "service"),
    ];
    let out = run(refdb(), &repo, &env, &call);
    assert!(out.status.success(), "{out:?}");
    let text = fs::read_to_string(&trace).expect("a trace");
    let first: Value =
        serde_json::from_str(text.lines().next().expect("a line")).expect("an object");
    let told = fs::read_to_string(&seen).expect("the hook ran");
    let sid = first["sid"].as_str().expect("text");
    assert_eq!(told.trim_end(), format!("{sid} service/update-ref"));
}
