//! `<ref>@{<n>}` and `<ref>@{<date>}`: values that a ref had, as its reflog tells.

use bstr::{BStr, ByteSlice};
use refdb::{Error, ErrorKind, LogEntry, LogOrder, ObjectId, Result};

use super::branch::mark_len;
use super::dwim::Found;
use super::{Revisions, shown};
use crate::date;

/// Numbers from here on are seconds since 1970, not positions.
const TIME_MIN: u64 = 100_000_000;

/// What `@{...}` at the end of a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Split<'n> {
    /// Nothing that has to do with reflog entries.
    Nothing,
    /// An entry of the reflog of `name`; of the current branch if that is empty.
    Entry { name: &'n [u8], entry: &'n [u8] },
    /// `<name>@{-N}`, which has no meaning.
    Invalid,
}

/// Splits the entry off a name.
pub(super) fn split(name: &[u8]) -> Split<'_> {
    let Some(inner) = name.strip_suffix(b"}") else {
        return Split::Nothing;
    };
    // At least one byte stands between the braces.
    let within = inner
        .get(..inner.len().saturating_sub(1))
        .unwrap_or_default();
    let Some(at) = within.rfind("@{") else {
        return Split::Nothing;
    };
    let (front, rest) = name.split_at(at);
    let entry = inner.get(at + 2..).unwrap_or_default();
    if entry.starts_with(b"-") {
        return if at == 0 {
            Split::Nothing
        } else {
            Split::Invalid
        };
    }
    if mark_len(rest).is_some() {
        return Split::Nothing;
    }
    Split::Entry { name: front, entry }
}

/// Which entry is asked for.
enum Wanted {
    /// That many before the newest.
    Position(u64),
    /// The newest that is not younger, in seconds since 1970.
    Time(i64),
}

impl Revisions<'_> {
    /// Returns the value that an entry of the reflog of `found` speaks of.
    pub(super) fn log_entry(
        &self,
        name: &BStr,
        found: &Found,
        entry: &[u8],
    ) -> Result<Option<ObjectId>> {
        let number = entry
            .to_str()
            .ok()
            .and_then(|entry| entry.parse::<u64>().ok());
        let wanted = match number.filter(|_| entry.iter().all(u8::is_ascii_digit)) {
            Some(number) if number >= TIME_MIN => {
                Wanted::Time(i64::try_from(number).unwrap_or(i64::MAX))
            }
            Some(number) => Wanted::Position(number),
            None => {
                let now = self.repository.now();
                let now = i64::try_from(now).unwrap_or(i64::MAX);
                match date::approximate(entry, now, self.repository.zone()) {
                    Some(time) => Wanted::Time(time),
                    None => return Ok(None),
                }
            }
        };
        let mut search = Search {
            wanted,
            current: found.oid,
            count: 0,
            newer: None,
            answer: None,
            warning: None,
        };
        let log = found.name.as_name();
        self.store
            .for_each_log_entry(log, LogOrder::NewestFirst, |entry| {
                Ok(search.next(entry, found.name.as_bytes().as_bstr()))
            })?;
        if let Some(warning) = search.warning.take() {
            self.warn(warning);
        }
        if let Some(answer) = search.answer {
            return Ok(Some(answer));
        }
        let shown_name = if name.is_empty() {
            let full = found.name.as_bytes();
            full.strip_prefix(b"refs/heads/")
                .unwrap_or(b"HEAD")
                .as_bstr()
        } else {
            name
        };
        self.beyond(&search, shown_name, found)
    }

    /// Answers a question that leads beyond the oldest entry.
    fn beyond(&self, search: &Search, name: &BStr, found: &Found) -> Result<Option<ObjectId>> {
        let refuse = |message: String| Err(Error::new(ErrorKind::Misuse, message));
        let Some(oldest) = &search.newer else {
            return match search.wanted {
                Wanted::Position(0) => Ok(Some(found.oid)),
                _ => refuse(format!("log for {} is empty", found.name)),
            };
        };
        match search.wanted {
            Wanted::Position(number) if number == search.count && !oldest.old.is_null() => {
                Ok(Some(oldest.old))
            }
            // A date that comes out as the beginning of 1970 is none for Git.
            Wanted::Position(_) | Wanted::Time(0) => refuse(format!(
                "log for '{}' only has {} entries",
                shown(name),
                search.count
            )),
            Wanted::Time(_) => {
                self.warn(format!(
                    "log for '{name}' only goes back to {}",
                    time_of(oldest)
                ));
                Ok(Some(if oldest.old.is_null() {
                    oldest.new
                } else {
                    oldest.old
                }))
            }
        }
    }
}

/// A search through a reflog, the newest entry first.
struct Search {
    wanted: Wanted,
    current: ObjectId,
    count: u64,
    newer: Option<LogEntry>,
    answer: Option<ObjectId>,
    warning: Option<String>,
}

impl Search {
    /// Looks at the next entry; returns whether to go on.
    fn next(&mut self, entry: LogEntry, name: &BStr) -> bool {
        let is_it = match self.wanted {
            Wanted::Position(number) => number == self.count,
            Wanted::Time(time) => i64::try_from(entry.who.time).unwrap_or(i64::MAX) <= time,
        };
        if !is_it {
            self.count += 1;
            self.newer = Some(entry);
            return true;
        }
        let before_newer = self.newer.as_ref().map(|newer| newer.old);
        self.answer = Some(match before_newer.filter(|old| !old.is_null()) {
            Some(old) => {
                if old != entry.new {
                    let time = time_of(&entry);
                    self.warning = Some(format!("log for ref {name} has gap after {time}"));
                }
                entry.new
            }
            None if matches!(self.wanted, Wanted::Time(time) if u64::try_from(time) == Ok(entry.who.time)) => {
                entry.new
            }
            None => {
                if entry.new != self.current {
                    let time = time_of(&entry);
                    self.warning = Some(format!("log for ref {name} unexpectedly ended on {time}"));
                }
                self.current
            }
        });
        false
    }
}

/// Returns the time of an entry as mail headers show it.
fn time_of(entry: &LogEntry) -> String {
    date::mail_date(entry.who.time, entry.who.zone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_split_off() {
        let entry = |name: &'static [u8], entry: &'static [u8]| Split::Entry { name, entry };
        assert_eq!(split(b"main@{1}"), entry(b"main", b"1"));
        assert_eq!(split(b"@{now}"), entry(b"", b"now"));
        assert_eq!(split(b"main@{u}@{2}"), entry(b"main@{u}", b"2"));
        assert_eq!(split(b"main@{u}"), Split::Nothing);
        assert_eq!(split(b"@{-1}"), Split::Nothing);
        assert_eq!(split(b"main@{-1}"), Split::Invalid);
        assert_eq!(split(b"@{}"), Split::Nothing);
        assert_eq!(split(b"main"), Split::Nothing);
    }
}
