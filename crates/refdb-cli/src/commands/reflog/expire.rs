//! `refdb reflog expire`, `delete` and `drop`: entries and whole reflogs go.

use bstr::ByteSlice;
use refdb::name::{WorktreeName, worktree_name};
use refdb::{
    ErrorKind, LogEntry, LogOrder, LogRewrite, ObjectId, Outcome, RefFormat, RefName, RefNameBuf,
    Store,
};
use refdb_git::date;
use refdb_git::expire::{Expiry, Policy, Wishes, cutoff};
use refdb_maintenance::progress::Progress;

use super::super::tell_afterwards;
use super::target;
use crate::context::Context;
use crate::failure::{Failure, Result, say, say_error};
use crate::options::{Opt, Spec, Value};
use crate::output::Output;
use crate::progress::{self, Meter};

#[derive(Clone, Copy)]
pub(super) enum Id {
    DryRun,
    Rewrite,
    UpdateRef,
    Verbose,
    Expire,
    ExpireUnreachable,
    StaleFix,
    All,
    SingleWorktree,
    Progress,
}

const DRY_RUN: Opt<Id> = Opt::flag(Id::DryRun, "dry-run", "change nothing").short(b'n');
const REWRITE: Opt<Id> = Opt::flag(
    Id::Rewrite,
    "rewrite",
    "let each entry begin where the one before it ends",
);
const UPDATE_REF: Opt<Id> = Opt::flag(
    Id::UpdateRef,
    "updateref",
    "set the ref to the newest entry that is left",
);
const VERBOSE: Opt<Id> = Opt::flag(Id::Verbose, "verbose", "tell what becomes of each entry");
const ALL: Opt<Id> = Opt::flag(Id::All, "all", "all reflogs");
const SINGLE_WORKTREE: Opt<Id> = Opt::flag(
    Id::SingleWorktree,
    "single-worktree",
    "only those of this worktree",
);

pub(super) const EXPIRE: Spec<Id> = Spec {
    name: "reflog expire",
    forms: &[concat!(
        "[--expire=<time>] [--expire-unreachable=<time>]\n",
        "[--rewrite] [--updateref] [--stale-fix]\n",
        "[--dry-run | -n] [--verbose] [--all [--single-worktree] | <refs>...]"
    )],
    options: &[
        DRY_RUN,
        REWRITE,
        UPDATE_REF,
        VERBOSE,
        Opt::text(Id::Expire, "expire", "timestamp", "what is older goes").positive(),
        Opt::text(
            Id::ExpireUnreachable,
            "expire-unreachable",
            "timestamp",
            "what is older goes if the ref does not reach it",
        )
        .positive(),
        Opt::flag(
            Id::StaleFix,
            "stale-fix",
            "what leads to commits that lack something goes",
        ),
        ALL,
        SINGLE_WORKTREE,
        Opt::flag(Id::Progress, "progress", progress::HELP).own(),
    ],
};

pub(super) const DELETE: Spec<Id> = Spec {
    name: "reflog delete",
    forms: &["[--rewrite] [--updateref]\n[--dry-run | -n] [--verbose] <ref>@{<specifier>}..."],
    options: &[DRY_RUN, REWRITE, UPDATE_REF, VERBOSE],
};

pub(super) const DROP: Spec<Id> = Spec {
    name: "reflog drop",
    forms: &["[--all [--single-worktree] | <refs>...]"],
    options: &[ALL, SINGLE_WORKTREE],
};

/// What the options say.
#[derive(Debug, Default)]
struct Settings {
    how: LogRewrite,
    verbose: bool,
    wishes: Wishes,
    stale_fix: bool,
    all: bool,
    single_worktree: bool,
    progress: Option<bool>,
}

impl Settings {
    fn set(&mut self, context: &Context, id: Id, value: Value) -> Result<()> {
        match id {
            Id::DryRun => self.how.dry_run = value.is_set(),
            Id::Rewrite => self.how.join = value.is_set(),
            Id::UpdateRef => self.how.update_ref = value.is_set(),
            Id::Verbose => self.verbose = value.is_set(),
            Id::Expire => self.wishes.total = Some(moment(context, "expire", value)?),
            Id::ExpireUnreachable => {
                self.wishes.unreachable = Some(moment(context, "expire-unreachable", value)?);
            }
            Id::StaleFix => self.stale_fix = value.is_set(),
            Id::All => self.all = value.is_set(),
            Id::SingleWorktree => self.single_worktree = value.is_set(),
            Id::Progress => self.progress = Some(value.is_set()),
        }
        Ok(())
    }

    fn parse(
        spec: &Spec<Id>,
        context: &Context,
        args: &[Vec<u8>],
    ) -> Result<(Settings, Vec<Vec<u8>>)> {
        let mut settings = Settings::default();
        let operands = spec.parse(args, |id, value| settings.set(context, id, value))?;
        Ok((settings, operands))
    }
}

fn moment(context: &Context, option: &str, value: Value) -> Result<u64> {
    let text = value.into_text().unwrap_or_default();
    let repository = context.repository()?;
    let now = repository.now();
    cutoff(&text, now, repository.zone()).ok_or_else(|| {
        let text = text.as_bstr();
        Failure::fatal(format!("invalid timestamp '{text}' given to '--{option}'"))
    })
}

fn ends_it_all(error: &refdb::Error) -> bool {
    matches!(error.kind(), ErrorKind::Config | ErrorKind::Interrupted)
}

/// The sum of what went wrong with single reflogs, as Git's exit codes are put together.
#[derive(Default)]
struct Status(u8);

impl Status {
    /// Tells an error; returns whether it was a lock. A setting that makes no sense ends it all, and so does a signal.
    fn note(&mut self, done: refdb::Result<Outcome>, format: RefFormat) -> Result<bool> {
        let error = match done {
            Ok(outcome) => {
                tell_afterwards(&outcome);
                return Ok(false);
            }
            Err(error) if ends_it_all(&error) => return Err(error.into()),
            Err(error) => error,
        };
        say_error("error", &error);
        self.0 |= match (format, error.kind()) {
            (RefFormat::Files, _) => 255,
            (RefFormat::Reftable, ErrorKind::Locked) => 251,
            (RefFormat::Reftable, ErrorKind::Corrupt) => 253,
            (RefFormat::Reftable, _) => 254,
        };
        Ok(error.kind() == ErrorKind::Locked)
    }

    fn refuse(&mut self, message: &str, given: &[u8]) {
        say(
            "error",
            [message.as_bytes(), given, b"'"].concat().as_slice(),
        );
        self.0 = 255;
    }

    fn finish(self) -> Result<()> {
        match self.0 {
            0 => Ok(()),
            code => Err(Failure::Exit(code)),
        }
    }
}

/// Rewrites reflogs and tells what becomes of each entry.
struct Rewriter<'c> {
    context: &'c Context,
    settings: &'c Settings,
    /// What is said of an entry that goes.
    prunes: &'static str,
    status: Status,
    /// The stacks whose lock was waited for in vain: each ref would wait for it again.
    locked: Vec<Vec<u8>>,
    /// How many reflogs were left for their sake.
    left: usize,
    /// Whether a lock of a ref was waited for in vain: no other one is waited for then.
    is_late: bool,
}

impl<'c> Rewriter<'c> {
    fn new(context: &'c Context, settings: &'c Settings, tells_dry_run: bool) -> Self {
        Rewriter {
            context,
            settings,
            prunes: match tells_dry_run && settings.how.dry_run {
                true => "would prune ",
                false => "prune ",
            },
            status: Status::default(),
            locked: Vec::new(),
            left: 0,
            is_late: false,
        }
    }

    /// Returns what tells the stack that a name is in from others; `None` where each ref has its own
    /// lock.
    fn stack_of(&self, name: RefName<'_>) -> Result<Option<Vec<u8>>> {
        let repository = self.context.repository()?;
        if repository.ref_format() == RefFormat::Files {
            return Ok(None);
        }
        let is_linked = repository.git_dir() != repository.common_dir();
        Ok(Some(match worktree_name(name.as_bytes()) {
            WorktreeName::Current(_) if is_linked => b".".to_vec(),
            WorktreeName::Linked { id, .. } => id.to_vec(),
            _ => Vec::new(),
        }))
    }

    fn finish(self) -> Result<()> {
        match self.left {
            0 => {}
            1 => say(
                "error",
                b"1 more reflog is behind that lock, and was left as it is",
            ),
            left => {
                let what =
                    format!("{left} more reflogs are behind that lock, and were left as they are");
                say("error", what.as_bytes());
            }
        }
        self.status.finish()
    }

    fn rewrite(
        &mut self,
        out: &mut Output,
        name: RefName<'_>,
        mut is_expired: impl FnMut(&LogEntry) -> refdb::Result<bool>,
    ) -> Result<()> {
        let stack = self.stack_of(name)?;
        if stack
            .as_ref()
            .is_some_and(|stack| self.locked.contains(stack))
        {
            self.left += 1;
            return Ok(());
        }
        let store = self.context.store()?;
        let buffer = out.buffer();
        let how = LogRewrite {
            at_once: self.is_late,
            ..self.settings.how
        };
        let done = store.rewrite_log(name, how, |entry| {
            let expired = is_expired(entry)?;
            self.tell(entry, expired, buffer);
            Ok(!expired)
        });
        let done = done.map(Option::unwrap_or_default);
        if self.status.note(done, store.format())? {
            self.is_late |= stack.is_none();
            self.locked.extend(stack);
        }
        out.line_done()
    }
}

impl Rewriter<'_> {
    /// Says what becomes of an entry, if that is asked for.
    fn tell(&self, entry: &LogEntry, is_expired: bool, text: &mut Vec<u8>) {
        if self.settings.verbose {
            let verb = if is_expired { self.prunes } else { "keep " };
            text.extend_from_slice(verb.as_bytes());
            text.extend_from_slice(&entry.message);
            text.push(b'\n');
        }
    }
}

/// So many reflogs are rewritten together: others wait for their refs for some milliseconds.
const TOGETHER: usize = 128;

/// So much memory their entries may take, and about how much one takes beside its message.
const TOGETHER_LEN_MAX: usize = 64 << 20;
const ENTRY_LEN: usize = 256;

/// Ends a transaction that nobody hears of.
fn one_by_one() -> refdb::Error {
    refdb::Error::new(ErrorKind::Misuse, "not to be rewritten together")
}

/// What is done, for whoever waits.
const EXPIRING: &str = "Expiring reflogs";

/// Runs `reflog expire`.
pub(super) fn expire(context: &Context, out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    let (settings, operands) = Settings::parse(&EXPIRE, context, args)?;
    let meter = Meter::begin(settings.progress, EXPIRING);
    let repository = context.repository()?;
    let policy = Policy::new(repository, settings.wishes)?;
    let mut expiry = Expiry::new(repository)?;
    if settings.stale_fix {
        if settings.verbose {
            out.put("Marking reachable objects...")?;
        }
        expiry = expiry.expire_incomplete()?;
        if settings.verbose {
            out.put("\n")?;
        }
    }
    let mut expire = Expire {
        store: repository.store(),
        policy,
        expiry,
        rewriter: Rewriter::new(context, &settings, settings.all),
    };
    if settings.all {
        let names = target::all(context, settings.single_worktree)?;
        for (at, few) in names.chunks(TOGETHER).enumerate() {
            meter.show(Progress {
                what: EXPIRING,
                count: (at * TOGETHER) as u64,
                total: Some(names.len() as u64),
            });
            let few = without_broken(context, few)?;
            if !expire.together(out, &few)? {
                for name in few {
                    expire.one(out, name)?;
                }
            }
        }
    }
    // As in Git, a dry run is told only with `--all`.
    expire.rewriter.prunes = "prune ";
    for operand in operands {
        match target::find(context, &operand)? {
            Some(name) => expire.one(out, name.as_name())?,
            None => {
                let message = "reflog could not be found: '";
                expire.rewriter.status.refuse(message, &operand);
            }
        }
    }
    expire.rewriter.finish()
}

/// Judges reflogs and rewrites them.
struct Expire<'c, 'r> {
    store: &'r Store,
    policy: Policy,
    expiry: Expiry<'r>,
    rewriter: Rewriter<'c>,
}

/// What was said of an entry before its reflog was locked.
struct Said {
    new: ObjectId,
    time: u64,
    is_expired: bool,
}

impl Expire<'_, '_> {
    fn one(&mut self, out: &mut Output, name: RefName<'_>) -> Result<()> {
        let mut judge = self.expiry.of_log(name, self.policy.limits(name));
        let is_expired = |entry: &LogEntry| judge.is_expired(entry);
        self.rewriter.rewrite(out, name, is_expired)
    }

    /// Rewrites reflogs together. History is walked before that, so that others wait for these refs for milliseconds.
    /// Returns `false` where they are to be rewritten one by one, as nothing was done: what is in the way of one is
    /// told of that one.
    fn together(&mut self, out: &mut Output, names: &[RefName<'_>]) -> Result<bool> {
        let (rewriter, how) = (&self.rewriter, self.rewriter.settings.how);
        let is_blocked = rewriter.is_late || !rewriter.locked.is_empty();
        if how.update_ref || how.join || how.dry_run || is_blocked {
            return Ok(false);
        }
        let Ok(said) = self.judge(names) else {
            return Ok(false);
        };
        let mut said: Vec<_> = said.iter().map(|said| said.iter()).collect();
        let (rewriter, mut text) = (&self.rewriter, Vec::new());
        // Whoever has one ref is waited for by the one that needs it.
        let at_once = self.store.format() == RefFormat::Files;
        let how = LogRewrite { at_once, ..how };
        let done = self.store.rewrite_logs(names, how, |at, entry| {
            // Somebody may have added entries since, or taken some away.
            let said = said.get_mut(at).and_then(Iterator::next);
            let said = said.filter(|it| it.new == entry.new && it.time == entry.who.time);
            let is_expired = said.ok_or_else(one_by_one)?.is_expired;
            rewriter.tell(entry, is_expired, &mut text);
            Ok(!is_expired)
        });
        match done {
            Ok(outcome) => tell_afterwards(&outcome),
            Err(error) if ends_it_all(&error) => return Err(error.into()),
            Err(_) => return Ok(false),
        }
        out.put_lines(&text)?;
        Ok(true)
    }

    /// Says of all entries of reflogs whether they are to go.
    fn judge(&mut self, names: &[RefName<'_>]) -> refdb::Result<Vec<Vec<Said>>> {
        let store = self.store;
        let (mut all, mut room) = (Vec::with_capacity(names.len()), TOGETHER_LEN_MAX);
        for &name in names {
            let mut said = Vec::new();
            let mut judge = self.expiry.of_log(name, self.policy.limits(name));
            store.for_each_log_entry(name, LogOrder::OldestFirst, |entry| {
                room = room
                    .checked_sub(ENTRY_LEN + entry.message.len())
                    .ok_or_else(one_by_one)?;
                said.push(Said {
                    new: entry.new,
                    time: entry.who.time,
                    is_expired: judge.is_expired(&entry)?,
                });
                Ok(true)
            })?;
            all.push(said);
        }
        Ok(all)
    }
}

/// Returns those names whose refs can be read. What its reflog says is what another ref can be mended by, and no reason to
/// leave all others.
fn without_broken<'n>(context: &Context, names: &'n [RefNameBuf]) -> Result<Vec<RefName<'n>>> {
    let store = context.store()?;
    let mut sound = Vec::with_capacity(names.len());
    for name in names {
        match store.resolve(name.as_name()) {
            Err(broken) if broken.kind() == ErrorKind::BrokenRef => {
                let what = format!("the reflog of '{name}' is kept");
                say_error("warning", &broken.context(what));
            }
            _ => sound.push(name.as_name()),
        }
    }
    Ok(sound)
}

/// Which entry of a reflog is to go.
enum Which {
    /// That many before the newest.
    Position(u64),
    /// The newest that is older than this, in seconds since 1970.
    OlderThan(u64),
}

/// Runs `reflog delete`.
pub(super) fn delete(context: &Context, out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    let (settings, operands) = Settings::parse(&DELETE, context, args)?;
    if operands.is_empty() {
        return Err(Failure::error("no reflog specified to delete", 255));
    }
    let mut rewriter = Rewriter::new(context, &settings, true);
    for operand in operands {
        let Some(at) = operand.find("@{") else {
            let message = [b"not a reflog: ".as_slice(), &operand].concat();
            say("error", &message);
            rewriter.status.0 = 255;
            continue;
        };
        let (name, specifier) = operand.split_at(at);
        let found = match name.is_empty() {
            // Git says what is wrong with an `@{upstream}`, and otherwise finds nothing.
            true => target::find(context, &operand)?.and(None),
            false => target::find(context, name)?,
        };
        let Some(name) = found else {
            rewriter.status.refuse("no reflog for '", &operand);
            continue;
        };
        let which = which(context, specifier.get(2..).unwrap_or_default())?;
        let number = number_from_oldest(context, &name, &which)?;
        let mut passed = 0;
        rewriter.rewrite(out, name.as_name(), |_| {
            passed += 1;
            Ok(Some(passed) == number)
        })?;
    }
    rewriter.finish()
}

/// Reads what stands behind `@{`: a position up to the `}`, or else a date.
fn which(context: &Context, specifier: &[u8]) -> Result<Which> {
    let number = specifier.trim_ascii_start();
    let number = number.strip_prefix(b"+").unwrap_or(number);
    let digits = number.strip_prefix(b"-").unwrap_or(number);
    let len = digits
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let (digits, rest) = digits.split_at(len);
    let is_nothing = specifier.starts_with(b"}");
    if rest.starts_with(b"}") && (len > 0 || is_nothing) {
        let position = digits.to_str().ok().and_then(|digits| digits.parse().ok());
        return Ok(Which::Position(match position {
            Some(position) if !number.starts_with(b"-") => position,
            _ if is_nothing => 0,
            _ => u64::MAX,
        }));
    }
    let repository = context.repository()?;
    let now = repository.now();
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    let time = date::approximate(specifier, now, repository.zone()).unwrap_or(now);
    Ok(Which::OlderThan(u64::try_from(time).unwrap_or(0)))
}

/// Returns which entry, counted from the oldest as the first, is meant; `None` if there is none.
/// Entries that others append meanwhile do not move it.
fn number_from_oldest(context: &Context, name: &RefNameBuf, which: &Which) -> Result<Option<u64>> {
    let name = name.as_name();
    let number = match *which {
        Which::Position(position) => target::count(context, name, |_| true)?.checked_sub(position),
        Which::OlderThan(time) => {
            Some(target::count(context, name, |entry| entry.who.time < time)?)
        }
    };
    Ok(number.filter(|&number| number > 0))
}

/// Runs `reflog drop`.
pub(super) fn drop(context: &Context, _out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    let (settings, operands) = Settings::parse(&DROP, context, args)?;
    if settings.all && !operands.is_empty() {
        crate::failure::complain("usage: references specified along with --all\n");
        return Err(Failure::Exit(129));
    }
    let store = context.store()?;
    let mut status = Status::default();
    if settings.all {
        let names = target::all(context, settings.single_worktree)?;
        let done = store.delete_logs(names.iter().map(RefName::from));
        let _ = status.note(done, store.format())?;
    }
    for operand in operands {
        match target::find(context, &operand)? {
            Some(name) => {
                let _ = status.note(store.delete_logs([name.as_name()]), store.format())?;
            }
            None => status.refuse("reflog could not be found: '", &operand),
        }
    }
    status.finish()
}
