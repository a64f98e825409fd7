//! Transactions that are published together.

use crate::backend::Backend;
use crate::backend::group::GroupSession;
use crate::error::{Rejection, Result};
use crate::options::Options;
use crate::system::System;

use super::expand::Expansion;
use super::{Prepared, Transaction, may_write, plan};

/// Transactions that become visible and durable together, at the cost of one.
///
/// Each is checked against what those before it do, and stands or falls by itself until the group
/// is closed. Nothing is done before the group is committed: a group that is dropped leaves
/// everything as it was.
///
/// ```no_run
/// # use refdb::{Edit, RefName};
/// # fn f(store: &refdb::Store, new: refdb::ObjectId) -> refdb::Result<()> {
/// let mut group = store.group()?.expect("no hook wants to see each transaction");
/// for name in ["refs/heads/a", "refs/heads/b"] {
///     let mut transaction = store.transaction();
///     transaction.add(Edit::update(RefName::new(name)?, new))?;
///     group.add(transaction)?;
/// }
/// let outcome = group.close()?.commit()?;
/// # Ok(()) }
/// ```
pub struct Group<'s> {
    session: GroupSession<'s>,
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
        })
    }

    /// Takes the locks of a transaction, and checks its edits. Returns those that a batch refused.
    ///
    /// # Errors
    /// As for [`Transaction::prepare`], and whenever the transactions cannot be published together.
    /// The group is of no use then: drop it, and commit its transactions one by one. Only then it is
    /// certain what becomes of each.
    pub fn add(&mut self, mut transaction: Transaction<'_>) -> Result<Vec<Rejection>> {
        may_write(transaction.options)?;
        let order = transaction.queue.sorted()?;
        let ids = transaction.queue.take_ids();
        let (batch, format) = (transaction.batch, transaction.backend.format());
        let mut expansion = Expansion::new(&transaction.queue, ids, &order, batch, format);
        expansion.run(&mut self.session)?;
        transaction.plan(&mut expansion, &mut self.session)?;
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
