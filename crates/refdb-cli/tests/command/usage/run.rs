//! Runs a script twice and compares what comes of it.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use refdb_testkit::{Format, ObjectFormat, RefFormat, oracle};

/// A script.
pub(crate) struct Script<'t> {
    pub(crate) title: &'t str,
    notes: &'t str,
    commands: Vec<String>,
}

impl Script<'_> {
    /// Returns whether the script is for repositories of this format.
    pub(crate) fn is_about(&self, format: Format) -> bool {
        if self.notes.contains("sha1") && format.objects != ObjectFormat::Sha1 {
            return false;
        }
        match format.refs {
            RefFormat::Files => !self.notes.contains("reftable"),
            RefFormat::Reftable => !self.notes.contains("files"),
        }
    }
}

/// Reads a file of scripts.
pub(crate) fn parse(text: &str) -> Vec<Script<'_>> {
    let mut scripts: Vec<Script<'_>> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(title) = line.strip_prefix("# ") {
            let (title, notes) = title.split_once('|').unwrap_or((title, ""));
            scripts.push(Script {
                title: title.trim(),
                notes,
                commands: Vec::new(),
            });
            continue;
        }
        let script = scripts.last_mut().expect("a title comes first");
        match (line.strip_prefix('\t'), script.commands.last_mut()) {
            (Some(more), Some(command)) => {
                command.push('\n');
                command.push_str(more);
            }
            _ => script.commands.push(line.to_owned()),
        }
    }
    scripts
}

/// What every script can use: a clock that goes on, and commits with a tag each.
const PRELUDE: &str = r#"
T=1700000000
tick() {
	T=$((T+60))
	GIT_COMMITTER_DATE="$T -0700" GIT_AUTHOR_DATE="$T -0700"
	export GIT_COMMITTER_DATE GIT_AUTHOR_DATE
}
tick
commit() {
	tick
	echo "$1" >"$1.t" && git add "$1.t" && git commit -q -m "$1" && git tag "$1"
}
"#;

/// What is compared in the end, besides all answers.
const REFS: &str = "\"$REAL\" for-each-ref --include-root-refs \
    --format='%(refname) %(objectname) %(symref)'";
const LOGS: &str = "for log in $(\"$REAL\" reflog list); do echo \"$log\"; \
    \"$REAL\" log -g --format='%H %gn %ge %gd %gs' --date=raw $log --; done";

/// Sends reference commands to one program and all others to another.
const WRAPPER: &str = r#"#!/bin/sh
skip=
for word; do
	if [ "$skip" ]; then skip=; continue; fi
	case $word in
	-C|-c|--git-dir|--work-tree|--namespace|--config-env|--attr-source) skip=1 ;;
	-*) ;;
	update-ref|symbolic-ref|show-ref|for-each-ref|pack-refs|refs|reflog|check-ref-format)
		exec "$REFDB" "$@" ;;
	*) break ;;
	esac
done
exec "$REAL" "$@"
"#;

/// The answer to one command.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    code: i32,
    stdout: String,
    stderr: String,
}

/// Runs a script with Git and with refdb in its place; returns a readable text for each difference.
pub(crate) fn differences(script: &Script<'_>, format: Format) -> Vec<String> {
    let folder = tempfile::Builder::new().prefix("refdb-").tempdir();
    let folder = folder.expect("a folder");
    let mut commands = script.commands.clone();
    commands.push(REFS.to_owned());
    if !script.notes.contains("logs differ") {
        commands.push(LOGS.to_owned());
    }
    let [git, ours] = ["git", "our"].map(|side| answers(folder.path(), side, &commands, format));
    let mut differences = Vec::new();
    for ((command, git), ours) in commands.iter().zip(git).zip(ours) {
        if git == ours {
            continue;
        }
        let mut text = format!("# {}\n$ {command}\n", script.title);
        for (what, git, ours) in [
            ("exit code", git.code.to_string(), ours.code.to_string()),
            ("stdout", git.stdout, ours.stdout),
            ("stderr", git.stderr, ours.stderr),
        ] {
            if git != ours {
                let _ = write!(text, "{what}, Git:\n{git}\n{what}, refdb:\n{ours}\n");
            }
        }
        differences.push(text);
    }
    differences
}

/// Runs the commands on one side, in a repository of its own.
fn answers(folder: &Path, side: &str, commands: &[String], format: Format) -> Vec<Answer> {
    let dir = folder.join(side);
    let (repo, bin, said) = (dir.join("repo"), dir.join("bin"), dir.join("said"));
    for dir in [&repo, &bin, &said] {
        fs::create_dir_all(dir).expect("a folder");
    }
    let settings = "[init]\n\tdefaultBranch = main\n[advice]\n\tdetachedHead = false\n";
    fs::write(dir.join(".gitconfig"), settings).expect("a file");
    let wrapper = bin.join("git");
    if side == "git" {
        symlink(oracle::program(), &wrapper).expect("a link");
    } else {
        fs::write(&wrapper, WRAPPER).expect("a file");
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&wrapper, mode).expect("a file of ours");
    }
    let mut text = PRELUDE.to_owned();
    for (index, command) in commands.iter().enumerate() {
        let quoted = command.replace('\'', "'\\''");
        let said = format!("\"$SAID/{index}");
        let line = "{ eval '";
        let _ = writeln!(
            text,
            "{line}{quoted}'\n}} >{said}.out\" 2>{said}.err\"\necho $? >{said}.code\""
        );
    }
    let script = dir.join("script");
    fs::write(&script, text).expect("a file");

    let mut shell = Command::new("/bin/sh");
    shell.arg(&script).current_dir(&repo).env_clear();
    let own = |name: &str| name.starts_with("GIT_CONFIG_KEY") || name.starts_with("GIT_CONFIG_V");
    for (name, value) in oracle::environment() {
        let text = name.to_str().expect("UTF-8");
        if !own(text) && !["GIT_CONFIG_COUNT", "GIT_CONFIG_GLOBAL", "HOME", "PATH"].contains(&text)
        {
            shell.env(name, value);
        }
    }
    let status = shell
        .env("PATH", format!("{}:/usr/bin:/bin", bin.display()))
        .env("HOME", &dir)
        .env("D", &dir)
        .env("SAID", &said)
        .env("REAL", oracle::program())
        .env("REFDB", env!("CARGO_BIN_EXE_refdb"))
        .env("GIT_DEFAULT_REF_FORMAT", format.refs.name())
        .env("GIT_DEFAULT_HASH", format.objects.name())
        .env("FORMAT", format.refs.name())
        .env("GIT_CEILING_DIRECTORIES", &dir)
        .env("GIT_EDITOR", ":")
        .stdin(Stdio::null())
        .status()
        .expect("a shell");
    assert!(status.success(), "the shell ended with {status}");

    (0..commands.len())
        .map(|index| said_of(&dir, index, side == "git"))
        .collect()
}

/// Reads what a command answered.
fn said_of(dir: &Path, index: usize, is_git: bool) -> Answer {
    let root = dir.to_str().expect("UTF-8");
    let read = |what: &str| {
        let bytes = fs::read(dir.join(format!("said/{index}.{what}"))).unwrap_or_default();
        String::from_utf8_lossy(&bytes).replace(root, "<dir>")
    };
    let mut code = read("code").trim_end().parse().unwrap_or(-1);
    let (mut stdout, mut stderr) = (read("out"), read("err"));
    if is_git {
        oracle::as_newest(&mut code, &mut stdout, &mut stderr);
    }
    Answer {
        code,
        stdout: in_common_words(&stdout),
        stderr: in_common_words(&stderr),
    }
}

/// Takes out what both sides say in their own words: how commands are called, their own name, and
/// random names.
fn in_common_words(text: &str) -> String {
    let mut out = String::new();
    let mut in_usage = false;
    for line in text.lines() {
        in_usage |= line.starts_with("usage: ");
        if in_usage && !line.starts_with("fatal: ") && !line.starts_with("error: ") {
            // The texts of options are each program's own.
            in_usage = line.is_empty() || line.starts_with([' ', 'u']) || line.ends_with("ptions");
            if in_usage {
                continue;
            }
        }
        let line = line.replace("'git <command>", "'refdb <command>");
        out.push_str(&line.replace("'git refs ", "'refdb refs "));
        out.push('\n');
    }
    out
}
