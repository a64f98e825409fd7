//! Name conflicts: a ref `a` and a ref `a/b` cannot both exist.
//!
//! The whole transaction is checked in passes over sorted names. One pass walks the distinct
//! parents of all new names, another what lies below the new names, each together with a cursor
//! over the store that only moves forward: a stack full of tombstones is read through once and not
//! once for each name. Only when a pass meets a conflict is it worked out, in Git's order, which
//! updates are refused and with which words. With `core.ignoreCase`, each new name with a capital is
//! looked for once more.

use std::collections::{HashMap, HashSet};

use bstr::ByteSlice;
use refdb_names::RefName;
use refdb_names::internals::name_from_disk;
use reftable::short::{common_prefix, has_prefix};

use crate::backend::cursor::{Cursor, Found};
use crate::backend::{Session, in_the_way};
use crate::error::{Reason, Result};

use super::expand::{Current, Expansion};

/// Refuses every update that would bring a ref into conflict with another.
pub(super) fn check(
    expansion: &mut Expansion<'_>,
    session: &mut dyn Session,
    initial: bool,
) -> Result<()> {
    if !expansion.misses_any() {
        return Ok(());
    }
    let Names {
        values,
        parents,
        nested,
    } = Names::of(expansion);
    let is_new = |&update: &usize| expansion.updates[update].current == Current::Missing;
    if !values.iter().any(is_new) {
        return Ok(());
    }
    let mut clashes = Clashes::default();
    if !initial {
        let new = values.iter().copied().filter(is_new);
        look_apart(expansion, new, session, &mut clashes)?;
        let mut walk = Walk::new(session.names()?);
        for &parent in &parents {
            if walk.has(parent)? && !expansion.gives_way(parent) {
                clashes.existing_parents.insert(parent.to_vec());
            }
        }
        let is_alone = |update: usize| expansion.updates[update].alone;
        let new = values.iter().copied();
        let new = new.filter(|update| is_new(update) && !is_alone(*update));
        find_children(expansion, new, &mut walk, &mut clashes)?;
    }
    if !clashes.is_empty() || nested {
        refuse(expansion, &clashes)?;
    }
    match expansion.quirks.asks_in_lower_case && !initial && expansion.queue.log_move.is_none() {
        true => refuse_in_lower_case(expansion, session),
        false => Ok(()),
    }
}

/// What the store holds that is in the way of new names.
#[derive(Default)]
struct Clashes {
    /// Refs that are a parent of a new name.
    existing_parents: HashSet<Vec<u8>>,
    /// For an update: the first ref below its name.
    children: HashMap<usize, Vec<u8>>,
}

impl Clashes {
    fn is_empty(&self) -> bool {
        self.existing_parents.is_empty() && self.children.is_empty()
    }

    /// Notes a ref below the name of an update; of several the first one counts.
    fn found_below(&mut self, update: usize, child: &[u8]) {
        let known = self.children.get(&update);
        if known.is_none_or(|known| child < known.as_slice()) {
            self.children.insert(update, child.to_vec());
        }
    }
}

/// The names that a transaction gives values to, or verifies.
struct Names<'e> {
    /// The updates, in the order of `name/`.
    values: Vec<usize>,
    /// Every proper parent of a new name, once and sorted.
    parents: Vec<&'e [u8]>,
    /// Whether one of the names is a parent of another.
    nested: bool,
}

impl<'e> Names<'e> {
    fn of(expansion: &'e Expansion<'_>) -> Self {
        let name = |update: usize| expansion.name(update).as_bytes();
        let mut values: Vec<usize> = expansion
            .by_name()
            .filter(|&update| takes_place(expansion, update))
            .collect();
        let mut parents_of_new: Vec<&[u8]> = Vec::new();
        let (mut nested, mut sorted) = (false, true);
        let mut previous: &[u8] = b"";
        let mut known: &[u8] = b"";
        for &update in &values {
            let name = name(update);
            if has_prefix(name, previous)
                && let Some(&next) = name.get(previous.len())
            {
                // `a-b` sorts before `a/`, and `a` before both.
                nested |= next == b'/';
                sorted &= next >= b'/';
            }
            previous = name;
            if expansion.updates[update].current == Current::Missing {
                // Parents that end within what this name shares with the one before are known.
                let shared = common_prefix(known, name);
                parents_of_new.extend(parents(name, shared));
                known = name;
            }
        }
        if !sorted {
            let below = |update: usize| name(update).iter().chain(b"/");
            values.sort_by(|&low, &high| below(low).cmp(below(high)));
            nested = !values.is_sorted_by(|&low, &high| !is_below(name(low), name(high)));
        }
        parents_of_new.sort_unstable();
        parents_of_new.dedup();
        Names {
            values,
            parents: parents_of_new,
            nested,
        }
    }
}

/// Returns whether an update needs its name for itself: if it gives a value, or, where reflogs are
/// files, if it is about a reflog alone.
fn takes_place(expansion: &Expansion<'_>, update: usize) -> bool {
    let state = &expansion.updates[update];
    let only_log = || expansion.queue.is_log_only(expansion.edit(update));
    !state.rejected
        && (!state.log_only || expansion.quirks.names_are_paths && only_log())
        && !expansion.gives_way(expansion.name(update).as_bytes())
}

/// Returns the updates of refs that do not exist, in the order in which they were added.
fn new_names(expansion: &Expansion<'_>) -> Vec<usize> {
    let is_new = |&update: &usize| {
        expansion.updates[update].current == Current::Missing && takes_place(expansion, update)
    };
    (0..expansion.updates.len()).filter(is_new).collect()
}

/// Returns whether `name` is that of a ref below `parent`.
fn is_below(parent: &[u8], name: &[u8]) -> bool {
    name.strip_prefix(parent)
        .is_some_and(|rest| rest.starts_with(b"/"))
}

/// Returns the proper parents of a name that are at least `len` bytes long, shortest first.
fn parents(name: &[u8], len: usize) -> impl Iterator<Item = &[u8]> {
    let bytes = name.iter().enumerate().skip(len);
    bytes.filter_map(|(at, &byte)| (byte == b'/').then(|| name.get(..at)).flatten())
}

/// Finds what is in the way of new names outside of `refs/`: they can be those of other worktrees,
/// whose refs no walk passes, and a walk passes over most refs there as well.
fn look_apart(
    expansion: &Expansion<'_>,
    new: impl Iterator<Item = usize>,
    session: &mut dyn Session,
    clashes: &mut Clashes,
) -> Result<()> {
    for update in new {
        let name = expansion.name(update);
        if name.as_bytes().starts_with(b"refs/") && expansion.queue.log_move.is_none() {
            continue;
        }
        for parent in parents(name.as_bytes(), 0).filter(|it| !expansion.gives_way(it)) {
            if session.has_apart(name_from_disk(parent))? {
                clashes.existing_parents.insert(parent.to_vec());
            }
        }
        if let Some(child) = session.first_below_apart(name)? {
            clashes.found_below(update, child.as_bytes());
        }
    }
    Ok(())
}

/// Finds the refs below new names, which come in the order of `name/`.
fn find_children(
    expansion: &Expansion<'_>,
    new: impl Iterator<Item = usize>,
    walk: &mut Walk<'_>,
    clashes: &mut Clashes,
) -> Result<()> {
    walk.restart();
    let mut key = Vec::new();
    for update in new {
        key.clear();
        key.extend_from_slice(expansion.name(update).as_bytes());
        key.push(b'/');
        let mut found = walk.first_from(&key)?;
        if let Some(name) = found.filter(|name| expansion.gives_way(name)) {
            let behind = [name, b"\0"].concat();
            found = walk.first_from(&behind)?;
        }
        if let Some(found) = found.filter(|found| found.starts_with(&key)) {
            clashes.found_below(update, found);
        }
    }
    Ok(())
}

/// A cursor that is asked for ascending names and remembers the gap in which it stands, so that
/// names that fall into one gap cost nothing.
struct Walk<'c> {
    cursor: Box<dyn Cursor + 'c>,
    state: Gap,
}

enum Gap {
    /// Nothing is known.
    Unknown,
    /// There is no ref from the names asked for up to the cursor's.
    BeforeRecord,
    /// There is no ref from the names asked for on.
    BeforeEnd,
}

impl<'c> Walk<'c> {
    fn new(cursor: Box<dyn Cursor + 'c>) -> Self {
        Walk {
            cursor,
            state: Gap::Unknown,
        }
    }

    /// Allows names to be asked for from the start again.
    fn restart(&mut self) {
        self.state = Gap::Unknown;
    }

    /// Returns whether what is known tells the first ref from `name` on.
    fn is_ahead(&self, name: &[u8]) -> bool {
        match self.state {
            Gap::Unknown => false,
            Gap::BeforeRecord => self.cursor.name().as_bytes() >= name,
            Gap::BeforeEnd => true,
        }
    }

    /// Returns whether there is a ref of that name; `name` must not be less than the one before.
    fn has(&mut self, name: &[u8]) -> Result<bool> {
        if !self.is_ahead(name) {
            self.state = match self.cursor.look_at(name)? {
                Found::Ref => Gap::BeforeRecord,
                Found::End => Gap::BeforeEnd,
                Found::Nothing => Gap::Unknown,
            };
        }
        let stands = matches!(self.state, Gap::BeforeRecord);
        Ok(stands && self.cursor.name().as_bytes() == name)
    }

    /// Returns the first ref from `name` on; `name` must not be less than the one before.
    fn first_from(&mut self, name: &[u8]) -> Result<Option<&[u8]>> {
        if !self.is_ahead(name) {
            self.cursor.seek(name, b"")?;
            let found = self.cursor.advance()?;
            self.state = if found {
                Gap::BeforeRecord
            } else {
                Gap::BeforeEnd
            };
        }
        Ok(match self.state {
            Gap::BeforeRecord => Some(self.cursor.name().as_bytes()),
            Gap::Unknown | Gap::BeforeEnd => None,
        })
    }
}

/// Refuses in Git's order: update by update as they were added, for each its parents from the
/// shortest on, then what is below it.
fn refuse(expansion: &mut Expansion<'_>, clashes: &Clashes) -> Result<()> {
    let new = new_names(expansion);
    if expansion.quirks.names_are_paths {
        refuse_over_locks(expansion, clashes, &new)?;
    }
    for update in new {
        if expansion.updates[update].rejected {
            continue;
        }
        let name = expansion.name(update);
        if let Some(message) = conflict_of(expansion, clashes, update, name) {
            expansion.reject(update, Reason::NameConflict, message)?;
        }
    }
    Ok(())
}

/// Refuses new names that would be in the way of others, or others in theirs, if they were in lower case.
/// The others are taken as they are written, as Git does.
fn refuse_in_lower_case(expansion: &mut Expansion<'_>, session: &mut dyn Session) -> Result<()> {
    let mut walk = Walk::new(session.names()?);
    let is_ref = |update: &usize| !expansion.updates[*update].log_only;
    let new: Vec<usize> = new_names(expansion).into_iter().filter(is_ref).collect();
    for update in new {
        let name = expansion.name(update).as_bytes();
        let mut lower = name.to_ascii_lowercase();
        // Parents that end before the first capital were looked for as they are.
        let shared = common_prefix(name, &lower);
        if shared == name.len() {
            continue;
        }
        let mut clashes = Clashes::default();
        walk.restart();
        for parent in parents(&lower, shared) {
            if walk.has(parent)? {
                clashes.existing_parents.insert(parent.to_vec());
            }
        }
        lower.push(b'/');
        let child = walk.first_from(&lower)?;
        if let Some(child) = child.filter(|child| child.starts_with(&lower)) {
            clashes.found_below(update, child);
        }
        lower.pop();
        let conflict = conflict_of(expansion, &clashes, update, name_from_disk(&lower));
        if let Some(message) = conflict {
            expansion.reject(update, Reason::NameConflict, message)?;
        }
    }
    Ok(())
}

/// Returns why an update cannot stand under a name beside the store and the rest of the transaction.
fn conflict_of(
    expansion: &Expansion<'_>,
    clashes: &Clashes,
    update: usize,
    name: RefName<'_>,
) -> Option<String> {
    for parent in parents(name.as_bytes(), 0) {
        if clashes.existing_parents.contains(parent) {
            return Some(in_the_way(parent, name));
        }
        if expansion.has_value_for(parent) && !expansion.gives_way(parent) {
            return Some(at_the_same_time(name, parent));
        }
    }
    if let Some(child) = clashes.children.get(&update) {
        return Some(in_the_way(child, name));
    }
    let child = child_within(expansion, name.as_bytes())?;
    Some(at_the_same_time(name, &child))
}

fn at_the_same_time(name: RefName<'_>, other: &[u8]) -> String {
    let other = other.as_bstr();
    format!("cannot process '{name}' and '{other}' at the same time")
}

/// Returns why a name cannot be locked for want of a parent directory, where `existing` is the
/// ref that has its place: as elsewhere, the shortest parent that is in the way is told.
pub(super) fn shortest_conflict(
    expansion: &Expansion<'_>,
    update: usize,
    existing: Option<RefName<'_>>,
) -> Option<String> {
    let name = expansion.name(update);
    let is_other = |parent: &&[u8]| existing.is_none_or(|it| it.as_bytes() != *parent);
    let shorter = parents(name.as_bytes(), 0).take_while(is_other);
    let mut in_transaction = shorter.filter(|parent| expansion.has_value_for(parent));
    let parent = in_transaction.next()?;
    Some(at_the_same_time(name, parent))
}

/// Returns the first name of the transaction below `name`.
fn child_within(expansion: &Expansion<'_>, name: &[u8]) -> Option<Vec<u8>> {
    let mut below = name.to_vec();
    below.push(b'/');
    let counts = |&update: &usize| {
        let state = &expansion.updates[update];
        let name = expansion.name(update).as_bytes();
        let stands = !state.log_only && !state.rejected && !expansion.gives_way(name);
        stands && name.starts_with(&below)
    };
    let mut edits = expansion
        .edits_from(&below)
        .take_while(|&update| expansion.name(update).as_bytes().starts_with(&below));
    let edit = edits.find(counts);
    let derived = (expansion.queue.len()..expansion.updates.len()).filter(counts);
    edit.into_iter()
        .chain(derived)
        .map(|update| expansion.name(update).as_bytes())
        .min()
        .map(<[u8]>::to_vec)
}

/// In the `files` format the lock of a ref makes the directories above it, and what stands in the
/// place of a directory cannot be locked: a name is refused as soon as it is met if one below it was
/// met before. Of `a/b` and `a`, in that order, `a` is the one that goes; after a deletion of
/// `a/b`, which is packed, `a` is refused with the words for a lock.
fn refuse_over_locks(
    expansion: &mut Expansion<'_>,
    clashes: &Clashes,
    new: &[usize],
) -> Result<()> {
    let mut directories: HashSet<Vec<u8>> = HashSet::new();
    let mut new = new.iter().peekable();
    for update in 0..expansion.updates.len() {
        let is_new = new.next_if_eq(&&update).is_some();
        let name = expansion.name(update);
        if expansion.updates[update].rejected || expansion.gives_way(name.as_bytes()) {
            continue;
        }
        if is_new
            && directories.contains(name.as_bytes())
            && let Some(message) = conflict_of(expansion, clashes, update, name)
        {
            expansion.refuse_lock(update, Reason::NameConflict, message)?;
            continue;
        }
        for parent in parents(name.as_bytes(), 0) {
            if !directories.contains(parent) {
                directories.insert(parent.to_vec());
            }
        }
    }
    Ok(())
}
