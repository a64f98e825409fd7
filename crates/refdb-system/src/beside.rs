//! Making things in a second thread, while the first one makes others, or does something with those
//! before them. Where no thread is to be had, the first one makes all of them.
//!
//! ```
//! use refdb_system::beside::both;
//! let numbers = [1, 2, 3, 4];
//! let (low, high) = both(|| numbers[..2].iter().sum::<i32>(), || numbers[2..].iter().sum::<i32>());
//! assert_eq!((low, high), (3, 7));
//! ```

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Scope, ScopedJoinHandle};

use crate::beside_this_thread;

/// From so many things on it is worth a thread.
pub const COUNT_MIN: usize = 16 << 10;

/// From so many things on it is worth one where both threads make half of them.
pub const HALVES_MIN: usize = 512;

/// So many things are handed over at once.
pub const BATCH: usize = 1 << 10;

/// So many batches may wait.
const WAITING_MAX: usize = 4;

/// Starts a second thread.
///
/// # Errors
/// Those of the system: perhaps none is to be had.
pub fn start<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    let stand_apart = beside_this_thread();
    thread::Builder::new().spawn_scoped(scope, move || {
        stand_apart();
        work()
    })
}

/// Does both, the second in a second thread, and returns what came of them.
///
/// # Panics
/// As either of them does.
pub fn both<A, B: Send>(first: impl FnOnce() -> A, second: impl FnOnce() -> B + Send) -> (A, B) {
    let (mut first, mut second) = (Some(first), Some(second));
    let (mut made, mut other) = (None, None);
    do_both(
        &mut || made = first.take().map(|first| first()),
        &mut || other = second.take().map(|second| second()),
    );
    made.zip(other).expect("both are done")
}

/// As [`both`]. It stands in the program once, however many things are made that way.
fn do_both(first: &mut dyn FnMut(), second: &mut (dyn FnMut() + Send)) {
    let second = &Mutex::new(second);
    let take = || (second.lock().unwrap_or_else(PoisonError::into_inner))();
    thread::scope(|scope| {
        let other = start(scope, take);
        first();
        match other {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            // Perhaps no thread was to be had.
            Err(_) => take(),
        }
    });
}

/// Calls `work` with what `make` gives until it has no more. A second thread makes it, a little ahead.
pub fn beside<T: Send, R>(
    make: impl FnMut() -> Option<T> + Send,
    work: impl FnOnce(&mut dyn Iterator<Item = T>) -> R,
) -> R {
    let make = &Mutex::new(make);
    let next = || (make.lock().unwrap_or_else(PoisonError::into_inner))();
    thread::scope(|scope| {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let made = start(scope, move || {
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
pub fn ahead<T, I, R>(
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
///
/// # Errors
/// The first one of `work`.
pub fn by_turns<T: Send, M, E>(
    count: usize,
    maker: impl Fn() -> M + Sync,
    mut work: impl FnMut(Range<usize>, T) -> Result<(), E>,
) -> Result<(), E>
where
    M: FnMut(Range<usize>) -> T,
{
    let batch = |turn: usize| {
        let start = turn.saturating_mul(BATCH);
        (start < count).then(|| start..count.min(start + BATCH))
    };
    let mut own = maker();
    if count < HALVES_MIN {
        let mut batches = (0..).map_while(batch);
        return batches.try_for_each(|batch| work(batch.clone(), own(batch)));
    }
    let maker = &maker;
    let other = move || {
        let mut make = maker();
        move |turn| batch(turn).map(&mut make)
    };
    let own = |turn| batch(turn).map(&mut own);
    turns(own, other, |turn, made| {
        batch(turn).map_or(Ok(()), |batch| work(batch, made))
    })
}

/// So much may be made ahead of what is worked with.
const AHEAD_MAX: usize = 4;

/// Calls `work` with what is made in each turn, in their order, until there is nothing to make. A
/// second thread has a maker of its own; each thread makes what comes next whenever it is done with
/// something, so that neither waits for one that the machine lets wait. A maker is asked for later and
/// later turns, and gives nothing from one on.
///
/// # Errors
/// The first one of `work`.
pub fn turns<T: Send, O, E>(
    mut own: impl FnMut(usize) -> Option<T>,
    other: impl FnOnce() -> O + Send,
    mut work: impl FnMut(usize, T) -> Result<(), E>,
) -> Result<(), E>
where
    O: FnMut(usize) -> Option<T>,
{
    let unclaimed = &AtomicUsize::new(0);
    let claim = || unclaimed.fetch_add(1, Ordering::Relaxed);
    thread::scope(|scope| {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        // Perhaps no thread is to be had: then nothing is received.
        let _other = start(scope, move || {
            let mut make = other();
            loop {
                let turn = claim();
                let made = make(turn);
                let is_last = made.is_none();
                // Nobody takes any more after an error.
                if sender.send((turn, made)).is_err() || is_last {
                    return;
                }
            }
        });
        let mut made = BTreeMap::new();
        for turn in 0.. {
            let next = loop {
                made.extend(receiver.try_iter());
                if let Some(next) = made.remove(&turn) {
                    break next;
                }
                let is_claimed = unclaimed.load(Ordering::Relaxed) > turn;
                if is_claimed && made.len() >= AHEAD_MAX {
                    match receiver.recv() {
                        Ok((turn, one)) => made.insert(turn, one),
                        // It panicked, and that goes on here.
                        Err(_) => return Ok(()),
                    };
                } else {
                    let turn = claim();
                    made.insert(turn, own(turn));
                }
            };
            match next {
                Some(next) => work(turn, next)?,
                None => break,
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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

    #[test]
    fn it_makes_no_difference_which_thread_is_slow() {
        for slow in [0, 1] {
            let make = |thread: usize| {
                move |turn: usize| {
                    let pause = if thread == slow { 300 } else { 10 };
                    thread::sleep(Duration::from_micros(pause * (turn as u64 % 3)));
                    (turn < 100).then_some((thread, turn))
                }
            };
            let (mut seen, mut threads) = (Vec::new(), [0; 2]);
            let done: Result<(), ()> = turns(
                make(0),
                || make(1),
                |turn, (thread, made)| {
                    threads[thread] += 1;
                    seen.push((turn, made));
                    Ok(())
                },
            );
            assert_eq!(done, Ok(()));
            assert!(seen == (0..100).map(|turn| (turn, turn)).collect::<Vec<_>>());
            assert!(threads.iter().all(|count| *count > 0), "{threads:?}");
        }
    }
}
