//! Transactions that are published together.

use crate::backend::Backend;
use crate::backend::group::GroupSession;
use crate::error::{Error, ErrorKind, Rejection, Result};
use crate::hook;
use crate::options::Options;
use crate::system::System;

use super::aliases::say_worktree;
use super::expand::Expansion;
use super::queue::Queue;
use super::{Prepared, Transaction, hand_plan, is_same, may_write, of_another_store, plan};

/// Transactions that become visible and durable together, at the cost of one.
///
/// Each is checked against what those before it do, and stands or falls by itself. Nothing is done
/// before the group is committed: a group that is dropped leaves everything as it was. Where none is
/// expected to be refused, [`Store::prepare_together`](crate::Store::prepare_together) costs less.
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
    backend: &'s dyn Backend,
    options: &'s Options,
    system: &'s dyn System,
}

impl<'s> Transaction<'s> {
    /// Begins a group where this transaction could be, which is empty; `None` where a hook wants to be told of
    /// each when it happens.
    pub(crate) fn begin_group(self) -> Result<Option<Group<'s>>> {
        match hook::present(self.options.hook.as_deref())? {
            Some(_) => Ok(None),
            None => Group::new(self.backend, self.options, self.system).map(Some),
        }
    }
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
            backend,
            options,
            system,
        })
    }

    /// Takes the locks of a transaction, and checks its edits. Returns those that a batch refused.
    ///
    /// # Errors
    /// As for [`Transaction::prepare`], and whenever the transaction cannot be published together
    /// with the others. The group is as it was before. Only when the transaction is committed alone,
    /// after the group, it is certain what becomes of it. `Misuse` for a transaction of another store.
    pub fn add(&mut self, transaction: &Transaction<'_>) -> Result<Vec<Rejection>> {
        if !is_same(self.backend, transaction.backend) {
            return Err(of_another_store());
        }
        self.add_queue(&transaction.queue, transaction.batch)
    }

    pub(super) fn add_queue(&mut self, queue: &Queue, batch: bool) -> Result<Vec<Rejection>> {
        let order = queue.order();
        queue.check_unique(&order)?;
        if say_worktree(queue, &order.edits) {
            // It may name a ref of another transaction of the group, by another name.
            let message = "a transaction that names worktrees is committed alone";
            return Err(Error::new(ErrorKind::Misuse, message));
        }
        let ids = queue.ids().clone();
        let mut expansion = Expansion::new(
            queue,
            ids,
            &order,
            batch,
            self.backend.quirks(),
            self.options.log_refs,
        );
        let session = &mut self.session;
        let added = expansion
            .run(session)
            .and_then(|()| hand_plan(&mut expansion, session, self.options, self.system, false));
        if let Err(error) = added {
            self.session.abandon();
            return Err(error);
        }
        Ok(expansion.rejections)
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
            again: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use crate::layout::Layout;
    use crate::objects::NoObjects;
    use crate::options::LockTimeout;
    use crate::system::System;
    use crate::{Edit, ObjectFormat, ObjectId, Options, RefFormat, RefName, Store, Transaction};
    use refdb_simulation::SimSystem;

    fn store(system: SimSystem) -> Store {
        let mut options = Options::simulated(ObjectFormat::Sha1);
        options.files_ref_lock_timeout = LockTimeout::from_millis(60_000);
        let layout = Layout::main(Path::new("/r"));
        let objects = Arc::new(NoObjects);
        Store::open(Arc::new(system), layout, RefFormat::Files, objects, options).unwrap()
    }

    fn batch<'s>(store: &'s Store, name: &str) -> Transaction<'s> {
        let one = ObjectId::from_hex(&[b'1'; 40]).unwrap();
        let edit = Edit::update(RefName::new(name).unwrap(), one).skip_object_check();
        let mut transaction = store.transaction().batch();
        transaction.add(edit).unwrap();
        transaction
    }

    /// Who has a plan gives nothing back for a new name that comes while the refs are migrated.
    #[test]
    fn a_group_keeps_its_locks_when_a_migration_begins() {
        let system = SimSystem::new(1);
        for dir in ["/r", "/r/refs", "/r/refs/heads", "/r/refdb-migration"] {
            system.create_dir(Path::new(dir)).unwrap();
        }
        let ours = store(system.process(1));
        let mut group = ours.group().unwrap().unwrap();
        assert_eq!(group.add(&batch(&ours, "refs/heads/b")).unwrap(), []);
        let migrates = system.process(2);
        let folder = Path::new("/r/refdb-migration");
        let _guard = migrates.guard_dir(folder).unwrap().unwrap();
        let mut journal = migrates.create_new(&folder.join("journal"), 0o666).unwrap();
        journal.write_all(b"from files\nto reftable\n").unwrap();
        assert!(group.add(&batch(&ours, "refs/heads/a")).is_err());
        let lock = system.lstat(Path::new("/r/refs/heads/b.lock"));
        assert!(lock.is_ok(), "the freeze has to wait for it");
        assert!(
            group
                .close()
                .unwrap()
                .commit()
                .unwrap()
                .rejections
                .is_empty()
        );
        let b = RefName::new("refs/heads/b").unwrap();
        assert!(ours.read(b).unwrap().is_some());
    }

    #[test]
    fn only_the_first_transaction_of_a_group_waits_for_a_lock() {
        let system = SimSystem::new(1);
        for dir in ["/r", "/r/refs", "/r/refs/heads"] {
            system.create_dir(Path::new(dir)).unwrap();
        }
        let (ours, other) = (store(system.process(1)), store(system.process(2)));
        let kept = batch(&other, "refs/heads/a").prepare().unwrap();

        let began = system.now();
        let mut group = ours.group().unwrap().unwrap();
        let refused = group.add(&batch(&ours, "refs/heads/a")).unwrap();
        assert_eq!(refused.len(), 1);
        let waited = system.now() - began;
        assert!(waited.as_secs() >= 60, "{waited:?}");
        drop(group);

        let mut group = ours.group().unwrap().unwrap();
        assert_eq!(group.add(&batch(&ours, "refs/heads/b")).unwrap(), []);
        // To be committed alone, which is no answer yet.
        assert!(group.add(&batch(&ours, "refs/heads/a")).is_err());
        assert_eq!(group.add(&batch(&ours, "refs/heads/c")).unwrap(), []);
        let waited_once = system.now() - began;
        assert!(waited_once.as_secs() < 2 * 60, "{waited_once:?}");
        for prepared in [group.close().unwrap(), kept] {
            assert!(prepared.commit().unwrap().rejections.is_empty());
        }
        for name in ["a", "b", "c"] {
            let name = format!("refs/heads/{name}");
            assert!(ours.read(RefName::new(&name).unwrap()).unwrap().is_some());
        }
    }
}
