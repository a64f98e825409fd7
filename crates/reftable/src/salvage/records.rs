//! The records of a block that may be damaged: all of them, or those of its whole runs.

use std::ops::Range;

use super::Start;
use crate::block::Block;
use crate::key::split_key;
use crate::record::{Codec, Params};

/// Keys with their values.
pub(super) type Records<C> = Vec<(Vec<u8>, (C, Vec<u8>))>;

/// Decodes a block, which has to be whole; `add` is told of each key, and may end that.
pub(super) fn records<C: Codec + Default + Clone>(
    block: &Block,
    body: &[u8],
    params: Params,
    start: Start,
    add: &mut dyn FnMut(&[u8]) -> Option<()>,
) -> Option<Records<C>> {
    let Decoded {
        records,
        full_keys,
        is_sorted,
    } = decode(block, body, block.first..block.end, params, add)?;
    let has_restarts = || has_restarts(block, body, &full_keys);
    // With a wrong number of them, the last records would be taken for restart offsets: these lie nowhere then.
    let has_places = || (0..block.restart_count).all(|index| block.restart(body, index).is_ok());
    let is_whole = match start {
        Start::Known => is_sorted && has_places() || has_restarts(),
        Start::Guessed => is_sorted && has_restarts(),
    };
    is_whole.then_some(records)
}

/// Decodes those runs of a block that are whole; `None` if there is none, or the restart table tells of no runs. Where
/// the names of one run are not behind those of the one before, nobody knows which of them is right.
pub(super) fn whole_runs<C: Codec + Default + Clone>(
    block: &Block,
    body: &[u8],
    params: Params,
    add: &mut dyn FnMut(&[u8]) -> Option<()>,
) -> Option<Records<C>> {
    let restarts = (0..block.restart_count).map(|index| block.restart(body, index).ok());
    let starts = restarts.collect::<Option<Vec<usize>>>()?;
    if !block.starts_first_run(body) || !starts.is_sorted_by(|a, b| a < b) {
        return None;
    }
    let ends = starts.iter().skip(1).copied().chain([block.end]);
    let mut runs: Vec<Records<C>> = Vec::new();
    for (&start, end) in starts.iter().zip(ends) {
        let Some(run) = decode::<C>(block, body, start..end, params, add) else {
            continue;
        };
        let is_run = run.is_sorted && run.full_keys.first() == Some(&start);
        let last = runs.last().and_then(|last| last.last()).map(|last| &last.0);
        let follows = last < run.records.first().map(|first| &first.0);
        match is_run {
            true if follows => runs.push(run.records),
            true => drop(runs.pop()),
            false => {}
        }
    }
    let found: Records<C> = runs.into_iter().flatten().collect();
    (!found.is_empty()).then_some(found)
}

/// Records that decode, one behind the other.
struct Decoded<C> {
    records: Records<C>,
    /// Where those are that spell out their keys.
    full_keys: Vec<usize>,
    is_sorted: bool,
}

/// Decodes the records of a part of a block, which has to end with one; `add` is told of each key, and may end that.
fn decode<C: Codec + Default + Clone>(
    block: &Block,
    body: &[u8],
    part: Range<usize>,
    params: Params,
    add: &mut dyn FnMut(&[u8]) -> Option<()>,
) -> Option<Decoded<C>> {
    let mut records: Records<C> = Vec::new();
    let mut full_keys = Vec::new();
    let mut codec = C::default();
    let mut key = Vec::new();
    let mut is_sorted = true;
    let mut at = part.start;
    while at < part.end {
        if body.get(at..).and_then(split_key)?.0 == 0 {
            full_keys.push(at);
        }
        let place = block.read_any(body, at, &mut key, &mut codec, params)?;
        // Zeros decode as records, too.
        if key.is_empty() {
            return None;
        }
        add(&key)?;
        is_sorted &= records.last().is_none_or(|last| last.0 < key);
        let value = body.get(place.value..place.next)?.to_vec();
        records.push((key.clone(), (codec.clone(), value)));
        at = place.next;
    }
    (at == part.end).then_some(Decoded {
        records,
        full_keys,
        is_sorted,
    })
}

/// Returns whether the restart table is one for a block with these full keys.
fn has_restarts(block: &Block, body: &[u8], full_keys: &[usize]) -> bool {
    let restarts = (0..block.restart_count).map(|index| block.restart(body, index).ok());
    let fits = |at: Option<usize>| at.is_some_and(|at| full_keys.binary_search(&at).is_ok());
    block.starts_first_run(body)
        && restarts.clone().all(fits)
        && restarts.is_sorted_by(|a, b| a < b)
}
