//! A cursor over one moment of packed-refs.

use std::ops::Range;
use std::sync::Arc;

use refdb_names::internals::name_from_disk;
use refdb_names::name::{FormatOptions, goes_on_plainly, is_per_worktree, is_safe, is_well_formed};
use refdb_names::{ObjectId, TargetRef};
use reftable::short::{self, has_prefix};

use super::packed::{FirstBytes, Snapshot};
use super::rewrite::out_of_order;
use crate::backend::cursor::{Cursor, Look, RefRecord};
use crate::error::Result;

/// Walks over the records of a snapshot, which it owns.
#[derive(Debug)]
pub(super) struct PackedCursor {
    snapshot: Arc<Snapshot>,
    // Where the next record starts.
    next: usize,
    // Where the record starts before which the cursor ends, if it is not to show all.
    end: usize,
    prefix: Vec<u8>,
    current: Option<Current>,
    null: ObjectId,
    // Per-worktree refs that strayed into packed-refs belong to the main worktree.
    shared_only: bool,
    // The values of the refs that are shown, if not all are.
    wanted: Option<Wanted>,
    // The record that was last looked for ahead.
    scout: usize,
}

/// Where all refs are listed, one whose name was damaged must not hide others.
const ALL: &[u8] = b"refs/";

/// About a thousand refs take so many bytes.
const AHEAD: usize = 96 << 10;

#[derive(Clone, Debug)]
struct Wanted {
    oids: Vec<ObjectId>,
    /// Those of the ids, and that of the null id: somebody has to be told of a broken ref.
    first: FirstBytes,
}

impl Wanted {
    fn has(&self, oid: ObjectId) -> bool {
        self.oids.binary_search(&oid).is_ok()
    }
}

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
            end: snapshot.len(),
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
        let wanted = self.wanted.clone();
        PackedCursor { wanted, ..again }
    }

    /// Leaves out refs of which neither the value nor the peeled value is `wanted`, which are sorted.
    pub(super) fn of_objects(self, wanted: Vec<ObjectId>) -> Self {
        let mut first = FirstBytes::default();
        wanted.iter().for_each(|oid| first.add(oid));
        first.add(&self.null);
        let wanted = Some(Wanted {
            oids: wanted,
            first,
        });
        PackedCursor { wanted, ..self }
    }

    /// Passes over records that are certainly not shown, from behind a well-formed name on.
    fn pass(&mut self, last: &mut Option<Range<usize>>) {
        let (Some(wanted), false) = (&self.wanted, self.shared_only) else {
            return;
        };
        let snapshot = &self.snapshot;
        while self.next < self.end
            && let Some(before) = last
            && let Some((name, end)) = snapshot.pass(self.next, &wanted.first)
            && has_prefix(snapshot.slice(&name), &self.prefix)
            && goes_on_plainly(snapshot.slice(before), snapshot.slice(&name))
        {
            self.next = end;
            *before = name;
        }
    }

    /// Returns the name on which the cursor stands, if it stands on a record.
    pub(super) fn present(&self) -> Option<&[u8]> {
        let current = self.current.as_ref()?;
        Some(self.snapshot.slice(&current.name))
    }
}

/// Makes sure that a listing which ends with the record before `next`, whose name is `name`, does not end
/// for a damaged name: it would hide what comes behind it. `before` is the name before it.
///
/// # Errors
/// `Corrupt` if the names do not follow each other.
fn check_end(snapshot: &Snapshot, next: usize, name: &[u8], before: Option<&[u8]>) -> Result<()> {
    if let Some(before) = before.filter(|before| *before > name) {
        return Err(out_of_order(snapshot.path(), before, name));
    }
    let behind = (next < snapshot.len()).then(|| snapshot.name_at(next));
    match behind.transpose()?.map(|behind| snapshot.slice(&behind)) {
        Some(behind) if behind < name => Err(out_of_order(snapshot.path(), name, behind)),
        _ => Ok(()),
    }
}

/// The same, of a listing that begins at `at`: the name before it is not one that was damaged.
///
/// # Errors
/// As for [`check_end`].
fn check_begin(snapshot: &Snapshot, at: usize) -> Result<()> {
    let start = snapshot.start();
    if at <= start {
        return Ok(());
    }
    let before = snapshot.record_start(at - 1, start);
    let name = snapshot.name_at(before)?;
    snapshot.check_name(&name)?;
    let first =
        (before > start).then(|| snapshot.name_at(snapshot.record_start(before - 1, start)));
    let first = first.transpose()?.map(|first| snapshot.slice(&first));
    check_end(snapshot, at, snapshot.slice(&name), first)
}

/// Returns whether two names are one. Most neighbours differ in their length or in their last byte.
#[inline]
fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.last() == other.last() && one.len() == other.len() && short::same(one, other)
}

impl Cursor for PackedCursor {
    fn seek(&mut self, name: &[u8], prefix: &[u8]) -> Result<()> {
        self.seek_part(name, prefix, None)
    }

    fn seek_part(&mut self, name: &[u8], prefix: &[u8], end: Option<&[u8]>) -> Result<()> {
        let ahead = self.present().is_some_and(|current| current < name);
        let from = if ahead {
            self.next
        } else {
            self.snapshot.start()
        };
        self.current = None;
        self.next = self.snapshot.lower_bound(name.max(prefix), from)?;
        if prefix == ALL && name <= prefix {
            check_begin(&self.snapshot, self.next)?;
        }
        self.end = match end.filter(|_| self.wanted.is_some()) {
            Some(end) => self.snapshot.lower_bound(end, self.next)?,
            None => self.snapshot.len(),
        };
        self.prefix.clear();
        self.prefix.extend_from_slice(prefix);
        Ok(())
    }

    fn advance(&mut self) -> Result<bool> {
        let is_bad = self.current.as_ref().is_some_and(|last| last.bad_name);
        let last = self.current.take().map(|last| last.name);
        let (bad, mut last) = if is_bad { (last, None) } else { (None, last) };
        loop {
            self.pass(&mut last);
            if self.next >= self.end {
                break;
            }
            let record = self.snapshot.record_of_any_name(self.next)?;
            let name = self.snapshot.slice(&record.name);
            let before = last.as_ref().map(|last| self.snapshot.slice(last));
            let is_like_last = before.is_some_and(|before| goes_on_plainly(before, name));
            let is_again = match before.or(bad.as_ref().map(|bad| self.snapshot.slice(bad))) {
                Some(before) => is_same(before, name),
                None => false,
            };
            if is_again {
                // An older program wrote it twice: the first record counts, which lookups find.
                self.next = record.all.end;
                continue;
            }
            if !is_like_last {
                self.snapshot.check_name(&record.name)?;
            }
            if !has_prefix(name, &self.prefix) {
                if last.is_some() || self.prefix == ALL {
                    check_end(&self.snapshot, record.all.end, name, before)?;
                }
                break;
            }
            self.next = record.all.end;
            if self.shared_only && is_per_worktree(name) {
                continue;
            }
            let bad_name = !is_like_last && !is_well_formed(name, FormatOptions::ONE_LEVEL);
            if bad_name && !is_safe(name) {
                return Err(self.snapshot.dangerous(name));
            }
            // Somebody has to be told of a broken ref, whatever it was to name.
            if let Some(wanted) = &self.wanted
                && !(bad_name || record.oid.is_null())
                && !wanted.has(record.oid)
                && !record.peeled.is_some_and(|peeled| wanted.has(peeled))
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
            name: name_from_disk(self.snapshot.slice(&current.name)),
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
    use crate::system::Bytes;
    use refdb_names::oid::ObjectFormat;

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

    /// A bit that flipped in one name, or zeros in it, must not hide others: it is told.
    #[test]
    fn a_damaged_name_ends_no_listing() {
        let names: Vec<String> = ('a'..'k').map(|c| format!("refs/heads/{c}")).collect();
        for damaged in 0..names.len() {
            let last = names.len() - 1;
            for start in ["qefs/", "zefs/", "refs-", "reft/", "\0efs/", "ref\0/"] {
                let mut changed = names.clone();
                changed[damaged] = changed[damaged].replace("refs/", start);
                // At an end it stands where such a name belongs, which is in nobody's way.
                let is_sorted = changed.is_sorted() && !start.contains('\0');
                let names: Vec<&str> = changed.iter().map(String::as_str).collect();
                let mut cursor = cursor(&names, false);
                let listed = cursor.seek(b"refs/", b"refs/").and_then(|()| {
                    let mut count = 0;
                    while cursor.advance()? {
                        count += 1;
                    }
                    Ok(count)
                });
                match listed {
                    Ok(count) => assert!(is_sorted && count == last, "{changed:?}"),
                    Err(error) => assert!(!is_sorted, "{error}: {changed:?}"),
                }
            }
        }
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
            "packed refname is dangerous: refs/../x (in packed-refs)"
        );
    }

    #[test]
    fn strays_are_hidden_from_linked_worktrees() {
        let names = ["refs/bisect/bad", "refs/heads/a"];
        assert_eq!(rest(&mut cursor(&names, true)), ["refs/heads/a"]);
        assert_eq!(rest(&mut cursor(&names, false)), names);
    }

    #[test]
    fn refs_of_objects_are_those_that_a_look_at_all_finds() {
        // Ids of which the first bytes are the same, or only their lowest six bits.
        let ids = ["60", "a0", "e1", "61", "00"].map(|start| format!("{start}{}", "7".repeat(38)));
        let null = "0".repeat(40);
        let mut content = String::from("# pack-refs with: peeled fully-peeled sorted \n");
        let mut names = Vec::new();
        for number in 0..400 {
            // Every so often there is a bad name, one of this worktree alone, or a short one.
            names.push(match number % 29 {
                7 => format!("refs/heads/a-longer-name-that-is..bad-{number:03}"),
                13 => format!("refs/worktree/number-{number:03}"),
                19 => format!("refs/{number:03}"),
                _ => format!("refs/heads/a-longer-name-that-is-good-{number:03}"),
            });
        }
        names.sort();
        for (number, name) in names.iter().enumerate() {
            let id = if number % 31 == 5 {
                &null
            } else {
                &ids[number % ids.len()]
            };
            content += &format!("{id} {name}\n");
            if number % 11 < 2 {
                content += &format!("^{}\n", ids[number % 3]);
            }
        }
        let snapshot = Snapshot::new("packed-refs".into(), ObjectFormat::Sha1, content.into());
        let snapshot = Arc::new(snapshot.unwrap());
        let null = ObjectId::null(ObjectFormat::Sha1);
        let mut wanted = ids.map(|id| ObjectId::from_hex(id.as_bytes()).unwrap());
        wanted.sort();
        for count in 0..=wanted.len() {
            for shared_only in [false, true] {
                for prefix in [
                    &b""[..],
                    b"refs/heads/",
                    b"refs/heads/a-longer-name-that-is-good-1",
                ] {
                    let wanted = &wanted[..count];
                    let all = PackedCursor::new(Arc::clone(&snapshot), null, shared_only);
                    let some = PackedCursor::new(Arc::clone(&snapshot), null, shared_only);
                    let [all, some] = [all, some.of_objects(wanted.to_vec())].map(|mut cursor| {
                        let mut seen = Vec::new();
                        cursor.seek(b"", prefix).unwrap();
                        while cursor.advance().unwrap() {
                            let record = cursor.record();
                            let (oid, peeled) = (record.target.oid(), record.peeled);
                            let mut ids = [oid, peeled].into_iter().flatten();
                            if record.broken || ids.any(|id| wanted.contains(&id)) {
                                let name = record.name.to_string();
                                seen.push((name, oid, peeled, record.broken));
                            }
                        }
                        seen
                    });
                    assert!(all.len() > 2);
                    assert_eq!(some, all);
                }
            }
        }
    }
}
