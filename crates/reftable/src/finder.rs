//! Finding many refs in one pass.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::error::Result;
use crate::merged::MergedRefs;
use crate::record::RefRecord;
use crate::short::{self, has_prefix};
use crate::table::Table;

/// So many names of refs are kept, and so many records beside those asked for are looked at.
const FEW: usize = 16;

/// Finds many refs of the same tables in one pass: a name that is not beyond the record on which the
/// finder stands, or the next one, needs no seek. It goes forwards best, and any way.
///
/// Beside that it tells which refs there are [at all](Self::take_few), where that is a few: after most
/// were deleted.
///
/// ```
/// # use std::sync::Arc;
/// # use reftable::*;
/// # let mut writer = Writer::new(Vec::new(), WriteOptions::new(ObjectFormat::Sha1))?;
/// # for name in [&b"HEAD"[..], b"refs/heads/a", b"refs/heads/b/c"] {
/// #     let value = RefValue::Direct(&[7; 20]);
/// #     writer.add_ref(RefRecord { name, update_index: 1, value })?;
/// # }
/// # let table = Arc::new(Table::open(writer.finish()?.sink)?);
/// let mut finder = RefFinder::new(vec![table]);
/// finder.begin(b"");
/// assert!(finder.find(b"refs/heads/a")?.is_some());
/// assert!(finder.find(b"refs/heads/b")?.is_none());
/// assert!(!finder.is_alone(b"refs/heads/b"));
/// assert_eq!(finder.take_few(None).unwrap().len(), 3);
/// # Ok::<(), Error>(())
/// ```
pub struct RefFinder<'n> {
    tables: Vec<Arc<Table>>,
    merged: MergedRefs,
    /// Whether the cursor stands on the first record that is not before the last name asked for.
    stands: bool,
    /// Whether that record is the one that was asked for.
    is_it: bool,
    ended: bool,
    last: &'n [u8],
    /// The refs that were met since the beginning; `None` if some were passed over, or there are many.
    few: Option<Vec<Vec<u8>>>,
    /// Whether nothing was passed over since the beginning.
    has_all: bool,
}

impl<'n> RefFinder<'n> {
    /// Creates a finder for these tables, oldest first.
    #[must_use]
    pub fn new(tables: Vec<Arc<Table>>) -> Self {
        RefFinder {
            merged: MergedRefs::new(tables.clone()),
            tables,
            stands: false,
            is_it: false,
            ended: false,
            last: &[],
            few: None,
            has_all: false,
        }
    }

    /// Begins to keep the names of the refs that are met, from `name` on. If it cannot, none are kept:
    /// what is damaged there is told by whoever looks for it.
    pub fn begin(&mut self, name: &'n [u8]) {
        self.few = Some(Vec::new());
        self.last = name;
        self.is_it = false;
        self.has_all = true;
        let begun = self.merged.seek(name).and_then(|()| self.advance());
        if begun.is_err() {
            (self.few, self.stands, self.ended) = (None, false, false);
        }
    }

    /// Returns the ref with this name, if there is one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if a block on the way is damaged.
    pub fn find(&mut self, name: &'n [u8]) -> Result<Option<RefRecord<'_>>> {
        if self.tables.is_empty() {
            return Ok(None);
        }
        self.place(name)?;
        if !self.is_it {
            return Ok(None);
        }
        if !self.merged.is_deletion() {
            return Ok(Some(self.merged.record()));
        }
        // What stands behind it tells whether anything can be below the name.
        self.is_it = false;
        self.advance()?;
        Ok(None)
    }

    /// Returns whether no ref is below the name that was asked for last, which was not found.
    #[must_use]
    pub fn is_alone(&self, name: &[u8]) -> bool {
        let next = self.merged.name();
        // What is below is longer, and sorts behind all that goes on with less than a slash.
        !self.stands
            || next.get(name.len()).is_none_or(|byte| *byte > b'/')
            || !has_prefix(next, name)
    }

    /// Returns the names of all refs from where it was begun up to `end`, in their order: if they are
    /// few, and nothing was passed over on the way.
    pub fn take_few(&mut self, end: Option<&[u8]>) -> Option<Vec<Vec<u8>>> {
        let mut looked = 0;
        while self.stands && end.is_none_or(|end| self.merged.name() < end) {
            looked += 1;
            if self.few.is_none() || looked > FEW || self.advance().is_err() {
                return None;
            }
        }
        self.few.take()
    }

    /// Places the cursor on the first record that is not before `name`.
    fn place(&mut self, name: &'n [u8]) -> Result<()> {
        let forward = short::compare(self.last, name);
        self.last = name;
        // The record of a name before this one is before this one as well.
        let is_before = std::mem::take(&mut self.is_it) && forward.is_lt();
        let forward = forward.is_le();
        if forward && self.ended {
            return Ok(());
        }
        if forward && self.stands {
            if !is_before && !self.stands_before(name) {
                return Ok(());
            }
            self.advance()?;
            if self.ended || !self.stands_before(name) || self.walks_to(name) {
                return Ok(());
            }
        }
        self.few = None;
        if std::mem::take(&mut self.has_all) {
            // From there, the next block would be looked into first, which nobody asked for.
            self.merged = MergedRefs::new(self.tables.clone());
        }
        (self.stands, self.ended) = (false, false);
        self.merged.seek(name)?;
        self.advance()?;
        self.stands_before(name);
        Ok(())
    }

    /// Walks to the first record that is not before `name`, if that is near. While what is met is kept,
    /// nothing is passed over for a few records; nobody asked for them, so that damage there is no error.
    fn walks_to(&mut self, name: &[u8]) -> bool {
        for _ in 1..FEW {
            if self.few.is_none() || self.advance().is_err() {
                return false;
            }
            if self.ended || !self.stands_before(name) {
                return true;
            }
        }
        false
    }

    fn advance(&mut self) -> Result<()> {
        // After an error it stands nowhere, and the next name is sought.
        (self.stands, self.ended) = (false, false);
        self.stands = self.merged.advance()?;
        self.ended = !self.stands;
        if let Some(few) = &mut self.few
            && self.stands
            && !self.merged.is_deletion()
        {
            match few.len() < FEW {
                true => few.push(self.merged.name().to_vec()),
                false => self.few = None,
            }
        }
        Ok(())
    }

    /// Returns whether the cursor stands on a record before `name`, and notes whether on that of it.
    fn stands_before(&mut self, name: &[u8]) -> bool {
        let order = self
            .stands
            .then(|| short::compare(self.merged.name(), name));
        self.is_it = order == Some(Ordering::Equal);
        order == Some(Ordering::Less)
    }
}
