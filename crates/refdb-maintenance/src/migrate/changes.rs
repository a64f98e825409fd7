//! Carrying over what changed in a store since it was copied.
//!
//! The store and its copy are walked side by side, unless the store can tell that most of it is as it
//! was: whatever differs is written again, however it came to differ.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use refdb::internals::{LogMark, Mark, NewLog, maintained};
use refdb::{
    Edit, ErrorKind, Expected, LogOrder, RefName, RefNameBuf, RefRecord, Refs, Result, Store,
    Target, Transaction,
};

use super::copy::{Copied, CopiedPlace, broken};
use super::{Migration, Problem};

/// Up to so many refs are looked up one by one instead of walking over all.
const SINGLE_MAX: usize = 64;

/// What a ref is now; `None` if it is gone.
type Changed = BTreeMap<RefNameBuf, Option<Target>>;

/// Makes one copy what its source is now.
pub(super) fn catch_up(migration: &Migration<'_>, copied: &mut Copied, at: usize) -> Result<()> {
    let Some(one) = copied.places.get_mut(at) else {
        return Ok(());
    };
    let mut problems = Vec::new();
    let now = maintained(&one.source).mark()?;
    let others_are_same = match one.mark.changed_until(&now) {
        Some(names) => {
            // One that came after one look, and went before the next, is in neither: what was ever seen is looked at.
            one.loose.extend(names);
            true
        }
        None => false,
    };
    if others_are_same && now.has_logs && one.loose.is_empty() {
        return Ok(());
    }
    one.mark = now;
    let changed = match others_are_same && one.loose.len() <= SINGLE_MAX {
        true => changed_of(one, &one.loose.clone(), &mut problems)?,
        false => changed_refs(one, &mut problems)?,
    };
    copied.is_live |= !changed.is_empty();
    write_refs(&one.copy, &changed)?;
    if migration.logs {
        let old = std::mem::replace(&mut one.marks, maintained(&one.source).log_marks()?);
        one.keep_good_logs(&mut copied.problems)?;
        let names = changed_logs(&old, &one.marks);
        let mut logs = Vec::with_capacity(names.len());
        for name in names {
            let entries = one.source.log(name.as_name(), LogOrder::OldestFirst)?;
            logs.push(NewLog {
                name,
                entries,
                only_new: false,
            });
        }
        if !logs.is_empty() {
            copied.is_live = true;
            maintained(&one.copy).replace_logs(&logs)?;
        }
    }
    copied.problems.extend(problems);
    Ok(())
}

/// Returns those of the `names` that the copy has otherwise than the source.
fn changed_of(
    one: &mut CopiedPlace,
    names: &BTreeSet<RefNameBuf>,
    problems: &mut Vec<Problem>,
) -> Result<Changed> {
    let mut changed = Changed::new();
    let (mut source, mut copy) = (one.source.refs()?, one.copy.refs()?);
    for name in names {
        // A file may be too young to tell whether it changed: mostly it did not, and no directory is listed for that.
        if let Ok(Some(theirs)) = one.source.read(name.as_name())
            && one.copy.read(name.as_name())?.map(|ours| ours.target) == Some(theirs.target)
        {
            continue;
        }
        let theirs = find(&mut source, name)?;
        let ours = find(&mut copy, name)?;
        match theirs {
            Some(theirs) => {
                let is_same = ours.map(|ours| ours.target) == Some(theirs.target);
                one.note(&theirs, is_same, &mut changed, problems);
            }
            None if ours.is_some() => {
                changed.insert(name.clone(), None);
            }
            None => {}
        }
    }
    Ok(changed)
}

/// Returns the ref of that name.
fn find<'r>(refs: &'r mut Refs, name: &RefNameBuf) -> Result<Option<RefRecord<'r>>> {
    refs.seek_prefix(name.as_bytes())?;
    let found = refs.next()?;
    Ok(found.filter(|found| found.name == name.as_name()))
}

/// Notes a ref that has its own file, unless that was there when the store was looked at.
pub(super) fn note_loose(mark: &Mark, loose: &mut BTreeSet<RefNameBuf>, record: &RefRecord<'_>) {
    if !record.packed && !mark.has_logs {
        let name = record.name.to_owned();
        if !mark.single.contains(&name) {
            loose.insert(name);
        }
    }
}

impl CopiedPlace {
    /// Notes what has to be written for a ref of the source.
    fn note(
        &mut self,
        record: &RefRecord<'_>,
        is_same: bool,
        changed: &mut Changed,
        problems: &mut Vec<Problem>,
    ) {
        let name = record.name.as_bytes();
        if is_same || !self.place.keeps(name) || self.left.contains(name) {
            return;
        }
        match broken(record) {
            None => {
                changed.insert(record.name.to_owned(), Some(record.target.to_owned()));
            }
            Some(why) => {
                self.left.insert(name.to_vec());
                problems.push(Problem {
                    name: format!("{}{}", self.place.prefix, record.name),
                    why,
                });
            }
        }
    }
}

/// Returns the refs that the copy has otherwise than the source.
fn changed_refs(one: &mut CopiedPlace, problems: &mut Vec<Problem>) -> Result<Changed> {
    let mut changed = Changed::new();
    let (mut source, mut copy) = (one.source.refs()?, one.copy.refs()?);
    let mut theirs = source.next()?;
    let mut ours = copy.next()?;
    loop {
        let order = match (&theirs, &ours) {
            (None, None) => return Ok(changed),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(theirs), Some(ours)) => theirs.name.cmp(&ours.name),
        };
        if let Some(record) = theirs.as_ref().filter(|_| order.is_le()) {
            note_loose(&one.mark, &mut one.loose, record);
            let is_same =
                order.is_eq() && ours.as_ref().map(|ours| ours.target) == Some(record.target);
            one.note(record, is_same, &mut changed, problems);
        } else if let Some(record) = &ours {
            changed.insert(record.name.to_owned(), None);
        }
        if order.is_le() {
            theirs = source.next()?;
        }
        if order.is_ge() {
            ours = copy.next()?;
        }
    }
}

/// Returns the names of reflogs that are new, gone or in another state; both lists are in the order of names.
fn changed_logs(old: &[LogMark], new: &[LogMark]) -> Vec<RefNameBuf> {
    let mut names = Vec::new();
    let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
    loop {
        let order = match (old.peek(), new.peek()) {
            (None, None) => return names,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(before), Some(now)) => before.name.cmp(&now.name),
        };
        let before = old.next_if(|_| order.is_le());
        let now = new.next_if(|_| order.is_ge());
        if before.map(|mark| mark.state) != now.map(|mark| mark.state) {
            names.extend(before.or(now).map(|mark| mark.name.clone()));
        }
    }
}

/// Writes refs into a store that nobody else uses, without a word in any reflog.
fn write_refs(store: &Store, changed: &Changed) -> Result<()> {
    // What goes makes room for names that could not stand beside it.
    for deletes in [true, false] {
        let mut transaction = store.transaction();
        for (name, target) in changed.iter().filter(|(_, to)| to.is_none() == deletes) {
            add(&mut transaction, name, target.as_ref(), Expected::Any)?;
        }
        if !transaction.is_empty() {
            let _ = transaction.commit()?;
        }
    }
    Ok(())
}

/// Adds what makes a ref what it was in another store, without a word in its reflog.
pub(super) fn add(
    transaction: &mut Transaction<'_>,
    name: &RefNameBuf,
    target: Option<&Target>,
    expected: Expected<'_>,
) -> Result<()> {
    let name = RefName::from(name);
    let edit = match target {
        None => Edit::delete(name),
        Some(Target::Symbolic(target)) => Edit::symbolic(name, target),
        Some(Target::Direct(oid)) => Edit::update(name, *oid),
    };
    let edit = edit.no_deref().skip_log().expecting(expected);
    match transaction.add(edit.clone()) {
        // Where the object is missing the ref is worth keeping all the same.
        Err(error) if error.kind() == ErrorKind::Rejected => {
            transaction.add(edit.skip_object_check())
        }
        added => added,
    }
}
