//! A cursor over one moment of packed-refs.

use std::ops::Range;
use std::sync::Arc;

use reftable::short::has_prefix;

use super::packed::Snapshot;
use crate::backend::cursor::{Cursor, Look, RefRecord};
use crate::error::Result;
use crate::name::{
    FormatOptions, RefName, goes_on_plainly, is_per_worktree, is_safe, is_well_formed,
};
use crate::oid::ObjectId;
use crate::target::TargetRef;

/// Walks over the records of a snapshot, which it owns.
#[derive(Debug)]
pub(super) struct PackedCursor {
    snapshot: Arc<Snapshot>,
    // Where the next record starts.
    next: usize,
    prefix: Vec<u8>,
    current: Option<Current>,
    null: ObjectId,
    // Per-worktree refs that strayed into packed-refs belong to the main worktree.
    shared_only: bool,
    // The values of the refs that are shown, if not all are.
    wanted: Option<Vec<ObjectId>>,
    // The record that was last looked for ahead.
    scout: usize,
}

/// About a thousand refs take so many bytes.
const AHEAD: usize = 96 << 10;

#[derive(Debug)]
struct Current {
    name: Range<usize>,
    oid: ObjectId,
    peeled: Option<ObjectId>,
    bad_name: bool,
}

impl PackedCursor {
    /// Makes a cursor that stands before the first record; `shared_only` hides per-worktree refs.
    pub(super) fn new(snapshot: Arc<Snapshot>, null: ObjectId, shared_only: bool) -> Self {
        PackedCursor {
            next: snapshot.start(),
            snapshot,
            prefix: Vec::new(),
            current: None,
            null,
            shared_only,
            wanted: None,
            scout: 0,
        }
    }

    /// Makes another cursor over the same records.
    pub(super) fn again(&self) -> Self {
        let again = PackedCursor::new(Arc::clone(&self.snapshot), self.null, self.shared_only);
        again.of_objects(self.wanted.clone())
    }

    /// Leaves out refs of which neither the value nor the peeled value is `wanted`.
    pub(super) fn of_objects(self, wanted: Option<Vec<ObjectId>>) -> Self {
        PackedCursor { wanted, ..self }
    }

    /// Returns the name on which the cursor stands, if it stands on a record.
    pub(super) fn present(&self) -> Option<&[u8]> {
        let current = self.current.as_ref()?;
        Some(self.snapshot.slice(&current.name))
    }
}

impl Cursor for PackedCursor {
    fn seek(&mut self, name: &[u8], prefix: &[u8]) -> Result<()> {
        let ahead = self.present().is_some_and(|current| current < name);
        let from = if ahead {
            self.next
        } else {
            self.snapshot.start()
        };
        self.current = None;
        self.next = self.snapshot.lower_bound(name.max(prefix), from)?;
        self.prefix.clear();
        self.prefix.extend_from_slice(prefix);
        Ok(())
    }

    fn advance(&mut self) -> Result<bool> {
        let last = self.current.take().filter(|last| !last.bad_name);
        let mut last = last.map(|last| last.name);
        while self.next < self.snapshot.len() {
            let record = self.snapshot.record(self.next)?;
            let name = self.snapshot.slice(&record.name);
            if !has_prefix(name, &self.prefix) {
                break;
            }
            self.next = record.all.end;
            if self.shared_only && is_per_worktree(name) {
                continue;
            }
            let is_like_last = last
                .as_ref()
                .is_some_and(|last| goes_on_plainly(self.snapshot.slice(last), name));
            let bad_name = !is_like_last && !is_well_formed(name, FormatOptions::ONE_LEVEL);
            if bad_name && !is_safe(name) {
                return Err(self.snapshot.dangerous(name));
            }
            // Somebody has to be told of a broken ref, whatever it was to name.
            if let Some(wanted) = &self.wanted
                && !(bad_name || record.oid.is_null())
                && !wanted
                    .iter()
                    .any(|oid| *oid == record.oid || Some(*oid) == record.peeled)
            {
                last = Some(record.name);
                continue;
            }
            self.current = Some(Current {
                name: record.name,
                oid: record.oid,
                peeled: record.peeled,
                bad_name,
            });
            return Ok(true);
        }
        self.next = self.snapshot.len();
        Ok(false)
    }

    fn record(&self) -> RefRecord<'_> {
        let current = self.current.as_ref().expect("advance returned true");
        let broken = current.bad_name || current.oid.is_null();
        RefRecord {
            name: RefName::from_disk(self.snapshot.slice(&current.name)),
            target: TargetRef::Direct(if broken { self.null } else { current.oid }),
            peeled: current.peeled.filter(|_| !broken),
            packed: true,
            broken,
            look: Look::at(!current.bad_name),
        }
    }

    fn name_ahead(&mut self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let snapshot = &self.snapshot;
        let is_before = self.scout > snapshot.start()
            && self.scout < snapshot.len()
            && snapshot.slice(&snapshot.name_at(self.scout)?) <= name;
        let from = if is_before {
            self.scout
        } else {
            snapshot.start()
        };
        let here = snapshot.lower_bound(name, from)?;
        let ahead = here.saturating_add(AHEAD);
        if ahead >= snapshot.len() {
            return Ok(None);
        }
        self.scout = snapshot.record_start(ahead, here);
        let found = snapshot.name_at(self.scout)?;
        Ok((self.scout > here).then(|| snapshot.slice(&found).to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oid::ObjectFormat;
    use crate::system::Bytes;

    fn cursor(names: &[&str], shared_only: bool) -> PackedCursor {
        let mut content = String::from("# pack-refs with: peeled fully-peeled sorted \n");
        for name in names {
            content += &format!("{} {name}\n", "a".repeat(40));
        }
        let bytes = Bytes::from(content);
        let snapshot = Snapshot::new("packed-refs".into(), ObjectFormat::Sha1, bytes).unwrap();
        let null = ObjectId::null(ObjectFormat::Sha1);
        PackedCursor::new(Arc::new(snapshot), null, shared_only)
    }

    fn rest(cursor: &mut PackedCursor) -> Vec<String> {
        let mut names = Vec::new();
        while cursor.advance().unwrap() {
            names.push(cursor.record().name.to_string());
        }
        names
    }

    #[test]
    fn seeks_go_forward_and_backward() {
        let names = [
            "refs/heads/a",
            "refs/heads/b",
            "refs/heads/b/c",
            "refs/tags/a",
        ];
        let mut cursor = cursor(&names, false);
        assert_eq!(rest(&mut cursor), names);
        cursor.seek(b"refs/heads/aa", b"refs/heads/").unwrap();
        assert_eq!(rest(&mut cursor), ["refs/heads/b", "refs/heads/b/c"]);
        assert!(!cursor.advance().unwrap());
        cursor.seek(b"", b"refs/heads/b").unwrap();
        assert!(cursor.advance().unwrap());
        cursor.seek(b"refs/tags/", b"").unwrap();
        assert_eq!(rest(&mut cursor), ["refs/tags/a"]);
        cursor.seek(b"", b"").unwrap();
        assert_eq!(rest(&mut cursor), names);
    }

    #[test]
    fn bad_names_are_told_and_dangerous_ones_refused() {
        let mut bad = cursor(&["refs/heads/a..b"], false);
        assert!(bad.advance().unwrap());
        let record = bad.record();
        assert!(record.broken && record.has_bad_name());
        assert_eq!(record.target.oid().map(|oid| oid.is_null()), Some(true));
        let mut dangerous = cursor(&["refs/../x"], false);
        assert_eq!(
            dangerous.advance().unwrap_err().to_string(),
            "packed refname is dangerous: refs/../x (in packed-refs); 'refdb refs verify --deep' tells all, 'refdb refs repair' mends what can be"
        );
    }

    #[test]
    fn strays_are_hidden_from_linked_worktrees() {
        let names = ["refs/bisect/bad", "refs/heads/a"];
        assert_eq!(rest(&mut cursor(&names, true)), ["refs/heads/a"]);
        assert_eq!(rest(&mut cursor(&names, false)), names);
    }
}
