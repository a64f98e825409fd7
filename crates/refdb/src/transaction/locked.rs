//! Refs that are locked before it is decided what becomes of them.
//!
//! Invariant: what was told of a ref stays true until its lock is given back. So no lock is given back to
//! be taken again in another order once somebody knows what was found under it.

use std::collections::{BTreeMap, HashSet};

use refdb_names::{RefName, RefNameBuf};

use crate::backend::cursor::Cursor;
use crate::backend::{
    Backend, Judge, Locked, Plan, Published, Refusal, Session, Value, answer_known,
};
use crate::error::{Error, ErrorKind, Reason, Rejection, Result};
use crate::layout::Place;
use crate::reflog::{LogEntry, Signature};
use crate::refs::Ref;

use super::checks::check_signature;
use super::edit::Edit;
use super::{Outcome, Prepared, Transaction};

/// A transaction that holds locks already: the refs can be read under them, and edits be added that
/// depend on what was read. Dropping it gives the locks back.
///
/// Any edit may be added. What it concerns beside the locked refs (the ref that a symref leads to, HEAD)
/// is locked when the transaction is prepared, and not waited for. The hook hears of the transaction when
/// it is prepared, and so with these locks held.
///
/// ```
/// use refdb::{Edit, RefName, Store};
///
/// /// Lets two branches change places.
/// fn swap(store: &Store, one: RefName<'_>, other: RefName<'_>) -> refdb::Result<()> {
///     let mut locked = store.transaction().lock([one, other])?;
///     let values = [locked.read(one)?, locked.read(other)?].map(|found| found?.target.oid());
///     if let [Some(first), Some(second)] = values {
///         locked.add(Edit::update(one, second))?;
///         locked.add(Edit::update(other, first))?;
///     }
///     let _ = locked.commit()?;
///     Ok(())
/// }
/// ```
pub struct LockedRefs<'s> {
    pub(super) transaction: Transaction<'s>,
    pub(super) session: LockedSession<'s>,
}

impl<'s> LockedRefs<'s> {
    pub(super) fn begin(transaction: Transaction<'s>) -> Result<Self> {
        super::may_write(transaction.options)?;
        // What the edits are decided by must be what is there now.
        transaction.backend.generation(true)?;
        let session = LockedSession::begin(transaction.backend)?;
        Ok(LockedRefs {
            transaction,
            session,
        })
    }

    /// Locks more refs. Those that are named together are locked in the order in which all writers lock
    /// them; a lock that comes before one that is held is not waited for.
    ///
    /// # Errors
    /// `Locked` when another process holds a lock; `Rejected` when there can be no such ref, because of
    /// another one or because what is there cannot be read; `Corrupt` or `Io` for the files. Refs that
    /// were locked before stay so.
    pub fn lock<'n>(&mut self, names: impl IntoIterator<Item = RefName<'n>>) -> Result<()> {
        let mut names: Vec<RefName<'n>> = names.into_iter().collect();
        names.sort();
        names.dedup();
        names.retain(|name| !self.session.found.contains_key(name.as_bytes()));
        match self.session.take(&names, None)? {
            Some((name, refusal)) => Err(refused_lock(name, refusal)),
            None => Ok(()),
        }
    }

    /// Returns what a locked ref holds; `None` if there is none.
    ///
    /// # Errors
    /// `Misuse` when it is not locked.
    pub fn read(&self, name: RefName<'_>) -> Result<Option<Ref>> {
        match self.session.found.get(name.as_bytes()) {
            Some(found) => Ok(found.clone().map(|value| Ref::new(name, value))),
            None => {
                let message = format!("the ref '{name}' is not locked");
                Err(Error::new(ErrorKind::Misuse, message))
            }
        }
    }

    /// Names `who` in every reflog entry of this transaction, as [`Transaction::committer`] does: it need not
    /// be known before the locks are held.
    ///
    /// ```no_run
    /// # use refdb::{Edit, RefName, Signature};
    /// # fn f(store: &refdb::Store, who: Signature, new: refdb::ObjectId) -> refdb::Result<()> {
    /// let topic = RefName::new("refs/heads/topic")?;
    /// let mut locked = store.transaction().lock([topic])?;
    /// locked.committer(who)?;
    /// locked.add(Edit::update(topic, new))?;
    /// let _ = locked.commit()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`Transaction::committer`].
    pub fn committer(&mut self, who: Signature) -> Result<()> {
        check_signature(&who, &"a transaction")?;
        self.transaction.queue.who = Some(Box::new(who));
        Ok(())
    }

    /// Adds an edit.
    ///
    /// # Errors
    /// As for [`Transaction::add`].
    pub fn add(&mut self, edit: Edit<'_>) -> Result<()> {
        self.transaction.add(edit)
    }

    /// Checks every edit.
    ///
    /// # Errors
    /// As for [`Transaction::prepare`]. All locks are given back then.
    pub fn prepare(self) -> Result<Prepared<'s>> {
        let LockedRefs {
            transaction,
            mut session,
        } = self;
        session.session.wait_no_more();
        transaction.prepare_in(move |_| Ok(Box::new(session)))
    }

    /// Prepares and commits.
    ///
    /// # Errors
    /// As for [`LockedRefs::prepare`] and [`Prepared::commit`].
    pub fn commit(self) -> Result<Outcome> {
        self.prepare()?.commit()
    }
}

/// A session that keeps its locks, and what was found under them.
pub(super) struct LockedSession<'s> {
    session: Box<dyn Session + 's>,
    found: BTreeMap<RefNameBuf, Option<Value>>,
}

impl<'s> LockedSession<'s> {
    pub(super) fn begin(backend: &'s dyn Backend) -> Result<Self> {
        Ok(LockedSession {
            session: backend.begin()?,
            found: BTreeMap::new(),
        })
    }

    /// Holds a name of which it is known that there is no ref, since a locked one is in its way.
    pub(super) fn hold_missing(&mut self, name: RefName<'_>) {
        self.found.insert(name.to_owned(), None);
    }

    /// Locks names that are sorted, none of which is locked yet, and among them `nested`, the name of a ref
    /// to come in whose way one of them is. Returns the first that could not be locked, and why.
    pub(super) fn take<'n>(
        &mut self,
        names: &[RefName<'n>],
        nested: Option<RefName<'_>>,
    ) -> Result<Option<(RefName<'n>, Refusal)>> {
        let before = nested.map_or(names.len(), |nested| {
            names.partition_point(|name| *name < nested)
        });
        let (first, rest) = names.split_at(before);
        loop {
            let mut answers = Answers::default();
            self.session.lock(first, true, &mut |at, locked| {
                answers.note(first[at], locked);
            })?;
            // Without the lock of the one nothing is to be told of the other.
            if let Some(nested) = nested.filter(|_| answers.has_all()) {
                match self.session.lock_nested(nested)? {
                    true => self.session.lock(rest, true, &mut |at, locked| {
                        answers.note(rest[at], locked);
                    })?,
                    false => answers.note(names[0], Locked::Behind),
                }
            }
            let Answers {
                found,
                is_behind,
                refused,
            } = answers;
            if is_behind.is_some() && self.found.is_empty() {
                self.session.begin_again();
                continue;
            }
            let behind = is_behind.map(|name| (name, behind()));
            let Some(failure) = refused.or(behind) else {
                self.found.extend(found);
                return Ok(None);
            };
            // Some of them may be locked. Nobody knows of these.
            let unknown: HashSet<&[u8]> = found.iter().map(|(name, _)| name.as_bytes()).collect();
            self.session.release(&unknown);
            return Ok(Some(failure));
        }
    }
}

/// What was answered of names.
#[derive(Default)]
struct Answers<'n> {
    found: Vec<(RefNameBuf, Option<Value>)>,
    is_behind: Option<RefName<'n>>,
    refused: Option<(RefName<'n>, Refusal)>,
}

impl<'n> Answers<'n> {
    fn note(&mut self, name: RefName<'n>, locked: Locked) {
        match locked {
            Locked::Found(value) => self.found.push((name.to_owned(), Some(value))),
            Locked::Missing | Locked::Alone => self.found.push((name.to_owned(), None)),
            Locked::Behind => self.is_behind = Some(name),
            Locked::Refused(refusal) => {
                self.refused = self.refused.take().or(Some((name, refusal)));
            }
        }
    }

    fn has_all(&self) -> bool {
        self.is_behind.is_none() && self.refused.is_none()
    }
}

/// Says that a lock is not waited for.
fn behind() -> Refusal {
    let message = "another process holds a lock that comes before those that are held";
    Refusal::new(Reason::CreateExists, message)
}

/// Makes the error of a lock that was not taken: somebody has it, or a rule speaks against it.
pub(super) fn refused_lock(name: RefName<'_>, refusal: Refusal) -> Error {
    let reason = refusal.reason;
    let error = refusal.into_error(name);
    if reason == Reason::CreateExists {
        return error;
    }
    Error::rejected(Rejection {
        index: 0,
        name: name.to_owned(),
        reason,
        message: error.message().clone(),
    })
}

impl Session for LockedSession<'_> {
    fn lock(
        &mut self,
        names: &[RefName<'_>],
        stop_at_refusal: bool,
        answer: &mut dyn FnMut(usize, Locked),
    ) -> Result<()> {
        let known =
            |name: RefName<'_>| Ok(self.found.get(name.as_bytes()).cloned().map(Locked::from));
        let (fresh, places) = answer_known(names, known, answer)?;
        if fresh.is_empty() {
            return Ok(());
        }
        let answer = &mut |at: usize, locked| answer(places[at], locked);
        self.session.lock(&fresh, stop_at_refusal, answer)
    }

    fn lock_nested(&mut self, name: RefName<'_>) -> Result<bool> {
        self.session.lock_nested(name)
    }

    fn wait_no_more(&mut self) {
        self.session.wait_no_more();
    }

    fn begin_again(&mut self) {
        debug_assert!(false, "who waits no more is refused, and keeps its locks");
        self.session.begin_again();
        self.found.clear();
    }

    fn release(&mut self, names: &HashSet<&[u8]>) {
        let is_left = |name: &&&[u8]| !self.found.contains_key(**name);
        let names: HashSet<&[u8]> = names.iter().filter(is_left).copied().collect();
        self.session.release(&names);
    }

    fn names(&mut self) -> Result<Box<dyn Cursor + '_>> {
        self.session.names()
    }

    fn has_apart(&mut self, name: RefName<'_>) -> Result<bool> {
        self.session.has_apart(name)
    }

    fn first_below_apart(&mut self, name: RefName<'_>) -> Result<Option<RefNameBuf>> {
        self.session.first_below_apart(name)
    }

    fn read(&mut self, name: RefName<'_>) -> Result<Option<Value>> {
        match self.found.get(name.as_bytes()) {
            Some(found) => Ok(found.clone()),
            None => self.session.read(name),
        }
    }

    fn may_have_log(&mut self, name: RefName<'_>) -> Result<bool> {
        self.session.may_have_log(name)
    }

    fn any_packed(&self, names: &[RefName<'_>]) -> Result<Option<bool>> {
        self.session.any_packed(names)
    }

    fn locate<'n>(&self, name: RefName<'n>) -> (Place, RefName<'n>) {
        self.session.locate(name)
    }

    fn rewrite_log(
        &mut self,
        name: RefName<'_>,
        judge: &mut Judge<'_>,
        then: &[LogEntry],
    ) -> Result<bool> {
        self.session.rewrite_log(name, judge, then)
    }

    fn prepare(&mut self, plan: Plan<'_>) -> Result<()> {
        self.session.prepare(plan)
    }

    fn publish(self: Box<Self>) -> Result<Published> {
        self.session.publish()
    }
}
