//! Making things in a second thread, while the first one does something with those before them.

use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, PoisonError};
use std::thread;

/// From so many things on it is worth a thread.
pub(crate) const COUNT_MIN: usize = 16 << 10;

/// So many things are handed over at once.
pub(crate) const BATCH: usize = 1 << 10;

/// So many batches may wait.
const WAITING_MAX: usize = 4;

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
}
