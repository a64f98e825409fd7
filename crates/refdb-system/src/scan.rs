//! Reading a directory that changes while it is read.
//!
//! A system gives each name once, and misses none, of those that nobody touched meanwhile. A file that
//! is renamed over another one is touched: tmpfs and Btrfs give such a name a new place in the
//! directory, so that one reading may meet it twice or not at all, although it was there all the time.
//!
//! Invariants:
//! 1. Each name is given once.
//! 2. A name that was there all the time is given, unless every one of several readings misses it.
//! 3. What was there for a part of the time may be given: who asks for it then finds that it is gone.
//! 4. It ends, however busy others are.

use std::collections::HashMap;
use std::io;

use super::DirEntry;

/// One reading of a directory.
#[derive(Clone, Debug)]
pub struct Scan {
    /// What was met, in the order of the directory.
    pub entries: Vec<DirEntry>,
    /// Whether nothing in the directory can have changed while it was read.
    pub quiet: bool,
    /// Whether something certainly has.
    pub changed: bool,
}

/// After so many readings that bring no new name there is none, if nothing changed during any of them, and none
/// ever brought one.
const AGREEING: usize = 2;

/// As many are asked for otherwise: others are at work, and readings miss names. On tmpfs of Linux
/// 6.18, two processes that rename without pause make one reading in some twenty miss half of them, and all of
/// three readings once in a million times.
const AGREEING_ON_CHANGES: usize = 6;

/// So many readings are looked at, at most.
const READINGS_MAX: usize = 16;

/// Reads a directory until one reading is certain, or several say together what there is.
///
/// # Errors
/// Those of a reading.
pub(crate) fn settle(scan: &mut dyn FnMut() -> io::Result<Scan>) -> io::Result<Vec<DirEntry>> {
    let first = scan()?;
    if first.quiet {
        return Ok(first.entries);
    }
    let mut last = first.entries.clone();
    let mut met = Met::default();
    met.add(first.entries);
    let asked_if = |changed| {
        if changed {
            AGREEING_ON_CHANGES
        } else {
            AGREEING
        }
    };
    let (mut agreed, mut asked) = (0, asked_if(first.changed));
    for _ in 1..READINGS_MAX {
        let next = scan()?;
        if next.quiet {
            return Ok(next.entries);
        }
        agreed += 1;
        asked = asked.max(asked_if(next.changed));
        // Mostly somebody has done one thing just before, and all readings are alike.
        if next.entries != last {
            last.clone_from(&next.entries);
            if met.add(next.entries) {
                (agreed, asked) = (0, asked_if(true));
            }
        }
        if agreed == asked {
            break;
        }
    }
    Ok(met.entries)
}

/// What several readings have met.
#[derive(Default)]
struct Met {
    entries: Vec<DirEntry>,
    places: HashMap<Vec<u8>, usize>,
}

impl Met {
    /// Takes what a later reading has met; returns whether there was a new name.
    fn add(&mut self, entries: Vec<DirEntry>) -> bool {
        let before = self.entries.len();
        for entry in entries {
            match self.places.get(&entry.name) {
                // What has the name now counts.
                Some(&place) => self.entries[place].kind = entry.kind,
                None => {
                    self.places.insert(entry.name.clone(), self.entries.len());
                    self.entries.push(entry);
                }
            }
        }
        self.entries.len() > before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileKind;

    fn settled(readings: &[(&str, bool)]) -> (String, usize) {
        let mut count = 0;
        let entries = settle(&mut || {
            let (names, quiet) = readings[count.min(readings.len() - 1)];
            count += 1;
            let kind = FileKind::File;
            let entry = |name: char| DirEntry {
                name: name.to_string().into(),
                kind,
            };
            let entries = names.chars().map(entry).collect();
            Ok(Scan {
                entries,
                quiet,
                changed: false,
            })
        });
        let names = entries.unwrap().into_iter();
        let names = names.map(|entry| String::from_utf8(entry.name).unwrap());
        (names.collect(), count)
    }

    #[test]
    fn one_quiet_reading_is_enough() {
        assert_eq!(settled(&[("cab", true)]), ("cab".to_owned(), 1));
        assert_eq!(settled(&[("aa", false), ("b", true)]), ("b".to_owned(), 2));
    }

    #[test]
    fn several_readings_miss_nothing_and_give_nothing_twice() {
        let all = "abc".to_owned();
        assert_eq!(settled(&[("abac", false)]), (all.clone(), 3));
        assert_eq!(settled(&[("ab", false), ("bac", false)]), (all.clone(), 8));
        let late = [("ab", false), ("ab", false), ("b", false), ("bc", false)];
        assert_eq!(settled(&late[..2]), ("ab".to_owned(), 3));
        assert_eq!(settled(&late[1..]), (all.clone(), 9));
        let late = [("b", false), ("ab", false), ("b", false), ("bc", false)];
        assert_eq!(settled(&late), ("bac".to_owned(), 10));
    }

    #[test]
    fn it_ends() {
        let names: Vec<String> = ('a'..='z').map(String::from).collect();
        let readings: Vec<(&str, bool)> = names.iter().map(|name| (&**name, false)).collect();
        assert_eq!(settled(&readings).1, READINGS_MAX);
    }
}
