//! Writing to the stacks: one table for each stack that a transaction touches.
//!
//! The steps, with what a crash leaves behind:
//! 1. `tables.list.lock` of every stack concerned (a lock file and nothing else);
//! 2. the table is written whole under a temporary name, synced, named, its directory synced (a
//!    file that no list names);
//! 3. the new list is written into the lock, synced, renamed over the old one, the directory synced
//!    (the old list or the new one);
//! 4. acknowledged; then compaction, which is a publication of its own.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use reftable::{
    LogRecord, LogUpdate, LogValue, MergedLogs, MergedRefs, RefRecord, RefValue, Writer,
};

use super::cursor::StackCursor;
use super::stack::{Added, Held, Publish, Stack};
use super::{ReftableBackend, find, logs, to_ref};
use crate::backend::cursor::{Cursor, WorktreeCursor};
use crate::backend::{
    Locked, LogWrite, NewValue, Plan, Published, Ref, Session, Write, committed_in_part,
};
use crate::error::{Error, Result};
use crate::layout::Place;
use crate::lockfile::journal::{Journal, Steps};
use crate::name::RefName;
use crate::reflog::Signature;

/// From so many names on they are read in one pass and not one by one.
const ONE_PASS_MIN: usize = 8;

pub(super) struct ReftableSession<'b> {
    backend: &'b ReftableBackend,
    /// In the order in which they were locked.
    parts: Vec<Part>,
}

/// The part of a session in one stack.
struct Part {
    place: Place,
    stack: Arc<Stack>,
    held: Held,
    pending: Option<Pending>,
    /// What was published to the stack, if anything was.
    added: Option<Added>,
}

/// A table that is encoded and not stored yet.
struct Pending {
    content: Vec<u8>,
    options: reftable::WriteOptions,
    added: Added,
}

impl<'b> ReftableSession<'b> {
    pub(super) fn new(backend: &'b ReftableBackend) -> Self {
        ReftableSession {
            backend,
            parts: Vec::new(),
        }
    }

    /// Returns the part for a place, locking its stack the first time.
    fn part(&mut self, place: &Place) -> Result<usize> {
        if let Some(at) = self.parts.iter().position(|part| part.place == *place) {
            return Ok(at);
        }
        let stack = self.backend.stack(place);
        let held = stack.hold_to_add(self.backend.options.reftable.lock_timeout)?;
        self.parts.push(Part {
            place: place.clone(),
            stack,
            held,
            pending: None,
            added: None,
        });
        Ok(self.parts.len() - 1)
    }

    /// Returns a cursor over one stack, as it is locked or as it is now.
    fn stack_cursor(&self, place: &Place) -> Result<StackCursor> {
        match self.parts.iter().find(|part| part.place == *place) {
            Some(part) => Ok(StackCursor::new(
                &part.stack,
                Arc::clone(&part.held.snapshot),
            )),
            None => {
                let stack = self.backend.stack(place);
                Ok(StackCursor::new(&stack, stack.snapshot()?))
            }
        }
    }
}

impl ReftableSession<'_> {
    /// Reads a run of names of one stack and appends what was found.
    fn read_run(
        &self,
        part: Option<usize>,
        run: &mut Vec<RefName<'_>>,
        answers: &mut Vec<Locked>,
    ) -> Result<()> {
        let Some(part) = part.and_then(|part| self.parts.get(part)) else {
            return Ok(());
        };
        let tables = &part.held.snapshot.tables;
        let answer = |found: Option<Ref>| found.map_or(Locked::Missing, Locked::Found);
        if run.len() < ONE_PASS_MIN {
            for name in run.drain(..) {
                answers.push(answer(find(&part.stack, tables, name)?));
            }
            return Ok(());
        }
        let mut walk = Walk::new(&part.stack, MergedRefs::new(tables.clone()));
        for name in run.drain(..) {
            answers.push(answer(walk.find(name)?));
        }
        Ok(())
    }
}

/// Reads many names of one stack in one pass: a name that is not beyond the record on which the
/// cursor stands needs no seek.
struct Walk<'p> {
    stack: &'p Stack,
    merged: MergedRefs,
    /// Whether the cursor stands on the first record that is not before the last name asked for.
    stands: bool,
    ended: bool,
    last: Vec<u8>,
}

impl<'p> Walk<'p> {
    fn new(stack: &'p Stack, merged: MergedRefs) -> Self {
        Walk {
            stack,
            merged,
            stands: false,
            ended: false,
            last: Vec::new(),
        }
    }

    fn find(&mut self, name: RefName<'_>) -> Result<Option<Ref>> {
        let name = name.as_bytes();
        let forward = self.last.as_slice() <= name;
        let in_gap = forward && (self.ended || self.stands && self.merged.record().name >= name);
        if !in_gap {
            let moved = self.merged.seek(name).and_then(|()| self.merged.advance());
            self.stands = moved.map_err(|error| self.stack.format_error(error))?;
            self.ended = !self.stands;
        }
        self.last.clear();
        self.last.extend_from_slice(name);
        if self.stands && self.merged.record().name == name {
            return to_ref(self.stack, &self.merged.record());
        }
        Ok(None)
    }
}

impl Session for ReftableSession<'_> {
    fn lock(&mut self, names: &[RefName<'_>], _stop_at_refusal: bool) -> Result<Vec<Locked>> {
        let mut answers = Vec::with_capacity(names.len());
        let mut run: Vec<RefName<'_>> = Vec::with_capacity(names.len());
        let mut run_part = None;
        // Sorted names come in runs that belong to one stack.
        for &name in names {
            let (place, bare) = self.backend.layout.locate(name);
            let part = self.part(&place)?;
            if run_part.is_some_and(|other| other != part) {
                self.read_run(run_part, &mut run, &mut answers)?;
            }
            run_part = Some(part);
            run.push(bare);
        }
        self.read_run(run_part, &mut run, &mut answers)?;
        Ok(answers)
    }

    fn release(&mut self, _names: &HashSet<&[u8]>) {
        // One lock covers every name of a stack.
    }

    fn names(&mut self) -> Result<Box<dyn Cursor>> {
        let shared = self.stack_cursor(&Place::Common)?;
        if !self.backend.layout.is_linked() {
            return Ok(Box::new(shared));
        }
        let own = self.stack_cursor(&Place::Worktree)?;
        Ok(Box::new(WorktreeCursor::new(
            Box::new(own),
            Box::new(shared),
        )))
    }

    fn read(&mut self, name: RefName<'_>) -> Result<Option<Ref>> {
        let (place, bare) = self.backend.layout.locate(name);
        match self.parts.iter().find(|part| part.place == place) {
            Some(part) => find(&part.stack, &part.held.snapshot.tables, bare),
            None => {
                let stack = self.backend.stack(&place);
                find(&stack, &stack.snapshot()?.tables, bare)
            }
        }
    }

    fn any_packed(&self, _names: &[RefName<'_>]) -> Result<Option<bool>> {
        Ok(None)
    }

    fn prepare(&mut self, plan: Plan<'_>) -> Result<()> {
        let mut writes: Vec<Vec<Write<'_>>> = self.parts.iter().map(|_| Vec::new()).collect();
        for write in &plan.writes {
            let (place, name) = self.backend.layout.locate(write.name);
            let part = self.part(&place)?;
            writes.resize_with(self.parts.len(), Vec::new);
            writes[part].push(Write {
                name,
                value: write.value,
            });
        }
        let mut entries: Vec<Vec<LogWrite<'_>>> = self.parts.iter().map(|_| Vec::new()).collect();
        for entry in &plan.logs {
            let (place, name) = self.backend.layout.locate(entry.name);
            let part = self.part(&place)?;
            entries.resize_with(self.parts.len(), Vec::new);
            entries[part].push(LogWrite {
                name,
                ..entry.clone()
            });
        }
        writes.resize_with(self.parts.len(), Vec::new);
        for (part, (writes, entries)) in self.parts.iter_mut().zip(writes.into_iter().zip(entries))
        {
            part.encode(writes, entries, plan.who.as_ref())?;
        }
        Ok(())
    }

    fn publish(mut self: Box<Self>) -> Result<Published> {
        // A branch is there before the HEAD of a linked worktree that names it.
        self.parts.sort_by_key(|part| part.place != Place::Common);
        let mut stored = VecDeque::new();
        let mut afterwards = Vec::new();
        let published = self
            .store(&mut stored)
            .and_then(|()| self.publish_stored(&mut stored, &mut afterwards));
        for Stored { at, name, .. } in stored {
            if let Some(part) = self.parts.get(at) {
                part.stack.discard([&name]);
            }
        }
        if let Publish::Moved = published? {
            return Ok(Published::Moved);
        }
        let parts = std::mem::take(&mut self.parts);
        let compact = self.backend.options.reftable.auto_compaction;
        for Part {
            stack, held, added, ..
        } in parts
        {
            drop(held);
            if let Some(added) = added.filter(|_| compact) {
                afterwards.extend(stack.auto_compact(added).err());
            }
        }
        Ok(Published::Done { afterwards })
    }
}

/// A table that is stored and that no list names yet.
struct Stored {
    /// Which part it belongs to.
    at: usize,
    name: String,
    pending: Pending,
}

impl ReftableSession<'_> {
    /// Stores the tables: everything that can fail for want of space is done before anything is
    /// visible.
    fn store(&mut self, stored: &mut VecDeque<Stored>) -> Result<()> {
        for (at, part) in self.parts.iter_mut().enumerate() {
            if let Some(pending) = part.pending.take() {
                let name = part.stack.store(&pending.options, &pending.content)?;
                stored.push_back(Stored { at, name, pending });
            }
        }
        Ok(())
    }

    /// Publishes what is stored, and leaves in `stored` what it did not come to.
    fn publish_stored(
        &mut self,
        stored: &mut VecDeque<Stored>,
        afterwards: &mut Vec<Error>,
    ) -> Result<Publish> {
        let Some(journal) = self.begin_journal(stored)? else {
            return self.publish_each(stored, afterwards);
        };
        if self.publish_each(stored, afterwards).is_err()
            && let Err(error) = self.backend.redo(&journal)
        {
            stored.clear();
            journal.leave();
            self.parts
                .iter_mut()
                .for_each(|part| part.held.hold.leave());
            return Err(committed_in_part(error));
        }
        stored.clear();
        afterwards.extend(journal.end().err());
        Ok(Publish::Done { unsynced: None })
    }

    /// Writes into the journal what there is to publish, if that is more than one table.
    fn begin_journal(&mut self, stored: &VecDeque<Stored>) -> Result<Option<Journal>> {
        if stored.len() < 2 {
            return Ok(None);
        }
        let mut steps = Steps::default();
        for Stored { at, name, .. } in stored {
            if let Some(part) = self.parts.get_mut(*at) {
                let held = &mut part.held;
                part.stack.stage_on_top(held, name, &mut steps)?;
            }
        }
        let journal = self.backend.begin_journal(steps)?;
        self.parts
            .iter_mut()
            .for_each(|part| part.held.staged = true);
        Ok(Some(journal))
    }

    fn publish_each(
        &mut self,
        stored: &mut VecDeque<Stored>,
        afterwards: &mut Vec<Error>,
    ) -> Result<Publish> {
        let mut visible = false;
        while let Some(Stored { at, name, pending }) = stored.pop_front() {
            let Some(part) = self.parts.get_mut(at) else {
                continue;
            };
            let published = part
                .stack
                .publish_on_top(&mut part.held, name, pending.content);
            match published {
                Ok(Publish::Done { unsynced }) => afterwards.extend(unsynced),
                Ok(Publish::Moved) if !visible => return Ok(Publish::Moved),
                Ok(Publish::Moved) => return Err(committed_in_part("another writer was faster")),
                Err(error) if visible => return Err(committed_in_part(error)),
                Err(error) => return Err(error),
            }
            visible = true;
            part.added = Some(pending.added);
        }
        Ok(Publish::Done { unsynced: None })
    }
}

impl Part {
    /// Encodes the table that makes the writes and entries true; nothing if there are none.
    fn encode(
        &mut self,
        mut writes: Vec<Write<'_>>,
        entries: Vec<LogWrite<'_>>,
        who: Option<&Signature>,
    ) -> Result<()> {
        // Stripping what says which worktree a name belongs to can change the order.
        if !writes.is_sorted_by(|low, high| low.name <= high.name) {
            writes.sort_by(|low, high| low.name.cmp(&high.name));
        }
        let index = self.held.snapshot.next_update_index();
        let mut lines = self.log_lines(&writes, entries, who, index)?;
        lines.sort_by(|low, high| low.name.cmp(high.name).then(high.index.cmp(&low.index)));
        if writes.is_empty() && lines.is_empty() {
            return Ok(());
        }
        let max = lines.iter().map(|line| line.index).fold(index, u64::max);
        let options = self.stack.write_options(index, max);
        let mut added = Added::default();
        let mut encode = || {
            let mut writer = Writer::new(Vec::new(), options.clone())?;
            for write in &writes {
                writer.add_ref(record(write, index))?;
                added.deleted += u64::from(matches!(write.value, NewValue::Deleted));
            }
            for line in &lines {
                line.add_to(&mut writer)?;
            }
            Ok(writer.finish()?.sink)
        };
        let content = encode().map_err(|error| self.stack.format_error(error))?;
        self.pending = Some(Pending {
            content,
            options,
            added,
        });
        Ok(())
    }

    /// Returns the log records: entries for reflogs that exist or are to be made, tombstones for
    /// every entry of a deleted ref.
    fn log_lines<'l>(
        &self,
        writes: &[Write<'l>],
        entries: Vec<LogWrite<'l>>,
        who: Option<&'l Signature>,
        index: u64,
    ) -> Result<Vec<LogLine<'l>>> {
        let mut live = logs::live(&self.held.snapshot);
        let mut lines: Vec<LogLine<'l>> = Vec::with_capacity(entries.len());
        let message_max = usize::try_from(self.stack.block_size() / 2).unwrap_or(usize::MAX);
        let mut known: Option<(RefName<'l>, bool)> = None;
        for entry in entries {
            if !entry.create {
                let exists = match known {
                    Some((name, exists)) if name == entry.name => exists,
                    _ => logs::exists(&self.stack, &mut live, entry.name)?,
                };
                known = Some((entry.name, exists));
                if !exists {
                    continue;
                }
            }
            let Some(who) = entry.who.or(who) else {
                continue;
            };
            lines.push(LogLine::entry(&entry, who, index, message_max));
        }
        // Several entries of one reflog need indices of their own, in the order they came in.
        lines.sort_by(|low, high| low.name.cmp(high.name));
        for run in lines.chunk_by_mut(|line, next| line.name == next.name) {
            run.iter_mut()
                .zip(index..)
                .for_each(|(line, index)| line.index = index);
        }
        for write in writes
            .iter()
            .filter(|write| matches!(write.value, NewValue::Deleted))
        {
            self.tombstones(&mut live, write.name, &mut lines)?;
        }
        Ok(lines)
    }

    fn tombstones<'l>(
        &self,
        live: &mut MergedLogs,
        name: RefName<'l>,
        lines: &mut Vec<LogLine<'l>>,
    ) -> Result<()> {
        let mut collect = || {
            live.seek(name.as_bytes())?;
            while live.advance()? {
                let record = live.record();
                if record.name != name.as_bytes() {
                    break;
                }
                let (name, index) = (name.as_bytes(), record.update_index);
                lines.push(LogLine {
                    name,
                    index,
                    update: None,
                });
            }
            Ok(())
        };
        collect().map_err(|error| self.stack.format_error(error))
    }
}

/// One record of the log section.
struct LogLine<'l> {
    name: &'l [u8],
    index: u64,
    /// `None` for a tombstone.
    update: Option<LineUpdate<'l>>,
}

struct LineUpdate<'l> {
    old: crate::oid::ObjectId,
    new: crate::oid::ObjectId,
    who: &'l Signature,
    message: &'l [u8],
}

impl<'l> LogLine<'l> {
    fn entry(entry: &LogWrite<'l>, who: &'l Signature, index: u64, message_max: usize) -> Self {
        // Git cuts messages so that an entry fits into a block.
        let message = entry.message.get(..message_max).unwrap_or(entry.message);
        let update = LineUpdate {
            old: entry.old,
            new: entry.new,
            who,
            message,
        };
        LogLine {
            name: entry.name.as_bytes(),
            index,
            update: Some(update),
        }
    }

    fn add_to(&self, writer: &mut Writer<Vec<u8>>) -> reftable::Result<()> {
        let mut message = Vec::new();
        let value = match &self.update {
            None => LogValue::Deletion,
            Some(update) => {
                message.reserve_exact(update.message.len() + 1);
                message.extend_from_slice(update.message);
                message.push(b'\n');
                LogValue::Update(LogUpdate {
                    old: update.old.as_bytes(),
                    new: update.new.as_bytes(),
                    name: &update.who.name,
                    email: &update.who.email,
                    time: update.who.time,
                    tz: update.who.zone,
                    message: &message,
                })
            }
        };
        writer.add_log(LogRecord {
            name: self.name,
            update_index: self.index,
            value,
        })
    }
}

/// Returns the record of a write.
fn record<'r>(write: &'r Write<'r>, update_index: u64) -> RefRecord<'r> {
    let value = match &write.value {
        NewValue::Direct { oid, peeled: None } => RefValue::Direct(oid.as_bytes()),
        NewValue::Direct {
            oid,
            peeled: Some(peeled),
        } => RefValue::Peeled {
            oid: oid.as_bytes(),
            peeled: peeled.as_bytes(),
        },
        NewValue::Symbolic(target) => RefValue::Symref(target.as_bytes()),
        NewValue::Deleted => RefValue::Deletion,
    };
    RefRecord {
        name: write.name.as_bytes(),
        update_index,
        value,
    }
}
