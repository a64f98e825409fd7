//! `refdb reflog show`: the entries of reflogs, the newest first, each with its commit.
//!
//! The options are those of Git's log that have to do with choosing entries and showing commits.
//! They are not abbreviated, and the first mistake counts. What compares trees is Git's (`beyond`).

mod beyond;
mod decorate;
mod filter;
mod message;
mod pretty;
mod revision;
mod told;
mod walk;

use std::cell::OnceCell;

use bstr::ByteSlice;
use refdb_git::date;
use refdb_git::objects::Object;
use serde_json::json;

use super::super::for_each_ref::date::{Clock, DateFormat};
use super::super::for_each_ref::mailmap::Mailmap;
use crate::context::{Context, Digits};
use crate::failure::{Failure, Result};
use crate::options::{Of, Opt, Spec, question};
use crate::output::Output;
use crate::pager::Paging;
use decorate::{Decorate, Decorations};
use filter::{Filter, Where};
use pretty::{Pretty, Printer};
use revision::{Given, Reader};
pub(super) use told::TOLD;
use walk::{Step, Walk};

/// Arguments that were not looked at yet.
type Args<'a> = std::slice::Iter<'a, Vec<u8>>;

const NO_OPTIONS: &[Opt<()>] = &[];

pub(super) const SPEC: Spec<()> = Spec {
    name: "reflog",
    forms: &["[show] [<log-options>] [<ref>]"],
    options: NO_OPTIONS,
};

/// What the command line says.
struct Settings {
    max_count: Option<u64>,
    skip: u64,
    pretty: Pretty,
    abbreviates_commit: bool,
    digits: Digits,
    date: Option<DateFormat>,
    /// `None` where the command line says nothing.
    decorate: Option<Decorate>,
    filter: Filter,
    ends_with_nul: bool,
    json: bool,
    hides_notes: bool,
    /// Whether people get their proper names, if the command line says so.
    maps_names: Option<bool>,
    /// Whether the command line says that there are to be no colours, or only on a terminal.
    is_colorless: bool,
    /// Whether the command line named revisions, though perhaps none was found.
    names_revisions: bool,
    /// What is said of a call that is beyond this command where there is no Git to answer it.
    beyond: Option<Failure>,
}

/// Returns the arguments among which options may stand.
fn options(args: &[Vec<u8>]) -> impl Iterator<Item = &[u8]> {
    let ends = |arg: &&[u8]| *arg == b"--" || *arg == b"--end-of-options";
    args.iter()
        .map(Vec::as_slice)
        .take_while(move |arg| !ends(arg))
}

/// Returns whether an argument asks how the command is called, or for what Git does not have.
pub(super) fn is_not_gits(arg: &[u8]) -> bool {
    arg.starts_with(b"-h") || arg.starts_with(b"--help") || arg.starts_with(b"--json")
}

/// Runs `reflog show`, with its name on the command line or without it.
pub(super) fn run(
    context: &Context,
    out: &mut Output,
    args: &[Vec<u8>],
    is_named: bool,
) -> Result<()> {
    let asks = |arg: &[u8]| arg == b"-h" || (is_named && arg.starts_with(b"-h"));
    if options(args).any(|arg| asks(arg) || arg == b"--help-all") {
        return Err(SPEC.help(Of::Git));
    }
    // The options are those of a log, which are not in a table.
    if question(args).is_some() {
        return SPEC.parse(args, |(), _| Ok(())).map(drop);
    }
    let mut settings = Settings::new();
    let paging = Paging::of(context, "reflog")?;
    let items = settings.parse(args, context);
    let beyond = settings.finish(context)?;
    if beyond.is_some() || (!settings.json && beyond::git_does_better(context)?) {
        beyond::hand_over(context, out, args, &settings.pretty, &paging)?;
    }
    if let Some(otherwise) = beyond {
        return Err(otherwise);
    }
    if paging.wanted == Some(true) {
        paging.start(context, out)?;
    }
    let ends_options = args.iter().any(|arg| arg == b"--");
    context.hold_notes();
    let names = settings.logs(context, &items, ends_options);
    let is_gits = match &names {
        Ok(Some(names)) => beyond::has_strange_commit(context, &settings, names),
        Ok(None) => true,
        Err(_) => false,
    };
    if is_gits {
        beyond::hand_over(context, out, args, &settings.pretty, &paging)?;
    }
    context.say_held_notes();
    let Some(names) = names? else {
        settings.is_beyond(beyond::PATHS);
        return Err(settings.beyond.take().unwrap_or(Failure::Exit(128)));
    };
    // Walking a reflog asks for this in Git, whatever names it.
    context.warns_of_ambiguous_refs()?;
    let walk = Walk::through(context, !settings.json, &names)?;
    let mut printer = settings.printer(context)?;
    if paging.wanted.is_none() {
        paging.start(context, out)?;
    }
    walk.for_each(&settings, &mut |step, commit, is_shown| {
        if is_shown {
            show(&mut printer, step, commit, out)?;
        }
        Ok(true)
    })
}

fn show(
    printer: &mut Printer<'_>,
    step: &Step<'_>,
    commit: Option<&Object>,
    out: &mut Output,
) -> Result<()> {
    match commit {
        Some(commit) => printer.push(step, commit, out.buffer())?,
        None => {
            let entry = step.entry;
            let line = json!({
                "ref": step.name.to_string(),
                "index": step.position,
                "old": entry.old.to_string(),
                "new": entry.new.to_string(),
                "name": entry.who.name.to_string(),
                "email": entry.who.email.to_string(),
                "time": entry.who.time,
                "zone": format!("{:+05}", entry.who.zone),
                "message": entry.message.to_string(),
            });
            out.put(format!("{line}\n"))?;
        }
    }
    out.line_done()
}

/// What stands for reflogs on the command line.
enum Item<'a> {
    /// A revision, or a path.
    Revision(&'a [u8]),
    /// An option that stands for several refs, and the argument behind it if that belongs to it.
    Refs(&'a [u8], Option<&'a Vec<u8>>),
    /// What follows is to be left out, or not any longer.
    Not,
}

/// Returns whether an option stands for several refs.
fn stands_for_refs(arg: &[u8]) -> bool {
    let alone: [&[u8]; 4] = [b"--all", b"--branches", b"--tags", b"--remotes"];
    let with: [&[u8]; 4] = [b"--branches=", b"--tags=", b"--remotes=", b"--glob="];
    alone.contains(&arg) || with.iter().any(|name| arg.starts_with(name))
}

/// Returns the value of an option that has one: behind its `=`, or in the next argument.
fn value_of<'a>(arg: &'a [u8], name: &str, rest: &mut Args<'a>) -> Result<Option<&'a [u8]>> {
    let Some(after) = arg.strip_prefix(name.as_bytes()) else {
        return Ok(None);
    };
    match after.split_first() {
        Some((b'=', value)) => Ok(Some(value)),
        Some(_) => Ok(None),
        None => match rest.next() {
            Some(value) => Ok(Some(value)),
            None => Err(Failure::fatal(format!("Option '{name}' requires a value"))),
        },
    }
}

fn number(text: &[u8]) -> Result<i64> {
    // As C reads numbers: white space may stand before them.
    let number = text.trim_ascii_start().to_str().ok();
    let number = number.and_then(|text| text.parse::<i32>().ok());
    number.map(i64::from).ok_or_else(|| {
        let text = text.as_bstr();
        Failure::fatal(format!("'{text}': not an integer"))
    })
}

impl Settings {
    /// Returns what holds where no option is given.
    fn new() -> Settings {
        Settings {
            max_count: None,
            skip: 0,
            pretty: Pretty::Oneline,
            abbreviates_commit: true,
            digits: Digits::Configured,
            date: None,
            decorate: None,
            filter: Filter::default(),
            ends_with_nul: false,
            json: false,
            hides_notes: false,
            maps_names: None,
            is_colorless: false,
            names_revisions: false,
            beyond: None,
        }
    }

    /// Reads the options; returns what stands for reflogs, in its order. Where an option makes no
    /// sense the call is beyond this command: what is told first, Git knows.
    fn parse<'a>(&mut self, args: &'a [Vec<u8>], context: &Context) -> Vec<Item<'a>> {
        let mut items = Vec::new();
        let mut only_revisions = false;
        let mut unknown: Option<&[u8]> = None;
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            match arg.as_slice() {
                b"--" => {
                    if rest.next().is_some() {
                        self.is_beyond(beyond::PATHS);
                    }
                    break;
                }
                option if option.starts_with(b"-") && !only_revisions => match option {
                    b"--end-of-options" => only_revisions = true,
                    b"--not" => items.push(Item::Not),
                    b"--glob" => items.push(Item::Refs(arg, rest.next())),
                    _ if stands_for_refs(option) => items.push(Item::Refs(arg, None)),
                    _ => match self.option(context, arg, &mut rest) {
                        Ok(true) => {}
                        Ok(false) => unknown = unknown.or(Some(arg)),
                        Err(failure) => {
                            self.beyond = Some(failure);
                            return items;
                        }
                    },
                },
                revision => items.push(Item::Revision(revision)),
            }
        }
        if let Some(arg) = unknown {
            let before = b"unrecognized argument: ".as_slice();
            self.beyond = Some(Failure::fatal([before, arg].concat()));
        }
        items
    }

    /// Reads an option that is about the form of the answer, or chooses entries.
    fn option<'a>(
        &mut self,
        context: &Context,
        arg: &'a [u8],
        rest: &mut Args<'a>,
    ) -> Result<bool> {
        Ok(self.count(arg, rest)?
            || self.form(context, arg, rest)?
            || self.choice(context, arg, rest)?)
    }

    /// As [`Settings::names`], and reads what it takes to choose entries of them.
    fn logs(
        &mut self,
        context: &Context,
        items: &[Item<'_>],
        ends_options: bool,
    ) -> Result<Option<Vec<Vec<u8>>>> {
        let names = self.names(context, items, ends_options)?;
        if names.is_some() {
            self.read_mailmap(context)?;
        }
        Ok(names)
    }

    /// Finds the reflogs that the command line names; `None` if it names paths.
    fn names(
        &mut self,
        context: &Context,
        items: &[Item<'_>],
        ends_options: bool,
    ) -> Result<Option<Vec<Vec<u8>>>> {
        let mut reader = Reader {
            context,
            ends_options,
            inverted: false,
            names: Vec::new(),
        };
        for item in items {
            match *item {
                Item::Not => reader.inverted = !reader.inverted,
                Item::Refs(option, value) => {
                    self.names_revisions = true;
                    reader.all_refs(option, value)?;
                }
                Item::Revision(arg) => match reader.read(arg)? {
                    Given::Revision => self.names_revisions = true,
                    Given::Path => return Ok(None),
                },
            }
        }
        match self.names_revisions {
            true => Ok(Some(reader.names)),
            false => revision::default(context).map(Some),
        }
    }

    /// Looks at the whole of the options; returns what is to be said if the call is beyond this
    /// command and there is no Git.
    fn finish(&mut self, context: &Context) -> Result<Option<Failure>> {
        if self.json {
            // Git knows nothing of that.
            return self.beyond.take().map_or(Ok(None), Err);
        }
        if !self.hides_notes && beyond::needs_notes(context, self)? {
            self.is_beyond("notes cannot be shown or searched; --no-notes hides them");
        }
        if !self.is_colorless && beyond::always_colors(context)? {
            self.is_beyond("there are no colours; --no-color does without");
        }
        self.decorate_as_configured(context)?;
        if self.filter.has_strange_pattern() {
            self.is_beyond("a pattern cannot be understood");
        }
        Ok(self.beyond.take())
    }

    /// Decorates as the configuration says, unless the command line does.
    fn decorate_as_configured(&mut self, context: &Context) -> Result<()> {
        let config = context.repository()?.config();
        let decorate = match self.decorate {
            Some(decorate) => decorate,
            None => Decorate::configured(context.repository()?),
        };
        let chooses = ["log.excludedecoration", "log.initialdecorationset"];
        if (decorate != Decorate::No || beyond::decorates(&self.pretty))
            && (chooses.iter().any(|key| config.get(key).is_some())
                || context.odb()?.has_replacements()?
                || !context.grafts()?.is_empty())
        {
            self.is_beyond("decorations cannot be chosen, nor tell of replacements and grafts");
        }
        self.decorate = Some(decorate);
        Ok(())
    }

    /// Remembers why the call is beyond this command.
    fn is_beyond(&mut self, why: &str) {
        let text = match self.json {
            true => format!("{why} together with --json"),
            false => format!("{why}, unless there is a git to ask"),
        };
        self.beyond.get_or_insert_with(|| Failure::fatal(text));
    }

    /// Reads how many entries are shown.
    fn count<'a>(&mut self, arg: &'a [u8], rest: &mut Args<'a>) -> Result<bool> {
        let count = match arg {
            b"-n" => match rest.next() {
                Some(count) => number(count)?,
                None => return Err(Failure::error("-n requires an argument", 128)),
            },
            [b'-', b'n', count @ ..] => number(count)?,
            [b'-', count @ ..] if count.first().is_some_and(u8::is_ascii_digit) => number(count)?,
            _ => {
                if let Some(skip) = value_of(arg, "--skip", rest)? {
                    self.skip = u64::try_from(number(skip)?).unwrap_or(0);
                    return Ok(true);
                }
                match value_of(arg, "--max-count", rest)? {
                    Some(count) => number(count)?,
                    None => return Ok(false),
                }
            }
        };
        self.max_count = u64::try_from(count).ok();
        Ok(true)
    }

    /// Reads how entries are shown.
    fn form<'a>(&mut self, context: &Context, arg: &'a [u8], rest: &mut Args<'a>) -> Result<bool> {
        match arg {
            b"--json" => self.json = true,
            b"--pretty" => self.pretty = Pretty::Medium,
            b"--oneline" => {
                self.pretty = Pretty::Oneline;
                self.abbreviates_commit = true;
            }
            b"--abbrev-commit" => self.abbreviates_commit = true,
            b"--no-abbrev-commit" => self.abbreviates_commit = false,
            b"--abbrev" => self.digits = Digits::Configured,
            b"--no-abbrev" => self.digits = Digits::All,
            b"--relative-date" => self.date = Some(date_format(b"relative")?),
            b"--decorate" | b"--decorate=short" => self.decorate = Some(Decorate::Short),
            b"--decorate=full" => self.decorate = Some(Decorate::Full),
            b"--decorate=auto" => self.decorate = Some(Decorate::on_terminals()),
            b"--no-decorate" | b"--decorate=no" => self.decorate = Some(Decorate::No),
            b"-z" => self.ends_with_nul = true,
            // These have to do with nothing that is shown.
            b"-g"
            | b"--walk-reflogs"
            | b"-s"
            | b"--no-patch"
            | b"-q"
            | b"--quiet"
            | b"--no-show-signature" => {}
            b"--mailmap" | b"--use-mailmap" => self.maps_names = Some(true),
            b"--no-mailmap" | b"--no-use-mailmap" => self.maps_names = Some(false),
            b"--no-notes" => self.hides_notes = true,
            b"--no-color" | b"--color=never" | b"--color=auto" => self.is_colorless = true,
            b"--reverse" | b"--graph" => {
                // Whether anything is told before, Git knows.
                let text = match arg {
                    b"--graph" => "cannot combine --walk-reflogs with history-limiting options",
                    _ => "options '--reverse' and '--walk-reflogs' cannot be used together",
                };
                self.beyond.get_or_insert_with(|| Failure::fatal(text));
            }
            _ => return self.form_with_value(context, arg, rest),
        }
        Ok(true)
    }

    fn form_with_value<'a>(
        &mut self,
        context: &Context,
        arg: &'a [u8],
        rest: &mut Args<'a>,
    ) -> Result<bool> {
        let stuck = |name: &str| arg.strip_prefix(name.as_bytes());
        if let Some(pretty) = stuck("--pretty=").or_else(|| stuck("--format=")) {
            match Pretty::named(pretty, context.repository()?.config()) {
                Ok(pretty) => self.pretty = pretty,
                // Git has a few more.
                Err(failure) => self.beyond = self.beyond.take().or(Some(failure)),
            }
            if let Pretty::Template(template, _) = &self.pretty
                && !beyond::is_within(template)
            {
                self.is_beyond("the template asks for more than entries and commits");
            }
        } else if let Some(digits) = stuck("--abbrev=") {
            // As C reads numbers here, nothing is wrong with any text.
            let digits = digits.trim_ascii_start();
            let end = digits
                .find_not_byteset("0123456789")
                .unwrap_or(digits.len());
            let text = digits.get(..end).and_then(|it| it.to_str().ok());
            self.digits = match digits.starts_with(b"-") {
                true => Digits::All,
                false => Digits::Least(text.and_then(|it| it.parse().ok()).unwrap_or(0)),
            };
        } else if let Some(format) = value_of(arg, "--date", rest)? {
            self.date = Some(date_format(format)?);
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Reads which entries are shown.
    fn choice<'a>(
        &mut self,
        context: &Context,
        arg: &'a [u8],
        rest: &mut Args<'a>,
    ) -> Result<bool> {
        for (names, is_start) in [
            (["--since", "--after"], true),
            (["--until", "--before"], false),
        ] {
            for name in names {
                if let Some(text) = value_of(arg, name, rest)? {
                    let repository = context.repository()?;
                    let now = repository.now();
                    let now = i64::try_from(now).unwrap_or(i64::MAX);
                    let time = date::approximate(text, now, repository.zone()).unwrap_or(now);
                    let time = u64::try_from(time).unwrap_or(0);
                    match is_start {
                        true => self.filter.since = Some(time),
                        false => self.filter.until = Some(time),
                    }
                    return Ok(true);
                }
            }
        }
        self.filter.option(arg, |name| value_of(arg, name, rest))
    }

    fn maps_names(&self, context: &Context) -> Result<bool> {
        let config = context.repository()?.config();
        Ok(match self.maps_names {
            Some(maps_names) => maps_names,
            None => config.boolean("log.mailmap")? != Some(false),
        })
    }

    /// Reads the mailmap if entries are chosen by the proper names of people.
    fn read_mailmap(&mut self, context: &Context) -> Result<()> {
        let chooses = [Where::Author, Where::Committer];
        if chooses.iter().any(|place| self.filter.searches(*place)) && self.maps_names(context)? {
            self.filter.mailmap = Some(Mailmap::read(context)?);
        }
        Ok(())
    }

    fn printer<'c>(&self, context: &'c Context) -> Result<Printer<'c>> {
        let repository = context.repository()?;
        let config = repository.config();
        let configured = config.string("log.date").map(|name| date_format(name));
        let default = configured.transpose()?;
        let default = match default {
            Some(default) => default,
            None => date_format(b"default")?,
        };
        let decorate = self.decorate.unwrap_or_default();
        let decorations = match decorate {
            Decorate::No => None,
            style => Some(Decorations::read(context, style)?),
        };
        let template_decorations = match decorate {
            _ if !beyond::decorates(&self.pretty) => None,
            Decorate::No => Some(Decorations::read(context, Decorate::Short)?),
            style => Some(Decorations::read(context, style)?),
        };
        Ok(Printer {
            context,
            pretty: self.pretty.clone(),
            abbreviates_commit: self.abbreviates_commit,
            digits: self.digits,
            date: self.date.clone().unwrap_or(default),
            clock: Clock {
                zone: repository.zone().clone(),
                now: repository.now(),
            },
            date_is_explicit: self.date.is_some(),
            decorations,
            template_decorations,
            ends_with_nul: self.ends_with_nul,
            maps_names: self.maps_names(context)?,
            mailmap: self
                .filter
                .mailmap
                .clone()
                .map_or_else(OnceCell::new, OnceCell::from),
            is_first: true,
        })
    }
}

fn date_format(name: &[u8]) -> Result<DateFormat> {
    DateFormat::parse(Some(&name.to_str_lossy())).map_err(Failure::fatal)
}
