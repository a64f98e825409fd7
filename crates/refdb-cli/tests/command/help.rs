//! Help: every page is looked at as a person would, on a terminal of 80 columns.

#![allow(clippy::print_stderr, reason = "says what cannot be tried here")]

use std::collections::BTreeSet;
use std::process::{Command, Output};

/// Runs the command where there is no repository.
fn refdb(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_refdb"))
        .args(args)
        .current_dir("/")
        .env("GIT_CEILING_DIRECTORIES", "/")
        .output()
        .expect("the program can be run")
}

fn text(args: &[&str]) -> String {
    let out = refdb(args);
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(
        out.status.success() && errors.is_empty(),
        "{args:?}: {errors}"
    );
    String::from_utf8(out.stdout).expect("UTF-8")
}

/// Returns the first words of the lines of a list: lines set in by four columns, below a heading.
fn listed(text: &str, heading: impl Fn(&str) -> bool) -> Vec<String> {
    let below = text.lines().skip_while(|line| !heading(line)).skip(1);
    let list = below.take_while(|line| line.starts_with("    "));
    let words = list.filter_map(|line| line.split_whitespace().next());
    words.map(str::to_owned).collect()
}

/// Returns every command and subcommand, as the help texts name them.
fn every_command() -> Vec<String> {
    let overview = text(&["help"]);
    let groups = overview.split("\n\n").skip(1);
    let mut names = Vec::new();
    for group in groups {
        for name in listed(group, |line| !line.starts_with(' ')) {
            let page = text(&["help", &name]);
            let subcommands = listed(&page, |line| line == "Subcommands:");
            names.extend(subcommands.iter().map(|sub| format!("{name} {sub}")));
            names.push(name);
        }
    }
    names
}

#[test]
fn every_page_is_whole_and_fits_a_terminal() {
    let names = every_command();
    assert!(names.len() > 35, "{names:?}");
    let mut wrong = Vec::new();
    for name in &names {
        let mut args = vec!["help"];
        args.extend(name.split(' '));
        let page = text(&args);
        // The other way of asking gives the same answer.
        let mut asked: Vec<&str> = name.split(' ').collect();
        asked.push("--help");
        assert_eq!(text(&asked), page, "{name}");
        let has = |what: &str| page.contains(what);
        // It is what `reflog` does when nothing else is asked for.
        let called = name.replace("reflog show", "reflog [show]");
        if !has(&format!("refdb {name}: ")) || !has(&format!("usage: refdb {called}")) {
            wrong.push(format!("{name}: no summary, or no usage"));
        }
        for part in ["\nExamples:\n", "\nExit codes:\n", "\nSee also: "] {
            if !has(part) {
                wrong.push(format!("{name}: nothing below {part:?}"));
            }
        }
        let long = page.lines().filter(|line| line.chars().count() > 80);
        wrong.extend(long.map(|line| format!("{name}: too wide: {line}")));
    }
    let overview = text(&["help"]);
    let long = overview.lines().filter(|line| line.chars().count() > 80);
    wrong.extend(long.map(|line| format!("help: too wide: {line}")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Commands whose usage text is Git's, with lines of more than 80 columns.
const GITS_LINES: [&str; 5] = [
    "pack-refs",
    "reflog",
    "reflog expire",
    "refs create",
    "refs optimize",
];

/// Whoever asks how a command is called gets an answer, and no failure: as from Git since 2.56.
#[test]
fn asking_for_a_usage_text_succeeds() {
    for name in every_command() {
        for asks in ["-h", "--help-all"] {
            let mut args: Vec<&str> = name.split(' ').collect();
            args.push(asks);
            let asked = text(&args);
            let called = name.replace("reflog show", "reflog [show]");
            assert!(
                asked.starts_with(&format!("usage: refdb {called}")),
                "{name} {asks}: {asked}"
            );
            // What is Git's command is said in Git's lines.
            if !GITS_LINES.contains(&name.as_str()) {
                let long = asked.lines().find(|line| line.chars().count() > 80);
                assert_eq!(long, None, "{name} {asks}: too wide");
            }
        }
    }
    let wrong = refdb(&["bench", "--no"]);
    assert_eq!(wrong.status.code(), Some(129));
    assert!(wrong.stdout.is_empty());
    let told = String::from_utf8(wrong.stderr).expect("UTF-8");
    assert!(
        told.starts_with("error: ambiguous option: no ") && told.contains("usage: "),
        "{told}"
    );
}

/// Options that the examples use exist: their pages name them.
#[test]
fn examples_use_options_that_there_are() {
    for name in every_command() {
        let mut args = vec!["help"];
        args.extend(name.split(' '));
        let page = text(&args);
        let (above, below) = page.split_once("\nExamples:\n").expect("examples");
        let calls = below.lines().take_while(|line| !line.is_empty());
        let calls: Vec<&str> = calls
            .filter(|line| line.starts_with("    refdb "))
            .collect();
        assert_eq!(calls.len(), 2, "{name}");
        let long = |word: &&str| word.starts_with("--");
        for option in calls
            .iter()
            .flat_map(|call| call.split_whitespace())
            .filter(long)
        {
            let option = option.split('=').next().unwrap_or(option);
            let (bare, open) = (
                option.trim_start_matches("--no-"),
                option.replacen("--", "--[no-]", 1),
            );
            let is_named = above.contains(option)
                || above.contains(&open)
                || above.contains(&format!("--[no-]{bare}"));
            // `reflog` alone stands for `reflog show`.
            let is_named = is_named || (name == "reflog" && option == "--date");
            assert!(is_named, "{name}: {option}");
        }
    }
}

#[test]
fn migrate_tells_its_own_options() {
    let page = text(&["help", "refs", "migrate"]);
    for option in ["--ref-format", "--keep", "--undo", "skip-broken", "--json"] {
        assert!(page.contains(option.trim_start_matches("--")), "{option}");
    }
}

/// Exit codes that a script meets stand in the help of what it calls.
#[test]
fn pages_tell_the_exit_codes_that_there_are() {
    for name in [&["pack-refs"][..], &["refs", "optimize"]] {
        let page = text(&[&["help"], name].concat());
        assert!(page.contains("\n    255      "), "{page}");
    }
    let page = text(&["help", "symbolic-ref"]);
    assert!(page.contains("with two names: it was not set"), "{page}");
    let page = text(&["help", "show-ref"]);
    assert!(page.contains("--verify"), "{page}");
    let page = text(&["help", "update-ref"]);
    assert!(page.contains("1        with -d: "), "{page}");
    // The list of subcommands has what there is of each.
    let page = text(&["help", "refs"]);
    for option in ["--undo", "[--keep]", "[--skip-broken]", "[--json]"] {
        let forms = page.split("\n\n").nth(1).unwrap_or_default();
        let migrate = forms.split("or: ").next().unwrap_or_default();
        assert!(migrate.contains(option), "{option}: {page}");
    }
}

/// What refdb alone has stands in its help, though `-h` says what Git's says.
#[test]
fn help_tells_what_only_refdb_has() {
    for name in [&["for-each-ref"][..], &["refs", "list"]] {
        let page = text(&[&["help"], name].concat());
        assert!(page.contains("    --json "), "{page}");
        let asked = text(&[name, &["-h"]].concat());
        assert!(!asked.contains("--json"), "{asked}");
    }
    let page = text(&["help", "show-ref"]);
    assert!(!page.contains("--[no-]heads"), "an old name: {page}");
}

/// The options of `reflog show` are read by hand: what its page tells of is taken.
#[test]
fn reflog_show_takes_what_its_page_tells_of() {
    let repo = refdb_testkit::repo::Repo::init(refdb_testkit::Format::FILES_SHA1);
    let commit = &repo.objects().commits[0];
    repo.git(["update-ref", "HEAD", commit]).run().ok();
    let page = text(&["help", "reflog", "show"]);
    let above = page.split("\nExamples:").next().unwrap_or_default();
    let options = above.lines().filter(|line| line.starts_with("    -"));
    let mut tried = 0;
    for line in options {
        let words = line.split_whitespace();
        for word in words.take_while(|word| word.starts_with(['-', '<'])) {
            let word = word.trim_end_matches(',');
            let word = word.replace("[no-]", "");
            let name = word.split(['[', '=']).next().unwrap_or_default();
            if !name.starts_with("--") {
                continue;
            }
            let value = match name {
                "--max-count" | "--skip" => "=1",
                "--since" | "--until" => "=2001-01-01",
                "--grep-reflog" | "--grep" | "--author" => "=x",
                "--format" => "=short",
                "--date" => "=iso",
                "--abbrev" => "=9",
                "--decorate" => "=full",
                _ => "",
            };
            let call = ["reflog", "show", &format!("{name}{value}"), "HEAD"];
            let out = Command::new(env!("CARGO_BIN_EXE_refdb"))
                .args(call)
                .current_dir(repo.path())
                // Nobody is there to be asked instead.
                .env("PATH", "/nowhere")
                .output()
                .expect("the program can be run");
            let told = String::from_utf8_lossy(&out.stderr);
            assert!(out.status.success(), "{call:?}: {told}");
            tried += 1;
        }
    }
    assert!(tried >= 14, "{tried} of: {page}");
}

/// A word of the call that is wrong ends with 129, as each page says.
#[test]
fn a_wrong_word_ends_with_129() {
    let dir = tempfile::tempdir().expect("a folder");
    let place = format!("file://{}", dir.path().display());
    for call in [
        &["completions", "tcsh"][..],
        &["store", "init", "--slots=x", &place],
        &["store", "maintain", "--grace=x", &place],
        &["follow", "--interval=x"],
        &["watch", "--since=x"],
        &["bench", "--formats=x"],
        &["bench", "--only=x"],
        &["bench", "--refs=0"],
        &["version", "x"],
        &["bench", "--fsync=x"],
        &["--version", "x"],
        &["--store=", "refs", "list"],
        &["help", "refs", "list", "x"],
    ] {
        let repo = refdb_testkit::repo::Repo::init(refdb_testkit::Format::FILES_SHA1);
        let out = Command::new(env!("CARGO_BIN_EXE_refdb"))
            .args(call)
            .current_dir(repo.path())
            .output()
            .expect("the program can be run");
        let told = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(129), "{call:?}: {told}");
        assert!(!told.is_empty() && out.stdout.is_empty(), "{call:?}");
    }
}

#[test]
fn the_version_is_told_however_it_is_asked_for() {
    let version = text(&["version"]);
    assert!(version.starts_with("refdb version "), "{version}");
    assert_eq!(text(&["--version"]), version);
    assert_eq!(text(&["-v"]), version);
    assert_eq!(text(&["help", "help"]), text(&["help"]));
    assert_eq!(text(&["help", "-h"]), text(&["help"]));
    assert_eq!(
        text(&["--help", "refs", "list"]),
        text(&["help", "refs", "list"])
    );
}

/// A directory for the pages is made; one that cannot be is named.
#[test]
fn pages_get_a_directory() {
    let dir = tempfile::tempdir().expect("a folder");
    let deep = dir.path().join("share/man/man1");
    text(&["man", deep.to_str().expect("UTF-8")]);
    assert!(deep.join("refdb.1").is_file());
    std::fs::write(dir.path().join("file"), "").expect("a file");
    let below = dir.path().join("file/man1");
    let out = refdb(&["man", below.to_str().expect("UTF-8")]);
    assert_eq!(out.status.code(), Some(128));
    let told = String::from_utf8_lossy(&out.stderr).into_owned();
    let words = format!("fatal: cannot create the directory '{}': ", below.display());
    assert!(told.starts_with(&words), "{told}");
}

#[test]
fn there_are_no_pages_of_noise() {
    let dir = tempfile::tempdir().expect("a folder");
    text(&["man", dir.path().to_str().expect("UTF-8")]);
    let files = std::fs::read_dir(dir.path()).expect("pages");
    let files = files.map(|it| {
        it.expect("a page")
            .file_name()
            .to_string_lossy()
            .into_owned()
    });
    let pages: BTreeSet<String> = files.collect();
    let mut expected: BTreeSet<String> = every_command()
        .iter()
        .map(|name| format!("refdb-{}.1", name.replace(' ', "-")))
        .collect();
    // The page that `git help refdb` looks for is another name of the first one.
    let whole = ["refdb.1", "git-refdb.1"];
    expected.extend(whole.map(str::to_owned));
    assert_eq!(pages, expected);
    let other = std::fs::read_to_string(dir.path().join("git-refdb.1")).expect("a page");
    assert_eq!(other, ".so man1/refdb.1\n");
    for page in pages.iter().filter(|page| !whole.contains(&page.as_str())) {
        let text = std::fs::read_to_string(dir.path().join(page)).expect("a page");
        for part in ["EXAMPLES", "EXIT STATUS", "SEE ALSO"] {
            assert!(text.contains(part), "{page}: {part}");
        }
    }
}

#[test]
fn a_mistyped_subcommand_gets_a_suggestion() {
    for args in [
        &["help", "refs", "migrat"][..],
        &["help", "reflog", "expir"],
    ] {
        let out = refdb(args);
        let told = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(1), "{told}");
        assert!(told.contains("The most similar subcommand is"), "{told}");
    }
    // What was mistyped does not paint the terminal.
    for args in [&["help", "refs", "x\u{1b}[31m"][..], &["x\u{1b}[31m"]] {
        let out = refdb(args);
        let told = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(1), "{told}");
        assert!(told.contains("'x?[31m'"), "{told:?}");
    }
}

/// On a terminal, a slip of any kind is answered with what to do.
#[test]
fn a_slip_on_a_terminal_is_answered_with_what_to_do() {
    let script = std::path::Path::new("/usr/bin/script");
    if !script.exists() {
        eprintln!("not tried: there is no {}", script.display());
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let repo = refdb_testkit::repo::Repo::init(refdb_testkit::Format::FILES_SHA1);
    for folder in ["below", "other/.git"] {
        std::fs::create_dir_all(dir.path().join(folder)).expect("a folder");
    }
    for (place, call, told) in [
        (dir.path(), "migrate", "\trefs migrate"),
        (dir.path(), "show-refs", "\tshow-ref"),
        (
            dir.path(),
            "refs list",
            "there is one in 'other': refdb -C 'other' ...",
        ),
        (
            &*dir.path().join("below"),
            "refs list",
            "go into a repository, or name one with -C",
        ),
        (repo.path(), "refs lst", "did you mean list?"),
        (repo.path(), "refs list --sotr=x", "did you mean --sort?"),
        (repo.path(), "store statsu", "did you mean status?"),
        (
            repo.path(),
            "refs migrate --ref-format=reftabel",
            "did you mean reftable?",
        ),
        (
            repo.path(),
            "refs migrate --ref-format=x",
            "there are the formats files and reftable",
        ),
        (
            repo.path(),
            "bench --formats=x",
            "there are the formats files and reftable",
        ),
    ] {
        let line = format!("{} {call}", env!("CARGO_BIN_EXE_refdb"));
        let out = Command::new(script)
            .args(["-qec", &line, "/dev/null"])
            .current_dir(place)
            .env(
                "GIT_CEILING_DIRECTORIES",
                dir.path().parent().expect("a folder above"),
            )
            .stdin(std::process::Stdio::null())
            .output()
            .expect("the program can be run");
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(
            !out.status.success() && text.contains(told),
            "{call}: {text}"
        );
    }
}
