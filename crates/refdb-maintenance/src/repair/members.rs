//! Which tables belong into a stack, and what else lies in its folder.
//!
//! Invariants:
//! 1. What the list names belongs there as far as anything of it can be read, whatever else lies beside it.
//! 2. What the list does not name fills only places of which no listed table says anything, or takes the place of
//!    several of which one is damaged: then it is what compaction made of them. Behind a list in another order that
//!    was cut, it goes on from the last line, with what no listed table has.
//! 3. A file of which nothing can be read stands before no other.
//! 4. Listed tables whose update indices are in another order all belong there, in the order of the list, as Git reads
//!    them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use bstr::ByteSlice;
use refdb::internals::{is_table_name, is_unfinished, may_be_listed};
use refdb::{Error, Result};
use reftable::{ObjectFormat, Table};

use super::overlap::overlapping;
use super::{Options, Plan};
use crate::verify::{Damage, Repair, indices_of_name};

/// A file that may belong into the stack, or listed ones whose update indices are not in the order of the list.
#[derive(Clone)]
struct Candidate {
    name: String,
    /// The names of those that follow it in the list.
    with: Vec<String>,
    /// Its update indices.
    range: (u64, u64),
    /// Its place in the list.
    line: Option<usize>,
    state: State,
    /// When it was written.
    modified: i128,
}

/// How much a file can say, most first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Whole,
    Damaged,
    /// Nothing of it can be read, or it is not there.
    Empty,
}

/// What a damaged list still says.
struct List<'l> {
    names: Vec<&'l str>,
    /// Whether more tables may have been listed behind those.
    is_cut: bool,
}

impl<'l> List<'l> {
    /// Reads a list, of whose last line only the beginning may be left: it is the one of `files` that begins so.
    fn read(text: &'l str, files: &'l BTreeSet<String>) -> List<'l> {
        let mut names: Vec<&str> = text.lines().filter(|name| may_be_listed(name)).collect();
        let last = text.lines().next_back().unwrap_or_default();
        // A line that names no file is one of which some bytes are wrong, or lost.
        let is_whole = files.contains(last);
        if !is_whole && !text.ends_with('\n') && !last.is_empty() {
            names.retain(|name| *name != last);
            let mut begin_so = files.iter().filter(|name| name.starts_with(last));
            if let (Some(name), None) = (begin_so.next(), begin_so.next()) {
                names.push(name);
            }
        }
        let is_cut = names.is_empty() || !is_whole;
        List { names, is_cut }
    }
}

impl Plan<'_> {
    /// Returns the tables that belong into the stack: those of the list, or, where the list is damaged, those that
    /// say what the stack said.
    pub(super) fn members(
        &self,
        dir: &Path,
        list: Option<&[u8]>,
        format: ObjectFormat,
        has_good_list: bool,
    ) -> Result<Vec<String>> {
        let text = list.unwrap_or_default().to_str_lossy();
        if has_good_list {
            let names = text.lines().filter(|name| may_be_listed(name));
            return Ok(names.map(str::to_owned).collect());
        }
        let entries = self.repository.system().read_dir(dir);
        let entries = entries.map_err(|error| Error::io("unable to read", dir, error))?;
        let files = entries
            .into_iter()
            .filter_map(|entry| String::from_utf8(entry.name).ok());
        let files: BTreeSet<String> = files.collect();
        let list = List::read(&text, &files);
        let tables = files
            .iter()
            .map(String::as_str)
            .filter(|name| is_table_name(name));
        let names: BTreeSet<&str> = tables.chain(list.names.iter().copied()).collect();
        // Of a table that is listed twice Git reads the later line first.
        let lines: BTreeMap<&str, usize> = list.names.iter().copied().zip(0..).collect();
        let mut found = Vec::new();
        for name in names {
            found.extend(self.candidate(dir, name, lines.get(name).copied(), format)?);
        }
        Ok(chosen(found, list.is_cut))
    }

    /// Looks at a file; `None` if nobody can say where in the stack it would belong.
    fn candidate(
        &self,
        dir: &Path,
        name: &str,
        line: Option<usize>,
        format: ObjectFormat,
    ) -> Result<Option<Candidate>> {
        let path = dir.join(name);
        let content = self.content(&path)?.unwrap_or_default();
        let named = indices_of_name(name);
        let is_range = |(min, max): &(u64, u64)| min <= max;
        let (stated, state) = if let Some(table) = whole_table(content.clone(), name, format) {
            let stated = (table.min_update_index(), table.max_update_index());
            (Some(stated), State::Whole)
        } else {
            let (min, max) = sensible(named).unwrap_or((1, u64::MAX - 1));
            let salvaged = reftable::salvage(content, format, min..=max);
            let stated = (salvaged.min_update_index, salvaged.max_update_index);
            match salvaged.is_empty() {
                true => (None, State::Empty),
                false => (Some(stated), State::Damaged),
            }
        };
        let stat = self.repository.system().lstat(&path);
        // A name that makes no sense says less than a header.
        let range = named.filter(is_range).or(stated.filter(is_range));
        let range = range.or(sensible(named));
        Ok(range.map(|range| Candidate {
            name: name.to_owned(),
            with: Vec::new(),
            range,
            line,
            state,
            modified: stat.map_or(0, |stat| stat.mtime_ns),
        }))
    }

    /// Takes away what lies beside the tables of a stack whose list is damaged: what belongs there was not to be
    /// told before it was known which tables do.
    pub(super) fn others_in_folder(
        &mut self,
        dir: &Path,
        members: &[String],
        found: &[Damage],
        options: Options,
    ) -> Result<()> {
        let entries = self.repository.system().read_dir(dir);
        let entries = entries.map_err(|error| Error::io("unable to read", dir, error))?;
        let members: BTreeSet<&str> = members.iter().map(String::as_str).collect();
        let by_hand = found
            .iter()
            .filter(|damage| damage.repair == Repair::ByHand);
        let by_hand: BTreeSet<&Path> = by_hand.map(|damage| damage.file.as_path()).collect();
        for entry in entries {
            let Ok(name) = std::str::from_utf8(&entry.name) else {
                continue;
            };
            let is_leftover = is_table_name(name) || is_unfinished(name) || name.ends_with(".lock");
            let path = dir.join(name);
            if is_leftover && !members.contains(name) && !by_hand.contains(path.as_path()) {
                self.leftover(&path, options);
            }
        }
        Ok(())
    }
}

/// Chosen files, none of which has an update index in common with another, by the first of each.
#[derive(Default)]
struct Chosen(BTreeMap<u64, Candidate>);

impl Chosen {
    /// Takes a file, unless it has an update index in common with another.
    fn take(&mut self, it: Candidate) {
        let last = self.0.range(..=it.range.1).next_back();
        if last.is_none_or(|(_, last)| last.range.1 < it.range.0) {
            self.0.insert(it.range.0, it);
        }
    }

    fn take_all(&mut self, all: Vec<Candidate>) {
        all.into_iter().for_each(|it| self.take(it));
    }

    fn into_names(self) -> Vec<String> {
        let names = |it: Candidate| std::iter::once(it.name).chain(it.with);
        self.0.into_values().flat_map(names).collect()
    }

    fn newest(&self) -> Option<&Candidate> {
        self.0.last_key_value().map(|(_, it)| it)
    }

    /// Adds what followed in the list to tables that stood there in another order: the next update index is the one
    /// behind that of the last line, and may be less than others of theirs.
    fn go_on(&mut self, others: &[Candidate]) {
        let Some(mut newest) = self.0.last_entry() else {
            return;
        };
        let all = newest.get_mut();
        let Some((_, mut last)) = all.with.last().and_then(|name| indices_of_name(name)) else {
            return;
        };
        let listed = std::iter::once(&all.name).chain(&all.with);
        let listed: Vec<(u64, u64)> = listed
            .filter_map(|name| indices_of_name(name))
            .map(|(first, last)| (first.min(last), first.max(last)))
            .collect();
        for it in others {
            // What one of them has was left by a compaction.
            let is_left = |of: &(u64, u64)| of.0 <= it.range.0 && it.range.1 <= of.1;
            if it.range.0 == last.saturating_add(1)
                && it.range.0 <= all.range.1
                && !listed.iter().any(is_left)
            {
                last = it.range.1;
                all.range.1 = last.max(all.range.1);
                all.with.push(it.name.clone());
            }
        }
    }

    /// Puts a whole file in the place of several that begin and end with it, of which one is not.
    fn replace_by(&mut self, it: &Candidate) {
        if it.state != State::Whole {
            return;
        }
        let within: Vec<&Candidate> = self
            .0
            .range(it.range.0..=it.range.1)
            .map(|(_, one)| one)
            .collect();
        if let [first, .., last] = within.as_slice()
            && (first.range.0, last.range.1) == it.range
            && within.iter().any(|one| one.state != State::Whole)
        {
            let gone: Vec<u64> = within.iter().map(|one| one.range.0).collect();
            for first in gone {
                self.0.remove(&first);
            }
            self.0.insert(it.range.0, it.clone());
        }
    }
}

/// Chooses the files of a stack with a damaged list, behind whose end more may have been listed.
fn chosen(found: Vec<Candidate>, is_cut: bool) -> Vec<String> {
    let (listed, others): (Vec<_>, Vec<_>) = found.into_iter().partition(|it| it.line.is_some());
    let mut listed = together(listed);
    let (empty, mut others): (Vec<Candidate>, Vec<Candidate>) =
        others.into_iter().partition(|it| it.state == State::Empty);
    // Of those that begin alike the widest, which compaction made of others, then the newest: a writer that died
    // wrote before the one whose table was listed.
    others.sort_by_key(|it| (it.range.0, u64::MAX - it.range.1, it.state, -it.modified));
    listed.sort_by_key(|it| (it.state, it.range));
    let mut chosen = Chosen::default();
    chosen.take_all(listed);
    others.iter().for_each(|it| chosen.replace_by(it));
    fill_empty(&mut chosen, &others);
    let whole = ranges_of(others.iter().filter(|it| it.state == State::Whole));
    let is_superfluous = |it: &Candidate| {
        let at = whole.partition_point(|range| range.1 < it.range.1);
        it.state == State::Damaged && whole.get(at).is_some_and(|range| range.0 <= it.range.0)
    };
    others.retain(|it| !is_superfluous(it));
    if is_cut {
        chosen.go_on(&others);
    }
    let newest = chosen.newest().map(|it| (it.range.1, it.modified));
    let mut behind = Chosen::default();
    for it in others {
        match newest {
            Some((last, _)) if it.range.0 > last => behind.take(it),
            _ => chosen.take(it),
        }
    }
    let Some((last, modified)) = newest else {
        chosen.take_all(empty);
        return chosen.into_names();
    };
    let mut next = last.saturating_add(1);
    let follow = behind.0.into_values().take_while(|it| {
        // Compaction may have written the newest of the list after those that followed it.
        let follows = it.range.0 == next && (is_cut || it.modified >= modified);
        next = it.range.1.saturating_add(1);
        follows
    });
    let follow: Vec<Candidate> = follow.collect();
    // One alone is what a writer left that died.
    let is_lost = is_cut || follow.len() > 1;
    if is_lost {
        chosen.take_all(follow);
    }
    // It is to be told of what nothing can be read, where no other says it.
    if is_cut {
        chosen.take_all(empty);
    }
    chosen.into_names()
}

/// Makes one of listed files that say something and whose update indices are not in the order of the list.
fn together(mut listed: Vec<Candidate>) -> Vec<Candidate> {
    listed.sort_by_key(|it| it.line);
    let (empty, listed): (Vec<Candidate>, Vec<Candidate>) =
        listed.into_iter().partition(|it| it.state == State::Empty);
    let groups = overlapping(listed, |it| it.range);
    empty
        .into_iter()
        .chain(groups.into_iter().filter_map(joined))
        .collect()
}

fn joined(group: Vec<Candidate>) -> Option<Candidate> {
    let mut files = group.into_iter();
    let mut all = files.next()?;
    for it in files {
        all.with.push(it.name);
        all.range = (all.range.0.min(it.range.0), all.range.1.max(it.range.1));
        all.state = all.state.max(it.state);
        all.modified = all.modified.max(it.modified);
    }
    Some(all)
}

/// Puts files that say something in the places of listed ones that do not.
fn fill_empty(chosen: &mut Chosen, others: &[Candidate]) {
    let empty: Vec<Candidate> = chosen
        .0
        .values()
        .filter(|it| it.state == State::Empty)
        .cloned()
        .collect();
    for it in empty {
        let from = others.partition_point(|one| one.range.0 < it.range.0);
        let within = others
            .iter()
            .skip(from)
            .take_while(|one| one.range.0 <= it.range.1);
        let mut within: Vec<&Candidate> = within.filter(|one| one.range.1 <= it.range.1).collect();
        if within.is_empty() {
            continue;
        }
        // Of the name on the list only some bytes may be wrong.
        let shared = |one: &Candidate| {
            let mut both = one.name.bytes().zip(it.name.bytes());
            both.position(|(a, b)| a != b).unwrap_or(it.name.len())
        };
        within.sort_by_key(|one| {
            let width = one.range.1 - one.range.0;
            (u64::MAX - width, usize::MAX - shared(one), -one.modified)
        });
        chosen.0.remove(&it.range.0);
        within.into_iter().for_each(|one| chosen.take(one.clone()));
    }
}

/// Returns the update indices of these files, sorted by them, as ranges without a gap.
fn ranges_of<'c>(files: impl Iterator<Item = &'c Candidate>) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for it in files {
        match ranges.last_mut() {
            Some(last) if it.range.0 <= last.1.saturating_add(1) => last.1 = last.1.max(it.range.1),
            _ => ranges.push(it.range),
        }
    }
    ranges
}

/// Returns the update indices that a name says; from the least one on those of the records are counted. Those of the next
/// table follow the last one, also where it is less than the first.
pub(super) fn sensible(named: Option<(u64, u64)>) -> Option<(u64, u64)> {
    named.map(|(min, max)| (min.min(max), max))
}

/// Returns the table that a file is, if all of it is as it should be.
pub(super) fn whole_table(content: Vec<u8>, name: &str, format: ObjectFormat) -> Option<Table> {
    let table = Table::open(content)
        .ok()
        .filter(|table| table.object_format() == format)?;
    let stated = (table.min_update_index(), table.max_update_index());
    let is_named = indices_of_name(name).is_none_or(|named| named == stated);
    (is_named && reftable::check(&table).is_empty()).then_some(table)
}

/// Returns whether the check found no damage of the list of a stack.
pub(super) fn has_good_list(dir: &Path, found: &[Damage]) -> bool {
    !found
        .iter()
        .any(|damage| damage.repair == Repair::RebuildList && damage.file.starts_with(dir))
}

#[cfg(test)]
mod tests {
    use super::*;
    use State::{Damaged, Empty, Whole};

    fn file(name: &str, range: (u64, u64), is_listed: bool, state: State) -> Candidate {
        let (name, modified) = (name.to_owned(), i128::from(range.1));
        Candidate {
            name,
            with: Vec::new(),
            range,
            line: is_listed.then_some(0),
            state,
            modified,
        }
    }

    fn one() -> Candidate {
        file("1", (1, 1), true, Whole)
    }

    fn two(state: State) -> Candidate {
        file("2", (2, 2), true, state)
    }

    fn all(state: State) -> Candidate {
        file("1-3", (1, 3), false, state)
    }

    #[test]
    fn the_list_counts_as_far_as_its_tables_say_anything() {
        let three = || file("3", (3, 3), true, Whole);
        let dead = || file("dead", (2, 2), false, Whole);
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
            (
                vec![one(), two(Damaged), three(), all(Damaged)],
                vec!["1", "2", "3"],
            ),
            (
                vec![one(), two(Damaged), three(), all(Empty)],
                vec!["1", "2", "3"],
            ),
            // It says what a damaged table does not.
            (vec![one(), two(Damaged), three(), all(Whole)], vec!["1-3"]),
            (vec![one(), two(Empty), three(), all(Whole)], vec!["1-3"]),
            (vec![one(), two(Empty), three()], vec!["1", "2", "3"]),
            // What a writer left that died, or compaction merged.
            (vec![one(), two(Damaged), dead()], vec!["1", "2"]),
            (vec![one(), two(Empty), dead()], vec!["1", "dead"]),
            (
                vec![file("1-5", (1, 5), true, Damaged), dead()],
                vec!["1-5"],
            ),
            (
                vec![one(), two(Whole), file("x", (3, 3), false, Whole)],
                vec!["1", "2"],
            ),
        ] {
            assert_eq!(chosen(found, false), expected);
        }
    }

    #[test]
    fn listed_tables_with_update_indices_in_common_stay_in_the_order_of_the_list() {
        let listed = |name, range, line, state| Candidate {
            line: Some(line),
            ..file(name, range, true, state)
        };
        let found = |state| {
            vec![
                listed("3-4", (3, 4), 2, state),
                listed("2-3", (2, 3), 3, Whole),
                listed("1", (1, 1), 1, Whole),
                listed("empty", (4, 4), 4, Empty),
                file("merged", (2, 4), false, Whole),
            ]
        };
        for state in [Whole, Damaged] {
            assert_eq!(chosen(found(state), false), ["1", "3-4", "2-3"]);
        }
    }

    #[test]
    fn what_goes_on_behind_another_order_is_whole_and_in_no_listed_table() {
        let name = |first: u64, last: u64| format!("0x{first:012x}-0x{last:012x}-00000000.ref");
        let listed = |first, last, line| Candidate {
            line: Some(line),
            ..file(&name(first, last), (first, last), true, Whole)
        };
        let other = |first, last, state| file(&name(first, last), (first, last), false, state);
        let cut = |listed: [Candidate; 2], others: &[Candidate]| {
            chosen(
                listed.into_iter().chain(others.iter().cloned()).collect(),
                true,
            )
        };
        let four = || listed(4, 4, 2);
        let follow = [other(5, 5, Whole), other(6, 6, Whole), other(5, 6, Damaged)];
        let all = [name(9, 9), name(4, 4), name(5, 5), name(6, 6)];
        assert_eq!(cut([listed(9, 9, 1), four()], &follow), all);
        assert_eq!(
            cut([listed(5, 9, 1), four()], &follow[..1]),
            [name(5, 9), name(4, 4)]
        );
    }

    #[test]
    fn without_a_list_what_says_most_counts() {
        let of = |found: &[(&str, (u64, u64), State)]| {
            let found = found
                .iter()
                .map(|(name, range, state)| file(name, *range, false, *state));
            chosen(found.collect(), true)
        };
        let narrow = [("1", (1, 1), Whole), ("2", (2, 2), Whole)];
        assert_eq!(
            of(&[narrow[0], narrow[1], ("1-2", (1, 2), Damaged)]),
            ["1", "2"]
        );
        assert_eq!(of(&[narrow[0], narrow[1], ("1-2", (1, 2), Whole)]), ["1-2"]);
        assert_eq!(of(&[narrow[0], ("1-2", (1, 2), Damaged)]), ["1-2"]);
        assert_eq!(
            of(&[narrow[0], narrow[1], ("1-2", (1, 2), Empty)]),
            ["1", "2"]
        );
    }

    #[test]
    fn what_follows_a_list_that_was_cut_belongs_to_it_unless_it_is_older() {
        let behind = |at| file("behind", (at, at), false, Whole);
        let follow = vec![one(), behind(2), behind(3)];
        assert_eq!(chosen(follow.clone(), false), ["1", "behind", "behind"]);
        assert_eq!(chosen(vec![one(), behind(2)], false), ["1"]);
        assert_eq!(chosen(vec![one(), behind(2)], true), ["1", "behind"]);
        let mut newer = follow;
        newer[0].modified = 10;
        assert_eq!(chosen(newer.clone(), false), ["1"]);
        assert_eq!(chosen(newer, true), ["1", "behind", "behind"]);
        let lost = file("lost", (2, 2), false, Empty);
        assert_eq!(chosen(vec![one(), lost.clone()], true), ["1", "lost"]);
        assert_eq!(chosen(vec![one(), lost], false), ["1"]);
    }

    #[test]
    fn the_beginning_of_a_name_is_enough_if_it_is_the_only_one() {
        let files = ["abc.ref", "abd.ref", "x.ref"]
            .map(str::to_owned)
            .into_iter()
            .collect();
        let read = |text| {
            let list = List::read(text, &files);
            (list.names, list.is_cut)
        };
        assert_eq!(read("x.ref\nabc.ref"), (vec!["x.ref", "abc.ref"], false));
        assert_eq!(read("x.ref\nab"), (vec!["x.ref"], true));
        assert_eq!(read("x.ref\nabc.re"), (vec!["x.ref", "abc.ref"], true));
        assert_eq!(read(""), (vec![], true));
        assert_eq!(read("x.ref\nabe.ref\n"), (vec!["x.ref", "abe.ref"], true));
    }
}
