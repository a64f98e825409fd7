//! Whether a place keeps its word: races of several threads for the same slot first, since those are what a
//! store depends on.
//!
//! A place that passes may still lie; one that does not pass loses commits.

use std::collections::BTreeSet;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use refdb::shared::{Read, Shared, Swap, Version};
use refdb::{Error, ErrorKind, Result};

/// The slots that are used: no store has so many.
const FIRST_SLOT: u32 = 1000;

/// How many slots are raced for, and by how many.
const CREATED: u32 = 40;
const RACERS: usize = 8;

/// How many times all of them replace the same version at once, and by so many bytes: a head is about as long, and
/// a server that looks at the condition before it takes the content has that long for its mistake.
const REPLACED: usize = 80;
const LONG: usize = 96 << 10;

/// How many times each of them adds a word to the same slot.
const WORDS: usize = 15;

/// How many requests of each kind are measured.
const MEASURED: usize = 20;

/// What a probe found.
#[derive(Clone, Debug, Default)]
pub struct Probed {
    /// What the place must not do, and did. A store must not be kept there then.
    pub refusals: Vec<String>,
    /// How long replacing a slot took.
    pub swaps: Latency,
    /// How long reading a slot took that had not changed.
    pub reads: Latency,
    /// How long storing an object of 64 KiB took.
    pub puts: Latency,
}

/// How long requests of one kind took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Half of them took no longer.
    pub median: Duration,
    /// None took longer.
    pub most: Duration,
}

/// Tries a place that has no store yet, or has one: slots and objects of its own are used, and removed again.
///
/// # Errors
/// `Io` when the place cannot be reached, or refuses; what it does wrong is in the result.
pub fn probe(place: &dyn Shared, random: u64) -> Result<Probed> {
    let mut probed = Probed::default();
    let slots = FIRST_SLOT..FIRST_SLOT + CREATED + 3;
    place.clear(slots.clone())?;
    let tried = (|| {
        create_race(place, random, &mut probed.refusals)?;
        replace_race(place, random, &mut probed.refusals)?;
        swap_race(place, &mut probed.refusals)?;
        conditions(place, &mut probed)?;
        objects(place, random, &mut probed)
    })();
    place.clear(slots)?;
    tried.map(|()| probed)
}

/// Several create the same slot at once: one of them has done it.
fn create_race(place: &dyn Shared, random: u64, refusals: &mut Vec<String>) -> Result<()> {
    let mut wrong = 0;
    for slot in FIRST_SLOT..FIRST_SLOT + CREATED {
        let contents: Vec<Vec<u8>> = (0..RACERS)
            .map(|racer| format!("{random:016x} {racer}").into_bytes())
            .collect();
        wrong += u32::from(!one_wins(place, slot, None, &contents)?);
    }
    if wrong > 0 {
        refusals.push(format!(
            "{RACERS} threads created the same slot: {wrong} of {CREATED} times not exactly one of them did"
        ));
    }
    Ok(())
}

/// Several replace the same version at once: one of them has done it.
fn replace_race(place: &dyn Shared, random: u64, refusals: &mut Vec<String>) -> Result<()> {
    let slot = FIRST_SLOT + CREATED + 2;
    place.swap(slot, None, b"begin")?;
    let mut wrong = 0;
    for turn in 0..REPLACED {
        let (_, version) = read(place, slot)?;
        let contents: Vec<Vec<u8>> = (0..RACERS)
            .map(|racer| {
                let mut content = format!("{random:016x} {turn} {racer} ").into_bytes();
                content.resize(LONG, b'.');
                content
            })
            .collect();
        wrong += u32::from(!one_wins(place, slot, Some(&version), &contents)?);
    }
    if wrong > 0 {
        refusals.push(format!(
            "{RACERS} threads replaced the same version: {wrong} of {REPLACED} times not exactly one of them did"
        ));
    }
    Ok(())
}

/// Lets each thread replace a slot that is of the same version; returns whether exactly one has done it, as far as
/// answers came.
fn one_wins(
    place: &dyn Shared,
    slot: u32,
    expected: Option<&Version>,
    contents: &[Vec<u8>],
) -> Result<bool> {
    let content = |racer: usize| contents.get(racer).map(Vec::as_slice);
    let done = race(|racer| place.swap(slot, expected, content(racer).unwrap_or_default()))?;
    let mut winners = done.iter().enumerate();
    let won = |(_, swap): &(usize, &Swap)| matches!(swap, Swap::Done(_));
    let winner = winners.by_ref().find(won).map(|(racer, _)| racer);
    let is_unknown = done.contains(&Swap::Unknown);
    let found = match place.head(slot, None)? {
        Read::Head(found, _) => Some(found),
        _ => None,
    };
    let is_right = match winner {
        Some(winner) => found.as_deref() == content(winner),
        None => is_unknown,
    };
    Ok(is_right && !winners.any(|it| won(&it)))
}

/// Calls something in all threads at the same moment.
fn race<T: Send>(act: impl Fn(usize) -> Result<T> + Sync) -> Result<Vec<T>> {
    let barrier = Barrier::new(RACERS);
    thread::scope(|scope| {
        let (act, barrier) = (&act, &barrier);
        let threads: Vec<_> = (0..RACERS)
            .map(|racer| {
                scope.spawn(move || {
                    barrier.wait();
                    act(racer)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(panicked())))
            .collect()
    })
}

fn panicked() -> Error {
    Error::new(ErrorKind::Io, "a thread of the probe panicked")
}

/// Several add words to the same slot: every word that was acknowledged is there, once.
fn swap_race(place: &dyn Shared, refusals: &mut Vec<String>) -> Result<()> {
    let slot = FIRST_SLOT + CREATED;
    place.swap(slot, None, b"begin\n")?;
    let added = race(|racer| {
        let (mut acknowledged, mut unknown) = (Vec::new(), BTreeSet::new());
        for word in 0..WORDS {
            // A place that never lets this thread have its turn ends the probe all the same.
            for _ in 0..1000 {
                let (content, version) = read(place, slot)?;
                let word = format!("{racer}.{word}\n");
                let new = [content.as_slice(), word.as_bytes()].concat();
                match place.swap(slot, Some(&version), &new)? {
                    Swap::Done(_) => {
                        acknowledged.push(word);
                        break;
                    }
                    Swap::Unknown => {
                        unknown.insert(word);
                        break;
                    }
                    Swap::Moved => {}
                }
            }
        }
        Ok((acknowledged, unknown))
    })?;
    let (content, _) = read(place, slot)?;
    let content = String::from_utf8_lossy(&content).into_owned();
    let words: Vec<String> = content.lines().map(|word| format!("{word}\n")).collect();
    let count = |word: &String| words.iter().filter(|other| *other == word).count();
    let acknowledged = added.iter().flat_map(|it| &it.0);
    let lost = acknowledged.clone().filter(|word| count(word) != 1).count();
    if lost > 0 {
        let all = acknowledged.count();
        refusals.push(format!(
            "{RACERS} threads replaced the same slot: {lost} of {all} acknowledged writes were lost"
        ));
    }
    Ok(())
}

fn read(place: &dyn Shared, slot: u32) -> Result<(Vec<u8>, Version)> {
    match place.head(slot, None)? {
        Read::Head(content, version) => Ok((content.to_vec(), version)),
        _ => Err(Error::new(
            ErrorKind::Io,
            "a slot that was written is not there",
        )),
    }
}

/// What one thread sees of conditions.
fn conditions(place: &dyn Shared, probed: &mut Probed) -> Result<()> {
    let slot = FIRST_SLOT + CREATED + 1;
    let mut refuse = |is_wrong: bool, what: &str| {
        if is_wrong && !probed.refusals.iter().any(|known| known == what) {
            probed.refusals.push(what.to_owned());
        }
    };
    let none = Version("\"no such version\"".into());
    let swap = place.swap(slot, Some(&none), b"x")?;
    refuse(
        matches!(swap, Swap::Done(_)),
        "a slot that does not exist is replaced",
    );
    place.swap(slot, None, b"0")?;
    let (mut swaps, mut reads) = (Vec::new(), Vec::new());
    for at in 1..=MEASURED {
        let (_, old) = read(place, slot)?;
        let content = at.to_string();
        let (swap, took) = timed(|| place.swap(slot, Some(&old), content.as_bytes()))?;
        swaps.push(took);
        if !matches!(swap, Swap::Done(_)) {
            continue;
        }
        let again = place.swap(slot, Some(&old), b"stale")?;
        refuse(
            matches!(again, Swap::Done(_)),
            "a slot of another version than expected is replaced",
        );
        let again = place.swap(slot, None, b"stale")?;
        refuse(
            matches!(again, Swap::Done(_)),
            "a slot that exists is created",
        );
        let (found, version) = read(place, slot)?;
        refuse(
            found != content.as_bytes(),
            "what was written is not what is read next",
        );
        let (same, took) = timed(|| place.head(slot, Some(&version)))?;
        reads.push(took);
        refuse(
            !matches!(same, Read::Same),
            "a slot of the version that is known is not recognised",
        );
    }
    (probed.swaps, probed.reads) = (latency(swaps), latency(reads));
    Ok(())
}

/// What becomes of objects.
fn objects(place: &dyn Shared, random: u64, probed: &mut Probed) -> Result<()> {
    let content = vec![7; 64 << 10];
    let mut puts = Vec::new();
    let keys: Vec<String> = (0..MEASURED)
        .map(|at| format!("probe/{random:016x}-{at}"))
        .collect();
    for key in &keys {
        let ((), took) = timed(|| place.put(key, &content))?;
        puts.push(took);
        let found = place.get(key, None)?;
        if found.as_deref() != Some(content.as_slice()) {
            probed
                .refusals
                .push("an object that was stored is not there".to_owned());
        }
        let part = place.get(key, Some(100..200))?;
        if part.is_some_and(|part| part.len() != 100) {
            probed
                .refusals
                .push("a part of an object has another length".to_owned());
        }
    }
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    place.delete(&keys)?;
    probed.refusals.dedup();
    probed.puts = latency(puts);
    Ok(())
}

fn timed<T>(act: impl FnOnce() -> Result<T>) -> Result<(T, Duration)> {
    let begun = Instant::now();
    let done = act()?;
    Ok((done, begun.elapsed()))
}

fn latency(mut took: Vec<Duration>) -> Latency {
    took.sort_unstable();
    Latency {
        median: took.get(took.len() / 2).copied().unwrap_or_default(),
        most: took.last().copied().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use refdb::shared::MemoryShared;
    use refdb::system::Bytes;

    use super::*;

    /// A place that keeps its word but for one thing.
    #[derive(Debug)]
    struct Liar {
        place: MemoryShared,
        lie: Lie,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Lie {
        /// It looks at the condition, and replaces the slot a moment later.
        LooksTooEarly,
        NoConditionOnReplacing,
        NoConditionOnCreating,
        NoConditionOnReading,
        Forgets,
    }

    impl Shared for Liar {
        fn name(&self) -> String {
            "liar:".to_owned()
        }

        fn head(&self, slot: u32, known: Option<&Version>) -> Result<Read> {
            let ignores = self.lie == Lie::NoConditionOnReading;
            self.place.head(slot, known.filter(|_| !ignores))
        }

        fn swap(&self, slot: u32, expected: Option<&Version>, new: &[u8]) -> Result<Swap> {
            let version = || match self.place.head(slot, None) {
                Ok(Read::Head(_, version)) => Some(version),
                _ => None,
            };
            let blind = match self.lie {
                Lie::LooksTooEarly => {
                    if version().as_ref() != expected {
                        return Ok(Swap::Moved);
                    }
                    thread::sleep(Duration::from_millis(1));
                    true
                }
                Lie::NoConditionOnReplacing => expected.is_some(),
                Lie::NoConditionOnCreating => expected.is_none(),
                _ => false,
            };
            match blind {
                true => loop {
                    if let done @ Swap::Done(_) = self.place.swap(slot, version().as_ref(), new)? {
                        return Ok(done);
                    }
                },
                false => self.place.swap(slot, expected, new),
            }
        }

        fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Option<Bytes>> {
            self.place.get(key, range)
        }

        fn put(&self, key: &str, content: &[u8]) -> Result<()> {
            match self.lie {
                Lie::Forgets => Ok(()),
                _ => self.place.put(key, content),
            }
        }

        fn delete(&self, keys: &[&str]) -> Result<()> {
            self.place.delete(keys)
        }

        fn clear(&self, slots: Range<u32>) -> Result<()> {
            self.place.clear(slots)
        }

        fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>> {
            self.place.list(prefix)
        }
    }

    #[test]
    fn every_lie_is_refused() {
        for lie in [
            Lie::LooksTooEarly,
            Lie::NoConditionOnReplacing,
            Lie::NoConditionOnCreating,
            Lie::NoConditionOnReading,
            Lie::Forgets,
        ] {
            let place = MemoryShared::new();
            let probed = probe(&Liar { place, lie }, 1).unwrap();
            assert!(!probed.refusals.is_empty(), "{lie:?}");
        }
    }

    #[test]
    fn a_place_that_keeps_its_word_passes_and_is_left_clean() {
        let place = MemoryShared::new();
        let probed = probe(&place, 1).unwrap();
        assert_eq!(probed.refusals, Vec::<String>::new());
        assert!(matches!(place.head(FIRST_SLOT, None), Ok(Read::Missing)));
        assert!(place.list("probe/").unwrap().is_empty());
    }
}
