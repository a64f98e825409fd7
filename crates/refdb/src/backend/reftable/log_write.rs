//! Log records that are not new entries: rewritten ones, tombstones, and the marker that says that
//! a reflog exists.

use refdb_names::{ObjectId, RefName};
use reftable::{LogRecord, LogValue, Writer};

use super::logs;
use super::session::{Part, ReftableSession};
use crate::backend::{Fate, Judge, LogChange};
use crate::error::Result;
use crate::layout::Place;
use crate::reflog::{LogEntry, Signature};

/// One record of a reflog that is changed as a whole.
pub(super) struct LogChangeRecord {
    pub(super) name: Vec<u8>,
    pub(super) index: u64,
    /// `None` for a tombstone.
    entry: Option<LogEntry>,
}

impl LogChangeRecord {
    fn new(name: RefName<'_>, index: u64, entry: Option<LogEntry>) -> Self {
        LogChangeRecord {
            name: name.as_bytes().to_vec(),
            index,
            entry,
        }
    }

    pub(super) fn add_to(&self, writer: &mut Writer<Vec<u8>>) -> reftable::Result<()> {
        let mut message = Vec::new();
        let value = match &self.entry {
            None => LogValue::Deletion,
            Some(entry) => {
                // A marker has no message at all.
                if !logs::is_marker(entry.old.as_bytes(), entry.new.as_bytes()) {
                    message.extend_from_slice(&entry.message);
                    message.push(b'\n');
                }
                logs::update(&entry.old, &entry.new, &entry.who, &message)
            }
        };
        writer.add_log(LogRecord {
            name: &self.name,
            update_index: self.index,
            value,
        })
    }
}

impl ReftableSession<'_> {
    /// Adds the places whose stacks a change of a reflog needs.
    pub(super) fn add_places(&self, change: LogChange<'_>, places: &mut Vec<Place>) {
        let layout = &self.backend.layout;
        let mut add = |name| {
            let (place, bare) = layout.locate(name);
            places.push(place);
            bare
        };
        match change {
            LogChange::Create(name) => {
                add(name);
            }
            LogChange::Delete(name) => {
                if add(name) != name {
                    places.push(Place::Common);
                }
            }
            LogChange::Copy { from, to } | LogChange::Move { from, to } => {
                add(from);
                add(to);
            }
        }
    }

    /// Records what happens to a reflog as a whole.
    pub(super) fn change_log(&mut self, change: LogChange<'_>) -> Result<()> {
        let (LogChange::Create(name)
        | LogChange::Delete(name)
        | LogChange::Copy { to: name, .. }
        | LogChange::Move { to: name, .. }) = change;
        let (place, bare) = self.backend.layout.locate(name);
        let at = self.part(&place)?;
        let records = match change {
            LogChange::Create(_) => self.parts[at].new_marker(bare)?,
            LogChange::Delete(name) => {
                if name != bare {
                    // Git keeps what it writes about another worktree under the name as it is.
                    let own = self.part(&Place::Common)?;
                    let records = self.parts[own].tombstones(name)?;
                    self.parts[own].log_changes.extend(records);
                }
                self.parts[at].tombstones(bare)?
            }
            // The records of a reflog that moves go with its ref.
            LogChange::Copy { from, .. } | LogChange::Move { from, .. } => {
                let (place, from) = self.backend.layout.locate(from);
                let source = self.part(&place)?;
                self.parts[source].records(from, |index, entry| {
                    entry.map(|entry| LogChangeRecord::new(bare, index, Some(entry)))
                })?
            }
        };
        self.parts[at].log_changes.extend(records);
        Ok(())
    }
}

impl Part {
    /// Returns what takes a reflog away.
    fn tombstones(&self, name: RefName<'_>) -> Result<Vec<LogChangeRecord>> {
        self.records(name, |index, _| {
            Some(LogChangeRecord::new(name, index, None))
        })
    }

    /// Returns what `make` makes of the records of a reflog.
    fn records(
        &self,
        name: RefName<'_>,
        make: impl Fn(u64, Option<LogEntry>) -> Option<LogChangeRecord>,
    ) -> Result<Vec<LogChangeRecord>> {
        let all = logs::all(&self.stack, &self.held.snapshot, name)?;
        Ok(all
            .into_iter()
            .filter_map(|(index, entry)| make(index, entry))
            .collect())
    }

    /// Returns the record that says that there is a reflog, unless there is one.
    fn new_marker(&self, name: RefName<'_>) -> Result<Vec<LogChangeRecord>> {
        let mut live = logs::live(&self.held.snapshot);
        let exists = logs::exists(&self.stack, &mut live, name)?;
        Ok((!exists).then(|| self.marker(name)).into_iter().collect())
    }

    /// Returns the record that says that there is a reflog.
    fn marker(&self, name: RefName<'_>) -> LogChangeRecord {
        let null = ObjectId::null(self.object_format);
        let entry = LogEntry {
            old: null,
            new: null,
            who: Signature::default(),
            message: Default::default(),
        };
        let index = self.held.snapshot.next_update_index();
        LogChangeRecord::new(name, index, Some(entry))
    }

    /// Reads a reflog, the oldest entry first, and records what `judge` changes of it, and the entries
    /// `then` behind that.
    pub(super) fn rewrite_log(
        &mut self,
        name: RefName<'_>,
        judge: &mut Judge<'_>,
        then: &[LogEntry],
    ) -> Result<bool> {
        let log = logs::all(&self.stack, &self.held.snapshot, name)?;
        if log.is_empty() {
            return Ok(false);
        }
        let mut is_left = !then.is_empty();
        for (entry, index) in then.iter().zip(self.held.snapshot.next_update_index()..) {
            let mut entry = entry.clone();
            entry.message.truncate(self.stack.message_max());
            let record = LogChangeRecord::new(name, index, Some(entry));
            self.log_changes.push(record);
        }
        for (index, entry) in log.into_iter().rev() {
            let Some(mut entry) = entry else {
                // What says that there is a reflog goes on saying so.
                is_left = true;
                continue;
            };
            match judge(&entry)? {
                Fate::Keep { old } => {
                    is_left = true;
                    if old != entry.old {
                        entry.old = old;
                        let record = LogChangeRecord::new(name, index, Some(entry));
                        self.log_changes.push(record);
                    }
                }
                Fate::Drop => {
                    let record = LogChangeRecord::new(name, index, None);
                    self.log_changes.push(record);
                }
            }
        }
        if !is_left {
            let marker = self.marker(name);
            self.log_changes.push(marker);
        }
        Ok(true)
    }
}
