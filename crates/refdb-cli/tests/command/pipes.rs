//! What the command does beyond what one run beside Git can show: dialogues, closed pipes, large
//! input, its own words.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use bstr::ByteSlice;
use refdb_testkit::dialogue::Dialogue;
use refdb_testkit::repo::Repo;
use refdb_testkit::{Format, for_every_format, oracle};

fn command(repo: &Repo, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_refdb"));
    command
        .args(args)
        .current_dir(repo.path())
        .env_clear()
        .envs(oracle::environment())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn run(repo: &Repo, args: &[&str]) -> Output {
    command(repo, args)
        .output()
        .expect("the program can be run")
}

fn run_with(repo: &Repo, args: &[&str], stdin: &[u8]) -> Output {
    let mut child = command(repo, args)
        .stdin(Stdio::piped())
        .spawn()
        .expect("the program can be run");
    let mut pipe = child.stdin.take().expect("it is a pipe");
    std::thread::scope(|scope| {
        scope.spawn(move || pipe.write_all(stdin));
        child.wait_with_output().expect("the program ends")
    })
}

#[track_caller]
fn assert_ok(out: &Output) {
    assert!(out.status.success(), "{}", out.stderr.as_bstr());
}

/// Begins a run of `update-ref --stdin` that is talked to.
fn begin(repo: &Repo, args: &[&str]) -> Dialogue {
    oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path())
        .args(["update-ref", "--stdin"])
        .args(args)
        .begin()
}

for_every_format! {
    fn each_line_of_a_dialogue_is_answered_at_once(format) {
        let repo = Repo::init(format);
        let [one, two] = [&repo.objects().commits[0], &repo.objects().commits[1]];
        let mut dialogue = begin(&repo, &[]);
        dialogue.say("start\n");
        assert_eq!(dialogue.hear(), "start: ok\n");
        // The end of a line may come later than its beginning.
        dialogue.say("create refs/he");
        dialogue.say(&format!("ads/a {one}\nprep"));
        dialogue.say("are\n");
        assert_eq!(dialogue.hear(), "prepare: ok\n");
        assert!(repo.refs().is_empty());
        dialogue.say("commit\n");
        assert_eq!(dialogue.hear(), "commit: ok\n");
        assert_eq!(repo.refs().len(), 1);
        dialogue.say(&format!("start\nupdate refs/heads/a {two} {one}\nabort\n"));
        assert_eq!(dialogue.hear(), "start: ok\n");
        assert_eq!(dialogue.hear(), "abort: ok\n");
        assert!(dialogue.end().status.success());
        assert_eq!(repo.refs()[0].id, *one);
    }

    fn records_of_a_dialogue_may_arrive_in_pieces(format) {
        let repo = Repo::init(format);
        let one = &repo.objects().commits[0];
        let mut dialogue = begin(&repo, &["-z"]);
        dialogue.say("start\0create refs/heads/a\0");
        assert_eq!(dialogue.hear(), "start: ok\n");
        dialogue.say(&format!("{one}\0commit\0"));
        assert_eq!(dialogue.hear(), "commit: ok\n");
        assert!(dialogue.end().status.success());
        assert_eq!(repo.refs()[0].id, *one);
    }

    fn a_dialogue_goes_on_after_much_input(format) {
        let repo = Repo::init(format);
        let one = &repo.objects().commits[0];
        let lines: String = (0..4_000)
            .map(|number| format!("create refs/heads/{number} {one}\n"))
            .collect();
        let mut dialogue = begin(&repo, &[]);
        dialogue.say(&format!("start\n{lines}prepare\n"));
        assert_eq!(dialogue.hear(), "start: ok\n");
        assert_eq!(dialogue.hear(), "prepare: ok\n");
        dialogue.say("com");
        dialogue.say("mit\n");
        assert_eq!(dialogue.hear(), "commit: ok\n");
        assert_eq!(repo.refs().len(), 4_000);
        // After a mistake the program ends, whether or not there may be more to read.
        dialogue.say("start\ncreate refs/heads/.. 1\n");
        assert_eq!(dialogue.hear(), "start: ok\n");
        assert_eq!(dialogue.wait().status.code(), Some(128));
    }

    fn many_refs_in_one_input(format) {
        let repo = Repo::init(format);
        let objects = repo.objects();
        let line = |index: usize| {
            let commit = &objects.commits[index % objects.commits.len()];
            format!("create refs/heads/directory-{}/branch-{index} {commit}\n", index % 100)
        };
        let input: String = (0..3_000).map(line).collect();
        assert_ok(&run_with(&repo, &["update-ref", "--stdin"], input.as_bytes()));
        let listed = run(&repo, &["for-each-ref", "--format=create %(refname) %(objectname)"]);
        assert_ok(&listed);
        let mut expected: Vec<&str> = input.lines().collect();
        expected.sort_unstable();
        let listed: Vec<&str> = listed.stdout.to_str().expect("ASCII").lines().collect();
        assert_eq!(listed, expected);
        assert_eq!(repo.refs().len(), 3_000);
    }

    fn the_short_forms_of_refs_write_as_update_ref_does(format) {
        let repo = Repo::init(format);
        let [one, two] = [&repo.objects().commits[0], &repo.objects().commits[1]];
        let zero = format.zero();
        let check = |args: &[&str], code: i32, stderr: &str| {
            let out = run(&repo, args);
            assert_eq!(out.stderr.to_str().expect("ASCII"), stderr, "{args:?}");
            assert_eq!(out.status.code(), Some(code), "{args:?}");
        };
        let name = "refs/heads/a";
        let exists = "update_ref failed for ref 'refs/heads/a': \
                      cannot lock ref 'refs/heads/a': reference already exists";
        check(&["refs", "create", "--message=why", name, one], 0, "");
        check(&["refs", "create", name, one], 1, &format!("error: {exists}\n"));
        check(&["refs", "update", name, two, one], 0, "");
        check(&["refs", "update", name, one, &zero], 1, &format!("error: {exists}\n"));
        check(&["refs", "update", name, "x"], 128, "fatal: invalid new object ID: 'x'\n");
        check(&["refs", "update", name, one, "x"], 128, "fatal: invalid old object ID: 'x'\n");
        check(&["refs", "create", name, "x"], 128, "fatal: invalid object ID: 'x'\n");
        check(
            &["refs", "create", name, &zero],
            128,
            "fatal: cannot create reference with null new object ID\n",
        );
        check(
            &["refs", "create", "--message=", name, one],
            128,
            "fatal: refusing to perform update with empty message\n",
        );
        check(
            &["refs", "create", name],
            129,
            "usage: create requires reference name and an object ID\n",
        );
        check(
            &["refs", "delete", name, &zero],
            128,
            "fatal: cannot delete reference with null old object ID\n",
        );
        let differs = format!("cannot lock ref '{name}': is at {two} but expected {one}");
        check(&["refs", "delete", name, one], 1, &format!("error: {differs}\n"));
        check(&["refs", "delete", name, two], 0, "");
        check(&["refs", "delete", name], 0, "");
        assert!(repo.refs().is_empty());
    }
}

for_every_format! {
    fn the_hook_is_asked_before_a_ref_is_renamed(format) {
        let repo = Repo::init(format);
        let commit = &repo.objects().commits[0];
        let zero = format.zero();
        repo.update_refs(format!("create refs/heads/b {commit}\n"));
        let hook = repo.git_dir().join("hooks/reference-transaction");
        fs::create_dir_all(hook.parent().expect("a folder")).expect("a folder");
        let script = |code: i32| {
            let text = format!("#!/bin/sh\necho $1 >>told\ncat >>told\nexit {code}\n");
            fs::write(&hook, text).expect("a file");
            fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).expect("a file");
        };
        let told = || {
            let path = [repo.path().join("told"), repo.git_dir().join("told")];
            let path = path.iter().find(|path| path.exists()).expect("it was called");
            let text = fs::read_to_string(path).expect("a file");
            fs::remove_file(path).expect("a file");
            text
        };
        let lines = format!("{zero} {commit} refs/heads/a\n{commit} {zero} refs/heads/b\n");
        script(1);
        let refused = run(&repo, &["refs", "rename", "refs/heads/b", "refs/heads/a"]);
        assert!(!refused.status.success());
        assert!(refused.stderr.contains_str("aborted by the reference-transaction hook"));
        assert_eq!(told(), format!("preparing\n{lines}aborted\n{lines}"));
        script(0);
        let quarantined = command(&repo, &["refs", "rename", "refs/heads/b", "refs/heads/a"])
            .env("GIT_QUARANTINE_PATH", "/x")
            .output()
            .expect("it runs");
        assert!(quarantined.stderr.contains_str("forbidden inside quarantine environment"));
        assert_ok(&run(&repo, &["refs", "rename", "refs/heads/b", "refs/heads/a"]));
        assert_eq!(
            told(),
            format!("preparing\n{lines}prepared\n{lines}committed\n{lines}")
        );
    }
}

#[test]
fn a_closed_pipe_ends_a_listing_quietly() {
    let repo = Repo::init(Format::FILES_SHA1);
    let commit = &repo.objects().commits[0];
    let line = |index: usize| format!("create refs/heads/branch-{index} {commit}\n");
    repo.update_refs((0..5_000).map(line).collect::<String>());
    let mut child = command(&repo, &["for-each-ref"])
        .spawn()
        .expect("the program can be run");
    drop(child.stdout.take());
    let out = child.wait_with_output().expect("the program ends");
    assert_eq!(out.stderr.as_bstr(), "");
    assert_eq!(out.status.code(), Some(141));
}

#[test]
fn a_mistyped_command_gets_a_suggestion() {
    let repo = Repo::init(Format::FILES_SHA1);
    let out = run(&repo, &["udpate-ref"]);
    assert_eq!(out.status.code(), Some(1));
    assert_eq!(
        out.stderr.as_bstr(),
        "refdb: 'udpate-ref' is not a refdb command. See 'refdb --help'.\n\n\
         The most similar command is\n\tupdate-ref\n"
    );
}

#[test]
fn help_names_every_command() {
    let repo = Repo::init(Format::FILES_SHA1);
    let overview = run(&repo, &["--help"]);
    assert_ok(&overview);
    for name in [
        "update-ref",
        "symbolic-ref",
        "show-ref",
        "for-each-ref",
        "pack-refs",
        "refs",
    ] {
        assert!(
            overview.stdout.contains_str(format!("    {name} ")),
            "{name}"
        );
        let help = run(&repo, &["help", name]);
        assert_ok(&help);
        assert!(
            help.stdout.contains_str(format!("usage: refdb {name}")),
            "{name}"
        );
        assert_eq!(run(&repo, &[name, "--help"]).stdout, help.stdout);
    }
    assert_eq!(run(&repo, &["help", "nonsense"]).status.code(), Some(1));
    let version = format!("refdb version {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(
        run(&repo, &["--version"]).stdout.as_bstr(),
        version.as_bytes()
    );
}

#[test]
fn json_has_the_atoms_of_the_format() {
    let repo = Repo::init(Format::FILES_SHA1);
    let commit = &repo.objects().commits[0];
    repo.update_refs(format!("create refs/heads/a\"b {commit}\n"));
    let out = run(&repo, &["refs", "list", "--json"]);
    assert_ok(&out);
    let line = format!(
        "{{\"objectname\":\"{commit}\",\"objecttype\":\"commit\",\"refname\":\"refs/heads/a\\\"b\"}}\n"
    );
    assert_eq!(out.stdout.as_bstr(), line.as_bytes());
}
