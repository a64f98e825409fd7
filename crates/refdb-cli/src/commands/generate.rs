//! `refdb completions`, `refdb man` and `refdb version`: what is made from the tables that the commands
//! read their options with, and from the name of the release.

use std::ffi::OsStr;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, Command, ValueHint};
use clap_complete::Shell;
use refdb::system::{OsSystem, System};
use refdb_bench::WORKLOADS;

use super::COMMANDS;
use super::pages::{self, PAGES, Page};
use super::shells;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::options::{Describe, Opt, OptionDescription, Spec};
use crate::output::Output;

const NO_OPTIONS: &[Opt<()>] = &[];

pub(super) const COMPLETIONS: Spec<()> = Spec {
    name: "completions",
    forms: &["<bash|zsh|fish>"],
    options: NO_OPTIONS,
};

pub(super) const MAN: Spec<()> = Spec {
    name: "man",
    forms: &["[<directory>]"],
    options: NO_OPTIONS,
};

pub(super) const VERSION: Spec<()> = Spec {
    name: "version",
    forms: &[""],
    options: NO_OPTIONS,
};

/// Runs `version`.
pub(super) fn version(_context: &Context, out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    let operands = VERSION.parse(args, |(), _| Ok(()))?;
    match operands.is_empty() {
        true => out.put(format!("refdb version {}\n", env!("CARGO_PKG_VERSION"))),
        false => Err(VERSION.misuse()),
    }
}

/// Runs `completions`: prints what a shell is to read.
pub(super) fn completions(_context: &Context, out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    let operands = COMPLETIONS.parse(args, |(), _| Ok(()))?;
    let shell = match operands.as_slice() {
        [name] => match SHELLS.iter().find(|it| it.0.as_bytes() == name.as_slice()) {
            Some((_, shell)) => *shell,
            None => {
                let text = format!(
                    "no completions for '{}': there are some for bash, zsh and fish",
                    String::from_utf8_lossy(name)
                );
                return Err(COMPLETIONS.mistake(&text, None));
            }
        },
        _ => return Err(COMPLETIONS.misuse()),
    };
    let mut command = all(shell == Shell::Zsh);
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, "refdb", &mut text);
    let text = String::from_utf8_lossy(&text);
    out.put(shells::completed(shell, &text, &with_refs()))
}

/// Returns the commands that take refs, as they are called behind `refdb`.
fn with_refs() -> Vec<String> {
    let mut found = Vec::new();
    for command in COMMANDS {
        if command.subcommands.is_empty() && shells::takes_refs(command.spec.forms()) {
            found.push(command.name.to_owned());
        }
        for sub in command.subcommands {
            if shells::takes_refs(sub.spec.forms()) {
                found.push([command.name, " ", sub.name].concat());
            }
        }
    }
    found
}

/// The shells that there are completions for.
const SHELLS: [(&str, Shell); 3] = [
    ("bash", Shell::Bash),
    ("zsh", Shell::Zsh),
    ("fish", Shell::Fish),
];

/// Runs `man`: prints the page of the whole, or writes all pages into a directory.
pub(super) fn man(_context: &Context, out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    let operands = MAN.parse(args, |(), _| Ok(()))?;
    let command = all(false);
    match operands.as_slice() {
        [] => out.put(page(command, "refdb")?),
        [dir] => {
            let dir = Path::new(OsStr::from_bytes(dir));
            make_dir(dir)?;
            write_pages(command, "refdb", dir)?;
            // What `git help refdb` asks for.
            write_page(dir, "git-refdb", b".so man1/refdb.1\n")
        }
        _ => Err(MAN.misuse()),
    }
}

/// Makes the directory for the pages, with those above it.
fn make_dir(dir: &Path) -> Result<()> {
    let system = OsSystem::new();
    let mut missing = Vec::new();
    for above in dir.ancestors().filter(|it| !it.as_os_str().is_empty()) {
        if system.stat(above).is_ok() {
            break;
        }
        missing.push(above);
    }
    for dir in missing.into_iter().rev() {
        match system.create_dir(dir) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                let why = refdb::error::io_text(&error);
                let text = format!("cannot create the directory '{}': {why}", dir.display());
                return Err(Failure::fatal(text));
            }
            _ => {}
        }
    }
    Ok(())
}

fn write_pages(command: Command, name: &str, dir: &Path) -> Result<()> {
    // What `help` takes are the names of commands, which have pages of their own.
    for sub in command
        .get_subcommands()
        .filter(|sub| sub.get_name() != "help")
    {
        write_pages(sub.clone(), &format!("{name}-{}", sub.get_name()), dir)?;
    }
    write_page(dir, name, &page(command.name(name.to_owned()), name)?)
}

fn write_page(dir: &Path, name: &str, text: &[u8]) -> Result<()> {
    let path = dir.join(format!("{name}.1"));
    let system = OsSystem::new();
    // Another run's pages are replaced.
    let _ = system.remove_file(&path);
    let written = system
        .create_new(&path, 0o666)
        .and_then(|mut file| file.write_all(text));
    written.map_err(|error| {
        let why = refdb::error::io_text(&error);
        Failure::fatal(format!("cannot write '{}': {why}", path.display()))
    })
}

fn page(command: Command, name: &str) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    let mut command = command;
    if name == "refdb" {
        // The page tells what 'refdb help' tells, and that is no subcommand with a page.
        command = command.mut_subcommand("help", |help| help.hide(true));
    }
    let version = concat!("refdb ", env!("CARGO_PKG_VERSION"));
    let rendered = clap_mangen::Man::new(command)
        .source(version)
        .render(&mut text);
    rendered.map_err(|error| Failure::fatal(format!("cannot write the page: {error}")))?;
    let called = name.strip_prefix("refdb-").unwrap_or_default();
    let page = PAGES
        .iter()
        .find(|page| page.name.replace(' ', "-") == called);
    if let Some(page) = page {
        text.extend(sections(page).into_bytes());
    }
    Ok(text)
}

/// Returns what a page says beside the options.
fn sections(page: &Page) -> String {
    let mut text = String::from(".SH EXAMPLES\n");
    for (call, does) in page.examples {
        let (call, does) = (escaped(call), escaped(does));
        text.push_str(&format!(".TP\n\\fBrefdb {call}\\fR\n{does}.\n"));
    }
    text.push_str(".SH \"EXIT STATUS\"\n");
    for (code, says) in page.all_exit_codes() {
        text.push_str(&format!(".TP\n\\fB{code}\\fR\n{}\n", escaped(says)));
    }
    let others = page.see_also.iter();
    let others = others.map(|it| format!("\\fBrefdb\\-{}\\fR(1)", escaped(&it.replace(' ', "-"))));
    let others: Vec<String> = others.collect();
    text.push_str(&format!(".SH \"SEE ALSO\"\n{}\n", others.join(", ")));
    text
}

/// Returns a text that begins with no dot or quote as the formatter of pages takes it.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\e")
        .replace('-', "\\-")
        .replace('\'', "\\(aq")
}

/// Returns the whole command line as the generators take it, that for zsh with an argument where there are refs.
fn all(for_zsh: bool) -> Command {
    let mut root = Command::new("refdb")
        .about("The reference database of a Git repository")
        .override_usage(one_line(&super::usage()).replacen("usage: ", "", 1))
        .disable_help_subcommand(true)
        .args(global_options())
        .arg(
            Arg::new("--version")
                .short('v')
                .long("version")
                .help("print the version")
                .action(ArgAction::SetTrue),
        );
    for command in COMMANDS {
        let mut sub = made_of(
            Command::new(command.name),
            command.spec,
            command.name,
            for_zsh,
        )
        .about(summary(command.name));
        if command.name == COMPLETIONS.name {
            sub = sub.arg(Arg::new("shell").value_parser(SHELLS.map(|it| it.0)));
        }
        for subcommand in command.subcommands {
            let called = format!("{} {}", command.name, subcommand.name);
            let made = made_of(
                Command::new(subcommand.name),
                subcommand.spec,
                &called,
                for_zsh,
            )
            .about(summary(&called));
            sub = sub.subcommand(made);
        }
        root = root.subcommand(sub);
    }
    let mut help = Command::new("help").about("Tell how a command is called");
    for command in COMMANDS {
        let mut named = Command::new(command.name).about(summary(command.name));
        for subcommand in command.subcommands {
            let called = format!("{} {}", command.name, subcommand.name);
            named = named.subcommand(Command::new(subcommand.name).about(summary(&called)));
        }
        help = help.subcommand(named);
    }
    root.subcommand(help)
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn summary(name: &str) -> &'static str {
    pages::find(name).map_or("", |page| page.summary)
}

/// Returns a command with its options; `called` is its name behind `refdb`.
fn made_of(command: Command, spec: &dyn Describe, called: &str, for_zsh: bool) -> Command {
    let forms = spec.forms().iter();
    let usage = forms.map(|form| one_line(&format!("refdb {called} {form}")));
    let usage: Vec<String> = usage.collect();
    let mut command = command.override_usage(usage.join("\n"));
    for (index, option) in spec.options().iter().enumerate() {
        command = command.args(arguments(index, option));
    }
    match for_zsh && shells::takes_refs(spec.forms()) {
        true => command.arg(shells::argument()),
        false => command,
    }
}

/// Returns an option, and its opposite if there is one.
fn arguments(index: usize, option: &OptionDescription) -> Vec<Arg> {
    let mut arg = Arg::new(format!("option-{index}"))
        .help(option.help)
        .hide(option.hidden);
    if let Some(short) = option.short {
        arg = arg.short(short);
    }
    if let Some((long, _)) = &option.long {
        arg = arg.long(long.clone());
    }
    arg = match option.argument {
        None => arg.action(ArgAction::SetTrue),
        Some(name) => {
            let arg = arg.value_name(name).value_hint(ValueHint::Other);
            let arg = match option.long.as_ref().map(|(long, _)| long.as_str()) {
                Some("ref-format") => arg.value_parser(["files", "reftable"]),
                Some("only") => arg.value_parser(workloads()),
                _ => arg,
            };
            if option.optional {
                arg.num_args(0..=1).require_equals(true)
            } else {
                arg.action(ArgAction::Append)
            }
        }
    };
    let opposite = option.long.as_ref().and_then(|(long, opposite)| {
        let opposite = opposite.as_ref()?;
        let arg = Arg::new(format!("option-{index}-opposite"))
            .long(opposite.clone())
            .help(format!("opposite of --{long}"))
            .action(ArgAction::SetTrue)
            .hide(option.hidden);
        Some(arg)
    });
    [Some(arg), opposite].into_iter().flatten().collect()
}

fn workloads() -> PossibleValuesParser {
    PossibleValuesParser::new(WORKLOADS.iter().map(|it| it.name))
}

fn global_options() -> Vec<Arg> {
    let texts = crate::global::describe();
    let described = texts.map(|(name, argument, help)| {
        let mut arg = Arg::new(name).help(help);
        arg = match name.strip_prefix("--") {
            Some(long) => arg.long(long),
            None => arg.short(name.chars().nth(1).unwrap_or('?')),
        };
        match argument {
            Some(argument) => arg.value_name(argument).value_hint(ValueHint::AnyPath),
            None => arg.action(ArgAction::SetTrue),
        }
    });
    described.collect()
}
