//! What a worker does: one operation by refdb or Git, and how it ended.

use std::path::Path;
use std::time::{Duration, Instant};

use bstr::ByteSlice;
use refdb_testkit::RefFormat;
use refdb_testkit::dialogue::Dialogue;
use refdb_testkit::linear::{Act, Call, Edit, Expected, New, Outcome, Value};
use refdb_testkit::oracle::{self, GitRun, Output};

use super::names::spread;
use super::planted::{self, Bug};
use super::stops::Stop;

/// A program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// The command under test.
    Refdb,
    /// The oracle.
    Git,
    /// A writer with a bug, which the tests have to notice.
    Planted(Bug),
}

impl Program {
    /// Begins a run.
    pub(crate) fn run(self, dir: &Path) -> GitRun {
        match self {
            Program::Refdb => oracle::run_of(env!("CARGO_BIN_EXE_refdb"), dir),
            Program::Git | Program::Planted(_) => oracle::git(dir),
        }
    }
}

/// How a transaction is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// As a command of its own, if there is one for it.
    Plain,
    /// To `update-ref --stdin`, which ends with it. If so, directories are locked as a whole where
    /// many refs are made in them.
    Input(bool),
    /// In a session, prepared, and committed after a pause.
    Prepared(Duration),
    /// In a session, prepared, and given up after a pause.
    Aborted(Duration),
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// A transaction.
    Write(Vec<Edit>, How),
    /// Two transactions that are sent at once.
    Two(Vec<Edit>, Vec<Edit>),
    /// A ref gets another name.
    Rename(String, String),
    /// Refs are packed.
    Pack,
    /// Reflogs are expired.
    Expire,
    /// All refs get into the other format.
    Migrate,
}

/// What came of an operation.
#[derive(Debug, Default)]
pub(crate) struct Done {
    /// What the check of the history is told.
    pub(crate) calls: Vec<Call>,
    /// Failures that neither the refs nor somebody's lock explain.
    pub(crate) odd: Vec<String>,
    /// Whether it failed because somebody else was at it.
    pub(crate) gave_up: bool,
    /// Whether what had been prepared could not be committed.
    pub(crate) broke_off: bool,
    /// What was said last of a failure.
    said: Option<String>,
}

/// A program that works in a folder, on a clock that all share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Actor<'a> {
    /// Which program.
    pub(crate) program: Program,
    /// Where.
    pub(crate) dir: &'a Path,
    /// Whether the refs get into another format meanwhile.
    pub(crate) beside_migration: bool,
    /// Where its process is stopped.
    pub(crate) stop: Option<Stop<'a>>,
    /// The beginning of time.
    pub(crate) start: Instant,
}

/// What refuses an operation because of what the refs are.
const REFUSALS: [&str; 10] = [
    "reference already exists",
    "but expected",
    "unable to resolve reference",
    "reference is missing",
    "exists; cannot create",
    "no branch named",
    "reference does not exist",
    "not found",
    "not a symbolic ref",
    "already exists",
];

/// What fails because somebody else is at it. A directory for a name below, or a reflog of it, may
/// come between check and renaming, since no lock of one name is one of the other; then nothing
/// has changed.
const CONTENTION: [&str; 11] = [
    "File exists",
    "a non-empty directory",
    "unable to create directory",
    "Unable to create directory",
    "racily updated",
    "data is locked",
    "Is a directory",
    "non-directory in the way",
    "there are still logs under",
    "unable to append to '",
    "unable to move the reflog to '",
];

/// What fails besides because the format changes.
const MIGRATION: [&str; 8] = [
    "the refs are being migrated to another format",
    "repository already uses '",
    "another migration of this repository is running",
    "the format of the refs was changed by another process",
    "the refs were migrated to another format",
    "'HEAD' says that refs are tables: they were migrated to another format",
    // They are put away with the old store.
    "a lock of this transaction was removed by somebody else",
    // The old store has gone.
    "tables.list': No such file or directory",
];

/// What Git says of a transaction that failed after it was prepared, since a directory is in the place of a
/// ref that was to be made or to go: some of it may have happened (`gits_own`).
pub(crate) const GITS_COMMIT: [&str; 2] = ["couldn't set '", "unable to unlink '"];

/// What is never explained by others: a half of a transaction.
const HALF: [&str; 2] = ["committed in part", "did not finish"];

impl<'a> Actor<'a> {
    /// Begins a run.
    fn run(self) -> GitRun {
        match self.stop {
            None => self.program.run(self.dir),
            Some(stop) => stop.run(self.program, self.dir),
        }
    }

    /// Does it.
    pub(crate) fn carry_out(self, op: &Op, format: RefFormat) -> Done {
        let begun = self.start.elapsed();
        let mut done = Done::default();
        match op {
            Op::Write(edits, _) if let Program::Planted(bug) = self.program => {
                let outcome = planted::write(self, bug, edits);
                done.gave_up = outcome == Outcome::Failed;
                self.note(&mut done, begun, Act::Write(edits.clone(), outcome));
            }
            Op::Write(edits, How::Plain) if edits.len() == 1 && plain(&edits[0]).is_some() => {
                let args = plain(&edits[0]).expect("just asked");
                let out = self.run().args(args).run();
                let outcome = self.judge(&out, &mut done);
                self.note(&mut done, begun, Act::Write(edits.clone(), outcome));
            }
            Op::Write(edits, how @ (How::Plain | How::Input(_))) => {
                let least = match how {
                    How::Input(true) => "refdb.directoryLockMin=8",
                    _ => "refdb.directoryLockMin=16384",
                };
                let run = self.run().args(["-c", least]);
                let run = run.args(["update-ref", "--stdin"]);
                let out = run.stdin(lines(edits)).run();
                let outcome = self.judge(&out, &mut done);
                self.note(&mut done, begun, Act::Write(edits.clone(), outcome));
            }
            Op::Write(edits, How::Prepared(pause) | How::Aborted(pause)) => {
                let mut session = self.session(edits);
                if session.prepare() {
                    std::thread::sleep(*pause);
                }
                let is_committed = matches!(op, Op::Write(_, How::Prepared(_)));
                let last = if is_committed { "commit" } else { "abort" };
                session.end(last, &mut done);
            }
            Op::Two(one, other) => self.two(one, other, &mut done),
            Op::Rename(old, new) => {
                let branch = |name: &str| name.replace("refs/heads/", "");
                let run = self.run();
                let out = match self.program {
                    Program::Refdb => run.args(["refs", "rename", old, new]).run(),
                    _ => run.args(["branch", "-m", &branch(old), &branch(new)]).run(),
                };
                let outcome = self.judge(&out, &mut done);
                let (old, new) = (old.clone(), new.clone());
                // Git has no transaction for it in files, and looks before it takes the lock in tables.
                let is_loose = format == RefFormat::Files || self.beside_migration;
                let act = match self.program {
                    Program::Git | Program::Planted(_) if is_loose => {
                        Act::LooseRename(old, new, outcome)
                    }
                    Program::Git | Program::Planted(_) => Act::RenameOver(old, new, outcome),
                    _ => Act::Rename(old, new, outcome),
                };
                self.note(&mut done, begun, act);
            }
            Op::Pack => self.quietly(&["pack-refs", "--all"], &mut done),
            Op::Expire => self.quietly(&["reflog", "expire", "--expire=now", "--all"], &mut done),
            Op::Migrate => {
                let ask = ["rev-parse", "--show-ref-format"];
                let to = match oracle::git(self.dir).args(ask).run().text().as_str() {
                    "files" => "--ref-format=reftable",
                    _ => "--ref-format=files",
                };
                self.quietly(&["refs", "migrate", to], &mut done);
            }
        }
        done
    }

    /// Runs what changes no ref; that somebody else is at it is fine.
    fn quietly(self, args: &[&str], done: &mut Done) {
        let begun = self.start.elapsed();
        let out = self.run().args(args).run();
        let outcome = self.judge(&out, done);
        let outcome = match outcome {
            Outcome::Done => Outcome::Done,
            _ => Outcome::Failed,
        };
        // For messages: a transaction of nothing says when it was.
        let mut call = self.call(begun, Act::Write(Vec::new(), outcome));
        let said = done.said.take().map(|said| format!(" ({said})"));
        call.who = format!(
            "{} {}{}",
            call.who,
            args.join(" "),
            said.unwrap_or_default()
        );
        done.calls.push(call);
    }

    /// Begins a session for one transaction.
    pub(crate) fn session(self, edits: &[Edit]) -> Session<'a> {
        Session {
            actor: self,
            begun: self.start.elapsed(),
            dialogue: self.run().args(["update-ref", "--stdin"]).begin(),
            edits: edits.to_vec(),
            is_prepared: false,
        }
    }

    /// Sends two transactions before the first is answered.
    fn two(self, one: &[Edit], other: &[Edit], done: &mut Done) {
        let begun = self.start.elapsed();
        let mut session = self.run().args(["update-ref", "--stdin"]).begin();
        let transaction = |edits| format!("start\n{}commit\n", lines(edits));
        session.tell(&(transaction(one) + &transaction(other)));
        let mut answer = || session.hear() == "start: ok\n" && session.hear() == "commit: ok\n";
        let first = answer();
        let second = first && answer();
        let out = session.end();
        let failed = match second {
            true => Outcome::Done,
            false => self.judge(&out, done),
        };
        let outcomes = match (first, second) {
            (true, _) => [Outcome::Done, failed],
            (false, _) => [failed, Outcome::Failed],
        };
        for (edits, outcome) in [one, other].into_iter().zip(outcomes) {
            self.note(done, begun, Act::Write(edits.to_vec(), outcome));
        }
    }

    /// Says how a run ended.
    fn judge(self, out: &Output, done: &mut Done) -> Outcome {
        if out.status.success() {
            return Outcome::Done;
        }
        let said = out.stderr.to_str_lossy();
        let says = |words: &[&str]| words.iter().any(|words| said.contains(words));
        done.said = Some(said.trim().replace('\n', " / "));
        let explained = says(&CONTENTION) || self.beside_migration && says(&MIGRATION);
        if explained && !says(&HALF) {
            done.gave_up = true;
            match self.program != Program::Refdb && says(&GITS_COMMIT) {
                true => Outcome::Perhaps,
                false => Outcome::Failed,
            }
        } else if says(&REFUSALS) {
            Outcome::Refused
        } else {
            if self.program == Program::Refdb {
                done.odd.push(format!("exit {}: {said}", out.code()));
            }
            Outcome::Perhaps
        }
    }

    fn call(self, begun: Duration, act: Act) -> Call {
        Call {
            who: format!("{:?}", self.program).to_lowercase(),
            begun,
            ended: self.start.elapsed(),
            act,
        }
    }

    fn note(self, done: &mut Done, begun: Duration, act: Act) {
        let mut call = self.call(begun, act);
        if let Some(said) = done.said.take() {
            call.who = format!("{} ({said})", call.who);
        }
        done.calls.push(call);
    }
}

/// A session of `update-ref --stdin` for one transaction.
pub(crate) struct Session<'a> {
    actor: Actor<'a>,
    begun: Duration,
    dialogue: Dialogue,
    edits: Vec<Edit>,
    is_prepared: bool,
}

impl Session<'_> {
    /// Prepares it; returns whether that came off.
    pub(crate) fn prepare(&mut self) -> bool {
        let text = format!("start\n{}prepare\n", lines(&self.edits));
        self.is_prepared = self.dialogue.tell(&text)
            && self.dialogue.hear() == "start: ok\n"
            && self.dialogue.hear() == "prepare: ok\n";
        self.is_prepared
    }

    /// Ends it with `commit` or `abort`, if it was prepared.
    pub(crate) fn end(mut self, last: &str, done: &mut Done) {
        let is_done = self.is_prepared
            && self.dialogue.tell(&format!("{last}\n"))
            && self.dialogue.hear() == format!("{last}: ok\n");
        let out = self.dialogue.end();
        let mut outcome = match is_done {
            true => Outcome::Done,
            false => self.actor.judge(&out, done),
        };
        if last == "abort" && is_done {
            outcome = Outcome::Failed;
        }
        if self.is_prepared && !is_done {
            done.broke_off = true;
            if self.actor.program != Program::Refdb {
                outcome = Outcome::Perhaps;
            }
        }
        let act = Act::Write(self.edits, outcome);
        self.actor.note(done, self.begun, act);
    }
}

/// Returns the arguments of the command that makes one edit, if there is one.
fn plain(edit: &Edit) -> Option<Vec<String>> {
    if spread(&edit.name).is_some() {
        return None;
    }
    let mut args = vec!["update-ref"];
    if !edit.deref {
        args.push("--no-deref");
    }
    let zero;
    match (&edit.new, &edit.expected) {
        (New::Value(Value::Oid(new)), expected) => {
            args.extend([edit.name.as_str(), new]);
            match expected {
                Expected::Any => {}
                Expected::Missing => {
                    zero = "0".repeat(new.len());
                    args.push(&zero);
                }
                Expected::Is(Value::Oid(old)) => args.push(old),
                Expected::Is(Value::Symbolic(_)) => return None,
            }
        }
        (New::Value(Value::Symbolic(target)), Expected::Any) => {
            args = vec!["symbolic-ref", &edit.name, target];
        }
        (New::Gone, Expected::Any) => args.extend(["-d", &edit.name]),
        (New::Gone, Expected::Is(Value::Oid(old))) => args.extend(["-d", &edit.name, old]),
        _ => return None,
    }
    Some(args.into_iter().map(str::to_owned).collect())
}

/// Writes edits as `update-ref --stdin` takes them.
pub(crate) fn lines(edits: &[Edit]) -> String {
    let mut text = String::new();
    for edit in edits {
        match spread(&edit.name) {
            None => line(edit, &edit.name, &mut text),
            Some(names) => names.iter().for_each(|name| line(edit, name, &mut text)),
        }
    }
    text
}

fn line(edit: &Edit, name: &str, text: &mut String) {
    if !edit.deref {
        text.push_str("option no-deref\n");
    }
    let old = match &edit.expected {
        Expected::Is(Value::Oid(oid)) => format!(" {oid}"),
        Expected::Is(Value::Symbolic(target)) => format!(" ref {target}"),
        Expected::Any | Expected::Missing => String::new(),
    };
    let is_missing = edit.expected == Expected::Missing;
    text.push_str(&match &edit.new {
        New::Value(Value::Oid(new)) if is_missing => format!("create {name} {new}\n"),
        New::Value(Value::Oid(new)) => format!("update {name} {new}{old}\n"),
        New::Value(Value::Symbolic(target)) if is_missing => {
            format!("symref-create {name} {target}\n")
        }
        New::Value(Value::Symbolic(target)) => format!("symref-update {name} {target}{old}\n"),
        New::Gone => format!("delete {name}{old}\n"),
        New::Kept => format!("verify {name}{old}\n"),
    });
}
