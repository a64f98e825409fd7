//! Cursors over the refs of a store: any number of seeks, ranges that are left out, and readers that
//! take a second thread where there is much to read.
//!
//! ```no_run
//! use refdb::Repository;
//!
//! let repository = Repository::discover(".".as_ref())?;
//! let mut refs = repository.store().refs()?.excluding([b"refs/pull/".to_vec()]);
//! refs.seek_prefix(b"refs/")?;
//! while let Some(record) = refs.next()? {
//!     println!("{}", record.name);
//! }
//! # Ok::<(), refdb::Error>(())
//! ```

use std::borrow::BorrowMut;

use crate::backend::batch::Batch;
use crate::backend::cursor::{Cursor, RefRecord};
use crate::beside::{BATCH, beside, turns};
use crate::error::{Error, Result};

/// So many refs are read before a second thread is asked to read the others: a short listing is done
/// sooner than a thread begins.
const READ_ALONE_MAX: usize = 2 << 10;

/// A cursor over the refs of a store, with ranges that it leaves out.
pub struct Refs {
    cursor: Box<dyn Cursor>,
    // Sorted, and none a prefix of another.
    excluded: Vec<Vec<u8>>,
    prefix: Vec<u8>,
}

impl Refs {
    pub(crate) fn over(cursor: Box<dyn Cursor>) -> Self {
        Refs {
            cursor,
            excluded: Vec::new(),
            prefix: Vec::new(),
        }
    }

    /// Leaves out every ref whose name starts with one of `prefixes`, by jumping over the range.
    pub fn excluding(mut self, prefixes: impl IntoIterator<Item = Vec<u8>>) -> Self {
        self.excluded.extend(prefixes);
        self.excluded.sort();
        self.excluded.dedup_by(|next, kept| next.starts_with(kept));
        self
    }

    /// Stands before the first ref whose name is `name` or greater, and forgets any prefix.
    ///
    /// # Errors
    /// `Corrupt` or `Io` for the files.
    pub fn seek(&mut self, name: &[u8]) -> Result<()> {
        self.prefix.clear();
        self.cursor.seek(name, b"")
    }

    /// Stands before the first ref whose name starts with `prefix` (no regard for `/`), and ends
    /// behind the last such ref.
    ///
    /// # Errors
    /// `Corrupt` or `Io` for the files.
    pub fn seek_prefix(&mut self, prefix: &[u8]) -> Result<()> {
        self.prefix = prefix.to_vec();
        self.cursor.seek(prefix, prefix)
    }

    /// Returns the next ref, borrowed from the cursor; `None` at the end.
    ///
    /// # Errors
    /// `Corrupt` or `Io` for the files.
    #[expect(
        clippy::should_implement_trait,
        reason = "records borrow from the cursor"
    )]
    pub fn next(&mut self) -> Result<Option<RefRecord<'_>>> {
        Ok(self.advance()?.then(|| self.cursor.record()))
    }

    /// Moves to the next ref; returns whether there is one.
    fn advance(&mut self) -> Result<bool> {
        while self.cursor.advance()? {
            match self.exclusion() {
                None => return Ok(true),
                Some(prefix) => match successor(prefix) {
                    Some(end) if end.starts_with(&self.prefix) => {
                        self.cursor.seek(&end, &self.prefix)?;
                    }
                    // The range reaches to the end of what the cursor was to show.
                    _ => break,
                },
            }
        }
        Ok(false)
    }

    /// Calls `each` with every ref from here on, until it gives `false`; returns whether it never did.
    /// Where there are many refs, a second thread reads them, a little ahead: after `false` or an error
    /// the cursor stands nowhere in particular, until the next seek.
    ///
    /// # Errors
    /// The first one of `each`; `Corrupt` or `Io` for the files.
    pub fn each<E: From<Error>>(
        &mut self,
        mut each: impl FnMut(RefRecord<'_>) -> std::result::Result<bool, E>,
    ) -> std::result::Result<bool, E> {
        for _ in 0..READ_ALONE_MAX {
            match self.next()? {
                None => return Ok(true),
                Some(record) if !each(record)? => return Ok(false),
                Some(_) => {}
            }
        }
        let mut more = true;
        let mut text_len = 0;
        let read = || {
            // The names of the next ones are about as long as those of the last ones.
            let mut batch = Batch::with_room(BATCH, text_len + text_len / 8);
            while more && batch.len() < BATCH {
                match self.advance() {
                    Ok(true) => self.cursor.copy_to(&mut batch),
                    Ok(false) => more = false,
                    Err(error) => {
                        more = false;
                        return Some((batch, Some(error)));
                    }
                }
            }
            text_len = batch.text_len();
            (batch.len() > 0).then_some((batch, None))
        };
        beside(read, |batches| {
            for (batch, failure) in batches {
                for record in batch.records() {
                    if !each(record)? {
                        return Ok(false);
                    }
                }
                if let Some(error) = failure {
                    return Err(error.into());
                }
            }
            Ok(true)
        })
    }

    /// Makes something of every part of the refs from here on, each of a thousand refs or so, and calls
    /// `take` with what was made, in the order of names, until it gives `false`; returns whether it never
    /// did. Where there are many refs, two threads make them, each with a maker of its own.
    /// Afterwards the cursor stands nowhere in particular, until the next seek.
    ///
    /// ```no_run
    /// # use refdb::{Error, Part, Repository};
    /// let repository = Repository::discover(".".as_ref())?;
    /// let mut refs = repository.store().refs()?;
    /// refs.seek_prefix(b"refs/tags/")?;
    /// let maker = || {
    ///     |part: &mut Part<'_>| {
    ///         let mut lines = String::new();
    ///         part.each(|record| {
    ///             lines += &format!("{}\n", record.name);
    ///             Ok::<_, Error>(())
    ///         })?;
    ///         Ok::<_, Error>(lines)
    ///     }
    /// };
    /// refs.by_parts(maker, |lines| {
    ///     print!("{}", lines?);
    ///     Ok::<_, Error>(true)
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// The first one of `take`. What is wrong with the files is told by [`Part::each`], or here where a
    /// maker did not read its part to the end.
    pub fn by_parts<T: Send, M, E: From<Error>>(
        &mut self,
        maker: impl Fn() -> M + Sync,
        mut take: impl FnMut(T) -> std::result::Result<bool, E>,
    ) -> std::result::Result<bool, E>
    where
        M: FnMut(&mut Part<'_>) -> T,
    {
        let mut make = maker();
        let mut last = Vec::new();
        let mut alone = READ_ALONE_MAX / BATCH;
        let other = loop {
            if alone == 0
                && let Some(another) = self.another()
            {
                break another;
            }
            alone = alone.saturating_sub(1);
            let mut part = Part::of_len(self, BATCH);
            let made = make(&mut part);
            let more = part.finish(&mut last);
            if !take(made)? {
                return Ok(false);
            }
            if !more? {
                return Ok(true);
            }
        };
        // No name lies between a name and itself with a zero byte behind it.
        last.push(0);
        let mut own = Turns::new(self, last.clone());
        let maker = &maker;
        let other = move || {
            let (mut make, mut other) = (maker(), Turns::new(other, last));
            move |turn| other.part(turn).map(|mut part| make(&mut part))
        };
        let own = |turn| own.part(turn).map(|mut part| make(&mut part));
        let stopped = turns(own, other, |_, made| match take(made) {
            Ok(true) => Ok(()),
            Ok(false) => Err(None),
            Err(error) => Err(Some(error)),
        });
        match stopped {
            Ok(()) => Ok(true),
            Err(None) => Ok(false),
            Err(Some(error)) => Err(error),
        }
    }

    /// Makes another cursor over the same moment of the same refs, if that can be.
    fn another(&self) -> Option<Refs> {
        Some(Refs {
            cursor: self.cursor.another()?,
            excluded: self.excluded.clone(),
            prefix: self.prefix.clone(),
        })
    }

    /// Returns where the part ends that begins at `name`; `None` if no other follows.
    fn end_of_part(&mut self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some(ahead) = self.cursor.name_ahead(name)? else {
            return Ok(None);
        };
        // A range that is left out is jumped over at once, however large it is.
        let end = match excluded_prefix(&self.excluded, &ahead) {
            Some(prefix) => successor(prefix),
            None => Some(ahead),
        };
        Ok(end.filter(|end| end.starts_with(&self.prefix) && end.as_slice() > name))
    }

    /// Returns the excluded prefix that the ref has on which the cursor stands.
    fn exclusion(&self) -> Option<&[u8]> {
        if self.excluded.is_empty() {
            return None;
        }
        excluded_prefix(&self.excluded, self.cursor.name().as_bytes())
    }
}

/// Returns which of these prefixes a name has, none of which is a prefix of another.
fn excluded_prefix<'p>(prefixes: &'p [Vec<u8>], name: &[u8]) -> Option<&'p [u8]> {
    let after = prefixes.partition_point(|prefix| prefix.as_slice() <= name);
    let prefix = prefixes.get(after.checked_sub(1)?)?;
    name.starts_with(prefix).then_some(prefix)
}

/// Refs that follow each other, of which [`Refs::by_parts`] makes something.
pub struct Part<'r> {
    refs: &'r mut Refs,
    /// The name before which it ends.
    end: Option<&'r [u8]>,
    /// How many refs of it may still be read.
    left: usize,
    /// Whether there may be more refs behind those read so far, in this part or behind it.
    more: bool,
    /// Why it cannot be read.
    failure: Option<Error>,
}

impl<'r> Part<'r> {
    /// The next refs, so many at most.
    fn of_len(refs: &'r mut Refs, len: usize) -> Self {
        Part {
            refs,
            end: None,
            left: len,
            more: true,
            failure: None,
        }
    }

    /// Calls `each` with every ref of the part, until it fails.
    ///
    /// # Errors
    /// The one of `each`; `Corrupt` or `Io` for the files.
    pub fn each<E: From<Error>>(
        &mut self,
        mut each: impl FnMut(&RefRecord<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        if let Some(error) = self.failure.take() {
            self.more = false;
            return Err(error.into());
        }
        let Refs {
            cursor,
            excluded,
            prefix,
        } = &mut *self.refs;
        while self.more && self.left > 0 {
            let mut failed = None;
            let mut passed_over = None;
            let ran = cursor.run(self.end, &mut |record| {
                if !excluded.is_empty() {
                    passed_over = excluded_prefix(excluded, record.name.as_bytes());
                }
                if passed_over.is_some() {
                    return false;
                }
                self.left -= 1;
                failed = each(record).err();
                failed.is_none() && self.left > 0
            });
            self.more = *ran.as_ref().unwrap_or(&false);
            ran?;
            if let Some(error) = failed {
                return Err(error);
            }
            if let Some(range) = passed_over {
                match successor(range) {
                    Some(behind) if behind.starts_with(prefix) => cursor.seek(&behind, prefix)?,
                    // The range reaches to the end of what the cursor was to show.
                    _ => self.more = false,
                }
            }
        }
        Ok(())
    }

    /// Passes over what was not read; notes the last name. Returns whether there may be more refs.
    fn finish(mut self, last: &mut Vec<u8>) -> Result<bool> {
        self.each(|_| Ok::<_, Error>(()))?;
        last.clear();
        if self.more {
            last.extend_from_slice(self.refs.cursor.name().as_bytes());
        }
        Ok(self.more)
    }
}

/// The parts of what a cursor reads, of which not every one has to be read.
struct Turns<R> {
    refs: R,
    /// Which part comes next, and where it begins; `None` behind the last one.
    turn: usize,
    start: Option<Vec<u8>>,
    end: Option<Vec<u8>>,
}

impl<R: BorrowMut<Refs>> Turns<R> {
    fn new(refs: R, start: Vec<u8>) -> Self {
        Turns {
            refs,
            turn: 0,
            start: Some(start),
            end: None,
        }
    }

    /// Returns a part that was not passed over yet; `None` if there are fewer.
    fn part(&mut self, turn: usize) -> Option<Part<'_>> {
        let refs = self.refs.borrow_mut();
        let mut start = self.start.take()?;
        let found = loop {
            let end = match refs.end_of_part(&start) {
                Ok(end) => end,
                Err(error) => break Err(error),
            };
            self.turn += 1;
            if self.turn > turn {
                self.end = end;
                break refs.cursor.seek(&start, &refs.prefix);
            }
            start = end?;
        };
        if found.is_ok() {
            self.start.clone_from(&self.end);
        }
        Some(Part {
            end: self.end.as_deref(),
            failure: found.err(),
            ..Part::of_len(refs, usize::MAX)
        })
    }
}

/// Returns the least string that is greater than every string starting with `prefix`; `None` if
/// there is none.
fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let keep = prefix.iter().rposition(|&byte| byte != 0xff)?;
    let mut end = prefix.get(..=keep)?.to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    Some(end)
}
