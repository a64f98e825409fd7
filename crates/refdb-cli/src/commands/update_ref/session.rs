//! A run of `update-ref --stdin`: the transactions that the commands open, fill and close.

use std::mem;

use bstr::ByteSlice;
use refdb::{ObjectId, Prepared, Reason, RefName, Rejection, Store, Transaction};

use super::command::{Parsed, Parser, Verb, recognise, split};
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
        })
    }

    /// Carries out the commands that are whole; returns how long they are together.
    fn carry_out(&mut self, text: &[u8], ended: bool) -> Result<usize> {
        let zero = self.settings.zero;
        let mut rest = text;
        while !rest.is_empty() {
            let Some((command, after)) = split(rest, zero, ended) else {
                break;
            };
            rest = after;
            let (verb, fields) = recognise(command, zero)?;
            match verb {
                Verb::Start | Verb::Prepare | Verb::Abort | Verb::Commit => self.control(verb)?,
                _ => self.gather(verb, fields)?,
            }
        }
        Ok(text.len() - rest.len())
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
        self.out.put(format!("{}: ok\n", verb.word()))?;
        self.out.flush()
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
