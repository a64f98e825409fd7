//! Making things in a second thread, while the first one makes others, or does something with those
//! before them.

use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, PoisonError};
use std::thread;

/// From so many things on it is worth a thread.
pub(crate) const COUNT_MIN: usize = 16 << 10;

/// From so many things on it is worth one where both threads make half of them.
pub(crate) const HALVES_MIN: usize = 4 << 10;

/// So many things are handed over at once.
pub(crate) const BATCH: usize = 1 << 10;

/// So many batches may wait.
const WAITING_MAX: usize = 4;

/// Does both, the second in a second thread, and returns what came of them.
pub(crate) fn both<A, B: Send>(
    first: impl FnOnce() -> A,
    second: impl FnOnce() -> B + Send,
) -> (A, B) {
    let second = &Mutex::new(Some(second));
    let take = || {
        let mut second = second.lock().unwrap_or_else(PoisonError::into_inner);
        second.take().map(|second| second())
    };
    thread::scope(|scope| {
        let other = thread::Builder::new().spawn_scoped(scope, take);
        let done = first();
        // Perhaps no thread was to be had.
        let other = match other {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(_) => take(),
        };
        (done, other.expect("it is done once"))
    })
}

/// Calls `work` with what `make` gives until it has no more. A second thread makes it, a little ahead.
pub(crate) fn beside<T: Send, R>(
    make: impl FnMut() -> Option<T> + Send,
    work: impl FnOnce(&mut dyn Iterator<Item = T>) -> R,
) -> R {
    let make = &Mutex::new(make);
    let next = || (make.lock().unwrap_or_else(PoisonError::into_inner))();
    thread::scope(|scope| {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let made = thread::Builder::new().spawn_scoped(scope, move || {
            // Nobody takes any more after an error.
            while let Some(thing) = next()
                && sender.send(thing).is_ok()
            {}
        });
        // Perhaps no thread is to be had.
        if made.is_err() {
            return work(&mut std::iter::from_fn(next));
        }
        let mut things = receiver.into_iter();
        work(&mut things)
    })
}

/// Calls `work` with the things that `make` makes, about `count` of them. Where that is many, they are
/// made by a second thread.
pub(crate) fn ahead<T, I, R>(
    count: usize,
    make: impl FnOnce() -> I,
    work: impl FnOnce(&mut dyn Iterator<Item = T>) -> R,
) -> R
where
    T: Send,
    I: Iterator<Item = T> + Send,
{
    let mut things = make();
    if count < COUNT_MIN {
        return work(&mut things);
    }
    let batch = move || {
        let batch: Vec<T> = things.by_ref().take(BATCH).collect();
        (!batch.is_empty()).then_some(batch)
    };
    beside(batch, |batches| work(&mut batches.flatten()))
}

/// Calls `work` with what is made of each batch of `count` things, in their order. Of many batches, a
/// second thread makes every other one; each thread has a maker of its own.
pub(crate) fn by_turns<T: Send, M, E>(
    count: usize,
    maker: impl Fn() -> M + Sync,
    mut work: impl FnMut(Range<usize>, T) -> Result<(), E>,
) -> Result<(), E>
where
    M: FnMut(Range<usize>) -> T,
{
    let batches = || {
        let starts = (0..count).step_by(BATCH);
        starts.map(|start| start..count.min(start + BATCH))
    };
    let mut own = maker();
    if count < HALVES_MIN {
        return batches().try_for_each(|batch| work(batch.clone(), own(batch)));
    }
    thread::scope(|scope| {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let maker = &maker;
        // Perhaps no thread is to be had: then nothing is received.
        let _other = thread::Builder::new().spawn_scoped(scope, move || {
            let mut make = maker();
            for batch in batches().skip(1).step_by(2) {
                if sender.send(make(batch)).is_err() {
                    return;
                }
            }
        });
        for (turn, batch) in batches().enumerate() {
            let received = (turn % 2 == 1).then(|| receiver.recv().ok());
            let made = received.flatten().unwrap_or_else(|| own(batch.clone()));
            work(batch, made)?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_come_in_their_order() {
        for count in [0, 1, COUNT_MIN - 1, COUNT_MIN, 5 * COUNT_MIN + 3] {
            let things: Vec<usize> = ahead(count, || 0..count, |things| things.collect());
            assert!(things == (0..count).collect::<Vec<_>>(), "{count}");
        }
    }

    #[test]
    fn nobody_waits_for_what_is_not_taken() {
        let first = ahead(COUNT_MIN, || 0.., |things| things.next());
        assert_eq!(first, Some(0));
    }

    #[test]
    fn both_are_done() {
        let mut first = 0;
        assert_eq!(both(|| first += 1, || 2), ((), 2));
        assert_eq!(first, 1);
    }

    #[test]
    fn turns_come_in_their_order() {
        for count in [0, 1, BATCH, HALVES_MIN - 1, HALVES_MIN, 7 * BATCH + 3] {
            let mut seen = Vec::new();
            let done: Result<(), ()> = by_turns(
                count,
                || |batch: Range<usize>| batch.map(|at| 2 * at).collect::<Vec<_>>(),
                |batch, doubles| {
                    seen.extend(batch.zip(doubles));
                    Ok(())
                },
            );
            assert_eq!(done, Ok(()));
            assert!(
                seen == (0..count).map(|at| (at, 2 * at)).collect::<Vec<_>>(),
                "{count}"
            );
        }
    }

    #[test]
    fn turns_end_with_an_error() {
        let mut turns = 0;
        let done = by_turns(
            20 * BATCH,
            || |batch: Range<usize>| batch.start,
            |_, start| {
                turns += 1;
                if start == 3 * BATCH {
                    Err(start)
                } else {
                    Ok(())
                }
            },
        );
        assert_eq!((done, turns), (Err(3 * BATCH), 4));
    }
}
