//! Several transactions as one.
//!
//! Names that are locked, read and checked in one pass over all of them cost a fraction of what each
//! costs by itself. So transactions that arrive together are tried as one transaction first. Only where
//! that is refused is it asked which of them is, one after the other (`group.rs`).
//!
//! Invariants:
//! 1. If the one is prepared, each of them would have been, one after the other, and would leave the
//!    same: every ref is named once, no symref changes where a name leads, and nothing is made in the place
//!    of what is deleted.
//! 2. Nothing is waited for: who holds up one of them does not hold up the others.

use super::aliases::say_worktree;
use super::queue::Queue;
use super::{Prepared, Transaction, is_same, of_another_store};
use crate::error::Result;
use crate::options::Options;

/// Returns the edits of all transactions in one queue, if they can be one transaction.
fn join<'q>(options: &Options, queues: impl Iterator<Item = &'q Queue>) -> Option<Queue> {
    let mut joined = Queue::new(options.object_format);
    for queue in queues {
        if !joined.append(queue) {
            return None;
        }
    }
    let order = joined.order();
    let is_one = joined.is_of_one_kind() && order.distinct && !say_worktree(&joined, &order.edits);
    is_one.then_some(joined)
}

impl<'s> Transaction<'s> {
    /// Prepares, in this transaction, which is empty, all that `transactions` are to do; `None` if it is
    /// not certain that each of them could be committed, one after the other.
    ///
    /// # Errors
    /// `Misuse` if one of them is of another store.
    pub(crate) fn together<'t>(
        self,
        transactions: impl Iterator<Item = &'t Transaction<'s>>,
    ) -> Result<Option<Prepared<'s>>>
    where
        's: 't,
    {
        let transactions: Vec<_> = transactions.collect();
        if !transactions
            .iter()
            .all(|it| is_same(it.backend, self.backend))
        {
            return Err(of_another_store());
        }
        Ok(self.join_queues(transactions.iter().map(|transaction| &transaction.queue)))
    }

    /// As [`Transaction::together`], of what the transactions are made of.
    pub(super) fn join_queues<'q>(
        mut self,
        queues: impl Iterator<Item = &'q Queue>,
    ) -> Option<Prepared<'s>> {
        self.queue = join(self.options, queues)?;
        self.waits = false;
        self.at_once().prepare().ok()
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
    use crate::{Edit, ObjectFormat, ObjectId, Options, RefFormat, RefName, Store};
    use refdb_simulation::SimSystem;

    fn store(system: &SimSystem, format: RefFormat) -> Store {
        for dir in ["/r", "/r/refs", "/r/refs/heads", "/r/reftable"] {
            let _ = system.create_dir(Path::new(dir));
        }
        let mut options = Options::simulated(ObjectFormat::Sha1);
        options.files_ref_lock_timeout = LockTimeout::from_millis(60_000);
        options.reftable.lock_timeout = LockTimeout::from_millis(60_000);
        let system = Arc::new(system.clone());
        let layout = Layout::main(Path::new("/r"));
        Store::open(system, layout, format, Arc::new(NoObjects), options).unwrap()
    }

    fn name(text: &str) -> RefName<'_> {
        RefName::new(text).unwrap()
    }

    fn oid(digit: u8) -> ObjectId {
        ObjectId::from_hex(&[digit; 40]).unwrap()
    }

    fn set<'n>(text: &'n str, digit: u8) -> Edit<'n> {
        Edit::update(name(text), oid(digit)).skip_object_check()
    }

    /// Returns whether transactions of one edit each are prepared as one, which is committed then.
    fn are_one(store: &Store, edits: Vec<Edit<'_>>) -> bool {
        let mut transactions = Vec::new();
        for edit in edits {
            let mut transaction = store.transaction();
            transaction.add(edit).unwrap();
            transactions.push(transaction);
        }
        match store.prepare_together(&transactions).unwrap() {
            Some(prepared) => prepared.commit().unwrap().afterwards.is_empty(),
            None => false,
        }
    }

    #[test]
    fn what_nobody_refuses_is_one_transaction() {
        for format in [RefFormat::Files, RefFormat::Reftable] {
            let store = store(&SimSystem::new(1), format);
            let edits = vec![
                set("refs/heads/b", b'1').message(b"one"),
                set("refs/heads/a", b'2').message(b"two"),
                set("refs/heads/c", b'1').message(b"one"),
            ];
            assert!(are_one(&store, edits), "{format:?}");
            for (text, digit, message) in [("a", b'2', "two"), ("b", b'1', "one")] {
                let text = format!("refs/heads/{text}");
                let found = store.resolve(name(&text)).unwrap().unwrap();
                assert_eq!(found.oid, oid(digit), "{format:?}");
                let log = store.log(name(&text), crate::LogOrder::NewestFirst);
                assert_eq!(log.unwrap().unwrap()[0].message, message, "{format:?}");
            }
            let deleted = ["a", "b", "c"].map(|text| format!("refs/heads/{text}"));
            let deletes = deleted.iter().map(|text| Edit::delete(name(text)));
            assert!(are_one(&store, deletes.collect()), "{format:?}");
            assert!(store.refs().unwrap().next().unwrap().is_none());
        }
    }

    #[test]
    fn what_depends_on_the_order_is_not_one_transaction() {
        for format in [RefFormat::Files, RefFormat::Reftable] {
            let system = SimSystem::new(1);
            let store = store(&system, format);
            assert!(are_one(&store, vec![set("refs/heads/a", b'1')]));
            let target = name("refs/heads/a");
            let expecting = crate::Expected::Oid(oid(b'2'));
            for edits in [
                vec![set("refs/heads/b", b'1'), set("refs/heads/b", b'2')],
                vec![set("refs/heads/b", b'1'), set("refs/heads/b/c", b'2')],
                vec![set("refs/heads/b", b'1'), Edit::delete(target)],
                vec![Edit::delete(target), set("refs/heads/a/b", b'1')],
                vec![
                    Edit::symbolic(name("refs/heads/s"), target),
                    set("refs/heads/b", b'1'),
                ],
                vec![
                    set("refs/heads/b", b'1'),
                    set("refs/heads/a", b'1').expecting(expecting),
                ],
            ] {
                assert!(!are_one(&store, edits), "{format:?}");
                assert!(store.read(name("refs/heads/b")).unwrap().is_none());
            }
        }
    }

    #[test]
    fn nobody_is_waited_for() {
        for format in [RefFormat::Files, RefFormat::Reftable] {
            let system = SimSystem::new(1);
            let other = store(&system.process(2), format);
            let mut kept = other.transaction();
            kept.add(set("refs/heads/b", b'1')).unwrap();
            let kept = kept.prepare().unwrap();
            let ours = store(&system.process(1), format);
            let began = system.now();
            let edits = vec![set("refs/heads/a", b'1'), set("refs/heads/b", b'1')];
            assert!(!are_one(&ours, edits), "{format:?}");
            assert!((system.now() - began).as_secs() < 1, "{format:?}");
            drop(kept);
        }
    }
}
