//! From a plan to the table that makes it true in one stack.

use std::cmp::Ordering;

use refdb_names::RefName;
use reftable::short;
use reftable::{LogRecord, LogValue, MergedLogs, MergedRefs, RefRecord, RefValue, Writer};

use super::log_write::LogChangeRecord;
use super::logs;
use super::stack::{Added, Own, Pending, Snapshot, Stack};
use crate::backend::{NewValue, Plan, Write};
use crate::error::Result;
use crate::system::beside::ahead;

/// Encodes the table that makes a plan true in one stack.
pub(super) struct Encoder<'e, 'a> {
    pub(super) stack: &'e Stack,
    pub(super) snapshot: &'e Snapshot,
    pub(super) plan: &'e Plan<'a>,
    /// Records of reflogs that are changed as a whole.
    pub(super) changes: &'e [LogChangeRecord],
    /// Returns the name within the stack, if it is kept there.
    pub(super) within: &'e (dyn Fn(RefName<'a>) -> Option<RefName<'a>> + Sync),
    /// Whether a name is another one within the stack, which can change their order.
    pub(super) renamed: bool,
    /// The names of all refs in the stack, where they were found to be few.
    pub(super) few: Option<&'e [Vec<u8>]>,
}

/// Most records take fewer bytes.
const RECORD_LEN: usize = 64;

/// One record of the log section.
struct Line<'a> {
    name: RefName<'a>,
    index: u64,
    /// The place of the entry in the plan; `None` for a tombstone.
    place: Option<usize>,
}

impl<'a> Encoder<'_, 'a> {
    /// Returns the table; `None` if there is nothing to write.
    pub(super) fn encode(&self) -> Result<Option<Pending>> {
        let index = self.snapshot.next_update_index();
        let lines = self.lines(index)?;
        let changed = self.changes.iter().map(|change| change.index);
        let indices = lines.iter().map(|line| line.index).chain(changed);
        let max = indices.fold(index, u64::max);
        let options = self.stack.write_options(index, max);
        let stack = self.stack;
        let mut writer = stack.checked(Writer::new(self.room(0), options.clone()))?;
        let written = self.with_writes(|writes| {
            let mut writes = writes.map(|write| writer.add_ref(record(&write, index)));
            writes.try_for_each(|added| added)
        });
        stack.checked(written)?;
        self.add_lines(&lines, &mut writer)?;
        let finished = stack.checked(writer.finish())?;
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

    /// Returns the table that the new one and all below it come to, where so much is changed that
    /// they would be merged right after the commit: what is replaced is read once, and written never.
    /// `None` where that is not so, or there are reflogs, which it would take long to merge, or a
    /// table is damaged, which is no reason to refuse the commit.
    pub(super) fn encode_whole(&self) -> Option<Pending> {
        let tables = &self.snapshot.tables;
        let id_len = self.stack.object_format().raw_len() as u64;
        let is_logged = self.plan.creates_logs || !self.changes.is_empty();
        let mut all = tables.iter();
        if is_logged || !all.all(|it| !it.has_logs() && it.check_tail().is_ok()) {
            return None;
        }
        if !self
            .stack
            .may_fold_whole(self.snapshot, self.plan.len_hint())
        {
            return None;
        }
        self.writes().next()?;
        let index = self.snapshot.next_update_index();
        let first = tables.first().map_or(index, |it| it.min_update_index());
        let options = self.stack.write_options(first, index);
        let mut own = Own {
            least: 1,
            most: 1,
            deleted: 0,
        };
        let merge = |writes: &mut dyn Iterator<Item = Write<'a>>| -> reftable::Result<_> {
            let below = tables.iter().map(|table| table.weight()).sum();
            let mut writer = Writer::new(self.room(below), options.clone())?;
            let mut old = MergedRefs::new(tables.clone()).live_only();
            let mut few = self.few.map(|few| few.iter());
            let mut next = |old: &mut MergedRefs| advance(old, few.as_mut());
            let mut has_old = next(&mut old)?;
            for write in writes {
                while has_old {
                    let order = short::compare(old.name(), write.name.as_bytes());
                    match order {
                        Ordering::Less => writer.add_ref(old.record())?,
                        Ordering::Equal => {}
                        Ordering::Greater => break,
                    }
                    has_old = next(&mut old)?;
                    if order.is_eq() {
                        break;
                    }
                }
                let (least, most) = match write.value {
                    NewValue::Deleted => (0, 0),
                    NewValue::Symbolic(target) => (2, target.as_bytes().len() as u64 + 10),
                    NewValue::Direct { .. } => (id_len, 2 * id_len),
                };
                // Beside the value: two lengths, the name or its end, the update index.
                own.least += least + 4;
                own.most += most + write.name.as_bytes().len() as u64 + 30;
                match write.value {
                    NewValue::Deleted => own.deleted += 1,
                    _ => writer.add_ref(record(&write, index))?,
                }
            }
            while has_old {
                writer.add_ref(old.record())?;
                has_old = next(&mut old)?;
            }
            writer.finish()
        };
        // What the writer refuses is refused again, with its reason, when it is encoded alone.
        let finished = self.with_writes(merge).ok()?;
        let is_done = !finished.stats.is_empty() && self.stack.folds_whole(self.snapshot, &own);
        is_done.then_some(Pending {
            content: finished.sink,
            options,
            added: Added {
                deleted: own.deleted,
            },
            replaces: tables.len(),
        })
    }

    /// Returns room for a table of this plan and so many bytes more. What is not used costs nothing;
    /// to grow would be to copy.
    fn room(&self, more: u64) -> Vec<u8> {
        let more = usize::try_from(more).unwrap_or_default();
        let own = self.plan.len_hint().saturating_mul(RECORD_LEN);
        let mut room = Vec::new();
        // Where so much is not to be had, it grows as lists do.
        let _ = room.try_reserve(own.saturating_add(more));
        room
    }

    /// Does something with the new values of names in the stack, in their order.
    fn with_writes<R>(&self, work: impl FnOnce(&mut dyn Iterator<Item = Write<'a>>) -> R) -> R {
        ahead(self.plan.len_hint(), || self.writes(), work)
    }

    /// Returns the new values of names in the stack, in their order.
    fn writes(&self) -> Box<dyn Iterator<Item = Write<'a>> + Send + '_> {
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
        self.stack.checked(live.seek(name.as_bytes()))?;
        while self.stack.checked(live.advance())? {
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
    }

    fn add_lines(&self, lines: &[Line<'_>], writer: &mut Writer<Vec<u8>>) -> Result<()> {
        let message_max = self.stack.message_max();
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
        for line in lines {
            self.stack.checked(add_changes(Some(line), writer))?;
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
                    logs::update(&entry.old, &entry.new, who, &message)
                }
            };
            let record = LogRecord {
                name: line.name.as_bytes(),
                update_index: line.index,
                value,
            };
            self.stack.checked(writer.add_log(record))?;
        }
        self.stack.checked(add_changes(None, writer))
    }
}

/// Moves onto the next ref, of all or of these few.
fn advance(
    refs: &mut MergedRefs,
    few: Option<&mut std::slice::Iter<'_, Vec<u8>>>,
) -> reftable::Result<bool> {
    match few.map(Iterator::next) {
        None => refs.advance(),
        Some(None) => Ok(false),
        Some(Some(name)) => refs.seek(name).and_then(|()| refs.advance()),
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
