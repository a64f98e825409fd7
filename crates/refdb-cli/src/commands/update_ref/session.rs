//! A run of `update-ref --stdin`: the transactions that the commands open, fill and close.
//!
//! A program that does not wait for answers has sent many transactions when the first one is read.
//! Those are published together and answered then; what they come to is the same.

use std::mem;
use std::time::{Duration, Instant};

use bstr::ByteSlice;
use refdb::{
    Change, Edit, Expected, Group, ObjectId, Prepared, Reason, RefFormat, RefName, Rejection,
    Store, Transaction,
};

use super::command::{Parser, Verb, recognise, split};
use super::fields::Fields;
use super::input::{Input, Piece};
use super::plain::{Lines, Plain};
use super::{Settings, tell_afterwards};
use crate::commands::symbolic_ref::LINKS_END;
use crate::context::Context;
use crate::failure::{Failure, Result, Words, complain, say_message};
use crate::output::Output;

/// Reads and carries out everything on standard input.
pub(super) fn run(context: &Context, out: &mut Output, settings: &Settings) -> Result<()> {
    let mut session = Session::new(context, out, settings)?;
    let hex_len = match settings.zero {
        true => None,
        false => Some(context.object_format()?.hex_len()),
    };
    // The records that there are of a command whose others have not arrived. Nothing is left when the
    // input has ended: its last command is whole, whatever it looks like.
    let mut begun = Vec::new();
    let mut input = Input::new(hex_len);
    while let Some(mut piece) = input.next()? {
        if !begun.is_empty() {
            piece.text.splice(..0, mem::take(&mut begun));
        }
        let taken = session.carry_out(&piece)?;
        begun = piece.text.split_off(taken);
        input.give_back(piece);
        if session.has_gathered_long() || !input.has_more() {
            session.publish_gathered()?;
        }
    }
    session.end()
}

/// Where a session stands.
enum State<'c> {
    /// Edits are gathered; the end of the input commits them.
    Open(Transaction<'c>),
    /// `start` was given: the end of the input drops the edits.
    Started(Transaction<'c>),
    /// The locks are held.
    Prepared(Prepared<'c>),
    /// There is no transaction.
    Closed,
}

/// What a rejected edit shows.
struct Columns {
    new: Option<ObjectId>,
    old: Option<ObjectId>,
}

impl Columns {
    fn of(edit: &Edit<'_>, null: ObjectId) -> Self {
        let new = match edit.change() {
            Change::Update(oid) => Some(*oid),
            Change::Symbolic(_) | Change::Delete => Some(null),
            Change::Verify | Change::Log(_) => None,
        };
        let old = match edit.expected() {
            Expected::Any | Expected::Exists => None,
            Expected::Missing | Expected::Symbolic(_) => Some(null),
            Expected::Oid(oid) => Some(*oid),
        };
        Columns { new, old }
    }
}

struct Session<'c> {
    context: &'c Context,
    store: &'c Store,
    settings: &'c Settings,
    out: &'c mut Output,
    state: State<'c>,
    /// Whether the next command leaves symrefs alone.
    no_deref: bool,
    /// What the edits of a batch show when they are rejected.
    columns: Vec<Columns>,
    /// Whether symrefs become symbolic links, of which Git wants to be rid.
    tells_of_links: bool,
    /// Which of the edits write a symref, if that is to be told.
    links: Vec<usize>,
    /// The answers to commands whose transactions are gathered, and those between them.
    answers: Vec<u8>,
    gathered: Option<Gathered<'c>>,
}

/// For how long transactions are gathered, as far as pieces of the input go. Others wait for the locks
/// meanwhile: in `files`, and if nothing else is set, for a tenth of a second.
const GATHER_MAX: Duration = Duration::from_millis(50);

/// How many are gathered, as far as pieces of the input go: so many are checked and published in less than
/// that time.
const GATHERED_MAX: usize = 4096;

/// Transactions that have arrived and are not checked yet, but for their names and objects.
struct Gathered<'c> {
    since: Instant,
    group: Group<'c>,
    /// Each with how many answers came before that to its `commit`, in bytes.
    members: Vec<(Transaction<'c>, usize)>,
}

impl<'c> Session<'c> {
    fn new(context: &'c Context, out: &'c mut Output, settings: &'c Settings) -> Result<Self> {
        let store = context.store()?;
        Ok(Session {
            context,
            store,
            settings,
            out,
            state: State::Open(begin(store, settings)),
            no_deref: settings.no_deref,
            columns: Vec::new(),
            answers: Vec::new(),
            gathered: None,
            tells_of_links: store.options().prefer_symlink_refs
                && store.format() == RefFormat::Files,
            links: Vec::new(),
        })
    }

    /// Carries out the commands that are whole; returns how long they are together.
    fn carry_out(&mut self, piece: &Piece) -> Result<usize> {
        let done = self.carry_out_commands(piece)?;
        self.out.flush()?;
        Ok(done)
    }

    fn carry_out_commands(&mut self, piece: &Piece) -> Result<usize> {
        let text = piece.text.as_slice();
        let mut lines = piece.lines.iter().peekable();
        let mut rest = text;
        while !rest.is_empty() {
            let at = text.len() - rest.len();
            if let Some(line) = lines.next_if(|line| line.start() == at)
                && self.gather_plain(&piece.lines, line, text)
            {
                rest = text.get(line.end()..).unwrap_or_default();
                continue;
            }
            let Some((command, after)) = split(rest, self.settings.zero, piece.ended) else {
                break;
            };
            rest = after;
            let done = self.command(command, !rest.is_empty());
            if done.is_err() {
                // What came before it comes first.
                self.publish_gathered()?;
            }
            done?;
        }
        Ok(text.len() - rest.len())
    }

    /// Carries out one command; `more` says whether others have arrived behind it.
    fn command(&mut self, command: &[u8], more: bool) -> Result<()> {
        let (verb, fields) = recognise(command, self.settings.zero)?;
        if self.gathered.is_some() && !self.is_blind(verb, fields) {
            self.publish_gathered()?;
        }
        match verb {
            Verb::Commit if self.may_gather(more) => self.gather_transaction(),
            Verb::Start | Verb::Prepare | Verb::Abort | Verb::Commit => self.control(verb),
            _ => self.gather(verb, fields),
        }
    }

    /// Returns whether a command comes to the same whether the transactions before it are published
    /// or only gathered: it reads no ref beside those that the transaction itself reads.
    fn is_blind(&self, verb: Verb, fields: &[u8]) -> bool {
        match verb {
            Verb::Start | Verb::Option | Verb::Commit => true,
            Verb::Update | Verb::Create | Verb::Delete | Verb::Verify => {
                Fields::new(fields, self.settings.zero).are_plain()
            }
            _ => false,
        }
    }

    /// Returns whether the present transaction is to be published together with others: where
    /// nothing follows it, somebody may be waiting for the answer.
    fn may_gather(&self, more: bool) -> bool {
        let is_started = matches!(self.state, State::Started(_));
        is_started
            && !self.settings.batch
            && !self.tells_of_links
            && (more || self.gathered.is_some())
    }

    /// Keeps the present transaction, to be published together with others.
    fn gather_transaction(&mut self) -> Result<()> {
        if self.gathered.is_none() {
            let members = Vec::new();
            let group = self.store.group()?;
            let since = Instant::now();
            self.gathered = group.map(|group| Gathered {
                since,
                group,
                members,
            });
        }
        if self.gathered.is_none() {
            // A hook is told of each when it happens.
            return self.control(Verb::Commit);
        }
        let state = mem::replace(&mut self.state, State::Closed);
        if let (State::Started(transaction), Some(gathered)) = (state, &mut self.gathered) {
            gathered.members.push((transaction, self.answers.len()));
        }
        self.answer(Verb::Commit)
    }

    /// Returns whether what is gathered is to be published, whatever comes behind it.
    fn has_gathered_long(&self) -> bool {
        let gathered = self.gathered.as_ref();
        gathered.is_some_and(|gathered| {
            gathered.members.len() >= GATHERED_MAX || gathered.since.elapsed() >= GATHER_MAX
        })
    }

    /// Publishes what is gathered, and gives the answers.
    fn publish_gathered(&mut self) -> Result<()> {
        if self.gathered.is_none() {
            return Ok(());
        }
        let done = self.publish_members();
        let answers = mem::take(&mut self.answers);
        self.out.put(answers)?;
        self.out.flush()?;
        done
    }

    /// Publishes what is gathered: as one transaction, or else as far as a group takes them, which tells
    /// which of them is to be committed alone.
    fn publish_members(&mut self) -> Result<()> {
        let Some(Gathered { group, members, .. }) = self.gathered.take() else {
            return Ok(());
        };
        let Some(&(_, first)) = members.first() else {
            return Ok(());
        };
        let transactions = members.iter().map(|(transaction, _)| transaction);
        if members.len() > 1
            && let Some(prepared) = self.store.prepare_together(transactions)?
        {
            return self.commit_answered(prepared, first);
        }
        let mut group = Some(group);
        let mut rest = members.into_iter().peekable();
        while rest.peek().is_some() {
            let group = match group.take() {
                Some(group) => Some(group),
                None => self.store.group()?,
            };
            self.publish_next(group, &mut rest)?;
        }
        Ok(())
    }

    /// Publishes transactions as a group, up to the first one that the group cannot take, and that one
    /// alone.
    fn publish_next(
        &mut self,
        mut group: Option<Group<'c>>,
        rest: &mut impl Iterator<Item = (Transaction<'c>, usize)>,
    ) -> Result<()> {
        let mut together = Vec::new();
        let mut alone = None;
        for (transaction, answers) in rest {
            let added = group.as_mut().map(|group| group.add(&transaction));
            if matches!(added, Some(Ok(_))) {
                together.push((transaction, answers));
            } else {
                alone = Some((transaction, answers));
                break;
            }
        }
        let first = together.first().map(|(_, answers)| *answers);
        if let (Some(group), Some(first)) = (group, first)
            && let Ok(prepared) = group.close()
        {
            self.commit_answered(prepared, first)?;
            together.clear();
        }
        for (transaction, answers) in together.into_iter().chain(alone) {
            match transaction.at_once().prepare() {
                Ok(prepared) => self.commit_answered(prepared, answers)?,
                Err(error) => {
                    self.answers.truncate(answers);
                    return Err(during("commit")(error));
                }
            }
        }
        Ok(())
    }

    /// Commits what was answered already; if it fails, only so much of the answers is given.
    fn commit_answered(&mut self, prepared: Prepared<'c>, answers: usize) -> Result<()> {
        let done = self.commit(prepared, during("commit"));
        if done.is_err() {
            self.answers.truncate(answers);
        }
        done
    }

    /// Adds the edit of a line of the usual form, if nothing is wrong with it. All else is read as any
    /// other command, which also finds the right words.
    fn gather_plain(&mut self, lines: &Lines, line: &Plain, text: &[u8]) -> bool {
        let is_open = matches!(self.state, State::Open(_) | State::Started(_));
        let edit = lines.edit(line, text);
        let is_added = is_open && self.add(line.verb(), edit, self.no_deref).is_ok();
        if is_added {
            self.no_deref = self.settings.no_deref;
        }
        is_added
    }

    /// Adds an edit to the transaction, or sets the option for the next one.
    fn gather(&mut self, verb: Verb, fields: &[u8]) -> Result<()> {
        self.transaction()?;
        if verb == Verb::Option {
            return self.option(fields);
        }
        let no_deref = mem::replace(&mut self.no_deref, self.settings.no_deref);
        let zero = self.settings.zero;
        let edit = Parser::new(self.context, verb, fields, zero, no_deref).edit()?;
        self.add(verb, edit, no_deref)
    }

    /// Adds an edit to the transaction. In a batch a rejected one is told and left out.
    #[inline]
    fn add(&mut self, verb: Verb, edit: Edit<'_>, no_deref: bool) -> Result<()> {
        let new_value = matches!(edit.change(), Change::Update(_) | Change::Symbolic(_));
        let edit = match self.settings.asks_for_more() || no_deref {
            true => self.settings.apply(edit, no_deref, new_value),
            // An edit is large, and most are taken as they are.
            false => edit,
        };
        let is_link = self.tells_of_links && matches!(edit.change(), Change::Symbolic(_));
        let index = self.columns.len();
        if !self.settings.batch {
            self.transaction()?.add(edit)?;
            self.links.extend(is_link.then_some(index));
            return Ok(());
        }
        let Columns { new, old } =
            Columns::of(&edit, ObjectId::null(self.context.object_format()?));
        match self.transaction()?.add(edit) {
            Ok(()) => {
                self.columns.push(Columns { new, old });
                self.links.extend(is_link.then_some(index));
            }
            Err(error) => match error.rejection() {
                Some(rejection) if rejection.reason != Reason::Generic => {
                    // That a new ref must not exist is shown only once it has been queued.
                    let old = old.filter(|_| verb != Verb::Create);
                    reject(self.out, rejection, new, old)?;
                }
                _ => return Err(error.into()),
            },
        }
        Ok(())
    }

    /// Returns the transaction that edits can be added to.
    fn transaction(&mut self) -> Result<&mut Transaction<'c>> {
        match &mut self.state {
            State::Open(transaction) | State::Started(transaction) => Ok(transaction),
            State::Prepared(_) => Err(Failure::fatal("prepared transactions can only be closed")),
            State::Closed => Err(Failure::fatal("transaction is closed")),
        }
    }

    fn option(&mut self, fields: &[u8]) -> Result<()> {
        let terminator = if self.settings.zero { b'\0' } else { b'\n' };
        let fields = fields.strip_prefix(b" ").unwrap_or(fields);
        match fields.strip_prefix(b"no-deref") {
            Some([]) if self.settings.zero => {}
            Some([first]) if *first == terminator => {}
            _ => {
                let shown = fields.trim_end_with(|c| c == '\0').as_bstr();
                return Err(Failure::fatal(format!("option unknown: {shown}")));
            }
        }
        self.no_deref = true;
        Ok(())
    }

    /// Moves from one state to the next.
    fn control(&mut self, verb: Verb) -> Result<()> {
        let refuse = |what: &str| Err(Failure::fatal(what));
        self.state = match (verb, mem::replace(&mut self.state, State::Closed)) {
            (Verb::Start, State::Open(transaction)) => State::Started(transaction),
            (Verb::Start, State::Closed) => State::Started(begin(self.store, self.settings)),
            (Verb::Start, State::Started(_)) => {
                return refuse("cannot restart ongoing transaction");
            }
            (Verb::Start | Verb::Prepare, State::Prepared(_)) => {
                return refuse("prepared transactions can only be closed");
            }
            (_, State::Closed) => return refuse("transaction is closed"),
            (Verb::Prepare, State::Open(transaction) | State::Started(transaction)) => {
                State::Prepared(transaction.prepare().map_err(during("prepare"))?)
            }
            (Verb::Abort, State::Open(transaction) | State::Started(transaction)) => {
                self.columns.clear();
                self.links.clear();
                transaction.abort()?;
                State::Closed
            }
            (Verb::Abort, State::Prepared(prepared)) => {
                self.columns.clear();
                self.links.clear();
                prepared.abort()?;
                State::Closed
            }
            (_, State::Open(transaction) | State::Started(transaction)) => {
                let prepared = transaction.at_once().prepare();
                let prepared = prepared.map_err(during("commit"))?;
                self.commit(prepared, during("commit"))?;
                State::Closed
            }
            (_, State::Prepared(prepared)) => {
                self.commit(prepared, during("commit"))?;
                State::Closed
            }
        };
        self.answer(verb)
    }

    /// Answers that a command was carried out.
    fn answer(&mut self, verb: Verb) -> Result<()> {
        let answer = [verb.word(), ": ok\n"];
        if self.gathered.is_some() {
            for part in answer {
                self.answers.extend_from_slice(part.as_bytes());
            }
            return Ok(());
        }
        // At once, so that it stands before what a hook or a message says next.
        self.out.put(answer.concat())?;
        self.out.flush()
    }

    fn commit(
        &mut self,
        prepared: Prepared<'c>,
        failed: impl FnOnce(refdb::Error) -> Failure,
    ) -> Result<()> {
        let outcome = prepared.commit().map_err(failed)?;
        let refused = |index: &usize| outcome.rejections.iter().any(|it| it.index == *index);
        if self.links.iter().any(|index| !refused(index)) {
            // Once is enough.
            self.tells_of_links = false;
            complain(LINKS_END);
        }
        self.links.clear();
        for rejection in &outcome.rejections {
            let columns = self.columns.get(rejection.index);
            let (new, old) = columns.map_or((None, None), |it| (it.new, it.old));
            reject(self.out, rejection, new, old)?;
        }
        self.columns.clear();
        tell_afterwards(&outcome);
        Ok(())
    }

    /// Commits what only the end of the input commits.
    fn end(mut self) -> Result<()> {
        match mem::replace(&mut self.state, State::Closed) {
            State::Open(transaction) => {
                let prepared = transaction.at_once().prepare()?;
                self.commit(prepared, Failure::from)
            }
            State::Started(transaction) => Ok(transaction.abort()?),
            State::Prepared(prepared) => Ok(prepared.abort()?),
            State::Closed => Ok(()),
        }
    }
}

fn begin<'c>(store: &'c Store, settings: &Settings) -> Transaction<'c> {
    let transaction = store.transaction();
    if settings.batch {
        transaction.batch()
    } else {
        transaction
    }
}

fn during(step: &'static str) -> impl FnOnce(refdb::Error) -> Failure {
    move |error| {
        Failure::of_transaction(error, |it| {
            Failure::fatal(Words::from(it).after(format!("{step}: ")))
        })
    }
}

/// Prints a rejected edit: for programs on standard output, for people on standard error.
fn reject(
    out: &mut Output,
    rejection: &Rejection,
    new: Option<ObjectId>,
    old: Option<ObjectId>,
) -> Result<()> {
    let buffer = out.buffer();
    buffer.extend_from_slice(b"rejected ");
    buffer.extend_from_slice(RefName::from(&rejection.name).as_bytes());
    for oid in [new, old] {
        buffer.push(b' ');
        match oid {
            Some(oid) => oid.push_hex(buffer),
            None => buffer.extend_from_slice(b"(null)"),
        }
    }
    buffer.push(b' ');
    buffer.extend_from_slice(rejection.reason.as_str().as_bytes());
    buffer.push(b'\n');
    out.line_done()?;
    say_message("error", &rejection.message);
    Ok(())
}
