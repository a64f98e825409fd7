//! A run of `update-ref --stdin`: the transactions that the commands open, fill and close.
//!
//! A program that does not wait for answers has sent many transactions when the first one is read.
//! Those are published together and answered then; what they come to is the same.

use std::mem;

use bstr::ByteSlice;
use refdb::{Group, ObjectId, Prepared, Reason, RefName, Rejection, Store, Transaction};

use super::command::{Parsed, Parser, Verb, recognise, split};
use super::fields::Fields;
use super::input::Input;
use super::{Settings, tell_afterwards};
use crate::context::Context;
use crate::failure::{Failure, Result, say};
use crate::output::Output;

/// Reads and carries out everything on standard input.
pub(super) fn run(context: &Context, out: &mut Output, settings: &Settings) -> Result<()> {
    let terminator = if settings.zero { 0 } else { b'\n' };
    let mut input = Input::new(terminator);
    let mut session = Session::new(context, out, settings)?;
    // Nothing is left when the input has ended: its last command is whole, whatever it looks like.
    while input.wait()? {
        let taken = session.carry_out(input.text(), input.ended())?;
        input.take(taken);
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
    /// The answers to commands that were carried out.
    answers: Vec<u8>,
    /// Where the present transaction began, if that is in the text at hand and if it can be
    /// published together with others.
    begun: Option<Place>,
    gathered: Option<Gathered<'c>>,
    /// How far into the text transactions are published one by one: there, something went wrong
    /// with them as a group.
    single_until: usize,
}

/// Transactions that are checked and not published yet.
struct Gathered<'c> {
    group: Group<'c>,
    /// Where the first one began.
    begun: Place,
}

/// A place in the text between two transactions, and what there is to return to.
#[derive(Clone, Copy)]
struct Place {
    at: usize,
    answers: usize,
    no_deref: bool,
}

/// How far the commands that arrived together were carried out.
enum Progress {
    /// So many bytes are done.
    To(usize),
    /// What was gathered is to be carried out again, one by one, up to there.
    Again(Place, usize),
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
            begun: None,
            gathered: None,
            single_until: 0,
        })
    }

    /// Carries out the commands that are whole; returns how long they are together.
    fn carry_out(&mut self, text: &[u8], ended: bool) -> Result<usize> {
        self.begun = None;
        self.single_until = 0;
        let mut from = 0;
        let done = loop {
            match self.carry_out_from(text, from, ended) {
                Ok(Progress::Again(place, to)) => {
                    // As it was before the first of them: there was no transaction.
                    self.state = State::Closed;
                    self.no_deref = place.no_deref;
                    self.answers.truncate(place.answers);
                    self.single_until = to;
                    from = place.at;
                }
                Ok(Progress::To(len)) => break Ok(len),
                Err(error) => break Err(error),
            }
        };
        let answers = mem::take(&mut self.answers);
        self.out.put(answers)?;
        self.out.flush()?;
        done
    }

    fn carry_out_from(&mut self, text: &[u8], from: usize, ended: bool) -> Result<Progress> {
        let zero = self.settings.zero;
        let mut rest = text.get(from..).unwrap_or_default();
        while !rest.is_empty() {
            let Some((command, after)) = split(rest, zero, ended) else {
                break;
            };
            let at = text.len() - rest.len();
            let to = text.len() - after.len();
            rest = after;
            let recognised = recognise(command, zero);
            if self.gathered.is_some()
                && !recognised.as_ref().is_ok_and(|it| self.is_blind(*it))
                && let Some(place) = self.publish_gathered()?
            {
                return Ok(Progress::Again(place, to));
            }
            let (verb, fields) = recognised?;
            let mut gathered_from = self.gathered_from();
            let done = match verb {
                Verb::Start => self.start(at),
                Verb::Commit if self.may_gather(rest) => self.gather_transaction(),
                Verb::Prepare | Verb::Abort | Verb::Commit => self.control(verb),
                _ => self.gather(verb, fields),
            };
            gathered_from = gathered_from.or(self.gathered_from());
            match (done, gathered_from) {
                (Err(_), Some(place)) => {
                    self.gathered = None;
                    return Ok(Progress::Again(place, to));
                }
                (done, _) => done?,
            }
        }
        match self.publish_gathered()? {
            Some(place) => Ok(Progress::Again(place, text.len())),
            None => Ok(Progress::To(text.len() - rest.len())),
        }
    }

    fn gathered_from(&self) -> Option<Place> {
        self.gathered.as_ref().map(|gathered| gathered.begun)
    }

    /// Returns whether a command comes to the same whether the transactions before it are published
    /// or only gathered: it reads no ref beside those that the transaction itself reads.
    fn is_blind(&self, (verb, fields): (Verb, &[u8])) -> bool {
        match verb {
            Verb::Start | Verb::Option => true,
            Verb::Commit => self.begun.is_some(),
            Verb::Update | Verb::Create | Verb::Delete | Verb::Verify => {
                Fields::new(fields, self.settings.zero).are_plain()
            }
            _ => false,
        }
    }

    /// Returns whether the present transaction is to be published together with others: where
    /// nothing follows it, somebody may be waiting for the answer.
    fn may_gather(&self, rest: &[u8]) -> bool {
        let in_group = self.gathered.is_some() || !rest.is_empty();
        let single_until = self.single_until;
        in_group && self.begun.is_some_and(|place| place.at >= single_until)
    }

    /// Checks the present transaction as one of a group.
    fn gather_transaction(&mut self) -> Result<()> {
        let (State::Started(_), Some(begun)) = (&self.state, self.begun) else {
            return self.control(Verb::Commit);
        };
        if self.gathered.is_none() {
            match self.store.group()? {
                Some(group) => self.gathered = Some(Gathered { group, begun }),
                None => return self.control(Verb::Commit),
            }
        }
        if let (State::Started(transaction), Some(gathered)) = (
            mem::replace(&mut self.state, State::Closed),
            &mut self.gathered,
        ) {
            let _ = gathered.group.add(&transaction)?;
        }
        self.answer(Verb::Commit)
    }

    /// Publishes what is gathered. Returns where that began if it cannot be published together;
    /// nothing is visible then.
    fn publish_gathered(&mut self) -> Result<Option<Place>> {
        let Some(gathered) = self.gathered.take() else {
            return Ok(None);
        };
        let Ok(prepared) = gathered.group.close() else {
            return Ok(Some(gathered.begun));
        };
        if let Err(error) = self.commit(prepared, during("commit")) {
            // Nobody may think that they were.
            self.answers.truncate(gathered.begun.answers);
            return Err(error);
        }
        Ok(None)
    }

    /// Adds an edit to the transaction, or sets the option for the next one.
    fn gather(&mut self, verb: Verb, fields: &[u8]) -> Result<()> {
        self.transaction()?;
        if verb == Verb::Option {
            return self.option(fields);
        }
        let no_deref = mem::replace(&mut self.no_deref, self.settings.no_deref);
        let zero = self.settings.zero;
        let Parsed {
            edit,
            new,
            old,
            new_value,
        } = Parser::new(self.context, verb, fields, zero, no_deref).edit()?;
        let edit = self.settings.apply(edit, no_deref, new_value);
        let batch = self.settings.batch;
        let transaction = self.transaction()?;
        match transaction.add(edit) {
            Ok(()) if batch => self.columns.push(Columns { new, old }),
            Ok(()) => {}
            Err(error) => match error.rejection() {
                Some(rejection) if batch && rejection.reason != Reason::Generic => {
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

    /// Begins a transaction, whose first command stands in the text at `at`.
    fn start(&mut self, at: usize) -> Result<()> {
        let place = Place {
            at,
            answers: self.answers.len(),
            no_deref: self.no_deref,
        };
        let is_fresh = match &self.state {
            State::Open(transaction) => transaction.is_empty(),
            State::Closed => true,
            State::Started(_) | State::Prepared(_) => false,
        };
        self.control(Verb::Start)?;
        self.begun = Some(place).filter(|_| is_fresh && !self.settings.batch);
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
                transaction.abort()?;
                State::Closed
            }
            (Verb::Abort, State::Prepared(prepared)) => {
                self.columns.clear();
                prepared.abort()?;
                State::Closed
            }
            (_, State::Open(transaction) | State::Started(transaction)) => {
                let prepared = transaction.prepare().map_err(during("commit"))?;
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
        let answer = format!("{}: ok\n", verb.word());
        if !self.settings.batch {
            self.answers.extend_from_slice(answer.as_bytes());
            return Ok(());
        }
        // Between what was rejected before and after.
        self.out.put(answer)
    }

    fn commit(
        &mut self,
        prepared: Prepared<'c>,
        failed: impl FnOnce(refdb::Error) -> Failure,
    ) -> Result<()> {
        let outcome = prepared.commit().map_err(failed)?;
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
                let prepared = transaction.prepare()?;
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
    move |error| Failure::of_transaction(error, |it| Failure::fatal(format!("{step}: {it}")))
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
    say("error", rejection.message.as_bytes());
    Ok(())
}
