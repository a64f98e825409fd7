//! Transactions that are published together.

use crate::backend::group::GroupSession;
use crate::backend::{Backend, RefFormat};
use crate::error::{Rejection, Result};
use crate::options::Options;
use crate::system::System;

use super::expand::Expansion;
use super::queue::Queue;
use super::{Prepared, Transaction, hand_plan, may_write, plan};

/// Transactions that become visible and durable together, at the cost of one.
///
/// Each is checked against what those before it do, and stands or falls by itself. Nothing is done
/// before the group is committed: a group that is dropped leaves everything as it was.
///
/// ```no_run
/// # use refdb::{Edit, RefName};
/// # fn f(store: &refdb::Store, new: refdb::ObjectId) -> refdb::Result<()> {
/// let mut group = store.group()?.expect("no hook wants to see each transaction");
/// for name in ["refs/heads/a", "refs/heads/b"] {
///     let mut transaction = store.transaction();
///     transaction.add(Edit::update(RefName::new(name)?, new))?;
///     group.add(&transaction)?;
/// }
/// let outcome = group.close()?.commit()?;
/// # Ok(()) }
/// ```
pub struct Group<'s> {
    session: GroupSession<'s>,
    format: RefFormat,
    options: &'s Options,
    system: &'s dyn System,
}

impl<'s> Group<'s> {
    pub(crate) fn new(
        backend: &'s dyn Backend,
        options: &'s Options,
        system: &'s dyn System,
    ) -> Result<Self> {
        may_write(options)?;
        let committer = move || plan::committer(options, system);
        Ok(Group {
            session: GroupSession::new(backend.begin()?, committer),
            format: backend.format(),
            options,
            system,
        })
    }

    /// Takes the locks of a transaction, and checks its edits. Returns those that a batch refused.
    ///
    /// # Errors
    /// As for [`Transaction::prepare`], and whenever the transaction cannot be published together
    /// with the others. The group is as it was before. Only when the transaction is committed alone,
    /// after the group, it is certain what becomes of it.
    pub fn add(&mut self, transaction: &Transaction<'_>) -> Result<Vec<Rejection>> {
        self.add_queue(&transaction.queue, transaction.batch)
    }

    pub(super) fn add_queue(&mut self, queue: &Queue, batch: bool) -> Result<Vec<Rejection>> {
        let order = queue.order();
        queue.check_unique(&order)?;
        let ids = queue.ids().clone();
        let mut expansion = Expansion::new(queue, ids, &order, batch, self.format);
        let session = &mut self.session;
        let added = expansion
            .run(session)
            .and_then(|()| hand_plan(&mut expansion, session, self.options, self.system, false));
        if let Err(error) = added {
            self.session.abandon();
            return Err(error);
        }
        Ok(expansion.into_rejections())
    }

    /// Writes all that can be written without becoming visible.
    ///
    /// # Errors
    /// `Io` when the system refuses that. As before, the transactions are to be committed one by
    /// one then.
    pub fn close(self) -> Result<Prepared<'s>> {
        Ok(Prepared {
            session: self.session.close()?,
            rejections: Vec::new(),
            announcer: None,
            initial: false,
        })
    }
}
