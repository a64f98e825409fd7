//! Completions and manual pages: they know every command and option, and shells and page readers
//! take them.

#![allow(clippy::print_stderr, reason = "says what was skipped")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use refdb_testkit::Format;
use refdb_testkit::repo::Repo;

/// Runs the command outside of any repository.
fn refdb(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_refdb"))
        .args(args)
        .current_dir(dir)
        .env("GIT_CEILING_DIRECTORIES", "/")
        .output()
        .expect("the program can be run")
}

fn text(out: &Output) -> String {
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8(out.stdout.clone()).expect("UTF-8")
}

/// Returns what bash offers behind these words.
fn offered(script: &Path, words: &[&str]) -> Vec<String> {
    let last = words.len() - 1;
    let before = if last > 0 { words[last - 1] } else { "" };
    // Git's own completion calls the other one.
    let function = if words[0] == "git" {
        "_git_refdb"
    } else {
        "_refdb_or_refs"
    };
    let ask = format!(
        "source '{}'; COMP_WORDS=({}); COMP_CWORD={last}; {function} refdb '{}' '{before}'; \
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        script.display(),
        words
            .iter()
            .map(|word| format!("'{word}'"))
            .collect::<Vec<_>>()
            .join(" "),
        words[last],
    );
    let out = shell("bash", script.parent().expect("a folder"))
        .args(["--norc", "-c", &ask])
        .output()
        .expect("bash can be run");
    text(&out).lines().map(str::to_owned).collect()
}

/// Returns a shell that finds the program, in a folder.
fn shell(name: &str, dir: &Path) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_refdb"));
    let mut path = program.parent().expect("a folder").as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let mut shell = Command::new(name);
    shell.current_dir(dir).env("PATH", path).env("HOME", dir);
    shell.env("GIT_CEILING_DIRECTORIES", "/");
    shell
}

/// Writes the completions for a shell into a folder with a repository that has two branches.
fn beside_refs(name: &str) -> (Repo, PathBuf) {
    let repo = Repo::init(Format::REFTABLE_SHA1);
    let commit = &repo.objects().commits[0];
    repo.update_refs(format!(
        "create refs/heads/topic/one {commit}\ncreate refs/heads/topic/two {commit}\n\
         create refs/heads/main {commit}\n"
    ));
    let script = repo.path().join("completions");
    let generated = text(&refdb(repo.path(), &["completions", name]));
    std::fs::write(&script, generated).expect("a file");
    (repo, script)
}

const BRANCHES: [&str; 2] = ["refs/heads/topic/one", "refs/heads/topic/two"];

#[test]
fn bash_completes_refs() {
    let (repo, script) = beside_refs("bash");
    for words in [
        &["refdb", "update-ref", "-d", "refs/heads/to"] as &[&str],
        &["refdb", "show-ref", "--verify", "refs/heads/topic/"],
        &["refdb", "reflog", "show", "refs/heads/t"],
        &["git", "refdb", "refs", "delete", "refs/heads/t"],
        &["refdb", "-C", ".", "for-each-ref", "refs/heads/top"],
    ] {
        assert_eq!(offered(&script, words), BRANCHES, "{words:?}");
    }
    assert_eq!(offered(&script, &["refdb", "symbolic-ref", "HE"]), ["HEAD"]);
    let all = offered(&script, &["refdb", "show-ref", ""]);
    assert!(all.iter().any(|name| name == BRANCHES[0]), "{all:?}");
    assert!(all.iter().all(|name| !name.starts_with('-')), "{all:?}");
    let none = offered(&script, &["refdb", "inspect", "refs/heads/t"]);
    assert_eq!(none, [""]);
    drop(repo);
}

#[test]
fn bash_runs_nothing_that_a_name_says() {
    let (repo, script) = beside_refs("bash");
    let commit = &repo.objects().commits[0];
    repo.update_refs(format!(
        "create refs/heads/$(exit);`exit`&'{commit}' {commit}\n"
    ));
    let offered = offered(&script, &["refdb", "show-ref", "refs/heads/$"]);
    let quoted = format!(r"refs/heads/\$\(exit\)\;\`exit\`\&\'{commit}\'");
    assert_eq!(offered, [quoted]);
}

#[test]
fn fish_completes_refs() {
    let (repo, script) = beside_refs("fish");
    for line in [
        "refdb update-ref -d refs/heads/to",
        "refdb reflog show refs/heads/t",
    ] {
        let ask = format!("source '{}'; complete -C '{line}'", script.display());
        let Ok(out) = shell("fish", repo.path()).args(["-N", "-c", &ask]).output() else {
            eprintln!("skipped: there is no fish");
            return;
        };
        let offered = text(&out);
        let offered: Vec<_> = offered.lines().map(|it| it.split('\t').next()).collect();
        assert_eq!(offered, BRANCHES.map(Some), "{line}");
    }
}

#[test]
fn zsh_completes_refs() {
    let (repo, script) = beside_refs("zsh");
    // Outside of a completion, there is nothing to add words to.
    let ask = format!(
        "compdef() {{ }}; compadd() {{ shift; print -l -- ${{(P)1}} }}; source '{}' 2>/dev/null; \
         PREFIX=refs/heads/to; _refdb_refs",
        script.display()
    );
    let Ok(out) = shell("zsh", repo.path()).args(["-f", "-c", &ask]).output() else {
        eprintln!("skipped: there is no zsh");
        return;
    };
    let offered = text(&out);
    assert_eq!(offered.lines().collect::<Vec<_>>(), BRANCHES);
    let generated = std::fs::read_to_string(&script).expect("a file");
    assert!(generated.contains("::ref:_refdb_refs'"), "{generated}");
}

#[test]
fn bash_completes_commands_and_options() {
    let dir = tempfile::tempdir().expect("a folder");
    let script = dir.path().join("completions");
    let generated = text(&refdb(dir.path(), &["completions", "bash"]));
    std::fs::write(&script, generated).expect("a file");
    assert_eq!(offered(&script, &["refdb", "up"]), ["update-ref"]);
    let pager = offered(&script, &["refdb", "--pag"]);
    assert_eq!(pager, ["--paginate"]);
    let options = offered(&script, &["refdb", "update-ref", "--"]);
    for option in ["--stdin", "--no-deref", "--deref", "--create-reflog"] {
        assert!(options.iter().any(|it| it == option), "{options:?}");
    }
    let all = offered(&script, &["refdb", "refs", ""]);
    assert!(all.iter().any(|it| it == "optimize"), "{all:?}");
    let listing = offered(&script, &["refdb", "refs", "list", "--so"]);
    assert_eq!(listing, ["--sort"]);
    let formats = offered(
        &script,
        &["refdb", "refs", "migrate", "--ref-format", "=", "r"],
    );
    assert_eq!(formats, ["reftable"]);
    assert_eq!(offered(&script, &["refdb", "completions", "z"]), ["zsh"]);
    assert_eq!(
        offered(&script, &["git", "refdb", "refs", "mig"]),
        ["migrate"]
    );
    let formats = offered(
        &script,
        &["git", "refdb", "refs", "migrate", "--ref-format", "="],
    );
    assert_eq!(formats, ["files", "reftable"]);
    assert_eq!(
        offered(&script, &["refdb", "help", "refs", "mig"]),
        ["migrate"]
    );
    let names = offered(&script, &["refdb", "check-ref-format", "--no"]);
    assert!(names.iter().any(|it| it == "--normalize"), "{names:?}");
}

#[test]
fn other_shells_get_theirs() {
    let dir = tempfile::tempdir().expect("a folder");
    for (shell, start) in [("zsh", "#compdef refdb"), ("fish", "# Print an optspec")] {
        let generated = text(&refdb(dir.path(), &["completions", shell]));
        assert!(generated.starts_with(start), "{shell}: {generated:.60}");
        assert!(generated.contains("create-reflog"), "{shell}");
    }
    let out = refdb(dir.path(), &["completions", "tcsh"]);
    assert_eq!(out.status.code(), Some(129));
    let told = "error: no completions for 'tcsh': there are some for bash, zsh and fish\n";
    assert!(String::from_utf8_lossy(&out.stderr).starts_with(told));
    assert_eq!(refdb(dir.path(), &["completions"]).status.code(), Some(129));
}

#[test]
fn there_is_a_page_for_each_command() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().to_str().expect("UTF-8");
    // A second run replaces the pages of the first.
    for _ in 0..2 {
        assert_eq!(text(&refdb(dir.path(), &["man", path])), "");
    }
    let main = std::fs::read_to_string(dir.path().join("refdb.1")).expect("a page");
    assert_eq!(text(&refdb(dir.path(), &["man"])), main);
    for (page, word) in [
        ("refdb", "update"),
        ("refdb-update-ref", "reason of the update"),
        ("refdb-for-each-ref", "sort"),
        ("refdb-refs", "optimize"),
        ("refdb-refs-list", "sort"),
        ("refdb-check-ref-format", "normalize"),
    ] {
        let content = std::fs::read_to_string(dir.path().join(format!("{page}.1")));
        let content = content.expect("a page");
        assert!(content.contains(word), "{page}");
        assert!(
            content.starts_with(".ie") && content.contains(".SH SYNOPSIS"),
            "{page}"
        );
        // It says how the command is called, as a user has to call it.
        let (_, synopsis) = content.split_once(".SH SYNOPSIS\n").expect("a synopsis");
        let call = format!(
            "refdb {}",
            page.trim_start_matches("refdb").trim_start_matches('-')
        );
        let call = call.replace("refs-list", "refs list").replace('-', "\\-");
        let synopsis = synopsis.replace("\\fB", "").replace("\\fR", "");
        assert!(synopsis.starts_with(&call), "{page}: {synopsis:.80}");
        let version = format!("\"refdb {}\"", env!("CARGO_PKG_VERSION"));
        assert!(content.contains(&version), "{page}");
        let file = dir.path().join(format!("{page}.1"));
        // Where there is a reader of pages, it has nothing to complain about.
        let groff = Command::new("groff")
            .args(["-man", "-Tutf8", "-ww"])
            .arg(&file)
            .output();
        if let Ok(out) = groff {
            assert!(
                out.status.success() && out.stderr.is_empty(),
                "{page}: {out:?}"
            );
        }
    }
    let out = refdb(dir.path(), &["man", "refdb.1"]);
    assert_eq!(out.status.code(), Some(128));
}
