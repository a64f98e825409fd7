//! Which tables belong into a stack, and what else lies in its folder.
//!
//! Invariant: no file that says nothing stands before a table that is whole, and none that is whole goes unless
//! others say all that it says.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use bstr::ByteSlice;
use refdb::internals::{is_table_name, is_unfinished, may_be_listed};
use refdb::{Error, Result};
use reftable::{HashId, Table};

use super::{Options, Plan};
use crate::verify::{Damage, Repair, indices_of_name};

/// A file that may belong into the stack.
struct Candidate {
    name: String,
    /// Its update indices.
    range: (u64, u64),
    is_listed: bool,
    state: State,
}

/// How much a file can say, most first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Whole,
    Damaged,
    Missing,
}

impl Plan<'_> {
    /// Returns the tables that belong into the stack: those of the list, or, where the list is damaged, those that
    /// say most of what the stack said.
    pub(super) fn members(
        &self,
        dir: &Path,
        list: Option<&[u8]>,
        hash: HashId,
        has_good_list: bool,
    ) -> Result<Vec<String>> {
        let text = list.unwrap_or_default().to_str_lossy();
        let listed: BTreeSet<&str> = text.lines().filter(|name| may_be_listed(name)).collect();
        if has_good_list {
            let names = text.lines().filter(|name| may_be_listed(name));
            return Ok(names.map(str::to_owned).collect());
        }
        let mut names: BTreeSet<String> = listed.iter().map(|name| (*name).to_owned()).collect();
        let entries = self.repository.system().read_dir(dir);
        for entry in entries.map_err(|error| Error::io("unable to read", dir, error))? {
            names.extend(
                String::from_utf8(entry.name)
                    .ok()
                    .filter(|name| is_table_name(name)),
            );
        }
        let mut found = Vec::new();
        for name in names {
            let is_listed = listed.contains(name.as_str());
            found.extend(self.candidate(dir, name, is_listed, hash)?);
        }
        Ok(chosen(found))
    }

    /// Looks at a file; `None` if nobody can say where in the stack it would belong.
    fn candidate(
        &self,
        dir: &Path,
        name: String,
        is_listed: bool,
        hash: HashId,
    ) -> Result<Option<Candidate>> {
        let content = self.content(&dir.join(&name))?;
        let state = match &content {
            None => State::Missing,
            Some(content) if whole_table(content.clone(), &name, hash).is_some() => State::Whole,
            Some(_) => State::Damaged,
        };
        let said = || {
            let salvaged = reftable::salvage(content?, hash, 1..=u64::MAX - 1);
            let range = (salvaged.min_update_index, salvaged.max_update_index);
            (!salvaged.is_empty()).then_some(range)
        };
        let range = indices_of_name(&name).or_else(said);
        let range = range.filter(|(min, max)| min <= max);
        Ok(range.map(|range| Candidate {
            name,
            range,
            is_listed,
            state,
        }))
    }

    /// Takes away what lies beside the tables of a stack whose list is damaged: what belongs there was not to be
    /// told before it was known which tables do.
    pub(super) fn others_in_folder(
        &mut self,
        dir: &Path,
        members: &[String],
        options: Options,
    ) -> Result<()> {
        let entries = self.repository.system().read_dir(dir);
        let entries = entries.map_err(|error| Error::io("unable to read", dir, error))?;
        for entry in entries {
            let Ok(name) = std::str::from_utf8(&entry.name) else {
                continue;
            };
            let is_leftover = is_table_name(name) || is_unfinished(name) || name.ends_with(".lock");
            if is_leftover && !members.iter().any(|member| member == name) {
                self.leftover(&dir.join(name), options);
            }
        }
        Ok(())
    }
}

/// Chooses files that have no update index in common: whole ones before damaged ones, and of those that begin alike
/// the widest, which compaction made of the others.
fn chosen(mut found: Vec<Candidate>) -> Vec<String> {
    found.sort_by_key(|it| (it.state, it.range.0, u64::MAX - it.range.1, !it.is_listed));
    // What listed tables say that are whole, as ranges without a gap.
    let mut said: Vec<(u64, u64)> = Vec::new();
    for it in found
        .iter()
        .filter(|it| it.is_listed && it.state == State::Whole)
    {
        match said.last_mut() {
            Some(last) if it.range.0 <= last.1.saturating_add(1) => last.1 = last.1.max(it.range.1),
            _ => said.push(it.range),
        }
    }
    let is_said = |it: &Candidate| {
        let before = said.partition_point(|range| range.1 < it.range.1);
        said.get(before).is_some_and(|range| range.0 <= it.range.0)
    };
    let mut chosen: BTreeMap<u64, (u64, String)> = BTreeMap::new();
    for it in found {
        // Compaction may have written its result and not listed it.
        let is_superfluous = !it.is_listed && it.state == State::Whole && is_said(&it);
        let (min, max) = it.range;
        let last = chosen.range(..=max).next_back();
        if !is_superfluous && last.is_none_or(|(_, (last, _))| *last < min) {
            chosen.insert(min, (max, it.name));
        }
    }
    chosen.into_values().map(|(_, name)| name).collect()
}

/// Returns the table that a file is, if all of it is as it should be.
pub(super) fn whole_table(content: Vec<u8>, name: &str, hash: HashId) -> Option<Table> {
    let table = Table::open(content)
        .ok()
        .filter(|table| table.hash() == hash)?;
    let stated = (table.min_update_index(), table.max_update_index());
    let is_named = indices_of_name(name).is_none_or(|named| named == stated);
    (is_named && reftable::check(&table).is_empty()).then_some(table)
}

/// Returns whether the check found the list of a stack damaged.
pub(super) fn has_good_list(dir: &Path, found: &[Damage]) -> bool {
    !found
        .iter()
        .any(|damage| damage.repair == Repair::RebuildList && damage.file.starts_with(dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, range: (u64, u64), is_listed: bool, state: State) -> Candidate {
        Candidate {
            name: name.to_owned(),
            range,
            is_listed,
            state,
        }
    }

    #[test]
    fn what_says_most_is_chosen() {
        use State::{Damaged, Missing, Whole};
        let one = || file("1", (1, 1), true, Whole);
        let two = |state| file("2", (2, 2), true, state);
        let three = || file("3", (3, 3), true, Whole);
        let all = |state| file("1-3", (1, 3), false, state);
        for (found, expected) in [
            // A result of compaction that nobody listed, whole or not.
            (
                vec![one(), two(Whole), three(), all(Whole)],
                vec!["1", "2", "3"],
            ),
            (
                vec![one(), two(Whole), three(), all(Damaged)],
                vec!["1", "2", "3"],
            ),
            // It says what a damaged table does not.
            (vec![one(), two(Damaged), three(), all(Whole)], vec!["1-3"]),
            (vec![one(), two(Missing), all(Whole)], vec!["1-3"]),
            (vec![one(), two(Missing), three()], vec!["1", "2", "3"]),
            (vec![two(Damaged), all(Damaged)], vec!["1-3"]),
            // Of two with the same indices, the one that is listed.
            (
                vec![file("x", (2, 2), false, Whole), one(), two(Whole)],
                vec!["1", "2"],
            ),
        ] {
            assert_eq!(chosen(found), expected);
        }
    }
}
