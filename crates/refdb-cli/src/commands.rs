//! The commands: a table with a line for each, and what leads to them.

mod batch;
mod bench;
mod check_ref_format;
mod follow;
mod for_each_ref;
mod generate;
mod inspect;
mod install_shim;
mod listed;
mod pack_refs;
mod pages;
mod receive;
mod reflog;
mod refs;
mod serve_hook;
mod shells;
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
use crate::options::{self, Describe, Spec};
use crate::output::Output;
use crate::pager::Paging;
use crate::{remote, shim, suggest, trace};

/// What carries out a command or a subcommand, with the arguments behind its name.
type Run = fn(&Context, &mut Output, &[Vec<u8>]) -> Result<()>;

/// One command.
struct Command {
    name: &'static str,
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
        spec: &update_ref::SPEC,
        subcommands: &[],
        run: update_ref::run,
    },
    Command {
        name: "batch",
        spec: &batch::SPEC,
        subcommands: &[],
        run: batch::run,
    },
    Command {
        name: "symbolic-ref",
        spec: &symbolic_ref::SPEC,
        subcommands: &[],
        run: symbolic_ref::run,
    },
    Command {
        name: "show-ref",
        spec: &show_ref::SPEC,
        subcommands: &[],
        run: show_ref::run,
    },
    Command {
        name: "for-each-ref",
        spec: &for_each_ref::FOR_EACH_REF,
        subcommands: &[],
        run: for_each_ref::run,
    },
    Command {
        name: "pack-refs",
        spec: &pack_refs::PACK_REFS,
        subcommands: &[],
        run: pack_refs::run,
    },
    Command {
        name: "check-ref-format",
        spec: &check_ref_format::SPEC,
        subcommands: &[],
        run: check_ref_format::run,
    },
    Command {
        name: "inspect",
        spec: &inspect::SPEC,
        subcommands: &[],
        run: inspect::run,
    },
    Command {
        name: "reflog",
        spec: &reflog::SPEC,
        subcommands: reflog::SUBCOMMANDS,
        run: reflog::run,
    },
    Command {
        name: "bench",
        spec: &bench::BENCH,
        subcommands: &[],
        run: bench::run,
    },
    Command {
        name: "refs",
        spec: &refs::SPEC,
        subcommands: refs::SUBCOMMANDS,
        run: refs::run,
    },
    Command {
        name: "store",
        spec: &store::SPEC,
        subcommands: store::SUBCOMMANDS,
        run: store::run,
    },
    Command {
        name: "probe",
        spec: &store::PROBE,
        subcommands: &[],
        run: store::probe_place,
    },
    Command {
        name: "watch",
        spec: &watch::SPEC,
        subcommands: &[],
        run: watch::run,
    },
    Command {
        name: "sync",
        spec: &follow::SYNC,
        subcommands: &[],
        run: follow::sync,
    },
    Command {
        name: "follow",
        spec: &follow::FOLLOW,
        subcommands: &[],
        run: follow::follow,
    },
    Command {
        name: "receive",
        spec: &receive::SPEC,
        subcommands: &[],
        run: receive::run,
    },
    Command {
        name: "serve-hook",
        spec: &serve_hook::SPEC,
        subcommands: serve_hook::SUBCOMMANDS,
        run: serve_hook::run,
    },
    Command {
        name: "install-shim",
        spec: &install_shim::SPEC,
        subcommands: &[],
        run: install_shim::run,
    },
    Command {
        name: "completions",
        spec: &generate::COMPLETIONS,
        subcommands: &[],
        run: generate::completions,
    },
    Command {
        name: "man",
        spec: &generate::MAN,
        subcommands: &[],
        run: generate::man,
    },
    Command {
        name: "version",
        spec: &generate::VERSION,
        subcommands: &[],
        run: generate::version,
    },
];

/// The commands that Git has too.
const OF_GIT: [&str; 8] = [
    "update-ref",
    "symbolic-ref",
    "show-ref",
    "for-each-ref",
    "pack-refs",
    "check-ref-format",
    "reflog",
    "refs",
];

/// Returns whether a call of a command is one that Git's command of the same name takes: nothing that
/// refdb alone has, no mistake, and no question how it is called.
pub(crate) fn is_gits(name: &[u8], args: &[Vec<u8>]) -> bool {
    let Some(command) = find(name).filter(|it| OF_GIT.contains(&it.name)) else {
        return false;
    };
    if options::question(args).is_some() {
        return false;
    }
    match command.name {
        "refs" => refs::is_gits(args),
        "reflog" => reflog::is_gits(args),
        _ => command.spec.is_gits(args),
    }
}

/// How often a command that reads begins again, since the refs were moved into the other format.
const AGAIN_MAX: usize = 3;

/// The commands that do something useful where there is no repository.
const WITHOUT_REPOSITORY: &[&str] = &[
    "check-ref-format",
    "completions",
    "install-shim",
    "man",
    "version",
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
        if let Request::Command(at) = request {
            remote::begin(&globals, args.get(at..).unwrap_or_default());
        }
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
        Request::Version(at) => {
            generate::version(context, &mut out, args.get(at..).unwrap_or_default())
        }
        Request::Help(at) => help(&mut out, args.get(at..).unwrap_or_default()),
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

/// Returns whether a command may only read refs: not standard input, which it would not find again. Where
/// `symbolic-ref` writes, a failure is never [`Failure::Moved`].
fn may_begin_again(name: &[u8], args: &[Vec<u8>]) -> bool {
    let reads_input = |arg: &Vec<u8>| {
        let may_mean = |option: &[u8]| arg.len() > 2 && option.starts_with(arg);
        let long: &[u8] = b"--exclude-existing";
        may_mean(b"--stdin") || may_mean(long) || arg.starts_with(long)
    };
    let sub = args.first().map_or(&b""[..], Vec::as_slice);
    let only_reads = match name {
        b"for-each-ref" | b"inspect" | b"show-ref" | b"symbolic-ref" => true,
        b"reflog" => !matches!(sub, b"delete" | b"drop" | b"expire" | b"write"),
        b"refs" => matches!(sub, b"list" | b"exists" | b"verify"),
        _ => false,
    };
    only_reads && !args.iter().any(reads_input)
}

fn dispatch(context: &Context, out: &mut Output, name: &[u8], args: &[Vec<u8>]) -> Result<()> {
    match (name, args) {
        (b"help", args) => help(out, args),
        (name, [first, ..]) if first == b"--help" => help_of(out, name, None),
        (name, [sub, first, ..]) if first == b"--help" && find_sub(name, sub).is_some() => {
            help_of(out, name, Some(sub))
        }
        (name, args) => match find(name) {
            Some(command) => {
                trace::command(command.name);
                // Asking how to call a command needs no repository; all else does.
                let asks = asks_for_usage(command, args);
                let is_for_damaged = command.name == "refs" && refs::is_for_damaged(args);
                if shim::is_git() && !WITHOUT_REPOSITORY.contains(&command.name) {
                    shim::leave_to_git(context, &[&[name.to_vec()], args].concat())?;
                }
                if is_for_damaged && !asks && !args.iter().any(|arg| arg == b"-h") {
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

/// Returns whether nothing is asked but how a command or a subcommand is called.
fn asks_for_usage(command: &Command, args: &[Vec<u8>]) -> bool {
    let asks = |arg: &[u8]| arg == b"-h" || arg == b"--help-all";
    match args {
        [only] => asks(only),
        [sub, only] => asks(only) && find_sub(command.name.as_bytes(), sub).is_some(),
        _ => false,
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

fn find_sub(name: &[u8], sub: &[u8]) -> Option<&'static Subcommand> {
    let mut subcommands = find(name)?.subcommands.iter();
    subcommands.find(|subcommand| subcommand.name.as_bytes() == sub)
}

/// Returns the subcommand that is called, and its arguments.
fn subcommand_of<'a>(
    spec: &Spec<()>,
    subcommands: &'static [Subcommand],
    args: &'a [Vec<u8>],
) -> Result<(&'static Subcommand, &'a [Vec<u8>])> {
    let Some((name, rest)) = args.split_first() else {
        return Err(spec.mistake("need a subcommand", None));
    };
    let names = subcommands.iter().map(|subcommand| subcommand.name);
    if let Some(answer) = options::of_subcommands(args, names) {
        return Err(answer);
    }
    if name.starts_with(b"-") {
        spec.parse(args, |(), _| Ok(()))?;
        return Err(spec.mistake("need a subcommand", None));
    }
    let mut found = subcommands.iter();
    match found.find(|subcommand| subcommand.name.as_bytes() == name) {
        Some(subcommand) => Ok((subcommand, rest)),
        None => {
            let name = String::from_utf8_lossy(name);
            let names = subcommands.iter().map(|sub| sub.name.to_owned());
            let hint = suggest::nearest(&name, names).map(|it| format!("did you mean {it}?"));
            Err(spec.mistake(&format!("unknown subcommand: `{name}'"), hint))
        }
    }
}

/// Answers `help`, and `--help` before anything else: of all commands, of one, or of a subcommand.
fn help(out: &mut Output, words: &[Vec<u8>]) -> Result<()> {
    match words {
        [] => out.put(overview()),
        [word] if matches!(word.as_slice(), b"help" | b"-h" | b"--help") => out.put(overview()),
        [name] => help_of(out, name, None),
        [name, sub] => help_of(out, name, Some(sub)),
        _ => {
            let what = "help is there for a command, or for a command and its subcommand";
            Err(Failure::error(what, 129))
        }
    }
}

/// Prints what a command or a subcommand does, how it is called, and what else helps.
fn help_of(out: &mut Output, name: &[u8], sub: Option<&[u8]>) -> Result<()> {
    let Some(command) = find(name) else {
        return Err(unknown(name));
    };
    let (name, spec) = match sub {
        None => (command.name.to_owned(), command.spec),
        Some(sub) => match find_sub(name, sub) {
            Some(found) => (format!("{} {}", command.name, found.name), found.spec),
            None => return Err(unknown_sub(command, sub)),
        },
    };
    let mut text = String::new();
    let page = pages::find(&name);
    if let Some(page) = page {
        let _ = write!(text, "refdb {name}: {}\n\n", page.summary);
    }
    text.push_str(&spec.usage_text());
    text.truncate(text.trim_end().len());
    text.push('\n');
    if let Some(page) = page {
        tail(&mut text, command, page);
    }
    out.put(folded(&text))
}

/// Returns a text whose lines are not wider than a terminal, as far as they have spaces.
fn folded(text: &str) -> String {
    const WIDTH: usize = 80;
    let mut lines = String::new();
    for line in text.lines() {
        let is_form = line.starts_with("usage: ") || line.starts_with("   or: ");
        let inner = line.trim_start();
        let indent = match line.len() - inner.len() {
            0 if is_form => 11,
            0 => 4,
            // Behind an exit code.
            lead if inner.starts_with(|c: char| c.is_ascii_digit()) => lead + 9,
            lead => lead,
        };
        let mut rest = line.to_owned();
        while rest.len() > WIDTH {
            let head = rest.char_indices().take_while(|&(at, _)| at <= WIDTH);
            let space = head.filter(|&(at, c)| c == ' ' && at > indent).last();
            let Some((at, _)) = space else { break };
            lines.push_str(rest.get(..at).unwrap_or(&rest).trim_end());
            lines.push('\n');
            rest = format!("{:indent$}{}", "", rest.get(at + 1..).unwrap_or_default());
        }
        lines.push_str(&rest);
        lines.push('\n');
    }
    lines
}

/// Adds what stands below the options.
fn tail(text: &mut String, command: &Command, page: &pages::Page) {
    if page.name == command.name && !command.subcommands.is_empty() {
        text.push_str("\nSubcommands:\n");
        for subcommand in command.subcommands {
            let page = pages::find(&format!("{} {}", command.name, subcommand.name));
            let summary = page.map_or("", |page| page.summary);
            let _ = writeln!(text, "    {:<10} {summary}", subcommand.name);
        }
    }
    text.push_str("\nExamples:\n");
    for (call, does) in page.examples {
        let _ = writeln!(text, "    refdb {call}\n        {does}");
    }
    text.push_str("\nExit codes:\n");
    for (code, says) in page.all_exit_codes() {
        let _ = writeln!(text, "    {code:<8} {says}");
    }
    let _ = writeln!(text, "\nSee also: {}", page.see_also.join(", "));
}

fn unknown_sub(command: &Command, sub: &[u8]) -> Failure {
    let (name, sub) = (
        command.name,
        refs::repair::plain(&String::from_utf8_lossy(sub)),
    );
    let mut text =
        format!("refdb: '{sub}' is no subcommand of '{name}'. See 'refdb help {name}'.\n");
    let names = command.subcommands.iter().map(|it| it.name.to_owned());
    if let Some(nearest) = suggest::nearest(&sub, names) {
        let _ = write!(text, "\nThe most similar subcommand is\n\t{nearest}\n");
    }
    crate::failure::complain(&text);
    Failure::Exit(1)
}

fn unknown(name: &[u8]) -> Failure {
    // It must not paint the terminal.
    let name = refs::repair::plain(&String::from_utf8_lossy(name));
    let mut text = format!("refdb: '{name}' is not a refdb command. See 'refdb --help'.\n");
    let names = COMMANDS.iter().map(|command| command.name.to_owned());
    // The name of a subcommand stands for it, whatever else is like it.
    let under = |command: &Command| {
        let mut subcommands = command.subcommands.iter();
        let found = subcommands.find(|subcommand| subcommand.name == name)?;
        Some(format!("{} {}", command.name, found.name))
    };
    let under = COMMANDS.iter().find_map(under);
    if let Some(nearest) = under.or_else(|| suggest::nearest(&name, names)) {
        let _ = write!(text, "\nThe most similar command is\n\t{nearest}\n");
    }
    crate::failure::complain(&text);
    Failure::Exit(1)
}

/// Returns how the command as a whole is called.
pub(crate) fn usage() -> String {
    let text = "usage: refdb [-v | --version] [-h | --help] [-C <path>] [-c <name>=<value>]\n\
     \x20            [-p | --paginate | -P | --no-pager] [--no-replace-objects] [--bare]\n\
     \x20            [--git-dir=<path>] [--work-tree=<path>] [--namespace=<name>]\n\
     \x20            [--config-env=<name>=<envvar>] [--store=<url>]\n\
     \x20            <command> [<args>]\n";
    text.replacen("refdb", shim::called(), 1)
}

fn overview() -> String {
    let mut text = usage();
    for (what, names) in pages::GROUPS {
        let _ = write!(text, "\n{what}\n");
        for name in names {
            let summary = pages::find(name).map_or("", |page| page.summary);
            let _ = writeln!(text, "    {name:<16} {summary}");
        }
    }
    text.push_str(
        "\n'refdb help <command> [<subcommand>]' tells how each is called and what it ends\n\
         with, 'refdb man' the rest. 'refdb' alone, and what is no command, end with 1.\n",
    );
    text
}

/// Tells what went wrong behind a commit that stands.
fn tell_afterwards(outcome: &refdb::Outcome) {
    for error in &outcome.afterwards {
        say_error("warning", error);
    }
}
