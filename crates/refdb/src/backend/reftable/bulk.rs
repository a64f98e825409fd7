//! Writing a whole stack at once: one table, streamed into its file.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hasher};
use std::io::BufWriter;
use std::path::PathBuf;
use std::sync::Arc;

use refdb_names::internals::owned_from_disk;
use refdb_names::{ObjectId, RefName, RefNameBuf};
use reftable::{LogCursor, LogRecord, LogValue, MergedRefs, RefCursor, Writer};

use super::cursor::is_listed;
use super::encode::record;
use super::stack::{Publish, Stack};
use super::tables::NewTable;
use super::{ReftableBackend, logs};
use crate::backend::bulk::{Bulk, BulkOptions, Frozen, Locks, LogMark, Mark, NewLog};
use crate::backend::maintained::Maintained;
use crate::backend::{LogOrder, NewValue, Write};
use crate::error::{Error, ErrorKind, OrIo, Result};
use crate::layout::Place;
use crate::options::LockTimeout;
use crate::reflog::{LogEntry, Signature};
use crate::system::processor_count;

/// Bytes that are gathered before they are written.
const BUFFER_LEN: usize = 256 << 10;

/// A table that will be all of a stack.
pub(super) struct ReftableBulk {
    stack: Arc<Stack>,
    name: String,
    writer: Writer<BufWriter<Box<dyn NewTable>>>,
    log: OpenLog,
    newest: u64,
}

/// The reflog that is being added.
#[derive(Default)]
struct OpenLog {
    name: Option<RefNameBuf>,
    /// The index of the next entry: they come newest first.
    next: u64,
    is_empty: bool,
}

impl ReftableBackend {
    pub(super) fn begin_bulk(&self, entries_max: u64) -> Result<ReftableBulk> {
        if self.register.is_none() {
            self.make_dir()?;
        }
        let stack = self.stack(&Place::Common);
        stack.may_write()?;
        let newest = entries_max.max(1);
        let mut options = stack.write_options(1, newest);
        options.deflate_threads = processor_count();
        let name = stack.new_name(1, newest);
        let sink = BufWriter::with_capacity(BUFFER_LEN, stack.tables.create(&name)?);
        let writer = stack.checked(Writer::new(sink, options))?;
        Ok(ReftableBulk {
            stack,
            name,
            writer,
            log: OpenLog::default(),
            newest,
        })
    }

    fn make_dir(&self) -> Result<()> {
        let dir = super::tables::stack_dir(self.layout.common_dir());
        let (system, shared) = (self.system.as_ref(), self.options.shared_repository);
        let made = system.create_dir(&dir);
        let made = made.and_then(|()| shared.adjust(system, &dir));
        made.or_io("cannot create", &dir)
    }

    /// Replaces whole reflogs by a table on top.
    pub(super) fn put_logs(&self, new: &[NewLog]) -> Result<()> {
        let stack = self.stack(&Place::Common);
        let mut held = stack.hold_to_add(self.options.reftable.lock_timeout, None)?;
        let first = held.snapshot.next_update_index();
        let entries = new.iter().filter_map(|log| log.entries.as_ref());
        let longest = entries.map(Vec::len).max().unwrap_or(0).max(1);
        let newest = first.saturating_add(u64::try_from(longest).unwrap_or(u64::MAX));
        let options = stack.write_options(first, newest);
        let mut writer = stack.checked(Writer::new(Vec::new(), options.clone()))?;
        let mut live = logs::live(&held.snapshot);
        for log in new {
            let name = log.name.as_bytes();
            if log.only_new && logs::exists(&stack, &mut live, log.name.as_name())? {
                continue;
            }
            if let Some(entries) = &log.entries {
                let indices = (0..=newest).rev();
                for (entry, index) in entries.iter().rev().zip(indices) {
                    add_entry(&mut writer, name, index, entry, &stack)?;
                }
                if entries.is_empty() {
                    add_marker(&mut writer, name, newest, &stack)?;
                }
            }
            // All new indices are above the old ones.
            stack.checked(live.seek(name))?;
            while stack.checked(live.advance())? && live.record().name == name {
                let old = LogRecord {
                    name,
                    update_index: live.record().update_index,
                    value: LogValue::Deletion,
                };
                stack.checked(writer.add_log(old))?;
            }
        }
        let content = stack.checked(writer.finish())?;
        if content.stats.is_empty() {
            return Ok(());
        }
        let name = stack.store(&options, &content.sink)?;
        stack.publish_on_top(&mut held, name, content.sink, 0)?;
        Ok(())
    }

    /// Returns every reflog with a number that depends on all of its records.
    pub(super) fn marks(&self) -> Result<Vec<LogMark>> {
        let stack = self.stack(&Place::Common);
        let snapshot = stack.snapshot()?;
        let mut live = logs::live(&snapshot);
        let mut marks: Vec<LogMark> = Vec::new();
        let mut hasher = DefaultHasher::new();
        while stack.checked(live.advance())? {
            let record = live.record();
            let is_same = |mark: &LogMark| mark.name.as_bytes() == record.name;
            if !marks.last().is_some_and(is_same) {
                hasher = DefaultHasher::new();
                marks.push(LogMark {
                    name: owned_from_disk(record.name),
                    state: 0,
                    entries_max: 0,
                });
            }
            hash_record(&mut hasher, &record);
            if let Some(mark) = marks.last_mut() {
                mark.state = hasher.finish();
                mark.entries_max += 1;
            }
        }
        Ok(marks)
    }

    /// Takes the lock of the stack.
    pub(super) fn take_lock(&self) -> Result<Box<dyn Frozen>> {
        if self.register.is_some() {
            let what = "what many machines share is not frozen by a lock: refdb store freeze";
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        let base = self.layout.common_dir();
        let list = super::tables::stack_dir(base).join("tables.list");
        let mut locks = Locks::new(&self.home, self.options.shared_repository);
        locks.take(self.system.as_ref(), &list)?;
        Ok(Box::new(FrozenStack(locks)))
    }
}

/// A stack whose list is locked.
struct FrozenStack(Locks);

impl Frozen for FrozenStack {
    fn names(&self) -> Vec<&[u8]> {
        Vec::new()
    }

    fn check(&self) -> Result<()> {
        self.0.check()
    }

    fn leave(&mut self) {}
}

fn hash_record(hasher: &mut DefaultHasher, record: &LogRecord<'_>) {
    hasher.write_u64(record.update_index);
    if let LogValue::Update(update) = &record.value {
        hasher.write(update.old);
        hasher.write(update.new);
        hasher.write_u64(update.time);
        hasher.write_i16(update.tz);
        for text in [update.name, update.email, update.message] {
            hasher.write_usize(text.len());
            hasher.write(text);
        }
    }
}

fn add_entry<W: std::io::Write>(
    writer: &mut Writer<W>,
    name: &[u8],
    update_index: u64,
    entry: &LogEntry,
    stack: &Stack,
) -> Result<()> {
    let mut message = entry.message.to_vec();
    message.truncate(stack.message_max());
    message.push(b'\n');
    let added = writer.add_log(LogRecord {
        name,
        update_index,
        value: logs::update(&entry.old, &entry.new, &entry.who, &message),
    });
    stack.checked(added)
}

/// Adds the record that says that there is a reflog without entries.
fn add_marker<W: std::io::Write>(
    writer: &mut Writer<W>,
    name: &[u8],
    update_index: u64,
    stack: &Stack,
) -> Result<()> {
    let null = ObjectId::null(stack.object_format());
    let added = writer.add_log(LogRecord {
        name,
        update_index,
        value: logs::update(&null, &null, &Signature::default(), b""),
    });
    stack.checked(added)
}

impl ReftableBulk {
    fn end_log(&mut self) -> Result<()> {
        if let Some(name) = self.log.name.take()
            && self.log.is_empty
        {
            add_marker(&mut self.writer, name.as_bytes(), self.newest, &self.stack)?;
        }
        Ok(())
    }
}

impl Bulk for ReftableBulk {
    fn add_ref(&mut self, name: RefName<'_>, value: NewValue<'_>) -> Result<()> {
        let write = Write { name, value };
        self.stack.checked(self.writer.add_ref(record(&write, 1)))
    }

    fn log_order(&self) -> LogOrder {
        LogOrder::NewestFirst
    }

    fn begin_log(&mut self, name: RefName<'_>) -> Result<()> {
        self.end_log()?;
        self.log = OpenLog {
            name: Some(name.to_owned()),
            next: self.newest,
            is_empty: true,
        };
        Ok(())
    }

    fn add_entry(&mut self, entry: &LogEntry) -> Result<()> {
        let Some(name) = &self.log.name else {
            return Ok(());
        };
        let index = self.log.next;
        add_entry(&mut self.writer, name.as_bytes(), index, entry, &self.stack)?;
        self.log.is_empty = false;
        self.log.next = self.log.next.saturating_sub(1);
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.end_log()?;
        let finished = self.stack.checked(self.writer.finish())?;
        let path = self.stack.tables.path_of(&self.name);
        let file = finished
            .sink
            .into_inner()
            .map_err(|error| Error::io("cannot write", &path, error.into_error()))?;
        let mut held = self.stack.hold(LockTimeout::from_millis(0))?;
        let names = if finished.stats.is_empty() {
            Vec::new()
        } else {
            file.finish()?;
            vec![self.name.clone()]
        };
        let tables = names
            .iter()
            .map(|name| self.stack.reopen(name).map(Arc::new))
            .collect::<Result<Vec<_>>>()?;
        match self.stack.publish(&mut held, names, tables, &[])? {
            Publish::Done { unsynced } => unsynced.map_or(Ok(()), Err),
            Publish::Moved => Err(Error::overtaken()),
        }
    }
}

/// The first name that comes behind all those below `refs/`.
const BEHIND_REFS: &[u8] = b"refs0";

impl Maintained for ReftableBackend {
    fn bulk(&self, options: BulkOptions) -> Result<Box<dyn Bulk>> {
        Ok(Box::new(self.begin_bulk(options.entries_max)?))
    }

    fn replace_logs(&self, logs: &[NewLog]) -> Result<()> {
        self.put_logs(logs)
    }

    fn log_marks(&self) -> Result<Vec<LogMark>> {
        self.marks()
    }

    fn mark(&self) -> Result<Mark> {
        // A table never changes, and its name is not used again.
        let mut together = Vec::new();
        let (common, own) = self.view();
        for stack in [Some(common), own].into_iter().flatten() {
            together.push(stack.snapshot()?.names.join("\n"));
        }
        Ok(Mark {
            together: Some(together.join("\n\n").into_bytes()),
            single: BTreeSet::new(),
            has_logs: true,
        })
    }

    fn file_of(&self, name: RefName<'_>, is_log: bool) -> Result<Option<PathBuf>> {
        let (place, bare) = self.layout.locate(name);
        let stack = self.stack(&place);
        let name = bare.as_bytes();
        for table in stack.snapshot()?.tables.iter().rev() {
            let is_there = (|| {
                if is_log {
                    let mut logs = LogCursor::new(Arc::clone(table));
                    logs.seek(name)?;
                    return Ok(logs.advance()? && logs.record().name == name);
                }
                let mut refs = RefCursor::new(Arc::clone(table));
                refs.seek(name)?;
                Ok(refs.advance()? && refs.record().name == name)
            })();
            if stack.checked(is_there)? {
                return Ok(Some(stack.tables.path_of(table.label())));
            }
        }
        Ok(None)
    }

    fn unlisted(&self, most: usize) -> Result<Vec<RefNameBuf>> {
        let stack = self.stack(&Place::Common);
        let mut refs = MergedRefs::new(stack.snapshot()?.tables.clone()).live_only();
        let mut found = Vec::new();
        while found.len() < most && stack.checked(refs.advance())? {
            let name = refs.record().name;
            if name.starts_with(b"refs/") {
                stack.checked(refs.seek(BEHIND_REFS))?;
            } else if !is_listed(name) {
                found.push(owned_from_disk(name));
            }
        }
        Ok(found)
    }

    fn is_fully_peeled(&self) -> Result<bool> {
        // Git's own migration stores tags without what they peel to.
        Ok(false)
    }

    fn refs_len(&self) -> Result<u64> {
        let snapshot = self.stack(&Place::Common).snapshot()?;
        Ok(snapshot.tables.iter().map(|table| table.weight()).sum())
    }

    fn freeze(&self) -> Result<Box<dyn Frozen>> {
        self.take_lock()
    }
}
