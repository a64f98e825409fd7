//! The program when it is called `git`: it answers what it knows, and becomes the real Git for all else.
//!
//! 1. What it is not certain of is Git's: an option that Git's command does not have, another command,
//!    another way to ask, a repository that it cannot open. Nothing has been said or changed by then.
//! 2. The real Git is one that stands in `PATH` behind this program, so that no two programs of this
//!    kind can call each other in a circle. Where there is none, as this program stands there twice, it is one before it:
//!    a process looks there once.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};

use refdb::ErrorKind;
use refdb::system::{FileKind, OsSystem, System};
use rustix::fs::{Access, access};

use crate::commands;
use crate::context::Context;
use crate::failure::{Result, say};
use crate::pager::Paging;
use crate::platform;
use crate::trace;

/// Whether the program is called `git`.
static IS_GIT: AtomicBool = AtomicBool::new(false);

/// Where programs are looked for if nothing says where.
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Names the process that has looked before this program for the real Git. One that is started keeps its number.
const LOOKED_BEFORE: &str = "REFDB_LOOKED_BEFORE";

/// What a shell ends with where a program is missing.
const NOT_FOUND: u8 = 127;

/// Options before the command word that take a value, and are Git's as well as refdb's.
const WITH_VALUE: [&[u8]; 4] = [
    b"--git-dir",
    b"--work-tree",
    b"--namespace",
    b"--config-env",
];

/// The same without a value.
const FLAGS: [&[u8]; 6] = [
    b"--bare",
    b"--no-replace-objects",
    b"-p",
    b"--paginate",
    b"-P",
    b"--no-pager",
];

/// Variables about what is written down of a run: these are obeyed. With others of their kind it is
/// more than this program writes.
const TRACES: [&str; 11] = [
    "GIT_TRACE2",
    "GIT_TRACE2_EVENT",
    "GIT_TRACE2_PERF",
    "GIT_TRACE2_BRIEF",
    "GIT_TRACE2_EVENT_BRIEF",
    "GIT_TRACE2_PERF_BRIEF",
    "GIT_TRACE2_DST_DEBUG",
    "GIT_TRACE2_MAX_FILES",
    "GIT_TRACE2_PARENT_NAME",
    "GIT_TRACE2_PARENT_SID",
    "GIT_TRACE2_REDACT",
];

/// Settings by which Git writes more into a trace than this program does.
const MORE_OF_TRACES: [&str; 2] = ["trace2.configparams", "trace2.envvars"];

/// Returns whether the program is called `git`.
pub(crate) fn is_git() -> bool {
    IS_GIT.load(Ordering::Relaxed)
}

/// Returns what the program is called in texts about it.
pub(crate) fn called() -> &'static str {
    if is_git() { "git" } else { "refdb" }
}

/// Becomes the real Git if the program is called `git` and the command line is not certainly one for
/// this program. Returns the exit code if there is no such Git, and `None` where the call is ours.
pub(crate) fn begin(name: &OsStr, args: &[Vec<u8>]) -> Option<ExitCode> {
    if Path::new(name).file_name() != Some(OsStr::new("git")) {
        return None;
    }
    IS_GIT.store(true, Ordering::Relaxed);
    if is_ours(args) {
        return None;
    }
    Some(become_git(args))
}

/// Returns whether the command line is one that this program answers as Git does.
fn is_ours(args: &[Vec<u8>]) -> bool {
    let traced = |name: &OsString| {
        let is_known = || TRACES.iter().any(|known| name == known);
        name.as_bytes().starts_with(b"GIT_TRACE") && !is_known()
    };
    match command(args) {
        Some([name, rest @ ..]) if commands::is_gits(name, rest) => {
            !std::env::vars_os().any(|(name, _)| traced(&name))
        }
        _ => false,
    }
}

/// Returns the command word and what stands behind it; `None` if another option than those of both
/// programs stands before it.
fn command(args: &[Vec<u8>]) -> Option<&[Vec<u8>]> {
    let mut rest = args;
    loop {
        let (first, behind) = rest.split_first()?;
        let stuck = first.iter().position(|&byte| byte == b'=');
        let option = first.get(..stuck.unwrap_or(first.len()))?;
        rest = match first.as_slice() {
            b"-C" | b"-c" => behind.get(1..)?,
            flag if FLAGS.contains(&flag) => behind,
            [b'-', ..] if !WITH_VALUE.contains(&option) => return None,
            [b'-', ..] if stuck.is_some() => behind,
            [b'-', ..] => behind.get(1..)?,
            _ => return Some(rest),
        };
    }
}

/// Becomes the real Git where the repository is not one that this program opens as Git does, or
/// where Git is to write down what it does.
///
/// # Errors
/// If there is no such Git. Whatever else is wrong with the repository is left to the command.
pub(crate) fn leave_to_git(context: &Context, args: &[Vec<u8>]) -> Result<()> {
    let is_gits = match context.found() {
        Ok(repository) => {
            let config = repository.config();
            MORE_OF_TRACES.iter().any(|key| config.get(key).is_some())
        }
        Err(error) => matches!(
            error.kind(),
            ErrorKind::Repository
                | ErrorKind::NoRepository
                | ErrorKind::BareRepository
                | ErrorKind::Unsupported
                | ErrorKind::Config
        ),
    };
    if !is_gits {
        return Ok(());
    }
    let mut all = context.globals().as_arguments();
    let pager = Paging::option(context.globals().pager);
    all.extend(pager.map(|option| option.as_bytes().to_vec()));
    all.extend_from_slice(args);
    let _ = become_git(&all);
    Err(crate::failure::Failure::Exit(NOT_FOUND))
}

/// Becomes the real Git. Returns only if there is none; that has been said then.
fn become_git(args: &[Vec<u8>]) -> ExitCode {
    let (behind, before) = candidates();
    let pid = std::process::id().to_string();
    let has_looked = std::env::var_os(LOOKED_BEFORE).is_some_and(|looked| *looked == *pid);
    let before = before.iter().filter(|_| !has_looked);
    for (at, path) in behind.iter().chain(before).enumerate() {
        let mut git = git(path, args);
        if at >= behind.len() {
            git.env(LOOKED_BEFORE, &pid);
        }
        trace::exec(&git);
        let error = git.exec();
        match error.kind() {
            io::ErrorKind::NotFound
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::PermissionDenied => {}
            _ => {
                let why = refdb::error::io_text(&error);
                let text = format!("cannot run '{}': {why}", path.display());
                say("fatal", text.as_bytes());
                return ExitCode::from(NOT_FOUND);
            }
        }
    }
    say(
        "fatal",
        b"this 'git' is refdb, which answers commands about refs and leaves all else to the real Git, \
          and there is none in PATH: name the directory of Git there, behind this one",
    );
    ExitCode::from(NOT_FOUND)
}

fn git(path: &Path, args: &[Vec<u8>]) -> Command {
    let mut command = Command::new(path);
    command.args(args.iter().map(|arg| OsStr::from_bytes(arg)));
    trace::pass_on(&mut command);
    command
}

/// Returns the program that other parts of the command call `git`: never this one.
pub(crate) fn real_git() -> Command {
    let is_there = |path: &PathBuf| {
        let found = OsSystem::new().stat(path);
        found.is_ok_and(|it| it.kind == FileKind::File) && access(path, Access::EXEC_OK).is_ok()
    };
    let find = || {
        let (behind, before) = candidates();
        behind.into_iter().chain(before).find(is_there)
    };
    match is_git().then(find) {
        Some(Some(path)) => Command::new(path),
        _ => Command::new("git"),
    }
}

/// Returns where the real Git may be: the places in `PATH` behind the last one that has this program, and those before it
/// that have another one.
fn candidates() -> (Vec<PathBuf>, Vec<PathBuf>) {
    let path = std::env::var_os("PATH").unwrap_or_else(|| USUAL_PATH.into());
    let mut places: Vec<PathBuf> = path
        .as_bytes()
        .split(|&byte| byte == b':')
        .map(|dir| {
            Path::new(OsStr::from_bytes(if dir.is_empty() { b"." } else { dir })).join("git")
        })
        .collect();
    let this = this_program();
    let is_this = |path: &PathBuf| this.is_some() && identity(path) == this;
    match places.iter().rposition(is_this) {
        Some(at) => {
            let behind = places.split_off(at + 1);
            places.retain(|path| !is_this(path));
            (behind, places)
        }
        // Where nobody knows which file is this one, the first must be.
        None if this.is_none() && !places.is_empty() => (places.split_off(1), Vec::new()),
        None => (places, Vec::new()),
    }
}

/// Returns what tells the file that this process runs from all others.
pub(crate) fn this_program() -> Option<(u64, u64)> {
    let by_path = || identity(&std::env::current_exe().ok()?);
    let by_system = platform::THIS_PROGRAM.map(Path::new);
    by_system.and_then(identity).or_else(by_path)
}

/// Returns what tells a file from all others, if it is there.
pub(crate) fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = OsSystem::new().stat(path).ok()?;
    Some((found.dev, found.ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(args: &[&str]) -> Vec<Vec<u8>> {
        args.iter().map(|arg| arg.as_bytes().to_vec()).collect()
    }

    #[test]
    fn the_command_stands_behind_options_of_both() {
        for (call, name) in [
            (&["-C", "a", "-c", "b", "show-ref"][..], Some("show-ref")),
            (
                &["--git-dir=a", "--namespace", "n", "-P", "refs"],
                Some("refs"),
            ),
            (&["--git-dir", "a", "--bare", "log", "-p"], Some("log")),
            (&["--exec-path=a", "show-ref"], None),
            (&["--exec-path"], None),
            (&["--store=a", "show-ref"], None),
            (&["--no-advice", "show-ref"], None),
            (&["-Ca", "show-ref"], None),
            (&["-C"], None),
            (&["--git-dir"], None),
            (&["--version"], None),
            (&["--bare=a", "show-ref"], None),
            (&[], None),
        ] {
            let call = args(call);
            let found = command(&call).and_then(<[_]>::first);
            assert_eq!(
                found.map(Vec::as_slice),
                name.map(str::as_bytes),
                "{call:?}"
            );
        }
    }
}
