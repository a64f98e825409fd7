//! Transactions: edits checked and applied together.
//!
//! The way of an edit: lock and read the current values, expand (symrefs, `HEAD`'s reflog), check
//! (expected values, name conflicts, duplicates), prepare, publish. The rules stand here once, for
//! both formats; a backend only locks, reads, prepares and publishes.
//!
//! Invariants:
//! 1. Nothing is decided on a value that was not read under its lock.
//! 2. A refused edit leaves no trace: not in its ref, not in the ref that its symref points to, and
//!    not in the reflog of `HEAD`.
//! 3. Name conflicts are found in passes over sorted names, never by a search for each name.
//!
//! ```no_run
//! use refdb::{Edit, Expected, RefName};
//! # fn f(store: &refdb::Store, old: refdb::ObjectId, new: refdb::ObjectId) -> refdb::Result<()> {
//! let mut transaction = store.transaction();
//! let topic = RefName::new("refs/heads/topic")?;
//! transaction.add(Edit::update(topic, new).expecting(Expected::Oid(old)).message(b"move on"))?;
//! let outcome = transaction.commit()?;
//! assert!(outcome.rejections.is_empty(), "only a batch can be refused in parts");
//! # Ok(()) }
//! ```

mod aliases;
mod checks;
mod commits;
mod edit;
mod expand;
mod expected;
mod flags;
mod group;
mod hooks;
mod ids;
mod locked;
mod locks;
pub(crate) mod log;
mod names;
mod plan;
mod queue;
pub(crate) mod rename;
mod retry;
mod sort;
mod together;

pub(crate) use commits::Commits;
pub use edit::{Change, ChangeOf, Edit, Expected, ExpectedOf, LogEdit};
pub use group::Group;
pub use locked::LockedRefs;
pub use log::LogRewrite;
use refdb_names::RefName;
pub use rename::Renaming;
pub(crate) use retry::until_not_overtaken;

use crate::backend::{Backend, Published, Session};
use crate::error::{Error, ErrorKind, Rejection, Result};
use crate::hook;
use crate::objects::Objects;
use crate::options::{InvalidSettings, Options};
use crate::reflog::{Signature, normalize_message};
use crate::system::System;
use expand::Expansion;
use hooks::Announcer;
use queue::Queue;

/// Edits that will be applied together, or not at all.
///
/// In a batch ([`Transaction::batch`]) single edits may be refused while the others go on.
pub struct Transaction<'s> {
    backend: &'s dyn Backend,
    objects: &'s dyn Objects,
    options: &'s Options,
    system: &'s dyn System,
    commits: &'s Commits,
    queue: Queue,
    batch: bool,
    initial: bool,
    at_once: bool,
    /// Whether a lock that somebody else has is waited for.
    waits: bool,
}

/// A transaction whose locks are held and whose edits are checked: only publishing is left.
/// Dropping it aborts.
pub struct Prepared<'s> {
    session: Box<dyn Session + 's>,
    rejections: Vec<Rejection>,
    announcer: Option<Announcer<'s>>,
    initial: bool,
    /// The same transaction once more, where another writer may be faster.
    again: Option<Box<Transaction<'s>>>,
}

/// What a commit came to.
#[derive(Debug, Default)]
#[must_use]
pub struct Outcome {
    /// The refused edits of a batch, in the order in which they were found.
    pub rejections: Vec<Rejection>,
    /// What went wrong after the commit (compaction, clean-up); the refs are as they should be.
    pub afterwards: Vec<Error>,
}

/// Returns whether these refs are those of the same store, or of clones of it.
fn is_same(one: &dyn Backend, other: &dyn Backend) -> bool {
    std::ptr::addr_eq(one, other)
}

/// Returns the error of a transaction that was made by another store than the one that is to commit it.
fn of_another_store() -> Error {
    Error::new(
        ErrorKind::Misuse,
        "a transaction of another store cannot be committed with those of this one",
    )
}

impl<'s> Transaction<'s> {
    pub(crate) fn new(
        backend: &'s dyn Backend,
        objects: &'s dyn Objects,
        options: &'s Options,
        system: &'s dyn System,
        commits: &'s Commits,
    ) -> Self {
        Transaction {
            backend,
            objects,
            options,
            system,
            commits,
            queue: Queue::new(options.object_format),
            batch: false,
            initial: false,
            at_once: false,
            waits: true,
        }
    }

    /// Lets single edits be refused while the others go on.
    ///
    /// ```no_run
    /// # use refdb::{Edit, Expected, RefName};
    /// # fn example(store: &refdb::Store, new: refdb::ObjectId) -> refdb::Result<()> {
    /// let mut transaction = store.transaction().batch();
    /// for name in ["refs/heads/a", "refs/heads/b"] {
    ///     let edit = Edit::update(RefName::new(name)?, new);
    ///     transaction.add(edit.expecting(Expected::Missing))?;
    /// }
    /// for rejection in transaction.commit()?.rejections {
    ///     println!("{rejection:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn batch(mut self) -> Self {
        self.batch = true;
        self
    }

    /// Names `who` in every reflog entry of this transaction, with that moment, in place of the store's
    /// committer; only an entry that has a signature of its own ([`Edit::signed`]) keeps it.
    ///
    /// # Errors
    /// `Misuse` when the name or the address has a byte that no reflog can hold: `<`, `>`, a line feed or a
    /// null byte; or the time zone more than four digits.
    pub fn committer(mut self, who: Signature) -> Result<Self> {
        checks::check_signature(&who, &"a transaction")?;
        self.queue.who = Some(Box::new(who));
        Ok(self)
    }

    /// Gives the reason that reflogs record for every edit that is added from now on and gives none.
    pub fn message(mut self, message: &[u8]) -> Self {
        self.queue.message = normalize_message(message);
        self
    }

    /// Lets no edit that is added from now on bring a reflog entry, as [`Edit::skip_log`] does for one.
    pub fn skip_logs(mut self) -> Self {
        self.queue.skips_logs = true;
        self
    }

    /// Declares that the store is empty and that nobody else writes to it (clone, migration).
    pub fn initial(mut self) -> Self {
        self.initial = true;
        self
    }

    /// Declares that what is prepared will be committed at once, as [`Transaction::commit`] does: a
    /// large transaction may then keep others out of whole directories meanwhile
    /// ([`Options::directory_lock_min`]).
    pub fn at_once(mut self) -> Self {
        self.at_once = true;
        self
    }

    /// Adds an edit, after checking its name and the object of its new value. What the edit borrows
    /// is copied.
    ///
    /// # Errors
    /// `InvalidName` when the name is refused; `Rejected` when the object of the new value is
    /// missing, or no commit where one is needed. The transaction is as it was before, and in a
    /// batch the caller may go on after a rejection.
    #[inline]
    pub fn add(&mut self, edit: Edit<'_>) -> Result<()> {
        self.queue.add(&edit, self.objects)
    }

    /// Returns how many edits were added.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns whether no edit was added.
    pub fn is_empty(&self) -> bool {
        self.queue.len() == 0
    }

    /// Locks refs now, so that what becomes of them can be decided by what they hold.
    ///
    /// # Errors
    /// As for [`LockedRefs::lock`], and for what keeps every transaction from being written.
    pub fn lock<'n>(self, names: impl IntoIterator<Item = RefName<'n>>) -> Result<LockedRefs<'s>> {
        let mut locked = LockedRefs::begin(self)?;
        locked.lock(names)?;
        Ok(locked)
    }

    /// Takes the locks and checks every edit.
    ///
    /// # Errors
    /// `Rejected` for the first refused edit, unless this is a batch; `Locked`, `Corrupt` or `Io`
    /// when the store cannot be read or locked; `Hook` when the hook refuses.
    pub fn prepare(self) -> Result<Prepared<'s>> {
        match self.backend.tries_again() {
            None => self.prepare_in(|backend| backend.begin()),
            Some(_) => self.prepare_to_try(),
        }
    }

    /// Prepares in the session that `begin` gives.
    fn prepare_in(
        mut self,
        begin: impl FnOnce(&'s dyn Backend) -> Result<Box<dyn Session + 's>>,
    ) -> Result<Prepared<'s>> {
        may_write(self.options)?;
        let order = self.queue.order();
        self.queue.arrange(&order);
        self.queue.check_unique(&order)?;
        let mut announcer = Announcer::new(self.options.hook.as_deref(), &self.queue)?;
        if let Some(announcer) = &announcer {
            announcer.preparing()?;
        }
        let mut session = begin(self.backend)?;
        if !self.waits {
            session.wait_no_more();
        }
        // While a hook makes its mind up, others are not to be kept from more than these refs.
        if self.at_once && announcer.is_none() && !self.queue.has_targets() {
            session.lock_directories();
        }
        let ids = self.queue.take_ids();
        let quirks = self.backend.quirks();
        let mut expansion = Expansion::new(
            &self.queue,
            ids,
            &order,
            self.batch,
            quirks,
            self.options.log_refs,
        );
        let expanded = expansion.run(session.as_mut());
        let is_expanded = expanded.is_ok();
        let prepared = expanded.and_then(|()| {
            let (options, system) = (self.options, self.system);
            hand_plan(
                &mut expansion,
                session.as_mut(),
                options,
                system,
                self.initial,
            )
        });
        if let Some(announcer) = &mut announcer {
            match &prepared {
                Ok(()) => announcer.expanded(&expansion, session.as_mut(), self.initial)?,
                Err(error) => {
                    announcer.refused(error, &expansion, session.as_mut(), is_expanded)?;
                }
            }
        }
        prepared?;
        if let Some(announcer) = &announcer
            && let Err(refusal) = announcer.prepared()
        {
            drop(session);
            announcer.aborted()?;
            return Err(refusal);
        }
        Ok(Prepared {
            session,
            rejections: expansion.rejections,
            announcer,
            initial: self.initial,
            again: None,
        })
    }

    /// Gives the edits up, and tells the hook; dropping the transaction tells nobody.
    ///
    /// # Errors
    /// `Hook` when the hook cannot be called.
    pub fn abort(self) -> Result<()> {
        match Announcer::new(self.options.hook.as_deref(), &self.queue)? {
            Some(announcer) => announcer.aborted(),
            None => Ok(()),
        }
    }

    /// Prepares and commits. What several threads commit at the same time is written together, at
    /// the cost of one transaction.
    ///
    /// # Errors
    /// As for [`Transaction::prepare`] and [`Prepared::commit`].
    pub fn commit(self) -> Result<Outcome> {
        if self.initial || hook::present(self.options.hook.as_deref())?.is_some() {
            return self.prepare()?.commit();
        }
        self.commits.commit(self.at_once())
    }
}

/// Checks what was expanded, and hands the session the plan that it comes to.
fn hand_plan(
    expansion: &mut Expansion<'_>,
    session: &mut dyn Session,
    options: &Options,
    system: &dyn System,
    initial: bool,
) -> Result<()> {
    names::check(expansion, session, initial)?;
    expansion.release_refused(session);
    let ends = plan::symref_ends(expansion, session)?;
    session.prepare(plan::plan(expansion, &ends, options, system, initial))
}

/// Says why nothing may be written, if that is so.
pub(crate) fn may_write(options: &Options) -> Result<()> {
    if options.quarantined {
        return Err(Error::new(
            ErrorKind::Misuse,
            "ref updates forbidden inside quarantine environment",
        ));
    }
    InvalidSettings::check(options.invalid.locking.as_ref())
}

impl Prepared<'_> {
    /// Returns the edits of a batch that were refused.
    pub fn rejections(&self) -> &[Rejection] {
        &self.rejections
    }

    /// Makes every edit visible and durable.
    ///
    /// On a [shared place](crate::shared) another writer may have been faster: then every edit is checked
    /// again. Only one that does not go with what is there by now is refused.
    ///
    /// # Errors
    /// `Io` when the system refuses a write; `Hook` when the hook refuses to have a store filled for the
    /// first time. On a shared place as for [`Transaction::prepare`], too; `Overtaken` when others were
    /// faster for too long, or where the edits depend on what was read ([`LockedRefs`]); `Unknown`
    /// when it was not to be found out whether it is committed.
    pub fn commit(mut self) -> Result<Outcome> {
        match self.again.take() {
            None => self.commit_once(),
            Some(again) => again.commit_prepared(self),
        }
    }

    /// Makes every edit visible and durable.
    ///
    /// # Errors
    /// `Overtaken` as soon as another writer was faster.
    fn commit_once(self) -> Result<Outcome> {
        if let (Some(announcer), true) = (&self.announcer, self.initial) {
            announcer.publishing_initial()?;
        }
        match self.session.publish()? {
            Published::Done { mut afterwards } => {
                if let Some(announcer) = &self.announcer {
                    // The refs are as they should be, whatever becomes of this call.
                    afterwards.extend(announcer.committed(self.initial).err());
                }
                Ok(Outcome {
                    rejections: self.rejections,
                    afterwards,
                })
            }
            Published::Moved => {
                if let Some(announcer) = &self.announcer {
                    announcer.aborted()?;
                }
                Err(Error::overtaken())
            }
        }
    }

    /// Releases every lock, leaves everything as it was, and tells the hook; dropping does the same
    /// and tells nobody.
    ///
    /// # Errors
    /// `Hook` when the hook cannot be called.
    pub fn abort(self) -> Result<()> {
        drop(self.session);
        match &self.announcer {
            Some(announcer) => announcer.aborted(),
            None => Ok(()),
        }
    }
}
