//! Scripts of reference commands: generated from a seed, run in a twin of a repository, and made
//! smaller as long as they still show a difference.
//!
//! 1. A script is plain data: the same seed gives the same script, and a part can be left out.
//! 2. Object ids are written as names in braces, which a [`Fixture`] fills in.
//!
//! ```
//! use refdb_testkit::{RefFormat, scripts::Script};
//!
//! let script = Script::generate(7, RefFormat::Files);
//! assert_eq!(script, Script::generate(7, RefFormat::Files));
//! // Whatever is wanted of it, nothing of it is needed to say yes.
//! assert!(script.shrink(|_| true).steps.is_empty());
//! ```

mod atoms;
mod generate;
mod listing;
mod reflog;
mod surroundings;
mod updates;
mod words;

use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

use std::ffi::OsStr;

use bstr::{BString, ByteSlice};

use crate::fixture::Fixture;
use crate::format::RefFormat;
use crate::repo::Repo;

/// Where a linked worktree lies that scripts make, from the working folder.
pub const WORKTREE: &str = ".git/..linked/w";

/// Where hooks of scripts write what they are told, in Git's folder.
pub const HOOK_LOG: &str = "hook.log";

/// A script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// What is done, in this order.
    pub steps: Vec<Step>,
}

/// One step of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A command that Git and refdb each carry out in their repository.
    Call(Call),
    /// A command that Git carries out in both.
    Prepare(Call),
    /// A linked worktree is made.
    Worktree,
    /// A file is written into Git's folder.
    Write(&'static str, &'static str),
    /// A folder is made in Git's folder.
    MakeDir(&'static str),
    /// A hook `reference-transaction` is put in place: it writes what it is told into [`HOOK_LOG`]
    /// and goes on with these lines of a shell.
    Hook(&'static str),
}

/// A command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// What stands before the command's name: options for every command.
    pub before: Vec<&'static str>,
    /// Variables of the environment.
    pub variables: Vec<(&'static str, &'static str)>,
    /// The arguments, the command's name first.
    pub args: Vec<BString>,
    /// Standard input, in pieces that can be left out.
    pub stdin: Vec<BString>,
    /// The folder in which it runs, from the working folder.
    pub folder: &'static str,
}

impl Script {
    /// Makes the script of a seed.
    pub fn generate(seed: u64, refs: RefFormat) -> Script {
        generate::script(seed, refs)
    }

    /// Leaves out steps, arguments and pieces of input as long as `fails` says of the rest that it
    /// still does what is looked for.
    pub fn shrink(&self, fails: impl Fn(&Script) -> bool) -> Script {
        let mut script = self.clone();
        loop {
            let before = script.clone();
            script.steps = without(&script.steps, |steps| fails(&Script { steps }));
            for index in 0..script.steps.len() {
                let with = |call: Call| {
                    let mut script = script.clone();
                    if let Some(Step::Call(old) | Step::Prepare(old)) = script.steps.get_mut(index)
                    {
                        *old = call;
                    }
                    script
                };
                let (Step::Call(call) | Step::Prepare(call)) = &script.steps[index] else {
                    continue;
                };
                let mut call = call.clone();
                let plain: [fn(&mut Call); 3] = [
                    |call| call.folder = ".",
                    |call| call.before.clear(),
                    |call| call.variables.clear(),
                ];
                for change in plain {
                    let mut plain = call.clone();
                    change(&mut plain);
                    if fails(&with(plain.clone())) {
                        call = plain;
                    }
                }
                let (name, options) = call.args.split_at(1);
                let options = without(options, |options| {
                    let args = [name, &options].concat();
                    fails(&with(Call {
                        args,
                        ..call.clone()
                    }))
                });
                call.args = [name, &options].concat();
                call.stdin = without(&call.stdin, |stdin| {
                    fails(&with(Call {
                        stdin,
                        ..call.clone()
                    }))
                });
                script = with(call);
            }
            if script == before {
                return script;
            }
        }
    }
}

/// Leaves out elements, large runs first, as long as `fails` says yes.
fn without<T: Clone>(all: &[T], fails: impl Fn(Vec<T>) -> bool) -> Vec<T> {
    let mut rest = all.to_vec();
    let mut size = rest.len();
    while size > 0 {
        let mut end = rest.len();
        while end > 0 {
            let start = end.saturating_sub(size);
            let fewer = [&rest[..start], &rest[end..]].concat();
            if fails(fewer.clone()) {
                rest = fewer;
            }
            end = start.min(rest.len());
        }
        size /= 2;
    }
    rest
}

impl Step {
    /// Prepares a repository, if that is what the step does.
    ///
    /// # Panics
    ///
    /// If Git cannot be run.
    pub fn prepare(&self, fixture: &Fixture, repo: &Repo) {
        match self {
            Step::Call(_) => {}
            Step::Prepare(call) => {
                let args = call.args(fixture);
                let args = args.iter().map(|arg| OsStr::from_bytes(arg));
                // What Git refuses changes nothing in either repository.
                repo.git(args).stdin(call.input(fixture)).run();
            }
            Step::Worktree => {
                if !repo.path().join(WORKTREE).exists() {
                    let add = ["worktree", "add", "-q", "--detach", "--no-checkout"];
                    let git = repo.git(["-c", "core.hooksPath=none"]).args(add);
                    // Where it fails, it does so in both.
                    git.arg(repo.path().join(WORKTREE))
                        .arg(&repo.objects().commits[0])
                        .run();
                }
            }
            Step::Write(path, content) => {
                let content = fixture.fill(content.as_bytes());
                let path = repo.git_dir().join(path);
                // It may be in the way of a folder or a folder of it; then there is nothing to do.
                let _ = path.parent().map(fs::create_dir_all);
                let _ = fs::write(path, content);
            }
            Step::MakeDir(path) => {
                let _ = fs::create_dir_all(repo.git_dir().join(path));
            }
            Step::Hook(rest) => {
                let hooks = repo.git_dir().join("hooks");
                let hook = hooks.join("reference-transaction");
                // Hooks lie beside the log, wherever the command runs.
                let text = format!(
                    "#!/bin/sh\ninput=$(cat)\n\
                     printf '%s\\n' \"$1\" \"$input\" >>\"${{0%/*}}/../{HOOK_LOG}\"\n{rest}\n"
                );
                fs::create_dir_all(&hooks).expect("a folder can be made");
                fs::write(&hook, text).expect("a hook can be written");
                let all = fs::Permissions::from_mode(0o755);
                fs::set_permissions(&hook, all).expect("it is ours");
            }
        }
    }
}

impl Call {
    /// Returns the arguments with the ids of a repository.
    pub fn args(&self, fixture: &Fixture) -> Vec<BString> {
        self.args.iter().map(|arg| fixture.fill(arg)).collect()
    }

    /// Returns whether the input is a session, whose lines are answered one after the other.
    pub fn is_dialogue(&self) -> bool {
        let starts = |piece: &BString| piece.starts_with(b"start");
        let reads = self.args.iter().any(|arg| arg == "--stdin");
        self.args[0] == "update-ref" && reads && self.stdin.iter().any(starts)
    }

    /// Returns standard input with the ids of a repository.
    pub fn input(&self, fixture: &Fixture) -> Vec<u8> {
        fixture.fill(&self.stdin.concat()).into()
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.steps.iter().try_for_each(|step| write!(f, "{step}"))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Call(call) => write!(f, "$ {call}"),
            Step::Prepare(call) => write!(f, "! {call}"),
            Step::Worktree => writeln!(f, "! worktree add --detach {WORKTREE} {{c0}}"),
            Step::Write(path, content) => writeln!(f, "write {path}: {content:?}"),
            Step::MakeDir(path) => writeln!(f, "make the folder {path}"),
            Step::Hook(rest) => writeln!(f, "a hook: {rest}"),
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.variables {
            write!(f, "{name}={value} ")?;
        }
        if self.folder != "." {
            write!(f, "-C {} ", self.folder)?;
        }
        for option in &self.before {
            write!(f, "{option} ")?;
        }
        let quoted = |arg: &BString| {
            let text = arg.escape_bytes().to_string();
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_=/.{}:~^@,".contains(c);
            match !text.is_empty() && text.chars().all(plain) {
                true => text,
                false => format!("'{text}'"),
            }
        };
        let args: Vec<String> = self.args.iter().map(quoted).collect();
        writeln!(f, "{}", args.join(" "))?;
        for piece in &self.stdin {
            writeln!(f, "<\\ {}", piece.escape_bytes())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_stays_and_nothing_else() {
        let call = |args: &[&str]| {
            Step::Call(Call {
                args: args.iter().map(|arg| (*arg).into()).collect(),
                stdin: ["a\n", "b\n", "c\n"].map(BString::from).to_vec(),
                folder: WORKTREE,
                before: vec!["--bare"],
                variables: vec![("X", "y")],
            })
        };
        let script = Script {
            steps: vec![
                call(&["a", "x"]),
                Step::Worktree,
                call(&["b", "-1", "-2", "-3"]),
            ],
        };
        let small = script.shrink(|script| {
            let text = script.to_string();
            text.contains("b -") && text.contains("-2") && text.contains("<\\ c")
        });
        assert_eq!(small.to_string(), "$ b -2\n<\\ c\\n\n");
    }

    #[test]
    fn every_command_comes_up_in_a_thousand_scripts() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..1000 {
            for step in Script::generate(seed, RefFormat::Files).steps {
                seen.insert(match step {
                    Step::Call(call) => call.args[0].to_string(),
                    other => format!("{other:?}")[..4].to_owned(),
                });
            }
        }
        for name in [
            "update-ref",
            "symbolic-ref",
            "show-ref",
            "for-each-ref",
            "pack-refs",
            "refs",
            "check-ref-format",
            "reflog",
            "Hook",
            "Prep",
            "Work",
            "Writ",
            "Make",
        ] {
            assert!(seen.contains(name), "{name}");
        }
    }
}
