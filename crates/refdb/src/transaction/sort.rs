//! The order of names: how they come, and sorting many, by eight bytes at a time, so that comparing two
//! of them seldom reads their text.

use std::cmp::Ordering;
use std::ops::Range;

use refdb_names::RefName;
use reftable::short::{self, common_prefix, first_word};

use crate::system::beside::{COUNT_MIN, start};

/// Up to so many names are sorted by comparing them whole.
const SMALL: usize = 12;

/// How names follow each other: the last of these that is so of two neighbours.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Sequence {
    /// Each is greater than the one before.
    Increasing,
    /// None is less than the one before.
    Sorted,
    Unsorted,
}

/// Returns how many bytes a name shares with the one before it, and how it follows that one.
#[inline]
pub(super) fn after(last: Option<&[u8]>, name: &[u8]) -> (usize, Sequence) {
    let Some(last) = last else {
        return (0, Sequence::Increasing);
    };
    let shared = common_prefix(last, name);
    // The end of a name comes before any byte.
    let sequence = match last.get(shared).cmp(&name.get(shared)) {
        Ordering::Less => Sequence::Increasing,
        Ordering::Equal => Sequence::Sorted,
        Ordering::Greater => Sequence::Unsorted,
    };
    (shared, sequence)
}

/// The bytes of one name that are looked at, and which name it is.
struct Key {
    word: u64,
    index: usize,
}

/// Sorts indices, few or nearly sorted, by the names that they stand for; those of one name stay as they are. It is
/// there once: sorting for each kind of name is 14 KB of the program.
pub(super) fn sort_few<'n>(indices: &mut [usize], name: &dyn Fn(usize) -> RefName<'n>) {
    indices.sort_by(|&low, &high| name(low).cmp(&name(high)));
}

/// Sorts `indices` by the names that they stand for; those of one name are sorted by number. Of many, a
/// second thread sorts half.
pub(super) fn sort_by_name<'n>(indices: &mut [usize], name: impl Fn(usize) -> &'n [u8] + Sync) {
    if indices.len() < COUNT_MIN {
        return sort_part(indices, &name);
    }
    let (low, high) = indices.split_at_mut(indices.len() / 2);
    let is_sorted = std::thread::scope(|scope| {
        let name = &name;
        let other = start(scope, move || sort_part(high, name));
        sort_part(low, name);
        // Perhaps no thread is to be had.
        other.is_ok_and(|other| other.join().is_ok())
    });
    match is_sorted {
        true => merge(indices, &name),
        false => sort_part(indices, &name),
    }
}

/// Merges the halves of `indices`, which are sorted each.
fn merge<'n>(indices: &mut [usize], name: impl Fn(usize) -> &'n [u8]) {
    let (low, high) = indices.split_at(indices.len() / 2);
    let (mut low, mut high) = (low.iter().peekable(), high.iter().peekable());
    let key = |index: usize| (name(index), index);
    let merged = std::iter::from_fn(|| match (low.peek(), high.peek()) {
        (Some(&&left), Some(&&right)) if key(right) < key(left) => high.next(),
        (Some(_), _) => low.next(),
        (None, _) => high.next(),
    });
    let merged: Vec<usize> = merged.copied().collect();
    indices.copy_from_slice(&merged);
}

fn sort_part<'n>(indices: &mut [usize], name: impl Fn(usize) -> &'n [u8]) {
    let mut keys: Vec<Key> = indices
        .iter()
        .map(|&index| Key { word: 0, index })
        .collect();
    // Each group shares so many bytes at the start of its names.
    let mut groups: Vec<(Range<usize>, usize)> = vec![(0..keys.len(), 0)];
    while let Some((range, depth)) = groups.pop() {
        let start = range.start;
        let Some(group) = keys.get_mut(range) else {
            continue;
        };
        let rest = |key: &Key| name(key.index).get(depth..).unwrap_or_default();
        if group.len() > SMALL {
            let depth = depth + shared_prefix(group.iter().map(rest));
            for key in group.iter_mut() {
                key.word = first_word(name(key.index).get(depth..).unwrap_or_default());
            }
            group.sort_unstable_by_key(|key| key.word);
            let ends = [group.first(), group.last()].map(|key| key.map(|key| key.word));
            if ends[0] != ends[1] {
                let mut at = start;
                for same in group.chunk_by(|low, high| low.word == high.word) {
                    if same.len() > 1 {
                        groups.push((at..at + same.len(), depth));
                    }
                    at += same.len();
                }
                continue;
            }
        }
        group.sort_unstable_by(|low, high| {
            let order = short::compare(rest(low), rest(high));
            order.then(low.index.cmp(&high.index))
        });
    }
    for (index, key) in indices.iter_mut().zip(keys) {
        *index = key.index;
    }
}

/// Returns how many bytes all the names share at their start.
fn shared_prefix<'n>(mut names: impl Iterator<Item = &'n [u8]>) -> usize {
    let first = names.next().unwrap_or_default();
    names.fold(first.len(), |len, name| {
        common_prefix(first.get(..len).unwrap_or_default(), name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn as_comparing_whole_names(
            starts in proptest::collection::vec("[ab/]{0,20}", 1..4),
            ends in proptest::collection::vec(("[a-c\0]{0,12}", 0_usize..4), 0..200),
        ) {
            let start = |at: &usize| starts[at % starts.len()].as_str();
            let names: Vec<String> = ends.iter().map(|(end, at)| [start(at), end].concat()).collect();
            let mut expected: Vec<usize> = (0..names.len()).collect();
            let mut sorted = expected.clone();
            expected.sort_by(|&low, &high| names[low].cmp(&names[high]));
            sort_by_name(&mut sorted, |index| names[index].as_bytes());
            prop_assert_eq!(sorted, expected);
        }
    }

    #[test]
    fn as_comparing_whole_names_in_two_threads() {
        let count = COUNT_MIN + 7;
        let names: Vec<String> = (0..count)
            .map(|at| format!("refs/{}", at * 7919 % 5003))
            .collect();
        let mut expected: Vec<usize> = (0..count).collect();
        let mut sorted = expected.clone();
        expected.sort_by(|&low, &high| names[low].cmp(&names[high]));
        sort_by_name(&mut sorted, |index| names[index].as_bytes());
        assert!(sorted == expected);
    }
}
