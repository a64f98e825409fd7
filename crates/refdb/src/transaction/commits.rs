//! Commits of several threads: whoever comes while another is writing waits, and those who wait are
//! written together.
//!
//! One thread leads. When it is done it hands over to one of those who wait, and that one commits
//! what all of them brought.
//!
//! Invariants:
//! 1. While somebody waits, somebody leads.
//! 2. Nobody is answered before the transaction is durable, or has failed by itself: what a group
//!    cannot take is committed alone after it.
//! 3. Whoever leads or waits is a thread of this process: a child after `fork` begins with nobody.

use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use super::group::Group;
use super::queue::Queue;
use super::{Outcome, Transaction, until_not_overtaken};
use crate::backend::Backend;
use crate::error::{Error, ErrorKind, Rejection, Result};
use crate::system::{System, unpoisoned};

/// So many that were committed together, in so long a time, come back all at once. Whoever leads next lets them: who
/// is late waits for all the others once more.
const MANY: usize = 32;
const LONG: Duration = Duration::from_millis(20);

/// It looks again after this part of that time, and takes what there is after that one.
const LOOKS: u32 = 32;
const PATIENCE: u32 = 8;

/// The commits of one store, from all threads.
#[derive(Default)]
pub(crate) struct Commits {
    state: Mutex<State>,
}

impl std::fmt::Debug for Commits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Commits").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct State {
    /// The process whose threads these are.
    process: u32,
    is_led: bool,
    /// Which thread leads; `None` while it is handed over.
    leader: Option<ThreadId>,
    waiting: Vec<Waiting>,
    /// How many were committed together last, and how long that took.
    last: (usize, Duration),
}

impl State {
    /// Lets this thread lead, unless another one does; returns whether it does.
    fn lead(&mut self) -> Result<bool> {
        let this = Some(thread::current().id());
        if !mem::replace(&mut self.is_led, true) {
            self.leader = this;
            return Ok(true);
        }
        if self.leader == this {
            let message =
                "a transaction cannot be committed by what is called while another one is";
            return Err(Error::new(ErrorKind::Misuse, message));
        }
        Ok(false)
    }
}

/// A transaction that waits, and where its thread looks for news.
struct Waiting {
    job: Job,
    seat: Taken,
}

/// A seat that somebody waits in until it is told what became of the transaction: at the latest when
/// this is dropped, should the thread that leads have panicked.
struct Taken(Arc<Seat>);

impl Drop for Taken {
    fn drop(&mut self) {
        let mut news = unpoisoned(&self.0.news);
        if let News::None | News::Lead = *news {
            let message = "the thread that committed this transaction for others panicked";
            *news = News::Done(Err(Error::new(ErrorKind::Io, message)));
            self.0.changed.notify_one();
        }
    }
}

/// What a transaction is made of, without the store.
struct Job {
    queue: Queue,
    batch: bool,
}

#[derive(Default)]
struct Seat {
    news: Mutex<News>,
    changed: Condvar,
}

#[derive(Default)]
enum News {
    #[default]
    None,
    /// This thread is to lead.
    Lead,
    /// The transaction is done.
    Done(Result<Outcome>),
}

impl Seat {
    fn tell(&self, news: News) {
        *unpoisoned(&self.news) = news;
        self.changed.notify_one();
    }

    fn wait(&self) -> News {
        let mut news = unpoisoned(&self.news);
        while let News::None = *news {
            let waited = self.changed.wait(news);
            news = waited.unwrap_or_else(PoisonError::into_inner);
        }
        mem::take(&mut news)
    }
}

/// Leads, until it is dropped.
struct Lead<'c>(&'c Commits);

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        let mut state = unpoisoned(&self.0.state);
        state.leader = None;
        match state.waiting.first() {
            Some(next) => next.seat.0.tell(News::Lead),
            None => state.is_led = false,
        }
    }
}

impl Commits {
    /// Leads, after the lead was handed over to this thread.
    fn take_lead(&self) -> Lead<'_> {
        unpoisoned(&self.state).leader = Some(thread::current().id());
        Lead(self)
    }

    /// Takes what waits, as soon as no more is coming.
    fn take(&self, backend: &dyn Backend, system: &dyn System) -> Vec<Waiting> {
        let mut state = unpoisoned(&self.state);
        let (many, took) = state.last;
        // What is far away is what machines share.
        if backend.tries_again().is_some() && many >= MANY && took >= LONG {
            let begun = system.elapsed();
            let mut before = 0;
            // Those who come may be kept from it for a moment, and those who do not come are not waited for long.
            while (state.waiting.len() > before || state.waiting.len() < many)
                && system.elapsed().saturating_sub(begun) < took / PATIENCE
            {
                before = state.waiting.len();
                drop(state);
                system.sleep(took / LOOKS);
                state = unpoisoned(&self.state);
            }
        }
        mem::take(&mut state.waiting)
    }

    /// Returns the state as it is in the process of that number.
    fn state(&self, process: u32) -> MutexGuard<'_, State> {
        let mut state = unpoisoned(&self.state);
        if state.process != process {
            let parents = mem::take(&mut *state);
            // To drop them would tell threads that there are none of here.
            mem::forget(parents);
            state.process = process;
        }
        state
    }

    /// Commits a transaction, together with those of other threads if there are any.
    ///
    /// # Errors
    /// As for [`Transaction::prepare`] and [`super::Prepared::commit`]; `Misuse` from within a commit of this
    /// thread, which would wait for itself.
    pub(super) fn commit(&self, transaction: Transaction<'_>) -> Result<Outcome> {
        let mut state = self.state(transaction.system.process_id());
        if state.lead()? {
            drop(state);
            let _lead = Lead(self);
            return transaction.prepare()?.commit();
        }
        let seat = Arc::new(Seat::default());
        let Transaction {
            backend,
            objects,
            options,
            system,
            commits,
            queue,
            batch,
            ..
        } = transaction;
        state.waiting.push(Waiting {
            job: Job { queue, batch },
            seat: Taken(Arc::clone(&seat)),
        });
        drop(state);
        if let News::Done(done) = seat.wait() {
            return done;
        }
        let lead = self.take_lead();
        let mut waiting = self.take(backend, system);
        let (many, begun) = (waiting.len(), system.elapsed());
        let alone = |job: Job| Transaction {
            backend,
            objects,
            options,
            system,
            commits,
            queue: job.queue,
            batch: job.batch,
            initial: false,
            at_once: true,
            waits: true,
        };
        let begin = || Group::new(backend, options, system).ok();
        let together = || {
            let queue = Queue::new(options.object_format);
            alone(Job {
                queue,
                batch: false,
            })
        };
        let done = until_not_overtaken(backend, system, || {
            let some = mem::take(&mut waiting);
            let overtaken = commit_all(together(), begin, some, |job| {
                alone(job).prepare()?.commit()
            });
            waiting = overtaken;
            match waiting.is_empty() {
                true => Ok(()),
                false => Err(Error::overtaken()),
            }
        });
        if let Err(error) = done {
            for Waiting { seat, .. } in waiting {
                seat.0.tell(News::Done(Err(error.clone())));
            }
        }
        unpoisoned(&self.state).last = (many, system.elapsed().saturating_sub(begun));
        drop(lead);
        match seat.wait() {
            News::Done(done) => done,
            News::None | News::Lead => unreachable!("its own transaction was among them"),
        }
    }
}

/// Commits what waits, as one transaction or as a group as far as that is possible, and tells everybody;
/// returns those who were overtaken by another writer, and have to be tried again. `together` has no edit
/// yet.
fn commit_all<'s>(
    together: Transaction<'s>,
    begin: impl Fn() -> Option<Group<'s>>,
    waiting: Vec<Waiting>,
    alone: impl Fn(Job) -> Result<Outcome>,
) -> Vec<Waiting> {
    let mut singles = Vec::new();
    let is_alone = waiting.len() == 1;
    let queues = waiting.iter().map(|one| &one.job.queue);
    if !is_alone && let Some(prepared) = together.join_queues(queues) {
        let members = waiting.into_iter().map(|one| (one, Vec::new()));
        return tell_all(prepared.commit_once(), members.collect());
    }
    let mut overtaken = Vec::new();
    // What keeps a group from being made is told to each.
    match begin().filter(|_| !is_alone) {
        None => singles = waiting,
        Some(mut group) => {
            let mut together = Vec::new();
            for one in waiting {
                match group.add_queue(&one.job.queue, one.job.batch) {
                    Ok(rejections) => together.push((one, rejections)),
                    Err(_) => singles.push(one),
                }
            }
            match group.close() {
                Ok(prepared) => overtaken = tell_all(prepared.commit_once(), together),
                // One of them may be the reason, and then it is so alone.
                Err(_) => {
                    let together = together.into_iter().map(|(one, _)| one);
                    singles = together.chain(singles).collect();
                }
            }
        }
    }
    for Waiting { job, seat } in singles {
        seat.0.tell(News::Done(alone(job)));
    }
    overtaken
}

/// Tells what became of a group to each of its members; returns them if it was overtaken.
fn tell_all(done: Result<Outcome>, members: Vec<(Waiting, Vec<Rejection>)>) -> Vec<Waiting> {
    match done {
        Err(error) if error.kind() == ErrorKind::Overtaken => {
            return members.into_iter().map(|(waiting, _)| waiting).collect();
        }
        Ok(Outcome { afterwards, .. }) => {
            let mut afterwards = Some(afterwards);
            for (Waiting { seat, .. }, rejections) in members {
                seat.0.tell(News::Done(Ok(Outcome {
                    rejections,
                    afterwards: afterwards.take().unwrap_or_default(),
                })));
            }
        }
        Err(error) => {
            for (Waiting { seat, .. }, _) in members {
                seat.0.tell(News::Done(Err(error.clone())));
            }
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::layout::Layout;
    use crate::objects::NoObjects;
    use crate::options::LockTimeout;
    use crate::system::OsSystem;
    use crate::{Edit, ObjectFormat, ObjectId, Options, RefFormat, RefName, Store};

    fn store(dir: &Path, format: RefFormat) -> Store {
        let mut options = Options::new(ObjectFormat::Sha1);
        options.files_ref_lock_timeout = LockTimeout::from_millis(60_000);
        options.reftable.lock_timeout = LockTimeout::from_millis(60_000);
        let layout = Layout::main(dir);
        Store::open(
            Arc::new(OsSystem::new()),
            layout,
            format,
            Arc::new(NoObjects),
            options,
        )
        .unwrap()
    }

    fn edit(name: &str) -> Edit<'_> {
        let one = ObjectId::from_hex(&[b'1'; 40]).unwrap();
        Edit::update(RefName::new(name).unwrap(), one).skip_object_check()
    }

    #[test]
    fn a_child_waits_for_no_thread_of_its_parent() {
        let commits = Commits::default();
        commits.state(7).is_led = true;
        assert!(commits.state(7).is_led);
        assert!(!commits.state(8).is_led);
    }

    /// Eight threads that all have to wait for a lock; the name of the last one is in conflict.
    fn commit_at_once(format: RefFormat) -> (tempfile::TempDir, Store) {
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(temp.path().join("refs/heads")).unwrap();
        std::fs::create_dir_all(temp.path().join("reftable")).unwrap();
        std::fs::write(temp.path().join("reftable/tables.list"), "").unwrap();
        let (ours, other) = (store(temp.path(), format), store(temp.path(), format));
        let mut blocker = other.transaction();
        blocker.add(edit("refs/heads/0")).unwrap();
        let blocker = blocker.prepare().unwrap();
        let commit = |name: String| {
            let mut transaction = ours.transaction();
            transaction.add(edit(&name)).unwrap();
            transaction.commit()
        };
        let commit = &commit;
        thread::scope(|scope| {
            let first = scope.spawn(move || commit("refs/heads/0".to_owned()));
            while !unpoisoned(&ours.commits().state).is_led {
                thread::sleep(Duration::from_millis(1));
            }
            let names = (1..8).map(|at| format!("refs/heads/{at}"));
            let names = names.chain(["refs/heads/1/below".to_owned()]);
            let mut threads = Vec::new();
            for (at, name) in names.enumerate() {
                threads.push(scope.spawn(move || commit(name)));
                while unpoisoned(&ours.commits().state).waiting.len() <= at {
                    thread::sleep(Duration::from_millis(1));
                }
            }
            let _ = blocker.abort();
            let _ = first.join().unwrap().unwrap();
            let done: Vec<_> = threads.into_iter().map(|it| it.join().unwrap()).collect();
            let (last, others) = done.split_last().unwrap();
            assert!(others.iter().all(Result::is_ok), "{others:?}");
            let error = last.as_ref().unwrap_err().to_string();
            assert!(error.contains("'refs/heads/1' exists"), "{error}");
        });
        (temp, ours)
    }

    #[test]
    fn what_waits_is_committed_together() {
        for format in [RefFormat::Files, RefFormat::Reftable] {
            let (temp, store) = commit_at_once(format);
            let mut refs = store.refs().unwrap();
            let mut count = 0;
            while refs.next().unwrap().is_some() {
                count += 1;
            }
            assert_eq!(count, 8, "{format:?}");
            if format == RefFormat::Reftable {
                let list = std::fs::read_to_string(temp.path().join("reftable/tables.list"));
                let list = list.unwrap();
                let last = list.lines().last().unwrap();
                assert!(
                    last.contains("-0x000000000002-"),
                    "two transactions: {list}"
                );
            }
        }
    }
}
