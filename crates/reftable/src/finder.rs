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
/// # let mut writer = Writer::new(Vec::new(), WriteOptions::new(HashId::Sha1))?;
/// # for name in [&b"HEAD"[..], b"refs/heads/a", b"refs/heads/b/c"] {
/// #     let value = RefValue::Direct(&[7; 20]);
/// #     writer.add_ref(RefRecord { name, update_index: 1, value })?;
/// # }
/// # let table = Arc::new(Table::open(writer.finish()?.sink)?);
/// let mut finder = RefFinder::new(vec![table]);
/// finder.begin(b"")?;
/// assert!(finder.find(b"refs/heads/a")?.is_some());
/// assert!(finder.find(b"refs/heads/b")?.is_none());
/// assert!(!finder.is_alone(b"refs/heads/b"));
/// assert_eq!(finder.take_few(None)?.unwrap().len(), 3);
/// # Ok::<(), Error>(())
/// ```
pub struct RefFinder<'n> {
    merged: MergedRefs,
    /// Whether the cursor stands on the first record that is not before the last name asked for.
    stands: bool,
    /// Whether that record is the one that was asked for.
    is_it: bool,
    ended: bool,
    /// Whether there is no table, and so nothing at all.
    is_empty: bool,
    last: &'n [u8],
    /// The refs that were met since the beginning; `None` if some were passed over, or there are many.
    few: Option<Vec<Vec<u8>>>,
}

impl<'n> RefFinder<'n> {
    /// Creates a finder for these tables, oldest first.
    #[must_use]
    pub fn new(tables: Vec<Arc<Table>>) -> Self {
        RefFinder {
            is_empty: tables.is_empty(),
            merged: MergedRefs::new(tables),
            stands: false,
            is_it: false,
            ended: false,
            last: &[],
            few: None,
        }
    }

    /// Begins to keep the names of the refs that are met, from `name` on.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if a block on the way is damaged.
    pub fn begin(&mut self, name: &'n [u8]) -> Result<()> {
        self.few = Some(Vec::new());
        self.last = name;
        self.is_it = false;
        self.merged.seek(name)?;
        self.advance()
    }

    /// Returns the ref with this name, if there is one.
    ///
    /// # Errors
    ///
    /// As for [`begin`](Self::begin).
    pub fn find(&mut self, name: &'n [u8]) -> Result<Option<RefRecord<'_>>> {
        if self.is_empty {
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
    ///
    /// # Errors
    ///
    /// As for [`begin`](Self::begin).
    pub fn take_few(&mut self, end: Option<&[u8]>) -> Result<Option<Vec<Vec<u8>>>> {
        let mut looked = 0;
        while self.few.is_some() && self.stands && end.is_none_or(|end| self.merged.name() < end) {
            self.advance()?;
            looked += 1;
            if looked > FEW {
                self.few = None;
            }
        }
        Ok(self.few.take())
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
            // While what is met is kept, nothing is passed over for a few records.
            let most = if self.few.is_some() { FEW } else { 1 };
            for _ in 0..most {
                self.advance()?;
                if self.ended || !self.stands_before(name) {
                    return Ok(());
                }
            }
        }
        self.few = None;
        self.merged.seek(name)?;
        self.advance()?;
        self.stands_before(name);
        Ok(())
    }

    fn advance(&mut self) -> Result<()> {
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
