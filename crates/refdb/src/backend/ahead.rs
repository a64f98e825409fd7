//! Making many things in a second thread, while the first one does something with those before them.

use std::sync::mpsc::sync_channel;
use std::thread;

/// From so many things on it is worth a thread.
const COUNT_MIN: usize = 16 << 10;

/// So many things are handed over at once.
const BATCH: usize = 1 << 10;

/// So many batches may wait.
const WAITING_MAX: usize = 4;

/// Calls `work` with the things that `make` makes, about `count` of them. Where that is many, they are
/// made by a second thread, a little ahead.
pub(super) fn ahead<T, I, R>(
    count: usize,
    make: impl Fn() -> I + Sync,
    work: impl FnOnce(&mut dyn Iterator<Item = T>) -> R,
) -> R
where
    T: Send,
    I: Iterator<Item = T>,
{
    if count < COUNT_MIN {
        return work(&mut make());
    }
    thread::scope(|scope| {
        let (sender, receiver) = sync_channel::<Vec<T>>(WAITING_MAX);
        let make = &make;
        let made = thread::Builder::new().spawn_scoped(scope, move || {
            let mut things = make();
            loop {
                let batch: Vec<T> = things.by_ref().take(BATCH).collect();
                // Nobody takes any more after an error.
                if batch.is_empty() || sender.send(batch).is_err() {
                    break;
                }
            }
        });
        // Perhaps no thread is to be had.
        if made.is_err() {
            return work(&mut make());
        }
        let mut things = receiver.into_iter().flatten();
        work(&mut things)
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
}
