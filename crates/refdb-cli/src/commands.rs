//! The commands: a table with a line for each, and what leads to them.

mod bench;
mod check_ref_format;
mod for_each_ref;
mod generate;
mod inspect;
mod pack_refs;
mod reflog;
mod refs;
mod show_ref;
mod store;
mod symbolic_ref;
pub(crate) mod update_ref;
mod watch;

use std::fmt::Write;
use std::io::IsTerminal;
use std::mem::ManuallyDrop;

use crate::context::Context;
use crate::failure::{Failure, Result, say_error};
use crate::global::{self, Request};
use crate::interrupt;
use crate::options::Describe;
use crate::output::Output;
use crate::pager::Paging;
use crate::suggest;

/// What carries out a command or a subcommand, with the arguments behind its name.
type Run = fn(&Context, &mut Output, &[Vec<u8>]) -> Result<()>;

/// One command.
struct Command {
    name: &'static str,
    summary: &'static str,
    /// What it takes.
    spec: &'static dyn Describe,
    subcommands: &'static [Subcommand],
    run: Run,
}

/// A subcommand, how it is called, and what it takes.
struct Subcommand {
    name: &'static str,
    /// The call as the usage text of the command shows it.
    form: &'static str,
    spec: &'static dyn Describe,
    run: Run,
}

/// Returns how each of the `N` subcommands is called.
const fn forms_of<const N: usize>(subcommands: &[Subcommand]) -> [&'static str; N] {
    let mut forms = [""; N];
    let mut index = 0;
    while index < N {
        forms[index] = subcommands[index].form;
        index += 1;
    }
    forms
}

/// Every command, in the order in which they are listed.
const COMMANDS: &[Command] = &[
    Command {
        name: "update-ref",
        summary: "Create, move and delete refs, one or a hundred thousand at once",
        spec: &update_ref::SPEC,
        subcommands: &[],
        run: update_ref::run,
    },
    Command {
        name: "symbolic-ref",
        summary: "Read, set and delete symrefs such as HEAD",
        spec: &symbolic_ref::SPEC,
        subcommands: &[],
        run: symbolic_ref::run,
    },
    Command {
        name: "show-ref",
        summary: "List refs with their object ids, or check that one exists",
        spec: &show_ref::SPEC,
        subcommands: &[],
        run: show_ref::run,
    },
    Command {
        name: "for-each-ref",
        summary: "List refs in any form and order",
        spec: &for_each_ref::FOR_EACH_REF,
        subcommands: &[],
        run: for_each_ref::run,
    },
    Command {
        name: "pack-refs",
        summary: "Store refs compactly",
        spec: &pack_refs::PACK_REFS,
        subcommands: &[],
        run: pack_refs::run,
    },
    Command {
        name: "check-ref-format",
        summary: "Tell whether a name may be the name of a ref or of a branch",
        spec: &check_ref_format::SPEC,
        subcommands: &[],
        run: check_ref_format::run,
    },
    Command {
        name: "inspect",
        summary: "Show what the refs are kept in: tables and blocks, or loose and packed refs",
        spec: &inspect::SPEC,
        subcommands: &[],
        run: inspect::run,
    },
    Command {
        name: "reflog",
        summary: "Show where refs have been, and forget what is too old",
        spec: &reflog::SPEC,
        subcommands: reflog::SUBCOMMANDS,
        run: reflog::run,
    },
    Command {
        name: "bench",
        summary: "Measure refdb and Git side by side",
        spec: &bench::BENCH,
        subcommands: &[],
        run: bench::run,
    },
    Command {
        name: "refs",
        summary: "All of this under one name: list, exists, create, update, delete, rename, ...",
        spec: &refs::SPEC,
        subcommands: refs::SUBCOMMANDS,
        run: refs::run,
    },
    Command {
        name: "store",
        summary: "Keep the refs in a place that many machines share",
        spec: &store::SPEC,
        subcommands: store::SUBCOMMANDS,
        run: store::run,
    },
    Command {
        name: "probe",
        summary: "Try whether a place can keep a store that many machines share",
        spec: &store::PROBE,
        subcommands: &[],
        run: store::probe_place,
    },
    Command {
        name: "watch",
        summary: "Tell what changes in a store that many machines share",
        spec: &watch::SPEC,
        subcommands: &[],
        run: watch::run,
    },
    Command {
        name: "completions",
        summary: "Print completions for a shell: bash, zsh or fish",
        spec: &generate::COMPLETIONS,
        subcommands: &[],
        run: generate::completions,
    },
    Command {
        name: "man",
        summary: "Print the manual page, or write all pages into a directory",
        spec: &generate::MAN,
        subcommands: &[],
        run: generate::man,
    },
];

/// How often a command that reads begins again, since the refs were moved into the other format.
const AGAIN_MAX: usize = 3;

/// The commands that do something useful where there is no repository.
const WITHOUT_REPOSITORY: &[&str] = &[
    "check-ref-format",
    "completions",
    "man",
    "bench",
    "probe",
    "store",
];

/// Runs the command line.
///
/// # Errors
/// Whatever ends the command; nothing of it has been said yet.
pub(crate) fn run(args: &[Vec<u8>]) -> Result<()> {
    for left in (0..=AGAIN_MAX).rev() {
        let (globals, request) = global::parse(args)?;
        // The process ends with it: what was opened is given back at once, not piece by piece.
        let context = ManuallyDrop::new(Context::new(globals));
        match attempt(&context, request, args) {
            Attempt::Moved(_) if left > 0 => {}
            attempt => return attempt.end(),
        }
    }
    Ok(())
}

/// What came of an attempt to do what the command line asks for.
enum Attempt {
    /// It is done, or has failed.
    Ended(Result<()>, Output),
    /// The refs were moved, and nothing was said yet: what only reads can begin again.
    Moved(Failure),
}

impl Attempt {
    fn end(self) -> Result<()> {
        let (result, mut out) = match self {
            Attempt::Ended(result, out) => (result, out),
            Attempt::Moved(failure) => (Err(failure), Output::default()),
        };
        match result {
            // What was printed before is still to be seen, behind the message: where both go to one
            // place and nobody looks, the message stands before what Git has not written yet, too.
            Err(failure) if !std::io::stdout().is_terminal() => {
                let code = failure.report();
                out.flush().and(Err(Failure::Exit(code)))
            }
            _ => result.and(out.flush()),
        }
    }
}

/// Does what the command line asks for.
///
/// # Errors
/// As for [`run`].
#[cfg(feature = "fuzzing")]
pub(crate) fn carry_out(context: &Context, request: Request, args: &[Vec<u8>]) -> Result<()> {
    attempt(context, request, args).end()
}

fn attempt(context: &Context, request: Request, args: &[Vec<u8>]) -> Attempt {
    let mut out = Output::default();
    let mut only_reads = false;
    let result = match request {
        Request::Version => out.put(format!("refdb version {}\n", env!("CARGO_PKG_VERSION"))),
        Request::Help => out.put(overview()),
        Request::Nothing => out.put(overview()).and(Err(Failure::Exit(1))),
        Request::Command(at) => match args.get(at..).and_then(<[_]>::split_first) {
            Some((name, rest)) => {
                only_reads = may_begin_again(name, rest);
                dispatch(context, &mut out, name, rest)
            }
            None => Ok(()),
        },
    };
    let result = result.map_err(|failure| context.as_seen_from_the_top(failure));
    match result {
        Err(failure @ Failure::Moved(_)) if only_reads && out.begin_again() => {
            Attempt::Moved(failure)
        }
        result => Attempt::Ended(result, out),
    }
}

/// Returns whether a command does nothing but read refs: not standard input, which it would not find
/// again.
fn may_begin_again(name: &[u8], args: &[Vec<u8>]) -> bool {
    let reads_input = |arg: &Vec<u8>| {
        let may_mean = |option: &[u8]| arg.len() > 2 && option.starts_with(arg);
        may_mean(b"--stdin")
            || may_mean(b"--exclude-existing")
            || arg.starts_with(b"--exclude-existing")
    };
    let only_reads = match name {
        b"for-each-ref" | b"show-ref" => true,
        b"refs" => matches!(args.first().map(Vec::as_slice), Some(b"list" | b"exists")),
        _ => false,
    };
    only_reads && !args.iter().any(reads_input)
}

fn dispatch(context: &Context, out: &mut Output, name: &[u8], args: &[Vec<u8>]) -> Result<()> {
    let help_of = |name: &[u8]| find(name).map(|command| (command, vec![b"-h".to_vec()]));
    match (name, args) {
        (b"help", []) => out.put(overview()),
        (b"help", [name, ..]) => match help_of(name) {
            Some((command, args)) => help(context, out, command, &args),
            None => Err(unknown(name)),
        },
        (name, [first, ..]) if first == b"--help" => match help_of(name) {
            Some((command, args)) => help(context, out, command, &args),
            None => Err(unknown(name)),
        },
        (name, args) => match find(name) {
            Some(command) => {
                // Asking how to call a command needs no repository; all else does.
                let asks = matches!(args, [only] if only == b"-h" || only == b"--help-all");
                let is_for_damaged = command.name == "refs" && refs::is_for_damaged(args);
                if is_for_damaged && !args.iter().any(|arg| arg == b"-h") {
                    context.damaged_repository()?;
                } else if !asks && !WITHOUT_REPOSITORY.contains(&command.name) {
                    context.repository()?;
                    // Of the commands about reflogs one has a pager anyway, and another rule for it.
                    if command.name != "reflog" {
                        start_pager(context, out, command.name)?;
                    }
                } else if context.globals().pager == Some(true) {
                    Paging::default().start(context, out)?;
                }
                let changes_one = matches!(command.name, "update-ref" | "symbolic-ref");
                if changes_one && !args.iter().any(|arg| arg.starts_with(b"--st")) {
                    interrupt::expect_quick();
                }
                (command.run)(context, out, args)
            }
            None => Err(unknown(name)),
        },
    }
}

/// Starts the pager, if one is asked for.
fn start_pager(context: &Context, out: &mut Output, command: &str) -> Result<()> {
    let paging = Paging::of(context, command)?;
    match paging.wanted {
        Some(true) => paging.start(context, out),
        _ => Ok(()),
    }
}

fn find(name: &[u8]) -> Option<&'static Command> {
    COMMANDS
        .iter()
        .find(|command| command.name.as_bytes() == name)
}

/// Prints what a command does and how it is called.
fn help(context: &Context, out: &mut Output, command: &Command, args: &[Vec<u8>]) -> Result<()> {
    let about = format!("refdb {}: {}\n\n", command.name, command.summary);
    out.put(about)?;
    match (command.run)(context, out, args) {
        Err(Failure::Usage { text, .. }) => out.put(text),
        other => other,
    }
}

fn unknown(name: &[u8]) -> Failure {
    let name = String::from_utf8_lossy(name);
    let mut text = format!("refdb: '{name}' is not a refdb command. See 'refdb --help'.\n");
    let names = COMMANDS.iter().map(|command| command.name.to_owned());
    if let Some(nearest) = suggest::nearest(&name, names) {
        let _ = write!(text, "\nThe most similar command is\n\t{nearest}\n");
    }
    crate::failure::complain(&text);
    Failure::Exit(1)
}

/// Returns how the command as a whole is called.
pub(crate) fn usage() -> String {
    "usage: refdb [-v | --version] [-h | --help] [-C <path>] [-c <name>=<value>]\n\
     \x20            [-p | --paginate | -P | --no-pager] [--no-replace-objects] [--bare]\n\
     \x20            [--git-dir=<path>] [--work-tree=<path>] [--namespace=<name>]\n\
     \x20            [--config-env=<name>=<envvar>] [--store=<url>]\n\
     \x20            <command> [<args>]\n"
        .to_owned()
}

fn overview() -> String {
    let mut text = usage();
    text.push_str("\nThe commands are:\n\n");
    for command in COMMANDS {
        let _ = writeln!(text, "    {:<14} {}", command.name, command.summary);
    }
    text.push_str("\n'refdb help <command>' tells how each is called.\n");
    text
}

/// Tells what went wrong behind a commit that stands.
fn tell_afterwards(outcome: &refdb::Outcome) {
    for error in &outcome.afterwards {
        say_error("warning", error);
    }
}
