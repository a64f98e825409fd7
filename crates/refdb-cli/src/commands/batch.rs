//! `refdb batch`: one process that answers many questions and carries out many transactions.
//!
//! `docs/batch.md` is the protocol. A question that cannot be answered is told so and ends nothing.

mod input;
mod trouble;

use std::mem;

use bstr::ByteSlice;
use refdb::{Change, ObjectId, Prepared, Ref, RefName, Rejection, Store, TargetRef, Transaction};

use self::input::{Asked, Input};
use self::trouble::{MOVED, Trouble, word_of};
use super::tell_afterwards;
use super::update_ref::command::{Parser, recognise};
use crate::context::Context;
use crate::failure::Result;
use crate::options::{Opt, Spec};
use crate::output::Output;

/// The version of the protocol. A later one adds words, and changes none.
const VERSION: u32 = 1;

#[derive(Clone, Copy)]
pub(super) enum Id {
    Zero,
}

pub(super) const SPEC: Spec<Id> = Spec {
    name: "batch",
    forms: &["[-z]"],
    options: &[Opt::flag(
        Id::Zero,
        "",
        "questions and answers end with NUL, and not LF",
    )
    .short(b'z')],
};

/// How many questions about single refs that have arrived are answered together.
const TOGETHER_MAX: usize = 1024;

/// Runs `batch`.
pub(super) fn run(context: &Context, out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    let mut terminator = b'\n';
    let operands = SPEC.parse(args, |id, value| {
        match id {
            Id::Zero => terminator = if value.is_set() { 0 } else { b'\n' },
        }
        Ok(())
    })?;
    if !operands.is_empty() {
        return Err(SPEC.misuse());
    }
    let mut input = Input::new(terminator);
    let mut number = 0;
    let mut go_on = serve(context, &mut input, out, terminator, &mut number)?;
    while go_on {
        let again = Context::new(context.globals().clone());
        go_on = serve(&again, &mut input, out, terminator, &mut number)?;
    }
    Ok(())
}

/// Answers questions to the end of the input, or until the refs are in another format: returns whether the
/// repository is to be opened again.
fn serve(
    context: &Context,
    input: &mut Input,
    out: &mut Output,
    terminator: u8,
    number: &mut u64,
) -> Result<bool> {
    let mut session = Session {
        context,
        store: context.store()?,
        out,
        terminator,
        number: *number,
        state: State::Closed,
    };
    loop {
        if !input.has_next() {
            session.out.flush()?;
        }
        let asked = input.next()?;
        if matches!(asked, Asked::End) {
            session.give_up()?;
            return Ok(false);
        }
        let mut asked = vec![asked];
        if let [Asked::Question(first)] = asked.as_slice()
            && is_lookup(first)
        {
            let more = std::iter::from_fn(|| input.next_if(is_lookup));
            asked.extend(more.take(TOGETHER_MAX).map(Asked::Question));
        }
        let mut found = session.look_up(&asked).into_iter();
        let mut asked = asked.into_iter();
        while let Some(asked_now) = asked.next() {
            session.number += 1;
            *number = session.number;
            let done = match (&asked_now, found.next()) {
                (Asked::Question(question), Some(found)) => session.tell_found(question, found),
                (Asked::Question(question), None) => session.answer(question),
                (Asked::TooLong, _) => Err(Trouble::usage("the question is too long")),
                (Asked::CutOff | Asked::End, _) => {
                    Err(Trouble::usage("the input ended within the question"))
                }
            };
            let told = done.or_else(|trouble| session.tell_trouble(&asked_now, trouble));
            match told {
                Ok(()) => {}
                Err(Trouble::Ends(failure)) => return Err(failure),
                Err(Trouble::Told { .. }) => {
                    let left = asked.filter_map(|asked| match asked {
                        Asked::Question(question) => Some(question),
                        _ => None,
                    });
                    input.give_back(left);
                    return Ok(true);
                }
            }
        }
    }
}

/// A transaction that takes edits.
struct Open<'c> {
    transaction: Transaction<'c>,
    /// Whether single edits may be refused.
    is_batch: bool,
    /// The numbers of the questions that its edits came with.
    edits: Vec<u64>,
    /// The reason that reflogs get.
    message: Vec<u8>,
    /// Whether the next edit leaves symrefs alone.
    no_deref: bool,
    /// Whether something was asked of it that it cannot do, so that it will not be committed.
    is_spoiled: bool,
}

/// Where a session stands.
enum State<'c> {
    Closed,
    Open(Box<Open<'c>>),
    /// The locks are held; with the numbers of the edits.
    Prepared(Box<Prepared<'c>>, Vec<u64>),
}

struct Session<'c, 'o> {
    context: &'c Context,
    store: &'c Store,
    out: &'o mut Output,
    terminator: u8,
    /// The number of the question, from 1.
    number: u64,
    state: State<'c>,
}

type Answered = std::result::Result<(), Trouble>;

impl<'c> Session<'c, '_> {
    /// Answers one question.
    fn answer(&mut self, question: &[u8]) -> Answered {
        if question.iter().any(|&byte| matches!(byte, b'\n' | 0)) {
            return Err(Trouble::usage("a question has no line feed and no NUL"));
        }
        let (word, rest) = question.split_once_str(" ").unwrap_or((question, b""));
        match word {
            b"version" => self.tell(&[b"version", VERSION.to_string().as_bytes()]),
            b"flush" => {
                self.tell(&[b"ok"])?;
                Ok(self.out.flush()?)
            }
            b"read" | b"resolve" | b"exists" => {
                let found = self.store.read(RefName::new(rest)?);
                self.tell_found(question, found)
            }
            b"list" => self.list(rest),
            b"points-at" => self.points_at(rest),
            b"start" => self.start(rest),
            b"message" => {
                self.open()?.message = rest.to_vec();
                self.tell(&[b"ok"])
            }
            b"option" if rest == b"no-deref" => {
                self.open()?.no_deref = true;
                self.tell(&[b"ok"])
            }
            b"prepare" => self.prepare().and_then(|()| self.tell(&[b"prepared"])),
            b"commit" => self.commit(),
            b"abort" => self.abort(),
            b"update" | b"create" | b"delete" | b"verify" | b"symref-update" | b"symref-create"
            | b"symref-delete" | b"symref-verify" => self.edit(question),
            _ => Err(Trouble::usage([b"no such question: ", word].concat())),
        }
    }

    /// Appends one record: the number of the question, and fields.
    fn tell(&mut self, fields: &[&[u8]]) -> Answered {
        let start = self.number.to_string();
        let buffer = self.out.buffer();
        buffer.extend_from_slice(start.as_bytes());
        for field in fields {
            buffer.push(b' ');
            // Texts for people may have several lines.
            buffer.extend(field.iter().map(|&byte| match byte {
                b'\n' | 0 => b' ',
                byte => byte,
            }));
        }
        buffer.push(self.terminator);
        Ok(self.out.line_done()?)
    }

    /// Looks for the refs of several questions together; nothing if there are not several, or a name is none.
    fn look_up(&self, asked: &[Asked]) -> Vec<refdb::Result<Option<Ref>>> {
        let name = |asked: &'_ Asked| match asked {
            Asked::Question(question) => {
                RefName::new(name_of(question)).map(RefName::to_owned).ok()
            }
            _ => None,
        };
        if asked.len() < 2 {
            return Vec::new();
        }
        let names: Option<Vec<_>> = asked.iter().map(name).collect();
        let names = names.unwrap_or_default();
        let names: Vec<_> = names.iter().map(RefName::from).collect();
        self.store.read_all(&names)
    }

    /// Answers a question about a single ref by what was found.
    fn tell_found(&mut self, question: &[u8], found: refdb::Result<Option<Ref>>) -> Answered {
        let found = found?;
        if question.starts_with(b"exists") {
            return self.tell(&[if found.is_some() { b"yes" } else { b"no" }]);
        }
        let is_resolved = question.starts_with(b"resolve");
        match found.as_ref().map(|found| found.target.as_ref()) {
            None => self.tell(&[b"missing"]),
            Some(TargetRef::Symbolic(_)) if is_resolved => self.resolve(name_of(question)),
            Some(TargetRef::Symbolic(target)) => self.tell(&[b"symref", target.as_bytes()]),
            Some(TargetRef::Direct(oid)) if is_resolved => {
                let oid = oid.to_string();
                self.tell(&[b"oid", oid.as_bytes(), name_of(question)])
            }
            Some(TargetRef::Direct(oid)) => self.tell(&[b"oid", oid.to_string().as_bytes()]),
        }
    }

    fn resolve(&mut self, name: &[u8]) -> Answered {
        match self.store.resolve(RefName::new(name)?)? {
            None => self.tell(&[b"missing"]),
            Some(end) => {
                let oid = end.oid.to_string();
                self.tell(&[b"oid", oid.as_bytes(), end.name.as_bytes()])
            }
        }
    }

    /// Answers with one ref of a list.
    fn tell_ref(
        &mut self,
        name: &[u8],
        target: TargetRef<'_>,
        peeled: Option<ObjectId>,
        broken: bool,
    ) -> Answered {
        match target {
            _ if broken => self.tell(&[b"ref", name, b"broken"]),
            TargetRef::Symbolic(target) => self.tell(&[b"ref", name, b"symref", target.as_bytes()]),
            TargetRef::Direct(oid) => {
                let oid = oid.to_string();
                match peeled {
                    None => self.tell(&[b"ref", name, b"oid", oid.as_bytes()]),
                    Some(peeled) => {
                        let peeled = peeled.to_string();
                        self.tell(&[b"ref", name, b"oid", oid.as_bytes(), peeled.as_bytes()])
                    }
                }
            }
        }
    }

    fn list(&mut self, rest: &[u8]) -> Answered {
        let (mut prefix, mut after, mut count) = (&b""[..], None, u64::MAX);
        for field in rest.split_str(" ").filter(|field| !field.is_empty()) {
            match field.split_once_str("=") {
                Some((b"prefix", value)) => prefix = value,
                Some((b"after", value)) => after = Some(value),
                Some((b"count", value)) => {
                    let value = value.to_str().ok().and_then(|value| value.parse().ok());
                    count = value.ok_or_else(|| Trouble::usage("count is no number"))?;
                }
                _ => return Err(Trouble::usage("list takes prefix=, after= and count=")),
            }
        }
        let mut refs = self.store.refs()?;
        match after {
            Some(after) => refs.seek_after(after, prefix)?,
            None => refs.seek_prefix(prefix)?,
        }
        let mut told = 0;
        // Which looks at its end, be it that of a page, whether the refs are still there.
        let is_all = refs.each(|record| {
            if told == count {
                return Ok::<_, Trouble>(false);
            }
            told += 1;
            let name = record.name.as_bytes();
            self.tell_ref(name, record.target, record.peeled, record.broken)?;
            Ok(true)
        })?;
        match is_all {
            true => self.tell(&[b"end"]),
            false => self.tell(&[b"end", b"more"]),
        }
    }

    fn points_at(&mut self, oid: &[u8]) -> Answered {
        let format = self.context.object_format()?;
        let oid = ObjectId::from_hex(oid).filter(|_| oid.len() == format.hex_len());
        let oid = oid.ok_or_else(|| Trouble::usage("points-at takes a whole object id"))?;
        for found in self.store.refs_by_oid(oid)? {
            let name = found.name.as_bytes();
            self.tell_ref(name, found.target.as_ref(), found.peeled, found.broken)?;
        }
        self.tell(&[b"end"])
    }

    fn start(&mut self, rest: &[u8]) -> Answered {
        if !matches!(self.state, State::Closed) {
            return Err(Trouble::usage("there is a transaction already"));
        }
        let transaction = self.store.transaction();
        let (transaction, is_batch) = match rest {
            b"" => (transaction, false),
            b"batch" => (transaction.batch(), true),
            _ => return Err(Trouble::usage("start takes nothing or `batch`")),
        };
        self.state = State::Open(Box::new(Open {
            transaction,
            is_batch,
            edits: Vec::new(),
            message: Vec::new(),
            no_deref: false,
            is_spoiled: false,
        }));
        self.tell(&[b"ok"])
    }

    fn open(&mut self) -> std::result::Result<&mut Open<'c>, Trouble> {
        match &mut self.state {
            State::Open(open) => Ok(open),
            State::Closed => Err(Trouble::usage("there is no transaction")),
            State::Prepared(..) => Err(Trouble::usage("the transaction is prepared")),
        }
    }

    /// Answers with what is wrong.
    ///
    /// # Errors
    /// The trouble, where the repository is to be opened again; or what ends the command.
    fn tell_trouble(&mut self, asked: &Asked, trouble: Trouble) -> Answered {
        let Trouble::Told { kind, text } = &trouble else {
            return Err(trouble);
        };
        let only_reads = matches!(asked, Asked::Question(question) if only_reads(question));
        if let (State::Open(open), false) = (&mut self.state, only_reads) {
            // A transaction that lacks one of its edits is not what was asked for.
            open.is_spoiled = true;
        }
        self.tell(&[b"error", kind.as_bytes(), text])?;
        match *kind {
            MOVED => Err(trouble),
            _ => Ok(()),
        }
    }

    fn edit(&mut self, question: &[u8]) -> Answered {
        let (context, number) = (self.context, self.number);
        let open = self.open()?;
        let no_deref = mem::take(&mut open.no_deref);
        let line = [question, b"\n"].concat();
        let (verb, fields) = recognise(&line, false).map_err(Trouble::of_edit)?;
        let parser = Parser::new(context, verb, fields, false, no_deref);
        let edit = parser.edit().map_err(Trouble::of_edit)?;
        let is_log = matches!(edit.change(), Change::Log(_));
        let mut edit = match open.message.is_empty() || is_log {
            true => edit,
            false => edit.message(open.message.clone()),
        };
        if no_deref {
            edit = edit.no_deref();
        }
        match open.transaction.add(edit) {
            Ok(()) => {
                open.edits.push(number);
                self.tell(&[b"ok"])
            }
            Err(error) => match error.rejection() {
                Some(rejection) => {
                    open.is_spoiled |= !open.is_batch;
                    self.tell_rejection(rejection, number)
                }
                None => Err(error.into()),
            },
        }
    }

    fn tell_rejection(&mut self, rejection: &Rejection, edit: u64) -> Answered {
        let (word, text) = (word_of(rejection.reason), rejection.message.to_string());
        let edit = edit.to_string();
        let (edit, word) = (edit.as_bytes(), word.as_bytes());
        self.tell(&[b"edit", edit, b"rejected", word, text.as_bytes()])
    }

    /// Takes the locks. What is refused is told; the transaction is over when it is refused as a whole.
    fn prepare(&mut self) -> Answered {
        self.open()?;
        let State::Open(open) = mem::replace(&mut self.state, State::Closed) else {
            return Ok(());
        };
        if open.is_spoiled {
            let text = "an edit of the transaction was refused: nothing is committed";
            let (kind, text) = ("rejected", text.into());
            return Err(Trouble::Told { kind, text });
        }
        let Open {
            transaction, edits, ..
        } = *open;
        match transaction.prepare() {
            Ok(prepared) => {
                self.state = State::Prepared(Box::new(prepared), edits);
                Ok(())
            }
            Err(error) => {
                if let Some(rejection) = error.rejection()
                    && let Some(&edit) = edits.get(rejection.index)
                {
                    self.tell_rejection(rejection, edit)?;
                }
                Err(error.into())
            }
        }
    }

    fn commit(&mut self) -> Answered {
        if matches!(self.state, State::Open(_)) {
            self.prepare()?;
        }
        let State::Prepared(prepared, edits) = mem::replace(&mut self.state, State::Closed) else {
            return Err(Trouble::usage("there is no transaction"));
        };
        let outcome = prepared.commit()?;
        tell_afterwards(&outcome);
        let mut refused = outcome.rejections.iter().collect::<Vec<_>>();
        refused.sort_by_key(|rejection| rejection.index);
        let mut refused = refused.into_iter().peekable();
        for (index, &edit) in edits.iter().enumerate() {
            match refused.next_if(|rejection| rejection.index == index) {
                Some(rejection) => self.tell_rejection(rejection, edit)?,
                None => self.tell(&[b"edit", edit.to_string().as_bytes(), b"ok"])?,
            }
            while refused
                .next_if(|rejection| rejection.index == index)
                .is_some()
            {}
        }
        self.tell(&[b"committed"])
    }

    fn abort(&mut self) -> Answered {
        if matches!(self.state, State::Closed) {
            return Err(Trouble::usage("there is no transaction"));
        }
        self.give_up()?;
        self.tell(&[b"ok"])
    }

    /// Gives up the transaction, if there is one, and tells the hook.
    fn give_up(&mut self) -> refdb::Result<()> {
        match mem::replace(&mut self.state, State::Closed) {
            State::Closed => Ok(()),
            State::Open(open) => open.transaction.abort(),
            State::Prepared(prepared, _) => prepared.abort(),
        }
    }
}

/// Returns whether a question is about a single ref.
fn is_lookup(question: &[u8]) -> bool {
    let word = question.split_str(" ").next().unwrap_or_default();
    matches!(word, b"read" | b"resolve" | b"exists")
        && !question.iter().any(|&byte| matches!(byte, b'\n' | 0))
}

/// Returns the name in a question about a single ref.
fn name_of(question: &[u8]) -> &[u8] {
    question.split_once_str(" ").map_or(b"", |(_, name)| name)
}

/// Returns whether a question changes nothing of a transaction, whatever comes of it.
fn only_reads(question: &[u8]) -> bool {
    let word = question.split_str(" ").next().unwrap_or_default();
    matches!(
        word,
        b"version" | b"flush" | b"read" | b"resolve" | b"exists" | b"list" | b"points-at"
    )
}
