//! Writing to the stacks: one table for each stack that a transaction touches.
//!
//! The steps, with what a crash leaves behind:
//! 1. `tables.list.lock` of every stack concerned (a lock file and nothing else);
//! 2. the table is written whole under a temporary name, synced, named, its directory synced (a
//!    file that no list names);
//! 3. the new list is written into the lock, synced, renamed over the old one, the directory synced
//!    (the old list or the new one);
//! 4. acknowledged; then compaction, which is a publication of its own.
//!
//! Where the compaction would be a quick one, the table of step 2 is the merged one already, and the
//! tables that it stands for are removed after step 3.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use reftable::{LogRecord, LogUpdate, LogValue, MergedLogs, RefRecord, RefValue, Writer};

use super::cursor::StackCursor;
use super::log_write::LogChangeRecord;
use super::stack::{Added, Held, Publish, Snapshot, Stack};
use super::walk::Walk;
use super::{ReftableBackend, find, logs};
use crate::backend::cursor::{Cursor, OverCursor};
use crate::backend::{
    Judge, Locked, NewValue, Plan, Published, Ref, Session, Write, committed_in_part,
};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::Place;
use crate::lockfile::journal::{Journal, Steps};
use crate::name::{RefName, is_per_worktree};
use crate::oid::ObjectFormat;

/// From so many names on they are read in one pass and not one by one.
const ONE_PASS_MIN: usize = 8;

pub(super) struct ReftableSession<'b> {
    pub(super) backend: &'b ReftableBackend,
    /// In the order in which they were locked.
    pub(super) parts: Vec<Part>,
}

/// The part of a session in one stack.
pub(super) struct Part {
    place: Place,
    pub(super) object_format: ObjectFormat,
    pub(super) stack: Arc<Stack>,
    pub(super) held: Held,
    /// Records of reflogs that are changed as a whole.
    pub(super) log_changes: Vec<LogChangeRecord>,
    /// Whether a name is another one within the stack, which can change their order.
    renamed: bool,
    pending: Option<Pending>,
    /// What was published to the stack, if anything was.
    added: Option<Added>,
}

/// A table that is encoded and not stored yet.
struct Pending {
    content: Vec<u8>,
    options: reftable::WriteOptions,
    added: Added,
    /// How many tables on top of the stack it takes the place of.
    replaces: usize,
}

impl<'b> ReftableSession<'b> {
    pub(super) fn new(backend: &'b ReftableBackend) -> Self {
        ReftableSession {
            backend,
            parts: Vec::new(),
        }
    }

    /// Returns the part for a place, locking its stack the first time.
    pub(super) fn part(&mut self, place: &Place) -> Result<usize> {
        if let Some(at) = self.parts.iter().position(|part| part.place == *place) {
            return Ok(at);
        }
        let stack = self.backend.stack(place);
        let held = stack.hold_to_add(self.backend.options.reftable.lock_timeout)?;
        self.parts.push(Part {
            place: place.clone(),
            object_format: self.backend.options.object_format,
            stack,
            held,
            log_changes: Vec::new(),
            renamed: false,
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

impl Session for ReftableSession<'_> {
    fn lock(
        &mut self,
        names: &[RefName<'_>],
        _stop_at_refusal: bool,
        answer: &mut dyn FnMut(usize, Locked),
    ) -> Result<()> {
        // One for each part that is walked.
        let mut walks: Vec<Option<Walk>> = Vec::new();
        for (at, &name) in names.iter().enumerate() {
            let (place, bare) = self.backend.layout.locate(name);
            let index = self.part(&place)?;
            let part = &mut self.parts[index];
            part.renamed |= bare != name;
            let tables = &part.held.snapshot.tables;
            let found = if names.len() < ONE_PASS_MIN {
                find(&part.stack, tables, bare)?
            } else {
                if walks.len() <= index {
                    walks.resize_with(index + 1, || None);
                }
                let walk = walks[index].get_or_insert_with(|| Walk::new(tables));
                walk.find(&part.stack, bare)?
            };
            answer(at, found.map_or(Locked::Missing, Locked::Found));
        }
        Ok(())
    }

    fn release(&mut self, _names: &HashSet<&[u8]>) {
        // One lock covers every name of a stack.
    }

    fn names(&mut self) -> Result<Box<dyn Cursor + '_>> {
        let shared = self.stack_cursor(&Place::Common)?;
        if !self.backend.layout.is_linked() {
            return Ok(Box::new(shared));
        }
        let own = self.stack_cursor(&Place::Worktree)?;
        Ok(Box::new(OverCursor::new(
            Box::new(own),
            Box::new(shared),
            is_per_worktree,
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

    fn rewrite_log(&mut self, name: RefName<'_>, judge: &mut Judge<'_>) -> Result<bool> {
        let (place, bare) = self.backend.layout.locate(name);
        let at = self.part(&place)?;
        match self.parts.get_mut(at) {
            Some(part) => part.rewrite_log(bare, judge),
            None => Ok(false),
        }
    }

    fn prepare(&mut self, plan: Plan<'_>) -> Result<()> {
        for change in &plan.log_changes {
            self.change_log(*change)?;
        }
        // Every name was locked, so that its stack is among the parts.
        let layout = &self.backend.layout;
        let is_alone = self.parts.len() == 1;
        for part in &mut self.parts {
            let is_as_it_is = is_alone && !part.renamed;
            let within = |name| {
                if is_as_it_is {
                    return Some(name);
                }
                let (place, bare) = layout.locate(name);
                (place == part.place).then_some(bare)
            };
            let encoder = Encoder {
                stack: &part.stack,
                snapshot: &part.held.snapshot,
                plan: &plan,
                changes: &part.log_changes,
                within: &within,
                renamed: part.renamed,
            };
            part.pending = encoder.encode()?;
        }
        Ok(())
    }

    fn publish(mut self: Box<Self>) -> Result<Published> {
        // A branch is there before the HEAD of a linked worktree that names it.
        self.parts.sort_by_key(|part| part.place != Place::Common);
        let compact = self.backend.options.reftable.auto_compaction;
        if compact {
            self.fold();
        }
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
        for Part {
            stack, held, added, ..
        } in parts
        {
            drop(held);
            if let Some(added) = added.filter(|_| compact) {
                let failure = stack.auto_compact(added).err();
                afterwards.extend(failure.filter(|error| error.kind() != ErrorKind::Locked));
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
    /// Merges the new table with those on top of its stack, where the compaction after the commit
    /// would do no more than that. Tables of several stacks are published one by one as they are.
    fn fold(&mut self) {
        let mut parts = self.parts.iter_mut().filter(|part| part.pending.is_some());
        let (Some(part), None) = (parts.next(), parts.next()) else {
            return;
        };
        let Some(pending) = &mut part.pending else {
            return;
        };
        if let Some(folded) = part.stack.fold(&part.held, &pending.content, pending.added) {
            pending.content = folded.content;
            pending.options = folded.options;
            pending.replaces = folded.replaces;
        }
    }

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
            let Pending {
                content, replaces, ..
            } = pending;
            let published = part
                .stack
                .publish_on_top(&mut part.held, name, content, replaces);
            match published {
                Ok(Publish::Done { unsynced }) => afterwards.extend(unsynced),
                Ok(Publish::Moved) if !visible => return Ok(Publish::Moved),
                Ok(Publish::Moved) => return Err(committed_in_part("another writer was faster")),
                Err(error) if visible => return Err(committed_in_part(error)),
                Err(error) => return Err(error),
            }
            visible = true;
            part.added = (replaces == 0).then_some(pending.added);
        }
        Ok(Publish::Done { unsynced: None })
    }
}

/// Encodes the table that makes a plan true in one stack.
struct Encoder<'e, 'a> {
    stack: &'e Stack,
    snapshot: &'e Snapshot,
    plan: &'e Plan<'a>,
    /// Records of reflogs that are changed as a whole.
    changes: &'e [LogChangeRecord],
    /// Returns the name within the stack, if it is kept there.
    within: &'e dyn Fn(RefName<'a>) -> Option<RefName<'a>>,
    renamed: bool,
}

/// One record of the log section.
struct Line<'a> {
    name: RefName<'a>,
    index: u64,
    /// The place of the entry in the plan; `None` for a tombstone.
    place: Option<usize>,
}

impl<'a> Encoder<'_, 'a> {
    /// Returns the table; `None` if there is nothing to write.
    fn encode(&self) -> Result<Option<Pending>> {
        let index = self.snapshot.next_update_index();
        let lines = self.lines(index)?;
        let changed = self.changes.iter().map(|change| change.index);
        let indices = lines.iter().map(|line| line.index).chain(changed);
        let max = indices.fold(index, u64::max);
        let options = self.stack.write_options(index, max);
        let format_error = |error| self.stack.format_error(error);
        let mut writer = Writer::new(Vec::new(), options.clone()).map_err(format_error)?;
        for write in self.writes() {
            writer
                .add_ref(record(&write, index))
                .map_err(format_error)?;
        }
        self.add_lines(&lines, &mut writer)?;
        let finished = writer.finish().map_err(format_error)?;
        let added = Added {
            deleted: finished.stats.tombstones,
        };
        Ok((!finished.stats.is_empty()).then_some(Pending {
            content: finished.sink,
            options,
            added,
            replaces: 0,
        }))
    }

    /// Returns the new values of names in the stack, in their order.
    fn writes(&self) -> Box<dyn Iterator<Item = Write<'a>> + '_> {
        let writes = self.plan.writes().filter_map(|write| {
            Some(Write {
                name: (self.within)(write.name)?,
                ..write
            })
        });
        if !self.renamed {
            return Box::new(writes);
        }
        let mut writes: Vec<Write<'a>> = writes.collect();
        writes.sort_by(|low, high| low.name.cmp(&high.name));
        Box::new(writes.into_iter())
    }

    /// Returns the log records in their order: entries for reflogs that exist or are to be made,
    /// tombstones for every entry of a deleted ref.
    fn lines(&self, index: u64) -> Result<Vec<Line<'a>>> {
        let mut live = logs::live(self.snapshot);
        let has_logs = self.snapshot.tables.iter().any(|table| table.has_logs());
        let mut lines: Vec<Line<'a>> = Vec::new();
        if !has_logs && !self.plan.creates_logs {
            return Ok(lines);
        }
        let mut known: Option<(RefName<'a>, bool)> = None;
        for (place, entry) in self.plan.logs() {
            if !entry.create && !has_logs {
                continue;
            }
            let Some(name) = (self.within)(entry.name) else {
                continue;
            };
            if !entry.create {
                let exists = match known {
                    Some((known, exists)) if known == name => exists,
                    _ => logs::exists(self.stack, &mut live, name)?,
                };
                known = Some((name, exists));
                if !exists {
                    continue;
                }
            }
            lines.push(Line {
                name,
                index,
                place: Some(place),
            });
        }
        // Several entries of one reflog need indices of their own, in the order they came in; the
        // newest one stands first.
        lines.sort_by(|low, high| low.name.cmp(&high.name));
        for run in lines.chunk_by_mut(|line, next| line.name == next.name) {
            run.iter_mut()
                .zip(index..)
                .for_each(|(line, index)| line.index = index);
            run.reverse();
        }
        if has_logs {
            let entries = lines.len();
            for write in self.writes() {
                if let NewValue::Deleted = write.value {
                    self.tombstones(&mut live, write.name, &mut lines)?;
                }
            }
            if entries > 0 && lines.len() > entries {
                lines
                    .sort_by(|low, high| low.name.cmp(&high.name).then(high.index.cmp(&low.index)));
            }
        }
        Ok(lines)
    }

    fn tombstones(
        &self,
        live: &mut MergedLogs,
        name: RefName<'a>,
        lines: &mut Vec<Line<'a>>,
    ) -> Result<()> {
        let mut collect = || {
            live.seek(name.as_bytes())?;
            while live.advance()? {
                let record = live.record();
                if record.name != name.as_bytes() {
                    break;
                }
                lines.push(Line {
                    name,
                    index: record.update_index,
                    place: None,
                });
            }
            Ok(())
        };
        collect().map_err(|error| self.stack.format_error(error))
    }

    fn add_lines(&self, lines: &[Line<'_>], writer: &mut Writer<Vec<u8>>) -> Result<()> {
        // Git cuts messages so that an entry fits into a block.
        let message_max = usize::try_from(self.stack.block_size() / 2).unwrap_or(usize::MAX);
        let mut message = Vec::new();
        let mut changes: Vec<&LogChangeRecord> = self.changes.iter().collect();
        changes.sort_by(|low, high| low.name.cmp(&high.name).then(high.index.cmp(&low.index)));
        // One reflog may have been named in two ways.
        changes.dedup_by(|next, kept| next.name == kept.name && next.index == kept.index);
        let mut changes = changes.into_iter().peekable();
        let mut add_changes = |before: Option<&Line<'_>>, writer: &mut Writer<Vec<u8>>| {
            let is_next = |change: &&LogChangeRecord| {
                before.is_none_or(|line| {
                    let names = change.name.as_slice().cmp(line.name.as_bytes());
                    names.then(line.index.cmp(&change.index)).is_lt()
                })
            };
            while let Some(change) = changes.next_if(is_next) {
                change.add_to(writer)?;
            }
            Ok(())
        };
        let format_error = |error| self.stack.format_error(error);
        for line in lines {
            add_changes(Some(line), writer).map_err(format_error)?;
            let entry = line.place.and_then(|place| self.plan.log(place));
            let value = match &entry {
                None => LogValue::Deletion,
                Some(entry) => {
                    let who = self.plan.who(entry)?;
                    message.clear();
                    message.extend_from_slice(
                        entry.message.get(..message_max).unwrap_or(entry.message),
                    );
                    message.push(b'\n');
                    LogValue::Update(LogUpdate {
                        old: entry.old.as_bytes(),
                        new: entry.new.as_bytes(),
                        name: &who.name,
                        email: &who.email,
                        time: who.time,
                        tz: who.zone,
                        message: &message,
                    })
                }
            };
            let record = LogRecord {
                name: line.name.as_bytes(),
                update_index: line.index,
                value,
            };
            writer.add_log(record).map_err(format_error)?;
        }
        add_changes(None, writer).map_err(format_error)
    }
}

/// Returns the record of a write.
pub(super) fn record<'r>(write: &'r Write<'r>, update_index: u64) -> RefRecord<'r> {
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
