//! Several plans as one: transactions that become visible and durable together.
//!
//! Each is checked against what those before it leave, as if it had been published already; the
//! store below gets one plan in the end, and pays for one write.
//!
//! Invariants:
//! 1. The one plan leaves what the plans would leave one after the other. What a single plan cannot
//!    say is refused (a name that is deleted and used again, reflogs changed as a whole): then they
//!    have to be published one by one.
//! 2. A name is locked once, and stays locked until all is published. Only the first plan waits for
//!    its locks, and gives them back if it must: a later one that has to is no part of the group.
//! 3. A name that was deleted counts as taken when new names are checked against it: a ref cannot
//!    take the place of a directory before that is empty.

use std::collections::btree_map::Range;
use std::collections::{self, BTreeMap};
use std::ops::Bound;

use hashbrown::{HashMap, HashSet};
use refdb_names::internals::owned_from_disk;
use refdb_names::{ObjectId, Target};
use reftable::short::has_prefix;

use super::cursor::{Cursor, Look, OverCursor, RefRecord};
use super::{
    Judge, Locked, LogWrite, NewValue, Plan, Published, RefName, RefNameBuf, Session, Value, Write,
    answer_known,
};
use crate::error::{Error, ErrorKind, Reason, Result};
use crate::layout::Place;
use crate::reflog::{LogEntry, Signature};

/// A session that gathers plans.
pub(crate) struct GroupSession<'b> {
    session: Box<dyn Session + 'b>,
    committer: Box<dyn Fn() -> Result<Signature> + Send + Sync + 'b>,
    /// The names whose locks are held, with what was found under them.
    locked: HashMap<RefNameBuf, Option<Value>>,
    /// Names that were locked and released again.
    released: HashSet<RefNameBuf>,
    /// Names that were locked for the plan that is to come.
    fresh: HashSet<RefNameBuf>,
    /// What was read without a lock. The group is one moment: it is not read again.
    read: HashMap<RefNameBuf, Option<Value>>,
    /// What the plans leave, by name; `None` where the ref is deleted.
    written: BTreeMap<RefNameBuf, Option<Value>>,
    logs: Vec<LogEntryOf>,
    /// The reflogs that have an entry among these.
    logged: HashSet<RefNameBuf>,
    /// Whether there is a plan whose locks are kept.
    has_plans: bool,
}

/// A new reflog entry, owned.
struct LogEntryOf {
    name: RefNameBuf,
    old: ObjectId,
    new: ObjectId,
    message: Vec<u8>,
    who: Option<Signature>,
    create: bool,
}

impl<'b> GroupSession<'b> {
    /// Begins to gather plans for `session`. `committer` says who is named in entries that name
    /// nobody.
    pub(crate) fn new(
        session: Box<dyn Session + 'b>,
        committer: impl Fn() -> Result<Signature> + Send + Sync + 'b,
    ) -> Self {
        GroupSession {
            session,
            committer: Box::new(committer),
            locked: HashMap::new(),
            released: HashSet::new(),
            fresh: HashSet::new(),
            read: HashMap::new(),
            written: BTreeMap::new(),
            logs: Vec::new(),
            logged: HashSet::new(),
            has_plans: false,
        }
    }

    /// Gives the one plan to the session below: only publishing that is left.
    ///
    /// # Errors
    /// As for [`Session::prepare`]. Nothing is visible then, and the locks are released.
    pub(crate) fn close(self) -> Result<Box<dyn Session + 'b>> {
        let GroupSession {
            mut session,
            committer,
            written,
            logs,
            ..
        } = self;
        let writes = written.iter().map(|(name, value)| Write {
            name: name.as_name(),
            value: match value {
                None => NewValue::Deleted,
                Some(Value { target, peeled, .. }) => match target {
                    Target::Direct(oid) => NewValue::Direct {
                        oid,
                        peeled: peeled.as_ref(),
                    },
                    Target::Symbolic(target) => NewValue::Symbolic(target.as_name()),
                },
            },
        });
        let entries = logs.iter().map(|entry| LogWrite {
            name: entry.name.as_name(),
            old: entry.old,
            new: entry.new,
            message: &entry.message,
            who: entry.who.as_ref(),
            create: entry.create,
        });
        session.prepare(Plan::of(writes.collect(), entries.collect(), committer))?;
        Ok(session)
    }

    /// Gives up the plan that was to come: what was locked for it is released.
    pub(crate) fn abandon(&mut self) {
        let fresh = std::mem::take(&mut self.fresh);
        let names = fresh.iter().map(RefNameBuf::as_bytes).collect();
        self.session.release(&names);
        for name in fresh {
            self.locked.remove(name.as_bytes());
            self.released.insert(name);
        }
    }

    /// Returns what is known of a name: its value as the plans leave it.
    fn known(&self, name: RefName<'_>) -> Result<Option<Locked>> {
        let name = name.as_bytes();
        // What is written was locked before, and most names are new.
        let Some(found) = self.locked.get(name) else {
            return match self.released.contains(name) {
                true => Err(not_one_plan()),
                false => Ok(None),
            };
        };
        let found = match self.written.get(name) {
            Some(None) => return Err(not_one_plan()),
            Some(written) => written,
            None => found,
        };
        Ok(Some(found.clone().into()))
    }
}

/// Says that plans cannot be published together. Whoever gathers them publishes them one by one
/// then, so that nobody else gets to see this.
fn not_one_plan() -> Error {
    Error::new(ErrorKind::Misuse, "these transactions are not one write")
}

impl Session for GroupSession<'_> {
    fn lock(
        &mut self,
        names: &[RefName<'_>],
        stop_at_refusal: bool,
        answer: &mut dyn FnMut(usize, Locked),
    ) -> Result<()> {
        let (fresh, places) = answer_known(names, |name| self.known(name), answer)?;
        if fresh.is_empty() {
            return Ok(());
        }
        let mut is_held_up = false;
        let (locked, released) = (&mut self.locked, &mut self.released);
        let new = &mut self.fresh;
        self.session
            .lock(&fresh, stop_at_refusal, &mut |index, found| {
                let found = match found {
                    // An earlier plan may bring one.
                    Locked::Alone => Locked::Missing,
                    found => found,
                };
                let name = fresh[index].to_owned();
                match &found {
                    Locked::Found(found) => {
                        new.insert(name.clone());
                        locked.insert(name, Some(found.clone()));
                    }
                    Locked::Missing | Locked::Alone => {
                        new.insert(name.clone());
                        locked.insert(name, None);
                    }
                    Locked::Refused(refusal) => {
                        is_held_up |= refusal.reason == Reason::CreateExists;
                        released.insert(name);
                    }
                    Locked::Behind => is_held_up = true,
                }
                answer(places[index], found);
            })?;
        // What another process keeps now is to be waited for alone.
        match is_held_up && self.has_plans {
            true => Err(not_one_plan()),
            false => Ok(()),
        }
    }

    fn wait_no_more(&mut self) {
        self.session.wait_no_more();
    }

    fn begin_again(&mut self) {
        // Whoever has a plan waits no more, and is refused.
        debug_assert!(!self.has_plans, "the locks of a plan are kept");
        self.session.begin_again();
        self.locked.clear();
        self.released.clear();
        self.fresh.clear();
        self.read.clear();
    }

    fn release(&mut self, names: &collections::HashSet<&[u8]>) {
        // What an earlier plan has locked is still needed.
        let names: collections::HashSet<&[u8]> = names
            .iter()
            .copied()
            .filter(|&name| self.fresh.contains(name))
            .collect();
        self.session.release(&names);
        for name in names {
            self.locked.remove(name);
            self.released.insert(owned_from_disk(name));
        }
    }

    fn names(&mut self) -> Result<Box<dyn Cursor + '_>> {
        let lower = self.session.names()?;
        let upper = WrittenCursor {
            written: &self.written,
            rest: self.written.range::<[u8], _>(..),
            present: None,
            prefix: Vec::new(),
        };
        Ok(Box::new(OverCursor::new(Box::new(upper), lower, |_| false)))
    }

    // What the plans give values to is met by the cursor of `names`, whatever its name is.

    fn has_apart(&mut self, name: RefName<'_>) -> Result<bool> {
        self.session.has_apart(name)
    }

    fn first_below_apart(&mut self, name: RefName<'_>) -> Result<Option<RefNameBuf>> {
        self.session.first_below_apart(name)
    }

    fn read(&mut self, name: RefName<'_>) -> Result<Option<Value>> {
        let bytes = name.as_bytes();
        let known = self.written.get(bytes).or_else(|| self.locked.get(bytes));
        if let Some(known) = known.or_else(|| self.read.get(bytes)) {
            return Ok(known.clone());
        }
        let found = self.session.read(name)?;
        self.read.insert(name.to_owned(), found.clone());
        Ok(found)
    }

    fn any_packed(&self, names: &[RefName<'_>]) -> Result<Option<bool>> {
        self.session.any_packed(names)
    }

    fn locate<'n>(&self, name: RefName<'n>) -> (Place, RefName<'n>) {
        self.session.locate(name)
    }

    fn rewrite_log(
        &mut self,
        _name: RefName<'_>,
        _judge: &mut Judge<'_>,
        _then: &[LogEntry],
    ) -> Result<bool> {
        Err(not_one_plan())
    }

    fn prepare(&mut self, plan: Plan<'_>) -> Result<()> {
        if plan.initial || plan.renames || !plan.log_changes.is_empty() {
            return Err(not_one_plan());
        }
        // Entries of before a deletion would be kept.
        let is_used = |name: &[u8]| self.written.contains_key(name) || self.logged.contains(name);
        let mut deleted = plan
            .writes()
            .filter(|write| matches!(write.value, NewValue::Deleted));
        if deleted.any(|write| is_used(write.name.as_bytes())) {
            return Err(not_one_plan());
        }
        for Write { name, value } in plan.writes() {
            let value = match value {
                NewValue::Direct { oid, peeled } => Some((Target::Direct(*oid), peeled.copied())),
                NewValue::Symbolic(target) => Some((Target::Symbolic(target.to_owned()), None)),
                NewValue::Deleted => None,
            };
            let value = value.map(|(target, peeled)| Value {
                target,
                peeled,
                packed: false,
            });
            self.written.insert(name.to_owned(), value);
        }
        for (_, entry) in plan.logs() {
            let LogWrite {
                name,
                old,
                new,
                message,
                who,
                create,
            } = entry;
            if !self.logged.contains(name.as_bytes()) {
                self.logged.insert(name.to_owned());
            }
            self.logs.push(LogEntryOf {
                name: name.to_owned(),
                old,
                new,
                message: message.to_vec(),
                who: who.cloned(),
                create,
            });
        }
        self.fresh.clear();
        if !self.has_plans {
            self.has_plans = true;
            self.session.wait_no_more();
        }
        Ok(())
    }

    fn publish(self: Box<Self>) -> Result<Published> {
        self.close()?.publish()
    }
}

/// A cursor over the names that the plans give values to. Deleted ones are left to the store below.
struct WrittenCursor<'g> {
    written: &'g BTreeMap<RefNameBuf, Option<Value>>,
    rest: Range<'g, RefNameBuf, Option<Value>>,
    present: Option<(&'g RefNameBuf, &'g Value)>,
    prefix: Vec<u8>,
}

impl Cursor for WrittenCursor<'_> {
    fn seek(&mut self, name: &[u8], prefix: &[u8]) -> Result<()> {
        // Owned, it is compared as names are, and not by a call for each.
        let from = Bound::Included(owned_from_disk(name.max(prefix)));
        self.rest = self.written.range((from, Bound::Unbounded));
        self.prefix = prefix.to_vec();
        Ok(())
    }

    fn advance(&mut self) -> Result<bool> {
        let mut valued = self
            .rest
            .by_ref()
            .filter_map(|(name, value)| Some((name, value.as_ref()?)));
        let prefix = &self.prefix;
        self.present = valued
            .next()
            .filter(|(name, _)| has_prefix(name.as_bytes(), prefix));
        Ok(self.present.is_some())
    }

    fn record(&self) -> RefRecord<'_> {
        let (name, found) = self
            .present
            .expect("only called when advance returned true");
        RefRecord {
            name: name.as_name(),
            target: found.target.as_ref(),
            peeled: found.peeled,
            packed: false,
            broken: false,
            look: Look::None,
        }
    }
}
