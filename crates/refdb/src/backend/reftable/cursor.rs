//! A cursor over the refs of one stack.

use std::sync::Arc;

use refdb_names::internals::{goes_on_well, name_from_disk};
use refdb_names::name::is_root_ref;
use refdb_names::{ObjectFormat, ObjectId, RefName, TargetRef};
use reftable::short::has_prefix;
use reftable::{MergedRefs, RefCursor, RefValue};

use super::stack::{Snapshot, Stack};
use crate::backend::cursor::{Cursor, Found, Look, RefRecord, least};
use crate::error::Result;

/// About a thousand refs take so many bytes of a table.
const AHEAD: u64 = 32 << 10;

/// A cursor over one stack's live refs: those below `refs/`, and root refs.
pub(super) struct StackCursor {
    merged: MergedRefs,
    snapshot: Arc<Snapshot>,
    /// A cursor over each table, which looks ahead.
    scouts: Vec<RefCursor>,
    stack: Arc<Stack>,
    format: ObjectFormat,
    prefix: Vec<u8>,
    /// The name from which on nothing is looked for, if there is one.
    end: Option<Vec<u8>>,
    /// What is known of the name.
    look: Look,
}

impl StackCursor {
    pub(super) fn new(stack: &Arc<Stack>, snapshot: Arc<Snapshot>) -> Self {
        StackCursor {
            merged: MergedRefs::new(snapshot.tables.clone()),
            snapshot,
            scouts: Vec::new(),
            stack: Arc::clone(stack),
            format: stack.object_format(),
            prefix: Vec::new(),
            end: None,
            look: Look::None,
        }
    }
}

/// Returns whether listings show a ref of that name: Git's iterators skip names that are neither
/// below `refs/` nor root refs.
pub(super) fn is_listed(name: &[u8]) -> bool {
    name.starts_with(b"refs/") || is_root_ref(name)
}

impl Cursor for StackCursor {
    fn seek(&mut self, name: &[u8], prefix: &[u8]) -> Result<()> {
        self.seek_part(name, prefix, None)
    }

    fn seek_part(&mut self, name: &[u8], prefix: &[u8], end: Option<&[u8]>) -> Result<()> {
        self.end = end.map(<[u8]>::to_vec);
        self.prefix.clear();
        self.prefix.extend_from_slice(prefix);
        self.stack.checked(self.merged.seek(name.max(prefix)))
    }

    fn advance(&mut self) -> Result<bool> {
        while self.stack.checked(self.merged.advance())? {
            let name = self.merged.name();
            if !has_prefix(name, &self.prefix) {
                return Ok(false);
            }
            if self.merged.is_deletion() {
                // What is deleted may go on for very long.
                if self.end.as_ref().is_some_and(|end| name >= &end[..]) {
                    return Ok(false);
                }
                continue;
            }
            if is_listed(name) {
                self.look = Look::at(self.merged.is_good(goes_on_well));
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn look_at(&mut self, name: &[u8]) -> Result<Found> {
        self.prefix.clear();
        self.end = None;
        self.stack.checked(self.merged.seek(name))?;
        if !self.stack.checked(self.merged.advance())? {
            return Ok(Found::End);
        }
        if self.merged.is_deletion() || !is_listed(self.merged.name()) {
            return Ok(Found::Nothing);
        }
        self.look = Look::at(self.merged.is_good(goes_on_well));
        Ok(Found::Ref)
    }

    fn name(&self) -> RefName<'_> {
        name_from_disk(self.merged.name())
    }

    fn record(&self) -> RefRecord<'_> {
        let record = self.merged.record();
        let null = || ObjectId::null(self.format);
        let oid = |raw: &[u8]| ObjectId::from_bytes(raw).unwrap_or_else(null);
        let (target, peeled) = match record.value {
            RefValue::Deletion => (TargetRef::Direct(null()), None),
            RefValue::Direct(raw) => (TargetRef::Direct(oid(raw)), None),
            RefValue::Peeled { oid: raw, peeled } => {
                (TargetRef::Direct(oid(raw)), Some(oid(peeled)))
            }
            RefValue::Symref(target) => (TargetRef::Symbolic(name_from_disk(target)), None),
        };
        let mut found = RefRecord {
            name: name_from_disk(record.name),
            target,
            peeled,
            packed: false,
            broken: matches!(target, TargetRef::Direct(oid) if oid.is_null()),
            look: self.look,
        };
        if found.has_bad_name() {
            // As in Git, and in files: what has no name of a ref has no value.
            (found.target, found.peeled) = (TargetRef::Direct(null()), None);
            found.broken = true;
        }
        found
    }

    fn another(&self) -> Option<Box<dyn Cursor>> {
        let another = StackCursor::new(&self.stack, Arc::clone(&self.snapshot));
        Some(Box::new(another))
    }

    fn name_ahead(&mut self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        if self.scouts.is_empty() {
            let tables = self.snapshot.tables.iter();
            self.scouts = tables.cloned().map(RefCursor::new).collect();
        }
        let mut ahead = None;
        for scout in &mut self.scouts {
            let found = scout.seek(name).and_then(|()| scout.name_ahead(AHEAD));
            ahead = least(ahead, self.stack.checked(found)?);
        }
        Ok(ahead)
    }
}
